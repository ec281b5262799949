/* Checkpoints; see checkpoint.h for what is promised.
 *
 * Reading: every read of a file of tensors compares the checksums of its blocks (checked_file.h),
 * whether the file is loaded or only checked.
 *
 * Writing: the directory is locked (save_lock.h). Each of these is durable before the next begins:
 * files, their directory, the rename to step-N, the parent directory, LATEST. A run that is killed
 * in between leaves a temporary directory that no reader looks at and that the next save removes.
 *
 * What a save verifies: every byte goes through the checksum on its way to the disk, and afterwards
 * all files are opened again by name, dropped from the page cache and read as before a load. So
 * whatever is deleted for a checkpoint, that checkpoint was once read back from the disk.
 */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"
#include "checked_file.h"
#include "files/files.h"
#include "files/safetensors.h"
#include "foreign/weights.h"
#include "manifest.h"
#include "publish.h"
#include "saved_rules.h"
#include "steps.h"
#include "tensors/full_tensors.h"

struct sl_checkpoint {
    char *path;
    sl_manifest manifest;
    sl_safetensors *files[SL_MANIFEST_FILE_COUNT]; /* NULL: not listed, or config.json */
};

typedef struct opening {
    sl_read_extent extent;
    bool only_parameters; /* optimizer states are left out */
} opening;

/* ---- opening: is it valid? ---- */

/* A file that is there but cannot be opened (permissions) says nothing of what is in it. */
static sl_status judge_missing(int inside, const char *name, sl_status status)
{
    if (status != SL_ERROR_MISSING)
        return status;
    bool is_gone = faccessat(inside, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
                   (errno == ENOENT || errno == ENOTDIR);
    return is_gone ? SL_ERROR_MISSING : SL_ERROR_IO;
}

static void list_groups(sl_checkpoint *checkpoint)
{
    checkpoint->manifest.run.path = checkpoint->path;
    for (int i = 0; i < SL_MANIFEST_FILE_COUNT; i++)
        if (checkpoint->files[i])
            checkpoint->manifest.run.has_state[sl_manifest_file_group((sl_manifest_file)i)] = true;
}

static sl_status open_inside(sl_checkpoint *checkpoint, int inside, opening how)
{
    sl_status status = sl_manifest_read(inside, checkpoint->path, &checkpoint->manifest);
    SL_TRY(judge_missing(inside, SL_MANIFEST_NAME, status));
    for (int i = 0; i < SL_MANIFEST_FILE_COUNT; i++) {
        sl_manifest_file which = (sl_manifest_file)i;
        sl_group group = sl_manifest_file_group(which);
        bool is_state = group != SL_GROUP_PARAM && group != SL_GROUP_COUNT;
        if (!checkpoint->manifest.files[i].is_listed || (is_state && how.only_parameters))
            continue;
        const sl_checked_file_args args = {inside, checkpoint->path, which,
                                           &checkpoint->manifest.files[i], how.extent};
        status = sl_checked_file_open(&args, &checkpoint->files[i]);
        SL_TRY(judge_missing(inside, sl_manifest_file_name(which), status));
    }
    list_groups(checkpoint);
    return SL_OK;
}

static sl_status open_at(int directory, const char *directory_path, const char *name, opening how,
                         sl_checkpoint **out_checkpoint)
{
    int inside = -1;
    sl_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to open a checkpoint");
    sl_status status = sl_files_join_path(directory_path, name, &checkpoint->path);
    if (status == SL_OK)
        status = sl_files_open_directory(directory, directory_path, name, SL_LINKS_FOLLOW, &inside);
    status = judge_missing(directory, name, status);
    if (status == SL_OK) {
        status = open_inside(checkpoint, inside, how);
        close(inside);
    }
    if (status != SL_OK) {
        sl_checkpoint_close(checkpoint);
        return status;
    }
    *out_checkpoint = checkpoint;
    return SL_OK;
}

sl_status sl_checkpoint_open(const char *path, sl_checkpoint **out_checkpoint)
{
    return open_at(AT_FDCWD, NULL, path, (opening){SL_READ_ALL, false}, out_checkpoint);
}

void sl_checkpoint_close(sl_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (int i = 0; i < SL_MANIFEST_FILE_COUNT; i++)
        sl_safetensors_close(checkpoint->files[i]);
    sl_manifest_free(&checkpoint->manifest);
    free(checkpoint->path);
    free(checkpoint);
}

const sl_checkpoint_info *sl_checkpoint_describe(const sl_checkpoint *checkpoint)
{
    return &checkpoint->manifest.run;
}

/* ---- the newest ---- */

/* True if something is wrong with the checkpoint itself, and not with this process or the way to
 * read it. */
static bool is_broken(sl_status status)
{
    return status == SL_ERROR_DATA || status == SL_ERROR_MISSING;
}

/* Of one that could not be opened: SL_OK if it is broken and an older one may be taken. */
static sl_status pass_over(int directory, const char *path, const char *name, sl_status status)
{
    sl_first_failure found = {0};
    if (status == SL_ERROR_IO)
        SL_FAIL(status,
                "%s; the newest checkpoint may be whole, so no older one is taken: make it "
                "readable, or move %s away to go on from the one before",
                sl_status_message(), name);
    if (!is_broken(status))
        return status;
    sl_first_failure_keep(&found, status);
    if (status == SL_ERROR_DATA && sl_manifest_is_newer(directory, path, name))
        SL_FAIL(status,
                "%s; it may be whole, so no older one is taken: use a version of sluice that reads "
                "it, or move %s away to go on from the one before",
                found.message, name);
    sl_log_write(SL_LOG_WARNING, "a checkpoint is passed over: %s", found.message);
    return SL_OK;
}

static sl_status find_valid(int directory, const char *path, const sl_step_list *list, opening how,
                            sl_checkpoint **out_checkpoint)
{
    uint32_t broken_count = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const sl_step_entry *entry = &list->entries[i];
        if (!sl_steps_is_complete(entry))
            continue;
        sl_status status = open_at(directory, path, entry->name, how, out_checkpoint);
        if (status == SL_OK)
            return SL_OK;
        SL_TRY(pass_over(directory, path, entry->name, status));
        broken_count++;
    }
    SL_FAIL(SL_ERROR_MISSING, "%s: holds no valid checkpoint (%u invalid)",
            sl_files_show(path).text, broken_count);
}

