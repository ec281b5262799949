/* What the ranks of one machine share: its cores, memory and drive; see ranks.h. */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "binding.h"
#include "ranks.h"

sl_status sl_ranks_share_cores(const sl_ranks *ranks, sl_config *config)
{
    sl_binding_share share;
    if (!ranks->world)
        return SL_OK;
    sl_comm_local(ranks->world, &config->local_rank, &config->machine_ranks);
    SL_TRY(sl_binding_find(ranks->world, &share));
    if (config->threads == SL_CONFIG_UNSET)
        config->threads = share.worker_count;
    if (sl_ranks_is_first(ranks) && sl_binding_wastes(&share))
        sl_log_write(SL_LOG_WARNING,
                     "the %u ranks of this machine are bound to %u of the %u cores that they could "
                     "use: start them by sluice launch, mpirun --bind-to none, or srun "
                     "--cpu-bind=none",
                     share.rank_count, share.used_cores, share.usable_cores);
    return SL_OK;
}

static uint64_t one_if_open(uint64_t count)
{
    return count == SL_CONFIG_UNSET ? 1 : count;
}

sl_status sl_ranks_plan_cores(sl_config *config)
{
    const uint64_t model = one_if_open(config->tp) * one_if_open(config->pp);
    const uint64_t count =
        config->ranks == SL_CONFIG_UNSET ? model * one_if_open(config->dp) : config->ranks;
    sl_binding_share share;
    if (count <= 1 || count > SL_COMM_RANKS_MAX)
        return SL_OK;
    config->machine_ranks = (uint32_t)count;
    if (config->threads != SL_CONFIG_UNSET)
        return SL_OK;
    SL_TRY(sl_binding_plan((uint32_t)count, &share));
    config->threads = share.worker_count;
    return SL_OK;
}

/* What one rank found; all ranks plan with the least of each. */
typedef struct resources {
    uint64_t shared_bytes, device_bytes, disk_bytes, worker_count;
} resources;

static sl_status find_least(const sl_ranks *ranks, resources *it)
{
    resources all[SL_COMM_RANKS_MAX];
    SL_TRY(sl_comm_all_gather(ranks->world, sizeof *it, it, all));
    for (uint32_t rank = 0; rank < ranks->table.size; rank++) {
        it->shared_bytes = sl_bits_min(it->shared_bytes, all[rank].shared_bytes);
        it->device_bytes = sl_bits_min(it->device_bytes, all[rank].device_bytes);
        it->disk_bytes = sl_bits_min(it->disk_bytes, all[rank].disk_bytes);
        it->worker_count = sl_bits_min(it->worker_count, all[rank].worker_count);
    }
    return SL_OK;
}

/* This rank's part of the windows of its communicators: memory that is in no tier. */
static uint64_t measure_windows(const sl_ranks *ranks)
{
    uint64_t bytes = 0;
    for (int group = 0; group < SL_COMM_GROUP_COUNT; group++)
        if (ranks->end[group].comm)
            bytes += sl_comm_share_bytes(ranks->end[group].comm);
    return bytes + (ranks->gpus ? sl_gpu_ranks_share_bytes(ranks->gpus) : 0);
}

/* GPUs have a second communicator for each of their groups, over which NCCL's is set up. */
static uint64_t plan_windows(const sl_comm_layout *layout, sl_device_kind kind)
{
    uint64_t bytes = 0;
    for (int group = 0; group < SL_COMM_GROUP_COUNT; group++) {
        const bool is_of_gpus = group != SL_COMM_WORLD;
        const uint32_t size = sl_comm_group_size(layout, (sl_comm_group)group);
        bytes += sl_comm_plan_share_bytes(size) * (is_of_gpus && kind == SL_DEVICE_CUDA ? 2 : 1);
    }
    return bytes;
}

