/* The table of the cpu kernels. */
#include <stddef.h>

#include "ops.h"
#include "simd.h"

/* The cpu kernels keep no state between calls. */
static sl_status open_library(int device_index, const sl_cuda_options *options,
                              sl_kernel_library **out_library)
{
    (void)device_index;
    (void)options;
    *out_library = NULL;
    return SL_OK;
}

static void close_library(sl_kernel_library *library)
{
    (void)library;
}

static sl_status prepare_nothing(sl_kernel_library *library, sl_op_kind kind,
                                 const sl_kernel_call *call)
{
    (void)library;
    (void)kind;
    (void)call;
    return SL_OK;
}

static const char *find_algorithm(const sl_kernel_library *library, uint64_t index)
{
    (void)library;
    (void)index;
    return NULL;
}

static const char *find_lack(void)
{
    return NULL;
}

static const char *describe_isa(void)
{
    return sl_simd_current()->isa;
}

static double multiply_adds(sl_type type, uint64_t count)
{
    const sl_register_loop *loop = sl_simd_current()->register_loop[type];
    float numbers[3] = {0.999f, 0.5f};
    loop->run(count, numbers);
    return (double)loop->flops * (double)count;
}

/* clang-format off */
static const sl_kernel_table table = {
    .row = {
        [SL_OP_EMBED_POSITION]           = {sl_cpu_embed_position},
        [SL_OP_EMBED_TOKENS]             = {sl_cpu_embed_tokens},
        [SL_OP_LAYERNORM]                = {sl_cpu_layernorm},
        [SL_OP_RMSNORM]                  = {sl_cpu_rmsnorm},
        [SL_OP_LINEAR]                   = {sl_cpu_linear,                     sl_cpu_linear_workspace_bytes},
        [SL_OP_ATTENTION]                = {sl_cpu_attention,                  sl_cpu_attention_workspace_bytes},
        [SL_OP_GELU]                     = {sl_cpu_gelu},
        [SL_OP_ROTARY]                   = {sl_cpu_rotary},
        [SL_OP_SWIGLU]                   = {sl_cpu_swiglu},
        [SL_OP_SCALE]                    = {sl_cpu_scale},
        [SL_OP_DROPOUT]                  = {sl_cpu_dropout},
        [SL_OP_HEAD_LOGITS]              = {sl_cpu_head_logits,                sl_cpu_linear_workspace_bytes},
        [SL_OP_HEAD_STATS]               = {sl_cpu_head_stats},
        [SL_OP_HEAD_LOSS]                = {sl_cpu_head_loss},
        [SL_OP_HEAD_LOGITS_BACKWARD]     = {sl_cpu_head_logits_backward},
        [SL_OP_HEAD_INPUT_BACKWARD]      = {sl_cpu_head_input_backward,        sl_cpu_linear_workspace_bytes},
        [SL_OP_HEAD_WEIGHT_BACKWARD]     = {sl_cpu_head_weight_backward,       sl_cpu_linear_workspace_bytes},
        [SL_OP_LINEAR_INPUT_BACKWARD]    = {sl_cpu_linear_input_backward,      sl_cpu_linear_workspace_bytes},
        [SL_OP_LINEAR_WEIGHT_BACKWARD]   = {sl_cpu_linear_weight_backward,     sl_cpu_linear_workspace_bytes},
        [SL_OP_GELU_BACKWARD]            = {sl_cpu_gelu_backward},
        [SL_OP_SWIGLU_BACKWARD]          = {sl_cpu_swiglu_backward},
        [SL_OP_ATTENTION_BACKWARD]       = {sl_cpu_attention_backward,         sl_cpu_attention_workspace_bytes},
        [SL_OP_LAYERNORM_BACKWARD]       = {sl_cpu_layernorm_backward,         sl_cpu_layernorm_backward_workspace_bytes},
        [SL_OP_RMSNORM_BACKWARD]         = {sl_cpu_rmsnorm_backward,           sl_cpu_rmsnorm_backward_workspace_bytes},
        [SL_OP_EMBED_TOKENS_BACKWARD]    = {sl_cpu_embed_tokens_backward,      sl_cpu_embed_tokens_backward_workspace_bytes},
        [SL_OP_EMBED_POSITION_BACKWARD]  = {sl_cpu_embed_position_backward},
        [SL_OP_ADD]                      = {sl_cpu_add},
        [SL_OP_CLEAR]                    = {sl_cpu_clear},
        [SL_OP_CLEAR_PADDING]            = {sl_cpu_clear_padding},
        [SL_OP_ROUND]                    = {sl_cpu_round},
        [SL_OP_DEQUANTIZE]               = {sl_cpu_dequantize},
        [SL_OP_BLOCK_NORM]               = {sl_cpu_block_norm,                 sl_cpu_block_norm_workspace_bytes},
        [SL_OP_NORM_FINISH]              = {sl_cpu_norm_finish},
        [SL_OP_ADAMW]                    = {sl_cpu_adamw},
        [SL_OP_SGD]                      = {sl_cpu_sgd},
        [SL_OP_LION]                     = {sl_cpu_lion},
        [SL_OP_MOMENTUM]                 = {sl_cpu_momentum},
        [SL_OP_ORTHOGONALISE]            = {sl_cpu_orthogonalise,              sl_cpu_orthogonalise_workspace_bytes},
        [SL_OP_APPLY]                    = {sl_cpu_apply},
        [SL_OP_ATTENTION_CACHED]         = {sl_cpu_attention_cached,           sl_cpu_attention_workspace_bytes},
        [SL_OP_CUSTOM]                   = {sl_cpu_custom,                     sl_cpu_custom_workspace_bytes},
        [SL_OP_CUSTOM_BACKWARD]          = {sl_cpu_custom_backward,            sl_cpu_custom_workspace_bytes},
        /* No kernel: collectives, which no program of one rank contains; INPUT, which the engine runs. */
    },
    .ranks = {
        [SL_RANK_SUM]          = sl_cpu_ranks_sum,
        [SL_RANK_CONVERT]      = sl_cpu_ranks_convert,
        [SL_RANK_STATS]        = sl_cpu_ranks_stats,
        [SL_RANK_NORM_PREPARE] = sl_cpu_ranks_norm_prepare,
        [SL_RANK_NORM_MERGE]   = sl_cpu_ranks_norm_merge,
        [SL_RANK_PACK_COLUMNS] = sl_cpu_ranks_pack_columns,
        [SL_RANK_JOIN_COLUMNS] = sl_cpu_ranks_join_columns,
    },
    .open = open_library,
    .close = close_library,
    .prepare = prepare_nothing,
    .algorithm = find_algorithm,
    .multiply_adds = multiply_adds,
    .description = describe_isa,
    .lack = find_lack,
};
/* clang-format on */

const sl_kernel_table *sl_kernels_cpu(void)
{
    return &table;
}
