/* What could be wrong in the library's sessions: other numbers than the command's; rows, models or
 * tensors of a program's own that come in wrong or are trusted; checkpoints that the command cannot
 * read; sessions that disturb each other; a stop unheard, or a failure untold. */
#define _GNU_SOURCE
#include "session_case.h"

#include <pthread.h>
#include <time.h>

#include "skip.h"
#include "sluice/log.h"

/* ---- beside the command ---- */

static sl_status keep_text(void *user, uint32_t sample, const char *bytes, uint64_t byte_count)
{
    char *text = user;
    const size_t length = strlen(text);
    assert_int_equal(sample, 0);
    assert_true(length + byte_count < TEXT_BYTES);
    memcpy(text + length, bytes, byte_count);
    text[length + byte_count] = '\0';
    return SL_OK;
}

static sl_status refuse_text(void *user, uint32_t sample, const char *bytes, uint64_t byte_count)
{
    (void)user, (void)sample, (void)bytes, (void)byte_count;
    return sl_status_set(SL_ERROR_IO, "nobody listens");
}

/* The command has ended its text with a line end. */
static void assert_text(const char *text)
{
    assert_int_equal(strlen(output), strlen(text) + 1);
    assert_memory_equal(output, text, strlen(text));
}

/* A text of the session as it is now, and of a checkpoint saved now. */
static void compare_text(sl_session *session)
{
    static const char *const settings[] = {"tokens", "40", "seed", "3", "temperature", "1.5", NULL};
    static const char *const of_checkpoint[] = {"checkpoint",  "own", "tokens",  "40", "seed", "3",
                                                "temperature", "1.5", "threads", "1",  NULL};
    static const char *const wrong[] = {"tokns", "40", NULL};
    static char text[TEXT_BYTES];
    text[0] = '\0';
    must(sl_session_generate(session, settings, "the ", keep_text, text));
    assert_code(sluice("generate own --prompt 'the ' --tokens 40 --seed 3 --temperature 1.5 "
                       "--threads 1 --quiet"),
                0);
    assert_text(text);
    text[0] = '\0';
    must(sl_generate(of_checkpoint, "the ", keep_text, text));
    assert_text(text);
    assert_refused(sl_generate(settings, "the ", keep_text, text), SL_ERROR_USAGE, "checkpoint");
    assert_refused(sl_session_generate(session, wrong, "the ", keep_text, text), SL_ERROR_USAGE,
                   "tokens");
    assert_refused(sl_session_generate(session, settings, "the ", refuse_text, NULL), SL_ERROR_IO,
                   "nobody listens");
}

static json_t *parse(const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    return object;
}

/* Bytes as numbers are those of the text; of the options alone, they are the same. */
static void compare_bytes(const sl_session *session, const sl_options *options, json_t *account)
{
    static const char *const tiers[] = {"device", "host", "disk"};
    static const char *const kinds[] = {"param",   "grad",       "master",    "moment1",
                                        "moment2", "activation", "workspace", "staging"};
    sl_planned_bytes bytes = {.size = sizeof bytes}, of_options = bytes;
    must(sl_session_bytes(session, &bytes));
    must(sl_plan_bytes(options, &of_options));
    assert_memory_equal(&bytes, &of_options, sizeof bytes);
    for (int tier = 0; tier < 3; tier++) {
        json_t *of_tier = json_object_get(json_object_get(account, "tiers"), tiers[tier]);
        assert_int_equal(bytes.peaks[tier],
                         json_integer_value(json_object_get(of_tier, "peak_bytes")));
        for (int kind = 0; kind < SL_BYTES_KIND_COUNT; kind++)
            assert_int_equal(bytes.kinds[kind][tier],
                             json_integer_value(json_object_get(of_tier, kinds[kind])));
    }
    assert_true(bytes.peaks[0] > 0 && bytes.kinds[SL_BYTES_MOMENT2][1] > 0);
    assert_int_equal(bytes.budgets[0], 64 << 20);
}

