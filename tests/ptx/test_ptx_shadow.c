/* What could be wrong in the watcher: a mistake of a kernel that it does not see, or sees in a
 * program that is right; counts of traffic that are not those of the rule. Each kind of mistake is
 * planted (shadow_faults.h), and must be found by its own check and be gone where it is mended.
 * Random launches must be refused at the very step at which the definition of order, held against
 * everything that happened (shadow_oracle.h), refuses them. SL_TEST_FULL runs more of them. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "shadow_faults.h"
#include "shadow_oracle.h"
#include "stretch.h"

/* ---- planted mistakes ---- */

/* Runs a row's steps without those of `left_out`; false: refused, and why is in out_fault. */
static bool run_row(const planted_fault *row, step_when left_out, ptx_shadow_options options,
                    ptx_fault *out_fault)
{
    scene s;
    scene_open(&s, &options, !row->is_empty);
    scene_begin(&s);
    bool is_fine = true;
    for (int i = 0; i < FAULT_STEPS && row->steps[i].verb != STEP_END && is_fine; i++)
        if (row->steps[i].when != left_out)
            is_fine = scene_step(&s, &row->steps[i]);
    is_fine = is_fine && scene_end(&s);
    *out_fault = s.fault;
    scene_close(&s);
    return is_fine;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static void planted_faults_when_run_are_found_and_when_mended_are_not(void **state)
{
    (void)state;
    uint32_t wrong_count = 0;
    for (int i = 0; i < PLANTED_FAULT_COUNT; i++) {
        const planted_fault *row = &PLANTED_FAULTS[i];
        ptx_fault planted = {{0}}, mended = {{0}};
        const bool is_found = !run_row(row, MENDED, (ptx_shadow_options){0}, &planted);
        const bool is_clean = run_row(row, PLANTED, (ptx_shadow_options){0}, &mended);
        if (is_found && begins(planted.text, row->says) && is_clean)
            continue;
        print_error("%s: planted: %s; mended: %s\n", row->name,
                    is_found ? planted.text : "not found", is_clean ? "clean" : mended.text);
        wrong_count++;
    }
    assert_int_equal(wrong_count, 0);
    print_message("%d kinds of mistake\n", PLANTED_FAULT_COUNT);
}

static void planted_faults_when_their_check_is_off_are_found_by_no_other(void **state)
{
    (void)state;
    for (int i = 0; i < PLANTED_FAULT_COUNT; i++) {
        const planted_fault *row = &PLANTED_FAULTS[i];
        const bool is_bounds = begins(row->says, "out of bounds");
        const bool is_value = begins(row->says, "no value");
        const ptx_shadow_options options = {.skips_values = is_bounds || is_value,
                                            .skips_order = is_bounds || !is_value};
        ptx_fault fault = {{0}};
        const bool is_fine = run_row(row, MENDED, options, &fault);
        if (is_fine == is_bounds)
            fail_msg("%s: %s", row->name, is_fine ? "not found" : fault.text);
    }
}

/* ---- random launches ---- */

static uint64_t draws;

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint32_t draw(uint32_t below)
{
    uint64_t z = (draws += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(((z ^ z >> 31) >> 32) * below >> 32);
}

static uint32_t draw_lanes(void)
{
    const uint32_t lanes = draw(3) == 0 ? ALL : (LANE(draw(4)) | LANE(draw(32)));
    return draw(3) == 0 ? LANE(draw(3)) : lanes;
}

/* Where an access lies decides whether it meets others: few places, and mostly each warp its own,
 * or most launches would end at once. */
static void draw_touch(step *p)
{
    static const step_verb verbs[] = {STEP_READ,  STEP_READ,   STEP_READ,     STEP_WRITE,
                                      STEP_WRITE, STEP_ATOMIC, STEP_CONSTANT, STEP_MATRIX};
    p->verb = verbs[draw(8)];
    p->space = draw(2) ? PTX_SHARED : PTX_GLOBAL;
    p->bytes = 2u << draw(4);
    if (p->verb == STEP_MATRIX) {
        p->space = PTX_SHARED;
        p->bytes = 16;
    } else if (p->verb == STEP_CONSTANT) {
        p->space = PTX_GLOBAL;
    }
    p->lanes = draw_lanes();
    p->stride = draw(4) == 0 ? 0 : p->bytes;
    p->at = draw(4) == 0 ? 16 * draw(4) : 16 * draw(4) + (p->block * SCENE_WARPS + p->warp) * 128;
    if (p->space == PTX_SHARED && p->at + p->stride * 31 + p->bytes > SCENE_SHARED_BYTES)
        p->at = 0;
}

static step draw_step(void)
{
    step p = {.block = draw(3) == 0, .warp = draw(SCENE_WARPS)};
    const uint32_t kind = draw(12);
    if (kind < 2) {
        p.verb = STEP_BARRIER;
    } else if (kind < 4) {
        p.verb = STEP_JOIN_WARP;
        p.lanes = ALL;
    } else if (kind == 4) {
        p.verb = STEP_WAIT;
        p.lanes = draw(2) ? ALL : draw_lanes();
    } else if (kind == 5) {
        p.verb = draw(3) ? STEP_COPY : STEP_COPY_ZERO;
        p.bytes = draw(2) ? 16 : 4;
        p.stride = p.bytes;
        p.lanes = draw_lanes();
        p.at = 16 * draw(64);
        p.to = 16 * draw(32);
    } else {
        draw_touch(&p);
    }
    return p;
}

/* The step at which each refuses; `steps` if none does. */
static uint32_t compare_launch(oracle *o, uint32_t steps, uint64_t seed)
{
    scene s;
    scene_open(&s, &(ptx_shadow_options){.skips_values = true}, true);
    scene_begin(&s);
    o->event_count = o->flight_count = 0;
    memset(o->known, 0, sizeof o->known);
    uint32_t i = 0;
    for (bool is_fine = true; i < steps && is_fine; i += is_fine) {
        const step p = draw_step();
        is_fine = scene_step(&s, &p);
        if (is_fine != oracle_step(o, &p))
            fail_msg("launch %llu, step %u (verb %d, %s): %s", (unsigned long long)seed, i, p.verb,
                     p.space == PTX_SHARED ? "shared" : "global",
                     is_fine ? "passes, but is not ordered" : s.fault.text);
    }
    scene_close(&s);
    return i;
}

static void random_launches_when_run_are_refused_where_the_definition_refuses(void **state)
{
    (void)state;
    enum { STEPS = 24 };
    const char *seed_text = getenv("SL_TEST_SEED");
    const uint64_t seed = seed_text ? strtoull(seed_text, NULL, 10) : 1;
    const uint64_t count = getenv("SL_TEST_FULL") ? 100000 : 2500;
    oracle *o = malloc(sizeof *o);
    assert_non_null(o);
    uint64_t clean = 0, early = 0;
    for (uint64_t i = 0; i < count; i++) {
        draws = (seed + i) * 0x2545f4914f6cdd1du;
        const uint32_t end = compare_launch(o, STEPS, seed + i);
        clean += end == STEPS;
        early += end < 2;
    }
    free(o);
    print_message("seed %llu: %llu launches, %llu clean, %llu refused after two steps or more\n",
                  (unsigned long long)seed, (unsigned long long)count, (unsigned long long)clean,
                  (unsigned long long)(count - clean - early));
    assert_true(clean > count / 50);
    assert_true(count - clean - early > count / 5);
}

/* ---- time ---- */

/* More joins than an epoch can count, with and without a mistake after them. */
static void time_when_it_runs_out_starts_again(void **state)
{
    (void)state;
    static const step barrier = BARRIER(ALWAYS), join = JOIN(ALWAYS, 1);
    static const step write = GLOBAL(ALWAYS, WRITE, 0, 0, ALL, 0, 4, 4);
    static const step read = GLOBAL(ALWAYS, READ, 0, 1, ALL, 0, 4, 4);
    static const step fill = SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 4, 4);
    static const step early_join = JOIN(ALWAYS, 2);
    static const step write_one = SHARED(ALWAYS, WRITE, 0, 2, LANE(0), 512, 0, 4);
    static const step read_other = SHARED(ALWAYS, READ, 0, 2, LANE(1), 512, 0, 4);
    static const step look = SHARED(ALWAYS, READ, 0, 1, ALL, 0, 4, 4);
    scene s;
    scene_open(&s, &(ptx_shadow_options){0}, true);
    scene_begin(&s);
    for (uint32_t i = 0; i < 1u << 20; i++) {
        const bool touches = i % 4096 == 0;
        if (touches && !(scene_step(&s, &write) && scene_step(&s, &fill)))
            fail_msg("barrier %u: %s", i, s.fault.text);
        (void)scene_step(&s, &join);
        (void)scene_step(&s, &barrier);
        if (touches && !(scene_step(&s, &read) && scene_step(&s, &look)))
            fail_msg("after barrier %u: %s", i, s.fault.text);
        if (touches)
            (void)scene_step(&s, &barrier);
        if (i < 40000) /* before time starts again for the first time; and then not any more */
            (void)scene_step(&s, &early_join);
        if (i == 50000) {
            assert_true(scene_step(&s, &write_one));
            assert_false(scene_step(&s, &read_other));
        }
    }
    assert_true(scene_step(&s, &write));
    assert_false(scene_step(&s, &read));
    scene_close(&s);
}

static void joins_of_warps_when_too_many_without_a_barrier_are_refused(void **state)
{
    (void)state;
    static const step join = JOIN(ALWAYS, 1), read = SHARED(ALWAYS, WRITE, 0, 1, ALL, 0, 4, 4);
    scene s;
    scene_open(&s, &(ptx_shadow_options){0}, true);
    scene_begin(&s);
    for (uint32_t i = 0; i < 1u << 18; i++)
        (void)scene_step(&s, &join);
    assert_false(scene_step(&s, &read));
    assert_non_null(strstr(s.fault.text, "not handled"));
    scene_close(&s);
}

/* ---- stretches ---- */

/* Each lane lies in one stretch, at the place that its number gives it; bytes are by many where two
 * lanes read them. */
static void check_stretches(const ptx_access *access)
{
    ptx_stretch stretch[PTX_LANES];
    const uint32_t count = ptx_stretch_cut(access, stretch);
    uint32_t lane_count = 0;
    for (uint32_t lane = 0; lane < PTX_LANES; lane++)
        for (uint32_t i = 0; i < count && (access->lanes >> lane & 1); i++) {
            const ptx_stretch *s = &stretch[i];
            const bool is_many = s->is_by_many && s->address == access->address[lane] &&
                                 lane >= s->lane && s->bytes == access->bytes;
            const bool is_one =
                !s->is_by_many && lane >= s->lane && (lane - s->lane) * access->bytes < s->bytes &&
                s->address + (lane - s->lane) * access->bytes == access->address[lane];
            if (!is_many && !is_one)
                continue;
            lane_count++;
            break;
        }
    uint32_t covered = 0;
    for (uint32_t i = 0; i < count; i++)
        covered += stretch[i].is_by_many ? 0 : stretch[i].bytes / access->bytes;
    assert_int_equal(lane_count, __builtin_popcount(access->lanes));
    assert_true(covered <= lane_count);
}

static void stretches_when_cut_hold_every_lane_at_its_place(void **state)
{
    (void)state;
    draws = 7;
    for (int round = 0; round < 20000; round++) {
        uint64_t address[PTX_LANES];
        const uint32_t bytes = 1u << draw(5), jumps = draw(4);
        ptx_access access = {.space = PTX_SHARED, .bytes = bytes, .address = address};
        access.kind = draw(2) ? PTX_READ : PTX_WRITE;
        access.lanes = draw(3) ? ALL : 1 + draw(UINT32_MAX);
        uint64_t at = 4096;
        for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
            address[lane] = at;
            const uint32_t kind = draw(8);
            at += kind > jumps ? bytes : kind == 0 ? 0 : bytes * draw(5);
        }
        check_stretches(&access);
        uint32_t pairs = 0;
        for (uint32_t a = 0; a < PTX_LANES; a++)
            for (uint32_t b = 0; b < a; b++)
                pairs += (access.lanes >> a & access.lanes >> b & 1) && address[a] == address[b];
        ptx_stretch stretch[PTX_LANES];
        uint32_t many = 0, count = ptx_stretch_cut(&access, stretch);
        for (uint32_t i = 0; i < count; i++)
            many += stretch[i].is_by_many;
        assert_true(access.kind == PTX_READ ? many <= pairs : many == 0);
    }
}

