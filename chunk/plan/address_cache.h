/* Addresses that were found before. A search plans many choices, and tiers of a plan again and
 * again with another limit: most of what it asks to place was placed already, by the very same
 * request. Requests are told apart by a hash of 128 bits of all that they hold.
 */
#ifndef SL_CHUNK_PLAN_ADDRESS_CACHE_H
#define SL_CHUNK_PLAN_ADDRESS_CACHE_H

#include "addresses.h"
#include "sluice/plan.h"

/* sl_addresses_assign, or what it wrote for an equal request; a NULL cache has none. Where there is
 * no memory to keep an answer it is not kept. */
sl_status sl_address_cache_assign(sl_address_cache *cache, const sl_address_request *request,
                                  uint64_t *out_peak);

#endif
