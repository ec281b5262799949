/* What the files that derive a training step share; private to the room.
 *
 * Words: a forward value or op is one of the forward program; its counterpart in the step belongs
 * to one turn. A turn is the first micro-batch, the last one, or all those between, which are one
 * repeated section: so there are three of them at most, however many micro-batches there are. A
 * stage of a pipeline that takes a micro-batch back for each that it sends forward has as many
 * turns as micro-batches that it keeps, and each of them is that of many micro-batches
 * (pipeline.c).
 *
 * Files: step.c the schedule; pipeline.c that of a stage; instance.c counterparts of forward values
 * and ops; recompute.c which of them are forgotten and made again; backward.c one rule an op kind;
 * gradient.c the way of a gradient from the op that makes it to AdamW.
 */
#ifndef SL_PROGRAM_STEP_H
#define SL_PROGRAM_STEP_H

#include "build.h"

enum { SL_TURNS_MAX = 3, SL_PARTS_MAX = 2 };

/* A forward value, whatever the turn. */
typedef struct sl_step_value {
    uint32_t reader_count; /* operands that read it, over all forward ops */
    bool is_forgotten;     /* dies after its segment's forward, is made again on demand */
    bool is_partitioned;   /* of it a part is kept on each rank, and all are gathered on demand */
    bool is_wanted;        /* scratch of recompute.c, false between calls */
    uint32_t filled[2]; /* an input whose value each section fills again: forward, backward; SL_NONE
                         * where each has a value of its own */
} sl_step_value;

/* A forward value in one turn. */
typedef struct sl_turn_value {
    uint32_t counterpart;     /* SL_NONE: not made, or forgotten */
    uint32_t gradient;        /* SL_NONE: none yet */
    bool gradient_is_partial; /* a sum over the tensor-parallel ranks is still to come */
    uint64_t gradient_rows;   /* rows below this one have been written */
    uint32_t part;            /* of a partitioned one, what this rank keeps; SL_NONE: all still */
} sl_turn_value;

/* A parameter tensor and the way of its gradient. */
typedef struct sl_step_tensor {
    uint32_t param, grad; /* step values of it in these groups */
    uint32_t last_site;   /* of the last segment that uses it */
    uint32_t sum; /* where parts add up: `grad`, or an fp32 sum beside it; SL_NONE: nowhere yet */
    uint32_t open_parts; /* parts of the gradient still to come */
    bool is_partial;     /* each tensor-parallel rank has a term of the gradient */
} sl_step_tensor;

typedef struct sl_step_chunk {
    uint32_t value[SL_GROUP_COUNT]; /* step values; SL_NONE in unused groups */
    uint32_t gradient;    /* what tensors' gradients are parts of: the chunk, or, where ranks keep
                           * shards of it, a value that lives until they are summed */
    uint32_t open_writes; /* to its gradient, still to come */
    bool is_cleared;      /* its gradient; CLEAR was emitted */
} sl_step_chunk;

typedef struct sl_step {
    const sl_program *forward; /* borrowed, as the next two */
    const sl_chunk_map *map;
    const sl_step_options *options;
    sl_program *program; /* the step; handed out at the end */

    /* What the ops that are emitted now belong to. */
    uint32_t turn;
    uint32_t micro_batch, instances; /* of the turn: the first, and how many */
    bool is_first, is_last;          /* no op of this kind was emitted before, or will be */
    sl_section section;              /* the one under way; `count` stands when it is over */
    uint32_t segment;
    sl_phase phase;

    uint32_t turn_count;
    uint32_t pass_count;  /* how often the backward ops of a forward op are emitted */
    bool refills_inputs;  /* all sections fill one value */
    uint32_t return_turn; /* whose gradient comes when the present micro-batch goes; SL_NONE */
    bool holds_return;    /* the gradient for the stage before waits for what that one sends */
    uint32_t held_gradient, held_op; /* and is this, of that forward op */
    struct sl_slot *slots;           /* pipeline.c's: [turns * forward values] */
    struct sl_link *links;
    uint32_t link_count, link_capacity;

    sl_step_value *values;      /* [forward values] */
    sl_turn_value *turn_values; /* [turns * forward values], see sl_instance_of */
    sl_step_tensor *tensors;    /* [tensors] */
    sl_step_chunk *chunks;      /* [chunks] */
    uint32_t
        *deferred; /* [forward ops * SL_OPERAND_MAX]: accumulators of deferred uses, or SL_NONE */
    uint32_t
        *complete; /* [chunks]: those whose last gradient write belongs to the rule under way */
    uint32_t complete_count;
    uint32_t norm; /* of all gradients, SL_NONE before its first use */
} sl_step;

