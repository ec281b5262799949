/* Random plans with repeated sections, of the programs of looped_program.h; small, with everything
 * that a real one has.
 *
 * Chunks visit the device for a loop (dirty over its seams, if written), for one repetition, or
 * over the seam from one repetition to the next. A family stays on the device, or passes it, and on
 * the way to disk the host, in a ring of two or a single place. Waits follow from the bytes: the
 * latest conflicting issue on each lane. Written without the planner and the verifier.
 */
#ifndef SL_TESTS_LOOPED_PLANS_H
#define SL_TESTS_LOOPED_PLANS_H

#include "looped_program.h"
#include "plan_edit.h"

/* ---- memory ---- */

/* Do two lives share a tick? */
static inline bool loop_meet(const looped_case *it, const sl_allocation *a, const sl_allocation *b)
{
    for (uint32_t tick = 0; tick <= it->program.op_count; tick++)
        if (plan_lives_at(a, tick) && plan_lives_at(b, tick))
            return true;
    return false;
}

/* Is the range free of all values whose lives overlap that of `what`? Without sharing, of all. */
static inline bool loop_is_free(const looped_case *it, const sl_allocation *what)
{
    const sl_plan *plan = &it->builder.plan;
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *other = &plan->allocations[i];
        bool is_same = other->place.tier == what->place.tier &&
                       what->place.offset < other->place.offset + sl_place_extent(&other->place) &&
                       other->place.offset < what->place.offset + sl_place_extent(&what->place);
        if (is_same && (!it->is_shared || loop_meet(it, other, what)))
            return false;
    }
    return true;
}

static inline uint64_t loop_unit(sl_tier tier)
{
    return tier == SL_TIER_DISK ? SL_DISK_ALIGNMENT : SL_DIRECT_ALIGNMENT;
}

/* Finds the lowest place for lives [count], which have it in turn; adds them. */
static inline sl_place loop_allocate(looped_case *it, sl_allocation *lives, uint32_t count)
{
    sl_place place = lives[0].place;
    uint64_t unit = loop_unit(place.tier);
    place.offset = (it->homes.fixed_bytes[place.tier] + unit - 1) / unit * unit;
    for (;; place.offset += unit) {
        bool is_free = true;
        for (uint32_t i = 0; i < count; i++) {
            lives[i].place = place;
            is_free = is_free && loop_is_free(it, &lives[i]);
        }
        if (is_free)
            break;
    }
    for (uint32_t i = 0; i < count; i++)
        plan_add_allocation(&it->builder, &lives[i]);
    return place;
}

static inline sl_place loop_allocate_value(looped_case *it, sl_memory_kind kind, sl_place place,
                                           uint32_t value, const uint32_t ticks[2])
{
    sl_allocation life = {.kind = kind,
                          .place = place,
                          .first_tick = ticks[0],
                          .last_tick = ticks[1],
                          .value = value,
                          .chunk_index = SL_NONE};
    life.place.bytes = LOOP_ACTIVATION_BYTES;
    place = loop_allocate(it, &life, 1);
    *plan_value_at(&it->builder, place.tier, value) = place;
    return place;
}

/* First and last use of a value in a section; false if there is none. */
static inline bool loop_uses(const looped_case *it, uint32_t value, const sl_section *section,
                             uint32_t out_ticks[2])
{
    bool is_used = false;
    for (uint32_t tick = section->first; tick < section->first + section->count; tick++)
        for (uint32_t i = 0; i < sl_op_info_of(it->ops[tick].kind)->operand_count; i++)
            if (it->ops[tick].operand[i] == value) {
                out_ticks[0] = is_used ? out_ticks[0] : tick;
                out_ticks[1] = tick;
                is_used = true;
            }
    return is_used;
}

static inline uint32_t loop_last_tick(const sl_section *section)
{
    return section->first + section->count - 1;
}

