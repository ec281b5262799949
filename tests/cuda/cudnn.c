/* The objects of the stand-in for cuDNN, and what tests may ask of it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudnn_objects.h"
#include "cudnn_standin.h"

enum { TEXT_BYTES = 256, ENGINES = 3 };

struct cudnnContext {
    void *stream;
};

static struct {
    uint64_t calls, fails_at, handles, faults, executed;
    standin_object *objects;
    char first_fault[TEXT_BYTES];
    bool is_hidden;
    int engines;
} state = {.engines = ENGINES};

/* ---- control ---- */

cudnnStatus_t standin_cudnn_refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (state.faults++ == 0)
        vsnprintf(state.first_fault, sizeof state.first_fault, format, arguments);
    va_end(arguments);
    return CUDNN_STATUS_BAD_PARAM;
}

uint64_t standin_cudnn_live(void)
{
    uint64_t count = state.handles;
    for (const standin_object *object = state.objects; object != NULL; object = object->next)
        count++;
    return count;
}

void standin_cudnn_reset(void)
{
    const uint64_t handles = state.handles;
    standin_object *objects = state.objects;
    memset(&state, 0, sizeof state);
    state.handles = handles;
    state.objects = objects;
    state.engines = ENGINES;
    if (standin_cudnn_live() > 0)
        standin_cudnn_refuse("objects of cuDNN are still open");
}

void standin_cudnn_hide(bool is_hidden)
{
    state.is_hidden = is_hidden;
}

bool standin_cudnn_is_hidden(void)
{
    return state.is_hidden;
}

void standin_cudnn_name(int engine_count)
{
    state.engines = engine_count;
}

void standin_cudnn_fail_call(uint64_t nth)
{
    state.fails_at = state.calls + nth;
}

uint64_t standin_cudnn_calls(void)
{
    return state.calls;
}

uint64_t standin_cudnn_executed(void)
{
    return state.executed;
}

uint64_t standin_cudnn_faults(const char **out_first)
{
    if (out_first != NULL)
        *out_first = state.first_fault;
    return state.faults;
}

#define ENTER()                                                                                    \
    TRY(++state.calls == state.fails_at ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS)

/* ---- handles ---- */

