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

/* For the one program whose process this is, before it has threads: puts a reserve behind jansson's
 * allocator, so that no parse of that process is ever refused memory midway. jansson has one
 * allocator a process, so a library must not do this for its host: without it a parse makes sure
 * beforehand that the most it can need is there. */
void sl_json_file_guard_memory(void);

/* As json_dumps, but NULL wherever memory was refused: that one may leave out a key then. The
 * caller frees the text. */
char *sl_json_file_dump(const json_t *root, size_t flags);

/* A string of any bytes: those that are no UTF-8, as in a name that the system gave or in a text
 * that was cut, stand in it as \xNN. NULL: no memory. */
json_t *sl_json_file_text(const char *text);

/* As json_loadb, but where memory is refused it says so: that one may give something else than the
 * text, or abort (as this one may where memory was there when it began, and others took it: see
 * sl_json_file_guard_memory). Writes NULL where the text is not right, which `error` explains. */
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
