/* The writing side of checkpoints; see checkpoint.h for what is promised.
 *
 * Order, each step durable before the next: files, their directory, the rename to step-N, the
 * parent directory, LATEST. Whoever is killed in between leaves a temporary directory that no
 * reader looks at and that the next save removes.
 *
 * What is verified: every byte goes through the checksum on its way to the disk, and afterwards
 * each file is opened again by name and its size, its header and (config.json, manifest.json) its
 * content are checked. The data is not read back: that would double the time, would be answered
 * from the page cache as often as not, and is done anyway before a checkpoint is loaded.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "checkpoint.h"
#include "checkpoint_open.h"
#include "files/files.h"
#include "files/safetensors.h"
#include "manifest.h"
#include "session/weights/weights.h"
#include "session/weights/whole.h"
#include "steps.h"

static const char LATEST_NAME[] = "LATEST";
static const char LATEST_TEMPORARY[] = "LATEST.tmp";

typedef char prefixed_name[SL_CHECKPOINT_NAME_BYTES];

typedef struct save_job {
    const sl_checkpoint_save_args *args;
    int directory; /* args->directory */
    int inside;    /* the temporary directory in it */
    sl_step_entry final_name, temporary_name, trash_name;
    char *temporary_path;
    sl_wholes *wholes;
    prefixed_name *names;       /* [wholes->count] */
    sl_safetensors_plan *plans; /* [wholes->count] */
    sl_manifest manifest;       /* its texts are borrowed from args */
} save_job;

/* ---- the files ---- */

static sl_status plan_tensors(save_job *job)
{
    const sl_wholes *wholes = job->wholes;
    job->names = calloc((size_t)wholes->count + 1, sizeof job->names[0]);
    job->plans = calloc((size_t)wholes->count + 1, sizeof job->plans[0]);
    if (!job->names || !job->plans)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of %u tensors", wholes->count);
    for (uint32_t i = 0; i < wholes->count; i++) {
        const sl_whole *whole = &wholes->wholes[i];
        snprintf(job->names[i], sizeof job->names[i], "%s%s", SL_CHECKPOINT_PREFIX, whole->name);
        job->plans[i] = (sl_safetensors_plan){
            .name = job->names[i],
            .dim_count = whole->dim_count,
            .shape = {whole->shape[0], whole->shape[1]},
        };
    }
    return SL_OK;
}

static sl_status write_tensors(save_job *job, sl_group group, sl_safetensors_writer *writer,
                               sl_manifest_entry *entry)
{
    const sl_wholes *wholes = job->wholes;
    for (uint32_t i = 0; i < wholes->count; i++) {
        const sl_whole *whole = &wholes->wholes[sl_safetensors_writer_order(writer, i)];
        SL_TRY(sl_whole_save(wholes, whole, group, job->args->io, writer));
    }
    entry->is_listed = true;
    return sl_safetensors_writer_finish(writer, &entry->bytes, &entry->hash);
}

static sl_status write_group(save_job *job, sl_manifest_file which)
{
    sl_safetensors_writer *writer;
    SL_TRY(sl_safetensors_writer_open(job->inside, job->temporary_path,
                                      sl_manifest_file_name(which), job->plans, job->wholes->count,
                                      &writer));
    sl_status status =
        write_tensors(job, sl_manifest_file_group(which), writer, &job->manifest.files[which]);
    sl_safetensors_writer_close(writer);
    return status;
}

static sl_status write_text(save_job *job, const char *name, const char *text)
{
    return sl_files_write_text(job->inside, job->temporary_path, name, text, strlen(text));
}

static sl_status write_config(save_job *job)
{
    char *text;
    sl_hash_stream *stream;
    sl_manifest_entry *entry = &job->manifest.files[SL_MANIFEST_CONFIG];
    SL_TRY(sl_weights_format_config(job->args->shape, &text));
    sl_status status = sl_hash_open(&stream);
    if (status == SL_OK) {
        entry->is_listed = true;
        entry->bytes = strlen(text);
        sl_hash_update(stream, text, entry->bytes);
        entry->hash = sl_hash_digest(stream);
        sl_hash_close(stream);
        status = write_text(job, sl_manifest_file_name(SL_MANIFEST_CONFIG), text);
    }
    free(text);
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
    for (int i = SL_MANIFEST_MODEL; i < SL_MANIFEST_FILE_COUNT; i++) {
        sl_group group = sl_manifest_file_group((sl_manifest_file)i);
        if (job->args->has_state[group])
            SL_TRY(write_group(job, (sl_manifest_file)i));
    }
    SL_TRY(write_manifest(job));
    return sl_files_sync_directory(job->inside, job->temporary_path);
}

static sl_status verify(const save_job *job)
{
    sl_checkpoint *checkpoint;
    SL_TRY(sl_checkpoint_open_at(job->directory, job->args->directory, job->temporary_name.name,
                                 SL_CHECKPOINT_HEADERS, &checkpoint));
    sl_checkpoint_close(checkpoint);
    return SL_OK;
}

/* ---- the names ---- */

