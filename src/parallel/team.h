/* A team from inside: its memory, how a kernel runs, and the forms of an activation.
 *
 * An activation is a matrix [rows, features]. A layer reads it in one form and its kernel computes
 * the result in another; bring and give exchange what the forms of the caller's arrays take:
 *
 *   WHOLE     the same on each rank
 *   SPLIT     this rank's columns
 *   PARTIAL   a term of the sum over ranks, which is what is meant
 *
 * Sizes that are products were checked before (sl_team_check_product).
 */
#ifndef SL_PARALLEL_TEAM_H
#define SL_PARALLEL_TEAM_H

#include <stdbool.h>

#include "base/workers.h"
#include "comm/comm.h"
#include "kernels/kernels.h"
#include "sluice/parallel.h"

/* What scratch memory is for: each use has its own, so that several are in use at once. */
typedef enum sl_team_scratch {
    SL_TEAM_WORKSPACE, /* of a kernel */
    SL_TEAM_INPUT,     /* x or logits, as a kernel reads them */
    SL_TEAM_GRADIENT,  /* dy, as a kernel reads it */
    SL_TEAM_OUTPUT,    /* y or dx, as a kernel writes it */
    SL_TEAM_PARTS,     /* what ranks exchange */
    SL_TEAM_SCRATCH_COUNT
} sl_team_scratch;

typedef enum sl_team_form { SL_TEAM_WHOLE, SL_TEAM_SPLIT, SL_TEAM_PARTIAL } sl_team_form;

/* The form of x * weight, where the weight is divided so. */
static inline sl_team_form sl_team_form_of(sl_parallel_split split)
{
    return split == SL_PARALLEL_COLUMNS ? SL_TEAM_SPLIT
           : split == SL_PARALLEL_ROWS  ? SL_TEAM_PARTIAL
                                        : SL_TEAM_WHOLE;
}

struct sl_parallel_team {
    sl_comm *comm; /* NULL if there is one rank */
    uint32_t rank, size;
    sl_workers *workers;
    struct {
        void *memory;
        uint64_t bytes;
    } scratch[SL_TEAM_SCRATCH_COUNT];
};

typedef struct sl_team_part {
    uint64_t first, count;
} sl_team_part;

/* Of `count` items those of rank `rank`. */
sl_team_part sl_team_part_of(const sl_parallel_team *team, uint64_t count, uint32_t rank);

/* This rank's of `count` items if they are divided, else all. */
sl_team_part sl_team_own(const sl_parallel_team *team, uint64_t count, bool is_divided);

/* SL_ERROR_USAGE if rows * columns floats are none, or more than 64 bits count. `what` stands in
 * the message. */
sl_status sl_team_check_product(uint64_t rows, uint64_t columns, const char *what);

/* Memory of [bytes], aligned to 256, until the next call of this use; its content is undefined. */
sl_status sl_team_take(sl_parallel_team *team, sl_team_scratch use, uint64_t bytes,
                       void **out_memory);

/* Runs the kernel of an op. */
sl_status sl_team_compute(sl_parallel_team *team, sl_op_kind kind, const sl_op_attrs *attrs,
                          const void *const operands[SL_OPERAND_MAX]);

/* An activation of the caller. */
typedef struct sl_team_activation {
    uint64_t rows, features;
    bool is_split;
    const float *data;
} sl_team_activation;

/* Writes where an activation lies as a kernel reads it, split or whole: the caller's array, or
 * scratch. */
sl_status sl_team_bring(sl_parallel_team *team, sl_team_scratch use,
                        const sl_team_activation *given, bool needs_split, const float **out_data);

/* Writes where a kernel shall write an activation that it computes as `form`: to the caller's array
 * `data`, or to scratch. */
sl_status sl_team_place(sl_parallel_team *team, const sl_team_activation *wanted, sl_team_form form,
                        float **out_place);

/* Brings what the kernel wrote to `place` into the caller's array. */
sl_status sl_team_give(sl_parallel_team *team, const sl_team_activation *wanted, sl_team_form form,
                       const float *place);

#endif
