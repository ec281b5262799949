/* Memory of the plain interpreter: a layout, the chunks of all groups, and a place for every value
 * of a program. See interpreter.h. */
#ifndef SL_TESTS_INTERPRETER_MACHINE_H
#define SL_TESTS_INTERPRETER_MACHINE_H

#include <math.h>
#include <stdlib.h>

#include "program/program.h"

/* ---- layout: tensors packed in order, each on a block ---- */

typedef struct it_layout {
    sl_chunk_map map;
    uint64_t chunk_elements; /* of each chunk */
    sl_chunk *chunks;
    uint32_t *chunk_of_tensor;
    uint64_t *first_element;
    uint8_t *flags;   /* weight decay, one a block */
    uint8_t *counted; /* in the norm on this rank, likewise */
} it_layout;

static inline uint64_t it_whole_blocks(uint64_t elements)
{
    return (elements + SL_BLOCK_ELEMENTS - 1) / SL_BLOCK_ELEMENTS * SL_BLOCK_ELEMENTS;
}

static inline it_layout it_layout_make(const sl_program *forward, uint64_t chunk_elements)
{
    it_layout layout = {0};
    uint32_t n = forward->tensor_count;
    for (uint32_t t = 0; t < n; t++)
        if (it_whole_blocks(forward->tensors[t].element_count) > chunk_elements)
            chunk_elements = it_whole_blocks(forward->tensors[t].element_count);
    layout.chunk_of_tensor = malloc((n + 1) * sizeof(uint32_t));
    layout.first_element = malloc((n + 1) * sizeof(uint64_t));
    uint64_t used = 0;
    uint32_t chunk = 0;
    for (uint32_t t = 0; t < n; t++) {
        uint64_t size = it_whole_blocks(forward->tensors[t].element_count);
        if (used + size > chunk_elements) {
            chunk++;
            used = 0;
        }
        layout.chunk_of_tensor[t] = chunk;
        layout.first_element[t] = used;
        used += size;
    }
    layout.map.chunk_count = chunk + 1;
    layout.chunk_elements = chunk_elements;
    layout.chunks = calloc(chunk + 1, sizeof *layout.chunks);
    for (uint32_t c = 0; c <= chunk; c++)
        layout.chunks[c] = (sl_chunk){chunk_elements, c * (chunk_elements / SL_BLOCK_ELEMENTS)};
    layout.map.chunks = layout.chunks;
    layout.map.chunk_of_tensor = layout.chunk_of_tensor;
    layout.flags = calloc((chunk + 1) * (chunk_elements / SL_BLOCK_ELEMENTS), 1);
    layout.counted = calloc((chunk + 1) * (chunk_elements / SL_BLOCK_ELEMENTS), 1);
    for (uint32_t t = 0; t < n; t++) {
        uint64_t first = layout.chunk_of_tensor[t] * chunk_elements + layout.first_element[t];
        for (uint64_t e = 0; e < forward->tensors[t].element_count; e += SL_BLOCK_ELEMENTS) {
            layout.flags[(first + e) / SL_BLOCK_ELEMENTS] = forward->tensors[t].decay;
            layout.counted[(first + e) / SL_BLOCK_ELEMENTS] =
                forward->tp_rank == 0 || forward->tensors[t].split != SL_SPLIT_NONE;
        }
    }
    return layout;
}

static inline void it_layout_free(it_layout *layout)
{
    free(layout->chunks);
    free(layout->chunk_of_tensor);
    free(layout->first_element);
    free(layout->flags);
    free(layout->counted);
}

/* ---- state: the chunks of all groups ---- */

typedef struct it_state {
    const it_layout *layout;
    double *group[SL_GROUP_COUNT]; /* chunks one after the other */
} it_state;

static inline uint64_t it_state_elements(const it_state *state)
{
    return state->layout->map.chunk_count * state->layout->chunk_elements;
}

static inline it_state it_state_make(const it_layout *layout)
{
    it_state state = {.layout = layout};
    for (int g = 0; g < SL_GROUP_COUNT; g++)
        state.group[g] = calloc(it_state_elements(&state), sizeof(double));
    for (uint64_t e = 0; e < it_state_elements(&state); e++)
        state.group[SL_GROUP_GRAD][e] = NAN; /* a step clears what it adds to */
    return state;
}

static inline void it_state_free(it_state *state)
{
    for (int g = 0; g < SL_GROUP_COUNT; g++)
        free(state->group[g]);
}

