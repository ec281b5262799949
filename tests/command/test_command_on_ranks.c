/* Commands that do not train, on ranks: eval, generate, profile and bench. What could be wrong: a
 * rank counts rows that another one counts too, or nobody does; scores of a row are another set's;
 * the logits of a stage or of a part of the ids are left out of a sum; ranks stop one by one; a
 * profile adds up what it did not measure, or leaves a rank out; a refusal is printed by each rank.
 *
 * One process is the oracle: data-parallel ranks and stages have its bits, tensor-parallel ranks
 * round sums in another order. What a profile says of exchanges is held against the log of a
 * training with the same options.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>

#include "command_run.h"
#include "report_page.h"

#define MODEL                                                                                      \
    "--layers 4 --width 32 --heads 4 --context 32 --vocab 257 --micro-batch 2 --device cpu "       \
    "--threads 1 "
#define LLAMA                                                                                      \
    "--arch llama --layers 4 --width 32 --heads 4 --kv-heads 2 --head-size 8 --ffn 64 "            \
    "--context 32 --micro-batch 2 --device cpu --threads 1 "

/* How ranks share a model; where nothing is split by features, numbers are those of one process. */
static const struct layout {
    int ranks;
    const char *options;
    bool is_exact;
} layouts[] = {
    {2, "--zero 3", true},
    {2, "--pp 2", true},
    {8, "--tp 2 --pp 2 --dp 2 --zero 3", false},
};

enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static int set_up_models(void **state)
{
    if (set_up(state) != 0)
        return 1;
    assert_code(sluice("train " MODEL "--data text --steps 60 --lr 3e-3 --quiet --save model"), 0);
    assert_code(sluice("train " LLAMA "--data text --steps 20 --lr 3e-3 --quiet --save llama"), 0);
    assert_code(sluice("train --init model --data text --micro-batch 2 --device cpu --steps 10 "
                       "--lr 3e-2 --lora-rank 4 --quiet --save adapted"),
                0);
    assert_code(sluice("convert --from adapted --to peft --format peft --quiet"), 0);
    FILE *file = fopen("words.jsonl", "w");
    assert_non_null(file);
    for (int i = 0; i < 7; i++)
        fprintf(file, "{\"text\": \"the water falls %.*sof the boat\"}\n", i * 3,
                "and and and and and and and ");
    fclose(file);
    return 0;
}

static int launch(const struct layout *layout, const char *words)
{
    return sluice("launch -n %d -- %s --device cpu %s", layout->ranks, words, layout->options);
}

/* How often the starter's complaint says so. */
static int count_said(const char *part)
{
    int count = 0;
    for (const char *at = complaint; (at = strstr(at, part)) != NULL; at++)
        count++;
    return count;
}

/* ---- eval ---- */

static void assert_same_figures(const json_t *one, const json_t *ranks, double tolerance)
{
    const char *key;
    json_t *value;
    assert_int_equal(json_object_size(one), json_object_size(ranks));
    json_object_foreach((json_t *)one, key, value)
    {
        const json_t *other = json_object_get(ranks, key);
        const double a = json_number_value(value), b = json_number_value(other);
        const bool is_same = json_equal(value, (json_t *)other);
        if (!is_same && (!json_is_real(value) || !(fabs(a - b) <= tolerance * fabs(a))))
            fail_msg("%s is %.17g, and %.17g of ranks", key, a, b);
    }
}

