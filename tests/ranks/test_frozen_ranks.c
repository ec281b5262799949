/* Frozen tensors (rule `none`) on many ranks: the others learn as without them, frozen ones stay.
 *
 * What could be wrong: chunks differ in size by their rule, so a shard is cut at another rank's
 * place; a rank updates, gathers or sums a frozen chunk; the norm misses a block or counts another
 * one; a stage waits for a gradient that nobody sends, or sends one that nobody takes; a stage
 * without a trained tensor adds to the norm what its memory had before; the tied embedding is
 * trained on one stage and frozen on the other; a sum over tensor-parallel ranks that a trained
 * tensor needs is left out.
 *
 * There are three oracles. One step of the same ranks with all tensors trained: a gradient does not
 * depend on which other tensors are trained, so each trained tensor has the same bits after a step
 * without clipping, and the norm is that of their gradients alone. Steps with clipping at another
 * ZeRO stage, placement or number of pipeline stages: the same bits. Steps of one rank: the
 * tolerances of test_tensor_parallel.c. Frozen tensors keep the bits of their first values.
 */
#define _GNU_SOURCE
#define RANK_RUNS_LAYERS 3
#define RANK_THREADS_MAX 8
#include "rank_runs.h"
#include "sanitizer_share.h"

#define FIRST "freeze=wte.*,wpe.*,h.0.*"
#define WEIGHTS "freeze=*.weight"
#define MIXED "freeze=h.*.attn.*,*.ln_1.weight,h.1.mlp.c_fc.bias,wpe.*"
#define LATER "freeze=*,!wte.*"

static const char *const patterns[] = {FIRST, WEIGHTS, MIXED, LATER};

enum { PATTERNS = sizeof patterns / sizeof patterns[0], STEPS = 3 };

typedef struct layout {
    uint32_t tp, dp, pp;
} layout;

typedef struct setting_list {
    const char *items[SETTINGS_MAX];
} setting_list;

/* `settings`, then others; NULL is left out. */
static setting_list join(const char *const *settings, const char *first, const char *second)
{
    setting_list joined = {{NULL}};
    const char *const others[] = {first, second};
    int count = 0;
    for (; settings[count]; count++)
        joined.items[count] = settings[count];
    for (int i = 0; i < 2; i++)
        if (others[i])
            joined.items[count++] = others[i];
    assert_true(count < SETTINGS_MAX);
    return joined;
}

static ranks_run *open_ranks(layout l, const char *const *settings, const char *first,
                             const char *second)
{
    const setting_list joined = join(settings, first, second);
    return open_stages(l.tp, l.dp, l.pp, joined.items, 1, NULL);
}

/* ---- frozen and trained tensors ---- */

static bool is_frozen(const ranks_run *run, const char *name)
{
    const sl_runtime *runtime = run->rank[0].runtime;
    for (uint32_t i = 0; i < runtime->tensor_count; i++)
        if (strcmp(runtime->tensors[i].name, name) == 0)
            return runtime->tensors[i].rule == SL_RULE_NONE;
    fail_msg("%s is missing", name);
    return false;
}

/* Frozen tensors have the values that they began with, and all others do not; there are both. */
static void check_kept(ranks_run *run, const whole_model *initial, const char *what)
{
    whole_model *now = read_model(run, SL_GROUP_PARAM);
    uint32_t frozen_count = 0;
    for (uint32_t i = 0; i < now->count; i++) {
        const char *name = now->tensors[i].name;
        const bool is_kept = is_frozen(run, name);
        frozen_count += is_kept;
        if (are_bits_equal(&now->tensors[i], find_same(initial, name)) != is_kept)
            fail_msg("%s: %s %s", what, name, is_kept ? "is frozen and changed" : "did not learn");
    }
    assert_true(frozen_count > 0 && frozen_count < now->count);
    free_model(now);
}

/* ---- against a step that trains all tensors ---- */

/* The sum of squares, of gradients as they are once their sums are rounded to the compute type. */
static double sum_squares(const whole_tensor *gradient, sl_type type)
{
    double sum = 0;
    for (uint64_t e = 0; e < gradient->count; e++) {
        uint16_t half;
        float rounded = gradient->data[e];
        if (type != SL_TYPE_FP32) {
            sl_elements_round(type, &gradient->data[e], 1, &half);
            sl_elements_widen(type, &half, 1, &rounded);
        }
        sum += (double)rounded * (double)rounded;
    }
    return sum;
}

