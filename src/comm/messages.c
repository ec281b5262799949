/* The thread of messages, and what it tells others of. See messages.h.
 *
 * Invariants:
 *   a message is IDLE, or WAITING in the list, or UNDER_WAY in a slot, or DONE; its owner looks at
 *     it again when it is DONE
 *   the transport is called by the thread alone, and slots belong to it
 *   one receive for notes from anybody is always under way
 *
 * The thread looks for what came without a pause while something is under way and comes quickly;
 * then in pauses that grow to a fifth of a millisecond; and every twentieth of a second if it waits
 * for notes alone. */
#define _GNU_SOURCE
#include "messages.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/queue.h"
#include "base/thread.h"

enum {
    NOTE_TAG = 0,
    BRISK_LOOKS = 200, /* without a pause */
    PAUSE_NS_LEAST = 20000,
    PAUSE_NS_MOST = 200000,
    IDLE_NS = 50000000,
    LEFT_NS = 1000000000, /* a message overtakes a farewell by less than this */
    END_S = 5,            /* how long a thread that may hang in MPI is waited for */
    BEATS = 12            /* signs of life in the time of a deadline, about */
};

enum { MESSAGE_IDLE, MESSAGE_WAITING, MESSAGE_UNDER_WAY, MESSAGE_DONE };

typedef enum note_kind { NOTE_LEFT = 1, NOTE_ENDED, NOTE_BEAT } note_kind;

typedef struct note_head {
    uint32_t kind, rank;
    int32_t status;
    uint32_t reserved;
    uint64_t progress;
} note_head;

typedef struct note {
    note_head head;
    char text[SL_STATUS_MESSAGE_BYTES]; /* NOTE_BEAT is sent without it */
} note;

typedef struct peer {
    char host[SL_PEER_HOST_BYTES], op[SL_PEER_OP_BYTES];
    uint64_t step;
    bool is_elsewhere;
    _Atomic bool has_left;
    _Atomic uint64_t progress; /* its number (board.h), as far as it has told */
    _Atomic bool is_there;     /* something has come from it */
    /* the thread's: */
    uint64_t quiet_ns; /* since its last beat */
    note_head beat;    /* this rank's, on its way there */
    sl_message beating, telling;
} peer;

/* Memory for the life of the messages: sl_messages_take. */
typedef struct taken {
    struct taken *next;
    _Alignas(16) unsigned char memory[];
} taken;

typedef enum ending { ENDING_NOT, ENDING_WHOLE, ENDING_BROKEN } ending;

struct sl_messages {
    const sl_mail_ops *ops;
    void *self;
    uint32_t rank, size, slot_count;
    pthread_t thread;
    pthread_mutex_t lock; /* of the list, `phase`, peers */
    pthread_cond_t bell;
    sl_message *first, *last; /* handed over */
    enum { PHASE_OPENING, PHASE_OPEN, PHASE_FAILED, PHASE_OVER } phase;
    _Atomic int ending;
    char error[SL_MAIL_ERROR_BYTES];
    peer *peers;     /* [size] */
    taken *memories; /* of the thread that opens and closes */
    _Atomic(sl_board *) board;
    /* the thread's */
    sl_message **slots; /* [slot_count]; NULL: free */
    uint32_t *free_slots, free_count;
    sl_mail_event *events;
    uint32_t under_way; /* without the receive of notes */
    note heard, told;
    sl_message hearing;
    bool has_told;
    uint64_t beat_ns, looked_ns; /* when it told, and looked for, signs of life last */
};

/* ---- the thread ---- */

/* "rank 2 on node7", and what it did last where `with_op`. */
static sl_board_name describe_peer(sl_messages *messages, uint32_t rank, bool with_op)
{
    sl_board_name name;
    const peer nobody = {.step = 0};
    pthread_mutex_lock(&messages->lock);
    const peer *known = rank < messages->size ? &messages->peers[rank] : &nobody;
    int length = snprintf(name.text, sizeof name.text, "rank %u%s%s", rank,
                          *known->host ? " on " : "", known->host);
    if (with_op && *known->op)
        snprintf(name.text + length, sizeof name.text - (size_t)length,
                 ", last heard of in step %llu at %s", (unsigned long long)known->step, known->op);
    pthread_mutex_unlock(&messages->lock);
    return name;
}

