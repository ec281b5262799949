/* A machine of symbols that runs plans: memory holds hashes, an op mixes what it reads into what it
 * writes, and lanes go on in any order that waits allow. Two runs that agree on every hash would
 * agree on every number; a byte read too early, too late or from elsewhere shows in the end.
 *
 * It knows nothing of versions and clocks, so it can judge those who do. One command is one
 * instant: any two that are not ordered happen in either order, sooner or later.
 */
#ifndef SL_TESTS_PLAN_MACHINE_H
#define SL_TESTS_PLAN_MACHINE_H

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "plan_edit.h"

enum { UNIT_BYTES = 256, MACHINE_ITERATIONS = 2, MACHINE_ROUNDS = 2 };

/* What an input slot of a micro-batch holds in an iteration. */
static inline uint64_t machine_mix(uint64_t a, uint64_t b);

static inline uint64_t filled_seed(uint32_t slot, uint32_t micro_batch, uint32_t iteration)
{
    return machine_mix(0x4321 + slot, machine_mix(micro_batch, iteration));
}

/* Units of memory, one hash each. */
typedef struct units {
    uint64_t *first;
    uint64_t count;
} units;

static inline uint64_t machine_mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15u)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 29)) * 0x94D049BB133111EBu;
    return x ^ (x >> 32);
}

static inline uint64_t machine_units(uint64_t bytes)
{
    return (bytes + UNIT_BYTES - 1) / UNIT_BYTES;
}

static inline void machine_fill(units at, uint64_t seed)
{
    for (uint64_t i = 0; i < at.count; i++)
        at.first[i] = machine_mix(seed, i);
}

/* Where a run is: iteration, repetition of a section, and its micro-batch. */
typedef struct moment {
    uint32_t iteration, repetition, micro_batch;
} moment;

static inline void machine_run_op(const sl_program *program, uint32_t tick, moment now,
                                  const units *operands)
{
    const sl_op *op = &program->ops[tick];
    if (op->kind == SL_OP_INPUT) {
        uint32_t slot = program->values[op->operand[0]].index;
        machine_fill(operands[0], filled_seed(slot, now.micro_batch, now.iteration));
        return;
    }
    uint32_t count = sl_op_info_of(op->kind)->operand_count;
    uint64_t digest = machine_mix(tick, (uint64_t)op->kind);
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t j = 0;
             op->operand[i] != SL_NONE && sl_op_reads(op, i) && j < operands[i].count; j++)
            digest = machine_mix(digest, operands[i].first[j]);
    for (uint32_t i = 0; i < count; i++)
        if (op->operand[i] != SL_NONE && sl_op_writes(op, i))
            machine_fill(operands[i], machine_mix(digest, i));
}

/* ---- the plain order: every object has memory of its own ---- */

typedef struct plain_run {
    const sl_plan_request *request;
    units *objects; /* [object_count] */
    uint32_t object_count;
} plain_run;

static inline uint64_t input_seed(uint32_t value, uint32_t iteration)
{
    return machine_mix(0x1234, machine_mix(value, iteration));
}

static inline void plain_open(plain_run *run, const sl_plan_request *request)
{
    const sl_program *program = request->program;
    uint32_t chunks = request->layout->chunk_count;
    *run = (plain_run){.request = request};
    run->object_count = program->value_count + SL_GROUP_COUNT * chunks;
    run->objects = calloc(run->object_count, sizeof *run->objects);
    for (uint32_t i = 0; i < run->object_count; i++) {
        bool is_chunk = i >= program->value_count;
        sl_group group = (sl_group)(is_chunk ? (i - program->value_count) / chunks : 0);
        uint64_t bytes = is_chunk ? sl_layout_chunk_bytes(request->layout, group,
                                                          (i - program->value_count) % chunks)
                                  : program->values[i].bytes;
        if (!is_chunk && (program->values[i].kind == SL_VALUE_TENSOR ||
                          program->values[i].kind == SL_VALUE_CHUNK))
            bytes = 0;
        uint64_t instances = is_chunk ? 1 : program->values[i].instances;
        run->objects[i].count = machine_units(bytes) * instances;
        run->objects[i].first = calloc(run->objects[i].count + 1, sizeof(uint64_t));
        machine_fill(run->objects[i], i);
    }
}