/* The norm is that of the gradients of tensors that are trained in `frozen`. */
static void compare_norm(ranks_run *all, ranks_run *frozen, const char *what)
{
    const sl_type type = frozen->rank[0].runtime->blueprint->task.type;
    whole_model *gradients = read_model(all, SL_GROUP_GRAD);
    const double norm = (double)frozen->rank[0].control.grad_norm;
    double sum = 0;
    for (uint32_t i = 0; i < gradients->count; i++)
        if (!is_frozen(frozen, gradients->tensors[i].name))
            sum += sum_squares(&gradients->tensors[i], type);
    if (!(fabs(norm / sqrt(sum) - 1) < 1e-6)) /* blocks are summed in fp32 */
        fail_msg("%s: norm %.9g, not %.9g", what, norm, sqrt(sum));
    free_model(gradients);
}

static void compare_trained(ranks_run *all, ranks_run *frozen, const char *what)
{
    static const sl_group groups[] = {SL_GROUP_PARAM, SL_GROUP_STATE1, SL_GROUP_STATE2};
    for (int g = 0; g < 3; g++) {
        whole_model *a = read_model(all, groups[g]), *b = read_model(frozen, groups[g]);
        for (uint32_t i = 0; i < b->count; i++) {
            const char *name = b->tensors[i].name;
            if (!is_frozen(frozen, name) && !are_bits_equal(&b->tensors[i], find_same(a, name)))
                fail_msg("%s: %s of %s differs", what, sl_group_name(groups[g]), name);
        }
        free_model(a);
        free_model(b);
    }
}

/* `is_early`: chunks are updated as soon as their gradients are there, which are then gone. */
static void compare_with_all(layout l, const char *const *settings, const char *freeze,
                             bool is_early)
{
    char what[128];
    const char *clip = is_early ? "clip=0" : "clip=1e30";
    ranks_run *all = open_ranks(l, settings, clip, NULL);
    ranks_run *frozen = open_ranks(l, settings, clip, freeze);
    whole_model *initial = read_model(frozen, SL_GROUP_PARAM);
    snprintf(what, sizeof what, "tp %u, dp %u, pp %u, %s, %s", l.tp, l.dp, l.pp, settings[0],
             freeze);
    take_step(all);
    take_step(frozen);
    assert_memory_equal(&frozen->rank[0].loss, &all->rank[0].loss, sizeof(double));
    compare_trained(all, frozen, what);
    check_kept(frozen, initial, what);
    check_peaks(frozen);
    if (!is_early)
        compare_norm(all, frozen, what);
    free_model(initial);
    close_run(all);
    close_run(frozen);
}

static const struct all_case {
    layout layout;
    const char *settings[SETTINGS_MAX];
} all_cases[] = {
    {{1, 2, 1}, {"zero=0", "policy=host", "precision=fp32", "accumulate=3"}},
    {{1, 3, 1}, {"zero=1", "policy=device", "precision=bf16", "accumulate=2"}},
    {{1, 3, 1}, {"zero=2", "policy=host", "precision=fp32", "accumulate=3"}},
    {{1, 2, 1}, {"zero=3", "policy=device", "precision=bf16", "recompute=full"}},
    {{2, 1, 1}, {"split-layout=megatron", "policy=host", "precision=bf16", "accumulate=2"}},
    {{3, 1, 1}, {"split-layout=colossal", "policy=device", "precision=fp32", "recompute=full"}},
    {{2, 1, 1}, {"sequence-parallel=true", "policy=device", "precision=fp32", "dropout=0.1"}},
    {{2, 1, 1}, {"partition-activations=true", "policy=host", "precision=fp32", "recompute=full"}},
    {{1, 1, 2}, {"schedule=1f1b", "policy=host", "precision=fp32", "accumulate=9"}},
    {{1, 1, 3}, {"schedule=1f1b", "policy=host", "precision=bf16", "accumulate=11"}},
    {{1, 1, 3},
     {"schedule=gpipe", "policy=device", "precision=fp32", "accumulate=5", "accumulation=layer"}},
    {{2, 2, 2}, {"zero=2", "policy=host", "precision=bf16", "accumulate=4", "schedule=1f1b"}}};

enum { ALL_CASES = sizeof all_cases / sizeof all_cases[0] };

