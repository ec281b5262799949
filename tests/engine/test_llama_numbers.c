/* The layers of Llama on the engine and its kernels, against the plain interpreter: loss, norm of
 * the gradient and parameters after a step. On the cpu device or, with SL_TEST_STANDIN, on the
 * stand-in of tests/cuda.
 *
 * What could be wrong: a kernel that reads an operand as another layout than the interpreter, a
 * table that the engine fills otherwise or not at all, gradients of q, k and v that land in each
 * other's place, an update of another tensor. Tolerances, relative: sums of at most some hundred
 * fp32 terms, through two blocks, keep the loss within 1e-6 and the norm within 2e-5; a wrong table
 * or head moves the loss by more than 1e-3. bf16 rounds each activation to 2^-9: 1e-3 and 2e-2.
 * With an epsilon of 1 the first step of AdamW moves an element nearly by its gradient, not by the
 * sign of it. What a tensor's parameters are off, relative to how far they moved (L2): fp32 keeps
 * 2^-24 of a parameter that moves by a thousandth of itself, so 1e-3; in bf16 a gradient is a sum
 * of products of rounded activations, many of which cancel: 0.2. No update would give 1.
 */
#define _GNU_SOURCE /* nftw */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "program/interpreter.h"
#include "program/llama_model.h"
#include "training_run.h"

#ifdef SL_TEST_STANDIN
static const sl_device_kind device_kind = SL_DEVICE_CUDA;
#else
static const sl_device_kind device_kind = SL_DEVICE_CPU;
#endif

enum { TENSORS_MAX = 64 };

/* parameters: of each tensor, exact ones; freed by the test. */
typedef struct figures {
    double loss, norm;
    double *parameters[TENSORS_MAX];
} figures;

/* The step of both. */
static sl_step_scalars choose_scalars(void)
{
    sl_step_scalars scalars = training_run_scalars(0, 1);
    scalars.learning_rate = scalars.epsilon = 1;
    scalars.weight_decay = 0;
    return scalars;
}

/* In half precision the exact parameters are the masters. */
static sl_group exact_group(sl_type type)
{
    return type == SL_TYPE_FP32 ? SL_GROUP_PARAM : SL_GROUP_MASTER;
}

static double *keep_engine_parameters(training_run *run, uint32_t tensor)
{
    const uint64_t count = run->c->program->tensors[tensor].element_count;
    float *data = calloc(count, sizeof *data);
    double *kept = calloc(count, sizeof *kept);
    if (training_run_visit(run, exact_group(run->c->emit.type), tensor, data, false) != SL_OK)
        fail_msg("%s", sl_status_message());
    for (uint64_t e = 0; e < count; e++)
        kept[e] = (double)data[e];
    free(data);
    return kept;
}

static plan_case choose_case(const llama_sizes *sizes, sl_type type)
{
    return (plan_case){.shape = {.architecture = SL_ARCHITECTURE_OWN,
                                 .vocab = (uint32_t)sizes->ids,
                                 .build = llama_build,
                                 .user = sizes},
                       .emit = {.batch = 2, .seq = 21, .tp_size = 1, .type = type},
                       .step = {.micro_batch_count = 2},
                       .policy = {.policy = SL_POLICY_DEVICE}};
}

static figures run_engine(plan_case *c)
{
    const sl_engine_target target = {.device = device_kind, .worker_count = 2};
    const training_run_settings settings = {.device = device_kind,
                                            .worker_count = target.worker_count,
                                            .guards = device_kind == SL_DEVICE_CPU};
    sl_plan *plan = NULL;
    sl_shortage shortage;
    training_run run;
    c->request.workspace = sl_engine_workspace_bytes;
    c->request.workspace_context = &target;
    if (plan_case_build(c) != SL_OK || sl_plan_build(&c->request, &plan, &shortage) != SL_OK ||
        sl_plan_verify(&c->request, plan) != SL_OK ||
        training_run_open_with(c, plan, &settings, &run) != SL_OK)
        fail_msg("%s", sl_status_message());
    const sl_step_scalars scalars = choose_scalars();
    run.step = 1;
    if (sl_engine_step(run.engine, 0, &scalars) != SL_OK)
        fail_msg("%s", sl_status_message());
    const sl_step_control *control = sl_engine_output(run.engine, 0, SL_OUTPUT_CONTROL);
    figures found = {*(const double *)sl_engine_output(run.engine, 0, SL_OUTPUT_LOSS),
                     (double)control->grad_norm,
                     {NULL}};
    if (sl_engine_drain(run.engine) != SL_OK)
        fail_msg("%s", sl_status_message());
    assert_true(c->program->tensor_count <= TENSORS_MAX);
    for (uint32_t t = 0; t < c->program->tensor_count; t++)
        found.parameters[t] = keep_engine_parameters(&run, t);
    training_run_close(&run);
    return found;
}

