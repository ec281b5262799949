/* Adds up what programs ran of the PTX of a folder (standin_coverage.c) and prints it, kernel by
 * kernel; after them each instruction that none of them came to, and how many these are by kernel.
 * A shape that several programs launched a kernel with counts once.
 *
 *     tool_ptx_coverage FOLDER_OF_PTX FOLDER_OF_COVERAGE LEAST_PERCENT LEAST_SHAPES
 *
 * Exit code 1: fewer of all instructions were run, a kernel met fewer shapes, or something could
 * not be read. */
#define _GNU_SOURCE
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

enum { PATH_BYTES = 4096, SHAPES_MOST = 1024 };

typedef struct kernel_sum {
    struct kernel_sum *next;
    char file[256];
    ptx_kernel *kernel;
    uint32_t count; /* of its instructions */
    uint64_t groups, lanes;
    char *marks;                  /* [count] */
    uint64_t shapes[SHAPES_MOST]; /* different hashes */
    uint32_t shape_count;
} kernel_sum;

static kernel_sum *kernels, **last_kernel = &kernels;

static void *take_memory(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return memory;
}

static void add_kernels(const char *file, const ptx_module *module)
{
    for (uint32_t i = 0; i < ptx_module_kernel_count(module); i++) {
        kernel_sum *own = take_memory(sizeof *own);
        snprintf(own->file, sizeof own->file, "%s", file);
        own->kernel = ptx_module_kernel_at(module, i);
        own->count = ptx_kernel_tell(own->kernel).instruction_count;
        own->marks = take_memory(own->count + 1);
        memset(own->marks, '.', own->count);
        *last_kernel = own;
        last_kernel = &own->next;
    }
}

/* Modules stay open to the end: texts of instructions are theirs. */
static void read_module(const char *path, const char *file)
{
    char *text = NULL;
    size_t room = 0;
    ptx_module *module = NULL;
    ptx_fault fault;
    FILE *from = fopen(path, "rb");
    const ssize_t bytes = from != NULL ? getdelim(&text, &room, 0, from) : -1;
    if (bytes <= 0 || !ptx_module_open(text, (uint64_t)bytes, &module, &fault)) {
        fprintf(stderr, "%s: %s\n", path, bytes > 0 ? fault.text : "cannot be read");
        exit(1);
    }
    add_kernels(file, module);
    free(text);
    (void)fclose(from);
}

static void add_shape(kernel_sum *kernel, uint64_t hash)
{
    for (uint32_t i = 0; i < kernel->shape_count; i++)
        if (kernel->shapes[i] == hash)
            return;
    if (kernel->shape_count < SHAPES_MOST)
        kernel->shapes[kernel->shape_count++] = hash;
}

/* Hashes with commas between them; 0: none. */
static void add_shapes(kernel_sum *kernel, const char *hashes)
{
    for (char *end; *hashes != '\0'; hashes = *end == ',' ? end + 1 : end) {
        const uint64_t hash = strtoull(hashes, &end, 16);
        if (end == hashes) {
            fprintf(stderr, "%s: no hash of a shape\n", hashes);
            exit(1);
        }
        if (hash != 0)
            add_shape(kernel, hash);
    }
}

static void add_line(char *line)
{
    char *rest = NULL;
    const char *file = strtok_r(line, " ", &rest), *name = strtok_r(NULL, " ", &rest);
    const char *shapes = strtok_r(NULL, " ", &rest);
    const char *groups = strtok_r(NULL, " ", &rest), *lanes = strtok_r(NULL, " ", &rest);
    const char *marks = strtok_r(NULL, " \n", &rest);
    for (kernel_sum *each = kernels; marks != NULL && each != NULL; each = each->next) {
        if (strcmp(each->file, file) != 0 ||
            strcmp(ptx_kernel_tell(each->kernel).name, name) != 0 || strlen(marks) != each->count)
            continue;
        add_shapes(each, shapes);
        each->groups += strtoull(groups, NULL, 10);
        each->lanes += strtoull(lanes, NULL, 10);
        for (uint32_t i = 0; i < each->count; i++)
            if (marks[i] == 'x')
                each->marks[i] = 'x';
    }
}

static void read_marks(const char *path, const char *file)
{
    (void)file;
    char *line = NULL;
    size_t room = 0;
    FILE *from = fopen(path, "r");
    while (from != NULL && getline(&line, &room, from) > 0)
        add_line(line);
    free(line);
    if (from != NULL)
        (void)fclose(from);
}

