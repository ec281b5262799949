/* The verifier is the last thing between a wrong plan and wrong numbers. It could be wrong in two
 * ways: it rejects a right plan, or it accepts a wrong one.
 *
 * For the first, plans written by hand, with no wait that is not needed, must pass. For the second,
 * every fault of plan_faults.h must be rejected for its own reason, and so must the plan without
 * any single one of its waits.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/status.h"
#include "plan_faults.h"
#include "plan_listing.h"
#include "small_tiers.h"

static void expect_accepted(const sl_plan_request *request, const sl_plan *plan)
{
    sl_status status = sl_plan_verify(request, plan);
    if (status != SL_OK)
        fail_msg("a right plan was rejected: %s", sl_status_message());
}

static void hand_plan_when_right_then_accepted(void **state)
{
    (void)state;
    sl_plan plan = make_small_plan();
    assert_int_equal(plan.body_count, 20);
    expect_accepted(&small_request, &plan);
    plan_close(&plan);
}

/* The plan has no wait too many: without any one of them it is wrong. */
static void hand_plan_when_a_wait_is_missing_then_rejected(void **state)
{
    (void)state;
    sl_plan plan = make_small_plan();
    assert_int_equal(plan.wait_count, 7);
    for (uint32_t i = 0; i < plan.body_count; i++) {
        if (plan.body[i].wait_count == 0)
            continue;
        assert_int_equal(plan.body[i].wait_count, 1);
        plan.body[i].wait_count = 0;
        assert_int_equal(sl_plan_verify(&small_request, &plan), SL_ERROR_INTERNAL);
        assert_non_null(strstr(sl_status_message(), "without waiting for command"));
        plan.body[i].wait_count = 1;
    }
    expect_accepted(&small_request, &plan);
    plan_close(&plan);
}

/* Accepted as it is, and rejected without any one of its waits. */
static void expect_no_wait_too_many(const sl_plan_request *request, const sl_plan *plan)
{
    expect_accepted(request, plan);
    for (uint32_t i = 0; i < plan->body_count; i++)
        for (uint32_t w = 0; w < plan->body[i].wait_count; w++) {
            sl_plan copy = edit_copy(plan);
            edit_drop_wait(&copy, i, w);
            if (sl_plan_verify(request, &copy) != SL_ERROR_INTERNAL ||
                !strstr(sl_status_message(), "without waiting for command"))
                fail_msg("command %u needs no wait on %u", i,
                         plan->waits[plan->body[i].first_wait + w].command);
            edit_close(&copy);
        }
}

static void disk_plan_when_right_then_accepted_and_every_wait_is_needed(void **state)
{
    (void)state;
    sl_plan plan = make_disk_plan();
    assert_int_equal(plan.body_count, 26);
    assert_int_equal(plan.wait_count, 11);
    expect_no_wait_too_many(&small_disk_request, &plan);
    plan_close(&plan);
}

static void away_plan_when_right_then_accepted_and_every_wait_is_needed(void **state)
{
    (void)state;
    for (int away = SL_TIER_HOST; away <= SL_TIER_DISK; away++) {
        sl_plan plan = make_away_plan((sl_tier)away);
        assert_int_equal(plan.wait_count, away == SL_TIER_DISK ? 12 : 10);
        expect_no_wait_too_many(&small_away_request, &plan);
        plan_close(&plan);
    }
}

/* Plants a fault in a copy of the plan. Was it rejected, and for its reason? True if it had no
 * place. */
static bool is_rejected(const sl_plan_request *request, const sl_plan *plan,
                        const plan_fault *fault, bool *out_is_planted)
{
    sl_plan copy = edit_copy(plan);
    bool is_right = true;
    *out_is_planted = fault->plant(request, &copy);
    if (*out_is_planted) {
        sl_status status = sl_plan_verify(request, &copy);
        is_right = status == SL_ERROR_INTERNAL && strstr(sl_status_message(), fault->message);
        if (!is_right)
            print_error("%s: %s\n", fault->name,
                        status == SL_OK ? "accepted" : sl_status_message());
    }
    edit_close(&copy);
    return is_right;
}

