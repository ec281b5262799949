/* What the files of the engine share.
 *
 *   engine.c   the public calls, opening and closing
 *   arena.c    one stretch of memory a tier; addresses are made here and nowhere else
 *   boundary.c chunks and slots between iterations: find, read, write, clear
 *   disk.c     the disk tier: the store and its two lanes
 *   bounce.c   parts of chunks that live there, between iterations
 *   bind.c     turns a plan's indices into pointers, once, when the engine opens
 *   sections.c the sections of a plan, and where its commands' places are in each repetition
 *   inputs.c   the lane that asks the caller's source for inputs
 *   prepare.c  lets the kernels choose their algorithms for what was bound
 *   walk.c     issues bound commands to the lanes and waits for them
 *   measure.c  what the lanes did and for how long
 *   stall.c    which lane a wait is to be charged to
 *
 * Threads: everything here belongs to the control thread except what is marked as shared with
 * lanes, which is atomic. Of bound plans only the counts of issues are written after the engine has
 * opened.
 */
#ifndef SL_ENGINE_INTERNAL_H
#define SL_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "chunk/simulate/stall.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "offload/store.h"
#include "sluice/engine.h"

enum { SL_ARENA_COUNT = 2 }; /* tiers that are memory: SL_TIER_DEVICE and SL_TIER_HOST */

typedef struct sl_arena {
    unsigned char *base;   /* NULL: nothing is placed here */
    uint64_t bytes;        /* the largest peak of the plans */
    uint64_t mapped_bytes; /* `bytes` rounded up to the alignment of places */
} sl_arena;

/* A lane at work. The counters are written by the lane's thread. */
typedef struct sl_engine_lane {
    struct sl_engine_lane *lanes;       /* all of the engine, [SL_LANE_COUNT] */
    pthread_mutex_t lock;               /* of `waits` */
    sl_stall_history waits;             /* shared with lanes */
    const sl_engine_observer *observer; /* the caller's, or NULL */
    sl_lane lane;
    sl_device_stream *stream;                  /* NULL: this engine does not have the lane */
    _Atomic uint64_t busy_ns;                  /* shared with lanes */
    _Atomic uint64_t waited_ns[SL_LANE_COUNT]; /* by cause; shared with lanes */
} sl_engine_lane;

typedef struct sl_disk {
    sl_store *store; /* NULL: nothing is on disk */
    uint64_t bytes;  /* of its address space */
} sl_disk;

/* One piece of the host arena, and which part of a chunk's home it holds; see bounce.c. */
typedef struct sl_bounce_piece {
    unsigned char *memory;
    uint64_t offset, bytes; /* in the store; 0 bytes: nothing is held */
    sl_group group;
    uint32_t chunk_index;
    bool is_dirty, is_moving;
    sl_lane lane; /* of its last move */
} sl_bounce_piece;

typedef struct sl_bounce {
    sl_bounce_piece pieces[SL_BOUNCE_PIECES];
    uint32_t last; /* the piece that was used last */
} sl_bounce;

typedef struct sl_bound_wait {
    uint32_t command; /* of the body */
    uint32_t age;     /* as in sl_wait */
    uint64_t tag;
} sl_bound_wait;

/* Which of a command's places; those of a RUN are numbered as its operands. */
enum { SL_BOUND_FROM = 0, SL_BOUND_TO = 1, SL_BOUND_WORKSPACE = SL_OPERAND_MAX };

/* A place of a command that is elsewhere in the next repetition. */
typedef struct sl_bound_stride {
    uint32_t place;
    uint32_t slots; /* >= 2 */
    uint64_t stride;
} sl_bound_stride;

/* Where a copy goes; a pointer is NULL where that end is on disk. */
typedef struct sl_bound_ends {
    void *to;
    const void *from;
    uint64_t disk_offset; /* lanes read and write */
} sl_bound_ends;

