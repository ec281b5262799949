/* The tables below are the object, key by key; docs/profile.md explains them. */
#include "files/fields.h"
#include "measured.h"

#define LANES "compute|h2d|d2h|host|read|write|comm|input"
#define TIERS "device|host|disk"
#define COMMS "world|tp|dp|pp"

static const sl_field ms_field = {.kind = SL_FIELD_F64};
static const sl_field bytes_field = {.kind = SL_FIELD_U64};

/* ---- memory ---- */

static const sl_field tier_fields[] = {
    SL_FIELD("budget_bytes", sl_measured_tier, budget_bytes, .flags = SL_FIELD_AUTO),
    SL_FIELD("planned_peak_bytes", sl_measured_tier, planned_bytes),
    SL_FIELD("measured_peak_bytes", sl_measured_tier, measured_bytes),
    SL_FIELD("beyond_plan_bytes", sl_measured_tier, beyond_bytes),
    SL_FIELD("written_bytes", sl_measured_tier, written_bytes),
    SL_FIELD("mapped_bytes", sl_measured_tier, mapped_bytes),
    SL_FIELD("driver_used_bytes", sl_measured_tier, device_used_bytes),
    SL_FIELD("param", sl_measured_tier, kind_bytes[SL_MEMORY_PARAM]),
    SL_FIELD("grad", sl_measured_tier, kind_bytes[SL_MEMORY_GRAD]),
    SL_FIELD("master", sl_measured_tier, kind_bytes[SL_MEMORY_MASTER]),
    SL_FIELD("moment1", sl_measured_tier, kind_bytes[SL_MEMORY_STATE1]),
    SL_FIELD("moment2", sl_measured_tier, kind_bytes[SL_MEMORY_STATE2]),
    SL_FIELD("activation", sl_measured_tier, kind_bytes[SL_MEMORY_ACTIVATION]),
    SL_FIELD("workspace", sl_measured_tier, kind_bytes[SL_MEMORY_WORKSPACE]),
    SL_FIELD("staging", sl_measured_tier, kind_bytes[SL_MEMORY_STAGING]),
    SL_FIELD("holes", sl_measured_tier, hole_bytes),
    SL_FIELD("live_peak_bytes", sl_measured_tier, live_bytes),
    SL_FIELD("live_peak_tick", sl_measured_tier, live_tick),
    {0},
};

static const sl_field object_fields[] = {
    SL_FIELD_AS(CHARS, "name", sl_account_class, name),
    SL_FIELD_AS(CHOICE, "kind", sl_account_class, kind,
                .names = "param|grad|master|moment1|moment2|activation|workspace|staging"),
    SL_FIELD("bytes", sl_account_class, bytes),
    SL_FIELD("count", sl_account_class, count),
    {0},
};

static const sl_field resident_fields[] = {
    SL_FIELD("total_bytes", sl_resident, total_bytes),
    SL_FIELD("arenas", sl_resident, kind_bytes[SL_RESIDENT_ARENAS]),
    SL_FIELD("heap", sl_resident, kind_bytes[SL_RESIDENT_HEAP]),
    SL_FIELD("stacks", sl_resident, kind_bytes[SL_RESIDENT_STACKS]),
    SL_FIELD("code", sl_resident, kind_bytes[SL_RESIDENT_CODE]),
    SL_FIELD("files", sl_resident, kind_bytes[SL_RESIDENT_FILES]),
    SL_FIELD("rings", sl_resident, kind_bytes[SL_RESIDENT_RINGS]),
    SL_FIELD("unexplained", sl_resident, kind_bytes[SL_RESIDENT_UNEXPLAINED]),
    SL_FIELD("rollup_bytes", sl_resident, rollup_bytes),
    SL_FIELD("peak_bytes", sl_resident, peak_bytes),
    SL_FIELD("page_table_bytes", sl_resident, page_table_bytes),
    SL_FIELD("threads", sl_resident, thread_count),
    {0},
};

/* ---- time ---- */

