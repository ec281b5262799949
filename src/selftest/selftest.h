/* A device proves itself before anyone trusts it: what its drivers, libraries and this build's
 * kernels make of small work is compared with what the cpu makes of it.
 *
 * Parts, the most telling first (machine/proof_record.h):
 *
 *   image       the driver loaded machine code that is for this GPU
 *   order       host threads, copies, kernels and events, a thousand times over under load
 *   copies      at odd offsets, across the borders of registered host memory, with guards
 *   kernels     each op of small training steps and passes with a cache (lockstep.h)
 *   repeats     each op of some of them ten times while copies run: the same bits
 *   products    matrix products with their epilogues on two streams at once: the same bits
 *   placements  a training of two steps under three policies: the same bits
 *   reach       an index above 2^31, where that is asked for
 *
 * Nothing here judges a speed. What there is no memory or no time for is not tested, and said.
 */
#ifndef SL_SELFTEST_SELFTEST_H
#define SL_SELFTEST_SELFTEST_H

#include "device/device.h"
#include "lockstep.h"
#include "machine/proof_record.h"

typedef struct sl_selftest_args {
    sl_device_kind kind;
    int index;
    const sl_cuda_options *cuda; /* NULL: the defaults */
    const char *disk_directory;  /* where a training may keep states; NULL: none */
    uint64_t host_bytes;         /* locked host memory of `copies` */
    uint64_t border_bytes;       /* the pieces in which it is registered */
    uint64_t reach_elements;     /* of the table of `reach`; 0: that part is not asked for */
    double seconds;              /* after which nothing more begins */
    double patience;             /* seconds behind them after which the device is stuck */
    uint32_t rounds;             /* of `order` */
    uint32_t repeats;            /* of each op in `repeats`, and of products on each stream */
    bool ends_at_fault;          /* no part runs behind one that failed */
    bool is_small;               /* programs of odd sizes alone: where all is slow */
} sl_selftest_args;

/* On a GPU 2.1 GiB of host memory in pieces of 1 GiB, and 20 seconds; on the cpu, which registers
 * nothing and is compared with itself, little of all. Never `reach`. */
sl_selftest_args sl_selftest_defaults(sl_device_kind kind, int index);

/* Tests the parts that have not passed, and fills them in; those of `kernels` go on behind what is
 * done. A part that a failure of the device ends has failed, with the message; one that lacks
 * memory or time, or whose directory cannot serve, was not tested. SL_OK also if a part has failed;
 * else what keeps the test from running at all. Of ranks each may call this by itself. */
sl_status sl_selftest_run(const sl_selftest_args *args, sl_proof_part parts[SL_PROOF_PARTS]);

#endif
