/* What a configuration asks for: the task, what it fixes and what it leaves open. */
#include <string.h>

#include "base/bits.h"
#include "base/limits.h"
#include "base/log.h"
#include "candidates.h"
#include "config/config.h"
#include "config/lora.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "machine/disk.h"
#include "machine/profile.h"

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
        .update = (sl_update_place)config->adam,
        .host_updates = config->offload_updates,
    };
    bool is_implied =
        config->policy == SL_POLICY_NVME && !config->given[SL_CONFIG_ROW_nvme_optimizer];
    sl_candidates_set_shares(placement.host_fraction, config->offload_optimizer,
                             config->offload_grads, config->offload_params);
    sl_candidates_set_shares(placement.disk_fraction, is_implied ? 1 : config->nvme_optimizer,
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

/* A description knows the types of its GPUs, and nothing of what ranks share. */
static sl_status check_description(const sl_config *config, const sl_machine *machine)
{
    const bool is_alone = config->tp == 1 && config->pp == 1 && config->machine_ranks <= 1 &&
                          unset_to(config->dp, 1) == 1;
    const sl_type type = (sl_type)config->precision;
    if (!machine->is_described)
        return SL_OK;
    if (!is_alone)
        SL_FAIL(SL_ERROR_USAGE,
                "--machine %s is a description, and plans one GPU alone: plan --cluster %s plans "
                "several",
                config->machine, config->machine);
    if (machine->op[SL_OP_LINEAR][type].flop_rate <= 0)
        SL_FAIL(SL_ERROR_USAGE, "--precision %s: the GPUs of %s have no %s, by their flop_rate",
                sl_type_name(type), config->machine, sl_type_name(type));
    return SL_OK;
}

/* The measured rates of this machine, else a guess; a file that the user named must be there. The
 * first rank of each machine logs why a profile is not used. */
static sl_status init_machine(const sl_config *config, sl_search *search)
{
    char note[SL_PROFILE_NOTE_BYTES];
    const sl_task *task = &search->task;
    bool is_gpu_here = *task->device_info.name != '\0';
    const sl_profile_subject subject = {.device = task->target.device,
                                        .worker_count = task->target.worker_count,
                                        .info = is_gpu_here ? &task->device_info : NULL,
                                        .rank_count = config->machine_ranks};
    SL_TRY(sl_profile_find_machine(config->machine, &subject, &search->task.machine, note));
    if (*note && config->local_rank == 0)
        sl_log_write(SL_LOG_WARNING, "%s", note);
    return check_description(config, &search->task.machine);
}

sl_status sl_search_check_rules(const sl_config *config, const sl_model_shape *shape)
{
    const sl_model_options options = {.batch = 1, .seq = 1, .tp_size = 1};
    sl_program *whole;
    const sl_update_rules rules = sl_update_rules_of(config);
    if (!sl_update_rules_are_given(&rules))
        return SL_OK;
    SL_TRY(sl_model_shape_emit(shape, &options, &whole)); /* for the names of its tensors */
    sl_status status = sl_lora_check(&shape->lora, whole);
    if (status == SL_OK)
        status = sl_update_rules_apply(&rules, whole);
    if (status == SL_OK)
        status = sl_update_rules_check(&rules, whole);
    sl_program_close(whole);
    return status;
}

static void init_training(const sl_config *config, sl_search *search)
{
    search->task.with_evaluation = config->eval_data.count > 0;
    /* Only then is no update ever taken back, and none has to wait for the norm or, with masks, for
     * how many tokens count. */
    search->task.update_early = config->clip == 0 && config->nonfinite == SL_CONFIG_STOP &&
                                !sl_config_scales_dynamically(config) &&
                                !sl_config_has_examples(config);
    search->task.sequence_parallel = config->sequence_parallel;
    search->task.split_layout = (sl_split_layout)config->split_layout;
    search->task.partition_activations = config->partition_activations;
    search->task.dropout = (float)config->dropout;
    search->task.lora_dropout = (float)config->lora_dropout;
    search->task.rules = sl_update_rules_of(config);
    search->fixed.disk_activations = config->nvme_activations;
    search->fixed.host_activations = config->offload_activations;
    /* On the cpu device both places are the same cores. */
    search->auto_update =
        config->adam == SL_UPDATE_AUTO && search->task.target.device != SL_DEVICE_CPU;
    search->auto_activations = config->policy == SL_CONFIG_POLICY_AUTO;
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

/* Of a model of one layer, for all are alike; of an own model, which has all its layers, the mean.
 */
static sl_status find_stage_costs(const sl_search *search, sl_stages_costs *out_costs)
{
    const sl_task *task = &search->task;
    sl_model_shape shape = task->shape;
    const sl_model_options options = {.batch = search->fixed.micro_batch,
                                      .seq = task->seq,
                                      .tp_size = task->tp_size,
                                      .type = task->type,
                                      .grad_type = SL_TYPE_FP32,
                                      .split_layout = task->split_layout};
    sl_program *forward;
    bool is_behind = false;
    if (shape.architecture != SL_ARCHITECTURE_OWN)
        shape.layers = 1;
    *out_costs = (sl_stages_costs){0};
    SL_TRY(sl_model_shape_emit(&shape, &options, &forward));
    for (uint32_t s = 0; s < forward->segment_count; s++) {
        const sl_segment *segment = &forward->segments[s];
        double *cost = is_behind ? &out_costs->head : &out_costs->embedding;
        if (segment->is_block)
            cost = &out_costs->layer;
        is_behind = is_behind || segment->is_block;
        *cost += find_segment_seconds(forward, segment, &task->machine);
    }
    out_costs->layer /= shape.layers;
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

/* Of ranks that are planned, or that all train. Other work is for one process until sl_ranks_share
 * says how many ranks are there. */
static void divide_ranks(const sl_config *config, sl_task *task)
{
    task->tp_size = task->target.rank_count = (uint32_t)config->tp;
    task->dp_size = task->target.data_rank_count = (uint32_t)unset_to(config->dp, 1);
    task->stage_count = task->target.stage_count = (uint32_t)config->pp;
    task->schedule = (sl_schedule)config->schedule;
}

sl_status sl_search_init(const sl_config *config, sl_work work, const sl_model_shape *shape,
                         sl_search *out_search)
{
    sl_search search = {.task = {.work = work,
                                 .shape = *shape,
                                 .type = (sl_type)config->precision,
                                 .tp_size = 1,
                                 .stage_count = 1,
                                 .target = {.rank_count = 1, .stage_count = 1}}};
    SL_TRY(init_disk(config, &search));
    SL_TRY(init_device(config, &search));
    share_memory_with_disk(config, &search);
    SL_TRY(init_machine(config, &search));
    search.task.zero = (uint32_t)config->zero;
    if (work == SL_WORK_TRAIN)
        divide_ranks(config, &search.task);
    search.fixed.chunk_elements = unset_to(config->chunk_size, 0);
    search.fixed.prefetch = (uint32_t)unset_to(config->prefetch, SL_PREFETCH_AUTO);
    search.fixed.micro_batch =
        (uint32_t)(work == SL_WORK_GENERATE ? config->samples : config->micro_batch);
    search.fixed.accumulate = 1;
    search.fixed.device_memory = config->device_memory;
    search.fixed.host_memory = config->host_memory;
    search.auto_policy = config->policy == SL_CONFIG_POLICY_AUTO;
    search.fixed.placement = read_placement(config);
    search.task.masks = work != SL_WORK_GENERATE && sl_config_has_examples(config);
    search.task.by_document = work != SL_WORK_GENERATE && config->documents == SL_CONFIG_RESET;
    if (work != SL_WORK_GENERATE)
        search.task.seq = (uint32_t)config->seq;
    search.task.rules = sl_update_rules_of_weights(config);
    if (work == SL_WORK_TRAIN)
        init_training(config, &search);
    SL_TRY(divide_layers(config, &search));
    *out_search = search;
    return SL_OK;
}
