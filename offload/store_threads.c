/* Requests by threads that block in pread and pwrite: for systems that do not allow io_uring.
 *
 * The transport duplicates the descriptors of the files that it is given. A thread that was
 * abandoned may still be about to read or write through one of the duplicates. So their numbers
 * stay in use until the last thread has left: on abandonment they are redirected to /dev/null, and
 * no file that is opened later can get one of these numbers. */
#define _GNU_SOURCE /* pwritev2 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "transport.h"

enum { THREADS_MAX = 8 };

/* FIFO; holds at most the transport's depth. */
typedef struct request_queue {
    sl_transport_request **requests; /* [depth] */
    uint32_t first, count;
} request_queue;

struct sl_transport {
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t work_came, work_done;
    request_queue pending, done;
    bool stop, is_cached;
    bool is_abandoned;   /* closed with requests in flight, whose memory must not be touched */
    uint32_t left_count; /* threads that have left */
    uint32_t out_count, wait_ms;
    int *files; /* duplicates */
    uint32_t file_count, depth, thread_count;
    pthread_t threads[THREADS_MAX];
    char note[32];
};

static void put_request(sl_transport *transport, request_queue *queue,
                        sl_transport_request *request)
{
    queue->requests[(queue->first + queue->count++) % transport->depth] = request;
}

static sl_transport_request *take_request(sl_transport *transport, request_queue *queue)
{
    sl_transport_request *request = queue->requests[queue->first];
    queue->first = (queue->first + 1) % transport->depth;
    queue->count--;
    return request;
}

/* Returns when the bytes are on the disk. Some kernels (gVisor's) do not know RWF_DSYNC. */
static ssize_t write_through(int file, const sl_transport_request *request)
{
    const struct iovec data = {request->data, request->bytes};
    const off_t offset = (off_t)request->offset;
    ssize_t moved = pwritev2(file, &data, 1, offset, RWF_DSYNC);
    if (moved >= 0 || errno != EOPNOTSUPP)
        return moved;
    moved = pwrite(file, request->data, request->bytes, offset);
    return moved < 0 || fdatasync(file) == 0 ? moved : -1;
}

static int32_t perform_request(int file, const sl_transport_request *request, bool is_cached)
{
    off_t offset = (off_t)request->offset;
    ssize_t moved = !request->is_write ? pread(file, request->data, request->bytes, offset)
                    : is_cached        ? write_through(file, request)
                                       : pwrite(file, request->data, request->bytes, offset);
    return moved < 0 ? -errno : (int32_t)moved;
}

static void close_files(sl_transport *transport)
{
    for (uint32_t i = 0; i < transport->file_count; i++)
        close(transport->files[i]);
    free(transport->files);
}

static void free_transport(sl_transport *transport)
{
    pthread_cond_destroy(&transport->work_done);
    pthread_cond_destroy(&transport->work_came);
    pthread_mutex_destroy(&transport->lock);
    close_files(transport);
    free(transport->pending.requests);
    free(transport);
}

/* The last thread that leaves an abandoned transport frees it. Called with the lock held; releases
 * it.
 */
static void leave_transport(sl_transport *transport)
{
    bool is_mine = ++transport->left_count == transport->thread_count && transport->is_abandoned;
    pthread_mutex_unlock(&transport->lock);
    if (is_mine)
        free_transport(transport);
}

static void *serve_requests(void *argument)
{
    sl_transport *transport = argument;
    pthread_mutex_lock(&transport->lock);
    for (;;) {
        while (transport->pending.count == 0 && !transport->stop)
            pthread_cond_wait(&transport->work_came, &transport->lock);
        if (transport->pending.count == 0 || transport->is_abandoned)
            break;
        sl_transport_request *request = take_request(transport, &transport->pending);
        sl_transport_request own = *request;
        pthread_mutex_unlock(&transport->lock);
        own.result = perform_request(transport->files[own.file], &own, transport->is_cached);
        pthread_mutex_lock(&transport->lock);
        if (transport->is_abandoned)
            break;
        request->result = own.result;
        put_request(transport, &transport->done, request);
        pthread_cond_signal(&transport->work_done);
    }
    leave_transport(transport);
    return NULL;
}

static sl_status queue_requests(sl_transport *transport, sl_transport_request *const *requests,
                                uint32_t count)
{
    pthread_mutex_lock(&transport->lock);
    transport->out_count += count;
    for (uint32_t i = 0; i < count; i++) {
        put_request(transport, &transport->pending, requests[i]);
        pthread_cond_signal(&transport->work_came);
    }
    pthread_mutex_unlock(&transport->lock);
    return SL_OK;
}

/* For `wait_ms` at most, by work_done's clock. */
static sl_status wait_for_requests(sl_transport *transport, sl_transport_request **out_requests,
                                   uint32_t most, uint32_t *out_count)
{
    uint32_t count = 0;
    const struct timespec end = sl_clock_time_in(transport->wait_ms * UINT64_C(1000000));
    int error = 0;
    pthread_mutex_lock(&transport->lock);
    while (transport->done.count == 0 && error != ETIMEDOUT)
        error = pthread_cond_timedwait(&transport->work_done, &transport->lock, &end);
    while (count < most && transport->done.count > 0)
        out_requests[count++] = take_request(transport, &transport->done);
    transport->out_count -= count;
    pthread_mutex_unlock(&transport->lock);
    *out_count = count;
    return SL_OK;
}

