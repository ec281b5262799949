/* What could be wrong here: a run whose states, gradients and parameters live on disk is killed,
 * and its checkpoint holds what was in memory instead of what was on disk, or half of each; the run
 * that goes on starts from a fresh disk and misses a part; the dead run leaves its space behind in
 * the disk directory, which is on a real disk. Killed at random moments; how, and how it is judged:
 * command_kill.h. Each kill is also looked at for what is left in the directory. */
#define _GNU_SOURCE
#include "command_kill.h"

#define ON_DISK "--disk-dir disk --nvme-params 1 --nvme-grads 1 "

/* A file that could not be nameless from the start would have a name that begins with a dot. */
static void assert_disk_is_empty(void)
{
    DIR *directory = opendir("disk");
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            fail_msg("disk/%s was left behind", entry->d_name);
    closedir(directory);
}

static void run_when_killed_on_the_disk_then_ends_as_the_run_in_one_piece(void **state)
{
    (void)state;
    static const char *const ways[] = {
        ON_DISK "--policy nvme",
        ON_DISK "--policy nvme --device-memory 4M --host-memory 8M --recompute full --threads 1",
        ON_DISK "--policy static --nvme-optimizer 0.6 --offload-optimizer 0.4",
    };
    run_kill_series(&(kill_series){.model = TINY "--width 64 --accumulate 2 --state-type int8 ",
                                   .base = "--policy device",
                                   .ways = ways,
                                   .way_count = sizeof ways / sizeof ways[0],
                                   .quick = 8,
                                   .full = 400,
                                   .look = assert_disk_is_empty});
}

static int set_up_disk(void **state)
{
    int failed = set_up(state);
    return failed ? failed : system("mkdir disk");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_when_killed_on_the_disk_then_ends_as_the_run_in_one_piece),
    };
    return cmocka_run_group_tests(tests, set_up_disk, tear_down);
}
