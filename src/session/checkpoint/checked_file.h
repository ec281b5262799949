/* The files of a checkpoint, opened against what its manifest says of them: size, and checksums.
 *
 * Small texts are compared with their checksum at once. Files of tensors stay open, and are read
 * through the checksums of their blocks from their first byte on, by whoever loads them as by
 * whoever only wants to know that they are whole: so each byte is read once, and none is used that
 * was not compared. The manifests of older versions have no checksums of blocks: there they are
 * made by reading the file a first time, while all of it is compared with its own.
 */
#ifndef SL_SESSION_CHECKPOINT_CHECKED_FILE_H
#define SL_SESSION_CHECKPOINT_CHECKED_FILE_H

#include "files/safetensors.h"
#include "manifest.h"

/* How much is read when a file is opened, each more than the one before. SIZES: size and header, of
 * what is not going to be loaded. LOADED: the same, and what loading needs. ALL: everything. DISK:
 * everything, from the disk: a save, which has just written it, wants to know what the disk has. */
typedef enum sl_read_extent {
    SL_READ_SIZES,
    SL_READ_LOADED,
    SL_READ_ALL,
    SL_READ_DISK
} sl_read_extent;

typedef struct sl_checked_file_args {
    int inside; /* the open directory of the checkpoint, and its path for messages */
    const char *path;
    sl_manifest_file which;
    const sl_manifest_entry *entry;
    sl_read_extent extent;
} sl_checked_file_args;

/* Opens a file; a text is closed again, and gives NULL. SL_ERROR_DATA: it is not what the manifest
 * says. SL_ERROR_MISSING, SL_ERROR_IO. */
sl_status sl_checked_file_open(const sl_checked_file_args *args, sl_safetensors **out_file);

#endif
