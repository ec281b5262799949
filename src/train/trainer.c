/* Opens what a run needs. Knows the order of things, and nothing of steps. */
#define _GNU_SOURCE /* open_memstream */
#include "trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/workers.h"
#include "best.h"
#include "cluster/stage_steps.h"
#include "config/batch.h"
#include "config/config_json.h"
#include "config/stages.h"
#include "files/json_file.h"
#include "kernels/kernels.h"
#include "schedule.h"
#include "search/free_memory.h"
#include "session/algorithms.h"
#include "train/data/tokenizer.h"

sl_status sl_trainer_meet_ranks(sl_trainer *trainer, const sl_config *config,
                                const volatile sig_atomic_t *stop)
{
    if (!trainer->inputs.is_alone)
        SL_TRY(sl_ranks_open(config->rank_timeout, &trainer->ranks));
    sl_ranks_set_heartbeat(&trainer->ranks, config->heartbeat_timeout);
    sl_ranks_listen(&trainer->ranks, stop);
    return SL_OK;
}

void sl_trainer_leave_ranks(sl_trainer *trainer, sl_status status)
{
    sl_ranks_leave(&trainer->ranks, status);
}

/* Each rank compares the blocks that it loads; together they have compared the whole checkpoint. */
static sl_status load_checkpoint(sl_trainer *trainer)
{
    sl_runtime *runtime = trainer->runtime;
    sl_status status = sl_checkpoint_load(trainer->resume.checkpoint, runtime->tensors,
                                          runtime->tensor_count, runtime->has_state, &runtime->io);
    SL_TRY(sl_ranks_agree_on_damage(&trainer->ranks, status));
    sl_resume_let_go(&trainer->resume);
    return sl_steps_note_whole(&trainer->known_steps, trainer->state.step);
}

static sl_status set_first_values(sl_trainer *trainer)
{
    sl_runtime *runtime = trainer->runtime;
    if (trainer->resume.checkpoint)
        return load_checkpoint(trainer);
    if (!trainer->source.path)
        return sl_runtime_initialise(runtime, trainer->config->seed, SL_INITIALISE_ALL);
    if (trainer->source.shape.lora.rank == 0) /* of a model without adapters new ones begin */
        SL_TRY(sl_runtime_initialise(runtime, trainer->config->seed, SL_INITIALISE_ADAPTERS));
    return sl_ranks_agree_on_damage(&trainer->ranks,
                                    sl_model_directory_load(&trainer->source, runtime->tensors,
                                                            runtime->tensor_count, &runtime->io));
}

/* From here on the configuration says what was chosen, not what was left open. */
static void record_choice(sl_trainer *trainer, const sl_blueprint *blueprint)
{
    sl_config *config = trainer->config;
    const sl_choice *choice = &blueprint->choice;
    sl_config_record_shape(config, &trainer->shape);
    config->policy = choice->placement.policy;
    config->adam = choice->placement.update;
    config->offload_updates = choice->placement.host_updates;
    config->offload_params = choice->placement.host_fraction[SL_GROUP_PARAM];
    config->offload_grads = choice->placement.host_fraction[SL_GROUP_GRAD];
    config->offload_optimizer = choice->placement.host_fraction[SL_GROUP_STATE1];
    config->offload_activations = choice->host_activations;
    config->nvme_params = choice->placement.disk_fraction[SL_GROUP_PARAM];
    config->nvme_grads = choice->placement.disk_fraction[SL_GROUP_GRAD];
    config->nvme_optimizer = choice->placement.disk_fraction[SL_GROUP_STATE1];
    config->nvme_activations = choice->disk_activations;
    config->recompute = choice->recompute;
    config->accumulation = choice->accumulation;
    config->chunk_size = blueprint->layout->chunk_elements;
    if (choice->prefetch != SL_PREFETCH_AUTO)
        config->prefetch = choice->prefetch;
    config->device_memory = blueprint->budget_bytes[SL_TIER_DEVICE];
    config->host_memory = blueprint->budget_bytes[SL_TIER_HOST];
    config->disk_space = blueprint->budget_bytes[SL_TIER_DISK];
}

