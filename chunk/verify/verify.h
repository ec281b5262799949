/* What the parts of the verifier share.
 *
 * Objects are what memory can hold a copy of: values that live on their own (object = value index),
 * then the chunks of each group, then the persistent slots, then the instances of families from the
 * second on (the first is the value itself). The planner numbers its objects in another order;
 * plans hold no object numbers, so no number goes from one to the other. Every write advances the
 * object's version. A *range* is addresses of a tier that no access of the plan divides; its *cell*
 * knows which object's copy the bytes belong to and who touched them last.
 *
 *   verify_request.c program, layout and homes belong together
 *   verify_shape.c   values, sections, commands: all that needs no replay
 *   verify_cells.c   what a command touches
 *   verify_replay.c  two iterations of data (versions), the same of order (waits)
 *   verify_gradients.c tensors in chunks of gradients: written before they are read
 *   verify_memory.c  allocations: overlaps, sums
 *
 * The shape makes every index and range safe for the parts behind it, which do not depend on each
 * other.
 *
 * Of a section's repetitions only some are replayed (SL_VERIFY_REPLAYS below): all of up to five,
 * else four or five, as many as keep the parity, so that a ring of two ends where it would. Why
 * they stand for all is said where it is used, in verify_replay.c. A family of more instances than
 * are replayed has that many in the replay; at home, where each has a place, its bytes are
 * *shrunk*: see verify_cells.c.
 */
#ifndef SL_CHUNK_VERIFY_VERIFY_H
#define SL_CHUNK_VERIFY_VERIFY_H

#include "base/status.h"
#include "sluice/plan.h"

enum {
    SL_VERIFY_ACCESS_MAX = SL_OPERAND_MAX + 1, /* accesses of one command */
    SL_VERIFY_ALIGNMENT = 256,
    SL_VERIFY_NAME_BYTES = 96,
    SL_VERIFY_REPLAYS = 5 /* most repetitions of a section that are replayed */
};

/* A place that a command touches. */
typedef struct sl_verify_access {
    sl_place place; /* the bytes touched */
    sl_place
        whole; /* the copy of the object that they are a part of; `place` itself if all of it */
    uint32_t object; /* SL_NONE: workspace; of a family: its value, whatever the repetition */
    bool reads, writes;
    bool defines; /* a write that needs nothing of what was there */
    /* Rows of the object, of which only those from 0 on may have been written; UINT64_MAX: all. The
     * access needs those before needed_rows, and leaves those before end_row written. */
    uint64_t needed_rows, end_row;
} sl_verify_access;

typedef struct sl_verify_cell {
    uint64_t base;   /* where the copy starts that the bytes belong to */
    uint32_t object; /* SL_NONE: nothing that anyone may read */
    uint32_t version;
    sl_lane writer_lane;
    uint32_t writer;                /* the last one: how many-th of its lane, from 1; 0: none */
    uint32_t reader[SL_LANE_COUNT]; /* the last ones since then, likewise */
} sl_verify_cell;

/* Addresses of a tier between two edges: one cell, or, within the extent of a shrunk home, one for
 * each instance that is replayed. */
typedef struct sl_verify_range {
    uint64_t first_byte; /* up to the next range's */
    uint32_t first_cell; /* up to the next range's */
} sl_verify_range;

typedef struct sl_verify_tier {
    sl_verify_range *ranges; /* [range_count + 1], the last one only marks the end */
    sl_verify_cell *cells;   /* [cell_count] */
    /* [range_count] the shrunk home that was written last, of one slot: another place; NULL if
     * there are no shrunk homes */
    sl_place *owners;
    uint32_t range_count, cell_count;
} sl_verify_tier;

/* What the program makes of a value. */
typedef struct sl_verify_value {
    sl_place buffer;        /* on the host, of an input or an output; bytes 0: none */
    uint32_t second_object; /* of a family: that of its second instance, the others follow */
    uint32_t section;       /* that uses it; SL_NONE: none, or several */
    uint32_t chunk_index;   /* of a whole chunk of which ranks keep shards; SL_NONE: it is none */
    sl_group group;         /* that the chunk is of */
    bool is_used;           /* by some op */
    bool is_local;          /* to a repeated section: undefined at the start of each repetition */
    bool is_filled;         /* an input that INPUT ops write */
    bool is_written;        /* by some op */
} sl_verify_value;

typedef struct sl_verify {
    const sl_plan_request *request;
    const sl_program *program;
    const sl_layout *layout;
    const sl_homes *homes;
    const sl_plan *plan;

    /* where the verifier is */
    bool is_prologue;
    uint32_t command_index; /* SL_NONE: not at a command */
    uint32_t section_index;
    uint32_t repetition; /* SL_NONE: not replaying */
    uint32_t iteration;

    sl_verify_value *values; /* [value_count] */

    /* [object_count] */
    uint32_t object_count;
    uint32_t first_family_object; /* the objects from here on are instances of families */
    uint32_t *family_value;       /* [object_count - first_family_object] */
    uint32_t *version;            /* the newest */
    uint64_t *written_rows;       /* of it: those before this one; UINT64_MAX: all */
    bool *is_defined;             /* has a meaning */
    /* [tensors of the layout]: its gradient, since CLEAR_PADDING of its chunk */
    bool *is_unwritten;
    bool *is_used_up; /* a gradient that AdamW reads: means nothing once the iteration is over */

    sl_verify_tier tiers[SL_TIER_COUNT];

    /* Vector clocks count, for each lane, the commands known to have finished. */
    uint32_t *issue_count;         /* [body_count] how often it was issued */
    uint32_t *finish;              /* [2][body_count][SL_LANE_COUNT], by the issue's parity */
    uint32_t *last[SL_LANE_COUNT]; /* finish clock of the latest command of each lane; NULL: none */
    uint32_t position[SL_LANE_COUNT]; /* how many commands of each lane were issued */
    uint32_t clock[SL_LANE_COUNT];    /* at the start of the present command */
} sl_verify;

