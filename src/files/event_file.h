/* TensorBoard's event files, as TensorFlow writes them: records, each with its length and the
 * checksums (CRC-32C, masked) of length and content, and in each record an `Event` of protobuf.
 *
 * A directory holds the files of one run and of those that went on from it. Readers take them in
 * the order of their names, which begin with the time in seconds; a new file therefore gets a time
 * after all that are there. A name ends in the id of the run.
 */
#ifndef SL_FILES_EVENT_FILE_H
#define SL_FILES_EVENT_FILE_H

#include <stdint.h>

#include "log_file.h"

enum { SL_EVENT_BYTES = 1 << 14 }; /* of the values of an event */

typedef struct sl_event_file {
    sl_log_file file;
    unsigned char values[SL_EVENT_BYTES]; /* of the event that was begun: a Summary */
    size_t value_bytes;
    uint64_t step;
    bool is_too_large;
} sl_event_file;

/* True if `directory` is a directory, not a link to one, and holds a file of `run`. */
bool sl_event_file_is_own(const char *directory, const char *run);

/* Makes a file in a directory and begins it: from `first_step` on this run says what there is, so a
 * reader drops what files before it have of that step and later ones. With EMPTY and APPEND the
 * directory is made with its parents if it is missing; with NEW it must be missing; with OWN
 * sl_event_file_is_own must be true of it. SL_ERROR_IO, SL_ERROR_SYSTEM, SL_ERROR_MISSING,
 * SL_ERROR_DATA: see sl_files_make_directories. */
sl_status sl_event_file_open(const sl_log_target *target, uint64_t first_step,
                             sl_event_file *out_file);
void sl_event_file_close(sl_event_file *file);

/* Begins an event with the values of a step. */
void sl_event_file_begin(sl_event_file *file, uint64_t step);

/* Adds a value to it. `meaning` (or NULL) is what a reader shows beside the tag: the first value of
 * a tag decides. */
void sl_event_file_add(sl_event_file *file, const char *tag, float value, const char *meaning);

/* Writes it, whole or not at all. SL_ERROR_IO: it could not; later ones may be. */
sl_status sl_event_file_end(sl_event_file *file);

#endif