/* The plan of the session, of its options before it was opened, and of the command. */
static void compare_plan(sl_session *session, const sl_options *options)
{
    const char *account = NULL;
    char *planned = NULL;
    must(sl_session_account(session, &account));
    must(sl_session_plan(options, &planned));
    assert_code(sluice("plan " TINY
                       "--threads 1 --device-memory 64M --host-memory 64M --policy host "
                       "--eval-data text --data text --steps 4 --json"),
                0);
    json_t *of_session = parse(account), *of_options = parse(planned), *of_command = parse(output);
    assert_true(json_equal(of_session, of_options));
    compare_bytes(session, options, of_session);
    const char *const keys[] = {"tiers", "moved_bytes_per_step", "predicted_step_ms", "choice"};
    uint32_t compared = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(of_session, keys[i]);
        compared += value != NULL;
        assert_true(!value || json_equal(value, json_object_get(of_command, keys[i])));
    }
    assert_true(compared == 4);
    json_decref(of_session);
    json_decref(of_options);
    json_decref(of_command);
    free(planned);
}

static void session_when_stepped_has_the_log_and_checkpoint_of_the_command(void **state)
{
    (void)state;
    static const char *const more[] = {"policy", "host",      "log-json", "own.json", "save",
                                       "own",    "eval-data", "text",     NULL};
    sl_session *session = NULL;
    double losses[STEPS], loss = 0;
    sl_options *options = tiny_options("text");
    assert_code(sluice("train " TINY "--data text --steps 4 --threads 1 --device-memory 64M "
                       "--host-memory 64M --policy nvme --disk-dir . --disk-space 64M "
                       "--eval-data text --log-json command.json --save saved"),
                0);
    must(sl_options_set_all(options, more));
    must(sl_session_open(options, &session));
    must(sl_options_set(options, "log-json", ""));
    must(sl_options_set(options, "save", "elsewhere"));
    compare_plan(session, options);
    sl_options_close(options);
    train(session, 2, losses);
    must(sl_session_save(session));
    compare_text(session);
    train(session, 2, losses + 2);
    must(sl_session_save(session));
    compare_text(session);
    must(sl_session_evaluate(session, &loss));
    assert_has(sl_session_options(session), "\"policy\"");
    must(sl_session_close(session));
    assert_same_steps("own.json", "command.json", 1, STEPS);
    assert_code(system("cmp own/step-00000004/model.safetensors "
                       "saved/step-00000004/model.safetensors"),
                0);
    json_t *events = read_log("command.json");
    size_t index;
    json_t *event;
    uint32_t evaluations = 0;
    json_array_foreach(events, index, event)
    {
        if (strcmp(kind_of(event), "eval") != 0)
            continue;
        evaluations++;
        assert_true(json_number_value(json_object_get(event, "loss")) == loss);
    }
    assert_int_equal(evaluations, 1);
    json_decref(events);
}

static void session_when_resumed_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    double whole[STEPS], first[STEPS], rest[STEPS];
    sl_session *session = NULL;
    sl_options *options = tiny_options("text");
    must(sl_session_open(options, &session));
    train(session, STEPS, whole);
    must(sl_session_close(session));
    must(sl_options_set(options, "save", "half"));
    must(sl_session_open(options, &session));
    train(session, 2, first);
    must(sl_session_save(session));
    must(sl_session_close(session));
    must(sl_options_set(options, "resume", "true"));
    must(sl_options_set(options, "policy", "host"));
    must(sl_session_open(options, &session));
    train(session, 2, rest);
    must(sl_session_close(session));
    sl_options_close(options);
    assert_memory_equal(first, whole, 2 * sizeof *whole);
    assert_memory_equal(rest, whole + 2, 2 * sizeof *whole);
}

/* ---- what commands tell ---- */

/* The text that the last command printed, but for its line end. */
static void assert_printed(char *text)
{
    assert_text(text);
    free(text);
}

