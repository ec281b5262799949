/* Which ops there are; the operands that they read and write; how they are timed; the rates that
 * fit their times. An op runs through the kernel table of its device, as in a step. */
#include "ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/bits.h"

enum { CALLS_MAX = 1000, TOKENS_MAX = 16384 /* rows of the largest case */ };
enum { CHUNK_ELEMENTS_MAX = 8 << 20, TOKEN_BOUND = 50257, ALIGNMENT = 256 };

static const double sample_seconds = 1e-3; /* a shorter one would measure the clock */
static const double warm_seconds = 0.1;    /* a call as long as that is warm before its end */

/* ---- operands ---- */

/* Operands whose place in a step is a chunk, or as large; all others are activations. */
static bool is_of_chunk(sl_op_kind kind, const char *name)
{
    if (kind == SL_OP_CLEAR || kind == SL_OP_ADD || kind == SL_OP_ROUND)
        return true;
    static const char *const names[] = {"weight",   "dweight", "panel",    "dpanel",  "wpe",
                                        "dwpe",     "param",   "master",   "moment1", "moment2",
                                        "gradient", "moment",  "momentum", "mean",    "direction"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* True if operand i is a state of a rule that is stored in bf16; codes may be any bytes, and fp32
 * is a scale. */
static bool is_half_state(const sl_ops_case *one, uint32_t i)
{
    sl_op_attrs other = one->attrs;
    other.state_type = SL_STATES_INT8;
    return one->attrs.state_type == SL_STATES_BF16 &&
           sl_op_least_bytes(one->kind, &other, i) != sl_op_least_bytes(one->kind, &one->attrs, i);
}

/* Element type of operand i: fp32 where its bytes do not depend on the compute type. */
static sl_type find_operand_type(const sl_ops_case *one, uint32_t i)
{
    sl_op_attrs other = one->attrs;
    if (is_half_state(one, i))
        return SL_TYPE_BF16;
    other.type = one->attrs.type == SL_TYPE_FP32 ? SL_TYPE_BF16 : SL_TYPE_FP32;
    bool is_typed =
        sl_op_least_bytes(one->kind, &other, i) != sl_op_least_bytes(one->kind, &one->attrs, i);
    return is_typed ? (sl_type)one->attrs.type : SL_TYPE_FP32;
}

static sl_memory_request find_request(const sl_ops_case *one, uint32_t i)
{
    const sl_op op = {.kind = one->kind, .attrs = one->attrs};
    const char *name = sl_op_info_of(one->kind)->operand[i].name;
    return (sl_memory_request){.bytes = sl_op_least_bytes(one->kind, &one->attrs, i),
                               .is_cold = is_of_chunk(one->kind, name),
                               .is_written = sl_op_writes(&op, i),
                               .type = find_operand_type(one, i)};
}

/* What an op can do beside its product. */
static bool is_extra(const char *operand_name)
{
    static const char *const names[] = {"bias", "residual", "dbias", "gelu_x", "positions"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(operand_name, names[i]) == 0)
            return true;
    return false;
}

/* An operand of attention that is a part of another one, unless the attributes say otherwise. */
static bool is_apart(const char *operand_name)
{
    static const char *const names[] = {"k", "v", "dk", "dv"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(operand_name, names[i]) == 0)
            return true;
    return false;
}

/* Optional operands are left out but for those that training has: the master copy, and all of an op
 * that makes gradients. */
static bool is_left_out(const sl_ops_case *one, uint32_t i)
{
    const sl_op_info *info = sl_op_info_of(one->kind);
    if (is_apart(info->operand[i].name)) /* k and v, and their gradients */
        return sl_op_least_bytes(one->kind, &one->attrs, i) == 0;
    if (one->is_bare)
        return is_extra(info->operand[i].name);
    if (strcmp(info->operand[i].name, "master") == 0)
        return one->attrs.type == SL_TYPE_FP32;
    if (info->updates_chunk) /* sgd with momentum: without it there are no states */
        return false;
    return info->operand[i].is_optional && !sl_ops_makes_gradient(one->kind);
}

static bool has_room(sl_memory *memory, const sl_ops_case *one)
{
    for (uint32_t i = 0; i < sl_op_info_of(one->kind)->operand_count; i++)
        if (!is_left_out(one, i) && !sl_memory_fits(memory, find_request(one, i)))
            return false;
    return true;
}

void sl_ops_note_memory(const sl_ops_case *one, sl_memory_need *need)
{
    for (uint32_t i = 0; i < sl_op_info_of(one->kind)->operand_count; i++)
        if (!is_left_out(one, i))
            sl_memory_note(need, find_request(one, i));
}

uint64_t sl_ops_largest_operand(const sl_ops_case *one)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < sl_op_info_of(one->kind)->operand_count; i++)
        if (!is_left_out(one, i))
            most = sl_bits_max(most, find_request(one, i).bytes);
    return most;
}

