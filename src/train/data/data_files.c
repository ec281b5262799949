/* From paths to ranges of tokens; see data_files.h. */
#define _GNU_SOURCE
#include "data_files.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/plural.h"
#include "files/files.h"
#include "files/token_documents.h"
#include "text/text_files.h"
#include "text/token_cache.h"

enum { MB = 1000000 };

/* Between notes; from the beginning of a piece of work until its rate says something. */
static const double note_seconds = 10, rate_seconds = 1;

/* ---- opening ---- */

static sl_status no_memory(void)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of files");
}

/* Appends the files of one item. */
static sl_status add_item(sl_data_files *files, uint32_t item)
{
    double weight;
    uint32_t before = files->paths.count;
    SL_TRY(sl_text_files_add(&files->paths, sl_config_weigh(files->given->items[item], &weight),
                             files->form ? SL_TEXT_EXAMPLES : SL_TEXT_OR_TOKENS));
    uint32_t *items = realloc(files->items, files->paths.count * sizeof *items);
    if (!items)
        return no_memory();
    files->items = items;
    for (uint32_t i = before; i < files->paths.count; i++)
        items[i] = item;
    return SL_OK;
}

/* The name in which a file of llm.c's goes on: "a_000001.bin" of "a.bin", "a_000002.bin" of that.
 * The caller frees it. */
static sl_status name_next(const char *path, char **out_name)
{
    enum { DIGITS = 6 };
    const char *ending = sl_files_name_ends(path, ".bin") ? ".bin" : "";
    size_t length = strlen(path) - strlen(ending);
    unsigned long number = 0;
    const char *digits = length > DIGITS ? path + length - DIGITS : "";
    if (*digits && digits[-1] == '_' && strspn(digits, "0123456789") == DIGITS) {
        number = strtoul(digits, NULL, 10);
        length -= DIGITS + 1;
    }
    if (asprintf(out_name, "%.*s_%06lu%s", (int)length, path, number + 1, ending) < 0)
        return no_memory();
    return SL_OK;
}