/* A rank's part of what its machine has, where `count` ranks share it. */
static resources take_part(const sl_search *search, uint32_t count, uint64_t window_bytes)
{
    const sl_task *task = &search->task;
    const uint64_t part = task->shared_bytes / count;
    return (resources){part - sl_bits_min(window_bytes, part), task->device_bytes,
                       search->disk_free_bytes / count, task->target.worker_count};
}

static void set_part(sl_search *search, const resources *part)
{
    const bool has_default_disk = search->fixed.disk_space == search->disk_free_bytes;
    search->task.shared_bytes = part->shared_bytes;
    search->task.device_bytes = part->device_bytes;
    search->task.target.worker_count = (uint32_t)part->worker_count;
    search->disk_free_bytes = part->disk_bytes;
    if (has_default_disk)
        search->fixed.disk_space = part->disk_bytes;
}

/* For ranks that are not there: all of them on this machine. */
static void share_planned(const sl_ranks *ranks, sl_search *search)
{
    const uint32_t count = sl_comm_layout_ranks(&ranks->layout);
    if (count <= 1)
        return;
    search->task.window_bytes = plan_windows(&ranks->layout, search->task.target.device);
    const resources part = take_part(search, count, search->task.window_bytes);
    set_part(search, &part);
}

/* How many ranks share the work, and which of them this one is. */
static void set_place(const sl_ranks *ranks, sl_task *task)
{
    task->tp_size = task->target.rank_count = ranks->layout.tensor;
    task->dp_size = task->target.data_rank_count = ranks->layout.data;
    task->stage_count = task->target.stage_count = ranks->layout.stages;
    task->tp_rank = ranks->place.tensor;
    task->dp_rank = ranks->place.data;
    task->stage_index = ranks->place.stage;
}

sl_status sl_ranks_share(const sl_ranks *ranks, sl_search *search)
{
    uint32_t index, count;
    if (!ranks->world) {
        share_planned(ranks, search);
        return SL_OK;
    }
    sl_comm_local(ranks->world, &index, &count);
    search->task.window_bytes = measure_windows(ranks);
    resources part = take_part(search, count, search->task.window_bytes);
    SL_TRY(find_least(ranks, &part));
    set_place(ranks, &search->task);
    set_part(search, &part);
    return SL_OK;
}

/* ---- work that one rank of a machine does for the others ---- */

typedef struct errand {
    sl_hash_value key;
    uint64_t machine; /* the first rank there */
} errand;

sl_status sl_ranks_choose_one(const sl_ranks *ranks, sl_hash_value key, uint32_t *out_rank)
{
    errand all[SL_COMM_RANKS_MAX];
    const errand mine = {key, sl_comm_first_local(ranks->world)};
    SL_TRY(sl_comm_all_gather(ranks->world, sizeof mine, &mine, all));
    *out_rank = 0;
    while (memcmp(&all[*out_rank], &mine, sizeof mine) != 0)
        ++*out_rank;
    return SL_OK;
}

sl_status sl_ranks_give_text(const sl_ranks *ranks, const char *text, uint64_t bytes, uint32_t from,
                             char **out_text, uint64_t *out_bytes)
{
    uint64_t starts[SL_COMM_RANKS_MAX + 1] = {0};
    SL_TRY(sl_comm_all_gather(ranks->world, sizeof bytes, &bytes, starts + 1));
    for (uint32_t i = 0; i < ranks->table.size; i++)
        SL_TRY(sl_bits_add(starts[i], starts[i + 1], "the texts of ranks", &starts[i + 1]));
    char *all = malloc(starts[ranks->table.size] + 1);
    if (!all)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the texts of ranks");
    const sl_status status = sl_comm_gather_pieces(ranks->world, starts, text, all);
    if (status != SL_OK) {
        free(all);
        return status;
    }
    *out_bytes = starts[from + 1] - starts[from];
    memmove(all, all + starts[from], *out_bytes);
    *out_text = all;
    return SL_OK;
}