static void for_each_file(const char *directory, const char *ending,
                          void (*read)(const char *path, const char *file))
{
    struct dirent **entries = NULL;
    const int count = scandir(directory, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        char path[PATH_BYTES];
        const char *name = entries[i]->d_name;
        const size_t length = strlen(name), end = strlen(ending);
        snprintf(path, sizeof path, "%s/%s", directory, name);
        if (name[0] != '.' && length >= end && strcmp(name + length - end, ending) == 0)
            read(path, name);
        free(entries[i]);
    }
    free((void *)entries);
}

static uint32_t count_marked(const kernel_sum *kernel)
{
    uint32_t marked = 0;
    for (uint32_t i = 0; i < kernel->count; i++)
        marked += kernel->marks[i] == 'x';
    return marked;
}

static void list_unmarked(const kernel_sum *kernel)
{
    for (uint32_t i = 0; i < kernel->count; i++) {
        const ptx_instruction instruction = ptx_kernel_instruction(kernel->kernel, i);
        if (kernel->marks[i] != 'x')
            printf("%s:%" PRIu32 ": %s\n", kernel->file, instruction.line, instruction.text);
    }
}

/* How many kernels met fewer shapes; each is named. */
static uint32_t count_lonely(uint32_t least)
{
    uint32_t count = 0;
    for (const kernel_sum *each = kernels; each != NULL; each = each->next)
        if (each->shape_count < least) {
            printf("%" PRIu32 " shapes, at least %" PRIu32 " are asked for: %s %s\n",
                   each->shape_count, least, each->file, ptx_kernel_tell(each->kernel).name);
            count++;
        }
    return count;
}

static uint32_t count_unmarked(const kernel_sum *kernel)
{
    return kernel->count - count_marked(kernel);
}

static int compare_unmarked(const void *one, const void *other)
{
    const uint32_t a = count_unmarked(*(kernel_sum *const *)one);
    const uint32_t b = count_unmarked(*(kernel_sum *const *)other);
    return a < b ? 1 : a > b ? -1 : 0;
}

/* The rest by kernel, most first. */
static void list_kernels_with_rest(void)
{
    size_t count = 0;
    for (const kernel_sum *each = kernels; each != NULL; each = each->next)
        count++;
    kernel_sum **sorted = take_memory((count + 1) * sizeof(void *));
    count = 0;
    for (kernel_sum *each = kernels; each != NULL; each = each->next)
        if (count_unmarked(each) > 0)
            sorted[count++] = each;
    qsort((void *)sorted, count, sizeof(void *), compare_unmarked);
    for (size_t i = 0; i < count; i++)
        printf("%5" PRIu32 " of %5" PRIu32 " instructions were not run: %s %s\n",
               count_unmarked(sorted[i]), sorted[i]->count, sorted[i]->file,
               ptx_kernel_tell(sorted[i]->kernel).name);
    free((void *)sorted);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: tool_ptx_coverage FOLDER_OF_PTX FOLDER_OF_COVERAGE LEAST_PERCENT "
                        "LEAST_SHAPES\n");
        return 64;
    }
    uint64_t all = 0, marked = 0;
    for_each_file(argv[1], ".ptx", read_module);
    for_each_file(argv[2], "", read_marks);
    for (const kernel_sum *each = kernels; each != NULL; each = each->next) {
        const uint32_t own = count_marked(each);
        printf("%6.2f %% of %5" PRIu32 " instructions, %4" PRIu32 " shapes, %9.3f M by groups, "
               "%9.3f M by lanes: %s %s\n",
               100.0 * own / each->count, each->count, each->shape_count,
               (double)each->groups / 1e6, (double)each->lanes / 1e6, each->file,
               ptx_kernel_tell(each->kernel).name);
        all += each->count;
        marked += own;
    }
    for (const kernel_sum *each = kernels; each != NULL; each = each->next)
        list_unmarked(each);
    list_kernels_with_rest();
    const double percent = all > 0 ? 100.0 * (double)marked / (double)all : 0;
    printf("%.2f %% of %" PRIu64 " instructions were run, at least %s %% are asked for\n", percent,
           all, argv[3]);
    const uint32_t lonely = count_lonely((uint32_t)strtoul(argv[4], NULL, 10));
    return percent >= strtod(argv[3], NULL) && lonely == 0 ? 0 : 1;
}
