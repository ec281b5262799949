/* What could be wrong here: a unit read as another, a number cut or rounded without a word, a JSON
 * key that is taken twice or spelled wrongly and dropped, an option of a later version that is
 * accepted and does nothing, a default that does not follow from the others. Each case states the
 * value by hand; refusals are checked for what they tell the user to do. */
#include <math.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/rng.h"
#include "config/config_json.h"
#include "config/units.h"
#include "config_case.h"
#include "foreign/deepspeed/config_file.h"
#include "train/schedule.h"

/* ---- units ---- */

static void sizes_when_written_in_any_unit_then_are_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"1", 1},
        {"4096", 4096},
        {"1K", 1024},
        {"1k", 1024},
        {"1KiB", 1024},
        {"3B", 3},
        {"512M", 536870912},
        {"1.5G", 1610612736},
        {"1.5GiB", 1610612736},
        {"2T", 2199023255552},
        {"18446744073709551615", UINT64_MAX},
        {"9007199254740993", 9007199254740993}, /* 2^53 + 1: a double would lose it */
        {".5K", 512},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t bytes = 77;
        assert_int_equal(sl_units_parse_size(cases[i].text, &bytes), SL_OK);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void sizes_when_malformed_then_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",   "x",     "-1",        "1X", "1MB2",  "1Mi", "1 M",  "nan", "1e999",   "0x10", "inf",
        "+1", "1KiBB", "99999999T", "K",  "1.5.5", "1,5", "1e3e", "--1", "1e30GiB", "0X10"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 77;
        if (sl_units_parse_size(bad[i], &bytes) != SL_ERROR_USAGE)
            fail_msg("\"%s\" was accepted as %llu", bad[i], (unsigned long long)bytes);
        assert_int_equal(bytes, 77);
    }
}

static void counts_when_not_whole_then_are_refused(void **state)
{
    (void)state;
    uint64_t count = 0;
    assert_int_equal(sl_units_parse_count("5e8", &count), SL_OK);
    assert_int_equal(count, 500000000);
    assert_int_equal(sl_units_parse_count("18446744073709551615", &count), SL_OK);
    assert_true(count == UINT64_MAX);
    static const char *const bad[] = {"1.5", "-1", "", "1e20", "ten", "1 ", " 1", "0x1", "0X10"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (sl_units_parse_count(bad[i], &count) != SL_ERROR_USAGE)
            fail_msg("\"%s\" was accepted", bad[i]);
}

static void elements_when_written_with_a_unit_then_are_powers_of_1024(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t count;
    } cases[] = {{"16M", 16777216},  {"16m", 16777216}, {"1.5K", 1536},
                 {"2G", 2147483648}, {"5e6", 5000000},  {"4096", 4096}};
    static const char *const bad[] = {"16MB", "16MiB", "1.5",  "M",      "",
                                      "-1K",  "16 M",  "0.3K", "1.0001K"};
    uint64_t count = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(sl_units_parse_elements(cases[i].text, &count), SL_OK);
        assert_int_equal(count, cases[i].count);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (sl_units_parse_elements(bad[i], &count) != SL_ERROR_USAGE)
            fail_msg("\"%s\" was accepted", bad[i]);
}

static void exact_size_when_printed_then_reads_back(void **state)
{
    (void)state;
    static const uint64_t cases[] = {0, 1, 1023, 1024, 1536, 536870912, 1099511627776, UINT64_MAX};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[SL_UNITS_TEXT_BYTES];
        uint64_t bytes;
        sl_units_format_exact_size(cases[i], text);
        assert_int_equal(sl_units_parse_size(text, &bytes), SL_OK);
        assert_true(bytes == cases[i]);
    }
}

/* ---- settings ---- */

static void defaults_when_nothing_is_set_then_follow_the_contract(void **state)
{
    const sl_config *config = &((fixture *)*state)->config;
    assert_int_equal(config->micro_batch, 4);
    assert_int_equal(config->accumulate, 1);
    assert_int_equal(config->steps, 100);
    assert_true(config->lr == 3e-4 && config->weight_decay == 0.1);
    assert_true(config->beta1 == 0.9 && isnan(config->beta2) && config->eps == 1e-8);
    assert_int_equal(config->optimizer, SL_CONFIG_ADAMW);
    assert_true(config->clip == 1.0);
    assert_int_equal(config->precision, SL_CONFIG_PRECISION_AUTO);
    assert_int_equal(config->policy, SL_CONFIG_POLICY_AUTO);
    assert_int_equal(config->recompute, SL_CONFIG_RECOMPUTE_AUTO);
    assert_int_equal(config->accumulation, SL_CONFIG_ACCUMULATION_AUTO);
    assert_int_equal(config->data_order, SL_CONFIG_RANDOM);
    assert_int_equal(config->seed, 1);
    assert_true(config->device_memory == SL_CONFIG_UNSET);
    assert_true(isnan(config->min_lr) && config->warmup.count == SL_CONFIG_UNSET);
}