/* ---- traffic ---- */

typedef struct traffic_row {
    step access;
    uint64_t sectors, wavefronts, least;
} traffic_row;

/* By hand from the rule that ptx_traffic states. */
/* clang-format off */
static const traffic_row TRAFFIC[] = {
    {GLOBAL(ALWAYS, READ, 0, 0, ALL, 0, 4, 4), 4, 0, 0},          /* 128 bytes */
    {GLOBAL(ALWAYS, READ, 0, 0, ALL, 4, 4, 4), 5, 0, 0},          /* across one more sector */
    {GLOBAL(ALWAYS, READ, 0, 0, ALL, 0, 16, 16), 16, 0, 0},
    {GLOBAL(ALWAYS, READ, 0, 0, ALL, 0, 2, 2), 2, 0, 0},
    {GLOBAL(ALWAYS, READ, 0, 0, ALL, 64, 0, 4), 1, 0, 0},         /* one for all */
    {GLOBAL(ALWAYS, READ, 0, 0, ALL, 0, 32, 4), 32, 0, 0},        /* columns */
    {GLOBAL(ALWAYS, READ, 0, 0, ALL, 0, 8, 4), 8, 0, 0},
    {GLOBAL(ALWAYS, READ, 0, 0, LANE(0) | LANE(9), 0, 4, 4), 2, 0, 0},
    {GLOBAL(ALWAYS, READ, 0, 0, 0x55555555, 0, 4, 4), 4, 0, 0},
    {SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 4, 4), 0, 1, 1},
    {SHARED(ALWAYS, WRITE, 0, 0, ALL, 4, 4, 4), 0, 1, 1},
    {SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 8, 4), 0, 2, 1},         /* every second bank */
    {SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 12, 4), 0, 1, 1},        /* three shares no factor */
    {SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 16, 4), 0, 4, 1},
    {SHARED(ALWAYS, READ, 0, 0, ALL, 0, 0, 4), 0, 1, 1},          /* one word for all */
    {SHARED(ALWAYS, READ, 0, 0, ALL, 0, 2, 2), 0, 1, 1},          /* two lanes a word */
    {SHARED(ALWAYS, READ, 0, 0, 0xb, 0, 2, 2), 0, 1, 1},
    {SHARED(ALWAYS, WRITE, 0, 0, 0xff, 0, 128, 4), 0, 8, 1},      /* one bank */
    {SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 8, 8), 0, 2, 2},
    {SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 16, 8), 0, 4, 2},
    {SHARED(ALWAYS, WRITE, 0, 0, ALL, 0, 16, 16), 0, 4, 4},
    {SHARED(ALWAYS, WRITE, 0, 0, 0xffff, 0, 32, 16), 0, 4, 2},
    {SHARED(ALWAYS, MATRIX, 0, 0, ALL, 0, 16, 16), 0, 4, 4},
    {SHARED(ALWAYS, MATRIX, 0, 0, 0xff, 0, 128, 16), 0, 8, 1},    /* rows in one column of banks */
    {SHARED(ALWAYS, MATRIX, 0, 0, 0x7f, 0, 144, 16), 0, 1, 1},    /* the same rows, padded */
};
/* clang-format on */

