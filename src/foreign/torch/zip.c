/* The directory at the end of an archive; see zip.h. */
#include "zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "crc32.h"

enum {
    END_BYTES = 22,
    END_COMMENT_MAX = 65535,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    EXTRA_HEADER_BYTES = 4,
    EXTRA_ZIP64 = 1,
    FLAG_ENCRYPTED = 1
};

static const uint32_t END_MAGIC = 0x06054b50, LOCATOR_MAGIC = 0x07064b50, END64_MAGIC = 0x06064b50,
                      ENTRY_MAGIC = 0x02014b50, LOCAL_MAGIC = 0x04034b50;

static uint64_t get(const unsigned char *data, uint32_t bytes)
{
    uint64_t number = 0;
    for (uint32_t i = 0; i < bytes; i++)
        number |= (uint64_t)data[i] << (8 * i);
    return number;
}

bool sl_zip_starts(const void *start, uint64_t bytes)
{
    return bytes >= sizeof LOCAL_MAGIC && get(start, sizeof LOCAL_MAGIC) == LOCAL_MAGIC;
}

/* ---- the end, which says where the directory is ---- */

typedef struct directory_place {
    uint64_t first_byte, bytes, count;
} directory_place;

/* The last place where the end can start and whose comment goes to the end of the file. */
static sl_status find_end(const unsigned char *tail, uint64_t bytes, const unsigned char **out_end)
{
    for (uint64_t at = bytes - END_BYTES + 1; at-- > 0;)
        if (get(tail + at, 4) == END_MAGIC && at + END_BYTES + get(tail + at + 20, 2) == bytes) {
            *out_end = tail + at;
            return SL_OK;
        }
    SL_FAIL(SL_ERROR_DATA, "has no directory at its end: the archive is cut, or none");
}

static sl_status read_end64(const sl_file *file, uint64_t end, directory_place *place)
{
    unsigned char locator[LOCATOR_BYTES], data[END64_BYTES];
    if (end < LOCATOR_BYTES + END64_BYTES)
        SL_FAIL(SL_ERROR_DATA, "has no room for the directory that its end needs");
    SL_TRY(sl_files_read_at(file, end - LOCATOR_BYTES, LOCATOR_BYTES, locator));
    uint64_t at = get(locator + 8, 8);
    if (get(locator, 4) != LOCATOR_MAGIC || at > end - LOCATOR_BYTES - END64_BYTES)
        SL_FAIL(SL_ERROR_DATA, "has no end of a large archive, though its numbers need one");
    SL_TRY(sl_files_read_at(file, at, END64_BYTES, data));
    if (get(data, 4) != END64_MAGIC)
        SL_FAIL(SL_ERROR_DATA, "has no end of a large archive where it says that it is");
    *place = (directory_place){get(data + 48, 8), get(data + 40, 8), get(data + 32, 8)};
    return SL_OK;
}

static sl_status check_place(const directory_place *place, uint64_t end)
{
    if (place->bytes > SL_ZIP_DIRECTORY_MAX)
        SL_FAIL(SL_ERROR_DATA, "has a directory of %" PRIu64 " bytes; at most %d are read",
                place->bytes, SL_ZIP_DIRECTORY_MAX);
    if (place->first_byte > end || place->bytes > end - place->first_byte)
        SL_FAIL(SL_ERROR_DATA, "has its directory beyond its end");
    if (place->count > place->bytes / ENTRY_BYTES)
        SL_FAIL(SL_ERROR_DATA, "has %" PRIu64 " members in a directory of %" PRIu64 " bytes",
                place->count, place->bytes);
    return SL_OK;
}

static sl_status read_end(const sl_file *file, directory_place *out_place)
{
    uint64_t most = END_BYTES + END_COMMENT_MAX, bytes = file->bytes < most ? file->bytes : most;
    if (bytes < END_BYTES)
        SL_FAIL(SL_ERROR_DATA, "has %" PRIu64 " bytes: it is cut", file->bytes);
    unsigned char *tail = malloc(bytes);
    const unsigned char *end = NULL;
    if (!tail)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the end of an archive");
    sl_status status = sl_files_read_at(file, file->bytes - bytes, bytes, tail);
    if (status == SL_OK)
        status = find_end(tail, bytes, &end);
    uint64_t place = end ? file->bytes - bytes + (uint64_t)(end - tail) : 0;
    if (status == SL_OK) {
        *out_place = (directory_place){get(end + 16, 4), get(end + 12, 4), get(end + 10, 2)};
        bool is_large = out_place->first_byte == UINT32_MAX || out_place->bytes == UINT32_MAX ||
                        out_place->count == UINT16_MAX;
        if (is_large)
            status = read_end64(file, place, out_place);
    }
    free(tail);
    return status == SL_OK ? check_place(out_place, place) : status;
}

/* ---- the directory ---- */

/* Sizes and place of a member that do not fit 32 bits stand in an extra field, in this order and
 * only those that are needed. */
static sl_status widen(const unsigned char *extra, uint64_t bytes, uint64_t *numbers[3])
{
    while (bytes >= EXTRA_HEADER_BYTES) {
        uint64_t id = get(extra, 2), field = get(extra + 2, 2);
        extra += EXTRA_HEADER_BYTES;
        bytes -= EXTRA_HEADER_BYTES;
        if (field > bytes)
            break;
        for (int i = 0; i < 3 && id == EXTRA_ZIP64; i++)
            if (*numbers[i] == UINT32_MAX && field >= 8) {
                *numbers[i] = get(extra, 8);
                extra += 8;
                field -= 8;
                bytes -= 8;
            }
        extra += field;
        bytes -= field;
    }
    for (int i = 0; i < 3; i++)
        if (*numbers[i] == UINT32_MAX)
            SL_FAIL(SL_ERROR_DATA, "has a member whose size is said nowhere");
    return SL_OK;
}

