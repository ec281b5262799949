/* Unrolls a program and a plan with repeated sections into ones without: every op and command as
 * often as it is issued, instances of families and values of one section as values of their own,
 * places, waits and lives resolved. What the plan means is thereby said a second time, without
 * replaying a part for the whole.
 *
 * Unchecked: for plans whose indices exist. Live sums are those of the unrolled allocations.
 */
#ifndef SL_TESTS_UNROLL_H
#define SL_TESTS_UNROLL_H

#include "plan_builder.h"
#include "plan_edit.h"

typedef struct unrolled {
    sl_program program;
    sl_plan_request request;
    sl_plan plan;
} unrolled;

typedef struct unroller {
    const sl_plan_request *from;
    const sl_plan *looped;
    unrolled *to;
    uint32_t *first_value;  /* [value_count] in the unrolled program */
    uint32_t *copy_count;   /* [value_count] values that it becomes */
    uint32_t *home_section; /* [value_count] of a value that one section alone uses; else SL_NONE */
    uint32_t *section_of; /* [flat op_count] of the tick's op, and its tick and repetition there */
    uint32_t *tick_of, *repetition_of;
    uint32_t allocation_room;
} unroller;

static inline sl_section unroll_commands(const unroller *it, uint32_t section)
{
    const sl_section whole = {0, it->looped->body_count, 0, 1};
    return it->looped->section_count > 0 ? it->looped->sections[section] : whole;
}

static inline void *unroll_new(size_t count, size_t bytes)
{
    void *array = calloc(count + 1, bytes);
    if (!array)
        abort();
    return array;
}

/* ---- the program ---- */

static inline void unroll_note_uses(unroller *it, uint32_t section_index, bool *is_filled)
{
    const sl_program *program = it->from->program;
    const sl_section section = sl_program_section(program, section_index);
    for (uint32_t tick = section.first; tick < section.first + section.count; tick++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            const sl_op *op = &program->ops[tick];
            bool is_there = i < sl_op_info_of(op->kind)->operand_count;
            uint32_t value = is_there ? op->operand[i] : SL_NONE;
            if (value == SL_NONE)
                continue;
            bool is_new = it->copy_count[value] == 0;
            it->copy_count[value] = 1;
            is_filled[value] = is_filled[value] || op->kind == SL_OP_INPUT;
            if (is_new || it->home_section[value] == section_index)
                it->home_section[value] = section_index;
            else
                it->home_section[value] = SL_NONE;
        }
}

static inline void unroll_count_value(unroller *it, uint32_t value, bool is_filled)
{
    const sl_program *program = it->from->program;
    const sl_value *what = &program->values[value];
    uint32_t section = it->home_section[value];
    bool is_own = what->kind == SL_VALUE_ACTIVATION || is_filled;
    it->copy_count[value] = 1;
    if (what->instances > 1)
        it->copy_count[value] = what->instances;
    else if (is_own && section != SL_NONE)
        it->copy_count[value] = sl_program_section(program, section).repeat;
    if (it->copy_count[value] == 1 || what->instances > 1)
        it->home_section[value] = SL_NONE;
}

static inline void unroll_values(unroller *it)
{
    const sl_program *program = it->from->program;
    sl_program *to = &it->to->program;
    bool *is_filled = unroll_new(program->value_count, sizeof *is_filled);
    for (uint32_t v = 0; v < program->value_count; v++)
        it->home_section[v] = SL_NONE;
    for (uint32_t s = 0; s < sl_program_section_count(program); s++)
        unroll_note_uses(it, s, is_filled);
    for (uint32_t v = 0; v < program->value_count; v++) {
        unroll_count_value(it, v, is_filled[v]);
        it->first_value[v] = to->value_count;
        to->value_count += it->copy_count[v];
    }
    to->values = unroll_new(to->value_count, sizeof *to->values);
    for (uint32_t v = 0; v < program->value_count; v++)
        for (uint32_t i = 0; i < it->copy_count[v]; i++) {
            sl_value *copy = &to->values[it->first_value[v] + i];
            *copy = program->values[v];
            copy->instances = 1;
        }
    free(is_filled);
}

/* The value that repetition `repetition` of a section means. */
static inline uint32_t unroll_value(const unroller *it, uint32_t value, uint32_t repetition)
{
    if (value == SL_NONE)
        return SL_NONE;
    return it->first_value[value] + repetition % it->copy_count[value];
}

static inline uint32_t unroll_op_count(const unroller *it)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < sl_program_section_count(it->from->program); s++) {
        sl_section section = sl_program_section(it->from->program, s);
        count += section.repeat * section.count;
    }
    return count;
}

static inline void unroll_op(unroller *it, uint32_t section, uint32_t repetition, uint32_t tick)
{
    sl_program *to = &it->to->program;
    sl_op *op = &to->ops[to->op_count];
    it->section_of[to->op_count] = section;
    it->tick_of[to->op_count] = tick;
    it->repetition_of[to->op_count] = repetition;
    *op = it->from->program->ops[tick];
    op->micro_batch += repetition;
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
        op->operand[i] = unroll_value(it, op->operand[i], repetition);
    to->op_count++;
}

