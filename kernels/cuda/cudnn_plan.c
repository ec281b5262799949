/* Asks cuDNN for engines and takes the first that keeps our promises. */
#include "cudnn_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"

enum { ENGINES_MAX = 16, KNOBS_MAX = 32 };

cudnnStatus_t sl_cudnn_make(sl_cudnn_plan *plan, cudnnBackendDescriptorType_t type,
                            cudnnBackendDescriptor_t *out_descriptor)
{
    if (plan->descriptor_count == SL_CUDNN_DESCRIPTORS)
        return CUDNN_STATUS_NOT_SUPPORTED;
    SL_CUDNN_TRY(plan->functions->BackendCreateDescriptor(type, out_descriptor));
    plan->descriptors[plan->descriptor_count++] = *out_descriptor;
    return CUDNN_STATUS_SUCCESS;
}

void sl_cudnn_drop(sl_cudnn_plan *plan, uint32_t count)
{
    while (plan->descriptor_count > count)
        plan->functions->BackendDestroyDescriptor(plan->descriptors[--plan->descriptor_count]);
}

static cudnnStatus_t set_attribute(sl_cudnn_plan *plan, cudnnBackendDescriptor_t descriptor,
                                   cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, const void *value)
{
    return plan->functions->BackendSetAttribute(descriptor, name, type, 1, value);
}

/* ---- engines ---- */

/* As many as the library names, at most ENGINES_MAX, best first; others stay unset. */
static cudnnStatus_t name_engines(sl_cudnn_plan *plan, cudnnBackendDescriptor_t out[ENGINES_MAX],
                                  int64_t *out_count)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t adviser;
    SL_CUDNN_TRY(sl_cudnn_make(plan, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &adviser));
    SL_CUDNN_TRY(set_attribute(plan, adviser, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, &plan->graph));
    SL_CUDNN_TRY(
        set_attribute(plan, adviser, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode));
    SL_CUDNN_TRY(plan->functions->BackendFinalize(adviser));
    for (int i = 0; i < ENGINES_MAX; i++)
        SL_CUDNN_TRY(sl_cudnn_make(plan, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &out[i]));
    return plan->functions->BackendGetAttribute(adviser, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                CUDNN_TYPE_BACKEND_DESCRIPTOR, ENGINES_MAX,
                                                out_count, out);
}

/* By the engine's own notes. */
static cudnnStatus_t ask_whether_it_repeats(sl_cudnn_plan *plan, cudnnBackendDescriptor_t engine,
                                            bool *out_repeats)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    SL_CUDNN_TRY(plan->functions->BackendGetAttribute(
        engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
        CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes));
    *out_repeats = count <= CUDNN_NUMERICAL_NOTE_TYPE_COUNT;
    for (int64_t i = 0; i < count && *out_repeats; i++)
        *out_repeats = notes[i] != CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t build_plan(sl_cudnn_plan *plan, cudnnBackendDescriptor_t engine_config,
                                cudnnBackendDescriptor_t *out)
{
    int64_t bytes = 0, count = 0;
    SL_CUDNN_TRY(sl_cudnn_make(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, out));
    SL_CUDNN_TRY(set_attribute(plan, *out, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                               &plan->handle));
    SL_CUDNN_TRY(set_attribute(plan, *out, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, &engine_config));
    SL_CUDNN_TRY(plan->functions->BackendFinalize(*out));
    SL_CUDNN_TRY(plan->functions->BackendGetAttribute(
        *out, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes));
    plan->workspace_bytes = (uint64_t)bytes;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- text ---- */

static int write_shape(sl_cudnn_plan *plan)
{
    const sl_cudnn_key *key = &plan->key;
    return snprintf(plan->text, sizeof plan->text,
                    "%s %" PRIu64 "x%" PRIu64 ", %" PRIu64 " heads of %" PRIu64 " %s: ",
                    key->kind == SL_OP_ATTENTION ? "attention" : "attention backward", key->batch,
                    key->seq, key->heads, key->width, key->type == SL_TYPE_BF16 ? "bf16" : "fp16");
}

static void write_own(sl_cudnn_plan *plan, const char *why, cudnnStatus_t status)
{
    const size_t at = (size_t)write_shape(plan);
    snprintf(plan->text + at, sizeof plan->text - at, "own kernel, for cuDNN %s%s%.60s", why,
             status == CUDNN_STATUS_SUCCESS ? "" : ": ",
             status == CUDNN_STATUS_SUCCESS ? "" : plan->functions->GetErrorString(status));
}

/* Knobs are numbers of the library's own; with the engine's they name an algorithm. */
static cudnnStatus_t write_knobs(sl_cudnn_plan *plan, cudnnBackendDescriptor_t engine_config,
                                 size_t at)
{
    const sl_cudnn_functions *f = plan->functions;
    cudnnBackendDescriptor_t knobs[KNOBS_MAX];
    int64_t count = 0, one;
    for (int i = 0; i < KNOBS_MAX; i++)
        SL_CUDNN_TRY(sl_cudnn_make(plan, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[i]));
    SL_CUDNN_TRY(f->BackendGetAttribute(engine_config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                        CUDNN_TYPE_BACKEND_DESCRIPTOR, KNOBS_MAX, &count, knobs));
    for (int64_t i = 0; i < count && i < KNOBS_MAX && at < sizeof plan->text; i++) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)0;
        int64_t value = 0;
        SL_CUDNN_TRY(f->BackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                            CUDNN_TYPE_KNOB_TYPE, 1, &one, &type));
        SL_CUDNN_TRY(f->BackendGetAttribute(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                            CUDNN_TYPE_INT64, 1, &one, &value));
        at += (size_t)snprintf(plan->text + at, sizeof plan->text - at, ", knob %d %" PRId64,
                               (int)type, value);
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t write_choice(sl_cudnn_plan *plan, cudnnBackendDescriptor_t engine,
                                  cudnnBackendDescriptor_t engine_config)
{
    const uint32_t kept = plan->descriptor_count;
    int64_t number = 0, count = 0;
    SL_CUDNN_TRY(plan->functions->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                                      CUDNN_TYPE_INT64, 1, &count, &number));
    size_t at = (size_t)write_shape(plan);
    at += (size_t)snprintf(plan->text + at, sizeof plan->text - at,
                           "cuDNN's engine %" PRId64 ", workspace %" PRIu64, number,
                           plan->workspace_bytes);
    const cudnnStatus_t status = write_knobs(plan, engine_config, at);
    sl_cudnn_drop(plan, kept);
    return status;
}

