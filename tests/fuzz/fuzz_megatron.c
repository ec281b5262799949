/* Megatron's pairs. The first byte of an input is how many ids the .bin has, the second its bytes
 * for each (odd: 4, else 2), the rest is the index. What is accepted is compared with a reader of
 * this file: ids, and where documents begin. */
#define _GNU_SOURCE
#include "files/token_documents.h"
#include "fuzz.h"

enum { HEADER_BYTES = 34, IDS_MAX = 255, COUNT_AT = 18, BOUNDS_AT = 26, TYPE_AT = 17 };

static uint64_t take(const uint8_t *data, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, data, bytes);
    return value;
}

/* The id at which sequence `sequence` begins: the sum of the lengths before it. */
static uint64_t find_start(const uint8_t *index, uint64_t sequence)
{
    uint64_t start = 0;
    for (uint64_t i = 0; i < sequence; i++)
        start += take(index + HEADER_BYTES + 4 * i, 4);
    return start;
}

static void check_documents(const sl_tokens *tokens, const uint8_t *index)
{
    sl_token_documents *documents = NULL;
    uint64_t sequences = take(index + COUNT_AT, 8), bounds = take(index + BOUNDS_AT, 8);
    if (!fuzz_succeeds(sl_token_documents_open(tokens, 0, 1, -1, &documents)))
        return;
    FUZZ_NEED(sl_token_documents_count(documents) == bounds - 1);
    for (uint64_t i = 0; i < bounds; i++) {
        uint64_t start = 0;
        uint64_t expected =
            find_start(index, take(index + HEADER_BYTES + 12 * sequences + 8 * i, 8));
        if (fuzz_succeeds(sl_token_documents_start(documents, i, &start)))
            FUZZ_NEED(start == expected);
    }
    sl_token_documents_close(documents);
}

/* The ids are the bytes, by the width that the index says; a negative one may be refused. */
static void check_ids(const sl_tokens *tokens, const uint8_t *bin, uint64_t count,
                      uint32_t id_bytes)
{
    int32_t ids[2 * IDS_MAX];
    bool has_negative = false;
    for (uint64_t i = 0; i < count; i++)
        has_negative |= id_bytes == 4 && bin[4 * i + 3] >= 0x80;
    FUZZ_NEED(sl_tokens_count(tokens) == count);
    const sl_status status = sl_tokens_read(tokens, 0, count, ids);
    if (has_negative ? fuzz_accepts(status) : fuzz_succeeds(status))
        for (uint64_t i = 0; i < count; i++)
            FUZZ_NEED(ids[i] == (int32_t)take(bin + i * id_bytes, id_bytes));
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    uint8_t bin[4 * IDS_MAX];
    sl_tokens *tokens = NULL;
    if (bytes < 2)
        return;
    uint32_t count = data[0], id_bytes = data[1] & 1 ? 4 : 2;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = i * 257;
        memcpy(bin + (size_t)i * id_bytes, &id, id_bytes);
    }
    scratch_path path = fuzz_write("data.bin", bin, (size_t)count * id_bytes);
    fuzz_write("data.idx", data + 2, bytes - 2);
    const char *const paths[] = {path.text};
    if (!fuzz_accepts(sl_tokens_open(paths, 1, 0, &tokens)))
        return;
    /* Two ids of four bytes are four of two, for an index that says so. */
    const uint32_t said_bytes = data[2 + TYPE_AT] == 4 ? 4 : 2;
    FUZZ_NEED(said_bytes == 4 || data[2 + TYPE_AT] == 8);
    check_ids(tokens, bin, (uint64_t)count * id_bytes / said_bytes, said_bytes);
    check_documents(tokens, data + 2);
    sl_tokens_close(tokens);
}
