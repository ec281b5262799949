/* The updates of rules: one chunk, whole blocks, one pass. Each reads and writes up to eight
 * streams at once, so a tile is long enough for the memory's prefetchers. */
#include <stddef.h>

#include "base/dynamic_codes.h"
#include "ops.h"
#include "simd.h"
#include "tiles.h"

enum { TILE_BLOCKS = 64 };

/* Operands of every update: the control, the gradient, the rule's states, and behind them: */
typedef enum behind_states { PARAM, MASTER } behind_states;

typedef void update_kernel(const sl_update_blocks *blocks);

typedef struct update_job {
    sl_update_blocks blocks;
    sl_block_rate rates[SL_RATES_MAX];
    uint32_t rate_count;
    float shares[2][256]; /* INT8 */
    update_kernel *kernel;
} update_job;

/* The blocks of a tile. */
static sl_update_blocks cut_tile(const sl_update_blocks *all, uint64_t tile_index)
{
    sl_update_blocks blocks = *all;
    const sl_span span = sl_tiles_span(blocks.block_count, TILE_BLOCKS, tile_index);
    const uint64_t first = span.first * SL_BLOCK_ELEMENTS;
    blocks.gradient = sl_simd_gradient_from(&blocks.gradient, first);
    for (int i = 0; i < 2; i++)
        if (blocks.state[i] != NULL)
            blocks.state[i] =
                (char *)blocks.state[i] + span.first * sl_states_block_bytes(blocks.states);
    if (blocks.keys != NULL)
        blocks.keys += span.first;
    if (blocks.low != NULL)
        blocks.low += first;
    else
        blocks.weights += first;
    if (blocks.param != NULL)
        blocks.param = (char *)blocks.param + first * sl_type_bytes(blocks.gradient.type);
    blocks.rate_of_block += span.first;
    blocks.block_count = span.count;
    return blocks;
}

static void update_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const update_job *job = argument;
    const sl_update_blocks blocks = cut_tile(&job->blocks, tile_index);
    job->kernel(&blocks);
}

/* A skipped step still writes the parameters from their master copy in fp32. */
static void round_params_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    const update_job *job = argument;
    const sl_update_blocks blocks = cut_tile(&job->blocks, tile_index);
    sl_simd_current()->round(blocks.weights, blocks.param, blocks.gradient.type,
                             blocks.block_count * SL_BLOCK_ELEMENTS);
}

static sl_status check_update(const sl_kernel_call *call, uint32_t state_count)
{
    const sl_op_attrs *attrs = call->attrs;
    if (attrs->element_count % SL_BLOCK_ELEMENTS != 0)
        SL_FAIL(SL_ERROR_INTERNAL, "an update of %llu elements is not whole blocks",
                (unsigned long long)attrs->element_count);
    if (attrs->grad_type != SL_TYPE_FP32 && attrs->grad_type != attrs->type)
        SL_FAIL(SL_ERROR_INTERNAL, "a gradient stored as type %u, computed as type %u",
                attrs->grad_type, attrs->type);
    if (attrs->type != SL_TYPE_FP32 && call->operand[2 + state_count + MASTER] == NULL)
        SL_FAIL(SL_ERROR_INTERNAL, "an update in half precision without a master copy");
    if (attrs->master_type >= SL_MASTER_COUNT ||
        (attrs->master_type == SL_MASTER_LOW && attrs->type != SL_TYPE_BF16))
        SL_FAIL(SL_ERROR_INTERNAL, "a master of type %u beside parameters of type %u",
                attrs->master_type, attrs->type);
    if (attrs->state_type >= SL_STATES_COUNT ||
        (attrs->state_type == SL_STATES_BF16 && call->block_keys == NULL))
        SL_FAIL(SL_ERROR_INTERNAL, "states of type %u, or without the keys of blocks",
                attrs->state_type);
    return SL_OK;
}

