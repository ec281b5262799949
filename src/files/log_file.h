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
    SL_LOG_FILE_NEW,    /* that must not be there yet: SL_ERROR_USAGE */
    SL_LOG_FILE_OWN     /* behind what is there; if that is no log of this run: SL_ERROR_IO */
} sl_log_file_mode;

/* Where the log of a run goes, and what may be there. */
typedef struct sl_log_target {
    const char *path;
    sl_log_file_mode mode;
    const char *run; /* the id of the run, which the log carries */
} sl_log_target;

/* Returns whether an open log carries the id of `run`. */
typedef bool (*sl_log_judge)(int fd, const char *run);

/* SL_ERROR_USAGE, which names `option`: a regular file is at `path` that begins with something
 * other than `start`, so it is no such log, and is neither emptied nor added to. */
sl_status sl_log_file_check(const char *option, const char *path, const char *start);

/* True if a regular file, and not a link to one, is at `path`, and `is_own` is true of it. */
bool sl_log_file_is_own(const char *path, const char *run, sl_log_judge is_own);

/* Opens a file, pipe or device. With OWN only a file for which sl_log_file_is_own is true is
 * opened, and nothing is made or changed if there is none; the other modes do not use `is_own`.
 * SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_log_file_open(const sl_log_target *target, sl_log_judge is_own, sl_log_file *out_file);

/* One that is closed is fine. */
void sl_log_file_close(sl_log_file *file);

/* Appends a record. SL_ERROR_IO: it could not; later ones may be. */
sl_status sl_log_file_write(const sl_log_file *file, const void *record, size_t bytes);

#endif
