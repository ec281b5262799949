/* Tells cuDNN of attention and its gradient. It looks for the pattern that a graph has: which
 * tensors its steps share, their layouts and types. So the steps are those that are known to be
 * recognised, in rows to be read from top to bottom. A product's second factor comes turned where
 * that is how the pattern has it: turning is a matter of strides, no memory moves. */
#include <stddef.h>

#include "cudnn_plan.h"

/* The tensors inside of a kernel. */
enum {
    S = SL_CUDNN_OUTER, /* forward and backward, [B, H, T, T] */
    SCALED,
    ROW,
    COLUMN,
    IS_SEEN,
    MASKED,
    MAX, /* forward; [B, H, T, 1] */
    SHIFTED,
    WEIGHT, /* not divided by its row's sum */
    SUM,
    LOG_SUM,
    P,
    TERMS, /* backward; [B, H, T, D] */
    DOT,
    LESS_LSE,
    EXACT_P,
    P_TURNED,
    DP,
    DP_LESS,
    DP_TIMES,
    DS,
    DS_TURNED,
    K,
    TENSORS
};

#define Q SL_CUDNN_Q
#define K_TURNED SL_CUDNN_K_TURNED
#define V SL_CUDNN_V
#define V_TURNED SL_CUDNN_V_TURNED
#define Y SL_CUDNN_Y
#define LSE SL_CUDNN_LSE
#define DY SL_CUDNN_DY
#define DOTS SL_CUDNN_DOTS
#define DQ SL_CUDNN_DQ
#define DK SL_CUDNN_DK
#define DV SL_CUDNN_DV
#define SCALE SL_CUDNN_SCALE
#define LEAST SL_CUDNN_LEAST
#define UNIT SL_CUDNN_UNIT

/* ---- tensors ---- */

typedef enum layout {
    OF_QKV,
    OF_QKV_TURNED,
    OF_Y,
    OF_SCORES,
    OF_SCORES_TURNED,
    OF_ROWS,
    OF_ONE
} layout;

enum { OF_OP = -1 }; /* the type that the op has */

static const struct {
    layout layout;
    int type;
} tensors[TENSORS] = {
    [Q] = {OF_QKV, OF_OP},
    [K_TURNED] = {OF_QKV_TURNED, OF_OP},
    [V] = {OF_QKV, OF_OP},
    [V_TURNED] = {OF_QKV_TURNED, OF_OP},
    [Y] = {OF_Y, OF_OP},
    [LSE] = {OF_ROWS, CUDNN_DATA_FLOAT},
    [DY] = {OF_Y, OF_OP},
    [DOTS] = {OF_ROWS, CUDNN_DATA_FLOAT},
    [DQ] = {OF_QKV, OF_OP},
    [DK] = {OF_QKV, OF_OP},
    [DV] = {OF_QKV, OF_OP},
    [SCALE] = {OF_ONE, CUDNN_DATA_FLOAT},
    [LEAST] = {OF_ONE, CUDNN_DATA_FLOAT},
    [UNIT] = {OF_ONE, CUDNN_DATA_FLOAT},
    [S] = {OF_SCORES, CUDNN_DATA_FLOAT},
    [SCALED] = {OF_SCORES, CUDNN_DATA_FLOAT},
    [ROW] = {OF_SCORES, CUDNN_DATA_INT32},
    [COLUMN] = {OF_SCORES, CUDNN_DATA_INT32},
    [IS_SEEN] = {OF_SCORES, CUDNN_DATA_BOOLEAN},
    [MASKED] = {OF_SCORES, CUDNN_DATA_FLOAT},
    [MAX] = {OF_ROWS, CUDNN_DATA_FLOAT},
    [SHIFTED] = {OF_SCORES, CUDNN_DATA_FLOAT},
    [WEIGHT] = {OF_SCORES, CUDNN_DATA_FLOAT},
    [SUM] = {OF_ROWS, CUDNN_DATA_FLOAT},
    [LOG_SUM] = {OF_ROWS, CUDNN_DATA_FLOAT},
    [P] = {OF_SCORES, OF_OP},
    [TERMS] = {OF_Y, CUDNN_DATA_FLOAT},
    [DOT] = {OF_ROWS, CUDNN_DATA_FLOAT},
    [LESS_LSE] = {OF_SCORES, CUDNN_DATA_FLOAT},
    [EXACT_P] = {OF_SCORES, CUDNN_DATA_FLOAT},
    [P_TURNED] = {OF_SCORES_TURNED, OF_OP},
    [DP] = {OF_SCORES, CUDNN_DATA_FLOAT},
    [DP_LESS] = {OF_SCORES, CUDNN_DATA_FLOAT},
    [DP_TIMES] = {OF_SCORES, CUDNN_DATA_FLOAT},
    [DS] = {OF_SCORES, CUDNN_DATA_FLOAT},
    [DS_TURNED] = {OF_SCORES_TURNED, OF_OP},
    [K] = {OF_QKV, CUDNN_DATA_FLOAT},
};

