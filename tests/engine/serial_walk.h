/* Runs a plan one command after the other in the test's own memory, and watches what is touched.
 *
 * Memory is one heap block a tier of exactly the planned peak, so a byte beyond it is a heap error.
 * Before each command everything but the command's own places is poisoned (under ASan), and the
 * last bytes of every place that the command has to write whole are set to a pattern that must be
 * gone afterwards. Knows nothing of lanes: the plan's issue order is one right order.
 */
#ifndef SL_TESTS_SERIAL_WALK_H
#define SL_TESTS_SERIAL_WALK_H

#include "training_run.h"

#include "base/workers.h"
#include "kernels/kernels.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

static const uint32_t serial_walk_pattern = 0xA5A5A5A5u;

typedef struct serial_walk {
    const plan_case *c;
    const sl_plan *plan;
    sl_workers *workers;
    unsigned char *memory[SL_TIER_COUNT];
    uint32_t step, micro_batch, repetition; /* where it is */
    uint64_t untouched_places;              /* whose last bytes kept the pattern */
    uint64_t checked_places;
} serial_walk;

static inline unsigned char *serial_walk_at(const serial_walk *walk, const sl_place *place)
{
    return walk->memory[place->tier] + sl_place_offset(place, walk->repetition);
}

static inline sl_status serial_walk_open(const plan_case *c, const sl_plan *plan,
                                         serial_walk *out_walk)
{
    *out_walk = (serial_walk){.c = c, .plan = plan};
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        uint64_t bytes = plan->peak_bytes[tier] ? plan->peak_bytes[tier] : 1;
        void *memory = NULL;
        if (posix_memalign(&memory, 4096, bytes))
            return SL_ERROR_SYSTEM;
        memset(memory, 0, bytes);
        out_walk->memory[tier] = memory;
        const sl_homes *homes = c->homes;
        if (homes->flags_bytes[tier])
            sl_layout_write_flags(c->layout, SL_BLOCK_RATE,
                                  (uint8_t *)out_walk->memory[tier] + homes->flags_offset[tier]);
        ASAN_POISON_MEMORY_REGION(memory, bytes);
    }
    return sl_workers_open(2, &out_walk->workers);
}

static inline void serial_walk_close(serial_walk *walk)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        ASAN_UNPOISON_MEMORY_REGION(walk->memory[tier], walk->plan->peak_bytes[tier]);
        free(walk->memory[tier]);
    }
    sl_workers_close(walk->workers);
}

/* ---- tensors at their homes ---- */

static inline void serial_walk_set_tensor(serial_walk *walk, sl_group group, uint32_t tensor,
                                          const float *data)
{
    uint32_t chunk_index = walk->c->layout->chunk_of_tensor[tensor];
    const sl_homes *homes = walk->c->homes;
    sl_type type = walk->c->layout->group_type[group];
    uint64_t count = walk->c->program->tensors[tensor].element_count;
    uint64_t bytes = count * sl_type_bytes(type);
    unsigned char *home = walk->memory[homes->tier[group][chunk_index]] +
                          homes->offset[group][chunk_index] +
                          walk->c->layout->first_element[tensor] * sl_type_bytes(type);
    ASAN_UNPOISON_MEMORY_REGION(home, bytes);
    sl_elements_round(type, data, count, home);
    ASAN_POISON_MEMORY_REGION(home, bytes);
}

/* ---- commands ---- */

static inline void serial_walk_open_place(const serial_walk *walk, const sl_place *place)
{
    if (place->bytes)
        ASAN_UNPOISON_MEMORY_REGION(serial_walk_at(walk, place), place->bytes);
}

static inline void serial_walk_shut_place(const serial_walk *walk, const sl_place *place)
{
    if (place->bytes)
        ASAN_POISON_MEMORY_REGION(serial_walk_at(walk, place), place->bytes);
}

static inline void serial_walk_mark(const serial_walk *walk, const sl_place *place)
{
    memcpy(serial_walk_at(walk, place) + place->bytes - sizeof serial_walk_pattern,
           &serial_walk_pattern, sizeof serial_walk_pattern);
}

static inline void serial_walk_check(serial_walk *walk, const sl_place *place)
{
    uint32_t found;
    memcpy(&found, serial_walk_at(walk, place) + place->bytes - sizeof found, sizeof found);
    walk->checked_places++;
    walk->untouched_places += found == serial_walk_pattern;
}

/* Whether op must write operand i to its last byte, whatever was there. A row range of the head
 * writes its own rows only, and CLEAR_PADDING no tensor. */
static inline bool serial_walk_writes_whole(const sl_op *op, uint32_t i)
{
    return sl_op_writes(op, i) && !sl_op_reads(op, i) && op->kind != SL_OP_HEAD_INPUT_BACKWARD &&
           op->kind != SL_OP_CLEAR_PADDING;
}

