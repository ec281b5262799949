/* What a configuration leaves open; the first choice that fits; then the fastest. See suggest.c for
 * what would fit when none does. */
#include "search.h"

#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "base/limits.h"
#include "base/log.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "session/config/config.h"
#include "session/config/units.h"
#include "session/machine/disk.h"
#include "session/machine/profile.h"

enum { CONFIRM_ROUNDS = 16, BUILDS_MAX = 48 };

static const double gain = 0.98; /* of the best time, below which a change is worth while */

static const char *const policy_names[] = {"device", "host", "static", "nvme"};
static const char *const recompute_names[] = {"none", "selective", "full"};
static const char *const accumulation_names[] = {"micro", "layer"};

const char *sl_search_policy_name(sl_policy policy)
{
    return policy_names[policy];
}

const char *sl_search_recompute_name(sl_recompute recompute)
{
    return recompute_names[recompute];
}

const char *sl_search_accumulation_name(sl_accumulation accumulation)
{
    return accumulation_names[accumulation];
}

/* ---- candidates ---- */

/* The homes that `auto` tries. Each takes less of the device than the one before, and more of the
 * host, up to the first on disk; from there less of both. What is used least often leaves the
 * device first, and the host for the disk. */
static const struct {
    sl_policy policy;
    double moments, grads, params; /* on the host with static, on disk with nvme */
} candidates[] = {
    {SL_POLICY_DEVICE, 0, 0, 0},    {SL_POLICY_STATIC, 0.25, 0, 0}, {SL_POLICY_STATIC, 0.5, 0, 0},
    {SL_POLICY_STATIC, 0.75, 0, 0}, {SL_POLICY_STATIC, 1, 0, 0},    {SL_POLICY_STATIC, 1, 0.5, 0},
    {SL_POLICY_STATIC, 1, 1, 0},    {SL_POLICY_STATIC, 1, 1, 0.5},  {SL_POLICY_HOST, 0, 0, 0},
    {SL_POLICY_NVME, 0.5, 0, 0},    {SL_POLICY_NVME, 1, 0, 0},      {SL_POLICY_NVME, 1, 1, 0},
    {SL_POLICY_NVME, 1, 1, 1},
};

enum {
    CANDIDATE_COUNT = sizeof candidates / sizeof candidates[0],
    FIRST_ON_DISK = 9,
    LEAST_ON_DEVICE = FIRST_ON_DISK - 1
};

/* Those on disk count only where there is a directory. */
static uint32_t count_candidates(const sl_search *search)
{
    return search->task.disk_directory_count > 0 ? CANDIDATE_COUNT : FIRST_ON_DISK;
}

/* Shares by kind of state: the moments' also for the master copy. */
static void set_shares(double fraction[SL_GROUP_COUNT], double moments, double grads, double params)
{
    fraction[SL_GROUP_PARAM] = params;
    fraction[SL_GROUP_GRAD] = grads;
    fraction[SL_GROUP_MASTER] = moments;
    fraction[SL_GROUP_MOMENT1] = moments;
    fraction[SL_GROUP_MOMENT2] = moments;
}

/* Where updates run stays as it is. */
static void set_candidate(uint32_t index, sl_choice *choice)
{
    sl_policy_options placement = {.policy = candidates[index].policy,
                                   .adam = choice->placement.adam};
    bool is_on_disk = placement.policy == SL_POLICY_NVME;
    set_shares(is_on_disk ? placement.disk_fraction : placement.host_fraction,
               candidates[index].moments, candidates[index].grads, candidates[index].params);
    choice->placement = placement;
}

/* The next one that may fit after this one missed bytes in `short_tier`; UINT32_MAX: none. */
static uint32_t find_next_candidate(uint32_t index, sl_tier short_tier)
{
    if (short_tier == SL_TIER_DISK)
        return UINT32_MAX; /* later ones need more of it */
    if (short_tier == SL_TIER_HOST && index + 1 < FIRST_ON_DISK)
        return FIRST_ON_DISK;
    return index + 1;
}

