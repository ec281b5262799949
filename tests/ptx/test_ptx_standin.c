/* What could be wrong on the road from a launch of nvcc's host code to the interpreter: the text of
 * another object that has a kernel of the same name, a text left over from an older build,
 * arguments that are read when the launch runs and not when it is made, a launch that a GPU would
 * refuse, a kernel's fault that nobody is told of, memory of the stand-in that the shadow does not
 * know, or knows as written when it is not. Objects and texts are the test's own. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "scratch_dir.h"
#include "shim_control.h"
#include "standin.h"

/* The toolkit's own, which the stand-in's headers leave out. */
typedef struct dim3 {
    unsigned x, y, z;
} dim3;
typedef struct CUfunc_st *cudaFunction_t;

void **__cudaRegisterFatBinary(void *fatCubin);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *hostFun, char *deviceFun,
                            const char *deviceName, int thread_limit, void *tid, void *bid,
                            dim3 *bDim, dim3 *gDim, int *wSize);
cudaError_t cudaLaunchKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args,
                             size_t sharedMem, cudaStream_t stream);
cudaError_t cudaGetFuncBySymbol(cudaFunction_t *functionPtr, const void *symbolPtr);

#define HEAD ".version 9.0\n.target sm_90\n.address_size 64\n"

/* out[thread] = value + added */
#define FILL(name, added)                                                                          \
    ".visible .entry " name "(\n.param .u64 " name "_param_0,\n.param .u32 " name "_param_1\n)\n"  \
    ".maxntid 256, 1, 1\n{\n"                                                                      \
    ".reg .b32 %r<4>;\n.reg .b64 %rd<5>;\n"                                                        \
    "ld.param.u64 %rd1, [" name "_param_0];\nld.param.u32 %r1, [" name "_param_1];\n"              \
    "cvta.to.global.u64 %rd2, %rd1;\nmov.u32 %r2, %tid.x;\nmul.wide.u32 %rd3, %r2, 4;\n"           \
    "add.s64 %rd4, %rd2, %rd3;\nadd.s32 %r3, %r1, " added                                          \
    ";\nst.global.u32 [%rd4], %r3;\nret;\n}\n"

/* to[thread] = from[thread] */
#define COPY(name)                                                                                 \
    ".visible .entry " name "(\n.param .u64 " name "_param_0,\n.param .u64 " name "_param_1\n)\n"  \
    "{\n.reg .b32 %r<3>;\n.reg .b64 %rd<8>;\n"                                                     \
    "ld.param.u64 %rd1, [" name "_param_0];\nld.param.u64 %rd2, [" name "_param_1];\n"             \
    "cvta.to.global.u64 %rd3, %rd1;\ncvta.to.global.u64 %rd4, %rd2;\nmov.u32 %r1, %tid.x;\n"       \
    "mul.wide.u32 %rd5, %r1, 4;\nadd.s64 %rd6, %rd4, %rd5;\nadd.s64 %rd7, %rd3, %rd5;\n"           \
    "ld.global.u32 %r2, [%rd6];\nst.global.u32 [%rd7], %r2;\nret;\n}\n"

enum { COUNT = 32, THREADS_MOST = 256 };

/* Stubs: addresses, no code. */
static char stub_fill, stub_copy, stub_second_fill, stub_twice, stub_nowhere;
static scratch_path directory;

static void register_function(void **object, const char *stub, const char *name)
{
    __cudaRegisterFunction(object, stub, NULL, name, -1, NULL, NULL, NULL, NULL, NULL);
}

static void register_objects(void)
{
    void **first = __cudaRegisterFatBinary(NULL), **second = __cudaRegisterFatBinary(NULL);
    void **twice = __cudaRegisterFatBinary(NULL), **nowhere = __cudaRegisterFatBinary(NULL);
    register_function(first, &stub_fill, "fill");
    register_function(first, &stub_copy, "copy");
    register_function(second, &stub_second_fill, "fill");
    register_function(twice, &stub_twice, "twice");
    register_function(nowhere, &stub_nowhere, "nowhere");
    __cudaRegisterFatBinaryEnd(first);
}

