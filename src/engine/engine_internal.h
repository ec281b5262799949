/* What the files of the engine share.
 *
 *   engine.c      opens and closes an engine; what a caller may look at
 *   step.c        a step: its states, and issuing a plan's commands to the lanes
 *   bound_plan.c  a plan made ready to be issued: every index a pointer, every wait an event
 *   op_kernels.c  RUN commands: which kernel an op gets, and how it is launched
 *   inputs.c      RUN commands of the input lane: the caller's source
 *   collectives.c RUN commands of the comm lane: the caller's other ranks
 *   copies.c      COPY commands: between memories, and between the host and the disk
 *   arena.c       one range of memory a tier; addresses are made here and nowhere else
 *   paint.c       which bytes of an arena were written, by painting it first
 *   boundary.c    chunks and persistent slots between iterations: find, read, write, clear
 *   disk.c        the disk tier: its store, and parts of chunks that live there
 *   deadline.c    how long the control thread waits for lanes that do not get on
 *   statistics.c  what the lanes did, for how long, and for which lane they waited
 *
 * timeline.c stands beside the engine: an observer that draws what the lanes did.
 *
 * op_kernels.c, inputs.c and copies.c each hold the whole way of one kind of command: bound when
 * the engine opens, issued in every repetition, run in its lane's thread.
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

/* ---- memory ---- */

enum { SL_ARENA_COUNT = 2 }; /* tiers that are memory: SL_TIER_DEVICE and SL_TIER_HOST */

typedef struct sl_arena {
    unsigned char *base;   /* NULL: nothing is placed here */
    uint64_t bytes;        /* the largest peak of the plans */
    uint64_t mapped_bytes; /* `bytes` rounded up to the alignment of places; and, painted, more */
} sl_arena;

/* ---- lanes ---- */

/* A lane at work. The counters are written by the lane's thread. */
typedef struct sl_engine_lane {
    struct sl_engine_lane *lanes;       /* all of the engine, [SL_LANE_COUNT] */
    struct sl_engine *engine;           /* the control thread's */
    pthread_mutex_t lock;               /* of `waits` */
    sl_stall_history waits;             /* shared with lanes */
    const sl_engine_observer *observer; /* the caller's, or NULL */
    sl_lane lane;
    sl_device_stream *stream;                  /* NULL: this engine does not have the lane */
    _Atomic uint64_t ended_count;              /* calls and copies, ever; shared with lanes */
    _Atomic uint64_t busy_ns;                  /* shared with lanes */
    _Atomic uint64_t phase_ns[SL_PHASE_COUNT]; /* of it, by ops; shared with lanes */
    _Atomic uint64_t waited_ns[SL_LANE_COUNT]; /* by cause; shared with lanes */
} sl_engine_lane;

/* How long the control thread has waited while no lane got on; see deadline.c. */
typedef struct sl_deadline {
    uint64_t limit_ns;
    uint64_t ended_count; /* of all lanes, when it was asked last */
    uint64_t asked_ns;    /* when that was */
    uint64_t waited_ns;
    sl_first_failure failure; /* set: the deadline has passed */
} sl_deadline;

/* ---- the disk ---- */

/* A copy between host memory and the disk, and what to call it in messages. */
typedef struct sl_disk_copy {
    sl_lane lane; /* READ: to memory; WRITE: to the disk */
    void *memory;
    uint64_t offset, bytes; /* in the store */
    const char *value_name; /* NULL: a chunk */
    sl_group group;
    uint32_t chunk_index;
} sl_disk_copy;

/* One piece of the host arena, and which part of a chunk's home it holds; see disk.c. */
typedef struct sl_bounce_piece {
    sl_disk_copy copy; /* between the piece and the disk, as it was queued last; 0 bytes: nothing is
                          held */
    bool is_dirty, is_moving;
} sl_bounce_piece;

typedef struct sl_disk {
    sl_store *store; /* NULL: nothing is on disk */
    uint64_t bytes;  /* of its address space */
    sl_bounce_piece pieces[SL_BOUNCE_PIECES];
    uint32_t last_piece;      /* the one that was used last */
    uint32_t abandoned_count; /* once closed: requests that never came back */
} sl_disk;

/* ---- bound plans ---- */

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

/* Both ends of a copy; a pointer is NULL where that end is on disk. */
typedef struct sl_copy_ends {
    void *to;
    const void *from;
    uint64_t disk_offset; /* lanes read and write */
} sl_copy_ends;

