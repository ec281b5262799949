/* Names, list, making and removal of checkpoints; see steps.h. */
#define _GNU_SOURCE
#include "steps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/heartbeat.h"
#include "base/interruptions.h"
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
    else if (entry->kind == SL_STEP_REPLACED)
        snprintf(entry->name, sizeof entry->name, "step-%08llu.old-%016llx", step, random);
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
    } else if (strncmp(end, ".tmp-", 5) == 0 || strncmp(end, ".old-", 5) == 0) {
        entry.kind = end[1] == 't' ? SL_STEP_TEMPORARY : SL_STEP_REPLACED;
        suffix = strtoull(end + 5, NULL, 16);
    }
    format_name(&entry, suffix);
    *out_entry = entry;
    return strcmp(entry.name, name) == 0; /* signs, blanks, other digits: not ours */
}

bool sl_steps_is_complete(const sl_step_entry *entry)
{
    return entry->kind == SL_STEP_FINAL || entry->kind == SL_STEP_REPLACED;
}

/* ---- listing ---- */

static int compare_entries(const void *a, const void *b)
{
    const sl_step_entry *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
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

/* ---- locking one checkpoint ---- */

static int open_inside(int directory, const char *name)
{
    return openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* LOCK_NONE: the file system has no locks. The system releases a lock when its holder dies. */
typedef enum lock_result { LOCK_TAKEN, LOCK_OF_ANOTHER, LOCK_NONE } lock_result;

static lock_result take_lock(int inside)
{
    uint32_t interruptions = 0;
    int result;
    do
        result = flock(inside, LOCK_EX | LOCK_NB);
    while (result < 0 && sl_interruptions_allow(&interruptions));
    if (result == 0)
        return LOCK_TAKEN;
    return errno == EWOULDBLOCK ? LOCK_OF_ANOTHER : LOCK_NONE;
}

bool sl_steps_is_named(int directory, const char *name, int inside)
{
    struct stat named, held;
    return fstatat(directory, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstat(inside, &held) == 0 && named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

/* ---- making ---- */

enum { MAKE_TRIES = 16 };

/* Another run that cleans may see the directory before it is locked, and then holds it or has
 * removed it: *out_inside is -1 then, and another name is to be drawn. */
static sl_status make_locked(int directory, const char *directory_path, const char *name,
                             int *out_inside)
{
    int inside = -1;
    if (mkdirat(directory, name, 0700) < 0)
        SL_FAIL(SL_ERROR_IO, "%s/%s: the directory cannot be made: %s",
                sl_files_show(directory_path).text, name, strerror(errno));
    sl_status status =
        sl_files_open_directory(directory, directory_path, name, SL_LINKS_REFUSE, &inside);
    if (status == SL_ERROR_MISSING && faccessat(directory, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return SL_OK;
    if (status != SL_OK) {
        unlinkat(directory, name, AT_REMOVEDIR);
        return status == SL_ERROR_SYSTEM ? status : SL_ERROR_IO;
    }
    if (take_lock(inside) == LOCK_OF_ANOTHER || !sl_steps_is_named(directory, name, inside)) {
        close(inside);
        inside = -1;
    }
    *out_inside = inside;
    return SL_OK;
}

sl_status sl_steps_make(int directory, const char *directory_path, uint64_t step,
                        sl_step_entry *out_entry, int *out_inside)
{
    for (int i = 0; i < MAKE_TRIES; i++) {
        int inside = -1;
        sl_step_entry entry = sl_steps_name(SL_STEP_TEMPORARY, step);
        SL_TRY(make_locked(directory, directory_path, entry.name, &inside));
        if (inside < 0)
            continue;
        *out_entry = entry;
        *out_inside = inside;
        return SL_OK;
    }
    SL_FAIL(SL_ERROR_IO,
            "%s: %d new directories were taken away at once; does another program clean up here?",
            sl_files_show(directory_path).text, MAKE_TRIES);
}

/* ---- a save that keeps nothing ---- */

static sl_status probe_inside(int directory, const char *directory_path, int inside,
                              sl_step_entry *entry)
{
    char *path = NULL;
    const sl_step_entry trash = sl_steps_name(SL_STEP_TRASH, entry->step);
    SL_TRY(sl_files_join_path(directory_path, entry->name, &path));
    sl_status status =
        sl_files_write_text(inside, path, sl_manifest_file_name(SL_MANIFEST_CONFIG), "{}\n");
    if (status == SL_OK)
        status = sl_files_sync_directory(inside, path);
    const int error = status == SL_OK
                          ? sl_files_rename(directory, entry->name, trash.name, SL_RENAME_REPLACE)
                          : 0;
    if (error != 0)
        status = sl_status_fail(SL_ERROR_IO, "%s: cannot be renamed: %s", sl_files_show(path).text,
                                strerror(error));
    free(path);
    SL_TRY(status);
    *entry = trash;
    return sl_files_sync_directory(directory, directory_path);
}

sl_status sl_steps_probe(int directory, const char *directory_path)
{
    int inside = -1;
    sl_step_entry entry;
    sl_first_failure failure = {0};
    SL_TRY(sl_steps_make(directory, directory_path, 0, &entry, &inside));
    sl_first_failure_keep(&failure, probe_inside(directory, directory_path, inside, &entry));
    sl_steps_remove_held(directory, directory_path, entry.name, inside);
    close(inside);
    return sl_first_failure_return(&failure);
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
    /* Removing large files takes long; a half-removed checkpoint is removed to its end. */
    (void)sl_heartbeat_give();
}

/* True if this name was warned of before. Every save finds the same remains again, and one warning
 * of each is enough; a table this small may forget one, which is then repeated. */
static bool is_said(const char *directory_path, const char *name)
{
    enum { KEPT = 64 };
    static _Atomic uint64_t said[KEPT];
    char path[1024];
    snprintf(path, sizeof path, "%.768s/%s", directory_path, name);
    const uint64_t hash = sl_hash_64(path, strlen(path));
    return atomic_exchange(&said[hash % KEPT], hash) == hash;
}

static void warn_of_stay(const char *directory_path, const char *name)
{
    if (is_said(directory_path, name))
        return;
    sl_log_write(SL_LOG_WARNING, "%s/%s: stays, it cannot be removed or holds other files",
                 sl_files_show(directory_path).text, name);
}

void sl_steps_remove_held(int directory, const char *directory_path, const char *name, int inside)
{
    if (!sl_steps_is_named(directory, name, inside))
        return;
    if (!holds_only_ours(inside) || sl_files_sync_directory(directory, directory_path) != SL_OK) {
        warn_of_stay(directory_path, name);
        return;
    }
    unlink_files(inside);
    if (unlinkat(directory, name, AT_REMOVEDIR) < 0)
        warn_of_stay(directory_path, name);
}

/* The name is looked at again under the lock: until then it was its writer's to rename. */
void sl_steps_remove(int directory, const char *directory_path, const sl_step_entry *entry)
{
    int inside = open_inside(directory, entry->name);
    if (inside < 0) {
        if (errno != ENOENT)
            warn_of_stay(directory_path, entry->name);
        return;
    }
    lock_result lock = take_lock(inside);
    if (lock == LOCK_TAKEN || (lock == LOCK_NONE && entry->kind != SL_STEP_TEMPORARY))
        sl_steps_remove_held(directory, directory_path, entry->name, inside);
    close(inside);
}

/* What was replaced is no remains while nothing final of its step is in front of it. */
static bool is_remains(const sl_step_list *list, uint32_t index)
{
    const sl_step_entry *entry = &list->entries[index];
    if (entry->kind != SL_STEP_REPLACED)
        return entry->kind != SL_STEP_FINAL;
    while (index > 0 && list->entries[index - 1].step == entry->step)
        index--;
    return list->entries[index].kind == SL_STEP_FINAL;
}

void sl_steps_clean(int directory, const char *directory_path)
{
    sl_step_list list;
    if (sl_steps_list(directory, directory_path, &list) != SL_OK)
        return;
    for (uint32_t i = 0; i < list.count; i++)
        if (is_remains(&list, i))
            sl_steps_remove(directory, directory_path, &list.entries[i]);
    sl_steps_free(&list);
}

/* Renames a checkpoint to trash, so that nobody finds it any more; false if it stays. */
static bool hide(int directory, const char *directory_path, const sl_step_entry *entry,
                 sl_step_entry *out_trash)
{
    int inside = open_inside(directory, entry->name);
    bool ours = inside >= 0 && holds_only_ours(inside);
    *out_trash = sl_steps_name(SL_STEP_TRASH, entry->step);
    if (inside >= 0)
        close(inside);
    if (ours && sl_files_rename(directory, entry->name, out_trash->name, SL_RENAME_REPLACE) == 0)
        return true;
    warn_of_stay(directory_path, entry->name);
    return false;
}

static void discard(int directory, const char *directory_path, const sl_step_entry *entry)
{
    sl_step_entry trash;
    if (hide(directory, directory_path, entry, &trash))
        sl_steps_remove(directory, directory_path, &trash);
}

/* ---- which ones stay ---- */

void sl_steps_forget(sl_step_verdicts *known)
{
    free(known->items);
    *known = (sl_step_verdicts){0};
}

sl_status sl_steps_note_whole(sl_step_verdicts *known, uint64_t step)
{
    sl_step_verdict *items = realloc(known->items, (known->count + 1) * sizeof *items);
    if (!items)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for what is known of checkpoints");
    items[known->count++] =
        (sl_step_verdict){.step = step, .kind = SL_STEP_FINAL, .is_whole = true};
    known->items = items;
    return SL_OK;
}

static const sl_step_verdict *find_verdict(const sl_step_verdicts *known,
                                           const sl_step_entry *entry)
{
    for (uint32_t i = 0; i < known->count; i++)
        if (known->items[i].step == entry->step && known->items[i].kind == entry->kind)
            return &known->items[i];
    return NULL;
}

/* What was damaged once is not read again. */
static bool is_whole(const sl_step_judge *judge, const sl_step_entry *entry)
{
    const sl_step_verdict *before = find_verdict(judge->known, entry);
    if (before && !before->is_whole)
        return false;
    return judge->is_whole(judge->user, entry, before != NULL);
}

static uint32_t count_candidates(const sl_step_list *list, uint64_t step)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->count; i++)
        count += sl_steps_is_complete(&list->entries[i]) && list->entries[i].step <= step;
    return count;
}

static void add_verdict(sl_step_verdicts *known, const sl_step_entry *entry, bool whole)
{
    known->items[known->count++] =
        (sl_step_verdict){.step = entry->step, .kind = entry->kind, .is_whole = whole};
}

/* Keeps what is known of `list`; as there are not too many, nothing is read. */
static void keep_all(const sl_step_list *list, uint64_t step, const sl_step_judge *judge,
                     sl_step_verdicts *now)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const sl_step_entry *entry = &list->entries[i];
        const sl_step_verdict *before = find_verdict(judge->known, entry);
        bool is_new = entry->step == step && entry->kind == SL_STEP_FINAL;
        if (before || is_new)
            add_verdict(now, entry, is_new || before->is_whole);
    }
}

/* How many of the newest entries stay: as many as hold `keep` whole ones. */
static uint32_t count_staying(const sl_step_list *list, uint64_t step, uint32_t keep,
                              const sl_step_judge *judge, sl_step_verdicts *now)
{
    uint32_t i = 0;
    for (uint32_t kept = 0; i < list->count && kept < keep; i++) {
        const sl_step_entry *entry = &list->entries[i];
        if (!sl_steps_is_complete(entry) || entry->step > step)
            continue;
        bool is_new = entry->step == step && entry->kind == SL_STEP_FINAL;
        add_verdict(now, entry, is_new || is_whole(judge, entry));
        kept += now->items[now->count - 1].is_whole;
    }
    return i;
}

static void warn_of_newer(const char *directory_path, const sl_step_list *list, uint64_t step)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (sl_steps_is_complete(&list->entries[i]) && list->entries[i].step > step)
            sl_log_write(SL_LOG_WARNING, "%s/%s: is newer than step %llu and stays",
                         sl_files_show(directory_path).text, list->entries[i].name,
                         (unsigned long long)step);
}

void sl_steps_prune(int directory, const char *directory_path, uint64_t step, uint32_t keep,
                    const sl_step_judge *judge)
{
    sl_step_list list;
    if (keep == 0 || sl_steps_list(directory, directory_path, &list) != SL_OK)
        return;
    sl_step_verdicts now = {.items = calloc((size_t)list.count + 1, sizeof *now.items)};
    warn_of_newer(directory_path, &list, step);
    if (now.items && count_candidates(&list, step) <= keep) {
        keep_all(&list, step, judge, &now);
    } else if (now.items) {
        for (uint32_t i = count_staying(&list, step, keep, judge, &now); i < list.count; i++)
            if (sl_steps_is_complete(&list.entries[i]))
                discard(directory, directory_path, &list.entries[i]);
    }
    sl_steps_forget(judge->known);
    *judge->known = now;
    sl_steps_free(&list);
}

void sl_steps_remove_others(int directory, const char *directory_path, uint64_t step)
{
    sl_step_entry trash;
    sl_step_list list;
    if (sl_steps_list(directory, directory_path, &list) != SL_OK) {
        sl_log_write(SL_LOG_WARNING, "old checkpoints stay: %s", sl_status_message());
        return;
    }
    /* Hidden first, all of them: a crash while files are removed must not leave a later step of the
     * old run, which a resumed run would take. */
    for (uint32_t i = 0; i < list.count; i++)
        if (sl_steps_is_complete(&list.entries[i]) && list.entries[i].step != step)
            (void)hide(directory, directory_path, &list.entries[i], &trash);
    sl_steps_free(&list);
    sl_steps_clean(directory, directory_path);
}
