/* Emits, lays out, places, derives, plans and verifies, in that order.
 *
 * Budgets: a set one is taken as it is. A device with memory of its own shares nothing: its budget
 * and the host's are what each of them has. On the cpu device both are one memory: one budget that
 * is unset gets what the other leaves of the shared bytes. With both unset the host takes what it
 * needs and the device gets the rest: the host's need hardly depends on the device's budget, so
 * planning again with the rest settles quickly.
 */
#include "blueprint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/heartbeat.h"

enum { SETTLE_ROUNDS = 6, GATHERS_AHEAD = 1 };

static uint64_t subtract(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* True if nothing else comes between what adds up to a gradient: it is complete soon. */
static bool adds_in_one_go(const sl_choice *choice)
{
    return choice->accumulate == 1 || choice->accumulation == SL_ACCUMULATE_LAYER;
}

/* Stages exchange sums in fp32, and hold those of all micro-batches. */
static bool rounds_at_once(const sl_task *task, const sl_choice *choice)
{
    return adds_in_one_go(choice) && task->stage_count <= 1;
}

sl_type sl_blueprint_grad_type(const sl_task *task, const sl_choice *choice)
{
    return rounds_at_once(task, choice) ? task->type : SL_TYPE_FP32;
}

static bool is_prompt(const sl_task *task, uint32_t program_index)
{
    return program_index == 1 && task->seq > 0;
}

static void choose_generation(const sl_task *task, uint32_t program_index,
                              sl_model_options *options)
{
    options->mode = SL_MODEL_CACHED;
    options->cache_rows = task->cache_rows;
    if (!is_prompt(task, program_index))
        options->seq = program_index == 0 ? 1 : task->piece;
}

static void choose_sample(sl_model_options *options)
{
    options->mode = SL_MODEL_NEXT;
    options->by_document = true;
    options->masks = false;
}

enum { PROGRAM_TAIL = 2 }; /* of a training, the first of those for rows that are left */

static bool has_test_tail(const sl_task *task)
{
    return task->test_tail_rows > 0 && task->test_tail_rows != task->tail_rows;
}

uint32_t sl_blueprint_tail_program(const sl_task *task, bool is_test)
{
    bool is_second = is_test && has_test_tail(task) && task->tail_rows > 0;
    return PROGRAM_TAIL + is_second;
}

static uint32_t count_programs(const sl_task *task)
{
    if (task->work == SL_WORK_GENERATE)
        return 1 + (task->seq > 0) + (task->piece > 0);
    uint32_t loss_programs = task->tail_rows ? 2 : 1;
    if (task->work == SL_WORK_EVALUATE)
        return loss_programs;
    uint32_t of_evaluation = task->with_evaluation ? loss_programs + has_test_tail(task) : 0;
    return 1 + of_evaluation + task->with_samples;
}

uint32_t sl_blueprint_sample_program(const sl_task *task)
{
    return count_programs(task) - 1;
}

static bool is_of_samples(const sl_task *task, uint32_t program_index)
{
    return task->work == SL_WORK_TRAIN && task->with_samples &&
           program_index == sl_blueprint_sample_program(task);
}

/* Rows of a program. */
static uint32_t count_rows(const sl_task *task, const sl_choice *choice, uint32_t program_index)
{
    if (task->work == SL_WORK_EVALUATE)
        return program_index == 1 ? task->tail_rows : choice->micro_batch;
    if (task->work == SL_WORK_GENERATE)
        return is_prompt(task, program_index) ? 1 : choice->micro_batch;
    if (is_of_samples(task, program_index))
        return 1;
    if (program_index < PROGRAM_TAIL)
        return choice->micro_batch;
    bool is_other = task->tail_rows > 0 && program_index == PROGRAM_TAIL;
    return is_other ? task->tail_rows : task->test_tail_rows;
}

/* Rows that are left over may not be shared evenly: all ranks have them then, with the same bits.
 */
static bool shares_rows(const sl_task *task, uint32_t rows, uint32_t program_index)
{
    const bool is_even = (uint64_t)rows * task->seq % (task->tp_size ? task->tp_size : 1) == 0;
    return task->sequence_parallel && (program_index == 0 || is_even);
}

static sl_status emit_forward(const sl_task *task, const sl_choice *choice, uint32_t program_index,
                              sl_program **out_program)
{
    sl_model_options options = {.batch = count_rows(task, choice, program_index),
                                .seq = task->seq,
                                .tp_size = task->tp_size ? task->tp_size : 1,
                                .tp_rank = task->tp_rank,
                                .stage_count = task->stage_count,
                                .stage_index = task->stage_index,
                                .type = task->type,
                                .grad_type = sl_blueprint_grad_type(task, choice),
                                .by_document = task->by_document,
                                .masks = task->masks};
    if (task->stage_count > 1 && task->stage_ends[0] > 0) {
        options.first_layer = task->stage_index > 0 ? task->stage_ends[task->stage_index - 1] : 0;
        options.layer_end = task->stage_ends[task->stage_index];
    }
    if (task->work == SL_WORK_TRAIN && program_index == 0) {
        options.dropout = task->dropout;
        options.lora_dropout = task->lora_dropout;
    }
    options.split_layout = task->split_layout;
    options.sequence_parallel = shares_rows(task, options.batch, program_index);
    if (task->target.device == SL_DEVICE_CUDA)
        options.head_logits = sl_model_gpu_head_logits(task->type);
    if (task->head_logits > 0)
        options.head_logits = task->head_logits;
    if (task->work == SL_WORK_GENERATE)
        choose_generation(task, program_index, &options);
    if (task->by_token)
        options.mode = SL_MODEL_STATS;
    if (is_of_samples(task, program_index))
        choose_sample(&options);
    SL_TRY(sl_model_shape_emit(&task->shape, &options, out_program));
    if ((*out_program)->custom_count > 0 && task->target.device != SL_DEVICE_CPU)
        SL_FAIL(SL_ERROR_USAGE, "the custom op %s runs on the cpu alone: --device cpu",
                (*out_program)->customs[0].name);
    (*out_program)->dp_size = task->dp_size;
    (*out_program)->dp_rank = task->dp_rank;
    (*out_program)->zero = task->zero;
    (*out_program)->has_whole_gradients = !rounds_at_once(task, choice);
    return sl_update_rules_apply(&task->rules, *out_program);
}

/* Writes the training step made of forward program *program in its place. */
static sl_status derive_step(const sl_blueprint *blueprint, sl_program **program)
{
    const sl_choice *choice = &blueprint->choice;
    sl_chunk_map map = sl_layout_chunk_map(blueprint->layout);
    sl_step_options options = {.micro_batch_count = choice->accumulate,
                               .accumulation = choice->accumulation,
                               .recompute = choice->recompute,
                               .update_early = blueprint->task.update_early,
                               .partition_activations = blueprint->task.partition_activations,
                               .schedule = blueprint->task.schedule};
    sl_program *step = NULL;
    SL_TRY(sl_program_derive_step(*program, &map, &options, &step));
    sl_program_close(*program);
    *program = step;
    return SL_OK;
}

/* True if the program does not find all parameters as it computes with them. */
static bool gathers_chunks(const sl_task *task)
{
    return task->rules.frozen != SL_FROZEN_OWN || (task->dp_size > 1 && task->zero > 2);
}

/* Writes what gathers its parameters before it uses them in the place of a program. */
static sl_status gather_chunks(const sl_blueprint *blueprint, sl_program **program)
{
    const sl_chunk_map map = sl_layout_chunk_map(blueprint->layout);
    sl_program *gathering = NULL;
    if (!gathers_chunks(&blueprint->task))
        return SL_OK;
    SL_TRY(sl_program_gather_chunks(*program, &map, &blueprint->gathers, &gathering));
    sl_program_close(*program);
    *program = gathering;
    return SL_OK;
}

static sl_status emit_whole(sl_blueprint *blueprint)
{
    sl_task task = blueprint->task;
    if (task.stage_count <= 1)
        return SL_OK;
    task.stage_count = task.stage_index = 0;
    return emit_forward(&task, &blueprint->choice, 0, &blueprint->whole);
}

static const sl_program *find_whole(const sl_blueprint *blueprint)
{
    return blueprint->whole ? blueprint->whole : blueprint->programs[0];
}

uint64_t sl_blueprint_count_parameters(const sl_blueprint *blueprint)
{
    return sl_model_shape_parameters(&blueprint->task.shape) +
           sl_freeze_count_adapters(find_whole(blueprint));
}

uint64_t sl_blueprint_count_trained(const sl_blueprint *blueprint)
{
    return sl_update_rules_freeze(&blueprint->task.rules)
               ? sl_freeze_count_trained(find_whole(blueprint))
               : sl_model_shape_parameters(&blueprint->task.shape);
}

/* Of forward programs: a step has the ops of several micro-batches. */
static double count_token_flops(const sl_blueprint *blueprint)
{
    const sl_task *task = &blueprint->task;
    return sl_update_rules_freeze(&task->rules)
               ? sl_freeze_token_flops(find_whole(blueprint), task->seq)
               : sl_model_shape_token_flops(&task->shape, task->seq);
}

static void mark_frozen_stages(sl_blueprint *blueprint)
{
    sl_program *own = blueprint->programs[0];
    own->stages_before_are_frozen =
        blueprint->task.stage_index > 0 && sl_freeze_is_before(blueprint->whole, own);
}

/* Fills in all that does not depend on budgets. */
static sl_status build_programs(sl_blueprint *blueprint)
{
    const sl_task *task = &blueprint->task;
    blueprint->program_count = count_programs(task);
    SL_TRY(emit_whole(blueprint));
    for (uint32_t i = 0; i < blueprint->program_count; i++)
        SL_TRY(emit_forward(task, &blueprint->choice, i, &blueprint->programs[i]));
    blueprint->token_flops = count_token_flops(blueprint);
    mark_frozen_stages(blueprint);
    SL_TRY(sl_layout_build(blueprint->programs[0], blueprint->choice.chunk_elements,
                           &blueprint->layout));
    if (task->work == SL_WORK_TRAIN)
        SL_TRY(derive_step(blueprint, &blueprint->programs[0]));
    for (uint32_t i = 0; i < blueprint->program_count; i++)
        SL_TRY(gather_chunks(blueprint, &blueprint->programs[i]));
    return sl_homes_build(blueprint->programs[0], blueprint->layout, &blueprint->choice.placement,
                          &blueprint->homes);
}

/* Both budgets are unset, and share the memory of the machine. */
static bool settles_budgets(const sl_blueprint *blueprint)
{
    const sl_choice *choice = &blueprint->choice;
    return blueprint->task.target.device == SL_DEVICE_CPU && choice->device_memory == UINT64_MAX &&
           choice->host_memory == UINT64_MAX;
}

/* True if the host needs less with a smaller budget: it also caches data whose home is the disk, as
 * long as there is room. Without such data a smaller budget never lowers what the host needs. */
static bool caches_disk(const sl_blueprint *blueprint)
{
    return blueprint->homes->fixed_bytes[SL_TIER_DISK] > 0 ||
           blueprint->choice.disk_activations > 0;
}

static sl_plan_request make_request(const sl_blueprint *blueprint, uint32_t program_index)
{
    sl_plan_request request = {.program = blueprint->programs[program_index],
                               .layout = blueprint->layout,
                               .homes = blueprint->homes,
                               .disk_activations = blueprint->choice.disk_activations,
                               .host_activations = blueprint->choice.host_activations,
                               .prefetch = blueprint->choice.prefetch,
                               .workspace = sl_engine_workspace_bytes,
                               .workspace_context = &blueprint->task.target,
                               .machine = &blueprint->machine,
                               .addresses = blueprint->task.addresses,
                               .work_left = blueprint->task.work_left};
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        request.budget_bytes[tier] = blueprint->budget_bytes[tier];
        request.rough_above_bytes[tier] =
            blueprint->task.is_probe ? blueprint->budget_bytes[tier] : 0;
    }
    /* Where budgets are settled, memory is split by the bytes that the device needs: these have to
     * be exact up to all of the shared memory. */
    if (blueprint->task.is_probe && settles_budgets(blueprint) && caches_disk(blueprint))
        request.rough_above_bytes[SL_TIER_DEVICE] = blueprint->task.shared_bytes;
    return request;
}

