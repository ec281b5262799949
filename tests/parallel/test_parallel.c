/* What could be wrong here: a parallel layer computes another function than PyTorch's layer of the
 * whole weight, in one of its modes (torchshard's: weight whole, by columns, by rows; x split or
 * whole; y split or gathered), on ranks that do not divide a size or have nothing of it; a gradient
 * lacks the other ranks' terms, or has them twice; the cross-entropy of a million divided classes
 * loses bits; parts overlap; initial values depend on the ranks.
 *
 * Each rank computes its part through sluice/parallel.h and compares it with the same part of what
 * PyTorch made of the whole (reference/make_layers.py). Ranks are threads, or processes. */
#define _GNU_SOURCE
#include <fcntl.h>

#include "comm/comm_world.h"
#include "files/safetensors.h"
#include "sluice/parallel.h"

#define REFERENCE SL_TEST_SOURCE_DIRECTORY "/reference/layers.safetensors"

/* Relative to the norm of the part. fp32 sums of at most 96 terms are off by some 2e-7; a term that
 * is missing or taken twice, by more than 1e-2. */
static const double tolerance = 1.5e-6;

typedef struct shape {
    const char *name;
    uint64_t rows, in, out, classes;
} shape;

/* As in make_layers.py. */
static const shape shapes[] = {
    {"odd", 23, 37, 53, 7}, {"few", 5, 3, 2, 3}, {"even", 16, 64, 96, 96}};
static const uint32_t sizes[] = {1, 2, 4};

enum { SHAPES = 3, SPLITS = 3, MODES = SPLITS * 4 };

/* ---- the reference ---- */

static sl_safetensors *reference;

/* All bytes of a tensor; release with free(). NULL: something is wrong. */
static void *read_tensor(const char *shape_name, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%s.%s", shape_name, name);
    const sl_safetensors_tensor *tensor = sl_safetensors_find(reference, text);
    void *data = tensor ? malloc(tensor->byte_count) : NULL;
    if (data &&
        sl_files_read_at(&reference->file, tensor->first_byte, tensor->byte_count, data) != SL_OK) {
        free(data);
        data = NULL;
    }
    return data;
}

static int open_reference(void **state)
{
    (void)state;
    return sl_safetensors_open(AT_FDCWD, NULL, REFERENCE, SL_LINKS_FOLLOW, &reference) != SL_OK;
}

static int close_reference(void **state)
{
    (void)state;
    sl_safetensors_close(reference);
    return 0;
}

/* ---- a rank ---- */

enum { OWNED_MAX = 32 };

/* A rank that checks one thing; what it allocates lives as long. */
typedef struct rank {
    sl_parallel_team *team;
    const shape *shape;
    char mode[96]; /* for messages */
    void *owned[OWNED_MAX];
    int owned_count;
    answer *out;
} rank;

static void complain_once(rank *it, const char *what, double error)
{
    if (!it->out->is_wrong)
        complain(it->out, "%s, %s: %s (%.3g); %s", it->shape->name, it->mode, what, error,
                 sl_status_message());
}

static bool open_rank(rank *it, sl_comm *world, const shape *of, answer *out)
{
    *it = (rank){.shape = of, .mode = "opening", .out = out};
    if (sl_parallel_open(world, 2, &it->team) == SL_OK)
        return true;
    complain_once(it, "fails", 0);
    return false;
}

static void close_rank(rank *it)
{
    for (int i = 0; i < it->owned_count; i++)
        free(it->owned[i]);
    sl_parallel_close(it->team);
}

static void expect_ok(rank *it, sl_status status)
{
    if (status != SL_OK)
        complain_once(it, "fails", status);
}

static void *own(rank *it, void *memory)
{
    if (!memory || it->owned_count == OWNED_MAX)
        abort();
    it->owned[it->owned_count++] = memory;
    return memory;
}

/* All NaN, and exactly as long as asked for: a sanitizer sees one float more. */
static float *allocate(rank *it, uint64_t count)
{
    float *data = own(it, malloc(count * sizeof *data + (count == 0)));
    for (uint64_t i = 0; i < count; i++)
        data[i] = NAN;
    return data;
}

