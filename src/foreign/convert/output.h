/* A file, or a directory of files, that has its name only when it is whole.
 *
 * A file has no name before, where the file system can make such files; else, and a directory
 * always, it is made under a name of its own beside its place, NAME.tmp- and the number of this
 * process. It is synced, and renamed. What is there stays until then, and goes only where that was
 * asked for; a directory only if nothing but a model's files is in it.
 *
 * A process that is killed leaves nothing of a file without a name. What it leaves of a directory
 * is removed when the next output is opened for the same place. That a directory was left shows a
 * mark in it, the file SL_OUTPUT_MARK: it is there while the directory is being written or removed,
 * and its writer holds its lock. Only directories go that have the mark, unlocked, and nothing
 * beside it but a model's files.
 */
#ifndef SL_FOREIGN_CONVERT_OUTPUT_H
#define SL_FOREIGN_CONVERT_OUTPUT_H

#include "files/files.h"

/* In a directory that is not whole. */
#define SL_OUTPUT_MARK ".sluice-unfinished"

typedef struct sl_output {
    char *path, *temporary; /* the name it gets, and the one it has; NULL: not open */
    bool is_directory, overwrites;
    bool is_made;        /* it was begun, and is not published */
    int directory, mark; /* the temporary directory, and its mark with the lock; -1 */
    sl_file file;        /* the file, which its writer has another descriptor of */
} sl_output;

/* Looks at the place, and removes what killed processes left of directories for it; makes nothing.
 * SL_ERROR_USAGE: something is there and may not go.
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
