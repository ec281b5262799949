/* What could be wrong here: a share on disk changes a number, is not counted by the log, takes more
 * than its budget, or is refused without a way out; the disk is used where nobody offered one; a
 * resumed run differs from one that was never stopped. Every case runs the built command. */
#define _GNU_SOURCE
#include <dirent.h>

#include "command_run.h"

#define DISK "--disk-dir disk "

static const json_t *find_event(const json_t *events, const char *kind)
{
    size_t index;
    json_t *event;
    json_array_foreach((json_t *)events, index, event)
    {
        if (strcmp(kind_of(event), kind) == 0)
            return event;
    }
    fail_msg("no event %s", kind);
    return NULL;
}

static json_int_t tier_bytes(const json_t *end, const char *tier, const char *key)
{
    return json_integer_value(
        json_object_get(json_object_get(json_object_get(end, "tiers"), tier), key));
}

static void assert_as_planned(const char *log)
{
    json_t *events = read_log(log);
    const json_t *end = find_event(events, "end");
    static const char *const tiers[] = {"device", "host", "disk"};
    for (int i = 0; i < 3; i++) {
        json_int_t planned = tier_bytes(end, tiers[i], "planned_peak_bytes");
        assert_true(planned > 0);
        assert_int_equal(tier_bytes(end, tiers[i], "measured_peak_bytes"), planned);
    }
    json_decref(events);
}

static void train_when_on_disk_in_any_way_then_numbers_are_the_same(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "--policy nvme",
        "--policy nvme --nvme-params 1 --nvme-grads 1 --threads 1",
        "--policy nvme --nvme-params 0.5 --nvme-optimizer 0.5 --adam device",
        "--policy nvme --host-memory 2924K --device-memory 1M --recompute full",
        "--policy static --nvme-optimizer 0.6 --offload-optimizer 0.4 --prefetch 0",
        "--policy static --nvme-params 1 --nvme-activations 1 --accumulation layer",
        "--policy host --offload-activations 1",
    };
    const char *common = TINY "--accumulate 2 --data text --steps 6 --quiet";
    assert_code(sluice("train %s --policy device --accumulation micro --log-json base", common), 0);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        assert_code(sluice("train %s " DISK "%s --log-json way", common, ways[i]), 0);
        assert_same_steps("base", "way", 1, 6);
        if (strstr(ways[i], "nvme"))
            assert_as_planned("way");
    }
}

/* What the plan moves a step is what the log counts of a step. */
static void log_when_states_are_on_disk_then_counts_what_moved(void **state)
{
    (void)state;
    const char *options = TINY DISK "--data text --policy nvme --host-memory 2924K "
                                    "--device-memory 1200K --disk-endurance 1T";
    assert_code(sluice("plan %s --json", options), 0);
    json_t *plan = json_loads(output, 0, NULL);
    assert_non_null(plan);
    json_t *moved = json_object_get(plan, "moved_bytes_per_step");
    json_int_t read = json_integer_value(json_object_get(moved, "read"));
    json_int_t written = json_integer_value(json_object_get(moved, "write"));
    assert_true(read > 0 && written > 0);
    assert_true(json_number_value(json_object_get(json_object_get(plan, "wear"),
                                                  "written_bytes_per_step")) == (double)written);
    assert_true(json_number_value(json_object_get(json_object_get(plan, "wear"), "years")) > 0);
    assert_code(sluice("train %s --steps 3 --log-json log", options), 0);
    assert_has(output, "written a step");
    assert_has(output, "--disk-endurance lasts");
    assert_has(output, "disk   planned peak");
    json_t *events = read_log("log");
    const json_t *step = json_array_get(events, 2), *end = find_event(events, "end");
    assert_int_equal(json_integer_value(json_object_get(step, "disk_read_bytes")), read);
    assert_int_equal(json_integer_value(json_object_get(step, "disk_bytes")),
                     tier_bytes(end, "disk", "planned_peak_bytes"));
    /* The last write-backs of a step may fall into the next one's count: all of them are in the
     * run's. The prologue reads, and clearing and first values are not steps. */
    assert_true(json_integer_value(json_object_get(end, "disk_written_bytes")) >= 3 * written);
    json_t *stalls = json_object_get(step, "stall_ms");
    static const char *const lanes[] = {"h2d", "d2h", "host", "read", "write", "comm"};
    for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++)
        assert_true(json_is_number(json_object_get(stalls, lanes[i])));
    json_decref(events);
    json_decref(plan);
}