/* What every save of this run has in common; the rest is filled in when it comes. */
static sl_checkpoint_save_args describe_saves(const sl_trainer *trainer)
{
    const sl_runtime *runtime = trainer->runtime;
    return (sl_checkpoint_save_args){.directory = trainer->config->save,
                                     .keep = (uint32_t)trainer->config->keep,
                                     .keeps_best = trainer->config->keep_best,
                                     .shape = &trainer->shape,
                                     .vocabulary = trainer->vocabulary,
                                     .texts = &trainer->texts,
                                     .tensors = runtime->tensors,
                                     .tensor_count = runtime->tensor_count,
                                     .has_state = runtime->has_state,
                                     .io = &runtime->io,
                                     .ranks = sl_ranks_others(&trainer->ranks.table),
                                     .state = &trainer->state,
                                     .run = trainer->run,
                                     .precision = runtime->blueprint->task.type};
}

/* After the disk tier has taken its space, which may be on the same disk. */
static sl_status check_space(const sl_trainer *trainer)
{
    const sl_config *config = trainer->config;
    const uint64_t done = trainer->state.step, every = config->save_every;
    if (!config->save || done >= config->steps || !sl_ranks_is_first(&trainer->ranks))
        return SL_OK;
    uint64_t save_count = every ? config->steps / every - done / every : 0;
    save_count += every == 0 || config->steps % every != 0;
    const sl_checkpoint_save_args args = describe_saves(trainer);
    return sl_checkpoint_check_space(&args, save_count, trainer->has_old_checkpoints);
}

static sl_status keep_resolved(sl_trainer *trainer)
{
    json_t *resolved = NULL;
    SL_TRY(sl_config_format(trainer->config, SL_CONFIG_TRAIN, &resolved));
    return sl_config_dump(resolved, &trainer->config_json);
}

/* Called by the input lane while a step runs. */
static sl_status fill_input(void *user, const sl_engine_fill *what, void *memory)
{
    const sl_trainer *trainer = user;
    uint32_t batch = trainer->runtime->blueprint->choice.micro_batch;
    const uint64_t turn =
        (uint64_t)what->micro_batch * trainer->config->dp + trainer->ranks.place.data;
    const sl_row_range rows = {trainer->state.next_row + turn * batch, batch};
    return sl_data_loader_read(&trainer->loader, rows, what->slot, memory);
}

static sl_status open_sinks(sl_trainer *trainer)
{
    if (!sl_ranks_is_first(&trainer->ranks))
        return SL_OK;
    return sl_logs_open(&trainer->logs, trainer->config, trainer->state.step + 1, &trainer->sinks);
}

/* Of all stages: what the slowest rank of each is predicted to take alone, simulated together. */
static sl_status predict_stages(const sl_trainer *trainer, const sl_blueprint *blueprint,
                                double own, double *out_seconds)
{
    const sl_ranks *ranks = &trainer->ranks;
    double stages[SL_COMM_RANKS_MAX] = {0}, all[SL_COMM_RANKS_MAX];
    SL_TRY(sl_comm_all_gather(ranks->world, sizeof own, &own, all));
    for (uint32_t i = 0; i < sl_comm_size(ranks->world); i++) {
        double *stage = &stages[i / (ranks->layout.tensor * ranks->layout.data)];
        *stage = all[i] > *stage ? all[i] : *stage;
    }
    return sl_stage_steps_simulate(&blueprint->task, &blueprint->choice, stages, out_seconds);
}

/* Each rank simulates its plan by the rates of its own machine; the slowest counts. */
static sl_status predict(sl_trainer *trainer, const sl_blueprint *blueprint)
{
    sl_simulation simulation;
    SL_TRY(sl_plan_simulate(blueprint->programs[0], blueprint->plans[0], &blueprint->machine,
                            &simulation));
    trainer->step_seconds = simulation.step_seconds;
    if (!trainer->ranks.world)
        return SL_OK;
    if (trainer->ranks.layout.stages <= 1)
        return sl_comm_find_longest(trainer->ranks.world, &trainer->step_seconds);
    return predict_stages(trainer, blueprint, simulation.step_seconds, &trainer->step_seconds);
}

