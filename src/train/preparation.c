/* See preparation.h. */
#include "preparation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/plural.h"
#include "base/workers.h"
#include "best.h"
#include "config/batch.h"
#include "config/config_json.h"
#include "config/fine_tuning.h"
#include "config/lora.h"
#include "config/stages.h"
#include "config/tensor_parallel.h"
#include "encoding.h"
#include "schedule.h"
#include "search/free_memory.h"
#include "session/exchange_proof.h"
#include "train/data/tokenizer.h"
#include "train/loading/loading.h"

/* ---- options ---- */

static sl_status open_resume(sl_trainer *trainer)
{
    return sl_resume_open(trainer->config, trainer->command, &trainer->resume);
}

/* Rows of a program's own take the place of the data that a checkpoint names. */
static sl_status drop_recorded_data(sl_trainer *trainer)
{
    sl_config *config = trainer->config;
    static const uint32_t of_rows[] = {SL_CONFIG_ROW_data, SL_CONFIG_ROW_split};
    for (int i = 0; config->has_own_rows && i < 2; i++)
        if (!config->given[of_rows[i]])
            SL_TRY(sl_config_resolve(config, of_rows[i], ""));
    if (config->has_own_eval_rows && !config->given[SL_CONFIG_ROW_eval_data])
        SL_TRY(sl_config_resolve(config, SL_CONFIG_ROW_eval_data, ""));
    return SL_OK;
}

static sl_status share_cores(sl_trainer *trainer)
{
    return trainer->command == SL_CONFIG_PLAN
               ? sl_ranks_plan_cores(trainer->config)
               : sl_ranks_share_cores(&trainer->ranks, trainer->config);
}

static sl_status check_options(sl_trainer *trainer)
{
    return sl_config_check(trainer->config, trainer->command);
}

static sl_status agree_on_groups(sl_trainer *trainer)
{
    return sl_ranks_agree_on_groups(&trainer->ranks, trainer->config);
}

/* Of numbers that auto chose, which were not known when options were checked. */
static sl_status choose_layout(sl_trainer *trainer)
{
    SL_TRY(sl_layout_choose(trainer));
    return trainer->layout_choice.is_made ? sl_stages_check(trainer->config) : SL_OK;
}

static sl_status divide_ranks(sl_trainer *trainer)
{
    return sl_ranks_divide(&trainer->ranks, trainer->config);
}

/* Before anything is computed, and before the memory that NCCL takes for large exchanges is counted
 * as free. */
static sl_status prove_exchanges(sl_trainer *trainer)
{
    const sl_exchange_proof_args args = sl_exchange_proof_choose(trainer->config);
    return sl_exchange_proof_run(&trainer->ranks, &args);
}

/* A step has --global-batch rows, if that is known, of all data-parallel ranks together. */
static sl_status settle_batch(sl_trainer *trainer)
{
    sl_config *config = trainer->config;
    SL_TRY(sl_batch_plan_ranks(config));
    SL_TRY(sl_batch_settle(config, sl_resume_frees_accumulate(&trainer->resume, config)));
    return sl_tensor_parallel_check(config);
}

static sl_status plan_ranks(sl_trainer *trainer)
{
    sl_ranks_plan(&trainer->ranks, trainer->config);
    return SL_OK;
}

static sl_status check_recorded(sl_trainer *trainer)
{
    return trainer->config->save ? sl_config_check_recorded(trainer->config, SL_CONFIG_TRAIN)
                                 : SL_OK;
}

/* Before the first step: a run that could not save would compute for nothing. */
static sl_status lock_save(sl_trainer *trainer)
{
    const char *directory = trainer->config->save;
    if (!directory || !sl_ranks_is_first(&trainer->ranks))
        return SL_OK;
    const sl_status status = sl_resume_lock(&trainer->resume, directory, &trainer->lock);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "--save");
}

/* The id of the run, and where its logs are written. */
static sl_status settle_logs(sl_trainer *trainer)
{
    const sl_resume *resume = &trainer->resume;
    if (resume->checkpoint)
        trainer->run = sl_checkpoint_describe(resume->checkpoint)->run;
    if (!sl_run_id_is_known(trainer->run))
        trainer->run = sl_run_id_draw();
    if (trainer->command != SL_CONFIG_TRAIN || !sl_ranks_is_first(&trainer->ranks))
        return SL_OK;
    return sl_logs_settle(trainer->config, resume, trainer->run, &trainer->logs);
}

