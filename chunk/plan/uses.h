/* The uses of a residency request by object and by tick, and what they say of an object's future:
 * when its content here is needed next, and whether it must survive.
 *
 * It knows uses and loops; it knows nothing of what is here. Inside a loop the future is cyclic: a
 * repetition is followed by the next one, and only then by what is behind the loop.
 */
#ifndef SL_CHUNK_PLAN_USES_H
#define SL_CHUNK_PLAN_USES_H

#include "residency.h"

#define SL_NEVER UINT64_MAX
#define SL_NO_LOOP UINT32_MAX

/* Where an object stands among its uses. */
typedef struct sl_use_cursor {
    uint32_t number;               /* uses before it are past */
    const sl_residency_loop *loop; /* the last one that it was given */
    uint32_t loop_first;           /* its uses in that loop */
    uint32_t loop_use_count;
} sl_use_cursor;

typedef struct sl_uses {
    const sl_residency_request *request;
    const sl_residency_loop *loop; /* that is walked, or NULL: set by the walker */
    uint32_t *first_use;           /* [object_count + 1]: into order */
    uint32_t *order;               /* [use_count]: indices of uses, by object, then by tick */
    uint32_t
        *decisive; /* beside order: number of the object's first write or home use from there */
    bool *is_transient;     /* [object_count]: holds nothing from one iteration to the next */
    uint32_t *tick_uses;    /* [tick_count + 1]: the first use of each tick */
    uint32_t *loop_of_tick; /* [tick_count + 1]: SL_NO_LOOP outside */
} sl_uses;

/* SL_ERROR_INTERNAL: loops that are empty, out of order or beyond the body. */
sl_status sl_uses_open(const sl_residency_request *request, sl_uses *out_index);
void sl_uses_close(sl_uses *index);

/* SL_ERROR_FIT when the objects that are used away at one tick do not fit: writes the tick and the
 * missing bytes, the largest over all ticks. */
sl_status sl_uses_check_room(const sl_uses *index, uint32_t *out_tick, uint64_t *out_missing);

/* Use `number` of an object, and how many it has. */
const sl_residency_use *sl_uses_get(const sl_uses *index, uint32_t object, uint32_t number);
uint32_t sl_uses_count(const sl_uses *index, uint32_t object);

/* Whether the object is used in the loop that is walked. */
bool sl_uses_repeats(const sl_uses *index, const sl_use_cursor *cursor);

/* The next use of the content here, as a tick that keeps counting over the end of the loop or the
 * body; SL_NEVER when it is written whole or used at home first. */
uint64_t sl_uses_find_need(const sl_uses *index, uint32_t object, const sl_use_cursor *cursor);

/* What is behind the loop that is walked is so much farther than its tick says: farther than
 * anything that is used in the loop. 0 outside of loops. */
uint64_t sl_uses_find_distance_behind(const sl_uses *index);

/* Whether dirty content has to reach the home although it is evicted only now: a home use or the
 * end of the body comes before the next write here. */
bool sl_uses_must_reach_home(const sl_uses *index, uint32_t object, const sl_use_cursor *cursor);

/* Whether dirty content is read by anyone before it is overwritten whole: in the next repetition or
 * behind the loop. */
bool sl_uses_is_live(const sl_uses *index, uint32_t object, const sl_use_cursor *cursor);

#endif
