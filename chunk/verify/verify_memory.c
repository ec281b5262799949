/* Checks the list of allocations one by one and tick by tick: no two overlap, and the plan's sums
 * of bytes agree with the list. Also checks the sums of bytes moved. No lane reads the list;
 * reports show it. So the places that commands read and write are not checked against the list, but
 * by a replay (verify_replay.c). Knows nothing of content and waits.
 */
#include "verify.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- one allocation ---- */

static sl_status reject_allocation(const sl_verify *verify, uint32_t index, const char *what)
{
    const sl_place *place = &verify->plan->allocations[index].place;
    return sl_verify_reject(verify, "its allocation %u, %llu bytes at byte %llu of tier %d, %s",
                            index, (unsigned long long)place->bytes,
                            (unsigned long long)place->offset, (int)place->tier, what);
}

/* An input or output on the host counts as STAGING. A value that holds a whole gathered chunk
 * counts as the chunk's group. Every other value counts as ACTIVATION, also an input or output in
 * another tier. */
static sl_status check_value_kind(const sl_verify *verify, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    if (it->value == SL_NONE)
        return SL_OK;
    sl_value_kind kind = verify->program->values[it->value].kind;
    bool is_slot =
        it->place.tier == SL_TIER_HOST && (kind == SL_VALUE_INPUT || kind == SL_VALUE_OUTPUT);
    const sl_verify_value *value = &verify->values[it->value];
    sl_memory_kind other =
        value->chunk_index != SL_NONE ? (sl_memory_kind)value->group : SL_MEMORY_ACTIVATION;
    if (it->kind != (is_slot ? SL_MEMORY_STAGING : other))
        return reject_allocation(verify, index, "is of another kind than its value");
    return SL_OK;
}

static sl_status check_identity(const sl_verify *verify, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    if ((unsigned)it->kind >= SL_MEMORY_KIND_COUNT)
        return reject_allocation(verify, index, "is of no kind");
    if (it->chunk_index == SL_NONE && it->value != SL_NONE &&
        it->value >= verify->program->value_count)
        return reject_allocation(verify, index, "is for a value that does not exist");
    if (it->chunk_index == SL_NONE)
        return check_value_kind(verify, index);
    if (it->chunk_index >= verify->layout->chunk_count || (unsigned)it->group >= SL_GROUP_COUNT)
        return reject_allocation(verify, index, "is for a chunk that does not exist");
    if ((unsigned)it->kind != (unsigned)it->group)
        return reject_allocation(verify, index, "is of another kind than its chunk");
    sl_place home = sl_verify_home(verify, it->group, it->chunk_index);
    if (it->is_permanent && !sl_verify_places_equal(&home, &it->place))
        return reject_allocation(verify, index, "is permanent, but not its chunk's home");
    if (!it->is_permanent && it->place.tier == SL_TIER_DISK)
        return reject_allocation(verify, index, "is of a chunk on disk, but not its home");
    return SL_OK;
}

/* An allocation of a family has one slot, two, or one for each instance; slots do not overlap. */
static sl_status check_slots(const sl_verify *verify, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    const sl_place *place = &it->place;
    if (place->slots <= 1)
        return place->stride == 0 ? SL_OK : reject_allocation(verify, index, "has a stride alone");
    if (it->chunk_index != SL_NONE || it->value >= verify->program->value_count ||
        sl_verify_instances(&verify->program->values[it->value]) == 1)
        return reject_allocation(verify, index, "has slots, but is of no family");
    uint32_t instances = verify->program->values[it->value].instances;
    if (place->slots != 2 && place->slots != instances)
        return reject_allocation(verify, index, "has neither two slots nor one an instance");
    if (place->stride < place->bytes)
        return reject_allocation(verify, index, "has slots that overlap");
    if (place->bytes == 0 || place->stride > (UINT64_MAX - place->bytes) / (place->slots - 1))
        return reject_allocation(verify, index, "has slots without end");
    return SL_OK;
}

static sl_status check_allocation(const sl_verify *verify, uint32_t index)
{
    const sl_allocation *it = &verify->plan->allocations[index];
    uint32_t op_count = verify->program->op_count;
    if ((unsigned)it->place.tier >= SL_TIER_COUNT)
        return reject_allocation(verify, index, "is in a tier that does not exist");
    SL_TRY(check_slots(verify, index));
    uint64_t peak = verify->plan->peak_bytes[it->place.tier], extent = sl_place_extent(&it->place);
    if (extent > peak || it->place.offset > peak - extent)
        return reject_allocation(verify, index, "is outside the peak");
    if (it->first_tick > op_count || it->last_tick > op_count)
        return reject_allocation(verify, index, "lives at ticks that do not exist");
    if (it->is_permanent && (it->first_tick != 0 || it->last_tick != op_count))
        return reject_allocation(verify, index, "is permanent, but does not live at all ticks");
    if (!it->is_permanent && it->place.bytes > 0 &&
        it->place.offset < verify->homes->fixed_bytes[it->place.tier])
        return reject_allocation(verify, index, "is among what outlives the plan");
    return check_identity(verify, index);
}

