/* A cgroup with a limit of memory, where this process may make one: below its own in the hierarchy
 * of version 1, or of version 2 where memory is counted there. To be included once in a program. */
#ifndef SL_TESTS_MEMORY_GROUP_H
#define SL_TESTS_MEMORY_GROUP_H

#include <mntent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MEMORY_GROUP_BYTES = 1024 };

typedef struct memory_group {
    char path[MEMORY_GROUP_BYTES];
    char enter[MEMORY_GROUP_BYTES + 64]; /* for a shell: what it starts then is in the group */
} memory_group;

/* Where the hierarchy is mounted; false: it is not. */
static inline bool memory_group_find_mount(bool is_v2, char *out_path)
{
    bool is_found = false;
    FILE *file = setmntent("/proc/self/mounts", "r");
    for (struct mntent *each; file && !is_found && (each = getmntent(file)) != NULL;) {
        is_found = is_v2 ? strcmp(each->mnt_type, "cgroup2") == 0
                         : strcmp(each->mnt_type, "cgroup") == 0 && hasmntopt(each, "memory");
        if (is_found)
            snprintf(out_path, MEMORY_GROUP_BYTES, "%s", each->mnt_dir);
    }
    if (file)
        endmntent(file);
    return is_found;
}

/* This process's own group, as /proc names it. */
static inline bool memory_group_find_own(bool is_v2, char *out_path)
{
    char line[MEMORY_GROUP_BYTES];
    bool is_found = false;
    FILE *file = fopen("/proc/self/cgroup", "r");
    while (file && !is_found && fgets(line, sizeof line, file)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        is_found = is_v2 ? names[1] == '\0' : strcmp(names + 1, "memory") == 0;
        if (is_found)
            snprintf(out_path, MEMORY_GROUP_BYTES, "%s", path);
    }
    if (file)
        fclose(file);
    return is_found;
}

static inline bool memory_group_set_limit(const memory_group *group, bool is_v2, uint64_t bytes)
{
    char name[MEMORY_GROUP_BYTES + 64];
    snprintf(name, sizeof name, "%s/%s", group->path,
             is_v2 ? "memory.max" : "memory.limit_in_bytes");
    FILE *file = fopen(name, "r+");
    if (!file)
        return false;
    fprintf(file, "%llu\n", (unsigned long long)bytes);
    return fclose(file) == 0;
}

/* The own group may not be seen where the hierarchy is mounted: then at its root. */
static inline bool memory_group_make(bool is_v2, uint64_t bytes, memory_group *out_group)
{
    char mount[MEMORY_GROUP_BYTES], own[MEMORY_GROUP_BYTES];
    if (!memory_group_find_mount(is_v2, mount) || !memory_group_find_own(is_v2, own))
        return false;
    for (int at_root = 0; at_root < 2; at_root++) {
        int length = snprintf(out_group->path, sizeof out_group->path, "%s%s/sluice-XXXXXX", mount,
                              at_root ? "" : own);
        if (length >= (int)sizeof out_group->path || !mkdtemp(out_group->path))
            continue;
        if (memory_group_set_limit(out_group, is_v2, bytes))
            return true;
        rmdir(out_group->path);
    }
    return false;
}

static inline bool memory_group_open(memory_group *out_group, uint64_t bytes)
{
    for (int is_v2 = 0; is_v2 < 2; is_v2++) {
        if (!memory_group_make(is_v2, bytes, out_group))
            continue;
        snprintf(out_group->enter, sizeof out_group->enter, "echo $$ >'%s/cgroup.procs' &&",
                 out_group->path);
        return true;
    }
    return false;
}

/* Processes leave a group a moment after they ended. */
static inline void memory_group_close(const memory_group *group)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    for (int tries = 0; tries < 400 && rmdir(group->path) != 0; tries++)
        nanosleep(&pause, NULL);
}

#endif
