/* The self-test over the stand-in of a GPU. What could be wrong: a right device is blamed; a kernel
 * that is wrong by a little is not found, or another one is named; what goes wrong only beside
 * other work, or behind the driver's answers, is found by no part; an op is met by no program. */
#define _GNU_SOURCE /* usleep */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "sanitizer_share.h"
#include "selftest/products.h"
#include "selftest/programs.h"
#include "selftest/reach.h"
#include "selftest/selftest.h"
#include "selftest/transfers.h"
#include "skip.h"
#include "standin.h"
#include "stream_order.h"

/* Little of each part: here all is slow. */
static sl_selftest_args choose_small(void)
{
    sl_selftest_args args = sl_selftest_defaults(SL_DEVICE_CUDA, 0);
    args.is_small = true;
    args.host_bytes = 1 << 20;
    args.border_bytes = 64 << 10; /* the stand-in's pieces */
    args.rounds = 40;
    args.repeats = 2;
    return args;
}

static void selftest_when_the_device_is_right_then_all_parts_pass(void **state)
{
    (void)state;
    sl_proof_part parts[SL_PROOF_PARTS] = {{0}};
    sl_selftest_args args = choose_small();
    args.seconds = 600;
    args.disk_directory = ".";
    args.reach_elements = 1 << 20;
    if (SANITIZER_SHARE > 1) /* the first of them, and those that follow them */
        parts[SL_PROOF_KERNELS].done = sl_proof_program_count() - 3;
    assert_int_equal(sl_selftest_run(&args, parts), SL_OK);
    for (int i = 0; i < SL_PROOF_PARTS; i++) {
        print_message("%s: %.2f s: %s\n", sl_proof_part_name((sl_proof_kind)i), parts[i].seconds,
                      parts[i].text);
        assert_int_equal(parts[i].outcome, SL_PROOF_PASSED);
    }
}

static bool has_op(const sl_program *program, sl_op_kind kind)
{
    for (uint32_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == kind)
            return true;
    return false;
}

/* An op with a kernel that no program has is one that nobody tests. */
static void programs_when_together_then_have_each_op_that_has_a_kernel(void **state)
{
    (void)state;
    bool is_met[SL_OP_COUNT] = {false};
    for (uint32_t i = 0; i < sl_proof_program_count(); i++) {
        sl_proof_program it;
        assert_int_equal(sl_proof_program_open(i, &it), SL_OK);
        for (int kind = 0; kind < SL_OP_COUNT; kind++)
            is_met[kind] |= !it.is_large && has_op(it.program, (sl_op_kind)kind);
        sl_proof_program_close(&it);
    }
    uint32_t missed = 0;
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        if (sl_kernels_cuda()->row[kind].run != NULL && !is_met[kind])
            missed +=
                (uint32_t)printf("no program has %s\n", sl_op_info_of((sl_op_kind)kind)->name);
    assert_int_equal(missed, 0);
}

/* ---- planted faults: a kernel that does a little less than it should ---- */

static sl_timed_device *cpu, *device;
static sl_kernel right;
static sl_op_kind planted;

/* Leaves out the last rows, elements or heads, as a launch with too small a grid does. */
static sl_status run_less(const sl_kernel_call *call)
{
    sl_op_attrs attrs = *call->attrs;
    sl_kernel_call less = *call;
    less.attrs = &attrs;
    if (attrs.row_count > 1)
        attrs.row_count--;
    else if (attrs.element_count > SL_BLOCK_ELEMENTS)
        attrs.element_count -= SL_BLOCK_ELEMENTS;
    else if (attrs.element_count > 1)
        attrs.element_count--;
    else
        attrs.batch--;
    return right(&less);
}

/* Another number than the one that was asked for. */
static sl_status run_other(const sl_kernel_call *call)
{
    sl_kernel_call other = *call;
    sl_op_attrs attrs = *call->attrs;
    other.attrs = &attrs;
    if (!sl_op_info_of(planted)->updates_chunk) {
        attrs.scale *= 1.5f;
        attrs.dropout_site ^= 1;
        attrs.adds_output ^= 1;
    }
    other.scalars.learning_rate *= 1.001f;
    other.scalars.clip *= 0.5f;
    other.scalars.momentum *= 0.99f;
    other.scalars.muon_momentum *= 0.99f;
    return right(&other);
}