/* ---- the list ---- */

bool sl_ops_makes_gradient(sl_op_kind kind)
{
    const sl_op_info *info = sl_op_info_of(kind);
    for (uint32_t i = 0; i < info->operand_count; i++)
        if (info->operand[i].mode == SL_MODE_GRADIENT)
            return true;
    return false;
}

typedef enum step_use { USE_QUICK = 1, USE_CPU = 2, USE_GPU = 4 } step_use;

typedef struct step {
    const char *model;
    uint32_t batch, seq;
    int use; /* a set of step_use: where there is little time, and on which device */
} step;

/* On the cpu 64 to 1024 rows of GPT-2 124M, 256 of the widest GPT-2; on a GPU as many as keep it
 * busy. Where time is short, the fewest rows whose rates are near those of more. */
static const step steps[] = {
    {"gpt2", 1, 256, USE_QUICK}, {"gpt2", 1, 64, USE_CPU},      {"gpt2", 4, 64, USE_CPU},
    {"gpt2", 4, 256, USE_CPU},   {"gpt2-xl", 1, 256, USE_CPU},  {"gpt2", 1, 1024, USE_GPU},
    {"gpt2", 16, 1024, USE_GPU}, {"gpt2-xl", 4, 1024, USE_GPU},
};

static const uint64_t square_max = 8192, square_min = 512; /* roofs of a GPU */
static const uint64_t square_small = 64;                   /* of a small shape */
static const step small_step = {NULL, 1, 8, 0};

/* Elements of measured chunks: the whole chunk says no more, and takes longer. */
static const uint64_t chunk_elements[] = {UINT64_C(1) << 20, CHUNK_ELEMENTS_MAX};
static const uint64_t small_elements = UINT64_C(2) * SL_BLOCK_ELEMENTS; /* of a small shape */

static bool is_sized_by_chunk(sl_op_kind kind)
{
    return sl_op_info_of(kind)->updates_chunk || kind == SL_OP_BLOCK_NORM || kind == SL_OP_CLEAR ||
           kind == SL_OP_CLEAR_PADDING || kind == SL_OP_ROUND;
}

sl_bench_figure sl_ops_figure(sl_op_kind kind)
{
    const sl_op_attrs one = {.row_count = 1, .in = 1, .out = 1, .id_count = 1};
    if (sl_op_info_of(kind)->updates_chunk)
        return SL_BENCH_ADAMW;
    return sl_op_flops(kind, &one) > 0 ? SL_BENCH_GEMM : SL_BENCH_OP;
}

static sl_status append_case(sl_ops *ops, const sl_ops_case *added)
{
    SL_TRY(SL_ARRAY_GROW(ops->cases, ops->count, ops->capacity, "ops to measure"));
    ops->cases[ops->count++] = *added;
    return SL_OK;
}

static sl_status add_case(sl_ops *ops, sl_op_kind kind, const sl_op_attrs *attrs)
{
    if (!(ops->figures >> sl_ops_figure(kind) & 1))
        return SL_OK;
    const sl_ops_case added = {.kind = kind, .attrs = *attrs};
    for (uint32_t i = 0; i < ops->count; i++)
        if (ops->cases[i].kind == kind && /* NOLINTNEXTLINE: no padding, and bits are meant */
            memcmp(&ops->cases[i].attrs, attrs, sizeof *attrs) == 0)
            return SL_OK;
    if (!has_room(ops->memory, &added) || attrs->batch * attrs->seq > TOKENS_MAX ||
        attrs->row_count > TOKENS_MAX)
        return SL_OK;
    return append_case(ops, &added);
}

