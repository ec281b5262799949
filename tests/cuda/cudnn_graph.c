/* What the stand-in for cuDNN makes of a graph: its tensors and steps, and whether they fit
 * together. */
#include <string.h>

#include "cudnn_objects.h"

enum { LINE = 256 };

#define A(name) CUDNN_ATTR_##name
#define OP_OF(op) CUDNN_BACKEND_OPERATION_##op##_DESCRIPTOR

/* ---- what fits ---- */

/* The same sizes, with `b` 1 where its numbers are used again. */
static bool covers(const standin_tensor *a, const standin_tensor *b)
{
    for (int axis = 0; axis < 4; axis++)
        if (b->dim[axis] != a->dim[axis] && b->dim[axis] != 1)
            return false;
    return true;
}

static bool is_turned(const standin_tensor *x, const standin_tensor *y)
{
    static const int other[] = {0, 1, 3, 2};
    for (int axis = 0; axis < 4; axis++)
        if (x->dim[axis] == y->dim[axis] && x->stride[axis] != y->stride[other[axis]])
            return false;
    return x->dim[2] == y->dim[3] && x->dim[3] == y->dim[2] && x->stride[2] == y->stride[3] &&
           x->stride[3] == y->stride[2];
}

static bool product_fits(const standin_step *s)
{
    const standin_tensor *a = s->in[0], *b = s->in[1], *c = s->out;
    return s->in_count == 2 && s->precision == CUDNN_DATA_FLOAT && a->type == b->type &&
           a->dim[0] == c->dim[0] && a->dim[1] == c->dim[1] && b->dim[0] == c->dim[0] &&
           b->dim[1] == c->dim[1] && a->dim[3] == b->dim[2] && a->dim[2] == c->dim[2] &&
           b->dim[3] == c->dim[3];
}

static bool elementwise_fits(const standin_step *s)
{
    static const struct {
        int mode, in_count, precision, type;
    } rows[] = {
        {CUDNN_POINTWISE_ADD, 2, CUDNN_DATA_FLOAT, -1},
        {CUDNN_POINTWISE_MUL, 2, CUDNN_DATA_FLOAT, -1},
        {CUDNN_POINTWISE_DIV, 2, CUDNN_DATA_FLOAT, -1},
        {CUDNN_POINTWISE_SUB, 2, CUDNN_DATA_FLOAT, -1},
        {CUDNN_POINTWISE_EXP, 1, CUDNN_DATA_FLOAT, -1},
        {CUDNN_POINTWISE_LOG, 1, CUDNN_DATA_FLOAT, -1},
        {CUDNN_POINTWISE_GEN_INDEX, 1, CUDNN_DATA_FLOAT, CUDNN_DATA_INT32},
        {CUDNN_POINTWISE_CMP_GE, 2, CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN},
        {CUDNN_POINTWISE_BINARY_SELECT, 3, CUDNN_DATA_FLOAT, -1},
    };
    for (int i = 0; i < s->in_count; i++)
        if (!covers(s->out, s->in[i]))
            return false;
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++)
        if (rows[row].mode == s->mode)
            return rows[row].in_count == s->in_count && rows[row].precision == s->precision &&
                   (s->mode == CUDNN_POINTWISE_GEN_INDEX) == (s->axis >= 0 && s->axis < 4) &&
                   (rows[row].type < 0 || rows[row].type == s->out->type) &&
                   (s->in_count < 3 || s->in[2]->type == CUDNN_DATA_BOOLEAN);
    return false;
}

static bool fits(const standin_step *s)
{
    if (s->type == OP_OF(MATMUL))
        return product_fits(s);
    if (s->type == OP_OF(POINTWISE))
        return elementwise_fits(s);
    if (s->type == OP_OF(RESHAPE))
        return is_turned(s->in[0], s->out);
    return s->precision == CUDNN_DATA_FLOAT && s->out->dim[3] == 1 && covers(s->in[0], s->out) &&
           (s->mode == CUDNN_REDUCE_TENSOR_ADD || s->mode == CUDNN_REDUCE_TENSOR_MAX);
}

static bool is_sound(const standin_tensor *tensor)
{
    for (int axis = 0; axis < 4; axis++)
        if (tensor->dim[axis] < 1 || tensor->stride[axis] < 1)
            return false;
    return !(tensor->is_virtual && tensor->is_number) && (!tensor->is_number || tensor->count == 1);
}

/* ---- reading ---- */

static cudnnStatus_t read_tensor(const standin_object *object, standin_graph *graph,
                                 standin_tensor **out)
{
    const int64_t id = standin_cudnn_value(object, A(TENSOR_UNIQUE_ID), 0);
    if (id < 1 || id >= STANDIN_CUDNN_TENSORS ||
        (graph->tensor[id].object != NULL && graph->tensor[id].object != object))
        return standin_cudnn_refuse("tensor %lld is there twice", (long long)id);
    standin_tensor *t = *out = &graph->tensor[id];
    t->object = object;
    t->id = id;
    for (int axis = 0; axis < 4; axis++) {
        t->dim[axis] = standin_cudnn_value(object, A(TENSOR_DIMENSIONS), axis);
        t->stride[axis] = standin_cudnn_value(object, A(TENSOR_STRIDES), axis);
    }
    t->type = (int)standin_cudnn_value(object, A(TENSOR_DATA_TYPE), 0);
    t->alignment = standin_cudnn_value(object, A(TENSOR_BYTE_ALIGNMENT), 0);
    t->is_virtual = standin_cudnn_value(object, A(TENSOR_IS_VIRTUAL), 0) != 0;
    t->is_number = standin_cudnn_value(object, A(TENSOR_IS_BY_VALUE), 0) != 0;
    t->count = (uint64_t)(t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3]);
    if (!is_sound(t))
        return standin_cudnn_refuse("tensor %lld makes no sense", (long long)id);
    return CUDNN_STATUS_SUCCESS;
}

