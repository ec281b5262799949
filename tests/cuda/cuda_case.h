/* One op's CUDA kernel under test, run on the processor and compared with the cpu kernel.
 *
 * A test fills a cuda_op and calls cuda_op_check(): for each type and each of CASE_SHAPES shapes
 * op.draw() sets the attrs and fills the operands; then the cpu kernel runs, and the CUDA kernel in
 * four orders of threads and blocks (SL_TEST_ORDERS: so many of them in quick runs, in turns),
 * which must agree in every bit. Around operands and workspace lie guards of NaNs that must come
 * out untouched; the workspace is full of NaNs and of exactly the size that the kernel asked for;
 * operands that the op only reads must not change. What the op writes is compared with the cpu's,
 * bit by bit or within the bound of its operand.
 *
 *     static void draw_gelu(cuda_case *c, int round)
 *     {
 *         c->attrs.element_count = case_size(round);
 *         case_random(c, 0, c->type, c->attrs.element_count, 3.0f);
 *         case_room(c, 1, c->type, c->attrs.element_count);
 *     }
 *     ...
 *     cuda_op_check(&(cuda_op){.kind = SL_OP_GELU, .run = sl_cuda_gelu, .draw = draw_gelu,
 *                              .bound = {[1] = {.terms = 12}}});
 *
 * cuda_case_run() and what it is made of also serve tests that fill operands by hand. With
 * SL_TEST_GPU the same test runs on a device that is opened through the tables (gpu_place.h): a
 * real GPU, where the orders are repetitions, or the stand-in. */
#ifndef SL_TESTS_CUDA_CASE_H
#define SL_TESTS_CUDA_CASE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cuda_elements.h"
#include "gpu_place.h"
#include "kernels/kernels.h"
#include "program/program.h"
#include "shim_control.h"

/* The host functions of the ops; those that are called are linked. */
#define X(NAME, name, ...) sl_status sl_cuda_##name(const sl_kernel_call *call);
SL_OP_LIST(X)
#undef X

enum { CASE_SHAPES = 34, CASE_ORDERS = 4 };

/* Small shapes that each kernel of an op meets: thirty and some over where it is what nvcc made,
 * fewer where its source runs, which is not what is judged then. */
#ifdef SL_TEST_GPU
enum { CASE_EACH = 32 };
#else
enum { CASE_EACH = 4 };
#endif

typedef struct cuda_operand {
    int element; /* an sl_type or CASE_... */
    uint64_t count, bytes;
    void *input;      /* as it stands before the call; NULL: absent */
    void *cpu, *cuda; /* as the kernels leave it */
} cuda_operand;

typedef struct cuda_case {
    sl_op_kind kind;
    sl_kernel run;
    int orders; /* of its runs; 0: as many as anyone */
    uint64_t workspace_bytes;
    sl_type type; /* what attrs.type is */
    sl_op_attrs attrs;
    sl_step_scalars scalars;
    const uint8_t *block_flags;
    const uint64_t *block_keys;
    const sl_rate *rates;
    uint32_t rate_count;
    const sl_padding *padding;
    uint64_t padding_count;
    cuda_operand operand[SL_OPERAND_MAX];
} cuda_case;

/* How far a written element may be from the cpu's, where m is its magnitude: the size that rounding
 * errors are relative to (by default that of the element itself; where terms cancel, the sum of
 * their sizes, which magnitude() gives):
 *     terms * 2^-24 * m          for so many roundings in fp32 on both sides together
 *   + half_terms * half unit * m for so many intermediate roundings to a call's half precision
 *   + a unit of the stored type  for stored in half precision, it was rounded once on each side,
 * and numbers next to each other may have gone different ways All zero: the same bits. */
typedef struct cuda_bound {
    double terms, half_terms;
    double (*magnitude)(const cuda_case *c, uint64_t element);
} cuda_bound;

typedef struct cuda_op {
    sl_op_kind kind;
    sl_kernel run;
    /* What the kernel's file says; NULL: none. */
    uint64_t (*workspace_bytes)(sl_op_kind kind, const sl_op_attrs *attrs, uint32_t worker_count);
    /* Fills c->attrs (type is set) and the operands for shape `round`, which counts from 0. */
    void (*draw)(cuda_case *c, int round);
    cuda_bound bound[SL_OPERAND_MAX]; /* of the operands that the op writes */
    int shapes;                       /* 0: CASE_SHAPES */
    int orders;                       /* that a shape runs in; 0: as many as anyone's */
} cuda_op;

