/* A device of tests whose streams run in one thread, in virtual time, as a seed decides.
 *
 * Each stream is a fiber; the thread that opened the device, the control thread, is one more. All
 * of them are parties. A party runs until it waits: for an event, for room in a stream, for the end
 * of a stream, or, by nanosleep, for time. Then the party that can go on earliest does. Each piece
 * of work takes a random time, and its effect comes at its start or at its end; a party may be
 * stopped for long, and the whole process too: its clock leaps. clock_gettime, nanosleep and flock
 * are those of the simulation while one runs: the store waits and judges in virtual time
 * (store_double.h is its disk), and nobody else takes memory. A seed replays exactly.
 *
 * What is checked, at each event: memory that was taken is within the budgets; two pieces of work
 * that touch the same bytes, one of them writing, are not at work together (simulation_ranges.h);
 * something can go on. The first breach is kept in `simulation.breach`; from then on nothing runs.
 * Include in one file of a program. */
#ifndef SL_TESTS_SIMULATION_H
#define SL_TESTS_SIMULATION_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "device/device.h"
#include "scratch_dir.h"
#include "simulation_ranges.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

enum {
    SIM_PARTIES_MAX = 16,
    SIM_STACK_BYTES = 1 << 20,
    SIM_ITEMS_MAX = 1024, /* of a stream */
    SIM_MAPS_MAX = 8,
    SIM_EVENTS_MAX = 1000000,
    SIM_BREACH_BYTES = 512
};

static const uint64_t SIM_NEVER = UINT64_MAX;
static const uint64_t SIM_STOP_NS = UINT64_C(200000000000); /* longer than any limit */

/* What may go wrong; zeros: nothing. */
typedef struct sim_faults {
    uint64_t refused_call; /* the n-th call of the device that can fail does, from 1 */
    uint64_t failing_copy; /* the n-th copy fails in its stream */
} sim_faults;

typedef struct sim_party {
    ucontext_t context;
    char *stack; /* NULL: the control thread */
    void *fake_stack;
    bool (*is_ready)(const void *what); /* NULL: when its time has come */
    const void *what;
    uint64_t wake_ns; /* when it goes on although it is not ready */
    bool is_alive;
} sim_party;

typedef struct simulation_state {
    bool is_running; /* the clock is virtual */
    uint64_t seed, random, now_ns, events;
    bool has_stops;
    sim_party parties[SIM_PARTIES_MAX]; /* [0]: the control thread */
    uint32_t current;
    uint64_t slowness[SIM_PARTIES_MAX]; /* of this seed, as a power of two */
    uint32_t capacity;                  /* of a stream, in items */
    sim_faults faults;
    uint64_t call_count, copy_count;
    uint64_t budget_bytes, mapped_bytes;
    void *maps[SIM_MAPS_MAX]; /* NULL: free */
    uint32_t live_streams, live_events;
    bool may_keep_memory; /* what a lost request may write stays mapped */
    sim_ranges ranges;
    char breach[SIM_BREACH_BYTES]; /* "": none */
} simulation_state;

static simulation_state simulation;

static uint64_t sim_below(uint64_t bound)
{
    return scratch_below(&simulation.random, bound);
}

static bool sim_is_broken(void)
{
    return simulation.breach[0] != '\0';
}

static void __attribute__((format(printf, 1, 2))) sim_break(const char *format, ...)
{
    va_list list;
    if (sim_is_broken())
        return;
    va_start(list, format);
    vsnprintf(simulation.breach, sizeof simulation.breach, format, list);
    va_end(list);
}

/* Mostly short, sometimes thousands of times as long. */
static uint64_t sim_draw_ns(void)
{
    uint64_t most = UINT64_C(1) << (4 + sim_below(14) + simulation.slowness[simulation.current]);
    if (simulation.has_stops && sim_below(4096) == 0)
        return SIM_STOP_NS;
    return 1 + sim_below(most);
}

/* ---- parties ---- */

/* When a party goes on, at the earliest. */
static uint64_t sim_time_of(const sim_party *party)
{
    bool is_ready = party->is_ready && party->is_ready(party->what);
    return is_ready && party->wake_ns > simulation.now_ns ? simulation.now_ns : party->wake_ns;
}

