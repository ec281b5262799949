/* Backward rules, one for each op kind. A rule takes the finished gradient of the op's output,
 * finds the forward values that it needs (recomputed where forgotten), and emits ops that
 * contribute to the gradients of the op's inputs (gradient.c).
 *
 * The gradient of an output y may become the gradient of an input x (a residual, an in-place op).
 * Later rules may then change it, because no rule reads it as the gradient of y again: all readers
 * of y stand behind the op that writes y, so their rules have been emitted before. An ADD in place
 * is the exception (may_share_gradient).
 */
#include "autodiff.h"
#include "base/status.h"

typedef struct rule {
    sl_status (*emit)(sl_autodiff *diff, uint32_t op_index);
    uint32_t parameters; /* bit i: operand i may be a parameter, whose gradient the rule emits */
} rule;

static const sl_op *forward_op(const sl_autodiff *diff, uint32_t op_index)
{
    return &diff->forward->ops[op_index];
}

static bool wants_gradient(const sl_autodiff *diff, uint32_t forward_value)
{
    return forward_value != SL_NONE &&
           diff->forward->values[forward_value].kind == SL_VALUE_ACTIVATION &&
           diff->values[forward_value].is_trained;
}

/* True if dx of an op that reads this weight is one term of a sum over the tensor-parallel ranks:
 * the weight is split over them, and not along the features of x (split `inner`). */
static bool makes_partial(const sl_autodiff *diff, uint32_t weight_value, sl_split inner)
{
    const sl_value *value = &diff->forward->values[weight_value];
    if (value->kind != SL_VALUE_TENSOR)
        return false;
    sl_split split = diff->forward->tensors[value->index].split;
    return split != SL_SPLIT_NONE && split != inner;
}

/* True if what `op` writes depends on a tensor that is trained, on this stage or on one before. */
static bool depends_on_trained(const sl_autodiff *diff, const sl_op *op)
{
    const sl_program *forward = diff->forward;
    if (op->kind == SL_OP_EXCHANGE)
        return !forward->stages_before_are_frozen;
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++) {
        const uint32_t v = op->operand[i];
        if (v == SL_NONE || !sl_op_reads(op, i))
            continue;
        const sl_value *value = &forward->values[v];
        if (value->kind == SL_VALUE_TENSOR ? sl_program_trains(forward, value->index)
                                           : diff->values[v].is_trained)
            return true;
    }
    return false;
}

void sl_backward_open(sl_autodiff *diff)
{
    for (uint32_t o = 0; o < diff->forward->op_count; o++) {
        const sl_op *op = forward_op(diff, o);
        const bool is_trained = depends_on_trained(diff, op);
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++) {
            if (op->operand[i] == SL_NONE)
                continue;
            sl_autodiff_value *it = &diff->values[op->operand[i]];
            if (sl_op_reads(op, i))
                it->reader_count++;
            if (sl_op_writes(op, i))
                it->is_trained = it->is_trained || is_trained;
        }
    }
}

static sl_status emit_nothing(sl_autodiff *diff, uint32_t op_index)
{
    (void)diff;
    (void)op_index;
    return SL_OK;
}

static sl_status emit_embed_position(sl_autodiff *diff, uint32_t op_index)
{
    enum { WPE, X };
    const sl_op *op = forward_op(diff, op_index);
    uint32_t dx, dwpe;
    SL_TRY(sl_gradient_take(diff, op->operand[X], &dx));
    if (dx == SL_NONE)
        return SL_OK;
    SL_TRY(sl_autodiff_find_grad(diff, op->operand[WPE], false, &dwpe));
    if (dwpe == SL_NONE)
        return SL_OK;
    return sl_autodiff_emit(diff, SL_OP_EMBED_POSITION_BACKWARD, &op->attrs,
                            (uint32_t[]){dx, dwpe});
}

static sl_status emit_embed_tokens(sl_autodiff *diff, uint32_t op_index)
{
    enum { TOKENS, PANEL, X };
    const sl_op *op = forward_op(diff, op_index);
    uint32_t tokens, dx, dpanel;
    SL_TRY(sl_gradient_take(diff, op->operand[X], &dx));
    if (dx == SL_NONE)
        return SL_OK;
    SL_TRY(sl_autodiff_find_grad(diff, op->operand[PANEL], false, &dpanel));
    if (dpanel == SL_NONE)
        return SL_OK;
    SL_TRY(sl_autodiff_find(diff, op->operand[TOKENS], &tokens));
    return sl_autodiff_emit(diff, SL_OP_EMBED_TOKENS_BACKWARD, &op->attrs,
                            (uint32_t[]){tokens, dx, dpanel});
}

