/* What could be wrong here: stages of a pipeline that wait for each other for ever are let run, or
 * those that do not are refused; a schedule waits for more than it has to.
 *
 * Whole steps of all stages, derived and not run: of up to 8 stages and 40 micro-batches, in all
 * orders, every list comes to its end with exchanges that end only when both sides have reached
 * them. Each planted mismatch is refused. The same steps are simulated together, with an attention
 * that takes a while and everything else none: what is waited for is (p - 1)/m of the ideal time;
 * in layer order, where all but a stage's last layer end before it hands anything on, so much as
 * plans predict.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "chunk/chunk.h"
#include "cluster/pipeline.h"
#include "model/architecture.h"
#include "session/exchange_order.h"

enum { STAGES_MAX = 8, LAYERS = 8 };

typedef enum order_of_stages { INTERLEAVED, TWO_LOOPS, BY_LAYER, ORDERS } order_of_stages;

static bool is_full(void)
{
    return getenv("SL_TEST_FULL") != NULL;
}

typedef struct pipeline {
    uint32_t stage_count;
    sl_program *steps[STAGES_MAX];
    sl_exchange_order_op *ops[STAGES_MAX];
    sl_exchange_order_list lists[STAGES_MAX];
} pipeline;

static sl_program *derive_stage(uint32_t stage_count, uint32_t stage,
                                const sl_step_options *options)
{
    const sl_model_shape shape = {LAYERS, 16, 2, 8, 64};
    const sl_model_options emit = {
        .batch = 1, .seq = 8, .tp_size = 1, .stage_count = stage_count, .stage_index = stage};
    sl_program *forward, *step;
    sl_layout *layout;
    assert_int_equal(sl_model_shape_emit(&shape, &emit, &forward), SL_OK);
    assert_int_equal(sl_layout_build(forward, 1 << 14, &layout), SL_OK);
    const sl_chunk_map map = sl_layout_chunk_map(layout);
    assert_int_equal(sl_program_derive_step(forward, &map, options, &step), SL_OK);
    sl_layout_close(layout);
    sl_program_close(forward);
    return step;
}

static pipeline open_pipeline(uint32_t stage_count, uint32_t micro_batches, order_of_stages order)
{
    const sl_step_options options = {
        .micro_batch_count = micro_batches,
        .schedule = order == INTERLEAVED ? SL_SCHEDULE_1F1B : SL_SCHEDULE_GPIPE,
        .accumulation = order == BY_LAYER ? SL_ACCUMULATE_LAYER : SL_ACCUMULATE_MICRO};
    pipeline it = {.stage_count = stage_count};
    for (uint32_t s = 0; s < stage_count; s++) {
        it.steps[s] = derive_stage(stage_count, s, &options);
        assert_int_equal(sl_exchange_order_find(it.steps[s], &it.ops[s], &it.lists[s].count),
                         SL_OK);
        it.lists[s].ops = it.ops[s];
    }
    return it;
}

static void close_pipeline(pipeline *it)
{
    for (uint32_t s = 0; s < it->stage_count; s++) {
        sl_program_close(it->steps[s]);
        free(it->ops[s]);
    }
}

/* ---- draining ---- */

static void exchanges_when_of_a_derived_step_then_drain(void **state)
{
    (void)state;
    for (uint32_t p = 2; p <= STAGES_MAX; p++)
        for (uint32_t m = 1; m <= 41; m++) {
            const uint32_t count = m <= 40 ? m : 512;
            if (!is_full() && m > 2 * p && (m + p) % 7 != 0 && m <= 40)
                continue;
            for (int order = 0; order < ORDERS; order++) {
                pipeline it = open_pipeline(p, count, (order_of_stages)order);
                if (sl_exchange_order_check(it.lists, p) != SL_OK)
                    fail_msg("%u stages, %u micro-batches, order %d: %s", p, count, order,
                             sl_status_message());
                close_pipeline(&it);
            }
        }
}

/* The first exchange of a stage that goes both ways. */
static sl_exchange_order_op *find_swap(pipeline *it, uint32_t stage)
{
    for (uint32_t o = 0; o < it->lists[stage].count; o++)
        if (it->ops[stage][o].given_bytes > 0 && it->ops[stage][o].taken_bytes > 0)
            return &it->ops[stage][o];
    fail_msg("stage %u has no exchange that goes both ways", stage);
    return NULL;
}