static inline void unroll_program(unroller *it)
{
    const sl_program *program = it->from->program;
    sl_program *to = &it->to->program;
    uint32_t op_count = unroll_op_count(it);
    *to = *program;
    to->sections = NULL;
    to->section_count = to->value_count = to->op_count = 0;
    unroll_values(it);
    to->ops = unroll_new(op_count, sizeof *to->ops);
    it->section_of = unroll_new(op_count, sizeof *it->section_of);
    it->tick_of = unroll_new(op_count, sizeof *it->tick_of);
    it->repetition_of = unroll_new(op_count, sizeof *it->repetition_of);
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        sl_section section = sl_program_section(program, s);
        for (uint32_t r = 0; r < section.repeat; r++)
            for (uint32_t i = 0; i < section.count; i++)
                unroll_op(it, s, r, section.first + i);
    }
}

/* ---- commands ---- */

static inline uint32_t unroll_tick(const unroller *it, uint32_t section, uint32_t repetition,
                                   uint32_t tick)
{
    uint32_t first = 0;
    for (uint32_t s = 0; s < section; s++)
        first += sl_program_section(it->from->program, s).repeat *
                 sl_program_section(it->from->program, s).count;
    sl_section here = sl_program_section(it->from->program, section);
    return first + repetition * here.count + tick - here.first;
}

static inline uint32_t unroll_index(const unroller *it, uint32_t section, uint32_t repetition,
                                    uint32_t command)
{
    uint32_t first = 0;
    for (uint32_t s = 0; s < section; s++)
        first += unroll_commands(it, s).repeat * unroll_commands(it, s).count;
    sl_section here = unroll_commands(it, section);
    return first + repetition * here.count + command - here.first;
}

static inline uint32_t unroll_section_of(const unroller *it, uint32_t command)
{
    uint32_t section = 0;
    while (command >= unroll_commands(it, section).first + unroll_commands(it, section).count)
        section++;
    return section;
}

static inline sl_place unroll_place(const sl_place *place, uint32_t repetition)
{
    return (sl_place){
        .tier = place->tier, .offset = sl_place_offset(place, repetition), .bytes = place->bytes};
}

/* The issue that a wait means, counted from the start of the waiter's iteration; below 0: of those
 * before. */
static inline int64_t unroll_issue(const unroller *it, const sl_wait *wait, uint32_t section,
                                   uint32_t repetition, uint32_t waiter)
{
    uint32_t other = unroll_section_of(it, wait->command);
    int64_t issued = 0;
    if (other < section)
        issued = unroll_commands(it, other).repeat;
    else if (other == section)
        issued = repetition + (wait->command < waiter);
    return issued - 1 - wait->age;
}

static inline void unroll_wait(unroller *it, const sl_wait *wait, uint32_t section,
                               uint32_t repetition, uint32_t waiter)
{
    sl_plan *to = &it->to->plan;
    uint32_t other = unroll_section_of(it, wait->command), back = 0;
    int64_t issue = unroll_issue(it, wait, section, repetition, waiter);
    for (; issue < 0; back++)
        issue += unroll_commands(it, other).repeat;
    uint32_t command = unroll_index(it, other, (uint32_t)issue, wait->command);
    uint32_t age = back - (command >= to->body_count);
    if (back < (command >= to->body_count) || age > 1)
        return;
    to->waits[to->wait_count++] = (sl_wait){command, age};
}

static inline void unroll_command(unroller *it, uint32_t section, uint32_t repetition,
                                  uint32_t index)
{
    sl_plan *to = &it->to->plan;
    sl_command command = it->looped->body[index];
    const sl_command *from = &it->looped->body[index];
    command.tick = unroll_tick(it, section, repetition, from->tick);
    command.first_place = to->place_count;
    for (uint32_t i = 0; from->kind == SL_COMMAND_RUN && i < from->place_count; i++)
        to->places[to->place_count++] =
            unroll_place(&it->looped->places[from->first_place + i], repetition);
    if (from->kind == SL_COMMAND_COPY) {
        command.from = unroll_place(&from->from, repetition);
        command.to = unroll_place(&from->to, repetition);
        if (from->chunk_index == SL_NONE)
            command.value = unroll_value(it, from->value, repetition);
    }
    command.first_wait = to->wait_count;
    for (uint32_t i = 0; i < from->wait_count; i++)
        unroll_wait(it, &it->looped->waits[from->first_wait + i], section, repetition, index);
    command.wait_count = to->wait_count - command.first_wait;
    to->body[to->body_count++] = command;
}

static inline void unroll_body(unroller *it)
{
    sl_plan *to = &it->to->plan;
    uint32_t sections = sl_program_section_count(it->from->program), most = 1;
    for (uint32_t s = 0; s < sections; s++)
        most = unroll_commands(it, s).repeat > most ? unroll_commands(it, s).repeat : most;
    to->body = unroll_new((size_t)it->looped->body_count * most, sizeof *to->body);
    to->places = unroll_new((size_t)it->looped->place_count * most, sizeof *to->places);
    to->waits = unroll_new((size_t)it->looped->wait_count * most, sizeof *to->waits);
    to->prologue =
        edit_duplicate(it->looped->prologue, it->looped->prologue_count, sizeof *to->prologue);
    to->prologue_count = it->looped->prologue_count;
    for (uint32_t s = 0; s < sections; s++) {
        sl_section section = unroll_commands(it, s);
        for (uint32_t r = 0; r < section.repeat; r++)
            for (uint32_t i = 0; i < section.count; i++)
                unroll_command(it, s, r, section.first + i);
    }
}

