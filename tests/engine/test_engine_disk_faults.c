/* What could be wrong when the disk misbehaves below a running engine: wrong numbers come out as if
 * nothing had been, a step hangs, a failure is forgotten, or what could have been done again was
 * not. Every request of a run is broken once by each kind of fault; the run must end with the bits
 * of an undisturbed one, or with SL_ERROR_IO for good and lanes that can be closed.
 *
 * A run: numbers are set, five training steps, one of evaluation, all chunks are read back. The
 * store is the real one over store_double.h. In full, longer runs: SL_TEST_FULL.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine_disk_world.h"
#include "offload/store_double.h"

enum { WATCHDOG_SECONDS = 120 }; /* a hang ends the program by SIGALRM */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRIDE = 7 }; /* a run takes a hundred milliseconds */
#else
enum { STRIDE = 1 };
#endif

typedef struct fault_row {
    const char *name;
    double_fault kind;
    int error;
    uint32_t keep_bytes;
    int all_after;
    int heals; /* the store goes on from it where it hits one request alone */
} fault_row;

static const fault_row rows[] = {
    {"EIO", DOUBLE_ERRNO, EIO, 0, 0, 0},
    {"EIO from there on", DOUBLE_ERRNO, EIO, 0, 1, 0},
    {"ENOSPC", DOUBLE_ERRNO, ENOSPC, 0, 0, 0},
    {"EINTR", DOUBLE_ERRNO, EINTR, 0, 0, 1},
    {"EAGAIN", DOUBLE_ERRNO, EAGAIN, 0, 0, 1},
    {"nothing moved", DOUBLE_SHORT, 0, 0, 0, 0},
    {"512 bytes moved", DOUBLE_SHORT, 0, 512, 0, 1},
    {"one page moved", DOUBLE_SHORT, 0, 4096, 0, 1},
    {"half moved", DOUBLE_HALF, 0, 0, 0, 1},
    {"a bit flipped", DOUBLE_FLIP, 0, 0, 0, 0},
    {"dropped", DOUBLE_DROP, 0, 0, 0, 0},
    {"stale", DOUBLE_STALE, 0, 0, 0, 1}, /* read again */
    {"in the place of another", DOUBLE_SWAP, 0, 0, 0, 0},
    {"submission refused", DOUBLE_REFUSE, 0, 0, 0, 0},
    {"wait fails", DOUBLE_LOST, 0, 0, 0, 0},
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

/* What a run comes to. `numbers` follow what the engine was asked for. */
typedef struct outcome {
    sl_status status; /* the first that was not SL_OK */
    uint32_t step_count;
    bool is_right;
} outcome;

static sl_status set_numbers(sl_engine *engine, world_numbers *numbers)
{
    uint64_t words[CHUNK_WORDS];
    *numbers = (world_numbers){{11, 22}, {0, 0}};
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        write_chunk_number(words, numbers->param[chunk]);
        SL_TRY(sl_engine_write_chunk(engine, SL_GROUP_PARAM, chunk, 0, CHUNK_BYTES, words));
        write_chunk_number(words, 0);
        SL_TRY(sl_engine_write_chunk(engine, SL_GROUP_STATE2, chunk, 0, 3000, words));
    }
    return SL_OK;
}

static sl_status compare_chunk(sl_engine *engine, sl_group group, uint32_t chunk, uint64_t number,
                               bool *is_right)
{
    uint64_t words[CHUNK_WORDS];
    SL_TRY(sl_engine_read_chunk(engine, group, chunk, 0, CHUNK_BYTES, words));
    for (uint32_t i = 0; i < CHUNK_WORDS; i++)
        *is_right = *is_right && words[i] == number;
    return SL_OK;
}

static sl_status compare_numbers(sl_engine *engine, const world_numbers *numbers, bool *is_right)
{
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        SL_TRY(compare_chunk(engine, SL_GROUP_PARAM, chunk, numbers->param[chunk], is_right));
        SL_TRY(compare_chunk(engine, SL_GROUP_STATE1, chunk, numbers->moment[chunk], is_right));
        SL_TRY(compare_chunk(engine, SL_GROUP_STATE2, chunk, 0, is_right));
    }
    return SL_OK;
}

