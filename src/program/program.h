/* Programs: values and ops, with shapes and no memory.
 *
 * A model emits its forward ops once; sl_program_derive_step turns them into a whole training step,
 * which is the body of a loop. A program names tensors and chunks by index and never by address.
 *
 * A step is a sequence of sections. A section runs once, or is repeated for one micro-batch after
 * the other; so the size of a program does not depend on the number of micro-batches.
 *
 * Invariants: operands are defined before they are read; an op's operands follow op_list.h's order;
 * ticks are op indices; tensors are numbered in the order of first use.
 */
#ifndef SL_PROGRAM_PROGRAM_H
#define SL_PROGRAM_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "program/constant.h"
#include "program/op_list.h"
#include "rules/rule.h"
#include "sluice/custom.h"

#define SL_NONE UINT32_MAX /* no value, no tensor, no chunk */

enum { SL_CUSTOMS_MAX = 16 };  /* ops of a model's own */
enum { SL_CONSTANTS_MAX = 8 }; /* persistent slots that are filled once */

/* "fp32", "bf16" or "fp16"; valid for ever. */
const char *sl_type_name(sl_type type);

typedef enum sl_value_kind {
    SL_VALUE_ACTIVATION, /* an activation or its gradient; written and last read within one
                            iteration */
    SL_VALUE_TENSOR,     /* tensor `index` of `group`; lives inside a chunk */
    SL_VALUE_CHUNK,      /* chunk `index` of `group`, whole */
    /* Input slot `index`: filled by an INPUT op or, if there is none, by the caller before each
     * iteration. */
    SL_VALUE_INPUT,
    SL_VALUE_OUTPUT,     /* output slot `index`, for the caller after each iteration */
    SL_VALUE_PERSISTENT, /* slot `index` of device memory that outlives iterations and plans: a
                            cache, or a constant of the program */
    /* Tensor `index` of `group` where ranks keep shards of its chunk: lives inside activation
     * `whole`, which is as long as the chunk and holds it for a time. */
    SL_VALUE_PART
} sl_value_kind;

typedef struct sl_value {
    sl_value_kind kind;
    sl_group group;       /* TENSOR, CHUNK and PART */
    uint32_t index;       /* by kind, see above */
    uint32_t micro_batch; /* of the first instance; 0 for values of no micro-batch */
    uint32_t instances;   /* 1, or more: a family; instance r belongs to repetition r */
    uint64_t bytes;       /* of one instance */
    sl_type type;         /* of the elements; FP32 for values without elements */
    uint32_t whole;       /* PART: the value that it is a part of */
    char name[48];        /* for people */
} sl_value;

/* How a tensor is split over the ranks of a tensor-parallel group. */
typedef enum sl_split {
    SL_SPLIT_NONE,    /* replicated */
    SL_SPLIT_COLUMNS, /* the last axis */
    SL_SPLIT_QKV,     /* the last axis, by heads inside each of q, k, v */
    SL_SPLIT_ROWS     /* the first axis */
} sl_split;

/* A parameter tensor, or a panel (a run of rows) of one. `shape` is what this rank stores, padding
 * included. Rows from valid_rows on are padding and always zero. */
typedef struct sl_tensor_spec {
    char name[48];      /* of the whole tensor, as Hugging Face names it: "h.0.ln_1.weight" */
    uint32_t dim_count; /* 1 or 2; a vector has shape {n, 1} */
    uint64_t shape[2];
    uint64_t first_row;      /* of the panel in the whole tensor */
    uint64_t valid_rows;     /* rows of this panel without padding */
    uint64_t whole_shape[2]; /* of the whole, unpadded, unsplit tensor */
    uint64_t element_count;  /* shape[0] * shape[1] */
    sl_split split;
    /* COLUMNS and QKV: this rank's columns of the whole tensor's last axis (QKV: within each of q,
     * k and v). Stored columns behind valid_columns are padding. */
    uint64_t first_column, valid_columns;
    /* COLUMNS: this many consecutive tensor-parallel ranks store the same columns, and each one
     * computes one term of their gradient; 0: a single rank stores them. This rank is number
     * replica_index of the set. */
    uint32_t replica_count, replica_index;
    sl_rule_id rule; /* how the tensor is updated */
    bool decay;      /* weight decay applies, if it has no rate of its own */
    uint8_t rate;    /* of its own: from SL_RATE_FIRST on, in the program's rates; 0: none */
    bool is_tied;    /* the first and the last pipeline stage hold it and sum its gradient */
    float init_mean; /* initial value: init_mean + init_deviation * normal */
    float init_deviation;
    float init_bound; /* not 0: initial values are uniform in [-init_bound, init_bound) */
    bool is_adapter;  /* of LoRA */
} sl_tensor_spec;