uint64_t *sl_search_budget(sl_choice *choice, sl_tier tier)
{
    if (tier == SL_TIER_DISK)
        return &choice->disk_space;
    return tier == SL_TIER_HOST ? &choice->host_memory : &choice->device_memory;
}

/* ---- what a configuration asks for ---- */

/* What the rules of the machine leave, of which sluice takes four fifths. */
static sl_status measure_shared_bytes(uint64_t *out_bytes)
{
    uint64_t free_bytes;
    SL_TRY(sl_device_host_free_bytes(&free_bytes));
    *out_bytes = free_bytes / 5 * 4;
    return SL_OK;
}

static uint64_t unset_to(uint64_t value, uint64_t when_unset)
{
    return value == SL_CONFIG_UNSET ? when_unset : value;
}

/* The homes that the options ask for. With nvme the states are on disk unless a share was given. */
static sl_policy_options read_placement(const sl_config *config)
{
    bool is_auto = config->policy == SL_CONFIG_POLICY_AUTO;
    sl_policy_options placement = {
        .policy = is_auto ? SL_POLICY_DEVICE : (sl_policy)config->policy,
        .adam = (sl_adam_place)config->adam,
    };
    bool is_implied =
        config->policy == SL_POLICY_NVME && !config->given[SL_CONFIG_ROW_nvme_optimizer];
    set_shares(placement.host_fraction, config->offload_optimizer, config->offload_grads,
               config->offload_params);
    set_shares(placement.disk_fraction, is_implied ? 1 : config->nvme_optimizer, config->nvme_grads,
               config->nvme_params);
    return placement;
}

/* The disk tier's directories and how much they hold: nine tenths of what is free. */
static sl_status init_disk(const sl_config *config, sl_search *search)
{
    search->task.disk_directories = (const char *const *)config->disk_dir.items;
    search->task.disk_directory_count = config->disk_dir.count;
    search->task.disk_endurance = config->disk_endurance;
    uint64_t free_bytes;
    SL_TRY(sl_disk_free_bytes(search->task.disk_directories, config->disk_dir.count, &free_bytes));
    search->disk_free_bytes = free_bytes / 10 * 9;
    search->fixed.disk_space = unset_to(config->disk_space, search->disk_free_bytes);
    return SL_OK;
}

/* A disk tier in memory takes from the memory that device and host share. Where its budget is unset
 * it gets no more than half of that. */
static void share_memory_with_disk(const sl_config *config, sl_search *search)
{
    const uint32_t count = config->disk_dir.count;
    uint32_t in_memory = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!sl_limits_is_in_memory(config->disk_dir.items[i]))
            continue;
        in_memory++;
        sl_log_write(SL_LOG_WARNING,
                     "--disk-dir %s is memory (tmpfs): what lies there counts as host memory and "
                     "saves none; give a directory on a drive",
                     config->disk_dir.items[i]);
    }
    if (in_memory == 0)
        return;
    uint64_t *shared = &search->task.shared_bytes, most = *shared / 2 / in_memory * count;
    search->disk_free_bytes = search->disk_free_bytes < most ? search->disk_free_bytes : most;
    search->fixed.disk_space = unset_to(config->disk_space, search->disk_free_bytes);
    uint64_t taken = sl_bits_divide_up(search->fixed.disk_space, count) * in_memory;
    *shared -= taken < *shared ? taken : *shared;
}

/* What the kernels' libraries load as they go on is not for us to take. */
static uint64_t keep_reserve(uint64_t free_bytes)
{
    uint64_t most = free_bytes / 8;
    return free_bytes - (most < SL_SEARCH_RESERVE_BYTES ? most : SL_SEARCH_RESERVE_BYTES);
}

/* A plan needs no device if its memory is given: the kernels know their workspace without one. */
static sl_status init_gpu(const sl_config *config, sl_search *search)
{
    sl_task *task = &search->task;
    sl_status status = sl_config_query_device(config, &task->device_info);
    task->device_bytes = keep_reserve(task->device_info.free_bytes);
    if (status == SL_OK)
        return SL_OK;
    task->device_info = (sl_device_info){.numa_node = -1};
    task->device_bytes = UINT64_MAX;
    if (!sl_kernels_of(task->target.device) || task->work != SL_WORK_TRAIN)
        return status;
    if (config->device_memory == SL_CONFIG_UNSET)
        return sl_status_prefix(status, "give --device-memory to plan for a GPU elsewhere");
    sl_log_write(SL_LOG_NOTE, "planning for a GPU that is not here: %s", sl_status_message());
    return SL_OK;
}

