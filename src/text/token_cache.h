/* Text that became ids once, kept for the next run.
 *
 *   DIR/tokens-HASH/tokens.bin, tokens.idx    Megatron's pair (token_writer.h)
 *   DIR/tokens-HASH/sums                      XXH3-128 and size of both
 *
 * Of examples the ids are of 32 bits, and those without a part in the loss marked (files/tokens.h).
 *
 * HASH is of the vocabulary, of what makes documents, and of every byte of the files in their
 * order, so an entry can only be that of this text. It is made beside its name, in a directory of a
 * run's own, and renamed when it is whole and synced: two runs that make the same entry at once
 * both end with a whole one, and neither waits for the other. All of an entry that is found is
 * compared with its sums; a damaged entry is made anew and exchanged in one step. A run that fails
 * takes its directory away; that of one that was killed goes with the next that makes an entry
 * there, for only a process that lives holds the lock on it.
 */
#ifndef SL_TEXT_TOKEN_CACHE_H
#define SL_TEXT_TOKEN_CACHE_H

#include "tokenize.h"

typedef struct sl_token_cache_args {
    const sl_tokenize_args *tokenize;
    const sl_vocabulary *vocabulary;
    const char *directory; /* made if missing, with its parents */
    /* Called for each MiB of the text or of kept ids that is read to compare it: bytes so far, and
     * of all. May be NULL. */
    void (*comparing)(void *user, uint64_t bytes, uint64_t total_bytes);
    void *user; /* of `comparing` */
} sl_token_cache_args;

/* Gives the path of the .bin with the ids of these documents, as sl_tokenize_run writes them, an
 * entry that is there or a new one; release with free(). Reads the files once, and those of an
 * entry too. Statuses of sl_tokenize_run. SL_ERROR_IO: the entry cannot be written, or is another
 * user's; the message names the directory and --cache-dir. */
sl_status sl_token_cache_find(const sl_token_cache_args *args, char **out_path);

#endif