/* A command with its addresses, tag and micro-batch in repetition 0. */
typedef struct sl_bound_command {
    const sl_command *command;
    uint64_t tag;
    sl_kernel kernel;                    /* RUN; NULL: an INPUT op, or a collective */
    sl_op_kind op_kind;                  /* RUN */
    sl_kernel_call call;                 /* RUN: all but the scalars */
    sl_copy_ends ends;                   /* COPY */
    uint64_t bytes;                      /* COPY, INPUT */
    uint32_t input_slot;                 /* INPUT */
    const char *value_name;              /* COPY of a value; borrowed from the program */
    uint32_t first_stride, stride_count; /* into strides */
    uint32_t first_wait,
        wait_count;  /* into waits: those that the lane's own order does not cover */
    uint64_t issued; /* how often, so far */
    /* Recorded after it. NULL: no wait needs it. The second is there if a wait is for the issue
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

/* ---- the engine ---- */

struct sl_engine {
    const sl_device_watcher *watcher; /* the device's; NULL: nobody looks */
    sl_engine_options options; /* `plans` stands in bound plans; only borrowed pointers are used */
    const sl_kernel_table *kernels;      /* of the device */
    const sl_kernel_table *host_kernels; /* of the host lane */
    sl_kernel_library *library;          /* of the device's kernels */
    const sl_device_ops *ops;
    sl_device *device;
    sl_workers *workers;
    sl_arena arenas[SL_ARENA_COUNT];
    sl_disk disk;
    sl_engine_lane lanes[SL_LANE_COUNT];
    sl_bound_plan *plans;
    uint32_t plan_count;
    sl_engine_source source; /* of the caller; `fill` NULL: no plan asks for inputs */
    sl_engine_ranks ranks;   /* of the caller; size 0: no plan has collectives of them */
    sl_engine_ranks data_ranks, stage_ranks; /* likewise */
    sl_engine_progress progress;             /* of the caller; `passed` NULL: it is not reported */
    sl_device_event *repetition_ends[SL_AHEAD_MOST]; /* on the compute lane, in turn */
    uint64_t repetitions_issued;                     /* ever, of all plans */
    uint32_t current_plan;        /* whose iteration ran last; SL_NONE: the boundary state */
    _Atomic uint32_t failed_lane; /* the first to fail, or SL_NONE; shared with lanes */
    sl_first_failure failure;     /* of an iteration: final */
    sl_deadline deadline;
    uint64_t step_ns;
    uint64_t moved_bytes[SL_LANE_COUNT];
    uint64_t touched_end[SL_TIER_COUNT];
};

/* What a test may put in the place of the engine's own. */
typedef struct sl_engine_parts {
    const sl_device_ops *device;              /* NULL: that of the target */
    const sl_kernel_table *kernels;           /* of device and host; NULL: those of the target */
    const struct sl_transport_ops *transport; /* NULL: the store's own choice */
    uint32_t disk_depth;                      /* 0: the store's default */
    uint32_t disk_limit_ms;                   /* likewise */
    uint32_t repetitions_ahead;               /* 0: by the plan; at most SL_AHEAD_MOST */
} sl_engine_parts;

/* sl_engine_open with parts of the caller's: for tests. */
sl_status sl_engine_open_with(const sl_engine_options *options, const sl_engine_parts *parts,
                              sl_engine **out_engine);

/* ---- step.c ---- */

/* One repetition of a section of a plan, which is being issued. */
typedef struct sl_repetition {
    sl_engine *engine;
    sl_bound_plan *plan;
    uint32_t index;                 /* of the section's repetitions */
    uint32_t micro_batches;         /* so many further on than the first one */
    const sl_step_scalars *scalars; /* NULL in a prologue, which runs no ops */
} sl_repetition;

/* Waits for all lanes: the boundary state. Returns the failure of the lane that failed first, or
 * the one that was kept. */
sl_status sl_step_drain(sl_engine *engine);

/* Drains only where an iteration has run since the last time: to ask a device's streams costs more
 * than to copy a tensor. */
sl_status sl_step_drain_if_running(sl_engine *engine);

/* Says that `lane` failed, for the control thread at once: it does not wait for other lanes' end.
 * Called by lanes. */
void sl_step_mark_failed_lane(_Atomic uint32_t *failed_lane, sl_lane lane);

/* ---- bound_plan.c ---- */

/* Binds a plan. On failure what was made is left for sl_bound_plan_close. */
sl_status sl_bound_plan_open(sl_engine *engine, const sl_engine_plan *source,
                             sl_bound_plan *out_bound);
void sl_bound_plan_close(sl_engine *engine, sl_bound_plan *bound);

/* The address of a place of a command, NULL where it has no bytes. */
sl_status sl_bound_plan_find_address(const sl_engine *engine, sl_bound_command *bound,
                                     const sl_place *place, void **out_address);

/* Keeps the stride of place number `which` of `command`, whose slots were checked, if it has one.
 * Strides of a command are added without those of another between them. */
sl_status sl_bound_plan_add_stride(sl_bound_plan *bound, sl_bound_command *command, uint32_t which,
                                   const sl_place *place);

/* How far from its place in repetition 0 a place is in another. */
static inline uint64_t sl_bound_stride_bytes(const sl_bound_stride *stride, uint32_t repetition)
{
    return repetition % stride->slots * stride->stride;
}

/* ---- op_kernels.c ---- */

/* Finds the kernel and the operands of a RUN command. */
sl_status sl_op_kernels_bind(const sl_engine *engine, sl_bound_plan *plan, sl_bound_command *bound);

/* Lets the device's kernels choose their algorithms for every distinct op of the bound plans. */
sl_status sl_op_kernels_prepare(sl_engine *engine);

/* Queues a bound RUN command on its lane. */
sl_status sl_op_kernels_issue(const sl_repetition *repetition, const sl_bound_command *bound,
                              uint64_t tag);

/* ---- inputs.c ---- */

/* Takes the source of `options`; writes whether their plans have INPUT ops. SL_ERROR_USAGE: they
 * have, and there is no source. */
sl_status sl_inputs_open(sl_engine *engine, const sl_engine_options *options, bool *out_has_inputs);

/* Checks and binds a command of the input lane, whose operands are bound. */
sl_status sl_inputs_bind(sl_bound_plan *plan, sl_bound_command *bound);

/* Queues a bound INPUT op; `call` is its call in this repetition. */
sl_status sl_inputs_issue(const sl_repetition *repetition, const sl_bound_command *bound,
                          uint64_t tag, const sl_kernel_call *call);

/* ---- collectives.c ---- */

/* Takes the ranks of `options`; writes whether their plans have collectives. SL_ERROR_USAGE: they
 * have, and there are no ranks, or not as many as the target says, or not on this device. */
sl_status sl_collectives_open(sl_engine *engine, const sl_engine_options *options,
                              bool *out_has_collectives);

/* Checks a command of the comm lane, whose operands are bound. */
sl_status sl_collectives_bind(const sl_engine *engine, const sl_bound_command *bound);

/* Workspace of a collective of a target's ranks. */
uint64_t sl_collectives_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                        const sl_engine_target *target);

