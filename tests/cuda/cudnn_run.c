/* Computes a graph of the stand-in for cuDNN, in its stream. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "cudnn_objects.h"
#include "standin.h"

enum { LINE = 256 };

#define A(name) CUDNN_ATTR_##name
#define OP_OF(op) CUDNN_BACKEND_OPERATION_##op##_DESCRIPTOR

typedef struct queued {
    standin_object *plan;
    standin_graph graph;
    char *memory[STANDIN_CUDNN_TENSORS]; /* of tensors that are neither virtual nor a number */
    float number[STANDIN_CUDNN_TENSORS];
    float *values[STANDIN_CUDNN_TENSORS]; /* in the order of indices */
    char *workspace;
    uint64_t workspace_bytes;
} queued;

static float round_to(int type, float value)
{
    return type == CUDNN_DATA_BFLOAT16 ? sl_half_from_bf16(sl_half_to_bf16(value))
           : type == CUDNN_DATA_HALF   ? sl_half_from_fp16(sl_half_to_fp16(value))
                                       : value;
}

static uint64_t element_bytes(const standin_tensor *tensor)
{
    return tensor->type == CUDNN_DATA_FLOAT || tensor->type == CUDNN_DATA_INT32 ? 4 : 2;
}

static uint64_t extent_bytes(const standin_tensor *tensor)
{
    int64_t last = 0;
    for (int axis = 0; axis < 4; axis++)
        last += (tensor->dim[axis] - 1) * tensor->stride[axis];
    return ((uint64_t)last + 1) * element_bytes(tensor);
}

static char *place_of(const queued *q, const standin_tensor *tensor, uint64_t index)
{
    uint64_t offset = 0;
    for (int axis = 3; axis >= 0; axis--) {
        offset += index % (uint64_t)tensor->dim[axis] * (uint64_t)tensor->stride[axis];
        index /= (uint64_t)tensor->dim[axis];
    }
    return q->memory[tensor->id] + offset * element_bytes(tensor);
}

static float load(const queued *q, const standin_tensor *tensor, uint64_t index)
{
    const char *from = place_of(q, tensor, index);
    uint16_t half;
    float value;
    memcpy(&half, from, sizeof half);
    if (tensor->type == CUDNN_DATA_FLOAT)
        return memcpy(&value, from, sizeof value), value;
    return tensor->type == CUDNN_DATA_BFLOAT16 ? sl_half_from_bf16(half) : sl_half_from_fp16(half);
}

static void store(const queued *q, const standin_tensor *tensor, uint64_t index, float value)
{
    char *to = place_of(q, tensor, index);
    const uint16_t half =
        tensor->type == CUDNN_DATA_BFLOAT16 ? sl_half_to_bf16(value) : sl_half_to_fp16(value);
    if (tensor->type == CUDNN_DATA_FLOAT)
        memcpy(to, &value, sizeof value);
    else
        memcpy(to, &half, sizeof half);
}

/* The values of a tensor that a step reads: loaded when they are first needed. */
static float *open_values(queued *q, const standin_tensor *tensor)
{
    const int64_t id = tensor->id;
    if (q->values[id] != NULL)
        return q->values[id];
    const uint64_t count = tensor->count;
    q->values[id] = malloc(count * sizeof(float));
    if (q->values[id] == NULL)
        abort();
    for (uint64_t i = 0; i < count; i++)
        q->values[id][i] = tensor->is_number    ? q->number[id]
                           : tensor->writes > 0 ? NAN
                                                : load(q, tensor, i);
    return q->values[id];
}

static void multiply(const standin_step *s, const float *a, const float *b, float *c)
{
    const uint64_t m = (uint64_t)s->out->dim[2], n = (uint64_t)s->out->dim[3];
    const uint64_t k = (uint64_t)s->in[0]->dim[3];
    for (uint64_t i = 0; i < s->out->count; i++) {
        const uint64_t head = i / n / m;
        const float *row = a + (head * m + i / n % m) * k, *column = b + head * k * n + i % n;
        double sum = 0;
        for (uint64_t j = 0; j < k; j++)
            sum += (double)row[j] * (double)column[j * n];
        c[i] = (float)sum;
    }
}

