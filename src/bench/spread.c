/* Nearest-rank percentiles: every number reported is one that was measured. */
#include "spread.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

sl_spread sl_spread_of(double *samples, uint32_t count)
{
    qsort(samples, count, sizeof *samples, compare);
    return (sl_spread){.median = samples[count / 2],
                       .p10 = samples[(count - 1) / 10],
                       .p90 = samples[count - 1 - (count - 1) / 10]};
}

sl_spread sl_spread_rate(sl_spread seconds, double work)
{
    return (sl_spread){
        .median = work / seconds.median, .p10 = work / seconds.p90, .p90 = work / seconds.p10};
}
