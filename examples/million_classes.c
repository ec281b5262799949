/* A head over a million classes: from the last items of a customer, the next one. Over two ranks,
 * each holds half of the classes:
 *
 *   million_classes [CLASSES] [STEPS]
 *   sluice launch -n 2 -- ./million_classes 1000000 10
 */
#include <stdio.h>
#include <stdlib.h>

#include "sluice/session.h"

enum { WIDTH = 64, BLOCKS = 2 };

static sl_status build(sl_model *model, const void *user)
{
    const uint64_t classes = *(const uint64_t *)user;
    const sl_embedding items = {.name = "items", .ids = classes, .width = WIDTH, .deviation = 0.1f};
    const sl_linear_spec up = {.out = 4 * WIDTH, .parallel = SL_COLUMNS, .deviation = 0.1f};
    const sl_linear_spec down = {.out = WIDTH, .parallel = SL_ROWS, .deviation = 0.1f};
    sl_tensor x = sl_embed(model, &items);
    for (uint32_t block = 0; block < BLOCKS; block++) {
        sl_block(model, "block", block);
        sl_tensor y = sl_linear(model, "up", sl_norm(model, "norm", x), &up);
        y = sl_linear(model, "down", sl_gelu(model, "gelu", y), &down);
        x = sl_drop_add(model, "drop", y, x);
        sl_block_end(model);
    }
    sl_head_untied(model, "classes", sl_norm(model, "last", x), classes, 0.1f);
    return SL_OK;
}

/* A customer buys each time the item that lies a fixed way behind the last one. */
static sl_status give_rows(void *user, uint64_t first_row, uint32_t row_count, uint32_t token_count,
                           int32_t *out_tokens)
{
    const uint64_t classes = *(const uint64_t *)user;
    for (uint32_t i = 0; i < row_count; i++)
        for (uint32_t t = 0; t < token_count; t++)
            *out_tokens++ = (int32_t)((37 * (first_row + i) + 13 * (uint64_t)t) % classes);
    return SL_OK;
}

int main(int argc, char **argv)
{
    uint64_t classes = strtoull(argc > 1 ? argv[1] : "1000000", NULL, 10);
    const char *steps = argc > 2 ? argv[2] : "10", *ranks = getenv("SLUICE_RANKS");
    const char *const settings[] = {
        "tp", ranks ? ranks : "1", "seq", "16", "micro-batch", "4", "steps", steps, "lr", "1e-2",
        NULL};
    sl_options *options = NULL;
    sl_session *session = NULL;
    sl_step_result step = {.size = sizeof step};
    sl_status status = sl_options_open(&options);
    if (status == SL_OK)
        status = sl_options_set_all(options, settings);
    if (status == SL_OK) {
        sl_options_set_model(options, build, &classes);
        sl_options_set_rows(options, give_rows, &classes);
        status = sl_session_open(options, &session);
    }
    while (status == SL_OK && step.step < strtoull(steps, NULL, 10))
        status = sl_session_step(session, &step);
    if (status == SL_OK && sl_session_rank(session) == 0)
        printf("loss %.4f; device %.1f MiB on each rank\n", step.loss,
               (double)step.peak_bytes[0] / (1 << 20));
    if (status != SL_OK)
        fprintf(stderr, "million_classes: %s\n", sl_status_message());
    sl_session_close(session);
    sl_options_close(options);
    return sl_status_exit_code(status);
}