static void keys_when_spelled_with_either_dash_then_are_the_same(void **state)
{
    fixture *self = *state;
    assert_int_equal(assign(self, "micro-batch=7"), SL_OK);
    assert_int_equal(self->config.micro_batch, 7);
    assert_int_equal(assign(self, "micro_batch=8"), SL_OK);
    assert_int_equal(self->config.micro_batch, 8);
    assert_int_equal(assign(self, "device_memory=1.5G"), SL_OK);
    assert_true(self->config.device_memory == 1610612736);
}

static void names_when_unknown_then_the_nearest_is_named(void **state)
{
    fixture *self = *state;
    assert_int_equal(assign(self, "micro-bacth=7"), SL_ERROR_USAGE);
    assert_message_has("did you mean micro-batch?");
    assert_int_equal(assign(self, "policy=hots"), SL_ERROR_USAGE);
    assert_message_has("did you mean host?");
    assert_int_equal(assign(self, "temperature=1"), SL_ERROR_USAGE); /* of generate, not train */
    assert_int_equal(assign(self, "steps"), SL_ERROR_USAGE);
    assert_message_has("key=value");
    assert_int_equal(assign(self, "=1"), SL_ERROR_USAGE);
}

static void texts_when_set_to_nothing_then_are_their_default(void **state)
{
    fixture *self = *state;
    assert_int_equal(assign(self, "tokenizer="), SL_OK);
    assert_string_equal(self->config.tokenizer, "auto");
    assert_int_equal(assign(self, "init="), SL_OK);
    assert_string_equal(self->config.init, "scratch");
    assert_int_equal(assign(self, "machine="), SL_OK);
    assert_null(self->config.machine);
    assert_int_equal(assign(self, "save="), SL_ERROR_USAGE); /* the run would keep nothing */
    assert_message_has("leave --save out");
}

