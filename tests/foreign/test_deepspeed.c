/* What could be wrong here: a key of DeepSpeed's is passed over though it changes the numbers,
 * means something else than there, or is lost without a word; what a file leaves out takes our
 * defaults; batches do not multiply; a schedule is a step off; a file that was spoilt is taken, or
 * a wrong one refused without the key's name. Options are compared with ones that were found by
 * hand, learning rates with those that DeepSpeed's own runtime/lr_schedules.py gave, and every row
 * of the list of keys is tried. */
#define _GNU_SOURCE /* nftw */
#include <math.h>

#include "config/config_case.h"
#include "config/config_json.h"
#include "config/tensor_parallel.h"
#include "foreign/deepspeed/config_file.h"
#include "foreign/deepspeed/deepspeed_keys.h"
#include "scratch_dir.h"
#include "train/schedule.h"

static scratch_path directory;

static int open_directory(void **state)
{
    (void)state;
    directory = scratch_open();
    return 0;
}

static int close_directory(void **state)
{
    (void)state;
    scratch_close(&directory);
    return 0;
}

static sl_status load_bytes(sl_config *config, sl_config_command command, const char *text,
                            size_t bytes)
{
    char path[sizeof directory.text + 16];
    snprintf(path, sizeof path, "%s/ds.json", directory.text);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
    return sl_config_file_load(config, command, path);
}

static sl_status load(fixture *self, const char *text)
{
    return load_bytes(&self->config, SL_CONFIG_TRAIN, text, strlen(text));
}

static void accept(fixture *self, const char *text)
{
    if (load(self, text) != SL_OK)
        fail_msg("%s: %s", text, sl_status_message());
}

static void assert_explained(const fixture *self, const char *part)
{
    if (!self->config.explanation || !strstr(self->config.explanation, part))
        fail_msg("\"%s\" is not in \"%s\"", part, self->config.explanation);
}

/* ---- what is left out ---- */

static void file_when_it_says_little_then_has_deepspeeds_defaults(void **state)
{
    fixture *self = *state;
    const sl_config *config = &self->config;
    accept(self, "{\"train_micro_batch_size_per_gpu\": 3}");
    assert_int_equal(config->micro_batch, 3);
    assert_int_equal(config->accumulate, 1);
    assert_int_equal(config->precision, SL_CONFIG_FP32);
    assert_true(config->lr == 1e-3 && config->beta1 == 0.9 && config->beta2 == 0.999);
    assert_true(config->eps == 1e-8 && config->weight_decay == 0 && config->clip == 0);
    assert_int_equal(config->lr_schedule, SL_CONFIG_CONSTANT);
    assert_int_equal(config->warmup.count, 0);
    assert_int_equal(config->policy, SL_CONFIG_POLICY_AUTO);
    assert_true(config->given[SL_CONFIG_ROW_micro_batch]);
    assert_false(config->given[SL_CONFIG_ROW_lr]); /* nobody said so */
    assert_false(config->given[SL_CONFIG_ROW_clip]);
    assert_explained(self, "--clip 0\n");
}

static void fp16_when_it_says_little_then_has_deepspeeds_scale(void **state)
{
    fixture *self = *state;
    const sl_config *config = &self->config;
    accept(self, "{\"fp16\": {\"enabled\": true}}");
    assert_int_equal(assign(self, "data=x"), SL_OK);
    assert_int_equal(assign(self, "device=cpu"), SL_OK);
    assert_int_equal(sl_config_check(&self->config, SL_CONFIG_TRAIN), SL_OK);
    assert_int_equal(config->precision, SL_CONFIG_FP16);
    assert_string_equal(config->loss_scale, "dynamic");
    assert_true(config->loss_scale_start == 65536 && config->loss_scale_min == 1);
    assert_int_equal(config->loss_scale_window, 1000);
    assert_int_equal(config->loss_scale_hysteresis, 2);
}