/* LAYERNORM and RMSNORM, which has no beta: its later operands are one place nearer. */
static sl_status emit_norm(sl_autodiff *diff, uint32_t op_index)
{
    enum { X, GAMMA, BETA };
    const sl_op *op = forward_op(diff, op_index);
    const bool has_beta = op->kind == SL_OP_LAYERNORM;
    const uint32_t y = GAMMA + 1 + has_beta, stats_of = y + 1;
    const bool is_partial = op->attrs.row_count < op->attrs.batch * op->attrs.seq;
    const sl_contribution all_rows = {0, UINT64_MAX, (sl_type)op->attrs.type, false};
    sl_op_attrs attrs = op->attrs;
    uint32_t x, gamma, stats, dy, dx = SL_NONE, dgamma, dbeta = SL_NONE;
    SL_TRY(sl_gradient_take(diff, op->operand[y], &dy));
    if (dy == SL_NONE)
        return SL_OK;
    SL_TRY(sl_recompute_need(diff, op->operand[X], &x));
    SL_TRY(sl_recompute_need(diff, op->operand[stats_of], &stats));
    SL_TRY(sl_autodiff_find(diff, op->operand[GAMMA], &gamma));
    SL_TRY(sl_autodiff_find_grad(diff, op->operand[GAMMA], is_partial, &dgamma));
    if (has_beta)
        SL_TRY(sl_autodiff_find_grad(diff, op->operand[BETA], is_partial, &dbeta));
    if (wants_gradient(diff, op->operand[X]))
        SL_TRY(sl_gradient_contribute(diff, op->operand[X], &all_rows, &dx, &attrs.adds_output));
    return sl_autodiff_emit(diff, has_beta ? SL_OP_LAYERNORM_BACKWARD : SL_OP_RMSNORM_BACKWARD,
                            &attrs, (uint32_t[]){x, gamma, stats, dy, dx, dgamma, dbeta});
}

enum { LINEAR_X, LINEAR_WEIGHT, LINEAR_BIAS, LINEAR_RESIDUAL, LINEAR_Y };

/* True if each tensor-parallel rank has all of the weight, as of one of the two that make up an
 * adapter. What the ranks multiply it with differs: x is a term of a sum over them, or y is what
 * each of them reads for features of its own. */
static bool has_whole_weight(const sl_autodiff *diff, const sl_op *op)
{
    const sl_value *value = &diff->forward->values[op->operand[LINEAR_WEIGHT]];
    return diff->forward->tp_size > 1 && value->kind == SL_VALUE_TENSOR &&
           diff->forward->tensors[value->index].split == SL_SPLIT_NONE;
}

/* Ranks that store the same columns use them for different query heads, so each computes one term
 * of the gradient; so does each rank that has a whole weight. */
static sl_status find_linear_grad(sl_autodiff *diff, const sl_op *op, uint32_t parameter,
                                  uint32_t *out_grad)
{
    const bool is_partial =
        parameter != SL_NONE &&
        ((parameter == op->operand[LINEAR_WEIGHT] && has_whole_weight(diff, op)) ||
         diff->forward->tensors[diff->forward->values[parameter].index].replica_count > 1);
    return sl_autodiff_find_grad(diff, parameter, is_partial, out_grad);
}

/* A term of the gradient of y makes terms of those of x and of a whole weight: so the terms are not
 * summed here. */
static sl_status take_linear_gradient(sl_autodiff *diff, const sl_op *op, uint32_t *out_dy)
{
    const uint32_t y = op->operand[LINEAR_Y];
    return has_whole_weight(diff, op) && diff->values[y].gradient_is_partial
               ? sl_gradient_take_terms(diff, y, out_dy)
               : sl_gradient_take(diff, y, out_dy);
}

static sl_status emit_linear_weight(sl_autodiff *diff, uint32_t op_index, uint32_t dy)
{
    const sl_op *op = forward_op(diff, op_index);
    sl_op_attrs attrs = op->attrs;
    uint32_t x = SL_NONE, dweight, dbias;
    SL_TRY(find_linear_grad(diff, op, op->operand[LINEAR_WEIGHT], &dweight));
    SL_TRY(find_linear_grad(diff, op, op->operand[LINEAR_BIAS], &dbias));
    if (dweight == SL_NONE && dbias == SL_NONE)
        return SL_OK;
    if (dweight == SL_NONE)
        attrs.in = 0;
    else
        SL_TRY(sl_recompute_need(diff, op->operand[LINEAR_X], &x));
    return sl_autodiff_emit(diff, SL_OP_LINEAR_WEIGHT_BACKWARD, &attrs,
                            (uint32_t[]){x, dy, dweight, dbias});
}

enum { GELU_X, GELU_Y };

/* The last op before `op_index` in its segment that writes a value; NULL: there is none. */
static const sl_op *find_maker(const sl_autodiff *diff, uint32_t op_index, uint32_t forward_value)
{
    const uint32_t first = diff->forward->segments[forward_op(diff, op_index)->segment].first_op;
    for (uint32_t o = op_index; o-- > first;) {
        const sl_op *op = forward_op(diff, o);
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
            if (op->operand[i] == forward_value && sl_op_writes(op, i))
                return op;
    }
    return NULL;
}

