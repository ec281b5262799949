/* Does the verifier accept a plan that computes something else? The judge is a machine of symbols
 * (plan_machine.h) that runs plans in random orders and knows nothing of the verifier's method.
 *
 * Random plans of GPT-2 steps, every other one over three tiers, are damaged at random: waits
 * dropped, turned or moved, copies moved, removed or redirected, allocations put elsewhere with all
 * that is in them. Whatever the verifier still accepts must come out right in every order tried.
 * Undamaged plans must come out right too, and so that the judge is known to see, it must find many
 * of the rejected ones wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "chunk/plan_cases.h"
#include "plan_machine.h"
#include "sanitizer_share.h"

enum { QUICK_PLANS = 25, FULL_PLANS = 1500, DAMAGES = 30, ORDERS = 3 };

typedef struct damage {
    const sl_plan_request *request;
    sl_plan *plan;
    uint64_t seed, draws;
} damage;

static uint32_t draw(damage *it, uint32_t bound)
{
    return bound == 0 ? 0 : (uint32_t)sl_rng_below(it->seed, 31, it->draws++, bound);
}

/* A random command with a wait; SL_NONE if none was found. */
static uint32_t draw_waiting(damage *it)
{
    uint32_t start = draw(it, it->plan->body_count);
    for (uint32_t i = 0; i < it->plan->body_count; i++) {
        uint32_t index = (start + i) % it->plan->body_count;
        if (it->plan->body[index].wait_count > 0)
            return index;
    }
    return SL_NONE;
}

static uint32_t draw_copy(damage *it)
{
    uint32_t start = draw(it, it->plan->body_count);
    for (uint32_t i = 0; i < it->plan->body_count; i++) {
        uint32_t index = (start + i) % it->plan->body_count;
        if (it->plan->body[index].kind == SL_COMMAND_COPY)
            return index;
    }
    return SL_NONE;
}

static bool drop_wait(damage *it)
{
    uint32_t index = draw_waiting(it);
    if (index != SL_NONE)
        edit_drop_wait(it->plan, index, draw(it, it->plan->body[index].wait_count));
    return index != SL_NONE;
}

/* The wait names another command, near the one before. */
static bool turn_wait(damage *it)
{
    uint32_t index = draw_waiting(it);
    if (index == SL_NONE)
        return false;
    const sl_command *command = &it->plan->body[index];
    sl_wait *wait = &it->plan->waits[command->first_wait + draw(it, command->wait_count)];
    uint32_t back = draw(it, 8);
    wait->command = wait->command > back ? wait->command - back : 0;
    return true;
}

static bool turn_wait_back(damage *it)
{
    uint32_t index = draw_waiting(it);
    if (index == SL_NONE)
        return false;
    const sl_command *command = &it->plan->body[index];
    it->plan->waits[command->first_wait + draw(it, command->wait_count)].age = 1;
    return true;
}

static bool move_copy(damage *it)
{
    uint32_t index = draw_copy(it), span = 1 + draw(it, 24);
    if (index == SL_NONE)
        return false;
    uint32_t to = draw(it, 2) ? index + span : (index > span ? index - span : 0);
    edit_move(it->request, it->plan, index,
              to < it->plan->body_count ? to : it->plan->body_count - 1);
    return true;
}

static bool remove_copy(damage *it)
{
    uint32_t index = draw_copy(it);
    if (index != SL_NONE)
        edit_remove(it->plan, index);
    return index != SL_NONE;
}

static bool remove_prologue(damage *it)
{
    if (it->plan->prologue_count == 0)
        return false;
    uint32_t index = draw(it, it->plan->prologue_count);
    it->plan->prologue[index] = it->plan->prologue[--it->plan->prologue_count];
    return true;
}

static bool redirect_copy(damage *it)
{
    uint32_t index = draw_copy(it);
    sl_command *copy = index == SL_NONE ? NULL : &it->plan->body[index];
    if (!copy || copy->chunk_index == SL_NONE)
        return false;
    uint32_t chunk = draw(it, it->request->layout->chunk_count);
    if (it->request->homes->tier[copy->group][chunk] != copy->from.tier)
        return false;
    copy->chunk_index = chunk;
    copy->from.offset = it->request->homes->offset[copy->group][chunk];
    return true;
}

static void shift_place(sl_place *place, const sl_place *within, uint64_t offset)
{
    if (place->bytes > 0 && place->tier == within->tier && place->offset >= within->offset &&
        place->offset + place->bytes <= within->offset + within->bytes)
        place->offset += offset - within->offset;
}

/* Everything of the allocation's object that lies in it moves along. */
static void shift_command(damage *it, sl_command *command, const sl_allocation *from,
                          uint64_t offset)
{
    uint32_t object = from->chunk_index == SL_NONE
                          ? from->value
                          : touch_chunk(it->request, from->group, from->chunk_index);
    if (command->kind == SL_COMMAND_COPY) {
        if (touch_copied(it->request, command) != object)
            return;
        shift_place(&command->from, &from->place, offset);
        shift_place(&command->to, &from->place, offset);
        return;
    }
    const sl_op *op = &it->request->program->ops[command->tick];
    for (uint32_t i = 0; i + 1 < command->place_count; i++)
        if (op->operand[i] != SL_NONE && touch_object(it->request, op->operand[i]) == object)
            shift_place(&it->plan->places[command->first_place + i], &from->place, offset);
}