static void stop_engine(void *engine)
{
    sl_engine_stop(engine);
}

/* A rank may be lost while this one is in a step that keeps its disk or its kernels busy for
 * minutes. On GPUs, NCCL's streams notice it. */
static void watch_ranks(const sl_trainer *trainer)
{
    const sl_ranks *ranks = &trainer->ranks;
    if (ranks->world && !ranks->gpus)
        sl_comm_listen(ranks->world, stop_engine, trainer->runtime->engine);
}

/* True if all lanes have ended. */
static bool close_runtime(const sl_trainer *trainer)
{
    if (trainer->ranks.world)
        sl_comm_listen(trainer->ranks.world, NULL, NULL);
    return sl_runtime_close(trainer->runtime);
}

static double find_patience(const sl_trainer *trainer)
{
    return sl_ranks_find_patience(trainer->config->rank_timeout, trainer->step_seconds);
}

void sl_trainer_set_patience(const sl_trainer *trainer)
{
    sl_ranks_set_patience(&trainer->ranks, find_patience(trainer));
}

/* The others begin with the same files and drew the same plan. */
static sl_status agree(sl_trainer *trainer, const sl_blueprint *blueprint)
{
    char position[64];
    snprintf(position, sizeof position, "step %" PRIu64 ", row %" PRIu64, trainer->state.step,
             trainer->state.next_row);
    SL_TRY(sl_ranks_agree_on(&trainer->ranks, trainer->beginning.facts, trainer->beginning.count));
    const sl_ranks_work work = {blueprint, trainer->config, SL_CONFIG_TRAIN, position};
    SL_TRY(sl_ranks_agree(&trainer->ranks, &work));
    SL_TRY(predict(trainer, blueprint));
    sl_trainer_set_patience(trainer);
    return SL_OK;
}

static void let_go_of_free_memory(sl_trainer *trainer)
{
    if (trainer->holds_free_memory)
        sl_free_memory_end();
    trainer->holds_free_memory = false;
}

/* The blueprint borrows the list until the trainer is closed. */
static sl_status choose_algorithms(sl_trainer *trainer, sl_blueprint *blueprint)
{
    const sl_checkpoint *checkpoint = trainer->resume.checkpoint;
    const char *saved = checkpoint ? sl_checkpoint_describe(checkpoint)->algorithms : NULL;
    blueprint->task.target.cuda.times_algorithms = trainer->config->time_algorithms;
    return sl_algorithms_choose(&trainer->ranks, saved, blueprint, &trainer->algorithms);
}

static sl_status open_trainer(sl_trainer *trainer, sl_blueprint *blueprint)
{
    const sl_trainer_hooks *hooks = &trainer->hooks;
    const sl_engine_source data = {fill_input, trainer};
    const bool is_first = sl_ranks_is_first(&trainer->ranks);
    record_choice(trainer, blueprint);
    sl_status status = agree(trainer, blueprint);
    if (status == SL_OK)
        status = keep_resolved(trainer);
    if (status == SL_OK)
        status = choose_algorithms(trainer, blueprint);
    const sl_engine_plan step = {blueprint->programs[0], blueprint->plans[0]};
    if (status == SL_OK && is_first)
        status = sl_drawing_open(trainer->config->timeline, &step, &trainer->drawing);
    if (status != SL_OK) {
        sl_blueprint_close(blueprint);
        return status;
    }
    const sl_engine_observer *of_timeline = sl_timeline_observer(trainer->drawing.timeline);
    const sl_runtime_hooks all = {
        .observer = hooks->observe ? hooks->observe(hooks->user, of_timeline) : of_timeline,
        .source = hooks->rows && !trainer->loader.row ? hooks->rows : &data,
        .ranks = sl_ranks_others(&trainer->ranks.tensor),
        .data_ranks = sl_ranks_others(&trainer->ranks.data),
        .stage_ranks = sl_ranks_others(&trainer->ranks.stages),
        .progress = hooks->progress,
        .paints = hooks->paints,
        .timeout_s = find_patience(trainer)};
    SL_TRY(sl_runtime_open(blueprint, &all, &trainer->runtime));
    watch_ranks(trainer);
    if (trainer->command == SL_CONFIG_PROFILE)
        return sl_runtime_initialise(trainer->runtime, trainer->config->seed, SL_INITIALISE_ALL);
    SL_TRY(check_space(trainer));
    SL_TRY(set_first_values(trainer));
    sl_model_directory_close(&trainer->source);
    return open_sinks(trainer);
}

