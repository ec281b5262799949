/* What could be wrong here: options that contradict each other are taken, what follows from others
 * is not filled in, a share on disk goes nowhere. Each case states by hand what must come out;
 * refusals must say what to do. */
#include <math.h>

#include "config_case.h"

static void check_when_plain_then_fills_in_what_follows(void **state)
{
    fixture *self = *state;
    assert_int_equal(assign(self, "data=x"), SL_OK);
    assert_int_equal(assign(self, "device=cpu"), SL_OK);
    assert_int_equal(assign(self, "steps=500"), SL_OK);
    assert_int_equal(assign(self, "policy=const"), SL_OK);
    assert_int_equal(assign(self, "offload-params=0.5"), SL_OK);
    assert_int_equal(sl_config_check(&self->config, SL_CONFIG_TRAIN), SL_OK);
    assert_int_equal(self->config.policy, SL_POLICY_STATIC);
    assert_int_equal(self->config.warmup.count, 5);
    assert_true(fabs(self->config.min_lr - 3e-5) < 1e-20);
    assert_true(self->config.threads >= 1 && self->config.threads <= 4096);
    assert_string_equal(self->config.device, "cpu");
    assert_int_equal(self->config.precision, SL_CONFIG_FP32);
}

static void check_when_options_contradict_then_is_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"resume=true", "--save"},
        {"save-every=3", "--save"},
        {"keep=2", "--save"},
        {"overwrite=true", "--save"},
        {"eval-iters=3", "--eval-data"},
        {"eval-every=3", "--eval-data"},
        {"offload-params=0.5", "static"},
        {"offload-activations=0.5", "--policy host, static or nvme"},
        {"nvme-params=0.5", "--policy static or nvme"},
        {"nvme-activations=0.5", "--policy static or nvme"},
        {"policy=nvme", "--disk-dir DIR"},
        {"disk-space=1G", "--disk-dir DIR"},
        {"loss-scale=0", "loss-scale"},
        {"loss-scale=x", "loss-scale"},
        {"loss-scale-start=1024", "--loss-scale-start is for a dynamic loss scale"},
        {"loss-scale-window=10", "--loss-scale-window is for a dynamic loss scale"},
        {"loss-scale-hysteresis=2", "--loss-scale-hysteresis is for a dynamic loss scale"},
        {"loss-scale-min=2", "--loss-scale-min is for a dynamic loss scale"},
        {"device=gpus", "cpu|cuda"},
        {"device=cuda1", "cpu|cuda"},
        {"device=cuda:", "cpu|cuda"},
        {"device=cuda:-1", "cpu|cuda"},
        {"device=cuda:1024", "cpu|cuda"},
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

/* A plan can be for a GPU that is elsewhere, so it is the command that computes which must have it.
 */
static void check_when_device_is_missing_then_only_a_plan_goes_on(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        fixture self;
        const char *const settings[] = {"device=cuda:1000", "data=x", NULL};
        sl_config_command command = i == 0 ? SL_CONFIG_TRAIN : SL_CONFIG_PLAN;
        assert_int_equal(sl_config_init(&self.config), SL_OK);
        for (int j = 0; settings[j]; j++)
            assert_int_equal(assign(&self, settings[j]), SL_OK);
        assert_int_equal(sl_config_check(&self.config, command), i == 0 ? SL_ERROR_SYSTEM : SL_OK);
        if (i == 0)
            assert_message_has("--device cuda:1000: ");
        assert_string_equal(self.config.device, "cuda:1000");
        assert_int_equal(self.config.precision, SL_CONFIG_BF16);
        sl_config_clear(&self.config);
    }
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
        {{"precision=fp16", "loss-scale-start=1e9"}, "dynamic", SL_CONFIG_SKIP, SL_OK},
        {{"precision=fp32", "loss-scale-start=65536"}, "1", SL_CONFIG_STOP, SL_OK},
        {{"precision=fp16", "loss-scale-min=65537"}, NULL, 0, SL_ERROR_USAGE},
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

int main(void)
{
#define WITH_CONFIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_CONFIG(check_when_plain_then_fills_in_what_follows),
        cmocka_unit_test(check_when_options_contradict_then_is_refused),
        cmocka_unit_test(check_when_shares_are_more_than_all_then_is_refused),
        WITH_CONFIG(check_when_share_on_disk_has_no_directory_then_says_what_to_add),
        WITH_CONFIG(check_when_there_is_no_directory_then_the_disk_has_no_space),
        cmocka_unit_test(check_when_device_is_missing_then_only_a_plan_goes_on),
        cmocka_unit_test(check_when_precision_is_set_then_scale_and_skipping_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