/* Which elements of the whole tensor a rank stores: `count` ranges of `length` elements. Range k
 * begins at element first + k * stride of the whole tensor, and at element k * pitch of the stored
 * one; stored elements from `length` to `pitch` are padding. Elements are counted row by row. */
typedef struct sl_run {
    uint64_t first, length, stride, count;
    uint64_t pitch;
} sl_run;

/* The run of a tensor or panel, whatever its split. */
sl_run sl_run_of_tensor(const sl_tensor_spec *spec);

/* Elements that are contiguous in the stored tensor and in the whole one; or stored padding. */
typedef struct sl_run_piece {
    uint64_t local, whole, count; /* first element in the stored and in the whole tensor; of padding
                                     `whole` is 0 */
    bool is_padding;
} sl_run_piece;

/* The longest piece that begins at stored element `local` and ends at `end` or before. */
sl_run_piece sl_run_piece_at(const sl_run *run, uint64_t local, uint64_t end);

/* The first piece of stored elements in the range [whole, end) of the whole tensor; `count` 0: the
 * range has none. */
sl_run_piece sl_run_piece_in_whole(const sl_run *run, uint64_t whole, uint64_t end);

typedef enum sl_phase {
    SL_PHASE_FORWARD,
    SL_PHASE_RECOMPUTE,
    SL_PHASE_BACKWARD,
    SL_PHASE_UPDATE,
    SL_PHASE_COUNT
} sl_phase;

typedef struct sl_op {
    sl_op_kind kind;
    sl_op_attrs attrs;
    uint32_t operand[SL_OPERAND_MAX]; /* value indices, SL_NONE where absent */
    uint32_t segment;                 /* index into segments; SL_NONE for updates */
    uint32_t micro_batch;             /* in the first repetition of its section */
    sl_phase phase;
} sl_op;

/* A run of forward ops: the embedding, one block, one row range of the head. Sites ascend. */
typedef struct sl_segment {
    uint32_t first_op, op_count; /* in the forward program */
    uint32_t site; /* segments of one site share gradient accumulators (row ranges of the head) */
    bool is_terminal; /* ends in the loss: its backward ops follow its forward ops at once; such
                         segments come last */
    bool is_block;    /* a transformer block: `recompute full` recomputes its activations */
} sl_segment;

/* A range of a program's ops or of a plan's commands, entries [first, first + count), that is run
 * `repeat` times. Each repetition computes `micro_batches` micro-batches, the first one those from
 * first_micro_batch on. A value that only one repeated section uses is undefined at the start of
 * each repetition. A family has as many instances as each section that uses it has repetitions, and
 * repetition r uses instance r. Any other value that several sections use is the same in all of
 * them. */
typedef struct sl_section {
    uint32_t first, count;
    uint32_t first_micro_batch;
    uint32_t repeat;        /* >= 1 */
    uint32_t micro_batches; /* of one repetition; 0: one */
} sl_section;

/* Micro-batches that the repetitions before `repetition` compute. */
static inline uint32_t sl_section_micro_batches(const sl_section *section, uint32_t repetition)
{
    return repetition * (section->micro_batches > 0 ? section->micro_batches : 1);
}

/* What a matrix of Muon's directions is multiplied by; rows and columns as torch has them. */
typedef enum sl_muon_scale {
    SL_MUON_MATCH_RMS, /* 0.2 sqrt(max(rows, columns)): as large as AdamW's (Liu et al. 2025) */
    SL_MUON_ORIGINAL   /* sqrt(max(1, rows / columns)) (Jordan et al. 2024) */
} sl_muon_scale;

