#include "values.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/half.h"
#include "base/low_half.h"
#include "base/rng.h"

enum { STREAM_PARAMETERS = 1, STREAM_IDS };

static bool is_in_chunk(const sl_value *value)
{
    return value->kind == SL_VALUE_TENSOR || value->kind == SL_VALUE_CHUNK;
}

static uint64_t state_element_bytes(const sl_values *self, sl_group group)
{
    return sl_type_bytes(sl_program_group_type(self->program, group));
}

static unsigned char **chunk_of(const sl_values *self, sl_group group, uint32_t chunk)
{
    return &self->chunks[(uint64_t)group * self->layout->chunk_count + chunk];
}

/* ---- first contents ---- */

static void store(sl_type type, void *to, uint64_t index, float value)
{
    if (type == SL_TYPE_FP32)
        ((float *)to)[index] = value;
    else
        ((uint16_t *)to)[index] =
            type == SL_TYPE_BF16 ? sl_half_to_bf16(value) : sl_half_to_fp16(value);
}

static void store_halves(uint16_t *param, uint16_t *low, uint64_t index, float value)
{
    const uint32_t kept = sl_low_half_keep(sl_bits_of_float(value));
    param[index] = (uint16_t)sl_low_half_high(kept);
    low[index] = (uint16_t)kept;
}

/* A tensor as a new model has it, but wider apart, so that no op sees almost equal numbers. */
static void draw_tensor(const sl_values *self, uint32_t tensor, uint64_t seed)
{
    const sl_tensor_spec *spec = &self->program->tensors[tensor];
    const uint32_t chunk = self->layout->chunk_of_tensor[tensor];
    const uint64_t first = self->layout->first_element[tensor];
    const float deviation = spec->dim_count > 1 ? 0.1f : 0.2f;
    void *param = *chunk_of(self, SL_GROUP_PARAM, chunk);
    void *master = *chunk_of(self, SL_GROUP_MASTER, chunk);
    for (uint64_t i = 0; i < spec->element_count; i++) {
        const float drawn = sl_rng_normal(seed + tensor, STREAM_PARAMETERS, i);
        const float value = spec->init_mean + deviation * drawn;
        store(self->program->type, param, first + i, value);
        if (self->program->master == SL_MASTER_LOW)
            store_halves(param, master, first + i, value);
        else if (self->program->type != SL_TYPE_FP32)
            store(SL_TYPE_FP32, master, first + i, value);
    }
}

static bool is_small(const sl_values *self, uint32_t chunk)
{
    return self->layout->chunks[chunk].rule == SL_RULE_SMALL;
}

/* Frozen matrices: each block's codes are any, and its scales near 2^-6. */
static void draw_small(const sl_values *self, uint32_t chunk, uint64_t seed)
{
    const bool is_codes = self->layout->frozen == SL_FROZEN_INT8;
    const uint64_t stride = sl_frozen_block_bytes(self->layout->frozen);
    const uint64_t scales = stride - SL_BLOCK_ELEMENTS; /* bytes behind the codes */
    unsigned char *block = *chunk_of(self, SL_GROUP_PARAM, chunk);
    const uint64_t count = self->layout->chunks[chunk].elements;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t drawn = sl_rng_below(seed + chunk, STREAM_PARAMETERS, i, 255);
        unsigned char *at = block + i / SL_BLOCK_ELEMENTS * stride;
        const uint64_t within = i % SL_BLOCK_ELEMENTS;
        if (!is_codes)
            store(SL_TYPE_BF16, at, within, ((float)drawn - 127) * 0x1p-9f);
        else
            at[within] = (unsigned char)(int8_t)((int)drawn - 127);
        if (is_codes && within < scales / sizeof(uint16_t))
            store(SL_TYPE_FP16, at + SL_BLOCK_ELEMENTS, within, (1 + (float)drawn) * 0x1p-13f);
    }
}

/* Tokens of a row. */
static uint64_t find_seq(const sl_program *program)
{
    uint64_t seq = 1;
    for (uint32_t o = 0; o < program->op_count; o++)
        seq = sl_bits_max(seq, program->ops[o].attrs.seq);
    return seq;
}

