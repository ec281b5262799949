/* Training data: several files seen as one run of tokens.
 *
 * Text files are their bytes (byte tokenizer), each followed by one end-of-text token. Token files
 * are llm.c's (20240520: uint16, 20240801: uint32) and, when the name ends in ".bin" and no known
 * magic stands in front, Megatron's where NAME.idx is beside them (megatron_index.h), else
 * nanoGPT's (uint16 without header). The content says which kind it is. Packed text and JSON lines
 * (a name that ends in ".jsonl", or a first line that is one object) are opened too, for those who
 * make tokens of them: their bytes are not their tokens.
 *
 * Knows nothing of batches, ranks or epochs beyond sl_tokens_row_start. Opening costs the same for
 * any file size, but for Megatron's index, which is read; no file is ever in memory as a whole, and
 * of many files most are not kept open. An open object is only read: any number of threads may
 * share it.
 */
#ifndef SL_FILES_TOKENS_H
#define SL_FILES_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "files.h"
#include "token_description.h"

typedef struct sl_tokens sl_tokens;

/* An id that has no part in the loss may be marked: it is stored, and read, as -1 - id. */
static inline uint32_t sl_tokens_mark(uint32_t id)
{
    return ~id;
}

static inline bool sl_tokens_is_marked(uint32_t id)
{
    return id > INT32_MAX;
}

static inline uint32_t sl_tokens_unmark(uint32_t id)
{
    return sl_tokens_is_marked(id) ? ~id : id;
}

enum {
    SL_TOKENS_END_OF_TEXT = 256, /* the token behind each text file */
    SL_TOKENS_BYTE_VOCAB = 257,  /* 256 bytes and end of text */
    SL_TOKENS_FINGERPRINT = 33,  /* bytes of a fingerprint, its NUL included */
    SL_TOKENS_START_BYTES = 9    /* of a file, by which sl_tokens_name_start knows it */
};

/* Opens `path_count` >= 1 files in this order. `vocab_limit`: tokens not below it are an error when
 * they are read; 0: no limit yet. Blocks for a few small reads a file.
 * SL_ERROR_MISSING: a file is not there. SL_ERROR_DATA: not a regular file, empty, against its
 * format, or not the one that FILE.json beside it describes (token_description.h).
 * SL_ERROR_USAGE: a text file, and a limit below SL_TOKENS_BYTE_VOCAB. */
sl_status sl_tokens_open(const char *const *paths, uint32_t path_count, uint32_t vocab_limit,
                         sl_tokens **out_tokens);

/* The same of files of examples, where an array of objects is welcome. */
sl_status sl_tokens_open_examples(const char *const *paths, uint32_t path_count,
                                  sl_tokens **out_tokens);

/* From now on ids may be marked, and are read so. */
void sl_tokens_take_marks(sl_tokens *tokens);

/* What a file is that starts so: tokens, or another file of llm.c; NULL: neither. */
const char *sl_tokens_name_start(const void *start, uint64_t bytes);

/* NULL is fine. */
void sl_tokens_close(sl_tokens *tokens);

/* Sets the limit that sl_tokens_open takes; same SL_ERROR_USAGE. */
sl_status sl_tokens_limit_vocab(sl_tokens *tokens, uint32_t vocab_limit);

/* Tokens of all files, the end-of-text tokens of text files included. */
uint64_t sl_tokens_count(const sl_tokens *tokens);

/* The smallest vocabulary known to be needed: SL_TOKENS_BYTE_VOCAB with a text file among the
 * files, else 0: token files do not say; reading checks each id. */
uint32_t sl_tokens_vocab_needed(const sl_tokens *tokens);

/* True if every file is text: the tokens are those of the byte tokenizer. */
bool sl_tokens_is_text(const sl_tokens *tokens);

/* The same of one file, in the order of opening. */
bool sl_tokens_file_is_text(const sl_tokens *tokens, uint32_t file);

/* True of text in gzip, Zstandard or JSON lines: its bytes are not its tokens. */
bool sl_tokens_file_is_wrapped(const sl_tokens *tokens, uint32_t file);

