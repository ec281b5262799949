/* Events of the cuda device, over streams of both kinds.
 *
 *   recorded in  waited for in  by
 *   device       device         cudaStreamWaitEvent, which waits for the latest record
 *   device       host           an item of the host stream that sleeps in cudaEventSynchronize
 *   host         host           sl_mark
 *   host         device         cuStreamWaitValue32 on a word that holds the mark's number
 *
 * Invariants: a record is reused only when no item of a host stream refers to it, so an item never
 * waits for a later record than it should. The word follows the mark's number in order, after
 * failures too. The comparison uses the sign of the difference, so the number may wrap around.
 *
 * Without cuStreamWaitValue32 the control thread waits for the mark before it goes on issuing. That
 * is always correct, because everything is issued in an order in which it could also run. The
 * control thread also waits for events that are opened while CUDA has refused to lock some host
 * memory: a copy of such memory may block the control thread inside CUDA until the stream gets
 * there, and may block CUDA calls of other threads, on whose work the stream must then not depend.
 *
 * CUDA does not see the order that a word creates, and its manual warns that it may put streams
 * into one hardware queue in an order that deadlocks. This cannot happen here while CUDA keeps the
 * order of issue, or has a queue for each stream: there are fewer streams than its default of eight
 * connections. --cuda-wait-value off avoids words.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"

enum {
    WORD_STRIDE = 64,
    WORDS = 64, /* a page; one word per cache line */
    SYNCHRONIZE_ATTEMPTS = 2
};

struct sl_cuda_words {
    sl_cuda_words *next;
    unsigned char *memory;
    unsigned char *on_device; /* the same memory, as the GPU addresses it */
    uint64_t taken;           /* one bit per word */
};

/* One record of an event in a stream of the device. */
typedef struct event_record {
    cudaEvent_t event;
    uint32_t waiters; /* items of host streams that refer to the record; under the device's lock */
    sl_device_stream *stream;
    uint64_t issued; /* the stream's `issued` at the record */
    sl_cuda_moment moment;
} event_record;

struct sl_device_event {
    sl_device *device;
    sl_mark *mark;    /* records in host streams */
    uint32_t numbers; /* number of the mark's records issued, modulo 2^32 */
    uint32_t *word;   /* where `mark` is published; NULL: the control thread waits */
    CUdeviceptr word_on_device;
    event_record records[SL_CUDA_RECORDS]; /* records in device streams, used as a ring */
    uint32_t next_record;
    event_record *latest; /* NULL: the latest record is the mark's, or there is none */
};

/* ---- words ---- */

static sl_status add_words(sl_device *device)
{
    void *memory = NULL, *on_device = NULL;
    sl_cuda_words *words = calloc(1, sizeof *words);
    if (!words)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the words of events");
    cudaError_t error = cudaHostAlloc(&memory, (size_t)WORDS * WORD_STRIDE,
                                      cudaHostAllocPortable | cudaHostAllocMapped);
    if (error == cudaSuccess) {
        error = cudaHostGetDevicePointer(&on_device, memory, 0);
        if (error != cudaSuccess)
            (void)cudaFreeHost(memory);
    }
    if (error != cudaSuccess) {
        free(words);
        return sl_cuda_fail(error, "locking a page for events", NULL);
    }
    words->memory = memory;
    words->on_device = on_device;
    words->next = device->words;
    device->words = words;
    return SL_OK;
}

static sl_status take_word(sl_device_event *event)
{
    sl_device *device = event->device;
    sl_cuda_words *words = device->words;
    while (words && words->taken == UINT64_MAX)
        words = words->next;
    if (!words) {
        SL_TRY(add_words(device));
        words = device->words;
    }
    assert(words);
    int at = __builtin_ctzll(~words->taken);
    words->taken |= UINT64_C(1) << at;
    event->word = (uint32_t *)(words->memory + (size_t)at * WORD_STRIDE);
    event->word_on_device = (CUdeviceptr)(uintptr_t)(words->on_device + (size_t)at * WORD_STRIDE);
    __atomic_store_n(event->word, 0, __ATOMIC_RELEASE);
    return SL_OK;
}

static void give_word(sl_device_event *event)
{
    unsigned char *word = (unsigned char *)event->word;
    for (sl_cuda_words *words = event->device->words; word && words; words = words->next) {
        if (word >= words->memory && word < words->memory + (size_t)WORDS * WORD_STRIDE)
            words->taken &= ~(UINT64_C(1) << (size_t)(word - words->memory) / WORD_STRIDE);
    }
    event->word = NULL;
}

void sl_cuda_events_close(sl_device *device)
{
    while (device->words) {
        sl_cuda_words *words = device->words;
        device->words = words->next;
        if (cudaFreeHost(words->memory) != cudaSuccess)
            sl_cuda_forget_error();
        free(words);
    }
}