/* Budgets are as tight as can be, so that a larger peak is over them. */
static void hand_plan_when_faulty_then_rejected_for_its_reason(void **state)
{
    (void)state;
    sl_plan plan = make_small_plan();
    sl_plan_request request = small_request;
    memcpy(request.budget_bytes, plan.peak_bytes, sizeof request.budget_bytes);
    expect_accepted(&request, &plan);
    uint32_t planted = 0, missed = 0;
    for (uint32_t i = 0; i < PLAN_FAULT_COUNT; i++) {
        bool is_planted;
        missed += !is_rejected(&request, &plan, &plan_faults[i], &is_planted);
        planted += is_planted;
    }
    assert_int_equal(missed, 0);
    assert_true(planted >=
                54); /* the rest needs visits within the iteration: test_verify_plans.c */
    plan_close(&plan);
}

static void tiered_hand_plans_when_faulty_then_rejected_for_their_reason(void **state)
{
    (void)state;
    sl_plan plans[] = {make_disk_plan(), make_away_plan(SL_TIER_HOST),
                       make_away_plan(SL_TIER_DISK)};
    uint32_t planted[3] = {0}, missed = 0;
    for (uint32_t p = 0; p < 3; p++) {
        sl_plan_request request = p == 0 ? small_disk_request : small_away_request;
        memcpy(request.budget_bytes, plans[p].peak_bytes, sizeof request.budget_bytes);
        for (uint32_t i = 0; i < PLAN_FAULT_COUNT; i++) {
            bool is_planted;
            missed += !is_rejected(&request, &plans[p], &plan_faults[i], &is_planted);
            planted[p] += is_planted;
        }
        plan_close(&plans[p]);
    }
    print_message("%u, %u and %u faults\n", planted[0], planted[1], planted[2]);
    assert_int_equal(missed, 0);
}

/* The verifier does not compare the list with the commands; plan_listing.h does. */
static void hand_plans_when_their_lists_are_faulty_then_seen(void **state)
{
    (void)state;
    sl_plan plans[] = {make_small_plan(), make_disk_plan(), make_away_plan(SL_TIER_HOST),
                       make_away_plan(SL_TIER_DISK)};
    const sl_plan_request *requests[] = {&small_request, &small_disk_request, &small_away_request,
                                         &small_away_request};
    uint32_t planted = 0;
    for (uint32_t p = 0; p < 4; p++) {
        assert_true(listing_is_true(requests[p], &plans[p]));
        planted += plant_listing_faults(requests[p], &plans[p]);
        plan_close(&plans[p]);
    }
    assert_true(planted >= 30);
}

static void plan_when_it_uses_a_buffer_of_the_caller_then_rejected(void **state)
{
    (void)state;
    const plan_fault hop = {"hop", fault_hop_in_buffer, "which hold"};
    const plan_fault away = {"away", fault_buffer_where_away,
                             "the end of an iteration needs value"};
    sl_plan disk_plan = make_disk_plan(), away_plan = make_away_plan(SL_TIER_HOST);
    bool is_planted[2];
    assert_true(is_rejected(&small_disk_request, &disk_plan, &hop, &is_planted[0]));
    assert_true(is_rejected(&small_away_request, &away_plan, &away, &is_planted[1]));
    assert_true(is_planted[0] && is_planted[1]);
    plan_close(&disk_plan);
    plan_close(&away_plan);
}

/* ---- faults of the small plan alone: what no real plan comes near ---- */

static sl_allocation *find_slot(sl_plan *plan, uint32_t value)
{
    for (uint32_t i = 0; i < plan->allocation_count; i++)
        if (plan->allocations[i].value == value && plan->allocations[i].place.tier == SL_TIER_HOST)
            return &plan->allocations[i];
    return NULL;
}

#define EDIT(name, ...)                                                                            \
    static bool fault_##name(const sl_plan_request *request, sl_plan *plan)                        \
    {                                                                                              \
        (void)request;                                                                             \
        __VA_ARGS__;                                                                               \
        return true;                                                                               \
    }

enum { INPUT_COPY = 0, FIRST_RUN = 1, LOSS_RUN = 4, GRAD_COPY = 12, HOST_RUN = 17, FETCH = 19 };

