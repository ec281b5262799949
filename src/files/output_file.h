/* A file that a command writes at its end, whole, in the place of an older one of the same kind.
 *
 * What is there is never emptied: the new file lies beside it, without a name where the file system
 * can, until it is published. A file of another kind is not replaced: a mistaken path may be that
 * of the data. What is no regular file (a pipe, a terminal) and what is named through /dev or
 * /proc is written as it is, where the kind allows that.
 */
#ifndef SL_FILES_OUTPUT_FILE_H
#define SL_FILES_OUTPUT_FILE_H

#include <stdio.h>

#include "files.h"

typedef struct sl_output_file_kind {
    const char *option; /* that names it: "--report" */
    const char *noun;   /* "report" */
    const char *start;  /* the first bytes of each */
    bool takes_streams; /* it may also go to what is no regular file */
} sl_output_file_kind;

/* All 0: closed. */
typedef struct sl_output_file {
    const sl_output_file_kind *kind;
    char *path;                  /* its name, links followed; owned */
    sl_file file;                /* without its name yet; closed where `path` is written as it is */
    FILE *stream;                /* to write to; NULL: closed */
    char *buffer;                /* of the stream */
    struct sl_output_sink *sink; /* what the stream writes to, and the first error there; owned */
} sl_output_file;

/* True if two paths name one regular file, or would once they are made: by another spelling, a
 * symbolic or a hard link. NULL names none. */
bool sl_output_file_is_same(const char *a, const char *b);

/* Whether a file may be put there, before time goes into what it will hold. SL_ERROR_USAGE:
 * something else is there, that is not replaced; SL_ERROR_IO, SL_ERROR_SYSTEM as
 * sl_output_file_open. */
sl_status sl_output_file_check(const sl_output_file_kind *kind, const char *path);

/* The same, and opens a file that is to take this name. The stream holds back what is written to it
 * until the output is published. */
sl_status sl_output_file_open(const sl_output_file_kind *kind, const char *path,
                              sl_output_file *out_output);

/* Writes what is held back, gives the file its name, and closes it, also on failure. SL_ERROR_IO:
 * what was written is lost, and what was there before is as it was; SL_ERROR_USAGE: likewise,
 * something else came there meanwhile. */
sl_status sl_output_file_publish(sl_output_file *output);

/* Closes an output that is not to be seen; one that is closed is fine. */
void sl_output_file_discard(sl_output_file *output);

/* Opens, writes and publishes a text. */
sl_status sl_output_file_write_text(const sl_output_file_kind *kind, const char *path,
                                    const char *text);

#endif
