/* What could be wrong in the executor: lanes that part never meet again or meet too early, a result
 * reaches lanes that take no part, a barrier or a shuffle that does not wait, memory of the wrong
 * space, element or sign, a copy that lands when it should not, a register that shares its place
 * with one that lives. Small kernels whose results are known run under every schedule; random ones
 * are held against one thread at a time, computed here. */
#include "ptx_case.h"

typedef struct program {
    const char *body;
    uint32_t (*expected)(uint32_t thread); /* word `thread` of out, of block 0 */
    uint32_t threads, dynamic_shared_bytes;
} program;

static uint32_t identity(uint32_t thread)
{
    return thread;
}

/* ---- lanes ---- */

static uint32_t parity(uint32_t thread)
{
    return thread % 2 ? 100 + thread : 200 + thread;
}

#define BRANCHES                                                                                   \
    "and.b32 %r2, %r1, 1;\nsetp.eq.s32 %p1, %r2, 0;\n@%p1 bra $EVEN;\n"                            \
    "add.s32 %r3, %r1, 100;\nbra.uni $JOIN;\n"                                                     \
    "$EVEN:\nadd.s32 %r3, %r1, 200;\n$JOIN:\nst.global.u32 [%rd3], %r3;"

static uint32_t triangle(uint32_t thread)
{
    return thread * (thread + 1) / 2;
}

#define LOOP                                                                                       \
    "mov.u32 %r2, 0;\nmov.u32 %r3, 0;\n$AGAIN:\nadd.s32 %r3, %r3, %r2;\n"                          \
    "add.s32 %r2, %r2, 1;\nsetp.le.u32 %p1, %r2, %r1;\n@%p1 bra $AGAIN;\n"                         \
    "st.global.u32 [%rd3], %r3;"

static uint32_t guarded_value(uint32_t thread)
{
    return thread < 10 ? 7 : 9;
}

#define GUARD                                                                                      \
    "setp.lt.u32 %p1, %r1, 10;\nmov.u32 %r2, 9;\n@%p1 mov.u32 %r2, 7;\n"                           \
    "@!%p1 add.s32 %r2, %r2, 0;\nst.global.u32 [%rd3], %r2;"

static uint32_t lower_half(uint32_t thread)
{
    return thread < 16 ? thread ^ 2 : 0;
}

/* The members of a shuffle are those that did not end, however late these end. */
#define EARLY_END                                                                                  \
    "setp.ge.u32 %p1, %r1, 16;\n@%p1 bra $OUT;\nbar.warp.sync 65535;\n"                            \
    "shfl.sync.bfly.b32 %r2, %r1, 2, 31, -1;\nst.global.u32 [%rd3], %r2;\n$OUT:"

/* ---- across lanes ---- */

static uint32_t warp_sum(uint32_t thread)
{
    return thread / 32 * 1024 + 496;
}

#define SHUFFLE_STEP(distance)                                                                     \
    "shfl.sync.bfly.b32 %r3|%p2, %r2, " distance ", 31, -1;\nadd.s32 %r2, %r2, %r3;\n"
#define SHUFFLES                                                                                   \
    "mov.u32 %r2, %r1;\n" SHUFFLE_STEP("16") SHUFFLE_STEP("8") SHUFFLE_STEP("4") SHUFFLE_STEP("2") \
        SHUFFLE_STEP("1") "st.global.u32 [%rd3], %r2;"

static uint32_t other_of_half(uint32_t thread)
{
    return thread ^ 1;
}

/* Halves of a warp shuffle at different instructions. */
#define HALVES                                                                                     \
    "and.b32 %r2, %r1, 16;\nsetp.eq.s32 %p1, %r2, 0;\n@%p1 bra $LOW;\n"                            \
    "shfl.sync.bfly.b32 %r3, %r1, 1, 31, 0xffff0000;\nbra.uni $JOIN;\n"                            \
    "$LOW:\nshfl.sync.bfly.b32 %r3, %r1, 1, 31, 0xffff;\n$JOIN:\nst.global.u32 [%rd3], %r3;"

static uint32_t reversed(uint32_t thread)
{
    return 127 - thread;
}

