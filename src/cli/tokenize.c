/* sluice tokenize: from text to files of tokens and back, and learning a vocabulary. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/plural.h"
#include "files/files.h"
#include "meter.h"
#include "terminal.h"
#include "text/text_files.h"
#include "text/tokenize.h"

enum { MB = 1000000 };

/* ---- progress, on standard error: standard output may be the text ---- */

static sl_meter start_meter(const sl_config *config, const char *what)
{
    static const sl_signal_texts texts = {.stops = "stopping: no file of tokens is written",
                                          .stops_in_save = "",
                                          .leaves_now = "leaving at once"};
    static const sl_signal_texts decoding = {.stops = "stopping: no file of text is written",
                                             .stops_in_save = "",
                                             .leaves_now = "leaving at once"};
    return sl_meter_start(config, what, config->decode ? &decoding : &texts);
}

static sl_status show_merging(void *user, uint32_t tokens, uint32_t token_limit)
{
    sl_meter *self = user;
    SL_TRY(sl_meter_check_stop(self));
    sl_meter_say(self, "merging  %u of %u tokens", tokens, token_limit);
    return SL_OK;
}

/* ---- the files ---- */

/* A name that is there stands for itself, a directory for its files, any other one for all that
 * match it. */
static sl_status expand_one(const char *path, sl_text_kinds kinds, sl_file_list *files)
{
    glob_t found;
    bool is_there;
    SL_TRY(sl_files_exists(AT_FDCWD, NULL, path, &is_there));
    if (is_there)
        return sl_text_files_add(files, path, kinds);
    int result = glob(path, GLOB_NOMAGIC, NULL, &found);
    if (result == GLOB_NOMATCH)
        SL_FAIL(SL_ERROR_MISSING, "%s: no file has such a name", sl_files_show(path).text);
    if (result != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "%s: the files of that name cannot be listed",
                sl_files_show(path).text);
    sl_status status = SL_OK;
    for (size_t i = 0; i < found.gl_pathc && status == SL_OK; i++)
        status = sl_text_files_add(files, found.gl_pathv[i], kinds);
    globfree(&found);
    return status;
}

static sl_status expand_files(const sl_config *config, sl_file_list *files)
{
    for (uint32_t i = 0; i < config->data.count; i++)
        SL_TRY(expand_one(config->data.items[i], config->decode ? SL_TEXT_OR_TOKENS : SL_TEXT_ALONE,
                          files));
    return SL_OK;
}

/* ---- what is written: looked at before hours of work ---- */

static sl_status refuse_input(const sl_file_list *files, const char *path)
{
    struct stat output, input;
    if (stat(path, &output) != 0)
        return SL_OK;
    if (!S_ISREG(output.st_mode))
        SL_FAIL(SL_ERROR_USAGE, "--output %s is there and no regular file: name another one",
                sl_files_show(path).text);
    for (uint32_t i = 0; i < files->count; i++)
        if (stat(files->items[i], &input) == 0 && input.st_dev == output.st_dev &&
            input.st_ino == output.st_ino)
            SL_FAIL(SL_ERROR_USAGE, "--output %s is one of --data: name another file",
                    sl_files_show(path).text);
    return SL_OK;
}

/* Megatron's files are NAME.bin and NAME.idx. */
static sl_status refuse_input_pair(const sl_file_list *files, const char *path)
{
    static const char *const endings[] = {".bin", ".idx"};
    int length = (int)strlen(path) - (sl_files_name_ends(path, ".bin") ? 4 : 0);
    sl_status status = SL_OK;
    for (int i = 0; i < 2 && status == SL_OK; i++) {
        char *name = NULL;
        if (asprintf(&name, "%.*s%s", length, path, endings[i]) < 0)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
        status = refuse_input(files, name);
        free(name);
    }
    return status;
}

static sl_status try_to_create(const char *path)
{
    sl_file file;
    SL_TRY(sl_files_create_unseen(path, &file));
    sl_files_discard(&file);
    return SL_OK;
}