/* Where this rank's part of a matrix is. */
typedef struct place {
    uint64_t first_row, rows, first_column, columns;
} place;

static place find_place(const rank *it, const sl_parallel_matrix *matrix)
{
    place part = {0, matrix->rows, 0, matrix->columns};
    if (matrix->split == SL_PARALLEL_ROWS)
        sl_parallel_part(it->team, matrix->rows, &part.first_row, &part.rows);
    if (matrix->split == SL_PARALLEL_COLUMNS)
        sl_parallel_part(it->team, matrix->columns, &part.first_column, &part.columns);
    return part;
}

static float *allocate_part(rank *it, const sl_parallel_matrix *matrix)
{
    const place part = find_place(it, matrix);
    return allocate(it, part.rows * part.columns);
}

/* This rank's part of a tensor of the reference, element by element. */
static float *read_part(rank *it, const char *name, const sl_parallel_matrix *matrix)
{
    const place at = find_place(it, matrix);
    float *part = allocate_part(it, matrix), *whole = read_tensor(it->shape->name, name);
    if (!whole)
        abort();
    for (uint64_t r = 0; r < at.rows; r++)
        for (uint64_t c = 0; c < at.columns; c++)
            part[r * at.columns + c] =
                whole[(at.first_row + r) * matrix->columns + at.first_column + c];
    free(whole);
    return part;
}

/* Compares a result, which is `factor` times as large, with this rank's part of the reference. */
static void compare(rank *it, const char *name, const sl_parallel_matrix *matrix, double factor,
                    const float *found)
{
    const place at = find_place(it, matrix);
    const float *expected = read_part(it, name, matrix);
    double error = 0, norm = 0;
    for (uint64_t i = 0; i < at.rows * at.columns; i++) {
        const double true_value = factor * (double)expected[i];
        error += pow((double)found[i] - true_value, 2);
        norm += true_value * true_value;
    }
    error = norm > 0 ? sqrt(error / norm) : sqrt(error);
    if (!(error <= tolerance))
        complain_once(it, name, error);
    free(it->owned[--it->owned_count]);
}

/* Runs a body on worlds of every size: threads, and processes of two ranks. */
static void run_on_all(rank_body body, const void *argument)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        run_right(&carriers[0], sizes[i], body, argument);
    run_right(&carriers[1], 2, body, argument);
}

/* ---- linear ---- */

typedef struct mode {
    sl_parallel_split split;
    bool is_x_split, is_y_split;
} mode;

static sl_parallel_split split_columns(bool is_split)
{
    return is_split ? SL_PARALLEL_COLUMNS : SL_PARALLEL_WHOLE;
}

/* Each gradient, where it is the only one that is asked for, has the same bits. */
static void ask_for_one(rank *it, const sl_parallel_linear_args *all, uint64_t x_bytes,
                        uint64_t weight_bytes, uint64_t bias_bytes)
{
    const uint64_t bytes[] = {x_bytes, weight_bytes, bias_bytes};
    const float *const expected[] = {all->dx, all->dweight, all->dbias};
    for (int i = 0; i < 3; i++) {
        sl_parallel_linear_args one = *all;
        float *found = allocate(it, bytes[i] / sizeof(float));
        one.dx = i == 0 ? found : NULL;
        one.dweight = i == 1 ? found : NULL;
        one.dbias = i == 2 ? found : NULL;
        expect_ok(it, sl_parallel_linear_backward(it->team, &one));
        if (memcmp(found, expected[i], bytes[i]) != 0)
            complain_once(it, "a gradient has other bits alone", i);
        free(it->owned[--it->owned_count]);
    }
}

static uint64_t part_bytes(const rank *it, const sl_parallel_matrix *matrix)
{
    const place at = find_place(it, matrix);
    return at.rows * at.columns * sizeof(float);
}