/* Reads its first operand from a place further on. */
static sl_status run_beside(const sl_kernel_call *call)
{
    sl_kernel_call other = *call;
    other.operand[0] = (char *)call->operand[0] + 64;
    return right(&other);
}

/* The same of the second, where the first may be absent. */
static sl_status run_second(const sl_kernel_call *call)
{
    sl_kernel_call other = *call;
    other.operand[1] = (char *)call->operand[1] + 64;
    return right(&other);
}

/* Leaves out its work. */
static sl_status run_nothing(const sl_kernel_call *call)
{
    (void)call;
    return SL_OK;
}

/* An epilogue without its operand: the bias of a product, the argument of a GELU. */
static sl_status run_without_bias(const sl_kernel_call *call)
{
    sl_kernel_call other = *call;
    other.operand[2] = NULL;
    return right(&other);
}

static sl_status run_without_gelu(const sl_kernel_call *call)
{
    sl_kernel_call other = *call;
    other.operand[3] = NULL;
    return right(&other);
}

/* What programs with the op find; "" nothing. */
static void find_fault(sl_op_kind kind, sl_fault *out_fault)
{
    *out_fault = (sl_fault){0};
    for (uint32_t i = 0; i < sl_proof_program_count() && !*out_fault->text; i++) {
        sl_proof_program it;
        uint64_t ops;
        assert_int_equal(sl_proof_program_open(i, &it), SL_OK);
        const sl_lockstep_args args = {cpu, device, it.program, it.layout, it.vocab,
                                       7,   0,      0,          &kind};
        if (!it.is_large && has_op(it.program, kind))
            if (sl_lockstep_run(&args, out_fault, &ops) != SL_OK)
                fail_msg("%s: %s", it.name, sl_status_message());
        sl_proof_program_close(&it);
    }
}

static void fault_when_planted_in_a_kernel_then_its_op_is_named(void **state)
{
    (void)state;
    static const struct {
        sl_op_kind kind;
        sl_kernel run;
    } faults[] = {
        {SL_OP_EMBED_POSITION, run_less},
        {SL_OP_EMBED_TOKENS, run_less},
        {SL_OP_LAYERNORM, run_less},
        {SL_OP_RMSNORM, run_less},
        {SL_OP_LINEAR, run_beside},
        {SL_OP_ATTENTION, run_less},
        {SL_OP_GELU, run_less},
        {SL_OP_SWIGLU, run_less},
        {SL_OP_ROTARY, run_less},
        {SL_OP_HEAD_LOGITS, run_beside},
        {SL_OP_HEAD_STATS, run_less},
        {SL_OP_HEAD_LOSS, run_less},
        {SL_OP_HEAD_LOGITS_BACKWARD, run_other},
        {SL_OP_HEAD_INPUT_BACKWARD, run_beside},
        {SL_OP_HEAD_WEIGHT_BACKWARD, run_beside},
        {SL_OP_LINEAR_INPUT_BACKWARD, run_beside},
        {SL_OP_LINEAR_WEIGHT_BACKWARD, run_second},
        {SL_OP_SWIGLU_BACKWARD, run_less},
        {SL_OP_ATTENTION_BACKWARD, run_less},
        {SL_OP_LAYERNORM_BACKWARD, run_less},
        {SL_OP_RMSNORM_BACKWARD, run_less},
        {SL_OP_EMBED_TOKENS_BACKWARD, run_less},
        {SL_OP_EMBED_POSITION_BACKWARD, run_beside},
        {SL_OP_ROUND, run_less},
        {SL_OP_DROPOUT, run_other},
        {SL_OP_BLOCK_NORM, run_other},
        {SL_OP_NORM_FINISH, run_other},
        {SL_OP_ADAMW, run_other},
        {SL_OP_SGD, run_other},
        {SL_OP_LION, run_other},
        {SL_OP_ATTENTION_CACHED, run_less},
        {SL_OP_SCALE, run_other},
        {SL_OP_ADD, run_nothing},
        {SL_OP_CLEAR_PADDING, run_nothing},
        {SL_OP_MOMENTUM, run_other},
        {SL_OP_ORTHOGONALISE, run_other},
        {SL_OP_APPLY, run_other},
        {SL_OP_LINEAR, run_without_bias},
        {SL_OP_LINEAR_INPUT_BACKWARD, run_without_gelu},
    };
    sl_kernel_table *table = malloc(sizeof *table);
    assert_non_null(table);
    assert_int_equal(sl_timed_device_open(SL_DEVICE_CPU, 0, NULL, 2, &cpu), SL_OK);
    assert_int_equal(sl_timed_device_open(SL_DEVICE_CUDA, 0, NULL, 1, &device), SL_OK);
    const sl_kernel_table *whole = device->kernels;
    uint32_t missed = 0;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i += SANITIZER_SHARE) {
        sl_fault fault;
        const char *name = sl_op_info_of(faults[i].kind)->name;
        *table = *whole;
        planted = faults[i].kind;
        right = whole->row[planted].run;
        table->row[faults[i].kind].run = faults[i].run;
        device->kernels = table;
        find_fault(faults[i].kind, &fault);
        if (strncmp(fault.text, name, strlen(name)) != 0 || fault.text[strlen(name)] != ' ')
            missed += (uint32_t)printf("%s: found \"%s\"\n", name, fault.text);
    }
    device->kernels = whole;
    sl_timed_device_close(device);
    sl_timed_device_close(cpu);
    free(table);
    assert_int_equal(missed, 0);
}