static void fail_message(sl_messages *messages, const sl_message *message)
{
    sl_board *board = atomic_load(&messages->board);
    if (board)
        sl_board_end(board, SL_ERROR_RANK, "the connection to %s is lost: %s",
                     describe_peer(messages, message->peer, false).text, messages->error);
}

/* False if the transport refuses: it counts as under way for ever. */
static bool start_one(sl_messages *messages, sl_message *message)
{
    uint32_t slot = messages->free_slots[--messages->free_count];
    messages->slots[slot] = message;
    atomic_store(&message->state, MESSAGE_UNDER_WAY);
    messages->under_way += message != &messages->hearing;
    const sl_mail_letter letter = {message->peer, message->tag, message->data, message->bytes};
    bool is_started = (message->is_send ? messages->ops->send : messages->ops->receive)(
        messages->self, slot, &letter, messages->error);
    if (!is_started)
        fail_message(messages, message);
    return is_started;
}

static sl_message *take_first(sl_messages *messages)
{
    pthread_mutex_lock(&messages->lock);
    sl_message *message = messages->first;
    if (message) {
        messages->first = message->next;
        messages->last = messages->first ? messages->last : NULL;
    }
    pthread_mutex_unlock(&messages->lock);
    return message;
}

static bool start_waiting(sl_messages *messages)
{
    sl_message *message;
    bool has_started = false;
    while (messages->free_count > 0 && (message = take_first(messages)) != NULL)
        has_started = start_one(messages, message) || has_started;
    return has_started;
}

static void hear(sl_messages *messages)
{
    const note_head *said = &messages->heard.head;
    sl_board *board = atomic_load(&messages->board);
    const bool is_whole = messages->hearing.bytes == sizeof messages->heard;
    if (messages->hearing.bytes >= sizeof *said && said->rank < messages->size) {
        peer *from = &messages->peers[said->rank];
        if (said->kind == NOTE_LEFT) {
            atomic_store(&from->has_left, true);
        } else if (said->kind == NOTE_BEAT) {
            atomic_store(&from->progress, said->progress);
            atomic_store(&from->is_there, true);
            from->quiet_ns = 0;
        } else if (said->kind == NOTE_ENDED && is_whole && board) {
            sl_board_end(board, (sl_status)said->status, "%s", messages->heard.text);
        }
    }
    messages->hearing.bytes = sizeof messages->heard;
    start_one(messages, &messages->hearing);
}

static void complete(sl_messages *messages, const sl_mail_event *event)
{
    sl_message *message = messages->slots[event->slot];
    messages->slots[event->slot] = NULL;
    messages->free_slots[messages->free_count++] = event->slot;
    messages->under_way -= message != &messages->hearing;
    if (event->has_failed) {
        fail_message(messages, message);
        return;
    }
    if (!message->is_send)
        message->bytes = event->bytes;
    sl_board_bell *bell = message->bell;
    atomic_store(&message->state, MESSAGE_DONE);
    if (bell)
        sl_board_ring(bell); /* the message may be its owner's again */
    if (message == &messages->hearing)
        hear(messages);
}

static bool take_events(sl_messages *messages)
{
    uint32_t count = 0;
    if (!messages->ops->poll(messages->self, messages->events, messages->slot_count, &count,
                             messages->error)) {
        sl_board *board = atomic_load(&messages->board); /* a poll that hung may find it gone */
        if (board)
            sl_board_end(board, SL_ERROR_RANK, "the ranks of other machines are lost: %s",
                         messages->error);
        return false;
    }
    for (uint32_t i = 0; i < count; i++)
        complete(messages, &messages->events[i]);
    return count > 0;
}

static void send_note(sl_messages *messages, sl_message *place, uint32_t rank, void *data,
                      uint64_t bytes)
{
    *place =
        (sl_message){.is_send = true, .peer = rank, .tag = NOTE_TAG, .data = data, .bytes = bytes};
    start_one(messages, place);
}

