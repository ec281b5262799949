/* See plan_account.h; docs/choosing.md and docs/ranks.md explain the keys. */
#include "plan_account.h"

#include <string.h>

#include "base/bits.h"
#include "comm/comm.h"
#include "report/account.h"
#include "search/plan_json.h"

uint64_t sl_plan_account_count_rows(const sl_program *program, const char *name)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < program->tensor_count; i++)
        if (strcmp(program->tensors[i].name, name) == 0)
            rows += program->tensors[i].shape[0];
    return rows;
}

uint64_t sl_plan_account_count_parameters(const sl_blueprint *blueprint)
{
    const sl_program *program = blueprint->programs[0];
    const uint64_t elements = blueprint->layout->valid_elements;
    return sl_program_shards_group(program, SL_GROUP_PARAM)
               ? sl_bits_divide_up(elements, program->dp_size)
               : elements;
}

const char *sl_plan_account_find_bound(const sl_search_candidate *candidate,
                                       const sl_machine *machine)
{
    double seconds[SL_RESOURCE_COUNT];
    return sl_account_resource_name(sl_account_find_bound(machine, candidate->lane_seconds,
                                                          (double)candidate->disk_bytes,
                                                          candidate->host_bytes, seconds));
}

/* ---- what auto compared ---- */

/* A number, or "auto". */
static json_t *make_setting(uint64_t value, uint64_t automatic)
{
    return value == automatic ? json_string("auto") : json_integer((json_int_t)value);
}

/* NULL: no memory. */
static json_t *make_candidate(const sl_search_candidate *it, const sl_machine *machine)
{
    const double *host = it->choice.placement.host_fraction,
                 *disk = it->choice.placement.disk_fraction;
    const uint64_t *peak = it->peak_bytes;
    return json_pack(
        "{s:f, s:s, s:{s:I, s:I, s:I}, s:I, s:I, s:s, s:s, s:s, s:{s:f, s:f, s:f, s:f, s:f, s:f, "
        "s:f, s:f, s:f}, s:o, s:o}",
        "predicted_step_ms", 1e3 * it->seconds, "bound_by", sl_plan_account_find_bound(it, machine),
        "peak_bytes", "device", (json_int_t)peak[SL_TIER_DEVICE], "host",
        (json_int_t)peak[SL_TIER_HOST], "disk", (json_int_t)peak[SL_TIER_DISK],
        "link_bytes_per_step", (json_int_t)it->link_bytes, "disk_bytes_per_step",
        (json_int_t)it->disk_bytes, "policy", sl_search_policy_name(it->choice.placement.policy),
        "recompute", sl_search_recompute_name(it->choice.recompute), "accumulation",
        sl_search_accumulation_name(it->choice.accumulation), "shares", "offload_params",
        host[SL_GROUP_PARAM], "offload_grads", host[SL_GROUP_GRAD], "offload_optimizer",
        host[SL_GROUP_STATE1], "offload_updates", it->choice.placement.host_updates,
        "offload_activations", it->choice.host_activations, "nvme_params", disk[SL_GROUP_PARAM],
        "nvme_grads", disk[SL_GROUP_GRAD], "nvme_optimizer", disk[SL_GROUP_STATE1],
        "nvme_activations", it->choice.disk_activations, "chunk_size",
        make_setting(it->choice.chunk_elements, 0), "prefetch",
        make_setting(it->choice.prefetch, SL_PREFETCH_AUTO));
}

static sl_status add_auto(const sl_plan_stages *stages, json_t *object)
{
    const sl_search_candidates *candidates = &stages->candidates;
    const sl_machine *machine = &stages->blueprint->machine;
    json_t *list = json_array();
    bool has_failed = !list;
    for (uint32_t i = 0; i < candidates->count; i++)
        has_failed |=
            json_array_append_new(list, make_candidate(&candidates->best[i], machine)) != 0;
    json_t *compared =
        json_pack("{s:i, s:b, s:o}", "planned_count", (int)candidates->planned_count,
                  "machine_is_measured", (int)machine->is_measured, "candidates", list);
    has_failed |= !compared || json_object_set_new(object, "auto", compared) != 0;
    if (has_failed)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for what was compared");
    return SL_OK;
}

/* ---- ranks ---- */

static json_t *shape_of(const sl_tensor_spec *spec, const uint64_t shape[2])
{
    return spec->dim_count == 1 ? json_pack("[I]", (json_int_t)shape[0])
                                : json_pack("[I,I]", (json_int_t)shape[0], (json_int_t)shape[1]);
}

/* Of every tensor, its panels together. */
static json_t *list_splits(const sl_program *program)
{
    static const char *const keys[] = {[SL_SPLIT_NONE] = "none",
                                       [SL_SPLIT_COLUMNS] = "columns",
                                       [SL_SPLIT_QKV] = "columns_of_qkv",
                                       [SL_SPLIT_ROWS] = "rows"};
    json_t *list = json_array();
    for (uint32_t i = 0; i < program->tensor_count; i++) {
        const sl_tensor_spec *spec = &program->tensors[i];
        const uint64_t local[] = {sl_plan_account_count_rows(program, spec->name), spec->shape[1]};
        if (i > 0 && strcmp(program->tensors[i - 1].name, spec->name) == 0)
            continue;
        json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:o}", "name", spec->name, "split",
                                              keys[spec->split], "shape",
                                              shape_of(spec, spec->whole_shape), "local_shape",
                                              shape_of(spec, local)));
    }
    return list;
}

