/* What could be wrong in what the interpreter refuses: a text that it does not understand runs
 * nevertheless, or a mistake of a running program passes, or is told of another place. Each mistake
 * is made here on purpose; the fault has to name it. */
#include "ptx_case.h"

typedef struct mistake {
    const char *body;
    const char *fault; /* part of its text */
    uint32_t threads;
    ptx_schedule schedule;
} mistake;

/* ---- texts ---- */

static const mistake TEXTS[] = {
    {"frobnicate.b32 %r2, %r1;", "line 16: `frobnicate.b32 %r2, %r1;`: it is not known", 0, {0}},
    {"add.s33 %r2, %r1, %r1;", "it is not known", 0, {0}},
    {"add.s32 %r2, %r1, %r99;", "an operand is unknown", 0, {0}},
    {"add.s32 %r2, %r1, %rd1;", "another width", 0, {0}},
    {"add.s32 %rd4, %r1, %r1;", "another width", 0, {0}},
    {"add.s32 %r2, %r1;", "fewer sources", 0, {0}},
    {"add.s32 %r2, %r1, %r1, %r1;", "more sources", 0, {0}},
    {"add.s32 %tid.x, %r1, %r1;", "a result is no register", 0, {0}},
    {"setp.eq.s32 %p1, %r1, !%r2;", "another kind", 0, {0}},
    {"bra $NOWHERE;", "its label is unknown", 0, {0}},
    {"@%r1 bra $HERE;\n$HERE:", "its guard is no predicate", 0, {0}},
    {"ld.global.v3.u32 {%r2, %r3, %r4}, [%rd1];", "a suffix is not handled", 0, {0}},
    {"ld.global.v2.u32 %r2, [%rd1];", "another number of elements", 0, {0}},
    {"ld.global.v4.u64 {%rd4, %rd5, %rd6, %rd7}, [%rd1];", "more than 16 bytes", 0, {0}},
    {"ld.acquire.gpu.global.u32 %r2, [%rd1];", "a suffix is not handled", 0, {0}},
    {"ld.volatile.global.u32 %r2, [%rd1];", "a suffix is not handled", 0, {0}},
    {"ld.const.u32 %r2, [%rd1];", "constant memory", 0, {0}},
    {"ld.global.u32 %rs2, [%rd1];", "too narrow", 0, {0}},
    {"ld.global.b128 %rd4, [%rd1];", "its type is not handled", 0, {0}},
    {"st.param.u32 [%rd1], %r2;", "stores to this space", 0, {0}},
    {"atom.acquire.gpu.global.add.u32 %r2, [%rd1], 1;", "a suffix is not handled", 0, {0}},
    {"atom.global.add.f32 %f2, [%rd1], 0f00000000;", "this atomic operation", 0, {0}},
    {"membar.gl;", "it is not known", 0, {0}},
    {"fence.acq_rel.gpu;", "it is not known", 0, {0}},
    {"mov.b32 {%rs1, %rs2}, {%rs3, %rs4};", "this form of mov", 0, {0}},
    {"mov.b64 %rd4, {%rs1, %rs2};", "another width", 0, {0}},
    {"cvta.param.u64 %rd4, %rd1;", "this form of cvta", 0, {0}},
    {"cp.async.bulk.commit_group;", "this form of cp.async", 0, {0}},
    {"cp.async.ca.shared.global [%r2], [%rd1], 12;", "other than 4, 8 or 16", 0, {0}},
    {"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r2}, [%r3];",
     "another number of matrices",
     0,
     {0}},
    {"ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r2}, [%r3];", "this form of ldmatrix", 0, {0}},
    {"bar.arrive 0, 64;", "this barrier", 0, {0}},
    {"bar.sync 0, 64;", "another number of operands", 0, {0}},
    {"call (%r2), function, (%r1);", "expected", 0, {0}},
    {".branchtargets $A, $B;", "the directive \".branchtargets\" is not handled", 0, {0}},
    {".reg .b128 %wide<2>;", "registers of type .b128 are not handled", 0, {0}},
    {"ret;\n}\n.func other()\n{", "nothing else is handled", 0, {0}},
    {"$A: add.s32 %r2, %r1, 1;\n$A: bra $A;", "twice", 0, {0}},
};

