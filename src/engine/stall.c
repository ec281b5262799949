/* Notes the waits of lanes, each charged to the lane whose work was waited for in the end
 * (chunk/simulate/stall.h). Knows nothing of streams.
 *
 * What a lane remembers is written by its thread and read by others, under its lock. The device
 * tells of a lane's waits before those for that lane (device.h). Only a wait of a device's stream
 * that a lane of the host waits behind may be told of later: its part stays with the stream.
 */
#include "engine_internal.h"

static uint32_t divide(sl_engine_lane *of, sl_lane waiter, const sl_stall_span *wait,
                       sl_stall_span *out_parts)
{
    pthread_mutex_lock(&of->lock);
    uint32_t count = sl_stall_divide(&of->waits, waiter, wait, out_parts);
    pthread_mutex_unlock(&of->lock);
    return count;
}

void sl_stall_note(sl_engine_lane *lane, sl_lane waited_for, uint64_t start_ns, uint64_t end_ns)
{
    sl_stall_span wait = {(double)start_ns, (double)end_ns, waited_for};
    sl_stall_span parts[SL_STALL_PART_MAX];
    uint32_t count = divide(&lane->lanes[waited_for], lane->lane, &wait, parts);
    pthread_mutex_lock(&lane->lock);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t part_ns = (uint64_t)(parts[i].end - parts[i].start);
        atomic_fetch_add_explicit(&lane->waited_ns[parts[i].cause], part_ns, memory_order_relaxed);
        sl_stall_remember(&lane->waits, &parts[i]);
    }
    pthread_mutex_unlock(&lane->lock);
}