/* ---- step.c ---- */

/* The section under way is over; the next one begins, where inputs have to be filled again. */
sl_status sl_step_begin_section(sl_step *step, const sl_section *next);

/* What follows belongs to a turn of those that begin_section need not be called for: the first
 * micro-batch, those between, the last. */
sl_status sl_step_begin_turn(sl_step *step, uint32_t turn);

/* A micro-batch of the turn, forward but for what ends in the loss, which runs as it goes backward.
 */
sl_status sl_step_emit_pass_forward(sl_step *step);
sl_status sl_step_emit_pass_backward(sl_step *step);

/* All micro-batches, segment by segment. */
sl_status sl_step_emit_by_layer(sl_step *step);

/* ---- pipeline.c ---- */

/* Writes the turns and passes of a stage of a pipeline that interleaves. */
void sl_pipeline_open(sl_step *step);

/* The ops of a stage in the order of `options`, up to the last backward one. */
sl_status sl_pipeline_emit(sl_step *step);

/* Of an interleaved stage, when all ops stand: a turn keeps what one section makes and another one
 * reads in one value, whichever micro-batch it is. */
sl_status sl_pipeline_settle(sl_step *step);

/* The counterpart of a forward EXCHANGE, together with what comes in return. */
sl_status sl_pipeline_emit_exchange(sl_step *step, uint32_t op_index);

/* Sends a gradient to the stage before, or holds it: of forward op `op_index`, which took. */
sl_status sl_pipeline_give_back(sl_step *step, uint32_t op_index, uint32_t gradient);

/* ---- instance.c ---- */

/* Makes the parameter, gradient and chunk values of the step. */
sl_status sl_instance_open(sl_step *step);

/* The next section: inputs have to be filled again. */
void sl_instance_forget_inputs(sl_step *step);

/* Makes families of values that are needed in several repeated sections, of others single ones. */
sl_status sl_instance_settle_families(sl_step *step);

/* Appends an op of the current turn, segment and phase. `operands` has the table's count. */
sl_status sl_instance_emit(sl_step *step, sl_op_kind kind, const sl_op_attrs *attrs,
                           const uint32_t *operands);

/* A new ACTIVATION value of the current turn, called `prefix` + `name`. */
sl_status sl_instance_add_activation(sl_step *step, const char *prefix, const char *name,
                                     uint64_t bytes, sl_type type, uint32_t *out_value);

/* The same of all turns: an accumulator. */
sl_status sl_instance_add_shared(sl_step *step, const char *prefix, const char *name,
                                 uint64_t bytes, sl_type type, uint32_t *out_value);

/* A forward value in the current turn. */
sl_turn_value *sl_instance_of(const sl_step *step, uint32_t forward_value);

/* Makes the counterpart of an activation in the current turn, for whatever writes it. */
sl_status sl_instance_make(sl_step *step, uint32_t forward_value, uint32_t *out_value);

/* Appends the counterpart of a forward op. ACTIVATION values that it writes are made, those it
 * reads must be there. */
sl_status sl_instance_emit_op(sl_step *step, const sl_op *forward_op);

/* The counterpart of a forward value as it stands; SL_ERROR_INTERNAL when there is none. An input
 * is filled where a section first asks for it. */