static void eval_when_on_ranks_then_figures_are_those_of_one_process(void **state)
{
    (void)state;
    /* Of two ranks sums of some hundred products are rounded otherwise: by 2^-24, or in bf16 by
     * 2^-8; and the parts of a matrix have other blocks of 8 bits, each off by 2^-8 of its largest
     * element. Of the loss that is less, of its exponential some times as much. */
    static const struct {
        const char *words;
        double tolerance;
    } evaluations[] = {
        {"eval model --json --data text", 1e-5},
        {"eval model --json --data text --overlap 20 --eval-iters 31 --micro-batch 3", 1e-5},
        {"eval model --json --last-word --data words.jsonl --micro-batch 2", 1e-5},
        {"eval llama --json --data text --eval-iters 9", 1e-5},
        {"eval model --json --data text --adapter peft --eval-iters 5 --precision bf16", 1e-2},
        {"eval model --json --data text --weights int8 --eval-iters 5", 1e-2},
        {"eval model --json --data text --eval-iters 5 --policy nvme --nvme-params 1 --disk-dir .",
         1e-5},
    };
    for (size_t i = 0; i < sizeof evaluations / sizeof evaluations[0]; i++) {
        assert_code(sluice("%s --device cpu", evaluations[i].words), 0);
        json_t *one = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(one);
        for (int l = i < 3 ? 0 : LAYOUTS - 1; l < LAYOUTS; l++) {
            assert_code(launch(&layouts[l], evaluations[i].words), 0);
            json_t *ranks = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
            assert_non_null(ranks);
            assert_same_figures(one, ranks, layouts[l].is_exact ? 0 : evaluations[i].tolerance);
            json_decref(ranks);
        }
        json_decref(one);
    }
}

/* A signal may come before the first micro-batch; then there are no figures. */
static void eval_when_interrupted_then_all_ranks_end_together(void **state)
{
    (void)state;
    char command[COMMAND_BYTES];
    snprintf(
        command, sizeof command,
        "for i in 1 2 3 4 5 6; do cat text text text text text text text text; done > long; "
        "'%s' launch -n 2 -- eval model --data long --overlap 31 --micro-batch 1 "
        "--device cpu --json >out 2>err </dev/null & sleep 1.5; kill -INT $! || exit 99; wait $!",
        binary);
    const int status = system(command);
    read_text("out", output);
    read_complaint("err");
    assert_true(WIFEXITED(status));
    assert_code(WEXITSTATUS(status), 0);
    json_t *figures = json_loads(output, 0, NULL);
    if (figures)
        assert_true(json_is_true(json_object_get(figures, "partial")));
    else
        assert_has(complaint, "the work had not begun");
    json_decref(figures);
    assert_int_equal(count_said("stopping"), 1);
}

/* ---- generate ---- */

static void generate_when_on_ranks_then_the_text_is_that_of_one_process(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        int first, end; /* of the layouts */
    } texts[] = {
        {"generate model --prompt 'the gate' --tokens 40 --samples 3 --seed 5", 0, LAYOUTS},
        {"generate llama --prompt water --tokens 12 --samples 2", LAYOUTS - 1, LAYOUTS},
        {"generate model --tokens 9 --weights int8 --adapter peft --repetition-penalty 1.2", 0, 2},
        {"generate model --prompt the --tokens 9 --temperature 0 --policy nvme --nvme-params 1 "
         "--disk-dir .",
         LAYOUTS - 1, LAYOUTS},
    };
    static char one[TEXT_BYTES];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_code(sluice("%s --device cpu", texts[i].words), 0);
        memcpy(one, output, sizeof one);
        for (int l = texts[i].first; l < texts[i].end; l++) {
            assert_code(launch(&layouts[l], texts[i].words), 0);
            assert_string_equal(output, one);
        }
    }
}

static void generate_when_interrupted_then_all_ranks_end_together(void **state)
{
    (void)state;
    char command[COMMAND_BYTES];
    snprintf(
        command, sizeof command,
        "'%s' launch -n 2 -- generate model --prompt the --tokens 1000000 --tp 2 --temperature 0 "
        "--device cpu >out 2>err </dev/null & sleep 1.5; kill -INT $! || exit 99; wait $!",
        binary);
    const int status = system(command);
    read_complaint("err");
    assert_true(WIFEXITED(status));
    assert_code(WEXITSTATUS(status), 0);
}

