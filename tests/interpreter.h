/* A plain interpreter of programs in double precision: the oracle of the program tests.
 *
 * It follows op_list.h word by word and shares no code with kernels/. Every element of any type
 * is one double, never rounded; memory starts as NaN, so a value that is read before it was written
 * shows in every result. Several ranks of a tensor-parallel group run in lockstep. Over 500 lines
 * because every op of the list stands here once.
 */
#ifndef SL_TESTS_INTERPRETER_H
#define SL_TESTS_INTERPRETER_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "interpreter_ops.h"

static inline it_call it_call_of(const it_machine *machine, uint32_t tick)
{
    const sl_op *op = &machine->program->ops[tick];
    it_call call = {.a = &op->attrs, .machine = machine};
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        if (op->operand[i] != SL_NONE)
            call.x[i] = machine->data[op->operand[i]];
    return call;
}

/* The sum over ranks, or for rows of head statistics their combination, on every rank. */
static inline void it_all_reduce_ranks(it_machine *machines, uint32_t rank_count, uint32_t tick)
{
    const sl_op_attrs *attrs = &machines[0].program->ops[tick].attrs;
    double *sum = calloc(attrs->element_count, sizeof(double));
    for (uint64_t r = 0; r < attrs->row_count; r++)
        sum[4 * r] = -INFINITY;
    for (uint32_t k = 0; k < rank_count; k++) {
        double *x = it_call_of(&machines[k], tick).x[0];
        for (uint64_t r = 0; r < attrs->row_count; r++)
            it_merge_stats(sum + 4 * r, x[4 * r], x[4 * r + 1], x[4 * r + 2]);
        for (uint64_t e = 0; e < attrs->element_count && attrs->row_count == 0; e++)
            sum[e] += x[e];
    }
    for (uint32_t k = 0; k < rank_count; k++)
        memcpy(it_call_of(&machines[k], tick).x[0], sum, attrs->element_count * sizeof(double));
    free(sum);
}

/* Runs one iteration on all ranks, op by op. */
static inline void it_run(it_machine *machines, uint32_t rank_count)
{
    for (uint32_t tick = 0; tick < machines[0].program->op_count; tick++) {
        sl_op_kind kind = machines[0].program->ops[tick].kind;
        for (uint32_t k = 0; k < rank_count && kind != SL_OP_ALL_REDUCE; k++) {
            it_call call = it_call_of(&machines[k], tick);
            it_table[kind](&call);
        }
        if (kind == SL_OP_ALL_REDUCE)
            it_all_reduce_ranks(machines, rank_count, tick);
    }
}

#endif
