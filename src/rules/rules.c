/* The rows of rule.h. */
#include "rules/rule.h"

#include <stddef.h>

enum {
    NOTHING = SL_RULE_NOTHING,
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

static const sl_rule_direction directions[SL_RULE_COUNT] = {
#define X(NAME, make_, turn_, ...)                                                                 \
    [SL_RULE_##NAME] = {.make = (make_), .turn = (turn_), .operand = {__VA_ARGS__}},
    SL_RULE_DIRECTION_LIST(X)
#undef X
};

const sl_rule *sl_rule_of(sl_rule_id rule)
{
    return &rules[rule];
}

const sl_rule_direction *sl_rule_direction_of(sl_rule_id rule)
{
    return directions[rule].operand[0] == NOTHING ? NULL : &directions[rule];
}

const char *sl_group_name(sl_group group)
{
    static const char *const names[SL_GROUP_COUNT] = {"param", "grad", "master", "moment1",
                                                      "moment2"};
    return names[group];
}

bool sl_rule_is_frozen(sl_rule_id rule)
{
    return rules[rule].update == SL_OP_COUNT;
}

bool sl_rule_stores(sl_rule_id rule, sl_group group)
{
    for (int i = 0; i < SL_OPERAND_MAX; i++)
        if (rules[rule].operand[i] == SL_RULE_GROUP + (int)group ||
            directions[rule].operand[i] == SL_RULE_GROUP + (int)group)
            return true;
    return false;
}

uint64_t sl_rule_block_bytes(sl_rule_id rule, sl_group group, const sl_stored_types *types)
{
    sl_type stored = SL_TYPE_FP32;
    if (!sl_rule_stores(rule, group) || (group == SL_GROUP_MASTER && types->param == SL_TYPE_FP32))
        return 0;
    if (group == SL_GROUP_STATE1 || group == SL_GROUP_STATE2)
        return sl_states_block_bytes(types->states);
    if (rule == SL_RULE_SMALL)
        return sl_frozen_block_bytes(types->frozen);
    if (group == SL_GROUP_MASTER)
        return SL_BLOCK_ELEMENTS * sl_master_bytes(types->master);
    if (group == SL_GROUP_PARAM)
        stored = types->param;
    if (group == SL_GROUP_GRAD)
        stored = types->grad;
    return SL_BLOCK_ELEMENTS * sl_type_bytes(stored);
}
