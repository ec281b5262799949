/* What could be wrong here: a unit read as another, a number cut or rounded without a word, a JSON
 * key that is taken twice or spelled wrongly and dropped, an option of a later version that is
 * accepted and does nothing, a default that does not follow from the others. Each case states the
 * value by hand; refusals are checked for what they tell the user to do. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "train/config/config_json.h"
#include "train/config/nearest.h"
#include "train/config/units.h"
#include "train/run/schedule.h"

static void assert_message_has(const char *part)
{
    if (!strstr(sl_status_message(), part))
        fail_msg("\"%s\" is not in \"%s\"", part, sl_status_message());
}

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
    static const char *const bad[] = {"",    "x",     "-1",   "1X",   "1MB2", "1Mi",    "1 M",
                                      "nan", "1e999", "0x10", "inf",  "+1",   "1KiBB",  "99999999T",
                                      "K",   "1.5.5", "1,5",  "1e3e", "--1",  "1e30GiB"};
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
    static const char *const bad[] = {"1.5", "-1", "", "1e20", "ten", "1 ", " 1", "0x1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (sl_units_parse_count(bad[i], &count) != SL_ERROR_USAGE)
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

typedef struct fixture {
    sl_config config;
} fixture;

static int set_up(void **state)
{
    fixture *self = calloc(1, sizeof *self);
    *state = self;
    return sl_config_init(&self->config);
}

static int tear_down(void **state)
{
    fixture *self = *state;
    sl_config_clear(&self->config);
    free(self);
    return 0;
}

static sl_status assign(fixture *self, const char *assignment)
{
    return sl_config_assign(&self->config, SL_CONFIG_TRAIN, assignment);
}

static void defaults_when_nothing_is_set_then_follow_the_contract(void **state)
{
    const sl_config *config = &((fixture *)*state)->config;
    assert_int_equal(config->micro_batch, 4);
    assert_int_equal(config->accumulate, 1);
    assert_int_equal(config->steps, 100);
    assert_true(config->lr == 3e-4 && config->weight_decay == 0.1);
    assert_true(config->beta1 == 0.9 && config->beta2 == 0.95 && config->eps == 1e-8);
    assert_true(config->clip == 1.0);
    assert_int_equal(config->precision, SL_CONFIG_FP32);
    assert_int_equal(config->policy, SL_CONFIG_POLICY_AUTO);
    assert_int_equal(config->recompute, SL_CONFIG_RECOMPUTE_AUTO);
    assert_int_equal(config->accumulation, SL_CONFIG_ACCUMULATION_AUTO);
    assert_int_equal(config->data_order, SL_CONFIG_RANDOM);
    assert_int_equal(config->seed, 1);
    assert_true(config->device_memory == SL_CONFIG_UNSET);
    assert_true(isnan(config->min_lr) && config->warmup == SL_CONFIG_UNSET);
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

static sl_status load_text(fixture *self, const char *text)
{
    char path[] = "/tmp/sluice-config-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    sl_status status = sl_config_load(&self->config, SL_CONFIG_TRAIN, path);
    unlink(path);
    return status;
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
    assert_int_equal(sl_config_load(&self->config, SL_CONFIG_TRAIN, "/nonexistent/x.json"),
                     SL_ERROR_MISSING);
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

/* ---- what follows from what ---- */

static void check_when_plain_then_fills_in_what_follows(void **state)
{
    fixture *self = *state;
    assert_int_equal(assign(self, "data=x"), SL_OK);
    assert_int_equal(assign(self, "steps=500"), SL_OK);
    assert_int_equal(assign(self, "policy=const"), SL_OK);
    assert_int_equal(assign(self, "offload-params=0.5"), SL_OK);
    assert_int_equal(sl_config_check(&self->config, SL_CONFIG_TRAIN), SL_OK);
    assert_int_equal(self->config.policy, SL_POLICY_STATIC);
    assert_int_equal(self->config.warmup, 5);
    assert_true(fabs(self->config.min_lr - 3e-5) < 1e-20);
    assert_true(self->config.threads >= 1 && self->config.threads <= 4096);
    assert_string_equal(self->config.device, "cpu");
}

static void check_when_of_a_later_version_then_says_so_and_what_to_use(void **state)
{
    (void)state;
    static const char *const later[] = {
        "device=cuda",
        "device=cuda:1",
        "dropout=0.1",
        "tp=2",
        "pp=2",
        "zero=2",
        "zero=3",
        "timeline=a",
        "report=a",
        "machine=a",
        "tokenizer=some/path",
        "sequence-parallel=true",
    };
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
        fixture self;
        assert_int_equal(sl_config_init(&self.config), SL_OK);
        assert_int_equal(assign(&self, "data=x"), SL_OK);
        assert_int_equal(assign(&self, later[i]), SL_OK);
        if (sl_config_check(&self.config, SL_CONFIG_TRAIN) != SL_ERROR_USAGE)
            fail_msg("%s was accepted", later[i]);
        assert_message_has("later version: ");
        sl_config_clear(&self.config);
    }
}

