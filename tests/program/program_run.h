/* Runs GPT-2 programs on the interpreter, with parameters and tokens that depend on nothing but
 * their coordinates in the whole model, so that splits over ranks can be compared. */
#ifndef SL_TESTS_PROGRAM_RUN_H
#define SL_TESTS_PROGRAM_RUN_H

#include "interpreter.h"
#include "kernels/program_walk.h"
#include "model/architecture.h"

enum { RUN_RANKS_MAX = 4, RUN_CHUNK_ELEMENTS = 2 * SL_BLOCK_ELEMENTS };
enum { RUN_SEED = 99, RUN_FIRST_ROW = 40 }; /* of dropout */

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
static inline uint64_t run_whole_column(sl_split split, uint64_t whole, uint64_t part,
                                        uint32_t rank, uint64_t local)
{
    if (split == SL_SPLIT_COLUMNS)
        return rank * part + local;
    if (split == SL_SPLIT_QKV)
        return local / (part / 3) * (whole / 3) + rank * (part / 3) + local % (part / 3);
    return local;
}

/* Whole coordinates of element e of a tensor of one rank. */
static inline void run_coordinates(const sl_tensor_spec *spec, uint32_t rank, uint64_t e,
                                   uint64_t *row, uint64_t *column)
{
    *row = spec->first_row + e / spec->shape[1];
    *column = e % spec->shape[1];
    if (spec->dim_count == 1)
        *row = run_whole_column(spec->split, spec->whole_shape[0], spec->shape[0], rank, e);
    else
        *column =
            run_whole_column(spec->split, spec->whole_shape[1], spec->shape[1], rank, *column);
}

/* True if the whole model does not have element e of a tensor of one rank. */
static inline bool run_is_padding(const sl_tensor_spec *spec, uint32_t rank, uint64_t e)
{
    const bool is_vector = spec->dim_count == 1;
    const uint64_t whole = spec->whole_shape[is_vector ? 0 : 1];
    const uint64_t part = spec->shape[is_vector ? 0 : 1];
    const uint64_t local = is_vector ? e : e % spec->shape[1];
    if (spec->split == SL_SPLIT_COLUMNS && rank * part + local >= whole)
        return true;
    if (spec->split == SL_SPLIT_QKV)
        return rank * (part / 3) + local % (part / 3) >= whole / 3;
    return e / spec->shape[1] >= spec->valid_rows;
}

static inline void run_fill_parameters(const sl_program *program, const it_state *state,
                                       uint32_t rank)
{
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        const sl_tensor_spec *spec = &program->tensors[t];
        double *to = it_state_tensor(state, SL_GROUP_PARAM, t);
        double *master = it_state_tensor(state, SL_GROUP_MASTER, t);
        for (uint64_t e = 0; e < spec->element_count; e++) {
            uint64_t row, column;
            run_coordinates(spec, rank, e, &row, &column);
            bool is_padding = run_is_padding(spec, rank, e);
            double draw = run_draw(run_name_hash(spec->name), row, column);
            to[e] = is_padding ? 0.0 : (double)spec->init_mean + 0.3 * draw;
            if (program->type != SL_TYPE_FP32)
                master[e] = to[e];
        }
    }
}

static uint64_t run_row_tokens = 1; /* of a row, for what starts anew with it */
static bool run_masks;              /* some targets are masked */

static inline double run_token(uint32_t vocab, uint32_t micro_batch, uint64_t i)
{
    return floor((run_draw(77, micro_batch, i) + 1.0) * 0.5 * vocab);
}

/* Another share of each micro-batch, the first one's small. */
static inline bool run_is_masked(uint32_t micro_batch, uint64_t i)
{
    return run_draw(78, micro_batch, i) < 0.6 - 0.4 * micro_batch;
}

/* Targets are the next tokens. */
static inline void run_source(uint32_t vocab, uint32_t slot, uint32_t micro_batch, double *values,
                              uint64_t count)
{
    enum { DOCUMENT = 3 }; /* tokens */
    for (uint64_t i = 0; i < count; i++)
        values[i] = run_masks && slot == SL_INPUT_TARGETS && run_is_masked(micro_batch, i)
                        ? -1.0
                        : run_token(vocab, micro_batch, i + slot);
    for (uint64_t i = 0; i < count && slot == SL_INPUT_POSITIONS; i++)
        values[i] = (double)(i % run_row_tokens % DOCUMENT);
}

/* Tokens and targets of a forward program, which has no ops that fill them. */
static inline void run_fill_inputs(const it_machine *machine, uint32_t vocab, uint32_t micro_batch)
{
    for (uint32_t v = 0; v < machine->program->value_count; v++) {
        const sl_value *value = &machine->program->values[v];
        if (value->kind == SL_VALUE_INPUT)
            run_source(vocab, value->index, micro_batch, machine->data[v], value->bytes / 4);
    }
}

typedef struct run {
    uint32_t rank_count;
    sl_program *forward[RUN_RANKS_MAX], *step[RUN_RANKS_MAX];
    it_layout layout[RUN_RANKS_MAX];
    it_state state[RUN_RANKS_MAX];
    double loss, counted, control[3]; /* counted: 0 without masks */
} run;

typedef struct run_options {
    sl_model_shape shape;
    uint32_t batch, seq, tp_size;
    sl_step_options step;
    float clip;
    uint32_t iterations;
    sl_type type, grad_type;
    uint64_t range_rows; /* 0: as the model divides the rows of the head */
    bool by_document, sequence_parallel, masks;
    sl_split_layout split_layout;
    float dropout;
    sl_program *(*emit)(const struct run_options *options); /* another model, or NULL */
} run_options;

