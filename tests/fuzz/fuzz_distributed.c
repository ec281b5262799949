/* The `.metadata` of a distributed checkpoint of torch, beside a good `.distcp` of two archives and
 * a trap above. Of what is accepted, every part lies in a file of the directory, parts cover their
 * tensor, and every element is read, unless an archive is not what was said of it. */
#define _GNU_SOURCE
#include "foreign/distributed_case.h"
#include "foreign/pieces/distributed.h"
#include "fuzz.h"

enum { READ_MAX = 512, TENSORS_READ_MAX = 64 };

static void make_directory(void)
{
    static const case_metadata good = {.name = "good"};
    static torch_bytes metadata, file;
    const scratch_path directory = scratch_join(fuzz_directory(), "checkpoint");
    if (scratch_exists(directory.text))
        return;
    fuzz_is_running = false; /* what follows is not the reader's memory */
    case_make(&good, &metadata, &file);
    scratch_need(mkdir(directory.text, 0700) == 0, directory.text);
    fuzz_write("checkpoint/__0_0.distcp", file.data, file.count);
    fuzz_write("outside.distcp", file.data, file.count);
    fuzz_is_running = true;
}

static void check_files(const char *directory, const sl_parts *parts)
{
    for (uint32_t i = 0; i < parts->file_count; i++) {
        const char *path = parts->files[i]->path;
        FUZZ_NEED(strncmp(path, directory, strlen(directory)) == 0);
        FUZZ_NEED(strchr(path + strlen(directory) + 1, '/') == NULL);
    }
}

static void check_tensor(sl_parts *parts, const sl_parted *tensor)
{
    float data[READ_MAX];
    uint64_t covered = 0;
    const uint64_t count = tensor->rows * tensor->columns;
    for (uint32_t i = 0; i < tensor->part_count; i++) {
        const sl_part *part = &tensor->parts[i];
        FUZZ_NEED(part->first_row + part->row_count <= tensor->rows);
        FUZZ_NEED(part->first_column + part->column_count <= tensor->columns);
        covered += part->row_count * part->column_count;
    }
    FUZZ_NEED(covered == count);
    FUZZ_NEED(sl_parts_find(parts, tensor->name) == tensor);
    const uint64_t most = count < READ_MAX ? count : READ_MAX;
    if (fuzz_accepts(sl_parts_check(parts, tensor)))
        (void)fuzz_accepts(sl_parts_read(parts, tensor, count - most, most, data));
    FUZZ_NEED(sl_parts_read(parts, tensor, count, 1, data) == SL_ERROR_USAGE);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_parts parts;
    make_directory();
    fuzz_allow(SL_PARTS_OPEN_MAX * 65557ull +
               (8u << 20)); /* ends of archives, rooms, directories */
    const scratch_path path = scratch_join(fuzz_directory(), "checkpoint");
    fuzz_write("checkpoint/.metadata", data, bytes);
    if (!fuzz_accepts(sl_distributed_open(path.text, &parts)))
        return;
    check_files(path.text, &parts);
    for (uint32_t i = 0; i < parts.tensor_count && i < TENSORS_READ_MAX; i++)
        check_tensor(&parts, &parts.tensors[i]);
    sl_parts_close(&parts);
}
