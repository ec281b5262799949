/* What could be wrong in attention by cuDNN: an engine is taken whose sums vary or that wants more
 * workspace than was planned, a graph that does not fit together, a pointer of another tensor, a
 * descriptor that is left open or goes too early, our kernels computing in silence what was asked
 * of it, or it computing unasked. The stand-in of cudnn_standin.h checks every call, and computes
 * what the graph says; here its results are held against the cpu's kernels, in wide bounds (the
 * bodies of the attention tests run over it too, in narrow ones: gpu.cmake). */
#include <cudnn_graph.h>

#include "attention_case.h"
#include "cublaslt.h"
#include "cudnn_standin.h"
#include "kernels/cuda/library.h"

static sl_kernel_library *library;

static int open_library(void **state)
{
    (void)state;
    standin_cudnn_reset();
    setenv("SLUICE_ATTENTION", "cudnn", 1);
    return sl_library_open(0, &library) == SL_OK ? 0 : 1;
}

static int close_library(void **state)
{
    (void)state;
    const char *fault = NULL;
    sl_library_close(library);
    unsetenv("SLUICE_ATTENTION");
    library = NULL;
    if (standin_cudnn_faults(&fault) > 0)
        print_error("%s\n", fault);
    return standin_cudnn_faults(NULL) > 0 || standin_cudnn_live() > 0;
}

static sl_op_attrs attrs_of(sl_type type, attention_shape s)
{
    return (sl_op_attrs){.type = (uint16_t)type,
                         .batch = s.batch,
                         .seq = s.seq,
                         .heads = s.heads,
                         .in = s.heads * s.width};
}

static bool is_covered(const sl_op_attrs *attrs)
{
    const uint64_t width = attrs->in / attrs->heads;
    return attrs->type != SL_TYPE_FP32 && width % 8 == 0 && width <= 256 && attrs->seq > 1;
}

/* ---- choosing ---- */

static void shapes_when_prepared_are_chosen_for_once(void **state)
{
    (void)state;
    uint64_t chosen = 0;
    for (int type = 0; type < SL_TYPE_COUNT; type++)
        for (int round = 0; round < ATTENTION_SHAPES; round++) {
            const sl_op_attrs attrs = attrs_of((sl_type)type, attention_shape_of(round));
            assert_int_equal(sl_library_prepare(library, SL_OP_ATTENTION, &attrs), SL_OK);
            assert_int_equal(sl_library_prepare(library, SL_OP_ATTENTION_BACKWARD, &attrs), SL_OK);
            const uint64_t calls = standin_cudnn_calls();
            sl_op_attrs cached = attrs;
            cached.cache_rows = attrs.seq;
            assert_int_equal(sl_library_prepare(library, SL_OP_ATTENTION_CACHED, &cached), SL_OK);
            assert_int_equal(sl_library_prepare(library, SL_OP_ATTENTION, &attrs), SL_OK);
            assert_int_equal(standin_cudnn_calls(), calls);
            chosen += is_covered(&attrs) ? 2 : 0;
        }
    for (uint64_t i = 0; i < chosen; i++)
        assert_non_null(strstr(sl_library_choice(library, i), ": cuDNN's engine 2, workspace "));
    assert_null(sl_library_choice(library, chosen));
    assert_string_equal(sl_library_choice(library, 0),
                        "attention 2x2, 2 heads of 8 bf16: "
                        "cuDNN's engine 2, workspace 256, knob 24 7");
}

/* Lines of products come first. */
static void choices_when_there_are_products_too_are_all_told(void **state)
{
    (void)state;
    const sl_op_attrs attention = attrs_of(SL_TYPE_BF16, (attention_shape){1, 16, 2, 16});
    const sl_op_attrs linear = {.type = SL_TYPE_BF16, .row_count = 16, .in = 32, .out = 64};
    assert_int_equal(sl_library_prepare(library, SL_OP_ATTENTION, &attention), SL_OK);
    assert_int_equal(sl_library_prepare(library, SL_OP_LINEAR, &linear), SL_OK);
    uint64_t count = 0;
    while (sl_library_choice(library, count) != NULL)
        count++;
    assert_true(count >= 2);
    assert_non_null(strstr(sl_library_choice(library, 0), "algorithm"));
    assert_non_null(strstr(sl_library_choice(library, count - 1), "attention 1x16"));
}

