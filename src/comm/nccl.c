/* NCCL between the host's agreement before a call and the patience behind it; see nccl.h. A sum is
 * two exchanges: each rank gets its piece of every other rank's elements and adds up, then every
 * rank gets the sums. Both are groups of sends and receives, which NCCL runs as one kernel. */
#include "nccl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/hash.h"

enum {
    ALIGN_BYTES = 256,
    ABORT_S = 5,
    CONFIG_MAGIC = (int)0xcafebeef,
    CONFIG_VERSION = 21400, /* 2.14 */
    PAUSE_NS_FIRST = 20000,
    PAUSE_NS_MOST = 1000000
};

struct sl_nccl {
    sl_nccl_options options;
    const sl_nccl_calls *calls;
    void *comm; /* NULL: not open, or aborted */
    uint32_t rank, size;
    uint64_t call_count, piece_bytes;
    const void **terms; /* [size] */
};

/* ---- the library ---- */

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    {"ncclGetUniqueId", offsetof(sl_nccl_calls, get_unique_id)},
    {"ncclCommInitRankConfig", offsetof(sl_nccl_calls, init)},
    {"ncclCommGetAsyncError", offsetof(sl_nccl_calls, get_async_error)},
    {"ncclCommFinalize", offsetof(sl_nccl_calls, finalize)},
    {"ncclCommDestroy", offsetof(sl_nccl_calls, destroy)},
    {"ncclCommAbort", offsetof(sl_nccl_calls, abort)},
    {"ncclGroupStart", offsetof(sl_nccl_calls, group_start)},
    {"ncclGroupEnd", offsetof(sl_nccl_calls, group_end)},
    {"ncclSend", offsetof(sl_nccl_calls, send)},
    {"ncclRecv", offsetof(sl_nccl_calls, receive)},
    {"ncclGetErrorString", offsetof(sl_nccl_calls, get_error_string)},
};

static sl_nccl_calls loaded;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static char load_failure[256];

/* It stays loaded: NCCL leaves threads behind. */
static void load_library(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        snprintf(load_failure, sizeof load_failure, "%s", reason ? reason : "libnccl.so.2");
        return;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        memcpy((char *)&loaded + symbols[i].offset, &symbol, sizeof symbol);
        if (!symbol)
            snprintf(load_failure, sizeof load_failure,
                     "it has no %s: version 2.14 or newer is "
                     "needed",
                     symbols[i].name);
    }
}

static sl_status find_calls(const sl_nccl_options *options, const sl_nccl_calls **out_calls)
{
    *out_calls = options->calls;
    if (options->calls)
        return SL_OK;
    pthread_once(&load_once, load_library);
    if (load_failure[0])
        SL_FAIL(SL_ERROR_SYSTEM,
                "GPUs exchange through NCCL, which cannot be loaded: %s; install libnccl2",
                load_failure);
    *out_calls = &loaded;
    return SL_OK;
}

/* ---- failures ---- */

typedef struct abort_job {
    const sl_nccl_calls *calls;
    void *comm;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_over, is_left; /* aborted; nobody waits any more */
} abort_job;

static void free_job(abort_job *job)
{
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

static void *run_abort(void *argument)
{
    abort_job *job = argument;
    (void)job->calls->abort(job->comm);
    pthread_mutex_lock(&job->lock);
    job->is_over = true;
    bool is_left = job->is_left;
    pthread_cond_signal(&job->changed);
    pthread_mutex_unlock(&job->lock);
    if (is_left)
        free_job(job);
    return NULL;
}

static void wait_for_abort(abort_job *job)
{
    struct timespec end;
    int error = 0;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += ABORT_S;
    pthread_mutex_lock(&job->lock);
    while (!job->is_over && error == 0)
        error = pthread_cond_timedwait(&job->changed, &job->lock, &end);
    bool is_over = job->is_over;
    job->is_left = !is_over;
    pthread_mutex_unlock(&job->lock);
    if (is_over)
        free_job(job);
}

/* An abort may hang: then it is left to itself, with all that it holds. */
static void abort_comm(sl_nccl *it)
{
    pthread_t thread;
    abort_job *job = it->comm ? calloc(1, sizeof *job) : NULL;
    if (!job)
        return;
    *job = (abort_job){.calls = it->calls, .comm = it->comm};
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->changed, NULL);
    it->comm = NULL;
    if (pthread_create(&thread, NULL, run_abort, job) != 0) {
        free_job(job);
        return;
    }
    pthread_detach(thread);
    wait_for_abort(job);
}