static sl_status add_op(sl_ops *ops, const sl_op *op)
{
    sl_op_attrs attrs = op->attrs;
    attrs.scale = attrs.scale != 0 ? 1.0f : 0.0f; /* the same work */
    attrs.first_row = attrs.first_id = attrs.first_block = attrs.dropout_site = 0;
    if (is_sized_by_chunk(op->kind) || sl_op_info_of(op->kind)->is_collective ||
        sl_op_info_of(op->kind)->is_input)
        return SL_OK;
    if (op->kind == SL_OP_GELU) /* other models have it where GPT-2 passes it in a product */
        SL_TRY(add_case(ops, SL_OP_GELU_BACKWARD, &attrs));
    return add_case(ops, op->kind, &attrs);
}

/* `count` of the kinds, AdamW first. */
static sl_status add_chunks(sl_ops *ops, int count, const sl_ops_selection *selection)
{
    const bool is_small = selection->small_shape != NULL;
    static const sl_op_kind kinds[] = {SL_OP_ADAMW, SL_OP_BLOCK_NORM, SL_OP_CLEAR, SL_OP_ROUND};
    for (int i = 0; i < count; i++)
        for (int size = 0; size < (selection->is_quick || is_small ? 1 : 2); size++)
            for (int type = 0; type < SL_TYPE_COUNT; type++) {
                sl_op_attrs attrs = {.element_count =
                                         is_small ? small_elements : chunk_elements[size],
                                     .type = (uint16_t)type};
                if (kinds[i] == SL_OP_ROUND && type == SL_TYPE_FP32)
                    continue; /* nothing to round */
                SL_TRY(add_case(ops, kinds[i], &attrs));
                attrs.grad_type = type; /* half precision stores gradients so where it can */
                if (kinds[i] == SL_OP_ADAMW || kinds[i] == SL_OP_BLOCK_NORM)
                    SL_TRY(add_case(ops, kinds[i], &attrs));
            }
    return SL_OK;
}

/* True if the size of an operand differs between the two sets of attributes. */
static bool differs(sl_op_kind kind, const sl_op_attrs *one, const sl_op_attrs *other)
{
    for (uint32_t i = 0; i < sl_op_info_of(kind)->operand_count; i++)
        if (sl_op_least_bytes(kind, one, i) != sl_op_least_bytes(kind, other, i))
            return true;
    return false;
}

/* True of an update that training may have and that add_updates times. add_chunks times ADAMW with
 * states and master in fp32. Low masters stand beside parameters in bf16 alone. */
static bool has_own_rate(sl_op_kind kind, const sl_op_attrs *attrs)
{
    sl_op_attrs fp32_states = *attrs, fp32_master = *attrs;
    const bool is_low = attrs->master_type == SL_MASTER_LOW;
    fp32_states.state_type = SL_STATES_FP32;
    fp32_master.master_type = SL_MASTER_FP32;
    if (attrs->state_type != SL_STATES_FP32 && !differs(kind, attrs, &fp32_states))
        return false;
    if (is_low && (attrs->type != SL_TYPE_BF16 || !differs(kind, attrs, &fp32_master)))
        return false;
    return kind != SL_OP_ADAMW || is_low || attrs->state_type != SL_STATES_FP32;
}

/* Adds the update with states and masters of each type that it has. */
static sl_status add_update_types(sl_ops *ops, sl_op_kind kind, uint64_t elements)
{
    for (int master = 0; master < SL_MASTER_COUNT; master++)
        for (int states = 0; states < SL_STATES_COUNT; states++)
            for (int type = 0; type < SL_TYPE_COUNT; type++) {
                const sl_op_attrs attrs = {.element_count = elements,
                                           .type = (uint16_t)type,
                                           .grad_type = (uint16_t)type,
                                           .state_type = (uint32_t)states,
                                           .master_type = (uint32_t)master};
                if (has_own_rate(kind, &attrs))
                    SL_TRY(add_case(ops, kind, &attrs));
            }
    return SL_OK;
}

static sl_status add_updates(sl_ops *ops, const sl_ops_selection *selection)
{
    const uint64_t elements = selection->small_shape ? small_elements : chunk_elements[0];
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        if (sl_op_info_of((sl_op_kind)kind)->updates_chunk)
            SL_TRY(add_update_types(ops, (sl_op_kind)kind, elements));
    return SL_OK;
}