/* [[0,1],[2,3]] */
static json_t *list_groups(const sl_comm_layout *layout, sl_comm_group group)
{
    uint32_t members[SL_COMM_RANKS_MAX];
    const uint32_t size = sl_comm_group_size(layout, group), ranks = sl_comm_layout_ranks(layout);
    json_t *list = json_array();
    for (uint32_t rank = 0; rank < ranks; rank++) {
        sl_comm_group_members(layout, group, rank, members);
        if (members[0] != rank)
            continue;
        json_t *one = json_array();
        for (uint32_t i = 0; i < size; i++)
            json_array_append_new(one, json_integer(members[i]));
        json_array_append_new(list, one);
    }
    return list;
}

/* Of every stage: its layers, ranks, and what each of these takes. */
static json_t *list_stages(const sl_comm_layout *layout, const sl_plan_stages *stages)
{
    const uint32_t count = layout->tensor * layout->data;
    json_t *list = json_array();
    for (uint32_t s = 0; s < stages->count; s++) {
        const sl_plan_stage *it = &stages->items[s];
        json_t *ranks = json_array();
        for (uint32_t i = 0; i < count; i++)
            json_array_append_new(ranks, json_integer(s * count + i));
        json_array_append_new(list, json_pack("{s:i, s:i, s:o, s:{s:I, s:I, s:I}, s:f}",
                                              "first_layer", (int)it->first_layer, "layer_count",
                                              (int)it->layer_count, "ranks", ranks, "peak_bytes",
                                              "device", (json_int_t)it->peak_bytes[SL_TIER_DEVICE],
                                              "host", (json_int_t)it->peak_bytes[SL_TIER_HOST],
                                              "disk", (json_int_t)it->peak_bytes[SL_TIER_DISK],
                                              "predicted_step_ms", 1e3 * it->step_seconds));
    }
    return list;
}

/* The groups of which a rank keeps shards. */
static json_t *list_shards(const sl_program *program)
{
    json_t *list = json_array();
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        if (program->has_state[group] && sl_program_shards_group(program, (sl_group)group))
            json_array_append_new(list, json_string(sl_group_name((sl_group)group)));
    return list;
}

static sl_status add_ranks(const sl_comm_layout *layout, const sl_plan_stages *stages,
                           json_t *object)
{
    const sl_blueprint *blueprint = stages->blueprint;
    if (sl_comm_layout_ranks(layout) == 1)
        return SL_OK;
    json_t *groups = json_object();
    for (int group = SL_COMM_TENSOR; group < SL_COMM_GROUP_COUNT; group++)
        json_object_set_new(groups, sl_comm_group_name((sl_comm_group)group),
                            list_groups(layout, (sl_comm_group)group));
    json_t *ranks = json_pack(
        "{s:i, s:i, s:i, s:i, s:o, s:i, s:i, s:o, s:I, s:o, s:o, s:f}", "count",
        (int)sl_comm_layout_ranks(layout), "tensor", (int)layout->tensor, "data", (int)layout->data,
        "stages", (int)layout->stages, "stage_plans", list_stages(layout, stages), "shown_stage",
        (int)stages->shown, "threads", (int)blueprint->task.target.worker_count, "groups", groups,
        "local_parameters", (json_int_t)sl_plan_account_count_parameters(blueprint), "shards",
        list_shards(blueprint->programs[0]), "tensors", list_splits(blueprint->programs[0]),
        "predicted_step_ms", 1e3 * stages->step_seconds);
    if (!ranks || json_object_set_new(object, "ranks", ranks) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the plan as JSON");
    return SL_OK;
}

/* ---- all of it ---- */

sl_status sl_plan_account_format(const sl_trainer *trainer, const sl_plan_stages *stages,
                                 bool with_auto, json_t **out_object)
{
    json_t *object = NULL;
    SL_TRY(sl_plan_json_format(stages->blueprint, &object));
    sl_status status = SL_OK;
    if (with_auto && trainer->search.auto_policy && stages->candidates.count > 0)
        status = add_auto(stages, object);
    if (status == SL_OK)
        status = add_ranks(&trainer->ranks.layout, stages, object);
    if (status == SL_OK)
        status = sl_layout_choice_add(&trainer->layout_choice, object);
    if (status == SL_OK)
        *out_object = object;
    else
        json_decref(object);
    return status;
}

sl_status sl_plan_account_format_refusal(const sl_search *search, const sl_refusal *refusal,
                                         json_t **out_object)
{
    json_t *object = NULL;
    SL_TRY(sl_plan_json_format_refusal(refusal, &object));
    if (search->task.stage_count > 1 &&
        json_object_set_new(object, "stage", json_integer(search->task.stage_index)) != 0) {
        json_decref(object);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a refusal as JSON");
    }
    *out_object = object;
    return SL_OK;
}
