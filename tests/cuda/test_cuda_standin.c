/* What could be wrong in the stand-in itself: that it lets pass what it is there to find. Each use
 * that no correct program makes has to be counted as a fault, and named; and events, which other
 * tests rely on, have to keep to the record at hand. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cuda.h>

#include "standin_case.h"

/* One fault, whose text holds `part`; forgets it. */
static void expect_fault(const char *part)
{
    const char *first;
    standin_machine machine = plain_machine();
    assert_int_equal(standin_faults(&first), 1);
    if (!strstr(first, part))
        fail_msg("'%s' is not in '%s'", part, first);
    standin_reset(&machine);
}

static void copy_when_outside_of_an_allocation_is_a_fault(void **state)
{
    (void)state;
    unsigned char bytes[256] = {0};
    void *memory;
    assert_int_equal(cudaMalloc(&memory, 100), cudaSuccess);
    assert_int_equal(cudaMemcpy(memory, bytes, 101, cudaMemcpyDefault), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(bytes, memory, 100, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemset(bytes, 0, 1), cudaErrorInvalidValue);
    assert_int_equal(standin_faults(NULL), 3);
    assert_int_equal(cudaFree(memory), cudaSuccess);
    assert_int_equal(cudaMemcpy(memory, bytes, 1, cudaMemcpyDefault), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(memory), cudaErrorInvalidValue);
    assert_int_equal(standin_faults(NULL), 5);
    reset(NULL);
}

static void memory_when_written_behind_its_end_is_a_fault(void **state)
{
    (void)state;
    void *memory;
    assert_int_equal(cudaMalloc(&memory, 100), cudaSuccess);
    ((unsigned char *)memory)[100] = 0;
    assert_int_equal(cudaFree(memory), cudaSuccess);
    expect_fault("written behind an allocation of 100 bytes");
}

static void registration_when_wrong_is_a_fault(void **state)
{
    (void)state;
    unsigned char *pages =
        mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(cudaHostRegister(pages, 8192, 0), cudaSuccess);
    assert_int_equal(cudaHostRegister(pages + 4096, 4096, 0), cudaErrorHostMemoryAlreadyRegistered);
    assert_int_equal(standin_faults(NULL), 1);
    assert_int_equal(cudaHostUnregister(pages), cudaSuccess);
    assert_int_equal(cudaHostUnregister(pages), cudaErrorHostMemoryNotRegistered);
    assert_int_equal(standin_faults(NULL), 2);
    reset(NULL);
    assert_int_equal(cudaHostRegister(pages, 8192, 0), cudaSuccess);
    munmap(pages + 4096, 4096);
    const char *first;
    assert_int_equal(standin_faults(&first), 1);
    assert_non_null(strstr(first, "unmapped while registered"));
    assert_int_equal(cudaHostUnregister(pages), cudaSuccess);
    munmap(pages, 4096);
    reset(NULL);
}

static void handle_when_closed_is_a_fault(void **state)
{
    (void)state;
    cudaEvent_t event;
    cudaStream_t stream;
    assert_int_equal(cudaEventCreateWithFlags(&event, 0), cudaSuccess);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, 0), cudaSuccess);
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
    assert_int_equal(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(standin_faults(NULL), 2);
    reset(NULL);
}

static void reset_when_something_is_left_is_a_fault(void **state)
{
    (void)state;
    void *memory;
    assert_int_equal(cudaMalloc(&memory, 100), cudaSuccess);
    reset(NULL);
    assert_int_equal(cudaFree(memory), cudaSuccess);
    expect_fault("1 allocations");
}

/* ---- events ---- */

static _Atomic int gate;

static void wait_for_gate(void *argument)
{
    (void)argument;
    while (!atomic_load(&gate))
        usleep(50);
}

static void event_when_recorded_again_keeps_earlier_waits(void **state)
{
    (void)state;
    cudaStream_t a, b;
    cudaEvent_t event;
    atomic_store(&gate, 0);
    assert_int_equal(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    assert_int_equal(cudaEventQuery(event), cudaSuccess); /* never recorded */
    assert_int_equal(cudaEventRecord(event, a), cudaSuccess);
    assert_int_equal(cudaStreamWaitEvent(b, event, 0), cudaSuccess);
    assert_int_equal(standin_queue(a, "gate", wait_for_gate, NULL), 0);
    assert_int_equal(cudaEventRecord(event, a), cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(b), cudaSuccess); /* would hang on the second */
    assert_int_equal(cudaEventQuery(event), cudaErrorNotReady);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorNotReady); /* it stands until it is read */
    assert_int_equal(cudaGetLastError(), cudaErrorNotReady);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    atomic_store(&gate, 1);
    assert_int_equal(cudaEventSynchronize(event), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(a), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(b), cudaSuccess);
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
}

