/* A small made-up world for tests of the engine: two chunks, a training plan and an evaluation plan
 * written by hand, and fake kernels that check what they are handed and compute with whole numbers.
 *
 * Chunk 0 lives on the host and visits the device; its update runs on the host. Chunk 1 lives on
 * the device. Every word of a parameter chunk holds the same number, so a torn or stale copy shows.
 *
 *   forward   activation = mix(token, weight, bias)      weight: chunk 0, bias: chunk 1
 *   backward  every word of gradient g of chunk c = mix(activation, c)
 *   finish    control = activation
 *   update    moment1 += gradient; param = mix(param, moment1)
 */
#ifndef TESTS_ENGINE_WORLD_H
#define TESTS_ENGINE_WORLD_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "engine/engine_internal.h"

enum {
    CHUNK_BYTES = SL_BLOCK_ELEMENTS * 4,
    CHUNK_WORDS = CHUNK_BYTES / 8,
    CELL_BYTES = 256, /* one number each */
    WORKSPACE_BYTES = 512,
    CACHE_BYTES = 200192, /* more than is cleared at once */
    PLACE_COUNT = 26,
    WAIT_COUNT = 19,
    TRAIN_PLAN = 0,
    EVAL_PLAN = 1
};

/* Offsets. Device: chunk 1 of four groups, its flags, then what comes and goes. */
enum {
    DEVICE_HOME = 0, /* + group * CHUNK_BYTES, with PARAM, GRAD, STATE1, STATE2 as 0..3 */
    DEVICE_FLAGS = 4 * CHUNK_BYTES,
    DEVICE_CACHE = DEVICE_FLAGS + CELL_BYTES,
    DEVICE_FIXED = DEVICE_CACHE + CACHE_BYTES,
    DEVICE_VISIT = DEVICE_FIXED,
    DEVICE_VISIT_GRAD = DEVICE_VISIT + CHUNK_BYTES,
    DEVICE_INPUT = DEVICE_VISIT_GRAD + CHUNK_BYTES,
    DEVICE_ACTIVATION = DEVICE_INPUT + CELL_BYTES,
    DEVICE_CONTROL = DEVICE_ACTIVATION + CELL_BYTES,
    DEVICE_WORKSPACE = DEVICE_CONTROL + CELL_BYTES,
    DEVICE_PEAK = DEVICE_WORKSPACE + WORKSPACE_BYTES,
    HOST_HOME = 0,
    HOST_FLAGS = 4 * CHUNK_BYTES,
    HOST_FIXED = HOST_FLAGS + CELL_BYTES,
    HOST_INPUT = HOST_FIXED,
    HOST_OUTPUT = HOST_INPUT + CELL_BYTES,
    HOST_PEAK = HOST_OUTPUT + CELL_BYTES
};

typedef enum world_value {
    VALUE_INPUT,
    VALUE_ACTIVATION,
    VALUE_CONTROL, /* output slot 1 */
    VALUE_COUNT
} world_value;

/* What the fake kernels share; reset by world_open. */
typedef struct world_fakes {
    _Atomic uint32_t wrong; /* checks that failed */
    uint32_t prepare_count;
    _Atomic uint32_t run_count;
    _Atomic uint32_t updates[2];       /* finished, by chunk */
    uint32_t fail_kind, fail_position; /* the op kind that fails, at scalars.position */
    uint32_t sleep_us[SL_OP_COUNT];
    const sl_op *ops; /* of the training program */
    uint8_t flags[2];
} world_fakes;

static world_fakes fakes;
static uint32_t prepared[SL_OP_COUNT];

static inline uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15u)) * 0xFF51AFD7ED558CCDu;
    return x ^ x >> 29;
}

static inline void world_check(int is_right)
{
    if (!is_right)
        atomic_fetch_add(&fakes.wrong, 1);
}

/* The number that a whole chunk holds. */
static inline uint64_t read_chunk_number(const void *chunk)
{
    const uint64_t *words = chunk;
    for (uint32_t i = 1; i < CHUNK_WORDS; i++)
        world_check(words[i] == words[0]);
    return words[0];
}

static inline void write_chunk_number(void *chunk, uint64_t number)
{
    uint64_t *words = chunk;
    for (uint32_t i = 0; i < CHUNK_WORDS; i++)
        words[i] = number;
}

/* ---- fake kernels ---- */

