/* From paths to ranges of tokens; see data_files.h. */
#define _GNU_SOURCE
#include "data_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "files/files.h"
#include "files/token_documents.h"
#include "text/token_cache.h"

enum { MB = 1000000 };

static const double note_seconds = 10;

/* ---- opening ---- */

static sl_status no_memory(void)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of files");
}

/* The paths of a list, borrowed; the caller frees the array. */
static sl_status list_paths(const sl_config_list *items, const char ***out_paths)
{
    double weight;
    const char **paths = calloc(items->count, sizeof *paths);
    if (!paths)
        return no_memory();
    for (uint32_t i = 0; i < items->count; i++)
        paths[i] = sl_config_weigh(items->items[i], &weight);
    *out_paths = paths;
    return SL_OK;
}

sl_status sl_data_files_open(const sl_config_list *items, sl_tokens **out_tokens)
{
    const char **paths;
    *out_tokens = NULL;
    if (items->count == 0)
        return SL_OK;
    SL_TRY(list_paths(items, &paths));
    sl_status status = sl_tokens_open(paths, items->count, 0, out_tokens);
    free(paths);
    return status;
}

/* True if rows come from each file by its weight: each is a part of its own then. */
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
           (vocabulary || sl_tokens_file_is_wrapped(tokens, file) || has_other_end ||
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

/* The paths of a run whose text is ids. */
typedef struct encoding {
    const sl_config *config;
    const sl_vocabulary *vocabulary;
    const char *directory; /* of the cache */
    const char **given;    /* [given_count] */
    bool *is_text;         /* [given_count]: ids are to be made */
    uint32_t given_count;
    bool is_weighted;
    char **paths; /* [path_count] */
    uint32_t path_count;
    double started, noted; /* in seconds */
} encoding;

static double read_seconds(void)
{
    return 1e-9 * (double)sl_clock_now_ns();
}

static sl_status note_progress(void *user, uint64_t bytes, uint64_t file_bytes)
{
    encoding *self = user;
    double now = read_seconds(), seconds = now - self->started;
    if (self->config->quiet || now - self->noted < note_seconds || bytes == 0)
        return SL_OK;
    self->noted = now;
    sl_log_write(SL_LOG_NOTE, "tokenizing: %.0f of %.0f MB, %.1f MB/s, %.0f s left",
                 (double)bytes / MB, (double)file_bytes / MB, (double)bytes / MB / seconds,
                 seconds * (double)(file_bytes - bytes) / (double)bytes);
    return SL_OK;
}

static sl_status add_text(encoding *self, uint32_t first, uint32_t count)
{
    const sl_config *config = self->config;
    self->started = self->noted = read_seconds();
    const sl_tokenize_args tokenize = {
        .documents = {.paths = self->given + first,
                      .path_count = count,
                      .is_per_line = config->document_per == SL_CONFIG_PER_LINE,
                      .json_key = config->json_key},
        .worker_count = (uint32_t)config->threads,
        .end_of_text = config->end_of_text == SL_CONFIG_UNSET ? -1 : (int32_t)config->end_of_text,
        .progress = note_progress,
        .user = self};
    const sl_token_cache_args cache = {&tokenize, self->vocabulary, self->directory};
    SL_TRY(sl_token_cache_find(&cache, &self->paths[self->path_count]));
    self->path_count++;
    return SL_OK;
}

static sl_status add_given(encoding *self, uint32_t index)
{
    self->paths[self->path_count] = strdup(self->given[index]);
    return self->paths[self->path_count++] ? SL_OK : no_memory();
}

static sl_status add_all(encoding *self)
{
    for (uint32_t i = 0, count; i < self->given_count; i += count) {
        for (count = 1; self->is_text[i] && !self->is_weighted && i + count < self->given_count &&
                        self->is_text[i + count];)
            count++;
        SL_TRY(self->is_text[i] ? add_text(self, i, count) : add_given(self, i));
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

static sl_status encode_with(encoding *self, const sl_config_list *items, const sl_tokens *tokens)
{
    self->given_count = items->count;
    self->is_weighted = is_weighted(items);
    self->is_text = calloc(items->count, sizeof *self->is_text);
    self->paths = calloc(items->count, sizeof *self->paths);
    if (!self->is_text || !self->paths)
        return no_memory();
    for (uint32_t i = 0; i < items->count; i++)
        self->is_text[i] = needs_ids(self->config, self->vocabulary, tokens, i);
    return list_paths(items, &self->given);
}

static void close_encoding(encoding *self, char *directory)
{
    for (uint32_t i = 0; self->paths && i < self->given_count; i++)
        free(self->paths[i]);
    free(self->paths);
    free(self->is_text);
    free(self->given);
    free(directory);
}

static sl_status encode(const sl_config *config, const sl_config_list *items,
                        const sl_vocabulary *vocabulary, sl_tokens **tokens)
{
    char *directory = NULL;
    encoding self = {.config = config, .vocabulary = vocabulary};
    const sl_tokens *raw = *tokens;
    sl_status status = find_directory(config, &directory);
    self.directory = directory;
    if (status == SL_OK)
        status = encode_with(&self, items, raw);
    sl_tokens_close(*tokens); /* their descriptors may be most that there are */
    *tokens = NULL;
    if (status == SL_OK)
        status = add_all(&self);
    if (status == SL_OK)
        status = sl_tokens_open((const char *const *)self.paths, self.path_count, 0, tokens);
    close_encoding(&self, directory);
    return status;
}

sl_status sl_data_files_encode(const sl_config *config, const sl_config_list *items,
                               const sl_vocabulary *vocabulary, sl_tokens **tokens)
{
    sl_vocabulary *bytes = NULL;
    if (!sl_data_files_need_ids(config, vocabulary, *tokens))
        return SL_OK;
    if (!vocabulary)
        SL_TRY(sl_vocabulary_of_bytes(&bytes));
    sl_status status = encode(config, items, vocabulary ? vocabulary : bytes, tokens);
    sl_vocabulary_close(bytes);
    return status;
}

/* ---- parts ---- */

/* The documents of some files, as far as they are in the share. */
static sl_status cut_files(const sl_data_cut *cut, uint32_t first_file, uint32_t file_count,
                           sl_data_part *part)
{
    uint64_t end = 0;
    sl_token_documents *documents = NULL;
    SL_TRY(
        sl_token_documents_open(cut->tokens, first_file, file_count, cut->end_of_text, &documents));
    uint64_t count = sl_token_documents_count(documents);
    uint64_t first = (uint64_t)round(cut->from * (double)count);
    uint64_t last = (uint64_t)round(cut->to * (double)count);
    last = last < count ? last : count;
    sl_status status = sl_token_documents_start(documents, first, &part->first_token);
    if (status == SL_OK)
        status = sl_token_documents_start(documents, last, &end);
    sl_token_documents_close(documents);
    SL_TRY(status);
    part->token_count = end - part->first_token;
    if (part->token_count > 0)
        return SL_OK;
    const char *item = cut->items->items[first_file];
    SL_FAIL(SL_ERROR_DATA,
            "%s%s: of %llu documents none is in the %s share of --split: give more documents, or a "
            "larger share (lines are documents with --document-per line)",
            sl_files_show(item).text, file_count > 1 ? " and the files behind it" : "",
            (unsigned long long)count, cut->what);
}

static sl_status cut_part(const sl_data_cut *cut, uint32_t first_file, uint32_t file_count,
                          sl_data_part *part)
{
    if (cut->from > 0 || cut->to < 1)
        return cut_files(cut, first_file, file_count, part);
    part->token_count = 0;
    for (uint32_t i = 0; i < file_count; i++) {
        uint64_t first, count;
        sl_tokens_file_range(cut->tokens, first_file + i, &first, &count);
        part->first_token = i == 0 ? first : part->first_token;
        part->token_count += count;
    }
    return SL_OK;
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

sl_status sl_data_files_cut(const sl_data_cut *cut, sl_data_parts *out_parts)
{
    bool is_blend = is_weighted(cut->items);
    uint32_t file_count = sl_tokens_file_count(cut->tokens);
    sl_data_parts parts = {.count = is_blend ? file_count : 1};
    parts.items = calloc(parts.count, sizeof *parts.items);
    if (!parts.items)
        return no_memory();
    sl_status status = SL_OK;
    for (uint32_t i = 0; i < parts.count && status == SL_OK; i++) {
        status = cut_part(cut, i, is_blend ? 1 : file_count, &parts.items[i]);
        if (is_blend)
            parts.items[i].share = find_share(cut->items, i);
    }
    if (status != SL_OK) {
        free(parts.items);
        return status;
    }
    *out_parts = parts;
    return SL_OK;
}
