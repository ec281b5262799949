/* Random programs with repeated sections, for tests, and the homes of their chunks.
 *
 * A program of one to four loops in a row. Each loop is a section run once, one that is repeated,
 * one run once: micro-batches 0, 1 to M - 2, M - 1. In each section an input is filled on the host
 * and fetched, weights are read, gradients are added to, activations leave for the next loop's same
 * micro-batch (a family, in the repeated sections) and a sum is added to.
 */
#ifndef SL_TESTS_LOOPED_PROGRAM_H
#define SL_TESTS_LOOPED_PROGRAM_H

#include "base/rng.h"
#include "plan_builder.h"

enum {
    LOOP_MAX = 4,
    LOOP_CHUNKS = 4,
    LOOP_ACTIVATION_BYTES = 4096,
    LOOP_CHUNK_BYTES = SL_BLOCK_ELEMENTS * 4,
    LOOP_VALUE_MAX = 64,
    LOOP_OP_MAX = 128
};

/* How long a chunk stays on the device. */
typedef enum loop_stay { LOOP_STAY_LOOP, LOOP_STAY_REPETITION, LOOP_STAY_SEAM } loop_stay;

/* An activation made in one loop and used in the next: one value for each of its sections. */
typedef struct loop_away {
    uint32_t value[3];
    sl_tier home;   /* of the family; that of the others is the device */
    uint32_t slots; /* of its places where it is not at home: 0 or 2 */
    uint32_t gap;   /* bytes between slots */
} loop_away;

typedef struct looped_case {
    uint64_t seed, draws;
    uint32_t micro_batches, loops;
    sl_value values[LOOP_VALUE_MAX];
    sl_op ops[LOOP_OP_MAX];
    sl_section sections[3 * LOOP_MAX];
    sl_program program;
    uint32_t chunk_of_tensor[1];
    sl_layout layout;
    sl_chunk chunks[LOOP_CHUNKS];
    uint8_t tiers[LOOP_CHUNKS], update_tiers[LOOP_CHUNKS];
    uint64_t offsets[LOOP_CHUNKS];
    sl_homes homes;
    sl_plan_request request;
    sl_plan plan;

    uint32_t chunk_value[LOOP_CHUNKS];
    uint32_t read_chunk[LOOP_MAX], written_chunk[LOOP_MAX]; /* of each loop */
    bool is_longer[3 * LOOP_MAX];                           /* sections with an op more */
    loop_stay stay[LOOP_MAX][LOOP_CHUNKS];
    loop_away away[LOOP_MAX]; /* from loop i to loop i + 1 */
    uint32_t input, sum, loss;
    plan_builder builder;
    bool is_shared;     /* memory of what does not live at the same time */
    bool is_plain_last; /* families are given places before what stays on the device */
} looped_case;

static inline uint32_t loop_draw(looped_case *it, uint32_t bound)
{
    return (uint32_t)sl_rng_below(it->seed, 51, it->draws++, bound);
}

/* What the program and its plan will be like. */
static inline void loop_choose(looped_case *it, uint64_t seed, uint32_t micro_batches)
{
    *it = (looped_case){.seed = seed, .micro_batches = micro_batches};
    it->loops = 1 + loop_draw(it, LOOP_MAX);
    it->is_shared = loop_draw(it, 4) > 0;
    it->is_plain_last = loop_draw(it, 2) > 0;
    for (uint32_t c = 0; c < LOOP_CHUNKS; c++)
        it->tiers[c] = loop_draw(it, 4) == 0 ? SL_TIER_DEVICE : SL_TIER_HOST;
    for (uint32_t loop = 0; loop < LOOP_MAX; loop++) {
        uint32_t kind = loop_draw(it, 6);
        loop_away *away = &it->away[loop];
        away->home = kind < 2 ? SL_TIER_DEVICE : kind < 5 ? SL_TIER_HOST : SL_TIER_DISK;
        away->slots = micro_batches > 3 && loop_draw(it, 4) > 0 ? 2 : 0;
        away->gap = loop_draw(it, 3) ? 0 : 4096;
        it->read_chunk[loop] = loop_draw(it, LOOP_CHUNKS);
        it->written_chunk[loop] =
            (it->read_chunk[loop] + 1 + loop_draw(it, LOOP_CHUNKS - 1)) % LOOP_CHUNKS;
        for (uint32_t part = 0; part < 3; part++)
            it->is_longer[3 * loop + part] = loop_draw(it, 3) == 0;
        for (uint32_t c = 0; c < LOOP_CHUNKS; c++)
            it->stay[loop][c] = (loop_stay)loop_draw(it, 3);
    }
}

/* ---- the program ---- */

static inline uint32_t loop_value(looped_case *it, sl_value_kind kind, uint32_t index,
                                  const char *name)
{
    sl_value *value = &it->values[it->program.value_count];
    *value = (sl_value){.kind = kind,
                        .index = index,
                        .instances = 1,
                        .bytes = kind == SL_VALUE_CHUNK ? LOOP_CHUNK_BYTES : LOOP_ACTIVATION_BYTES};
    snprintf(value->name, sizeof value->name, "%s %u", name, it->program.value_count);
    return it->program.value_count++;
}

