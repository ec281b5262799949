/* Random GPT-2 training plans for tests: shapes, policies, budgets, orders, from one seed.
 *
 * A case owns everything from the forward program to the plan request; close it with
 * plan_case_close. Shapes are small and odd; the plans are of every kind the planner knows.
 */
#ifndef SL_TESTS_PLAN_CASES_H
#define SL_TESTS_PLAN_CASES_H

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "sluice/gpt2.h"
#include "sluice/plan.h"

typedef struct plan_case {
    sl_gpt2_shape shape;
    sl_gpt2_emit_options emit;
    sl_step_options step;
    sl_policy_options policy;
    uint64_t chunk_elements;
    sl_machine machine;
    sl_program *forward, *program;
    sl_layout *layout;
    sl_homes *homes;
    sl_plan_request request;
} plan_case;

/* A workspace size that depends on the op's sizes, so that holes of all sizes appear. */
static inline uint64_t plan_case_workspace(const void *context, sl_op_kind kind,
                                           const sl_op_attrs *attrs, sl_tier tier)
{
    (void)context;
    (void)tier;
    return kind == SL_OP_ATTENTION_BACKWARD || kind == SL_OP_LINEAR_WEIGHT_BACKWARD
               ? 64 * (attrs->in + attrs->seq) + 4
               : 0;
}

static inline uint64_t plan_case_draw(uint64_t seed, uint64_t *counter, uint64_t bound)
{
    return sl_rng_below(seed, 11, (*counter)++, bound);
}

static inline plan_case plan_case_choose(uint64_t seed)
{
    uint64_t n = 0;
    plan_case c = {0};
    uint32_t heads = 1 + (uint32_t)plan_case_draw(seed, &n, 3);
    c.shape = (sl_gpt2_shape){.layers = 1 + (uint32_t)plan_case_draw(seed, &n, 4),
                              .heads = heads,
                              .width = heads * (3 + (uint32_t)plan_case_draw(seed, &n, 20)),
                              .context = 4 + (uint32_t)plan_case_draw(seed, &n, 20),
                              .vocab = 50 + (uint32_t)plan_case_draw(seed, &n, 400)};
    c.emit =
        (sl_gpt2_emit_options){.batch = 1 + (uint32_t)plan_case_draw(seed, &n, 3),
                               .seq = 2 + (uint32_t)plan_case_draw(seed, &n, c.shape.context - 2),
                               .tp_size = 1,
                               .mode = SL_GPT2_LOSS};
    c.step = (sl_step_options){.micro_batch_count = 1 + (uint32_t)plan_case_draw(seed, &n, 4),
                               .accumulation = (sl_accumulation)plan_case_draw(seed, &n, 2),
                               .recompute = (sl_recompute)plan_case_draw(seed, &n, 3),
                               .update_early = plan_case_draw(seed, &n, 4) == 0};
    c.policy.policy = (sl_policy)plan_case_draw(seed, &n, 3);
    c.policy.adam = (sl_adam_place)plan_case_draw(seed, &n, 3);
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        c.policy.host_fraction[group] = (double)plan_case_draw(seed, &n, 5) / 4.0;
    c.chunk_elements =
        plan_case_draw(seed, &n, 2) ? 0 : SL_BLOCK_ELEMENTS * (40 + plan_case_draw(seed, &n, 60));
    c.request.prefetch =
        plan_case_draw(seed, &n, 3) ? SL_PREFETCH_AUTO : (uint32_t)plan_case_draw(seed, &n, 4);
    return c;
}

static inline void plan_case_close(plan_case *c)
{
    sl_homes_close(c->homes);
    sl_layout_close(c->layout);
    sl_program_close(c->program);
    sl_program_close(c->forward);
}

/* Builds everything from the chosen sizes up to the request, with unlimited budgets. */
static inline sl_status plan_case_build(plan_case *c)
{
    sl_status status = sl_gpt2_emit(&c->shape, &c->emit, &c->forward);
    if (status == SL_OK)
        status = sl_layout_build(c->forward, c->chunk_elements, &c->layout);
    if (status != SL_OK)
        return status;
    sl_chunk_map chunks = sl_layout_chunk_map(c->layout);
    status = sl_program_derive_step(c->forward, &chunks, &c->step, &c->program);
    if (status == SL_OK)
        status = sl_homes_build(c->program, c->layout, &c->policy, &c->homes);
    c->machine = sl_machine_default(2);
    c->request.program = c->program;
    c->request.layout = c->layout;
    c->request.homes = c->homes;
    if (!c->request.workspace)
        c->request.workspace = plan_case_workspace;
    c->request.machine = &c->machine;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        c->request.budget_bytes[tier] = UINT64_MAX;
    return status;
}

static inline sl_status plan_case_open(uint64_t seed, plan_case *c)
{
    *c = plan_case_choose(seed);
    return plan_case_build(c);
}

#endif
