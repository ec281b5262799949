/* What could be wrong in the cuda device beside its streams (engine/test_device_streams.c): a
 * machine that it should refuse, or a message that does not say why; memory that is locked twice,
 * not at all, or unmapped while locked; a copy over the border of two registrations; a write
 * outside of guarded memory that nobody hears of; times of kernels that count what was idle, or
 * that are lost; waits told of in another order than one waited for the other; a wait that takes
 * time although nothing is left to wait for, or an event that cannot be recorded again while
 * somebody is still to look at it. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "skip.h"
#include "standin_case.h"

static sl_device *open_device(void)
{
    sl_device *device;
    assert_int_equal(ops->open(0, NULL, &device), SL_OK);
    return device;
}

/* ---- opening ---- */

static void expect_refusal(const standin_machine *machine, int index, const char *reason)
{
    sl_device *device = NULL;
    standin_reset(machine);
    assert_int_equal(ops->open(index, NULL, &device), SL_ERROR_SYSTEM);
    assert_null(device);
    if (!strstr(sl_status_message(), reason))
        fail_msg("'%s' is not in '%s'", reason, sl_status_message());
    check_nothing_left();
}

static void open_when_the_machine_will_not_do_says_why(void **state)
{
    (void)state;
    standin_machine machine = plain_machine();
    machine.driver_version = 0;
    expect_refusal(&machine, 0, "no NVIDIA driver");
    machine.driver_version = 12040;
    expect_refusal(&machine, 0,
                   "knows CUDA 12.4, and this build, with CUDA 13.0, needs an NVIDIA driver R580");
    machine = plain_machine();
    machine.device_count = 0;
    expect_refusal(&machine, 0, "no GPU");
    machine.device_count = 1;
    expect_refusal(&machine, 1, "no cuda device 1, only 0");
    expect_refusal(&machine, -1, "no cuda device -1");
    machine.device_count = 4;
    expect_refusal(&machine, 4, "only 0 to 3");
    machine.major = 7;
    machine.minor = 5;
    expect_refusal(&machine, 2, "compute capability 7.5");
}

/* True where the stand-in for NVML is found (nvml.c): CTest says where it is. */
static bool has_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    bool is_ours = library && dlsym(library, "standin_nvml");
    if (library)
        dlclose(library);
    return is_ours;
}

static void describe_when_open_tells_what_the_gpu_is(void **state)
{
    (void)state;
    standin_machine machine = plain_machine();
    sl_device_info before, after;
    void *memory;
    machine.device_count = 2;
    machine.multiprocessor_count = 17;
    standin_reset(&machine);
    sl_device *device;
    assert_int_equal(ops->open(1, NULL, &device), SL_OK);
    assert_int_equal(ops->describe(device, &before), SL_OK);
    assert_string_equal(before.name, "Stand-in 1");
    assert_string_equal(before.detail, "sm_90, 17 multiprocessors, driver 13.0, runtime 13.0");
    assert_int_equal(before.multiprocessor_count, 17);
    assert_int_equal(before.total_bytes, machine.device_bytes);
    assert_int_equal(before.free_bytes, machine.device_bytes - machine.context_bytes);
    assert_int_equal(before.numa_node, -1); /* no bus has the stand-in */
    assert_int_equal(before.overhead_bytes, has_nvml() ? machine.context_bytes : 0);
    assert_int_equal(ops->map(device, 1 << 20, SL_MAP_PLAIN, &memory), SL_OK);
    assert_int_equal(ops->describe(device, &after), SL_OK);
    assert_int_equal(before.free_bytes - after.free_bytes, 1 << 20);
    ops->unmap(device, memory, 1 << 20, SL_MAP_PLAIN);
    ops->close(device);
}

