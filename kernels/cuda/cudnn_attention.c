/* The plans of an open cuDNN, and running them. */
#include "cudnn_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/log.h"
#include "cudnn_plan.h"

enum {
    SEQ_LEAST = 2, /* of one query in all cuDNN 9.26 makes no plan, but ends the process */
    SEQ_MAX = 1 << 16,
    HEADS_MAX = 1 << 16, /* of all batches */
    WIDTH_MAX = 256,
    LINE = 256,
    TILE = 128,           /* the most that the library rounds a sequence up to */
    SPARE_BYTES = 1 << 16 /* of its counters and the like */
};

struct sl_cudnn {
    const sl_cudnn_functions *functions;
    cudnnHandle_t handle;
    sl_cudnn_plan **plans;
    uint32_t count;
};

sl_status sl_cudnn_open(sl_cudnn **out_cudnn)
{
    bool is_asked;
    *out_cudnn = NULL;
    SL_TRY(sl_cudnn_find_asked(&is_asked));
    const sl_cudnn_functions *functions = is_asked ? sl_cudnn_load() : NULL;
    if (functions == NULL) {
        if (is_asked)
            sl_log_write(SL_LOG_NOTE, "%s", sl_cudnn_load_text());
        return SL_OK;
    }
    sl_cudnn *cudnn = calloc(1, sizeof *cudnn);
    if (cudnn == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the plans of attention");
    cudnn->functions = functions;
    const cudnnStatus_t status = functions->Create(&cudnn->handle);
    if (status != CUDNN_STATUS_SUCCESS) {
        sl_log_write(SL_LOG_WARNING, "cuDNN does not open (%s): attention by own kernels",
                     functions->GetErrorString(status));
        free(cudnn);
        return SL_OK;
    }
    *out_cudnn = cudnn;
    return SL_OK;
}

void sl_cudnn_close(sl_cudnn *cudnn)
{
    if (cudnn == NULL)
        return;
    for (uint32_t i = 0; i < cudnn->count; i++)
        sl_cudnn_plan_close(cudnn->plans[i]);
    free(cudnn->plans);
    cudnn->functions->Destroy(cudnn->handle);
    free(cudnn);
}

/* ---- which ops, and their workspace ---- */

static bool is_covered(sl_op_kind kind, const sl_op_attrs *attrs)
{
    return (kind == SL_OP_ATTENTION || kind == SL_OP_ATTENTION_BACKWARD) &&
           attrs->type != SL_TYPE_FP32 && attrs->heads > 0 && attrs->in % (8 * attrs->heads) == 0 &&
           attrs->in > 0 && attrs->seq >= SEQ_LEAST && attrs->seq <= SEQ_MAX && attrs->batch > 0 &&
           attrs->batch <= HEADS_MAX && attrs->heads <= HEADS_MAX / attrs->batch &&
           attrs->in / attrs->heads <= WIDTH_MAX;
}

/* What lies before the plan's own workspace: of a backward op, the dots of y and dy. */
static uint64_t dots_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    if (kind == SL_OP_ATTENTION)
        return 0;
    return sl_bits_round_up(attrs->batch * attrs->heads * attrs->seq * sizeof(float), LINE);
}

/* That a plan may want. */
static uint64_t plan_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    const uint64_t rows = sl_bits_round_up(attrs->seq, TILE);
    if (kind == SL_OP_ATTENTION)
        return SPARE_BYTES;
    return 2 * attrs->batch * attrs->heads * rows * rows + SPARE_BYTES;
}

uint64_t sl_cudnn_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs)
{
    bool is_asked = false;
    if (!is_covered(kind, attrs) || sl_cudnn_find_asked(&is_asked) != SL_OK || !is_asked)
        return 0;
    return dots_bytes(kind, attrs) + plan_bytes(kind, attrs);
}

/* ---- plans ---- */

static const sl_cudnn_plan *find_plan(const sl_cudnn *cudnn, const sl_cudnn_key *key)
{
    for (uint32_t i = 0; i < cudnn->count; i++)
        if (memcmp(&cudnn->plans[i]->key, key, sizeof *key) == 0)
            return cudnn->plans[i];
    return NULL;
}

static sl_cudnn_key key_of(sl_op_kind kind, const sl_op_attrs *attrs)
{
    return (sl_cudnn_key){attrs->batch,   attrs->seq,
                          attrs->heads,   attrs->in / attrs->heads,
                          (uint32_t)kind, (uint32_t)attrs->type};
}