/* ---- verify.c ---- */

/* Section `index` of the plan's body, also of a plan that was not divided. */
sl_section sl_verify_section(const sl_verify *verify, uint32_t index);

/* Fails with SL_ERROR_INTERNAL: where the verifier is, then what is wrong. */
sl_status sl_verify_reject(const sl_verify *verify, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "param chunk 3", "value 7 (h.0.mlp), instance 2", "workspace"; returns `out_name`. */
const char *sl_verify_name_object(const sl_verify *verify, uint32_t object,
                                  char out_name[SL_VERIFY_NAME_BYTES]);

/* "linear", "copy of param chunk 3"; returns `out_name`. */
const char *sl_verify_name_command(const sl_verify *verify, const sl_command *command,
                                   char out_name[SL_VERIFY_NAME_BYTES]);

/* ---- repetitions ---- */

/* How many repetitions of `repeat` are replayed. */
static inline uint32_t sl_verify_replays(uint32_t repeat)
{
    return repeat <= SL_VERIFY_REPLAYS ? repeat : 4 + repeat % 2;
}

/* A value's instances; those of a hand-made program may be 0. */
static inline uint32_t sl_verify_instances(const sl_value *value)
{
    return value->instances > 1 ? value->instances : 1;
}

/* ---- verify_cells.c ---- */

uint32_t sl_verify_chunk_object(const sl_verify *verify, sl_group group, uint32_t chunk_index);

uint32_t sl_verify_persistent_object(const sl_verify *verify, uint32_t slot);

/* The object of a checked value, or of a checked COPY. */
uint32_t sl_verify_value_object(const sl_verify *verify, uint32_t value);
uint32_t sl_verify_copy_object(const sl_verify *verify, const sl_command *command);

/* Where the tensor of a checked TENSOR value starts in its chunk. */
uint64_t sl_verify_tensor_offset(const sl_verify *verify, const sl_value *value);

/* The home of a chunk; bytes 0 where the group has none. */
sl_place sl_verify_home(const sl_verify *verify, sl_group group, uint32_t chunk_index);

/* The object of the instance that the present repetition uses. */
uint32_t sl_verify_instance(const sl_verify *verify, uint32_t object);

/* Lists the accesses of a command whose shape has been checked; returns how many. */
uint32_t sl_verify_list_accesses(const sl_verify *verify, const sl_command *command,
                                 sl_verify_access out_accesses[SL_VERIFY_ACCESS_MAX]);

/* By all their bytes, whatever the repetition. */
static inline bool sl_verify_places_overlap(const sl_place *a, const sl_place *b)
{
    return a->tier == b->tier && a->offset < b->offset + sl_place_extent(b) &&
           b->offset < a->offset + sl_place_extent(a);
}

static inline bool sl_verify_places_equal(const sl_place *a, const sl_place *b)
{
    bool is_strided = a->slots > 1 || b->slots > 1;
    return a->tier == b->tier && a->offset == b->offset && a->bytes == b->bytes &&
           (!is_strided || (a->slots == b->slots && a->stride == b->stride));
}

/* Has it a slot for each of more instances than are replayed? */
static inline bool sl_verify_is_shrunk(const sl_place *place)
{
    return place->slots > SL_VERIFY_REPLAYS;
}

/* Divides the tiers into ranges and cells; sl_verify_cells_close frees them. */
sl_status sl_verify_cells_open(sl_verify *verify);
void sl_verify_cells_close(sl_verify *verify);

/* The cells of a place in the present repetition, run by run. */
typedef struct sl_verify_walk {
    sl_verify_tier *tier;
    const sl_place *place;
    uint32_t instance;
    uint32_t next_range, end_range;
    sl_verify_cell *cell, *end;        /* the run: the bytes in this repetition */
    sl_verify_cell *taken, *taken_end; /* the same, and what a write there takes besides */
    uint32_t range;                    /* the first of the run */
    bool is_foreign;                   /* the bytes were something else's than this shrunk home's */
} sl_verify_walk;

/* Starts at `place`, which a listed access covers, or a home or buffer. */
sl_verify_walk sl_verify_walk_start(sl_verify *verify, const sl_place *place);
bool sl_verify_walk_next(sl_verify_walk *walk);

/* The bytes of the run are from now on this place's. */
void sl_verify_walk_own(const sl_verify_walk *walk);

/* Nobody's bytes are a shrunk home's any more. */
void sl_verify_cells_disown(sl_verify *verify);

/* The bytes of a cell, for messages. */
void sl_verify_cell_bytes(const sl_verify_tier *tier, const sl_verify_cell *cell,
                          uint64_t *out_first, uint64_t *out_end);

/* ---- the parts ---- */

sl_status sl_verify_request(const sl_verify *verify);

/* The request, then the plan. */
sl_status sl_verify_shape(sl_verify *verify);

/* Data, then order; sl_verify_replay_close frees the clocks. */
sl_status sl_verify_replay(sl_verify *verify);
void sl_verify_replay_close(sl_verify *verify);

sl_status sl_verify_memory(const sl_verify *verify);

/* The next op of the replay of data. */
sl_status sl_verify_gradients(sl_verify *verify, const sl_op *op);

#endif
