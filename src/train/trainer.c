/* Opens what a run needs. Knows the order of things, and nothing of steps. */
#define _GNU_SOURCE /* open_memstream */
#include "trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "kernels/kernels.h"
#include "schedule.h"
#include "session/config/config_json.h"

static sl_status open_tokens(const sl_config_list *paths, sl_tokens **out_tokens)
{
    if (paths->count == 0)
        return SL_OK;
    return sl_tokens_open((const char *const *)paths->items, paths->count, 0, out_tokens);
}

/* A first run may carry --resume too: then there is nothing to go on from yet. */
static sl_status open_resumed(sl_trainer *trainer)
{
    const char *directory = trainer->config->save;
    bool is_any;
    if (!trainer->config->resume)
        return SL_OK;
    SL_TRY(sl_checkpoint_is_any(directory, &is_any));
    if (is_any)
        return sl_checkpoint_find_newest(directory, &trainer->resumed);
    sl_log_write(SL_LOG_NOTE, "%s holds no checkpoint yet: starting anew", directory);
    return SL_OK;
}

static sl_status open_source(sl_trainer *trainer)
{
    const char *init = trainer->config->init;
    if (trainer->resumed || !init || strcmp(init, "scratch") == 0)
        return SL_OK;
    return sl_source_open(init, &trainer->source);
}

static const sl_gpt2_shape *find_base_shape(const sl_trainer *trainer)
{
    if (trainer->resumed)
        return &sl_checkpoint_describe(trainer->resumed)->shape;
    if (trainer->source.checkpoint || trainer->source.directory)
        return &trainer->source.shape;
    return NULL;
}

static sl_status resolve_shape(sl_trainer *trainer)
{
    bool is_text = trainer->tokens && sl_tokens_is_text(trainer->tokens);
    const sl_gpt2_shape *base = find_base_shape(trainer);
    SL_TRY(sl_config_shape(trainer->config, base, is_text ? SL_TOKENS_BYTE_VOCAB : 50257,
                           &trainer->shape));
    if (base && memcmp(base, &trainer->shape, sizeof *base) != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "the model of the options is not the checkpoint's (%u layers, %u wide, %u heads, "
                "context %u, vocab %u): leave --model and the sizes out",
                base->layers, base->width, base->heads, base->context, base->vocab);
    return sl_config_fit_model(trainer->config, &trainer->shape);
}

static sl_status open_loaders(sl_trainer *trainer)
{
    const sl_config *config = trainer->config;
    sl_data_order order =
        config->data_order == SL_CONFIG_SEQUENTIAL ? SL_DATA_SEQUENTIAL : SL_DATA_RANDOM;
    if (trainer->tokens) {
        SL_TRY(sl_tokens_limit_vocab(trainer->tokens, trainer->shape.vocab));
        SL_TRY(sl_data_loader_open(trainer->tokens, order, config->seed, (uint32_t)config->seq,
                                   &trainer->loader));
    }
    if (trainer->eval_tokens) {
        SL_TRY(sl_tokens_limit_vocab(trainer->eval_tokens, trainer->shape.vocab));
        SL_TRY(sl_data_loader_open(trainer->eval_tokens, SL_DATA_SEQUENTIAL, 0,
                                   (uint32_t)config->seq, &trainer->eval_loader));
    }
    if (trainer->eval_tokens &&
        sl_data_loader_row_count(&trainer->eval_loader) < config->micro_batch)
        SL_FAIL(SL_ERROR_DATA,
                "--eval-data holds %" PRIu64 " rows of %" PRIu64
                " tokens: fewer than a micro-batch of %" PRIu64,
                sl_data_loader_row_count(&trainer->eval_loader), config->seq, config->micro_batch);
    return SL_OK;
}

/* The run goes on with the numbers of the one it continues. */
static sl_status take_state(sl_trainer *trainer)
{
    sl_config *config = trainer->config;
    trainer->state = (sl_checkpoint_state){.seed = config->seed, .loss_scale = 1};
    trainer->saved_step = UINT64_MAX;
    if (trainer->resumed)
        trainer->state = sl_checkpoint_describe(trainer->resumed)->state;
    sl_schedule_start_loss_scale(config, trainer->resumed, &trainer->state);
    if (!trainer->resumed)
        return SL_OK;
    trainer->saved_step = trainer->state.step;
    if (config->given[SL_CONFIG_ROW_seed] && config->seed != trainer->state.seed)
        SL_FAIL(SL_ERROR_USAGE, "--seed %" PRIu64 " is not that of the checkpoint, %" PRIu64,
                config->seed, trainer->state.seed);
    config->seed = trainer->state.seed;
    return SL_OK;
}

static void warn_of_other_data(const sl_trainer *trainer)
{
    char fingerprint[SL_TOKENS_FINGERPRINT];
    if (!trainer->resumed || !trainer->tokens)
        return;
    const char *saved = sl_checkpoint_describe(trainer->resumed)->data_fingerprint;
    if (!*saved || sl_tokens_fingerprint(trainer->tokens, fingerprint) != SL_OK)
        return;
    if (strcmp(saved, fingerprint) != 0)
        sl_log_write(SL_LOG_WARNING, "the data are not those of the checkpoint: the run goes on, "
                                     "but not as it would have without a stop");
}

