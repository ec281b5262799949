/* The stand-in's streams and events. A stream is a thread and a list of items. A record of an event
 * is a point of its own, so that a wait keeps to the record that was the last when it was issued.
 *
 * Handles are never freed, only marked dead and used again: a call with a dead one is a fault, not
 * a crash. */
#define _GNU_SOURCE
#include <cuda.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime.h"

enum { ALIVE = 0x5317EA31, POLL_NS = 30000, CODES_MAX = 4096 };

/* One record of an event. */
typedef struct point {
    uint32_t users; /* the event, and items */
    bool is_reached;
    order_clock *clock; /* what came before it */
    uint64_t time_ns;
} point;

typedef enum item_kind { ITEM_WORK, ITEM_RECORD, ITEM_WAIT, ITEM_WAIT_VALUE, ITEM_STOP } item_kind;

typedef struct item {
    struct item *next;
    item_kind kind;
    standin_work work;
    order_work *order;
    point *point;                 /* RECORD, WAIT */
    const _Atomic uint32_t *word; /* WAIT_VALUE */
    uint32_t value;
} item;

struct CUstream_st {
    uint32_t life;
    struct CUstream_st *next_dead, *next_alive;
    pthread_t thread;
    order_agent *agent;
    item *first, **last;
    uint64_t issued, done;
    uint64_t seed;
};

struct CUevent_st {
    uint32_t life;
    struct CUevent_st *next_dead;
    unsigned int flags;
    point *latest; /* NULL: never recorded */
};

static struct CUstream_st *dead_streams, *alive_streams, *default_streams[STANDIN_DEVICES_MAX];
static uint64_t codes[CODES_MAX]; /* that are loaded */
static uint32_t code_count;
static struct CUevent_st *dead_events;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        abort();
    return memory;
}

/* ---- points ---- */

static void drop_point(point *which)
{
    if (which && --which->users == 0) {
        order_clock_drop(which->clock);
        free(which);
    }
}

static void reach_point(point *which, order_agent *agent)
{
    which->is_reached = true;
    which->clock = order_clock_take(agent);
    which->time_ns = now_ns();
}

/* ---- a stream's thread ---- */

static uint32_t draw(struct CUstream_st *stream)
{
    stream->seed ^= stream->seed << 13;
    stream->seed ^= stream->seed >> 7;
    stream->seed ^= stream->seed << 17;
    return (uint32_t)(stream->seed >> 20);
}

/* With the lock held; lets go of it. An item in four comes late. */
static void delay(struct CUstream_st *stream)
{
    uint32_t longest_us = standin.machine.delay_us;
    if (longest_us == 0 || draw(stream) % 4 != 0 || standin.broken != cudaSuccess)
        return;
    struct timespec time = {0, (long)(draw(stream) % longest_us) * 1000};
    pthread_mutex_unlock(&standin.lock);
    nanosleep(&time, NULL);
    pthread_mutex_lock(&standin.lock);
}

static void wait_for_point(const struct CUstream_st *stream, const point *which)
{
    while (!which->is_reached && standin.broken == cudaSuccess)
        pthread_cond_wait(&standin.changed, &standin.lock);
    order_clock_join(stream->agent, which->clock, STANDIN_EDGE_EVENT);
}

static void wait_for_value(const struct CUstream_st *stream, const item *each)
{
    const struct timespec time = {0, POLL_NS};
    while (standin.broken == cudaSuccess &&
           (int32_t)(atomic_load_explicit(each->word, memory_order_acquire) - each->value) < 0) {
        pthread_mutex_unlock(&standin.lock);
        nanosleep(&time, NULL);
        pthread_mutex_lock(&standin.lock);
    }
    if (standin.broken == cudaSuccess)
        order_word_join(stream->agent, (const void *)each->word, each->value);
}

static void run_work(const standin_work *work)
{
    if (standin.broken == cudaSuccess) {
        standin.running++;
        pthread_mutex_unlock(&standin.lock);
        work->function(work->argument);
        pthread_mutex_lock(&standin.lock);
        standin.running--;
        pthread_cond_broadcast(&standin.changed);
    }
    if (work->is_owned)
        free(work->argument);
}

