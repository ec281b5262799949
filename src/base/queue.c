/* Queues and marks over mutexes and conditions. Knows nothing of what its calls do.
 *
 * Invariants of a queue, under its lock:
 *   done <= issued <= done + capacity; item i stands in items[i % capacity] until it has run
 *   only the queue's thread writes `done` and `failure`, only the issuer writes `issued`
 *   `failure` is written once and then never again
 *   after a failure, queued calls are skipped; queued waits and records still run
 *   the thread of an abandoned queue sleeps for ever once its current item has ended
 *
 * Invariants of a mark: records are numbered 1, 2, ... as they are issued; reached <= issued;
 * `reached` grows by one at a time, so "reached >= n" means that record n and all before it have
 * run, whatever queues they stand in. A wait stores the latest number issued before the wait was
 * issued. So every wait is for an item issued earlier: the graph of waits has no cycle, and no
 * deadlock is possible.
 *
 * Threads sleep at once instead of spinning: on a machine with few cores a spinning lane would take
 * the core of the command that it waits for.
 */
#define _GNU_SOURCE
#include "queue.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bits.h"
#include "clock.h"
#include "log.h"
#include "thread.h"

enum { THREAD_NAME_BYTES = 16, ITEM_ALIGNMENT = 64 };

typedef enum item_kind { ITEM_CALL, ITEM_RECORD, ITEM_WAIT, ITEM_WAIT_BY, ITEM_STOP } item_kind;

typedef struct queue_item {
    _Alignas(ITEM_ALIGNMENT) unsigned char arguments[SL_QUEUE_ARGUMENT_BYTES];
    item_kind kind;
    uint64_t tag;
    sl_queue_function function;   /* CALL */
    sl_queue_wait_function await; /* WAIT_BY */
    sl_mark *mark;                /* RECORD, WAIT */
    uint64_t number;              /* RECORD: its number; WAIT: the number of the record waited
                                     for */
} queue_item;

struct sl_queue {
    pthread_mutex_t lock;
    pthread_cond_t has_work; /* for the queue's thread */
    pthread_cond_t has_room; /* for the issuer: `done` has reached `issuer_needs` */
    uint64_t issued, done;
    uint64_t issuer_needs;
    bool issuer_waits, thread_waits;
    bool is_abandoned;
    sl_first_failure failure;
    sl_queue_observer observer;
    bool is_observed;
    uint32_t capacity;
    queue_item *items;
    pthread_t thread;
    const sl_log_receiver *log; /* of the thread that opened it */
    char name[THREAD_NAME_BYTES];
};

struct sl_mark {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t issued; /* the control thread's */
    sl_queue *queue; /* the control thread's: queue of the latest record; may be closed once that is
                        reached */
    _Atomic uint64_t reached;
    uint32_t *word; /* NULL, or `reached` is also written there */
    uint32_t waiter_count;
};

/* ---- an issuer that waits ---- */

sl_status sl_queue_sleep(const sl_queue_observer *observer, pthread_cond_t *condition,
                         pthread_mutex_t *lock)
{
    if (!observer->blocked) {
        pthread_cond_wait(condition, lock);
        return SL_OK;
    }
    const struct timespec end = sl_clock_time_in(SL_QUEUE_ASK_MS * UINT64_C(1000000));
    if (pthread_cond_timedwait(condition, lock, &end) != ETIMEDOUT)
        return SL_OK;
    pthread_mutex_unlock(lock);
    sl_status status = observer->blocked(observer->user);
    pthread_mutex_lock(lock);
    return status;
}

/* On Linux none of this can fail. */
void sl_queue_init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* ---- marks ---- */

static void block_until_mark_reached(sl_mark *mark, uint64_t number)
{
    mark->waiter_count++;
    while (atomic_load_explicit(&mark->reached, memory_order_relaxed) < number)
        pthread_cond_wait(&mark->changed, &mark->lock);
    mark->waiter_count--;
}

/* Waits for record `number`; returns whether it had to block. */
static bool wait_for_mark(sl_mark *mark, uint64_t number)
{
    if (atomic_load_explicit(&mark->reached, memory_order_acquire) >= number)
        return false;
    pthread_mutex_lock(&mark->lock);
    block_until_mark_reached(mark, number);
    pthread_mutex_unlock(&mark->lock);
    return true;
}

/* Runs record `number`. A mark recorded in several queues is reached in the order of issue. */
static void reach_mark(sl_mark *mark, uint64_t number)
{
    pthread_mutex_lock(&mark->lock);
    block_until_mark_reached(mark, number - 1);
    atomic_store_explicit(&mark->reached, number, memory_order_release);
    if (mark->word)
        __atomic_store_n(mark->word, (uint32_t)number, __ATOMIC_RELEASE);
    if (mark->waiter_count > 0)
        pthread_cond_broadcast(&mark->changed);
    pthread_mutex_unlock(&mark->lock);
}

sl_status sl_mark_open(sl_mark **out_mark)
{
    sl_mark *mark = calloc(1, sizeof *mark);
    if (!mark)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a mark");
    pthread_mutex_init(&mark->lock, NULL); /* with default attributes neither can fail on Linux */
    sl_queue_init_condition(&mark->changed);
    *out_mark = mark;
    return SL_OK;
}

