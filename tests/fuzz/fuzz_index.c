/* The index of a model's shards, beside two good shards (a in the first, b in the second) and
 * traps: a link, a FIFO, a directory, a file that is none, and good shards above and below. The
 * first byte of an input says what the rest is: an index, or model.safetensors alone, or nothing.
 * Every file that is opened is a plain one of the directory itself. */
#define _GNU_SOURCE
#include "files/hostile_files.h"
#include "foreign/model_files.h"
#include "fuzz.h"

enum { KIND_COUNT = 4, KIND_SINGLE = 1, KIND_NONE = 2 };

static const char SINGLE[] = "model/model.safetensors";
static const char INDEX[] = "model/model.safetensors.index.json";

static void make_directory(void)
{
    static const hostile_row empty = {.kind = HOSTILE_INDEX, .text = ""};
    scratch_path directory = scratch_join(fuzz_directory(), "model");
    if (scratch_exists(directory.text))
        return;
    fuzz_is_running = false; /* what follows is not the reader's memory */
    scratch_need(mkdir(directory.text, 0700) == 0, directory.text);
    hostile_write_index(&empty, directory.text);
    scratch_path below = scratch_join(directory.text, "below");
    scratch_need(mkdir(below.text, 0700) == 0, below.text);
    hostile_write_shard(scratch_join(below.text, "inside.safetensors").text, "a");
    hostile_write_shard(scratch_join(fuzz_directory(), "outside.safetensors").text, "a");
    fuzz_is_running = true;
}

/* Every file is a plain one of the directory itself, and each name leads to one of them. */
static void check_files(const char *directory, const sl_model_files *files)
{
    for (uint32_t i = 0; i < files->file_count; i++) {
        const sl_safetensors *file = files->files[i], *found = NULL;
        const char *name = file->file.path + strlen(directory);
        FUZZ_NEED(strncmp(file->file.path, directory, strlen(directory)) == 0);
        FUZZ_NEED(name[0] == '/' && strchr(name + 1, '/') == NULL);
        for (uint32_t k = 0; k < file->tensor_count; k++) {
            FUZZ_NEED(sl_model_files_find(files, file->tensors[k].name, &found) ==
                      &file->tensors[k]);
            FUZZ_NEED(found == file);
        }
    }
}

static void write_files(const uint8_t *data, size_t bytes)
{
    unsigned kind = bytes ? data[0] % KIND_COUNT : KIND_NONE;
    scratch_path single = scratch_join(fuzz_directory(), SINGLE);
    unlink(single.text);
    unlink(scratch_join(fuzz_directory(), INDEX).text);
    if (kind != KIND_NONE)
        fuzz_write(kind == KIND_SINGLE ? SINGLE : INDEX, data + 1, bytes - 1);
}

void fuzz_input(const uint8_t *data, size_t bytes)
{
    sl_model_files *files = NULL;
    make_directory();
    write_files(data, bytes);
    scratch_path directory = scratch_join(fuzz_directory(), "model");
    if (fuzz_accepts(sl_model_files_open(directory.text, &files)))
        check_files(directory.text, files);
    sl_model_files_close(files);
}