static void texts_that_are_not_understood_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++) {
        char text[4096];
        ptx_module *module;
        snprintf(text, sizeof text, "%s%s%s", PTX_BEGIN, TEXTS[i].body, PTX_END);
        if (ptx_module_open(text, strlen(text), &module, &small_fault))
            fail_msg("%s: is not refused", TEXTS[i].body);
        if (!strstr(small_fault.text, TEXTS[i].fault))
            fail_msg("%s: %s", TEXTS[i].body, small_fault.text);
    }
}

/* Each text without its last bytes: a fault, never a crash; every second one. */
static void texts_that_are_cut_off_are_refused(void **state)
{
    (void)state;
    const char *text =
        PTX_BEGIN "ld.global.v2.u32 {%r2, %r3}, [%rd1+8];\n@%p1 bra $A;\n$A:" PTX_END;
    const size_t whole = strlen(text) - 1, head = strlen(PTX_HEAD);
    for (size_t bytes = head + 8; bytes < whole; bytes++) {
        ptx_module *module;
        char *copy = malloc(bytes); /* an address checker sees a read past its end */
        assert_non_null(copy);
        memcpy(copy, text, bytes);
        if (ptx_module_open(copy, bytes, &module, &small_fault))
            fail_msg("%zu bytes are not refused", bytes);
        free(copy);
    }
}

static void a_kernel_that_runs_on_behind_its_end_is_refused(void **state)
{
    (void)state;
    ptx_module *module;
    const char *text = PTX_HEAD ".entry kernel()\n{\n.reg .b32 %r<4>;\nmov.u32 %r1, 5;\n}\n";
    assert_false(ptx_module_open(text, strlen(text), &module, &small_fault));
    assert_non_null(strstr(small_fault.text, "runs on behind it"));
}

/* ---- programs ---- */

#define UPPER "and.b32 %r2, %r1, 16;\nsetp.eq.s32 %p1, %r2, 0;\n"
#define HELD ".shared .align 16 .b8 held[512];\nmov.u32 %r4, held;\n"

static const mistake PROGRAMS[] = {
    {"ld.global.u32 %r2, [%rd1+2];", "not aligned to its 4 bytes", 32, {0}},
    {"ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd3];", "not aligned to its 16 bytes", 32, {0}},
    {HELD "st.shared.u32 [%r4+512], %r1;", "shared address 0x200, 4 bytes, is outside", 32, {0}},
    {HELD "st.shared.u32 [%r4+-4], %r1;", "is outside of 512 bytes", 32, {0}},
    {HELD "st.shared.u16 [%r4+1], %rs1;", "not aligned to its 2 bytes", 32, {0}},
    {".local .align 4 .b8 depot[8];\nmov.u64 %rd4, depot;\nst.local.u32 [%rd4+8], %r1;",
     "local address 0x8",
     32,
     {0}},
    {"ld.param.u32 %r2, [kernel_in+8];", "param address 0x10", 32, {0}},
    {HELD "cvta.shared.u64 %rd4, 512;\nst.u32 [%rd4], %r1;", "shared address 0x200", 32, {0}},
    {"trap;", "the program traps", 32, {0}},
    {"div.u32 %r2, %r1, %r1;",
     "lanes 0x00000001, line 16: `div.u32 %r2, %r1, %r1;`: its result",
     32,
     {0}},
    {"shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffff;", "not among the members", 32, {0}},
    {"shfl.sync.bfly.b32 %r2, %r1, 1, 31, %r1;", "different members", 32, {0}},
    {"and.b32 %r2, %r1, 1;\nsetp.eq.s32 %p1, %r2, 0;\n@%p1 bra $E;\n"
     "shfl.sync.bfly.b32 %r3, %r1, 1, 31, 0xaaaaaaaa;\n$E:",
     "its result is not defined",
     32,
     {0}},
    {UPPER "@%p1 bra $L;\nshfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;\nbra.uni $J;\n"
           "$L:\nshfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;\n$J:",
     "waits for ever: lanes",
     32,
     {0}},
    {UPPER "@%p1 bra $L;\nbar.warp.sync -1;\nbra.uni $J;\n$L:\nbar.sync 0;\n$J:",
     "waits for ever",
     32,
     {0}},
    {UPPER "@%p1 bra $L;\nbar.sync 0;\nbra.uni $J;\n$L:\nbar.sync 0;\n$J:",
     "waits for ever",
     32,
     {0}},
    {"setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $L;\nbar.sync 1;\nbra.uni $J;\n$L:\nbar.sync 0;\n$J:",
     "waits at another barrier",
     64,
     {0}},
    {UPPER "@%p1 bra $E;\n" HELD "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r4];\n$E:",
     "are missing: they ended",
     32,
     {0}},
    {UPPER HELD "@%p1 bra $E;\nldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r4];\n"
                "bra.uni $J;\n$E:\nbar.warp.sync -1;\n$J:",
     "waits for ever",
     32,
     {0}},
    {HELD "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r4];",
     "are missing: they ended",
     31,
     {0}},
    {HELD "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r5, %r6, %r7}, [%r4+8];",
     "not aligned to its 16 bytes",
     32,
     {0}},
    {UPPER "@%p1 bra.uni $E;\nmov.u32 %r3, 1;\n$E:", "the lanes part at bra.uni", 32, {0}},
    {HELD "cp.async.ca.shared.global [%r4], [%rd2], 4, 2;", "reads 2 of 4 bytes", 32, {0}},
    {HELD "cp.async.cg.shared.global [%r4], [%rd2+4], 16;", "not aligned to its 16 bytes", 32, {0}},
    {HELD "cp.async.cg.shared.global [%r4+512], [%rd2], 16;", "is outside of 512 bytes", 32, {0}},
    {"$AGAIN:\nadd.s32 %r2, %r2, 1;\nbra.uni $AGAIN;", "a loop without end?", 32, {0}},
    {"ld.global.u32 %r2, [%rd1+2];", "block (0, 0, 0), warp 0, lanes 0x", 32, {.lanes = PTX_APART}},
};

