/* The ladder of homes that `auto` climbs; private to searches. Each rung takes less of the device
 * than the one before, and more of the host, up to the first on disk; from there less of both. */
#ifndef SL_SESSION_SEARCH_SEARCH_LADDER_H
#define SL_SESSION_SEARCH_SEARCH_LADDER_H

#include "search.h"

enum { SL_SEARCH_FIRST_ON_DISK = 9 };

/* Rungs of a search; those on disk count only where there is a directory. */
uint32_t sl_search_rung_count(const sl_search *search);

/* Sets the placement of a choice; where updates run stays as it is. */
void sl_search_take_rung(uint32_t rung, sl_choice *choice);

/* The next rung that may fit after this one missed bytes in `tier`; UINT32_MAX: none. */
uint32_t sl_search_next_rung(uint32_t rung, sl_tier short_tier);

/* Writes shares by kind of state: moments' also for the master copy. */
void sl_search_set_shares(double fraction[SL_GROUP_COUNT], double moments, double grads,
                          double params);

/* The budget of a tier. */
uint64_t *sl_search_budget(sl_choice *choice, sl_tier tier);

#endif
