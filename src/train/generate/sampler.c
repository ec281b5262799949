/* What was seen is made less likely; temperature, then the k likeliest, then the likeliest that
 * reach p together. */
#define _GNU_SOURCE /* qsort_r */
#include "sampler.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

sl_status sl_sampler_open(const sl_sampler *options, sl_sampler *out_sampler)
{
    sl_sampler sampler = *options;
    sampler.weight = calloc(sampler.vocab, sizeof *sampler.weight);
    sampler.order = calloc(sampler.vocab, sizeof *sampler.order);
    if (!sampler.weight || !sampler.order) {
        sl_sampler_close(&sampler);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to sample from %u ids", options->vocab);
    }
    *out_sampler = sampler;
    return SL_OK;
}

void sl_sampler_close(sl_sampler *sampler)
{
    free(sampler->weight);
    free(sampler->order);
    sampler->weight = NULL;
    sampler->order = NULL;
}

static sl_status find_likeliest(const sl_sampler *sampler, const float *logits, uint32_t *out_id)
{
    bool found = false;
    uint32_t best = 0;
    for (uint32_t id = 0; id < sampler->vocab; id++) {
        if (!isfinite(logits[id]) || (found && logits[id] <= logits[best]))
            continue;
        best = id;
        found = true;
    }
    if (!found)
        SL_FAIL(SL_ERROR_NONFINITE, "no logit is finite");
    *out_id = best;
    return SL_OK;
}

static int compare_weights(const void *left, const void *right, void *user)
{
    const double *weight = user;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    if (weight[a] != weight[b])
        return weight[a] > weight[b] ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Orders the ids and returns how many of them top_k and top_p leave, at least one. */
static uint32_t limit_ids(sl_sampler *sampler, double total)
{
    uint32_t vocab = sampler->vocab;
    if (!sampler->top_k && sampler->top_p >= 1)
        return vocab;
    qsort_r(sampler->order, vocab, sizeof *sampler->order, compare_weights, sampler->weight);
    uint32_t count = sampler->top_k && sampler->top_k < vocab ? sampler->top_k : vocab;
    if (sampler->top_p >= 1)
        return count;
    double kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        kept += sampler->weight[sampler->order[i]];
        if (kept >= sampler->top_p * total)
            return i + 1;
    }
    return count;
}

static uint32_t draw_id(const sl_sampler *sampler, uint32_t count, double uniform)
{
    double total = 0, passed = 0;
    for (uint32_t i = 0; i < count; i++)
        total += sampler->weight[sampler->order[i]];
    uint32_t last = sampler->order[0];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = sampler->order[i];
        passed += sampler->weight[id];
        if (sampler->weight[id] > 0)
            last = id;
        if (passed > uniform * total)
            return id;
    }
    return last; /* rounding left nothing behind the last one */
}

void sl_sampler_penalise(float *logits, const uint8_t *seen, uint32_t vocab, double penalty)
{
    const float factor = (float)penalty;
    for (uint32_t id = 0; id < vocab; id++)
        if (seen[id])
            logits[id] = logits[id] < 0 ? logits[id] * factor : logits[id] / factor;
}

sl_status sl_sampler_draw(sl_sampler *sampler, const float *logits, double uniform,
                          uint32_t *out_id)
{
    uint32_t likeliest = 0;
    SL_TRY(find_likeliest(sampler, logits, &likeliest));
    if (sampler->temperature == 0) {
        *out_id = likeliest;
        return SL_OK;
    }
    double total = 0, largest = logits[likeliest];
    for (uint32_t id = 0; id < sampler->vocab; id++) {
        double height =
            isfinite(logits[id]) ? (logits[id] - largest) / sampler->temperature : -INFINITY;
        sampler->weight[id] = exp(height);
        sampler->order[id] = id;
        total += sampler->weight[id];
    }
    *out_id = draw_id(sampler, limit_ids(sampler, total), uniform);
    return SL_OK;
}
