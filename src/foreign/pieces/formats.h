/* The formats of model_pieces.h, one row each. */
#ifndef SL_FOREIGN_PIECES_FORMATS_H
#define SL_FOREIGN_PIECES_FORMATS_H

#include "model_pieces.h"

typedef struct sl_model_pieces_format {
    bool (*is_at)(const char *path);
    /* Fills in all but the path, which is there, and may be replaced by that of a directory in it.
     * What it opened stays closed on failure. */
    sl_status (*open)(const sl_model_pieces_args *args, sl_model_pieces *out_pieces);
} sl_model_pieces_format;

extern const sl_model_pieces_format sl_model_pieces_megatron, sl_model_pieces_core,
    sl_model_pieces_torch, sl_model_pieces_universal;

/* Whether a name is in a directory. */
bool sl_model_pieces_has(const char *directory, const char *name);

#endif
