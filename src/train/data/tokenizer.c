/* What is known of a model's tokenizer; see tokenizer.h. */
#include "tokenizer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "files/files.h"
#include "model/architecture.h"

static const char bytes_name[] = "byte", vocabulary_start[] = "bpe-";

sl_status sl_tokenizer_look(const sl_tokens *tokens, sl_tokenizer_question *question)
{
    if (!tokens)
        return SL_OK;
    question->has_text = question->has_text || sl_tokens_vocab_needed(tokens) > 0;
    question->has_ids = question->has_ids || !sl_tokens_is_text(tokens);
    return sl_origin_look(tokens, &question->origin);
}

static sl_status refuse_unknown(const sl_tokenizer_question *question)
{
    if (!question->model)
        SL_FAIL(SL_ERROR_USAGE, "the data are text and files of tokens, which do not say how they "
                                "were made: use one kind, or name their vocabulary by --tokenizer "
                                "DIR (--tokenizer byte if those ids are bytes too)");
    SL_FAIL(SL_ERROR_USAGE,
            "%s: how text becomes the ids of this model is not known: name its vocabulary by "
            "--tokenizer DIR (--tokenizer byte if it was trained on bytes), or use files of "
            "tokens that were made for it",
            sl_files_show(question->model).text);
}

/* ---- the vocabulary ---- */

enum { HASH_DIGITS = 32 };

static bool names_vocabulary(const char *recorded)
{
    return recorded && strncmp(recorded, vocabulary_start, sizeof vocabulary_start - 1) == 0 &&
           strlen(recorded) == sizeof vocabulary_start - 1 + HASH_DIGITS;
}

static sl_status open_recorded(const sl_tokenizer_question *question,
                               sl_vocabulary **out_vocabulary)
{
    char name[SL_VOCABULARY_NAME_BYTES];
    sl_vocabulary *vocabulary = NULL;
    SL_TRY(sl_vocabulary_read(question->directory, &vocabulary));
    sl_status status = sl_vocabulary_name(vocabulary, name);
    if (status == SL_OK && strcmp(name, question->recorded) != 0)
        status = sl_status_fail(SL_ERROR_DATA, "%s: the vocabulary is not the one of its manifest",
                                sl_files_show(question->directory).text);
    if (status != SL_OK)
        sl_vocabulary_close(vocabulary);
    else
        *out_vocabulary = vocabulary;
    return status;
}

/* Of a model of other programs; where no text is to be read, none is needed. */
static sl_status open_found(const sl_tokenizer_question *question, sl_vocabulary **out_vocabulary)
{
    bool is_there;
    SL_TRY(sl_vocabulary_is_in(question->directory, &is_there));
    if (!is_there)
        return SL_OK;
    sl_status status = sl_vocabulary_read(question->directory, out_vocabulary);
    if (status == SL_OK || status == SL_ERROR_SYSTEM || question->has_text)
        return status;
    sl_log_write(SL_LOG_WARNING, "the model's tokenizer is passed over: %s", sl_status_message());
    return SL_OK;
}

sl_status sl_tokenizer_open(const sl_config *config, const sl_tokenizer_question *question,
                            sl_vocabulary **out_vocabulary)
{
    *out_vocabulary = NULL;
    if (sl_config_names_tokenizer(config))
        return strcmp(config->tokenizer, bytes_name) == 0
                   ? SL_OK
                   : sl_vocabulary_read(config->tokenizer, out_vocabulary);
    if (!question->directory)
        return SL_OK;
    if (names_vocabulary(question->recorded))
        return open_recorded(question, out_vocabulary);
    return question->recorded ? SL_OK : open_found(question, out_vocabulary);
}

/* ---- whose it is ---- */

/* The tokenizer that holds, or NULL. */
static const char *find_name(const sl_config *config, const sl_tokenizer_question *question,
                             const char *vocabulary_name)
{
    if (*vocabulary_name)
        return vocabulary_name;
    if (sl_config_names_tokenizer(config))
        return config->tokenizer;
    if (question->recorded)
        return question->recorded;
    if (sl_origin_is_known(&question->origin))
        return question->origin.description.tokenizer;
    bool is_plain = !question->model && question->has_text && !question->has_ids;
    return is_plain ? bytes_name : NULL;
}

