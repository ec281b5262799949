/* How cuDNN computes one attention op: the graph that it was told (cudnn_graph.c), and the engine
 * that it named for it with the plan that came of that (cudnn_plan.c). */
#ifndef SL_KERNELS_CUDA_CUDNN_PLAN_H
#define SL_KERNELS_CUDA_CUDNN_PLAN_H

#include "cudnn_attention.h"
#include "cudnn_load.h"

enum { SL_CUDNN_TEXT_BYTES = 256, SL_CUDNN_DESCRIPTORS = 256 };

/* All that a plan depends on. No padding: its bytes compare. */
typedef struct sl_cudnn_key {
    uint64_t batch, seq, heads, width; /* of a head */
    uint32_t kind, type;
} sl_cudnn_key;

struct sl_cudnn_plan {
    sl_cudnn_key key;
    const sl_cudnn_functions *functions;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t descriptors[SL_CUDNN_DESCRIPTORS]; /* all that live, oldest first */
    uint32_t descriptor_count;
    cudnnBackendDescriptor_t graph, plan; /* plan NULL: our own kernel computes the op */
    uint64_t workspace_bytes;             /* that the plan wants */
    char text[SL_CUDNN_TEXT_BYTES];
};

/* The tensors of both graphs that memory or a number stands behind; a tensor's unique id is its
 * place here. The others live inside of a kernel (cudnn_graph.c). */
typedef enum sl_cudnn_tensor {
    SL_CUDNN_NONE,
    SL_CUDNN_Q,        /* [B, H, T, D], over the rows of qkv */
    SL_CUDNN_K_TURNED, /* [B, H, D, T] */
    SL_CUDNN_V,
    SL_CUDNN_V_TURNED,
    SL_CUDNN_Y,   /* [B, H, T, D], over the rows of y */
    SL_CUDNN_LSE, /* [B, H, T, 1] */
    SL_CUDNN_DY,
    SL_CUDNN_DOTS, /* [B, H, T, 1]: of y and dy */
    SL_CUDNN_DQ,
    SL_CUDNN_DK,
    SL_CUDNN_DV,
    SL_CUDNN_SCALE, /* numbers, each [1, 1, 1, 1], from here on */
    SL_CUDNN_LEAST, /* minus infinity */
    SL_CUDNN_UNIT,  /* 1 */
    SL_CUDNN_OUTER  /* their number, with NONE */
} sl_cudnn_tensor;

/* Chooses for the key, by a plan that wants at most `workspace_bytes` and whose engine gives the
 * same bits every time. That there is none is an answer, not a failure: plan->text says why. */
sl_status sl_cudnn_plan_open(const sl_cudnn_functions *functions, cudnnHandle_t handle,
                             const sl_cudnn_key *key, uint64_t workspace_bytes,
                             sl_cudnn_plan **out_plan);
void sl_cudnn_plan_close(sl_cudnn_plan *plan); /* NULL is fine */

/* Whether tensor `index` < SL_CUDNN_OUTER is one of the op's. */
bool sl_cudnn_graph_has(uint32_t kind, int index);

/* Describes the op: plan->graph. */
cudnnStatus_t sl_cudnn_graph_open(sl_cudnn_plan *plan);

/* ---- of one descriptor, kept in plan->descriptors ---- */

cudnnStatus_t sl_cudnn_make(sl_cudnn_plan *plan, cudnnBackendDescriptorType_t type,
                            cudnnBackendDescriptor_t *out_descriptor);

/* Puts back all descriptors from number `count` on. */
void sl_cudnn_drop(sl_cudnn_plan *plan, uint32_t count);

#define SL_CUDNN_TRY(call)                                                                         \
    do {                                                                                           \
        const cudnnStatus_t sl_cudnn_status_ = (call);                                             \
        if (sl_cudnn_status_ != CUDNN_STATUS_SUCCESS)                                              \
            return sl_cudnn_status_;                                                               \
    } while (0)

#endif
