/* Temporary names, and what may be replaced; see output.h. */
#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "session/weights/megatron_tensors.h"

/* ---- what a directory that is replaced may hold ---- */

static bool is_of_model(const char *name)
{
    static const char *const names[] = {"config.json",
                                        "generation_config.json",
                                        "tokenizer_config.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "tokenizer.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "model.safetensors.index.json",
                                        SL_MEGATRON_TRACKER};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return strncmp(name, "model", 5) == 0 && sl_files_name_ends(name, ".safetensors");
}

static bool is_directory(const FTSENT *entry)
{
    return entry->fts_info == FTS_D || entry->fts_info == FTS_DP;
}

/* Files of a model at the top, and of Megatron's a release: release/mp_rank_00/model_optim_rng.pt.
 */
static bool is_of_output(const FTSENT *entry)
{
    const char *name = entry->fts_name;
    switch (entry->fts_level) {
    case 1:
        return is_directory(entry) ? strcmp(name, "release") == 0 : is_of_model(name);
    case 2:
        return is_directory(entry) && strncmp(name, "mp_rank_", 8) == 0;
    case 3:
        return !is_directory(entry) && strcmp(name, "model_optim_rng.pt") == 0;
    default:
        return false;
    }
}

static sl_status fail_listing(const char *path, int error)
{
    const sl_status status = error == ENOMEM ? SL_ERROR_SYSTEM : SL_ERROR_IO;
    SL_FAIL(status, "%s: cannot be listed: %s", sl_files_show(path).text, strerror(error));
}

/* Calls `take` for all that is below a directory, what is in a directory before and after it, until
 * it fails. Links are not followed. */
