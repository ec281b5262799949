/* What was seen is made less likely; temperature, then the k likeliest, then of these the likeliest
 * that reach p together. */
#include "sampler.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/rng.h"

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

/* ---- likeliest first: a heap at the end of `order`, its root last, of what is not taken yet.
 * Sorting all ids would take longer than a small model's step, and a few are wanted. */

static bool is_before(const sl_sampler *sampler, uint32_t a, uint32_t b)
{
    const double *weight = sampler->weight;
    return weight[a] != weight[b] ? weight[a] > weight[b] : a < b;
}

/* Node `node` of `count`: its children are 2 node + 1 and 2 node + 2. */
static void sift_down(sl_sampler *sampler, uint32_t node, uint32_t count)
{
    uint32_t *root = sampler->order + sampler->vocab - 1;
    const uint32_t id = *(root - node);
    while (node < count / 2) {
        uint32_t child = 2 * node + 1;
        if (child + 1 < count && is_before(sampler, *(root - child - 1), *(root - child)))
            child++;
        if (!is_before(sampler, *(root - child), id))
            break;
        *(root - node) = *(root - child);
        node = child;
    }
    *(root - node) = id;
}

static void start_taking(sl_sampler *sampler)
{
    for (uint32_t node = sampler->vocab / 2; node > 0; node--)
        sift_down(sampler, node - 1, sampler->vocab);
}

/* The next likeliest becomes order[taken]; returns its weight. */
static double take_next(sl_sampler *sampler, uint32_t taken)
{
    uint32_t *order = sampler->order, *root = order + sampler->vocab - 1;
    const uint32_t id = *root;
    *root = order[taken];
    order[taken] = id;
    sift_down(sampler, 0, sampler->vocab - taken - 1);
    return sampler->weight[id];
}

/* ---- the limits */

/* Of the first `count`, likeliest first, the fewest that reach top_p of `total`. */
static uint32_t reach(const sl_sampler *sampler, uint32_t count, double total)
{
    double kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        kept += sampler->weight[sampler->order[i]];
        if (kept >= sampler->top_p * total)
            return i + 1;
    }
    return count;
}

/* Orders the ids that top_k and top_p leave and returns how many they are, at least one. One after
 * the other, as transformers does: top_p is a share of what top_k leaves. */
static uint32_t limit_ids(sl_sampler *sampler, double total)
{
    const uint32_t vocab = sampler->vocab;
    const bool has_top_p = sampler->top_p < 1;
    uint32_t taken = 0;
    double kept = 0;
    if (!sampler->top_k && !has_top_p)
        return vocab;
    start_taking(sampler);
    if (!sampler->top_k) {
        while (taken < vocab && kept < sampler->top_p * total)
            kept += take_next(sampler, taken++);
        return taken > 0 ? taken : 1;
    }
    while (taken < vocab && taken < sampler->top_k)
        kept += take_next(sampler, taken++);
    return has_top_p ? reach(sampler, taken, kept) : taken;
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

double sl_sampler_uniform(uint64_t seed, uint32_t sample, uint64_t draw)
{
    static const uint64_t stream = 0x73616d706c65; /* apart from the streams of other draws */
    return sl_rng_uniform(seed, stream + sample, draw);
}