static void open_states(const sl_kernel_call *call, uint32_t state_count, update_job *job)
{
    const sl_op_attrs *attrs = call->attrs;
    job->blocks.states = (sl_states)attrs->state_type;
    job->blocks.step = call->scalars.step;
    if (attrs->state_type == SL_STATES_BF16)
        job->blocks.keys = call->block_keys + attrs->first_block;
    for (uint32_t i = 0; i < state_count; i++) {
        job->blocks.state[i] = call->operand[2 + i];
        if (attrs->state_type == SL_STATES_INT8)
            sl_codes_list_shares(i == 0, job->shares[i]);
        job->blocks.shares[i] = job->shares[i];
    }
}

/* Fills in what all rules have; the constants of the rule are left 0. */
static sl_status open_job(const sl_kernel_call *call, uint32_t state_count, update_job *job)
{
    const sl_op_attrs *attrs = call->attrs;
    const bool half = attrs->type != SL_TYPE_FP32;
    const bool has_low = attrs->master_type == SL_MASTER_LOW;
    void *const *behind = call->operand + 2 + state_count;
    SL_TRY(check_update(call, state_count));
    job->rate_count = sl_rates_of_step(call, job->rates);
    job->blocks = (sl_update_blocks){
        .gradient = {call->operand[1], (sl_type)attrs->grad_type, (sl_type)attrs->type},
        .weights = has_low ? NULL : behind[half ? MASTER : PARAM],
        .param = half ? behind[PARAM] : NULL,
        .low = has_low ? behind[MASTER] : NULL,
        .rate_of_block = call->block_flags + attrs->first_block,
        .rates = job->rates,
        .block_count = attrs->element_count / SL_BLOCK_ELEMENTS,
        .clip_scale = ((const sl_step_control *)call->operand[0])->clip_scale,
    };
    open_states(call, state_count, job);
    return SL_OK;
}

static sl_status run_job(const sl_kernel_call *call, update_kernel *kernel, update_job *job)
{
    const sl_step_control *control = call->operand[0];
    const uint64_t tiles = sl_tiles_count(job->blocks.block_count, TILE_BLOCKS);
    job->kernel = kernel;
    if (!control->skip)
        sl_workers_run(call->workers, tiles, update_tile, job);
    else if (job->blocks.param != NULL && job->blocks.low == NULL)
        sl_workers_run(call->workers, tiles, round_params_tile, job);
    return SL_OK;
}

static void set_betas(sl_update_blocks *blocks, float beta1, float beta2)
{
    blocks->beta1 = beta1;
    blocks->beta2 = beta2;
    blocks->rest1 = 1.0f - beta1;
    blocks->rest2 = 1.0f - beta2;
}

sl_status sl_cpu_adamw(const sl_kernel_call *call)
{
    const sl_step_scalars *scalars = &call->scalars;
    update_job job;
    SL_TRY(open_job(call, 2, &job));
    sl_rates_decouple(job.rates, job.rate_count);
    for (uint32_t i = 0; i < job.rate_count; i++)
        job.rates[i].step /= scalars->bias1;
    set_betas(&job.blocks, scalars->beta1, scalars->beta2);
    job.blocks.inverse_root = 1.0f / scalars->bias2_root;
    job.blocks.epsilon = scalars->epsilon;
    return run_job(call, sl_simd_current()->adamw, &job);
}

sl_status sl_cpu_sgd(const sl_kernel_call *call)
{
    update_job job;
    SL_TRY(open_job(call, 1, &job));
    job.blocks.momentum = call->scalars.momentum;
    job.blocks.is_nesterov = call->scalars.is_nesterov != 0;
    return run_job(call, sl_simd_current()->sgd, &job);
}

sl_status sl_cpu_lion(const sl_kernel_call *call)
{
    update_job job;
    SL_TRY(open_job(call, 1, &job));
    sl_rates_decouple(job.rates, job.rate_count);
    set_betas(&job.blocks, call->scalars.lion_beta1, call->scalars.lion_beta2);
    return run_job(call, sl_simd_current()->lion, &job);
}

sl_status sl_cpu_apply(const sl_kernel_call *call)
{
    update_job job;
    SL_TRY(open_job(call, 0, &job));
    sl_rates_decouple(job.rates, job.rate_count);
    return run_job(call, sl_simd_current()->apply, &job);
}
