/* sluice generate as a user talks to a model. What could be wrong here: a sample depends on how
 * many there are or on where the model lies; a stop text is printed; a prompt loses or gains bytes
 * on its way from a file or a pipe; text that slides goes on from another text than it says; what
 * is not needed of a checkpoint is read; a signal loses what was said. Models are small and learn
 * for a moment, so that what they say is not noise.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include "command_run.h"

enum { CONTEXT = 32, SAMPLES_MAX = 8 };

static int set_up_model(void **state)
{
    if (set_up(state) != 0)
        return 1;
    assert_code(sluice("train " TINY "--data text --steps 60 --lr 3e-3 --quiet --save model"), 0);
    return 0;
}

static void write_bytes(const char *name, const void *bytes, size_t count)
{
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

/* What was printed, without the end of its last line. */
static size_t read_answer(char *text)
{
    FILE *file = fopen("out", "rb");
    assert_non_null(file);
    size_t count = fread(text, 1, TEXT_BYTES - 1, file);
    fclose(file);
    assert_true(count > 0 && text[count - 1] == '\n');
    text[--count] = '\0';
    return count;
}

/* ---- samples ---- */

/* Splits what was printed into its samples; borrowed from `text`. */
static void split_samples(char *text, int count, char *samples[SAMPLES_MAX])
{
    char *at = text;
    for (int i = 0; i < count; i++) {
        char heading[32];
        snprintf(heading, sizeof heading, "=== sample %d ===\n", i + 1);
        at = strstr(at, heading);
        if (!at)
            fail_msg("no sample %d of %d", i + 1, count);
        *at = '\0';
        at += strlen(heading);
        samples[i] = at;
    }
}

static void draw_samples(int count, const char *options, char *text, char *samples[SAMPLES_MAX])
{
    assert_code(sluice("generate model --prompt 'the ' --seed 5 --samples %d %s", count, options),
                0);
    read_answer(text);
    split_samples(text, count, samples);
}

static void samples_when_there_are_more_then_the_first_stay(void **state)
{
    (void)state;
    static const char *const lengths[] = {"--tokens 20", "--tokens 70"}; /* the latter slides */
    static char text[2][TEXT_BYTES], one[TEXT_BYTES];
    char *few[SAMPLES_MAX], *many[SAMPLES_MAX];
    for (int i = 0; i < 2; i++) {
        assert_code(sluice("generate model --prompt 'the ' --seed 5 %s", lengths[i]), 0);
        assert_has(speed, i ? ", generated 70 tokens (" : ", generated 20 tokens (");
        read_answer(one);
        draw_samples(2, lengths[i], text[0], few);
        draw_samples(5, lengths[i], text[1], many);
        assert_int_equal(strncmp(few[0], one, strlen(one)), 0);
        assert_string_equal(few[0], many[0]);
        assert_int_equal(strncmp(few[1], many[1], strlen(few[1])), 0);
        assert_string_not_equal(many[0], many[1]);
        assert_string_not_equal(many[1], many[2]);
    }
}

static void samples_when_placed_differently_then_say_the_same(void **state)
{
    (void)state;
    static const char *const places[] = {
        "--policy host --threads 1", "--policy host --device-memory 1M",
        "--policy nvme --nvme-params 1 --disk-dir .", "--chunk-size 8192 --prefetch 0"};
    static char text[2][TEXT_BYTES];
    char *expected[SAMPLES_MAX], *found[SAMPLES_MAX];
    draw_samples(3, "--tokens 50", text[0], expected);
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
        char options[256];
        snprintf(options, sizeof options, "--tokens 50 %s", places[p]);
        draw_samples(3, options, text[1], found);
        for (int i = 0; i < 3; i++)
            assert_string_equal(found[i], expected[i]);
    }
}

static void samples_when_they_do_not_fit_then_69_says_what_would(void **state)
{
    (void)state;
    assert_code(sluice("generate model --prompt a --samples 64 --policy device "
                       "--device-memory 700K --tokens 20"),
                69);
    assert_one_complaint("this fits: ");
    assert_string_equal(output, "");
}

