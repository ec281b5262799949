/* See evaluation.h. */
#include "evaluation.h"

#include <jansson.h>
#include <math.h>

#include "files/json_file.h"
#include "train/loading/loading.h"

typedef struct evaluating {
    sl_ranks *ranks;
    const sl_eval_watch *watch;
    sl_evaluation *out;
} evaluating;

static sl_status evaluate(sl_config *config, void *user)
{
    const evaluating *self = user;
    sl_model_directory source;
    sl_evaluation *out = self->out;
    const sl_eval_model model = {config, &source, self->ranks, *self->watch};
    SL_TRY(sl_model_directory_open(config->checkpoint, config->checks_checkpoints, 0, &source));
    sl_status status = sl_model_directory_add_adapter(&source, config->adapter);
    sl_loading_keep_end(config, &source);
    *out = (sl_evaluation){.of_words = config->last_word};
    if (source.checkpoint)
        out->rows.step = out->words.step = sl_checkpoint_describe(source.checkpoint)->state.step;
    if (status == SL_OK)
        status = out->of_words ? sl_last_word_run(&model, &out->words)
                               : sl_evaluate_run(&model, &out->rows, &out->text);
    sl_model_directory_close(&source);
    return status;
}

sl_status sl_evaluation_run(sl_config *config, sl_ranks *ranks, const sl_eval_watch *watch,
                            sl_evaluation *out_evaluation)
{
    evaluating self = {ranks, watch, out_evaluation};
    return sl_loading_run(config, evaluate, &self);
}

/* ---- as JSON ---- */

double sl_evaluation_spread(const sl_eval_report *report, uint64_t count)
{
    return count ? report->loss * (double)report->tokens / (double)count : 0;
}

/* JSON has no number that is not finite. */
static int put_number(json_t *to, const char *name, double value)
{
    return json_object_set_new(to, name, isfinite(value) ? json_real(value) : json_null());
}

static int put_count(json_t *to, const char *name, uint64_t value)
{
    return json_object_set_new(to, name, json_integer((json_int_t)value));
}

static int put_end(json_t *to, bool is_partial, uint64_t step)
{
    return json_object_set_new(to, "partial", json_boolean(is_partial)) |
           put_count(to, "step", step);
}

/* Returns 0, or what is not 0 if memory was refused. */
static int put_rows(json_t *to, const sl_eval_report *report, const sl_text_count *text)
{
    int failed = put_number(to, "loss", report->loss);
    failed |= put_number(to, "perplexity", report->perplexity);
    if (text->bytes > 0) {
        failed |= put_number(to, "loss_per_byte", sl_evaluation_spread(report, text->bytes));
        failed |=
            put_number(to, "loss_per_character", sl_evaluation_spread(report, text->characters));
        failed |= put_count(to, "bytes", text->bytes);
        failed |= put_count(to, "characters", text->characters);
    }
    failed |= put_count(to, "tokens", report->tokens);
    failed |= put_count(to, "data_tokens", report->data_tokens);
    return failed | put_end(to, report->is_partial, report->step);
}

static int put_words(json_t *to, const sl_word_report *report)
{
    int failed = put_number(to, "accuracy", report->accuracy);
    failed |= put_number(to, "perplexity", report->perplexity);
    failed |= put_count(to, "right", report->right_count);
    failed |= put_count(to, "documents", report->document_count);
    failed |= put_count(to, "tokens", report->tokens);
    return failed | put_end(to, report->is_partial, report->step);
}

sl_status sl_evaluation_format(const sl_evaluation *evaluation, char **out_text)
{
    enum { DIGITS = 17 };
    json_t *object = json_object();
    const int failed = evaluation->of_words
                           ? put_words(object, &evaluation->words)
                           : put_rows(object, &evaluation->rows, &evaluation->text);
    char *text = failed ? NULL : sl_json_file_dump(object, JSON_REAL_PRECISION(DIGITS));
    json_decref(object);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the figures of an evaluation");
    *out_text = text;
    return SL_OK;
}