#define SHARED                                                                                     \
    ".shared .align 4 .b8 held[512];\nmov.u32 %r2, held;\nshl.b32 %r3, %r1, 2;\n"                  \
    "add.s32 %r4, %r2, %r3;\nst.shared.u32 [%r4], %r1;\nbar.sync 0;\nsub.s32 %r5, %r2, %r3;\n"     \
    "ld.shared.u32 %r6, [%r5+508];\nst.global.u32 [%rd3], %r6;"

static uint32_t neighbour(uint32_t thread)
{
    return thread ^ 3;
}

#define WARP_BARRIER                                                                               \
    ".shared .align 4 .b8 held[128];\nmov.u32 %r2, held;\nshl.b32 %r3, %r1, 2;\n"                  \
    "add.s32 %r4, %r2, %r3;\nst.shared.u32 [%r4], %r1;\nbar.warp.sync -1;\nxor.b32 %r5, %r3, "     \
    "12;\n"                                                                                        \
    "add.s32 %r5, %r5, %r2;\nld.shared.u32 %r6, [%r5];\nst.global.u32 [%rd3], %r6;"

static uint32_t votes(uint32_t thread)
{
    (void)thread;
    return 1 * 1000 + 0 * 100 + 3;
}

#define BLOCK_VOTES                                                                                \
    "setp.lt.u32 %p1, %r1, 3;\nbar.red.or.pred %p2, 0, %p1;\nbar.red.and.pred %p3, 0, %p1;\n"      \
    "bar.red.popc.u32 %r2, 0, %p1;\nselp.b32 %r3, 1000, 0, %p2;\nselp.b32 %r4, 100, 0, %p3;\n"     \
    "add.s32 %r2, %r2, %r3;\nadd.s32 %r2, %r2, %r4;\nst.global.u32 [%rd3], %r2;"

static uint32_t seventy(uint32_t thread)
{
    (void)thread;
    return 70;
}

#define ATOMICS                                                                                    \
    ".shared .align 4 .b8 count[4];\nmov.u32 %r2, count;\nsetp.eq.s32 %p1, %r1, 0;\n"              \
    "mov.u32 %r3, 0;\n@%p1 st.shared.u32 [%r2], %r3;\nbar.sync 0;\n"                               \
    "atom.shared.add.u32 %r4, [%r2], 1;\nbar.sync 0;\nld.shared.u32 %r5, [%r2];\n"                 \
    "st.global.u32 [%rd3], %r5;"

/* ---- memory ---- */

static uint32_t copied(uint32_t thread)
{
    return thread % 2 ? 0 : thread + 5;
}

#define COPIES                                                                                     \
    ".shared .align 16 .b8 held[512];\nmov.u32 %r2, held;\nshl.b32 %r3, %r1, 2;\n"                 \
    "add.s32 %r4, %r2, %r3;\nsub.s64 %rd4, %rd3, %rd1;\nadd.s64 %rd5, %rd2, %rd4;\n"               \
    "and.b32 %r5, %r1, 1;\nxor.b32 %r5, %r5, 1;\nshl.b32 %r5, %r5, 2;\n"                           \
    "cp.async.ca.shared.global [%r4], [%rd5+20], 4, %r5;\ncp.async.wait_all;\n"                    \
    "ld.shared.u32 %r6, [%r4];\nst.global.u32 [%rd3], %r6;"

static uint32_t local_value(uint32_t thread)
{
    return thread * 10 + thread % 4;
}

#define LOCAL                                                                                      \
    ".local .align 16 .b8 depot[16];\nmov.u64 %rd4, depot;\nmul.lo.s32 %r2, %r1, 10;\n"            \
    "add.s32 %r3, %r2, 1;\nadd.s32 %r4, %r2, 2;\nadd.s32 %r5, %r2, 3;\n"                           \
    "st.local.v4.u32 [%rd4], {%r2, %r3, %r4, %r5};\nand.b32 %r6, %r1, 3;\n"                        \
    "mul.wide.u32 %rd5, %r6, 4;\nadd.s64 %rd5, %rd4, %rd5;\nld.local.u32 %r7, [%rd5];\n"           \
    "st.global.u32 [%rd3], %r7;"

static uint32_t generic_value(uint32_t thread)
{
    return thread % 3 == 0 ? 30 + thread : thread % 3 == 1 ? 60 + thread : 90 + thread;
}