static sl_status check_outputs(sl_trainer *trainer)
{
    return sl_outputs_check(trainer->config, trainer->command);
}

static sl_status note_followers(sl_trainer *trainer)
{
    return sl_resume_note_followers(&trainer->resume, trainer->config);
}

/* ---- data and model ---- */

static sl_status open_data(sl_trainer *trainer)
{
    const sl_config *config = trainer->config;
    SL_TRY(sl_examples_open(config, NULL, &trainer->examples));
    const sl_example_form *form = sl_examples_form(&trainer->examples);
    SL_TRY(sl_data_files_open(&config->data, form, &trainer->files, &trainer->tokens));
    return sl_data_files_open(&config->eval_data, form, &trainer->eval_files,
                              &trainer->eval_tokens);
}

static sl_status open_source(sl_trainer *trainer)
{
    const char *init = trainer->config->init;
    if (trainer->resume.checkpoint)
        return SL_OK;
    if (!init || strcmp(init, "scratch") == 0) {
        if (trainer->config->adapter)
            SL_FAIL(SL_ERROR_USAGE, "--adapter needs --init: the model that the adapters are for");
        return SL_OK;
    }
    const uint64_t heads = trainer->config->heads;
    SL_TRY(sl_model_directory_open(init, trainer->config->checks_checkpoints,
                                   heads == SL_CONFIG_UNSET ? 0 : (uint32_t)heads,
                                   &trainer->source));
    return sl_model_directory_add_adapter(&trainer->source, trainer->config->adapter);
}

static const sl_model_shape *find_base_shape(const sl_trainer *trainer)
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

/* Adapters come with the weights, or are new. */
static sl_status take_lora(sl_trainer *trainer)
{
    static const sl_lora none = {.rank = 0};
    const sl_model_shape *base = find_base_shape(trainer);
    return sl_config_take_lora(trainer->config, base ? &base->lora : &none, &trainer->shape);
}

/* The shape of an own model is what its build function makes: no option changes it. */
static sl_status resolve_own_shape(sl_trainer *trainer)
{
    const sl_model_shape *base = find_base_shape(trainer);
    const sl_config *config = trainer->config;
    const char *given = sl_config_shape_option(config);
    if (given)
        SL_FAIL(SL_ERROR_USAGE,
                "the model is built by the program, so --%s has no meaning: leave it out", given);
    SL_TRY(sl_model_shape_survey(trainer->inputs.build, trainer->inputs.model, &trainer->shape));
    if (base && !sl_model_shape_is_same(base, &trainer->shape))
        SL_FAIL(SL_ERROR_USAGE,
                "the model of this program is not the checkpoint's (%s, %u layers, %u wide, "
                "context %u, vocab %u)",
                sl_architecture_name(base->architecture), base->layers, base->width, base->context,
                base->vocab);
    SL_TRY(take_lora(trainer));
    return sl_config_fit_model(trainer->config, &trainer->shape);
}

static sl_status resolve_shape(sl_trainer *trainer)
{
    const sl_model_shape *base = find_base_shape(trainer);
    uint32_t vocab = find_vocab(trainer);
    if (trainer->inputs.build)
        return resolve_own_shape(trainer);
    SL_TRY(sl_config_shape(trainer->config, base, vocab, &trainer->shape));
    if (base && !sl_model_shape_is_same(base, &trainer->shape))
        SL_FAIL(SL_ERROR_USAGE,
                "the model of the options is not the checkpoint's (%s of the checkpoint and of "
                "the options): leave --model and the sizes out",
                sl_model_shape_difference(base, &trainer->shape).text);
    SL_TRY(take_lora(trainer));
    return sl_config_fit_model(trainer->config, &trainer->shape);
}

