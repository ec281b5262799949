/* Opens the engine, and finds tensors in its chunks; numbers are rounded on their way in. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/low_half.h"
#include "codes.h"
#include "device/device.h"
#include "machine/proof_record.h"
#include "tensors/elements.h"

enum { BUFFER_ELEMENTS = SL_RUNTIME_BUFFER_BYTES / 2 };

_Static_assert(SL_CODES_BATCH_BYTES <= BUFFER_ELEMENTS * 2, "a batch of codes fits the buffer");

/* A run of elements of one tensor, in a chunk. */
typedef struct run {
    uint32_t chunk_index;
    uint64_t first_element; /* of the chunk */
} run;

static bool is_here(const sl_runtime *runtime, uint32_t tensor_index)
{
    return tensor_index < runtime->tensor_count && runtime->own[tensor_index] != SL_NONE;
}

/* A tensor of another stage. */
static bool is_elsewhere(const sl_runtime *runtime, uint32_t tensor_index)
{
    return tensor_index < runtime->tensor_count && runtime->own[tensor_index] == SL_NONE;
}

static sl_status find_run(const sl_runtime *runtime, uint32_t tensor_index, uint64_t first,
                          uint64_t count, run *out_run)
{
    const sl_layout *layout = runtime->blueprint->layout;
    if (!is_here(runtime, tensor_index))
        SL_FAIL(SL_ERROR_INTERNAL, "tensor %u of %u is not here", tensor_index,
                runtime->tensor_count);
    const sl_tensor_spec *tensor = &runtime->tensors[tensor_index];
    if (first > tensor->element_count || count > tensor->element_count - first)
        SL_FAIL(SL_ERROR_INTERNAL, "%s: elements %llu + %llu of %llu", tensor->name,
                (unsigned long long)first, (unsigned long long)count,
                (unsigned long long)tensor->element_count);
    const uint32_t own = runtime->own[tensor_index];
    *out_run = (run){layout->chunk_of_tensor[own], layout->first_element[own] + first};
    return SL_OK;
}

/* ---- half precision, through a buffer ---- */

static uint64_t next_part(uint64_t count, uint64_t done)
{
    return count - done < BUFFER_ELEMENTS ? count - done : BUFFER_ELEMENTS;
}

/* True if a frozen matrix is stored in a type of its own. */
static bool is_small(const sl_runtime *runtime, sl_group group, uint32_t chunk_index)
{
    return group == SL_GROUP_PARAM &&
           runtime->blueprint->layout->chunks[chunk_index].rule == SL_RULE_SMALL;
}

/* True if the chunk is stored in codes of 8 bits. */
static bool has_codes(const sl_runtime *runtime, sl_group group, uint32_t chunk_index)
{
    const sl_layout *layout = runtime->blueprint->layout;
    const bool is_state = group == SL_GROUP_STATE1 || group == SL_GROUP_STATE2;
    return is_state ? layout->states == SL_STATES_INT8
                    : is_small(runtime, group, chunk_index) && layout->frozen == SL_FROZEN_INT8;
}

/* The type of a chunk without codes. */
static sl_type find_type(const sl_runtime *runtime, sl_group group, uint32_t chunk_index)
{
    return is_small(runtime, group, chunk_index) ? SL_TYPE_BF16
                                                 : runtime->blueprint->layout->group_type[group];
}

static sl_codes_run make_codes_run(const sl_runtime *runtime, sl_group group, const run *where,
                                   uint64_t count)
{
    return (sl_codes_run){.engine = runtime->engine,
                          .group = group,
                          .chunk_index = where->chunk_index,
                          .first = where->first_element,
                          .count = count,
                          .buffer = runtime->half};
}

static bool is_stored(const sl_runtime *runtime, sl_group group, uint32_t chunk_index)
{
    return runtime->blueprint->homes->tier[group] != NULL &&
           sl_layout_chunk_bytes(runtime->blueprint->layout, group, chunk_index) > 0;
}

