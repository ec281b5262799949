/* Forward passes only. Rows that do not fill a micro-batch have a program of their own. */
#include "evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/stop.h"
#include "config/fine_tuning.h"
#include "session/ranks.h"
#include "train/data/example_form.h"
#include "train/data/tokenizer.h"
#include "train/loading/loading.h"
#include "windows.h"

sl_evaluate_range sl_evaluate_cover(uint64_t row_count, uint32_t rows_per_batch, uint64_t limit)
{
    uint64_t full = row_count / rows_per_batch;
    if (limit <= full)
        return (sl_evaluate_range){.rows_per_batch = rows_per_batch, .micro_batch_count = limit};
    return (sl_evaluate_range){.rows_per_batch = rows_per_batch,
                               .micro_batch_count = full,
                               .tail_rows = (uint32_t)(row_count % rows_per_batch)};
}

/* A loss, and how many tokens it is the sum of. */
typedef struct loss_sum {
    double loss, tokens;
} loss_sum;

static void add(loss_sum one, loss_sum *sum)
{
    sum->loss += one.loss;
    sum->tokens += one.tokens;
}

/* The losses of as many sets of rows, one a data-parallel rank, in the order of the rows. Of each
 * stage the ranks of one set follow each other; the last stage has the loss. */
static sl_status share_losses(const sl_ranks *ranks, uint32_t count, loss_sum own, loss_sum *sum)
{
    sl_comm_place place = {.stage = ranks->layout.stages - 1};
    loss_sum all[SL_COMM_RANKS_MAX];
    SL_TRY(sl_comm_all_gather(ranks->world, sizeof own, &own, all));
    for (; place.data < count; place.data++)
        add(all[sl_comm_rank_of(&ranks->layout, &place)], sum);
    return SL_OK;
}

/* Adds the loss of `count` sets of rows, the first of which is `rows`, to *sum. A rank that is
 * left over computes the first once more: all ranks run the same programs. */
static sl_status add_rows(const sl_evaluate_args *args, uint32_t plan_index, sl_row_range rows,
                          uint32_t count, loss_sum *sum)
{
    const sl_step_scalars scalars = {.loss_scale = 1};
    sl_engine *engine = args->runtime->engine;
    if (args->ranks->place.data < count)
        rows.first += (uint64_t)args->ranks->place.data * rows.count;
    SL_TRY(sl_data_loader_fill(args->loader, engine, plan_index, rows));
    SL_TRY(sl_engine_step(engine, plan_index, &scalars));
    const double *counted = sl_engine_output(engine, plan_index, SL_OUTPUT_COUNTED);
    const loss_sum own = {
        .loss = *(const double *)sl_engine_output(engine, plan_index, SL_OUTPUT_LOSS),
        .tokens = counted ? *counted : (double)((uint64_t)rows.count * args->loader->seq)};
    if (args->ranks->layout.data > 1 || args->ranks->layout.stages > 1)
        return share_losses(args->ranks, count, own, sum);
    add(own, sum);
    return SL_OK;
}

/* Micro-batches that ranks with rows of their own do at once. */
static uint32_t count_sets(const sl_evaluate_args *args, uint64_t left)
{
    const uint32_t sets = args->ranks->world ? args->ranks->layout.data : 1;
    return left < sets ? (uint32_t)left : sets;
}

static uint64_t count_rows(const sl_evaluate_range *range)
{
    return range->micro_batch_count * range->rows_per_batch + range->tail_rows;
}

/* The figures of the first `row_count` rows. */
static void note_rows(const sl_evaluate_args *args, uint64_t row_count, loss_sum sum,
                      sl_eval_report *report)
{
    const uint64_t seq = args->loader->seq, total = count_rows(&args->range) * seq;
    report->tokens = (uint64_t)sum.tokens;
    report->loss = sum.loss / sum.tokens;
    report->perplexity = exp(report->loss);
    report->is_partial = row_count * seq < total;
    report->has_all_examples =
        args->loader->examples && row_count == sl_data_loader_row_count(args->loader);
    sl_eval_watch_pass(&args->watch,
                       &(sl_eval_progress){.done = row_count * seq,
                                           .total = total,
                                           .unit = "tokens",
                                           .figure = "loss",
                                           .value = sum.tokens > 0 ? report->loss : 0});
}

void sl_eval_watch_pass(const sl_eval_watch *watch, const sl_eval_progress *progress)
{
    if (watch->passed)
        watch->passed(watch->user, progress);
}

sl_status sl_eval_watch_vote(const sl_eval_watch *watch, const sl_ranks *ranks, bool *out_stops)
{
    *out_stops = false;
    return watch->stop ? sl_ranks_vote(ranks, sl_stop_is_set(watch->stop), out_stops) : SL_OK;
}

