/* What could be wrong when a disk never answers while the command trains: it hangs, or ends with
 * another exit code than that of an I/O error, without a word of what was stuck, with a log that
 * does not end, a broken checkpoint, or something left in the disk's directory. The command is the
 * built one over stuck_disk.c. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdbool.h>

#define COMMAND_LEVELS 1
#define COMMAND_NAME "/sluice-stuck"
#include "command_run.h"

#define TRAIN                                                                                      \
    "train " TINY "--data text --policy nvme --nvme-params 1 --disk-dir disk --quiet --threads 1 "

static void assert_disk_is_empty(void)
{
    DIR *disk = opendir("disk");
    assert_non_null(disk);
    for (struct dirent *entry = readdir(disk); entry; entry = readdir(disk))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            fail_msg("disk/%s was left behind", entry->d_name);
    closedir(disk);
}

/* What was moved, on which lane, in which file, and for how long it has not come back. */
static void assert_names_the_request(void)
{
    bool is_read = strstr(complaint, "reading chunk ") && strstr(complaint, " on the read lane: ");
    bool is_write =
        strstr(complaint, "writing chunk ") && strstr(complaint, " on the write lane: ");
    assert_one_complaint("the system has not finished it for ");
    assert_has(complaint, "disk: ");
    assert_has(complaint, "of the disk tier's file");
    if (!is_read && !is_write)
        fail_msg("\"%s\" does not say what was on its way", complaint);
}

static void assert_log_ends_with_the_error(void)
{
    json_t *events = read_log("log");
    json_t *last = json_array_get(events, json_array_size(events) - 1);
    assert_string_equal(kind_of(last), "end");
    assert_string_equal(json_string_value(json_object_get(last, "reason")), "error");
    json_decref(events);
}

/* Among the first values, when no log has begun; in the first steps; and with checkpoints behind.
 */
static void train_when_the_disk_never_answers_then_74_and_says_for_what(void **state)
{
    (void)state;
    static const char *const requests[] = {"1", "40", "150", "400"};
    limit_s = 60; /* a hang is another exit code */
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        assert_int_equal(system("rm -rf saved log"), 0);
        setenv("STUCK_REQUEST", requests[i], 1);
        assert_code(sluice(TRAIN "--steps 60 --save saved --save-every 2 --log-json log"), 74);
        assert_names_the_request();
        if (i > 0)
            assert_log_ends_with_the_error();
        assert_disk_is_empty();
    }
    unsetenv("STUCK_REQUEST");
}

/* What had been saved before is whole. */
static void train_when_the_disk_answers_again_then_goes_on(void **state)
{
    (void)state;
    assert_code(sluice(TRAIN "--steps 6 --save saved --resume --log-json log"), 0);
    json_t *events = read_log("log");
    assert_true(find_step(events, 6).loss > 0);
    json_decref(events);
    assert_disk_is_empty();
}

static int set_up_disk(void **state)
{
    int failed = set_up(state);
    return failed ? failed : system("mkdir disk");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_when_the_disk_never_answers_then_74_and_says_for_what),
        cmocka_unit_test(train_when_the_disk_answers_again_then_goes_on),
    };
    return cmocka_run_group_tests(tests, set_up_disk, tear_down);
}
