/* What could be wrong with the custom ops of a model: other bits where the plan places or cuts
 * differently; gradients that are no sum over rows, ranks or micro-batches; a weight that is not
 * divided as its features are; half precision that is rounded twice; a wrong op that nobody
 * notices.
 *
 * With arguments (names and values of options) this program is a rank of `sluice launch`: it trains
 * the model and prints its losses.
 */
#define _GNU_SOURCE
#include "session_case.h"

#include <math.h>

enum { WIDTH = 24, HIDDEN = 48 };

/* ---- ops ---- */

/* silu(x) * z * w, by element */
static void gate(const sl_custom_rows *rows)
{
    for (uint64_t i = 0; i < rows->row_count * rows->in; i++)
        rows->y[i] = rows->x[i] / (1 + expf(-rows->x[i])) * rows->z[i] * rows->weight[i % rows->in];
}

static void gate_backward(const sl_custom_rows *rows)
{
    for (uint64_t i = 0; i < rows->row_count * rows->in; i++) {
        const float x = rows->x[i], z = rows->z[i], s = 1 / (1 + expf(-x));
        const float w = rows->weight[i % rows->in], dy = rows->dy[i];
        rows->dx[i] = dy * w * z * s * (1 + x * (1 - s));
        rows->dz[i] = dy * w * x * s;
        rows->dweight[i % rows->in] += dy * x * s * z;
    }
}

/* x / root(mean of squares) * w */
static float find_scale(const float *x, uint64_t count)
{
    float sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += x[i] * x[i];
    return 1 / sqrtf(sum / (float)count + 1e-5f);
}

static void rms(const sl_custom_rows *rows)
{
    for (uint64_t r = 0; r < rows->row_count; r++) {
        const float *x = rows->x + r * rows->in, scale = find_scale(x, rows->in);
        for (uint64_t i = 0; i < rows->in; i++)
            rows->y[r * rows->in + i] = x[i] * scale * rows->weight[i];
    }
}

static void rms_backward(const sl_custom_rows *rows)
{
    for (uint64_t r = 0; r < rows->row_count; r++) {
        const float *x = rows->x + r * rows->in, *dy = rows->dy + r * rows->in;
        const float scale = find_scale(x, rows->in);
        float sum = 0;
        for (uint64_t i = 0; i < rows->in; i++) {
            sum += dy[i] * rows->weight[i] * x[i];
            rows->dweight[i] += dy[i] * x[i] * scale;
        }
        sum *= scale * scale / (float)rows->in;
        for (uint64_t i = 0; i < rows->in; i++)
            rows->dx[r * rows->in + i] = scale * (dy[i] * rows->weight[i] - x[i] * sum);
    }
}

/* A product with a matrix [in, out]. */
static void mix(const sl_custom_rows *rows)
{
    const uint64_t in = rows->in, out = rows->out;
    for (uint64_t r = 0; r < rows->row_count; r++)
        for (uint64_t o = 0; o < out; o++) {
            float sum = 0;
            for (uint64_t i = 0; i < in; i++)
                sum += rows->x[r * in + i] * rows->weight[i * out + o];
            rows->y[r * out + o] = sum;
        }
}

static void mix_backward(const sl_custom_rows *rows)
{
    const uint64_t in = rows->in, out = rows->out;
    for (uint64_t r = 0; r < rows->row_count; r++)
        for (uint64_t i = 0; i < in; i++) {
            float sum = 0;
            for (uint64_t o = 0; o < out; o++) {
                sum += rows->dy[r * out + o] * rows->weight[i * out + o];
                rows->dweight[i * out + o] += rows->x[r * in + i] * rows->dy[r * out + o];
            }
            rows->dx[r * in + i] = sum;
        }
}

static void gelu(const sl_custom_rows *rows)
{
    for (uint64_t i = 0; i < rows->row_count * rows->in; i++) {
        const float x = rows->x[i], u = 0.7978845608f * (x + 0.044715f * x * x * x);
        rows->y[i] = 0.5f * x * (1 + tanhf(u));
    }
}

static void gelu_backward(const sl_custom_rows *rows)
{
    for (uint64_t i = 0; i < rows->row_count * rows->in; i++) {
        const float x = rows->x[i], t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
        const float du = 0.7978845608f * (1 + 3 * 0.044715f * x * x);
        rows->dx[i] = rows->dy[i] * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * du);
    }
}

