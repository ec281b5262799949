/* What could be wrong with parts of chunks that live on disk: they come from a stale bounce piece,
 * stay in one, trample on what lies beside them, or a fresh disk is not zero. Random calls between
 * iterations that move whole chunks, compared with a shadow in memory.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine_disk_place.h"

static uint64_t read_seed(void)
{
    const char *given = getenv("SL_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    return seed;
}

/* Three chunks of 2.3 MiB on disk, none at the border of a piece; a plan whose iteration copies
 * chunk 0 over chunk 1 by the lanes. */
enum {
    PART_BLOCKS = 300,
    PART_CHUNKS = 3,
    PART_BYTES = PART_BLOCKS * CHUNK_BYTES,
    PART_GAP = 3 * SL_DISK_ALIGNMENT,
    PART_STRIDE = (PART_BYTES / SL_DISK_ALIGNMENT + 1) * SL_DISK_ALIGNMENT + PART_GAP,
    PART_BOUNCE = PART_BYTES,
    PART_HOST = PART_BOUNCE + SL_BOUNCE_BYTES + 256, /* no whole page: the arena must still be */
    PART_DISK = PART_GAP + PART_CHUNKS * PART_STRIDE
};

typedef struct part_world {
    uint8_t tier[PART_CHUNKS];
    uint64_t offset[PART_CHUNKS];
    sl_homes homes;
    sl_layout layout;
    sl_chunk chunks[PART_CHUNKS];
    sl_program program;
    sl_command body[2];
    sl_wait waits[2];
    sl_section section;
    sl_plan plan;
    sl_engine_plan plans[1];
    const char *directories[3];
    sl_engine_options options;
    sl_engine_parts parts;
} part_world;

static sl_command move_chunk(sl_lane lane, uint64_t disk, uint32_t first_wait)
{
    sl_place host = {SL_TIER_HOST, 0, PART_BYTES}, place = {SL_TIER_DISK, disk, PART_BYTES};
    bool is_read = lane == SL_LANE_READ;
    return (sl_command){.kind = SL_COMMAND_COPY,
                        .lane = lane,
                        .value = SL_NONE,
                        .from = is_read ? place : host,
                        .to = is_read ? host : place,
                        .first_wait = first_wait,
                        .wait_count = 1};
}

static void part_world_init(part_world *p, const sl_transport_ops *transport)
{
    memset(p, 0, sizeof *p);
    for (uint32_t i = 0; i < PART_CHUNKS; i++) {
        p->tier[i] = SL_TIER_DISK;
        p->offset[i] = PART_GAP + i * PART_STRIDE;
        p->directories[i] = directory.text;
    }
    p->homes = (sl_homes){.chunk_count = PART_CHUNKS,
                          .tier = {p->tier},
                          .offset = {p->offset},
                          .bounce_offset = PART_BOUNCE,
                          .bounce_bytes = SL_BOUNCE_BYTES,
                          .fixed_bytes = {0, PART_HOST, PART_DISK}};
    for (uint32_t i = 0; i < PART_CHUNKS; i++)
        p->chunks[i] = (sl_chunk){.elements = PART_BYTES / sizeof(float)};
    p->layout = (sl_layout){.chunk_count = PART_CHUNKS, .chunks = p->chunks};
    p->body[0] = move_chunk(SL_LANE_READ, p->offset[0], 0);
    p->body[1] = move_chunk(SL_LANE_WRITE, p->offset[1], 1);
    p->waits[0] = (sl_wait){1, 0};
    p->waits[1] = (sl_wait){0, 0};
    p->section = (sl_section){.count = 2, .repeat = 1};
    p->plan = (sl_plan){.body = p->body,
                        .body_count = 2,
                        .sections = &p->section,
                        .section_count = 1,
                        .waits = p->waits,
                        .wait_count = 2,
                        .peak_bytes = {0, PART_HOST, PART_DISK}};
    p->plans[0] = (sl_engine_plan){&p->program, &p->plan};
    p->options = (sl_engine_options){.layout = &p->layout,
                                     .homes = &p->homes,
                                     .plans = p->plans,
                                     .plan_count = 1,
                                     .target = {.worker_count = 1},
                                     .disk_directories = p->directories,
                                     .disk_directory_count = PART_CHUNKS};
    p->parts = (sl_engine_parts){.kernels = &fake_kernels, .transport = transport};
}

static sl_engine *open_parts(part_world *p)
{
    sl_engine *engine = NULL;
    if (sl_engine_open_with(&p->options, &p->parts, &engine) != SL_OK)
        fail_msg("%s", sl_status_message());
    return engine;
}

/* One random call on a chunk or on the engine. */
static void poke(sl_engine *engine, unsigned char *shadow, uint64_t seed, uint64_t i)
{
    static unsigned char data[PART_BYTES];
    static const sl_step_scalars scalars;
    uint64_t kind = sl_rng_below(seed, 0, i, 12);
    uint32_t chunk = (uint32_t)sl_rng_below(seed, 1, i, PART_CHUNKS);
    uint64_t first = sl_rng_below(seed, 2, i, PART_BYTES);
    uint64_t most = i % 3 == 0 ? PART_BYTES - first : 1 + (PART_BYTES - first) / 64;
    uint64_t bytes = i % 17 == 0 ? PART_BYTES : 1 + sl_rng_below(seed, 3, i, most);
    first = bytes == PART_BYTES ? 0 : first;
    unsigned char *expected = shadow + chunk * (uint64_t)PART_BYTES;
    if (kind == 11) {
        assert_int_equal(sl_engine_step(engine, 0, &scalars), SL_OK);
        memcpy(shadow + PART_BYTES, shadow, PART_BYTES);
    } else if (kind < 6) {
        for (uint64_t k = 0; k < bytes; k++)
            expected[first + k] = (unsigned char)(i * 31 + k * 7 + (k >> 8));
        assert_int_equal(
            sl_engine_write_chunk(engine, SL_GROUP_PARAM, chunk, first, bytes, expected + first),
            SL_OK);
    } else {
        memset(data, 0x5A, bytes);
        assert_int_equal(sl_engine_read_chunk(engine, SL_GROUP_PARAM, chunk, first, bytes, data),
                         SL_OK);
        assert_memory_equal(data, expected + first, bytes);
    }
}

