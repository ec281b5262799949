/* What could be wrong with --optimizer, --rule, --lr-of and --decay-of: another item than the last
 * one that matches decides; a frozen tensor keeps a rule; sgd has a state without momentum, or none
 * with it; a rate that equals one of the two of every model is lost, so that a matrix without decay
 * decays; a panel of a tensor has another rate than the tensor; betas of one rule reach another; a
 * value that is none, or a pattern of no tensor, is taken in silence; a table of a JSON file is
 * read in another order. What must come out is written by hand. */
#include <math.h>
#include <unistd.h>

#include "config/update_rules.h"
#include "config_case.h"
#include "foreign/deepspeed/config_file.h"
#include "model/architecture.h"
#include "train/schedule.h"

static const sl_model_shape shape = {
    .layers = 3, .width = 6, .heads = 2, .context = 8, .vocab = 300};

/* The model with the rules of the configuration; NULL: they were refused. */
static sl_program *emit(fixture *self)
{
    const sl_model_options options = {.batch = 1, .seq = 7, .tp_size = 1};
    const sl_update_rules rules = sl_update_rules_of(&self->config);
    sl_program *program = NULL;
    assert_int_equal(sl_model_shape_emit(&shape, &options, &program), SL_OK);
    if (sl_update_rules_apply(&rules, program) == SL_OK &&
        sl_update_rules_check(&rules, program) == SL_OK)
        return program;
    sl_program_close(program);
    return NULL;
}

static void set(fixture *self, const char *assignment)
{
    if (assign(self, assignment) != SL_OK)
        fail_msg("%s: %s", assignment, sl_status_message());
}

typedef struct expectation {
    const char *tensor;
    sl_rule_id rule;
    sl_rate rate;
} expectation;

static const sl_rate with_decay = {1, SL_RATE_DECAY_OF_STEP}, without_decay = {1, 0};

static void expect(const sl_program *program, const expectation *of)
{
    uint32_t found = 0;
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        const sl_tensor_spec *spec = &program->tensors[t];
        if (strcmp(spec->name, of->tensor) != 0)
            continue;
        const sl_rate rate = spec->rate    ? program->rates[spec->rate]
                             : spec->decay ? with_decay
                                           : without_decay;
        if (spec->rule != of->rule || rate.factor != of->rate.factor ||
            rate.weight_decay != of->rate.weight_decay)
            fail_msg("%s: %s at %g with %g", of->tensor, sl_rule_of(spec->rule)->name,
                     (double)rate.factor, (double)rate.weight_decay);
        found++;
    }
    assert_true(found > 0);
}

static void tensors_when_patterns_match_then_the_last_one_decides(void **state)
{
    fixture *self = *state;
    static const expectation rows[] = {
        {"wte.weight", SL_RULE_MOMENTUM, {3, SL_RATE_DECAY_OF_STEP}}, /* both panels */
        {"wpe.weight", SL_RULE_NONE, {1, SL_RATE_DECAY_OF_STEP}},
        {"h.0.ln_1.weight", SL_RULE_ADAMW, {1, 0}},
        {"h.0.attn.c_attn.weight", SL_RULE_LION, {1, SL_RATE_DECAY_OF_STEP}},
        {"h.0.attn.c_attn.bias", SL_RULE_LION, {1, 0.25f}},
        {"h.1.attn.c_attn.weight", SL_RULE_ADAMW, {0.5f, 0}}, /* a later item: adamw again */
        {"h.1.mlp.c_fc.bias", SL_RULE_ADAMW, {0.5f, 0}},
        {"h.2.mlp.c_fc.weight", SL_RULE_NONE, {1, 0}}, /* its decay is that of no model's matrix */
        {"ln_f.bias", SL_RULE_ADAMW, {1, 0.25f}},
    };
    set(self, "momentum=0.9");
    set(self, "rule=h.*.attn.*=lion,wte.*=sgd,h.1.*=adamw,wpe.*=none");
    set(self, "freeze=h.2.mlp.*");
    set(self, "lr-of=wte.*=3,h.1.*=0.5");
    set(self, "decay-of=*.bias=0.25,h.[12].*=0");
    sl_program *program = emit(self);
    assert_non_null(program);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect(program, &rows[i]);
    sl_program_close(program);
}

static void tensors_when_an_optimizer_is_named_then_all_have_its_rule(void **state)
{
    fixture *self = *state;
    static const struct {
        const char *optimizer, *momentum;
        sl_rule_id rule;
    } rows[] = {{"optimizer=adamw", "momentum=0", SL_RULE_ADAMW},
                {"optimizer=lion", "momentum=0", SL_RULE_LION},
                {"optimizer=sgd", "momentum=0", SL_RULE_SGD},
                {"optimizer=sgd", "momentum=0.5", SL_RULE_MOMENTUM}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        set(self, rows[i].optimizer);
        set(self, rows[i].momentum);
        sl_program *program = emit(self);
        assert_non_null(program);
        assert_int_equal(program->rate_count, 0); /* plans and bits of before */
        expect(program, &(expectation){"h.1.mlp.c_fc.weight", rows[i].rule, with_decay});
        expect(program, &(expectation){"ln_f.bias", rows[i].rule, without_decay});
        sl_program_close(program);
    }
}

