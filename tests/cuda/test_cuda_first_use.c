/* The self-test at the first use of a GPU, over the stand-in. What could be wrong: it runs each
 * time, or not again where the driver, the build or the GPU is another one; what there was no time
 * for is forgotten; a record that is damaged, or cannot be kept, ends a run; two processes test one
 * GPU at a time; a wrong answer does not end the run, or names the wrong thing. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "scratch_dir.h"
#include "selftest/first_use.h"
#include "standin.h"

enum { LINES_BYTES = 1 << 14 };

static scratch_path home;
static char lines[LINES_BYTES];

static void keep_line(void *user, sl_log_level level, const char *line)
{
    const size_t length = strlen(lines);
    (void)user;
    snprintf(lines + length, sizeof lines - length, "%c %s\n", level == SL_LOG_WARNING ? 'W' : 'N',
             line);
}

static uint32_t count_lines(const char *part)
{
    uint32_t count = 0;
    for (const char *at = lines; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

/* The order alone, quickly: all other parts count as passed where no record says otherwise. */
static sl_first_use choose(void)
{
    sl_first_use use = {.test = sl_selftest_defaults(SL_DEVICE_CUDA, 0)};
    use.test.is_small = true;
    use.test.rounds = 20;
    use.test.repeats = 1;
    use.test.host_bytes = 1 << 20;
    use.test.border_bytes = 64 << 10;
    return use;
}

static void keep_record(sl_proof_kind untested)
{
    sl_device_info info;
    sl_proof_record record;
    assert_int_equal(sl_device_query(SL_DEVICE_CUDA, 0, &info), SL_OK);
    sl_proof_record_init(&info, NULL, &record);
    assert_int_equal(strlen(record.uuid), 36);
    for (int i = 0; i < SL_PROOF_PARTS; i++)
        record.parts[i].outcome = i == (int)untested ? SL_PROOF_NOT_TESTED : SL_PROOF_PASSED;
    assert_int_equal(sl_proof_record_save(&record), SL_OK);
}

static sl_status prove(sl_proof_record *out_record)
{
    const sl_first_use use = choose();
    *lines = '\0';
    return sl_first_use_prove(&use, out_record);
}

static void device_when_a_part_is_untested_then_it_alone_is_tested_and_kept(void **state)
{
    (void)state;
    sl_proof_record record;
    keep_record(SL_PROOF_ORDER);
    assert_int_equal(prove(&record), SL_OK);
    assert_int_equal(count_lines("not tested yet with this driver and this build"), 1);
    assert_int_equal(count_lines("no wrong answer"), 1);
    assert_non_null(strstr(record.parts[SL_PROOF_ORDER].text, "20 rounds"));
    assert_string_equal(record.parts[SL_PROOF_KERNELS].text, "");
    assert_int_equal(prove(&record), SL_OK); /* by the record */
    assert_string_equal(lines, "");
    assert_non_null(strstr(record.parts[SL_PROOF_ORDER].text, "20 rounds"));
}

/* With no time nothing of the parts is tested, so a whole self-test costs the test none. */
static void record_when_of_another_driver_gpu_or_build_then_counts_for_nothing(void **state)
{
    (void)state;
    sl_proof_record record;
    sl_first_use use = choose();
    sl_cuda_options own = {.own_products = true};
    use.test.seconds = 0;
    for (int i = 0; i < 4; i++) {
        standin_machine machine = standin_default();
        standin_reset(&machine);
        keep_record(SL_PROOF_REACH);
        machine.driver_version = i == 1 ? 13010 : machine.driver_version;
        machine.device_count = 2;
        use.test.index = i == 2;
        use.test.cuda = i == 3 ? &own : NULL;
        standin_reset(&machine);
        *lines = '\0';
        assert_int_equal(sl_first_use_prove(&use, &record), SL_OK);
        assert_int_equal(count_lines("not tested: there was no time left; tried again next time"),
                         i == 0 ? 0 : SL_PROOF_REACH);
        assert_int_equal(sl_proof_record_is_whole(&record), i == 0);
    }
    const standin_machine machine = standin_default();
    standin_reset(&machine);
}

static scratch_path find_record(void)
{
    sl_device_info info;
    char name[128];
    assert_int_equal(sl_device_query(SL_DEVICE_CUDA, 0, &info), SL_OK);
    snprintf(name, sizeof name, "sluice/self-test-%s.json", info.uuid);
    return scratch_join(home.text, name);
}

