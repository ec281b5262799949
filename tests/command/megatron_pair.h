/* Megatron's pairs, made here from their layout (src/files/megatron_index.h), and pairs that break
 * one rule each, with words of the message that must come out: exit code 65. */
#ifndef SL_TESTS_MEGATRON_PAIR_H
#define SL_TESTS_MEGATRON_PAIR_H

#include "scratch_dir.h"

enum { MEGATRON_IDS_MAX = 1 << 16, MEGATRON_SEQUENCES_MAX = 4096, MEGATRON_KEEP = -1 };

typedef struct megatron_pair {
    int is_wide; /* int32; else uint16 */
    uint32_t sequence_count, bound_count;
    int32_t lengths[MEGATRON_SEQUENCES_MAX];
    int64_t bounds[MEGATRON_SEQUENCES_MAX + 1];
    uint32_t id_count;
    int32_t ids[MEGATRON_IDS_MAX];
} megatron_pair;

static inline void megatron_put(FILE *file, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        fputc((int)(value >> (8 * i) & 255), file);
}

/* Writes `directory`/NAME.bin and .idx. */
static inline void megatron_write(const megatron_pair *pair, const char *directory,
                                  const char *name)
{
    char file_name[64];
    snprintf(file_name, sizeof file_name, "%s.bin", name);
    FILE *bin = fopen(scratch_join(directory, file_name).text, "wb");
    snprintf(file_name, sizeof file_name, "%s.idx", name);
    FILE *idx = fopen(scratch_join(directory, file_name).text, "wb");
    scratch_need(bin && idx, name);
    int id_bytes = pair->is_wide ? 4 : 2;
    uint64_t place = 0;
    for (uint32_t i = 0; i < pair->id_count; i++)
        megatron_put(bin, (uint32_t)pair->ids[i], id_bytes);
    fwrite("MMIDIDX\0\0", 1, 9, idx);
    megatron_put(idx, 1, 8);
    megatron_put(idx, pair->is_wide ? 4 : 8, 1);
    megatron_put(idx, pair->sequence_count, 8);
    megatron_put(idx, pair->bound_count, 8);
    for (uint32_t i = 0; i < pair->sequence_count; i++)
        megatron_put(idx, (uint32_t)pair->lengths[i], 4);
    for (uint32_t i = 0; i < pair->sequence_count; i++) {
        megatron_put(idx, place, 8);
        place += (uint64_t)pair->lengths[i] * (uint64_t)id_bytes;
    }
    for (uint32_t i = 0; i < pair->bound_count; i++)
        megatron_put(idx, (uint64_t)pair->bounds[i], 8);
    scratch_need(fclose(bin) == 0 && fclose(idx) == 0, name);
}

/* Sequences of 2, 1 and 3 ids of 16 bits in two documents: 12 bytes, and an index of 94. */
static const megatron_pair megatron_small = {.sequence_count = 3,
                                             .bound_count = 3,
                                             .lengths = {2, 1, 3},
                                             .bounds = {0, 2, 3},
                                             .id_count = 6,
                                             .ids = {11, 12, 13, 14, 15, 16}};

/* What is changed of the small pair: sizes, then some bytes of the index. */
typedef struct hostile_pair {
    const char *what, *fragment;
    int idx_bytes, bin_bytes; /* MEGATRON_KEEP, or cut or made longer with zeros */
    long offset;
    int patch_bytes;
    uint64_t patch;
} hostile_pair;

