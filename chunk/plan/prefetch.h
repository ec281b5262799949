/* Prefetch: moves the fetch of each visit to an earlier tick, so that the link is done in time, and
 * lets visits that are written back stay until the copy is likely to be over, so that nobody waits
 * for their memory while other memory is free.
 *
 * Knows visits, room and seconds; nothing of addresses. A fetch may move over the start of the body
 * into the tail of the previous iteration; its visit then wraps and is carried. Neither a fetch nor
 * a longer stay crosses the entry or the end of a loop: what crosses there is for residency to say.
 */
#ifndef SL_CHUNK_PLAN_PREFETCH_H
#define SL_CHUNK_PLAN_PREFETCH_H

#include "residency.h"

typedef struct sl_prefetch_request {
    const sl_residency_request *residency;
    const double *tick_seconds; /* [tick_count]: how long each op takes, by estimate */
    const bool *is_disk;        /* [object_count]: its home is the disk; NULL: none */
    double fetch_rate[2];       /* bytes a second of the lanes: for other homes, for the disk */
    double write_back_rate[2];
    uint32_t most_ahead; /* visits fetched ahead at any tick; UINT32_MAX: no limit */
    /* What lives on disk comes by way of a stage that must hold all fetches of one tick: then at
     * most staged_ahead of them arrive ahead of their use at any tick. */
    bool is_staged;
    uint32_t staged_ahead;
} sl_prefetch_request;

/* Sets first_tick (and is_carried where it wraps) of the fetched visits and last_tick of those
 * written back. No fetch starts before the tick after the object's last earlier use, visits of one
 * object never overlap, none crosses an edge of a loop that it did not cross before, and no tick
 * gets more bytes than its room. */
sl_status sl_prefetch_plan(const sl_prefetch_request *request, sl_residency *residency);

#endif
