/* The planner's working state, shared by the steps that planner.c lists.
 *
 * Objects are what moves between tiers: chunks, and activations whose home is not the device. They
 * are numbered chunk by chunk, group by group, and then value by value. Items are what has an
 * address in a tier: values and workspaces, rings of families, the hop, and then visits. Both
 * numbers have a type of their own here, and the conversions stand together below; ticks, values,
 * visits and passes are plain numbers. Residency and prefetch know objects alone, as plain numbers
 * too, and addresses know items alone.
 *
 * Loops are the ticks of repeated sections. What is decided for one repetition holds for all, so
 * nothing that is decided here depends on how many there are: a live range that crosses a loop's
 * edge holds all of it, and visits that do are residency's, which sees to it that both edges agree.
 */
#ifndef SL_CHUNK_PLAN_PLANNER_H
#define SL_CHUNK_PLAN_PLANNER_H

#include "addresses.h"
#include "residency.h"
#include "sluice/plan.h"

/* index SL_NONE: none. */
typedef struct sl_object {
    uint32_t index;
} sl_object;

/* Of one tier; index SL_NONE: none. */
typedef struct sl_item {
    uint32_t index;
} sl_item;

#define SL_NO_OBJECT ((sl_object){SL_NONE})
#define SL_NO_ITEM ((sl_item){SL_NONE})

/* The ticks at which a value lives in one tier; first_tick SL_NONE: it is not there. */
typedef struct sl_live_range {
    uint32_t first_tick, last_tick;
    sl_item item; /* SL_NO_ITEM before there is one */
} sl_live_range;

/* What an address item is; stands beside it. */
typedef struct sl_item_source {
    sl_memory_kind kind;
    uint32_t value;  /* SL_NONE for workspaces, visits of chunks and the hop */
    sl_object chunk; /* of a chunk's visit; else SL_NO_OBJECT */
    uint32_t slots;  /* 0 or 1: one; more: of a family, `stride` bytes apart, together the item's */
    uint64_t stride, slot_bytes;
} sl_item_source;

/* One loop's use of a family whose home is not the device: instance by instance it goes through a
 * ring of two on the device, and if its home is the disk through another one on the host. */
typedef struct sl_family_pass {
    uint32_t value;
    uint32_t first_tick, last_tick; /* of the loop */
    bool is_fetched;                /* its first use there reads what is at home */
    uint32_t last_write;            /* tick of the last op that writes it there; SL_NONE: none */
    sl_item item[SL_TIER_COUNT];    /* its ring in a tier, SL_NO_ITEM: none */
    uint32_t next;                  /* pass of the same value, SL_NONE */
} sl_family_pass;

/* One tier's share of the state. */
typedef struct sl_tier_state {
    sl_address_item *items;
    sl_item_source *sources;
    uint32_t item_count, item_capacity;
    uint32_t value_item_count;  /* items before the visits' */
    sl_live_range *live_ranges; /* [value_count] */
    sl_item *workspace_item;    /* [op_count], SL_NO_ITEM where an op needs none */
    sl_residency_use *uses;     /* of objects whose home is another tier */
    uint32_t use_count;
    uint64_t *room_bytes; /* [op_count]: for visits */
    uint64_t *keep_bytes; /* [op_count]: for visits that are not ahead of their use */
    uint64_t alignment;   /* of items */
    sl_residency residency;
    uint32_t first_visit_item; /* item of visit 0 */
    uint64_t peak_bytes;
} sl_tier_state;

typedef struct sl_planner {
    const sl_plan_request *request;
    uint64_t budget_bytes[SL_TIER_COUNT]; /* the request's, or less */
    const sl_program *program;
    const sl_layout *layout;
    const sl_homes *homes;
    uint32_t chunk_count;
    uint32_t first_activation; /* index of value 0 among objects: SL_GROUP_COUNT * chunk_count */
    uint32_t object_count;     /* first_activation + value_count */
    uint64_t *object_bytes;    /* [object_count] */
    uint8_t *home_tier; /* [object_count] an sl_tier; the device for values that stay there */
    bool *outlives;     /* [object_count]: its content is needed when the body is over */
    bool *passes_host;  /* [object_count]: its home is the disk */
    bool has_disk;      /* something lives on disk */
    bool stages_ahead;  /* the device may fetch ahead what lives on disk: more room on the host */
    sl_item hop_item;   /* on the host; SL_NO_ITEM: the prologue needs none */
    uint32_t host_value_item_count; /* items of the host before the hop */
    double *tick_seconds;           /* [op_count] */
    const sl_residency_loop *loops; /* [loop_count] by tick; owned */
    uint32_t loop_count;
    uint32_t leaving_count; /* families that leave the device for want of room, first made first */
    uint32_t family_count;  /* those that could */
    sl_family_pass *passes;
    uint32_t pass_count, pass_capacity;
    uint32_t *first_pass; /* [value_count], SL_NONE */
    uint8_t *memory_kind; /* [value_count] an sl_memory_kind: of a whole chunk its group's */
    uint32_t *last_write; /* [value_count]: tick of the last op that writes it, SL_NONE: none */
    sl_tier_state tier[SL_TIER_COUNT];
} sl_planner;

