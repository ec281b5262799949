/* A vocabulary: ids, their bytes, and the merges that make them, as GPT-2 has them (Sennrich et al.
 * 2016 over bytes; Radford et al. 2019).
 *
 *   ids are 0 .. count-1, without holes
 *   each of the 256 bytes has an id, so any text has ids, and decode(encode(text)) == text
 *   merge r joins the tokens left and right to the token made; a lower r is applied first
 *
 * Read from vocab.json and merges.txt, or from tokenizer.json; both are Hugging Face's. In these
 * files a byte is written as a character: 0x21-0x7e, 0xa1-0xac and 0xae-0xff as they are, the
 * others from U+0100 on in order. A token with any other character is a special one, and stands for
 * its own UTF-8. Nothing changes after reading: any number of threads may share one.
 *
 * A tokenizer.json that says no more than the two other files do, GPT-2's pattern and no added
 * token but "<|endoftext|>", is the same vocabulary as they are, and written as they are. Any other
 * has a pretokenizer: its added tokens are found in texts, and it is written as it was read.
 */
#ifndef SL_TEXT_VOCABULARY_H
#define SL_TEXT_VOCABULARY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "pretokenizer.h"
#include "words.h"

enum {
    SL_VOCABULARY_NONE = -1,
    SL_VOCABULARY_NAME_BYTES = 40, /* of a name, its NUL included */
    SL_VOCABULARY_COUNT_MAX = 1 << 24
};

#define SL_VOCABULARY_TOKENS_FILE "vocab.json"
#define SL_VOCABULARY_MERGES_FILE "merges.txt"
#define SL_VOCABULARY_JSON_FILE "tokenizer.json"
#define SL_VOCABULARY_CONFIG_FILE "tokenizer_config.json"
#define SL_VOCABULARY_END_OF_TEXT "<|endoftext|>"

/* In the order in which they are written: the first two are a vocabulary, or the last two. */
typedef enum sl_vocabulary_file {
    SL_VOCABULARY_FILE_MERGES,
    SL_VOCABULARY_FILE_TOKENS,
    SL_VOCABULARY_FILE_CONFIG,
    SL_VOCABULARY_FILE_JSON,
    SL_VOCABULARY_FILE_COUNT
} sl_vocabulary_file;

typedef struct sl_merge {
    uint32_t left, right, made; /* ids */
} sl_merge;

typedef enum sl_token_kind {
    SL_TOKEN_WORD,   /* of words alone */
    SL_TOKEN_ADDED,  /* of a tokenizer.json's added_tokens: its text is found in texts as a whole */
    SL_TOKEN_SPECIAL /* the same, and marked as "special" there */
} sl_token_kind;

typedef struct sl_token_bytes {
    const char *text; /* not NUL-terminated */
    uint32_t bytes;
    bool is_added; /* of added_tokens alone: where another token has its bytes, they are that
                      other's, and no word is it */
    sl_token_kind kind;
} sl_token_bytes;

typedef struct sl_vocabulary sl_vocabulary;

/* The 256 bytes, in order, and end of text behind them; no merges. */
sl_status sl_vocabulary_of_bytes(sl_vocabulary **out_vocabulary);

/* Makes a vocabulary of its tokens' bytes and its merges, all copied. `end_of_text`: an id, or
 * SL_VOCABULARY_NONE. SL_ERROR_DATA: two tokens are the same, both added or neither, a byte has no
 * token, a merge's token is not the join of its two. */
sl_status sl_vocabulary_build(const sl_token_bytes *tokens, uint32_t token_count,
                              const sl_merge *merges, uint32_t merge_count, int32_t end_of_text,
                              sl_vocabulary **out_vocabulary);

/* Gives the vocabulary a pretokenizer, which it owns from now on. */
void sl_vocabulary_adopt(sl_vocabulary *vocabulary, sl_pretokenizer *pretokenizer);

/* How texts become words; NULL: as GPT-2's do. */
const sl_pretokenizer *sl_vocabulary_pretokenizer(const sl_vocabulary *vocabulary);

/* Where a text may be cut, and each part be encoded alone. */
sl_words_cuts sl_vocabulary_cuts(const sl_vocabulary *vocabulary);

