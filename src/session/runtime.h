/* A blueprint with its memory: the engine, and tensors by name and element. Tensors are reached
 * through sl_tensor_io, whatever chunk and tier they are in and whatever type they are stored in.
 *
 * In half precision a parameter is two numbers: an fp32 master and what the program computes with,
 * the master rounded. Of a master of low halves (sl_master) both are made of one number. Writing
 * group PARAM sets both, and reading it gives the master; so whoever reads and writes parameters
 * sees fp32 numbers and nothing is lost on the way. A program without master weights (evaluation,
 * generation) keeps the rounded number alone.
 */
#ifndef SL_SESSION_RUNTIME_H
#define SL_SESSION_RUNTIME_H

#include "engine/engine.h"
#include "search/search.h"
#include "tensors/tensor_io.h"

enum { SL_RUNTIME_BUFFER_BYTES = 1 << 20 }; /* a multiple of direct I/O */

typedef struct sl_runtime {
    sl_blueprint *blueprint;       /* owned */
    sl_engine *engine;             /* owned */
    sl_tensor_io io;               /* over the chunks of the engine; drains it */
    const sl_tensor_spec *tensors; /* of the model, all stages, [tensor_count] */
    uint32_t tensor_count;
    uint32_t *own; /* owned: [tensor_count]: which of program 0 it is; SL_NONE: another stage's */
    bool has_state[SL_GROUP_COUNT]; /* what is stored of the model's tensors, on any stage */
    uint16_t *half; /* owned [SL_RUNTIME_BUFFER_BYTES]: part of a tensor in half precision */
} sl_runtime;

/* What the engine calls; each may be NULL. See sl_engine_options. */
typedef struct sl_runtime_hooks {
    const sl_engine_observer *observer;
    const sl_engine_source *source; /* of the inputs of training steps */
    const sl_engine_ranks *ranks;   /* the others that tensors are split over */
    const sl_engine_progress *progress;
    const sl_engine_ranks *data_ranks;  /* the others that have other rows */
    const sl_engine_ranks *stage_ranks; /* the others that have other layers */
    bool paints;                        /* for sl_engine_measure_arena */
    double timeout_s;                   /* 0: the engine's */
} sl_runtime_hooks;

/* Opens the engine for a blueprint and takes it over, also on failure. All states are zero. NULL:
 * no hooks. SL_ERROR_SYSTEM: memory was refused. */
sl_status sl_runtime_open(sl_blueprint *blueprint, const sl_runtime_hooks *hooks,
                          sl_runtime **out_runtime);

/* NULL is fine. False: a lane of the engine did not end (sl_engine_close). Then the runtime stays,
 * and what its hooks use must stay, too. */
bool sl_runtime_close(sl_runtime *runtime);

/* Elements of a tensor where they are stored. */
typedef struct sl_runtime_view {
    const void *elements;
    sl_type type;
} sl_runtime_view;

/* Elements [first_element, first_element + element_count) of a tensor that this rank stores whole,
 * of the group that io.read reads; see sl_engine_map_chunk. SL_ERROR_USAGE: as there, or the rank
 * does not have all of the elements; the message goes on behind the name of the tensor. */
sl_status sl_runtime_view_elements(sl_runtime *runtime, sl_group group, uint32_t tensor_index,
                                   uint64_t first_element, uint64_t element_count,
                                   sl_runtime_view *out_view);

typedef enum sl_initialise { SL_INITIALISE_ALL, SL_INITIALISE_ADAPTERS } sl_initialise;

/* Sets every parameter, or every adapter, to its initial value: normal or uniform numbers that
 * depend on the seed, the name of the full tensor and the element's position in it, and on nothing
 * else. */
sl_status sl_runtime_initialise(sl_runtime *runtime, uint64_t seed, sl_initialise what);

#endif
