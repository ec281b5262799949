/* What could be wrong here: processes that hold parts of one model train another one than a single
 * process does, two of them write a log or a checkpoint, a policy changes their numbers, a number
 * of ranks that does not fit is run all the same. Every case runs the built command. */
#define _GNU_SOURCE
#include <sys/stat.h>

#include "command_run.h"

#define THREE_HEADS "--layers 2 --width 36 --heads 3 --context 32 --micro-batch 2 "
#define RUN                                                                                        \
    THREE_HEADS "--data text --device cpu --threads 1 --device-memory 64M --host-memory 64M "

static double find_gap(const char *name, const char *other, json_int_t last)
{
    json_t *a = read_log(name), *b = read_log(other);
    double most = 0;
    for (json_int_t step = 1; step <= last; step++)
        most = fmax(most, fabs(find_step(a, step).loss / find_step(b, step).loss - 1));
    json_decref(a);
    json_decref(b);
    return most;
}

/* 2e-6 is ten times what was measured between one rank and two. */
static void train_when_on_two_ranks_then_losses_are_those_of_one(void **state)
{
    (void)state;
    assert_code(sluice("train " RUN "--steps 20 --policy device --log-json one --quiet"), 0);
    assert_code(sluice("launch -n 2 -- train " RUN
                       "--tp 2 --steps 20 --policy device --log-json two --quiet"),
                0);
    assert_true(find_gap("one", "two", 20) <= 2e-6);
    assert_int_equal(mkdir("disk", 0700), 0);
    assert_code(
        sluice("launch -n 2 -- train " RUN "--tp 2 --steps 20 --policy nvme --nvme-params 1 "
               "--nvme-grads 1 --disk-dir disk --recompute full --log-json disk-log --quiet"),
        0);
    assert_same_steps("two", "disk-log", 1, 20);
    assert_code(sluice("launch -n 2 -- train " RUN "--tp 2 --sequence-parallel --steps 20 "
                       "--policy device --log-json rows --quiet"),
                0);
    assert_true(find_gap("one", "rows", 20) <= 2e-6);
}

/* Of what all ranks would say the first one tells. */
static void note_when_of_many_ranks_then_is_told_once(void **state)
{
    (void)state;
    assert_code(
        sluice("launch -n 2 -- train " RUN "--tp 2 --steps 1 --save noted --resume --quiet"), 0);
    const char *first = strstr(complaint, "there is no checkpoint in");
    assert_non_null(first);
    assert_null(strstr(first + 1, "there is no checkpoint in"));
}

/* Memory is the largest over the ranks and traffic the sum; here both ranks have the same of both.
 */
static void log_when_of_two_ranks_then_has_what_all_did(void **state)
{
    (void)state;
    const char *communicators[] = {"world", "tp", "dp", "pp"};
    assert_code(sluice("launch -n 2 -- train " RUN
                       "--tp 2 --steps 3 --policy host --log-json shared --quiet"),
                0);
    json_t *events = read_log("shared"), *event;
    size_t index;
    json_int_t device = 0, all = 0, planned = 0, moved = 0;
    json_array_foreach(events, index, event)
    {
        if (strcmp(kind_of(event), "start") == 0)
            json_unpack(event, "{s:{s:{s:{s:I}}, s:{s:I}}}", "plan", "tiers", "device",
                        "peak_bytes", &planned, "moved_bytes_per_step", "h2d", &moved);
        if (strcmp(kind_of(event), "step") != 0)
            continue;
        const json_t *sent = json_object_get(event, "comm_bytes");
        all = 0;
        for (int i = 0; i < 4; i++)
            all += json_integer_value(json_object_get(sent, communicators[i]));
        /* 2 x 2 sums a layer of [2, 32, 36] floats in each direction, 2 (N - 1) times, and less */
        assert_true(all >= 2 * 4 * 2 * 2 * 32 * 36 * 4 && all < 4 << 20);
        device = json_integer_value(json_object_get(event, "device_bytes"));
        if (json_integer_value(json_object_get(event, "step")) == 2) /* no prologue, no end */
            assert_int_equal(json_integer_value(json_object_get(event, "h2d_bytes")), 2 * moved);
    }
    assert_int_equal(device, planned);
    json_decref(events);
    assert_code(sluice("train " RUN "--steps 1 --log-json alone --quiet"), 0);
    events = read_log("alone");
    json_array_foreach(events, index, event) assert_null(json_object_get(event, "comm_bytes"));
    json_decref(events);
}

/* Hundred steps and one more: parameters that every rank holds are compared between them. */
static void replicas_when_of_a_sound_run_then_are_equal(void **state)
{
    (void)state;
    assert_code(sluice("launch -n 2 -- train --layers 1 --width 16 --heads 2 --context 16 "
                       "--micro-batch 1 --data text --device cpu --threads 1 --device-memory 64M "
                       "--host-memory 64M --tp 2 --steps 101 --policy host --quiet"),
                0);
}