static void check_when_options_contradict_then_is_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"resume=true", "--save"},
        {"save-every=3", "--save"},
        {"keep=2", "--save"},
        {"eval-every=3", "--eval-data"},
        {"offload-params=0.5", "static"},
        {"offload-activations=0.5", "--policy host, static or nvme"},
        {"nvme-params=0.5", "--policy static or nvme"},
        {"nvme-activations=0.5", "--policy static or nvme"},
        {"policy=nvme", "--disk-dir DIR"},
        {"disk-space=1G", "--disk-dir DIR"},
        {"loss-scale=0", "loss-scale"},
        {"loss-scale=x", "loss-scale"},
        {"device=gpu", "cpu|cuda"},
        {"min-lr=1", "--min-lr"},
        {"data=", "--data"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fixture self;
        assert_int_equal(sl_config_init(&self.config), SL_OK);
        assert_int_equal(assign(&self, "data=x"), SL_OK);
        assert_int_equal(assign(&self, bad[i][0]), SL_OK);
        if (sl_config_check(&self.config, SL_CONFIG_TRAIN) != SL_ERROR_USAGE)
            fail_msg("%s was accepted", bad[i][0]);
        assert_message_has(bad[i][1]);
        sl_config_clear(&self.config);
    }
}

/* Settings, the last one NULL, behind data=x; the status of the check, or of a setting. */
static sl_status check_all(fixture *self, const char *const *settings)
{
    sl_status status = assign(self, "data=x");
    for (; *settings && status == SL_OK; settings++)
        status = assign(self, *settings);
    return status == SL_OK ? sl_config_check(&self->config, SL_CONFIG_TRAIN) : status;
}