static inline void plain_close(plain_run *run)
{
    for (uint32_t i = 0; i < run->object_count; i++)
        free(run->objects[i].first);
    free(run->objects);
}

static inline units plain_operand(const plain_run *run, uint32_t value, uint32_t repetition)
{
    const sl_value *it = &run->request->program->values[value];
    units whole = run->objects[touch_object(run->request, value)];
    if (it->instances > 1)
        return (units){whole.first + repetition * machine_units(it->bytes),
                       machine_units(it->bytes)};
    if (it->kind != SL_VALUE_TENSOR)
        return whole;
    uint64_t first = run->request->layout->first_element[it->index] *
                     sl_type_bytes(run->request->layout->group_type[it->group]) / UNIT_BYTES;
    return (units){whole.first + first, machine_units(it->bytes)};
}

static inline void plain_run_op(const plain_run *run, uint32_t tick, moment now)
{
    const sl_op *op = &run->request->program->ops[tick];
    units operands[SL_OPERAND_MAX];
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
        if (op->operand[i] != SL_NONE)
            operands[i] = plain_operand(run, op->operand[i], now.repetition);
    machine_run_op(run->request->program, tick, now, operands);
}

static inline void plain_iterate(plain_run *run, uint32_t iteration)
{
    const sl_program *program = run->request->program;
    for (uint32_t i = 0; i < program->value_count; i++)
        if (program->values[i].kind == SL_VALUE_INPUT)
            machine_fill(run->objects[i], input_seed(i, iteration));
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        const sl_section section = sl_program_section(program, s);
        for (uint32_t r = 0; r < section.repeat; r++)
            for (uint32_t tick = section.first; tick < section.first + section.count; tick++)
                plain_run_op(run, tick, (moment){iteration, r, section.first_micro_batch + r});
    }
}

/* ---- the plan, on lanes ---- */

/* One issue of a command in an iteration. */
typedef struct machine_issue {
    uint32_t command, repetition, micro_batch;
    uint32_t position; /* in its lane's queue */
} machine_issue;

typedef struct machine {
    const sl_plan_request *request;
    const sl_plan *plan;
    units arena[SL_TIER_COUNT];
    machine_issue *issues; /* [issue_count] of one iteration, in order */
    uint32_t issue_count;
    uint32_t *queue[SL_LANE_COUNT]; /* issues of each lane */
    uint32_t queue_count[SL_LANE_COUNT];
    uint32_t done[SL_LANE_COUNT]; /* issues finished, over iterations */
    uint64_t seed, draws;
    uint32_t iteration; /* of the first one of this round */
} machine;

static inline units machine_at_repetition(const machine *it, const sl_place *place,
                                          uint32_t repetition)
{
    return (units){it->arena[place->tier].first + sl_place_offset(place, repetition) / UNIT_BYTES,
                   machine_units(place->bytes)};
}

static inline units machine_at(const machine *it, const sl_place *place)
{
    return machine_at_repetition(it, place, 0);
}

static inline sl_place machine_home(const machine *it, sl_group group, uint32_t chunk)
{
    const sl_homes *homes = it->request->homes;
    return (sl_place){(sl_tier)homes->tier[group][chunk], homes->offset[group][chunk],
                      sl_layout_chunk_bytes(it->request->layout, group, chunk)};
}

static inline void machine_list_issues(machine *it)
{
    const sl_plan *plan = it->plan;
    uint64_t count = 0;
    for (uint32_t s = 0; s < plan->section_count; s++)
        count += (uint64_t)plan->sections[s].count * plan->sections[s].repeat;
    it->issues = calloc(count + 1, sizeof *it->issues);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        it->queue[lane] = calloc(count + 1, sizeof *it->queue[lane]);
    for (uint32_t s = 0; s < plan->section_count; s++) {
        const sl_section *section = &plan->sections[s];
        for (uint32_t r = 0; r < section->repeat; r++)
            for (uint32_t c = section->first; c < section->first + section->count; c++) {
                sl_lane lane = plan->body[c].lane;
                uint32_t position = it->queue_count[lane]++;
                it->queue[lane][position] = it->issue_count;
                it->issues[it->issue_count++] =
                    (machine_issue){c, r, section->first_micro_batch + r, position};
            }
    }
}

