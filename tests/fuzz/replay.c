/* Gives a fuzz target the kept inputs, without libFuzzer: what was found once stays mended.
 *
 * usage: replay_TARGET [--refuse-memory] PATH...    files, or directories of them
 *   --refuse-memory   gives each input again and again, and refuses the first request for memory of
 *                     the readers themselves, the second and so on, up to REFUSED_MAX. Libraries
 *                     get theirs: jansson 2.14 writes beyond its buffers where a long word does not
 */
#define _GNU_SOURCE
#include <dirent.h>

#include "fuzz.h"
#include "refused_allocations.h"

enum { REFUSED_MAX = 2000 };

static uint64_t input_count, request_count, refused_request;

#if SL_ALLOCATIONS_ARE_REFUSED
static bool is_refused(void)
{
    return fuzz_is_running && ++request_count == refused_request;
}
#endif

static void give(const uint8_t *data, size_t bytes)
{
    request_count = 0;
    LLVMFuzzerTestOneInput(data, bytes);
}

static void refuse_each(const uint8_t *data, size_t bytes)
{
    uint64_t count = request_count < REFUSED_MAX ? request_count : REFUSED_MAX;
    for (refused_request = 1; refused_request <= count; refused_request++)
        give(data, bytes);
    refused_request = 0;
}

static void give_file(const char *path)
{
    size_t bytes;
    char *data = scratch_read(path, &bytes);
    uint8_t *copy = malloc(bytes ? bytes : 1); /* with its end where a sanitizer sees it */
    scratch_need(copy != NULL, path);
    memcpy(copy, data, bytes);
    free(data);
    input_count++;
    give(copy, bytes);
    if (fuzz_refuses_memory)
        refuse_each(copy, bytes);
    free(copy);
}

static void give_directory(const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    scratch_need(count >= 0, path);
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.')
            give_file(scratch_join(path, entries[i]->d_name).text);
        free(entries[i]);
    }
    free(entries);
}

/* Of the rooms that a target is built from; not all have it. */
__attribute__((weak)) void sl_json_file_guard_memory(void);

int main(int argc, char **argv)
{
    if (sl_json_file_guard_memory)
        sl_json_file_guard_memory();
    for (int i = 1; i < argc; i++) {
        struct stat info;
        if (strcmp(argv[i], "--refuse-memory") == 0) {
            fuzz_refuses_memory = true;
            continue;
        }
        scratch_need(stat(argv[i], &info) == 0, argv[i]);
        if (S_ISDIR(info.st_mode))
            give_directory(argv[i]);
        else
            give_file(argv[i]);
    }
    fprintf(stderr, "%llu inputs\n", (unsigned long long)input_count);
    return input_count == 0; /* nothing given is nothing shown */
}
