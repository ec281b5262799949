/* Opens the files of a checkpoint and compares them with its manifest: sizes and checksums.
 *
 * Small texts are compared with their checksum at once. Files of tensors stay open. Every read of
 * them, the header included, compares the checksums of the blocks that it reads: a load and a mere
 * check use the same reader, so each byte is read once, and no byte is used that was not compared.
 * Manifests of older versions have no checksums of blocks. These are then made in a first read of
 * the whole file, which also compares the file with its own checksum.
 */
#ifndef SL_CHECKPOINT_CHECKED_FILE_H
#define SL_CHECKPOINT_CHECKED_FILE_H

#include "files/safetensors.h"
#include "manifest.h"

/* How much of a file is read when it is opened; each extent includes the one before. */
typedef enum sl_read_extent {
    SL_READ_SIZES,  /* size and header: the data are not going to be loaded */
    SL_READ_LOADED, /* and what a load needs: the checksums of the blocks */
    SL_READ_ALL,    /* the whole file */
    SL_READ_DISK    /* the whole file, from the disk and not from the page cache: after a save */
} sl_read_extent;

typedef struct sl_checked_file_args {
    int inside;       /* the open directory of the checkpoint */
    const char *path; /* of that directory, for messages */
    sl_manifest_file which;
    const sl_manifest_entry *entry;
    sl_read_extent extent;
} sl_checked_file_args;

/* Opens a file of tensors. A text is only checked and closed again: *out_file is left as it was.
 * SL_ERROR_DATA: the file is not what the manifest says. SL_ERROR_MISSING, SL_ERROR_IO. */
sl_status sl_checked_file_open(const sl_checked_file_args *args, sl_safetensors **out_file);

#endif