static void plan_when_asked_for_is_what_the_command_prints(void **state)
{
    (void)state;
    static const char *const left_open[] = {"policy", "auto",       "recompute", "auto", "disk-dir",
                                            ".",      "disk-space", "64M",       NULL};
    static const char *const of_ranks[] = {"tp", "2", "pp", "2", "accumulate", "2", NULL};
    char *text = NULL;
    sl_options *options = tiny_options("text");
    must(sl_options_set_all(options, left_open));
    must(sl_session_plan(options, &text));
    assert_has(text, "\"auto\"");
    assert_code(sluice("plan " TINY "--steps 4 --threads 1 --device-memory 64M --host-memory 64M "
                       "--policy auto --recompute auto --disk-dir . --disk-space 64M --data text "
                       "--json"),
                0);
    assert_printed(text);
    sl_options_close(options);

    options = tiny_options("text");
    must(sl_options_set_all(options, of_ranks));
    must(sl_session_plan(options, &text));
    assert_has(text, "\"stage_plans\"");
    assert_code(sluice("plan " TINY "--steps 4 --threads 1 --device-memory 64M --host-memory 64M "
                       "--tp 2 --pp 2 --accumulate 2 --data text --json"),
                0);
    assert_printed(text);
    must(sl_options_set(options, "device-memory", "64K"));
    assert_refused(sl_session_plan(options, &text), SL_ERROR_FIT, "stage ");
    sl_options_close(options);
}

static void evaluation_when_asked_for_is_what_the_command_prints(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "checkpoint", "judged", "data", "text", "data", "text", "seq", "16", "threads", "1", NULL};
    static const char *const words[] = {"checkpoint", "judged",  "data", "words.jsonl", "last-word",
                                        "true",       "threads", "1",    NULL};
    static const char *const no_data[] = {"checkpoint", "judged", NULL};
    static const char *const odd[] = {"checkpoint", NULL};
    char *text = NULL;
    FILE *file = fopen("words.jsonl", "w");
    assert_non_null(file);
    fputs("{\"text\": \"the dog and the cat\"}\n{\"text\": \"a dog\"}\n", file);
    assert_int_equal(fclose(file), 0);
    assert_code(sluice("train " TINY "--data text --steps 2 --threads 1 --save judged"), 0);
    must(sl_evaluate(settings, &text));
    assert_code(sluice("eval judged --data text text --seq 16 --threads 1 --json"), 0);
    assert_printed(text);
    must(sl_evaluate(words, &text));
    assert_has(text, "\"accuracy\"");
    assert_code(sluice("eval judged --data words.jsonl --last-word --threads 1 --json"), 0);
    assert_printed(text);
    assert_refused(sl_evaluate(no_data, &text), SL_ERROR_USAGE, "data");
    assert_refused(sl_evaluate(odd, &text), SL_ERROR_USAGE, "no value");
}

static uint64_t number_at(const json_t *object, const char *first, const char *second,
                          const char *key)
{
    const json_t *number =
        json_object_get(json_object_get(json_object_get(object, first), second), key);
    assert_true(json_is_integer(number));
    return (uint64_t)json_integer_value(number);
}

static void profile_when_asked_for_measures_the_planned_peaks(void **state)
{
    (void)state;
    char *text = NULL;
    sl_options *options = tiny_options(NULL);
    must(sl_options_set(options, "policy", "host"));
    must(sl_profile(options, 2, &text));
    json_t *object = parse(text);
    assert_int_equal(json_integer_value(json_object_get(object, "steps")), 2);
    assert_true(json_number_value(json_object_get(object, "step_ms")) > 0);
    for (int tier = 0; tier < 2; tier++) {
        const char *const name = tier == 0 ? "device" : "host";
        const uint64_t measured = number_at(object, "tiers", name, "measured_peak_bytes");
        assert_true(measured > 0);
        assert_int_equal(measured, number_at(object, "tiers", name, "planned_peak_bytes"));
    }
    json_decref(object);
    free(text);
    assert_refused(sl_profile(options, 0, &text), SL_ERROR_USAGE, "a step");
    must(sl_options_set(options, "tp", "2"));
    assert_refused(sl_profile(options, 1, &text), SL_ERROR_USAGE, "this process is alone");
    sl_options_close(options);
}

/* ---- what a program gives ---- */

typedef struct own_data {
    const char *text;
    size_t length;
    uint32_t calls;
    int32_t wrong_id;  /* 0: none */
    sl_status failure; /* of the call */
} own_data;

/* Rows one behind the other, as --data-order sequential reads them. */
static sl_status give_rows(void *user, uint64_t first_row, uint32_t row_count, uint32_t token_count,
                           int32_t *out_tokens)
{
    own_data *data = user;
    data->calls++;
    if (data->failure != SL_OK)
        return sl_status_set(data->failure, "the rows are gone");
    assert_int_equal(token_count, SEQ + 1);
    for (uint32_t i = 0; i < row_count; i++)
        for (uint32_t t = 0; t < token_count; t++)
            out_tokens[i * token_count + t] = (unsigned char)data->text[(first_row + i) * SEQ + t];
    if (data->wrong_id)
        out_tokens[3] = data->wrong_id;
    return SL_OK;
}