/* Where an operation has its parts; -1: it has none of the kind. */
static const struct {
    int type, manner, mode, precision, out, in[3];
} kinds[] = {
    {OP_OF(MATMUL),
     A(OPERATION_MATMUL_DESC),
     -1,
     A(MATMUL_COMP_TYPE),
     A(OPERATION_MATMUL_CDESC),
     {A(OPERATION_MATMUL_ADESC), A(OPERATION_MATMUL_BDESC), -1}},
    {OP_OF(REDUCTION),
     A(OPERATION_REDUCTION_DESC),
     A(REDUCTION_OPERATOR),
     A(REDUCTION_COMP_TYPE),
     A(OPERATION_REDUCTION_YDESC),
     {A(OPERATION_REDUCTION_XDESC), -1, -1}},
    {OP_OF(POINTWISE),
     A(OPERATION_POINTWISE_PW_DESCRIPTOR),
     A(POINTWISE_MODE),
     A(POINTWISE_MATH_PREC),
     A(OPERATION_POINTWISE_YDESC),
     {A(OPERATION_POINTWISE_XDESC), A(OPERATION_POINTWISE_BDESC), A(OPERATION_POINTWISE_TDESC)}},
    {OP_OF(RESHAPE), -1, -1, -1, A(OPERATION_RESHAPE_YDESC), {A(OPERATION_RESHAPE_XDESC), -1, -1}},
};

static cudnnStatus_t read_step(const standin_object *op, standin_graph *graph, standin_step *s)
{
    int kind = 0;
    while (kind < 3 && kinds[kind].type != op->type)
        kind++;
    const standin_object *manner = standin_cudnn_part(op, kinds[kind].manner);
    const standin_object *out = standin_cudnn_part(op, kinds[kind].out);
    *s = (standin_step){.type = op->type, .axis = -1};
    if (manner != NULL) {
        s->mode = (int)standin_cudnn_value(manner, kinds[kind].mode, 0);
        s->precision = (int)standin_cudnn_value(manner, kinds[kind].precision, 0);
        if (standin_cudnn_count(manner, A(POINTWISE_AXIS)) > 0)
            s->axis = standin_cudnn_value(manner, A(POINTWISE_AXIS), 0);
    }
    for (int i = 0; i < 3; i++) {
        const standin_object *in = standin_cudnn_part(op, kinds[kind].in[i]);
        if (in == NULL)
            continue;
        TRY(read_tensor(in, graph, &s->in[s->in_count++]));
        if (s->in[s->in_count - 1]->is_virtual && s->in[s->in_count - 1]->writes == 0)
            return standin_cudnn_refuse("a tensor is read before it is written");
        s->in[s->in_count - 1]->reads++;
    }
    TRY(out != NULL ? read_tensor(out, graph, &s->out) : CUDNN_STATUS_BAD_PARAM);
    if (s->in_count == 0 || s->out->is_number || s->out->writes++ > 0 || s->out->reads > 0 ||
        !fits(s))
        return standin_cudnn_refuse("a step does not fit its tensors");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t standin_cudnn_read(const standin_object *object, standin_graph *graph)
{
    memset(graph, 0, sizeof *graph);
    graph->step_count = standin_cudnn_count(object, A(OPERATIONGRAPH_OPS));
    for (int64_t i = 0; i < graph->step_count; i++)
        TRY(read_step(
            (const standin_object *)(intptr_t)standin_cudnn_value(object, A(OPERATIONGRAPH_OPS), i),
            graph, &graph->step[i]));
    for (int id = 0; id < STANDIN_CUDNN_TENSORS; id++)
        if (graph->tensor[id].is_virtual && graph->tensor[id].reads == 0)
            return standin_cudnn_refuse("tensor %d is computed in vain", id);
    return CUDNN_STATUS_SUCCESS;
}

/* The gradient is the graph with more than two products; its first one's result has the scores'
 * size, and rows of scores are kept in whole tiles. */
uint64_t standin_cudnn_workspace(const standin_object *object, int engine)
{
    standin_graph graph;
    int products = 0;
    standin_cudnn_read(object, &graph);
    for (int64_t i = 0; i < graph.step_count; i++)
        products += graph.step[i].type == OP_OF(MATMUL);
    if (engine < 2)
        return products > 2 ? LINE : (uint64_t)1 << 40;
    uint64_t bytes = 0;
    for (int64_t i = 0; i < graph.step_count && products > 2 && bytes == 0; i++) {
        const int64_t *dim = graph.step[i].out->dim;
        if (graph.step[i].type == OP_OF(MATMUL))
            bytes = 2 * (uint64_t)(dim[0] * dim[1] * ((dim[2] + 63) / 64 * 64) *
                                   ((dim[3] + 127) / 128 * 128));
    }
    return bytes + LINE;
}
