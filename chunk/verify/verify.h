/* Types and functions that the files of the verifier share.
 *
 * An *object* is content that memory can hold a copy of. Objects are numbered in this order: values
 * with memory of their own (object = value index), the chunks of each group, the persistent slots,
 * and the instances of families from the second on (the first instance has the number of its
 * value). The planner numbers its objects in another order, but a plan holds no object numbers.
 * Every write by an op makes a new *version* of the object. A *range* is a run of addresses of a
 * tier that no access of the plan divides. The *cell* of a range records which object's copy its
 * bytes belong to, and which commands touched the bytes last.
 *
 *   verify_request.c program, layout and homes belong together
 *   verify_shape.c   values, sections, commands: all that needs no replay
 *   verify_cells.c   the bytes that a command touches
 *   verify_replay.c  two iterations of data (versions), two of order (waits)
 *   verify_gradients.c tensors in chunks of gradients: written before they are read
 *   verify_memory.c  allocations: overlaps, sums
 *
 * verify_shape.c makes every index and range safe for the replay and for verify_memory.c, which do
 * not depend on each other.
 *
 * At most SL_VERIFY_REPLAYS repetitions of a section are replayed: all of them if there are up to
 * five, else four of an even number and five of an odd one. The equal parity makes a ring of two
 * end in the same slot. verify_replay.c shows why these repetitions stand for all. A family with
 * more instances than are replayed has only so many objects. Its home has a slot for each of its
 * instances, so the home is *shrunk* in the replay: see verify_cells.c.
 */
#ifndef SL_CHUNK_VERIFY_VERIFY_H
#define SL_CHUNK_VERIFY_VERIFY_H

#include "base/status.h"
#include "chunk/plan.h"

enum {
    SL_VERIFY_ACCESS_MAX = SL_OPERAND_MAX + 1, /* accesses of one command */
    SL_VERIFY_ALIGNMENT = 256,
    SL_VERIFY_NAME_BYTES = 96,
    SL_VERIFY_REPLAYS = 5 /* most repetitions of a section in a replay */
};

/* A place that a command touches. */
typedef struct sl_verify_access {
    sl_place place; /* the bytes touched */
    sl_place
        whole; /* the copy of the object that these bytes are in; `place` itself if they are all */
    uint32_t object; /* SL_NONE: workspace; of a family: its value, in every repetition */
    bool reads, writes;
    bool defines; /* a write that needs no old content */
    /* Ops may write the rows of an object range by range, from row 0 on. The access needs the rows
     * before needed_rows; after it, the rows before end_row are written. UINT64_MAX: all rows. */
    uint64_t needed_rows, end_row;
} sl_verify_access;

typedef struct sl_verify_cell {
    uint64_t base;   /* address where the copy that the bytes belong to starts */
    uint32_t object; /* SL_NONE: no content that a command may read */
    uint32_t version;
    sl_lane writer_lane;
    uint32_t writer;                /* number of the last writer in its lane, from 1; 0: none */
    uint32_t reader[SL_LANE_COUNT]; /* the same of the last reader since then, by lane */
} sl_verify_cell;

/* The addresses of a tier between two edges. A range has one cell or, within the extent of a shrunk
 * home, SL_VERIFY_REPLAYS cells: one for each instance that may be replayed. */
typedef struct sl_verify_range {
    uint64_t first_byte; /* its bytes end before the first of the next range */
    uint32_t first_cell; /* its cells end before the first of the next range */
} sl_verify_range;

typedef struct sl_verify_tier {
    sl_verify_range *ranges; /* [range_count + 1], the last entry only marks the end */
    sl_verify_cell *cells;   /* [cell_count] */
    /* [range_count] the shrunk home that was last written there; with slots 0: some other place
     * was. NULL: the tier has no shrunk homes */
    sl_place *owners;
    uint32_t range_count, cell_count;
} sl_verify_tier;

/* How the program uses a value. */
typedef struct sl_verify_value {
    sl_place buffer;        /* of an input or an output, on the host; bytes 0: none */
    uint32_t second_object; /* of a family: its second instance; the others follow */
    uint32_t section;       /* the only one that uses it; SL_NONE: none, or several */
    uint32_t chunk_index;   /* the chunk held whole, if ranks keep shards of it; or SL_NONE */
    sl_group group;         /* of that chunk */
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

    /* the part of the plan that is being checked, for messages and repetitions */
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
    uint32_t *version;            /* number of the newest version */
    uint64_t *written_rows;       /* in the newest version: rows before it; UINT64_MAX: all */
    bool *is_defined;             /* has content that may be read */
    /* [tensors of the layout] no op has written the tensor's gradient since CLEAR_PADDING of its
     * chunk */
    bool *is_unwritten;
    bool *is_used_up; /* a gradient that an update reads: not needed after the iteration */

    sl_verify_tier tiers[SL_TIER_COUNT];

    /* Vector clocks count, for each lane, the commands known to have finished. */
    uint32_t *issue_count;         /* [body_count] issues of each command so far */
    uint32_t *finish;              /* [2][body_count][SL_LANE_COUNT], by parity of the issue */
    uint32_t *last[SL_LANE_COUNT]; /* finish clock of the latest command of each lane; NULL: none */
    uint32_t position[SL_LANE_COUNT]; /* commands issued on each lane */
    uint32_t clock[SL_LANE_COUNT];    /* at the start of the current command */
} sl_verify;