static sl_status open_list(const char *directory, int *out_fd, sl_step_list *out_list)
{
    sl_status status = sl_files_open_directory(AT_FDCWD, NULL, directory, SL_LINKS_FOLLOW, out_fd);
    SL_TRY(judge_missing(AT_FDCWD, directory, status));
    status = sl_steps_list(*out_fd, directory, out_list);
    if (status != SL_OK)
        close(*out_fd);
    return status;
}

static sl_status find_newest(const char *directory, opening how, sl_checkpoint **out_checkpoint)
{
    int fd;
    sl_step_list list;
    SL_TRY(open_list(directory, &fd, &list));
    sl_status status = find_valid(fd, directory, &list, how, out_checkpoint);
    sl_steps_free(&list);
    close(fd);
    return status;
}

static opening choose_opening(bool checks_all, bool only_parameters)
{
    return (opening){checks_all ? SL_READ_ALL : SL_READ_LOADED, only_parameters};
}

sl_status sl_checkpoint_find(const char *directory, bool checks_all, sl_checkpoint **out_checkpoint)
{
    return find_newest(directory, choose_opening(checks_all, false), out_checkpoint);
}

sl_status sl_checkpoint_find_newest(const char *directory, sl_checkpoint **out_checkpoint)
{
    return sl_checkpoint_find(directory, true, out_checkpoint);
}

sl_status sl_checkpoint_open_parameters(const char *path, bool is_one, bool checks_all,
                                        sl_checkpoint **out_opened)
{
    const opening how = choose_opening(checks_all, true);
    return is_one ? open_at(AT_FDCWD, NULL, path, how, out_opened)
                  : find_newest(path, how, out_opened);
}

sl_status sl_checkpoint_newest_step(const char *directory, bool *out_found, uint64_t *out_step)
{
    int fd;
    sl_step_list list;
    sl_status status = open_list(directory, &fd, &list);
    *out_found = false;
    if (status != SL_OK)
        return status == SL_ERROR_MISSING ? SL_OK : status;
    for (uint32_t i = 0; i < list.count && !*out_found; i++) {
        *out_found = sl_steps_is_complete(&list.entries[i]);
        *out_step = list.entries[i].step;
    }
    sl_steps_free(&list);
    close(fd);
    return SL_OK;
}

/* ---- loading ---- */

