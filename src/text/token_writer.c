/* Each file is written without its name; see token_writer.h. */
#define _GNU_SOURCE
#include "token_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "files/files.h"
#include "files/token_description.h"
#include "vocabulary.h"

enum {
    HEADER_WORDS = 256,
    HEADER_BYTES = 4 * HEADER_WORDS,
    BUFFER_IDS = 1 << 16,
    MEGATRON_HEADER_BYTES = 34,
    DTYPE_INT32 = 4,
    DTYPE_UINT16 = 8
};

static const uint32_t UINT16_VOCAB = 1 << 16, MEGATRON_UINT16_VOCAB = 65500;

/* A file that is to have its name. */
typedef struct output {
    sl_file file;
    char *name; /* the final one */
    uint64_t id_count;
    uint64_t documents; /* that end in it */
} output;

_Static_assert((int)SL_TOKENIZER_NAME_BYTES == (int)SL_VOCABULARY_NAME_BYTES,
               "descriptions hold the names of vocabularies");

struct sl_token_writer {
    sl_token_writer_args args;
    uint32_t id_bytes;
    uint64_t ids_per_file;
    output *outputs; /* the last one is being written */
    uint32_t output_count;
    uint64_t document_ids;    /* of the open document */
    uint32_t document_output; /* where it started: the file, and the ids in front */
    uint64_t document_first;
    uint32_t *lengths; /* MEGATRON: [length_count] ids of each document */
    uint64_t length_count, length_room;
    uint64_t pending; /* ids in `buffer`, already counted */
    unsigned char buffer[BUFFER_IDS * 4];
};

/* ---- names ---- */

/* "a.bin" and ".idx" make "a.idx"; "a" and ".bin" make "a.bin". */
static sl_status replace_ending(const char *path, const char *middle, const char *ending,
                                char **out_path)
{
    size_t length = strlen(path);
    if (sl_files_name_ends(path, ".bin"))
        length -= 4;
    if (asprintf(out_path, "%.*s%s%s", (int)length, path, middle, ending) >= 0)
        return SL_OK;
    *out_path = NULL;
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
}

static sl_status name_output(const sl_token_writer *self, char **out_name)
{
    char number[16] = "";
    const char *path = self->args.path;
    bool is_bin = sl_files_name_ends(path, ".bin");
    if (self->output_count > 0)
        snprintf(number, sizeof number, "_%06u", self->output_count);
    return replace_ending(path, number,
                          is_bin || self->args.format == SL_TOKEN_FORMAT_MEGATRON ? ".bin" : "",
                          out_name);
}

/* ---- files ---- */

/* Refuses an output if FILE.json exists and is not a description: only descriptions are replaced.
 */
static sl_status check_beside(const char *name)
{
    sl_token_description description;
    char *path = NULL;
    bool is_there = false, is_ours = false;
    SL_TRY(sl_token_description_path(name, &path));
    sl_status status = sl_files_exists(AT_FDCWD, NULL, path, &is_there);
    if (status == SL_OK && is_there)
        status = sl_token_description_read(path, &description, &is_ours);
    if (status == SL_ERROR_DATA) /* a description of a later version, or a damaged one */
        status = SL_OK;
    else if (status == SL_OK && is_there && !is_ours)
        status = sl_status_fail(SL_ERROR_USAGE,
                                "%s: is not a description of tokens, and the description of %s "
                                "would replace it: name another file of tokens",
                                sl_files_show(path).text, sl_files_show(name).text);
    free(path);
    return status;
}

static sl_status create_output(const sl_token_writer *self, output *added)
{
    SL_TRY(name_output(self, &added->name));
    if (self->args.tokenizer)
        SL_TRY(check_beside(added->name));
    return sl_files_create_unseen(added->name, &added->file);
}

static sl_status open_output(sl_token_writer *self)
{
    static const unsigned char header[HEADER_BYTES];
    output *outputs = realloc(self->outputs, (self->output_count + 1) * sizeof *outputs);
    if (!outputs)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of files");
    self->outputs = outputs;
    output added = {.file = {.fd = -1}};
    sl_status status = create_output(self, &added);
    if (status != SL_OK) {
        free(added.name);
        return status;
    }
    self->outputs[self->output_count++] = added;
    if (self->args.format == SL_TOKEN_FORMAT_LLMC)
        return sl_files_append(&self->outputs[self->output_count - 1].file, HEADER_BYTES, header);
    return SL_OK;
}

static void remove_output(output *of)
{
    sl_files_discard(&of->file);
    free(of->name);
}

static output *current(const sl_token_writer *self)
{
    return &self->outputs[self->output_count - 1];
}

/* ---- opening ---- */