/* Lines and a text that the first rank reads; what is behind "stop" is not asked for. */
static void generate_when_it_reads_input_on_ranks_then_the_text_is_that_of_one_process(void **state)
{
    (void)state;
    static const char *const words[] = {
        "generate model --interactive --tokens 10 --temperature 0 --device cpu",
        "generate model --prompt - --tokens 10 --samples 2 --device cpu"};
    static const char *const inputs[] = {"the gate\n\nwater\nstop\nwater\n", "\n\nthe lock"};
    static char one[TEXT_BYTES];
    for (int i = 0; i < 2; i++) {
        for (int cut = 0; cut < 2 - i; cut++) { /* stop; the end of input, amid a line */
            FILE *file = fopen("lines", "w");
            assert_non_null(file);
            fprintf(file, "%.*s", cut ? 14 : 40, inputs[i]);
            fclose(file);
            assert_code(run_with_input(words[i], "lines"), 0);
            memcpy(one, output, sizeof one);
            for (int l = 0; l < LAYOUTS; l++) {
                char command[COMMAND_BYTES];
                snprintf(command, sizeof command, "launch -n %d -- %s %s", layouts[l].ranks,
                         words[i], layouts[l].options);
                assert_code(run_with_input(command, "lines"), 0);
                assert_string_equal(output, one);
                if (i == 0)
                    assert_int_equal(count_said(cut ? "sluice: end of input" : "sluice: stopped"),
                                     1);
            }
        }
    }
}

/* Nobody types; a signal to the launcher ends all, the death of a rank too. */
static void generate_when_it_waits_for_a_line_then_signals_and_deaths_end_all(void **state)
{
    (void)state;
    static const struct {
        const char *act;
        int code;
    } ends[] = {{"kill -INT $starter", 0},
                {"kill -KILL $(cut -d ' ' -f 2 /proc/$starter/task/$starter/children)", 75}};
    for (int i = 0; i < 2; i++) {
        char command[COMMAND_BYTES];
        snprintf(command, sizeof command,
                 "mkfifo typed.%d; sleep 60 >typed.%d & typist=$!; "
                 "'%s' launch -n 2 -- generate model --interactive --pp 2 --device cpu >out 2>err "
                 "<typed.%d & starter=$!; "
                 "n=0; until grep -q 'each line' err || [ $n = 200 ]; do n=$((n + 1)); sleep 0.1; "
                 "done; sleep 0.3; %s; wait $starter; code=$?; kill $typist; exit $code",
                 i, i, binary, i, ends[i].act);
        const int status = system(command);
        read_complaint("err");
        assert_true(WIFEXITED(status));
        assert_code(WEXITSTATUS(status), ends[i].code);
        assert_has(complaint, "each line is a prompt");
    }
}

/* ---- profile ---- */

#define STEP MODEL "--accumulate 2 --tp 2 --pp 2 --dp 2 --zero 3 "