EDIT(kind_unknown, plan->body[FIRST_RUN].kind = (sl_command_kind)7)
EDIT(lane_unknown, plan->body[FIRST_RUN].lane = SL_LANE_COUNT)
EDIT(op_unknown, plan->body[FIRST_RUN].tick = SMALL_OP_COUNT)
EDIT(copy_after_last, plan->body[FETCH].tick = SMALL_OP_COUNT + 1)
EDIT(copy_within_device, plan->body[FETCH].from = plan->body[FETCH].to)
EDIT(copy_of_no_chunk, plan->body[FETCH].chunk_index = 2)
EDIT(copy_of_no_group, plan->body[FETCH].group = SL_GROUP_MASTER)
EDIT(copy_of_no_value, plan->body[INPUT_COPY].value = VALUE_COUNT)
EDIT(copy_of_tensor, plan->body[INPUT_COPY].value = P0)
EDIT(copy_over_flags, plan->body[FETCH].to.offset = 131072)
EDIT(gradient_in_prologue, plan->prologue[0].group = SL_GROUP_GRAD;
     plan->prologue[0].from.offset = 32768)
EDIT(copy_beyond_groups, plan->body[FETCH].group = SL_GROUP_COUNT)
EDIT(allocation_beyond_groups, plan->allocations[0].group = SL_GROUP_COUNT)
EDIT(place_on_no_tier, fault_place(plan, FIRST_RUN, 1)->tier = SL_TIER_COUNT)
EDIT(workspace_on_host, fault_place(plan, LOSS_RUN, 3)->tier = SL_TIER_HOST;
     fault_place(plan, LOSS_RUN, 3)->offset = 0)
EDIT(tensor_below_chunk, fault_place(plan, 2, 1)->offset = 0)
EDIT(tensor_beside_home, fault_place(plan, 3, 1)->offset += 256)
EDIT(chunk_beyond_peak, fault_place(plan, FIRST_RUN, 0)->offset = VISIT + 8192)
EDIT(activation_over_flags, fault_place(plan, FIRST_RUN, 1)->offset = 131072)
EDIT(slot_twice, plan->allocations[plan->allocation_count] = *find_slot(plan, LOSS);
     plan->allocation_count++)
EDIT(slot_too_small, find_slot(plan, LOSS)->place.bytes = 4)
EDIT(slot_missing, find_slot(plan, LOSS)->last_tick = 1)
EDIT(allocation_of_no_kind, plan->allocations[0].kind = SL_MEMORY_KIND_COUNT)
EDIT(allocation_of_no_value, find_slot(plan, LOSS)->value = VALUE_COUNT)
EDIT(allocation_of_no_chunk, plan->allocations[0].chunk_index = 2)
EDIT(allocation_on_no_tier, plan->allocations[0].place.tier = SL_TIER_COUNT)
EDIT(allocation_outside,
     plan->allocations[plan->allocation_count - 1].place.offset = UINT64_MAX - 8)
EDIT(permanent_for_a_while, plan->allocations[0].last_tick = 1)
EDIT(peak_below_homes, plan->peak_bytes[SL_TIER_HOST] = 131072)
#undef EDIT

#define FAULT(name, message)                                                                       \
    {                                                                                              \
#name, fault_##name, message                                                               \
    }
static const plan_fault small_faults[] = {
    FAULT(kind_unknown, "of a kind that has no place here"),
    FAULT(lane_unknown, "which does not exist"),
    FAULT(op_unknown, "runs an op that the program does not have"),
    FAULT(copy_after_last, "after the last"),
    FAULT(copy_within_device, "which no lane does"),
    FAULT(copy_of_no_chunk, "copies a chunk that does not exist"),
    FAULT(copy_of_no_group, "copies a chunk that does not exist"),
    FAULT(copy_of_no_value, "copies a value that does not exist"),
    FAULT(copy_of_tensor, "copies a value that does not move by itself"),
    FAULT(copy_over_flags, "among what outlives the plan"),
    FAULT(gradient_in_prologue,
          "prologue command 0 (copy of grad chunk 0) needs grad chunk 0, which"),
    FAULT(copy_beyond_groups, "copies a chunk that does not exist"),
    FAULT(allocation_beyond_groups, "is for a chunk that does not exist"),
    FAULT(place_on_no_tier, "in a tier that does not exist"),
    FAULT(workspace_on_host, "has workspace in tier host"),
    FAULT(tensor_below_chunk, "bytes into its chunk"),
    FAULT(tensor_beside_home, "has param chunk 1 at device byte 256, but its home is at byte 0"),
    FAULT(chunk_beyond_peak, "outside the peak"),
    FAULT(activation_over_flags, "among what outlives the plan"),
    FAULT(slot_twice, "has two buffers"),
    FAULT(slot_too_small, "has a buffer of 4"),
    FAULT(slot_missing, "not at the value's buffer"),
    FAULT(allocation_of_no_kind, "is of no kind"),
    FAULT(allocation_of_no_value, "not at the value's buffer"),
    FAULT(allocation_of_no_chunk, "is for a chunk that does not exist"),
    FAULT(allocation_on_no_tier, "is in a tier that does not exist"),
    FAULT(allocation_outside, "is outside the peak"),
    FAULT(permanent_for_a_while, "does not live at all ticks"),
    FAULT(peak_below_homes, "does not hold the homes"),
};
#undef FAULT

