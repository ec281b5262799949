/* The rates of a machine: guesses where nothing was measured, rates scaled to another number of
 * workers or ranks, and the seconds of one op.
 *
 * The guess for the cpu device: one core of a current server reaches about 100 GFLOP/s in fp32
 * products and 25 GB/s of memory traffic. Four cores saturate the memory of a small machine, eight
 * that of a machine with a large GPU. Copies are memcpy, which reads and writes each byte, so one
 * core copies at half its memory traffic. A disk moves 1 GB/s.
 *
 * The guess for a GPU: the rates of an H200, which has 132 multiprocessors, in proportion to the
 * GPU's own multiprocessors. Half precision: 790 TFLOP/s, as published for training on one H200.
 * fp32 runs outside of tensor cores, at a guessed four fifths of 67 TFLOP/s; memory traffic is
 * guessed as four fifths of 4.8 TB/s. Our attention kernels are much slower than that, so attention
 * has rates of its own (docs/decisions/0010-cuda.md). Copies over the link take 55 GB/s in each
 * direction, in both at once, and keep no core busy. The compute lane uses no core of the host.
 * Host memory moves what eight cores saturate; copies of the link and updates share that rate.
 */
#include <math.h>
#include <stdio.h>

#include "base/plural.h"
#include "chunk/chunk.h"

static const double core_flops = 100e9;
static const double core_bytes = 25e9;
static const double disk_bytes = 1e9;
static const double exchange_bytes = 5e9, exchange_seconds = 50e-6;
static const uint32_t saturating_cores = 4;

static const uint32_t gpu_multiprocessors = 132;
static const double gpu_half_flops = 790e12, gpu_fp32_flops = 0.8 * 67e12;
static const struct {
    sl_op_kind kind;
    double half_flops, fp32_flops;
} gpu_attention[] = {{SL_OP_ATTENTION, 250e12, 22e12},
                     {SL_OP_ATTENTION_CACHED, 250e12, 22e12},
                     {SL_OP_ATTENTION_BACKWARD, 140e12, 18e12}};
static const double gpu_bytes = 0.8 * 4.8e12;
static const double link_bytes = 55e9;
static const uint32_t saturating_cores_beside_gpu = 8;

static double reading_bytes(uint32_t workers, uint32_t saturating)
{
    return core_bytes * (workers < saturating ? workers : saturating);
}

static void set_ops(sl_machine *machine, sl_type type, sl_op_rate rate)
{
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        machine->op[kind][type] = rate;
}

/* The ranks of one machine exchange data through its memory. The bytes that a collective reads and
 * writes move at about one fifth of the memory traffic of one core. */
static void set_collectives(sl_machine *machine, sl_type type)
{
    sl_machine_set_exchanges(machine, type, (sl_op_rate){0, exchange_bytes, exchange_seconds});
}

static void set_copies(sl_machine *machine, double rate, double cores)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        bool is_disk = lane == SL_LANE_READ || lane == SL_LANE_WRITE;
        if (!sl_lane_copies((sl_lane)lane))
            continue;
        machine->copy_rate[lane] = is_disk ? disk_bytes : rate;
        machine->copy_seconds[lane] = is_disk ? 100e-6 : 5e-6;
        machine->copy_cores[lane] = is_disk ? 0.1 : cores;
    }
    machine->mixed_disk_rate = disk_bytes;
}

sl_machine sl_machine_default(uint32_t worker_count)
{
    uint32_t workers = worker_count == 0 ? 1 : worker_count;
    const sl_op_rate rate = {core_flops * workers, reading_bytes(workers, saturating_cores), 0};
    sl_machine machine = {.op_seconds = 5e-6, .core_count = workers, .shares_cores = true};
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        set_ops(&machine, (sl_type)type, rate);
        set_collectives(&machine, (sl_type)type);
        machine.host_update[type] = rate;
    }
    set_copies(&machine, core_bytes / 2, 1.0);
    snprintf(machine.name, sizeof machine.name, "cpu, %u worker%s, a guess", workers,
             sl_plural(workers));
    return machine;
}

/* The rates of attention on `part` of an H200. */
static void set_attention(sl_machine *machine, sl_type type, double part)
{
    for (size_t i = 0; i < sizeof gpu_attention / sizeof gpu_attention[0]; i++) {
        double flops =
            type == SL_TYPE_FP32 ? gpu_attention[i].fp32_flops : gpu_attention[i].half_flops;
        machine->op[gpu_attention[i].kind][type].flop_rate = part * flops;
    }
}

