/* The reading side of checkpoints; see checkpoint.h. Writing is in checkpoint_save.c.
 *
 * A checkpoint is judged with its files open and loaded from the same descriptors, so what was
 * found valid is what is loaded, whatever happens to the names in between.
 */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "checkpoint_open.h"
#include "files/files.h"
#include "files/safetensors.h"
#include "manifest.h"
#include "session/weights/full_tensors.h"
#include "steps.h"

_Static_assert(sizeof SL_CHECKPOINT_PREFIX + sizeof(((sl_tensor_spec *)NULL)->name) <=
                   SL_CHECKPOINT_NAME_BYTES,
               "a prefixed name fits");

struct sl_checkpoint {
    char *path;
    sl_manifest manifest;
    sl_safetensors *files[SL_MANIFEST_FILE_COUNT]; /* NULL: not listed, or config.json */
    sl_checkpoint_info info;
};

enum { HASH_PIECE_BYTES = 4 << 20 };

/* ---- judging ---- */

static sl_status hash_file(const sl_file *file, void *piece, sl_hash_stream *stream,
                           sl_hash_value *out_hash)
{
    for (uint64_t done = 0; done < file->bytes; done += HASH_PIECE_BYTES) {
        uint64_t left = file->bytes - done;
        uint64_t bytes = left < HASH_PIECE_BYTES ? left : HASH_PIECE_BYTES;
        SL_TRY(sl_files_read_at(file, done, bytes, piece));
        sl_hash_update(stream, piece, bytes);
    }
    *out_hash = sl_hash_digest(stream);
    return SL_OK;
}

static sl_status check_hash(const sl_file *file, sl_hash_value expected)
{
    sl_hash_value found = {0};
    sl_hash_stream *stream;
    void *piece = malloc(file->bytes < HASH_PIECE_BYTES ? file->bytes + 1 : HASH_PIECE_BYTES);
    if (!piece)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to check %s", sl_files_show(file->path).text);
    sl_status status = sl_hash_open(&stream);
    if (status == SL_OK) {
        posix_fadvise(file->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        status = hash_file(file, piece, stream, &found);
        sl_hash_close(stream);
    }
    free(piece);
    SL_TRY(status);
    if (found.high != expected.high || found.low != expected.low)
        SL_FAIL(SL_ERROR_DATA,
                "%s: checksum is %016llx%016llx, but the manifest says %016llx%016llx",
                sl_files_show(file->path).text, (unsigned long long)found.high,
                (unsigned long long)found.low, (unsigned long long)expected.high,
                (unsigned long long)expected.low);
    return SL_OK;
}

static sl_status check_bytes(const sl_file *file, const sl_manifest_entry *entry)
{
    if (file->bytes != entry->bytes)
        SL_FAIL(SL_ERROR_DATA, "%s: has %llu bytes, but the manifest says %llu",
                sl_files_show(file->path).text, (unsigned long long)file->bytes,
                (unsigned long long)entry->bytes);
    return SL_OK;
}

/* Size first: a cut file is then called that, and not a bad header. */
static sl_status check_plain(int inside, const char *path, const char *name,
                             const sl_manifest_entry *entry, bool check_content)
{
    sl_file file;
    SL_TRY(sl_files_open(inside, path, name, SL_LINKS_REFUSE, &file));
    sl_status status = check_bytes(&file, entry);
    if (status == SL_OK && check_content)
        status = check_hash(&file, entry->hash);
    sl_files_close(&file);
    return status;
}

static sl_status open_file(sl_checkpoint *checkpoint, int inside, sl_manifest_file which,
                           sl_checkpoint_depth depth)
{
    const char *name = sl_manifest_file_name(which);
    const sl_manifest_entry *entry = &checkpoint->manifest.files[which];
    bool is_config = which == SL_MANIFEST_CONFIG;
    SL_TRY(check_plain(inside, checkpoint->path, name, entry, is_config));
    if (is_config)
        return SL_OK;
    SL_TRY(sl_safetensors_open(inside, checkpoint->path, name, SL_LINKS_REFUSE,
                               &checkpoint->files[which]));
    const sl_file *file = &checkpoint->files[which]->file;
    SL_TRY(check_bytes(file, entry)); /* again: the name may have changed hands */
    return depth == SL_CHECKPOINT_CONTENT ? check_hash(file, entry->hash) : SL_OK;
}

static sl_status read_manifest(int inside, const char *path, sl_manifest *manifest)
{
    sl_file file;
    char *text = NULL;
    SL_TRY(sl_files_open(inside, path, SL_MANIFEST_NAME, SL_LINKS_REFUSE, &file));
    sl_status status = sl_files_read_text(&file, SL_MANIFEST_BYTES_MAX, &text);
    if (status == SL_OK)
        status = sl_manifest_parse(file.path, text, file.bytes, manifest);
    free(text);
    sl_files_close(&file);
    return status;
}

static void describe(sl_checkpoint *checkpoint)
{
    const sl_manifest *manifest = &checkpoint->manifest;
    checkpoint->info = (sl_checkpoint_info){
        .path = checkpoint->path,
        .state = manifest->state,
        .shape = manifest->shape,
        .precision = manifest->precision,
        .config_json = manifest->config_json,
        .gemm = manifest->gemm,
        .data_fingerprint = manifest->data_fingerprint,
    };
    for (int i = 0; i < SL_MANIFEST_FILE_COUNT; i++)
        if (checkpoint->files[i])
            checkpoint->info.has_state[sl_manifest_file_group((sl_manifest_file)i)] = true;
}

static sl_status open_inside(sl_checkpoint *checkpoint, int inside, sl_checkpoint_depth depth)
{
    SL_TRY(read_manifest(inside, checkpoint->path, &checkpoint->manifest));
    for (int i = 0; i < SL_MANIFEST_FILE_COUNT; i++)
        if (checkpoint->manifest.files[i].is_listed)
            SL_TRY(open_file(checkpoint, inside, (sl_manifest_file)i, depth));
    describe(checkpoint);
    return SL_OK;
}

static sl_status make_path(const char *directory_path, const char *name, char **out_path)
{
    int length = directory_path ? asprintf(out_path, "%s/%s", directory_path, name)
                                : asprintf(out_path, "%s", name);
    if (length < 0) {
        *out_path = NULL;
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    }
    return SL_OK;
}

sl_status sl_checkpoint_open_at(int directory, const char *directory_path, const char *name,
                                sl_checkpoint_depth depth, sl_checkpoint **out_checkpoint)
{
    int inside = -1;
    sl_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (!checkpoint)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to open a checkpoint");
    sl_status status = make_path(directory_path, name, &checkpoint->path);
    if (status == SL_OK)
        status = sl_files_open_directory(directory, directory_path, name, SL_LINKS_FOLLOW, &inside);
    if (status == SL_OK) {
        status = open_inside(checkpoint, inside, depth);
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
    return sl_checkpoint_open_at(AT_FDCWD, NULL, path, SL_CHECKPOINT_CONTENT, out_checkpoint);
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
    return &checkpoint->info;
}

/* ---- finding ---- */

/* True if `status` speaks of the checkpoint and not of this process. */
static bool is_invalid(sl_status status)
{
    return status == SL_ERROR_DATA || status == SL_ERROR_MISSING || status == SL_ERROR_IO;
}

static sl_status find_valid(int directory, const char *path, const sl_step_list *list,
                            sl_checkpoint **out_checkpoint)
{
    uint32_t invalid_count = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->entries[i].kind != SL_STEP_FINAL)
            continue;
        sl_status status = sl_checkpoint_open_at(directory, path, list->entries[i].name,
                                                 SL_CHECKPOINT_CONTENT, out_checkpoint);
        if (!is_invalid(status))
            return status;
        sl_log_write(SL_LOG_WARNING, "a checkpoint is passed over: %s", sl_status_message());
        invalid_count++;
    }
    SL_FAIL(SL_ERROR_MISSING, "%s: holds no valid checkpoint (%u invalid)",
            sl_files_show(path).text, invalid_count);
}

