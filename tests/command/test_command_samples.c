/* What could be wrong here: the text that a run writes between its steps is another one than
 * generate writes from the checkpoint of that step, or depends on the placement, the ranks or on
 * where the run was stopped; writing it changes what is trained; what the model says is obeyed by a
 * terminal, breaks a line of the log or the page; a text longer than a row is none. */
#define _GNU_SOURCE
#include "command_run.h"
#include "report_page.h"

#define COMMON                                                                                     \
    TINY "--data text --lr 1e-2 --warmup 0 --quiet --steps 60 --sample-every 30 --sample-prompt "  \
         "'the lock ' --sample-tokens 20 "

static void run_shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s failed", command);
}

/* The text after a step in a log; the caller frees it. */
static char *find_text(const char *log, json_int_t step)
{
    size_t index;
    json_t *event, *events = read_log(log);
    char *text = NULL;
    json_array_foreach(events, index, event)
    {
        if (strcmp(kind_of(event), "sample") != 0 ||
            json_integer_value(json_object_get(event, "step")) != step)
            continue;
        assert_null(text); /* once */
        text = strdup(json_string_value(json_object_get(event, "text")));
    }
    if (!text)
        fail_msg("%s: no text at step %lld", log, (long long)step);
    json_decref(events);
    return text;
}

static void assert_same_texts(const char *left, const char *right, json_int_t step)
{
    char *a = find_text(left, step), *b = find_text(right, step);
    if (strcmp(a, b) != 0)
        fail_msg("%s and %s differ at step %lld: \"%s\" and \"%s\"", left, right, (long long)step,
                 a, b);
    free(a);
    free(b);
}

/* The run that the others are held against: a text at 30 and 60, a checkpoint there too. By then a
 * model of bytes writes letters, which the log has as generate prints them. */
static int train_once(void)
{
    return sluice("train " COMMON "--policy device --save whole --save-every 30 --log-json a.json");
}

static void text_when_a_checkpoint_is_of_its_step_then_is_what_generate_writes(void **state)
{
    (void)state;
    assert_code(train_once(), 0);
    for (int step = 30; step <= 60; step += 30) {
        char *text = find_text("a.json", step);
        assert_code(sluice("generate whole/step-%08d --prompt 'the lock ' --tokens 20 --seed 1 "
                           "--quiet",
                           step),
                    0);
        output[strlen(output) - 1] = '\0'; /* the end of the line */
        assert_true(strlen(text) > 0);
        assert_string_equal(output, text);
        free(text);
    }
}

static void text_when_the_placement_changes_then_stays(void **state)
{
    (void)state;
    static const char *const ways[] = {"--policy host --device-memory 600K",
                                       "--policy host --threads 1 --chunk-size 4K",
                                       "--policy nvme --disk-dir disk --nvme-params 1",
                                       "--policy device --micro-batch 1 "
                                       "--accumulate 2 --recompute full"};
    run_shell("mkdir -p -m 700 disk");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        assert_code(sluice("train " COMMON "%s --log-json b.json", ways[i]), 0);
        assert_same_texts("a.json", "b.json", 30);
        assert_same_texts("a.json", "b.json", 60);
        run_shell("rm b.json");
    }
}

static void step_when_a_text_came_before_then_is_as_without(void **state)
{
    (void)state;
    assert_code(sluice("train " COMMON "--sample-every 0 --log-json none.json"), 0);
    assert_same_steps("a.json", "none.json", 1, 60);
}

/* Data, tensor and pipeline ranks; ZeRO 3 and sequence parallelism. */
static void text_when_there_are_ranks_then_is_that_of_their_checkpoint(void **state)
{
    (void)state;
    static const char *const ways[] = {"-n 2 -- train " COMMON "--micro-batch 1 --zero 3",
                                       "-n 2 -- train " COMMON "--tp 2 --sequence-parallel",
                                       "-n 2 -- train " COMMON "--tp 2 --split-layout colossal",
                                       "-n 4 -- train " COMMON "--tp 2 --pp 2"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        assert_code(sluice("launch %s --save ranks --log-json ranks.json", ways[i]), 0);
        char *text = find_text("ranks.json", 60);
        assert_code(sluice("generate ranks --prompt 'the lock ' --tokens 20 --seed 1 --quiet"), 0);
        output[strlen(output) - 1] = '\0';
        if (strcmp(output, text) != 0)
            fail_msg("%s: \"%s\", and generate \"%s\"", ways[i], text, output);
        free(text);
        run_shell("rm -r ranks ranks.json");
    }
}