/* Lanes of one access point into shared, local and global memory. */
#define GENERIC                                                                                    \
    ".local .align 4 .b8 depot[4];\n.shared .align 4 .b8 held[128];\n"                             \
    "mov.u64 %rd4, depot;\ncvta.local.u64 %rd4, %rd4;\nmov.u64 %rd5, held;\n"                      \
    "cvta.shared.u64 %rd5, %rd5;\nmul.wide.u32 %rd6, %r1, 4;\nadd.s64 %rd5, %rd5, %rd6;\n"         \
    "add.s64 %rd7, %rd1, 1024;\nadd.s64 %rd7, %rd7, %rd6;\nrem.u32 %r2, %r1, 3;\n"                 \
    "setp.eq.s32 %p1, %r2, 0;\nsetp.eq.s32 %p2, %r2, 1;\nselp.b64 %rd8, %rd4, %rd7, %p2;\n"        \
    "selp.b64 %rd8, %rd5, %rd8, %p1;\nmul.lo.s32 %r3, %r2, 30;\nadd.s32 %r3, %r3, 30;\n"           \
    "add.s32 %r3, %r3, %r1;\nst.u32 [%rd8], %r3;\nld.u32 %r4, [%rd8];\n"                           \
    "st.global.u32 [%rd3], %r4;"

static uint32_t parts(uint32_t thread)
{
    const int32_t byte = (int8_t)(thread + 0xf0);
    return (uint32_t)byte + (thread + 0xf0) % 256;
}

#define SIGNS                                                                                      \
    "add.s32 %r2, %r1, 0xf0;\nst.global.u8 [%rd3], %r2;\nld.global.s8 %r3, [%rd3];\n"              \
    "ld.global.u8 %r4, [%rd3];\nadd.s32 %r3, %r3, %r4;\nst.global.u32 [%rd3], %r3;"

static uint32_t swapped(uint32_t thread)
{
    return thread << 16 | 0xabcd;
}

#define PACKS                                                                                      \
    "shl.b32 %r2, %r1, 16;\nor.b32 %r2, %r2, 5;\nmov.b32 {_, %rs2}, %r2;\n"                        \
    "mov.u16 %rs3, 0xabcd;\nmov.b32 %r3, {%rs3, %rs2};\nmov.b64 %rd4, {%r1, %r3};\n"               \
    "mov.b64 {%r5, %r6}, %rd4;\nst.global.u32 [%rd3], %r6;"

static uint32_t dynamic_value(uint32_t thread)
{
    return thread + 1;
}

#define DYNAMIC                                                                                    \
    "mov.u32 %r2, dynamic;\nshl.b32 %r3, %r1, 4;\nadd.s32 %r4, %r2, %r3;\nadd.s32 %r5, %r1, 1;\n"  \
    "st.shared.v4.u32 [%r4], {%r1, %r5, %r1, %r1};\nld.shared.v2.u32 {%r6, %r7}, [%r4];\n"         \
    "st.global.u32 [%rd3], %r7;"

static const program PROGRAMS[] = {
    {"st.global.u32 [%rd3], %r1;", identity, 40, 0},
    {BRANCHES, parity, 40, 0},
    {LOOP, triangle, 64, 0},
    {GUARD, guarded_value, 32, 0},
    {EARLY_END, lower_half, 32, 0},
    {SHUFFLES, warp_sum, 96, 0},
    {HALVES, other_of_half, 64, 0},
    {SHARED, reversed, 128, 0},
    {WARP_BARRIER, neighbour, 32, 0},
    {BLOCK_VOTES, votes, 70, 0},
    {ATOMICS, seventy, 70, 0},
    {COPIES, copied, 70, 0},
    {LOCAL, local_value, 33, 0},
    {GENERIC, generic_value, 32, 0},
    {SIGNS, parts, 32, 0},
    {PACKS, swapped, 32, 0},
};

static void check_program(const program *p, const char *text)
{
    ptx_module *module = open_small(text);
    for (int s = 0; s < SCHEDULES; s++) {
        const small_launch how = {.threads = p->threads,
                                  .dynamic_shared_bytes = p->dynamic_shared_bytes,
                                  .schedule = SCHEDULE[s]};
        if (!launch_small(module, &how, NULL))
            fail_msg("%s", small_fault.text);
        for (uint32_t i = 0; i < p->threads; i++)
            if (out_words[i] != p->expected(i))
                fail_msg("thread %u: %u, not %u, schedule %d:\n%s", i, out_words[i], p->expected(i),
                         s, p->body);
    }
    ptx_module_close(module);
}

