/* The device table: memory, streams, events, copies. One table for each kind of device.
 *
 * Contract of every entry: offsets and pointers are the caller's business, nothing is remembered
 * beyond what is named here; calls are made by one control thread; entries are never NULL. Streams
 * run beside each other; work of one stream runs in order. A failure of queued work is sticky in
 * its stream and comes back from stream_finish; where it is known earlier, as when a native stream
 * refuses, it comes back at once, too.
 *
 * Wherever the control thread has to wait for a stream, and be it for room in the stream, the
 * observer's `blocked` is asked every SL_QUEUE_ASK_MS; its error ends the wait and comes back.
 *
 * Streams are of two kinds: those of the device run kernels and copies, those of the host call
 * functions in a thread of their own. Events order both kinds among each other. All work is issued
 * in an order in which it could also run, one piece after the other, so a device that runs less
 * beside each other than it was asked to is slower, never stuck.
 *
 * The table never points at kernels: those are looked up by device kind (kernels/kernels.h).
 */
#ifndef SL_DEVICE_DEVICE_H
#define SL_DEVICE_DEVICE_H

#include "base/queue.h"
#include "base/status.h"
#include "sluice/device.h"

typedef struct sl_device sl_device;               /* an open device */
typedef struct sl_device_stream sl_device_stream; /* work in order */
typedef struct sl_device_event sl_device_event;   /* a point in a stream */

/* How memory is taken. Guards put an inaccessible page before and one after; the end of the memory
 * is flush with the page after it (up to 64 bytes of alignment). A device without such pages checks
 * when unmapping and writes to the log. Pattern fills it with 0xA5 first. */
typedef enum sl_map_flags { SL_MAP_PLAIN = 0, SL_MAP_GUARDS = 1, SL_MAP_PATTERN = 2 } sl_map_flags;

typedef enum sl_stream_kind { SL_STREAM_DEVICE, SL_STREAM_HOST } sl_stream_kind;

/* A tool, as profilers of GPUs are, that shows by name what was issued: all that the control thread
 * issues between `begin` and its `end`. Ranges nest; `name` is copied. */
typedef struct sl_device_watcher {
    void (*begin)(void *user, const char *name);
    void (*end)(void *user);
    void *user;
} sl_device_watcher;

typedef struct sl_device_ops {
    sl_device_kind kind;
    const char *name;  /* "cpu", "cuda" */
    const char *needs; /* of the machine, for people: "NVIDIA driver R580 or newer, ..."; "" */
    /* Why results of this device cannot be trusted yet, and how to prove them or do without the
     * device. Each run prints both once, as a warning. "": they can be trusted. */
    const char *doubt, *doubt_mend;

    /* Opens device number `index`; `options` NULL: the defaults. */
    sl_status (*open)(int index, const sl_cuda_options *options, sl_device **out_device);
    void (*close)(sl_device *device);

    sl_status (*describe)(sl_device *device, sl_device_info *out_info);

    /* Takes `bytes` of device memory, 4 KiB aligned at its start unless guarded (then 64 bytes),
     * zero unless patterned. It exists when this returns. SL_ERROR_FIT: there is not as much. */
    sl_status (*map)(sl_device *device, uint64_t bytes, int flags, void **out_memory);
    void (*unmap)(sl_device *device, void *memory, uint64_t bytes, int flags);

    /* Takes host memory that copies can reach directly: locked, huge pages where allowed; plain
     * with one warning where not. Same rules of alignment and content. */
    sl_status (*map_host)(sl_device *device, uint64_t bytes, int flags, void **out_memory);
    void (*unmap_host)(sl_device *device, void *memory, uint64_t bytes, int flags);

    /* `observer` (may be NULL; copied) is called for each call, copy and blocked wait of the
     * stream: of a host stream in its thread, as they end; of a device stream in the control
     * thread, at the latest in stream_finish or in an event_finish that this work precedes. For a
     * wait it is called after it was called for all that came before the record waited for, unless
     * a host stream waits for a device's. */
    sl_status (*stream_open)(sl_device *device, sl_stream_kind kind, const char *name,
                             const sl_queue_observer *observer, sl_device_stream **out_stream);
    sl_status (*stream_finish)(sl_device_stream *stream);
    void (*stream_close)(sl_device_stream *stream);

    /* What the stream does now; of a call or copy writes the tag. A native stream gives the tag of
     * the last of several calls that stand between the same two waits. */
    sl_queue_state (*stream_look)(sl_device_stream *stream, uint64_t *out_tag);

    /* Gives up a stream that does not end: a host stream begins nothing more. Neither the stream
     * nor its events, its memory and its device may be closed or unmapped afterwards. */
    void (*stream_abandon)(sl_device_stream *stream);

    /* What kernels launch into (a cudaStream_t); NULL where they are called in the stream's thread.
     */
    void *(*stream_native)(sl_device_stream *stream);

    sl_status (*event_open)(sl_device *device, sl_device_event **out_event);
    void (*event_close)(sl_device_event *event);
    /* As with sl_mark: a wait refers to the record issued last before it. */
    sl_status (*event_record)(sl_device_event *event, sl_device_stream *stream);
    sl_status (*event_wait)(sl_device_event *event, sl_device_stream *stream, uint64_t tag);
    sl_status (*event_finish)(sl_device_event *event);

    /* Queues `function` with a copy of its argument block (at most SL_QUEUE_ARGUMENT_BYTES). Where
     * the stream is native it is called at once, in the control thread, and what it launches is
     * queued; after a failure nothing is called. */
    sl_status (*launch)(sl_device_stream *stream, uint64_t tag, sl_queue_function function,
                        const void *arguments, uint32_t argument_bytes);

    /* The tool that watches this process, valid as long as the device; NULL: there is none. */
    const sl_device_watcher *(*watcher)(const sl_device *device);

    /* Queues a copy between device and host memory, either way, in a stream of the device. */
    sl_status (*copy)(sl_device_stream *stream, uint64_t tag, void *to, const void *from,
                      uint64_t bytes);
} sl_device_ops;

/* The table of a kind of device, or NULL where this build has none. */
const sl_device_ops *sl_device_ops_of(sl_device_kind kind);

/* ---- memory of the host (host.c) ---- */

/* Bytes that this process may still take: the least of the machine's available memory and what each
 * cgroup above it leaves. */
sl_status sl_device_host_free_bytes(uint64_t *out_bytes);

/* Of so many free bytes, those that are not for arenas: heap, stacks, page tables. */
uint64_t sl_device_host_reserve_bytes(uint64_t free_bytes);

/* What a run is about to take of the host's memory, by the tier that it is for. */
typedef struct sl_host_need {
    uint64_t device_bytes; /* of the cpu device; 0 where the device has memory of its own */
    uint64_t host_bytes;
    uint64_t disk_bytes; /* in directories that are memory */
} sl_host_need;

typedef struct sl_host_claim {
    int file; /* -1: nobody is kept out */
} sl_host_claim;

/* Compares a need with what is free: SL_ERROR_FIT names both. Until the claim is closed other
 * processes that take as much wait here, half a minute at most, so of two that start together the
 * second sees what the first has taken. */
sl_status sl_host_claim_open(const sl_host_need *need, sl_host_claim *out_claim);
void sl_host_claim_close(sl_host_claim *claim);

#endif
