/* The account of a plan: what its memory is made of at each tick of a step, and where its time
 * goes.
 *
 * Pure: an account follows from a plan, what the plan was made from, and a machine. It holds no
 * more than a reader can look at: ticks are gathered into columns, a loop is told by its first and
 * last repetitions, lists are cut and say what they left out. So its size depends on none of the
 * number of micro-batches, layers or chunks.
 *
 *   column   a run of ticks, told by the tick of it at which most bytes are alive
 *   object   an allocation that is alive at the tick of the peak
 *   hole     bytes of the arena that no object takes at that tick
 *   span     one run of a command, in seconds from the start of the step
 *
 * In each tier the bytes by kind at the peak and the hole bytes add up to the arena exactly.
 */
#ifndef SL_REPORT_ACCOUNT_H
#define SL_REPORT_ACCOUNT_H

#include "chunk/plan.h"
#include "comm/groups.h"

enum {
    SL_ACCOUNT_COLUMNS = 360,
    SL_ACCOUNT_OBJECTS = 32,
    SL_ACCOUNT_CLASSES = 24,
    SL_ACCOUNT_HOLES = 12,
    SL_ACCOUNT_REGIONS = 3000,
    SL_ACCOUNT_ROWS = 64,
    SL_ACCOUNT_STALLS = 10,
    SL_ACCOUNT_NAME_BYTES = 96,
    SL_ACCOUNT_KEPT_REPETITIONS = 2 /* of a loop, at either end, as in a timeline */
};

/* What an account is made from; all borrowed. */
typedef struct sl_account_request {
    const sl_program *program;
    const sl_layout *layout;
    const sl_homes *homes;
    const sl_plan *plan;
    const sl_machine *machine;
    uint64_t budget_bytes[SL_TIER_COUNT]; /* that were asked for; a plan may be above them */
    double model_flops;                   /* of a step, see CONTRACT; 0: not known */
    uint64_t tokens;                      /* of a step */
} sl_account_request;

/* One allocation. */
typedef struct sl_account_object {
    char name[SL_ACCOUNT_NAME_BYTES]; /* "h.3.qkv", "param chunk 12 (home)" */
    sl_memory_kind kind;
    uint64_t offset, bytes;
    uint32_t first_tick, last_tick; /* as in sl_allocation */
    bool is_permanent;
} sl_account_object;

/* Objects at the peak whose names differ in their numbers alone. */
typedef struct sl_account_class {
    char name[SL_ACCOUNT_NAME_BYTES]; /* "h.*.qkv" */
    sl_memory_kind kind;
    uint32_t count;
    uint64_t bytes;
} sl_account_class;

typedef struct sl_account_hole {
    uint64_t offset, bytes;
} sl_account_hole;

typedef struct sl_account_column {
    uint32_t tick;
    uint64_t kind_bytes[SL_MEMORY_KIND_COUNT];
} sl_account_column;

/* A rectangle of the address map: one allocation, or several of one kind, side by side, that live
 * from and to the same ticks. */
typedef struct sl_account_region {
    sl_account_object object; /* the first */
    uint32_t count;
} sl_account_region;

/* One tier. */
typedef struct sl_account_tier {
    uint64_t budget_bytes, arena_bytes, live_peak_bytes;
    uint64_t overflow_bytes; /* of the arena above the budget */
    uint32_t peak_tick;
    uint64_t kind_bytes[SL_MEMORY_KIND_COUNT]; /* at the peak; with hole_bytes the arena's */
    uint64_t hole_bytes;
    sl_account_column *columns; /* [column_count] of the account */
    sl_account_object *objects; /* the largest at the peak */
    sl_account_class *classes;
    sl_account_hole *holes; /* the largest at the peak */
    sl_account_region *regions;
    uint32_t object_count, class_count, hole_count, region_count;
    uint32_t all_objects, all_classes, all_holes, all_regions; /* before the lists were cut */
} sl_account_tier;

/* Where chunks of one group are: one row for each run of chunks. Bit t of a cell: in some tick of
 * the column there is a copy of one of them in tier t. */
typedef struct sl_account_residency {
    sl_group group;
    uint32_t row_count, chunks_a_row;
    uint8_t *cells; /* [row_count][column_count] */
} sl_account_residency;

typedef struct sl_account_span {
    uint32_t command; /* of the body */
    uint32_t repetition;
    double start, end;
    sl_lane cause; /* of most of the wait in front of it, where there is one */
} sl_account_span;

typedef struct sl_account_lane {
    uint64_t command_count, moved_bytes; /* of a step */
    double alone_seconds;                /* of its commands, were no other lane at work */
    double busy_seconds;
    double wait_seconds[SL_LANE_COUNT]; /* by whom it waited for in the end */
} sl_account_lane;

