/* RUN commands of the comm lane: collectives of tensor-parallel ranks, data-parallel ranks and
 * pipeline stages. The caller transports the bytes between ranks (sl_engine_ranks); this file
 * decides what is summed, and in which order. Knows nothing of models.
 *
 * There is one lane, so that all ranks call the same collectives in the same order, that of the
 * plan. A rank on which a lane failed skips the remaining collectives: the caller got the error and
 * tells the other ranks.
 */
#include "engine_internal.h"

#include <stdio.h>

#include "base/bits.h"
#include "kernels/rank_stats.h"

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

/* How many ranks a set has, as the plans count them; 0 or 1: one. */
static uint32_t count_set(const sl_engine_target *target, int set)
{
    return set == SL_RANKS_TENSOR ? target->rank_count
           : set == SL_RANKS_DATA ? target->data_rank_count
                                  : target->stage_count;
}

/* On a device with streams an exchange of host memory does not do. */
static sl_status check_ranks(const sl_engine_ranks *ranks, uint32_t count, sl_device_kind device)
{
    if (!ranks)
        SL_FAIL(SL_ERROR_USAGE, "the plans have sums over ranks, and there are no other ranks");
    if (ranks->size != count)
        SL_FAIL(SL_ERROR_USAGE, "%u ranks, and plans of %u", ranks->size, count);
    if (device != SL_DEVICE_CPU && !ranks->use)
        SL_FAIL(SL_ERROR_USAGE, "the ranks exchange what is in memory of the host alone");
    return SL_OK;
}

/* The first set that has other ranks; SL_RANK_SETS: there is none. */
static int find_set(const sl_engine *engine)
{
    int set = 0;
    while (set < SL_RANK_SETS && engine->ranks[set].size == 0)
        set++;
    return set;
}

/* Copies the tables of sets that have other ranks; the other tables stay zero. */
sl_status sl_collectives_open(sl_engine *engine, const sl_engine_options *options,
                              bool *out_has_collectives)
{
    const sl_engine_ranks *const given[SL_RANK_SETS] = {[SL_RANKS_TENSOR] = options->ranks,
                                                        [SL_RANKS_DATA] = options->data_ranks,
                                                        [SL_RANKS_STAGES] = options->stage_ranks};
    const sl_engine_target *target = &options->target;
    *out_has_collectives = has_collectives(options);
    for (int set = 0; *out_has_collectives && set < SL_RANK_SETS; set++) {
        if (count_set(target, set) <= 1)
            continue;
        SL_TRY(check_ranks(given[set], count_set(target, set), target->device));
        engine->ranks[set] = *given[set];
    }
    if (*out_has_collectives && find_set(engine) == SL_RANK_SETS)
        SL_FAIL(SL_ERROR_USAGE, "the plans have sums over ranks, and there are no other ranks");
    return SL_OK;
}

sl_status sl_collectives_poll(const sl_engine *engine)
{
    for (int set = 0; set < SL_RANK_SETS; set++) {
        const sl_engine_ranks *ranks = &engine->ranks[set];
        if (ranks->size > 0 && ranks->poll)
            SL_TRY(ranks->poll(ranks->user));
    }
    return SL_OK;
}

sl_status sl_collectives_bind(const sl_engine *engine, const sl_bound_command *bound)
{
    if (find_set(engine) == SL_RANK_SETS || !sl_op_info_of(bound->op_kind)->is_collective)
        SL_FAIL(SL_ERROR_INTERNAL, "%s on the comm lane", sl_op_info_of(bound->op_kind)->name);
    return SL_OK;
}

/* Bytes that one rank contributes to a collective that is combined here; 0: not combined here. */
static uint64_t count_part_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    if (kind == SL_OP_ALL_REDUCE_NORM)
        return sizeof(sl_norm_sum);
    return kind == SL_OP_ALL_REDUCE_STATS ? attrs->row_count * SL_RANK_STATS_A_ROW * sizeof(float)
                                          : 0;
}

/* Bytes of one rank's columns. */
static uint64_t count_column_bytes(const sl_op_attrs *attrs)
{
    return attrs->row_count * attrs->out * sl_type_bytes((sl_type)attrs->type);
}