static double read_eval_loss(const char *name)
{
    json_t *events = read_log(name), *event;
    double loss = NAN;
    size_t index;
    json_array_foreach(events, index, event)
    {
        if (strcmp(kind_of(event), "eval") == 0)
            loss = json_number_value(json_object_get(event, "loss"));
    }
    json_decref(events);
    return loss;
}

/* Rows that are left over for an evaluation do not divide among the ranks. */
static void train_when_ranks_share_otherwise_then_losses_are_those_of_one(void **state)
{
    (void)state;
    static const char *const ways[] = {"--sequence-parallel", "--split-layout colossal",
                                       "--partition-activations --recompute full"};
    const char *common = RUN "--steps 6 --policy device --eval-data text --eval-every 6 --seq 29 "
                             "--micro-batch 2 --quiet";
    assert_code(sluice("train %s --log-json of-one", common), 0);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        assert_code(sluice("launch -n 2 -- train %s --tp 2 %s --log-json of-two", common, ways[i]),
                    0);
        assert_true(find_gap("of-one", "of-two", 6) <= 2e-6);
        assert_true(fabs(read_eval_loss("of-one") / read_eval_loss("of-two") - 1) <= 2e-6);
    }
}

/* Stopped in the middle and gone on with by another number of ranks. */
static void checkpoint_when_of_two_ranks_then_one_goes_on(void **state)
{
    (void)state;
    assert_code(sluice("train " RUN "--steps 8 --lr-decay-steps 8 --log-json whole --quiet"), 0);
    assert_code(sluice("launch -n 2 -- train " RUN
                       "--tp 2 --steps 4 --lr-decay-steps 8 --save kept --quiet"),
                0);
    assert_code(sluice("train --resume --save kept --tp 1 --steps 8 --log-json rest --quiet"), 0);
    json_t *whole = read_log("whole"), *rest = read_log("rest");
    for (json_int_t step = 5; step <= 8; step++)
        assert_true(fabs(find_step(whole, step).loss / find_step(rest, step).loss - 1) <= 2e-6);
    json_decref(whole);
    json_decref(rest);
    assert_code(sluice("generate --checkpoint kept --prompt the --tokens 3"), 0);
}