#define K MEGATRON_KEEP
/* clang-format off */
static const hostile_pair hostile_pairs[] = {
    {"empty index", "no index of Megatron's", 0, K, 0, 0, 0},
    {"index cut in its first word", "no index of Megatron's", 5, K, 0, 0, 0},
    {"index of an older kind", "no index of Megatron's", K, K, 0, 8, 0x0000584449544e54},
    {"index with one bit turned", "no index of Megatron's", K, K, 0, 1, 'L'},
    {"index cut in its header", "cut inside the 34-byte header", 20, K, 0, 0, 0},
    {"version 2", "version 2; version 1", K, K, 9, 8, 2},
    {"version 2^63", "version 9223372036854775808", K, K, 9, 8, 1ull << 63},
    {"ids of 8 bits", "type 1 (uint8)", K, K, 17, 1, 1},
    {"ids of 64 bits", "type 5 (int64)", K, K, 17, 1, 5},
    {"ids that are floats", "type 7 (float32)", K, K, 17, 1, 7},
    {"ids of no type", "type 0 (none)", K, K, 17, 1, 0},
    {"ids of an unknown type", "type 255 (unknown)", K, K, 17, 1, 255},
    {"ids called wider than they are", "starts at byte 4, not 8", K, K, 17, 1, 4},
    {"index one byte short", "it is torn", 93, K, 0, 0, 0},
    {"index one byte long", "it is torn", 95, K, 0, 0, 0},
    {"index with modes", "modes of sequences", 97, K, 0, 0, 0},
    {"one sequence more", "it is torn", K, K, 18, 8, 4},
    {"2^60 sequences", "it is torn", K, K, 18, 8, 1ull << 60},
    {"2^64 - 1 sequences", "it is torn", K, K, 18, 8, UINT64_MAX},
    {"sequences whose bytes wrap", "it is torn", K, K, 18, 8, 0x1555555555555558},
    {"2^64 - 1 bounds", "it is torn", K, K, 26, 8, UINT64_MAX},
    {"bounds whose bytes wrap", "it is torn", K, K, 26, 8, (1ull << 61) + 3},
    {"a length below 0", "has the length -1", K, K, 34, 4, UINT32_MAX},
    {"a length one more", "starts at byte 4, not 6", K, K, 34, 4, 3},
    {"the last length one less", "are 10 bytes of ids", K, K, 42, 4, 2},
    {"the longest last length", "bytes of ids, but", K, K, 42, 4, INT32_MAX},
    {"a start inside a sequence", "sequence 1 starts at byte 2, not 4", K, K, 54, 8, 2},
    {"a start below 0", "starts at byte -4", K, K, 54, 8, (uint64_t)-4},
    {"ids one short", "has 10: one of them is torn", K, 10, 0, 0, 0},
    {"ids cut inside one", "has 11: one of them is torn", K, 11, 0, 0, 0},
    {"ids of a longer file", "has 14: one of them is torn", K, 14, 0, 0, 0},
    {"documents that begin late", "bound 0 of its documents is sequence 1 of 3", K, K, 70, 8, 1},
    {"documents in no order", "bound 2 of its documents is sequence 0 of 3", K, K, 86, 8, 0},
    {"a document beyond the end", "bound 1 of its documents is sequence 4 of 3", K, K, 78, 8, 4},
    {"documents that end early", "bound 2 of its documents is sequence 2 of 3", K, K, 86, 8, 2},
    {"a bound below 0", "bound 1 of its documents is sequence -1", K, K, 78, 8, UINT64_MAX},
    {"no document", "has no document", 78, K, 26, 8, 1},
};
/* clang-format on */
#undef K

enum { HOSTILE_PAIR_COUNT = sizeof hostile_pairs / sizeof hostile_pairs[0] };

/* Writes a bad pair as `directory`/bad.bin and bad.idx. */
static inline void hostile_pair_write(const hostile_pair *row, const char *directory)
{
    scratch_path bin = scratch_join(directory, "bad.bin"), idx = scratch_join(directory, "bad.idx");
    megatron_write(&megatron_small, directory, "bad");
    if (row->idx_bytes != MEGATRON_KEEP)
        scratch_need(truncate(idx.text, row->idx_bytes) == 0, idx.text);
    if (row->bin_bytes != MEGATRON_KEEP)
        scratch_need(truncate(bin.text, row->bin_bytes) == 0, bin.text);
    FILE *file = fopen(idx.text, "r+b");
    scratch_need(file && fseek(file, row->offset, SEEK_SET) == 0, idx.text);
    megatron_put(file, row->patch, row->patch_bytes);
    scratch_need(fclose(file) == 0, idx.text);
}

#endif
