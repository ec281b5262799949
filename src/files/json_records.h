/* Recognises a file that is one JSON document of records, as data sets are often distributed: an
 * array of objects, or an object over several lines with a member that is such an array. Such a
 * file is neither text nor JSON lines: a model would learn its punctuation. JSON lines are not
 * recognised as such a document, as their first line holds a whole object; nor is an object without
 * such a member (a file of settings).
 */
#ifndef SL_FILES_JSON_RECORDS_H
#define SL_FILES_JSON_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { SL_JSON_RECORDS_START_BYTES = 8000 }; /* of a file, that are looked at */

/* Judges by the start of a file; `bytes` <= SL_JSON_RECORDS_START_BYTES are enough. */
bool sl_json_records_start(const char *start, uint64_t bytes);

/* True of an array of objects alone. */
bool sl_json_records_is_array(const char *start, uint64_t bytes);

/* Always fails with SL_ERROR_DATA; the message says how to turn such a file into JSON lines. */
sl_status sl_json_records_refuse(const char *path);

#endif