/* ---- choosing ---- */

/* No note tells an engine that adds the parts of dq in memory, in any order, from one that writes
 * out the scores' gradients and multiplies them: but the latter wants the room, in tiles of 64. */
static bool has_room_for_scores(const sl_cudnn_plan *plan)
{
    const sl_cudnn_key *key = &plan->key;
    const uint64_t rows = sl_bits_round_up(key->seq, 64);
    return key->kind == SL_OP_ATTENTION ||
           plan->workspace_bytes >= 2 * key->batch * key->heads * rows * rows;
}

/* Takes the engine if it does; otherwise plan->plan stays NULL, and *out_why says why. */
static cudnnStatus_t try_engine(sl_cudnn_plan *plan, cudnnBackendDescriptor_t engine_config,
                                uint64_t workspace_bytes, const char **out_why)
{
    cudnnBackendDescriptor_t engine, built;
    int64_t count = 0;
    bool repeats;
    SL_CUDNN_TRY(sl_cudnn_make(plan, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    SL_CUDNN_TRY(plan->functions->BackendGetAttribute(engine_config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                                      &engine));
    SL_CUDNN_TRY(ask_whether_it_repeats(plan, engine, &repeats));
    *out_why = "promises no repeatable sums";
    if (!repeats)
        return CUDNN_STATUS_SUCCESS;
    *out_why = "builds no plan";
    SL_CUDNN_TRY(build_plan(plan, engine_config, &built));
    *out_why = "would add up dq in place";
    if (!has_room_for_scores(plan))
        return CUDNN_STATUS_SUCCESS;
    *out_why = "wants more workspace than was planned";
    if (plan->workspace_bytes > workspace_bytes)
        return CUDNN_STATUS_SUCCESS;
    SL_CUDNN_TRY(write_choice(plan, engine, engine_config));
    plan->plan = built;
    return CUDNN_STATUS_SUCCESS;
}

static void choose_engine(sl_cudnn_plan *plan, uint64_t workspace_bytes)
{
    cudnnBackendDescriptor_t engines[ENGINES_MAX];
    const char *why = "does not take its graph";
    int64_t count = 0;
    cudnnStatus_t status = sl_cudnn_graph_open(plan);
    if (status == CUDNN_STATUS_SUCCESS) {
        why = "names no engine";
        status = name_engines(plan, engines, &count);
    }
    if (status != CUDNN_STATUS_SUCCESS)
        count = 0;
    for (int64_t i = 0; i < count && i < ENGINES_MAX && plan->plan == NULL; i++) {
        const uint32_t kept = plan->descriptor_count;
        status = try_engine(plan, engines[i], workspace_bytes, &why);
        if (plan->plan == NULL)
            sl_cudnn_drop(plan, kept);
    }
    if (plan->plan == NULL)
        write_own(plan, why, status);
}

sl_status sl_cudnn_plan_open(const sl_cudnn_functions *functions, cudnnHandle_t handle,
                             const sl_cudnn_key *key, uint64_t workspace_bytes,
                             sl_cudnn_plan **out_plan)
{
    sl_cudnn_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a plan of attention");
    plan->key = *key;
    plan->functions = functions;
    plan->handle = handle;
    choose_engine(plan, workspace_bytes);
    if (plan->plan == NULL)
        sl_cudnn_drop(plan, 0);
    *out_plan = plan;
    return SL_OK;
}

void sl_cudnn_plan_close(sl_cudnn_plan *plan)
{
    if (plan == NULL)
        return;
    sl_cudnn_drop(plan, 0);
    free(plan);
}