/* ---- stopping ---- */

static void stop_when_its_text_comes_then_it_is_not_printed(void **state)
{
    (void)state;
    static char whole[TEXT_BYTES], part[TEXT_BYTES];
    const char *base = "generate model --prompt 'the ' --tokens 28 --temperature 0 --quiet";
    assert_code(sluice("%s", base), 0);
    size_t count = read_answer(whole);
    assert_int_equal(count, 28);
    assert_null(strpbrk(whole, "'\\\n"));
    for (size_t length = 1; length <= 5; length++) {
        char stop[8] = "";
        memcpy(stop, whole + 11, length); /* a token is a byte: longer ones cross tokens */
        assert_code(sluice("%s --stop 'no such text' '%s'", base, stop), 0);
        size_t expected = (size_t)(strstr(whole, stop) - whole);
        assert_int_equal(read_answer(part), expected);
        assert_memory_equal(part, whole, expected);
    }
    assert_code(sluice("%s --stop 'no such text' --stop '%.3s'", base, whole + 2), 0);
    assert_true(read_answer(part) <= 2);
    /* The start of a stop text that does not come is printed. */
    assert_code(sluice("%s --stop '%s#'", base, whole + 20), 0);
    assert_int_equal(read_answer(part), count);
    assert_string_equal(part, whole);
}

/* A Hugging Face model may name several ids that end a text, and keeps them when converted. */
static void end_when_the_model_names_several_then_each_ends_a_text(void **state)
{
    (void)state;
    static char whole[TEXT_BYTES], part[TEXT_BYTES];
    char ends[64];
    const char *options = "--prompt 'the ' --tokens 28 --temperature 0 --quiet";
    assert_code(sluice("generate model %s", options), 0);
    read_answer(whole);
    assert_code(sluice("convert --from model --to hf --quiet"), 0);
    assert_code(sluice("generate hf --tokenizer byte %s", options), 0);
    read_answer(part);
    assert_string_equal(part, whole);
    const size_t end = (size_t)(strchr(whole, whole[11]) - whole);
    const int count =
        snprintf(ends, sizeof ends, "{\"eos_token_id\": [256, %d]}", (unsigned char)whole[11]);
    write_bytes("hf/generation_config.json", ends, (size_t)count);
    assert_code(sluice("convert --from hf --to hf-again --quiet"), 0);
    for (int again = 0; again < 2; again++) {
        assert_code(sluice("generate %s --tokenizer byte %s", again ? "hf-again" : "hf", options),
                    0);
        assert_int_equal(read_answer(part), end);
        assert_memory_equal(part, whole, end);
    }
    static const char *const wrong[] = {"{\"eos_token_id\": 257}", "{\"eos_token_id\": [1, -1]}",
                                        "{\"eos_token_id\": \"x\"}", "{\"eos_token_id\": [[]]}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_bytes("hf/generation_config.json", wrong[i], strlen(wrong[i]));
        assert_code(sluice("generate hf --tokenizer byte %s", options), 65);
        assert_one_complaint("eos_token_id");
    }
}

static void penalty_when_given_then_text_changes_and_1_is_none(void **state)
{
    (void)state;
    static char plain[TEXT_BYTES];
    const char *base = "generate model --prompt 'the ' --tokens 28 --temperature 0";
    assert_code(sluice("%s", base), 0);
    read_answer(plain);
    assert_code(sluice("%s --repetition-penalty 1", base), 0);
    assert_int_equal(strncmp(output, plain, strlen(plain)), 0);
    assert_code(sluice("%s --repetition-penalty 3", base), 0);
    assert_int_not_equal(strncmp(output, plain, strlen(plain)), 0);
}

/* ---- prompts ---- */

