/* What torch.save writes. The first byte of an input says what the rest is: an archive, a pickle
 * that an archive is made for, or a file of before archives. Of what is accepted, every value is
 * walked, and of each tensor among them the elements lie in the file, and are read up to the last
 * and not beyond, unless their checksum is another one. */
#define _GNU_SOURCE
#include "foreign/torch/torch_file.h"
#include "foreign/torch_case.h"
#include "fuzz.h"

enum { IS_PICKLE = 1, WALKED_MAX = 2000, DEPTH_MAX = 12 };

static uint64_t walked;

static void check_tensor(sl_torch_file *file, const sl_pickle_value *value)
{
    sl_torch_tensor tensor;
    float read[2];
    if (!fuzz_accepts(sl_torch_file_find(file, value, &tensor)))
        return;
    uint64_t count = tensor.element_count < 2 ? tensor.element_count : 2;
    uint64_t end = tensor.first_byte + sl_encoding_bytes(tensor.encoding, tensor.element_count);
    FUZZ_NEED(end <= file->file.bytes);
    if (!fuzz_accepts(sl_torch_file_read(file, &tensor, tensor.element_count - count, count, read)))
        return;
    FUZZ_NEED(sl_torch_file_read(file, &tensor, tensor.element_count, 1, read) == SL_ERROR_USAGE);
}

/* To some depth: a value may hold itself. */
static void walk(sl_torch_file *file, const sl_pickle_value *value, int depth)
{
    if (!value || depth > DEPTH_MAX || walked++ > WALKED_MAX)
        return;
    check_tensor(file, value);
    sl_pickle_attributes(value);
    sl_pickle_find(value, "a.b.c");
    if (value->kind == SL_PICKLE_TEXT && value->count > 0)
        FUZZ_NEED(memchr(value->text, value->text[value->count - 1], value->count));
    for (uint32_t i = 0;
         value->kind >= SL_PICKLE_TUPLE && value->kind < SL_PICKLE_KIND_COUNT && i < value->count;
         i++)
        walk(file, value->items[i], depth + 1);
}

static scratch_path write_archive(const uint8_t *data, size_t bytes)
{
    static torch_bytes file;
    file.count = 0;
    const torch_member members[] = {{"a/data.pkl", data, bytes},
                                    {"a/data/0", torch_elements(), 7 * sizeof(float)},
                                    {"a/data/1", torch_elements(), 3}};
    torch_add_archive(&file, members, 3, NULL);
    return fuzz_write("piece.pt", file.data, file.count);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_torch_file file;
    if (bytes == 0 || bytes > TORCH_BYTES_MAX / 2)
        return;
    scratch_path path = data[0] & IS_PICKLE ? write_archive(data + 1, bytes - 1)
                                            : fuzz_write("piece.pt", data + 1, bytes - 1);
    fuzz_allow(65557); /* the end of an archive is looked for in so many */
    if (!fuzz_accepts(sl_torch_file_open(path.text, &file)))
        return;
    walked = 0;
    walk(&file, file.root, 0);
    sl_torch_file_drop_tree(&file);
    FUZZ_NEED(file.root == NULL);
    sl_torch_file_close(&file);
}
