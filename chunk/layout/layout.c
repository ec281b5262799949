/* Packs tensors into chunks. Knows sizes and order; knows nothing of groups, tiers and bytes.
 *
 * Invariants: every tensor starts on a block and lies in one chunk; chunk indices rise with tensor
 * indices; a block holds elements of one tensor at most, so a flag a block is exact.
 */
#include <stdlib.h>

#include "base/bits.h"
#include "base/status.h"
#include "chunk_size.h"
#include "sluice/chunk.h"

enum {
    ALL_GROUPS_BYTES = 4 * SL_GROUP_COUNT * 2, /* of an element at most, with room for gaps */
    /* Far above any machine, far below overflow: the sums and products here stay exact. */
    BLOCK_BITS_MAX = 48
};

/* Blocks of each tensor; [tensor_count], owned by the caller. */
static sl_status count_blocks(const sl_program *program, uint64_t **out_tensor_blocks)
{
    if (program->tensor_count == 0)
        SL_FAIL(SL_ERROR_USAGE, "the program has no tensors to lay out");
    uint64_t *blocks = calloc(program->tensor_count, sizeof *blocks);
    if (blocks == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to lay out %u tensors", program->tensor_count);
    uint64_t total = 0;
    for (uint32_t tensor = 0; tensor < program->tensor_count; tensor++) {
        const sl_tensor_spec *spec = &program->tensors[tensor];
        blocks[tensor] = sl_bits_divide_up(spec->element_count, SL_BLOCK_ELEMENTS);
        total += blocks[tensor]; /* each below 2^53, the sum so far below 2^48 */
        if (blocks[tensor] == 0 || total >> BLOCK_BITS_MAX != 0) {
            free(blocks);
            SL_FAIL(SL_ERROR_USAGE, "tensor %s of %llu elements cannot be laid out", spec->name,
                    (unsigned long long)spec->element_count);
        }
    }
    *out_tensor_blocks = blocks;
    return SL_OK;
}

static sl_status choose_chunk_blocks(const sl_program *program, const uint64_t *tensor_blocks,
                                     uint64_t chunk_elements, uint64_t *out_chunk_blocks)
{
    if (chunk_elements == 0) {
        *out_chunk_blocks = sl_chunk_size_search(tensor_blocks, program->tensor_count);
        return SL_OK;
    }
    uint64_t chunk_blocks = sl_bits_divide_up(chunk_elements, SL_BLOCK_ELEMENTS);
    uint32_t largest = 0;
    for (uint32_t tensor = 1; tensor < program->tensor_count; tensor++)
        if (tensor_blocks[tensor] > tensor_blocks[largest])
            largest = tensor;
    if (chunk_blocks < tensor_blocks[largest])
        SL_FAIL(SL_ERROR_USAGE,
                "a chunk of %llu elements cannot hold tensor %s: it must have at least %llu",
                (unsigned long long)chunk_elements, program->tensors[largest].name,
                (unsigned long long)(tensor_blocks[largest] * SL_BLOCK_ELEMENTS));
    *out_chunk_blocks = chunk_blocks;
    return SL_OK;
}

/* Arrays for `chunk_count` chunks of `chunk_blocks` blocks; their bytes over all groups must be
 * countable, so that no later sum of sizes can overflow. */
static sl_status open_layout(uint32_t tensor_count, uint64_t chunk_count, uint64_t chunk_blocks,
                             sl_layout **out_layout)
{
    uint64_t block_count, unused;
    SL_TRY(sl_bits_multiply(chunk_count, chunk_blocks, "the layout's size", &block_count));
    SL_TRY(sl_bits_multiply(block_count, (uint64_t)SL_BLOCK_ELEMENTS * ALL_GROUPS_BYTES,
                            "the layout's size", &unused));
    if (chunk_count >= SL_NONE)
        SL_FAIL(SL_ERROR_USAGE, "%llu chunks are too many", (unsigned long long)chunk_count);
    sl_layout *layout = calloc(1, sizeof *layout);
    if (layout == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the layout");
    layout->chunk_elements = chunk_blocks * SL_BLOCK_ELEMENTS;
    layout->chunk_count = (uint32_t)chunk_count;
    layout->tensor_count = tensor_count;
    layout->chunk_of_tensor = calloc(tensor_count, sizeof *layout->chunk_of_tensor);
    layout->first_element = calloc(tensor_count, sizeof *layout->first_element);
    layout->block_flags = calloc(block_count, sizeof *layout->block_flags);
    if (layout->chunk_of_tensor == NULL || layout->first_element == NULL ||
        layout->block_flags == NULL) {
        sl_layout_close(layout);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a layout of %u tensors and %llu blocks",
                tensor_count, (unsigned long long)block_count);
    }
    *out_layout = layout;
    return SL_OK;
}

static void set_decay(sl_layout *layout, uint64_t first_block, uint64_t block_count)
{
    for (uint64_t block = first_block; block < first_block + block_count; block++)
        layout->block_flags[block] = 1;
}

static void place_tensors(const sl_program *program, const uint64_t *tensor_blocks,
                          sl_layout *layout)
{
    uint64_t chunk_blocks = layout->chunk_elements / SL_BLOCK_ELEMENTS;
    uint64_t chunk_index = 0, filled = 0;
    for (uint32_t tensor = 0; tensor < program->tensor_count; tensor++) {
        const sl_tensor_spec *spec = &program->tensors[tensor];
        if (filled + tensor_blocks[tensor] > chunk_blocks) {
            chunk_index++;
            filled = 0;
        }
        layout->chunk_of_tensor[tensor] = (uint32_t)chunk_index;
        layout->first_element[tensor] = filled * SL_BLOCK_ELEMENTS;
        layout->valid_elements += spec->element_count;
        if (spec->decay)
            set_decay(layout, chunk_index * chunk_blocks + filled, tensor_blocks[tensor]);
        filled += tensor_blocks[tensor];
    }
    double capacity = (double)layout->chunk_count * (double)layout->chunk_elements;
    layout->padding_fraction = 1.0 - (double)layout->valid_elements / capacity;
}

sl_status sl_layout_build(const sl_program *program, uint64_t chunk_elements,
                          sl_layout **out_layout)
{
    uint64_t *tensor_blocks = NULL;
    uint64_t chunk_blocks = 0;
    sl_layout *layout = NULL;
    SL_TRY(count_blocks(program, &tensor_blocks));
    sl_status status;
    SL_TRY_GOTO(status, choose_chunk_blocks(program, tensor_blocks, chunk_elements, &chunk_blocks),
                free_blocks);
    sl_chunk_packing packing =
        sl_chunk_size_pack(tensor_blocks, program->tensor_count, chunk_blocks);
    SL_TRY_GOTO(status,
                open_layout(program->tensor_count, packing.chunk_count, chunk_blocks, &layout),
                free_blocks);
    place_tensors(program, tensor_blocks, layout);
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        layout->group_type[group] = sl_program_group_type(program, (sl_group)group);
    *out_layout = layout;
free_blocks:
    free(tensor_blocks);
    return status;
}

void sl_layout_close(sl_layout *layout)
{
    if (layout == NULL)
        return;
    free(layout->block_flags);
    free(layout->chunk_of_tensor);
    free(layout->first_element);
    free(layout);
}

uint64_t sl_layout_chunk_bytes(const sl_layout *layout, sl_group group)
{
    return layout->chunk_elements * sl_type_bytes(layout->group_type[group]);
}