/* A command with its addresses, tag and micro-batch in repetition 0. */
typedef struct sl_bound_command {
    const sl_command *command;
    uint64_t tag;
    sl_kernel kernel;                    /* RUN; NULL: an INPUT op */
    sl_op_kind op_kind;                  /* RUN */
    sl_kernel_call call;                 /* RUN: all but the scalars */
    sl_bound_ends ends;                  /* COPY */
    uint64_t bytes;                      /* COPY, INPUT */
    uint32_t input_slot;                 /* INPUT */
    const char *value_name;              /* COPY of a value; borrowed from the program */
    uint32_t first_stride, stride_count; /* into strides */
    uint32_t first_wait,
        wait_count;  /* into waits: those that the lane's own order does not cover */
    uint64_t issued; /* how often, so far */
    /* Recorded after it. NULL: nobody asks. The second is there if somebody waits for the issue
     * before the latest; then issue i (from 0) is recorded in i % 2. */
    sl_device_event *events[2];
    uint64_t touched_end[SL_TIER_COUNT]; /* end of the highest place it touches */
} sl_bound_command;

typedef struct sl_bound_plan {
    const sl_program *program;
    const sl_plan *plan;
    sl_bound_command *prologue; /* [plan->prologue_count] */
    sl_bound_command *body;     /* [plan->body_count] */
    sl_bound_wait *waits;       /* [plan->wait_count] at most */
    uint32_t wait_count;
    sl_bound_stride *strides;
    uint32_t stride_count, stride_capacity;
    uint32_t repetition_count;  /* of an iteration, over all sections */
    uint32_t repetitions_ahead; /* issued, but not done by the compute lane, at most */
    void **inputs;   /* [input_count] by slot; NULL: no command reads it, or INPUT ops fill it */
    bool *is_filled; /* [input_count] by slot: INPUT ops do */
    void **outputs;  /* [output_count] by slot */
    uint32_t input_count, output_count;
    /* The last command of each lane that a step has to wait for; SL_NONE: none. */
    uint32_t last_awaited[SL_LANE_COUNT];
} sl_bound_plan;

struct sl_engine {
    sl_engine_options options; /* `plans` stands in bound plans; only borrowed pointers are used */
    const sl_kernel_table *kernels;      /* of the device */
    const sl_kernel_table *host_kernels; /* of the host lane */
    sl_kernel_library *library;          /* of the device's kernels */
    const sl_device_ops *ops;
    sl_device *device;
    sl_workers *workers;
    sl_arena arenas[SL_ARENA_COUNT];
    sl_disk disk;
    sl_bounce bounce;
    sl_engine_lane lanes[SL_LANE_COUNT];
    sl_bound_plan *plans;
    uint32_t plan_count;
    sl_engine_source source;              /* of the caller; `fill` NULL: no plan asks for inputs */
    sl_engine_progress progress;          /* of the caller; `passed` NULL: nobody wants to know */
    sl_device_event *ends[SL_AHEAD_MOST]; /* of repetitions, on the compute lane, in turn */
    uint64_t repetitions_issued;          /* ever, of all plans */
    uint32_t current_plan;        /* whose iteration ran last; SL_NONE: the boundary state */
    _Atomic uint32_t failed_lane; /* the first to fail, or SL_NONE; shared with lanes */
    sl_status failure;            /* the first of an iteration: final */
    char failure_message[1024];
    uint64_t step_ns;
    uint64_t moved_bytes[SL_LANE_COUNT];
    uint64_t touched_end[SL_TIER_COUNT];
};

/* What a test may put in the place of the engine's own. */
typedef struct sl_engine_parts {
    const sl_kernel_table *kernels;           /* of device and host; NULL: those of the target */
    const struct sl_transport_ops *transport; /* NULL: the store's own choice */
    uint32_t disk_depth;                      /* 0: the store's default */
    uint32_t disk_limit_ms;                   /* likewise */
    uint32_t repetitions_ahead;               /* 0: by the plan; at most SL_AHEAD_MOST */
} sl_engine_parts;

/* sl_engine_open with parts of the caller's: for tests. */
sl_status sl_engine_open_with(const sl_engine_options *options, const sl_engine_parts *parts,
                              sl_engine **out_engine);

