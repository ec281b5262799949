/* The device that a configuration names: its spelling, which one "auto" is, and the compute type
 * that follows from it (docs/decisions/0008). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_device.h"
#include "units.h"

enum { DEVICE_BYTES = 16, INDEX_MAX = 1023 };

static sl_status fail_unknown(const char *text)
{
    SL_FAIL(SL_ERROR_USAGE, "--device: \"%s\" is none of cpu|cuda[:N]", text);
}

sl_status sl_config_parse_device(const char *text, sl_device_kind *out_kind, int *out_index)
{
    uint64_t index = 0;
    bool is_cpu = strcmp(text, "cpu") == 0;
    bool is_cuda = strncmp(text, "cuda", 4) == 0 && (text[4] == '\0' || text[4] == ':');
    if (!is_cpu && !is_cuda)
        return fail_unknown(text);
    if (is_cuda && text[4] == ':' &&
        (sl_units_parse_count(text + 5, &index) != SL_OK || index > INDEX_MAX))
        return fail_unknown(text);
    *out_kind = is_cpu ? SL_DEVICE_CPU : SL_DEVICE_CUDA;
    *out_index = (int)index;
    return SL_OK;
}

/* The first GPU if it opens, whatever keeps it from opening else: `doctor` tells. */
static const char *choose_device(void)
{
    sl_device_info info;
    return sl_device_query(SL_DEVICE_CUDA, 0, &info) == SL_OK ? "cuda:0" : "cpu";
}

sl_status sl_config_resolve_device(sl_config *config)
{
    const char *text = config->device ? config->device : "auto";
    char name[DEVICE_BYTES];
    sl_device_kind kind;
    int index;
    if (strcmp(text, "auto") == 0)
        text = choose_device();
    SL_TRY(sl_config_parse_device(text, &kind, &index));
    snprintf(name, sizeof name, "cuda:%d", index);
    bool was_given = config->given[SL_CONFIG_ROW_device];
    SL_TRY(sl_config_set(config, SL_CONFIG_ROW_device, kind == SL_DEVICE_CPU ? "cpu" : name));
    config->given[SL_CONFIG_ROW_device] = was_given;
    if (config->precision == SL_CONFIG_PRECISION_AUTO)
        config->precision = kind == SL_DEVICE_CPU ? SL_CONFIG_FP32 : SL_CONFIG_BF16;
    return SL_OK;
}

sl_status sl_config_query_device(const sl_config *config, sl_device_info *out_info)
{
    sl_device_kind kind;
    int index;
    SL_TRY(sl_config_parse_device(config->device, &kind, &index));
    sl_status status = sl_device_query(kind, index, out_info);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "--device %s", config->device);
}
