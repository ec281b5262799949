/* Rows of logits: the running softmax statistics over panels (Milakov and Gimelshein 2018) and the
 * gradient of the cross-entropy, in place. */
#include <math.h>
#include <stddef.h>

#include "exp.h"
#include "isa.h"

static const float LOWEST = -INFINITY;

/* A register of logits whose lanes past the end are minus infinity: their exponential is 0. */
SL_INLINE lanes load_logits(const float *from, uint64_t left)
{
    if (left >= LANES)
        return load_lanes(from);
    return keep_from(set_lanes(LOWEST), (int32_t)left, load_part(from, (uint32_t)left));
}

static float find_max(const float *logits, uint64_t count)
{
    lanes largest = set_lanes(LOWEST);
    for (uint64_t i = 0; i < count; i += LANES)
        largest = max_lanes(load_logits(logits + i, count - i), largest);
    return largest_lane(largest);
}

static float sum_exponentials(const float *logits, uint64_t count, float max)
{
    const lanes shift = set_lanes(max);
    lanes sum = set_lanes(0.0f);
    for (uint64_t i = 0; i < count; i += LANES)
        sum += exp_lanes(load_logits(logits + i, count - i) - shift);
    return sum_lanes(sum);
}

/* Brings a sum of exponentials from one maximum to a larger one. */
static float rescale(float sum, float max, float new_max)
{
    return max == new_max ? sum : sum * expf(max - new_max);
}

/* The column of a row's target in this panel, or NONE. */
static const uint64_t NONE = UINT64_MAX;

static uint64_t find_target(const sl_head_rows *rows, uint64_t row)
{
    int64_t column = (int64_t)rows->targets[row] - (int64_t)rows->first_id;
    return column >= 0 && (uint64_t)column < rows->valid_count ? (uint64_t)column : NONE;
}

void SL_VECTOR(head_stats)(const sl_head_rows *rows)
{
    for (uint64_t row = 0; row < rows->row_count; row++) {
        const float *logits = rows->logits + row * rows->column_count;
        float *stats = rows->stats + 4 * row;
        float max = find_max(logits, rows->valid_count);
        float sum = max == LOWEST ? 0.0f : sum_exponentials(logits, rows->valid_count, max);
        uint64_t column = find_target(rows, row);
        float target = column == NONE ? 0.0f : logits[column];
        if (rows->add) {
            float new_max = stats[0] > max ? stats[0] : max;
            sum = rescale(stats[1], stats[0], new_max) + rescale(sum, max, new_max);
            max = new_max;
            target += stats[2];
        }
        stats[0] = max;
        stats[1] = sum;
        stats[2] = target;
        stats[3] = 0.0f;
    }
}

void SL_VECTOR(head_backward)(const sl_head_rows *rows)
{
    for (uint64_t row = 0; row < rows->row_count; row++) {
        float *logits = rows->logits + row * rows->column_count;
        const float *stats = rows->stats + 4 * row;
        const lanes max = set_lanes(stats[0]), factor = set_lanes(rows->scale / stats[1]);
        uint64_t i = 0;
        for (; i + LANES <= rows->valid_count; i += LANES)
            store_lanes(logits + i, exp_lanes(load_lanes(logits + i) - max) * factor);
        uint32_t rest = (uint32_t)(rows->valid_count - i);
        if (rest > 0)
            store_part(logits + i, exp_lanes(load_part(logits + i, rest) - max) * factor, rest);
        memset(logits + rows->valid_count, 0,
               (rows->column_count - rows->valid_count) * sizeof *logits);
        uint64_t column = find_target(rows, row);
        if (column != NONE)
            logits[column] -= rows->scale;
    }
}
