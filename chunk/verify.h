/* What the parts of the verifier share.
 *
 * Objects are what memory can hold a copy of: values that live on their own (object = value index),
 * then the chunks of each group, then the persistent slots. Every write advances the object's
 * version. A *cell* is a stretch of a tier that no access of the plan cuts;
 * it knows which object's copy its bytes belong to and who touched them last.
 *
 * The parts, in the order in which they run: frame (what is asked for) and shape (indices, lanes,
 * sizes, places), two iterations of data (versions), the same of order (waits), then memory
 * (allocations) and sweep (overlaps, sums). Frame and shape make every index and range safe for
 * those behind them, which do not depend on each other.
 */
#ifndef SL_CHUNK_VERIFY_H
#define SL_CHUNK_VERIFY_H

#include "base/status.h"
#include "sluice/plan.h"

enum {
    SL_VERIFY_ACCESS_MAX = SL_OPERAND_MAX + 1, /* accesses of one command */
    SL_VERIFY_ALIGNMENT = 256,
    SL_VERIFY_NAME_BYTES = 96
};

/* One stretch of memory that a command touches. */
typedef struct sl_verify_access {
    sl_place place; /* the bytes touched */
    sl_place
        whole; /* the copy of the object that they are a part of; `place` itself if all of it */
    uint32_t object; /* SL_NONE: workspace */
    bool reads, writes;
    bool defines; /* a write that needs nothing of what was there */
} sl_verify_access;

typedef struct sl_verify_cell {
    uint64_t first_byte; /* up to the next cell's */
    uint64_t base;       /* where the copy starts that the bytes belong to */
    uint32_t object;     /* SL_NONE: nothing that anyone may read */
    uint32_t version;
    uint32_t writer;                /* last one: 1 + iteration * body_count + index; 0: none */
    uint32_t reader[SL_LANE_COUNT]; /* last ones since then, likewise */
} sl_verify_cell;

typedef struct sl_verify {
    const sl_plan_request *request;
    const sl_program *program;
    const sl_layout *layout;
    const sl_homes *homes;
    const sl_plan *plan;

    /* where the verifier is, for messages */
    bool is_prologue;
    uint32_t command_index; /* SL_NONE: not at a command */
    uint32_t iteration;

    /* [object_count] */
    uint32_t object_count;
    uint32_t *version; /* the newest */
    bool *is_defined;  /* has been written */
    bool *is_used_up;  /* a gradient that AdamW reads: means nothing once the iteration is over */

    sl_place *slot; /* [value_count] inputs' and outputs' place on the host; bytes 0: none */

    /* [cell_count + 1] a tier, the last one only marks the end; none if nothing is touched there */
    sl_verify_cell *cells[SL_TIER_COUNT];
    uint32_t cell_count[SL_TIER_COUNT];

    /* Vector clocks count, for each lane, the commands known to have finished. */
    uint32_t *position;                 /* [body_count] in its lane, from 1 */
    uint32_t lane_total[SL_LANE_COUNT]; /* commands of one body */
    uint32_t *finish;                   /* [2][body_count][SL_LANE_COUNT], by iteration's parity */
    uint32_t last[SL_LANE_COUNT];       /* latest command of each lane: as in a cell's writer */
    uint32_t clock[SL_LANE_COUNT];      /* at the start of the present command */
} sl_verify;

/* ---- verify.c ---- */

/* Fails with SL_ERROR_INTERNAL: where the verifier is, then what is wrong. */
sl_status sl_verify_reject(const sl_verify *verify, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "param chunk 3", "value 7 (h.0.mlp)", "workspace"; returns `out_name`. */
const char *sl_verify_name_object(const sl_verify *verify, uint32_t object,
                                  char out_name[SL_VERIFY_NAME_BYTES]);

/* "linear", "copy of param chunk 3"; returns `out_name`. */
const char *sl_verify_name_command(const sl_verify *verify, const sl_command *command,
                                   char out_name[SL_VERIFY_NAME_BYTES]);

/* ---- verify_access.c: what commands touch ---- */

uint32_t sl_verify_chunk_object(const sl_verify *verify, sl_group group, uint32_t chunk_index);

uint32_t sl_verify_slot_object(const sl_verify *verify, uint32_t slot);

/* The object of a checked value, or of a checked COPY. */
uint32_t sl_verify_value_object(const sl_verify *verify, uint32_t value);
uint32_t sl_verify_copy_object(const sl_verify *verify, const sl_command *command);

/* Where the tensor of a checked TENSOR value starts in its chunk. */
uint64_t sl_verify_tensor_offset(const sl_verify *verify, const sl_value *value);

/* The home of a chunk; bytes 0 where the group has none. */
sl_place sl_verify_home(const sl_verify *verify, sl_group group, uint32_t chunk_index);

/* May the op at `tick` run on `lane`? AdamW where the homes say, collectives on comm, the rest on
 * compute, or on host where the op table allows it. */
bool sl_verify_allows_lane(const sl_verify *verify, uint32_t tick, sl_lane lane);

/* The tier that the ops of a lane work on. */
sl_tier sl_verify_lane_tier(sl_lane lane);

/* Workspace bytes that the op of a RUN needs. */
uint64_t sl_verify_workspace_bytes(const sl_verify *verify, const sl_command *command);

/* Lists the accesses of a command whose shape has been checked; returns how many. */
uint32_t sl_verify_list_accesses(const sl_verify *verify, const sl_command *command,
                                 sl_verify_access out_accesses[SL_VERIFY_ACCESS_MAX]);

static inline bool sl_verify_places_overlap(const sl_place *a, const sl_place *b)
{
    return a->tier == b->tier && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

static inline bool sl_verify_places_equal(const sl_place *a, const sl_place *b)
{
    return a->tier == b->tier && a->offset == b->offset && a->bytes == b->bytes;
}

/* ---- the parts ---- */

/* Program, layout, homes and peaks; then the commands, one at a time. */
sl_status sl_verify_frame(const sl_verify *verify);
sl_status sl_verify_shape(sl_verify *verify);

/* Cuts the tiers into cells; sl_verify_cells_close frees them. */
sl_status sl_verify_cells_open(sl_verify *verify);
void sl_verify_cells_close(sl_verify *verify);

/* The cells of `place`, which a listed access covers: from *out_first up to before *out_end. */
void sl_verify_cells_find(sl_verify *verify, const sl_place *place, sl_verify_cell **out_first,
                          sl_verify_cell **out_end);

/* Data: the boundary state; one iteration's begin and end; one command. */
void sl_verify_data_start(sl_verify *verify);
void sl_verify_data_begin(sl_verify *verify);
sl_status sl_verify_data_step(sl_verify *verify, const sl_command *command);
sl_status sl_verify_data_end(sl_verify *verify);

/* Order: clocks for the whole replay; one command of the body. */
sl_status sl_verify_order_open(sl_verify *verify);
void sl_verify_order_close(sl_verify *verify);
sl_status sl_verify_order_step(sl_verify *verify, const sl_command *command);

sl_status sl_verify_memory(sl_verify *verify);
sl_status sl_verify_sweep(sl_verify *verify);

#endif