/* ---- arena.c ---- */

/* Bytes of a tier that the plans and homes of `options` need. */
uint64_t sl_arena_need(const sl_engine_options *options, sl_tier tier);

/* Maps the arenas that the plans and homes of `options` need. With a disk tier the host's base and
 * size are multiples of SL_DIRECT_ALIGNMENT. */
sl_status sl_arena_open(sl_engine *engine, const sl_engine_options *options);
void sl_arena_close(sl_engine *engine);

/* The address of a stretch's first slot; SL_ERROR_INTERNAL if not all slots are inside an arena. */
sl_status sl_arena_at(const sl_engine *engine, const sl_place *place, void **out_address);

/* Copies between a stretch of an arena and plain memory, or sets it to zero, and waits for it. */
sl_status sl_arena_write(sl_engine *engine, const sl_place *place, const void *data);
sl_status sl_arena_read(sl_engine *engine, const sl_place *place, void *data);
sl_status sl_arena_clear(sl_engine *engine, const sl_place *place);

/* ---- boundary.c ---- */

/* Sets homes and persistent slots to zero where guarded memory was patterned; writes the flags. */
sl_status sl_boundary_fill(sl_engine *engine);

/* ---- disk.c ---- */

/* Opens the store over the directories of `options` if their plans or homes use the disk; after
 * sl_arena_open. SL_ERROR_USAGE: no directories. Others: see sl_store_open. */
sl_status sl_disk_open(sl_engine *engine, const sl_engine_options *options,
                       const sl_engine_parts *parts);
void sl_disk_close(sl_engine *engine); /* before sl_arena_close; lanes have ended */

/* Checks and binds a copy of the read or write lane. */
sl_status sl_disk_bind(const sl_engine *engine, sl_bound_command *bound);

/* Queues a bound copy on its lane. */
sl_status sl_disk_issue(sl_engine *engine, const sl_bound_command *bound, uint64_t tag,
                        const sl_bound_ends *ends);

/* Queues an uncounted move of what a bounce piece holds, on the piece's lane. */
sl_status sl_disk_move(sl_engine *engine, const sl_bounce_piece *piece);

/* ---- bounce.c ---- */

/* Finds the pieces in the host arena; some chunk lives on disk. */
sl_status sl_bounce_open(sl_engine *engine);

/* `bytes` of a chunk from `first_byte` of its home on. */
typedef struct sl_chunk_part {
    sl_group group;
    uint32_t chunk_index;
    sl_place home;
    uint64_t first_byte, bytes;
} sl_chunk_part;

/* Copies between a part of a chunk on disk and plain memory; the lanes have no commands. What was
 * written may be on its way, or still here, when the call returns: a failure comes back later. */
sl_status sl_bounce_read(sl_engine *engine, const sl_chunk_part *part, void *data);
sl_status sl_bounce_write(sl_engine *engine, const sl_chunk_part *part, const void *data);

/* Waits until the disk has all that was written. */
sl_status sl_bounce_flush(sl_engine *engine);

/* The same, and nothing is held any more: from here on lanes may write the chunks. */
sl_status sl_bounce_empty(sl_engine *engine);

/* ---- bind.c ---- */

/* Resolves a plan. On failure what was made is left for sl_bind_close. */
sl_status sl_bind_open(sl_engine *engine, const sl_engine_plan *source, sl_bound_plan *out_bound);
void sl_bind_close(sl_engine *engine, sl_bound_plan *bound);

/* ---- sections.c ---- */

/* Refuses sections that are not all of the plan's body, in order; counts repetitions. */
sl_status sl_sections_check(sl_bound_plan *bound);

/* Refuses slots that lie over each other or leave the address space: slots apart by a multiple of
 * `alignment`. */
sl_status sl_sections_check_slots(const sl_place *place, uint64_t alignment);

/* Notes that place number `which` of `command`, which was checked, moves, if it does. Strides of a
 * command are added without those of another between them. */