/* ---- verify.c ---- */

/* Section `index` of the plan's body; a plan without sections has one of all its commands. */
sl_section sl_verify_section(const sl_verify *verify, uint32_t index);

/* Fails with SL_ERROR_INTERNAL. The message names the command, if one is being checked, and says
 * what is wrong. */
sl_status sl_verify_reject(const sl_verify *verify, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "param chunk 3", "value 7 (h.0.mlp), instance 2", "workspace"; returns `out_name`. */
const char *sl_verify_name_object(const sl_verify *verify, uint32_t object,
                                  char out_name[SL_VERIFY_NAME_BYTES]);

/* "linear", "copy of param chunk 3"; returns `out_name`. */
const char *sl_verify_name_command(const sl_verify *verify, const sl_command *command,
                                   char out_name[SL_VERIFY_NAME_BYTES]);

/* ---- repetitions ---- */

/* The number of repetitions that are replayed, of `repeat`. */
static inline uint32_t sl_verify_replays(uint32_t repeat)
{
    return repeat <= SL_VERIFY_REPLAYS ? repeat : 4 + repeat % 2;
}

/* The number of a value's instances; a program made by hand may have 0 there for 1. */
static inline uint32_t sl_verify_instances(const sl_value *value)
{
    return value->instances > 1 ? value->instances : 1;
}

/* ---- verify_cells.c ---- */

uint32_t sl_verify_chunk_object(const sl_verify *verify, sl_group group, uint32_t chunk_index);

uint32_t sl_verify_persistent_object(const sl_verify *verify, uint32_t slot);

/* The object of a value, or of a COPY, whose shape has been checked. */
uint32_t sl_verify_value_object(const sl_verify *verify, uint32_t value);
uint32_t sl_verify_copy_object(const sl_verify *verify, const sl_command *command);

/* Byte of the chunk at which the tensor of a checked TENSOR or PART value starts. */
uint64_t sl_verify_tensor_offset(const sl_verify *verify, const sl_value *value);

/* The home of a chunk; bytes 0 if its group has no homes. */
sl_place sl_verify_home(const sl_verify *verify, sl_group group, uint32_t chunk_index);

/* The object of the instance that the current repetition uses; of other objects, `object`. */
uint32_t sl_verify_instance(const sl_verify *verify, uint32_t object);

/* Lists the accesses of a command whose shape has been checked; returns their number. */
uint32_t sl_verify_list_accesses(const sl_verify *verify, const sl_command *command,
                                 sl_verify_access out_accesses[SL_VERIFY_ACCESS_MAX]);

/* Do the extents of two places overlap, in whatever repetitions? */
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

/* Does the place have a slot for each instance of a family, and more than are replayed? */
static inline bool sl_verify_is_shrunk(const sl_place *place)
{
    return place->slots > SL_VERIFY_REPLAYS;
}

/* Divides the tiers into ranges and cells; sl_verify_cells_close frees them. */
sl_status sl_verify_cells_open(sl_verify *verify);
void sl_verify_cells_close(sl_verify *verify);

/* A walk over the cells of a place in the current repetition, run by run. */
typedef struct sl_verify_walk {
    sl_verify_tier *tier;
    const sl_place *place;
    uint32_t instance;
    uint32_t next_range, end_range;
    sl_verify_cell *cell, *end;        /* the run: cells of this repetition's bytes */
    sl_verify_cell *taken, *taken_end; /* all cells that a write overwrites: the run at least */
    uint32_t range;                    /* the first one of the run */
    bool is_foreign; /* the place is a shrunk home, but not the owner of the run */
} sl_verify_walk;

/* Starts a walk over `place`: a place of a listed access, a home or a buffer. */
sl_verify_walk sl_verify_walk_start(sl_verify *verify, const sl_place *place);
bool sl_verify_walk_next(sl_verify_walk *walk);

/* Makes the place the owner of the run's ranges; if it is not shrunk, they have no owner then. */
void sl_verify_walk_own(const sl_verify_walk *walk);

/* Makes all ranges of all tiers have no owner. */
void sl_verify_cells_disown(sl_verify *verify);

/* The bytes of a cell, for messages. */
void sl_verify_cell_bytes(const sl_verify_tier *tier, const sl_verify_cell *cell,
                          uint64_t *out_first, uint64_t *out_end);

/* ---- the checks ---- */

sl_status sl_verify_request(const sl_verify *verify);

/* Checks the request (sl_verify_request), then the shape of the plan. */
sl_status sl_verify_shape(sl_verify *verify);

/* Replays data, then order; sl_verify_replay_close frees the clocks. */
sl_status sl_verify_replay(sl_verify *verify);
void sl_verify_replay_close(sl_verify *verify);

sl_status sl_verify_memory(const sl_verify *verify);

/* Checks the gradients that the next op of the data replay reads; records those that it writes. */
sl_status sl_verify_gradients(sl_verify *verify, const sl_op *op);

#endif
