/* Which work on a GPU is ordered after which, whatever happened to come first: a checker behind the
 * stand-in's streams. Two pieces of work that touch a byte, one of them writing, must be ordered by
 * what CUDA and the device promise: the order of a stream, a record and a wait for it, a word and
 * its value, a thread that waited. If they are not, that is a fault that names both, whether or not
 * the stand-in's delays made them meet.
 *
 * An agent works in order: a stream, a host stream's thread, any other thread. A clock says of
 * every agent how much of its work comes before (vector clocks; Lamport 1978, Fidge and Mattern
 * 1988). An agent joins the clock of whatever it waits for. Of each byte the last write and the
 * reads since are kept, as ranges (stream_order_memory.h); only those can be unordered with what
 * comes next and not have been found before, as in FastTrack (Flanagan and Freund 2009).
 *
 * Only what is promised makes order. That a queue's lock was taken by one thread after another, or
 * that a full stream let its caller go on, does not. A question that was answered with yes does
 * (cudaEventQuery); standin_machine.late_answers takes that luck away.
 *
 * Who touches what: copies and sets know it themselves. Of an op's launches it is the op's operands
 * and its workspace, declared around its kernel by stream_order_ops.c, which also sees the ops of
 * the host lane, the disk's transfers, inputs, outputs and the engine's own copies. The order among
 * host threads comes from the queues' calls (stream_order_queues.c). All of these are seen by
 * wrapping calls (ld --wrap): a program has to be linked as CMakeLists.txt says.
 *
 * Cost: a range costs the logarithm of the number of ranges that are kept, and the ranges inside of
 * it. A write leaves one range in its place, so what is kept has at most the borders of what is
 * used, however long it goes on.
 */
#ifndef SL_TESTS_CUDA_STREAM_ORDER_H
#define SL_TESTS_CUDA_STREAM_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that some work touches. `name`, of the operand, is borrowed for ever, as all names here. */
typedef struct standin_range {
    const void *first;
    uint64_t bytes;
    bool is_written; /* too, or only */
    const char *name;
} standin_range;

/* ---- for those who know what is touched; without the stand-in's lock ---- */

/* What the calling thread issues from now on belongs to `op` and touches these ranges, which are
 * copied; op NULL: nothing is known any more. */
void standin_declare(const char *op, const standin_range *ranges, uint32_t count);

/* The calling thread touches them now, or until its next call of the stand-in. */
void standin_touch_on_host(const char *what, const standin_range *ranges, uint32_t count);

/* To be called by work while it runs in a stream's thread, of what it truly touches: a fault where
 * that is not inside of what was declared for it; where nothing was, this is what it touches. */
void standin_touched(const standin_range *ranges, uint32_t count);

/* The calling thread is about to write a word that streams may wait for. */
void standin_write_word(const void *word, uint32_t value);

/* Another name than the stand-in's for a stream, as messages call it. */
void standin_name_stream(void *stream, const char *name);

/* ---- what was found ---- */

/* Pairs without order since the last reset; they are faults, too. *out_first as in standin_faults;
 * may be NULL. */
uint64_t standin_order_faults(const char **out_first);

/* Takes them back: they were planted. */
void standin_forget_order_faults(void);

typedef struct standin_order_counts {
    uint64_t ranges;     /* that were touched */
    uint64_t visits;     /* of ranges that were kept, while looking at them */
    uint64_t kept;       /* ranges at present */
    uint64_t kept_most;  /* at any time */
    uint64_t undeclared; /* items of streams of which nobody said what they touch */
} standin_order_counts;

/* Since the last reset. */
standin_order_counts standin_count_order(void);

/* What makes order. */
typedef enum standin_edge {
    STANDIN_EDGE_EVENT,         /* a stream waits for an event */
    STANDIN_EDGE_WORD,          /* a stream waits for a word */
    STANDIN_EDGE_EVENT_THREAD,  /* a thread waits for an event */
    STANDIN_EDGE_STREAM_THREAD, /* a thread waits for a stream */
    STANDIN_EDGE_MARK,          /* a host stream waits for a mark */
    STANDIN_EDGE_MARK_THREAD,   /* a thread waits for a mark */
    STANDIN_EDGE_QUEUE_THREAD,  /* a thread waits for a host stream */
    STANDIN_EDGE_COUNT
} standin_edge;

/* To plant a missing wait in a whole run: number `nth` from now (1: the next one; 0: every one) of
 * this kind makes no order, though it is waited for. STANDIN_EDGE_COUNT: none. */
void standin_ignore_edge(standin_edge edge, uint64_t nth);

/* How many there were since the last reset that told something new. */
uint64_t standin_count_edges(standin_edge edge);

#ifdef __cplusplus
}
#endif
#endif
