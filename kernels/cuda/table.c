/* The table of the CUDA kernels. */
#include "library.h"
#include "ops.h"

/* clang-format off */
static const sl_kernel_table table = {
    .row = {
        [SL_OP_EMBED_POSITION]           = {sl_cuda_embed_position},
        [SL_OP_EMBED_TOKENS]             = {sl_cuda_embed_tokens},
        [SL_OP_LAYERNORM]                = {sl_cuda_layernorm},
        [SL_OP_RMSNORM]                  = {sl_cuda_rmsnorm},
        [SL_OP_LINEAR]                   = {sl_cuda_linear,                     sl_cuda_linear_workspace_bytes},
        [SL_OP_ATTENTION]                = {sl_cuda_attention,                  sl_cuda_attention_workspace_bytes},
        [SL_OP_GELU]                     = {sl_cuda_gelu},
        [SL_OP_ROTARY]                   = {sl_cuda_rotary},
        [SL_OP_SWIGLU]                   = {sl_cuda_swiglu},
        [SL_OP_SCALE]                    = {sl_cuda_scale},
        [SL_OP_DROPOUT]                  = {sl_cuda_dropout},
        [SL_OP_HEAD_LOGITS]              = {sl_cuda_head_logits,                sl_cuda_linear_workspace_bytes},
        [SL_OP_HEAD_STATS]               = {sl_cuda_head_stats},
        [SL_OP_HEAD_LOSS]                = {sl_cuda_head_loss,                  sl_cuda_head_loss_workspace_bytes},
        [SL_OP_HEAD_LOGITS_BACKWARD]     = {sl_cuda_head_logits_backward},
        [SL_OP_HEAD_INPUT_BACKWARD]      = {sl_cuda_head_input_backward,        sl_cuda_linear_workspace_bytes},
        [SL_OP_HEAD_WEIGHT_BACKWARD]     = {sl_cuda_head_weight_backward,       sl_cuda_linear_workspace_bytes},
        [SL_OP_LINEAR_INPUT_BACKWARD]    = {sl_cuda_linear_input_backward,      sl_cuda_linear_workspace_bytes},
        [SL_OP_LINEAR_WEIGHT_BACKWARD]   = {sl_cuda_linear_weight_backward,     sl_cuda_linear_workspace_bytes},
        [SL_OP_GELU_BACKWARD]            = {sl_cuda_gelu_backward},
        [SL_OP_SWIGLU_BACKWARD]          = {sl_cuda_swiglu_backward},
        [SL_OP_ATTENTION_BACKWARD]       = {sl_cuda_attention_backward,         sl_cuda_attention_workspace_bytes},
        [SL_OP_LAYERNORM_BACKWARD]       = {sl_cuda_layernorm_backward,         sl_cuda_layernorm_backward_workspace_bytes},
        [SL_OP_RMSNORM_BACKWARD]         = {sl_cuda_rmsnorm_backward,           sl_cuda_rmsnorm_backward_workspace_bytes},
        [SL_OP_EMBED_TOKENS_BACKWARD]    = {sl_cuda_embed_tokens_backward,      sl_cuda_embed_tokens_backward_workspace_bytes},
        [SL_OP_EMBED_POSITION_BACKWARD]  = {sl_cuda_embed_position_backward},
        [SL_OP_ADD]                      = {sl_cuda_add},
        [SL_OP_CLEAR]                    = {sl_cuda_clear},
        [SL_OP_CLEAR_PADDING]            = {sl_cuda_clear_padding},
        [SL_OP_ROUND]                    = {sl_cuda_round},
        [SL_OP_DEQUANTIZE]               = {sl_cuda_dequantize},
        [SL_OP_BLOCK_NORM]               = {sl_cuda_block_norm,                 sl_cuda_block_norm_workspace_bytes},
        [SL_OP_NORM_FINISH]              = {sl_cuda_norm_finish},
        [SL_OP_ADAMW]                    = {sl_cuda_adamw},
        [SL_OP_SGD]                      = {sl_cuda_sgd},
        [SL_OP_LION]                     = {sl_cuda_lion},
        [SL_OP_MOMENTUM]                 = {sl_cuda_momentum},
        [SL_OP_ORTHOGONALISE]            = {sl_cuda_orthogonalise,              sl_cuda_orthogonalise_workspace_bytes},
        [SL_OP_APPLY]                    = {sl_cuda_apply},
        [SL_OP_ATTENTION_CACHED]         = {sl_cuda_attention_cached,           sl_cuda_attention_workspace_bytes},
        /* No kernel: collectives, which the engine makes of `ranks`; INPUT, which it runs. */
    },
    .ranks = {
#define X(NAME, name) [SL_RANK_##NAME] = sl_cuda_ranks_##name,
        SL_RANK_KERNEL_LIST(X)
#undef X
    },
    .open = sl_library_open,
    .close = sl_library_close,
    .prepare = sl_library_prepare,
    .load_ranks = sl_library_load_ranks,
    .image = sl_cuda_image,
    .algorithm = sl_library_algorithm,
    .description = sl_library_description,
    .lack = sl_library_lack,
};
/* clang-format on */

const sl_kernel_table *sl_kernels_cuda(void)
{
    return &table;
}
