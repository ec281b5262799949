/* A queue: one thread that runs calls in the order in which they were issued. Marks order calls of
 * different queues. The cpu device's streams and the host lane are queues.
 *
 * A mark is recorded in one queue and waited for in another. As with CUDA events, a wait is for the
 * latest record that was *issued* before the wait was issued; a wait for a mark that was never
 * recorded returns at once. After the first failing call of a queue its later calls are skipped,
 * marks are still recorded, and sl_queue_finish returns the failure.
 *
 * One control thread does all issuing. After sl_queue_open nothing allocates: a full queue blocks
 * the issuer. A call that issues fails only if the queue is full and the observer ends the wait;
 * then nothing is issued.
 */
#ifndef SL_BASE_QUEUE_H
#define SL_BASE_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "status.h"

typedef struct sl_queue sl_queue;
typedef struct sl_mark sl_mark;

enum {
    SL_QUEUE_ARGUMENT_BYTES = 288, /* the largest argument block of one call */
    SL_QUEUE_ASK_MS = 20
};

/* A queued call; `arguments` is the queue's own copy, aligned to 16 bytes. */
typedef sl_status (*sl_queue_function)(void *arguments);

/* A queued wait for something other than a mark; writes whether it had to block. */
typedef sl_status (*sl_queue_wait_function)(void *arguments, bool *out_has_blocked);

/* `ran` and `waited` are called in the queue's thread around each call and each wait that blocked;
 * times are CLOCK_MONOTONIC nanoseconds. `tag` is the issuer's. */
typedef struct sl_queue_observer {
    void (*ran)(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns);
    void (*waited)(void *user, uint64_t tag, uint64_t start_ns, uint64_t end_ns);
    void *user;
    bool wants_each; /* streams of a device: time each call, not all calls between two waits
                        together */
    uint64_t apart;  /* streams of a device: calls whose tags differ in these bits are timed
                        apart */
    /* Called in the issuer's thread every SL_QUEUE_ASK_MS while the issuer waits for the queue or
     * for a mark that was recorded in it. An error ends the wait, and the waiting call returns the
     * error. NULL: the issuer waits without limit. */
    sl_status (*blocked)(void *user);
} sl_queue_observer;

/* Starts a queue that holds up to `capacity` items. `observer` may be NULL; it is copied. */
sl_status sl_queue_open(const char *name, uint32_t capacity, const sl_queue_observer *observer,
                        sl_queue **out_queue);

/* Appends a call with a copy of `argument_bytes` <= SL_QUEUE_ARGUMENT_BYTES bytes. */
sl_status sl_queue_call(sl_queue *queue, uint64_t tag, sl_queue_function function,
                        const void *arguments, uint32_t argument_bytes);

/* Appends a record of `mark`. */
sl_status sl_queue_record(sl_queue *queue, sl_mark *mark);

/* Appends a wait for the latest issued record of `mark`. */
sl_status sl_queue_wait(sl_queue *queue, uint64_t tag, sl_mark *mark);

/* Appends a wait by `function`, with a copy of its arguments as in sl_queue_call. The wait also
 * runs after a failure, so that the order of queues is kept. Its own failure becomes the
 * queue's. */
sl_status sl_queue_wait_by(sl_queue *queue, uint64_t tag, sl_queue_wait_function function,
                           const void *arguments, uint32_t argument_bytes);

/* Blocks until everything issued has run. Returns the queue's first failure, with its message, else
 * the error with which the observer ended the wait. */
sl_status sl_queue_finish(sl_queue *queue);

typedef enum sl_queue_state { SL_QUEUE_IDLE, SL_QUEUE_CALLS, SL_QUEUE_WAITS } sl_queue_state;

/* What the queue's thread does now; if it runs a call, writes the call's tag. For the issuer. */
sl_queue_state sl_queue_look(sl_queue *queue, uint64_t *out_tag);

/* Abandons a queue whose thread hangs in a call: the thread begins no further item. The queue, its
 * marks and the memory of its calls must stay until the process ends; do not close it. */
void sl_queue_abandon(sl_queue *queue);

/* Finishes, stops and frees. NULL is fine. */
void sl_queue_close(sl_queue *queue);

/* Blocks the issuer until `condition` is signalled or SL_QUEUE_ASK_MS have passed; then calls
 * `blocked`, without holding `lock`, and returns its status. */
sl_status sl_queue_sleep(const sl_queue_observer *observer, pthread_cond_t *condition,
                         pthread_mutex_t *lock);

/* Initialises a condition whose time is that of sl_clock_time_in. */
void sl_queue_init_condition(pthread_cond_t *condition);

sl_status sl_mark_open(sl_mark **out_mark);

/* From now on the number of the latest record reached (from 1, modulo 2^32) is also stored
 * atomically in *word, with release order, for a GPU that waits on the word. Call before the first
 * record; `word` is borrowed. */
void sl_mark_publish(sl_mark *mark, uint32_t *word);

/* Blocks the issuer until the latest issued record of `mark` has been reached, or the observer of
 * the queue that it was recorded in ends the wait. */
sl_status sl_mark_finish(sl_mark *mark);

/* True if the latest issued record has been reached; the caller then sees all that ran before
 * it. */
bool sl_mark_is_reached(const sl_mark *mark);

/* No queue may still hold a record of the mark or a wait for it. NULL is fine. */
void sl_mark_close(sl_mark *mark);

#endif
