/* The table of update rules. */
#include "sluice/rule.h"

#define GROUP(name) SL_RULE_OPERAND_GROUP + SL_GROUP_##name

static const sl_rule rules[SL_RULE_COUNT] = {
    [SL_RULE_ADAMW] = {.name = "adamw",
                       .has_group = {true, true, true, true, true},
                       .update = SL_OP_ADAMW,
                       .operand = {SL_RULE_OPERAND_CONTROL, GROUP(GRAD), GROUP(MOMENT1),
                                   GROUP(MOMENT2), GROUP(PARAM), GROUP(MASTER)}},
    [SL_RULE_NONE] = {.name = "none",
                      .has_group = {[SL_GROUP_PARAM] = true},
                      .update = SL_OP_COUNT},
};

const sl_rule *sl_rule_of(sl_rule_id rule)
{
    return &rules[rule];
}

const char *sl_group_name(sl_group group)
{
    static const char *const names[SL_GROUP_COUNT] = {"param", "grad", "master", "moment1",
                                                      "moment2"};
    return names[group];
}

uint64_t sl_rule_block_bytes(sl_rule_id rule, sl_group group, sl_type type, sl_type grad_type)
{
    const bool is_rounded = type != SL_TYPE_FP32;
    sl_type stored = SL_TYPE_FP32;
    if (!rules[rule].has_group[group] || (group == SL_GROUP_MASTER && !is_rounded))
        return 0;
    if (group == SL_GROUP_PARAM)
        stored = type;
    if (group == SL_GROUP_GRAD)
        stored = grad_type;
    return SL_BLOCK_ELEMENTS * sl_type_bytes(stored);
}