sl_status sl_trainer_open(sl_trainer *trainer, sl_blueprint *blueprint)
{
    const sl_status status = open_trainer(trainer, blueprint);
    let_go_of_free_memory(trainer);
    return status;
}

/* All but the runtime and the ranks. */
static void close_files(sl_trainer *trainer)
{
    sl_drawing_close(&trainer->drawing);
    sl_data_loader_close(&trainer->loader);
    sl_data_loader_close(&trainer->eval_loader);
    sl_data_loader_close(&trainer->test_loader);
    sl_model_directory_close(&trainer->source);
    sl_resume_close(&trainer->resume);
    sl_save_lock_release(&trainer->lock);
    sl_steps_forget(&trainer->known_steps);
    sl_common_inputs_free(&trainer->beginning);
    sl_examples_close(&trainer->examples);
    sl_model_texts_free(&trainer->texts);
    sl_samples_close(trainer->samples);
    free(trainer->algorithms);
    free(trainer->given_json);
    free(trainer->config_json);
    sl_data_files_close(&trainer->files);
    sl_data_files_close(&trainer->eval_files);
    sl_tokens_close(trainer->eval_tokens);
    sl_tokens_close(trainer->tokens);
    sl_vocabulary_close(trainer->vocabulary);
}

bool sl_trainer_close(sl_trainer *trainer)
{
    let_go_of_free_memory(trainer);
    if (sl_drawing_end(&trainer->drawing) !=
        SL_OK) /* of a run that failed; the plan is open still */
        sl_log_write(SL_LOG_WARNING, "the timeline is lost: %s", sl_status_message());
    sl_sinks_close(&trainer->sinks);
    const bool have_lanes_ended = close_runtime(trainer);
    sl_ranks_close(&trainer->ranks); /* after the runtime, whose lanes exchange with other ranks */
    if (!have_lanes_ended)
        return false; /* a lane may still read what is left here, until the process ends */
    close_files(trainer);
    memset(trainer, 0, sizeof *trainer);
    return true;
}

void sl_trainer_look_at_data(sl_trainer *trainer)
{
    const char *path = trainer->tokens ? sl_tokens_find_written(trainer->tokens) : NULL;
    if (!path && trainer->eval_tokens)
        path = sl_tokens_find_written(trainer->eval_tokens);
    if (!path || trainer->has_told_of_data || !sl_ranks_is_first(&trainer->ranks))
        return;
    trainer->has_told_of_data = true;
    sl_log_write(SL_LOG_WARNING,
                 "%s was written to while this run reads it: some rows have the old data and "
                 "others the new, and no other run will give the same numbers; give each run a "
                 "copy that nobody writes to",
                 sl_files_show(path).text);
}

void sl_trainer_start_over(sl_trainer *trainer)
{
    let_go_of_free_memory(trainer);
    sl_sinks_close(&trainer->sinks);
    (void)close_runtime(trainer); /* which has run no step */
    sl_ranks_unite(&trainer->ranks);
    close_files(trainer);
    const sl_ranks ranks = trainer->ranks; /* kept at its address: its tables point there */
    const sl_trainer_inputs inputs = trainer->inputs;
    memset(trainer, 0, sizeof *trainer);
    trainer->ranks = ranks;
    trainer->inputs = inputs;
}

