/* Opcodes of protocol 2, and an archive of stored members; see torch_writer.h. Checksums of members
 * stand behind their data, since these are not known before, and in the directory. */
#include "torch_writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "crc32.h"

enum {
    ALIGNMENT = 64, /* of data, as PyTorch has it for those who map files */
    LOCAL_BYTES = 30,
    FILLER_BYTES = 4, /* of the extra field in front of what fills up */
    NAME_BYTES = 64,
    VERSION_LARGE = 45,
    FLAG_CHECKSUM_BEHIND = 8,
    EXTRA_ZIP64 = 1,
    MEMBERS_BESIDE = 3 /* data.pkl, byteorder, version */
};

/* ---- the pickle ---- */

static void put_number(FILE *stream, uint64_t number, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        putc((int)(number >> (8 * i) & 0xff), stream);
}

void sl_torch_put_start(FILE *stream)
{
    fputs("\x80\x02", stream);
}

void sl_torch_put_end(FILE *stream)
{
    putc('.', stream);
}

void sl_torch_put_none(FILE *stream)
{
    putc('N', stream);
}

void sl_torch_put_bool(FILE *stream, bool value)
{
    putc(value ? 0x88 : 0x89, stream);
}

void sl_torch_put_integer(FILE *stream, uint64_t value)
{
    if (value <= INT32_MAX) {
        putc('J', stream);
        put_number(stream, value, 4);
        return;
    }
    fputs("\x8a\x08", stream);
    put_number(stream, value, 8);
}

void sl_torch_put_real(FILE *stream, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    putc('G', stream);
    for (int shift = 56; shift >= 0; shift -= 8) /* the only big-endian one */
        putc((int)(bits >> shift & 0xff), stream);
}

void sl_torch_put_text(FILE *stream, const char *text)
{
    putc('X', stream);
    put_number(stream, strlen(text), 4);
    fputs(text, stream);
}

void sl_torch_put_dict(FILE *stream)
{
    fputs("}(", stream);
}

void sl_torch_put_dict_end(FILE *stream)
{
    putc('u', stream);
}

void sl_torch_put_object(FILE *stream, const char *module, const char *name)
{
    fprintf(stream, "c%s\n%s\n)\x81}(", module, name);
}

void sl_torch_put_object_end(FILE *stream)
{
    fputs("ub", stream);
}

static uint64_t count_elements(const sl_torch_plan *plan)
{
    return plan->shape[0] * (plan->dim_count == 2 ? plan->shape[1] : 1);
}

uint64_t sl_torch_count_bytes(const sl_torch_plan *plan)
{
    return sl_encoding_bytes(plan->encoding, count_elements(plan));
}

static void put_storage(FILE *stream, uint32_t index, const sl_torch_plan *plan)
{
    static const char *const types[] = {"FloatStorage", "BFloat16Storage", "HalfStorage"};
    char key[NAME_BYTES];
    snprintf(key, sizeof key, "%u", index);
    putc('(', stream);
    sl_torch_put_text(stream, "storage");
    fprintf(stream, "ctorch\n%s\n", types[plan->encoding]);
    sl_torch_put_text(stream, key);
    sl_torch_put_text(stream, "cpu");
    sl_torch_put_integer(stream, count_elements(plan));
    fputs("tQ", stream);
}

/* torch._utils._rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, hooks). */
void sl_torch_put_tensor(FILE *stream, uint32_t index, const sl_torch_plan *plan)
{
    fputs("ctorch._utils\n_rebuild_tensor_v2\n(", stream);
    put_storage(stream, index, plan);
    sl_torch_put_integer(stream, 0);
    for (uint32_t i = 0; i < plan->dim_count; i++)
        sl_torch_put_integer(stream, plan->shape[i]);
    putc(plan->dim_count == 2 ? 0x86 : 0x85, stream);
    if (plan->dim_count == 2)
        sl_torch_put_integer(stream, plan->shape[1]);
    sl_torch_put_integer(stream, 1);
    putc(plan->dim_count == 2 ? 0x86 : 0x85, stream);
    sl_torch_put_bool(stream, false);
    fputs("ccollections\nOrderedDict\n)RtR", stream);
}

/* ---- the archive ---- */

typedef struct member {
    char name[NAME_BYTES];
    uint64_t header, bytes;
    uint32_t checksum;
} member;

struct sl_torch_writer {
    sl_file file;
    uint64_t pushed_bytes;
    const sl_torch_plan *plans;
    uint32_t plan_count, next_plan;
    uint64_t left_bytes; /* of the member that is being written */
    member *members;
    uint32_t member_count;
    sl_crc32 crc; /* of the member that is being written */
};

/* Numbers as zip has them, on their way into the file. */
typedef struct record {
    unsigned char data[256];
    uint32_t bytes;
} record;