/* NVML knows the whole GPU, of which CUDA uses one instance: what its context took is not known. */
static void describe_when_the_gpu_is_divided_tells_of_no_overhead(void **state)
{
    (void)state;
    enum { INDEX = 3 }; /* what a context took is kept by the device's number */
    standin_machine machine = plain_machine();
    sl_device_info info;
    sl_device *device;
    machine.device_count = INDEX + 1;
    standin_reset(&machine);
    if (!has_nvml())
        skip_because("the stand-in for NVML is not where the loader looks (LD_LIBRARY_PATH)");
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*divide)(int is_divided);
    void *symbol = dlsym(library, "standin_nvml");
    memcpy(&divide, &symbol, sizeof divide);
    divide(1);
    assert_int_equal(ops->open(INDEX, NULL, &device), SL_OK);
    assert_int_equal(ops->describe(device, &info), SL_OK);
    ops->close(device);
    divide(0);
    dlclose(library);
    assert_int_equal(info.overhead_bytes, 0);
    assert_int_equal(info.free_bytes, machine.device_bytes - machine.context_bytes);
}

/* ---- memory ---- */

typedef struct remarks {
    uint32_t count;
    char first[256];
} remarks;

static void note_remark(void *user, sl_log_level level, const char *line)
{
    remarks *seen = user;
    if (level == SL_LOG_WARNING && seen->count++ == 0)
        snprintf(seen->first, sizeof seen->first, "%s", line);
}

/* Writes one byte at `at` of guarded memory as a kernel could, and returns what the log heard. */
static remarks write_outside(uint64_t bytes, int64_t at)
{
    remarks seen = {0};
    sl_device *device = open_device();
    void *memory;
    sl_log_set_callback(note_remark, &seen);
    assert_int_equal(ops->map(device, bytes, SL_MAP_GUARDS, &memory), SL_OK);
    assert_int_equal(cudaMemset((unsigned char *)memory + at, 7, 1), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
    ops->unmap(device, memory, bytes, SL_MAP_GUARDS);
    sl_log_set_callback(NULL, NULL);
    ops->close(device);
    return seen;
}

static void guards_when_written_are_named_by_offset(void **state)
{
    (void)state;
    const int64_t bytes[] = {64, 100, 4096, 100000};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(write_outside((uint64_t)bytes[i], bytes[i] - 1).count, 0);
        assert_int_equal(write_outside((uint64_t)bytes[i], 0).count, 0);
        const int64_t wrong[] = {bytes[i], bytes[i] + 4095, -1, -4096};
        for (int w = 0; w < 4; w++) {
            char place[64];
            remarks seen = write_outside((uint64_t)bytes[i], wrong[w]);
            snprintf(place, sizeof place, "at offset %lld", (long long)wrong[w]);
            assert_int_equal(seen.count, 1);
            assert_non_null(strstr(seen.first, place));
        }
    }
}

static void map_host_when_mapped_is_locked_whole(void **state)
{
    (void)state;
    const uint64_t sizes[] = {1, 4096, 5000, (3 << 20) + 77};
    const int flags[] = {SL_MAP_PLAIN, SL_MAP_GUARDS, SL_MAP_PATTERN};
    sl_device *device = open_device();
    for (int i = 0; i < 12; i++) {
        void *memory;
        uint64_t bytes = sizes[i % 4];
        assert_int_equal(ops->map_host(device, bytes, flags[i / 4], &memory), SL_OK);
        assert_true(standin_is_locked(memory, bytes));
        ops->unmap_host(device, memory, bytes, flags[i / 4]);
    }
    ops->close(device);
}

static void map_host_when_locking_is_refused_warns_once_and_works(void **state)
{
    (void)state;
    remarks seen = {0};
    standin_machine machine = plain_machine();
    machine.lockable_bytes = 100000;
    standin_reset(&machine);
    sl_device *device = open_device();
    void *memory[3];
    sl_log_set_callback(note_remark, &seen);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ops->map_host(device, 200000, SL_MAP_PLAIN, &memory[i]), SL_OK);
        memset(memory[i], 1, 200000);
        assert_false(standin_is_locked(memory[i], 200000));
    }
    for (int i = 0; i < 3; i++)
        ops->unmap_host(device, memory[i], 200000, SL_MAP_PLAIN);
    sl_log_set_callback(NULL, NULL);
    assert_int_equal(seen.count, 1);
    assert_non_null(strstr(seen.first, "--host-memory"));
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess); /* or a launch takes it for its own */
    ops->close(device);
}