static sl_workers *case_workers;

/* ---- shapes ---- */

/* A row's width or a count for shape `round`: 1, what no vector width divides, what just misses or
 * passes a tile, and GPT-2's own; random ones afterwards. */
static MAYBE_UNUSED uint64_t case_size(int round)
{
    static const uint16_t sizes[CASE_SHAPES] = {
        1,  2,  3,  4,   5,   7,   8,   9,   15,  16,  17,  24,  31,  32,  33,  48,   63,
        64, 65, 96, 100, 127, 128, 129, 200, 255, 256, 257, 384, 511, 768, 770, 1000, 1600};
    return round < CASE_SHAPES ? sizes[round] : draw_between(1, 1100);
}

/* Rows beside a width, so that a case has about `elements` elements at most. */
static MAYBE_UNUSED uint64_t case_rows(uint64_t width, uint64_t elements)
{
    const uint64_t most = elements / width;
    return draw_between(1, most < 1 ? 1 : most > 70 ? 70 : most);
}

/* Element `index` of an operand as it stood before the call: for magnitudes. */
static MAYBE_UNUSED double case_input(const cuda_case *c, int operand, uint64_t index)
{
    return case_load(c->operand[operand].element, c->operand[operand].input, index);
}

/* ---- operands ---- */

/* Gives operand `index` room for `count` elements, NaN until someone fills them; returns it. */
static MAYBE_UNUSED void *case_room(cuda_case *c, int index, int element, uint64_t count)
{
    cuda_operand *o = &c->operand[index];
    o->element = element;
    o->count = count;
    o->bytes = count * element_bytes(element);
    o->input = guarded_open(o->bytes);
    o->cpu = guarded_open(o->bytes);
    o->cuda = guarded_open(o->bytes);
    return o->input;
}

/* Normal numbers of deviation `scale`, as the type rounds them. */
static MAYBE_UNUSED void *case_random(cuda_case *c, int index, int element, uint64_t count,
                                      float scale)
{
    void *values = case_room(c, index, element, count);
    uint64_t state = sl_rng_below(test_seed, 2, draw_count++, UINT64_MAX);
    for (uint64_t i = 0; i < count; i++)
        case_store(element, values, i, (double)(scale * draw_normal(&state)));
    return values;
}

/* Token ids in [0, bound). */
static MAYBE_UNUSED int32_t *case_ids(cuda_case *c, int index, uint64_t count, uint64_t bound)
{
    int32_t *ids = (int32_t *)case_room(c, index, CASE_INT32, count);
    for (uint64_t i = 0; i < count; i++)
        ids[i] = (int32_t)draw_below(bound);
    return ids;
}

static MAYBE_UNUSED void case_close(cuda_case *c)
{
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        cuda_operand *o = &c->operand[i];
        guarded_close(o->input, o->bytes);
        guarded_close(o->cpu, o->bytes);
        guarded_close(o->cuda, o->bytes);
    }
}

/* ---- running ---- */

/* The shape, for messages. */
static const char *case_shape(const cuda_case *c)
{
    static char text[256];
    const sl_op_attrs *a = &c->attrs;
    snprintf(text, sizeof text,
             "%s, type %d, grad type %d, B %llu T %llu I %llu O %llu H %llu R %llu first %llu "
             "P %llu elements %llu accumulate %u",
             sl_op_info_of(c->kind)->name, (int)a->type, (int)a->grad_type,
             (unsigned long long)a->batch, (unsigned long long)a->seq, (unsigned long long)a->in,
             (unsigned long long)a->out, (unsigned long long)a->heads,
             (unsigned long long)a->row_count, (unsigned long long)a->first_row,
             (unsigned long long)a->id_count, (unsigned long long)a->element_count, a->adds_output);
    return text;
}

static sl_status call_cuda(const cuda_case *c, const sl_kernel_call *call)
{
    uint64_t bytes[SL_OPERAND_MAX];
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        bytes[i] = c->operand[i].bytes;
    return gpu_place_run(c->kind, c->run, call, bytes, c->workspace_bytes, CASE_GUARD_BYTES);
}

