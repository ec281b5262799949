/* Lends the engine the exchanges of NCCL; see gpu_ranks.h. */
#include "gpu_ranks.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "comm/nccl.h"
#include "device/cuda.h"
#include "kernels/kernels.h"

enum { MEETING_BYTES = 256 /* for each rank */ };

/* One communicator. */
typedef struct gpu_group {
    struct sl_gpu_ranks *gpus;
    sl_comm *host; /* of the agreements; the set's own end counts the bytes */
    sl_cuda_probe *probes[SL_NCCL_MARKS];
    sl_nccl *nccl;
    void (*post)(void *user, const char *op); /* of the table before, or NULL */
    void *post_user;
} gpu_group;

struct sl_gpu_ranks {
    const sl_device_ops *ops;
    const sl_kernel_table *kernels;
    sl_device *device;
    sl_device_stream *stream; /* of the meetings */
    void *scratch;            /* likewise */
    uint64_t scratch_bytes, taken_bytes;
    gpu_group groups[SL_GPU_GROUPS];
};

/* ---- what the communicators ask of the device ---- */

static sl_status run(sl_rank_kernel which, const sl_kernel_call *call)
{
    return sl_kernels_cuda()->ranks[which](call);
}

static sl_status queue_sum(void *stream, const sl_nccl_sum *what)
{
    const sl_op_attrs attrs = {.type = (uint16_t)what->types.wire,
                               .grad_type = (uint16_t)what->types.stored,
                               .element_count = what->count,
                               .batch = what->term_count,
                               .out = what->apart,
                               .rank_index = (uint16_t)what->own_index};
    const sl_kernel_call call = {.attrs = &attrs,
                                 .operand = {(void *)(uintptr_t)what->terms,
                                             (void *)(uintptr_t)what->own, what->out_wire,
                                             what->out_stored},
                                 .stream = stream};
    return run(SL_RANK_SUM, &call);
}

static sl_status queue_convert(void *stream, sl_comm_type from_type, sl_comm_type to_type,
                               uint64_t count, const void *from, void *to)
{
    const sl_op_attrs attrs = {
        .type = (uint16_t)from_type, .grad_type = (uint16_t)to_type, .element_count = count};
    const sl_kernel_call call = {
        .attrs = &attrs, .operand = {(void *)(uintptr_t)from, to}, .stream = stream};
    return run(SL_RANK_CONVERT, &call);
}

static sl_status set_mark(void *user, uint32_t which, void *stream)
{
    const gpu_group *it = user;
    return sl_cuda_probe_set(it->probes[which], stream);
}

static sl_status look_at_mark(void *user, uint32_t which, bool *out_is_passed)
{
    const gpu_group *it = user;
    return sl_cuda_probe_is_passed(it->probes[which], out_is_passed);
}

/* ---- the engine's table ---- */

static sl_status all_reduce(void *user, sl_type stored, sl_type type, uint64_t count, void *data)
{
    const gpu_group *it = user;
    const sl_comm_types types = {(sl_comm_type)stored, (sl_comm_type)type};
    return sl_nccl_all_reduce(it->nccl, types, count, data);
}

static sl_status reduce_scatter(void *user, sl_type stored, sl_type type, uint64_t count,
                                const void *from, void *to)
{
    const gpu_group *it = user;
    const sl_comm_types types = {(sl_comm_type)stored, (sl_comm_type)type};
    uint64_t starts[SL_COMM_RANKS_MAX + 1];
    SL_TRY(sl_comm_find_starts(sl_comm_size(it->host), count, starts));
    return sl_nccl_reduce_scatter(it->nccl, types, starts, from, to);
}

static sl_status all_gather(void *user, uint64_t bytes, const void *part, void *parts)
{
    const gpu_group *it = user;
    return sl_nccl_all_gather(it->nccl, bytes, part, parts);
}

static sl_status exchange(void *user, uint32_t rank, uint64_t bytes, const void *given, void *taken)
{
    const gpu_group *it = user;
    return sl_nccl_exchange(it->nccl, rank, bytes, given, taken);
}