size_t cudnnGetVersion(void)
{
    return 91900;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS         ? "success"
           : status == CUDNN_STATUS_NOT_SUPPORTED ? "not supported"
                                                  : "a fault";
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    ENTER();
    *handle = calloc(1, sizeof **handle);
    if (*handle == NULL)
        abort();
    state.handles++;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    for (const standin_object *object = state.objects; object != NULL; object = object->next)
        if (object->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
            standin_cudnn_refuse("a handle goes before its graphs");
    free(handle);
    state.handles--;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t streamId)
{
    ENTER();
    handle->stream = streamId;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- attributes ---- */

#define D(name) CUDNN_BACKEND_##name##_DESCRIPTOR
#define A(name) CUDNN_ATTR_##name
#define T(name) CUDNN_TYPE_##name

/* What each descriptor takes; most 0: of a kind that the library fills. */
static const struct {
    int descriptor, name, type, least, most;
} rows[] = {
    {D(TENSOR), A(TENSOR_DATA_TYPE), T(DATA_TYPE), 1, 1},
    {D(TENSOR), A(TENSOR_DIMENSIONS), T(INT64), 4, 4},
    {D(TENSOR), A(TENSOR_STRIDES), T(INT64), 4, 4},
    {D(TENSOR), A(TENSOR_UNIQUE_ID), T(INT64), 1, 1},
    {D(TENSOR), A(TENSOR_BYTE_ALIGNMENT), T(INT64), 1, 1},
    {D(TENSOR), A(TENSOR_IS_VIRTUAL), T(BOOLEAN), 0, 1},
    {D(TENSOR), A(TENSOR_IS_BY_VALUE), T(BOOLEAN), 0, 1},
    {D(MATMUL), A(MATMUL_COMP_TYPE), T(DATA_TYPE), 1, 1},
    {D(REDUCTION), A(REDUCTION_OPERATOR), T(REDUCTION_OPERATOR_TYPE), 1, 1},
    {D(REDUCTION), A(REDUCTION_COMP_TYPE), T(DATA_TYPE), 1, 1},
    {D(POINTWISE), A(POINTWISE_MODE), T(POINTWISE_MODE), 1, 1},
    {D(POINTWISE), A(POINTWISE_MATH_PREC), T(DATA_TYPE), 1, 1},
    {D(POINTWISE), A(POINTWISE_AXIS), T(INT64), 0, 1},
    {D(OPERATION_MATMUL), A(OPERATION_MATMUL_DESC), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(OPERATION_MATMUL), A(OPERATION_MATMUL_ADESC), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(OPERATION_MATMUL), A(OPERATION_MATMUL_BDESC), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(OPERATION_MATMUL), A(OPERATION_MATMUL_CDESC), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(OPERATION_REDUCTION), A(OPERATION_REDUCTION_DESC), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(OPERATION_REDUCTION), A(OPERATION_REDUCTION_XDESC), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(OPERATION_REDUCTION), A(OPERATION_REDUCTION_YDESC), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(OPERATION_POINTWISE), A(OPERATION_POINTWISE_PW_DESCRIPTOR), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(OPERATION_POINTWISE), A(OPERATION_POINTWISE_XDESC), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(OPERATION_POINTWISE), A(OPERATION_POINTWISE_YDESC), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(OPERATION_POINTWISE), A(OPERATION_POINTWISE_BDESC), T(BACKEND_DESCRIPTOR), 0, 1},
    {D(OPERATION_POINTWISE), A(OPERATION_POINTWISE_TDESC), T(BACKEND_DESCRIPTOR), 0, 1},
    {D(OPERATION_RESHAPE), A(OPERATION_RESHAPE_XDESC), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(OPERATION_RESHAPE), A(OPERATION_RESHAPE_YDESC), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(OPERATIONGRAPH), A(OPERATIONGRAPH_HANDLE), T(HANDLE), 1, 1},
    {D(OPERATIONGRAPH), A(OPERATIONGRAPH_OPS), T(BACKEND_DESCRIPTOR), 1, STANDIN_CUDNN_VALUES},
    {D(ENGINEHEUR), A(ENGINEHEUR_OPERATION_GRAPH), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(ENGINEHEUR), A(ENGINEHEUR_MODE), T(HEUR_MODE), 1, 1},
    {D(EXECUTION_PLAN), A(EXECUTION_PLAN_HANDLE), T(HANDLE), 1, 1},
    {D(EXECUTION_PLAN), A(EXECUTION_PLAN_ENGINE_CONFIG), T(BACKEND_DESCRIPTOR), 1, 1},
    {D(VARIANT_PACK), A(VARIANT_PACK_UNIQUE_IDS), T(INT64), 1, STANDIN_CUDNN_VALUES},
    {D(VARIANT_PACK), A(VARIANT_PACK_DATA_POINTERS), T(VOID_PTR), 1, STANDIN_CUDNN_VALUES},
    {D(VARIANT_PACK), A(VARIANT_PACK_WORKSPACE), T(VOID_PTR), 1, 1},
    {D(ENGINECFG), -1, -1, 0, 0},
    {D(ENGINE), -1, -1, 0, 0},
    {D(KNOB_CHOICE), -1, -1, 0, 0},
};

enum { ROWS = sizeof rows / sizeof *rows };

static const standin_attribute *find(const standin_object *object, int name)
{
    for (uint32_t i = 0; i < object->attribute_count; i++)
        if (object->attribute[i].name == name)
            return &object->attribute[i];
    return NULL;
}

int64_t standin_cudnn_value(const standin_object *object, int name, int64_t index)
{
    const standin_attribute *attribute = find(object, name);
    return attribute != NULL && index < attribute->count ? attribute->value[index] : 0;
}

int64_t standin_cudnn_count(const standin_object *object, int name)
{
    const standin_attribute *attribute = find(object, name);
    return attribute != NULL ? attribute->count : 0;
}

standin_object *standin_cudnn_part(const standin_object *object, int name)
{
    return (standin_object *)(intptr_t)standin_cudnn_value(object, name, 0);
}

static standin_object *find_live(const void *descriptor)
{
    for (standin_object *object = state.objects; object != NULL; object = object->next)
        if (object == descriptor)
            return object;
    return NULL;
}

static int64_t widen(int type, const void *from, int64_t index)
{
    int64_t wide;
    if (type == T(BOOLEAN))
        return ((const bool *)from)[index];
    if (type != T(INT64) && type != T(HANDLE) && type != T(VOID_PTR) &&
        type != T(BACKEND_DESCRIPTOR))
        return ((const int32_t *)from)[index];
    memcpy(&wide, (const char *)from + (size_t)index * sizeof wide, sizeof wide);
    return wide;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType,
                                       int64_t elementCount, const void *arrayOfElements)
{
    ENTER();
    standin_object *object = find_live(descriptor);
    if (object == NULL || object->is_final || arrayOfElements == NULL)
        return standin_cudnn_refuse("attribute %d of what is not open, or is final", attributeName);
    int row = 0;
    while (row < ROWS &&
           (rows[row].descriptor != object->type || rows[row].name != (int)attributeName))
        row++;
    if (row == ROWS || rows[row].type != (int)attributeType || elementCount < 1 ||
        elementCount < rows[row].least || elementCount > rows[row].most ||
        find(object, attributeName) != NULL)
        return standin_cudnn_refuse("attribute %d of descriptor %d: type %d, %lld elements",
                                    attributeName, object->type, attributeType,
                                    (long long)elementCount);
    standin_attribute *attribute = &object->attribute[object->attribute_count++];
    *attribute = (standin_attribute){.name = attributeName, .count = elementCount};
    for (int64_t i = 0; i < elementCount; i++) {
        attribute->value[i] = widen(attributeType, arrayOfElements, i);
        const standin_object *part = (const standin_object *)(intptr_t)attribute->value[i];
        if (attributeType == T(BACKEND_DESCRIPTOR) && (find_live(part) == NULL || !part->is_final))
            return standin_cudnn_refuse("attribute %d is not final", attributeName);
        if (attributeType == T(HANDLE) && part == NULL)
            return standin_cudnn_refuse("attribute %d is no handle", attributeName);
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- life ---- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t descriptorType,
                                           cudnnBackendDescriptor_t *descriptor)
{
    ENTER();
    int row = 0;
    while (row < ROWS && rows[row].descriptor != (int)descriptorType)
        row++;
    if (row == ROWS)
        return standin_cudnn_refuse("a descriptor of type %d", descriptorType);
    standin_object *object = calloc(1, sizeof *object);
    if (object == NULL)
        abort();
    object->type = descriptorType;
    object->next = state.objects;
    state.objects = object;
    *descriptor = object;
    return CUDNN_STATUS_SUCCESS;
}

/* Adds `change` to what each part of a final descriptor knows of those that hold it. */
static void hold_parts(const standin_object *object, int change)
{
    for (int row = 0; row < ROWS; row++)
        if (rows[row].descriptor == object->type && rows[row].type == T(BACKEND_DESCRIPTOR))
            for (int64_t i = 0; i < standin_cudnn_count(object, rows[row].name); i++)
                ((standin_object *)(intptr_t)standin_cudnn_value(object, rows[row].name, i))
                    ->holders += change;
    if (object->graph != NULL)
        object->graph->holders += change;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    standin_object **place = &state.objects, *object = find_live(descriptor);
    if (object == NULL)
        return standin_cudnn_refuse("what is not open is closed");
    if (object->holders > 0 || object->running > 0)
        standin_cudnn_refuse("descriptor %d goes while it is in use", object->type);
    while (*place != object)
        place = &(*place)->next;
    *place = object->next;
    if (object->is_final)
        hold_parts(object, -1);
    free(object);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    ENTER();
    standin_object *object = find_live(descriptor);
    if (object == NULL || object->is_final)
        return standin_cudnn_refuse("what is not open, or is final, is finalized");
    for (int row = 0; row < ROWS; row++)
        if (rows[row].descriptor == object->type &&
            standin_cudnn_count(object, rows[row].name) < rows[row].least)
            return standin_cudnn_refuse("descriptor %d without attribute %d", object->type,
                                        rows[row].name);
    if (object->type == D(ENGINECFG) || object->type == D(ENGINE) || object->type == D(KNOB_CHOICE))
        return standin_cudnn_refuse("descriptor %d is the library's to fill", object->type);
    if (object->type == D(OPERATIONGRAPH)) {
        standin_graph graph;
        TRY(standin_cudnn_read(object, &graph));
    }
    if (object->type == D(EXECUTION_PLAN)) {
        const standin_object *config = standin_cudnn_part(object, A(EXECUTION_PLAN_ENGINE_CONFIG));
        object->graph = config->graph;
        object->engine = config->engine;
    }
    object->is_final = true;
    hold_parts(object, 1);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- what the library tells ---- */

static cudnnStatus_t fill(cudnnBackendDescriptor_t descriptor, int type, standin_object *graph,
                          int engine)
{
    standin_object *object = find_live(descriptor);
    if (object == NULL || object->type != type || object->is_final)
        return standin_cudnn_refuse("a descriptor to be filled that is not one of type %d", type);
    object->is_final = true;
    object->graph = graph;
    object->engine = engine;
    hold_parts(object, 1);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t tell_engines(const standin_object *adviser, int64_t room, int64_t *out_count,
                                  cudnnBackendDescriptor_t *out)
{
    for (*out_count = 0; *out_count < state.engines && *out_count < room; ++*out_count)
        TRY(fill(out[*out_count], D(ENGINECFG),
                 standin_cudnn_part(adviser, A(ENGINEHEUR_OPERATION_GRAPH)), (int)*out_count));
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t tell_number(const standin_object *object, int name, void *out)
{
    const int64_t workspace = (int64_t)standin_cudnn_workspace(object->graph, object->engine);
    const int64_t wide = name == A(EXECUTION_PLAN_WORKSPACE_SIZE) ? workspace
                         : name == A(ENGINE_GLOBAL_INDEX)         ? object->engine
                                                                  : 7;
    const int narrow = name == A(ENGINE_NUMERICAL_NOTE)
                           ? (object->engine == 0 ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                                                  : CUDNN_NUMERICAL_NOTE_TENSOR_CORE)
                           : CUDNN_KNOB_TYPE_KERNEL_CFG;
    if (name == A(ENGINE_NUMERICAL_NOTE) || name == A(KNOB_CHOICE_KNOB_TYPE))
        memcpy(out, &narrow, sizeof narrow);
    else
        memcpy(out, &wide, sizeof wide);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType,
                                       int64_t requestedElementCount, int64_t *elementCount,
                                       void *arrayOfElements)
{
    ENTER();
    static const int told[][3] = {
        {D(ENGINEHEUR), A(ENGINEHEUR_RESULTS), T(BACKEND_DESCRIPTOR)},
        {D(ENGINECFG), A(ENGINECFG_ENGINE), T(BACKEND_DESCRIPTOR)},
        {D(ENGINECFG), A(ENGINECFG_KNOB_CHOICES), T(BACKEND_DESCRIPTOR)},
        {D(ENGINE), A(ENGINE_NUMERICAL_NOTE), T(NUMERICAL_NOTE)},
        {D(ENGINE), A(ENGINE_GLOBAL_INDEX), T(INT64)},
        {D(KNOB_CHOICE), A(KNOB_CHOICE_KNOB_TYPE), T(KNOB_TYPE)},
        {D(KNOB_CHOICE), A(KNOB_CHOICE_KNOB_VALUE), T(INT64)},
        {D(EXECUTION_PLAN), A(EXECUTION_PLAN_WORKSPACE_SIZE), T(INT64)},
    };
    const standin_object *object = find_live(descriptor);
    bool is_told = false;
    for (size_t i = 0; object != NULL && i < sizeof told / sizeof *told; i++)
        is_told |= told[i][0] == object->type && told[i][1] == (int)attributeName &&
                   told[i][2] == (int)attributeType;
    if (!is_told || !object->is_final || requestedElementCount < 1 || elementCount == NULL)
        return standin_cudnn_refuse("attribute %d is not to be had", attributeName);
    if (attributeName == A(ENGINEHEUR_RESULTS))
        return tell_engines(object, requestedElementCount, elementCount, arrayOfElements);
    *elementCount = 1;
    if (attributeName == A(ENGINECFG_ENGINE) || attributeName == A(ENGINECFG_KNOB_CHOICES))
        return fill(*(cudnnBackendDescriptor_t *)arrayOfElements,
                    attributeName == A(ENGINECFG_ENGINE) ? D(ENGINE) : D(KNOB_CHOICE),
                    object->graph, object->engine);
    return tell_number(object, attributeName, arrayOfElements);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t executionPlan,
                                  cudnnBackendDescriptor_t variantPack)
{
    ENTER();
    standin_object *plan = find_live(executionPlan), *pack = find_live(variantPack);
    if (plan == NULL || pack == NULL || plan->type != D(EXECUTION_PLAN) || !plan->is_final ||
        pack->type != D(VARIANT_PACK) || !pack->is_final ||
        (void *)handle != (void *)standin_cudnn_part(plan, A(EXECUTION_PLAN_HANDLE)))
        return standin_cudnn_refuse("no plan of this handle, or no pack");
    TRY(standin_cudnn_queue(plan, pack, handle->stream));
    state.executed++;
    return CUDNN_STATUS_SUCCESS;
}
