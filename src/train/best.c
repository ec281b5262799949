/* See best.h. */
#include "best.h"

#include <math.h>

bool sl_best_count(double loss, sl_checkpoint_state *state)
{
    const bool has_best = state->evals_since_best < state->eval_count;
    if (state->eval_count > 0 && state->evaluated_step == state->step)
        return false;
    state->eval_count++;
    state->evaluated_step = state->step;
    state->evals_since_best++;
    if (!isfinite(loss) || (has_best && loss >= state->best_loss))
        return false;
    state->evals_since_best = 0;
    state->best_step = state->step;
    state->best_loss = loss;
    return true;
}

bool sl_best_is_stale(const sl_config *config, const sl_checkpoint_state *state)
{
    return config->patience > 0 && state->evals_since_best >= config->patience;
}

bool sl_best_decides(const sl_config *config)
{
    return config->keep_best || config->patience > 0;
}