/* Directories at the end of a path that are not there; a path of too many counts as one. */
static uint32_t count_missing(const char *directory)
{
    char path[PATH_MAX];
    uint32_t count = 0;
    if (snprintf(path, sizeof path, "%s", directory) >= PATH_MAX)
        return 0;
    while (access(path, F_OK) != 0 && errno == ENOENT) {
        char *slash = strrchr(path, '/');
        count++;
        if (!slash || slash == path)
            break;
        *slash = '\0';
    }
    return count;
}

/* Removes the last `count` directories of a path again. One that is not empty stays. */
static void remove_directories(const char *directory, uint32_t count)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s", directory) >= PATH_MAX)
        return;
    for (uint32_t i = 0; i < count && rmdir(path) == 0; i++) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

/* The directory of a vocabulary to be learnt. */
static sl_status try_directory(const char *directory)
{
    char *path = NULL;
    SL_TRY(sl_files_make_directories(directory));
    SL_TRY(sl_files_join_path(directory, SL_VOCABULARY_TOKENS_FILE, &path));
    sl_status status = try_to_create(path);
    free(path);
    return status;
}

/* Text may go into a pipe or a device. */
static bool is_stream(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

/* Files that llm.c's may go on in: NAME_000001 and so on. No more than these are looked for. */
static sl_status refuse_input_parts(const sl_file_list *files, const char *path)
{
    enum { PARTS = 999 };
    bool is_bin = sl_files_name_ends(path, ".bin");
    int length = (int)strlen(path) - (is_bin ? 4 : 0);
    sl_status status = refuse_input(files, path);
    for (int i = 1; i <= PARTS && status == SL_OK; i++) {
        char *name = NULL;
        if (asprintf(&name, "%.*s_%06d%s", length, path, i, is_bin ? ".bin" : "") < 0)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
        status = refuse_input(files, name);
        free(name);
    }
    return status;
}

static sl_status check_output(const sl_config *config, const sl_file_list *files)
{
    const char *path = config->output;
    if (!path || (config->decode && is_stream(path)))
        return SL_OK;
    if (config->decode || config->format == SL_TOKEN_FORMAT_NANOGPT)
        SL_TRY(refuse_input(files, path));
    else if (config->format == SL_TOKEN_FORMAT_MEGATRON)
        SL_TRY(refuse_input_pair(files, path));
    else
        SL_TRY(refuse_input_parts(files, path));
    return try_to_create(path);
}

/* ---- the jobs ---- */

typedef struct job {
    sl_config *config;
    sl_file_list files;
    sl_vocabulary *vocabulary;
} job;

/* -1: the vocabulary's. */
static int32_t find_end_of_text(const sl_config *config)
{
    return config->end_of_text == SL_CONFIG_UNSET ? -1 : (int32_t)config->end_of_text;
}

static sl_tokenize_args describe(const job *self, sl_meter *progress)
{
    const sl_config *config = self->config;
    return (sl_tokenize_args){
        .documents = {.paths = (const char *const *)self->files.items,
                      .path_count = self->files.count,
                      .is_per_line = config->document_per == SL_CONFIG_PER_LINE,
                      .json_key = config->json_key},
        .worker_count = (uint32_t)config->threads,
        .end_of_text = find_end_of_text(config),
        .cleans = config->clean,
        .progress = sl_meter_show,
        .merging = show_merging,
        .user = progress};
}

static sl_status learn(job *self)
{
    const char *directory = self->config->tokenizer;
    bool is_there;
    sl_meter progress = start_meter(self->config, "counting words");
    sl_tokenize_args args = describe(self, &progress);
    SL_TRY(sl_vocabulary_is_in(directory, &is_there));
    if (is_there)
        SL_FAIL(SL_ERROR_USAGE,
                "--tokenizer %s holds a vocabulary already: name another directory "
                "for the new one, or leave --learn out",
                sl_files_show(directory).text);
    const uint32_t missing = count_missing(directory);
    sl_status status = try_directory(directory);
    if (status == SL_OK)
        status = sl_tokenize_learn(&args, (uint32_t)self->config->learn, &self->vocabulary);
    sl_terminal_end_line();
    if (status == SL_OK)
        status = sl_meter_check_stop(&progress);
    if (status == SL_OK)
        status = sl_vocabulary_save(self->vocabulary, directory);
    if (status != SL_OK)
        remove_directories(directory, missing);
    SL_TRY(status);
    if (!self->config->quiet)
        sl_terminal_print(stdout, 2, "learned %u tokens of %" PRIu64 " in %.1f s: %s",
                          sl_vocabulary_count(self->vocabulary), self->config->learn,
                          sl_meter_seconds(&progress), sl_files_show(directory).text);
    return SL_OK;
}

static void print_report(const job *self, const sl_tokenize_report *report, double seconds)
{
    const sl_config *config = self->config;
    char more[32] = "";
    if (config->clean)
        sl_terminal_print(
            stdout, 2,
            "left out: %" PRIu64 " document%s of fewer than %d tokens, %" PRIu64 " repetition%s",
            report->short_documents, sl_plural(report->short_documents), SL_TOKENIZE_CLEAN_IDS,
            report->repeated_documents, sl_plural(report->repeated_documents));
    if (report->files > 1)
        snprintf(more, sizeof more, " and %u more file%s", report->files - 1,
                 sl_plural(report->files - 1));
    sl_terminal_print(
        stdout, 2,
        "%" PRIu64 " document%s, %" PRIu64 " tokens of %u, %.2f bytes a token, %.1f MB/s: %s%s",
        report->documents, sl_plural(report->documents), report->ids,
        sl_vocabulary_count(self->vocabulary), (double)report->kept_bytes / (double)report->ids,
        (double)report->text_bytes / MB / seconds, sl_files_show(config->output).text, more);
}

static sl_status encode(const job *self)
{
    const sl_config *config = self->config;
    char tokenizer[SL_VOCABULARY_NAME_BYTES];
    SL_TRY(sl_vocabulary_name(self->vocabulary, tokenizer));
    sl_meter progress = start_meter(config, "tokenizing");
    const sl_tokenize_args args = describe(self, &progress);
    const sl_token_writer_args output = {.path = config->output,
                                         .format = (sl_token_format)config->format,
                                         .vocab = sl_vocabulary_count(self->vocabulary),
                                         .tokenizer = tokenizer};
    sl_tokenize_report report;
    sl_status status = sl_tokenize_run(&args, self->vocabulary, &output, &report);
    sl_terminal_end_line();
    SL_TRY(status);
    if (!config->quiet)
        print_report(self, &report, sl_meter_seconds(&progress));
    return SL_OK;
}

typedef struct text_output {
    FILE *stream;
    const char *name;
    sl_meter *progress;
} text_output;

static sl_status write_text(void *user, const char *text, uint64_t bytes)
{
    const text_output *to = user;
    SL_TRY(sl_meter_check_stop(to->progress));
    if (fwrite(text, 1, bytes, to->stream) == bytes)
        return SL_OK;
    SL_FAIL(SL_ERROR_IO, "%s: writing failed: %s", sl_files_show(to->name).text, strerror(errno));
}

static sl_status decode_to(const job *self, text_output *to)
{
    const sl_tokenize_decode_args args = {.paths = (const char *const *)self->files.items,
                                          .path_count = self->files.count,
                                          .vocabulary = self->vocabulary,
                                          .end_of_text = find_end_of_text(self->config)};
    return sl_tokenize_decode(&args, write_text, to);
}

static sl_status fail_writing(const char *name)
{
    SL_FAIL(SL_ERROR_IO, "%s: writing failed: %s", sl_files_show(name).text, strerror(errno));
}

/* Into what is there and no file: nothing is in it that could be kept. */
static sl_status decode_to_stream(const job *self, text_output *to)
{
    to->stream = fopen(to->name, "we");
    if (!to->stream)
        SL_FAIL(SL_ERROR_IO, "%s: cannot be opened: %s", sl_files_show(to->name).text,
                strerror(errno));
    sl_status status = decode_to(self, to);
    if (fclose(to->stream) != 0 && status == SL_OK)
        status = fail_writing(to->name);
    return status;
}

static sl_status fill_file(const job *self, text_output *to, const sl_file *file)
{
    mode_t mask = umask(0);
    umask(mask);
    int fd = fchmod(file->fd, 0666 & ~mask) == 0 ? dup(file->fd) : -1;
    to->stream = fd < 0 ? NULL : fdopen(fd, "w");
    if (!to->stream)
        SL_FAIL(SL_ERROR_SYSTEM, "%s: cannot be opened: %s", sl_files_show(file->path).text,
                strerror(errno));
    sl_status status = decode_to(self, to);
    if (fclose(to->stream) != 0 && status == SL_OK)
        status = fail_writing(file->path);
    SL_TRY(status);
    SL_TRY(sl_files_sync(file));
    return sl_meter_check_stop(to->progress);
}

/* Without its name until it is whole. */
static sl_status decode_to_file(const job *self, text_output *to)
{
    sl_file file;
    SL_TRY(sl_files_create_unseen(to->name, &file));
    sl_status status = fill_file(self, to, &file);
    if (status == SL_OK)
        status = sl_files_publish(&file, to->name);
    sl_files_discard(&file);
    return status == SL_OK ? sl_files_sync_parent(to->name) : status;
}

static sl_status decode(const job *self)
{
    sl_meter progress = start_meter(self->config, "decoding");
    text_output to = {stdout, "standard output", &progress};
    if (!self->config->output)
        return decode_to(self, &to);
    /* Through links: what they name is replaced, and not they. */
    char *name = realpath(self->config->output, NULL);
    to.name = name ? name : self->config->output;
    sl_status status = is_stream(to.name) ? decode_to_stream(self, &to) : decode_to_file(self, &to);
    free(name);
    return status;
}

static sl_status open_vocabulary(job *self)
{
    const char *name = self->config->tokenizer;
    if (self->config->learn > 0)
        return learn(self);
    return strcmp(name, "byte") == 0 ? sl_vocabulary_of_bytes(&self->vocabulary)
                                     : sl_vocabulary_read(name, &self->vocabulary);
}

static sl_status run_job(job *self)
{
    SL_TRY(sl_config_check(self->config, SL_CONFIG_TOKENIZE));
    SL_TRY(expand_files(self->config, &self->files));
    SL_TRY(check_output(self->config, &self->files));
    SL_TRY(open_vocabulary(self));
    if (self->config->decode)
        return decode(self);
    return self->config->output ? encode(self) : SL_OK;
}

static int tokenize(sl_config *config)
{
    job self = {.config = config};
    sl_status status = run_job(&self);
    int code = sl_meter_end(status);
    sl_vocabulary_close(self.vocabulary);
    sl_file_list_clear(&self.files);
    return code;
}

const sl_command_entry sl_command_tokenize = {
    .options = SL_CONFIG_TOKENIZE,
    .task = SL_COMMAND_DATA,
    .name = "tokenize",
    .summary = "text to files of tokens and back; learn a vocabulary",
    .doc =
        "Writes the tokens of text and JSON lines, which gzip or zstd may have packed, into one "
        "file, an end of text behind each document. --tokenizer is a directory with GPT-2's "
        "vocab.json and merges.txt, or tokenizer.json. With --learn N a vocabulary of N tokens "
        "is learnt from the data and put there first. Names in --data may hold *, ? and [...], and "
        "a directory stands for the files below it.",
    .page = "docs/text.md",
    .checks_options = true,
    .run = tokenize};
