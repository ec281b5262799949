/* The functions of cuDNN's graph interface, found when they are first asked for. Types are those of
 * the header this was compiled with, functions those of the library that is there. */
#ifndef SL_KERNELS_CUDA_CUDNN_LOAD_H
#define SL_KERNELS_CUDA_CUDNN_LOAD_H

#include <cudnn_graph.h>

#define SL_CUDNN_FUNCTIONS(X)                                                                      \
    X(Create)                                                                                      \
    X(Destroy)                                                                                     \
    X(SetStream)                                                                                   \
    X(GetVersion)                                                                                  \
    X(GetErrorString)                                                                              \
    X(BackendCreateDescriptor)                                                                     \
    X(BackendDestroyDescriptor)                                                                    \
    X(BackendSetAttribute)                                                                         \
    X(BackendGetAttribute)                                                                         \
    X(BackendFinalize)                                                                             \
    X(BackendExecute)

/* Called as functions->SetStream(...), which is cudnnSetStream(...). */
typedef struct sl_cudnn_functions {
#define X(name) __typeof__(cudnn##name) *name;
    SL_CUDNN_FUNCTIONS(X)
#undef X
} sl_cudnn_functions;

/* The functions, or NULL where there is no such library. They stay until the process ends. */
const sl_cudnn_functions *sl_cudnn_load(void);

/* "cuDNN 9.19.0", or what is missing and what that means. */
const char *sl_cudnn_load_text(void);

#endif
