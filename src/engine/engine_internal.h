/* What the files of the engine share.
 *
 *   engine.c      opens and closes an engine; what a caller may look at
 *   step.c        a step: its states, and issuing a plan's commands to the lanes
 *   bound_plan.c  a plan made ready to be issued: every index a pointer, every wait an event
 *   op_kernels.c  RUN commands: which kernel an op gets, and how it is launched
 *   inputs.c      RUN commands of the input lane: the caller's source
 *   collectives.c RUN commands of the comm lane: the caller's other ranks
 *   copies.c      COPY commands: between memories, and between the host and the disk
 *   arena.c       one range of memory per tier; addresses are made here and nowhere else
 *   paint.c       which bytes of an arena were written, by a pattern written at opening
 *   boundary.c    chunks and persistent slots between iterations: find, read, write, clear
 *   disk.c        the disk tier: its store, and ranges of chunks that live there
 *   deadline.c    how long the control thread waits for lanes that make no progress
 *   statistics.c  what the lanes did, for how long, and for which lane they waited
 *
 * timeline.c stands beside the engine: an observer that draws what the lanes did.
 *
 * op_kernels.c, inputs.c and copies.c each handle one kind of command from end to end: bound when
 * the engine opens, issued in every repetition, run in its lane's thread.
 *
 * Threads: everything here belongs to the control thread except fields marked as shared with lanes,
 * which are atomic. After the engine has opened only the counts of issues in bound plans are
 * written.
 */
#ifndef SL_ENGINE_INTERNAL_H
#define SL_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "chunk/simulate/stall.h"
#include "device/device.h"
#include "engine/engine.h"
#include "kernels/kernels.h"
#include "offload/store.h"

/* ---- memory ---- */

enum { SL_ARENA_COUNT = 2 }; /* tiers in memory: SL_TIER_DEVICE and SL_TIER_HOST */

typedef struct sl_arena {
    unsigned char *base;   /* NULL: nothing is placed here */
    uint64_t bytes;        /* the largest peak of the plans */
    uint64_t mapped_bytes; /* `bytes` rounded up to the alignment of places; more if painted */
} sl_arena;

/* ---- lanes ---- */

/* A lane at work. The counters are written by the lane's thread. */
typedef struct sl_engine_lane {
    struct sl_engine_lane *lanes;       /* of the engine, [SL_LANE_COUNT] */
    struct sl_engine *engine;           /* the control thread's */
    pthread_mutex_t lock;               /* of `waits` */
    sl_stall_history waits;             /* shared with lanes */
    const sl_engine_observer *observer; /* the caller's, or NULL */
    sl_lane lane;
    sl_device_stream *stream;                  /* NULL: the engine does not have the lane */
    _Atomic uint64_t ended_count;              /* calls and copies, ever; shared with lanes */
    _Atomic uint64_t busy_ns;                  /* shared with lanes */
    _Atomic uint64_t phase_ns[SL_PHASE_COUNT]; /* busy time by phase of ops; shared with lanes */
    _Atomic uint64_t waited_ns[SL_LANE_COUNT]; /* by cause; shared with lanes */
} sl_engine_lane;

/* How long the control thread has waited without progress of a lane; see deadline.c. */
typedef struct sl_deadline {
    uint64_t limit_ns;
    uint64_t ended_count; /* of all lanes, at the last question */
    uint64_t asked_ns;    /* time of the last question */
    uint64_t waited_ns;
    sl_first_failure failure; /* set: the deadline has passed */
} sl_deadline;

/* ---- the disk ---- */

/* A copy between host memory and the disk, with a name for messages. */
typedef struct sl_disk_copy {
    sl_lane lane; /* READ: to memory; WRITE: to the disk */
    void *memory;
    uint64_t offset, bytes; /* in the store */
    const char *value_name; /* NULL: a chunk */
    sl_group group;
    uint32_t chunk_index;
} sl_disk_copy;

/* A bounce piece of the host arena, and the window of a chunk's home that it holds; see disk.c. */
typedef struct sl_bounce_piece {
    sl_disk_copy copy; /* the last copy queued between piece and disk; 0 bytes: nothing is held */
    bool is_dirty, is_moving;
} sl_bounce_piece;