static uint64_t count_rows_elements(const sl_op_attrs *attrs)
{
    return attrs->row_count * attrs->in;
}

/* True if the stored type differs from the type on the wire. */
static bool is_rounded(sl_op_kind kind, const sl_op_attrs *attrs)
{
    return kind == SL_OP_ALL_REDUCE_TENSOR && attrs->grad_type != attrs->type;
}

/* True if ranks that store the same part of a tensor add up its gradient, and others do not. */
static bool is_sum_of_sets(sl_op_kind kind, const sl_op_attrs *attrs)
{
    return kind == SL_OP_ALL_REDUCE_TENSOR && attrs->batch > 0;
}

/* ---- in the lane's thread; where the stream is native, in the control thread, as it issues ----
 */

typedef struct collective_args {
    const sl_op_attrs *attrs;
    const char *name; /* of the exchanged value */
    sl_op_kind kind;
    uint32_t tick, flags; /* flags: the step's scalars.flags */
    void *operand[3], *workspace;
    const sl_engine *engine;
    void *stream;                 /* native, or NULL */
    const sl_engine_ranks *ranks; /* the set that the op is for; size 0: there are none */
    _Atomic uint32_t *failed_lane;
} collective_args;

_Static_assert(sizeof(collective_args) <= SL_QUEUE_ARGUMENT_BYTES,
               "a collective fits a queue's item");

static void post(const collective_args *args)
{
    const sl_engine_ranks *ranks = &args->engine->ranks[find_set(args->engine)];
    char text[80];
    if (!ranks->post)
        return;
    snprintf(text, sizeof text, "%s of %.32s, op %u", sl_op_info_of(args->kind)->name, args->name,
             args->tick);
    ranks->post(ranks->user, text);
}

/* Runs a kernel of this rank on up to four operands. */
static sl_status compute(const collective_args *args, sl_rank_kernel which,
                         const sl_op_attrs *attrs, void *const operand[4])
{
    const sl_kernel_call call = {.attrs = attrs,
                                 .operand = {operand[0], operand[1], operand[2], operand[3]},
                                 .stream = args->stream,
                                 .scalars = {.flags = args->flags}};
    return args->engine->kernels->ranks[which](&call);
}

static sl_status convert(const collective_args *args, sl_type from_type, sl_type to_type,
                         uint64_t count, void *from, void *to)
{
    const sl_op_attrs attrs = {
        .type = (uint16_t)from_type, .grad_type = (uint16_t)to_type, .element_count = count};
    return compute(args, SL_RANK_CONVERT, &attrs, (void *[4]){from, to});
}

static sl_status all_reduce(const collective_args *args, sl_type stored, void *data)
{
    const sl_op_attrs *attrs = args->attrs;
    return args->ranks->all_reduce(args->ranks->user, stored, (sl_type)attrs->type,
                                   attrs->element_count, data);
}

static sl_status all_gather(const collective_args *args, uint64_t bytes, const void *part,
                            void *parts)
{
    return args->ranks->all_gather(args->ranks->user, bytes, part, parts);
}

static sl_status reduce(const collective_args *args)
{
    return all_reduce(args, (sl_type)args->attrs->type, args->operand[0]);
}

/* Gathers the terms of all ranks, and adds up those of this rank's set, in rank order. So the sets
 * need no communicators of their own; every rank of a set gets the same bits. */
static sl_status reduce_sets(const collective_args *args)
{
    const sl_op_attrs *attrs = args->attrs;
    const sl_type type = (sl_type)attrs->type;
    const uint64_t bytes = attrs->element_count * sl_type_bytes(type);
    const uint32_t first = args->ranks->rank - attrs->rank_index;
    char *terms = args->workspace;
    void *own = args->operand[0];
    sl_op_attrs sum = *attrs;
    sum.out = attrs->element_count;
    if (is_rounded(args->kind, attrs)) {
        own = terms + args->ranks->size * bytes;
        SL_TRY(convert(args, (sl_type)attrs->grad_type, type, attrs->element_count,
                       args->operand[0], own));
    }
    SL_TRY(all_gather(args, bytes, own, terms));
    return compute(args, SL_RANK_SUM, &sum,
                   (void *[4]){terms + first * bytes, args->operand[0], NULL, args->operand[0]});
}

