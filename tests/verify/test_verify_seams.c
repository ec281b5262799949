/* Faults of plans with repeated sections, planted where one repetition meets the next, or in one of
 * the sections before, in and after a loop: each must be rejected, for its reason, with a message
 * that names the section and the repetition where it shows.
 *
 * The plan: two loops, of five micro-batches, so three repetitions each (and once of nine, with
 * seven). Weights are fetched anew over each seam; the gradients of the first loop stay dirty over
 * its seams, those of the second go home and come back over each. A family is made in the first
 * loop (sections 0, 1, 2), used in the second (3, 4, 5), lives on the host, and passes the device
 * in a ring of two or in one place.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/status.h"
#include "looped_plans.h"

enum { WEIGHTS = 0, DIRTY = 1, RETURNING = 2, MESSAGE_BYTES = 600 };

static looped_case seams; /* the plan under test */
static sl_plan copy;      /* with a fault in it */

static void open_seams(uint32_t micro_batches, uint32_t slots)
{
    loop_choose(&seams, 1, micro_batches);
    seams.loops = 2;
    seams.is_shared = false;
    for (uint32_t c = 0; c < LOOP_CHUNKS; c++)
        seams.tiers[c] = SL_TIER_HOST;
    for (uint32_t loop = 0; loop < 2; loop++) {
        seams.read_chunk[loop] = WEIGHTS;
        seams.written_chunk[loop] = loop == 0 ? DIRTY : RETURNING;
        seams.stay[loop][WEIGHTS] = seams.stay[loop][RETURNING] = LOOP_STAY_SEAM;
        seams.stay[loop][DIRTY] = LOOP_STAY_LOOP;
    }
    seams.away[0] = (loop_away){.home = SL_TIER_HOST, .slots = slots};
    looped_build(&seams);
    if (sl_plan_verify(&seams.request, &seams.plan) != SL_OK)
        fail_msg("a right plan was rejected: %s", sl_status_message());
}

/* ---- sites ---- */

/* A copy over `lane` of a chunk, or of a value, in a section of the copied plan. */
static uint32_t find_copy(uint32_t section, sl_lane lane, uint32_t value)
{
    const sl_section *it = &copy.sections[section];
    const sl_value *what = &seams.values[value];
    for (uint32_t i = it->first; i < it->first + it->count; i++) {
        const sl_command *command = &copy.body[i];
        bool is_it = what->kind == SL_VALUE_CHUNK ? command->chunk_index == what->index
                                                  : command->value == value;
        if (command->kind == SL_COMMAND_COPY && command->lane == lane && is_it)
            return i;
    }
    fail_msg("section %u has no such copy", section);
    return SL_NONE;
}

/* The last op of a section that uses a value, and the value's place there. */
static sl_place *find_use(uint32_t section, uint32_t value, uint32_t *out_index)
{
    const sl_section *it = &copy.sections[section];
    for (uint32_t i = it->first + it->count; i > it->first; i--) {
        const sl_command *command = &copy.body[i - 1];
        for (uint32_t j = 0; command->kind == SL_COMMAND_RUN && j + 1 < command->place_count; j++)
            if (seams.ops[command->tick].operand[j] == value) {
                *out_index = i - 1;
                return &copy.places[command->first_place + j];
            }
    }
    fail_msg("section %u has no such use", section);
    return NULL;
}

/* The wait of `index` on a command of `lane` that is issued after it, or before. */
static uint32_t find_wait(uint32_t index, sl_lane lane, bool is_behind)
{
    const sl_command *command = &copy.body[index];
    for (uint32_t w = 0; w < command->wait_count; w++) {
        const sl_wait *wait = &copy.waits[command->first_wait + w];
        if (copy.body[wait->command].lane == lane && (wait->command >= index) == is_behind)
            return w;
    }
    fail_msg("command %u has no such wait", index);
    return SL_NONE;
}

static sl_wait *wait_at(uint32_t index, uint32_t wait)
{
    return &copy.waits[copy.body[index].first_wait + wait];
}

static void start_fault(void)
{
    copy = edit_copy(&seams.plan);
}

/* The plan with the fault must be rejected, with all of `parts` in the message. */
static void expect_rejected(const char *what, const char *const parts[], uint32_t count)
{
    plan_builder sums = {.request = &seams.request, .plan = copy};
    plan_sum(&sums);
    copy = sums.plan;
    edit_recount(&copy);
    sl_status status = sl_plan_verify(&seams.request, &copy);
    if (status != SL_ERROR_INTERNAL)
        fail_msg("%s: accepted", what);
    for (uint32_t i = 0; i < count; i++)
        if (!strstr(sl_status_message(), parts[i]))
            fail_msg("%s: \"%s\" is not in: %s", what, parts[i], sl_status_message());
    edit_close(&copy);
}