uint32_t sl_tokens_file_count(const sl_tokens *tokens);

/* The path of one file as it was given; borrowed. */
const char *sl_tokens_file_path(const sl_tokens *tokens, uint32_t file);

/* The description of a file of tokens, borrowed; NULL: it has none, or the file is text. */
const sl_token_description *sl_tokens_file_description(const sl_tokens *tokens, uint32_t file);

/* The largest id that was seen. */
typedef struct sl_largest_id {
    uint32_t id;
    uint64_t token;     /* its position in the file */
    uint64_t looked_at; /* number of tokens that were read */
} sl_largest_id;

/* Looks for the largest id in one file of tokens, not text. Reads about `token_budget` tokens at
 * most: the whole file if it has no more, else pieces of 16384 tokens, evenly spread, the first and
 * the last piece among them. Ids that are not below the limit of the vocabulary are no error here.
 * SL_ERROR_IO, SL_ERROR_DATA as sl_tokens_read. */
sl_status sl_tokens_find_largest(const sl_tokens *tokens, uint32_t file, uint64_t token_budget,
                                 sl_largest_id *out_largest);

/* The path of the first file that was written to, cut or removed since it was opened, borrowed;
 * NULL: none was. Compares the size and the time of the last write of each file, and reads none. */
const char *sl_tokens_find_written(const sl_tokens *tokens);

/* The tokens of one file in the run of all. */
void sl_tokens_file_range(const sl_tokens *tokens, uint32_t file, uint64_t *out_first,
                          uint64_t *out_count);

/* Writes tokens [first_token, first_token + token_count) to `out_ids`. Runs over file borders.
 * SL_ERROR_USAGE: beyond the last token. SL_ERROR_DATA: a token not below the limit, or a file that
 * was cut since it was opened (file and position are named). SL_ERROR_IO: reading failed. */
sl_status sl_tokens_read(const sl_tokens *tokens, uint64_t first_token, uint64_t token_count,
                         int32_t *out_ids);

/* Writes 32 hexadecimal digits and a NUL that depend on the base name, the kind and the size of
 * each file in order, not on directories, times or content. */
sl_status sl_tokens_fingerprint(const sl_tokens *tokens, char out_text[SL_TOKENS_FINGERPRINT]);

/* The same from samples of the content: up to 64 pieces of 4 KiB of each file, evenly spread, its
 * first and last bytes among them; files up to 256 KiB are read whole. SL_ERROR_IO, SL_ERROR_DATA:
 * a file cannot be read, or was cut since it was opened. */
sl_status sl_tokens_sample(const sl_tokens *tokens, char out_text[SL_TOKENS_FINGERPRINT]);

/* The same of one file alone: *out_name is its base name, borrowed; `out_text` depends on its kind,
 * its size and samples of its content. */
sl_status sl_tokens_identify_file(const sl_tokens *tokens, uint32_t file, const char **out_name,
                                  char out_text[SL_TOKENS_FINGERPRINT]);

typedef enum sl_data_order { SL_DATA_RANDOM, SL_DATA_SEQUENTIAL, SL_DATA_SHUFFLE } sl_data_order;

/* The first token of row `global_row`, which reads tokens [start, start + seq]: seq inputs and
 * their targets, shifted by one. SEQUENTIAL: row g is taken modulo R = floor((n - 1) / seq) of
 * n = token_count tokens and starts at g * seq. RANDOM: uniform over all n - seq starts, from
 * (seed, g) alone. SHUFFLE: the R rows of SEQUENTIAL in epochs, g / R of them over: each in an
 * order of its own, which (seed, epoch) choose (sl_rng_permute). SL_ERROR_DATA: fewer than seq + 1
 * tokens. SL_ERROR_USAGE: seq is 0. */
sl_status sl_tokens_row_start(sl_data_order order, uint64_t seed, uint64_t global_row, uint64_t seq,
                              uint64_t token_count, uint64_t *out_start);

#endif
