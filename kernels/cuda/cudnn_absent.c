/* Stands in the place of cudnn_*.c in a build that found no headers of cuDNN. */
#include <stddef.h>

#include "base/log.h"
#include "cudnn_attention.h"

sl_status sl_cudnn_open(sl_cudnn **out_cudnn)
{
    bool is_asked;
    SL_TRY(sl_cudnn_find_asked(&is_asked));
    if (is_asked)
        sl_log_write(SL_LOG_NOTE, "%s", sl_cudnn_description());
    *out_cudnn = NULL;
    return SL_OK;
}

void sl_cudnn_close(sl_cudnn *cudnn)
{
    (void)cudnn;
}

uint64_t sl_cudnn_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    (void)kind, (void)attrs;
    return 0;
}

sl_status sl_cudnn_prepare(sl_cudnn *cudnn, sl_op_kind kind, const sl_op_attrs *attrs)
{
    (void)cudnn, (void)kind, (void)attrs;
    return SL_OK;
}

sl_status sl_cudnn_run(const sl_cudnn *cudnn, sl_op_kind kind, const sl_kernel_call *call,
                       bool *out_is_done)
{
    (void)cudnn, (void)kind, (void)call;
    *out_is_done = false;
    return SL_OK;
}

const char *sl_cudnn_text(const sl_cudnn *cudnn, uint64_t index)
{
    (void)cudnn, (void)index;
    return NULL;
}

const char *sl_cudnn_description(void)
{
    bool is_asked = false;
    return sl_cudnn_find_asked(&is_asked) == SL_OK && is_asked
               ? "this build found no headers of cuDNN: attention by own kernels"
               : "attention by own kernels";
}
