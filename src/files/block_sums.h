/* Checksums of a file's blocks, and reading that takes no byte on trust: a block is read once, its
 * checksum is compared where it was read to, and its bytes are used from there. So what is used is
 * what was checked, whatever the disk, the page cache or another program does in between.
 *
 * Knows no format. Who writes a file notes its bytes as they go by; who reads it has the sums from
 * elsewhere, a manifest, or makes them while it reads the file a first time.
 *
 * Invariant: a reader gives out no byte of a block whose checksum it has not compared.
 */
#ifndef SL_FILES_BLOCK_SUMS_H
#define SL_FILES_BLOCK_SUMS_H

#include "base/hash.h"
#include "files.h"

enum {
    SL_BLOCK_SUMS_BYTES = 256 << 10, /* of a block, if the file has not too many of them */
    SL_BLOCK_SUMS_COUNT_MAX = 1 << 15,
    SL_BLOCK_SUMS_BYTES_MIN = 4 << 10, /* of a block that is read, with the next */
    SL_BLOCK_SUMS_BYTES_MAX = 64 << 20,
    SL_BLOCK_SUMS_DIGITS = 16 /* of one, as text */
};

typedef struct sl_block_sums {
    uint64_t file_bytes, block_bytes; /* the last block may be shorter */
    uint64_t count;
    uint64_t *sums; /* owned, [count]: the XXH3-64 of each block */
} sl_block_sums;

/* Room for the sums of a file of this size. The blocks have SL_BLOCK_SUMS_BYTES, twice as often as
 * it takes to have no more than SL_BLOCK_SUMS_COUNT_MAX: 256 KiB up to 8 GiB.
 * SL_ERROR_USAGE: it is larger than 2 TiB. */
sl_status sl_block_sums_open(uint64_t file_bytes, sl_block_sums *out_sums);

/* A zeroed one is fine. */
void sl_block_sums_close(sl_block_sums *sums);

/* The sums as one text of hexadecimal digits, SL_BLOCK_SUMS_DIGITS each, in the order of the
 * blocks; release it with free(). */
sl_status sl_block_sums_format(const sl_block_sums *sums, char **out_text);

/* Reads such a text. SL_ERROR_DATA: it is none of a file of this size in such blocks; the message
 * does not name the file. */
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

/* The next bytes; no more than the file was said to have. */
void sl_block_maker_note(sl_block_maker *maker, const void *data, uint64_t bytes);

/* A zeroed one is fine. */
void sl_block_maker_close(sl_block_maker *maker);

/* ---- reading ---- */

/* One thread at a time. Keeps the block that was read last, for reads that end within it. */
typedef struct sl_block_reader {
    sl_block_sums sums;   /* owned */
    unsigned char *block; /* [sums.block_bytes, or the file's if fewer] */
    uint64_t kept;        /* index of the block in there, or UINT64_MAX */
} sl_block_reader;

/* Takes the sums over, also on failure. */
sl_status sl_block_reader_open(sl_block_sums *sums, sl_block_reader **out_reader);

/* NULL is fine. */
void sl_block_reader_close(sl_block_reader *reader);

/* As sl_files_read_at, of a file that has the size of the sums. SL_ERROR_DAMAGED names the file and
 * the block whose checksum is another one. */
sl_status sl_block_reader_read(sl_block_reader *reader, const sl_file *file, uint64_t offset,
                               uint64_t bytes, void *data);

/* Reads all blocks that are not the one that is kept. */
sl_status sl_block_reader_check(sl_block_reader *reader, const sl_file *file);

#endif
