/* The engine: takes the memory that plans ask for, and runs them.
 *
 * All memory is taken when the engine opens; a step allocates nothing. One control thread calls it.
 */
#ifndef SL_ENGINE_ENGINE_H
#define SL_ENGINE_ENGINE_H

#include "chunk/plan.h"
#include "device/cuda_options.h"
#include "sluice/device.h"

typedef struct sl_engine sl_engine;

typedef struct sl_engine_plan {
    const sl_program *program; /* all plans of an engine use the same tensors in the same order */
    const sl_plan *plan;
} sl_engine_plan;

/* A command of a body that a lane ran; times are CLOCK_MONOTONIC nanoseconds. */
typedef struct sl_engine_event {
    uint32_t plan_index;
    uint32_t command;    /* into the plan's body */
    uint32_t repetition; /* of its section */
    sl_lane lane;
    uint64_t start_ns, end_ns;
} sl_engine_event;

/* A wait of a lane for a command of another lane. */
typedef struct sl_engine_wait {
    uint32_t plan_index;
    uint32_t command;   /* waited for; into the plan's body */
    sl_lane lane;       /* that waited, with its next command */
    sl_lane waited_for; /* the lane of `command` */
    uint64_t start_ns, end_ns;
    uint64_t cause_ns[SL_LANE_COUNT]; /* the wait, divided by the lanes that it was for in the
                                         end */
} sl_engine_wait;

/* Callbacks for timelines: by one thread per lane, in the lane's order. */
typedef struct sl_engine_observer {
    void (*ran)(void *user, const sl_engine_event *event);
    void *user;
    void (*waited)(void *user, const sl_engine_wait *wait); /* or NULL */
} sl_engine_observer;

/* What an INPUT op asks for. */
typedef struct sl_engine_fill {
    uint32_t plan_index;
    uint32_t slot;        /* of the input: SL_INPUT_TOKENS, ... */
    uint32_t micro_batch; /* of the step */
    uint64_t bytes;
} sl_engine_fill;

/* The source of inputs. `fill` writes all bytes of `memory`. The thread of the input lane calls it,
 * as far ahead of the computation as the plan allows, but only for steps that were called. A
 * failure ends the step. */
typedef struct sl_engine_source {
    sl_status (*fill)(void *user, const sl_engine_fill *what, void *memory);
    void *user;
} sl_engine_source;

/* Called by the control thread, within sl_engine_step, when a repetition was issued: for progress.
 * `done` of `count` repetitions of the step have been issued, over all sections; a section that is
 * run once has one. At most sl_plan_repetitions_ahead of them are not yet finished by the compute
 * lane. */
typedef struct sl_engine_progress {
    void (*passed)(void *user, uint32_t plan_index, uint32_t done, uint32_t count);
    void *user;
} sl_engine_progress;

/* The device and the ranks; the context of sl_engine_workspace_bytes. */
typedef struct sl_engine_target {
    sl_device_kind device;
    int device_index;
    uint32_t worker_count; /* >= 1: threads of the cpu device, and with any device of the host
                              lane */
    sl_cuda_options cuda;
    uint32_t rank_count;      /* tensor-parallel ranks; 0 or 1: one */
    uint32_t stage_count;     /* pipeline stages; 0 or 1: one */
    uint32_t data_rank_count; /* data-parallel ranks; 0 or 1: one */
} sl_engine_target;

/* The stream on which exchanges between GPUs are queued, and device memory, 256 B aligned, that
 * they may use until they have run: for a sum at least one piece of each rank. */
typedef struct sl_engine_queue {
    void *stream; /* a cudaStream_t */
    void *scratch;
    uint64_t scratch_bytes;
} sl_engine_queue;

/* The collectives of this rank with the other ranks of a communicator. Each collective waits for
 * all ranks. The lane `comm` calls them one after the other, in the order of the plan, which is the
 * same on every rank. A failure ends the step: the caller then tells the other ranks, which may be
 * waiting for this one. In all sums elements of type `stored` are rounded to `type`, added in rank
 * order in fp32 and rounded once to `type`. [N] is `size`; pieces are in rank order.
 *
 *   all_reduce      data [count]: the sum over the ranks, in place
 *   reduce_scatter  to [count]: this rank's piece of the sum of from [N][count]; `to` may be that
 *                   piece of `from`
 *   all_gather      parts [N][bytes]: `part` of each rank; `part` may be that part of `parts`
 *   exchange        sends `sent` to rank `rank` and receives `received` from it, both at once; for
 *                   pipeline stages only; sent or received NULL: that direction is not used
 *   post            called before each exchange: "all_reduce of h.3.mlp.c_proj, op 57"
 *
 * Memory is the host's, except on a device with streams: then all pointers are to the device's
 * memory, the control thread calls, and each call queues its work on the queue of the last `use`
 * and returns. `poll` may be called by any thread. It returns an error if queued work (on a device
 * with streams) or a rank is lost; after lost work the streams go on, with arbitrary contents in
 * that memory.
 */