/* The GELU before a linear layer, if the layer is the only reader of the GELU's output, and the
 * GELU the only reader of its own input; else NULL. Then the layer's contribution gives the whole
 * gradient of both values. The GELU must be in the same segment, because only there its input can
 * be recomputed. */
static const sl_op *find_gelu_before(const sl_autodiff *diff, uint32_t op_index)
{
    const uint32_t x = forward_op(diff, op_index)->operand[LINEAR_X];
    const sl_op *gelu = find_maker(diff, op_index, x);
    const bool is_alone =
        gelu != NULL && gelu->kind == SL_OP_GELU && wants_gradient(diff, gelu->operand[GELU_X]) &&
        diff->values[x].reader_count == 1 && diff->values[gelu->operand[GELU_X]].reader_count == 1;
    return is_alone ? gelu : NULL;
}

/* If a GELU stands before the layer, one op computes the gradient of the GELU's input; the rule of
 * the GELU then finds no gradient of its output, and emits nothing. */
static sl_status emit_linear_input(sl_autodiff *diff, uint32_t op_index, uint32_t dy)
{
    const sl_op *op = forward_op(diff, op_index);
    sl_op_attrs attrs = op->attrs;
    uint32_t weight, dx, gelu_x = SL_NONE, x = op->operand[LINEAR_X];
    if (!wants_gradient(diff, x))
        return SL_OK;
    const sl_contribution all_rows = {
        0, UINT64_MAX, (sl_type)attrs.type,
        makes_partial(diff, op->operand[LINEAR_WEIGHT], SL_SPLIT_ROWS) ||
            diff->values[op->operand[LINEAR_Y]].gradient_is_partial};
    const sl_op *gelu = all_rows.is_partial ? NULL : find_gelu_before(diff, op_index);
    if (gelu != NULL) {
        x = gelu->operand[GELU_X];
        SL_TRY(sl_recompute_need(diff, x, &gelu_x));
    }
    SL_TRY(sl_autodiff_find(diff, op->operand[LINEAR_WEIGHT], &weight));
    SL_TRY(sl_gradient_contribute(diff, x, &all_rows, &dx, &attrs.adds_output));
    return sl_autodiff_emit(diff, SL_OP_LINEAR_INPUT_BACKWARD, &attrs,
                            (uint32_t[]){dy, weight, dx, gelu_x});
}

/* The residual comes last: its gradient is dy itself, and later rules add to dy in place. */
static sl_status emit_linear(sl_autodiff *diff, uint32_t op_index)
{
    const sl_op *op = forward_op(diff, op_index);
    uint32_t dy;
    SL_TRY(take_linear_gradient(diff, op, &dy));
    if (dy == SL_NONE)
        return SL_OK;
    SL_TRY(emit_linear_weight(diff, op_index, dy));
    SL_TRY(emit_linear_input(diff, op_index, dy));
    if (!wants_gradient(diff, op->operand[LINEAR_RESIDUAL]))
        return SL_OK;
    return sl_gradient_add(diff, op->operand[LINEAR_RESIDUAL], dy, true);
}

/* Adds a value for the gradient of a forward value, which an op is to write. */
static sl_status add_gradient(sl_autodiff *diff, uint32_t forward_value, uint32_t *out_gradient)
{
    const sl_value *value = &diff->forward->values[forward_value];
    return sl_autodiff_add(diff, "d ", value->name, value->bytes, value->type, out_gradient);
}

/* The operands of ATTENTION and of its backward. */
enum { QKV, MIX, LSE, DOCUMENTS, K, V };
enum { OF_QKV, OF_Y, OF_LSE, OF_DY, OF_DQKV, OF_POSITIONS, OF_K, OF_V, OF_DK, OF_DV, OF_COUNT };

/* q, k and v, or all in one; each with its gradient. */
static const struct {
    uint32_t forward, operand, gradient;
} attention_inputs[] = {{QKV, OF_QKV, OF_DQKV}, {K, OF_K, OF_DK}, {V, OF_V, OF_DV}};

enum { ATTENTION_INPUTS = sizeof attention_inputs / sizeof attention_inputs[0] };

/* Finds what the backward op reads beside dy, and adds what it writes. */
static sl_status find_attention(sl_autodiff *diff, const sl_op *op, uint32_t operands[OF_COUNT])
{
    for (int i = 0; i < ATTENTION_INPUTS; i++)
        if (op->operand[attention_inputs[i].forward] != SL_NONE)
            SL_TRY(sl_recompute_need(diff, op->operand[attention_inputs[i].forward],
                                     &operands[attention_inputs[i].operand]));
    SL_TRY(sl_recompute_need(diff, op->operand[MIX], &operands[OF_Y]));
    SL_TRY(sl_recompute_need(diff, op->operand[LSE], &operands[OF_LSE]));
    if (op->operand[DOCUMENTS] != SL_NONE)
        SL_TRY(sl_autodiff_find(diff, op->operand[DOCUMENTS], &operands[OF_POSITIONS]));
    for (int i = 0; i < ATTENTION_INPUTS; i++)
        if (op->operand[attention_inputs[i].forward] != SL_NONE)
            SL_TRY(add_gradient(diff, op->operand[attention_inputs[i].forward],
                                &operands[attention_inputs[i].gradient]));
    return SL_OK;
}

