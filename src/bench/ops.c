/* Runs and times single ops through the kernel table of a device. */
#include "ops.h"

#include <stdlib.h>
#include <string.h>

#include "ops_scratch.h"

static const double sample_seconds = 1e-3; /* a shorter one would measure the clock */

/* Operands whose place in a step is a chunk, or as large; all others are activations. */
static bool is_of_chunk(sl_op_kind kind, const char *name)
{
    if (kind == SL_OP_CLEAR || kind == SL_OP_ADD || kind == SL_OP_ROUND)
        return true;
    static const char *const names[] = {"weight",  "dweight", "panel",   "dpanel",
                                        "wpe",     "dwpe",    "param",   "master",
                                        "moment1", "moment2", "gradient"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Element type of operand i: fp32 where its bytes do not depend on the compute type. */
static sl_type find_operand_type(const sl_ops_case *one, uint32_t i)
{
    sl_op_attrs other = one->attrs;
    other.type = one->attrs.type == SL_TYPE_FP32 ? SL_TYPE_BF16 : SL_TYPE_FP32;
    bool is_typed =
        sl_op_operand_bytes(one->kind, &other, i) != sl_op_operand_bytes(one->kind, &one->attrs, i);
    return is_typed ? (sl_type)one->attrs.type : SL_TYPE_FP32;
}

static uint64_t find_operand_bytes(const sl_ops_case *one, uint32_t i)
{
    uint64_t bytes = sl_op_operand_bytes(one->kind, &one->attrs, i);
    return bytes ? bytes : 4 * one->attrs.seq * one->attrs.in; /* positions */
}

static sl_memory_wish find_wish(const sl_ops_case *one, uint32_t i)
{
    const sl_op op = {.kind = one->kind, .attrs = one->attrs};
    const char *name = sl_op_info_of(one->kind)->operand[i].name;
    return (sl_memory_wish){.bytes = find_operand_bytes(one, i),
                            .is_cold = is_of_chunk(one->kind, name),
                            .is_written = sl_op_writes(&op, i),
                            .type = find_operand_type(one, i)};
}

/* Optional operands are left out but for those that training has. */
static bool is_left_out(const sl_ops_case *one, uint32_t i)
{
    const sl_op_info *info = sl_op_info_of(one->kind);
    bool is_master = strcmp(info->operand[i].name, "master") == 0;
    bool is_dbias = strcmp(info->operand[i].name, "dbias") == 0;
    return (info->operand[i].is_optional && !is_master && !is_dbias) ||
           (is_master && one->attrs.type == SL_TYPE_FP32);
}

bool sl_ops_fits(sl_memory *memory, const sl_ops_case *one)
{
    for (uint32_t i = 0; i < sl_op_info_of(one->kind)->operand_count; i++)
        if (!is_left_out(one, i) && !sl_memory_fits(memory, find_wish(one, i)))
            return false;
    return true;
}

static sl_status take_operands(const sl_ops *ops, const sl_ops_case *one, sl_kernel_call *call)
{
    const sl_op_info *info = sl_op_info_of(one->kind);
    for (uint32_t i = 0; i < info->operand_count; i++) {
        call->operand[i] = sl_ops_special(ops, info->operand[i].name);
        if (!call->operand[i] && !is_left_out(one, i))
            SL_TRY(sl_memory_take(ops->memory, find_wish(one, i), &call->operand[i]));
    }
    return SL_OK;
}

/* Calls of other stretches each, ready to run. */
static sl_status fill_calls(sl_ops *ops, const sl_ops_case *one, uint32_t count)
{
    const sl_rig *rig = ops->rig;
    for (uint32_t i = 0; i < count; i++) {
        ops->calls[i] = (sl_kernel_call){.attrs = &one->attrs,
                                         .workspace = ops->workspace,
                                         .block_flags = ops->block_flags,
                                         .workers = rig->workers,
                                         .stream = rig->ops->stream_native(rig->lane[0].stream),
                                         .library = rig->library,
                                         .scalars = {.learning_rate = 1e-4f,
                                                     .weight_decay = 0.1f,
                                                     .beta1 = 0.9f,
                                                     .beta2 = 0.95f,
                                                     .epsilon = 1e-8f,
                                                     .bias1 = 0.5f,
                                                     .bias2_root = 0.5f,
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
    batch all = {ops->rig->kernels->row[one->kind].run, ops->calls, count};
    SL_TRY(fill_calls(ops, one, count));
    return sl_rig_call(ops->rig, run_batch, &all, out_seconds);
}

sl_status sl_ops_warm_up(sl_ops *ops, sl_ops_case *one)
{
    double seconds = 0;
    SL_TRY(ops->rig->kernels->prepare(ops->rig->library, one->kind, &one->attrs));
    SL_TRY(time_calls(ops, one, 1, &seconds));
    SL_TRY(time_calls(ops, one, 1, &seconds));
    double calls = sample_seconds / (seconds > 1e-7 ? seconds : 1e-7);
    one->calls = calls < 1 ? 1 : calls > SL_OPS_CALLS_MAX ? SL_OPS_CALLS_MAX : (uint32_t)calls;
    return SL_OK;
}

sl_status sl_ops_sample(sl_ops *ops, sl_ops_case *one, uint32_t round)
{
    double seconds = 0;
    SL_TRY(time_calls(ops, one, one->calls, &seconds));
    one->samples[round] = seconds / one->calls;
    return SL_OK;
}

void sl_ops_finish(sl_ops *ops, uint32_t round_count)
{
    for (uint32_t i = 0; i < ops->count; i++)
        ops->cases[i].seconds = sl_spread_of(ops->cases[i].samples, round_count);
}

/* ---- rates ---- */

/* Writes the rate of one kind and type, if there are cases of it. */
static sl_status fit_kind(const sl_ops *ops, int kind, int type, double op_seconds,
                          sl_op_rate *out_rate)
{
    sl_fit_sample *samples = calloc(ops->count, sizeof *samples);
    uint32_t count = 0;
    if (!samples)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u samples", ops->count);
    for (uint32_t i = 0; i < ops->count; i++) {
        const sl_ops_case *one = &ops->cases[i];
        if ((int)one->kind != kind || one->attrs.type != type)
            continue;
        double seconds = one->seconds.median - op_seconds;
        samples[count++] =
            (sl_fit_sample){.flops = (double)sl_op_flops(one->kind, &one->attrs),
                            .traffic_bytes = (double)sl_op_traffic_bytes(one->kind, &one->attrs),
                            .seconds = seconds > 1e-8 ? seconds : 1e-8};
    }
    if (count)
        *out_rate = sl_fit_rate(samples, count);
    free(samples);
    return SL_OK;
}

sl_status sl_ops_fit(const sl_ops *ops, sl_machine *machine)
{
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        for (int kind = 0; kind < SL_OP_COUNT; kind++)
            SL_TRY(fit_kind(ops, kind, type, machine->op_seconds, &machine->op[kind][type]));
        machine->op[SL_OP_ATTENTION_CACHED][type] = machine->op[SL_OP_ATTENTION][type];
    }
    return SL_OK;
}

sl_status sl_ops_fit_host(const sl_ops *ops, sl_machine *machine)
{
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        SL_TRY(fit_kind(ops, SL_OP_ADAMW, type, machine->op_seconds, &machine->host_adamw[type]));
    return SL_OK;
}