static void programs_under_every_schedule_give_the_known_results(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof PROGRAMS / sizeof *PROGRAMS; i++) {
        char text[4096];
        snprintf(text, sizeof text, "%s%s%s", PTX_BEGIN, PROGRAMS[i].body, PTX_END);
        check_program(&PROGRAMS[i], text);
    }
}

static void dynamic_shared_memory_lies_behind_the_static(void **state)
{
    (void)state;
    const program p = {DYNAMIC, dynamic_value, 32, 512};
    char text[4096];
    snprintf(text, sizeof text, "%s.extern .shared .align 16 .b8 dynamic[];\n%s%s%s", PTX_HEAD,
             PTX_BEGIN + strlen(PTX_HEAD), DYNAMIC, PTX_END);
    check_program(&p, text);
    ptx_module *module = open_small(text);
    const small_launch less = {.threads = 32, .dynamic_shared_bytes = 496};
    assert_false(launch_small(module, &less, NULL));
    assert_non_null(strstr(small_fault.text, "outside of 496 bytes"));
    ptx_module_close(module);
}

#define GEOMETRY                                                                                   \
    PTX_HEAD ".entry kernel(.param .u32 .ptr .global .align 1 kernel_x, .param .align 8 .b8 "      \
             "kernel_s[24])\n"                                                                     \
             ".maxntid 64, 1, 1\n{\n.reg .b32 %r<16>;\n.reg .b64 %rd<8>;\n"                        \
             "mov.u64 %rd1, kernel_s;\nld.param.u64 %rd2, [kernel_s+8];\n"                         \
             "ld.param.v2.u32 {%r1, %r2}, [%rd1+16];\nld.param.u32 %r3, [kernel_x];\n"             \
             "mov.u32 %r4, %ctaid.y;\nmov.u32 %r5, %nctaid.x;\nmov.u32 %r6, %ctaid.x;\n"           \
             "mad.lo.s32 %r7, %r4, %r5, %r6;\nmov.u32 %r8, %tid.y;\nmov.u32 %r9, %ntid.x;\n"       \
             "mov.u32 %r10, %tid.x;\nmad.lo.s32 %r11, %r8, %r9, %r10;\nshl.b32 %r7, %r7, 4;\n"     \
             "add.s32 %r7, %r7, %r11;\nmul.wide.u32 %rd3, %r7, 4;\nadd.s64 %rd3, %rd2, %rd3;\n"    \
             "add.s32 %r12, %r1, %r2;\nadd.s32 %r12, %r12, %r3;\nadd.s32 %r12, %r12, %r7;\n"       \
             "st.global.u32 [%rd3], %r12;\nret;\n}\n"

static void geometry_and_parameters_are_the_launch_s(void **state)
{
    (void)state;
    struct {
        uint64_t nothing;
        uint32_t *out;
        uint32_t a, b;
    } packed = {0, out_words, 1000, 200};
    uint32_t x = 30;
    void *arguments[] = {&x, &packed};
    ptx_module *module = open_small(GEOMETRY);
    const ptx_kernel_facts facts = ptx_kernel_tell(ptx_module_kernel(module, "kernel"));
    assert_int_equal(facts.param_count, 2);
    assert_int_equal(facts.argument_offset[1], 8);
    assert_int_equal(facts.argument_bytes[1], 24);
    assert_int_equal(facts.threads_max, 64);
    for (int s = 0; s < SCHEDULES; s++) {
        const ptx_launch_args args = {.kernel = ptx_module_kernel(module, "kernel"),
                                      .grid = {5, 3, 1},
                                      .block = {8, 2, 1},
                                      .arguments = arguments,
                                      .schedule = SCHEDULE[s]};
        memset(out_words, 0, sizeof out_words);
        assert_true(ptx_launch(&args, NULL, &small_fault));
        for (uint32_t i = 0; i < 5 * 3 * 16; i++)
            assert_int_equal(out_words[i], 1230 + i);
    }
    assert_null(ptx_module_kernel(module, "other"));
    ptx_module_close(module);
}

/* A read before the wait: the copy's value where it lands at issue, noise where it lands at its
 * wait. */