static inline double *it_state_tensor(const it_state *state, sl_group group, uint32_t tensor)
{
    const it_layout *layout = state->layout;
    return state->group[group] + layout->chunk_of_tensor[tensor] * layout->chunk_elements +
           layout->first_element[tensor];
}

/* ---- machine: a program with memory for its values ---- */

/* Writes the `count` numbers of an input slot of a micro-batch. */
typedef void (*it_source)(uint32_t vocab, uint32_t slot, uint32_t micro_batch, double *values,
                          uint64_t count);

typedef struct it_machine {
    const sl_program *program;
    const it_state *state;
    double **data;        /* [values], all instances of each */
    uint32_t *section;    /* [values]: the only section that uses it, else SL_NONE */
    it_source source;     /* what INPUT ops ask */
    uint32_t micro_batch; /* of the program's first one */
    uint32_t vocab;
    sl_step_scalars scalars;
} it_machine;

static inline uint64_t it_element_count(const sl_value *value)
{
    return value->bytes / sl_type_bytes(value->type);
}

static inline int it_is_own(const sl_value *value)
{
    return value->kind != SL_VALUE_TENSOR && value->kind != SL_VALUE_CHUNK;
}

/* What only one section uses is undefined whenever it begins. */
static inline void it_find_sections(it_machine *machine)
{
    const sl_program *program = machine->program;
    machine->section = malloc((program->value_count + 1) * sizeof(uint32_t));
    bool *is_used = calloc(program->value_count + 1, sizeof(bool));
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        sl_section section = sl_program_section(program, s);
        for (uint32_t o = section.first; o < section.first + section.count; o++)
            for (int i = 0; i < SL_OPERAND_MAX; i++) {
                uint32_t v = program->ops[o].operand[i];
                if (v == SL_NONE)
                    continue;
                machine->section[v] = is_used[v] && machine->section[v] != s ? SL_NONE : s;
                is_used[v] = true;
            }
    }
    free(is_used);
}

/* The constants are fp32 numbers. */
static inline void it_fill_constants(const it_machine *machine)
{
    const sl_program *program = machine->program;
    for (uint32_t i = 0; i < program->constant_count; i++) {
        const sl_constant *constant = &program->constants[i];
        const uint64_t count = constant->positions * constant->width;
        float *numbers = malloc(count * sizeof *numbers);
        sl_constant_fill(constant, 0, constant->positions, numbers);
        for (uint32_t v = 0; v < program->value_count; v++)
            for (uint64_t e = 0; e < count && program->values[v].kind == SL_VALUE_PERSISTENT &&
                                 program->values[v].index == constant->slot;
                 e++)
                machine->data[v][e] = (double)numbers[e];
        free(numbers);
    }
}

static inline it_machine it_machine_make(const sl_program *program, const it_state *state)
{
    it_machine machine = {.program = program, .state = state};
    machine.data = calloc(program->value_count + 1, sizeof(double *));
    for (uint32_t v = 0; v < program->value_count; v++) {
        const sl_value *value = &program->values[v];
        uint64_t elements = it_element_count(value) * value->instances;
        if (value->kind == SL_VALUE_TENSOR) {
            machine.data[v] = it_state_tensor(state, value->group, value->index);
        } else if (value->kind == SL_VALUE_CHUNK) {
            machine.data[v] =
                state->group[value->group] + value->index * state->layout->chunk_elements;
        } else {
            machine.data[v] = malloc((elements + 8) * sizeof(double));
            for (uint64_t e = 0; e < elements + 8; e++)
                machine.data[v][e] = value->kind == SL_VALUE_PERSISTENT ? 0.0 : NAN;
        }
    }
    it_fill_constants(&machine);
    it_find_sections(&machine);
    machine.scalars = (sl_step_scalars){.learning_rate = 0.01f,
                                        .weight_decay = 0.1f,
                                        .beta1 = 0.9f,
                                        .beta2 = 0.95f,
                                        .epsilon = 1e-8f,
                                        .bias1 = 0.1f,
                                        .bias2_root = 0.22360679f,
                                        .loss_scale = 1.0f};
    return machine;
}

static inline void it_machine_free(it_machine *machine)
{
    for (uint32_t v = 0; v < machine->program->value_count; v++)
        if (it_is_own(&machine->program->values[v]))
            free(machine->data[v]);
    free(machine->data);
    free(machine->section);
}

static inline double *it_slot(const it_machine *machine, sl_value_kind kind, uint32_t slot)
{
    for (uint32_t v = 0; v < machine->program->value_count; v++)
        if (machine->program->values[v].kind == kind && machine->program->values[v].index == slot)
            return machine->data[v];
    return NULL;
}

#endif