static void plan_when_states_are_on_disk_then_prints_three_tiers(void **state)
{
    (void)state;
    assert_code(sluice("plan " TINY DISK "--data text --policy nvme"), 0);
    assert_has(output, "device           host           disk");
    assert_has(output, "policy nvme (disk: params 0%, grads 0%, optimizer 100%)");
    assert_has(output, "written a step");
}

static void resume_when_states_are_on_disk_then_goes_on_exactly(void **state)
{
    (void)state;
    const char *common = TINY DISK "--data text --policy nvme --nvme-params 1 --quiet ";
    assert_code(sluice("train %s --steps 6 --log-json whole", common), 0);
    assert_code(sluice("train %s --steps 6 --save saved --save-every 3 --log-json a", common), 0);
    assert_code(sluice("train " TINY "--data text --steps 6 --save saved2 --save-every 3 --quiet "
                       "--policy device"),
                0);
    assert_int_equal(system("rm -r saved/step-00000006 saved2/step-00000006"), 0);
    assert_code(sluice("train %s --steps 6 --save saved --resume --log-json b", common), 0);
    assert_same_steps("whole", "b", 4, 6);
    /* A checkpoint knows no policy: on from the device to the disk. */
    assert_code(sluice("train %s --steps 6 --save saved2 --resume --log-json c", common), 0);
    assert_same_steps("whole", "c", 4, 6);
}

/* ---- what does not fit ---- */

static void fit_when_memory_is_short_then_the_disk_is_used_if_there_is_one(void **state)
{
    (void)state;
    const char *options = TINY "--data text --steps 2 --device-memory 1M --host-memory 3500K";
    assert_code(sluice("train %s --quiet --width 96", options), 69);
    assert_code(sluice("train %s --quiet --width 96 --log-json log " DISK, options), 0);
    json_t *events = read_log("log");
    const json_t *config = json_object_get(find_event(events, "start"), "config");
    assert_true(json_number_value(json_object_get(config, "nvme_optimizer")) > 0);
    json_decref(events);
}

static void fit_when_refused_then_the_suggestion_with_the_disk_fits(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "--policy host --device-memory 1200K --host-memory 3500K",
        "--policy static --offload-params 0.5 --device-memory 1200K --host-memory 3500K",
        "--policy nvme --disk-space 100K",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_code(sluice("plan " TINY DISK "--width 96 --data text --json %s", cases[i]), 69);
        json_t *plan = json_loads(output, 0, NULL);
        const char *options = json_string_value(json_object_get(plan, "suggestion"));
        if (sluice("train " TINY DISK "--width 96 --data text --steps 1 --quiet %s %s", cases[i],
                   options) != 0)
            fail_msg("\"%s\" does not fit: %s", options, complaint);
        json_decref(plan);
    }
    assert_code(sluice("plan " TINY DISK "--data text --policy nvme --disk-space 100K"), 69);
    assert_one_complaint("the disk tier (budget 100.0 KiB) misses");
}

/* A file that could not be nameless from the start would have a name that begins with a dot. */
static void disk_when_a_run_ends_then_nothing_is_left_there(void **state)
{
    (void)state;
    DIR *directory = opendir("disk");
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            fail_msg("disk/%s was left behind", entry->d_name);
    closedir(directory);
}

static int set_up_disk(void **state)
{
    int failed = set_up(state);
    return failed ? failed : system("mkdir disk");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_when_on_disk_in_any_way_then_numbers_are_the_same),
        cmocka_unit_test(log_when_states_are_on_disk_then_counts_what_moved),
        cmocka_unit_test(plan_when_states_are_on_disk_then_prints_three_tiers),
        cmocka_unit_test(resume_when_states_are_on_disk_then_goes_on_exactly),
        cmocka_unit_test(fit_when_memory_is_short_then_the_disk_is_used_if_there_is_one),
        cmocka_unit_test(fit_when_refused_then_the_suggestion_with_the_disk_fits),
        cmocka_unit_test(disk_when_a_run_ends_then_nothing_is_left_there),
    };
    return cmocka_run_group_tests(tests, set_up_disk, tear_down);
}