static void copy_when_it_lands_at_its_wait_hides_its_target(void **state)
{
    (void)state;
    ptx_module *module = open_small(
        PTX_BEGIN
        ".shared .align 16 .b8 held[128];\nmov.u32 %r2, held;\nshl.b32 %r3, %r1, 2;\n"
        "add.s32 %r4, %r2, %r3;\ncp.async.ca.shared.global [%r4], [%rd2+4], 4;\n"
        "ld.shared.u32 %r6, [%r4];\ncp.async.wait_all;\nst.global.u32 [%rd3], %r6;" PTX_END);
    small_launch how = {.threads = 32};
    assert_true(launch_small(module, &how, NULL));
    assert_int_equal(out_words[0], 1);
    how.schedule.copies = PTX_LANDS_AT_WAIT;
    assert_true(launch_small(module, &how, NULL));
    assert_int_not_equal(out_words[0], 1);
    ptx_module_close(module);
}

static void counts_tell_groups_and_lanes_of_each_instruction(void **state)
{
    (void)state;
    ptx_launch_counts counts;
    ptx_module *module = open_small(PTX_BEGIN BRANCHES PTX_END);
    ptx_kernel *kernel = ptx_module_kernel_at(module, 0);
    const small_launch how = {.threads = 32};
    for (int run = 1; run <= 2; run++) {
        assert_true(launch_small(module, &how, &counts));
        assert_int_equal(counts.divergences, 1);
        uint64_t lanes = 0, groups = 0;
        for (uint32_t i = 0; i < ptx_kernel_tell(kernel).instruction_count; i++) {
            const ptx_instruction one = ptx_kernel_instruction(kernel, i);
            const bool is_way = strstr(one.text, "%r1, 100") || strstr(one.text, "%r1, 200");
            assert_int_equal(one.groups, run);
            assert_int_equal(one.lanes, (strstr(one.text, "bra.uni") || is_way ? 16 : 32) * run);
            lanes += one.lanes;
            groups += one.groups;
        }
        assert_int_equal(lanes, counts.lanes * (uint64_t)run);
        assert_int_equal(groups, counts.groups * (uint64_t)run);
    }
    ptx_kernel_forget_counts(kernel);
    assert_int_equal(ptx_kernel_instruction(kernel, 0).groups, 0);
    ptx_module_close(module);
}

/* ---- random programs: registers that share places, lanes that part ---- */

enum { VARIABLES = 24, STEPS_MAX = 60, RANDOM_TEXT = 16384 };

typedef struct random_program {
    uint64_t seed;
    char text[RANDOM_TEXT];
    size_t bytes;
    uint32_t labels;
    uint32_t values[32][VARIABLES]; /* of each thread, computed here */
} random_program;

static uint64_t draw(random_program *p)
{
    p->seed = p->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return p->seed >> 33;
}

static void write_line(random_program *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    p->bytes += (size_t)vsnprintf(p->text + p->bytes, RANDOM_TEXT - p->bytes, format, arguments);
    va_end(arguments);
    assert_true(p->bytes < RANDOM_TEXT);
}

/* d = a op b, for the threads in `lanes`. */
static void add_assignment(random_program *p, uint32_t lanes)
{
    const uint32_t d = (uint32_t)(draw(p) % VARIABLES), a = (uint32_t)(draw(p) % VARIABLES);
    const uint32_t b = (uint32_t)(draw(p) % VARIABLES), kind = (uint32_t)(draw(p) % 4);
    static const char *const names[] = {"add.s32", "sub.s32", "xor.b32", "mul.lo.s32"};
    write_line(p, "%s %%v%u, %%v%u, %%v%u;\n", names[kind], d, a, b);
    for (uint32_t lane = 0; lane < 32; lane++)
        if (lanes >> lane & 1) {
            uint32_t *v = p->values[lane];
            v[d] = kind == 0   ? v[a] + v[b]
                   : kind == 1 ? v[a] - v[b]
                   : kind == 2 ? v[a] ^ v[b]
                               : v[a] * v[b];
        }
}

static void add_assignments(random_program *p, uint32_t lanes)
{
    for (uint64_t count = draw(p) % 6; count > 0; count--)
        add_assignment(p, lanes);
}