static sl_status check_allocations(const sl_verify *verify)
{
    for (uint32_t i = 0; i < verify->plan->allocation_count; i++)
        SL_TRY(check_allocation(verify, i));
    return SL_OK;
}

/* ---- tick by tick ---- */

/* Ticks in which an allocation lives, without a wrap. */
typedef struct interval {
    uint32_t index, first_tick, last_tick;
} interval;

typedef struct sweep {
    const sl_verify *verify;
    interval *starts, *ends; /* [interval_count], sorted by first and by last tick */
    uint32_t interval_count;
    uint32_t *live[SL_TIER_COUNT]; /* allocations alive at the current tick, by offset; disjoint */
    uint32_t live_count[SL_TIER_COUNT];
    uint64_t live_bytes[SL_TIER_COUNT], peak_bytes[SL_TIER_COUNT];
    uint64_t kind_bytes[SL_TIER_COUNT][SL_MEMORY_KIND_COUNT]; /* at the current tick */
    bool matches[SL_TIER_COUNT]; /* at some tick of the peak, kind_bytes are the plan's */
} sweep;

static int compare_starts(const void *a, const void *b)
{
    const interval *left = a, *right = b;
    return (left->first_tick > right->first_tick) - (left->first_tick < right->first_tick);
}

static int compare_ends(const void *a, const void *b)
{
    const interval *left = a, *right = b;
    return (left->last_tick > right->last_tick) - (left->last_tick < right->last_tick);
}

/* The index at which `offset` is, or would be inserted, in the live list of a tier. */
static uint32_t find_live(const sweep *state, sl_tier tier, uint64_t offset)
{
    const sl_allocation *allocations = state->verify->plan->allocations;
    uint32_t low = 0, high = state->live_count[tier];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (allocations[state->live[tier][middle]].place.offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void remove_live(sweep *state, uint32_t index)
{
    const sl_allocation *it = &state->verify->plan->allocations[index];
    sl_tier tier = it->place.tier;
    uint32_t at = find_live(state, tier, it->place.offset);
    uint32_t *live = state->live[tier];
    assert(at < state->live_count[tier] && live[at] == index);
    state->live_count[tier]--;
    memmove(live + at, live + at + 1, (state->live_count[tier] - at) * sizeof *live);
    state->live_bytes[tier] -= sl_place_extent(&it->place);
    state->kind_bytes[tier][it->kind] -= sl_place_extent(&it->place);
}

static sl_status insert_live(sweep *state, uint32_t index)
{
    const sl_allocation *allocations = state->verify->plan->allocations;
    const sl_allocation *it = &allocations[index];
    sl_tier tier = it->place.tier;
    uint32_t at = find_live(state, tier, it->place.offset);
    uint32_t *live = state->live[tier];
    uint32_t other = SL_NONE;
    if (at > 0 && sl_verify_places_overlap(&allocations[live[at - 1]].place, &it->place))
        other = live[at - 1];
    if (at < state->live_count[tier] &&
        sl_verify_places_overlap(&allocations[live[at]].place, &it->place))
        other = live[at];
    if (other != SL_NONE)
        return sl_verify_reject(
            state->verify,
            "its allocations %u and %u, %llu and %llu bytes, overlap at %s byte %llu", other, index,
            (unsigned long long)sl_place_extent(&allocations[other].place),
            (unsigned long long)sl_place_extent(&it->place), sl_tier_name(tier),
            (unsigned long long)it->place.offset);
    memmove(live + at + 1, live + at, (state->live_count[tier] - at) * sizeof *live);
    live[at] = index;
    state->live_count[tier]++;
    state->live_bytes[tier] += sl_place_extent(&it->place);
    state->kind_bytes[tier][it->kind] += sl_place_extent(&it->place);
    return SL_OK;
}

static void record_peaks(sweep *state)
{
    const sl_plan *plan = state->verify->plan;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        bool is_equal = memcmp(state->kind_bytes[tier], plan->kind_bytes[tier],
                               sizeof state->kind_bytes[tier]) == 0;
        if (state->live_bytes[tier] > state->peak_bytes[tier]) {
            state->peak_bytes[tier] = state->live_bytes[tier];
            state->matches[tier] = false;
        }
        if (state->live_bytes[tier] == state->peak_bytes[tier])
            state->matches[tier] = state->matches[tier] || is_equal;
    }
}

static sl_status check_sums(const sweep *state)
{
    const sl_verify *verify = state->verify;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        if (state->peak_bytes[tier] != verify->plan->live_peak_bytes[tier])
            return sl_verify_reject(verify, "its %s live peak is %llu bytes and not %llu",
                                    sl_tier_name((sl_tier)tier),
                                    (unsigned long long)state->peak_bytes[tier],
                                    (unsigned long long)verify->plan->live_peak_bytes[tier]);
        if (!state->matches[tier])
            return sl_verify_reject(verify, "its %s bytes by kind are of no tick of the live peak",
                                    sl_tier_name((sl_tier)tier));
    }
    return SL_OK;
}