static int compare_paths(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* `sorted`: all paths. A shell's pattern takes all of them; a single name only looks like all there
 * is. */
static sl_status warn_of_next(const sl_file_list *sorted, const char *path)
{
    char *next = NULL;
    bool is_there = false;
    SL_TRY(name_next(path, &next));
    sl_status status = SL_OK;
    if (!bsearch(&next, sorted->items, sorted->count, sizeof next, compare_paths))
        status = sl_files_exists(AT_FDCWD, NULL, next, &is_there);
    if (status == SL_OK && is_there)
        sl_log_write(SL_LOG_WARNING, "%s goes on in %s, which is not among the data",
                     sl_files_show(path).text, sl_files_show(next).text);
    free(next);
    return status == SL_ERROR_SYSTEM ? status : SL_OK;
}

static sl_status warn_of_all(const sl_file_list *paths, const sl_tokens *tokens)
{
    sl_file_list sorted = {.items = malloc(paths->count * sizeof *sorted.items),
                           .count = paths->count};
    sl_status status = sorted.items ? SL_OK : no_memory();
    if (status == SL_OK) {
        memcpy(sorted.items, paths->items, paths->count * sizeof *sorted.items);
        qsort(sorted.items, sorted.count, sizeof *sorted.items, compare_paths);
    }
    for (uint32_t i = 0; i < paths->count && status == SL_OK; i++)
        if (!sl_tokens_file_is_text(tokens, i))
            status = warn_of_next(&sorted, paths->items[i]);
    free(sorted.items); /* the names are of `paths` */
    return status;
}

static sl_status open_paths(const sl_file_list *paths, sl_tokens **out_tokens)
{
    SL_TRY(sl_tokens_open((const char *const *)paths->items, paths->count, 0, out_tokens));
    return warn_of_all(paths, *out_tokens);
}

/* Files of tokens do not say what counts in them. */
static sl_status open_examples(const sl_file_list *paths, sl_tokens **out_tokens)
{
    SL_TRY(sl_tokens_open_examples((const char *const *)paths->items, paths->count, out_tokens));
    for (uint32_t i = 0; i < paths->count; i++)
        if (!sl_tokens_file_is_text(*out_tokens, i))
            SL_FAIL(SL_ERROR_USAGE,
                    "%s: is a file of tokens, and the keys of examples are for JSON: give JSON "
                    "lines or an array, or leave the keys out",
                    sl_files_show(paths->items[i]).text);
    return SL_OK;
}

sl_status sl_data_files_open(const sl_config_list *given, const sl_example_form *form,
                             sl_data_files *out_files, sl_tokens **out_tokens)
{
    *out_files = (sl_data_files){.given = given, .form = form};
    *out_tokens = NULL;
    for (uint32_t i = 0; i < given->count; i++)
        SL_TRY(add_item(out_files, i));
    if (out_files->paths.count == 0)
        return SL_OK;
    return form ? open_examples(&out_files->paths, out_tokens)
                : open_paths(&out_files->paths, out_tokens);
}

void sl_data_files_close(sl_data_files *files)
{
    sl_file_list_clear(&files->paths);
    free(files->items);
    *files = (sl_data_files){0};
}

/* True if rows come from each item by its weight: each is a part of its own then. */
static bool is_weighted(const sl_config_list *items)
{
    double weight;
    return items->count > 0 && sl_config_weigh(items->items[0], &weight) != items->items[0];
}

/* ---- ids of text ---- */

static bool needs_ids(const sl_config *config, const sl_vocabulary *vocabulary,
                      const sl_tokens *tokens, uint32_t file)
{
    bool has_other_end =
        config->end_of_text != SL_CONFIG_UNSET && config->end_of_text != SL_TOKENS_END_OF_TEXT;
    return sl_tokens_file_is_text(tokens, file) &&
           (vocabulary || sl_config_has_examples(config) ||
            sl_tokens_file_is_wrapped(tokens, file) || has_other_end ||
            config->document_per == SL_CONFIG_PER_LINE);
}

bool sl_data_files_need_ids(const sl_config *config, const sl_vocabulary *vocabulary,
                            const sl_tokens *tokens)
{
    for (uint32_t i = 0; tokens && i < sl_tokens_file_count(tokens); i++)
        if (needs_ids(config, vocabulary, tokens, i))
            return true;
    return false;
}

/* The files of a run whose text is ids. */
typedef struct encoding {
    const sl_config *config;
    const sl_vocabulary *vocabulary;
    const sl_data_files *from;
    const char *directory; /* of the cache */
    bool *is_text;         /* [from->paths.count]: ids are to be made */
    sl_data_files *to;     /* has room for as many items */
    double started, noted; /* in seconds */
    uint64_t compared;     /* bytes that note_comparing told last */
    bool is_tokenizing;
} encoding;

static double read_seconds(void)
{
    return 1e-9 * (double)sl_clock_now_ns();
}

static void note(encoding *self, const char *what, uint64_t bytes, uint64_t file_bytes)
{
    double now = read_seconds(), seconds = now - self->started;
    if (self->config->quiet || now - self->noted < note_seconds || seconds < rate_seconds ||
        bytes == 0)
        return;
    uint64_t left = bytes < file_bytes ? file_bytes - bytes : 0;
    self->noted = now;
    sl_log_write(SL_LOG_NOTE, "%s: %.0f of %.0f MB, %.1f MB/s, %.0f s left", what,
                 (double)bytes / MB, (double)file_bytes / MB, (double)bytes / MB / seconds,
                 seconds * (double)left / (double)bytes);
}

static sl_status note_tokenizing(void *user, uint64_t bytes, uint64_t file_bytes)
{
    encoding *self = user;
    if (!self->is_tokenizing)
        self->started = read_seconds();
    self->is_tokenizing = true;
    note(self, "tokenizing", bytes, file_bytes);
    return SL_OK;
}

/* The text comes first, then the ids that are kept, or those that were made. */
static void note_comparing(void *user, uint64_t bytes, uint64_t total_bytes)
{
    encoding *self = user;
    if (bytes < self->compared || self->is_tokenizing)
        self->started = read_seconds();
    self->is_tokenizing = false;
    self->compared = bytes;
    note(self, "comparing with what is kept", bytes, total_bytes);
}

static sl_status add_text(encoding *self, uint32_t first, uint32_t count)
{
    const sl_config *config = self->config;
    char *path = NULL;
    self->started = self->noted = read_seconds();
    self->compared = 0;
    self->is_tokenizing = false;
    const sl_tokenize_args tokenize = {
        .documents = {.paths = (const char *const *)self->from->paths.items + first,
                      .path_count = count,
                      .is_per_line = config->document_per == SL_CONFIG_PER_LINE,
                      .json_key = config->json_key,
                      .form = self->from->form},
        .worker_count = (uint32_t)config->threads,
        .end_of_text = config->end_of_text == SL_CONFIG_UNSET ? -1 : (int32_t)config->end_of_text,
        .progress = note_tokenizing,
        .user = self};
    const sl_token_cache_args cache = {.tokenize = &tokenize,
                                       .vocabulary = self->vocabulary,
                                       .directory = self->directory,
                                       .comparing = note_comparing,
                                       .user = self};
    SL_TRY(sl_token_cache_find(&cache, &path));
    sl_status status = sl_file_list_append(&self->to->paths, path);
    free(path);
    return status;
}

/* How many files from `first` on become one. */
static uint32_t count_neighbours(const encoding *self, uint32_t first)
{
    const sl_data_files *from = self->from;
    uint32_t end = first + 1;
    while (self->is_text[first] && end < from->paths.count && self->is_text[end] &&
           (from->items[end] == from->items[first] || !is_weighted(from->given)))
        end++;
    return end - first;
}

static sl_status add_made(encoding *self)
{
    const sl_file_list *made = self->from->made;
    const uint32_t next = self->to->paths.count;
    if (next >= made->count)
        SL_FAIL(SL_ERROR_INTERNAL, "another rank made %u files of the same ones", made->count);
    return sl_file_list_append(&self->to->paths, made->items[next]);
}

static sl_status add_all(encoding *self)
{
    const sl_data_files *from = self->from;
    for (uint32_t i = 0, count; i < from->paths.count; i += count) {
        count = count_neighbours(self, i);
        if (from->made)
            SL_TRY(add_made(self));
        else if (self->is_text[i])
            SL_TRY(add_text(self, i, count));
        else
            SL_TRY(sl_file_list_append(&self->to->paths, from->paths.items[i]));
        self->to->items[self->to->paths.count - 1] = from->items[i];
    }
    return SL_OK;
}

/* --cache-dir, else the place that is for such files; the caller frees it. */
static sl_status find_directory(const sl_config *config, char **out_path)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length;
    if (config->cache_dir)
        length = asprintf(out_path, "%s", config->cache_dir);
    else if (cache && cache[0] == '/')
        length = asprintf(out_path, "%s/sluice", cache);
    else if (home && home[0] == '/')
        length = asprintf(out_path, "%s/.cache/sluice", home);
    else
        SL_FAIL(SL_ERROR_USAGE,
                "the ids of text are kept, and there is no place for them: neither XDG_CACHE_HOME "
                "nor HOME is an absolute path; name one by --cache-dir");
    return length < 0 ? no_memory() : SL_OK;
}

