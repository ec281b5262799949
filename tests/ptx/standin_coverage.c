/* What a program's launches ran, for those who add several programs up (tool_ptx_coverage.c): at
 * its end, one line a kernel in a file of the folder that SL_PTX_COVERAGE names: the file of PTX,
 * the kernel, hashes of the shapes that it was launched with (up to 64; 0: none), instructions run
 * by groups of lanes and by lanes, and a letter for each static one, x where lanes came to it. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "standin_objects.h"

static void write_shapes(FILE *to, const standin_function *function)
{
    for (uint32_t i = 0; i < function->shape_count; i++)
        fprintf(to, "%s%" PRIx64, i > 0 ? "," : "", function->shapes[i]);
    if (function->shape_count == 0)
        fprintf(to, "0");
}

static void write_kernel(void *user, const char *file, const standin_function *function)
{
    FILE *to = user;
    const char *slash = strrchr(file, '/');
    uint64_t groups = 0, lanes = 0;
    for (uint32_t i = 0; i < function->facts.instruction_count; i++) {
        const ptx_instruction instruction = ptx_kernel_instruction(function->kernel, i);
        groups += instruction.groups;
        lanes += instruction.lanes;
    }
    fprintf(to, "%s %s ", slash ? slash + 1 : file, function->name);
    write_shapes(to, function);
    fprintf(to, " %" PRIu64 " %" PRIu64 " ", groups, lanes);
    for (uint32_t i = 0; i < function->facts.instruction_count; i++)
        (void)putc(ptx_kernel_instruction(function->kernel, i).lanes > 0 ? 'x' : '.', to);
    (void)putc('\n', to);
}

void standin_coverage_write(void)
{
    const char *directory = getenv("SL_PTX_COVERAGE");
    char path[4096];
    if (directory == NULL || (mkdir(directory, 0777) != 0 && errno != EEXIST))
        return;
    snprintf(path, sizeof path, "%s/%s", directory, program_invocation_short_name);
    FILE *to = fopen(path, "w");
    if (to == NULL)
        return;
    standin_objects_visit(write_kernel, to);
    (void)fclose(to);
}
