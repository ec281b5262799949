/* A cache of address requests and their results. A search plans many choices, and each tier several
 * times with different limits, so most requests are equal to an earlier one. Two requests count as
 * equal if the 128-bit hashes of their inputs are equal.
 */
#ifndef SL_CHUNK_PLAN_ADDRESS_CACHE_H
#define SL_CHUNK_PLAN_ADDRESS_CACHE_H

#include "addresses.h"
#include "chunk/plan.h"

/* As sl_addresses_assign, but takes the result of an equal request from the cache. With a NULL
 * cache every request is computed. If memory is refused, a result is not kept; that is no error. */
sl_status sl_address_cache_assign(sl_address_cache *cache, const sl_address_request *request,
                                  uint64_t *out_peak);

#endif