static void describe_failure(const sl_blueprint *blueprint, uint32_t program_index,
                             const sl_shortage *shortage, sl_fit_failure *out_failure)
{
    const sl_program *program = blueprint->programs[program_index];
    const char *name = "";
    if (shortage->tick < program->op_count)
        name = sl_op_info_of(program->ops[shortage->tick].kind)->name;
    *out_failure = (sl_fit_failure){.shortage = *shortage,
                                    .op_count = program->op_count,
                                    .budget_bytes = blueprint->budget_bytes[shortage->tier]};
    snprintf(out_failure->op_name, sizeof out_failure->op_name, "%s", name);
}

static sl_status plan_all(sl_blueprint *blueprint, sl_fit_failure *out_failure)
{
    for (uint32_t i = 0; i < blueprint->program_count; i++) {
        sl_plan_close(blueprint->plans[i]);
        blueprint->plans[i] = NULL;
        sl_plan_request request = make_request(blueprint, i);
        sl_shortage shortage = {0};
        sl_status status = sl_plan_build(&request, &blueprint->plans[i], &shortage);
        if (status == SL_ERROR_FIT)
            describe_failure(blueprint, i, &shortage, out_failure);
        SL_TRY(status);
    }
    return SL_OK;
}

static void split_budgets(sl_blueprint *blueprint, uint64_t device_bytes)
{
    blueprint->budget_bytes[SL_TIER_DEVICE] = device_bytes;
    blueprint->budget_bytes[SL_TIER_HOST] = subtract(blueprint->task.shared_bytes, device_bytes);
}