static inline void loop_op(looped_case *it, sl_op_kind kind, uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t last = kind == SL_OP_LINEAR ? SL_NONE : c;
    it->ops[it->program.op_count++] =
        (sl_op){.kind = kind, .operand = {a, b, last, SL_NONE, c, SL_NONE, SL_NONE}};
}

/* The ops of one section; part 0, 1, 2: first, repeated, last. */
static inline void loop_section_ops(looped_case *it, uint32_t loop, uint32_t part)
{
    uint32_t x = loop_value(it, SL_VALUE_ACTIVATION, 0, "x");
    uint32_t y = loop_value(it, SL_VALUE_ACTIVATION, 0, "y");
    if (loop == 0 && part == 0)
        loop_op(it, SL_OP_CLEAR, it->sum, SL_NONE, SL_NONE);
    loop_op(it, SL_OP_INPUT, it->input, SL_NONE, SL_NONE);
    loop_op(it, SL_OP_GELU, it->input, x, SL_NONE);
    loop_op(it, SL_OP_LINEAR, x, it->chunk_value[it->read_chunk[loop]], y);
    if (loop > 0)
        loop_op(it, SL_OP_ADD, it->away[loop - 1].value[part], y, SL_NONE);
    if (it->is_longer[3 * loop + part])
        loop_op(it, SL_OP_GELU_BACKWARD, x, y, SL_NONE);
    loop_op(it, SL_OP_ADD, y, it->chunk_value[it->written_chunk[loop]], SL_NONE);
    if (loop + 1 < it->loops)
        loop_op(it, SL_OP_GELU, y, it->away[loop].value[part], SL_NONE);
    loop_op(it, SL_OP_ADD, y, it->sum, SL_NONE);
    if (loop + 1 == it->loops && part == 2)
        loop_op(it, SL_OP_GELU, it->sum, it->loss, SL_NONE);
}

static inline void loop_away_values(looped_case *it, uint32_t loop)
{
    loop_away *away = &it->away[loop];
    for (uint32_t part = 0; part < 3; part++)
        away->value[part] = loop_value(it, SL_VALUE_ACTIVATION, 0, "away");
    it->values[away->value[1]].instances = it->micro_batches - 2;
}

static inline void loop_program(looped_case *it)
{
    uint32_t repeat = it->micro_batches - 2;
    it->program = (sl_program){.values = it->values, .ops = it->ops, .sections = it->sections};
    it->program.micro_batch_count = it->micro_batches;
    it->input = loop_value(it, SL_VALUE_INPUT, 0, "input");
    it->sum = loop_value(it, SL_VALUE_ACTIVATION, 0, "sum");
    it->loss = loop_value(it, SL_VALUE_OUTPUT, 0, "loss");
    for (uint32_t c = 0; c < LOOP_CHUNKS; c++)
        it->chunk_value[c] = loop_value(it, SL_VALUE_CHUNK, c, "chunk");
    for (uint32_t loop = 0; loop + 1 < it->loops; loop++)
        loop_away_values(it, loop);
    for (uint32_t loop = 0; loop < it->loops; loop++) {
        for (uint32_t part = 0; part < 3; part++) {
            sl_section *section = &it->sections[it->program.section_count++];
            section->first = it->program.op_count;
            section->first_micro_batch = part == 2 ? repeat + 1 : part;
            section->repeat = part == 1 ? repeat : 1;
            loop_section_ops(it, loop, part);
            section->count = it->program.op_count - section->first;
        }
    }
}

/* ---- homes ---- */

static inline void loop_homes(looped_case *it)
{
    uint64_t next[SL_TIER_COUNT] = {0};
    for (uint32_t c = 0; c < LOOP_CHUNKS; c++) {
        it->offsets[c] = next[it->tiers[c]];
        next[it->tiers[c]] += LOOP_CHUNK_BYTES;
    }
    for (uint32_t c = 0; c < LOOP_CHUNKS; c++)
        it->chunks[c] = (sl_chunk){SL_BLOCK_ELEMENTS, c};
    it->layout = (sl_layout){.chunk_elements = SL_BLOCK_ELEMENTS,
                             .block_count = LOOP_CHUNKS,
                             .chunks = it->chunks,
                             .chunk_count = LOOP_CHUNKS,
                             .chunk_of_tensor = it->chunk_of_tensor};
    it->homes = (sl_homes){.chunk_count = LOOP_CHUNKS, .update_tier = it->update_tiers};
    it->homes.tier[SL_GROUP_PARAM] = it->tiers;
    it->homes.offset[SL_GROUP_PARAM] = it->offsets;
    memcpy(it->homes.fixed_bytes, next, sizeof next);
}

static inline uint64_t loop_workspace(const void *context, sl_op_kind kind,
                                      const sl_op_attrs *attrs, sl_tier tier)
{
    (void)context, (void)attrs, (void)tier;
    return kind == SL_OP_GELU_BACKWARD ? 512 : 0;
}

static inline void loop_request(looped_case *it)
{
    it->request = (sl_plan_request){.program = &it->program,
                                    .layout = &it->layout,
                                    .homes = &it->homes,
                                    .budget_bytes = {UINT64_MAX, UINT64_MAX, UINT64_MAX},
                                    .workspace = loop_workspace};
}

#endif
