/* A model that is not GPT-2: a byte-level language model of residual MLP blocks.
 *
 *   mlp FILE [STEPS]     trains on the bytes of FILE; states live in host memory
 */
#include <stdio.h>
#include <stdlib.h>

#include "sluice/session.h"

enum { WIDTH = 128, HIDDEN = 512, BLOCKS = 4, BYTES = 257 };

/* x + down(gelu(up(norm(x)))), four times */
static sl_status build(sl_model *model, const void *user)
{
    const sl_embedding bytes = {.name = "bytes", .ids = BYTES, .width = WIDTH, .deviation = 0.05f};
    const sl_linear_spec up = {.out = HIDDEN, .parallel = SL_COLUMNS, .deviation = 0.05f};
    const sl_linear_spec down = {.out = WIDTH, .parallel = SL_ROWS, .deviation = 0.05f};
    sl_tensor x = sl_embed(model, &bytes);
    (void)user;
    for (uint32_t block = 0; block < BLOCKS; block++) {
        sl_block(model, "block", block);
        sl_tensor y = sl_linear(model, "up", sl_norm(model, "norm", x), &up);
        y = sl_linear(model, "down", sl_gelu(model, "gelu", y), &down);
        x = sl_drop_add(model, "drop", y, x);
        sl_block_end(model);
    }
    sl_head(model, "bytes", sl_norm(model, "last", x));
    return SL_OK;
}

int main(int argc, char **argv)
{
    const char *file = argc > 1 ? argv[1] : "", *steps = argc > 2 ? argv[2] : "100";
    const char *const settings[] = {"data",          file, "steps",       steps,  "seq",    "64",
                                    "micro-batch",   "8",  "lr",          "1e-3", "policy", "host",
                                    "device-memory", "8M", "host-memory", "64M",  NULL};
    sl_options *options = NULL;
    sl_session *session = NULL;
    sl_step_result step = {.size = sizeof step};
    sl_status status = sl_options_open(&options);
    if (status == SL_OK)
        status = sl_options_set_all(options, settings);
    if (status == SL_OK) {
        sl_options_set_model(options, build, NULL);
        status = sl_session_open(options, &session);
    }
    while (status == SL_OK && step.step < strtoull(steps, NULL, 10)) {
        status = sl_session_step(session, &step);
        if (status == SL_OK && (step.step == 1 || step.step % 20 == 0))
            printf("step %d  loss %.4f\n", (int)step.step, step.loss);
    }
    if (status != SL_OK)
        fprintf(stderr, "mlp: %s\n", sl_status_message());
    sl_session_close(session);
    sl_options_close(options);
    return sl_status_exit_code(status);
}