sl_machine sl_machine_default_gpu(uint32_t multiprocessor_count, uint32_t worker_count)
{
    uint32_t workers = worker_count == 0 ? 1 : worker_count;
    uint32_t multiprocessors = multiprocessor_count ? multiprocessor_count : gpu_multiprocessors;
    double part = (double)multiprocessors / gpu_multiprocessors;
    double host_bytes = reading_bytes(workers, saturating_cores_beside_gpu);
    sl_machine machine = {.op_seconds = 5e-6, .core_count = workers};
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        double flops = type == SL_TYPE_FP32 ? gpu_fp32_flops : gpu_half_flops;
        set_ops(&machine, (sl_type)type, (sl_op_rate){part * flops, part * gpu_bytes, 0});
        set_attention(&machine, (sl_type)type, part);
        set_collectives(&machine, (sl_type)type);
        machine.host_update[type] = (sl_op_rate){core_flops * workers, host_bytes, 0};
    }
    set_copies(&machine, link_bytes, 0);
    machine.host_memory_rate = core_bytes * saturating_cores_beside_gpu;
    snprintf(machine.name, sizeof machine.name, "GPU of %u multiprocessors, a guess",
             multiprocessors);
    return machine;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static void scale_rate(sl_op_rate *rate, double flops, double bytes)
{
    rate->flop_rate *= flops;
    rate->byte_rate *= bytes;
}

static void scale_ops(sl_machine *machine, double flops, double bytes)
{
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        for (int type = 0; type < SL_TYPE_COUNT; type++) {
            if (sl_op_exchanges((sl_op_kind)kind))
                continue;
            scale_rate(&machine->op[kind][type], flops, bytes);
            scale_rate(&machine->adding_op[kind].rate[type], flops, bytes);
        }
}

/* What takes arithmetic gains by each core until memory bounds it, as it bounds AdamW. A rate near
 * AdamW's is bound so already. */
static double scale_update_rate(double rate, double adamw, double flops, double bytes)
{
    const double near = 0.9;
    if (rate >= near * adamw)
        return rate * bytes;
    return smaller(rate * flops, fmax(rate, adamw) * bytes);
}

static void scale_update(const sl_machine *machine, sl_update_rates *rates, double flops,
                         double bytes)
{
    for (int states = 0; states < SL_STATES_COUNT; states++)
        for (int type = 0; type < SL_TYPE_COUNT; type++) {
            double *device = &rates->device[states][type], *host = &rates->host[states][type];
            if (machine->shares_cores)
                *device = scale_update_rate(*device, machine->op[SL_OP_ADAMW][type].byte_rate,
                                            flops, bytes);
            *host = scale_update_rate(*host, machine->host_update[type].byte_rate, flops, bytes);
        }
}

/* To be called before the rates of ADAMW are scaled. */
static void scale_updates(sl_machine *machine, double flops, double bytes)
{
    for (int master = 0; master < SL_MASTER_COUNT; master++)
        for (int kind = 0; kind < SL_OP_COUNT; kind++)
            scale_update(machine, &machine->update[master][kind], flops, bytes);
}

static void share_among_ranks(sl_machine *machine, double ranks)
{
    machine->host_memory_rate /= ranks;
    machine->copy_rate[SL_LANE_READ] /= ranks;
    machine->copy_rate[SL_LANE_WRITE] /= ranks;
    machine->mixed_disk_rate /= ranks;
}

void sl_machine_scale(sl_machine *machine, uint32_t worker_count, uint32_t rank_count)
{
    const double measured = machine->worker_count, ranks = rank_count;
    const double cores = machine->core_count > measured ? machine->core_count : measured;
    const uint32_t saturating =
        machine->shares_cores ? saturating_cores : saturating_cores_beside_gpu;
    if (measured <= 0 || (worker_count == measured && rank_count == 1))
        return;
    const double flops = smaller(worker_count, cores / ranks) / measured;
    const double bytes = smaller(reading_bytes(worker_count, saturating),
                                 reading_bytes((uint32_t)cores, saturating) / ranks) /
                         reading_bytes((uint32_t)measured, saturating);
    scale_updates(machine, flops, bytes);
    if (machine->shares_cores)
        scale_ops(machine, flops, bytes);
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        scale_rate(&machine->host_update[type], flops, bytes);
    share_among_ranks(machine, ranks);
    machine->worker_count = worker_count;
    machine->core_count = cores / ranks > worker_count ? cores / ranks : worker_count;
    machine->is_scaled = true;
}