/* Tells all ranks of other machines, once of each kind. */
static void tell(sl_messages *messages, note_kind kind, sl_status status, const char *text)
{
    if (!atomic_load(&messages->board))
        return;
    messages->told.head =
        (note_head){.kind = kind, .rank = messages->rank, .status = (int32_t)status};
    snprintf(messages->told.text, sizeof messages->told.text, "%s", text);
    for (uint32_t i = 0; i < messages->size; i++)
        if (messages->peers[i].is_elsewhere && messages->free_count > 0)
            send_note(messages, &messages->peers[i].telling, i, &messages->told,
                      sizeof messages->told);
}

static void tell_verdict(sl_messages *messages)
{
    sl_board *board = atomic_load(&messages->board);
    if (!board || messages->has_told)
        return;
    sl_status status = sl_board_poll(board);
    if (status == SL_OK)
        return;
    messages->has_told = true;
    tell(messages, NOTE_ENDED, status, sl_status_message());
}

/* Sends a sign of life, unless the rank has not yet taken the one before. */
static void beat(sl_messages *messages, uint32_t rank, uint64_t progress)
{
    peer *to = &messages->peers[rank];
    if (!sl_message_is_idle(&to->beating) || messages->free_count == 0)
        return;
    to->beat = (note_head){.kind = NOTE_BEAT, .rank = messages->rank, .progress = progress};
    send_note(messages, &to->beating, rank, &to->beat, sizeof to->beat);
}

/* Often enough for both deadlines: a beat carries this rank's progress. */
static void beat_to_all(sl_messages *messages, const sl_board *board, uint64_t now_ns)
{
    const double limit_s = fmin(board->timeout_s, board->heartbeat_s);
    if (1e-9 * (double)(now_ns - messages->beat_ns) < limit_s / BEATS)
        return;
    messages->beat_ns = now_ns;
    for (uint32_t i = 0; i < messages->size; i++)
        if (messages->peers[i].is_elsewhere)
            beat(messages, i, sl_board_progress(board));
}

/* Ends the run if a rank elsewhere has not beaten in time. A longer pause between two looks than
 * this thread makes means that this process was stopped: then the others have time to beat. */
static void look_for_beats(sl_messages *messages, sl_board *board, uint64_t passed_ns)
{
    for (uint32_t i = 0; i < messages->size; i++) {
        peer *other = &messages->peers[i];
        if (!other->is_elsewhere || !atomic_load(&other->is_there) || atomic_load(&other->has_left))
            continue;
        other->quiet_ns += passed_ns < 2ull * IDLE_NS ? passed_ns : 2ull * IDLE_NS;
        if (1e-9 * (double)other->quiet_ns > board->heartbeat_s)
            sl_board_end_quiet(board, describe_peer(messages, i, true).text);
    }
}

static void exchange_beats(sl_messages *messages, uint64_t now_ns)
{
    sl_board *board = atomic_load(&messages->board);
    const uint64_t passed_ns = now_ns - messages->looked_ns;
    messages->looked_ns = now_ns;
    if (!board || messages->has_told)
        return;
    beat_to_all(messages, board, now_ns);
    look_for_beats(messages, board, passed_ns);
}

/* `looks` have found nothing. */
static void pause_between_looks(sl_messages *messages, uint32_t looks)
{
    uint64_t pause_ns = messages->under_way == 0 ? IDLE_NS : PAUSE_NS_LEAST + 1000ull * looks;
    if (messages->under_way > 0 && looks < BRISK_LOOKS) {
        sched_yield();
        return;
    }
    if (messages->under_way > 0 && pause_ns > PAUSE_NS_MOST)
        pause_ns = PAUSE_NS_MOST;
    struct timespec until = sl_clock_time_in(pause_ns);
    pthread_mutex_lock(&messages->lock);
    if (!messages->first && atomic_load(&messages->ending) == ENDING_NOT)
        pthread_cond_timedwait(&messages->bell, &messages->lock, &until);
    pthread_mutex_unlock(&messages->lock);
}