/* The party that goes on earliest, one of several at random; SIM_PARTIES_MAX: none ever does. */
static uint32_t sim_choose(void)
{
    uint64_t best_ns = SIM_NEVER;
    uint32_t best = SIM_PARTIES_MAX, equals = 0;
    for (uint32_t i = 0; i < SIM_PARTIES_MAX; i++) {
        if (!simulation.parties[i].is_alive)
            continue;
        uint64_t time_ns = sim_time_of(&simulation.parties[i]);
        if (time_ns > best_ns || time_ns == SIM_NEVER)
            continue;
        equals = time_ns < best_ns ? 1 : equals + 1;
        if (equals == 1 || sim_below(equals) == 0)
            best = i;
        best_ns = time_ns;
    }
    if (best < SIM_PARTIES_MAX && best_ns > simulation.now_ns)
        simulation.now_ns = best_ns;
    return best;
}

#if defined(__SANITIZE_ADDRESS__)
static const void *sim_control_bottom; /* of its stack */
static size_t sim_control_bytes;
#endif

static void sim_switch(uint32_t to)
{
    sim_party *from = &simulation.parties[simulation.current], *next = &simulation.parties[to];
    if (from == next)
        return;
    simulation.current = to;
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom = next->stack ? next->stack : sim_control_bottom;
    size_t bytes = next->stack ? (size_t)SIM_STACK_BYTES : sim_control_bytes;
    __sanitizer_start_switch_fiber(&from->fake_stack, bottom, bytes);
    swapcontext(&from->context, &next->context);
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#else
    swapcontext(&from->context, &next->context);
#endif
}

static void sim_check_event(void)
{
    simulation.events++;
    if (simulation.events > SIM_EVENTS_MAX)
        sim_break("%d events, and no end", SIM_EVENTS_MAX);
    if (simulation.mapped_bytes > simulation.budget_bytes)
        sim_break("%llu bytes are taken, the budgets have %llu",
                  (unsigned long long)simulation.mapped_bytes,
                  (unsigned long long)simulation.budget_bytes);
    if (simulation.has_stops && sim_below(8192) == 0)
        simulation.now_ns += SIM_STOP_NS; /* the whole process was stopped */
}

/* Lets others run until `is_ready(what)`, or until `wake_ns`. After a breach the control thread
 * alone goes on, and does not wait. */
static void sim_wait(bool (*is_ready)(const void *what), const void *what, uint64_t wake_ns)
{
    sim_party *self = &simulation.parties[simulation.current];
    self->is_ready = is_ready;
    self->what = what;
    self->wake_ns = wake_ns;
    sim_check_event();
    uint32_t next = sim_is_broken() ? 0 : sim_choose();
    if (next == SIM_PARTIES_MAX) {
        sim_break("nothing can go on");
        next = 0;
    }
    sim_switch(next);
}

static void sim_sleep(uint64_t ns)
{
    sim_wait(NULL, NULL, simulation.now_ns + ns);
}

/* ---- the clock ---- */