static void workspace_when_asked_for_holds_what_plans_want(void **state)
{
    (void)state;
    const sl_op_attrs attrs = attrs_of(SL_TYPE_BF16, (attention_shape){2, 130, 3, 64});
    const uint64_t dots = (2 * 3 * 130 * 4 + 255) / 256 * 256;
    assert_int_equal(sl_cudnn_workspace_bytes(SL_OP_ATTENTION, &attrs), 65536);
    assert_int_equal(sl_cudnn_workspace_bytes(SL_OP_ATTENTION_BACKWARD, &attrs),
                     dots + 2 * 2 * 3 * 256 * 256 + 65536);
    assert_int_equal(sl_cuda_attention_workspace_bytes(SL_OP_ATTENTION_BACKWARD, &attrs, 0),
                     sl_cudnn_workspace_bytes(SL_OP_ATTENTION_BACKWARD, &attrs));
    assert_int_equal(sl_cudnn_workspace_bytes(SL_OP_ATTENTION_CACHED, &attrs), 0);
    sl_op_attrs other = attrs;
    other.type = SL_TYPE_FP32;
    assert_int_equal(sl_cudnn_workspace_bytes(SL_OP_ATTENTION, &other), 0);
    other = attrs;
    other.heads = 16; /* of 12 */
    assert_int_equal(sl_cudnn_workspace_bytes(SL_OP_ATTENTION, &other), 0);
    other = attrs;
    other.seq = 1;
    assert_int_equal(sl_cudnn_workspace_bytes(SL_OP_ATTENTION, &other), 0);
    other = attrs;
    other.batch = UINT64_MAX / 4;
    assert_int_equal(sl_cudnn_workspace_bytes(SL_OP_ATTENTION_BACKWARD, &other), 0);
}

/* ---- running ---- */

typedef struct world {
    sl_op_attrs attrs;
    void *qkv, *y, *lse, *dy, *dqkv, *workspace; /* in the order of the gradient's operands */
} world;

static void *room(uint64_t bytes)
{
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 256, bytes), 0);
    memset(memory, 0xff, bytes);
    return memory;
}