static void values_when_out_of_range_then_are_refused_and_keep_the_old(void **state)
{
    fixture *self = *state;
    static const char *const bad[] = {
        "micro-batch=0",    "micro-batch=1.5", "micro-batch=auto", "beta1=1",
        "beta2=1.5",        "lr=-1",           "lr=nan",           "eps=0",
        "dropout=2",        "zero=4",          "steps=-1",         "resume=maybe",
        "offload-params=2", "threads=0",       "recompute=",       "device-memory",
        "device-memory=x",  "layers=1e9",      "clip=-1",          "save-every=x",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (assign(self, bad[i]) != SL_ERROR_USAGE)
            fail_msg("%s was accepted", bad[i]);
    assert_int_equal(self->config.micro_batch, 4);
    assert_false(self->config.given[SL_CONFIG_ROW_micro_batch]);
}

/* ---- files ---- */

static sl_status load_for(fixture *self, sl_config_command command, const char *text)
{
    char path[] = "/tmp/sluice-config-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    sl_status status = sl_config_file_load(&self->config, command, path);
    unlink(path);
    return status;
}

static sl_status load_text(fixture *self, const char *text)
{
    return load_for(self, SL_CONFIG_TRAIN, text);
}

static void json_when_well_formed_then_every_kind_of_value_is_taken(void **state)
{
    fixture *self = *state;
    const char *text = "{\"model\": \"gpt2\", \"steps\": 5e2, \"micro_batch\": 2, \"lr\": 1e-3,"
                       " \"device-memory\": \"2G\", \"host_memory\": 1048576, \"resume\": true,"
                       " \"data\": [\"a\", \"b\"], \"policy\": \"host\", \"clip\": null}";
    assert_int_equal(load_text(self, text), SL_OK);
    assert_string_equal(self->config.model, "gpt2");
    assert_int_equal(self->config.steps, 500);
    assert_true(self->config.lr == 1e-3);
    assert_true(self->config.device_memory == 2147483648u);
    assert_true(self->config.host_memory == 1048576);
    assert_true(self->config.resume);
    assert_int_equal(self->config.data.count, 2);
    assert_string_equal(self->config.data.items[1], "b");
    assert_int_equal(self->config.policy, SL_POLICY_HOST);
    assert_true(self->config.clip == 1.0);
}

static void json_when_wrong_then_is_refused_by_name(void **state)
{
    fixture *self = *state;
    assert_int_equal(load_text(self, "{\"steps\": 1, \"steps\": 2}"), SL_ERROR_DATA);
    assert_message_has("duplicate");
    assert_int_equal(load_text(self, "{\"steps\": 1,}"), SL_ERROR_DATA);
    assert_int_equal(load_text(self, "[1]"), SL_ERROR_DATA);
    assert_int_equal(load_text(self, "{\"stpes\": 1}"), SL_ERROR_USAGE);
    assert_message_has("did you mean steps?");
    assert_int_equal(load_text(self, "{\"steps\": {}}"), SL_ERROR_USAGE);
    assert_int_equal(load_text(self, "{\"steps\": \"many\"}"), SL_ERROR_USAGE);
    assert_int_equal(load_text(self, "{\"data\": [1]}"), SL_ERROR_USAGE);
    assert_int_equal(sl_config_file_load(&self->config, SL_CONFIG_TRAIN, "/nonexistent/x.json"),
                     SL_ERROR_MISSING);
}

static void json_when_it_holds_escape_sequences_then_messages_do_not(void **state)
{
    fixture *self = *state;
    assert_int_equal(load_text(self, "{\"\\u001b[2J\": 1}"), SL_ERROR_USAGE);
    assert_message_has("unknown option \"\\x1b[2J\"");
    assert_int_equal(load_text(self, "{\"policy\": \"\\u009b2J\"}"), SL_ERROR_USAGE);
    assert_message_has("\"\xc2\\x9b2J\""); /* one byte of the two is shown as a number */
    assert_int_equal(load_text(self, "{\"policy\": \"gr\xc3\xb6\xc3\x9f\"}"), SL_ERROR_USAGE);
    assert_message_has("\"gr\xc3\xb6\xc3\x9f\""); /* letters stay */
    assert_int_equal(load_text(self, "{\"steps\": x\x1b[2J}"), SL_ERROR_DATA);
    assert_null(strchr(sl_status_message(), 0x1b));
}

static void json_when_a_number_has_64_bits_then_reads_back_in_full(void **state)
{
    fixture *self = *state;
    json_t *object;
    assert_int_equal(assign(self, "seed=17999999999999999999"), SL_OK);
    assert_int_equal(assign(self, "device-memory=18446744073709551614"), SL_OK);
    assert_int_equal(sl_config_format(&self->config, SL_CONFIG_TRAIN, &object), SL_OK);
    char *text = json_dumps(object, 0);
    fixture other;
    assert_int_equal(sl_config_init(&other.config), SL_OK);
    assert_int_equal(load_text(&other, text), SL_OK);
    assert_true(other.config.seed == 17999999999999999999u);
    assert_true(other.config.device_memory == UINT64_MAX - 1);
    sl_config_clear(&other.config);
    json_decref(object);
    free(text);
}

/* One file for every command: what another one takes is checked and passed over. */
static void json_when_for_every_command_then_each_takes_its_own(void **state)
{
    fixture *self = *state;
    static const char text[] =
        "{\"bench\": {\"output\": \"rates.json\", \"threads\": 2}, \"lr\": 0.5, \"data\": [\"a\"],"
        " \"temperature\": 0.25, \"eval\": {\"data\": [\"held-out\"], \"micro-batch\": 9},"
        " \"train\": {\"steps\": 7}, \"threads\": 3, \"plan\": {\"steps\": 8}}";
    static const struct {
        sl_config_command command;
        uint64_t steps, threads, micro_batch;
        const char *data, *output;
        double lr, temperature;
    } cases[] = {
        {SL_CONFIG_TRAIN, 7, 3, 4, "a", NULL, 0.5, 1},
        {SL_CONFIG_PLAN, 8, 3, 4, "a", NULL, 0.5, 1},
        {SL_CONFIG_EVAL, 100, 3, 9, "held-out", NULL, 3e-4, 1},
        {SL_CONFIG_GENERATE, 100, 3, 4, NULL, NULL, 3e-4, 0.25},
        {SL_CONFIG_BENCH, 100, 2, 4, NULL, "rates.json", 3e-4, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_config *config = &self->config;
        sl_config_clear(config);
        assert_int_equal(sl_config_init(config), SL_OK);
        assert_int_equal(load_for(self, cases[i].command, text), SL_OK);
        assert_int_equal(config->steps, cases[i].steps);
        assert_int_equal(config->threads, cases[i].threads);
        assert_int_equal(config->micro_batch, cases[i].micro_batch);
        assert_int_equal(config->data.count, cases[i].data != NULL);
        if (cases[i].data)
            assert_string_equal(config->data.items[0], cases[i].data);
        assert_true(!config->output == !cases[i].output);
        assert_true(config->lr == cases[i].lr && config->temperature == cases[i].temperature);
    }
}

/* Both train and generate have an option of this name. */
static void json_when_it_has_tokens_then_generate_takes_them_unless_they_are_in_train(void **state)
{
    fixture *self = *state;
    static const char text[] = "{\"tokens\": 9, \"train\": {\"tokens\": 5}, \"lr\": 0.5}";
    assert_int_equal(load_for(self, SL_CONFIG_GENERATE, text), SL_OK);
    assert_int_equal(self->config.tokens, 9);
    assert_true(self->config.train_tokens == SL_CONFIG_UNSET);
    sl_config_clear(&self->config);
    assert_int_equal(sl_config_init(&self->config), SL_OK);
    assert_int_equal(load_for(self, SL_CONFIG_TRAIN, text), SL_OK);
    assert_int_equal(self->config.train_tokens, 5);
    assert_int_equal(load_for(self, SL_CONFIG_TRAIN, "{\"tokens\": 9}"), SL_OK);
    assert_int_equal(self->config.train_tokens, 5);
}

static void json_when_wrong_for_another_command_then_is_refused_too(void **state)
{
    fixture *self = *state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{\"temprature\": 1}", "did you mean temperature?"},
        {"{\"temperature\": \"hot\"}", "key \"temperature\""},
        {"{\"generate\": {\"top-q\": 1}}", "key \"top-q\" of \"generate\": unknown option"},
        {"{\"generate\": {\"steps\": 1}}", "unknown option \"steps\""},
        {"{\"genrate\": {\"top-k\": 1}}", "unknown command \"genrate\": did you mean generate?"},
        {"{\"output\": \"x\"}", "\"tokenize\": {\"output\": ...}"},
        {"{\"format\": \"gguf\"}", "\"tokenize\": {\"format\": ...}"},
        {"{\"convert\": {\"format\": \"nanogpt\"}}", "hf|gguf|llmc|weights"},
        {"{\"train\": 3}", "unknown option \"train\""},
        {"{\"train\": {\"data\": {}}}", "an object is not a value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(load_text(self, cases[i].text), SL_ERROR_USAGE);
        assert_message_has(cases[i].part);
    }
}

static void paths_when_printed_then_are_absolute(void **state)
{
    fixture *self = *state;
    json_t *object = NULL;
    char here[512], expected[600];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(assign(self, "save=out"), SL_OK);
    assert_int_equal(assign(self, "data=text"), SL_OK);
    assert_int_equal(assign(self, "log-json=/tmp/log"), SL_OK);
    assert_int_equal(assign(self, "steps=3"), SL_OK);
    assert_int_equal(sl_config_format_given(&self->config, SL_CONFIG_TRAIN, &object), SL_OK);
    assert_int_equal(json_object_size(object), 4); /* what was given, and nothing else */
    snprintf(expected, sizeof expected, "%s/out", here);
    assert_string_equal(json_string_value(json_object_get(object, "save")), expected);
    snprintf(expected, sizeof expected, "%s/text", here);
    assert_string_equal(json_string_value(json_array_get(json_object_get(object, "data"), 0)),
                        expected);
    assert_string_equal(json_string_value(json_object_get(object, "log_json")), "/tmp/log");
    json_decref(object);
    assert_int_equal(sl_config_format(&self->config, SL_CONFIG_TRAIN, &object), SL_OK);
    assert_string_equal(json_string_value(json_object_get(object, "init")), "scratch");
    assert_string_equal(json_string_value(json_object_get(object, "tokenizer")), "auto");
    json_decref(object);
}

/* Sets --save and prints it: what comes back is the text, or null and a refusal to record it that
 * names the option. */
static void check_text(fixture *self, const char *text, bool is_utf8)
{
    json_t *object = NULL;
    char setting[64];
    snprintf(setting, sizeof setting, "save=/%s", text);
    assert_int_equal(assign(self, setting), SL_OK);
    sl_status status = sl_config_check_recorded(&self->config, SL_CONFIG_TRAIN);
    if (status != (is_utf8 ? SL_OK : SL_ERROR_USAGE))
        fail_msg("status %d of a text that is%s UTF-8", status, is_utf8 ? "" : " not");
    if (!is_utf8)
        assert_message_has("--save /");
    assert_int_equal(sl_config_format_given(&self->config, SL_CONFIG_TRAIN, &object), SL_OK);
    const json_t *value = json_object_get(object, "save");
    if (is_utf8)
        assert_string_equal(json_string_value(value) + 1, text);
    else
        assert_true(json_is_null(value));
    json_decref(object);
}

/* jansson says what UTF-8 is; borders of the ranges are drawn more often than chance would. */
static void texts_when_not_utf8_then_refused_and_none_is_lost(void **state)
{
    fixture *self = *state;
    static const unsigned char borders[] = {0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1,
                                            0xc2, 0xdf, 0xe0, 0xed, 0xef, 0xf0, 0xf4, 0xf5};
    uint32_t accepted = 0;
    for (uint64_t seed = 0; seed < 20000; seed++) {
        char text[5] = "";
        size_t length = 1 + sl_rng_below(seed, 71, 0, 4);
        for (size_t i = 0; i < length; i++)
            text[i] = (char)borders[sl_rng_below(seed, 71, 1 + i, sizeof borders)];
        json_t *known = json_string(text);
        accepted += known != NULL;
        check_text(self, text, known != NULL);
        json_decref(known);
    }
    assert_in_range(accepted, 200, 19000);
    json_t *object;
    assert_int_equal(assign(self, "save=x"), SL_OK);
    assert_int_equal(sl_config_append(&self->config, SL_CONFIG_ROW_data, "caf\xe9"), SL_OK);
    assert_int_equal(sl_config_check_recorded(&self->config, SL_CONFIG_TRAIN), SL_ERROR_USAGE);
    assert_message_has("--data ");
    assert_message_has("caf\\xe9: this is not UTF-8");
    assert_int_equal(sl_config_format(&self->config, SL_CONFIG_TRAIN, &object), SL_OK);
    assert_true(json_is_null(json_array_get(json_object_get(object, "data"), 0)));
    json_decref(object);
}

static int64_t allocations_left = -1; /* of jansson, before one is refused; -1: none is */

static void *give_or_refuse(size_t bytes)
{
    return allocations_left >= 0 && allocations_left-- == 0 ? NULL : malloc(bytes);
}

static void json_when_memory_is_refused_then_an_error_and_no_null(void **state)
{
    fixture *self = *state;
    int64_t refused = 0;
    assert_int_equal(assign(self, "data=text"), SL_OK);
    assert_int_equal(assign(self, "save=out"), SL_OK);
    json_set_alloc_funcs(give_or_refuse, free);
    for (bool is_refused = true; is_refused; refused++) {
        json_t *object = NULL;
        allocations_left = refused;
        sl_status status = sl_config_format(&self->config, SL_CONFIG_TRAIN, &object);
        is_refused = allocations_left < 0;
        allocations_left = -1;
        assert_int_equal(status, is_refused ? SL_ERROR_SYSTEM : SL_OK);
        json_decref(object);
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(refused > 100);
}

static void json_when_printed_then_reads_back_to_the_same(void **state)
{
    fixture *self = *state;
    sl_config again;
    json_t *object, *second;
    assert_int_equal(assign(self, "lr=0.00012345678901234567"), SL_OK);
    assert_int_equal(assign(self, "device-memory=9007199254740993"), SL_OK);
    assert_int_equal(assign(self, "data=x y"), SL_OK);
    assert_int_equal(assign(self, "nonfinite=skip"), SL_OK);
    assert_int_equal(sl_config_format(&self->config, SL_CONFIG_TRAIN, &object), SL_OK);
    char *text = json_dumps(object, JSON_REAL_PRECISION(17));
    fixture other;
    assert_int_equal(sl_config_init(&other.config), SL_OK);
    assert_int_equal(load_text(&other, text), SL_OK);
    again = other.config;
    assert_true(again.lr == self->config.lr);
    assert_true(again.device_memory == 9007199254740993);
    assert_int_equal(again.nonfinite, SL_CONFIG_SKIP);
    assert_int_equal(sl_config_format(&again, SL_CONFIG_TRAIN, &second), SL_OK);
    assert_true(json_equal(object, second));
    sl_config_clear(&other.config);
    json_decref(second);
    json_decref(object);
    free(text);
}

static void shape_when_named_by_hand_or_from_a_checkpoint_then_is_resolved(void **state)
{
    fixture *self = *state;
    sl_model_shape shape;
    const sl_model_shape base = {3, 96, 6, 48, 300};
    assert_int_equal(sl_config_shape(&self->config, NULL, 257, &shape), SL_ERROR_USAGE);
    assert_message_has("--model");
    assert_int_equal(sl_config_shape(&self->config, &base, 257, &shape), SL_OK);
    assert_memory_equal(&shape, &base, sizeof shape);
    assert_int_equal(assign(self, "layers=2"), SL_OK);
    assert_int_equal(assign(self, "width=64"), SL_OK);
    assert_int_equal(assign(self, "heads=4"), SL_OK);
    assert_int_equal(sl_config_shape(&self->config, NULL, 257, &shape), SL_OK);
    assert_int_equal(shape.context, 1024);
    assert_int_equal(shape.vocab, 257);
    assert_int_equal(assign(self, "model=gpt2"), SL_OK);
    assert_int_equal(assign(self, "heads=5"), SL_OK); /* 64 is not a multiple of 5 */
    assert_int_equal(sl_config_shape(&self->config, NULL, 257, &shape), SL_ERROR_USAGE);
}

static void assign_all(fixture *self, const char *const *assignments)
{
    for (; *assignments; assignments++)
        assert_int_equal(assign(self, *assignments), SL_OK);
}

static void shape_of_llama_when_by_hand_then_sizes_follow(void **state)
{
    fixture *self = *state;
    sl_model_shape shape;
    assign_all(self, (const char *[]){"arch=llama", "layers=2", "width=96", "heads=6", NULL});
    assert_int_equal(sl_config_shape(&self->config, NULL, 257, &shape), SL_OK);
    assert_int_equal(shape.architecture, SL_ARCHITECTURE_LLAMA);
    assert_true(shape.kv_heads == 6 && shape.head == 16 && shape.ffn == 256);
    assert_true(!shape.is_untied && shape.norm_epsilon == 1e-5 && shape.rope.base == 1e4);
    assert_int_equal(assign(self, "width=100"), SL_OK); /* 6 heads of 16 would have 96 features */
    assert_int_equal(sl_config_shape(&self->config, NULL, 257, &shape), SL_ERROR_USAGE);
    assert_message_has("100 is not a multiple of 6 heads: give --head-size");
    assign_all(self, (const char *[]){"kv-heads=2", "head-size=20", "ffn=200", "rope-base=5",
                                      "untied=true", "norm-epsilon=1e-3", NULL});
    assert_int_equal(sl_config_shape(&self->config, NULL, 257, &shape), SL_OK);
    assert_true(shape.kv_heads == 2 && shape.head == 20 && shape.ffn == 200);
    assert_true(shape.is_untied && shape.norm_epsilon == 1e-3 && shape.rope.base == 5);
    assert_int_equal(assign(self, "kv-heads=4"), SL_OK); /* 6 is not a multiple of 4 */
    assert_int_equal(sl_config_shape(&self->config, NULL, 257, &shape), SL_ERROR_USAGE);
    assert_message_has("--kv-heads");
}

static void shape_of_llama_when_named_then_is_changed_and_recorded(void **state)
{
    fixture *self = *state;
    sl_model_shape shape, again;
    assign_all(self, (const char *[]){"model=llama-3.1-8b", "layers=3", NULL});
    assert_int_equal(sl_config_shape(&self->config, NULL, 257, &shape), SL_OK);
    assert_true(shape.layers == 3 && shape.kv_heads == 8 && shape.is_untied);
    assert_true(shape.rope.scaling == SL_ROTARY_LLAMA3 && shape.rope.factor == 8);
    assert_int_equal(sl_config_fit_model(&self->config, &shape), SL_OK);
    assert_int_equal(self->config.seq, 4096); /* of 131072 positions */
    sl_config_record_shape(&self->config, &shape);
    assert_int_equal(sl_config_shape(&self->config, &shape, 257, &again), SL_OK);
    assert_true(sl_model_shape_is_same(&shape, &again));
    assert_int_equal(assign(self, "arch=qwen3"), SL_OK);
    assert_int_equal(sl_config_shape(&self->config, NULL, 257, &shape), SL_ERROR_USAGE);
    assert_message_has("--arch qwen3: the model is a llama");
}

static void sizes_of_llama_when_for_gpt2_then_are_refused(void **state)
{
    fixture *self = *state;
    sl_model_shape shape;
    assign_all(self, (const char *[]){"model=gpt2", "ffn=100", NULL});
    assert_int_equal(sl_config_shape(&self->config, NULL, 257, &shape), SL_ERROR_USAGE);
    assert_message_has("--ffn is no option of a gpt2: give --arch llama");
}

static void rows_when_longer_than_the_context_then_are_refused(void **state)
{
    fixture *self = *state;
    const sl_model_shape shape = {2, 64, 4, 128, 257};
    assert_int_equal(sl_config_fit_model(&self->config, &shape), SL_OK);
    assert_int_equal(self->config.seq, 128);
    self->config.seq = 129;
    assert_int_equal(sl_config_fit_model(&self->config, &shape), SL_ERROR_USAGE);
    assert_message_has("128");
}

/* ---- schedule ---- */

/* Of the n-th step, none of those before it skipped. */
static double rate_of(const sl_config *config, uint64_t n)
{
    return sl_schedule_learning_rate(config, &(sl_checkpoint_state){.step = n - 1});
}

static bool is_near(double value, double expected)
{
    return fabs(value - expected) < 1e-15; /* rounding of a few operations near 1 */
}

static void learning_rate_when_scheduled_then_passes_known_points(void **state)
{
    fixture *self = *state;
    sl_config *config = &self->config;
    config->lr = 1.0;
    config->min_lr = 0.2;
    config->warmup.count = 10;
    config->steps = 1000;
    config->lr_decay_steps = 110;
    assert_true(is_near(rate_of(config, 1), 0.1));
    assert_true(is_near(rate_of(config, 9), 0.9));
    assert_true(rate_of(config, 10) == 1.0);
    assert_true(rate_of(config, 11) < 1.0);
    assert_true(is_near(rate_of(config, 60), 0.6));
    assert_true(rate_of(config, 109) > 0.2);
    assert_true(rate_of(config, 110) == 0.2);
    assert_true(rate_of(config, 111) == 0.2);
    assert_true(rate_of(config, 1000) == 0.2);
    /* A quarter of the way: 0.2 + 0.8 * (1 + cos(45 degrees)) / 2. */
    assert_true(is_near(rate_of(config, 35), 0.88284271247461903));
    config->lr_schedule = SL_CONFIG_LINEAR;
    assert_true(is_near(rate_of(config, 35), 0.8));
    config->lr_schedule = SL_CONFIG_CONSTANT;
    assert_true(rate_of(config, 5) == 0.5);
    assert_true(rate_of(config, 110) == 1.0);
}

/* 30 of 89 steps were skipped: this is the 60th that is taken, and the 90th of all. */
static void learning_rate_when_steps_are_skipped_then_holds_or_counts(void **state)
{
    sl_config *config = &((fixture *)*state)->config;
    const sl_checkpoint_state after = {.step = 89, .skipped_steps = 30};
    config->lr = 1.0;
    config->min_lr = 0;
    config->warmup.count = 10;
    config->lr_decay_steps = 110;
    config->lr_schedule = SL_CONFIG_LINEAR;
    assert_int_equal(config->lr_skips, SL_CONFIG_HOLD);
    assert_true(is_near(sl_schedule_learning_rate(config, &after), 0.5));
    config->lr_skips = SL_CONFIG_COUNT_SKIPS;
    assert_true(is_near(sl_schedule_learning_rate(config, &after), 0.2));
}

/* As versions before computed it: warm-up the same, decay a step later, at its end after the last
 * step. */
static void learning_rate_when_its_decay_is_late_then_follows_by_a_step(void **state)
{
    sl_config *config = &((fixture *)*state)->config;
    config->lr = 1.0;
    config->min_lr = 0.2;
    config->warmup.count = 10;
    config->lr_decay_steps = 110;
    for (uint64_t n = 1; n <= 120; n++) {
        const sl_checkpoint_state late = {.step = n - 1, .lr_decay_lag = 1};
        double expected = n <= 10 ? rate_of(config, n) : rate_of(config, n - 1);
        assert_true(sl_schedule_learning_rate(config, &late) == expected);
    }
}

static void schedule_when_nothing_is_said_then_follows_the_steps(void **state)
{
    fixture *self = *state;
    assert_int_equal(assign(self, "data=x"), SL_OK);
    assert_int_equal(assign(self, "device=cpu"), SL_OK);
    assert_int_equal(assign(self, "steps=700"), SL_OK);
    assert_int_equal(sl_config_check(&self->config, SL_CONFIG_TRAIN), SL_OK);
    assert_int_equal(self->config.warmup.count, 7);
    assert_int_equal(self->config.lr_decay_steps, 700);
    assert_int_equal(assign(self, "lr-decay-steps=6"), SL_OK);
    assert_int_equal(sl_config_check(&self->config, SL_CONFIG_TRAIN), SL_ERROR_USAGE);
    assert_message_has("--lr-decay-steps 6");
}

static void warmup_when_below_1_then_is_a_share_of_the_steps(void **state)
{
    fixture *self = *state;
    json_t *object = NULL;
    assert_int_equal(assign(self, "data=x"), SL_OK);
    assert_int_equal(assign(self, "device=cpu"), SL_OK);
    assert_int_equal(assign(self, "warmup=.05"), SL_OK);
    assert_int_equal(assign(self, "steps=1000"), SL_OK); /* whatever comes first */
    assert_int_equal(sl_config_format_given(&self->config, SL_CONFIG_TRAIN, &object), SL_OK);
    assert_true(json_real_value(json_object_get(object, "warmup")) == 0.05); /* reads back */
    json_decref(object);
    assert_int_equal(sl_config_check(&self->config, SL_CONFIG_TRAIN), SL_OK);
    assert_int_equal(self->config.warmup.count, 50);
    assert_int_equal(sl_config_format_given(&self->config, SL_CONFIG_TRAIN, &object), SL_OK);
    assert_int_equal(json_integer_value(json_object_get(object, "warmup")), 50);
    json_decref(object);
    assert_int_equal(assign(self, "warmup=1"), SL_OK); /* a step */
    assert_int_equal(sl_config_check(&self->config, SL_CONFIG_TRAIN), SL_OK);
    assert_int_equal(self->config.warmup.count, 1);
    assert_int_equal(load_text(self, "{\"warmup\": 0.2}"), SL_OK);
    assert_int_equal(sl_config_check(&self->config, SL_CONFIG_TRAIN), SL_OK);
    assert_int_equal(self->config.warmup.count, 200);
    assert_int_equal(assign(self, "warmup=1.5"), SL_ERROR_USAGE);
    assert_message_has("neither a number of steps nor a share of them below 1");
    assert_int_equal(assign(self, "warmup=-0.1"), SL_ERROR_USAGE);
    assert_int_equal(assign(self, "chunk-size=16M"), SL_OK);
    assert_int_equal(self->config.chunk_size, 16777216);
    assert_int_equal(assign(self, "chunk-size=2T"), SL_ERROR_USAGE); /* beyond its range */
}

static void scalars_when_first_and_late_then_are_bias_corrections(void **state)
{
    fixture *self = *state;
    sl_checkpoint_state run = {.loss_scale = 1};
    self->config.warmup.count = 1;
    sl_step_scalars first = sl_schedule_scalars(&self->config, &run);
    assert_true(first.bias1 == (float)(1 - 0.9));
    assert_true(first.bias2_root == (float)sqrt(1 - 0.95));
    run = (sl_checkpoint_state){.step = 99999, .loss_scale = 4096};
    sl_step_scalars late = sl_schedule_scalars(&self->config, &run);
    assert_true(late.bias1 == 1.0f && late.bias2_root == 1.0f);
    assert_true(late.loss_scale == 4096.0f && late.clip == 1.0f && late.position == 0);
    run.skipped_steps = 99999; /* moments do not age by skipped steps */
    assert_true(sl_schedule_scalars(&self->config, &run).bias1 == first.bias1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_when_written_in_any_unit_then_are_bytes),
        cmocka_unit_test(sizes_when_malformed_then_are_refused),
        cmocka_unit_test(counts_when_not_whole_then_are_refused),
        cmocka_unit_test(elements_when_written_with_a_unit_then_are_powers_of_1024),
        cmocka_unit_test(exact_size_when_printed_then_reads_back),
#define WITH_CONFIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
        WITH_CONFIG(defaults_when_nothing_is_set_then_follow_the_contract),
        WITH_CONFIG(keys_when_spelled_with_either_dash_then_are_the_same),
        WITH_CONFIG(names_when_unknown_then_the_nearest_is_named),
        WITH_CONFIG(texts_when_set_to_nothing_then_are_their_default),
        WITH_CONFIG(values_when_out_of_range_then_are_refused_and_keep_the_old),
        WITH_CONFIG(json_when_well_formed_then_every_kind_of_value_is_taken),
        WITH_CONFIG(json_when_wrong_then_is_refused_by_name),
        WITH_CONFIG(json_when_it_holds_escape_sequences_then_messages_do_not),
        WITH_CONFIG(json_when_a_number_has_64_bits_then_reads_back_in_full),
        WITH_CONFIG(json_when_for_every_command_then_each_takes_its_own),
        WITH_CONFIG(json_when_it_has_tokens_then_generate_takes_them_unless_they_are_in_train),
        WITH_CONFIG(json_when_wrong_for_another_command_then_is_refused_too),
        WITH_CONFIG(paths_when_printed_then_are_absolute),
        WITH_CONFIG(json_when_printed_then_reads_back_to_the_same),
        WITH_CONFIG(texts_when_not_utf8_then_refused_and_none_is_lost),
        WITH_CONFIG(json_when_memory_is_refused_then_an_error_and_no_null),
        WITH_CONFIG(shape_when_named_by_hand_or_from_a_checkpoint_then_is_resolved),
        WITH_CONFIG(shape_of_llama_when_by_hand_then_sizes_follow),
        WITH_CONFIG(shape_of_llama_when_named_then_is_changed_and_recorded),
        WITH_CONFIG(sizes_of_llama_when_for_gpt2_then_are_refused),
        WITH_CONFIG(rows_when_longer_than_the_context_then_are_refused),
        WITH_CONFIG(learning_rate_when_scheduled_then_passes_known_points),
        WITH_CONFIG(learning_rate_when_steps_are_skipped_then_holds_or_counts),
        WITH_CONFIG(learning_rate_when_its_decay_is_late_then_follows_by_a_step),
        WITH_CONFIG(schedule_when_nothing_is_said_then_follows_the_steps),
        WITH_CONFIG(warmup_when_below_1_then_is_a_share_of_the_steps),
        WITH_CONFIG(scalars_when_first_and_late_then_are_bias_corrections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