static sl_status find_group(const sl_checkpoint *checkpoint, sl_group group,
                            const sl_safetensors **out_file)
{
    for (int i = 0; i < SL_MANIFEST_FILE_COUNT; i++) {
        if (sl_manifest_file_group((sl_manifest_file)i) != group)
            continue;
        *out_file = checkpoint->files[i];
        if (!*out_file)
            SL_FAIL(SL_ERROR_DATA, "%s: holds no %s", sl_files_show(checkpoint->path).text,
                    sl_manifest_file_name((sl_manifest_file)i));
        return SL_OK;
    }
    SL_FAIL(SL_ERROR_INTERNAL, "group %d has no file in a checkpoint", (int)group);
}

static const sl_safetensors_tensor *find_tensor(const sl_safetensors *file,
                                                const sl_full_tensor *full)
{
    char name[SL_WEIGHTS_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", SL_WEIGHTS_PREFIX, full->name);
    return sl_safetensors_find(file, name);
}

/* The file of a group; NULL: other rules than those of the tensors have no such state, so that all
 * of them begin at zero. */
static sl_status find_states(const sl_checkpoint *checkpoint, sl_group group,
                             const sl_safetensors **out_file)
{
    *out_file = NULL;
    for (int i = 0; i < SL_MANIFEST_FILE_COUNT; i++)
        if (sl_manifest_file_group((sl_manifest_file)i) == group &&
            !checkpoint->manifest.files[i].is_listed && checkpoint->manifest.run.rules_json)
            return SL_OK;
    return find_group(checkpoint, group, out_file);
}

/* `missing_most`: how many tensors may be missing, because they had no such state when the
 * checkpoint was saved; which ones is not checked. If they have the state now, it begins at zero.
 */
static sl_status check_file(const sl_safetensors *file, const sl_full_tensors *list,
                            uint64_t missing_most)
{
    uint32_t missing = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const sl_safetensors_tensor *tensor = find_tensor(file, &list->items[i]);
        if (!tensor && missing++ < missing_most)
            continue;
        if (!tensor)
            SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is missing",
                    sl_files_show(file->file.path).text, list->items[i].name);
        SL_TRY(sl_full_tensors_check(&list->items[i], file, tensor));
    }
    if (file->tensor_count != list->count - missing)
        SL_FAIL(SL_ERROR_DATA, "%s: holds %u tensors, but the model has %u; %u are missing",
                sl_files_show(file->file.path).text, file->tensor_count, list->count, missing);
    return SL_OK;
}

static sl_status load_group(const sl_safetensors *file, const sl_full_tensors *list, sl_group group,
                            const sl_tensor_io *io)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const sl_full_tensor *full = &list->items[i];
        const sl_safetensors_tensor *tensor = find_tensor(file, full);
        if (tensor && sl_rule_stores(full->rule, group))
            SL_TRY(sl_full_tensors_load(list, full, file, tensor, group, io));
    }
    return SL_OK;
}

static sl_status load_groups(const sl_checkpoint *checkpoint, const sl_full_tensors *list,
                             const bool *has_state, const sl_tensor_io *io)
{
    const sl_safetensors *files[SL_GROUP_COUNT] = {0};
    if (has_state[SL_GROUP_GRAD]) /* the run goes on */
        SL_TRY(sl_saved_rules_check(checkpoint->path, checkpoint->manifest.run.rules_json,
                                    checkpoint->files[SL_MANIFEST_MOMENT1], list));
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        if (!has_state[group] || group == SL_GROUP_GRAD || group == SL_GROUP_MASTER)
            continue;
        SL_TRY(find_states(checkpoint, (sl_group)group, &files[group]));
        const bool is_state = group != SL_GROUP_PARAM;
        if (!files[group])
            continue;
        SL_TRY(check_file(files[group], list,
                          is_state ? checkpoint->manifest.run.stateless_count : 0));
    }
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        if (files[group])
            SL_TRY(load_group(files[group], list, (sl_group)group, io));
    return SL_OK;
}

sl_status sl_checkpoint_load(const sl_checkpoint *checkpoint, const sl_tensor_spec *tensors,
                             uint32_t tensor_count, const bool *has_state, const sl_tensor_io *io)
{
    sl_full_tensors *list;
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &list));
    sl_status status = load_groups(checkpoint, list, has_state, io);
    sl_full_tensors_close(list);
    return status;
}