static json_int_t find_count(const json_t *object, const char *a, const char *b)
{
    const json_t *value = json_object_get(json_object_get(object, a), b);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static json_t *load_profile(const char *name)
{
    json_error_t error;
    json_t *profile = json_load_file(name, JSON_REJECT_DUPLICATES, &error);
    if (!profile)
        fail_msg("%s: %s", name, error.text);
    return profile;
}

/* The sums of all ranks, each with what it measured by itself. */
static void assert_sums(const json_t *ranks)
{
    static const char *const lanes[] = {"h2d", "d2h", "read", "write"};
    static const char *const comms[] = {"world", "tp", "dp", "pp"};
    static const char *const tiers[] = {"device", "host", "disk"};
    const json_t *each = json_object_get(ranks, "each");
    json_int_t moved[4] = {0}, sent[4] = {0}, planned[3] = {0};
    size_t index;
    json_t *rank;
    json_array_foreach((json_t *)each, index, rank)
    {
        for (int i = 0; i < 4; i++) {
            const json_t *lane = json_object_get(json_object_get(rank, "lanes"), lanes[i]);
            moved[i] += json_integer_value(json_object_get(lane, "moved_bytes"));
            sent[i] += find_count(rank, "comm_bytes", comms[i]);
        }
        for (int i = 0; i < 3; i++) {
            const json_t *tier = json_object_get(rank, "tiers");
            const json_int_t peak = find_count(tier, tiers[i], "planned_peak_bytes");
            assert_int_equal(peak, find_count(tier, tiers[i], "measured_peak_bytes"));
            planned[i] += peak;
        }
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(moved[i], find_count(ranks, "moved_bytes", lanes[i]));
        assert_int_equal(sent[i], find_count(ranks, "comm_bytes", comms[i]));
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(planned[i], find_count(json_object_get(ranks, "tiers"), tiers[i],
                                                "planned_peak_bytes"));
}

static double find_own_ms(const json_t *rank)
{
    const json_t *compute = json_object_get(json_object_get(rank, "lanes"), "compute");
    return json_number_value(json_object_get(rank, "step_ms")) -
           json_number_value(json_object_get(json_object_get(compute, "wait_ms"), "comm"));
}

/* It waits less for others than any other rank. */
static void assert_slowest(const json_t *ranks)
{
    const json_t *each = json_object_get(ranks, "each");
    const json_int_t slowest = json_integer_value(json_object_get(ranks, "slowest"));
    size_t index;
    json_t *rank;
    json_array_foreach((json_t *)each, index, rank)
    {
        assert_true(find_own_ms(rank) <= find_own_ms(json_array_get(each, (size_t)slowest)));
    }
}

static void profile_when_on_ranks_then_it_has_all_of_them(void **state)
{
    (void)state;
    assert_code(sluice("launch -n 8 -- profile " STEP
                       "--profile-steps 2 --policy nvme --disk-dir . "
                       "--nvme-params 0.5 --host-memory 2400K --json p.json --report p.html"),
                0);
    assert_has(output, "the slowest is rank ");
    assert_has(output, "measured peaks of all ranks: equal to the planned ones, to the byte");
    assert_int_equal(count_said("starts 8 ranks"), 1);
    json_t *profile = load_profile("p.json");
    const json_t *ranks = json_object_get(profile, "ranks");
    const json_t *each = json_object_get(ranks, "each");
    assert_int_equal(json_array_size(each), 8);
    assert_sums(ranks);
    assert_slowest(ranks);
    assert_true(find_count(ranks, "moved_bytes", "read") > 0);
    for (json_int_t rank = 0; rank < 8; rank++) {
        const json_t *of = json_array_get(each, (size_t)rank);
        assert_int_equal(json_integer_value(json_object_get(of, "tensor_rank")), rank % 2);
        assert_int_equal(json_integer_value(json_object_get(of, "data_rank")), rank / 2 % 2);
        assert_int_equal(json_integer_value(json_object_get(of, "stage")), rank / 4);
    }
    json_t *page = read_page("p.html");
    const json_t *drawn = json_object_get(json_object_get(page, "measured"), "ranks");
    assert_int_equal(json_array_size(json_object_get(drawn, "each")), 8);
    assert_int_equal(json_integer_value(json_object_get(drawn, "slowest")),
                     json_integer_value(json_object_get(ranks, "slowest")));
    json_decref(page);
    json_decref(profile);
}

/* Three steps of a training send and move three times what a step of the profile does. */
static void profile_when_on_ranks_then_exchanges_are_those_of_train(void **state)
{
    (void)state;
    enum { STEPS = 3 };
    static const char *const comms[] = {"tp", "dp", "pp"};
    json_int_t sent[3] = {0}, peak = 0;
    assert_code(sluice("launch -n 8 -- train " STEP "--data text --steps 3 --quiet --log-json log"),
                0);
    assert_code(sluice("launch -n 8 -- profile " STEP "--profile-steps 2 --quiet --json p.json"),
                0);
    json_t *log = read_log("log"), *profile = load_profile("p.json");
    const json_t *ranks = json_object_get(profile, "ranks");
    size_t index;
    json_t *event;
    json_array_foreach(log, index, event)
    {
        for (int i = 0; strcmp(kind_of(event), "step") == 0 && i < 3; i++)
            sent[i] += find_count(event, "comm_bytes", comms[i]);
    }
    for (int i = 0; i < 3; i++) {
        assert_true(sent[i] > 0);
        assert_int_equal(sent[i], STEPS * find_count(ranks, "comm_bytes", comms[i]));
    }
    json_unpack((json_t *)find_last_event(log, "end"), "{s:{s:{s:I}}}", "tiers", "device",
                "planned_peak_bytes", &peak);
    assert_int_equal(peak,
                     find_count(json_object_get(ranks, "tiers"), "device", "most_planned_bytes"));
    json_decref(log);
    json_decref(profile);
}

static void profile_when_interrupted_then_all_ranks_end_together(void **state)
{
    (void)state;
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command,
             "'%s' launch -n 2 -- profile " MODEL "--tp 2 --profile-steps 100000 --quiet --json "
             "stopped.json >out 2>err </dev/null & sleep 1.5; kill -INT $! || exit 99; wait $!",
             binary);
    const int status = system(command);
    read_text("out", output);
    read_complaint("err");
    assert_true(WIFEXITED(status));
    assert_code(WEXITSTATUS(status), 0);
    if (strstr(output, "steps were measured") != NULL) {
        json_t *profile = load_profile("stopped.json");
        assert_true(json_is_true(json_object_get(profile, "was_stopped")));
        assert_sums(json_object_get(profile, "ranks"));
        json_decref(profile);
    }
}

/* ---- bench ---- */

static void bench_when_on_ranks_then_each_exchange_has_a_rate(void **state)
{
    (void)state;
    static const char *const names[] = {"all_reduce of 3 ranks", "reduce_scatter of 3 ranks",
                                        "all_gather of 3 ranks", "exchange of 3 ranks"};
    setenv("XDG_CONFIG_HOME", work_directory, 1);
    assert_code(sluice("launch -n 3 -- bench --only comm --quick --device cpu --json"), 0);
    json_t *bench = json_loads(output, JSON_REJECT_DUPLICATES, NULL), *row;
    const json_t *rows = json_object_get(bench, "rows");
    size_t index, found[4] = {0};
    json_array_foreach((json_t *)rows, index, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        assert_true(json_number_value(json_object_get(row, "median")) > 0);
        assert_true(json_number_value(json_object_get(row, "roof")) > 0);
        for (int i = 0; i < 4; i++)
            found[i] += strncmp(name, names[i], strlen(names[i])) == 0;
    }
    assert_int_equal(found[0], 4); /* two sizes in two types */
    assert_int_equal(found[1], 4);
    assert_int_equal(found[2], 2);
    assert_int_equal(found[3], 2);
    json_decref(bench);
    assert_int_equal(access("sluice/machine.json", F_OK), -1);
    unsetenv("XDG_CONFIG_HOME");
}

/* ---- refusals ---- */

static void refusals_of_ranks_are_printed_once(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *words;
        int code;
        const char *says;
    } cases[] = {
        {3, "eval model --data text --tp 2", 64, "there are 3 ranks and --tp 2"},
        {2, "eval model --data none", 66, "none: cannot be opened"},
        {2, "eval model --data text --device-memory 8K", 69, "it does not fit"},
        {8, "eval model --data text --pp 8", 64, "too few for 8 stages"},
        {4, "eval llama --data text --tp 4 --pp 1 --dp 2", 64, "--dp that does not fit"},
        {8, "generate model --tp 8 --prompt a", 64, "--tp 4 at most"},
        {2, "generate none --prompt a", 66, "none"},
        {3, "profile " MODEL "--tp 2", 64, "there are 3 ranks and --tp 2"},
        {2, "profile " MODEL "--json none/p.json", 74, "none/p.json: cannot be made"},
        {2, "profile " MODEL "--device-memory 8K", 69, "it does not fit"},
        {2, "bench --quick", 64, "add --only comm"},
        {2, "bench --quick --only comm,gemm", 64, "add --only comm"},
        {2, "bench --quick --only comm --output rates", 64, "no part of a machine profile"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int code = sluice("launch -n %d -- %s --device cpu", cases[i].ranks, cases[i].words);
        assert_code(code, cases[i].code);
        if (count_said(cases[i].says) != 1)
            fail_msg("%s: \"%s\" is not said once: %s", cases[i].words, cases[i].says, complaint);
    }
}

/* Ranks have files and options of their own; what differs is named. */
static void ranks_when_they_differ_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"generate model --interactive --device cpu", "let sluice launch start sluice itself"},
        {"generate model --prompt - --device cpu", "let sluice launch start sluice itself"},
        {"generate model --prompt p$SLUICE_RANK --device cpu", "the prompt"},
        {"generate model --prompt p --tokens 1$SLUICE_RANK --device cpu", "--tokens"},
        {"eval model --data text.$SLUICE_RANK --device cpu", "--data"},
        {"eval model.$SLUICE_RANK --data text --device cpu", "--checkpoint"},
        {"eval model --last-word --data words.$SLUICE_RANK --device cpu", "--data"},
        {"profile " MODEL "--accumulate $((1 + SLUICE_RANK))", "--accumulate"},
    };
    assert_int_equal(system("cp text text.0; tail -c +2 text > text.1; ln -s model model.0; "
                            "cp -r model model.1; cp words.jsonl words.0; "
                            "tail -n +2 words.jsonl > words.1"),
                     0);
    assert_code(sluice("train --resume --steps 61 --save model.1 --quiet"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_code(sluice("launch -n 2 -- sh -c 'exec \"%s\" %s'", binary, cases[i][0]), 64);
        assert_has(complaint, cases[i][1]);
    }
}

