/* NCCL between the host's agreement before a call and the watch behind it; see nccl.h. A sum is two
 * exchanges: each rank gets its piece of every other rank's elements and adds up, then every rank
 * gets the sums. Both are groups of sends and receives, which NCCL runs as one kernel.
 *
 * Of an sl_nccl everything belongs to the thread that calls, but for what stands under its lock:
 * the communicator, its failure, and what is watched. The lock is held around whatever is asked of
 * NCCL, so that an abort by the watch never meets another call.
 */
#include "nccl.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/queue.h"
#include "base/thread.h"
#include "comm_internal.h"
#include "device/cuda.h"

enum {
    ALIGN_BYTES = 256,
    CONFIG_MAGIC = (int)0xcafebeef,
    CONFIG_VERSION = 21400, /* 2.14 */
    PAUSE_NS_FIRST = 20000,
    PAUSE_NS_MOST = 1000000,
    TICK_NS = 20000000, /* of the watch */
    ABORT_S = 5
};

/* What goes to a rank and comes from it, in device memory. */
typedef struct nccl_part {
    const void *send;
    void *receive;
    uint64_t send_bytes, receive_bytes;
} nccl_part;

struct sl_nccl {
    sl_nccl_options options;
    const sl_nccl_calls *calls;
    sl_nccl_queue queue;
    uint32_t rank, size;
    pthread_mutex_t lock;     /* of all that follows, up to parts */
    pthread_cond_t is_ending; /* the watch's */
    pthread_t watch;
    bool has_watch, ends;
    void *comm; /* NULL: not open, or aborted */
    double timeout_s;
    uint32_t watched; /* the mark that is looked at; the other is behind the last exchange */
    bool is_set[SL_NCCL_MARKS]; /* marks that the device has not passed, as far as it is known */
    uint64_t waited_ns;         /* for the watched one, in the watch's own ticks */
    sl_first_failure failure;   /* of anything */
    nccl_part parts[];          /* [size] of the exchange that is queued next; the caller's alone */
};

/* ---- an abort: by a thread of its own, for it may hang ---- */

typedef struct abort_job {
    const sl_nccl_calls *calls;
    void *comm;
    sem_t is_over;
    _Atomic uint32_t user_count; /* the thread, and whoever waits for it */
} abort_job;

static void free_job(abort_job *job)
{
    sem_destroy(&job->is_over);
    free(job);
}

static void leave_job(abort_job *job)
{
    if (atomic_fetch_sub(&job->user_count, 1) == 1)
        free_job(job);
}

static void *run_abort(void *argument)
{
    abort_job *job = argument;
    (void)job->calls->abort(job->comm);
    sem_post(&job->is_over);
    leave_job(job);
    return NULL;
}

/* With the lock. Waits for the abort a few seconds; one that hangs is left to itself, with all that
 * it holds. Where there is no memory, the communicator is as it was; where there is no thread, it
 * is left as it is for good. */
static void abort_comm(sl_nccl *it)
{
    pthread_t thread;
    struct timespec end;
    abort_job *job = it->comm ? malloc(sizeof *job) : NULL;
    if (!job)
        return;
    *job = (abort_job){.calls = it->calls, .comm = it->comm, .user_count = 2};
    it->comm = NULL;
    sem_init(&job->is_over, 0, 0);
    if (sl_thread_start(&thread, "sl-abort", run_abort, job) != 0) {
        free_job(job);
        return;
    }
    pthread_detach(thread);
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += ABORT_S;
    while (sem_timedwait(&job->is_over, &end) != 0 && errno == EINTR)
        ;
    leave_job(job);
}

/* ---- failures ---- */

/* With the lock. Ends the world with the message that stands, unless that is what it ended with,
 * and keeps it. */
static sl_status fail_locked(sl_nccl *it, sl_status status)
{
    sl_comm_abort(it->options.host, sl_status_message());
    sl_first_failure_keep(&it->failure, status);
    abort_comm(it);
    return sl_first_failure_return(&it->failure);
}

static sl_status fail(sl_nccl *it, sl_status status)
{
    pthread_mutex_lock(&it->lock);
    status = fail_locked(it, status);
    pthread_mutex_unlock(&it->lock);
    return status;
}

