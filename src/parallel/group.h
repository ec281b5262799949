/* A group of ranks from inside: its memory, how a kernel runs, and the forms of an activation.
 *
 * An activation is a matrix [rows, features]. A layer reads it in one form and its kernel computes
 * the result in another; bring and give exchange what the forms of the caller's arrays take:
 *
 *   WHOLE     the same on each rank
 *   SPLIT     this rank's columns
 *   PARTIAL   a term of the sum over ranks, which is what is meant
 *
 * Sizes that are products were checked before (sl_group_check_product).
 */
#ifndef SL_PARALLEL_GROUP_H
#define SL_PARALLEL_GROUP_H

#include <stdbool.h>

#include "base/workers.h"
#include "comm/comm.h"
#include "kernels/kernels.h"
#include "sluice/parallel.h"

/* What scratch memory is for: each use has its own, so that several are in use at once. */
typedef enum sl_group_scratch {
    SL_GROUP_WORKSPACE, /* of a kernel */
    SL_GROUP_INPUT,     /* x or logits, as a kernel reads them */
    SL_GROUP_GRADIENT,  /* dy, as a kernel reads it */
    SL_GROUP_OUTPUT,    /* y or dx, as a kernel writes it */
    SL_GROUP_PARTS,     /* what ranks exchange */
    SL_GROUP_SCRATCH_COUNT
} sl_group_scratch;

typedef enum sl_group_form { SL_GROUP_WHOLE, SL_GROUP_SPLIT, SL_GROUP_PARTIAL } sl_group_form;

/* The form of x * weight, where the weight is divided so. */
static inline sl_group_form sl_group_form_of(sl_parallel_split split)
{
    return split == SL_PARALLEL_COLUMNS ? SL_GROUP_SPLIT
           : split == SL_PARALLEL_ROWS  ? SL_GROUP_PARTIAL
                                        : SL_GROUP_WHOLE;
}

struct sl_parallel_group {
    sl_comm *comm; /* NULL if there is one rank */
    uint32_t rank, size;
    sl_workers *workers;
    struct {
        void *memory;
        uint64_t bytes;
    } scratch[SL_GROUP_SCRATCH_COUNT];
};

typedef struct sl_group_part {
    uint64_t first, count;
} sl_group_part;

/* Of `count` items those of rank `rank`. */
sl_group_part sl_group_part_of(const sl_parallel_group *group, uint64_t count, uint32_t rank);

/* This rank's of `count` items if they are divided, else all. */
sl_group_part sl_group_own(const sl_parallel_group *group, uint64_t count, bool is_divided);

/* SL_ERROR_USAGE if rows * columns floats are none, or more than 64 bits count. `what` stands in
 * the message. */
sl_status sl_group_check_product(uint64_t rows, uint64_t columns, const char *what);

/* Memory of [bytes], aligned to 256, until the next call of this use; its content is undefined. */
sl_status sl_group_take(sl_parallel_group *group, sl_group_scratch use, uint64_t bytes,
                        void **out_memory);

/* Runs the kernel of an op. */
sl_status sl_group_compute(sl_parallel_group *group, sl_op_kind kind, const sl_op_attrs *attrs,
                           const void *const operands[SL_OPERAND_MAX]);

/* An activation of the caller. */
typedef struct sl_group_activation {
    uint64_t rows, features;
    bool is_split;
    const float *data;
} sl_group_activation;

/* Writes where an activation lies as a kernel reads it, split or whole: the caller's array, or
 * scratch. */
sl_status sl_group_bring(sl_parallel_group *group, sl_group_scratch use,
                         const sl_group_activation *given, bool needs_split,
                         const float **out_data);

/* Writes where a kernel shall write an activation that it computes as `form`: to the caller's array
 * `data`, or to scratch. */
sl_status sl_group_place(sl_parallel_group *group, const sl_group_activation *wanted,
                         sl_group_form form, float **out_place);

/* Brings what the kernel wrote to `place` into the caller's array. */
sl_status sl_group_give(sl_parallel_group *group, const sl_group_activation *wanted,
                        sl_group_form form, const float *place);

#endif