/* Until nothing that is to be sent is under way, or for a second. */
static void flush(sl_messages *messages)
{
    uint64_t end_ns = sl_clock_now_ns() + 1000000000;
    for (;;) {
        bool is_clear = true;
        for (uint32_t i = 0; i < messages->slot_count; i++)
            is_clear = is_clear && !(messages->slots[i] && messages->slots[i]->is_send);
        if (is_clear || sl_clock_now_ns() > end_ns ||
            (!take_events(messages) && sched_yield() != 0))
            return;
    }
}

static void serve(sl_messages *messages)
{
    uint32_t looks = 0;
    uint64_t told_ns = 0;
    messages->looked_ns = sl_clock_now_ns();
    while (atomic_load(&messages->ending) == ENDING_NOT) {
        bool has_moved = start_waiting(messages);
        has_moved = take_events(messages) || has_moved;
        looks = has_moved ? 0 : looks + 1;
        uint64_t now_ns = sl_clock_now_ns();
        if (now_ns - told_ns > IDLE_NS / 2) {
            tell_verdict(messages);
            exchange_beats(messages, now_ns);
            told_ns = now_ns;
        }
        if (!has_moved)
            pause_between_looks(messages, looks);
    }
    start_waiting(messages);
    tell_verdict(messages);
    if (!messages->has_told && atomic_load(&messages->ending) == ENDING_WHOLE)
        tell(messages, NOTE_LEFT, SL_OK, "");
    flush(messages);
    if (atomic_load(&messages->ending) == ENDING_WHOLE && !messages->has_told)
        messages->ops->close(messages->self);
}

static void set_phase(sl_messages *messages, int phase)
{
    pthread_mutex_lock(&messages->lock);
    messages->phase = phase;
    pthread_cond_broadcast(&messages->bell);
    pthread_mutex_unlock(&messages->lock);
}

static void *run(void *argument)
{
    sl_messages *messages = argument;
    if (!messages->ops->open(messages->self, messages->slot_count, &messages->rank, &messages->size,
                             messages->error)) {
        set_phase(messages, PHASE_FAILED);
        return NULL;
    }
    messages->peers = calloc(messages->size, sizeof *messages->peers);
    if (!messages->peers) {
        snprintf(messages->error, sizeof messages->error, "no memory for %u ranks", messages->size);
        set_phase(messages, PHASE_FAILED);
        return NULL;
    }
    messages->hearing = (sl_message){.peer = SL_MAIL_ANYBODY,
                                     .tag = NOTE_TAG,
                                     .data = &messages->heard,
                                     .bytes = sizeof messages->heard};
    start_one(messages, &messages->hearing);
    set_phase(messages, PHASE_OPEN);
    serve(messages);
    set_phase(messages, PHASE_OVER);
    return NULL;
}

/* ---- opening ---- */

static void free_messages(sl_messages *messages)
{
    while (messages->memories) {
        taken *next = messages->memories->next;
        free(messages->memories);
        messages->memories = next;
    }
    pthread_cond_destroy(&messages->bell);
    pthread_mutex_destroy(&messages->lock);
    free(messages->peers);
    free(messages->slots);
    free(messages->free_slots);
    free(messages->events);
    free(messages);
}

static sl_status make_messages(const sl_mail_ops *ops, void *self, uint32_t slot_count,
                               sl_messages **out_messages)
{
    sl_messages *messages = calloc(1, sizeof *messages);
    if (!messages)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for messages between machines");
    messages->ops = ops;
    messages->self = self;
    messages->slot_count = slot_count;
    pthread_mutex_init(&messages->lock, NULL);
    sl_queue_init_condition(&messages->bell);
    messages->slots = calloc(slot_count, sizeof *messages->slots);
    messages->free_slots = calloc(slot_count, sizeof *messages->free_slots);
    messages->events = calloc(slot_count, sizeof *messages->events);
    if (!messages->slots || !messages->free_slots || !messages->events) {
        free_messages(messages);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u messages between machines", slot_count);
    }
    while (messages->free_count < slot_count) {
        messages->free_slots[messages->free_count] = slot_count - 1 - messages->free_count;
        messages->free_count++;
    }
    *out_messages = messages;
    return SL_OK;
}