/* Redirects the descriptors to /dev/null, so that the files can be closed and the numbers stay in
 * use. The caller holds the lock. If /dev/null cannot be opened, the files stay open until the last
 * thread has left. */
static void redirect_files(sl_transport *transport)
{
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0)
        return;
    for (uint32_t i = 0; i < transport->file_count; i++)
        (void)dup3(nothing, transport->files[i], O_CLOEXEC);
    close(nothing);
}

/* Threads leave when the queue is empty. A thread that is stuck in the kernel is not waited for:
 * its memory is freed when it returns, if ever. */
static void close_threads(sl_transport *transport)
{
    pthread_t threads[THREADS_MAX];
    uint32_t thread_count = transport->thread_count;
    memcpy(threads, transport->threads, sizeof threads);
    pthread_mutex_lock(&transport->lock);
    bool is_abandoned = transport->out_count > 0;
    transport->stop = true;
    transport->is_abandoned = is_abandoned;
    if (is_abandoned)
        redirect_files(transport);
    pthread_cond_broadcast(&transport->work_came);
    pthread_mutex_unlock(&transport->lock);
    for (uint32_t i = 0; i < thread_count; i++)
        if (is_abandoned)
            pthread_detach(threads[i]);
        else
            pthread_join(threads[i], NULL);
    if (!is_abandoned)
        free_transport(transport);
}

static sl_status start_threads(sl_transport *transport, uint32_t count)
{
    int error = 0;
    while (transport->thread_count < count && error == 0) {
        char name[16];
        snprintf(name, sizeof name, "sl-disk-%u", transport->thread_count % 1000);
        error = sl_thread_start(&transport->threads[transport->thread_count], name, serve_requests,
                                transport);
        transport->thread_count += error == 0;
    }
    if (transport->thread_count == 0)
        SL_FAIL(SL_ERROR_SYSTEM, "cannot start a thread for the disk tier: %s", strerror(error));
    return SL_OK;
}

/* Uses the clock of sl_clock_time_in. */
static int open_timed(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error != 0)
        return error;
    error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (error == 0)
        error = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return error;
}

static sl_status open_locks(sl_transport *transport)
{
    if (pthread_mutex_init(&transport->lock, NULL) != 0)
        goto fail;
    if (pthread_cond_init(&transport->work_came, NULL) != 0)
        goto destroy_lock;
    if (open_timed(&transport->work_done) != 0)
        goto destroy_work_came;
    return SL_OK;

destroy_work_came:
    pthread_cond_destroy(&transport->work_came);
destroy_lock:
    pthread_mutex_destroy(&transport->lock);
fail:
    SL_FAIL(SL_ERROR_SYSTEM, "cannot create the locks of the disk tier's threads");
}

/* On failure free_transport closes the duplicates made so far. */
static sl_status open_files(sl_transport *transport, const int *files, uint32_t count)
{
    transport->files = calloc(count, sizeof *transport->files);
    if (transport->files == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u files of the disk tier", count);
    while (transport->file_count < count) {
        int fd = fcntl(files[transport->file_count], F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            SL_FAIL(SL_ERROR_SYSTEM, "cannot open the disk tier's files for its threads: %s",
                    strerror(errno));
        transport->files[transport->file_count++] = fd;
    }
    return SL_OK;
}

/* Opens the files and starts the threads. On failure no thread runs, and the transport with its
 * queues is freed. */
static sl_status open_parts(sl_transport *transport, const sl_transport_options *options)
{
    sl_status status = open_files(transport, options->files, options->file_count);
    if (status == SL_OK)
        status =
            start_threads(transport, options->depth < THREADS_MAX ? options->depth : THREADS_MAX);
    if (status != SL_OK)
        free_transport(transport);
    return status;
}

static sl_status open_threads(const sl_transport_options *options, sl_transport **out_transport)
{
    sl_transport *transport = calloc(1, sizeof *transport);
    sl_transport_request **queues = calloc(2 * (size_t)options->depth, sizeof *queues);
    if (transport == NULL || queues == NULL) {
        free(queues);
        free(transport);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the disk tier's threads");
    }
    sl_status status = open_locks(transport);
    if (status != SL_OK) {
        free(queues);
        free(transport);
        return status;
    }
    transport->pending.requests = queues;
    transport->done.requests = queues + options->depth;
    transport->depth = options->depth;
    transport->wait_ms = options->wait_ms;
    transport->is_cached = options->is_cached;
    SL_TRY(open_parts(transport, options));
    snprintf(transport->note, sizeof transport->note, "%u a lane", transport->thread_count);
    *out_transport = transport;
    return SL_OK;
}

static const char *describe_threads(const sl_transport *transport)
{
    return transport->note;
}

static uint64_t count_locked_bytes(const sl_transport *transport)
{
    (void)transport;
    return 0;
}

const sl_transport_ops sl_transport_threads = {.name = "threads",
                                               .open = open_threads,
                                               .submit = queue_requests,
                                               .wait = wait_for_requests,
                                               .close = close_threads,
                                               .note = describe_threads,
                                               .locked_bytes = count_locked_bytes};