static sl_status init_device(const sl_config *config, sl_search *search)
{
    sl_engine_target *target = &search->task.target;
    SL_TRY(sl_config_parse_device(config->device, &target->device, &target->device_index));
    target->device_index += target->device == SL_DEVICE_CUDA ? (int)config->local_rank : 0;
    target->worker_count = (uint32_t)config->threads;
    target->cuda = sl_config_cuda(config);
    SL_TRY(measure_shared_bytes(&search->task.shared_bytes));
    return target->device == SL_DEVICE_CPU ? SL_OK : init_gpu(config, search);
}

/* What was measured of this machine, if it was; a file that was named must be there. */
static sl_status init_machine(const sl_config *config, sl_search *search)
{
    char note[SL_PROFILE_NOTE_BYTES];
    const sl_task *task = &search->task;
    bool is_gpu_here = *task->device_info.name != '\0';
    const sl_profile_subject subject = {task->target.device, task->target.worker_count,
                                        is_gpu_here ? &task->device_info : NULL};
    SL_TRY(sl_profile_find_machine(config->machine, &subject, &search->task.machine, note));
    if (config->machine && *note)
        sl_log_write(SL_LOG_WARNING, "%s", note);
    return SL_OK;
}

static void init_training(const sl_config *config, sl_search *search)
{
    search->task.with_evaluation = config->eval_data.count > 0;
    /* Only then is no update ever taken back, and none has to wait for the norm. */
    search->task.update_early = config->clip == 0 && config->nonfinite == SL_CONFIG_STOP &&
                                !sl_config_scales_dynamically(config);
    search->task.sequence_parallel = config->sequence_parallel;
    search->task.split_layout = (sl_split_layout)config->split_layout;
    search->task.partition_activations = config->partition_activations;
    search->task.dropout = (float)config->dropout;
    search->fixed.disk_activations = config->nvme_activations;
    search->fixed.host_activations = config->offload_activations;
    /* On the cpu device both places are the same cores. */
    search->auto_adam = config->adam == SL_ADAM_AUTO && search->task.target.device != SL_DEVICE_CPU;
    search->auto_recompute = config->recompute == SL_CONFIG_RECOMPUTE_AUTO;
    search->auto_accumulation =
        config->accumulation == SL_CONFIG_ACCUMULATION_AUTO && config->pp == 1;
    search->fixed.accumulate = (uint32_t)config->accumulate;
    if (!search->auto_recompute)
        search->fixed.recompute = (sl_recompute)config->recompute;
    if (config->accumulation != SL_CONFIG_ACCUMULATION_AUTO)
        search->fixed.accumulation = (sl_accumulation)config->accumulation;
}

/* ---- layers of stages ---- */

/* What the ops of a segment take forward; backward all take about twice that. */
static double find_segment_seconds(const sl_program *forward, const sl_segment *segment,
                                   const sl_machine *machine)
{
    double seconds = 0;
    for (uint32_t o = segment->first_op; o < segment->first_op + segment->op_count; o++)
        seconds +=
            sl_machine_op_seconds(machine, forward->ops[o].kind, &forward->ops[o].attrs, false);
    return seconds;
}

