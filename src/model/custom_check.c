/* Checks a custom op on a few rows: what a session would not notice until the loss is wrong.
 *
 * The loss of the check is the sum of c * y with random c, so the op is given dy = c. A slope is
 * taken in three step sizes, and the nearest to the gradient counts: a small step is right at a
 * kink, a large one where fp32 rounds.
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/status.h"
#include "custom.h"

enum { ROWS = 5, PROBES = 48 };

typedef struct checked {
    const sl_custom_op *op;
    uint64_t in, out, weight_count;
    float *x, *z, *weight, *y, *dy, *dx, *dz, *dweight;
    float *other; /* [ROWS, out]: y of another call */
} checked;

static const double tolerance = 0.02;

/* ---- calls ---- */

static sl_custom_rows describe(const checked *it, uint64_t first, uint64_t count)
{
    return (sl_custom_rows){.row_count = count,
                            .in = it->in,
                            .out = it->out,
                            .x = it->x + first * it->in,
                            .z = it->z ? it->z + first * it->in : NULL,
                            .weight = it->weight,
                            .user = it->op->user};
}

static void run_forward(const checked *it, uint64_t first, uint64_t count, float *y)
{
    sl_custom_rows rows = describe(it, first, count);
    rows.y = y + first * it->out;
    it->op->forward(&rows);
}

static void run_backward(const checked *it)
{
    sl_custom_rows rows = describe(it, 0, ROWS);
    rows.dy = it->dy;
    rows.dx = it->dx;
    rows.dz = it->dz;
    rows.dweight = it->dweight;
    it->op->backward(&rows);
}

static void fill(float *numbers, uint64_t count, float value)
{
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = value;
}

static double find_loss(const checked *it)
{
    double loss = 0;
    run_forward(it, 0, ROWS, it->other);
    for (uint64_t i = 0; i < ROWS * it->out; i++)
        loss += (double)it->dy[i] * (double)it->other[i];
    return loss;
}

/* ---- checks ---- */

static sl_status check_written(const checked *it, const char *what, const float *numbers,
                               uint64_t count)
{
    for (uint64_t i = 0; numbers != NULL && i < count; i++)
        if (!isfinite(numbers[i]))
            SL_FAIL(SL_ERROR_USAGE, "%s: element %llu of %s is not written, or is not finite",
                    it->op->name, (unsigned long long)i, what);
    return SL_OK;
}

static bool has_same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0; /* NOLINT: bits are meant */
}

/* Rows computed one by one have the bits of rows computed together. */
static sl_status check_rows(const checked *it)
{
    for (uint64_t r = 0; r < ROWS; r++)
        run_forward(it, r, 1, it->other);
    for (uint64_t i = 0; i < ROWS * it->out; i++)
        if (!has_same_bits(it->other[i], it->y[i]))
            SL_FAIL(SL_ERROR_USAGE, "%s: row %llu of y depends on the rows beside it", it->op->name,
                    (unsigned long long)(i / it->out));
    return SL_OK;
}

/* A change of one feature of x and z changes that feature of y alone. */
static sl_status check_features(const checked *it)
{
    const uint64_t changed = it->in / 2;
    const float x = it->x[changed], z = it->z ? it->z[changed] : 0;
    if (!it->op->is_elementwise)
        return SL_OK;
    it->x[changed] += 1;
    if (it->z != NULL)
        it->z[changed] += 1;
    run_forward(it, 0, 1, it->other);
    it->x[changed] = x;
    if (it->z != NULL)
        it->z[changed] = z;
    for (uint64_t i = 0; i < it->out; i++)
        if (i != changed && !has_same_bits(it->other[i], it->y[i]))
            SL_FAIL(SL_ERROR_USAGE,
                    "%s is not elementwise: feature %llu of y depends on %llu of x or z",
                    it->op->name, (unsigned long long)i, (unsigned long long)changed);
    return SL_OK;
}

/* The slope of the loss at *at that is nearest to `gradient`. */
static double find_slope(const checked *it, float *at, double gradient)
{
    static const float steps[] = {1e-2f, 2e-3f, 4e-4f};
    const float middle = *at;
    double nearest = NAN;
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        const float above = middle + steps[s], below = middle - steps[s];
        *at = above;
        const double more = find_loss(it);
        *at = below;
        const double slope = (more - find_loss(it)) / ((double)above - (double)below);
        if (!(fabs(slope - gradient) >= fabs(nearest - gradient)))
            nearest = slope;
    }
    *at = middle;
    return nearest;
}

