/* What people read of the commands. What could be wrong: a line wider than the terminal, which it
 * breaks in the middle of a word; a message that a pipe gets in pieces, so that scripts do not find
 * it; colours where nobody asked for them; an end of a run that does not say where the model is, or
 * names commands that do not run; a long evaluation that shows nothing, or loses all at Ctrl-C; the
 * same message once a rank; a bench of hundreds of lines. Every case runs the built command; a
 * terminal is a pseudo-terminal of a width of choice. */
#define _GNU_SOURCE
#include <stdint.h>

#include "command_run.h"

#include <linux/magic.h>
#include <sys/file.h>
#include <sys/vfs.h>

#include "screen.h"
#include "skip.h"

#define ESCAPE '\033'

static screen shown;

/* Runs a command with standard output and error on a terminal; returns its exit code. */
static int show(unsigned short columns, const char *arguments)
{
    char both[COMMAND_BYTES + 32];
    snprintf(both, sizeof both, "%s 2>&1 </dev/null #", arguments);
    start_on_terminal(&shown, columns, "xterm", both);
    return end_screen(&shown);
}

/* What stands on the screen in the end: what was erased or drawn over, colours and carriage returns
 * left out. */
static void settle(char *text)
{
    char *to = text, *line = text;
    for (const char *from = text; *from; from++) {
        if (*from == ESCAPE) {
            from += strcspn(from, "mK");
            if (*from == 'K')
                to = line;
            continue;
        }
        if (*from == '\r')
            continue;
        *to++ = *from;
        if (*from == '\n')
            line = to;
    }
    *to = '\0';
}

/* The widest line of the settled text that is no word alone. */
static size_t find_widest(const char *text)
{
    size_t widest = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t columns = 0, length = strcspn(line, "\n");
        const char *word = line + strspn(line, " ");
        for (size_t i = 0; i < length; i++)
            columns += ((unsigned char)line[i] & 0xc0) != 0x80;
        if (strcspn(word, " \n") < length - (size_t)(word - line) && columns > widest)
            widest = columns;
    }
    return widest;
}

static void assert_narrow(size_t columns)
{
    settle(shown.text);
    const size_t widest = find_widest(shown.text);
    if (widest >= columns)
        fail_msg("a line of %zu columns of %zu:\n%s", widest, columns, shown.text);
}

/* A text with each run of spaces and line ends as one space. */
static void join_lines(const char *text, char *out)
{
    for (; *text; text++)
        if (*text != ' ' && *text != '\n')
            *out++ = *text;
        else if (text[1] && text[1] != ' ' && text[1] != '\n')
            *out++ = ' ';
    *out = '\0';
}

/* ---- messages ---- */

static const char mistaken[] =
    "train " TINY "--data text --steps 1 --policy static --offload-optimizer 0.5 --eval-every 3";

static void message_when_on_a_terminal_is_broken_between_words_and_whole_in_a_pipe(void **state)
{
    (void)state;
    static char screen_words[SCREEN_BYTES], pipe_words[TEXT_BYTES];
    static const unsigned short widths[] = {24, 40, 80, 200};
    assert_code(sluice("%s", mistaken), 64);
    assert_one_complaint("--eval-every needs");
    join_lines(complaint, pipe_words);
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        assert_int_equal(show(widths[i], mistaken), 64);
        assert_narrow(widths[i]);
        join_lines(shown.text, screen_words);
        assert_string_equal(screen_words, pipe_words);
    }
}

static void warning_when_a_live_line_stands_takes_its_place(void **state)
{
    (void)state;
    assert_int_equal(system("mkfifo pipe && (head -n 2 pipe >lines) &"), 0);
    assert_int_equal(show(80, "train " TINY "--data text --steps 60 --log-csv pipe"), 74);
    assert_narrow(80);
    assert_has(shown.text, "\nsluice: warning: pipe: ");
    assert_int_equal(system("rm pipe"), 0);
}

/* Keeps all runs of this user from taking memory; a descriptor to be closed. */
static int hold_memory(void)
{
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/sluice-memory-%u", (unsigned)geteuid());
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    assert_true(file >= 0 && flock(file, LOCK_EX) == 0);
    return file;
}