sl_status sl_cudnn_prepare(sl_cudnn *cudnn, sl_op_kind kind, const sl_op_attrs *attrs)
{
    if (!is_covered(kind, attrs))
        return SL_OK;
    const sl_cudnn_key key = key_of(kind, attrs);
    if (find_plan(cudnn, &key) != NULL)
        return SL_OK;
    sl_cudnn_plan **plans = realloc(cudnn->plans, (cudnn->count + 1) * sizeof *plans);
    if (plans == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the plans of attention");
    cudnn->plans = plans;
    sl_cudnn_plan *plan;
    SL_TRY(
        sl_cudnn_plan_open(cudnn->functions, cudnn->handle, &key, plan_bytes(kind, attrs), &plan));
    cudnn->plans[cudnn->count++] = plan;
    if (plan->plan == NULL)
        sl_log_write(SL_LOG_NOTE, "%s", plan->text);
    return SL_OK;
}

const char *sl_cudnn_text(const sl_cudnn *cudnn, uint64_t index)
{
    return index < cudnn->count ? cudnn->plans[index]->text : NULL;
}

const char *sl_cudnn_description(void)
{
    bool is_asked;
    if (sl_cudnn_find_asked(&is_asked) != SL_OK)
        return "SLUICE_ATTENTION is neither own nor cudnn";
    return is_asked ? sl_cudnn_load_text() : "attention by own kernels";
}

/* ---- running ---- */

/* What stands behind each tensor of the graphs. */
typedef struct pack {
    float scale, least, unit;
    void *data[SL_CUDNN_OUTER];
} pack;

static void fill_pack(pack *p, const sl_cudnn_key *key, const sl_kernel_call *call)
{
    const uint64_t in_bytes = key->heads * key->width * sl_type_bytes((sl_type)key->type);
    char *qkv = call->operand[0], *dqkv = call->operand[4];
    *p = (pack){.scale = 1.0f / sqrtf((float)key->width), .least = -INFINITY, .unit = 1.0f};
    p->data[SL_CUDNN_Q] = qkv;
    p->data[SL_CUDNN_K_TURNED] = qkv + in_bytes;
    p->data[SL_CUDNN_V] = p->data[SL_CUDNN_V_TURNED] = qkv + 2 * in_bytes;
    p->data[SL_CUDNN_Y] = call->operand[1];
    p->data[SL_CUDNN_LSE] = call->operand[2];
    p->data[SL_CUDNN_SCALE] = &p->scale;
    p->data[SL_CUDNN_LEAST] = &p->least;
    p->data[SL_CUDNN_UNIT] = &p->unit;
    if (key->kind == SL_OP_ATTENTION)
        return;
    p->data[SL_CUDNN_DY] = call->operand[3];
    p->data[SL_CUDNN_DOTS] = call->workspace;
    p->data[SL_CUDNN_DQ] = dqkv;
    p->data[SL_CUDNN_DK] = dqkv + in_bytes;
    p->data[SL_CUDNN_DV] = dqkv + 2 * in_bytes;
}

static cudnnStatus_t execute_plan(const sl_cudnn *cudnn, const sl_cudnn_plan *plan, const pack *p,
                                  void *workspace, cudnnBackendDescriptor_t descriptor)
{
    const sl_cudnn_functions *f = cudnn->functions;
    int64_t ids[SL_CUDNN_OUTER], count = 0;
    void *data[SL_CUDNN_OUTER];
    for (int i = 0; i < SL_CUDNN_OUTER; i++)
        if (sl_cudnn_graph_has(plan->key.kind, i)) {
            ids[count] = i;
            data[count++] = p->data[i];
        }
    SL_CUDNN_TRY(f->BackendSetAttribute(descriptor, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                        CUDNN_TYPE_INT64, count, ids));
    SL_CUDNN_TRY(f->BackendSetAttribute(descriptor, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                        CUDNN_TYPE_VOID_PTR, count, data));
    SL_CUDNN_TRY(f->BackendSetAttribute(descriptor, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                        CUDNN_TYPE_VOID_PTR, 1, &workspace));
    SL_CUDNN_TRY(f->BackendFinalize(descriptor));
    return f->BackendExecute(cudnn->handle, plan->plan, descriptor);
}

static cudnnStatus_t run_plan(const sl_cudnn *cudnn, const sl_cudnn_plan *plan,
                              const sl_kernel_call *call)
{
    const sl_cudnn_functions *f = cudnn->functions;
    cudnnBackendDescriptor_t descriptor;
    pack p;
    fill_pack(&p, &plan->key, call);
    SL_CUDNN_TRY(f->SetStream(cudnn->handle, (cudaStream_t)call->stream));
    SL_CUDNN_TRY(f->BackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &descriptor));
    const cudnnStatus_t status = execute_plan(
        cudnn, plan, &p,
        (char *)call->workspace + dots_bytes((sl_op_kind)plan->key.kind, call->attrs), descriptor);
    f->BackendDestroyDescriptor(descriptor);
    return status;
}

sl_status sl_cudnn_run(const sl_cudnn *cudnn, sl_op_kind kind, const sl_kernel_call *call,
                       bool *out_is_done)
{
    *out_is_done = false;
    if (cudnn == NULL || !is_covered(kind, call->attrs))
        return SL_OK;
    const sl_cudnn_key key = key_of(kind, call->attrs);
    const sl_cudnn_plan *plan = find_plan(cudnn, &key);
    if (plan == NULL)
        SL_FAIL(SL_ERROR_INTERNAL, "attention runs that was not prepared");
    if (plan->plan == NULL)
        return SL_OK;
    const cudnnStatus_t status = run_plan(cudnn, plan, call);
    if (status != CUDNN_STATUS_SUCCESS)
        SL_FAIL(SL_ERROR_SYSTEM, "cuDNN refuses %.120s: %s", plan->text,
                cudnn->functions->GetErrorString(status));
    *out_is_done = true;
    return SL_OK;
}
