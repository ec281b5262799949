/* Ids that a caller gives: tokens and targets. */
#ifndef SL_PARALLEL_IDS_H
#define SL_PARALLEL_IDS_H

#include <stdint.h>

#include "base/status.h"

/* SL_ERROR_DATA if one of ids [count] is not below `limit`; `what` is "token" or "target". */
static inline sl_status sl_ids_check(const int32_t *ids, uint64_t count, uint64_t limit,
                                     const char *what)
{
    for (uint64_t i = 0; i < count; i++)
        if (ids[i] < 0 || (uint64_t)ids[i] >= limit)
            SL_FAIL(SL_ERROR_DATA, "%s %llu is %d, and ids are below %llu", what,
                    (unsigned long long)i, (int)ids[i], (unsigned long long)limit);
    return SL_OK;
}

#endif
