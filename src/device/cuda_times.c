/* When calls, copies and waits of a device stream began and ended, for its observer.
 *
 * A stream's time is divided by borders: CUDA events that record the time when the stream passes
 * them. The span before a border is a run (calls between two waits are one run, unless the observer
 * wants each call, or their tags apart), a wait, or idle time, which is not reported. The control
 * thread reports spans in order, whenever it has waited for something anyway. A wait for another
 * stream is reported only after that stream's spans up to the record waited for, because they
 * decide to whom the wait is charged (chunk/simulate/stall.h). Times are the clock's at the
 * stream's last idle moment, plus the time that the events measured since.
 *
 * Invariants: reported <= set <= reported + BORDERS - 1; the border reported last still holds its
 * time, because the next span begins there. is_current: the last border stands at the end of the
 * stream's issued work, and the control thread has not waited since, so the next span begins there.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "cuda_internal.h"

enum { BORDERS = 1024 };

/* A wait that does not block still takes about as long as its two borders. */
#define NOISE_NS UINT64_C(5000)

typedef enum span_kind { SPAN_IDLE, SPAN_RUN, SPAN_WAIT } span_kind;

typedef struct border {
    cudaEvent_t event;
    span_kind before; /* kind of the span that ends here */
    uint64_t tag;
    sl_cuda_moment after; /* must be reported first */
} border;

struct sl_cuda_times {
    sl_device_stream *stream;
    sl_queue_observer observer;
    border borders[BORDERS]; /* number i is borders[i % BORDERS] */
    uint64_t set, reported;
    uint64_t reported_ns; /* time of the border reported last */
    bool is_current;
    bool is_running; /* calls were issued since the last border */
    uint64_t run_tag;
};

static border *border_at(sl_cuda_times *times, uint64_t number)
{
    return &times->borders[number % BORDERS];
}

/* ---- reporting ---- */

static void report_span(const sl_cuda_times *times, const border *at, uint64_t end_ns)
{
    const sl_queue_observer *observer = &times->observer;
    if (at->before == SPAN_RUN && observer->ran)
        observer->ran(observer->user, at->tag, times->reported_ns, end_ns);
    bool has_blocked = at->before == SPAN_WAIT && end_ns - times->reported_ns > NOISE_NS;
    if (has_blocked && observer->waited)
        observer->waited(observer->user, at->tag, times->reported_ns, end_ns);
}

/* True if all spans of the stream up to `moment` were reported, or the stream is closed. */
static bool is_reported(const sl_device *device, const sl_cuda_moment *moment)
{
    const sl_device_stream *stream = device->streams;
    while (stream && stream != moment->stream)
        stream = stream->next;
    return !stream || !stream->times || stream->times->reported >= moment->border;
}

/* Reports the oldest span if it has ended; false: it has not, or CUDA returns an error. */
static bool report_next_span(sl_cuda_times *times)
{
    float ms = 0.0f;
    border *from = border_at(times, times->reported), *to = border_at(times, times->reported + 1);
    if (!is_reported(times->stream->device, &to->after))
        return false;
    if (cudaEventQuery(to->event) != cudaSuccess ||
        cudaEventElapsedTime(&ms, from->event, to->event) != cudaSuccess) {
        sl_cuda_forget_error();
        return false;
    }
    uint64_t end_ns = times->reported_ns + (ms > 0.0f ? (uint64_t)((double)ms * 1e6) : 0);
    report_span(times, to, end_ns);
    times->reported_ns = end_ns;
    times->reported++;
    return true;
}

/* Returns true if it reported something. */
static bool report_stream(sl_cuda_times *times)
{
    uint64_t before = times->reported;
    while (times->reported < times->set && report_next_span(times)) {
    }
    return times->reported > before;
}

/* Repeats until nothing is left, because a span of one stream may have to wait for one of
 * another. */
static void report_all_streams(sl_device *device)
{
    bool goes_on = true;
    while (goes_on) {
        goes_on = false;
        for (sl_device_stream *stream = device->streams; stream; stream = stream->next)
            goes_on = (stream->times && report_stream(stream->times)) || goes_on;
    }
}

void sl_cuda_times_report(sl_device *device)
{
    report_all_streams(device);
    for (sl_device_stream *stream = device->streams; stream; stream = stream->next) {
        if (stream->times)
            stream->times->is_current = false;
    }
}

/* ---- borders ---- */

/* Makes room for one more border; may wait for the stream. */
static sl_status make_room_for_border(sl_cuda_times *times)
{
    if (times->set - times->reported < BORDERS - 1)
        return SL_OK;
    report_all_streams(times->stream->device);
    if (times->set - times->reported < BORDERS - 1)
        return SL_OK;
    SL_TRY(sl_cuda_wait(times->stream, border_at(times, times->reported + BORDERS / 4)->event));
    report_all_streams(times->stream->device);
    return SL_OK;
}

