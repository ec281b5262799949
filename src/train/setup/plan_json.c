/* Packs JSON objects. Bytes by kind are those of program 0 at its live peak. */
#include "plan_json.h"

const char *const sl_plan_json_tier_names[SL_TIER_COUNT] = {"device", "host", "disk"};
const char *const sl_plan_json_kind_names[SL_MEMORY_KIND_COUNT] = {
    "param", "grad", "master", "moment1", "moment2", "activation", "workspace", "staging"};
const char *const sl_plan_json_lane_names[SL_LANE_COUNT] = {"compute", "h2d",   "d2h", "host",
                                                            "read",    "write", "comm"};

static json_t *pack_tier(const sl_blueprint *blueprint, sl_tier tier)
{
    json_t *object = json_pack(
        "{s:I, s:I, s:I}", "peak_bytes", (json_int_t)sl_blueprint_peak_bytes(blueprint, tier),
        "live_peak_bytes", (json_int_t)sl_blueprint_live_peak_bytes(blueprint, tier),
        "budget_bytes", (json_int_t)blueprint->budget_bytes[tier]);
    for (int kind = 0; object && kind < SL_MEMORY_KIND_COUNT; kind++) {
        json_t *bytes = json_integer((json_int_t)blueprint->plans[0]->kind_bytes[tier][kind]);
        if (json_object_set_new(object, sl_plan_json_kind_names[kind], bytes) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *pack_moves(const sl_plan *plan)
{
    json_t *object = json_object();
    for (int lane = SL_LANE_H2D; object && lane < SL_LANE_COUNT; lane++) {
        json_t *bytes = json_integer((json_int_t)plan->moved_bytes[lane]);
        if (json_object_set_new(object, sl_plan_json_lane_names[lane], bytes) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *pack_choice(const sl_choice *choice)
{
    return json_pack("{s:s, s:s, s:s, s:f, s:f, s:f}", "policy",
                     sl_search_policy_name(choice->placement.policy), "recompute",
                     sl_search_recompute_name(choice->recompute), "accumulation",
                     sl_search_accumulation_name(choice->accumulation), "offload_params",
                     choice->placement.host_fraction[SL_GROUP_PARAM], "offload_grads",
                     choice->placement.host_fraction[SL_GROUP_GRAD], "offload_optimizer",
                     choice->placement.host_fraction[SL_GROUP_MOMENT1]);
}

sl_status sl_plan_json_format(const sl_blueprint *blueprint, json_t **out_object)
{
    sl_simulation simulation;
    SL_TRY(sl_plan_simulate(blueprint->programs[0], blueprint->plans[0], &blueprint->machine,
                            &simulation));
    json_t *object = json_pack(
        "{s:b, s:{s:o, s:o, s:o}, s:o, s:f, s:I, s:i, s:f, s:o}", "fits", 1, "tiers", "device",
        pack_tier(blueprint, SL_TIER_DEVICE), "host", pack_tier(blueprint, SL_TIER_HOST), "disk",
        pack_tier(blueprint, SL_TIER_DISK), "moved_bytes_per_step", pack_moves(blueprint->plans[0]),
        "predicted_step_ms", simulation.step_seconds * 1e3, "chunk_elements",
        (json_int_t)blueprint->layout->chunk_elements, "chunk_count",
        (int)blueprint->layout->chunk_count, "padding_fraction",
        blueprint->layout->padding_fraction, "choice", pack_choice(&blueprint->choice));
    if (!object)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the plan's totals");
    *out_object = object;
    return SL_OK;
}

sl_status sl_plan_json_format_misfit(const sl_misfit *misfit, const char *suggestion,
                                     json_t **out_object)
{
    json_t *object = json_pack("{s:b, s:I, s:s, s:I, s:s, s:s}", "fits", 0, "missing_bytes",
                               (json_int_t)misfit->shortage.missing_bytes, "tier",
                               sl_plan_json_tier_names[misfit->shortage.tier], "tick",
                               (json_int_t)misfit->shortage.tick, "op", misfit->op_name,
                               "suggestion", suggestion);
    if (!object)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the plan's totals");
    *out_object = object;
    return SL_OK;
}