enum { PIECE = 65536, PIECES = 5, BYTES = PIECES * PIECE };

/* Copies of many stretches of the host memory, there and back, are right, and each is as many calls
 * as it has pieces: CUDA takes no copy over a border. */
static void check_copies(sl_device *device, unsigned char *host)
{
    static unsigned char expected[BYTES];
    const uint64_t stretches[][3] = {
        /* first byte, bytes, pieces */
        {0, BYTES, 5},         {1, BYTES - 2, 5},         {PIECE - 1, 2, 2},
        {PIECE, PIECE, 1},     {2 * PIECE, PIECE, 1},     {2 * PIECE - 1, 2, 2},
        {3 * PIECE - 1, 2, 2}, {3 * PIECE, 2 * PIECE, 2}, {4 * PIECE + 7, 9, 1}};
    sl_device_stream *stream;
    void *on_device;
    assert_int_equal(ops->map(device, BYTES, SL_MAP_PLAIN, &on_device), SL_OK);
    assert_int_equal(ops->stream_open(device, SL_STREAM_DEVICE, "s", NULL, &stream), SL_OK);
    for (int i = 0; i < BYTES; i++)
        expected[i] = (unsigned char)(i * 7 + i / 251);
    for (size_t i = 0; i < sizeof stretches / sizeof stretches[0]; i++) {
        const uint64_t first = stretches[i][0], bytes = stretches[i][1];
        const uint64_t calls = standin_calls("cudaMemcpyAsync");
        memcpy(host, expected, BYTES);
        assert_int_equal(ops->copy(stream, 0, on_device, host + first, bytes), SL_OK);
        assert_int_equal(ops->stream_finish(stream), SL_OK);
        memset(host, 0, BYTES);
        assert_int_equal(ops->copy(stream, 0, host + first, on_device, bytes), SL_OK);
        assert_int_equal(ops->stream_finish(stream), SL_OK);
        assert_memory_equal(host + first, expected + first, bytes);
        assert_int_equal(standin_calls("cudaMemcpyAsync") - calls, 2 * stretches[i][2]);
    }
    ops->stream_close(stream);
    ops->unmap(device, on_device, BYTES, SL_MAP_PLAIN);
}

static void copy_when_host_memory_is_locked_in_pieces_is_cut_at_each_border(void **state)
{
    (void)state;
    sl_device *device = open_device();
    void *host;
    assert_int_equal(ops->map_host(device, BYTES, SL_MAP_PLAIN, &host), SL_OK);
    assert_true(standin_is_locked(host, BYTES));
    check_copies(device, host);
    ops->unmap_host(device, host, BYTES, SL_MAP_PLAIN);
    ops->close(device);
}

static void map_host_when_a_piece_is_refused_locks_the_others(void **state)
{
    (void)state;
    remarks seen = {0};
    sl_device *device = open_device();
    void *host;
    sl_log_set_callback(note_remark, &seen);
    standin_fail_call("cudaHostRegister", 3, cudaErrorMemoryAllocation);
    assert_int_equal(ops->map_host(device, BYTES, SL_MAP_PLAIN, &host), SL_OK);
    sl_log_set_callback(NULL, NULL);
    for (int i = 0; i < PIECES; i++)
        assert_int_equal(standin_is_locked((char *)host + i * PIECE, PIECE), i != 2);
    assert_int_equal(seen.count, 1);
    assert_non_null(strstr(seen.first, "does not lock 65536 of 327680 bytes"));
    check_copies(device, host);
    ops->unmap_host(device, host, BYTES, SL_MAP_PLAIN);
    ops->close(device);
}

static void map_when_the_device_is_full_says_so(void **state)
{
    (void)state;
    standin_machine machine = plain_machine();
    machine.device_bytes = UINT64_C(64) << 20;
    standin_reset(&machine);
    sl_device *device = open_device();
    void *memory = NULL;
    assert_int_equal(ops->map(device, UINT64_C(40) << 20, SL_MAP_PLAIN, &memory), SL_ERROR_FIT);
    assert_non_null(
        strstr(sl_status_message(), "41943040 bytes of device memory: the GPU does not"));
    assert_non_null(strstr(sl_status_message(), "of its 67108864 are free"));
    assert_non_null(strstr(sl_status_message(), "--device-memory"));
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    ops->close(device);
}

