/* Checksums of a file's blocks, and a reader that compares them. A block is read into memory once,
 * its checksum is compared there, and its bytes are used from there. So the bytes that are used are
 * those that were checked, whatever the disk, the page cache or another program does in between.
 *
 * Knows no format of files. A writer passes its bytes to an sl_block_maker as it writes them. A
 * reader gets the sums from elsewhere (a manifest), or makes them in a first read of the file.
 *
 * Invariant: a reader gives out no byte of a block before it has compared the block's checksum.
 */
#ifndef SL_FILES_BLOCK_SUMS_H
#define SL_FILES_BLOCK_SUMS_H

#include "base/hash.h"
#include "files.h"

enum {
    SL_BLOCK_SUMS_BYTES = 256 << 10, /* of a block that is written; more for files above 8 GiB */
    SL_BLOCK_SUMS_COUNT_MAX = 1 << 15,
    SL_BLOCK_SUMS_BYTES_MIN = 4 << 10,  /* the smallest block that sl_block_sums_parse accepts */
    SL_BLOCK_SUMS_BYTES_MAX = 64 << 20, /* the largest one */
    SL_BLOCK_SUMS_DIGITS = 16           /* of one checksum, as text */
};

typedef struct sl_block_sums {
    uint64_t file_bytes, block_bytes; /* the last block may be shorter */
    uint64_t count;
    uint64_t *sums; /* owned, [count]: the XXH3-64 of each block */
} sl_block_sums;

/* Takes memory for the sums of a file of this size, all zero. A block has SL_BLOCK_SUMS_BYTES,
 * doubled until there are at most SL_BLOCK_SUMS_COUNT_MAX blocks: 256 KiB for files up to 8 GiB.
 * SL_ERROR_USAGE: the file is larger than 2 TiB. SL_ERROR_SYSTEM. */
sl_status sl_block_sums_open(uint64_t file_bytes, sl_block_sums *out_sums);

/* A zeroed one is fine. */
void sl_block_sums_close(sl_block_sums *sums);

/* The sums as one text of hexadecimal digits, SL_BLOCK_SUMS_DIGITS each, in the order of the
 * blocks; release it with free(). */
sl_status sl_block_sums_format(const sl_block_sums *sums, char **out_text);

/* Reads such a text. SL_ERROR_DATA: the text is not right for a file and blocks of these sizes; the
 * message does not name the file. */
sl_status sl_block_sums_parse(uint64_t file_bytes, uint64_t block_bytes, const char *text,
                              sl_block_sums *out_sums);

/* ---- making ---- */

/* Notes the bytes of a file from its first to its last. */
typedef struct sl_block_maker {
    sl_block_sums *sums; /* borrowed */
    sl_hash_stream *stream;
    uint64_t done_bytes;
} sl_block_maker;

sl_status sl_block_maker_open(sl_block_sums *sums, sl_block_maker *out_maker);

/* Notes the next bytes. In all no more than the file's size in `sums`. */
void sl_block_maker_note(sl_block_maker *maker, const void *data, uint64_t bytes);

/* A zeroed one is fine. */
void sl_block_maker_close(sl_block_maker *maker);

/* ---- reading ---- */

/* For one thread at a time. Keeps a block of which only a part was asked for: the next read often
 * asks for the rest. */
typedef struct sl_block_reader {
    sl_block_sums sums;   /* owned */
    unsigned char *block; /* [sums.block_bytes, or the file's if fewer] */
    uint64_t kept;        /* index of that block; UINT64_MAX: none is kept */
} sl_block_reader;

/* Takes ownership of the sums, also on failure, and zeroes *sums. */
sl_status sl_block_reader_open(sl_block_sums *sums, sl_block_reader **out_reader);

/* NULL is fine. */
void sl_block_reader_close(sl_block_reader *reader);

/* As sl_files_read_at, for a file of the size that the sums say. SL_ERROR_DAMAGED: a checksum
 * differs; names the file and the block. */
sl_status sl_block_reader_read(sl_block_reader *reader, const sl_file *file, uint64_t offset,
                               uint64_t bytes, void *data);

/* Gives the bytes of a block, until the next call. If its sum is 0, the sum is made of what was
 * read, and all later reads are compared with it: for a caller that compares the bytes with another
 * checksum meanwhile. Statuses of sl_block_reader_read. */
sl_status sl_block_reader_learn(sl_block_reader *reader, const sl_file *file, uint64_t index,
                                const unsigned char **out_block);

/* Reads and compares all blocks. Statuses of sl_block_reader_read. */
sl_status sl_block_reader_check(sl_block_reader *reader, const sl_file *file);

#endif