static const sl_field lane_fields[] = {
    SL_FIELD("commands", sl_measured_lane, command_count),
    SL_FIELD("busy_ms", sl_measured_lane, busy_ms),
    SL_FIELD("idle_ms", sl_measured_lane, idle_ms),
    SL_FIELD("gap_ms", sl_measured_lane, gap_ms),
    SL_FIELD_AS(MAP, "wait_ms", sl_measured_lane, wait_ms[0], .fields = &ms_field, .names = LANES,
                .stride = sizeof(double)),
    SL_FIELD("planned_busy_ms", sl_measured_lane, planned_busy_ms),
    SL_FIELD("planned_wait_ms", sl_measured_lane, planned_wait_ms),
    SL_FIELD("moved_bytes", sl_measured_lane, moved_bytes),
    SL_FIELD("formula_bytes", sl_measured_lane, formula_bytes),
    {0},
};

static const sl_field stall_fields[] = {
    SL_FIELD_AS(CHARS, "waiter", sl_measured_stall, waiter),
    SL_FIELD_AS(CHARS, "awaited", sl_measured_stall, awaited),
    SL_FIELD_AS(CHOICE, "cause", sl_measured_stall, cause, .names = LANES),
    SL_FIELD("ms", sl_measured_stall, ms),
    SL_FIELD("longest_ms", sl_measured_stall, longest_ms),
    SL_FIELD("count", sl_measured_stall, count),
    {0},
};

static const sl_field op_fields[] = {
    SL_FIELD("on_host", sl_measured_op, on_host),
    SL_FIELD("count", sl_measured_op, count),
    SL_FIELD("ms", sl_measured_op, ms),
    SL_FIELD("share", sl_measured_op, share),
    SL_FIELD("flops_per_s", sl_measured_op, flop_rate),
    SL_FIELD("bytes_per_s", sl_measured_op, byte_rate),
    SL_FIELD("roof_share", sl_measured_op, roof_share, .flags = SL_FIELD_NULLABLE),
    SL_FIELD("bench_share", sl_measured_op, bench_share, .flags = SL_FIELD_NULLABLE),
    {0},
};

/* ---- more or less memory ---- */

static const sl_field variant_fields[] = {
    SL_FIELD_AS(CHOICE, "tier", sl_variant, tier, .names = TIERS),
    SL_FIELD("more", sl_variant, is_more),
    SL_FIELD("change_bytes", sl_variant, change_bytes),
    SL_FIELD("budget_bytes", sl_variant, budget_bytes),
    SL_FIELD_AS(CHOICE, "outcome", sl_variant, outcome, .names = "same|other|does not fit"),
    SL_FIELD("step_s", sl_variant, step_seconds, .flags = SL_FIELD_NULLABLE),
    SL_FIELD("missing_bytes", sl_variant, missing_bytes),
    SL_FIELD_AS(CHARS, "change", sl_variant, change),
    {0},
};

/* ---- all of it ---- */

static const sl_field tier_field = {.kind = SL_FIELD_OBJECT, .fields = tier_fields};
static const sl_field lane_field = {.kind = SL_FIELD_OBJECT, .fields = lane_fields};

