/* What could be wrong here: a run whose budgets are beyond the machine starts, and is killed in the
 * middle of a step; a disk directory that is memory counts as a disk. Every case runs the built
 * command. */
#define _GNU_SOURCE
#include "command_run.h"
#include "skip.h"

#include <inttypes.h>
#include <sys/vfs.h>

/* A step of a few TiB. */
#define HUGE                                                                                       \
    "--layers 48 --width 1600 --heads 25 --data text --micro-batch 1024 --recompute none "         \
    "--policy device "

static void budgets_when_beyond_the_machine_then_69_before_anything_is_taken(void **state)
{
    (void)state;
    assert_code(sluice("train " HUGE "--steps 1 --quiet --device-memory 100T --host-memory 100T"),
                69);
    assert_one_complaint("it does not fit");
    assert_has(complaint, "--device-memory");
    assert_code(sluice("plan " HUGE "--device-memory 100T --host-memory 100T"), 0);
    assert_has(complaint, "train refuses that");
}

static json_int_t read_budget(const json_t *plan, const char *tier)
{
    const json_t *tiers = json_object_get(plan, "tiers");
    return json_integer_value(json_object_get(json_object_get(tiers, tier), "budget_bytes"));
}

/* Prints the budgets of a plan and gives back their sum. */
static uint64_t sum_budgets(const char *directory)
{
    assert_code(sluice("plan " TINY "--data text --json --policy nvme --disk-dir %s", directory),
                0);
    json_t *plan = json_loads(output, 0, NULL);
    assert_non_null(plan);
    uint64_t sum = (uint64_t)(read_budget(plan, "device") + read_budget(plan, "host") +
                              read_budget(plan, "disk"));
    json_decref(plan);
    return sum;
}

static void disk_when_in_memory_then_counts_as_memory_and_warns(void **state)
{
    (void)state;
    char directory[] = "/dev/shm/sluice-command-XXXXXX";
    struct statfs info;
    if (statfs("/dev/shm", &info) != 0 || info.f_type != 0x01021994 || !mkdtemp(directory)) {
        skip_because("/dev/shm is no tmpfs here");
    }
    uint64_t sum = sum_budgets(directory);
    assert_has(complaint, "warning");
    assert_has(complaint, "is memory (tmpfs)");
    assert_code(sluice("train " TINY "--data text --steps 2 --quiet --policy nvme --disk-dir %s",
                       directory),
                0);
    assert_code(sluice("doctor --disk-dir %s", directory), 0);
    assert_has(output, "is tmpfs");
    assert_int_equal(rmdir(directory), 0);
    assert_true(sum < (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
}

static void doctor_when_asked_then_shows_the_limits_of_this_process(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu quota", "memory limit", "free to use", "locked memory",
                                        "disk tier"};
    assert_code(sluice("doctor --json"), 0);
    json_t *object = json_loads(output, 0, NULL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!json_object_get(object, names[i]))
            fail_msg("doctor does not say \"%s\"", names[i]);
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(budgets_when_beyond_the_machine_then_69_before_anything_is_taken),
        cmocka_unit_test(disk_when_in_memory_then_counts_as_memory_and_warns),
        cmocka_unit_test(doctor_when_asked_then_shows_the_limits_of_this_process),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