static void rows_when_the_program_gives_them_are_trained_on_as_those_of_a_file(void **state)
{
    (void)state;
    static char text[TEXT_BYTES];
    double of_file[STEPS], of_program[STEPS], loss = 0, own_loss = 0;
    sl_session *session = NULL;
    sl_options *options = tiny_options("text");
    read_text("text", text);
    own_data data = {.text = text, .length = strlen(text)};
    must(sl_options_set(options, "data-order", "sequential"));
    must(sl_options_set(options, "eval-data", "text"));
    must(sl_session_open(options, &session));
    train(session, STEPS, of_file);
    must(sl_session_evaluate(session, &loss));
    must(sl_session_close(session));
    sl_options_close(options);

    options = tiny_options(NULL);
    must(sl_options_set(options, "tokenizer", "byte"));
    must(sl_options_set(options, "vocab", "257"));
    must(sl_options_set(options, "policy", "host"));
    sl_options_set_rows(options, give_rows, &data);
    sl_options_set_eval_rows(options, give_rows, &data, (data.length - 1) / SEQ);
    must(sl_session_open(options, &session));
    train(session, STEPS, of_program);
    assert_int_equal(data.calls, STEPS); /* tokens and targets by one call */
    must(sl_session_evaluate(session, &own_loss));
    assert_memory_equal(of_program, of_file, sizeof of_file);
    assert_true(own_loss == loss);

    data.wrong_id = VOCAB;
    assert_refused(sl_session_step(session, NULL), SL_ERROR_DATA, "is id 257");
    assert_refused(sl_session_step(session, NULL), SL_ERROR_DATA, "failed before");
    (void)sl_session_close(session);
    data.wrong_id = 0;
    data.failure = SL_ERROR_MISSING;
    must(sl_session_open(options, &session));
    assert_refused(sl_session_step(session, NULL), SL_ERROR_MISSING, "the rows are gone");
    (void)sl_session_close(session);
    sl_options_close(options);
}

typedef struct own_model {
    uint32_t width;
    bool is_untied;
    bool has_adapters; /* of LoRA, of all its linear layers */
} own_model;

/* A model without attention. */
static sl_status build_mlp(sl_model *model, const void *user)
{
    const own_model *own = user;
    const uint32_t width = own->width;
    const sl_embedding bytes = {.name = "bytes", .ids = VOCAB, .width = width, .deviation = 0.05f};
    const sl_linear_spec up = {.out = 2 * width, .parallel = SL_COLUMNS, .deviation = 0.05f};
    const sl_linear_spec down = {.out = width, .parallel = SL_ROWS, .deviation = 0.05f};
    sl_tensor x = sl_embed(model, &bytes);
    for (uint32_t block = 0; block < 3; block++) {
        sl_block(model, "block", block);
        sl_tensor y = sl_gelu(model, "gelu", sl_linear(model, "up", x, &up));
        x = sl_drop_add(model, "drop", sl_linear(model, "down", y, &down), x);
        sl_block_end(model);
    }
    x = sl_norm(model, "last", x);
    if (own->is_untied)
        sl_head_untied(model, "ids", x, VOCAB + 3, 0.05f);
    else
        sl_head(model, "bytes", x);
    return SL_OK;
}

static sl_options *own_options(const own_model *own)
{
    static const char *const settings[] = {
        "seq",  "32",   "micro-batch", "2", "accumulate",    "2",   "steps",       "4",
        "lr",   "0.01", "threads",     "1", "device-memory", "64M", "host-memory", "64M",
        "data", "text", NULL};
    sl_options *options = NULL;
    must(sl_options_open(&options));
    must(sl_options_set_all(options, settings));
    sl_options_set_model(options, build_mlp, own);
    if (own->has_adapters) {
        must(sl_options_set(options, "lora-rank", "4"));
        must(sl_options_set(options, "lora-targets", "up,down"));
    }
    return options;
}

static const char *const policies[] = {"device", "host", "nvme", "auto"};

