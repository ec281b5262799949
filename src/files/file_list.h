/* Paths of files, as a user names them: a path stands for itself, a directory for every regular
 * file below it, in the order of their paths' bytes. Below a directory, names that begin with a dot
 * and symbolic links are passed over, and an .idx whose .bin is there, which is read with it. */
#ifndef SL_FILES_FILE_LIST_H
#define SL_FILES_FILE_LIST_H

#include <stdint.h>

#include "base/status.h"

/* Zeros: empty. */
typedef struct sl_file_list {
    char **items;
    uint32_t count, room;
} sl_file_list;

/* Appends what a path stands for. What is there and no directory, or not there at all, is appended
 * as it is. SL_ERROR_MISSING: a directory without a file. SL_ERROR_IO: one cannot be listed. */
sl_status sl_file_list_add(sl_file_list *list, const char *path);

/* Appends one path. */
sl_status sl_file_list_append(sl_file_list *list, const char *path);

void sl_file_list_clear(sl_file_list *list);

#endif
