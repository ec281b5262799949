/* Packs tensors into chunks, and chooses how large a chunk is. Knows sizes, order and rules; knows
 * nothing of tiers.
 *
 * Invariants: every tensor starts on a block and lies in one chunk; the tensors of a chunk have one
 * rule and stand in it in their order; a block holds elements of at most one tensor, so one flag
 * per block is exact. A chunk is as long as what it holds, rounded up to equal shards.
 *
 * Each rule has an open chunk. The next tensor of the rule goes there, or opens another chunk if it
 * does not fit. So chunks are numbered by their first tensors.
 *
 * The chunk size is the most that a chunk holds, and the slot of a chunk that visits another tier
 * (sl_layout_slot_bytes). Slots are equal, so that any chunk fits where another was. If they were
 * as long as their chunks, a tight budget would be lost to holes between them.
 *
 * The size is the one that costs the least room for visits; the model is ColossalAI Gemini's
 * search.
 * Like Gemini: tensors in order, sizes from the largest tensor up over 32 Mi elements, ties go to
 * the smaller size. Unlike Gemini:
 *
 * - The score is (chunk count + 1) * chunk size, not what chunks leave empty: the slots that a
 *   group takes where all of it visits, and one more, for the chunk that comes while the others are
 *   in use. Without that extra slot, one chunk for the whole model would have the best score,
 *   because it leaves nothing empty; but then there is nothing to place.
 * - Only sizes at which the packing changes are tried. Between two of these sizes the packing is
 *   the same and a larger size only makes larger slots, so the best size is never skipped.
 *   next_blocks is exact: the packing changes as soon as some chunk has room for the tensor that
 *   did not fit.
 *
 * A program with very many tensors would have too many sizes to try. Then a least step between
 * sizes, which depends on the shapes alone, limits the work to about PLACEMENT_LIMIT placements of
 * a tensor.
 */
#include "layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/hash.h"
#include "base/status.h"
#include "chunk/chunk.h"
#include "program/op_list.h"

enum {
    ALL_GROUPS_BYTES = 4 * SL_GROUP_COUNT * 2, /* upper bound of an element's bytes in all groups,
                                                  doubled for gaps between chunks */
    /* Far more than any machine holds, and small enough that sums and products do not overflow. */
    BLOCK_BITS_MAX = 48,
    RANGE_BLOCKS = (32 << 20) / SL_BLOCK_ELEMENTS,
    PLACEMENT_LIMIT = 16 << 20, /* about 20 ms */
};

/* ---- the chunk size ---- */

sl_layout_packing sl_layout_pack(const uint64_t *tensor_blocks, uint32_t tensor_count,
                                 uint64_t chunk_blocks)
{
    sl_layout_packing packing = {1, 0, UINT64_MAX};
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

uint64_t sl_layout_find_chunk_blocks(const uint64_t *tensor_blocks, uint32_t tensor_count)
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
        sl_layout_packing packing = sl_layout_pack(tensor_blocks, tensor_count, size);
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

/* ---- the layout ---- */

/* Counts the blocks of each tensor, [tensor_count], owned by the caller, and of all. */
static sl_status count_blocks(const sl_program *program, uint64_t **out_tensor_blocks,
                              uint64_t *out_total)
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
        total += blocks[tensor]; /* a term is below 2^53, the sum before it below 2^48 */
        if (blocks[tensor] == 0 || total >> BLOCK_BITS_MAX != 0) {
            free(blocks);
            SL_FAIL(SL_ERROR_USAGE, "tensor %s of %llu elements cannot be laid out", spec->name,
                    (unsigned long long)spec->element_count);
        }
    }
    *out_tensor_blocks = blocks;
    *out_total = total;
    return SL_OK;
}

