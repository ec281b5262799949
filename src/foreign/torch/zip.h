/* Zip archives whose members are stored and not packed, as torch.save writes them: where each
 * member lies, by its name. Archives of more than 4 GiB (zip64) too. Packed, encrypted and split
 * ones are refused. Layout: PKWARE's APPNOTE 6.3.10. */
#ifndef SL_FOREIGN_TORCH_ZIP_H
#define SL_FOREIGN_TORCH_ZIP_H

#include <stdbool.h>

#include "files/files.h"

typedef struct sl_zip_member {
    const char *name; /* not ended by a NUL */
    uint32_t name_bytes;
    uint64_t bytes;
    uint64_t header;   /* where its local header is in the file */
    uint32_t checksum; /* CRC-32 of its bytes; 0 of one that was written without */
} sl_zip_member;

typedef struct sl_zip {
    const sl_file *file;
    void *directory;        /* as it stands in the file; the names lie there */
    sl_zip_member *members; /* [count], by name */
    uint32_t count;
} sl_zip;

enum { SL_ZIP_DIRECTORY_MAX = 64 << 20 };

/* Whether a file starts as an archive does; 4 bytes are enough. */
bool sl_zip_starts(const void *start, uint64_t bytes);

/* Reads the directory of an open file, which has to outlive it. SL_ERROR_DATA says what is wrong,
 * without the file's name. SL_ERROR_IO. */
sl_status sl_zip_open(const sl_file *file, sl_zip *out_zip);

/* A zeroed one is fine. */
void sl_zip_close(sl_zip *zip);

/* NULL: there is none of this name. */
const sl_zip_member *sl_zip_find(const sl_zip *zip, const char *name, uint32_t name_bytes);

/* Whether bytes that were read are a member's by its checksum; true of a member without one. */
bool sl_zip_is_sound(const sl_zip_member *member, const void *data);

/* The first byte of a member's data, which lie in the file whole. SL_ERROR_DATA. SL_ERROR_IO. */
sl_status sl_zip_locate(const sl_zip *zip, const sl_zip_member *member, uint64_t *out_first_byte);

#endif
