#include "programs.h"

#include <string.h>

#include "base/status.h"
#include "model/architecture.h"

typedef struct proof_case {
    const char *name;
    sl_model_shape shape;
    sl_model_options options; /* but for the types */
    bool has_muon;            /* updates the matrices of blocks */
    bool has_small_states;
    bool has_small_matrices; /* those of blocks are frozen, in bf16 or codes of 8 bits */
} proof_case;

#define ROPE .norm_epsilon = 1e-5, .rope = {.base = 1e4}

static const proof_case cases[] = {
    {"GPT-2, odd sizes",
     {.layers = 1, .heads = 3, .width = 39, .context = 24, .vocab = 131},
     {.batch = 3, .seq = 19, .dropout = 0.1f, .by_document = true, .masks = true}},
    {"Qwen3, odd sizes",
     {.architecture = SL_ARCHITECTURE_QWEN3,
      .layers = 1,
      .width = 42,
      .heads = 6,
      .kv_heads = 2,
      .head = 14,
      .ffn = 53,
      .context = 24,
      .vocab = 131,
      ROPE},
     {.batch = 3, .seq = 21, .by_document = true}},
    {"GPT-2, one document a row",
     {.layers = 1, .heads = 2, .width = 34, .context = 24, .vocab = 131},
     {.batch = 2, .seq = 11},
     .has_muon = true},
    {"GPT-2, small states and adapters", /* of what reads a GELU, too: its gradient is an op then */
     {.layers = 1,
      .heads = 2,
      .width = 34,
      .context = 24,
      .vocab = 131,
      .lora = {.rank = 3, .alpha = 5, .targets = "c_attn,mlp.c_proj"}},
     {.batch = 2, .seq = 11},
     .has_small_states = true},
    {"GPT-2, small frozen matrices",
     {.layers = 1, .heads = 2, .width = 34, .context = 24, .vocab = 131},
     {.batch = 2, .seq = 11},
     .has_small_matrices = true},
    {"GPT-2 with a cache",
     {.layers = 1, .heads = 3, .width = 39, .context = 24, .vocab = 131},
     {.batch = 3, .seq = 5, .mode = SL_MODEL_CACHED}},
    {"Llama with a cache",
     {.architecture = SL_ARCHITECTURE_LLAMA,
      .layers = 1,
      .width = 64,
      .heads = 4,
      .kv_heads = 2,
      .head = 32,
      .ffn = 53,
      .context = 40,
      .vocab = 131,
      ROPE},
     {.batch = 2, .seq = 1, .mode = SL_MODEL_CACHED}},
    {"GPT-2, width 768",
     {.layers = 1, .heads = 12, .width = 768, .context = 256, .vocab = 1000},
     {.batch = 1, .seq = 256}},
    {"Llama, width 1024",
     {.architecture = SL_ARCHITECTURE_LLAMA,
      .layers = 1,
      .width = 1024,
      .heads = 8,
      .kv_heads = 2,
      .head = 128,
      .ffn = 2816,
      .context = 256,
      .vocab = 1000,
      .is_untied = true,
      ROPE},
     {.batch = 1, .seq = 256}},
};

enum { CASES = sizeof cases / sizeof cases[0] };

uint32_t sl_proof_program_count(void)
{
    return CASES * SL_TYPE_COUNT;
}

/* Each rule updates some of the tensors. */
static void share_rules(const proof_case *it, sl_program *forward)
{
    static const sl_rule_id rules[] = {SL_RULE_ADAMW, SL_RULE_SGD, SL_RULE_MOMENTUM, SL_RULE_LION};
    for (uint32_t t = 0; t < forward->tensor_count; t++) {
        sl_tensor_spec *spec = &forward->tensors[t];
        const bool is_matrix = spec->dim_count > 1 && strncmp(spec->name, "h.", 2) == 0;
        spec->rule = rules[t % (sizeof rules / sizeof rules[0])];
        if (is_matrix && it->has_muon)
            spec->rule = SL_RULE_MUON;
        if (is_matrix && it->has_small_matrices)
            spec->rule = SL_RULE_SMALL;
    }
    if (it->has_small_matrices)
        forward->frozen = forward->type == SL_TYPE_FP32 ? SL_FROZEN_BF16 : SL_FROZEN_INT8;
    if (it->has_small_states)
        forward->states = forward->type == SL_TYPE_FP32 ? SL_STATES_INT8 : SL_STATES_BF16;
    if (it->has_small_states && forward->type == SL_TYPE_BF16)
        forward->master = SL_MASTER_LOW;
}

static sl_status derive_step(const sl_program *forward, const sl_layout *layout,
                             sl_program **out_step)
{
    const sl_chunk_map map = sl_layout_chunk_map(layout);
    const sl_step_options options = {.micro_batch_count = 2,
                                     .accumulation = SL_ACCUMULATE_LAYER,
                                     .recompute = SL_RECOMPUTE_NONE};
    sl_program *step = NULL;
    SL_TRY(sl_program_derive_step(forward, &map, &options, &step));
    if (forward->frozen == SL_FROZEN_OWN) {
        *out_step = step;
        return SL_OK;
    }
    const sl_status status =
        sl_program_gather_chunks(step, &map, &(sl_gather_options){0}, out_step);
    sl_program_close(step);
    return status;
}

sl_status sl_proof_program_open(uint32_t index, sl_proof_program *out_program)
{
    const proof_case *it = &cases[index / SL_TYPE_COUNT];
    const sl_type type = (sl_type)(index % SL_TYPE_COUNT);
    sl_model_options options = it->options;
    sl_program *forward = NULL;
    *out_program = (sl_proof_program){.name = it->name,
                                      .type = type,
                                      .vocab = it->shape.vocab,
                                      .is_large = it->shape.width > 512};
    options.tp_size = 1;
    options.type = options.grad_type = type;
    SL_TRY(sl_model_shape_emit(&it->shape, &options, &forward));
    if (options.mode == SL_MODEL_LOSS)
        share_rules(it, forward);
    sl_status status = sl_layout_build(forward, 0, &out_program->layout);
    if (status == SL_OK && options.mode == SL_MODEL_LOSS) {
        status = derive_step(forward, out_program->layout, &out_program->program);
        sl_program_close(forward);
    } else {
        out_program->program = forward;
    }
    return status;
}

void sl_proof_program_close(sl_proof_program *program)
{
    sl_program_close(program->program);
    sl_layout_close(program->layout);
    *program = (sl_proof_program){0};
}
