/* Whom a wait is to be charged to. A lane that waits for another often waits for one further back:
 * the copy to the device cannot start because its chunk is still being read from disk. So the lane
 * waited for is asked what it waited for itself meanwhile, and that part is charged there.
 *
 * Each lane remembers its last waits, already divided that way. When a wait is noted, those of the
 * lane waited for that overlap it have been: their work comes before the mark that ended the wait.
 * One that was forgotten, or is told only later, leaves its part with the lane waited for.
 *
 * Spans of one lane do not overlap and stand in the order of time. They are written by the lane's
 * thread and read by others, under the lane's lock.
 */
#include "engine_internal.h"

#include <string.h>

/* Adds one span to what the lane remembers; the oldest gives way. */
static void remember(sl_engine_lane *lane, const sl_waited *span)
{
    pthread_mutex_lock(&lane->lock);
    lane->waits[lane->wait_count % SL_WAIT_HISTORY] = *span;
    lane->wait_count++;
    pthread_mutex_unlock(&lane->lock);
}

/* Copies the parts of what `lane` remembers that lie in a span, in order; returns how many. */
static uint32_t find_parts(sl_engine_lane *lane, const sl_waited *span,
                           sl_waited out_parts[SL_WAIT_HISTORY])
{
    uint32_t count = 0;
    pthread_mutex_lock(&lane->lock);
    uint64_t first = lane->wait_count > SL_WAIT_HISTORY ? lane->wait_count - SL_WAIT_HISTORY : 0;
    for (uint64_t i = first; i < lane->wait_count; i++) {
        sl_waited part = lane->waits[i % SL_WAIT_HISTORY];
        part.start_ns = part.start_ns < span->start_ns ? span->start_ns : part.start_ns;
        part.end_ns = part.end_ns > span->end_ns ? span->end_ns : part.end_ns;
        if (part.start_ns < part.end_ns)
            out_parts[count++] = part;
    }
    pthread_mutex_unlock(&lane->lock);
    return count;
}

static void charge(sl_engine_lane *lane, const sl_waited *span)
{
    if (span->start_ns >= span->end_ns)
        return;
    atomic_fetch_add_explicit(&lane->waited_ns[span->cause], span->end_ns - span->start_ns,
                              memory_order_relaxed);
    remember(lane, span);
}

void sl_stall_note(sl_engine_lane *lane, sl_lane waited_for, uint64_t start_ns, uint64_t end_ns)
{
    sl_waited span = {start_ns, end_ns, waited_for}, parts[SL_WAIT_HISTORY];
    uint32_t count = find_parts(&lane->lanes[waited_for], &span, parts);
    for (uint32_t i = 0; i < count; i++) {
        if (parts[i].cause == lane->lane) /* it woke up late: this lane was done by then */
            continue;
        sl_waited before = {span.start_ns, parts[i].start_ns, waited_for};
        charge(lane, &before);
        charge(lane, &parts[i]);
        span.start_ns = parts[i].end_ns;
    }
    charge(lane, &span);
}
