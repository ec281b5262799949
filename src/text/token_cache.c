/* Name, look, make, rename; see token_cache.h. */
#define _GNU_SOURCE
#include "token_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "files/files.h"

enum { BLOCK_BYTES = 1 << 20, SUMS_BYTES = 256, MAKE_TRIES = 16 };

#define BIN_NAME "tokens.bin"
#define IDX_NAME "tokens.idx"
#define SUMS_NAME "sums"
#define ENTRY_START "tokens-"
#define TEMPORARY ".tmp-"

/* Changes when the ids or the layout of an entry do. */
static const char cache_version[] = "sluice token cache 1";
static const char example_version[] = "examples 3"; /* likewise, of examples */

/* ---- hashes ---- */

/* What is told of reading one or several files. */
typedef struct reading {
    const sl_token_cache_args *args;
    uint64_t bytes, total_bytes;
} reading;

static void tell(reading *self, uint64_t more)
{
    self->bytes += more;
    if (self->args->comparing)
        self->args->comparing(self->args->user, self->bytes, self->total_bytes);
}

static sl_status hash_file(const sl_file *file, reading *of, sl_hash_stream *stream)
{
    char *block = malloc(BLOCK_BYTES);
    sl_status status = SL_OK;
    if (!block)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to read %s", sl_files_show(file->path).text);
    for (uint64_t at = 0; at < file->bytes; at += BLOCK_BYTES) {
        uint64_t left = file->bytes - at, bytes = left < BLOCK_BYTES ? left : BLOCK_BYTES;
        status = sl_files_read_at(file, at, bytes, block);
        if (status != SL_OK)
            break;
        sl_hash_update(stream, block, bytes);
        tell(of, bytes);
    }
    free(block);
    return status;
}

/* A name says that a file is JSON lines; nothing else of it changes what is read. */
static sl_status hash_path(const char *path, reading *of, sl_hash_stream *stream)
{
    sl_file file;
    SL_TRY(sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file));
    bool is_named = sl_files_name_ends(path, ".jsonl") || sl_files_name_ends(path, ".jsonl.gz") ||
                    sl_files_name_ends(path, ".jsonl.zst");
    uint64_t facts[2] = {file.bytes, is_named};
    sl_hash_update(stream, facts, sizeof facts);
    sl_status status = hash_file(&file, of, stream);
    sl_files_close(&file);
    return status;
}

static uint64_t add_sizes(int directory, const char *const *names, uint32_t count)
{
    struct stat info;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        if (fstatat(directory, names[i], &info, 0) == 0)
            bytes += (uint64_t)info.st_size;
    return bytes;
}

static void hash_text(const char *text, sl_hash_stream *stream)
{
    const char *known = text ? text : "";
    sl_hash_update(stream, known, strlen(known) + 1);
}

/* Without a form nothing is added: entries of text keep their names. */
static void hash_form(const sl_example_form *form, sl_hash_stream *stream)
{
    if (!form)
        return;
    hash_text(example_version, stream);
    hash_text(form->prompt_key, stream);
    hash_text(form->response_key, stream);
    hash_text(form->messages_key, stream);
    hash_text(form->template_text, stream);
    hash_text(form->counts_all ? "all" : "response", stream);
}

static sl_status hash_all(const sl_token_cache_args *args, sl_hash_stream *stream)
{
    char name[SL_VOCABULARY_NAME_BYTES] = "";
    const sl_documents_args *documents = &args->tokenize->documents;
    int64_t facts[3] = {args->tokenize->end_of_text, documents->is_per_line,
                        args->tokenize->cleans};
    SL_TRY(sl_vocabulary_name(args->vocabulary, name));
    sl_hash_update(stream, cache_version, sizeof cache_version);
    sl_hash_update(stream, name, sizeof name);
    sl_hash_update(stream, facts, sizeof facts);
    hash_text(documents->json_key, stream);
    hash_form(documents->form, stream);
    reading of = {args, 0, add_sizes(AT_FDCWD, documents->paths, documents->path_count)};
    for (uint32_t i = 0; i < documents->path_count; i++)
        SL_TRY(hash_path(documents->paths[i], &of, stream));
    return SL_OK;
}