#define EXPECT_REJECTED(what, ...)                                                                 \
    do {                                                                                           \
        const char *const parts_[] = {__VA_ARGS__};                                                \
        expect_rejected(what, parts_, sizeof parts_ / sizeof *parts_);                             \
    } while (0)

/* ---- faults of one section ---- */

static const char *section_name(uint32_t section)
{
    static const char *const names[] = {"", " in repetition 0 of section 1", "",
                                        "", " in repetition 0 of section 4", ""};
    return names[section];
}

static void section_when_a_copy_is_missing_then_rejected_there(void **state)
{
    (void)state;
    open_seams(5, 2);
    for (uint32_t section = 0; section < 6; section++) {
        start_fault();
        edit_remove(&copy, find_copy(section, SL_LANE_H2D, seams.input));
        EXPECT_REJECTED("input copy missing", section_name(section), "(gelu, tick", "which hold");
    }
    start_fault();
    edit_remove(&copy, find_copy(1, SL_LANE_D2H, seams.away[0].value[1]));
    EXPECT_REJECTED("family stays", " in repetition 0 of section 4", "needs value");
    start_fault();
    edit_remove(&copy, find_copy(4, SL_LANE_H2D, seams.away[0].value[1]));
    EXPECT_REJECTED("family not fetched", " in repetition 0 of section 4", "needs value");
    start_fault();
    edit_remove(&copy, find_copy(2, SL_LANE_D2H, seams.chunk_value[DIRTY]));
    EXPECT_REJECTED("gradients not written back", "the end of an iteration needs param chunk 1");
    looped_close(&seams);
}

static void section_when_a_wait_is_missing_then_rejected_there(void **state)
{
    (void)state;
    open_seams(5, 2);
    for (uint32_t section = 0; section < 6; section++) {
        uint32_t fetch, index;
        start_fault();
        fetch = find_copy(section, SL_LANE_H2D, seams.input);
        edit_drop_wait(&copy, fetch, find_wait(fetch, SL_LANE_INPUT, false));
        EXPECT_REJECTED("fetch without input", section_name(section), "(input, tick",
                        "without waiting for");
        start_fault();
        index = fetch + 1;
        edit_drop_wait(&copy, index, find_wait(index, SL_LANE_H2D, false));
        EXPECT_REJECTED("use without fetch", section_name(section), "without waiting for");
    }
    looped_close(&seams);
}

/* ---- faults of seams ---- */

/* Each repetition uses the weights where the one before, but not the section before, puts them. */
static void seam_when_its_sides_differ_in_place_then_rejected(void **state)
{
    (void)state;
    for (uint32_t micro_batches = 5; micro_batches <= 9; micro_batches += 4) {
        uint32_t index;
        open_seams(micro_batches, 2);
        start_fault();
        find_use(1, seams.chunk_value[WEIGHTS], &index)->offset += 4096;
        EXPECT_REJECTED("place of another section", " in repetition 0 of section 1",
                        "needs param chunk 0");
        start_fault();
        sl_place *place = find_use(4, seams.away[0].value[1], &index);
        place->slots = 0;
        place->stride = 0;
        EXPECT_REJECTED("place of another repetition", " in repetition 1 of section 4",
                        "instance 1");
        looped_close(&seams);
    }
}

/* The write-back before the loop is there; those of the repetitions are not. */
static void seam_when_its_sides_differ_in_dirt_then_rejected(void **state)
{
    (void)state;
    for (uint32_t micro_batches = 5; micro_batches <= 9; micro_batches += 4) {
        open_seams(micro_batches, 2);
        start_fault();
        edit_remove(&copy, find_copy(4, SL_LANE_D2H, seams.chunk_value[RETURNING]));
        EXPECT_REJECTED("dirty over a seam", " in repetition 0 of section 4",
                        "copy of param chunk 2", "a stale version");
        looped_close(&seams);
    }
}

/* In repetition 1 for the first time: the wait is for the repetition before. */
static void seam_when_a_wait_is_missing_then_rejected(void **state)
{
    (void)state;
    for (uint32_t micro_batches = 5; micro_batches <= 9; micro_batches += 4) {
        uint32_t index;
        open_seams(micro_batches, 0);
        start_fault();
        index = copy.sections[1].first; /* the op that fills the input */
        edit_drop_wait(&copy, index, find_wait(index, SL_LANE_H2D, true));
        EXPECT_REJECTED("input over its reader", " in repetition 1 of section 1",
                        "in repetition 0, which reads them");
        start_fault();
        find_use(1, seams.away[0].value[1], &index);
        wait_at(index, find_wait(index, SL_LANE_D2H, true))->age = 1;
        EXPECT_REJECTED("age 1 for one slot", " in repetition 1 of section 1",
                        "in repetition 0, which reads them");
        looped_close(&seams);
    }
}