static void parts_when_read_and_written_at_random_match_a_shadow(void **state)
{
    (void)state;
    uint64_t seed = read_seed();
    static part_world p;
    unsigned char *data = malloc(PART_BYTES);
    for (uint32_t round = 0; round < 2; round++) {
        unsigned char *shadow = calloc(PART_CHUNKS, PART_BYTES);
        part_world_init(&p, choose_transport(round));
        p.options.guard_arenas = round == 0;
        store_double.delay_us = 0;
        sl_engine *engine = open_parts(&p);
        for (uint64_t i = 0; i < rounds(400); i++)
            poke(engine, shadow, seed + round, i);
        for (uint32_t chunk = 0; chunk < PART_CHUNKS; chunk++) {
            assert_int_equal(
                sl_engine_read_chunk(engine, SL_GROUP_PARAM, chunk, 0, PART_BYTES, data), SL_OK);
            assert_memory_equal(data, shadow + chunk * (uint64_t)PART_BYTES, PART_BYTES);
        }
        sl_engine_close(engine);
        free(shadow);
    }
    free(data);
}

/* Memory is patterned here, so zeros come from the disk. */
static void chunks_when_the_engine_opens_are_zero(void **state)
{
    (void)state;
    static part_world p;
    static const unsigned char zeros[PART_BYTES];
    unsigned char *data = malloc(PART_BYTES);
    part_world_init(&p, NULL);
    p.options.guard_arenas = true;
    sl_engine *engine = open_parts(&p);
    for (uint32_t chunk = 0; chunk < PART_CHUNKS; chunk++) {
        assert_int_equal(sl_engine_read_chunk(engine, SL_GROUP_PARAM, chunk, 0, PART_BYTES, data),
                         SL_OK);
        assert_memory_equal(data, zeros, PART_BYTES);
    }
    assert_int_equal(sl_engine_read_chunk(engine, SL_GROUP_PARAM, 0, 1, PART_BYTES, data),
                     SL_ERROR_INTERNAL);
    sl_engine_close(engine);
    free(data);
}

/* Moves chunk 0 from front to back, `stride` bytes a call, and returns the requests of `lanes`. */
static uint64_t stream(sl_engine *engine, bool is_write, uint64_t stride, int lanes)
{
    static unsigned char data[PART_BYTES];
    assert_int_equal(sl_engine_drain(engine), SL_OK);
    store_double_arm((store_double_plan){.lanes = lanes, .first = UINT64_MAX});
    for (uint64_t first = 0; first < PART_BYTES; first += stride) {
        uint64_t bytes = PART_BYTES - first < stride ? PART_BYTES - first : stride;
        assert_int_equal(
            is_write ? sl_engine_write_chunk(engine, SL_GROUP_PARAM, 0, first, bytes, data + first)
                     : sl_engine_read_chunk(engine, SL_GROUP_PARAM, 0, first, bytes, data + first),
            SL_OK);
    }
    assert_int_equal(sl_engine_drain(engine), SL_OK);
    return store_double_requests;
}

/* Puts cuts of other chunks into the bounce pieces. */
static void touch_others(sl_engine *engine)
{
    uint64_t word = 7;
    for (uint32_t chunk = 1; chunk < PART_CHUNKS; chunk++)
        assert_int_equal(sl_engine_write_chunk(engine, SL_GROUP_PARAM, chunk, 8, 8, &word), SL_OK);
}

/* A cut is read before it is written only where a call writes a part of it. */
static void sequence_when_streamed_moves_each_cut_once(void **state)
{
    (void)state;
    enum { CUTS = 3, STRIDE = 100000 };
    static const struct {
        bool is_write;
        uint64_t stride;
        int lanes;
        uint64_t requests;
    } rows[] = {
        {true, STRIDE, DOUBLE_WRITES, CUTS},     {true, STRIDE, DOUBLE_READS, CUTS},
        {true, PART_BYTES, DOUBLE_WRITES, CUTS}, {true, PART_BYTES, DOUBLE_READS, 0},
        {false, STRIDE, DOUBLE_READS, CUTS},     {false, STRIDE, DOUBLE_WRITES, 0},
        {false, PART_BYTES, DOUBLE_READS, CUTS},
    };
    static part_world p;
    part_world_init(&p, &store_double_ops);
    sl_engine *engine = open_parts(&p);
    (void)stream(engine, true, PART_BYTES, DOUBLE_BOTH); /* what was never written is not read */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        touch_others(engine);
        uint64_t found = stream(engine, rows[i].is_write, rows[i].stride, rows[i].lanes);
        if (found != rows[i].requests)
            fail_msg("row %zu: %llu requests", i, (unsigned long long)found);
    }
    sl_engine_close(engine);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(parts_when_read_and_written_at_random_match_a_shadow),
        TEST(chunks_when_the_engine_opens_are_zero),
        TEST(sequence_when_streamed_moves_each_cut_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