/* ---- is there cuStreamWaitValue32? ---- */

/* Tests the call with a wait whose condition already holds. */
static bool try_wait_value(sl_device *device)
{
    sl_device_event event = {.device = device};
    if (take_word(&event) != SL_OK)
        return false;
    __atomic_store_n(event.word, 1, __ATOMIC_RELEASE);
    bool works = device->wait_value(device->stream, event.word_on_device, 1,
                                    CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS &&
                 cudaStreamSynchronize(device->stream) == cudaSuccess;
    give_word(&event);
    return works;
}

/* Finds the call in its version of CUDA 12.0; older toolkits find that of their own version. */
static cudaError_t find_wait_value(void **out_function, enum cudaDriverEntryPointQueryResult *found)
{
#if CUDART_VERSION >= 12050
    return cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", out_function, 12000,
                                            cudaEnableDefault, found);
#else
    return cudaGetDriverEntryPoint("cuStreamWaitValue32", out_function, cudaEnableDefault, found);
#endif
}

static void look_for_wait_value(sl_device *device)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *function = NULL;
    cudaError_t error = find_wait_value(&function, &found);
    if (error == cudaSuccess && found == cudaDriverEntryPointSuccess && function) {
        memcpy(&device->wait_value, &function, sizeof function);
        if (!try_wait_value(device))
            device->wait_value = NULL;
    }
    sl_cuda_forget_error();
}

sl_status sl_cuda_events_open(sl_device *device)
{
    if (!device->avoids_words)
        look_for_wait_value(device);
    if (sl_cuda_is_broken(device))
        SL_FAIL(SL_ERROR_SYSTEM, "the GPU fails at its first work");
    return SL_OK;
}

/* ---- opening and closing ---- */

static sl_status open_event_parts(sl_device_event *event)
{
    SL_TRY(sl_mark_open(&event->mark));
    if (event->device->wait_value && !event->device->has_unlocked) {
        SL_TRY(take_word(event));
        sl_mark_publish(event->mark, event->word);
    }
    for (int i = 0; i < SL_CUDA_RECORDS; i++)
        SL_CUDA_TRY(NULL, cudaEventCreateWithFlags(&event->records[i].event,
                                                   cudaEventDisableTiming | cudaEventBlockingSync));
    return SL_OK;
}

sl_status sl_cuda_event_open(sl_device *device, sl_device_event **out_event)
{
    sl_device_event *event = calloc(1, sizeof *event);
    if (!event)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an event");
    event->device = device;
    sl_status status = open_event_parts(event);
    if (status != SL_OK) {
        sl_cuda_event_close(event);
        return status;
    }
    *out_event = event;
    return SL_OK;
}

void sl_cuda_event_close(sl_device_event *event)
{
    if (!event)
        return;
    for (int i = 0; i < SL_CUDA_RECORDS; i++) {
        if (event->records[i].event && cudaEventDestroy(event->records[i].event) != cudaSuccess)
            sl_cuda_forget_error();
    }
    give_word(event);
    sl_mark_close(event->mark);
    free(event);
}

/* ---- recording ---- */

/* Blocks until no item of a host stream refers to the record, which `stream` needs. */
static sl_status wait_until_released(sl_device_stream *stream, const event_record *record)
{
    sl_device *device = stream->device;
    sl_status status = SL_OK;
    bool has_blocked = false;
    pthread_mutex_lock(&device->lock);
    while (status == SL_OK && record->waiters > 0) {
        has_blocked = true;
        status = sl_queue_sleep(&stream->observer, &device->is_released, &device->lock);
    }
    pthread_mutex_unlock(&device->lock);
    if (has_blocked)
        sl_cuda_times_report(device);
    return status;
}

static sl_status record_on_device(event_record *record, sl_device_stream *stream)
{
    SL_TRY(sl_cuda_wait_for_room(stream));
    SL_TRY(sl_cuda_times_before_record(stream->times));
    SL_CUDA_TRY(stream->name, cudaEventRecord(record->event, stream->stream));
    record->stream = stream;
    record->issued = stream->issued;
    record->moment = sl_cuda_times_moment(stream);
    return SL_OK;
}

sl_status sl_cuda_event_record(sl_device_event *event, sl_device_stream *stream)
{
    if (stream->queue) {
        SL_TRY(sl_queue_record(stream->queue, event->mark));
        event->numbers++;
        event->latest = NULL;
        return SL_OK;
    }
    event_record *record = &event->records[event->next_record];
    sl_status status = wait_until_released(stream, record);
    if (status == SL_OK)
        status = record_on_device(record, stream);
    if (status != SL_OK)
        return sl_cuda_keep_failure(stream, status);
    event->next_record = (event->next_record + 1) % SL_CUDA_RECORDS;
    event->latest = record;
    return SL_OK;
}