static const sl_field fields[] = {
    SL_FIELD("steps", sl_measured, step_count),
    SL_FIELD("warm_up_steps", sl_measured, warm_up_count),
    SL_FIELD("was_stopped", sl_measured, was_stopped),
    SL_FIELD("micro_batch", sl_measured, micro_batch),
    SL_FIELD("accumulate", sl_measured, accumulate),
    SL_FIELD("seq", sl_measured, seq),
    SL_FIELD("parameters", sl_measured, parameter_count),
    SL_FIELD("step_ms", sl_measured, step_ms),
    SL_FIELD("predicted_step_ms", sl_measured, predicted_ms),
    SL_FIELD("tokens_per_s", sl_measured, tokens_per_s),
    SL_FIELD("compute_ms", sl_measured, compute_ms),
    SL_FIELD("stall_ms", sl_measured, stall_ms),
    SL_FIELD("gap_ms", sl_measured, gap_ms),
    SL_FIELD("explained_share", sl_measured, explained_share),
    SL_FIELD("cores_used", sl_measured, cores_used),
    SL_FIELD("core_wait_ms", sl_measured, core_wait_ms),
    SL_FIELD("workers", sl_measured, worker_count),
    SL_FIELD_AS(MAP, "phase_ms", sl_measured, phase_ms[0], .fields = &ms_field,
                .names = "forward|recompute|backward|update", .stride = sizeof(double)),
    SL_FIELD("model_flops", sl_measured, model_flops),
    SL_FIELD("flops_per_s", sl_measured, flop_rate),
    SL_FIELD("roof_flops_per_s", sl_measured, roof_flop_rate, .flags = SL_FIELD_NULLABLE),
    SL_FIELD("mfu", sl_measured, model_flop_share, .flags = SL_FIELD_NULLABLE),
    SL_FIELD_AS(CHARS, "machine", sl_measured, machine),
    SL_FIELD("machine_is_measured", sl_measured, is_machine_measured),
    SL_FIELD_AS(CHARS, "disk", sl_measured, disk),
    SL_FIELD_AS(MAP, "tiers", sl_measured, tiers[0], .fields = &tier_field, .names = TIERS,
                .stride = sizeof(sl_measured_tier)),
    SL_FIELD_AS(MAP, "lanes", sl_measured, lanes[0], .fields = &lane_field, .names = LANES,
                .stride = sizeof(sl_measured_lane)),
    SL_FIELD_AS(MAP, "comm_bytes", sl_measured, sent_bytes[0], .fields = &bytes_field,
                .names = COMMS, .stride = sizeof(uint64_t)),
    SL_FIELD_AS(OBJECT, "resident", sl_measured, resident, .fields = resident_fields),
    SL_FIELD("budget_step_ms", sl_measured, variants_now_ms),
    SL_FIELD_AS(CHOICE, "binding", sl_measured, binding, .names = LANES),
    SL_FIELD_AS(CHARS, "bound_by", sl_measured, bound_by),
    SL_FIELD_AS(CHARS, "to_be_faster", sl_measured, to_be_faster),
    {0},
};

/* An array of structs that are `stride` bytes apart. */
typedef struct list {
    const char *key;
    const sl_field *fields;
    const void *first;
    size_t stride;
    uint32_t count;
} list;

static sl_status add_list(json_t *object, const list *of)
{
    json_t *array = json_array(), *item = NULL;
    sl_status status = SL_OK;
    for (uint32_t i = 0; array && i < of->count && status == SL_OK; i++) {
        status = sl_fields_make(of->fields, (const char *)of->first + i * of->stride, &item);
        if (status == SL_OK && json_array_append_new(array, item) != 0)
            status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for a report");
    }
    if (status != SL_OK || !array) {
        json_decref(array);
        return status != SL_OK ? status : sl_status_fail(SL_ERROR_SYSTEM, "no memory for a report");
    }
    if (json_object_set_new(object, of->key, array) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    return SL_OK;
}

static sl_status add_objects(const sl_measured *measured, json_t *object)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        const sl_measured_tier *of = &measured->tiers[tier];
        json_t *tiers = json_object_get(object, "tiers");
        const list items = {"objects_at_peak", object_fields, of->objects, sizeof of->objects[0],
                            of->object_count};
        SL_TRY(add_list(json_object_get(tiers, sl_tier_name((sl_tier)tier)), &items));
    }
    return SL_OK;
}

/* The name of an op's kind is not in its struct. */
static sl_status name_ops(const sl_measured *measured, const json_t *ops)
{
    for (uint32_t i = 0; i < measured->op_count; i++) {
        const char *name = sl_op_info_of(measured->ops[i].kind)->name;
        if (json_object_set_new(json_array_get(ops, i), "op", json_string(name)) != 0)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    }
    return SL_OK;
}

static sl_status add_lists(const sl_measured *measured, json_t *object)
{
    const list lists[] = {
        {"stalls", stall_fields, measured->stalls, sizeof measured->stalls[0],
         measured->stall_count},
        {"ops", op_fields, measured->ops, sizeof measured->ops[0], measured->op_count},
        {"budgets", variant_fields, measured->variants, sizeof measured->variants[0],
         measured->variant_count},
    };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        SL_TRY(add_list(object, &lists[i]));
    SL_TRY(name_ops(measured, json_object_get(object, "ops")));
    return add_objects(measured, object);
}

