/* Files as the readers and writers of this room use them: opened carefully, read and written in
 * full, synced by name, and never reported without their path.
 *
 * Knows nothing of any format. Every call that takes a directory takes it as an open descriptor and
 * its path; the path is only for messages. Statuses of opening: SL_ERROR_MISSING (not there or not
 * readable), SL_ERROR_DATA (not a regular file, a symbolic link where none is allowed),
 * SL_ERROR_IO, SL_ERROR_SYSTEM (no descriptor or memory left).
 */
#ifndef SL_FILES_FILES_H
#define SL_FILES_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

enum { SL_SHOWN_BYTES = 256 };

/* Text that is safe to print. */
typedef struct sl_shown {
    char text[SL_SHOWN_BYTES];
} sl_shown;

/* `text` with every byte outside printable ASCII as \xNN, its middle left out when it is long:
 * names from files must not reach a terminal as they are. NULL becomes "". */
sl_shown sl_files_show(const char *text);

/* "DIRECTORY/NAME", or the name alone without a directory; release with free(). */
sl_status sl_files_join_path(const char *directory_path, const char *name, char **out_path);

bool sl_files_name_ends(const char *name, const char *ending);

typedef struct sl_file {
    int fd;         /* -1: closed, or at rest */
    uint64_t bytes; /* size when opened, or written so far */
    char *path;     /* for messages, and of a file at rest to open it; owned */
    bool is_unseen; /* of sl_files_create_unseen: its path is not in the directory yet */
    dev_t device;   /* of a file at rest: which one it was */
    ino_t inode;
    const struct sl_file *whole; /* of a part of a file: that file, borrowed; else NULL */
    uint64_t first_byte;         /* of a part: where it starts in the file */
} sl_file;

typedef enum sl_links { SL_LINKS_FOLLOW, SL_LINKS_REFUSE } sl_links;

/* How a file is packed, by its first bytes; 4 are enough. */
typedef enum sl_packing { SL_PACKING_NONE, SL_PACKING_GZIP, SL_PACKING_ZSTD } sl_packing;
sl_packing sl_files_packing(const void *start, uint64_t bytes);

/* Whether a name is there, of whatever kind; names and statuses as below. What cannot be told, as
 * when the disk fails, is a failure and not an absence. */
sl_status sl_files_exists(int directory, const char *directory_path, const char *name,
                          bool *out_exists);

/* Opens a directory; `directory` may be AT_FDCWD, `directory_path` NULL then. The caller closes the
 * descriptor. SL_ERROR_DATA: not a directory. */
sl_status sl_files_open_directory(int directory, const char *directory_path, const char *name,
                                  sl_links links, int *out_fd);

/* Opens a regular file for reading. FIFOs and devices are refused without being opened. */
sl_status sl_files_open(int directory, const char *directory_path, const char *name, sl_links links,
                        sl_file *out_file);

/* Makes a file that did not exist, mode 0600, for writing and reading. */
sl_status sl_files_create(int directory, const char *directory_path, const char *name,
                          sl_file *out_file);

/* The same with the mode that a program's files usually have: 0666 less the umask. */
sl_status sl_files_create_shared(int directory, const char *directory_path, const char *name,
                                 sl_file *out_file);

/* Makes a file that is to be called `name` once it is whole (sl_files_publish). Where the file
 * system can, it has no name before, and a process that is killed leaves nothing; else it is called
 * NAME.tmp-PID, which is its path. Mode 0600. */
sl_status sl_files_create_unseen(const char *name, sl_file *out_file);

/* The same with mode 0666 less the umask. */
sl_status sl_files_create_unseen_shared(const char *name, sl_file *out_file);

/* Gives such a file the name NAME.tmp-PID, if it has none yet, for who renames it by other rules
 * than those of sl_files_publish. SL_ERROR_IO: it is as before. */
sl_status sl_files_link_unseen(sl_file *file);

/* Gives such a file its name in the place of whatever had it; the file stays open. SL_ERROR_IO: it
 * is as before. */