/* ---- steps ---- */

typedef enum step_kind { END, PRODUCT, EACH, INDEX, REDUCE, TURN } step_kind;

typedef struct step {
    step_kind kind;
    int mode; /* of EACH; INDEX: the axis; REDUCE: how */
    int out, a, b, c;
} step;

enum { STEPS_MAX = 24 };

static const step forward[STEPS_MAX] = {
    {PRODUCT, 0, S, Q, K_TURNED, 0},
    {EACH, CUDNN_POINTWISE_MUL, SCALED, S, SCALE, 0},
    {INDEX, 2, ROW, SCALED, 0, 0},
    {INDEX, 3, COLUMN, SCALED, 0, 0},
    {EACH, CUDNN_POINTWISE_CMP_GE, IS_SEEN, ROW, COLUMN, 0},
    {EACH, CUDNN_POINTWISE_BINARY_SELECT, MASKED, SCALED, LEAST, IS_SEEN},
    {REDUCE, CUDNN_REDUCE_TENSOR_MAX, MAX, MASKED, 0, 0},
    {EACH, CUDNN_POINTWISE_SUB, SHIFTED, MASKED, MAX, 0},
    {EACH, CUDNN_POINTWISE_EXP, WEIGHT, SHIFTED, 0, 0},
    {REDUCE, CUDNN_REDUCE_TENSOR_ADD, SUM, WEIGHT, 0, 0},
    {EACH, CUDNN_POINTWISE_LOG, LOG_SUM, SUM, 0, 0},
    {EACH, CUDNN_POINTWISE_ADD, LSE, MAX, LOG_SUM, 0},
    {EACH, CUDNN_POINTWISE_DIV, P, WEIGHT, SUM, 0},
    {PRODUCT, 0, Y, P, V, 0},
};

static const step backward[STEPS_MAX] = {
    {EACH, CUDNN_POINTWISE_MUL, TERMS, DY, Y, 0},
    {REDUCE, CUDNN_REDUCE_TENSOR_ADD, DOT, TERMS, 0, 0},
    {EACH, CUDNN_POINTWISE_MUL, DOTS, DOT, UNIT, 0},
    {PRODUCT, 0, S, Q, K_TURNED, 0},
    {EACH, CUDNN_POINTWISE_MUL, SCALED, S, SCALE, 0},
    {EACH, CUDNN_POINTWISE_SUB, LESS_LSE, SCALED, LSE, 0},
    {INDEX, 2, ROW, LESS_LSE, 0, 0},
    {INDEX, 3, COLUMN, LESS_LSE, 0, 0},
    {EACH, CUDNN_POINTWISE_CMP_GE, IS_SEEN, ROW, COLUMN, 0},
    {EACH, CUDNN_POINTWISE_BINARY_SELECT, MASKED, LESS_LSE, LEAST, IS_SEEN},
    {EACH, CUDNN_POINTWISE_EXP, EXACT_P, MASKED, 0, 0},
    {TURN, 0, P_TURNED, EXACT_P, 0, 0},
    {PRODUCT, 0, DV, P_TURNED, DY, 0},
    {PRODUCT, 0, DP, DY, V_TURNED, 0},
    {EACH, CUDNN_POINTWISE_SUB, DP_LESS, DP, DOTS, 0},
    {EACH, CUDNN_POINTWISE_MUL, DP_TIMES, DP_LESS, EXACT_P, 0},
    {EACH, CUDNN_POINTWISE_MUL, DS, DP_TIMES, SCALE, 0},
    {TURN, 0, DS_TURNED, DS, 0, 0},
    {PRODUCT, 0, DK, DS_TURNED, Q, 0},
    {TURN, 0, K, K_TURNED, 0, 0},
    {PRODUCT, 0, DQ, DS, K, 0},
};