typedef struct sl_engine_ranks {
    uint32_t size, rank;
    void *user;
    sl_status (*all_reduce)(void *user, sl_type stored, sl_type type, uint64_t count, void *data);
    sl_status (*reduce_scatter)(void *user, sl_type stored, sl_type type, uint64_t count,
                                const void *from, void *to);
    sl_status (*all_gather)(void *user, uint64_t bytes, const void *part, void *parts);
    sl_status (*exchange)(void *user, uint32_t rank, uint64_t bytes, const void *sent,
                          void *received);
    void (*post)(void *user, const char *op);              /* or NULL */
    void (*use)(void *user, const sl_engine_queue *queue); /* NULL without streams */
    sl_status (*poll)(void *user);                         /* or NULL */
} sl_engine_ranks;

typedef struct sl_engine_options {
    sl_engine_target target;
    const sl_layout *layout; /* borrowed for the engine's life, as all pointers here */
    const sl_homes *homes;
    const sl_engine_plan *plans; /* at least one; the array is copied */
    uint32_t plan_count;
    const char *const *disk_directories; /* of the disk tier; NULL if no plan uses it */
    uint32_t disk_directory_count;
    const sl_engine_source *source;     /* NULL where no plan has INPUT ops; copied */
    const sl_engine_ranks *ranks;       /* tensor-parallel; NULL: one rank; copied */
    const sl_engine_ranks *data_ranks;  /* data-parallel; NULL: one rank; copied */
    const sl_engine_ranks *stage_ranks; /* pipeline stages; NULL: one; copied */
    const sl_engine_progress *progress; /* or NULL; copied */
    bool guard_arenas;                  /* for tests: guard pages around arenas, filled with a
                                           pattern */
    bool paint_arenas;                  /* for sl_engine_measure_arena */
    const sl_engine_observer *observer; /* or NULL */
    double timeout_s; /* how long a call waits while no lane makes progress; then the call and all
                         later ones fail with SL_ERROR_RANK. 0: 600 */
} sl_engine_options;

/* Takes arenas of the largest peak of its plans, starts streams and workers. All chunks are zero at
 * their homes. Checks that commands stay inside the arenas (SL_ERROR_INTERNAL), but not that plans
 * are right: call sl_plan_verify first. SL_ERROR_USAGE: a plan uses the disk and there are no
 * disk_directories, or has INPUT ops and there is no source, or collectives and there are no ranks.
 * SL_ERROR_IO, SL_ERROR_MISSING: a directory does not exist, is not safe or not large enough. */
sl_status sl_engine_open(const sl_engine_options *options, sl_engine **out_engine);

/* Drains, stops the lanes and frees all memory; NULL is fine. Host memory stays mapped if a disk
 * request never completed, because the system may still use the memory. Returns false if a lane did
 * not end within timeout_s. Then nothing is closed: everything that the engine owns or borrows, and
 * memory that a failed call was to copy from or to, must stay until the process ends, because the
 * lane may still use it. */
bool sl_engine_close(sl_engine *engine);

/* Host memory of input slot `slot` of plan `plan_index`, valid while the engine is open; NULL for
 * an input that INPUT ops fill. Inputs may be written between iterations. Slots of different plans
 * may share memory: asking for an input of another plan than the one that ran last waits for the
 * lanes. */
void *sl_engine_input(sl_engine *engine, uint32_t plan_index, uint32_t slot);

/* The same for an output: current when sl_engine_step returns, valid until the next step of any
 * plan. */
const void *sl_engine_output(const sl_engine *engine, uint32_t plan_index, uint32_t slot);

/* Runs one iteration of a plan: prologue first if the last iteration was of another plan or a
 * boundary lies between. Returns when all outputs are in host memory and all inputs have been read,
 * from their slots or from the source. Updates may still be running; their failure is returned by
 * the next call. After a failure of any lane nothing more is computed, and no further repetition is
 * issued. */
sl_status sl_engine_step(sl_engine *engine, uint32_t plan_index, const sl_step_scalars *scalars);

/* Stops the engine after a rank was lost: lanes skip the work that they have not begun. The call
 * that waits for the lanes returns the error of the ranks' `poll`, so `poll` has to report the lost
 * rank by then. Does not block; any thread may call. */
void sl_engine_stop(sl_engine *engine);

/* Waits for all lanes, which gives the boundary state. Returns the first failure of any lane. */
sl_status sl_engine_drain(sl_engine *engine);