/* A file of options serves every command, those of ranks too. */
static void commands_when_alone_pass_over_options_of_ranks(void **state)
{
    (void)state;
    assert_int_equal(system("echo '{\"tp\": 2, \"pp\": 2, \"zero\": 3}' > ranks.json"), 0);
    assert_code(sluice("eval model --data text --config ranks.json --device cpu"), 0);
    assert_one_complaint("this process is alone");
    assert_code(sluice("generate model --prompt a --tokens 3 --config ranks.json --device cpu"), 0);
    assert_one_complaint("this process is alone");
    assert_code(sluice("profile " MODEL "--config ranks.json"), 64);
    assert_one_complaint("sluice launch -n 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eval_when_on_ranks_then_figures_are_those_of_one_process),
        cmocka_unit_test(eval_when_interrupted_then_all_ranks_end_together),
        cmocka_unit_test(generate_when_on_ranks_then_the_text_is_that_of_one_process),
        cmocka_unit_test(generate_when_interrupted_then_all_ranks_end_together),
        cmocka_unit_test(
            generate_when_it_reads_input_on_ranks_then_the_text_is_that_of_one_process),
        cmocka_unit_test(generate_when_it_waits_for_a_line_then_signals_and_deaths_end_all),
        cmocka_unit_test(profile_when_on_ranks_then_it_has_all_of_them),
        cmocka_unit_test(profile_when_on_ranks_then_exchanges_are_those_of_train),
        cmocka_unit_test(profile_when_interrupted_then_all_ranks_end_together),
        cmocka_unit_test(bench_when_on_ranks_then_each_exchange_has_a_rate),
        cmocka_unit_test(refusals_of_ranks_are_printed_once),
        cmocka_unit_test(ranks_when_they_differ_are_refused),
        cmocka_unit_test(commands_when_alone_pass_over_options_of_ranks),
    };
    return cmocka_run_group_tests(tests, set_up_models, tear_down);
}