/* Another precision on the command line: there is no scale that these could be of. */
static void fp16_when_overridden_then_its_scale_goes_with_it(void **state)
{
    fixture *self = *state;
    accept(self, "{\"fp16\": {\"enabled\": true, \"hysteresis\": 4, \"initial_scale_power\": 20}}");
    assert_int_equal(assign(self, "data=x"), SL_OK);
    assert_int_equal(assign(self, "device=cpu"), SL_OK);
    assert_int_equal(assign(self, "precision=fp32"), SL_OK);
    assert_int_equal(sl_config_check(&self->config, SL_CONFIG_TRAIN), SL_OK);
    assert_string_equal(self->config.loss_scale, "1");
    assert_int_equal(self->config.loss_scale_hysteresis, 1);
}

static void file_when_another_was_given_before_then_wins_by_what_it_says_alone(void **state)
{
    fixture *self = *state;
    assert_int_equal(assign(self, "lr=0.5"), SL_OK);
    assert_int_equal(assign(self, "beta1=0.5"), SL_OK);
    accept(self, "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"betas\": [0.8, 0.9]}}}");
    assert_true(self->config.lr == 0.5);
    assert_true(self->config.beta1 == 0.8 && self->config.beta2 == 0.9);
    assert_explained(self, "--lr as given before\n");
}

static void muon_when_read_then_has_deepspeeds_scale_and_one_rate(void **state)
{
    fixture *self = *state;
    accept(self, "{\"optimizer\": {\"type\": \"Muon\", \"params\": {\"lr\": 0.02}}}");
    assert_int_equal(self->config.optimizer, SL_CONFIG_MUON);
    assert_int_equal(self->config.muon_scale, SL_CONFIG_ORIGINAL);
    assert_true(self->config.lr == 0.02 && self->config.momentum == 0.95);
    assert_true(self->config.weight_decay == 0 && self->config.beta2 == 0.95);
    assert_explained(self, "--optimizer muon --muon-scale original\n");
    assert_int_equal(load(self, "{\"optimizer\": {\"type\": \"Muon\"}}"), SL_ERROR_USAGE);
    assert_message_has("without lr");
    assert_int_equal(load(self, "{\"optimizer\": {\"type\": \"Muon\", \"params\": {\"lr\": 1, "
                                "\"muon_lr\": 0.02}}}"),
                     SL_ERROR_USAGE);
    assert_message_has("muon_lr");
}

/* ---- batches ---- */

static void batch_when_any_two_are_there_then_the_third_follows(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t micro_batch, accumulate;
        const char *fragment; /* of a refusal */
    } cases[] = {
        {"{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 3, "
         "\"gradient_accumulation_steps\": 4}",
         3, 4, NULL},
        {"{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 3}", 3, 4, NULL},
        {"{\"train_batch_size\": 12, \"gradient_accumulation_steps\": 4}", 3, 4, NULL},
        {"{\"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 4}", 3, 4, NULL},
        {"{\"train_batch_size\": 12}", 12, 1, NULL},
        {"{\"gradient_accumulation_steps\": 5}", 4, 5, NULL},
        {"{\"train_batch_size\": 1e1, \"train_micro_batch_size_per_gpu\": 5.0}", 5, 2, NULL},
        {"{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\", "
         "\"gradient_accumulation_steps\": \"auto\"}",
         4, 1, NULL},
        {"{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4, " /* for 4 ranks */
         "\"gradient_accumulation_steps\": 2}",
         4, 2, NULL},
        {"{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4, "
         "\"gradient_accumulation_steps\": 3}",
         0, 0, "gradient_accumulation_steps 8 would do"},
        {"{\"train_batch_size\": 13, \"train_micro_batch_size_per_gpu\": 3}", 0, 0,
         "\"train_batch"},
        {"{\"train_batch_size\": 13, \"gradient_accumulation_steps\": 2}", 0, 0, "\"train_batch"},
        {"{\"train_batch_size\": 3, \"gradient_accumulation_steps\": 4}", 0, 0, "\"train_batch"},
        {"{\"train_batch_size\": 0}", 0, 0, "at least 1"},
        {"{\"train_micro_batch_size_per_gpu\": -1}", 0, 0, "at least 1"},
        {"{\"train_micro_batch_size_per_gpu\": 1.5}", 0, 0, "not a whole number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture self;
        assert_int_equal(sl_config_init(&self.config), SL_OK);
        sl_status status = load(&self, cases[i].text);
        if (status != (cases[i].fragment ? SL_ERROR_USAGE : SL_OK))
            fail_msg("%s: %s", cases[i].text, sl_status_message());
        if (cases[i].fragment) {
            assert_message_has(cases[i].fragment);
        } else {
            assert_int_equal(self.config.micro_batch, cases[i].micro_batch);
            assert_int_equal(self.config.accumulate, cases[i].accumulate);
        }
        sl_config_clear(&self.config);
    }
}