static sl_status make_temporary(save_job *job)
{
    const char *name = job->temporary_name.name;
    if (mkdirat(job->directory, name, 0700) < 0)
        SL_FAIL(SL_ERROR_IO, "%s: the directory cannot be made: %s",
                sl_files_show(job->temporary_path).text, strerror(errno));
    sl_status status = sl_files_open_directory(job->directory, job->args->directory, name,
                                               SL_LINKS_REFUSE, &job->inside);
    if (status != SL_OK) {
        unlinkat(job->directory, name, AT_REMOVEDIR);
        return status;
    }
    flock(job->inside, LOCK_EX | LOCK_NB); /* where locks are missing, nobody cleans either */
    return SL_OK;
}

/* Where a file system cannot exchange names: between the two renames step-N is not there. */
static int replace_in_two(const save_job *job)
{
    const char *final = job->final_name.name, *trash = job->trash_name.name;
    int moved = sl_files_rename(job->directory, final, trash, SL_RENAME_REPLACE);
    if (moved != 0 && moved != ENOENT)
        return moved;
    int error = sl_files_rename(job->directory, job->temporary_name.name, final, SL_RENAME_REPLACE);
    if (error != 0 && moved == 0)
        sl_files_rename(job->directory, trash, final, SL_RENAME_REPLACE);
    return error;
}

static sl_status publish(const save_job *job)
{
    const char *temporary = job->temporary_name.name, *final = job->final_name.name;
    int error = sl_files_rename(job->directory, temporary, final, SL_RENAME_NEW);
    if (error == EEXIST || error == ENOTEMPTY)
        error = sl_files_rename(job->directory, temporary, final, SL_RENAME_EXCHANGE);
    if (error == EINVAL || error == ENOSYS)
        error = replace_in_two(job);
    if (error != 0)
        SL_FAIL(SL_ERROR_IO, "%s: cannot be renamed to %s: %s",
                sl_files_show(job->temporary_path).text, final, strerror(error));
    return SL_OK;
}

static sl_status write_latest(const save_job *job)
{
    char line[SL_STEP_NAME_BYTES + 1];
    const char *path = job->args->directory;
    int length = snprintf(line, sizeof line, "%s\n", job->final_name.name);
    unlinkat(job->directory, LATEST_TEMPORARY, 0); /* of a dead run */
    SL_TRY(sl_files_write_text(job->directory, path, LATEST_TEMPORARY, line, (uint64_t)length));
    int error = sl_files_rename(job->directory, LATEST_TEMPORARY, LATEST_NAME, SL_RENAME_REPLACE);
    if (error != 0)
        SL_FAIL(SL_ERROR_IO, "%s/%s: cannot be replaced: %s", sl_files_show(path).text, LATEST_NAME,
                strerror(error));
    return sl_files_sync_directory(job->directory, path);
}

static void remove_if_there(const save_job *job, const char *name)
{
    if (faccessat(job->directory, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        sl_steps_remove(job->directory, job->args->directory, name);
}

/* The checkpoint is safe by now: what fails from here on is only told. */
static void tidy(const save_job *job)
{
    const sl_checkpoint_save_args *args = job->args;
    if (write_latest(job) != SL_OK)
        sl_log_write(SL_LOG_WARNING, "%s", sl_status_message());
    remove_if_there(job, job->temporary_name.name); /* what was replaced, by exchange */
    remove_if_there(job, job->trash_name.name);     /* or in two */
    sl_steps_prune(job->directory, args->directory, args->state->step, args->keep);
}

/* ---- the whole ---- */

static sl_status write_and_publish(save_job *job)
{
    SL_TRY(make_temporary(job));
    sl_status status = write_files(job);
    if (status == SL_OK)
        status = verify(job);
    if (status == SL_OK)
        status = publish(job);
    close(job->inside);
    if (status != SL_OK) {
        remove_if_there(job, job->temporary_name.name);
        return status;
    }
    /* If this fails, nothing is removed: it is not known which names would survive a crash. */
    SL_TRY(sl_files_sync_directory(job->directory, job->args->directory));
    tidy(job);
    return SL_OK;
}

static sl_status prepare(save_job *job)
{
    const sl_checkpoint_save_args *args = job->args;
    SL_TRY(sl_whole_open(args->tensors, args->tensor_count, &job->wholes));
    SL_TRY(plan_tensors(job));
    if (asprintf(&job->temporary_path, "%s/%s", args->directory, job->temporary_name.name) < 0) {
        job->temporary_path = NULL;
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    }
    SL_TRY(sl_files_make_directories(args->directory));
    return sl_files_open_directory(AT_FDCWD, NULL, args->directory, SL_LINKS_FOLLOW,
                                   &job->directory);
}

sl_status sl_checkpoint_save(const sl_checkpoint_save_args *args)
{
    save_job job = {
        .args = args,
        .directory = -1,
        .final_name = sl_steps_name(SL_STEP_FINAL, args->state->step),
        .temporary_name = sl_steps_name(SL_STEP_TEMPORARY, args->state->step),
        .trash_name = sl_steps_name(SL_STEP_TRASH, args->state->step),
        .manifest = {.state = *args->state,
                     .shape = *args->shape,
                     .precision = args->precision,
                     .config_json = (char *)args->config_json,
                     .gemm = (char *)args->gemm,
                     .data_fingerprint = (char *)args->data_fingerprint},
    };
    sl_status status = prepare(&job);
    if (status == SL_OK) {
        sl_steps_clean(job.directory, args->directory);
        status = write_and_publish(&job);
        close(job.directory);
    }
    sl_whole_close(job.wholes);
    free(job.names);
    free(job.plans);
    free(job.temporary_path);
    return status;
}
