/* Files of torch.save made here byte by byte, for the tests of their reader and as models for files
 * that break one rule. The pickle of a tensor is what PyTorch 2 writes, shortened by its memo. */
#ifndef SL_TESTS_TORCH_CASE_H
#define SL_TESTS_TORCH_CASE_H

#include "scratch_dir.h"

enum { TORCH_BYTES_MAX = 8192 };

/* Bytes on their way into a file. */
typedef struct torch_bytes {
    unsigned char data[TORCH_BYTES_MAX];
    size_t count;
} torch_bytes;

static inline void torch_add(torch_bytes *to, const void *data, size_t count)
{
    scratch_need(count <= TORCH_BYTES_MAX - to->count, "room for a file");
    memcpy(to->data + to->count, data, count);
    to->count += count;
}

#define TORCH_ADD(to, literal) torch_add(to, literal, sizeof literal - 1)

static inline void torch_add_number(torch_bytes *to, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++, number >>= 8)
        torch_add(to, &(unsigned char){(unsigned char)number}, 1);
}

/* "KEY" of `type` with so many elements: ('storage', torch.TYPE, KEY, 'cpu', count). */
static inline void torch_add_storage(torch_bytes *to, const char *type, char key, uint32_t count)
{
    TORCH_ADD(to, "(X\7\0\0\0storagectorch\n");
    torch_add(to, type, strlen(type));
    TORCH_ADD(to, "\nX\1\0\0\0");
    torch_add(to, &key, 1);
    TORCH_ADD(to, "X\3\0\0\0cpuJ");
    torch_add_number(to, count, 4);
    TORCH_ADD(to, "tQ");
}

/* What a good file has: {"w": tensor of 2 x 3} in a storage of 7 elements, from the second on. */
typedef struct torch_tensor {
    const char *type;
    uint32_t elements; /* of the storage */
    uint8_t offset, rows, columns, row_stride, column_stride;
    const char *callable; /* NULL: _rebuild_tensor_v2 */
} torch_tensor;

static const torch_tensor torch_good = {"FloatStorage", 7, 1, 2, 3, 3, 1, NULL};

static inline void torch_add_pickle(torch_bytes *to, const torch_tensor *tensor)
{
    static const char usual[] = "torch._utils\n_rebuild_tensor_v2\n";
    const char *callable = tensor->callable ? tensor->callable : usual;
    const uint8_t numbers[] = {
        'K', tensor->offset,     'K', tensor->rows,          'K', tensor->columns, 0x86,
        'K', tensor->row_stride, 'K', tensor->column_stride, 0x86};
    TORCH_ADD(to, "\200\2}X\1\0\0\0wc");
    torch_add(to, callable, strlen(callable));
    TORCH_ADD(to, "(");
    torch_add_storage(to, tensor->type, '0', tensor->elements);
    torch_add(to, numbers, sizeof numbers);
    TORCH_ADD(to, "\211ccollections\nOrderedDict\n)RtRs.");
}

/* ---- archives ---- */

/* CRC-32 bit by bit, as the standard has it. */
static inline uint32_t torch_checksum(const unsigned char *data, uint64_t bytes)
{
    uint32_t value = ~0u;
    for (uint64_t i = 0; i < bytes; i++) {
        value ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? 0xedb88320u : 0);
    }
    return ~value;
}

/* A change of a field: of a local header, of an entry of the directory, or of the end. */
typedef struct torch_damage {
    enum { TORCH_SOUND, TORCH_LOCAL, TORCH_ENTRY, TORCH_END } where;
    int member; /* of LOCAL and ENTRY */
    int offset, bytes;
    uint64_t value;
} torch_damage;

typedef struct torch_member {
    const char *name;
    const void *data;
    size_t bytes;
} torch_member;

static inline void torch_damage_at(torch_bytes *file, const torch_damage *damage, int where,
                                   int member, size_t start)
{
    if (!damage || (int)damage->where != where || damage->member != member)
        return;
    for (int i = 0; i < damage->bytes; i++)
        file->data[start + (size_t)damage->offset + (size_t)i] =
            (unsigned char)(damage->value >> (8 * i));
}

