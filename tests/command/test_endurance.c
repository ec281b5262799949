/* What could be wrong in a run of weeks: memory, descriptors or threads grow a little with every
 * step, evaluation or save, or the store's counters wrap. A small model trains on the disk tier,
 * all of its states there, with evaluations and saves between; its log is a pipe, so what the
 * kernel knows of the process is read while it works. Of each tenth of the run the least counts,
 * for what is taken for a moment is given back; no later tenth may be above the second. In full
 * 100,000 steps: SL_TEST_FULL. */
#define _GNU_SOURCE
#include "command_run.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "scratch_dir.h"

enum { TENTHS = 10, LOOKS_A_TENTH = 20, QUICK_STEPS = 2000, FULL_STEPS = 100000 };
enum { MEMORY_KIB = 256 }; /* what allocator and page tables may still add; a leak adds for ever */

typedef struct footprint {
    long memory_kib, descriptors, threads;
} footprint;

static long count_descriptors(pid_t process)
{
    char name[64];
    long count = 0;
    snprintf(name, sizeof name, "/proc/%d/fd", (int)process);
    DIR *directory = opendir(name);
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static footprint measure_footprint(pid_t process)
{
    char name[64], line[256];
    footprint found = {0};
    snprintf(name, sizeof name, "/proc/%d/status", (int)process);
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        (void)sscanf(line, "VmRSS: %ld", &found.memory_kib);
        (void)sscanf(line, "Threads: %ld", &found.threads);
    }
    fclose(file);
    found.descriptors = count_descriptors(process);
    return found;
}

static void keep_least(footprint *least, const footprint *found)
{
    bool is_first = least->threads == 0;
#define KEEP(field)                                                                                \
    least->field = is_first || found->field < least->field ? found->field : least->field
    KEEP(memory_kib);
    KEEP(descriptors);
    KEEP(threads);
#undef KEEP
}

/* The command itself is the child, so its process is the one that is looked at. The shell opens the
 * pipe before, so that a command that fails at once does not leave us waiting for its end. */
static pid_t start_training(uint64_t steps)
{
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command,
             /* The address sanitizer keeps what was freed, up to 256 MiB: no leak, but growth. */
             "ASAN_OPTIONS=\"quarantine_size_mb=0:thread_local_quarantine_size_kb=0:"
             "$ASAN_OPTIONS\" exec '%s' train --layers 1 --width 16 --heads 2 --context 16 "
             "--micro-batch 1 "
             "--data text --policy nvme --nvme-params 1 --nvme-grads 1 --disk-dir "
             "disk --threads 1 --steps %llu --eval-data few --eval-every %llu "
             "--save saved --save-every %llu --keep 2 --quiet --log-json log 3>log >out 2>err "
             "</dev/null",
             binary, (unsigned long long)steps, (unsigned long long)steps / 200,
             (unsigned long long)steps / 40);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return child;
}

/* Reads the log to its end and looks at the process on the way; returns the last step. */
static uint64_t follow(pid_t child, uint64_t steps, footprint least[TENTHS])
{
    static char line[1 << 14];
    uint64_t last = 0;
    FILE *log = fopen("log", "r");
    assert_non_null(log);
    while (fgets(line, sizeof line, log)) {
        unsigned long long step = 0;
        const char *at = strstr(line, "\"step\":");
        if (!strstr(line, "\"event\":\"step\"") || !at || sscanf(at + 7, "%llu", &step) != 1)
            continue;
        last = step;
        if (step >= steps || step % (steps / (TENTHS * LOOKS_A_TENTH)) != 0)
            continue;
        footprint found = measure_footprint(child);
        keep_least(&least[step * TENTHS / steps], &found);
    }
    fclose(log);
    return last;
}

static void check_tenths(const footprint least[TENTHS])
{
    for (int tenth = 0; tenth < TENTHS; tenth++)
        print_message("tenth %d: %ld KiB, %ld descriptors, %ld threads\n", tenth + 1,
                      least[tenth].memory_kib, least[tenth].descriptors, least[tenth].threads);
    for (int tenth = 2; tenth < TENTHS; tenth++) {
        assert_true(least[tenth].threads > 0);
        assert_true(least[tenth].memory_kib <= least[1].memory_kib + MEMORY_KIB);
        assert_true(least[tenth].descriptors <= least[1].descriptors);
        assert_true(least[tenth].threads <= least[1].threads);
    }
}

static void run_when_long_then_takes_no_more_than_a_short_one(void **state)
{
    (void)state;
    footprint least[TENTHS] = {{0}};
    uint64_t steps = scratch_count(QUICK_STEPS, FULL_STEPS);
    int status;
    assert_int_equal(mkfifo("log", 0600), 0);
    pid_t child = start_training(steps);
    uint64_t last = follow(child, steps, least);
    assert_int_equal(waitpid(child, &status, 0), child);
    read_complaint("err");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("left with %d: %s", status, complaint);
    assert_int_equal(last, steps);
    check_tenths(least);
}

static int set_up_disk(void **state)
{
    int failed = set_up(state);
    return failed ? failed : system("mkdir disk && head -c 100 text >few");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_when_long_then_takes_no_more_than_a_short_one),
    };
    return cmocka_run_group_tests(tests, set_up_disk, tear_down);
}
