/* A file, or a directory of files, that has its name only when it is whole.
 *
 * It is made under a name of its own beside its place, NAME.tmp- and the number of this process,
 * synced, and renamed. What is there stays until then, and goes only where that was asked for; a
 * directory only if nothing but a model's files is in it. A process that dies leaves at most the
 * temporary.
 */
#ifndef SL_SESSION_CONVERT_OUTPUT_H
#define SL_SESSION_CONVERT_OUTPUT_H

#include "files/files.h"

typedef struct sl_output {
    char *path, *temporary; /* the name it gets, and the one it has; NULL: not open */
    bool is_directory, overwrites;
    bool is_made;  /* the temporary is there */
    int directory; /* the temporary directory, -1 */
} sl_output;

/* Looks at the place; makes nothing. SL_ERROR_USAGE: something is there and may not go.
 * SL_ERROR_MISSING: its directory is not there. */
sl_status sl_output_open(const char *path, bool is_directory, bool overwrites,
                         sl_output *out_output);

/* Removes a temporary that was not published. A zeroed one is fine. */
void sl_output_close(sl_output *output);

/* Makes the directory and a file in it, whose name may have directories in front; or the file
 * itself, which has no `name`. SL_ERROR_IO. */
sl_status sl_output_create(sl_output *output, const char *name, sl_file *out_file);

/* Makes a small file and syncs it. */
sl_status sl_output_write_text(sl_output *output, const char *name, const char *text,
                               uint64_t bytes);

/* Gives it its name, durably; its files are synced and closed. SL_ERROR_IO. */
sl_status sl_output_publish(sl_output *output);

#endif