/* Of either op, here or there. */
static uint64_t workspace_bytes(const sl_op_attrs *attrs)
{
    const uint32_t workers = sl_workers_count(case_workers);
    uint64_t most = 256;
    for (int i = 0; i < 4; i++) {
        const sl_kernel_table *table = i % 2 ? sl_kernels_cuda() : sl_kernels_cpu();
        const sl_op_kind kind = i / 2 ? SL_OP_ATTENTION : SL_OP_ATTENTION_BACKWARD;
        const uint64_t bytes = sl_kernels_workspace_bytes(table, kind, attrs, workers);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static world open_world(sl_type type, attention_shape s, uint64_t seed)
{
    const uint64_t in = s.heads * s.width, rows = s.batch * s.seq;
    world w = {.attrs = attrs_of(type, s)};
    w.qkv = room(rows * 3 * in * 2);
    w.y = room(rows * in * 2);
    w.lse = room(rows * s.heads * 4);
    w.dy = room(rows * in * 2);
    w.dqkv = room(rows * 3 * in * 2);
    w.workspace = room(workspace_bytes(&w.attrs));
    for (uint64_t i = 0; i < rows * 3 * in; i++)
        case_store(type, w.qkv, i, (double)draw_normal(&seed));
    for (uint64_t i = 0; i < rows * in; i++)
        case_store(type, w.dy, i, (double)draw_normal(&seed));
    return w;
}

static void close_world(world *w)
{
    void *all[] = {w->qkv, w->y, w->lse, w->dy, w->dqkv, w->workspace};
    for (int i = 0; i < 6; i++)
        free(all[i]);
}

static sl_status run_op(world *w, sl_op_kind kind, const sl_kernel_table *table)
{
    const bool is_cuda = table == sl_kernels_cuda();
    const sl_kernel_call call = {.attrs = &w->attrs,
                                 .operand = {w->qkv, w->y, w->lse, w->dy, w->dqkv},
                                 .workspace = w->workspace,
                                 .workers = is_cuda ? NULL : case_workers,
                                 .library = is_cuda ? library : NULL};
    if (is_cuda)
        SL_TRY(table->prepare(library, kind, &w->attrs));
    return table->row[kind].run(&call);
}

static void compare(sl_type type, const void *got, const void *want, uint64_t count, double within)
{
    for (uint64_t i = 0; i < count; i++) {
        const double a = case_load(type, got, i), b = case_load(type, want, i);
        if (!(fabs(a - b) <= within * (1 + fabs(b))))
            fail_msg("type %d, element %llu of %llu: got %g, want %g", (int)type,
                     (unsigned long long)i, (unsigned long long)count, a, b);
    }
}

/* Both ops, from each other's hands too, and `executed` of them by cuDNN. */
static void check_both(sl_type type, attention_shape s, uint64_t executed)
{
    world cpu = open_world(type, s, 11), cuda = open_world(type, s, 11);
    const uint64_t in = s.heads * s.width, rows = s.batch * s.seq;
    const uint64_t before = standin_cudnn_executed();
    const double within = type == SL_TYPE_BF16 ? 0.04 : 0.005; /* some units of values near 1 */
    for (int i = 0; i < 2; i++) {
        const sl_op_kind kind = i == 0 ? SL_OP_ATTENTION : SL_OP_ATTENTION_BACKWARD;
        assert_int_equal(run_op(&cpu, kind, sl_kernels_cpu()), SL_OK);
        assert_int_equal(run_op(&cuda, kind, sl_kernels_cuda()), SL_OK);
    }
    assert_int_equal(standin_cudnn_executed() - before, executed);
    compare(type, cuda.y, cpu.y, rows * in, within);
    compare(SL_TYPE_FP32, cuda.lse, cpu.lse, rows * s.heads, 1e-5);
    compare(type, cuda.dqkv, cpu.dqkv, rows * 3 * in, within * 2);
    close_world(&cpu);
    close_world(&cuda);
}

static void attention_when_asked_for_is_by_cudnn(void **state)
{
    (void)state;
    check_both(SL_TYPE_BF16, (attention_shape){2, 37, 3, 16}, 2);
    check_both(SL_TYPE_FP16, (attention_shape){1, 70, 2, 64}, 2);
    check_both(SL_TYPE_BF16, (attention_shape){1, 20, 1, 12}, 0); /* a width of no whole vectors */
}

/* The first engine's sums vary, the second wants too much or too little workspace. */
static void engines_when_they_break_a_promise_are_not_taken(void **state)
{
    (void)state;
    static const char *const why[] = {"names no engine", "promises no repeatable sums",
                                      "wants more workspace than was planned"};
    for (int count = 0; count < 3; count++) {
        const attention_shape s = {1, 33 + (uint64_t)count, 2, 16};
        standin_cudnn_name(count);
        check_both(SL_TYPE_BF16, s, 0);
        assert_non_null(strstr(sl_library_choice(library, 2 * (uint64_t)count), why[count]));
        assert_non_null(strstr(sl_library_choice(library, 2 * (uint64_t)count), "own kernel"));
    }
    assert_non_null(strstr(sl_library_choice(library, 5), "would add up dq in place"));
}

static void attention_when_not_prepared_is_refused(void **state)
{
    (void)state;
    world w = open_world(SL_TYPE_BF16, (attention_shape){1, 9, 1, 8}, 3);
    const sl_kernel_call call = {.attrs = &w.attrs,
                                 .operand = {w.qkv, w.y, w.lse, w.dy, w.dqkv},
                                 .workspace = w.workspace,
                                 .library = library};
    assert_int_equal(sl_cuda_attention(&call), SL_ERROR_INTERNAL);
    assert_int_equal(sl_cuda_attention_backward(&call), SL_ERROR_INTERNAL);
    close_world(&w);
}

/* ---- failures ---- */

/* Whatever call fails while it is chosen, our own kernels compute, and nothing stays open. */
static void choosing_when_a_call_fails_leaves_the_op_to_us(void **state)
{
    (void)state;
    const sl_op_attrs attrs = attrs_of(SL_TYPE_BF16, (attention_shape){1, 16, 1, 8});
    uint64_t calls = 1;
    for (uint64_t nth = 1; nth <= calls; nth++) {
        sl_cudnn *cudnn = NULL;
        assert_int_equal(sl_cudnn_open(&cudnn), SL_OK);
        const uint64_t live = standin_cudnn_live(), before = standin_cudnn_calls();
        standin_cudnn_fail_call(nth);
        assert_int_equal(sl_cudnn_prepare(cudnn, SL_OP_ATTENTION_BACKWARD, &attrs), SL_OK);
        calls = nth == 1 ? 1000 : calls;
        if (standin_cudnn_calls() - before < nth) /* it did not come to that call */
            calls = 0;
        else if (strstr(sl_cudnn_text(cudnn, 0), "own kernel") != NULL)
            assert_int_equal(standin_cudnn_live(), live);
        sl_cudnn_close(cudnn);
        assert_int_equal(standin_cudnn_live(), 1); /* the handle of `library` */
    }
    assert_int_equal(calls, 0);
}

static void attention_when_a_call_fails_fails(void **state)
{
    (void)state;
    world w = open_world(SL_TYPE_BF16, (attention_shape){1, 9, 1, 8}, 3);
    assert_int_equal(run_op(&w, SL_OP_ATTENTION, sl_kernels_cuda()), SL_OK);
    const uint64_t before = standin_cudnn_calls(), live = standin_cudnn_live();
    assert_int_equal(run_op(&w, SL_OP_ATTENTION, sl_kernels_cuda()), SL_OK);
    const uint64_t calls = standin_cudnn_calls() - before;
    assert_true(calls >= 6);
    for (uint64_t nth = 1; nth <= calls; nth++) {
        standin_cudnn_fail_call(nth);
        assert_int_equal(run_op(&w, SL_OP_ATTENTION, sl_kernels_cuda()), SL_ERROR_SYSTEM);
        assert_non_null(strstr(sl_status_message(), "attention 1x9"));
        assert_int_equal(standin_cudnn_live(), live);
    }
    close_world(&w);
}

/* ---- what the environment asks for ---- */

static void cudnn_when_not_asked_for_is_left_alone(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "", "own"};
    const sl_op_attrs attrs = attrs_of(SL_TYPE_BF16, (attention_shape){2, 130, 3, 64});
    standin_cudnn_reset();
    for (int i = 0; i < 3; i++) {
        unsetenv("SLUICE_ATTENTION");
        if (names[i] != NULL)
            setenv("SLUICE_ATTENTION", names[i], 1);
        assert_int_equal(sl_library_open(0, &library), SL_OK);
        assert_null(library->cudnn);
        assert_string_equal(sl_cudnn_description(), "attention by own kernels");
        assert_int_equal(sl_cuda_attention_workspace_bytes(SL_OP_ATTENTION_BACKWARD, &attrs, 0),
                         3328);
        check_both(SL_TYPE_BF16, (attention_shape){1, 17, 1, 8}, 0);
        sl_library_close(library);
    }
    assert_int_equal(standin_cudnn_calls(), 0);
    unsetenv("SLUICE_ATTENTION");
}

static void name_when_unknown_is_refused_with_both(void **state)
{
    (void)state;
    standin_blas_reset();
    setenv("SLUICE_ATTENTION", "CUDNN", 1);
    assert_int_equal(sl_library_open(0, &library), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "\"CUDNN\": it may be own or cudnn"));
    unsetenv("SLUICE_ATTENTION");
    assert_int_equal(standin_blas_live(), 0);
}

