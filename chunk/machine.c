/* What a machine is taken for when nobody has measured it.
 *
 * One core of a current server reaches about 100 GFLOP/s in fp32 products and 25 GB/s of memory
 * traffic; four cores saturate the memory of a small machine. Copies of the cpu device are memcpy:
 * each byte is read and written, so half the traffic of one core. A disk moves 1 GB/s.
 */
#include <stdio.h>

#include "sluice/chunk.h"

static const double core_flops = 100e9;
static const double core_bytes = 25e9;
static const double disk_bytes = 1e9;
static const uint32_t saturating_cores = 4;

sl_machine sl_machine_default(uint32_t worker_count)
{
    uint32_t workers = worker_count == 0 ? 1 : worker_count;
    uint32_t reading = workers < saturating_cores ? workers : saturating_cores;
    const sl_op_rate rate = {core_flops * workers, core_bytes * reading, 0};
    sl_machine machine = {.op_seconds = 5e-6, .core_count = workers, .shares_cores = true};
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        for (int kind = 0; kind < SL_OP_COUNT; kind++)
            machine.op[kind][type] = rate;
        machine.host_adamw[type] = rate;
    }
    for (int lane = 0; lane < SL_MACHINE_LANE_COUNT; lane++) {
        bool is_disk = lane == SL_MACHINE_READ || lane == SL_MACHINE_WRITE;
        machine.copy_rate[lane] = is_disk ? disk_bytes : core_bytes / 2;
        machine.copy_seconds[lane] = is_disk ? 100e-6 : 5e-6;
        machine.copy_cores[lane] = is_disk ? 0.1 : 1.0;
    }
    machine.mixed_disk_rate = disk_bytes;
    snprintf(machine.name, sizeof machine.name, "cpu, %u workers, not measured", workers);
    return machine;
}

double sl_machine_op_seconds(const sl_machine *machine, sl_op_kind kind, const sl_op_attrs *attrs,
                             bool on_host)
{
    const sl_op_rate *rate =
        on_host ? &machine->host_adamw[attrs->type] : &machine->op[kind][attrs->type];
    double seconds = machine->op_seconds + rate->seconds;
    if (rate->flop_rate > 0)
        seconds += (double)sl_op_flops(kind, attrs) / rate->flop_rate;
    if (rate->byte_rate > 0)
        seconds += (double)sl_op_traffic_bytes(kind, attrs) / rate->byte_rate;
    return seconds;
}