/* `gradient` of `numbers`; `start`: what the gradient held before. */
static sl_status check_slopes(const checked *it, const char *what, float *numbers,
                              const float *gradient, uint64_t count, float start)
{
    double squares = 0;
    for (uint64_t i = 0; i < count; i++)
        squares += ((double)gradient[i] - (double)start) * ((double)gradient[i] - (double)start);
    const double typical = count ? sqrt(squares / (double)count) : 0;
    const uint64_t step = sl_bits_divide_up(count, PROBES);
    for (uint64_t i = 0; i < count; i += step) {
        const double given = (double)gradient[i] - (double)start;
        const double slope = find_slope(it, &numbers[i], given);
        if (!(fabs(slope - given) <= tolerance * (fabs(slope) + typical) + 1e-4))
            SL_FAIL(SL_ERROR_USAGE,
                    "%s: element %llu of %s is %.6g, but finite differences give %.6g%s",
                    it->op->name, (unsigned long long)i, what, given, slope,
                    start != 0 ? " (dweight is added to, not set)" : "");
    }
    return SL_OK;
}

static sl_status check_all(const checked *it)
{
    const float start = 3;
    fill(it->y, ROWS * it->out, NAN);
    fill(it->dx, ROWS * it->in, NAN);
    if (it->dz != NULL)
        fill(it->dz, ROWS * it->in, NAN);
    fill(it->dweight, it->weight_count, start);
    run_forward(it, 0, ROWS, it->y);
    run_backward(it);
    SL_TRY(check_written(it, "y", it->y, ROWS * it->out));
    SL_TRY(check_written(it, "dx", it->dx, ROWS * it->in));
    SL_TRY(check_written(it, "dz", it->dz, ROWS * it->in));
    SL_TRY(check_written(it, "dweight", it->dweight, it->weight_count));
    SL_TRY(check_rows(it));
    SL_TRY(check_features(it));
    SL_TRY(check_slopes(it, "dx", it->x, it->dx, ROWS * it->in, 0));
    if (it->z != NULL)
        SL_TRY(check_slopes(it, "dz", it->z, it->dz, ROWS * it->in, 0));
    return check_slopes(it, "dweight", it->weight, it->dweight, it->weight_count, start);
}

/* ---- the request ---- */

/* Numbers between -2 and 2, the same each time. */
static void draw(float *numbers, uint64_t count, uint64_t *state)
{
    for (uint64_t i = 0; i < count; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        numbers[i] = (float)(*state >> 40) * 0x1p-22f - 2;
    }
}

/* Gives the arrays their places in `memory`; `memory` NULL: only counts their floats. */
static uint64_t place_arrays(checked *it, float *memory, uint32_t input_count)
{
    float **const arrays[] = {&it->x,  &it->dx,    &it->z,      &it->dz,     &it->y,
                              &it->dy, &it->other, &it->weight, &it->dweight};
    const uint64_t in = ROWS * it->in, out = ROWS * it->out;
    const uint64_t of_z = input_count == 2 ? in : 0;
    const uint64_t counts[] = {
        in, in, of_z, of_z, out, out, out, it->weight_count, it->weight_count};
    uint64_t total = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        *arrays[i] = memory && counts[i] ? memory + total : NULL;
        total += counts[i];
    }
    return total;
}

static sl_status count_weight(const sl_custom_op *op, uint64_t *out_count)
{
    return sl_bits_multiply(op->weight[0], op->weight[1] ? op->weight[1] : 1, op->name, out_count);
}

sl_status sl_custom_check_sized(const sl_custom_op *op, size_t bytes, uint64_t features,
                                uint32_t input_count)
{
    enum { FEATURES_MAX = 1 << 20, WEIGHT_MAX = 1 << 26 };
    sl_custom_op read;
    uint64_t seed = 1;
    SL_TRY(sl_custom_read("a custom op", op, bytes, &read));
    checked it = {.op = &read, .in = features, .out = read.out ? read.out : features};
    SL_TRY(sl_custom_check_features(read.name, &read, features));
    SL_TRY(count_weight(&read, &it.weight_count));
    if (features < 1 || features > FEATURES_MAX || it.out > FEATURES_MAX || input_count < 1 ||
        input_count > 2 || it.weight_count > WEIGHT_MAX)
        SL_FAIL(SL_ERROR_USAGE,
                "%s: a check takes 1 or 2 inputs, at most %d features and a weight of %d",
                read.name, FEATURES_MAX, WEIGHT_MAX);
    const uint64_t count = place_arrays(&it, NULL, input_count);
    float *memory = malloc(count * sizeof *memory);
    if (memory == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %llu floats", (unsigned long long)count);
    place_arrays(&it, memory, input_count);
    draw(memory, count, &seed);
    const sl_status status = check_all(&it);
    free(memory);
    return status;
}