/* What is frozen keeps its values: those of a checkpoint or of --init, but for a new model. */
static sl_status check_rules(sl_trainer *trainer)
{
    const sl_config *config = trainer->config;
    const bool is_new = !trainer->resume.checkpoint && !trainer->source.path;
    SL_TRY(sl_search_check_rules(config, &trainer->shape));
    if ((config->freeze.count > 0 || trainer->shape.lora.rank > 0) && is_new &&
        trainer->command == SL_CONFIG_TRAIN && sl_ranks_is_first(&trainer->ranks))
        sl_log_write(SL_LOG_WARNING,
                     "--%s with --init scratch: the frozen tensors keep random numbers for ever; "
                     "--init DIR takes the weights of a model",
                     config->freeze.count > 0 ? "freeze" : "lora-rank");
    return SL_OK;
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
                                      .end_of_text = trainer->end_of_text,
                                      .has_examples = trainer->files.form != NULL,
                                      .packs = config->pack == SL_CONFIG_ON};
    SL_TRY(sl_data_loader_open(&args, out_loader));
    if (!config->quiet && sl_ranks_is_first(&trainer->ranks))
        sl_examples_tell(out_loader, trains ? "training" : "evaluation");
    return SL_OK;
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
                           trainer->inputs.build || find_base_shape(trainer) != NULL;
    SL_TRY(sl_origin_check(trainer->tokens, trainer->shape.vocab, !is_chosen));
    return sl_origin_check(trainer->eval_tokens, trainer->shape.vocab, false);
}

/* Rows of a program's own, in the order of their numbers. */
static sl_status open_own_loader(const sl_trainer *trainer, const sl_own_rows *own,
                                 sl_data_loader *out_loader)
{
    const sl_config *config = trainer->config;
    const sl_data_loader_args args = {.own = *own,
                                      .own_batch = (uint32_t)config->micro_batch,
                                      .vocab = trainer->shape.vocab,
                                      .order = SL_DATA_SEQUENTIAL,
                                      .seq = (uint32_t)config->seq,
                                      .by_document = config->documents == SL_CONFIG_RESET,
                                      .end_of_text = trainer->end_of_text};
    return own->call ? sl_data_loader_open(&args, out_loader) : SL_OK;
}

static sl_status open_loaders(sl_trainer *trainer)
{
    SL_TRY(open_own_loader(trainer, &trainer->inputs.rows, &trainer->loader));
    SL_TRY(open_own_loader(trainer, &trainer->inputs.eval_rows, &trainer->eval_loader));
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
    sl_loading_keep_end(trainer->config, &trainer->source);
    trainer->end_of_text =
        sl_tokenizer_end_of_text(trainer->config, &trainer->origin, trainer->vocabulary);
    if (trainer->end_of_text < (int32_t)trainer->shape.vocab)
        return SL_OK;
    if (trainer->inputs.build)
        SL_FAIL(SL_ERROR_USAGE,
                "the model of this program has %u ids, and the end of text is id %d",
                trainer->shape.vocab, trainer->end_of_text);
    if (trainer->config->end_of_text == SL_CONFIG_UNSET)
        SL_FAIL(SL_ERROR_USAGE,
                "the model has %u ids, and the tokenizer's end of text is id %d: --vocab %d at "
                "least, or leave --vocab out",
                trainer->shape.vocab, trainer->end_of_text, trainer->end_of_text + 1);
    SL_FAIL(SL_ERROR_USAGE, "--end-of-text %d is not below the %u ids of the model",
            trainer->end_of_text, trainer->shape.vocab);
}

/* Ids that end a text beside the vocabulary's end: the base's, and what --end-of-text names. */
static sl_status keep_ends(sl_trainer *trainer)
{
    const sl_model_directory *source = &trainer->source;
    const uint32_t vocab = trainer->shape.vocab, end = (uint32_t)trainer->end_of_text;
    const bool is_given = trainer->config->end_of_text != SL_CONFIG_UNSET;
    sl_text_ends ends = {0};
    sl_status status = source->directory ? sl_text_ends_read(source->directory, vocab, &ends)
                                         : sl_model_texts_find_ends(&trainer->texts,
                                                                    "the checkpoint", vocab, &ends);
    if (status == SL_ERROR_DATA) { /* training needs none */
        sl_log_write(SL_LOG_WARNING, "what ends a text is not known: %s", sl_status_message());
        ends.count = 0;
        SL_TRY(sl_model_texts_set_ends(&trainer->texts, &ends));
    } else
        SL_TRY(status);
    if (is_given && !sl_text_ends_has(&ends, end) && ends.count < SL_TEXT_ENDS_MAX)
        ends.ids[ends.count++] = end;
    return is_given || (source->directory && ends.count > 0)
               ? sl_model_texts_set_ends(&trainer->texts, &ends)
               : SL_OK;
}

