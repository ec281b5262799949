/* What a configuration leaves open, and the first choice that fits. See search_best.c for faster
 * ones and suggest.c for what would fit when none does. */
#include "search.h"

#include "base/log.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "search_ladder.h"
#include "session/config/config_device.h"
#include "session/machine/disk.h"
#include "session/machine/profile.h"

enum { CONFIRM_ROUNDS = 16 };

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
    sl_search_set_shares(placement.host_fraction, config->offload_optimizer, config->offload_grads,
                         config->offload_params);
    sl_search_set_shares(placement.disk_fraction, is_implied ? 1 : config->nvme_optimizer,
                         config->nvme_grads, config->nvme_params);
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
    target->worker_count = (uint32_t)config->threads;
    SL_TRY(measure_shared_bytes(&search->task.shared_bytes));
    return target->device == SL_DEVICE_CPU ? SL_OK : init_gpu(config, search);
}

/* What was measured of this machine, if it was; a file that was named is asked for. */
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
    search->fixed.disk_activations = config->nvme_activations;
    search->fixed.host_activations = config->offload_activations;
    /* On the cpu device both places are the same cores. */
    search->auto_adam = config->adam == SL_ADAM_AUTO && search->task.target.device != SL_DEVICE_CPU;
    search->auto_recompute = config->recompute == SL_CONFIG_RECOMPUTE_AUTO;
    search->auto_accumulation = config->accumulation == SL_CONFIG_ACCUMULATION_AUTO;
    search->fixed.accumulate = (uint32_t)config->accumulate;
    if (!search->auto_recompute)
        search->fixed.recompute = (sl_recompute)config->recompute;
    if (config->accumulation != SL_CONFIG_ACCUMULATION_AUTO)
        search->fixed.accumulation = (sl_accumulation)config->accumulation;
}

sl_status sl_search_init(const sl_config *config, sl_work work, const sl_gpt2_shape *shape,
                         sl_search *out_search)
{
    sl_search search = {
        .task = {.work = work, .shape = *shape, .type = (sl_type)config->precision}};
    SL_TRY(init_disk(config, &search));
    SL_TRY(init_device(config, &search));
    SL_TRY(init_machine(config, &search));
    search.task.chunk_elements = unset_to(config->chunk_size, 0);
    search.task.prefetch = (uint32_t)unset_to(config->prefetch, SL_PREFETCH_AUTO);
    search.fixed.micro_batch = work == SL_WORK_GENERATE ? 1 : (uint32_t)config->micro_batch;
    search.fixed.accumulate = 1;
    search.fixed.device_memory = config->device_memory;
    search.fixed.host_memory = config->host_memory;
    search.auto_policy = config->policy == SL_CONFIG_POLICY_AUTO;
    search.fixed.placement = read_placement(config);
    if (work != SL_WORK_GENERATE)
        search.task.seq = (uint32_t)config->seq;
    if (work == SL_WORK_TRAIN)
        init_training(config, &search);
    *out_search = search;
    return SL_OK;
}

/* Layer by layer saves moves of parameters and gradients, and costs memory for activations. */
static sl_accumulation prefer_accumulation(const sl_policy_options *placement)
{
    bool is_moving =
        placement->policy == SL_POLICY_HOST || placement->policy == SL_POLICY_NVME ||
        (placement->policy == SL_POLICY_STATIC && (placement->host_fraction[SL_GROUP_PARAM] > 0 ||
                                                   placement->host_fraction[SL_GROUP_GRAD] > 0));
    return is_moving ? SL_ACCUMULATE_LAYER : SL_ACCUMULATE_MICRO;
}

static sl_status try_accumulations(const sl_search *search, sl_choice *choice,
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

static sl_status try_rung(const sl_search *search, uint32_t rung, sl_choice *choice,
                          sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    sl_search_take_rung(rung, choice);
    return try_accumulations(search, choice, out_blueprint, out_failure);
}

/* Everything on the device if that fits; else a rung can only fit if the one that takes least of
 * the device does, or would with more of the host. */
static sl_status try_ladder(const sl_search *search, sl_choice *choice,
                            sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    enum { FRUGAL = SL_SEARCH_FIRST_ON_DISK - 1 };
    sl_status status = try_rung(search, 0, choice, out_blueprint, out_failure);
    if (status != SL_ERROR_FIT)
        return status;
    sl_blueprint *frugal = NULL;
    status = try_rung(search, FRUGAL, choice, &frugal, out_failure);
    sl_blueprint_close(frugal);
    bool is_hopeless = status == SL_ERROR_FIT && out_failure->shortage.tier == SL_TIER_DEVICE;
    if (is_hopeless || (status != SL_OK && status != SL_ERROR_FIT))
        return status;
    for (uint32_t rung = 1; rung < sl_search_rung_count(search);) {
        status = try_rung(search, rung, choice, out_blueprint, out_failure);
        if (status != SL_ERROR_FIT)
            return status;
        rung = sl_search_next_rung(rung, out_failure->shortage.tier);
    }
    return SL_ERROR_FIT;
}

static sl_status try_placements(const sl_search *search, sl_choice *choice,
                                sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    if (!search->auto_policy)
        return try_accumulations(search, choice, out_blueprint, out_failure);
    return try_ladder(search, choice, out_blueprint, out_failure);
}

static sl_status try_recomputes(const sl_search *search, sl_choice *choice,
                                sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    if (!search->auto_recompute || search->task.work != SL_WORK_TRAIN)
        return try_placements(search, choice, out_blueprint, out_failure);
    for (int recompute = SL_RECOMPUTE_NONE; recompute <= SL_RECOMPUTE_FULL; recompute++) {
        choice->recompute = (sl_recompute)recompute;
        sl_status status = try_placements(search, choice, out_blueprint, out_failure);
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
    sl_status status = try_recomputes(&probing, &choice, out_blueprint, out_failure);
    if (status != SL_ERROR_FIT)
        return status;
    /* Once more, for the exact bytes of the last attempt. */
    return sl_blueprint_build(&search->task, &choice, out_blueprint, out_failure);
}

sl_status sl_search_confirm(const sl_search *search, sl_fit_failure *failure)
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
