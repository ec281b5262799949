/* A row of the table of architectures. Private to the room.
 *
 * To add an architecture: docs/add-a-model.md.
 */
#ifndef SL_MODEL_ROW_H
#define SL_MODEL_ROW_H

#include "architecture.h"

typedef struct sl_architecture {
    sl_status (*check)(const sl_model_shape *shape, uint32_t tp_size);
    uint64_t (*parameters)(const sl_model_shape *shape);
    uint64_t (*attention_width)(const sl_model_shape *shape); /* of all attentions together */
    sl_build build;                                           /* `user` is the shape */
    const char *attention_linears; /* the targets of adapters where none are named; NULL: none */

    /* Of architectures like Llama's (llama.h); else 0. */
    bool is_llama;
    bool has_qkv_bias, has_head_norms;
    bool has_whole_norms;           /* of all of q, and of all of k */
    double norm_epsilon, rope_base; /* where none is given */
} sl_architecture;

#define SL_ARCHITECTURE_ROW(KIND, name) extern const sl_architecture sl_##name##_architecture;
SL_ARCHITECTURES(SL_ARCHITECTURE_ROW)
#undef SL_ARCHITECTURE_ROW

/* The row of a shape's architecture. */
const sl_architecture *sl_architecture_of(const sl_model_shape *shape);

#endif
