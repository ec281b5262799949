/* RUN commands of the comm lane: sums over the ranks that the tensors are split over, and over
 * those that have other rows. How ranks reach each other is the caller's matter (sl_engine_ranks);
 * what is summed, and in which order, is decided here. Knows nothing of models.
 *
 * One lane, so that all ranks call the same collectives in the same order, which is that of the
 * plan. A rank on which something failed leaves out what is left: the others hear of it from the
 * caller, who was told.
 */
#include "engine_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "kernels/cpu/norm_sum.h"

enum { STATS_A_ROW = 4 }; /* of HEAD_STATS: largest, sum, target's logit, 0 */

static bool has_collectives(const sl_engine_options *options)
{
    for (uint32_t i = 0; i < options->plan_count; i++) {
        const sl_program *program = options->plans[i].program;
        for (uint32_t o = 0; o < program->op_count; o++)
            if (sl_op_info_of(program->ops[o].kind)->is_collective)
                return true;
    }
    return false;
}

/* Leaves *out_ranks zero where plans are of one rank. */
static sl_status take_ranks(const sl_engine_ranks *ranks, uint32_t count,
                            sl_engine_ranks *out_ranks)
{
    if (count <= 1)
        return SL_OK;
    if (!ranks || !ranks->all_reduce || !ranks->all_gather || !ranks->reduce_scatter)
        SL_FAIL(SL_ERROR_USAGE, "the plans have sums over ranks, and there are no other ranks");
    if (ranks->size != count)
        SL_FAIL(SL_ERROR_USAGE, "%u ranks, and plans of %u", ranks->size, count);
    *out_ranks = *ranks;
    return SL_OK;
}

sl_status sl_collectives_open(sl_engine *engine, const sl_engine_options *options,
                              bool *out_has_collectives)
{
    const sl_engine_target *target = &options->target;
    *out_has_collectives = has_collectives(options);
    if (!*out_has_collectives)
        return SL_OK;
    if (target->rank_count <= 1 && target->data_rank_count <= 1)
        SL_FAIL(SL_ERROR_USAGE, "the plans have sums over ranks, and there are no other ranks");
    if (target->device != SL_DEVICE_CPU)
        SL_FAIL(SL_ERROR_USAGE, "sums over ranks are computed on the cpu device alone");
    SL_TRY(take_ranks(options->ranks, target->rank_count, &engine->ranks));
    SL_TRY(take_ranks(options->data_ranks, target->data_rank_count, &engine->data_ranks));
    const sl_engine_ranks *data = &engine->data_ranks;
    if (data->size > 0 && (!data->all_reduce_stored || !data->sum_shard || !data->gather_shards))
        SL_FAIL(SL_ERROR_USAGE, "the data-parallel ranks cannot add up gradients");
    return SL_OK;
}

sl_status sl_collectives_bind(const sl_engine *engine, const sl_bound_command *bound)
{
    const uint32_t size = engine->ranks.size + engine->data_ranks.size;
    if (size == 0 || !sl_op_info_of(bound->op_kind)->is_collective)
        SL_FAIL(SL_ERROR_INTERNAL, "%s on the comm lane", sl_op_info_of(bound->op_kind)->name);
    return SL_OK;
}

/* What one rank gives to a collective whose parts are combined here; 0: it does not. */
static uint64_t count_part_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    if (kind == SL_OP_ALL_REDUCE_NORM)
        return sizeof(sl_norm_sum);
    return kind == SL_OP_ALL_REDUCE_STATS ? attrs->row_count * STATS_A_ROW * sizeof(float) : 0;
}

/* One rank's columns. */
static uint64_t count_column_bytes(const sl_op_attrs *attrs)
{
    return attrs->row_count * attrs->out * sl_type_bytes((sl_type)attrs->type);
}

/* Stored in another type than it travels in. */
static bool is_rounded(sl_op_kind kind, const sl_op_attrs *attrs)
{
    return kind == SL_OP_ALL_REDUCE_TENSOR && attrs->grad_type != attrs->type;
}

uint64_t sl_collectives_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                        const sl_engine_target *target)
{
    const bool is_norm = kind == SL_OP_ALL_REDUCE_NORM;
    uint32_t count = target->rank_count;
    if (is_norm && target->data_rank_count > count)
        count = target->data_rank_count;
    if (kind == SL_OP_GATHER_COLUMNS || kind == SL_OP_SCATTER_COLUMNS)
        return (count + 1) * count_column_bytes(attrs);
    if (is_rounded(kind, attrs))
        return attrs->element_count * sl_type_bytes((sl_type)attrs->type);
    return count * count_part_bytes(kind, attrs);
}

/* ---- in the lane's thread ---- */