/* True if the chunk's parameters are high halves, and their master is low halves. */
static bool has_low_halves(const sl_runtime *runtime, uint32_t chunk_index)
{
    return runtime->blueprint->layout->master == SL_MASTER_LOW &&
           is_stored(runtime, SL_GROUP_MASTER, chunk_index);
}

/* Numbers of which the low halves stand at `low`. This rank stores the parameters of at least the
 * same elements. */
static sl_status read_joined(const sl_runtime *runtime, const run *low, uint64_t count, float *data)
{
    enum { MOST = BUFFER_ELEMENTS / 2, SIZE = 2 };
    const sl_layout *layout = runtime->blueprint->layout;
    const uint32_t chunk = low->chunk_index;
    uint16_t *lows = runtime->half, *highs = lows + MOST;
    const uint64_t first_high = low->first_element +
                                sl_layout_stored(layout, SL_GROUP_MASTER, chunk).first -
                                sl_layout_stored(layout, SL_GROUP_PARAM, chunk).first;
    for (uint64_t done = 0; done < count; done += MOST) {
        const uint64_t part = sl_bits_min(count - done, MOST);
        SL_TRY(sl_engine_read_chunk(runtime->engine, SL_GROUP_MASTER, chunk,
                                    (low->first_element + done) * SIZE, part * SIZE, lows));
        SL_TRY(sl_engine_read_chunk(runtime->engine, SL_GROUP_PARAM, chunk,
                                    (first_high + done) * SIZE, part * SIZE, highs));
        for (uint64_t i = 0; i < part; i++)
            data[done + i] = sl_bits_to_float(sl_low_half_join(highs[i], lows[i]));
    }
    return SL_OK;
}

/* Numbers as the group stores them, in two bytes each. */
static void round_part(const sl_runtime *runtime, sl_group group, uint32_t chunk_index,
                       const float *data, uint64_t count)
{
    const bool is_half = group == SL_GROUP_PARAM || group == SL_GROUP_MASTER;
    if (!is_half || !has_low_halves(runtime, chunk_index)) {
        sl_elements_round(find_type(runtime, group, chunk_index), data, count, runtime->half);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t kept = sl_low_half_keep(sl_bits_of_float(data[i]));
        runtime->half[i] = (uint16_t)(group == SL_GROUP_MASTER ? kept : sl_low_half_high(kept));
    }
}

static sl_status read_run(const sl_runtime *runtime, sl_group group, const run *from,
                          uint64_t count, float *data)
{
    const sl_type type = find_type(runtime, group, from->chunk_index);
    uint64_t size = sl_type_bytes(type);
    const sl_codes_run codes = make_codes_run(runtime, group, from, count);
    if (has_codes(runtime, group, from->chunk_index))
        return sl_codes_read(&codes, data);
    if (group == SL_GROUP_MASTER && has_low_halves(runtime, from->chunk_index))
        return read_joined(runtime, from, count, data);
    if (type == SL_TYPE_FP32)
        return sl_engine_read_chunk(runtime->engine, group, from->chunk_index,
                                    from->first_element * size, count * size, data);
    for (uint64_t done = 0; done < count; done += BUFFER_ELEMENTS) {
        uint64_t part = next_part(count, done);
        SL_TRY(sl_engine_read_chunk(runtime->engine, group, from->chunk_index,
                                    (from->first_element + done) * size, part * size,
                                    runtime->half));
        sl_elements_widen(type, runtime->half, part, data + done);
    }
    return SL_OK;
}

