/* Where the library starts: options in, a planned and opened engine out. A program that
 * trains, evaluates or generates calls, in this order:
 *
 *   sl_config_init, _read, _set           options of files and of a command line
 *   sl_config_restore                     those of a checkpoint that the run goes on from, if any
 *   sl_config_check                       what they mean together
 *   sl_model_directory_open               weights to start from, if any, and their shape
 *   sl_config_shape, sl_config_fit_model  the shape of the model and the length of a row
 *   sl_search_init                        what the options ask for, and what this machine has
 *   sl_search_find                        the plan: the fastest choice that fits, or a refusal that
 *                                         says what is missing and what would fit
 *   sl_runtime_open                       the engine: memory under that plan
 *   sl_runtime_initialise, or             first values of the parameters,
 *   sl_model_directory_load, or           those of a model,
 *   sl_checkpoint_load                    or everything that a checkpoint holds
 *   sl_engine_step ...                    the work itself, see engine/engine.h
 *   sl_checkpoint_save                    between steps, the engine drained
 *   sl_runtime_close
 *
 * Below is the opened session: the engine, and tensors by name and element. Tensors are reached
 * through sl_tensor_io, whatever chunk and tier they are in and whatever type they are stored in.
 *
 * In half precision a parameter is two numbers: an fp32 master and what the program computes with,
 * the master rounded. Writing group PARAM sets both, and reading it gives the master; so whoever
 * reads and writes parameters sees fp32 numbers and nothing is lost on the way. A program without
 * master weights (evaluation, generation) keeps the rounded number alone.
 */
#ifndef SL_SESSION_RUNTIME_H
#define SL_SESSION_RUNTIME_H

#include "engine/engine.h"
#include "search/search.h"
#include "tensors/tensor_io.h"

typedef struct sl_runtime {
    sl_blueprint *blueprint;       /* owned */
    sl_engine *engine;             /* owned */
    sl_tensor_io io;               /* over the chunks of the engine; drains it */
    const sl_tensor_spec *tensors; /* of the model, all stages, [tensor_count] */
    uint32_t tensor_count;
    uint32_t *own; /* owned: [tensor_count]: which of program 0 it is; SL_NONE: another stage's */
    bool has_state[SL_GROUP_COUNT]; /* what is stored of the model's tensors, on any stage */
    uint16_t *half;                 /* owned: part of a tensor in half precision */
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

/* NULL is fine. False: a lane of the engine did not end (sl_engine_close). Then the session stays,
 * and what its hooks use must stay, too. */
bool sl_runtime_close(sl_runtime *runtime);

/* Sets every parameter to its initial value: normal numbers that depend on the seed, the name of
 * the full tensor and the element's position in it, and on nothing else. */
sl_status sl_runtime_initialise(sl_runtime *runtime, uint64_t seed);

#endif