/* if (a < b) { … } else { … }, the else inside of the then's lanes sometimes. */
static void add_branch(random_program *p, uint32_t lanes)
{
    const uint32_t a = (uint32_t)(draw(p) % VARIABLES), b = (uint32_t)(draw(p) % VARIABLES);
    const uint32_t label = p->labels++;
    uint32_t taken = 0;
    for (uint32_t lane = 0; lane < 32; lane++)
        taken |= (uint32_t)(p->values[lane][a] < p->values[lane][b]) << lane;
    write_line(p, "setp.lt.u32 %%p1, %%v%u, %%v%u;\n@%%p1 bra $T%u;\n", a, b, label);
    add_assignments(p, lanes & ~taken);
    write_line(p, "bra.uni $J%u;\n$T%u:\n", label, label);
    add_assignments(p, lanes & taken);
    write_line(p, "$J%u:\n", label);
}

/* A loop that thread t runs (t & 3) + 1 times over: one assignment d = d + a, a != d. */
static void add_loop(random_program *p)
{
    const uint32_t d = (uint32_t)(draw(p) % VARIABLES);
    const uint32_t a = (d + 1 + (uint32_t)(draw(p) % (VARIABLES - 1))) % VARIABLES;
    const uint32_t label = p->labels++;
    write_line(p, "and.b32 %%c, %%r1, 3;\n$L%u:\nadd.s32 %%v%u, %%v%u, %%v%u;\n", label, d, d, a);
    write_line(p, "setp.eq.s32 %%p1, %%c, 0;\nsub.s32 %%c, %%c, 1;\n@!%%p1 bra $L%u;\n", label);
    for (uint32_t lane = 0; lane < 32; lane++)
        p->values[lane][d] += p->values[lane][a] * (lane % 4 + 1);
}

static void write_random(random_program *p)
{
    write_line(p, "%s.reg .b32 %%v<%d>;\n.reg .b32 %%c;\n", PTX_BEGIN, VARIABLES);
    for (uint32_t i = 0; i < VARIABLES; i++) {
        write_line(p, "add.s32 %%v%u, %%r1, %u;\n", i, i * i * 37);
        for (uint32_t lane = 0; lane < 32; lane++)
            p->values[lane][i] = lane + i * i * 37;
    }
    for (uint64_t steps = 5 + draw(p) % STEPS_MAX; steps > 0; steps--)
        switch (draw(p) % 4) {
        case 0:
            add_branch(p, UINT32_MAX);
            break;
        case 1:
            add_loop(p);
            break;
        default:
            add_assignment(p, UINT32_MAX);
        }
    write_line(p, "mov.u32 %%r2, 0;\n");
    for (uint32_t i = 0; i < VARIABLES; i += 3) { /* the others end earlier */
        write_line(p, "mad.lo.s32 %%r2, %%r2, 31, %%v%u;\n", i);
    }
    write_line(p, "st.global.u32 [%%rd3], %%r2;%s", PTX_END);
}

static uint32_t random_result(const random_program *p, uint32_t lane)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < VARIABLES; i += 3)
        sum = sum * 31 + p->values[lane][i];
    return sum;
}

static void random_programs_match_one_thread_at_a_time(void **state)
{
    (void)state;
    static random_program p;
    const char *given = getenv("SL_TEST_SEED");
    const uint64_t seed = given ? strtoull(given, NULL, 10) : 20;
    const int count = getenv("SL_TEST_FULL") ? 3000 : 150;
    print_message("seed %llu (SL_TEST_SEED), %d programs\n", (unsigned long long)seed, count);
    for (int i = 0; i < count; i++) {
        memset(&p, 0, sizeof p);
        p.seed = seed * 1000003 + (uint64_t)i;
        write_random(&p);
        ptx_module *module = open_small(p.text);
        for (int s = 0; s < SCHEDULES; s++) {
            const small_launch how = {.threads = 32, .schedule = SCHEDULE[s]};
            if (!launch_small(module, &how, NULL))
                fail_msg("%s", small_fault.text);
            for (uint32_t lane = 0; lane < 32; lane++)
                if (out_words[lane] != random_result(&p, lane))
                    fail_msg("program %d, lane %u, schedule %d:\n%s", i, lane, s, p.text);
        }
        ptx_module_close(module);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_under_every_schedule_give_the_known_results),
        cmocka_unit_test(dynamic_shared_memory_lies_behind_the_static),
        cmocka_unit_test(geometry_and_parameters_are_the_launch_s),
        cmocka_unit_test(copy_when_it_lands_at_its_wait_hides_its_target),
        cmocka_unit_test(counts_tell_groups_and_lanes_of_each_instruction),
        cmocka_unit_test(random_programs_match_one_thread_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