/* ---- objects and items ---- */

static inline sl_object sl_planner_object_of_chunk(const sl_planner *planner, sl_group group,
                                                   uint32_t chunk_index)
{
    return (sl_object){(uint32_t)group * planner->chunk_count + chunk_index};
}

static inline sl_object sl_planner_object_of_activation(const sl_planner *planner, uint32_t value)
{
    return (sl_object){planner->first_activation + value};
}

static inline sl_object sl_planner_object_of_visit(const sl_visit *visit)
{
    return (sl_object){visit->object};
}

static inline bool sl_planner_is_chunk(const sl_planner *planner, sl_object object)
{
    return object.index < planner->first_activation;
}

/* Of a chunk. */
static inline sl_group sl_planner_group_of(const sl_planner *planner, sl_object chunk)
{
    return (sl_group)(chunk.index / planner->chunk_count);
}

/* Of a chunk. */
static inline uint32_t sl_planner_chunk_index_of(const sl_planner *planner, sl_object chunk)
{
    return chunk.index % planner->chunk_count;
}

/* Of an activation. */
static inline uint32_t sl_planner_value_of(const sl_planner *planner, sl_object activation)
{
    return activation.index - planner->first_activation;
}

static inline sl_tier sl_planner_home_of(const sl_planner *planner, sl_object object)
{
    return (sl_tier)planner->home_tier[object.index];
}

static inline sl_item sl_planner_item_of_visit(const sl_tier_state *state, uint32_t visit)
{
    return (sl_item){state->first_visit_item + visit};
}

/* ---- planner.c ---- */

/* Where op `tick` runs: the host for an AdamW whose states are there, else the device. */
sl_tier sl_planner_tier_of_op(const sl_planner *planner, uint32_t tick);

/* The lane op `tick` runs on. */
sl_lane sl_planner_lane_of_op(const sl_planner *planner, uint32_t tick);

/* The object that value `v` is or is a part of; SL_NO_OBJECT where it does not move. */
sl_object sl_planner_object_of(const sl_planner *planner, uint32_t v);

/* True for an input that an op fills. */
bool sl_planner_is_filled(const sl_planner *planner, uint32_t v);

static inline bool sl_planner_is_state(const sl_value *value)
{
    return value->kind == SL_VALUE_TENSOR || value->kind == SL_VALUE_CHUNK;
}

/* Appends an item to a tier. */
sl_status sl_planner_add_item(sl_tier_state *state, const sl_address_item *item,
                              const sl_item_source *source, sl_item *out_item);

/* Plans one tier, whose uses stand, within `limit` bytes: residency, prefetch, addresses. They may
 * end above the limit: peak_bytes says where. SL_ERROR_FIT where values or the uses of one tick
 * exceed it: fills the shortage but for its needed_bytes. */
sl_status sl_planner_plan_tier(sl_planner *planner, sl_tier tier, uint64_t limit,
                               sl_shortage *out_shortage);

/* ---- live_ranges.c ---- */

/* Fills objects, live ranges and the items of values and workspaces; again, after leaving_count has
 * changed. */
sl_status sl_live_ranges_find(sl_planner *planner);

/* The pass of a value by a loop that holds `tick`; NULL if it is not a family away from home. */
const sl_family_pass *sl_live_ranges_find_pass(const sl_planner *planner, uint32_t value,
                                               uint32_t tick);

/* Gives activations whose home is `home`, host or disk, room there if they are ever written back to
 * it, and 0 bytes if not. The tier they come from, device or host, has been planned. */
void sl_live_ranges_settle_homes(sl_planner *planner, sl_tier home);

/* Gives the host an item for the prologue's hop, if the device's visits need one. */
sl_status sl_live_ranges_add_hop(sl_planner *planner);

/* ---- uses.c ---- */

/* Lists the uses of a tier; the host's follow from the device's visits. */
sl_status sl_uses_find(sl_planner *planner, sl_tier tier);

/* ---- budgets.c ---- */

/* Plans every tier within the request's budgets. SL_ERROR_FIT fills the shortage. */
sl_status sl_budgets_plan_tiers(sl_planner *planner, sl_shortage *out_shortage);

/* ---- commands.c ---- */

/* Makes the commands, sections and places of the plan. */
sl_status sl_commands_emit(const sl_planner *planner, sl_plan *plan);

/* Makes its allocations, live peaks, and bytes by kind and by lane. */
sl_status sl_commands_add_up(const sl_planner *planner, sl_plan *plan);

#endif