static void write_text(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static double find_evaluation(const char *name)
{
    json_t *log = read_log(name);
    double loss = NAN;
    for (size_t i = 0; i < json_array_size(log); i++) {
        const json_t *event = json_array_get(log, i);
        if (strcmp(kind_of(event), "eval") == 0)
            loss = json_real_value(json_object_get(event, "loss"));
    }
    json_decref(log);
    return loss;
}

/* The same rows of a step, shared among ranks, with masks of dropout that belong to rows; seven
 * micro-batches to evaluate, which no number of ranks here divides, and a rest. */
static void train_when_rows_are_shared_then_losses_are_those_of_one(void **state)
{
    (void)state;
    static const char more[] =
        RUN "--steps 6 --policy device --dropout 0.1 --eval-data text --eval-iters 7 --quiet ";
    char words[COMMAND_BYTES];
    snprintf(words, sizeof words, "train %s --accumulate 4 --log-json rows-of-one", more);
    assert_code(sluice("%s", words), 0);
    snprintf(words, sizeof words, "launch -n 2 -- train %s --global-batch 8 --zero 0 %s", more,
             "--log-json rows-of-two");
    assert_code(sluice("%s", words), 0);
    snprintf(words, sizeof words, "launch -n 4 -- train %s --tp 2 --accumulate 2 --zero 3 %s", more,
             "--log-json rows-of-four");
    assert_code(sluice("%s", words), 0);
    assert_true(find_gap("rows-of-one", "rows-of-two", 6) <= 2e-6);
    assert_true(find_gap("rows-of-one", "rows-of-four", 6) <= 2e-6);
    assert_true(fabs(find_evaluation("rows-of-one") / find_evaluation("rows-of-two") - 1) <= 2e-6);
    assert_true(fabs(find_evaluation("rows-of-one") / find_evaluation("rows-of-four") - 1) <= 2e-6);
}

/* The rows of a step stay as many. */
static void run_when_it_goes_on_with_other_ranks_then_keeps_its_batch(void **state)
{
    (void)state;
    static const char both[] = RUN "--policy device --lr-decay-steps 8 --quiet ";
    char words[COMMAND_BYTES];
    snprintf(words, sizeof words, "train %s --steps 8 --accumulate 4 --log-json batch-whole", both);
    assert_code(sluice("%s", words), 0);
    snprintf(words, sizeof words,
             "launch -n 2 -- train %s --steps 4 --accumulate 2 --save kept-rows", both);
    assert_code(sluice("%s", words), 0);
    assert_code(
        sluice("launch -n 4 -- train --resume --save kept-rows --steps 6 --zero 3 --log-json "
               "batch-rest"),
        0);
    assert_code(sluice("train --resume --save kept-rows --steps 8 --log-json batch-end"), 0);
    json_t *whole = read_log("batch-whole"), *rest = read_log("batch-rest"),
           *end = read_log("batch-end");
    for (json_int_t step = 5; step <= 8; step++) {
        const double loss = find_step(step <= 6 ? rest : end, step).loss;
        assert_true(fabs(find_step(whole, step).loss / loss - 1) <= 2e-6);
    }
    json_decref(whole);
    json_decref(rest);
    json_decref(end);
    assert_code(sluice("launch -n 3 -- train --resume --save kept-rows --steps 9"), 64);
    assert_has(complaint, "--global-batch 8");
}

static void batch_of_deepspeed_when_ranks_are_known_then_is_checked(void **state)
{
    (void)state;
    write_text("total.json", "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2}");
    write_text("three.json", "{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2, "
                             "\"gradient_accumulation_steps\": 2}");
    assert_code(sluice("plan " RUN "--config total.json --ranks 4 --policy device"), 0);
    assert_has(output, "a step is 1 x 2 rows");
    assert_has(output, "a step has 8 rows");
    assert_code(sluice("plan " RUN "--config three.json --ranks 2 --policy device"), 0);
    assert_code(sluice("plan " RUN "--config three.json --policy device"), 64);
    assert_has(complaint, "--global-batch 8 is not --micro-batch 2 * --accumulate 2 * 1");
}

static void ranks_when_they_do_not_fit_the_options_then_are_refused(void **state)
{
    (void)state;
    assert_code(sluice("train " RUN "--tp 2 --steps 1"), 64);
    assert_one_complaint("sluice launch -n 2");
    assert_code(sluice("train " RUN "--tp 4 --steps 1"), 64);
    assert_code(sluice("launch -n 3 -- train " RUN "--tp 2 --steps 1 --quiet"), 64);
    assert_has(complaint, "there are 3 ranks");
    assert_code(sluice("launch -n 2 -- train " RUN "--zero 4 --steps 1 --quiet"), 64);
    assert_has(complaint, "--zero");
    assert_code(sluice("plan " RUN "--tp 4"), 64);
    assert_one_complaint("--tp 3 at most");
    assert_code(sluice("plan " RUN "--sequence-parallel"), 64);
    assert_one_complaint("give --tp");
    assert_code(sluice("plan " RUN "--tp 3 --seq 7 --micro-batch 1 --sequence-parallel"), 64);
    assert_one_complaint("no multiple of --tp 3");
    assert_code(sluice("plan " RUN "--tp 2 --sequence-parallel --partition-activations"), 64);
    assert_one_complaint("leave it out");
    assert_code(sluice("plan " RUN "--tp 2 --sequence-parallel --split-layout colossal"), 64);
    assert_one_complaint("leave one out");
    assert_code(sluice("plan " RUN "--split-layout colossal"), 64);
    assert_one_complaint("give --tp");
}

/* Each of these changes numbers, or calls that the ranks make together, and no plan. */
static void ranks_when_given_other_options_then_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *option, *says;
    } cases[] = {{"--warmup $SLUICE_RANK", "option --warmup: \"0\" on rank 0, \"1\" on rank 1"},
                 {"--seed 100000000000000000$SLUICE_RANK", "option --seed"},
                 {"--save-every $SLUICE_RANK --save kept-by-both", "option --save-every"},
                 {"--eps 1e-$SLUICE_RANK", "option --eps"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[COMMAND_BYTES];
        snprintf(words, sizeof words,
                 "launch -n 2 -- sh -c 'exec %s train " RUN "--tp 2 --steps 1 --quiet %s'", binary,
                 cases[i].option);
        assert_code(sluice("%s", words), 64);
        assert_has(complaint, cases[i].says);
    }
}

/* Rank 1 is killed while it trains. */
static void rank_when_killed_then_is_named_with_step_and_op(void **state)
{
    (void)state;
    char words[COMMAND_BYTES];
    snprintf(words, sizeof words,
             "launch -n 2 -- sh -c '%s train " RUN
             "--tp 2 --steps 1000000 --log-json killed --quiet & "
             "while ! grep -qs step.:3, killed; do sleep 0.05; done; "
             "if [ $SLUICE_RANK = 1 ]; then kill -KILL $!; fi; wait $!'",
             binary);
    assert_true(sluice("%s", words) != 0);
    assert_has(complaint, "a rank has died: rank 1 (process");
    assert_has(complaint, "last in step ");
    assert_has(complaint, " at ");
}