static const step *steps_of(uint32_t kind)
{
    return kind == SL_OP_ATTENTION ? forward : backward;
}

bool sl_cudnn_graph_has(uint32_t kind, int index)
{
    for (const step *s = steps_of(kind); s->kind != END; s++)
        if (index == s->out || index == s->a || index == s->b || index == s->c)
            return index != SL_CUDNN_NONE;
    return false;
}

/* ---- descriptors ---- */

typedef struct maker {
    sl_cudnn_plan *plan;
    cudnnBackendDescriptor_t tensor[TENSORS];
    cudnnBackendDescriptor_t operation[STEPS_MAX];
} maker;

static cudnnStatus_t set_attribute(maker *m, cudnnBackendDescriptor_t descriptor,
                                   cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count,
                                   const void *values)
{
    return m->plan->functions->BackendSetAttribute(descriptor, name, type, count, values);
}

static void find_layout(const sl_cudnn_key *key, layout of, int64_t dims[4], int64_t strides[4])
{
    const int64_t b = (int64_t)key->batch, h = (int64_t)key->heads, t = (int64_t)key->seq,
                  d = (int64_t)key->width;
    const struct {
        int64_t dims[4], strides[4];
    } rows[] = {
        [OF_QKV] = {{b, h, t, d}, {t * 3 * h * d, d, 3 * h * d, 1}},
        [OF_QKV_TURNED] = {{b, h, d, t}, {t * 3 * h * d, d, 1, 3 * h * d}},
        [OF_Y] = {{b, h, t, d}, {t * h * d, d, h * d, 1}},
        [OF_SCORES] = {{b, h, t, t}, {h * t * t, t * t, t, 1}},
        [OF_SCORES_TURNED] = {{b, h, t, t}, {h * t * t, t * t, 1, t}},
        [OF_ROWS] = {{b, h, t, 1}, {h * t, t, 1, 1}},
        [OF_ONE] = {{1, 1, 1, 1}, {1, 1, 1, 1}},
    };
    for (int i = 0; i < 4; i++) {
        dims[i] = rows[of].dims[i];
        strides[i] = rows[of].strides[i];
    }
}

