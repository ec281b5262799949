/* What could be wrong when CUDA fails under the cuda device: a kernel that fails and then a hang,
 * or a message that names the wrong place; a call whose failure is not seen, leaks, or leaves wrong
 * numbers that look right. A scene uses everything; each call of CUDA in it fails once, in passing
 * and for good. SL_TEST_FULL: also the hundreds of calls that are all alike. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin_case.h"

enum { SCENE_BYTES = 10000 };

/* ---- a scene that uses everything ---- */

typedef struct scene {
    sl_device *device;
    sl_device_stream *compute, *copies, *host;
    sl_device_event *loaded, *computed, *stored, *updated;
    void *on_device, *on_host;
} scene;

static void ignore_time(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns)
{
    (void)user;
    (void)tag;
    (void)start_ns;
    (void)end_ns;
}

static sl_cuda_options cuda_options;

static sl_status open_scene(scene *set)
{
    sl_queue_observer observer = {ignore_time, ignore_time, NULL, false};
    SL_TRY(ops->open(0, &cuda_options, &set->device));
    SL_TRY(ops->map(set->device, SCENE_BYTES, SL_MAP_GUARDS, &set->on_device));
    SL_TRY(ops->map_host(set->device, SCENE_BYTES, SL_MAP_PLAIN, &set->on_host));
    SL_TRY(ops->stream_open(set->device, SL_STREAM_DEVICE, "compute", &observer, &set->compute));
    SL_TRY(ops->stream_open(set->device, SL_STREAM_DEVICE, "copies", NULL, &set->copies));
    SL_TRY(ops->stream_open(set->device, SL_STREAM_HOST, "host", NULL, &set->host));
    SL_TRY(ops->event_open(set->device, &set->loaded));
    SL_TRY(ops->event_open(set->device, &set->computed));
    SL_TRY(ops->event_open(set->device, &set->stored));
    return ops->event_open(set->device, &set->updated);
}

static void close_scene(scene *set)
{
    sl_device_stream *streams[] = {set->compute, set->copies, set->host};
    sl_device_event *events[] = {set->loaded, set->computed, set->stored, set->updated};
    for (int i = 0; i < 3; i++) {
        if (streams[i])
            (void)ops->stream_finish(streams[i]);
    }
    for (int i = 0; i < 3; i++)
        ops->stream_close(streams[i]);
    for (int i = 0; i < 4; i++)
        ops->event_close(events[i]);
    if (!set->device)
        return;
    ops->unmap(set->device, set->on_device, SCENE_BYTES, SL_MAP_GUARDS);
    ops->unmap_host(set->device, set->on_host, SCENE_BYTES, SL_MAP_PLAIN);
    ops->close(set->device);
}

typedef struct kernel_args {
    scene *set;
    void (*kernel)(void *argument);
} kernel_args;

static void add_one(void *argument)
{
    unsigned char *bytes = argument;
    for (int i = 0; i < SCENE_BYTES; i++)
        bytes[i]++;
}

static _Atomic bool may_fail; /* the failure waits until what follows it is issued */

static void fail_in_kernel(void *argument)
{
    (void)argument;
    while (!atomic_load(&may_fail))
        usleep(50);
    standin_break(cudaErrorIllegalAddress);
}

/* As a kernel's host function launches. */
static sl_status launch_kernel(void *arguments)
{
    const kernel_args *args = arguments;
    int error = standin_queue(ops->stream_native(args->set->compute), "add_one_kernel",
                              args->kernel, args->set->on_device);
    if (error != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "CUDA refuses to launch add_one_kernel");
    return SL_OK;
}

static sl_status add_on_host(void *arguments)
{
    scene *set = *(scene **)arguments;
    usleep(300);
    add_one(set->on_host);
    return SL_OK;
}

/* host to device, a kernel, back, and a host call: a round adds two to every byte. */
static sl_status run_round(scene *set, void (*kernel)(void *argument))
{
    kernel_args args = {set, kernel};
    SL_TRY(ops->event_wait(set->updated, set->copies, 1));
    SL_TRY(ops->copy(set->copies, 2, set->on_device, set->on_host, SCENE_BYTES));
    SL_TRY(ops->event_record(set->loaded, set->copies));
    SL_TRY(ops->event_wait(set->loaded, set->compute, 3));
    SL_TRY(ops->launch(set->compute, 4, launch_kernel, &args, sizeof args));
    SL_TRY(ops->event_record(set->computed, set->compute));
    SL_TRY(ops->event_wait(set->computed, set->copies, 5));
    SL_TRY(ops->copy(set->copies, 6, set->on_host, set->on_device, SCENE_BYTES));
    SL_TRY(ops->event_record(set->stored, set->copies));
    SL_TRY(ops->event_wait(set->stored, set->host, 7));
    SL_TRY(ops->launch(set->host, 8, add_on_host, &set, sizeof set));
    return ops->event_record(set->updated, set->host);
}