/* An allocation moves to a random offset, over whatever is there. */
static bool move_allocation(damage *it)
{
    sl_allocation *moved = &it->plan->allocations[draw(it, it->plan->allocation_count)];
    sl_allocation from = *moved;
    uint64_t low = it->request->homes->fixed_bytes[from.place.tier];
    uint64_t room = it->plan->peak_bytes[from.place.tier] - low;
    if (from.is_permanent || from.kind == SL_MEMORY_STAGING || from.kind == SL_MEMORY_WORKSPACE ||
        room < from.place.bytes)
        return false;
    uint64_t steps = (room - from.place.bytes) / UNIT_BYTES + 1;
    moved->place.offset = low / UNIT_BYTES * UNIT_BYTES + UNIT_BYTES * draw(it, (uint32_t)steps);
    for (uint32_t i = 0; i < it->plan->body_count; i++)
        shift_command(it, &it->plan->body[i], &from, moved->place.offset);
    for (uint32_t i = 0; i < it->plan->prologue_count; i++)
        shift_command(it, &it->plan->prologue[i], &from, moved->place.offset);
    return true;
}

static bool (*const damages[])(damage *) = {
    drop_wait,     turn_wait,       turn_wait_back, move_copy,       remove_copy, remove_prologue,
    redirect_copy, move_allocation, drop_wait,      move_allocation, move_copy};

enum { DAMAGE_KINDS = sizeof damages / sizeof *damages };

typedef struct verdicts {
    uint32_t accepted, rejected, seen; /* seen: rejected, and the machine found it wrong */
} verdicts;

static bool is_right_in_all_orders(const sl_plan_request *request, const sl_plan *plan,
                                   uint64_t seed)
{
    for (uint32_t order = 0; order < ORDERS; order++)
        if (!machine_is_right(request, plan, seed * 1000 + order))
            return false;
    return true;
}

/* Is every place of the plan within the arenas? The machine checks none. */
static bool is_safe(const sl_plan *plan)
{
    for (uint32_t i = 0; i < plan->place_count; i++)
        if (plan->places[i].offset + plan->places[i].bytes > plan->peak_bytes[plan->places[i].tier])
            return false;
    for (uint32_t i = 0; i < plan->body_count; i++)
        for (uint32_t w = 0; w < plan->body[i].wait_count; w++)
            if (plan->waits[plan->body[i].first_wait + w].command >= plan->body_count)
                return false;
    return true;
}

static void judge_damage(const sl_plan_request *request, const sl_plan *plan, uint64_t seed,
                         verdicts *counts)
{
    sl_plan copy = edit_copy(plan);
    damage it = {.request = request, .plan = &copy, .seed = seed};
    uint32_t kind = draw(&it, DAMAGE_KINDS);
    if (damages[kind](&it)) {
        bool is_accepted = sl_plan_verify(request, &copy) == SL_OK;
        bool is_right = !is_safe(&copy) || is_right_in_all_orders(request, &copy, seed);
        if (is_accepted && !is_right)
            fail_msg("seed %llu: damage %u makes a wrong plan, and it was accepted",
                     (unsigned long long)seed, kind);
        counts->accepted += is_accepted;
        counts->rejected += !is_accepted;
        counts->seen += !is_accepted && !is_right;
    }
    edit_close(&copy);
}

/* Budgets near the least make plans that reuse memory and move much. */
static sl_status build_tight_plan(plan_case *it, sl_plan **out_plan)
{
    sl_shortage shortage = {0};
    uint32_t tier_count = it->homes->fixed_bytes[SL_TIER_DISK] > 0 ? 2 : 1;
    for (uint32_t tier = 0; tier < tier_count; tier++) {
        it->request.budget_bytes[tier] = 0;
        if (sl_plan_build(&it->request, out_plan, &shortage) != SL_ERROR_FIT)
            return SL_ERROR_INTERNAL;
        it->request.budget_bytes[tier] = shortage.needed_bytes;
    }
    return sl_plan_build(&it->request, out_plan, &shortage);
}

static void judge_plan(uint64_t seed, verdicts *counts)
{
    plan_case it;
    sl_plan *plan = NULL;
    sl_status status = seed % 2 ? plan_case_open(seed, &it) : tiered_case_open(seed, &it);
    if (status != SL_OK || build_tight_plan(&it, &plan) != SL_OK)
        fail_msg("seed %llu: no plan: %s", (unsigned long long)seed, sl_status_message());
    if (sl_plan_verify(&it.request, plan) != SL_OK)
        fail_msg("seed %llu: a right plan was rejected: %s", (unsigned long long)seed,
                 sl_status_message());
    if (!is_right_in_all_orders(&it.request, plan, seed))
        fail_msg("seed %llu: a plan comes out wrong, undamaged", (unsigned long long)seed);
    for (uint32_t i = 0; i < DAMAGES; i++)
        judge_damage(&it.request, plan, seed * 100 + i, counts);
    sl_plan_close(plan);
    plan_case_close(&it);
}

static void damaged_plan_when_accepted_then_right_in_every_order(void **state)
{
    (void)state;
    verdicts counts = {0};
    uint64_t count = getenv("SL_TEST_FULL") ? FULL_PLANS : sanitizer_share(QUICK_PLANS);
    const char *only = getenv("SL_TEST_SEED");
    uint64_t first = only ? strtoull(only, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + (only ? 1 : count); seed++)
        judge_plan(seed, &counts);
    print_message("seeds from %llu: %u damaged plans accepted and right; %u rejected, %u of them "
                  "seen to be wrong\n",
                  (unsigned long long)first, counts.accepted, counts.rejected, counts.seen);
    if (!only) {
        assert_true(counts.accepted >= count); /* or it judges next to nothing */
        assert_true(counts.seen * 4 >= counts.rejected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_plan_when_accepted_then_right_in_every_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