int clock_gettime(clockid_t clock, struct timespec *out)
{
    if (!simulation.is_running || clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, out);
    *out = (struct timespec){(time_t)(simulation.now_ns / 1000000000u),
                             (long)(simulation.now_ns % 1000000000u)};
    return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    if (!simulation.is_running)
        return (int)syscall(SYS_nanosleep, time, left);
    sim_sleep((uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec);
    if (simulation.has_stops && sim_below(64) == 0)
        simulation.now_ns += SIM_STOP_NS; /* requests of the disk are out, likely */
    return 0;
}

/* Runs take their memory one after the other, by a lock of the whole machine. The simulated machine
 * has no other runs: what real ones do must not be waited for in virtual time. */
int flock(int file, int operation)
{
    return simulation.is_running ? 0 : (int)syscall(SYS_flock, file, operation);
}

/* ---- streams ---- */

typedef enum sim_item_kind { SIM_CALL, SIM_COPY, SIM_RECORD, SIM_WAIT } sim_item_kind;

typedef struct sim_item {
    _Alignas(16) unsigned char arguments[SL_QUEUE_ARGUMENT_BYTES];
    sim_item_kind kind;
    uint64_t tag;
    sl_queue_function function; /* CALL */
    void *to;                   /* COPY */
    const void *from;
    uint64_t bytes;
    sl_device_event *event; /* RECORD, WAIT */
    uint64_t number;
} sim_item;

struct sl_device_stream {
    sim_item items[SIM_ITEMS_MAX];
    uint64_t issued, done;
    uint32_t party;
    sl_first_failure failure;
    sl_queue_observer observer;
    bool is_observed;
};

struct sl_device_event {
    uint64_t issued, reached;
    uint64_t wanted; /* by the control thread */
};

static bool sim_stream_has_work(const void *what)
{
    const sl_device_stream *stream = what;
    return stream->done < stream->issued;
}

static bool sim_stream_has_room(const void *what)
{
    const sl_device_stream *stream = what;
    return stream->issued - stream->done < simulation.capacity;
}

static bool sim_stream_is_done(const void *what)
{
    const sl_device_stream *stream = what;
    return stream->done == stream->issued;
}

static bool sim_item_is_reached(const void *what)
{
    const sim_item *item = what;
    return item->event->reached >= item->number - (item->kind == SIM_RECORD);
}

static bool sim_event_is_wanted(const void *what)
{
    const sl_device_event *event = what;
    return event->reached >= event->wanted;
}

/* The memory that a copy goes to holds nothing until the copy is done. */
static sl_status sim_run_copy(sim_item *item)
{
    enum { PATTERN = 0xA5 };
    bool is_split = sim_below(2) == 0;
    uint64_t first = is_split ? sim_below(item->bytes) : 0;
    bool fails = ++simulation.copy_count == simulation.faults.failing_copy;
    memset(item->to, PATTERN, item->bytes);
    memcpy(item->to, item->from, first);
    sim_sleep(sim_draw_ns());
    memcpy((char *)item->to + first, (const char *)item->from + first, item->bytes - first);
    if (fails)
        SL_FAIL(SL_ERROR_SYSTEM, "the simulation lets a copy fail");
    return SL_OK;
}

static sl_status sim_run_call(sim_item *item)
{
    bool is_late = sim_below(2) == 0;
    sl_status status;
    if (is_late)
        sim_sleep(sim_draw_ns());
    status = item->function(item->arguments);
    if (!is_late && status == SL_OK)
        sim_sleep(sim_draw_ns());
    return status;
}

static void sim_run_work(sl_device_stream *stream, sim_item *item)
{
    if (stream->failure.status != SL_OK || sim_is_broken())
        return;
    uint64_t start_ns = simulation.now_ns;
    const char *other = sim_ranges_enter(&simulation.ranges, stream->party, item->tag);
    if (other) {
        sim_break("%s", other);
        sim_sleep(0); /* for ever */
    }
    sl_status status = item->kind == SIM_COPY ? sim_run_copy(item) : sim_run_call(item);
    if (status != SL_OK)
        sl_first_failure_keep(&stream->failure, status);
    sim_ranges_leave(&simulation.ranges, stream->party);
    if (stream->is_observed)
        stream->observer.ran(stream->observer.user, item->tag, start_ns, simulation.now_ns);
}

static void sim_run_item(sl_device_stream *stream, sim_item *item)
{
    uint64_t start_ns = simulation.now_ns;
    if (item->kind == SIM_CALL || item->kind == SIM_COPY) {
        sim_run_work(stream, item);
        return;
    }
    bool waits = !sim_item_is_reached(item);
    if (waits)
        sim_wait(sim_item_is_reached, item, SIM_NEVER);
    if (item->kind == SIM_RECORD)
        item->event->reached = item->number;
    else if (waits && stream->is_observed)
        stream->observer.waited(stream->observer.user, item->tag, start_ns, simulation.now_ns);
}

static sl_device_stream *sim_started; /* the stream of a fiber that starts */

static void sim_run_stream(void)
{
    sl_device_stream *stream = sim_started;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &sim_control_bottom, &sim_control_bytes);
#endif
    for (;;) {
        sim_wait(sim_stream_has_work, stream, SIM_NEVER);
        sim_run_item(stream, &stream->items[stream->done % SIM_ITEMS_MAX]);
        stream->done++;
    }
}

/* ---- the device's table ---- */

struct sl_device {
    int unused;
};

/* The control thread takes its time, too. True if this call is to fail. */
static bool sim_enter_call(void)
{
    if (sim_below(8) == 0)
        sim_sleep(sim_draw_ns());
    return ++simulation.call_count == simulation.faults.refused_call;
}

#define SIM_GO_ON()                                                                                \
    do {                                                                                           \
        if (sim_is_broken())                                                                       \
            SL_FAIL(SL_ERROR_INTERNAL, "the simulation has ended: %s", simulation.breach);         \
    } while (0)

#define SIM_ENTER(what)                                                                            \
    do {                                                                                           \
        if (sim_enter_call())                                                                      \
            SL_FAIL(SL_ERROR_SYSTEM, "the simulation refuses %s", what);                           \
        SIM_GO_ON();                                                                               \
    } while (0)

static sl_status sim_open_device(int index, const sl_cuda_options *options, sl_device **out_device)
{
    static sl_device device;
    (void)index, (void)options;
    SIM_ENTER("a device");
    *out_device = &device;
    return SL_OK;
}