static sl_status choose_text(encoding *self, const sl_tokens *tokens)
{
    uint32_t count = self->from->paths.count;
    self->is_text = calloc(count, sizeof *self->is_text);
    self->to->items = calloc(count, sizeof *self->to->items);
    if (!self->is_text || !self->to->items)
        return no_memory();
    for (uint32_t i = 0; i < count; i++)
        self->is_text[i] = needs_ids(self->config, self->vocabulary, tokens, i);
    return SL_OK;
}

/* Closes the tokens before ids are made: their descriptors may be most that there are. */
static sl_status encode_with(encoding *self, sl_tokens **tokens)
{
    char *directory = NULL;
    sl_status status = find_directory(self->config, &directory);
    self->directory = directory;
    if (status == SL_OK)
        status = choose_text(self, *tokens);
    sl_tokens_close(*tokens);
    *tokens = NULL;
    if (status == SL_OK)
        status = add_all(self);
    const sl_file_list *paths = &self->to->paths;
    if (status == SL_OK)
        status = sl_tokens_open((const char *const *)paths->items, paths->count, 0, tokens);
    if (status == SL_OK && self->from->form)
        sl_tokens_take_marks(*tokens);
    free(self->is_text);
    free(directory);
    return status;
}

sl_status sl_data_files_encode(const sl_config *config, const sl_vocabulary *vocabulary,
                               sl_data_files *files, sl_tokens **tokens)
{
    sl_vocabulary *bytes = NULL;
    sl_data_files to = {.given = files->given, .form = files->form};
    if (!sl_data_files_need_ids(config, vocabulary, *tokens))
        return SL_OK;
    if (!vocabulary)
        SL_TRY(sl_vocabulary_of_bytes(&bytes));
    encoding self = {
        .config = config, .vocabulary = vocabulary ? vocabulary : bytes, .from = files, .to = &to};
    sl_status status = encode_with(&self, tokens);
    sl_vocabulary_close(bytes);
    sl_data_files_close(files);
    *files = to;
    return status;
}

/* ---- parts ---- */

const char *sl_data_files_name(int share)
{
    static const char *const names[SL_CONFIG_SHARES] = {"training", "validation", "test"};
    return names[share];
}

/* The share that takes what rounding leaves. */
static int find_last(const sl_data_cut *cut)
{
    int last = SL_CONFIG_SHARES - 1;
    while (last > 0 && cut->shares[last] == 0)
        last--;
    return last;
}

/* Files that are cut together. */
typedef struct range {
    uint32_t first_file, file_count;
} range;