static void record_when_damaged_or_of_another_build_then_is_replaced(void **state)
{
    (void)state;
    static const char *const edits[] = {"truncate -s 40", "sed -i 's/\"build\": \"/&0/'",
                                        "sed -i 's/passed/lost/'"};
    for (int i = 0; i < 3; i++) {
        char command[2048];
        sl_proof_record record;
        sl_first_use use = choose();
        use.test.seconds = 0;
        keep_record(SL_PROOF_REACH);
        snprintf(command, sizeof command, "%s '%s'", edits[i], find_record().text);
        assert_int_equal(system(command), 0);
        *lines = '\0';
        assert_int_equal(sl_first_use_prove(&use, &record), SL_OK);
        assert_false(sl_proof_record_is_whole(&record));
        assert_int_equal(count_lines("W self-test"), SL_PROOF_REACH);
    }
}

static void record_when_it_cannot_be_kept_then_says_so_and_goes_on(void **state)
{
    (void)state;
    sl_proof_record record;
    sl_first_use use = choose();
    use.test.seconds = 0;
    scratch_path file = scratch_join(home.text, "file");
    fclose(fopen(file.text, "w"));
    setenv("XDG_CONFIG_HOME", file.text, 1); /* a directory cannot be made in a file */
    *lines = '\0';
    assert_int_equal(sl_first_use_prove(&use, &record), SL_OK);
    assert_int_equal(count_lines("W the result of the self-test is not kept"), 1);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("HOME");
    *lines = '\0';
    assert_int_equal(sl_first_use_prove(&use, &record), SL_OK);
    assert_int_equal(count_lines("there is no place"), 1);
    setenv("XDG_CONFIG_HOME", home.text, 1);
}

static void answer_when_wrong_then_the_run_ends_and_all_is_named(void **state)
{
    (void)state;
    sl_proof_record record;
    sl_device_info info;
    char doubt[SL_PROOF_DOUBT_BYTES], host[128] = "";
    standin_machine machine = standin_default();
    machine.image = 75;
    keep_record(SL_PROOF_IMAGE);
    standin_reset(&machine);
    assert_int_equal(prove(&record), SL_ERROR_SYSTEM);
    const char *message = sl_status_message();
    gethostname(host, sizeof host - 1);
    assert_non_null(strstr(message, "cuda:0 (Stand-in 0)"));
    assert_non_null(strstr(message, record.uuid));
    assert_non_null(strstr(message, host));
    assert_non_null(strstr(message, "image: the driver loaded code for sm_75"));
    assert_non_null(strstr(message, "--device cpu"));
    assert_int_equal(sl_device_query(SL_DEVICE_CUDA, 0, &info), SL_OK);
    sl_proof_record_doubt(&info, NULL, doubt); /* what eval and generate warn of */
    assert_non_null(strstr(doubt, "failed: image: the driver loaded code for sm_75"));
    machine.image = 0; /* it is right again: a failure is tried anew */
    standin_reset(&machine);
    assert_int_equal(prove(&record), SL_OK);
    sl_proof_record_doubt(&info, NULL, doubt);
    assert_string_equal(doubt, "");
}

/* In a process of its own: tests, and tells by its exit code whether it was the one that did. */
static pid_t start_process(void)
{
    const pid_t id = fork();
    if (id != 0)
        return id;
    sl_proof_record record;
    sl_first_use use = choose();
    use.test.rounds = 400;
    *lines = '\0';
    const sl_status status = sl_first_use_prove(&use, &record);
    _exit(status != SL_OK ? 2 : count_lines("no wrong answer") > 0);
}

/* Each opens the device anew: the stand-in leaves no thread behind in the parent. */
static void device_when_processes_share_it_then_one_tests_it(void **state)
{
    (void)state;
    enum { PROCESSES = 3 };
    pid_t ids[PROCESSES];
    int tested = 0;
    keep_record(SL_PROOF_ORDER);
    for (int i = 0; i < PROCESSES; i++)
        ids[i] = start_process();
    for (int i = 0; i < PROCESSES; i++) {
        int how = 0;
        assert_int_equal(waitpid(ids[i], &how, 0), ids[i]);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) < 2);
        tested += WEXITSTATUS(how);
    }
    assert_int_equal(tested, 1);
}

static int open_home(void **state)
{
    (void)state;
    home = scratch_open();
    setenv("XDG_CONFIG_HOME", home.text, 1);
    sl_log_set_callback(keep_line, NULL);
    return 0;
}

static int close_home(void **state)
{
    (void)state;
    sl_log_set_callback(NULL, NULL);
    scratch_close(&home);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_when_processes_share_it_then_one_tests_it),
        cmocka_unit_test(device_when_a_part_is_untested_then_it_alone_is_tested_and_kept),
        cmocka_unit_test(record_when_of_another_driver_gpu_or_build_then_counts_for_nothing),
        cmocka_unit_test(record_when_damaged_or_of_another_build_then_is_replaced),
        cmocka_unit_test(record_when_it_cannot_be_kept_then_says_so_and_goes_on),
        cmocka_unit_test(answer_when_wrong_then_the_run_ends_and_all_is_named),
    };
    return cmocka_run_group_tests(tests, open_home, close_home);
}
