/* The engine: takes the memory that plans ask for, and walks them.
 *
 * All memory is taken when the engine opens; a step allocates nothing. One control thread calls it.
 */
#ifndef SLUICE_ENGINE_H
#define SLUICE_ENGINE_H

#include "sluice/device.h"
#include "sluice/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* A wait of a lane for a command of another lane. The lane's next command is what waited. */
typedef struct sl_engine_wait {
    uint32_t plan_index;
    uint32_t command;   /* that was waited for, into the plan's body */
    sl_lane lane;       /* that waited */
    sl_lane waited_for; /* the lane of `command` */
    uint64_t start_ns, end_ns;
    uint64_t cause_ns[SL_LANE_COUNT]; /* its parts, by the lane that was waited for in the end */
} sl_engine_wait;

/* Hears of each command, for timelines: by one thread a lane, in the lane's order. */
typedef struct sl_engine_observer {
    void (*ran)(void *user, const sl_engine_event *event);
    void *user;
    void (*waited)(void *user, const sl_engine_wait *wait); /* NULL: it hears of no waits */
} sl_engine_observer;

/* What an INPUT op asks for. */
typedef struct sl_engine_fill {
    uint32_t plan_index;
    uint32_t slot;        /* of the input: SL_INPUT_TOKENS, SL_INPUT_TARGETS */
    uint32_t micro_batch; /* of the step */
    uint64_t bytes;
} sl_engine_fill;

/* Where inputs come from. `fill` writes all bytes of `memory`; it is called by the thread of the
 * input lane, ahead of the computation by as much as the plan allows, but never for a step that was
 * not called. A failure ends the step. */
typedef struct sl_engine_source {
    sl_status (*fill)(void *user, const sl_engine_fill *what, void *memory);
    void *user;
} sl_engine_source;

/* Called by the control thread, within sl_engine_step, when a repetition was issued: for progress.
 * `done` of `count` repetitions of the step, over all sections; a section that is run once has one.
 * At most sl_plan_repetitions_ahead of them are issued ahead of what the compute lane has done. */
typedef struct sl_engine_progress {
    void (*passed)(void *user, uint32_t plan_index, uint32_t done, uint32_t count);
    void *user;
} sl_engine_progress;

/* Who computes: the context of sl_engine_workspace_bytes. */
typedef struct sl_engine_target {
    sl_device_kind device;
    int device_index;
    uint32_t worker_count; /* >= 1: of the cpu device and, beside every device, of the host lane */
    sl_cuda_options cuda;
    uint32_t rank_count;      /* ranks that the tensors are split over; 0 or 1: they are not */
    uint32_t stage_count;     /* pipeline stages; 0 or 1: one */
    uint32_t data_rank_count; /* ranks that rows are shared among; 0 or 1: they are not */
} sl_engine_target;

/* Where a device's own exchanges are queued, and device memory, 256 B aligned, that they may use
 * until what was queued has run: of a sum, a piece of each rank at least. */
typedef struct sl_engine_queue {
    void *stream; /* a cudaStream_t */
    void *scratch;
    uint64_t scratch_bytes;
} sl_engine_queue;

/* How this rank adds and gathers with the others that the tensors are split over, or that have
 * other rows. The lane `comm` calls all, one call after the other, in the order of the plan, which
 * is the same on every rank; each waits for all of them. `all_reduce` leaves in `data`, host
 * memory, the sum of every element over the ranks, added in rank order in fp32 and rounded once.
 * `all_gather` leaves the parts of all ranks in `parts`, [size][bytes]. `reduce_scatter` leaves in
 * `to` [count] this rank's piece of the sum of `from` [size][count]. `all_reduce_stored` does what
 * all_reduce does with elements of type `stored`, each of which is rounded to `type` first;
 * `sum_shard` leaves in `shard` this rank's shard of the same sum of `data`, where it may stand
 * already. `gather_shards` leaves in `data` [bytes] the shard of each rank, of which this one's may
 * stand there. Shards are of equal size, in the order of ranks. A failure ends the step: the
 * caller then tells the other ranks, who may wait for this one. `post` hears of each exchange
 * before it begins: "all_reduce of h.3.mlp.c_proj, op 57".
 *
 * On a device with streams of its own all pointers are of its memory; the control thread calls, and
 * each call queues its work in the queue of the last `use` and returns. `poll`, which any
 * thread may call, returns an error if queued work is lost: the streams then go on, with arbitrary
 * contents in that memory. On a device without streams `poll` returns an error if a rank is lost.
 */