static sl_status walk(const char *path, sl_status (*take)(const char *path, const FTSENT *entry))
{
    char *root = strdup(path);
    FTS *stream = root ? fts_open((char *[]){root, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, NULL) : NULL;
    sl_status status = SL_OK;
    free(root);
    if (!stream)
        return fail_listing(path, errno);
    for (FTSENT *entry; status == SL_OK && (errno = 0, entry = fts_read(stream)) != NULL;)
        if (entry->fts_info == FTS_DNR || entry->fts_info == FTS_ERR)
            status = fail_listing(entry->fts_path, entry->fts_errno);
        else if (entry->fts_level > FTS_ROOTLEVEL)
            status = take(path, entry);
    int error = status == SL_OK ? errno : 0;
    fts_close(stream);
    if (error != 0)
        return fail_listing(path, error);
    return status;
}

static sl_status refuse_foreign(const char *path, const FTSENT *entry)
{
    if (is_of_output(entry))
        return SL_OK;
    SL_FAIL(
        SL_ERROR_USAGE,
        "--to %s: holds %s, which is no file of a model, so the directory is not replaced: name "
        "another one",
        sl_files_show(path).text, sl_files_show(entry->fts_name).text);
}

/* What somebody put there meanwhile stays, and the directory with it. */
static sl_status remove_entry(const char *path, const FTSENT *entry)
{
    (void)path;
    if (entry->fts_info == FTS_DP && is_of_output(entry))
        rmdir(entry->fts_path);
    else if (!is_directory(entry) && is_of_output(entry))
        unlink(entry->fts_path);
    return SL_OK;
}

static void remove_directory(const char *path)
{
    walk(path, remove_entry);
    if (rmdir(path) != 0 && errno != ENOENT)
        sl_log_write(SL_LOG_WARNING, "%s: could not be removed: %s", sl_files_show(path).text,
                     strerror(errno));
}

/* ---- the place ---- */

static sl_status check_there(const sl_output *output, const struct stat *info)
{
    const sl_shown shown = sl_files_show(output->path);
    bool is_right = output->is_directory ? S_ISDIR(info->st_mode) : S_ISREG(info->st_mode);
    if (!is_right)
        SL_FAIL(SL_ERROR_USAGE, "--to %s: is there and is no %s: name another place", shown.text,
                output->is_directory ? "directory" : "regular file");
    if (!output->overwrites)
        SL_FAIL(SL_ERROR_USAGE,
                "--to %s: is there: name another place, or replace it with "
                "--overwrite",
                shown.text);
    return output->is_directory ? walk(output->path, refuse_foreign) : SL_OK;
}

/* Its name could not be given to what is made, as would be seen when all of that is done. */
static sl_status refuse_link(const sl_output *output)
{
    SL_FAIL(SL_ERROR_USAGE,
            "--to %s: is a link to a place where nothing is: name that place, or remove the link",
            sl_files_show(output->path).text);
}

static sl_status check_parent(const char *path)
{
    struct stat info;
    char *parent = strdup(path);
    if (!parent)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    char *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = '\0';
    bool is_there = !slash || stat(parent, &info) == 0;
    free(parent);
    if (!is_there)
        SL_FAIL(SL_ERROR_MISSING, "--to %s: its directory is not there: make it first",
                sl_files_show(path).text);
    return SL_OK;
}

/* Links are followed, so that what they name is replaced; slashes at the end go. */
static char *resolve(const char *path)
{
    char *resolved = realpath(path, NULL);
    if (!resolved)
        resolved = strdup(path);
    for (size_t length = resolved ? strlen(resolved) : 0; length > 1; length--) {
        if (resolved[length - 1] != '/')
            break;
        resolved[length - 1] = '\0';
    }
    return resolved;
}

static sl_status name_output(const char *path, sl_output *output)
{
    char *temporary = NULL;
    output->path = resolve(path);
    if (!output->path || asprintf(&temporary, "%s.tmp-%ld", output->path, (long)getpid()) < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    output->temporary = temporary;
    return SL_OK;
}

sl_status sl_output_open(const char *path, bool is_directory, bool overwrites,
                         sl_output *out_output)
{
    struct stat info;
    sl_output output = {.is_directory = is_directory, .overwrites = overwrites, .directory = -1};
    sl_status status = name_output(path, &output);
    if (status == SL_OK && stat(output.path, &info) == 0)
        status = check_there(&output, &info);
    else if (status == SL_OK && lstat(output.path, &info) == 0)
        status = refuse_link(&output);
    if (status == SL_OK)
        status = check_parent(output.path);
    if (status != SL_OK) {
        sl_output_close(&output);
        return status;
    }
    *out_output = output;
    return SL_OK;
}

void sl_output_close(sl_output *output)
{
    bool is_left = output->is_made && output->temporary;
    if (is_left && output->is_directory)
        remove_directory(output->temporary);
    else if (is_left)
        unlink(output->temporary);
    if (output->path && output->directory >= 0)
        close(output->directory);
    free(output->path);
    free(output->temporary);
    *output = (sl_output){.directory = -1};
}

/* ---- filling ---- */

static sl_status make_directory(sl_output *output)
{
    bool is_made = mkdir(output->temporary, 0777) == 0;
    if (!is_made && errno == EEXIST) { /* of a process that died and had this number */
        remove_directory(output->temporary);
        is_made = mkdir(output->temporary, 0777) == 0;
    }
    if (!is_made)
        SL_FAIL(SL_ERROR_IO, "%s: cannot be made: %s", sl_files_show(output->temporary).text,
                strerror(errno));
    output->is_made = true;
    return sl_files_open_directory(AT_FDCWD, NULL, output->temporary, SL_LINKS_REFUSE,
                                   &output->directory);
}

/* Makes the directories in which a name of several parts ends. */
static sl_status make_parents(const sl_output *output, const char *name)
{
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        char *part = strndup(name, (size_t)(slash - name));
        if (!part)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
        bool is_there = mkdirat(output->directory, part, 0777) == 0 || errno == EEXIST;
        int error = errno;
        free(part);
        if (!is_there)
            SL_FAIL(SL_ERROR_IO, "%s/%s: its directory cannot be made: %s",
                    sl_files_show(output->temporary).text, name, strerror(error));
    }
    return SL_OK;
}

sl_status sl_output_create(sl_output *output, const char *name, sl_file *out_file)
{
    if (output->is_directory) {
        if (!output->is_made)
            SL_TRY(make_directory(output));
        SL_TRY(make_parents(output, name));
        return sl_files_create_shared(output->directory, output->temporary, name, out_file);
    }
    unlink(output->temporary); /* of a process that died and had this number */
    SL_TRY(sl_files_create_shared(AT_FDCWD, NULL, output->temporary, out_file));
    output->is_made = true;
    return SL_OK;
}

sl_status sl_output_write_text(sl_output *output, const char *name, const char *text,
                               uint64_t bytes)
{
    sl_file file;
    SL_TRY(sl_output_create(output, name, &file));
    sl_status status = sl_files_append(&file, bytes, text);
    if (status == SL_OK)
        status = sl_files_sync(&file);
    sl_files_close(&file);
    return status;
}

/* ---- the name ---- */

/* Where names cannot be exchanged: a moment without either. */
static int replace_in_two(const sl_output *output, const char *old)
{
    int error = sl_files_rename(AT_FDCWD, output->path, old, SL_RENAME_REPLACE);
    if (error != 0)
        return error;
    error = sl_files_rename(AT_FDCWD, output->temporary, output->path, SL_RENAME_REPLACE);
    if (error != 0)
        sl_files_rename(AT_FDCWD, old, output->path, SL_RENAME_REPLACE);
    return error;
}

/* The old directory ends under the temporary name. */
static int exchange(const sl_output *output)
{
    char *old = NULL;
    int error = sl_files_rename(AT_FDCWD, output->temporary, output->path, SL_RENAME_EXCHANGE);
    if (error != EINVAL && error != ENOSYS)
        return error;
    if (asprintf(&old, "%s.old-%ld", output->path, (long)getpid()) < 0)
        return ENOMEM;
    error = replace_in_two(output, old);
    if (error == 0)
        error = sl_files_rename(AT_FDCWD, old, output->temporary, SL_RENAME_REPLACE);
    free(old);
    return error;
}

static int rename_output(const sl_output *output, bool *out_is_exchanged)
{
    sl_rename kind =
        output->overwrites && !output->is_directory ? SL_RENAME_REPLACE : SL_RENAME_NEW;
    int error = sl_files_rename(AT_FDCWD, output->temporary, output->path, kind);
    if (kind == SL_RENAME_NEW && (error == EINVAL || error == ENOSYS)) {
        struct stat info;
        error = stat(output->path, &info) == 0 ? EEXIST : 0;
        if (error == 0)
            error = sl_files_rename(AT_FDCWD, output->temporary, output->path, SL_RENAME_REPLACE);
    }
    *out_is_exchanged = error == EEXIST && output->is_directory && output->overwrites;
    return *out_is_exchanged ? exchange(output) : error;
}

static sl_status sync_entry(const char *path, const FTSENT *entry)
{
    int fd;
    (void)path;
    if (entry->fts_info != FTS_DP)
        return SL_OK;
    SL_TRY(sl_files_open_directory(AT_FDCWD, NULL, entry->fts_path, SL_LINKS_REFUSE, &fd));
    sl_status status = sl_files_sync_directory(fd, entry->fts_path);
    close(fd);
    return status;
}

/* Those within it first. */
static sl_status sync_directories(const sl_output *output)
{
    SL_TRY(walk(output->temporary, sync_entry));
    return sl_files_sync_directory(output->directory, output->temporary);
}

sl_status sl_output_publish(sl_output *output)
{
    bool is_exchanged;
    if (output->is_directory)
        SL_TRY(sync_directories(output));
    int error = rename_output(output, &is_exchanged);
    if (error != 0)
        SL_FAIL(SL_ERROR_IO, "%s: cannot be named %s: %s", sl_files_show(output->temporary).text,
                sl_files_show(output->path).text, strerror(error));
    output->is_made = false;
    SL_TRY(sl_files_sync_parent(output->path));
    output->is_made = is_exchanged; /* what was replaced is removed when this is closed */
    return SL_OK;
}
