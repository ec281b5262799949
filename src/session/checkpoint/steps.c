/* Names, list and removal of checkpoints; see steps.h. */
#define _GNU_SOURCE
#include "steps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "files/files.h"
#include "manifest.h"

/* ---- names ---- */

/* Not for secrecy: it only keeps two runs from drawing one name. */
static uint64_t draw_suffix(void)
{
    uint64_t suffix;
    struct timespec now;
    if (getrandom(&suffix, sizeof suffix, GRND_NONBLOCK) == (ssize_t)sizeof suffix)
        return suffix;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^ (uint64_t)getpid() << 48;
}

static void format_name(sl_step_entry *entry, uint64_t suffix)
{
    unsigned long long step = entry->step, random = suffix;
    if (entry->kind == SL_STEP_FINAL)
        snprintf(entry->name, sizeof entry->name, "step-%08llu", step);
    else if (entry->kind == SL_STEP_TEMPORARY)
        snprintf(entry->name, sizeof entry->name, "step-%08llu.tmp-%016llx", step, random);
    else
        snprintf(entry->name, sizeof entry->name, ".trash-step-%08llu-%016llx", step, random);
}

sl_step_entry sl_steps_name(sl_step_kind kind, uint64_t step)
{
    sl_step_entry entry = {.kind = kind, .step = step};
    format_name(&entry, kind == SL_STEP_FINAL ? 0 : draw_suffix());
    return entry;
}

/* True if `name` is exactly what format_name makes of some step and suffix. */
static bool parse_name(const char *name, sl_step_entry *out_entry)
{
    sl_step_entry entry = {.kind = SL_STEP_FINAL};
    uint64_t suffix = 0;
    const char *digits = strncmp(name, "step-", 5) == 0 ? name + 5 : name + 12;
    if (strncmp(name, "step-", 5) != 0 && strncmp(name, ".trash-step-", 12) != 0)
        return false;
    if (strlen(name) >= sizeof entry.name)
        return false;
    char *end;
    entry.step = strtoull(digits, &end, 10);
    if (*end == '-') {
        entry.kind = SL_STEP_TRASH;
        suffix = strtoull(end + 1, NULL, 16);
    } else if (strncmp(end, ".tmp-", 5) == 0) {
        entry.kind = SL_STEP_TEMPORARY;
        suffix = strtoull(end + 5, NULL, 16);
    }
    format_name(&entry, suffix);
    *out_entry = entry;
    return strcmp(entry.name, name) == 0; /* signs, blanks, other digits: not ours */
}

/* ---- listing ---- */

static int compare_entries(const void *a, const void *b)
{
    const sl_step_entry *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return strcmp(x->name, y->name);
}

static sl_status add_entry(sl_step_list *list, const sl_step_entry *entry)
{
    if ((list->count & (list->count + 1)) == 0) { /* full at 0, 1, 3, 7, ... */
        size_t room = 2 * (size_t)list->count + 1;
        sl_step_entry *larger = realloc(list->entries, room * sizeof *larger);
        if (!larger)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of checkpoints");
        list->entries = larger;
    }
    list->entries[list->count++] = *entry;
    return SL_OK;
}

/* Opens a stream over a directory that stays open itself. */
static DIR *open_stream(int directory)
{
    int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (!stream && fd >= 0)
        close(fd);
    return stream;
}

static sl_status list_stream(DIR *stream, const char *path, sl_step_list *list)
{
    for (;;) {
        sl_step_entry entry;
        errno = 0;
        struct dirent *found = readdir(stream);
        if (!found && errno != 0)
            SL_FAIL(SL_ERROR_IO, "%s: listing failed: %s", sl_files_show(path).text,
                    strerror(errno));
        if (!found)
            return SL_OK;
        if (parse_name(found->d_name, &entry))
            SL_TRY(add_entry(list, &entry));
    }
}

sl_status sl_steps_list(int directory, const char *directory_path, sl_step_list *out_list)
{
    sl_step_list list = {0};
    DIR *stream = open_stream(directory);
    if (!stream)
        SL_FAIL(errno == ENOMEM || errno == EMFILE || errno == ENFILE ? SL_ERROR_SYSTEM
                                                                      : SL_ERROR_IO,
                "%s: cannot be listed: %s", sl_files_show(directory_path).text, strerror(errno));
    sl_status status = list_stream(stream, directory_path, &list);
    closedir(stream);
    if (status != SL_OK) {
        sl_steps_free(&list);
        return status;
    }
    if (list.count > 0)
        qsort(list.entries, list.count, sizeof list.entries[0], compare_entries);
    *out_list = list;
    return SL_OK;
}

