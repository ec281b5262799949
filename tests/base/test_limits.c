/* What could be wrong in reading the limits of memory and processor time: the wrong cgroup, the
 * wrong version, a forgotten ancestor, a number misread, a missing file taken for a limit. The
 * rules are read from made-up /proc and cgroup trees whose answer is worked out by hand. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/limits.h"
#include "skip.h"

enum { TREE_FILES = 12 };

typedef struct tree_file {
    const char *path, *text;
} tree_file;

typedef struct limit_case {
    const char *name;
    uint64_t expected;
    tree_file files[TREE_FILES];
} limit_case;

#define MEMINFO                                                                                    \
    {                                                                                              \
        "/proc/meminfo", "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    8000 kB\n"           \
    }
#define AVAILABLE (UINT64_C(8000) * 1024)
#define V2_MOUNT "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNT "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
#define V1_NONE "9223372036854771712\n"

/* ---- memory ---- */

static const limit_case limit_cases[] = {
    {"no cgroups", AVAILABLE, {MEMINFO}},
    {"version 2, no limit",
     AVAILABLE,
     {MEMINFO,
      {"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/root rw\n" V2_MOUNT},
      {"/sys/fs/cgroup/a/memory.max", "max\n"},
      {"/sys/fs/cgroup/a/memory.current", "5000\n"}}},
    {"version 2, inactive file pages give way",
     1000000 - (700000 - 300000),
     {MEMINFO,
      {"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/memory.max", "1000000\n"},
      {"/sys/fs/cgroup/a/memory.current", "700000\n"},
      {"/sys/fs/cgroup/a/memory.stat",
       "anon 400000\nfile 300000\nactive_file 0\ninactive_file_x 1\ninactive_file 300000\n"}}},
    {"version 2, so do active ones",
     1000000 - (700000 - 300000),
     {MEMINFO,
      {"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/memory.max", "1000000\n"},
      {"/sys/fs/cgroup/a/memory.current", "700000\n"},
      {"/sys/fs/cgroup/a/memory.stat",
       "anon 400000\nfile 300000\nactive_file 250000\ninactive_file 50000\n"}}},
    {"version 2, the parent leaves less",
     50000,
     {MEMINFO,
      {"/proc/self/cgroup", "0::/user.slice/a:b/leaf\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/user.slice/a:b/leaf/memory.max", "max\n"},
      {"/sys/fs/cgroup/user.slice/a:b/leaf/memory.current", "10\n"},
      {"/sys/fs/cgroup/user.slice/a:b/memory.max", "900000\n"},
      {"/sys/fs/cgroup/user.slice/a:b/memory.current", "850000\n"},
      {"/sys/fs/cgroup/user.slice/memory.max", "2000000\n"},
      {"/sys/fs/cgroup/user.slice/memory.current", "1000000\n"}}},
    {"version 2, throttled from a lower mark on",
     100,
     {MEMINFO,
      {"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/memory.max", "1000000\n"},
      {"/sys/fs/cgroup/a/memory.high", "600100\n"},
      {"/sys/fs/cgroup/a/memory.current", "600000\n"}}},
    {"version 2, used up",
     0,
     {MEMINFO,
      {"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/memory.max", "1000\n"},
      {"/sys/fs/cgroup/a/memory.current", "2000\n"}}},
    {"version 2, in a namespace the mount is the cgroup",
     4000,
     {MEMINFO,
      {"/proc/self/cgroup", "0::/\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/memory.max", "5000\n"},
      {"/sys/fs/cgroup/memory.current", "1000\n"}}},
    {"version 2, outside of the namespace",
     4000,
     {MEMINFO,
      {"/proc/self/cgroup", "0::/../other\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/other/memory.max", "1\n"},
      {"/sys/fs/cgroup/memory.max", "5000\n"},
      {"/sys/fs/cgroup/memory.current", "1000\n"}}},
    {"version 2, a container that sees its own directory as the mount",
     3000,
     {MEMINFO,
      {"/proc/self/cgroup", "0::/docker/12ab/job\n"},
      {"/proc/self/mountinfo", "30 20 0:26 /docker/12ab /sys/fs/cgroup ro - cgroup2 cgroup rw\n"},
      {"/sys/fs/cgroup/memory.max", "9000\n"},
      {"/sys/fs/cgroup/memory.current", "1000\n"},
      {"/sys/fs/cgroup/job/memory.max", "5000\n"},
      {"/sys/fs/cgroup/job/memory.current", "2000\n"}}},
    {"version 2, a mount point with a blank",
     77,
     {MEMINFO,
      {"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", "30 20 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n"},
      {"/my groups/a/memory.max", "77\n"},
      {"/my groups/a/memory.current", "0\n"}}},
    {"version 1, beside other controllers",
     60000,
     {MEMINFO,
      {"/proc/self/cgroup",
       "9:name=systemd:/x\n4:cpu,memory:/job/7\n3:cpuset,memoryless:/\n0::/\n"},
      {"/proc/self/mountinfo",
       "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
       "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpu,memory\n"},
      {"/sys/fs/cgroup/cpuset/job/7/memory.limit_in_bytes", "1\n"},
      {"/sys/fs/cgroup/memory/job/7/memory.limit_in_bytes", "100000\n"},
      {"/sys/fs/cgroup/memory/job/7/memory.usage_in_bytes", "50000\n"},
      {"/sys/fs/cgroup/memory/job/7/memory.stat", "inactive_file 3\ntotal_inactive_file 10000\n"},
      {"/sys/fs/cgroup/memory/job/memory.limit_in_bytes", V1_NONE},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NONE}}},
    {"version 1, an ancestor that cannot be seen",
     20000,
     {MEMINFO,
      {"/proc/self/cgroup", "4:memory:/docker/12ab\n"},
      {"/proc/self/mountinfo",
       "35 31 0:32 /docker/12ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", V1_NONE},
      {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n"},
      {"/sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 25000\n"}}},
    {"version 1 next to a version 2 without memory",
     900,
     {MEMINFO,
      {"/proc/self/cgroup", "4:memory:/a\n0::/b\n"},
      {"/proc/self/mountinfo", V1_MOUNT V2_MOUNT},
      {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n"},
      {"/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "100\n"}}},
    {"the machine has less than the cgroup allows",
     AVAILABLE,
     {MEMINFO,
      {"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/memory.max", "100000000000\n"},
      {"/sys/fs/cgroup/a/memory.current", "1\n"}}},
    {"files that make no sense are no rules",
     AVAILABLE,
     {MEMINFO,
      {"/proc/self/cgroup", "\n:\n::\n0:\nx::y::z\n0::/a\n"},
      {"/proc/self/mountinfo", "\n - \n1 2 3\na b c d e f - cgroup2\n" V2_MOUNT},
      {"/sys/fs/cgroup/a/memory.max", "plenty\n"},
      {"/sys/fs/cgroup/a/memory.current", "\n"},
      {"/sys/fs/cgroup/a/memory.stat", "inactive_file\ninactive_file x\n"}}},
};

/* Makes the directories of `path` and writes the file. */
static void write_tree_file(const char *root, const tree_file *file)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", root, file->path);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    assert_true(fputs(file->text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static void remove_tree(const char *root)
{
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
}

/* ---- processor time ---- */

enum { ALLOWED_CPUS = 128 };

#define V1_CPU_MOUNT "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"

static const limit_case cpu_cases[] = {
    {"no cgroups", ALLOWED_CPUS, {MEMINFO}},
    {"version 2, no quota",
     ALLOWED_CPUS,
     {{"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "max 100000\n"}}},
    {"version 2, four processors' worth",
     4,
     {{"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "400000 100000\n"}}},
    {"version 2, a part counts as a whole one",
     3,
     {{"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "225000 100000\n"}}},
    {"version 2, hardly anything is still one",
     1,
     {{"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "1000 100000\n"}}},
    {"version 2, the parent gives less",
     2,
     {{"/proc/self/cgroup", "0::/job/step\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/job/step/cpu.max", "800000 100000\n"},
      {"/sys/fs/cgroup/job/cpu.max", "100000 50000\n"}}},
    {"more than there are",
     ALLOWED_CPUS,
     {{"/proc/self/cgroup", "0::/a\n"},
      {"/proc/self/mountinfo", V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "99900000 100000\n"}}},
    {"version 1, beside another controller",
     6,
     {{"/proc/self/cgroup", "4:cpu,cpuacct:/job/7\n3:cpuset:/\n0::/\n"},
      {"/proc/self/mountinfo", V1_CPU_MOUNT},
      {"/sys/fs/cgroup/cpu/job/7/cpu.cfs_quota_us", "-1\n"},
      {"/sys/fs/cgroup/cpu/job/7/cpu.cfs_period_us", "100000\n"},
      {"/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "600000\n"},
      {"/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n"}}},
    {"files that make no sense are no rules",
     ALLOWED_CPUS,
     {{"/proc/self/cgroup", "4:cpu:/a\n0::/a\n"},
      {"/proc/self/mountinfo", V1_CPU_MOUNT V2_MOUNT},
      {"/sys/fs/cgroup/a/cpu.max", "many\n"},
      {"/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "100000\n"},
      {"/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "0\n"}}},
};

/* ---- the tests ---- */

static void open_tree(const limit_case *one, char *root)
{
    assert_non_null(mkdtemp(root));
    for (int f = 0; f < TREE_FILES && one->files[f].path; f++)
        write_tree_file(root, &one->files[f]);
}

static void free_bytes_when_a_cgroup_limits_is_what_it_leaves(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof limit_cases / sizeof limit_cases[0]; i++) {
        char root[] = "/tmp/sl_limits_XXXXXX";
        sl_limits_memory memory = {0};
        open_tree(&limit_cases[i], root);
        assert_int_equal(sl_limits_read_memory(root, &memory), SL_OK);
        remove_tree(root);
        if (memory.free_bytes != limit_cases[i].expected)
            fail_msg("%s: %" PRIu64 " instead of %" PRIu64, limit_cases[i].name, memory.free_bytes,
                     limit_cases[i].expected);
        assert_int_equal(memory.available_bytes, AVAILABLE);
        assert_true(memory.free_bytes == AVAILABLE ||
                    memory.free_bytes == memory.cgroup_free_bytes);
        assert_true(memory.cgroup_limit_bytes >= memory.cgroup_free_bytes);
    }
}

static void free_bytes_when_nothing_is_known_fails(void **state)
{
    (void)state;
    sl_limits_memory memory = {.free_bytes = 12345};
    assert_int_equal(sl_limits_read_memory("/nonexistent", &memory), SL_ERROR_SYSTEM);
    assert_non_null(strstr(sl_status_message(), "/nonexistent/proc/meminfo"));
    assert_int_equal(memory.free_bytes, 12345);
}

static void cpu_count_when_a_cgroup_has_a_quota_is_no_more_than_that(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cpu_cases / sizeof cpu_cases[0]; i++) {
        char root[] = "/tmp/sl_limits_XXXXXX";
        open_tree(&cpu_cases[i], root);
        uint32_t count = sl_limits_cpu_count(root, ALLOWED_CPUS);
        remove_tree(root);
        if (count != cpu_cases[i].expected)
            fail_msg("%s: %u instead of %" PRIu64, cpu_cases[i].name, count, cpu_cases[i].expected);
    }
}

static void directories_when_on_tmpfs_are_memory(void **state)
{
    (void)state;
    assert_false(sl_limits_is_in_memory("/proc"));
    assert_false(sl_limits_is_in_memory("/nonexistent"));
    if (sl_limits_is_in_memory("/dev/shm"))
        return;
    skip_because("/dev/shm is no tmpfs here");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_bytes_when_a_cgroup_limits_is_what_it_leaves),
        cmocka_unit_test(free_bytes_when_nothing_is_known_fails),
        cmocka_unit_test(cpu_count_when_a_cgroup_has_a_quota_is_no_more_than_that),
        cmocka_unit_test(directories_when_on_tmpfs_are_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