sl_status sl_checkpoint_parameters(const sl_checkpoint *checkpoint, const sl_tensor_spec *tensors,
                                   uint32_t tensor_count, const sl_safetensors **out_file)
{
    sl_full_tensors *list;
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &list));
    sl_status status = find_group(checkpoint, SL_GROUP_PARAM, out_file);
    if (status == SL_OK)
        status = check_file(*out_file, list, 0);
    sl_full_tensors_close(list);
    return status;
}

/* ---- saving: the files ---- */

static const char LATEST_NAME[] = "LATEST";
static const char LATEST_TEMPORARY[] = "LATEST.tmp";

typedef char prefixed_name[SL_WEIGHTS_NAME_BYTES];

typedef struct save_job {
    const sl_checkpoint_save_args *args;
    sl_save_lock *lock, own_lock; /* of the run, else of this save alone */
    int directory;                /* args->directory */
    int inside;                   /* the temporary directory in it, locked */
    sl_step_entry final, replaced, temporary;
    char *temporary_path;
    sl_full_tensors *list;
    prefixed_name *names;       /* [list->count] */
    sl_safetensors_plan *plans; /* [list->count]: of the group that is written now */
    char *rules;                /* of saved_rules.h; NULL: there are none */
    sl_manifest manifest;       /* its texts are borrowed from args */
} save_job;

static bool has_all_states(const sl_full_tensor *full)
{
    return sl_rule_stores(full->rule, SL_GROUP_STATE1) &&
           sl_rule_stores(full->rule, SL_GROUP_STATE2);
}

static sl_status plan_tensors(save_job *job)
{
    const sl_full_tensors *list = job->list;
    job->names = calloc((size_t)list->count + 1, sizeof job->names[0]);
    job->plans = calloc((size_t)list->count + 1, sizeof job->plans[0]);
    if (!job->names || !job->plans)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        snprintf(job->names[i], sizeof job->names[i], "%s%s", SL_WEIGHTS_PREFIX,
                 list->items[i].name);
        job->manifest.run.stateless_count += !has_all_states(&list->items[i]);
    }
    return SL_OK;
}

/* Lists the tensors of which the group stores something; returns their number. */
static uint32_t plan_group(const save_job *job, sl_group group)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < job->list->count; i++) {
        const sl_full_tensor *full = &job->list->items[i];
        if (sl_rule_stores(full->rule, group))
            job->plans[count++] = (sl_safetensors_plan){
                .name = job->names[i],
                .dim_count = full->dim_count,
                .shape = {full->shape[0], full->shape[1]},
            };
    }
    return count;
}

static sl_status write_tensors(const save_job *job, sl_group group, sl_safetensors_writer *writer,
                               sl_manifest_entry *entry)
{
    const sl_checkpoint_save_args *args = job->args;
    SL_TRY(sl_full_tensors_save_group(job->list, group, args->io, args->ranks, writer));
    entry->is_listed = true;
    SL_TRY(sl_safetensors_writer_finish(writer, &entry->bytes, &entry->hash));
    entry->block_bytes = sl_safetensors_writer_sums(writer)->block_bytes;
    return sl_block_sums_format(sl_safetensors_writer_sums(writer), &entry->block_sums);
}

static sl_status write_group(save_job *job, sl_manifest_file which)
{
    sl_safetensors_writer *writer;
    const sl_group group = sl_manifest_file_group(which);
    const uint32_t count = plan_group(job, group);
    SL_TRY(sl_safetensors_writer_open(job->inside, job->temporary_path,
                                      sl_manifest_file_name(which), job->plans, count, &writer));
    sl_status status = write_tensors(job, group, writer, &job->manifest.files[which]);
    sl_safetensors_writer_close(writer);
    return status;
}

static sl_status write_text(save_job *job, const char *name, const char *text)
{
    return sl_files_write_text(job->inside, job->temporary_path, name, text);
}

static sl_status write_listed(save_job *job, sl_manifest_file which, const char *text)
{
    uint64_t bytes = strlen(text);
    job->manifest.files[which] =
        (sl_manifest_entry){.is_listed = true, .bytes = bytes, .hash = sl_hash_128(text, bytes)};
    return write_text(job, sl_manifest_file_name(which), text);
}

static sl_status write_config(save_job *job)
{
    char *text;
    SL_TRY(sl_weights_describe_checkpoint(job->args->shape, &text));
    sl_status status = write_listed(job, SL_MANIFEST_CONFIG, text);
    free(text);
    return status;
}