/* Where element `index` of `whole` is found in a tensor that is 1 along some of its axes. */
static uint64_t find_in(const standin_tensor *whole, const standin_tensor *part, uint64_t index)
{
    uint64_t at = 0, unit = 1;
    for (int axis = 3; axis >= 0; axis--) {
        const uint64_t size = (uint64_t)whole->dim[axis];
        if (part->dim[axis] != 1)
            at += index % size * unit;
        unit *= (uint64_t)part->dim[axis];
        index /= size;
    }
    return at;
}

static float index_along(const standin_tensor *tensor, int64_t along, uint64_t index)
{
    for (int axis = 3; axis > along; axis--)
        index /= (uint64_t)tensor->dim[axis];
    return (float)(index % (uint64_t)tensor->dim[along]);
}

static float compute(const standin_step *s, const float x[3], uint64_t index)
{
    switch (s->mode) {
    case CUDNN_POINTWISE_ADD:
        return x[0] + x[1];
    case CUDNN_POINTWISE_MUL:
        return x[0] * x[1];
    case CUDNN_POINTWISE_DIV:
        return x[0] / x[1];
    case CUDNN_POINTWISE_SUB:
        return x[0] - x[1];
    case CUDNN_POINTWISE_EXP:
        return expf(x[0]);
    case CUDNN_POINTWISE_LOG:
        return logf(x[0]);
    case CUDNN_POINTWISE_CMP_GE:
        return x[0] >= x[1];
    case CUDNN_POINTWISE_GEN_INDEX:
        return index_along(s->out, s->axis, index);
    default:
        return x[2] != 0 ? x[0] : x[1];
    }
}

static void each(const standin_step *s, float *const in[3], float *out)
{
    for (uint64_t i = 0; i < s->out->count; i++) {
        float x[3] = {0};
        for (int j = 0; j < s->in_count; j++)
            x[j] = in[j][find_in(s->out, s->in[j], i)];
        out[i] = compute(s, x, i);
    }
}

static void reduce(const standin_step *s, const float *in, float *out)
{
    const uint64_t n = (uint64_t)s->in[0]->dim[3];
    for (uint64_t i = 0; i < s->out->count; i++) {
        double sum = 0, max = -INFINITY;
        for (uint64_t j = 0; j < n; j++) {
            sum += (double)in[i * n + j];
            max = fmax(max, (double)in[i * n + j]);
        }
        out[i] = (float)(s->mode == CUDNN_REDUCE_TENSOR_MAX ? max : sum);
    }
}

static void turn(const standin_step *s, const float *in, float *out)
{
    const uint64_t m = (uint64_t)s->out->dim[2], n = (uint64_t)s->out->dim[3];
    for (uint64_t i = 0; i < s->out->count; i++)
        out[i] = in[i / n / m * m * n + i % n * m + i / n % m];
}

static void run_step(queued *q, const standin_step *s)
{
    float *in[3] = {0}, *out = open_values(q, s->out);
    for (int i = 0; i < s->in_count; i++)
        in[i] = open_values(q, s->in[i]);
    if (s->type == OP_OF(MATMUL))
        multiply(s, in[0], in[1], out);
    else if (s->type == OP_OF(POINTWISE))
        each(s, in, out);
    else if (s->type == OP_OF(REDUCTION))
        reduce(s, in[0], out);
    else
        turn(s, in[0], out);
    for (uint64_t i = 0; i < s->out->count; i++) {
        out[i] = round_to(s->out->type, out[i]);
        if (!s->out->is_virtual)
            store(q, s->out, i, out[i]);
    }
}

