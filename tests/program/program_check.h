/* Checks of derived steps that several programs of tests share: gradients against differences of
 * the loss, results bit by bit, and the lives of values. */
#ifndef SL_TESTS_PROGRAM_CHECK_H
#define SL_TESTS_PROGRAM_CHECK_H

#include "program_odd.h"
#include "program_run.h"

static const sl_model_shape tiny = {
    .layers = 2, .width = 12, .heads = 3, .context = 7, .vocab = 131};

static inline bool runs_full(void)
{
    return getenv("SL_TEST_FULL") != NULL;
}

static inline run_options tiny_options(void)
{
    run_options options = {.shape = tiny,
                           .batch = 2,
                           .seq = 7,
                           .tp_size = 1,
                           .step = {.micro_batch_count = 1},
                           .clip = 0.0f,
                           .iterations = 1};
    return options;
}

/* Mean loss of all micro-batches, by the forward program. */
static inline double measure_loss(const run *r, const run_options *options)
{
    double sum = 0.0;
    for (uint32_t m = 0; m < options->step.micro_batch_count; m++) {
        it_machine machine = it_machine_make(r->forward[0], &r->state[0]);
        machine.micro_batch = m;
        machine.scalars.dropout_seed = RUN_SEED;
        machine.scalars.first_row = RUN_FIRST_ROW;
        run_fill_inputs(&machine, options->shape.vocab, m);
        it_run(&machine, 1);
        sum += it_slot(&machine, SL_VALUE_OUTPUT, SL_OUTPUT_LOSS)[0];
        it_machine_free(&machine);
    }
    return sum / (options->batch * options->seq * options->step.micro_batch_count);
}

/* The central difference errs by h^2 / 6 times the third derivative (below 100 here: 2e-7 at most)
 * and by 1e-15 / h from rounding; 1e-6 covers both and is far below any missing term. */
static inline void check_element(run *r, const run_options *options, uint32_t tensor,
                                 uint64_t element)
{
    const double h = 1e-4;
    double *parameter = it_state_tensor(&r->state[0], SL_GROUP_PARAM, tensor) + element;
    double gradient = it_state_tensor(&r->state[0], SL_GROUP_GRAD, tensor)[element];
    double before = *parameter;
    *parameter = before + h;
    double above = measure_loss(r, options);
    *parameter = before - h;
    double below = measure_loss(r, options);
    *parameter = before;
    double expected = (above - below) / (2.0 * h);
    if (!(fabs(gradient - expected) <= 1e-6 + 1e-5 * fabs(expected)))
        fail_msg("%s[%llu]: gradient %.12g, difference %.12g", r->forward[0]->tensors[tensor].name,
                 (unsigned long long)element, gradient, expected);
}

static inline void check_gradients(const run_options *options, uint64_t samples)
{
    run r;
    run_step(options, &r);
    run_fill_parameters(r.forward[0], &r.state[0], 0); /* back to before the update */
    double loss = measure_loss(&r, options);
    double tokens = options->batch * options->seq * options->step.micro_batch_count;
    assert_true(fabs(loss - r.loss / tokens) < 1e-12 * loss);
    for (uint32_t t = 0; t < r.forward[0]->tensor_count; t++) {
        uint64_t count = r.forward[0]->tensors[t].element_count;
        for (uint64_t i = 0; i < (samples < count ? samples : count); i++)
            check_element(&r, options, t, samples < count ? run_mix(t * 1000 + i) % count : i);
    }
    run_free(&r);
}

static inline run_options odd_options(void)
{
    run_options options = tiny_options();
    options.emit = odd_emit;
    options.shape.vocab = ODD_IDS;
    return options;
}

static inline void assert_same_bits(const run *a, const run *b)
{
    assert_memory_equal(&a->loss, &b->loss, sizeof a->loss);
    assert_memory_equal(a->control, b->control, sizeof a->control);
    size_t bytes = it_state_elements(&a->state[0]) * sizeof(double);
    for (int g = 0; g < SL_GROUP_COUNT; g++)
        assert_memory_equal(a->state[0].group[g], b->state[0].group[g], bytes);
}

/* First and last use of value v. */
static inline void find_life(const sl_program *step, uint32_t v, const sl_op **first,
                             const sl_op **last)
{
    *first = *last = NULL;
    for (const sl_op *op = step->ops; op < step->ops + step->op_count; op++)
        for (int i = 0; i < SL_OPERAND_MAX; i++)
            if (op->operand[i] == v) {
                *first = *first ? *first : op;
                *last = op;
            }
}

#endif