/* Ids, or positions of documents of a few tokens. */
static void draw_input(const sl_values *self, const sl_value *value, uint32_t vocab, uint64_t seed,
                       int32_t *out)
{
    const uint64_t count = value->instances * value->bytes / sizeof *out;
    const uint64_t seq = find_seq(self->program);
    int32_t position = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t drawn = sl_rng_below(seed, STREAM_IDS + value->index, i, vocab);
        position = i % seq == 0 || drawn % 7 == 0 ? 0 : position + 1;
        out[i] = value->index == SL_INPUT_POSITIONS ? position : (int32_t)drawn;
    }
}

static void fill_constants(const sl_values *self)
{
    for (uint32_t v = 0; v < self->program->value_count; v++)
        for (uint32_t c = 0; c < self->program->constant_count; c++) {
            const sl_value *value = &self->program->values[v];
            const sl_constant *constant = &self->program->constants[c];
            if (value->kind == SL_VALUE_PERSISTENT && value->index == constant->slot)
                sl_constant_fill(constant, 0, constant->positions, (float *)(void *)self->own[v]);
        }
}

static void fill(const sl_values *self, uint32_t vocab, uint64_t seed)
{
    for (uint32_t t = 0; t < self->program->tensor_count; t++)
        if (!is_small(self, self->layout->chunk_of_tensor[t]))
            draw_tensor(self, t, seed);
    for (uint32_t c = 0; c < self->layout->chunk_count; c++)
        if (is_small(self, c))
            draw_small(self, c, seed);
    for (uint32_t v = 0; v < self->program->value_count; v++)
        if (self->program->values[v].kind == SL_VALUE_INPUT)
            draw_input(self, &self->program->values[v], vocab, seed,
                       (int32_t *)(void *)self->own[v]);
    fill_constants(self);
}

/* ---- memory ---- */

static sl_status take(uint64_t bytes, unsigned char **out)
{
    *out = aligned_alloc(256, sl_bits_round_up(bytes + 1, 256));
    if (*out == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a self-test");
    memset(*out, 0, bytes);
    return SL_OK;
}

static sl_status take_all(sl_values *self)
{
    const sl_program *program = self->program;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t c = 0; c < self->layout->chunk_count; c++)
            SL_TRY(
                take(self->layout->chunks[c].elements * state_element_bytes(self, (sl_group)group),
                     chunk_of(self, (sl_group)group, c)));
    for (uint32_t v = 0; v < program->value_count; v++)
        if (!is_in_chunk(&program->values[v]))
            SL_TRY(take(program->values[v].bytes * program->values[v].instances, &self->own[v]));
    return SL_OK;
}

sl_status sl_values_open(const sl_program *program, const sl_layout *layout, uint32_t vocab,
                         uint64_t seed, sl_values *out_values)
{
    sl_values *self = out_values;
    *self = (sl_values){.program = program, .layout = layout};
    self->chunks = calloc((uint64_t)SL_GROUP_COUNT * layout->chunk_count + 1, sizeof *self->chunks);
    self->own = calloc((uint64_t)program->value_count + 1, sizeof *self->own);
    if (self->chunks == NULL || self->own == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a self-test");
    SL_TRY(take_all(self));
    fill(self, vocab, seed);
    return SL_OK;
}

void sl_values_close(sl_values *values)
{
    for (uint64_t i = 0;
         values->chunks && i < (uint64_t)SL_GROUP_COUNT * values->layout->chunk_count; i++)
        free(values->chunks[i]);
    for (uint32_t v = 0; values->own && v < values->program->value_count; v++)
        free(values->own[v]);
    free((void *)values->chunks);
    free((void *)values->own);
    *values = (sl_values){0};
}

void *sl_values_at(const sl_values *values, uint32_t value, uint32_t repetition)
{
    const sl_value *it = &values->program->values[value];
    const uint32_t instance = it->instances > 1 ? repetition : 0;
    if (!is_in_chunk(it))
        return values->own[value] + instance * it->bytes;
    if (it->kind == SL_VALUE_CHUNK)
        return *chunk_of(values, it->group, it->index);
    return *chunk_of(values, it->group, values->layout->chunk_of_tensor[it->index]) +
           values->layout->first_element[it->index] * state_element_bytes(values, it->group);
}