static sl_status emit_attention(sl_autodiff *diff, uint32_t op_index)
{
    const sl_op *op = forward_op(diff, op_index);
    uint32_t operands[OF_COUNT];
    for (int i = 0; i < OF_COUNT; i++)
        operands[i] = SL_NONE;
    SL_TRY(sl_gradient_take(diff, op->operand[MIX], &operands[OF_DY]));
    if (operands[OF_DY] == SL_NONE)
        return SL_OK;
    SL_TRY(find_attention(diff, op, operands));
    SL_TRY(sl_autodiff_emit(diff, SL_OP_ATTENTION_BACKWARD, &op->attrs, operands));
    for (int i = 0; i < ATTENTION_INPUTS; i++) {
        const uint32_t input = op->operand[attention_inputs[i].forward];
        if (wants_gradient(diff, input))
            SL_TRY(sl_gradient_add(diff, input, operands[attention_inputs[i].gradient], true));
    }
    return SL_OK;
}

/* Turns the gradient back. */
static sl_status emit_rotary(sl_autodiff *diff, uint32_t op_index)
{
    enum { X, TABLE, Y, POSITIONS };
    const sl_op *op = forward_op(diff, op_index);
    sl_op_attrs attrs = op->attrs;
    uint32_t table, dy, dx, positions = SL_NONE;
    SL_TRY(sl_gradient_take(diff, op->operand[Y], &dy));
    if (dy == SL_NONE)
        return SL_OK;
    attrs.negates = !attrs.negates;
    SL_TRY(sl_autodiff_find(diff, op->operand[TABLE], &table));
    if (op->operand[POSITIONS] != SL_NONE)
        SL_TRY(sl_autodiff_find(diff, op->operand[POSITIONS], &positions));
    SL_TRY(add_gradient(diff, op->operand[X], &dx));
    SL_TRY(sl_autodiff_emit(diff, SL_OP_ROTARY, &attrs, (uint32_t[]){dy, table, dx, positions}));
    return sl_gradient_add(diff, op->operand[X], dx, true);
}

/* True if the terms of the gradient of y make terms of that of x, which are summed later: where the
 * gradient of x is a sum of terms already, and where a whole weight makes x, which leaves the sum
 * to others, too. */
static bool passes_terms(const sl_autodiff *diff, uint32_t op_index, uint32_t x, uint32_t y)
{
    const sl_op *maker = find_maker(diff, op_index, x);
    const bool is_of_terms =
        diff->values[x].gradient != SL_NONE && diff->values[x].gradient_is_partial;
    return diff->values[y].gradient_is_partial &&
           (is_of_terms ||
            (maker != NULL && maker->kind == SL_OP_LINEAR && has_whole_weight(diff, maker)));
}

static sl_status add_or_pass(sl_autodiff *diff, uint32_t forward_value, uint32_t term, bool passes)
{
    return passes ? sl_gradient_add_terms(diff, forward_value, term)
                  : sl_gradient_add(diff, forward_value, term, true);
}

/* Drops the same elements of the gradient. The residual comes last, as in emit_linear. */
static sl_status emit_dropout(sl_autodiff *diff, uint32_t op_index)
{
    enum { X, RESIDUAL, Y };
    const sl_op *op = forward_op(diff, op_index);
    const bool passes = op->operand[RESIDUAL] == SL_NONE &&
                        passes_terms(diff, op_index, op->operand[X], op->operand[Y]);
    uint32_t dy, dx;
    SL_TRY((passes ? sl_gradient_take_terms : sl_gradient_take)(diff, op->operand[Y], &dy));
    if (dy == SL_NONE)
        return SL_OK;
    if (wants_gradient(diff, op->operand[X])) {
        SL_TRY(add_gradient(diff, op->operand[X], &dx));
        SL_TRY(sl_autodiff_emit(diff, SL_OP_DROPOUT, &op->attrs, (uint32_t[]){dy, SL_NONE, dx}));
        SL_TRY(add_or_pass(diff, op->operand[X], dx, passes));
    }
    if (!wants_gradient(diff, op->operand[RESIDUAL]))
        return SL_OK;
    return sl_gradient_add(diff, op->operand[RESIDUAL], dy, true);
}

/* A product with the same number. */
static sl_status emit_scale(sl_autodiff *diff, uint32_t op_index)
{
    enum { X, Y };
    const sl_op *op = forward_op(diff, op_index);
    const bool passes = passes_terms(diff, op_index, op->operand[X], op->operand[Y]);
    uint32_t dy, dx;
    SL_TRY((passes ? sl_gradient_take_terms : sl_gradient_take)(diff, op->operand[Y], &dy));
    if (dy == SL_NONE || !wants_gradient(diff, op->operand[X]))
        return SL_OK;
    SL_TRY(add_gradient(diff, op->operand[X], &dx));
    SL_TRY(sl_autodiff_emit(diff, SL_OP_SCALE, &op->attrs, (uint32_t[]){dy, dx}));
    return add_or_pass(diff, op->operand[X], dx, passes);
}

