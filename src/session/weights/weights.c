/* Imports the tensors of a Hugging Face GPT-2 directory; see weights.h. Config is in
 * weights_config.c. */
#define _GNU_SOURCE
#include "weights.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/model_files.h"
#include "full_tensors.h"

static const char PREFIX[] = "transformer.";

enum { NAME_BYTES = sizeof PREFIX + sizeof((sl_tensor_spec *)NULL)->name };

static const char *strip_prefix(const char *name)
{
    size_t length = sizeof PREFIX - 1;
    return strncmp(name, PREFIX, length) == 0 ? name + length : name;
}

/* Buffers that are no parameters: causal masks, and the head that is tied to wte. */
static bool is_skipped(const char *name)
{
    if (strcmp(name, "lm_head.weight") == 0)
        return true;
    if (strncmp(name, "h.", 2) != 0 || !isdigit((unsigned char)name[2]))
        return false;
    const char *rest = name + 2;
    while (isdigit((unsigned char)*rest))
        rest++;
    return strcmp(rest, ".attn.bias") == 0 || strcmp(rest, ".attn.masked_bias") == 0;
}

static int compare_name(const void *name, const void *full)
{
    return strcmp(name, ((const sl_full_tensor *)full)->name);
}

/* Every tensor of the files is a parameter of the model or known to be none. */
static sl_status check_known(const sl_safetensors *file, const sl_full_tensors *list)
{
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        const char *name = strip_prefix(file->tensors[i].name);
        if (is_skipped(name) ||
            bsearch(name, list->items, list->count, sizeof list->items[0], compare_name))
            continue;
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is not one of a GPT-2 of this shape",
                sl_files_show(file->file.path).text, sl_files_show(file->tensors[i].name).text);
    }
    return SL_OK;
}

/* The tensor of a file, under either of its names. */
static sl_status find_tensor(const char *directory, const sl_model_files *files,
                             const sl_full_tensor *full, const sl_safetensors **out_file,
                             const sl_safetensors_tensor **out_tensor)
{
    char prefixed[NAME_BYTES];
    const sl_safetensors *other_file = NULL;
    snprintf(prefixed, sizeof prefixed, "%s%s", PREFIX, full->name);
    const sl_safetensors_tensor *plain = sl_model_files_find(files, full->name, out_file);
    const sl_safetensors_tensor *other = sl_model_files_find(files, prefixed, &other_file);
    if (plain && other)
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is there twice, with and without \"%s\"",
                sl_files_show(directory).text, full->name, PREFIX);
    if (!plain && !other)
        SL_FAIL(SL_ERROR_DATA, "%s: tensor \"%s\" is missing", sl_files_show(directory).text,
                full->name);
    *out_tensor = plain ? plain : other;
    *out_file = plain ? *out_file : other_file;
    return SL_OK;
}

static sl_status check_all(const char *directory, const sl_model_files *files,
                           const sl_full_tensors *list)
{
    const sl_safetensors *file;
    const sl_safetensors_tensor *tensor;
    for (uint32_t i = 0; i < files->file_count; i++)
        SL_TRY(check_known(files->files[i], list));
    for (uint32_t i = 0; i < list->count; i++) {
        SL_TRY(find_tensor(directory, files, &list->items[i], &file, &tensor));
        SL_TRY(sl_full_tensors_check(&list->items[i], file, tensor));
    }
    return SL_OK;
}

static sl_status load_all(const char *directory, const sl_model_files *files,
                          const sl_full_tensors *list, const sl_tensor_io *io)
{
    const sl_safetensors *file;
    const sl_safetensors_tensor *tensor;
    for (uint32_t i = 0; i < list->count; i++) {
        const sl_full_tensor *full = &list->items[i];
        SL_TRY(find_tensor(directory, files, full, &file, &tensor));
        SL_TRY(sl_full_tensors_load(list, full, file, tensor, SL_GROUP_PARAM, io));
    }
    return SL_OK;
}

sl_status sl_weights_import(const char *directory, const sl_tensor_spec *tensors,
                            uint32_t tensor_count, const sl_tensor_io *io)
{
    sl_full_tensors *list;
    sl_model_files *files = NULL;
    SL_TRY(sl_full_tensors_open(tensors, tensor_count, &list));
    sl_status status = sl_model_files_open(directory, &files);
    if (status == SL_OK)
        status = check_all(directory, files, list);
    if (status == SL_OK)
        status = load_all(directory, files, list, io);
    sl_model_files_close(files);
    sl_full_tensors_close(list);
    return status;
}