static void sim_close_device(sl_device *device)
{
    (void)device;
}

static sl_status sim_describe(sl_device *device, sl_device_info *out_info)
{
    (void)device;
    *out_info = (sl_device_info){.numa_node = -1};
    return SL_OK;
}

static void **sim_find_map(const void *memory)
{
    uint32_t i = 0;
    while (i < SIM_MAPS_MAX && simulation.maps[i] != memory)
        i++;
    scratch_need(i < SIM_MAPS_MAX, "a range of memory");
    return &simulation.maps[i];
}

static sl_status sim_map(sl_device *device, uint64_t bytes, int flags, void **out_memory)
{
    enum { PAGE = 4096 };
    (void)device, (void)flags;
    SIM_ENTER("memory");
    uint64_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    void *memory = aligned_alloc(PAGE, whole);
    scratch_need(memory != NULL, "memory");
    memset(memory, 0, whole);
    simulation.mapped_bytes += bytes;
    *sim_find_map(NULL) = memory;
    *out_memory = memory;
    return SL_OK;
}

static void sim_unmap(sl_device *device, void *memory, uint64_t bytes, int flags)
{
    (void)device, (void)flags;
    simulation.mapped_bytes -= bytes;
    *sim_find_map(memory) = NULL;
    free(memory);
}

static uint32_t sim_find_party(void)
{
    uint32_t i = 1;
    while (i < SIM_PARTIES_MAX && simulation.parties[i].is_alive)
        i++;
    scratch_need(i < SIM_PARTIES_MAX, "too many streams");
    return i;
}

