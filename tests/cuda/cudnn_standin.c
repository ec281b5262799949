/* Stands in the place of kernels/cuda/cudnn_load.c: the functions of cudnn.c, unless hidden. */
#include "cudnn_standin.h"
#include "kernels/cuda/cudnn_load.h"

#include <stddef.h>

static const sl_cudnn_functions functions = {
#define X(name) .name = cudnn##name,
    SL_CUDNN_FUNCTIONS(X)
#undef X
};

const sl_cudnn_functions *sl_cudnn_load(void)
{
    return standin_cudnn_is_hidden() ? NULL : &functions;
}

const char *sl_cudnn_load_text(void)
{
    return standin_cudnn_is_hidden() ? "cuDNN is hidden: attention by own kernels"
                                     : "cuDNN for tests";
}