typedef struct sl_disk {
    sl_store *store; /* NULL: nothing is on disk */
    uint64_t bytes;  /* of its address space */
    sl_bounce_piece pieces[SL_BOUNCE_PIECES];
    uint32_t last_piece;      /* the piece that was used last */
    uint32_t abandoned_count; /* after closing: requests that never completed */
} sl_disk;

/* ---- bound plans ---- */

typedef struct sl_bound_wait {
    uint32_t command; /* of the body */
    uint32_t age;     /* as in sl_wait */
    uint64_t tag;
} sl_bound_wait;

/* Numbers of a command's places; those of a RUN are numbered as its operands. */
enum { SL_BOUND_FROM = 0, SL_BOUND_TO = 1, SL_BOUND_WORKSPACE = SL_OPERAND_MAX };

/* A place of a command that moves from repetition to repetition. */
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
        wait_count;  /* into waits, without those that the lane's own order covers */
    uint64_t issued; /* number of issues so far */
    /* Recorded after the command. NULL: no wait needs it. The second event exists if a wait has age
     * 1; then issue i (from 0) records events[i % 2]. */
    sl_device_event *events[2];
    uint64_t touched_end[SL_TIER_COUNT]; /* end of the highest place that the command touches */
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
    uint32_t repetitions_ahead; /* at most issued and not yet finished by the compute lane */
    void **inputs;   /* [input_count] by slot; NULL: no command reads the slot, or INPUT ops fill
                        it */
    bool *is_filled; /* [input_count] by slot: filled by INPUT ops */
    void **outputs;  /* [output_count] by slot */
    uint32_t input_count, output_count;
    /* The last command of each lane that a step has to wait for; SL_NONE: none. */
    uint32_t last_awaited[SL_LANE_COUNT];
} sl_bound_plan;

/* ---- the engine ---- */

/* Other ranks: those that share tensors, rows and layers with this one. */
typedef enum sl_rank_set {
    SL_RANKS_TENSOR,
    SL_RANKS_DATA,
    SL_RANKS_STAGES,
    SL_RANK_SETS
} sl_rank_set;

struct sl_engine {
    const sl_device_watcher *watcher; /* the device's; NULL: none */
    sl_engine_options options; /* without `plans`, which bound plans hold; only borrowed pointers
                                  are used */
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
    sl_engine_source source;             /* the caller's; `fill` NULL: no plan has INPUT ops */
    sl_engine_ranks ranks[SL_RANK_SETS]; /* the caller's; size 0: no plan has collectives of these
                                            ranks */
    sl_engine_progress progress;         /* the caller's; `passed` NULL: not reported */
    sl_device_event *repetition_ends[SL_AHEAD_MOST]; /* on the compute lane, used as a ring */
    uint64_t repetitions_issued;                     /* since opening, of all plans */
    uint32_t current_plan;        /* of the last iteration; SL_NONE: the boundary state */
    _Atomic uint32_t failed_lane; /* the first to fail, or SL_NONE; shared with lanes */
    sl_first_failure failure;     /* of an iteration; every later call returns it */
    sl_deadline deadline;
    uint64_t step_ns;
    uint64_t moved_bytes[SL_LANE_COUNT];
    uint64_t touched_end[SL_TIER_COUNT];
};

/* Replacements that a test may give for the engine's own. */
typedef struct sl_engine_parts {
    const sl_device_ops *device;              /* NULL: that of the target */
    const sl_kernel_table *kernels;           /* of device and host; NULL: those of the target */
    const struct sl_transport_ops *transport; /* NULL: the store's own choice */
    uint32_t disk_depth;                      /* 0: the store's default */
    uint32_t disk_limit_ms;                   /* likewise */
    uint32_t repetitions_ahead;               /* 0: by the plan; at most SL_AHEAD_MOST */
} sl_engine_parts;

/* For tests: sl_engine_open with replacements. */
sl_status sl_engine_open_with(const sl_engine_options *options, const sl_engine_parts *parts,
                              sl_engine **out_engine);

/* ---- step.c ---- */