void sl_steps_free(sl_step_list *list)
{
    free(list->entries);
    *list = (sl_step_list){0};
}

/* ---- removing ---- */

static bool is_checkpoint_file(const char *name)
{
    if (strcmp(name, SL_MANIFEST_NAME) == 0)
        return true;
    for (int i = 0; i < SL_MANIFEST_FILE_COUNT; i++)
        if (strcmp(name, sl_manifest_file_name((sl_manifest_file)i)) == 0)
            return true;
    return false;
}

/* True if everything inside is a checkpoint's file. */
static bool holds_only_ours(int inside)
{
    DIR *stream = open_stream(inside);
    bool only = stream != NULL;
    struct dirent *found;
    while (only && (found = readdir(stream)) != NULL)
        only = strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0 ||
               is_checkpoint_file(found->d_name);
    if (stream)
        closedir(stream);
    return only;
}

static void unlink_files(int inside)
{
    unlinkat(inside, SL_MANIFEST_NAME, 0); /* first: a half-removed directory is not valid */
    for (int i = 0; i < SL_MANIFEST_FILE_COUNT; i++)
        unlinkat(inside, sl_manifest_file_name((sl_manifest_file)i), 0);
}

static int open_inside(int directory, const char *name)
{
    return openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

void sl_steps_remove(int directory, const char *directory_path, const char *name)
{
    int inside = open_inside(directory, name);
    bool ours = inside >= 0 && holds_only_ours(inside);
    if (ours)
        unlink_files(inside);
    if (inside >= 0)
        close(inside);
    if (!ours || unlinkat(directory, name, AT_REMOVEDIR) < 0)
        sl_log_write(SL_LOG_WARNING, "%s/%s: stays, it cannot be removed or holds other files",
                     sl_files_show(directory_path).text, name);
}

/* A writer holds a lock on its directory; the system releases it when the writer dies. */
static bool is_abandoned(int directory, const char *name)
{
    int inside = open_inside(directory, name);
    bool free_to_take = inside >= 0 && flock(inside, LOCK_EX | LOCK_NB) == 0;
    if (inside >= 0)
        close(inside);
    return free_to_take;
}

void sl_steps_clean(int directory, const char *directory_path)
{
    sl_step_list list;
    if (sl_steps_list(directory, directory_path, &list) != SL_OK)
        return;
    for (uint32_t i = 0; i < list.count; i++) {
        const sl_step_entry *entry = &list.entries[i];
        if (entry->kind == SL_STEP_TRASH ||
            (entry->kind == SL_STEP_TEMPORARY && is_abandoned(directory, entry->name)))
            sl_steps_remove(directory, directory_path, entry->name);
    }
    sl_steps_free(&list);
}

static void discard(int directory, const char *directory_path, const sl_step_entry *entry)
{
    int inside = open_inside(directory, entry->name);
    bool ours = inside >= 0 && holds_only_ours(inside);
    sl_step_entry trash = sl_steps_name(SL_STEP_TRASH, entry->step);
    if (inside >= 0)
        close(inside);
    if (!ours || sl_files_rename(directory, entry->name, trash.name, SL_RENAME_REPLACE) != 0)
        sl_log_write(SL_LOG_WARNING, "%s/%s: stays, it cannot be removed or holds other files",
                     sl_files_show(directory_path).text, entry->name);
    else
        sl_steps_remove(directory, directory_path, trash.name);
}

void sl_steps_prune(int directory, const char *directory_path, uint64_t step, uint32_t keep)
{
    sl_step_list list;
    uint32_t kept = 0;
    if (keep == 0 || sl_steps_list(directory, directory_path, &list) != SL_OK)
        return;
    for (uint32_t i = 0; i < list.count; i++) {
        const sl_step_entry *entry = &list.entries[i];
        if (entry->kind != SL_STEP_FINAL)
            continue;
        if (entry->step > step)
            sl_log_write(SL_LOG_WARNING, "%s/%s: is newer than step %llu and stays",
                         sl_files_show(directory_path).text, entry->name, (unsigned long long)step);
        else if (kept++ >= keep)
            discard(directory, directory_path, entry);
    }
    sl_steps_free(&list);
}

void sl_steps_remove_others(int directory, const char *directory_path, uint64_t step)
{
    sl_step_list list;
    if (sl_steps_list(directory, directory_path, &list) != SL_OK) {
        sl_log_write(SL_LOG_WARNING, "old checkpoints stay: %s", sl_status_message());
        return;
    }
    for (uint32_t i = 0; i < list.count; i++)
        if (list.entries[i].kind == SL_STEP_FINAL && list.entries[i].step != step)
            discard(directory, directory_path, &list.entries[i]);
    sl_steps_free(&list);
}