static void traffic_when_counted_is_what_the_rule_gives(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof TRAFFIC / sizeof TRAFFIC[0]; i++) {
        const traffic_row *row = &TRAFFIC[i];
        scene s;
        const ptx_shadow_options options = {.counts_traffic = true, .skips_values = true};
        scene_open(&s, &options, true);
        for (int launch = 0; launch < 2; launch++) {
            scene_begin(&s);
            if (!scene_step(&s, &row->access))
                fail_msg("row %zu: %s", i, s.fault.text);
            assert_true(scene_end(&s));
        }
        const ptx_traffic t = ptx_shadow_traffic(s.shadow, NULL, 0);
        const uint64_t lanes = (uint64_t)__builtin_popcount(row->access.lanes);
        if (t.requests != 2 || t.lanes != 2 * lanes || t.bytes != 2 * lanes * row->access.bytes ||
            t.global_requests != (row->sectors > 0 ? 2u : 0u) ||
            t.global_bytes != (row->sectors > 0 ? t.bytes : 0) || t.sectors != 2 * row->sectors ||
            t.wavefronts != 2 * row->wavefronts || t.least != 2 * row->least)
            fail_msg("row %zu: %llu sectors, %llu wavefronts, at least %llu, twice", i,
                     (unsigned long long)t.sectors, (unsigned long long)t.wavefronts,
                     (unsigned long long)t.least);
        assert_int_equal(ptx_shadow_traffic(s.shadow, NULL, 1).requests, 0);
        scene_close(&s);
    }
}