/* Of a model of one layer, for all are alike. */
static sl_status find_stage_costs(const sl_search *search, sl_stages_costs *out_costs)
{
    const sl_task *task = &search->task;
    sl_gpt2_shape shape = task->shape;
    const sl_gpt2_emit_options options = {.batch = search->fixed.micro_batch,
                                          .seq = task->seq,
                                          .tp_size = task->tp_size,
                                          .type = task->type,
                                          .grad_type = SL_TYPE_FP32,
                                          .split_layout = task->split_layout};
    sl_program *forward;
    bool is_behind = false;
    shape.layers = 1;
    *out_costs = (sl_stages_costs){0};
    SL_TRY(sl_gpt2_emit(&shape, &options, &forward));
    for (uint32_t s = 0; s < forward->segment_count; s++) {
        const sl_segment *segment = &forward->segments[s];
        double *cost = is_behind ? &out_costs->head : &out_costs->embedding;
        if (segment->is_block)
            cost = &out_costs->layer;
        is_behind = is_behind || segment->is_block;
        *cost += find_segment_seconds(forward, segment, &task->machine);
    }
    sl_program_close(forward);
    return SL_OK;
}

/* Where there are too few layers, who emits them says so. */
static sl_status divide_layers(const sl_config *config, sl_search *search)
{
    sl_task *task = &search->task;
    const sl_stages_kind kind = sl_stages_kind_of(config);
    sl_stages_costs costs;
    if (task->stage_count <= 1 || kind == SL_STAGES_UNIFORM ||
        task->stage_count > task->shape.layers)
        return SL_OK;
    if (kind == SL_STAGES_LIST)
        return sl_stages_read(config, task->shape.layers, task->stage_ends);
    SL_TRY(find_stage_costs(search, &costs));
    sl_stages_balance(&costs, task->shape.layers, task->stage_count, task->stage_ends);
    return SL_OK;
}

sl_status sl_search_init(const sl_config *config, sl_work work, const sl_gpt2_shape *shape,
                         sl_search *out_search)
{
    sl_search search = {
        .task = {.work = work, .shape = *shape, .type = (sl_type)config->precision}};
    SL_TRY(init_disk(config, &search));
    SL_TRY(init_device(config, &search));
    share_memory_with_disk(config, &search);
    SL_TRY(init_machine(config, &search));
    search.task.tp_size = work == SL_WORK_TRAIN ? (uint32_t)config->tp : 1;
    search.task.target.rank_count = search.task.tp_size;
    if (work == SL_WORK_TRAIN)
        search.task.dp_size = (uint32_t)unset_to(config->dp, 1);
    search.task.stage_count = work == SL_WORK_TRAIN ? (uint32_t)config->pp : 1;
    search.task.target.stage_count = search.task.stage_count;
    search.task.schedule = (sl_schedule)config->schedule;
    search.task.zero = (uint32_t)config->zero;
    search.task.target.data_rank_count = search.task.dp_size;
    search.task.chunk_elements = unset_to(config->chunk_size, 0);
    search.task.prefetch = (uint32_t)unset_to(config->prefetch, SL_PREFETCH_AUTO);
    search.fixed.micro_batch =
        (uint32_t)(work == SL_WORK_GENERATE ? config->samples : config->micro_batch);
    search.fixed.accumulate = 1;
    search.fixed.device_memory = config->device_memory;
    search.fixed.host_memory = config->host_memory;
    search.auto_policy = config->policy == SL_CONFIG_POLICY_AUTO;
    search.fixed.placement = read_placement(config);
    search.task.by_document = work != SL_WORK_GENERATE && config->documents == SL_CONFIG_RESET;
    if (work != SL_WORK_GENERATE)
        search.task.seq = (uint32_t)config->seq;
    if (work == SL_WORK_TRAIN)
        init_training(config, &search);
    SL_TRY(divide_layers(config, &search));
    *out_search = search;
    return SL_OK;
}

/* ---- the first choice that fits ---- */

/* Layer by layer saves moves of parameters and gradients, and costs memory for activations. */
static sl_accumulation prefer_accumulation(const sl_policy_options *placement)
{
    bool is_moving =
        placement->policy == SL_POLICY_HOST || placement->policy == SL_POLICY_NVME ||
        (placement->policy == SL_POLICY_STATIC && (placement->host_fraction[SL_GROUP_PARAM] > 0 ||
                                                   placement->host_fraction[SL_GROUP_GRAD] > 0));
    return is_moving ? SL_ACCUMULATE_LAYER : SL_ACCUMULATE_MICRO;
}

