#include "exchange_cost.h"

#include <math.h>
#include <stdio.h>

static double link_rate(const sl_cluster_link *link)
{
    return link->byte_rate * link->efficiency;
}

/* Members of a group on one node, whose neighbours are `stride` ranks apart. */
static uint32_t count_near(const sl_cluster *cluster, uint32_t size, uint32_t stride)
{
    uint32_t fit = stride == 0 || stride >= cluster->node_gpus ? 1 : cluster->node_gpus / stride;
    return fit < size ? fit : size;
}

static uint32_t stride_of(const sl_comm_layout *layout, sl_comm_group group)
{
    if (group == SL_COMM_TENSOR)
        return 1;
    return group == SL_COMM_DATA ? layout->tensor : layout->tensor * layout->data;
}

/* The last node may be filled in part; what is shared is counted as on a full one. */
sl_exchange_cost sl_exchange_cost_of(const sl_cluster *cluster, const sl_comm_layout *layout,
                                     sl_comm_group group)
{
    const uint32_t size = sl_comm_group_size(layout, group);
    const uint32_t near = count_near(cluster, size, stride_of(layout, group));
    sl_exchange_cost cost = {.ranks = size, .leaves_node = near < size};
    if (size == 1)
        return cost;
    const bool is_ring = cluster->sums == SL_CLUSTER_RING;
    const double others = (double)(size - 1) / size;
    const double on_link = is_ring ? others : (double)(near - 1) / size;
    const double off_node = is_ring ? others / near : (double)(size - near) / size;
    const sl_cluster_link *slow_link = cost.leaves_node ? &cluster->network : &cluster->link;
    cost.byte_seconds = near > 1 ? on_link / link_rate(&cluster->link) : 0;
    if (cost.leaves_node)
        cost.byte_seconds =
            fmax(cost.byte_seconds, off_node * cluster->node_gpus / link_rate(&cluster->network));
    cost.seconds = slow_link->seconds * (is_ring ? size - 1 : 1);
    return cost;
}

double sl_exchange_cost_seconds(const sl_exchange_cost *cost, double bytes)
{
    return cost->ranks == 1 ? 0 : cost->seconds + bytes * cost->byte_seconds;
}

/* Beyond a node all its GPUs may send at once. */
double sl_exchange_cost_send_seconds(const sl_cluster *cluster, const sl_comm_layout *layout,
                                     double bytes)
{
    if (layout->stages == 1)
        return 0;
    const bool is_near = sl_comm_layout_ranks(layout) <= cluster->node_gpus;
    const sl_cluster_link *link = is_near ? &cluster->link : &cluster->network;
    return link->seconds + bytes * (is_near ? 1 : cluster->node_gpus) / link_rate(link);
}

/* ---- one rank as a machine ---- */

/* Attention reaches the share of a product's rate that the guess for a GPU gives it. */
static void set_compute(const sl_cluster *cluster, sl_machine *machine)
{
    const sl_machine guess = sl_machine_default_gpu(0, 1);
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        for (int type = 0; type < SL_TYPE_COUNT; type++) {
            const double share =
                guess.op[kind][type].flop_rate / guess.op[SL_OP_LINEAR][type].flop_rate;
            machine->op[kind][type] =
                (sl_op_rate){share * cluster->flop_rate[type] * cluster->gemm_efficiency,
                             cluster->byte_rate * cluster->byte_efficiency, 0};
        }
    machine->op_seconds = cluster->op_seconds;
}

/* The rate of an op whose kernels' table counts `counted` bytes for each byte that is exchanged
 * `times` times. */
static sl_op_rate exchange_rate(const sl_exchange_cost *cost, double counted, double times)
{
    if (cost->ranks == 1)
        return (sl_op_rate){0};
    return (sl_op_rate){0, counted / (times * cost->byte_seconds), times * cost->seconds};
}

