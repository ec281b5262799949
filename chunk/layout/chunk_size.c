/* Searches the chunk size that costs the least memory; the model is ColossalAI Gemini's search.
 *
 * Like Gemini: tensors in order, sizes from the largest tensor up over 32 Mi elements, ties go to
 * the smaller size. Unlike Gemini:
 *
 * - The score is (chunk count + 1) * chunk size, not the waste alone: what a group holds, padding
 *   included, and one chunk more. Whatever moves needs a slot of a whole chunk where it visits,
 * about one at a time for each group; and without that term one chunk that holds the whole model,
 * which placement can do nothing with, would be best because it pads nothing.
 * - Only sizes at which the packing changes are tried. Between two of them the packing is the same
 *   and a larger size only pads more, so skipping the rest loses nothing. next_blocks is exact: a
 *   packing differs as soon as some chunk can take the tensor that did not fit.
 *
 * Programs with very many different tensors would give too many sizes; then a least step between
 * sizes, fixed by the shapes alone, keeps the work below PLACEMENT_LIMIT tensor placements.
 */
#include "chunk_size.h"

#include "base/bits.h"
#include "sluice/op_list.h"

enum {
    RANGE_BLOCKS = (32 << 20) / SL_BLOCK_ELEMENTS,
    PLACEMENT_LIMIT = 16 << 20, /* about 20 ms */
};

sl_chunk_packing sl_chunk_size_pack(const uint64_t *tensor_blocks, uint32_t tensor_count,
                                    uint64_t chunk_blocks)
{
    sl_chunk_packing packing = {1, 0, UINT64_MAX};
    uint64_t filled = 0;
    for (uint32_t tensor = 0; tensor < tensor_count; tensor++) {
        uint64_t grown = filled + tensor_blocks[tensor];
        if (grown > chunk_blocks) {
            if (grown < packing.next_blocks)
                packing.next_blocks = grown;
            packing.chunk_count++;
            grown = tensor_blocks[tensor];
        }
        filled = grown;
        if (filled > packing.fullest_blocks)
            packing.fullest_blocks = filled;
    }
    return packing;
}

uint64_t sl_chunk_size_search(const uint64_t *tensor_blocks, uint32_t tensor_count)
{
    uint64_t largest_blocks = 0, total_blocks = 0;
    for (uint32_t tensor = 0; tensor < tensor_count; tensor++) {
        total_blocks += tensor_blocks[tensor];
        if (tensor_blocks[tensor] > largest_blocks)
            largest_blocks = tensor_blocks[tensor];
    }
    uint64_t range_blocks = total_blocks - largest_blocks;
    range_blocks = range_blocks < RANGE_BLOCKS ? range_blocks : RANGE_BLOCKS;
    uint64_t step_blocks = sl_bits_divide_up((range_blocks + 1) * tensor_count, PLACEMENT_LIMIT);

    uint64_t best_blocks = 0, best_score = UINT64_MAX;
    for (uint64_t size = largest_blocks; size <= largest_blocks + range_blocks;) {
        sl_chunk_packing packing = sl_chunk_size_pack(tensor_blocks, tensor_count, size);
        uint64_t score = (packing.chunk_count + 1) * packing.fullest_blocks;
        if (score < best_score) {
            best_score = score;
            best_blocks = packing.fullest_blocks;
        }
        uint64_t stepped = size + step_blocks;
        size = stepped > packing.next_blocks ? stepped : packing.next_blocks;
    }
    return best_blocks;
}