/* What every kernel does first: checks the call, sleeps, fails if asked to. */
static inline sl_status enter_kernel(const sl_kernel_call *call, sl_op_kind kind)
{
    atomic_fetch_add(&fakes.run_count, 1);
    world_check(prepared[kind] > 0);
    world_check(call->workers && sl_workers_count(call->workers) == 2);
    world_check(call->scalars.learning_rate == 0.5f);
    if (fakes.sleep_us[kind]) {
        struct timespec time = {0, (long)fakes.sleep_us[kind] * 1000};
        nanosleep(&time, NULL);
    }
    if (fakes.fail_kind == (uint32_t)kind && fakes.fail_position == call->scalars.position)
        SL_FAIL(SL_ERROR_NONFINITE, "kernel %d fails at %u", (int)kind, call->scalars.position);
    return SL_OK;
}

/* token, weight, bias, residual (absent), activation */
static sl_status fake_forward(const sl_kernel_call *call)
{
    SL_TRY(enter_kernel(call, SL_OP_LINEAR));
    world_check(call->operand[3] == NULL && call->block_flags == NULL);
    world_check(call->workspace != NULL && (uintptr_t)call->workspace % 256 == 0);
    memset(call->workspace, 0x77, WORKSPACE_BYTES);
    uint64_t token = *(const uint64_t *)call->operand[0];
    uint64_t weight = read_chunk_number(call->operand[1]);
    uint64_t bias = read_chunk_number(call->operand[2]);
    *(uint64_t *)call->operand[4] = mix(mix(token, weight), bias);
    return SL_OK;
}

/* activation, activation, gradient of chunk 0, gradient of chunk 1 */
static sl_status fake_backward(const sl_kernel_call *call)
{
    SL_TRY(enter_kernel(call, SL_OP_LINEAR_WEIGHT_BACKWARD));
    world_check(call->operand[0] == call->operand[1] && call->workspace == NULL);
    uint64_t activation = *(const uint64_t *)call->operand[0];
    write_chunk_number(call->operand[2], mix(activation, 0));
    write_chunk_number(call->operand[3], mix(activation, 1));
    return SL_OK;
}

/* activation, control */
static sl_status fake_finish(const sl_kernel_call *call)
{
    SL_TRY(enter_kernel(call, SL_OP_NORM_FINISH));
    *(uint64_t *)call->operand[1] = *(const uint64_t *)call->operand[0];
    return SL_OK;
}

/* control, gradient, moment1, moment2, param */
static sl_status fake_update(const sl_kernel_call *call)
{
    SL_TRY(enter_kernel(call, SL_OP_ADAMW));
    uint64_t chunk = call->attrs->first_block;
    world_check(call->block_flags && memcmp(call->block_flags, fakes.flags, 2) == 0);
    world_check(call->attrs == &fakes.ops[3].attrs || call->attrs == &fakes.ops[4].attrs);
    uint64_t gradient = read_chunk_number(call->operand[1]);
    world_check(gradient == mix(*(const uint64_t *)call->operand[0], chunk));
    uint64_t moment = read_chunk_number(call->operand[2]) + gradient;
    write_chunk_number(call->operand[2], moment);
    write_chunk_number(call->operand[4], mix(read_chunk_number(call->operand[4]), moment));
    atomic_fetch_add(&fakes.updates[chunk], 1);
    return SL_OK;
}

static sl_status fake_open(int device_index, const sl_cuda_options *options,
                           sl_kernel_library **out_library)
{
    (void)device_index;
    (void)options;
    *out_library = NULL;
    return SL_OK;
}

static void fake_close(sl_kernel_library *library)
{
    (void)library;
}

static sl_status fake_prepare(sl_kernel_library *library, sl_op_kind kind,
                              const sl_kernel_call *call)
{
    world_check(call->attrs != NULL && library == NULL);
    fakes.prepare_count++;
    prepared[kind]++;
    return SL_OK;
}

static const sl_kernel_table fake_kernels = {
    .row = {[SL_OP_LINEAR] = {fake_forward},
            [SL_OP_LINEAR_WEIGHT_BACKWARD] = {fake_backward},
            [SL_OP_NORM_FINISH] = {fake_finish},
            [SL_OP_ADAMW] = {fake_update}},
    .open = fake_open,
    .close = fake_close,
    .prepare = fake_prepare,
};

/* ---- the plans ---- */

#define DEVICE_PLACE(offset, bytes)                                                                \
    {                                                                                              \
        SL_TIER_DEVICE, offset, bytes                                                              \
    }
#define HOST_PLACE(offset, bytes)                                                                  \
    {                                                                                              \
        SL_TIER_HOST, offset, bytes                                                                \
    }
#define NO_PLACE                                                                                   \
    {                                                                                              \
        SL_TIER_DEVICE, 0, 0                                                                       \
    }