/* With the lock held. */
static void run_item(struct CUstream_st *stream, item *each)
{
    delay(stream);
    order_work_begin(stream->agent, each->order, standin.broken == cudaSuccess);
    if (each->kind == ITEM_WORK)
        run_work(&each->work);
    else if (each->kind == ITEM_WAIT_VALUE)
        wait_for_value(stream, each);
    else if (each->kind == ITEM_RECORD)
        reach_point(each->point, stream->agent);
    else if (each->kind == ITEM_WAIT)
        wait_for_point(stream, each->point);
    order_work_end(each->order);
    drop_point(each->point);
    stream->done++;
    pthread_cond_broadcast(&standin.changed);
}

static void *run_stream(void *argument)
{
    struct CUstream_st *stream = argument;
    pthread_mutex_lock(&standin.lock);
    for (;;) {
        while (!stream->first)
            pthread_cond_wait(&standin.changed, &standin.lock);
        item *each = stream->first;
        stream->first = each->next;
        if (!stream->first)
            stream->last = &stream->first;
        item_kind kind = each->kind;
        run_item(stream, each);
        free(each);
        if (kind == ITEM_STOP)
            break;
    }
    pthread_mutex_unlock(&standin.lock);
    return NULL;
}

/* ---- streams; the lock is held where nothing is said ---- */

static order_agent *open_agent(void)
{
    char name[32];
    snprintf(name, sizeof name, "stream %llu", (unsigned long long)standin.stream_count);
    return order_agent_open(name);
}

static struct CUstream_st *start_stream(void)
{
    struct CUstream_st *stream = dead_streams;
    if (stream)
        dead_streams = stream->next_dead;
    else
        stream = allocate(sizeof *stream);
    memset(stream, 0, sizeof *stream);
    stream->life = ALIVE;
    stream->last = &stream->first;
    stream->seed = (standin.machine.seed + ++standin.stream_count) * 0x9E3779B97F4A7C15u | 1;
    stream->agent = open_agent();
    stream->next_alive = alive_streams;
    alive_streams = stream;
    if (pthread_create(&stream->thread, NULL, run_stream, stream) != 0)
        abort();
    return stream;
}

static void forget_stream(const struct CUstream_st *stream)
{
    struct CUstream_st **link = &alive_streams;
    while (*link && *link != stream)
        link = &(*link)->next_alive;
    if (*link)
        *link = stream->next_alive;
}

/* NULL: a fault, which is counted. */
static struct CUstream_st *resolve_stream(struct CUstream_st *stream)
{
    if (!stream) {
        struct CUstream_st **own = &default_streams[standin_device()];
        if (!*own)
            *own = start_stream();
        return *own;
    }
    if (stream->life == ALIVE)
        return stream;
    standin_fault_locked("a call with a stream that is closed");
    return NULL;
}

static void append_item(struct CUstream_st *stream, const item *what)
{
    item *own = allocate(sizeof *own);
    *own = *what;
    own->next = NULL;
    own->order = what->kind == ITEM_WORK
                     ? order_work_issue(what->work.name, what->work.ranges, what->work.range_count)
                     : order_work_issue_point();
    if (own->point)
        own->point->users++;
    *stream->last = own;
    stream->last = &own->next;
    stream->issued++;
    if (stream->issued - stream->done > standin.deepest_stream)
        standin.deepest_stream = stream->issued - stream->done;
    pthread_cond_broadcast(&standin.changed);
}

/* What is appended then tells the calls that were kept out. */
static void wait_for_room(const struct CUstream_st *stream)
{
    const uint32_t depth = standin.machine.stream_depth;
    standin.is_full = true;
    while (depth > 0 && stream->issued - stream->done >= depth && standin.broken == cudaSuccess)
        pthread_cond_wait(&standin.changed, &standin.lock);
    standin.is_full = false;
}

static cudaError_t append(cudaStream_t stream, const item *what)
{
    struct CUstream_st *resolved = resolve_stream(stream);
    if (!resolved)
        return cudaErrorInvalidResourceHandle;
    wait_for_room(resolved);
    append_item(resolved, what);
    return cudaSuccess;
}

cudaError_t standin_append(cudaStream_t stream, const standin_work *work)
{
    const item what = {.kind = ITEM_WORK, .work = *work};
    return append(stream, &what);
}

