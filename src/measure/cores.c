/* Reads one short file a thread. */
#include "cores.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { PATH_BYTES = 512 };

static void add_thread(const char *tasks_path, const char *thread, sl_cores *sums)
{
    char path[PATH_BYTES], text[128], *rest, *end;
    snprintf(path, sizeof path, "%.400s/%.20s/schedstat", tasks_path, thread);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fgets(text, sizeof text, file)) {
        uint64_t used_ns = strtoull(text, &rest, 10), waited_ns = strtoull(rest, &end, 10);
        sums->used_ns += end != rest ? used_ns : 0; /* both numbers, or none */
        sums->waited_ns += end != rest ? waited_ns : 0;
    }
    fclose(file);
}

sl_cores sl_cores_read(const char *root)
{
    char path[PATH_BYTES];
    sl_cores sums = {0};
    snprintf(path, sizeof path, "%.400s/task", root ? root : "/proc/self");
    DIR *tasks = opendir(path);
    const struct dirent *entry;
    while (tasks && (entry = readdir(tasks)) != NULL)
        if (entry->d_name[0] != '.')
            add_thread(path, entry->d_name, &sums);
    if (tasks)
        closedir(tasks);
    return sums;
}

double sl_cores_find_waited(const sl_cores *before, const sl_cores *after)
{
    if (after->used_ns <= before->used_ns || after->waited_ns <= before->waited_ns)
        return 0;
    const double used = (double)(after->used_ns - before->used_ns);
    const double waited = (double)(after->waited_ns - before->waited_ns);
    return waited / (used + waited);
}
