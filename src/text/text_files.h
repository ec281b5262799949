/* Paths of data, as a user names them: a file stands for itself, a directory for the files below it
 * that are data; where tokens may be, the name of a pair of Megatron's for NAME.bin.
 *
 * Below a directory these files are passed over, beside those that file_list.h passes over: empty
 * files; binary files, with a NUL byte in their first 8000 bytes, unpacked (git's rule); JSON
 * documents of records (files/json_records.h); descriptions of tokens (token_description.h). Files
 * of tokens stay if they have a known start, or Megatron's index or a description beside them. A
 * file that is only named .bin may be tokens without a header or anything else: it stays where
 * tokens may be and the directory has no text. A warning counts the files that are passed over.
 */
#ifndef SL_TEXT_TEXT_FILES_H
#define SL_TEXT_TEXT_FILES_H

#include <stdbool.h>

#include "files/file_list.h"

/* What the files may be. */
typedef enum sl_text_kinds {
    SL_TEXT_ALONE,
    SL_TEXT_OR_TOKENS,
    SL_TEXT_EXAMPLES /* JSON lines, and arrays of objects */
} sl_text_kinds;

/* Appends what a path stands for; reads the start of each file below a directory. Statuses of
 * sl_file_list_add and sl_text_stream_read. SL_ERROR_DATA: no file below a directory is data. */
sl_status sl_text_files_add(sl_file_list *list, const char *path, sl_text_kinds kinds);

#endif
