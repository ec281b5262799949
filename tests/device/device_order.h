/* Random orders of copies and host calls over the streams of a device, with the waits that their
 * hazards need and some more, against the same work done one after the other. */
#ifndef SL_TESTS_DEVICE_ORDER_H
#define SL_TESTS_DEVICE_ORDER_H

#include <stdlib.h>

#include "base/rng.h"
#include "device_case.h"
#ifdef SL_TEST_STANDIN
#include "stream_order.h"
#endif

enum { STREAMS = 5, HOSTS = 2, EVENTS = 6, CELLS = 5, CELL_WORDS = 64, STEPS = 120 };

/* Host cells come first; a host stream reaches those alone. */
typedef struct order {
    uint64_t seed, draw;
    bool has_waits;
    sl_device_stream *streams[STREAMS];
    sl_device_event *events[EVENTS];
    uint64_t *cells[2 * CELLS];
    uint64_t expected[2 * CELLS][CELL_WORDS];
    uint32_t clock[STREAMS][STREAMS]; /* items of each stream that come before what is next */
    uint32_t event_clock[EVENTS][STREAMS];
    uint32_t issued[STREAMS];
    uint32_t writer[2 * CELLS], write[2 * CELLS]; /* who wrote last, and his item */
    uint32_t reads[2 * CELLS][STREAMS];           /* last item of each that read since */
} order;

static uint32_t pick(order *random, uint32_t bound)
{
    return (uint32_t)sl_rng_below(random->seed, 0, random->draw++, bound);
}

static void mix(uint64_t *to, const uint64_t *from, uint64_t salt)
{
    for (int i = 0; i < CELL_WORDS; i++) {
        uint64_t x = to[i] * 0x9E3779B97F4A7C15u + from[i] * 0xC2B2AE3D27D4EB4Fu + salt + 1;
        to[i] = x ^ x >> 31;
    }
}

typedef struct mix_args {
    uint64_t *to;
    const uint64_t *from;
    uint64_t salt, us;
} mix_args;

/* The stand-in checks the order of what it is told of. */
static void tell_of_mix(const mix_args *args)
{
#ifdef SL_TEST_STANDIN
    const uint64_t bytes = CELL_WORDS * sizeof *args->to;
    const standin_range ranges[] = {{args->from, bytes, false, "from"},
                                    {args->to, bytes, true, "to"}};
    standin_touch_on_host("mix", ranges, 2);
#else
    (void)args;
#endif
}

static sl_status run_mix(void *arguments)
{
    const mix_args *args = arguments;
    tell_of_mix(args);
    if (args->us)
        sleep_us(args->us);
    mix(args->to, args->from, args->salt);
    return SL_OK;
}

static void raise_to(uint32_t *clock, const uint32_t *other)
{
    for (int i = 0; i < STREAMS; i++)
        clock[i] = other[i] > clock[i] ? other[i] : clock[i];
}

static void issue_record(order *random, uint32_t event, uint32_t stream)
{
    assert_int_equal(ops->event_record(random->events[event], random->streams[stream]), SL_OK);
    memcpy(random->event_clock[event], random->clock[stream], sizeof random->clock[stream]);
    random->event_clock[event][stream] = random->issued[stream];
}

static void issue_wait(order *random, uint32_t event, uint32_t stream)
{
    if (random->has_waits)
        assert_int_equal(ops->event_wait(random->events[event], random->streams[stream], event),
                         SL_OK);
    raise_to(random->clock[stream], random->event_clock[event]);
}

/* Makes what is issued next in `stream` come after item number `item` of `other`. */
static void need(order *random, uint32_t stream, uint32_t other, uint32_t item)
{
    if (stream == other || random->clock[stream][other] >= item)
        return;
    for (uint32_t e = 0; e < EVENTS; e++) {
        if (random->event_clock[e][other] >= item) {
            issue_wait(random, e, stream);
            return;
        }
    }
    uint32_t event = pick(random, EVENTS);
    issue_record(random, event, other);
    issue_wait(random, event, stream);
}

static void need_cell(order *random, uint32_t stream, uint32_t cell, bool is_written)
{
    need(random, stream, random->writer[cell], random->write[cell]);
    for (uint32_t s = 0; is_written && s < STREAMS; s++)
        need(random, stream, s, random->reads[cell][s]);
}

