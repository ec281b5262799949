/* gpt2 FILE DIR [STEPS]: GPT-2 by the library's layers trains on a file, is evaluated, and is saved
 * under DIR; a second call goes on from there. `sluice generate` refuses DIR: it does not know the
 * model of a program. A GPT-2 of the options "layers", "width" and "heads" can generate. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "sluice/session.h"

enum { LAYERS = 4, WIDTH = 128, HEADS = 4, CONTEXT = 128, BYTES = 257 };

static sl_tensor build_block(sl_model *model, sl_tensor x)
{
    const float branch = 0.02f / sqrtf(2.0f * LAYERS);
    const sl_linear_spec qkv = {3 * WIDTH, SL_QKV, HEADS, 0.02f};
    const sl_linear_spec narrow = {WIDTH, SL_ROWS, 0, branch};
    const sl_linear_spec wide = {4 * WIDTH, SL_COLUMNS, 0, 0.02f};
    sl_tensor y = sl_linear(model, "attn.c_attn", sl_norm(model, "ln_1", x), &qkv);
    y = sl_linear(model, "attn.c_proj", sl_attention(model, "attn", y, HEADS), &narrow);
    x = sl_drop_add(model, "attn.dropout", y, x);
    y = sl_linear(model, "mlp.c_fc", sl_norm(model, "ln_2", x), &wide);
    y = sl_linear(model, "mlp.c_proj", sl_gelu(model, "mlp.gelu", y), &narrow);
    return sl_drop_add(model, "mlp.dropout", y, x);
}

static sl_status build(sl_model *model, const void *user)
{
    const sl_embedding tokens = {"wte", BYTES, WIDTH, "wpe", CONTEXT, 0.02f};
    sl_tensor x = sl_drop(model, "embedding.dropout", sl_embed(model, &tokens));
    (void)user;
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        sl_block(model, "h", layer);
        x = build_block(model, x);
        sl_block_end(model);
    }
    sl_head(model, "wte", sl_norm(model, "ln_f", x));
    return SL_OK;
}

static sl_status train(sl_session *session, uint64_t last)
{
    sl_step_result step = {.size = sizeof step};
    double loss = 0;
    sl_status status = SL_OK;
    while (status == SL_OK && sl_session_step_count(session) < last) {
        status = sl_session_step(session, &step);
        if (status == SL_OK && step.step % 8 == 0)
            printf("step %d  loss %.4f\n", (int)step.step, step.loss);
    }
    if (status == SL_OK)
        status = sl_session_evaluate(session, &loss);
    if (status == SL_OK)
        printf("loss of the whole file %.4f\n", loss);
    return status == SL_OK ? sl_session_save(session) : status;
}

int main(int argc, char **argv)
{
    const char *file = argc > 1 ? argv[1] : "", *directory = argc > 2 ? argv[2] : "";
    const char *steps = argc > 3 ? argv[3] : "100";
    const char *const settings[] = {"data",    file,    "eval-data", file,     "save",
                                    directory, "steps", steps,       "resume", "true",
                                    "policy",  "host",  "lr",        "1e-3",   NULL};
    sl_options *options = NULL;
    sl_session *session = NULL;
    sl_status status = sl_options_open(&options);
    if (status == SL_OK)
        status = sl_options_set_all(options, settings);
    if (status == SL_OK) {
        sl_options_set_model(options, build, NULL);
        status = sl_session_open(options, &session);
    }
    if (status == SL_OK)
        status = train(session, strtoull(steps, NULL, 10));
    if (status != SL_OK)
        fprintf(stderr, "gpt2: %s\n", sl_status_message());
    sl_session_close(session);
    sl_options_close(options);
    return sl_status_exit_code(status);
}