/* Waits until the phase is another one, and returns it. */
static int await_phase_after(sl_messages *messages, int phase, uint64_t limit_ns)
{
    struct timespec until = sl_clock_time_in(limit_ns);
    pthread_mutex_lock(&messages->lock);
    int error = 0;
    while ((int)messages->phase == phase && error == 0)
        error = pthread_cond_timedwait(&messages->bell, &messages->lock, &until);
    phase = messages->phase;
    pthread_mutex_unlock(&messages->lock);
    return phase;
}

sl_status sl_messages_open(const sl_mail_ops *ops, void *self, uint32_t slot_count,
                           double timeout_s, sl_messages **out_messages)
{
    sl_messages *messages;
    SL_TRY(make_messages(ops, self, slot_count, &messages));
    if (sl_thread_start(&messages->thread, "sl-messages", run, messages) != 0) {
        free_messages(messages);
        SL_FAIL(SL_ERROR_SYSTEM, "no thread for messages between machines");
    }
    int phase = await_phase_after(messages, PHASE_OPENING, (uint64_t)(timeout_s * 1e9));
    if (phase == PHASE_OPEN) {
        *out_messages = messages;
        return SL_OK;
    }
    if (phase == PHASE_OPENING) { /* it hangs there, and keeps its memory */
        pthread_detach(messages->thread);
        SL_FAIL(SL_ERROR_RANK, "the ranks of other machines did not start in time");
    }
    pthread_join(messages->thread, NULL);
    sl_status status =
        sl_status_fail(SL_ERROR_SYSTEM, "no messages between machines: %s", messages->error);
    free_messages(messages);
    return status;
}

/* ---- ending ---- */

/* MPI would leave the other ranks, and one that is stopped, to whoever started them: srun does not
 * end them by itself. Abort may hang: after some seconds the process ends without it. */
typedef struct last_words {
    const sl_mail_ops *ops;
    void *self;
    int code;
} last_words;

static last_words at_exit;

static void *abort_job(void *argument)
{
    const last_words *words = argument;
    words->ops->abort(words->self, words->code);
    return NULL;
}

static void end_job(int code, void *argument)
{
    const struct timespec time = {END_S, 0};
    pthread_t thread;
    (void)argument;
    at_exit.code = code;
    fflush(NULL);
    if (sl_thread_start(&thread, "sl-abort", abort_job, &at_exit) == 0)
        nanosleep(&time, NULL);
    _exit(code);
}

static uint64_t find_looks(double seconds)
{
    return (uint64_t)(seconds * 1e9 / IDLE_NS) + 1;
}

/* True if the thread has ended in time: after a verdict it has some seconds left. */
static bool await_end(sl_messages *messages, double limit_s)
{
    sl_board *board = atomic_load(&messages->board);
    uint64_t looks = 0, most = find_looks(limit_s);
    while (await_phase_after(messages, PHASE_OPEN, IDLE_NS) != PHASE_OVER) {
        if (++looks >= most)
            return false;
        if (board && looks + find_looks(END_S) < most && sl_board_poll(board) != SL_OK)
            most = looks + find_looks(END_S);
    }
    pthread_join(messages->thread, NULL); /* it has nothing more to do */
    return true;
}

void sl_messages_close(sl_messages *messages, bool is_whole, double timeout_s)
{
    if (!messages)
        return;
    pthread_mutex_lock(&messages->lock);
    atomic_store(&messages->ending, is_whole ? ENDING_WHOLE : ENDING_BROKEN);
    pthread_cond_broadcast(&messages->bell);
    pthread_mutex_unlock(&messages->lock);
    bool is_over = await_end(messages, is_whole ? timeout_s + 1 : END_S);
    if ((!is_whole || !is_over || messages->has_told) && messages->ops->abort && !at_exit.ops) {
        at_exit = (last_words){.ops = messages->ops, .self = messages->self};
        on_exit(end_job, NULL);
    }
    if (is_over) {
        free_messages(messages);
    } else {
        atomic_store(&messages->board, NULL);
        pthread_detach(messages->thread); /* and keeps its memory */
    }
}

/* ---- messages ---- */

uint32_t sl_messages_rank(const sl_messages *messages)
{
    return messages->rank;
}

uint32_t sl_messages_size(const sl_messages *messages)
{
    return messages->size;
}