static sl_status choose_width(sl_token_writer *self)
{
    const sl_token_writer_args *args = &self->args;
    uint32_t limit =
        args->format == SL_TOKEN_FORMAT_MEGATRON ? MEGATRON_UINT16_VOCAB - 1 : UINT16_VOCAB;
    self->id_bytes = args->vocab <= limit && !args->has_marks ? 2 : 4;
    self->ids_per_file = args->ids_per_file ? args->ids_per_file : INT32_MAX;
    if (args->format != SL_TOKEN_FORMAT_NANOGPT)
        return SL_OK;
    if (self->id_bytes > 2)
        SL_FAIL(
            SL_ERROR_USAGE,
            "nanogpt files hold ids of 16 bits, but the vocabulary has %u: use another --format",
            args->vocab);
    if (!sl_files_name_ends(args->path, ".bin"))
        SL_FAIL(SL_ERROR_USAGE,
                "%s: files of nanogpt are known by their name alone: let it end in .bin",
                sl_files_show(args->path).text);
    return SL_OK;
}

sl_status sl_token_writer_open(const sl_token_writer_args *args, sl_token_writer **out_writer)
{
    sl_token_writer *self = calloc(1, sizeof *self);
    if (!self)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to write tokens");
    self->args = *args;
    sl_status status = choose_width(self);
    if (status == SL_OK)
        status = open_output(self);
    if (status != SL_OK) {
        sl_token_writer_close(self);
        return status;
    }
    *out_writer = self;
    return SL_OK;
}

void sl_token_writer_close(sl_token_writer *writer)
{
    if (!writer)
        return;
    for (uint32_t i = 0; i < writer->output_count; i++)
        remove_output(&writer->outputs[i]);
    free(writer->outputs);
    free(writer->lengths);
    free(writer);
}

/* ---- ids ---- */

static sl_status flush(sl_token_writer *self)
{
    uint64_t bytes = self->pending * self->id_bytes;
    self->pending = 0;
    return sl_files_append(&current(self)->file, bytes, self->buffer);
}

static sl_status make_room(sl_token_writer *self)
{
    bool is_llmc = self->args.format == SL_TOKEN_FORMAT_LLMC;
    bool is_full = is_llmc && current(self)->id_count == self->ids_per_file;
    if (self->pending == BUFFER_IDS || is_full)
        SL_TRY(flush(self));
    return is_full ? open_output(self) : SL_OK;
}

static void add_one(sl_token_writer *self, uint32_t id)
{
    memcpy(self->buffer + self->pending * self->id_bytes, &id, self->id_bytes);
    self->pending++;
    current(self)->id_count++;
}

sl_status sl_token_writer_add(sl_token_writer *writer, const uint32_t *ids, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        SL_TRY(make_room(writer));
        if (writer->document_ids++ == 0) {
            writer->document_output = writer->output_count - 1;
            writer->document_first = current(writer)->id_count;
        }
        add_one(writer, ids[i]);
    }
    return SL_OK;
}

static sl_status note_length(sl_token_writer *self)
{
    if (self->document_ids > INT32_MAX)
        SL_FAIL(SL_ERROR_DATA, "a document of %llu ids is longer than Megatron's index can say",
                (unsigned long long)self->document_ids);
    SL_TRY(SL_ARRAY_RESERVE(self->lengths, self->length_count + 1, self->length_room,
                            "the index of documents"));
    self->lengths[self->length_count++] = (uint32_t)self->document_ids;
    return SL_OK;
}

sl_status sl_token_writer_end(sl_token_writer *writer)
{
    if (writer->args.format == SL_TOKEN_FORMAT_MEGATRON)
        SL_TRY(note_length(writer));
    writer->document_ids = 0;
    current(writer)->documents++;
    return SL_OK;
}

sl_status sl_token_writer_drop(sl_token_writer *writer)
{
    uint64_t header = writer->args.format == SL_TOKEN_FORMAT_LLMC ? HEADER_BYTES : 0;
    if (writer->document_ids == 0)
        return SL_OK;
    writer->document_ids = 0;
    SL_TRY(flush(writer));
    while (writer->output_count - 1 > writer->document_output)
        remove_output(&writer->outputs[--writer->output_count]);
    output *of = current(writer);
    of->id_count = writer->document_first;
    of->file.bytes = header + of->id_count * writer->id_bytes;
    if (ftruncate(of->file.fd, (off_t)of->file.bytes) != 0)
        SL_FAIL(SL_ERROR_IO, "%s: cutting it failed: %s", sl_files_show(of->file.path).text,
                strerror(errno));
    return SL_OK;
}

/* ---- ends ---- */

static sl_status write_header(const sl_token_writer *self, output *of)
{
    bool is_wide = self->id_bytes == 4;
    int32_t header[HEADER_WORDS] = {is_wide ? 20240801 : 20240520, is_wide ? 7 : 1,
                                    (int32_t)of->id_count};
    uint64_t end = of->file.bytes;
    of->file.bytes = 0;
    SL_TRY(sl_files_append(&of->file, sizeof header, header));
    of->file.bytes = end;
    return SL_OK;
}

/* 8-byte numbers, some at once. */
typedef struct numbers {
    sl_file *file;
    uint64_t items[512];
    uint32_t count;
} numbers;

static sl_status flush_numbers(numbers *self)
{
    uint64_t bytes = self->count * sizeof self->items[0];
    self->count = 0;
    return sl_files_append(self->file, bytes, self->items);
}