static void programs_that_may_not_do_what_they_do_are_stopped(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof PROGRAMS / sizeof *PROGRAMS; i++) {
        char text[4096];
        snprintf(text, sizeof text, "%s%s%s", PTX_BEGIN, PROGRAMS[i].body, PTX_END);
        ptx_module *module = open_small(text);
        const small_launch how = {.threads = PROGRAMS[i].threads,
                                  .schedule = PROGRAMS[i].schedule,
                                  .group_instructions = 100000};
        if (launch_small(module, &how, NULL))
            fail_msg("%s: is not stopped", PROGRAMS[i].body);
        if (!strstr(small_fault.text, PROGRAMS[i].fault))
            fail_msg("%s: %s", PROGRAMS[i].body, small_fault.text);
        ptx_module_close(module);
    }
}

static void launches_that_a_kernel_does_not_take_are_refused(void **state)
{
    (void)state;
    char text[4096];
    snprintf(text, sizeof text, "%s%s", PTX_BEGIN, PTX_END);
    ptx_module *module = open_small(text);
    const small_launch wide = {.threads = 1025};
    assert_false(launch_small(module, &wide, NULL));
    assert_non_null(strstr(small_fault.text, "1025 threads"));
    ptx_module_close(module);
}

/* ---- a watcher ---- */

typedef struct record {
    uint32_t access[4]; /* by kind, of the first: reads, constant reads, matrices, writes */
    uint32_t warp_joins, block_joins, copies, ended_lanes, blocks_begun, blocks_ended, launch_ends;
    uint64_t first_shared, last_ticket;
    bool refuses;
} record;

static bool note_launch(void *watcher, const ptx_launch_shape *shape, void **out_run,
                        ptx_fault *out_fault)
{
    (void)out_fault;
    assert_int_equal(shape->threads_per_block, 64);
    assert_int_equal(shape->warps_per_block, 2);
    assert_int_equal(shape->block_count, 3);
    *out_run = watcher;
    return true;
}

static bool note_begin(void *run, const ptx_place *place, ptx_fault *out_fault)
{
    (void)place, (void)out_fault;
    ((record *)run)->blocks_begun++;
    return true;
}

static bool note_access(void *run, const ptx_access *access, ptx_fault *out_fault)
{
    record *noted = run;
    assert_true(access->kind <= PTX_WRITE && access->lanes);
    noted->access[access->kind]++;
    if (access->space == PTX_SHARED && access->kind == PTX_WRITE)
        noted->first_shared = access->address[1];
    return !(noted->refuses && access->kind == PTX_WRITE) || ptx_fail(out_fault, "not so");
}

static void note_warp_join(void *run, const ptx_place *place, uint32_t lanes)
{
    (void)place;
    assert_int_equal(lanes, UINT32_MAX);
    ((record *)run)->warp_joins++;
}

static void note_block_join(void *run, const ptx_place *place, const uint32_t *lanes)
{
    (void)place;
    assert_true(lanes[0] == UINT32_MAX && lanes[1] == UINT32_MAX);
    ((record *)run)->block_joins++;
}