static void set_tensor_exchanges(const sl_exchange_cost *tensor, sl_type type, sl_machine *machine)
{
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        if (sl_op_exchanges((sl_op_kind)kind))
            machine->op[kind][type] = exchange_rate(tensor, 2, 2);
    const sl_op_kind rows[] = {SL_OP_GATHER_ROWS, SL_OP_SCATTER_ROWS, SL_OP_GATHER_COLUMNS,
                               SL_OP_SCATTER_COLUMNS};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        machine->op[rows[i]][type] = exchange_rate(tensor, 1 + 1.0 / tensor->ranks, 1);
}

static void set_data_exchanges(const sl_exchange_cost *data, sl_type type, uint32_t grad_bytes,
                               sl_machine *machine)
{
    const double stored = grad_bytes, wire = (double)sl_type_bytes(type);
    machine->op[SL_OP_ALL_REDUCE_GRADIENT][type] = exchange_rate(data, 2 * stored / wire, 2);
    machine->op[SL_OP_REDUCE_SCATTER_GRADIENT][type] = exchange_rate(data, 2 * stored / wire, 1);
    machine->op[SL_OP_ALL_GATHER_CHUNK][type] = exchange_rate(data, 2, 1);
    const double both = 1 + 1.0 / data->ranks; /* the whole chunk and a shard of it */
    machine->op[SL_OP_REDUCE_SCATTER_SHARD][type] = exchange_rate(data, both * stored / wire, 1);
    machine->op[SL_OP_ALL_GATHER_SHARD][type] = exchange_rate(data, both, 1);
}

static void set_copies(const sl_cluster *cluster, sl_machine *machine)
{
    const double gpus = cluster->node_gpus;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        if (!sl_lane_copies((sl_lane)lane))
            continue;
        machine->copy_rate[lane] = link_rate(&cluster->host_link);
        machine->copy_seconds[lane] = cluster->host_link.seconds;
        machine->copy_cores[lane] = 0;
    }
    if (cluster->disk_bytes == 0)
        return;
    machine->copy_rate[SL_LANE_READ] = cluster->disk_read_rate / gpus;
    machine->copy_rate[SL_LANE_WRITE] = cluster->disk_write_rate / gpus;
    machine->mixed_disk_rate = (cluster->disk_read_rate + cluster->disk_write_rate) / 2 / gpus;
}

/* Its rates of exchanges were measured, or are guesses, within the machine. Those of data-parallel
 * ranks are counted by estimates of a whole step. */
static sl_machine measured_machine(const sl_cluster *cluster, const sl_exchange_cost *tensor)
{
    sl_machine machine = cluster->rank->machine;
    for (int type = 0; tensor->leaves_node && type < SL_TYPE_COUNT; type++)
        set_tensor_exchanges(tensor, (sl_type)type, &machine);
    return machine;
}

sl_machine sl_cluster_machine(const sl_cluster *cluster, const sl_comm_layout *layout,
                              uint32_t grad_bytes)
{
    const uint32_t cores = cluster->node_cores / cluster->node_gpus;
    const sl_exchange_cost tensor = sl_exchange_cost_of(cluster, layout, SL_COMM_TENSOR);
    const sl_exchange_cost data = sl_exchange_cost_of(cluster, layout, SL_COMM_DATA);
    if (cluster->rank)
        return measured_machine(cluster, &tensor);
    sl_machine machine = sl_machine_default_gpu(0, cores ? cores : 1);
    machine.host_memory_rate =
        cluster->host_byte_rate * cluster->host_efficiency / cluster->node_gpus;
    set_compute(cluster, &machine);
    set_copies(cluster, &machine);
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        set_tensor_exchanges(&tensor, (sl_type)type, &machine);
        set_data_exchanges(&data, (sl_type)type, grad_bytes, &machine);
        machine.host_update[type].byte_rate = machine.host_memory_rate;
    }
    machine.is_described = true;
    snprintf(machine.name, sizeof machine.name, "%.50s, described", cluster->name);
    return machine;
}
