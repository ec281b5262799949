/* Files of tokens. The first byte of an input is a set of the bits below, the rest the file. What
 * is accepted is read as a whole and in two parts, and compared with a reader of this file. */
#define _GNU_SOURCE
#include "files/tokens.h"
#include "fuzz.h"

enum {
    NAMED_BIN = 1,   /* else .txt */
    HAS_INDEX = 2,   /* a Megatron index beside it, cut in its header */
    RIGHT_COUNT = 4, /* llm.c's header counts the tokens that are there */
    HAS_LIMIT = 8,   /* ids below LIMIT */
    HAS_TEXT = 16,   /* a text behind it, in the same run */
    HAS_HOLE = 32,   /* HOLE_BYTES of zeros behind the bytes of the input */
    HOLE_BYTES = 1 << 17,
    HEADER_BYTES = 1024,
    LIMIT = 1000,
    IDS_MAX = 1 << 14
};

static const char TEXT[] = "two words";

typedef struct decoded {
    uint32_t token_bytes; /* 1: text */
    size_t first;         /* of its bytes */
} decoded;

static decoded decode(const uint8_t *data, size_t bytes, unsigned flags)
{
    int32_t magic = 0;
    if (bytes >= sizeof magic)
        memcpy(&magic, data, sizeof magic);
    if (magic == 20240520)
        return (decoded){2, HEADER_BYTES};
    if (magic == 20240801)
        return (decoded){4, HEADER_BYTES};
    return (decoded){flags & NAMED_BIN ? 2 : 1, 0};
}

/* Token `i` of the run: of the file, its end of text, and what stands behind. */
static uint32_t expect_id(const uint8_t *data, size_t bytes, decoded as, uint64_t i)
{
    uint64_t count = (bytes - as.first) / as.token_bytes;
    uint32_t id = 0;
    if (i < count) {
        memcpy(&id, data + as.first + i * as.token_bytes, as.token_bytes);
        return id;
    }
    i -= count;
    if (as.token_bytes == 1 && i-- == 0)
        return SL_TOKENS_END_OF_TEXT;
    return i < sizeof TEXT - 1 ? (uint32_t)TEXT[i] : SL_TOKENS_END_OF_TEXT;
}

static void check_ids(const sl_tokens *tokens, const uint8_t *data, size_t bytes, unsigned flags)
{
    static int32_t whole[IDS_MAX], parts[IDS_MAX];
    decoded as = decode(data, bytes, flags);
    uint64_t count = sl_tokens_count(tokens), half = count / 2;
    uint32_t limit = flags & HAS_LIMIT ? LIMIT : INT32_MAX;
    bool is_below = true;
    if (count > IDS_MAX)
        return;
    for (uint64_t i = 0; i < count; i++)
        is_below = is_below && expect_id(data, bytes, as, i) < limit;
    sl_status status = sl_tokens_read(tokens, 0, count, whole);
    FUZZ_NEED(status == (is_below ? SL_OK : SL_ERROR_DATA));
    if (!fuzz_accepts(status))
        return;
    FUZZ_NEED(sl_tokens_read(tokens, 0, half, parts) == SL_OK);
    FUZZ_NEED(sl_tokens_read(tokens, half, count - half, parts + half) == SL_OK);
    FUZZ_NEED(memcmp(whole, parts, count * sizeof *whole) == 0);
    for (uint64_t i = 0; i < count; i++)
        FUZZ_NEED((uint32_t)whole[i] == expect_id(data, bytes, as, i));
}

/* Files, one behind the other; what a text is called by its first bytes. */
static void check_files(const sl_tokens *tokens, const uint8_t *data, size_t bytes, unsigned flags)
{
    uint64_t next = 0, first, count;
    const uint32_t files = sl_tokens_file_count(tokens);
    const bool is_text = decode(data, bytes, flags).token_bytes == 1;
    FUZZ_NEED(files == (flags & HAS_TEXT ? 2 : 1));
    for (uint32_t i = 0; i < files; i++, next += count) {
        sl_tokens_file_range(tokens, i, &first, &count);
        FUZZ_NEED(first == next);
        FUZZ_NEED(!sl_tokens_file_is_wrapped(tokens, i) || sl_tokens_file_is_text(tokens, i));
    }
    FUZZ_NEED(next == sl_tokens_count(tokens));
    FUZZ_NEED(sl_tokens_file_is_text(tokens, 0) == is_text);
    FUZZ_NEED(sl_tokens_name_start(data, bytes) || decode(data, bytes, flags).first == 0);
}