/* The line comes while memory cannot be taken yet, and is gone when the run goes on. */
static void opening_when_it_takes_long_shows_a_line_that_goes_away(void **state)
{
    (void)state;
    static const char *const commands[] = {"train " TINY "--data text --steps 2 --save opened",
                                           "eval opened --data text --eval-iters 1",
                                           "generate opened --prompt the --tokens 2"};
    static const char line[] = "opening (plan, memory, first values)  ";
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char both[COMMAND_BYTES + 32];
        snprintf(both, sizeof both, "%s 2>&1 </dev/null #", commands[i]);
        const int held = hold_memory();
        start_on_terminal(&shown, 80, "xterm", both);
        while (!strstr(shown.text, line))
            assert_true(read_screen(&shown));
        close(held);
        assert_int_equal(end_screen(&shown), 0);
        settle(shown.text);
        assert_null(strstr(shown.text, "opening ("));
    }
}

/* ---- colours ---- */

static void set_or_not(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void colours_when_on_a_terminal_or_not_are_as_the_user_wants(void **state)
{
    (void)state;
    static const struct {
        const char *never, *always, *wanted, *terminal;
        bool on_terminal, in_pipe;
    } cases[] = {{NULL, NULL, NULL, "xterm", true, false}, {"1", NULL, NULL, "xterm", false, false},
                 {"", NULL, NULL, "xterm", true, false},   {"1", "1", NULL, "xterm", false, false},
                 {NULL, "1", NULL, "xterm", true, true},   {NULL, "0", NULL, "xterm", true, false},
                 {NULL, NULL, "0", "xterm", false, false}, {NULL, "1", "0", "xterm", true, true},
                 {NULL, NULL, NULL, "dumb", false, false}, {NULL, "1", NULL, "dumb", true, true}};
    static const char *const commands[] = {"trin", "plan " TINY};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        char both[COMMAND_BYTES + 32];
        const size_t row = i / 2;
        set_or_not("NO_COLOR", cases[row].never);
        set_or_not("CLICOLOR_FORCE", cases[row].always);
        set_or_not("CLICOLOR", cases[row].wanted);
        snprintf(both, sizeof both, "%s 2>&1 </dev/null #", commands[i % 2]);
        start_on_terminal(&shown, 80, cases[row].terminal, both);
        (void)end_screen(&shown);
        (void)sluice("%s", commands[i % 2]);
        const bool in_pipe = strchr(output, ESCAPE) || strchr(complaint, ESCAPE);
        if ((strchr(shown.text, ESCAPE) != NULL) != cases[row].on_terminal ||
            in_pipe != cases[row].in_pipe)
            fail_msg("case %zu, %s: %s%s%s", row, commands[i % 2], shown.text, output, complaint);
    }
    unsetenv("NO_COLOR");
    unsetenv("CLICOLOR_FORCE");
    unsetenv("CLICOLOR");
}

/* ---- every command ---- */

static void commands_when_on_80_columns_print_no_wider_line(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "plan --model gpt2 --device-memory 4G --host-memory 8G --explain",
        "plan --model gpt2 --device-memory 100M --host-memory 8G",
        "plan --model gpt2 --ranks 4 --tp 2 --pp 2 --zero 3 --device-memory 8G --host-memory 8G",
        "plan --layers 4 --width 256 --heads 4 --context 128 --vocab 1000 --ranks 16 "
        "--global-batch 48 --cluster '" SL_TEST_SOURCE_DIRECTORY
        "/../examples/clusters/dgx-a100-80gb.json'",
        "plan " TINY "--compare device,host,policy=host+recompute=full --device-memory 4M",
        "train " TINY "--data text --steps 3 --save kept --overwrite",
        "train " TINY "--data text --steps 4 --save kept --resume",
        "profile " TINY "--profile-steps 1",
        "eval kept --data text",
        "generate kept --prompt the --tokens 4",
        "tokenize --data text --tokenizer byte --output text.bin",
        "convert --from kept --to kept.gguf --format gguf",
        "doctor --disk-dir .",
        "bench --quick --only memory,comm --verbose --threads 2",
        "launch -n 2 -- train " TINY "--data text --steps 2 --dp 2",
        "launch -n 2 -- train " TINY "--data text --steps 2 --dp 2 --eval-every 2",
        "train --config deepspeed.json " TINY "--data text --steps 1",
    };
    FILE *file = fopen("deepspeed.json", "w");
    assert_non_null(file);
    fputs("{\"train_micro_batch_size_per_gpu\": 2, \"zero_optimization\": {\"stage\": 1}, "
          "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}}}",
          file);
    fclose(file);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const int code = show(80, commands[i]);
        print_message("%s: %d\n", commands[i], code);
        assert_narrow(80);
    }
}