static sl_status finish_scene(scene *set)
{
    SL_TRY(ops->event_finish(set->computed));
    SL_TRY(ops->event_finish(set->updated));
    SL_TRY(ops->stream_finish(set->host));
    SL_TRY(ops->stream_finish(set->copies));
    return ops->stream_finish(set->compute);
}

static sl_status run_scene(scene *set)
{
    sl_device_info info;
    SL_TRY(open_scene(set));
    SL_TRY(ops->describe(set->device, &info));
    for (int round = 0; round < 4; round++)
        SL_TRY(run_round(set, add_one));
    SL_TRY(finish_scene(set));
    const unsigned char *bytes = set->on_host;
    return bytes[0] == 8 && bytes[SCENE_BYTES - 1] == 8 ? SL_OK : SL_ERROR_DATA;
}

static void words_when_the_options_say_no_are_not_used(void **state)
{
    (void)state;
    for (int is_off = 0; is_off < 2; is_off++) {
        scene set = {0};
        reset(NULL);
        cuda_options.no_wait_value = is_off;
        assert_int_equal(run_scene(&set), SL_OK);
        close_scene(&set);
        cuda_options.no_wait_value = false;
        assert_int_equal(standin_calls("cuStreamWaitValue32") == 0, is_off);
    }
}

/* ---- failing kernels ---- */

static void kernel_when_it_fails_hangs_nobody_and_is_told_by_every_lane(void **state)
{
    (void)state;
    for (int has_wait_value = 0; has_wait_value < 2; has_wait_value++) {
        scene set = {0};
        standin_machine machine = standin_default();
        machine.has_wait_value = has_wait_value;
        standin_reset(&machine);
        assert_int_equal(open_scene(&set), SL_OK);
        assert_int_equal(run_round(&set, add_one), SL_OK);
        assert_int_equal(finish_scene(&set), SL_OK);
        atomic_store(&may_fail, false);
        assert_int_equal(run_round(&set, fail_in_kernel), SL_OK);
        atomic_store(&may_fail, true);
        (void)run_round(&set, add_one);
        assert_int_equal(ops->stream_finish(set.host), SL_ERROR_SYSTEM);
        assert_non_null(strstr(sl_status_message(), "on the host lane"));
        assert_non_null(strstr(sl_status_message(), "illegal memory access"));
        assert_int_equal(ops->event_finish(set.computed), SL_ERROR_SYSTEM);
        assert_int_equal(ops->stream_finish(set.compute), SL_ERROR_SYSTEM);
        assert_non_null(strstr(sl_status_message(), "compute 2 to"));
        assert_non_null(strstr(sl_status_message(), "copies 3 to"));
        assert_non_null(strstr(sl_status_message(), "CUDA_LAUNCH_BLOCKING=1"));
        assert_int_equal(ops->stream_finish(set.copies), SL_ERROR_SYSTEM);
        close_scene(&set);
        check_nothing_left();
    }
}

/* What a stream is waited for in vain has not ended, though all of it was issued. */
static void stream_when_waiting_for_it_fails_names_what_did_not_end(void **state)
{
    (void)state;
    scene set = {0};
    reset(NULL);
    assert_int_equal(open_scene(&set), SL_OK);
    const kernel_args good = {&set, add_one}, bad = {&set, fail_in_kernel};
    atomic_store(&may_fail, true);
    assert_int_equal(ops->launch(set.compute, 1, launch_kernel, &good, sizeof good), SL_OK);
    assert_int_equal(ops->stream_finish(set.compute), SL_OK);
    assert_int_equal(ops->launch(set.compute, 2, launch_kernel, &bad, sizeof bad), SL_OK);
    assert_int_equal(ops->stream_finish(set.compute), SL_ERROR_SYSTEM);
    assert_non_null(strstr(sl_status_message(), "(compute 2 to 2,"));
    close_scene(&set);
    check_nothing_left();
}

static void kernel_when_refused_is_named(void **state)
{
    (void)state;
    scene set = {0};
    assert_int_equal(open_scene(&set), SL_OK);
    standin_fail_call("add_one_kernel", 1, cudaErrorInvalidConfiguration);
    assert_int_equal(run_round(&set, add_one), SL_ERROR_SYSTEM);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops->stream_finish(set.compute), SL_ERROR_SYSTEM);
        assert_string_equal(sl_status_message(), "CUDA refuses to launch add_one_kernel");
    }
    assert_int_equal(ops->stream_finish(set.copies), SL_OK);
    close_scene(&set);
}

/* ---- every call of CUDA fails once ---- */