/* Sums a gradient: rounds to the type on the wire, sums, and converts back. */
static sl_status reduce_gradient(const collective_args *args)
{
    const sl_op_attrs *attrs = args->attrs;
    const sl_type type = (sl_type)attrs->type, stored = (sl_type)attrs->grad_type;
    const uint64_t count = attrs->element_count;
    if (is_sum_of_sets(args->kind, attrs))
        return reduce_sets(args);
    if (!is_rounded(args->kind, attrs))
        return reduce(args);
    SL_TRY(convert(args, stored, type, count, args->operand[0], args->workspace));
    SL_TRY(all_reduce(args, type, args->workspace));
    return convert(args, type, stored, count, args->workspace, args->operand[0]);
}

static uint64_t count_rows_bytes(const sl_op_attrs *attrs)
{
    return count_rows_elements(attrs) * sl_type_bytes((sl_type)attrs->type);
}

static sl_status gather_rows(const collective_args *args)
{
    return all_gather(args, count_rows_bytes(args->attrs), args->operand[0], args->operand[1]);
}

static sl_status reduce_scatter(const collective_args *args, sl_type stored, uint64_t count,
                                const void *from, void *to)
{
    return args->ranks->reduce_scatter(args->ranks->user, stored, (sl_type)args->attrs->type, count,
                                       from, to);
}

static sl_status scatter_rows(const collective_args *args)
{
    return reduce_scatter(args, (sl_type)args->attrs->type, count_rows_elements(args->attrs),
                          args->operand[0], args->operand[1]);
}

static sl_status reduce_stats(const collective_args *args)
{
    const sl_op_attrs attrs = {.batch = args->ranks->size, .row_count = args->attrs->row_count};
    const uint64_t bytes = count_part_bytes(args->kind, args->attrs);
    SL_TRY(all_gather(args, bytes, args->operand[0], args->workspace));
    return compute(args, SL_RANK_STATS, &attrs, (void *[4]){args->workspace, args->operand[0]});
}

/* Adds up norms over one set of ranks. Each rank's loss and the count of its rows in the loss
 * travel in words that a norm does not use. */
static sl_status merge_norms(const collective_args *args, const sl_engine_ranks *ranks,
                             bool keeps_flags, bool merges_loss)
{
    const sl_op_attrs attrs = {.batch = ranks->size, .adds_output = keeps_flags};
    void *norm = args->operand[0];
    void *loss = merges_loss ? args->operand[1] : NULL;
    void *counted = merges_loss ? args->operand[2] : NULL;
    SL_TRY(compute(args, SL_RANK_NORM_PREPARE, &attrs, (void *[4]){norm, loss, counted}));
    SL_TRY(ranks->all_gather(ranks->user, sizeof(sl_norm_sum), norm, args->workspace));
    return compute(args, SL_RANK_NORM_MERGE, &attrs,
                   (void *[4]){args->workspace, norm, loss, counted});
}

/* The loss is not summed over tensor-parallel ranks, which all have it. Of the stages only the last
 * has one. */
static sl_status reduce_norm(const collective_args *args)
{
    bool keeps_flags = false;
    for (int set = 0; set < SL_RANK_SETS; set++) {
        const sl_engine_ranks *ranks = &args->engine->ranks[set];
        if (ranks->size == 0)
            continue;
        SL_TRY(merge_norms(args, ranks, keeps_flags, set != SL_RANKS_TENSOR));
        keeps_flags = true;
    }
    return SL_OK;
}

static sl_status sum_chunk(const collective_args *args)
{
    return all_reduce(args, (sl_type)args->attrs->grad_type, args->operand[0]);
}

/* Where this rank's shard begins in a whole chunk of `bytes`. */
static void *find_shard(const sl_engine_ranks *ranks, void *chunk, uint64_t bytes)
{
    return (unsigned char *)chunk + bytes / ranks->size * ranks->rank;
}