sl_status sl_evaluate_pass(const sl_evaluate_args *args, sl_eval_report *report)
{
    const sl_evaluate_range *range = &args->range;
    sl_row_range rows = {.count = range->rows_per_batch};
    loss_sum sum = {0};
    bool stops;
    report->data_tokens = sl_data_loader_token_count(args->loader);
    note_rows(args, 0, sum, report);
    for (uint64_t i = 0; i < range->micro_batch_count;) {
        const uint32_t count = count_sets(args, range->micro_batch_count - i);
        SL_TRY(sl_eval_watch_vote(&args->watch, args->ranks, &stops));
        if (stops)
            return SL_OK;
        SL_TRY(add_rows(args, args->plan_index, rows, count, &sum));
        rows.first += (uint64_t)count * rows.count;
        i += count;
        note_rows(args, rows.first, sum, report);
    }
    rows.count = range->tail_rows;
    if (!rows.count)
        return SL_OK;
    SL_TRY(sl_eval_watch_vote(&args->watch, args->ranks, &stops));
    if (stops)
        return SL_OK;
    SL_TRY(add_rows(args, args->tail_plan_index, rows, 1, &sum));
    note_rows(args, rows.first + rows.count, sum, report);
    return SL_OK;
}

static sl_status evaluate_file(const sl_eval_model *model, sl_runtime *runtime,
                               const sl_data_loader *loader, sl_eval_report *report)
{
    const sl_evaluate_args args = {.runtime = runtime,
                                   .tail_plan_index = 1,
                                   .loader = loader,
                                   .watch = model->watch,
                                   .ranks = model->ranks,
                                   .range =
                                       sl_evaluate_cover(sl_data_loader_row_count(loader),
                                                         runtime->blueprint->choice.micro_batch,
                                                         model->config->eval_iters)};
    return sl_evaluate_pass(&args, report);
}

sl_status sl_evaluate_open(const sl_eval_model *model, const sl_evaluate_rows *rows,
                           sl_runtime **out_runtime)
{
    sl_loading loading;
    SL_TRY(sl_loading_begin(model->config, SL_WORK_EVALUATE, &model->source->shape, model->ranks,
                            &loading));
    sl_task *task = &loading.search.task;
    uint32_t *batch = &loading.search.fixed.micro_batch;
    if (*batch > rows->count)
        *batch = (uint32_t)rows->count;
    task->seq = rows->seq;
    task->by_token = rows->by_token;
    task->tail_rows = sl_evaluate_cover(rows->count, *batch, rows->limit).tail_rows;
    return sl_loading_open(&loading, model->source, out_runtime);
}

/* Keeps the vocabulary of data that are text alone. */
static sl_status keep_vocabulary(const sl_tokenizer_question *question, sl_vocabulary *vocabulary,
                                 sl_vocabulary **out_vocabulary)
{
    if (vocabulary && question->has_text && !question->has_ids)
        *out_vocabulary = vocabulary;
    else
        sl_vocabulary_close(vocabulary);
    if (vocabulary || !question->has_text || question->has_ids)
        return SL_OK;
    return sl_vocabulary_of_bytes(out_vocabulary);
}

/* Ranks may have files of their own: they have to be the same. */
static sl_status compare_inputs(const sl_eval_model *model, const sl_tokens *tokens,
                                const sl_vocabulary *vocabulary)
{
    const sl_common_inputs_args inputs = {.tokens = tokens,
                                          .vocabulary = vocabulary,
                                          .source = model->source,
                                          .source_option = "--checkpoint"};
    return sl_loading_compare(model->ranks, &inputs);
}

/* Checks the tokenizer, and makes ids of text. *out_vocabulary: what the data were made with, or
 * NULL where they are not text alone; *out_end_of_text -1: it is not known what ends one. */
static sl_status use_tokenizer(const sl_eval_model *model, sl_data_files *files, sl_tokens **tokens,
                               sl_vocabulary **out_vocabulary, int32_t *out_end_of_text)
{
    sl_config *config = model->config;
    const sl_model_directory *source = model->source;
    sl_vocabulary *vocabulary = NULL;
    sl_tokenizer_question question = {.model = config->checkpoint,
                                      .recorded = source->tokenizer,
                                      .directory = source->path,
                                      .shape = &source->shape};
    SL_TRY(sl_tokenizer_look(*tokens, &question));
    SL_TRY(sl_tokenizer_open(config, &question, &vocabulary));
    sl_status status = sl_tokenizer_resolve(config, &question, &vocabulary);
    if (status == SL_OK)
        status = compare_inputs(model, *tokens, vocabulary);
    if (status == SL_OK)
        status = sl_data_files_encode(config, vocabulary, files, tokens);
    *out_end_of_text = sl_tokenizer_end_of_text(config, &question.origin, vocabulary);
    if (status == SL_OK && !files->form) /* of examples not all tokens count */
        return keep_vocabulary(&question, vocabulary, out_vocabulary);
    sl_vocabulary_close(vocabulary);
    return status;
}

