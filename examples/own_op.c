/* own_op FILE: trains a byte-level model with an op of one's own, max(x, 0) squared (So et al.
 * 2021). */
#include <stdio.h>

#include "sluice/session.h"

static void square_forward(const sl_custom_rows *rows)
{
    for (uint64_t i = 0; i < rows->row_count * rows->in; i++)
        rows->y[i] = rows->x[i] > 0 ? rows->x[i] * rows->x[i] : 0;
}

static void square_backward(const sl_custom_rows *rows)
{
    for (uint64_t i = 0; i < rows->row_count * rows->in; i++)
        rows->dx[i] = rows->x[i] > 0 ? 2 * rows->x[i] * rows->dy[i] : 0;
}

static const sl_custom_op square = {"square", square_forward, square_backward, .is_elementwise = 1};

static sl_status build(sl_model *model, const void *user)
{
    const sl_embedding bytes = {.name = "bytes", .ids = 257, .width = 128};
    const sl_linear_spec up = {.out = 512, .parallel = SL_COLUMNS};
    const sl_linear_spec down = {.out = 128, .parallel = SL_ROWS};
    sl_tensor x = sl_embed(model, &bytes);
    (void)user;
    for (uint32_t block = 0; block < 4; block++) {
        sl_block(model, "block", block);
        sl_tensor y = sl_linear(model, "up", sl_norm(model, "norm", x), &up);
        y = sl_linear(model, "down", sl_custom(model, "act", &square, y), &down);
        x = sl_drop_add(model, "drop", y, x);
        sl_block_end(model);
    }
    sl_head(model, "bytes", sl_norm(model, "last", x));
    return SL_OK;
}

int main(int argc, char **argv)
{
    const char *const text[] = {"data", argc > 1 ? argv[1] : "", "seq", "64", "lr", "3e-3", NULL};
    sl_options *options = NULL;
    sl_session *session = NULL;
    sl_step_result step = {.size = sizeof step};
    sl_status status = sl_custom_check(&square, 512, 1); /* against finite differences */
    if (status == SL_OK)
        status = sl_options_open(&options);
    if (status == SL_OK)
        status = sl_options_set_all(options, text);
    if (status == SL_OK) {
        sl_options_set_model(options, build, NULL);
        status = sl_session_open(options, &session);
    }
    while (status == SL_OK && step.step < 100)
        status = sl_session_step(session, &step);
    printf("%s, loss %.4f\n", status == SL_OK ? "trained" : sl_status_message(), step.loss);
    sl_session_close(session);
    sl_options_close(options);
    return sl_status_exit_code(status);
}
