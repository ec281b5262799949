/* From text to ids by byte pair encoding: each word's bytes are merged, the earliest merge first,
 * of equal ones the leftmost, until none applies. n log n in the length of a word.
 *
 * The ids of a valid UTF-8 text are those of the tokenizers library for the same vocabulary; for
 * any bytes, the bytes of its ids are the text, or, where the vocabulary asks for it, the text in
 * the normalization form C. "<|endoftext|>" in a text is text where all else is GPT-2's
 * (vocabulary.h).
 */
#ifndef SL_TEXT_BPE_H
#define SL_TEXT_BPE_H

#include "ids.h"
#include "vocabulary.h"

enum { SL_BPE_CACHE_SLOTS = 1 << 15 }; /* words that are remembered, of 64 bytes each */

/* An encoder, for one thread at a time. */
typedef struct sl_bpe sl_bpe;

/* Borrows the vocabulary. `cache_slots`: a power of two. */
sl_status sl_bpe_open(const sl_vocabulary *vocabulary, uint32_t cache_slots, sl_bpe **out_bpe);

/* NULL is fine. */
void sl_bpe_close(sl_bpe *bpe);

/* Appends the ids of a text. SL_ERROR_SYSTEM. SL_ERROR_DATA: a word above 64 MiB, a pattern that
 * takes too many steps. */
sl_status sl_bpe_encode(sl_bpe *bpe, const char *text, uint64_t bytes, sl_ids *ids);

#endif
