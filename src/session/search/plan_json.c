/* Packs JSON objects. Bytes by kind are those of program 0 at its live peak. */
#include "plan_json.h"

#include <math.h>
#include <stdio.h>

#include "wear.h"

const char *const sl_plan_json_kind_names[SL_MEMORY_KIND_COUNT] = {
    "param", "grad", "master", "moment1", "moment2", "activation", "workspace", "staging"};

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
        if (json_object_set_new(object, sl_lane_name((sl_lane)lane), bytes) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static json_t *pack_shares(const char *prefix, const double fraction[SL_GROUP_COUNT],
                           double activations)
{
    const double shares[] = {fraction[SL_GROUP_PARAM], fraction[SL_GROUP_GRAD],
                             fraction[SL_GROUP_MOMENT1], activations};
    static const char *const names[] = {"params", "grads", "optimizer", "activations"};
    json_t *object = json_object();
    for (int i = 0; object && i < 4; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s_%s", prefix, names[i]);
        if (json_object_set_new(object, key, json_real(shares[i])) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

static const char *const adam_names[] = {"auto", "device", "host"};

static json_t *pack_choice(const sl_blueprint *blueprint)
{
    const sl_choice *choice = &blueprint->choice;
    const sl_policy_options *placement = &choice->placement;
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "policy",
                  sl_search_policy_name(placement->policy), "adam", adam_names[placement->adam],
                  "recompute", sl_search_recompute_name(choice->recompute), "accumulation",
                  sl_search_accumulation_name(choice->accumulation), "precision",
                  sl_type_name(blueprint->task.type), "gradients",
                  sl_type_name(sl_blueprint_grad_type(&blueprint->task, choice)));
    json_t *host = pack_shares("offload", placement->host_fraction, choice->host_activations);
    json_t *disk = pack_shares("nvme", placement->disk_fraction, choice->disk_activations);
    if (json_object_update(object, host) != 0 || json_object_update(object, disk) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(host);
    json_decref(disk);
    return object;
}

/* JSON has no infinity: what is not known is null. */
static json_t *pack_wear(const sl_blueprint *blueprint, const sl_simulation *simulation)
{
    sl_wear wear = sl_wear_project((double)blueprint->plans[0]->moved_bytes[SL_LANE_WRITE],
                                   simulation->step_seconds, blueprint->task.disk_endurance);
    return json_pack("{s:f, s:f, s:o}", "written_bytes_per_step", wear.step_bytes,
                     "written_bytes_per_day", wear.day_bytes, "years",
                     isfinite(wear.years) ? json_real(wear.years) : json_null());
}

sl_status sl_plan_json_format(const sl_blueprint *blueprint, json_t **out_object)
{
    sl_simulation simulation;
    SL_TRY(sl_plan_simulate(blueprint->programs[0], blueprint->plans[0], &blueprint->machine,
                            &simulation));
    json_t *object = json_pack(
        "{s:b, s:s, s:I, s:{s:o, s:o, s:o}, s:o, s:f, s:I, s:i, s:f, s:o, s:o}", "fits", 1,
        "device_name", blueprint->task.device_info.name, "device_overhead_bytes",
        (json_int_t)blueprint->task.device_info.overhead_bytes, "tiers", "device",
        pack_tier(blueprint, SL_TIER_DEVICE), "host", pack_tier(blueprint, SL_TIER_HOST), "disk",
        pack_tier(blueprint, SL_TIER_DISK), "moved_bytes_per_step", pack_moves(blueprint->plans[0]),
        "predicted_step_ms", simulation.step_seconds * 1e3, "chunk_elements",
        (json_int_t)blueprint->layout->chunk_elements, "chunk_count",
        (int)blueprint->layout->chunk_count, "padding_fraction",
        blueprint->layout->padding_fraction, "wear", pack_wear(blueprint, &simulation), "choice",
        pack_choice(blueprint));
    if (!object)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the plan's totals");
    *out_object = object;
    return SL_OK;
}

sl_status sl_plan_json_format_misfit(const sl_misfit *misfit, const char *suggestion,
                                     json_t **out_object)
{
    json_t *object = json_pack(
        "{s:b, s:I, s:s, s:I, s:s, s:s}", "fits", 0, "missing_bytes",
        (json_int_t)misfit->shortage.missing_bytes, "tier", sl_tier_name(misfit->shortage.tier),
        "tick", (json_int_t)misfit->shortage.tick, "op", misfit->op_name, "suggestion", suggestion);
    if (!object)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the plan's totals");
    *out_object = object;
    return SL_OK;
}