static void prompt_when_from_a_file_or_a_pipe_then_the_same(void **state)
{
    (void)state;
    static char expected[TEXT_BYTES];
    const char *options = "generate model --tokens 12 --temperature 0";
    char arguments[256];
    assert_code(sluice("%s --prompt 'the lock '", options), 0);
    snprintf(expected, sizeof expected, "%s", output);
    static const char *const texts[] = {"the lock ", "the lock \n", "the lock \r\n"};
    for (int i = 0; i < 3; i++) {
        write_bytes("prompt", texts[i], strlen(texts[i]));
        assert_code(sluice("%s --prompt-file prompt", options), 0);
        assert_string_equal(output, expected);
        assert_code(run_with_input(options, "prompt"), 0);
        assert_string_equal(output, expected);
        snprintf(arguments, sizeof arguments, "%s --prompt -", options);
        assert_code(run_with_input(arguments, "prompt"), 0);
        assert_string_equal(output, expected);
    }
    char piped[3 * PATH_BYTES];
    snprintf(piped, sizeof piped,
             "'%s' %s --quiet --prompt-file prompt >of-file && cat prompt | '%s' %s --quiet "
             "--prompt-file /dev/stdin >of-pipe && cmp of-file of-pipe",
             binary, options, binary, options);
    assert_int_equal(system(piped), 0);
    write_bytes("prompt", "other", 5); /* what is given wins over what stands there */
    snprintf(arguments, sizeof arguments, "%s --prompt 'the lock '", options);
    assert_code(run_with_input(arguments, "prompt"), 0);
    assert_string_equal(output, expected);
}

static void prompt_when_no_text_then_its_bytes_are_read(void **state)
{
    (void)state;
    static char text[TEXT_BYTES], all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    write_bytes("all", all + 1, 31);
    write_bytes("nul", "a\0b", 3);
    write_bytes("empty", "", 0);
    assert_code(sluice("generate model --prompt-file all --tokens 1"), 0);
    assert_true(read_answer(text) >= 31);
    assert_memory_equal(text, all + 1, 31);
    assert_code(sluice("generate model --prompt-file nul --tokens 1"), 0);
    assert_has(speed, "prompt 3 tokens");
    read_answer(text);
    assert_memory_equal(text, "a\0b", 3);
    assert_code(sluice("generate model --prompt-file empty --tokens 1"), 0);
    assert_has(speed, "prompt 1 token ");
    write_bytes("all", all, 256);
    assert_code(sluice("generate model --prompt-file all --tokens 4"), 0);
    assert_one_complaint("the prompt has 256 tokens, but the model's context is 32: its last 28");
}

static void prompt_when_its_file_is_hostile_then_refused(void **state)
{
    (void)state;
    assert_int_equal(system("mkdir -p folder && ln -sf loop loop && mkfifo pipe && "
                            "truncate -s 65M large && ln -sf nowhere dangling"),
                     0);
    static const struct {
        const char *path;
        int code;
    } rows[] = {{"none", 66},  {"dangling", 66},  {"folder", 65}, {"pipe", 65},
                {"large", 65}, {"/dev/zero", 65}, {"loop", 65}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int code = sluice("generate model --tokens 1 --prompt-file %s", rows[i].path);
        assert_code(code, rows[i].code);
        assert_one_complaint(rows[i].path);
        assert_string_equal(output, "");
    }
    char closed[2 * PATH_BYTES];
    snprintf(closed, sizeof closed, "'%s' generate model --tokens 1 >out 2>err <&-", binary);
    assert_int_equal(system(closed), 0); /* no input is no text */
    assert_code(run_with_input("generate model --tokens 1", "large"), 65);
    assert_one_complaint("standard input");
}

