/* Distributed checkpoints made here byte by byte: a `.metadata` and a `.distcp` of one tensor "w"
 * of 2 x 3 in two chunks, and what breaks one rule of it. The pickle is what PyTorch 2 writes, with
 * names of classes instead of its memo. */
#ifndef SL_TESTS_DISTRIBUTED_CASE_H
#define SL_TESTS_DISTRIBUTED_CASE_H

#include <stdbool.h>

#include "torch_case.h"

/* A chunk: where it is in the tensor, and where its bytes are. */
typedef struct case_chunk {
    int dims;
    uint8_t offset[3], size[3];
    const char *file;
    int32_t shift, grow; /* of the place that is said, from the real one */
    bool is_unplaced, is_twice, is_packed, is_unlisted;
} case_chunk;

typedef struct case_metadata {
    const char *name; /* of the case */
    const char *message;
    const char *object, *dtype, *chunk_class, *place_class, *size_class;
    int dims;
    uint8_t size[3];
    case_chunk chunks[2];
    const char *storage;   /* the archive's type */
    uint8_t rows, columns; /* that the first archive holds; 0: those of its chunk */
    bool has_no_list;      /* chunks are None */
    int cut;               /* bytes of .metadata that are left out */
    int32_t file_cut;      /* of the .distcp */
    bool is_flipped;       /* a bit of the first element is another */
    const char *opcode;    /* put in front */
} case_metadata;

#define CASE_MODULE "torch.distributed.checkpoint.metadata\n"

/* What a case leaves at 0 is as in a good one. */
static inline case_metadata case_complete(const case_metadata *of)
{
    case_metadata made = *of;
    static const char *const defaults[] = {CASE_MODULE "Metadata",
                                           "torch\nfloat32",
                                           CASE_MODULE "ChunkStorageMetadata",
                                           "torch.distributed.checkpoint.filesystem\n_StorageInfo",
                                           "torch\nSize",
                                           "FloatStorage"};
    const char **const texts[] = {&made.object,      &made.dtype,      &made.chunk_class,
                                  &made.place_class, &made.size_class, &made.storage};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        *texts[i] = *texts[i] ? *texts[i] : defaults[i];
    made.dims = made.dims ? made.dims : 2;
    if (made.size[0] == 0)
        memcpy(made.size, "\2\3", 2);
    for (int i = 0; i < 2; i++) {
        case_chunk *chunk = &made.chunks[i];
        chunk->file = chunk->file ? chunk->file : "__0_0.distcp";
        if (chunk->dims > 0)
            continue;
        chunk->dims = 2;
        chunk->offset[0] = (uint8_t)i;
        memcpy(chunk->size, "\1\3", 2);
    }
    return made;
}

static inline void case_add_text(torch_bytes *to, const char *text)
{
    TORCH_ADD(to, "X");
    torch_add_number(to, strlen(text), 4);
    torch_add(to, text, strlen(text));
}

static inline void case_add_class(torch_bytes *to, const char *name)
{
    TORCH_ADD(to, "c");
    torch_add(to, name, strlen(name));
    TORCH_ADD(to, "\n");
}

static inline void case_add_integer(torch_bytes *to, int64_t value)
{
    TORCH_ADD(to, "J");
    torch_add_number(to, (uint32_t)value, 4);
}

static inline void case_add_size(torch_bytes *to, const char *class_name, int dims,
                                 const uint8_t *sizes)
{
    case_add_class(to, class_name);
    TORCH_ADD(to, "(");
    for (int i = 0; i < dims; i++)
        case_add_integer(to, (int8_t)sizes[i]);
    TORCH_ADD(to, "t\x85R");
}

/* The archive of a chunk, whose elements count from 1 on; returns its bytes. */
static inline size_t case_add_archive(torch_bytes *file, const case_metadata *of, int index)
{
    static const char *const tuples[] = {"", "\x85", "\x86", "\x87"};
    torch_bytes pickle = {.count = 0}, archive = {.count = 0};
    const case_chunk *chunk = &of->chunks[index];
    const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint8_t sizes[3], strides[3];
    uint32_t count = 1;
    memcpy(sizes, chunk->size, sizeof sizes);
    if (index == 0 && of->rows > 0)
        memcpy(sizes, (uint8_t[]){of->rows, of->columns}, 2);
    for (int i = chunk->dims; i-- > 0; count *= sizes[i])
        strides[i] = (uint8_t)count;
    TORCH_ADD(&pickle, "\200\2ctorch._utils\n_rebuild_tensor_v2\n(");
    torch_add_storage(&pickle, of->storage, '0', count);
    TORCH_ADD(&pickle, "K\0");
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < chunk->dims; i++)
            torch_add(&pickle, (uint8_t[]){'K', turn ? strides[i] : sizes[i]}, 2);
        torch_add(&pickle, tuples[chunk->dims], strlen(tuples[chunk->dims]));
    }
    TORCH_ADD(&pickle, "\211ccollections\nOrderedDict\n)RtR.");
    const torch_member members[] = {{"a/data.pkl", pickle.data, pickle.count},
                                    {"a/data/0", values, count * sizeof(float)}};
    torch_add_archive(&archive, members, 2, NULL);
    torch_add(file, archive.data, archive.count);
    return archive.count;
}

