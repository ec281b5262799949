/* See update_rules.h. */
#include "update_rules.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "files/fields.h"
#include "freeze.h"
#include "tensor_patterns.h"
#include "units.h"

/* The rules of --optimizer, in its order. */
static const sl_rule_id rule_ids[] = {[SL_CONFIG_ADAMW] = SL_RULE_ADAMW,
                                      [SL_CONFIG_SGD] = SL_RULE_SGD,
                                      [SL_CONFIG_LION] = SL_RULE_LION,
                                      [SL_CONFIG_MUON] = SL_RULE_MUON};

static const sl_betas default_betas[] = {
    [SL_CONFIG_ADAMW] = {0.9, 0.95}, [SL_CONFIG_LION] = {0.9, 0.99}};

static const double factor_max = 1e6;

/* In bf16 all parameters are bf16. */
static sl_frozen find_frozen(const sl_config *config, uint32_t type)
{
    const bool is_own = type == SL_FROZEN_BF16 && config->precision == SL_CONFIG_BF16;
    return is_own ? SL_FROZEN_OWN : (sl_frozen)type;
}

sl_update_rules sl_update_rules_of_weights(const sl_config *config)
{
    const sl_frozen frozen = find_frozen(config, config->weights);
    return (sl_update_rules){.frozen = frozen, .freezes_all = frozen != SL_FROZEN_OWN};
}

sl_status sl_update_rules_check_frozen_type(const sl_config *config, uint32_t row)
{
    const uint32_t type = row == SL_CONFIG_ROW_weights ? config->weights : config->frozen_type;
    if (type == SL_FROZEN_BF16 && config->precision == SL_CONFIG_FP16)
        SL_FAIL(SL_ERROR_USAGE,
                "--%s bf16: elements of --precision fp16 have 2 bytes, too: give int8, or leave it "
                "out",
                sl_config_rows()[row].name);
    return SL_OK;
}

sl_status sl_update_rules_check_master_type(const sl_config *config)
{
    if (config->master_type == SL_MASTER_LOW && config->precision != SL_CONFIG_BF16)
        SL_FAIL(SL_ERROR_USAGE,
                "--master-type low: it keeps the low 16 bits of a number whose high 16 bits are a "
                "parameter in bf16, and --precision is %s: give --precision bf16, or leave "
                "--master-type out",
                config->precision == SL_CONFIG_FP32 ? "fp32" : "fp16");
    return SL_OK;
}

sl_update_rules sl_update_rules_of(const sl_config *config)
{
    return (sl_update_rules){.optimizer = config->optimizer,
                             .has_momentum = sl_update_rules_momentum(config, SL_CONFIG_SGD) > 0,
                             .names_momentum = config->momentum > 0,
                             .muon_scale = config->muon_scale == SL_CONFIG_ORIGINAL
                                               ? SL_MUON_ORIGINAL
                                               : SL_MUON_MATCH_RMS,
                             .states = config->state_type,
                             .frozen = find_frozen(config, config->frozen_type),
                             .master = config->master_type,
                             .has_adapters = config->lora_rank > 0,
                             .rule = config->rule,
                             .lr_of = config->lr_of,
                             .decay_of = config->decay_of,
                             .freeze = config->freeze};
}

static sl_rule_id find_rule(const sl_update_rules *rules, uint32_t optimizer)
{
    return optimizer == SL_CONFIG_SGD && rules->has_momentum ? SL_RULE_MOMENTUM
                                                             : rule_ids[optimizer];
}

/* ---- items ---- */

static sl_status check_form(const char *option, const char *value, const char *example,
                            const sl_tensor_pattern *item)
{
    if (item->has_value && *item->text && *item->value && !item->is_negated)
        return SL_OK;
    SL_FAIL(SL_ERROR_USAGE, "--%s: \"%s%s%s%s\" is not PATTERN=%s, as in '%s'", option,
            item->is_negated ? "!" : "", item->text, item->has_value ? "=" : "", item->value, value,
            example);
}