static void text_when_the_run_was_cut_then_comes_once(void **state)
{
    (void)state;
    run_shell("rm -rf cut && mkdir cut && cp -r whole/step-00000030 cut && cp a.json cut.json && "
              "sed -i '/\"step\":[3-6][1-9],/d;/\"step\":[4-6]0,/d;/\"event\":\"end\"/d' cut.json");
    assert_code(sluice("train --resume --save cut --log-json cut.json --quiet"), 0);
    assert_same_texts("a.json", "cut.json", 30); /* written before the checkpoint was */
    assert_same_texts("a.json", "cut.json", 60);
}

/* A byte model that has learned nothing writes any bytes. */
static void text_when_it_is_any_bytes_then_nobody_obeys_it(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY "--data text --steps 2 --lr 1e-9 --sample-every 1 "
                       "--sample-tokens 300 --log-json raw.json --report raw.html"),
                0);
    char *text = find_text("raw.json", 2);
    assert_has(text, "\xef\xbf\xbd"); /* U+FFFD */
    for (const char *at = output; *at; at++)
        assert_true(*at == '\n' || *at == '\t' || ((unsigned char)*at >= 0x20 && *at != 0x7f));
    json_t *page = read_page("raw.html");
    const json_t *samples =
        json_object_get(json_array_get(json_object_get(page, "runs"), 0), "samples");
    assert_int_equal(json_array_size(samples), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(samples, 1), "text")),
                        text);
    json_decref(page);
    free(text);
    assert_code(sluice("report raw.json --output drawn.html"), 0);
    page = read_page("drawn.html");
    samples = json_object_get(json_array_get(json_object_get(page, "runs"), 0), "samples");
    assert_int_equal(json_array_size(samples), 2);
    json_decref(page);
}

static void text_when_a_page_goes_on_then_keeps_those_before(void **state)
{
    (void)state;
    assert_code(sluice("train " COMMON "--save paged --report paged.html"), 0);
    assert_code(sluice("train --resume --save paged --steps 90 --report paged.html --quiet"), 0);
    json_t *page = read_page("paged.html");
    const json_t *samples =
        json_object_get(json_array_get(json_object_get(page, "runs"), 0), "samples");
    assert_int_equal(json_array_size(samples), 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(json_integer_value(json_object_get(json_array_get(samples, i), "step")),
                         30 * (i + 1));
    json_decref(page);
}

static void options_when_the_text_cannot_be_then_are_refused(void **state)
{
    (void)state;
    run_shell("head -c 4000 text >tokens.bin"); /* two bytes an id, as nanoGPT writes them */
    assert_code(sluice("train " TINY "--vocab 32768 --data tokens.bin --steps 1 --sample-every 1"),
                64);
    assert_one_complaint("--sample-every: how this model's ids become text is not known");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_when_a_checkpoint_is_of_its_step_then_is_what_generate_writes),
        cmocka_unit_test(text_when_the_placement_changes_then_stays),
        cmocka_unit_test(step_when_a_text_came_before_then_is_as_without),
        cmocka_unit_test(text_when_there_are_ranks_then_is_that_of_their_checkpoint),
        cmocka_unit_test(text_when_the_run_was_cut_then_comes_once),
        cmocka_unit_test(text_when_it_is_any_bytes_then_nobody_obeys_it),
        cmocka_unit_test(text_when_a_page_goes_on_then_keeps_those_before),
        cmocka_unit_test(options_when_the_text_cannot_be_then_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
