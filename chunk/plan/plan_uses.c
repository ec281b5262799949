/* Who needs which object in a tier, and when: what residency is planned from.
 *
 * On the device these are the operands of ops. On the host they are those of host-lane ops, and,
 * for what lives on disk, also the moves of the device that pass through: a fetch reads the host's
 * copy before the op of its tick, a write-back writes it whole after its op. So the host can be
 * planned only once the device's visits stand.
 */
#include <stdlib.h>

#include "planner.h"

static void add_use(sl_tier_state *state, sl_residency_use use)
{
    state->uses[state->use_count++] = use;
}

/* Operand i of op `tick`, unless it is at home in `tier` or no concern of it. */
static void add_operand(sl_planner *planner, sl_tier tier, uint32_t tick, uint32_t i)
{
    const sl_op *op = &planner->program->ops[tick];
    uint32_t v = op->operand[i];
    uint32_t object = v == SL_NONE ? SL_NONE : sl_planner_object_of(planner, v);
    if (object == SL_NONE || planner->home_tier[object] == (uint8_t)tier ||
        planner->program->values[v].instances > 1) /* families pass through rings */
        return;
    bool is_away = sl_planner_tier_of_op(planner, tick) == tier;
    bool passes = tier == SL_TIER_HOST && planner->home_tier[object] == SL_TIER_DISK;
    if (passes && !is_away)
        return; /* the device's moves stand for its ops */
    bool is_part = planner->program->values[v].kind == SL_VALUE_TENSOR;
    add_use(&planner->tier[tier], (sl_residency_use){.tick = tick,
                                                     .object = object,
                                                     .is_away = is_away,
                                                     .reads = is_part || sl_op_reads(op, i),
                                                     .writes = sl_op_writes(op, i)});
}

static void add_device_moves(sl_planner *planner)
{
    const sl_residency *device = &planner->tier[SL_TIER_DEVICE].residency;
    sl_tier_state *host = &planner->tier[SL_TIER_HOST];
    for (uint32_t v = 0; v < device->visit_count; v++) {
        const sl_visit *visit = &device->visits[v];
        if (visit->is_fetched && planner->home_tier[visit->object] == SL_TIER_DISK)
            add_use(host, (sl_residency_use){.tick = visit->first_tick,
                                             .object = visit->object,
                                             .is_away = true,
                                             .reads = true});
    }
    for (uint32_t b = 0; b < device->write_back_count; b++) {
        uint32_t object = device->visits[device->write_backs[b].visit].object;
        if (planner->home_tier[object] == SL_TIER_DISK)
            add_use(host, (sl_residency_use){.tick = device->write_backs[b].after_tick,
                                             .object = object,
                                             .is_away = true,
                                             .writes = true});
    }
}

static int compare_uses(const void *left, const void *right)
{
    const sl_residency_use *a = left, *b = right;
    if (a->tick != b->tick)
        return a->tick < b->tick ? -1 : 1;
    return (a->object > b->object) - (a->object < b->object);
}

/* One use an object and tick. A fetch and a write-back of one tick: it is read first. */
static void merge_uses(sl_tier_state *state)
{
    uint32_t kept = 0;
    qsort(state->uses, state->use_count, sizeof *state->uses, compare_uses);
    for (uint32_t u = 0; u < state->use_count; u++) {
        const sl_residency_use *use = &state->uses[u];
        sl_residency_use *last = kept ? &state->uses[kept - 1] : NULL;
        if (last && last->tick == use->tick && last->object == use->object) {
            last->reads |= use->reads;
            last->writes |= use->writes;
        } else {
            state->uses[kept++] = *use;
        }
    }
    state->use_count = kept;
}

sl_status sl_plan_uses_find(sl_planner *planner, sl_tier tier)
{
    sl_tier_state *state = &planner->tier[tier];
    const sl_residency *device = &planner->tier[SL_TIER_DEVICE].residency;
    uint64_t capacity = (uint64_t)planner->program->op_count * SL_OPERAND_MAX + 1;
    if (tier == SL_TIER_HOST)
        capacity += (uint64_t)device->visit_count + device->write_back_count;
    free(state->uses);
    state->use_count = 0;
    state->uses = calloc(capacity, sizeof *state->uses);
    if (!state->uses)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to plan %u ops", planner->program->op_count);
    for (uint32_t tick = 0; tick < planner->program->op_count; tick++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++)
            add_operand(planner, tier, tick, i);
    if (tier == SL_TIER_HOST)
        add_device_moves(planner);
    merge_uses(state);
    return SL_OK;
}
