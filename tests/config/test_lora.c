/* What could be wrong with --lora-rank and what goes with it: a name of a layer means another one
 * than in PEFT; the base is trained, or its gradients are computed, where nothing needs them; an
 * adapter has another shape or start than PEFT's; --rule no longer trains a part of the base; a
 * name of no layer is taken in silence, or adapters other than those of the weights. What must come
 * out is written by hand. */
#include <math.h>

#include "config/lora.h"
#include "config/update_rules.h"
#include "config_case.h"
#include "model/architecture.h"

enum { LAYERS = 2, WIDTH = 16, KEY_WIDTH = 8, FFN = 24, SEQ = 4 };

static const sl_model_shape llama = {.layers = LAYERS,
                                     .width = WIDTH,
                                     .heads = 4,
                                     .context = 8,
                                     .vocab = 300,
                                     .architecture = SL_ARCHITECTURE_LLAMA,
                                     .kv_heads = 2,
                                     .head = 4,
                                     .ffn = FFN,
                                     .norm_epsilon = 1e-5,
                                     .rope = {.base = 1e4}};
static const sl_lora none = {.rank = 0};

static void set(fixture *self, const char *assignment)
{
    if (assign(self, assignment) != SL_OK)
        fail_msg("%s: %s", assignment, sl_status_message());
}

/* The model that the options make of Llama, with its rules. */
static sl_program *emit(fixture *self, sl_model_shape *shape)
{
    const sl_model_options options = {.batch = 1, .seq = SEQ, .tp_size = 1};
    sl_program *program = NULL;
    *shape = llama;
    assert_int_equal(sl_config_take_lora(&self->config, &none, shape), SL_OK);
    const sl_update_rules rules = sl_update_rules_of(&self->config);
    assert_int_equal(sl_model_shape_emit(shape, &options, &program), SL_OK);
    assert_int_equal(sl_update_rules_apply(&rules, program), SL_OK);
    return program;
}

static uint32_t count_ops(const sl_program *program, sl_op_kind kind)
{
    uint32_t count = 0;
    for (uint32_t o = 0; o < program->op_count; o++)
        count += program->ops[o].kind == kind;
    return count;
}

static const sl_tensor_spec *find(const sl_program *program, const char *name)
{
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (strcmp(program->tensors[t].name, name) == 0)
            return &program->tensors[t];
    fail_msg("no tensor is called %s", name);
    return NULL;
}

