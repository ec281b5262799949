/* What could be wrong between the interpreter and its watcher: an access, a join or a copy that one
 * does not tell the other, or tells of the wrong lanes. Small kernels make mistakes; each must be
 * refused by the check that is meant for it, under every schedule, and run clean once mended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shadow.h"

enum { THREADS = 64, BLOCKS = 2, BUFFER_BYTES = 4 * THREADS * BLOCKS, TEXT_BYTES = 4096 };

/* What each kernel begins with: of thread t, lane l and block b,
 *
 *   %rd4  address of word 64 b + t of memory      %rd5  address of word t
 *   %r5   address of word t of the tile           %r7   of word t ^ 1    %r9  of word t ^ 32
 *   %r12  address of 16 bytes of the tile, t's    %rd6  of 16 bytes of memory, of 16 threads' own
 *   %p1   t is 0
 */
static const char PROLOGUE[] = ".version 9.0\n"
                               ".target sm_90\n"
                               ".address_size 64\n"
                               ".visible .entry planted(.param .u64 planted_param_0)\n"
                               "{\n"
                               ".local .align 16 .b8 own[32];\n"
                               ".shared .align 16 .b8 tile[1024];\n"
                               ".reg .pred %p<4>;\n"
                               ".reg .b32 %r<40>;\n"
                               ".reg .b64 %rd<16>;\n"
                               "ld.param.u64 %rd1, [planted_param_0];\n"
                               "cvta.to.global.u64 %rd2, %rd1;\n"
                               "mov.u32 %r1, %tid.x;\n"
                               "mov.u32 %r2, %ctaid.x;\n"
                               "mov.u32 %r3, tile;\n"
                               "shl.b32 %r4, %r1, 2;\n"
                               "add.s32 %r5, %r3, %r4;\n"
                               "xor.b32 %r6, %r4, 4;\n"
                               "add.s32 %r7, %r3, %r6;\n"
                               "xor.b32 %r8, %r4, 128;\n"
                               "add.s32 %r9, %r3, %r8;\n"
                               "shl.b32 %r10, %r1, 4;\n"
                               "add.s32 %r12, %r3, %r10;\n"
                               "shl.b32 %r13, %r2, 6;\n"
                               "add.s32 %r14, %r13, %r1;\n"
                               "mul.wide.u32 %rd3, %r14, 4;\n"
                               "add.s64 %rd4, %rd2, %rd3;\n"
                               "mul.wide.u32 %rd7, %r1, 4;\n"
                               "add.s64 %rd5, %rd2, %rd7;\n"
                               "shl.b32 %r15, %r13, 2;\n"
                               "and.b32 %r16, %r10, 240;\n"
                               "add.s32 %r17, %r15, %r16;\n"
                               "mul.wide.u32 %rd8, %r17, 1;\n"
                               "add.s64 %rd6, %rd2, %rd8;\n"
                               "setp.eq.s32 %p1, %r1, 0;\n"
                               "mov.u32 %r18, 16;\n";

typedef struct fault_kernel {
    const char *name, *says, *planted, *mended;
} fault_kernel;

#define FILL "st.shared.u32 [%r5], %r1;\n"
#define FILL_ROW "st.shared.v4.f32 [%r12], {%r1, %r1, %r1, %r1};\n"
#define BARRIER "bar.sync 0;\n"
#define JOIN "bar.warp.sync -1;\n"
#define SHUFFLE "shfl.sync.bfly.b32 %r30, %r1, 1, 31, -1;\n"
#define COPY "cp.async.cg.shared.global [%r12], [%rd6], 16, %r18;\n"
#define WAIT "cp.async.wait_all;\n"
#define READ_ROW "ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r12];\n"
#define MATRIX "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r12];\n"
#define STORE "st.global.u32 [%rd4], %r20;\n"
#define STORE_THREAD "st.global.u32 [%rd4], %r1;\n"