static inline void machine_open(machine *it, const sl_plan_request *request, const sl_plan *plan,
                                uint64_t seed)
{
    *it = (machine){.request = request, .plan = plan, .seed = seed};
    machine_list_issues(it);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        it->arena[tier].count = machine_units(plan->peak_bytes[tier]);
        it->arena[tier].first = calloc(it->arena[tier].count + 1, sizeof(uint64_t));
        machine_fill(it->arena[tier], machine_mix(seed, (uint64_t)tier));
    }
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t i = 0; request->homes->tier[group] && i < request->layout->chunk_count; i++) {
            sl_place home = machine_home(it, (sl_group)group, i);
            machine_fill(machine_at(it, &home), touch_chunk(request, (sl_group)group, i));
        }
}

static inline void machine_close(machine *it)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        free(it->arena[tier].first);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        free(it->queue[lane]);
    free(it->issues);
}

static inline bool machine_is_filled(const sl_program *program, uint32_t value)
{
    for (uint32_t tick = 0; tick < program->op_count; tick++)
        if (program->ops[tick].kind == SL_OP_INPUT && program->ops[tick].operand[0] == value)
            return true;
    return false;
}

static inline void machine_execute(machine *it, const sl_command *command, moment now)
{
    units operands[SL_OPERAND_MAX];
    const sl_program *program = it->request->program;
    if (command->kind == SL_COMMAND_COPY) {
        units from = machine_at_repetition(it, &command->from, now.repetition);
        units to = machine_at_repetition(it, &command->to, now.repetition);
        bool is_input = command->chunk_index == SL_NONE &&
                        program->values[command->value].kind == SL_VALUE_INPUT &&
                        !machine_is_filled(program, command->value);
        if (is_input)
            machine_fill(from, input_seed(command->value, now.iteration));
        memcpy(to.first, from.first, to.count * sizeof *to.first);
        return;
    }
    const sl_place *places = it->plan->places + command->first_place;
    for (uint32_t i = 0; i + 1 < command->place_count; i++)
        operands[i] = machine_at_repetition(it, &places[i], now.repetition);
    machine_fill(machine_at(it, &places[command->place_count - 1]), it->draws);
    machine_run_op(program, command->tick, now, operands);
}

/* Has the issue that a wait names finished? The waiter is issue `waiter` of the iteration. */
static inline bool machine_is_done(const machine *it, uint32_t waiter, const sl_wait *wait,
                                   uint32_t iteration)
{
    sl_lane lane = it->plan->body[wait->command].lane;
    uint32_t left = wait->age + 1;
    for (uint64_t n = (uint64_t)iteration * it->issue_count + waiter; n > 0; n--) {
        const machine_issue *issue = &it->issues[(n - 1) % it->issue_count];
        if (issue->command != wait->command || --left > 0)
            continue;
        uint64_t its_iteration = (n - 1) / it->issue_count;
        return it->done[lane] > its_iteration * it->queue_count[lane] + issue->position;
    }
    return true;
}

static inline bool machine_try_lane(machine *it, int lane)
{
    uint32_t count = it->queue_count[lane];
    if (count == 0 || it->done[lane] == MACHINE_ITERATIONS * count)
        return false;
    uint32_t iteration = it->done[lane] / count;
    uint32_t index = it->queue[lane][it->done[lane] % count];
    const machine_issue *issue = &it->issues[index];
    const sl_command *command = &it->plan->body[issue->command];
    for (uint32_t i = 0; i < command->wait_count; i++)
        if (!machine_is_done(it, index, &it->plan->waits[command->first_wait + i], iteration))
            return false;
    machine_execute(it, command,
                    (moment){it->iteration + iteration, issue->repetition, issue->micro_batch});
    it->done[lane]++;
    return true;
}