/* Without an operand for the shard the sum is written into the chunk. */
static sl_status sum_shard(const collective_args *args)
{
    const sl_op_attrs *attrs = args->attrs;
    const sl_type stored = (sl_type)attrs->grad_type;
    const uint64_t bytes = attrs->element_count * sl_type_bytes(stored);
    void *gradient = args->operand[0];
    void *shard = args->kind == SL_OP_REDUCE_SCATTER_SHARD
                      ? args->operand[1]
                      : find_shard(args->ranks, gradient, bytes);
    return reduce_scatter(args, stored, attrs->element_count / args->ranks->size, gradient, shard);
}

static sl_status gather_shards(const collective_args *args)
{
    const uint64_t bytes = args->attrs->element_count * sl_type_bytes((sl_type)args->attrs->type);
    const bool is_apart = args->kind == SL_OP_ALL_GATHER_SHARD;
    void *chunk = args->operand[is_apart ? 1 : 0];
    const void *shard = is_apart ? args->operand[0] : find_shard(args->ranks, chunk, bytes);
    return all_gather(args, bytes / args->ranks->size, shard, chunk);
}

static sl_status take_shard(const collective_args *args)
{
    const sl_type type = (sl_type)args->attrs->type;
    const uint64_t bytes = args->attrs->element_count * sl_type_bytes(type);
    return convert(args, type, type, args->attrs->row_count,
                   find_shard(args->ranks, args->operand[0], bytes), args->operand[1]);
}

static sl_status take_rows(const collective_args *args)
{
    const sl_type type = (sl_type)args->attrs->type;
    const uint64_t count = count_rows_elements(args->attrs);
    char *rows = (char *)args->operand[0] + args->ranks->rank * count * sl_type_bytes(type);
    return convert(args, type, type, count, rows, args->operand[1]);
}

static sl_status exchange(const collective_args *args)
{
    return args->ranks->exchange(args->ranks->user, args->attrs->rank_index,
                                 count_rows_bytes(args->attrs), args->operand[0], args->operand[1]);
}

/* ---- columns ---- */

/* Packs the columns of `count` ranks, from rank `first` on. */
static sl_status pack_columns(const collective_args *args, uint32_t first, uint32_t count,
                              void *parts)
{
    sl_op_attrs attrs = *args->attrs;
    attrs.batch = count;
    attrs.rank_index = (uint16_t)first;
    return compute(args, SL_RANK_PACK_COLUMNS, &attrs, (void *[4]){args->operand[0], parts});
}

static sl_status gather_columns(const collective_args *args)
{
    const uint64_t bytes = count_column_bytes(args->attrs);
    sl_op_attrs attrs = *args->attrs;
    attrs.batch = args->ranks->size;
    SL_TRY(all_gather(args, bytes, args->operand[0], args->workspace));
    return compute(args, SL_RANK_JOIN_COLUMNS, &attrs,
                   (void *[4]){args->workspace, args->operand[1]});
}

/* Sums in the type on the wire, then overwrites or adds to the stored gradient. */
static sl_status scatter_columns(const collective_args *args)
{
    const uint64_t count = args->attrs->row_count * args->attrs->out;
    char *parts = args->workspace;
    char *sum = parts + args->ranks->size * count_column_bytes(args->attrs);
    sl_op_attrs attrs = *args->attrs;
    attrs.element_count = count;
    SL_TRY(pack_columns(args, 0, args->ranks->size, parts));
    SL_TRY(reduce_scatter(args, (sl_type)attrs.type, count, parts, sum));
    return compute(args, SL_RANK_CONVERT, &attrs, (void *[4]){sum, args->operand[1]});
}

static sl_status take_columns(const collective_args *args)
{
    return pack_columns(args, args->ranks->rank, 1, args->operand[1]);
}

/* What of an op is summed, as pieces of the ranks; NO_SUM: it only moves data. */
typedef enum sum_kind { NO_SUM, SUM_OF_ELEMENTS, SUM_OF_ROWS, SUM_OF_COLUMNS } sum_kind;