/* ---- waiting in a host stream ---- */

typedef struct record_args {
    sl_device *device;
    event_record *record;
    const char *stream_name;
} record_args;

static void release_record(sl_device *device, event_record *record)
{
    pthread_mutex_lock(&device->lock);
    record->waiters--;
    pthread_cond_signal(&device->is_released);
    pthread_mutex_unlock(&device->lock);
}

/* In the host stream's thread, which must first choose the device. If a call fails, waits by
 * another call or once more: later calls of the host stream are skipped then, but its marks are
 * reached, and streams that wait for them assume that the GPU's work is done. */
static cudaError_t synchronize_record(const record_args *args, bool *out_has_blocked)
{
    cudaError_t failure = cudaSetDevice(args->device->index);
    cudaError_t error = cudaEventQuery(args->record->event);
    for (int attempt = 0; error != cudaSuccess && attempt < SYNCHRONIZE_ATTEMPTS; attempt++) {
        sl_cuda_forget_error();
        if (error != cudaErrorNotReady && failure == cudaSuccess)
            failure = error;
        *out_has_blocked = true;
        error = cudaEventSynchronize(args->record->event);
    }
    return failure == cudaSuccess ? error : failure;
}

static sl_status wait_in_host_stream(void *arguments, bool *out_has_blocked)
{
    const record_args *args = arguments;
    cudaError_t error = synchronize_record(args, out_has_blocked);
    release_record(args->device, args->record);
    if (error != cudaSuccess)
        return sl_cuda_fail(error, "waiting for the GPU", args->stream_name);
    return SL_OK;
}

static sl_status wait_on_host(sl_device_event *event, sl_device_stream *stream, uint64_t tag)
{
    if (!event->latest)
        return sl_queue_wait(stream->queue, tag, event->mark);
    pthread_mutex_lock(&event->device->lock);
    event->latest->waiters++;
    pthread_mutex_unlock(&event->device->lock);
    record_args args = {event->device, event->latest, stream->name};
    return sl_queue_wait_by(stream->queue, tag, wait_in_host_stream, &args, sizeof args);
}

/* ---- waiting in a device stream ---- */

/* True if the last record has been reached: then nothing needs to wait. */
static bool is_reached(const sl_device_event *event)
{
    if (event->latest) {
        cudaError_t error = cudaEventQuery(event->latest->event);
        if (error != cudaSuccess)
            sl_cuda_forget_error();
        return error == cudaSuccess;
    }
    return event->word && sl_mark_is_reached(event->mark);
}

static sl_status wait_for_word(sl_device_event *event, sl_device_stream *stream)
{
    if (!event->word)
        return sl_mark_finish(event->mark);
    CUresult result = event->device->wait_value(stream->stream, event->word_on_device,
                                                event->numbers, CU_STREAM_WAIT_VALUE_GEQ);
    if (result == CUDA_SUCCESS)
        return SL_OK;
    /* both APIs number errors alike */
    return sl_cuda_fail((cudaError_t)result, "cuStreamWaitValue32", stream->name);
}

static sl_status wait_on_device(sl_device_event *event, sl_device_stream *stream, uint64_t tag)
{
    sl_cuda_moment after = {0};
    SL_TRY(sl_cuda_wait_for_room(stream));
    SL_TRY(sl_cuda_times_before_wait(stream->times));
    if (event->latest) {
        after = event->latest->moment;
        SL_CUDA_TRY(stream->name, cudaStreamWaitEvent(stream->stream, event->latest->event,
                                                      cudaEventWaitDefault));
    } else {
        SL_TRY(wait_for_word(event, stream));
    }
    return sl_cuda_times_after_wait(stream->times, tag, after);
}

sl_status sl_cuda_event_wait(sl_device_event *event, sl_device_stream *stream, uint64_t tag)
{
    if (!event->latest && event->numbers == 0)
        return SL_OK; /* never recorded */
    if (stream->queue)
        return wait_on_host(event, stream, tag);
    if ((event->latest && event->latest->stream == stream) || is_reached(event))
        return SL_OK;
    sl_status status = wait_on_device(event, stream, tag);
    return status == SL_OK ? SL_OK : sl_cuda_keep_failure(stream, status);
}

sl_status sl_cuda_event_finish(sl_device_event *event)
{
    event_record *record = event->latest;
    if (record) {
        sl_status status = sl_cuda_wait(record->stream, record->event);
        if (status != SL_OK)
            return sl_cuda_explain_failure(event->device, status);
        if (record->issued > record->stream->known)
            record->stream->known = record->issued;
    } else {
        SL_TRY(sl_mark_finish(event->mark));
    }
    sl_cuda_times_report(event->device);
    return SL_OK;
}