void sl_mark_publish(sl_mark *mark, uint32_t *word)
{
    mark->word = word;
}

/* Always takes the lock, so that the thread that reached the mark has released it when this
 * returns. */
sl_status sl_mark_finish(sl_mark *mark)
{
    sl_status status = SL_OK;
    pthread_mutex_lock(&mark->lock);
    mark->waiter_count++;
    while (status == SL_OK &&
           atomic_load_explicit(&mark->reached, memory_order_acquire) < mark->issued)
        status = sl_queue_sleep(&mark->queue->observer, &mark->changed, &mark->lock);
    mark->waiter_count--;
    pthread_mutex_unlock(&mark->lock);
    return status;
}

bool sl_mark_is_reached(const sl_mark *mark)
{
    return atomic_load_explicit(&mark->reached, memory_order_acquire) >= mark->issued;
}

void sl_mark_close(sl_mark *mark)
{
    if (!mark)
        return;
    pthread_cond_destroy(&mark->changed);
    pthread_mutex_destroy(&mark->lock);
    free(mark);
}

/* ---- the queue's thread ---- */

static queue_item *wait_for_item(sl_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->thread_waits = true;
    while (queue->done == queue->issued || queue->is_abandoned)
        pthread_cond_wait(&queue->has_work, &queue->lock);
    queue->thread_waits = false;
    queue_item *item = &queue->items[queue->done % queue->capacity];
    pthread_mutex_unlock(&queue->lock);
    return item;
}

static void retire_item(sl_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->done++;
    if (queue->issuer_waits && queue->done >= queue->issuer_needs)
        pthread_cond_signal(&queue->has_room);
    pthread_mutex_unlock(&queue->lock);
}

static void keep_failure(sl_queue *queue, sl_status status)
{
    pthread_mutex_lock(&queue->lock);
    sl_first_failure_keep(&queue->failure, status);
    pthread_mutex_unlock(&queue->lock);
}

static void run_call(sl_queue *queue, queue_item *item)
{
    if (queue->failure.status != SL_OK) /* written by this thread alone */
        return;
    uint64_t start_ns = queue->is_observed ? sl_clock_now_ns() : 0;
    sl_status status = item->function(item->arguments);
    if (status != SL_OK)
        keep_failure(queue, status);
    if (queue->is_observed && queue->observer.ran)
        queue->observer.ran(queue->observer.user, item->tag, start_ns, sl_clock_now_ns());
}

static bool await_item(sl_queue *queue, queue_item *item)
{
    bool has_blocked = false;
    if (item->kind == ITEM_WAIT)
        return wait_for_mark(item->mark, item->number);
    sl_status status = item->await(item->arguments, &has_blocked);
    if (status != SL_OK)
        keep_failure(queue, status);
    return has_blocked;
}

static void run_wait(sl_queue *queue, queue_item *item)
{
    uint64_t start_ns = queue->is_observed ? sl_clock_now_ns() : 0;
    bool has_blocked = await_item(queue, item);
    if (has_blocked && queue->is_observed && queue->observer.waited)
        queue->observer.waited(queue->observer.user, item->tag, start_ns, sl_clock_now_ns());
}

static void *run_items(void *argument)
{
    sl_queue *queue = argument;
    (void)sl_log_enter(queue->log);
    for (;;) {
        queue_item *item = wait_for_item(queue);
        if (item->kind == ITEM_STOP)
            return NULL;
        if (item->kind == ITEM_CALL)
            run_call(queue, item);
        else if (item->kind == ITEM_RECORD)
            reach_mark(item->mark, item->number);
        else
            run_wait(queue, item);
        retire_item(queue);
    }
}

static sl_status start_thread(sl_queue *queue)
{
    queue->log = sl_log_entered();
    const int error = sl_thread_start(&queue->thread, queue->name, run_items, queue);
    if (error)
        SL_FAIL(SL_ERROR_SYSTEM, "cannot start the thread of queue %s: %s", queue->name,
                strerror(error));
    return SL_OK;
}

/* ---- the issuer ---- */

/* Blocks until `done` items have run; the lock is held. */
static sl_status wait_until_done(sl_queue *queue, uint64_t done)
{
    sl_status status = SL_OK;
    queue->issuer_needs = done;
    queue->issuer_waits = true;
    while (status == SL_OK && queue->done < done)
        status = sl_queue_sleep(&queue->observer, &queue->has_room, &queue->lock);
    queue->issuer_waits = false;
    return status;
}

/* Finds the next free item and leaves the queue locked for issue_item. If the queue is full, waits
 * until a quarter is free, so that issuer and thread do not wake each other for every item. */
static sl_status reserve_item(sl_queue *queue, queue_item **out_item)
{
    sl_status status = SL_OK;
    pthread_mutex_lock(&queue->lock);
    if (queue->issued - queue->done == queue->capacity)
        status = wait_until_done(queue, queue->done + sl_bits_divide_up(queue->capacity, 4));
    if (status != SL_OK) {
        pthread_mutex_unlock(&queue->lock);
        return status;
    }
    *out_item = &queue->items[queue->issued % queue->capacity];
    return SL_OK;
}