static void refuse(pipeline *it, const char *part)
{
    assert_int_equal(sl_exchange_order_check(it->lists, it->stage_count), SL_ERROR_INTERNAL);
    if (strstr(sl_status_message(), part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", sl_status_message(), part);
    close_pipeline(it);
}

static void exchanges_when_a_mismatch_is_planted_then_are_refused(void **state)
{
    (void)state;
    pipeline it = open_pipeline(4, 9, INTERLEAVED);
    find_swap(&it, 1)->given_bytes++;
    refuse(&it, "takes");
    it = open_pipeline(4, 9, INTERLEAVED);
    find_swap(&it, 2)->peer = 1 + 2 * (find_swap(&it, 2)->peer == 1);
    refuse(&it, "stage 2");
    it = open_pipeline(4, 9, INTERLEAVED);
    it.lists[2].count--; /* its last: what all stages do together, or with one */
    refuse(&it, "for ever");
    it = open_pipeline(4, 40, INTERLEAVED);
    find_swap(&it, 0)->peer = 7;
    refuse(&it, "of 4");
    it = open_pipeline(3, 40, INTERLEAVED);
    for (uint32_t o = 0; o < it.lists[1].count; o++)
        it.ops[1][o].repeat += it.ops[1][o].repeat > 1;
    refuse(&it, "stage");
    it = open_pipeline(2, 5, TWO_LOOPS);
    it.ops[1][0].taken_bytes = 0;
    refuse(&it, "takes 0");
}

/* Two neighbours that both give first. */
static void exchanges_when_both_stages_give_first_then_are_refused(void **state)
{
    (void)state;
    const uint32_t other[] = {1, 0};
    sl_exchange_order_op ops[2][2];
    sl_exchange_order_list lists[2];
    for (uint32_t s = 0; s < 2; s++) {
        ops[s][0] = (sl_exchange_order_op){.peer = other[s], .repeat = 1, .given_bytes = 8};
        ops[s][1] = (sl_exchange_order_op){.peer = other[s], .repeat = 1, .taken_bytes = 8};
        lists[s] = (sl_exchange_order_list){ops[s], 2};
    }
    assert_int_equal(sl_exchange_order_check(lists, 2), SL_ERROR_INTERNAL);
    ops[0][0].taken_bytes = ops[1][0].taken_bytes = 8;
    lists[0].count = lists[1].count = 1;
    assert_int_equal(sl_exchange_order_check(lists, 2), SL_OK);
}

/* ---- time ----
 *
 * Of a layer forward 1 of time, backward 2. A stage does one thing after the other in the order of
 * its program; an exchange begins when both have come to it, and takes none. */

typedef struct clock_of_stage {
    uint32_t section, repetition, op; /* next */
    double time;
} clock_of_stage;

static double time_of(sl_op_kind kind)
{
    return kind == SL_OP_ATTENTION ? 1 : kind == SL_OP_ATTENTION_BACKWARD ? 2 : 0;
}

/* The next op of a stage; NULL: there is none. */
static const sl_op *next_op(const sl_program *step, clock_of_stage *it)
{
    while (it->section < sl_program_section_count(step)) {
        const sl_section section = sl_program_section(step, it->section);
        if (it->op < section.count)
            return &step->ops[section.first + it->op];
        it->op = 0;
        it->repetition++;
        if (it->repetition == section.repeat) {
            it->repetition = 0;
            it->section++;
        }
    }
    return NULL;
}

/* Up to the next exchange. */
static const sl_op *run_stage(const sl_program *step, clock_of_stage *it)
{
    const sl_op *op = next_op(step, it);
    for (; op != NULL && op->kind != SL_OP_EXCHANGE; op = next_op(step, it)) {
        it->time += time_of(op->kind);
        it->op++;
    }
    return op;
}

static bool try_exchange(const pipeline *it, clock_of_stage *clocks, uint32_t stage)
{
    const sl_op *mine = run_stage(it->steps[stage], &clocks[stage]);
    if (mine == NULL)
        return false;
    const uint32_t peer = mine->attrs.rank_index;
    const sl_op *theirs = run_stage(it->steps[peer], &clocks[peer]);
    if (theirs == NULL || theirs->attrs.rank_index != stage)
        return false;
    clocks[stage].time = clocks[peer].time = fmax(clocks[stage].time, clocks[peer].time);
    clocks[stage].op++;
    clocks[peer].op++;
    return true;
}

static double play(const pipeline *it)
{
    clock_of_stage clocks[STAGES_MAX] = {{0}};
    double end = 0;
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        for (uint32_t s = 0; s < it->stage_count; s++)
            has_moved = try_exchange(it, clocks, s) || has_moved;
    }
    for (uint32_t s = 0; s < it->stage_count; s++) {
        assert_null(run_stage(it->steps[s], &clocks[s]));
        end = fmax(end, clocks[s].time);
    }
    return end;
}

/* All of a stage's layers but the last, and one micro-batch of that, are waited for there and back;
 * plans say the same. */
static double expect_by_layer(uint32_t stage_count, uint32_t micro_batches)
{
    const double layers = (double)LAYERS / stage_count, m = micro_batches;
    sl_pipeline_stage passes[STAGES_MAX];
    uint32_t counts[STAGES_MAX];
    double seconds;
    for (uint32_t s = 0; s < stage_count; s++) {
        passes[s] = (sl_pipeline_stage){layers, 2 * layers};
        counts[s] = (uint32_t)layers;
    }
    const sl_pipeline it = {
        .stages = passes, .stage_count = stage_count, .micro_batches = micro_batches};
    assert_int_equal(sl_pipeline_play_by_layer(&it, counts, &seconds), SL_OK);
    const double expected = 3 * (layers * m + (stage_count - 1) * ((layers - 1) * m + 1));
    assert_true(fabs(seconds - expected) <= 1e-9 * expected);
    return expected;
}

static void stages_when_they_are_equal_then_wait_for_p_minus_1_of_m_of_the_ideal_time(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 2, 3, 4, 7, 8, 9, 16, 33, 512};
    for (uint32_t p = 2; p <= STAGES_MAX; p *= 2)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
            for (int order = 0; order < ORDERS; order++) {
                pipeline it = open_pipeline(p, counts[i], (order_of_stages)order);
                const double ideal = 3.0 * counts[i] * LAYERS / p, took = play(&it);
                const double expected = order == BY_LAYER ? expect_by_layer(p, counts[i])
                                                          : ideal * (1 + (p - 1.0) / counts[i]);
                if (fabs(took - expected) > 1e-9 * expected)
                    fail_msg("%u stages, %u micro-batches, order %d: %g of %g", p, counts[i], order,
                             took, expected);
                close_pipeline(&it);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exchanges_when_of_a_derived_step_then_drain),
        cmocka_unit_test(exchanges_when_a_mismatch_is_planted_then_are_refused),
        cmocka_unit_test(exchanges_when_both_stages_give_first_then_are_refused),
        cmocka_unit_test(stages_when_they_are_equal_then_wait_for_p_minus_1_of_m_of_the_ideal_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
