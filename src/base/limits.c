/* Memory and processor time that this process may use: by /proc/meminfo, and by the limits of its
 * cgroup and of all cgroups above it, versions 1 and 2. Knows nothing of budgets and workers.
 *
 * A file that is missing or does not parse is taken as no limit: containers hide parts of these
 * trees. Only /proc/meminfo must be there.
 */
#include "limits.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>

#include "bits.h"

/* A tree of cgroups. */
typedef struct hierarchy {
    const char *file_system;  /* type of the mount */
    const char *mount_option; /* of the mount; NULL: any mount of the type */
} hierarchy;

/* The names of one version of the memory cgroup. */
typedef struct memory_files {
    hierarchy tree;
    const char *limits[2];      /* files; the second one may be NULL */
    const char *usage;          /* file */
    const char *whole_limit;    /* key of memory.stat: least limit of all ancestors, or NULL */
    const char *reclaimable[2]; /* keys of memory.stat: page cache, which the kernel frees when
                                   memory is short */
} memory_files;

static const memory_files memory_versions[] = {
    {{"cgroup", "memory"},
     {"memory.limit_in_bytes", NULL},
     "memory.usage_in_bytes",
     "hierarchical_memory_limit",
     {"total_inactive_file", "total_active_file"}},
    {{"cgroup2", NULL},
     {"memory.max", "memory.high"},
     "memory.current",
     NULL,
     {"inactive_file", "active_file"}},
};

static const hierarchy cpu_versions[] = {{"cgroup", "cpu"}, {"cgroup2", NULL}};

/* A mount: `root`, a directory of the file system, is visible at directory `point`. */
typedef struct mount {
    char root[PATH_MAX];
    char point[PATH_MAX];
} mount;

static bool join_path(char *out_path, const char *a, const char *b, const char *c)
{
    int length = snprintf(out_path, PATH_MAX, "%s%s%s", a, b, c);
    return length >= 0 && length < PATH_MAX;
}

/* ---- reading one value ---- */

/* Reads a number, or "max", which is no limit. */
static bool parse_value(const char *text, uint64_t *out_value)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (end == text && strncmp(text, "max", 3) != 0)
        return false;
    *out_value = end == text || errno == ERANGE ? UINT64_MAX : value;
    return true;
}

/* Where the value starts on a line "key value" or "key: value"; NULL if the line has another key.
 * An empty key matches any line. */
static const char *find_value(const char *line, const char *key)
{
    size_t length = strlen(key);
    if (strncmp(line, key, length) != 0)
        return NULL;
    size_t gap = strspn(line + length, ": \t");
    return length == 0 || gap > 0 ? line + length + gap : NULL;
}

/* Reads the value of the first line with `key`. */
static bool read_value(const char *path, const char *key, uint64_t *out_value)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    char line[512];
    const char *text = NULL;
    while (!text && fgets(line, sizeof line, file))
        text = find_value(line, key);
    fclose(file);
    return text && parse_value(text, out_value);
}

static bool read_file_value(const char *directory, const char *file, const char *key,
                            uint64_t *out_value)
{
    char path[PATH_MAX];
    return join_path(path, directory, "/", file) && read_value(path, key, out_value);
}

/* ---- finding this process's cgroup ---- */

/* True if the comma-separated `list` of `length` bytes holds `word`. */
static bool list_holds(const char *list, size_t length, const char *word)
{
    size_t word_length = strlen(word);
    const char *end = list + length;
    while (list < end) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        const char *stop = comma ? comma : end;
        if ((size_t)(stop - list) == word_length && memcmp(list, word, word_length) == 0)
            return true;
        list = stop + 1;
    }
    return false;
}

/* Writes the path of a line "id:controllers:path" if the line is that of hierarchy `kind`. */
static bool parse_cgroup_line(const char *line, const hierarchy *kind, char *out_path)
{
    const char *controllers = strchr(line, ':');
    const char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return false;
    size_t length = (size_t)(path - controllers - 1);
    bool is_ours =
        kind->mount_option ? list_holds(controllers + 1, length, kind->mount_option) : length == 0;
    return is_ours && join_path(out_path, path + 1, "", "");
}

/* Called with a line without its line end; true ends the scan. */
typedef bool (*line_function)(char *line, void *context);

