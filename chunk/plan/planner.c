/* The planner: program, layout, homes and budgets in, plan out.
 *
 * Lives follow from the program. The device's visits are planned first, then the host's, for what
 * lives on disk passes through it; on disk there are no visits.
 */
#include "planner.h"

#include <stdlib.h>
#include <string.h>

#include "hazards.h"

/* ---- opening and closing ---- */

static void close_planner(sl_planner *planner)
{
    free(planner->object_bytes);
    free(planner->home_tier);
    free(planner->outlives);
    free(planner->passes_host);
    free(planner->tick_seconds);
    free(planner->last_write);
    free(planner->first_pass);
    free(planner->passes);
    free((void *)planner->loops);
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        sl_tier_state *state = &planner->tier[t];
        free(state->items);
        free(state->sources);
        free(state->lives);
        free(state->workspace_item);
        free(state->uses);
        free(state->room_bytes);
        free(state->keep_bytes);
        sl_residency_clear(&state->residency);
    }
}

static double seconds_of_op(const sl_planner *planner, uint32_t tick)
{
    const sl_op *op = &planner->program->ops[tick];
    const sl_machine *machine = planner->request->machine;
    bool is_host = sl_planner_tier_of_op(planner, tick) == SL_TIER_HOST;
    return sl_machine_op_seconds(machine, op->kind, &op->attrs, is_host);
}

static sl_status open_tier(const sl_program *program, sl_tier_state *state)
{
    uint64_t op_count = program->op_count;
    state->lives = calloc((uint64_t)program->value_count + 1, sizeof *state->lives);
    state->workspace_item = calloc(op_count + 1, sizeof *state->workspace_item);
    state->room_bytes = calloc(op_count + 1, sizeof *state->room_bytes);
    state->keep_bytes = calloc(op_count + 1, sizeof *state->keep_bytes);
    if (!state->lives || !state->workspace_item || !state->room_bytes || !state->keep_bytes)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %llu ops", (unsigned long long)op_count);
    return SL_OK;
}

static sl_status open_arrays(const sl_program *program, sl_planner *planner)
{
    uint64_t object_count = (uint64_t)planner->object_count + 1;
    planner->object_bytes = calloc(object_count, sizeof *planner->object_bytes);
    planner->home_tier = calloc(object_count, sizeof *planner->home_tier);
    planner->outlives = calloc(object_count, sizeof *planner->outlives);
    planner->passes_host = calloc(object_count, sizeof *planner->passes_host);
    planner->tick_seconds = calloc((uint64_t)program->op_count + 1, sizeof(double));
    planner->last_write = calloc((uint64_t)program->value_count + 1, sizeof(uint32_t));
    planner->first_pass = calloc((uint64_t)program->value_count + 1, sizeof(uint32_t));
    if (!planner->object_bytes || !planner->home_tier || !planner->outlives ||
        !planner->passes_host || !planner->tick_seconds || !planner->last_write ||
        !planner->first_pass)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u ops", program->op_count);
    for (int t = 0; t < SL_TIER_COUNT; t++)
        SL_TRY(open_tier(program, &planner->tier[t]));
    return SL_OK;
}

static sl_status find_loops(sl_planner *planner)
{
    const sl_program *program = planner->program;
    uint32_t count = sl_program_section_count(program);
    sl_residency_loop *loops = calloc(count, sizeof *loops);
    planner->loops = loops;
    if (!loops)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u sections", count);
    for (uint32_t s = 0; s < count; s++) {
        sl_section section = sl_program_section(program, s);
        if (section.repeat > 1)
            loops[planner->loop_count++] =
                (sl_residency_loop){section.first, section.first + section.count};
    }
    return SL_OK;
}