/* The path of the entry; the caller frees it. */
static sl_status name_entry(const sl_token_cache_args *args, char **out_path)
{
    sl_hash_stream *stream;
    SL_TRY(sl_hash_open(&stream));
    sl_status status = hash_all(args, stream);
    sl_hash_value value = sl_hash_digest(stream);
    sl_hash_close(stream);
    SL_TRY(status);
    if (asprintf(out_path, "%s/" ENTRY_START "%016llx%016llx", args->directory,
                 (unsigned long long)value.high, (unsigned long long)value.low) < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    return SL_OK;
}

/* ---- sums ---- */

/* An open directory: of an entry, or one where an entry is made, whose lock the descriptor holds.
 */
typedef struct place {
    char *path;
    int inside;
} place;

/* Adds a line of one file to *used bytes of text. */
static sl_status print_sum(const place *of, const char *name, reading *how, char *text,
                           size_t *used)
{
    sl_file file;
    sl_hash_stream *stream;
    SL_TRY(sl_files_open(of->inside, of->path, name, SL_LINKS_REFUSE, &file));
    sl_status status = sl_hash_open(&stream);
    if (status == SL_OK) {
        status = hash_file(&file, how, stream);
        sl_hash_value value = sl_hash_digest(stream);
        sl_hash_close(stream);
        *used += (size_t)snprintf(text + *used, SUMS_BYTES - *used, "%016llx%016llx %llu %s\n",
                                  (unsigned long long)value.high, (unsigned long long)value.low,
                                  (unsigned long long)file.bytes, name);
    }
    sl_files_close(&file);
    return status;
}

static sl_status print_sums(const sl_token_cache_args *args, const place *of,
                            char out_text[SUMS_BYTES])
{
    static const char *const names[] = {BIN_NAME, IDX_NAME};
    size_t used = 0;
    reading how = {args, 0, add_sizes(of->inside, names, 2)};
    SL_TRY(print_sum(of, BIN_NAME, &how, out_text, &used));
    return print_sum(of, IDX_NAME, &how, out_text, &used);
}

static sl_status compare_sums(const sl_token_cache_args *args, const place *of)
{
    char now[SUMS_BYTES];
    char *kept = NULL;
    sl_file file;
    SL_TRY(sl_files_open(of->inside, of->path, SUMS_NAME, SL_LINKS_REFUSE, &file));
    sl_status status = sl_files_read_text(&file, SUMS_BYTES, &kept);
    if (status == SL_OK)
        status = print_sums(args, of, now);
    if (status == SL_OK && strcmp(now, kept) != 0)
        status = sl_status_fail(SL_ERROR_DATA, "%s: is not what its sums say",
                                sl_files_show(of->path).text);
    free(kept);
    sl_files_close(&file);
    return status;
}

/* An entry is its user's alone. Not known for what it is, that of another would be in the way of
 * one that took hours to make, or be moved out of it and never be removed. */
static sl_status check_owner(const char *path)
{
    struct stat entry;
    if (lstat(path, &entry) != 0 || !S_ISDIR(entry.st_mode))
        return SL_OK;
    if (access(path, R_OK | X_OK) == 0 || errno != EACCES)
        return SL_OK;
    SL_FAIL(SL_ERROR_IO,
            "%s: the ids of this text are kept there by another user: give a directory of your own "
            "by --cache-dir",
            sl_files_show(path).text);
}

/* Whether there is an entry, and a whole one; of one that is not, why is logged if `tells`. */
static sl_status look(const sl_token_cache_args *args, char *path, bool tells, bool *out_is_whole)
{
    place of = {.path = path};
    *out_is_whole = false;
    sl_status status = sl_files_open_directory(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &of.inside);
    if (status == SL_ERROR_MISSING)
        return SL_OK;
    if (status == SL_OK) {
        status = compare_sums(args, &of);
        close(of.inside);
    }
    if (status == SL_ERROR_SYSTEM)
        return status;
    *out_is_whole = status == SL_OK;
    if (status != SL_OK && tells)
        sl_log_write(SL_LOG_WARNING, "tokens that were kept are damaged, and made anew: %s",
                     sl_status_message());
    return SL_OK;
}

/* ---- directories of runs ---- */

/* Removes what this file may have written into a directory, and the directory if nothing else is
 * there. */
static void remove_entry(const char *path)
{
    DIR *stream = opendir(path);
    for (const struct dirent *entry; stream && (entry = readdir(stream)) != NULL;)
        if (strncmp(entry->d_name, "tokens.", 7) == 0 || strcmp(entry->d_name, SUMS_NAME) == 0)
            unlinkat(dirfd(stream), entry->d_name, 0);
    if (stream)
        closedir(stream);
    if (rmdir(path) != 0 && errno != ENOENT)
        sl_log_write(SL_LOG_WARNING, "%s: cannot be removed: %s", sl_files_show(path).text,
                     strerror(errno));
}

/* True if the name is still that of the open directory. */
static bool is_named(const char *path, int inside)
{
    struct stat named, held;
    return lstat(path, &named) == 0 && fstat(inside, &held) == 0 && named.st_dev == held.st_dev &&
           named.st_ino == held.st_ino;
}

/* A lock ends with the process that holds it. */
static void remove_if_dead(const char *path)
{
    int inside = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inside < 0)
        return;
    if (flock(inside, LOCK_EX | LOCK_NB) == 0 && is_named(path, inside))
        remove_entry(path);
    close(inside);
}