static sl_status add_number(numbers *self, uint64_t number)
{
    self->items[self->count++] = number;
    return self->count == sizeof self->items / sizeof self->items[0] ? flush_numbers(self) : SL_OK;
}

/* Where documents start in the .bin, and their numbers. */
static sl_status append_starts(const sl_token_writer *self, sl_file *index)
{
    numbers starts = {.file = index};
    uint64_t place = 0;
    for (uint64_t i = 0; i < self->length_count; i++) {
        SL_TRY(add_number(&starts, place));
        place += (uint64_t)self->lengths[i] * self->id_bytes;
    }
    for (uint64_t i = 0; i <= self->length_count; i++)
        SL_TRY(add_number(&starts, i));
    return flush_numbers(&starts);
}

static sl_status write_index(const sl_token_writer *self, sl_file *index)
{
    unsigned char header[MEGATRON_HEADER_BYTES] = "MMIDIDX";
    uint64_t version = 1, documents = self->length_count + 1;
    memcpy(header + 9, &version, 8);
    header[17] = self->id_bytes == 2 ? DTYPE_UINT16 : DTYPE_INT32;
    memcpy(header + 18, &self->length_count, 8);
    memcpy(header + 26, &documents, 8);
    SL_TRY(sl_files_append(index, sizeof header, header));
    SL_TRY(sl_files_append(index, self->length_count * sizeof *self->lengths, self->lengths));
    return append_starts(self, index);
}

static sl_status end_outputs(sl_token_writer *self)
{
    SL_TRY(flush(self));
    for (uint32_t i = 0; i < self->output_count; i++)
        if (self->args.format == SL_TOKEN_FORMAT_LLMC)
            SL_TRY(write_header(self, &self->outputs[i]));
    return SL_OK;
}

static sl_status sync_outputs(const sl_token_writer *self)
{
    for (uint32_t i = 0; i < self->output_count; i++)
        SL_TRY(sl_files_sync(&self->outputs[i].file));
    return SL_OK;
}

/* ---- files beside an output: the index and the descriptions ---- */

/* Removes the file of an earlier run, which does not fit the new output. */
static sl_status remove_beside(const char *path)
{
    if (unlink(path) == 0 || errno == ENOENT)
        return SL_OK;
    SL_FAIL(SL_ERROR_IO, "%s: cannot be replaced: %s", sl_files_show(path).text, strerror(errno));
}

static sl_status write_description(const sl_token_writer *self, const output *of, sl_file *file)
{
    sl_token_description description = {.vocab = self->args.vocab,
                                        .end_of_text = self->args.end_of_text,
                                        .documents = of->documents,
                                        .tokens = of->id_count,
                                        .bytes = of->file.bytes};
    snprintf(description.tokenizer, sizeof description.tokenizer, "%s", self->args.tokenizer);
    return sl_token_description_write(&description, file);
}

/* Writes the description or the index of output `index`, not yet under its name. */
static sl_status create_beside(sl_token_writer *self, uint32_t index, bool describes,
                               output *out_beside)
{
    output *of = &self->outputs[index];
    if (describes)
        SL_TRY(sl_token_description_path(of->name, &out_beside->name));
    else
        SL_TRY(replace_ending(of->name, "", ".idx", &out_beside->name));
    SL_TRY(sl_files_create_unseen(out_beside->name, &out_beside->file));
    SL_TRY(describes ? write_description(self, of, &out_beside->file)
                     : write_index(self, &out_beside->file));
    SL_TRY(sl_files_sync(&out_beside->file));
    return remove_beside(out_beside->name);
}

static sl_status publish_all(output *outputs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (outputs[i].name)
            SL_TRY(sl_files_publish(&outputs[i].file, outputs[i].name));
    return SL_OK;
}

/* `beside` [output_count + 1]: the index, then a description of each output. */
static sl_status publish_with(sl_token_writer *self, output *beside)
{
    const uint32_t count = self->output_count;
    if (self->args.format == SL_TOKEN_FORMAT_MEGATRON)
        SL_TRY(create_beside(self, 0, false, &beside[0]));
    for (uint32_t i = 0; i < count && self->args.tokenizer; i++)
        SL_TRY(create_beside(self, i, true, &beside[i + 1]));
    SL_TRY(publish_all(self->outputs, count));
    return publish_all(beside, count + 1);
}

static sl_status publish(sl_token_writer *self)
{
    const uint32_t count = self->output_count + 1;
    output *beside = calloc(count, sizeof *beside);
    if (!beside)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of files");
    for (uint32_t i = 0; i < count; i++)
        beside[i].file.fd = -1;
    sl_status status = publish_with(self, beside);
    for (uint32_t i = 0; i < count; i++)
        remove_output(&beside[i]); /* what has its name stays */
    free(beside);
    return status;
}

sl_status sl_token_writer_finish(sl_token_writer *writer)
{
    SL_TRY(end_outputs(writer));
    SL_TRY(sync_outputs(writer));
    SL_TRY(publish(writer));
    return sl_files_sync_parent(writer->args.path);
}

uint32_t sl_token_writer_file_count(const sl_token_writer *writer)
{
    return writer->output_count;
}
