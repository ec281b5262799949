/* The planner's working state, shared by the files that make a plan step by step:
 *
 *   plan_lives.c     when each value lives, which chunk each op uses where
 *   residency.c      when chunks stay away from home      (its own header)
 *   prefetch.c       how early they are fetched           (its own header)
 *   addresses.c      where everything lies                (its own header)
 *   plan_commands.c  the commands and the places of their operands
 *   hazards.c        who waits for whom                   (its own header)
 *   planner.c        runs these, again with less room where addresses do not fit
 */
#ifndef SL_CHUNK_PLANNER_H
#define SL_CHUNK_PLANNER_H

#include "addresses.h"
#include "residency.h"
#include "sluice/plan.h"

/* The life of a value in one tier; first_tick SL_NONE: it is not there. */
typedef struct sl_life {
    uint32_t first_tick, last_tick;
    uint32_t item; /* its item in that tier, SL_NONE before there is one */
} sl_life;

/* What an address item is; stands beside it. */
typedef struct sl_item_source {
    sl_memory_kind kind;
    uint32_t value;  /* SL_NONE for workspaces and visits */
    uint32_t object; /* a visit's: group * chunk_count + chunk; else SL_NONE */
} sl_item_source;

/* One tier's share of the state. */
typedef struct sl_tier_state {
    sl_address_item *items;
    sl_item_source *sources;
    uint32_t item_count, item_capacity;
    uint32_t value_item_count; /* items before the visits' */
    sl_life *lives;            /* [value_count] */
    uint32_t *workspace_item;  /* [op_count], SL_NONE where an op needs none */
    sl_residency_use *uses;    /* of chunks whose home is another tier */
    uint32_t use_count;
    uint64_t *room_bytes; /* [op_count] */
    sl_residency residency;
    uint32_t first_visit_item; /* item of visit 0 */
    uint64_t peak_bytes;
} sl_tier_state;

typedef struct sl_planner {
    const sl_plan_request *request;
    const sl_program *program;
    const sl_layout *layout;
    const sl_homes *homes;
    uint32_t chunk_count;
    uint32_t object_count;  /* SL_GROUP_COUNT * chunk_count */
    uint64_t *object_bytes; /* [object_count] */
    double *tick_seconds;   /* [op_count] */
    uint32_t *last_write;   /* [value_count]: tick of the last op that writes it, SL_NONE: none */
    sl_tier_state tier[SL_TIER_COUNT];
} sl_planner;

/* Where op `tick` runs: the host for an AdamW whose states are there, else the device. */
sl_tier sl_planner_tier_of_op(const sl_planner *planner, uint32_t tick);

/* The lane op `tick` runs on. */
sl_lane sl_planner_lane_of_op(const sl_planner *planner, uint32_t tick);

/* The object of a TENSOR or CHUNK value. */
uint32_t sl_planner_object_of(const sl_planner *planner, const sl_value *value);

static inline bool sl_planner_is_state(const sl_value *value)
{
    return value->kind == SL_VALUE_TENSOR || value->kind == SL_VALUE_CHUNK;
}

/* plan_lives.c: fills lives, items of values and workspaces, and uses. */
sl_status sl_plan_lives_find(sl_planner *planner);

/* Appends an item; writes its index. */
sl_status sl_plan_lives_add_item(sl_tier_state *state, const sl_address_item *item,
                                 const sl_item_source *source, uint32_t *out_item);

/* plan_commands.c: makes the commands, places, allocations and totals of the plan. */
sl_status sl_plan_commands_emit(const sl_planner *planner, sl_plan *plan);

/* plan_totals.c: allocations, live peaks, bytes by kind and by lane. */
sl_status sl_plan_totals_fill(const sl_planner *planner, sl_plan *plan);

#endif