/* Trains on each policy, and saves under its name behind step 2. */
static void train_everywhere(const own_model *own, double losses[4][STEPS])
{
    sl_session *session = NULL;
    for (uint32_t p = 0; p < 4; p++) {
        sl_options *options = own_options(own);
        must(sl_options_set(options, "policy", policies[p]));
        must(sl_options_set(options, "disk-dir", "."));
        must(sl_options_set(options, "disk-space", "64M"));
        must(sl_options_set(options, "save", policies[p]));
        must(sl_options_set(options, "overwrite", "true"));
        must(sl_session_open(options, &session));
        train(session, 2, losses[p]);
        must(sl_session_save(session));
        train(session, 2, losses[p] + 2);
        must(sl_session_close(session));
        sl_options_close(options);
        assert_memory_equal(losses[p], losses[0], sizeof losses[0]);
    }
    assert_true(own->has_adapters || losses[0][3] < losses[0][0]);
}

/* Goes on from the host's checkpoint of two steps. */
static void assert_resumes(const own_model *own, const double losses[STEPS])
{
    double rest[2];
    sl_session *session = NULL;
    sl_options *options = own_options(own);
    must(sl_options_set(options, "save", "host"));
    must(sl_options_set(options, "disk-dir", "."));
    must(sl_options_set(options, "resume", "true"));
    must(sl_session_open(options, &session));
    train(session, 2, rest);
    if (own->has_adapters) {
        static float b[4 * 48];
        must(sl_session_read(session, "block.2.up.lora_B.weight", SL_STATE_PARAMETER, b, 4 * 48));
        assert_true(b[0] != 0 && b[4 * 48 - 1] != 0); /* they are trained */
    }
    must(sl_session_close(session));
    sl_options_close(options);
    assert_memory_equal(rest, losses + 2, sizeof rest);
}

static void model_when_it_has_adapters_trains_them_alike_everywhere_and_resumes(void **state)
{
    (void)state;
    const own_model own = {.width = 24}, adapted = {.width = 24, .has_adapters = true};
    double losses[4][STEPS], of_own[4][STEPS];
    sl_session *session = NULL;
    train_everywhere(&own, of_own);
    train_everywhere(&adapted, losses);
    assert_true(losses[0][0] == of_own[0][0]); /* adapters begin with zero */
    assert_true(losses[0][1] != of_own[0][1]); /* and the base stays */
    assert_resumes(&adapted, losses[0]);
    sl_options *options = own_options(&own);
    must(sl_options_set(options, "lora-rank", "4"));
    assert_refused(sl_session_open(options, &session), SL_ERROR_USAGE, "the program's own: name");
    must(sl_options_set(options, "lora-targets", "up,sideways"));
    assert_refused(sl_session_open(options, &session), SL_ERROR_USAGE,
                   "\"sideways\" names no linear layer; they are called like block.2.down");
    sl_options_close(options);
}

static void model_when_the_program_builds_it_trains_alike_everywhere_and_resumes(void **state)
{
    (void)state;
    const own_model own = {.width = 24}, untied = {.width = 24, .is_untied = true},
                    other = {.width = 32};
    double losses[4][STEPS], of_untied[4][STEPS];
    sl_session *session = NULL;
    train_everywhere(&untied, of_untied);
    train_everywhere(&own, losses);
    assert_true(of_untied[0][0] != losses[0][0]);

    assert_resumes(&own, losses[0]);
    sl_options *options = own_options(&own);
    must(sl_options_set(options, "save", "host"));
    must(sl_options_set(options, "disk-dir", "."));
    must(sl_options_set(options, "resume", "true"));
    sl_options_set_model(options, build_mlp, &other);
    assert_refused(sl_session_open(options, &session), SL_ERROR_USAGE, "is not the checkpoint's");
    sl_options_set_model(options, NULL, NULL);
    assert_refused(sl_session_open(options, &session), SL_ERROR_USAGE, "a program of its own");
    sl_options_close(options);
    assert_code(sluice("generate host --prompt the --tokens 3"), 64);
    assert_has(complaint, "a program of its own");
    assert_code(sluice("eval host --data text"), 64);
    assert_has(complaint, "a program of its own");
    assert_code(sluice("convert --from host --to out.gguf"), 65);
    assert_has(complaint, "a program of its own");

    options = own_options(&own);
    must(sl_options_set(options, "layers", "2"));
    assert_refused(sl_session_open(options, &session), SL_ERROR_USAGE, "so --layers has no");
    sl_options_close(options);
}