static void run_kernel(cuda_case *c, sl_kernel run, uint64_t workspace_bytes, bool is_cuda)
{
    void *workspace = guarded_open(workspace_bytes);
    sl_kernel_call call = {.attrs = &c->attrs,
                           .scalars = c->scalars,
                           .block_flags = c->block_flags,
                           .block_keys = c->block_keys,
                           .rates = c->rates,
                           .rate_count = c->rate_count,
                           .padding = c->padding,
                           .padding_count = c->padding_count,
                           .workers = is_cuda ? NULL : case_workers,
                           .workspace = workspace};
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        cuda_operand *o = &c->operand[i];
        call.operand[i] = is_cuda ? o->cuda : o->cpu;
        if (o->bytes > 0)
            memcpy(call.operand[i], o->input, o->bytes);
    }
    if ((is_cuda ? call_cuda(c, &call) : run(&call)) != SL_OK)
        fail_msg("%s: the %s kernel failed: %s", case_shape(c), is_cuda ? "CUDA" : "cpu",
                 sl_status_message());
    if (!guarded_check(workspace, workspace_bytes))
        fail_msg("%s: something was written beside the workspace", case_shape(c));
    guarded_close(workspace, workspace_bytes);
}

static void check_guards(const cuda_case *c)
{
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        if (c->operand[i].input != NULL && !guarded_check(c->operand[i].cuda, c->operand[i].bytes))
            fail_msg("%s: something was written beside operand %d", case_shape(c), i);
}

/* Threads touch the same in every order: where that alone is looked at, orders take turns. */
static int count_orders(const cuda_case *c)
{
    if (getenv("SL_TEST_FULL"))
        return CASE_ORDERS;
    const char *few = getenv("SL_TEST_ORDERS");
    const int most = few ? (int)strtol(few, NULL, 10) : (int)sanitizer_share(CASE_ORDERS);
    return c->orders > 0 && c->orders < most ? c->orders : most;
}

/* The order of a run: all of them; or in order first and then another, or one alone, which take
 * turns from case to case. */
static void choose_order(int run, int run_count)
{
    static const struct {
        sl_shim_order order;
        uint64_t seed;
    } orders[CASE_ORDERS] = {{SL_SHIM_IN_ORDER, 0},
                             {SL_SHIM_REVERSED, 0},
                             {SL_SHIM_SHUFFLED, 17},
                             {SL_SHIM_SHUFFLED, 18}};
    static int turn;
    const int others = CASE_ORDERS - 1;
    const int chosen = run_count >= CASE_ORDERS ? run
                       : run_count == 1         ? turn++ % CASE_ORDERS
                       : run == 0               ? 0
                                                : 1 + turn++ % others;
    sl_shim_choose_order(orders[chosen].order, orders[chosen].seed);
}

/* The CUDA kernel in every order; all must leave the same bits. */
static void run_orders(cuda_case *c)
{
    const int run_count = count_orders(c);
    void *first[SL_OPERAND_MAX] = {0};
    for (int run = 0; run < run_count; run++) {
        choose_order(run, run_count);
        run_kernel(c, c->run, c->workspace_bytes, true);
        check_guards(c);
        for (int i = 0; i < SL_OPERAND_MAX; i++) {
            const cuda_operand *o = &c->operand[i];
            if (o->bytes == 0)
                continue;
            if (run == 0)
                first[i] = memcpy(test_malloc(o->bytes), o->cuda, o->bytes);
            else if (memcmp(first[i], o->cuda, o->bytes) != 0)
                fail_msg("%s: operand %d depends on the order of threads", case_shape(c), i);
        }
    }
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        if (first[i] != NULL)
            test_free(first[i]);
}

static bool case_writes(const cuda_case *c, int operand)
{
    return sl_op_info_of(c->kind)->operand[operand].mode != SL_MODE_READ;
}

/* Runs both kernels and checks all but what they wrote. */
static MAYBE_UNUSED void cuda_case_run(cuda_case *c)
{
    const sl_kernel_table *cpu = sl_kernels_cpu(), *cuda = sl_kernels_cuda();
    if (cuda != NULL) {
        assert_ptr_equal(cuda->row[c->kind].run, c->run);
        assert_int_equal(sl_kernels_workspace_bytes(cuda, c->kind, &c->attrs, 0),
                         c->workspace_bytes);
    }
    run_kernel(c, cpu->row[c->kind].run,
               sl_kernels_workspace_bytes(cpu, c->kind, &c->attrs, sl_workers_count(case_workers)),
               false);
    run_orders(c);
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        const cuda_operand *o = &c->operand[i];
        if (o->bytes > 0 && !case_writes(c, i) && memcmp(o->cuda, o->input, o->bytes) != 0)
            fail_msg("%s: operand %d is only read, but has changed", case_shape(c), i);
    }
}

