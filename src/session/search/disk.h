/* Directories of the disk tier, before anything is made in them. */
#ifndef SL_SESSION_SEARCH_DISK_H
#define SL_SESSION_SEARCH_DISK_H

#include <stdint.h>

#include "base/status.h"

/* Bytes that a disk tier over these directories can take: equal parts in each, and what several of
 * them have on one file system is shared. SL_ERROR_MISSING, SL_ERROR_IO: names the directory. */
sl_status sl_disk_free_bytes(const char *const *directories, uint32_t directory_count,
                             uint64_t *out_bytes);

#endif