/* One repetition of a section of a plan, which is being issued. */
typedef struct sl_repetition {
    sl_engine *engine;
    sl_bound_plan *plan;
    uint32_t index;                 /* of the section's repetitions */
    uint32_t micro_batches;         /* micro-batches since the section's first one */
    const sl_step_scalars *scalars; /* NULL in a prologue, which runs no ops */
} sl_repetition;

/* Waits for all lanes, which gives the boundary state. Returns the failure of the lane that failed
 * first, or the kept one. */
sl_status sl_step_drain(sl_engine *engine);

/* Drains only if an iteration has run since the last drain: querying a device's streams costs more
 * than copying a tensor. */
sl_status sl_step_drain_if_running(sl_engine *engine);

/* Reports that `lane` failed, so that the control thread learns it without waiting for other lanes.
 * Called by lanes. */
void sl_step_mark_failed_lane(_Atomic uint32_t *failed_lane, sl_lane lane);

/* ---- bound_plan.c ---- */

/* Binds a plan. On failure sl_bound_plan_close frees what was allocated. */
sl_status sl_bound_plan_open(sl_engine *engine, const sl_engine_plan *source,
                             sl_bound_plan *out_bound);
void sl_bound_plan_close(sl_engine *engine, sl_bound_plan *bound);

/* The address of a place of a command; NULL if the place has no bytes. */
sl_status sl_bound_plan_find_address(const sl_engine *engine, sl_bound_command *bound,
                                     const sl_place *place, void **out_address);

/* Keeps the stride of place number `which` of `command`, if it has one; its slots have been
 * checked. All strides of a command must be added before those of another one. */
sl_status sl_bound_plan_add_stride(sl_bound_plan *bound, sl_bound_command *command, uint32_t which,
                                   const sl_place *place);

/* Bytes from the place in repetition 0 to the place in `repetition`. */
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

/* Copies the source of `options`; writes whether a plan has INPUT ops. SL_ERROR_USAGE: a plan has,
 * and there is no source. */
sl_status sl_inputs_open(sl_engine *engine, const sl_engine_options *options, bool *out_has_inputs);

/* Checks and binds a command of the input lane, whose operands are bound. */
sl_status sl_inputs_bind(sl_bound_plan *plan, sl_bound_command *bound);

/* Queues a bound INPUT op; `call` is its call in this repetition. */
sl_status sl_inputs_issue(const sl_repetition *repetition, const sl_bound_command *bound,
                          uint64_t tag, const sl_kernel_call *call);

/* ---- collectives.c ---- */

/* Copies the ranks of `options`; writes whether a plan has collectives. SL_ERROR_USAGE: a plan has,
 * and there are no ranks, or not as many as the target says, or not on this device. */
sl_status sl_collectives_open(sl_engine *engine, const sl_engine_options *options,
                              bool *out_has_collectives);

/* Checks a command of the comm lane, whose operands are bound. */
sl_status sl_collectives_bind(const sl_engine *engine, const sl_bound_command *bound);

/* Workspace bytes of a collective of the target's ranks. */
uint64_t sl_collectives_workspace_bytes(sl_op_kind kind, const sl_op_attrs *attrs,
                                        const sl_engine_target *target);

/* SL_OK, or the error with which queued work of the comm lane was lost while its stream went on. */
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

/* Frees the arenas; call after sl_disk_close. If disk requests were abandoned the host arena stays
 * mapped until the process ends, because the system may read or write it at any later time.
 */
void sl_arena_close(sl_engine *engine);

/* The address of a place's first slot; SL_ERROR_INTERNAL if not all slots are inside an arena. */
sl_status sl_arena_at(const sl_engine *engine, const sl_place *place, void **out_address);

/* Refuses a place whose slots overlap, leave the address space, or have a stride that is not a
 * multiple of `alignment`. */
sl_status sl_arena_check_slots(const sl_place *place, uint64_t alignment);

/* Copies between an address in a tier's arena and plain memory, and waits for it; `lane` is H2D or
 * D2H. */
sl_status sl_arena_move(sl_engine *engine, sl_tier tier, sl_lane lane, void *to, const void *from,
                        uint64_t bytes);

/* Copies between a place in an arena and plain memory, or sets it to zero, and waits for it. */
sl_status sl_arena_write(sl_engine *engine, const sl_place *place, const void *data);
sl_status sl_arena_read(sl_engine *engine, const sl_place *place, void *data);
sl_status sl_arena_clear(sl_engine *engine, const sl_place *place);

