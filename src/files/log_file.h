/* A file that grows by whole records, each written at once and at the end, whole or not at all: of
 * what a full disk took only in part, the part is cut off again. For logs of runs, which are read
 * while they are written.
 */
#ifndef SL_FILES_LOG_FILE_H
#define SL_FILES_LOG_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct sl_log_file {
    int fd;     /* -1: nothing is written */
    char *path; /* for messages; owned */
} sl_log_file;

typedef enum sl_log_file_mode {
    SL_LOG_FILE_EMPTY,  /* from the start */
    SL_LOG_FILE_APPEND, /* behind what is there, half a line at the end cut off */
    SL_LOG_FILE_NEW     /* that must not be there yet: SL_ERROR_USAGE */
} sl_log_file_mode;

/* SL_ERROR_USAGE, which names `option`: a regular file is at `path` that begins with something
 * other than `start`, so it is no such log, and is neither emptied nor added to. */
sl_status sl_log_file_check(const char *option, const char *path, const char *start);

/* Opens a file, pipe or device. SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_log_file_open(const char *path, sl_log_file_mode mode, sl_log_file *out_file);

/* One that is closed is fine. */
void sl_log_file_close(sl_log_file *file);

/* Appends a record. SL_ERROR_IO: it could not; later ones may be. */
sl_status sl_log_file_write(const sl_log_file *file, const void *record, size_t bytes);

#endif