static sl_status check(const sl_nccl *it, int result, const char *call)
{
    if (result == SL_NCCL_SUCCESS || result == SL_NCCL_IN_PROGRESS)
        return SL_OK;
    SL_FAIL(SL_ERROR_SYSTEM, "NCCL: %s: %s (NCCL_DEBUG=WARN says more)", call,
            it->calls->get_error_string(result));
}

/* ---- patience ---- */

/* Counted in time that this process ran: a suspended job is not a dead one. */
static sl_status check_patience(const sl_nccl *it, uint64_t waited_ns, const char *what)
{
    SL_TRY(sl_comm_poll(it->options.host));
    if ((double)waited_ns < 1e9 * it->timeout_s)
        return SL_OK;
    SL_FAIL(SL_ERROR_RANK, "%s by NCCL did not end within %.0f s (--rank-timeout)", what,
            it->timeout_s);
}

/* With the lock, as the two below. */
static sl_status look(const sl_nccl *it, bool *out_is_in_progress)
{
    int error = SL_NCCL_SUCCESS;
    SL_TRY(check(it, it->calls->get_async_error(it->comm, &error), "ncclCommGetAsyncError"));
    *out_is_in_progress = error == SL_NCCL_IN_PROGRESS;
    return check(it, error, "an exchange failed");
}

/* Clears the watched mark once the device has passed it, and goes over to the other. */
static sl_status look_at_marks(sl_nccl *it)
{
    while (it->is_set[it->watched]) {
        bool is_passed = false;
        SL_TRY(it->options.device.is_passed(it->options.device.user, it->watched, &is_passed));
        if (!is_passed)
            return SL_OK;
        it->is_set[it->watched] = false;
        it->watched = !it->watched;
        it->waited_ns = 0;
    }
    it->waited_ns = 0;
    return SL_OK;
}

/* Until NCCL takes another call and, if it `is_for_device`, the device has run what is queued. */
static sl_status settle(sl_nccl *it, bool is_for_device, const char *what)
{
    uint64_t waited_ns = 0, pause_ns = PAUSE_NS_FIRST;
    bool is_in_progress;
    for (;;) {
        SL_TRY(look(it, &is_in_progress));
        if (is_for_device)
            SL_TRY(look_at_marks(it));
        if (!is_in_progress && !(is_for_device && it->is_set[it->watched]))
            return SL_OK;
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
        waited_ns += pause_ns;
        pause_ns = sl_bits_min(2 * pause_ns, PAUSE_NS_MOST);
        SL_TRY(check_patience(it, waited_ns, what));
    }
}

/* Marks the end of what is queued. While the device is before the watched mark that one stays, for
 * the watch wants to see that the device comes forward, and the other moves: so there is always a
 * mark behind the last exchange, though the thread that queues may not come here again. The watch
 * could not set one, for the stream may be closed before it ends. */
static sl_status mark(sl_nccl *it)
{
    SL_TRY(look_at_marks(it));
    const uint32_t which = it->is_set[it->watched] ? !it->watched : it->watched;
    it->is_set[which] = true;
    return it->options.device.mark(it->options.device.user, which, it->queue.stream);
}

/* ---- the watch ---- */

static sl_status look_around(sl_nccl *it)
{
    bool is_in_progress;
    SL_TRY(look(it, &is_in_progress));
    SL_TRY(look_at_marks(it));
    if (it->is_set[it->watched])
        it->waited_ns += TICK_NS;
    return check_patience(it, it->waited_ns, "what the GPU exchanges");
}

static void *watch(void *argument)
{
    sl_nccl *it = argument;
    pthread_mutex_lock(&it->lock);
    while (!it->ends) {
        sl_status status = it->comm ? look_around(it) : SL_OK;
        if (status != SL_OK)
            (void)fail_locked(it, status);
        const struct timespec end = sl_clock_time_in(TICK_NS);
        (void)pthread_cond_timedwait(&it->is_ending, &it->lock, &end);
    }
    pthread_mutex_unlock(&it->lock);
    return NULL;
}