static sl_status emit_gelu(sl_autodiff *diff, uint32_t op_index)
{
    const sl_op *op = forward_op(diff, op_index);
    uint32_t x, d;
    SL_TRY(sl_gradient_take(diff, op->operand[GELU_Y], &d));
    if (d == SL_NONE)
        return SL_OK;
    SL_TRY(sl_recompute_need(diff, op->operand[GELU_X], &x));
    SL_TRY(sl_autodiff_emit(diff, SL_OP_GELU_BACKWARD, &op->attrs, (uint32_t[]){x, d}));
    return sl_gradient_add(diff, op->operand[GELU_X], d, true);
}

/* The gradient of y becomes that of up, in place. */
static sl_status emit_swiglu(sl_autodiff *diff, uint32_t op_index)
{
    enum { GATE, UP, Y };
    const sl_op *op = forward_op(diff, op_index);
    uint32_t gate, up, d, dgate;
    SL_TRY(sl_gradient_take(diff, op->operand[Y], &d));
    if (d == SL_NONE)
        return SL_OK;
    SL_TRY(sl_recompute_need(diff, op->operand[GATE], &gate));
    SL_TRY(sl_recompute_need(diff, op->operand[UP], &up));
    SL_TRY(add_gradient(diff, op->operand[GATE], &dgate));
    SL_TRY(sl_autodiff_emit(diff, SL_OP_SWIGLU_BACKWARD, &op->attrs,
                            (uint32_t[]){gate, up, d, dgate}));
    if (wants_gradient(diff, op->operand[UP]))
        SL_TRY(sl_gradient_add(diff, op->operand[UP], d, true));
    if (!wants_gradient(diff, op->operand[GATE]))
        return SL_OK;
    return sl_gradient_add(diff, op->operand[GATE], dgate, true);
}

/* The gradient of input `i` of a custom op, for the op to write; SL_NONE: it is not needed. */
static sl_status add_custom_gradient(sl_autodiff *diff, const sl_op *op, uint32_t i, uint32_t *out)
{
    *out = SL_NONE;
    if (!wants_gradient(diff, op->operand[i]))
        return SL_OK;
    return add_gradient(diff, op->operand[i], out);
}

static sl_status emit_custom(sl_autodiff *diff, uint32_t op_index)
{
    enum { X, Z, WEIGHT, Y };
    const sl_op *op = forward_op(diff, op_index);
    const bool is_partial = op->attrs.row_count < op->attrs.batch * op->attrs.seq;
    uint32_t x, z = SL_NONE, weight = SL_NONE, dy, dx, dz, dweight;
    SL_TRY(sl_gradient_take(diff, op->operand[Y], &dy));
    if (dy == SL_NONE)
        return SL_OK;
    SL_TRY(sl_recompute_need(diff, op->operand[X], &x));
    if (op->operand[Z] != SL_NONE)
        SL_TRY(sl_recompute_need(diff, op->operand[Z], &z));
    if (op->operand[WEIGHT] != SL_NONE)
        SL_TRY(sl_autodiff_find(diff, op->operand[WEIGHT], &weight));
    SL_TRY(sl_autodiff_find_grad(diff, op->operand[WEIGHT], is_partial, &dweight));
    SL_TRY(add_custom_gradient(diff, op, X, &dx));
    SL_TRY(add_custom_gradient(diff, op, Z, &dz));
    SL_TRY(sl_autodiff_emit(diff, SL_OP_CUSTOM_BACKWARD, &op->attrs,
                            (uint32_t[]){x, z, weight, dy, dx, dz, dweight}));
    if (dx != SL_NONE)
        SL_TRY(sl_gradient_add(diff, op->operand[X], dx, true));
    return dz != SL_NONE ? sl_gradient_add(diff, op->operand[Z], dz, true) : SL_OK;
}

/* There is one HEAD_STATS for each panel of logits. Its rule writes the gradient of the logits over
 * the logits. */
static sl_status emit_head_stats(sl_autodiff *diff, uint32_t op_index)
{
    enum { LOGITS, TARGETS, STATS };
    const sl_op *op = forward_op(diff, op_index);
    sl_op_attrs attrs = op->attrs;
    double tokens = (double)attrs.batch * (double)attrs.seq * diff->options->micro_batch_count;
    if (diff->forward->dp_size > 1) /* the loss is the mean over the rows of all ranks */
        tokens *= diff->forward->dp_size;
    tokens *= diff->forward->head_ranks ? diff->forward->head_ranks : 1;
    attrs.scale = (float)(1.0 / tokens);
    attrs.adds_output = 0;
    uint32_t logits, targets, stats;
    if (!wants_gradient(diff, op->operand[LOGITS]))
        return SL_OK;
    SL_TRY(sl_recompute_need(diff, op->operand[LOGITS], &logits));
    SL_TRY(sl_autodiff_find(diff, op->operand[TARGETS], &targets));
    SL_TRY(sl_autodiff_find(diff, op->operand[STATS], &stats));
    SL_TRY(sl_autodiff_emit(diff, SL_OP_HEAD_LOGITS_BACKWARD, &attrs,
                            (uint32_t[]){targets, stats, logits}));
    return sl_gradient_set(diff, op->operand[LOGITS], logits);
}