/* Whether a directory holds vocab.json or tokenizer.json. */
sl_status sl_vocabulary_is_in(const char *directory, bool *out_is_there);

/* Reads the files of a directory: tokenizer.json, with the end of text that tokenizer_config.json
 * names, else vocab.json and merges.txt, which say less. SL_ERROR_MISSING: neither is there.
 * SL_ERROR_DATA: names file and rule. */
sl_status sl_vocabulary_read(const char *directory, sl_vocabulary **out_vocabulary);

/* The text of a file. */
typedef struct sl_vocabulary_text {
    const char *path; /* for messages */
    const char *text;
    uint64_t bytes;
} sl_vocabulary_text;

/* The same from the texts of vocab.json and merges.txt, or of tokenizer.json and, if it is not
 * NULL, tokenizer_config.json. */
sl_status sl_vocabulary_parse(const sl_vocabulary_text *tokens, const sl_vocabulary_text *merges,
                              sl_vocabulary **out_vocabulary);
sl_status sl_vocabulary_parse_json(const sl_vocabulary_text *json, const sl_vocabulary_text *config,
                                   sl_vocabulary **out_vocabulary);

/* The texts of the files of a vocabulary, equal for equal ones: of vocab.json and merges.txt, or,
 * with a pretokenizer, of tokenizer.json and tokenizer_config.json. Of a file that it has not,
 * NULL.
 */
typedef struct sl_vocabulary_files {
    char *texts[SL_VOCABULARY_FILE_COUNT];
} sl_vocabulary_files;

/* The name of a file. */
const char *sl_vocabulary_file_name(sl_vocabulary_file file);

/* Release with sl_vocabulary_files_free, also after a failure. */
sl_status sl_vocabulary_format(const sl_vocabulary *vocabulary, sl_vocabulary_files *out_files);

void sl_vocabulary_files_free(sl_vocabulary_files *files);

/* Writes a token as these files do, a character for each byte. */
void sl_vocabulary_write_token(sl_token_bytes token, FILE *stream);

/* Makes the directory if it is missing, and writes the files into it, synced. SL_ERROR_USAGE:
 * it holds a vocabulary already. */
sl_status sl_vocabulary_save(const sl_vocabulary *vocabulary, const char *directory);

/* NULL is fine. */
void sl_vocabulary_close(sl_vocabulary *vocabulary);

/* "bpe-" and 32 digits of a hash of all that changes ids: equal for equal vocabularies alone. Of
 * sl_vocabulary_of_bytes: "byte". */
sl_status sl_vocabulary_name(const sl_vocabulary *vocabulary,
                             char out_name[SL_VOCABULARY_NAME_BYTES]);

uint32_t sl_vocabulary_count(const sl_vocabulary *vocabulary);
uint32_t sl_vocabulary_merge_count(const sl_vocabulary *vocabulary);

/* [merge_count], in order; borrowed. */
const sl_merge *sl_vocabulary_merges(const sl_vocabulary *vocabulary);

/* The id of the end of text: the "eos_token" of tokenizer_config.json, else "<|endoftext|>", or
 * SL_VOCABULARY_NONE. */
int32_t sl_vocabulary_end_of_text(const sl_vocabulary *vocabulary);

/* The id of one byte. */
uint32_t sl_vocabulary_byte(const sl_vocabulary *vocabulary, unsigned char byte);

/* The bytes of id < count; borrowed. */
sl_token_bytes sl_vocabulary_token(const sl_vocabulary *vocabulary, uint32_t id);

/* Byte `index` of all 256 in the order of their characters, which is that of their ids in GPT-2. */
unsigned char sl_vocabulary_nth_byte(uint32_t index);

/* The id of a token by its bytes, or SL_VOCABULARY_NONE; of one that may be a word. */
int32_t sl_vocabulary_find(const sl_vocabulary *vocabulary, const char *text, uint32_t bytes);
int32_t sl_vocabulary_find_word(const sl_vocabulary *vocabulary, const char *text, uint32_t bytes);

/* Finds what two ids merge to, and how early. */
bool sl_vocabulary_find_merge(const sl_vocabulary *vocabulary, uint32_t left, uint32_t right,
                              uint32_t *out_rank, uint32_t *out_made);

#endif