static void write_text(const char *name, const char *text)
{
    scratch_write(scratch_join(directory.text, name).text, text, strlen(text));
}

static cudaError_t launch(const char *stub, uint32_t threads, void *first, void *second)
{
    void *arguments[] = {&first, &second};
    return cudaLaunchKernel(stub, (dim3){1, 1, 1}, (dim3){threads, 1, 1}, arguments, 0, NULL);
}

static uint32_t *take_device(uint64_t bytes)
{
    void *memory = NULL;
    assert_int_equal(cudaMalloc(&memory, bytes), cudaSuccess);
    return memory;
}

/* fill's second argument is 4 bytes of what is passed as a pointer. */
static void *as_value(uint32_t value)
{
    return (void *)(uintptr_t)value;
}

static void expect_values(const uint32_t *device, uint32_t value)
{
    uint32_t host[COUNT];
    assert_int_equal(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost), cudaSuccess);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(host[i], value);
}

/* ---- texts ---- */

static void kernels_when_of_one_name_then_each_object_has_its_own(void **state)
{
    (void)state;
    uint32_t *out = take_device(COUNT * 4);
    assert_int_equal(launch(&stub_fill, COUNT, out, as_value(7)), cudaSuccess);
    expect_values(out, 7);
    assert_int_equal(launch(&stub_second_fill, COUNT, out, as_value(7)), cudaSuccess);
    expect_values(out, 1007);
    assert_int_equal(cudaFree(out), cudaSuccess);
}

static void expect_no_text(const char *stub, const char *says)
{
    const char *fault = "";
    assert_int_equal(launch(stub, 1, NULL, NULL), cudaErrorNoKernelImageForDevice);
    assert_true(standin_faults(&fault) > 0);
    if (strstr(fault, says) == NULL)
        fail_msg("%s", fault);
}

static void text_when_there_is_none_then_the_kernel_does_not_run(void **state)
{
    (void)state;
    expect_no_text(&stub_nowhere, "nowhere");
}

static void text_when_it_is_left_over_then_the_kernel_does_not_run(void **state)
{
    (void)state;
    expect_no_text(&stub_twice, "same kernels");
}

/* ---- launches ---- */

static void arguments_when_changed_after_the_launch_then_are_those_of_the_launch(void **state)
{
    (void)state;
    cudaStream_t stream;
    uint32_t *out = take_device(COUNT * 4), *other = take_device(COUNT * 4), value = 3;
    void *to = out, *arguments[] = {&to, &value};
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaMemsetAsync(other, 0, COUNT * 4, stream), cudaSuccess);
    for (int i = 0; i < 20; i++)
        assert_int_equal(cudaLaunchKernel(&stub_fill, (dim3){1, 1, 1}, (dim3){COUNT, 1, 1},
                                          arguments, 0, stream),
                         cudaSuccess);
    to = other;
    value = 4;
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    expect_values(out, 3);
    expect_values(other, 0);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    assert_int_equal(cudaFree(out), cudaSuccess);
    assert_int_equal(cudaFree(other), cudaSuccess);
}