static const sl_custom_op gate_op = {.name = "gate",
                                     .forward = gate,
                                     .backward = gate_backward,
                                     .weight = {HIDDEN},
                                     .mean = 1,
                                     .is_elementwise = 1};
static const sl_custom_op rms_op = {
    .name = "rms", .forward = rms, .backward = rms_backward, .weight = {WIDTH}, .mean = 1};
static const sl_custom_op mix_op = {.name = "mix",
                                    .forward = mix,
                                    .backward = mix_backward,
                                    .out = WIDTH,
                                    .weight = {WIDTH, WIDTH},
                                    .deviation = 0.2f,
                                    .flops = 2 * WIDTH * WIDTH,
                                    .seconds = 1e-6f};
static const sl_custom_op gelu_op = {
    .name = "gelu", .forward = gelu, .backward = gelu_backward, .is_elementwise = 1};

/* ---- models ---- */

/* Norms of rows that ranks may have shared out, gates of features that they have, a matrix whose
 * gradient is a sum over all of it. */
static sl_status build(sl_model *model, const void *user)
{
    const sl_embedding bytes = {.name = "bytes", .ids = VOCAB, .width = WIDTH, .deviation = 0.1f};
    const sl_linear_spec up = {.out = HIDDEN, .parallel = SL_COLUMNS, .deviation = 0.2f};
    const sl_linear_spec down = {.out = WIDTH, .parallel = SL_ROWS, .deviation = 0.1f};
    sl_tensor x = sl_embed(model, &bytes);
    (void)user;
    for (uint32_t block = 0; block < 4; block++) {
        sl_block(model, "block", block);
        sl_tensor y = sl_custom(model, "norm", &rms_op, x);
        y = sl_custom_two(model, "act", &gate_op, sl_linear(model, "gate", y, &up),
                          sl_linear(model, "up", y, &up));
        x = sl_drop_add(model, "drop", sl_linear(model, "down", y, &down), x);
        sl_block_end(model);
    }
    x = sl_gelu(model, "curve", sl_custom(model, "mix", &mix_op, sl_norm(model, "last", x)));
    sl_head(model, "bytes", x);
    return SL_OK;
}

/* The same model twice: with the library's GELU, and with one of its own. */
static sl_status build_gelu(sl_model *model, const void *user)
{
    const int is_custom = *(const int *)user;
    const sl_embedding bytes = {.name = "bytes", .ids = VOCAB, .width = WIDTH, .deviation = 0.1f};
    const sl_linear_spec up = {.out = HIDDEN, .parallel = SL_COLUMNS, .deviation = 0.2f};
    const sl_linear_spec down = {.out = WIDTH, .parallel = SL_ROWS, .deviation = 0.1f};
    sl_tensor x = sl_embed(model, &bytes);
    for (uint32_t block = 0; block < 2; block++) {
        sl_block(model, "block", block);
        sl_tensor y = sl_linear(model, "up", sl_norm(model, "norm", x), &up);
        y = is_custom ? sl_custom(model, "act", &gelu_op, y) : sl_gelu(model, "act", y);
        x = sl_drop_add(model, "drop", sl_linear(model, "down", y, &down), x);
        sl_block_end(model);
    }
    sl_head(model, "bytes", sl_norm(model, "last", x));
    return SL_OK;
}

/* Trains with settings over `common`; returns the status. */
static sl_status train_custom(sl_build built, const void *user, const char *const *settings,
                              double *out_losses)
{
    static const char *const common[] = {
        "seq",  "32",   "micro-batch", "4", "accumulate",    "2",   "steps",       "4",
        "lr",   "0.02", "threads",     "1", "device-memory", "64M", "host-memory", "64M",
        "data", "text", "disk-dir",    ".", "disk-space",    "64M", NULL};
    sl_options *options = NULL;
    sl_session *session = NULL;
    sl_step_result step = {.size = sizeof step};
    sl_status status = sl_options_open(&options);
    if (status == SL_OK)
        status = sl_options_set_all(options, common);
    if (status == SL_OK)
        status = sl_options_set_all(options, settings);
    if (status == SL_OK) {
        sl_options_set_model(options, built, user);
        status = sl_session_open(options, &session);
    }
    for (int i = 0; i < STEPS && status == SL_OK; i++) {
        status = sl_session_step(session, &step);
        out_losses[i] = step.loss;
    }
    (void)sl_session_close(session);
    sl_options_close(options);
    return status;
}