static void check_linear(sl_comm *world, const shape *of, mode m, answer *out)
{
    rank it;
    if (!open_rank(&it, world, of, out))
        return;
    snprintf(it.mode, sizeof it.mode, "linear split %d, x %s, y %s", (int)m.split,
             m.is_x_split ? "split" : "whole", m.is_y_split ? "split" : "whole");
    const sl_parallel_matrix x = {of->rows, of->in, split_columns(m.is_x_split)},
                             y = {of->rows, of->out, split_columns(m.is_y_split)},
                             weight = {of->in, of->out, m.split},
                             bias = {1, of->out, split_columns(m.split == SL_PARALLEL_COLUMNS)};
    sl_parallel_linear_args args = {.rows = of->rows,
                                    .in = of->in,
                                    .out = of->out,
                                    .split = m.split,
                                    .is_x_split = m.is_x_split,
                                    .is_y_split = m.is_y_split,
                                    .x = read_part(&it, "x", &x),
                                    .weight = read_part(&it, "weight", &weight),
                                    .bias = read_part(&it, "bias", &bias),
                                    .y = allocate_part(&it, &y),
                                    .dy = read_part(&it, "dy", &y),
                                    .dx = allocate_part(&it, &x),
                                    .dweight = allocate_part(&it, &weight),
                                    .dbias = allocate_part(&it, &bias)};
    expect_ok(&it, sl_parallel_linear_forward(it.team, &args));
    compare(&it, "y", &y, 1, args.y);
    expect_ok(&it, sl_parallel_linear_backward(it.team, &args));
    compare(&it, "dx", &x, 1, args.dx);
    compare(&it, "dweight", &weight, 1, args.dweight);
    compare(&it, "dbias", &bias, 1, args.dbias);
    ask_for_one(&it, &args, part_bytes(&it, &x), part_bytes(&it, &weight), part_bytes(&it, &bias));
    args.adds_gradients = 1;
    expect_ok(&it, sl_parallel_linear_backward(it.team, &args));
    compare(&it, "dx", &x, 1, args.dx);
    compare(&it, "dweight", &weight, 2, args.dweight);
    compare(&it, "dbias", &bias, 2, args.dbias);
    close_rank(&it);
}

/* All of torchshard's modes. ColoTensor's example, a linear split both ways with replicated output,
 * is rows and columns with x and y whole. */
static void check_linear_modes(sl_comm *world, const void *argument, answer *out)
{
    (void)argument;
    for (int i = 0; i < SHAPES; i++)
        for (int m = 0; m < MODES && !out->is_wrong; m++)
            check_linear(world, &shapes[i],
                         (mode){(sl_parallel_split)(m / 4), (m & 1) != 0, (m & 2) != 0}, out);
}

static void linear_when_in_any_mode_then_as_pytorchs(void **state)
{
    (void)state;
    run_on_all(check_linear_modes, NULL);
}

/* ---- embedding ---- */

static void check_embedding(sl_comm *world, const shape *of, mode m, answer *out)
{
    rank it;
    if (!open_rank(&it, world, of, out))
        return;
    snprintf(it.mode, sizeof it.mode, "embedding split %d, y %s", (int)m.split,
             m.is_y_split ? "split" : "whole");
    const sl_parallel_matrix y = {of->rows, of->out, split_columns(m.is_y_split)},
                             table = {of->in, of->out, m.split};
    sl_parallel_embedding_args args = {.rows = of->rows,
                                       .ids = of->in,
                                       .width = of->out,
                                       .split = m.split,
                                       .is_y_split = m.is_y_split,
                                       .tokens = own(&it, read_tensor(of->name, "tokens")),
                                       .table = read_part(&it, "weight", &table),
                                       .y = allocate_part(&it, &y),
                                       .dy = read_part(&it, "dy", &y),
                                       .dtable = allocate_part(&it, &table)};
    expect_ok(&it, sl_parallel_embedding_forward(it.team, &args));
    compare(&it, "rows", &y, 1, args.y);
    expect_ok(&it, sl_parallel_embedding_backward(it.team, &args));
    compare(&it, "dtable", &table, 1, args.dtable);
    args.adds_gradients = 1;
    expect_ok(&it, sl_parallel_embedding_backward(it.team, &args));
    compare(&it, "dtable", &table, 2, args.dtable);
    close_rank(&it);
}

