/* Gathers the totals of a plan in one struct; the tables below are the object, key by key. Bytes by
 * kind are those of program 0 at its live peak. */
#include "plan_json.h"

#include <string.h>

#include "files/fields.h"
#include "machine/disk.h"

#define KINDS(X)                                                                                   \
    X(PARAM, "param")                                                                              \
    X(GRAD, "grad")                                                                                \
    X(MASTER, "master")                                                                            \
    X(STATE1, "moment1")                                                                           \
    X(STATE2, "moment2")                                                                           \
    X(ACTIVATION, "activation")                                                                    \
    X(WORKSPACE, "workspace")                                                                      \
    X(STAGING, "staging")

const char *const sl_plan_json_kind_names[SL_MEMORY_KIND_COUNT] = {
#define X(KIND, name) [SL_MEMORY_##KIND] = name,
    KINDS(X)
#undef X
};

static const char *const adam_names[] = {"auto", "device", "host", "shared"};

typedef struct tier_totals {
    uint64_t peak_bytes, live_peak_bytes, budget_bytes;
    uint64_t kind_bytes[SL_MEMORY_KIND_COUNT];
} tier_totals;

typedef struct totals {
    bool fits;
    sl_blueprint blueprint; /* these three are copies that own nothing */
    sl_layout layout;
    sl_plan plan; /* of program 0 */
    const char *policy, *adam, *recompute, *accumulation, *precision, *gradients;
    tier_totals tiers[SL_TIER_COUNT];
    uint64_t prefetch; /* UINT64_MAX: auto */
    double step_ms;
    sl_wear wear;
    uint64_t trained_count;
} totals;

static const sl_field tier_fields[] = {
    SL_FIELD("peak_bytes", tier_totals, peak_bytes),
    SL_FIELD("live_peak_bytes", tier_totals, live_peak_bytes),
    SL_FIELD("budget_bytes", tier_totals, budget_bytes, .flags = SL_FIELD_AUTO),
#define X(KIND, name) SL_FIELD(name, tier_totals, kind_bytes[SL_MEMORY_##KIND]),
    KINDS(X)
#undef X
        {0},
};

static const sl_field wear_fields[] = {
    SL_FIELD("written_bytes_per_step", sl_wear, step_bytes),
    SL_FIELD("written_bytes_per_day", sl_wear, day_bytes),
    SL_FIELD("years", sl_wear, years, .flags = SL_FIELD_NULLABLE), /* null: not known, or never */
    {0},
};

static const sl_field choice_fields[] = {
    SL_FIELD("policy", totals, policy),
    SL_FIELD("adam", totals, adam),
    SL_FIELD("recompute", totals, recompute),
    SL_FIELD("accumulation", totals, accumulation),
    SL_FIELD("precision", totals, precision),
    SL_FIELD("gradients", totals, gradients),
    SL_FIELD("offload_params", totals, blueprint.choice.placement.host_fraction[SL_GROUP_PARAM]),
    SL_FIELD("offload_grads", totals, blueprint.choice.placement.host_fraction[SL_GROUP_GRAD]),
    SL_FIELD("offload_optimizer", totals,
             blueprint.choice.placement.host_fraction[SL_GROUP_STATE1]),
    SL_FIELD("offload_updates", totals, blueprint.choice.placement.host_updates),
    SL_FIELD("offload_activations", totals, blueprint.choice.host_activations),
    SL_FIELD("nvme_params", totals, blueprint.choice.placement.disk_fraction[SL_GROUP_PARAM]),
    SL_FIELD("nvme_grads", totals, blueprint.choice.placement.disk_fraction[SL_GROUP_GRAD]),
    SL_FIELD("nvme_optimizer", totals, blueprint.choice.placement.disk_fraction[SL_GROUP_STATE1]),
    SL_FIELD("nvme_activations", totals, blueprint.choice.disk_activations),
    SL_FIELD("prefetch", totals, prefetch, .flags = SL_FIELD_AUTO),
    {0},
};

static const sl_field tier = {.kind = SL_FIELD_OBJECT, .fields = tier_fields};
static const sl_field count = {.kind = SL_FIELD_U64};