/* What lives on disk is kept on the host for as long as there is room, and leaves the device none.
 * Then each gets half; the device just what it needs if that is not enough for the host, and more
 * than half if that is what it needs. False: no other split is left. */
static bool split_otherwise(sl_blueprint *blueprint, const sl_shortage *shortage,
                            uint64_t *device_needs)
{
    const uint64_t shared = blueprint->task.shared_bytes;
    const uint64_t device = blueprint->budget_bytes[SL_TIER_DEVICE];
    if (!caches_disk(blueprint))
        return false;
    if (shortage->tier == SL_TIER_DEVICE && shortage->needed_bytes < shared) {
        *device_needs = sl_bits_max(*device_needs, shortage->needed_bytes);
        split_budgets(blueprint, sl_bits_max(*device_needs, shared / 2));
        return blueprint->budget_bytes[SL_TIER_DEVICE] > device;
    }
    if (shortage->tier != SL_TIER_HOST || *device_needs == 0 || device <= *device_needs)
        return false;
    split_budgets(blueprint, *device_needs);
    return true;
}

/* Both budgets unset: gives the host what it took and the device the rest, until both agree. */
static sl_status settle_budgets(sl_blueprint *blueprint, sl_fit_failure *out_failure)
{
    uint64_t shared = blueprint->task.shared_bytes;
    uint64_t *budget = blueprint->budget_bytes;
    uint64_t overshoot = 0, device_needs = 0;
    for (int round = 0; round < SETTLE_ROUNDS; round++) {
        sl_status status = plan_all(blueprint, out_failure);
        if (status == SL_ERROR_FIT &&
            split_otherwise(blueprint, &out_failure->shortage, &device_needs))
            continue;
        SL_TRY(status);
        uint64_t host = sl_blueprint_peak_bytes(blueprint, SL_TIER_HOST);
        uint64_t device = sl_blueprint_peak_bytes(blueprint, SL_TIER_DEVICE);
        if (device <= subtract(shared, host)) {
            budget[SL_TIER_HOST] = subtract(shared, budget[SL_TIER_DEVICE]);
            budget[SL_TIER_HOST] = sl_bits_max(budget[SL_TIER_HOST], host);
            budget[SL_TIER_DEVICE] = subtract(shared, budget[SL_TIER_HOST]);
            return SL_OK;
        }
        overshoot = device - subtract(shared, host);
        budget[SL_TIER_DEVICE] = subtract(shared, host);
    }
    *out_failure = (sl_fit_failure){.budget_bytes = budget[SL_TIER_DEVICE]};
    out_failure->shortage = (sl_shortage){.tier = SL_TIER_DEVICE,
                                          .missing_bytes = overshoot,
                                          .needed_bytes = budget[SL_TIER_DEVICE] + overshoot};
    SL_FAIL(SL_ERROR_FIT, "device and host together do not fit");
}