static void run_graph(void *argument)
{
    queued *q = argument;
    memset(q->workspace, 0x7f, q->workspace_bytes);
    for (int64_t i = 0; i < q->graph.step_count; i++)
        run_step(q, &q->graph.step[i]);
    for (int id = 0; id < STANDIN_CUDNN_TENSORS; id++)
        free(q->values[id]);
    memset(q->workspace, 0xff, q->workspace_bytes);
    q->plan->running--;
}

/* ---- queueing ---- */

static cudnnStatus_t take_pointer(queued *q, int64_t id, void *pointer, bool is_on_device)
{
    const standin_tensor *tensor =
        id > 0 && id < STANDIN_CUDNN_TENSORS ? &q->graph.tensor[id] : NULL;
    if (tensor == NULL || tensor->object == NULL || tensor->is_virtual || pointer == NULL ||
        q->memory[id] != NULL)
        return standin_cudnn_refuse("a pointer for tensor %lld", (long long)id);
    q->memory[id] = pointer;
    if (tensor->is_number) {
        memcpy(&q->number[id], pointer, sizeof(float));
        return CUDNN_STATUS_SUCCESS;
    }
    if ((intptr_t)pointer % tensor->alignment != 0)
        return standin_cudnn_refuse("tensor %lld at %p", (long long)id, pointer);
    if (is_on_device && !standin_is_device(pointer, extent_bytes(tensor)))
        return standin_cudnn_refuse("tensor %lld is not on the device", (long long)id);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t take_pack(queued *q, const standin_object *pack, bool is_on_device)
{
    const int64_t count = standin_cudnn_count(pack, A(VARIANT_PACK_UNIQUE_IDS));
    if (count != standin_cudnn_count(pack, A(VARIANT_PACK_DATA_POINTERS)))
        return standin_cudnn_refuse("%lld tensors have other numbers of pointers",
                                    (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (take_pointer(
                q, standin_cudnn_value(pack, A(VARIANT_PACK_UNIQUE_IDS), i),
                (void *)(intptr_t)standin_cudnn_value(pack, A(VARIANT_PACK_DATA_POINTERS), i),
                is_on_device) != CUDNN_STATUS_SUCCESS)
            return CUDNN_STATUS_BAD_PARAM;
    for (int id = 0; id < STANDIN_CUDNN_TENSORS; id++)
        if (q->graph.tensor[id].object != NULL && !q->graph.tensor[id].is_virtual &&
            q->memory[id] == NULL)
            return standin_cudnn_refuse("no pointer for tensor %d", id);
    q->workspace = (char *)standin_cudnn_part(pack, A(VARIANT_PACK_WORKSPACE));
    if (q->workspace == NULL || (uintptr_t)q->workspace % LINE != 0 ||
        (is_on_device && !standin_is_device(q->workspace, q->workspace_bytes)))
        return standin_cudnn_refuse("a workspace at %p", (void *)q->workspace);
    for (int id = 0; id < STANDIN_CUDNN_TENSORS; id++)
        if (q->memory[id] != NULL && q->memory[id] < q->workspace + q->workspace_bytes &&
            q->workspace < q->memory[id] + extent_bytes(&q->graph.tensor[id]))
            return standin_cudnn_refuse("tensor %d lies in the workspace", id);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t standin_cudnn_queue(standin_object *plan, const standin_object *pack, void *stream)
{
    queued *q = calloc(1, sizeof *q);
    if (q == NULL)
        abort();
    q->plan = plan;
    q->workspace_bytes = standin_cudnn_workspace(plan->graph, plan->engine);
    standin_cudnn_read(plan->graph, &q->graph);
    cudnnStatus_t status = take_pack(q, pack, stream != NULL);
    plan->running++;
    if (status == CUDNN_STATUS_SUCCESS &&
        standin_queue_owned(stream, "cudnnBackendExecute", run_graph, q) == 0)
        return CUDNN_STATUS_SUCCESS;
    plan->running--;
    free(q);
    return status != CUDNN_STATUS_SUCCESS ? status : CUDNN_STATUS_EXECUTION_FAILED;
}