/* Ends the world with the message that stands, unless that is what it ended with. */
static sl_status fail(sl_nccl *it, sl_status status)
{
    char message[SL_STATUS_MESSAGE_BYTES];
    snprintf(message, sizeof message, "%s", sl_status_message());
    sl_comm_abort(it->options.host, message);
    abort_comm(it);
    return sl_status_fail(status, "%s", message);
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
    SL_TRY(sl_comm_poll(it->options.host));
    if ((double)waiting->waited_ns < 1e9 * it->options.timeout_s)
        return SL_OK;
    SL_FAIL(SL_ERROR_RANK, "%s by NCCL did not end within %.0f s (--rank-timeout)", what,
            it->options.timeout_s);
}

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

/* Until the device is done. */
static sl_status finish(const sl_nccl *it, const char *what)
{
    patience waiting = {0};
    bool is_done = false, is_in_progress;
    for (;;) {
        SL_TRY(look(it, &is_in_progress));
        SL_TRY(it->options.is_done(it->options.user, &is_done));
        if (is_done && !is_in_progress)
            return SL_OK;
        SL_TRY(wait_briefly(it, &waiting, what));
    }
}

/* ---- what the ranks call ---- */

typedef enum nccl_op { OP_ALL_REDUCE, OP_REDUCE_SCATTER, OP_GATHER } nccl_op;

static const char *const op_names[] = {"all_reduce", "reduce_scatter", "gather"};

typedef struct call_sign {
    uint64_t call, count, detail;
    uint32_t op, type;
} call_sign;

