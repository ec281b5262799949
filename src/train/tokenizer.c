/* What is known of a model's tokenizer; see tokenizer.h. */
#include "tokenizer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "files/files.h"
#include "sluice/gpt2.h"
#include "text/tokenize.h"

static const char bytes_name[] = "byte", vocabulary_start[] = "bpe-";

void sl_tokenizer_look(const sl_tokens *tokens, sl_tokenizer_question *question)
{
    if (!tokens)
        return;
    question->has_text = question->has_text || sl_tokens_vocab_needed(tokens) > 0;
    question->has_ids = question->has_ids || !sl_tokens_is_text(tokens);
    if (!question->packed)
        question->packed = sl_tokens_packed_path(tokens);
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

static sl_status check_text(const sl_config *config, const sl_tokenizer_question *question,
                            const char *name, const sl_vocabulary *vocabulary)
{
    bool is_new = !question->model || sl_config_names_tokenizer(config);
    if (!vocabulary && question->packed)
        SL_FAIL(SL_ERROR_DATA,
                "%s: is packed, and as bytes the packing would be trained on: unpack it, or make a "
                "file of tokens of it with sluice tokenize",
                sl_files_show(question->packed).text);
    if (!name)
        return refuse_unknown(question);
    if (vocabulary)
        return SL_OK;
    if (strcmp(name, bytes_name) != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "the tokenizer of the model, \"%s\", comes with a later version: use files of "
                "tokens",
                sl_files_show(name).text);
    if (is_new)
        warn_of_idle_ids(question->shape);
    return SL_OK;
}

/* What the configuration says from now on: a vocabulary by the directory that it was read from. */
static sl_status keep_name(sl_config *config, const sl_tokenizer_question *question,
                           const char *name, const sl_vocabulary *vocabulary)
{
    if (!name || (vocabulary && sl_config_names_tokenizer(config)))
        return SL_OK;
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
    if (question->has_text)
        SL_TRY(check_text(config, question, name, vocabulary));
    else if (question->has_ids && question->recorded && !sl_config_names_tokenizer(config))
        sl_log_write(SL_LOG_WARNING,
                     "the model's tokenizer is \"%s\", and files of tokens do not say theirs: "
                     "nothing here can tell whether they are the same",
                     sl_files_show(question->recorded).text);
    return keep_name(config, question, name, vocabulary);
}

sl_status sl_tokenizer_resolve(sl_config *config, const sl_tokenizer_question *question,
                               sl_vocabulary **vocabulary)
{
    drop_too_large(config, question, vocabulary);
    return resolve_name(config, question, *vocabulary);
}

/* ---- text as files of ids ---- */

/* The files of a run in order: of text those of its ids, else as given. */
typedef struct encoded {
    const sl_config *config;
    const sl_vocabulary *vocabulary;
    sl_file *files;
    uint32_t file_count;
} encoded;

/* Takes the files over. */
static sl_status add_files(encoded *self, uint32_t count, sl_file *files)
{
    sl_file *all = realloc(self->files, (self->file_count + count) * sizeof *all);
    for (uint32_t i = 0; i < count; i++)
        if (all)
            all[self->file_count++] = files[i];
        else
            sl_files_close(&files[i]);
    if (!all)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of files");
    self->files = all;
    return SL_OK;
}

static const char *find_directory(void)
{
    const char *directory = getenv("TMPDIR");
    return directory && *directory ? directory : "/tmp";
}

static sl_status add_text(encoded *self, const char *const *paths, uint32_t path_count)
{
    sl_file *files = NULL;
    const char *directory = find_directory();
    const sl_tokenize_args args = {
        .documents = {.paths = paths, .path_count = path_count, .json_key = "text"},
        .worker_count = (uint32_t)self->config->threads};
    const sl_token_writer_args output = {
        .path = directory, .vocab = sl_vocabulary_count(self->vocabulary), .nameless = &files};
    sl_tokenize_report report;
    sl_status status = sl_tokenize_run(&args, self->vocabulary, &output, &report);
    if (status == SL_ERROR_IO)
        SL_FAIL(SL_ERROR_IO,
                "%s; the ids of the text go to %s: set TMPDIR to a disk with room, or make the "
                "file once with sluice tokenize",
                sl_status_message(), sl_files_show(directory).text);
    SL_TRY(status);
    status = add_files(self, report.files, files);
    free(files);
    return status;
}

static sl_status add_given(encoded *self, const char *path)
{
    sl_file file;
    SL_TRY(sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file));
    return add_files(self, 1, &file);
}

/* Neighbours of text become one file. */
static sl_status encode_files(encoded *self, const sl_config_list *paths, const bool *is_text)
{
    for (uint32_t i = 0, count; i < paths->count; i += count) {
        for (count = 1; is_text[i] && i + count < paths->count && is_text[i + count];)
            count++;
        SL_TRY(is_text[i] ? add_text(self, (const char *const *)paths->items + i, count)
                          : add_given(self, paths->items[i]));
    }
    return SL_OK;
}

static sl_status open_encoded(encoded *self, sl_status status, sl_tokens **tokens)
{
    if (status == SL_OK)
        status = sl_tokens_open_files(self->files, self->file_count, 0, tokens);
    else
        for (uint32_t i = 0; i < self->file_count; i++)
            sl_files_close(&self->files[i]);
    free(self->files);
    return status;
}

sl_status sl_tokenizer_encode(const sl_config *config, const sl_config_list *paths,
                              const sl_vocabulary *vocabulary, sl_tokens **tokens)
{
    encoded self = {.config = config, .vocabulary = vocabulary};
    if (!vocabulary || !*tokens || sl_tokens_vocab_needed(*tokens) == 0)
        return SL_OK;
    bool *is_text = calloc(paths->count, sizeof *is_text);
    if (!is_text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of files");
    for (uint32_t i = 0; i < paths->count; i++)
        is_text[i] = sl_tokens_file_is_text(*tokens, i);
    sl_tokens_close(*tokens); /* their descriptors may be most that there are */
    *tokens = NULL;
    sl_status status = encode_files(&self, paths, is_text);
    free(is_text);
    return open_encoded(&self, status, tokens);
}