static sl_status write_vocabulary(save_job *job)
{
    static const sl_manifest_file places[SL_VOCABULARY_FILE_COUNT] = {
        [SL_VOCABULARY_FILE_TOKENS] = SL_MANIFEST_TOKENS,
        [SL_VOCABULARY_FILE_MERGES] = SL_MANIFEST_MERGES,
        [SL_VOCABULARY_FILE_JSON] = SL_MANIFEST_TOKENIZER,
        [SL_VOCABULARY_FILE_CONFIG] = SL_MANIFEST_TOKENIZER_CONFIG,
    };
    sl_vocabulary_files files;
    if (!job->args->vocabulary)
        return SL_OK;
    sl_status status = sl_vocabulary_format(job->args->vocabulary, &files);
    for (int i = 0; i < SL_VOCABULARY_FILE_COUNT && status == SL_OK; i++)
        if (files.texts[i])
            status = write_listed(job, places[i], files.texts[i]);
    sl_vocabulary_files_free(&files);
    return status;
}

static sl_status write_manifest(save_job *job)
{
    char *text;
    SL_TRY(sl_manifest_format(&job->manifest, &text));
    sl_status status = write_text(job, SL_MANIFEST_NAME, text);
    free(text);
    return status;
}

static sl_status write_files(save_job *job)
{
    SL_TRY(write_config(job));
    SL_TRY(write_vocabulary(job));
    for (int i = SL_MANIFEST_MODEL; i < SL_MANIFEST_TOKENS; i++) {
        sl_group group = sl_manifest_file_group((sl_manifest_file)i);
        if (job->args->has_state[group])
            SL_TRY(write_group(job, (sl_manifest_file)i));
    }
    SL_TRY(write_manifest(job));
    return sl_files_sync_directory(job->inside, job->temporary_path);
}

/* If what was just written is read back wrong, that is an error of the disk: SL_ERROR_IO. */
static sl_status read_back(const save_job *job)
{
    sl_checkpoint *checkpoint;
    sl_status status = open_at(job->directory, job->args->directory, job->temporary.name,
                               (opening){SL_READ_DISK, false}, &checkpoint);
    if (status == SL_ERROR_DATA || status == SL_ERROR_MISSING)
        SL_FAIL(SL_ERROR_IO, "%s: this was read back just after it was written and synced",
                sl_status_message());
    SL_TRY(status);
    sl_checkpoint_close(checkpoint);
    return SL_OK;
}

/* ---- saving: the names ---- */

static sl_status write_latest(const save_job *job)
{
    char line[SL_STEP_NAME_BYTES + 1];
    snprintf(line, sizeof line, "%s\n", job->final.name);
    return sl_files_replace_text(job->directory, job->args->directory, LATEST_NAME,
                                 LATEST_TEMPORARY, line);
}

/* For --keep. One that cannot be read is not known to be whole. */
static bool is_whole(const void *user, const sl_step_entry *entry, bool was_whole)
{
    const save_job *job = user;
    sl_checkpoint *checkpoint = NULL;
    const opening how = {was_whole ? SL_READ_SIZES : SL_READ_DISK, false};
    sl_status status = open_at(job->directory, job->args->directory, entry->name, how, &checkpoint);
    sl_checkpoint_close(checkpoint);
    if (status != SL_OK)
        sl_log_write(SL_LOG_WARNING, "%s does not count for --keep: %s", entry->name,
                     sl_status_message());
    return status == SL_OK;
}

static void prune(const save_job *job)
{
    const sl_checkpoint_save_args *args = job->args;
    sl_step_verdicts own = {0};
    const sl_step_judge judge = {is_whole, job, args->known ? args->known : &own};
    sl_steps_prune(job->directory, args->directory, args->state->step, args->keep, &judge);
    sl_steps_forget(&own);
}

/* The checkpoint is safe by now: what fails from here on is a warning. */
static void clean_up(const save_job *job)
{
    const sl_checkpoint_save_args *args = job->args;
    sl_step_entry exchanged = job->temporary; /* has the name of what took its place */
    if (sl_save_lock_add(job->lock, job->final.name) != SL_OK)
        sl_log_write(SL_LOG_WARNING, "%s", sl_status_message());
    exchanged.kind = SL_STEP_REPLACED;
    if (write_latest(job) != SL_OK)
        sl_log_write(SL_LOG_WARNING, "%s", sl_status_message());
    sl_steps_remove(job->directory, args->directory, &exchanged);
    sl_steps_remove(job->directory, args->directory, &job->replaced);
    prune(job);
}

