/* Prefetch: moves the fetch of each visit to an earlier tick, so that the copy has finished when
 * the object is used. It also extends visits that are written back until the copy has probably
 * finished, so that no command waits for their memory while other memory is free.
 *
 * Knows visits, room and seconds; nothing of addresses. A fetch may move over the start of the body
 * into the tail of the previous iteration; its visit then wraps and is carried. A visit that is
 * extended over the end of the body wraps and is not carried: nobody reads it. Neither a fetch nor
 * an extended visit moves over the entry or the end of a loop: only residency decides which visits
 * cross these.
 */
#ifndef SL_CHUNK_PLAN_PREFETCH_H
#define SL_CHUNK_PLAN_PREFETCH_H

#include "residency.h"

typedef struct sl_prefetch_request {
    const sl_residency_request *residency;
    const double *tick_seconds; /* [tick_count]: the estimated time of each op */
    const bool *is_disk;        /* [object_count]: its home is the disk; NULL: no home is */
    double fetch_rate[2];       /* bytes per second of the lane: [0] other homes, [1] the disk */
    double write_back_rate[2];
    uint32_t most_ahead; /* visits fetched ahead of their use at any tick; UINT32_MAX: no limit */
    /* True if objects from disk pass through the host, which must hold all that are fetched at one
     * tick. Then at most staged_ahead fetches of such objects ahead of their use start at a tick.
     */
    bool is_staged;
    uint32_t staged_ahead;
    /* Visits that are written back may last into the next iteration: they wrap, and are not
     * carried.
     */
    bool may_trail;
} sl_prefetch_request;

/* Sets first_tick of the fetched visits (and is_carried of those that wrap), and last_tick of the
 * visits that are written back. No fetch starts before the tick after the object's last earlier
 * use; visits of one object never overlap; no visit crosses an edge of a loop that it did not cross
 * before; and the visits of a tick fit its room. */
sl_status sl_prefetch_plan(const sl_prefetch_request *request, sl_residency *residency);

#endif