static sl_status parse_rule(const sl_update_rules *rules, const sl_tensor_pattern *item,
                            sl_rule_id *out_rule)
{
    uint32_t optimizer;
    SL_TRY(check_form("rule", "RULE", "h.*.attn.*=lion", item));
    *out_rule = SL_RULE_NONE;
    if (strcmp(item->value, "none") == 0)
        return SL_OK;
    const sl_config_row *row = &sl_config_rows()[SL_CONFIG_ROW_optimizer];
    const sl_status status = sl_fields_find_name(row->hint, item->value, &optimizer);
    if (status != SL_OK)
        return sl_status_prefix(status, "--rule %s (or none, which freezes)", item->text);
    *out_rule = find_rule(rules, optimizer);
    return SL_OK;
}

static sl_status parse_number(const char *option, const sl_tensor_pattern *item, double *out_number)
{
    SL_TRY(check_form(option, "NUMBER", "h.[0-3].*=0.5", item));
    const sl_status status = sl_units_parse_real(item->value, out_number);
    if (status != SL_OK)
        return sl_status_prefix(status, "--%s %s", option, item->text);
    if (!(*out_number >= 0 && *out_number <= factor_max))
        SL_FAIL(SL_ERROR_USAGE, "--%s %s: %g is not in the range 0 to %g", option, item->text,
                *out_number, factor_max);
    return SL_OK;
}

/* ---- applying ---- */

/* True if an op of a block reads the tensor, and the tensor is a matrix. */
static bool is_matrix_of_block(const sl_program *program, uint32_t tensor)
{
    for (uint32_t o = 0; o < program->op_count && program->tensors[tensor].dim_count == 2; o++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            const sl_op *op = &program->ops[o];
            const sl_value *value =
                op->operand[i] == SL_NONE ? NULL : &program->values[op->operand[i]];
            if (value != NULL && value->kind == SL_VALUE_TENSOR && value->index == tensor)
                return program->segments[op->segment].is_block;
        }
    return false;
}

/* muon as the rule of all is adamw's for what is no matrix of a block. */
static sl_status choose_rule(const sl_update_rules *rules, sl_program *program, uint32_t tensor)
{
    sl_tensor_spec *spec = &program->tensors[tensor];
    sl_tensor_pattern found;
    const bool is_matrix = is_matrix_of_block(program, tensor);
    spec->rule = find_rule(rules, rules->optimizer);
    if (spec->rule == SL_RULE_MUON && !is_matrix)
        spec->rule = SL_RULE_ADAMW;
    if (rules->has_adapters && !spec->is_adapter)
        spec->rule = SL_RULE_NONE;
    if (sl_tensor_patterns_find(&rules->rule, spec->name, &found))
        SL_TRY(parse_rule(rules, &found, &spec->rule));
    if (spec->rule == SL_RULE_MUON && !is_matrix)
        SL_FAIL(
            SL_ERROR_USAGE,
            "--rule %s=muon: it updates matrices of blocks alone, and \"%s\" is %s: leave it to "
            "another rule, as in --rule '%s=muon' '%s=adamw'",
            found.text, spec->name, spec->dim_count == 2 ? "an embedding or a head" : "a vector",
            found.text, spec->name);
    return SL_OK;
}

/* Gives a tensor a rate of the program's table; appends one that is not there. */
static sl_status give_rate(sl_program *program, sl_rate rate, sl_tensor_spec *spec)
{
    uint32_t i = 0;
    while (i < program->rate_count && (program->rates[i].factor != rate.factor ||
                                       program->rates[i].weight_decay != rate.weight_decay))
        i++;
    if (i == SL_RATES_MAX)
        SL_FAIL(SL_ERROR_USAGE,
                "--lr-of and --decay-of: more than %d different learning rates and decays: give "
                "some tensors the same",
                SL_RATES_MAX);
    program->rates[i] = rate;
    program->rate_count += i == program->rate_count;
    spec->rate = i < SL_RATE_FIRST ? 0 : (uint8_t)i;
    spec->decay = i == SL_RATE_DECAYS;
    return SL_OK;
}