/* ---- ranks ---- */

/* A file does not know how many tensor-parallel ranks there will be. */
static void partition_when_asked_for_then_is_of_tensor_parallel_ranks(void **state)
{
    fixture *self = *state;
    static const char text[] = "{\"activation_checkpointing\": {\"partition_activations\": true}}";
    accept(self, text);
    assert_explained(self, "--partition-activations, where --tp is above 1\n");
    assert_int_equal(assign(self, "tp=2"), SL_OK);
    assert_int_equal(sl_tensor_parallel_check(&self->config), SL_OK);
    assert_true(self->config.partition_activations);
    assert_int_equal(assign(self, "tp=1"), SL_OK);
    assert_int_equal(sl_tensor_parallel_check(&self->config), SL_OK);
    assert_false(self->config.partition_activations);
    accept(self, text);
    assert_int_equal(assign(self, "tp=2"), SL_OK);
    assert_int_equal(assign(self, "sequence-parallel=true"), SL_OK); /* has no more than a part */
    assert_int_equal(sl_tensor_parallel_check(&self->config), SL_OK);
    assert_false(self->config.partition_activations);
    assert_int_equal(assign(self, "partition-activations=true"), SL_OK); /* a user did */
    assert_int_equal(sl_tensor_parallel_check(&self->config), SL_ERROR_USAGE);
}

/* ---- places ---- */

#define ZERO(stage, more) "{\"zero_optimization\": {\"stage\": " stage ", " more "}}"
#define STATES(device) "\"offload_optimizer\": {\"device\": \"" device "\", \"nvme_path\": \"/a\"}"
#define PARAMS(device) "\"offload_param\": {\"device\": \"" device "\", \"nvme_path\": \"/b\"}"

static void offload_when_read_then_is_a_policy(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t policy;
        double host_params, host_grads, host_states, disk_params, disk_states;
        uint32_t directories;
    } cases[] = {
        {ZERO("3", STATES("none") ", " PARAMS("none")), SL_CONFIG_POLICY_AUTO, 0, 0, 0, 0, 0, 0},
        {ZERO("0", STATES("cpu") ", " PARAMS("cpu")), SL_CONFIG_POLICY_AUTO, 0, 0, 0, 0, 0, 0},
        {ZERO("2", STATES("cpu") ", " PARAMS("cpu")), SL_POLICY_STATIC, 0, 1, 1, 0, 0, 0},
        {ZERO("3", STATES("cpu") ", " PARAMS("cpu")), SL_POLICY_HOST, 0, 0, 0, 0, 0, 0},
        {ZERO("3", PARAMS("cpu")), SL_POLICY_STATIC, 1, 0, 0, 0, 0, 0},
        {ZERO("3", STATES("nvme")), SL_POLICY_STATIC, 0, 1, 0, 0, 1, 1},
        {ZERO("3", PARAMS("nvme")), SL_POLICY_STATIC, 0, 0, 0, 1, 0, 1},
        {ZERO("3", STATES("cpu") ", " PARAMS("nvme")), SL_POLICY_STATIC, 0, 1, 1, 1, 0, 1},
        {ZERO("3", STATES("nvme") ", " PARAMS("cpu")), SL_POLICY_NVME, 0, 0, 0, 0, 0, 1},
        {ZERO("3", STATES("nvme") ", " PARAMS("nvme")), SL_POLICY_NVME, 0, 0, 0, 1, 0, 2},
        {ZERO("3", "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.25}"),
         SL_POLICY_STATIC, 0, 0.25, 0.25, 0, 0, 0},
        {ZERO("1", "\"cpu_offload\": true"), SL_POLICY_STATIC, 0, 1, 1, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture self;
        assert_int_equal(sl_config_init(&self.config), SL_OK);
        accept(&self, cases[i].text);
        const sl_config *config = &self.config;
        if (config->zero != (uint64_t)(strstr(cases[i].text, "stage")[8] - '0'))
            fail_msg("%s: --zero %u", cases[i].text, (unsigned)config->zero);
        if (config->policy != cases[i].policy || config->offload_params != cases[i].host_params ||
            config->offload_grads != cases[i].host_grads ||
            config->offload_optimizer != cases[i].host_states ||
            config->nvme_params != cases[i].disk_params ||
            config->nvme_optimizer != cases[i].disk_states ||
            config->disk_dir.count != cases[i].directories)
            fail_msg("%s: %s", cases[i].text, config->explanation);
        sl_config_clear(&self.config);
    }
}