static void hand_plan_when_damaged_by_hand_then_rejected_for_its_reason(void **state)
{
    (void)state;
    sl_plan plan = make_small_plan();
    uint32_t missed = 0;
    for (size_t i = 0; i < sizeof small_faults / sizeof *small_faults; i++) {
        bool is_planted;
        missed += !is_rejected(&small_request, &plan, &small_faults[i], &is_planted);
    }
    assert_int_equal(missed, 0);
    plan_close(&plan);
}

/* ---- plans of another program, layout or homes ---- */

static void expect_rejected(const sl_plan_request *request, const sl_plan *plan,
                            const char *message)
{
    sl_status status = sl_plan_verify(request, plan);
    if (status != SL_ERROR_INTERNAL || !strstr(sl_status_message(), message))
        fail_msg("expected \"%s\": %s", message,
                 status == SL_OK ? "accepted" : sl_status_message());
}

static void plan_when_homes_are_others_then_rejected(void **state)
{
    (void)state;
    sl_plan plan = make_small_plan();
    sl_plan_request request = small_request;
    sl_homes homes = small_homes;
    request.homes = &homes;
    homes.chunk_count = 1;
    expect_rejected(&request, &plan, "its homes are of 1 chunks");
    homes = small_homes;
    homes.tier[SL_GROUP_STATE1] = NULL;
    expect_rejected(&request, &plan, "is of a group without homes");
    homes = small_homes;
    homes.flags_bytes[SL_TIER_HOST] = 1;
    expect_rejected(&request, &plan, "needs 2 block flags from 0 on; there are 1");
    homes = small_homes;
    homes.flags_bytes[SL_TIER_DEVICE] = 3;
    expect_rejected(&request, &plan, "needs 2 block flags from 2 on; there are 3");
    homes = small_homes;
    homes.persistent_count = 1;
    homes.persistent_offset = (uint64_t[]){180224};
    homes.persistent_bytes = (uint64_t[]){512};
    expect_rejected(&request, &plan, "persistent slot 0 is not among what outlives it");
    plan_close(&plan);
}

/* A change of one value, with the plan as it was. */
static void expect_value_rejected(const sl_plan *plan, uint32_t index, const sl_value *value,
                                  const char *message)
{
    sl_value values[VALUE_COUNT];
    sl_program program = small_program;
    sl_plan_request request = small_request;
    memcpy(values, small_values, sizeof values);
    values[index] = *value;
    program.values = values;
    request.program = &program;
    expect_rejected(&request, plan, message);
}

static void plan_when_program_is_another_then_rejected(void **state)
{
    (void)state;
    sl_plan plan = make_small_plan();
    sl_value value = small_values[P0];
    value.index = 3;
    expect_value_rejected(&plan, P0, &value, "is tensor 3 of a layout of 3");
    value = small_values[PC0];
    value.index = 2;
    expect_value_rejected(&plan, PC0, &value, "is chunk 2 of a layout of 2");
    value = small_values[GC0];
    value.bytes = 8192;
    expect_value_rejected(&plan, GC0, &value, "has 16384 bytes for");
    value = small_values[X];
    value.kind = SL_VALUE_PERSISTENT;
    expect_value_rejected(&plan, X, &value, "is persistent slot 0, which is not there");
    plan_close(&plan);
}

/* Two row ranges write dx; the second one, and who reads it, use a place without the first rows. */
/* Rows that an op makes, or adds to, of four. */
typedef struct row_range {
    uint64_t first, count;
    bool adds;
} row_range;

/* The small request, but ops 5 and 6 make dx by row ranges. */
typedef struct row_request {
    sl_op ops[SMALL_OP_COUNT];
    sl_program program;
    sl_plan_request request;
} row_request;

