/* Not yet. */
#include "disk.h"

sl_status sl_disk_measure(const sl_bench_options *options, sl_bench *bench)
{
    (void)options, (void)bench;
    return SL_OK;
}
