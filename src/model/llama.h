/* Llama, Qwen 2 and Qwen 3: one model, which Qwen 2 gives biases of q, k and v, and Qwen 3 norms of
 * each head of q and k. Private to the room. */
#ifndef SL_MODEL_LLAMA_H
#define SL_MODEL_LLAMA_H

#include "row.h"

/* X(name, architecture, layers, width, heads, kv heads, features of a head, ffn, context, ids,
 *   untied, rope), by architecture and number of parameters, as published. */
#define SL_LLAMA_SHAPES(X)                                                                         \
    X("llama-3.2-1b", LLAMA, 16, 2048, 32, 8, 64, 8192, 131072, 128256, false, LLAMA_3_2)          \
    X("llama-3.2-3b", LLAMA, 28, 3072, 24, 8, 128, 8192, 131072, 128256, false, LLAMA_3_2)         \
    X("llama-3.1-8b", LLAMA, 32, 4096, 32, 8, 128, 14336, 131072, 128256, true, LLAMA_3_1)         \
    X("qwen2.5-0.5b", QWEN2, 24, 896, 14, 2, 64, 4864, 32768, 151936, false, QWEN)                 \
    X("qwen2.5-1.5b", QWEN2, 28, 1536, 12, 2, 128, 8960, 131072, 151936, false, QWEN)              \
    X("qwen2.5-3b", QWEN2, 36, 2048, 16, 2, 128, 11008, 32768, 151936, false, QWEN)                \
    X("qwen2.5-7b", QWEN2, 28, 3584, 28, 4, 128, 18944, 131072, 152064, true, QWEN)                \
    X("qwen2.5-14b", QWEN2, 48, 5120, 40, 8, 128, 13824, 131072, 152064, true, QWEN_14B)           \
    X("qwen3-0.6b", QWEN3, 28, 1024, 16, 8, 128, 3072, 40960, 151936, false, QWEN)                 \
    X("qwen3-1.7b", QWEN3, 28, 2048, 16, 8, 128, 6144, 40960, 151936, false, QWEN)                 \
    X("qwen3-4b", QWEN3, 36, 2560, 32, 8, 128, 9728, 40960, 151936, false, QWEN)                   \
    X("qwen3-8b", QWEN3, 36, 4096, 32, 8, 128, 12288, 40960, 151936, true, QWEN)                   \
    X("qwen3-14b", QWEN3, 40, 5120, 40, 8, 128, 17408, 40960, 151936, true, QWEN)                  \
    X("olmo2-1b", OLMO2, 16, 2048, 16, 16, 128, 8192, 4096, 100352, true, OLMO2)                   \
    X("olmo2-7b", OLMO2, 32, 4096, 32, 32, 128, 11008, 4096, 100352, true, OLMO2)                  \
    X("olmo2-13b", OLMO2, 40, 5120, 40, 40, 128, 13824, 4096, 100352, true, OLMO2)

/* The epsilon of norms and the rotary angles of published shapes. */
#define SL_LLAMA3_ROPE(divisor)                                                                    \
    .norm_epsilon = 1e-5, .rope = {500000, SL_ROTARY_LLAMA3, divisor, 1, 4, 8192}
#define SL_ROPE_LLAMA_3_1 SL_LLAMA3_ROPE(8)
#define SL_ROPE_LLAMA_3_2 SL_LLAMA3_ROPE(32)
#define SL_ROPE_QWEN .norm_epsilon = 1e-6, .rope = {.base = 1e6}
#define SL_ROPE_QWEN_14B .norm_epsilon = 1e-5, .rope = {.base = 1e6}
#define SL_ROPE_OLMO2 .norm_epsilon = 1e-6, .rope = {.base = 5e5}

/* Sets the sizes that are 0 and follow from others: as many key heads as query heads, a head of
 * width / heads features, Llama's ffn, and the row's epsilon and base. */
void sl_llama_complete(sl_model_shape *shape);

/* True if tp_size tensor-parallel ranks can divide the heads. */
bool sl_llama_may_split(const sl_model_shape *shape, uint32_t tp_size);
sl_status sl_llama_check(const sl_model_shape *shape, uint32_t tp_size);
uint64_t sl_llama_parameters(const sl_model_shape *shape);
uint64_t sl_llama_attention_width(const sl_model_shape *shape);

/* Rotary positions of a tensor of so many heads. */
sl_rotary_spec sl_llama_rotary(const sl_model_shape *shape, uint64_t heads);

/* The part of a row that all architectures with these sizes and tensors share. */
#define SL_LLAMA_ROW                                                                               \
    .check = sl_llama_check, .parameters = sl_llama_parameters,                                    \
    .attention_width = sl_llama_attention_width,                                                   \
    .attention_linears = "q_proj,k_proj,v_proj,o_proj", .is_llama = true

#endif
