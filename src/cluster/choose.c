#include "choose.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "config/config.h"
#include "machine/exchange_cost.h"

enum { MICRO_BATCH_MAX = 16 };

static const double gain = 0.999; /* of a time, below which another one is better */

/* Homes, from most on the device to most on drives: shares of moments and master, gradients,
 * parameters on the host (STATIC) or on drives (NVME). */
static const struct {
    sl_policy policy;
    double moments, grads, params;
} homes[] = {
    {SL_POLICY_DEVICE, 0, 0, 0}, {SL_POLICY_STATIC, 0.5, 0, 0}, {SL_POLICY_STATIC, 1, 0, 0},
    {SL_POLICY_STATIC, 1, 1, 0}, {SL_POLICY_HOST, 0, 0, 0},     {SL_POLICY_NVME, 1, 0, 0},
    {SL_POLICY_NVME, 1, 1, 0},   {SL_POLICY_NVME, 1, 1, 1},
};

enum { HOME_COUNT = sizeof homes / sizeof homes[0] };

typedef struct sampled {
    uint32_t tensor, micro_batch;
    sl_recompute recompute;
    bool stores_sums, is_possible;
    sl_layer_costs costs;
} sampled;

struct sl_cluster_samples {
    sampled *items;
    uint64_t count, capacity;
};

typedef struct chooser {
    const sl_cluster_question *question;
    sl_cluster_samples *samples;
    sl_cluster_estimate *estimates; /* that fit */
    uint64_t estimate_count, estimate_capacity;
    sl_cluster_answer *answer;
} chooser;

static void set_homes(uint32_t index, sl_policy_options *placement)
{
    *placement = (sl_policy_options){.policy = homes[index].policy};
    double *shares =
        homes[index].policy == SL_POLICY_NVME ? placement->disk_fraction : placement->host_fraction;
    shares[SL_GROUP_PARAM] = homes[index].params;
    shares[SL_GROUP_GRAD] = homes[index].grads;
    shares[SL_GROUP_MASTER] = shares[SL_GROUP_STATE1] = shares[SL_GROUP_STATE2] =
        homes[index].moments;
}

/* ---- costs of layers, each planned once ---- */

static sampled *find_sample(const chooser *self, const sl_layer_cost_args *sample)
{
    for (uint64_t i = 0; i < self->samples->count; i++) {
        sampled *it = &self->samples->items[i];
        if (it->tensor == sample->tensor_ranks && it->micro_batch == sample->micro_batch &&
            it->recompute == sample->recompute && it->stores_sums == sample->stores_sums)
            return it;
    }
    return NULL;
}

/* A shape that does not divide so is no failure: `is_possible` says it. */
static sl_status take_sample(chooser *self, const sl_cluster_candidate *candidate,
                             const sampled **out_sampled)
{
    const sl_layer_cost_args sample = sl_cluster_layer_args(&self->question->job, candidate);
    sl_cluster_samples *all = self->samples;
    *out_sampled = find_sample(self, &sample);
    if (*out_sampled)
        return SL_OK;
    SL_TRY(SL_ARRAY_RESERVE(all->items, all->count + 1, all->capacity, "candidates"));
    sampled *it = &all->items[all->count];
    *it = (sampled){
        sample.tensor_ranks, sample.micro_batch, sample.recompute, sample.stores_sums, true, {{0}}};
    sl_status status = sl_layer_cost_measure(&sample, &it->costs);
    if (status == SL_ERROR_USAGE)
        it->is_possible = false;
    else
        SL_TRY(status);
    all->count++;
    *out_sampled = it;
    return SL_OK;
}

/* ---- candidates ---- */

static bool is_open_to(int fixed, int value)
{
    return fixed == SL_CLUSTER_OPEN || fixed == value;
}

static void note_miss(chooser *self, const sl_cluster_estimate *estimate, sl_tier tier,
                      uint64_t missing)
{
    sl_cluster_miss *miss = &self->answer->miss;
    if (miss->missing_bytes == 0 || missing < miss->missing_bytes)
        *miss = (sl_cluster_miss){estimate->candidate, tier, missing, estimate->budget[tier]};
}

static sl_status add_candidate(chooser *self, const sl_cluster_candidate *candidate,
                               const sl_layer_costs *costs, bool *out_fits)
{
    const sl_cluster_job *job = &self->question->job;
    sl_cluster_estimate estimate = {.candidate = *candidate};
    sl_tier tier;
    uint64_t missing;
    self->answer->considered++;
    *out_fits = false;
    if (!sl_cluster_fits(job, costs, &estimate, &tier, &missing)) {
        note_miss(self, &estimate, tier, missing);
        return SL_OK;
    }
    SL_TRY(sl_cluster_bound(job, costs, &estimate));
    *out_fits = true;
    SL_TRY(SL_ARRAY_RESERVE(self->estimates, self->estimate_count + 1, self->estimate_capacity,
                            "candidates"));
    self->estimates[self->estimate_count++] = estimate;
    self->answer->fitting++;
    return SL_OK;
}

