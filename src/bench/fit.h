/* From measured times of one kind of op to its rate: seconds + flops / flop_rate + traffic /
 * byte_rate, no term below zero. Pure. */
#ifndef SL_BENCH_FIT_H
#define SL_BENCH_FIT_H

#include <stdint.h>

#include "sluice/chunk.h"

typedef struct sl_fit_sample {
    double flops, traffic_bytes; /* of one op */
    double seconds;              /* > 0, without what every op costs */
} sl_fit_sample;

/* The rate with the least sum of squared relative errors over `count` >= 1 samples. */
sl_op_rate sl_fit_rate(const sl_fit_sample *samples, uint32_t count);

#endif