void *sl_messages_take(sl_messages *messages, uint64_t count, uint64_t bytes)
{
    taken *one = NULL;
    uint64_t all;
    if (!__builtin_mul_overflow(count, bytes, &all) && all <= PTRDIFF_MAX - sizeof *one)
        one = calloc(1, sizeof *one + all);
    if (!one)
        return NULL;
    one->next = messages->memories;
    messages->memories = one;
    return one->memory;
}

void sl_messages_start(sl_messages *messages, sl_message *message)
{
    message->next = NULL;
    atomic_store(&message->state, MESSAGE_WAITING);
    pthread_mutex_lock(&messages->lock);
    if (messages->last)
        messages->last->next = message;
    else
        messages->first = message;
    messages->last = message;
    pthread_cond_signal(&messages->bell);
    pthread_mutex_unlock(&messages->lock);
}

static bool is_done(const sl_message *message)
{
    return atomic_load_explicit(&message->state, memory_order_acquire) == MESSAGE_DONE;
}

bool sl_message_is_idle(const sl_message *message)
{
    uint32_t state = atomic_load_explicit(&message->state, memory_order_acquire);
    return state == MESSAGE_DONE || state == MESSAGE_IDLE;
}

sl_status sl_messages_await(const sl_message *message, double timeout_s)
{
    const struct timespec pause = {0, 500000};
    uint64_t end_ns = sl_clock_now_ns() + (uint64_t)(timeout_s * 1e9);
    while (!is_done(message)) {
        if (sl_clock_now_ns() > end_ns)
            SL_FAIL(SL_ERROR_RANK, "rank %u has not started in time", message->peer);
        nanosleep(&pause, NULL);
    }
    return SL_OK;
}

void sl_messages_watch(sl_messages *messages, sl_board *board)
{
    atomic_store(&messages->board, board);
}

/* ---- ranks elsewhere ---- */

void sl_messages_name_host(sl_messages *messages, uint32_t rank, const char *host,
                           bool is_elsewhere)
{
    pthread_mutex_lock(&messages->lock);
    messages->peers[rank].is_elsewhere = is_elsewhere; /* seen by the thread after the board */
    snprintf(messages->peers[rank].host, SL_PEER_HOST_BYTES, "%s", host);
    pthread_mutex_unlock(&messages->lock);
}

void sl_messages_note_op(sl_messages *messages, uint32_t rank, uint64_t step, const char *op)
{
    pthread_mutex_lock(&messages->lock);
    messages->peers[rank].step = step;
    memcpy(messages->peers[rank].op, op, SL_PEER_OP_BYTES - 1);
    atomic_store(&messages->peers[rank].is_there, true);
    pthread_mutex_unlock(&messages->lock);
}

/* Fails, and ends the board, if waiting on for the rank has no sense: it has left, or has made no
 * progress for as long as the deadline. */
static sl_status check_wait(sl_messages *messages, sl_board_patience *patience,
                            const sl_board_wait *wait, uint32_t rank)
{
    sl_board *board = atomic_load(&messages->board);
    const peer *awaited = &messages->peers[rank];
    SL_TRY(sl_board_poll(board));
    sl_board_heed(board, patience, atomic_load(&awaited->progress));
    bool has_left = atomic_load(&awaited->has_left) && patience->waited_ns > LEFT_NS;
    if (!has_left && (double)patience->waited_ns * 1e-9 <= board->timeout_s)
        return SL_OK;
    return sl_board_end_wait(board, wait, describe_peer(messages, rank, true).text, has_left);
}

sl_status sl_messages_wait(sl_messages *messages, const sl_message *message, const char *comm,
                           const char *op)
{
    sl_board *board = atomic_load(&messages->board);
    sl_board_patience patience = {0};
    sl_board_wait wait = {comm, op, UINT32_MAX, message->bell, 0};
    for (;;) {
        wait.seen = atomic_load(&message->bell->word);
        if (is_done(message))
            return SL_OK;
        SL_TRY(sl_board_sleep(board, &patience, &wait));
        SL_TRY(check_wait(messages, &patience, &wait, message->peer));
    }
}
