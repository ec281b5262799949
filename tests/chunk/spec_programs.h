/* Programs that are nothing but tensor specs, for tests of what needs no ops. The GPT-2 ones are
 * written from the published shapes, not from src/model. */
#ifndef SL_TESTS_SPEC_PROGRAMS_H
#define SL_TESTS_SPEC_PROGRAMS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/program.h"
#include "sanitizer_share.h"

enum { SPEC_TENSORS_MAX = 16384 };

typedef struct spec_shape {
    const char *name;
    uint64_t layers, width, context, vocab;
} spec_shape;

static inline sl_program *spec_program_open(void)
{
    sl_program *program = calloc(1, sizeof *program);
    program->tensors = calloc(SPEC_TENSORS_MAX, sizeof *program->tensors);
    program->tensor_capacity = SPEC_TENSORS_MAX;
    program->micro_batch_count = 1;
    return program;
}

static inline void spec_program_close(sl_program *program)
{
    free(program->tensors);
    free(program->values);
    free(program);
}

/* Matrices decay, vectors do not, as in AdamW's usual grouping. */
static inline void spec_program_add(sl_program *program, const char *name, uint64_t rows,
                                    uint64_t columns)
{
    sl_tensor_spec *spec = &program->tensors[program->tensor_count++];
    snprintf(spec->name, sizeof spec->name, "%s", name);
    spec->dim_count = columns == 1 ? 1 : 2;
    spec->shape[0] = rows;
    spec->shape[1] = columns;
    spec->element_count = rows * columns;
    spec->decay = columns != 1;
}

/* wte in panels of 4 * width rows (rounded up to 128) of a vocabulary padded to 128, wpe, blocks.
 */
static inline sl_program *spec_program_gpt2(const spec_shape *shape)
{
    sl_program *program = spec_program_open();
    uint64_t width = shape->width, panel = (4 * width + 127) / 128 * 128;
    uint64_t padded = (shape->vocab + 127) / 128 * 128;
    for (uint64_t row = 0; row < padded; row += panel)
        spec_program_add(program, "wte", padded - row < panel ? padded - row : panel, width);
    spec_program_add(program, "wpe", shape->context, width);
    for (uint64_t layer = 0; layer < shape->layers; layer++) {
        spec_program_add(program, "ln_1.weight", width, 1);
        spec_program_add(program, "ln_1.bias", width, 1);
        spec_program_add(program, "c_attn.weight", width, 3 * width);
        spec_program_add(program, "c_attn.bias", 3 * width, 1);
        spec_program_add(program, "attn.c_proj.weight", width, width);
        spec_program_add(program, "attn.c_proj.bias", width, 1);
        spec_program_add(program, "ln_2.weight", width, 1);
        spec_program_add(program, "ln_2.bias", width, 1);
        spec_program_add(program, "c_fc.weight", width, 4 * width);
        spec_program_add(program, "c_fc.bias", 4 * width, 1);
        spec_program_add(program, "mlp.c_proj.weight", 4 * width, width);
        spec_program_add(program, "mlp.c_proj.bias", width, 1);
    }
    spec_program_add(program, "ln_f.weight", width, 1);
    spec_program_add(program, "ln_f.bias", width, 1);
    return program;
}

/* A small generator for test data (xorshift64*), seeded by SL_TEST_SEED or `standard`. */
static inline uint64_t spec_seed(uint64_t standard)
{
    const char *text = getenv("SL_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : standard;
    printf("seed %llu (SL_TEST_SEED)\n", (unsigned long long)seed);
    return seed * 0x9e3779b97f4a7c15u | 1u;
}

static inline uint64_t spec_random(uint64_t *state, uint64_t bound)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (*state * 0x2545f4914f6cdd1du >> 11) % bound;
}

static inline uint32_t spec_count(uint32_t quick, uint32_t full)
{
    return getenv("SL_TEST_FULL") != NULL ? full : (uint32_t)sanitizer_share(quick);
}

#endif