/* Which kernels computed, and the algorithm of each product; the caller frees. */
static sl_status describe_kernels(const sl_trainer *trainer, char **out_text)
{
    const sl_runtime *runtime = trainer->runtime;
    char *algorithms;
    SL_TRY(sl_engine_list_algorithms(runtime->engine, "; ", "", &algorithms));
    const int length =
        asprintf(out_text, "%s%s",
                 sl_kernels_of(runtime->blueprint->task.target.device)->description(), algorithms);
    free(algorithms);
    if (length < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the names of kernels");
    return SL_OK;
}

/* Saves in `directory`: under the lock of the run in --save, else under one of its own. */
static sl_status save_with(sl_trainer *trainer, const char *directory, const char *kernels)
{
    const sl_config *config = trainer->config;
    const bool is_main = directory == config->save;
    char vocabulary_name[SL_VOCABULARY_NAME_BYTES];
    sl_checkpoint_save_args args = describe_saves(trainer);
    args.directory = directory;
    args.lock = is_main ? &trainer->lock : NULL;
    args.config_json = trainer->config_json;
    args.given_json = trainer->given_json;
    args.tokenizer = sl_config_names_tokenizer(config) ? config->tokenizer : NULL;
    if (trainer->vocabulary) {
        SL_TRY(sl_vocabulary_name(trainer->vocabulary, vocabulary_name));
        args.tokenizer = vocabulary_name;
    }
    args.gemm = kernels;
    args.algorithms = trainer->algorithms;
    args.data_fingerprint = trainer->data.fingerprint;
    args.data_sample = trainer->data.sample;
    args.known = is_main ? &trainer->known_steps : NULL;
    if (trainer->has_old_checkpoints || !is_main)
        args.keep = 0; /* which go behind it */
    return sl_checkpoint_save(&args);
}

static sl_status save_in(sl_trainer *trainer, const char *directory)
{
    char *kernels = NULL;
    SL_TRY(sl_engine_drain(trainer->runtime->engine));
    SL_TRY(describe_kernels(trainer, &kernels));
    sl_status status = save_with(trainer, directory, kernels);
    free(kernels);
    return status;
}

static sl_status find_best_directory(const sl_trainer *trainer, char **out_directory)
{
    return sl_files_join_path(trainer->config->save, SL_BEST_NAME, out_directory);
}

/* The checkpoints of --overwrite: all but the new one, and a best one but this run's. */
static sl_status remove_old(const sl_trainer *trainer)
{
    const sl_checkpoint_state *state = &trainer->state;
    const bool has_best = trainer->config->keep_best && state->evals_since_best < state->eval_count;
    char *best = NULL;
    SL_TRY(find_best_directory(trainer, &best));
    sl_resume_remove_old(trainer->config->save, state->step);
    sl_resume_remove_old(best, has_best ? state->best_step : UINT64_MAX);
    free(best);
    return SL_OK;
}

static sl_status save(sl_trainer *trainer)
{
    SL_TRY(save_in(trainer, trainer->config->save));
    if (trainer->has_old_checkpoints && sl_ranks_is_first(&trainer->ranks))
        SL_TRY(remove_old(trainer));
    SL_TRY(sl_ranks_meet(&trainer->ranks, "the end of the save")); /* rank 0 makes it */
    trainer->has_old_checkpoints = false;
    trainer->saved_step = trainer->state.step;
    return SL_OK;
}

static sl_status save_best(sl_trainer *trainer)
{
    char *directory = NULL;
    SL_TRY(find_best_directory(trainer, &directory));
    const sl_status status = save_in(trainer, directory);
    if (status == SL_OK && sl_ranks_is_first(&trainer->ranks))
        sl_resume_remove_old(directory, trainer->state.step);
    free(directory);
    SL_TRY(status);
    return sl_ranks_meet(&trainer->ranks, "the end of the save");
}

/* A save may take long, and no step is run meanwhile. */
static sl_status work_at(sl_trainer *trainer, sl_status (*saving)(sl_trainer *trainer))
{
    sl_ranks_set_work(&trainer->ranks, true);
    const sl_status status = saving(trainer);
    sl_ranks_set_work(&trainer->ranks, false);
    return status;
}

sl_status sl_trainer_save(sl_trainer *trainer)
{
    return work_at(trainer, save);
}

sl_status sl_trainer_save_best(sl_trainer *trainer)
{
    return work_at(trainer, save_best);
}
