/* Calls of the library on ranks: sl_evaluate, sl_generate, sl_profile and sl_session_generate. What
 * could be wrong: a rank does the whole work and the others nothing, or all do all of it; figures
 * or texts differ from those of one process, or between ranks; a process can join its ranks only
 * once; a call that one rank does not make, or that fails on one, is waited for by the others; the
 * text of a session leaves out what another rank stores, or changes what is trained.
 *
 * With arguments this program is a rank of `sluice launch`: the first one says what it does, the
 * others are names and values of options.
 */
#define _GNU_SOURCE
#include "session_case.h"

#include "sluice/comm.h"

static char program[PATH_BYTES];

/* ---- a rank ---- */

enum { GIVEN_MAX = 40 };

/* Pairs for a call: those that it always has, and those of the layout. */
typedef struct pairs {
    const char *words[GIVEN_MAX + 1];
} pairs;

static pairs join(const char *const *own, char *const *layout)
{
    pairs all = {{NULL}};
    int count = 0;
    for (; own[0] && count < GIVEN_MAX; own++)
        all.words[count++] = own[0];
    for (; layout[0] && count < GIVEN_MAX; layout++)
        all.words[count++] = layout[0];
    return all;
}

static uint32_t find_rank(void)
{
    const char *text = getenv("SLUICE_RANK");
    return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

static sl_status add_text(void *user, uint32_t sample, const char *bytes, uint64_t byte_count)
{
    char *text = user;
    const size_t length = strlen(text);
    snprintf(text + length, TEXT_BYTES - length, "%u:%.*s|", sample, (int)byte_count, bytes);
    return SL_OK;
}

static sl_status refuse_on_last(void *user, uint32_t sample, const char *bytes, uint64_t byte_count)
{
    (void)user, (void)sample, (void)bytes, (void)byte_count;
    return find_rank() == 1 ? sl_status_set(SL_ERROR_IO, "rank 1 listens no more") : SL_OK;
}

static const char *const eval_words[] = {"checkpoint", "model",  "data", "text", "eval-iters",
                                         "7",          "device", "cpu",  NULL};
static const char *const text_words[] = {"checkpoint", "model", "tokens", "30",  "samples", "3",
                                         "seed",       "5",     "device", "cpu", NULL};

/* Each rank keeps what it got in a file of its own. */
static sl_status keep(const char *what, const char *text)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%u", what, find_rank());
    FILE *file = fopen(name, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0)
        return sl_status_set(SL_ERROR_IO, "the test cannot write");
    return SL_OK;
}

static sl_status evaluate(char *const *layout)
{
    const pairs words = join(eval_words, layout);
    char *text;
    sl_status status = sl_evaluate(words.words, &text);
    if (status == SL_OK)
        status = keep("figures", text);
    if (status == SL_OK)
        free(text);
    return status;
}

static sl_status generate(char *const *layout)
{
    static char text[TEXT_BYTES];
    const pairs words = join(text_words, layout);
    text[0] = '\0';
    sl_status status = sl_generate(words.words, "the gate", add_text, text);
    return status == SL_OK ? keep("text", text) : status;
}

static sl_options *layout_options(char *const *layout)
{
    sl_options *options = tiny_options(NULL);
    must(sl_options_set(options, "accumulate", "2"));
    must(sl_options_set(options, "device", "cpu"));
    must(sl_options_set_all(options, (const char *const *)layout));
    return options;
}

/* ---- a session that is asked for text ---- */

static const char *const session_words[] = {"tokens", "30", "samples", "3", "seed", "5", NULL};

static sl_status open_session(char *const *layout, sl_session **out_session)
{
    sl_options *options = layout_options(layout);
    must(sl_options_set(options, "data", "text"));
    must(sl_options_set(options, "save", "kept"));
    must(sl_options_set(options, "overwrite", "true"));
    must(sl_options_set(options, "lr", "1e-2"));
    const sl_status status = sl_session_open(options, out_session);
    sl_options_close(options);
    return status;
}