static sl_status check_chunk_size(const sl_program *program, const uint64_t *tensor_blocks,
                                  uint64_t chunk_elements)
{
    uint32_t largest = 0;
    for (uint32_t tensor = 1; tensor < program->tensor_count; tensor++)
        if (tensor_blocks[tensor] > tensor_blocks[largest])
            largest = tensor;
    if (sl_bits_divide_up(chunk_elements, SL_BLOCK_ELEMENTS) < tensor_blocks[largest])
        SL_FAIL(SL_ERROR_USAGE,
                "a chunk of %llu elements cannot hold tensor %s: it must have at least %llu",
                (unsigned long long)chunk_elements, program->tensors[largest].name,
                (unsigned long long)(tensor_blocks[largest] * SL_BLOCK_ELEMENTS));
    return SL_OK;
}

/* How the tensors of one rule are packed. */
typedef struct rule_packing {
    uint64_t chunk_count;  /* 0: no tensor has the rule */
    uint64_t chunk_blocks; /* the most that a chunk has */
    uint32_t open_chunk;   /* the chunk that the next tensor goes to, if it fits */
    uint64_t filled;       /* blocks of that chunk; UINT64_MAX: none is open */
} rule_packing;

typedef struct packing {
    rule_packing rules[SL_RULE_COUNT];
    uint64_t chunk_count; /* of all rules */
} packing;

/* With shards, a chunk's blocks are a multiple of dp_size, because all shards have equal size. */
static uint64_t round_to_shards(const sl_program *program, uint64_t blocks)
{
    return sl_program_has_shards(program) ? sl_bits_round_up(blocks, program->dp_size) : blocks;
}

/* Writes the blocks of the rule's tensors; returns their number. */
static uint32_t list_own(const sl_program *program, const uint64_t *tensor_blocks, int rule,
                         uint64_t *own_blocks)
{
    uint32_t count = 0;
    for (uint32_t tensor = 0; tensor < program->tensor_count; tensor++)
        if ((int)program->tensors[tensor].rule == rule)
            own_blocks[count++] = tensor_blocks[tensor];
    return count;
}

/* Chooses the chunk size of each rule. A given size is that of the rule with the largest chunks;
 * those of the others are scaled alike, but hold their largest tensor. */
static void choose_sizes(const sl_program *program, const uint64_t *tensor_blocks, uint64_t given,
                         uint64_t *own_blocks, packing *out_packing)
{
    uint64_t most = 0;
    for (int rule = 0; rule < SL_RULE_COUNT; rule++) {
        const uint32_t count = list_own(program, tensor_blocks, rule, own_blocks);
        uint64_t *blocks = &out_packing->rules[rule].chunk_blocks;
        if (count > 0)
            *blocks =
                round_to_shards(program, given > 0 && count == program->tensor_count
                                             ? given
                                             : sl_layout_find_chunk_blocks(own_blocks, count));
        most = sl_bits_max(most, *blocks);
    }
    for (int rule = 0; rule < SL_RULE_COUNT && given > 0; rule++) {
        uint64_t *blocks = &out_packing->rules[rule].chunk_blocks, largest = 0;
        const uint32_t count = list_own(program, tensor_blocks, rule, own_blocks);
        for (uint32_t i = 0; i < count; i++)
            largest = sl_bits_max(largest, own_blocks[i]);
        const double scaled = (double)*blocks * ((double)given / (double)most);
        *blocks = *blocks == most ? given : sl_bits_max(largest, (uint64_t)scaled);
        *blocks = round_to_shards(program, *blocks);
    }
}

