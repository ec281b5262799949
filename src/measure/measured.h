/* A few steps, measured: what is told at the end, as plain numbers. Times are of one step, the mean
 * of those that were measured; bytes are of one step too, or of the whole run where that is said.
 */
#ifndef SL_MEASURE_MEASURED_H
#define SL_MEASURE_MEASURED_H

#include <jansson.h>

#include "comm/groups.h"
#include "report/account.h"
#include "resident.h"
#include "variants.h"

enum {
    SL_MEASURED_STALLS = 10,
    SL_MEASURED_OBJECTS = SL_ACCOUNT_CLASSES + 1,
    SL_MEASURED_OPS = 2 * SL_OP_COUNT, /* on the compute lane, and on the host lane */
    SL_MEASURED_NAME_BYTES = 160,
    SL_MEASURED_TEXT_BYTES = 400
};

/* The plan's peak is what the arena was taken for; kinds and holes add up to it. */
typedef struct sl_measured_tier {
    uint64_t budget_bytes;
    uint64_t planned_bytes;  /* the peak, over all plans */
    uint64_t measured_bytes; /* memory: up to the last byte that was found changed; disk: touched */
    uint64_t beyond_bytes;   /* of it, beyond the plan: a defect of sluice */
    uint64_t written_bytes;  /* memory: of pages that were found changed; 0: disk */
    uint64_t mapped_bytes; /* memory: planned, rounded up, and a margin behind it, to be watched */
    uint64_t kind_bytes[SL_MEMORY_KIND_COUNT]; /* at the tick of the step with most live bytes */
    uint64_t hole_bytes;
    uint64_t device_used_bytes; /* of a GPU: as its driver counts, all processes; 0: not told */
    uint64_t live_bytes;        /* there; the objects add up to it */
    uint32_t live_tick;
    uint32_t object_count;
    sl_account_class objects[SL_MEASURED_OBJECTS]; /* the largest first; "others" may be the last */
} sl_measured_tier;

/* busy, waits, and gap or idle make the step. */
typedef struct sl_measured_lane {
    uint64_t command_count; /* in all measured steps; 0: the lane had no work */
    double busy_ms;
    double idle_ms; /* of lanes beside the compute lane: what is left of the step */
    double gap_ms;  /* of the compute lane, the same: its thread was not scheduled between two
                       commands, or the next one was not issued yet */
    double wait_ms[SL_LANE_COUNT];           /* by the lane that was waited for in the end */
    double planned_busy_ms, planned_wait_ms; /* by the simulation; of the wait: of the compute lane
                                                for this one */
    uint64_t moved_bytes;
    uint64_t formula_bytes; /* what the formula of the placement says, see bytes.h */
} sl_measured_lane;

/* Waits of the compute lane right before one command, over all its repetitions. */
typedef struct sl_measured_stall {
    char waiter[SL_MEASURED_NAME_BYTES];  /* "forward linear h.3.fc" */
    char awaited[SL_MEASURED_NAME_BYTES]; /* of the longest one: "h2d param 12" */
    sl_lane cause;                        /* the lane waited for most in the end */
    double ms, longest_ms;
    double count;                      /* waits a step */
    uint32_t command, awaited_command; /* of the plan's body; not told */
} sl_measured_stall;

typedef struct sl_measured_op {
    sl_op_kind kind;
    bool on_host; /* on the host lane, beside the compute lane */
    double count; /* a step */
    double ms;
    double share;       /* of the lane's busy time */
    double flop_rate;   /* of matrix products, a second; 0: it has none */
    double byte_rate;   /* of what it must read and write at least */
    double roof_share;  /* time by the best rates of the machine profile, of the time it took */
    double bench_share; /* time by its rates of this op, likewise: above 1 for shapes that are
                           smaller than bench measured; both are NAN without a measured profile */
} sl_measured_op;

typedef struct sl_measured_ranks sl_measured_ranks;

typedef struct sl_measured {
    uint64_t step_count, warm_up_count;
    bool was_stopped;
    uint32_t micro_batch, accumulate, seq;
    uint64_t parameter_count;
    double step_ms, predicted_ms;
    double tokens_per_s;
    double compute_ms, stall_ms, gap_ms; /* of the compute lane; they add up to step_ms */
    double explained_share;              /* (compute + stalls) / step */
    double cores_used;                   /* processors' worth of time, all threads */
    double core_wait_ms;                 /* a step, all threads together: ready, and no core free */
    uint32_t worker_count;
    double phase_ms[SL_PHASE_COUNT]; /* of the compute and the host lane */
    double model_flops;              /* of a step of all ranks: 6 N a token, and attention */
    double flop_rate;                /* model_flops a second */
    double roof_flop_rate;           /* the fastest product of the machine profile; NAN: none */
    double model_flop_share;         /* flop_rate / (roof_flop_rate * ranks), "MFU" */
    char machine[96];                /* name of the machine whose rates predict */
    bool is_machine_measured;
    char disk[128]; /* how it is reached; "" without one */
    sl_measured_tier tiers[SL_TIER_COUNT];
    sl_measured_lane lanes[SL_LANE_COUNT];
    uint64_t sent_bytes[SL_COMM_GROUP_COUNT]; /* a step, to other ranks, by communicator */
    uint32_t stall_count, op_count, variant_count;
    sl_measured_stall stalls[SL_MEASURED_STALLS]; /* the longest first */
    sl_measured_op ops[SL_MEASURED_OPS];          /* likewise */
    sl_resident resident;
    sl_variant variants[SL_VARIANTS_COUNT];
    double variants_now_ms;                /* the plan that ran, predicted as the variants are */
    sl_lane binding;                       /* COMPUTE, or the lane that it waits for longest */
    char bound_by[SL_MEASURED_TEXT_BYTES]; /* "compute: ..." */
    char to_be_faster[SL_MEASURED_TEXT_BYTES];
    sl_account_span *spans; /* of the last step, lane by lane, in seconds from its start; owned */
    uint32_t span_count;
    sl_measured_ranks *ranks; /* of all of them, this one included; owned; NULL: it is alone */
} sl_measured;

/* Of one tier, over all ranks. */
typedef struct sl_measured_sum {
    uint64_t planned_bytes, measured_bytes;
    uint64_t most_planned_bytes, most_measured_bytes; /* of one rank */
} sl_measured_sum;

struct sl_measured_ranks {
    uint32_t count, slowest; /* index of the rank for which the others wait */
    sl_comm_layout layout;
    sl_measured *items; /* [count]: what each measured, without spans and ranks; owned */
    uint64_t moved_bytes[SL_LANE_COUNT], sent_bytes[SL_COMM_GROUP_COUNT]; /* a step, sums */
    sl_measured_sum tiers[SL_TIER_COUNT];
};

/* Frees what it owns; NULL is fine. */
void sl_measured_clear(sl_measured *measured);

/* Writes it as an object; docs/profile.md has the keys. SL_ERROR_SYSTEM. */
sl_status sl_measured_format(const sl_measured *measured, json_t **out_object);

#endif
