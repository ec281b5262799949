/* Rows of logits: the running softmax statistics over panels (Milakov and Gimelshein 2018) and the
 * gradient of the cross-entropy, in place. */
#include <math.h>
#include <stddef.h>

#include "exp.h"
#include "isa.h"
#include "typed.h"

static const float LOWEST = -INFINITY;

/* A register of logits whose lanes past the end are minus infinity: their exponential is 0. */
SL_INLINE lanes load_logits(sl_type type, const void *logits, uint64_t index, uint64_t count)
{
    const uint32_t part = part_at(index, count);
    const lanes value = load_at(type, logits, index, part);
    return part == LANES ? value : keep_from(set_lanes(LOWEST), (int32_t)part, value);
}

SL_INLINE float find_max(sl_type type, const void *logits, uint64_t count)
{
    lanes largest = set_lanes(LOWEST);
    for (uint64_t i = 0; i < count; i += LANES)
        largest = max_lanes(load_logits(type, logits, i, count), largest);
    return largest_lane(largest);
}

SL_INLINE float sum_exponentials(sl_type type, const void *logits, uint64_t count, float max)
{
    const lanes shift = set_lanes(max);
    lanes sum = set_lanes(0.0f);
    for (uint64_t i = 0; i < count; i += LANES)
        sum += exp_lanes(load_logits(type, logits, i, count) - shift);
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

/* Of this panel's logits, or of all up to it. */
SL_INLINE void measure_row(sl_type type, const sl_head_rows *rows, uint64_t row)
{
    const void *logits = typed_at(rows->logits, type, row * rows->column_count);
    float *stats = rows->stats + 4 * row, target = 0.0f;
    float max = find_max(type, logits, rows->valid_count);
    float sum = max == LOWEST ? 0.0f : sum_exponentials(type, logits, rows->valid_count, max);
    const uint64_t column = find_target(rows, row);
    if (column != NONE)
        target = load_at(type, logits, column, 1)[0];
    if (rows->add) {
        float new_max = stats[0] > max ? stats[0] : max;
        sum = rescale(stats[1], stats[0], new_max) + rescale(sum, max, new_max);
        max = new_max;
        target += stats[2];
    }
    stats[0] = max;
    stats[1] = sum;
    stats[2] = target;
    stats[3] = rows->targets[row] < 0 ? 1.0f : 0.0f;
}

SL_INLINE void measure(sl_type type, const sl_head_rows *rows)
{
    for (uint64_t row = 0; row < rows->row_count; row++)
        measure_row(type, rows, row);
}

void SL_SIMD(head_stats)(const sl_head_rows *rows)
{
    SL_BY_TYPE(rows->type, measure, rows);
}

/* The target's logit is taken before the row is overwritten, so that its gradient is rounded once.
 */
SL_INLINE void differentiate_row(sl_type type, const sl_head_rows *rows, uint64_t row)
{
    void *logits = (char *)rows->logits + row * rows->column_count * sl_type_bytes(type);
    const float *stats = rows->stats + 4 * row;
    const lanes max = set_lanes(stats[0]), factor = set_lanes(rows->scale / stats[1]);
    const uint64_t column = find_target(rows, row);
    const lanes target = column == NONE ? max : load_at(type, logits, column, 1);
    if (rows->targets[row] < 0) {
        memset(logits, 0, rows->column_count * sl_type_bytes(type));
        return;
    }
    for (uint64_t i = 0; i < rows->valid_count; i += LANES) {
        const uint32_t part = part_at(i, rows->valid_count);
        store_at(type, logits, i, exp_lanes(load_at(type, logits, i, part) - max) * factor, part);
    }
    memset((char *)logits + rows->valid_count * sl_type_bytes(type), 0,
           (rows->column_count - rows->valid_count) * sl_type_bytes(type));
    if (column != NONE)
        store_at(type, logits, column, exp_lanes(target - max) * factor - set_lanes(rows->scale),
                 1);
}

SL_INLINE void differentiate(sl_type type, const sl_head_rows *rows)
{
    for (uint64_t row = 0; row < rows->row_count; row++)
        differentiate_row(type, rows, row);
}

void SL_SIMD(head_backward)(const sl_head_rows *rows)
{
    SL_BY_TYPE(rows->type, differentiate, rows);
}
