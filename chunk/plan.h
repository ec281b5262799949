/* Plans: a program's commands with every move, address and wait decided.
 *
 * A plan is prologue + body. The body is run once per iteration, any number of times; the prologue
 * runs before the first iteration after a boundary, one command after the other, and is waited for.
 * In the *boundary state* all lanes are idle and every chunk is current at its home. Visits that
 * continue into the next iteration are clean, so a plan needs no epilogue commands: draining the
 * lanes restores the boundary state.
 *
 * Nothing is copied between device and disk directly: a chunk that lives on disk and is used on the
 * device visits the host on its way, fetched there by the read lane and written back by the write
 * lane.
 *
 * Memory of each tier is one arena of peak_bytes[tier] bytes; every address is an offset into it.
 *
 * A body has the sections of its program; the commands of a repeated section are issued once per
 * repetition. At a seam, where one repetition ends and the next begins, the same objects are at the
 * same places each time, equally dirty; only at the end of the step all are clean.
 *
 *   visit      a chunk's stay in a tier that is not its home: fetched (unless first written whole),
 *              used, written back to its home if dirty
 *   place      (tier, offset, bytes): where an operand of a command is; in repetition r of its
 *              section offset + (r mod slots) * stride: all instances of a family, or a ring of two
 *   wait       (command, age): its latest issue before this one (age 0) or the one before that (age
 *              1) must have finished, if there was one; commands of one lane run in order anyway
 *
 * Commands stand in issue order.
 */
#ifndef SL_CHUNK_PLAN_H
#define SL_CHUNK_PLAN_H

#include "chunk/chunk.h"

typedef enum sl_command_kind {
    SL_COMMAND_RUN,  /* run op `tick` */
    SL_COMMAND_COPY, /* copy `from` to `to` */
} sl_command_kind;

typedef struct sl_place {
    sl_tier tier;
    uint64_t offset, bytes; /* of the first slot */
    uint64_t stride;        /* from slot to slot; 0 with one slot */
    uint32_t slots;         /* 0 or 1: one slot */
} sl_place;

/* Where a place is in repetition `repetition` of its section. */
static inline uint64_t sl_place_offset(const sl_place *place, uint32_t repetition)
{
    return place->slots > 1 ? place->offset + repetition % place->slots * place->stride
                            : place->offset;
}

/* Bytes from the first slot's start to the last one's end. */
static inline uint64_t sl_place_extent(const sl_place *place)
{
    return place->slots > 1 ? (place->slots - 1) * place->stride + place->bytes : place->bytes;
}

typedef struct sl_command {
    sl_command_kind kind;
    sl_lane lane;
    /* RUN: the op. COPY: the op before which it is issued (op_count: after the last). */
    uint32_t tick;
    /* RUN: places of the op's operands in order (bytes 0 if absent), then that of its workspace. */
    uint32_t first_place, place_count; /* into places; place_count = operand_count + 1 */
    /* COPY of a chunk: group and index; of an input, an output or an activation (one that a
     * host-lane op reads, or one whose home is not the device): value, and chunk_index SL_NONE. */
    uint32_t value, chunk_index;
    sl_group group;
    sl_place from, to;
    uint32_t first_wait, wait_count; /* into waits */
} sl_command;

typedef struct sl_wait {
    uint32_t command; /* index into body */
    uint32_t age;     /* 0: its latest issue, 1: the one before */
} sl_wait;

/* What a byte of memory is for. */
typedef enum sl_memory_kind {
    SL_MEMORY_PARAM, /* the first five follow sl_group */
    SL_MEMORY_GRAD,
    SL_MEMORY_MASTER,
    SL_MEMORY_STATE1,
    SL_MEMORY_STATE2,
    SL_MEMORY_ACTIVATION,
    SL_MEMORY_WORKSPACE,
    SL_MEMORY_STAGING, /* on the host: buffers of inputs and outputs, block flags, the bounce
                          buffer, host copies on a prologue's way from disk to device. Visits of
                          chunks from disk count as their group */
    SL_MEMORY_KIND_COUNT
} sl_memory_kind;

/* Bytes of an arena (the extent of its place) with their live range, in ticks; for reports, the
 * verifier and tests. A live range that wraps (first_tick > last_tick) runs from first_tick to the
 * body's end and on from its start. A live range that crosses an edge of a repeated section either
 * spans the section, or is one of two at the same place: one from before the section into it, one
 * from inside it to behind it. */