/* Bytes behind the arena that are mapped and painted too, to find writes beyond the plan. */
enum { SL_PAINT_BEYOND_BYTES = 2 << 20 };

/* ---- paint.c ---- */

/* Writes the pattern into both arenas, which must be empty while the lanes have no commands. */
sl_status sl_paint_arenas(sl_engine *engine);

/* ---- boundary.c ---- */

/* Sets homes and caches to zero if the memory is guarded or painted, and writes the constants and
 * the flags of blocks. */
sl_status sl_boundary_fill(sl_engine *engine);

/* ---- disk.c ---- */

/* Opens the store over the directories of `options` if a plan or a home uses the disk; after
 * sl_arena_open. SL_ERROR_USAGE: no directories. Others: see sl_store_open. */
sl_status sl_disk_open(sl_engine *engine, const sl_engine_options *options,
                       const sl_engine_parts *parts);
void sl_disk_close(sl_engine *engine); /* before sl_arena_close; lanes have ended */

/* True if `bytes` at `offset` are whole units of direct I/O. */
bool sl_disk_is_aligned(uint64_t offset, uint64_t bytes);

/* True if a range is inside the disk tier and aligned as the store requires. */
bool sl_disk_holds(const sl_engine *engine, uint64_t offset, uint64_t bytes);

/* `bytes` of a chunk from `first_byte` of its home on. */
typedef struct sl_chunk_range {
    sl_group group;
    uint32_t chunk_index;
    sl_place home;
    uint64_t first_byte, bytes;
} sl_chunk_range;

/* Copies between a range of a chunk on disk and any memory; the lanes have no commands. Written
 * bytes may still be in a bounce piece or on their way when the call returns: a later call returns
 * their failure. */
sl_status sl_disk_read_range(sl_engine *engine, const sl_chunk_range *range, void *data);
sl_status sl_disk_write_range(sl_engine *engine, const sl_chunk_range *range, const void *data);

/* Waits until the disk has all that was written. */
sl_status sl_disk_flush_pieces(sl_engine *engine);

/* The same, and empties the bounce pieces: from here on lanes may write the chunks. */
sl_status sl_disk_release_pieces(sl_engine *engine);

/* ---- deadline.c ---- */

/* The `blocked` entry of a stream's observer: SL_ERROR_RANK once the lanes have made no progress
 * for too long, and from then on always. */
sl_status sl_deadline_ask(void *lane);

/* Waits until the lanes have ended. False: they did not, and the device was told to abandon
 * them. */
bool sl_deadline_end_lanes(sl_engine *engine);

/* ---- statistics.c ---- */

/* A tag identifies an item of a lane. */
typedef enum sl_tag_kind {
    SL_TAG_UNCOUNTED,
    SL_TAG_PROLOGUE,
    SL_TAG_COPY, /* of a body */
    SL_TAG_OP    /* likewise */
} sl_tag_kind;

/* Limits of the numbers in tags. */
enum { SL_TAG_PLANS = 1 << 6, SL_TAG_COMMANDS = 1 << 26, SL_TAG_REPETITIONS = 1 << 28 };

/* The tag of an item that is no command of a body. */
uint64_t sl_statistics_tag(sl_tag_kind kind);

/* The tag of bound command number `command` in repetition 0; add r for repetition r. */
uint64_t sl_statistics_tag_body(uint32_t plan_index, const sl_bound_plan *plan, uint32_t command);

/* The tag of a wait for a command of another lane. */
uint64_t sl_statistics_tag_wait(sl_lane waited_for, uint64_t command_tag);

/* Finds the command of a body by the tag of an op or copy. False: the tag is another one. */
bool sl_statistics_find_command(const sl_engine *engine, uint64_t tag,
                                const sl_bound_plan **out_plan, const sl_command **out_command);

/* The observer for `lane`'s stream. */
sl_queue_observer sl_statistics_observer(sl_engine_lane *lane);

/* Counts a command as it is issued. */
void sl_statistics_count_issue(sl_engine *engine, const sl_bound_command *bound);

#endif