static void remove_dead(const char *directory)
{
    DIR *stream = opendir(directory);
    for (const struct dirent *entry; stream && (entry = readdir(stream)) != NULL;) {
        char *path = NULL;
        bool is_ours = strncmp(entry->d_name, ENTRY_START, sizeof ENTRY_START - 1) == 0 &&
                       strstr(entry->d_name, TEMPORARY);
        if (is_ours && asprintf(&path, "%s/%s", directory, entry->d_name) >= 0) {
            remove_if_dead(path);
            free(path);
        }
    }
    if (stream)
        closedir(stream);
}

static sl_status fail_making(const char *path, int error)
{
    SL_FAIL(SL_ERROR_IO, "%s: no directory can be made there: %s", sl_files_show(path).text,
            strerror(error));
}

/* A run that cleans up may take the directory before it is locked: then there is another one. */
static sl_status open_place(const char *entry, place *out_place)
{
    for (int i = 0; i < MAKE_TRIES; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s" TEMPORARY "XXXXXX", entry) < 0)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
        int inside = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        int error = errno;
        if (inside < 0 && error != ENOENT) {
            sl_status status = fail_making(path, error);
            free(path);
            return status;
        }
        bool is_locked = inside >= 0 && (flock(inside, LOCK_EX | LOCK_NB) == 0 || errno == ENOLCK ||
                                         errno == EOPNOTSUPP || errno == ENOSYS);
        if (is_locked && is_named(path, inside)) {
            *out_place = (place){path, inside};
            return SL_OK;
        }
        if (inside >= 0)
            close(inside);
        rmdir(path);
        free(path);
    }
    return fail_making(entry, EBUSY);
}

/* What is whole has another name by now. */
static void close_place(place *self)
{
    close(self->inside);
    free(self->path);
}

/* ---- making ---- */

static sl_status tokenize_into(const sl_token_cache_args *args, const place *where,
                               sl_tokenize_report *report)
{
    char *path = NULL;
    SL_TRY(sl_files_join_path(where->path, BIN_NAME, &path));
    const sl_token_writer_args output = {.path = path,
                                         .format = SL_TOKEN_FORMAT_MEGATRON,
                                         .vocab = sl_vocabulary_count(args->vocabulary)};
    sl_status status = sl_tokenize_run(args->tokenize, args->vocabulary, &output, report);
    free(path);
    return status;
}