/* Appends a terminal segment for rows [first_row, first_row + rows) after the pattern of one for
 * all rows; logits and statistics are its own. */
static inline void run_append_group(sl_program *to, const sl_program *from,
                                    const sl_segment *pattern, uint64_t first_row, uint64_t rows)
{
    uint32_t *own = malloc(from->value_count * sizeof *own);
    memset(own, 0xFF, from->value_count * sizeof *own);
    assert_int_equal(sl_program_add_segment(to, pattern), SL_OK);
    for (uint32_t o = pattern->first_op; o < pattern->first_op + pattern->op_count; o++) {
        sl_op op = from->ops[o];
        uint32_t operand_count = sl_op_info_of(op.kind)->operand_count;
        for (uint32_t i = 0; i < operand_count; i++) {
            uint32_t v = op.operand[i];
            if (v == SL_NONE)
                continue;
            sl_value value = from->values[v];
            if (value.kind == SL_VALUE_ACTIVATION && sl_op_writes(&op, i) && own[v] == SL_NONE) {
                value.bytes = value.bytes / op.attrs.row_count * rows;
                assert_int_equal(sl_program_add_value(to, &value, &own[v]), SL_OK);
            }
            op.operand[i] = own[v] == SL_NONE ? v : own[v];
        }
        op.attrs.first_row = op.kind == SL_OP_HEAD_LOSS ? 0 : first_row;
        op.attrs.row_count = rows;
        if (op.kind == SL_OP_HEAD_LOSS)
            op.attrs.adds_output = first_row > 0;
        if (sl_program_add_op(to, op.kind, &op.attrs, op.operand, operand_count) != SL_OK)
            fail_msg("%s", sl_status_message());
    }
    free(own);
}

/* The same forward program with the head in ranges of `range_rows` rows: small enough to run. */
static inline sl_program *run_divide_head(const sl_program *from, uint64_t rows,
                                          uint64_t range_rows)
{
    sl_program *to;
    uint32_t ignored;
    assert_int_equal(sl_program_open(&to), SL_OK);
    to->type = from->type;
    to->grad_type = from->grad_type;
    to->mask_rows = from->mask_rows;
    for (uint32_t v = 0, t = 0; v < from->value_count; v++)
        if (from->values[v].kind == SL_VALUE_TENSOR)
            assert_int_equal(sl_program_add_tensor(to, &from->tensors[t++], &ignored), SL_OK);
        else
            assert_int_equal(sl_program_add_value(to, &from->values[v], &ignored), SL_OK);
    for (uint32_t s = 0; s < from->segment_count; s++) {
        const sl_segment *segment = &from->segments[s];
        if (segment->is_terminal) {
            for (uint64_t row = 0; row < rows; row += range_rows)
                run_append_group(to, from, segment, row,
                                 rows - row < range_rows ? rows - row : range_rows);
            continue;
        }
        assert_int_equal(sl_program_add_segment(to, segment), SL_OK);
        for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++) {
            const sl_op *op = &from->ops[o];
            assert_int_equal(sl_program_add_op(to, op->kind, &op->attrs, op->operand,
                                               sl_op_info_of(op->kind)->operand_count),
                             SL_OK);
        }
    }
    return to;
}

static inline void run_emit(run *r, const run_options *options, uint32_t rank)
{
    sl_model_options emit = {.batch = options->batch,
                             .seq = options->seq,
                             .tp_size = options->tp_size,
                             .tp_rank = rank,
                             .type = options->type,
                             .grad_type = options->grad_type,
                             .by_document = options->by_document,
                             .masks = options->masks,
                             .split_layout = options->split_layout,
                             .sequence_parallel =
                                 options->sequence_parallel && options->tp_size > 1,
                             .dropout = options->dropout};
    run_row_tokens = options->seq;
    run_masks = options->masks;
    if (options->emit)
        r->forward[rank] = options->emit(options);
    else if (sl_model_shape_emit(&options->shape, &emit, &r->forward[rank]) != SL_OK)
        fail_msg("%s", sl_status_message());
    if (options->range_rows > 0) {
        sl_program *whole = r->forward[rank];
        uint64_t rows = (uint64_t)options->batch * options->seq;
        r->forward[rank] = run_divide_head(whole, rows, options->range_rows);
        sl_program_close(whole);
    }
    r->layout[rank] = it_layout_make(r->forward[rank], RUN_CHUNK_ELEMENTS);
    if (sl_program_derive_step(r->forward[rank], &r->layout[rank].map, &options->step,
                               &r->step[rank]) != SL_OK)
        fail_msg("%s", sl_status_message());
    walk_step(r->step[rank], &r->layout[rank].map);
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
        machines[k].scalars.dropout_seed = RUN_SEED;
        machines[k].scalars.first_row = RUN_FIRST_ROW;
        machines[k].source = run_source;
        machines[k].vocab = options->shape.vocab;
    }
    for (uint32_t i = 0; i < options->iterations; i++)
        it_run(machines, r->rank_count);
    r->loss = it_slot(&machines[0], SL_VALUE_OUTPUT, SL_OUTPUT_LOSS)[0];
    if (options->masks)
        r->counted = it_slot(&machines[0], SL_VALUE_OUTPUT, SL_OUTPUT_COUNTED)[0];
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
