/* Divides the waits of one lane at the starts and ends of another lane's waits. */
#include "stall.h"

void sl_stall_remember(sl_stall_history *history, const sl_stall_span *span)
{
    history->spans[history->count++ % SL_STALL_HISTORY] = *span;
}

/* Writes only the copies that the history still has at the end. Of a period of more spans than
 * SL_STALL_HISTORY these are copies of its last spans, which the old history still has. */
void sl_stall_repeat(sl_stall_history *history, uint64_t first, double seconds, uint32_t times)
{
    const sl_stall_history old = *history;
    const uint64_t period = old.count - first;
    history->count += times * period;
    uint64_t next = old.count;
    if (history->count > next + SL_STALL_HISTORY)
        next = history->count - SL_STALL_HISTORY;
    for (; next < history->count; next++) {
        const uint64_t from = first + (next - old.count) % period;
        const uint64_t repetition = (next - old.count) / period + 1;
        const double later = seconds * (double)repetition;
        sl_stall_span span = old.spans[from % SL_STALL_HISTORY];
        span.start += later;
        span.end += later;
        history->spans[next % SL_STALL_HISTORY] = span;
    }
}

static uint32_t add_part(sl_stall_span *parts, uint32_t count, double start, double end,
                         sl_lane cause)
{
    if (start >= end)
        return count;
    parts[count] = (sl_stall_span){start, end, cause};
    return count + 1;
}

/* A span that names the waiter as its cause is charged to the lane waited for: the waiter had ended
 * its work, and the other lane started late. */
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
