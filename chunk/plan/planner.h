/* The planner's working state, shared by the steps that planner.c lists.
 *
 * An object can move between tiers: a chunk, or an activation whose home is not the device. Objects
 * are numbered group by group, in a group chunk by chunk, and then value by value. An item has an
 * address in a tier: a value, a workspace, the ring of a family, the hop (the buffer on the host
 * through which the prologue loads objects from disk to the device), or a visit; visits come last.
 * The indices of objects and of items have a type each, and the conversions stand together below.
 * Ticks, values, visits and passes are plain numbers. Residency and prefetch know only objects,
 * addresses know only items, both as plain numbers.
 *
 * A loop is the ticks of a repeated section. A decision for one repetition holds for all, so no
 * decision depends on the number of repetitions. A live range that crosses an edge of a loop spans
 * the whole loop. A visit may cross an edge without that: residency makes both edges agree.
 */
#ifndef SL_CHUNK_PLAN_PLANNER_H
#define SL_CHUNK_PLAN_PLANNER_H

#include "addresses.h"
#include "chunk/plan.h"
#include "residency.h"

/* An index of SL_NONE means: no object. */
typedef struct sl_object {
    uint32_t index;
} sl_object;

/* An item of one tier. An index of SL_NONE means: no item. */
typedef struct sl_item {
    uint32_t index;
} sl_item;

#define SL_NO_OBJECT ((sl_object){SL_NONE})
#define SL_NO_ITEM ((sl_item){SL_NONE})

/* The ticks at which a value lives in one tier; first_tick SL_NONE: never. */
typedef struct sl_live_range {
    uint32_t first_tick, last_tick;
    sl_item item; /* SL_NO_ITEM until the value has one */
} sl_live_range;

/* What the item of the same index holds. */
typedef struct sl_item_source {
    sl_memory_kind kind;
    uint32_t value;  /* SL_NONE for workspaces, visits of chunks and the hop */
    sl_object chunk; /* the chunk of a visit; else SL_NO_OBJECT */
    uint32_t slots;  /* 0 or 1: one slot; more: slots of a family, `stride` bytes apart */
    uint64_t stride, slot_bytes; /* slot_bytes: bytes in use of each slot; 0: all of the item's */
} sl_item_source;

/* One loop's use of a family whose home is not the device. The instances go, one after the other,
 * through a ring of two slots on the device; if the home is the disk, also through a ring on the
 * host. */
typedef struct sl_family_pass {
    uint32_t value;
    uint32_t first_tick, last_tick; /* of the loop */
    bool is_fetched;                /* the family's first use in the loop reads it */
    uint32_t last_write;            /* tick of the loop's last op that writes it; SL_NONE: none */
    sl_item item[SL_TIER_COUNT];    /* the ring in each tier; SL_NO_ITEM: none */
    uint32_t next;                  /* another pass of the same value; SL_NONE: none */
} sl_family_pass;

/* The part of the state that belongs to one tier. */
typedef struct sl_tier_state {
    sl_address_item *items;
    sl_item_source *sources;
    uint32_t item_count, item_capacity;
    uint32_t value_item_count;  /* items that are not visits; they come first */
    sl_live_range *live_ranges; /* [value_count] */
    sl_item *workspace_item;    /* [op_count], SL_NO_ITEM where an op needs none */
    sl_residency_use *uses;     /* of objects whose home is another tier */
    uint32_t use_count;
    uint64_t *room_bytes; /* [op_count]: bytes that all visits may take */
    uint64_t *keep_bytes; /* [op_count]: bytes that visits may take before prefetch */
    uint64_t alignment;   /* of each item's offset */
    sl_residency residency;
    uint32_t first_visit_item; /* item of visit 0 */
    uint64_t peak_bytes;
} sl_tier_state;