/* What is permanent needs no plan to be too much. */
static sl_status check_fixed(const sl_blueprint *blueprint, sl_fit_failure *out_failure)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        uint64_t fixed = blueprint->homes->fixed_bytes[tier];
        uint64_t budget = blueprint->budget_bytes[tier];
        if (fixed <= budget)
            continue;
        *out_failure = (sl_fit_failure){.shortage = {.tier = (sl_tier)tier,
                                                     .missing_bytes = fixed - budget,
                                                     .needed_bytes = fixed},
                                        .budget_bytes = budget};
        SL_FAIL(SL_ERROR_FIT, "what is permanent does not fit");
    }
    return SL_OK;
}

/* Resolves what does not depend on plans; false: device and host both wait for them. */
static bool resolve_budgets(sl_blueprint *blueprint)
{
    uint64_t device = blueprint->choice.device_memory, host = blueprint->choice.host_memory;
    const sl_task *task = &blueprint->task;
    bool is_shared = task->target.device == SL_DEVICE_CPU;
    uint64_t *budget = blueprint->budget_bytes;
    budget[SL_TIER_DISK] = blueprint->choice.disk_space;
    budget[SL_TIER_DEVICE] = device;
    budget[SL_TIER_HOST] = host;
    if (settles_budgets(blueprint))
        return false;
    if (device == UINT64_MAX)
        budget[SL_TIER_DEVICE] =
            is_shared ? subtract(task->shared_bytes, host) : task->device_bytes;
    if (host == UINT64_MAX)
        budget[SL_TIER_HOST] = subtract(task->shared_bytes, is_shared ? device : 0);
    return true;
}

