/* sluice convert: a model from a checkpoint, a Hugging Face directory, Megatron-LM or llm.c, for
 * other programs. */
#include "foreign/convert/convert.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "meter.h"
#include "terminal.h"
#include "train/data/tokenizer.h"
#include "train/loading/loading.h"

enum { MB = 1000000 };

/* The given tokenizer, else the model's own, so far as it is known. */
static sl_status open_vocabulary(sl_config *config, const sl_model_reader *reader,
                                 sl_vocabulary **vocabulary)
{
    const sl_tokenizer_question question = {.model = reader->path,
                                            .recorded = reader->tokenizer,
                                            .directory = reader->directory,
                                            .shape = &reader->shape};
    SL_TRY(sl_tokenizer_open(config, &question, vocabulary));
    SL_TRY(sl_tokenizer_resolve(config, &question, vocabulary));
    bool is_byte = config->tokenizer && strcmp(config->tokenizer, "byte") == 0;
    return !*vocabulary && is_byte ? sl_vocabulary_of_bytes(vocabulary) : SL_OK;
}

static bool is_at(const char *path, const struct stat *file)
{
    struct stat info;
    return stat(path, &info) == 0 && info.st_dev == file->st_dev && info.st_ino == file->st_ino;
}

/* Whether one of two real paths is the other, or lies in it. */
static bool is_within(const char *path, const char *other)
{
    size_t bytes = strlen(path);
    return strncmp(path, other, bytes) == 0 && (other[bytes] == '/' || other[bytes] == '\0');
}

/* Pieces lie in directories of directories: neither may hold the other. */
static sl_status compare_places(const sl_config *config, const sl_model_reader *reader,
                                bool *out_is_same)
{
    char *to = realpath(config->to, NULL), *from = realpath(reader->path, NULL);
    bool has_both = to && from;
    *out_is_same =
        has_both && reader->source.pieces && (is_within(to, from) || is_within(from, to));
    free(to);
    free(from);
    if (!has_both)
        SL_FAIL(SL_ERROR_SYSTEM, "--to %s: where it is cannot be told",
                sl_files_show(config->to).text);
    return SL_OK;
}

/* Not even one file of the model: those that are left would be of another. */
static sl_status refuse_same(const sl_config *config, const sl_model_reader *reader)
{
    struct stat to;
    bool is_same;
    if (stat(config->to, &to) != 0)
        return SL_OK;
    SL_TRY(compare_places(config, reader, &is_same));
    is_same = is_same || is_at(config->from, &to) || is_at(reader->path, &to);
    for (uint32_t i = 0; reader->found && i < sl_model_tensors_count(&reader->shape); i++)
        is_same = is_same || is_at(reader->found[i].file->file.path, &to);
    if (is_same)
        SL_FAIL(SL_ERROR_USAGE, "--to %s is what is converted: name another place",
                sl_files_show(config->to).text);
    return SL_OK;
}

static void print_report(const sl_config *config, const sl_model_reader *reader,
                         const sl_convert_report *report, double seconds)
{
    static const char *const formats[] = {"hf",       "gguf", "llmc",      "weights",
                                          "megatron", "peft", "checkpoint"};
    sl_terminal_print(
        stdout, 2,
        "%s, %s: %u tensors, %" PRIu64 " parameters of %s, %.1f MB in %.1f s, %.1f MB/s: %s",
        formats[config->convert_format], sl_encoding_name((sl_encoding)config->convert_type),
        report->tensor_count, report->parameter_count, reader->kind, (double)report->bytes / MB,
        seconds, (double)report->bytes / MB / seconds, sl_files_show(config->to).text);
}