/* All of it is done: that comes before what the calling thread does next. */
static void learn_stream(struct CUstream_st *stream)
{
    order_clock *clock = order_clock_take(stream->agent);
    order_clock_join(order_agent_of_thread(), clock, STANDIN_EDGE_STREAM_THREAD);
    order_clock_drop(clock);
}

/* Whether the calling thread asks for the same thing again and again and makes no other calls than
 * questions meanwhile: that is a wait. */
static bool is_waiting(const void *asked)
{
    enum { PATIENCE = 4, QUESTIONS = 16 };
    static _Thread_local struct {
        const void *asked;
        uint32_t count;
    } questions[QUESTIONS];
    static _Thread_local uint32_t used;
    uint32_t at = 0;
    if (standin_has_called())
        used = 0;
    while (at < used && questions[at].asked != asked)
        at++;
    if (at == QUESTIONS)
        used = at = 0;
    if (at == used) {
        questions[at].asked = asked;
        questions[at].count = 0;
        used++;
    }
    return ++questions[at].count >= PATIENCE;
}

/* Whether an answer of yes would be news that the caller does not get. */
static bool is_kept_back(const void *asked, const order_clock *clock)
{
    return !is_waiting(asked) && standin.machine.late_answers &&
           !order_clock_is_known(order_agent_of_thread(), clock);
}

cudaError_t standin_drain(cudaStream_t stream)
{
    struct CUstream_st *resolved = resolve_stream(stream);
    if (!resolved)
        return cudaErrorInvalidResourceHandle;
    uint64_t issued = resolved->issued;
    while (resolved->done < issued && standin.broken == cudaSuccess)
        pthread_cond_wait(&standin.changed, &standin.lock);
    learn_stream(resolved);
    return standin.broken;
}

static bool is_idle(const struct CUstream_st *stream)
{
    return stream->done == stream->issued;
}

static bool all_are_idle(void)
{
    for (const struct CUstream_st *each = alive_streams; each; each = each->next_alive)
        if (!is_idle(each))
            return false;
    return true;
}

/* NULL: for all of them. */
static void wait_alone(const struct CUstream_st *stream, const char *why)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += standin.machine.stuck_ms / 1000;
    end.tv_nsec += standin.machine.stuck_ms % 1000 * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    standin.is_full = true;
    while (!(stream ? is_idle(stream) : all_are_idle()) && standin.broken == cudaSuccess) {
        if (pthread_cond_timedwait(&standin.changed, &standin.lock, &end) == ETIMEDOUT) {
            standin_fault_locked("stuck: %s waits for work that waits for other calls", why);
            break;
        }
    }
    standin.is_full = false;
    pthread_cond_broadcast(&standin.changed);
}

/* Who waits for work and is refused cannot know when it is over: so memory that is given back waits
 * for it, as CUDA's does anyway. */
void standin_settle(void)
{
    while (standin.broken != cudaSuccess && standin.running > 0)
        pthread_cond_wait(&standin.changed, &standin.lock);
    if (standin.is_refusing)
        wait_alone(NULL, "memory that is given back");
}

cudaError_t standin_drain_alone(cudaStream_t stream, const char *why)
{
    struct CUstream_st *resolved = resolve_stream(stream);
    if (!resolved)
        return cudaErrorInvalidResourceHandle;
    wait_alone(resolved, why);
    return standin.broken;
}

/* ---- code of libraries ---- */

void standin_forget_code(void)
{
    code_count = 0;
}

static bool is_code_known(uint64_t code)
{
    for (uint32_t i = 0; i < code_count; i++)
        if (codes[i] == code)
            return true;
    return false;
}

int standin_load_code(uint64_t code)
{
    cudaError_t error = standin_enter("loading code");
    if (error != cudaSuccess || is_code_known(code))
        return standin_leave(error);
    standin.late_loads += !all_are_idle();
    wait_alone(NULL, "a library's first launch");
    error = standin.broken;
    if (error == cudaSuccess && !standin_take_bytes(standin_device(), standin.machine.code_bytes))
        error = cudaErrorMemoryAllocation;
    if (error == cudaSuccess && code_count < CODES_MAX)
        codes[code_count++] = code;
    return standin_leave(error);
}

static int queue_work(cudaStream_t stream, const standin_work *work)
{
    cudaError_t error = standin_enter(work->name);
    if (error == cudaSuccess)
        error = standin_append(stream, work);
    if (error == cudaSuccess && !stream)
        error = standin_drain(NULL);
    return standin_leave(error);
}