static void offload_when_both_go_to_one_directory_then_it_is_named_once(void **state)
{
    fixture *self = *state;
    accept(self,
           ZERO("3", "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/nvme\"}, "
                     "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/nvme\"}"));
    assert_int_equal(self->config.disk_dir.count, 1);
    assert_string_equal(self->config.disk_dir.items[0], "/nvme");
    accept(self, "{\"activation_checkpointing\": {\"cpu_checkpointing\": true}, "
                 "\"zero_optimization\": {\"stage\": 0}}");
    assert_int_equal(self->config.policy, SL_POLICY_STATIC);
    assert_true(self->config.offload_activations == 1);
}

/* ---- schedules ---- */

#define SCHEDULER(type, params)                                                                    \
    "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-4}}, \"scheduler\": "           \
    "{\"type\": "                                                                                  \
    "\"" type "\", \"params\": {" params "}}}"

enum { RATES_MAX = 14 };

/* The rate of the first steps, as DeepSpeed's classes gave them. */
static const struct {
    const char *text;
    uint32_t count;
    double rates[RATES_MAX];
} schedules[] = {
    {SCHEDULER("WarmupLR", "\"warmup_min_lr\": 1e-5, \"warmup_num_steps\": 4"),
     8,
     {1e-5, 1e-5, 0.00015499999999999997, 0.00023981956260456762, 3e-4, 3e-4, 3e-4, 3e-4}},
    {SCHEDULER("WarmupLR", "\"warmup_min_lr\": 1e-5, \"warmup_max_lr\": 2e-3, "
                           "\"warmup_num_steps\": 4, \"warmup_type\": \"linear\""),
     8,
     {1e-5, 1e-5, 0.0005075, 0.001005, 0.0015025, 0.002, 0.002, 0.002}},
    {SCHEDULER("WarmupLR", "\"warmup_num_steps\": 1"), 6, {0, 0, 3e-4, 3e-4, 3e-4, 3e-4}},
    {SCHEDULER("WarmupDecayLR", "\"total_num_steps\": 10, \"warmup_max_lr\": 2e-3, "
                                "\"warmup_num_steps\": 4"),
     14,
     {0, 0, 0.001, 0.0015849625007211563, 0.002, 0.002, 0.0016666666666666668,
      0.0013333333333333333, 0.001, 0.00066666666666666664, 0.00033333333333333332, 0, 0, 0}},
    {SCHEDULER("WarmupDecayLR", "\"total_num_steps\": 10, \"warmup_min_lr\": 1e-5, "
                                "\"warmup_max_lr\": 2e-3, \"warmup_num_steps\": 4, "
                                "\"warmup_type\": \"linear\""),
     14,
     {1e-5, 1e-5, 0.0005075, 0.001005, 0.0015025, 0.002, 0.0016683333333333335,
      0.0013366666666666666, 0.001005, 0.00067333333333333329, 0.00034166666666666666, 1e-5, 1e-5,
      1e-5}},
    {SCHEDULER("WarmupCosineLR", "\"total_num_steps\": 10, \"warmup_num_steps\": 4"),
     14,
     {0, 0, 0.00015, 0.00023774437510817341, 3e-4, 0.000279905820186609, 0.00022500749999999995,
      0.00015001499999999998, 7.5022500000000022e-05, 2.0124179813390959e-05, 3e-8, 3e-8, 3e-8,
      3e-8}},
    {SCHEDULER("WarmupCosineLR", "\"total_num_steps\": 10, \"warmup_num_steps\": 4, "
                                 "\"warmup_min_ratio\": 0.25, \"cos_min_ratio\": 0.125, "
                                 "\"warmup_type\": \"linear\""),
     14,
     {0, 7.5e-5, 0.00013125, 0.0001875, 0.00024375, 0.0002824158342467076, 0.000234375, 0.00016875,
      0.000103125, 5.5084165753292429e-05, 3.75e-5, 3.75e-5, 3.75e-5, 3.75e-5}},
};

