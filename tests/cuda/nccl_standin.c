/* One lock, one condition: whoever waits for anything waits for that. */
#include "nccl_standin.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin.h"
#include "stream_order.h"

enum {
    RANKS_MAX = 8,
    MESSAGES_MAX = 16, /* of a group */
    WORLDS_MAX = 32,
    REMOTE_ERROR = 6,
    INVALID_USAGE = 5,
    SYSTEM_ERROR = 2
};

typedef struct message {
    bool is_send;
    char *data;
    size_t count;
    int type, peer;
} message;

typedef struct comm comm;

/* The messages of a group on one rank. */
typedef struct kernel {
    comm *comm;
    uint32_t number; /* over all ranks, from 1 */
    uint32_t message_count;
    message messages[MESSAGES_MAX];
    bool is_over;
} kernel;

typedef struct world {
    uint64_t number;
    int size, joined;
    kernel *waiting[RANKS_MAX]; /* kernels that have not met those that belong to them */
    int error;                  /* of all ranks */
    bool is_aborted;
} world;

struct comm {
    world *world;
    int rank, device, busy; /* busy: answers of "in progress" that are left */
    int kernels;            /* queued, and not ended */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static nccl_standin how;
static world worlds[WORLDS_MAX];
static uint32_t world_count, open_count, kernel_count, begun_count, fault_count;
static struct {
    char *data;
    size_t count;
} sent_before[RANKS_MAX]; /* NCCL_STALE: to each rank */
static pthread_mutex_t device_locks[RANKS_MAX] =
    {/* one communication kernel of a rank at a time */
     PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
     PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
     PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static _Thread_local struct {
    bool is_open;
    kernel *kernel;
    void *stream;
} group;
static _Thread_local int device_of_thread = -1; /* -1: CUDA's */

static uint32_t draw(uint32_t below)
{
    how.seed = how.seed * 6364136223846793005u + 1442695040888963407u;
    return below ? (uint32_t)(how.seed >> 33) % below : 0;
}

/* With the lock. A call while another is in progress is a mistake. */
static void begin_call(comm *it, const char *name)
{
    if (it->busy > 0)
        standin_fault("%s while a call is in progress", name);
    it->busy = (int)draw(3);
}

static int answer(const comm *it)
{
    return it->world->error ? it->world->error
           : it->busy > 0   ? SL_NCCL_IN_PROGRESS
                            : SL_NCCL_SUCCESS;
}

/* ---- meeting ---- */

static int get_unique_id(sl_nccl_id *out_id)
{
    pthread_mutex_lock(&lock);
    world *it = &worlds[world_count % WORLDS_MAX];
    *it = (world){.number = ++world_count};
    memset(out_id, 0, sizeof *out_id);
    memcpy(out_id, &it->number, sizeof it->number);
    pthread_mutex_unlock(&lock);
    return SL_NCCL_SUCCESS;
}

static int init(void **out_comm, int size, sl_nccl_id id, int rank, sl_nccl_config *config)
{
    uint64_t number;
    int device = device_of_thread;
    memcpy(&number, &id, sizeof number);
    if (device < 0 && cudaGetDevice(&device) != cudaSuccess)
        return SYSTEM_ERROR;
    if (config->size != sizeof *config || config->magic != 0xcafebeef || config->blocking != 0)
        standin_fault("a configuration that NCCL would not take, or that blocks");
    pthread_mutex_lock(&lock);
    world *it = &worlds[(number - 1) % WORLDS_MAX];
    comm *mine = calloc(1, sizeof *mine);
    if (!mine)
        abort();
    *mine = (comm){.world = it, .rank = rank, .device = device, .busy = (int)draw(5)};
    if (it->size != 0 && it->size != size)
        it->error = INVALID_USAGE;
    if (how.refuse_init == (uint32_t)rank + 1)
        it->error = SYSTEM_ERROR;
    it->size = size;
    it->joined++;
    *out_comm = mine;
    open_count++;
    pthread_mutex_unlock(&lock);
    return SL_NCCL_IN_PROGRESS;
}

static int get_async_error(void *comm_of, int *out_error)
{
    comm *it = comm_of;
    pthread_mutex_lock(&lock);
    bool is_met = it->world->joined >= it->world->size;
    it->busy -= it->busy > 0;
    *out_error = answer(it);
    if (*out_error == SL_NCCL_SUCCESS && !is_met)
        *out_error = SL_NCCL_IN_PROGRESS;
    pthread_mutex_unlock(&lock);
    return SL_NCCL_SUCCESS;
}

/* ---- kernels ---- */

/* The receive on `to` that belongs to the n-th send of `from`. */
static const message *find_receive(const kernel *to, int from, int n)
{
    for (uint32_t i = 0; i < to->message_count; i++)
        if (!to->messages[i].is_send && to->messages[i].peer == from && n-- == 0)
            return &to->messages[i];
    return NULL;
}

static int count_between(const kernel *it, int peer, bool is_send)
{
    int count = 0;
    for (uint32_t i = 0; i < it->message_count; i++)
        count += it->messages[i].is_send == is_send && it->messages[i].peer == peer;
    return count;
}

static bool names(const kernel *it, int peer)
{
    return count_between(it, peer, true) + count_between(it, peer, false) > 0;
}

/* The ranks whose kernels belong to `mine`, itself among them, as bits: those that exchange with
 * it, and with these. 0: one of them has not come to it. */
static uint32_t find_partners(const world *it, const kernel *mine)
{
    uint32_t partners = 1u << mine->comm->rank, known = 0;
    while (known != partners) {
        known = partners;
        for (int rank = 0; rank < it->size; rank++)
            for (int peer = 0; peer < it->size && (known >> rank & 1); peer++) {
                if (peer == rank || !names(it->waiting[rank], peer))
                    continue;
                if (!it->waiting[peer] || !names(it->waiting[peer], rank))
                    return 0;
                partners |= 1u << peer;
            }
    }
    return partners;
}

static bool spoils(nccl_fault fault, int rank, size_t count)
{
    const bool is_hit = how.fault == fault && (uint32_t)rank == how.fault_rank &&
                        (how.fault_bytes == 0 || how.fault_bytes == count);
    fault_count += is_hit;
    return is_hit;
}

/* Copies what was sent to this rank before, and keeps what is sent now. */
static void deliver_stale(const message *from, char *to)
{
    const int peer = from->peer;
    char *kept = malloc(from->count);
    if (!kept)
        abort();
    memcpy(kept, from->data, from->count);
    memcpy(to, sent_before[peer].count == from->count ? sent_before[peer].data : kept, from->count);
    free(sent_before[peer].data);
    sent_before[peer].data = kept;
    sent_before[peer].count = from->count;
}

static void deliver(const kernel *sender, const message *from, char *to)
{
    const int rank = sender->comm->rank;
    if (spoils(NCCL_STALE, rank, from->count)) {
        deliver_stale(from, to);
        return;
    }
    const size_t lost = spoils(NCCL_CUTS, rank, from->count) ? 4 : 0;
    memcpy(to, from->data, from->count > lost ? from->count - lost : 0);
    if (how.fault == NCCL_FLIPS && sender->number == how.fault_kernel && fault_count++ == 0) {
        const uint32_t bit = draw((uint32_t)(8 * from->count));
        to[bit / 8] = (char)((unsigned char)to[bit / 8] ^ 1u << bit % 8);
    }
}

/* Of the first two that are as long as each other. */
static void swap_received(const kernel *it)
{
    const message *first = NULL;
    for (uint32_t i = 0; i < it->message_count; i++) {
        const message *one = &it->messages[i];
        if (one->is_send || (first && one->count != first->count))
            continue;
        if (!first) {
            first = one;
            continue;
        }
        if (!spoils(NCCL_SWAPS, it->comm->rank, one->count))
            return;
        for (size_t byte = 0; byte < one->count; byte++) {
            const char kept = first->data[byte];
            first->data[byte] = one->data[byte];
            one->data[byte] = kept;
        }
        return;
    }
}

static void stray(const kernel *it)
{
    for (uint32_t i = 0; i < it->message_count; i++) {
        const message *one = &it->messages[i];
        if (!one->is_send && spoils(NCCL_STRAYS, it->comm->rank, one->count))
            for (int byte = 0; byte < 4; byte++)
                one->data[how.fault_distance + byte] = (char)~one->data[how.fault_distance + byte];
    }
}

/* Copies all that the partners send, or, only looking, says whether everything agrees. */
static bool move_all(const world *it, uint32_t partners, bool copies)
{
    for (int from = 0; from < it->size; from++) {
        const kernel *sender = it->waiting[from];
        int sent[RANKS_MAX] = {0};
        for (uint32_t i = 0; (partners >> from & 1) && i < sender->message_count; i++) {
            const message *one = &sender->messages[i];
            if (!one->is_send)
                continue;
            const message *other = find_receive(it->waiting[one->peer], from, sent[one->peer]++);
            if (!other || other->count != one->count || other->type != one->type)
                return false;
            if (copies)
                deliver(sender, one, other->data);
        }
        for (int to = 0; (partners >> from & 1) && to < it->size; to++)
            if ((partners >> to & 1) && count_between(it->waiting[to], from, false) != sent[to])
                return false;
    }
    return true;
}

static void meet(world *it, kernel *mine)
{
    it->waiting[mine->comm->rank] = mine;
    const uint32_t partners = find_partners(it, mine);
    if (partners == 0) {
        while (!mine->is_over && !it->is_aborted && !it->error)
            pthread_cond_wait(&changed, &lock);
        return;
    }
    if (move_all(it, partners, false))
        (void)move_all(it, partners, true);
    else
        it->error = INVALID_USAGE;
    for (int rank = 0; rank < it->size; rank++)
        if (partners >> rank & 1) {
            if (!it->error) {
                swap_received(it->waiting[rank]);
                stray(it->waiting[rank]);
            }
            it->waiting[rank]->is_over = true;
            it->waiting[rank] = NULL;
        }
    pthread_cond_broadcast(&changed);
}

static void touch(const kernel *it)
{
    standin_range ranges[MESSAGES_MAX];
    for (uint32_t i = 0; i < it->message_count; i++)
        ranges[i] = (standin_range){it->messages[i].data, it->messages[i].count,
                                    !it->messages[i].is_send, "exchanged"};
    standin_touched(ranges, it->message_count);
}

static void run_kernel(void *argument)
{
    kernel *it = argument;
    comm *mine = it->comm;
    world *of = mine->world;
    int device = mine->device;
    pthread_mutex_lock(&device_locks[device]);
    pthread_mutex_lock(&lock);
    const struct timespec late = {0, (long)draw(how.delay_us + 1) * 1000};
    pthread_mutex_unlock(&lock);
    nanosleep(&late, NULL);
    touch(it);
    pthread_mutex_lock(&lock);
    if (it->number == how.fail_kernel)
        of->error = REMOTE_ERROR;
    while (it->number == how.hang_kernel && !of->is_aborted)
        pthread_cond_wait(&changed, &lock);
    if (!of->is_aborted && !of->error)
        meet(of, it);
    kernel_count++;
    mine->kernels--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&device_locks[device]);
}

/* ---- groups ---- */

static int group_start(void)
{
    if (group.is_open)
        standin_fault("a group inside of a group");
    group.is_open = true;
    group.kernel = calloc(1, sizeof *group.kernel);
    return group.kernel ? SL_NCCL_SUCCESS : SYSTEM_ERROR;
}

static int add_message(message one, comm *of, void *stream)
{
    kernel *it = group.kernel;
    if (!group.is_open || it->message_count == MESSAGES_MAX || (it->comm && it->comm != of) ||
        (it->comm && group.stream != stream) || one.peer < 0 || one.peer >= of->world->size ||
        one.peer == of->rank)
        return INVALID_USAGE;
    if (!standin_is_device(one.data, one.count))
        standin_fault("%zu bytes are exchanged that are not in one piece of device memory",
                      one.count);
    it->comm = of;
    group.stream = stream;
    it->messages[it->message_count++] = one;
    return SL_NCCL_SUCCESS;
}

static int send_data(const void *data, size_t count, int type, int peer, void *of, void *stream)
{
    return add_message((message){true, (char *)(uintptr_t)data, count, type, peer}, of, stream);
}

static int receive_data(void *data, size_t count, int type, int peer, void *of, void *stream)
{
    return add_message((message){false, data, count, type, peer}, of, stream);
}

static int group_end(void)
{
    kernel *it = group.kernel;
    group.kernel = NULL;
    group.is_open = false;
    if (!it || !it->comm) {
        free(it);
        return SL_NCCL_SUCCESS;
    }
    pthread_mutex_lock(&lock);
    begin_call(it->comm, "ncclGroupEnd");
    it->number = ++begun_count;
    it->comm->kernels++;
    int result = answer(it->comm);
    pthread_mutex_unlock(&lock);
    if (standin_queue_owned(group.stream, "exchange", run_kernel, it) != 0) {
        free(it);
        return SYSTEM_ERROR;
    }
    return result;
}

/* ---- the end ---- */

static int finalize(void *of)
{
    comm *it = of;
    pthread_mutex_lock(&lock);
    begin_call(it, "ncclCommFinalize");
    int result = answer(it);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Its kernels have to be over: they hold on to it. */
static void release(comm *it)
{
    while (it->kernels > 0)
        pthread_cond_wait(&changed, &lock);
    open_count--;
    free(it);
}

static int destroy(void *of)
{
    comm *it = of;
    pthread_mutex_lock(&lock);
    begin_call(it, "ncclCommDestroy");
    release(it);
    pthread_mutex_unlock(&lock);
    return SL_NCCL_SUCCESS;
}

static int abort_comm(void *of)
{
    comm *it = of;
    const struct timespec long_time = {how.hangs_in_abort ? 10 : 0, 0};
    nanosleep(&long_time, NULL);
    pthread_mutex_lock(&lock);
    it->world->is_aborted = true;
    pthread_cond_broadcast(&changed);
    release(it);
    pthread_mutex_unlock(&lock);
    return SL_NCCL_SUCCESS;
}

static const char *get_error_string(int result)
{
    return result == REMOTE_ERROR    ? "remote process exited or there was a network error"
           : result == INVALID_USAGE ? "invalid usage"
                                     : "unhandled system error";
}

static int get_version(int *out_version)
{
    *out_version = how.version ? how.version : 22105;
    return SL_NCCL_SUCCESS;
}

const sl_nccl_calls *nccl_standin_calls(void)
{
    static const sl_nccl_calls calls = {.get_unique_id = get_unique_id,
                                        .init = init,
                                        .get_async_error = get_async_error,
                                        .finalize = finalize,
                                        .destroy = destroy,
                                        .abort = abort_comm,
                                        .group_start = group_start,
                                        .group_end = group_end,
                                        .send = send_data,
                                        .receive = receive_data,
                                        .get_error_string = get_error_string,
                                        .get_version = get_version};
    return &calls;
}

#define WRAP(type, name, ...)                                                                      \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

WRAP(sl_status, sl_nccl_load, const sl_nccl_calls **out_calls)
{
    if (how.is_absent)
        return __real_sl_nccl_load(out_calls);
    *out_calls = nccl_standin_calls();
    return SL_OK;
}

void nccl_standin_use_device(int device)
{
    device_of_thread = device;
}

void nccl_standin_reset(const nccl_standin *with)
{
    pthread_mutex_lock(&lock);
    how = *with;
    kernel_count = begun_count = open_count = fault_count = 0;
    for (int rank = 0; rank < RANKS_MAX; rank++) {
        free(sent_before[rank].data);
        sent_before[rank].data = NULL;
        sent_before[rank].count = 0;
    }
    pthread_mutex_unlock(&lock);
}

uint32_t nccl_standin_open_count(void)
{
    pthread_mutex_lock(&lock);
    uint32_t count = open_count;
    pthread_mutex_unlock(&lock);
    return count;
}

uint32_t nccl_standin_kernel_count(void)
{
    pthread_mutex_lock(&lock);
    uint32_t count = kernel_count;
    pthread_mutex_unlock(&lock);
    return count;
}

uint32_t nccl_standin_fault_count(void)
{
    pthread_mutex_lock(&lock);
    uint32_t count = fault_count;
    pthread_mutex_unlock(&lock);
    return count;
}
