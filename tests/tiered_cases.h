/* Random GPT-2 training plans over three tiers: homes on disk, element types, activations whose
 * home is not the device. Built like plan_cases.h, closed with plan_case_close. */
#ifndef SL_TESTS_TIERED_CASES_H
#define SL_TESTS_TIERED_CASES_H

#include "plan_cases.h"

enum { TIERED_DRAWS = 5000 }; /* its draws are not those of plan_case_choose */

static inline void tiered_choose_homes(uint64_t seed, uint64_t *n, plan_case *c)
{
    c->policy.policy = plan_case_draw(seed, n, 2) ? SL_POLICY_NVME : SL_POLICY_STATIC;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        uint64_t disk = plan_case_draw(seed, n, 6);
        c->policy.disk_fraction[group] = disk > 4 ? 1.0 : (double)disk / 4.0;
        c->policy.host_fraction[group] =
            (1.0 - c->policy.disk_fraction[group]) * (double)plan_case_draw(seed, n, 3) / 2.0;
    }
    uint64_t share = plan_case_draw(seed, n, 4);
    c->request.disk_activations = (double)share / 4.0;
    c->request.host_activations = (double)plan_case_draw(seed, n, 5 - share) / 4.0;
}

/* Sizes for which some activations are large enough and a whole number of pages. */
static inline plan_case tiered_case_choose(uint64_t seed)
{
    uint64_t n = TIERED_DRAWS;
    plan_case c = plan_case_choose(seed);
    c.shape.width = c.shape.heads * 64;
    c.shape.context = 32 * (1 + (uint32_t)plan_case_draw(seed, &n, 2));
    c.emit.seq = c.shape.context;
    c.emit.batch = 1 + (uint32_t)plan_case_draw(seed, &n, 4);
    uint64_t largest = 4 * c.shape.width * c.shape.width + 128 * c.shape.width;
    if (c.chunk_elements)
        c.chunk_elements = largest + SL_BLOCK_ELEMENTS * plan_case_draw(seed, &n, 60);
    c.emit.type = (sl_type)plan_case_draw(seed, &n, SL_TYPE_COUNT);
    bool may_round = c.step.micro_batch_count == 1 || c.step.accumulation == SL_ACCUMULATE_LAYER;
    c.emit.grad_type = may_round && plan_case_draw(seed, &n, 2) ? c.emit.type : SL_TYPE_FP32;
    tiered_choose_homes(seed, &n, &c);
    return c;
}

static inline sl_status tiered_case_open(uint64_t seed, plan_case *c)
{
    *c = tiered_case_choose(seed);
    return plan_case_build(c);
}

#endif
