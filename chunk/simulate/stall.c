/* Cuts one wait at the borders of another lane's waits. */
#include "stall.h"

void sl_stall_remember(sl_stall_history *history, const sl_stall_span *span)
{
    history->spans[history->count++ % SL_STALL_HISTORY] = *span;
}

static uint32_t add_part(sl_stall_span *parts, uint32_t count, double start, double end,
                         sl_lane cause)
{
    if (start >= end)
        return count;
    parts[count] = (sl_stall_span){start, end, cause};
    return count + 1;
}

/* A part that comes back to the waiter is one that woke up late: the waiter was done by then. */
uint32_t sl_stall_divide(const sl_stall_history *history, sl_lane waiter, const sl_stall_span *wait,
                         sl_stall_span out_parts[SL_STALL_PART_MAX])
{
    uint64_t last = history->count;
    uint64_t first = last > SL_STALL_HISTORY ? last - SL_STALL_HISTORY : 0;
    double start = wait->start;
    uint32_t count = 0;
    for (uint64_t i = first; i < last; i++) {
        const sl_stall_span *span = &history->spans[i % SL_STALL_HISTORY];
        double from = span->start < start ? start : span->start;
        double to = span->end > wait->end ? wait->end : span->end;
        if (from >= to || span->cause == waiter)
            continue;
        count = add_part(out_parts, count, start, from, wait->cause);
        count = add_part(out_parts, count, from, to, span->cause);
        start = to;
    }
    return add_part(out_parts, count, start, wait->end, wait->cause);
}