static sl_status read_entry(const unsigned char *entry, uint64_t left, sl_zip_member *out_member,
                            uint64_t *out_bytes)
{
    if (left < ENTRY_BYTES || get(entry, 4) != ENTRY_MAGIC)
        SL_FAIL(SL_ERROR_DATA, "has no entry where its directory needs one");
    uint64_t name_bytes = get(entry + 28, 2), extra_bytes = get(entry + 30, 2);
    *out_bytes = ENTRY_BYTES + name_bytes + extra_bytes + get(entry + 32, 2);
    if (*out_bytes > left)
        SL_FAIL(SL_ERROR_DATA, "has an entry that ends behind its directory");
    uint64_t packed = get(entry + 20, 4), bytes = get(entry + 24, 4), header = get(entry + 42, 4);
    if (packed == UINT32_MAX || bytes == UINT32_MAX || header == UINT32_MAX)
        SL_TRY(widen(entry + ENTRY_BYTES + name_bytes, extra_bytes,
                     (uint64_t *[]){&bytes, &packed, &header}));
    if (get(entry + 8, 2) & FLAG_ENCRYPTED)
        SL_FAIL(SL_ERROR_DATA, "has an encrypted member");
    if (get(entry + 10, 2) != 0 || packed != bytes)
        SL_FAIL(SL_ERROR_DATA, "has a packed member: PyTorch packs none");
    *out_member = (sl_zip_member){.name = (const char *)entry + ENTRY_BYTES,
                                  .name_bytes = (uint32_t)name_bytes,
                                  .bytes = bytes,
                                  .header = header,
                                  .checksum = (uint32_t)get(entry + 16, 4)};
    return SL_OK;
}

static int compare_names(const char *a, uint32_t a_bytes, const char *b, uint32_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int compare_members(const void *a, const void *b)
{
    const sl_zip_member *left = a, *right = b;
    return compare_names(left->name, left->name_bytes, right->name, right->name_bytes);
}

static sl_status read_entries(sl_zip *zip, uint64_t bytes)
{
    const unsigned char *at = zip->directory;
    for (uint32_t i = 0; i < zip->count; i++) {
        uint64_t taken;
        SL_TRY(read_entry(at, bytes, &zip->members[i], &taken));
        at += taken;
        bytes -= taken;
    }
    if (zip->count > 0)
        qsort(zip->members, zip->count, sizeof *zip->members, compare_members);
    for (uint32_t i = 1; i < zip->count; i++)
        if (compare_members(&zip->members[i - 1], &zip->members[i]) == 0)
            SL_FAIL(SL_ERROR_DATA, "has two members of one name");
    return SL_OK;
}

static sl_status read_directory(sl_zip *zip, const directory_place *place)
{
    zip->count = (uint32_t)place->count; /* of 46 bytes each, in 64 MiB */
    zip->directory = malloc(place->bytes + 1);
    zip->members = calloc(place->count + 1, sizeof *zip->members);
    if (!zip->directory || !zip->members)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the directory of an archive");
    SL_TRY(sl_files_read_at(zip->file, place->first_byte, place->bytes, zip->directory));
    return read_entries(zip, place->bytes);
}

sl_status sl_zip_open(const sl_file *file, sl_zip *out_zip)
{
    directory_place place;
    sl_zip zip = {.file = file};
    SL_TRY(read_end(file, &place));
    sl_status status = read_directory(&zip, &place);
    if (status != SL_OK) {
        sl_zip_close(&zip);
        return status;
    }
    *out_zip = zip;
    return SL_OK;
}

void sl_zip_close(sl_zip *zip)
{
    free(zip->directory);
    free(zip->members);
    *zip = (sl_zip){0};
}

const sl_zip_member *sl_zip_find(const sl_zip *zip, const char *name, uint32_t name_bytes)
{
    uint32_t low = 0, high = zip->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const sl_zip_member *member = &zip->members[middle];
        int order = compare_names(member->name, member->name_bytes, name, name_bytes);
        if (order == 0)
            return member;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

bool sl_zip_is_sound(const sl_zip_member *member, const void *data)
{
    sl_crc32 crc;
    sl_crc32_init(&crc);
    sl_crc32_add(&crc, data, member->bytes);
    return member->checksum == 0 || member->checksum == crc.value;
}

sl_status sl_zip_locate(const sl_zip *zip, const sl_zip_member *member, uint64_t *out_first_byte)
{
    unsigned char data[LOCAL_BYTES];
    uint64_t end = zip->file->bytes;
    if (member->header > end || end - member->header < LOCAL_BYTES)
        SL_FAIL(SL_ERROR_DATA, "has a member beyond its end");
    SL_TRY(sl_files_read_at(zip->file, member->header, LOCAL_BYTES, data));
    if (get(data, 4) != LOCAL_MAGIC)
        SL_FAIL(SL_ERROR_DATA, "has no member where its directory says that one is");
    uint64_t first = member->header + LOCAL_BYTES + get(data + 26, 2) + get(data + 28, 2);
    if (first > end || member->bytes > end - first)
        SL_FAIL(SL_ERROR_DATA, "has a member that ends behind the file");
    *out_first_byte = first;
    return SL_OK;
}
