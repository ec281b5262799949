#include "stages.h"

#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "units.h"

sl_stages_kind sl_stages_kind_of(const sl_config *config)
{
    if (config->stages == NULL || strcmp(config->stages, "uniform") == 0)
        return SL_STAGES_UNIFORM;
    return strcmp(config->stages, "cost") == 0 ? SL_STAGES_COST : SL_STAGES_LIST;
}

static sl_status refuse_number(const sl_config *config)
{
    SL_FAIL(SL_ERROR_USAGE,
            "--stages %s: give uniform, cost, or the number of layers of each stage, as in 6,7,5; "
            "-1 once, for what the others leave",
            config->stages);
}

/* One number of the list; 0 stands for what the others leave. */
static sl_status read_number(const sl_config *config, const char *at, size_t length,
                             uint32_t *out_layers)
{
    char text[16];
    uint64_t layers;
    if (length == 0 || length >= sizeof text)
        return refuse_number(config);
    memcpy(text, at, length);
    text[length] = '\0';
    *out_layers = 0;
    if (strcmp(text, "-1") == 0)
        return SL_OK;
    if (sl_units_parse_count(text, &layers) != SL_OK || layers == 0 || layers >= UINT32_MAX)
        return refuse_number(config);
    *out_layers = (uint32_t)layers;
    return SL_OK;
}

typedef struct numbers {
    uint32_t layers[SL_STAGES_MAX]; /* 0: what the others leave */
    uint64_t sum;
    uint32_t open; /* stage that has what the others leave; SL_NONE: none */
} numbers;

static sl_status read_numbers(const sl_config *config, numbers *out)
{
    const char *at = config->stages;
    uint32_t count = 0;
    bool has_next = true;
    out->sum = 0;
    for (out->open = SL_NONE; has_next && count < SL_STAGES_MAX; count++) {
        const size_t length = strcspn(at, ",");
        uint32_t *layers = &out->layers[count];
        SL_TRY(read_number(config, at, length, layers));
        if (*layers == 0 && out->open != SL_NONE)
            return refuse_number(config);
        out->open = *layers == 0 ? count : out->open;
        out->sum += *layers;
        has_next = at[length] == ',';
        at += length + has_next;
    }
    if (has_next || count != config->pp)
        SL_FAIL(SL_ERROR_USAGE,
                "--stages %s has %s%u numbers, and --pp is %" PRIu64 ": give one for each stage",
                config->stages, has_next ? "more than " : "", count, config->pp);
    return SL_OK;
}

sl_status sl_stages_check(const sl_config *config)
{
    numbers it;
    if (config->pp == SL_CONFIG_UNSET && sl_stages_kind_of(config) != SL_STAGES_UNIFORM)
        SL_FAIL(SL_ERROR_USAGE, "--stages %s beside --pp auto: give the number of stages",
                config->stages);
    if (config->pp == SL_CONFIG_UNSET)
        return SL_OK;
    if (config->pp > 1 && config->accumulation == SL_ACCUMULATE_LAYER &&
        config->schedule != SL_SCHEDULE_GPIPE)
        SL_FAIL(SL_ERROR_USAGE,
                "--accumulation layer beside --pp sends all micro-batches forward before one comes "
                "back: add --schedule gpipe, or leave it out");
    if (sl_stages_kind_of(config) == SL_STAGES_UNIFORM)
        return SL_OK;
    if (config->pp == 1)
        SL_FAIL(SL_ERROR_USAGE, "--stages %s is for several stages: give --pp", config->stages);
    if (config->pp > SL_STAGES_MAX)
        SL_FAIL(SL_ERROR_USAGE, "--stages %s takes up to %d stages (--pp)", config->stages,
                SL_STAGES_MAX);
    return sl_stages_kind_of(config) == SL_STAGES_LIST ? read_numbers(config, &it) : SL_OK;
}

sl_status sl_stages_read(const sl_config *config, uint32_t layers, uint32_t *out_ends)
{
    numbers it;
    uint32_t end = 0;
    SL_TRY(read_numbers(config, &it));
    const bool is_open = it.open != SL_NONE;
    if (is_open ? it.sum >= layers : it.sum != layers)
        SL_FAIL(SL_ERROR_USAGE,
                "--stages %s has %" PRIu64 " layers%s, and the model %u: change a number, or make "
                "one -1 for what the others leave",
                config->stages, it.sum, is_open ? " and one stage more" : "", layers);
    for (uint32_t s = 0; s < config->pp; s++) {
        end += s == it.open ? layers - (uint32_t)it.sum : it.layers[s];
        out_ends[s] = end;
    }
    return SL_OK;
}

static double cost_of(const sl_stages_costs *costs, uint32_t stage_count, uint32_t stage,
                      uint32_t layers)
{
    return layers * costs->layer + (stage == 0 ? costs->embedding : 0) +
           (stage + 1 == stage_count ? costs->head : 0);
}

/* Layers are alike, so giving the next one to the stage that it makes least slow is best. */
void sl_stages_balance(const sl_stages_costs *costs, uint32_t layers, uint32_t stage_count,
                       uint32_t *out_ends)
{
    for (uint32_t s = 0; s < stage_count; s++)
        out_ends[s] = 1;
    for (uint32_t given = stage_count; given < layers; given++) {
        uint32_t best = 0;
        for (uint32_t s = 1; s < stage_count; s++)
            if (cost_of(costs, stage_count, s, out_ends[s] + 1) <
                cost_of(costs, stage_count, best, out_ends[best] + 1))
                best = s;
        out_ends[best]++;
    }
    for (uint32_t s = 1; s < stage_count; s++)
        out_ends[s] += out_ends[s - 1];
}
