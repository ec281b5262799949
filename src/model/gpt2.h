/* GPT-2's shapes. Private to the room. */
#ifndef SL_MODEL_GPT2_H
#define SL_MODEL_GPT2_H

#include "architecture.h"

enum { SL_GPT2_IDS = 50257 };

/* X(name, layers, width, heads, context), by parameter count: GPT-2's own four, then the
 * shapes of ColossalAI's GPT benchmarks (its example and its test suite for Gemini). */
#define SL_GPT2_SHAPES(X)                                                                          \
    X("gpt2", 12, 768, 12, 1024)                                                                   \
    X("gpt2-medium", 24, 1024, 16, 1024)                                                           \
    X("gpt2-large", 36, 1280, 20, 1024)                                                            \
    X("gpt2-xl", 48, 1600, 25, 1024)                                                               \
    X("gpt2-4b", 64, 2304, 16, 1024)                                                               \
    X("gpt2-6b", 30, 4096, 16, 1024)                                                               \
    X("gpt2-8b", 72, 3072, 24, 1024)                                                               \
    X("gpt2-10b", 50, 4096, 16, 1024)                                                              \
    X("gpt2-12b", 60, 4096, 16, 1024)                                                              \
    X("gpt2-14b", 70, 4096, 16, 1024)                                                              \
    X("gpt2-15b", 78, 4096, 16, 1024)                                                              \
    X("gpt2-18b", 90, 4096, 16, 1024)                                                              \
    X("gpt2-20b", 25, 8192, 16, 1024)                                                              \
    X("gpt2-24b", 30, 8192, 16, 1024)                                                              \
    X("gpt2-28b", 35, 8192, 16, 1024)                                                              \
    X("gpt2-30b", 37, 8192, 16, 1024)                                                              \
    X("gpt2-32b", 40, 8192, 16, 1024)                                                              \
    X("gpt2-36b", 45, 8192, 16, 1024)                                                              \
    X("gpt2-40b", 50, 8192, 16, 1024)                                                              \
    X("gpt2-45b", 56, 8192, 16, 1024)                                                              \
    X("gpt3-175b", 96, 12288, 96, 2048)
sl_status sl_gpt2_check(const sl_model_shape *shape, uint32_t tp_size);
uint64_t sl_gpt2_parameters(const sl_model_shape *shape);
uint64_t sl_gpt2_attention_width(const sl_model_shape *shape);

#endif