/* The tokenizer that was given or recorded must be the one that made the files of tokens. One that
 * was merely found beside a model of another program may differ in tokens that the data do not
 * hold: that is a warning. */
static sl_status check_origin(const sl_config *config, const sl_tokenizer_question *question,
                              const char *name)
{
    const sl_origin *origin = &question->origin;
    const bool is_merely_found = !question->recorded && !sl_config_names_tokenizer(config);
    if (!origin->is_described || !name || strcmp(origin->description.tokenizer, name) == 0)
        return SL_OK;
    if (is_merely_found) {
        sl_log_write(SL_LOG_WARNING,
                     "%s was made with the tokenizer \"%s\", and beside the model lies \"%s\": an "
                     "id may mean another text in each",
                     origin->path.text, sl_files_show(origin->description.tokenizer).text, name);
        return SL_OK;
    }
    SL_FAIL(SL_ERROR_USAGE,
            "%s was made with the tokenizer \"%s\", but %s is \"%s\": use the one that made it, or "
            "make it again by sluice tokenize --tokenizer",
            origin->path.text, sl_files_show(origin->description.tokenizer).text,
            sl_config_names_tokenizer(config) ? "--tokenizer" : "the model's",
            sl_files_show(name).text);
}

/* Training on ids needs no vocabulary, but without one nobody can read what the model generates. */
static void tell_if_unnamed(const sl_config *config, const sl_tokenizer_question *question,
                            const char *name, const sl_vocabulary *vocabulary)
{
    if (!name || vocabulary || question->model || !config->save || strcmp(name, bytes_name) == 0)
        return;
    sl_log_write(
        SL_LOG_WARNING,
        "%s was made with the vocabulary \"%s\", which the checkpoints will not hold: give "
        "it by --tokenizer DIR, now or to generate later",
        question->origin.path.text, name);
}

static void warn_of_idle_ids(const sl_model_shape *shape, const char *whose, uint32_t used)
{
    if (shape->vocab <= used)
        return;
    uint64_t all = sl_model_shape_parameters(shape);
    uint64_t idle = (uint64_t)(shape->vocab - used) * shape->width * (shape->is_untied ? 2 : 1);
    sl_log_write(SL_LOG_WARNING,
                 "%s use %u of the model's %u ids: %u ids idle, and with them %" PRIu64
                 " of its %" PRIu64 " parameters (%.0f%%); --vocab %u leaves them out",
                 whose, used, shape->vocab, shape->vocab - used, idle, all,
                 100.0 * (double)idle / (double)all, used);
}

/* A model of other programs may have more tokens than ids: one that was added to pad, of which none
 * is in its data. */
static void drop_too_large(const sl_config *config, const sl_tokenizer_question *question,
                           sl_vocabulary **vocabulary)
{
    uint32_t count = *vocabulary ? sl_vocabulary_count(*vocabulary) : 0;
    bool is_found = !question->recorded && !sl_config_names_tokenizer(config);
    if (count <= question->shape->vocab || !is_found || question->has_text)
        return;
    sl_log_write(SL_LOG_WARNING,
                 "the model's tokenizer is passed over: it has %u tokens, but the model %u ids",
                 count, question->shape->vocab);
    sl_vocabulary_close(*vocabulary);
    *vocabulary = NULL;
}

static sl_status check_count(const sl_tokenizer_question *question, const sl_vocabulary *vocabulary)
{
    uint32_t count = vocabulary ? sl_vocabulary_count(vocabulary) : 0;
    if (count > question->shape->vocab)
        SL_FAIL(SL_ERROR_USAGE,
                "the tokenizer has %u tokens, but the model %u ids: it is another "
                "model's, or --vocab is too small",
                count, question->shape->vocab);
    return SL_OK;
}