/* ---- what was touched ---- */

typedef struct pieces {
    uint64_t start[8], bytes[8];
    bool is_write[8];
    uint32_t count;
} pieces;

static void note_piece(void *context, uint64_t start, uint64_t bytes, bool is_write)
{
    pieces *p = context;
    assert_true(p->count < 8);
    p->start[p->count] = start - SCENE_GLOBAL;
    p->bytes[p->count] = bytes;
    p->is_write[p->count++] = is_write;
}

static void touched_memory_when_the_launch_ends_is_told_in_pieces(void **state)
{
    (void)state;
    static const step steps[] = {
        GLOBAL(ALWAYS, READ, 0, 0, ALL, 1024 - 64, 4, 4), /* over the end of a page of cells */
        GLOBAL(ALWAYS, READ, 1, 0, ALL, 1024 + 64, 4, 4),
        GLOBAL(ALWAYS, READ, 1, 0, LANE(0), 8, 0, 2),
        GLOBAL(ALWAYS, WRITE, 1, 0, LANE(1), 2048, 8, 8),
        GLOBAL(ALWAYS, ATOMIC, 1, 0, ALL, 3072, 0, 4),
        COPY(ALWAYS, 0, LANE(0), 512, 0, 16, 16),
        WAIT(ALWAYS, 0, ALL)};
    static const pieces expected = {
        {8, 512, 960, 2056, 3072}, {2, 16, 256, 8, 4}, {false, false, false, true, true}, 5};
    pieces told = {.count = 0};
    const ptx_shadow_options options = {.touch = note_piece, .touch_context = &told};
    scene s;
    scene_open(&s, &options, true);
    scene_begin(&s);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        assert_true(scene_step(&s, &steps[i]));
    assert_true(scene_end(&s));
    scene_close(&s);
    assert_int_equal(told.count, expected.count);
    for (uint32_t i = 0; i < expected.count; i++) {
        assert_int_equal(told.start[i], expected.start[i]);
        assert_int_equal(told.bytes[i], expected.bytes[i]);
        assert_int_equal(told.is_write[i], expected.is_write[i]);
    }
}