static void check_rows(const sl_tokens *tokens, uint64_t seq)
{
    uint64_t count = sl_tokens_count(tokens), start;
    FUZZ_NEED(sl_tokens_read(tokens, count, 1, NULL) == SL_ERROR_USAGE);
    for (int order = SL_DATA_RANDOM; order <= SL_DATA_SHUFFLE; order++) {
        sl_status status =
            sl_tokens_row_start((sl_data_order)order, 1, seq + 7, seq, count, &start);
        if (fuzz_accepts(status))
            FUZZ_NEED(start + seq < count);
        else
            FUZZ_NEED(seq == 0 || count <= seq);
    }
}

static void check_tokens(const sl_tokens *tokens, const uint8_t *data, size_t bytes, unsigned flags)
{
    char once[SL_TOKENS_FINGERPRINT], again[SL_TOKENS_FINGERPRINT];
    bool has_text = flags & HAS_TEXT || decode(data, bytes, flags).token_bytes == 1;
    FUZZ_NEED(sl_tokens_vocab_needed(tokens) == (has_text ? SL_TOKENS_BYTE_VOCAB : 0));
    FUZZ_NEED(sl_tokens_is_text(tokens) == (decode(data, bytes, flags).token_bytes == 1));
    if (fuzz_succeeds(sl_tokens_fingerprint(tokens, once)) &&
        fuzz_succeeds(sl_tokens_fingerprint(tokens, again)))
        FUZZ_NEED(strcmp(once, again) == 0);
    if (fuzz_succeeds(sl_tokens_sample(tokens, once)) &&
        fuzz_succeeds(sl_tokens_sample(tokens, again)))
        FUZZ_NEED(strcmp(once, again) == 0);
    check_files(tokens, data, bytes, flags);
    if (!(flags & HAS_HOLE))
        check_ids(tokens, data, bytes, flags);
    for (uint64_t seq = 0; seq < 12; seq += 3)
        check_rows(tokens, seq);
}

static scratch_path write_file(const uint8_t *data, size_t bytes, unsigned flags)
{
    scratch_path index = scratch_join(fuzz_directory(), "data.idx");
    unlink(index.text);
    if (flags & HAS_INDEX)
        fuzz_write("data.idx", "MMIDIDX\0\0\1\0\0\0", 13);
    scratch_path path = fuzz_write(flags & NAMED_BIN ? "data.bin" : "data.txt", data, bytes);
    if (flags & HAS_HOLE)
        scratch_need(truncate(path.text, (off_t)(bytes + HOLE_BYTES)) == 0, path.text);
    return path;
}

static void fix_count(uint8_t *data, size_t bytes)
{
    decoded as = decode(data, bytes, 0);
    if (as.first == 0 || bytes < as.first)
        return;
    int32_t count = (int32_t)((bytes - as.first) / as.token_bytes);
    memcpy(data + 8, &count, sizeof count);
}

static void give(const uint8_t *data, size_t bytes, unsigned flags)
{
    sl_tokens *tokens = NULL;
    scratch_path path = write_file(data, bytes, flags);
    scratch_path text = fuzz_write("behind.txt", TEXT, sizeof TEXT - 1);
    const char *const paths[] = {path.text, text.text};
    if (fuzz_accepts(sl_tokens_open(paths, flags & HAS_TEXT ? 2 : 1, flags & HAS_LIMIT ? LIMIT : 0,
                                    &tokens)))
        check_tokens(tokens, data, bytes, flags);
    sl_tokens_close(tokens);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes + 1);
    if (!copy || bytes == 0) {
        free(copy);
        return;
    }
    memcpy(copy, data + 1, bytes - 1);
    if (data[0] & RIGHT_COUNT)
        fix_count(copy, bytes - 1);
    give(copy, bytes - 1, data[0]);
    free(copy);
}