/* Matrices of blocks have it; embeddings and vectors are left to adamw. */
static void tensors_when_muon_is_named_then_matrices_have_it(void **state)
{
    fixture *self = *state;
    static const expectation rows[] = {
        {"wte.weight", SL_RULE_ADAMW, {1, SL_RATE_DECAY_OF_STEP}},
        {"wpe.weight", SL_RULE_ADAMW, {1, SL_RATE_DECAY_OF_STEP}},
        {"h.0.ln_1.weight", SL_RULE_ADAMW, {1, 0}},
        {"h.0.attn.c_attn.bias", SL_RULE_ADAMW, {1, 0}},
        {"h.0.attn.c_attn.weight", SL_RULE_MUON, {1, SL_RATE_DECAY_OF_STEP}},
        {"h.1.mlp.c_proj.weight", SL_RULE_MUON, {1, SL_RATE_DECAY_OF_STEP}},
        {"h.2.mlp.c_proj.weight", SL_RULE_LION, {1, SL_RATE_DECAY_OF_STEP}}};
    set(self, "optimizer=muon");
    set(self, "rule=h.2.mlp.*=lion");
    sl_program *program = emit(self);
    assert_non_null(program);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect(program, &rows[i]);
    assert_int_equal(program->muon_scale, SL_MUON_MATCH_RMS);
    sl_program_close(program);
    set(self, "muon-scale=original");
    program = emit(self);
    assert_non_null(program);
    assert_int_equal(program->muon_scale, SL_MUON_ORIGINAL);
    sl_program_close(program);
    set(self, "rule=h.*.weight=adamw");
    assert_null(emit(self));
    assert_message_has("--optimizer muon updates no tensor");
}

