/* Bad models of llm.c, made by hand: each breaks one rule, and names a piece of the message that
 * must come out. Used by the tests of the reader and by that of the command. The good one has 2
 * layers of 1 head, 4 wide, a context of 3, 5 ids, 8 with padding. */
#ifndef SL_TESTS_HOSTILE_MODELS_H
#define SL_TESTS_HOSTILE_MODELS_H

#include "scratch_dir.h"

typedef struct hostile_model {
    const char *what, *fragment;
    int32_t words[8];
    int64_t more_bytes; /* than the good one of fp32 has; negative: fewer */
    const char *start;  /* stands in the place of the first words */
} hostile_model;

enum { GOOD_ELEMENTS = 8 * 4 + 3 * 4 + 2 * (12 * 16 + 13 * 4) + 2 * 4 };

#define WORDS(version, context, vocab, layers, heads, width, padded)                               \
    {                                                                                              \
        20240326, version, context, vocab, layers, heads, width, padded                            \
    }

static const hostile_model hostile_model_good = {"good", "", WORDS(3, 3, 5, 2, 1, 4, 8), 0, NULL};

static const hostile_model hostile_models[] = {
    {"empty", "has 0 bytes", WORDS(3, 3, 5, 2, 1, 4, 8), -(1024 + 4 * GOOD_ELEMENTS), NULL},
    {"cut inside the words", "fewer than the 1024", WORDS(3, 3, 5, 2, 1, 4, 8),
     -(1 + 4 * GOOD_ELEMENTS), NULL},
    {"only words", "but the file has 1024", WORDS(3, 3, 5, 2, 1, 4, 8), -4 * GOOD_ELEMENTS, NULL},
    {"one byte short", "but the file has", WORDS(3, 3, 5, 2, 1, 4, 8), -1, NULL},
    {"one byte long", "but the file has", WORDS(3, 3, 5, 2, 1, 4, 8), 1, NULL},
    {"fp32 called bf16", "but the file has", WORDS(5, 3, 5, 2, 1, 4, 8), 0, NULL},
    {"version 1", "of version 1", WORDS(1, 3, 5, 2, 1, 4, 8), 0, NULL},
    {"version -3", "of version -3", WORDS(-3, 3, 5, 2, 1, 4, 8), 0, NULL},
    {"version 4", "of version 4", WORDS(4, 3, 5, 2, 1, 4, 8), 0, NULL},
    {"no context", "its context is 0", WORDS(3, 0, 5, 2, 1, 4, 8), 0, NULL},
    {"no vocabulary", "its vocabulary is 0", WORDS(3, 3, 0, 2, 1, 4, 8), 0, NULL},
    {"no layers", "its layers is 0", WORDS(3, 3, 5, 0, 1, 4, 8), 0, NULL},
    {"no heads", "its heads is 0", WORDS(3, 3, 5, 2, 0, 4, 8), 0, NULL},
    {"no width", "its width is 0", WORDS(3, 3, 5, 2, 1, 0, 8), 0, NULL},
    {"negative width", "its width is 4294967292", WORDS(3, 3, 5, 2, 1, -4, 8), 0, NULL},
    {"2^31 - 1 layers", "its layers is 2147483647", WORDS(3, 3, 5, INT32_MAX, 1, 4, 8), 0, NULL},
    {"no padded vocabulary", "padded vocabulary is 0", WORDS(3, 3, 5, 2, 1, 4, 0), 0, NULL},
    {"less with padding", "has 5 ids, but 4 with", WORDS(3, 3, 5, 2, 1, 4, 4), 0, NULL},
    {"heads that do not divide", "not a multiple of its 3", WORDS(3, 3, 5, 2, 3, 4, 8), 0, NULL},
    {"product beyond 64 bits", "overflows 64 bits", WORDS(3, 3, 5, 1 << 30, 1, 1 << 30, 8), 0,
     NULL},
    {"bytes beyond 64 bits", "overflows 64 bits", WORDS(3, 3, 5, 1, 1, 1 << 30, 8), 0, NULL},
    {"another width", "but the file has", WORDS(3, 3, 5, 2, 1, 5, 8), 0, NULL},
    {"llm.c's tokens", "is llm.c's tokens", {20240520, 1, 4}, 0, NULL},
    {"llm.c's tokenizer", "is llm.c's tokenizer", {20240328, 2, 4}, 0, NULL},
    {"llm.c's state", "is llm.c's state for", {20240327, 2, 4}, 0, NULL},
    {"llm.c's optimizer", "is llm.c's optimizer state", {20240527, 1}, 0, NULL},
    {"GGUF", "is a GGUF file", {0}, 0, "GGUF\3\0\0\0"},
    {"safetensors", "is a safetensors file", {0}, 0, "\100\0\0\0\0\0\0\0{\"a\":{}}"},
    {"text", "is no model of llm.c", {0}, 0, "some text that is no model"},
    {"big endian", "is no model of llm.c", {0x06d83401, 3}, 0, NULL},
};

enum { HOSTILE_MODEL_COUNT = sizeof hostile_models / sizeof hostile_models[0] };

static inline void hostile_model_write(const hostile_model *row, const char *path)
{
    char start[1024] = {0};
    memcpy(start, row->words, sizeof row->words);
    for (size_t i = 0; row->start && i < 32 && (i < 8 || row->start[i]); i++)
        start[i] = row->start[i];
    scratch_write(path, start, sizeof start);
    scratch_need(truncate(path, (off_t)(1024 + 4 * (int64_t)GOOD_ELEMENTS + row->more_bytes)) == 0,
                 path);
}

#endif
