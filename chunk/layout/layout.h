/* How tensors are packed and how large a chunk is, in blocks. Private to chunk/layout. */
#ifndef SL_CHUNK_LAYOUT_LAYOUT_H
#define SL_CHUNK_LAYOUT_LAYOUT_H

#include <stdint.h>

/* The result of packing tensors in order into chunks of one size. */
typedef struct sl_layout_packing {
    uint64_t chunk_count;
    uint64_t fullest_blocks; /* of the fullest chunk: the least size with this packing */
    uint64_t next_blocks;    /* the least larger size with another packing; UINT64_MAX: none */
} sl_layout_packing;

/* Packs tensors in order; no tensor straddles two chunks. tensor_blocks: [tensor_count], the blocks
 * of each tensor, none more than `chunk_blocks`. */
sl_layout_packing sl_layout_pack(const uint64_t *tensor_blocks, uint32_t tensor_count,
                                 uint64_t chunk_blocks);

/* The chunk size, in blocks, that costs the least memory; layout.c has the score. tensor_count > 0;
 * the sum of tensor_blocks is below 2^48. */
uint64_t sl_layout_find_chunk_blocks(const uint64_t *tensor_blocks, uint32_t tensor_count);

#endif
