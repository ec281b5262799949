/* Lengths and starts are read side by side, block by block; see megatron_index.h. */
#include "megatron_index.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum {
    VERSION_BYTE = SL_MEGATRON_START_BYTES,
    TYPE_BYTE = 17,
    HEADER_BYTES = 34,
    TYPE_INT32 = 4,
    TYPE_UINT16 = 8,
    SEQUENCE_BYTES = 12, /* a length and a start */
    BOUND_BYTES = 8,
    BLOCK = 512 /* numbers read at once, on the stack */
};

static const char start_bytes[SL_MEGATRON_START_BYTES] = "MMIDIDX\0";

bool sl_megatron_index_starts(const void *start, uint64_t bytes)
{
    return bytes >= sizeof start_bytes && memcmp(start, start_bytes, sizeof start_bytes) == 0;
}

static uint64_t starts_offset(const sl_megatron_index *self)
{
    return HEADER_BYTES + sizeof(int32_t) * self->sequence_count;
}

static uint64_t bounds_offset(const sl_megatron_index *self)
{
    return HEADER_BYTES + SEQUENCE_BYTES * self->sequence_count;
}

/* ---- checking ---- */

static sl_status set_type(sl_megatron_index *self, unsigned type)
{
    static const char *const names[] = {"none",  "uint8",   "int8",    "int16", "int32",
                                        "int64", "float64", "float32", "uint16"};
    if (type == TYPE_INT32 || type == TYPE_UINT16) {
        self->id_bytes = type == TYPE_INT32 ? sizeof(int32_t) : sizeof(uint16_t);
        return SL_OK;
    }
    SL_FAIL(SL_ERROR_DATA,
            "%s: its ids are of type %u (%s), and uint16 and int32 are read: write the tokens anew "
            "as one of these",
            sl_files_show(self->file.path).text, type,
            type < sizeof names / sizeof names[0] ? names[type] : "unknown");
}

/* Both counts come from the file: neither may exceed what its bytes can hold. */
static sl_status check_size(const sl_megatron_index *self)
{
    uint64_t room = self->file.bytes - HEADER_BYTES, needed = UINT64_MAX;
    if (self->sequence_count <= room / SEQUENCE_BYTES && self->bound_count <= room / BOUND_BYTES)
        needed = SEQUENCE_BYTES * self->sequence_count + BOUND_BYTES * self->bound_count;
    if (needed == room)
        return SL_OK;
    if (needed != UINT64_MAX && needed + self->sequence_count == room)
        SL_FAIL(SL_ERROR_DATA, "%s: has modes of sequences (more than text), which are not read",
                sl_files_show(self->file.path).text);
    SL_FAIL(SL_ERROR_DATA,
            "%s: counts %llu sequences and %llu bounds of documents, which its %llu bytes do not "
            "hold: it is torn; copy it again, or write the pair anew",
            sl_files_show(self->file.path).text, (unsigned long long)self->sequence_count,
            (unsigned long long)self->bound_count, (unsigned long long)self->file.bytes);
}

static sl_status read_header(sl_megatron_index *self)
{
    unsigned char header[HEADER_BYTES] = {0};
    uint64_t version;
    sl_shown path = sl_files_show(self->file.path);
    uint64_t bytes = self->file.bytes < HEADER_BYTES ? self->file.bytes : HEADER_BYTES;
    SL_TRY(sl_files_read_at(&self->file, 0, bytes, header));
    if (!sl_megatron_index_starts(header, bytes))
        SL_FAIL(SL_ERROR_DATA,
                "%s: stands beside a file of tokens and is no index of Megatron's: move it away if "
                "the .bin stands alone, else write the pair anew",
                path.text);
    if (bytes < HEADER_BYTES)
        SL_FAIL(SL_ERROR_DATA, "%s: is cut inside the %d-byte header of Megatron's index",
                path.text, HEADER_BYTES);
    memcpy(&version, header + VERSION_BYTE, sizeof version);
    if (version != 1)
        SL_FAIL(SL_ERROR_DATA, "%s: Megatron's index of version %llu; version 1 is read", path.text,
                (unsigned long long)version);
    memcpy(&self->sequence_count, header + TYPE_BYTE + 1, sizeof self->sequence_count);
    memcpy(&self->bound_count, header + TYPE_BYTE + 9, sizeof self->bound_count);
    SL_TRY(set_type(self, header[TYPE_BYTE]));
    return check_size(self);
}

static sl_status fail_sequence(const sl_megatron_index *self, uint64_t sequence, const char *what,
                               int64_t found, uint64_t expected)
{
    SL_FAIL(SL_ERROR_DATA, "%s: sequence %llu %s %lld, not %llu: the index is damaged",
            sl_files_show(self->file.path).text, (unsigned long long)sequence, what,
            (long long)found, (unsigned long long)expected);
}

