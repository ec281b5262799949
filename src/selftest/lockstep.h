/* Runs a program on the cpu, op by op, and each op once more on a device, from the same inputs: so
 * a wrong kernel is known by its name and its shape, and a right one behind it is not blamed.
 *
 * The cpu's results go on; the device's are compared and dropped. Ops whose arithmetic is the same
 * on every device (kernels/kernels.h) must agree in every bit, all others within a share of the
 * largest number of the operand, since that is what sums of rounded terms are off by. A device's
 * operands lie between guards. What an op writes whole is poisoned before, what an op only reads
 * must not change.
 *
 * Inputs are drawn: parameters as the model asks, tokens and targets below the vocabulary.
 */
#ifndef SL_SELFTEST_LOCKSTEP_H
#define SL_SELFTEST_LOCKSTEP_H

#include "bench/timed_device.h"
#include "chunk/chunk.h"
#include "machine/proof_record.h"
#include "program/program.h"

/* What was found; text "": nothing. */
typedef struct sl_fault {
    char text[SL_PROOF_TEXT_BYTES];
} sl_fault;

typedef struct sl_lockstep_args {
    sl_timed_device *cpu, *device; /* borrowed */
    const sl_program *program;     /* a step on one rank, or a forward program */
    const sl_layout *layout;       /* of its tensors */
    uint32_t vocab;                /* ids of tokens are below it */
    uint64_t seed;
    uint32_t repeats; /* above 1: each op runs so often while copies run, and has the bits of its
                         own first run each time; the cpu's are not compared */
    uint64_t end_ns;  /* no op begins later; 0: no end */
    const sl_op_kind *only; /* the device runs no other ops; NULL: all */
} sl_lockstep_args;

/* Writes the first fault, with op, shape, element, and both numbers, and how many ops ran.
 * SL_ERROR_*: a device refused something. */
sl_status sl_lockstep_run(const sl_lockstep_args *args, sl_fault *out_fault, uint64_t *out_ops);

#endif
