/* The devices that a body of tests runs over, the one it runs over now, and how a test takes
 * streams, events and memory of it. Linked with tests/cuda it is the stand-in with and without
 * cuStreamWaitValue32; else the cpu, and a GPU where one opens, likewise both ways. */
#ifndef SL_TESTS_DEVICE_CASE_H
#define SL_TESTS_DEVICE_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "device/device.h"

#ifdef SL_TEST_STANDIN
#include "standin.h"
#endif

typedef struct backend {
    const char *name;
    sl_device_kind kind;
    bool may_block; /* waiting for a host stream may hold up the control thread */
    bool is_delayed;
} backend;

static const backend backends[] = {
#ifdef SL_TEST_STANDIN
    {"stand-in", SL_DEVICE_CUDA, false, true},
    {"stand-in without stream memory operations", SL_DEVICE_CUDA, true, true},
#else
    {"cpu", SL_DEVICE_CPU, false, false},
    {"cuda", SL_DEVICE_CUDA, false, false},
    {"cuda without stream memory operations", SL_DEVICE_CUDA, true, false},
#endif
};

static const backend *tested;
static const sl_device_ops *ops;
static sl_device *device;

static int open_tested(void **state)
{
    (void)state;
#ifdef SL_TEST_STANDIN
    standin_machine machine = standin_default();
    machine.has_wait_value = !tested->may_block;
    standin_reset(&machine);
#endif
    const sl_cuda_options options = {.no_wait_value = tested->may_block};
    ops = sl_device_ops_of(tested->kind);
    return ops->open(0, &options, &device) == SL_OK ? 0 : -1;
}

static int close_tested(void **state)
{
    (void)state;
    ops->close(device);
#ifdef SL_TEST_STANDIN
    const char *first;
    standin_counts live = standin_live();
    if (standin_faults(&first) > 0)
        fail_msg("%s", first);
    return live.allocations + live.streams + live.events + live.registrations > 0 ? -1 : 0;
#endif
    return 0;
}

static sl_device_stream *open_stream(sl_stream_kind kind, const char *name,
                                     const sl_queue_observer *observer)
{
    sl_device_stream *stream;
    assert_int_equal(ops->stream_open(device, kind, name, observer, &stream), SL_OK);
    return stream;
}

static sl_device_event *open_event(void)
{
    sl_device_event *event;
    assert_int_equal(ops->event_open(device, &event), SL_OK);
    return event;
}

static void *map_host(uint64_t bytes)
{
    void *memory;
    assert_int_equal(ops->map_host(device, bytes, SL_MAP_PLAIN, &memory), SL_OK);
    return memory;
}

static void *map_device(uint64_t bytes)
{
    void *memory;
    assert_int_equal(ops->map(device, bytes, SL_MAP_PLAIN, &memory), SL_OK);
    return memory;
}

static void sleep_us(uint64_t us)
{
    struct timespec time = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    nanosleep(&time, NULL);
}

#endif