static void step_when_tensors_are_frozen_then_the_others_have_the_same_bits(void **state)
{
    (void)state;
    for (int c = 0; c < ALL_CASES; c++)
        for (int p = 0; p < PATTERNS; p++)
            if (is_full() || (c + p) % SANITIZER_SHARE == c / 4 % SANITIZER_SHARE)
                for (int is_early = 0; is_early < 2; is_early++)
                    if (is_full() || is_early == (c / 2 + p) % 2)
                        compare_with_all(all_cases[c].layout, all_cases[c].settings, patterns[p],
                                         is_early);
}

/* ---- clipped steps in the bits of another run ---- */

/* Closes both. */
static void check_same_bits(ranks_run *first, ranks_run *second, const char *what)
{
    whole_model *initial = read_model(second, SL_GROUP_PARAM);
    take_same_steps(first, second, STEPS, what);
    check_kept(second, initial, what);
    if (!((double)second->rank[0].control.grad_norm > second->rank[0].config.clip))
        fail_msg("%s: a norm of %g is not clipped", what,
                 (double)second->rank[0].control.grad_norm);
    free_model(initial);
    close_run(first);
    close_run(second);
}

/* Norms are above this, also where the last norm alone is trained. */
#define CLIP "clip=0.001"

static const char *const zero_ways[][SETTINGS_MAX] = {
    {"zero=1", "policy=host", "accumulate=3", "prefetch=2", CLIP, NULL},
    {"zero=2", "policy=host", "accumulate=3", "accumulation=layer", CLIP, NULL},
    {"zero=3", "policy=device", "accumulate=3", "recompute=full", CLIP, NULL},
    {"zero=3", "policy=nvme", disk_dir, "nvme-params=1", "nvme-grads=1", "accumulate=3",
     "accumulation=layer", "chunk-size=40960", CLIP, NULL},
    {"zero=2", "policy=static", disk_dir, "nvme-params=0.5", "offload-optimizer=0.5",
     "recompute=selective", "accumulate=3", "threads=2", "adam=host", CLIP, NULL}};

enum { ZERO_WAYS = sizeof zero_ways / sizeof zero_ways[0] };

/* Each against everything on the device at stage 0. */
static void steps_when_shards_have_stateless_tensors_then_have_the_bits_of_stage_0(void **state)
{
    (void)state;
    static const char *const precisions[] = {"precision=fp32", "precision=bf16"};
    static const char *const plain[] = {"zero=0", "policy=device", "accumulate=3", CLIP, NULL};
    uint32_t drawn = 0;
    for (int w = 0; w < ZERO_WAYS; w++)
        for (int p = 0; p < PATTERNS; p++)
            for (int half = 0; half < 2; half++)
                for (uint32_t dp = 2; dp <= 3; dp++) {
                    const bool is_drawn =
                        half == (w + p) % 2 && dp == 2 + (uint32_t)(w + p / 2) % 2;
                    const layout l = {1, dp, 1};
                    char what[96];
                    if (!is_full() && (!is_drawn || !is_in_share(&drawn)))
                        continue;
                    snprintf(what, sizeof what, "dp %u, way %d, %s, %s", dp, w, precisions[half],
                             patterns[p]);
                    check_same_bits(open_ranks(l, plain, precisions[half], patterns[p]),
                                    open_ranks(l, zero_ways[w], precisions[half], patterns[p]),
                                    what);
                }
}

static void policies_when_split_tensors_are_frozen_then_give_the_same_bits(void **state)
{
    (void)state;
    check_policies(2, "precision=fp32", WEIGHTS);
    check_policies(3, "precision=bf16", MIXED);
}

/* ---- split tensors, against one rank ---- */

static const char *const split_fp32[] = {"policy=device", "precision=fp32", CLIP, NULL};
static const char *const split_bf16[] = {
    "policy=host", "precision=bf16", "accumulate=2", "recompute=full", CLIP, NULL};

static void compare_first_gradients(ranks_run *one, ranks_run *many, double bound, const char *what)
{
    const char *name = "";
    whole_model *expected = read_model(one, SL_GROUP_GRAD);
    whole_model *found = read_model(many, SL_GROUP_GRAD);
    const double most = find_distance(expected, found, &name);
    const double norm =
        (double)many->rank[0].control.grad_norm / (double)one->rank[0].control.grad_norm;
    if (!(most <= bound) || !(fabs(norm - 1) <= bound))
        fail_msg("%s: %s is off by %g, the norm by %g", what, name, most, norm - 1);
    free_model(expected);
    free_model(found);
}

