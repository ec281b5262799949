/* What is known of a model's tokenizer; see tokenizer.h. */
#include "tokenizer.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "files/files.h"
#include "sluice/gpt2.h"

static const char bytes_name[] = "byte";

void sl_tokenizer_look(const sl_tokens *tokens, sl_tokenizer_question *question)
{
    if (!tokens)
        return;
    question->has_text = question->has_text || sl_tokens_vocab_needed(tokens) > 0;
    question->has_ids = question->has_ids || !sl_tokens_is_text(tokens);
}

static sl_status refuse_unknown(const sl_tokenizer_question *question)
{
    if (!question->model)
        SL_FAIL(SL_ERROR_USAGE, "the data are text and files of tokens, which do not say how they "
                                "were made: use one kind, or --tokenizer byte if those ids are "
                                "bytes too");
    SL_FAIL(SL_ERROR_USAGE,
            "%s: how text becomes the ids of this model is not known: use files of tokens that "
            "were made for it, or --tokenizer byte if it was trained on bytes",
            sl_files_show(question->model).text);
}

/* The tokenizer that holds, or NULL. */
static const char *find_name(const sl_config *config, const sl_tokenizer_question *question)
{
    if (sl_config_names_tokenizer(config))
        return config->tokenizer;
    if (question->recorded)
        return question->recorded;
    bool is_plain = !question->model && question->has_text && !question->has_ids;
    return is_plain ? bytes_name : NULL;
}

static void warn_of_idle_ids(const sl_gpt2_shape *shape)
{
    if (shape->vocab <= SL_TOKENS_BYTE_VOCAB)
        return;
    uint64_t all = sl_gpt2_parameter_count(shape);
    uint64_t idle = (uint64_t)(shape->vocab - SL_TOKENS_BYTE_VOCAB) * shape->width;
    sl_log_write(SL_LOG_WARNING,
                 "bytes use %d of the model's %u ids: %u ids idle, and with them %" PRIu64
                 " of its %" PRIu64 " parameters (%.0f%%)",
                 SL_TOKENS_BYTE_VOCAB, shape->vocab, shape->vocab - SL_TOKENS_BYTE_VOCAB, idle, all,
                 100.0 * (double)idle / (double)all);
}

static sl_status check_text(const sl_config *config, const sl_tokenizer_question *question,
                            const char *name)
{
    bool is_new = !question->model || sl_config_names_tokenizer(config);
    if (!name)
        return refuse_unknown(question);
    if (strcmp(name, bytes_name) != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "the tokenizer of the model, \"%s\", comes with a later version: use files of "
                "tokens",
                sl_files_show(name).text);
    if (is_new)
        warn_of_idle_ids(question->shape);
    return SL_OK;
}

sl_status sl_tokenizer_resolve(sl_config *config, const sl_tokenizer_question *question)
{
    const char *name = find_name(config, question);
    if (name && question->recorded && strcmp(name, question->recorded) != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "--tokenizer %s is not that of the checkpoint, \"%s\": leave it out",
                config->tokenizer, sl_files_show(question->recorded).text);
    if (question->has_text)
        SL_TRY(check_text(config, question, name));
    else if (question->has_ids && question->recorded && !sl_config_names_tokenizer(config))
        sl_log_write(SL_LOG_WARNING,
                     "the model's tokenizer is \"%s\", and files of tokens do not say theirs: "
                     "nothing here can tell whether they are the same",
                     sl_files_show(question->recorded).text);
    return name ? sl_config_resolve(config, SL_CONFIG_ROW_tokenizer, name) : SL_OK;
}
