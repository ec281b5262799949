/* RUN commands: which kernel runs an op, on which operands, and how it gets to its lane. Knows
 * nothing of what kernels compute.
 *
 * An op gets its kernel when its plan is bound (find_kernel): the one of its kind in the device's
 * table or, on the host lane, in the cpu's. Before the first step the device's kernels choose their
 * algorithms for every distinct op (sl_op_kernels_prepare), so that no step spends time on it. A
 * step hands each op to its lane (sl_op_kernels_issue), where run_kernel calls the kernel.
 */
#include "engine_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

/* ---- binding ---- */

static sl_status bind_operands(const sl_engine *engine, sl_bound_plan *plan,
                               sl_bound_command *bound)
{
    const sl_command *command = bound->command;
    uint64_t end = (uint64_t)command->first_place + command->place_count;
    if (command->place_count == 0 || command->place_count > SL_OPERAND_MAX + 1 ||
        end > plan->plan->place_count)
        SL_FAIL(SL_ERROR_INTERNAL, "the command of tick %u has %u places", command->tick,
                command->place_count);
    const sl_place *places = plan->plan->places + command->first_place;
    uint32_t operand_count = command->place_count - 1;
    for (uint32_t i = 0; i < operand_count; i++) {
        SL_TRY(sl_bound_plan_find_address(engine, bound, &places[i], &bound->call.operand[i]));
        SL_TRY(sl_bound_plan_add_stride(plan, bound, i, &places[i]));
    }
    const sl_place *workspace = &places[operand_count];
    SL_TRY(sl_bound_plan_find_address(engine, bound, workspace, &bound->call.workspace));
    return sl_bound_plan_add_stride(plan, bound, SL_BOUND_WORKSPACE, workspace);
}

/* Finds the kernel of an op, with its workers, stream and library. */
static sl_status find_kernel(const sl_engine *engine, const sl_op *op, sl_bound_command *bound)
{
    sl_lane lane = bound->command->lane;
    const sl_kernel_table *kernels = lane == SL_LANE_HOST ? engine->host_kernels : engine->kernels;
    SL_TRY(sl_kernels_find(kernels, op->kind, &bound->kernel));
    bound->call.workers = engine->workers;
    bound->call.stream = engine->ops->stream_native(engine->lanes[lane].stream);
    bound->call.library = lane == SL_LANE_HOST ? NULL : engine->library;
    return SL_OK;
}

/* The update of a shard: gradient and parameters may be whole chunks, then their addresses move to
 * the shard. */
static void move_to_shard(const sl_program *program, const sl_op *op, sl_bound_command *bound)
{
    for (uint32_t i = 0; i < SL_OPERAND_MAX && sl_op_info_of(op->kind)->updates_chunk; i++) {
        if (op->operand[i] == SL_NONE)
            continue;
        const sl_value *value = &program->values[op->operand[i]];
        const uint64_t size = sl_type_bytes(value->type);
        unsigned char *first = bound->call.operand[i];
        if (value->kind == SL_VALUE_CHUNK && value->bytes > op->attrs.element_count * size)
            bound->call.operand[i] = first + op->attrs.first_element * size;
    }
}

/* Gives an update the rates of blocks in its tier, and BLOCK_NORM the counted flags if there are
 * any.
 */
static sl_status bind_flags(const sl_engine *engine, const sl_op *op, sl_bound_command *bound)
{
    const sl_homes *homes = engine->options.homes;
    sl_tier tier = bound->command->lane == SL_LANE_HOST ? SL_TIER_HOST : SL_TIER_DEVICE;
    sl_place place = {tier, homes->flags_offset[tier], homes->flags_bytes[tier]};
    const sl_layout *layout = engine->options.layout;
    if (op->kind == SL_OP_BLOCK_NORM)
        place = (sl_place){SL_TIER_DEVICE, homes->counted_offset, homes->counted_bytes};
    uint64_t blocks = sl_bits_divide_up(op->attrs.element_count, SL_BLOCK_ELEMENTS);
    uint64_t end;
    if (__builtin_add_overflow(op->attrs.first_block, blocks, &end) || end > place.bytes ||
        end > layout->block_count)
        SL_FAIL(SL_ERROR_INTERNAL, "there are no block flags for the op of tick %u",
                bound->command->tick);
    void *flags;
    SL_TRY(sl_bound_plan_find_address(engine, bound, &place, &flags));
    bound->call.block_flags = flags;
    if (sl_op_info_of(op->kind)->updates_chunk && layout->draws != NULL)
        bound->call.block_keys = (const uint64_t *)(const void *)((const uint8_t *)flags +
                                                                  sl_layout_keys_offset(layout));
    bound->call.rates = layout->rate_count > 0 ? layout->rates : NULL;
    bound->call.rate_count = layout->rate_count;
    return SL_OK;
}