static sl_status plan_within_budgets(sl_blueprint *blueprint, sl_fit_failure *out_failure)
{
    uint64_t shared = blueprint->task.shared_bytes;
    uint64_t *budget = blueprint->budget_bytes;
    if (!resolve_budgets(blueprint)) {
        budget[SL_TIER_DEVICE] = budget[SL_TIER_HOST] = shared;
        return settle_budgets(blueprint, out_failure);
    }
    if (blueprint->task.is_probe)
        SL_TRY(check_fixed(blueprint, out_failure));
    return plan_all(blueprint, out_failure);
}

sl_status sl_blueprint_verify(const sl_blueprint *blueprint)
{
    for (uint32_t i = 0; i < blueprint->program_count; i++) {
        sl_plan_request request = make_request(blueprint, i);
        SL_TRY(sl_plan_verify(&request, blueprint->plans[i]));
    }
    return SL_OK;
}

static sl_machine find_machine(const sl_task *task)
{
    if (*task->machine.name)
        return task->machine;
    if (task->target.device == SL_DEVICE_CPU)
        return sl_machine_default(task->target.worker_count);
    return sl_machine_default_gpu(task->device_info.multiprocessor_count,
                                  task->target.worker_count);
}

static sl_status open_blueprint(const sl_task *task, const sl_choice *choice,
                                sl_gather_options gathers, sl_blueprint **out_blueprint)
{
    sl_blueprint *blueprint = calloc(1, sizeof *blueprint);
    if (!blueprint)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a blueprint");
    blueprint->task = *task;
    blueprint->choice = *choice;
    blueprint->gathers = gathers;
    blueprint->machine = find_machine(task);
    sl_status status = build_programs(blueprint);
    if (status != SL_OK) {
        sl_blueprint_close(blueprint);
        return status;
    }
    *out_blueprint = blueprint;
    return SL_OK;
}