static void check_split(uint32_t size, const char *way, const char *freeze, bool is_half)
{
    const char *const *settings = is_half ? split_bf16 : split_fp32;
    const double bound = is_half ? bf16_bound : fp32_bound;
    char what[128];
    ranks_run *one = open_ranks((layout){1, 1, 1}, settings, freeze, NULL);
    ranks_run *many = open_ranks((layout){size, 1, 1}, settings, freeze, way);
    whole_model *initial = read_model(many, SL_GROUP_PARAM);
    snprintf(what, sizeof what, "%u ranks, %s, %s, %s", size, way, freeze, settings[1]);
    for (int step = 0; step < STEPS; step++) {
        take_step(one);
        take_step(many);
        assert_true((double)many->rank[0].control.grad_norm > many->rank[0].config.clip);
        if (!(fabs(many->rank[0].loss / one->rank[0].loss - 1) <= bound))
            fail_msg("%s: step %d: loss %g, not %g", what, step, many->rank[0].loss,
                     one->rank[0].loss);
        if (step == 0)
            compare_first_gradients(one, many, bound, what);
    }
    check_kept(many, initial, what);
    free_model(initial);
    close_run(one);
    close_run(many);
}

static void gradients_when_split_tensors_are_frozen_then_are_those_of_one_rank(void **state)
{
    (void)state;
    static const char *const splits[] = {"split-layout=megatron", "split-layout=colossal",
                                         "sequence-parallel=true", "partition-activations=true"};
    uint32_t drawn = 0;
    for (int w = 0; w < 4; w++)
        for (int p = 0; p < PATTERNS; p++)
            for (int half = 0; half < 2; half++)
                for (uint32_t size = 2; size <= 3; size++)
                    if (is_full() || (half == (w + p) % 2 && size == 2 + (uint32_t)(w == p) &&
                                      is_in_share(&drawn)))
                        check_split(size, splits[w], patterns[p], half);
}

/* ---- pipelines ---- */

/* Layers 0 | 1, 2 on two stages, and one layer on each of three. */
static const struct pipeline {
    const char *freeze;
    uint32_t stages, frozen_stages; /* the latter a set of 1 << stage: all of its tensors are */
} pipelines[] = {{FIRST, 2, 1 << 0},
                 {"freeze=wte.*,wpe.*", 2, 0},
                 {"freeze=h.[12].*,ln_f.*", 2, 0},
                 {"freeze=*,!h.0.*", 2, 1 << 1},
                 {"freeze=wte.*,wpe.*,h.[01].*", 3, 1 << 0 | 1 << 1},
                 {"freeze=h.1.*", 3, 1 << 1},
                 {FIRST, 3, 1 << 0},
                 {"freeze=h.2.*,ln_f.*", 3, 0},
                 {WEIGHTS, 3, 0},
                 {"freeze=*,!h.1.*", 3, 1 << 0 | 1 << 2},
                 {LATER, 3, 1 << 1},
                 {"freeze=*,!ln_f.*", 3, 1 << 0 | 1 << 1}};

static const char *const orders[][SETTINGS_MAX] = {{"schedule=1f1b", "accumulation=micro", NULL},
                                                   {"schedule=gpipe", "accumulation=micro", NULL},
                                                   {"schedule=gpipe", "accumulation=layer", NULL}};

/* A few micro-batches, and as many as are loops. */
static const char *const pipeline_ways[][SETTINGS_MAX] = {
    {"policy=host", "precision=fp32", "accumulate=11", CLIP, NULL},
    {"policy=device", "precision=bf16", "accumulate=4", "dropout=0.1", CLIP, NULL},
    {"policy=host", "precision=bf16", "accumulate=10", "recompute=full", CLIP, NULL},
    {"policy=nvme", disk_dir, "nvme-params=1", "precision=fp32", "accumulate=5", CLIP, NULL}};

enum {
    PIPELINES = sizeof pipelines / sizeof pipelines[0],
    ORDERS = sizeof orders / sizeof orders[0],
    PIPELINE_WAYS = sizeof pipeline_ways / sizeof pipeline_ways[0]
};

static bool trains_any(const sl_program *program)
{
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (sl_program_trains(program, t))
            return true;
    return false;
}