#define DEVICE_CHUNK(group_slot) DEVICE_PLACE(DEVICE_HOME + (group_slot)*CHUNK_BYTES, CHUNK_BYTES)
#define HOST_CHUNK(group_slot) HOST_PLACE(HOST_HOME + (group_slot)*CHUNK_BYTES, CHUNK_BYTES)
#define COPY_VALUE(lane_, value_, from_, to_, first, count)                                        \
    {                                                                                              \
        .kind = SL_COMMAND_COPY, .lane = lane_, .value = value_, .chunk_index = SL_NONE,           \
        .from = from_, .to = to_, .first_wait = first, .wait_count = count                         \
    }
#define COPY_CHUNK(lane_, group_, from_, to_, first, count)                                        \
    {                                                                                              \
        .kind = SL_COMMAND_COPY, .lane = lane_, .value = SL_NONE, .chunk_index = 0,                \
        .group = group_, .from = from_, .to = to_, .first_wait = first, .wait_count = count        \
    }
#define RUN(lane_, tick_, first_place_, place_count_, first, count)                                \
    {                                                                                              \
        .kind = SL_COMMAND_RUN, .lane = lane_, .tick = tick_, .first_place = first_place_,         \
        .place_count = place_count_, .value = SL_NONE, .chunk_index = SL_NONE,                     \
        .first_wait = first, .wait_count = count                                                   \
    }

static const sl_place input_on_host = HOST_PLACE(HOST_INPUT, 8);
static const sl_place input_on_device = DEVICE_PLACE(DEVICE_INPUT, 8);
static const sl_place output_on_host = HOST_PLACE(HOST_OUTPUT, 8);
static const sl_place control_on_device = DEVICE_PLACE(DEVICE_CONTROL, 8);
static const sl_place activation_on_device = DEVICE_PLACE(DEVICE_ACTIVATION, 8);
static const sl_place param_on_host = HOST_CHUNK(0);
static const sl_place param_on_device = DEVICE_PLACE(DEVICE_VISIT, CHUNK_BYTES);
static const sl_place grad_on_host = HOST_CHUNK(1);
static const sl_place grad_on_device = DEVICE_PLACE(DEVICE_VISIT_GRAD, CHUNK_BYTES);

typedef struct world {
    sl_value values[VALUE_COUNT];
    sl_op ops[5];
    sl_program program, eval_program;
    sl_layout layout;
    sl_chunk chunks[2];
    uint32_t chunk_of_tensor[2];
    uint64_t first_element[2], tensor_blocks[2];
    uint8_t tensor_flags[2];
    uint8_t tier[SL_GROUP_COUNT][2];
    uint64_t offset[SL_GROUP_COUNT][2];
    uint8_t update_tier[2];
    uint64_t persistent_offset, persistent_bytes; /* of the one slot */
    sl_homes homes;
    sl_place places[PLACE_COUNT];
    sl_wait waits[WAIT_COUNT];
    sl_command train_body[9], eval_prologue[1], eval_body[3];
    sl_section train_section, eval_section;
    sl_plan train, eval;
    sl_engine_plan plans[2];
    sl_engine_options options;
    sl_engine_parts parts;
} world;

static inline void fill_program(world *w)
{
    const sl_value values[VALUE_COUNT] = {
        [VALUE_INPUT] = {.kind = SL_VALUE_INPUT, .index = 0, .bytes = 8},
        [VALUE_ACTIVATION] = {.kind = SL_VALUE_ACTIVATION, .bytes = 8},
        [VALUE_CONTROL] = {.kind = SL_VALUE_OUTPUT, .index = SL_OUTPUT_CONTROL, .bytes = 8},
    };
    const sl_op ops[5] = {
        {.kind = SL_OP_LINEAR, .attrs = {.row_count = 3}},
        {.kind = SL_OP_LINEAR_WEIGHT_BACKWARD,
         .attrs = {.row_count = 3},
         .phase = SL_PHASE_BACKWARD},
        {.kind = SL_OP_NORM_FINISH, .phase = SL_PHASE_UPDATE},
        {.kind = SL_OP_ADAMW,
         .attrs = {.element_count = SL_BLOCK_ELEMENTS, .first_block = 0},
         .phase = SL_PHASE_UPDATE},
        {.kind = SL_OP_ADAMW,
         .attrs = {.element_count = SL_BLOCK_ELEMENTS, .first_block = 1},
         .phase = SL_PHASE_UPDATE},
    };
    memcpy(w->values, values, sizeof values);
    memcpy(w->ops, ops, sizeof ops);
    w->program = (sl_program){.values = w->values, .value_count = VALUE_COUNT, .ops = w->ops};
    w->eval_program = w->program;
    w->program.op_count = 5;
    w->eval_program.op_count = 1;
}

