/* The uses of a residency request, by object and by tick. They answer two questions about an object
 * in the planned tier: when is its content needed next, and must the content be preserved?
 *
 * Knows uses and loops; does not know which objects are in the tier. Inside a loop the future is
 * cyclic: a repetition is followed by the next one, and then by the ticks behind the loop.
 */
#ifndef SL_CHUNK_PLAN_USES_H
#define SL_CHUNK_PLAN_USES_H

#include "residency.h"

#define SL_NEVER UINT64_MAX
#define SL_NO_LOOP UINT32_MAX

/* The position of an object in the list of its uses. */
typedef struct sl_use_cursor {
    uint32_t number;               /* of the next use, counted from 0 */
    const sl_residency_loop *loop; /* the last loop of which the object was a member, or NULL */
    uint32_t loop_first;           /* number of its first use in that loop */
    uint32_t loop_use_count;       /* of its uses in that loop */
} sl_use_cursor;

typedef struct sl_uses {
    const sl_residency_request *request;
    const sl_residency_loop *loop; /* the loop that is walked now, or NULL; set by residency.c */
    uint32_t *first_use;           /* [object_count + 1]: into order */
    uint32_t *order;               /* [use_count]: indices of uses, by object, then by tick */
    /* [use_count], in the same order: number of the object's first use, from this one on, that is a
     * write or at home */
    uint32_t *decisive;
    bool *is_transient;     /* [object_count]: holds nothing from one iteration to the next */
    uint32_t *tick_uses;    /* [tick_count + 1]: the first use of each tick */
    uint32_t *loop_of_tick; /* [tick_count + 1]: SL_NO_LOOP outside */
} sl_uses;

/* SL_ERROR_INTERNAL: a loop is empty, out of order or beyond the body. */
sl_status sl_uses_open(const sl_residency_request *request, sl_uses *out_index);
void sl_uses_close(sl_uses *index);

/* SL_ERROR_FIT if the objects of the away uses of a tick do not fit its room; then writes the tick
 * where most bytes are missing, and these bytes. */
sl_status sl_uses_check_room(const sl_uses *index, uint32_t *out_tick, uint64_t *out_missing);

/* Use `number` of an object, counted from 0, and how many uses it has. */
const sl_residency_use *sl_uses_get(const sl_uses *index, uint32_t object, uint32_t number);
uint32_t sl_uses_count(const sl_uses *index, uint32_t object);

/* Whether the object is used in the loop that is walked. */
bool sl_uses_repeats(const sl_uses *index, const sl_use_cursor *cursor);

/* The tick of the next use of the object's content in this tier. Ticks go on counting over the end
 * of the loop or body. SL_NEVER if the object is written whole or used at home first. */
uint64_t sl_uses_find_need(const sl_uses *index, uint32_t object, const sl_use_cursor *cursor);

/* How many ticks are added to the distance of uses behind the loop that is walked, for its other
 * repetitions: such uses are farther than all uses in the loop. 0 outside of loops. */
uint64_t sl_uses_find_distance_behind(const sl_uses *index);

/* Whether dirty content has to be written back even if the object is not evicted now: a use at home
 * reads it, or the body ends, before the next write in this tier. */
bool sl_uses_must_reach_home(const sl_uses *index, uint32_t object, const sl_use_cursor *cursor);

/* Whether dirty content is read before it is written whole, in the next repetition or behind the
 * loop. */
bool sl_uses_is_live(const sl_uses *index, uint32_t object, const sl_use_cursor *cursor);

#endif