static sl_status step_and_save(sl_session *session)
{
    sl_status status = SL_OK;
    for (int step = 0; step < 3 && status == SL_OK; step++)
        status = sl_session_step(session, NULL);
    return status == SL_OK ? sl_session_save(session) : status;
}

static sl_status keep_last_loss(sl_session *session)
{
    char text[64];
    sl_step_result step = {.size = sizeof step};
    const sl_status status = sl_session_step(session, &step);
    snprintf(text, sizeof text, "%a", step.loss);
    return status == SL_OK ? keep("loss", text) : status;
}

/* A copy that finds no room on one rank is refused on all of them, and the session goes on. */
static sl_status ask_for_too_much(sl_session *session)
{
    static const char *const words[] = {"tokens", "4", "device-memory", "4096", "host-memory",
                                        "4096",   NULL};
    static const char *const others[] = {"tokens", "4", NULL};
    static char text[TEXT_BYTES];
    const sl_status status =
        sl_session_generate(session, find_rank() == 1 ? words : others, "the gate", add_text, text);
    return status == SL_ERROR_FIT
               ? SL_OK
               : sl_status_set(SL_ERROR_INTERNAL, "a copy without room is not refused");
}

static sl_status write_text(sl_session *session)
{
    static char text[TEXT_BYTES];
    text[0] = '\0';
    sl_status status = ask_for_too_much(session);
    if (status == SL_OK)
        status = sl_session_generate(session, session_words, "the gate", add_text, text);
    return status == SL_OK ? keep("text", text) : status;
}

static sl_status use_session(char *const *layout, bool writes_text)
{
    sl_session *session;
    sl_status status = open_session(layout, &session);
    if (status != SL_OK)
        return status;
    status = step_and_save(session);
    if (status == SL_OK && writes_text)
        status = write_text(session);
    if (status == SL_OK)
        status = keep_last_loss(session);
    const sl_status closed = sl_session_close(session);
    return status == SL_OK ? closed : status;
}

/* Rank 1's function fails: both ranks know, and neither can go on. */
static sl_status fail_in_session(char *const *layout)
{
    static const char *const words[] = {"tokens", "30", NULL};
    static const char *const divided[] = {"tp", "2", NULL}, *const wrong[] = {"threads", "-", NULL};
    sl_session *session;
    sl_status status = open_session(layout, &session);
    if (status != SL_OK)
        return status;
    status = sl_session_generate(session, divided, "the gate", add_text, NULL);
    const bool is_refused = status == SL_ERROR_USAGE && strstr(sl_status_message(), "tp");
    status =
        sl_session_generate(session, find_rank() == 1 ? wrong : words, "the gate", add_text, NULL);
    const bool all_refuse = status == SL_ERROR_USAGE;
    status = sl_session_generate(session, words, "the gate", refuse_on_last, NULL);
    const bool is_told = status == (find_rank() == 1 ? SL_ERROR_IO : SL_ERROR_RANK);
    const bool is_over = sl_session_step(session, NULL) == status;
    (void)sl_session_close(session);
    return is_refused && all_refuse && is_told && is_over
               ? SL_OK
               : sl_status_set(SL_ERROR_INTERNAL, "a failure in a session is told otherwise");
}

static sl_status profile(sl_options *options)
{
    char *text;
    sl_status status = sl_profile(options, 1, &text);
    if (status == SL_OK)
        status = keep("profile", text);
    if (status == SL_OK)
        free(text);
    return status;
}

static sl_status train_once(sl_options *options)
{
    sl_session *session;
    sl_status status = sl_options_set(options, "data", "text");
    if (status == SL_OK)
        status = sl_session_open(options, &session);
    if (status != SL_OK)
        return status;
    status = sl_session_step(session, NULL);
    const sl_status closed = sl_session_close(session);
    return status == SL_OK ? closed : status;
}