/* ---- planted faults: a device that takes orders lightly, or gives wrong answers ---- */

static const sl_device_ops *whole_ops;

static sl_status wait_for_nothing(sl_device_event *event, sl_device_stream *stream, uint64_t tag)
{
    (void)event, (void)stream, (void)tag;
    return SL_OK;
}

/* A copy across a border of registered memory ends there. */
static sl_status copy_to_the_border(sl_device_stream *stream, uint64_t tag, void *to,
                                    const void *from, uint64_t bytes)
{
    const bool is_large = bytes > 8192;
    return whole_ops->copy(stream, tag, to, from, bytes - is_large);
}

static sl_status copy_one_more(sl_device_stream *stream, uint64_t tag, void *to, const void *from,
                               uint64_t bytes)
{
    return whole_ops->copy(stream, tag, to, from, bytes + (bytes == 7));
}

/* Odd places are rounded down. */
static sl_status copy_from_even(sl_device_stream *stream, uint64_t tag, void *to, const void *from,
                                uint64_t bytes)
{
    return whole_ops->copy(stream, tag, to, (const char *)from - ((uintptr_t)from & 1), bytes);
}

/* As a driver does of a copy across two registrations. */
static sl_status refuse_copy(sl_device_stream *stream, uint64_t tag, void *to, const void *from,
                             uint64_t bytes)
{
    if (bytes == 8193)
        return sl_status_fail(SL_ERROR_SYSTEM, "cudaMemcpyAsync: invalid argument");
    return whole_ops->copy(stream, tag, to, from, bytes);
}

static sl_status forget_copy(sl_device_stream *stream, uint64_t tag, void *to, const void *from,
                             uint64_t bytes)
{
    static uint32_t count;
    return bytes == 4 << 16 && ++count % 17 == 0 ? SL_OK
                                                 : whole_ops->copy(stream, tag, to, from, bytes);
}

/* Each eighth call forgets its last row; each call on the second stream has another bias. */
static sl_status run_less_at_times(const sl_kernel_call *call)
{
    static uint32_t count;
    return ++count % 8 == 0 ? run_less(call) : right(call);
}

static void *second_stream;

static sl_status run_other_beside(const sl_kernel_call *call)
{
    return call->stream == second_stream ? run_without_bias(call) : right(call);
}

static sl_status run_gelu_beside(const sl_kernel_call *call)
{
    return call->stream == second_stream ? run_without_gelu(call) : right(call);
}

/* Reads the row that an index of 16 bits finds. */
static sl_status run_short_of_reach(const sl_kernel_call *call)
{
    sl_op_attrs attrs = *call->attrs;
    sl_kernel_call other = *call;
    attrs.first_id = 1;
    other.attrs = &attrs;
    return right(&other);
}

typedef enum finder { ORDER, COPIES, REPEATS, PRODUCTS, REACH } finder;