/* ---- the end of a run ---- */

/* The command that the screen says behind a word, for a shell, with `more` behind it. */
static void take_command(const char *word, const char *more, char *out_command)
{
    char line[32];
    snprintf(line, sizeof line, "\n%s  sluice ", word);
    const char *found = strstr(shown.text, line);
    if (!found)
        fail_msg("no \"%s\" in %s", word, shown.text);
    found += strlen(line);
    snprintf(out_command, COMMAND_BYTES, "%.*s%s", (int)strcspn(found, "\n"), found, more);
}

static void run_when_saved_ends_with_commands_that_run(void **state)
{
    (void)state;
    char command[COMMAND_BYTES];
    assert_int_equal(show(100, "train " TINY "--data text --steps 3 --save \"it's a model\""), 0);
    settle(shown.text);
    assert_has(shown.text, "saved step 3 in 'it'\\''s a model'");
    assert_has(shown.text, "  device planned peak 1.");
    assert_has(shown.text, " MiB: equal to the byte\n");
    assert_has(shown.text, "were a guess");
    take_command("go on ", "", command);
    assert_code(sluice("%s", command), 0);
    assert_has(output, "saved step 6");
    take_command("sample", " --tokens 2", command);
    assert_code(sluice("%s", command), 0);
    assert_has(output, "TEXT");
    assert_code(sluice("train --resume --save \"it's a model\" --steps 4"), 0);
    assert_has(output, "go on   sluice train --resume --save 'it'\\''s a model' --steps 12\n");
    assert_null(strstr(output, "planned peak")); /* no step has measured one */
}

/* Paths that no checkpoint gives: without them the plan of the run is another one, or refused. */
static void run_when_it_has_a_disk_tier_then_goes_on_with_it(void **state)
{
    (void)state;
    char command[COMMAND_BYTES];
    const int made = system("mkdir -p \"a tier\" tier");
    assert_int_equal(made, 0);
    assert_int_equal(show(100, "train " TINY "--data text --steps 2 --save on-disk --policy nvme "
                               "--nvme-params 1 --disk-dir \"a tier\" tier --cache-dir ids"),
                     0);
    settle(shown.text);
    take_command("go on ", "", command);
    assert_non_null(strstr(command, " --disk-dir 'a tier' tier --cache-dir ids --steps 4"));
    assert_code(sluice("%s", command), 0);
    assert_has(output, "saved step 4");
    assert_null(strstr(complaint, "not taken over"));
}

static void run_when_not_saved_names_no_such_command(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY "--data text --steps 2"), 0);
    assert_null(strstr(output, "go on "));
    assert_null(strstr(output, "sluice generate"));
}

/* ---- evaluations ---- */