/* ---- times of kernels ---- */

enum { KERNEL_US = 5000, IDLE_US = 300000 };

typedef struct observation {
    uint32_t ran_count;
    uint64_t last_tag, busy_ns;
} observation;

static void note_ran(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    observation *seen = user;
    seen->ran_count++;
    seen->last_tag = tag;
    seen->busy_ns += end_ns - start_ns;
}

static void sleep_in_kernel(void *argument)
{
    (void)argument;
    usleep(KERNEL_US);
}

static sl_status launch_kernel(void *arguments)
{
    void *native = ops->stream_native(*(sl_device_stream **)arguments);
    return standin_queue(native, "kernel", sleep_in_kernel, NULL) == 0 ? SL_OK : SL_ERROR_SYSTEM;
}

static void launch_one(sl_device_stream *stream, uint64_t tag)
{
    assert_int_equal(ops->launch(stream, tag, launch_kernel, &stream, sizeof stream), SL_OK);
}

/* Two kernels, a record, a pause, one more, a finish, a pause, and one more. `out_ns`: all of that
 * without the pauses. */
static observation observe_kernels(bool wants_each, uint64_t *out_ns)
{
    observation seen = {0};
    const uint64_t start_ns = sl_clock_now_ns();
    sl_queue_observer observer = {note_ran, NULL, &seen, wants_each};
    sl_device *device = open_device();
    sl_device_stream *stream;
    sl_device_event *event;
    assert_int_equal(ops->stream_open(device, SL_STREAM_DEVICE, "s", &observer, &stream), SL_OK);
    assert_int_equal(ops->event_open(device, &event), SL_OK);
    launch_one(stream, 1);
    launch_one(stream, 2);
    assert_int_equal(ops->event_record(event, stream), SL_OK);
    assert_int_equal(ops->event_finish(event), SL_OK);
    assert_int_equal(seen.ran_count, wants_each ? 2 : 1);
    assert_int_equal(seen.last_tag, 2);
    usleep(IDLE_US);
    launch_one(stream, 3);
    assert_int_equal(ops->stream_finish(stream), SL_OK);
    assert_int_equal(seen.last_tag, 3);
    usleep(IDLE_US);
    launch_one(stream, 4);
    assert_int_equal(ops->stream_finish(stream), SL_OK);
    assert_int_equal(seen.last_tag, 4);
    *out_ns = sl_clock_now_ns() - start_ns - 2 * IDLE_US * UINT64_C(1000);
    ops->stream_close(stream);
    ops->event_close(event);
    ops->close(device);
    return seen;
}

static void observer_when_kernels_run_hears_of_runs_or_of_each(void **state)
{
    (void)state;
    for (int wants_each = 0; wants_each < 2; wants_each++) {
        uint64_t took_ns;
        observation seen = observe_kernels(wants_each, &took_ns);
        assert_int_equal(seen.ran_count, wants_each ? 4 : 3);
        assert_in_range(seen.busy_ns, 4 * KERNEL_US * 1000, took_ns);
    }
}

/* Calls of one class are told of as one, those of two never are. */
static void observer_when_tags_are_apart_hears_of_each_class(void **state)
{
    (void)state;
    enum { CLASS = 0x10 };
    observation seen = {0};
    sl_queue_observer observer = {note_ran, NULL, &seen, false, CLASS};
    sl_device *device = open_device();
    sl_device_stream *stream;
    assert_int_equal(ops->stream_open(device, SL_STREAM_DEVICE, "s", &observer, &stream), SL_OK);
    launch_one(stream, 1);
    launch_one(stream, 2);
    launch_one(stream, CLASS | 3);
    launch_one(stream, CLASS | 4);
    launch_one(stream, 5);
    assert_int_equal(ops->stream_finish(stream), SL_OK);
    assert_int_equal(seen.ran_count, 3);
    assert_int_equal(seen.last_tag, 5);
    assert_true(seen.busy_ns / 1000 >= 5 * KERNEL_US);
    ops->stream_close(stream);
    ops->close(device);
}