static sl_status sim_open_stream(sl_device *device, sl_stream_kind kind, const char *name,
                                 const sl_queue_observer *observer, sl_device_stream **out_stream)
{
    (void)device, (void)kind;
    SIM_ENTER(name);
    sl_device_stream *stream = calloc(1, sizeof *stream);
    scratch_need(stream != NULL, "memory");
    stream->party = sim_find_party();
    stream->is_observed = observer != NULL;
    if (observer)
        stream->observer = *observer;
    sim_party *party = &simulation.parties[stream->party];
    if (!party->stack)
        party->stack =
            mmap(NULL, SIM_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    scratch_need(party->stack != MAP_FAILED, "a stack");
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(party->stack, SIM_STACK_BYTES);
#endif
    getcontext(&party->context);
    party->context.uc_stack = (stack_t){.ss_sp = party->stack, .ss_size = SIM_STACK_BYTES};
    makecontext(&party->context, sim_run_stream, 0);
    party->is_alive = true;
    party->fake_stack = NULL;
    simulation.live_streams++;
    sim_started = stream;
    simulation.parties[0].is_ready = NULL; /* comes back when the fiber waits for work */
    simulation.parties[0].wake_ns = simulation.now_ns;
    sim_switch(stream->party);
    *out_stream = stream;
    return SL_OK;
}

static sl_status sim_finish_stream(sl_device_stream *stream)
{
    SIM_GO_ON();
    sim_wait(sim_stream_is_done, stream, SIM_NEVER);
    SIM_GO_ON();
    return sl_first_failure_return(&stream->failure);
}

static void sim_close_stream(sl_device_stream *stream)
{
    if (!stream)
        return;
    if (!sim_is_broken())
        sim_wait(sim_stream_is_done, stream, SIM_NEVER);
    simulation.parties[stream->party].is_alive = false; /* its fiber is not resumed */
    simulation.live_streams--;
    free(stream);
}

/* Streams that never end are a breach here, and the observer is not asked. After a breach nothing
 * runs. */
static sl_queue_state sim_look(sl_device_stream *stream, uint64_t *out_tag)
{
    (void)out_tag;
    return sim_stream_is_done(stream) || sim_is_broken() ? SL_QUEUE_IDLE : SL_QUEUE_WAITS;
}

static void sim_abandon(sl_device_stream *stream)
{
    (void)stream;
}

static void *sim_native_stream(sl_device_stream *stream)
{
    (void)stream;
    return NULL;
}

static sl_status sim_open_event(sl_device *device, sl_device_event **out_event)
{
    (void)device;
    SIM_ENTER("an event");
    *out_event = calloc(1, sizeof **out_event);
    scratch_need(*out_event != NULL, "memory");
    simulation.live_events++;
    return SL_OK;
}

static void sim_close_event(sl_device_event *event)
{
    simulation.live_events -= event != NULL;
    free(event);
}

static void sim_add_item(sl_device_stream *stream, const sim_item *item)
{
    if (!sim_stream_has_room(stream))
        sim_wait(sim_stream_has_room, stream, SIM_NEVER);
    if (!sim_is_broken())
        stream->items[stream->issued++ % SIM_ITEMS_MAX] = *item;
}

static sl_status sim_record(sl_device_event *event, sl_device_stream *stream)
{
    SIM_ENTER("a record");
    sim_add_item(stream,
                 &(sim_item){.kind = SIM_RECORD, .event = event, .number = ++event->issued});
    return SL_OK;
}

static sl_status sim_wait_for_event(sl_device_event *event, sl_device_stream *stream, uint64_t tag)
{
    SIM_ENTER("a wait");
    if (event->issued > 0)
        sim_add_item(
            stream,
            &(sim_item){.kind = SIM_WAIT, .tag = tag, .event = event, .number = event->issued});
    return SL_OK;
}

static sl_status sim_finish_event(sl_device_event *event)
{
    SIM_ENTER("a wait");
    event->wanted = event->issued;
    if (!sim_event_is_wanted(event))
        sim_wait(sim_event_is_wanted, event, SIM_NEVER);
    SIM_GO_ON();
    return SL_OK;
}

static sl_status sim_launch(sl_device_stream *stream, uint64_t tag, sl_queue_function function,
                            const void *arguments, uint32_t argument_bytes)
{
    sim_item item = {.kind = SIM_CALL, .tag = tag, .function = function};
    SIM_ENTER("a launch");
    memcpy(item.arguments, arguments, argument_bytes);
    sim_add_item(stream, &item);
    return SL_OK;
}

static sl_status sim_copy(sl_device_stream *stream, uint64_t tag, void *to, const void *from,
                          uint64_t bytes)
{
    SIM_ENTER("a copy");
    sim_add_item(stream,
                 &(sim_item){.kind = SIM_COPY, .tag = tag, .to = to, .from = from, .bytes = bytes});
    return SL_OK;
}

static const sl_device_watcher *sim_watcher(const sl_device *device)
{
    (void)device;
    return NULL;
}

static const sl_device_ops sim_device_ops = {
    .kind = SL_DEVICE_CPU,
    .name = "simulation",
    .needs = "",
    .doubt = "",
    .open = sim_open_device,
    .close = sim_close_device,
    .describe = sim_describe,
    .map = sim_map,
    .unmap = sim_unmap,
    .map_host = sim_map,
    .unmap_host = sim_unmap,
    .stream_open = sim_open_stream,
    .stream_finish = sim_finish_stream,
    .stream_close = sim_close_stream,
    .stream_look = sim_look,
    .stream_abandon = sim_abandon,
    .stream_native = sim_native_stream,
    .event_open = sim_open_event,
    .event_close = sim_close_event,
    .event_record = sim_record,
    .event_wait = sim_wait_for_event,
    .event_finish = sim_finish_event,
    .launch = sim_launch,
    .watcher = sim_watcher,
    .copy = sim_copy,
};

/* ---- a simulation ---- */

/* Starts over with a seed; nothing of the last one may be open. */
static void simulation_start(uint64_t seed, uint64_t budget_bytes, sim_faults faults)
{
    simulation_state fresh = {.is_running = true,
                              .seed = seed,
                              .random = seed * UINT64_C(0x9E3779B97F4A7C15) | 1,
                              .now_ns = 1000,
                              .budget_bytes = budget_bytes,
                              .faults = faults};
    for (int i = 0; i < SIM_PARTIES_MAX; i++)
        fresh.parties[i].stack = simulation.parties[i].stack;
    fresh.parties[0].is_alive = true;
    fresh.ranges = simulation.ranges;
    simulation = fresh;
    sim_ranges_clear(&simulation.ranges);
    simulation.has_stops = sim_below(2) == 0;
    simulation.capacity = 1 + (uint32_t)sim_below(UINT64_C(1) << (2 + sim_below(9)));
    for (int i = 0; i < SIM_PARTIES_MAX; i++)
        simulation.slowness[i] = 4 * sim_below(4);
}

/* Ends it; what is still open is a breach. */
static void simulation_end(void)
{
    uint32_t live_maps = 0;
    for (int i = 0; i < SIM_MAPS_MAX; i++) {
        live_maps += simulation.maps[i] != NULL;
        free(simulation.maps[i]);
    }
    if (live_maps > simulation.may_keep_memory || simulation.live_streams > 0 ||
        simulation.live_events > 0)
        sim_break("%u ranges of memory, %u streams, %u events are left", live_maps,
                  simulation.live_streams, simulation.live_events);
    simulation.is_running = false;
}

#endif