static sl_status fit_accumulations(const sl_search *search, sl_choice *choice,
                                   sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    if (!search->auto_accumulation || choice->accumulate == 1)
        return sl_blueprint_build(&search->task, choice, out_blueprint, out_failure);
    choice->accumulation = prefer_accumulation(&choice->placement);
    sl_status status = sl_blueprint_build(&search->task, choice, out_blueprint, out_failure);
    if (status != SL_ERROR_FIT || choice->accumulation == SL_ACCUMULATE_MICRO)
        return status;
    choice->accumulation = SL_ACCUMULATE_MICRO;
    return sl_blueprint_build(&search->task, choice, out_blueprint, out_failure);
}

static sl_status fit_candidate(const sl_search *search, uint32_t index, sl_choice *choice,
                               sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    set_candidate(index, choice);
    return fit_accumulations(search, choice, out_blueprint, out_failure);
}

/* Everything on the device if that fits; else a candidate can only fit if the one that takes least
 * of the device does, or would with more of the host. */
static sl_status fit_candidates(const sl_search *search, sl_choice *choice,
                                sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    if (!search->auto_policy)
        return fit_accumulations(search, choice, out_blueprint, out_failure);
    sl_status status = fit_candidate(search, 0, choice, out_blueprint, out_failure);
    if (status != SL_ERROR_FIT)
        return status;
    sl_blueprint *frugal = NULL;
    status = fit_candidate(search, LEAST_ON_DEVICE, choice, &frugal, out_failure);
    sl_blueprint_close(frugal);
    bool is_hopeless = status == SL_ERROR_FIT && out_failure->shortage.tier == SL_TIER_DEVICE;
    if (is_hopeless || (status != SL_OK && status != SL_ERROR_FIT))
        return status;
    for (uint32_t index = 1; index < count_candidates(search);) {
        status = fit_candidate(search, index, choice, out_blueprint, out_failure);
        if (status != SL_ERROR_FIT)
            return status;
        index = find_next_candidate(index, out_failure->shortage.tier);
    }
    return SL_ERROR_FIT;
}

static sl_status fit_recomputes(const sl_search *search, sl_choice *choice,
                                sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    if (!search->auto_recompute || search->task.work != SL_WORK_TRAIN)
        return fit_candidates(search, choice, out_blueprint, out_failure);
    for (int recompute = SL_RECOMPUTE_NONE; recompute <= SL_RECOMPUTE_FULL; recompute++) {
        choice->recompute = (sl_recompute)recompute;
        sl_status status = fit_candidates(search, choice, out_blueprint, out_failure);
        if (status != SL_ERROR_FIT)
            return status;
    }
    return SL_ERROR_FIT;
}

sl_status sl_search_run(const sl_search *search, sl_blueprint **out_blueprint,
                        sl_fit_failure *out_failure)
{
    sl_search probing = *search;
    sl_choice choice = search->fixed;
    probing.task.is_probe = true;
    sl_status status = fit_recomputes(&probing, &choice, out_blueprint, out_failure);
    if (status != SL_ERROR_FIT)
        return status;
    /* Once more, for the exact bytes of the last attempt. */
    return sl_blueprint_build(&search->task, &choice, out_blueprint, out_failure);
}

/* ---- the fastest, as far as a simulation can tell
 *
 * A plan costs time to build, so few are: a choice whose arithmetic alone takes longer than the
 * best plan so far is passed over, and of the candidates only both ends and a few between are
 * tried. A later choice must be faster by more than simulations are exact. Nothing here looks at a
 * clock: equal searches end equally. ---- */

typedef struct improvement {
    const sl_search *search;
    sl_task task;
    sl_blueprint *best;
    double best_seconds;
    uint32_t build_count;
} improvement;

static sl_status simulate(const sl_blueprint *blueprint, double *out_seconds)
{
    sl_simulation simulation;
    SL_TRY(sl_plan_simulate(blueprint->programs[0], blueprint->plans[0], &blueprint->machine,
                            &simulation));
    *out_seconds = simulation.step_seconds;
    return SL_OK;
}