static void options_when_they_cannot_be_then_are_refused(void **state)
{
    fixture *self = *state;
    static const struct {
        const char *option, *message;
    } rows[] = {{"rule=h.*=sophia", "\"sophia\" is none of adamw|sgd|lion|muon"},
                {"rule=h.*", "\"h.*\" is not PATTERN=RULE"},
                {"rule==lion", "is not PATTERN=RULE"},
                {"rule=!h.*=lion", "is not PATTERN=RULE"},
                {"rule=g.*=lion", "--rule: \"g.*\" matches no tensor"},
                {"rule=*=none", "all tensors are frozen"},
                {"lr-of=h.*=fast", "--lr-of h.*: \"fast\" is not a number"},
                {"lr-of=h.*=-1", "is not in the range 0 to"},
                {"lr-of=wte=2", "--lr-of: \"wte\" matches no tensor"},
                {"decay-of=h.*=", "\"h.*=\" is not PATTERN=NUMBER"},
                {"decay-of=g=2", "--decay-of: \"g\" matches no tensor"},
                {"momentum=0.9", "--momentum is of sgd and muon, which update no tensor"},
                {"rule=*=muon", "alone, and \"wte.weight\" is an embedding or a head"},
                {"rule=h.0.*=muon", "alone, and \"h.0.ln_1.weight\" is a vector"},
                {"freeze=h.*=lion", "--freeze: \"h.*=lion\": it takes patterns alone"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sl_config_clear(&self->config);
        assert_int_equal(sl_config_init(&self->config), SL_OK);
        set(self, rows[i].option);
        assert_null(emit(self));
        assert_message_has(rows[i].message);
    }
    sl_config_clear(&self->config);
    assert_int_equal(sl_config_init(&self->config), SL_OK);
    set(self, "state-type=bf16");
    set(self, "rule=h.*.attn.c_*.weight=muon");
    assert_null(emit(self));
    assert_message_has("muon stores its mean in fp32 alone");
    sl_config_clear(&self->config);
    assert_int_equal(sl_config_init(&self->config), SL_OK);
    set(self, "nesterov=true");
    assert_int_equal(sl_update_rules_check_options(&self->config), SL_ERROR_USAGE);
    assert_message_has("--nesterov needs --momentum");
}

/* 126 rates beside the two of every model. */
static void rates_when_there_are_too_many_then_are_refused(void **state)
{
    fixture *self = *state;
    const sl_model_shape deep = {.layers = 130, .width = 6, .heads = 2, .context = 8, .vocab = 300};
    const sl_model_options options = {.batch = 1, .seq = 7, .tp_size = 1};
    uint32_t lr_of;
    assert_int_equal(sl_config_find(SL_CONFIG_TRAIN, "lr-of", &lr_of), SL_OK);
    for (int layer = 0; layer < 127; layer++) {
        char item[64];
        sl_program *program = NULL;
        snprintf(item, sizeof item, "h.%d.*.bias=%d", layer, layer + 2);
        assert_int_equal(sl_config_append(&self->config, lr_of, item), SL_OK);
        if (layer < 124)
            continue;
        const sl_update_rules rules = sl_update_rules_of(&self->config);
        assert_int_equal(sl_model_shape_emit(&deep, &options, &program), SL_OK);
        assert_int_equal(sl_update_rules_apply(&rules, program),
                         layer < 126 ? SL_OK : SL_ERROR_USAGE);
        sl_program_close(program);
    }
    assert_message_has("more than 128 different");
}

static void betas_when_rules_are_mixed_then_each_has_its_own(void **state)
{
    fixture *self = *state;
    sl_checkpoint_state run = {.loss_scale = 1};
    self->config.warmup.count = 1;
    assert_int_equal(sl_update_rules_check_options(&self->config), SL_OK);
    sl_step_scalars scalars = sl_schedule_scalars(&self->config, &run);
    assert_true(scalars.beta2 == 0.95f && scalars.lion_beta1 == 0.9f &&
                scalars.lion_beta2 == 0.99f && scalars.momentum == 0 && !scalars.is_nesterov);
    assert_true(scalars.muon_momentum == 0.95f);
    set(self, "beta2=auto");
    self->config.given[SL_CONFIG_ROW_beta2] = false;
    set(self, "optimizer=lion");
    set(self, "momentum=0.75");
    set(self, "nesterov=true");
    assert_int_equal(sl_update_rules_check_options(&self->config), SL_OK);
    assert_true(self->config.beta2 == 0.99);
    scalars = sl_schedule_scalars(&self->config, &run);
    assert_true(scalars.beta2 == 0.95f && scalars.lion_beta2 == 0.99f);
    assert_true(scalars.bias2_root == (float)sqrt(1 - 0.95));
    assert_true(scalars.momentum == 0.75f && scalars.is_nesterov);
    assert_true(scalars.muon_momentum == 0.75f);
    set(self, "beta2=0.5"); /* what is given holds for every rule */
    scalars = sl_schedule_scalars(&self->config, &run);
    assert_true(scalars.beta2 == 0.5f && scalars.lion_beta2 == 0.5f);
    run.step = 7; /* by which states in bf16 draw, skipped steps included */
    run.skipped_steps = 2;
    assert_int_equal(sl_schedule_scalars(&self->config, &run).step, 7);
}

static void states_when_given_are_those_of_the_program(void **state)
{
    fixture *self = *state;
    sl_program *program;
    set(self, "state_type=int8");
    const sl_update_rules rules = sl_update_rules_of(&self->config);
    assert_int_equal(sl_program_open(&program), SL_OK);
    assert_int_equal(sl_update_rules_apply(&rules, program), SL_OK);
    assert_int_equal(program->states, SL_STATES_INT8);
    sl_program_close(program);
}

static sl_status load(fixture *self, const char *text)
{
    char path[] = "/tmp/sluice-rules-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    const sl_status status = sl_config_file_load(&self->config, SL_CONFIG_TRAIN, path);
    unlink(path);
    return status;
}

static void table_when_in_a_file_then_is_read_in_its_order(void **state)
{
    fixture *self = *state;
    static const char *const tables[] = {
        "{\"optimizer\": \"lion\", \"rule\": {\"z.*\": \"sgd\", \"a.*\": \"none\"},"
        " \"lr_of\": {\"b.*\": 0.5, \"a.*\": 3}}",
        "{\"optimizer\": \"lion\", \"rule\": [\"z.*=sgd\", \"a.*=none\"],"
        " \"lr_of\": [\"b.*=0.5\", \"a.*=3\"]}"};
    for (int i = 0; i < 2; i++) {
        if (load(self, tables[i]) != SL_OK)
            fail_msg("%s", sl_status_message());
        assert_int_equal(self->config.optimizer, SL_CONFIG_LION);
        assert_int_equal(self->config.rule.count, 2);
        assert_string_equal(self->config.rule.items[0], "z.*=sgd");
        assert_string_equal(self->config.rule.items[1], "a.*=none");
        assert_string_equal(self->config.lr_of.items[0], "b.*=0.5");
        assert_string_equal(self->config.lr_of.items[1], "a.*=3");
    }
    assert_int_not_equal(load(self, "{\"rule\": {\"z.*\": [1]}}"), SL_OK);
    assert_message_has("\"z.*\" is neither a word nor a number");
    assert_int_not_equal(load(self, "{\"freeze\": {\"z.*\": 1}}"), SL_OK);
    assert_message_has("an object is not a value");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_CONFIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
        WITH_CONFIG(tensors_when_patterns_match_then_the_last_one_decides),
        WITH_CONFIG(tensors_when_an_optimizer_is_named_then_all_have_its_rule),
        WITH_CONFIG(tensors_when_muon_is_named_then_matrices_have_it),
        WITH_CONFIG(options_when_they_cannot_be_then_are_refused),
        WITH_CONFIG(rates_when_there_are_too_many_then_are_refused),
        WITH_CONFIG(betas_when_rules_are_mixed_then_each_has_its_own),
        WITH_CONFIG(states_when_given_are_those_of_the_program),
        WITH_CONFIG(table_when_in_a_file_then_is_read_in_its_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
