/* Makes, prints and compares the checksums of blocks; see block_sums.h. */
#include "block_sums.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

static uint64_t count_blocks(uint64_t file_bytes, uint64_t block_bytes)
{
    return file_bytes / block_bytes + (file_bytes % block_bytes != 0);
}

/* ---- the sums ---- */

static sl_status take_memory(sl_block_sums *sums)
{
    sums->count = count_blocks(sums->file_bytes, sums->block_bytes);
    sums->sums = calloc(sums->count + 1, sizeof *sums->sums);
    if (!sums->sums)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %" PRIu64 " checksums", sums->count);
    return SL_OK;
}

sl_status sl_block_sums_open(uint64_t file_bytes, sl_block_sums *out_sums)
{
    sl_block_sums sums = {.file_bytes = file_bytes, .block_bytes = SL_BLOCK_SUMS_BYTES};
    while (count_blocks(file_bytes, sums.block_bytes) > SL_BLOCK_SUMS_COUNT_MAX)
        sums.block_bytes *= 2;
    if (sums.block_bytes > SL_BLOCK_SUMS_BYTES_MAX)
        SL_FAIL(SL_ERROR_USAGE, "a file of %" PRIu64 " bytes is too large for checksums by block",
                file_bytes);
    SL_TRY(take_memory(&sums));
    *out_sums = sums;
    return SL_OK;
}

void sl_block_sums_close(sl_block_sums *sums)
{
    free(sums->sums);
    *sums = (sl_block_sums){0};
}

sl_status sl_block_sums_format(const sl_block_sums *sums, char **out_text)
{
    char *text = malloc(sums->count * SL_BLOCK_SUMS_DIGITS + 1);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %" PRIu64 " checksums", sums->count);
    text[0] = '\0';
    for (uint64_t i = 0; i < sums->count; i++)
        snprintf(text + i * SL_BLOCK_SUMS_DIGITS, SL_BLOCK_SUMS_DIGITS + 1, "%016" PRIx64,
                 sums->sums[i]);
    *out_text = text;
    return SL_OK;
}

static bool parse_sum(const char *text, uint64_t *out_sum)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t sum = 0;
    for (int i = 0; i < SL_BLOCK_SUMS_DIGITS; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return false;
        sum = sum << 4 | (uint64_t)(digit - digits);
    }
    *out_sum = sum;
    return true;
}

/* The numbers come from a file: they are checked before memory is taken by them. */
static sl_status check_text(uint64_t file_bytes, uint64_t block_bytes, const char *text)
{
    const uint64_t count = block_bytes > 0 ? count_blocks(file_bytes, block_bytes) : 0;
    if (block_bytes < SL_BLOCK_SUMS_BYTES_MIN || block_bytes > SL_BLOCK_SUMS_BYTES_MAX ||
        (block_bytes & (block_bytes - 1)) != 0 || count > SL_BLOCK_SUMS_COUNT_MAX ||
        strlen(text) != count * SL_BLOCK_SUMS_DIGITS)
        SL_FAIL(SL_ERROR_DATA,
                "%zu digits are no checksums of %" PRIu64 " bytes in blocks of %" PRIu64,
                strlen(text), file_bytes, block_bytes);
    return SL_OK;
}

sl_status sl_block_sums_parse(uint64_t file_bytes, uint64_t block_bytes, const char *text,
                              sl_block_sums *out_sums)
{
    sl_block_sums sums = {.file_bytes = file_bytes, .block_bytes = block_bytes};
    SL_TRY(check_text(file_bytes, block_bytes, text));
    SL_TRY(take_memory(&sums));
    for (uint64_t i = 0; i < sums.count; i++)
        if (!parse_sum(text + i * SL_BLOCK_SUMS_DIGITS, &sums.sums[i])) {
            sl_block_sums_close(&sums);
            SL_FAIL(SL_ERROR_DATA, "the checksum of block %" PRIu64 " is no number", i);
        }
    *out_sums = sums;
    return SL_OK;
}

/* ---- making ---- */

sl_status sl_block_maker_open(sl_block_sums *sums, sl_block_maker *out_maker)
{
    sl_block_maker maker = {.sums = sums};
    SL_TRY(sl_hash_open(&maker.stream));
    sl_hash_begin_64(maker.stream);
    *out_maker = maker;
    return SL_OK;
}

void sl_block_maker_note(sl_block_maker *maker, const void *data, uint64_t bytes)
{
    const uint64_t block_bytes = maker->sums->block_bytes;
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t index = maker->done_bytes / block_bytes;
        const uint64_t end = sl_bits_min((index + 1) * block_bytes, maker->sums->file_bytes);
        const uint64_t part = sl_bits_min(bytes - done, end - maker->done_bytes);
        sl_hash_update_64(maker->stream, (const char *)data + done, part);
        done += part;
        maker->done_bytes += part;
        if (maker->done_bytes < end)
            continue;
        maker->sums->sums[index] = sl_hash_digest_64(maker->stream);
        sl_hash_begin_64(maker->stream);
    }
}

void sl_block_maker_close(sl_block_maker *maker)
{
    if (maker->stream)
        sl_hash_close(maker->stream);
    *maker = (sl_block_maker){0};
}