static const sl_field fields[] = {
    SL_FIELD("fits", totals, fits),
    SL_FIELD_AS(CHARS, "device_name", totals, blueprint.task.device_info.name),
    SL_FIELD("device_overhead_bytes", totals, blueprint.task.device_info.overhead_bytes),
    SL_FIELD("window_bytes", totals, blueprint.task.window_bytes),
    SL_FIELD_AS(MAP, "tiers", totals, tiers, .names = "device|host|disk", .fields = &tier,
                .stride = sizeof(tier_totals)),
    SL_FIELD_AS(MAP, "moved_bytes_per_step", totals, plan.moved_bytes[SL_LANE_H2D],
                .fields = &count, .names = "h2d|d2h|host|read|write|comm|input",
                .stride = sizeof(uint64_t)),
    SL_FIELD("predicted_step_ms", totals, step_ms),
    SL_FIELD_AS(CHARS, "predicted_by", totals, blueprint.machine.name),
    SL_FIELD("trained_parameters", totals, trained_count),
    SL_FIELD("chunk_elements", totals, layout.chunk_elements),
    SL_FIELD("chunk_count", totals, layout.chunk_count),
    SL_FIELD("padding_fraction", totals, layout.padding_fraction),
    SL_FIELD_AS(OBJECT, "wear", totals, wear, .fields = wear_fields),
    {.key = "choice", .kind = SL_FIELD_OBJECT, .fields = choice_fields},
    {0},
};

/* Of a choice that does not fit. */
typedef struct refused {
    bool fits;
    sl_fit_failure failure;
    const char *suggestion;
} refused;

static const sl_field refused_fields[] = {
    SL_FIELD("fits", refused, fits),
    SL_FIELD("missing_bytes", refused, failure.shortage.missing_bytes),
    SL_FIELD_AS(CHOICE, "tier", refused, failure.shortage.tier, .names = "device|host|disk"),
    SL_FIELD("tick", refused, failure.shortage.tick),
    SL_FIELD_AS(CHARS, "op", refused, failure.op_name),
    SL_FIELD("suggestion", refused, suggestion),
    {0},
};

sl_status sl_plan_json_format(const sl_blueprint *blueprint, json_t **out_object)
{
    sl_simulation simulation;
    const sl_plan *plan = blueprint->plans[0];
    const sl_task *task = &blueprint->task;
    const sl_choice *choice = &blueprint->choice;
    SL_TRY(sl_plan_simulate(blueprint->programs[0], plan, &blueprint->machine, &simulation));
    totals sum = {.fits = true,
                  .blueprint = *blueprint,
                  .layout = *blueprint->layout,
                  .plan = *plan,
                  .policy = sl_search_policy_name(choice->placement.policy),
                  .adam = adam_names[choice->placement.update],
                  .recompute = sl_search_recompute_name(choice->recompute),
                  .accumulation = sl_search_accumulation_name(choice->accumulation),
                  .precision = sl_type_name(task->type),
                  .gradients = sl_type_name(sl_blueprint_grad_type(task, choice)),
                  .prefetch = choice->prefetch == SL_PREFETCH_AUTO ? UINT64_MAX : choice->prefetch,
                  .step_ms = simulation.step_seconds * 1e3,
                  .trained_count = sl_blueprint_count_trained(blueprint),
                  .wear = sl_wear_project((double)plan->moved_bytes[SL_LANE_WRITE],
                                          simulation.step_seconds, task->disk_endurance)};
    for (int i = 0; i < SL_TIER_COUNT; i++) {
        tier_totals *tier_sum = &sum.tiers[i];
        tier_sum->peak_bytes = sl_blueprint_peak_bytes(blueprint, (sl_tier)i);
        tier_sum->live_peak_bytes = sl_blueprint_live_peak_bytes(blueprint, (sl_tier)i);
        tier_sum->budget_bytes = blueprint->budget_bytes[i];
        memcpy(tier_sum->kind_bytes, plan->kind_bytes[i], sizeof tier_sum->kind_bytes);
    }
    return sl_fields_make(fields, &sum, out_object);
}

static sl_status add_suggestions(const sl_refusal *refusal, json_t *object)
{
    json_t *list = json_array();
    int failed = json_object_set_new(object, "suggestions", list);
    for (uint32_t i = 0; failed == 0 && i < refusal->suggestion_count; i++)
        failed = json_array_append_new(list, json_string(refusal->suggestions[i].options));
    if (failed != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of suggestions");
    return SL_OK;
}

sl_status sl_plan_json_format_refusal(const sl_refusal *refusal, json_t **out_object)
{
    const bool has_one = refusal->suggestion_count > 0;
    const refused of = {.failure = refusal->failure,
                        .suggestion = has_one ? refusal->suggestions[0].options : ""};
    SL_TRY(sl_fields_make(refused_fields, &of, out_object));
    sl_status status = add_suggestions(refusal, *out_object);
    if (status != SL_OK) {
        json_decref(*out_object);
        *out_object = NULL;
    }
    return status;
}