static const fault_kernel FAULT_KERNELS[] = {
    {"a tile is read without a barrier", "not ordered",
     FILL BARRIER FILL "ld.shared.u32 %r20, [%r9];\n" STORE,
     FILL BARRIER FILL BARRIER "ld.shared.u32 %r20, [%r9];\n" STORE},
    {"a tile is filled anew without a barrier", "not ordered",
     FILL BARRIER "ld.shared.u32 %r20, [%r9];\n" FILL,
     FILL BARRIER "ld.shared.u32 %r20, [%r9];\n" BARRIER FILL},
    {"a shuffle in place of a join", "not ordered",
     FILL BARRIER FILL SHUFFLE "ld.shared.u32 %r20, [%r7];\n" STORE,
     FILL BARRIER FILL JOIN "ld.shared.u32 %r20, [%r7];\n" STORE},
    {"a matrix is loaded without a join", "not ordered", FILL_ROW MATRIX STORE,
     FILL_ROW JOIN MATRIX STORE},
    {"all threads write one word", "not ordered", "st.shared.u32 [%r3], %r1;\n",
     "@%p1 st.shared.u32 [%r3], %r1;\n"},
    {"a counter is read while it is counted up", "not ordered",
     FILL BARRIER "atom.shared.add.u32 %r20, [%r3], 1;\n"
                  "ld.shared.u32 %r20, [%r3];\n",
     FILL BARRIER "atom.shared.add.u32 %r20, [%r3], 1;\n" BARRIER "ld.shared.u32 %r20, [%r3];\n"},
    {"two blocks write the same words", "not ordered", "st.global.u32 [%rd5], %r1;\n",
     "st.global.u32 [%rd4], %r1;\n"},
    {"a block reads what another wrote", "not ordered",
     "st.global.u32 [%rd4], %r1;\n" BARRIER "ld.global.u32 %r20, [%rd5];\n",
     "st.global.u32 [%rd4], %r1;\n" BARRIER "ld.global.u32 %r20, [%rd4];\n"},
    {"rows are updated in place without a barrier", "not ordered",
     "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd6];\n" STORE,
     "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd6];\n" BARRIER STORE},
    {"the read-only path to what was written", "not ordered",
     "st.global.u32 [%rd4], %r1;\n"
     "ld.global.nc.u32 %r20, [%rd4];\n",
     "st.global.u32 [%rd4], %r1;\n"
     "ld.global.u32 %r20, [%rd4];\n"},
    {"a copy is read without a wait", "not ordered", COPY READ_ROW WAIT, COPY WAIT READ_ROW},
    {"a copy is read without a barrier", "not ordered",
     FILL BARRIER COPY WAIT "ld.shared.u32 %r20, [%r9];\n",
     FILL BARRIER COPY WAIT BARRIER "ld.shared.u32 %r20, [%r9];\n"},
    {"a copy's source is written before the wait", "not ordered", COPY BARRIER STORE_THREAD WAIT,
     COPY WAIT BARRIER STORE_THREAD},
    {"a kernel ends without a wait", "copies are in flight", COPY, COPY WAIT},
    {"one word past the end", "out of bounds", "ld.global.u32 %r20, [%rd4+4];\n",
     "ld.global.u32 %r20, [%rd4];\n"},
    {"one word before the start", "out of bounds", "st.global.u32 [%rd4+-4], %r1;\n",
     "st.global.u32 [%rd4], %r1;\n"},
    {"a tile that only one thread filled", "no value",
     "@%p1 st.shared.u32 [%r3], %r1;\n" BARRIER "ld.shared.u32 %r20, [%r5];\n",
     "@%p1 st.shared.u32 [%r3], %r1;\n" BARRIER "ld.shared.u32 %r20, [%r3];\n"},
    {"a tile that is wider than what was filled", "no value", FILL BARRIER READ_ROW,
     FILL_ROW BARRIER READ_ROW},
    {"local memory that was not written", "no value",
     "mov.u64 %rd10, own;\n"
     "st.local.u32 [%rd10], %r1;\n"
     "ld.local.u32 %r20, [%rd10+4];\n",
     "mov.u64 %rd10, own;\n"
     "st.local.u32 [%rd10], %r1;\n"
     "ld.local.u32 %r20, [%rd10];\n"},
};

enum { FAULT_KERNEL_COUNT = sizeof FAULT_KERNELS / sizeof FAULT_KERNELS[0] };

static const ptx_schedule SCHEDULES[] = {
    {.lanes = PTX_TOGETHER},
    {.lanes = PTX_TOGETHER, .copies = PTX_LANDS_AT_WAIT, .blocks_at_once = 2, .seed = 1},
    {.lanes = PTX_APART, .seed = 2},
    {.lanes = PTX_APART, .copies = PTX_LANDS_AT_WAIT, .blocks_at_once = 2, .seed = 3},
};

enum { SCHEDULE_COUNT = sizeof SCHEDULES / sizeof SCHEDULES[0] };