static void compare_rates(const fixture *self, size_t index)
{
    for (uint64_t n = 1; n <= schedules[index].count; n++) {
        const double expected = schedules[index].rates[n - 1];
        const sl_checkpoint_state before = {.step = n - 1};
        double rate = sl_schedule_learning_rate(&self->config, &before);
        if (fabs(rate - expected) > 1e-18) /* a few roundings of doubles below 2^-8 */
            fail_msg("%s: step %d has %.17g, not %.17g", schedules[index].text, (int)n, rate,
                     expected);
    }
}

static void schedules_when_read_then_give_deepspeeds_rates(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        fixture self;
        assert_int_equal(sl_config_init(&self.config), SL_OK);
        accept(&self, schedules[i].text);
        assert_int_equal(assign(&self, "data=x"), SL_OK);
        assert_int_equal(assign(&self, "device=cpu"), SL_OK);
        assert_int_equal(sl_config_check(&self.config, SL_CONFIG_TRAIN), SL_OK);
        compare_rates(&self, i);
        sl_config_clear(&self.config);
    }
}

/* ---- what is refused, and what is passed over ---- */

#define PARAM(text) "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {" text "}}}"

static void numbers_when_they_would_change_then_are_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"optimizer\": {\"type\": \"Lamb\"}}", "\"optimizer.type\" is Lamb"},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false, "
         "\"weight_decay\": 0.1}}}",
         "adam_w_mode"},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false, "
         "\"weight_decay\": \"auto\"}}}",
         "adam_w_mode"},
        {PARAM("\"bias_correction\": false"), "bias_correction"},
        {PARAM("\"fp32_optimizer_states\": false"), "fp32_optimizer_states"},
        {PARAM("\"max_grad_norm\": 1.0"), "gradient_clipping"},
        {PARAM("\"betas\": [0.9]"), "two numbers"},
        {PARAM("\"betas\": {\"0\": 1}"), "two numbers"},
        {PARAM("\"betas\": [0.9, \"0.9\"]"), "two numbers"},
        {PARAM("\"betas\": [0.9, 1.5]"), "--beta2"},
        {PARAM("\"lr\": -1"), "--lr"},
        {PARAM("\"eps\": 0"), "--eps"},
        {SCHEDULER("OneCycle", ""), "\"scheduler.type\" is OneCycle"},
        {SCHEDULER("WarmupDecayLr", "\"total_num_steps\": 9"), "did you mean WarmupDecayLR?"},
        {SCHEDULER("WarmupDecayLR", ""), "total_num_steps"},
        {SCHEDULER("WarmupLR", "\"total_num_steps\": 9"), "no parameter of WarmupLR"},
        {SCHEDULER("WarmupLR", "\"cos_min_ratio\": 0.1"), "no parameter of WarmupLR"},
        {SCHEDULER("WarmupLR", "\"warmup_num_steps\": 0"), "at least 1"},
        {SCHEDULER("WarmupLR", "\"warmup_type\": \"cubic\""), "linear|log"},
        {SCHEDULER("WarmupLR", "\"last_batch_iteration\": 7"), "last_batch_iteration"},
        {"{\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}}", "one compute type"},
        {"{\"fp16\": {\"enabled\": true, \"consecutive_hysteresis\": true}}", "consecutive"},
        {"{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 90}}", "initial_scale_power"},
        {"{\"bf16\": {\"enabled\": true}, \"data_types\": {\"grad_accum_dtype\": \"bf16\"}}",
         "grad_accum_dtype"},
        {"{\"bf16\": {\"enabled\": true}, \"data_types\": {\"param_dtype\": \"fp32\"}}",
         "param_dtype"},
        {ZERO("4", STATES("cpu")), "0, 1, 2 or 3"},
        {ZERO("3", STATES("gpu")), "none|cpu|nvme"},
        {ZERO("3", "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 1.5}"), "ratio"},
        {"{\"fp16\": {}, \"sequence_parallel_size\": 2}", "--sequence-parallel"},
        {"{\"fp16\": {}, \"tensor_parallel\": {\"autotp_size\": 4.5}}", "autotp_size"},
        {"{\"fp16\": {}, \"gradient_allreduce_op\": \"sum\"}", "averaged"},
        {"{\"fp16\": {}, \"steps\": 5}", "\"steps\" is an option of sluice"},
        {"{\"fp16\": {\"loss_scales\": 0}}", "\"fp16.loss_scales\""},
        {"{\"fp16\": {\"loss_scales\": 0}}", "did you mean loss_scale?"},
        {"{\"zero_optimization\": {\"stage\": 3, \"overlap_com\": true}}",
         "did you mean overlap_comm?"},
        {"{\"fp16\": {}, \"gradient_cliping\": 1}", "did you mean gradient_clipping?"},
        {"{\"fp16\": {}, \"fp16.enabled\": true}", "unknown key"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture self;
        assert_int_equal(sl_config_init(&self.config), SL_OK);
        if (load(&self, cases[i][0]) != SL_ERROR_USAGE)
            fail_msg("%s was accepted: %s", cases[i][0], sl_status_message());
        assert_message_has("ds.json: ");
        assert_message_has(cases[i][1]);
        sl_config_clear(&self.config);
    }
}