static sl_status open_planner(const sl_plan_request *request, sl_planner *planner)
{
    const sl_program *program = request->program;
    uint32_t first_activation = request->layout->chunk_count * SL_GROUP_COUNT;
    *planner = (sl_planner){.request = request,
                            .program = program,
                            .layout = request->layout,
                            .homes = request->homes,
                            .chunk_count = request->layout->chunk_count,
                            .first_activation = first_activation,
                            .object_count = first_activation + program->value_count};
    memcpy(planner->budget_bytes, request->budget_bytes, sizeof planner->budget_bytes);
    if (program->op_count == 0)
        SL_FAIL(SL_ERROR_USAGE, "a program without ops cannot be planned");
    SL_TRY(open_arrays(program, planner));
    SL_TRY(find_loops(planner));
    SL_TRY(sl_plan_lives_find(planner));
    for (uint32_t tick = 0; tick < program->op_count; tick++)
        planner->tick_seconds[tick] = seconds_of_op(planner, tick);
    return SL_OK;
}

/* ---- tiers ---- */

static sl_status plan_host(sl_planner *planner, sl_shortage *shortage)
{
    SL_TRY(sl_plan_uses_find(planner, SL_TIER_HOST));
    sl_plan_lives_settle(planner, SL_TIER_HOST);
    SL_TRY(sl_plan_lives_add_hop(planner));
    return sl_plan_tier_fit(planner, SL_TIER_HOST, planner->budget_bytes[SL_TIER_HOST], shortage);
}

/* Plans a tier within its budget, or finds that it cannot be. */
static sl_status plan_or_refuse(sl_planner *planner, sl_tier tier, sl_shortage *out_shortage)
{
    uint64_t budget = planner->budget_bytes[tier];
    sl_shortage found = {.tier = tier};
    sl_status status = sl_plan_tier_fit(planner, tier, budget, &found);
    if (status != SL_ERROR_FIT)
        return status;
    SL_TRY(sl_plan_tier_find_least(planner, tier, &found.needed_bytes));
    if (found.needed_bytes <= budget)
        return SL_OK; /* holes fell better elsewhere: that plan stands */
    *out_shortage = found;
    SL_FAIL(SL_ERROR_FIT, "%s memory: op %u (%s) needs %llu bytes more than the budget of %llu",
            sl_tier_name(tier), found.tick,
            sl_op_info_of(planner->program->ops[found.tick].kind)->name,
            (unsigned long long)found.missing_bytes, (unsigned long long)budget);
}

/* Plans the device again so that it asks less of the host: nothing is fetched ahead from disk; and
 * with `is_least` within its least budget, which gives one and the same plan for every budget. */
static sl_status plan_modest_device(sl_planner *planner, bool is_least, sl_shortage *shortage)
{
    uint64_t budget = planner->budget_bytes[SL_TIER_DEVICE], least = UINT64_MAX;
    planner->stages_ahead = false;
    if (is_least)
        SL_TRY(sl_plan_tier_find_least(planner, SL_TIER_DEVICE, &least));
    if (is_least && least <= budget)
        return SL_OK;
    sl_status status = sl_plan_tier_fit(planner, SL_TIER_DEVICE, budget, shortage);
    if (status != SL_ERROR_FIT)
        return status;
    planner->stages_ahead = true; /* holes fell better there: that plan again */
    return plan_or_refuse(planner, SL_TIER_DEVICE, shortage);
}

/* With the first `leaving` families at home on the host. */
static sl_status plan_device_without(sl_planner *planner, uint32_t leaving,
                                     sl_shortage *out_shortage)
{
    planner->leaving_count = leaving;
    SL_TRY(sl_plan_lives_find(planner));
    SL_TRY(sl_plan_uses_find(planner, SL_TIER_DEVICE));
    *out_shortage = (sl_shortage){.tier = SL_TIER_DEVICE};
    return sl_plan_tier_fit(planner, SL_TIER_DEVICE, planner->budget_bytes[SL_TIER_DEVICE],
                            out_shortage);
}

/* If the device does not hold all families, as few as possible leave it, the first made first: they
 * are away longest. */