sl_status sl_files_publish(sl_file *file, const char *name);

/* Closes such a file, and removes it if it was not published; a zeroed or closed file is fine. */
void sl_files_discard(sl_file *file);

/* Closes and frees; a zeroed or closed file is fine. Written data is safe only after a sync. */
void sl_files_close(sl_file *file);

/* Lays a file to rest that sl_files_open opened for reading from AT_FDCWD: its descriptor is
 * closed, and each sl_files_read_at opens the file anew. For those who hold more files than
 * descriptors. */
sl_status sl_files_rest(sl_file *file);

/* A part of an open file as a file for reading: its offsets count from `first_byte`. `whole` has to
 * outlive it; closing it leaves `whole` open. SL_ERROR_DATA: the file ends before the part does. */
sl_status sl_files_take_part(const sl_file *whole, uint64_t first_byte, uint64_t bytes,
                             sl_file *out_part);

/* Fills `data` with exactly `bytes` bytes at `offset`. SL_ERROR_DATA: the file ends before, or is
 * another one than the file that was laid to rest. */
sl_status sl_files_read_at(const sl_file *file, uint64_t offset, uint64_t bytes, void *data);

/* Writes all of `data` at the end of the file, short writes continued. */
sl_status sl_files_append(sl_file *file, uint64_t bytes, const void *data);

/* Reserves space for a file that will have `bytes` bytes, where the file system can: a full disk is
 * then found before the first byte is written. */
sl_status sl_files_reserve(const sl_file *file, uint64_t bytes);

/* Starts writing back [offset, offset + bytes), and waits for and drops the `bytes` before it from
 * the page cache: a long stream then neither fills memory nor ends in one long sync. */
sl_status sl_files_push(const sl_file *file, uint64_t offset, uint64_t bytes);

/* sl_files_append, and sl_files_push for each 32 MiB; `pushed_bytes` is 0 at the start of a file.
 */
sl_status sl_files_append_pushed(sl_file *file, uint64_t *pushed_bytes, uint64_t bytes,
                                 const void *data);

/* Makes the file's data and size durable. A failed sync is final: never try it again. */
sl_status sl_files_sync(const sl_file *file);

/* Drops a synced file from the page cache: what is read next comes from the disk, where the file
 * system has one. */
void sl_files_forget(const sl_file *file);

/* Makes the names in a directory durable. */
sl_status sl_files_sync_directory(int directory, const char *directory_path);

/* The same of the directory in which a path ends. */
sl_status sl_files_sync_parent(const char *path);

/* Reads a whole small file into `out_text`, NUL behind it; release with free(). SL_ERROR_DATA: more
 * than `limit` bytes. */
sl_status sl_files_read_text(const sl_file *file, uint64_t limit, char **out_text);

/* Creates, writes and syncs a small file. */
sl_status sl_files_write_text(int directory, const char *directory_path, const char *name,
                              const char *text);

/* Puts a small file in the place of `name` in one step, by way of a `temporary` name. */
sl_status sl_files_replace_text(int directory, const char *directory_path, const char *name,
                                const char *temporary, const char *text);

/* Makes a directory and its missing parents, each synced into its parent; one that is there too,
 * where its parent can be opened: who made it may have been killed before. */
sl_status sl_files_make_directories(const char *path);

/* The space that is free for a path, whose last parts may not be there yet, and the bytes of a
 * block there. SL_ERROR_IO. */
sl_status sl_files_free_space(const char *path, uint64_t *out_free_bytes,
                              uint64_t *out_block_bytes);

/* Renames inside one directory. REPLACE: as rename(2). NEW: fails with EEXIST if `to` is there.
 * EXCHANGE: swaps the two. Returns 0 or an errno value; where the file system lacks NEW or
 * EXCHANGE, EINVAL or ENOSYS. */
typedef enum sl_rename { SL_RENAME_REPLACE, SL_RENAME_NEW, SL_RENAME_EXCHANGE } sl_rename;
int sl_files_rename(int directory, const char *from, const char *to, sl_rename kind);

#endif
