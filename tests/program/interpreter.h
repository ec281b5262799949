/* A plain interpreter of programs in double precision: the oracle of the program tests.
 *
 * It follows op_list.h word by word and shares no code with kernels/. Every element of any type
 * is one double, never rounded; memory starts as NaN, so a value that is read before it was written
 * shows in every result. Several tensor-parallel ranks run in lockstep.
 */
#ifndef SL_TESTS_INTERPRETER_H
#define SL_TESTS_INTERPRETER_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "interpreter_ops.h"

/* An op in one repetition of its section. */
typedef struct it_moment {
    uint32_t tick, repetition;
} it_moment;

static inline it_call it_call_of(const it_machine *machine, it_moment now)
{
    const sl_op *op = &machine->program->ops[now.tick];
    it_call call = {.a = &op->attrs, .machine = machine};
    call.drop = (drop_call){call.a, &machine->scalars,
                            machine->micro_batch + op->micro_batch + now.repetition};
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        if (op->operand[i] == SL_NONE)
            continue;
        const sl_value *value = &machine->program->values[op->operand[i]];
        uint64_t instance = value->instances > 1 ? now.repetition : 0;
        call.x[i] = machine->data[op->operand[i]] + instance * it_element_count(value);
    }
    return call;
}

static inline void it_fill_input(const it_machine *machine, it_moment now)
{
    const sl_op *op = &machine->program->ops[now.tick];
    const sl_value *value = &machine->program->values[op->operand[0]];
    machine->source(machine->vocab, value->index, op->micro_batch + now.repetition,
                    machine->data[op->operand[0]], it_element_count(value));
}

/* The sum over ranks, on every rank. */
static inline void it_all_reduce_ranks(it_machine *machines, uint32_t rank_count, it_moment now)
{
    const sl_op_attrs *attrs = &machines[0].program->ops[now.tick].attrs;
    double *sum = calloc(attrs->element_count, sizeof(double));
    for (uint32_t k = 0; k < rank_count; k++) {
        const double *x = it_call_of(&machines[k], now).x[0];
        for (uint64_t e = 0; e < attrs->element_count; e++)
            sum[e] += x[e];
    }
    for (uint32_t k = 0; k < rank_count; k++)
        memcpy(it_call_of(&machines[k], now).x[0], sum, attrs->element_count * sizeof(double));
    free(sum);
}

/* Each row's statistics of all ranks combined, on every rank. */
static inline void it_combine_ranks(it_machine *machines, uint32_t rank_count, it_moment now)
{
    const uint64_t rows = machines[0].program->ops[now.tick].attrs.row_count;
    double *all = calloc(4 * rows, sizeof(double));
    for (uint64_t r = 0; r < rows; r++)
        all[4 * r] = -INFINITY;
    for (uint32_t k = 0; k < rank_count; k++) {
        const double *x = it_call_of(&machines[k], now).x[0];
        for (uint64_t r = 0; r < rows; r++)
            it_merge_stats(all + 4 * r, x[4 * r], x[4 * r + 1], x[4 * r + 2]);
        for (uint64_t r = 0; r < rows; r++)
            all[4 * r + 3] = x[4 * r + 3];
    }
    for (uint32_t k = 0; k < rank_count; k++)
        memcpy(it_call_of(&machines[k], now).x[0], all, 4 * rows * sizeof(double));
    free(all);
}

/* The sums of all ranks added, on every rank. */
static inline void it_add_norms(it_machine *machines, uint32_t rank_count, it_moment now)
{
    double sum = 0.0;
    for (uint32_t k = 0; k < rank_count; k++)
        sum += it_call_of(&machines[k], now).x[0][0];
    for (uint32_t k = 0; k < rank_count; k++)
        it_call_of(&machines[k], now).x[0][0] = sum;
}

/* Rank k's rows of x, of which `from_all` has those of all ranks. */
static inline void it_share_rows(it_machine *machines, uint32_t rank_count, it_moment now,
                                 bool gathers)
{
    const sl_op_attrs *attrs = &machines[0].program->ops[now.tick].attrs;
    const uint64_t each = attrs->row_count * attrs->in;
    double *all = calloc(rank_count * each, sizeof *all);
    for (uint32_t k = 0; k < rank_count; k++) {
        const double *x = it_call_of(&machines[k], now).x[0];
        for (uint64_t e = 0; e < (gathers ? each : rank_count * each); e++)
            all[gathers ? k * each + e : e] += x[e];
    }
    for (uint32_t k = 0; k < rank_count; k++)
        memcpy(it_call_of(&machines[k], now).x[1], gathers ? all : all + k * each,
               (gathers ? rank_count : 1) * each * sizeof *all);
    free(all);
}

