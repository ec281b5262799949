/* The configurations that the corpus of plans is recorded for, before budgets: sizes of GPT-2 from
 * tiny to 1.5B, each policy, both machines, types, recomputation and both orders of accumulation.
 */
#ifndef SL_TESTS_CORPUS_BASES_H
#define SL_TESTS_CORPUS_BASES_H

#include "chunk/chunk.h"
#include "model/architecture.h"

typedef enum corpus_shape { TINY, ODD, SMALL, DEEP, GPT2, MEDIUM, LARGE, XL } corpus_shape;

static const sl_model_shape corpus_shapes[] = {
    [TINY] = {2, 32, 2, 16, 300},          [ODD] = {5, 66, 3, 40, 1000},
    [SMALL] = {6, 192, 3, 128, 5000},      [DEEP] = {40, 64, 2, 64, 600},
    [GPT2] = {12, 768, 12, 1024, 50257},   [MEDIUM] = {24, 1024, 16, 1024, 50257},
    [LARGE] = {36, 1280, 20, 1024, 50257}, [XL] = {48, 1600, 25, 1024, 50257},
};

/* Shares are in percent of what the device does not hold by the policy. */
typedef struct corpus_base {
    corpus_shape shape;
    uint32_t batch;
    sl_type type;
    bool is_gpu;
    sl_recompute recompute;
    sl_accumulation accumulation;
    uint32_t micro_batches;
    sl_policy policy;
    uint32_t param_host, state_host, param_disk, state_disk, activation_host, activation_disk;
    sl_update_place update;
    bool is_early;
} corpus_base;

#define FP32 SL_TYPE_FP32
#define BF16 SL_TYPE_BF16
#define NONE SL_RECOMPUTE_NONE
#define SELECTIVE SL_RECOMPUTE_SELECTIVE
#define FULL SL_RECOMPUTE_FULL
#define MICRO SL_ACCUMULATE_MICRO
#define LAYER SL_ACCUMULATE_LAYER
#define DEVICE SL_POLICY_DEVICE
#define HOST SL_POLICY_HOST
#define STATIC SL_POLICY_STATIC
#define NVME SL_POLICY_NVME

static const corpus_base corpus_bases[] = {
    /* everything on the device, and activations away from it */
    {TINY, 2, FP32, false, NONE, MICRO, 1, DEVICE},
    {GPT2, 4, BF16, true, SELECTIVE, LAYER, 3, DEVICE},
    {ODD, 3, FP32, false, NONE, MICRO, 2, DEVICE, .activation_host = 100},
    {SMALL, 4, BF16, true, NONE, LAYER, 3, DEVICE, .activation_host = 50},
    {GPT2, 8, BF16, true, NONE, MICRO, 1, DEVICE, .activation_host = 100},
    {MEDIUM, 4, BF16, true, NONE, LAYER, 1, DEVICE, .activation_disk = 50},
    /* all states on the host */
    {TINY, 1, FP32, false, NONE, MICRO, 3, HOST},
    {TINY, 2, BF16, true, FULL, LAYER, 2, HOST, .is_early = true},
    {ODD, 2, FP32, false, SELECTIVE, LAYER, 3, HOST, .update = SL_UPDATE_DEVICE},
    {SMALL, 2, FP32, false, FULL, MICRO, 2, HOST},
    {DEEP, 2, BF16, true, NONE, MICRO, 2, HOST},
    {DEEP, 1, FP32, false, FULL, LAYER, 3, HOST},
    {GPT2, 4, FP32, false, SELECTIVE, MICRO, 1, HOST},
    {GPT2, 8, BF16, true, FULL, LAYER, 3, HOST},
    {MEDIUM, 4, BF16, true, SELECTIVE, MICRO, 2, HOST, .update = SL_UPDATE_DEVICE},
    {XL, 2, BF16, true, FULL, MICRO, 1, HOST, .is_early = true},
    {XL, 1, FP32, false, SELECTIVE, LAYER, 1, HOST},
    /* shares of them on the host, and on disk */
    {TINY, 3, BF16, true, NONE, LAYER, 1, STATIC, 50, 100},
    {SMALL, 3, FP32, false, NONE, MICRO, 3, STATIC, 0, 100},
    {ODD, 2, BF16, true, SELECTIVE, LAYER, 2, STATIC, 50, 50, 25, 50},
    {GPT2, 4, BF16, true, NONE, LAYER, 2, STATIC, 30, 60},
    {GPT2, 2, FP32, false, FULL, MICRO, 1, STATIC, 0, 40, 0, 60, .activation_host = 25},
    {LARGE, 4, BF16, true, SELECTIVE, MICRO, 1, STATIC, 20, 100},
    {DEEP, 2, BF16, true, SELECTIVE, LAYER, 3, STATIC, 40, 40, 20, 60},
    /* on disk */
    {TINY, 2, FP32, false, NONE, LAYER, 3, NVME, 0, 0, 100, 100},
    {SMALL, 2, BF16, true, SELECTIVE, MICRO, 2, NVME, 0, 0, 100, 100},
    {SMALL, 4, FP32, false, NONE, LAYER, 2, NVME, 0, 0, 50, 100, .activation_disk = 50},
    {DEEP, 1, BF16, true, FULL, LAYER, 1, NVME, 0, 0, 100, 100},
    {GPT2, 4, BF16, true, SELECTIVE, LAYER, 3, NVME, 0, 0, 100, 100, .activation_host = 50},
    {GPT2, 4, FP32, false, FULL, MICRO, 1, NVME, 0, 0, 30, 100, .update = SL_UPDATE_DEVICE},
    {MEDIUM, 2, BF16, true, FULL, LAYER, 2, NVME, 0, 0, 0, 100},
    {XL, 1, BF16, true, FULL, LAYER, 1, NVME, 0, 0, 0, 50},
};

enum { CORPUS_BASE_COUNT = sizeof corpus_bases / sizeof *corpus_bases };

#undef FP32
#undef BF16
#undef NONE
#undef SELECTIVE
#undef FULL
#undef MICRO
#undef LAYER
#undef DEVICE
#undef HOST
#undef STATIC
#undef NVME

#endif