static void check_frozen_stages(const ranks_run *run, const struct pipeline *it)
{
    bool is_before = true; /* all stages before are frozen */
    for (uint32_t rank = 0; rank < run->size; rank++) {
        const sl_program *program = run->rank[rank].runtime->blueprint->programs[0];
        const uint32_t stage = run->rank[rank].stage;
        const bool is_whole = it->frozen_stages >> stage & 1;
        assert_int_equal(!trains_any(program), is_whole);
        assert_int_equal(program->stages_before_are_frozen, stage > 0 && is_before);
        if (rank + 1 < run->size && run->rank[rank + 1].stage > stage)
            is_before = is_before && is_whole;
    }
}

/* Against the same data-parallel ranks without stages. */
static void check_pipeline(const struct pipeline *it, int order, int way, uint32_t dp)
{
    const setting_list joined = join(pipeline_ways[way], orders[order][0], orders[order][1]);
    const layout without = {1, dp, 1}, with = {1, dp, it->stages};
    const char *zero = dp > 1 ? "zero=1" : NULL;
    char what[128];
    const setting_list plain = join(pipeline_ways[way], "accumulation=micro", NULL);
    ranks_run *one = open_ranks(without, plain.items, it->freeze, zero);
    ranks_run *many = open_ranks(with, joined.items, it->freeze, zero);
    snprintf(what, sizeof what, "%u stages, dp %u, %s, order %d, way %d", it->stages, dp,
             it->freeze, order, way);
    check_frozen_stages(many, it);
    check_same_bits(one, many, what);
}

static void steps_when_stages_have_stateless_tensors_then_have_the_bits_of_one_rank(void **state)
{
    (void)state;
    uint32_t drawn = 0;
    for (int i = 0; i < PIPELINES; i++)
        for (int order = 0; order < ORDERS; order++)
            for (int way = 0; way < PIPELINE_WAYS; way++)
                if (is_full() || (way == (i + order) % PIPELINE_WAYS &&
                                  (order == 0 || i % 2 == order % 2) && is_in_share(&drawn)))
                    check_pipeline(&pipelines[i], order, way, 1);
}

static void steps_when_stages_and_rows_are_shared_then_have_the_bits_without_stages(void **state)
{
    (void)state;
    uint32_t drawn = 0;
    for (int i = 0; i < PIPELINES; i++)
        if (is_full() || (pipelines[i].stages == 2 && is_in_share(&drawn)))
            check_pipeline(&pipelines[i], i % ORDERS, i % PIPELINE_WAYS, 2);
}

/* ---- checkpoints ---- */

/* Ranks that share a checkpoint name the same states, also those that have none. */
static void checkpoints_when_tensors_are_frozen_then_are_equal_on_any_ranks(void **state)
{
    (void)state;
    static const layout layouts[] = {{2, 1, 1}, {1, 3, 1}, {1, 1, 3}, {1, 2, 2}};
    static const char *const settings[] = {"policy=host", "precision=bf16", "accumulate=4", NULL};
    static const char *const zeros[] = {"zero=3", "zero=1"};
    scratch_path from = scratch_open();
    ranks_run *one = open_ranks((layout){1, 1, 1}, settings, FIRST, NULL);
    take_step(one);
    save_run(one, from.text);
    close_run(one);
    for (int i = 0; i < 4; i++) {
        scratch_path to = scratch_open();
        ranks_run *many = open_ranks(layouts[i], settings, FIRST, zeros[i % 2]);
        load_run(many, from.text);
        save_run(many, to.text);
        if (!are_files_equal(from.text, to.text, 1))
            fail_msg("tp %u, dp %u, pp %u", layouts[i].tp, layouts[i].dp, layouts[i].pp);
        close_run(many);
        scratch_close(&to);
    }
    scratch_close(&from);
}

/* ---- several rules ---- */

/* Chunks of all rules, three of them with one state and one with none, and rates of their own. */
#define RULES                                                                                      \
    "rule=h.*.attn.*=lion,wte.*=sgd,*.bias=sgd,h.[02].mlp.*.weight=muon,h.1.mlp.c_fc.*=none"
#define RATES                                                                                      \
    "lr-of=h.0.*=0.5,wte.*=2", "decay-of=*.bias=0.3,h.2.*=0", "momentum=0.9", "nesterov=true"