static bool is_known(const sl_search_candidates *known, const sl_blueprint *blueprint,
                     double seconds)
{
    for (uint32_t i = 0; i < known->count; i++) {
        const sl_search_candidate *other = &known->best[i];
        bool is_same = other->seconds == seconds;
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            is_same = is_same &&
                      other->peak_bytes[tier] == sl_blueprint_peak_bytes(blueprint, (sl_tier)tier);
        if (is_same)
            return true;
    }
    return false;
}

/* Puts a plan into its place among the fastest, if it has one. */
static void note_candidate(const improvement *self, const sl_blueprint *blueprint, double seconds)
{
    sl_search_candidates *known = self->search->candidates;
    if (!known)
        return;
    known->planned_count++;
    uint32_t place = known->count;
    while (place > 0 && known->best[place - 1].seconds > seconds)
        place--;
    if (place == SL_SEARCH_CANDIDATES || is_known(known, blueprint, seconds))
        return;
    if (known->count < SL_SEARCH_CANDIDATES)
        known->count++;
    for (uint32_t i = known->count - 1; i > place; i--)
        known->best[i] = known->best[i - 1];
    known->best[place] = (sl_search_candidate){.choice = blueprint->choice, .seconds = seconds};
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        known->best[place].peak_bytes[tier] = sl_blueprint_peak_bytes(blueprint, (sl_tier)tier);
}

/* Plans a choice; it becomes the best one if it is. INFINITY and the short tier if it does not fit.
 */
static sl_status try_faster(improvement *self, const sl_choice *choice, double *out_seconds,
                            sl_tier *out_short_tier)
{
    sl_blueprint *blueprint = NULL;
    sl_fit_failure failure;
    double seconds = INFINITY;
    self->build_count++;
    sl_status status = sl_blueprint_build(&self->task, choice, &blueprint, &failure);
    if (status == SL_ERROR_FIT)
        *out_short_tier = failure.shortage.tier;
    else if (status == SL_OK)
        status = simulate(blueprint, &seconds);
    if (status == SL_OK)
        note_candidate(self, blueprint, seconds);
    *out_seconds = seconds;
    bool is_better = seconds < gain * self->best_seconds;
    sl_blueprint *slower = is_better ? self->best : blueprint;
    if (is_better) {
        self->best = blueprint;
        self->best_seconds = seconds;
    }
    sl_blueprint_close(slower);
    return status == SL_ERROR_FIT ? SL_OK : status;
}

/* The first candidate that the device holds, found by bisection; each that fits on the way may win.
 */
static sl_status improve_in_memory(improvement *self, sl_choice *choice)
{
    uint32_t low = 0, high = LEAST_ON_DEVICE; /* that one was tried */
    while (low < high && self->build_count < BUILDS_MAX) {
        uint32_t middle = (low + high) / 2;
        sl_tier short_tier =
            SL_TIER_HOST; /* where it fits, look below as where the host is short */
        double seconds;
        set_candidate(middle, choice);
        SL_TRY(try_faster(self, choice, &seconds, &short_tier));
        if (short_tier == SL_TIER_DEVICE)
            low = middle + 1;
        else
            high = middle;
    }
    return SL_OK;
}

static sl_status improve_on_disk(improvement *self, sl_choice *choice)
{
    uint32_t candidate_count = count_candidates(self->search);
    sl_tier short_tier = SL_TIER_HOST; /* what the disk can mend */
    for (uint32_t index = FIRST_ON_DISK;
         index < candidate_count && self->build_count < BUILDS_MAX && short_tier == SL_TIER_HOST;
         index++) {
        double seconds;
        short_tier = SL_TIER_DISK;
        set_candidate(index, choice);
        SL_TRY(try_faster(self, choice, &seconds, &short_tier));
    }
    return SL_OK;
}

/* The two ends of the candidates: least on the device, and as much there as fits. Where not
 * even the first fits, nothing does, unless the host is short and there is a disk. */