/* ---- ranges ---- */

static void ranges_when_they_overlap_are_refused(void **state)
{
    (void)state;
    ptx_shadow *shadow = ptx_shadow_open(&(ptx_shadow_options){0});
    assert_non_null(shadow);
    const char *base = (const char *)SCENE_GLOBAL;
    assert_true(ptx_shadow_open_range(shadow, base + 64, 64, true));
    assert_false(ptx_shadow_open_range(shadow, base, 65, true));
    assert_false(ptx_shadow_open_range(shadow, base + 127, 1, true));
    assert_false(ptx_shadow_open_range(shadow, base + 64, 64, true));
    assert_false(ptx_shadow_open_range(shadow, base + 32, 256, true));
    assert_false(ptx_shadow_open_range(shadow, base, 0, true));
    assert_true(ptx_shadow_open_range(shadow, base, 64, true));
    assert_true(ptx_shadow_open_range(shadow, base + 128, 1, true));
    assert_false(ptx_shadow_close_range(shadow, base + 65));
    assert_true(ptx_shadow_close_range(shadow, base + 64));
    assert_true(ptx_shadow_open_range(shadow, base + 100, 28, true));
    ptx_shadow_close(shadow);
}

/* One instruction's lanes may lie in two ranges that meet. */
static void stretches_when_they_run_into_the_next_range_are_no_fault(void **state)
{
    (void)state;
    static const step over = GLOBAL(ALWAYS, READ, 0, 0, ALL, SCENE_RANGE_BYTES - 64, 4, 4);
    static const step across = GLOBAL(ALWAYS, READ, 0, 0, ALL, SCENE_RANGE_BYTES - 8, 16, 16);
    scene s;
    scene_open(&s, &(ptx_shadow_options){0}, true);
    const void *next = (const void *)(uintptr_t)(SCENE_GLOBAL + SCENE_RANGE_BYTES);
    assert_true(ptx_shadow_open_range(s.shadow, next, 4096, true));
    scene_begin(&s);
    assert_true(scene_step(&s, &over));
    assert_false(scene_step(&s, &across));
    assert_non_null(strstr(s.fault.text, "out of bounds: reads 16"));
    scene_close(&s);
}

