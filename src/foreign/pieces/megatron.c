/* Megatron-LM's own pieces as a format of model_pieces.h: one file for each rank
 * (megatron_model.h). Their optimizer's states are passed over. */
#include <stdio.h>
#include <stdlib.h>

#include "files/files.h"
#include "foreign/megatron_model.h"
#include "formats.h"

static sl_status read_model(void *self, sl_group group, const sl_foreign_tensor *tensor,
                            uint64_t first_element, uint64_t element_count, float *out_data)
{
    if (group != SL_GROUP_PARAM)
        SL_FAIL(SL_ERROR_INTERNAL, "states of Megatron-LM's pieces are not read");
    return sl_megatron_model_read(self, tensor, first_element, element_count, out_data);
}

static void close_model(void *self)
{
    sl_megatron_model_close(self);
}

static const sl_model_pieces_ops ops = {.read = read_model, .close = close_model};

static sl_status open_pieces(const sl_model_pieces_args *args, sl_model_pieces *pieces)
{
    sl_megatron_model *model;
    char *path = NULL;
    SL_TRY(sl_megatron_model_open(args->path, args->heads, &model));
    const sl_status status = sl_files_join_path(NULL, sl_megatron_model_path(model), &path);
    if (status != SL_OK) {
        sl_megatron_model_close(model);
        return status;
    }
    free(pieces->path);
    pieces->path = path;
    pieces->ops = &ops;
    pieces->self = model;
    pieces->shape = sl_megatron_model_shape(model);
    pieces->is_out_in = true;
    snprintf(pieces->kind, sizeof pieces->kind, "%s", sl_megatron_model_kind(model));
    snprintf(pieces->no_states, sizeof pieces->no_states,
             "those of Megatron-LM's pieces have the order of its parameter groups");
    return SL_OK;
}

const sl_model_pieces_format sl_model_pieces_megatron = {.is_at = sl_megatron_model_is_at,
                                                         .open = open_pieces};
