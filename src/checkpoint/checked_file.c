/* Compares sizes, checksums of whole files and checksums of blocks; see checked_file.h. */
#define _GNU_SOURCE
#include "checked_file.h"

#include <fcntl.h>
#include <stdlib.h>

enum { HASH_BUFFER_BYTES = 4 << 20 };

/* `maker` NULL: the checksums of blocks are not asked for. */
static sl_status hash_file(const sl_file *file, void *buffer, sl_hash_stream *stream,
                           sl_block_maker *maker)
{
    for (uint64_t done = 0; done < file->bytes; done += HASH_BUFFER_BYTES) {
        uint64_t left = file->bytes - done;
        uint64_t bytes = left < HASH_BUFFER_BYTES ? left : HASH_BUFFER_BYTES;
        SL_TRY(sl_files_read_at(file, done, bytes, buffer));
        sl_hash_update(stream, buffer, bytes);
        if (maker)
            sl_block_maker_note(maker, buffer, bytes);
    }
    return SL_OK;
}

static sl_status compare_hash(const sl_file *file, sl_hash_value found, sl_hash_value expected)
{
    if (found.high == expected.high && found.low == expected.low)
        return SL_OK;
    SL_FAIL(SL_ERROR_DATA, "%s: checksum is %016llx%016llx, but the manifest says %016llx%016llx",
            sl_files_show(file->path).text, (unsigned long long)found.high,
            (unsigned long long)found.low, (unsigned long long)expected.high,
            (unsigned long long)expected.low);
}

static sl_status check_hash(const sl_file *file, sl_hash_value expected, sl_block_maker *maker)
{
    sl_hash_stream *stream;
    void *buffer = malloc(file->bytes < HASH_BUFFER_BYTES ? file->bytes + 1 : HASH_BUFFER_BYTES);
    if (!buffer)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to check %s", sl_files_show(file->path).text);
    sl_status status = sl_hash_open(&stream);
    if (status == SL_OK) {
        status = hash_file(file, buffer, stream, maker);
        if (status == SL_OK)
            status = compare_hash(file, sl_hash_digest(stream), expected);
        sl_hash_close(stream);
    }
    free(buffer);
    return status;
}

static sl_status check_bytes(const sl_file *file, const sl_manifest_entry *entry)
{
    if (file->bytes != entry->bytes)
        SL_FAIL(SL_ERROR_DATA, "%s: has %llu bytes, but the manifest says %llu",
                sl_files_show(file->path).text, (unsigned long long)file->bytes,
                (unsigned long long)entry->bytes);
    return SL_OK;
}

/* For a file of an older version: makes the checksums of its blocks in the same read that compares
 * the whole file with its own checksum. */
static sl_status measure_sums(const sl_file *file, const sl_manifest_entry *entry,
                              sl_block_sums *out_sums)
{
    sl_block_maker maker = {0};
    sl_block_sums sums;
    SL_TRY(sl_block_sums_open(file->bytes, &sums));
    sl_status status = sl_block_maker_open(&sums, &maker);
    if (status == SL_OK)
        status = check_hash(file, entry->hash, &maker);
    sl_block_maker_close(&maker);
    if (status == SL_OK)
        *out_sums = sums;
    else
        sl_block_sums_close(&sums);
    return status;
}

/* Leaves the sums empty if the data of the file are not going to be read. */
static sl_status find_sums(const sl_file *file, const sl_manifest_entry *entry,
                           sl_read_extent extent, sl_block_sums *out_sums)
{
    if (extent == SL_READ_SIZES)
        return SL_OK;
    if (!entry->block_sums)
        return measure_sums(file, entry, out_sums);
    sl_status status =
        sl_block_sums_parse(entry->bytes, entry->block_bytes, entry->block_sums, out_sums);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "%s", sl_files_show(file->path).text);
}

/* The size is compared first: a file that was cut is then called too short, not a bad header. */
static sl_status check_plain(const sl_checked_file_args *args, const sl_file *file,
                             sl_block_sums *out_sums)
{
    SL_TRY(check_bytes(file, args->entry));
    if (sl_manifest_file_group(args->which) == SL_GROUP_COUNT)
        return check_hash(file, args->entry->hash, NULL);
    if (args->extent == SL_READ_DISK)
        sl_files_forget(file);
    return find_sums(file, args->entry, args->extent, out_sums);
}

static sl_status open_tensors(const sl_checked_file_args *args, sl_block_sums *sums,
                              sl_safetensors **out_file)
{
    const char *name = sl_manifest_file_name(args->which);
    if (!sums->sums)
        return sl_safetensors_open(args->inside, args->path, name, SL_LINKS_REFUSE, out_file);
    SL_TRY(sl_safetensors_open_checked(args->inside, args->path, name, sums, out_file));
    posix_fadvise((*out_file)->file.fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return SL_OK;
}

/* A file whose sums were made here was read to its end for that: it is not read again. */
static sl_status check_rest(const sl_checked_file_args *args, const sl_safetensors *file)
{
    SL_TRY(check_bytes(&file->file, args->entry)); /* again: it was opened a second time */
    const bool is_read = args->extent < SL_READ_ALL || !args->entry->block_sums;
    return is_read ? SL_OK : sl_block_reader_check(file->blocks, &file->file);
}

static sl_status open_checked(const sl_checked_file_args *args, sl_block_sums *sums,
                              sl_safetensors **out_file)
{
    sl_safetensors *file;
    SL_TRY(open_tensors(args, sums, &file));
    sl_status status = check_rest(args, file);
    if (status == SL_OK)
        *out_file = file;
    else
        sl_safetensors_close(file);
    return status;
}

sl_status sl_checked_file_open(const sl_checked_file_args *args, sl_safetensors **out_file)
{
    sl_block_sums sums = {0};
    sl_file file;
    SL_TRY(sl_files_open(args->inside, args->path, sl_manifest_file_name(args->which),
                         SL_LINKS_REFUSE, &file));
    sl_status status = check_plain(args, &file, &sums);
    sl_files_close(&file);
    if (status == SL_OK && sl_manifest_file_group(args->which) != SL_GROUP_COUNT)
        status = open_checked(args, &sums, out_file);
    sl_block_sums_close(&sums);
    return status == SL_ERROR_DAMAGED ? SL_ERROR_DATA
                                      : status; /* nothing of the file was loaded yet */
}