static void launches_when_no_gpu_takes_them_then_are_refused(void **state)
{
    (void)state;
    static const struct {
        dim3 grid, block;
        size_t shared_bytes;
        cudaError_t error;
    } cases[] = {{{1, 1, 1}, {THREADS_MOST + 1, 1, 1}, 0, cudaErrorInvalidConfiguration},
                 {{1, 1, 1}, {16, 16, 2}, 0, cudaErrorInvalidConfiguration},
                 {{1, 1, 1}, {0, 1, 1}, 0, cudaErrorInvalidConfiguration},
                 {{1, 1, 1}, {1, 1, 65}, 0, cudaErrorInvalidConfiguration},
                 {{0, 1, 1}, {1, 1, 1}, 0, cudaErrorInvalidConfiguration},
                 {{0x80000000u, 1, 1}, {1, 1, 1}, 0, cudaErrorInvalidConfiguration},
                 {{1, 65536, 1}, {1, 1, 1}, 0, cudaErrorInvalidConfiguration},
                 {{1, 1, 65536}, {1, 1, 1}, 0, cudaErrorInvalidConfiguration},
                 {{1, 1, 1}, {1, 1, 1}, (48 << 10) + 1, cudaErrorInvalidValue},
                 {{1, 1, 1}, {1, 1, 1}, 48 << 10, cudaSuccess}};
    uint32_t *out = take_device(COUNT * 4), value = 5;
    void *arguments[] = {&out, &value};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const cudaError_t error = cudaLaunchKernel(&stub_fill, cases[i].grid, cases[i].block,
                                                   arguments, cases[i].shared_bytes, NULL);
        if (error != cases[i].error || cudaGetLastError() != error)
            fail_msg("case %d: %s", (int)i, cudaGetErrorString(error));
    }
    assert_int_equal(cudaFree(out), cudaSuccess);
}

static void shared_memory_when_asked_for_then_may_be_had(void **state)
{
    (void)state;
    const enum cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    uint32_t *out = take_device(COUNT * 4), value = 5;
    void *arguments[] = {&out, &value};
    const dim3 one = {1, 1, 1};
    assert_int_equal(cudaFuncSetAttribute(&stub_fill, most, (227 << 10) + 1),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaFuncSetAttribute(&stub_fill, most, 100 << 10), cudaSuccess);
    assert_int_equal(cudaLaunchKernel(&stub_fill, one, one, arguments, 100 << 10, NULL),
                     cudaSuccess);
    assert_int_equal(cudaLaunchKernel(&stub_fill, one, one, arguments, (100 << 10) + 1, NULL),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaLaunchKernel(&stub_copy, one, one, arguments, 100 << 10, NULL),
                     cudaErrorInvalidValue);
    (void)cudaGetLastError();
    assert_int_equal(cudaFree(out), cudaSuccess);
}

static void kernels_when_not_loaded_before_a_launch_then_are_counted(void **state)
{
    (void)state;
    CUresult (*load)(CUfunction) = NULL;
    cudaFunction_t function = NULL;
    uint32_t *out = take_device(COUNT * 4);
    const uint64_t before = sl_shim_unloaded_count();
    assert_int_equal(launch(&stub_second_fill, 1, out, as_value(1)), cudaSuccess);
    assert_int_equal(sl_shim_unloaded_count(), before + 1);
    assert_int_equal(cudaGetDriverEntryPointByVersion("cuFuncLoad", (void **)&load, 12040,
                                                      cudaEnableDefault, NULL),
                     cudaSuccess);
    assert_int_equal(cudaGetFuncBySymbol(&function, &stub_second_fill), cudaSuccess);
    assert_int_equal(load(function), CUDA_SUCCESS);
    assert_int_equal(launch(&stub_second_fill, 1, out, as_value(1)), cudaSuccess);
    assert_int_equal(sl_shim_unloaded_count(), before + 1);
    assert_int_equal(cudaFree(out), cudaSuccess);
}

/* ---- faults ---- */

