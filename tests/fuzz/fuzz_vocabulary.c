/* The files of a vocabulary in a directory. The first byte of an input says which: tokenizer.json,
 * up to a NUL, with tokenizer_config.json behind it, or vocab.json up to a NUL and merges.txt
 * behind it. An input lacks most of the 256 bytes that a vocabulary needs, so with the bit
 * COMPLETES the tokens of a good one stand in front. What is accepted is written and read again
 * equal, and encodes any text so that it decodes, unless the text is to be normalized, or a pattern
 * needs too many steps. */
#define _GNU_SOURCE
#include "fuzz.h"
#include "text/bpe.h"

enum {
    IS_JSON = 1,
    COMPLETES = 2,
    HAS_OTHER = 4, /* an empty object beside tokenizer.json under the name that is asked for less */
    LACKS_MERGES = 8,
    HAS_STEPS = 16, /* of the completed tokenizer.json: the input has the pre_tokenizer */
    PLAIN_COUNT = 256,
    PLAIN_BYTES = PLAIN_COUNT * 16,
    CACHE_SLOTS = 4
};

static void check_ids(const sl_vocabulary *vocabulary, const char *text, size_t bytes)
{
    sl_bpe *bpe = NULL;
    sl_ids ids = {0};
    size_t at = 0;
    const sl_pretokenizer *pretokenizer = sl_vocabulary_pretokenizer(vocabulary);
    if (!fuzz_succeeds(sl_bpe_open(vocabulary, CACHE_SLOTS, &bpe)))
        return;
    sl_status status = sl_bpe_encode(bpe, text, bytes, &ids);
    bool is_whole = pretokenizer ? fuzz_accepts(status) : fuzz_succeeds(status);
    if (is_whole && !(pretokenizer && pretokenizer->is_nfc)) {
        for (uint64_t i = 0; i < ids.count; i++) {
            sl_token_bytes token = sl_vocabulary_token(vocabulary, ids.items[i]);
            FUZZ_NEED(token.bytes <= bytes - at && memcmp(token.text, text + at, token.bytes) == 0);
            at += token.bytes;
        }
        FUZZ_NEED(at == bytes);
    }
    sl_ids_free(&ids);
    sl_bpe_close(bpe);
}

static sl_status read_again(const sl_vocabulary_files *files, sl_vocabulary **out)
{
    sl_vocabulary_text texts[SL_VOCABULARY_FILE_COUNT];
    for (int i = 0; i < SL_VOCABULARY_FILE_COUNT; i++)
        texts[i] = (sl_vocabulary_text){"again", files->texts[i],
                                        files->texts[i] ? strlen(files->texts[i]) : 0};
    if (files->texts[SL_VOCABULARY_FILE_TOKENS])
        return sl_vocabulary_parse(&texts[SL_VOCABULARY_FILE_TOKENS],
                                   &texts[SL_VOCABULARY_FILE_MERGES], out);
    const sl_vocabulary_text *config = &texts[SL_VOCABULARY_FILE_CONFIG];
    return sl_vocabulary_parse_json(&texts[SL_VOCABULARY_FILE_JSON], config->text ? config : NULL,
                                    out);
}

static void check_rewritten(const sl_vocabulary *vocabulary)
{
    sl_vocabulary_files files;
    char name[SL_VOCABULARY_NAME_BYTES], again_name[SL_VOCABULARY_NAME_BYTES];
    sl_vocabulary *again = NULL;
    if (fuzz_succeeds(sl_vocabulary_format(vocabulary, &files)) &&
        fuzz_succeeds(read_again(&files, &again)) &&
        fuzz_succeeds(sl_vocabulary_name(vocabulary, name)) &&
        fuzz_succeeds(sl_vocabulary_name(again, again_name)))
        FUZZ_NEED(strcmp(name, again_name) == 0);
    sl_vocabulary_close(again);
    sl_vocabulary_files_free(&files);
}

/* "{", and the tokens of all bytes with a comma behind each: what stands behind goes on. */
static size_t write_plain_tokens(char *text)
{
    size_t at = 0;
    text[at++] = '{';
    for (uint32_t i = 0; i < PLAIN_COUNT; i++) {
        unsigned code = sl_vocabulary_nth_byte(i);
        bool is_far = code <= ' ' || (code >= 0x7f && code <= 0xa0) || code == 0xad;
        code = is_far ? 0x100 + i - 188 : code;
        at += (size_t)snprintf(text + at, PLAIN_BYTES - at, "\"\\u%04x\":%u,", code, i);
    }
    return at;
}

static bool open_pair(const char *text, size_t bytes, unsigned flags, sl_vocabulary **out)
{
    const char *end = memchr(text, '\0', bytes);
    size_t tokens = end ? (size_t)(end - text) : bytes, front = 0;
    char *whole = malloc(PLAIN_BYTES + bytes + 1);
    if (!whole)
        return false;
    if (flags & COMPLETES)
        front = write_plain_tokens(whole);
    memcpy(whole + front, text, tokens);
    fuzz_write(SL_VOCABULARY_TOKENS_FILE, whole, front + tokens);
    if (!(flags & LACKS_MERGES))
        fuzz_write(SL_VOCABULARY_MERGES_FILE, end ? end + 1 : "", end ? bytes - tokens - 1 : 0);
    free(whole);
    return fuzz_accepts(sl_vocabulary_read(fuzz_directory(), out));
}

static bool open_json(const char *text, size_t bytes, unsigned flags, sl_vocabulary **out)
{
    static const char steps[] = "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},";
    static const char model[] = "\"model\":{\"type\":\"BPE\",\"vocab\":";
    const char *end = memchr(text, '\0', bytes);
    size_t json = end ? (size_t)(end - text) : bytes, front = 0;
    char *whole = malloc(sizeof steps + sizeof model + PLAIN_BYTES + json);
    if (!whole)
        return false;
    if (flags & COMPLETES) {
        front = (size_t)snprintf(whole, sizeof steps + sizeof model, "%s%s",
                                 flags & HAS_STEPS ? "{" : steps, model);
        front += write_plain_tokens(whole + front);
    }
    memcpy(whole + front, text, json);
    fuzz_write(SL_VOCABULARY_JSON_FILE, whole, front + json);
    if (end)
        fuzz_write(SL_VOCABULARY_CONFIG_FILE, end + 1, bytes - json - 1);
    if (flags & HAS_OTHER)
        fuzz_write(SL_VOCABULARY_TOKENS_FILE, "{}", 2);
    free(whole);
    return fuzz_accepts(sl_vocabulary_read(fuzz_directory(), out));
}

static void remove_files(void)
{
    static const char *const names[] = {SL_VOCABULARY_TOKENS_FILE, SL_VOCABULARY_MERGES_FILE,
                                        SL_VOCABULARY_JSON_FILE, SL_VOCABULARY_CONFIG_FILE};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(scratch_join(fuzz_directory(), names[i]).text);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_vocabulary *vocabulary = NULL;
    bool is_there = false;
    if (bytes == 0)
        return;
    remove_files();
    const char *text = (const char *)data + 1;
    fuzz_allow(PLAIN_BYTES);
    bool is_open = data[0] & IS_JSON ? open_json(text, bytes - 1, data[0], &vocabulary)
                                     : open_pair(text, bytes - 1, data[0], &vocabulary);
    if (!is_open)
        return;
    FUZZ_NEED(!fuzz_succeeds(sl_vocabulary_is_in(fuzz_directory(), &is_there)) || is_there);
    check_ids(vocabulary, text, bytes - 1);
    check_rewritten(vocabulary);
    sl_vocabulary_close(vocabulary);
}