/* One lane is in favour for a while, then another: so each gets far ahead and far behind. */
static inline void machine_run_round(machine *it)
{
    uint32_t stuck = 0, favour = 0;
    memset(it->done, 0, sizeof it->done);
    for (uint32_t i = 0; i < it->plan->prologue_count; i++)
        machine_execute(it, &it->plan->prologue[i], (moment){it->iteration, 0, 0});
    while (stuck < SL_LANE_COUNT) {
        if (sl_rng_below(it->seed, 21, it->draws++, 12) == 0)
            favour = (uint32_t)sl_rng_below(it->seed, 22, it->draws++, SL_LANE_COUNT);
        stuck = 0;
        while (stuck < SL_LANE_COUNT &&
               !machine_try_lane(it, (int)((favour + stuck) % SL_LANE_COUNT)))
            stuck++;
    }
    it->iteration += MACHINE_ITERATIONS;
}

/* What is not at home does not outlive the boundary. */
static inline void machine_forget(machine *it)
{
    uint64_t *kept[SL_TIER_COUNT];
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        uint64_t bytes = it->arena[tier].count * sizeof(uint64_t);
        kept[tier] = malloc(bytes + 1);
        memcpy(kept[tier], it->arena[tier].first, bytes);
        machine_fill(it->arena[tier], it->draws++);
    }
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t i = 0;
             it->request->homes->tier[group] && i < it->request->layout->chunk_count; i++) {
            sl_place home = machine_home(it, (sl_group)group, i);
            units at = machine_at(it, &home);
            memcpy(at.first, kept[home.tier] + home.offset / UNIT_BYTES,
                   at.count * sizeof *at.first);
        }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        free(kept[tier]);
}

/* Where an output is on the host by the plan's allocations; bytes 0: nowhere. */
static inline sl_place machine_slot(const machine *it, uint32_t value)
{
    for (uint32_t i = 0; i < it->plan->allocation_count; i++) {
        const sl_allocation *slot = &it->plan->allocations[i];
        if (slot->place.tier == SL_TIER_HOST && slot->chunk_index == SL_NONE &&
            slot->value == value)
            return slot->place;
    }
    return (sl_place){SL_TIER_HOST, 0, 0};
}

static inline bool machine_agrees(const machine *it, const plain_run *plain)
{
    const sl_program *program = it->request->program;
    for (uint32_t i = 0; i < plain->object_count; i++) {
        sl_place place = {0};
        if (i < program->value_count && program->values[i].kind == SL_VALUE_OUTPUT)
            place = machine_slot(it, i);
        uint32_t chunk = i - program->value_count, chunks = it->request->layout->chunk_count;
        bool is_kept = i >= program->value_count && chunk / chunks != SL_GROUP_GRAD &&
                       it->request->homes->tier[chunk / chunks];
        if (is_kept)
            place = machine_home(it, (sl_group)(chunk / chunks), chunk % chunks);
        units at = machine_at(it, &place);
        if (place.bytes > 0 &&
            memcmp(at.first, plain->objects[i].first, plain->objects[i].count * sizeof *at.first))
            return false;
    }
    return true;
}

/* Runs the plan in one random order, twice from the boundary, and compares with the plain order. */
static inline bool machine_is_right(const sl_plan_request *request, const sl_plan *plan,
                                    uint64_t seed)
{
    machine it;
    plain_run plain;
    bool is_right = true;
    machine_open(&it, request, plan, seed);
    plain_open(&plain, request);
    for (uint32_t round = 0; round < MACHINE_ROUNDS && is_right; round++) {
        machine_run_round(&it);
        for (uint32_t i = 0; i < MACHINE_ITERATIONS; i++)
            plain_iterate(&plain, round * MACHINE_ITERATIONS + i);
        is_right = machine_agrees(&it, &plain);
        machine_forget(&it);
    }
    plain_close(&plain);
    machine_close(&it);
    return is_right;
}

#endif