/* Calls `take` for the lines of a file until it returns true; false if it never does. */
static bool scan_lines(const char *path, line_function take, void *context)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    char *line = NULL;
    size_t capacity = 0;
    bool is_taken = false;
    while (!is_taken && getline(&line, &capacity, file) >= 0) {
        line[strcspn(line, "\n")] = '\0';
        is_taken = take(line, context);
    }
    free(line);
    fclose(file);
    return is_taken;
}

typedef struct search {
    const hierarchy *kind;
    char *path;  /* the cgroup's path in its hierarchy */
    mount *best; /* the mount of that hierarchy that contains `path`, else the last one of the
                    hierarchy */
    bool is_mounted;
} search;

static bool take_cgroup_line(char *line, void *context)
{
    search *wanted = context;
    return parse_cgroup_line(line, wanted->kind, wanted->path);
}

/* Undoes mountinfo's octal escapes in place. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        if (from[0] == '\\' && strspn(from + 1, "01234567") >= 3) {
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

/* True if `path` is `root` or below it. */
static bool is_below(const char *path, const char *root)
{
    size_t length = strlen(root);
    if (length == 1)
        return true; /* "/" */
    return strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* A line of mountinfo: "id parent device root point options [optional …] - type source super". */
static bool take_mount_line(char *line, void *context)
{
    search *wanted = context;
    char *tail = strstr(line, " - ");
    if (!tail)
        return false;
    *tail = '\0';
    char *head_state, *tail_state, *fields[5];
    char *field = strtok_r(line, " ", &head_state);
    for (int i = 0; i < 5; i++, field = strtok_r(NULL, " ", &head_state)) {
        if (!field)
            return false;
        fields[i] = field;
    }
    const char *type = strtok_r(tail + 3, " ", &tail_state);
    const char *source = strtok_r(NULL, " ", &tail_state);
    const char *options = strtok_r(NULL, " ", &tail_state);
    const char *option = wanted->kind->mount_option;
    if (!type || !source || strcmp(type, wanted->kind->file_system) != 0)
        return false;
    if (option && (!options || !list_holds(options, strlen(options), option)))
        return false;
    unescape(fields[3]);
    unescape(fields[4]);
    wanted->is_mounted = join_path(wanted->best->root, fields[3], "", "") &&
                         join_path(wanted->best->point, fields[4], "", "");
    return wanted->is_mounted && is_below(wanted->path, fields[3]);
}

/* ---- walking up ---- */

/* Writes the directory of the process's cgroup, and the length of the mount's own directory, above
 * which nothing is visible. If the cgroup is not below the mount (namespaces), the mount's
 * directory is the nearest visible cgroup. */
static bool find_cgroup(const hierarchy *kind, const char *root, char *out_directory,
                        size_t *out_top_length)
{
    char path[PATH_MAX], file[PATH_MAX], top[PATH_MAX];
    mount place;
    search wanted = {kind, path, &place, false};
    if (!join_path(file, root, "/proc/self/cgroup", "") ||
        !scan_lines(file, take_cgroup_line, &wanted))
        return false;
    if (!join_path(file, root, "/proc/self/mountinfo", ""))
        return false;
    bool is_inside = scan_lines(file, take_mount_line, &wanted) && !strstr(path, "/..");
    if (!wanted.is_mounted || !join_path(top, root, place.point, ""))
        return false;
    size_t root_length = strlen(place.root) > 1 ? strlen(place.root) : 0;
    *out_top_length = strlen(top);
    return join_path(out_directory, top, is_inside ? path + root_length : "", "");
}

/* Cuts the last name off a cgroup's directory; false at the mount. */
static bool go_up(char *directory, size_t top_length)
{
    char *slash = strrchr(directory, '/');
    if (!slash || strlen(directory) <= top_length)
        return false;
    *slash = '\0';
    return true;
}

/* ---- memory ---- */

/* The limit of one cgroup, UINT64_MAX if it has none, and how many bytes are free below the
 * limit. */
static uint64_t read_memory_level(const memory_files *names, const char *directory,
                                  uint64_t *out_free_bytes)
{
    uint64_t limit = UINT64_MAX, usage = 0, reclaimable = 0, value;
    *out_free_bytes = UINT64_MAX;
    for (int i = 0; i < 2 && names->limits[i]; i++) {
        if (read_file_value(directory, names->limits[i], "", &value) && value < limit)
            limit = value;
    }
    if (names->whole_limit &&
        read_file_value(directory, "memory.stat", names->whole_limit, &value) && value < limit)
        limit = value;
    if (limit > INT64_MAX / 2) /* version 1 writes "none" as the largest multiple of a page */
        return UINT64_MAX;
    (void)read_file_value(directory, names->usage, "", &usage);
    for (int i = 0; i < 2; i++) {
        if (read_file_value(directory, "memory.stat", names->reclaimable[i], &value))
            reclaimable += value < usage ? value : usage;
    }
    uint64_t held = usage > reclaimable ? usage - reclaimable : 0;
    *out_free_bytes = limit > held ? limit - held : 0;
    return limit;
}

static void read_memory_levels(const memory_files *names, const char *root,
                               sl_limits_memory *memory)
{
    char directory[PATH_MAX];
    size_t top_length;
    if (!find_cgroup(&names->tree, root, directory, &top_length))
        return;
    do {
        uint64_t left;
        uint64_t limit = read_memory_level(names, directory, &left);
        if (left < memory->cgroup_free_bytes) {
            memory->cgroup_free_bytes = left;
            memory->cgroup_limit_bytes = limit;
        }
    } while (go_up(directory, top_length));
}

sl_status sl_limits_read_memory(const char *root, sl_limits_memory *out_memory)
{
    char file[PATH_MAX];
    uint64_t kib;
    sl_limits_memory memory = {.cgroup_free_bytes = UINT64_MAX, .cgroup_limit_bytes = UINT64_MAX};
    if (!join_path(file, root, "/proc/meminfo", "") || !read_value(file, "MemAvailable", &kib))
        SL_FAIL(SL_ERROR_SYSTEM, "%s/proc/meminfo does not say how much memory is available", root);
    SL_TRY(sl_bits_multiply(kib, 1024, "available memory", &memory.available_bytes));
    for (size_t i = 0; i < sizeof memory_versions / sizeof memory_versions[0]; i++)
        read_memory_levels(&memory_versions[i], root, &memory);
    memory.free_bytes = memory.available_bytes < memory.cgroup_free_bytes
                            ? memory.available_bytes
                            : memory.cgroup_free_bytes;
    *out_memory = memory;
    return SL_OK;
}

bool sl_limits_is_in_memory(const char *directory)
{
    struct statfs info;
    if (statfs(directory, &info) != 0)
        return false;
    return (uint32_t)info.f_type == TMPFS_MAGIC || (uint32_t)info.f_type == RAMFS_MAGIC;
}

/* ---- processor time ---- */

/* Reads a line of cpu.max: "200000 100000" is the time of two processors; "max" is no limit. */
static bool read_quota_of_two(const char *directory, uint64_t *out_quota, uint64_t *out_period)
{
    char path[PATH_MAX], line[64] = "";
    FILE *file = join_path(path, directory, "/", "cpu.max") ? fopen(path, "re") : NULL;
    if (!file)
        return false;
    bool is_read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    const char *blank = strchr(line, ' ');
    return is_read && blank && parse_value(line, out_quota) && parse_value(blank + 1, out_period);
}

/* The time that one cgroup gets, in processors; 0: no limit. */
static double read_cpu_level(const char *directory)
{
    uint64_t quota, period;
    bool is_limited = read_quota_of_two(directory, &quota, &period) ||
                      (read_file_value(directory, "cpu.cfs_quota_us", "", &quota) &&
                       read_file_value(directory, "cpu.cfs_period_us", "", &period));
    if (!is_limited || quota > INT64_MAX || period == 0) /* version 1 writes "none" as -1 */
        return 0;
    return (double)quota / (double)period;
}

double sl_limits_cpu_quota(const char *root)
{
    double least = 0;
    for (size_t i = 0; i < sizeof cpu_versions / sizeof cpu_versions[0]; i++) {
        char directory[PATH_MAX];
        size_t top_length;
        if (!find_cgroup(&cpu_versions[i], root, directory, &top_length))
            continue;
        do {
            double quota = read_cpu_level(directory);
            if (quota > 0 && (least == 0 || quota < least))
                least = quota;
        } while (go_up(directory, top_length));
    }
    return least;
}

uint32_t sl_limits_cpu_count(const char *root, uint32_t allowed_count)
{
    double quota = sl_limits_cpu_quota(root);
    return quota > 0 && quota < allowed_count ? (uint32_t)ceil(quota) : allowed_count;
}
