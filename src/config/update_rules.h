/* Which rule updates each tensor, and at which rate: --optimizer for all of them, --rule, --lr-of
 * and --decay-of by patterns of names (tensor_patterns.h), and --freeze, which decides last.
 */
#ifndef SL_CONFIG_UPDATE_RULES_H
#define SL_CONFIG_UPDATE_RULES_H

#include "config.h"
#include "program/program.h"

/* What the options say; the lists are borrowed. */
typedef struct sl_update_rules {
    uint32_t optimizer;  /* --optimizer */
    bool has_momentum;   /* of sgd: its sum has a weight */
    bool names_momentum; /* --momentum was given */
    sl_muon_scale muon_scale;
    uint32_t states;   /* --state-type */
    sl_frozen frozen;  /* how frozen matrices are stored */
    uint32_t master;   /* --master-type */
    bool freezes_all;  /* nothing is trained */
    bool has_adapters; /* the model has; then no rule is given to the other tensors */
    sl_config_list rule, lr_of, decay_of, freeze;
} sl_update_rules;

sl_update_rules sl_update_rules_of(const sl_config *config);

/* Those of a command that trains nothing: --weights says how matrices are stored. */
sl_update_rules sl_update_rules_of_weights(const sl_config *config);

/* Of --frozen-type or --weights. SL_ERROR_USAGE: the type saves nothing. A step of
 * sl_config_check, when the precision is known. */
sl_status sl_update_rules_check_frozen_type(const sl_config *config, uint32_t row);

/* Of --master-type. SL_ERROR_USAGE: the precision is not bf16. A step of sl_config_check, when the
 * precision is known. */
sl_status sl_update_rules_check_master_type(const sl_config *config);

/* True if --freeze, --rule or adapters may freeze a tensor. */
bool sl_update_rules_freeze(const sl_update_rules *rules);

/* True if something depends on the names of tensors, or is of a rule that none may have. */
bool sl_update_rules_are_given(const sl_update_rules *rules);

/* True if tensors may have several rules, or chunks several sizes. */
bool sl_update_rules_are_mixed(const sl_update_rules *rules);

/* Gives each tensor of a program its rule and its rate. SL_ERROR_USAGE: a value is none, or there
 * are more than SL_RATES_MAX rates. */
sl_status sl_update_rules_apply(const sl_update_rules *rules, sl_program *program);

/* Of a program that has all tensors of the model, and their rules. SL_ERROR_USAGE: a pattern
 * matches no tensor, --momentum or --optimizer muon is of no tensor's rule, or all are frozen. */
sl_status sl_update_rules_check(const sl_update_rules *rules, const sl_program *program);

/* Betas of a rule: those of --beta1 and --beta2 if they were given, or if it is the rule of
 * --optimizer, where they are its defaults; else its own defaults. */
typedef struct sl_betas {
    double first, second;
} sl_betas;

sl_betas sl_update_rules_betas(const sl_config *config, uint32_t optimizer);

/* --momentum for sgd or muon, or the rule's default. */
double sl_update_rules_momentum(const sl_config *config, uint32_t optimizer);

/* Calls `take` with each item of --lr-of, which was checked. */
void sl_update_rules_list_rates(const sl_config *config,
                                void (*take)(void *user, const char *pattern, double factor),
                                void *user);

/* Options of a rule that no tensor can have, and what was left open. A step of sl_config_check.
 * SL_ERROR_USAGE. */
sl_status sl_update_rules_check_options(sl_config *config);

#endif