/* Copies `bytes` at `first_byte` of a chunk's home to `data`. Drains first. */
sl_status sl_engine_read_chunk(sl_engine *engine, sl_group group, uint32_t chunk_index,
                               uint64_t first_byte, uint64_t bytes, void *data);

/* The address of `bytes` at `first_byte` of a chunk's home, for reading without a copy. Drains
 * first. Valid while the engine is open; steps and sl_engine_write_chunk change what is there.
 * SL_ERROR_USAGE: the home is on disk, or in device memory that the processor cannot read. */
sl_status sl_engine_map_chunk(sl_engine *engine, sl_group group, uint32_t chunk_index,
                              uint64_t first_byte, uint64_t bytes, const void **out_address);

/* Copies `data` to a chunk's home. Drains first. Padding is never written, so it stays zero. Bytes
 * for the disk may still be on their way when the call returns: a failure is returned by a later
 * call, at the latest by sl_engine_drain or sl_engine_step. */
sl_status sl_engine_write_chunk(sl_engine *engine, sl_group group, uint32_t chunk_index,
                                uint64_t first_byte, uint64_t bytes, const void *data);

/* Sets the caches to zero: all persistent slots but the constants. Drains first. */
sl_status sl_engine_clear_persistent(sl_engine *engine);

/* A copy within a persistent slot. */
typedef struct sl_engine_slot_copy {
    uint32_t slot;
    uint64_t from, to, bytes; /* both ranges are in the slot and do not overlap */
} sl_engine_slot_copy;

/* Copies bytes of a persistent slot to another place in the slot. Drains first. SL_ERROR_INTERNAL:
 * there is no such slot or range. */
sl_status sl_engine_copy_persistent(sl_engine *engine, const sl_engine_slot_copy *copy);

typedef struct sl_engine_statistics {
    uint64_t step_ns;                    /* of the last sl_engine_step: call to return */
    uint64_t busy_ns[SL_LANE_COUNT];     /* since the last call of sl_engine_take_statistics */
    uint64_t stall_ns[SL_LANE_COUNT];    /* time that the compute lane waited, by lane, likewise; a
                                            wait for a lane that itself waited counts for the lane
                                            waited for in the end */
    uint64_t phase_ns[SL_PHASE_COUNT];   /* busy time of the compute and the host lane in ops of
                                            each phase, likewise */
    uint64_t moved_bytes[SL_LANE_COUNT]; /* bytes copied, counted by the engine, likewise */
    uint64_t measured_peak_bytes[SL_TIER_COUNT]; /* end of the highest byte that a command touched
                                                    in each arena */
    uint64_t arena_bytes[SL_TIER_COUNT];         /* mapped, or reserved on disk */
} sl_engine_statistics;

/* Reads the counters and sets those since the last call to zero. */
void sl_engine_take_statistics(sl_engine *engine, sl_engine_statistics *out_statistics);

/* What was found changed in an arena that was painted, filled with a pattern, when the engine
 * opened (paint_arenas). Pages are of 4 KiB. Homes are written at opening, so they count as
 * changed. */
typedef struct sl_engine_paint {
    uint64_t arena_bytes;   /* the size of the arena */
    uint64_t painted_bytes; /* the arena and the bytes behind it, where nothing may be written */
    uint64_t changed_bytes; /* of whole pages that hold a changed byte, inside the arena */
    uint64_t peak_bytes;    /* up to the last changed byte: above arena_bytes if one lies beyond */
} sl_engine_paint;

/* Looks for the last changed byte of an arena. Drains first; reads all of it. Zeros where nothing
 * is placed. SL_ERROR_INTERNAL: it was not painted, or the tier has no arena. */
sl_status sl_engine_measure_arena(sl_engine *engine, sl_tier tier, sl_engine_paint *out_paint);

/* The device's properties now; free_bytes is read anew. */
sl_status sl_engine_describe_device(sl_engine *engine, sl_device_info *out_info);

/* How the disk tier does I/O, for people: "io_uring, 32 x 1 MiB, registered buffers" or why not; ""
 * if nothing is on disk. Valid while the engine is open. */
const char *sl_engine_disk_description(const sl_engine *engine);

/* The algorithms of the device's products (sl_kernels_list_algorithms); the caller frees. */
sl_status sl_engine_list_algorithms(const sl_engine *engine, const char *before, const char *behind,
                                    char **out_text);

/* The arena of device or host; for tests that compare planned with touched bytes. */
const void *sl_engine_arena(const sl_engine *engine, sl_tier tier);

/* The workspace query of the kernels that run on the device and on the host; its context is an
 * sl_engine_target. */
uint64_t sl_engine_workspace_bytes(const void *target, sl_op_kind kind, const sl_op_attrs *attrs,
                                   sl_tier tier);

#endif