typedef struct collective_args {
    const sl_op_attrs *attrs;
    const char *name; /* of what is exchanged */
    sl_op_kind kind;
    uint32_t tick, flags; /* flags: of the step's scalars */
    void *operand[2], *workspace;
    const sl_engine_ranks *ranks, *data_ranks; /* size 0: there are none */
    _Atomic uint32_t *failed_lane;
} collective_args;

_Static_assert(sizeof(collective_args) <= SL_QUEUE_ARGUMENT_BYTES,
               "a collective fits a queue's item");

static void post(const collective_args *args)
{
    const sl_engine_ranks *ranks = args->ranks->size > 0 ? args->ranks : args->data_ranks;
    char text[80];
    if (!ranks->post)
        return;
    snprintf(text, sizeof text, "%s of %.32s, op %u", sl_op_info_of(args->kind)->name, args->name,
             args->tick);
    ranks->post(ranks->user, text);
}

static sl_status reduce(const collective_args *args)
{
    const sl_op_attrs *attrs = args->attrs;
    return args->ranks->all_reduce(args->ranks->user, (sl_type)attrs->type, attrs->element_count,
                                   args->operand[0]);
}

/* A gradient's sum, in the type in which it travels and back. */
static sl_status reduce_gradient(const collective_args *args)
{
    const sl_op_attrs *attrs = args->attrs;
    const sl_type type = (sl_type)attrs->type;
    if (!is_rounded(args->kind, attrs))
        return reduce(args);
    uint16_t *halves = args->workspace;
    float *sums = args->operand[0];
    for (uint64_t i = 0; i < attrs->element_count; i++)
        halves[i] = type == SL_TYPE_BF16 ? sl_half_to_bf16(sums[i]) : sl_half_to_fp16(sums[i]);
    SL_TRY(args->ranks->all_reduce(args->ranks->user, type, attrs->element_count, halves));
    for (uint64_t i = 0; i < attrs->element_count; i++)
        sums[i] =
            type == SL_TYPE_BF16 ? sl_half_from_bf16(halves[i]) : sl_half_from_fp16(halves[i]);
    return SL_OK;
}

static uint64_t count_rows_elements(const sl_op_attrs *attrs)
{
    return attrs->row_count * attrs->in;
}

static sl_status gather_rows(const collective_args *args)
{
    const uint64_t bytes =
        count_rows_elements(args->attrs) * sl_type_bytes((sl_type)args->attrs->type);
    return args->ranks->all_gather(args->ranks->user, bytes, args->operand[0], args->operand[1]);
}

static sl_status scatter_rows(const collective_args *args)
{
    return args->ranks->reduce_scatter(args->ranks->user, (sl_type)args->attrs->type,
                                       count_rows_elements(args->attrs), args->operand[0],
                                       args->operand[1]);
}

static sl_status gather(const collective_args *args)
{
    const uint64_t bytes = count_part_bytes(args->kind, args->attrs);
    return args->ranks->all_gather(args->ranks->user, bytes, args->operand[0], args->workspace);
}

/* The sum of exponentials of one rank against the largest logit of all; a rank whose ids are all
 * padding has none. A sum that is not a number stays so. */
static float rescale(float most, float sum, float joint)
{
    return sum != 0.0f ? sum * expf(most - joint) : 0.0f;
}

/* As HEAD_STATS combines panels: the target's logit is there on one rank, and 0 on the others. */
static void combine_row(const float *parts, uint64_t part_floats, uint32_t rank_count, float *stats)
{
    float joint = parts[0], sum = 0.0f, target = 0.0f;
    for (uint32_t rank = 1; rank < rank_count; rank++)
        joint = fmaxf(joint, parts[rank * part_floats]);
    for (uint32_t rank = 0; rank < rank_count; rank++) {
        const float *part = parts + rank * part_floats;
        sum += rescale(part[0], part[1], joint);
        target += part[2];
    }
    stats[0] = joint;
    stats[1] = sum;
    stats[2] = target;
    stats[3] = 0.0f;
}

static sl_status reduce_stats(const collective_args *args)
{
    const uint64_t row_count = args->attrs->row_count;
    const float *parts = args->workspace;
    float *stats = args->operand[0];
    SL_TRY(gather(args));
    for (uint64_t row = 0; row < row_count; row++)
        combine_row(parts + row * STATS_A_ROW, row_count * STATS_A_ROW, args->ranks->size,
                    stats + row * STATS_A_ROW);
    return SL_OK;
}

/* Adds up what the ranks of one set know. Norms are integers: the same sum in any order. The loss
 * of each, where it is wanted, travels in the words that a norm leaves free. */