/* One row per collective op. */
static const struct {
    sl_status (*run)(const collective_args *args);
    sl_rank_set set; /* the ranks that it is for */
    sum_kind sum;
} collectives[SL_OP_COUNT] = {
    [SL_OP_ALL_REDUCE] = {reduce, SL_RANKS_TENSOR, SUM_OF_ELEMENTS},
    [SL_OP_ALL_REDUCE_STATS] = {reduce_stats, SL_RANKS_TENSOR, NO_SUM},
    [SL_OP_ALL_REDUCE_NORM] = {reduce_norm, SL_RANKS_TENSOR, NO_SUM}, /* and all others */
    [SL_OP_ALL_REDUCE_TENSOR] = {reduce_gradient, SL_RANKS_TENSOR, SUM_OF_ELEMENTS},
    [SL_OP_ALL_REDUCE_GRADIENT] = {sum_chunk, SL_RANKS_DATA, SUM_OF_ELEMENTS},
    [SL_OP_REDUCE_SCATTER_GRADIENT] = {sum_shard, SL_RANKS_DATA, SUM_OF_ELEMENTS},
    [SL_OP_ALL_GATHER_CHUNK] = {gather_shards, SL_RANKS_DATA, NO_SUM},
    [SL_OP_REDUCE_SCATTER_SHARD] = {sum_shard, SL_RANKS_DATA, SUM_OF_ELEMENTS},
    [SL_OP_ALL_GATHER_SHARD] = {gather_shards, SL_RANKS_DATA, NO_SUM},
    [SL_OP_GATHER_ROWS] = {gather_rows, SL_RANKS_TENSOR, NO_SUM},
    [SL_OP_SCATTER_ROWS] = {scatter_rows, SL_RANKS_TENSOR, SUM_OF_ROWS},
    [SL_OP_TAKE_ROWS] = {take_rows, SL_RANKS_TENSOR, NO_SUM},
    [SL_OP_GATHER_COLUMNS] = {gather_columns, SL_RANKS_TENSOR, NO_SUM},
    [SL_OP_SCATTER_COLUMNS] = {scatter_columns, SL_RANKS_TENSOR, SUM_OF_COLUMNS},
    [SL_OP_TAKE_COLUMNS] = {take_columns, SL_RANKS_TENSOR, NO_SUM},
    [SL_OP_EXCHANGE] = {exchange, SL_RANKS_STAGES, NO_SUM},
    [SL_OP_TAKE_SHARD] = {take_shard, SL_RANKS_DATA, NO_SUM},
};

/* ---- workspace: what is combined here, then scratch of a native exchange ---- */

enum { ALIGNMENT = 256 };

/* Workspace bytes for the pieces of all ranks, or for the copy in the type on the wire. */
static uint64_t count_own_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                const sl_engine_target *target)
{
    uint64_t count = target->rank_count;
    for (int set = 0; set < SL_RANK_SETS && kind == SL_OP_ALL_REDUCE_NORM; set++)
        count = sl_bits_max(count, count_set(target, set));
    if (kind == SL_OP_GATHER_COLUMNS)
        return count * count_column_bytes(attrs);
    if (kind == SL_OP_SCATTER_COLUMNS) /* pieces, and their sum */
        return (count + 1) * count_column_bytes(attrs);
    if (is_sum_of_sets(kind, attrs)) /* pieces, and this rank's own if it is not stored as sent */
        return (count + is_rounded(kind, attrs)) * attrs->element_count *
               sl_type_bytes((sl_type)attrs->type);
    if (is_rounded(kind, attrs))
        return attrs->element_count * sl_type_bytes((sl_type)attrs->type);
    return count * count_part_bytes(kind, attrs);
}

/* Elements of one rank's piece of a sum. */
static uint64_t count_piece_elements(sum_kind sum, const sl_op_attrs *attrs, uint32_t rank_count)
{
    return sum == SUM_OF_ELEMENTS  ? sl_bits_divide_up(attrs->element_count, rank_count)
           : sum == SUM_OF_ROWS    ? count_rows_elements(attrs)
           : sum == SUM_OF_COLUMNS ? attrs->row_count * attrs->out
                                   : 0;
}

/* Scratch bytes of a sum on a device's stream (sl_engine_queue): a piece of each rank, twice if
 * pieces are rounded before they are sent. Large sums go in several rounds, so that scratch stays
 * small. */
