/* What the stand-in for cuDNN keeps behind its descriptors. */
#ifndef SL_STANDIN_CUDNN_OBJECTS_H
#define SL_STANDIN_CUDNN_OBJECTS_H

#include <cudnn_graph.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { STANDIN_CUDNN_VALUES = 32, STANDIN_CUDNN_ATTRIBUTES = 8, STANDIN_CUDNN_TENSORS = 64 };

typedef struct standin_attribute {
    int name;
    int64_t count;
    int64_t value[STANDIN_CUDNN_VALUES]; /* numbers, or addresses */
} standin_attribute;

typedef struct standin_object {
    struct standin_object *next; /* of all that live */
    int type;
    bool is_final;
    int holders; /* final descriptors of which this is a part */
    atomic_int running;
    uint32_t attribute_count;
    standin_attribute attribute[STANDIN_CUDNN_ATTRIBUTES];
    struct standin_object *graph; /* of an engine's configuration, an engine, a plan */
    int engine;                   /* of the same: which one, from 0 */
} standin_object;

/* Counts a fault, with a text made as by printf; a bad parameter. */
cudnnStatus_t standin_cudnn_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* An attribute's value number `index`; 0 if it was not set. */
int64_t standin_cudnn_value(const standin_object *object, int name, int64_t index);
int64_t standin_cudnn_count(const standin_object *object, int name);
standin_object *standin_cudnn_part(const standin_object *object, int name);

/* ---- graphs ---- */

typedef struct standin_tensor {
    const standin_object *object; /* NULL: there is none of this id */
    int64_t id, dim[4], stride[4], alignment;
    uint64_t count;
    int type;
    bool is_virtual, is_number;
    int reads, writes; /* steps that do */
} standin_tensor;

typedef struct standin_step {
    int type, mode, precision; /* of the operation, and how it computes */
    int64_t axis;              /* -1: none */
    int in_count;
    standin_tensor *in[3], *out;
} standin_step;

/* A graph as it is computed. Steps point into it. */
typedef struct standin_graph {
    int64_t step_count;
    standin_step step[STANDIN_CUDNN_VALUES];
    standin_tensor tensor[STANDIN_CUDNN_TENSORS]; /* by id */
} standin_graph;

/* Reads what a descriptor says; refuses steps that do not fit together. */
cudnnStatus_t standin_cudnn_read(const standin_object *object, standin_graph *graph);

/* Of an engine for a graph of attention or its gradient. */
uint64_t standin_cudnn_workspace(const standin_object *object, int engine);

/* Checks and queues a plan with a pack, in a stream. */
cudnnStatus_t standin_cudnn_queue(standin_object *plan, const standin_object *pack, void *stream);

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const cudnnStatus_t try_status_ = (call);                                                  \
        if (try_status_ != CUDNN_STATUS_SUCCESS)                                                   \
            return try_status_;                                                                    \
    } while (0)

#endif
