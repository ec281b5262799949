/* How tensors are packed and how large a chunk is, in blocks. Private to chunk/layout. */
#ifndef SL_CHUNK_LAYOUT_LAYOUT_H
#define SL_CHUNK_LAYOUT_LAYOUT_H

#include <stdint.h>

/* What packing tensors in order into chunks of one size gives. */
typedef struct sl_layout_packing {
    uint64_t chunk_count;
    uint64_t fullest_blocks; /* of the fullest chunk: a smaller size packs alike down to it */
    uint64_t next_blocks;    /* the least size that packs otherwise; UINT64_MAX if none does */
} sl_layout_packing;

/* Packs tensors of `tensor_blocks` [tensor_count] blocks in order, none across chunks. No tensor
 * may be larger than `chunk_blocks`. */
sl_layout_packing sl_layout_pack(const uint64_t *tensor_blocks, uint32_t tensor_count,
                                 uint64_t chunk_blocks);

/* The chunk size, in blocks, that costs the least memory; layout.c says how that is scored.
 * tensor_count > 0; the sum of tensor_blocks is below 2^48. */
uint64_t sl_layout_find_chunk_blocks(const uint64_t *tensor_blocks, uint32_t tensor_count);

#endif