/* Adapters alone are no model: says which one they need, and how to try both. */
static void print_base(const sl_config *config, const sl_convert_report *report)
{
    char base[PATH_MAX], to[PATH_MAX];
    sl_command_quote(*report->base ? report->base : "BASE", base, sizeof base);
    sl_command_quote(config->to, to, sizeof to);
    sl_terminal_print(
        stdout, 2, "these are adapters alone; a program that loads them also needs their base: %s",
        *report->base ? base : "the model that was trained from random numbers");
    printf("sample  sluice generate %s --adapter %s --prompt TEXT\n", base, to);
}

static sl_status run(sl_config *config, const sl_model_reader *reader,
                     const sl_vocabulary *vocabulary, sl_meter *progress)
{
    sl_convert_report report;
    const sl_convert_args args = {.reader = reader,
                                  .to = config->to,
                                  .format = (sl_convert_format)config->convert_format,
                                  .encoding = (sl_encoding)config->convert_type,
                                  .tp_size = (uint32_t)config->tp,
                                  .pp_size = (uint32_t)config->pp,
                                  .shard_bytes = config->shard_size,
                                  .overwrites = config->overwrite,
                                  .vocabulary = vocabulary,
                                  .progress = sl_meter_show,
                                  .user = progress};
    sl_status status = sl_convert_run(&args, &report);
    sl_terminal_end_line();
    SL_TRY(status);
    if (!config->quiet)
        print_report(config, reader, &report, sl_meter_seconds(progress));
    if (!config->quiet && args.format == SL_CONVERT_PEFT)
        print_base(config, &report);
    return SL_OK;
}

/* --heads is for a model that does not say them. */
static sl_status check_heads(const sl_model_reader *reader, uint32_t heads)
{
    if (heads == 0 || heads == reader->shape.heads)
        return SL_OK;
    SL_FAIL(SL_ERROR_USAGE, "--heads %u: the model at %s has %u: leave --heads out", heads,
            sl_files_show(reader->path).text, reader->shape.heads);
}

static sl_status open_and_run(sl_config *config, void *progress)
{
    sl_model_reader reader;
    sl_vocabulary *vocabulary = NULL;
    const uint32_t heads = config->heads == SL_CONFIG_UNSET ? 0 : (uint32_t)config->heads;
    SL_TRY(sl_model_reader_open(config->from, config->checks_checkpoints, heads, &reader));
    sl_status status = check_heads(&reader, heads);
    if (status == SL_OK)
        status = sl_model_reader_add_adapter(&reader, config->adapter);
    reader.merges = config->merge;
    if (status == SL_OK)
        status = refuse_same(config, &reader);
    if (status == SL_OK)
        status = open_vocabulary(config, &reader, &vocabulary);
    if (status == SL_OK)
        status = run(config, &reader, vocabulary, progress);
    sl_vocabulary_close(vocabulary);
    sl_model_reader_close(&reader);
    return status;
}

static int convert(sl_config *config)
{
    static const sl_signal_texts texts = {
        .stops = "stopping: nothing is written",
        .stops_in_save = "",
        .leaves_now = "leaving at once: a file or directory with .tmp- in its name may be left"};
    sl_signals_ignore_failed_output(); /* a file that may not grow is told as any failure */
    sl_meter progress = sl_meter_start(config, "converting", &texts);
    sl_status status = sl_convert_check((sl_convert_format)config->convert_format,
                                        (sl_encoding)config->convert_type);
    if (status == SL_OK)
        status = sl_loading_run(config, open_and_run, &progress);
    return sl_meter_end(status);
}

const sl_command_entry sl_command_convert = {
    .options = SL_CONFIG_CONVERT,
    .task = SL_COMMAND_MODEL,
    .name = "convert",
    .summary = "a model for transformers, llama.cpp, llm.c or Megatron-LM, or from it",
    .doc =
        "Writes the parameters of --from, tensor by tensor in 48 MiB of memory, as --to in another "
        "--format. It has its name only when it is whole; --from is checked as train checks it, "
        "checksums included. The tokenizer that the model is known to have goes with it.",
    .page = "docs/convert.md",
    .run = convert};