/* More borders than there is room for: the oldest are told while the rest is issued. */
static void observer_when_there_is_more_than_it_holds_hears_of_all(void **state)
{
    (void)state;
    enum { COPIES = 3000 };
    observation seen = {0};
    sl_queue_observer observer = {note_ran, NULL, &seen, false};
    sl_device *device = open_device();
    sl_device_stream *stream;
    void *memory;
    unsigned char byte = 1;
    assert_int_equal(ops->stream_open(device, SL_STREAM_DEVICE, "s", &observer, &stream), SL_OK);
    assert_int_equal(ops->map(device, 64, SL_MAP_PLAIN, &memory), SL_OK);
    for (uint64_t i = 1; i <= COPIES; i++)
        assert_int_equal(ops->copy(stream, i, memory, &byte, 1), SL_OK);
    assert_int_equal(ops->stream_finish(stream), SL_OK);
    assert_int_equal(seen.ran_count, COPIES);
    assert_int_equal(seen.last_tag, COPIES);
    ops->unmap(device, memory, 64, SL_MAP_PLAIN);
    ops->stream_close(stream);
    ops->close(device);
}

/* ---- events ---- */

static sl_device_stream *open_stream(sl_device *device, sl_stream_kind kind,
                                     const sl_queue_observer *observer)
{
    sl_device_stream *stream;
    assert_int_equal(ops->stream_open(device, kind, "s", observer, &stream), SL_OK);
    return stream;
}

static sl_device_event *open_event(sl_device *device)
{
    sl_device_event *event;
    assert_int_equal(ops->event_open(device, &event), SL_OK);
    return event;
}

typedef struct heard {
    uint64_t tags[4];
    uint32_t count;
} heard;

static void note_tag(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    heard *seen = user;
    assert_true(start_ns < end_ns);
    assert_in_range(seen->count, 0, 3);
    seen->tags[seen->count++] = tag;
}

enum { GATE_POLL_US = 100, GATE_POLLS = 600000, WAIT_US = 50000 };

static sl_status wait_at_gate(void *arguments)
{
    _Atomic bool *is_open = *(_Atomic bool **)arguments;
    for (int i = 0; i < GATE_POLLS && !atomic_load(is_open); i++)
        usleep(GATE_POLL_US);
    if (!atomic_load(is_open))
        SL_FAIL(SL_ERROR_INTERNAL, "the gate stayed closed");
    return SL_OK;
}

/* `second` waits for `first`, which waits for the host. */
static void issue_chain(sl_device_stream *host, sl_device_stream *first, sl_device_stream *second,
                        sl_device_event *const events[3])
{
    _Atomic bool gate = false, *is_open = &gate;
    assert_int_equal(ops->launch(host, 0, wait_at_gate, &is_open, sizeof is_open), SL_OK);
    assert_int_equal(ops->event_record(events[0], host), SL_OK);
    assert_int_equal(ops->event_wait(events[0], first, 1), SL_OK);
    launch_one(first, 0);
    assert_int_equal(ops->event_record(events[1], first), SL_OK);
    assert_int_equal(ops->event_wait(events[1], second, 2), SL_OK);
    launch_one(second, 0);
    assert_int_equal(ops->event_record(events[2], second), SL_OK);
    usleep(WAIT_US); /* both wait by now */
    atomic_store(&gate, true);
    assert_int_equal(ops->stream_finish(host), SL_OK);
}