static sl_status merge_norms(const sl_engine_ranks *ranks, sl_norm_sum *parts, sl_norm_sum *own,
                             double *loss)
{
    _Static_assert(sizeof own->reserved == sizeof *loss, "a loss fits a norm's free words");
    double sum = 0;
    if (loss)
        memcpy(own->reserved, loss, sizeof *loss);
    SL_TRY(ranks->all_gather(ranks->user, sizeof *own, own, parts));
    *own = (sl_norm_sum){0};
    for (uint32_t rank = 0; rank < ranks->size; rank++) {
        double part;
        sl_norm_sum_merge(own, &parts[rank]);
        own->flags |= parts[rank].flags;
        memcpy(&part, parts[rank].reserved, sizeof part);
        sum += part;
    }
    if (loss)
        *loss = sum;
    return SL_OK;
}

/* Tensor-parallel ranks have the same loss. */
static sl_status reduce_norm(const collective_args *args)
{
    sl_norm_sum *norm = args->operand[0];
    norm->flags = args->flags;
    if (args->ranks->size > 0)
        SL_TRY(merge_norms(args->ranks, args->workspace, norm, NULL));
    return args->data_ranks->size > 0
               ? merge_norms(args->data_ranks, args->workspace, norm, args->operand[1])
               : SL_OK;
}

static sl_status sum_chunk(const collective_args *args)
{
    const sl_op_attrs *attrs = args->attrs;
    const sl_engine_ranks *ranks = args->data_ranks;
    return ranks->all_reduce_stored(ranks->user, (sl_type)attrs->grad_type, (sl_type)attrs->type,
                                    attrs->element_count, args->operand[0]);
}

/* Where this rank's shard begins in a whole chunk of `bytes`. */
static void *find_shard(const sl_engine_ranks *ranks, void *chunk, uint64_t bytes)
{
    return (unsigned char *)chunk + bytes / ranks->size * ranks->rank;
}

/* The sum is left in the chunk where the shard has no place of its own. */
static sl_status sum_shard(const collective_args *args)
{
    const sl_op_attrs *attrs = args->attrs;
    const sl_engine_ranks *ranks = args->data_ranks;
    const sl_type stored = (sl_type)attrs->grad_type;
    const uint64_t bytes = attrs->element_count * sl_type_bytes(stored);
    void *gradient = args->operand[0];
    void *shard = args->kind == SL_OP_REDUCE_SCATTER_SHARD ? args->operand[1]
                                                           : find_shard(ranks, gradient, bytes);
    return ranks->sum_shard(ranks->user, stored, (sl_type)attrs->type, attrs->element_count,
                            gradient, shard);
}

static sl_status gather_shards(const collective_args *args)
{
    const sl_op_attrs *attrs = args->attrs;
    const sl_engine_ranks *ranks = args->data_ranks;
    const uint64_t bytes = attrs->element_count * sl_type_bytes((sl_type)attrs->type);
    const bool is_apart = args->kind == SL_OP_ALL_GATHER_SHARD;
    void *chunk = args->operand[is_apart ? 1 : 0];
    const void *shard = is_apart ? args->operand[0] : find_shard(ranks, chunk, bytes);
    return ranks->gather_shards(ranks->user, bytes, shard, chunk);
}

static sl_status take_rows(const collective_args *args)
{
    const uint64_t bytes =
        count_rows_elements(args->attrs) * sl_type_bytes((sl_type)args->attrs->type);
    memcpy(args->operand[1], (const char *)args->operand[0] + args->ranks->rank * bytes, bytes);
    return SL_OK;
}

/* ---- columns ---- */

/* Copies columns between what all ranks have, [R, I], and one rank's, [R, O], whose padding becomes
 * zero. */
static void copy_columns(const sl_op_attrs *attrs, uint32_t rank, char *all, char *part,
                         bool into_part)
{
    const uint64_t element = sl_type_bytes((sl_type)attrs->type), row_bytes = attrs->in * element;
    const uint64_t first = rank * attrs->out;
    const uint64_t left = attrs->in > first ? attrs->in - first : 0;
    const uint64_t bytes = (left < attrs->out ? left : attrs->out) * element;
    const uint64_t part_bytes = attrs->out * element;
    for (uint64_t row = 0; row < attrs->row_count; row++) {
        char *whole = all + row * row_bytes + (bytes > 0 ? first * element : 0);
        char *own = part + row * part_bytes;
        memcpy(into_part ? own : whole, into_part ? whole : own, bytes);
        if (into_part)
            memset(own + bytes, 0, part_bytes - bytes);
    }
}