int standin_queue(void *stream, const char *name, void (*function)(void *argument), void *argument)
{
    const standin_work work = {.name = name, .function = function, .argument = argument};
    return queue_work(stream, &work);
}

int standin_queue_owned(void *stream, const char *name, void (*function)(void *argument),
                        void *argument)
{
    const standin_work work = {
        .name = name, .function = function, .argument = argument, .is_owned = true};
    return queue_work(stream, &work);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
    cudaError_t error = standin_enter("cudaStreamCreateWithFlags");
    if (error == cudaSuccess && flags > cudaStreamNonBlocking)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        (void)standin_device();
        *pStream = start_stream();
        standin.live.streams++;
    }
    return standin_leave(error);
}

/* What is queued still runs, as on a GPU; here the caller waits for it. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t error = standin_enter("cudaStreamDestroy");
    if (!stream || !resolve_stream(stream))
        return standin_leave(cudaErrorInvalidResourceHandle);
    const item stop = {.kind = ITEM_STOP};
    append_item(stream, &stop);
    pthread_mutex_unlock(&standin.lock);
    pthread_join(stream->thread, NULL);
    pthread_mutex_lock(&standin.lock);
    forget_stream(stream);
    order_agent_close(stream->agent);
    stream->life = 0;
    stream->next_dead = dead_streams;
    dead_streams = stream;
    standin.live.streams--;
    return standin_leave(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaError_t error = standin_enter("cudaStreamSynchronize");
    return standin_leave(error == cudaSuccess ? standin_drain(stream) : error);
}

static cudaError_t query_stream(struct CUstream_st *stream)
{
    order_clock *clock = order_clock_take(stream->agent);
    const bool is_done =
        stream->issued == 0 || (stream->done == stream->issued && !is_kept_back(stream, clock));
    order_clock_drop(clock);
    if (!is_done)
        return cudaErrorNotReady;
    learn_stream(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    cudaError_t error = standin_enter("cudaStreamQuery");
    struct CUstream_st *resolved = error == cudaSuccess ? resolve_stream(stream) : NULL;
    if (error == cudaSuccess)
        error = resolved ? query_stream(resolved) : cudaErrorInvalidResourceHandle;
    return standin_leave(error);
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = standin_enter("cudaDeviceSynchronize");
    return standin_leave(error == cudaSuccess ? standin_drain(NULL) : error);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
    cudaError_t error = standin_enter("cudaLaunchHostFunc");
    const standin_work work = {.name = "a host function", .function = fn, .argument = userData};
    return standin_leave(error == cudaSuccess ? standin_append(stream, &work) : error);
}

/* ---- waiting for a word ---- */

/* Driver calls tell of an error by their result alone: they leave no last error behind. */
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                             unsigned int flags)
{
    cudaError_t error = standin_enter("cuStreamWaitValue32");
    item what = {
        .kind = ITEM_WAIT_VALUE, .word = (const _Atomic uint32_t *)(uintptr_t)addr, .value = value};
    if (error == cudaSuccess && (flags != CU_STREAM_WAIT_VALUE_GEQ || addr % 4 != 0))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = append(stream, &what);
    pthread_mutex_unlock(&standin.lock);
    return (CUresult)error;
}

/* ---- calls of the driver that are asked for by name ---- */

#pragma weak cuFuncLoad /* is there where PTX runs (tests/ptx) */

/* A function's address as the pointer to an object that CUDA hands it out as; NULL: unknown. */
static void *find_entry_point(const char *symbol)
{
    CUresult (*wait_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned int) = cuStreamWaitValue32;
    CUresult (*load)(CUfunction) = cuFuncLoad;
    CUresult (*get_uuid)(CUuuid *, CUdevice) = cuDeviceGetUuid;
    void *address = NULL;
    _Static_assert(sizeof address == sizeof wait_value, "one kind of pointer");
    if (standin.machine.has_wait_value && strcmp(symbol, "cuStreamWaitValue32") == 0)
        memcpy(&address, &wait_value, sizeof address);
    else if (strcmp(symbol, "cuFuncLoad") == 0)
        memcpy(&address, &load, sizeof address);
    else if (strcmp(symbol, "cuDeviceGetUuid") == 0)
        memcpy(&address, &get_uuid, sizeof address);
    return address;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **funcPtr,
                                             unsigned int cudaVersion, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *driverStatus)
{
    (void)cudaVersion;
    (void)flags;
    cudaError_t error = standin_enter("cudaGetDriverEntryPointByVersion");
    if (error == cudaSuccess) {
        *funcPtr = find_entry_point(symbol);
        if (driverStatus)
            *driverStatus =
                *funcPtr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    }
    return standin_leave(error);
}