/* GATHER_COLUMNS, SCATTER_COLUMNS, TAKE_COLUMNS: element by element. */
static inline void it_share_columns(it_machine *machines, uint32_t rank_count, it_moment now)
{
    const sl_op *op = &machines[0].program->ops[now.tick];
    const uint64_t R = op->attrs.row_count, I = op->attrs.in, O = op->attrs.out;
    double *all = calloc(R * I, sizeof *all);
    for (uint32_t k = 0; k < rank_count; k++) {
        const double *x = it_call_of(&machines[k], now).x[0];
        for (uint64_t r = 0; r < R; r++)
            for (uint64_t c = 0; c < I; c++)
                if (op->kind == SL_OP_GATHER_COLUMNS)
                    all[r * I + c] = c / O == k ? x[r * O + c % O] : all[r * I + c];
                else if (op->kind == SL_OP_SCATTER_COLUMNS || k == 0)
                    all[r * I + c] += x[r * I + c];
    }
    for (uint32_t k = 0; k < rank_count; k++) {
        double *y = it_call_of(&machines[k], now).x[1];
        if (op->kind == SL_OP_GATHER_COLUMNS)
            memcpy(y, all, R * I * sizeof *all);
        for (uint64_t e = 0; e < R * O && op->kind != SL_OP_GATHER_COLUMNS; e++) {
            const uint64_t c = k * O + e % O;
            y[e] = (op->attrs.adds_gradient ? y[e] : 0.0) + (c < I ? all[e / O * I + c] : 0.0);
        }
    }
    free(all);
}

static inline void it_run_op(it_machine *machines, uint32_t rank_count, it_moment now)
{
    sl_op_kind kind = machines[0].program->ops[now.tick].kind;
    if (kind == SL_OP_GATHER_COLUMNS || kind == SL_OP_SCATTER_COLUMNS ||
        kind == SL_OP_TAKE_COLUMNS) {
        it_share_columns(machines, rank_count, now);
        return;
    }
    if (kind == SL_OP_TAKE_ROWS) {
        for (uint32_t k = 0; k < rank_count; k++) {
            const it_call call = it_call_of(&machines[k], now);
            const uint64_t each = call.a->row_count * call.a->in;
            memcpy(call.x[1], call.x[0] + k * each, each * sizeof(double));
        }
        return;
    }
    if (kind == SL_OP_GATHER_ROWS || kind == SL_OP_SCATTER_ROWS) {
        it_share_rows(machines, rank_count, now, kind == SL_OP_GATHER_ROWS);
        return;
    }
    if (kind == SL_OP_ALL_REDUCE || kind == SL_OP_ALL_REDUCE_TENSOR) {
        it_all_reduce_ranks(machines, rank_count, now);
        return;
    }
    if (kind == SL_OP_ALL_REDUCE_NORM) {
        it_add_norms(machines, rank_count, now);
        return;
    }
    if (kind == SL_OP_ALL_REDUCE_STATS) {
        it_combine_ranks(machines, rank_count, now);
        return;
    }
    for (uint32_t k = 0; k < rank_count; k++) {
        it_call call = it_call_of(&machines[k], now);
        if (kind == SL_OP_INPUT)
            it_fill_input(&machines[k], now);
        else
            it_table[kind](&call);
    }
}

static inline void it_forget_values(const it_machine *machine, uint32_t section_index)
{
    for (uint32_t v = 0; v < machine->program->value_count; v++) {
        const sl_value *value = &machine->program->values[v];
        if (machine->section[v] != section_index || value->kind != SL_VALUE_ACTIVATION)
            continue;
        for (uint64_t e = 0; e < it_element_count(value); e++)
            machine->data[v][e] = NAN;
    }
}

/* Runs one iteration on all ranks, section by section, op by op. */
static inline void it_run(it_machine *machines, uint32_t rank_count)
{
    for (uint32_t s = 0; s < sl_program_section_count(machines[0].program); s++) {
        const sl_section section = sl_program_section(machines[0].program, s);
        for (uint32_t r = 0; r < section.repeat; r++) {
            for (uint32_t k = 0; k < rank_count; k++)
                it_forget_values(&machines[k], s);
            for (uint32_t o = section.first; o < section.first + section.count; o++)
                it_run_op(machines, rank_count, (it_moment){o, r});
        }
    }
}

#endif