/* A chat template is a program in Jinja, which is not run. */
static void tell_template(const sl_trainer *trainer, const sl_example_form *form)
{
    const sl_config *config = trainer->config;
    if (!form || form->template_text || config->template_file || !trainer->texts.chat ||
        trainer->resume.checkpoint || config->quiet || !sl_ranks_is_first(&trainer->ranks))
        return;
    sl_log_write(SL_LOG_NOTE,
                 "the model's chat template is not used: without --template FILE %s "
                 "(docs/fine-tuning.md has a file for ChatML)",
                 form->messages_key ? "a message is written as \"{role}: {content}\""
                                    : "an example is written as {prompt}, a line feed, {response}");
}

/* What a checkpoint keeps beside weights and vocabulary. */
static sl_status keep_texts(sl_trainer *trainer)
{
    const sl_checkpoint *checkpoint = trainer->resume.checkpoint;
    const sl_example_form *form = sl_examples_form(&trainer->examples);
    SL_TRY(sl_model_texts_copy(checkpoint ? &sl_checkpoint_describe(checkpoint)->texts
                                          : &trainer->source.texts,
                               &trainer->texts));
    tell_template(trainer, form);
    if (form)
        SL_TRY(sl_model_texts_set_examples(&trainer->texts, sl_example_template(form)));
    return keep_ends(trainer);
}

/* From here on the data are ids. Of text that a plan never reads, its identity was enough; it reads
 * that of which it evaluates a share. */
static sl_status encode_text(sl_trainer *trainer)
{
    const sl_config *config = trainer->config;
    if (trainer->command == SL_CONFIG_PLAN && !config->split &&
        sl_data_files_need_ids(config, trainer->vocabulary, trainer->tokens)) {
        sl_tokens_close(trainer->tokens);
        trainer->tokens = NULL;
    }
    return sl_encoding_run(trainer);
}

/* Another template makes other ids of the same files. */
static sl_status add_template(const char *text, char sample[SL_TOKENS_FINGERPRINT])
{
    sl_hash_stream *stream;
    SL_TRY(sl_hash_open(&stream));
    sl_hash_update(stream, sample, strlen(sample));
    sl_hash_update(stream, text, strlen(text));
    const sl_hash_value value = sl_hash_digest(stream);
    sl_hash_close(stream);
    snprintf(sample, SL_TOKENS_FINGERPRINT, "%016" PRIx64 "%016" PRIx64, value.high, value.low);
    return SL_OK;
}

/* What messages without a template are written as: an older form had other ids. */
static const char message_form[] = "messages, 2";

static sl_status identify_data(sl_trainer *trainer)
{
    const sl_example_form *form = sl_examples_form(&trainer->examples);
    const char *text = trainer->examples.template_text;
    if (!text && form && form->messages_key)
        text = message_form;
    if (!trainer->tokens)
        return SL_OK;
    SL_TRY(sl_tokens_fingerprint(trainer->tokens, trainer->data.fingerprint));
    SL_TRY(sl_tokens_sample(trainer->tokens, trainer->data.sample));
    return text ? add_template(text, trainer->data.sample) : SL_OK;
}

/* A process that is alone has nobody to compare with. */
static sl_status list_inputs(sl_trainer *trainer)
{
    const sl_checkpoint *checkpoint = trainer->resume.checkpoint;
    const sl_common_inputs_args args = {trainer->tokens,
                                        trainer->eval_tokens,
                                        trainer->vocabulary,
                                        &trainer->source,
                                        "--init",
                                        checkpoint ? sl_checkpoint_describe(checkpoint)->path
                                                   : NULL,
                                        trainer->examples.template_text};
    return trainer->ranks.world ? sl_common_inputs_list(&args, &trainer->beginning) : SL_OK;
}

static sl_status check_data(sl_trainer *trainer)
{
    return sl_resume_check_data(&trainer->resume, &trainer->data);
}

static void tell_length(const sl_config *config, const sl_run_rows *rows)
{
    const bool has_epochs = config->epochs != SL_CONFIG_UNSET;
    sl_log_write(
        SL_LOG_NOTE, "--%s %" PRIu64 " is %" PRIu64 " step%s of %" PRIu64 " row%s%s",
        has_epochs ? "epochs" : "tokens", has_epochs ? config->epochs : config->train_tokens,
        config->steps - rows->done_steps, sl_plural(config->steps - rows->done_steps),
        rows->of_step, sl_plural(rows->of_step), rows->done_steps > 0 ? " from here on" : "");
}

