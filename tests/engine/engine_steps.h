/* Steps over the world of engine_world.h, checked by cmocka. Include after <cmocka.h>. */
#ifndef TESTS_ENGINE_STEPS_H
#define TESTS_ENGINE_STEPS_H

#include <stdlib.h>

#include "engine_world.h"

static inline uint32_t rounds(uint32_t quick)
{
    return getenv("SL_TEST_FULL") ? quick * 20 : quick;
}

/* Makes the update of chunk 1 a second `finish`, so that only the host lane updates. It overwrites
 * the control, so it waits until that has been copied out (wait 14 of the world's list). */
static inline void update_on_host_only(world *w)
{
    w->train_body[8] = w->train_body[5];
    w->train_body[8].first_wait = 14;
    w->train_body[8].wait_count = 1;
}

static inline sl_engine *open_world(world *w)
{
    sl_engine *engine = NULL;
    sl_status status = sl_engine_open_with(&w->options, &w->parts, &engine);
    if (status != SL_OK)
        fail_msg("%s", sl_status_message());
    return engine;
}

static inline void write_numbers(sl_engine *engine, sl_group group, uint32_t chunk, uint64_t number)
{
    uint64_t words[CHUNK_WORDS];
    write_chunk_number(words, number);
    /* in two parts, so that the offset counts */
    assert_int_equal(sl_engine_write_chunk(engine, group, chunk, 0, 1000, words), SL_OK);
    assert_int_equal(
        sl_engine_write_chunk(engine, group, chunk, 1000, CHUNK_BYTES - 1000, (char *)words + 1000),
        SL_OK);
}

static inline uint64_t read_number(sl_engine *engine, sl_group group, uint32_t chunk)
{
    uint64_t words[CHUNK_WORDS];
    assert_int_equal(sl_engine_read_chunk(engine, group, chunk, 0, 4000, words), SL_OK);
    assert_int_equal(
        sl_engine_read_chunk(engine, group, chunk, 4000, CHUNK_BYTES - 4000, (char *)words + 4000),
        SL_OK);
    return read_chunk_number(words);
}

static inline void start_numbers(sl_engine *engine, world_numbers *numbers)
{
    *numbers = (world_numbers){{11, 22}, {0, 0}};
    write_numbers(engine, SL_GROUP_PARAM, 0, 11);
    write_numbers(engine, SL_GROUP_PARAM, 1, 22);
}

static inline void check_numbers(sl_engine *engine, const world_numbers *numbers)
{
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        assert_int_equal(read_number(engine, SL_GROUP_PARAM, chunk), numbers->param[chunk]);
        assert_int_equal(read_number(engine, SL_GROUP_STATE1, chunk), numbers->moment[chunk]);
        assert_int_equal(read_number(engine, SL_GROUP_STATE2, chunk), 0);
    }
    assert_int_equal(fakes.wrong, 0);
}

/* The input slot, taken without asking the engine: both plans have it at one place. */
static inline uint64_t *find_input(const sl_engine *engine)
{
    const char *host = sl_engine_arena(engine, SL_TIER_HOST);
    return (uint64_t *)(uintptr_t)(host + HOST_INPUT);
}

/* One step of `plan`; returns its output. */
static inline sl_status step(sl_engine *engine, uint32_t plan, uint64_t token, uint32_t position,
                             uint64_t *out_output)
{
    sl_step_scalars scalars = {.learning_rate = 0.5f, .position = position};
    *find_input(engine) = token;
    SL_TRY(sl_engine_step(engine, plan, &scalars));
    *out_output = *(const uint64_t *)sl_engine_output(engine, plan, SL_OUTPUT_CONTROL);
    return SL_OK;
}

static inline void step_and_check(sl_engine *engine, uint32_t plan, world_numbers *numbers,
                                  uint64_t token)
{
    uint64_t output = 0;
    uint64_t expected =
        plan == TRAIN_PLAN ? expect_train(numbers, token) : expect_forward(numbers, token);
    if (step(engine, plan, token, 0, &output) != SL_OK)
        fail_msg("%s", sl_status_message());
    assert_int_equal(output, expected);
}

#endif