/* Values that do not leave the device, on the device; those of one section for as long as used. */
static inline void loop_allocate_plain(looped_case *it)
{
    static const sl_place device = {.tier = SL_TIER_DEVICE}, host = {.tier = SL_TIER_HOST};
    uint32_t op_count = it->program.op_count, always[2] = {0, op_count};
    loop_allocate_value(it, SL_MEMORY_STAGING, host, it->loss, always);
    loop_allocate_value(it, SL_MEMORY_ACTIVATION, device, it->sum, (uint32_t[2]){0, op_count - 1});
    loop_allocate_value(it, SL_MEMORY_ACTIVATION, device, it->loss,
                        (uint32_t[2]){op_count - 1, op_count});
    loop_allocate_value(it, SL_MEMORY_ACTIVATION, device, it->input, always);
    loop_allocate_value(it, SL_MEMORY_STAGING, host, it->input, always);
    for (uint32_t v = 0; v < it->program.value_count; v++) {
        uint32_t used[2], all[2] = {0}, sections = 0;
        bool is_plain = it->values[v].kind == SL_VALUE_ACTIVATION && v != it->sum;
        for (uint32_t s = 0; s < it->program.section_count; s++)
            if (is_plain && loop_uses(it, v, &it->sections[s], used)) {
                all[0] = sections++ ? all[0] : used[0];
                all[1] = used[1];
            }
        bool is_family = it->values[v].instances > 1;
        if (sections > 0 && !is_family)
            loop_allocate_value(it, SL_MEMORY_ACTIVATION, device, v, all);
    }
}

static inline sl_place loop_slots(sl_tier tier, uint32_t slots, uint32_t gap)
{
    uint64_t stride = LOOP_ACTIVATION_BYTES + gap, unit = SL_DISK_ALIGNMENT;
    stride = tier == SL_TIER_DISK ? (stride + unit - 1) / unit * unit : stride;
    return (sl_place){.tier = tier,
                      .bytes = LOOP_ACTIVATION_BYTES,
                      .stride = slots > 1 ? stride : 0,
                      .slots = slots};
}

/* A family at home from the start of the loop that makes it to the end of the one that uses it; in
 * passing, as long as each of the two. */
static inline void loop_allocate_family(looped_case *it, uint32_t loop, sl_place passing[2][2])
{
    const loop_away *away = &it->away[loop];
    const sl_section *made = &it->sections[3 * loop + 1], *used = &it->sections[3 * loop + 4];
    uint32_t value = away->value[1], instances = it->values[value].instances;
    uint32_t gap = away->gap;
    if (instances < 2)
        return;
    uint32_t lives[3][2] = {{made->first, loop_last_tick(made)},
                            {used->first, loop_last_tick(used)},
                            {made->first, loop_last_tick(used)}};
    loop_allocate_value(it, SL_MEMORY_ACTIVATION, loop_slots(away->home, instances, gap), value,
                        lives[2]);
    for (int tier = SL_TIER_DEVICE; tier < (int)away->home; tier++)
        for (int i = 0; i < 2; i++)
            passing[tier][i] =
                loop_allocate_value(it, SL_MEMORY_ACTIVATION,
                                    loop_slots((sl_tier)tier, away->slots, gap), value, lives[i]);
}

static inline bool loop_is_visitor(const looped_case *it, uint32_t chunk)
{
    return it->tiers[chunk] != SL_TIER_DEVICE;
}

/* The lives of a chunk's visits in one loop; returns how many. */
static inline uint32_t loop_visits(const looped_case *it, uint32_t loop, uint32_t chunk,
                                   uint32_t lives[4][2])
{
    uint32_t count = 0, used[2];
    const sl_section *sections = &it->sections[3 * loop];
    for (uint32_t part = 0; part < 3; part++) {
        if (!loop_uses(it, it->chunk_value[chunk], &sections[part], used))
            return 0;
        loop_stay stay = it->stay[loop][chunk];
        if (stay == LOOP_STAY_REPETITION || count == 0) {
            lives[count][0] = used[0];
            lives[count++][1] = used[1];
        }
        lives[count - 1][1] = used[1];
        if (stay == LOOP_STAY_SEAM && part < 2) {
            lives[count][0] = lives[count][1] = loop_last_tick(&sections[part]);
            count++;
        }
    }
    return count;
}

