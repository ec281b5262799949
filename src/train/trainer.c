/* Opens what a run needs. Knows the order of things, and nothing of steps. */
#define _GNU_SOURCE /* open_memstream */
#include "trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/workers.h"
#include "cluster/stage_steps.h"
#include "config/batch.h"
#include "config/config_json.h"
#include "config/stages.h"
#include "files/json_file.h"
#include "kernels/kernels.h"
#include "schedule.h"
#include "train/data/tokenizer.h"

/* Takes the object over; the caller frees the text. */
static sl_status dump_config(json_t *object, char **out_text)
{
    *out_text = sl_json_file_dump(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(object);
    if (!*out_text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the configuration");
    return SL_OK;
}

static sl_status open_source(sl_trainer *trainer)
{
    const char *init = trainer->config->init;
    if (trainer->resume.checkpoint || !init || strcmp(init, "scratch") == 0)
        return SL_OK;
    return sl_model_directory_open(init, trainer->config->checks_checkpoints, &trainer->source);
}

static const sl_gpt2_shape *find_base_shape(const sl_trainer *trainer)
{
    if (trainer->resume.checkpoint)
        return &sl_checkpoint_describe(trainer->resume.checkpoint)->shape;
    if (trainer->source.path)
        return &trainer->source.shape;
    return NULL;
}

/* The vocabulary of a model whose options and checkpoint do not say it: 257 for bytes, else what
 * files of tokens describe, else GPT-2's. */
static uint32_t find_vocab(const sl_trainer *trainer)
{
    const sl_config *config = trainer->config;
    bool is_text = trainer->tokens && sl_tokens_is_text(trainer->tokens);
    bool is_named = sl_config_names_tokenizer(config) && strcmp(config->tokenizer, "byte") == 0;
    if (trainer->vocabulary)
        return sl_vocabulary_count(trainer->vocabulary);
    if (!is_text && !is_named && sl_origin_is_known(&trainer->origin))
        return trainer->origin.description.vocab;
    return is_text || is_named ? SL_TOKENS_BYTE_VOCAB : 50257;
}

static sl_status resolve_shape(sl_trainer *trainer)
{
    const sl_gpt2_shape *base = find_base_shape(trainer);
    uint32_t vocab = find_vocab(trainer);
    SL_TRY(sl_config_shape(trainer->config, base, vocab, &trainer->shape));
    if (base && memcmp(base, &trainer->shape, sizeof *base) != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "the model of the options is not the checkpoint's (%u layers, %u wide, %u heads, "
                "context %u, vocab %u): leave --model and the sizes out",
                base->layers, base->width, base->heads, base->context, base->vocab);
    return sl_config_fit_model(trainer->config, &trainer->shape);
}

static sl_data_order choose_order(const sl_config *config)
{
    static const sl_data_order orders[] = {[SL_CONFIG_RANDOM] = SL_DATA_RANDOM,
                                           [SL_CONFIG_SEQUENTIAL] = SL_DATA_SEQUENTIAL,
                                           [SL_CONFIG_SHUFFLE] = SL_DATA_SHUFFLE};
    return orders[config->data_order];
}

/* Rows to train on are blended, those to evaluate on read one after the other. Takes the parts
 * over. */
static sl_status open_loader(const sl_trainer *trainer, const sl_data_cut *cut, sl_data_parts parts,
                             bool trains, sl_data_loader *out_loader)
{
    const sl_config *config = trainer->config;
    const sl_data_loader_args args = {.tokens = cut->tokens,
                                      .parts = parts,
                                      .joins = !trains,
                                      .order = trains ? choose_order(config) : SL_DATA_SEQUENTIAL,
                                      .seed = trains ? config->seed : 0,
                                      .seq = (uint32_t)config->seq,
                                      .by_document = config->documents == SL_CONFIG_RESET,
                                      .end_of_text = trainer->end_of_text};
    return sl_data_loader_open(&args, out_loader);
}

/* The loaders of --data, one for each share of it. */
static sl_status open_shares(sl_trainer *trainer)
{
    sl_data_loader *loaders[] = {&trainer->loader, &trainer->eval_loader, &trainer->test_loader};
    sl_data_parts parts[SL_CONFIG_SHARES];
    sl_data_cut cut = {
        .tokens = trainer->tokens, .files = &trainer->files, .end_of_text = trainer->end_of_text};
    sl_status status = SL_OK;
    SL_TRY(sl_config_split(trainer->config, cut.shares));
    SL_TRY(sl_data_files_cut(&cut, parts));
    for (int i = 0; i < SL_CONFIG_SHARES; i++) {
        if (status != SL_OK) {
            free(parts[i].items);
            continue;
        }
        if (parts[i].count > 0)
            status =
                open_loader(trainer, &cut, parts[i], i == SL_CONFIG_TRAINING_SHARE, loaders[i]);
        if (status == SL_ERROR_DATA && trainer->config->split)
            status = sl_status_prefix(status, "the %s share of --split", sl_data_files_name(i));
    }
    return status;
}

/* A vocabulary that nobody chose may be much larger than the training data's ids: a warning. */
static sl_status check_ids(const sl_trainer *trainer)
{
    const bool is_chosen = trainer->config->given[SL_CONFIG_ROW_vocab] || trainer->vocabulary ||
                           find_base_shape(trainer) != NULL;
    SL_TRY(sl_origin_check(trainer->tokens, trainer->shape.vocab, !is_chosen));
    return sl_origin_check(trainer->eval_tokens, trainer->shape.vocab, false);
}

static sl_status open_loaders(sl_trainer *trainer)
{
    SL_TRY(check_ids(trainer));
    if (trainer->tokens) {
        SL_TRY(sl_tokens_limit_vocab(trainer->tokens, trainer->shape.vocab));
        SL_TRY(open_shares(trainer));
    }
    if (!trainer->eval_tokens)
        return SL_OK;
    sl_data_parts parts[SL_CONFIG_SHARES];
    const sl_data_cut cut = {.tokens = trainer->eval_tokens,
                             .files = &trainer->eval_files,
                             .shares = {1},
                             .end_of_text = trainer->end_of_text};
    SL_TRY(sl_tokens_limit_vocab(trainer->eval_tokens, trainer->shape.vocab));
    SL_TRY(sl_data_files_cut(&cut, parts));
    return open_loader(trainer, &cut, parts[0], false, &trainer->eval_loader);
}

/* The run goes on with the numbers of the one it continues. */
static sl_status take_state(sl_trainer *trainer)
{
    sl_config *config = trainer->config;
    trainer->state = (sl_checkpoint_state){.seed = config->seed, .loss_scale = 1};
    trainer->saved_step = UINT64_MAX;
    if (trainer->resume.checkpoint)
        trainer->state = sl_checkpoint_describe(trainer->resume.checkpoint)->state;
    SL_TRY(sl_schedule_start_loss_scale(config, trainer->resume.checkpoint, &trainer->state));
    if (!trainer->resume.checkpoint)
        return SL_OK;
    trainer->saved_step = trainer->state.step;
    if (config->given[SL_CONFIG_ROW_seed] && config->seed != trainer->state.seed)
        SL_FAIL(SL_ERROR_USAGE, "--seed %" PRIu64 " is not that of the checkpoint, %" PRIu64,
                config->seed, trainer->state.seed);
    config->seed = trainer->state.seed;
    return SL_OK;
}

/* How text becomes ids: of the run that goes on, of the weights it starts with, or of a new one. */
static sl_status ask_tokenizer(const sl_trainer *trainer, sl_tokenizer_question *out_question)
{
    const sl_config *config = trainer->config;
    sl_tokenizer_question question = {.recorded = trainer->source.tokenizer,
                                      .directory = trainer->source.path,
                                      .shape = &trainer->shape};
    if (trainer->source.path)
        question.model = config->init;
    if (trainer->resume.checkpoint) {
        question.model = config->save;
        question.recorded = sl_checkpoint_describe(trainer->resume.checkpoint)->tokenizer;
        question.directory = sl_checkpoint_describe(trainer->resume.checkpoint)->path;
    }
    SL_TRY(sl_tokenizer_look(trainer->tokens, &question));
    SL_TRY(sl_tokenizer_look(trainer->eval_tokens, &question));
    *out_question = question;
    return SL_OK;
}

/* A run that goes on has its vocabulary in the checkpoint; where it came from may be gone. */
static sl_status open_vocabulary(sl_trainer *trainer)
{
    sl_tokenizer_question question;
    SL_TRY(ask_tokenizer(trainer, &question));
    trainer->origin = question.origin;
    bool is_restored = trainer->resume.checkpoint && !trainer->resume.is_tokenizer_given;
    if (is_restored && question.recorded)
        SL_TRY(sl_config_resolve(trainer->config, SL_CONFIG_ROW_tokenizer, "auto"));
    return sl_tokenizer_open(trainer->config, &question, &trainer->vocabulary);
}

static sl_status resolve_tokenizer(sl_trainer *trainer)
{
    sl_tokenizer_question question;
    SL_TRY(ask_tokenizer(trainer, &question));
    return sl_tokenizer_resolve(trainer->config, &question, &trainer->vocabulary);
}

static sl_status find_end_of_text(sl_trainer *trainer)
{
    trainer->end_of_text =
        sl_tokenizer_end_of_text(trainer->config, &trainer->origin, trainer->vocabulary);
    if (trainer->end_of_text < (int32_t)trainer->shape.vocab)
        return SL_OK;
    if (trainer->config->end_of_text == SL_CONFIG_UNSET)
        SL_FAIL(SL_ERROR_USAGE,
                "the model has %u ids, and the tokenizer's end of text is id %d: --vocab %d at "
                "least, or leave --vocab out",
                trainer->shape.vocab, trainer->end_of_text, trainer->end_of_text + 1);
    SL_FAIL(SL_ERROR_USAGE, "--end-of-text %d is not below the %u ids of the model",
            trainer->end_of_text, trainer->shape.vocab);
}

/* From here on the data are ids. Of text that a plan never reads, its identity was enough; it reads
 * that of which it evaluates a share. */
static sl_status encode_text(sl_trainer *trainer, sl_config_command command)
{
    const sl_config *config = trainer->config;
    if (command == SL_CONFIG_PLAN && !config->split &&
        sl_data_files_need_ids(config, trainer->vocabulary, trainer->tokens)) {
        sl_tokens_close(trainer->tokens);
        trainer->tokens = NULL;
    }
    const sl_vocabulary *vocabulary = trainer->vocabulary;
    SL_TRY(sl_data_files_encode(config, vocabulary, &trainer->files, &trainer->tokens));
    return sl_data_files_encode(config, vocabulary, &trainer->eval_files, &trainer->eval_tokens);
}

static sl_status identify_data(sl_trainer *trainer)
{
    if (!trainer->tokens)
        return SL_OK;
    SL_TRY(sl_tokens_fingerprint(trainer->tokens, trainer->data.fingerprint));
    return sl_tokens_sample(trainer->tokens, trainer->data.sample);
}

/* A process that is alone has nobody to compare with. */
static sl_status list_beginning(sl_trainer *trainer)
{
    const sl_checkpoint *checkpoint = trainer->resume.checkpoint;
    const sl_common_inputs_args args = {
        trainer->tokens, trainer->eval_tokens, trainer->vocabulary, &trainer->source,
        checkpoint ? sl_checkpoint_describe(checkpoint)->path : NULL};
    return trainer->ranks.world ? sl_common_inputs_list(&args, &trainer->beginning) : SL_OK;
}

static sl_status keep_given(sl_trainer *trainer)
{
    json_t *given = NULL;
    SL_TRY(sl_config_format_given(trainer->config, SL_CONFIG_TRAIN, &given));
    return dump_config(given, &trainer->given_json);
}

static void tell_if_done(const sl_trainer *trainer)
{
    if (trainer->resume.checkpoint && trainer->state.step >= trainer->config->steps)
        sl_log_write(SL_LOG_NOTE,
                     "the checkpoint is of step %" PRIu64 " of %" PRIu64
                     ": nothing is left to train; --steps N goes on to step N",
                     trainer->state.step, trainer->config->steps);
}

static sl_evaluate_range cover_loader(const sl_data_loader *loader, const sl_config *config)
{
    if (!loader->row)
        return (sl_evaluate_range){0};
    return sl_evaluate_cover(sl_data_loader_row_count(loader), (uint32_t)config->micro_batch,
                             config->eval_iters);
}

static sl_status init_search(sl_trainer *trainer)
{
    const sl_config *config = trainer->config;
    SL_TRY(sl_search_init(config, SL_WORK_TRAIN, &trainer->shape, &trainer->search));
    sl_task *task = &trainer->search.task;
    trainer->eval_range = cover_loader(&trainer->eval_loader, config);
    trainer->test_range = cover_loader(&trainer->test_loader, config);
    task->with_evaluation = trainer->eval_loader.row || trainer->test_loader.row;
    task->tail_rows = trainer->eval_range.tail_rows;
    task->test_tail_rows = trainer->test_range.tail_rows;
    return sl_ranks_share(&trainer->ranks, &trainer->search);
}

sl_status sl_trainer_meet_ranks(sl_trainer *trainer, double timeout_s,
                                const volatile sig_atomic_t *stop)
{
    SL_TRY(sl_ranks_open(timeout_s, &trainer->ranks));
    sl_ranks_listen(&trainer->ranks, stop);
    return SL_OK;
}

void sl_trainer_leave_ranks(sl_trainer *trainer, sl_status status)
{
    sl_ranks_leave(&trainer->ranks, status);
}

/* A step has --global-batch rows, if that is known, of all data-parallel ranks together. */
static sl_status settle_batch(sl_trainer *trainer)
{
    sl_config *config = trainer->config;
    const sl_resume *resume = &trainer->resume;
    bool is_free = !config->given[SL_CONFIG_ROW_accumulate];
    if (resume->checkpoint) /* which gives --accumulate too */
        is_free =
            !resume->is_batch_given || (resume->is_total_given && !resume->is_accumulate_given);
    SL_TRY(sl_batch_plan_ranks(config));
    return sl_batch_settle(config, is_free);
}

/* Before the first step: a run that could not save would compute for nothing. */
static sl_status lock_save(sl_trainer *trainer, sl_config_command command)
{
    const char *directory = trainer->config->save;
    if (command != SL_CONFIG_TRAIN || !directory || !sl_ranks_is_first(&trainer->ranks))
        return SL_OK;
    const sl_status status = sl_resume_lock(&trainer->resume, directory, &trainer->lock);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "--save");
}

/* The id of the run, and where its logs are written. */
static sl_status settle_logs(sl_trainer *trainer, sl_config_command command)
{
    const sl_resume *resume = &trainer->resume;
    if (resume->checkpoint)
        trainer->run = sl_checkpoint_describe(resume->checkpoint)->run;
    if (!sl_run_id_is_known(trainer->run))
        trainer->run = sl_run_id_draw();
    if (command != SL_CONFIG_TRAIN || !sl_ranks_is_first(&trainer->ranks))
        return SL_OK;
    return sl_logs_settle(trainer->config, resume, trainer->run, &trainer->logs);
}

sl_status sl_trainer_prepare(sl_config *config, sl_config_command command, sl_trainer *trainer)
{
    trainer->config = config;
    trainer->has_old_checkpoints = config->overwrite;
    SL_TRY(sl_resume_open(config, command, &trainer->resume));
    SL_TRY(command == SL_CONFIG_PLAN ? sl_ranks_plan_cores(config)
                                     : sl_ranks_share_cores(&trainer->ranks, config));
    SL_TRY(sl_config_check(config, command));
    if (command == SL_CONFIG_TRAIN)
        SL_TRY(sl_ranks_divide(&trainer->ranks, config));
    SL_TRY(settle_batch(trainer));
    if (command == SL_CONFIG_PLAN)
        sl_ranks_plan(&trainer->ranks, config);
    if (command == SL_CONFIG_TRAIN && config->save) /* before hours may go into the text */
        SL_TRY(sl_config_check_recorded(config, SL_CONFIG_TRAIN));
    SL_TRY(lock_save(trainer, command));
    SL_TRY(settle_logs(trainer, command));
    SL_TRY(sl_outputs_check(config, command));
    SL_TRY(sl_resume_note_followers(&trainer->resume, config));
    SL_TRY(sl_data_files_open(&config->data, &trainer->files, &trainer->tokens));
    SL_TRY(sl_data_files_open(&config->eval_data, &trainer->eval_files, &trainer->eval_tokens));
    SL_TRY(open_source(trainer));
    SL_TRY(open_vocabulary(trainer));
    SL_TRY(resolve_shape(trainer));
    SL_TRY(take_state(trainer));
    SL_TRY(resolve_tokenizer(trainer));
    SL_TRY(find_end_of_text(trainer));
    SL_TRY(identify_data(trainer));
    SL_TRY(list_beginning(trainer));
    SL_TRY(sl_resume_check_data(&trainer->resume, &trainer->data));
    SL_TRY(encode_text(trainer, command));
    SL_TRY(open_loaders(trainer));
    SL_TRY(keep_given(trainer));
    sl_resume_tell(&trainer->resume);
    tell_if_done(trainer);
    return init_search(trainer);
}

/* What follows from how many ranks there are, where it was not given. */
static void reopen_ranks(const sl_trainer *trainer, sl_config *config)
{
    if (!config->given[SL_CONFIG_ROW_threads])
        config->threads = SL_CONFIG_UNSET;
    if (!config->given[SL_CONFIG_ROW_dp])
        config->dp = SL_CONFIG_UNSET;
    if (!config->given[SL_CONFIG_ROW_global_batch] && !trainer->resume.checkpoint)
        config->global_batch = SL_CONFIG_UNSET;
}

sl_status sl_trainer_vary(const sl_trainer *trainer, sl_config *config, sl_trainer *out_trainer)
{
    *out_trainer = *trainer;
    out_trainer->config = config;
    reopen_ranks(trainer, config);
    SL_TRY(sl_stages_check(config));
    SL_TRY(sl_ranks_plan_cores(config));
    if (config->threads == SL_CONFIG_UNSET)
        config->threads = sl_workers_usable_cpu_count();
    SL_TRY(settle_batch(out_trainer));
    sl_ranks_plan(&out_trainer->ranks, config);
    SL_TRY(sl_config_fit_model(config, &trainer->shape));
    return init_search(out_trainer);
}

/* Each rank compares the blocks that it loads; together they have compared the whole checkpoint. */
static sl_status load_checkpoint(sl_trainer *trainer)
{
    sl_session *session = trainer->session;
    sl_status status = sl_checkpoint_load(trainer->resume.checkpoint, session->tensors,
                                          session->tensor_count, session->has_state, &session->io);
    SL_TRY(sl_ranks_agree_on_damage(&trainer->ranks, status));
    sl_resume_let_go(&trainer->resume);
    return sl_steps_note_whole(&trainer->known_steps, trainer->state.step);
}

static sl_status set_first_values(sl_trainer *trainer)
{
    sl_session *session = trainer->session;
    if (trainer->resume.checkpoint)
        return load_checkpoint(trainer);
    if (trainer->source.path)
        return sl_ranks_agree_on_damage(
            &trainer->ranks, sl_model_directory_load(&trainer->source, session->tensors,
                                                     session->tensor_count, &session->io));
    return sl_session_initialise(session, trainer->config->seed);
}

/* From here on the configuration says what was chosen, not what was left open. */
static void record_choice(sl_trainer *trainer, const sl_blueprint *blueprint)
{
    sl_config *config = trainer->config;
    const sl_choice *choice = &blueprint->choice;
    config->layers = trainer->shape.layers;
    config->width = trainer->shape.width;
    config->heads = trainer->shape.heads;
    config->context = trainer->shape.context;
    config->vocab = trainer->shape.vocab;
    config->policy = choice->placement.policy;
    config->adam = choice->placement.adam;
    config->offload_params = choice->placement.host_fraction[SL_GROUP_PARAM];
    config->offload_grads = choice->placement.host_fraction[SL_GROUP_GRAD];
    config->offload_optimizer = choice->placement.host_fraction[SL_GROUP_MOMENT1];
    config->offload_activations = choice->host_activations;
    config->nvme_params = choice->placement.disk_fraction[SL_GROUP_PARAM];
    config->nvme_grads = choice->placement.disk_fraction[SL_GROUP_GRAD];
    config->nvme_optimizer = choice->placement.disk_fraction[SL_GROUP_MOMENT1];
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

/* NULL: there are none of this kind. */
static const sl_engine_ranks *find_others(const sl_engine_ranks *table)
{
    return table->size > 0 ? table : NULL;
}

/* What every save of this run has in common; the rest is filled in when it comes. */
static sl_checkpoint_save_args describe_saves(const sl_trainer *trainer)
{
    const sl_session *session = trainer->session;
    return (sl_checkpoint_save_args){.directory = trainer->config->save,
                                     .keep = (uint32_t)trainer->config->keep,
                                     .shape = &trainer->shape,
                                     .vocabulary = trainer->vocabulary,
                                     .tensors = session->tensors,
                                     .tensor_count = session->tensor_count,
                                     .has_state = session->has_state,
                                     .io = &session->io,
                                     .ranks = find_others(&trainer->ranks.table),
                                     .state = &trainer->state,
                                     .run = trainer->run,
                                     .precision = session->blueprint->task.type};
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
    return dump_config(resolved, &trainer->config_json);
}

/* Called by the input lane while a step runs. */
static sl_status fill_input(void *user, const sl_engine_fill *what, void *memory)
{
    const sl_trainer *trainer = user;
    uint32_t batch = trainer->session->blueprint->choice.micro_batch;
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

/* Of all stages: what the slowest rank of each is predicted to take alone, played jointly. */
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
    return sl_stage_steps_play(&blueprint->task, &blueprint->choice, stages, out_seconds);
}

static sl_status predict(sl_trainer *trainer, const sl_blueprint *blueprint)
{
    sl_simulation simulation;
    SL_TRY(sl_plan_simulate(blueprint->programs[0], blueprint->plans[0], &blueprint->machine,
                            &simulation));
    trainer->step_seconds = simulation.step_seconds;
    if (!trainer->ranks.world || trainer->ranks.layout.stages <= 1)
        return SL_OK;
    return predict_stages(trainer, blueprint, simulation.step_seconds, &trainer->step_seconds);
}

/* On GPUs, NCCL's streams notice a rank that is lost. */
static sl_status watch_ranks(sl_trainer *trainer)
{
    const sl_ranks *ranks = &trainer->ranks;
    if (!ranks->world || ranks->gpus)
        return SL_OK;
    return sl_rank_watch_open(ranks->world, trainer->session->engine, &trainer->watch);
}

static double find_patience(const sl_trainer *trainer)
{
    return sl_ranks_find_patience(trainer->config->rank_timeout, trainer->step_seconds);
}

/* The others begin with the same files and drew the same plan. */
static sl_status agree(sl_trainer *trainer, const sl_blueprint *blueprint)
{
    char position[64];
    snprintf(position, sizeof position, "step %" PRIu64 ", row %" PRIu64, trainer->state.step,
             trainer->state.next_row);
    SL_TRY(sl_ranks_agree_on(&trainer->ranks, trainer->beginning.facts, trainer->beginning.count));
    SL_TRY(sl_ranks_agree(&trainer->ranks, blueprint, trainer->config, position));
    SL_TRY(predict(trainer, blueprint));
    sl_ranks_set_patience(&trainer->ranks, find_patience(trainer));
    return SL_OK;
}

sl_status sl_trainer_open(sl_trainer *trainer, sl_blueprint *blueprint)
{
    const sl_engine_source source = {fill_input, trainer};
    const bool is_first = sl_ranks_is_first(&trainer->ranks);
    record_choice(trainer, blueprint);
    sl_status status = agree(trainer, blueprint);
    if (status == SL_OK)
        status = keep_resolved(trainer);
    const sl_engine_plan step = {blueprint->programs[0], blueprint->plans[0]};
    if (status == SL_OK && is_first)
        status = sl_drawing_open(trainer->config->timeline, &step, &trainer->drawing);
    if (status != SL_OK) {
        sl_blueprint_close(blueprint);
        return status;
    }
    const sl_session_hooks hooks = {.observer = sl_timeline_observer(trainer->drawing.timeline),
                                    .source = &source,
                                    .ranks = find_others(&trainer->ranks.tensor),
                                    .data_ranks = find_others(&trainer->ranks.data),
                                    .stage_ranks = find_others(&trainer->ranks.stages),
                                    .progress = trainer->progress,
                                    .timeout_s = find_patience(trainer)};
    SL_TRY(sl_session_open(blueprint, &hooks, &trainer->session));
    SL_TRY(watch_ranks(trainer));
    SL_TRY(check_space(trainer));
    SL_TRY(set_first_values(trainer));
    sl_model_directory_close(&trainer->source);
    return open_sinks(trainer);
}

/* All but the session and the ranks. */
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
    free(trainer->given_json);
    free(trainer->config_json);
    sl_data_files_close(&trainer->files);
    sl_data_files_close(&trainer->eval_files);
    sl_tokens_close(trainer->eval_tokens);
    sl_tokens_close(trainer->tokens);
    sl_vocabulary_close(trainer->vocabulary);
}

void sl_trainer_close(sl_trainer *trainer)
{
    sl_sinks_close(&trainer->sinks);
    sl_rank_watch_close(trainer->watch);
    const bool have_lanes_ended = sl_session_close(trainer->session);
    sl_ranks_close(&trainer->ranks); /* after the session, whose lanes exchange with other ranks */
    if (!have_lanes_ended)
        return; /* a lane may still read what is left here, until the process ends */
    close_files(trainer);
    memset(trainer, 0, sizeof *trainer);
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
    sl_sinks_close(&trainer->sinks);
    sl_rank_watch_close(trainer->watch);
    (void)sl_session_close(trainer->session); /* which has run no step */
    sl_ranks_unite(&trainer->ranks);
    close_files(trainer);
    const sl_ranks ranks = trainer->ranks; /* kept at its address: its tables point there */
    memset(trainer, 0, sizeof *trainer);
    trainer->ranks = ranks;
}

/* Which kernels computed, and what they chose for each product; the caller frees. */
static sl_status describe_kernels(const sl_trainer *trainer, char **out_text)
{
    const sl_session *session = trainer->session;
    size_t bytes = 0;
    FILE *stream = open_memstream(out_text, &bytes);
    if (!stream)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the names of kernels");
    fputs(sl_kernels_of(session->blueprint->task.target.device)->description(), stream);
    for (uint64_t i = 0;; i++) {
        const char *choice = sl_engine_kernel_choice(session->engine, i);
        if (!choice)
            break;
        fprintf(stream, "; %s", choice);
    }
    if (fclose(stream) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the names of kernels");
    return SL_OK;
}

static sl_status save_with(sl_trainer *trainer, const char *kernels)
{
    const sl_config *config = trainer->config;
    char vocabulary_name[SL_VOCABULARY_NAME_BYTES];
    sl_checkpoint_save_args args = describe_saves(trainer);
    args.lock = &trainer->lock;
    args.config_json = trainer->config_json;
    args.given_json = trainer->given_json;
    args.tokenizer = sl_config_names_tokenizer(config) ? config->tokenizer : NULL;
    if (trainer->vocabulary) {
        SL_TRY(sl_vocabulary_name(trainer->vocabulary, vocabulary_name));
        args.tokenizer = vocabulary_name;
    }
    args.gemm = kernels;
    args.data_fingerprint = trainer->data.fingerprint;
    args.data_sample = trainer->data.sample;
    args.known = &trainer->known_steps;
    if (trainer->has_old_checkpoints)
        args.keep = 0;
    return sl_checkpoint_save(&args);
}

sl_status sl_trainer_save(sl_trainer *trainer)
{
    char *kernels = NULL;
    SL_TRY(sl_engine_drain(trainer->session->engine));
    SL_TRY(describe_kernels(trainer, &kernels));
    sl_status status = save_with(trainer, kernels);
    free(kernels);
    SL_TRY(status);
    if (trainer->has_old_checkpoints && sl_ranks_is_first(&trainer->ranks))
        sl_resume_remove_old(trainer->config->save, trainer->state.step);
    SL_TRY(sl_ranks_meet(&trainer->ranks, "the end of the save")); /* rank 0 makes it */
    trainer->has_old_checkpoints = false;
    trainer->saved_step = trainer->state.step;
    return SL_OK;
}