static sl_status run_sweep(sweep *state)
{
    uint32_t started = 0, ended = 0;
    record_peaks(state);
    while (started < state->interval_count) {
        uint32_t tick = state->starts[started].first_tick;
        for (; ended < state->interval_count && state->ends[ended].last_tick < tick; ended++)
            remove_live(state, state->ends[ended].index);
        for (; started < state->interval_count && state->starts[started].first_tick == tick;
             started++)
            SL_TRY(insert_live(state, state->starts[started].index));
        record_peaks(state);
    }
    return check_sums(state);
}

static void add_intervals(sweep *state, uint32_t index)
{
    const sl_allocation *it = &state->verify->plan->allocations[index];
    uint32_t op_count = state->verify->program->op_count;
    interval *next = state->starts + state->interval_count;
    if (it->place.bytes == 0)
        return;
    if (it->first_tick <= it->last_tick) {
        next[0] = (interval){index, it->first_tick, it->last_tick};
        state->interval_count += 1;
    } else {
        next[0] = (interval){index, it->first_tick, op_count};
        next[1] = (interval){index, 0, it->last_tick};
        state->interval_count += 2;
    }
}

static sl_status open_sweep(sweep *state)
{
    const sl_plan *plan = state->verify->plan;
    size_t count = (size_t)plan->allocation_count + 1;
    bool is_open = true;
    state->starts = calloc(2 * count, sizeof *state->starts);
    state->ends = calloc(2 * count, sizeof *state->ends);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        state->live[tier] = calloc(count, sizeof *state->live[tier]);
        is_open = is_open && state->live[tier];
    }
    if (!is_open || !state->starts || !state->ends)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to verify %u allocations", plan->allocation_count);
    return SL_OK;
}

static void close_sweep(sweep *state)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        free(state->live[tier]);
    free(state->ends);
    free(state->starts);
}

static void sort_intervals(sweep *state)
{
    for (uint32_t i = 0; i < state->verify->plan->allocation_count; i++)
        add_intervals(state, i);
    memcpy(state->ends, state->starts, state->interval_count * sizeof *state->ends);
    qsort(state->starts, state->interval_count, sizeof *state->starts, compare_starts);
    qsort(state->ends, state->interval_count, sizeof *state->ends, compare_ends);
}

/* Adds the bytes that the copies of a section move in all its repetitions, by lane. */
static sl_status sum_moved(const sl_verify *verify, uint32_t section_index,
                           uint64_t moved[SL_LANE_COUNT])
{
    const sl_section section = sl_verify_section(verify, section_index);
    for (uint32_t i = section.first; i < section.first + section.count; i++) {
        const sl_command *command = &verify->plan->body[i];
        uint64_t bytes;
        if (command->kind == SL_COMMAND_COPY &&
            (__builtin_mul_overflow(command->from.bytes, section.repeat, &bytes) ||
             __builtin_add_overflow(moved[command->lane], bytes, &moved[command->lane])))
            return sl_verify_reject(verify, "it moves more bytes than can be counted");
    }
    return SL_OK;
}

static sl_status check_moved(const sl_verify *verify)
{
    const sl_plan *plan = verify->plan;
    uint64_t moved[SL_LANE_COUNT] = {0};
    for (uint32_t s = 0; s < sl_program_section_count(verify->program); s++)
        SL_TRY(sum_moved(verify, s, moved));
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        if (moved[lane] != plan->moved_bytes[lane])
            return sl_verify_reject(verify, "it moves %llu bytes on lane %d and says %llu",
                                    (unsigned long long)moved[lane], lane,
                                    (unsigned long long)plan->moved_bytes[lane]);
    return SL_OK;
}

static sl_status check_ticks(const sl_verify *verify)
{
    sweep state = {.verify = verify};
    sl_status status;
    SL_TRY_GOTO(status, open_sweep(&state), close);
    sort_intervals(&state);
    SL_TRY_GOTO(status, run_sweep(&state), close);
    SL_TRY_GOTO(status, check_moved(verify), close);
close:
    close_sweep(&state);
    return status;
}

/* ---- the check ---- */

sl_status sl_verify_memory(const sl_verify *verify)
{
    SL_TRY(check_allocations(verify));
    return check_ticks(verify);
}