static inline void loop_allocate_chunks(looped_case *it)
{
    for (uint32_t c = 0; c < LOOP_CHUNKS; c++) {
        sl_allocation lives[4 * LOOP_MAX];
        uint32_t count = 0, ticks[4][2];
        for (uint32_t loop = 0; loop < it->loops && loop_is_visitor(it, c); loop++) {
            uint32_t visits = loop_visits(it, loop, c, ticks);
            for (uint32_t i = 0; i < visits; i++)
                lives[count++] = (sl_allocation){.kind = SL_MEMORY_PARAM,
                                                 .place = {.bytes = LOOP_CHUNK_BYTES},
                                                 .first_tick = ticks[i][0],
                                                 .last_tick = ticks[i][1],
                                                 .value = SL_NONE,
                                                 .chunk_index = c};
        }
        if (count > 0)
            *plan_chunk_at(&it->builder, SL_TIER_DEVICE, SL_GROUP_PARAM, c) =
                loop_allocate(it, lives, count);
    }
}

/* ---- commands ---- */

/* A copy that is due before the op at `tick`, or after the one before; chunk or value. */
static inline void loop_copy(looped_case *it, uint32_t tick, sl_tier from, sl_tier to,
                             uint32_t value)
{
    const sl_tier tiers[2] = {from, to};
    if (it->values[value].kind == SL_VALUE_CHUNK)
        plan_add_chunk_move(&it->builder, tick, tiers, SL_GROUP_PARAM, it->values[value].index);
    else
        plan_add_value_move(&it->builder, tick, tiers, value);
}

static inline void loop_fetch_chunk(looped_case *it, uint32_t loop, uint32_t part, uint32_t chunk,
                                    uint32_t tick)
{
    uint32_t used[2], value = it->chunk_value[chunk];
    const sl_section *section = &it->sections[3 * loop + part];
    loop_stay stay = it->stay[loop][chunk];
    if (!loop_is_visitor(it, chunk) || !loop_uses(it, value, section, used))
        return;
    bool is_first = tick == used[0] && (part == 0 || stay == LOOP_STAY_REPETITION);
    bool is_ahead = stay == LOOP_STAY_SEAM && part < 2 && tick == loop_last_tick(section);
    if (is_first || is_ahead)
        loop_copy(it, tick, SL_TIER_HOST, SL_TIER_DEVICE, value);
}

static inline void loop_return_chunk(looped_case *it, uint32_t loop, uint32_t part, uint32_t chunk,
                                     uint32_t tick)
{
    uint32_t used[2], value = it->chunk_value[chunk];
    const sl_section *section = &it->sections[3 * loop + part];
    bool is_last = it->stay[loop][chunk] != LOOP_STAY_LOOP || part == 2;
    if (loop_is_visitor(it, chunk) && it->written_chunk[loop] == chunk && is_last &&
        loop_uses(it, value, section, used) && tick == used[1])
        loop_copy(it, tick + 1, SL_TIER_DEVICE, SL_TIER_HOST, value);
}

/* From home to the device before its use, and back after it is made. */
static inline void loop_move_family(looped_case *it, uint32_t loop, uint32_t tick, bool is_made)
{
    const loop_away *away = &it->away[loop];
    uint32_t used[2], value = away->value[1];
    const sl_section *section = &it->sections[3 * (loop + !is_made) + 1];
    if (it->values[value].instances < 2 || !loop_uses(it, value, section, used) || tick != used[0])
        return;
    for (int step = 0; step < (int)away->home; step++) {
        int near = is_made ? step : (int)away->home - 1 - step;
        loop_copy(it, tick + is_made, (sl_tier)(is_made ? near : near + 1),
                  (sl_tier)(is_made ? near + 1 : near), value);
    }
}

