/* What could be wrong in communicators: a sum in another order than that of ranks, rounded twice or
 * not at all; a piece lost, doubled or read before it was written where sizes are odd, empty or
 * larger than a window; a rank that overtakes another and writes what is still being read; two
 * calls that get mixed up; other bits as processes than as threads. Every sum is compared, bit for
 * bit, with a plain loop over all ranks' numbers, which any rank can draw; random sequences of
 * calls run with ranks that are late at random, over the world and over groups in turn. */
#define _GNU_SOURCE
#include "comm_calls.h"
#include "sanitizer_share.h"

static void random_calls_when_carriers_differ_then_bits_are_those_of_a_plain_loop(void **state)
{
    (void)state;
    bool is_full = getenv("SL_TEST_FULL");
    for (uint32_t size = 1; size <= RANKS_MAX; size++)
        for (uint32_t on = 0; on < CARRIER_COUNT; on++) {
            if (on == 2 && size % 3 != 0 && !is_full)
                continue; /* only what starts is another */
            sequence plan = {base_seed + size, is_full ? 400 : 24 / SANITIZER_SHARE,
                             is_full ? 300000 : 6000};
            run_right(&carriers[on], size, run_sequence, &plan);
        }
}

static void check_types_of_size(sl_comm *world, const void *argument, answer *out)
{
    uint32_t ranks[RANKS_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (uint32_t pair = 0; pair < PAIR_COUNT && !out->is_wrong; pair++) {
        comm_case it = {.comm = world,
                        .ranks = ranks,
                        .seed = base_seed + pair,
                        .count = *(const uint64_t *)argument,
                        .types = type_pairs[pair],
                        .size = sl_comm_size(world),
                        .rank = sl_comm_rank(world)};
        check_all_reduce(&it, out);
    }
}

/* More than one segment, its last one ragged. */
static void all_reduce_when_larger_than_a_window_sums_all(void **state)
{
    (void)state;
    uint64_t count =
        getenv("SL_TEST_FULL") ? (12u << 20) + 17 : (300u << 10) / SANITIZER_SHARE + 17;
    for (uint32_t on = 0; on < CARRIER_COUNT; on++) {
        if (on == 2)
            continue; /* only what starts is another */
        run_right(&carriers[on], 2, check_types_of_size, &count);
        run_right(&carriers[on], 3, check_types_of_size, &count);
    }
}

/* ---- groups ---- */

static void groups_when_used_in_turn_keep_apart(void **state)
{
    (void)state;
    static const sl_comm_layout layouts[] = {{2, 2, 2}, {4, 2, 1}, {1, 3, 2}, {2, 1, 1}};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        for (uint32_t on = 0; on < CARRIER_COUNT; on++) {
            if (on == 2)
                continue;
            group_plan plan = {layouts[i], {base_seed + i, 40 / SANITIZER_SHARE, 6000}};
            run_right(&carriers[on], sl_comm_layout_ranks(&layouts[i]), run_groups, &plan);
        }
}

static void expect_group(const sl_comm_layout *layout, sl_comm_group group, uint32_t rank,
                         const uint32_t *members, uint32_t count)
{
    uint32_t found[512];
    assert_int_equal(sl_comm_group_size(layout, group), count);
    sl_comm_group_members(layout, group, rank, found);
    assert_memory_equal(found, members, count * sizeof *members);
}

static void groups_when_ranks_are_split_three_ways_are_those_of_the_formula(void **state)
{
    (void)state;
    sl_comm_layout layout = {.tensor = 4, .data = 2, .stages = 1};
    expect_group(&layout, SL_COMM_TENSOR, 5, (uint32_t[]){4, 5, 6, 7}, 4);
    expect_group(&layout, SL_COMM_DATA, 2, (uint32_t[]){2, 6}, 2);
    layout = (sl_comm_layout){.tensor = 2, .data = 2, .stages = 2};
    expect_group(&layout, SL_COMM_DATA, 3, (uint32_t[]){1, 3}, 2);
    expect_group(&layout, SL_COMM_TENSOR, 6, (uint32_t[]){6, 7}, 2);
    expect_group(&layout, SL_COMM_STAGES, 1, (uint32_t[]){1, 5}, 2);
    layout = (sl_comm_layout){.tensor = 8, .data = 64, .stages = 1};
    for (uint32_t rank = 0; rank < 512; rank++) {
        sl_comm_place place = sl_comm_place_of(&layout, rank);
        assert_int_equal(sl_comm_rank_of(&layout, &place), rank);
    }
}

/* ---- rounding ---- */

static void rounding_when_vectors_do_it_is_that_of_one_number(void **state)
{
    (void)state;
    enum { COUNT = 1 << 16 };
    static float floats[COUNT], back[COUNT];
    static uint16_t halves[COUNT];
    for (int type = SL_COMM_BF16; type <= SL_COMM_FP16; type++) {
        const sl_comm_types types = {SL_COMM_FP32, (sl_comm_type)type};
        for (uint32_t i = 0; i < COUNT; i++) { /* every half, and every way to round to it */
            uint32_t bits = i << 16 | (sl_rng_draw(base_seed, type, i).word[0] & 0xffff);
            floats[i] = sl_bits_to_float(i % 7 == 0 ? i << 16 | 0x8000 : bits);
        }
        sl_wire_convert(SL_COMM_FP32, types.wire, COUNT, floats, halves);
        sl_wire_convert(types.wire, SL_COMM_FP32, COUNT, halves, back);
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_int_equal(halves[i], type == SL_COMM_BF16 ? sl_half_to_bf16(floats[i])
                                                             : sl_half_to_fp16(floats[i]));
            assert_true(is_same(back[i], round_to(types.wire, floats[i])));
        }
    }
}

