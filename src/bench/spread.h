/* What a row of samples says: the middle, and how far it spreads. */
#ifndef SL_BENCH_SPREAD_H
#define SL_BENCH_SPREAD_H

#include <stdint.h>

typedef struct sl_spread {
    double median, p10, p90;
} sl_spread;

/* Of `count` >= 1 samples, which it sorts. */
sl_spread sl_spread_of(double *samples, uint32_t count);

/* The same spread as a rate: `work` over seconds, so that p10 is the slow end. */
sl_spread sl_spread_rate(sl_spread seconds, double work);

#endif