static bool launch(const char *body, const ptx_schedule *schedule, ptx_fault *out_fault)
{
    static uint32_t buffer[BUFFER_BYTES / 4];
    char text[TEXT_BYTES];
    ptx_module *module = NULL;
    const int length = snprintf(text, sizeof text, "%s%sret;\n}\n", PROLOGUE, body);
    assert_true(length > 0 && length < TEXT_BYTES);
    if (!ptx_module_open(text, (uint64_t)length, &module, out_fault))
        fail_msg("%s: %s", body, out_fault->text);
    ptx_shadow *shadow = ptx_shadow_open(&(ptx_shadow_options){.counts_traffic = true});
    assert_non_null(shadow);
    memset(buffer, 0, sizeof buffer);
    assert_true(ptx_shadow_open_range(shadow, buffer, sizeof buffer, true));
    void *address = buffer, *arguments[] = {&address};
    const bool is_fine =
        ptx_launch(&(ptx_launch_args){.kernel = ptx_module_kernel(module, "planted"),
                                      .grid = {BLOCKS, 1, 1},
                                      .block = {THREADS, 1, 1},
                                      .arguments = arguments,
                                      .schedule = *schedule,
                                      .watch = ptx_shadow_watch(shadow)},
                   NULL, out_fault);
    ptx_shadow_close(shadow);
    ptx_module_close(module);
    return is_fine;
}

static void kernels_when_they_are_wrong_are_refused_and_when_mended_run(void **state)
{
    (void)state;
    uint32_t wrong_count = 0;
    for (int i = 0; i < FAULT_KERNEL_COUNT * SCHEDULE_COUNT; i++) {
        const fault_kernel *row = &FAULT_KERNELS[i / SCHEDULE_COUNT];
        const ptx_schedule *schedule = &SCHEDULES[i % SCHEDULE_COUNT];
        ptx_fault planted = {{0}}, mended = {{0}};
        const bool is_found = !launch(row->planted, schedule, &planted);
        const bool is_clean = launch(row->mended, schedule, &mended);
        if (is_found && strstr(planted.text, row->says) && is_clean)
            continue;
        print_error("%s, schedule %d: planted: %s; mended: %s\n", row->name, i % SCHEDULE_COUNT,
                    is_found ? planted.text : "not found", is_clean ? "clean" : mended.text);
        wrong_count++;
    }
    assert_int_equal(wrong_count, 0);
    print_message("%d kernels under %d schedules\n", FAULT_KERNEL_COUNT, SCHEDULE_COUNT);
}

/* The counts stand at the instructions that made them. */
static void traffic_when_a_kernel_runs_is_counted_at_its_instructions(void **state)
{
    (void)state;
    static uint32_t buffer[BUFFER_BYTES / 4];
    static const char body[] = FILL_ROW JOIN MATRIX "st.global.u32 [%rd4], %r20;\n"
                                                    "ld.shared.u32 %r24, [%r12];\nret;\n}\n";
    char text[TEXT_BYTES];
    ptx_module *module = NULL;
    ptx_fault fault;
    const int length = snprintf(text, sizeof text, "%s%s", PROLOGUE, body);
    if (!ptx_module_open(text, (uint64_t)length, &module, &fault))
        fail_msg("%s", fault.text);
    ptx_kernel *kernel = ptx_module_kernel(module, "planted");
    ptx_shadow *shadow = ptx_shadow_open(&(ptx_shadow_options){.counts_traffic = true});
    assert_true(ptx_shadow_open_range(shadow, buffer, sizeof buffer, false));
    void *address = buffer, *arguments[] = {&address};
    if (!ptx_launch(&(ptx_launch_args){.kernel = kernel,
                                       .grid = {BLOCKS, 1, 1},
                                       .block = {THREADS, 1, 1},
                                       .arguments = arguments,
                                       .watch = ptx_shadow_watch(shadow)},
                    NULL, &fault))
        fail_msg("%s", fault.text);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < ptx_kernel_tell(kernel).instruction_count; i++) {
        const char *name = ptx_kernel_instruction(kernel, i).text;
        const ptx_traffic t = ptx_shadow_traffic(shadow, kernel, i);
        if (strstr(name, "ldmatrix")) {
            assert_int_equal(t.requests, 4);
            assert_int_equal(t.wavefronts, 16);
            assert_int_equal(t.least, 16);
        } else if (strstr(name, "ld.shared")) {
            assert_int_equal(t.wavefronts, 4 * 4); /* every fourth bank */
            assert_int_equal(t.least, 4);
        } else if (strstr(name, "st.global")) {
            assert_int_equal(t.sectors, 4 * 4);
        } else {
            continue;
        }
        seen++;
    }
    assert_int_equal(seen, 3);
    ptx_shadow_close(shadow);
    ptx_module_close(module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_when_they_are_wrong_are_refused_and_when_mended_run),
        cmocka_unit_test(traffic_when_a_kernel_runs_is_counted_at_its_instructions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