static sl_status improve_homes_of(improvement *self, sl_choice choice)
{
    double seconds;
    sl_tier short_tier = SL_TIER_HOST;
    if (!self->search->auto_policy)
        return try_faster(self, &choice, &seconds, &short_tier);
    set_candidate(LEAST_ON_DEVICE, &choice);
    SL_TRY(try_faster(self, &choice, &seconds, &short_tier));
    if (short_tier == SL_TIER_DEVICE)
        return SL_OK;
    bool is_host_short = !isfinite(seconds);
    SL_TRY(improve_in_memory(self, &choice));
    return is_host_short ? improve_on_disk(self, &choice) : SL_OK;
}

/* A host that is slow beside its link had better send its states to the device and back. */
static sl_status improve_homes(improvement *self, sl_choice choice)
{
    SL_TRY(improve_homes_of(self, choice));
    if (!self->search->auto_adam || self->best->choice.placement.policy == SL_POLICY_DEVICE)
        return SL_OK;
    choice.placement.adam = SL_ADAM_DEVICE;
    return improve_homes_of(self, choice);
}

/* One recomputation and one order of accumulation, with the homes that are open. */
static sl_status improve_order(improvement *self, const sl_choice *choice)
{
    double bound;
    if (self->build_count >= BUILDS_MAX)
        return SL_OK;
    SL_TRY(sl_blueprint_bound_seconds(&self->task, choice, &bound));
    return bound < gain * self->best_seconds ? improve_homes(self, *choice) : SL_OK;
}

static sl_status improve_accumulations(improvement *self, sl_choice choice)
{
    if (!self->search->auto_accumulation || choice.accumulate == 1)
        return improve_order(self, &choice);
    choice.accumulation = SL_ACCUMULATE_MICRO;
    SL_TRY(improve_order(self, &choice));
    choice.accumulation = SL_ACCUMULATE_LAYER;
    return improve_order(self, &choice);
}

static sl_status improve_recomputes(improvement *self)
{
    sl_choice choice = self->search->fixed;
    if (!self->search->auto_recompute || self->task.work != SL_WORK_TRAIN)
        return improve_accumulations(self, choice);
    for (int recompute = SL_RECOMPUTE_NONE; recompute <= SL_RECOMPUTE_FULL; recompute++) {
        choice.recompute = (sl_recompute)recompute;
        SL_TRY(improve_accumulations(self, choice));
    }
    return SL_OK;
}

static bool is_open(const sl_search *search)
{
    bool is_training = search->task.work == SL_WORK_TRAIN;
    bool has_orders = search->auto_accumulation && search->fixed.accumulate > 1;
    return search->auto_policy || search->auto_adam ||
           (is_training && (search->auto_recompute || has_orders));
}

/* Puts a faster blueprint in the place of one that fits, if there is one among the choices that are
 * left open: homes, where updates run, recomputation and order of accumulation. */
static sl_status improve(const sl_search *search, sl_blueprint **blueprint)
{
    improvement self = {.search = search, .task = search->task, .best = *blueprint};
    if (!is_open(search))
        return SL_OK;
    self.task.is_probe = true;
    SL_TRY(simulate(self.best, &self.best_seconds));
    note_candidate(&self, self.best, self.best_seconds);
    sl_status status = improve_recomputes(&self);
    *blueprint = self.best;
    return status;
}

/* ---- the search ---- */

/* Plans with the budget that a failure asks for until it is enough, and corrects its bytes to those
 * that were tried: then budget + missing bytes is known to fit. Leaves it alone where the other
 * tier becomes short on the way. */
static sl_status confirm_shortage(const sl_search *search, sl_fit_failure *failure)
{
    sl_choice raised = failure->choice;
    sl_fit_failure latest = *failure;
    uint64_t *budget = sl_search_budget(&raised, failure->shortage.tier);
    for (int round = 0; round < CONFIRM_ROUNDS; round++) {
        sl_blueprint *blueprint = NULL;
        uint64_t tried = latest.shortage.needed_bytes;
        if (tried <= failure->budget_bytes)
            return SL_OK;
        *budget = tried;
        sl_status status = sl_blueprint_build(&search->task, &raised, &blueprint, &latest);
        sl_blueprint_close(blueprint);
        if (status == SL_OK) {
            failure->shortage.needed_bytes = tried;
            failure->shortage.missing_bytes = tried - failure->budget_bytes;
        }
        if (status != SL_ERROR_FIT)
            return status;
        if (latest.shortage.tier != failure->shortage.tier)
            return SL_OK;
    }
    return SL_OK;
}

