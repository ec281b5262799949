/* The table of the CUDA kernels. */
#include <stddef.h>
#include <stdint.h>

#include "attention.h"
#include "block_norm.h"
#include "embed.h"
#include "head.h"
#include "library.h"
#include "linear.h"
#include "norm.h"
#include "ops.h"

static uint64_t block_norm_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    return kind == SL_OP_BLOCK_NORM ? sl_cuda_block_norm_workspace_bytes(attrs) : 0;
}

/* Of each file that uses any; 0 for an op of another file. */
static uint64_t (*const workspaces[])(sl_op_kind kind, const sl_op_attrs *attrs) = {
    sl_cuda_linear_workspace_bytes, sl_cuda_attention_workspace_bytes, sl_cuda_norm_workspace_bytes,
    sl_cuda_head_workspace_bytes,   sl_cuda_embed_workspace_bytes,     block_norm_workspace_bytes,
};

static uint64_t workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t worker_count)
{
    (void)worker_count;
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof workspaces / sizeof *workspaces && bytes == 0; i++)
        bytes = workspaces[i](kind, attrs);
    return bytes;
}

char sl_load_only[1];

/* CUDA loads a kernel when it is first launched, which takes memory and may wait for all that the
 * GPU was given; a GPU that waits for a host stream whose thread then cannot ask CUDA would never
 * be done. So everything of ours is loaded before the first step. */
static sl_status load_kernels(sl_op_kind kind, const sl_op_attrs *attrs)
{
    void *const somewhere = (void *)(uintptr_t)4096;
    sl_kernel_call call = {
        .attrs = attrs, .workspace = somewhere, .block_flags = somewhere, .stream = sl_load_only};
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        call.operand[i] = somewhere;
    return sl_kernels_cuda()->run[kind](&call);
}

static sl_status prepare(sl_kernel_library *library, sl_op_kind kind, const sl_op_attrs *attrs)
{
    SL_TRY(load_kernels(kind, attrs));
    return sl_library_prepare(library, kind, attrs);
}

#define sl_cuda_input NULL /* the engine asks the source of inputs */

static const sl_kernel_table table = {
    .run =
        {
#define X(NAME, name, ...) [SL_OP_##NAME] = sl_cuda_##name,
            SL_OP_LIST(X)
#undef X
        },
    .workspace_bytes = workspace_bytes,
    .open = sl_library_open,
    .close = sl_library_close,
    .prepare = prepare,
    .choice = sl_library_choice,
    .description = sl_library_description,
};

const sl_kernel_table *sl_kernels_cuda(void)
{
    return &table;
}

/* One GPU has one rank in its tensor-parallel group, and the sum over one rank is what is there
 * already. A second rank brings a collective, not another kernel. */
sl_status sl_cuda_all_reduce(const sl_kernel_call *call)
{
    (void)call;
    return SL_OK;
}
