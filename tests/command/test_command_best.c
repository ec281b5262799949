/* What could be wrong here: a run ends too early, too late, or not at all when its evaluations get
 * no better; a resumed run counts them otherwise than the run that it continues, in particular one
 * that was killed between a save and the evaluation behind it; the best checkpoint is another one
 * than the best evaluation's, goes with the old ones, or stays beside those of another run; saves
 * by the clock are left out, or only some ranks make them. The data to evaluate on are of letters
 * that the data to train on do not have: training makes their loss worse. */
#define _GNU_SOURCE
#include <math.h>

#include "session_case.h"

#define COMMON TINY "--data text --eval-data noise --lr 3e-3 --warmup 0 --quiet "

enum { EVERY = 2, PATIENCE = 3, LONG = 40 };

static void run_shell(const char *command)
{
    if (system(command) != 0)
        fail_msg("%s failed", command);
}

static void write_noise(void)
{
    FILE *file = fopen("noise", "w");
    unsigned draw = 54321;
    assert_non_null(file);
    for (int i = 0; i < 400; i++) {
        draw = draw * 1664525u + 1013904223u;
        fputc('A' + (int)(draw >> 16) % 26, file);
    }
    assert_int_equal(fclose(file), 0);
}

/* ---- what a log says ---- */

typedef struct decisions {
    json_int_t best_step, last_step; /* of evaluations; of the run */
    double best_loss;
    int since_best;
    char reason[32];
} decisions;

/* Follows the evaluations of a log by the rule of the manual; one of a step counts once. */
static decisions follow(const char *name)
{
    decisions it = {.best_loss = INFINITY};
    json_int_t before = -1;
    size_t index;
    json_t *event, *events = read_log(name);
    json_array_foreach(events, index, event)
    {
        const json_int_t step = json_integer_value(json_object_get(event, "step"));
        const double loss = json_number_value(json_object_get(event, "loss"));
        if (strcmp(kind_of(event), "eval") != 0 || step == before)
            continue;
        before = step;
        it.since_best++;
        if (!(loss < it.best_loss))
            continue;
        it.best_loss = loss;
        it.best_step = step;
        it.since_best = 0;
    }
    const json_t *end = find_last_event(events, "end");
    it.last_step = json_integer_value(json_object_get(end, "step"));
    snprintf(it.reason, sizeof it.reason, "%s", json_string_value(json_object_get(end, "reason")));
    json_decref(events);
    return it;
}

static void assert_there(const char *format, json_int_t step, bool is_there)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, format, (long long)step);
    if ((access(path, F_OK) == 0) != is_there)
        fail_msg("%s is%s there", path, is_there ? " not" : "");
}

static json_t *read_manifest(const char *directory)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/manifest.json", directory);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    return root;
}

/* ---- --patience ---- */

static void train_when_evaluations_get_no_better_then_ends_after_so_many(void **state)
{
    (void)state;
    assert_code(sluice("train " COMMON "--eval-every %d --patience %d --steps %d --log-json a.json",
                       EVERY, PATIENCE, LONG),
                0);
    const decisions it = follow("a.json");
    assert_string_equal(it.reason, "patience");
    assert_int_equal(it.since_best, PATIENCE);
    assert_int_equal(it.last_step, it.best_step + (json_int_t)EVERY * PATIENCE);
    assert_true(it.last_step < LONG);
    assert_has(output, "by --patience: the last 3 evaluations were no better");
}

static void train_when_evaluations_get_better_then_patience_ends_nothing(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY
                       "--data text --eval-data text --lr 1e-3 --quiet --eval-every 2 "
                       "--patience 2 --steps 12 --log-json b.json"),
                0);
    const decisions it = follow("b.json");
    assert_string_equal(it.reason, "done");
    assert_int_equal(it.last_step, 12);
    assert_int_equal(it.best_step, 12);
}

static void train_when_patience_was_lost_then_resume_needs_more(void **state)
{
    (void)state;
    assert_code(sluice("train " COMMON "--eval-every 2 --patience 1 --steps %d --save lost", LONG),
                0);
    assert_code(sluice("train --resume --save lost --log-json lost.json"), 0);
    assert_has(complaint, "a larger --patience goes on");
    const decisions ended = follow("lost.json");
    assert_string_equal(ended.reason, "patience");
    assert_code(sluice("train --resume --save lost --patience 2 --quiet --log-json more.json"), 0);
    const decisions more = follow("more.json");
    assert_string_equal(more.reason, "patience");
    assert_int_equal(more.last_step, ended.last_step + 2);
}