typedef struct sl_allocation {
    sl_memory_kind kind;
    sl_place place;
    uint32_t first_tick, last_tick; /* permanent: 0 and op_count */
    bool is_permanent;
    uint32_t value, chunk_index; /* as in sl_command */
    sl_group group;
} sl_allocation;

typedef struct sl_plan {
    sl_command *prologue; /* COPY commands, without waits */
    uint32_t prologue_count;
    sl_command *body;
    uint32_t body_count;
    /* The program's sections; `first` and `count` are of commands of the body. */
    sl_section *sections;
    uint32_t section_count;
    sl_place *places;
    uint32_t place_count;
    sl_wait *waits;
    uint32_t wait_count;
    sl_allocation *allocations;
    uint32_t allocation_count;
    uint64_t peak_bytes[SL_TIER_COUNT];      /* of the arena */
    uint64_t live_peak_bytes[SL_TIER_COUNT]; /* most bytes live at one tick: a lower bound of
                                                peak_bytes */
    uint64_t kind_bytes[SL_TIER_COUNT][SL_MEMORY_KIND_COUNT]; /* at the tick of the live peak */
    uint64_t moved_bytes[SL_LANE_COUNT]; /* of one iteration, all repetitions, by lane */
} sl_plan;

enum { SL_AHEAD_COMMANDS = 1024, SL_AHEAD_LEAST = 2, SL_AHEAD_MOST = 64 };

/* How many repetitions may be issued before the compute lane has finished them: about
 * SL_AHEAD_COMMANDS commands. With fewer, fetches that were planned early would start late. */
static inline uint32_t sl_plan_repetitions_ahead(const sl_plan *plan)
{
    uint64_t repetitions = 0, issues = 1;
    for (uint32_t s = 0; s < plan->section_count; s++) {
        repetitions += plan->sections[s].repeat;
        issues += (uint64_t)plan->sections[s].repeat * plan->sections[s].count;
    }
    uint64_t ahead = SL_AHEAD_COMMANDS * repetitions / issues;
    if (ahead < (uint64_t)SL_AHEAD_LEAST)
        return SL_AHEAD_LEAST;
    return (uint32_t)(ahead < (uint64_t)SL_AHEAD_MOST ? ahead : (uint64_t)SL_AHEAD_MOST);
}

/* Workspace bytes of an op that runs in `tier`; answered by the kernels of that tier's
 * processor. */
typedef uint64_t (*sl_workspace_query)(const void *context, sl_op_kind kind,
                                       const sl_op_attrs *attrs, sl_tier tier);

#define SL_PREFETCH_AUTO UINT32_MAX

/* Addresses found for earlier plans, so that a search computes them once. One thread at a time. */
typedef struct sl_address_cache sl_address_cache;

/* SL_ERROR_SYSTEM: there is no memory for it. */
sl_status sl_address_cache_open(sl_address_cache **out_cache);
/* NULL is fine. */
void sl_address_cache_close(sl_address_cache *cache);

typedef struct sl_plan_request {
    const sl_program *program;
    const sl_layout *layout;
    const sl_homes *homes;
    uint64_t budget_bytes[SL_TIER_COUNT]; /* UINT64_MAX: no limit */
    /* Fractions, by bytes, of the activations that the forward pass saves for the backward pass,
     * whose home is the disk and the host. The disk takes those written first, because they stay
     * away longest, the host the next. They visit the device while used, and leave it only for want
     * of room. */
    double disk_activations, host_activations;
    uint32_t prefetch; /* most chunks fetched ahead of their use */
    sl_workspace_query workspace;
    const void *workspace_context;
    const sl_machine *machine; /* for how early to fetch */
    /* How exact sl_shortage.needed_bytes is. If the bytes needed are above this limit and above the
     * tier's budget, a smaller number that is above both may be reported; that is several times as
     * fast. 0: always exact. */
    uint64_t rough_above_bytes[SL_TIER_COUNT];
    sl_address_cache *addresses; /* or NULL; the plan is the same with and without it */
    /* How much work planning may still do, in visited ops and uses; NULL: no bound. Each attempt
     * subtracts its work. At 0 no further attempt is made, and a request without a plan fails by a
     * shortage with 0 missing bytes. */
    uint64_t *work_left;
} sl_plan_request;