static inline void loop_emit_op(looped_case *it, uint32_t loop, uint32_t part, uint32_t tick)
{
    static const sl_place none = {.tier = SL_TIER_DEVICE};
    const sl_op *op = &it->ops[tick];
    sl_place workspace = none;
    if (op->operand[0] == it->input && op->kind == SL_OP_GELU)
        loop_copy(it, tick, SL_TIER_HOST, SL_TIER_DEVICE, it->input);
    for (uint32_t c = 0; c < LOOP_CHUNKS; c++)
        loop_fetch_chunk(it, loop, part, c, tick);
    if (loop > 0 && part == 1)
        loop_move_family(it, loop - 1, tick, false);
    if (op->kind == SL_OP_GELU_BACKWARD) {
        sl_allocation life = {.kind = SL_MEMORY_WORKSPACE,
                              .place = {.tier = SL_TIER_DEVICE, .bytes = 512},
                              .first_tick = tick,
                              .last_tick = tick,
                              .value = SL_NONE,
                              .chunk_index = SL_NONE};
        workspace = loop_allocate(it, &life, 1);
    }
    plan_add_run(&it->builder, tick, op->kind == SL_OP_INPUT ? SL_LANE_INPUT : SL_LANE_COMPUTE,
                 workspace);
    for (uint32_t c = 0; c < LOOP_CHUNKS; c++)
        loop_return_chunk(it, loop, part, c, tick);
    if (loop + 1 < it->loops && part == 1)
        loop_move_family(it, loop, tick, true);
    if (tick + 1 == it->program.op_count)
        loop_copy(it, tick + 1, SL_TIER_DEVICE, SL_TIER_HOST, it->loss);
}

/* In this section a family passes by the places of its first or its second loop. */
static inline void loop_set_passing(looped_case *it, uint32_t loop, sl_place passing[2][2],
                                    bool is_made)
{
    for (int tier = SL_TIER_DEVICE; tier < (int)it->away[loop].home; tier++)
        *plan_value_at(&it->builder, (sl_tier)tier, it->away[loop].value[1]) =
            passing[tier][!is_made];
}

static inline void loop_emit(looped_case *it)
{
    sl_place passing[LOOP_MAX][2][2];
    if (!it->is_plain_last)
        loop_allocate_plain(it);
    for (uint32_t loop = 0; loop + 1 < it->loops; loop++)
        loop_allocate_family(it, loop, passing[loop]);
    loop_allocate_chunks(it);
    if (it->is_plain_last)
        loop_allocate_plain(it);
    for (uint32_t s = 0; s < it->program.section_count; s++) {
        uint32_t loop = s / 3;
        if (loop > 0 && it->values[it->away[loop - 1].value[1]].instances > 1)
            loop_set_passing(it, loop - 1, passing[loop - 1], false);
        if (loop + 1 < it->loops && it->values[it->away[loop].value[1]].instances > 1)
            loop_set_passing(it, loop, passing[loop], true);
        for (uint32_t i = 0; i < it->sections[s].count; i++)
            loop_emit_op(it, loop, s % 3, it->sections[s].first + i);
        plan_close_section(&it->builder);
    }
}

/* ---- waits ---- */

/* How two commands are in each other's way. */
typedef enum loop_conflict { LOOP_FREE, LOOP_SLOTS, LOOP_BYTES } loop_conflict;

/* LOOP_SLOTS: only in a slot of the same ring, which comes back two repetitions later. */
static inline loop_conflict loop_conflict_of(const looped_case *it, uint32_t a, uint32_t b)
{
    touch left[TOUCH_MAX], right[TOUCH_MAX];
    const sl_plan *plan = &it->builder.plan;
    uint32_t left_count = touch_list(&it->request, plan, &plan->body[a], left);
    uint32_t right_count = touch_list(&it->request, plan, &plan->body[b], right);
    loop_conflict worst = LOOP_FREE;
    for (uint32_t i = 0; i < left_count; i++)
        for (uint32_t j = 0; j < right_count; j++) {
            const sl_place *x = &left[i].place, *y = &right[j].place;
            if (!(left[i].writes || right[j].writes) || !places_overlap(x, y))
                continue;
            bool is_ring =
                x->slots == 2 && y->slots == 2 && x->offset == y->offset && x->stride == y->stride;
            if (!is_ring)
                return LOOP_BYTES;
            worst = LOOP_SLOTS;
        }
    return worst;
}

/* The last command in [first, end) of a lane that is in the way of `index` by at least `least`. */
static inline uint32_t loop_last_conflict(const looped_case *it, uint32_t index, sl_lane lane,
                                          const uint32_t range[2], loop_conflict least)
{
    for (uint32_t c = range[1]; c > range[0]; c--)
        if (it->builder.plan.body[c - 1].lane == lane &&
            loop_conflict_of(it, index, c - 1) >= least)
            return c - 1;
    return SL_NONE;
}