static void options_when_they_contradict_then_refused(void **state)
{
    (void)state;
    static const struct {
        const char *options, *part;
    } rows[] = {{"--prompt a --prompt-file text", "give one"},
                {"--interactive --prompt -", "standard input"},
                {"--interactive --samples 2", "--samples"},
                {"--prompt a --stop ''", "--stop"},
                {"--prompt a --samples 0", "--samples"},
                {"--prompt a --repetition-penalty 0", "--repetition-penalty"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_code(sluice("generate model %s", rows[i].options), 64);
        assert_one_complaint(rows[i].part);
    }
}

/* ---- sliding ---- */

/* The text by the rule that help tells, from runs that do not slide: where the context is full, its
 * last half (as much is wanted each time) and what was drawn last are the prompt of the next. */
static void text_when_it_passes_the_context_then_goes_on_from_its_end(void **state)
{
    (void)state;
    enum { WANTED = 75 };
    static char slid[TEXT_BYTES], whole[TEXT_BYTES] = "the ", part[TEXT_BYTES];
    const char *options = "--temperature 0 --quiet";
    assert_code(sluice("generate model --prompt 'the ' --tokens %d %s", WANTED, options), 0);
    assert_int_equal(read_answer(slid), WANTED);
    size_t count = 4, kept = 4;
    while (count < 4 + WANTED) {
        size_t left = 4 + WANTED - count, more = CONTEXT + 1 - kept;
        more = more < left ? more : left;
        write_bytes("kept", whole + count - kept, kept);
        assert_code(sluice("generate model --prompt-file kept --tokens %zu %s", more, options), 0);
        size_t got = read_answer(part);
        assert_int_equal(got, more);
        memcpy(whole + count, part, got);
        count += got;
        left = 4 + WANTED - count;
        size_t room = left < CONTEXT / 2 ? left : CONTEXT / 2;
        kept = CONTEXT - room + 1;
    }
    assert_memory_equal(slid, whole + 4, WANTED);
}

/* ---- a conversation ---- */

static void interactive_when_lines_come_then_each_is_answered(void **state)
{
    (void)state;
    static char first[TEXT_BYTES], longer[TEXT_BYTES], expected[TEXT_BYTES];
    const char *options = "--temperature 0 --quiet";
    assert_code(sluice("generate model --prompt 'the ' --tokens 10 %s", options), 0);
    read_answer(first);
    assert_code(sluice("generate model --prompt 'the ' --tokens 20 %s", options), 0);
    read_answer(longer);
    snprintf(expected, sizeof expected, "%.10s\n%.10s\n%.10s\n", first, longer + 10, first);
    const char *lines = "the \n\nthe \nstop\nthe \n";
    write_bytes("lines", lines, strlen(lines));
    assert_code(run_with_input("generate model --interactive --tokens 10 --temperature 0", "lines"),
                0);
    assert_string_equal(output, expected);
    assert_has(complaint, "each line is a prompt");
    assert_has(complaint, "sluice: stopped\n");
    assert_has(speed, "generated 30 tokens");
    write_bytes("lines", lines, strlen("the \n\nthe")); /* the last line has no end */
    assert_code(run_with_input("generate model --interactive --tokens 10 --temperature 0", "lines"),
                0);
    assert_has(complaint, "sluice: end of input\n");
    assert_int_equal(strncmp(output, expected, 22), 0);
}

/* An answer of each length passes the context again and again. */
static void interactive_when_text_goes_on_for_long_then_slides(void **state)
{
    (void)state;
    write_bytes("lines", "the \n\n\n\n\n", 9);
    assert_code(
        run_with_input("generate model --interactive --tokens 29 --quiet --top-k 3", "lines"), 0);
    assert_string_equal(complaint, "");
    int lines = 0;
    for (const char *at = output; (at = strchr(at, '\n')); at++)
        lines++;
    assert_true(lines >= 5); /* the text itself has some */
    assert_true(strlen(output) >= 5 * 30 - 5);
}

/* ---- what is read of a checkpoint ---- */

static void states_when_damaged_then_only_training_minds(void **state)
{
    (void)state;
    assert_int_equal(system("cp -r model damaged && chmod -R u+w damaged && printf x | dd "
                            "of=damaged/step-00000060/moment1.safetensors bs=1 seek=3000 "
                            "conv=notrunc status=none && cp -r damaged gone && rm "
                            "gone/step-00000060/moment2.safetensors"),
                     0);
    static const char *const models[] = {"damaged", "gone", "damaged/step-00000060"};
    for (int i = 0; i < 3; i++) {
        assert_code(sluice("generate %s --prompt a --tokens 2", models[i]), 0);
        assert_string_equal(complaint, "");
        assert_code(sluice("eval %s --data text", models[i]), 0);
        assert_code(
            sluice("train --init %s --data text --micro-batch 2 --steps 1 --quiet", models[i]), 0);
    }
    assert_code(sluice("train --save damaged --resume --steps 61 --quiet --data text"), 66);
    assert_int_equal(system("printf x | dd of=damaged/step-00000060/model.safetensors bs=1 "
                            "seek=3000 conv=notrunc status=none"),
                     0);
    assert_code(sluice("generate damaged/step-00000060 --prompt a --tokens 2"), 65);
    assert_one_complaint("checksum");
}

/* ---- signals ---- */

static void signal_when_text_comes_then_leaves_with_what_was_said(void **state)
{
    (void)state;
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command,
             "exec '%s' generate model --prompt 'the ' --tokens 10000000 >out 2>err </dev/null",
             binary);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    struct stat info = {0};
    for (int tries = 0; tries < 10000 && info.st_size < 200; tries++) {
        const struct timespec pause = {.tv_nsec = 10000000};
        nanosleep(&pause, NULL);
        if (stat("out", &info) != 0)
            info.st_size = 0;
    }
    kill(child, SIGINT);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    static char text[TEXT_BYTES];
    assert_true(read_answer(text) >= 200);
    read_complaint("err");
    assert_has(complaint, "generated");
}