static uint64_t count_scratch_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                    const sl_engine_target *target)
{
    enum { WHOLE_BYTES = 1 << 20, PARTS = 8 };
    const sum_kind sum = collectives[kind].sum;
    const bool is_data_sum = collectives[kind].set == SL_RANKS_DATA && sum != NO_SUM;
    const uint32_t ranks = is_data_sum ? target->data_rank_count : target->rank_count;
    const uint64_t elements = ranks > 0 ? count_piece_elements(sum, attrs, ranks) : 0;
    const uint64_t whole = elements * sl_type_bytes((sl_type)attrs->type);
    const uint64_t piece =
        sl_bits_max(sl_bits_min(whole, WHOLE_BYTES), sl_bits_divide_up(whole, PARTS));
    const uint64_t copies = is_data_sum && attrs->grad_type != attrs->type ? 2 : 1;
    return copies * ranks * sl_bits_round_up(piece + ALIGNMENT, ALIGNMENT);
}

static uint64_t find_scratch_offset(sl_op_kind kind, const sl_op_attrs *attrs,
                                    const sl_engine_target *target)
{
    return sl_bits_round_up(count_own_bytes(kind, attrs, target), ALIGNMENT);
}

uint64_t sl_collectives_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                        const sl_engine_target *target)
{
    if (target->device == SL_DEVICE_CPU)
        return count_own_bytes(kind, attrs, target);
    const uint64_t scratch = count_scratch_bytes(kind, attrs, target);
    return find_scratch_offset(kind, attrs, target) + scratch;
}

/* ---- issuing ---- */

/* Sets the queue of a native exchange; scratch is the end of the workspace. */
static sl_status begin(const collective_args *args)
{
    const sl_engine_target *target = &args->engine->options.target;
    if (!args->stream)
        return SL_OK;
    const uint64_t offset = find_scratch_offset(args->kind, args->attrs, target);
    const uint64_t bytes = count_scratch_bytes(args->kind, args->attrs, target);
    const sl_engine_queue queue = {args->stream, (char *)args->workspace + offset, bytes};
    for (int set = 0; set < SL_RANK_SETS; set++)
        if (args->engine->ranks[set].size > 0)
            args->engine->ranks[set].use(args->engine->ranks[set].user, &queue);
    return SL_OK;
}

static sl_status run_collective(void *arguments)
{
    const collective_args *args = arguments;
    if (atomic_load(args->failed_lane) != SL_NONE)
        return SL_OK;
    post(args);
    sl_status status = begin(args);
    if (status == SL_OK)
        status = collectives[args->kind].run(args);
    if (status == SL_OK)
        return SL_OK;
    if (!args->stream) /* a native stream fails at once, in the control thread */
        sl_step_mark_failed_lane(args->failed_lane, SL_LANE_COMM);
    return sl_status_prefix(status, "op %u (%s) on the %s lane", args->tick,
                            sl_op_info_of(args->kind)->name, sl_lane_name(SL_LANE_COMM));
}

sl_status sl_collectives_issue(const sl_repetition *repetition, const sl_bound_command *bound,
                               uint64_t tag, const sl_kernel_call *call)
{
    sl_engine *engine = repetition->engine;
    const sl_program *program = repetition->plan->program;
    const uint32_t *operand = program->ops[bound->command->tick].operand;
    const uint32_t value = operand[operand[0] == SL_NONE];
    const collective_args args = {
        .attrs = call->attrs,
        .name = program->values[value].name,
        .kind = bound->op_kind,
        .tick = bound->command->tick,
        .flags = call->scalars.flags,
        .operand = {call->operand[0], call->operand[1], call->operand[2]},
        .workspace = call->workspace,
        .engine = engine,
        .stream = engine->ops->stream_native(engine->lanes[SL_LANE_COMM].stream),
        .ranks = &engine->ranks[collectives[bound->op_kind].set],
        .failed_lane = &engine->failed_lane};
    return engine->ops->launch(engine->lanes[SL_LANE_COMM].stream, tag, run_collective, &args,
                               sizeof args);
}
