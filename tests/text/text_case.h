/* What the tests of src/text share: the fixtures of tests/reference/bpe, and a vocabulary opened.
 */
#ifndef SL_TESTS_TEXT_CASE_H
#define SL_TESTS_TEXT_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "scratch_case.h"
#include "text/bpe.h"

#define TEXT_FIXTURES SL_TEST_SOURCE_DIRECTORY "/reference/bpe/"

static inline sl_vocabulary *text_open(const char *directory)
{
    sl_vocabulary *vocabulary = NULL;
    must(sl_vocabulary_read(directory, &vocabulary));
    return vocabulary;
}

/* The caller frees the ids. */
static inline sl_ids text_encode(const sl_vocabulary *vocabulary, const char *text, uint64_t bytes,
                                 uint32_t cache_slots)
{
    sl_bpe *bpe = NULL;
    sl_ids ids = {0};
    must(sl_bpe_open(vocabulary, cache_slots, &bpe));
    must(sl_bpe_encode(bpe, text, bytes, &ids));
    sl_bpe_close(bpe);
    return ids;
}

/* Fails unless the bytes of the ids are the text. */
static inline void text_assert_decodes(const sl_vocabulary *vocabulary, const sl_ids *ids,
                                       const char *text, uint64_t bytes)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < ids->count; i++) {
        sl_token_bytes token = sl_vocabulary_token(vocabulary, ids->items[i]);
        assert_true(token.bytes <= bytes - at);
        assert_memory_equal(token.text, text + at, token.bytes);
        at += token.bytes;
    }
    assert_int_equal(at, bytes);
}

#endif