static bool may_live(const sl_cluster_question *question, uint32_t index)
{
    const bool has_drives = question->job.cluster->disk_bytes > 0;
    return is_open_to(question->policy, (int)homes[index].policy) &&
           (has_drives || homes[index].policy != SL_POLICY_NVME);
}

static sl_status try_homes(chooser *self, sl_cluster_candidate *candidate)
{
    const sl_cluster_question *question = self->question;
    const sampled *sample;
    SL_TRY(take_sample(self, candidate, &sample));
    const sl_layer_costs costs = sample->costs; /* the list may move */
    for (int zero = 0; sample->is_possible && zero <= 3; zero++) {
        if (!is_open_to(question->zero, zero) ||
            (zero > 0 && candidate->layout.data == 1 && question->zero == SL_CLUSTER_OPEN))
            continue;
        candidate->zero = (uint32_t)zero;
        bool fits = false; /* what is moved less is not slower: the first that fits is taken */
        for (uint32_t i = 0; i < HOME_COUNT && !fits; i++) {
            set_homes(i, &candidate->placement);
            if (may_live(question, i))
                SL_TRY(add_candidate(self, candidate, &costs, &fits));
        }
    }
    return SL_OK;
}

/* Orders of one stage: by micro-batch and by layer; of several: 1F1B and gpipe. */
static sl_status try_orders(chooser *self, sl_cluster_candidate *candidate)
{
    const sl_cluster_question *question = self->question;
    const bool has_stages = candidate->layout.stages > 1;
    for (int order = 0; order < 2; order++) {
        const int fixed = has_stages ? question->is_gpipe : question->accumulation;
        if (!is_open_to(fixed, order) || (order == 1 && candidate->accumulate == 1))
            continue;
        candidate->is_gpipe = has_stages && order == 1;
        candidate->accumulation =
            !has_stages && order == 1 ? SL_ACCUMULATE_LAYER : SL_ACCUMULATE_MICRO;
        for (int recompute = 0; recompute < 3; recompute++) {
            candidate->recompute = (sl_recompute)recompute;
            if (is_open_to(question->recompute, recompute))
                SL_TRY(try_homes(self, candidate));
        }
    }
    return SL_OK;
}

static sl_status try_micro_batches(chooser *self, const sl_comm_layout *layout)
{
    const sl_cluster_question *question = self->question;
    const uint64_t rows = question->job.global_batch;
    const uint32_t fixed = question->micro_batch, most = fixed ? fixed : MICRO_BATCH_MAX;
    for (uint32_t b = fixed ? fixed : 1; b <= most; b *= 2) {
        const uint64_t at_once = (uint64_t)b * layout->data;
        if (rows % at_once != 0 || rows / at_once > SL_CONFIG_ACCUMULATE_MAX ||
            rows / at_once * layout->stages > SL_PIPELINE_PASSES_MAX)
            continue;
        sl_cluster_candidate candidate = {
            .layout = *layout, .micro_batch = b, .accumulate = (uint32_t)(rows / at_once)};
        SL_TRY(try_orders(self, &candidate));
    }
    return SL_OK;
}

/* A tensor is split within a node, unless somebody asks for more; or, of machines that are there,
 * over whole ones: what joins them was measured. */
static bool may_split(const sl_cluster_question *question, uint32_t tensor)
{
    const sl_cluster *cluster = question->job.cluster;
    const bool is_over_nodes = cluster->rank && tensor % cluster->node_gpus == 0;
    if (question->tensor)
        return tensor == question->tensor;
    return sl_model_shape_may_split(&question->job.shape, tensor) &&
           (cluster->node_gpus % tensor == 0 || is_over_nodes);
}

static sl_status try_layouts(chooser *self)
{
    const sl_cluster_question *question = self->question;
    const uint32_t ranks = question->job.ranks, layers = question->job.shape.layers;
    for (uint32_t tensor = 1; tensor <= ranks; tensor++) {
        if (ranks % tensor != 0 || !may_split(question, tensor))
            continue;
        for (uint32_t stages = 1; stages <= ranks / tensor && stages <= layers; stages++) {
            const sl_comm_layout layout = {tensor, ranks / tensor / stages, stages};
            if (ranks / tensor % stages != 0 || (question->stages && stages != question->stages) ||
                (question->data && layout.data != question->data))
                continue;
            SL_TRY(try_micro_batches(self, &layout));
        }
    }
    return SL_OK;
}