/* A vocabulary that is a little larger than its tokens is a padded one. */
static void tell_if_idle(const sl_tokenizer_question *question, const sl_vocabulary *vocabulary)
{
    const uint32_t all = question->shape->vocab;
    const uint32_t used = vocabulary ? sl_vocabulary_count(vocabulary) : all;
    if (!question->model && question->shape->architecture != SL_ARCHITECTURE_OWN &&
        all - used > all / SL_ORIGIN_IDLE_TOLD)
        warn_of_idle_ids(question->shape, "the tokenizer's tokens", used);
}

static sl_status check_text(const sl_config *config, const sl_tokenizer_question *question,
                            const char *name, const sl_vocabulary *vocabulary)
{
    bool is_new = !question->model || sl_config_names_tokenizer(config);
    if (!name)
        return refuse_unknown(question);
    if (vocabulary)
        return SL_OK;
    if (question->origin.is_described && name == question->origin.description.tokenizer &&
        strcmp(name, bytes_name) != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "there is text among the data, and %s was made with the vocabulary \"%s\": name it "
                "by --tokenizer DIR",
                question->origin.path.text, sl_files_show(name).text);
    if (strcmp(name, bytes_name) != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "the tokenizer of the model, \"%s\", comes with a later version: use files of "
                "tokens",
                sl_files_show(name).text);
    if (is_new)
        warn_of_idle_ids(question->shape, "bytes", SL_TOKENS_BYTE_VOCAB);
    return SL_OK;
}

/* What the configuration says from now on: a vocabulary by the directory that it was read from. */
static sl_status keep_name(sl_config *config, const sl_tokenizer_question *question,
                           const char *name, const sl_vocabulary *vocabulary)
{
    if (!name || (vocabulary && sl_config_names_tokenizer(config)))
        return SL_OK;
    if (!vocabulary && name == question->origin.description.tokenizer &&
        strcmp(name, bytes_name) != 0)
        return SL_OK; /* the directory of this vocabulary is not known */
    return sl_config_resolve(config, SL_CONFIG_ROW_tokenizer,
                             vocabulary ? question->directory : name);
}

static sl_status resolve_name(sl_config *config, const sl_tokenizer_question *question,
                              const sl_vocabulary *vocabulary)
{
    char vocabulary_name[SL_VOCABULARY_NAME_BYTES] = "";
    if (vocabulary)
        SL_TRY(sl_vocabulary_name(vocabulary, vocabulary_name));
    const char *name = find_name(config, question, vocabulary_name);
    if (name && question->recorded && strcmp(name, question->recorded) != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "--tokenizer %s is not that of the checkpoint, \"%s\": leave it out",
                config->tokenizer, sl_files_show(question->recorded).text);
    SL_TRY(check_count(question, vocabulary));
    SL_TRY(check_origin(config, question, name));
    if (question->has_text)
        SL_TRY(check_text(config, question, name, vocabulary));
    else if (question->origin.has_unknown && question->recorded &&
             !sl_config_names_tokenizer(config))
        sl_log_write(SL_LOG_WARNING,
                     "the model's tokenizer is \"%s\", and files of tokens do not say theirs: "
                     "nothing here can tell whether they are the same",
                     sl_files_show(question->recorded).text);
    tell_if_idle(question, vocabulary);
    tell_if_unnamed(config, question, name, vocabulary);
    return keep_name(config, question, name, vocabulary);
}

sl_status sl_tokenizer_resolve(sl_config *config, const sl_tokenizer_question *question,
                               sl_vocabulary **vocabulary)
{
    drop_too_large(config, question, vocabulary);
    return resolve_name(config, question, *vocabulary);
}

int32_t sl_tokenizer_end_of_text(const sl_config *config, const sl_origin *origin,
                                 const sl_vocabulary *vocabulary)
{
    if (config->end_of_text != SL_CONFIG_UNSET)
        return (int32_t)config->end_of_text; /* the list's range keeps it in 31 bits */
    if (vocabulary)
        return sl_vocabulary_end_of_text(vocabulary);
    bool is_bytes = config->tokenizer && strcmp(config->tokenizer, bytes_name) == 0;
    if (is_bytes)
        return SL_TOKENS_END_OF_TEXT;
    return sl_origin_is_known(origin) ? (int32_t)origin->description.end_of_text : -1;
}
