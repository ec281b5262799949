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
#include "base/status.h"
#include "chunk/plan.h"
#include "model/architecture.h"

/* Which tensors are frozen. */
typedef enum plan_case_frozen {
    PLAN_CASE_FROZEN_NONE,
    PLAN_CASE_FROZEN_FIRST,   /* the embeddings and block 0: no backward reaches them */
    PLAN_CASE_FROZEN_WEIGHTS, /* all but the biases */
    PLAN_CASE_FROZEN_HALF,    /* some of all kinds, in every block */
    PLAN_CASE_FROZEN_LATER,   /* all but the embeddings: the backward passes frozen blocks */
    PLAN_CASE_FROZEN_COUNT
} plan_case_frozen;

typedef struct plan_case {
    sl_model_shape shape;
    sl_model_options emit;
    sl_step_options step;
    sl_policy_options policy;
    uint64_t chunk_elements;
    plan_case_frozen frozen;   /* NONE unless a test says so */
    sl_frozen small;           /* how the matrices among them are stored; likewise */
    sl_gather_options gathers; /* of these */
    sl_rule_id rule;           /* of the other tensors; ADAMW unless a test says so */
    bool mixes_rules;          /* they have all rules in turn, and rates of their own */
    bool has_muon;             /* matrices of blocks have it, in the place of these */
    sl_states states;          /* fp32 unless a test says so, and with muon */
    sl_master master;          /* fp32 unless a test says so; low halves in bf16 alone */
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
    c.shape = (sl_model_shape){.layers = 1 + (uint32_t)plan_case_draw(seed, &n, 4),
                               .heads = heads,
                               .width = heads * (3 + (uint32_t)plan_case_draw(seed, &n, 20)),
                               .context = 4 + (uint32_t)plan_case_draw(seed, &n, 20),
                               .vocab = 50 + (uint32_t)plan_case_draw(seed, &n, 400)};
    c.emit = (sl_model_options){.batch = 1 + (uint32_t)plan_case_draw(seed, &n, 3),
                                .seq = 2 + (uint32_t)plan_case_draw(seed, &n, c.shape.context - 2),
                                .tp_size = 1,
                                .mode = SL_MODEL_LOSS};
    c.step = (sl_step_options){.micro_batch_count = 1 + (uint32_t)plan_case_draw(seed, &n, 4),
                               .accumulation = (sl_accumulation)plan_case_draw(seed, &n, 2),
                               .recompute = (sl_recompute)plan_case_draw(seed, &n, 3),
                               .update_early = plan_case_draw(seed, &n, 4) == 0};
    c.policy.policy = (sl_policy)plan_case_draw(seed, &n, 3);
    c.policy.update = (sl_update_place)plan_case_draw(seed, &n, 3);
    if (seed % 5 == 4)
        c.policy.update = SL_UPDATE_SHARED;
    c.policy.host_updates = (double)(seed / 5 % 5) / 4;
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

static inline bool plan_case_is_frozen(plan_case_frozen which, const char *name)
{
    const size_t length = strlen(name);
    const bool is_embedding = name[0] == 'w', is_weight = name[length - 1] == 't';
    switch (which) {
    case PLAN_CASE_FROZEN_FIRST:
        return is_embedding || strncmp(name, "h.0.", 4) == 0;
    case PLAN_CASE_FROZEN_WEIGHTS:
        return is_weight;
    case PLAN_CASE_FROZEN_HALF:
        return (length + (size_t)name[2] + is_weight) % 2;
    case PLAN_CASE_FROZEN_LATER:
        return !is_embedding;
    case PLAN_CASE_FROZEN_NONE:
    case PLAN_CASE_FROZEN_COUNT:
        break;
    }
    return false;
}

/* By a name, so that the panels of a tensor have one rule. */
static inline sl_rule_id plan_case_mix(const char *name, uint8_t *out_rate)
{
    static const sl_rule_id rules[] = {SL_RULE_ADAMW, SL_RULE_LION, SL_RULE_SGD, SL_RULE_MOMENTUM};
    uint32_t sum = 0;
    for (const char *letter = name; *letter; letter++)
        sum = 31 * sum + (uint8_t)*letter;
    *out_rate = sum / 4 % 3 ? (uint8_t)(SL_RATE_FIRST + sum / 4 % 3 - 1) : 0;
    return rules[sum % 4];
}

/* Half of the matrices of blocks, by their names. */
static inline bool plan_case_is_muon(const plan_case *c, const sl_tensor_spec *spec)
{
    return c->has_muon && spec->dim_count == 2 && spec->name[0] == 'h' &&
           (strlen(spec->name) + (size_t)spec->name[2]) % 2;
}

static inline void plan_case_give_rules(plan_case *c)
{
    static const sl_rate rates[] = {{1, 0}, {1, SL_RATE_DECAY_OF_STEP}, {0.5f, 0.3f}, {2, 0}};
    memcpy(c->forward->rates, rates, sizeof rates);
    c->forward->states = c->states;
    c->forward->master = c->forward->type == SL_TYPE_BF16 ? c->master : SL_MASTER_FP32;
    c->forward->rate_count = c->mixes_rules ? sizeof rates / sizeof *rates : 0;
    c->forward->frozen = c->small;
    for (uint32_t t = 0; t < c->forward->tensor_count; t++) {
        sl_tensor_spec *spec = &c->forward->tensors[t];
        spec->rule = c->mixes_rules ? plan_case_mix(spec->name, &spec->rate) : c->rule;
        if (plan_case_is_muon(c, spec))
            spec->rule = SL_RULE_MUON;
        if (plan_case_is_frozen(c->frozen, spec->name))
            spec->rule =
                c->small != SL_FROZEN_OWN && spec->dim_count == 2 ? SL_RULE_SMALL : SL_RULE_NONE;
    }
}

/* Matrices of a small type are dequantised before ops read them. */
static inline sl_status plan_case_gather(plan_case *c, const sl_chunk_map *chunks)
{
    sl_program *gathering = NULL;
    if (c->small == SL_FROZEN_OWN)
        return SL_OK;
    SL_TRY(sl_program_gather_chunks(c->program, chunks, &c->gathers, &gathering));
    sl_program_close(c->program);
    c->program = gathering;
    return SL_OK;
}

/* Builds everything from the chosen sizes up to the request, with unlimited budgets. */
static inline sl_status plan_case_build(plan_case *c)
{
    sl_status status = sl_model_shape_emit(&c->shape, &c->emit, &c->forward);
    if (status == SL_OK)
        plan_case_give_rules(c);
    if (status == SL_OK)
        status = sl_layout_build(c->forward, c->chunk_elements, &c->layout);
    if (status != SL_OK)
        return status;
    sl_chunk_map chunks = sl_layout_chunk_map(c->layout);
    status = sl_program_derive_step(c->forward, &chunks, &c->step, &c->program);
    if (status == SL_OK)
        status = plan_case_gather(c, &chunks);
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

/* Plans again with a budget of `tier` between the least that works and what *plan takes. */
static inline sl_status plan_case_squeeze(plan_case *c, uint64_t seed, sl_tier tier, sl_plan **plan)
{
    sl_shortage shortage = {0};
    uint64_t counter = 1000 + (uint64_t)tier, most = (*plan)->peak_bytes[tier];
    sl_plan_close(*plan);
    *plan = NULL;
    c->request.budget_bytes[tier] = 0;
    sl_status status = sl_plan_build(&c->request, plan, &shortage);
    if (status != SL_ERROR_FIT)
        return status == SL_OK ? SL_ERROR_INTERNAL : status;
    uint64_t room = most > shortage.needed_bytes ? most - shortage.needed_bytes : 0;
    bool is_tight = plan_case_draw(seed, &counter, 2) == 0;
    c->request.budget_bytes[tier] =
        shortage.needed_bytes + (is_tight ? 0 : plan_case_draw(seed, &counter, room + 1));
    status = sl_plan_build(&c->request, plan, &shortage);
    if (status != SL_ERROR_FIT)
        return status;
    c->request.budget_bytes[tier] = shortage.needed_bytes;
    return sl_plan_build(&c->request, plan, &shortage);
}

/* Plans with a random budget of the device and, with something on disk, of the host: what lives
 * on disk comes back from there only if the host has no room to keep it. */
static inline sl_status plan_case_plan_tightly(plan_case *c, uint64_t seed, sl_plan **out_plan)
{
    sl_shortage shortage = {0};
    sl_status status = sl_plan_build(&c->request, out_plan, &shortage);
    if (status == SL_OK)
        status = plan_case_squeeze(c, seed, SL_TIER_DEVICE, out_plan);
    if (status == SL_OK && (*out_plan)->peak_bytes[SL_TIER_DISK] > 0)
        status = plan_case_squeeze(c, seed, SL_TIER_HOST, out_plan);
    return status;
}

/* ---- three tiers: homes on disk, element types, activations whose home is not the device ---- */

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