/* ---- the best ---- */

/* A stage of ZeRO that saves next to nothing is not worth its exchanges. */
static double weigh(const sl_cluster_estimate *estimate)
{
    return estimate->bound_seconds * (1 + 2e-4 * estimate->candidate.zero);
}

enum { CANDIDATE_NUMBERS = 9 };

static void list_numbers(const sl_cluster_candidate *it, uint32_t out_numbers[CANDIDATE_NUMBERS])
{
    const uint32_t numbers[CANDIDATE_NUMBERS] = {
        it->layout.tensor,       it->layout.data,        it->layout.stages,
        it->micro_batch,         it->accumulate,         it->zero,
        (uint32_t)it->recompute, (uint32_t)it->is_gpipe, (uint32_t)it->accumulation};
    memcpy(out_numbers, numbers, sizeof numbers);
}

/* Some order, always the same; of each set of these numbers there is one candidate. */
static int compare_candidates(const sl_cluster_candidate *one, const sl_cluster_candidate *other)
{
    uint32_t numbers[CANDIDATE_NUMBERS], others[CANDIDATE_NUMBERS];
    list_numbers(one, numbers);
    list_numbers(other, others);
    for (int i = 0; i < CANDIDATE_NUMBERS; i++)
        if (numbers[i] != others[i])
            return numbers[i] < others[i] ? -1 : 1;
    return 0;
}

static int compare_bounds(const void *a, const void *b)
{
    const sl_cluster_estimate *one = a, *other = b;
    if (weigh(one) != weigh(other))
        return weigh(one) < weigh(other) ? -1 : 1;
    const uint64_t bytes = one->bytes[SL_TIER_DEVICE], others = other->bytes[SL_TIER_DEVICE];
    if (bytes != others)
        return bytes < others ? -1 : 1;
    return compare_candidates(&one->candidate, &other->candidate);
}

static uint32_t find_layout(const sl_cluster_answer *answer, const sl_comm_layout *layout)
{
    uint32_t i = 0;
    while (i < answer->count &&
           memcmp(&answer->best[i].candidate.layout, layout, sizeof *layout) != 0)
        i++;
    return i;
}

/* Puts an estimate where it belongs; each layout stands once. */
static void keep(sl_cluster_answer *answer, const sl_cluster_estimate *estimate,
                 const sl_layer_costs *costs)
{
    uint32_t at = find_layout(answer, &estimate->candidate.layout);
    if (at == answer->count && answer->count < SL_CLUSTER_BEST)
        answer->count++;
    at = at < answer->count ? at : answer->count - 1;
    for (; at > 0 && answer->best[at - 1].step_seconds > estimate->step_seconds; at--) {
        answer->best[at] = answer->best[at - 1];
        answer->costs[at] = answer->costs[at - 1];
    }
    answer->best[at] = *estimate;
    answer->costs[at] = *costs;
}

/* The time that another one of this layout has to beat. */
static double time_to_beat(const sl_cluster_answer *answer, const sl_comm_layout *layout)
{
    const uint32_t at = find_layout(answer, layout);
    if (at < answer->count)
        return gain * answer->best[at].step_seconds;
    if (answer->count < SL_CLUSTER_BEST)
        return 1e300;
    return answer->best[SL_CLUSTER_BEST - 1].step_seconds;
}

/* ---- the whole plan of what can be run ---- */

static void take_plan(const sl_blueprint *blueprint, const sl_simulation *simulation,
                      sl_cluster_estimate *estimate)
{
    double *share = estimate->share_seconds, rest;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        estimate->bytes[tier] = sl_blueprint_peak_bytes(blueprint, (sl_tier)tier);
    estimate->step_seconds = simulation->step_seconds;
    rest = simulation->step_seconds;
    const double exchange = simulation->stall_seconds[SL_LANE_COMM];
    if (share[SL_CLUSTER_TENSOR] > exchange)
        share[SL_CLUSTER_TENSOR] = exchange;
    share[SL_CLUSTER_DATA] = exchange - share[SL_CLUSTER_TENSOR];
    share[SL_CLUSTER_VISITS] = 0;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        if (sl_lane_copies((sl_lane)lane))
            share[SL_CLUSTER_VISITS] += simulation->stall_seconds[lane];
    share[SL_CLUSTER_BUBBLE] = 0;
    rest -= exchange + share[SL_CLUSTER_VISITS];
    rest = rest > 0 ? rest : 0;
    if (share[SL_CLUSTER_UPDATE] > rest) /* of the costs of layers, which know no waits */
        share[SL_CLUSTER_UPDATE] = rest;
    share[SL_CLUSTER_COMPUTE] = rest - share[SL_CLUSTER_UPDATE];
    estimate->is_planned = true;
}