static void assert_near(const double *losses, const double *expected, double tolerance)
{
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(losses[i] - expected[i]) <= tolerance * expected[i]))
            fail_msg("step %d: %.9g, not %.9g", i + 1, losses[i], expected[i]);
}

/* ---- tests ---- */

static void custom_when_placed_or_cut_otherwise_gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const runs[][5] = {{"policy", "device"},     {"policy", "host"},
                                          {"policy", "nvme"},       {"threads", "2"},
                                          {"recompute", "full"},    {"recompute", "selective"},
                                          {"accumulation", "layer"}};
    double first[STEPS], losses[STEPS];
    must(train_custom(build, NULL, runs[0], first));
    assert_true(first[STEPS - 1] < first[0] - 0.1);
    for (size_t i = 1; i < sizeof runs / sizeof *runs; i++) {
        must(train_custom(build, NULL, runs[i], losses));
        if (memcmp(losses, first, sizeof first) != 0)
            fail_msg("%s %s: other bits", runs[i][0], runs[i][1]);
    }
}

static void custom_when_it_is_a_layer_of_the_library_gives_its_losses(void **state)
{
    (void)state;
    static const char *const types[][3] = {{"precision", "fp32"}, {"precision", "bf16"}};
    static const double tolerances[] = {1e-6, 1e-3};
    for (int i = 0; i < 2; i++) {
        const int no = 0, yes = 1;
        double of_library[STEPS], of_program[STEPS];
        must(train_custom(build_gelu, &no, types[i], of_library));
        must(train_custom(build_gelu, &yes, types[i], of_program));
        assert_near(of_program, of_library, tolerances[i]);
    }
}

static void custom_when_in_half_precision_follows_fp32(void **state)
{
    (void)state;
    static const char *const whole[] = {"precision", "fp32", NULL};
    static const char *const half[] = {"precision", "bf16", NULL};
    double of_whole[STEPS], of_half[STEPS];
    must(train_custom(build, NULL, whole, of_whole));
    must(train_custom(build, NULL, half, of_half));
    assert_near(of_half, of_whole, 0.02);
}

static char program[PATH_MAX];

static void custom_when_ranks_share_the_work_gives_the_losses_of_one(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *settings;
    } runs[] = {{2, "tp 2"},
                {2, "tp 2 sequence-parallel true"},
                {2, "pp 2"},
                {2, "zero 3 accumulate 1"},
                {4, "tp 2 pp 2 sequence-parallel true"}};
    static const char *const alone[] = {NULL};
    double expected[STEPS], losses[STEPS];
    must(train_custom(build, NULL, alone, expected));
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char command[PATH_MAX + 128];
        snprintf(command, sizeof command, "launch -n %d -- %s %s", runs[i].ranks, program,
                 runs[i].settings);
        assert_code(sluice(command), 0);
        const char *at = strstr(output, "losses ");
        if (at == NULL)
            fail_msg("%s: %s", runs[i].settings, output);
        assert_int_equal(
            sscanf(at, "losses %lf %lf %lf %lf", &losses[0], &losses[1], &losses[2], &losses[3]),
            STEPS);
        print_message("%s: %.9g, alone %.9g\n", runs[i].settings, losses[3], expected[3]);
        assert_near(losses, expected, 2e-5);
    }
}

/* ---- wrong ops ---- */

static void forget_dx(const sl_custom_rows *rows)
{
    (void)rows;
}

static void halve_dx(const sl_custom_rows *rows)
{
    gelu_backward(rows);
    for (uint64_t i = 0; i < rows->in; i++)
        rows->dx[(rows->row_count - 1) * rows->in + i] *= 0.5f;
}

static void set_dweight(const sl_custom_rows *rows)
{
    for (uint64_t i = 0; i < rows->in; i++)
        rows->dweight[i] = 0;
    rms_backward(rows);
}

static void read_first_row(const sl_custom_rows *rows)
{
    gelu(rows);
    for (uint64_t r = 1; r < rows->row_count; r++)
        rows->y[r * rows->in] += rows->x[0];
}

