/* Measured times, and what is made of them: percentiles, and the rate of a kind of op. Pure. */
#ifndef SL_BENCH_SAMPLES_H
#define SL_BENCH_SAMPLES_H

#include <stdint.h>

#include "chunk/chunk.h"

enum { SL_SAMPLES_MAX = 64 };

typedef struct sl_samples {
    double values[SL_SAMPLES_MAX];
    uint32_t count;
} sl_samples;

typedef struct sl_percentiles {
    double median, p10, p90;
} sl_percentiles;

/* What does not fit any more is left out. */
void sl_samples_add(sl_samples *samples, double value);

/* Nearest ranks, so every number is one that was measured; all 0 without samples. */
sl_percentiles sl_samples_percentiles(const sl_samples *samples);

double sl_samples_median(const sl_samples *samples);

/* The percentiles of a rate: `work` over samples of seconds, so that p10 is the slow end. */
sl_percentiles sl_samples_rate(const sl_samples *seconds, double work);

typedef struct sl_op_sample {
    double flops, traffic_bytes; /* of one op */
    double seconds;              /* > 0, without what every op costs */
} sl_op_sample;

/* The rate, seconds + flops / flop_rate + traffic / byte_rate with no term below zero, that has the
 * least sum of squared relative errors over `count` >= 1 samples. Fewer than three different sizes
 * do not tell a fixed cost from one that grows: then `seconds` is 0, and a larger op takes longer.
 * Without `with_constant`, for samples of few rounds, there is one term: FLOPs, or bytes where the
 * op has none. More terms would follow the noise. */
sl_op_rate sl_samples_fit(const sl_op_sample *samples, uint32_t count, bool with_constant);

#endif