sl_status sl_sections_add_stride(sl_bound_plan *bound, sl_bound_command *command, uint32_t which,
                                 const sl_place *place);

/* Moves a copy of a command's call or ends from repetition 0 to another. */
void sl_sections_move_call(const sl_bound_plan *bound, const sl_bound_command *command,
                           uint32_t repetition, sl_kernel_call *call);
void sl_sections_move_ends(const sl_bound_plan *bound, const sl_bound_command *command,
                           uint32_t repetition, sl_bound_ends *ends);

/* ---- inputs.c ---- */

/* Takes the source of `options`; writes whether their plans have INPUT ops. SL_ERROR_USAGE: they
 * have, and there is no source. */
sl_status sl_inputs_open(sl_engine *engine, const sl_engine_options *options, bool *out_has_inputs);

/* Checks and binds a command of the input lane, whose operands are bound. */
sl_status sl_inputs_bind(sl_bound_plan *bound, sl_bound_command *command);

/* Queues a bound INPUT op whose call was moved to its repetition. */
sl_status sl_inputs_issue(sl_engine *engine, uint32_t plan_index, const sl_bound_command *bound,
                          uint64_t tag, const sl_kernel_call *call);

/* ---- prepare.c ---- */

/* Lets the device's kernels prepare for every distinct op of the bound plans. */
sl_status sl_prepare(sl_engine *engine);

/* ---- walk.c ---- */

/* Issues the prologue and waits for it. */
sl_status sl_walk_prologue(sl_engine *engine, sl_bound_plan *bound);

/* Issues one iteration, unless a lane fails meanwhile. */
sl_status sl_walk_body(sl_engine *engine, sl_bound_plan *bound, const sl_step_scalars *scalars);

/* Waits for the part of the iteration that sl_engine_step promises. */
sl_status sl_walk_await(sl_engine *engine, const sl_bound_plan *bound);

/* Notes that `lane` failed, for the control thread at once: it does not wait for other lanes' end.
 * Called by lanes. */
void sl_walk_note_failure(_Atomic uint32_t *failed_lane, sl_lane lane);

/* "linear", "adamw", ... */
const char *sl_walk_op_name(sl_op_kind kind);

/* Makes a failure of an iteration, whose message stands, final unless one is. */
void sl_walk_keep_failure(sl_engine *engine, sl_status status);

/* Waits for all lanes; returns the failure of the lane that failed first, or the one that was kept.
 */
sl_status sl_walk_drain(sl_engine *engine);

/* The boundary state: drains, unless no iteration has run since the last time. To ask a device's
 * streams costs more than to copy a tensor. */
sl_status sl_walk_rest(sl_engine *engine);

/* ---- measure.c ---- */

/* A tag says what an item of a lane is. */
typedef enum sl_tag_kind { SL_TAG_UNCOUNTED, SL_TAG_PROLOGUE, SL_TAG_BODY } sl_tag_kind;

/* What fits into tags. */
enum { SL_TAG_PLANS = 1 << 8, SL_TAG_COMMANDS = 1 << 26, SL_TAG_REPETITIONS = 1 << 28 };

/* Of what is no command of a body. */
uint64_t sl_measure_tag(sl_tag_kind kind);

/* Of a command in repetition 0; one more is one repetition on. */
uint64_t sl_measure_tag_body(uint32_t plan_index, uint32_t command);

/* Of a wait for something of another lane. */
uint64_t sl_measure_tag_wait(sl_lane waited_for);

/* What `lane`'s stream is to call. */
sl_queue_observer sl_measure_observer(sl_engine_lane *lane);

/* Counts a command as it is issued. */
void sl_measure_issue(sl_engine *engine, const sl_bound_command *bound);

/* ---- stall.c ---- */

/* Counts a wait of `lane` that has ended: by the lane waited for, and where that waited itself, by
 * what it waited for. Called where the lane's stream tells of its waits. */
void sl_stall_note(sl_engine_lane *lane, sl_lane waited_for, uint64_t start_ns, uint64_t end_ns);

#endif