static void check_embedding_modes(sl_comm *world, const void *argument, answer *out)
{
    (void)argument;
    for (int i = 0; i < SHAPES; i++)
        for (int m = 0; m < SPLITS * 2 && !out->is_wrong; m++)
            check_embedding(world, &shapes[i],
                            (mode){.split = (sl_parallel_split)(m / 2), .is_y_split = m & 1}, out);
}

static void embedding_when_in_any_mode_then_as_pytorchs(void **state)
{
    (void)state;
    run_on_all(check_embedding_modes, NULL);
}

/* ---- cross-entropy ---- */

static void compare_loss(rank *it, double loss)
{
    const float *expected = own(it, read_tensor(it->shape->name, "loss"));
    const double error = fabs(loss / (double)*expected - 1);
    if (!(error <= tolerance))
        complain_once(it, "loss", error);
}

static void check_cross_entropy(sl_comm *world, const void *argument, answer *out)
{
    (void)argument;
    for (int i = 0; i < SHAPES && !out->is_wrong; i++) {
        const shape *of = &shapes[i];
        const sl_parallel_matrix logits = {of->rows, of->classes, SL_PARALLEL_COLUMNS};
        rank it;
        double loss = NAN, loss_alone = NAN;
        if (!open_rank(&it, world, of, out))
            return;
        snprintf(it.mode, sizeof it.mode, "cross-entropy");
        float *data = read_part(&it, "logits", &logits);
        sl_parallel_cross_entropy_args args = {.rows = of->rows,
                                               .classes = of->classes,
                                               .targets =
                                                   own(&it, read_tensor(of->name, "targets")),
                                               .logits = data,
                                               .loss = &loss,
                                               .dlogits = allocate_part(&it, &logits)};
        expect_ok(&it, sl_parallel_cross_entropy(it.team, &args));
        compare_loss(&it, loss);
        compare(&it, "dlogits", &logits, 1, args.dlogits);
        compare(&it, "logits", &logits, 1, data);
        args.dlogits = NULL;
        args.loss = &loss_alone;
        expect_ok(&it, sl_parallel_cross_entropy(it.team, &args));
        args.dlogits = data; /* in place */
        expect_ok(&it, sl_parallel_cross_entropy(it.team, &args));
        compare(&it, "dlogits", &logits, 1, data);
        if (loss != loss_alone)
            complain_once(&it, "another loss without a gradient", loss_alone);
        close_rank(&it);
    }
}

static void cross_entropy_when_classes_are_divided_then_as_pytorchs(void **state)
{
    (void)state;
    run_on_all(check_cross_entropy, NULL);
}

/* As in make_layers.py. */
enum { MILLION = 1000000, MILLION_ROWS = 3, STRIDE = 10007, SAMPLES = 100 };

static float million_logit(uint64_t row, uint64_t column)
{
    return (float)((row * 7919 + column * 104729) % 4001) / 256 - 8;
}

/* Every element against the softmax that PyTorch's sum of exponentials gives, and every STRIDE-th
 * one against PyTorch's own. */
static void compare_million(rank *it, const place *at, const int32_t *targets, const float *found)
{
    const float *lse = own(it, read_tensor("million", "lse")),
                *samples = own(it, read_tensor("million", "dlogits"));
    double error = 0, norm = 0;
    for (uint64_t i = 0; i < at->rows * at->columns; i++) {
        const uint64_t row = i / at->columns, column = at->first_column + i % at->columns;
        double expected = exp((double)million_logit(row, column) - (double)lse[row]);
        expected = (expected - ((uint64_t)targets[row] == column)) / MILLION_ROWS;
        error += pow((double)found[i] - expected, 2);
        norm += expected * expected;
        if (column % STRIDE != 0)
            continue;
        const double sample = (double)samples[row * SAMPLES + column / STRIDE];
        if (!(fabs((double)found[i] - sample) <= 5 * tolerance * fabs(sample)))
            complain_once(it, "a sample is off", (double)found[i] / sample - 1);
    }
    if (!(sqrt(error / norm) <= tolerance))
        complain_once(it, "dlogits", sqrt(error / norm));
}