static sl_status derive_step(const sl_program *forward, uint32_t micro_batches,
                             sl_program **out_program)
{
    sl_layout *layout = NULL;
    SL_TRY(sl_layout_build(forward, 0, &layout));
    sl_chunk_map map = sl_layout_chunk_map(layout);
    sl_step_options options = {.micro_batch_count = micro_batches,
                               .accumulation = SL_ACCUMULATE_LAYER,
                               .recompute = SL_RECOMPUTE_NONE};
    sl_status status = sl_program_derive_step(forward, &map, &options, out_program);
    sl_layout_close(layout);
    return status;
}

/* With dropout only what that adds: the other ops are those of a step without it. */
static bool is_wanted(const sl_op *op, float dropout)
{
    return dropout == 0 || op->kind == SL_OP_DROPOUT;
}

static sl_status add_training(sl_ops *ops, const sl_program *forward, uint32_t micro_batches,
                              float dropout)
{
    sl_program *training = NULL;
    sl_status status = derive_step(forward, micro_batches, &training);
    for (uint32_t i = 0; status == SL_OK && i < training->op_count; i++)
        if (is_wanted(&training->ops[i], dropout))
            status = add_op(ops, &training->ops[i]);
    sl_program_close(training);
    return status;
}

static sl_status add_step(sl_ops *ops, const step *size, const sl_model_shape *small_shape,
                          sl_type type, float dropout)
{
    sl_model_shape shape;
    if (small_shape)
        shape = *small_shape;
    else
        SL_TRY(sl_architecture_named(size->model, &shape));
    shape.layers = 1; /* the others are like it */
    sl_model_options options = {.batch = size->batch,
                                .seq = size->seq,
                                .tp_size = 1,
                                .type = type,
                                .grad_type = type,
                                .dropout = dropout};
    if (ops->device->ops->kind == SL_DEVICE_CUDA)
        options.head_logits = sl_model_gpu_head_logits(type);
    sl_program *forward = NULL;
    SL_TRY(sl_model_shape_emit(&shape, &options, &forward));
    sl_status status = add_training(ops, forward, 1, dropout);
    if (status == SL_OK) /* of which the second one's gradients are added */
        status = add_training(ops, forward, 2, dropout);
    sl_program_close(forward);
    return status;
}

static sl_status add_both_steps(sl_ops *ops, const step *size, const sl_model_shape *small_shape)
{
    static const float dropout = 0.1f;
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        SL_TRY(add_step(ops, size, small_shape, (sl_type)type, 0));
        SL_TRY(add_step(ops, size, small_shape, (sl_type)type, dropout));
    }
    return SL_OK;
}

static sl_status add_steps(sl_ops *ops, const sl_ops_selection *selection)
{
    bool is_cpu = ops->device->ops->kind == SL_DEVICE_CPU;
    int use = selection->is_quick ? USE_QUICK : is_cpu ? USE_CPU : USE_GPU;
    if (selection->small_shape)
        SL_TRY(add_both_steps(ops, &small_step, selection->small_shape));
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && !selection->small_shape; i++)
        if (steps[i].use & use)
            SL_TRY(add_both_steps(ops, &steps[i], NULL));
    SL_TRY(add_chunks(ops, 4, selection));
    return add_updates(ops, selection);
}

/* The largest square that there is room for. */
static sl_status add_square(sl_ops *ops, uint16_t type, const sl_ops_selection *selection)
{
    const uint32_t before = ops->count;
    const uint64_t least = selection->small_shape ? square_small : square_min;
    uint64_t edge = selection->is_quick || selection->small_shape ? least : square_max;
    for (; edge >= least && ops->count == before; edge /= 2) {
        sl_op_attrs attrs = {.row_count = edge, .in = edge, .out = edge, .type = type};
        SL_TRY(add_case(ops, SL_OP_LINEAR, &attrs));
    }
    return SL_OK;
}

static sl_status add_roofs(sl_ops *ops, const sl_ops_selection *selection)
{
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        SL_TRY(add_square(ops, (uint16_t)type, selection));
    sl_op_attrs least = {.element_count = SL_BLOCK_ELEMENTS};
    return add_case(ops, SL_OP_CLEAR, &least);
}