static void *open_range(void *shadow)
{
    const void *far = (const void *)(uintptr_t)(SCENE_GLOBAL + (1 << 20));
    return ptx_shadow_open_range(shadow, far, 64, true) ? shadow : NULL;
}

/* Launches of two threads at once, while a third opens a range. */
static void launches_when_at_once_keep_apart(void **state)
{
    (void)state;
    static const step write = GLOBAL(ALWAYS, WRITE, 0, 0, ALL, 0, 4, 4);
    static const step read = GLOBAL(ALWAYS, READ, 1, 0, ALL, 0, 4, 4);
    scene one, other;
    pthread_t opener;
    void *is_open = NULL;
    scene_open(&one, &(ptx_shadow_options){0}, true);
    other = one;
    scene_begin(&one);
    scene_begin(&other);
    assert_int_equal(pthread_create(&opener, NULL, open_range, one.shadow), 0);
    assert_true(scene_step(&one, &write));
    assert_true(scene_step(&other, &read));
    assert_false(scene_step(&one, &read));
    assert_true(scene_end(&one));
    assert_true(scene_end(&other));
    assert_int_equal(pthread_join(opener, &is_open), 0);
    assert_non_null(is_open);
    scene_close(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_faults_when_run_are_found_and_when_mended_are_not),
        cmocka_unit_test(planted_faults_when_their_check_is_off_are_found_by_no_other),
        cmocka_unit_test(random_launches_when_run_are_refused_where_the_definition_refuses),
        cmocka_unit_test(time_when_it_runs_out_starts_again),
        cmocka_unit_test(joins_of_warps_when_too_many_without_a_barrier_are_refused),
        cmocka_unit_test(stretches_when_cut_hold_every_lane_at_its_place),
        cmocka_unit_test(traffic_when_counted_is_what_the_rule_gives),
        cmocka_unit_test(touched_memory_when_the_launch_ends_is_told_in_pieces),
        cmocka_unit_test(ranges_when_they_overlap_are_refused),
        cmocka_unit_test(stretches_when_they_run_into_the_next_range_are_no_fault),
        cmocka_unit_test(launches_when_at_once_keep_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
