/* Runs and times single ops through the kernel table. */
#include "ops.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/kernels.h"

enum { CALLS_MAX = 1000, TOKEN_COUNT = 4096, TOKEN_BOUND = 50257 };

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

/* Operands that hold no plain numbers, by name; NULL: numbers. */
static void *find_special(const char *name)
{
    static int32_t tokens[TOKEN_COUNT];
    static double loss[1];
    static sl_norm_sum norm;
    static sl_step_control control = {.clip_scale = 0.5f};
    if (strcmp(name, "tokens") == 0 || strcmp(name, "targets") == 0) {
        for (uint32_t i = 0; i < TOKEN_COUNT && tokens[1] == 0; i++)
            tokens[TOKEN_COUNT - 1 - i] = (int32_t)((i * 2654435761u >> 8) % TOKEN_BOUND);
        return tokens;
    }
    if (strcmp(name, "loss") == 0)
        return loss;
    if (strcmp(name, "norm") == 0)
        return &norm;
    return strcmp(name, "control") == 0 ? &control : NULL;
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

static sl_status take_operands(const sl_ops_case *one, sl_memory *memory, sl_kernel_call *call)
{
    const sl_op_info *info = sl_op_info_of(one->kind);
    const sl_op op = {.kind = one->kind, .attrs = one->attrs};
    for (uint32_t i = 0; i < info->operand_count; i++) {
        const char *name = info->operand_name[i];
        bool is_master = strcmp(name, "master") == 0;
        bool is_dbias = strcmp(name, "dbias") == 0;
        call->operand[i] = find_special(name);
        if (call->operand[i] || (info->operand_optional[i] && !is_master && !is_dbias) ||
            (is_master && one->attrs.type == SL_TYPE_FP32))
            continue;
        sl_memory_wish wish = {.bytes = find_operand_bytes(one, i),
                               .is_cold = is_of_chunk(one->kind, name),
                               .is_written = sl_op_writes(&op, i),
                               .type = find_operand_type(one, i)};
        SL_TRY(sl_memory_take(memory, wish, &call->operand[i]));
    }
    return SL_OK;
}

static sl_status run_once(sl_ops *ops, const sl_ops_case *one, sl_memory *memory,
                          sl_workers *workers, double *seconds)
{
    sl_kernel_call call = {.attrs = &one->attrs,
                           .workspace = ops->workspace,
                           .block_flags = ops->block_flags,
                           .workers = workers,
                           .scalars = {.learning_rate = 1e-4f,
                                       .weight_decay = 0.1f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.95f,
                                       .epsilon = 1e-8f,
                                       .bias1 = 0.5f,
                                       .bias2_root = 0.5f,
                                       .clip = 1.0f,
                                       .loss_scale = 1.0f}};
    SL_TRY(take_operands(one, memory, &call));
    uint64_t start = sl_clock_now_ns();
    sl_status status = sl_kernels_cpu()->run[one->kind](&call);
    *seconds += 1e-9 * (double)(sl_clock_now_ns() - start);
    return status;
}

sl_status sl_ops_warm_up(sl_ops *ops, sl_ops_case *one, sl_memory *memory, sl_workers *workers)
{
    double seconds = 0;
    SL_TRY(run_once(ops, one, memory, workers, &seconds));
    seconds = 0;
    SL_TRY(run_once(ops, one, memory, workers, &seconds));
    double calls = sample_seconds / (seconds > 1e-7 ? seconds : 1e-7);
    one->calls = calls < 1 ? 1 : calls > CALLS_MAX ? CALLS_MAX : (uint32_t)calls;
    return SL_OK;
}

sl_status sl_ops_sample(sl_ops *ops, sl_ops_case *one, uint32_t round, sl_memory *memory,
                        sl_workers *workers)
{
    double seconds = 0;
    for (uint32_t call = 0; call < one->calls; call++)
        SL_TRY(run_once(ops, one, memory, workers, &seconds));
    one->samples[round] = seconds / one->calls;
    return SL_OK;
}

void sl_ops_finish(sl_ops *ops, uint32_t round_count)
{
    for (uint32_t i = 0; i < ops->count; i++)
        ops->cases[i].seconds = sl_spread_of(ops->cases[i].samples, round_count);
}

/* ---- rates ---- */

static sl_status fit_kind(const sl_ops *ops, int kind, int type, sl_machine *machine)
{
    sl_fit_sample *samples = calloc(ops->count, sizeof *samples);
    uint32_t count = 0;
    if (!samples)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u samples", ops->count);
    for (uint32_t i = 0; i < ops->count; i++) {
        const sl_ops_case *one = &ops->cases[i];
        if ((int)one->kind != kind || one->attrs.type != type)
            continue;
        double seconds = one->seconds.median - machine->op_seconds;
        samples[count++] =
            (sl_fit_sample){.flops = (double)sl_op_flops(one->kind, &one->attrs),
                            .traffic_bytes = (double)sl_op_traffic_bytes(one->kind, &one->attrs),
                            .seconds = seconds > 1e-8 ? seconds : 1e-8};
    }
    if (count)
        machine->op[kind][type] = sl_fit_rate(samples, count);
    free(samples);
    return SL_OK;
}

sl_status sl_ops_fit(const sl_ops *ops, sl_machine *machine)
{
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        for (int kind = 0; kind < SL_OP_COUNT; kind++)
            SL_TRY(fit_kind(ops, kind, type, machine));
        machine->op[SL_OP_ATTENTION_CACHED][type] = machine->op[SL_OP_ATTENTION][type];
        machine->host_adamw[type] = machine->op[SL_OP_ADAMW][type];
    }
    return SL_OK;
}