static sl_status run_steps(sl_engine *engine, uint32_t count, outcome *out)
{
    world_numbers numbers;
    SL_TRY(set_numbers(engine, &numbers));
    for (uint32_t i = 0; i <= count; i++) {
        uint32_t plan = i == count ? EVAL_PLAN : TRAIN_PLAN;
        uint64_t output = 0;
        uint64_t expected =
            plan == TRAIN_PLAN ? expect_train(&numbers, i) : expect_forward(&numbers, i);
        SL_TRY(step(engine, plan, i, 0, &output));
        out->step_count++;
        out->is_right = out->is_right && output == expected;
    }
    return compare_numbers(engine, &numbers, &out->is_right);
}

/* A failed engine stays failed, and says so at once. */
static void check_dead(sl_engine *engine)
{
    uint64_t output, word;
    assert_int_equal(sl_engine_drain(engine), SL_ERROR_IO);
    assert_non_null(strstr(sl_status_message(), " lane: "));
    assert_int_equal(step(engine, TRAIN_PLAN, 1, 0, &output), SL_ERROR_IO);
    assert_int_equal(sl_engine_read_chunk(engine, SL_GROUP_PARAM, 0, 0, 8, &word), SL_ERROR_IO);
}

static outcome run(uint32_t step_count, const store_double_plan *fault)
{
    static disk_world d;
    outcome out = {.is_right = true};
    store_double_arm(*fault);
    disk_world_init(&d, "", &store_double_ops);
    sl_engine *engine = open_world(&d.w);
    alarm(WATCHDOG_SECONDS);
    out.status = run_steps(engine, step_count, &out);
    if (out.status != SL_OK) {
        assert_non_null(strstr(sl_status_message(), " lane: "));
        check_dead(engine);
    } else {
        out.is_right = out.is_right && fakes.wrong == 0;
    }
    sl_engine_close(engine);
    alarm(0);
    assert_int_equal(double_disk.user_count, 0);
    return out;
}

static uint64_t count_requests(uint32_t step_count, double_fault kind)
{
    store_double_plan quiet = {.kind = kind, .first = UINT64_MAX};
    outcome out = run(step_count, &quiet);
    assert_int_equal(out.status, SL_OK);
    assert_true(out.is_right);
    return store_double_requests;
}

/* Breaks each request in turn; returns how many were hit. */
static uint64_t break_each(const fault_row *row, uint32_t step_count)
{
    uint64_t count = count_requests(step_count, row->kind), hits = 0, failures = 0;
    for (uint64_t first = 1; first <= count; first += STRIDE) {
        store_double_plan fault = {.seed = first,
                                   .reorders = first % 2 == 0,
                                   .kind = row->kind,
                                   .first = first,
                                   .all_after = row->all_after,
                                   .error = row->error,
                                   .keep_bytes = row->keep_bytes};
        outcome out = run(step_count, &fault);
        hits += store_double_hits > 0;
        failures += out.status != SL_OK;
        if (out.status != SL_OK && out.status != SL_ERROR_IO)
            fail_msg("%s, request %d: status %d", row->name, (int)first, out.status);
        if (out.status == SL_OK && !out.is_right)
            fail_msg("%s, request %d: wrong numbers and no error", row->name, (int)first);
        if (row->heals && out.status != SL_OK)
            fail_msg("%s, request %d: %s", row->name, (int)first, sl_status_message());
    }
    assert_true(row->heals || failures > 0 || STRIDE > 1);
    print_message("%-24s %4d requests broken, %4d runs failed\n", row->name, (int)hits,
                  (int)failures);
    return hits;
}

static void requests_when_broken_once_each_give_the_same_bits_or_an_error(void **state)
{
    (void)state;
    uint32_t step_count = getenv("SL_TEST_FULL") ? 40 : 5;
    uint64_t hits = 0;
    for (int i = 0; i < ROW_COUNT; i++)
        hits += break_each(&rows[i], step_count);
    print_message("%d faults\n", (int)hits);
    assert_true(hits >= 700 / STRIDE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_when_broken_once_each_give_the_same_bits_or_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
