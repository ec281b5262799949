/* The table of the cpu kernels. */
#include <stddef.h>

#include "attention.h"
#include "block_norm.h"
#include "linear.h"
#include "norm.h"
#include "ops.h"
#include "vector.h"

static uint64_t workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t worker_count)
{
    switch ((int)kind) {
    case SL_OP_ATTENTION:
    case SL_OP_ATTENTION_CACHED:
    case SL_OP_ATTENTION_BACKWARD:
        return sl_attention_workspace_bytes(kind, attrs, worker_count);
    case SL_OP_LAYERNORM_BACKWARD:
        return sl_norm_workspace_bytes(attrs);
    case SL_OP_BLOCK_NORM:
        return sl_block_norm_workspace_bytes(attrs);
    default:
        return sl_linear_workspace_bytes(kind, attrs, worker_count);
    }
}

/* Nothing here keeps anything between calls. */
static sl_status open_library(int device_index, sl_kernel_library **out_library)
{
    (void)device_index;
    *out_library = NULL;
    return SL_OK;
}

static void close_library(sl_kernel_library *library)
{
    (void)library;
}

static sl_status prepare(sl_kernel_library *library, sl_op_kind kind, const sl_op_attrs *attrs)
{
    (void)library;
    (void)kind;
    (void)attrs;
    return SL_OK;
}

static const char *choice(const sl_kernel_library *library, uint64_t index)
{
    (void)library;
    (void)index;
    return NULL;
}

static const char *description(void)
{
    return sl_vector_current()->isa;
}

#define sl_op_input NULL /* the engine asks the source of inputs */

static const sl_kernel_table table = {
    .run =
        {
#define X(NAME, name, ...) [SL_OP_##NAME] = sl_op_##name,
            SL_OP_LIST(X)
#undef X
        },
    .workspace_bytes = workspace_bytes,
    .open = open_library,
    .close = close_library,
    .prepare = prepare,
    .choice = choice,
    .description = description,
};

const sl_kernel_table *sl_kernels_cpu(void)
{
    return &table;
}