static json_t *read_answer(const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    if (!object)
        fail_msg("not JSON: %s", text);
    return object;
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static void write_long_text(void)
{
    assert_int_equal(system("for i in 1 2 3 4 5 6 7 8; do cat text text text text; done >long; "
                            "for i in 1 2 3 4 5 6 7 8; do cat long; done >longer"),
                     0);
}

/* Interrupted once it has shown how far it is; its figures are those of the rows that it names. */
static void eval_when_interrupted_keeps_what_it_has(void **state)
{
    (void)state;
    write_long_text();
    start_on_terminal(&shown, 80, "xterm",
                      "eval kept --data longer --json 2>&1 >figures </dev/null #");
    while (!strstr(shown.text, "evaluating  "))
        assert_true(read_screen(&shown));
    kill(shown.child, SIGINT);
    assert_int_equal(end_screen(&shown), 0);
    static const char *const parts[] = {" %  loss ", "left ", " tokens/s", "stopping after"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        assert_has(shown.text, parts[i]);
    read_text("figures", output);
    json_t *part = read_answer(output);
    assert_true(json_is_true(json_object_get(part, "partial")));
    const double tokens = number_of(part, "tokens");
    assert_true(tokens > 0 && tokens < number_of(part, "data_tokens") - 32);
    assert_code(sluice("eval kept --data longer --json --eval-iters %.0f", tokens / (4 * 32)), 0);
    json_t *same = read_answer(output);
    assert_true(json_is_false(json_object_get(same, "partial")));
    assert_true(number_of(same, "tokens") == tokens);
    assert_true(number_of(same, "loss") == number_of(part, "loss"));
    json_decref(part);
    json_decref(same);
}

static void eval_when_interrupted_marks_what_it_prints(void **state)
{
    (void)state;
    static const char *const ways[] = {"", "--overlap 8"};
    write_long_text();
    for (int i = 0; i < 2; i++) {
        char arguments[COMMAND_BYTES];
        snprintf(arguments, sizeof arguments, "eval kept --data longer %s 2>&1 </dev/null #",
                 ways[i]);
        start_on_terminal(&shown, 80, "xterm", arguments);
        while (!strstr(shown.text, "evaluating  "))
            assert_true(read_screen(&shown));
        kill(shown.child, SIGTERM);
        assert_int_equal(end_screen(&shown), 0);
        assert_narrow(80);
        assert_has(shown.text, "\npartial (stopped by a signal): loss ");
    }
}

static void train_when_it_evaluates_for_long_shows_how_far_it_is(void **state)
{
    (void)state;
    write_long_text();
    start_on_terminal(&shown, 80, "xterm",
                      "train " TINY "--data text --eval-data longer --eval-every 1 --steps 1 2>&1 "
                      "</dev/null #");
    while (!strstr(shown.text, " %  loss "))
        assert_true(read_screen(&shown));
    assert_has(shown.text, "eval at step 1: ");
    assert_has(shown.text, "  left ");
    kill(shown.child, SIGINT);
    assert_int_equal(end_screen(&shown), 0);
    settle(shown.text);
    assert_has(shown.text, "\nstep 1/1 "); /* the line of the step stays */
}

/* --eval-iters counts micro-batches, of rows, windows and documents. */
static void eval_when_limited_covers_so_many_micro_batches(void **state)
{
    (void)state;
    static const struct {
        const char *options, *key;
        int expected;
    } rows[] = {
        {"--data text --micro-batch 3 --eval-iters 5", "tokens", 5 * 3 * 32},
        {"--data text --micro-batch 2 --eval-iters 4 --overlap 8", "tokens", 31 + 7 * (32 - 8)},
        {"--data words.jsonl --last-word --micro-batch 2 --eval-iters 2", "documents", 4},
        {"--data words.jsonl --last-word --micro-batch 2", "documents", 7}};
    FILE *file = fopen("words.jsonl", "w");
    assert_non_null(file);
    for (int i = 0; i < 7; i++)
        fprintf(file, "{\"text\": \"the lock of gate %d\"}\n", i);
    fclose(file);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_code(sluice("eval kept --json %s", rows[i].options), 0);
        json_t *answer = read_answer(output);
        assert_int_equal((int)number_of(answer, rows[i].key), rows[i].expected);
        assert_true(json_is_false(json_object_get(answer, "partial")));
        json_decref(answer);
    }
}

/* ---- bench ---- */

static uint32_t count_lines(const char *text)
{
    uint32_t count = 0;
    for (; *text; text++)
        count += *text == '\n';
    return count;
}

static void bench_when_not_verbose_prints_a_summary(void **state)
{
    (void)state;
    assert_code(sluice("bench --quick --only memory,comm,copy --threads 2 --output rates"), 0);
    const uint32_t lines = count_lines(output);
    assert_true(lines >= 5 && lines <= 12);
    assert_has(output, "\nmemory ");
    assert_has(output, " rows: --verbose, or --report FILE");
    assert_code(sluice("bench --quick --only memory,comm,copy --threads 2 --verbose"), 0);
    assert_true(count_lines(output) > lines);
    assert_has(output, "triad");
}

/* ---- ranks ---- */

static uint32_t count_of(const char *text, const char *part)
{
    uint32_t count = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

static void message_when_of_several_ranks_is_printed_once(void **state)
{
    (void)state;
    assert_code(sluice("launch -n 3 -- train " TINY "--data nothing --steps 1 --dp 3"), 66);
    assert_int_equal((int)count_of(complaint, "nothing"), 1);
    assert_has(complaint, ": nothing: cannot be opened");
    assert_code(
        sluice("launch -n 2 -- train --config deepspeed.json " TINY "--data text --steps 1 --dp 2"),
        0);
    assert_int_equal((int)count_of(output, "means here"), 1);
}

/* Every rank finds that the directory of the disk tier is memory. */
static void warning_when_of_several_ranks_is_printed_once(void **state)
{
    (void)state;
    struct statfs info;
    if (statfs("/dev/shm", &info) != 0 || info.f_type != TMPFS_MAGIC)
        skip_because("/dev/shm is no tmpfs");
    assert_code(sluice("launch -n 3 -- train " TINY "--data text --steps 1 --dp 3 --policy nvme "
                       "--disk-dir /dev/shm"),
                0);
    assert_int_equal((int)count_of(complaint, "is memory (tmpfs)"), 1);
    assert_has(complaint, "sluice: warning: ranks 0-2: --disk-dir /dev/shm ");
}

/* ---- what a message names ---- */

static void mistake_when_made_is_named_and_leaves_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *part;
        int code;
    } rows[] = {
        {"train " TINY "--data text --steps 1 --save short", "--save: short: is not a dir", 65},
        {"train " TINY "--data text --steps 1 --vocab 100", "--vocab 257 at least", 64},
        {"train " TINY "--data text --steps 1 --end-of-text 400", "--end-of-text 400 is not", 64},
        {"tokenize --to v --data text --output z", "--to is no option of sluice tokenize", 64},
        {"tokenize --to=v --data text --output z", "--to is no option of sluice tokenize", 64},
        {"convert --from kept --to z --format huggingface", "sluice convert --format hf", 64},
        {"tokenize --learn 300 --tokenizer new/words --data keyless.jsonl", "keyless.jsonl", 65},
    };
    FILE *file = fopen("keyless.jsonl", "w");
    assert_non_null(file);
    fputs("{\"other\": 1}\n", file);
    fclose(file);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_code(sluice("%s", rows[i].arguments), rows[i].code);
        assert_one_complaint(rows[i].part);
    }
    assert_int_not_equal(access("new", F_OK), 0);
    assert_int_not_equal(access("z", F_OK), 0);
    /* the beginning of a name that is nobody's stays one */
    assert_code(sluice("tokenize --tokeniz byte --data text --output short.bin --quiet"), 0);
}

