/* A program of fifteen ops and a plan of it, both written by hand: a chunk that lives on the host
 * and visits the device, is carried over the end of an iteration, and gives its bytes to its own
 * gradient in between; one that stays on the device; an AdamW of each kind. No wait is one too
 * many. */
#ifndef SL_TESTS_SMALL_PLAN_H
#define SL_TESTS_SMALL_PLAN_H

#include "plan_builder.h"

/* ---- a small program ----
 *
 * Two chunks of two blocks. Chunk 0 holds tensors 0 and 1, lives on the host and visits the device;
 * its AdamW runs on the host. Chunk 1 holds tensor 2 and lives on the device. */

enum { CHUNK_BYTES = 16384, TENSOR_BYTES = 8192, ROWS_BYTES = 1024, VISIT = 196608 };

enum {
    TOKENS,
    P0,
    P1,
    P2,
    G0,
    G1,
    G2,
    X,
    Y,
    DX,
    LOSS,
    CONTROL,
    NORM,
    PC0,
    GC0,
    MC0,
    VC0,
    PC1,
    GC1,
    MC1,
    VC1,
    VALUE_COUNT
};

#define TENSOR(group_, index_, bytes_)                                                             \
    {                                                                                              \
        .kind = SL_VALUE_TENSOR, .group = SL_GROUP_##group_, .index = index_, .bytes = bytes_,     \
        .name = #group_ " tensor " #index_                                                         \
    }
#define CHUNK(group_, index_)                                                                      \
    {                                                                                              \
        .kind = SL_VALUE_CHUNK, .group = SL_GROUP_##group_, .index = index_, .bytes = CHUNK_BYTES, \
        .name = #group_ " chunk " #index_                                                          \
    }
#define VALUE(kind_, index_, bytes_, name_)                                                        \
    {                                                                                              \
        .kind = SL_VALUE_##kind_, .index = index_, .bytes = bytes_, .name = name_                  \
    }

static sl_value small_values[VALUE_COUNT] = {
    [TOKENS] = VALUE(INPUT, 0, 256, "tokens"),
    [P0] = TENSOR(PARAM, 0, TENSOR_BYTES),
    [P1] = TENSOR(PARAM, 1, TENSOR_BYTES),
    [P2] = TENSOR(PARAM, 2, CHUNK_BYTES),
    [G0] = TENSOR(GRAD, 0, TENSOR_BYTES),
    [G1] = TENSOR(GRAD, 1, TENSOR_BYTES),
    [G2] = TENSOR(GRAD, 2, CHUNK_BYTES),
    [X] = VALUE(ACTIVATION, 0, ROWS_BYTES, "x"),
    [Y] = VALUE(ACTIVATION, 0, ROWS_BYTES, "y"),
    [DX] = VALUE(ACTIVATION, 0, ROWS_BYTES, "dx"),
    [LOSS] = VALUE(OUTPUT, 0, 8, "loss"),
    [CONTROL] = VALUE(OUTPUT, 1, 16, "control"),
    [NORM] = VALUE(ACTIVATION, 0, 64, "norm"),
    [PC0] = CHUNK(PARAM, 0),
    [GC0] = CHUNK(GRAD, 0),
    [MC0] = CHUNK(STATE1, 0),
    [VC0] = CHUNK(STATE2, 0),
    [PC1] = CHUNK(PARAM, 1),
    [GC1] = CHUNK(GRAD, 1),
    [MC1] = CHUNK(STATE1, 1),
    [VC1] = CHUNK(STATE2, 1),
};

#define OP(kind_, ...)                                                                             \
    {                                                                                              \
        .kind = SL_OP_##kind_, .operand = { __VA_ARGS__ }                                          \
    }
#define ADDING(kind_, ...)                                                                         \
    {                                                                                              \
        .kind = SL_OP_##kind_, .attrs = {.adds_output = 1}, .operand = { __VA_ARGS__ }             \
    }
#define GATHERING(kind_, ...)                                                                      \
    {                                                                                              \
        .kind = SL_OP_##kind_, .attrs = {.adds_gradient = 1}, .operand = { __VA_ARGS__, SL_NONE }  \
    }