static sl_status start_watch(sl_nccl *it)
{
    if (sl_thread_start(&it->watch, "sl-nccl", watch, it) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no thread to watch NCCL");
    it->has_watch = true;
    return SL_OK;
}

static void end_watch(sl_nccl *it)
{
    if (!it->has_watch)
        return;
    pthread_mutex_lock(&it->lock);
    it->ends = true;
    pthread_cond_signal(&it->is_ending);
    pthread_mutex_unlock(&it->lock);
    pthread_join(it->watch, NULL);
}

sl_status sl_nccl_poll(sl_nccl *it)
{
    bool is_in_progress;
    pthread_mutex_lock(&it->lock);
    sl_status status = sl_first_failure_return(&it->failure);
    if (status == SL_OK && it->comm)
        status = look(it, &is_in_progress);
    if (status == SL_OK)
        status = sl_comm_poll(it->options.host);
    if (status != SL_OK && it->comm)
        status = fail_locked(it, status);
    pthread_mutex_unlock(&it->lock);
    return status;
}

void sl_nccl_set_timeout(sl_nccl *it, double timeout_s)
{
    pthread_mutex_lock(&it->lock);
    it->timeout_s = timeout_s;
    pthread_mutex_unlock(&it->lock);
}

void sl_nccl_use(sl_nccl *it, const sl_nccl_queue *queue)
{
    it->queue = *queue;
}

/* ---- what the ranks call ---- */

/* All ranks are here, and about to do the same. */
static sl_status agree(sl_nccl *it, const char *op, sl_comm_types types, uint64_t count,
                       uint64_t detail)
{
    SL_TRY(sl_nccl_poll(it));
    return sl_comm_meet(it->options.host, op, types, count, detail);
}

/* ---- exchanges ---- */

static sl_status queue_peer(const sl_nccl *it, uint32_t peer)
{
    const nccl_part *part = &it->parts[peer];
    void *stream = it->queue.stream;
    if (part->send_bytes > 0)
        SL_TRY(check(it,
                     it->calls->send(part->send, part->send_bytes, SL_NCCL_INT8, (int)peer,
                                     it->comm, stream),
                     "ncclSend"));
    if (part->send_bytes > 0)
        sl_comm_count_sent(it->options.account, part->send_bytes);
    if (part->receive_bytes == 0)
        return SL_OK;
    return check(it,
                 it->calls->receive(part->receive, part->receive_bytes, SL_NCCL_INT8, (int)peer,
                                    it->comm, stream),
                 "ncclRecv");
}

/* A rank is not its own peer. */
static sl_status queue_peers(const sl_nccl *it)
{
    for (uint32_t i = 1; i < it->size; i++)
        SL_TRY(queue_peer(it, (it->rank + i) % it->size));
    return SL_OK;
}

/* Also behind a call that failed, with `status`: in an open group nothing, an abort either, would
 * be done at once. */
static sl_status end_group(const sl_nccl *it, sl_status status)
{
    const int result = it->calls->group_end();
    return status == SL_OK ? check(it, result, "ncclGroupEnd") : status;
}

static sl_status queue_group(sl_nccl *it, const char *op)
{
    SL_TRY(sl_first_failure_return(&it->failure));
    SL_TRY(check(it, it->calls->group_start(), "ncclGroupStart"));
    SL_TRY(end_group(it, queue_peers(it)));
    sl_cuda_note_launches(1);
    SL_TRY(settle(it, false, op));
    return mark(it);
}

/* What stands in `parts`. */
static sl_status exchange(sl_nccl *it, const char *op)
{
    pthread_mutex_lock(&it->lock);
    sl_status status = queue_group(it, op);
    pthread_mutex_unlock(&it->lock);
    return status;
}

/* ---- sums ---- */

/* Of a sum: piece i of every rank's `from` goes to rank i; the sums lie in `to`. Scratch holds a
 * piece of each rank as it came, and, where elements are rounded on their way, one for each rank as
 * it goes. */
typedef struct pieces {
    sl_nccl *nccl;
    sl_comm_types types;
    const char *from;
    char *to;               /* of rank i: at `to` + to_starts[i] */
    const uint64_t *starts; /* [size + 1], elements */
    uint64_t done, most;    /* elements of each piece: behind those that are done, so many */
} pieces;

static bool is_rounded(const pieces *it)
{
    return it->types.stored != it->types.wire;
}

static uint64_t count_of(const pieces *it, uint32_t rank)
{
    return sl_comm_count_slice(it->starts, rank, it->done, it->most);
}

static uint64_t wire_bytes_of(const pieces *it, uint32_t rank)
{
    return count_of(it, rank) * sl_wire_bytes(it->types.wire);
}

static uint64_t offset_of(const pieces *it, uint32_t rank)
{
    return (it->starts[rank] + it->done) * sl_wire_bytes(it->types.stored);
}

static char *came_at(const pieces *it, uint32_t rank)
{
    return (char *)it->nccl->queue.scratch + rank * it->most * sl_wire_bytes(it->types.wire);
}

static char *goes_at(const pieces *it, uint32_t rank)
{
    return came_at(it, it->nccl->size + rank);
}

/* Each rank gets its piece of every other rank's elements. */
static sl_status scatter(const pieces *it)
{
    sl_nccl *nccl = it->nccl;
    const uint64_t own_bytes = wire_bytes_of(it, nccl->rank);
    for (uint32_t i = 0; i < nccl->size; i++)
        nccl->parts[i] = (nccl_part){is_rounded(it) ? goes_at(it, i) : it->from + offset_of(it, i),
                                     came_at(it, i), wire_bytes_of(it, i), own_bytes};
    return exchange(nccl, "a sum");
}

/* Every other rank gets what this one has of `to`. */
static sl_status hand_round(const pieces *it, const char *op)
{
    sl_nccl *nccl = it->nccl;
    const uint32_t rank = nccl->rank;
    const char *own = is_rounded(it) ? goes_at(it, rank) : it->to + offset_of(it, rank);
    for (uint32_t i = 0; i < nccl->size; i++)
        nccl->parts[i] =
            (nccl_part){own, is_rounded(it) ? came_at(it, i) : it->to + offset_of(it, i),
                        wire_bytes_of(it, rank), wire_bytes_of(it, i)};
    return exchange(nccl, op);
}

/* Between what is stored and what travels, for every other rank. */
static sl_status convert_pieces(const pieces *it, bool goes)
{
    const sl_nccl *nccl = it->nccl;
    const sl_comm_type stored = it->types.stored, wire = it->types.wire;
    if (!is_rounded(it))
        return SL_OK;
    for (uint32_t i = 0; i < nccl->size; i++) {
        const uint64_t count = count_of(it, i);
        if (i == nccl->rank || count == 0)
            continue;
        SL_TRY(goes ? nccl->options.device.convert(nccl->queue.stream, stored, wire, count,
                                                   it->from + offset_of(it, i), goes_at(it, i))
                    : nccl->options.device.convert(nccl->queue.stream, wire, stored, count,
                                                   came_at(it, i), it->to + offset_of(it, i)));
    }
    return SL_OK;
}

/* The piece of this rank, of all ranks, to `out`. */
static sl_status add_piece(const pieces *part, void *out)
{
    sl_nccl *it = part->nccl;
    SL_TRY(convert_pieces(part, true));
    SL_TRY(scatter(part));
    const sl_nccl_sum sum = {.types = part->types,
                             .count = count_of(part, it->rank),
                             .apart = part->most,
                             .term_count = it->size,
                             .own_index = it->rank,
                             .terms = it->queue.scratch,
                             .own = part->from + offset_of(part, it->rank),
                             .out_wire = is_rounded(part) ? goes_at(part, it->rank) : NULL,
                             .out_stored = out};
    return sum.count > 0 ? it->options.device.sum(it->queue.stream, &sum) : SL_OK;
}

/* Elements of a piece, as scratch allows; SL_ERROR_INTERNAL: none. */
static sl_status find_most(pieces *it)
{
    const uint32_t copies = is_rounded(it) ? 2 : 1;
    const uint64_t bytes = it->nccl->queue.scratch_bytes / it->nccl->size / copies;
    it->most = bytes / ALIGN_BYTES * ALIGN_BYTES / sl_wire_bytes(it->types.wire);
    if (it->most == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "%llu bytes are no room for the pieces of %u ranks",
                (unsigned long long)it->nccl->queue.scratch_bytes, it->nccl->size);
    return SL_OK;
}

static sl_status all_reduce(sl_nccl *it, sl_comm_types types, uint64_t count, char *data)
{
    uint64_t starts[SL_COMM_RANKS_MAX + 1] = {0};
    const uint64_t aligned = ALIGN_BYTES / sl_wire_bytes(types.wire);
    const uint64_t each = sl_bits_round_up(sl_bits_divide_up(count, it->size), aligned);
    for (uint32_t i = 0; i < it->size; i++)
        starts[i + 1] = count - starts[i] < each ? count : starts[i] + each;
    pieces part = {it, types, data, data, starts, 0, 0};
    SL_TRY(find_most(&part));
    for (; part.done < each && count > 0; part.done += part.most) {
        SL_TRY(add_piece(&part, data + offset_of(&part, it->rank)));
        SL_TRY(hand_round(&part, "a sum"));
        SL_TRY(convert_pieces(&part, false));
    }
    return SL_OK;
}

sl_status sl_nccl_all_reduce(sl_nccl *it, sl_comm_types types, uint64_t count, void *data)
{
    sl_status status = agree(it, "all_reduce", types, count, it->queue.scratch_bytes);
    if (status == SL_OK && it->size > 1)
        status = all_reduce(it, types, count, data);
    return status == SL_OK ? SL_OK : fail(it, status);
}

static sl_status reduce_scatter(sl_nccl *it, sl_comm_types types, const uint64_t *starts,
                                const char *from, char *to)
{
    pieces part = {it, types, from, NULL, starts, 0, 0};
    const uint64_t most = sl_comm_longest_piece(starts, it->size);
    SL_TRY(find_most(&part));
    for (; part.done < most; part.done += part.most)
        SL_TRY(add_piece(&part, to + part.done * sl_wire_bytes(types.stored)));
    return SL_OK;
}

sl_status sl_nccl_reduce_scatter(sl_nccl *it, sl_comm_types types, const uint64_t *starts,
                                 const void *from, void *to)
{
    const uint64_t detail = sl_comm_hash_starts(starts, it->size) + it->queue.scratch_bytes;
    sl_status status = agree(it, "reduce_scatter", types, starts[it->size], detail);
    if (status == SL_OK && it->size > 1)
        status = reduce_scatter(it, types, starts, from, to);
    return status == SL_OK ? SL_OK : fail(it, status);
}

/* ---- gather ---- */

static const sl_comm_types halves = {SL_COMM_BF16, SL_COMM_BF16}; /* any 2 bytes */

/* Every rank's piece of `whole`, to all; starts [size + 1] count elements of 2 bytes. */
static sl_status gather(sl_nccl *it, const uint64_t *starts, void *whole)
{
    const pieces what = {
        .nccl = it, .types = halves, .to = whole, .starts = starts, .most = UINT64_MAX};
    return hand_round(&what, "a gather");
}

static sl_status gather_parts(sl_nccl *it, uint64_t bytes, const void *part, char *parts)
{
    uint64_t starts[SL_COMM_RANKS_MAX + 1] = {0};
    const uint64_t count = bytes / sizeof(uint16_t);
    char *own = parts + it->rank * bytes;
    SL_TRY(sl_comm_find_starts(it->size, count, starts));
    if (part != own && bytes > 0)
        SL_TRY(it->options.device.convert(it->queue.stream, SL_COMM_BF16, SL_COMM_BF16, count, part,
                                          own));
    return it->size > 1 ? gather(it, starts, parts) : SL_OK;
}

sl_status sl_nccl_all_gather(sl_nccl *it, uint64_t bytes, const void *part, void *out_parts)
{
    sl_status status = agree(it, "gather", halves, bytes, 0);
    if (status == SL_OK)
        status = gather_parts(it, bytes, part, out_parts);
    return status == SL_OK ? SL_OK : fail(it, status);
}

/* ---- two ranks ---- */

sl_status sl_nccl_exchange(sl_nccl *it, uint32_t peer, uint64_t bytes, const void *given,
                           void *taken)
{
    const nccl_part part = {given, taken, given ? bytes : 0, taken ? bytes : 0};
    sl_status status = sl_nccl_poll(it);
    if (status == SL_OK) /* the other one is here, whatever it did with others */
        status = sl_comm_meet_one(it->options.host, peer, part.send_bytes, part.receive_bytes);
    if (status == SL_OK) {
        memset(it->parts, 0, it->size * sizeof *it->parts);
        it->parts[peer] = part;
        status = exchange(it, "an exchange");
    }
    return status == SL_OK ? SL_OK : fail(it, status);
}

/* ---- opening ---- */

/* What rank 0 has got is told to all, with whether it could be had. */
typedef struct invitation {
    sl_nccl_id id;
    int result;
} invitation;

static sl_status join(sl_nccl *it)
{
    invitation said = {.result = SL_NCCL_SUCCESS};
    sl_nccl_config config = {sizeof config, (unsigned)CONFIG_MAGIC, CONFIG_VERSION, 0};
    if (it->rank == 0)
        said.result = it->calls->get_unique_id(&said.id);
    SL_TRY(sl_comm_broadcast(it->options.host, 0, sizeof said, &said));
    SL_TRY(check(it, said.result, "ncclGetUniqueId"));
    int result = it->calls->init(&it->comm, (int)it->size, said.id, (int)it->rank, &config);
    SL_TRY(check(it, result, "ncclCommInitRankConfig"));
    return settle(it, false, "meeting");
}

/* Every peer is used once. */
static sl_status warm_up(sl_nccl *it)
{
    uint64_t starts[SL_COMM_RANKS_MAX + 1] = {0};
    SL_TRY(sl_comm_find_starts(it->size, ALIGN_BYTES / sizeof(uint16_t), starts));
    SL_TRY(gather(it, starts, it->queue.scratch));
    return settle(it, true, "a gather");
}

static sl_status make(const sl_nccl_options *options, sl_nccl **out_nccl)
{
    const uint32_t size = sl_comm_size(options->host);
    sl_nccl *it = calloc(1, sizeof *it + size * sizeof it->parts[0]);
    if (!it)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a communicator of GPUs");
    it->options = *options;
    if (!it->options.account)
        it->options.account = options->host;
    it->queue = options->queue;
    it->timeout_s = options->timeout_s;
    it->rank = sl_comm_rank(options->host);
    it->size = size;
    pthread_mutex_init(&it->lock, NULL); /* cannot fail on Linux */
    sl_queue_init_condition(&it->is_ending);
    *out_nccl = it;
    return SL_OK;
}

static void drop(sl_nccl *it)
{
    pthread_cond_destroy(&it->is_ending);
    pthread_mutex_destroy(&it->lock);
    free(it);
}

static sl_status open_parts(sl_nccl *it)
{
    if (it->size == 1)
        return SL_OK;
    if (it->queue.scratch_bytes / ALIGN_BYTES < it->size)
        SL_FAIL(SL_ERROR_INTERNAL, "%llu bytes are no room for the pieces of %u ranks",
                (unsigned long long)it->queue.scratch_bytes, it->size);
    it->calls = it->options.calls;
    if (!it->calls)
        SL_TRY(sl_nccl_load(&it->calls));
    SL_TRY(join(it));
    SL_TRY(warm_up(it));
    return start_watch(it);
}

sl_status sl_nccl_open(const sl_nccl_options *options, sl_nccl **out_nccl)
{
    sl_nccl *it;
    SL_TRY(make(options, &it));
    sl_status status = open_parts(it);
    if (status == SL_OK) {
        *out_nccl = it;
        return SL_OK;
    }
    status = fail(it, status);
    drop(it);
    return status;
}

void sl_nccl_close(sl_nccl *it)
{
    if (!it)
        return;
    end_watch(it);
    if (it->comm) {
        bool is_sound = sl_comm_poll(it->options.host) == SL_OK &&
                        check(it, it->calls->finalize(it->comm), "ncclCommFinalize") == SL_OK &&
                        settle(it, false, "the end") == SL_OK;
        if (is_sound)
            (void)it->calls->destroy(it->comm);
        else
            abort_comm(it);
    }
    drop(it);
}
