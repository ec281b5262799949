/* Lists files and hashes them; see common_inputs.h. */
#include "common_inputs.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "foreign/adapter.h"
#include "foreign/model_files.h"
#include "foreign/pieces/model_pieces.h"

enum { NAME_BYTES = 64, VALUE_BYTES = 64, PART_BYTES = 65536, COUNTS = 5 };

typedef struct list {
    sl_common_inputs *to;
    uint32_t capacity;
} list;

static sl_status open_list(uint64_t fact_count, list *out_list)
{
    sl_common_inputs *to = out_list->to;
    to->facts = calloc(fact_count, sizeof *to->facts);
    to->texts = calloc(fact_count, NAME_BYTES + VALUE_BYTES);
    if (!to->facts || !to->texts)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for what ranks compare");
    out_list->capacity = (uint32_t)fact_count;
    return SL_OK;
}

/* "--init, model.safetensors", or `what` alone. */
static sl_status add(list *self, const char *what, const char *file, const char *value)
{
    if (self->to->count == self->capacity)
        SL_FAIL(SL_ERROR_INTERNAL, "more facts than were counted");
    char *name = self->to->texts + (uint64_t)self->to->count * (NAME_BYTES + VALUE_BYTES);
    if (file) /* of a long name its start */
        snprintf(name, NAME_BYTES, "%.15s, %.44s", what, sl_files_show(file).text);
    else
        snprintf(name, NAME_BYTES, "%.63s", what);
    snprintf(name + NAME_BYTES, VALUE_BYTES, "%.63s", value);
    self->to->facts[self->to->count++] = (sl_comm_fact){name, name + NAME_BYTES};
    return SL_OK;
}

static sl_status add_count(list *self, const char *what, uint64_t count)
{
    char value[VALUE_BYTES];
    snprintf(value, sizeof value, "%" PRIu64, count);
    return add(self, what, NULL, value);
}

static uint32_t count_data(const sl_tokens *tokens)
{
    return tokens ? sl_tokens_file_count(tokens) : 0;
}

static sl_status add_data(list *self, const char *option, const sl_tokens *tokens)
{
    for (uint32_t i = 0; i < count_data(tokens); i++) {
        const char *name;
        char value[SL_TOKENS_FINGERPRINT];
        SL_TRY(sl_tokens_identify_file(tokens, i, &name, value));
        SL_TRY(add(self, option, name, value));
    }
    return SL_OK;
}

/* ---- files of weights ---- */

static void format_hash(sl_hash_value hash, char out_text[VALUE_BYTES])
{
    snprintf(out_text, VALUE_BYTES, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
}

static sl_status hash_file(const sl_file *file, char out_text[VALUE_BYTES])
{
    unsigned char part[PART_BYTES];
    sl_hash_stream *stream;
    sl_status status = SL_OK;
    SL_TRY(sl_hash_open(&stream));
    for (uint64_t done = 0; done < file->bytes && status == SL_OK; done += PART_BYTES) {
        const uint64_t left = file->bytes - done, bytes = left < PART_BYTES ? left : PART_BYTES;
        status = sl_files_read_at(file, done, bytes, part);
        if (status == SL_OK)
            sl_hash_update(stream, part, bytes);
    }
    const sl_hash_value hash = sl_hash_digest(stream);
    sl_hash_close(stream);
    format_hash(hash, out_text);
    return status;
}

static sl_status add_file(list *self, const char *option, const char *directory, const char *name)
{
    char value[VALUE_BYTES], *path = NULL;
    sl_file file = {.fd = -1};
    SL_TRY(sl_files_join_path(directory, name, &path));
    sl_status status = sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file);
    free(path);
    SL_TRY(status);
    status = hash_file(&file, value);
    sl_files_close(&file);
    return status == SL_OK ? add(self, option, name, value) : status;
}