sl_status sl_checkpoint_find_newest(const char *directory, sl_checkpoint **out_checkpoint)
{
    int fd;
    sl_step_list list;
    SL_TRY(sl_files_open_directory(AT_FDCWD, NULL, directory, SL_LINKS_FOLLOW, &fd));
    sl_status status = sl_steps_list(fd, directory, &list);
    if (status == SL_OK) {
        status = find_valid(fd, directory, &list, out_checkpoint);
        sl_steps_free(&list);
    }
    close(fd);
    return status;
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
    char name[SL_CHECKPOINT_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", SL_CHECKPOINT_PREFIX, full->name);
    return sl_safetensors_find(file, name);
}

static sl_status check_file(const sl_safetensors *file, const sl_full_tensors *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const sl_safetensors_tensor *tensor = find_tensor(file, &list->items[i]);
        if (!tensor)
            SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is missing",
                    sl_files_show(file->file.path).text, list->items[i].name);
        SL_TRY(sl_full_tensors_check(&list->items[i], file, tensor));
    }
    if (file->tensor_count != list->count)
        SL_FAIL(SL_ERROR_DATA, "%s: holds %u tensors, but the model has %u",
                sl_files_show(file->file.path).text, file->tensor_count, list->count);
    return SL_OK;
}

static sl_status load_group(const sl_safetensors *file, const sl_full_tensors *list, sl_group group,
                            const sl_tensor_io *io)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const sl_full_tensor *full = &list->items[i];
        SL_TRY(sl_full_tensors_load(list, full, file, find_tensor(file, full), group, io));
    }
    return SL_OK;
}

static sl_status load_groups(const sl_checkpoint *checkpoint, const sl_full_tensors *list,
                             const bool *has_state, const sl_tensor_io *io)
{
    const sl_safetensors *files[SL_GROUP_COUNT] = {0};
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        if (!has_state[group] || group == SL_GROUP_GRAD || group == SL_GROUP_MASTER)
            continue;
        SL_TRY(find_group(checkpoint, (sl_group)group, &files[group]));
        SL_TRY(check_file(files[group], list));
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