typedef struct sl_engine_ranks {
    uint32_t size, rank;
    sl_status (*all_reduce)(void *user, sl_type type, uint64_t element_count, void *data);
    sl_status (*all_gather)(void *user, uint64_t bytes, const void *part, void *parts);
    void *user;
    sl_status (*reduce_scatter)(void *user, sl_type type, uint64_t count, const void *from,
                                void *to);
    void (*post)(void *user, const char *op); /* or NULL */
    /* Of data-parallel ranks alone. */
    sl_status (*all_reduce_stored)(void *user, sl_type stored, sl_type type, uint64_t element_count,
                                   void *data);
    sl_status (*sum_shard)(void *user, sl_type stored, sl_type type, uint64_t element_count,
                           const void *data, void *shard);
    sl_status (*gather_shards)(void *user, uint64_t bytes, const void *shard, void *data);
    /* NULL where elements are in memory of the host. */
    void (*use)(void *user, const sl_engine_queue *queue);
    sl_status (*poll)(void *user);
    /* Of pipeline stages alone: to and from `rank`, both at once; NULL: not that way. */
    sl_status (*exchange)(void *user, uint32_t rank, uint64_t bytes, const void *given,
                          void *taken);
} sl_engine_ranks;

typedef struct sl_engine_options {
    sl_engine_target target;
    const sl_layout *layout; /* borrowed for the engine's life, as all pointers here */
    const sl_homes *homes;
    const sl_engine_plan *plans; /* at least one; copied */
    uint32_t plan_count;
    const char *const *disk_directories; /* of the disk tier; NULL where no plan uses it */
    uint32_t disk_directory_count;
    const sl_engine_source *source;     /* NULL where no plan has INPUT ops; copied */
    const sl_engine_ranks *ranks;       /* NULL where tensors are not split; copied */
    const sl_engine_ranks *data_ranks;  /* NULL where all rows are this rank's; copied */
    const sl_engine_ranks *stage_ranks; /* NULL where all layers are this rank's; copied */
    const sl_engine_progress *progress; /* or NULL; copied */
    bool guard_arenas;                  /* tests: guard pages, pattern */
    bool paint_arenas;                  /* for sl_engine_measure_arena */
    const sl_engine_observer *observer; /* or NULL */
    double timeout_s; /* how long no lane may get on while a call waits; then the call fails with
                         SL_ERROR_RANK, and so does every later one. 0: 600 */
} sl_engine_options;

/* Takes arenas of the largest peak of its plans, streams and workers. Checks
 * what keeps it inside its arenas (SL_ERROR_INTERNAL); whether a plan is right is the question of
 * sl_plan_verify, so verify first. All chunks are zero at their homes.
 * SL_ERROR_USAGE: a plan uses the disk and there are no disk_directories, or has INPUT ops and
 * there is no source, or collectives and there are no ranks. SL_ERROR_IO, SL_ERROR_MISSING: a
 * directory is not there, not safe or not large enough. */
SL_API sl_status sl_engine_open(const sl_engine_options *options, sl_engine **out_engine);

/* Drains, stops the lanes and returns all memory; NULL is fine. Host memory stays mapped where a
 * request of the disk never came back: the system may still use it. False: a lane did not end
 * within timeout_s. Then nothing is closed, and all that the engine has or has borrowed, and memory
 * that a call which failed was to copy from or to, must stay until the process ends, for the lane
 * may still use it. */
SL_API bool sl_engine_close(sl_engine *engine);

/* Host memory of input or output slot `slot` of plan `plan_index`, valid while the engine is open;
 * NULL for an input that INPUT ops fill. Inputs may be written between iterations; outputs are
 * current when sl_engine_step returns. Slots of different plans may share memory: asking for an
 * input of another plan than the one that ran last waits for the lanes. */
SL_API void *sl_engine_input(sl_engine *engine, uint32_t plan_index, uint32_t slot);

/* The same for an output; read it before the next step of any plan. */
SL_API const void *sl_engine_output(const sl_engine *engine, uint32_t plan_index, uint32_t slot);

/* Runs one iteration of a plan: prologue first if the last iteration was of another plan or a
 * boundary lies between. Returns when all outputs are in host memory and all inputs have been read,
 * from their slots or from the source; updates may still be running, and a failure of theirs comes
 * back from the next call. After a failure of any lane no more is computed, and at most the
 * repetition that is being issued is issued to its end. */
SL_API sl_status sl_engine_step(sl_engine *engine, uint32_t plan_index,
                                const sl_step_scalars *scalars);

/* Stops the engine after a rank was lost: lanes skip the work that they have not begun. The call
 * that waits for the lanes returns the error of the ranks' `poll`, so `poll` has to report the lost
 * rank by then. Does not block; any thread may call. */
