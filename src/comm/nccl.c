/* NCCL between the host's agreement before a call and the watch behind it; see nccl.h. A sum is two
 * exchanges: each rank gets its piece of every other rank's elements and adds up, then every rank
 * gets the sums. Both are groups of sends and receives, which NCCL runs as one kernel.
 *
 * Of an sl_nccl everything belongs to the thread that calls, but for what stands under its lock:
 * the communicator, its failure, and what is watched. The lock is held around whatever is asked of
 * NCCL, so that an abort by the watch never meets another call.
 */
#include "nccl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "comm_internal.h"
#include "device/cuda.h"

enum {
    ALIGN_BYTES = 256,
    CONFIG_MAGIC = (int)0xcafebeef,
    CONFIG_VERSION = 21400, /* 2.14 */
    PAUSE_NS_FIRST = 20000,
    PAUSE_NS_MOST = 1000000,
    TICK_NS = 20000000 /* of the watch */
};

struct sl_nccl {
    sl_nccl_options options;
    const sl_nccl_calls *calls;
    sl_nccl_queue queue;
    uint32_t rank, size;
    uint64_t call_count;
    pthread_mutex_t lock;     /* of all that follows */
    pthread_cond_t is_ending; /* the watch's */
    pthread_t watch;
    bool has_watch, ends;
    void *comm; /* NULL: not open, or aborted */
    double timeout_s;
    uint32_t watched; /* the mark that is looked at; the other is behind the last exchange */
    bool is_set[SL_NCCL_MARKS]; /* marks that the device has not passed, as far as it is known */
    uint64_t waited_ns;         /* for the watched one, in the watch's own ticks */
    sl_first_failure failure;   /* of anything */
};

/* ---- failures ---- */

/* With the lock. */
static void abort_comm(sl_nccl *it)
{
    if (it->comm && sl_nccl_abort(it->calls, it->comm))
        it->comm = NULL;
}

/* Ends the world with the message that stands, unless that is what it ended with, and keeps it. */
static sl_status fail_locked(sl_nccl *it, sl_status status)
{
    char message[SL_STATUS_MESSAGE_BYTES];
    snprintf(message, sizeof message, "%s", sl_status_message());
    sl_comm_abort(it->options.host, message);
    (void)sl_status_fail(status, "%s", message);
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

typedef struct patience {
    uint64_t waited_ns, pause_ns;
} patience;

static sl_status wait_briefly(const sl_nccl *it, patience *waiting, const char *what)
{
    if (waiting->pause_ns == 0)
        waiting->pause_ns = PAUSE_NS_FIRST;
    const struct timespec time = {0, (long)waiting->pause_ns};
    nanosleep(&time, NULL);
    waiting->waited_ns += waiting->pause_ns;
    if (waiting->pause_ns < PAUSE_NS_MOST)
        waiting->pause_ns *= 2;
    return check_patience(it, waiting->waited_ns, what);
}

/* With the lock, as the two below. */
static sl_status look(const sl_nccl *it, bool *out_is_in_progress)
{
    int error = SL_NCCL_SUCCESS;
    SL_TRY(check(it, it->calls->get_async_error(it->comm, &error), "ncclCommGetAsyncError"));
    *out_is_in_progress = error == SL_NCCL_IN_PROGRESS;
    return check(it, error, "an exchange failed");
}

/* Until NCCL takes another call. */
static sl_status settle(const sl_nccl *it, const char *what)
{
    patience waiting = {0};
    bool is_in_progress = true;
    for (;;) {
        SL_TRY(look(it, &is_in_progress));
        if (!is_in_progress)
            return SL_OK;
        SL_TRY(wait_briefly(it, &waiting, what));
    }
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

static void sleep_tick(sl_nccl *it)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += TICK_NS;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&it->is_ending, &it->lock, &end);
}

static void *watch(void *argument)
{
    sl_nccl *it = argument;
    pthread_mutex_lock(&it->lock);
    while (!it->ends) {
        sl_status status = it->comm ? look_around(it) : SL_OK;
        if (status != SL_OK)
            (void)fail_locked(it, status);
        sleep_tick(it);
    }
    pthread_mutex_unlock(&it->lock);
    return NULL;
}