/* All ranks are here, and about to do the same. */
static sl_status agree(sl_nccl *it, call_sign mine)
{
    call_sign all[SL_COMM_RANKS_MAX];
    mine.call = it->call_count++;
    if (!it->comm && it->size > 1)
        SL_FAIL(SL_ERROR_RANK, "the ranks' GPUs no longer exchange, after a failure");
    SL_TRY(sl_comm_all_gather(it->options.host, sizeof mine, &mine, all));
    for (uint32_t i = 0; i < it->size; i++)
        if (memcmp(&all[i], &mine, sizeof mine) != 0)
            SL_FAIL(SL_ERROR_INTERNAL,
                    "ranks call different things of NCCL: %s of %llu elements, type %u, as call "
                    "%llu here, but %s of %llu elements, type %u, as call %llu on rank %u",
                    op_names[mine.op], (unsigned long long)mine.count, mine.type,
                    (unsigned long long)mine.call, op_names[all[i].op % 3],
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
    void *stream = it->options.stream;
    if (send_bytes > 0)
        SL_TRY(check(it,
                     it->calls->send(from, send_bytes, SL_NCCL_INT8, (int)peer, it->comm, stream),
                     "ncclSend"));
    if (receive_bytes == 0)
        return SL_OK;
    return check(it,
                 it->calls->receive(to, receive_bytes, SL_NCCL_INT8, (int)peer, it->comm, stream),
                 "ncclRecv");
}

static sl_status exchange(const sl_nccl *it, const nccl_round *what, const char *op)
{
    sl_status status = check(it, it->calls->group_start(), "ncclGroupStart");
    for (uint32_t i = 1; i < it->size && status == SL_OK; i++)
        status = queue_peer(it, what, (it->rank + i) % it->size);
    SL_TRY(status);
    SL_TRY(check(it, it->calls->group_end(), "ncclGroupEnd"));
    return settle(it, op);
}

/* ---- sums ---- */

/* Of a sum: piece i of every rank's `from` goes to rank i; the sums lie in `to`. */
typedef struct pieces {
    const sl_nccl *nccl;
    sl_comm_type type;
    const char *from;
    char *to;               /* of rank i: at `to` + to_starts[i] */
    const uint64_t *starts; /* [size + 1], elements */
    uint64_t done, most;    /* elements of each piece: behind those that are done, so many */
} pieces;

static uint64_t count_of(const pieces *it, uint32_t rank)
{
    uint64_t count = it->starts[rank + 1] - it->starts[rank];
    uint64_t left = count > it->done ? count - it->done : 0;
    return left < it->most ? left : it->most;
}

static uint64_t offset_of(const pieces *it, uint32_t rank)
{
    return (it->starts[rank] + it->done) * sl_wire_bytes(it->type);
}

static const char *piece_for(const void *argument, uint32_t peer, uint64_t *out_bytes)
{
    const pieces *it = argument;
    *out_bytes = count_of(it, peer) * sl_wire_bytes(it->type);
    return it->from + offset_of(it, peer);
}

static char *scratch_of(const void *argument, uint32_t peer, uint64_t *out_bytes)
{
    const pieces *it = argument;
    *out_bytes = count_of(it, it->nccl->rank) * sl_wire_bytes(it->type);
    return (char *)it->nccl->options.scratch + peer * it->nccl->piece_bytes;
}

static const char *own_sum(const void *argument, uint32_t peer, uint64_t *out_bytes)
{
    const pieces *it = argument;
    (void)peer;
    *out_bytes = count_of(it, it->nccl->rank) * sl_wire_bytes(it->type);
    return it->to + offset_of(it, it->nccl->rank);
}

static char *sum_of(const void *argument, uint32_t peer, uint64_t *out_bytes)
{
    const pieces *it = argument;
    *out_bytes = count_of(it, peer) * sl_wire_bytes(it->type);
    return it->to + offset_of(it, peer);
}

/* The piece of this rank, of all ranks, to `out`. */
static sl_status add_piece(sl_nccl *it, const pieces *part, void *out)
{
    const nccl_round scatter = {piece_for, scratch_of, part};
    SL_TRY(exchange(it, &scatter, "a sum"));
    for (uint32_t i = 0; i < it->size; i++)
        it->terms[i] = (const char *)it->options.scratch + i * it->piece_bytes;
    const sl_wire_sum_args args = {.types = {part->type, part->type},
                                   .count = count_of(part, it->rank),
                                   .term_count = it->size,
                                   .own_index = it->rank,
                                   .terms = it->terms,
                                   .own = part->from + offset_of(part, it->rank),
                                   .out_stored = out};
    return args.count > 0 ? it->options.sum(it->options.user, &args) : SL_OK;
}

static uint64_t longest(const uint64_t *starts, uint32_t size)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < size; i++)
        most = starts[i + 1] - starts[i] > most ? starts[i + 1] - starts[i] : most;
    return most;
}

static sl_status all_reduce(sl_nccl *it, sl_comm_type type, uint64_t count, char *data)
{
    uint64_t starts[SL_COMM_RANKS_MAX + 1] = {0};
    const uint64_t aligned = ALIGN_BYTES / sl_wire_bytes(type);
    const uint64_t each = sl_bits_round_up(sl_bits_divide_up(count, it->size), aligned);
    for (uint32_t i = 0; i < it->size; i++)
        starts[i + 1] = count - starts[i] < each ? count : starts[i] + each;
    pieces part = {it, type, data, data, starts, 0, it->piece_bytes / sl_wire_bytes(type)};
    for (; part.done < each && count > 0; part.done += part.most) {
        const nccl_round hand_round = {own_sum, sum_of, &part};
        SL_TRY(add_piece(it, &part, data + offset_of(&part, it->rank)));
        SL_TRY(exchange(it, &hand_round, "a sum"));
    }
    return finish(it, "a sum");
}

sl_status sl_nccl_all_reduce(sl_nccl *it, sl_comm_type type, uint64_t count, void *data)
{
    sl_status status = agree(it, (call_sign){.op = OP_ALL_REDUCE, .count = count, .type = type});
    if (status == SL_OK && it->size > 1)
        status = all_reduce(it, type, count, data);
    return status == SL_OK ? SL_OK : fail(it, status);
}

static sl_status reduce_scatter(sl_nccl *it, sl_comm_type type, const uint64_t *starts,
                                const char *from, char *to)
{
    pieces part = {it, type, from, NULL, starts, 0, it->piece_bytes / sl_wire_bytes(type)};
    const uint64_t most = longest(starts, it->size);
    for (; part.done < most; part.done += part.most)
        SL_TRY(add_piece(it, &part, to + part.done * sl_wire_bytes(type)));
    return finish(it, "a sum");
}