static void report_when_a_file_may_not_grow_says_why(void **state)
{
    (void)state;
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command,
             "ulimit -f 40; '%s' plan --model gpt2 --report page.html >out 2>err", binary);
    const int status = system(command);
    read_complaint("err");
    assert_true(WIFEXITED(status));
    assert_code(WEXITSTATUS(status), 74);
    assert_has(complaint, "page.html: File too large");
}

static void doctor_when_a_toolkit_is_there_does_not_say_that_it_is_not(void **state)
{
    (void)state;
    assert_code(sluice("doctor"), 0);
    assert_null(strstr(output, "nvcc was not found"));
}

static int set_up_model(void **state)
{
    if (set_up(state) != 0)
        return 1;
    assert_code(sluice("train " TINY "--data text --steps 3 --quiet --save kept --overwrite"), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(message_when_on_a_terminal_is_broken_between_words_and_whole_in_a_pipe),
        cmocka_unit_test(warning_when_a_live_line_stands_takes_its_place),
        cmocka_unit_test(opening_when_it_takes_long_shows_a_line_that_goes_away),
        cmocka_unit_test(colours_when_on_a_terminal_or_not_are_as_the_user_wants),
        cmocka_unit_test(run_when_saved_ends_with_commands_that_run),
        cmocka_unit_test(run_when_it_has_a_disk_tier_then_goes_on_with_it),
        cmocka_unit_test(run_when_not_saved_names_no_such_command),
        cmocka_unit_test(eval_when_interrupted_keeps_what_it_has),
        cmocka_unit_test(eval_when_interrupted_marks_what_it_prints),
        cmocka_unit_test(eval_when_limited_covers_so_many_micro_batches),
        cmocka_unit_test(train_when_it_evaluates_for_long_shows_how_far_it_is),
        cmocka_unit_test(bench_when_not_verbose_prints_a_summary),
        cmocka_unit_test(commands_when_on_80_columns_print_no_wider_line),
        cmocka_unit_test(message_when_of_several_ranks_is_printed_once),
        cmocka_unit_test(warning_when_of_several_ranks_is_printed_once),
        cmocka_unit_test(mistake_when_made_is_named_and_leaves_nothing),
        cmocka_unit_test(report_when_a_file_may_not_grow_says_why),
        cmocka_unit_test(doctor_when_a_toolkit_is_there_does_not_say_that_it_is_not),
    };
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1); /* no profile that this machine may have */
    return cmocka_run_group_tests(tests, set_up_model, tear_down);
}
