/* What Megatron-LM calls the tensors of a GPT-2, and how it divides each among the ranks of a
 * tensor-parallel group. For the reader and the writer of its pieces. */
#ifndef SL_FOREIGN_MEGATRON_TENSORS_H
#define SL_FOREIGN_MEGATRON_TENSORS_H

#include "gpt2_tensors.h"

#define SL_MEGATRON_TRACKER "latest_checkpointed_iteration.txt"
#define SL_MEGATRON_CORE_FRONT "decoder" /* before the names of layers in Megatron Core */

enum {
    SL_MEGATRON_NAMES_MAX = 4,
    SL_MEGATRON_NAME_BYTES = 160,
    SL_MEGATRON_VOCAB_UNIT = 128 /* what Megatron pads ids to, times the tensor-parallel ranks */
};

typedef enum sl_megatron_split {
    SL_MEGATRON_WHOLE, /* each rank has all */
    SL_MEGATRON_ROWS,
    SL_MEGATRON_COLUMNS,
    SL_MEGATRON_HEADS /* rows, of query, key and value by heads */
} sl_megatron_split;

/* Names behind "layers.N." where there is one of each layer; the last is that of Megatron Core with
 * TransformerEngine, where norms belong to the linear layer behind them. */
typedef struct sl_megatron_kind {
    const char *names[SL_MEGATRON_NAMES_MAX];
    sl_megatron_split split;
} sl_megatron_kind;

extern const sl_megatron_kind sl_megatron_kinds[SL_LLMC_KIND_COUNT];

typedef struct sl_megatron_name {
    char text[SL_MEGATRON_NAME_BYTES];
} sl_megatron_name;

/* Whether a tensor's name has something in front, as "decoder"; embeddings have not. */
bool sl_megatron_tensors_has_front(sl_llmc_kind kind);

/* "decoder.layers.3." and the name, of one of each layer. */
sl_megatron_name sl_megatron_tensors_name(const sl_gpt2_tensor *tensor, const char *front,
                                          const char *name);

/* The same as Megatron Core has it. */
sl_megatron_name sl_megatron_tensors_core_name(const sl_gpt2_tensor *tensor);

/* The directory of a piece: "mp_rank_01", or of stages "mp_rank_01_003". */
sl_megatron_name sl_megatron_tensors_piece(uint32_t tp_rank, uint32_t pp_rank, bool has_stages);

#endif
