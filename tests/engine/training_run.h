/* A few training steps of a plan_case on the real engine and kernels, and a digest of all that came
 * out: every loss and norm, and every parameter and moment of every tensor (not of chunks, whose
 * sizes differ from case to case). */
#ifndef SL_TESTS_TRAINING_RUN_H
#define SL_TESTS_TRAINING_RUN_H

#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/q8.h"
#include "base/status.h"
#include "chunk/plan_cases.h"
#include "engine/engine.h"
#include "engine/engine_internal.h"
#include "scratch_dir.h"
#include "tensors/elements.h"

typedef struct training_run {
    plan_case *c;
    sl_plan *plan;
    sl_engine *engine;
    float clip;
    uint32_t step;     /* the one that runs */
    scratch_path disk; /* empty text: nothing is on disk */
} training_run;

/* ---- a run ---- */

/* A frozen matrix in codes of 8 bits, by whole blocks. */
static inline sl_status training_run_visit_codes(training_run *run, uint32_t tensor, float *data,
                                                 bool writes)
{
    enum { BLOCK = SL_BLOCK_ELEMENTS, GROUPS = BLOCK / SL_Q8_GROUP, BYTES = 2176 };
    const sl_layout *layout = run->c->layout;
    const uint32_t chunk_index = layout->chunk_of_tensor[tensor];
    const uint64_t count = run->c->program->tensors[tensor].element_count;
    uint64_t at = layout->first_element[tensor] / BLOCK * BYTES;
    for (uint64_t done = 0; done < count; done += BLOCK, at += BYTES) {
        const uint64_t part = count - done < BLOCK ? count - done : BLOCK;
        float values[BLOCK] = {0};
        uint8_t codes[BYTES];
        uint16_t scales[GROUPS];
        memcpy(values, data + done, part * sizeof *values);
        for (int g = 0; g < GROUPS && writes; g++)
            scales[g] =
                sl_q8_encode_group(values + g * SL_Q8_GROUP, (int8_t *)codes + g * SL_Q8_GROUP);
        if (writes)
            memcpy(codes + BLOCK, scales, sizeof scales);
        SL_TRY(
            writes
                ? sl_engine_write_chunk(run->engine, SL_GROUP_PARAM, chunk_index, at, BYTES, codes)
                : sl_engine_read_chunk(run->engine, SL_GROUP_PARAM, chunk_index, at, BYTES, codes));
        memcpy(scales, codes + BLOCK, sizeof scales);
        for (int g = 0; g < GROUPS && !writes; g++)
            sl_q8_decode_group((const int8_t *)codes + g * SL_Q8_GROUP, scales[g],
                               values + g * SL_Q8_GROUP);
        memcpy(data + done, values, part * sizeof *values);
    }
    return SL_OK;
}

static inline sl_status training_run_visit(training_run *run, sl_group group, uint32_t tensor,
                                           float *data, bool writes)
{
    uint32_t chunk_index = run->c->layout->chunk_of_tensor[tensor];
    sl_type type = run->c->layout->group_type[group];
    if (group == SL_GROUP_PARAM && run->c->program->tensors[tensor].rule == SL_RULE_SMALL) {
        if (run->c->small == SL_FROZEN_INT8)
            return training_run_visit_codes(run, tensor, data, writes);
        type = SL_TYPE_BF16;
    }
    uint64_t count = run->c->program->tensors[tensor].element_count;
    uint64_t bytes = count * sl_type_bytes(type);
    uint64_t first = run->c->layout->first_element[tensor] * sl_type_bytes(type);
    void *stored = malloc(bytes);
    sl_status status = stored ? SL_OK : SL_ERROR_SYSTEM;
    if (stored && writes)
        sl_elements_round(type, data, count, stored);
    if (stored)
        status = writes
                     ? sl_engine_write_chunk(run->engine, group, chunk_index, first, bytes, stored)
                     : sl_engine_read_chunk(run->engine, group, chunk_index, first, bytes, stored);
    if (status == SL_OK && !writes)
        sl_elements_widen(type, stored, count, data);
    free(stored);
    return status;
}

/* False for the states of a frozen tensor. */
static inline bool training_run_stores(const training_run *run, sl_group group, uint32_t tensor)
{
    const sl_layout *layout = run->c->layout;
    return run->c->program->has_state[group] &&
           sl_layout_chunk_bytes(layout, group, layout->chunk_of_tensor[tensor]) > 0;
}