#define UPDATE(first_block_, ...)                                                                  \
    {                                                                                              \
        .kind = SL_OP_ADAMW, .attrs = {.element_count = 4096, .first_block = first_block_},        \
        .operand = {                                                                               \
            __VA_ARGS__,                                                                           \
            SL_NONE                                                                                \
        }                                                                                          \
    }

static sl_op small_ops[] = {
    OP(EMBED_POSITION, P0, X),                     /* 0 */
    OP(EMBED_TOKENS, TOKENS, P1, X),               /* 1 */
    OP(LINEAR, X, P2, SL_NONE, SL_NONE, Y),        /* 2 */
    OP(HEAD_LOSS, Y, LOSS, SL_NONE),               /* 3 */
    OP(CLEAR, GC1),                                /* 4 */
    OP(LINEAR_INPUT_BACKWARD, Y, P2, DX, SL_NONE), /* 5 */
    GATHERING(LINEAR_WEIGHT_BACKWARD, X, Y, G2),   /* 6 */
    OP(CLEAR, GC0),                                /* 7 */
    OP(EMBED_TOKENS_BACKWARD, TOKENS, DX, G1),     /* 8 */
    OP(EMBED_POSITION_BACKWARD, DX, G0),           /* 9 */
    OP(BLOCK_NORM, GC0, NORM),                     /* 10 */
    ADDING(BLOCK_NORM, GC1, NORM),                 /* 11 */
    OP(NORM_FINISH, NORM, CONTROL, SL_NONE),       /* 12 */
    UPDATE(0, CONTROL, GC0, MC0, VC0, PC0),        /* 13 */
    UPDATE(2, CONTROL, GC1, MC1, VC1, PC1),        /* 14 */
};

enum { SMALL_OP_COUNT = sizeof small_ops / sizeof *small_ops };

static sl_program small_program = {.values = small_values,
                                   .value_count = VALUE_COUNT,
                                   .ops = small_ops,
                                   .op_count = SMALL_OP_COUNT,
                                   .micro_batch_count = 1,
                                   .has_state = {true, true, false, true, true}};

static uint32_t small_chunk_of_tensor[] = {0, 0, 1};
static uint64_t small_first_element[] = {0, 2048, 0};
static sl_chunk small_chunks[] = {{4096, 0}, {4096, 2}};
static sl_layout small_layout = {.chunk_elements = 4096,
                                 .block_count = 4,
                                 .chunks = small_chunks,
                                 .chunk_count = 2,
                                 .tensor_count = 3,
                                 .chunk_of_tensor = small_chunk_of_tensor,
                                 .first_element = small_first_element};

/* Chunk 0 of each group on the host, chunk 1 on the device, 32 KiB apart; flags behind them. */
static uint8_t small_tier[] = {SL_TIER_HOST, SL_TIER_DEVICE};
static uint64_t small_offset[4][2] = {{0, 0}, {32768, 32768}, {65536, 65536}, {98304, 98304}};
static sl_homes small_homes = {
    .chunk_count = 2,
    .tier = {small_tier, small_tier, NULL, small_tier, small_tier},
    .offset = {small_offset[0], small_offset[1], NULL, small_offset[2], small_offset[3]},
    .update_tier = small_tier,
    .flags_offset = {131072, 131072, 0},
    .flags_bytes = {4, 4, 0},
    .fixed_bytes = {131328, 131328, 0}};

/* The loss needs 512 bytes of workspace. */
static inline uint64_t small_workspace(const void *context, sl_op_kind kind,
                                       const sl_op_attrs *attrs, sl_tier tier)
{
    (void)context, (void)attrs, (void)tier;
    return kind == SL_OP_HEAD_LOSS ? 512 : 0;
}

static const sl_plan_request small_request = {.program = &small_program,
                                              .layout = &small_layout,
                                              .homes = &small_homes,
                                              .budget_bytes = {UINT64_MAX, UINT64_MAX, UINT64_MAX},
                                              .workspace = small_workspace};

/* ---- its plan ---- */