/* An update may run beside the rest unless compute and host lane share the cores. */
static double bound_op_seconds(const sl_machine *machine, const sl_op *op)
{
    double seconds = sl_machine_op_seconds(machine, op->kind, &op->attrs, false);
    if (!sl_op_info_of(op->kind)->updates_chunk)
        return seconds;
    double on_host = sl_machine_op_seconds(machine, op->kind, &op->attrs, true);
    if (!machine->shares_cores)
        return 0;
    return on_host < seconds ? on_host : seconds;
}

sl_status sl_blueprint_bound_seconds(const sl_task *task, const sl_choice *choice,
                                     double *out_seconds)
{
    sl_blueprint *blueprint = NULL;
    SL_TRY(open_blueprint(task, choice, (sl_gather_options){.idle_most = UINT32_MAX}, &blueprint));
    double seconds = 0;
    const sl_program *program = blueprint->programs[0];
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        const sl_section section = sl_program_section(program, s);
        for (uint32_t i = section.first; i < section.first + section.count; i++)
            seconds += section.repeat * bound_op_seconds(&blueprint->machine, &program->ops[i]);
    }
    sl_blueprint_close(blueprint);
    *out_seconds = seconds;
    return SL_OK;
}

/* Plans with other homes; the blueprint keeps its homes and plans unless these fit. */
static sl_status plan_with(sl_blueprint *blueprint, sl_homes *homes, bool *out_fits)
{
    sl_fit_failure ignored;
    sl_homes *before = blueprint->homes;
    sl_plan *plans[SL_BLUEPRINT_PROGRAM_MAX];
    memcpy(plans, blueprint->plans, sizeof plans);
    memset(blueprint->plans, 0, sizeof blueprint->plans);
    blueprint->homes = homes;
    const sl_status status = plan_all(blueprint, &ignored);
    const bool is_kept = status == SL_OK;
    for (uint32_t i = 0; i < blueprint->program_count; i++) {
        sl_plan_close(is_kept ? plans[i] : blueprint->plans[i]);
        blueprint->plans[i] = is_kept ? blueprint->plans[i] : plans[i];
    }
    blueprint->homes = is_kept ? homes : before;
    sl_homes_close(is_kept ? before : homes);
    *out_fits = is_kept;
    return status == SL_ERROR_FIT ? SL_OK : status;
}

/* With policy HOST a chunk visits the device. One that stays there from step to step lives there,
 * so it is not written back. */
static sl_status settle_homes(sl_blueprint *blueprint)
{
    bool fits = false;
    if (blueprint->choice.placement.policy != SL_POLICY_HOST ||
        blueprint->task.work != SL_WORK_TRAIN)
        return SL_OK;
    const sl_plan_request request = make_request(blueprint, 0);
    for (int is_always_there = 0; !fits && is_always_there <= 1; is_always_there++) {
        sl_homes *settled;
        SL_TRY(sl_homes_settle(&request, blueprint->plans[0], is_always_there, &settled));
        if (!settled)
            break;
        SL_TRY(plan_with(blueprint, settled, &fits));
    }
    return SL_OK;
}