static sl_status find_by(finder part, sl_fault *fault)
{
    sl_proof_program it;
    uint64_t count;
    uint32_t rounds;
    const sl_order_args order = {device, 60, 0};
    const sl_products_args products = {device, 2, 0};
    switch (part) {
    case ORDER:
        return sl_transfers_prove_order(&order, fault, &rounds);
    case COPIES:
        return sl_transfers_prove_borders(device, 1 << 20, 64 << 10, fault);
    case PRODUCTS:
        return sl_products_prove(&products, fault, &count);
    case REACH:
        return sl_reach_prove(device, 1 << 20, fault);
    case REPEATS:
        break;
    }
    assert_int_equal(sl_proof_program_open(0, &it), SL_OK);
    const sl_lockstep_args args = {cpu, device, it.program, it.layout, it.vocab, 7, 9, 0, &planted};
    const sl_status status = sl_lockstep_run(&args, fault, &count);
    sl_proof_program_close(&it);
    return status;
}

static void fault_when_planted_in_a_device_then_its_part_finds_it(void **state)
{
    (void)state;
    typedef sl_status copier(sl_device_stream *, uint64_t, void *, const void *, uint64_t);
    static const struct {
        finder part;
        bool forgets_waits;
        copier *copy; /* or */
        sl_op_kind kind;
        sl_kernel run;
        const char *found; /* in the text, of the fault or of the failure */
    } faults[] = {
        {ORDER, true, NULL, 0, NULL, "overtook"},
        {ORDER, false, forget_copy, 0, NULL, "overtook"},
        {ORDER, false, NULL, SL_OP_ADD, run_less_at_times, "overtook"},
        {COPIES, false, copy_to_the_border, 0, NULL, "came back as another one"},
        {COPIES, false, copy_one_more, 0, NULL, "came back as another one"},
        {COPIES, false, copy_from_even, 0, NULL, "came back as another one"},
        {COPIES, false, refuse_copy, 0, NULL, "invalid argument"},
        {REPEATS, false, NULL, SL_OP_LAYERNORM, run_less_at_times, "layernorm in"},
        {REPEATS, false, NULL, SL_OP_ATTENTION_BACKWARD, run_less_at_times,
         "attention_backward in"},
        {REPEATS, false, NULL, SL_OP_ADAMW, run_less_at_times, "adamw in"},
        {PRODUCTS, false, NULL, SL_OP_LINEAR, run_other_beside, "linear in"},
        {PRODUCTS, false, NULL, SL_OP_LINEAR_INPUT_BACKWARD, run_gelu_beside,
         "linear_input_backward in"},
        {REACH, false, NULL, SL_OP_EMBED_TOKENS, run_short_of_reach, "embed_tokens in"},
    };
    assert_int_equal(sl_timed_device_open(SL_DEVICE_CPU, 0, NULL, 2, &cpu), SL_OK);
    assert_int_equal(sl_timed_device_open(SL_DEVICE_CUDA, 0, NULL, 1, &device), SL_OK);
    sl_device_ops ops;
    sl_kernel_table *table = malloc(sizeof *table);
    const sl_kernel_table *whole = device->kernels;
    whole_ops = device->ops;
    second_stream = whole_ops->stream_native(device->streams[1].stream);
    uint32_t missed = 0;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        sl_fault fault = {0};
        ops = *whole_ops;
        *table = *whole;
        device->ops = &ops;
        device->kernels = table;
        if (faults[i].forgets_waits)
            ops.event_wait = wait_for_nothing;
        if (faults[i].copy)
            ops.copy = faults[i].copy;
        if (faults[i].run) {
            planted = faults[i].kind;
            right = whole->row[planted].run;
            table->row[planted].run = faults[i].run;
        }
        sl_status status = SL_OK;
        for (int tries = 0; tries < 50 && status == SL_OK && !*fault.text; tries++) /* by chance */
            status = find_by(faults[i].part, &fault);
        const char *found = status == SL_OK ? fault.text : sl_status_message();
        if (!strstr(found, faults[i].found))
            missed += (uint32_t)printf("fault %zu: found \"%s\"\n", i, found);
    }
    standin_forget_order_faults(); /* the stand-in saw them too */
    device->ops = whole_ops;
    device->kernels = whole;
    free(table);
    sl_timed_device_close(device);
    sl_timed_device_close(cpu);
    assert_int_equal(missed, 0);
}

/* ---- planted faults: the driver's answers ---- */

/* One part alone, of a device that standin_reset has made. */
static sl_proof_part test_part(sl_proof_kind kind)
{
    sl_proof_part parts[SL_PROOF_PARTS] = {{0}};
    sl_selftest_args args = choose_small();
    for (int i = 0; i < SL_PROOF_PARTS; i++)
        parts[i].outcome = i == (int)kind ? SL_PROOF_NOT_TESTED : SL_PROOF_PASSED;
    if (sl_selftest_run(&args, parts) != SL_OK)
        snprintf(parts[kind].text, sizeof parts[kind].text, "%s", sl_status_message());
    return parts[kind];
}