typedef struct sl_planner {
    const sl_plan_request *request;
    uint64_t budget_bytes[SL_TIER_COUNT]; /* the request's budgets, or less */
    const sl_program *program;
    const sl_layout *layout;
    const sl_homes *homes;
    uint32_t chunk_count;
    uint32_t first_activation; /* index of value 0 among objects: SL_GROUP_COUNT * chunk_count */
    uint32_t object_count;     /* first_activation + value_count */
    uint64_t *object_bytes;    /* [object_count] */
    uint64_t *visit_bytes; /* [object_count]: of the slot of a visit; of chunks more, or as many */
    uint8_t *home_tier;    /* [object_count] an sl_tier; the device for values that stay there */
    bool *outlives;    /* [object_count]: the next body reads the content that this body leaves */
    bool *passes_host; /* [object_count]: its home is the disk */
    bool has_disk;     /* some object's home is the disk */
    bool stages_ahead; /* the device may fetch disk objects early, which takes host memory */
    bool trails;       /* visits may last into the next iteration while they are written back: those
                          of updates are written back when the next iteration begins */
    bool may_trail;    /* the same, in the attempt at hand */
    bool has_trailed;  /* in some attempt one did */
    sl_item hop_item;  /* on the host; SL_NO_ITEM: the prologue needs no hop */
    uint32_t host_value_item_count; /* items of the host before the hop */
    double *tick_seconds;           /* [op_count]: of each op, on whichever side runs it */
    double *device_seconds;         /* [op_count]: by how much the op delays the device */
    const sl_residency_loop *loops; /* [loop_count] by tick; owned */
    uint32_t loop_count;
    uint32_t leaving_count; /* families that leave a device that is too small, first used first */
    uint32_t family_count;  /* families that could leave */
    sl_family_pass *passes;
    uint32_t pass_count, pass_capacity;
    uint32_t *first_pass; /* [value_count], into passes; SL_NONE: the value has no pass */
    uint8_t *memory_kind; /* [value_count] an sl_memory_kind */
    uint32_t *last_write; /* [value_count]: tick of the last op that writes it; SL_NONE: none */
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

static inline sl_group sl_planner_group_of(const sl_planner *planner, sl_object chunk)
{
    return (sl_group)(chunk.index / planner->chunk_count);
}

static inline uint32_t sl_planner_chunk_index_of(const sl_planner *planner, sl_object chunk)
{
    return chunk.index % planner->chunk_count;
}

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

/* Where op `tick` runs: the host if it fills inputs, or if it updates a chunk whose update_tier is
 * the host; else the device. */
sl_tier sl_planner_tier_of_op(const sl_planner *planner, uint32_t tick);

sl_lane sl_planner_lane_of_op(const sl_planner *planner, uint32_t tick);

/* The object that is or contains value `v`; SL_NO_OBJECT if the value never moves. */
sl_object sl_planner_object_of(const sl_planner *planner, uint32_t v);

/* True for an input that an op fills. */
bool sl_planner_is_filled(const sl_planner *planner, uint32_t v);

static inline bool sl_planner_is_state(const sl_value *value)
{
    return value->kind == SL_VALUE_TENSOR || value->kind == SL_VALUE_CHUNK;
}

sl_status sl_planner_add_item(sl_tier_state *state, const sl_address_item *item,
                              const sl_item_source *source, sl_item *out_item);

/* Plans residency, prefetch and addresses of one tier within `limit` bytes; the tier's uses must be
 * listed. Holes may push the addresses above the limit: peak_bytes is their end. SL_ERROR_FIT if
 * the values or the uses of one tick exceed the limit, or if no work is left (missing_bytes 0);
 * fills the shortage except for needed_bytes. */
sl_status sl_planner_plan_tier(sl_planner *planner, sl_tier tier, uint64_t limit,
                               sl_shortage *out_shortage);

/* ---- live_ranges.c ---- */

/* Fills the objects, the live ranges, and the items of values, workspaces and rings. Is called
 * again after each change of leaving_count. */
sl_status sl_live_ranges_find(sl_planner *planner);

/* The pass of a value in the loop that contains `tick`; NULL if there is none. */
const sl_family_pass *sl_live_ranges_find_pass(const sl_planner *planner, uint32_t value,
                                               uint32_t tick);

/* Gives each activation whose home is `home` (host or disk) its bytes there if it is ever written
 * back, else 0 bytes. The tier that writes back, device or host, must have been planned. */
void sl_live_ranges_settle_homes(sl_planner *planner, sl_tier home);

/* Adds an item for the prologue's hop to the host, if the device's visits need one. */
sl_status sl_live_ranges_add_hop(sl_planner *planner);

/* ---- uses.c ---- */

/* Lists the uses of a tier. The host's uses depend on the device's visits. */
sl_status sl_uses_find(sl_planner *planner, sl_tier tier);

/* ---- budgets.c ---- */

/* Plans every tier within the request's budgets. SL_ERROR_FIT fills the shortage. */
sl_status sl_budgets_plan_tiers(sl_planner *planner, sl_shortage *out_shortage);

/* ---- commands.c ---- */

/* Makes the commands, sections and places of the plan. */
sl_status sl_commands_emit(const sl_planner *planner, sl_plan *plan);

/* Makes the plan's allocations, peaks, and bytes by kind and by lane. */
sl_status sl_commands_add_up(const sl_planner *planner, sl_plan *plan);

#endif