/* Waits of the compute lane in front of one command of the body, all its issues together. */
typedef struct sl_account_stall {
    uint32_t command;    /* that waited */
    uint32_t waited_for; /* the command it waited for last; SL_NONE: for none, but to be issued */
    sl_lane cause;       /* that most of it is charged to in the end */
    double seconds;
} sl_account_stall;

/* All ops of one kind. */
typedef struct sl_account_op {
    sl_op_kind kind;
    uint64_t count;
    double seconds, flops, traffic_bytes;
    double roof_seconds; /* what the machine's best rates would take: the larger of both */
} sl_account_op;

/* What a step takes of one resource, were all else free. */
typedef enum sl_account_resource {
    SL_RESOURCE_COMPUTE, /* with the host lane's updates where they share the cores */
    SL_RESOURCE_UPDATE,  /* the host lane, where it has cores of its own */
    SL_RESOURCE_H2D,
    SL_RESOURCE_D2H,
    SL_RESOURCE_DISK,        /* read and written, by the rate of both together where one is known */
    SL_RESOURCE_HOST_MEMORY, /* copies and updates together, where a rate of it is known */
    SL_RESOURCE_COUNT
} sl_account_resource;

typedef struct sl_account {
    sl_account_request request;
    uint32_t op_count, column_count;
    uint8_t phases[SL_ACCOUNT_COLUMNS]; /* an sl_phase, of the column's first tick */
    sl_account_tier tier[SL_TIER_COUNT];
    sl_account_residency residency[SL_GROUP_COUNT]; /* row_count 0: no such group */
    sl_simulation simulation;
    sl_account_lane lane[SL_LANE_COUNT];
    sl_account_span *spans; /* of each lane in order; of a loop those kept that were simulated */
    uint32_t span_count;
    sl_account_stall stalls[SL_ACCOUNT_STALLS]; /* the longest first */
    uint32_t stall_count;
    double other_stall_seconds;
    sl_account_op ops[SL_OP_COUNT]; /* the longest first */
    uint32_t op_kind_count;
    double resource_seconds[SL_RESOURCE_COUNT];
    sl_account_resource bound_by; /* the slowest of them */
    double flop_roof, byte_roof;  /* best rates of the machine in the program's type, a second */
} sl_account;

/* The resource that takes longest, and what each takes, from the seconds of the lanes, the bytes
 * that are read and written, and the bytes that pass through host memory. */
sl_account_resource sl_account_find_bound(const sl_machine *machine,
                                          const double lane_seconds[SL_LANE_COUNT],
                                          double disk_bytes, double host_bytes,
                                          double out_seconds[SL_RESOURCE_COUNT]);

/* Makes the account. SL_ERROR_SYSTEM: no memory; otherwise as sl_plan_simulate. */
sl_status sl_account_open(const sl_account_request *request, sl_account **out_account);

/* NULL is fine. */
void sl_account_close(sl_account *account);

/* All objects of a tier that are alive at a tick, the largest first; the caller frees them. */
sl_status sl_account_list_objects(const sl_account_request *request, sl_tier tier, uint32_t tick,
                                  sl_account_object **out_objects, uint32_t *out_count);

/* "compute", "update", "h2d", "d2h", "disk". */
const char *sl_account_resource_name(sl_account_resource resource);

/* ---- what was measured of the same plan ---- */

/* One rank of several; seconds and bytes are of one step, peaks of the run. */
typedef struct sl_report_rank {
    sl_comm_place place;
    double step_seconds;
    double busy_seconds[SL_LANE_COUNT];
    double wait_seconds[SL_LANE_COUNT]; /* of the compute lane, by the lane that caused them */
    uint64_t sent_bytes[SL_COMM_GROUP_COUNT];
    uint64_t planned_bytes[SL_TIER_COUNT], measured_bytes[SL_TIER_COUNT];
} sl_report_rank;

/* Filled by who ran it; the report draws it beside the account. Seconds are of one step. */
typedef struct sl_report_measured {
    uint32_t step_count;
    double step_seconds; /* the mean */
    double busy_seconds[SL_LANE_COUNT];
    double wait_seconds[SL_LANE_COUNT][SL_LANE_COUNT]; /* as in sl_account_lane */
    double op_seconds[SL_OP_COUNT];
    uint64_t peak_bytes[SL_TIER_COUNT]; /* highest byte touched */
    uint64_t resident_bytes;            /* of the process; 0: not known */
    const sl_account_span *spans;       /* of one step, borrowed; NULL: none */
    const sl_account_stall *stalls;     /* borrowed; NULL: none */
    uint32_t span_count, stall_count;
    sl_report_rank *ranks; /* [rank_count], the caller's; NULL: one process ran it. What stands
                              above is of rank 0 then */
    uint32_t rank_count, slowest_rank;
} sl_report_measured;

#endif