static sl_status fail_empty(const sl_data_cut *cut, range of, uint64_t count, int share)
{
    SL_FAIL(
        SL_ERROR_DATA,
        "%s%s: of %llu document%s none is in the %s share of --split: give more documents, or a "
        "larger share (lines are documents with --document-per line)",
        sl_files_show(cut->files->paths.items[of.first_file]).text,
        of.file_count > 1 ? " and the files behind it" : "", (unsigned long long)count,
        sl_plural(count), sl_data_files_name(share));
}

/* Part `index` of each share. */
static sl_status cut_documents(const sl_data_cut *cut, range of,
                               const sl_token_documents *documents, uint32_t index,
                               sl_data_parts *parts)
{
    uint64_t count = sl_token_documents_count(documents), start, end;
    int last = find_last(cut);
    double to = 0;
    SL_TRY(sl_token_documents_start(documents, 0, &start));
    for (int share = 0; share <= last; share++, start = end) {
        to += cut->shares[share];
        uint64_t border = share == last ? count : (uint64_t)round(to * (double)count);
        SL_TRY(sl_token_documents_start(documents, border < count ? border : count, &end));
        if (!parts[share].items) /* a share of 0 */
            continue;
        if (end == start)
            return fail_empty(cut, of, count, share);
        parts[share].items[index].first_token = start;
        parts[share].items[index].token_count = end - start;
    }
    return SL_OK;
}

static sl_status cut_files(const sl_data_cut *cut, range of, uint32_t index, sl_data_parts *parts)
{
    sl_token_documents *documents = NULL;
    SL_TRY(sl_token_documents_open(cut->tokens, of.first_file, of.file_count, cut->end_of_text,
                                   &documents));
    sl_status status = cut_documents(cut, of, documents, index, parts);
    sl_token_documents_close(documents);
    return status;
}

static void take_files(const sl_data_cut *cut, range of, sl_data_part *part)
{
    for (uint32_t i = 0; i < of.file_count; i++) {
        uint64_t first, count;
        sl_tokens_file_range(cut->tokens, of.first_file + i, &first, &count);
        part->first_token = i == 0 ? first : part->first_token;
        part->token_count += count;
    }
}

/* Of the rows that no part before `index` has, that of this one, in 2^-32. */
static uint64_t find_share(const sl_config_list *items, uint32_t index)
{
    double own, sum = 0;
    for (uint32_t i = items->count; i-- > index;) {
        (void)sl_config_weigh(items->items[i], &own);
        sum += own;
    }
    double share = round(own / sum * 0x1p32);
    return share < 1 ? 1 : share > 0x1p32 - 1 ? UINT32_MAX : (uint64_t)share;
}

static sl_status open_parts(const sl_data_cut *cut, uint32_t count, sl_data_parts *parts)
{
    for (int share = 0; share < SL_CONFIG_SHARES; share++) {
        if (cut->shares[share] == 0)
            continue;
        parts[share].items = calloc(count, sizeof *parts[share].items);
        if (!parts[share].items)
            return no_memory();
        parts[share].count = count;
        for (uint32_t i = 0; i < count && is_weighted(cut->files->given); i++)
            parts[share].items[i].share = find_share(cut->files->given, i);
    }
    return SL_OK;
}

/* The files of an item that begin at `first_file`; without weights all. */
static range find_range(const sl_data_files *files, uint32_t first_file)
{
    uint32_t end = first_file;
    while (end < files->paths.count &&
           (files->items[end] == files->items[first_file] || !is_weighted(files->given)))
        end++;
    return (range){first_file, end - first_file};
}

static sl_status cut_all(const sl_data_cut *cut, sl_data_parts *parts)
{
    bool is_all = find_last(cut) == 0;
    range of = {0};
    SL_TRY(open_parts(cut, is_weighted(cut->files->given) ? cut->files->given->count : 1, parts));
    for (uint32_t i = 0; i < parts[0].count; i++) {
        of = find_range(cut->files, of.first_file + of.file_count);
        if (is_all)
            take_files(cut, of, &parts[0].items[i]);
        else
            SL_TRY(cut_files(cut, of, i, parts));
    }
    return SL_OK;
}

sl_status sl_data_files_cut(const sl_data_cut *cut, sl_data_parts out_parts[SL_CONFIG_SHARES])
{
    sl_data_parts parts[SL_CONFIG_SHARES] = {{0}};
    sl_status status = cut_all(cut, parts);
    for (int share = 0; share < SL_CONFIG_SHARES; share++) {
        if (status != SL_OK)
            free(parts[share].items);
        else
            out_parts[share] = parts[share];
    }
    return status;
}