/* Hands CLEAR_PADDING the padding of its chunk. */
static sl_status bind_padding(const sl_engine *engine, const sl_op *op, sl_bound_command *bound)
{
    const sl_layout *layout = engine->options.layout;
    const uint32_t chunk_index = sl_layout_find_chunk(layout, op->attrs.first_block);
    if (layout->first_padding == NULL || chunk_index == SL_NONE)
        SL_FAIL(SL_ERROR_INTERNAL, "the padding is not known for the op of tick %u",
                bound->command->tick);
    const uint32_t *first = &layout->first_padding[chunk_index];
    bound->call.padding = layout->padding + first[0];
    bound->call.padding_count = first[1] - first[0];
    return SL_OK;
}

sl_status sl_op_kernels_bind(const sl_engine *engine, sl_bound_plan *plan, sl_bound_command *bound)
{
    const sl_command *command = bound->command;
    if (command->tick >= plan->program->op_count)
        SL_FAIL(SL_ERROR_INTERNAL, "tick %u is not in the program", command->tick);
    const sl_op *op = &plan->program->ops[command->tick];
    bound->op_kind = op->kind;
    bound->call.attrs = &op->attrs;
    bound->call.micro_batch = op->micro_batch;
    SL_TRY(bind_operands(engine, plan, bound));
    move_to_shard(plan->program, op, bound);
    if (command->lane == SL_LANE_INPUT)
        return sl_inputs_bind(plan, bound);
    if (command->lane == SL_LANE_COMM)
        return sl_collectives_bind(engine, bound);
    SL_TRY(find_kernel(engine, op, bound));
    if (sl_op_is_custom(op->kind))
        bound->call.custom = &plan->program->customs[op->attrs.custom];
    if (op->kind == SL_OP_CLEAR_PADDING)
        return bind_padding(engine, op, bound);
    bool counts = op->kind == SL_OP_BLOCK_NORM && sl_program_counts_blocks(plan->program);
    bool has_flags = sl_op_info_of(op->kind)->updates_chunk || counts;
    return has_flags ? bind_flags(engine, op, bound) : SL_OK;
}

/* ---- preparing ---- */

/* Orders RUN commands by op and sizes; sl_op_attrs has no padding, so its bytes compare. */
static int compare_ops(const void *a, const void *b)
{
    const sl_bound_command *x = *(const sl_bound_command *const *)a;
    const sl_bound_command *y = *(const sl_bound_command *const *)b;
    if (x->op_kind != y->op_kind)
        return x->op_kind < y->op_kind ? -1 : 1;
    return memcmp(x->call.attrs, y->call.attrs, sizeof *x->call.attrs); /* NOLINT: bits are meant */
}

static uint64_t collect_device_ops(const sl_engine *engine, const sl_bound_command **out_ops)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < engine->plan_count; i++) {
        const sl_bound_plan *plan = &engine->plans[i];
        for (uint32_t j = 0; j < plan->plan->body_count; j++) {
            const sl_bound_command *bound = &plan->body[j];
            if (bound->kernel && bound->command->lane != SL_LANE_HOST)
                out_ops[count++] = bound;
        }
    }
    return count;
}

static sl_status prepare_distinct_ops(sl_engine *engine, const sl_bound_command *const *ops,
                                      uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (i > 0 && compare_ops(&ops[i - 1], &ops[i]) == 0)
            continue;
        sl_status status =
            engine->kernels->prepare(engine->library, ops[i]->op_kind, &ops[i]->call);
        if (status != SL_OK)
            return sl_status_prefix(status, "preparing %s", sl_op_info_of(ops[i]->op_kind)->name);
    }
    return SL_OK;
}