static cudnnStatus_t make_tensor(maker *m, int index)
{
    const sl_cudnn_key *key = &m->plan->key;
    const int64_t alignment = 16, id = index;
    const bool yes = true;
    int64_t dims[4], strides[4];
    cudnnDataType_t type = (cudnnDataType_t)tensors[index].type;
    if (tensors[index].type == OF_OP)
        type = key->type == SL_TYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
    find_layout(key, tensors[index].layout, dims, strides);
    cudnnBackendDescriptor_t d;
    SL_CUDNN_TRY(sl_cudnn_make(m->plan, CUDNN_BACKEND_TENSOR_DESCRIPTOR, &d));
    SL_CUDNN_TRY(set_attribute(m, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    SL_CUDNN_TRY(set_attribute(m, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims));
    SL_CUDNN_TRY(set_attribute(m, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides));
    SL_CUDNN_TRY(set_attribute(m, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
    SL_CUDNN_TRY(
        set_attribute(m, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
    if (index >= SL_CUDNN_OUTER)
        SL_CUDNN_TRY(
            set_attribute(m, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes));
    else if (index >= SL_CUDNN_SCALE)
        SL_CUDNN_TRY(
            set_attribute(m, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes));
    m->tensor[index] = d;
    return m->plan->functions->BackendFinalize(d);
}

/* The descriptor of how a step computes, beside that of what it computes. */
static cudnnStatus_t make_manner(maker *m, const step *s, cudnnBackendDescriptor_t *out)
{
    const cudnnDataType_t fp32 = CUDNN_DATA_FLOAT, boolean = CUDNN_DATA_BOOLEAN;
    const bool is_compared = s->kind == EACH && s->mode == CUDNN_POINTWISE_CMP_GE;
    if (s->kind == PRODUCT) {
        SL_CUDNN_TRY(sl_cudnn_make(m->plan, CUDNN_BACKEND_MATMUL_DESCRIPTOR, out));
        SL_CUDNN_TRY(
            set_attribute(m, *out, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &fp32));
    } else if (s->kind == REDUCE) {
        const cudnnReduceTensorOp_t how = (cudnnReduceTensorOp_t)s->mode;
        SL_CUDNN_TRY(sl_cudnn_make(m->plan, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, out));
        SL_CUDNN_TRY(set_attribute(m, *out, CUDNN_ATTR_REDUCTION_OPERATOR,
                                   CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how));
        SL_CUDNN_TRY(
            set_attribute(m, *out, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &fp32));
    } else {
        const cudnnPointwiseMode_t mode =
            s->kind == INDEX ? CUDNN_POINTWISE_GEN_INDEX : (cudnnPointwiseMode_t)s->mode;
        const int64_t axis = s->mode;
        SL_CUDNN_TRY(sl_cudnn_make(m->plan, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, out));
        SL_CUDNN_TRY(
            set_attribute(m, *out, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
        SL_CUDNN_TRY(set_attribute(m, *out, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
                                   is_compared ? &boolean : &fp32));
        if (s->kind == INDEX)
            SL_CUDNN_TRY(
                set_attribute(m, *out, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis));
    }
    return m->plan->functions->BackendFinalize(*out);
}

/* Where a kind of step takes its parts; 0: it has none of the kind. */
static const struct {
    cudnnBackendDescriptorType_t type;
    int manner, out, a, b, c;
} places[] = {
    [PRODUCT] = {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC,
                 CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_ATTR_OPERATION_MATMUL_ADESC,
                 CUDNN_ATTR_OPERATION_MATMUL_BDESC, 0},
    [EACH] = {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
              CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
              CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
    [INDEX] = {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
               CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
               CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 0, 0},
    [REDUCE] = {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
                CUDNN_ATTR_OPERATION_REDUCTION_YDESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 0, 0},
    [TURN] = {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 0, CUDNN_ATTR_OPERATION_RESHAPE_YDESC,
              CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 0, 0},
};

static cudnnStatus_t make_step(maker *m, const step *s, cudnnBackendDescriptor_t *out)
{
    const int names[] = {places[s->kind].out, places[s->kind].a, places[s->kind].b,
                         places[s->kind].c};
    const int of[] = {s->out, s->a, s->b, s->c};
    cudnnBackendDescriptor_t manner = NULL;
    for (int i = 0; i < 4; i++)
        if (of[i] != SL_CUDNN_NONE && m->tensor[of[i]] == NULL)
            SL_CUDNN_TRY(make_tensor(m, of[i]));
    if (places[s->kind].manner != 0)
        SL_CUDNN_TRY(make_manner(m, s, &manner));
    SL_CUDNN_TRY(sl_cudnn_make(m->plan, places[s->kind].type, out));
    if (manner != NULL)
        SL_CUDNN_TRY(set_attribute(m, *out, (cudnnBackendAttributeName_t)places[s->kind].manner,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &manner));
    for (int i = 0; i < 4; i++)
        if (of[i] != SL_CUDNN_NONE)
            SL_CUDNN_TRY(set_attribute(m, *out, (cudnnBackendAttributeName_t)names[i],
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &m->tensor[of[i]]));
    return m->plan->functions->BackendFinalize(*out);
}

cudnnStatus_t sl_cudnn_graph_open(sl_cudnn_plan *plan)
{
    maker m = {.plan = plan};
    const step *steps = steps_of(plan->key.kind);
    int64_t count = 0;
    for (; steps[count].kind != END; count++)
        SL_CUDNN_TRY(make_step(&m, &steps[count], &m.operation[count]));
    SL_CUDNN_TRY(sl_cudnn_make(plan, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &plan->graph));
    SL_CUDNN_TRY(set_attribute(&m, plan->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
                               1, &plan->handle));
    SL_CUDNN_TRY(set_attribute(&m, plan->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, count, m.operation));
    return plan->functions->BackendFinalize(plan->graph);
}
