/* A mapping is sorted by its name or by an address inside: arenas by theirs, stacks by the stack
 * pointers of threads. Neighbouring anonymous mappings may be one to the kernel, so an arena takes
 * of a mapping's resident bytes at most as many as it has in it, and the rest is sorted on. */
#define _GNU_SOURCE /* getline */
#include "resident.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 512, STACKS_MAX = 8192, KIB = 1024 };

typedef struct mapping {
    uint64_t start, end;
    uint64_t resident_bytes;
    bool has_file, has_code; /* has_code: may be run, or is of a library or the program */
    char name[PATH_BYTES];
} mapping;

typedef struct reading {
    const char *root;
    const sl_resident_range *arenas;
    uint32_t arena_count;
    uint64_t *stacks; /* an address in each thread's */
    uint32_t stack_count;
    uint64_t anonymous_bytes; /* that are neither arena nor stack */
    char program[PATH_BYTES];
    sl_resident sums;
} reading;

const char *sl_resident_name(sl_resident_kind kind)
{
    static const char *const names[SL_RESIDENT_KIND_COUNT] = {
        "arenas", "heap", "stacks", "code", "files", "rings", "unexplained"};
    return names[kind];
}

/* ---- threads ---- */

static FILE *open_file(const reading *self, const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", self->root, name);
    return fopen(path, "re");
}

/* "202 0x.. (six arguments) STACK_POINTER PROGRAM_COUNTER" of one that sleeps in a call. */
static uint64_t read_stack_pointer(const reading *self, const char *thread)
{
    enum { WORDS_BEFORE = 7 }; /* the number of the call and its arguments */
    char name[64], text[256] = "";
    snprintf(name, sizeof name, "task/%.20s/syscall", thread);
    FILE *file = open_file(self, name);
    if (!file)
        return 0;
    const char *word = fgets(text, sizeof text, file);
    fclose(file);
    for (int i = 0; word && i < WORDS_BEFORE; i++) {
        word = strchr(word, ' ');
        word = word ? word + 1 : NULL;
    }
    return word ? strtoull(word, NULL, 16) : 0;
}

static sl_status find_stacks(reading *self)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/task", self->root);
    self->stacks = calloc(STACKS_MAX, sizeof *self->stacks);
    if (!self->stacks)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to look at stacks");
    DIR *tasks = opendir(path);
    const struct dirent *entry;
    while (tasks && (entry = readdir(tasks)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        self->sums.thread_count++;
        uint64_t pointer = read_stack_pointer(self, entry->d_name);
        if (pointer && self->stack_count < STACKS_MAX)
            self->stacks[self->stack_count++] = pointer;
    }
    if (tasks)
        closedir(tasks);
    return SL_OK;
}

/* ---- sorting ---- */

static bool holds_stack(const reading *self, const mapping *of)
{
    for (uint32_t i = 0; i < self->stack_count; i++)
        if (self->stacks[i] >= of->start && self->stacks[i] < of->end)
            return true;
    return strcmp(of->name, "[stack]") == 0;
}

/* Bytes of a mapping that belong to arenas. */
static uint64_t count_arena_bytes(const reading *self, const mapping *of)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < self->arena_count; i++) {
        uint64_t start = (uint64_t)(uintptr_t)self->arenas[i].start;
        uint64_t end = start + self->arenas[i].bytes;
        uint64_t from = start > of->start ? start : of->start;
        uint64_t to = end < of->end ? end : of->end;
        bytes += from < to ? to - from : 0;
    }
    return bytes;
}

static sl_resident_kind sort_file(const reading *self, const mapping *of)
{
    if (strstr(of->name, "io_uring"))
        return SL_RESIDENT_RINGS;
    bool is_program = strcmp(of->name, self->program) == 0;
    return of->has_code || is_program || strstr(of->name, ".so") ? SL_RESIDENT_CODE
                                                                 : SL_RESIDENT_FILES;
}