static sl_status write_run(const sl_runtime *runtime, sl_group group, const run *to, uint64_t count,
                           const float *data)
{
    const sl_type type = find_type(runtime, group, to->chunk_index);
    uint64_t size = sl_type_bytes(type);
    const sl_codes_run codes = make_codes_run(runtime, group, to, count);
    if (has_codes(runtime, group, to->chunk_index))
        return sl_codes_write(&codes, data);
    if (type == SL_TYPE_FP32)
        return sl_engine_write_chunk(runtime->engine, group, to->chunk_index,
                                     to->first_element * size, count * size, data);
    for (uint64_t done = 0; done < count; done += BUFFER_ELEMENTS) {
        uint64_t part = next_part(count, done);
        round_part(runtime, group, to->chunk_index, data + done, part);
        SL_TRY(sl_engine_write_chunk(runtime->engine, group, to->chunk_index,
                                     (to->first_element + done) * size, part * size,
                                     runtime->half));
    }
    return SL_OK;
}

/* ---- shards ---- */

/* A run that stands in what this rank stores of the chunk, `skipped` elements behind where the
 * caller's began. */
typedef struct own_run {
    run run;
    uint64_t skipped, count; /* count 0: none of it is here */
} own_run;

static own_run cut_to_stored(const sl_runtime *runtime, sl_group group, const run *all,
                             uint64_t count)
{
    const sl_stored stored = sl_layout_stored(runtime->blueprint->layout, group, all->chunk_index);
    const uint64_t stored_end = stored.first + stored.count;
    uint64_t first = all->first_element, end = first + count;
    first = first > stored.first ? first : stored.first;
    end = end < stored_end ? end : stored_end;
    if (first >= end)
        return (own_run){*all, 0, 0};
    return (own_run){
        {all->chunk_index, first - stored.first}, first - all->first_element, end - first};
}

/* Where parameters are as exact as they are kept. */
static sl_group find_exact(const sl_runtime *runtime, sl_group group, uint32_t chunk_index)
{
    const bool is_exact =
        group != SL_GROUP_PARAM || !is_stored(runtime, SL_GROUP_MASTER, chunk_index);
    return is_exact ? group : SL_GROUP_MASTER;
}

/* ---- tensors ---- */

/* States of a frozen tensor read as zeros. */
static sl_status read_elements(void *user, sl_group group, uint32_t tensor_index,
                               uint64_t first_element, uint64_t element_count, float *data)
{
    const sl_runtime *runtime = user;
    run from;
    if (is_elsewhere(runtime, tensor_index)) {
        memset(data, 0, element_count * sizeof *data);
        return SL_OK;
    }
    SL_TRY(find_run(runtime, tensor_index, first_element, element_count, &from));
    const sl_group exact = find_exact(runtime, group, from.chunk_index);
    own_run own = cut_to_stored(runtime, exact, &from, element_count);
    if (!is_stored(runtime, exact, from.chunk_index))
        own.count = 0;
    if (own.count < element_count)
        memset(data, 0, element_count * sizeof *data);
    return own.count > 0 ? read_run(runtime, exact, &own.run, own.count, data + own.skipped)
                         : SL_OK;
}

static sl_status write_elements(void *user, sl_group group, uint32_t tensor_index,
                                uint64_t first_element, uint64_t element_count, const float *data)
{
    const sl_runtime *runtime = user;
    run to;
    if (is_elsewhere(runtime, tensor_index))
        return SL_OK; /* its own stage is told, too */
    SL_TRY(find_run(runtime, tensor_index, first_element, element_count, &to));
    const sl_group groups[] = {find_exact(runtime, group, to.chunk_index), group};
    if (!is_stored(runtime, group, to.chunk_index))
        return SL_OK; /* a frozen tensor has no states */
    for (int i = groups[0] == group; i < 2; i++) {
        const own_run own = cut_to_stored(runtime, groups[i], &to, element_count);
        if (own.count == 0)
            continue;
        const sl_status status =
            write_run(runtime, groups[i], &own.run, own.count, data + own.skipped);
        if (status == SL_ERROR_DATA)
            SL_FAIL(status, "tensor \"%s\" %s", runtime->tensors[tensor_index].name,
                    sl_status_message());
        SL_TRY(status);
    }
    return SL_OK;
}