/* ---- several, and stopping ---- */

typedef struct one_of_two {
    const char *policy;
    double losses[STEPS];
} one_of_two;

static void *train_one(void *argument)
{
    one_of_two *one = argument;
    sl_session *session = NULL;
    sl_options *options = tiny_options("text");
    must(sl_options_set(options, "policy", one->policy));
    must(sl_options_set(options, "disk-dir", "."));
    must(sl_options_set(options, "disk-space", "64M"));
    must(sl_session_open(options, &session));
    sl_options_close(options);
    train(session, STEPS, one->losses);
    must(sl_session_close(session));
    return NULL;
}

static void sessions_when_side_by_side_have_the_bits_of_each_alone(void **state)
{
    (void)state;
    one_of_two alone = {.policy = "device"}, two[] = {{.policy = "host"}, {.policy = "nvme"}};
    pthread_t threads[2];
    train_one(&alone);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, train_one, &two[i]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_memory_equal(two[i].losses, alone.losses, sizeof alone.losses);
    }
}

typedef struct heard {
    uint64_t counts[SL_EVENT_SAVED + 1];
    sl_event last;
    double first_loss;    /* of an evaluation of which nothing is done */
    sl_session **stopped; /* stopped by the second step; NULL: never */
} heard;

static void hear(void *user, const sl_event *event)
{
    heard *self = user;
    assert_int_equal(event->size, sizeof *event);
    self->counts[event->kind]++;
    self->last = *event;
    if (event->kind == SL_EVENT_IN_EVALUATION && event->done == 0)
        self->first_loss = event->value;
    if (self->stopped && event->kind == SL_EVENT_STEP && event->step == 2)
        sl_session_stop(*self->stopped);
}

static void events_when_asked_for_tell_of_all_that_happens(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "accumulate", "3", "save", "heard", "eval-data", "text", "log-json", "heard.json", NULL};
    heard self = {.last = {.kind = SL_EVENT_SAVED}, .first_loss = -1};
    sl_session *session = NULL;
    sl_step_result step = {.size = sizeof step};
    double loss = 0;
    sl_options *options = tiny_options("text");
    must(sl_options_set_all(options, settings));
    sl_options_set_events(options, hear, &self);
    must(sl_session_open(options, &session));
    must(sl_session_step(session, &step));
    assert_true(self.last.kind == SL_EVENT_STEP && self.last.value == step.loss);
    assert_true(self.counts[SL_EVENT_IN_STEP] >= 3);
    must(sl_session_evaluate(session, &loss));
    assert_true(self.last.kind == SL_EVENT_EVALUATION && self.last.value == loss);
    assert_true(self.counts[SL_EVENT_IN_EVALUATION] > 2 && self.first_loss == 0);
    must(sl_session_save(session));
    assert_true(self.last.kind == SL_EVENT_SAVED && self.last.step == 1);
    assert_int_equal(self.counts[SL_EVENT_SAVING], 1);
    self.stopped = &session;
    must(sl_session_step(session, NULL));
    assert_refused(sl_session_step(session, NULL), SL_ERROR_STOPPED, "was stopped");
    must(sl_session_close(session));
    sl_options_close(options);
}

static void *stop_soon(void *argument)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    nanosleep(&pause, NULL);
    sl_session_stop(argument);
    return NULL;
}

static sl_status take_text(void *user, uint32_t sample, const char *bytes, uint64_t byte_count)
{
    (void)user;
    (void)sample;
    (void)bytes;
    (void)byte_count;
    return SL_OK;
}

