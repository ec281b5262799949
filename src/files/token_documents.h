/* Where the documents of a run of tokens begin: what Megatron's index says; of text a file is one;
 * of other files a document ends with each end-of-text token, and with the file.
 *
 * Counting reads every file without an index once. Memory: a number for each file. */
#ifndef SL_FILES_TOKEN_DOCUMENTS_H
#define SL_FILES_TOKEN_DOCUMENTS_H

#include "tokens.h"

typedef struct sl_token_documents sl_token_documents;

/* Counts the documents of files `first_file` .. `first_file` + `file_count` - 1 of `tokens`,
 * borrowed. `end_of_text`: the token behind each document; -1: not known. SL_ERROR_USAGE: it is not
 * known, and a file says its documents by nothing else. Statuses of sl_tokens_read. */
sl_status sl_token_documents_open(const sl_tokens *tokens, uint32_t first_file, uint32_t file_count,
                                  int32_t end_of_text, sl_token_documents **out_documents);

/* NULL is fine. */
void sl_token_documents_close(sl_token_documents *documents);

uint64_t sl_token_documents_count(const sl_token_documents *documents);

/* The token of the run at which document `document` <= count begins; of the count: the end of the
 * last file. May read a file up to that place. */
sl_status sl_token_documents_start(const sl_token_documents *documents, uint64_t document,
                                   uint64_t *out_token);

#endif