/* The family's ring in the loop that makes it gets `slots` slots, wherever it is named. */
static void set_slots(uint32_t slots)
{
    uint32_t index, value = seams.away[0].value[1];
    sl_place *place = find_use(1, value, &index), was = *place;
    sl_place *end = &copy.body[find_copy(1, SL_LANE_D2H, value)].from;
    for (uint32_t i = 0; i < copy.allocation_count; i++) {
        sl_place *it = &copy.allocations[i].place;
        if (it->tier == was.tier && it->offset == was.offset && it->slots == was.slots) {
            it->slots = slots;
            it->stride = slots ? was.stride : 0;
        }
    }
    place->slots = end->slots = slots;
    place->stride = end->stride = slots ? was.stride : 0;
}

static void ring_when_it_has_one_slot_then_rejected(void **state)
{
    (void)state;
    for (uint32_t micro_batches = 5; micro_batches <= 9; micro_batches += 4) {
        open_seams(micro_batches, 2);
        start_fault();
        set_slots(0);
        EXPECT_REJECTED("one slot", " in repetition 1 of section 1",
                        "in repetition 0, which reads them");
        start_fault();
        copy.places[0].stride = 4096;
        EXPECT_REJECTED("stride without slots", "has 0 slots");
        start_fault();
        set_slots(3);
        copy.peak_bytes[SL_TIER_DEVICE] += 4096;
        if (micro_batches == 5)
            edit_close(&copy); /* a slot for each: too large a ring, no fault */
        else
            EXPECT_REJECTED("three slots", "has 3 slots", " of section 1");
        looped_close(&seams);
    }
}

/* ---- faults of sections, places and lives ---- */

static sl_allocation *find_allocation(uint32_t chunk, uint32_t value, uint32_t tick)
{
    for (uint32_t i = 0; i < copy.allocation_count; i++) {
        sl_allocation *it = &copy.allocations[i];
        if (!it->is_permanent && it->chunk_index == chunk &&
            (chunk != SL_NONE || it->value == value) && plan_lives_at(it, tick))
            return it;
    }
    fail_msg("no such allocation");
    return NULL;
}

static void plan_when_its_sections_are_others_then_rejected(void **state)
{
    (void)state;
    open_seams(5, 2);
    start_fault();
    copy.sections[1].repeat++;
    EXPECT_REJECTED("repeat", "its section 1 is run 4 times");
    start_fault();
    copy.sections[1].first_micro_batch++;
    EXPECT_REJECTED("micro-batch", "its section 1 is run 3 times from micro-batch 2");
    start_fault();
    copy.sections[1].count--;
    copy.sections[2].first--;
    copy.sections[2].count++;
    EXPECT_REJECTED("cut short", "the ops of section 1 up to");
    start_fault();
    copy.sections[0].count++;
    copy.sections[1].first++;
    copy.sections[1].count--;
    EXPECT_REJECTED("cut late", "which is of another section");
    start_fault();
    copy.sections[2].first++;
    EXPECT_REJECTED("gap", "its section 2 has commands");
    start_fault();
    copy.section_count--;
    EXPECT_REJECTED("missing", "it has 5 sections, its program 6");
    looped_close(&seams);
}

static void place_when_its_slots_are_wrong_then_rejected(void **state)
{
    (void)state;
    uint32_t index;
    open_seams(5, 2);
    uint32_t value = seams.away[0].value[1];
    start_fault();
    find_use(1, value, &index)->stride = 2048;
    EXPECT_REJECTED("slots that overlap", "which are 2048 bytes apart", " of section 1");
    start_fault();
    find_use(1, value, &index)->stride = 4096 + 128;
    EXPECT_REJECTED("slots within a line", "which are 4224 bytes apart");
    start_fault();
    find_use(1, value, &index)->stride = UINT64_MAX - 255;
    EXPECT_REJECTED("slots without end", "outside the peak");
    start_fault();
    sl_place *sum = find_use(1, seams.sum, &index);
    sum->slots = 2;
    sum->stride = 4096;
    EXPECT_REJECTED("slots of one value", "which is no family");
    start_fault();
    sl_allocation *home = find_allocation(SL_NONE, value, loop_last_tick(&seams.sections[1]) + 1);
    home->place.slots = 4;
    copy.peak_bytes[SL_TIER_HOST] += 4096;
    EXPECT_REJECTED("slots of more instances", "neither two slots nor one an instance");
    start_fault();
    home = find_allocation(SL_NONE, value, loop_last_tick(&seams.sections[1]) + 1);
    home->place.stride = 2048;
    EXPECT_REJECTED("slots that overlap in the list", "has slots that overlap");
    looped_close(&seams);
}