/* The panel was gathered from all ranks. Each rank computes the term of its own rows of x, and the
 * rule of the gather sums the terms. */
static sl_status emit_gathered_weight(sl_autodiff *diff, uint32_t op_index, uint32_t x,
                                      uint32_t dlogits)
{
    enum { PANEL = 1 };
    const sl_op *op = forward_op(diff, op_index);
    sl_op_attrs attrs = op->attrs;
    uint32_t dpanel, adds;
    if (diff->forward->head_ranks < 2)
        SL_FAIL(SL_ERROR_USAGE, "tensor-parallel ranks cannot share the rows of the head: they do "
                                "not divide a micro-batch");
    const sl_contribution all_rows = {0, UINT64_MAX, (sl_type)attrs.type, true};
    SL_TRY(sl_gradient_contribute(diff, op->operand[PANEL], &all_rows, &dpanel, &adds));
    attrs.grad_type = attrs.type;
    attrs.adds_gradient = (uint16_t)adds;
    return sl_autodiff_emit(diff, SL_OP_HEAD_WEIGHT_BACKWARD, &attrs,
                            (uint32_t[]){x, dlogits, dpanel});
}

static sl_status emit_head_weight(sl_autodiff *diff, uint32_t op_index, uint32_t dlogits)
{
    enum { X, PANEL };
    const sl_op *op = forward_op(diff, op_index);
    const bool is_gathered = diff->forward->values[op->operand[PANEL]].kind == SL_VALUE_ACTIVATION;
    uint32_t x, dpanel = SL_NONE;
    if (!is_gathered)
        SL_TRY(sl_autodiff_find_grad(diff, op->operand[PANEL], false, &dpanel));
    if (dpanel == SL_NONE && !wants_gradient(diff, op->operand[PANEL]))
        return SL_OK;
    SL_TRY(sl_recompute_need(diff, op->operand[X], &x));
    if (is_gathered)
        return emit_gathered_weight(diff, op_index, x, dlogits);
    return sl_autodiff_emit(diff, SL_OP_HEAD_WEIGHT_BACKWARD, &op->attrs,
                            (uint32_t[]){x, dlogits, dpanel});
}

/* dx is a sum over panels: the rules add in fp32, and sl_gradient_take rounds the sum once. */
static sl_status emit_head_input(sl_autodiff *diff, uint32_t op_index, uint32_t dlogits)
{
    enum { X, PANEL };
    const sl_op *op = forward_op(diff, op_index);
    sl_op_attrs attrs = op->attrs;
    uint32_t panel, dx;
    if (!wants_gradient(diff, op->operand[X]))
        return SL_OK;
    sl_contribution rows = {.type = SL_TYPE_FP32,
                            .is_partial =
                                makes_partial(diff, op->operand[PANEL], SL_SPLIT_COLUMNS)};
    sl_op_find_rows(op, X, &rows.first_row, &rows.end_row);
    SL_TRY(sl_recompute_need(diff, op->operand[PANEL], &panel));
    SL_TRY(sl_gradient_contribute(diff, op->operand[X], &rows, &dx, &attrs.adds_output));
    return sl_autodiff_emit(diff, SL_OP_HEAD_INPUT_BACKWARD, &attrs,
                            (uint32_t[]){dlogits, panel, dx});
}

static sl_status emit_head_logits(sl_autodiff *diff, uint32_t op_index)
{
    enum { LOGITS = 2 };
    uint32_t dlogits;
    SL_TRY(sl_gradient_take(diff, forward_op(diff, op_index)->operand[LOGITS], &dlogits));
    if (dlogits == SL_NONE)
        return SL_OK;
    SL_TRY(emit_head_input(diff, op_index, dlogits));
    return emit_head_weight(diff, op_index, dlogits);
}

/* True if the rule of `op`, which writes y, does not change the gradient of y, and does not make it
 * the gradient of another value. */
static bool leaves_gradient(const sl_op *op)
{
    return op->kind == SL_OP_ALL_REDUCE || op->kind == SL_OP_SCATTER_ROWS ||
           op->kind == SL_OP_GATHER_COLUMNS || op->kind == SL_OP_CLEAR ||
           op->kind == SL_OP_EMBED_TOKENS ||
           (op->kind == SL_OP_LINEAR && op->operand[LINEAR_RESIDUAL] == SL_NONE);
}