static sl_status plan_device(sl_planner *planner, sl_shortage *out_shortage)
{
    sl_shortage ignored;
    uint32_t too_few = 0, enough = planner->family_count;
    SL_TRY(sl_plan_uses_find(planner, SL_TIER_DEVICE));
    if (planner->family_count == 0)
        return plan_or_refuse(planner, SL_TIER_DEVICE, out_shortage);
    sl_status status = plan_device_without(planner, 0, &ignored);
    if (status != SL_ERROR_FIT)
        return status;
    status = plan_device_without(planner, enough, &ignored);
    if (status == SL_ERROR_FIT)
        return plan_or_refuse(planner, SL_TIER_DEVICE, out_shortage);
    while (status == SL_OK && enough - too_few > 1) {
        uint32_t middle = too_few + (enough - too_few) / 2;
        status = plan_device_without(planner, middle, &ignored);
        if (status == SL_ERROR_FIT)
            too_few = middle;
        else
            enough = middle;
        status = status == SL_ERROR_FIT ? SL_OK : status;
    }
    SL_TRY(status);
    return planner->leaving_count == enough ? SL_OK
                                            : plan_device_without(planner, enough, &ignored);
}

/* What the host must hold of what lives on disk follows from the device's moves. Where it has no
 * room for them, the device is planned again, ever more modestly; a shortage of the host speaks of
 * the most modest plan. */
static sl_status plan_device_and_host(sl_planner *planner, sl_shortage *out_shortage)
{
    sl_shortage ignored;
    planner->stages_ahead = true;
    SL_TRY(plan_device(planner, out_shortage));
    sl_status status = plan_host(planner, &ignored);
    for (int is_least = 0; status == SL_ERROR_FIT && planner->has_disk && is_least <= 1;
         is_least++) {
        SL_TRY(plan_modest_device(planner, is_least, out_shortage));
        status = plan_host(planner, &ignored);
    }
    return status == SL_ERROR_FIT ? plan_or_refuse(planner, SL_TIER_HOST, out_shortage) : status;
}

static sl_status plan_within_budgets(sl_planner *planner, sl_shortage *out_shortage)
{
    SL_TRY(plan_device_and_host(planner, out_shortage));
    sl_plan_lives_settle(planner, SL_TIER_DISK);
    return plan_or_refuse(planner, SL_TIER_DISK, out_shortage);
}

/* Which activations ever reach the disk depends on the host's room, and more room may mean other
 * ones. So where they do not fit all is planned once more, with the least host that works: what
 * fits beside little memory fits beside much. */
static sl_status plan_tiers(sl_planner *planner, sl_shortage *out_shortage)
{
    uint64_t *host = &planner->budget_bytes[SL_TIER_HOST], given = *host;
    sl_status status = plan_within_budgets(planner, out_shortage);
    if (status != SL_ERROR_FIT || out_shortage->tier != SL_TIER_DISK)
        return status;
    sl_shortage least = {0};
    *host = 0;
    status = plan_device_and_host(planner, &least);
    if (status != SL_OK && status != SL_ERROR_FIT)
        return status;
    if (status == SL_ERROR_FIT)
        *host =
            least.tier == SL_TIER_HOST && least.needed_bytes < given ? least.needed_bytes : given;
    return plan_within_budgets(planner, out_shortage);
}

/* ---- the whole ---- */

sl_status sl_plan_build(const sl_plan_request *request, sl_plan **out_plan,
                        sl_shortage *out_shortage)
{
    sl_status status;
    sl_planner planner;
    sl_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a plan");
    SL_TRY_GOTO(status, open_planner(request, &planner), close_both);
    SL_TRY_GOTO(status, plan_tiers(&planner, out_shortage), close_both);
    SL_TRY_GOTO(status, sl_plan_commands_emit(&planner, plan), close_both);
    SL_TRY_GOTO(status, sl_plan_totals_fill(&planner, plan), close_both);
    SL_TRY_GOTO(status, sl_hazards_resolve(request->program, plan), close_both);
    close_planner(&planner);
    *out_plan = plan;
    return SL_OK;
close_both:
    close_planner(&planner);
    sl_plan_close(plan);
    return status;
}

void sl_plan_close(sl_plan *plan)
{
    if (!plan)
        return;
    free(plan->prologue);
    free(plan->body);
    free(plan->sections);
    free(plan->places);
    free(plan->waits);
    free(plan->allocations);
    free(plan);
}