static void add_number(record *to, uint64_t number, uint32_t bytes)
{
    for (; bytes > 0; bytes--, number >>= 8)
        to->data[to->bytes++] = (unsigned char)(number & 0xff);
}

static sl_status append(sl_torch_writer *self, const void *data, uint64_t bytes)
{
    return sl_files_append_pushed(&self->file, &self->pushed_bytes, bytes, data);
}

static uint64_t cut_to_32(uint64_t number)
{
    return number < UINT32_MAX ? number : UINT32_MAX;
}

/* Version, flags, method, time of day and date (1980-01-01): the same in both headers. */
static void add_kind(record *to)
{
    add_number(to, VERSION_LARGE, 2);
    add_number(to, FLAG_CHECKSUM_BEHIND, 2);
    add_number(to, 0, 2);
    add_number(to, 0, 2);
    add_number(to, 0x21, 2);
}

/* A member whose size does not fit 32 bits has an extra field, and wider numbers behind it. */
static bool is_large(const member *of)
{
    return of->bytes >= UINT32_MAX;
}

static sl_status begin_member(sl_torch_writer *self, const char *name, uint64_t bytes)
{
    static const unsigned char filler[ALIGNMENT] = {0};
    member *next = &self->members[self->member_count];
    snprintf(next->name, sizeof next->name, "archive/%s", name);
    next->header = self->file.bytes;
    next->bytes = self->left_bytes = bytes;
    sl_crc32_begin(&self->crc);
    record local = {.bytes = 0};
    uint32_t name_bytes = (uint32_t)strlen(next->name);
    uint32_t large_bytes = is_large(next) ? 20 : 0;
    uint64_t start = next->header + LOCAL_BYTES + name_bytes + large_bytes + FILLER_BYTES;
    uint32_t filler_bytes = (uint32_t)((ALIGNMENT - start % ALIGNMENT) % ALIGNMENT);
    add_number(&local, 0x04034b50, 4);
    add_kind(&local);
    add_number(&local, 0, 4); /* the checksum, behind */
    add_number(&local, large_bytes ? UINT32_MAX : 0, 4);
    add_number(&local, large_bytes ? UINT32_MAX : 0, 4);
    add_number(&local, name_bytes, 2);
    add_number(&local, large_bytes + FILLER_BYTES + filler_bytes, 2);
    SL_TRY(append(self, local.data, local.bytes));
    SL_TRY(append(self, next->name, name_bytes));
    local.bytes = 0;
    if (large_bytes) {
        add_number(&local, EXTRA_ZIP64, 2);
        add_number(&local, 16, 2);
        add_number(&local, bytes, 8);
        add_number(&local, bytes, 8);
    }
    add_number(&local, 'F' | 'B' << 8, 2);
    add_number(&local, filler_bytes, 2);
    SL_TRY(append(self, local.data, local.bytes));
    return append(self, filler, filler_bytes);
}

static sl_status end_member(sl_torch_writer *self)
{
    member *last = &self->members[self->member_count++];
    last->checksum = self->crc.value;
    record behind = {.bytes = 0};
    add_number(&behind, 0x08074b50, 4);
    add_number(&behind, last->checksum, 4);
    add_number(&behind, last->bytes, is_large(last) ? 8 : 4);
    add_number(&behind, last->bytes, is_large(last) ? 8 : 4);
    return append(self, behind.data, behind.bytes);
}

static sl_status append_data(sl_torch_writer *self, const void *data, uint64_t bytes)
{
    sl_crc32_add(&self->crc, data, bytes);
    self->left_bytes -= bytes;
    return append(self, data, bytes);
}

static sl_status write_member(sl_torch_writer *self, const char *name, const void *data,
                              uint64_t bytes)
{
    SL_TRY(begin_member(self, name, bytes));
    SL_TRY(append_data(self, data, bytes));
    return end_member(self);
}

static sl_status begin_storage(sl_torch_writer *self)
{
    char name[NAME_BYTES];
    if (sl_torch_writer_is_full(self))
        return SL_OK;
    snprintf(name, sizeof name, "data/%u", self->next_plan);
    return begin_member(self, name, sl_torch_count_bytes(&self->plans[self->next_plan]));
}

sl_status sl_torch_writer_open(sl_file *file, const void *pickle, uint64_t pickle_bytes,
                               const sl_torch_plan *plans, uint32_t count,
                               sl_torch_writer **out_writer)
{
    sl_torch_writer *self = calloc(1, sizeof *self);
    member *members = calloc((uint64_t)count + MEMBERS_BESIDE, sizeof *members);
    if (!self || !members) {
        free(self);
        free(members);
        sl_files_close(file);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to write %u tensors", count);
    }
    self->file = *file;
    self->plans = plans;
    self->plan_count = count;
    self->members = members;
    *file = (sl_file){.fd = -1};
    sl_crc32_init(&self->crc);
    sl_status status = write_member(self, "data.pkl", pickle, pickle_bytes);
    if (status == SL_OK)
        status = write_member(self, "byteorder", "little", 6);
    if (status == SL_OK)
        status = begin_storage(self);
    if (status == SL_OK)
        *out_writer = self;
    else
        sl_torch_writer_close(self);
    return status;
}