/* ---- --keep-best ---- */

static void train_when_it_keeps_the_best_then_rotation_leaves_it(void **state)
{
    (void)state;
    assert_code(sluice("train " COMMON "--eval-every %d --patience %d --steps %d --save kept "
                       "--save-every 1 --keep 1 --keep-best --log-json kept.json",
                       EVERY, PATIENCE, LONG),
                0);
    const decisions it = follow("kept.json");
    assert_there("kept/best/step-%08lld", it.best_step, true);
    assert_there("kept/step-%08lld", it.best_step, false);
    assert_there("kept/step-%08lld", it.last_step, true);
    run_shell(
        "test $(ls -d kept/best/step-* | wc -l) = 1 && test $(ls -d kept/step-* | wc -l) = 1");
    assert_code(sluice("eval kept/best --data noise --micro-batch 2 --seq 32 --json"), 0);
    json_t *evaluated = json_loads(output, 0, NULL);
    assert_non_null(evaluated);
    assert_true(json_number_value(json_object_get(evaluated, "loss")) == it.best_loss);
    json_decref(evaluated);
}

/* Of the whole run each step was saved. A run that goes on from step 3 was killed in front of an
 * evaluation, from step 4 between the save and the evaluation of that step, from step 5 behind it.
 */
static void resume_when_a_run_was_cut_then_decides_as_the_whole_one(void **state)
{
    (void)state;
    char command[COMMAND_BYTES];
    assert_code(sluice("train " COMMON "--eval-every %d --patience %d --steps %d --save whole "
                       "--save-every 1 --keep-best --log-json whole.json",
                       EVERY, PATIENCE, LONG),
                0);
    const decisions whole = follow("whole.json");
    for (int cut = 3; cut <= 5; cut++) {
        snprintf(command, sizeof command,
                 "rm -rf cut && mkdir cut && cp -r whole/step-%08d whole/best cut", cut);
        run_shell(command);
        assert_code(sluice("train --resume --save cut --quiet --log-json cut%d.json", cut), 0);
        snprintf(command, sizeof command, "cut%d.json", cut);
        decisions later = follow(command);
        assert_string_equal(later.reason, whole.reason);
        assert_int_equal(later.last_step, whole.last_step);
        json_t *left = read_manifest("whole/step-00000008"), *right;
        right = read_manifest("cut/step-00000008");
        static const char *const keys[] = {"eval_count", "evaluated_step", "evals_since_best",
                                           "best_step", "best_loss"};
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            if (!json_object_get(left, keys[i]) ||
                !json_equal(json_object_get(left, keys[i]), json_object_get(right, keys[i])))
                fail_msg("cut at %d: %s is another one", cut, keys[i]);
        json_decref(left);
        json_decref(right);
        run_shell("cmp cut/best/step-00000002/model.safetensors "
                  "whole/best/step-00000002/model.safetensors");
    }
    assert_int_equal(whole.last_step, 8); /* as the names above say */
}

/* The last evaluation of a run is not due by --eval-every: its best value stays one. */
static void resume_when_the_last_evaluation_was_the_best_then_that_is_known(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY
                       "--data text --eval-data text --lr 1e-3 --quiet --eval-every 8 "
                       "--steps 5 --save long --keep-best"),
                0);
    assert_there("long/best/step-%08lld", 5, true);
    assert_code(sluice("train --resume --save long --steps 7 --lr 1 --min-lr 1 --eval-every 6 "
                       "--quiet"),
                0); /* a rate that spoils the model */
    assert_there("long/best/step-%08lld", 5, true);
}

static void train_when_it_overwrites_then_the_old_best_goes(void **state)
{
    (void)state;
    assert_code(sluice("train " COMMON "--eval-every 2 --steps 4 --save over --keep-best"), 0);
    assert_there("over/best/step-%08lld", 2, true);
    assert_code(sluice("train " COMMON "--steps 1 --save over --overwrite"), 0);
    assert_there("over/step-%08lld", 1, true);
    assert_there("over/best/step-%08lld", 2, false);
}

/* ---- --save-minutes ---- */

