/* A safetensors file. The first byte of an input says how many zero bytes stand behind the rest in
 * the file, a hole as the data of large tensors can be. Floats of what is accepted are written
 * back and read again: same names, same bits. */
#define _GNU_SOURCE
#include <fcntl.h>

#include "files/safetensors.h"
#include "fuzz.h"

enum { HOLE_POWERS = 26, ELEMENTS_MAX = 1 << 12, TENSORS_MAX = 256 };

static bool is_float(const sl_safetensors_tensor *tensor)
{
    return tensor->dtype == SL_DTYPE_F32 || tensor->dtype == SL_DTYPE_F16 ||
           tensor->dtype == SL_DTYPE_BF16;
}

/* What the format says of every file, as far as others rely on it. */
static void check_tensors(const sl_safetensors *file)
{
    uint64_t end = file->tensor_count ? file->tensors[0].first_byte : file->file.bytes;
    for (uint32_t i = 0; i < file->tensor_count; i++) {
        const sl_safetensors_tensor *tensor = &file->tensors[i];
        FUZZ_NEED(tensor->first_byte == end);
        FUZZ_NEED(tensor->dim_count <= SL_SAFETENSORS_DIMS_MAX);
        FUZZ_NEED(sl_safetensors_find(file, tensor->name) == tensor);
        FUZZ_NEED(sl_safetensors_dtype_name(tensor->dtype)[0] != '\0');
        end += tensor->byte_count;
    }
    FUZZ_NEED(end == file->file.bytes);
    FUZZ_NEED(sl_safetensors_find(file, "no such \ttensor") == NULL || file->tensor_count > 0);
}

/* At most ELEMENTS_MAX of the first elements; beyond the end nothing is read. */
static uint64_t read_start(const sl_safetensors *file, const sl_safetensors_tensor *tensor,
                           float *out_data)
{
    uint64_t count = tensor->element_count < ELEMENTS_MAX ? tensor->element_count : ELEMENTS_MAX;
    FUZZ_NEED(sl_safetensors_read(file, tensor, tensor->element_count, 1, out_data) ==
              SL_ERROR_USAGE);
    sl_status status = sl_safetensors_read(file, tensor, 0, count, out_data);
    FUZZ_NEED(is_float(tensor) ? status == SL_OK : status == SL_ERROR_DATA);
    return count;
}

/* Writes what was read of the floats of `file`: one dimension each. */
static uint32_t plan_floats(const sl_safetensors *file, sl_safetensors_plan *plans)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < file->tensor_count && count < TENSORS_MAX; i++) {
        const sl_safetensors_tensor *tensor = &file->tensors[i];
        if (!is_float(tensor) || tensor->element_count > ELEMENTS_MAX)
            continue;
        plans[count] = (sl_safetensors_plan){tensor->name, 1, {tensor->element_count}};
        if (tensor->dim_count == 2)
            plans[count] =
                (sl_safetensors_plan){tensor->name, 2, {tensor->shape[0], tensor->shape[1]}};
        count++;
    }
    return count;
}

static bool write_floats(const sl_safetensors *file, const sl_safetensors_plan *plans,
                         uint32_t count, sl_safetensors_writer *writer)
{
    static float data[ELEMENTS_MAX];
    uint64_t bytes, counted = 0;
    sl_hash_value hash;
    for (uint32_t i = 0; i < count; i++) {
        const char *name = plans[sl_safetensors_writer_order(writer, i)].name;
        uint64_t elements = read_start(file, sl_safetensors_find(file, name), data);
        if (!fuzz_succeeds(sl_safetensors_writer_append(writer, data, elements)))
            return false;
    }
    FUZZ_NEED(sl_safetensors_writer_append(writer, data, 1) == SL_ERROR_INTERNAL);
    if (!fuzz_succeeds(sl_safetensors_count_bytes(plans, count, &counted)) ||
        !fuzz_succeeds(sl_safetensors_writer_finish(writer, &bytes, &hash)))
        return false;
    FUZZ_NEED(bytes == counted);
    return true;
}

static void compare_floats(const sl_safetensors *file, const sl_safetensors_plan *plans,
                           uint32_t count, const sl_safetensors *again)
{
    static float before[ELEMENTS_MAX], after[ELEMENTS_MAX];
    FUZZ_NEED(again->tensor_count == count);
    for (uint32_t i = 0; i < count; i++) {
        const sl_safetensors_tensor *tensor = sl_safetensors_find(again, plans[i].name);
        FUZZ_NEED(tensor && tensor->dtype == SL_DTYPE_F32);
        FUZZ_NEED(tensor->dim_count == plans[i].dim_count);
        FUZZ_NEED(memcmp(tensor->shape, plans[i].shape, sizeof plans[i].shape) == 0);
        uint64_t elements = read_start(again, tensor, after);
        FUZZ_NEED(read_start(file, sl_safetensors_find(file, plans[i].name), before) == elements);
        FUZZ_NEED(memcmp(before, after, elements * sizeof *after) == 0);
    }
}

static void write_back(const sl_safetensors *file)
{
    sl_safetensors_plan plans[TENSORS_MAX];
    sl_safetensors_writer *writer = NULL;
    sl_safetensors *again = NULL;
    uint32_t count = plan_floats(file, plans);
    scratch_path path = scratch_join(fuzz_directory(), "again.safetensors");
    unlink(path.text);
    bool is_written = fuzz_succeeds(sl_safetensors_writer_open(AT_FDCWD, NULL, path.text, plans,
                                                               count, &writer)) &&
                      write_floats(file, plans, count, writer);
    sl_safetensors_writer_close(writer);
    if (!is_written ||
        !fuzz_succeeds(sl_safetensors_open(AT_FDCWD, NULL, path.text, SL_LINKS_REFUSE, &again)))
        return;
    check_tensors(again);
    compare_floats(file, plans, count, again);
    sl_safetensors_close(again);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_safetensors *file = NULL;
    if (bytes == 0)
        return;
    unsigned power = data[0] % HOLE_POWERS;
    uint64_t hole = power ? UINT64_C(1) << power : 0;
    scratch_path path = fuzz_write("model.safetensors", data + 1, bytes - 1);
    scratch_need(truncate(path.text, (off_t)(bytes - 1 + hole)) == 0, path.text);
    fuzz_allow(hole);
    if (!fuzz_accepts(sl_safetensors_open(AT_FDCWD, NULL, path.text, SL_LINKS_REFUSE, &file)))
        return;
    check_tensors(file);
    write_back(file);
    sl_safetensors_close(file);
}
