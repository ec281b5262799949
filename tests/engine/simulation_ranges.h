/* Which bytes the commands at work touch: two of them that touch the same bytes, one writing, are a
 * hazard that no wait ordered. Commands are known by their tags; see src/engine/statistics.c. */
#ifndef SL_TESTS_SIMULATION_RANGES_H
#define SL_TESTS_SIMULATION_RANGES_H

#include <stdio.h>
#include <string.h>

#include "engine/engine_internal.h"

enum { SIM_LANES_MAX = 16, SIM_RANGES_MAX = SL_OPERAND_MAX + 2 };

typedef struct sim_range {
    sl_tier tier;
    uint64_t offset, bytes;
    bool is_written;
} sim_range;

typedef struct sim_ranges {
    const sl_program *program; /* NULL: nothing is checked */
    const sl_plan *plan;
    struct {
        uint32_t command, count; /* count 0: not at work */
        sim_range ranges[SIM_RANGES_MAX];
    } at_work[SIM_LANES_MAX];
    uint64_t entered;
    char words[256];
} sim_ranges;

static void sim_ranges_clear(sim_ranges *all)
{
    memset(all->at_work, 0, sizeof all->at_work);
    all->entered = 0;
}

static void sim_ranges_add(sim_ranges *all, uint32_t lane, const sl_place *place,
                           uint32_t repetition, bool is_written)
{
    if (place->bytes == 0)
        return;
    all->at_work[lane].ranges[all->at_work[lane].count++] =
        (sim_range){place->tier, sl_place_offset(place, repetition), place->bytes, is_written};
}

static void sim_ranges_add_op(sim_ranges *all, uint32_t lane, const sl_command *command,
                              uint32_t repetition)
{
    const sl_op *op = &all->program->ops[command->tick];
    const sl_place *places = &all->plan->places[command->first_place];
    for (uint32_t i = 0; i + 1 < command->place_count; i++) {
        bool is_written = sl_op_writes(op, i);
        if (is_written || sl_op_reads(op, i))
            sim_ranges_add(all, lane, &places[i], repetition, is_written);
    }
    sim_ranges_add(all, lane, &places[command->place_count - 1], repetition, true);
}

static bool sim_ranges_meet(const sim_range *a, const sim_range *b)
{
    return a->tier == b->tier && (a->is_written || b->is_written) &&
           a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static const char *sim_ranges_compare(sim_ranges *all, uint32_t lane, uint32_t other)
{
    for (uint32_t i = 0; i < all->at_work[lane].count; i++) {
        for (uint32_t j = 0; j < all->at_work[other].count; j++) {
            const sim_range *a = &all->at_work[lane].ranges[i];
            const sim_range *b = &all->at_work[other].ranges[j];
            if (!sim_ranges_meet(a, b))
                continue;
            snprintf(all->words, sizeof all->words,
                     "commands %u and %u are at work together on byte %llu of the %s tier",
                     all->at_work[lane].command, all->at_work[other].command,
                     (unsigned long long)(a->offset > b->offset ? a->offset : b->offset),
                     sl_tier_name(a->tier));
            return all->words;
        }
    }
    return NULL;
}

/* The command of `tag` begins on a lane; returns what is wrong with that, or NULL. */
static const char *sim_ranges_enter(sim_ranges *all, uint32_t lane, uint64_t tag)
{
    bool is_of_body = tag >> 62 == SL_TAG_COPY || tag >> 62 == SL_TAG_OP;
    if (!all->program || !is_of_body || (tag >> 54 & (SL_TAG_PLANS - 1)) != 0)
        return NULL;
    uint32_t index = tag >> 28 & (SL_TAG_COMMANDS - 1), repetition = tag & (SL_TAG_REPETITIONS - 1);
    const sl_command *command = &all->plan->body[index];
    all->at_work[lane].command = index;
    if (command->kind == SL_COMMAND_RUN) {
        sim_ranges_add_op(all, lane, command, repetition);
    } else {
        sim_ranges_add(all, lane, &command->from, repetition, false);
        sim_ranges_add(all, lane, &command->to, repetition, true);
    }
    all->entered++;
    for (uint32_t other = 0; other < SIM_LANES_MAX; other++) {
        const char *words = other == lane ? NULL : sim_ranges_compare(all, lane, other);
        if (words)
            return words;
    }
    return NULL;
}

static void sim_ranges_leave(sim_ranges *all, uint32_t lane)
{
    all->at_work[lane].count = 0;
}

#endif
