/* What types and groups are called, in messages, files and options. */
#include "sluice/program.h"

const char *sl_type_name(sl_type type)
{
    static const char *const names[SL_TYPE_COUNT] = {
        [SL_TYPE_FP32] = "fp32", [SL_TYPE_BF16] = "bf16", [SL_TYPE_FP16] = "fp16"};
    return names[type];
}

const char *sl_group_name(sl_group group)
{
    static const char *const names[SL_GROUP_COUNT] = {
        [SL_GROUP_PARAM] = "param",     [SL_GROUP_GRAD] = "grad",
        [SL_GROUP_MASTER] = "master",   [SL_GROUP_MOMENT1] = "moment1",
        [SL_GROUP_MOMENT2] = "moment2",
    };
    return names[group];
}
