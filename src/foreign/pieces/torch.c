/* A distributed checkpoint of torch under the names of transformers: what FSDP saves with
 * torch.distributed.checkpoint.save, in one directory, or as accelerate lays it down,
 *
 *   DIR/config.json                     the model's
 *   DIR/.metadata, DIR/__0_0.distcp     weights and states
 *   or DIR/pytorch_model_fsdp_0/.metadata and DIR/optimizer_0/.metadata
 */
#include <stdio.h>
#include <stdlib.h>

#include "distributed.h"
#include "formats.h"
#include "named_model.h"

static const char weights_name[] = "pytorch_model_fsdp_0", states_name[] = "optimizer_0";

static sl_status join(const char *directory, const char *name, char **out_path)
{
    return sl_files_join_path(name ? directory : NULL, name ? name : directory, out_path);
}

/* Whether a directory in another one is a checkpoint. */
static bool is_within(const char *directory, const char *name)
{
    char *path = NULL;
    if (join(directory, name, &path) != SL_OK)
        return false;
    const bool is_one = sl_distributed_is_at(path);
    free(path);
    return is_one;
}

static bool is_at(const char *path)
{
    return sl_distributed_is_at(path) || is_within(path, weights_name);
}

static sl_status open_parts(const char *directory, const char *name, sl_parts *out_parts)
{
    char *path = NULL;
    SL_TRY(join(directory, name, &path));
    const sl_status status = sl_distributed_open(path, out_parts);
    free(path);
    return status;
}

static sl_status open_pieces(const sl_model_pieces_args *args, sl_model_pieces *pieces)
{
    sl_parts weights = {0}, states = {0};
    const bool is_one = sl_distributed_is_at(args->path);
    SL_TRY(sl_named_model_need_config(args->path, "a distributed checkpoint"));
    SL_TRY(open_parts(args->path, is_one ? NULL : weights_name, &weights));
    const uint32_t file_count = weights.file_count;
    sl_status status = SL_OK;
    if (!is_one && is_within(args->path, states_name))
        status = open_parts(args->path, states_name, &states);
    if (status != SL_OK) {
        sl_parts_close(&weights);
        return status;
    }
    const sl_named_model_args named = {.directory = args->path, .step = UINT64_MAX};
    SL_TRY(sl_named_model_open(&named, &weights, &states, pieces));
    snprintf(pieces->kind, sizeof pieces->kind, "a distributed checkpoint of torch, %u files",
             file_count);
    return SL_OK;
}

const sl_model_pieces_format sl_model_pieces_torch = {.is_at = is_at, .open = open_pieces};