/* ---- saving ---- */

static sl_status write_inside(save_job *job)
{
    const sl_publish_names names = {job->temporary.name, job->final.name, job->replaced.name};
    SL_TRY(sl_files_join_path(job->args->directory, job->temporary.name, &job->temporary_path));
    SL_TRY(write_files(job));
    SL_TRY(read_back(job));
    return sl_publish_step(job->lock, job->args->directory, &names);
}

static sl_status write_and_publish(save_job *job)
{
    const char *path = job->args->directory;
    SL_TRY(
        sl_steps_make(job->directory, path, job->args->state->step, &job->temporary, &job->inside));
    sl_first_failure failure = {0};
    sl_first_failure_keep(&failure, write_inside(job));
    if (failure.status != SL_OK)
        sl_steps_remove_held(job->directory, path, job->temporary.name, job->inside);
    close(job->inside);
    SL_TRY(sl_first_failure_return(&failure));
    /* If this fails, nothing is removed: it is not known which names would survive a crash. */
    sl_status status = sl_files_sync_directory(job->directory, path);
    if (status != SL_OK)
        SL_FAIL(status,
                "%s; %s is there and whole, but a power failure may take its name; older "
                "checkpoints were left",
                sl_status_message(), job->final.name);
    clean_up(job);
    return SL_OK;
}

static sl_status start_save(save_job *job)
{
    const sl_checkpoint_save_args *args = job->args;
    SL_TRY(sl_full_tensors_open(args->tensors, args->tensor_count, &job->list));
    SL_TRY(plan_tensors(job));
    SL_TRY(sl_saved_rules_format(job->list, &job->rules));
    job->manifest.run.rules_json = job->rules;
    job->lock = args->lock ? args->lock : &job->own_lock;
    SL_TRY(sl_save_lock_hold(args->directory, job->lock));
    job->directory = job->lock->directory;
    return SL_OK;
}

static void end_save(save_job *job)
{
    sl_save_lock_release(&job->own_lock);
    sl_full_tensors_close(job->list);
    free(job->names);
    free(job->plans);
    free(job->rules);
    free(job->temporary_path);
    for (int i = 0; i < SL_MANIFEST_FILE_COUNT; i++)
        free(job->manifest.files[i].block_sums);
}

/* What the other ranks do while rank 0 saves. */
static sl_status give_tensors(const sl_checkpoint_save_args *args)
{
    sl_full_tensors *list;
    SL_TRY(sl_full_tensors_open(args->tensors, args->tensor_count, &list));
    sl_status status = SL_OK;
    for (int i = SL_MANIFEST_MODEL; i < SL_MANIFEST_TOKENS && status == SL_OK; i++) {
        sl_group group = sl_manifest_file_group((sl_manifest_file)i);
        if (args->has_state[group])
            status = sl_full_tensors_save_group(list, group, args->io, args->ranks, NULL);
    }
    sl_full_tensors_close(list);
    return status;
}

sl_status sl_checkpoint_save(const sl_checkpoint_save_args *args)
{
    if (args->ranks && args->ranks->rank > 0)
        return give_tensors(args);
    save_job job = {
        .args = args,
        .directory = -1,
        .final = sl_steps_name(SL_STEP_FINAL, args->state->step),
        .replaced = sl_steps_name(SL_STEP_REPLACED, args->state->step),
        .manifest.run = {.state = *args->state,
                         .shape = *args->shape,
                         .precision = args->precision,
                         .config_json = args->config_json,
                         .given_json = args->given_json,
                         .tokenizer = args->tokenizer,
                         .texts = args->texts ? *args->texts : (sl_model_texts){0},
                         .gemm = args->gemm,
                         .algorithms = args->algorithms,
                         .data_fingerprint = args->data_fingerprint,
                         .data_sample = args->data_sample,
                         .run = args->run},
    };
    sl_status status = start_save(&job);
    if (status == SL_OK) {
        sl_steps_clean(job.directory, args->directory);
        status = write_and_publish(&job);
    }
    end_save(&job);
    return status;
}

/* ---- the space that saves take ---- */

/* For what is small or not known yet: configuration, manifest, directory, LATEST. */
enum { SMALL_FILES_BYTES = 64 << 10, TOKEN_TEXT_BYTES = 64 /* of a token and its merge, about */ };