void standin_name_stream(void *stream, const char *name)
{
    pthread_mutex_lock(&standin.lock);
    order_agent_rename(((struct CUstream_st *)stream)->agent, name);
    pthread_mutex_unlock(&standin.lock);
}

/* ---- events ---- */

static cudaError_t check_event(const struct CUevent_st *event)
{
    if (event && event->life == ALIVE)
        return cudaSuccess;
    standin_fault_locked("a call with an event that is closed");
    return cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    cudaError_t error = standin_enter("cudaEventCreateWithFlags");
    if (error != cudaSuccess)
        return standin_leave(error);
    (void)standin_device();
    struct CUevent_st *own = dead_events;
    if (own)
        dead_events = own->next_dead;
    else
        own = allocate(sizeof *own);
    memset(own, 0, sizeof *own);
    own->life = ALIVE;
    own->flags = flags;
    standin.live.events++;
    *event = own;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t error = standin_enter("cudaEventDestroy");
    cudaError_t own = check_event(event);
    if (own != cudaSuccess)
        return standin_leave(own);
    drop_point(event->latest);
    event->latest = NULL;
    event->life = 0;
    event->next_dead = dead_events;
    dead_events = event;
    standin.live.events--;
    return standin_leave(error);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cudaError_t error = standin_enter("cudaEventRecord");
    if (error == cudaSuccess)
        error = check_event(event);
    if (error != cudaSuccess)
        return standin_leave(error);
    point *fresh = allocate(sizeof *fresh);
    const item what = {.kind = ITEM_RECORD, .point = fresh};
    fresh->users = 1;
    error = append(stream, &what);
    drop_point(error == cudaSuccess ? event->latest : fresh);
    if (error == cudaSuccess)
        event->latest = fresh;
    return standin_leave(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    (void)flags;
    cudaError_t error = standin_enter("cudaStreamWaitEvent");
    if (error == cudaSuccess)
        error = check_event(event);
    if (error == cudaSuccess && event->latest) {
        const item what = {.kind = ITEM_WAIT, .point = event->latest};
        error = append(stream, &what);
    }
    return standin_leave(error);
}

static void learn_point(const point *which)
{
    order_clock_join(order_agent_of_thread(), which->clock, STANDIN_EDGE_EVENT_THREAD);
}

static cudaError_t query_point(const point *which)
{
    if (!which)
        return cudaSuccess;
    if (!which->is_reached || is_kept_back(which, which->clock))
        return cudaErrorNotReady;
    learn_point(which);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t error = standin_enter("cudaEventQuery");
    if (error == cudaSuccess)
        error = check_event(event);
    return standin_leave(error == cudaSuccess ? query_point(event->latest) : error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t error = standin_enter("cudaEventSynchronize");
    if (error == cudaSuccess)
        error = check_event(event);
    if (error != cudaSuccess || !event->latest)
        return standin_leave(error);
    point *which = event->latest;
    which->users++;
    while (!which->is_reached && standin.broken == cudaSuccess)
        pthread_cond_wait(&standin.changed, &standin.lock);
    learn_point(which);
    drop_point(which);
    return standin_leave(standin.broken);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    cudaError_t error = standin_enter("cudaEventElapsedTime");
    if (error == cudaSuccess)
        error = check_event(start);
    if (error == cudaSuccess)
        error = check_event(end);
    if (error != cudaSuccess)
        return standin_leave(error);
    if ((start->flags | end->flags) & cudaEventDisableTiming || !start->latest || !end->latest)
        return standin_leave(cudaErrorInvalidResourceHandle);
    if (!start->latest->is_reached || !end->latest->is_reached)
        return standin_leave(cudaErrorNotReady);
    *ms = (float)((double)((int64_t)end->latest->time_ns - (int64_t)start->latest->time_ns) / 1e6);
    return standin_leave(cudaSuccess);
}
