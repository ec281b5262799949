/* The list of homes that `auto` tries. Each takes less of the device than the one before, and more
 * of the host, up to the first on disk; from there less of both. */
#ifndef SL_SEARCH_CANDIDATES_H
#define SL_SEARCH_CANDIDATES_H

#include "search.h"

enum {
    SL_CANDIDATES_FIRST_ON_DISK = 9,
    SL_CANDIDATES_LEAST_ON_DEVICE = SL_CANDIDATES_FIRST_ON_DISK - 1
};

/* Those on disk count only where there is a directory. */
uint32_t sl_candidates_count(const sl_search *search);

/* Shares by kind of state: the moments' also for the master copy. */
void sl_candidates_set_shares(double fraction[SL_GROUP_COUNT], double moments, double grads,
                              double params);

/* Makes a choice the one at `index`; where updates run stays as it is. */
void sl_candidates_set(uint32_t index, sl_choice *choice);

/* The next one that may fit after this one missed bytes in `short_tier`; UINT32_MAX: none. */
uint32_t sl_candidates_find_next(uint32_t index, sl_tier short_tier);

#endif
