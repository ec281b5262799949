/* The order that host streams make (base/queue.h): each call is wrapped (ld --wrap), and around the
 * real one the queue's own thread is given a note of what it comes after. Notes are queued as waits
 * that never block, so they also run behind a failure, and no observer hears of them. */
#include "base/queue.h"

#include <pthread.h>
#include <stddef.h>

#include "runtime.h"

#define WRAP(type, name, ...)                                                                      \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

sl_status __real_sl_queue_wait_by(sl_queue *queue, uint64_t tag, sl_queue_wait_function function,
                                  const void *arguments, uint32_t argument_bytes);

/* What the queue's thread is told. */
typedef struct note {
    order_agent *agent;
    order_clock *clock; /* of the issuer; its own */
    const void *mark;
    uint32_t number;
} note;

/* ---- in the queue's thread ---- */

static sl_status run_note(const note *what, void (*act)(const note *what))
{
    pthread_mutex_lock(&standin.lock);
    order_agent_adopt(what->agent);
    act(what);
    pthread_mutex_unlock(&standin.lock);
    return SL_OK;
}

static void learn_issuer(const note *what)
{
    order_clock_join(what->agent, what->clock, STANDIN_EDGE_COUNT);
    order_clock_drop(what->clock);
}

static void reach_mark(const note *what)
{
    order_mark_reach(what->mark, what->number);
}

static void learn_mark(const note *what)
{
    order_clock_join(what->agent, order_mark_clock(what->mark, what->number), STANDIN_EDGE_MARK);
}

static sl_status note_issuer(void *arguments, bool *out_has_blocked)
{
    (void)out_has_blocked;
    return run_note(arguments, learn_issuer);
}

static sl_status note_record(void *arguments, bool *out_has_blocked)
{
    (void)out_has_blocked;
    return run_note(arguments, reach_mark);
}

static sl_status note_wait(void *arguments, bool *out_has_blocked)
{
    (void)out_has_blocked;
    return run_note(arguments, learn_mark);
}

/* ---- issuing ---- */

static order_agent *find_agent(const sl_queue *queue)
{
    pthread_mutex_lock(&standin.lock);
    order_agent *agent = order_agent_find(queue);
    pthread_mutex_unlock(&standin.lock);
    return agent;
}

/* Full and stuck queues get no note: what comes next is not issued either. */
static void queue_note(sl_queue *queue, sl_queue_wait_function function, const note *what)
{
    (void)__real_sl_queue_wait_by(queue, 0, function, what, sizeof *what);
}

/* What is queued next comes after what the issuer knows now. Returns the queue's agent. */
static order_agent *tell_issuer(sl_queue *queue)
{
    pthread_mutex_lock(&standin.lock);
    order_agent *agent = order_agent_find(queue);
    const note what = {.agent = agent, .clock = order_clock_take_news(agent)};
    pthread_mutex_unlock(&standin.lock);
    if (what.clock)
        queue_note(queue, note_issuer, &what);
    return agent;
}

WRAP(sl_status, sl_queue_open, const char *name, uint32_t capacity,
     const sl_queue_observer *observer, sl_queue **out_queue)
{
    const sl_status status = __real_sl_queue_open(name, capacity, observer, out_queue);
    if (status != SL_OK)
        return status;
    pthread_mutex_lock(&standin.lock);
    order_agent_keep(*out_queue, order_agent_open(name));
    pthread_mutex_unlock(&standin.lock);
    return SL_OK;
}

WRAP(sl_status, sl_queue_call, sl_queue *queue, uint64_t tag, sl_queue_function function,
     const void *arguments, uint32_t argument_bytes)
{
    (void)tell_issuer(queue);
    return __real_sl_queue_call(queue, tag, function, arguments, argument_bytes);
}