static bool note_copy(void *run, uint64_t ticket, const ptx_access *from, const ptx_access *to,
                      ptx_fault *out_fault)
{
    record *noted = run;
    (void)out_fault;
    assert_true(noted->copies == 0 || ticket > noted->last_ticket);
    assert_int_equal(to->space, PTX_SHARED);
    assert_int_equal(from ? from->lanes : 0, to->lanes & 0x55555555);
    assert_true(!from || from->space == PTX_GLOBAL);
    noted->last_ticket = ticket;
    noted->copies++;
    return true;
}

static void note_copy_end(void *run, const ptx_place *place, uint64_t ticket, uint32_t lanes)
{
    (void)place, (void)ticket;
    ((record *)run)->ended_lanes += (uint32_t)__builtin_popcount(lanes);
}

static bool note_end(void *run, const ptx_place *place, ptx_fault *out_fault)
{
    (void)place, (void)out_fault;
    ((record *)run)->blocks_ended++;
    return true;
}

static bool note_launch_end(void *run, ptx_fault *out_fault)
{
    (void)out_fault;
    ((record *)run)->launch_ends++;
    return true;
}

#define WATCHED                                                                                    \
    HELD "shl.b32 %r5, %r1, 2;\nadd.s32 %r5, %r5, %r4;\nst.shared.u32 [%r5], %r1;\n"               \
         "bar.warp.sync -1;\nshfl.sync.bfly.b32 %r6, %r1, 1, 31, -1;\n"                            \
         "and.b32 %r7, %r1, 1;\nxor.b32 %r7, %r7, 1;\nshl.b32 %r7, %r7, 2;\n"                      \
         "cp.async.ca.shared.global [%r5+256], [%rd2], 4, %r7;\ncp.async.wait_all;\nbar.sync 0;\n" \
         "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r8}, [%r4];\n"                                \
         "ld.global.nc.u32 %r9, [%rd2];\nld.global.u32 %r10, [%rd2];\nst.global.u32 [%rd3], %r1;"

static const ptx_watch NOTES = {.launch_begin = note_launch,
                                .block_begin = note_begin,
                                .access = note_access,
                                .warp_join = note_warp_join,
                                .block_join = note_block_join,
                                .copy_begin = note_copy,
                                .copy_end = note_copy_end,
                                .block_end = note_end,
                                .launch_end = note_launch_end};

static void a_watcher_is_told_of_all_and_may_refuse(void **state)
{
    (void)state;
    char text[4096];
    snprintf(text, sizeof text, "%s%s%s", PTX_BEGIN, WATCHED, PTX_END);
    ptx_module *module = open_small(text);
    for (int s = 0; s < SCHEDULES; s++) {
        record noted = {0};
        ptx_watch watch = NOTES;
        watch.watcher = &noted;
        const small_launch how = {
            .blocks = 3, .threads = 64, .schedule = SCHEDULE[s], .watch = &watch};
        if (!launch_small(module, &how, NULL))
            fail_msg("%s", small_fault.text);
        const uint32_t most = SCHEDULE[s].lanes == PTX_APART ? 192 : 6;
        assert_int_equal(noted.warp_joins, 6);
        assert_int_equal(noted.block_joins, 3);
        assert_int_equal(noted.ended_lanes, 192);
        assert_int_equal(noted.access[PTX_READ_MATRIX], 6);
        assert_in_range(noted.access[PTX_READ], 6, most);
        assert_in_range(noted.access[PTX_READ_CONSTANT], 6, most);
        assert_in_range(noted.access[PTX_WRITE], 12, 2 * most);
        assert_true(most == 6 || noted.access[PTX_READ] > 12); /* lanes did part */
        assert_true(noted.blocks_begun == 3 && noted.blocks_ended == 3 && noted.launch_ends == 1);
        noted.refuses = true;
        assert_false(launch_small(module, &how, NULL));
        assert_non_null(strstr(small_fault.text, "`st.shared.u32 [%r5], %r1;`: not so"));
        assert_int_equal(noted.launch_ends, 2);
    }
    ptx_module_close(module);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_that_are_not_understood_are_refused),
        cmocka_unit_test(texts_that_are_cut_off_are_refused),
        cmocka_unit_test(a_kernel_that_runs_on_behind_its_end_is_refused),
        cmocka_unit_test(programs_that_may_not_do_what_they_do_are_stopped),
        cmocka_unit_test(launches_that_a_kernel_does_not_take_are_refused),
        cmocka_unit_test(a_watcher_is_told_of_all_and_may_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