static void open_row_request(row_request *it, const row_range ranges[2])
{
    it->program = small_program;
    it->request = small_request;
    memcpy(it->ops, small_ops, sizeof it->ops);
    for (uint32_t i = 0; i < 2; i++)
        it->ops[5 + i] = (sl_op){.kind = SL_OP_HEAD_INPUT_BACKWARD,
                                 .attrs = {.batch = 2,
                                           .seq = 2,
                                           .row_count = ranges[i].count,
                                           .first_row = ranges[i].first,
                                           .adds_output = ranges[i].adds},
                                 .operand = {Y, P2, DX}};
    it->program.ops = it->ops;
    it->request.program = &it->program;
}

static void rows_when_none_is_left_out_then_accepted(void **state)
{
    (void)state;
    static const row_range cases[][2] = {
        {{0, 2, false}, {2, 2, false}}, /* one behind the other */
        {{0, 4, false}, {0, 4, true}},  /* added to */
        {{0, 4, false}, {1, 2, true}},
        {{0, 3, false}, {1, 3, false}}, /* rows that were written are written again */
        {{0, 2, false}, {0, 4, false}}, /* made anew */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        row_request it;
        open_row_request(&it, cases[i]);
        sl_plan plan = make_small_plan_of(&it.request);
        expect_accepted(&it.request, &plan);
        plan_close(&plan);
    }
}

static void rows_when_some_are_left_out_then_rejected(void **state)
{
    (void)state;
    static const struct {
        row_range ranges[2];
        const char *message;
    } cases[] = {
        {{{0, 2, false}, {3, 1, false}},
         "tick 6) needs the first 3 rows of value 9 (dx), of which only the first 2 were"},
        {{{0, 2, false}, {2, 1, false}},
         "tick 8) needs all rows of value 9 (dx), of which only the first 3 were"},
        {{{0, 2, false}, {2, 2, true}},
         "tick 6) needs all rows of value 9 (dx), of which only the first 2 were"},
        {{{0, 2, false}, {1, 2, true}},
         "tick 6) needs the first 3 rows of value 9 (dx), of which only the first 2 were"},
        {{{0, 4, false}, {0, 2, false}},
         "tick 8) needs all rows of value 9 (dx), of which only the first 2 were"},
        {{{2, 2, false}, {0, 2, false}}, "tick 5) needs value 9 (dx), which nothing has written"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        row_request it;
        open_row_request(&it, cases[i].ranges);
        sl_plan plan = make_small_plan_of(&it.request);
        expect_rejected(&it.request, &plan, cases[i].message);
        plan_close(&plan);
    }
}

static void rows_when_others_are_elsewhere_then_rejected(void **state)
{
    (void)state;
    static const row_range ranges[2] = {{0, 2, false}, {2, 2, false}};
    row_request it;
    open_row_request(&it, ranges);
    const sl_plan_request request = it.request;
    const sl_op *ops = it.ops;
    sl_plan plan = make_small_plan_of(&request);
    expect_accepted(&request, &plan);
    for (uint32_t i = 0; i < plan.body_count; i++)
        for (uint32_t j = 0; plan.body[i].kind == SL_COMMAND_RUN && plan.body[i].tick > 5 &&
                             j + 1 < plan.body[i].place_count;
             j++)
            if (ops[plan.body[i].tick].operand[j] == DX)
                fault_place(&plan, i, j)->offset = 132096; /* x, which is done with */
    expect_rejected(&request, &plan, "(head_input_backward, tick 6) needs value 9 (dx)");
    plan_close(&plan);
}

/* An output that no op writes needs no slot. */
static void plan_when_an_output_is_unused_then_accepted(void **state)
{
    (void)state;
    sl_value values[VALUE_COUNT + 1];
    sl_program program = small_program;
    sl_plan_request request = small_request;
    sl_plan plan = make_small_plan();
    memcpy(values, small_values, sizeof small_values);
    values[VALUE_COUNT] = (sl_value){.kind = SL_VALUE_OUTPUT, .index = 2, .bytes = 8};
    program.values = values;
    program.value_count++;
    request.program = &program;
    expect_accepted(&request, &plan);
    plan_close(&plan);
}

/* A copy of an array whose end no byte follows. */
static void *put_before_nothing(const void *array, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page * page;
    char *memory =
        mmap(NULL, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + pages, page, PROT_NONE), 0);
    return memcpy(memory + pages - bytes, array, bytes);
}

