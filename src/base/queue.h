/* An ordered queue: one thread that runs calls in the order they were given, and marks that order
 * calls of different queues among each other. The cpu device's streams and the host lane are
 * queues.
 *
 * A mark is recorded in one queue and waited for in another. As with CUDA events, a wait refers to
 * the most recent record that was *issued* before the wait was issued; a wait for a mark that was
 * never recorded is no wait. The first failing call makes its queue sticky: later calls are
 * skipped, marks still fire, and sl_queue_finish returns the failure.
 *
 * All issuing is done by one control thread. After sl_queue_open nothing allocates: a full queue
 * blocks the issuer.
 */
#ifndef SL_BASE_QUEUE_H
#define SL_BASE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"

typedef struct sl_queue sl_queue;
typedef struct sl_mark sl_mark;

enum { SL_QUEUE_ARGUMENT_BYTES = 192 }; /* the largest argument block of one call */

/* A queued call; `arguments` is the queue's own copy, aligned to 16 bytes. */
typedef sl_status (*sl_queue_function)(void *arguments);

/* A queued wait for something that is no mark; says whether it had to block. */
typedef sl_status (*sl_queue_wait_function)(void *arguments, bool *out_has_blocked);

/* Called in the queue's thread around each call and each wait that blocked; times are
 * CLOCK_MONOTONIC nanoseconds. `tag` is the issuer's. */
typedef struct sl_queue_observer {
    void (*ran)(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns);
    void (*waited)(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns);
    void *user;
    bool wants_each; /* a device's streams: calls one by one, not those between two waits as one */
    uint64_t apart;  /* a device's streams: calls whose tags differ in these bits are not one */
} sl_queue_observer;

/* Starts a queue that holds up to `capacity` items. `observer` may be NULL; it is copied. */
sl_status sl_queue_open(const char *name, uint32_t capacity, const sl_queue_observer *observer,
                        sl_queue **out_queue);

/* Appends a call with a copy of `argument_bytes` <= SL_QUEUE_ARGUMENT_BYTES bytes. */
void sl_queue_call(sl_queue *queue, uint64_t tag, sl_queue_function function, const void *arguments,
                   uint32_t argument_bytes);

/* Appends a record of `mark`. */
void sl_queue_record(sl_queue *queue, sl_mark *mark);

/* Appends a wait for the latest issued record of `mark`. */
void sl_queue_wait(sl_queue *queue, uint64_t tag, sl_mark *mark);

/* Appends a wait by `function`, with a copy of its arguments as sl_queue_call makes it. It runs
 * after a failure, too: an order is kept to the end. A failure of its own is the queue's. */
void sl_queue_wait_by(sl_queue *queue, uint64_t tag, sl_queue_wait_function function,
                      const void *arguments, uint32_t argument_bytes);

/* Blocks until everything issued has run; returns the queue's first failure, with its message. */
sl_status sl_queue_finish(sl_queue *queue);

/* Finishes, stops and frees. NULL is fine. */
void sl_queue_close(sl_queue *queue);

sl_status sl_mark_open(sl_mark **out_mark);

/* The number of the latest record reached (they count from 1), modulo 2^32, is from now on also
 * written to *word (atomically, to be acquired), for a reader that is no thread. Before the first
 * record; `word` is borrowed. */
void sl_mark_publish(sl_mark *mark, uint32_t *word);

/* Blocks the caller until the latest issued record of `mark` has been reached. */
void sl_mark_finish(sl_mark *mark);

/* True if it has been; what came before it is then there for the caller. */
bool sl_mark_is_reached(const sl_mark *mark);

/* No queue may still refer to it. NULL is fine. */
void sl_mark_close(sl_mark *mark);

#endif
