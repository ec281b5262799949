/* Opens a model directory; see model_files.h. */
#define _GNU_SOURCE
#include "model_files.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/json_file.h"

static const char SINGLE_NAME[] = "model.safetensors";
static const char INDEX_NAME[] = "model.safetensors.index.json";

enum { INDEX_BYTES_MAX = 16 << 20, BASENAME_MAX = 255 };

/* The index while its shards are being opened. */
typedef struct shard_index {
    int directory;
    const char *directory_path;
    json_t *weight_map; /* name -> shard name, borrowed from the root */
} shard_index;

#define FAIL_INDEX(index, ...)                                                                     \
    return sl_status_prefix(sl_status_fail(SL_ERROR_DATA, __VA_ARGS__), "%s/%s",                   \
                            sl_files_show((index)->directory_path).text, INDEX_NAME)

static sl_status check_shard_name(const shard_index *index, const char *tensor, const json_t *value)
{
    const char *name = json_string_value(value);
    if (!name)
        FAIL_INDEX(index, "the shard of \"%s\" is not a string", sl_files_show(tensor).text);
    if (strlen(name) > BASENAME_MAX)
        FAIL_INDEX(index, "the shard of \"%s\" has a name of more than %d bytes",
                   sl_files_show(tensor).text, BASENAME_MAX);
    if (strpbrk(name, "/\\") || name[0] == '.')
        FAIL_INDEX(index, "shard \"%s\" is not a plain file name", sl_files_show(name).text);
    if (!sl_files_name_ends(name, ".safetensors"))
        FAIL_INDEX(index, "shard \"%s\" does not end in .safetensors", sl_files_show(name).text);
    return SL_OK;
}

static bool is_open(const sl_model_files *files, const char *directory_path, const char *name)
{
    size_t directory_length = strlen(directory_path);
    for (uint32_t i = 0; i < files->file_count; i++)
        if (strcmp(files->files[i]->file.path + directory_length + 1, name) == 0)
            return true;
    return false;
}

static sl_status add_file(sl_model_files *files, const shard_index *index, const char *name,
                          sl_links links)
{
    sl_safetensors *file;
    if (files->file_count == SL_MODEL_FILES_MAX)
        FAIL_INDEX(index, "more than %d shards", SL_MODEL_FILES_MAX);
    SL_TRY(sl_safetensors_open(index->directory, index->directory_path, name, links, &file));
    files->files[files->file_count++] = file;
    return SL_OK;
}

static sl_status open_shards(sl_model_files *files, const shard_index *index)
{
    const char *tensor;
    json_t *shard;
    json_object_foreach(index->weight_map, tensor, shard)
    {
        SL_TRY(check_shard_name(index, tensor, shard));
        const char *name = json_string_value(shard);
        if (!is_open(files, index->directory_path, name))
            SL_TRY(add_file(files, index, name, SL_LINKS_REFUSE));
    }
    return SL_OK;
}

/* Each tensor of a shard is mapped to this shard: then no tensor is in two. */
static sl_status check_shard(const shard_index *index, const sl_safetensors *file)
{
    const char *shard = file->file.path + strlen(index->directory_path) + 1;
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        const char *name = file->tensors[i].name;
        const char *mapped = json_string_value(json_object_get(index->weight_map, name));
        if (!mapped || strcmp(mapped, shard) != 0)
            FAIL_INDEX(index, "tensor \"%s\" is in shard \"%s\", but mapped to \"%s\"",
                       sl_files_show(name).text, sl_files_show(shard).text,
                       mapped ? sl_files_show(mapped).text : "none");
    }
    return SL_OK;
}

static sl_status check_map(const sl_model_files *files, const shard_index *index)
{
    const char *tensor;
    json_t *shard;
    const sl_safetensors *file;
    for (uint32_t i = 0; i < files->file_count; i++)
        SL_TRY(check_shard(index, files->files[i]));
    json_object_foreach(index->weight_map, tensor, shard)
    {
        if (!sl_model_files_find(files, tensor, &file))
            FAIL_INDEX(index, "tensor \"%s\" is mapped to shard \"%s\", but is not there",
                       sl_files_show(tensor).text, sl_files_show(json_string_value(shard)).text);
    }
    return SL_OK;
}

static sl_status open_index(sl_model_files *files, shard_index *index)
{
    json_t *root;
    SL_TRY(sl_json_file_read(index->directory, index->directory_path, INDEX_NAME, INDEX_BYTES_MAX,
                             &root));
    index->weight_map = json_object_get(root, "weight_map");
    sl_status status = SL_OK;
    if (!json_is_object(index->weight_map) || json_object_size(index->weight_map) == 0)
        status = sl_status_fail(SL_ERROR_DATA, "%s/%s: weight_map is not an object with entries",
                                sl_files_show(index->directory_path).text, INDEX_NAME);
    if (status == SL_OK)
        status = open_shards(files, index);
    if (status == SL_OK)
        status = check_map(files, index);
    json_decref(root);
    return status;
}

static sl_status open_files(sl_model_files *files, const char *directory_path)
{
    shard_index index = {.directory_path = directory_path};
    SL_TRY(
        sl_files_open_directory(AT_FDCWD, NULL, directory_path, SL_LINKS_FOLLOW, &index.directory));
    bool has_single = false, has_index = false;
    sl_status status = sl_files_exists(index.directory, directory_path, SINGLE_NAME, &has_single);
    if (status == SL_OK && !has_single)
        status = sl_files_exists(index.directory, directory_path, INDEX_NAME, &has_index);
    if (status == SL_OK && has_single)
        status = add_file(files, &index, SINGLE_NAME, SL_LINKS_FOLLOW);
    else if (status == SL_OK && has_index)
        status = open_index(files, &index);
    else if (status == SL_OK)
        status = sl_status_fail(SL_ERROR_MISSING, "%s: holds neither %s nor %s",
                                sl_files_show(directory_path).text, SINGLE_NAME, INDEX_NAME);
    close(index.directory);
    return status;
}

sl_status sl_model_files_open(const char *directory, sl_model_files **out_files)
{
    sl_model_files *files = calloc(1, sizeof *files);
    if (files)
        files->files = calloc(SL_MODEL_FILES_MAX, sizeof files->files[0]);
    if (!files || !files->files) {
        free(files);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of files");
    }
    sl_status status = open_files(files, directory);
    if (status != SL_OK) {
        sl_model_files_close(files);
        return status;
    }
    *out_files = files;
    return SL_OK;
}

void sl_model_files_close(sl_model_files *files)
{
    if (!files)
        return;
    for (uint32_t i = 0; i < files->file_count; i++)
        sl_safetensors_close(files->files[i]);
    free(files->files);
    free(files);
}

const sl_safetensors_tensor *sl_model_files_find(const sl_model_files *files, const char *name,
                                                 const sl_safetensors **out_file)
{
    for (uint32_t i = 0; i < files->file_count; i++) {
        const sl_safetensors_tensor *tensor = sl_safetensors_find(files->files[i], name);
        if (tensor) {
            *out_file = files->files[i];
            return tensor;
        }
    }
    return NULL;
}
