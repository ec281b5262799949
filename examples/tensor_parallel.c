/* Tensor parallelism in a training loop of one's own: two linears with a ReLU between them, the
 * first split by columns and the second by rows, and a head whose classes are split. Learns the
 * classes of 64 samples by gradient descent. Each of N ranks computes 1 / N of every layer:
 *
 *   tensor_parallel
 *   sluice launch -n 2 -- ./tensor_parallel
 *
 * Both print the same losses up to rounding in fp32: two ranks add the terms of a sum in another
 * order than one. Initial weights are the same, because sl_parallel_draw draws by place.
 */
#include <stdio.h>

#include "sluice/parallel.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        sl_status status_of_call = (call);                                                         \
        if (status_of_call != SL_OK)                                                               \
            return status_of_call;                                                                 \
    } while (0)

enum { SAMPLES = 64, WIDTH = 32, HIDDEN = 128, CLASSES = 1000, STEPS = 50, LAYERS = 3 };
enum { WEIGHTS_MAX = WIDTH * CLASSES };

/* With room for all of it, as one rank needs; of several, each uses the front for its part. */
static float x[SAMPLES * WIDTH], hidden[SAMPLES * HIDDEN], y[SAMPLES * WIDTH];
static float logits[SAMPLES * CLASSES], dhidden[SAMPLES * HIDDEN], dy[SAMPLES * WIDTH];
static float weights[LAYERS][WEIGHTS_MAX], gradients[LAYERS][WEIGHTS_MAX];
static int32_t targets[SAMPLES];
static double loss;

/* clang-format off */
static const sl_parallel_linear_args layers[LAYERS] = {
    {.rows = SAMPLES, .in = WIDTH, .out = HIDDEN, .split = SL_PARALLEL_COLUMNS, .is_y_split = 1,
     .x = x, .weight = weights[0], .y = hidden, .dy = dhidden, .dweight = gradients[0]},
    {.rows = SAMPLES, .in = HIDDEN, .out = WIDTH, .split = SL_PARALLEL_ROWS, .is_x_split = 1,
     .x = hidden, .weight = weights[1], .y = y, .dy = dy, .dx = dhidden, .dweight = gradients[1]},
    {.rows = SAMPLES, .in = WIDTH, .out = CLASSES, .split = SL_PARALLEL_COLUMNS, .is_y_split = 1,
     .x = y, .weight = weights[2], .y = logits, .dy = logits, .dx = dy, .dweight = gradients[2]}};
static const sl_parallel_cross_entropy_args entropy = { /* the gradient is written over the logits */
    .rows = SAMPLES, .classes = CLASSES, .targets = targets, .logits = logits, .loss = &loss,
    .dlogits = logits};
/* clang-format on */

static sl_status step(sl_parallel_team *team)
{
    TRY(sl_parallel_linear_forward(team, &layers[0]));
    for (int i = 0; i < SAMPLES * HIDDEN; i++)
        hidden[i] = hidden[i] > 0 ? hidden[i] : 0;
    TRY(sl_parallel_linear_forward(team, &layers[1]));
    TRY(sl_parallel_linear_forward(team, &layers[2]));
    TRY(sl_parallel_cross_entropy(team, &entropy));
    TRY(sl_parallel_linear_backward(team, &layers[2]));
    TRY(sl_parallel_linear_backward(team, &layers[1]));
    for (int i = 0; i < SAMPLES * HIDDEN; i++)
        dhidden[i] = hidden[i] > 0 ? dhidden[i] : 0;
    TRY(sl_parallel_linear_backward(team, &layers[0]));
    for (int layer = 0; layer < LAYERS; layer++)
        for (int i = 0; i < WEIGHTS_MAX; i++)
            weights[layer][i] -= 0.2f * gradients[layer][i];
    return SL_OK;
}

static sl_status train(sl_parallel_team *team, int is_first_rank)
{
    const sl_parallel_matrix samples = {SAMPLES, WIDTH, SL_PARALLEL_WHOLE};
    TRY(sl_parallel_draw(team, &samples, 1, 1, x));
    for (int i = 0; i < LAYERS; i++) {
        const sl_parallel_matrix weight = {layers[i].in, layers[i].out, layers[i].split};
        TRY(sl_parallel_draw(team, &weight, (uint64_t)i + 2, 0.2f, weights[i]));
    }
    for (int i = 0; i < SAMPLES; i++)
        targets[i] = i * 37 % CLASSES;
    for (int i = 1; i <= STEPS; i++) {
        TRY(step(team));
        if (is_first_rank && i % 10 == 0)
            printf("step %d loss %.6f\n", i, loss);
    }
    return SL_OK;
}

int main(void)
{
    sl_comm *world = NULL;
    sl_parallel_team *team = NULL;
    sl_status status = sl_comm_open(0, &world);
    if (status == SL_OK)
        status = sl_parallel_open(world, 0, &team);
    if (status == SL_OK)
        status = train(team, sl_comm_rank(world) == 0);
    if (status != SL_OK)
        fprintf(stderr, "tensor_parallel: %s\n", sl_status_message());
    sl_parallel_close(team);
    sl_comm_close(world);
    return sl_status_exit_code(status);
}