static void equals_when_written_otherwise_then_are_taken(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"optimizer\": {\"type\": \"adam\", \"params\": {\"adam_w_mode\": false}}}",
         "decay is decoupled, or there is none"},
        {"{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"weight_decay\": 0.1}}}",
         "--weight-decay 0.1 (not of tensors of one dimension)"},
        {PARAM("\"torch_adam\": true"), "--weight-decay 0.01 "}, /* PyTorch's default */
        {PARAM("\"lr\": \"auto\", \"betas\": \"auto\""), "decided here, by --beta1 and --beta2"},
        {"{\"fp16\": {\"enabled\": true, \"loss_scale\": 128}}", "--loss-scale 128"},
        {"{\"fp16\": {\"enabled\": false, \"loss_scale\": 128}}", "no meaning: fp16 is off"},
        {"{\"fp16\": {\"enabled\": true, \"hysteresis\": 1, \"consecutive_hysteresis\": true}}",
         "--loss-scale-hysteresis 1"},
        {"{\"bf16\": {\"enabled\": true}}", "--nonfinite skip"},
        {"{\"bf16\": {\"enabled\": true, \"check_grad_overflow\": false}}", "--nonfinite stop"},
        {"{\"bf16\": {\"enabled\": \"auto\"}}", "decided here, by --precision"},
        {"{\"gradient_clipping\": null}", "--clip 0\n"},
        {"{\"fp16\": {}, \"wandb\": {\"enabled\": true, \"project\": \"x\"}}",
         "no meaning: nothing is sent"},
        {"{\"fp16\": {}, \"amp\": {\"enabled\": false, \"opt_level\": \"O1\"}}", "it is off"},
        {SCHEDULER("WarmupCosineLR", "\"total_num_steps\": \"auto\""),
         "decided here, by --lr-decay-steps"},
        {"{\"fp16\": {}, \"tensor_parallel\": {\"autotp_size\": 4}}", "--tp 4"},
        {"{\"fp16\": {}, \"gradient_allreduce_op\": \"mean\"}", "no meaning: the mean over ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture self;
        assert_int_equal(sl_config_init(&self.config), SL_OK);
        accept(&self, cases[i][0]);
        assert_explained(&self, cases[i][1]);
        sl_config_clear(&self.config);
    }
}

/* ---- every row of the list ---- */