/* In both orders of opening, and by all ways of waiting. */
static void observer_when_waits_are_chained_hears_of_the_first_one_first(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        heard seen = {0};
        sl_queue_observer observer = {NULL, note_tag, &seen, false};
        sl_device *device = open_device();
        sl_device_stream *host = open_stream(device, SL_STREAM_HOST, NULL),
                         *a = open_stream(device, SL_STREAM_DEVICE, &observer),
                         *b = open_stream(device, SL_STREAM_DEVICE, &observer),
                         *first = round % 2 ? a : b, *second = round % 2 ? b : a;
        sl_device_event *events[] = {open_event(device), open_event(device), open_event(device)};
        issue_chain(host, first, second, events);
        if (round < 2)
            assert_int_equal(ops->event_finish(events[2]), SL_OK);
        else
            assert_int_equal(ops->stream_finish(second), SL_OK);
        assert_int_equal(seen.count, 2);
        assert_int_equal(seen.tags[0], 1);
        assert_int_equal(seen.tags[1], 2);
        ops->stream_close(host);
        ops->stream_close(a);
        ops->stream_close(b);
        for (int i = 0; i < 3; i++)
            ops->event_close(events[i]);
        ops->close(device);
    }
}

/* Neither a place in the stream nor events that take the time. */
static void wait_when_the_record_is_reached_queues_nothing(void **state)
{
    (void)state;
    sl_queue_observer observer = {note_ran, NULL, &(observation){0}, false};
    sl_device *device = open_device();
    sl_device_stream *host = open_stream(device, SL_STREAM_HOST, NULL),
                     *copies = open_stream(device, SL_STREAM_DEVICE, NULL),
                     *waits = open_stream(device, SL_STREAM_DEVICE, &observer);
    sl_device_event *event = open_event(device);
    for (int round = 0; round < 4; round++) {
        assert_int_equal(ops->event_record(event, round % 2 ? host : copies), SL_OK);
        assert_int_equal(ops->event_finish(event), SL_OK);
        uint64_t before = standin_calls("cudaEventRecord");
        assert_int_equal(ops->event_wait(event, waits, 0), SL_OK);
        assert_int_equal(standin_calls("cudaEventRecord"), before);
    }
    assert_int_equal(standin_calls("cudaStreamWaitEvent"), 0);
    assert_int_equal(standin_calls("cuStreamWaitValue32"), 1); /* the device's trial */
    ops->stream_close(host);
    ops->stream_close(copies);
    ops->stream_close(waits);
    ops->event_close(event);
    ops->close(device);
}

/* So an iteration can be issued while the host is still busy with the last one. */
static void record_when_the_last_one_is_still_waited_for_does_not_block(void **state)
{
    (void)state;
    _Atomic bool gate = false, *is_open = &gate;
    sl_device *device = open_device();
    sl_device_stream *host = open_stream(device, SL_STREAM_HOST, NULL),
                     *copies = open_stream(device, SL_STREAM_DEVICE, NULL);
    sl_device_event *event = open_event(device);
    assert_int_equal(ops->launch(host, 0, wait_at_gate, &is_open, sizeof is_open), SL_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops->event_record(event, copies), SL_OK);
        assert_int_equal(ops->event_wait(event, host, 0), SL_OK);
    }
    atomic_store(&gate, true);
    assert_int_equal(ops->stream_finish(host), SL_OK);
    ops->stream_close(host);
    ops->stream_close(copies);
    ops->event_close(event);
    ops->close(device);
}

static sl_status sleep_on_host(void *arguments)
{
    (void)arguments;
    usleep(WAIT_US);
    return SL_OK;
}

enum { KERNELS_A_CALL = 9, CALLS = 400 };

static void do_nothing(void *argument)
{
    (void)argument;
}

static sl_status launch_many(void *arguments)
{
    void *native = ops->stream_native(*(sl_device_stream **)arguments);
    for (int i = 0; i < KERNELS_A_CALL; i++)
        if (standin_queue(native, "kernel", do_nothing, NULL) != 0)
            SL_FAIL(SL_ERROR_SYSTEM, "the stand-in refuses a kernel");
    sl_cuda_note_launches(KERNELS_A_CALL);
    return SL_OK;
}

/* The host looks whether a copy is done before it lets the kernels go. Had they filled their stream
 * by then, it could not even ask, and nobody would go on. */