WRAP(sl_status, sl_queue_wait_by, sl_queue *queue, uint64_t tag, sl_queue_wait_function function,
     const void *arguments, uint32_t argument_bytes)
{
    (void)tell_issuer(queue);
    return __real_sl_queue_wait_by(queue, tag, function, arguments, argument_bytes);
}

/* A mark that two queues record before either record was reached is, here, reached by each alone.
 */
WRAP(sl_status, sl_queue_record, sl_queue *queue, sl_mark *mark)
{
    note what = {.agent = tell_issuer(queue), .mark = mark};
    pthread_mutex_lock(&standin.lock);
    what.number = order_mark_issue(mark);
    pthread_mutex_unlock(&standin.lock);
    queue_note(queue, note_record, &what);
    return __real_sl_queue_record(queue, mark);
}

WRAP(sl_status, sl_queue_wait, sl_queue *queue, uint64_t tag, sl_mark *mark)
{
    note what = {.agent = tell_issuer(queue), .mark = mark};
    pthread_mutex_lock(&standin.lock);
    what.number = order_mark_issued(mark);
    pthread_mutex_unlock(&standin.lock);
    const sl_status status = __real_sl_queue_wait(queue, tag, mark);
    if (what.number > 0)
        queue_note(queue, note_wait, &what);
    return status;
}

/* ---- waiting for a queue, and closing it ---- */

static void learn_queue(order_agent *agent)
{
    pthread_mutex_lock(&standin.lock);
    order_clock *clock = order_clock_take(agent);
    order_clock_join(order_agent_of_thread(), clock, STANDIN_EDGE_QUEUE_THREAD);
    order_clock_drop(clock);
    pthread_mutex_unlock(&standin.lock);
}

WRAP(sl_status, sl_queue_finish, sl_queue *queue)
{
    const sl_status status = __real_sl_queue_finish(queue);
    learn_queue(find_agent(queue));
    return status;
}

WRAP(void, sl_queue_close, sl_queue *queue)
{
    order_agent *agent = queue ? find_agent(queue) : NULL;
    __real_sl_queue_close(queue);
    if (!agent)
        return;
    learn_queue(agent);
    pthread_mutex_lock(&standin.lock);
    order_agent_lose(queue);
    order_agent_close(agent);
    pthread_mutex_unlock(&standin.lock);
}

/* ---- marks ---- */

WRAP(void, sl_mark_publish, sl_mark *mark, uint32_t *word)
{
    pthread_mutex_lock(&standin.lock);
    order_mark_publish(mark, word);
    pthread_mutex_unlock(&standin.lock);
    __real_sl_mark_publish(mark, word);
}

static const order_clock *latest_clock(const sl_mark *mark)
{
    return order_mark_clock(mark, order_mark_issued(mark));
}

WRAP(sl_status, sl_mark_finish, sl_mark *mark)
{
    const sl_status status = __real_sl_mark_finish(mark);
    if (status != SL_OK)
        return status;
    pthread_mutex_lock(&standin.lock);
    order_clock_join(order_agent_of_thread(), latest_clock(mark), STANDIN_EDGE_MARK_THREAD);
    pthread_mutex_unlock(&standin.lock);
    return SL_OK;
}

WRAP(bool, sl_mark_is_reached, const sl_mark *mark)
{
    if (!__real_sl_mark_is_reached(mark))
        return false;
    pthread_mutex_lock(&standin.lock);
    const order_clock *clock = latest_clock(mark);
    order_agent *agent = order_agent_of_thread();
    const bool is_told = !standin.machine.late_answers || order_clock_is_known(agent, clock);
    if (is_told)
        order_clock_join(agent, clock, STANDIN_EDGE_MARK_THREAD);
    pthread_mutex_unlock(&standin.lock);
    return is_told;
}

WRAP(void, sl_mark_close, sl_mark *mark)
{
    pthread_mutex_lock(&standin.lock);
    order_mark_close(mark);
    pthread_mutex_unlock(&standin.lock);
    __real_sl_mark_close(mark);
}