/* SL_OK, or why what was queued on the comm lane is lost though its stream went on. */
sl_status sl_collectives_poll(const sl_engine *engine);

/* Queues a bound collective; `call` is its call in this repetition. */
sl_status sl_collectives_issue(const sl_repetition *repetition, const sl_bound_command *bound,
                               uint64_t tag, const sl_kernel_call *call);

/* ---- copies.c ---- */

/* Finds both ends of a COPY command. */
sl_status sl_copies_bind(const sl_engine *engine, sl_bound_plan *plan, sl_bound_command *bound);

/* Queues a bound COPY command on its lane. */
sl_status sl_copies_issue(const sl_repetition *repetition, const sl_bound_command *bound,
                          uint64_t tag);

/* Queues a copy on its lane, read or write. */
sl_status sl_copies_queue_disk_copy(sl_engine *engine, uint64_t tag, const sl_disk_copy *copy);

/* ---- arena.c ---- */

/* Bytes of a tier that the plans and homes of `options` need. */
uint64_t sl_arena_need(const sl_engine_options *options, sl_tier tier);

/* Maps the arenas that the plans and homes of `options` need. With a disk tier the host's base and
 * size are multiples of SL_DIRECT_ALIGNMENT. */
sl_status sl_arena_open(sl_engine *engine, const sl_engine_options *options);

/* Gives the arenas back, but for the host's where the disk still has requests: the system may read
 * or write there at any later time, so it stays mapped until the process ends. After sl_disk_close.
 */
void sl_arena_close(sl_engine *engine);

/* The address of a place's first slot; SL_ERROR_INTERNAL if not all slots are inside an arena. */
sl_status sl_arena_at(const sl_engine *engine, const sl_place *place, void **out_address);

/* Refuses a place whose slots lie over each other or leave the address space, or are not apart by a
 * multiple of `alignment`. */