sl_status sl_runtime_view_elements(sl_runtime *runtime, sl_group group, uint32_t tensor_index,
                                   uint64_t first_element, uint64_t element_count,
                                   sl_runtime_view *out_view)
{
    run from;
    SL_TRY(find_run(runtime, tensor_index, first_element, element_count, &from));
    const sl_group exact = find_exact(runtime, group, from.chunk_index);
    const own_run own = cut_to_stored(runtime, exact, &from, element_count);
    const sl_type type = find_type(runtime, exact, from.chunk_index);
    const uint64_t size = sl_type_bytes(type);
    if (own.count < element_count || !is_stored(runtime, exact, from.chunk_index))
        SL_FAIL(SL_ERROR_USAGE, "is spread over ranks");
    if (has_codes(runtime, exact, from.chunk_index))
        SL_FAIL(SL_ERROR_USAGE, "is stored in codes of 8 bits");
    if (exact == SL_GROUP_MASTER && has_low_halves(runtime, from.chunk_index))
        SL_FAIL(SL_ERROR_USAGE, "is stored in two halves");
    out_view->type = type;
    return sl_engine_map_chunk(runtime->engine, exact, own.run.chunk_index,
                               own.run.first_element * size, element_count * size,
                               &out_view->elements);
}

/* Where several ranks store the same elements, the first of these ranks answers for them. */
static uint64_t find_own_elements(void *user, sl_group group, uint32_t tensor_index,
                                  uint64_t first_element, uint64_t element_count,
                                  uint64_t *out_first)
{
    const sl_runtime *runtime = user;
    const sl_task *task = &runtime->blueprint->task;
    run all;
    *out_first = first_element;
    if (!is_here(runtime, tensor_index) ||
        find_run(runtime, tensor_index, first_element, element_count, &all) != SL_OK)
        return 0; /* who counts the elements of all ranks says that some are missing */
    const sl_tensor_spec *own_spec =
        &runtime->blueprint->programs[0]->tensors[runtime->own[tensor_index]];
    if (own_spec->is_tied && task->stage_index > 0)
        return 0;
    const sl_tensor_spec *spec = &runtime->tensors[tensor_index];
    if (spec->replica_index > 0 || (spec->split == SL_SPLIT_NONE && task->tp_rank > 0))
        return 0;
    const sl_group exact = find_exact(runtime, group, all.chunk_index);
    if (runtime->blueprint->layout->shard_count[exact] <= 1)
        return task->dp_rank == 0 ? element_count : 0;
    const own_run own = cut_to_stored(runtime, exact, &all, element_count);
    *out_first = first_element + own.skipped;
    return own.count;
}

/* ---- opening ---- */

static sl_status open_engine(sl_runtime *runtime, const sl_runtime_hooks *hooks)
{
    const sl_blueprint *blueprint = runtime->blueprint;
    sl_engine_plan plans[SL_BLUEPRINT_PROGRAM_MAX];
    for (uint32_t i = 0; i < blueprint->program_count; i++)
        plans[i] = (sl_engine_plan){blueprint->programs[i], blueprint->plans[i]};
    sl_engine_options options = {.layout = blueprint->layout,
                                 .homes = blueprint->homes,
                                 .plans = plans,
                                 .plan_count = blueprint->program_count,
                                 .target = blueprint->task.target,
                                 .disk_directories = blueprint->task.disk_directories,
                                 .disk_directory_count = blueprint->task.disk_directory_count,
                                 .source = hooks ? hooks->source : NULL,
                                 .ranks = hooks ? hooks->ranks : NULL,
                                 .data_ranks = hooks ? hooks->data_ranks : NULL,
                                 .stage_ranks = hooks ? hooks->stage_ranks : NULL,
                                 .progress = hooks ? hooks->progress : NULL,
                                 .observer = hooks ? hooks->observer : NULL,
                                 .paint_arenas = hooks && hooks->paints,
                                 .timeout_s = hooks ? hooks->timeout_s : 0};
    return sl_engine_open(&options, &runtime->engine);
}