/* What is answered is what the same text gives as a prompt; with a template of messages the prompt
 * is the user's. */
static void prompt_when_put_into_a_template_then_is_that_text(void **state)
{
    (void)state;
    static const struct {
        const char *template_text, *whole;
    } cases[] = {{"Q: {prompt}\\nA: {response} end", "'Q: the big\nA: '"},
                 {"({role}) {content}\\n", "'(user) the big\n(assistant) '"}};
    assert_int_equal(system("echo the big >big"), 0);
    static char found[TEXT_BYTES], expected[TEXT_BYTES], command[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(command, sizeof command, "printf '%s\\n' >template", cases[i].template_text);
        assert_int_equal(system(command), 0);
        assert_code(sluice("generate model --tokens 12 --prompt %s", cases[i].whole), 0);
        read_answer(expected);
        assert_code(sluice("generate model --tokens 12 --template template --prompt 'the big'"), 0);
        read_answer(found);
        assert_string_equal(found, expected);
        assert_code(run_with_input("generate model --tokens 12 --template template --interactive "
                                   "--quiet",
                                   "big"),
                    0);
        read_answer(found);
        assert_non_null(strstr(expected, found));
    }
    assert_int_equal(system("printf '{prompt}' >template"), 0);
    assert_code(sluice("generate model --template template --prompt a"), 64);
    assert_has(complaint, "--template: the template has no mark {response} (a template of prompts");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_when_there_are_more_then_the_first_stay),
        cmocka_unit_test(samples_when_placed_differently_then_say_the_same),
        cmocka_unit_test(samples_when_they_do_not_fit_then_69_says_what_would),
        cmocka_unit_test(stop_when_its_text_comes_then_it_is_not_printed),
        cmocka_unit_test(end_when_the_model_names_several_then_each_ends_a_text),
        cmocka_unit_test(penalty_when_given_then_text_changes_and_1_is_none),
        cmocka_unit_test(prompt_when_from_a_file_or_a_pipe_then_the_same),
        cmocka_unit_test(prompt_when_no_text_then_its_bytes_are_read),
        cmocka_unit_test(prompt_when_put_into_a_template_then_is_that_text),
        cmocka_unit_test(prompt_when_its_file_is_hostile_then_refused),
        cmocka_unit_test(options_when_they_contradict_then_refused),
        cmocka_unit_test(text_when_it_passes_the_context_then_goes_on_from_its_end),
        cmocka_unit_test(interactive_when_lines_come_then_each_is_answered),
        cmocka_unit_test(interactive_when_text_goes_on_for_long_then_slides),
        cmocka_unit_test(states_when_damaged_then_only_training_minds),
        cmocka_unit_test(signal_when_text_comes_then_leaves_with_what_was_said),
    };
    return cmocka_run_group_tests(tests, set_up_model, tear_down);
}