static void stop_when_called_by_another_thread_ends_the_steps(void **state)
{
    (void)state;
    const char *reason = NULL;
    sl_session *session = NULL;
    pthread_t thread;
    double loss;
    sl_status status = SL_OK;
    sl_options *options = tiny_options("text");
    must(sl_options_set(options, "save", "stopped"));
    must(sl_options_set(options, "steps", "1000000"));
    must(sl_session_open(options, &session));
    sl_options_close(options);
    assert_int_equal(pthread_create(&thread, NULL, stop_soon, session), 0);
    while (status == SL_OK)
        status = sl_session_step(session, NULL);
    assert_refused(status, SL_ERROR_STOPPED, "was stopped");
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_refused(sl_session_generate(session, NULL, "the", take_text, NULL), SL_ERROR_STOPPED,
                   "was stopped");
    must(sl_session_train(session, &reason));
    assert_string_equal(reason, "signal");
    assert_refused(sl_session_evaluate(session, &loss), SL_ERROR_STOPPED, "was stopped");
    must(sl_session_save(session)); /* what was trained is not lost */
    must(sl_session_close(session));
}

/* ---- notes ---- */

typedef struct notes {
    const char *save; /* where there is no checkpoint, of which a note tells */
    pthread_t thread;
    char text[TEXT_BYTES];
} notes;

static void note_line(void *user, sl_log_level level, const char *line)
{
    notes *self = user;
    (void)level;
    strncat(self->text, line, sizeof self->text - strlen(self->text) - 1);
}

static void *train_with_notes(void *argument)
{
    notes *self = argument;
    sl_session *session = NULL;
    sl_options *options = tiny_options("text");
    must(sl_options_set(options, "save", self->save));
    must(sl_options_set(options, "resume", "true"));
    sl_options_set_log(options, note_line, self);
    must(sl_session_open(options, &session));
    sl_options_set_log(options, NULL, NULL); /* of later sessions */
    must(sl_session_step(session, NULL));
    must(sl_session_save(session));
    must(sl_session_close(session));
    sl_options_close(options);
    return NULL;
}