/* ---- comparing ---- */

static double allowed_error(const cuda_case *c, const cuda_bound *bound, const cuda_operand *o,
                            uint64_t i, double want)
{
    const double size = bound->magnitude ? bound->magnitude(c, i) : fabs(want);
    double allowed = bound->terms * 0x1p-24 * size + CASE_LEAST[SL_TYPE_FP32];
    if (c->attrs.type != SL_TYPE_FP32)
        allowed += bound->half_terms * CASE_HALF_UNIT[c->attrs.type] * size;
    if (o->element == SL_TYPE_BF16 || o->element == SL_TYPE_FP16)
        allowed += 2 * CASE_HALF_UNIT[o->element] * (fabs(want) + allowed) + CASE_LEAST[o->element];
    return allowed;
}

/* Compares what both kernels left in one operand. Not-a-number and infinity must be the same. */
static MAYBE_UNUSED void case_compare(const cuda_case *c, int operand, const cuda_bound *bound)
{
    const cuda_operand *o = &c->operand[operand];
    for (uint64_t i = 0; i < o->count; i++) {
        const double want = case_load(o->element, o->cpu, i);
        const double got = case_load(o->element, o->cuda, i);
        if (got == want || (isnan(got) && isnan(want)))
            continue;
        const double allowed = allowed_error(c, bound, o, i, want);
        if (!(fabs(got - want) <= allowed))
            fail_msg("%s: operand %d, element %llu: got %.9g, want %.9g within %.3g", case_shape(c),
                     operand, (unsigned long long)i, got, want, allowed);
    }
}

/* The same bits, but that one NaN is as good as another. */
static MAYBE_UNUSED void case_compare_bits(const cuda_case *c, int operand)
{
    const cuda_operand *o = &c->operand[operand];
    if (o->bytes == 0 || memcmp(o->cpu, o->cuda, o->bytes) == 0)
        return;
    const uint64_t each = element_bytes(o->element);
    for (uint64_t i = 0; i < o->count; i++) {
        const double want = case_load(o->element, o->cpu, i);
        const double got = case_load(o->element, o->cuda, i);
        if (isnan(got) && isnan(want))
            continue;
        if (memcmp((char *)o->cpu + i * each, (char *)o->cuda + i * each, each) != 0)
            fail_msg("%s: operand %d, element %llu: got %a, want the bits of %a", case_shape(c),
                     operand, (unsigned long long)i, got, want);
    }
}

static MAYBE_UNUSED void case_compare_all(const cuda_case *c, const cuda_bound *bounds)
{
    for (int i = 0; i < SL_OPERAND_MAX; i++) {
        const cuda_bound *bound = &bounds[i];
        if (c->operand[i].input == NULL || !case_writes(c, i))
            continue;
        if (bound->terms == 0 && bound->half_terms == 0)
            case_compare_bits(c, i);
        else
            case_compare(c, i, bound);
    }
}

/* The whole test of an op: every type, every shape. */
static MAYBE_UNUSED void cuda_op_check(const cuda_op *op)
{
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < rounds(op->shapes ? op->shapes : CASE_SHAPES); round++) {
            cuda_case c = {
                .kind = op->kind, .run = op->run, .orders = op->orders, .type = (sl_type)type};
            c.attrs.type = (uint16_t)type;
            c.scalars.loss_scale = 1.0f;
            op->draw(&c, round);
            c.workspace_bytes =
                op->workspace_bytes ? op->workspace_bytes(op->kind, &c.attrs, 0) : 0;
            cuda_case_run(&c);
            case_compare_all(&c, op->bound);
            case_close(&c);
        }
}

/* Runs a group of tests: the body of main. */
#define CUDA_CASE_MAIN(tests)                                                                      \
    int main(void)                                                                                 \
    {                                                                                              \
        if (getenv("SL_TEST_SEED"))                                                                \
            test_seed = strtoull(getenv("SL_TEST_SEED"), NULL, 0);                                 \
        print_message("seed %llu (SL_TEST_SEED)\n", (unsigned long long)test_seed);                \
        if (sl_workers_open(2, &case_workers) != SL_OK)                                            \
            return 1;                                                                              \
        if (!gpu_place_open())                                                                     \
            return GPU_PLACE_SKIP;                                                                 \
        const int failures = cmocka_run_group_tests(tests, NULL, NULL);                            \
        gpu_place_close();                                                                         \
        sl_workers_close(case_workers);                                                            \
        return failures;                                                                           \
    }

#endif
