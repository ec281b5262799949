/* Small JSON files that are objects: config.json, shard indices, manifests.
 *
 * Strict: no duplicate keys, no trailing bytes, a size limit before the parse. What an object has
 * to hold is said in tables, see fields.h.
 */
#ifndef SL_FILES_JSON_FILE_H
#define SL_FILES_JSON_FILE_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"

/* For a program, not for a library, before it has threads: replaces jansson's allocator by one with
 * a reserve, so that a parse never lacks memory midway. jansson has one allocator a process, so a
 * library must not replace it for its host; without this call a parse only tests beforehand whether
 * the most memory that it can need is free. */
void sl_json_file_guard_memory(void);

/* As json_dumps, but NULL wherever memory was refused: that one may leave out a key then. The
 * caller frees the text. */
char *sl_json_file_dump(const json_t *root, size_t flags);

/* A value as text in lines, with so many digits of a real number, for people and programs to read.
 * The caller frees it. SL_ERROR_SYSTEM: no memory. */
sl_status sl_json_file_format(const json_t *root, int digits, char **out_text);

/* A string of any bytes: those that are no UTF-8, as in a name that the system gave or in a text
 * that was cut, stand in it as \xNN. NULL: no memory. */
json_t *sl_json_file_text(const char *text);

/* As json_loadb, but a lack of memory is an error: json_loadb may then return other values than the
 * text has, or abort. Without sl_json_file_guard_memory this call may do so too, if other threads
 * take the memory meanwhile. Writes NULL where the text is not right, which `error` explains. */
sl_status sl_json_file_load(const char *text, uint64_t bytes, size_t flags, json_error_t *error,
                            json_t **out_root);

/* Parses `bytes` bytes of text whose root must be an object; `path` is for messages. The caller
 * drops the reference. SL_ERROR_DATA, SL_ERROR_SYSTEM. */
sl_status sl_json_file_parse(const char *path, const char *text, uint64_t bytes, json_t **out_root);

/* Opens, reads and parses a file; symbolic links are followed. Statuses as above and those of
 * sl_files_open. */
sl_status sl_json_file_read(int directory, const char *directory_path, const char *name,
                            uint64_t limit, json_t **out_root);

#endif