static const struct {
    layout layout;
    const char *settings[SETTINGS_MAX];
} rule_ways[] = {
    {{1, 2, 1}, {"zero=1", "policy=host", "accumulate=6", CLIP, RATES}},
    {{1, 3, 1}, {"zero=2", "policy=device", "accumulate=4", "accumulation=layer", CLIP, RATES}},
    {{1, 2, 1},
     {"zero=3", "policy=nvme", disk_dir, "nvme-params=1", "nvme-grads=1", "accumulate=6",
      "chunk-size=40960", CLIP, RATES}},
    {{1, 1, 3}, {"policy=host", "schedule=1f1b", "accumulate=12", CLIP, RATES}},
    {{1, 2, 2}, {"zero=2", "policy=static", "offload-optimizer=0.5", "accumulate=6", CLIP, RATES}}};

/* Each against as many data-parallel ranks without stages, everything on the device at stage 0. */
static void steps_when_tensors_have_several_rules_then_have_the_same_bits(void **state)
{
    (void)state;
    static const char *const accumulates[] = {"accumulate=6", "accumulate=4", "accumulate=6",
                                              "accumulate=12", "accumulate=6"};
    for (size_t w = 0; w < sizeof rule_ways / sizeof *rule_ways; w++) {
        const char *precision = w % 2 ? "precision=bf16" : "precision=fp32";
        const char *const plain[] = {"zero=0", "policy=device", accumulates[w], CLIP, RATES, NULL};
        const layout l = rule_ways[w].layout, without = {l.tp, l.dp, 1};
        char what[96];
        snprintf(what, sizeof what, "several rules, way %zu, %s", w, precision);
        check_same_bits(open_ranks(without, plain, precision, RULES),
                        open_ranks(l, rule_ways[w].settings, precision, RULES), what);
    }
}

/* Parts of a matrix are gathered in the order of the ranks, and its sums have that order.
 * Directions of small singular values are multiplied by up to 485, and the roundings of gradients
 * with them. */
static void losses_when_split_matrices_have_muon_then_are_near_those_of_one_rank(void **state)
{
    (void)state;
    static const struct {
        layout layout;
        const char *settings[SETTINGS_MAX];
    } split_ways[] = {{{2, 1, 1}, {"split-layout=megatron", "policy=host"}},
                      {{3, 1, 1}, {"split-layout=colossal", "policy=device"}},
                      {{2, 2, 1}, {"zero=3", "policy=host"}}};
    static const char *const plain[] = {"policy=device", NULL};
    const double bound = 1e-6; /* measured: 3e-9 */
    for (size_t w = 0; w < sizeof split_ways / sizeof *split_ways; w++) {
        const layout alone = {1, split_ways[w].layout.dp, 1};
        ranks_run *one = open_ranks(alone, plain, "precision=fp32", "optimizer=muon");
        ranks_run *many = open_ranks(split_ways[w].layout, split_ways[w].settings, "precision=fp32",
                                     "optimizer=muon");
        for (int step = 0; step < STEPS; step++) {
            take_step(one);
            take_step(many);
            if (!(fabs(many->rank[0].loss / one->rank[0].loss - 1) <= bound))
                fail_msg("way %zu, step %d: loss %.9g, not %.9g", w, step, many->rank[0].loss,
                         one->rank[0].loss);
        }
        check_peaks(many);
        close_run(one);
        close_run(many);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_when_tensors_are_frozen_then_the_others_have_the_same_bits),
        cmocka_unit_test(steps_when_shards_have_stateless_tensors_then_have_the_bits_of_stage_0),
        cmocka_unit_test(policies_when_split_tensors_are_frozen_then_give_the_same_bits),
        cmocka_unit_test(gradients_when_split_tensors_are_frozen_then_are_those_of_one_rank),
        cmocka_unit_test(steps_when_stages_have_stateless_tensors_then_have_the_bits_of_one_rank),
        cmocka_unit_test(steps_when_stages_and_rows_are_shared_then_have_the_bits_without_stages),
        cmocka_unit_test(checkpoints_when_tensors_are_frozen_then_are_equal_on_any_ranks),
        cmocka_unit_test(steps_when_tensors_have_several_rules_then_have_the_same_bits),
        cmocka_unit_test(losses_when_split_matrices_have_muon_then_are_near_those_of_one_rank),
    };
    return cmocka_run_group_tests(tests, open_disk, close_disk);
}
