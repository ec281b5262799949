/* What could be wrong here: a bad input file crashes the command, makes it hang, leaves with the
 * wrong exit code, prints more than one line, or a line that does not say what is wrong. Every row
 * of hostile_files.h goes to every command that reads such a file; under sanitizers to one of them,
 * for all have the same reader. */
#define _GNU_SOURCE
#include <stdbool.h>

#include "command_run.h"

#include "files/hostile_files.h"
#include "sanitizer_share.h"

enum { EXIT_BAD_DATA = 65, EXIT_MISSING = 66 };

/* Whether row `row` goes to command `command` of those that read such a file. */
static bool goes_to(int row, int command, int command_count)
{
    return SANITIZER_SHARE == 1 || getenv("SL_TEST_FULL") || row % command_count == command;
}

/* Exit code, one line on standard error, nothing on standard output. */
static void assert_refused(const hostile_row *row, int code)
{
    bool is_missing = strcmp(row->fragment, "cannot be opened") == 0;
    const char *end = strchr(complaint, '\n');
    if (code != (is_missing ? EXIT_MISSING : EXIT_BAD_DATA))
        fail_msg("%s: exit code %d: %s", row->what, code, complaint);
    if (strncmp(complaint, "sluice: ", 8) != 0 || !end || end[1] != '\0')
        fail_msg("%s: not one line: \"%s\"", row->what, complaint);
    if (!strstr(complaint, row->fragment))
        fail_msg("%s: \"%s\" is not in \"%s\"", row->what, row->fragment, complaint);
    for (const char *at = complaint; at < end; at++)
        if ((unsigned char)*at < ' ')
            fail_msg("%s: a control character in \"%s\"", row->what, complaint);
    if (strcmp(output, "") != 0)
        fail_msg("%s: printed \"%s\"", row->what, output);
}

/* Bytes leave most ids of such a model idle, which is told first. */
static void drop_warning(void)
{
    char *end = strchr(complaint, '\n');
    if (strncmp(complaint, "sluice: warning: bytes use", 26) == 0 && end)
        memmove(complaint, end + 1, strlen(end));
}

static bool is_model(hostile_kind kind)
{
    return kind == HOSTILE_SAFETENSORS || kind == HOSTILE_INDEX || kind == HOSTILE_CONFIG;
}

static void models_when_hostile_then_one_line_and_65(void **state)
{
    (void)state;
    int count = 0;
    limit_s = 60;
    assert_int_equal(system("head -c 2000 /dev/zero >ids.bin"), 0);
    hostile_write_shard("outside.safetensors", "a"); /* found if a path were followed */
    for (int i = 0; i < HOSTILE_COUNT; i++) {
        const hostile_row *row = &hostile_rows[i];
        if (!is_model(row->kind))
            continue;
        assert_int_equal(mkdir("model", 0700), 0);
        hostile_write(row, "model");
        if (goes_to(i, 0, 2))
            assert_refused(row, sluice("train --init model --data ids.bin --seq 8 --micro-batch 1 "
                                       "--steps 1 --quiet"));
        if (goes_to(i, 1, 2)) {
            int code = sluice("generate model --tokenizer byte --prompt a --tokens 1");
            drop_warning();
            assert_refused(row, code);
        }
        assert_int_equal(system("rm -rf model"), 0);
        count++;
    }
    print_message("%d bad models, each for train and generate, or in turn\n", count);
    assert_true(count >= 80);
}

static void tokens_when_hostile_then_one_line_and_65(void **state)
{
    (void)state;
    int count = 0;
    limit_s = 250;
    assert_code(sluice("train " TINY "--data text --steps 1 --quiet --save plain"), 0);
    limit_s = 60;
    for (int i = 0; i < HOSTILE_COUNT; i++) {
        const hostile_row *row = &hostile_rows[i];
        if (row->kind != HOSTILE_TOKENS)
            continue;
        hostile_write(row, ".");
        if (goes_to(i, 0, 3))
            assert_refused(row, sluice("train " TINY "--data text %s --steps 1", row->file_name));
        if (goes_to(i, 1, 3))
            assert_refused(
                row, sluice("train " TINY "--data text --eval-data %s --steps 1", row->file_name));
        if (goes_to(i, 2, 3))
            assert_refused(row, sluice("eval plain --data %s", row->file_name));
        count++;
    }
    print_message("%d bad token files, each for train twice and eval, or in turn\n", count);
    assert_true(count >= 15);
}

/* --resume looks for a valid checkpoint: it tells of each that is not, and of there being none. */
static void assert_resume_refused(const hostile_row *row)
{
    int code = sluice("train " TINY "--data text --steps 9 --quiet --save bad --resume");
    const char *end = strchr(complaint, '\n');
    if (strstr(row->fragment, "newer than this program")) { /* whole: not to be passed over */
        assert_refused(row, code);
        assert_has(complaint, "use a version of sluice that reads it, or move step-00000007 away");
        return;
    }
    if (code != EXIT_MISSING)
        fail_msg("%s: --resume left with %d: %s", row->what, code, complaint);
    if (!end || strncmp(complaint, "sluice: warning: ", 17) != 0 || !strchr(end + 1, '\n') ||
        strchr(end + 1, '\n')[1] != '\0')
        fail_msg("%s: not a warning and a line: \"%s\"", row->what, complaint);
    assert_has(complaint, row->fragment);
    assert_has(end, "holds no valid checkpoint (1 invalid)");
}

static void manifests_when_hostile_then_one_line_and_65(void **state)
{
    (void)state;
    int count = 0;
    limit_s = 250;
    assert_code(sluice("train " TINY "--data text --steps 7 --quiet --save good"), 0);
    limit_s = 60;
    for (int i = 0; i < HOSTILE_COUNT; i++) {
        const hostile_row *row = &hostile_rows[i];
        if (row->kind != HOSTILE_MANIFEST)
            continue;
        assert_int_equal(system("rm -rf bad && cp -r good bad"), 0);
        hostile_write(row, "bad/step-00000007");
        if (goes_to(i, 0, 4))
            assert_refused(row, sluice("generate bad/step-00000007 --prompt a --tokens 1"));
        if (goes_to(i, 1, 4))
            assert_refused(row, sluice("eval bad/step-00000007 --data text"));
        if (goes_to(i, 2, 4))
            assert_refused(row, sluice("train --init bad/step-00000007 --data text --steps 1"));
        if (goes_to(i, 3, 4))
            assert_resume_refused(row);
        count++;
    }
    print_message("%d bad manifests, each for generate, eval and train twice, or in turn\n", count);
    assert_true(count >= 20);
}

/* What may stand where a file is expected; none may be waited for. */
static void places_when_not_files_then_one_line(void **state)
{
    (void)state;
    static const hostile_row rows[] = {
        {.what = "FIFO", .fragment = "is a FIFO", .file_name = "pipe"},
        {.what = "device", .fragment = "device", .file_name = "/dev/zero"},
        {.what = "no file", .fragment = "cannot be opened", .file_name = "nothing-here"},
    };
    limit_s = 60;
    assert_int_equal(mkfifo("pipe", 0600), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_refused(&rows[i], sluice("train " TINY "--data %s", rows[i].file_name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_when_hostile_then_one_line_and_65),
        cmocka_unit_test(tokens_when_hostile_then_one_line_and_65),
        cmocka_unit_test(manifests_when_hostile_then_one_line_and_65),
        cmocka_unit_test(places_when_not_files_then_one_line),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
