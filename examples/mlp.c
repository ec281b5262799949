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
        sl_tensor y =
            sl_gelu(model, "gelu", sl_linear(model, "up", sl_norm(model, "norm", x), &up));
        x = sl_drop_add(model, "drop", sl_linear(model, "down", y, &down), x);
        sl_block_end(model);
    }
    sl_head(model, "bytes", sl_norm(model, "last", x));
    return SL_OK;
}

static sl_status train(sl_options *options, const char *steps)
{
    sl_session *session = NULL;
    sl_step_result step = {.size = sizeof step};
    const char *settings[][2] = {
        {"steps", steps},   {"seq", "64"},           {"micro-batch", "8"},   {"lr", "1e-3"},
        {"policy", "host"}, {"device-memory", "8M"}, {"host-memory", "64M"}, {"tokenizer", "byte"}};
    sl_status status = SL_OK;
    for (size_t i = 0; i < sizeof settings / sizeof *settings && status == SL_OK; i++)
        status = sl_options_set(options, settings[i][0], settings[i][1]);
    if (status == SL_OK)
        status = sl_session_open(options, &session);
    for (uint64_t last = strtoull(steps, NULL, 10); status == SL_OK && step.step < last;) {
        status = sl_session_step(session, &step);
        if (status == SL_OK && (step.step == 1 || step.step % 20 == 0))
            printf("step %llu  loss %.4f\n", (unsigned long long)step.step, step.loss);
    }
    const sl_status closed = sl_session_close(session);
    return status == SL_OK ? closed : status;
}

int main(int argc, char **argv)
{
    sl_options *options = NULL;
    sl_status status = sl_options_open(&options);
    if (status == SL_OK && argc > 1)
        status = sl_options_set(options, "data", argv[1]);
    sl_options_set_model(options, build, NULL);
    status = status == SL_OK ? train(options, argc > 2 ? argv[2] : "100") : status;
    if (status != SL_OK)
        fprintf(stderr, "mlp: %s\n", sl_status_message());
    sl_options_close(options);
    return sl_status_exit_code(status);
}