static sl_status build_gathering(const sl_task *task, const sl_choice *choice,
                                 sl_gather_options gathers, sl_blueprint **out_blueprint,
                                 sl_fit_failure *out_failure)
{
    sl_blueprint *blueprint = NULL;
    SL_TRY(open_blueprint(task, choice, gathers, &blueprint));
    sl_status status = plan_within_budgets(blueprint, out_failure);
    if (status == SL_ERROR_FIT)
        out_failure->choice = *choice;
    if (status == SL_OK)
        status = settle_homes(blueprint);
    if (status != SL_OK) {
        sl_blueprint_close(blueprint);
        return status;
    }
    blueprint->task.addresses = NULL;
    blueprint->task.work_left = NULL;
    *out_blueprint = blueprint;
    return SL_OK;
}

/* ---- chunks that are gathered ---- */

/* The device does not hold what is gathered ahead of its use. If it holds the least that can be
 * gathered: as many chunks at once as fit, of halves of all of them. */
static sl_status build_gathering_fewer(const sl_task *task, const sl_choice *choice,
                                       sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    sl_fit_failure ignored;
    sl_blueprint *least = NULL;
    SL_TRY(build_gathering(task, choice, (sl_gather_options){.most = 1}, &least, out_failure));
    const uint32_t all = least->layout->chunk_count;
    for (uint32_t most = all; most > 1; most /= 2) {
        const sl_gather_options gathers = {.most = most == all ? 0 : most};
        sl_status status = build_gathering(task, choice, gathers, out_blueprint, &ignored);
        if (status == SL_ERROR_FIT)
            continue;
        sl_blueprint_close(least);
        return status;
    }
    *out_blueprint = least;
    return SL_OK;
}

/* The fastest plan so far, of those with more and more idle chunks. */
typedef struct idle_search {
    const sl_task *task;
    const sl_choice *choice;
    sl_blueprint *best;
    double best_seconds;
} idle_search;

static sl_status predict_seconds(const sl_blueprint *blueprint, double *out_seconds)
{
    sl_simulation simulation;
    SL_TRY(sl_plan_simulate(blueprint->programs[0], blueprint->plans[0], &blueprint->machine,
                            &simulation));
    *out_seconds = simulation.step_seconds;
    return SL_OK;
}

/* Plans with so many idle chunks; the plan is the best one if it is no slower. Seconds are sums in
 * another order, so equal ones differ by what was rounded. */
static sl_status try_idle(idle_search *it, uint32_t idle_most, bool *out_is_best)
{
    const double no_slower = it->best_seconds * (1 + 1e-9);
    sl_gather_options gathers = it->best->gathers;
    sl_blueprint *tried = NULL;
    sl_fit_failure ignored;
    double seconds = INFINITY;
    gathers.idle_most = idle_most;
    sl_status status = build_gathering(it->task, it->choice, gathers, &tried, &ignored);
    if (status == SL_OK)
        status = predict_seconds(tried, &seconds);
    *out_is_best = status == SL_OK && seconds <= no_slower;
    if (*out_is_best) {
        sl_blueprint *slower = it->best;
        it->best = tried;
        it->best_seconds = seconds;
        tried = slower;
    }
    sl_blueprint_close(tried);
    return status == SL_ERROR_FIT ? SL_OK : status;
}

/* As many idle chunks as the device holds without a slower step: all of them or a half, a quarter
 * and so on; then, by bisection, some more. */
static sl_status try_idle_counts(idle_search *it)
{
    enum { BISECTIONS = 3 };
    const uint32_t all = it->best->layout->chunk_count;
    uint32_t idle = all, step = all;
    bool is_best;
    SL_TRY(try_idle(it, idle, &is_best));
    for (; !is_best && step > 1; idle = step)
        SL_TRY(try_idle(it, step /= 2, &is_best));
    for (int i = 0; is_best && i < BISECTIONS && idle < all && step > 1; i++) {
        bool is_more;
        SL_TRY(try_idle(it, idle + (step /= 2), &is_more));
        idle += is_more ? step : 0;
    }
    return SL_OK;
}