/* The tokens of training_run_fill. */
static void fill_source(uint32_t vocab, uint32_t slot, uint32_t micro_batch, double *values,
                        uint64_t count)
{
    const plan_case c = {.shape = {.vocab = vocab}};
    for (uint64_t i = 0; i < count; i++)
        values[i] = training_run_token(&c, 1, micro_batch, i + slot);
}

static figures run_interpreter(const plan_case *c)
{
    it_layout layout = it_layout_make(c->forward, 2 * SL_BLOCK_ELEMENTS);
    it_state parameters = it_state_make(&layout);
    sl_program *step = NULL;
    if (sl_program_derive_step(c->forward, &layout.map, &c->step, &step) != SL_OK)
        fail_msg("%s", sl_status_message());
    for (uint32_t t = 0; t < c->forward->tensor_count; t++) {
        const sl_tensor_spec *spec = &c->forward->tensors[t];
        double *to = it_state_tensor(&parameters, SL_GROUP_PARAM, t);
        double *master = it_state_tensor(&parameters, SL_GROUP_MASTER, t);
        for (uint64_t e = 0; e < spec->element_count; e++)
            to[e] = master[e] = (double)training_run_initial(spec, t, e);
    }
    it_machine machine = it_machine_make(step, &parameters);
    machine.source = fill_source;
    machine.vocab = c->shape.vocab;
    machine.scalars = choose_scalars();
    it_run(&machine, 1);
    figures found = {it_slot(&machine, SL_VALUE_OUTPUT, SL_OUTPUT_LOSS)[0],
                     it_slot(&machine, SL_VALUE_OUTPUT, SL_OUTPUT_CONTROL)[0],
                     {NULL}};
    for (uint32_t t = 0; t < c->forward->tensor_count; t++) {
        const size_t bytes = c->forward->tensors[t].element_count * sizeof(double);
        found.parameters[t] = malloc(bytes);
        memcpy(found.parameters[t], it_state_tensor(&parameters, exact_group(c->emit.type), t),
               bytes);
    }
    it_machine_free(&machine);
    it_state_free(&parameters);
    it_layout_free(&layout);
    sl_program_close(step);
    return found;
}

/* Of the tensor that is off by most: the distance, relative to how far the tensor moved. */
static double compare_parameters(const plan_case *c, figures *got, figures *want)
{
    double most = 0;
    for (uint32_t t = 0; t < c->forward->tensor_count; t++) {
        const sl_tensor_spec *spec = &c->forward->tensors[t];
        double apart = 0, moved = 0;
        for (uint64_t e = 0; e < spec->element_count; e++) {
            const double expected = want->parameters[t][e];
            apart += pow(got->parameters[t][e] - expected, 2);
            moved += pow(expected - (double)training_run_initial(spec, t, e), 2);
        }
        const double off = sqrt(apart / moved);
        most = off <= most ? most : off; /* also one that is not a number */
        free(got->parameters[t]);
        free(want->parameters[t]);
    }
    return most;
}

static void step_when_run_by_the_engine_is_that_of_the_interpreter(void **state)
{
    (void)state;
    llama_sizes kinds[] = {llama_tiny, llama_tiny};
    kinds[1].has_head_norms = false;
    kinds[1].has_biases = true;
    kinds[1].is_tied = true;
    kinds[1].rotary = (sl_rotary_spec){.base = 50,
                                       .scaling = SL_ROTARY_LLAMA3,
                                       .factor = 8,
                                       .low_frequency_factor = 1,
                                       .high_frequency_factor = 4,
                                       .original_context = 16};
    for (int kind = 0; kind < 2; kind++)
        for (int type = SL_TYPE_FP32; type <= SL_TYPE_BF16; type++) {
            const double bound = type == SL_TYPE_FP32 ? 1e-6 : 1e-3;
            plan_case c = choose_case(&kinds[kind], (sl_type)type);
            const double parameter_bound = type == SL_TYPE_FP32 ? 1e-3 : 0.2;
            figures got = run_engine(&c), want = run_interpreter(&c);
            const double off = compare_parameters(&c, &got, &want);
            print_message(
                "kind %d, %s: loss %g off by %.2g, norm %g off by %.2g, parameters by %.2g\n", kind,
                sl_type_name((sl_type)type), want.loss, fabs(got.loss / want.loss - 1), want.norm,
                fabs(got.norm / want.norm - 1), off);
            assert_true(fabs(got.loss / want.loss - 1) < bound);
            assert_true(fabs(got.norm / want.norm - 1) < 20 * bound);
            assert_true(off < parameter_bound);
            plan_case_close(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_when_run_by_the_engine_is_that_of_the_interpreter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