static inline void fill_homes(world *w)
{
    static const sl_group groups[4] = {SL_GROUP_PARAM, SL_GROUP_GRAD, SL_GROUP_STATE1,
                                       SL_GROUP_STATE2};
    w->homes = (sl_homes){.chunk_count = 2,
                          .update_tier = w->update_tier,
                          .persistent_count = 1,
                          .persistent_offset = &w->persistent_offset,
                          .persistent_bytes = &w->persistent_bytes};
    for (uint32_t i = 0; i < 4; i++) {
        sl_group group = groups[i];
        w->tier[group][0] = SL_TIER_HOST;
        w->tier[group][1] = SL_TIER_DEVICE;
        w->offset[group][0] = HOST_HOME + i * CHUNK_BYTES;
        w->offset[group][1] = DEVICE_HOME + i * CHUNK_BYTES;
        w->homes.tier[group] = w->tier[group];
        w->homes.offset[group] = w->offset[group];
    }
    w->update_tier[0] = SL_TIER_HOST;
    w->update_tier[1] = SL_TIER_DEVICE;
    w->homes.flags_offset[SL_TIER_DEVICE] = DEVICE_FLAGS;
    w->homes.flags_offset[SL_TIER_HOST] = HOST_FLAGS;
    w->homes.flags_bytes[SL_TIER_DEVICE] = w->homes.flags_bytes[SL_TIER_HOST] = 2;
    w->homes.persistent_offset[0] = DEVICE_CACHE;
    w->homes.persistent_bytes[0] = CACHE_BYTES;
    w->homes.fixed_bytes[SL_TIER_DEVICE] = DEVICE_FIXED;
    w->homes.fixed_bytes[SL_TIER_HOST] = HOST_FIXED;
    fakes.flags[0] = 1;
    fakes.flags[1] = 0;
    w->chunks[0] = (sl_chunk){SL_BLOCK_ELEMENTS, 0};
    w->chunks[1] = (sl_chunk){SL_BLOCK_ELEMENTS, 1};
    w->layout = (sl_layout){.chunk_elements = SL_BLOCK_ELEMENTS,
                            .block_count = 2,
                            .chunk_count = 2,
                            .chunks = w->chunks,
                            .tensor_count = 2,
                            .chunk_of_tensor = w->chunk_of_tensor,
                            .first_element = w->first_element,
                            .tensor_blocks = w->tensor_blocks,
                            .tensor_flags = w->tensor_flags};
    w->chunk_of_tensor[1] = 1;
    w->tensor_blocks[0] = w->tensor_blocks[1] = 1;
    w->tensor_flags[0] = SL_RATE_DECAYS;
}

static inline void fill_places(world *w)
{
    const sl_place places[PLACE_COUNT] = {
        /* 0: forward */
        input_on_device, param_on_device, DEVICE_CHUNK(0), NO_PLACE, activation_on_device,
        DEVICE_PLACE(DEVICE_WORKSPACE, WORKSPACE_BYTES),
        /* 6: backward */
        activation_on_device, activation_on_device, grad_on_device, DEVICE_CHUNK(1), NO_PLACE,
        /* 11: finish */
        activation_on_device, control_on_device, NO_PLACE,
        /* 14: update of chunk 0 */
        output_on_host, HOST_CHUNK(1), HOST_CHUNK(2), HOST_CHUNK(3), HOST_CHUNK(0), NO_PLACE,
        /* 20: update of chunk 1 */
        control_on_device, DEVICE_CHUNK(1), DEVICE_CHUNK(2), DEVICE_CHUNK(3), DEVICE_CHUNK(0),
        NO_PLACE};
    memcpy(w->places, places, sizeof places);
}

/* The plan's commands by number:
 * 0 input in, 1 param in, 2 forward, 3 backward, 4 gradient out, 5 finish, 6 control out,
 * 7 update of chunk 0 on the host, 8 update of chunk 1 */