static inline void case_add_place(torch_bytes *to, const case_metadata *of, const case_chunk *chunk,
                                  size_t first, size_t bytes)
{
    case_add_class(to, CASE_MODULE "MetadataIndex");
    TORCH_ADD(to, ")\x81}(");
    case_add_text(to, "fqn");
    case_add_text(to, "w");
    case_add_text(to, "offset");
    case_add_size(to, of->size_class, chunk->dims, chunk->offset);
    TORCH_ADD(to, "ub");
    case_add_class(to, of->place_class);
    TORCH_ADD(to, ")\x81}(");
    case_add_text(to, "relative_path");
    case_add_text(to, chunk->file);
    case_add_text(to, "offset");
    case_add_integer(to, (int64_t)first + chunk->shift);
    case_add_text(to, "length");
    case_add_integer(to, (int64_t)bytes + chunk->grow);
    case_add_text(to, "transform_descriptors");
    if (chunk->is_packed)
        case_add_text(to, "zstd");
    else
        TORCH_ADD(to, "N");
    TORCH_ADD(to, "ub");
}

static inline void case_add_tensor(torch_bytes *to, const case_metadata *of)
{
    case_add_text(to, "w");
    case_add_class(to, CASE_MODULE "TensorStorageMetadata");
    TORCH_ADD(to, ")\x81}(");
    case_add_text(to, "properties");
    case_add_class(to, CASE_MODULE "TensorProperties");
    TORCH_ADD(to, ")\x81");
    case_add_class(to, of->dtype);
    TORCH_ADD(to, "\x85"
                  "b");
    case_add_text(to, "size");
    case_add_size(to, of->size_class, of->dims, of->size);
    case_add_text(to, "chunks");
    if (!of->has_no_list)
        TORCH_ADD(to, "](");
    for (int i = 0; !of->has_no_list && i < 2; i++) {
        const case_chunk *chunk = &of->chunks[i];
        for (int turn = 0; !chunk->is_unlisted && turn < 1 + chunk->is_twice; turn++) {
            case_add_class(to, of->chunk_class);
            TORCH_ADD(to, ")\x81}(");
            case_add_text(to, "offsets");
            case_add_size(to, of->size_class, chunk->dims, chunk->offset);
            case_add_text(to, "sizes");
            case_add_size(to, of->size_class, chunk->dims, chunk->size);
            TORCH_ADD(to, "ub");
        }
    }
    if (!of->has_no_list)
        TORCH_ADD(to, "e");
    else
        TORCH_ADD(to, "N");
    TORCH_ADD(to, "ub");
}

/* Makes both files; each has room for TORCH_BYTES_MAX. */
static inline void case_make(const case_metadata *given, torch_bytes *metadata, torch_bytes *file)
{
    size_t first[2], bytes[2];
    const case_metadata made = case_complete(given), *of = &made;
    metadata->count = file->count = 0;
    for (int i = 0; i < 2; i++) {
        first[i] = file->count;
        bytes[i] = case_add_archive(file, of, i);
    }
    unsigned char *name = memmem(file->data, file->count, "a/data/0", 8);
    if (of->is_flipped && name)
        name[8] ^= 0x10;
    file->count -= (size_t)of->file_cut;
    TORCH_ADD(metadata, "\200\2");
    if (of->opcode)
        torch_add(metadata, of->opcode, strlen(of->opcode));
    case_add_class(metadata, of->object);
    TORCH_ADD(metadata, ")\x81}(");
    case_add_text(metadata, "state_dict_metadata");
    TORCH_ADD(metadata, "}(");
    case_add_tensor(metadata, of);
    TORCH_ADD(metadata, "u");
    case_add_text(metadata, "storage_data");
    TORCH_ADD(metadata, "}(");
    for (int i = 0; i < 2; i++)
        if (!of->chunks[i].is_unplaced)
            case_add_place(metadata, of, &of->chunks[i], first[i], bytes[i]);
    TORCH_ADD(metadata, "uub.");
    metadata->count -= (size_t)of->cut;
}