/* With room to spare chunks stay whole until they are needed again, and travel less often. */
static sl_status gather_less_often(const sl_task *task, const sl_choice *choice,
                                   sl_blueprint **blueprint)
{
    idle_search it = {.task = task, .choice = choice, .best = *blueprint};
    sl_status status = predict_seconds(it.best, &it.best_seconds);
    if (status == SL_OK)
        status = try_idle_counts(&it);
    *blueprint = it.best;
    return status;
}

/* Ranks send shards while they compute, so chunks are gathered ahead of their use, and stay where
 * there is room. What is dequantised is made by the lane that uses it: nothing is gained by making
 * it early, and whoever stores it small wants the memory. */
static sl_status build_gathers(const sl_task *task, const sl_choice *choice,
                               sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    const bool is_auto = choice->prefetch == SL_PREFETCH_AUTO;
    const bool has_shards = task->dp_size > 1 && task->zero > 2;
    const uint32_t early = is_auto ? GATHERS_AHEAD : choice->prefetch;
    const sl_gather_options ahead = {.ahead = has_shards ? early : 0};
    sl_blueprint *blueprint = NULL;
    sl_status status = build_gathering(task, choice, ahead, &blueprint, out_failure);
    if (status == SL_ERROR_FIT && out_failure->shortage.tier == SL_TIER_DEVICE)
        return build_gathering_fewer(task, choice, out_blueprint, out_failure);
    SL_TRY(status);
    if (has_shards)
        status = gather_less_often(task, choice, &blueprint);
    if (status == SL_OK)
        *out_blueprint = blueprint;
    else
        sl_blueprint_close(blueprint);
    return status;
}

sl_status sl_blueprint_build(const sl_task *task, const sl_choice *choice,
                             sl_blueprint **out_blueprint, sl_fit_failure *out_failure)
{
    sl_blueprint *blueprint = NULL;
    SL_TRY(sl_heartbeat_give()); /* a search builds dozens */
    sl_status status = gathers_chunks(task) ? build_gathers(task, choice, &blueprint, out_failure)
                                            : build_gathering(task, choice, (sl_gather_options){0},
                                                              &blueprint, out_failure);
    if (status == SL_OK && !task->is_probe)
        status = sl_blueprint_verify(blueprint);
    if (status != SL_OK) {
        sl_blueprint_close(blueprint);
        return status;
    }
    *out_blueprint = blueprint;
    return SL_OK;
}

void sl_blueprint_close(sl_blueprint *blueprint)
{
    if (!blueprint)
        return;
    for (uint32_t i = 0; i < SL_BLUEPRINT_PROGRAM_MAX; i++) {
        sl_plan_close(blueprint->plans[i]);
        sl_program_close(blueprint->programs[i]);
    }
    sl_program_close(blueprint->whole);
    sl_homes_close(blueprint->homes);
    sl_layout_close(blueprint->layout);
    free(blueprint);
}

uint64_t sl_blueprint_peak_bytes(const sl_blueprint *blueprint, sl_tier tier)
{
    uint64_t peak = 0;
    for (uint32_t i = 0; i < blueprint->program_count; i++)
        peak = sl_bits_max(peak, blueprint->plans[i]->peak_bytes[tier]);
    return peak;
}

uint64_t sl_blueprint_live_peak_bytes(const sl_blueprint *blueprint, sl_tier tier)
{
    uint64_t peak = 0;
    for (uint32_t i = 0; i < blueprint->program_count; i++)
        peak = sl_bits_max(peak, blueprint->plans[i]->live_peak_bytes[tier]);
    return peak;
}
