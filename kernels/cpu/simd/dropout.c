/* Dropout of elements that follow each other: their factors are drawn a batch at a time, in loops
 * without branches, and then multiplied. */
#include "isa.h"
#include "typed.h"

enum { DRAWS = 64, BATCH = DRAWS * SL_DROPOUT_WORDS }; /* BATCH: a multiple of LANES */

static void draw_factors(const sl_dropout *dropout, uint64_t first_draw, float *factors)
{
    uint32_t words[SL_DROPOUT_WORDS][DRAWS];
    for (uint32_t n = 0; n < DRAWS; n++) {
        uint32_t drawn[SL_DROPOUT_WORDS];
        sl_philox_draw(dropout->seed, dropout->stream, first_draw + n, drawn);
        for (uint32_t w = 0; w < SL_DROPOUT_WORDS; w++)
            words[w][n] = drawn[w];
    }
    for (uint32_t i = 0; i < BATCH; i++)
        factors[i] = sl_dropout_factor(words[i % SL_DROPOUT_WORDS][i / SL_DROPOUT_WORDS],
                                       dropout->threshold, dropout->scale);
}

SL_INLINE void drop_batch(sl_type type, const sl_dropout_span *span, uint64_t from,
                          const float *factors)
{
    const uint64_t end = span->count - from < BATCH ? span->count : from + BATCH;
    for (uint64_t i = from; i < end; i += LANES) {
        const uint32_t part = part_at(i, end);
        lanes value = load_at(type, span->x, i, part) * load_lanes(factors + (i - from));
        if (span->residual != NULL)
            value = value + load_at(type, span->residual, i, part);
        store_at(type, span->y, i, value, part);
    }
}

void SL_SIMD(dropout)(const sl_dropout_span *span)
{
    float factors[BATCH];
    for (uint64_t from = 0; from < span->count; from += BATCH) {
        draw_factors(&span->dropout, (span->first + from) / SL_DROPOUT_WORDS, factors);
        SL_BY_TYPE(span->type, drop_batch, span, from, factors);
    }
}