static sl_status start_watch(sl_nccl *it)
{
    if (pthread_create(&it->watch, NULL, watch, it) != 0)
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

typedef enum nccl_op { OP_ALL_REDUCE, OP_REDUCE_SCATTER, OP_GATHER, OP_EXCHANGE, OP_COUNT } nccl_op;

static const char *const op_names[] = {"all_reduce", "reduce_scatter", "gather", "exchange"};

typedef struct call_sign {
    uint64_t call, count, detail, scratch_bytes;
    uint32_t op, type;
} call_sign;

/* All ranks are here, and about to do the same. */
static sl_status agree(sl_nccl *it, call_sign mine)
{
    call_sign all[SL_COMM_RANKS_MAX];
    SL_TRY(sl_nccl_poll(it));
    mine.call = it->call_count++;
    mine.scratch_bytes = mine.op == OP_GATHER ? 0 : it->queue.scratch_bytes;
    SL_TRY(sl_comm_all_gather(it->options.host, sizeof mine, &mine, all));
    for (uint32_t i = 0; i < it->size; i++)
        if (memcmp(&all[i], &mine, sizeof mine) != 0)
            SL_FAIL(SL_ERROR_INTERNAL,
                    "ranks call different things of NCCL: %s of %llu elements, type %u, as call "
                    "%llu here, but %s of %llu elements, type %u, as call %llu on rank %u",
                    op_names[mine.op], (unsigned long long)mine.count, mine.type,
                    (unsigned long long)mine.call, op_names[all[i].op % OP_COUNT],
                    (unsigned long long)all[i].count, all[i].type, (unsigned long long)all[i].call,
                    i);
    return SL_OK;
}

/* ---- exchanges ---- */

/* What goes to each rank and comes from it; a rank is not its own peer. */
typedef struct nccl_round {
    const char *(*send_at)(const void *argument, uint32_t peer, uint64_t *out_bytes);
    char *(*receive_at)(const void *argument, uint32_t peer, uint64_t *out_bytes);
    const void *argument;
} nccl_round;

static sl_status queue_peer(const sl_nccl *it, const nccl_round *what, uint32_t peer)
{
    uint64_t send_bytes, receive_bytes;
    const char *from = what->send_at(what->argument, peer, &send_bytes);
    char *to = what->receive_at(what->argument, peer, &receive_bytes);
    void *stream = it->queue.stream;
    if (send_bytes > 0)
        SL_TRY(check(it,
                     it->calls->send(from, send_bytes, SL_NCCL_INT8, (int)peer, it->comm, stream),
                     "ncclSend"));
    if (send_bytes > 0)
        sl_comm_count_sent(it->options.account, send_bytes);
    if (receive_bytes == 0)
        return SL_OK;
    return check(it,
                 it->calls->receive(to, receive_bytes, SL_NCCL_INT8, (int)peer, it->comm, stream),
                 "ncclRecv");
}

static sl_status queue_peers(const sl_nccl *it, const nccl_round *what)
{
    for (uint32_t i = 1; i < it->size; i++)
        SL_TRY(queue_peer(it, what, (it->rank + i) % it->size));
    return SL_OK;
}

/* Also behind a call that failed, with `status`: in an open group nothing, an abort either, would
 * be done at once. */
static sl_status end_group(const sl_nccl *it, sl_status status)
{
    const int result = it->calls->group_end();
    return status == SL_OK ? check(it, result, "ncclGroupEnd") : status;
}

static sl_status queue_group(sl_nccl *it, const nccl_round *what, const char *op)
{
    SL_TRY(sl_first_failure_return(&it->failure));
    SL_TRY(check(it, it->calls->group_start(), "ncclGroupStart"));
    SL_TRY(end_group(it, queue_peers(it, what)));
    sl_cuda_note_launches(1);
    SL_TRY(settle(it, op));
    return mark(it);
}

static sl_status exchange(sl_nccl *it, const nccl_round *what, const char *op)
{
    pthread_mutex_lock(&it->lock);
    sl_status status = queue_group(it, what, op);
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
    uint64_t count = it->starts[rank + 1] - it->starts[rank];
    uint64_t left = count > it->done ? count - it->done : 0;
    return left < it->most ? left : it->most;
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

static const char *piece_for(const void *argument, uint32_t peer, uint64_t *out_bytes)
{
    const pieces *it = argument;
    *out_bytes = wire_bytes_of(it, peer);
    return is_rounded(it) ? goes_at(it, peer) : it->from + offset_of(it, peer);
}

static char *scratch_of(const void *argument, uint32_t peer, uint64_t *out_bytes)
{
    const pieces *it = argument;
    *out_bytes = wire_bytes_of(it, it->nccl->rank);
    return came_at(it, peer);
}

static const char *own_sum(const void *argument, uint32_t peer, uint64_t *out_bytes)
{
    const pieces *it = argument;
    const uint32_t rank = it->nccl->rank;
    (void)peer;
    *out_bytes = wire_bytes_of(it, rank);
    return is_rounded(it) ? goes_at(it, rank) : it->to + offset_of(it, rank);
}

static char *sum_of(const void *argument, uint32_t peer, uint64_t *out_bytes)
{
    const pieces *it = argument;
    *out_bytes = wire_bytes_of(it, peer);
    return is_rounded(it) ? came_at(it, peer) : it->to + offset_of(it, peer);
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
    const nccl_round scatter = {piece_for, scratch_of, part};
    SL_TRY(convert_pieces(part, true));
    SL_TRY(exchange(it, &scatter, "a sum"));
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
        const nccl_round hand_round = {own_sum, sum_of, &part};
        SL_TRY(add_piece(&part, data + offset_of(&part, it->rank)));
        SL_TRY(exchange(it, &hand_round, "a sum"));
        SL_TRY(convert_pieces(&part, false));
    }
    return SL_OK;
}

sl_status sl_nccl_all_reduce(sl_nccl *it, sl_comm_types types, uint64_t count, void *data)
{
    sl_status status = agree(
        it, (call_sign){
                .op = OP_ALL_REDUCE, .count = count, .detail = types.stored, .type = types.wire});
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
    sl_status status = agree(
        it, (call_sign){.op = OP_REDUCE_SCATTER,
                        .count = starts[it->size],
                        .detail = sl_comm_hash_starts(starts, it->size) + (uint64_t)types.stored,
                        .type = types.wire});
    if (status == SL_OK && it->size > 1)
        status = reduce_scatter(it, types, starts, from, to);
    return status == SL_OK ? SL_OK : fail(it, status);
}

/* ---- gather ---- */

/* Every rank's piece of `whole`, to all; starts [size + 1] count elements of 2 bytes. */
static sl_status gather(sl_nccl *it, const uint64_t *starts, void *whole)
{
    const pieces what = {.nccl = it,
                         .types = {SL_COMM_BF16, SL_COMM_BF16},
                         .to = whole,
                         .starts = starts,
                         .most = UINT64_MAX};
    const nccl_round hand_round = {own_sum, sum_of, &what};
    return exchange(it, &hand_round, "a gather");
}

static sl_status gather_parts(sl_nccl *it, uint64_t bytes, const void *part, char *parts)
{
    uint64_t starts[SL_COMM_RANKS_MAX + 1] = {0};
    const uint64_t count = bytes / sizeof(uint16_t);
    char *own = parts + it->rank * bytes;
    for (uint32_t i = 0; i < it->size; i++)
        starts[i + 1] = starts[i] + count;
    if (part != own && bytes > 0)
        SL_TRY(it->options.device.convert(it->queue.stream, SL_COMM_BF16, SL_COMM_BF16, count, part,
                                          own));
    return it->size > 1 ? gather(it, starts, parts) : SL_OK;
}

sl_status sl_nccl_all_gather(sl_nccl *it, uint64_t bytes, const void *part, void *out_parts)
{
    sl_status status = agree(it, (call_sign){.op = OP_GATHER, .count = bytes});
    if (status == SL_OK)
        status = gather_parts(it, bytes, part, out_parts);
    return status == SL_OK ? SL_OK : fail(it, status);
}

/* ---- two ranks ---- */

typedef struct handed {
    uint32_t peer;
    uint64_t bytes[2]; /* given and taken */
    const char *given;
    char *taken;
} handed;

static const char *given_to(const void *argument, uint32_t peer, uint64_t *out_bytes)
{
    const handed *it = argument;
    *out_bytes = peer == it->peer ? it->bytes[0] : 0;
    return it->given;
}

static char *taken_from(const void *argument, uint32_t peer, uint64_t *out_bytes)
{
    const handed *it = argument;
    *out_bytes = peer == it->peer ? it->bytes[1] : 0;
    return it->taken;
}

/* The other one is here, and about to do what fits. It may have made other calls with others. */
static sl_status agree_with(sl_nccl *it, const handed *what)
{
    const uint64_t *mine = what->bytes;
    uint64_t theirs[2] = {0};
    const sl_comm_exchange_args args = {what->peer,         what->peer, mine,
                                        sizeof what->bytes, theirs,     sizeof theirs};
    SL_TRY(sl_nccl_poll(it));
    SL_TRY(sl_comm_exchange(it->options.host, &args));
    if (theirs[0] == mine[1] && theirs[1] == mine[0])
        return SL_OK;
    SL_FAIL(SL_ERROR_INTERNAL,
            "ranks call different things of NCCL: an exchange that gives %llu bytes to rank %u and "
            "takes %llu, but one that gives %llu and takes %llu there",
            (unsigned long long)mine[0], what->peer, (unsigned long long)mine[1],
            (unsigned long long)theirs[0], (unsigned long long)theirs[1]);
}

sl_status sl_nccl_exchange(sl_nccl *it, uint32_t peer, uint64_t bytes, const void *given,
                           void *taken)
{
    const handed what = {peer, {given ? bytes : 0, taken ? bytes : 0}, given, taken};
    const nccl_round round = {given_to, taken_from, &what};
    sl_status status = agree_with(it, &what);
    if (status == SL_OK)
        status = exchange(it, &round, "an exchange");
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
    return settle(it, "meeting");
}

/* Until the device is done. */
static sl_status finish(sl_nccl *it, const char *what)
{
    patience waiting = {0};
    bool is_in_progress;
    for (;;) {
        SL_TRY(look(it, &is_in_progress));
        SL_TRY(look_at_marks(it));
        if (!it->is_set[it->watched])
            return SL_OK;
        SL_TRY(wait_briefly(it, &waiting, what));
    }
}

/* Every peer is used once. */
static sl_status warm_up(sl_nccl *it)
{
    uint64_t starts[SL_COMM_RANKS_MAX + 1] = {0};
    for (uint32_t i = 0; i < it->size; i++)
        starts[i + 1] = starts[i] + ALIGN_BYTES / sizeof(uint16_t);
    SL_TRY(gather(it, starts, it->queue.scratch));
    return finish(it, "a gather");
}

static sl_status make(const sl_nccl_options *options, sl_nccl **out_nccl)
{
    pthread_condattr_t monotonic;
    sl_nccl *it = calloc(1, sizeof *it);
    if (!it)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a communicator of GPUs");
    it->options = *options;
    if (!it->options.account)
        it->options.account = options->host;
    it->queue = options->queue;
    it->timeout_s = options->timeout_s;
    it->rank = sl_comm_rank(options->host);
    it->size = sl_comm_size(options->host);
    pthread_mutex_init(&it->lock, NULL); /* with these attributes none can fail on Linux */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&it->is_ending, &monotonic);
    pthread_condattr_destroy(&monotonic);
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
                        settle(it, "the end") == SL_OK;
        if (is_sound)
            (void)it->calls->destroy(it->comm);
        else
            abort_comm(it);
    }
    drop(it);
}