static sl_status choose_rate(const sl_update_rules *rules, sl_program *program, uint32_t tensor)
{
    sl_tensor_spec *spec = &program->tensors[tensor];
    sl_tensor_pattern found;
    double factor = 1, decay = spec->decay ? SL_RATE_DECAY_OF_STEP : 0;
    if (sl_tensor_patterns_find(&rules->lr_of, spec->name, &found))
        SL_TRY(parse_number("lr-of", &found, &factor));
    if (sl_tensor_patterns_find(&rules->decay_of, spec->name, &found))
        SL_TRY(parse_number("decay-of", &found, &decay));
    return give_rate(program, (sl_rate){(float)factor, (float)decay}, spec);
}

/* Vectors are few, and norms want them exact. */
static void store_frozen(const sl_update_rules *rules, sl_program *program)
{
    program->frozen = rules->frozen;
    for (uint32_t t = 0; t < program->tensor_count && rules->frozen != SL_FROZEN_OWN; t++) {
        sl_tensor_spec *spec = &program->tensors[t];
        const bool is_frozen = rules->freezes_all || spec->rule == SL_RULE_NONE;
        if (is_frozen)
            spec->rule = spec->dim_count == 2 ? SL_RULE_SMALL : SL_RULE_NONE;
    }
}

sl_status sl_update_rules_apply(const sl_update_rules *rules, sl_program *program)
{
    program->states = (sl_states)rules->states;
    program->master = (sl_master)rules->master;
    for (uint32_t t = 0; t < program->tensor_count; t++)
        SL_TRY(choose_rule(rules, program, t));
    program->muon_scale = rules->muon_scale;
    sl_freeze_apply(&rules->freeze, program);
    store_frozen(rules, program);
    if (rules->lr_of.count == 0 && rules->decay_of.count == 0)
        return SL_OK;
    program->rates[SL_RATE_PLAIN] = (sl_rate){1, 0};
    program->rates[SL_RATE_DECAYS] = (sl_rate){1, SL_RATE_DECAY_OF_STEP};
    program->rate_count = SL_RATE_FIRST;
    for (uint32_t t = 0; t < program->tensor_count; t++)
        SL_TRY(choose_rate(rules, program, t));
    return SL_OK;
}

/* ---- what they mean together ---- */

static bool freezes(const sl_config_list *rule)
{
    sl_tensor_pattern at = {0};
    bool found = false;
    while (sl_tensor_patterns_next(rule, &at))
        found = found || strcmp(at.value, "none") == 0;
    return found;
}

bool sl_update_rules_freeze(const sl_update_rules *rules)
{
    return rules->has_adapters || rules->freeze.count > 0 || freezes(&rules->rule);
}

bool sl_update_rules_are_given(const sl_update_rules *rules)
{
    return rules->rule.count + rules->lr_of.count + rules->decay_of.count + rules->freeze.count >
               0 ||
           rules->names_momentum || rules->has_adapters || rules->optimizer == SL_CONFIG_MUON ||
           rules->frozen != SL_FROZEN_OWN;
}

bool sl_update_rules_are_mixed(const sl_update_rules *rules)
{
    return rules->has_adapters || rules->freeze.count > 0 || rules->rule.count > 0 ||
           rules->optimizer == SL_CONFIG_MUON;
}