sl_status sl_torch_writer_append(sl_torch_writer *writer, const void *stored, uint64_t bytes)
{
    if (sl_torch_writer_is_full(writer) || bytes > writer->left_bytes)
        SL_FAIL(SL_ERROR_INTERNAL, "%s: more elements than its tensors have",
                sl_files_show(writer->file.path).text);
    SL_TRY(append_data(writer, stored, bytes));
    if (writer->left_bytes > 0)
        return SL_OK;
    SL_TRY(end_member(writer));
    writer->next_plan++;
    return begin_storage(writer);
}

bool sl_torch_writer_is_full(const sl_torch_writer *writer)
{
    return writer->next_plan == writer->plan_count;
}

static sl_status write_entry(sl_torch_writer *self, const member *of)
{
    record entry = {.bytes = 0};
    uint32_t name_bytes = (uint32_t)strlen(of->name);
    uint32_t wide = (is_large(of) ? 2u : 0u) + (of->header >= UINT32_MAX ? 1u : 0u);
    add_number(&entry, 0x02014b50, 4);
    add_number(&entry, VERSION_LARGE, 2);
    add_kind(&entry);
    add_number(&entry, of->checksum, 4);
    add_number(&entry, cut_to_32(of->bytes), 4);
    add_number(&entry, cut_to_32(of->bytes), 4);
    add_number(&entry, name_bytes, 2);
    add_number(&entry, wide ? 4 + 8 * wide : 0, 2);
    add_number(&entry, 0, 2 + 2 + 2 + 4); /* comment, disk, attributes */
    add_number(&entry, cut_to_32(of->header), 4);
    SL_TRY(append(self, entry.data, entry.bytes));
    SL_TRY(append(self, of->name, name_bytes));
    entry.bytes = 0;
    if (wide) {
        add_number(&entry, EXTRA_ZIP64, 2);
        add_number(&entry, 8ull * wide, 2);
    }
    for (int i = 0; i < 2 && is_large(of); i++)
        add_number(&entry, of->bytes, 8);
    if (of->header >= UINT32_MAX)
        add_number(&entry, of->header, 8);
    return append(self, entry.data, entry.bytes);
}

static sl_status write_end(sl_torch_writer *self, uint64_t directory)
{
    record end = {.bytes = 0};
    uint64_t at = self->file.bytes, bytes = at - directory, count = self->member_count;
    if (directory >= UINT32_MAX || bytes >= UINT32_MAX || count >= UINT16_MAX) {
        add_number(&end, 0x06064b50, 4);
        add_number(&end, 44, 8); /* of this record behind this number */
        add_number(&end, VERSION_LARGE, 2);
        add_number(&end, VERSION_LARGE, 2);
        add_number(&end, 0, 4 + 4); /* this disk, the directory's */
        add_number(&end, count, 8);
        add_number(&end, count, 8);
        add_number(&end, bytes, 8);
        add_number(&end, directory, 8);
        add_number(&end, 0x07064b50, 4);
        add_number(&end, 0, 4);
        add_number(&end, at, 8);
        add_number(&end, 1, 4); /* disk in all */
    }
    add_number(&end, 0x06054b50, 4);
    add_number(&end, 0, 2 + 2);
    for (int i = 0; i < 2; i++)
        add_number(&end, count < UINT16_MAX ? count : UINT16_MAX, 2);
    add_number(&end, cut_to_32(bytes), 4);
    add_number(&end, cut_to_32(directory), 4);
    add_number(&end, 0, 2);
    return append(self, end.data, end.bytes);
}

sl_status sl_torch_writer_finish(sl_torch_writer *writer)
{
    if (!sl_torch_writer_is_full(writer))
        SL_FAIL(SL_ERROR_INTERNAL, "%s: elements of its tensors are missing",
                sl_files_show(writer->file.path).text);
    SL_TRY(write_member(writer, "version", "3\n", 2));
    uint64_t directory = writer->file.bytes;
    for (uint32_t i = 0; i < writer->member_count; i++)
        SL_TRY(write_entry(writer, &writer->members[i]));
    SL_TRY(write_end(writer, directory));
    return sl_files_sync(&writer->file);
}

void sl_torch_writer_close(sl_torch_writer *writer)
{
    if (!writer)
        return;
    sl_files_close(&writer->file);
    free(writer->members);
    free(writer);
}
