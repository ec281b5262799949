/* Requests for plans of GPT-2 training steps, for tests: model, derived step, layout and homes from
 * one row of sizes. */
#ifndef SL_TESTS_PLAN_CASE_H
#define SL_TESTS_PLAN_CASE_H

#include <stdio.h>
#include <stdlib.h>

#include "sluice/gpt2.h"
#include "sluice/plan.h"

typedef struct plan_case_options {
    sl_gpt2_shape shape;
    uint32_t batch, seq;
    sl_step_options step;
    sl_policy_options policy;
    uint64_t chunk_elements; /* 0: found by the layout */
    uint32_t prefetch;
} plan_case_options;

typedef struct plan_case {
    sl_program *program;
    sl_layout *layout;
    sl_homes *homes;
    sl_machine machine;
    sl_plan_request request;
} plan_case;

/* Workspace of every fourth kind of op, by the kind: enough for a planner to go wrong with. */
static inline uint64_t plan_case_workspace(const void *context, sl_op_kind kind,
                                           const sl_op_attrs *attrs, sl_tier tier)
{
    (void)context, (void)attrs, (void)tier;
    return kind % 4 == 0 ? 1024 + 256 * (uint64_t)kind : 0;
}

static inline void plan_case_close(plan_case *it)
{
    sl_homes_close(it->homes);
    sl_layout_close(it->layout);
    sl_program_close(it->program);
    *it = (plan_case){0};
}

static inline sl_status plan_case_derive(plan_case *it, const plan_case_options *options)
{
    sl_gpt2_emit_options emit = {.batch = options->batch, .seq = options->seq, .tp_size = 1};
    sl_program *forward = NULL;
    sl_status status = sl_gpt2_emit(&options->shape, &emit, &forward);
    if (status == SL_OK)
        status = sl_layout_build(forward, options->chunk_elements, &it->layout);
    if (status == SL_OK) {
        sl_chunk_map map = sl_layout_chunk_map(it->layout);
        status = sl_program_derive_step(forward, &map, &options->step, &it->program);
    }
    sl_program_close(forward);
    return status;
}

/* Fills `it`, also when it fails; close it in both cases. */
static inline sl_status plan_case_open(plan_case *it, const plan_case_options *options)
{
    *it = (plan_case){0};
    sl_status status = plan_case_derive(it, options);
    if (status == SL_OK)
        status = sl_homes_build(it->program, it->layout, &options->policy, &it->homes);
    it->machine = sl_machine_default(2);
    it->request = (sl_plan_request){.program = it->program,
                                    .layout = it->layout,
                                    .homes = it->homes,
                                    .budget_bytes = {UINT64_MAX, UINT64_MAX, UINT64_MAX},
                                    .prefetch = options->prefetch,
                                    .workspace = plan_case_workspace,
                                    .machine = &it->machine};
    return status;
}

#endif