static void word_when_it_wraps_around_still_lets_go(void **state)
{
    (void)state;
    cudaStream_t stream;
    void *memory;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaHostAlloc(&memory, 4096, 0), cudaSuccess);
    _Atomic uint32_t *word = memory;
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)memory;
    atomic_store(word, UINT32_MAX);
    assert_int_equal(cuStreamWaitValue32(stream, at, 2, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
    usleep(2000);
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    (void)cudaGetLastError();
    atomic_store(word, 3);
    assert_int_equal(cuStreamWaitValue32(stream, at, UINT32_MAX - 5, CU_STREAM_WAIT_VALUE_GEQ),
                     CUDA_SUCCESS);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(cudaFreeHost(memory), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

/* ---- calls that wait for streams ---- */

static void code_when_loaded_takes_memory_once_and_nothing_back(void **state)
{
    (void)state;
    standin_machine machine = plain_machine();
    size_t before, after, total;
    machine.code_bytes = machine.device_bytes / 4;
    standin_reset(&machine);
    assert_int_equal(cudaMemGetInfo(&before, &total), cudaSuccess);
    for (int i = 0; i < 6; i++)
        assert_int_equal(standin_load_code((uint64_t)i % 3), cudaSuccess);
    assert_int_equal(cudaMemGetInfo(&after, &total), cudaSuccess);
    assert_int_equal(before - after, 3 * machine.code_bytes);
    assert_int_equal(standin_load_code(3), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(standin_late_loads(), 0);
}

/* The stream waits for a word that is only written after the call. */
static void call_when_it_waits_for_what_waits_for_the_caller_is_a_fault(void **state)
{
    (void)state;
    standin_machine machine = plain_machine();
    static unsigned char bytes[64];
    void *words, *memory;
    cudaStream_t stream;
    machine.stuck_ms = 20;
    for (int round = 0; round < 2; round++) {
        standin_reset(&machine);
        assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
        assert_int_equal(cudaHostAlloc(&words, 4096, 0), cudaSuccess);
        assert_int_equal(cudaMalloc(&memory, sizeof bytes), cudaSuccess);
        _Atomic uint32_t *word = words;
        atomic_store(word, 0);
        assert_int_equal(
            cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)words, 1, CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_SUCCESS);
        if (round == 0)
            assert_int_equal(standin_load_code(7), cudaSuccess);
        else
            assert_int_equal(
                cudaMemcpyAsync(memory, bytes, sizeof bytes, cudaMemcpyDefault, stream),
                cudaSuccess);
        atomic_store(word, 1);
        assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
        assert_int_equal(standin_late_loads(), round == 0);
        assert_int_equal(cudaFree(memory), cudaSuccess);
        assert_int_equal(cudaFreeHost(words), cudaSuccess);
        assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
        expect_fault(round == 0 ? "stuck: a library's first launch" : "stuck: a copy of memory");
    }
}

/* Of two pages one is locked, then both are, each by a registration of its own. */
static void copy_when_it_crosses_a_registration_is_a_fault(void **state)
{
    (void)state;
    unsigned char *pages =
        mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *memory;
    assert_int_equal(cudaMalloc(&memory, 8192), cudaSuccess);
    assert_int_equal(cudaHostRegister(pages, 4096, 0), cudaSuccess);
    assert_int_equal(cudaMemcpy(memory, pages, 8192, cudaMemcpyDefault), cudaErrorInvalidValue);
    assert_int_equal(cudaHostUnregister(pages), cudaSuccess);
    assert_int_equal(cudaFree(memory), cudaSuccess);
    expect_fault("over the border of a registration: 4096 bytes of 8192 are locked");

    assert_int_equal(cudaMalloc(&memory, 8192), cudaSuccess);
    assert_int_equal(cudaHostRegister(pages, 4096, 0), cudaSuccess);
    assert_int_equal(cudaHostRegister(pages + 4096, 4096, 0), cudaSuccess);
    assert_int_equal(cudaMemcpy(memory, pages, 4096, cudaMemcpyDefault), cudaSuccess);
    assert_int_equal(cudaMemcpy(pages + 4095, memory, 2, cudaMemcpyDefault), cudaErrorInvalidValue);
    assert_int_equal(cudaHostUnregister(pages), cudaSuccess);
    assert_int_equal(cudaHostUnregister(pages + 4096), cudaSuccess);
    assert_int_equal(cudaFree(memory), cudaSuccess);
    munmap(pages, 8192);
    expect_fault("over the border of a registration: 2 bytes of 2 are locked");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(copy_when_outside_of_an_allocation_is_a_fault, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(memory_when_written_behind_its_end_is_a_fault, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(registration_when_wrong_is_a_fault, reset, check_end),
        cmocka_unit_test_setup_teardown(handle_when_closed_is_a_fault, reset, check_end),
        cmocka_unit_test_setup_teardown(reset_when_something_is_left_is_a_fault, reset, check_end),
        cmocka_unit_test_setup_teardown(event_when_recorded_again_keeps_earlier_waits, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(word_when_it_wraps_around_still_lets_go, reset, check_end),
        cmocka_unit_test_setup_teardown(code_when_loaded_takes_memory_once_and_nothing_back, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(call_when_it_waits_for_what_waits_for_the_caller_is_a_fault,
                                        reset, check_end),
        cmocka_unit_test_setup_teardown(copy_when_it_crosses_a_registration_is_a_fault, reset,
                                        check_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