sl_status sl_arena_check_slots(const sl_place *place, uint64_t alignment);

/* Copies between a place in an arena and plain memory, or sets it to zero, and waits for it. */
sl_status sl_arena_write(sl_engine *engine, const sl_place *place, const void *data);
sl_status sl_arena_read(sl_engine *engine, const sl_place *place, void *data);
sl_status sl_arena_clear(sl_engine *engine, const sl_place *place);

/* Bytes behind what the plans asked for that are mapped and painted too: a write beyond the plan
 * shows there. */
enum { SL_PAINT_BEYOND_BYTES = 2 << 20 };

/* ---- paint.c ---- */

/* Paints both arenas; the lanes have no commands, and nothing is in the arenas. */
sl_status sl_paint_arenas(sl_engine *engine);

/* ---- boundary.c ---- */

/* Sets homes and persistent slots to zero where memory is not fresh: guarded or painted. Writes the
 * flags. */
sl_status sl_boundary_fill(sl_engine *engine);

/* ---- disk.c ---- */

/* Opens the store over the directories of `options` if their plans or homes use the disk; after
 * sl_arena_open. SL_ERROR_USAGE: no directories. Others: see sl_store_open. */
sl_status sl_disk_open(sl_engine *engine, const sl_engine_options *options,
                       const sl_engine_parts *parts);
void sl_disk_close(sl_engine *engine); /* before sl_arena_close; lanes have ended */

/* True if `bytes` at `offset` are whole units of direct I/O. */
bool sl_disk_is_aligned(uint64_t offset, uint64_t bytes);

/* True if a range is inside the disk tier, and one of the store. */
bool sl_disk_holds(const sl_engine *engine, uint64_t offset, uint64_t bytes);

/* `bytes` of a chunk from `first_byte` of its home on. */
typedef struct sl_chunk_part {
    sl_group group;
    uint32_t chunk_index;
    sl_place home;
    uint64_t first_byte, bytes;
} sl_chunk_part;

/* Copies between a part of a chunk on disk and plain memory; the lanes have no commands. What was
 * written may be on its way, or still here, when the call returns: a failure comes back later. */
sl_status sl_disk_read_part(sl_engine *engine, const sl_chunk_part *part, void *data);
sl_status sl_disk_write_part(sl_engine *engine, const sl_chunk_part *part, const void *data);

/* Waits until the disk has all that was written. */
sl_status sl_disk_flush_parts(sl_engine *engine);

/* The same, and nothing is held any more: from here on lanes may write the chunks. */
sl_status sl_disk_release_parts(sl_engine *engine);

/* ---- deadline.c ---- */

/* For the observer of a stream, `blocked`: SL_ERROR_RANK once the lanes have stood still for too
 * long, and from then on always. */
sl_status sl_deadline_ask(void *lane);

/* Waits until the lanes have ended. False: they do not, and the device is told to give them up. */
bool sl_deadline_end_lanes(sl_engine *engine);

/* ---- statistics.c ---- */

/* A tag says what an item of a lane is. */
typedef enum sl_tag_kind {
    SL_TAG_UNCOUNTED,
    SL_TAG_PROLOGUE,
    SL_TAG_COPY, /* of a body */
    SL_TAG_OP    /* likewise */
} sl_tag_kind;

/* What fits into tags. */
enum { SL_TAG_PLANS = 1 << 6, SL_TAG_COMMANDS = 1 << 26, SL_TAG_REPETITIONS = 1 << 28 };

/* Of what is no command of a body. */
uint64_t sl_statistics_tag(sl_tag_kind kind);

/* Of command number `command`, which is bound, in repetition 0; one more is one repetition on. */
uint64_t sl_statistics_tag_body(uint32_t plan_index, const sl_bound_plan *plan, uint32_t command);

/* Of a wait for a command of another lane, whose tag is `command_tag`. */
uint64_t sl_statistics_tag_wait(sl_lane waited_for, uint64_t command_tag);

/* Finds the command of a body that a tag of an op or copy was made for. False: it is no such tag.
 */
bool sl_statistics_find_command(const sl_engine *engine, uint64_t tag,
                                const sl_bound_plan **out_plan, const sl_command **out_command);

/* What `lane`'s stream is to call. */
sl_queue_observer sl_statistics_observer(sl_engine_lane *lane);

/* Counts a command as it is issued. */
void sl_statistics_count_issue(sl_engine *engine, const sl_bound_command *bound);

#endif