static void check_million(sl_comm *world, const void *argument, answer *out)
{
    static const shape million = {.name = "million", .rows = MILLION_ROWS, .classes = MILLION};
    const sl_parallel_matrix matrix = {MILLION_ROWS, MILLION, SL_PARALLEL_COLUMNS};
    rank it;
    double loss = NAN;
    (void)argument;
    if (!open_rank(&it, world, &million, out))
        return;
    snprintf(it.mode, sizeof it.mode, "cross-entropy");
    const place at = find_place(&it, &matrix);
    float *logits = allocate_part(&it, &matrix);
    for (uint64_t i = 0; i < at.rows * at.columns; i++)
        logits[i] = million_logit(i / at.columns, at.first_column + i % at.columns);
    const sl_parallel_cross_entropy_args args = {.rows = MILLION_ROWS,
                                                 .classes = MILLION,
                                                 .targets =
                                                     own(&it, read_tensor("million", "targets")),
                                                 .logits = logits,
                                                 .loss = &loss,
                                                 .dlogits = logits};
    expect_ok(&it, sl_parallel_cross_entropy(it.team, &args));
    compare_loss(&it, loss);
    compare_million(&it, &at, args.targets, logits);
    close_rank(&it);
}

static void cross_entropy_when_of_a_million_classes_then_as_pytorchs(void **state)
{
    (void)state;
    run_right(&carriers[0], 2, check_million, NULL);
}

/* ---- matrices ---- */

static void expect_same(rank *it, const char *what, const float *a, const float *b, uint64_t count)
{
    if (memcmp(a, b, count * sizeof *a) != 0)
        complain_once(it, what, (double)count);
}

/* A matrix in parts: scattered, gathered again, and drawn. */
static void check_matrix(sl_comm *world, const void *argument, answer *out)
{
    const shape *of = argument;
    for (int split = 0; split < SPLITS && !out->is_wrong; split++) {
        const sl_parallel_matrix matrix = {of->in, of->out, (sl_parallel_split)split},
                                 all = {of->in, of->out, SL_PARALLEL_WHOLE};
        const uint64_t count = of->in * of->out;
        rank it;
        if (!open_rank(&it, world, of, out))
            return;
        snprintf(it.mode, sizeof it.mode, "matrix split %d", split);
        const place at = find_place(&it, &matrix);
        const float *whole = read_part(&it, "weight", &all),
                    *part = read_part(&it, "weight", &matrix);
        float *found = allocate_part(&it, &matrix), *found_whole = allocate(&it, count);
        expect_ok(&it, sl_parallel_scatter(it.team, &matrix, whole, found));
        expect_same(&it, "scatter", found, part, at.rows * at.columns);
        expect_ok(&it, sl_parallel_gather(it.team, &matrix, part, found_whole));
        expect_same(&it, "gather", found_whole, whole, count);
        float *drawn = allocate(&it, count);
        expect_ok(&it, sl_parallel_draw(it.team, &all, 7, 0.5f, drawn));
        expect_ok(&it, sl_parallel_draw(it.team, &matrix, 7, 0.5f, found));
        expect_ok(&it, sl_parallel_gather(it.team, &matrix, found, found_whole));
        expect_same(&it, "draw", found_whole, drawn, count);
        close_rank(&it);
    }
}

static void matrix_when_in_parts_then_is_the_whole(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        run_on_all(check_matrix, &shapes[i]);
}