/* Adds the bytes of `count` sequences to *place, which each must start at. */
static sl_status check_block(const sl_megatron_index *self, uint64_t first, uint64_t count,
                             uint64_t *place)
{
    int32_t lengths[BLOCK];
    int64_t starts[BLOCK];
    SL_TRY(sl_files_read_at(&self->file, HEADER_BYTES + first * sizeof lengths[0],
                            count * sizeof lengths[0], lengths));
    SL_TRY(sl_files_read_at(&self->file, starts_offset(self) + first * sizeof starts[0],
                            count * sizeof starts[0], starts));
    for (uint64_t i = 0; i < count; i++) {
        if (lengths[i] < 0)
            return fail_sequence(self, first + i, "has the length", lengths[i], 0);
        if (starts[i] < 0 || (uint64_t)starts[i] != *place)
            return fail_sequence(self, first + i, "starts at byte", starts[i], *place);
        *place += (uint64_t)lengths[i] * self->id_bytes; /* below 2^33 each, of 2^60 at most */
    }
    return SL_OK;
}

static sl_status check_sequences(sl_megatron_index *self, const sl_file *bin)
{
    uint64_t place = 0;
    for (uint64_t first = 0; first < self->sequence_count; first += BLOCK) {
        uint64_t left = self->sequence_count - first;
        SL_TRY(check_block(self, first, left < BLOCK ? left : BLOCK, &place));
    }
    if (place != bin->bytes)
        SL_FAIL(SL_ERROR_DATA,
                "%s: its sequences are %llu bytes of ids, but %s beside it has %llu: one of them "
                "is torn, or another file's",
                sl_files_show(self->file.path).text, (unsigned long long)place,
                sl_files_show(bin->path).text, (unsigned long long)bin->bytes);
    self->token_count = place / self->id_bytes;
    return SL_OK;
}

static sl_status fail_bound(const sl_megatron_index *self, uint64_t bound, int64_t found)
{
    SL_FAIL(SL_ERROR_DATA,
            "%s: bound %llu of its documents is sequence %lld of %llu: they do not go from the "
            "first to the end in order",
            sl_files_show(self->file.path).text, (unsigned long long)bound, (long long)found,
            (unsigned long long)self->sequence_count);
}

static sl_status read_bounds(const sl_megatron_index *self, uint64_t first, uint64_t count,
                             int64_t *out_bounds)
{
    return sl_files_read_at(&self->file, bounds_offset(self) + first * BOUND_BYTES,
                            count * BOUND_BYTES, out_bounds);
}

static sl_status check_bounds(const sl_megatron_index *self)
{
    int64_t bounds[BLOCK], before = 0;
    if (self->bound_count < 2)
        SL_FAIL(SL_ERROR_DATA, "%s: has no document", sl_files_show(self->file.path).text);
    for (uint64_t first = 0; first < self->bound_count; first += BLOCK) {
        uint64_t left = self->bound_count - first, count = left < BLOCK ? left : BLOCK;
        SL_TRY(read_bounds(self, first, count, bounds));
        for (uint64_t i = 0; i < count; i++) {
            bool is_first = first + i == 0, is_last = first + i == self->bound_count - 1;
            if (bounds[i] < before || (is_first && bounds[i] != 0) ||
                (uint64_t)bounds[i] > self->sequence_count ||
                (is_last && (uint64_t)bounds[i] != self->sequence_count))
                return fail_bound(self, first + i, bounds[i]);
            before = bounds[i];
        }
    }
    return SL_OK;
}

/* ---- opening ---- */

static sl_status open_beside(const sl_file *bin, sl_file *out_file, bool *out_is_there)
{
    char *path = strdup(bin->path);
    if (!path)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a path");
    memcpy(path + strlen(path) - 4, ".idx", 4);
    sl_status status = sl_files_exists(AT_FDCWD, NULL, path, out_is_there);
    if (status == SL_OK && *out_is_there)
        status = sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, out_file);
    free(path);
    return status;
}

sl_status sl_megatron_index_open(const sl_file *bin, sl_megatron_index *out_index,
                                 bool *out_is_there)
{
    sl_megatron_index self = {.file = {.fd = -1}};
    SL_TRY(open_beside(bin, &self.file, out_is_there));
    if (!*out_is_there)
        return SL_OK;
    sl_status status = read_header(&self);
    if (status == SL_OK)
        status = check_sequences(&self, bin);
    if (status == SL_OK)
        status = check_bounds(&self);
    if (status != SL_OK) {
        sl_megatron_index_close(&self);
        return status;
    }
    *out_index = self;
    return SL_OK;
}

void sl_megatron_index_close(sl_megatron_index *index)
{
    if (index->file.path)
        sl_files_close(&index->file);
}

/* ---- documents ---- */

uint64_t sl_megatron_index_document_count(const sl_megatron_index *index)
{
    return index->bound_count - 1;
}

sl_status sl_megatron_index_document_start(const sl_megatron_index *index, uint64_t document,
                                           uint64_t *out_token)
{
    int64_t sequence, start;
    SL_TRY(read_bounds(index, document, 1, &sequence));
    *out_token = index->token_count;
    if (sequence < 0 || (uint64_t)sequence >= index->sequence_count)
        return SL_OK;
    SL_TRY(sl_files_read_at(&index->file, starts_offset(index) + (uint64_t)sequence * sizeof start,
                            sizeof start, &start));
    *out_token = (uint64_t)start / index->id_bytes;
    return SL_OK;
}
