/* The rates of blocks in one step, as the updates of every device read them: the host makes the
 * table, so each number is rounded once and the same everywhere. */
#ifndef SL_KERNELS_RATES_H
#define SL_KERNELS_RATES_H

#include "kernels.h"

/* Of the blocks with one byte. The op of a rule may put its own numbers in their place. */
typedef struct sl_block_rate {
    float step;  /* the learning rate */
    float decay; /* the weight decay */
} sl_block_rate;

/* Writes the rates of the step; returns their number. */
static inline uint32_t sl_rates_of_step(const sl_kernel_call *call, sl_block_rate *out_rates)
{
    const sl_rate of_all_models[] = {{1.0f, 0.0f}, {1.0f, SL_RATE_DECAY_OF_STEP}};
    const sl_rate *rates = of_all_models;
    const uint32_t most = SL_RATES_MAX;
    uint32_t count = SL_RATE_FIRST;
    if (call->rates != NULL) {
        rates = call->rates;
        count = call->rate_count < most ? call->rate_count : most;
    }
    for (uint32_t i = 0; i < count; i++) {
        out_rates[i].step = call->scalars.learning_rate * rates[i].factor;
        out_rates[i].decay =
            rates[i].weight_decay < 0.0f ? call->scalars.weight_decay : rates[i].weight_decay;
    }
    return count;
}

/* For decoupled decay: the factor that a weight keeps. */
static inline void sl_rates_decouple(sl_block_rate *rates, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        rates[i].decay = 1.0f - rates[i].step * rates[i].decay;
}

#endif