SL_API void sl_engine_stop(sl_engine *engine);

/* Waits for all lanes: the boundary state. Returns the first failure of any lane. */
SL_API sl_status sl_engine_drain(sl_engine *engine);

/* Copies `bytes` at `first_byte` of a chunk's home to `data`. Drains first. */
SL_API sl_status sl_engine_read_chunk(sl_engine *engine, sl_group group, uint32_t chunk_index,
                                      uint64_t first_byte, uint64_t bytes, void *data);

/* The same the other way: sets the home. Padding is never written, so it stays zero. What goes to
 * the disk may still be on its way when the call returns: a failure comes back from a later call,
 * at the latest from sl_engine_drain or sl_engine_step. */
SL_API sl_status sl_engine_write_chunk(sl_engine *engine, sl_group group, uint32_t chunk_index,
                                       uint64_t first_byte, uint64_t bytes, const void *data);

/* Sets persistent slots (caches) to zero. Drains first. */
SL_API sl_status sl_engine_clear_persistent(sl_engine *engine);

/* Bytes of a persistent slot and where they are to stand too. */
typedef struct sl_engine_part {
    uint32_t slot;
    uint64_t from, to, bytes; /* both ranges are in the slot and do not overlap */
} sl_engine_part;

/* Copies a part of a persistent slot within it. Drains first. SL_ERROR_INTERNAL: there is no such
 * slot or part. */
SL_API sl_status sl_engine_copy_persistent(sl_engine *engine, const sl_engine_part *part);

typedef struct sl_engine_statistics {
    uint64_t step_ns;                    /* of the last sl_engine_step: call to return */
    uint64_t busy_ns[SL_LANE_COUNT];     /* since the last call of sl_engine_take_statistics */
    uint64_t stall_ns[SL_LANE_COUNT];    /* what the compute lane waited for, likewise; a lane that
                                            waited too passes its part on to what it waited for */
    uint64_t phase_ns[SL_PHASE_COUNT];   /* of the busy time of the compute and the host lane, that
                                            in ops of each phase, likewise */
    uint64_t moved_bytes[SL_LANE_COUNT]; /* bytes copied, counted by the engine, likewise */
    uint64_t measured_peak_bytes[SL_TIER_COUNT]; /* highest byte of each arena a command touched */
    uint64_t arena_bytes[SL_TIER_COUNT];         /* mapped, or reserved on disk */
} sl_engine_statistics;

/* Reads the counters and sets the "since" ones back to zero. */
SL_API void sl_engine_take_statistics(sl_engine *engine, sl_engine_statistics *out_statistics);

/* What was found changed in an arena that was painted when the engine opened (paint_arenas). Pages
 * are of 4 KiB. Homes are written when it opens, so they count as changed. */
typedef struct sl_engine_paint {
    uint64_t arena_bytes;   /* that the plans asked for */
    uint64_t painted_bytes; /* these and what lies behind them, where nothing may be written */
    uint64_t changed_bytes; /* of whole pages that hold a changed byte, inside the arena */
    uint64_t peak_bytes;    /* up to the last changed byte: above arena_bytes if one lies beyond */
} sl_engine_paint;

/* Looks for the last changed byte of an arena. Drains first; reads all of it. Zeros where nothing
 * is placed. SL_ERROR_INTERNAL: it was not painted, or the tier has no arena. */
SL_API sl_status sl_engine_measure_arena(sl_engine *engine, sl_tier tier,
                                         sl_engine_paint *out_paint);

/* What the device says of itself now, bytes free among it. */
SL_API sl_status sl_engine_describe_device(sl_engine *engine, sl_device_info *out_info);

/* How the disk tier is reached, for people: "io_uring, 32 x 1 MiB, registered buffers" or why not;
 * "" where nothing is on disk. Valid while the engine is open. */
SL_API const char *sl_engine_disk_description(const sl_engine *engine);

/* What the device's kernels chose for the ops of the plans, line `index`, for the record of a run;
 * NULL behind the last. Valid while the engine is open. */
SL_API const char *sl_engine_kernel_choice(const sl_engine *engine, uint64_t index);

/* The arena of device or host, for tests of promise 2. */
SL_API const void *sl_engine_arena(const sl_engine *engine, sl_tier tier);

/* The workspace query of the kernels that run on the device and on the host; its context is an
 * sl_engine_target. */
SL_API uint64_t sl_engine_workspace_bytes(const void *target, sl_op_kind kind,
                                          const sl_op_attrs *attrs, sl_tier tier);

#ifdef __cplusplus
}
#endif
#endif