static void add_mapping(reading *self, const mapping *of)
{
    uint64_t *kinds = self->sums.kind_bytes, left = of->resident_bytes;
    uint64_t arena_bytes = count_arena_bytes(self, of);
    arena_bytes = arena_bytes < left ? arena_bytes : left;
    self->sums.total_bytes += left;
    kinds[SL_RESIDENT_ARENAS] += arena_bytes;
    left -= arena_bytes;
    if (of->has_file)
        kinds[sort_file(self, of)] += left;
    else if (arena_bytes == 0 && holds_stack(self, of))
        kinds[SL_RESIDENT_STACKS] += left;
    else if (strcmp(of->name, "[vdso]") == 0 || strcmp(of->name, "[vvar]") == 0)
        kinds[SL_RESIDENT_CODE] += left;
    else
        self->anonymous_bytes += left;
}

/* ---- smaps ---- */

/* "7f00-7f10 rw-p 00000000 fe:00 1234   /path", or false for a line of another kind. */
static bool read_head(const char *line, mapping *out)
{
    char flags[8] = "", *rest;
    int name_at = 0;
    mapping of = {.start = strtoull(line, &rest, 16)};
    if (rest == line || *rest != '-')
        return false;
    of.end = strtoull(rest + 1, &rest, 16);
    if (sscanf(rest, " %7s %*x %*s %*u %n", flags, &name_at) != 1)
        return false;
    snprintf(of.name, sizeof of.name, "%s", name_at > 0 ? rest + name_at : "");
    of.name[strcspn(of.name, "\n")] = '\0';
    of.has_file = of.name[0] == '/' || strncmp(of.name, "anon_inode:", 11) == 0;
    of.has_code = strlen(flags) > 2 && flags[2] == 'x';
    *out = of;
    return true;
}

static sl_status read_mappings(reading *self)
{
    char *line = NULL;
    size_t capacity = 0;
    mapping of = {0}, next;
    FILE *file = open_file(self, "smaps");
    if (!file)
        SL_FAIL(SL_ERROR_SYSTEM, "%s/smaps: %s", self->root, strerror(errno));
    while (getline(&line, &capacity, file) > 0) {
        if (read_head(line, &next)) {
            add_mapping(self, &of);
            of = next;
        } else if (strncmp(line, "Rss:", 4) == 0) {
            of.resident_bytes = strtoull(line + 4, NULL, 10) * KIB;
        }
    }
    add_mapping(self, &of);
    bool has_failed = ferror(file) != 0;
    free(line);
    fclose(file);
    if (has_failed)
        SL_FAIL(SL_ERROR_SYSTEM, "%s/smaps cannot be read to its end", self->root);
    return SL_OK;
}

/* The number behind a key of a file of "Key:  n kB" lines; 0 where there is none. */
static uint64_t read_kib(const reading *self, const char *name, const char *key)
{
    char *line = NULL;
    size_t capacity = 0, length = strlen(key);
    uint64_t kib = 0;
    FILE *file = open_file(self, name);
    while (file && kib == 0 && getline(&line, &capacity, file) > 0)
        if (strncmp(line, key, length) == 0)
            kib = strtoull(line + length, NULL, 10);
    free(line);
    if (file)
        fclose(file);
    return kib * KIB;
}

static void read_program(reading *self)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/exe", self->root);
    char *resolved = realpath(path, NULL);
    snprintf(self->program, sizeof self->program, "%s", resolved ? resolved : "");
    free(resolved);
}

/* ---- reading all of it ---- */

static void share_out_anonymous(reading *self, uint64_t heap_bytes)
{
    uint64_t left = self->anonymous_bytes;
    uint64_t heap = heap_bytes < left ? heap_bytes : left;
    self->sums.kind_bytes[SL_RESIDENT_HEAP] = heap;
    self->sums.kind_bytes[SL_RESIDENT_UNEXPLAINED] = left - heap;
}

sl_status sl_resident_read(const char *root, const sl_resident_range *arenas, uint32_t arena_count,
                           uint64_t heap_bytes, sl_resident *out_resident)
{
    reading self = {
        .root = root ? root : "/proc/self", .arenas = arenas, .arena_count = arena_count};
    read_program(&self);
    sl_status status = find_stacks(&self);
    if (status == SL_OK)
        status = read_mappings(&self);
    free(self.stacks);
    SL_TRY(status);
    share_out_anonymous(&self, heap_bytes);
    self.sums.rollup_bytes = read_kib(&self, "smaps_rollup", "Rss:");
    self.sums.peak_bytes = read_kib(&self, "status", "VmHWM:");
    self.sums.page_table_bytes = read_kib(&self, "status", "VmPTE:");
    *out_resident = self.sums;
    return SL_OK;
}