/* The launch ends in a fault that says `what`, and nothing works after it. */
static void expect_fault(const char *stub, uint32_t threads, void *first, void *second,
                         const char *what)
{
    const char *fault = "";
    assert_int_equal(launch(stub, threads, first, second), cudaErrorLaunchFailure);
    assert_int_equal(standin_faults(&fault), 1);
    if (strstr(fault, what) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", fault, what);
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
}

static void kernel_when_it_writes_beside_memory_then_breaks_the_context(void **state)
{
    (void)state;
    uint32_t *out = take_device(COUNT * 4);
    expect_fault(&stub_fill, COUNT + 1, out, as_value(1), "fill");
    assert_int_equal(cudaFree(out), cudaErrorLaunchFailure);
}

static void kernel_when_memory_was_given_back_then_may_not_touch_it(void **state)
{
    (void)state;
    uint32_t *out = take_device(COUNT * 4);
    assert_int_equal(launch(&stub_fill, COUNT, out, as_value(1)), cudaSuccess);
    assert_int_equal(cudaFree(out), cudaSuccess);
    expect_fault(&stub_fill, COUNT, out, as_value(1), "fill");
}

typedef enum way_of_writing {
    NOT,
    BY_SET,
    BY_HOST,
    BY_DEVICE,
    BY_UNWRITTEN,
    BY_KERNEL
} way_of_writing;

static void write_source(uint32_t *from, uint32_t *other, way_of_writing way)
{
    uint32_t host[COUNT] = {0};
    const uint64_t bytes = sizeof host;
    if (way == BY_SET || way == BY_DEVICE)
        assert_int_equal(cudaMemset(way == BY_SET ? from : other, 0, bytes), cudaSuccess);
    if (way == BY_HOST)
        assert_int_equal(cudaMemcpy(from, host, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    if (way == BY_DEVICE || way == BY_UNWRITTEN)
        assert_int_equal(cudaMemcpy(from, other, bytes, cudaMemcpyDeviceToDevice), cudaSuccess);
    if (way == BY_KERNEL)
        assert_int_equal(launch(&stub_fill, COUNT, from, as_value(0)), cudaSuccess);
}

static void memory_when_nobody_wrote_it_then_may_not_be_read(void **state)
{
    (void)state;
    for (int way = NOT; way <= BY_KERNEL; way++) {
        standin_machine machine = standin_default();
        standin_reset(&machine);
        uint32_t *from = take_device(COUNT * 4), *other = take_device(COUNT * 4);
        uint32_t *to = take_device(COUNT * 4);
        write_source(from, other, (way_of_writing)way);
        if (way == NOT || way == BY_UNWRITTEN)
            expect_fault(&stub_copy, COUNT, to, from, "copy");
        else
            assert_int_equal(launch(&stub_copy, COUNT, to, from), cudaSuccess);
        (void)cudaFree(from);
        (void)cudaFree(other);
        (void)cudaFree(to);
    }
}

/* ---- set-up ---- */

static int start_over(void **state)
{
    (void)state;
    standin_machine machine = standin_default();
    standin_reset(&machine);
    return 0;
}

static int open_texts(void **state)
{
    (void)state;
    directory = scratch_open();
    setenv("SL_PTX_DIRECTORY", directory.text, 1);
    write_text("first.ptx", HEAD FILL("fill", "0") COPY("copy"));
    write_text("second.ptx", HEAD FILL("fill", "1000"));
    write_text("twice.ptx", HEAD FILL("twice", "0"));
    write_text("twice_old.ptx", HEAD FILL("twice", "1"));
    write_text("nothing.txt", HEAD FILL("nowhere", "1"));
    register_objects();
    return 0;
}

static int close_texts(void **state)
{
    (void)state;
    standin_machine machine = standin_default();
    standin_reset(&machine); /* planted faults are no result of this program */
    scratch_close(&directory);
    return 0;
}

int main(void)
{
#define AFRESH(test) cmocka_unit_test_setup(test, start_over)
    const struct CMUnitTest tests[] = {
        AFRESH(kernels_when_of_one_name_then_each_object_has_its_own),
        AFRESH(text_when_there_is_none_then_the_kernel_does_not_run),
        AFRESH(text_when_it_is_left_over_then_the_kernel_does_not_run),
        AFRESH(arguments_when_changed_after_the_launch_then_are_those_of_the_launch),
        AFRESH(launches_when_no_gpu_takes_them_then_are_refused),
        AFRESH(shared_memory_when_asked_for_then_may_be_had),
        AFRESH(kernels_when_not_loaded_before_a_launch_then_are_counted),
        AFRESH(kernel_when_it_writes_beside_memory_then_breaks_the_context),
        AFRESH(kernel_when_memory_was_given_back_then_may_not_touch_it),
        AFRESH(memory_when_nobody_wrote_it_then_may_not_be_read),
    };
    return cmocka_run_group_tests_name("standin", tests, open_texts, close_texts);
}