static inline uint64_t training_run_largest(const sl_program *program)
{
    uint64_t most = 0;
    for (uint32_t t = 0; t < program->tensor_count; t++)
        most = program->tensors[t].element_count > most ? program->tensors[t].element_count : most;
    return most;
}

static inline float training_run_initial(const sl_tensor_spec *spec, uint32_t tensor, uint64_t i)
{
    if (i / spec->shape[1] >= spec->valid_rows)
        return 0.0f;
    return spec->init_mean + 5 * spec->init_deviation * sl_rng_normal(3, tensor, i);
}

/* Parameters become what the master beside them stores, as elements of the group. */
static inline void training_run_keep_master(const sl_program *program, float *data, uint64_t count)
{
    for (uint64_t i = 0; i < count && program->master == SL_MASTER_LOW; i++)
        data[i] = sl_half_from_bf16((uint16_t)sl_bits_of_float(data[i]));
}

static inline sl_status training_run_initialise(training_run *run)
{
    const sl_program *program = run->c->program;
    float *data = calloc(training_run_largest(program), sizeof *data);
    sl_status status = data ? SL_OK : SL_ERROR_SYSTEM;
    for (uint32_t t = 0; status == SL_OK && t < program->tensor_count; t++) {
        const sl_tensor_spec *spec = &program->tensors[t];
        for (uint64_t i = 0; i < spec->element_count; i++)
            data[i] = training_run_initial(spec, t, i);
        status = training_run_visit(run, SL_GROUP_PARAM, t, data, true);
        training_run_keep_master(program, data, spec->element_count);
        if (status == SL_OK && training_run_stores(run, SL_GROUP_MASTER, t))
            status = training_run_visit(run, SL_GROUP_MASTER, t, data, true);
    }
    free(data);
    return status;
}

/* Token i of micro-batch m of a step; targets are one later. */
static inline int32_t training_run_token(const plan_case *c, uint32_t step, uint32_t m, uint64_t i)
{
    uint64_t position = ((uint64_t)step * 8192 + m) * 4096 + i;
    return (int32_t)sl_rng_below(5, 1, position, c->shape.vocab);
}

static inline sl_status training_run_fill(void *user, const sl_engine_fill *what, void *memory)
{
    const training_run *run = user;
    int32_t *tokens = memory;
    const uint64_t seq = run->c->emit.seq, document = 4 + what->micro_batch; /* tokens */
    for (uint64_t i = 0; i < what->bytes / sizeof *tokens; i++)
        tokens[i] = what->slot == SL_INPUT_POSITIONS
                        ? (int32_t)(i % seq % document)
                        : training_run_token(run->c, run->step, what->micro_batch, i + what->slot);
    const bool masks = run->c->emit.masks && what->slot == SL_INPUT_TARGETS;
    for (uint64_t i = 0; masks && i < what->bytes / sizeof *tokens; i++)
        if (i % 5 < 2 + what->micro_batch % 3)
            tokens[i] = -1;
    return SL_OK;
}

typedef struct training_run_settings {
    sl_device_kind device;
    uint32_t worker_count;
    bool guards;
    sl_engine_parts parts;
} training_run_settings;

/* Opens engine and weights for the plan. What is on disk is in a directory of its own. On failure
 * the run is for training_run_close all the same. */
static inline sl_status training_run_open_with(plan_case *c, sl_plan *plan,
                                               const training_run_settings *settings,
                                               training_run *out_run)
{
    sl_engine_plan engine_plan = {c->program, plan};
    *out_run = (training_run){.c = c, .plan = plan, .clip = c->step.update_early ? 0.0f : 1.0f};
    if (plan->peak_bytes[SL_TIER_DISK] > 0)
        out_run->disk = scratch_open();
    const char *directories[] = {out_run->disk.text};
    const sl_engine_source source = {training_run_fill, out_run};
    sl_engine_options options = {
        .layout = c->layout,
        .homes = c->homes,
        .plans = &engine_plan,
        .plan_count = 1,
        .target = {.device = settings->device, .worker_count = settings->worker_count},
        .source = &source,
        .disk_directories = directories,
        .disk_directory_count = out_run->disk.text[0] ? 1 : 0,
        .guard_arenas = settings->guards};
    SL_TRY(sl_engine_open_with(&options, &settings->parts, &out_run->engine));
    return training_run_initialise(out_run);
}