/* Once a run: of its ranks the first one says so. */
static void warn_of_doubt(const sl_task *task)
{
    char doubt[SL_PROOF_DOUBT_BYTES];
    if (task->target.device == SL_DEVICE_CPU || task->tp_rank > 0 || task->dp_rank > 0 ||
        task->stage_index > 0)
        return;
    sl_proof_record_doubt(&task->device_info, &task->target.cuda, doubt);
    if (*doubt)
        sl_log_write(SL_LOG_WARNING, "%s", doubt);
}

static sl_status open_buffer(sl_runtime *runtime)
{
    runtime->half = malloc(BUFFER_ELEMENTS * sizeof *runtime->half);
    if (!runtime->half)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a runtime");
    return SL_OK;
}

/* Both lists are in the order of the model, but for what is tied, which the last stage has again
 * behind its layers. */
static sl_status find_own_tensors(sl_runtime *runtime)
{
    const sl_program *program = runtime->blueprint->programs[0];
    runtime->own = malloc(((size_t)runtime->tensor_count + 1) * sizeof *runtime->own);
    if (!runtime->own)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a runtime of %u tensors", runtime->tensor_count);
    for (uint32_t i = 0, next = 0; i < runtime->tensor_count; i++) {
        const sl_tensor_spec *it = &runtime->tensors[i];
        runtime->own[i] = SL_NONE;
        for (uint32_t tried = 0; tried < program->tensor_count; tried++) {
            const uint32_t at = (next + tried) % program->tensor_count;
            const sl_tensor_spec *own = &program->tensors[at];
            if (own->first_row != it->first_row || strcmp(own->name, it->name) != 0)
                continue;
            runtime->own[i] = at;
            next = at + 1;
            break;
        }
    }
    return SL_OK;
}

/* A stage whose tensors are all frozen has no states, but other stages have some: ranks that save
 * a checkpoint together must name the same groups. */
static void find_states(sl_runtime *runtime)
{
    const sl_program *program = runtime->blueprint->programs[0];
    const sl_stored_types types = sl_program_stored_types(program);
    memcpy(runtime->has_state, program->has_state, sizeof runtime->has_state);
    for (uint32_t t = 0; runtime->blueprint->whole && t < runtime->tensor_count; t++)
        for (int group = 0; group < SL_GROUP_COUNT; group++)
            runtime->has_state[group] |=
                sl_rule_block_bytes(runtime->tensors[t].rule, (sl_group)group, &types) > 0;
}

sl_status sl_runtime_open(sl_blueprint *blueprint, const sl_runtime_hooks *hooks,
                          sl_runtime **out_runtime)
{
    sl_runtime *runtime = calloc(1, sizeof *runtime);
    if (!runtime) {
        sl_blueprint_close(blueprint);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a runtime");
    }
    runtime->blueprint = blueprint;
    runtime->io = (sl_tensor_io){read_elements, write_elements, runtime, find_own_elements,
                                 sl_program_has_shards(blueprint->programs[0]) || blueprint->whole};
    const sl_program *all = blueprint->whole ? blueprint->whole : blueprint->programs[0];
    runtime->tensors = all->tensors;
    runtime->tensor_count = all->tensor_count;
    find_states(runtime);
    sl_status status;
    SL_TRY_GOTO(status, open_buffer(runtime), close_runtime);
    SL_TRY_GOTO(status, find_own_tensors(runtime), close_runtime);
    SL_TRY_GOTO(status, open_engine(runtime, hooks), close_runtime);
    warn_of_doubt(&blueprint->task);
    *out_runtime = runtime;
    return SL_OK;
close_runtime:
    (void)sl_runtime_close(runtime);
    return status;
}

bool sl_runtime_close(sl_runtime *runtime)
{
    if (!runtime)
        return true;
    if (!sl_engine_close(runtime->engine))
        return false;
    sl_blueprint_close(runtime->blueprint);
    free(runtime->half);
    free(runtime->own);
    free(runtime);
    return true;
}