static void answer_when_of_a_wrong_driver_then_its_part_says_so(void **state)
{
    (void)state;
    standin_machine machine = standin_default();
    static const int images[] = {75, 86, 100};
    for (int i = 0; i < 3; i++) { /* an sm_90 runs none of them */
        machine.image = images[i];
        standin_reset(&machine);
        const sl_proof_part image = test_part(SL_PROOF_IMAGE);
        assert_int_equal(image.outcome, SL_PROOF_FAILED);
        assert_non_null(strstr(image.text, "on a GPU of sm_90"));
    }
    machine = standin_default();
    machine.major = 8;
    machine.minor = 6;
    machine.image = 86; /* of text: the build has no code for it */
    standin_reset(&machine);
    const sl_proof_part translated = test_part(SL_PROOF_IMAGE);
    assert_int_equal(translated.outcome, SL_PROOF_PASSED);
    assert_non_null(strstr(translated.text, "the driver translated"));
    machine = standin_default();
    machine.spoils = 40;
    standin_reset(&machine);
    const sl_proof_part spoiled = test_part(SL_PROOF_PLACEMENTS);
    assert_int_equal(spoiled.outcome, SL_PROOF_FAILED);
    assert_non_null(strstr(spoiled.text, "other bits than under --policy device"));
    machine = standin_default();
    machine.device_bytes = 34 << 20;
    standin_reset(&machine);
    assert_int_equal(test_part(SL_PROOF_PLACEMENTS).outcome, SL_PROOF_NOT_TESTED);
    machine = standin_default();
    standin_reset(&machine);
    standin_fail_call("cudaEventRecord", 30, 719 /* cudaErrorLaunchFailure */);
    const sl_proof_part failed = test_part(SL_PROOF_ORDER);
    assert_int_equal(failed.outcome, SL_PROOF_FAILED);
    assert_non_null(strstr(failed.text, "cudaEventRecord"));
    standin_reset(&machine);
}

/* ---- planted faults: work that does not end ---- */

static _Atomic bool is_released;

static sl_status never_end(void *arguments)
{
    (void)arguments;
    while (!is_released)
        (void)usleep(1000);
    return SL_OK;
}

/* Kernels run; what a host stream is to call hangs. */
static sl_status launch_and_hang(sl_device_stream *stream, uint64_t tag, sl_queue_function function,
                                 const void *arguments, uint32_t bytes)
{
    const bool is_host = whole_ops->stream_native(stream) == NULL;
    return whole_ops->launch(stream, tag, is_host ? never_end : function, arguments, bytes);
}

/* Last: what hangs is abandoned, with all that it has. */
static void work_when_it_does_not_end_then_is_given_up(void **state)
{
    (void)state;
    sl_fault fault;
    uint32_t rounds;
    if (SANITIZER_SHARE > 1)
        skip_because("sanitizers see the memory that is abandoned");
    assert_int_equal(sl_timed_device_open(SL_DEVICE_CUDA, 0, NULL, 1, &device), SL_OK);
    sl_device_ops ops = *(whole_ops = device->ops);
    ops.launch = launch_and_hang;
    device->ops = &ops;
    device->give_up_ns = sl_clock_now_ns() + 300000000;
    const sl_order_args args = {device, 60, 0};
    assert_int_equal(sl_transfers_prove_order(&args, &fault, &rounds), SL_ERROR_SYSTEM);
    assert_non_null(strstr(sl_status_message(), "does not end"));
    assert_true(device->is_stuck);
    sl_timed_device_close(device);
    is_released = true;
    (void)usleep(100000); /* until its threads are idle */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selftest_when_the_device_is_right_then_all_parts_pass),
        cmocka_unit_test(programs_when_together_then_have_each_op_that_has_a_kernel),
        cmocka_unit_test(fault_when_planted_in_a_kernel_then_its_op_is_named),
        cmocka_unit_test(fault_when_planted_in_a_device_then_its_part_finds_it),
        cmocka_unit_test(answer_when_of_a_wrong_driver_then_its_part_says_so),
        cmocka_unit_test(work_when_it_does_not_end_then_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