typedef struct sl_program {
    sl_value *values;
    uint32_t value_count, value_capacity;
    sl_op *ops;
    uint32_t op_count, op_capacity;
    sl_tensor_spec *tensors;
    uint32_t tensor_count, tensor_capacity;
    sl_segment *segments;
    uint32_t segment_count, segment_capacity;
    sl_section *sections; /* of all ops, in order; none: one section, run once */
    uint32_t section_count, section_capacity;
    uint32_t micro_batch_count;
    sl_type type;      /* compute type: of parameters and activations; set before building */
    sl_type grad_type; /* of the grad group: fp32, or `type`; likewise */
    sl_states states;  /* how the states of rules are stored, of a forward program */
    sl_frozen frozen;  /* how matrices of SL_RULE_SMALL are stored; OWN: there are none */
    sl_master master;  /* what is kept beside parameters in half precision */
    /* Tensor-parallel ranks, and the rank of this program; size 0 or 1: tensors are not split. The
     * programs of the ranks differ only in attributes and specs. */
    uint32_t tp_size, tp_rank;
    /* Data-parallel ranks, and the rank of this program; size 0 or 1: one. */
    uint32_t dp_size, dp_rank;
    /* ZeRO stage (Rajbhandari et al. 2020). A data-parallel rank stores whole chunks (0), or a
     * shard of each chunk of the optimizer states (1), also of the gradients (2), also of the
     * parameters (3). */
    uint32_t zero;
    /* Pipeline stages, and the stage of this program; count 0 or 1: one. The programs of stages
     * differ, because each stage has other layers. */
    uint32_t stage_count, stage_index;
    /* No tensor of a stage before this one is trained, so what comes from there needs no gradient.
     * Whoever sets the rules of tensors sets this too: otherwise one of two stages waits for a
     * gradient that the other one does not send. */
    bool stages_before_are_frozen;
    bool has_whole_gradients;       /* also at ZeRO 2 and 3: micro-batches accumulate in whole
                                       chunks */
    uint32_t head_ranks;            /* tensor-parallel ranks that share the rows of the head; 0 or
                                       1: each rank computes all rows */
    uint64_t mask_rows;             /* rows of a micro-batch, where targets may be masked (op
                                       HEAD_STATS): the loss is the mean over the others; else 0 */
    bool has_state[SL_GROUP_COUNT]; /* groups that the program uses */
    /* Ops of the model's own. Names, functions and `user` are the model's. */
    sl_custom_op customs[SL_CUSTOMS_MAX];
    uint32_t custom_count;
    sl_constant constants[SL_CONSTANTS_MAX];
    uint32_t constant_count;
    /* The rates of tensors in updates, of a forward program; the first two are those of `decay`.
     * rate_count 0: there are no others. */
    sl_rate rates[SL_RATES_MAX];
    uint32_t rate_count;
    sl_muon_scale muon_scale; /* of a forward program */
} sl_program;

static inline uint32_t sl_program_section_count(const sl_program *program)
{
    return program->section_count > 0 ? program->section_count : 1;
}

/* True if a data-parallel rank updates only its shard of each chunk. */
static inline bool sl_program_has_shards(const sl_program *program)
{
    return program->dp_size > 1 && program->zero > 0;
}

/* True if a rank stores only its shard of each chunk of the group. */
static inline bool sl_program_shards_group(const sl_program *program, sl_group group)
{
    if (group == SL_GROUP_PARAM)
        return sl_program_has_shards(program) && program->zero > 2;
    if (group == SL_GROUP_GRAD)
        return sl_program_has_shards(program) && program->zero > 1 && !program->has_whole_gradients;
    return sl_program_has_shards(program);
}

/* Ranks that divide each chunk of the group: dp_size, or 1 where a rank stores whole chunks. */
static inline uint32_t sl_program_shard_count(const sl_program *program, sl_group group)
{
    return sl_program_shards_group(program, group) ? program->dp_size : 1;
}