/* A step that is larger than the data reads rows again: then epochs are not what they seem. */
static void warn_of_few_rows(const sl_run_rows *rows)
{
    if (rows->of_epoch > 0 && rows->of_epoch < rows->of_step)
        sl_log_write(SL_LOG_WARNING,
                     "the data have %" PRIu64 " row%s, and a step reads %" PRIu64
                     ": it sees examples more than once; fewer rows a step (--micro-batch, "
                     "--accumulate), or shorter ones (--seq)",
                     rows->of_epoch, sl_plural(rows->of_epoch), rows->of_step);
}

static sl_status settle_length(sl_trainer *trainer)
{
    sl_config *config = trainer->config;
    const bool has_rows = trainer->loader.row != NULL;
    const sl_run_rows rows = {.of_step = config->micro_batch * config->accumulate * config->dp,
                              .of_epoch = has_rows ? sl_data_loader_row_count(&trainer->loader) : 0,
                              .done_steps = trainer->state.step,
                              .done_rows = trainer->state.next_row};
    if (!sl_run_length_is_open(config))
        return SL_OK;
    if (config->epochs != SL_CONFIG_UNSET && has_rows && trainer->loader.args.parts.count > 1)
        SL_FAIL(SL_ERROR_USAGE, "paths with weights have epochs of their own: give --steps or "
                                "--tokens in place of --epochs");
    SL_TRY(sl_run_length_settle(config, &rows));
    warn_of_few_rows(&rows);
    if (!config->quiet && sl_ranks_is_first(&trainer->ranks) &&
        (has_rows || config->train_tokens != SL_CONFIG_UNSET))
        tell_length(config, &rows);
    return SL_OK;
}

static sl_status open_samples(sl_trainer *trainer)
{
    return trainer->config->sample_every > 0
               ? sl_samples_open(trainer->config, &trainer->texts, trainer->vocabulary,
                                 trainer->shape.vocab, &trainer->samples)
               : SL_OK;
}

static sl_status keep_given(sl_trainer *trainer)
{
    json_t *given = NULL;
    SL_TRY(sl_config_format_given(trainer->config, SL_CONFIG_TRAIN, &given));
    return sl_config_dump(given, &trainer->given_json);
}

static sl_status tell_changes(sl_trainer *trainer)
{
    const sl_config *config = trainer->config;
    sl_resume_tell(&trainer->resume);
    if (sl_best_is_stale(config, &trainer->state) && trainer->state.step < config->steps)
        sl_log_write(SL_LOG_NOTE,
                     "the last %" PRIu64 " evaluation%s before the checkpoint %s no better than "
                     "the best one: nothing is left to train; a larger --patience goes on",
                     trainer->state.evals_since_best, sl_plural(trainer->state.evals_since_best),
                     trainer->state.evals_since_best == 1 ? "was" : "were");
    if (trainer->resume.checkpoint && trainer->state.step >= trainer->config->steps)
        sl_log_write(SL_LOG_NOTE,
                     "the checkpoint is of step %" PRIu64 " of %" PRIu64
                     ": nothing is left to train; --steps N goes on to step N",
                     trainer->state.step, trainer->config->steps);
    return SL_OK;
}

static sl_evaluate_range cover_loader(const sl_data_loader *loader, const sl_config *config)
{
    if (!loader->row)
        return (sl_evaluate_range){0};
    return sl_evaluate_cover(sl_data_loader_row_count(loader), (uint32_t)config->micro_batch,
                             config->eval_iters);
}

/* Ranks wait for each other while they plan, so a rank must not wait for another thread. */
static sl_status hold_free_memory(sl_trainer *trainer)
{
    return trainer->ranks.world
               ? SL_OK
               : sl_free_memory_begin(trainer->config, &trainer->holds_free_memory);
}

static sl_status init_search(sl_trainer *trainer)
{
    const sl_config *config = trainer->config;
    SL_TRY(sl_search_init(config, SL_WORK_TRAIN, &trainer->shape, &trainer->search));
    sl_task *task = &trainer->search.task;
    trainer->eval_range = cover_loader(&trainer->eval_loader, config);
    trainer->test_range = cover_loader(&trainer->test_loader, config);
    task->with_evaluation = trainer->eval_loader.row || trainer->test_loader.row;
    task->with_samples = config->sample_every > 0;
    task->tail_rows = trainer->eval_range.tail_rows;
    task->test_tail_rows = trainer->test_range.tail_rows;
    return sl_ranks_share(&trainer->ranks, &trainer->search);
}