static inline void serial_walk_fill(const serial_walk *walk, const sl_op *op, int32_t *to)
{
    uint32_t slot = walk->c->program->values[op->operand[0]].index;
    for (uint64_t i = 0; i < op->attrs.element_count; i++)
        to[i] = training_run_token(walk->c, walk->step, walk->micro_batch, i + slot);
}

static inline sl_status serial_walk_run(serial_walk *walk, const sl_command *command,
                                        const sl_step_scalars *scalars)
{
    const sl_op *op = &walk->c->program->ops[command->tick];
    const sl_place *places = &walk->plan->places[command->first_place];
    uint32_t operand_count = command->place_count - 1;
    bool is_host = command->lane == SL_LANE_HOST || command->lane == SL_LANE_INPUT;
    sl_tier tier = is_host ? SL_TIER_HOST : SL_TIER_DEVICE;
    sl_place flags = {tier, walk->c->homes->flags_offset[tier], walk->c->homes->flags_bytes[tier]};
    sl_kernel_call call = {.attrs = &op->attrs, .workers = walk->workers, .scalars = *scalars};
    for (uint32_t i = 0; i <= operand_count; i++)
        serial_walk_open_place(walk, &places[i]);
    serial_walk_open_place(walk, &flags);
    for (uint32_t i = 0; i < operand_count; i++) {
        call.operand[i] = places[i].bytes ? serial_walk_at(walk, &places[i]) : NULL;
        if (places[i].bytes && serial_walk_writes_whole(op, i))
            serial_walk_mark(walk, &places[i]);
    }
    call.workspace =
        places[operand_count].bytes ? serial_walk_at(walk, &places[operand_count]) : NULL;
    if (op->kind == SL_OP_CLEAR_PADDING) {
        const sl_layout *layout = walk->c->layout;
        const uint32_t *first =
            &layout->first_padding[sl_layout_find_chunk(layout, op->attrs.first_block)];
        call.padding = layout->padding + first[0];
        call.padding_count = first[1] - first[0];
    }
    call.block_flags = sl_op_info_of(op->kind)->updates_chunk ? serial_walk_at(walk, &flags) : NULL;
    call.rates = walk->c->layout->rate_count > 0 ? walk->c->layout->rates : NULL;
    call.rate_count = walk->c->layout->rate_count;
    sl_status status = SL_OK;
    if (op->kind == SL_OP_INPUT)
        serial_walk_fill(walk, op, call.operand[0]);
    else
        status = sl_kernels_cpu()->row[op->kind].run(&call);
    for (uint32_t i = 0; status == SL_OK && i < operand_count; i++)
        if (places[i].bytes && serial_walk_writes_whole(op, i))
            serial_walk_check(walk, &places[i]);
    for (uint32_t i = 0; i <= operand_count; i++)
        serial_walk_shut_place(walk, &places[i]);
    serial_walk_shut_place(walk, &flags);
    return status;
}

static inline void serial_walk_copy(serial_walk *walk, const sl_command *command)
{
    serial_walk_open_place(walk, &command->from);
    serial_walk_open_place(walk, &command->to);
    serial_walk_mark(walk, &command->to);
    memcpy(serial_walk_at(walk, &command->to), serial_walk_at(walk, &command->from),
           command->from.bytes);
    serial_walk_shut_place(walk, &command->from);
    serial_walk_shut_place(walk, &command->to);
}

static inline sl_status serial_walk_commands(serial_walk *walk, const sl_command *commands,
                                             uint32_t count, const sl_step_scalars *scalars)
{
    for (uint32_t n = 0; n < count; n++) {
        if (commands[n].kind == SL_COMMAND_COPY)
            serial_walk_copy(walk, &commands[n]);
        else
            SL_TRY(serial_walk_run(walk, &commands[n], scalars));
    }
    return SL_OK;
}

/* One iteration, each section as often as it says. */
static inline sl_status serial_walk_body(serial_walk *walk, const sl_step_scalars *scalars)
{
    for (uint32_t s = 0; s < walk->plan->section_count; s++) {
        const sl_section *section = &walk->plan->sections[s];
        for (uint32_t r = 0; r < section->repeat; r++) {
            walk->repetition = r;
            walk->micro_batch = section->first_micro_batch + r;
            SL_TRY(serial_walk_commands(walk, walk->plan->body + section->first, section->count,
                                        scalars));
        }
    }
    walk->repetition = 0;
    return SL_OK;
}

/* The host place of an output slot. */
static inline const sl_place *serial_walk_slot(const serial_walk *walk, uint32_t slot)
{
    for (uint32_t n = 0; n < walk->plan->body_count; n++) {
        const sl_command *command = &walk->plan->body[n];
        if (command->kind != SL_COMMAND_COPY || command->value == SL_NONE)
            continue;
        const sl_value *value = &walk->c->program->values[command->value];
        if (value->kind == SL_VALUE_OUTPUT && value->index == slot)
            return &command->to;
    }
    return NULL;
}

#endif