/* Why a request does not fit. */
typedef struct sl_shortage {
    sl_tier tier;
    uint32_t tick;
    uint64_t missing_bytes;
    uint64_t needed_bytes; /* a budget of that tier with which planning succeeds; UINT64_MAX: none
                              was found */
} sl_shortage;

/* Plans. SL_ERROR_FIT fills *out_shortage (and only then). Deterministic: equal requests give equal
 * plans. The caller closes the plan, which owns its arrays and borrows nothing. */
sl_status sl_plan_build(const sl_plan_request *request, sl_plan **out_plan,
                        sl_shortage *out_shortage);

/* Makes homes like those of `request`, but with homes on the device for chunks that live on the
 * host and that `plan`, made of this request, writes back in each iteration and never fetches in
 * one. is_always_there: only for chunks that the plan keeps on the device through all of the body;
 * then the device holds no more than before. NULL: there are no such chunks. */
sl_status sl_homes_settle(const sl_plan_request *request, const sl_plan *plan, bool is_always_there,
                          sl_homes **out_homes);

/* "param", "grad", ..., "workspace", "staging"; valid for ever. */
const char *sl_memory_kind_name(sl_memory_kind kind);

/* Bytes alive in a tier at each tick of the body, by kind: [op_count][SL_MEMORY_KIND_COUNT]. */
void sl_plan_live_bytes(const sl_plan *plan, sl_tier tier, uint32_t op_count, uint64_t *out_bytes);

/* Frees a plan; NULL is fine. */
void sl_plan_close(sl_plan *plan);

enum { SL_COMMAND_NAME_BYTES = 96 };

/* The name of a command for people: of an op its kind and the first value that it writes, of a copy
 * its chunk or value: "linear h.3.fc", "param 12", "h.3.qkv". */
void sl_command_describe(const sl_program *program, const sl_command *command,
                         char out_name[SL_COMMAND_NAME_BYTES]);

/* Accepts or rejects a plan from the program, the layout and the homes alone; written independently
 * of the planner. SL_ERROR_INTERNAL: the message says what is wrong, and where. */
sl_status sl_plan_verify(const sl_plan_request *request, const sl_plan *plan);

/* ---- simulation ---- */

typedef struct sl_simulation {
    double step_seconds;  /* of a steady iteration */
    double start_seconds; /* when it began: when the compute lane had finished the iteration
                             before */
    double busy_seconds[SL_LANE_COUNT];  /* of one iteration */
    double stall_seconds[SL_LANE_COUNT]; /* time that the compute lane waited, by the lane that it
                                            waited for in the end */
    double wait_seconds[SL_LANE_COUNT][SL_LANE_COUNT]; /* the same for each lane */
    double host_bytes; /* that copies and updates of one iteration move through host memory */
} sl_simulation;

/* One run of a command in the iteration that is measured. Times are since the simulation began, and
 * lanes may be ahead of its start_seconds. */
typedef struct sl_simulated_run {
    uint32_t command, repetition;
    uint32_t waited_for; /* the command of the last wait; SL_NONE: it waited for none */
    double waited_seconds, start, end;
    sl_lane cause; /* the lane that most of the wait is charged to */
} sl_simulated_run;

/* Callbacks of a simulation; both are required. */
typedef struct sl_simulation_observer {
    void (*ran)(void *user, const sl_simulated_run *run);
    /* The simulation skipped `times` periods of a command's loop. In each of them the command ran
     * as in its last `period` (1 or 2) repetitions. */
    void (*passed)(void *user, uint32_t command, uint32_t period, uint32_t times);
    void *user;
} sl_simulation_observer;

/* Predicts the time of an iteration: lanes in order, waits as the plan has them, durations from the
 * machine's rates. Deterministic; SL_ERROR_SYSTEM when memory is refused. */
sl_status sl_plan_simulate(const sl_program *program, const sl_plan *plan,
                           const sl_machine *machine, sl_simulation *out_simulation);

/* The same, with calls of `observer`. */
sl_status sl_plan_simulate_observed(const sl_program *program, const sl_plan *plan,
                                    const sl_machine *machine,
                                    const sl_simulation_observer *observer,
                                    sl_simulation *out_simulation);

#endif