/* Lists end where they end: what is read behind one ends this program. */
static void plan_when_its_lists_end_at_a_page_then_nothing_behind_is_read(void **state)
{
    (void)state;
    sl_plan plan = make_small_plan(), exact = plan;
    sl_program program = small_program;
    sl_plan_request request = small_request;
    program.values = put_before_nothing(small_values, sizeof small_values);
    program.ops = put_before_nothing(small_ops, sizeof small_ops);
    request.program = &program;
    exact.prologue = put_before_nothing(plan.prologue, plan.prologue_count * sizeof *plan.prologue);
    exact.body = put_before_nothing(plan.body, plan.body_count * sizeof *plan.body);
    exact.places = put_before_nothing(plan.places, plan.place_count * sizeof *plan.places);
    exact.waits = put_before_nothing(plan.waits, plan.wait_count * sizeof *plan.waits);
    exact.allocations =
        put_before_nothing(plan.allocations, plan.allocation_count * sizeof *plan.allocations);
    expect_accepted(&request, &exact);
    plan_close(&plan); /* the copies stay until this program ends */
}

/* Words of a plan turned at random: any verdict will do, but nothing may break. */
static void plan_when_garbled_then_judged_without_harm(void **state)
{
    (void)state;
    enum { TRIES = 20000 };
    sl_plan plan = make_small_plan();
    uint32_t accepted = 0;
    for (uint64_t seed = 0; seed < TRIES; seed++) {
        sl_plan copy = edit_copy(&plan);
        struct {
            void *first;
            size_t bytes;
        } arrays[] = {{copy.prologue, copy.prologue_count * sizeof *copy.prologue},
                      {copy.body, copy.body_count * sizeof *copy.body},
                      {copy.places, copy.place_count * sizeof *copy.places},
                      {copy.waits, copy.wait_count * sizeof *copy.waits},
                      {copy.allocations, copy.allocation_count * sizeof *copy.allocations}};
        size_t array = sl_rng_below(seed, 41, 0, 5);
        size_t at = 4 * sl_rng_below(seed, 41, 1, arrays[array].bytes / 4);
        static const uint32_t words[] = {0, 1, 2, 5, 255, 256, 4096, UINT32_MAX, INT32_MAX, 20};
        uint32_t word = words[sl_rng_below(seed, 41, 2, sizeof words / sizeof *words)];
        bool is_flag = array == 4 &&
                       at % sizeof(sl_allocation) == offsetof(sl_allocation, is_permanent) / 4 * 4;
        memcpy((char *)arrays[array].first + at, &word, is_flag ? 0 : sizeof word);
        sl_status status = sl_plan_verify(&small_request, &copy);
        assert_true(status == SL_OK || status == SL_ERROR_INTERNAL);
        accepted += status == SL_OK;
        edit_close(&copy);
    }
    assert_true(accepted < TRIES / 2); /* words that stay as they were, or mean nothing */
    plan_close(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hand_plan_when_right_then_accepted),
        cmocka_unit_test(hand_plan_when_a_wait_is_missing_then_rejected),
        cmocka_unit_test(disk_plan_when_right_then_accepted_and_every_wait_is_needed),
        cmocka_unit_test(away_plan_when_right_then_accepted_and_every_wait_is_needed),
        cmocka_unit_test(hand_plan_when_faulty_then_rejected_for_its_reason),
        cmocka_unit_test(tiered_hand_plans_when_faulty_then_rejected_for_their_reason),
        cmocka_unit_test(plan_when_it_uses_a_buffer_of_the_caller_then_rejected),
        cmocka_unit_test(hand_plans_when_their_lists_are_faulty_then_seen),
        cmocka_unit_test(hand_plan_when_damaged_by_hand_then_rejected_for_its_reason),
        cmocka_unit_test(plan_when_homes_are_others_then_rejected),
        cmocka_unit_test(plan_when_program_is_another_then_rejected),
        cmocka_unit_test(rows_when_none_is_left_out_then_accepted),
        cmocka_unit_test(rows_when_some_are_left_out_then_rejected),
        cmocka_unit_test(rows_when_others_are_elsewhere_then_rejected),
        cmocka_unit_test(plan_when_an_output_is_unused_then_accepted),
        cmocka_unit_test(plan_when_its_lists_end_at_a_page_then_nothing_behind_is_read),
        cmocka_unit_test(plan_when_garbled_then_judged_without_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