static void calls_when_each_is_many_kernels_do_not_fill_a_stream(void **state)
{
    (void)state;
    sl_device *device = open_device();
    sl_device_stream *host = open_stream(device, SL_STREAM_HOST, NULL),
                     *copies = open_stream(device, SL_STREAM_DEVICE, NULL),
                     *kernels = open_stream(device, SL_STREAM_DEVICE, NULL);
    sl_device_event *copied = open_event(device), *let_go = open_event(device);
    assert_int_equal(ops->launch(host, 0, sleep_on_host, NULL, 0), SL_OK);
    assert_int_equal(ops->event_record(copied, copies), SL_OK);
    assert_int_equal(ops->event_wait(copied, host, 0), SL_OK);
    assert_int_equal(ops->event_record(let_go, host), SL_OK);
    assert_int_equal(ops->event_wait(let_go, kernels, 0), SL_OK);
    for (int i = 0; i < CALLS; i++)
        assert_int_equal(ops->launch(kernels, 0, launch_many, &kernels, sizeof kernels), SL_OK);
    assert_int_equal(ops->stream_finish(kernels), SL_OK);
    assert_int_equal(ops->stream_finish(host), SL_OK);
    assert_true(standin_deepest_stream() < 3 * (128 + KERNELS_A_CALL + 1));
    ops->stream_close(host);
    ops->stream_close(copies);
    ops->stream_close(kernels);
    ops->event_close(copied);
    ops->event_close(let_go);
    ops->close(device);
}

/* The third record comes behind what the host does after the first: had it taken the first one's
 * place, the host would wait for it and it for the host. */
static void record_when_two_are_still_waited_for_takes_the_place_of_neither(void **state)
{
    (void)state;
    sl_device *device = open_device();
    sl_device_stream *host = open_stream(device, SL_STREAM_HOST, NULL),
                     *copies = open_stream(device, SL_STREAM_DEVICE, NULL);
    sl_device_event *event = open_event(device), *done = open_event(device);
    assert_int_equal(ops->launch(host, 0, sleep_on_host, NULL, 0), SL_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops->event_record(event, copies), SL_OK);
        assert_int_equal(ops->event_wait(event, host, 0), SL_OK);
    }
    assert_int_equal(ops->event_record(done, host), SL_OK);
    assert_int_equal(ops->event_wait(done, copies, 0), SL_OK);
    assert_int_equal(ops->event_record(event, copies), SL_OK);
    assert_int_equal(ops->event_finish(event), SL_OK);
    ops->stream_close(host);
    ops->stream_close(copies);
    ops->event_close(event);
    ops->event_close(done);
    ops->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(open_when_the_machine_will_not_do_says_why, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(describe_when_open_tells_what_the_gpu_is, reset, check_end),
        cmocka_unit_test_setup_teardown(describe_when_the_gpu_is_divided_tells_of_no_overhead,
                                        reset, check_end),
        cmocka_unit_test_setup_teardown(guards_when_written_are_named_by_offset, reset, check_end),
        cmocka_unit_test_setup_teardown(map_host_when_mapped_is_locked_whole, reset, check_end),
        cmocka_unit_test_setup_teardown(map_host_when_locking_is_refused_warns_once_and_works,
                                        reset, check_end),
        cmocka_unit_test_setup_teardown(
            copy_when_host_memory_is_locked_in_pieces_is_cut_at_each_border, reset, check_end),
        cmocka_unit_test_setup_teardown(map_host_when_a_piece_is_refused_locks_the_others, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(calls_when_each_is_many_kernels_do_not_fill_a_stream, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(map_when_the_device_is_full_says_so, reset, check_end),
        cmocka_unit_test_setup_teardown(observer_when_kernels_run_hears_of_runs_or_of_each, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(observer_when_tags_are_apart_hears_of_each_class, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(observer_when_there_is_more_than_it_holds_hears_of_all,
                                        reset, check_end),
        cmocka_unit_test_setup_teardown(
            observer_when_waits_are_chained_hears_of_the_first_one_first, reset, check_end),
        cmocka_unit_test_setup_teardown(wait_when_the_record_is_reached_queues_nothing, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(record_when_the_last_one_is_still_waited_for_does_not_block,
                                        reset, check_end),
        cmocka_unit_test_setup_teardown(
            record_when_two_are_still_waited_for_takes_the_place_of_neither, reset, check_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