static sl_status gather_columns(const collective_args *args)
{
    const uint64_t bytes = count_column_bytes(args->attrs);
    char *parts = args->workspace;
    SL_TRY(args->ranks->all_gather(args->ranks->user, bytes, args->operand[0], parts));
    for (uint32_t rank = 0; rank < args->ranks->size; rank++)
        copy_columns(args->attrs, rank, args->operand[1], parts + rank * bytes, false);
    return SL_OK;
}

/* The sum, in the type in which it travelled, written to or added to a gradient as it is stored. */
static void store_gradient(const sl_op_attrs *attrs, const void *sum, void *gradient)
{
    const uint64_t count = attrs->row_count * attrs->out;
    const sl_type type = (sl_type)attrs->type;
    const float *floats = sum;
    const uint16_t *halves = sum;
    float *to = gradient;
    if (attrs->grad_type == type && !attrs->adds_gradient) {
        memcpy(gradient, sum, count * sl_type_bytes(type));
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        const float term = type == SL_TYPE_FP32   ? floats[i]
                           : type == SL_TYPE_BF16 ? sl_half_from_bf16(halves[i])
                                                  : sl_half_from_fp16(halves[i]);
        to[i] = attrs->adds_gradient ? to[i] + term : term;
    }
}

static sl_status scatter_columns(const collective_args *args)
{
    const sl_op_attrs *attrs = args->attrs;
    const uint64_t bytes = count_column_bytes(attrs);
    char *parts = args->workspace, *sum = parts + args->ranks->size * bytes;
    for (uint32_t rank = 0; rank < args->ranks->size; rank++)
        copy_columns(attrs, rank, args->operand[0], parts + rank * bytes, true);
    SL_TRY(args->ranks->reduce_scatter(args->ranks->user, (sl_type)attrs->type,
                                       attrs->row_count * attrs->out, parts, sum));
    store_gradient(attrs, sum, args->operand[1]);
    return SL_OK;
}

static sl_status take_columns(const collective_args *args)
{
    copy_columns(args->attrs, args->ranks->rank, args->operand[0], args->operand[1], true);
    return SL_OK;
}

/* One row a collective op. */
static sl_status (*const collectives[SL_OP_COUNT])(const collective_args *args) = {
    [SL_OP_ALL_REDUCE] = reduce,
    [SL_OP_ALL_REDUCE_STATS] = reduce_stats,
    [SL_OP_ALL_REDUCE_NORM] = reduce_norm,
    [SL_OP_ALL_REDUCE_TENSOR] = reduce_gradient,
    [SL_OP_ALL_REDUCE_GRADIENT] = sum_chunk,
    [SL_OP_REDUCE_SCATTER_GRADIENT] = sum_shard,
    [SL_OP_ALL_GATHER_CHUNK] = gather_shards,
    [SL_OP_REDUCE_SCATTER_SHARD] = sum_shard,
    [SL_OP_ALL_GATHER_SHARD] = gather_shards,
    [SL_OP_GATHER_ROWS] = gather_rows,
    [SL_OP_SCATTER_ROWS] = scatter_rows,
    [SL_OP_TAKE_ROWS] = take_rows,
    [SL_OP_GATHER_COLUMNS] = gather_columns,
    [SL_OP_SCATTER_COLUMNS] = scatter_columns,
    [SL_OP_TAKE_COLUMNS] = take_columns,
};

static sl_status run_collective(void *arguments)
{
    const collective_args *args = arguments;
    if (atomic_load(args->failed_lane) != SL_NONE)
        return SL_OK;
    post(args);
    sl_status status = collectives[args->kind](args);
    if (status == SL_OK)
        return SL_OK;
    sl_step_mark_failed_lane(args->failed_lane, SL_LANE_COMM);
    return sl_status_prefix(status, "op %u (%s) on the %s lane", args->tick,
                            sl_op_info_of(args->kind)->name, sl_lane_name(SL_LANE_COMM));
}

sl_status sl_collectives_issue(const sl_repetition *repetition, const sl_bound_command *bound,
                               uint64_t tag, const sl_kernel_call *call)
{
    sl_engine *engine = repetition->engine;
    const sl_program *program = repetition->plan->program;
    const uint32_t value = program->ops[bound->command->tick].operand[0];
    const collective_args args = {.attrs = call->attrs,
                                  .name = program->values[value].name,
                                  .kind = bound->op_kind,
                                  .tick = bound->command->tick,
                                  .flags = call->scalars.flags,
                                  .operand = {call->operand[0], call->operand[1]},
                                  .workspace = call->workspace,
                                  .ranks = &engine->ranks,
                                  .data_ranks = &engine->data_ranks,
                                  .failed_lane = &engine->failed_lane};
    return engine->ops->launch(engine->lanes[SL_LANE_COMM].stream, tag, run_collective, &args,
                               sizeof args);
}