/* True if the tensor has a gradient: false if it is frozen. */
static inline bool sl_program_trains(const sl_program *program, uint32_t tensor)
{
    return sl_rule_stores(program->tensors[tensor].rule, SL_GROUP_GRAD);
}

/* The value that `value` is a part of, or itself. */
static inline uint32_t sl_program_whole(const sl_program *program, uint32_t value)
{
    const sl_value *it = &program->values[value];
    return it->kind == SL_VALUE_PART ? it->whole : value;
}

/* True if this rank's norm leaves out some blocks of a chunk (SL_BLOCK_COUNTS). */
static inline bool sl_program_counts_blocks(const sl_program *program)
{
    return program->tp_size > 1 || program->dp_size > 1 || program->stage_count > 1;
}

/* Section `index`; a program without sections has one of all its ops. */
static inline sl_section sl_program_section(const sl_program *program, uint32_t index)
{
    const sl_section whole = {0, program->op_count, 0, 1, 0};
    return program->section_count > 0 ? program->sections[index] : whole;
}

static inline sl_stored_types sl_program_stored_types(const sl_program *program)
{
    return (sl_stored_types){program->type, program->grad_type, program->states, program->frozen,
                             program->master};
}

/* How elements of a group are stored: parameters in the compute type, master weights in fp32. What
 * the codes of states stand for is fp32. Low halves of master weights have the size of bf16, and
 * are no numbers of their own. */
static inline sl_type sl_program_group_type(const sl_program *program, sl_group group)
{
    if (group == SL_GROUP_PARAM)
        return program->type;
    if (group == SL_GROUP_STATE1 || group == SL_GROUP_STATE2)
        return program->states == SL_STATES_BF16 ? SL_TYPE_BF16 : SL_TYPE_FP32;
    if (group == SL_GROUP_MASTER)
        return program->master == SL_MASTER_LOW ? SL_TYPE_BF16 : SL_TYPE_FP32;
    return group == SL_GROUP_GRAD ? program->grad_type : SL_TYPE_FP32;
}

/* ---- building (for models) ---- */

/* An empty program; close with sl_program_close. */
sl_status sl_program_open(sl_program **out_program);

/* Frees a program; NULL is fine. */
void sl_program_close(sl_program *program);

/* Appends a copy of `value`, with 1 for 0 instances; writes its index. SL_ERROR_SYSTEM when memory
 * is refused. */
sl_status sl_program_add_value(sl_program *program, const sl_value *value, uint32_t *out_value);

/* Appends a copy of `spec` and the TENSOR value of its parameter; writes the value's index. */
sl_status sl_program_add_tensor(sl_program *program, const sl_tensor_spec *spec,
                                uint32_t *out_value);

/* Starts a segment; the ops that follow belong to it. */
sl_status sl_program_add_segment(sl_program *program, const sl_segment *segment);

/* The index of an op of the model's own; appends a copy if the program has none of its name.
 * SL_ERROR_USAGE: there are too many, or two of one name differ. */
sl_status sl_program_add_custom(sl_program *program, const sl_custom_op *op, uint64_t *out_index);

/* Appends a copy of a constant. SL_ERROR_USAGE: there are too many. */
sl_status sl_program_add_constant(sl_program *program, const sl_constant *constant);

/* The name of the table in which a forward program looks tokens up, if no other op reads the table;
 * "" if one does, such as a tied head, or if there is no such table. */
const char *sl_program_lookup_table(const sl_program *program);

/* Takes over the ops and the constants of another program's model. */
void sl_program_copy_lists(const sl_program *from, sl_program *to);

/* Appends an op of `kind` to the current segment; `operands` in op_list.h's order, without optional
 * ones at the end if need be. Checks the number of operands and the bytes of each against the op's
 * shapes (SL_ERROR_INTERNAL names both). */
sl_status sl_program_add_op(sl_program *program, sl_op_kind kind, const sl_op_attrs *attrs,
                            const uint32_t *operands, uint32_t operand_count);

/* ---- the whole step ---- */

