/* The rows of rule.h. */
#include "rules/rule.h"

enum {
    CONTROL = SL_RULE_CONTROL,
    PARAM = SL_RULE_GROUP + SL_GROUP_PARAM,
    GRAD = SL_RULE_GROUP + SL_GROUP_GRAD,
    MASTER = SL_RULE_GROUP + SL_GROUP_MASTER,
    STATE1 = SL_RULE_GROUP + SL_GROUP_STATE1,
    STATE2 = SL_RULE_GROUP + SL_GROUP_STATE2
};

static const sl_rule rules[SL_RULE_COUNT] = {
#define X(NAME, name_, update_, ...) {.name = #name_, .update = update_, .operand = {__VA_ARGS__}},
    SL_RULE_LIST(X)
#undef X
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

bool sl_rule_stores(sl_rule_id rule, sl_group group)
{
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        if (rules[rule].operand[i] == SL_RULE_GROUP + (int)group)
            return true;
    return false;
}

uint64_t sl_rule_block_bytes(sl_rule_id rule, sl_group group, sl_type type, sl_type grad_type)
{
    sl_type stored = SL_TYPE_FP32;
    if (!sl_rule_stores(rule, group) || (group == SL_GROUP_MASTER && type == SL_TYPE_FP32))
        return 0;
    if (group == SL_GROUP_PARAM)
        stored = type;
    if (group == SL_GROUP_GRAD)
        stored = grad_type;
    return SL_BLOCK_ELEMENTS * sl_type_bytes(stored);
}