static uint64_t hash_starts(const sl_nccl *it, const uint64_t *starts)
{
    return sl_hash_64(starts, ((uint64_t)it->size + 1) * sizeof *starts);
}

sl_status sl_nccl_reduce_scatter(sl_nccl *it, sl_comm_type type, const uint64_t *starts,
                                 const void *from, void *to)
{
    sl_status status = agree(it, (call_sign){.op = OP_REDUCE_SCATTER,
                                             .count = starts[it->size],
                                             .detail = hash_starts(it, starts),
                                             .type = type});
    if (status == SL_OK && it->size > 1)
        status = reduce_scatter(it, type, starts, from, to);
    return status == SL_OK ? SL_OK : fail(it, status);
}

/* ---- gather ---- */

typedef struct gathered {
    const sl_nccl *nccl;
    const uint64_t *starts; /* bytes */
    char *whole;
} gathered;

static const char *own_piece(const void *argument, uint32_t peer, uint64_t *out_bytes)
{
    const gathered *it = argument;
    const uint32_t rank = it->nccl->rank;
    (void)peer;
    *out_bytes = it->starts[rank + 1] - it->starts[rank];
    return it->whole + it->starts[rank];
}

static char *piece_of(const void *argument, uint32_t peer, uint64_t *out_bytes)
{
    const gathered *it = argument;
    *out_bytes = it->starts[peer + 1] - it->starts[peer];
    return it->whole + it->starts[peer];
}

static sl_status gather(sl_nccl *it, const uint64_t *starts, void *whole)
{
    const gathered what = {it, starts, whole};
    const nccl_round hand_round = {own_piece, piece_of, &what};
    SL_TRY(exchange(it, &hand_round, "a gather"));
    return finish(it, "a gather");
}

sl_status sl_nccl_gather_pieces(sl_nccl *it, const uint64_t *starts, void *whole)
{
    sl_status status = agree(
        it,
        (call_sign){.op = OP_GATHER, .count = starts[it->size], .detail = hash_starts(it, starts)});
    if (status == SL_OK && it->size > 1)
        status = gather(it, starts, whole);
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

/* Every peer is used once. */
static sl_status warm_up(sl_nccl *it)
{
    uint64_t starts[SL_COMM_RANKS_MAX + 1] = {0};
    for (uint32_t i = 0; i < it->size; i++)
        starts[i + 1] = starts[i] + ALIGN_BYTES;
    return gather(it, starts, it->options.scratch);
}

static sl_status make(const sl_nccl_options *options, sl_nccl **out_nccl)
{
    sl_nccl *it = calloc(1, sizeof *it);
    if (it)
        it->terms = calloc(sl_comm_size(options->host), sizeof *it->terms);
    if (!it || !it->terms) {
        free(it);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a communicator of GPUs");
    }
    it->options = *options;
    it->rank = sl_comm_rank(options->host);
    it->size = sl_comm_size(options->host);
    it->piece_bytes = options->scratch_bytes / it->size / ALIGN_BYTES * ALIGN_BYTES;
    *out_nccl = it;
    return SL_OK;
}

static sl_status open_parts(sl_nccl *it)
{
    if (it->size == 1)
        return SL_OK;
    if (it->piece_bytes == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "%llu bytes are no room for the pieces of %u ranks",
                (unsigned long long)it->options.scratch_bytes, it->size);
    SL_TRY(find_calls(&it->options, &it->calls));
    SL_TRY(join(it));
    return warm_up(it);
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
    free(it->terms);
    free(it);
    return status;
}

void sl_nccl_close(sl_nccl *it)
{
    if (!it)
        return;
    if (it->comm) {
        bool is_sound = sl_comm_poll(it->options.host) == SL_OK &&
                        check(it, it->calls->finalize(it->comm), "ncclCommFinalize") == SL_OK &&
                        settle(it, "the end") == SL_OK;
        if (is_sound)
            (void)it->calls->destroy(it->comm);
        else
            abort_comm(it);
    }
    free(it->terms);
    free(it);
}