static uint64_t subtract(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* What the saves of a run find, and what stays of it. */
typedef struct save_series {
    uint64_t now, count; /* checkpoints that are there, saves to come */
    uint32_t keep;
    bool overwrites; /* those that are there go after the first save */
    bool keeps_best; /* elsewhere on the disk: the old one stays until the new one is whole */
} save_series;

/* How many more checkpoints there are at once than now, the one that is being written counted. */
static uint64_t count_more(const save_series *series)
{
    uint64_t stay = (series->overwrites ? 0 : series->now) + series->count - 1;
    if (series->keep > 0 && stay > series->keep)
        stay = series->keep;
    uint64_t more = subtract(stay + 1, series->now);
    if (more == 0) /* nothing goes before the first one is there */
        more = 1;
    return more + (series->keeps_best ? 2 : 0);
}

static sl_status count_bytes(const save_job *job, uint64_t block_bytes, uint64_t *out_bytes)
{
    const sl_vocabulary *vocabulary = job->args->vocabulary;
    uint64_t total = SMALL_FILES_BYTES;
    if (vocabulary)
        total += sl_vocabulary_count(vocabulary) * (uint64_t)TOKEN_TEXT_BYTES;
    for (int i = SL_MANIFEST_MODEL; i < SL_MANIFEST_TOKENS; i++) {
        const sl_group group = sl_manifest_file_group((sl_manifest_file)i);
        uint64_t bytes;
        if (!job->args->has_state[group])
            continue;
        SL_TRY(sl_safetensors_count_bytes(job->plans, plan_group(job, group), &bytes));
        total += bytes / SL_BLOCK_SUMS_BYTES * SL_BLOCK_SUMS_DIGITS; /* in the manifest */
        SL_TRY(sl_bits_add(total, sl_bits_round_up(bytes, block_bytes), "a checkpoint", &total));
    }
    *out_bytes = total;
    return SL_OK;
}

static sl_status compare_space(const save_job *job, const save_series *series)
{
    uint64_t bytes = 0, needed, free_bytes, block_bytes, more = count_more(series);
    const save_series one = {series->now, series->count, 1, series->overwrites, series->keeps_best};
    SL_TRY(sl_files_free_space(job->args->directory, &free_bytes, &block_bytes));
    SL_TRY(count_bytes(job, block_bytes, &bytes));
    SL_TRY(sl_bits_multiply(more, bytes, "the checkpoints of a run", &needed));
    if (needed <= free_bytes)
        return SL_OK;
    SL_FAIL(SL_ERROR_FIT,
            "%s: %llu more checkpoints of %llu bytes need %llu bytes at once, but %llu are free "
            "there; save on a larger disk%s",
            sl_files_show(job->args->directory).text, (unsigned long long)more,
            (unsigned long long)bytes, (unsigned long long)needed, (unsigned long long)free_bytes,
            count_more(&one) <= free_bytes / bytes ? ", or keep fewer: --keep 1" : "");
}

/* How many checkpoints are there once what dead runs left is gone. */
static sl_status count_steps(const char *directory, uint64_t *out_count)
{
    int fd;
    sl_step_list list;
    SL_TRY(open_list(directory, &fd, &list));
    sl_steps_free(&list);
    sl_steps_clean(fd, directory);
    sl_status status = sl_steps_list(fd, directory, &list);
    close(fd);
    SL_TRY(status);
    *out_count = 0;
    for (uint32_t i = 0; i < list.count; i++)
        *out_count += sl_steps_is_complete(&list.entries[i]);
    sl_steps_free(&list);
    return SL_OK;
}

sl_status sl_checkpoint_check_space(const sl_checkpoint_save_args *args, uint64_t save_count,
                                    bool overwrites)
{
    save_job job = {.args = args, .directory = -1};
    save_series series = {.count = save_count,
                          .keep = args->keep,
                          .overwrites = overwrites,
                          .keeps_best = args->keeps_best};
    if (save_count == 0)
        return SL_OK;
    sl_status status = count_steps(args->directory, &series.now);
    if (status == SL_ERROR_MISSING)
        status = SL_OK;
    if (status == SL_OK)
        status = sl_full_tensors_open(args->tensors, args->tensor_count, &job.list);
    if (status == SL_OK)
        status = plan_tensors(&job);
    if (status == SL_OK)
        status = compare_space(&job, &series);
    end_save(&job);
    return status;
}