static const struct {
    const char *path, *kind, *use, *text;
} rows[] = {
#define X(name, path, kind, use, text) {path, #kind, #use, text},
    SL_DEEPSPEED_KEYS(X)
#undef X
};

/* An object that holds the value under the path, beside a mark of DeepSpeed's. */
static json_t *nest(const char *path, json_t *value)
{
    const char *dot = strrchr(path, '.');
    char outer[128];
    if (dot) {
        snprintf(outer, sizeof outer, "%.*s", (int)(dot - path), path);
        return nest(outer, json_pack("{s:o}", dot + 1, value));
    }
    json_t *object = json_pack("{s:o}", path, value);
    if (strcmp(path, "fp16") != 0)
        json_object_set_new(object, "fp16", json_object());
    return object;
}

static sl_status load_row(fixture *self, size_t row, json_t *value)
{
    json_t *object = nest(rows[row].path, value);
    char *text = json_dumps(object, 0);
    sl_status status = load(self, text);
    free(text);
    json_decref(object);
    return status;
}

static json_t *make_value(const char *kind)
{
    if (strcmp(kind, "OBJECT") == 0)
        return json_pack("{s:b}", "enabled", 1);
    if (strcmp(kind, "BOOL") == 0)
        return json_true();
    if (strcmp(kind, "WHOLE") == 0)
        return json_integer(7);
    return strcmp(kind, "REAL") == 0 ? json_real(0.5) : json_string("x");
}

static void keys_when_without_a_meaning_then_the_table_says_why(void **state)
{
    (void)state;
    unsigned told = 0, refused = 0;
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        fixture self;
        bool is_told = strcmp(rows[row].use, "NOTHING") == 0;
        bool is_refused = strcmp(rows[row].use, "REFUSED") == 0;
        if (!is_told && !is_refused && strcmp(rows[row].use, "ENABLED") != 0)
            continue;
        assert_int_equal(sl_config_init(&self.config), SL_OK);
        sl_status status = load_row(&self, row, make_value(rows[row].kind));
        if (status != (is_told ? SL_OK : SL_ERROR_USAGE))
            fail_msg("%s: %s", rows[row].path, sl_status_message());
        if (is_told) {
            assert_explained(&self, rows[row].path);
            assert_explained(&self, rows[row].text);
        } else {
            assert_message_has(rows[row].path);
            assert_message_has(rows[row].text);
        }
        told += is_told;
        refused += !is_told;
        sl_config_clear(&self.config);
    }
    print_message("%u keys without a meaning, %u refused\n", told, refused);
    assert_true(told > 90 && refused > 15);
}

/* Of another kind than its row says; null is as if it were not there. */
static void keys_when_of_another_kind_then_are_refused_by_name(void **state)
{
    (void)state;
    for (size_t row = 0; row < sizeof rows / sizeof rows[0]; row++) {
        fixture self;
        bool is_scalar = strcmp(rows[row].kind, "OBJECT") != 0;
        if (strcmp(rows[row].kind, "ANY") == 0)
            continue;
        assert_int_equal(sl_config_init(&self.config), SL_OK);
        sl_status status = load_row(&self, row, is_scalar ? json_object() : json_true());
        if (status != SL_ERROR_USAGE)
            fail_msg("%s of another kind was accepted", rows[row].path);
        assert_message_has(rows[row].path);
        assert_int_equal(load_row(&self, row, json_null()), SL_OK);
        sl_config_clear(&self.config);
    }
}

/* ---- files that are no configuration ---- */

