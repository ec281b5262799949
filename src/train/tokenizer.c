/* What is known of a model's tokenizer; see tokenizer.h. */
#define _GNU_SOURCE
#include "tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "files/files.h"
#include "sluice/gpt2.h"
#include "text/tokenize.h"

static const char bytes_name[] = "byte", vocabulary_start[] = "bpe-";

void sl_tokenizer_look(const sl_tokens *tokens, sl_tokenizer_question *question)
{
    if (!tokens)
        return;
    if (!question->packed)
        question->packed = sl_tokens_packed_path(tokens);
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

    if (!vocabulary && question->packed)
        SL_FAIL(SL_ERROR_DATA,
                "%s: is packed, and as bytes the packing would be trained on: unpack it, or make a "
                "file of tokens of it with sluice tokenize",
                sl_files_show(question->packed).text);
/* What the configuration says from now on: a vocabulary by the directory that it was read from. */
static sl_status keep_name(sl_config *config, const sl_tokenizer_question *question,
                           const char *name, const sl_vocabulary *vocabulary)
{
    if (!name || (vocabulary && sl_config_names_tokenizer(config)))
        return SL_OK;
    return sl_config_resolve(config, SL_CONFIG_ROW_tokenizer,
                             vocabulary ? question->directory : name);
}

sl_status sl_tokenizer_resolve(sl_config *config, const sl_tokenizer_question *question,
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

/* ---- text as files of ids ---- */

enum { PATH_BYTES = 64 };

/* Files in a directory of their own, removed by name once they are open. */
typedef struct encoded {
    char *directory;
    char **paths; /* of the run: of text the files of its ids, else as given */
    uint32_t path_count, path_room;
} encoded;

static sl_status add_path(encoded *self, const char *path)
{
    if (self->path_count == self->path_room) {
        uint32_t room = 2 * self->path_room + 8;
        char **paths = realloc(self->paths, room * sizeof *paths);
        if (!paths)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of files");
        self->paths = paths;
        self->path_room = room;
    }
    char *copy = strdup(path);
    if (!copy)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of files");
    self->paths[self->path_count++] = copy;
    return SL_OK;
}

static sl_status make_directory(encoded *self)
{
    const char *parent = getenv("TMPDIR");
    if (asprintf(&self->directory, "%s/sluice-tokens-XXXXXX", parent ? parent : "/tmp") < 0) {
        self->directory = NULL;
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    }
    if (!mkdtemp(self->directory)) {
        sl_status status =
            sl_status_fail(SL_ERROR_IO,
                           "%s: no directory for the ids of the text can be made: set "
                           "TMPDIR",
                           sl_files_show(self->directory).text);
        free(self->directory);
        self->directory = NULL;
        return status;
    }
    return SL_OK;
}

static sl_status add_text(encoded *self, const sl_config *config, const char *path,
                          const sl_vocabulary *vocabulary)
{
    char *first = NULL;
    if (asprintf(&first, "%s/%u.bin", self->directory, self->path_count) < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    const sl_tokenize_args args = {
        .documents = {.paths = &path, .path_count = 1, .json_key = "text"},
        .worker_count = (uint32_t)config->threads};
    const sl_token_writer_args output = {.path = first, .vocab = sl_vocabulary_count(vocabulary)};
    sl_tokenize_report report;
    sl_status status = sl_tokenize_run(&args, vocabulary, &output, &report);
    if (status == SL_OK)
        status = add_path(self, first);
    for (uint32_t i = 1; status == SL_OK && i < report.files; i++) {
        char further[PATH_BYTES + 4096];
        snprintf(further, sizeof further, "%.*s_%06u.bin", (int)strlen(first) - 4, first, i);
        status = add_path(self, further);
    }
    free(first);
    return status;
}

static sl_status encode_files(encoded *self, const sl_config *config, const sl_config_list *paths,
                              const sl_vocabulary *vocabulary, const sl_tokens *tokens)
{
    SL_TRY(make_directory(self));
    for (uint32_t i = 0; i < paths->count; i++)
        SL_TRY(sl_tokens_file_is_text(tokens, i)
                   ? add_text(self, config, paths->items[i], vocabulary)
                   : add_path(self, paths->items[i]));
    return SL_OK;
}

static void close_encoded(encoded *self)
{
    size_t length = self->directory ? strlen(self->directory) : 0;
    for (uint32_t i = 0; i < self->path_count; i++) {
        if (strncmp(self->paths[i], self->directory, length) == 0)
            unlink(self->paths[i]);
        free(self->paths[i]);
    }
    if (self->directory)
        rmdir(self->directory);
    free(self->paths);
    free(self->directory);
}

sl_status sl_tokenizer_encode(const sl_config *config, const sl_config_list *paths,
                              const sl_vocabulary *vocabulary, sl_tokens **tokens)
{
    encoded self = {0};
    sl_tokens *ids = NULL;
    if (!vocabulary || !*tokens || sl_tokens_vocab_needed(*tokens) == 0)
        return SL_OK;
    sl_status status = encode_files(&self, config, paths, vocabulary, *tokens);
    if (status == SL_OK)
        status = sl_tokens_open((const char *const *)self.paths, self.path_count, 0, &ids);
    close_encoded(&self);
    SL_TRY(status);
    sl_tokens_close(*tokens);
    *tokens = ids;
    return SL_OK;
}