/* A value that one section has to itself, and a family, in a section that has neither. */
static void value_when_it_is_of_another_section_then_rejected(void **state)
{
    (void)state;
    open_seams(5, 2);
    uint32_t first = seams.sections[1].first, value = seams.away[0].value[1];
    start_fault();
    uint32_t moved = find_copy(2, SL_LANE_H2D, seams.input);
    copy.body[moved].value = seams.ops[first + 1].operand[1];
    EXPECT_REJECTED("value of one section", "copies a value that section 1 uses alone");
    start_fault();
    copy.body[find_copy(2, SL_LANE_H2D, seams.input)].value = value;
    EXPECT_REJECTED("family of three", "copies a family of 3 in a section of 1");
    start_fault();
    seams.values[value].instances = 4;
    EXPECT_REJECTED("family of four", "of 4 instances in a section of 3 repetitions");
    seams.values[value].instances = 3;
    start_fault();
    seams.values[seams.input].instances = 3;
    EXPECT_REJECTED("inputs", "is a family of something else than activations");
    seams.values[seams.input].instances = 1;
    looped_close(&seams);
}

/* Words turned at random: any verdict will do, but nothing may break. */
static void looped_plan_when_garbled_then_judged_without_harm(void **state)
{
    (void)state;
    enum { TRIES = 6000 };
    static const uint32_t words[] = {0, 1, 2, 3, 5, 255, 256, 4096, UINT32_MAX, INT32_MAX, 7};
    uint32_t accepted = 0;
    open_seams(9, 2);
    for (uint64_t seed = 0; seed < TRIES; seed++) {
        start_fault();
        struct {
            void *first;
            size_t bytes;
        } arrays[] = {{copy.sections, copy.section_count * sizeof *copy.sections},
                      {copy.body, copy.body_count * sizeof *copy.body},
                      {copy.places, copy.place_count * sizeof *copy.places},
                      {copy.waits, copy.wait_count * sizeof *copy.waits},
                      {copy.allocations, copy.allocation_count * sizeof *copy.allocations}};
        size_t array = sl_rng_below(seed, 43, 0, 5);
        size_t at = 4 * sl_rng_below(seed, 43, 1, arrays[array].bytes / 4);
        uint32_t word = words[sl_rng_below(seed, 43, 2, sizeof words / sizeof *words)];
        bool is_flag = array == 4 &&
                       at % sizeof(sl_allocation) == offsetof(sl_allocation, is_permanent) / 4 * 4;
        memcpy((char *)arrays[array].first + at, &word, is_flag ? 0 : sizeof word);
        sl_status status = sl_plan_verify(&seams.request, &copy);
        assert_true(status == SL_OK || status == SL_ERROR_INTERNAL);
        accepted += status == SL_OK;
        edit_close(&copy);
    }
    assert_true(accepted < TRIES / 2);
    looped_close(&seams);
}

/* Commands count once for each repetition that is replayed: here no list is longer than the
 * verifier takes, but three repetitions of the first loop are. None of the commands is there to be
 * read. */
static void plan_when_its_repetitions_have_too_many_commands_then_rejected(void **state)
{
    (void)state;
    enum { MANY = 1 << 28 };
    open_seams(5, 2);
    copy = edit_copy(&seams.plan);
    uint32_t loop = 0, first = 0;
    while (copy.sections[loop].repeat == 1)
        loop++;
    assert_int_equal(copy.sections[loop].repeat, 3);
    copy.sections[loop].count = MANY;
    for (uint32_t s = 0; s < copy.section_count; s++) {
        copy.sections[s].first = first;
        first += copy.sections[s].count;
    }
    copy.body_count = first;
    assert_int_equal(sl_plan_verify(&seams.request, &copy), SL_ERROR_INTERNAL);
    assert_non_null(strstr(sl_status_message(), "it has more than 536870912 commands"));
    edit_close(&copy);
    looped_close(&seams);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_when_its_repetitions_have_too_many_commands_then_rejected),
        cmocka_unit_test(section_when_a_copy_is_missing_then_rejected_there),
        cmocka_unit_test(section_when_a_wait_is_missing_then_rejected_there),
        cmocka_unit_test(seam_when_its_sides_differ_in_place_then_rejected),
        cmocka_unit_test(seam_when_its_sides_differ_in_dirt_then_rejected),
        cmocka_unit_test(seam_when_a_wait_is_missing_then_rejected),
        cmocka_unit_test(ring_when_it_has_one_slot_then_rejected),
        cmocka_unit_test(plan_when_its_sections_are_others_then_rejected),
        cmocka_unit_test(place_when_its_slots_are_wrong_then_rejected),
        cmocka_unit_test(value_when_it_is_of_another_section_then_rejected),
        cmocka_unit_test(looped_plan_when_garbled_then_judged_without_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