sl_status sl_op_kernels_prepare(sl_engine *engine)
{
    uint64_t capacity = 1;
    for (uint32_t i = 0; i < engine->plan_count; i++)
        capacity += engine->plans[i].plan->body_count;
    const sl_bound_command **ops = calloc(capacity, sizeof *ops);
    if (!ops)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %" PRIu64 " commands", capacity);
    uint64_t count = collect_device_ops(engine, ops);
    qsort(ops, count, sizeof *ops, compare_ops);
    sl_status status = prepare_distinct_ops(engine, ops, count);
    free(ops);
    return status;
}

sl_status sl_engine_list_algorithms(const sl_engine *engine, const char *before, const char *behind,
                                    char **out_text)
{
    return sl_kernels_list_algorithms(engine->kernels, engine->library, before, behind, out_text);
}

uint64_t sl_engine_workspace_bytes(const void *target, sl_op_kind kind, const sl_op_attrs *attrs,
                                   sl_tier tier)
{
    const sl_engine_target *who = target;
    if (tier == SL_TIER_DISK)
        return 0;
    if (sl_op_info_of(kind)->is_collective)
        return sl_collectives_workspace_bytes(kind, attrs, who);
    const sl_kernel_table *kernels =
        tier == SL_TIER_HOST ? sl_kernels_cpu() : sl_kernels_of(who->device);
    return kernels ? sl_kernels_workspace_bytes(kernels, kind, attrs, who->worker_count) : 0;
}

/* ---- issuing ---- */

typedef struct kernel_args {
    sl_kernel_call call; /* first, as the device table requires */
    const sl_bound_command *bound;
    _Atomic uint32_t *failed_lane;
} kernel_args;

_Static_assert(sizeof(kernel_args) <= SL_QUEUE_ARGUMENT_BYTES, "a kernel call fits a queue's item");

static sl_status run_kernel(void *arguments);

/* Moves the operands from repetition 0 to `repetition`. */
static void move_call(const sl_repetition *repetition, const sl_bound_command *bound,
                      sl_kernel_call *call)
{
    call->micro_batch += repetition->micro_batches;
    for (uint32_t i = 0; i < bound->stride_count; i++) {
        const sl_bound_stride *stride = &repetition->plan->strides[bound->first_stride + i];
        void **address =
            stride->place == SL_BOUND_WORKSPACE ? &call->workspace : &call->operand[stride->place];
        *address = (unsigned char *)*address + sl_bound_stride_bytes(stride, repetition->index);
    }
}

sl_status sl_op_kernels_issue(const sl_repetition *repetition, const sl_bound_command *bound,
                              uint64_t tag)
{
    sl_engine *engine = repetition->engine;
    kernel_args args = {bound->call, bound, &engine->failed_lane};
    move_call(repetition, bound, &args.call);
    if (bound->command->lane == SL_LANE_INPUT)
        return sl_inputs_issue(repetition, bound, tag, &args.call);
    args.call.scalars = *repetition->scalars;
    args.call.scalars.first_row += (uint64_t)args.call.micro_batch * repetition->scalars->row_gap;
    if (bound->command->lane == SL_LANE_COMM)
        return sl_collectives_issue(repetition, bound, tag, &args.call);
    return engine->ops->launch(engine->lanes[bound->command->lane].stream, tag, run_kernel, &args,
                               sizeof args);
}

/* ---- in the lane's thread ---- */

/* A native stream reports the failure of an op at the launch of a later one, in the control thread:
 * then no lane has to be marked as failed. */
static sl_status explain_kernel_failure(sl_status status, const kernel_args *args)
{
    const sl_command *command = args->bound->command;
    bool is_native = args->call.stream != NULL;
    if (!is_native)
        sl_step_mark_failed_lane(args->failed_lane, command->lane);
    return sl_status_prefix(status, "op %u (%s)%s on the %s lane", command->tick,
                            sl_op_info_of(args->bound->op_kind)->name,
                            is_native ? ", or one before it," : "", sl_lane_name(command->lane));
}

static sl_status run_kernel(void *arguments)
{
    const kernel_args *args = arguments;
    if (atomic_load(args->failed_lane) != SL_NONE)
        return SL_OK; /* the iteration has failed, and operands may hold anything */
    sl_status status = args->bound->kernel(&args->call);
    return status == SL_OK ? SL_OK : explain_kernel_failure(status, args);
}
