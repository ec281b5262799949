/* Goes over the ticks with the allocations that live at each: no two of them overlap, and the
 * plan's sums are theirs. Allocations are checked one by one before. */
#include <stdlib.h>
#include <string.h>

#include "verify.h"

/* A stretch of ticks in which an allocation lives. */
typedef struct interval {
    uint32_t index, first_tick, last_tick;
} interval;

typedef struct sweep {
    const sl_verify *verify;
    interval *starts, *ends; /* [interval_count], sorted by first and by last tick */
    uint32_t interval_count;
    uint32_t *live[SL_TIER_COUNT]; /* allocations that live at one tick, by offset; disjoint */
    uint32_t live_count[SL_TIER_COUNT];
    uint64_t live_bytes[SL_TIER_COUNT], peak_bytes[SL_TIER_COUNT];
    uint64_t kind_bytes[SL_TIER_COUNT][SL_MEMORY_KIND_COUNT]; /* now */
    bool matches[SL_TIER_COUNT]; /* at a tick of the peak the kinds were as the plan says */
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

/* Where `offset` is or would be in the live list of a tier. */
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

static void note_peaks(sweep *state)
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
    note_peaks(state);
    while (started < state->interval_count) {
        uint32_t tick = state->starts[started].first_tick;
        for (; ended < state->interval_count && state->ends[ended].last_tick < tick; ended++)
            remove_live(state, state->ends[ended].index);
        for (; started < state->interval_count && state->starts[started].first_tick == tick;
             started++)
            SL_TRY(insert_live(state, state->starts[started].index));
        note_peaks(state);
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

/* Adds what the copies of a section move in all repetitions. */
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

sl_status sl_verify_sweep(sl_verify *verify)
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