/* True if x and y of an ADD may have one gradient. The ADD updates y in place, so the rules of the
 * earlier ops that write y still need the gradient of y. They must leave it as it is, and no other
 * rule may add to the gradient of x before them: no op names x from the first writer of y to the
 * ADD. */
static bool may_share_gradient(const sl_autodiff *diff, uint32_t op_index, uint32_t x, uint32_t y)
{
    const uint32_t first = diff->forward->segments[forward_op(diff, op_index)->segment].first_op;
    for (uint32_t o = op_index; o-- > first;) {
        const sl_op *op = forward_op(diff, o);
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++) {
            if (op->operand[i] == x)
                return false;
            if (op->operand[i] != y || !sl_op_writes(op, i))
                continue;
            if (!leaves_gradient(op) || !sl_op_reads(op, i))
                return leaves_gradient(op);
        }
    }
    return false;
}

static sl_status emit_add(sl_autodiff *diff, uint32_t op_index)
{
    enum { X, Y };
    const sl_op *op = forward_op(diff, op_index);
    uint32_t dy;
    SL_TRY(sl_gradient_take(diff, op->operand[Y], &dy));
    if (dy == SL_NONE || !wants_gradient(diff, op->operand[X]))
        return SL_OK;
    return sl_gradient_add(diff, op->operand[X], dy,
                           may_share_gradient(diff, op_index, op->operand[X], op->operand[Y]));
}

enum { ROWS_X, ROWS_Y }; /* operands of ops on rows, and on columns */

/* Adds to the gradient of x: an op of `kind` computes the term from the gradient of y. */
static sl_status exchange_gradient(sl_autodiff *diff, uint32_t op_index, sl_op_kind kind,
                                   uint32_t dy)
{
    const sl_op *op = forward_op(diff, op_index);
    uint32_t dx;
    SL_TRY(add_gradient(diff, op->operand[ROWS_X], &dx));
    sl_op_attrs attrs = op->attrs;
    attrs.grad_type = kind == SL_OP_SCATTER_COLUMNS ? attrs.type : 0;
    SL_TRY(sl_autodiff_emit(diff, kind, &attrs, (uint32_t[]){dy, dx}));
    return sl_gradient_add(diff, op->operand[ROWS_X], dx, true);
}

/* Every rank uses all rows, so each has one term of their gradient; SCATTER_ROWS sums the terms and
 * gives each rank its own rows. */
static sl_status emit_gather_rows(sl_autodiff *diff, uint32_t op_index)
{
    uint32_t terms;
    SL_TRY(sl_gradient_take_terms(diff, forward_op(diff, op_index)->operand[ROWS_Y], &terms));
    return terms == SL_NONE ? SL_OK : exchange_gradient(diff, op_index, SL_OP_SCATTER_ROWS, terms);
}

static sl_status emit_scatter_rows(sl_autodiff *diff, uint32_t op_index)
{
    uint32_t dy;
    SL_TRY(sl_gradient_take(diff, forward_op(diff, op_index)->operand[ROWS_Y], &dy));
    return dy == SL_NONE ? SL_OK : exchange_gradient(diff, op_index, SL_OP_GATHER_ROWS, dy);
}

static sl_status emit_take_rows(sl_autodiff *diff, uint32_t op_index)
{
    uint32_t dy;
    if (!wants_gradient(diff, forward_op(diff, op_index)->operand[ROWS_X]))
        return SL_OK;
    SL_TRY(sl_gradient_take(diff, forward_op(diff, op_index)->operand[ROWS_Y], &dy));
    return dy == SL_NONE ? SL_OK : exchange_gradient(diff, op_index, SL_OP_GATHER_ROWS, dy);
}

/* Each rank has one term of the gathered parameter's gradient, from its own rows; SCATTER_COLUMNS
 * sums the terms and gives each rank its own columns. */
static sl_status emit_gathered_parameter(sl_autodiff *diff, uint32_t op_index, uint32_t terms)
{
    const sl_op *op = forward_op(diff, op_index);
    uint32_t grad;
    SL_TRY(sl_autodiff_find_grad(diff, op->operand[ROWS_X], false, &grad));
    return sl_autodiff_emit(diff, SL_OP_SCATTER_COLUMNS, &op->attrs, (uint32_t[]){terms, grad});
}

/* If all ranks do the same work on all columns, each has the whole gradient; else each has one term
 * of it. */
static sl_status emit_gather_columns(sl_autodiff *diff, uint32_t op_index)
{
    const sl_op *op = forward_op(diff, op_index);
    const bool is_partial = diff->values[op->operand[ROWS_Y]].gradient_is_partial;
    uint32_t dy;
    if (!is_partial) {
        SL_TRY(sl_gradient_take(diff, op->operand[ROWS_Y], &dy));
        return dy == SL_NONE ? SL_OK : exchange_gradient(diff, op_index, SL_OP_TAKE_COLUMNS, dy);
    }
    SL_TRY(sl_gradient_take_terms(diff, op->operand[ROWS_Y], &dy));
    if (!wants_gradient(diff, op->operand[ROWS_X]))
        return emit_gathered_parameter(diff, op_index, dy);
    return exchange_gradient(diff, op_index, SL_OP_SCATTER_COLUMNS, dy);
}

