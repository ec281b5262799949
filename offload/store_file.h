/* One file of the disk store: nameless, mode 0600, preallocated. Knows nothing of pieces, checksums
 * and requests. */
#ifndef SL_OFFLOAD_STORE_FILE_H
#define SL_OFFLOAD_STORE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sl_store_file {
    int fd;                /* -1: none */
    const char *directory; /* for messages; borrowed */
    bool is_direct;        /* bypasses the page cache */
    bool is_reserved;
    uint32_t unit;  /* a short transfer is continued at a multiple of this */
    char note[160]; /* what is special about the file, for people; "" if nothing */
} sl_store_file;

/* Makes a file of `bytes` bytes in `directory`, which must belong to this user or root and be
 * writable to nobody else (unless sticky). SL_ERROR_MISSING: no such directory; SL_ERROR_IO: what
 * is wrong with it, or how many bytes are needed and how many free. */
sl_status sl_store_file_open(const char *directory, uint64_t bytes, sl_store_file *out_file);

/* Closes the file, which frees its space. */
void sl_store_file_close(sl_store_file *file);

/* Drops bytes that were just moved from the page cache, which would grow beside the planned memory.
 * Written bytes must be on the disk already. Does nothing for a file with direct I/O. */
void sl_store_file_settle(const sl_store_file *file, uint64_t offset, uint32_t bytes);

/* Free bytes of the file system. */
uint64_t sl_store_file_free_bytes(const sl_store_file *file);

#endif