static void note_item(order *random, uint32_t stream, uint32_t to, uint32_t from)
{
    uint32_t item = ++random->issued[stream];
    random->reads[from][stream] = item;
    random->writer[to] = stream;
    random->write[to] = item;
    memset(random->reads[to], 0, sizeof random->reads[to]);
}

static void issue_item(order *random)
{
    uint32_t stream = pick(random, STREAMS);
    uint32_t reach = stream < HOSTS ? CELLS : 2 * CELLS;
    uint32_t from = pick(random, reach), to = (from + 1 + pick(random, reach - 1)) % reach;
    if (stream >= HOSTS && from < CELLS && to < CELLS)
        to += CELLS; /* a copy from host to host holds up whoever asks CUDA for it */
    need_cell(random, stream, from, false);
    need_cell(random, stream, to, true);
    if (stream < HOSTS) {
        mix_args args = {random->cells[to], random->cells[from], random->draw,
                         pick(random, 4) == 0 ? pick(random, 300) : 0};
        assert_int_equal(ops->launch(random->streams[stream], 0, run_mix, &args, sizeof args),
                         SL_OK);
        mix(random->expected[to], random->expected[from], args.salt);
    } else {
        assert_int_equal(ops->copy(random->streams[stream], 0, random->cells[to],
                                   random->cells[from], sizeof random->expected[0]),
                         SL_OK);
        memcpy(random->expected[to], random->expected[from], sizeof random->expected[0]);
    }
    note_item(random, stream, to, from);
}

/* What no hazard asks for: events recorded elsewhere, waits for what is long over. */
static void issue_noise(order *random)
{
    uint32_t what = pick(random, 12), event = pick(random, EVENTS);
    if (what == 0)
        issue_record(random, event, pick(random, STREAMS));
    else if (what == 1)
        issue_wait(random, event, pick(random, STREAMS));
    else if (what == 2 && pick(random, 4) == 0)
        assert_int_equal(ops->event_finish(random->events[event]), SL_OK);
    else if (what == 3 && pick(random, 8) == 0)
        assert_int_equal(ops->stream_finish(random->streams[pick(random, STREAMS)]), SL_OK);
}

static void open_order(order *random)
{
    for (int i = 0; i < STREAMS; i++)
        random->streams[i] =
            open_stream(i < HOSTS ? SL_STREAM_HOST : SL_STREAM_DEVICE, "random", NULL);
    for (int i = 0; i < EVENTS; i++)
        random->events[i] = open_event();
    for (int i = 0; i < 2 * CELLS; i++) {
        random->cells[i] = i < CELLS ? map_host(sizeof random->expected[0])
                                     : map_device(sizeof random->expected[0]);
        for (int w = 0; i < CELLS && w < CELL_WORDS; w++)
            random->cells[i][w] = random->expected[i][w] = (uint64_t)(i * CELL_WORDS + w);
    }
}

/* Finishes; returns how many cells are not what they should be. */
static uint32_t close_order(order *random)
{
    uint32_t wrong = 0;
    uint64_t seen[CELL_WORDS];
    for (int i = 0; i < STREAMS; i++)
        assert_int_equal(ops->stream_finish(random->streams[i]), SL_OK);
    for (int i = 0; i < 2 * CELLS; i++) {
        sl_device_stream *stream = random->streams[HOSTS];
        assert_int_equal(ops->copy(stream, 0, seen, random->cells[i], sizeof seen), SL_OK);
        assert_int_equal(ops->stream_finish(stream), SL_OK);
        wrong += memcmp(seen, random->expected[i], sizeof seen) != 0;
        (i < CELLS ? ops->unmap_host : ops->unmap)(device, random->cells[i], sizeof seen,
                                                   SL_MAP_PLAIN);
    }
    for (int i = 0; i < STREAMS; i++)
        ops->stream_close(random->streams[i]);
    for (int i = 0; i < EVENTS; i++)
        ops->event_close(random->events[i]);
    return wrong;
}

static uint32_t run_order(uint64_t seed, bool has_waits)
{
    order *random = calloc(1, sizeof *random);
    assert_non_null(random);
    random->seed = seed;
    random->has_waits = has_waits;
    open_order(random);
    for (int i = 0; i < STEPS; i++) {
        issue_noise(random);
        issue_item(random);
    }
    uint32_t wrong = close_order(random);
    free(random);
    return wrong;
}

#endif