bool sl_machine_is_guess(const sl_machine *machine)
{
    return !machine->is_measured && !machine->is_described;
}

const char *sl_machine_basis(const sl_machine *machine)
{
    if (!machine->is_measured)
        return machine->is_described ? "described rates" : "a guess";
    if (machine->is_quick)
        return machine->is_scaled ? "a quick bench, scaled" : "a quick bench";
    return machine->is_scaled ? "measured rates, scaled" : "measured rates";
}

void sl_machine_set_exchanges(sl_machine *machine, sl_type type, sl_op_rate all_reduce)
{
    static const sl_op_kind halves[] = {SL_OP_REDUCE_SCATTER_GRADIENT, SL_OP_ALL_GATHER_CHUNK};
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        if (sl_op_exchanges((sl_op_kind)kind))
            machine->op[kind][type] = all_reduce;
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++)
        machine->op[halves[i]][type].byte_rate *= 2;
}

sl_op_kind sl_machine_rate_kind(sl_op_kind kind)
{
    switch ((int)kind) { /* nothing measures these: they do the work of their kin on their bytes */
    case SL_OP_CUSTOM:
    case SL_OP_SWIGLU:
    case SL_OP_SCALE:
    case SL_OP_ROTARY:
        return SL_OP_GELU;
    case SL_OP_CUSTOM_BACKWARD:
    case SL_OP_SWIGLU_BACKWARD:
        return SL_OP_GELU_BACKWARD;
    case SL_OP_RMSNORM:
        return SL_OP_LAYERNORM;
    case SL_OP_RMSNORM_BACKWARD:
        return SL_OP_LAYERNORM_BACKWARD;
    case SL_OP_ORTHOGONALISE: /* products of parameters' sizes */
        return SL_OP_LINEAR;
    case SL_OP_TAKE_SHARD:
        return SL_OP_TAKE_ROWS;
    case SL_OP_DEQUANTIZE: /* most of its bytes are those that it writes */
        return SL_OP_CLEAR;
    default:
        break;
    }
    return sl_op_info_of(kind)->updates_chunk ? SL_OP_ADAMW : kind;
}

static const sl_op_rate *find_rate(const sl_machine *machine, sl_op_kind kind,
                                   const sl_op_attrs *attrs, bool on_host)
{
    if (on_host)
        return &machine->host_update[attrs->type];
    const sl_op_kind like = sl_machine_rate_kind(kind);
    if (sl_op_adds(attrs) && machine->adding_op[like].is_measured)
        return &machine->adding_op[like].rate[attrs->type];
    return &machine->op[like][attrs->type];
}

/* 0: the update has no rate of its own. */
static double find_update_rate(const sl_machine *machine, sl_op_kind kind, const sl_op_attrs *attrs,
                               bool on_host)
{
    double rate = 0;
    if (!sl_op_info_of(kind)->updates_chunk)
        return 0;
    for (int master = (int)attrs->master_type; master >= SL_MASTER_FP32 && rate <= 0; master--) {
        const sl_update_rates *rates = &machine->update[master][kind];
        rate = on_host ? rates->host[attrs->state_type][attrs->type]
                       : rates->device[attrs->state_type][attrs->type];
    }
    return rate;
}

double sl_machine_op_seconds(const sl_machine *machine, sl_op_kind kind, const sl_op_attrs *attrs,
                             bool on_host)
{
    const double update_rate = find_update_rate(machine, kind, attrs, on_host);
    if (update_rate > 0)
        return machine->op_seconds + (double)sl_op_traffic_bytes(kind, attrs) / update_rate;
    const sl_op_rate *rate = find_rate(machine, kind, attrs, on_host);
    double seconds = machine->op_seconds + rate->seconds;
    if (rate->flop_rate > 0)
        seconds += (double)sl_op_flops(kind, attrs) / rate->flop_rate;
    if (rate->byte_rate > 0)
        seconds += (double)sl_op_traffic_bytes(kind, attrs) / rate->byte_rate;
    if (sl_op_is_custom(kind))
        seconds +=
            (kind == SL_OP_CUSTOM ? 1 : 2) * (double)attrs->row_seconds * (double)attrs->row_count;
    return seconds;
}