typedef struct loop_waits {
    sl_wait waits[4 * SL_LANE_COUNT];
    uint32_t count;
} loop_waits;

static inline bool loop_add_wait(loop_waits *to, uint32_t command, uint32_t age)
{
    if (command != SL_NONE)
        to->waits[to->count++] = (sl_wait){command, age};
    return command != SL_NONE;
}

/* The latest issue on `lane`, outside of the section, before its first repetition. */
static inline bool loop_wait_outside(const looped_case *it, uint32_t index, sl_lane lane,
                                     const sl_section *section, loop_conflict least, loop_waits *to)
{
    const uint32_t before[2] = {0, section->first};
    const uint32_t behind[2] = {section->first + section->count, it->builder.plan.body_count};
    return loop_add_wait(to, loop_last_conflict(it, index, lane, before, least), 0) ||
           loop_add_wait(to, loop_last_conflict(it, index, lane, behind, least), 0);
}

static inline void loop_wait_lane(const looped_case *it, uint32_t index, sl_lane lane,
                                  const sl_section *section, loop_waits *to)
{
    const uint32_t same[2] = {section->first, index};
    const uint32_t last[2] = {index, section->first + section->count};
    if (loop_add_wait(to, loop_last_conflict(it, index, lane, same, LOOP_SLOTS), 0))
        return;
    uint32_t plain = loop_last_conflict(it, index, lane, last, LOOP_BYTES);
    uint32_t ring = loop_last_conflict(it, index, lane, last, LOOP_SLOTS);
    if (ring == SL_NONE || section->repeat == 1) {
        bool has_outside = loop_wait_outside(it, index, lane, section, LOOP_SLOTS, to);
        if (!has_outside)
            loop_add_wait(to, ring, 0);
    } else if (plain != SL_NONE) {
        loop_add_wait(to, plain, 0);
        loop_wait_outside(it, index, lane, section, LOOP_SLOTS, to);
    } else if (loop_wait_outside(it, index, lane, section, LOOP_SLOTS, to) ||
               loop_wait_outside(it, index, lane, section, LOOP_FREE, to)) {
        loop_add_wait(to, ring, 1);
    } else {
        loop_add_wait(to, ring, 0);
    }
}

static inline void loop_find_waits(looped_case *it)
{
    sl_plan *plan = &it->builder.plan;
    for (uint32_t s = 0; s < plan->section_count; s++) {
        const sl_section *section = &plan->sections[s];
        for (uint32_t i = section->first; i < section->first + section->count; i++) {
            loop_waits found = {.count = 0};
            for (int lane = 0; lane < SL_LANE_COUNT; lane++)
                if ((sl_lane)lane != plan->body[i].lane)
                    loop_wait_lane(it, i, (sl_lane)lane, section, &found);
            plan->body[i].first_wait = plan->wait_count;
            for (uint32_t w = 0; w < found.count; w++) {
                plan->waits = plan_grow(plan->waits, plan->wait_count, &it->builder.wait_room,
                                        sizeof *plan->waits);
                plan->waits[plan->wait_count++] = found.waits[w];
                plan->body[i].wait_count++;
            }
        }
    }
}

/* ---- all of it ---- */

/* Of what was chosen. Refers to itself, so it stays where it is; close with looped_close. */
static inline void looped_build(looped_case *it)
{
    loop_program(it);
    loop_homes(it);
    loop_request(it);
    plan_begin(&it->builder, &it->request);
    it->builder.plan.peak_bytes[SL_TIER_DEVICE] = it->homes.fixed_bytes[SL_TIER_DEVICE];
    plan_allocate_homes(&it->builder);
    loop_emit(it);
    loop_find_waits(it);
    edit_recount(&it->builder.plan);
    plan_sum(&it->builder);
    it->plan = plan_end(&it->builder);
}

static inline void looped_open(looped_case *it, uint64_t seed, uint32_t micro_batches)
{
    loop_choose(it, seed, micro_batches);
    looped_build(it);
}

static inline void looped_close(looped_case *it)
{
    plan_close(&it->plan);
}

#endif