static void targets_when_matched_then_are_as_in_peft(void **state)
{
    (void)state;
    static const struct {
        const char *target, *layer;
        bool matches;
    } rows[] = {{"q_proj", "layers.0.self_attn.q_proj", true},
                {"q_proj", "layers.0.self_attn.xq_proj", false},
                {"proj", "layers.0.self_attn.q_proj", false},
                {"c_proj", "h.3.mlp.c_proj", true},
                {"attn.c_proj", "h.3.mlp.c_proj", false},
                {"attn.c_proj", "h.3.attn.c_proj", true},
                {"layers.0.self_attn.q_proj", "layers.0.self_attn.q_proj", true},
                {"layers.[0-3].mlp.*", "layers.2.mlp.up_proj", true},
                {"layers.[0-3].mlp.*", "layers.4.mlp.up_proj", false},
                {"?_proj", "layers.4.self_attn.k_proj", true},
                {"all-linear", "layers.4.mlp.up_proj", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (sl_lora_matches(rows[i].target, rows[i].layer) != rows[i].matches)
            fail_msg("%s and %s", rows[i].target, rows[i].layer);
}

static void tensors_when_nothing_is_named_then_are_those_of_attention(void **state)
{
    fixture *self = *state;
    static const char *const names[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    static const uint64_t outs[] = {WIDTH, KEY_WIDTH, KEY_WIDTH, WIDTH};
    sl_model_shape shape;
    uint32_t count = 0;
    set(self, "lora_rank=3");
    sl_program *program = emit(self, &shape);
    for (uint32_t t = 0; t < program->tensor_count; t++) {
        const sl_tensor_spec *spec = &program->tensors[t];
        count += spec->is_adapter;
        assert_int_equal(spec->rule, spec->is_adapter ? SL_RULE_ADAMW : SL_RULE_NONE);
    }
    assert_int_equal(count, LAYERS * 2 * 4);
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "layers.1.self_attn.%s.lora_A.weight", names[i]);
        const sl_tensor_spec *a = find(program, name);
        snprintf(name, sizeof name, "layers.1.self_attn.%s.lora_B.weight", names[i]);
        const sl_tensor_spec *b = find(program, name);
        assert_true(a->shape[0] == WIDTH && a->shape[1] == 3);
        assert_true(b->shape[0] == 3 && b->shape[1] == outs[i]);
        assert_true(a->init_bound == 0.25f && b->init_bound == 0 && b->init_deviation == 0);
    }
    assert_true(shape.lora.alpha == 3);
    sl_program_close(program);
}

/* Of the products only those with adapters have gradients of their weights; the first layer's
 * products have none of their input. */
static void step_when_the_base_is_frozen_then_computes_no_gradient_of_it(void **state)
{
    fixture *self = *state;
    sl_model_shape shape;
    set(self, "lora_rank=2");
    set(self, "lora_targets=q_proj,v_proj");
    sl_program *program = emit(self, &shape), *step = NULL;
    sl_layout *layout = NULL;
    assert_int_equal(sl_layout_build(program, 0, &layout), SL_OK);
    const sl_chunk_map map = sl_layout_chunk_map(layout);
    const sl_step_options options = {.micro_batch_count = 1};
    assert_int_equal(sl_program_derive_step(program, &map, &options, &step), SL_OK);
    assert_int_equal(count_ops(step, SL_OP_LINEAR_WEIGHT_BACKWARD), LAYERS * 2 * 2);
    assert_int_equal(count_ops(step, SL_OP_HEAD_WEIGHT_BACKWARD), 0);
    assert_int_equal(count_ops(step, SL_OP_EMBED_TOKENS_BACKWARD), 0);
    /* o, gate, up, down of both layers; q, k, v of the second; B of all four, A of the second's */
    assert_int_equal(count_ops(step, SL_OP_LINEAR_INPUT_BACKWARD), 4 * LAYERS + 3 + 4 + 2);
    sl_program_close(step);
    sl_layout_close(layout);
    sl_program_close(program);
}

static void rule_when_given_then_trains_a_part_of_the_base(void **state)
{
    fixture *self = *state;
    sl_model_shape shape;
    set(self, "lora_rank=2");
    set(self, "rule=*layernorm*=lion,*.0.*.lora_B.*=sgd");
    sl_program *program = emit(self, &shape);
    assert_int_equal(find(program, "layers.1.input_layernorm.weight")->rule, SL_RULE_LION);
    assert_int_equal(find(program, "layers.1.self_attn.q_proj.weight")->rule, SL_RULE_NONE);
    assert_int_equal(find(program, "layers.0.self_attn.q_proj.lora_B.weight")->rule, SL_RULE_SGD);
    assert_int_equal(find(program, "layers.0.self_attn.q_proj.lora_A.weight")->rule, SL_RULE_ADAMW);
    sl_program_close(program);
}

static void targets_when_one_names_no_layer_then_are_refused(void **state)
{
    fixture *self = *state;
    sl_model_shape shape;
    set(self, "lora_rank=2");
    set(self, "lora_targets=q_proj,lm_head");
    sl_program *program = emit(self, &shape);
    assert_int_equal(sl_lora_check(&shape.lora, program), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "\"lm_head\" names no linear layer"));
    sl_program_close(program);
}

static void adapters_when_weights_have_some_then_are_kept_or_refused(void **state)
{
    fixture *self = *state;
    const sl_lora base = {.rank = 4, .alpha = 8, .targets = "q_proj"};
    sl_model_shape shape = llama;
    assert_int_equal(sl_config_take_lora(&self->config, &base, &shape), SL_OK);
    assert_true(sl_lora_is_same(&shape.lora, &base) && self->config.lora_rank == 4);
    set(self, "lora_alpha=9");
    assert_int_equal(sl_config_take_lora(&self->config, &base, &shape), SL_ERROR_USAGE);
    assert_non_null(strstr(sl_status_message(), "alpha 8, for q_proj, and the options say"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define WITH_CONFIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
        WITH_CONFIG(targets_when_matched_then_are_as_in_peft),
        WITH_CONFIG(tensors_when_nothing_is_named_then_are_those_of_attention),
        WITH_CONFIG(step_when_the_base_is_frozen_then_computes_no_gradient_of_it),
        WITH_CONFIG(rule_when_given_then_trains_a_part_of_the_base),
        WITH_CONFIG(targets_when_one_names_no_layer_then_are_refused),
        WITH_CONFIG(adapters_when_weights_have_some_then_are_kept_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