sl_status sl_trainer_prepare(sl_config *config, sl_trainer *trainer)
{
    memset(trainer, 0, sizeof *trainer);
    trainer->config = config;
    SL_TRY(open_tokens(&config->data, &trainer->tokens));
    SL_TRY(open_tokens(&config->eval_data, &trainer->eval_tokens));
    SL_TRY(open_resumed(trainer));
    SL_TRY(open_source(trainer));
    SL_TRY(resolve_shape(trainer));
    SL_TRY(take_state(trainer));
    SL_TRY(open_loaders(trainer));
    warn_of_other_data(trainer);
    return sl_search_init(config, SL_WORK_TRAIN, &trainer->shape, &trainer->search);
}

static sl_status set_first_values(sl_trainer *trainer)
{
    sl_session *session = trainer->session;
    if (trainer->resumed)
        return sl_checkpoint_load(trainer->resumed, session->tensors, session->tensor_count,
                                  session->has_state, &session->io);
    if (trainer->source.checkpoint || trainer->source.directory)
        return sl_source_load(&trainer->source, session);
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
    config->device_memory = blueprint->budget_bytes[SL_TIER_DEVICE];
    config->host_memory = blueprint->budget_bytes[SL_TIER_HOST];
    config->disk_space = blueprint->budget_bytes[SL_TIER_DISK];
}

/* What every save of this run has in common; the rest is filled in when it comes. */
static sl_checkpoint_save_args describe_saves(const sl_trainer *trainer)
{
    const sl_session *session = trainer->session;
    return (sl_checkpoint_save_args){.directory = trainer->config->save,
                                     .keep = (uint32_t)trainer->config->keep,
                                     .shape = &trainer->shape,
                                     .tensors = session->tensors,
                                     .tensor_count = session->tensor_count,
                                     .has_state = session->has_state,
                                     .io = &session->io,
                                     .state = &trainer->state,
                                     .precision = session->blueprint->task.type};
}

/* After the disk tier has taken its space, which may be on the same disk. */
static sl_status check_space(const sl_trainer *trainer)
{
    const sl_config *config = trainer->config;
    const uint64_t done = trainer->state.step, every = config->save_every;
    if (!config->save || done >= config->steps)
        return SL_OK;
    uint64_t save_count = every ? config->steps / every - done / every : 0;
    save_count += every == 0 || config->steps % every != 0;
    const sl_checkpoint_save_args args = describe_saves(trainer);
    return sl_checkpoint_check_space(&args, save_count);
}

/* Called by the input lane while a step runs. */
static sl_status fill_input(void *user, const sl_engine_fill *what, void *memory)
{
    const sl_trainer *trainer = user;
    uint32_t batch = trainer->session->blueprint->choice.micro_batch;
    const sl_row_range rows = {trainer->state.next_row + (uint64_t)what->micro_batch * batch,
                               batch};
    return sl_data_loader_read(&trainer->loader, rows, what->slot, memory);
}

sl_status sl_trainer_open(sl_trainer *trainer, sl_blueprint *blueprint)
{
    const sl_engine_source source = {fill_input, trainer};
    record_choice(trainer, blueprint);
    const sl_engine_plan step = {blueprint->programs[0], blueprint->plans[0]};
    sl_status status = sl_timeline_open(trainer->config->timeline, &step, &trainer->timeline);
    if (status != SL_OK) {
        sl_blueprint_close(blueprint);
        return status;
    }
    const sl_session_hooks hooks = {.observer = sl_timeline_observer(trainer->timeline),
                                    .source = &source,
                                    .progress = trainer->progress};
    SL_TRY(sl_session_open(blueprint, &hooks, &trainer->session));
    SL_TRY(check_space(trainer));
    SL_TRY(set_first_values(trainer));
    sl_source_close(&trainer->source);
    return sl_log_json_open(trainer->config->log_json, trainer->resumed != NULL, &trainer->log);
}

void sl_trainer_close(sl_trainer *trainer)
{
    sl_log_json_close(trainer->log);
    sl_session_close(trainer->session);
    sl_timeline_close(trainer->timeline);
    sl_data_loader_close(&trainer->loader);
    sl_data_loader_close(&trainer->eval_loader);
    sl_source_close(&trainer->source);
    sl_checkpoint_close(trainer->resumed);
    sl_tokens_close(trainer->eval_tokens);
    sl_tokens_close(trainer->tokens);
    memset(trainer, 0, sizeof *trainer);
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

static sl_status save_with(sl_trainer *trainer, const char *config_json, const char *kernels)
{
    char fingerprint[SL_TOKENS_FINGERPRINT];
    SL_TRY(sl_tokens_fingerprint(trainer->tokens, fingerprint));
    sl_checkpoint_save_args args = describe_saves(trainer);
    args.config_json = config_json;
    args.gemm = kernels;
    args.data_fingerprint = fingerprint;
    return sl_checkpoint_save(&args);
}

sl_status sl_trainer_save(sl_trainer *trainer)
{
    json_t *config = NULL;
    SL_TRY(sl_engine_drain(trainer->session->engine));
    SL_TRY(sl_config_format(trainer->config, SL_CONFIG_TRAIN, &config));
    char *text = json_dumps(config, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(config);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the configuration");
    char *kernels = NULL;
    sl_status status = describe_kernels(trainer, &kernels);
    if (status == SL_OK)
        status = save_with(trainer, text, kernels);
    free(kernels);
    free(text);
    if (status == SL_OK)
        trainer->saved_step = trainer->state.step;
    return status;
}
