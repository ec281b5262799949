/* Temporary names, and what may be replaced; see output.h. */
#define _GNU_SOURCE
#include "output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/interruptions.h"
#include "base/log.h"
#include "foreign/adapter.h"
#include "foreign/megatron_tensors.h"

/* ---- what a directory that is replaced may hold ---- */

static bool is_of_model(const char *name)
{
    static const char *const names[] = {"config.json",         SL_ADAPTER_CONFIG,
                                        SL_ADAPTER_WEIGHTS,    "generation_config.json",
                                        "chat_template.jinja", "tokenizer_config.json",
                                        "vocab.json",          "merges.txt",
                                        "tokenizer.json",      "special_tokens_map.json",
                                        "added_tokens.json",   "model.safetensors.index.json",
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

/* ---- marks ---- */

static bool take_lock(int mark)
{
    uint32_t interruptions = 0;
    int result;
    do
        result = flock(mark, LOCK_EX | LOCK_NB);
    while (result != 0 && sl_interruptions_allow(&interruptions));
    return result == 0;
}

/* Puts the mark into a directory. It is locked before it has its name, so that nobody finds it
 * without the lock of who lives. -1: it cannot be made, or is there. */
static int put_mark(int directory)
{
    static const char fresh[] = SL_OUTPUT_MARK ".new";
    int mark = openat(directory, fresh, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (mark < 0)
        return -1;
    take_lock(mark); /* without locks nobody else gets one, and nothing is removed */
    const int error = sl_files_rename(directory, fresh, SL_OUTPUT_MARK, SL_RENAME_REPLACE);
    if (error == 0)
        return mark;
    unlinkat(directory, fresh, 0);
    close(mark);
    errno = error;
    return -1;
}

/* The mark of a directory whose writer is dead, locked; -1: there is none. */
static int take_mark(int directory)
{
    struct stat held, named;
    int mark = openat(directory, SL_OUTPUT_MARK, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (mark < 0)
        return -1;
    if (take_lock(mark) && fstat(mark, &held) == 0 && S_ISREG(held.st_mode) &&
        held.st_uid == geteuid() && /* and nobody removed it or published meanwhile: */
        fstatat(directory, SL_OUTPUT_MARK, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        held.st_dev == named.st_dev && held.st_ino == named.st_ino)
        return mark;
    close(mark);
    return -1;
}

/* ---- removing ---- */

/* The mark is the last to go: who is killed in between leaves it to be found. */
static void remove_marked(int directory, const char *path)
{
    walk(path, remove_entry);
    unlinkat(directory, SL_OUTPUT_MARK, 0);
    if (rmdir(path) != 0 && errno != ENOENT)
        sl_log_write(SL_LOG_WARNING, "%s: could not be removed: %s", sl_files_show(path).text,
                     strerror(errno));
}

static sl_status refuse_other(const char *path, const FTSENT *entry)
{
    if (entry->fts_level == 1 && strcmp(entry->fts_name, SL_OUTPUT_MARK) == 0)
        return SL_OK;
    return refuse_foreign(path, entry);
}

/* Removes one directory that a killed process left, if that is what it is. */
static void sweep_one(int parent, const char *name, const char *path)
{
    int directory = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory < 0)
        return;
    int mark = take_mark(directory);
    if (mark >= 0) {
        if (walk(path, refuse_other) == SL_OK)
            remove_marked(directory, path);
        close(mark);
    }
    close(directory);
}

/* NAME.tmp- and a number. */
static bool is_temporary_of(const char *name, const char *base)
{
    static const char middle[] = ".tmp-";
    const size_t bytes = strlen(base);
    if (strncmp(name, base, bytes) != 0 || strncmp(name + bytes, middle, sizeof middle - 1) != 0)
        return false;
    const char *number = name + bytes + sizeof middle - 1;
    return number[0] != '\0' && number[strspn(number, "0123456789")] == '\0';
}

/* What killed processes left for the same place. Nothing depends on it: what fails is left. */
static void sweep(const char *path)
{
    const char *slash = strrchr(path, '/');
    const int parent_bytes = slash ? (int)(slash - path) + 1 : 0;
    char *parent = parent_bytes > 0 ? strndup(path, (size_t)parent_bytes) : strdup(".");
    DIR *stream = parent ? opendir(parent) : NULL;
    free(parent);
    for (struct dirent *entry; stream && (entry = readdir(stream)) != NULL;) {
        char *left = NULL;
        if (is_temporary_of(entry->d_name, path + parent_bytes) &&
            asprintf(&left, "%.*s%s", parent_bytes, path, entry->d_name) >= 0) {
            sweep_one(dirfd(stream), entry->d_name, left);
            free(left);
        }
    }
    if (stream)
        closedir(stream);
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
    sl_output output = {
        .is_directory = is_directory, .overwrites = overwrites, .directory = -1, .mark = -1};
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
    if (is_directory)
        sweep(output.path);
    *out_output = output;
    return SL_OK;
}

/* Of what was replaced, which has the temporary's name now, or of a temporary. */
static void remove_temporary(sl_output *output)
{
    int directory = open(output->temporary, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int mark = directory >= 0 ? put_mark(directory) : -1;
    remove_marked(directory, output->temporary);
    if (mark >= 0)
        close(mark);
    if (directory >= 0)
        close(directory);
}

void sl_output_close(sl_output *output)
{
    if (output->is_made && output->is_directory)
        remove_temporary(output);
    sl_files_discard(&output->file);
    if (output->path && output->mark >= 0)
        close(output->mark);
    if (output->path && output->directory >= 0)
        close(output->directory);
    free(output->path);
    free(output->temporary);
    *output = (sl_output){.directory = -1, .mark = -1};
}

/* ---- filling ---- */

static sl_status make_directory(sl_output *output)
{
    if (mkdir(output->temporary, 0777) != 0)
        SL_FAIL(SL_ERROR_IO, "%s: cannot be made: %s%s", sl_files_show(output->temporary).text,
                strerror(errno), errno == EEXIST ? "; move it away" : "");
    output->is_made = true;
    SL_TRY(sl_files_open_directory(AT_FDCWD, NULL, output->temporary, SL_LINKS_REFUSE,
                                   &output->directory));
    output->mark = put_mark(output->directory);
    if (output->mark < 0)
        SL_FAIL(SL_ERROR_IO, "%s/" SL_OUTPUT_MARK ": cannot be made: %s",
                sl_files_show(output->temporary).text, strerror(errno));
    return SL_OK;
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

/* A descriptor of the same file for its writer, who closes it. */
static sl_status duplicate(const sl_file *file, sl_file *out_file)
{
    sl_file other = {.fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0), .path = strdup(file->path)};
    if (other.fd < 0 || !other.path) {
        if (other.fd >= 0)
            close(other.fd);
        free(other.path);
        SL_FAIL(SL_ERROR_SYSTEM, "%s: no memory or descriptor left",
                sl_files_show(file->path).text);
    }
    *out_file = other;
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
    SL_TRY(sl_files_create_unseen_shared(output->path, &output->file));
    output->is_made = true;
    return duplicate(&output->file, out_file);
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

/* Without its mark it is whole: who is killed between here and the name leaves the model. */
static sl_status finish_directory(const sl_output *output)
{
    SL_TRY(walk(output->temporary, sync_entry)); /* those within it first */
    if (unlinkat(output->directory, SL_OUTPUT_MARK, 0) != 0)
        SL_FAIL(SL_ERROR_IO, "%s/" SL_OUTPUT_MARK ": cannot be removed: %s",
                sl_files_show(output->temporary).text, strerror(errno));
    return sl_files_sync_directory(output->directory, output->temporary);
}

sl_status sl_output_publish(sl_output *output)
{
    bool is_exchanged;
    SL_TRY(output->is_directory ? finish_directory(output) : sl_files_link_unseen(&output->file));
    int error = rename_output(output, &is_exchanged);
    if (error != 0)
        SL_FAIL(SL_ERROR_IO, "%s: cannot be named %s: %s", sl_files_show(output->temporary).text,
                sl_files_show(output->path).text, strerror(error));
    output->is_made = false;
    output->file.is_unseen = true; /* its temporary name is gone */
    SL_TRY(sl_files_sync_parent(output->path));
    output->is_made = is_exchanged; /* what was replaced is removed when this is closed */
    return SL_OK;
}