static sl_status add_list(sl_ops *ops, const sl_ops_selection *selection)
{
    for (uint32_t i = 0; i < selection->given_count; i++)
        SL_TRY(append_case(ops, &selection->given[i]));
    if (selection->list == SL_OPS_GIVEN)
        return SL_OK;
    if (selection->list == SL_OPS_ADAMW) {
        SL_TRY(add_chunks(ops, 1, selection));
        return add_updates(ops, selection);
    }
    return selection->list == SL_OPS_ROOFS ? add_roofs(ops, selection) : add_steps(ops, selection);
}

/* ---- tokens, control words, flags, workspace ---- */

/* What a call needs beside numbers. It lies where the processor may not reach: only its addresses
 * are taken there, and its contents are copied. */
struct sl_ops_scratch {
    _Alignas(ALIGNMENT) int32_t tokens[TOKENS_MAX];
    _Alignas(ALIGNMENT) double loss;
    _Alignas(ALIGNMENT) sl_norm_sum norm;
    _Alignas(ALIGNMENT) sl_step_control control;
    _Alignas(ALIGNMENT) uint8_t block_flags[CHUNK_ELEMENTS_MAX / SL_BLOCK_ELEMENTS];
    _Alignas(ALIGNMENT) uint64_t block_keys[CHUNK_ELEMENTS_MAX / SL_BLOCK_ELEMENTS];
    _Alignas(ALIGNMENT) uint8_t workspace[];
};

/* The operand of that name if it holds no plain numbers, else NULL. */
static void *find_special(struct sl_ops_scratch *scratch, const char *operand_name)
{
    if (strcmp(operand_name, "tokens") == 0 || strcmp(operand_name, "targets") == 0)
        return scratch->tokens;
    if (strcmp(operand_name, "loss") == 0)
        return &scratch->loss;
    if (strcmp(operand_name, "norm") == 0)
        return &scratch->norm;
    return strcmp(operand_name, "control") == 0 ? &scratch->control : NULL;
}

