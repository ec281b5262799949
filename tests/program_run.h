/* Runs GPT-2 programs on the interpreter, with parameters and tokens that depend on nothing but
 * their coordinates in the whole model, so that splits over ranks can be compared. */
#ifndef SL_TESTS_PROGRAM_RUN_H
#define SL_TESTS_PROGRAM_RUN_H

#include "program_walk.h"

#include "interpreter.h"
#include "sluice/gpt2.h"

enum { RUN_RANKS_MAX = 4, RUN_CHUNK_ELEMENTS = 2 * SL_BLOCK_ELEMENTS };

static inline uint64_t run_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

/* In [-1, 1), by coordinates. */
static inline double run_draw(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t bits = run_mix(run_mix(run_mix(a + 0x9E3779B97F4A7C15ull) + b) + c);
    return (double)(bits >> 11) * 0x1p-52 - 1.0;
}

static inline uint64_t run_name_hash(const char *name)
{
    uint64_t hash = 1;
    for (; *name; name++)
        hash = run_mix(hash + (uint64_t)(unsigned char)*name);
    return hash;
}

/* Where column `local` of a part stands in the whole axis of `whole` columns. */
static inline uint64_t run_whole_column(sl_shard shard, uint64_t whole, uint64_t part,
                                        uint32_t rank, uint64_t local)
{
    if (shard == SL_SHARD_COLUMNS)
        return rank * part + local;
    if (shard == SL_SHARD_QKV)
        return local / (part / 3) * (whole / 3) + rank * (part / 3) + local % (part / 3);
    return local;
}

/* Whole coordinates of element e of a tensor of one rank. */
static inline void run_coordinates(const sl_tensor_spec *spec, uint32_t rank, uint64_t e,
                                   uint64_t *row, uint64_t *column)
{
    *row = spec->first_row + e / spec->shape[1];
    *column = e % spec->shape[1];
    if (spec->rank == 1)
        *row = run_whole_column(spec->shard, spec->whole_shape[0], spec->shape[0], rank, e);
    else
        *column =
            run_whole_column(spec->shard, spec->whole_shape[1], spec->shape[1], rank, *column);
}

static inline void run_fill_parameters(const sl_program *program, const it_state *state,
                                       uint32_t rank)
{
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        const sl_tensor_spec *spec = &program->tensors[t];
        double *to = it_state_tensor(state, SL_GROUP_PARAM, t);
        for (uint64_t e = 0; e < spec->element_count; e++) {
            uint64_t row, column;
            run_coordinates(spec, rank, e, &row, &column);
            bool is_padding = e / spec->shape[1] >= spec->valid_rows;
            double draw = run_draw(run_name_hash(spec->name), row, column);
            to[e] = is_padding ? 0.0 : (double)spec->init_mean + 0.3 * draw;
        }
    }
}

static inline double run_token(uint32_t vocab, uint32_t micro_batch, uint64_t i)
{
    return floor((run_draw(77, micro_batch, i) + 1.0) * 0.5 * vocab);
}

/* Tokens and targets of every micro-batch that a program takes. */
static inline void run_fill_inputs(const it_machine *machine, uint32_t vocab,
                                   uint32_t first_micro_batch)
{
    for (uint32_t slot = 0; slot < 2 * machine->program->micro_batch_count; slot++) {
        double *input = it_slot(machine, SL_VALUE_INPUT, slot);
        for (uint32_t v = 0; v < machine->program->value_count; v++)
            for (uint64_t i = 0;
                 machine->data[v] == input && i < machine->program->values[v].bytes / 4; i++)
                input[i] = run_token(vocab, first_micro_batch + slot / 2, i + slot % 2);
    }
}

typedef struct run {
    uint32_t rank_count;
    sl_program *forward[RUN_RANKS_MAX], *step[RUN_RANKS_MAX];
    it_layout layout[RUN_RANKS_MAX];
    it_state state[RUN_RANKS_MAX];
    double loss, control[3];
} run;

typedef struct run_options {
    sl_gpt2_shape shape;
    uint32_t batch, seq, tp_size;
    sl_step_options step;
    float clip;
    uint32_t iterations;
} run_options;

static inline void run_emit(run *r, const run_options *options, uint32_t rank)
{
    sl_gpt2_emit_options emit = {
        .batch = options->batch, .seq = options->seq, .tp_size = options->tp_size, .tp_rank = rank};
    if (sl_gpt2_emit(&options->shape, &emit, &r->forward[rank]) != SL_OK)
        fail_msg("%s", sl_status_message());
    r->layout[rank] = it_layout_make(r->forward[rank], RUN_CHUNK_ELEMENTS);
    if (sl_program_derive_step(r->forward[rank], &r->layout[rank].map, &options->step,
                               &r->step[rank]) != SL_OK)
        fail_msg("%s", sl_status_message());
    walk_step(r->step[rank], &r->layout[rank].map, options->step.update_early);
    r->state[rank] = it_state_make(&r->layout[rank]);
    run_fill_parameters(r->forward[rank], &r->state[rank], rank);
}

/* Emits, derives, checks and runs a step on every rank; run_free frees. States point into `r`. */
static inline void run_step(const run_options *options, run *r)
{
    *r = (run){.rank_count = options->tp_size};
    it_machine machines[RUN_RANKS_MAX];
    for (uint32_t k = 0; k < r->rank_count; k++) {
        run_emit(r, options, k);
        machines[k] = it_machine_make(r->step[k], &r->state[k]);
        machines[k].scalars.clip = options->clip;
        run_fill_inputs(&machines[k], options->shape.vocab, 0);
    }
    for (uint32_t i = 0; i < options->iterations; i++)
        it_run(machines, r->rank_count);
    r->loss = it_slot(&machines[0], SL_VALUE_OUTPUT, SL_OUTPUT_LOSS)[0];
    memcpy(r->control, it_slot(&machines[0], SL_VALUE_OUTPUT, SL_OUTPUT_CONTROL),
           sizeof r->control);
    for (uint32_t k = 0; k < r->rank_count; k++)
        it_machine_free(&machines[k]);
    assert_true(isfinite(r->loss) && isfinite(r->control[0]) && r->control[0] > 0.0);
}

static inline void run_free(run *r)
{
    for (uint32_t k = 0; k < r->rank_count; k++) {
        it_state_free(&r->state[k]);
        it_layout_free(&r->layout[k]);
        sl_program_close(r->forward[k]);
        sl_program_close(r->step[k]);
    }
}

#endif