static void notes_when_sessions_have_callbacks_go_to_each_its_own(void **state)
{
    (void)state;
    static notes two[2] = {{.save = "noted-a"}, {.save = "noted-b"}}, of_process;
    sl_log_set_callback(note_line, &of_process);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&two[i].thread, NULL, train_with_notes, &two[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(two[i].thread, NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_has(two[i].text, two[i].save);
        assert_null(strstr(two[i].text, two[1 - i].save));
    }
    assert_string_equal(of_process.text, "");
    sl_options *options = tiny_options("text");
    sl_session *session = NULL;
    must(sl_options_set(options, "save", "noted-c"));
    must(sl_options_set(options, "resume", "true"));
    must(sl_session_open(options, &session));
    must(sl_session_close(session));
    sl_options_close(options);
    sl_log_set_callback(NULL, NULL);
    assert_has(of_process.text, "noted-c");
}

/* ---- refusals ---- */

static void options_when_wrong_are_refused_with_a_way_out(void **state)
{
    (void)state;
    sl_session *session = NULL;
    sl_option_info info = {.size = sizeof info};
    uint32_t count = 0, lists = 0;
    sl_options *options = tiny_options(NULL);
    for (; sl_options_at(count, &info); count++) {
        assert_true(*info.name && *info.help && info.size == sizeof info);
        lists += strcmp(info.name, "data") == 0 && info.is_list;
        lists += strcmp(info.name, "policy") == 0 && !info.is_list && strstr(info.values, "nvme");
    }
    assert_true(count > 60 && lists == 2);
    assert_refused(sl_options_set(options, "polcy", "host"), SL_ERROR_USAGE, "policy");
    assert_refused(sl_options_set(options, "policy", "hots"), SL_ERROR_USAGE, "host");
    assert_refused(sl_options_add(options, "policy", "host"), SL_ERROR_USAGE, "no list");
    must(sl_options_set(options, "report", "page.html"));
    assert_refused(sl_session_open(options, &session), SL_ERROR_USAGE, "sl_options_unset");
    must(sl_options_unset(options, "report"));
    assert_refused(sl_options_unset(options, "polcy"), SL_ERROR_USAGE, "policy");
    assert_refused(sl_options_read(options, "nowhere.json"), SL_ERROR_MISSING, "nowhere.json");
    assert_refused(sl_session_open(options, &session), SL_ERROR_USAGE, "--data is missing");
    must(sl_options_add(options, "data", "text"));
    must(sl_options_set(options, "device-memory", "64K"));
    assert_refused(sl_session_open(options, &session), SL_ERROR_FIT, "device");
    must(sl_options_set(options, "device-memory", "64M"));
    must(sl_session_open(options, &session));
    assert_refused(sl_session_save(session), SL_ERROR_USAGE, "save");
    must(sl_session_close(session));
    must(sl_session_close(NULL));
    sl_options_close(options);
    sl_options_close(NULL);
}

static void session_when_null_is_refused(void **state)
{
    (void)state;
    const char *text = NULL;
    char *plan = NULL;
    double loss;
    float element;
    sl_session *session = NULL;
    sl_tensor_info info = {.size = sizeof info};
    sl_tensor_view view = {.size = sizeof view};
    const sl_status refusals[] = {
        sl_session_step(NULL, NULL),
        sl_session_train(NULL, NULL),
        sl_session_evaluate(NULL, &loss),
        sl_session_save(NULL),
        sl_session_generate(NULL, NULL, "the", take_text, NULL),
        sl_session_read(NULL, "wte.weight", SL_STATE_PARAMETER, &element, 1),
        sl_session_write(NULL, "wte.weight", SL_STATE_PARAMETER, &element, 1),
        sl_session_view(NULL, "wte.weight", SL_STATE_PARAMETER, &view),
        sl_session_account(NULL, &text),
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        assert_refused(refusals[i], SL_ERROR_USAGE, "the session is NULL");
    assert_refused(sl_session_open(NULL, &session), SL_ERROR_USAGE, "the options are NULL");
    assert_refused(sl_session_plan(NULL, &plan), SL_ERROR_USAGE, "the options are NULL");
    assert_refused(sl_options_set(NULL, "data", "text"), SL_ERROR_USAGE, "the options are NULL");
    sl_session_stop(NULL);
    assert_int_equal(sl_session_tensor(NULL, 0, &info), 0);
    assert_true(sl_session_step_count(NULL) == 0 && sl_session_rank(NULL) == 0);
    assert_true(sl_session_rank_count(NULL) == 1 && !sl_session_options(NULL));
}

static void results_when_their_size_is_not_set_are_refused(void **state)
{
    (void)state;
    sl_session *session = NULL;
    sl_step_result step = {0};
    sl_tensor_info tensor = {0};
    sl_tensor_view view = {0};
    sl_option_info option = {0};
    sl_options *options = tiny_options("text");
    must(sl_session_open(options, &session));
    sl_options_close(options);
    assert_refused(sl_session_step(session, &step), SL_ERROR_USAGE, "set it to sizeof(sl_step_r");
    assert_int_equal(sl_session_step_count(session), 0);
    assert_refused(sl_session_view(session, "wte.weight", SL_STATE_PARAMETER, &view),
                   SL_ERROR_USAGE, "sizeof(sl_tensor_view)");
    assert_int_equal(sl_session_tensor(session, 0, &tensor), 0);
    assert_has(sl_status_message(), "sizeof(sl_tensor_info)");
    assert_int_equal(sl_options_at(0, &option), 0);
    assert_has(sl_status_message(), "sizeof(sl_option_info)");
    step.size = sizeof step;
    must(sl_session_step(session, &step));
    must(sl_session_close(session));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session_when_stepped_has_the_log_and_checkpoint_of_the_command),
        cmocka_unit_test(session_when_resumed_goes_on_with_the_same_bits),
        cmocka_unit_test(plan_when_asked_for_is_what_the_command_prints),
        cmocka_unit_test(evaluation_when_asked_for_is_what_the_command_prints),
        cmocka_unit_test(profile_when_asked_for_measures_the_planned_peaks),
        cmocka_unit_test(rows_when_the_program_gives_them_are_trained_on_as_those_of_a_file),
        cmocka_unit_test(model_when_the_program_builds_it_trains_alike_everywhere_and_resumes),
        cmocka_unit_test(model_when_it_has_adapters_trains_them_alike_everywhere_and_resumes),
        cmocka_unit_test(sessions_when_side_by_side_have_the_bits_of_each_alone),
        cmocka_unit_test(events_when_asked_for_tell_of_all_that_happens),
        cmocka_unit_test(stop_when_called_by_another_thread_ends_the_steps),
        cmocka_unit_test(notes_when_sessions_have_callbacks_go_to_each_its_own),
        cmocka_unit_test(options_when_wrong_are_refused_with_a_way_out),
        cmocka_unit_test(session_when_null_is_refused),
        cmocka_unit_test(results_when_their_size_is_not_set_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