typedef enum sl_accumulation { SL_ACCUMULATE_MICRO, SL_ACCUMULATE_LAYER } sl_accumulation;
typedef enum sl_recompute {
    SL_RECOMPUTE_NONE,
    SL_RECOMPUTE_SELECTIVE,
    SL_RECOMPUTE_FULL
} sl_recompute;

/* A chunk: tensors that are moved and updated together. */
typedef struct sl_chunk {
    uint64_t elements;    /* padding included; a multiple of SL_BLOCK_ELEMENTS and, where ranks own
                             shards, of their number */
    uint64_t first_block; /* the chunk's first block among the blocks of all chunks */
    sl_rule_id rule;      /* of all its tensors */
} sl_chunk;

/* Where the layout put each tensor; owned by the layout. */
typedef struct sl_chunk_map {
    uint32_t chunk_count;
    const sl_chunk *chunks;          /* [chunk_count] */
    const uint32_t *chunk_of_tensor; /* [tensor_count] */
} sl_chunk_map;

/* In what order a stage of a pipeline takes its micro-batches. */
typedef enum sl_schedule {
    SL_SCHEDULE_1F1B, /* after one forward for each stage behind: one forward, one backward
                         (PipeDream-Flush, Narayanan et al. 2021) */
    SL_SCHEDULE_GPIPE /* all forward, then all backward (Huang et al. 2019) */
} sl_schedule;

typedef struct sl_step_options {
    uint32_t micro_batch_count; /* A >= 1 */
    sl_accumulation accumulation;
    sl_recompute recompute;
    /* Update a chunk as soon as its gradient is complete. Only without clipping, and where a step
     * with a gradient that is not finite ends the run: chunks before that one are updated then. */
    bool update_early;
    /* Between its forward and its backward ops a block's input is divided over the tensor-parallel
     * ranks (ZeRO-R, Rajbhandari et al. 2020). tp_size divides the elements of the input. */
    bool partition_activations;
    sl_schedule schedule; /* if the program is a pipeline stage */
} sl_step_options;

/* Input slots of a micro-batch, filled by INPUT ops in every section that reads them. POSITIONS: of
 * each token in its document, from 0; read only where documents are kept apart. Output slots of a
 * step: 0 the loss (double, summed over tokens), 1 the sl_step_control, 2 how many tokens that is
 * (double; only of a program with masks). */
enum { SL_INPUT_TOKENS = 0, SL_INPUT_TARGETS = 1, SL_INPUT_POSITIONS = 2, SL_INPUT_COUNT = 3 };
enum { SL_OUTPUT_LOSS = 0, SL_OUTPUT_CONTROL = 1, SL_OUTPUT_COUNTED = 2 };

/* Turns a forward program (one micro-batch) into a training step: backward ops, recomputation,
 * micro-batches in the given order, exact gradient norm, one update a chunk. The new program owns
 * copies, and has the forward program's types.
 *
 * With several ranks the step sums over them: the norm over all ranks, gradients (chunk by chunk)
 * and loss over the data-parallel ranks. Gradients are those of the mean loss over the rows of all
 * ranks.
 *
 * The bits of the result do not depend on `accumulation`, `recompute` or `update_early`, nor on
 * grad_type as long as kernels compute the same product for both types. If grad_type is half
 * precision, gradients are rounded once into the grad group: by the op that computes them if it is
 * the only one, else from fp32 accumulators. SL_ERROR_USAGE: a half-precision grad_type with
 * several micro-batches that are not accumulated by layer; an accumulator of every tensor would
 * live all step.
 */
sl_status sl_program_derive_step(const sl_program *forward, const sl_chunk_map *chunks,
                                 const sl_step_options *options, sl_program **out_step);

typedef struct sl_gather_options {
    uint32_t most; /* chunks whole at once for their uses, or as many as one op takes if that is
                    * more; 0: no limit; 1: and none past an op that does not read it. Fewer take
                    * less memory and more traffic */
    uint32_t idle_most; /* chunks that stay whole beside those, for a use that is not near: from the
                         * forward to the backward pass, and to the next micro-batch. More take more
                         * memory and less traffic */
    uint32_t ahead; /* chunks that are gathered before they are used: beside what comes between */
} sl_gather_options;