static sl_status seal(const sl_token_cache_args *args, const place *where)
{
    char text[SUMS_BYTES];
    SL_TRY(print_sums(args, where, text));
    SL_TRY(sl_files_write_text(where->inside, where->path, SUMS_NAME, text));
    return sl_files_sync_directory(where->inside, where->path);
}

static void remove_damaged(const char *path)
{
    if (unlink(path) != 0) /* it is a directory, as entries are */
        remove_entry(path);
}

/* Exchanges a damaged entry and this run's directory in one step, so the name of the entry always
 * exists and no run waits for another. What was the entry is removed: if another run has replaced
 * the damaged entry meanwhile, that is its whole one, which has the same ids as this run's. On a
 * file system that cannot exchange, the damaged entry is removed first; of two runs that do so at
 * once, one may remove the whole entry of the other. */
static sl_status replace_damaged(const char *entry, const char *path)
{
    int error = sl_files_rename(AT_FDCWD, path, entry, SL_RENAME_EXCHANGE);
    if (error == EINVAL || error == ENOSYS)
        remove_damaged(entry);
    else if (error == 0)
        remove_damaged(path);
    else if (error != ENOENT) /* ENOENT: another run has removed the entry */
        SL_FAIL(SL_ERROR_IO, "%s: cannot be replaced: %s", sl_files_show(entry).text,
                strerror(error));
    return error == 0 ? sl_files_sync_parent(entry) : SL_OK;
}

/* Another run may have been first. */
static sl_status publish(const sl_token_cache_args *args, const place *where, char *entry)
{
    for (int i = 0; i < MAKE_TRIES; i++) {
        bool is_whole;
        if (rename(where->path, entry) == 0)
            return sl_files_sync_parent(entry);
        if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
            SL_FAIL(SL_ERROR_IO, "%s: cannot be named: %s", sl_files_show(entry).text,
                    strerror(errno));
        SL_TRY(look(args, entry, false, &is_whole));
        if (is_whole)
            return SL_OK;
        SL_TRY(replace_damaged(entry, where->path));
        if (!is_named(where->path, where->inside))
            return SL_OK; /* exchanged: this run's directory is the entry */
    }
    return fail_making(entry, EBUSY);
}

static sl_status fill_place(const sl_token_cache_args *args, const place *where, char *entry)
{
    sl_tokenize_report report = {0};
    sl_status status = tokenize_into(args, where, &report);
    if (status != SL_OK && !report.failed_writing)
        return status; /* the text's */
    if (status == SL_OK)
        status = seal(args, where);
    if (status == SL_OK)
        status = publish(args, where, entry);
    if (status != SL_ERROR_IO)
        return status;
    SL_FAIL(SL_ERROR_IO,
            "%s; the ids of the text are kept in %s: give a directory with room by --cache-dir",
            sl_status_message(), sl_files_show(args->directory).text);
}

static sl_status make(const sl_token_cache_args *args, char *entry)
{
    place where;
    SL_TRY(open_place(entry, &where));
    sl_status status = fill_place(args, &where, entry);
    if (is_named(where.path, where.inside))
        remove_entry(where.path);
    close_place(&where);
    return status;
}

static sl_status open_directory(const char *directory)
{
    sl_status status = sl_files_make_directories(directory);
    if (status == SL_OK || status == SL_ERROR_SYSTEM)
        return status;
    SL_FAIL(SL_ERROR_IO,
            "%s; the ids of the text are kept there: give a directory that can be "
            "written by --cache-dir",
            sl_status_message());
}

sl_status sl_token_cache_find(const sl_token_cache_args *args, char **out_path)
{
    char *entry = NULL;
    bool is_whole = false;
    SL_TRY(open_directory(args->directory));
    SL_TRY(name_entry(args, &entry));
    sl_status status = check_owner(entry);
    if (status == SL_OK)
        status = look(args, entry, true, &is_whole);
    if (status == SL_OK && !is_whole) {
        remove_dead(args->directory);
        status = make(args, entry);
    }
    if (status == SL_OK)
        status = sl_files_join_path(entry, BIN_NAME, out_path);
    free(entry);
    return status;
}
