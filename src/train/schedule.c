/* Everything is computed in double and rounded once: the same step always gets the same bits. */
#include "schedule.h"

#include <math.h>

double sl_schedule_learning_rate(const sl_config *config, uint64_t step)
{
    if (step < config->warmup)
        return config->lr * (double)(step + 1) / (double)config->warmup;
    if (config->lr_schedule == SL_CONFIG_CONSTANT)
        return config->lr;
    if (step >= config->steps)
        return config->min_lr;
    double share = (double)(step - config->warmup) / (double)(config->steps - config->warmup);
    double height =
        config->lr_schedule == SL_CONFIG_LINEAR ? 1 - share : 0.5 * (1 + cos(M_PI * share));
    return config->min_lr + height * (config->lr - config->min_lr);
}

sl_step_scalars sl_schedule_scalars(const sl_config *config, uint64_t step, uint64_t update)
{
    double count = (double)update;
    return (sl_step_scalars){
        .learning_rate = (float)sl_schedule_learning_rate(config, step),
        .weight_decay = (float)config->weight_decay,
        .beta1 = (float)config->beta1,
        .beta2 = (float)config->beta2,
        .epsilon = (float)config->eps,
        .bias1 = (float)(1 - pow(config->beta1, count)),
        .bias2_root = (float)sqrt(1 - pow(config->beta2, count)),
        .clip = (float)config->clip,
        .loss_scale = 1,
    };
}
