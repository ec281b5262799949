/* Whether a file is a JSON document that holds records, as data sets are often given: an array of
 * objects, or an object over several lines of which a member is such an array. Neither text nor
 * JSON lines: what a model would learn of it is punctuation. JSON lines have a whole object in
 * their first line and are none; nor are settings, objects without such a member.
 */
#ifndef SL_FILES_JSON_RECORDS_H
#define SL_FILES_JSON_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { SL_JSON_RECORDS_START_BYTES = 8000 }; /* of a file, that are looked at */

/* Judges by the start of a file, or all of it. */
bool sl_json_records_start(const char *start, uint64_t bytes);

/* Fails with SL_ERROR_DATA and says what to do with such a file. */
sl_status sl_json_records_refuse(const char *path);

#endif