/* ---- allocations ---- */

/* Whose bytes slot `slot` of an allocation is at a tick of the unrolled program: a ring's other
 * slot is that of the next repetition. */
static inline uint32_t unroll_owner(const unroller *it, const sl_allocation *from, uint32_t slot,
                                    uint32_t flat)
{
    uint32_t copies = it->copy_count[from->value];
    bool is_end = flat == it->to->program.op_count;
    uint32_t section = is_end ? SL_NONE : it->section_of[flat];
    uint32_t repetition = is_end ? 0 : it->repetition_of[flat];
    bool is_own = it->home_section[from->value] == SL_NONE
                      ? !is_end && sl_program_section(it->from->program, section).repeat == copies
                      : section == it->home_section[from->value];
    if (from->place.slots == copies)
        return it->first_value[from->value] + slot;
    if (!is_own)
        return it->first_value[from->value] + slot;
    if (from->place.slots < 2 || repetition % 2 == slot)
        return it->first_value[from->value] + repetition;
    return it->first_value[from->value] + (repetition + 1) % copies;
}

static inline bool unroll_lives_at(const unroller *it, const sl_allocation *from, uint32_t flat)
{
    bool is_end = flat == it->to->program.op_count;
    return plan_lives_at(from, is_end ? it->from->program->op_count : it->tick_of[flat]);
}

static inline void unroll_add_allocation(unroller *it, const sl_allocation *what)
{
    sl_plan *to = &it->to->plan;
    to->allocations = plan_grow(to->allocations, to->allocation_count, &it->allocation_room,
                                sizeof *to->allocations);
    to->allocations[to->allocation_count++] = *what;
}

/* One slot: an allocation for each run of ticks with one owner. All slots but the last take the
 * bytes up to the next. */
static inline void unroll_slot(unroller *it, const sl_allocation *from, uint32_t slot)
{
    uint32_t end = it->to->program.op_count, slots = from->place.slots > 1 ? from->place.slots : 1;
    bool has_owner = from->chunk_index == SL_NONE && from->value != SL_NONE &&
                     it->copy_count[from->value] > 1,
         is_open = false;
    sl_allocation run = *from;
    run.place = (sl_place){.tier = from->place.tier,
                           .offset = from->place.offset + slot * from->place.stride,
                           .bytes = slot + 1 < slots ? from->place.stride : from->place.bytes};
    for (uint32_t flat = 0; flat <= end; flat++) {
        uint32_t owner = from->value;
        if (has_owner)
            owner = unroll_owner(it, from, slot, flat);
        else if (from->chunk_index == SL_NONE && from->value != SL_NONE)
            owner = it->first_value[from->value];
        bool lives = unroll_lives_at(it, from, flat);
        if (is_open && (!lives || owner != run.value)) {
            unroll_add_allocation(it, &run);
            is_open = false;
        }
        if (lives && !is_open)
            run.first_tick = flat;
        run.value = owner;
        run.last_tick = flat;
        is_open = lives;
    }
    if (is_open)
        unroll_add_allocation(it, &run);
}

static inline void unroll_allocations(unroller *it)
{
    for (uint32_t i = 0; i < it->looped->allocation_count; i++) {
        const sl_allocation *from = &it->looped->allocations[i];
        uint32_t slots = from->place.slots > 1 ? from->place.slots : 1;
        for (uint32_t slot = 0; slot < slots; slot++)
            unroll_slot(it, from, slot);
    }
}

/* ---- all of it ---- */

/* Refers to the layout and the homes of `from`; close with unroll_close. */
static inline void unroll_open(const sl_plan_request *from, const sl_plan *looped, unrolled *out)
{
    size_t count = from->program->value_count;
    *out = (unrolled){.request = *from};
    unroller it = {.from = from, .looped = looped, .to = out};
    it.first_value = unroll_new(count, sizeof *it.first_value);
    it.copy_count = unroll_new(count, sizeof *it.copy_count);
    it.home_section = unroll_new(count, sizeof *it.home_section);
    unroll_program(&it);
    unroll_body(&it);
    unroll_allocations(&it);
    memcpy(out->plan.peak_bytes, looped->peak_bytes, sizeof looped->peak_bytes);
    edit_recount(&out->plan);
    out->request.program = &out->program;
    plan_builder sums = {.request = &out->request, .plan = out->plan};
    plan_sum(&sums);
    out->plan = sums.plan;
    free(it.first_value);
    free(it.copy_count);
    free(it.home_section);
    free(it.section_of);
    free(it.tick_of);
    free(it.repetition_of);
}

static inline void unroll_close(unrolled *it)
{
    edit_close(&it->plan);
    free(it->program.ops);
    free(it->program.values);
}

#endif