/* Each is refused as data; `message` is a part of what is said. */
static const case_metadata hostile_metadata[] = {
    {.name = "cut in the middle", .message = "ends in the middle", .cut = 40},
    {.name = "without its end", .message = "ends in the middle", .cut = 1},
    {.name = "a call", .message = "takes more than it put down", .opcode = "cos\nsystem\nR"},
    {.name = "an opcode", .message = "opcode 0x69", .opcode = "i"},
    {.name = "another object", .message = "holds no Metadata", .object = "os\nsystem"},
    {.name = "another module", .message = "holds no Metadata", .object = "a\nMetadata"},
    {.name = "another place", .message = "something else", .place_class = "os\nsystem"},
    {.name = "another chunk", .message = "no offsets", .chunk_class = "os\nsystem"},
    {.name = "another size", .message = "not said in numbers", .size_class = "os\nsystem"},
    {.name = "no list", .message = "no size and list", .has_no_list = true},
    {.name = "a negative size", .message = "no size", .size = {0x80, 3}},
    {.name = "a larger tensor", .message = "have 6 of its 9", .size = {3, 3}},
    {.name = "a smaller tensor", .message = "not within", .size = {1, 3}},
    {.name = "a vector", .message = "of its 1 dimensions", .dims = 1, .size = {6}},
    {.name = "a chunk twice", .message = "listed twice", .chunks[1] = {.is_twice = true}},
    {.name = "a chunk unlisted", .message = "have 3 of its 6", .chunks[1] = {.is_unlisted = true}},
    {.name = "a chunk unplaced", .message = "not said where", .chunks[1] = {.is_unplaced = true}},
    {.name = "a chunk of one dimension",
     .message = "of its 2 dimensions",
     .chunks[1] =
         {
             .dims = 1,
             .offset = {1},
             .size = {3},
         }},
    {.name = "chunks that overlap",
     .message = "overlap",
     .chunks[1] = {.dims = 2, .offset = {0, 1}, .size = {2, 2}}},
    {.name = "chunks that overlap and leave a gap",
     .message = "overlap",
     .chunks = {{.dims = 2, .offset = {0, 0}, .size = {1, 2}},
                {.dims = 2, .offset = {0, 1}, .size = {2, 2}}}},
    {.name = "chunks at one place",
     .message = "two places",
     .chunks[1] = {.dims = 2, .offset = {0, 0}, .size = {1, 3}}},
    {.name = "a chunk beyond",
     .message = "not within",
     .chunks[1] = {.dims = 2, .offset = {1, 1}, .size = {1, 3}}},
    {.name = "an offset beyond",
     .message = "not within",
     .chunks[1] = {.dims = 2, .offset = {3, 0}, .size = {0, 3}}},
    {.name = "a packed chunk", .message = "was packed", .chunks[1] = {.is_packed = true}},
    {.name = "a path", .message = "no plain name", .chunks[1] = {.file = "../__0_0.distcp"}},
    {.name = "a root path", .message = "no plain name", .chunks[1] = {.file = "/a.distcp"}},
    {.name = "another ending", .message = "no plain name", .chunks[1] = {.file = "passwd"}},
    {.name = "an ending alone", .message = "no plain name", .chunks[1] = {.file = ".distcp"}},
    {.name = "no name", .message = "no plain name", .chunks[1] = {.file = ""}},
    {.name = "bytes over another's", .message = "lies over", .chunks[0] = {.grow = 4}},
    {.name = "bytes beyond the file", .message = "it is cut", .chunks[1] = {.grow = 1}},
    {.name = "no bytes", .message = "not said in numbers", .chunks[1] = {.grow = -100000}},
    {.name = "a negative place", .message = "not said in numbers", .chunks[0] = {.shift = -1}},
    {.name = "a shifted place", .message = "opcode 0x04", .chunks[0] = {.shift = 1, .grow = -1}},
    {.name = "an archive cut", .message = "w", .chunks[0] = {.grow = -2}},
    {.name = "a cut file", .message = "it is cut", .file_cut = 5},
    {.name = "another type", .message = "is of bf16", .storage = "BFloat16Storage"},
    {.name = "a type that is not read", .message = "is of IntStorage", .storage = "IntStorage"},
    {.name = "an archive's shape", .message = "are needed", .rows = 3, .columns = 1},
    {.name = "an archive's length", .message = "are needed", .rows = 1, .columns = 2},
    {.name = "a damaged archive", .message = "is damaged", .is_flipped = true},
};

enum { HOSTILE_METADATA_COUNT = sizeof hostile_metadata / sizeof hostile_metadata[0] };

#endif