static void files_when_spoilt_then_are_bad_data(void **state)
{
    fixture *self = *state;
    static const char deep[] = "{\"fp16\": {\"enabled\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[";
    static const char *const cases[] = {
        "",
        " ",
        "{",
        "{\"fp16\"",
        "{\"fp16\": {\"enabled\": true}",
        "{\"fp16\": {\"enabled\": true}}}",
        "{\"fp16\": {\"enabled\": true}} x",
        "{\"fp16\": {\"enabled\": true,}}",
        "{\"fp16\": {\"enabled\": True}}",
        "{\"fp16\": {\"enabled\": true, \"enabled\": false}}",
        "{\"fp16\": {}, \"fp16\": {}}",
        "{'fp16': {}}",
        "{fp16: {}}",
        "# comment\n{\"fp16\": {}}",
        "{\"fp16\": {\"loss_scale\": NaN}}",
        "{\"fp16\": {\"loss_scale\": 1e999}}",
        "{\"fp16\": {\"loss_scale\": 99999999999999999999}}",
        "{\"fp16\": {\"loss_scale\": 0x10}}",
        "{\"fp16\": {\"loss_scale\": +1}}",
        "{\"fp16\": {\"\\ud800\": 1}}",
        "{\"fp16\": {\"\xff\": 1}}",
        "[{\"fp16\": {}}]",
        "\"fp16\"",
        deep,
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (load(self, cases[i]) != SL_ERROR_DATA)
            fail_msg("%s: %s", cases[i], sl_status_message());
    print_message("%zu spoilt files\n", sizeof cases / sizeof cases[0]);
    char *large = calloc(1, 2 << 20);
    memset(large, ' ', 2 << 20);
    assert_int_equal(load_bytes(&self->config, SL_CONFIG_TRAIN, large, 2 << 20), SL_ERROR_DATA);
    free(large);
}

/* A key or value that a terminal would obey is shown escaped. */
static void messages_when_a_key_has_control_bytes_then_show_them_escaped(void **state)
{
    fixture *self = *state;
    assert_int_equal(load(self, "{\"fp16\": {}, \"\\u001b[31mred\": 1}"), SL_ERROR_USAGE);
    assert_message_has("\\x1b[31mred");
    assert_int_equal(load(self, "{\"optimizer\": {\"type\": \"\\u001b[31m\"}}"), SL_ERROR_USAGE);
    assert_message_has("\\x1b[31m");
}

/* One file serves every command: what another one takes is checked all the same. */
static void file_when_read_for_another_command_then_its_options_alone_are_set(void **state)
{
    fixture *self = *state;
    const char *text = ZERO("3", STATES("nvme") ", " PARAMS("nvme"));
    assert_int_equal(load_bytes(&self->config, SL_CONFIG_GENERATE, text, strlen(text)), SL_OK);
    assert_int_equal(self->config.policy, SL_POLICY_NVME);
    assert_true(self->config.lr == 3e-4);
    text = PARAM("\"lr\": -1");
    assert_int_equal(load_bytes(&self->config, SL_CONFIG_GENERATE, text, strlen(text)),
                     SL_ERROR_USAGE);
}

int main(void)
{
#define WITH_CONFIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        WITH_CONFIG(file_when_it_says_little_then_has_deepspeeds_defaults),
        WITH_CONFIG(fp16_when_it_says_little_then_has_deepspeeds_scale),
        WITH_CONFIG(fp16_when_overridden_then_its_scale_goes_with_it),
        WITH_CONFIG(file_when_another_was_given_before_then_wins_by_what_it_says_alone),
        WITH_CONFIG(muon_when_read_then_has_deepspeeds_scale_and_one_rate),
        cmocka_unit_test(batch_when_any_two_are_there_then_the_third_follows),
        WITH_CONFIG(partition_when_asked_for_then_is_of_tensor_parallel_ranks),
        cmocka_unit_test(offload_when_read_then_is_a_policy),
        WITH_CONFIG(offload_when_both_go_to_one_directory_then_it_is_named_once),
        cmocka_unit_test(schedules_when_read_then_give_deepspeeds_rates),
        cmocka_unit_test(numbers_when_they_would_change_then_are_refused),
        cmocka_unit_test(equals_when_written_otherwise_then_are_taken),
        cmocka_unit_test(keys_when_without_a_meaning_then_the_table_says_why),
        cmocka_unit_test(keys_when_of_another_kind_then_are_refused_by_name),
        WITH_CONFIG(files_when_spoilt_then_are_bad_data),
        WITH_CONFIG(messages_when_a_key_has_control_bytes_then_show_them_escaped),
        WITH_CONFIG(file_when_read_for_another_command_then_its_options_alone_are_set),
    };
    return cmocka_run_group_tests(tests, open_directory, close_directory);
}