static sl_status set_border(sl_cuda_times *times, span_kind before, uint64_t tag)
{
    SL_TRY(make_room_for_border(times));
    border *next = border_at(times, times->set + 1);
    SL_CUDA_TRY(times->stream->name, cudaEventRecord(next->event, times->stream->stream));
    times->stream->entries++;
    next->before = before;
    next->tag = tag;
    next->after = (sl_cuda_moment){0};
    times->set++;
    times->is_current = true;
    return SL_OK;
}

/* Sets a border where the next work begins. */
static sl_status begin_span(sl_cuda_times *times)
{
    return times->is_current ? SL_OK : set_border(times, SPAN_IDLE, 0);
}

static sl_status end_run_span(sl_cuda_times *times)
{
    if (!times->is_running)
        return SL_OK;
    times->is_running = false;
    return set_border(times, SPAN_RUN, times->run_tag);
}

/* ---- before and after work is issued ---- */

sl_status sl_cuda_times_before_call(sl_cuda_times *times, uint64_t tag)
{
    if (!times)
        return SL_OK;
    if ((tag ^ times->run_tag) & times->observer.apart)
        SL_TRY(end_run_span(times));
    return times->is_running ? SL_OK : begin_span(times);
}

sl_status sl_cuda_times_after_call(sl_cuda_times *times, uint64_t tag, bool is_copy)
{
    if (!times)
        return SL_OK;
    times->is_running = true;
    times->run_tag = tag;
    return is_copy || times->observer.wants_each ? end_run_span(times) : SL_OK;
}

sl_status sl_cuda_times_before_record(sl_cuda_times *times)
{
    return times ? end_run_span(times) : SL_OK;
}

sl_cuda_moment sl_cuda_times_moment(const sl_device_stream *stream)
{
    return (sl_cuda_moment){stream, stream->times ? stream->times->set : 0};
}

sl_status sl_cuda_times_before_wait(sl_cuda_times *times)
{
    if (!times)
        return SL_OK;
    SL_TRY(end_run_span(times));
    return begin_span(times);
}

sl_status sl_cuda_times_after_wait(sl_cuda_times *times, uint64_t tag, sl_cuda_moment after)
{
    if (!times)
        return SL_OK;
    SL_TRY(set_border(times, SPAN_WAIT, tag));
    border_at(times, times->set)->after = after;
    return SL_OK;
}

/* ---- the state of a stream ---- */

sl_queue_state sl_cuda_times_look(sl_cuda_times *times, uint64_t *out_tag)
{
    *out_tag = times ? times->run_tag : 0;
    if (!times)
        return SL_QUEUE_CALLS;
    for (uint64_t next = times->reported + 1; next <= times->set; next++) {
        const border *at = border_at(times, next);
        if (cudaEventQuery(at->event) == cudaSuccess)
            continue;
        sl_cuda_forget_error();
        *out_tag = at->tag;
        return at->before == SPAN_RUN ? SL_QUEUE_CALLS : SL_QUEUE_WAITS;
    }
    return times->is_running ? SL_QUEUE_CALLS : SL_QUEUE_WAITS;
}

/* ---- opening, settling, closing ---- */

/* The stream is idle: its first border is now. */
static sl_status set_first_border(sl_cuda_times *times)
{
    border *at = border_at(times, times->reported);
    SL_CUDA_TRY(times->stream->name, cudaEventRecord(at->event, times->stream->stream));
    SL_CUDA_TRY(times->stream->name, cudaEventSynchronize(at->event));
    times->reported_ns = sl_clock_now_ns();
    return SL_OK;
}

sl_status sl_cuda_times_settle(sl_cuda_times *times)
{
    if (!times)
        return SL_OK;
    report_all_streams(times->stream->device);
    times->reported = times->set; /* spans without times from CUDA are dropped */
    times->is_current = false;
    return set_first_border(times);
}

static sl_status open_borders(sl_cuda_times *times)
{
    for (int i = 0; i < BORDERS; i++)
        SL_CUDA_TRY(times->stream->name,
                    cudaEventCreateWithFlags(&times->borders[i].event, cudaEventBlockingSync));
    return set_first_border(times);
}

sl_status sl_cuda_times_open(sl_device_stream *stream, const sl_queue_observer *observer,
                             sl_cuda_times **out_times)
{
    if (!observer)
        return SL_OK;
    sl_cuda_times *times = calloc(1, sizeof *times);
    if (!times)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the times of stream %s", stream->name);
    times->stream = stream;
    times->observer = *observer;
    sl_status status = open_borders(times);
    if (status != SL_OK) {
        sl_cuda_times_close(times);
        return status;
    }
    *out_times = times;
    return SL_OK;
}

void sl_cuda_times_close(sl_cuda_times *times)
{
    if (!times)
        return;
    for (int i = 0; i < BORDERS; i++) {
        if (times->borders[i].event && cudaEventDestroy(times->borders[i].event) != cudaSuccess)
            sl_cuda_forget_error();
    }
    free(times);
}
