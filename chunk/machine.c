/* What a machine is taken for when nobody has measured it.
 *
 * One core of a current server reaches about 100 GFLOP/s in fp32 products and 25 GB/s of memory
 * traffic; four cores saturate the memory of a small machine. Copies of the cpu device are memcpy:
 * each byte is read and written, so half the traffic of one core.
 */
#include <stdio.h>

#include "sluice/chunk.h"

static const double core_flops = 100e9;
static const double core_bytes = 25e9;
static const uint32_t saturating_cores = 4;

sl_machine sl_machine_default(uint32_t worker_count)
{
    uint32_t workers = worker_count == 0 ? 1 : worker_count;
    uint32_t reading = workers < saturating_cores ? workers : saturating_cores;
    sl_machine machine = {
        .gemm_flops = core_flops * workers,
        .device_bytes = core_bytes * reading,
        .host_bytes = core_bytes * reading,
        .h2d_bytes = core_bytes / 2,
        .d2h_bytes = core_bytes / 2,
        .op_seconds = 5e-6,
        .copy_seconds = 5e-6,
        .shares_cores = true,
    };
    snprintf(machine.name, sizeof machine.name, "cpu, %u workers, not measured", workers);
    return machine;
}