/* ---- facts ---- */

static void agree_on_facts(sl_comm *world, const void *argument, answer *out)
{
    uint32_t odd = *(const uint32_t *)argument, rank = sl_comm_rank(world);
    const sl_comm_fact facts[] = {{"the build", "1.2.3"},
                                  {"the instruction set", rank == odd ? "avx2" : "avx512"}};
    sl_status status = sl_comm_agree(world, facts, 2);
    if (odd == UINT32_MAX && status != SL_OK)
        complain(out, "%s", sl_status_message());
    if (odd != UINT32_MAX && status != SL_ERROR_USAGE)
        complain(out, "status %d", status);
    else if (odd != UINT32_MAX && (!strstr(sl_status_message(), "instruction set") ||
                                   !strstr(sl_status_message(), "avx2")))
        complain(out, "says %s", sl_status_message());
    if (!out->is_wrong && sl_comm_barrier(world) != SL_OK)
        complain(out, "nothing goes after it: %s", sl_status_message());
}

static void facts_when_a_rank_differs_are_refused_by_all(void **state)
{
    (void)state;
    for (uint32_t odd = 0; odd < 6; odd++) {
        uint32_t who = odd == 5 ? UINT32_MAX : odd;
        run_right(&carriers[odd % CARRIER_COUNT], 5, agree_on_facts, &who);
    }
}

static int print_seed(void **state)
{
    (void)state;
    const char *text = getenv("SL_TEST_SEED");
    if (text)
        base_seed = strtoull(text, NULL, 10);
    print_message("seed %llu (SL_TEST_SEED)\n", (unsigned long long)base_seed);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_when_ranks_are_split_three_ways_are_those_of_the_formula),
        cmocka_unit_test(rounding_when_vectors_do_it_is_that_of_one_number),
        cmocka_unit_test(random_calls_when_carriers_differ_then_bits_are_those_of_a_plain_loop),
        cmocka_unit_test(all_reduce_when_larger_than_a_window_sums_all),
        cmocka_unit_test(groups_when_used_in_turn_keep_apart),
        cmocka_unit_test(facts_when_a_rank_differs_are_refused_by_all),
    };
    return cmocka_run_group_tests(tests, print_seed, NULL);
}
