/* Three numbers: scale, steps since it changed, and the rules between them. */
#include "loss_scale.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { GOOD_STEPS = 1000 };

static const double first_scale = 0x1p16, least_scale = 1, largest_scale = 0x1p24;

static bool was_dynamic(const sl_checkpoint *resumed)
{
    if (!resumed)
        return false;
    json_t *config = json_loads(sl_checkpoint_describe(resumed)->config_json, 0, NULL);
    const char *text = json_string_value(json_object_get(config, "loss_scale"));
    bool is_dynamic = text && strcmp(text, "dynamic") == 0;
    json_decref(config);
    return is_dynamic;
}

void sl_loss_scale_start(const sl_config *config, const sl_checkpoint *resumed,
                         sl_checkpoint_state *state)
{
    bool is_dynamic = sl_config_scales_dynamically(config);
    if (is_dynamic && was_dynamic(resumed))
        return;
    state->loss_scale = is_dynamic ? first_scale : strtod(config->loss_scale, NULL);
    state->loss_scale_good_steps = 0;
}

sl_status sl_loss_scale_settle(const sl_config *config, bool is_finite, sl_checkpoint_state *state)
{
    if (!sl_config_scales_dynamically(config))
        return SL_OK;
    if (!is_finite && state->loss_scale <= least_scale)
        SL_FAIL(SL_ERROR_NONFINITE,
                "step %" PRIu64 " was not finite at loss scale %g, the lowest: the model diverged; "
                "try a lower --lr, a longer --warmup or --precision bf16",
                state->step, state->loss_scale);
    state->loss_scale_good_steps = is_finite ? state->loss_scale_good_steps + 1 : 0;
    if (!is_finite)
        state->loss_scale /= 2;
    if (state->loss_scale_good_steps < GOOD_STEPS)
        return SL_OK;
    state->loss_scale_good_steps = 0;
    if (state->loss_scale < largest_scale)
        state->loss_scale *= 2;
    return SL_OK;
}