static void train_when_minutes_are_over_then_saves(void **state)
{
    (void)state;
    assert_code(sluice("train " COMMON "--steps 3 --save clock --save-minutes 1e-9"), 0);
    run_shell(
        "test \"$(cd clock && echo step-*)\" = \"step-00000001 step-00000002 step-00000003\"");
    assert_code(sluice("train " COMMON "--steps 3 --save slow --save-minutes 1000"), 0);
    run_shell("test \"$(cd slow && echo step-*)\" = step-00000003");
}

/* ---- sessions ---- */

/* The options of the run in a.json. */
static void session_when_it_trains_then_decides_as_the_command(void **state)
{
    (void)state;
    static const char *const more[] = {
        "eval-data", "noise", "lr",         "3e-3",   "warmup",       "0",    "eval-every", "2",
        "patience",  "3",     "log-json",   "s.json", "save",         "of",   "steps",      "40",
        "keep-best", "true",  "save-every", "5",      "save-minutes", "1000", NULL};
    sl_options *options = tiny_options("text");
    sl_session *session = NULL;
    const char *reason = NULL;
    must(sl_options_set_all(options, more));
    must(sl_session_open(options, &session));
    must(sl_session_train(session, &reason));
    assert_string_equal(reason, "patience");
    must(sl_session_close(session));
    sl_options_close(options);
    const decisions own = follow("s.json"), it = follow("a.json");
    assert_string_equal(own.reason, "patience");
    assert_int_equal(own.last_step, it.last_step);
    assert_int_equal(own.best_step, it.best_step);
    assert_true(own.best_loss == it.best_loss);
    assert_same_steps("a.json", "s.json", 1, it.last_step);
    assert_there("of/best/step-%08lld", it.best_step, true);
    assert_there("of/step-%08lld", 5, true);
    assert_there("of/step-%08lld", it.last_step, true);
}

/* ---- ranks ---- */

static void train_when_there_are_ranks_then_they_decide_together(void **state)
{
    (void)state;
    assert_code(sluice("launch -n 2 -- train " COMMON
                       "--micro-batch 1 --eval-every %d --patience %d --steps %d --save ranks "
                       "--save-every 3 --save-minutes 1e-9 --keep-best --log-json ranks.json",
                       EVERY, PATIENCE, LONG),
                0);
    const decisions it = follow("ranks.json");
    assert_string_equal(it.reason, "patience");
    assert_int_equal(it.last_step, it.best_step + (json_int_t)EVERY * PATIENCE);
    assert_there("ranks/best/step-%08lld", it.best_step, true);
    for (json_int_t step = 1; step <= it.last_step; step++)
        assert_there("ranks/step-%08lld", step, true);
}

/* ---- options ---- */

static void options_when_something_is_missing_then_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *options, *part;
    } cases[] = {
        {"--keep-best --eval-data noise", "--keep-best needs --save DIR"},
        {"--keep-best --save none", "--keep-best needs --eval-data"},
        {"--patience 2 --eval-data noise", "add it"},
        {"--save-minutes 5", "--save-minutes needs --save DIR"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_code(sluice("train " TINY "--data text --steps 1 %s", cases[i].options), 64);
        assert_one_complaint(cases[i].part);
    }
}

static int set_up_data(void **state)
{
    const int code = set_up(state);
    if (code == 0)
        write_noise();
    return code;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_when_evaluations_get_no_better_then_ends_after_so_many),
        cmocka_unit_test(train_when_evaluations_get_better_then_patience_ends_nothing),
        cmocka_unit_test(train_when_patience_was_lost_then_resume_needs_more),
        cmocka_unit_test(train_when_it_keeps_the_best_then_rotation_leaves_it),
        cmocka_unit_test(resume_when_a_run_was_cut_then_decides_as_the_whole_one),
        cmocka_unit_test(resume_when_the_last_evaluation_was_the_best_then_that_is_known),
        cmocka_unit_test(train_when_it_overwrites_then_the_old_best_goes),
        cmocka_unit_test(train_when_minutes_are_over_then_saves),
        cmocka_unit_test(session_when_it_trains_then_decides_as_the_command),
        cmocka_unit_test(train_when_there_are_ranks_then_they_decide_together),
        cmocka_unit_test(options_when_something_is_missing_then_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up_data, tear_down);
}