static void library_when_missing_or_shut_is_no_failure(void **state)
{
    (void)state;
    standin_cudnn_reset();
    setenv("SLUICE_ATTENTION", "cudnn", 1);
    for (int i = 0; i < 2; i++) {
        standin_cudnn_hide(i == 0);
        if (i == 1)
            standin_cudnn_fail_call(1);
        assert_int_equal(sl_library_open(0, &library), SL_OK);
        assert_null(library->cudnn);
        check_both(SL_TYPE_BF16, (attention_shape){1, 17, 1, 8}, 0);
        sl_library_close(library);
    }
    assert_string_equal(sl_cudnn_description(), "cuDNN for tests");
    unsetenv("SLUICE_ATTENTION");
    assert_int_equal(standin_cudnn_live(), 0);
}

/* ---- the stand-in itself: what no correct caller does ---- */

static void standin_when_misused_counts_a_fault(void **state)
{
    (void)state;
    const int64_t four[] = {1, 1, 1, 1};
    cudnnBackendDescriptor_t tensor, graph;
    standin_cudnn_reset();
    assert_int_equal(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor), 0);
    assert_int_equal(cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph),
                     0);
    assert_int_equal(
        cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, four),
        0);
    assert_int_equal(standin_cudnn_faults(NULL), 0);
    assert_int_not_equal(cudnnBackendFinalize(tensor), 0); /* much is missing */
    assert_int_not_equal(
        cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 3, four), 0);
    assert_int_not_equal(
        cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_BOOLEAN, 4, four),
        0);
    assert_int_not_equal(cudnnBackendSetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS,
                                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &tensor),
                         0); /* not final */
    assert_int_equal(standin_cudnn_faults(NULL), 4);
    cudnnBackendDestroyDescriptor(tensor);
    cudnnBackendDestroyDescriptor(graph);
    cudnnBackendDestroyDescriptor(graph);
    assert_int_equal(standin_cudnn_faults(NULL), 5);
    assert_int_equal(standin_cudnn_live(), 0);
}

#define WITH_CUDNN(test) cmocka_unit_test_setup_teardown(test, open_library, close_library)

static const struct CMUnitTest tests[] = {
    WITH_CUDNN(shapes_when_prepared_are_chosen_for_once),
    WITH_CUDNN(choices_when_there_are_products_too_are_all_told),
    WITH_CUDNN(workspace_when_asked_for_holds_what_plans_want),
    WITH_CUDNN(attention_when_asked_for_is_by_cudnn),
    WITH_CUDNN(engines_when_they_break_a_promise_are_not_taken),
    WITH_CUDNN(attention_when_not_prepared_is_refused),
    WITH_CUDNN(choosing_when_a_call_fails_leaves_the_op_to_us),
    WITH_CUDNN(attention_when_a_call_fails_fails),
    cmocka_unit_test(cudnn_when_not_asked_for_is_left_alone),
    cmocka_unit_test(name_when_unknown_is_refused_with_both),
    cmocka_unit_test(library_when_missing_or_shut_is_no_failure),
    cmocka_unit_test(standin_when_misused_counts_a_fault),
};

CUDA_CASE_MAIN(tests)
