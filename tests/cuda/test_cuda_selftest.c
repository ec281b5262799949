/* The self-test over the stand-in of a GPU. What could be wrong: a right device is blamed; a kernel
 * that is wrong by a little is not found, or another one is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sanitizer_share.h"
#include "selftest/programs.h"
#include "selftest/selftest.h"
#include "selftest/transfers.h"
#include "stream_order.h"

static void selftest_when_the_device_is_right_then_all_parts_pass(void **state)
{
    (void)state;
    sl_proof_part parts[SL_PROOF_PARTS];
    sl_selftest_args args = sl_selftest_defaults(SL_DEVICE_CUDA, 0);
    args.is_small = true;
    args.host_bytes = 1 << 20;
    args.border_bytes = 64 << 10;                 /* the stand-in's pieces */
    args.seconds = SANITIZER_SHARE > 1 ? 4 : 600; /* some programs */
    args.disk_directory = ".";
    assert_int_equal(sl_selftest_run(&args, parts), SL_OK);
    for (int i = 0; i < SL_PROOF_PARTS; i++) {
        print_message("%s: %.2f s: %s\n", parts[i].name, parts[i].seconds, parts[i].text);
        assert_int_equal(parts[i].outcome, SL_PROOF_PASSED);
    }
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

static bool has_op(const sl_program *program, sl_op_kind kind)
{
    for (uint32_t i = 0; i < program->op_count; i++)
        if (program->ops[i].kind == kind)
            return true;
    return false;
}

/* What programs with the op find; "" nothing. */
static void find_fault(sl_op_kind kind, sl_fault *out_fault)
{
    *out_fault = (sl_fault){0};
    for (uint32_t i = 0; i < sl_proof_program_count() && !*out_fault->text; i++) {
        sl_proof_program it;
        uint64_t ops;
        assert_int_equal(sl_proof_program_open(i, &it), SL_OK);
        const sl_lockstep_args args = {cpu, device, it.program, it.layout, it.vocab, 7};
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
    assert_int_equal(missed, 0);
    device->kernels = whole;
    sl_timed_device_close(device);
    sl_timed_device_close(cpu);
    free(table);
}

/* ---- planted faults: a device that takes orders lightly ---- */

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

static void fault_when_planted_in_a_device_then_its_part_finds_it(void **state)
{
    (void)state;
    sl_fault fault;
    assert_int_equal(sl_timed_device_open(SL_DEVICE_CUDA, 0, NULL, 1, &device), SL_OK);
    sl_device_ops ops = *(whole_ops = device->ops);
    device->ops = &ops;
    ops.event_wait = wait_for_nothing;
    fault.text[0] = '\0';
    for (int tries = 0; tries < 100 && !*fault.text; tries++) /* it is a matter of chance */
        assert_int_equal(sl_transfers_prove_order(device, 50, &fault), SL_OK);
    assert_non_null(strstr(fault.text, "overtook"));
    standin_forget_order_faults(); /* the stand-in saw it too */
    ops = *whole_ops;
    ops.copy = copy_to_the_border;
    assert_int_equal(sl_transfers_prove_borders(device, 1 << 20, 64 << 10, &fault), SL_OK);
    assert_non_null(strstr(fault.text, "came back as another one"));
    ops.copy = copy_one_more;
    assert_int_equal(sl_transfers_prove_borders(device, 1 << 20, 64 << 10, &fault), SL_OK);
    assert_non_null(strstr(fault.text, "came back as another one"));
    device->ops = whole_ops;
    sl_timed_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selftest_when_the_device_is_right_then_all_parts_pass),
        cmocka_unit_test(fault_when_planted_in_a_kernel_then_its_op_is_named),
        cmocka_unit_test(fault_when_planted_in_a_device_then_its_part_finds_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