/* What is evaluated: all of the data, or a share of their documents. */
static sl_status cut_share(const sl_config *config, const sl_data_files *files, sl_eval_data *data)
{
    sl_data_cut cut = {.tokens = data->tokens, .files = files, .end_of_text = data->end_of_text};
    sl_data_parts parts[SL_CONFIG_SHARES];
    data->part = (sl_data_part){.token_count = sl_tokens_count(data->tokens)};
    if (!config->split)
        return SL_OK;
    SL_TRY(sl_config_split(config, cut.shares));
    SL_TRY(sl_data_files_cut(&cut, parts));
    data->part = parts[config->share].items[0]; /* without weights all files are one */
    for (int i = 0; i < SL_CONFIG_SHARES; i++)
        free(parts[i].items);
    return SL_OK;
}

/* All whole rows, one after the other. */
static sl_status open_rows(const sl_config *config, const sl_eval_data *data,
                           sl_data_loader *out_loader)
{
    sl_data_part *all = calloc(1, sizeof *all);
    if (!all)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the rows of the data");
    *all = data->part;
    const sl_data_loader_args args = {.tokens = data->tokens,
                                      .parts = {all, 1},
                                      .joins = true,
                                      .order = SL_DATA_SEQUENTIAL,
                                      .seq = (uint32_t)config->seq,
                                      .by_document = config->documents == SL_CONFIG_RESET,
                                      .end_of_text = data->end_of_text,
                                      .has_examples = sl_config_has_examples(config),
                                      .packs = config->pack == SL_CONFIG_ON};
    SL_TRY(sl_data_loader_open(&args, out_loader));
    if (!config->quiet)
        sl_examples_tell(out_loader, "evaluation");
    return SL_OK;
}

static sl_status evaluate_rows(const sl_eval_model *model, const sl_eval_data *data,
                               sl_eval_report *out_report)
{
    const sl_config *config = model->config;
    sl_data_loader loader = {0};
    sl_runtime *runtime = NULL;
    SL_TRY(open_rows(config, data, &loader));
    const sl_evaluate_rows rows = {.count = sl_data_loader_row_count(&loader),
                                   .limit = config->eval_iters,
                                   .seq = (uint32_t)config->seq};
    sl_status status = sl_evaluate_open(model, &rows, &runtime);
    if (status == SL_OK)
        status = evaluate_file(model, runtime, &loader, out_report);
    sl_runtime_close(runtime);
    sl_data_loader_close(&loader);
    return status;
}

static sl_status evaluate_data(const sl_eval_model *model, const sl_eval_data *data,
                               sl_eval_report *out_report)
{
    SL_TRY(sl_config_fit_model(model->config, &model->source->shape));
    return model->config->overlap > 0 ? sl_windows_run(model, data, out_report)
                                      : evaluate_rows(model, data, out_report);
}

sl_status sl_evaluate_run(const sl_eval_model *model, sl_eval_report *out_report,
                          sl_text_count *out_text)
{
    sl_config *config = model->config;
    const uint32_t vocab = model->source->shape.vocab;
    sl_tokens *tokens = NULL;
    sl_vocabulary *vocabulary = NULL;
    sl_eval_data data = {.end_of_text = -1};
    sl_data_files files = {0};
    sl_examples examples;
    sl_status status = sl_examples_open(config, model->source->texts.examples, &examples);
    const char *template_text = examples.template_text ? examples.template_text : "";
    if (status == SL_OK)
        status = sl_loading_compare_bytes(model->ranks, "--template", template_text,
                                          strlen(template_text));
    if (status == SL_OK)
        status = sl_data_files_open(&config->data, sl_examples_form(&examples), &files, &tokens);
    if (status == SL_OK)
        status = use_tokenizer(model, &files, &tokens, &vocabulary, &data.end_of_text);
    data.tokens = tokens;
    if (status == SL_OK)
        status = sl_tokens_limit_vocab(tokens, vocab);
    if (status == SL_OK)
        status = sl_origin_check(tokens, vocab, false);
    if (status == SL_OK)
        status = cut_share(config, &files, &data);
    if (status == SL_OK)
        status = evaluate_data(model, &data, out_report);
    if (status == SL_OK && vocabulary) /* the first token is the only one that nothing predicts */
        status = sl_text_count_tokens(tokens, data.part.first_token + 1, out_report->tokens,
                                      vocabulary, out_text);
    sl_vocabulary_close(vocabulary);
    sl_tokens_close(tokens);
    sl_data_files_close(&files);
    sl_examples_close(&examples);
    return status;
}