/* All calls, one after the other, while the first world of the ranks is open. */
static sl_status call_all(char *const *layout, bool profiles)
{
    sl_comm *world;
    float sum = 1;
    sl_options *options = layout_options(layout);
    sl_status status = sl_comm_open(0, &world);
    if (status != SL_OK)
        return status;
    status = profiles ? profile(options) : SL_OK;
    if (status == SL_OK)
        status = evaluate(layout);
    if (status == SL_OK)
        status = train_once(options);
    if (status == SL_OK)
        status = generate(layout);
    if (status == SL_OK)
        status = sl_comm_all_reduce(world, SL_COMM_FP32, 1, &sum);
    if (status == SL_OK && (uint32_t)sum != sl_comm_size(world))
        status = sl_status_set(SL_ERROR_INTERNAL, "the first world has suffered");
    sl_comm_close(world);
    sl_options_close(options);
    return status;
}

/* Rank 1 fails in the first call: both know, and the next call has ranks that are well. */
static sl_status call_after_failure(char *const *layout)
{
    const pairs words = join(text_words, layout);
    const sl_status status = sl_generate(words.words, "the gate", refuse_on_last, NULL);
    const char *part = find_rank() == 1 ? "listens no more" : "rank 1";
    if (status != (find_rank() == 1 ? SL_ERROR_IO : SL_ERROR_RANK) ||
        !strstr(sl_status_message(), part))
        return sl_status_set(SL_ERROR_INTERNAL, "the failure is told otherwise");
    return evaluate(layout);
}

/* Rank 1 makes one call, rank 0 a second one. */
static sl_status call_alone(char *const *layout)
{
    sl_status status = evaluate(layout);
    return status == SL_OK && find_rank() == 0 ? evaluate(layout) : status;
}

static int run_rank(const char *what, char *const *layout)
{
    sl_status status = SL_ERROR_USAGE;
    if (strcmp(what, "all") == 0 || strcmp(what, "profile") == 0)
        status = call_all(layout, strcmp(what, "profile") == 0);
    else if (strcmp(what, "failure") == 0)
        status = call_after_failure(layout);
    else if (strcmp(what, "alone") == 0)
        status = call_alone(layout);
    else if (strcmp(what, "text") == 0 || strcmp(what, "train") == 0)
        status = use_session(layout, strcmp(what, "text") == 0);
    else if (strcmp(what, "refusal") == 0)
        status = fail_in_session(layout);
    if (status != SL_OK)
        fprintf(stderr, "rank %u: %s\n", find_rank(), sl_status_message());
    return sl_status_exit_code(status);
}

/* ---- the test ---- */

static int set_up_model(void **state)
{
    if (set_up(state) != 0)
        return 1;
    assert_code(sluice("train --layers 4 --width 32 --heads 4 --context 32 --vocab 257 "
                       "--micro-batch 2 --device cpu --threads 1 --data text --steps 30 --lr 3e-3 "
                       "--quiet --save model"),
                0);
    return 0;
}

static void launch(int ranks, const char *words)
{
    const int code = sluice("launch -n %d -- %s %s", ranks, program, words);
    assert_code(code, 0);
}

static void read_kept(const char *what, int rank, char *text)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%d", what, rank);
    read_text(name, text);
}

static double read_loss(const char *text)
{
    json_t *figures = json_loads(text, 0, NULL);
    const double loss = json_number_value(json_object_get(figures, "loss"));
    json_decref(figures);
    return loss;
}

static void assert_profile(int rank, int ranks)
{
    char name[64];
    snprintf(name, sizeof name, "profile.%d", rank);
    json_t *object = json_load_file(name, 0, NULL);
    const json_t *each = json_object_get(json_object_get(object, "ranks"), "each");
    assert_non_null(object);
    assert_int_equal(json_array_size(each), ranks);
    json_decref(object);
}

/* Tensor-parallel ranks round sums in another order than one process: as in test_command_on_ranks.
 */
