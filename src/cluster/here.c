/* See here.h. A rank's rates come from the machine's profile; what estimates take from the figures
 * of a description, exchanges, copies and drives, is put into the same figures. */
#include "here.h"

#include <stdio.h>

#include "config/config.h"

/* Where only one of two budgets of shared memory was given, the other one gets what is left. */
static void set_budgets(const sl_search *search, sl_cluster_rank *rank)
{
    const sl_choice *fixed = &search->fixed;
    const bool has_device = fixed->device_memory != SL_CONFIG_UNSET;
    const bool has_host = fixed->host_memory != SL_CONFIG_UNSET;
    const bool is_shared = search->task.target.device == SL_DEVICE_CPU;
    const uint64_t shared = search->task.shared_bytes;
    rank->shared_bytes = is_shared && !(has_device && has_host) ? shared : UINT64_MAX;
    rank->budget[SL_TIER_HOST] = has_host ? fixed->host_memory : shared;
    rank->budget[SL_TIER_DISK] = fixed->disk_space;
    rank->budget[SL_TIER_DEVICE] = is_shared ? shared : search->task.device_bytes;
    if (has_device)
        rank->budget[SL_TIER_DEVICE] = fixed->device_memory;
}

/* An all-reduce counts each byte twice, and is a sum and a gather: each takes a byte at its rate.
 */
static sl_cluster_link find_link(const sl_machine *machine, sl_type type)
{
    const sl_op_rate *rate = &machine->op[SL_OP_ALL_REDUCE_GRADIENT][type];
    const double at_once = 1e30; /* a rate of 0 costs nothing */
    return (sl_cluster_link){.byte_rate = rate->byte_rate > 0 ? rate->byte_rate : at_once,
                             .efficiency = 1,
                             .seconds = rate->seconds / 2};
}

void sl_cluster_here(const sl_search *search, uint32_t node_ranks, const sl_cluster_link *network,
                     sl_cluster_rank *out_rank, sl_cluster *out_cluster)
{
    const sl_machine *machine = &search->task.machine;
    const double ranks = node_ranks;
    *out_rank = (sl_cluster_rank){.machine = *machine};
    set_budgets(search, out_rank);
    *out_cluster = (sl_cluster){
        .rank = out_rank,
        .node_gpus = node_ranks,
        .node_cores = search->task.target.worker_count * node_ranks,
        .host_link = {machine->copy_rate[SL_LANE_H2D], 1, machine->copy_seconds[SL_LANE_H2D]},
        .link = find_link(machine, search->task.type),
        .disk_bytes = out_rank->budget[SL_TIER_DISK],
        .disk_read_rate = machine->copy_rate[SL_LANE_READ] * ranks,
        .disk_write_rate = machine->copy_rate[SL_LANE_WRITE] * ranks,
        .sums = SL_CLUSTER_PAIRWISE};
    if (network)
        out_cluster->network = *network;
    snprintf(out_cluster->name, sizeof out_cluster->name, "this machine");
}