static sl_status check_all(const sl_update_rules *rules, const sl_program *program)
{
    sl_rule_id rule;
    double number;
    sl_tensor_pattern at = {0};
    while (sl_tensor_patterns_next(&rules->rule, &at)) {
        SL_TRY(parse_rule(rules, &at, &rule));
        SL_TRY(sl_tensor_patterns_check("rule", &at, program));
    }
    at = (sl_tensor_pattern){0};
    while (sl_tensor_patterns_next(&rules->lr_of, &at)) {
        SL_TRY(parse_number("lr-of", &at, &number));
        SL_TRY(sl_tensor_patterns_check("lr-of", &at, program));
    }
    at = (sl_tensor_pattern){0};
    while (sl_tensor_patterns_next(&rules->decay_of, &at)) {
        SL_TRY(parse_number("decay-of", &at, &number));
        SL_TRY(sl_tensor_patterns_check("decay-of", &at, program));
    }
    return SL_OK;
}

static bool has_rule(const sl_program *program, sl_rule_id rule)
{
    for (uint32_t t = 0; t < program->tensor_count; t++)
        if (program->tensors[t].rule == rule)
            return true;
    return false;
}

sl_status sl_update_rules_check(const sl_update_rules *rules, const sl_program *program)
{
    SL_TRY(check_all(rules, program));
    const bool has_muon = has_rule(program, SL_RULE_MUON);
    if (rules->names_momentum && !has_rule(program, SL_RULE_MOMENTUM) && !has_muon)
        SL_FAIL(SL_ERROR_USAGE, "--momentum is of sgd and muon, which update no tensor: use "
                                "--optimizer sgd or --rule PATTERN=sgd, or leave it out (adamw "
                                "and lion have --beta1)");
    if (rules->optimizer == SL_CONFIG_MUON && !has_muon)
        SL_FAIL(SL_ERROR_USAGE, "--optimizer muon updates no tensor: it is of matrices of blocks, "
                                "and all have another rule");
    if (has_muon && rules->states != SL_STATES_FP32)
        SL_FAIL(SL_ERROR_USAGE, "muon stores its mean in fp32 alone: leave --state-type out, or "
                                "give another rule");
    SL_TRY(sl_freeze_check(&rules->freeze, program));
    if (rules->frozen != SL_FROZEN_OWN && !has_rule(program, SL_RULE_SMALL))
        SL_FAIL(SL_ERROR_USAGE, "--frozen-type is of frozen matrices, and none is frozen: give "
                                "--lora-rank or --freeze, or leave it out");
    return SL_OK;
}

/* ---- options ---- */

sl_betas sl_update_rules_betas(const sl_config *config, uint32_t optimizer)
{
    sl_betas betas = default_betas[optimizer];
    if (config->given[SL_CONFIG_ROW_beta1] || config->optimizer == optimizer)
        betas.first = config->beta1;
    if (config->given[SL_CONFIG_ROW_beta2] || config->optimizer == optimizer)
        betas.second = isnan(config->beta2) ? betas.second : config->beta2;
    return betas;
}

double sl_update_rules_momentum(const sl_config *config, uint32_t optimizer)
{
    if (!isnan(config->momentum))
        return config->momentum;
    return optimizer == SL_CONFIG_MUON ? 0.95 : 0;
}

void sl_update_rules_list_rates(const sl_config *config,
                                void (*take)(void *user, const char *pattern, double factor),
                                void *user)
{
    sl_tensor_pattern at = {0};
    double factor;
    while (sl_tensor_patterns_next(&config->lr_of, &at))
        if (parse_number("lr-of", &at, &factor) == SL_OK)
            take(user, at.text, factor);
}

sl_status sl_update_rules_check_options(sl_config *config)
{
    if (config->nesterov && sl_update_rules_momentum(config, SL_CONFIG_SGD) == 0)
        SL_FAIL(SL_ERROR_USAGE, "--nesterov needs --momentum, as in --optimizer sgd --momentum 0.9 "
                                "--nesterov");
    if (isnan(config->beta2))
        config->beta2 =
            default_betas[config->optimizer == SL_CONFIG_LION ? SL_CONFIG_LION : SL_CONFIG_ADAMW]
                .second;
    return SL_OK;
}