static void calls_when_on_ranks_then_results_are_those_of_one_process(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *words;
        bool is_exact, has_profile;
    } runs[] = {{2, "all dp 2", true, false},
                {2, "all pp 2", true, false},
                {2, "profile zero 3", true, true},
                {2, "all tp 2", false, false},
                {8, "profile tp 2 pp 2 dp 2 zero 3", false, true}};
    static char figures[TEXT_BYTES], text[TEXT_BYTES], got[TEXT_BYTES];
    char *const alone[] = {NULL};
    must(evaluate(alone));
    must(generate(alone));
    read_kept("figures", 0, figures);
    read_kept("text", 0, text);
    assert_code(sluice("eval model --data text --eval-iters 7 --device cpu --json"), 0);
    assert_int_equal(strncmp(output, figures, strlen(figures)), 0);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        launch(runs[i].ranks, runs[i].words);
        for (int rank = 0; rank < runs[i].ranks; rank++) {
            read_kept("figures", rank, got);
            if (runs[i].is_exact)
                assert_string_equal(got, figures);
            assert_true(fabs(read_loss(got) - read_loss(figures)) <= 1e-5 * read_loss(figures));
            read_kept("text", rank, got);
            assert_string_equal(got, text);
            if (runs[i].has_profile)
                assert_profile(rank, runs[i].ranks);
        }
    }
}

static void calls_when_one_rank_fails_then_the_next_call_works(void **state)
{
    (void)state;
    static char figures[TEXT_BYTES], got[TEXT_BYTES];
    char *const alone[] = {NULL};
    must(evaluate(alone));
    read_kept("figures", 0, figures);
    launch(2, "failure pp 2");
    for (int rank = 0; rank < 2; rank++) {
        read_kept("figures", rank, got);
        assert_string_equal(got, figures);
    }
}

static void calls_when_another_rank_has_ended_then_they_fail(void **state)
{
    (void)state;
    assert_code(sluice("launch -n 2 -- %s alone pp 2", program), 75);
    assert_has(complaint, "rank 1 of this machine");
    assert_has(complaint, "ended");
}

/* What rank 0 has to write from the checkpoint of a session, alone. */
static void write_from_checkpoint(const char *precision, char *text)
{
    const char *const words[] = {"checkpoint", "kept",      "device",  "cpu", "threads",
                                 "1",          "precision", precision, NULL};
    char *session[sizeof session_words / sizeof *session_words];
    memcpy(session, session_words, sizeof session);
    const pairs all = join(words, session);
    text[0] = '\0';
    must(sl_generate(all.words, "the gate", add_text, text));
}

/* As above, of the model of a session that is trained: parameters are in shards, in parts, in
 * stages, or all of it. */
static void text_of_a_session_when_on_ranks_then_is_that_of_its_checkpoint(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *words, *precision;
    } runs[] = {{2, "zero 3 policy host", "fp32"},
                {2, "zero 1 precision bf16", "bf16"},
                {2, "tp 2 split-layout colossal", "fp32"},
                {4, "tp 2 pp 2 stages 1,1", "fp32"},
                {8, "tp 2 pp 2 dp 2 zero 3", "fp32"}};
    static char text[TEXT_BYTES], got[TEXT_BYTES], loss[TEXT_BYTES], words[PATH_BYTES];
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        snprintf(words, sizeof words, "train %s", runs[i].words);
        launch(runs[i].ranks, words);
        read_kept("loss", 0, loss);
        snprintf(words, sizeof words, "text %s", runs[i].words);
        launch(runs[i].ranks, words);
        write_from_checkpoint(runs[i].precision, text);
        assert_true(strlen(text) > 0);
        for (int rank = 0; rank < runs[i].ranks; rank++) {
            read_kept("text", rank, got);
            assert_string_equal(got, text);
        }
        read_kept("loss", 0, got);
        assert_string_equal(got, loss);
    }
    launch(2, "refusal pp 2");
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return run_rank(argv[1], argv + 2);
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_when_on_ranks_then_results_are_those_of_one_process),
        cmocka_unit_test(calls_when_one_rank_fails_then_the_next_call_works),
        cmocka_unit_test(text_of_a_session_when_on_ranks_then_is_that_of_its_checkpoint),
        cmocka_unit_test(calls_when_another_rank_has_ended_then_they_fail),
    };
    return cmocka_run_group_tests(tests, set_up_model, tear_down);
}
