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

/* Parses `bytes` bytes of text whose root must be an object; `path` is for messages. The caller
 * drops the reference. SL_ERROR_DATA, SL_ERROR_SYSTEM. */
sl_status sl_json_file_parse(const char *path, const char *text, uint64_t bytes, json_t **out_root);

/* Opens, reads and parses a file; symbolic links are followed. Statuses as above and those of
 * sl_files_open. */
sl_status sl_json_file_read(int directory, const char *directory_path, const char *name,
                            uint64_t limit, json_t **out_root);

#endif