static inline void fill_train(world *w)
{
    const sl_wait waits[WAIT_COUNT] = {
        {2, 0},                 /* 0: 0's target is still read */
        {2, 0}, {7, 0},         /* 1: the visit is still read; the update of the home */
        {0, 0}, {1, 0},         /* 3: 2 */
        {2, 0}, {4, 0},         /* 5: 3; the first one is in its own lane */
        {3, 0}, {7, 0},         /* 7: 4 */
        {6, 0},                 /* 9: 5 */
        {5, 0}, {7, 0},         /* 10: 6 */
        {1, 0}, {4, 0}, {6, 0}, /* 12: 7 */
        {1, 0},                 /* 15: evaluation from here */
        {0, 0}, {2, 0},         /* 16 */
        {1, 0},                 /* 18 */
    };
    const sl_command body[9] = {
        COPY_VALUE(SL_LANE_H2D, VALUE_INPUT, input_on_host, input_on_device, 0, 1),
        COPY_CHUNK(SL_LANE_H2D, SL_GROUP_PARAM, param_on_host, param_on_device, 1, 2),
        RUN(SL_LANE_COMPUTE, 0, 0, 6, 3, 2),
        RUN(SL_LANE_COMPUTE, 1, 6, 5, 5, 2),
        COPY_CHUNK(SL_LANE_D2H, SL_GROUP_GRAD, grad_on_device, grad_on_host, 7, 2),
        RUN(SL_LANE_COMPUTE, 2, 11, 3, 9, 1),
        COPY_VALUE(SL_LANE_D2H, VALUE_CONTROL, control_on_device, output_on_host, 10, 2),
        RUN(SL_LANE_HOST, 3, 14, 6, 12, 3),
        RUN(SL_LANE_COMPUTE, 4, 20, 6, 0, 0),
    };
    memcpy(w->waits, waits, sizeof waits);
    memcpy(w->train_body, body, sizeof body);
    w->train_section = (sl_section){.count = 9, .repeat = 1};
    w->train = (sl_plan){.body = w->train_body,
                         .body_count = 9,
                         .sections = &w->train_section,
                         .section_count = 1,
                         .places = w->places,
                         .place_count = PLACE_COUNT,
                         .waits = w->waits,
                         .wait_count = WAIT_COUNT,
                         .peak_bytes = {DEVICE_PEAK, HOST_PEAK}};
}

/* The parameter chunk is carried from iteration to iteration: the prologue fetches it once. */
static inline void fill_eval(world *w)
{
    const sl_command prologue =
        COPY_CHUNK(SL_LANE_H2D, SL_GROUP_PARAM, param_on_host, param_on_device, 0, 0);
    const sl_command body[3] = {
        COPY_VALUE(SL_LANE_H2D, VALUE_INPUT, input_on_host, input_on_device, 15, 1),
        RUN(SL_LANE_COMPUTE, 0, 0, 6, 16, 2),
        COPY_VALUE(SL_LANE_D2H, VALUE_CONTROL, activation_on_device, output_on_host, 18, 1),
    };
    w->eval_prologue[0] = prologue;
    memcpy(w->eval_body, body, sizeof body);
    w->eval = w->train;
    w->eval.prologue = w->eval_prologue;
    w->eval.prologue_count = 1;
    w->eval.body = w->eval_body;
    w->eval.body_count = 3;
    w->eval_section = (sl_section){.count = 3, .repeat = 1};
    w->eval.sections = &w->eval_section;
}

/* Fills everything and sets the fakes back; the world must not move afterwards. */
static inline void world_init(world *w)
{
    memset(w, 0, sizeof *w);
    memset(&fakes, 0, sizeof fakes);
    fakes.fail_kind = SL_OP_COUNT;
    fill_program(w);
    fill_homes(w);
    fill_places(w);
    fill_train(w);
    fill_eval(w);
    fakes.ops = w->ops;
    w->plans[TRAIN_PLAN] = (sl_engine_plan){&w->program, &w->train};
    w->plans[EVAL_PLAN] = (sl_engine_plan){&w->eval_program, &w->eval};
    w->options = (sl_engine_options){.layout = &w->layout,
                                     .homes = &w->homes,
                                     .plans = w->plans,
                                     .plan_count = 2,
                                     .target = {.worker_count = 2}};
    w->parts = (sl_engine_parts){.kernels = &fake_kernels};
}

/* ---- what has to come out ---- */

typedef struct world_numbers {
    uint64_t param[2], moment[2];
} world_numbers;

static inline uint64_t expect_forward(const world_numbers *numbers, uint64_t token)
{
    return mix(mix(token, numbers->param[0]), numbers->param[1]);
}

static inline uint64_t expect_train(world_numbers *numbers, uint64_t token)
{
    uint64_t activation = expect_forward(numbers, token);
    for (uint64_t chunk = 0; chunk < 2; chunk++) {
        numbers->moment[chunk] += mix(activation, chunk);
        numbers->param[chunk] = mix(numbers->param[chunk], numbers->moment[chunk]);
    }
    return activation;
}

#endif
