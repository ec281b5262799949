/* LoRA: adapters beside linear layers (Hu et al. 2021). An adapted layer computes
 *
 *   y = x W + bias + alpha / rank * dropout(x) A B
 *
 * with A [in, rank] and B [rank, out] as tensors of their own, `layer`.lora_A.weight and
 * `layer`.lora_B.weight. A begins uniform in +-1 / sqrt(in), as PEFT's, and B as zeros. Which rules
 * update the other tensors is not known here (config/update_rules.h).
 */
#ifndef SL_MODEL_LORA_H
#define SL_MODEL_LORA_H

#include <stdbool.h>
#include <stdint.h>

#define SL_LORA_A "lora_A.weight"
#define SL_LORA_B "lora_B.weight"

/* What is a target: each linear layer. */
#define SL_LORA_ALL "all-linear"

enum { SL_LORA_TARGETS_BYTES = 256, SL_LORA_RANK_MAX = 65536 };

typedef struct sl_lora {
    uint32_t rank; /* 0: there are no adapters */
    double alpha;
    char targets[SL_LORA_TARGETS_BYTES]; /* with commas between */
} sl_lora;

/* One target; the first is behind a zeroed one. */
typedef struct sl_lora_target {
    char text[SL_LORA_TARGETS_BYTES];
    const char *rest; /* what comes next */
} sl_lora_target;

/* Reads the next target; false behind the last one. */
bool sl_lora_next(const sl_lora *lora, sl_lora_target *at);

/* True if a target names a layer: its whole name ("layers.0.self_attn.q_proj"), the end of it
 * behind a dot ("q_proj", as PEFT has it), a pattern of fnmatch(3) for one of both, or
 * SL_LORA_ALL. */
bool sl_lora_matches(const char *target, const char *layer);

/* True if one of the targets names the layer. */
bool sl_lora_adapts(const sl_lora *lora, const char *layer);

/* True if both make the same adapters. */
bool sl_lora_is_same(const sl_lora *a, const sl_lora *b);

#endif