/* ---- reading ---- */

sl_status sl_block_reader_open(sl_block_sums *sums, sl_block_reader **out_reader)
{
    sl_block_reader *reader = calloc(1, sizeof *reader);
    void *block = malloc(sl_bits_min(sums->block_bytes, sums->file_bytes) + 1);
    if (!reader || !block) {
        free(reader);
        free(block);
        sl_block_sums_close(sums);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a block of a file");
    }
    *reader = (sl_block_reader){.sums = *sums, .block = block, .kept = UINT64_MAX};
    *sums = (sl_block_sums){0};
    *out_reader = reader;
    return SL_OK;
}

void sl_block_reader_close(sl_block_reader *reader)
{
    if (!reader)
        return;
    sl_block_sums_close(&reader->sums);
    free(reader->block);
    free(reader);
}

static uint64_t count_bytes(const sl_block_sums *sums, uint64_t index)
{
    return sl_bits_min(sums->block_bytes, sums->file_bytes - index * sums->block_bytes);
}

static sl_status compare(const sl_block_sums *sums, const sl_file *file, uint64_t index,
                         const void *data)
{
    const uint64_t bytes = count_bytes(sums, index), sum = sl_hash_64(data, bytes);
    if (sum == sums->sums[index])
        return SL_OK;
    SL_FAIL(SL_ERROR_DAMAGED,
            "%s: checksum is %016" PRIx64 " of the %" PRIu64 " bytes at offset %" PRIu64
            ", but %016" PRIx64 " is expected",
            sl_files_show(file->path).text, sum, bytes, index * sums->block_bytes,
            sums->sums[index]);
}

static sl_status keep_block(sl_block_reader *reader, const sl_file *file, uint64_t index)
{
    const sl_block_sums *sums = &reader->sums;
    if (reader->kept == index)
        return SL_OK;
    reader->kept = UINT64_MAX;
    SL_TRY(
        sl_files_read_at(file, index * sums->block_bytes, count_bytes(sums, index), reader->block));
    SL_TRY(compare(sums, file, index, reader->block));
    reader->kept = index;
    return SL_OK;
}

/* Whole blocks are read into the caller's memory and compared there, without a copy. */
static sl_status read_whole(const sl_block_sums *sums, const sl_file *file, uint64_t index,
                            uint64_t bytes, unsigned char *data)
{
    SL_TRY(sl_files_read_at(file, index * sums->block_bytes, bytes, data));
    for (uint64_t done = 0; done < bytes; done += count_bytes(sums, index++))
        SL_TRY(compare(sums, file, index, data + done));
    return SL_OK;
}

/* How many of the next `bytes` bytes are whole blocks, up to the kept block. */
static uint64_t count_whole(const sl_block_reader *reader, uint64_t index, uint64_t bytes)
{
    uint64_t whole = 0;
    for (; index < reader->sums.count && index != reader->kept; index++) {
        const uint64_t next = count_bytes(&reader->sums, index);
        if (next > bytes - whole)
            break;
        whole += next;
    }
    return whole;
}

sl_status sl_block_reader_read(sl_block_reader *reader, const sl_file *file, uint64_t offset,
                               uint64_t bytes, void *data)
{
    const sl_block_sums *sums = &reader->sums;
    if (offset > sums->file_bytes || bytes > sums->file_bytes - offset)
        SL_FAIL(SL_ERROR_DATA,
                "%s: ends at byte %" PRIu64 ", and %" PRIu64 " bytes at %" PRIu64 " are asked",
                sl_files_show(file->path).text, sums->file_bytes, bytes, offset);
    for (uint64_t done = 0, part; done < bytes; done += part) {
        const uint64_t at = offset + done, index = at / sums->block_bytes;
        const uint64_t within = at % sums->block_bytes;
        unsigned char *to = (unsigned char *)data + done;
        part = within == 0 ? count_whole(reader, index, bytes - done) : 0;
        if (part > 0) {
            SL_TRY(read_whole(sums, file, index, part, to));
            continue;
        }
        SL_TRY(keep_block(reader, file, index));
        part = sl_bits_min(bytes - done, count_bytes(sums, index) - within);
        memcpy(to, reader->block + within, part);
    }
    return SL_OK;
}

sl_status sl_block_reader_learn(sl_block_reader *reader, const sl_file *file, uint64_t index,
                                const unsigned char **out_block)
{
    const sl_block_sums *sums = &reader->sums;
    const uint64_t bytes = count_bytes(sums, index);
    if (sums->sums[index] == 0) {
        reader->kept = UINT64_MAX;
        SL_TRY(sl_files_read_at(file, index * sums->block_bytes, bytes, reader->block));
        sums->sums[index] = sl_hash_64(reader->block, bytes);
        reader->kept = index;
    }
    SL_TRY(keep_block(reader, file, index));
    *out_block = reader->block;
    return SL_OK;
}

sl_status sl_block_reader_check(sl_block_reader *reader, const sl_file *file)
{
    for (uint64_t i = 0; i < reader->sums.count; i++)
        SL_TRY(keep_block(reader, file, i));
    return SL_OK;
}