/* ---- the order ---- */

enum { ALL = SL_CONFIG_TRAIN | SL_CONFIG_PLAN | SL_CONFIG_PROFILE };

/* Each step with the commands that take it, and what it needs of the steps before it. What is cheap
 * and may be refused comes before what takes long. */
static const struct step {
    sl_status (*take)(sl_trainer *trainer);
    unsigned commands;
} steps[] = {
    {open_resume, ALL}, /* the options of the checkpoint: a given one wins over them */
    {drop_recorded_data, ALL},
    {share_cores, ALL},   /* fills in --threads, which is checked next */
    {check_options, ALL}, /* all that files, command line and checkpoint gave */
    {check_recorded, SL_CONFIG_TRAIN},
    {agree_on_groups, SL_CONFIG_TRAIN | SL_CONFIG_PROFILE}, /* all choose the layout, or none */
    {open_data, ALL},                                       /* text or ids? */
    {open_source, ALL},     /* weights of --init: their shape and tokenizer */
    {open_vocabulary, ALL}, /* of the checkpoint, of the weights, else of the options for text */
    {resolve_shape, ALL},   /* the vocabulary says how many ids; fills in --seq */
    {check_rules, ALL},     /* of the tensors that the shape has */
    {choose_layout, ALL},   /* for this shape: fills in --tp, --pp and --zero where they are auto */
    {divide_ranks,
     SL_CONFIG_TRAIN | SL_CONFIG_PROFILE}, /* by checked --tp, --pp, --zero; fills in --dp */
    {prove_exchanges, SL_CONFIG_TRAIN | SL_CONFIG_PROFILE}, /* of these groups, over NCCL */
    {settle_batch, ALL},          /* of --dp ranks; a plan fills --dp in here */
    {plan_ranks, SL_CONFIG_PLAN}, /* by --dp */
    {lock_save, SL_CONFIG_TRAIN}, /* before anything is written, and before hours of text */
    {settle_logs, ALL},           /* under the lock: no other run has this directory */
    {check_outputs, ALL},
    {note_followers, ALL},           /* no option follows from another one any more */
    {take_state, ALL},               /* counters and seed of the checkpoint */
    {resolve_tokenizer, ALL},        /* drops a vocabulary that the shape has too few ids for */
    {find_end_of_text, ALL},         /* of the vocabulary that is left */
    {keep_texts, SL_CONFIG_TRAIN},   /* of the base, and of this end of text */
    {open_samples, SL_CONFIG_TRAIN}, /* of the vocabulary, its end of text and the template */
    {identify_data, ALL},            /* as files: a checkpoint knows the text, not its ids */
    {list_inputs, ALL},              /* likewise, for other ranks */
    {check_data, ALL},               /* are they the checkpoint's? */
    {encode_text, ALL},              /* long; from here on the data are ids */
    {open_loaders, ALL},             /* rows of --seq ids, split by the end of text */
    {settle_length, ALL},            /* --epochs are of these rows */
    {keep_given, ALL},
    {tell_changes, ALL}, /* nothing can be refused any more but for memory */
    {hold_free_memory, SL_CONFIG_TRAIN | SL_CONFIG_PROFILE}, /* what is free is measured next */
    {init_search, ALL}, /* of the shape, with the evaluation's rows */
};

sl_status sl_preparation_run(sl_config *config, sl_config_command command, sl_trainer *trainer)
{
    trainer->config = config;
    trainer->command = command;
    trainer->has_old_checkpoints = config->overwrite;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (steps[i].commands & command)
            SL_TRY(steps[i].take(trainer));
    return SL_OK;
}

/* ---- another configuration ---- */

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

sl_status sl_preparation_vary(const sl_trainer *trainer, sl_config *config, sl_trainer *out_trainer)
{
    *out_trainer = *trainer;
    out_trainer->config = config;
    reopen_ranks(trainer, config);
    sl_layout_reopen(trainer, config);
    SL_TRY(sl_stages_check(config));
    SL_TRY(sl_ranks_plan_cores(config));
    if (config->threads == SL_CONFIG_UNSET)
        config->threads = sl_workers_usable_cpu_count();
    SL_TRY(sl_config_fit_model(config, &trainer->shape));
    SL_TRY(choose_layout(out_trainer));
    SL_TRY(settle_batch(out_trainer));
    sl_ranks_plan(&out_trainer->ranks, config);
    return init_search(out_trainer);
}