static sl_status plan_whole(const sl_cluster_job *job, sl_cluster_estimate *estimate)
{
    const sl_cluster_candidate *candidate = &estimate->candidate;
    const sl_layer_cost_args sample = sl_cluster_layer_args(job, candidate);
    sl_task task = sl_layer_cost_task(&sample, &candidate->layout, job->shape.layers);
    const sl_choice choice = {.prefetch = SL_PREFETCH_AUTO,
                              .micro_batch = candidate->micro_batch,
                              .accumulate = candidate->accumulate,
                              .recompute = candidate->recompute,
                              .accumulation = candidate->accumulation,
                              .placement = candidate->placement,
                              .device_memory = estimate->budget[SL_TIER_DEVICE],
                              .host_memory = estimate->budget[SL_TIER_HOST],
                              .disk_space = estimate->budget[SL_TIER_DISK]};
    sl_blueprint *blueprint = NULL;
    sl_fit_failure failure;
    sl_simulation simulation;
    task.zero = candidate->zero;
    task.is_probe = false;
    SL_TRY(sl_blueprint_build(&task, &choice, &blueprint, &failure));
    sl_status status = sl_plan_simulate(blueprint->programs[0], blueprint->plans[0],
                                        &blueprint->machine, &simulation);
    if (status == SL_OK)
        take_plan(blueprint, &simulation, estimate);
    sl_blueprint_close(blueprint);
    return status;
}

/* One that does not fit as a whole plan is passed over. */
static sl_status simulate(chooser *self, sl_cluster_estimate *estimate)
{
    const sl_cluster_question *question = self->question;
    const sampled *sample;
    SL_TRY(take_sample(self, &estimate->candidate, &sample));
    SL_TRY(sl_cluster_time(&question->job, &sample->costs, NULL, estimate));
    self->answer->simulated++;
    if (estimate->step_seconds >= time_to_beat(self->answer, &estimate->candidate.layout))
        return SL_OK;
    if (question->plans && estimate->candidate.layout.stages == 1) {
        sl_status status = plan_whole(&question->job, estimate);
        if (status == SL_ERROR_FIT)
            return SL_OK;
        SL_TRY(status);
        if (estimate->step_seconds >= time_to_beat(self->answer, &estimate->candidate.layout))
            return SL_OK;
    }
    keep(self->answer, estimate, &sample->costs);
    return SL_OK;
}

static sl_status choose(chooser *self)
{
    SL_TRY(try_layouts(self));
    self->answer->sampled = (uint32_t)self->samples->count;
    if (self->answer->considered == 0)
        SL_FAIL(SL_ERROR_USAGE,
                "no way to share %u ranks and --global-batch %" PRIu64
                " divides with at most %d micro-batches a rank: change one of them, or leave "
                "--tp, --pp, --dp and --micro-batch open",
                self->question->job.ranks, self->question->job.global_batch,
                SL_CONFIG_ACCUMULATE_MAX);
    if (self->estimate_count > 0)
        qsort(self->estimates, self->estimate_count, sizeof *self->estimates, compare_bounds);
    for (uint64_t i = 0; i < self->estimate_count; i++)
        if (self->estimates[i].bound_seconds <
            time_to_beat(self->answer, &self->estimates[i].candidate.layout))
            SL_TRY(simulate(self, &self->estimates[i]));
    if (self->answer->count == 0)
        SL_FAIL(SL_ERROR_FIT, "nothing fits");
    return SL_OK;
}

sl_status sl_cluster_samples_open(sl_cluster_samples **out_samples)
{
    sl_cluster_samples *samples = calloc(1, sizeof *samples);
    if (!samples)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the costs of layers");
    *out_samples = samples;
    return SL_OK;
}

void sl_cluster_samples_close(sl_cluster_samples *samples)
{
    if (samples)
        free(samples->items);
    free(samples);
}

sl_status sl_cluster_choose(const sl_cluster_question *question, sl_cluster_answer *out_answer)
{
    sl_cluster_samples own = {.count = 0};
    *out_answer = (sl_cluster_answer){.count = 0};
    chooser self = {.question = question,
                    .samples = question->samples ? question->samples : &own,
                    .answer = out_answer};
    sl_status status = choose(&self);
    free(own.items);
    free(self.estimates);
    return status;
}
