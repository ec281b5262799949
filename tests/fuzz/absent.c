/* In the place of rooms that no reader needs: kernels, of which a machine profile asks the name,
 * rates of a described cluster, and what bench measures. */
#include "bench/bench.h"
#include "kernels/kernels.h"
#include "machine/exchange_cost.h"

const sl_kernel_table *sl_kernels_of(sl_device_kind kind)
{
    (void)kind;
    return NULL;
}

sl_machine sl_cluster_machine(const sl_cluster *cluster, const sl_comm_layout *layout,
                              uint32_t grad_bytes)
{
    (void)cluster;
    (void)layout;
    (void)grad_bytes;
    return (sl_machine){0};
}

const char *sl_bench_figure_name(sl_bench_figure figure)
{
    (void)figure;
    return "figure";
}