static sl_status pack_rules(const sl_program *program, const uint64_t *tensor_blocks,
                            uint64_t given, packing *out_packing)
{
    uint64_t *own_blocks = calloc(program->tensor_count, sizeof *own_blocks); /* of one rule */
    *out_packing = (packing){0};
    if (own_blocks == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to lay out %u tensors", program->tensor_count);
    choose_sizes(program, tensor_blocks, given, own_blocks, out_packing);
    for (int rule = 0; rule < SL_RULE_COUNT; rule++) {
        rule_packing *it = &out_packing->rules[rule];
        const uint32_t count = list_own(program, tensor_blocks, rule, own_blocks);
        it->filled = UINT64_MAX;
        if (count > 0)
            it->chunk_count = sl_layout_pack(own_blocks, count, it->chunk_blocks).chunk_count;
        out_packing->chunk_count += it->chunk_count;
    }
    free(own_blocks);
    return SL_OK;
}

/* Allocates arrays for the chunks of `packed`. */
static sl_status open_layout(uint32_t tensor_count, const packing *packed, sl_layout **out_layout)
{
    const uint64_t chunk_count = packed->chunk_count;
    if (chunk_count >= SL_NONE)
        SL_FAIL(SL_ERROR_USAGE, "%llu chunks are too many", (unsigned long long)chunk_count);
    sl_layout *layout = calloc(1, sizeof *layout);
    if (layout == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the layout");
    layout->chunk_count = (uint32_t)chunk_count;
    layout->tensor_count = tensor_count;
    layout->chunks = calloc(chunk_count, sizeof *layout->chunks);
    layout->chunk_of_tensor = calloc(tensor_count, sizeof *layout->chunk_of_tensor);
    layout->first_element = calloc(tensor_count, sizeof *layout->first_element);
    layout->tensor_blocks = calloc(tensor_count, sizeof *layout->tensor_blocks);
    layout->tensor_flags = calloc(tensor_count, sizeof *layout->tensor_flags);
    layout->padding = calloc(tensor_count, sizeof *layout->padding);
    layout->first_padding = calloc(chunk_count + 1, sizeof *layout->first_padding);
    if (layout->chunks == NULL || layout->chunk_of_tensor == NULL ||
        layout->first_element == NULL || layout->tensor_blocks == NULL ||
        layout->tensor_flags == NULL || layout->padding == NULL || layout->first_padding == NULL) {
        sl_layout_close(layout);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a layout of %u tensors and %llu chunks",
                tensor_count, (unsigned long long)chunk_count);
    }
    *out_layout = layout;
    return SL_OK;
}

static void divide_chunks(const sl_program *program, sl_layout *layout)
{
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        layout->group_type[group] = sl_program_group_type(program, (sl_group)group);
        layout->shard_count[group] = sl_program_shard_count(program, (sl_group)group);
    }
    layout->states = program->states;
    layout->frozen = program->frozen;
    layout->master = program->master;
    if (sl_program_has_shards(program))
        layout->shard_index = program->dp_rank;
}

/* With several ranks: marks the tensors whose blocks this rank adds to the gradient norm. Of the
 * ranks that hold the same block, one adds the block. */
static void choose_counted(const sl_program *program, sl_layout *layout)
{
    layout->has_counts = sl_program_counts_blocks(program);
    layout->counts_shard_alone = sl_program_has_shards(program);
    for (uint32_t tensor = 0; tensor < program->tensor_count; tensor++) {
        const sl_tensor_spec *spec = &program->tensors[tensor];
        const bool is_copy = spec->is_tied && program->stage_index > 0;
        const bool is_here = !is_copy && (layout->counts_shard_alone || program->dp_rank == 0);
        const bool is_first =
            spec->split == SL_SPLIT_NONE ? program->tp_rank == 0 : spec->replica_index == 0;
        if (is_here && is_first)
            layout->tensor_flags[tensor] |= SL_BLOCK_COUNTS;
    }
}

/* Elements behind the tensor that belong to none, up to the next tensor of the chunk or, behind the
 * last one, to the end of the chunk. */
static sl_padding find_padding(const sl_program *program, const sl_layout *layout, uint32_t tensor,
                               bool is_last)
{
    const uint64_t first = layout->first_element[tensor];
    const uint64_t end = first + program->tensors[tensor].element_count;
    const uint64_t next = is_last ? layout->chunks[layout->chunk_of_tensor[tensor]].elements
                                  : first + layout->tensor_blocks[tensor] * SL_BLOCK_ELEMENTS;
    return (sl_padding){end, next - end};
}

/* Lists the padding of each chunk, in the order of chunks. `last`: the last tensor of each chunk;
 * `filled`: scratch; both [chunk_count]. */