sl_status sl_search_overflow(const sl_search *search, const sl_fit_failure *failure,
                             sl_blueprint **out_blueprint, uint64_t out_budgets[SL_TIER_COUNT])
{
    sl_choice raised = failure->choice;
    sl_fit_failure latest = *failure;
    bool is_raised[SL_TIER_COUNT] = {false};
    uint64_t asked[SL_TIER_COUNT] = {0};
    for (int round = 0; round < CONFIRM_ROUNDS; round++) {
        const sl_tier tier = latest.shortage.tier;
        if (latest.shortage.needed_bytes == UINT64_MAX)
            break;
        if (!is_raised[tier])
            asked[tier] = latest.budget_bytes;
        is_raised[tier] = true;
        *sl_search_budget(&raised, tier) = latest.shortage.needed_bytes;
        sl_status status = sl_blueprint_build(&search->task, &raised, out_blueprint, &latest);
        for (int t = 0; status == SL_OK && t < SL_TIER_COUNT; t++)
            out_budgets[t] = is_raised[t] ? asked[t] : (*out_blueprint)->budget_bytes[t];
        if (status != SL_ERROR_FIT)
            return status;
    }
    SL_FAIL(SL_ERROR_FIT, "no budget was found that holds this choice");
}

static sl_status fail_refused(const sl_refusal *refusal)
{
    const sl_fit_failure *failure = &refusal->failure;
    char missing[SL_UNITS_TEXT_BYTES], budget[SL_UNITS_TEXT_BYTES];
    sl_units_format_size(failure->shortage.missing_bytes, missing);
    sl_units_format_size(failure->budget_bytes, budget);
    SL_FAIL(
        SL_ERROR_FIT,
        "it does not fit: the %s tier (budget %s) misses %s (%llu bytes) at tick %u%s%s%s; %s%s%s",
        sl_tier_name(failure->shortage.tier), budget, missing,
        (unsigned long long)failure->shortage.missing_bytes, failure->shortage.tick,
        *failure->op_name ? " (" : "", failure->op_name, *failure->op_name ? ")" : "",
        *refusal->suggestion ? "this fits: " : "no change was found that fits", refusal->suggestion,
        refusal->is_beyond_machine ? " (more than this machine has free)" : "");
}

/* Choices are compared as they were planned; what runs is verified. */
static sl_status improve_and_verify(const sl_search *search, sl_blueprint **blueprint)
{
    sl_status status = improve(search, blueprint);
    if (status == SL_OK)
        status = sl_blueprint_verify(*blueprint);
    if (status != SL_OK) {
        sl_blueprint_close(*blueprint);
        *blueprint = NULL;
    }
    return status;
}

sl_status sl_search_find(const sl_search *search, sl_blueprint **out_blueprint,
                         sl_refusal *out_refusal)
{
    sl_refusal refusal = {0};
    sl_status status = sl_search_run(search, out_blueprint, &refusal.failure);
    if (status == SL_OK)
        return improve_and_verify(search, out_blueprint);
    if (status != SL_ERROR_FIT)
        return status;
    SL_TRY(confirm_shortage(search, &refusal.failure));
    SL_TRY(sl_search_suggest(search, &refusal));
    *out_refusal = refusal;
    return fail_refused(&refusal);
}

sl_status sl_search_probe(const sl_search *search, sl_blueprint **out_blueprint,
                          sl_fit_failure *out_failure)
{
    sl_search probe = *search;
    sl_blueprint *blueprint = NULL;
    probe.task.is_probe = true;
    SL_TRY(sl_search_run(&probe, &blueprint, out_failure));
    sl_status status = improve(&probe, &blueprint);
    if (status != SL_OK) {
        sl_blueprint_close(blueprint);
        return status;
    }
    *out_blueprint = blueprint;
    return SL_OK;
}