static sl_status add_model(list *self, const sl_common_inputs_args *args,
                           const sl_model_files *files)
{
    const char *option = args->source_option;
    SL_TRY(add_file(self, option, args->source->directory, "config.json"));
    for (uint32_t i = 0; i < files->file_count; i++) {
        const sl_file *file = &files->files[i]->file;
        const char *slash = strrchr(file->path, '/');
        char value[VALUE_BYTES];
        SL_TRY(hash_file(file, value));
        SL_TRY(add(self, option, slash ? slash + 1 : file->path, value));
    }
    return SL_OK;
}

/* Their weights alone: states of an optimizer beside them are not read. */
static sl_status add_pieces(list *self, const char *option, const sl_model_pieces *pieces)
{
    char value[VALUE_BYTES];
    sl_hash_value hash;
    SL_TRY(sl_model_pieces_hash(pieces, &hash));
    format_hash(hash, value);
    return add(self, option, "the weights of its pieces", value);
}

/* ---- all ---- */

static sl_status name_vocabulary(const sl_vocabulary *vocabulary,
                                 char out_name[SL_VOCABULARY_NAME_BYTES])
{
    snprintf(out_name, SL_VOCABULARY_NAME_BYTES, "none");
    return vocabulary ? sl_vocabulary_name(vocabulary, out_name) : SL_OK;
}

static sl_status add_adapter(list *self, const sl_adapter *adapter)
{
    if (!adapter)
        return SL_OK;
    SL_TRY(add_file(self, "--adapter", sl_adapter_path(adapter), SL_ADAPTER_CONFIG));
    return add_file(self, "--adapter", sl_adapter_path(adapter), SL_ADAPTER_WEIGHTS);
}

/* A checkpoint's manifest has checksums of each of its files, with which loading compares them. */
static sl_status list_all(const sl_common_inputs_args *args, const sl_model_files *model,
                          list *self)
{
    char vocabulary[SL_VOCABULARY_NAME_BYTES], template_hash[VALUE_BYTES];
    const sl_model_pieces *pieces = args->source->pieces;
    const bool has_start = args->source->checkpoint || pieces;
    const uint64_t model_count = model ? 1ull + model->file_count : 0;
    const uint64_t data_count = (uint64_t)count_data(args->tokens) + count_data(args->eval_tokens);
    SL_TRY(open_list(COUNTS + data_count + model_count + 5, self));
    SL_TRY(name_vocabulary(args->vocabulary, vocabulary));
    SL_TRY(add_count(self, "the number of files of --data", count_data(args->tokens)));
    SL_TRY(add_count(self, "the number of files of --eval-data", count_data(args->eval_tokens)));
    SL_TRY(add_count(self, "the number of files of the model", model_count + has_start));
    SL_TRY(add_count(self, "the number of checkpoints to go on from", args->checkpoint != NULL));
    SL_TRY(add(self, "the tokenizer", NULL, vocabulary));
    if (args->template_text) {
        format_hash(sl_hash_128(args->template_text, strlen(args->template_text)), template_hash);
        SL_TRY(add(self, "--template", NULL, template_hash));
    }
    SL_TRY(add_data(self, "--data", args->tokens));
    SL_TRY(add_data(self, "--eval-data", args->eval_tokens));
    if (args->checkpoint)
        SL_TRY(add_file(self, "--resume", args->checkpoint, "manifest.json"));
    if (pieces)
        SL_TRY(add_pieces(self, args->source_option, pieces));
    if (args->source->checkpoint)
        SL_TRY(add_file(self, args->source_option, args->source->path, "manifest.json"));
    SL_TRY(add_adapter(self, args->source->adapter));
    return model ? add_model(self, args, model) : SL_OK;
}

sl_status sl_common_inputs_list(const sl_common_inputs_args *args, sl_common_inputs *out_beginning)
{
    sl_model_files *model = NULL;
    list self = {.to = out_beginning};
    *out_beginning = (sl_common_inputs){0};
    if (args->source->directory)
        SL_TRY(sl_model_files_open(args->source->directory, &model));
    const sl_status status = list_all(args, model, &self);
    sl_model_files_close(model);
    return status;
}

void sl_common_inputs_free(sl_common_inputs *beginning)
{
    free(beginning->facts);
    free(beginning->texts);
    *beginning = (sl_common_inputs){0};
}