static inline void place_values(plan_builder *builder)
{
    static const struct {
        uint32_t value;
        sl_tier tier;
        uint64_t offset;
    } rows[] = {{TOKENS, SL_TIER_HOST, 131328},    {LOSS, SL_TIER_HOST, 131584},
                {CONTROL, SL_TIER_HOST, 131840},   {TOKENS, SL_TIER_DEVICE, 131584},
                {X, SL_TIER_DEVICE, 132096},       {Y, SL_TIER_DEVICE, 133120},
                {DX, SL_TIER_DEVICE, 134144},      {LOSS, SL_TIER_DEVICE, 135168},
                {CONTROL, SL_TIER_DEVICE, 135424}, {NORM, SL_TIER_DEVICE, 132096}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *plan_value_at(builder, rows[i].tier, rows[i].value) =
            (sl_place){rows[i].tier, rows[i].offset, small_values[rows[i].value].bytes};
    sl_place visit = {SL_TIER_DEVICE, VISIT, CHUNK_BYTES};
    *plan_chunk_at(builder, SL_TIER_DEVICE, SL_GROUP_PARAM, 0) = visit;
    *plan_chunk_at(builder, SL_TIER_DEVICE, SL_GROUP_GRAD, 0) = visit;
}

/* Param chunk 0 visits from the end of an iteration to op 1 of the next; in between the same bytes
 * hold grad chunk 0. The norm takes over the bytes of x. */
static inline void allocate_small(plan_builder *builder)
{
    static const struct {
        uint32_t value, ticks[2];
    } rows[] = {{TOKENS, {0, 8}}, {X, {0, 6}},         {Y, {2, 6}},     {DX, {5, 9}},
                {LOSS, {3, 4}},   {CONTROL, {12, 14}}, {NORM, {10, 12}}};
    static const uint32_t always[2] = {0, SMALL_OP_COUNT}, param[2] = {15, 1}, grad[2] = {7, 10};
    plan_allocate_homes(builder);
    plan_allocate_value(builder, SL_MEMORY_STAGING, SL_TIER_HOST, TOKENS, always);
    plan_allocate_value(builder, SL_MEMORY_STAGING, SL_TIER_HOST, LOSS, always);
    plan_allocate_value(builder, SL_MEMORY_STAGING, SL_TIER_HOST, CONTROL, always);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        plan_allocate_value(builder, SL_MEMORY_ACTIVATION, SL_TIER_DEVICE, rows[i].value,
                            rows[i].ticks);
    plan_allocate_visit(builder, SL_TIER_DEVICE, SL_GROUP_PARAM, 0, param);
    plan_allocate_visit(builder, SL_TIER_DEVICE, SL_GROUP_GRAD, 0, grad);
    sl_allocation workspace = {.kind = SL_MEMORY_WORKSPACE,
                               .place = {SL_TIER_DEVICE, 136192, 512},
                               .first_tick = 3,
                               .last_tick = 3,
                               .value = SL_NONE,
                               .chunk_index = SL_NONE};
    plan_add_allocation(builder, &workspace);
}

/* By hand. Device: homes 4 * 16384, flags 4. At ticks 8 and 9 live besides: grad chunk 0, tokens
 * 256 (8 only), dx 1024. At tick 15 only param chunk 0; at 0: tokens, x, param chunk 0. At 7:
 * tokens, dx, grad chunk 0 too. The most activations beside a visit: 0 and 1 (256 + 1024), 7 and 8
 * (256 + 1024). */
static inline void sum_small(sl_plan *plan)
{
    static const uint64_t device[SL_MEMORY_KIND_COUNT] = {32768, 16384, 0, 16384,
                                                          16384, 1280,  0, 4};
    static const uint64_t host[SL_MEMORY_KIND_COUNT] = {16384, 16384, 0, 16384,
                                                        16384, 0,     0, 4 + 256 + 8 + 16};
    memcpy(plan->kind_bytes[SL_TIER_DEVICE], device, sizeof device);
    memcpy(plan->kind_bytes[SL_TIER_HOST], host, sizeof host);
    plan->live_peak_bytes[SL_TIER_DEVICE] = 5 * 16384 + 1280 + 4;
    plan->live_peak_bytes[SL_TIER_HOST] = 4 * 16384 + 284;
}

static inline uint32_t add_small_run(plan_builder *builder, uint32_t tick)
{
    static const sl_place none = {SL_TIER_DEVICE, 0, 0}, some = {SL_TIER_DEVICE, 136192, 512};
    sl_lane lane = tick == 13 ? SL_LANE_HOST : SL_LANE_COMPUTE;
    return plan_add_run(builder, tick, lane, tick == 3 ? some : none);
}

/* x leaves the device, for the host and maybe on to the disk; returns the last copy. */
static inline uint32_t add_small_leave(plan_builder *builder, uint32_t made, sl_tier away)
{
    static const sl_tier write[2] = {SL_TIER_HOST, SL_TIER_DISK};
    uint32_t out = plan_add_value_copy(builder, 3, SL_TIER_HOST, X);
    plan_add_wait(builder, made, 0);
    if (away == SL_TIER_HOST)
        return out;
    uint32_t written = plan_add_value_move(builder, 3, write, X);
    plan_add_wait(builder, out, 0);
    return written;
}

static inline uint32_t add_small_return(plan_builder *builder, uint32_t left, sl_tier away)
{
    static const sl_tier read[2] = {SL_TIER_DISK, SL_TIER_HOST};
    if (away == SL_TIER_DISK) {
        uint32_t back = plan_add_value_move(builder, 6, read, X);
        plan_add_wait(builder, left, 0);
        left = back;
    }
    uint32_t fetched = plan_add_value_copy(builder, 6, SL_TIER_DEVICE, X);
    plan_add_wait(builder, left, 0);
    return fetched;
}

/* Ops 0 to 12, with x `away` between ops 2 and 6 (SL_TIER_DEVICE: it stays). `fetch` will be the
 * copy that brings param chunk 0 for the next iteration. */
static inline void add_small_start(plan_builder *builder, uint32_t fetch, sl_tier away)
{
    uint32_t tokens = plan_add_value_copy(builder, 0, SL_TIER_DEVICE, TOKENS), left = 0;
    for (uint32_t tick = 0; tick <= 12; tick++) {
        uint32_t made = builder->plan.body_count - 1, needed = tick == 1 ? tokens : SL_NONE;
        bool leaves = tick == 3 && away != SL_TIER_DEVICE;
        left = leaves ? add_small_leave(builder, made, away) : left;
        if (tick == 6 && away != SL_TIER_DEVICE)
            needed = add_small_return(builder, left, away);
        if (tick == 4)
            plan_add_value_copy(builder, tick, SL_TIER_HOST, LOSS);
        if (tick == 10)
            plan_add_chunk_copy(builder, tick, SL_TIER_HOST, SL_GROUP_GRAD, 0);
        if (tick == 4 || tick == 10)
            plan_add_wait(builder, made, 0);
        add_small_run(builder, tick);
        if (needed != SL_NONE)
            plan_add_wait(builder, needed, 0);
        if (tick == 0)
            plan_add_wait(builder, fetch, 0);
    }
}

static inline void add_small_end(plan_builder *builder)
{
    uint32_t finish = builder->plan.body_count - 1;
    uint32_t control = plan_add_value_copy(builder, 13, SL_TIER_HOST, CONTROL);
    plan_add_wait(builder, finish, 0);
    uint32_t update = add_small_run(builder, 13);
    plan_add_wait(builder, control, 0);
    add_small_run(builder, 14);
    plan_add_chunk_copy(builder, SMALL_OP_COUNT, SL_TIER_DEVICE, SL_GROUP_PARAM, 0);
    plan_add_wait(builder, update, 0);
}

/* Of `request`, whose program differs from the small one's in ops alone. */
static inline sl_plan make_small_plan_of(const sl_plan_request *request)
{
    plan_builder builder;
    plan_begin(&builder, request);
    place_values(&builder);
    sl_command fetch = plan_chunk_copy(&builder, 0, SL_TIER_DEVICE, SL_GROUP_PARAM, 0);
    plan_add_prologue(&builder, &fetch);
    add_small_start(&builder, 19, SL_TIER_DEVICE);
    add_small_end(&builder);
    allocate_small(&builder);
    sl_plan plan = plan_end(&builder);
    sum_small(&plan);
    return plan;
}

static inline sl_plan make_small_plan(void)
{
    return make_small_plan_of(&small_request);
}

#endif