static inline void torch_add_archive(torch_bytes *file, const torch_member *members, int count,
                                     const torch_damage *damage)
{
    size_t headers[8];
    for (int i = 0; i < count; i++) {
        size_t name_bytes = strlen(members[i].name);
        headers[i] = file->count;
        TORCH_ADD(file, "PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        torch_add_number(file, members[i].bytes, 4);
        torch_add_number(file, members[i].bytes, 4);
        torch_add_number(file, name_bytes, 4);
        torch_damage_at(file, damage, TORCH_LOCAL, i, headers[i]);
        torch_add(file, members[i].name, name_bytes);
        torch_add(file, members[i].data, members[i].bytes);
    }
    size_t directory = file->count;
    for (int i = 0; i < count; i++) {
        size_t start = file->count, name_bytes = strlen(members[i].name);
        TORCH_ADD(file, "PK\1\2\0\0\0\0\0\0\0\0\0\0\0\0");
        torch_add_number(file, torch_checksum(members[i].data, members[i].bytes), 4);
        torch_add_number(file, members[i].bytes, 4);
        torch_add_number(file, members[i].bytes, 4);
        torch_add_number(file, name_bytes, 4); /* and no extra fields */
        torch_add_number(file, 0, 8);          /* comment, disk, attributes */
        torch_add_number(file, 0, 2);
        torch_add_number(file, headers[i], 4);
        torch_damage_at(file, damage, TORCH_ENTRY, i, start);
        torch_add(file, members[i].name, name_bytes);
    }
    size_t end = file->count;
    TORCH_ADD(file, "PK\5\6\0\0\0\0");
    torch_add_number(file, (uint64_t)count, 2);
    torch_add_number(file, (uint64_t)count, 2);
    torch_add_number(file, end - directory, 4);
    torch_add_number(file, directory, 4);
    torch_add_number(file, 0, 2);
    torch_damage_at(file, damage, TORCH_END, 0, end);
}

static inline uint64_t torch_get(const unsigned char *data, int bytes)
{
    uint64_t number = 0;
    for (int i = bytes; i-- > 0;)
        number = number << 8 | data[i];
    return number;
}

/* Walks the members of an archive without a comment: where the entry in the directory starts, and
 * the data. False: that was the last. */
typedef struct torch_walk {
    size_t entry, first, bytes;
    uint64_t left, next;
} torch_walk;

static inline torch_walk torch_walk_start(const unsigned char *file, size_t file_bytes)
{
    const unsigned char *end = file + file_bytes - 22;
    return (torch_walk){.left = torch_get(end + 10, 2), .next = torch_get(end + 16, 4)};
}

static inline bool torch_walk_next(const unsigned char *file, torch_walk *walk)
{
    if (walk->left == 0)
        return false;
    walk->left--;
    walk->entry = walk->next;
    const unsigned char *entry = file + walk->entry;
    const size_t header = torch_get(entry + 42, 4);
    walk->bytes = torch_get(entry + 24, 4);
    walk->first = header + 30 + torch_get(file + header + 26, 2) + torch_get(file + header + 28, 2);
    walk->next += 46 + torch_get(entry + 28, 2) + torch_get(entry + 30, 2);
    return true;
}

/* Makes the checksums of an archive's members again, after a change in them. */
static inline void torch_seal(unsigned char *file, size_t file_bytes)
{
    torch_walk walk = torch_walk_start(file, file_bytes);
    while (torch_walk_next(file, &walk)) {
        const uint32_t checksum = torch_checksum(file + walk.first, walk.bytes);
        for (int i = 0; i < 4; i++)
            file[walk.entry + 16 + (size_t)i] = (unsigned char)(checksum >> (8 * i));
    }
}

/* Seven floats of 0.5, 1.5, ... */
static inline const float *torch_elements(void)
{
    static const float elements[7] = {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f, 6.5f};
    return elements;
}

static inline void torch_add_good_archive(torch_bytes *file, const torch_tensor *tensor,
                                          const torch_damage *damage)
{
    torch_bytes pickle = {.count = 0};
    torch_add_pickle(&pickle, tensor);
    const torch_member members[] = {{"a/data.pkl", pickle.data, pickle.count},
                                    {"a/byteorder", "little", 6},
                                    {"a/data/0", torch_elements(), 7 * sizeof(float)},
                                    {"a/version", "3\n", 2}};
    torch_add_archive(file, members, 4, damage);
}

/* ---- before archives ---- */

static inline void torch_add_old_file(torch_bytes *file, const torch_tensor *tensor)
{
    TORCH_ADD(file, "\200\2\212\n\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.");
    TORCH_ADD(file, "\200\2M\xe9\3.");
    TORCH_ADD(file, "\200\2}(X\x10\0\0\0protocol_versionM\xe9\3X\r\0\0\0little_endian\210u.");
    torch_add_pickle(file, tensor);
    TORCH_ADD(file, "\200\2]X\1\0\0\0"
                    "0a.");
    torch_add_number(file, tensor->elements, 8);
    torch_add(file, torch_elements(), 7 * sizeof(float));
}

#endif