sl_status sl_instance_find(sl_step *step, uint32_t forward_value, uint32_t *out_value);

/* ---- recompute.c ---- */

sl_status sl_recompute_open(sl_step *step);

/* Forgets the counterparts that a segment's forward leaves behind for recomputation, and keeps a
 * part of those that ranks keep together. */
sl_status sl_recompute_forget(sl_step *step, uint32_t segment_index);

/* The counterpart of a forward value, recomputed or gathered first if it was forgotten. */
sl_status sl_recompute_need(sl_step *step, uint32_t forward_value, uint32_t *out_value);

/* ---- backward.c ---- */

/* Counts readers. */
void sl_backward_open(sl_step *step);

/* Emits the backward ops of a forward op for the current turn. */
sl_status sl_backward_emit(sl_step *step, uint32_t op_index);

/* ---- gradient.c, of activations ---- */

/* What an op is about to write or add to a gradient. */
typedef struct sl_contribution {
    uint64_t first_row, end_row; /* whole values: 0 and UINT64_MAX */
    sl_type type;                /* of the elements that the op writes */
    bool is_partial;             /* each tensor-parallel rank has a term of it */
} sl_contribution;

/* The gradient of a forward value, about to be contributed to: the value and whether the
 * contribution adds (else it writes). */
sl_status sl_gradient_contribute(sl_step *step, uint32_t forward_value,
                                 const sl_contribution *contribution, uint32_t *out_gradient,
                                 uint32_t *out_adds);

/* Adds the whole of step value `term` to the gradient of a forward value. `term` itself becomes the
 * gradient where there was none and `may_alias`. */
sl_status sl_gradient_add(sl_step *step, uint32_t forward_value, uint32_t term, bool may_alias);

/* Declares `gradient` to be the gradient of a forward value. */
void sl_gradient_set(sl_step *step, uint32_t forward_value, uint32_t gradient);

/* The finished gradient of a forward value, summed over ranks and rounded to the value's type where
 * needed; SL_NONE if the loss does not depend on it. For the rule of the op that makes the value.
 */
sl_status sl_gradient_take(sl_step *step, uint32_t forward_value, uint32_t *out_gradient);

/* The same where each tensor-parallel rank has a term of it, which the caller sums. */
sl_status sl_gradient_take_terms(sl_step *step, uint32_t forward_value, uint32_t *out_terms);

/* ---- gradient.c, of parameters ---- */

/* A backward op that computes parts of the gradients of parameters. */
typedef struct sl_backward_op {
    uint32_t forward_op; /* whose rule emits it */
    sl_op_kind kind;
    sl_op_attrs attrs;
    uint32_t operand[SL_OPERAND_MAX]; /* step values; those of parts are filled in */
    struct {
        uint32_t parameter; /* operand of the forward op; one that is absent has no part */
        uint32_t gradient;  /* operand of this op */
    } part[SL_PARTS_MAX];
    uint32_t part_count;
    bool is_partial; /* of the rows of one tensor-parallel rank */
} sl_backward_op;

sl_status sl_gradient_open(sl_step *step);

/* True for a use of a tensor at another site than its last. */
bool sl_gradient_is_deferred(const sl_step *step, const sl_op *forward_op, uint32_t tensor);

/* Finds where the parts are left: fills their operands and sets in the attributes whether the op
 * adds, and what it stores. */
sl_status sl_gradient_open_parts(sl_step *step, sl_backward_op *op);

/* Emits the op and closes its parts: sums move on, and chunks become complete. */
sl_status sl_gradient_close_parts(sl_step *step, const sl_backward_op *op);

/* ---- gradient.c, of chunks ---- */

/* Norm, and with update_early AdamW, of the chunks that became complete. Ops that are emitted next
 * belong to the update until the caller says otherwise, as after sl_gradient_finish. */
sl_status sl_gradient_consume_complete(sl_step *step);

/* What is left after the last backward op. */
sl_status sl_gradient_finish(sl_step *step);

#endif
