/* What could be wrong with `--documents reset` and `--dropout` of the command: an option does not
 * reach the program, or reaches evaluations too; a row of a run that goes on drops other elements
 * than it would have; a step drops what the one before did; a document sees the one before it, in
 * some row or on one side of an end of text; text whose ends nobody knows is taken for one
 * document. Every case runs the built command. */
#define _GNU_SOURCE
#include <math.h>

#include "command_run.h"

static const char common[] = TINY "--data text --quiet --seed 5 --documents reset --dropout 0.2 ";

static double read_loss(const char *log, const char *kind)
{
    json_t *events = read_log(log), *event;
    size_t index;
    double loss = NAN;
    json_array_foreach(events, index, event) if (strcmp(kind_of(event), kind) == 0) loss =
        json_number_value(json_object_get(event, "loss"));
    json_decref(events);
    assert_true(isfinite(loss));
    return loss;
}

/* The cut run goes on under another placement, recomputation and order, and is given no option that
 * the first part was given. */
static void resume_when_documents_are_apart_and_elements_dropped_then_goes_on_bit_for_bit(
    void **state)
{
    (void)state;
    static const char *const ways[] = {"--recompute full --accumulation layer --policy host",
                                       "--recompute selective --accumulation micro --threads 1"};
    assert_code(sluice("train %s --accumulate 3 --recompute none --steps 8 --save whole "
                       "--log-json whole.json",
                       common),
                0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(system("rm -rf cut went-on.json"), 0);
        assert_code(sluice("train %s --accumulate 3 --recompute none --steps 8 --save cut "
                           "--save-every 4",
                           common),
                    0);
        assert_int_equal(system("rm -rf cut/step-00000008"), 0);
        assert_code(sluice("train --save cut --resume --quiet --steps 8 --log-json went-on.json %s",
                           ways[i]),
                    0);
        assert_same_steps("whole.json", "went-on.json", 5, 8);
        assert_int_equal(system("cmp whole/step-00000008/model.safetensors "
                                "cut/step-00000008/model.safetensors >&2"),
                         0);
    }
}

/* At a learning rate of 0 and on one repeated row only dropout changes the loss. */
static void steps_when_elements_are_dropped_then_each_drops_others_and_evaluation_none(void **state)
{
    (void)state;
    static const char still[] = TINY "--data row --eval-data row --quiet --lr 0 --steps 3 "
                                     "--data-order sequential --micro-batch 1 --eval-every 1 ";
    assert_int_equal(system("head -c 33 text > row"), 0);
    assert_code(sluice("train %s --log-json none.json", still), 0);
    assert_code(sluice("train %s --dropout 0.2 --log-json some.json", still), 0);
    json_t *none = read_log("none.json"), *some = read_log("some.json");
    for (json_int_t step = 1; step <= 3; step++) {
        assert_true(find_step(none, step).loss == find_step(none, 1).loss);
        assert_true(find_step(some, step).loss != find_step(none, 1).loss);
        assert_true(step == 1 || find_step(some, step).loss != find_step(some, step - 1).loss);
    }
    json_decref(none);
    json_decref(some);
    assert_true(read_loss("none.json", "eval") == read_loss("some.json", "eval"));
}

static double evaluate_pair(const char *first, const char *second, const char *options)
{
    assert_code(
        sluice("eval --checkpoint made --data %s %s --seq 16 --micro-batch 1 --quiet --json "
               "%s",
               first, second, options),
        0);
    json_t *report = json_loads(output, 0, NULL);
    assert_non_null(report);
    const double loss = json_number_value(json_object_get(report, "loss"));
    assert_int_equal(json_integer_value(json_object_get(report, "tokens")), 16);
    json_decref(report);
    return loss;
}

static void write_document(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Two documents in a row, of 6 and 9 bytes. Apart, the loss is one number of the first plus one of
 * the second: so the difference that the first makes does not depend on the second. What the first
 * predicts behind its end is the first byte of the second, which is the same in all. */
static void evaluation_when_documents_are_apart_then_none_sees_another(void **state)
{
    (void)state;
    write_document("a", "boat a");
    write_document("b", "gates.");
    write_document("c", "the locks");
    write_document("d", "theirs of");
    assert_code(sluice("train " TINY "--data text --quiet --steps 40 --lr 1e-2 --save made"), 0);
    static const char *const options[] = {"--documents reset", "--documents join"};
    double mixed[2];
    for (int i = 0; i < 2; i++)
        mixed[i] = fabs(evaluate_pair("a", "c", options[i]) - evaluate_pair("b", "c", options[i]) -
                        evaluate_pair("a", "d", options[i]) + evaluate_pair("b", "d", options[i]));
    if (!(mixed[0] < 1e-6 && mixed[1] > 1e-5))
        fail_msg("documents act on each other by %g apart and %g joined", mixed[0], mixed[1]);
}

static void documents_when_their_ends_are_not_known_then_refused(void **state)
{
    (void)state;
    assert_int_equal(system("head -c 400 /dev/zero > ids.bin"), 0);
    assert_code(sluice("train " TINY "--vocab 300 --data ids.bin --documents reset"), 64);
    assert_one_complaint("--end-of-text");
    assert_code(sluice("train " TINY "--vocab 300 --data ids.bin --documents reset --end-of-text 7 "
                       "--quiet --steps 1"),
                0);
    assert_code(sluice("eval --checkpoint made --data text --documents reset --overlap 4"), 64);
    assert_one_complaint("--overlap");
    assert_code(sluice("train " TINY "--data text --dropout 1"), 64);
    assert_one_complaint("--dropout");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            resume_when_documents_are_apart_and_elements_dropped_then_goes_on_bit_for_bit),
        cmocka_unit_test(
            steps_when_elements_are_dropped_then_each_drops_others_and_evaluation_none),
        cmocka_unit_test(evaluation_when_documents_are_apart_then_none_sees_another),
        cmocka_unit_test(documents_when_their_ends_are_not_known_then_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