static void custom_when_wrong_is_found_by_the_check(void **state)
{
    (void)state;
    static const struct {
        sl_custom_op op;
        const char *part;
    } wrong[] = {
        {{"forgets", gelu, forget_dx}, "of dx is not written"},
        {{"halves", gelu, halve_dx}, "finite differences"},
        {{"sets", rms, set_dweight, .weight = {WIDTH}, .mean = 1}, "dweight is added to"},
        {{"reads", read_first_row, gelu_backward}, "depends on the rows beside it"},
        {{"mixes", rms, rms_backward, .weight = {WIDTH}, .mean = 1, .is_elementwise = 1},
         "is not elementwise"},
        {{"lacks", gelu, NULL}, "a name, forward and backward"},
        {{"short", gate, gate_backward, .weight = {WIDTH / 2}, .is_elementwise = 1},
         "features is {24, 0}, not {12, 0}"},
        {{"wide", gelu, gelu_backward, .out = 2 * WIDTH, .is_elementwise = 1}, "gives 48"},
        {{"hurries", gelu, gelu_backward, .seconds = -1}, "seconds -1"},
    };
    must(sl_custom_check(&gate_op, HIDDEN, 2));
    must(sl_custom_check(&rms_op, WIDTH, 1));
    must(sl_custom_check(&mix_op, WIDTH, 1));
    must(sl_custom_check(&gelu_op, 1, 1));
    must(sl_custom_check(&gelu_op, 4096, 1));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (sl_custom_check(&wrong[i].op, WIDTH, 1) != SL_ERROR_USAGE)
            fail_msg("%s passes", wrong[i].op.name);
        assert_has(sl_status_message(), wrong[i].part);
    }
    assert_int_equal(sl_custom_check(&gelu_op, 0, 1), SL_ERROR_USAGE);
    assert_int_equal(sl_custom_check(&gelu_op, 8, 3), SL_ERROR_USAGE);
}

typedef enum mistake { OTHER_WIDTH, OTHER_WEIGHT, SAME_NAME, MISTAKES } mistake;

static sl_status build_mistaken(sl_model *model, const void *user)
{
    const mistake which = *(const mistake *)user;
    const sl_embedding bytes = {.name = "bytes", .ids = VOCAB, .width = WIDTH};
    const sl_linear_spec wide = {.out = HIDDEN, .parallel = SL_COLUMNS};
    sl_custom_op other = gelu_op;
    sl_tensor x = sl_embed(model, &bytes), y = sl_linear(model, "up", x, &wide);
    if (which == OTHER_WIDTH)
        x = sl_custom_two(model, "gate", &gate_op, y, x);
    if (which == OTHER_WEIGHT)
        x = sl_custom_two(model, "gate", &gate_op, x, x);
    if (which == SAME_NAME) {
        other.forward = rms;
        x = sl_custom(model, "one", &gelu_op, sl_custom(model, "two", &other, x));
    }
    sl_head(model, "bytes", x);
    return SL_OK;
}

static void custom_when_it_does_not_fit_the_model_is_refused(void **state)
{
    (void)state;
    static const char *const parts[MISTAKES] = {
        [OTHER_WIDTH] = "gate: up has 48 features and bytes 24",
        [OTHER_WEIGHT] =
            "gate: the weight of an elementwise op of 24 features is {24, 0}, not {48, 0}",
        [SAME_NAME] = "two custom ops have the name gelu"};
    static const char *const alone[] = {NULL};
    double losses[STEPS];
    for (mistake which = OTHER_WIDTH; which < MISTAKES; which++) {
        assert_int_equal(train_custom(build_mistaken, &which, alone, losses), SL_ERROR_USAGE);
        assert_has(sl_status_message(), parts[which]);
    }
}

static int run_rank(int count, char **settings)
{
    double losses[STEPS];
    const char *given[32] = {NULL};
    for (int i = 0; i < count && i < 31; i++)
        given[i] = settings[i];
    const sl_status status = train_custom(build, NULL, given, losses);
    const char *rank = getenv("SLUICE_RANK");
    if (status != SL_OK)
        fprintf(stderr, "%s\n", sl_status_message());
    else if (rank == NULL || strcmp(rank, "0") == 0)
        printf("losses %.12g %.12g %.12g %.12g\n", losses[0], losses[1], losses[2], losses[3]);
    return sl_status_exit_code(status);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return run_rank(argc - 1, argv + 1);
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(custom_when_placed_or_cut_otherwise_gives_the_same_bits),
        cmocka_unit_test(custom_when_it_is_a_layer_of_the_library_gives_its_losses),
        cmocka_unit_test(custom_when_in_half_precision_follows_fp32),
        cmocka_unit_test(custom_when_ranks_share_the_work_gives_the_losses_of_one),
        cmocka_unit_test(custom_when_wrong_is_found_by_the_check),
        cmocka_unit_test(custom_when_it_does_not_fit_the_model_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