static void list_padding(const sl_program *program, const uint32_t *last, uint32_t *filled,
                         sl_layout *layout)
{
    for (uint32_t tensor = 0; tensor < layout->tensor_count; tensor++) {
        const uint32_t c = layout->chunk_of_tensor[tensor];
        if (find_padding(program, layout, tensor, last[c] == tensor).count > 0)
            layout->first_padding[c + 1]++;
    }
    for (uint32_t c = 0; c < layout->chunk_count; c++) {
        filled[c] = layout->first_padding[c];
        layout->first_padding[c + 1] += layout->first_padding[c];
    }
    for (uint32_t tensor = 0; tensor < layout->tensor_count; tensor++) {
        const uint32_t c = layout->chunk_of_tensor[tensor];
        const sl_padding padding = find_padding(program, layout, tensor, last[c] == tensor);
        if (padding.count > 0)
            layout->padding[filled[c]++] = padding;
    }
}

static sl_status find_all_padding(const sl_program *program, sl_layout *layout)
{
    uint32_t *last = calloc(2ull * layout->chunk_count, sizeof *last);
    if (last == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the padding of %u chunks", layout->chunk_count);
    for (uint32_t tensor = 0; tensor < layout->tensor_count; tensor++)
        last[layout->chunk_of_tensor[tensor]] = tensor;
    list_padding(program, last, last + layout->chunk_count, layout);
    free(last);
    return SL_OK;
}

static uint8_t choose_rate(const sl_tensor_spec *spec)
{
    if (spec->rate > 0)
        return spec->rate & SL_BLOCK_RATE;
    return spec->decay ? SL_RATE_DECAYS : SL_RATE_PLAIN;
}

/* Gives each tensor its place. A chunk's elements are those of its tensors until size_chunks. */
static void place_tensors(const sl_program *program, const uint64_t *tensor_blocks, packing *packed,
                          sl_layout *layout)
{
    uint32_t chunk_count = 0;
    for (uint32_t tensor = 0; tensor < program->tensor_count; tensor++) {
        const sl_tensor_spec *spec = &program->tensors[tensor];
        rule_packing *to = &packed->rules[spec->rule];
        if (to->filled == UINT64_MAX || to->filled + tensor_blocks[tensor] > to->chunk_blocks) {
            to->open_chunk = chunk_count++;
            to->filled = 0;
        }
        layout->chunk_of_tensor[tensor] = to->open_chunk;
        layout->first_element[tensor] = to->filled * SL_BLOCK_ELEMENTS;
        layout->valid_elements += spec->element_count;
        layout->tensor_flags[tensor] = choose_rate(spec);
        layout->tensor_blocks[tensor] = tensor_blocks[tensor];
        to->filled += tensor_blocks[tensor];
        layout->chunks[to->open_chunk].rule = spec->rule;
        layout->chunks[to->open_chunk].elements = to->filled * SL_BLOCK_ELEMENTS;
    }
}

/* Makes chunks as long as their tensors. The bytes of all groups must fit 64 bits, so that no later
 * sum of sizes can overflow. */
static sl_status size_chunks(const sl_program *program, const packing *packed, sl_layout *layout)
{
    static const char what[] = "the layout's size";
    uint64_t unused;
    for (uint32_t c = 0; c < layout->chunk_count; c++) {
        sl_chunk *chunk = &layout->chunks[c];
        const uint64_t blocks = round_to_shards(program, chunk->elements / SL_BLOCK_ELEMENTS);
        chunk->elements = blocks * SL_BLOCK_ELEMENTS;
        chunk->first_block = layout->block_count;
        layout->largest_elements = sl_bits_max(layout->largest_elements, chunk->elements);
        SL_TRY(sl_bits_add(layout->block_count, blocks, what, &layout->block_count));
    }
    SL_TRY(sl_bits_multiply(layout->block_count, (uint64_t)SL_BLOCK_ELEMENTS * ALL_GROUPS_BYTES,
                            what, &unused));
    for (int rule = 0; rule < SL_RULE_COUNT; rule++) {
        layout->size_of_rule[rule] = packed->rules[rule].chunk_blocks * SL_BLOCK_ELEMENTS;
        layout->chunk_elements = sl_bits_max(layout->chunk_elements, layout->size_of_rule[rule]);
    }
    const double capacity = (double)layout->block_count * SL_BLOCK_ELEMENTS;
    layout->padding_fraction = 1.0 - (double)layout->valid_elements / capacity;
    return SL_OK;
}

static bool has_states(const sl_layout *layout)
{
    for (uint32_t c = 0; c < layout->chunk_count; c++)
        if (sl_rule_stores(layout->chunks[c].rule, SL_GROUP_STATE1))
            return true;
    return false;
}

static sl_status find_draws(const sl_program *program, sl_layout *layout)
{
    if (program->states != SL_STATES_BF16 || !has_states(layout))
        return SL_OK;
    layout->draws = calloc(layout->tensor_count, sizeof *layout->draws);
    if (layout->draws == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the draws of %u tensors", layout->tensor_count);
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        const sl_tensor_spec *spec = &program->tensors[t];
        layout->draws[t] =
            (sl_draw_source){sl_hash_64(spec->name, strlen(spec->name)), sl_run_of_tensor(spec)};
    }
    return SL_OK;
}

sl_status sl_layout_build(const sl_program *program, uint64_t chunk_elements,
                          sl_layout **out_layout)
{
    uint64_t *tensor_blocks = NULL, total_blocks;
    packing packed;
    sl_layout *layout = NULL;
    SL_TRY(count_blocks(program, &tensor_blocks, &total_blocks));
    sl_status status = SL_OK;
    if (chunk_elements > 0)
        SL_TRY_GOTO(status, check_chunk_size(program, tensor_blocks, chunk_elements), free_blocks);
    const uint64_t given =
        sl_bits_min(sl_bits_divide_up(chunk_elements, SL_BLOCK_ELEMENTS), total_blocks);
    SL_TRY_GOTO(status, pack_rules(program, tensor_blocks, given, &packed), free_blocks);
    SL_TRY_GOTO(status, open_layout(program->tensor_count, &packed, &layout), free_blocks);
    memcpy(layout->rates, program->rates, sizeof layout->rates);
    layout->rate_count = program->rate_count;
    place_tensors(program, tensor_blocks, &packed, layout);
    SL_TRY_GOTO(status, size_chunks(program, &packed, layout), free_blocks);
    SL_TRY_GOTO(status, find_all_padding(program, layout), free_blocks);
    SL_TRY_GOTO(status, find_draws(program, layout), free_blocks);
    divide_chunks(program, layout);
    choose_counted(program, layout);
    *out_layout = layout;
    layout = NULL;
free_blocks:
    sl_layout_close(layout);
    free(tensor_blocks);
    return status;
}

void sl_layout_close(sl_layout *layout)
{
    if (layout == NULL)
        return;
    free(layout->chunks);
    free(layout->tensor_blocks);
    free(layout->tensor_flags);
    free(layout->draws);
    free(layout->padding);
    free(layout->first_padding);
    free(layout->chunk_of_tensor);
    free(layout->first_element);
    free(layout);
}

/* A block of another rank's shard counts there. All states have the same shards. */
static void clear_other_shards(const sl_layout *layout, uint8_t *flags)
{
    for (uint32_t c = 0; c < layout->chunk_count; c++) {
        const sl_stored shard = sl_layout_stored(layout, SL_GROUP_STATE1, c);
        const uint64_t blocks = layout->chunks[c].elements / SL_BLOCK_ELEMENTS;
        const uint64_t first = shard.first / SL_BLOCK_ELEMENTS;
        const uint64_t end = first + shard.count / SL_BLOCK_ELEMENTS;
        uint8_t *chunk_flags = flags + layout->chunks[c].first_block;
        memset(chunk_flags, 0, first);
        memset(chunk_flags + end, 0, blocks - end);
    }
}

void sl_layout_write_flags(const sl_layout *layout, sl_block_flag flag, uint8_t *out_flags)
{
    memset(out_flags, 0, layout->block_count);
    for (uint32_t tensor = 0; tensor < layout->tensor_count; tensor++) {
        const uint64_t first = layout->chunks[layout->chunk_of_tensor[tensor]].first_block +
                               layout->first_element[tensor] / SL_BLOCK_ELEMENTS;
        const uint8_t value = layout->tensor_flags[tensor] & (uint8_t)flag;
        memset(out_flags + first, flag == SL_BLOCK_COUNTS ? value != 0 : value,
               layout->tensor_blocks[tensor]);
    }
    if (flag == SL_BLOCK_COUNTS && layout->counts_shard_alone)
        clear_other_shards(layout, out_flags);
}

/* ---- what is stored of each block ---- */

uint64_t sl_layout_keys_offset(const sl_layout *layout)
{
    return sl_bits_round_up(layout->block_count, sizeof(uint64_t));
}

uint64_t sl_layout_table_bytes(const sl_layout *layout)
{
    if (layout->draws == NULL)
        return layout->block_count;
    return sl_layout_keys_offset(layout) + layout->block_count * sizeof(uint64_t);
}

/* Padding at the start of a block is skipped: what it draws is not seen. */
static uint64_t make_key(const sl_draw_source *source, uint64_t first)
{
    sl_run_piece piece = sl_run_piece_at(&source->run, first, first + SL_BLOCK_ELEMENTS);
    if (piece.is_padding && piece.count < SL_BLOCK_ELEMENTS)
        piece = sl_run_piece_at(&source->run, first + piece.count, first + SL_BLOCK_ELEMENTS);
    const uint64_t words[] = {source->name_hash, piece.whole};
    return piece.is_padding ? 0 : sl_hash_64(words, sizeof words);
}

void sl_layout_write_keys(const sl_layout *layout, uint64_t *out_keys)
{
    memset(out_keys, 0, layout->block_count * sizeof *out_keys);
    for (uint32_t t = 0; t < layout->tensor_count; t++) {
        const uint64_t first = layout->chunks[layout->chunk_of_tensor[t]].first_block +
                               layout->first_element[t] / SL_BLOCK_ELEMENTS;
        for (uint64_t b = 0; b < layout->tensor_blocks[t]; b++)
            out_keys[first + b] = make_key(&layout->draws[t], b * SL_BLOCK_ELEMENTS);
    }
}

sl_stored sl_layout_stored(const sl_layout *layout, sl_group group, uint32_t chunk_index)
{
    const uint64_t elements = layout->chunks[chunk_index].elements;
    if (layout->shard_count[group] <= 1)
        return (sl_stored){0, elements};
    const uint64_t count = elements / layout->shard_count[group];
    return (sl_stored){layout->shard_index * count, count};
}

uint32_t sl_layout_find_chunk(const sl_layout *layout, uint64_t block)
{
    uint32_t first = 0, end = layout->chunk_count;
    while (first < end) {
        const uint32_t middle = first + (end - first) / 2;
        if (layout->chunks[middle].first_block < block)
            first = middle + 1;
        else
            end = middle;
    }
    return first < layout->chunk_count && layout->chunks[first].first_block == block ? first
                                                                                     : SL_NONE;
}

uint64_t sl_layout_block_bytes(const sl_layout *layout, sl_group group, uint32_t chunk_index)
{
    const sl_stored_types types = {layout->group_type[SL_GROUP_PARAM],
                                   layout->group_type[SL_GROUP_GRAD], layout->states,
                                   layout->frozen, layout->master};
    return sl_rule_block_bytes(layout->chunks[chunk_index].rule, group, &types);
}

uint64_t sl_layout_chunk_bytes(const sl_layout *layout, sl_group group, uint32_t chunk_index)
{
    const uint64_t elements = sl_layout_stored(layout, group, chunk_index).count;
    return sl_chunk_bytes(elements / SL_BLOCK_ELEMENTS,
                          sl_layout_block_bytes(layout, group, chunk_index));
}

uint64_t sl_layout_slot_bytes(const sl_layout *layout, sl_group group, uint32_t chunk_index)
{
    const uint64_t shards = sl_bits_max(layout->shard_count[group], 1);
    const uint64_t full = layout->size_of_rule[layout->chunks[chunk_index].rule] / shards;
    const uint64_t own = sl_layout_stored(layout, group, chunk_index).count;
    return sl_chunk_bytes(sl_bits_max(full, own) / SL_BLOCK_ELEMENTS,
                          sl_layout_block_bytes(layout, group, chunk_index));
}