static void post(void *user, const char *op)
{
    const gpu_group *it = user;
    if (it->post)
        it->post(it->post_user, op);
}

static void use(void *user, const sl_engine_queue *queue)
{
    const gpu_group *it = user;
    sl_nccl_use(it->nccl, &(sl_nccl_queue){queue->stream, queue->scratch, queue->scratch_bytes});
}

static sl_status poll(void *user)
{
    const gpu_group *it = user;
    return sl_nccl_poll(it->nccl);
}

static sl_engine_ranks make_table(gpu_group *it)
{
    return (sl_engine_ranks){.size = sl_comm_size(it->host),
                             .rank = sl_comm_rank(it->host),
                             .user = it,
                             .all_reduce = all_reduce,
                             .reduce_scatter = reduce_scatter,
                             .all_gather = all_gather,
                             .exchange = exchange,
                             .post = post,
                             .use = use,
                             .poll = poll};
}

/* ---- opening ---- */

/* What a rank has, and asks for. */
typedef struct gpu_claim {
    uint32_t first, needs; /* GPUs, of the configuration and of all ranks of the machine */
    uint32_t has_it;
} gpu_claim;

/* All ranks refuse where one has no GPU of its own: NCCL takes no two ranks on one. */
sl_status sl_gpu_ranks_choose(sl_comm *world, int first, int *out_index)
{
    uint32_t local, count;
    sl_device_info info;
    gpu_claim all[SL_COMM_RANKS_MAX];
    sl_comm_local(world, &local, &count);
    const int index = first + (int)local;
    const sl_status status = sl_device_query(SL_DEVICE_CUDA, index, &info);
    char reason[SL_STATUS_MESSAGE_BYTES];
    snprintf(reason, sizeof reason, "%s", status == SL_OK ? "" : sl_status_message());
    const gpu_claim mine = {(uint32_t)first, count, status == SL_OK};
    SL_TRY(sl_comm_all_gather(world, sizeof mine, &mine, all));
    for (uint32_t rank = 0; rank < sl_comm_size(world); rank++) {
        if (all[rank].has_it)
            continue;
        SL_FAIL(SL_ERROR_USAGE,
                "rank %u has no GPU: each rank needs one of its own, and %u ranks on a machine "
                "take the GPUs %u to %u%s%s; start fewer ranks, or use --device cpu",
                rank, all[rank].needs, all[rank].first, all[rank].first + all[rank].needs - 1,
                *reason ? "; " : "", reason);
    }
    *out_index = index;
    return SL_OK;
}

static sl_status open_device(sl_gpu_ranks *it, int index, const sl_gpu_ranks_args *args)
{
    it->ops = sl_cuda_ops();
    it->kernels = sl_kernels_cuda();
    if (!it->ops || !it->kernels)
        SL_FAIL(SL_ERROR_SYSTEM, "this build has no CUDA");
    it->scratch_bytes = (uint64_t)sl_comm_size(args->world) * MEETING_BYTES;
    SL_TRY(it->ops->open(index, &args->cuda, &it->device));
    if (it->kernels->load_ranks)
        SL_TRY(it->kernels->load_ranks());
    SL_TRY(it->ops->stream_open(it->device, SL_STREAM_DEVICE, "meeting", NULL, &it->stream));
    return it->ops->map(it->device, it->scratch_bytes, SL_MAP_PLAIN, &it->scratch);
}