static inline sl_status training_run_open(plan_case *c, sl_plan *plan, uint32_t worker_count,
                                          bool guards, training_run *out_run)
{
    const training_run_settings settings = {.worker_count = worker_count, .guards = guards};
    return training_run_open_with(c, plan, &settings, out_run);
}

static inline sl_step_scalars training_run_scalars(float clip, uint32_t step)
{
    return (sl_step_scalars){.learning_rate = 1e-2f,
                             .weight_decay = 0.1f,
                             .beta1 = 0.9f,
                             .beta2 = 0.95f,
                             .epsilon = 1e-8f,
                             .bias1 = (float)(1.0 - pow(0.9, step)),
                             .bias2_root = (float)sqrt(1.0 - pow(0.95, step)),
                             .lion_beta1 = 0.9f,
                             .lion_beta2 = 0.99f,
                             .momentum = 0.9f,
                             .muon_momentum = 0.95f,
                             .is_nesterov = 1,
                             .clip = clip,
                             .loss_scale = 1.0f,
                             .dropout_seed = 41,
                             .step = step - 1,
                             .first_row = 100 * (uint64_t)step};
}

/* Runs steps 1..step_count and adds each loss and norm to `hash`. */
static inline sl_status training_run_steps(training_run *run, uint32_t step_count,
                                           sl_hash_stream *hash)
{
    for (uint32_t step = 1; step <= step_count; step++) {
        sl_step_scalars scalars = training_run_scalars(run->clip, step);
        run->step = step;
        SL_TRY(sl_engine_step(run->engine, 0, &scalars));
        const sl_step_control *control = sl_engine_output(run->engine, 0, SL_OUTPUT_CONTROL);
        sl_hash_update(hash, sl_engine_output(run->engine, 0, SL_OUTPUT_LOSS), sizeof(double));
        sl_hash_update(hash, &control->grad_norm, sizeof control->grad_norm);
    }
    return sl_engine_drain(run->engine);
}

static inline bool training_run_has_codes(const training_run *run, sl_group group)
{
    return run->c->layout->states == SL_STATES_INT8 &&
           (group == SL_GROUP_STATE1 || group == SL_GROUP_STATE2);
}

/* Adds a tensor of a group to `hash`: its numbers, or the codes of its blocks as they are stored.
 * `data` has room for both. */
static inline sl_status training_run_hash_tensor(training_run *run, sl_group group, uint32_t tensor,
                                                 float *data, sl_hash_stream *hash)
{
    const sl_layout *layout = run->c->layout;
    const uint64_t block_bytes = sl_states_block_bytes(SL_STATES_INT8);
    uint64_t bytes = run->c->program->tensors[tensor].element_count * sizeof *data;
    if (!training_run_has_codes(run, group)) {
        SL_TRY(training_run_visit(run, group, tensor, data, false));
    } else {
        bytes = layout->tensor_blocks[tensor] * block_bytes;
        SL_TRY(sl_engine_read_chunk(run->engine, group, layout->chunk_of_tensor[tensor],
                                    layout->first_element[tensor] / SL_BLOCK_ELEMENTS * block_bytes,
                                    bytes, data));
    }
    sl_hash_update(hash, data, bytes);
    return SL_OK;
}

static inline sl_status training_run_hash_states(training_run *run, sl_hash_stream *hash)
{
    static const sl_group groups[] = {SL_GROUP_PARAM, SL_GROUP_MASTER, SL_GROUP_STATE1,
                                      SL_GROUP_STATE2};
    const sl_program *program = run->c->program;
    float *data = calloc(training_run_largest(program) + SL_BLOCK_ELEMENTS, sizeof *data);
    sl_status status = data ? SL_OK : SL_ERROR_SYSTEM;
    for (uint32_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        bool is_there = program->has_state[groups[g]];
        for (uint32_t t = 0; is_there && status == SL_OK && t < program->tensor_count; t++) {
            if (training_run_stores(run, groups[g], t))
                status = training_run_hash_tensor(run, groups[g], t, data, hash);
        }
    }
    free(data);
    return status;
}

static inline void training_run_close(training_run *run)
{
    sl_engine_close(run->engine);
    sl_plan_close(run->plan);
    if (run->disk.text[0])
        scratch_close(&run->disk);
}

#endif
