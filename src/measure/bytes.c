/* One chunk of one group at a time: how often it comes, and how often it goes. */
#include "bytes.h"

/* How often a chunk is fetched to where it is used, and written back, in a step. */
typedef struct trips {
    uint64_t to, from;
} trips;

static uint64_t count_sweeps(const sl_choice *choice)
{
    return choice->accumulation == SL_ACCUMULATE_LAYER ? 1 : choice->accumulate;
}

/* The chunk that an op reads as it is stored, or a tensor of; SL_NONE: the value is in none. */
static uint32_t find_chunk(const sl_blueprint *blueprint, const sl_value *value)
{
    if (value->kind == SL_VALUE_CHUNK)
        return value->group == SL_GROUP_PARAM ? value->index : SL_NONE;
    return value->kind == SL_VALUE_TENSOR ? blueprint->layout->chunk_of_tensor[value->index]
                                          : SL_NONE;
}

/* True if the backward pass uses the parameters of a chunk: not so before the first trained one. */
static bool has_backward(const sl_blueprint *blueprint, uint32_t chunk_index)
{
    const sl_program *program = blueprint->programs[0];
    if (!sl_update_rules_freeze(&blueprint->task.rules))
        return true;
    for (uint32_t o = 0; o < program->op_count; o++)
        for (uint32_t i = 0; i < SL_OPERAND_MAX; i++) {
            const uint32_t v = program->ops[o].operand[i];
            const sl_value *value = v == SL_NONE ? NULL : &program->values[v];
            if (value != NULL && program->ops[o].phase == SL_PHASE_BACKWARD &&
                find_chunk(blueprint, value) == chunk_index)
                return true;
        }
    return false;
}

/* Between the device, where passes run, and a home elsewhere. */
static trips count_passes(const sl_blueprint *blueprint, sl_group group, uint32_t chunk_index)
{
    uint64_t sweeps = count_sweeps(&blueprint->choice);
    if (group == SL_GROUP_PARAM)
        return (trips){has_backward(blueprint, chunk_index) ? 2 * sweeps : sweeps, 0};
    if (group == SL_GROUP_GRAD)
        return (trips){sweeps - 1, sweeps};
    return (trips){0, 0};
}

/* Between the place of the update and a home elsewhere. */
static trips count_update(sl_group group)
{
    if (group == SL_GROUP_PARAM)
        return (trips){0, 1};
    return group == SL_GROUP_GRAD ? (trips){1, 0} : (trips){1, 1};
}

/* To `used` from `home`; what lies between disk and device passes the host. */
static void add_trips(sl_tier home, sl_tier used, trips count, uint64_t bytes, uint64_t *out_bytes)
{
    bool is_between_memories = home != used && (home == SL_TIER_DEVICE || used == SL_TIER_DEVICE);
    bool is_down = home == SL_TIER_DEVICE;
    if (is_between_memories) {
        out_bytes[SL_LANE_H2D] += bytes * (is_down ? count.from : count.to);
        out_bytes[SL_LANE_D2H] += bytes * (is_down ? count.to : count.from);
    }
    if (home == SL_TIER_DISK) {
        out_bytes[SL_LANE_READ] += bytes * count.to;
        out_bytes[SL_LANE_WRITE] += bytes * count.from;
    }
}

void sl_bytes_by_formula(const sl_blueprint *blueprint, uint64_t out_bytes[SL_LANE_COUNT])
{
    const sl_homes *homes = blueprint->homes;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        out_bytes[lane] = 0;
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        for (uint32_t i = 0; homes->tier[group] && i < homes->chunk_count; i++) {
            uint64_t bytes = sl_layout_chunk_bytes(blueprint->layout, (sl_group)group, i);
            sl_tier home = (sl_tier)homes->tier[group][i], used = (sl_tier)homes->update_tier[i];
            trips passes = count_passes(blueprint, (sl_group)group, i);
            add_trips(home, SL_TIER_DEVICE, passes, bytes, out_bytes);
            if (sl_rule_of(blueprint->layout->chunks[i].rule)->update != SL_OP_COUNT)
                add_trips(home, used, count_update((sl_group)group), bytes, out_bytes);
        }
    }
}
