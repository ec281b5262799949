/* Ways to share a model out: over tensor, data and stage ranks, with the ZeRO stages, policies,
 * recomputations and chunks that go with them. The rows of a step are the same in all. */
#ifndef SL_TESTS_RANK_LAYOUTS_H
#define SL_TESTS_RANK_LAYOUTS_H

#define RANK_RUNS_LAYERS 5 /* uneven on 2, 3 and 4 stages */
#define RANK_THREADS_MAX 8
/* A loop of 23 ids with noise, which there is something to learn of. */
#define RANK_RUNS_TOKEN(at) ((at) % 7 < 5 ? (at) % 23 * 26 : sl_rng_below(5, 1, at, shape.vocab))
#include "rank_runs.h"

enum { MICRO_BATCHES = 12 /* of a step, over all data ranks */, LAYOUT_NAME_BYTES = 64 };

static const struct rank_layout {
    uint32_t tp, dp, pp;
    const char *settings[8];
} layouts[] = {
    {1, 1, 1, {"policy=host", "recompute=full"}},
    {2, 1, 1, {"policy=device"}},
    {3, 1, 1, {"policy=nvme", disk_dir, "nvme-params=1"}},
    {4, 1, 1, {"policy=host", "partition-activations=true", "recompute=full"}},
    {2, 1, 1, {"policy=host", "sequence-parallel=true", "chunk-size=40960"}},
    {3, 1, 1, {"policy=device", "split-layout=colossal"}},
    {1, 2, 1, {"policy=device", "zero=0"}},
    {1, 3, 1, {"policy=host", "zero=1", "accumulation=layer"}},
    {1, 4, 1, {"policy=nvme", disk_dir, "zero=2", "nvme-params=1", "accumulation=layer"}},
    {1, 2, 1, {"policy=host", "zero=3", "chunk-size=16384"}},
    {2, 2, 1, {"policy=static", disk_dir, "nvme-params=0.5", "zero=3"}},
    {2, 3, 1, {"policy=device", "zero=1", "sequence-parallel=true"}},
    {1, 1, 2, {"policy=host", "recompute=selective"}},
    {1, 1, 4, {"policy=nvme", disk_dir, "nvme-params=1", "schedule=gpipe"}},
    {2, 1, 3, {"policy=device"}},
    {1, 2, 2, {"policy=host", "zero=3"}},
    {2, 2, 2, {"policy=nvme", disk_dir, "zero=2", "chunk-size=16384"}},
    {1, 1, 5, {"policy=device"}}};

enum { ALONE = 0, LAYOUT_COUNT = sizeof layouts / sizeof layouts[0] };

/* `precision`: a setting. */
static inline ranks_run *open_rank_layout(const struct rank_layout *it, const char *precision)
{
    const char *settings[SETTINGS_MAX] = {precision};
    for (int i = 0; i < 8 && it->settings[i]; i++)
        settings[i + 1] = it->settings[i];
    return open_stages(it->tp, it->dp, it->pp, settings, MICRO_BATCHES / it->dp, NULL);
}

static inline void name_layout(int index, char out_text[LAYOUT_NAME_BYTES])
{
    const struct rank_layout *it = &layouts[index];
    snprintf(out_text, LAYOUT_NAME_BYTES, "%d (%u x %u x %u)", index, it->tp, it->dp, it->pp);
}

#endif