/* True if ops cannot read a chunk of parameters with this rule as this rank stores it: ranks keep
 * shards of it, or it is of a small type. */
static inline bool sl_program_gathers(const sl_program *program, sl_rule_id rule)
{
    return sl_program_shards_group(program, SL_GROUP_PARAM) || rule == SL_RULE_SMALL;
}

/* Copies a program: an op that reads a tensor of such a chunk (sl_program_gathers) finds it in an
 * activation of the chunk's elements that was gathered before. The new program owns copies.
 * SL_ERROR_SYSTEM when memory is refused. */
sl_status sl_program_gather_chunks(const sl_program *program, const sl_chunk_map *chunks,
                                   const sl_gather_options *options, sl_program **out_program);

/* ---- what the table says of an op ---- */

/* What an op does with an operand; op_list.h says what each means. */
typedef enum sl_mode {
    SL_MODE_READ,
    SL_MODE_WRITE,
    SL_MODE_UPDATE,
    SL_MODE_ADD,
    SL_MODE_GRADIENT
} sl_mode;

typedef struct sl_operand_info {
    const char *name;
    sl_mode mode;
    bool is_optional;
} sl_operand_info;

typedef struct sl_op_info {
    const char *name;
    uint32_t operand_count;
    sl_operand_info operand[SL_OPERAND_MAX];
    bool updates_chunk; /* by its rule; may run on the host lane, next to the states */
    bool is_collective; /* runs on the comm lane */
    bool is_input;      /* runs on the input lane, on the host */
    bool is_cheap;      /* `recompute selective` recomputes its outputs */
} sl_op_info;

/* The table row of an op; valid for ever. */
const sl_op_info *sl_op_info_of(sl_op_kind kind);

/* True if `op` reads operand i before writing it (READ, UPDATE; ADD and GRADIENT with their
 * flags set). */
bool sl_op_reads(const sl_op *op, uint32_t operand_index);

/* True if `op` writes operand i (all but READ). */
bool sl_op_writes(const sl_op *op, uint32_t operand_index);

/* True if operand i is there: by the attributes where they say so, else by the operand itself. */
bool sl_op_has(const sl_op *op, uint32_t operand_index);

/* The rows [*out_first, *out_end) of operand i that `op` uses: its row range where op_list.h says
 * ROW_RANGE, else all. *out_end UINT64_MAX: up to the last row.
 */
void sl_op_find_rows(const sl_op *op, uint32_t operand_index, uint64_t *out_first,
                     uint64_t *out_end);

/* Bytes of operand i by the op's shapes; 0 if they are open (AT_LEAST). */
uint64_t sl_op_operand_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t operand_index);

/* The fewest bytes that operand i may have; UINT64_MAX where the product overflows. */
uint64_t sl_op_least_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t operand_index);

/* Floating-point operations of the op's matrix products (a multiply-add counts 2). */
uint64_t sl_op_flops(sl_op_kind kind, const sl_op_attrs *attrs);

/* The fewest bytes that the op reads and writes in memory: the cost of a memory-bound op. */
uint64_t sl_op_traffic_bytes(sl_op_kind kind, const sl_op_attrs *attrs);

/* True for ops that exchange data with other ranks. TAKE_ROWS, TAKE_COLUMNS and TAKE_SHARD run on
 * the comm lane too, but copy within a rank's own memory. */
static inline bool sl_op_exchanges(sl_op_kind kind)
{
    return sl_op_info_of(kind)->is_collective && kind != SL_OP_TAKE_ROWS &&
           kind != SL_OP_TAKE_COLUMNS && kind != SL_OP_TAKE_SHARD;
}

static inline bool sl_op_is_custom(sl_op_kind kind)
{
    return kind == SL_OP_CUSTOM || kind == SL_OP_CUSTOM_BACKWARD;
}

/* True for an op that adds to an output or a gradient instead of overwriting it. */
static inline bool sl_op_adds(const sl_op_attrs *attrs)
{
    return attrs->adds_output != 0 || attrs->adds_gradient != 0;
}

#endif