static void plan_when_of_many_ranks_then_shows_groups_and_shapes(void **state)
{
    (void)state;
    assert_code(sluice("plan --model gpt2-medium --device cpu --tp 2 --micro-batch 1 --seq 64 "
                       "--device-memory 20G --host-memory 20G --policy device --ranks 4"),
                0);
    assert_has(output, "4 ranks: 2 tensor x 2 data");
    assert_has(output, "[0,1] [2,3]");
    assert_has(output, "[0,2] [1,3]");
    assert_has(output, "178100224 of 354823168 parameters");
    assert_has(output, "[1024, 1536]"); /* of c_attn */
    assert_has(output, "columns of q, k, v");
    assert_code(sluice("plan " RUN "--tp 2 --ranks 3"), 64);
    assert_code(sluice("plan " RUN "--tp 2 --ranks 4 --json"), 0);
    json_t *object = json_load_file("out", 0, NULL), *tensor;
    const json_t *ranks = json_object_get(object, "ranks");
    size_t index;
    char *groups = json_dumps(json_object_get(ranks, "groups"), JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(groups, "{\"dp\":[[0,2],[1,3]],\"pp\":[[0],[1],[2],[3]],"
                                "\"tp\":[[0,1],[2,3]]}");
    free(groups);
    assert_int_equal(json_integer_value(json_object_get(ranks, "data")), 2);
    json_array_foreach(json_object_get(ranks, "tensors"), index, tensor)
    {
        char *text = json_dumps(tensor, JSON_COMPACT | JSON_SORT_KEYS);
        if (strstr(text, "h.1.attn.c_attn.weight"))
            assert_string_equal(text, "{\"local_shape\":[36,72],\"name\":\"h.1.attn.c_attn.weight"
                                      "\",\"shape\":[36,108],\"split\":\"columns_of_qkv\"}");
        free(text);
    }
    assert_int_equal(index, 28);
    json_decref(object);
    assert_code(sluice("plan " RUN "--json"), 0);
    object = json_load_file("out", 0, NULL);
    assert_null(json_object_get(object, "ranks"));
    json_decref(object);
}

/* A layer that tells a million classes apart was what torchshard was made for: of 2048 features in
 * fp32, weight, gradient and momentum of SGD take 23,437.5 MiB, and 2,929.7 on each of eight ranks.
 * AdamW has one state more; ids are padded to whole panels. */
static void head_when_of_a_million_ids_then_is_shared_out(void **state)
{
    (void)state;
    const double each = 1e6 * 2048 / 8;
    assert_code(sluice("plan --layers 1 --width 2048 --heads 16 --context 128 --vocab 1000000 "
                       "--micro-batch 1 --seq 128 --tp 8 --ranks 8 --device cpu --threads 1 "
                       "--precision fp32 --device-memory 16G --host-memory 8G --policy device"),
                0);
    assert_has(output, "each rank holds 262686464 of 2098624512 parameters");
    assert_has(output, "[1000000, 2048] -> [125056, 2048] rows");
    assert_true(125056 * 2048 >= each && 125056 * 2048 < 1.001 * each);
    const char *few = "--layers 1 --width 8 --heads 2 --context 16 --seq 8 --micro-batch 1 --vocab "
                      "1000000 --data text --device cpu --threads 1 --device-memory 600M "
                      "--host-memory 600M --policy device --steps 2 --quiet";
    assert_code(sluice("train %s --log-json million-of-one", few), 0);
    assert_code(sluice("launch -n 2 -- train %s --tp 2 --log-json million-of-two", few), 0);
    assert_true(find_gap("million-of-one", "million-of-two", 2) <= 2e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_when_on_two_ranks_then_losses_are_those_of_one),
        cmocka_unit_test(note_when_of_many_ranks_then_is_told_once),
        cmocka_unit_test(log_when_of_two_ranks_then_has_what_all_did),
        cmocka_unit_test(replicas_when_of_a_sound_run_then_are_equal),
        cmocka_unit_test(train_when_ranks_share_otherwise_then_losses_are_those_of_one),
        cmocka_unit_test(checkpoint_when_of_two_ranks_then_one_goes_on),
        cmocka_unit_test(train_when_rows_are_shared_then_losses_are_those_of_one),
        cmocka_unit_test(run_when_it_goes_on_with_other_ranks_then_keeps_its_batch),
        cmocka_unit_test(batch_of_deepspeed_when_ranks_are_known_then_is_checked),
        cmocka_unit_test(ranks_when_they_do_not_fit_the_options_then_are_refused),
        cmocka_unit_test(ranks_when_given_other_options_then_are_refused),
        cmocka_unit_test(rank_when_killed_then_is_named_with_step_and_op),
        cmocka_unit_test(plan_when_of_many_ranks_then_shows_groups_and_shapes),
        cmocka_unit_test(head_when_of_a_million_ids_then_is_shared_out),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