static const char *const called[] = {
    "cudaGetDeviceCount",
    "cudaGetDeviceProperties",
    "cudaDeviceGetPCIBusId",
    "cudaSetDevice",
    "cudaSetDeviceFlags",
    "cudaDriverGetVersion",
    "cudaRuntimeGetVersion",
    "cudaGetDriverEntryPointByVersion",
    "cuDeviceGetUuid",
    "cudaMemGetInfo",
    "cudaMalloc",
    "cudaFree",
    "cudaHostAlloc",
    "cudaFreeHost",
    "cudaHostGetDevicePointer",
    "cudaHostRegister",
    "cudaHostUnregister",
    "cudaMemsetAsync",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaStreamCreateWithFlags",
    "cudaStreamDestroy",
    "cudaStreamSynchronize",
    "cudaStreamQuery",
    "cudaStreamWaitEvent",
    "cuStreamWaitValue32",
    "cudaEventCreateWithFlags",
    "cudaEventDestroy",
    "cudaEventRecord",
    "cudaEventQuery",
    "cudaEventSynchronize",
    "cudaEventElapsedTime",
    "add_one_kernel",
};

enum { CALLED = sizeof called / sizeof called[0], MANY = 40 };

/* How often a scene calls each function. */
static void count_calls(const standin_machine *machine, uint64_t *counts)
{
    scene set = {0};
    uint64_t sum = 0;
    standin_reset(machine);
    assert_int_equal(run_scene(&set), SL_OK);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess); /* or a launch takes it for its own */
    close_scene(&set);
    for (int i = 0; i < CALLED; i++) {
        counts[i] = standin_calls(called[i]);
        sum += counts[i];
    }
    assert_int_equal(sum, standin_calls(NULL)); /* none is missing in the list */
}

/* How a call fails: alone, with every one after it, or for good. */
typedef void injecting(const char *name, uint64_t nth, int error);

/* The failure comes out with a message, or is one that may be lived with. */
static bool run_failing(const standin_machine *machine, const char *name, uint64_t nth, int error,
                        injecting *inject)
{
    scene set = {0};
    standin_reset(machine);
    (void)sl_status_fail(SL_OK, "nothing");
    inject(name, nth, error);
    sl_status status = run_scene(&set);
    if (status == SL_ERROR_DATA)
        fail_msg("%s %d failed and the numbers are wrong", name, (int)nth);
    if (status != SL_OK && strcmp(sl_status_message(), "nothing") == 0)
        fail_msg("%s %d failed without a message", name, (int)nth);
    close_scene(&set);
    check_nothing_left();
    return status != SL_OK;
}

/* Of what is called very often the first and the last calls. */
static void check_sweep(const standin_machine *machine, int error, injecting *inject)
{
    uint64_t counts[CALLED], failures = 0;
    count_calls(machine, counts);
    for (int i = 0; i < CALLED; i++) {
        for (uint64_t nth = 1; nth <= counts[i]; nth++) {
            if (nth == MANY / 2 && counts[i] > MANY && !getenv("SL_TEST_FULL"))
                nth = counts[i] - MANY / 2;
            failures += run_failing(machine, called[i], nth, error, inject);
        }
    }
    assert_in_range(failures, 60, UINT32_MAX);
}

static void scene_when_any_call_fails_once_ends_clean(void **state)
{
    (void)state;
    standin_machine machine = plain_machine();
    check_sweep(&machine, cudaErrorUnknown, standin_fail_call);
    machine.has_wait_value = 0;
    check_sweep(&machine, cudaErrorMemoryAllocation, standin_fail_call);
}

/* Nobody waits for work that was never issued, and memory stays for as long as what was. */
static void scene_when_every_later_call_fails_ends_clean(void **state)
{
    (void)state;
    standin_machine machine = plain_machine();
    check_sweep(&machine, cudaErrorNotPermitted, standin_refuse_calls);
    machine.has_wait_value = 0;
    check_sweep(&machine, cudaErrorNotPermitted, standin_refuse_calls);
}

static void scene_when_cuda_breaks_at_any_call_ends_clean(void **state)
{
    (void)state;
    standin_machine machine = plain_machine();
    check_sweep(&machine, cudaErrorLaunchFailure, standin_break_call);
    machine.has_wait_value = 0;
    check_sweep(&machine, cudaErrorIllegalAddress, standin_break_call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(words_when_the_options_say_no_are_not_used, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(kernel_when_it_fails_hangs_nobody_and_is_told_by_every_lane,
                                        reset, check_end),
        cmocka_unit_test_setup_teardown(stream_when_waiting_for_it_fails_names_what_did_not_end,
                                        reset, check_end),
        cmocka_unit_test_setup_teardown(kernel_when_refused_is_named, reset, check_end),
        cmocka_unit_test_setup_teardown(scene_when_any_call_fails_once_ends_clean, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(scene_when_every_later_call_fails_ends_clean, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(scene_when_cuda_breaks_at_any_call_ends_clean, reset,
                                        check_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
