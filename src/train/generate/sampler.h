/* Choosing the next token from logits. Knows no model; all arithmetic is in double, in id order. */
#ifndef SL_TRAIN_SAMPLER_H
#define SL_TRAIN_SAMPLER_H

#include <stdint.h>

#include "base/status.h"

typedef struct sl_sampler {
    uint32_t vocab;
    double temperature; /* 0: the likeliest, the lowest id among equals */
    uint32_t top_k;     /* 0: off */
    double top_p;       /* of what top_k leaves; 1: off */
    double *weight;     /* [vocab] */
    uint32_t *order;    /* [vocab] ids; those that a limit leaves are first, likeliest first */
} sl_sampler;

/* Takes memory for `vocab` ids; the other fields are copied. */
sl_status sl_sampler_open(const sl_sampler *options, sl_sampler *out_sampler);
void sl_sampler_close(sl_sampler *sampler);

/* Makes ids that were seen less likely, in place: logits [vocab] above 0 are divided by `penalty`,
 * those below multiplied with it (Keskar et al. 2019, as transformers has it). `seen` [vocab]: not
 * 0 for an id that is in the text. */
void sl_sampler_penalise(float *logits, const uint8_t *seen, uint32_t vocab, double penalty);

/* The number in [0, 1) by which draw `draw`, from 0, of text number `sample` picks. */
double sl_sampler_uniform(uint64_t seed, uint32_t sample, uint64_t draw);

/* The id that `uniform` in [0, 1) picks among `logits` [vocab]. Ids are laid side by side by their
 * weight, in id order, or likeliest first when top_k or top_p limits them. Logits that are not
 * finite are never picked; SL_ERROR_NONFINITE if none is. */
sl_status sl_sampler_draw(sl_sampler *sampler, const float *logits, double uniform,
                          uint32_t *out_id);

#endif