/* 2000 values of deviation 0.5: their deviation is known to 1.6 %, their mean to 0.011. */
static void draw_when_of_a_seed_then_has_mean_and_deviation(void **state)
{
    enum { COUNT = 2000 };
    (void)state;
    const sl_parallel_matrix matrix = {1, COUNT, SL_PARALLEL_COLUMNS};
    sl_parallel_team *team;
    float values[COUNT], others[COUNT];
    double sum = 0, squares = 0;
    assert_int_equal(sl_parallel_open(NULL, 1, &team), SL_OK);
    assert_int_equal(sl_parallel_draw(team, &matrix, 1, 0.5f, values), SL_OK);
    assert_int_equal(sl_parallel_draw(team, &matrix, 2, 0.5f, others), SL_OK);
    for (int i = 0; i < COUNT; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    assert_true(fabs(sum / COUNT) < 0.05 && fabs(sqrt(squares / COUNT) - 0.5) < 0.04);
    assert_memory_not_equal(values, others, sizeof values);
    sl_parallel_close(team);
}

static void part_when_ranks_do_not_divide_a_count_then_covers_it_once(void **state)
{
    (void)state;
    sl_comm *ends[4];
    uint64_t next = 0;
    static const uint64_t counts[] = {3, 2, 2, 2};
    assert_int_equal(sl_comm_threads_open(4, ends), SL_OK);
    for (int i = 0; i < 4; i++) {
        sl_parallel_team *team;
        uint64_t first, count;
        assert_int_equal(sl_parallel_open(ends[i], 1, &team), SL_OK);
        sl_parallel_part(team, 9, &first, &count);
        assert_int_equal(first, next);
        assert_int_equal(count, counts[i]);
        next += count;
        sl_parallel_close(team);
    }
    for (int i = 0; i < 4; i++)
        sl_comm_close(ends[i]);
}

/* ---- threads ---- */

/* Layers large enough that tiles go to several workers. */
static void run_layers(uint32_t threads, float *y, float *dlogits, double *loss)
{
    enum { ROWS = 70, IN = 90, OUT = 310 };
    const sl_parallel_matrix x_matrix = {ROWS, IN, SL_PARALLEL_WHOLE},
                             weight_matrix = {IN, OUT, SL_PARALLEL_COLUMNS};
    static float x[ROWS * IN], weight[IN * OUT];
    int32_t targets[ROWS];
    sl_parallel_team *team;
    for (int i = 0; i < ROWS; i++)
        targets[i] = i * 37 % OUT;
    assert_int_equal(sl_parallel_open(NULL, threads, &team), SL_OK);
    assert_int_equal(sl_parallel_draw(team, &x_matrix, 1, 1, x), SL_OK);
    assert_int_equal(sl_parallel_draw(team, &weight_matrix, 2, 1, weight), SL_OK);
    const sl_parallel_linear_args linear = {.rows = ROWS,
                                            .in = IN,
                                            .out = OUT,
                                            .split = SL_PARALLEL_COLUMNS,
                                            .x = x,
                                            .weight = weight,
                                            .y = y};
    const sl_parallel_cross_entropy_args entropy = {.rows = ROWS,
                                                    .classes = OUT,
                                                    .targets = targets,
                                                    .logits = y,
                                                    .loss = loss,
                                                    .dlogits = dlogits};
    assert_int_equal(sl_parallel_linear_forward(team, &linear), SL_OK);
    assert_int_equal(sl_parallel_cross_entropy(team, &entropy), SL_OK);
    sl_parallel_close(team);
}

static void layers_when_of_more_threads_then_have_the_same_bits(void **state)
{
    static float y[2][70 * 310], dlogits[2][70 * 310];
    double loss[2];
    (void)state;
    run_layers(1, y[0], dlogits[0], &loss[0]);
    run_layers(5, y[1], dlogits[1], &loss[1]);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(dlogits[0], dlogits[1], sizeof dlogits[0]);
    assert_true(loss[0] == loss[1]);
}

/* ---- refusals ---- */

static void arguments_when_wrong_then_are_refused(void **state)
{
    (void)state;
    sl_parallel_team *team;
    float a[4] = {0}, b[4] = {0}, c[4] = {0};
    double loss;
    const int32_t ids[] = {1, 2}, negative[] = {0, -1};
    assert_int_equal(sl_parallel_open(NULL, 0, &team), SL_OK);
    const sl_parallel_linear_args good = {
        .rows = 2, .in = 2, .out = 2, .x = a, .weight = b, .y = c};
    sl_parallel_linear_args bad = good;
    assert_int_equal(sl_parallel_linear_forward(team, &good), SL_OK);
    bad.in = 0;
    assert_int_equal(sl_parallel_linear_forward(team, &bad), SL_ERROR_USAGE);
    bad = good;
    bad.out = UINT64_MAX / 4;
    assert_int_equal(sl_parallel_linear_forward(team, &bad), SL_ERROR_USAGE);
    bad = good;
    bad.y = NULL;
    assert_int_equal(sl_parallel_linear_forward(team, &bad), SL_ERROR_USAGE);
    assert_int_equal(sl_parallel_linear_backward(team, &good), SL_ERROR_USAGE); /* no dy */
    bad = good;
    bad.split = (sl_parallel_split)3;
    assert_int_equal(sl_parallel_linear_forward(team, &bad), SL_ERROR_USAGE);

    sl_parallel_cross_entropy_args entropy = {
        .rows = 2, .classes = 2, .targets = ids, .logits = a, .loss = &loss};
    assert_int_equal(sl_parallel_cross_entropy(team, &entropy), SL_ERROR_DATA);
    entropy.targets = negative;
    assert_int_equal(sl_parallel_cross_entropy(team, &entropy), SL_ERROR_DATA);
    assert_non_null(strstr(sl_status_message(), "target 1 is -1"));
    entropy.targets = NULL;
    assert_int_equal(sl_parallel_cross_entropy(team, &entropy), SL_ERROR_USAGE);

    sl_parallel_embedding_args embedding = {
        .rows = 2, .ids = 2, .width = 2, .tokens = ids, .table = a, .y = b};
    assert_int_equal(sl_parallel_embedding_forward(team, &embedding), SL_ERROR_DATA);
    embedding.ids = 3;
    embedding.table = NULL;
    assert_int_equal(sl_parallel_embedding_forward(team, &embedding), SL_ERROR_USAGE);

    const sl_parallel_matrix matrix = {2, 0, SL_PARALLEL_WHOLE};
    assert_int_equal(sl_parallel_scatter(team, &matrix, a, b), SL_ERROR_USAGE);
    assert_int_equal(sl_parallel_gather(team, &matrix, a, b), SL_ERROR_USAGE);
    assert_int_equal(sl_parallel_draw(team, &matrix, 1, 1, a), SL_ERROR_USAGE);
    sl_parallel_close(team);
    sl_parallel_close(NULL);
}

/* A program of a later version, with a field more: 0 is fine, a value is refused. */
static void struct_when_of_another_version_then_is_read_as_far_as_known(void **state)
{
    (void)state;
    float a[4] = {1, 2, 3, 4}, c[4] = {0};
    struct {
        sl_parallel_linear_args known;
        uint64_t later;
    } args = {{.rows = 2, .in = 2, .out = 2, .x = a, .weight = a, .y = c}, 0};
    sl_parallel_team *team;
    assert_int_equal(sl_parallel_open(NULL, 1, &team), SL_OK);
    assert_int_equal(sl_parallel_linear_forward_sized(team, &args.known, sizeof args), SL_OK);
    assert_true(c[0] == 7 && c[3] == 22);
    args.later = 1;
    assert_int_equal(sl_parallel_linear_forward_sized(team, &args.known, sizeof args),
                     SL_ERROR_USAGE);
    args.known.dy = NULL;
    assert_int_equal(
        sl_parallel_linear_forward_sized(team, &args.known, offsetof(sl_parallel_linear_args, dy)),
        SL_OK);
    sl_parallel_close(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_when_in_any_mode_then_as_pytorchs),
        cmocka_unit_test(embedding_when_in_any_mode_then_as_pytorchs),
        cmocka_unit_test(cross_entropy_when_classes_are_divided_then_as_pytorchs),
        cmocka_unit_test(cross_entropy_when_of_a_million_classes_then_as_pytorchs),
        cmocka_unit_test(matrix_when_in_parts_then_is_the_whole),
        cmocka_unit_test(draw_when_of_a_seed_then_has_mean_and_deviation),
        cmocka_unit_test(part_when_ranks_do_not_divide_a_count_then_covers_it_once),
        cmocka_unit_test(layers_when_of_more_threads_then_have_the_same_bits),
        cmocka_unit_test(arguments_when_wrong_then_are_refused),
        cmocka_unit_test(struct_when_of_another_version_then_is_read_as_far_as_known),
    };
    return cmocka_run_group_tests(tests, open_reference, close_reference);
}