static void check_when_shares_are_more_than_all_then_is_refused(void **state)
{
    (void)state;
    static const char *const kinds[] = {"params", "grads", "optimizer", "activations"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (int is_too_much = 0; is_too_much < 2; is_too_much++) {
            fixture self;
            char host[48], disk[48];
            snprintf(host, sizeof host, "offload-%s=0.7", kinds[i]);
            snprintf(disk, sizeof disk, "nvme-%s=%s", kinds[i], is_too_much ? "0.31" : "0.3");
            assert_int_equal(sl_config_init(&self.config), SL_OK);
            sl_status status = check_all(
                &self, (const char *const[]){"policy=static", host, disk, "disk-dir=/tmp", NULL});
            assert_int_equal(status, is_too_much ? SL_ERROR_USAGE : SL_OK);
            if (is_too_much)
                assert_message_has(kinds[i]);
            sl_config_clear(&self.config);
        }
}

static void check_when_share_on_disk_has_no_directory_then_says_what_to_add(void **state)
{
    fixture *self = *state;
    assert_int_equal(
        check_all(self, (const char *const[]){"policy=static", "nvme-grads=0.5", NULL}),
        SL_ERROR_USAGE);
    assert_message_has("--nvme-grads needs a place on disk: add --disk-dir DIR");
}

static void check_when_there_is_no_directory_then_the_disk_has_no_space(void **state)
{
    fixture *self = *state;
    assert_int_equal(check_all(self, (const char *const[]){NULL}), SL_OK);
    assert_true(self->config.disk_space == 0);
    assert_int_equal(assign(self, "disk-dir=/tmp"), SL_OK);
    assert_int_equal(assign(self, "disk-space=auto"), SL_OK);
    assert_int_equal(assign(self, "policy=nvme"), SL_OK);
    assert_int_equal(sl_config_check(&self->config, SL_CONFIG_TRAIN), SL_OK);
    assert_int_equal(self->config.policy, SL_POLICY_NVME);
    assert_true(self->config.disk_space == SL_CONFIG_UNSET); /* until the disk was asked */
}

static void check_when_precision_is_set_then_scale_and_skipping_follow(void **state)
{
    (void)state;
    static const struct {
        const char *settings[4], *loss_scale;
        uint32_t nonfinite;
        sl_status status;
    } cases[] = {
        {{"precision=fp32"}, "1", SL_CONFIG_STOP, SL_OK},
        {{"precision=bf16"}, "1", SL_CONFIG_STOP, SL_OK},
        {{"precision=fp16"}, "dynamic", SL_CONFIG_SKIP, SL_OK},
        {{"precision=fp16", "loss-scale=1024"}, "1024", SL_CONFIG_SKIP, SL_OK},
        {{"precision=fp16", "loss-scale=8", "nonfinite=stop"}, "8", SL_CONFIG_STOP, SL_OK},
        {{"precision=bf16", "loss-scale=dynamic"}, "dynamic", SL_CONFIG_SKIP, SL_OK},
        {{"loss-scale=dynamic", "nonfinite=skip"}, "dynamic", SL_CONFIG_SKIP, SL_OK},
        {{"precision=fp16", "nonfinite=stop"}, NULL, 0, SL_ERROR_USAGE},
        {{"loss-scale=dynamic", "nonfinite=stop"}, NULL, 0, SL_ERROR_USAGE},
        {{"loss-scale=inf"}, NULL, 0, SL_ERROR_USAGE},
        {{"loss-scale=-2"}, NULL, 0, SL_ERROR_USAGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture self;
        assert_int_equal(sl_config_init(&self.config), SL_OK);
        assert_int_equal(check_all(&self, cases[i].settings), cases[i].status);
        if (cases[i].status == SL_OK) {
            assert_string_equal(self.config.loss_scale, cases[i].loss_scale);
            assert_int_equal(self.config.nonfinite, cases[i].nonfinite);
        }
        sl_config_clear(&self.config);
    }
}

static void shape_when_named_by_hand_or_from_a_checkpoint_then_is_resolved(void **state)
{
    fixture *self = *state;
    sl_gpt2_shape shape;
    const sl_gpt2_shape base = {3, 96, 6, 48, 300};
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

static void rows_when_longer_than_the_context_then_are_refused(void **state)
{
    fixture *self = *state;
    const sl_gpt2_shape shape = {2, 64, 4, 128, 257};
    assert_int_equal(sl_config_fit_model(&self->config, &shape), SL_OK);
    assert_int_equal(self->config.seq, 128);
    self->config.seq = 129;
    assert_int_equal(sl_config_fit_model(&self->config, &shape), SL_ERROR_USAGE);
    assert_message_has("128");
}

/* ---- schedule ---- */

static void learning_rate_when_scheduled_then_passes_known_points(void **state)
{
    fixture *self = *state;
    sl_config *config = &self->config;
    config->lr = 1.0;
    config->min_lr = 0.2;
    config->warmup = 10;
    config->steps = 110;
    /* Rounding of a few operations near 1: 1e-15. */
    assert_true(fabs(sl_schedule_learning_rate(config, 0) - 0.1) < 1e-15);
    assert_true(fabs(sl_schedule_learning_rate(config, 9) - 1.0) < 1e-15);
    assert_true(fabs(sl_schedule_learning_rate(config, 10) - 1.0) < 1e-15);
    assert_true(fabs(sl_schedule_learning_rate(config, 60) - 0.6) < 1e-15);
    assert_true(fabs(sl_schedule_learning_rate(config, 110) - 0.2) < 1e-15);
    /* A quarter of the way: 0.2 + 0.8 * (1 + cos(45 degrees)) / 2. */
    assert_true(fabs(sl_schedule_learning_rate(config, 35) - 0.88284271247461903) < 1e-15);
    config->lr_schedule = SL_CONFIG_LINEAR;
    assert_true(fabs(sl_schedule_learning_rate(config, 35) - 0.8) < 1e-15);
    config->lr_schedule = SL_CONFIG_CONSTANT;
    assert_true(sl_schedule_learning_rate(config, 109) == 1.0);
}

static void scalars_when_first_and_late_then_are_bias_corrections(void **state)
{
    fixture *self = *state;
    sl_step_scalars first = sl_schedule_scalars(&self->config, 0, 1);
    assert_true(first.bias1 == (float)(1 - 0.9));
    assert_true(first.bias2_root == (float)sqrt(1 - 0.95));
    sl_step_scalars late = sl_schedule_scalars(&self->config, 99999, 100000);
    assert_true(late.bias1 == 1.0f && late.bias2_root == 1.0f);
    assert_true(late.loss_scale == 1.0f && late.clip == 1.0f && late.position == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_when_written_in_any_unit_then_are_bytes),
        cmocka_unit_test(sizes_when_malformed_then_are_refused),
        cmocka_unit_test(counts_when_not_whole_then_are_refused),
        cmocka_unit_test(exact_size_when_printed_then_reads_back),
#define WITH_CONFIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
        WITH_CONFIG(defaults_when_nothing_is_set_then_follow_the_contract),
        WITH_CONFIG(keys_when_spelled_with_either_dash_then_are_the_same),
        WITH_CONFIG(names_when_unknown_then_the_nearest_is_named),
        WITH_CONFIG(values_when_out_of_range_then_are_refused_and_keep_the_old),
        WITH_CONFIG(json_when_well_formed_then_every_kind_of_value_is_taken),
        WITH_CONFIG(json_when_wrong_then_is_refused_by_name),
        WITH_CONFIG(json_when_printed_then_reads_back_to_the_same),
        WITH_CONFIG(check_when_plain_then_fills_in_what_follows),
        cmocka_unit_test(check_when_of_a_later_version_then_says_so_and_what_to_use),
        cmocka_unit_test(check_when_options_contradict_then_is_refused),
        cmocka_unit_test(check_when_shares_are_more_than_all_then_is_refused),
        WITH_CONFIG(check_when_share_on_disk_has_no_directory_then_says_what_to_add),
        WITH_CONFIG(check_when_there_is_no_directory_then_the_disk_has_no_space),
        cmocka_unit_test(check_when_precision_is_set_then_scale_and_skipping_follow),
        WITH_CONFIG(shape_when_named_by_hand_or_from_a_checkpoint_then_is_resolved),
        WITH_CONFIG(rows_when_longer_than_the_context_then_are_refused),
        WITH_CONFIG(learning_rate_when_scheduled_then_passes_known_points),
        WITH_CONFIG(scalars_when_first_and_late_then_are_bias_corrections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
