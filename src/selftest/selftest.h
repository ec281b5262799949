/* A device proves itself before anyone trusts it: what its drivers, libraries and this build's
 * kernels make of small work is compared with what the cpu makes of it.
 *
 * Parts, the most telling first:
 *
 *   order       events, waits, and copies behind kernels, a thousand times over
 *   copies      at odd offsets, across the borders of registered host memory, with guards
 *   kernels     each op of small training steps and passes with a cache (lockstep.h)
 *   placements  a training of two steps under three policies: the same bits
 *
 * Nothing here judges a speed. What there is no memory or no time for is not tested, and said.
 */
#ifndef SL_SELFTEST_SELFTEST_H
#define SL_SELFTEST_SELFTEST_H

#include "device/device.h"
#include "lockstep.h"

typedef enum sl_proof_outcome {
    SL_PROOF_PASSED,
    SL_PROOF_FAILED,
    SL_PROOF_NOT_TESTED
} sl_proof_outcome;

enum { SL_PROOF_PARTS = 4 };

typedef struct sl_proof_part {
    const char *name;
    sl_proof_outcome outcome;
    char text[SL_FAULT_BYTES]; /* what was found, or why it was not tested, or how much was */
    double seconds;
} sl_proof_part;

typedef struct sl_selftest_args {
    sl_device_kind kind;
    int index;
    const sl_cuda_options *cuda; /* NULL: the defaults */
    const char *disk_directory;  /* where a training may keep states; NULL: none */
    uint64_t host_bytes;         /* locked host memory of `copies` */
    uint64_t border_bytes;       /* the pieces in which it is registered */
    double seconds;              /* after which `kernels` begins no further program */
    bool is_small;               /* programs of odd sizes alone, fewer rounds: where all is slow */
} sl_selftest_args;

/* On a GPU 2.1 GiB of host memory in pieces of 1 GiB, and 10 seconds; on the cpu, which registers
 * nothing and is compared with itself, little of all. */
sl_selftest_args sl_selftest_defaults(sl_device_kind kind, int index);

/* Fills in all parts. A part that a failure of the device ends has failed, with the message; one
 * that lacks memory, or whose directory cannot serve, was not tested. SL_OK
 * also if a part has failed; else what keeps the test from running at all. */
sl_status sl_selftest_run(const sl_selftest_args *args, sl_proof_part out_parts[SL_PROOF_PARTS]);

/* True if none has failed. */
bool sl_selftest_has_passed(const sl_proof_part parts[SL_PROOF_PARTS]);

#endif