static sl_status format_one(const sl_measured *measured, json_t **out_object)
{
    json_t *object = NULL;
    SL_TRY(sl_fields_make(fields, measured, &object));
    sl_status status = add_lists(measured, object);
    if (status != SL_OK) {
        json_decref(object);
        return status;
    }
    *out_object = object;
    return SL_OK;
}

/* ---- ranks ---- */

static const sl_field sum_fields[] = {
    SL_FIELD("planned_peak_bytes", sl_measured_sum, planned_bytes),
    SL_FIELD("measured_peak_bytes", sl_measured_sum, measured_bytes),
    SL_FIELD("most_planned_bytes", sl_measured_sum, most_planned_bytes),
    SL_FIELD("most_measured_bytes", sl_measured_sum, most_measured_bytes),
    {0},
};

static const sl_field sum_field = {.kind = SL_FIELD_OBJECT, .fields = sum_fields};

static const sl_field rank_fields[] = {
    SL_FIELD("count", sl_measured_ranks, count),
    SL_FIELD("tp", sl_measured_ranks, layout.tensor),
    SL_FIELD("dp", sl_measured_ranks, layout.data),
    SL_FIELD("pp", sl_measured_ranks, layout.stages),
    SL_FIELD("slowest", sl_measured_ranks, slowest),
    SL_FIELD_AS(MAP, "moved_bytes", sl_measured_ranks, moved_bytes[0], .fields = &bytes_field,
                .names = LANES, .stride = sizeof(uint64_t)),
    SL_FIELD_AS(MAP, "comm_bytes", sl_measured_ranks, sent_bytes[0], .fields = &bytes_field,
                .names = COMMS, .stride = sizeof(uint64_t)),
    SL_FIELD_AS(MAP, "tiers", sl_measured_ranks, tiers[0], .fields = &sum_field, .names = TIERS,
                .stride = sizeof(sl_measured_sum)),
    {0},
};

static const sl_field place_fields[] = {
    SL_FIELD("tensor_rank", sl_comm_place, tensor),
    SL_FIELD("data_rank", sl_comm_place, data),
    SL_FIELD("stage", sl_comm_place, stage),
    {0},
};

/* What a rank measured, and where it stands. */
static sl_status add_rank(const sl_measured_ranks *ranks, uint32_t rank, json_t *array)
{
    const sl_comm_place place = sl_comm_place_of(&ranks->layout, rank);
    json_t *object = NULL;
    SL_TRY(format_one(&ranks->items[rank], &object));
    const sl_status status = sl_fields_write(place_fields, &place, object);
    if (status != SL_OK || json_array_append(array, object) != 0) {
        json_decref(object);
        return status != SL_OK ? status : sl_status_fail(SL_ERROR_SYSTEM, "no memory for a report");
    }
    json_decref(object);
    return SL_OK;
}

static sl_status add_ranks(const sl_measured_ranks *ranks, json_t *object)
{
    json_t *of_ranks = NULL, *each = json_array();
    sl_status status = sl_fields_make(rank_fields, ranks, &of_ranks);
    if (status == SL_OK && (json_object_set_new(of_ranks, "each", each) != 0 ||
                            json_object_set_new(object, "ranks", of_ranks) != 0))
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    if (status != SL_OK)
        json_decref(each);
    for (uint32_t rank = 0; status == SL_OK && rank < ranks->count; rank++)
        status = add_rank(ranks, rank, each);
    return status;
}

sl_status sl_measured_format(const sl_measured *measured, json_t **out_object)
{
    json_t *object = NULL;
    SL_TRY(format_one(measured, &object));
    const sl_status status = measured->ranks ? add_ranks(measured->ranks, object) : SL_OK;
    if (status != SL_OK) {
        json_decref(object);
        return status;
    }
    *out_object = object;
    return SL_OK;
}