static sl_status issue_item(sl_queue *queue)
{
    queue->issued++;
    if (queue->thread_waits)
        pthread_cond_signal(&queue->has_work);
    pthread_mutex_unlock(&queue->lock);
    return SL_OK;
}

static sl_status allocate_items(sl_queue *queue)
{
    uint64_t bytes;
    SL_TRY(sl_bits_multiply(queue->capacity, sizeof(queue_item), "queue capacity", &bytes));
    queue->items = aligned_alloc(ITEM_ALIGNMENT, bytes);
    if (!queue->items)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u items of queue %s", queue->capacity,
                queue->name);
    memset(queue->items, 0, bytes);
    return SL_OK;
}

static void free_queue(sl_queue *queue)
{
    pthread_cond_destroy(&queue->has_room);
    pthread_cond_destroy(&queue->has_work);
    pthread_mutex_destroy(&queue->lock);
    free(queue->items);
    free(queue);
}

sl_status sl_queue_open(const char *name, uint32_t capacity, const sl_queue_observer *observer,
                        sl_queue **out_queue)
{
    if (capacity == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "queue %s has no capacity", name);
    sl_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for queue %s", name);
    snprintf(queue->name, sizeof queue->name, "%s", name);
    queue->capacity = capacity;
    queue->is_observed = observer != NULL;
    if (observer)
        queue->observer = *observer;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->has_work, NULL);
    sl_queue_init_condition(&queue->has_room);
    sl_status status;
    SL_TRY_GOTO(status, allocate_items(queue), fail);
    SL_TRY_GOTO(status, start_thread(queue), fail);
    *out_queue = queue;
    return SL_OK;
fail:
    free_queue(queue);
    return status;
}

static void fill_item(queue_item *item, item_kind kind, uint64_t tag, const void *arguments,
                      uint32_t argument_bytes)
{
    assert(argument_bytes <= SL_QUEUE_ARGUMENT_BYTES);
    item->kind = kind;
    item->tag = tag;
    if (argument_bytes > 0)
        memcpy(item->arguments, arguments, argument_bytes);
}

sl_status sl_queue_call(sl_queue *queue, uint64_t tag, sl_queue_function function,
                        const void *arguments, uint32_t argument_bytes)
{
    queue_item *item;
    SL_TRY(reserve_item(queue, &item));
    fill_item(item, ITEM_CALL, tag, arguments, argument_bytes);
    item->function = function;
    return issue_item(queue);
}

sl_status sl_queue_wait_by(sl_queue *queue, uint64_t tag, sl_queue_wait_function function,
                           const void *arguments, uint32_t argument_bytes)
{
    queue_item *item;
    SL_TRY(reserve_item(queue, &item));
    fill_item(item, ITEM_WAIT_BY, tag, arguments, argument_bytes);
    item->await = function;
    return issue_item(queue);
}

sl_status sl_queue_record(sl_queue *queue, sl_mark *mark)
{
    queue_item *item;
    SL_TRY(reserve_item(queue, &item));
    item->kind = ITEM_RECORD;
    item->mark = mark;
    item->number = ++mark->issued;
    mark->queue = queue;
    return issue_item(queue);
}

sl_status sl_queue_wait(sl_queue *queue, uint64_t tag, sl_mark *mark)
{
    if (mark->issued == 0)
        return SL_OK;
    queue_item *item;
    SL_TRY(reserve_item(queue, &item));
    item->kind = ITEM_WAIT;
    item->tag = tag;
    item->mark = mark;
    item->number = mark->issued;
    return issue_item(queue);
}

sl_status sl_queue_finish(sl_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    sl_status status = wait_until_done(queue, queue->issued);
    if (queue->failure.status != SL_OK)
        status = sl_first_failure_return(&queue->failure);
    pthread_mutex_unlock(&queue->lock);
    return status;
}

sl_queue_state sl_queue_look(sl_queue *queue, uint64_t *out_tag)
{
    sl_queue_state state = SL_QUEUE_IDLE;
    pthread_mutex_lock(&queue->lock);
    if (queue->done < queue->issued) {
        const queue_item *item = &queue->items[queue->done % queue->capacity];
        state = item->kind == ITEM_CALL ? SL_QUEUE_CALLS : SL_QUEUE_WAITS;
        if (state == SL_QUEUE_CALLS)
            *out_tag = item->tag;
    }
    pthread_mutex_unlock(&queue->lock);
    return state;
}

void sl_queue_abandon(sl_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->is_abandoned = true;
    pthread_mutex_unlock(&queue->lock);
    pthread_detach(queue->thread);
}

void sl_queue_close(sl_queue *queue)
{
    queue_item *item;
    if (!queue)
        return;
    if (reserve_item(queue, &item) != SL_OK) {
        sl_queue_abandon(queue);
        return;
    }
    item->kind = ITEM_STOP;
    (void)issue_item(queue);
    pthread_join(queue->thread, NULL);
    free_queue(queue);
}