/* The gradient of a received value is sent back to its stage; that of a sent value is received. */
static sl_status emit_exchange(sl_autodiff *diff, uint32_t op_index)
{
    enum { GIVEN, TAKEN };
    const sl_op *op = forward_op(diff, op_index);
    uint32_t gradient;
    if (op->operand[GIVEN] != SL_NONE && op->operand[TAKEN] != SL_NONE)
        SL_FAIL(SL_ERROR_INTERNAL, "an exchange of a forward program gives and takes");
    if (!wants_gradient(diff, op->operand[op->operand[GIVEN] == SL_NONE ? TAKEN : GIVEN]))
        return SL_OK;
    if (op->operand[GIVEN] == SL_NONE) {
        SL_TRY(sl_gradient_take(diff, op->operand[TAKEN], &gradient));
        if (gradient == SL_NONE) /* the other stage would wait for ever */
            SL_FAIL(SL_ERROR_INTERNAL, "no gradient to send to stage %u", op->attrs.rank_index);
        return sl_autodiff_emit(diff, SL_OP_EXCHANGE, &op->attrs, (uint32_t[]){gradient, SL_NONE});
    }
    SL_TRY(add_gradient(diff, op->operand[GIVEN], &gradient));
    SL_TRY(sl_autodiff_emit(diff, SL_OP_EXCHANGE, &op->attrs, (uint32_t[]){SL_NONE, gradient}));
    return sl_gradient_add(diff, op->operand[GIVEN], gradient, true);
}

/* ALL_REDUCE: the gradient of each term is the gradient of the sum, so there is nothing to emit.
 * ALL_REDUCE_STATS: the rule of HEAD_STATS reads the combined statistics. An op without a rule
 * cannot be differentiated. */
static const rule rules[SL_OP_COUNT] = {
    [SL_OP_EMBED_POSITION] = {emit_embed_position, 1u << 0},
    [SL_OP_EMBED_TOKENS] = {emit_embed_tokens, 1u << 1},
    [SL_OP_LAYERNORM] = {emit_norm, 1u << 1 | 1u << 2},
    [SL_OP_RMSNORM] = {emit_norm, 1u << 1},
    [SL_OP_LINEAR] = {emit_linear, 1u << LINEAR_WEIGHT | 1u << LINEAR_BIAS},
    [SL_OP_ATTENTION] = {emit_attention, 0},
    [SL_OP_ROTARY] = {emit_rotary, 0},
    [SL_OP_DROPOUT] = {emit_dropout, 0},
    [SL_OP_GELU] = {emit_gelu, 0},
    [SL_OP_SWIGLU] = {emit_swiglu, 0},
    [SL_OP_SCALE] = {emit_scale, 0},
    [SL_OP_CUSTOM] = {emit_custom, 1u << 2},
    [SL_OP_HEAD_LOGITS] = {emit_head_logits, 1u << 1},
    [SL_OP_HEAD_STATS] = {emit_head_stats, 0},
    [SL_OP_HEAD_LOSS] = {emit_nothing, 0},
    [SL_OP_ADD] = {emit_add, 0},
    [SL_OP_CLEAR] = {emit_nothing, 0},
    [SL_OP_ALL_REDUCE] = {emit_nothing, 0},
    [SL_OP_ALL_REDUCE_STATS] = {emit_nothing, 0},
    [SL_OP_GATHER_ROWS] = {emit_gather_rows, 0},
    [SL_OP_SCATTER_ROWS] = {emit_scatter_rows, 0},
    [SL_OP_TAKE_ROWS] = {emit_take_rows, 0},
    [SL_OP_GATHER_COLUMNS] = {emit_gather_columns, 1u << ROWS_X},
    [SL_OP_EXCHANGE] = {emit_exchange, 0},
};

/* Without this check a rule that ignores a parameter would leave its gradient zero, unnoticed. */
static sl_status check_parameters(const sl_autodiff *diff, const sl_op *op)
{
    for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
        const uint32_t v = op->operand[i];
        if (v != SL_NONE && diff->forward->values[v].kind == SL_VALUE_TENSOR &&
            !(rules[op->kind].parameters >> i & 1))
            SL_FAIL(SL_ERROR_INTERNAL, "%s: no gradient of parameter %s, its operand %u",
                    sl_op_info_of(op->kind)->name, diff->forward->values[v].name, i);
    }
    return SL_OK;
}

sl_status sl_backward_emit(sl_autodiff *diff, uint32_t op_index)
{
    const sl_op *op = forward_op(diff, op_index);
    if (rules[op->kind].emit == NULL)
        SL_FAIL(SL_ERROR_INTERNAL, "%s has no backward rule", sl_op_info_of(op->kind)->name);
    SL_TRY(check_parameters(diff, op));
    return rules[op->kind].emit(diff, op_index);
}