static uint64_t find_workspace_bytes(const sl_ops *ops)
{
    const sl_timed_device *device = ops->device;
    uint64_t most = 0;
    for (uint32_t i = 0; i < ops->count; i++) {
        const sl_ops_case *one = &ops->cases[i];
        uint64_t bytes = sl_kernels_workspace_bytes(device->kernels, one->kind, &one->attrs,
                                                    device->worker_count);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static sl_status fill_scratch(sl_ops *ops)
{
    const sl_timed_device *device = ops->device;
    void *mapping;
    double seconds;
    SL_TRY(device->ops->map_host(device->handle, sizeof *ops->scratch, SL_MAP_PLAIN, &mapping));
    struct sl_ops_scratch *image = mapping;
    for (uint32_t i = 0; i < TOKENS_MAX; i++)
        image->tokens[i] = (int32_t)((i * 2654435761u >> 8) % TOKEN_BOUND);
    image->control = (sl_step_control){.clip_scale = 0.5f};
    const sl_timed_copy copy = {ops->scratch, image, sizeof *image};
    sl_status status = sl_timed_device_copy(ops->device, &copy, 1, &seconds);
    device->ops->unmap_host(device->handle, mapping, sizeof *image, SL_MAP_PLAIN);
    return status;
}

static sl_status take_scratch(sl_ops *ops)
{
    const sl_timed_device *device = ops->device;
    void *mapping;
    ops->calls = calloc(CALLS_MAX, sizeof *ops->calls);
    if (!ops->calls)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %d calls to measure", CALLS_MAX);
    ops->scratch_bytes =
        sizeof *ops->scratch + sl_bits_round_up(find_workspace_bytes(ops) + 1, ALIGNMENT);
    SL_TRY(device->ops->map(device->handle, ops->scratch_bytes, SL_MAP_PLAIN, &mapping));
    ops->scratch = mapping;
    return fill_scratch(ops);
}

sl_status sl_ops_open(sl_memory *memory, const sl_ops_selection *selection, sl_ops *out_ops)
{
    sl_ops ops = {.memory = memory,
                  .device = memory->device,
                  .figures = selection->figures,
                  .is_quick = selection->is_quick};
    sl_status status = add_list(&ops, selection);
    if (status == SL_OK)
        status = take_scratch(&ops);
    if (status != SL_OK) {
        sl_ops_close(&ops);
        return status;
    }
    *out_ops = ops;
    return SL_OK;
}

void sl_ops_close(sl_ops *ops)
{
    if (ops->scratch)
        ops->device->ops->unmap(ops->device->handle, ops->scratch, ops->scratch_bytes,
                                SL_MAP_PLAIN);
    free(ops->calls);
    free(ops->cases);
    *ops = (sl_ops){0};
}

/* ---- timing ---- */

static sl_status take_operands(const sl_ops *ops, const sl_ops_case *one, sl_kernel_call *call)
{
    const sl_op_info *info = sl_op_info_of(one->kind);
    for (uint32_t i = 0; i < info->operand_count; i++) {
        call->operand[i] = find_special(ops->scratch, info->operand[i].name);
        if (!call->operand[i] && !is_left_out(one, i))
            SL_TRY(sl_memory_take(ops->memory, find_request(one, i), &call->operand[i]));
    }
    return SL_OK;
}

/* The tokens of a case are the last ones that the cache holds. */
static uint32_t find_position(const sl_ops_case *one)
{
    const bool is_cached = one->kind == SL_OP_ATTENTION_CACHED;
    return is_cached ? (uint32_t)(one->attrs.cache_rows - one->attrs.seq) : 0;
}

/* Calls with operands of their own, ready to run. */
static sl_status fill_calls(sl_ops *ops, const sl_ops_case *one, uint32_t count)
{
    const sl_timed_device *device = ops->device;
    for (uint32_t i = 0; i < count; i++) {
        ops->calls[i] =
            (sl_kernel_call){.attrs = &one->attrs,
                             .workspace = ops->scratch->workspace,
                             .block_flags = ops->scratch->block_flags,
                             .block_keys = ops->scratch->block_keys,
                             .workers = device->workers,
                             .stream = device->ops->stream_native(device->streams[0].stream),
                             .library = device->library,
                             .scalars = {.position = find_position(one),
                                         .learning_rate = 1e-4f,
                                         .weight_decay = 0.1f,
                                         .beta1 = 0.9f,
                                         .beta2 = 0.95f,
                                         .epsilon = 1e-8f,
                                         .bias1 = 0.5f,
                                         .bias2_root = 0.5f,
                                         .lion_beta1 = 0.9f,
                                         .lion_beta2 = 0.99f,
                                         .momentum = 0.9f,
                                         .muon_momentum = 0.95f,
                                         .clip = 1.0f,
                                         .loss_scale = 1.0f}};
        SL_TRY(take_operands(ops, one, &ops->calls[i]));
    }
    return SL_OK;
}

typedef struct batch {
    sl_kernel kernel;
    const sl_kernel_call *calls;
    uint32_t count;
} batch;

static sl_status run_batch(void *argument)
{
    const batch *all = argument;
    for (uint32_t i = 0; i < all->count; i++)
        SL_TRY(all->kernel(&all->calls[i]));
    return SL_OK;
}

static sl_status time_calls(sl_ops *ops, const sl_ops_case *one, uint32_t count,
                            double *out_seconds)
{
    batch all = {ops->device->kernels->row[one->kind].run, ops->calls, count};
    SL_TRY(fill_calls(ops, one, count));
    return sl_timed_device_run(ops->device, run_batch, &all, out_seconds);
}

/* Chooses and loads what the case needs. Kernels that time algorithms need operands for it. */
static sl_status prepare_case(sl_ops *ops, const sl_ops_case *one)
{
    const sl_timed_device *device = ops->device;
    const sl_kernel_call shapes = {.attrs = &one->attrs};
    SL_TRY(device->kernels->prepare(device->library, one->kind, &shapes));
    if (!device->times_algorithms)
        return SL_OK;
    SL_TRY(fill_calls(ops, one, 1));
    return device->kernels->prepare(device->library, one->kind, &ops->calls[0]);
}

sl_status sl_ops_warm_up(sl_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        sl_ops_case *one = &ops->cases[i];
        double seconds = 0;
        SL_TRY(prepare_case(ops, one));
        SL_TRY(time_calls(ops, one, 1, &seconds));
        if (seconds < warm_seconds)
            SL_TRY(time_calls(ops, one, 1, &seconds));
        double calls = sample_seconds / (seconds > 1e-7 ? seconds : 1e-7);
        one->calls = calls < 1 ? 1 : calls > CALLS_MAX ? CALLS_MAX : (uint32_t)calls;
    }
    return SL_OK;
}

sl_status sl_ops_sample_case(sl_ops *ops, uint32_t index)
{
    sl_ops_case *one = &ops->cases[index];
    double seconds = 0;
    SL_TRY(time_calls(ops, one, one->calls, &seconds));
    sl_samples_add(&one->seconds, seconds / one->calls);
    return SL_OK;
}

sl_status sl_ops_sample(sl_ops *ops)
{
    for (uint32_t i = 0; i < ops->count; i++)
        SL_TRY(sl_ops_sample_case(ops, i));
    return SL_OK;
}

/* ---- rates ---- */

typedef struct fit {
    int kind, type;
    bool adds;
    double op_seconds;
} fit;

/* A case of add_updates: its rate goes into sl_machine.update. */
static bool is_of_rule(const sl_ops_case *one)
{
    return sl_op_info_of(one->kind)->updates_chunk && has_own_rate(one->kind, &one->attrs);
}

/* Writes the rate of one kind and type, if there are cases of it. */
static sl_status fit_kind(const sl_ops *ops, const fit *of, sl_op_rate *out_rate)
{
    sl_op_sample *samples = calloc((size_t)ops->count + 1, sizeof *samples);
    uint32_t count = 0;
    if (!samples)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u samples", ops->count);
    for (uint32_t i = 0; i < ops->count; i++) {
        const sl_ops_case *one = &ops->cases[i];
        if ((int)one->kind != of->kind || one->attrs.type != of->type ||
            sl_op_adds(&one->attrs) != of->adds || is_of_rule(one))
            continue;
        const double median = sl_samples_median(&one->seconds);
        const double seconds = median - of->op_seconds;
        samples[count++] =
            (sl_op_sample){.flops = (double)sl_op_flops(one->kind, &one->attrs),
                           .traffic_bytes = (double)sl_op_traffic_bytes(one->kind, &one->attrs),
                           /* an op that takes little more than the least one still takes some */
                           .seconds = seconds > median / 10 ? seconds : median / 10};
    }
    if (count)
        *out_rate = sl_samples_fit(samples, count, !ops->is_quick);
    free(samples);
    return SL_OK;
}

static sl_status fit_adding(const sl_ops *ops, int kind, int type, sl_machine *machine)
{
    const fit of = {kind, type, true, machine->op_seconds};
    for (uint32_t i = 0; i < ops->count; i++)
        if ((int)ops->cases[i].kind == kind && sl_op_adds(&ops->cases[i].attrs))
            machine->adding_op[kind].is_measured = true;
    return fit_kind(ops, &of, &machine->adding_op[kind].rate[type]);
}

/* Writes the rates of updates, of the device or of the host. */
static void fit_updates(const sl_ops *ops, bool on_host, sl_machine *machine)
{
    for (uint32_t i = 0; i < ops->count; i++) {
        const sl_ops_case *one = &ops->cases[i];
        if (!is_of_rule(one))
            continue;
        sl_update_rates *rates = &machine->update[one->attrs.master_type][one->kind];
        double(*of)[SL_TYPE_COUNT] = on_host ? rates->host : rates->device;
        const double median = sl_samples_median(&one->seconds);
        const double seconds = fmax(median - machine->op_seconds, median / 10);
        of[one->attrs.state_type][one->attrs.type] =
            (double)sl_op_traffic_bytes(one->kind, &one->attrs) / seconds;
        rates->is_measured = true;
    }
}

sl_status sl_ops_fit(const sl_ops *ops, sl_machine *machine)
{
    fit_updates(ops, false, machine);
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        for (int kind = 0; kind < SL_OP_COUNT; kind++) {
            const fit of = {kind, type, false, machine->op_seconds};
            SL_TRY(fit_kind(ops, &of, &machine->op[kind][type]));
            SL_TRY(fit_adding(ops, kind, type, machine));
        }
        machine->op[SL_OP_ATTENTION_CACHED][type] = machine->op[SL_OP_ATTENTION][type];
        machine->op[SL_OP_CLEAR_PADDING][type] = machine->op[SL_OP_CLEAR][type];
    }
    return SL_OK;
}

sl_status sl_ops_fit_host(const sl_ops *ops, sl_machine *machine)
{
    fit_updates(ops, true, machine);
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        const fit of = {SL_OP_ADAMW, type, false, machine->op_seconds};
        SL_TRY(fit_kind(ops, &of, &machine->host_update[type]));
    }
    return SL_OK;
}