static sl_status open_group(sl_gpu_ranks *it, const sl_gpu_ranks_args *args, uint32_t which)
{
    const sl_gpu_group *group = &args->groups[which];
    gpu_group *out = &it->groups[which];
    uint32_t members[SL_COMM_RANKS_MAX];
    char name[16];
    if (!group->comm)
        return SL_OK;
    const uint32_t count = sl_comm_size(group->comm);
    for (uint32_t i = 0; i < count; i++)
        members[i] = sl_comm_member(group->comm, i);
    snprintf(name, sizeof name, "gpu-%s", group->name);
    out->gpus = it;
    out->post = group->table->post;
    out->post_user = group->table->user;
    SL_TRY(sl_comm_split(args->world, name, members, count, &out->host));
    for (uint32_t i = 0; i < SL_NCCL_MARKS; i++)
        SL_TRY(sl_cuda_probe_open(&out->probes[i]));
    const sl_nccl_options options = {
        .host = out->host,
        .account = group->comm,
        .queue = {it->ops->stream_native(it->stream), it->scratch, it->scratch_bytes},
        .timeout_s = args->timeout_s,
        .device = {queue_sum, queue_convert, set_mark, look_at_mark, out}};
    SL_TRY(sl_nccl_open(&options, &out->nccl));
    *group->table = make_table(out);
    return SL_OK;
}

/* Memory of the device that is free, now that nothing is queued. */
static sl_status find_free(sl_gpu_ranks *it, uint64_t *out_bytes)
{
    sl_device_info info;
    SL_TRY(it->ops->stream_finish(it->stream));
    SL_TRY(it->ops->describe(it->device, &info));
    *out_bytes = info.free_bytes;
    return SL_OK;
}

static sl_status open_parts(sl_gpu_ranks *it, const sl_gpu_ranks_args *args)
{
    int index;
    uint64_t before = 0, after = 0;
    SL_TRY(sl_gpu_ranks_choose(args->world, args->device_index, &index));
    SL_TRY(open_device(it, index, args));
    SL_TRY(find_free(it, &before));
    for (uint32_t i = 0; i < SL_GPU_GROUPS; i++)
        SL_TRY(open_group(it, args, i));
    SL_TRY(find_free(it, &after));
    it->taken_bytes = before > after ? before - after : 0;
    sl_log_write(SL_LOG_NOTE, "NCCL takes %.1f MiB of each GPU, which no plan counts",
                 (double)it->taken_bytes / (1 << 20));
    return SL_OK;
}

sl_status sl_gpu_ranks_open(const sl_gpu_ranks_args *args, sl_gpu_ranks **out_gpus)
{
    sl_gpu_ranks *it = calloc(1, sizeof *it);
    if (!it)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the GPUs of ranks");
    const sl_status status = open_parts(it, args);
    if (status == SL_OK) {
        *out_gpus = it;
        return SL_OK;
    }
    sl_gpu_ranks_close(it);
    return status;
}

void sl_gpu_ranks_close(sl_gpu_ranks *it)
{
    if (!it)
        return;
    for (uint32_t i = 0; i < SL_GPU_GROUPS; i++) {
        gpu_group *group = &it->groups[i];
        sl_nccl_close(group->nccl);
        for (uint32_t mark = 0; mark < SL_NCCL_MARKS; mark++)
            sl_cuda_probe_close(group->probes[mark]);
        sl_comm_close(group->host);
    }
    if (it->scratch)
        it->ops->unmap(it->device, it->scratch, it->scratch_bytes, SL_MAP_PLAIN);
    if (it->stream)
        it->ops->stream_close(it->stream);
    if (it->device)
        it->ops->close(it->device);
    free(it);
}

void sl_gpu_ranks_set_timeout(sl_gpu_ranks *it, double timeout_s)
{
    for (uint32_t i = 0; i < SL_GPU_GROUPS; i++)
        if (it->groups[i].nccl)
            sl_nccl_set_timeout(it->groups[i].nccl, timeout_s);
}

sl_gpu_ranks_place sl_gpu_ranks_place_of(const sl_gpu_ranks *it)
{
    return (sl_gpu_ranks_place){it->ops, it->device, it->stream};
}

uint64_t sl_gpu_ranks_taken_bytes(const sl_gpu_ranks *it)
{
    return it->taken_bytes;
}

uint64_t sl_gpu_ranks_share_bytes(const sl_gpu_ranks *it)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < SL_GPU_GROUPS; i++)
        if (it->groups[i].host)
            bytes += sl_comm_share_bytes(it->groups[i].host);
    return bytes;
}
