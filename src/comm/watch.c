/* A thread that sleeps in poll, on the descriptors of the other ranks' processes; see watch.h.
 *
 * Time counts as far as this process ran: after a job, or its machine, was suspended, the others
 * have a whole deadline to beat again.
 */
#define _GNU_SOURCE
#include "watch.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

enum {
    TICK_MS = 200,
    TICK_NS = TICK_MS * 1000000,
    WORK_DEADLINES = 10 /* for one piece of long work */
};

/* What is known of another rank. */
typedef struct watched {
    bool is_known;            /* its descriptor was asked for */
    uint64_t beats, quiet_ns; /* its last beat that was seen, and for how long there was none */
} watched;

struct sl_watch {
    sl_board *board;
    pthread_t thread;
    uint32_t rank_count;
    watched *ranks;           /* [rank_count] */
    struct pollfd *processes; /* [rank_count + 1]: -1 where none is watched; last, the bell */
    uint64_t last_ns, progress, idle_ns;
    _Atomic bool is_at_work;
    pthread_mutex_t lock; /* of what follows */
    bool is_lost;
    void (*lost)(void *user);
    void *user;
};

static int *bell_of(const sl_watch *watch)
{
    return &watch->processes[watch->rank_count].fd;
}

/* ---- this rank ---- */

/* The progress that another thread of this rank makes counts anew. */
static void beat(sl_watch *watch, uint64_t passed_ns)
{
    sl_board *board = watch->board;
    const bool has_moved = sl_board_progress(board) != watch->progress;
    const double limit_ns = WORK_DEADLINES * 1e9 * board->timeout_s;
    watch->idle_ns = has_moved ? 0 : watch->idle_ns + passed_ns;
    sl_board_beat(board);
    if (atomic_load(&watch->is_at_work) && !sl_board_is_waiting(board) &&
        (double)watch->idle_ns < limit_ns)
        sl_board_advance(board);
    watch->progress = sl_board_progress(board);
}

/* ---- the others ---- */

static void lose_dead(const sl_watch *watch, uint32_t rank)
{
    sl_board_end(watch->board, SL_ERROR_RANK, "a rank has died: %s",
                 sl_board_describe(watch->board, rank).text);
}

/* From the moment in which it is here. Numbers of processes mean nothing in another container: of
 * such a rank the beats alone are watched. */
static void watch_process(sl_watch *watch, uint32_t rank, const sl_board_rank *it)
{
    if (watch->ranks[rank].is_known || it->process_space != sl_board_process_space())
        return;
    watch->ranks[rank].is_known = true;
    watch->processes[rank].fd = (int)syscall(SYS_pidfd_open, it->process, 0);
    if (watch->processes[rank].fd < 0 && errno == ESRCH)
        lose_dead(watch, rank);
}

static void look_for_end(sl_watch *watch, uint32_t rank, const sl_board_rank *it)
{
    struct pollfd *process = &watch->processes[rank];
    if (process->revents == 0)
        return;
    if (it->is_here)
        lose_dead(watch, rank);
    close(process->fd);
    *process = (struct pollfd){.fd = -1};
}

static void look_for_beat(sl_watch *watch, uint32_t rank, const sl_board_rank *it,
                          uint64_t passed_ns)
{
    watched *seen = &watch->ranks[rank];
    seen->quiet_ns = it->beats != seen->beats ? 0 : seen->quiet_ns + passed_ns;
    seen->beats = it->beats;
    if (1e-9 * (double)seen->quiet_ns > watch->board->heartbeat_s)
        sl_board_end_quiet(watch->board, sl_board_describe(watch->board, rank).text);
}

static void look_at_others(sl_watch *watch, uint64_t passed_ns)
{
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        if (i == watch->board->local_index)
            continue;
        const sl_board_rank it = sl_board_read_rank(watch->board, i);
        look_for_end(watch, i, &it);
        if (!it.is_here)
            continue;
        watch_process(watch, i, &it);
        look_for_beat(watch, i, &it, passed_ns);
    }
}

/* ---- the thread ---- */

static void tell_loss(sl_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->is_lost = true;
    if (watch->lost)
        watch->lost(watch->user);
    pthread_mutex_unlock(&watch->lock);
}

static void *keep_watch(void *argument)
{
    sl_watch *watch = argument;
    const struct pollfd *bell = &watch->processes[watch->rank_count];
    watch->last_ns = sl_clock_now_ns();
    while (bell->revents == 0) {
        const uint64_t now_ns = sl_clock_now_ns(), passed_ns = now_ns - watch->last_ns;
        const uint64_t counted_ns = passed_ns < 2ull * TICK_NS ? passed_ns : 2ull * TICK_NS;
        watch->last_ns = now_ns;
        beat(watch, counted_ns);
        look_at_others(watch, counted_ns);
        if (sl_board_poll(watch->board) != SL_OK) {
            tell_loss(watch);
            break;
        }
        (void)poll(watch->processes, watch->rank_count + 1, TICK_MS);
    }
    return NULL;
}

static void free_watch(sl_watch *watch)
{
    for (uint32_t i = 0; watch->processes && i <= watch->rank_count; i++)
        if (watch->processes[i].fd >= 0)
            close(watch->processes[i].fd);
    free(watch->processes);
    free(watch->ranks);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

static sl_status make_watch(sl_board *board, sl_watch **out_watch)
{
    const uint32_t count = board->rank_count;
    sl_watch *watch = calloc(1, sizeof *watch);
    if (!watch)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to watch ranks");
    pthread_mutex_init(&watch->lock, NULL);
    watch->board = board;
    watch->rank_count = count;
    watch->ranks = calloc(count, sizeof *watch->ranks);
    watch->processes = calloc(count + 1, sizeof *watch->processes);
    for (uint32_t i = 0; watch->processes && i <= count; i++)
        watch->processes[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    if (watch->ranks && watch->processes) {
        *bell_of(watch) = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        *out_watch = watch;
        return SL_OK;
    }
    free_watch(watch);
    SL_FAIL(SL_ERROR_SYSTEM, "no memory to watch %u ranks", count);
}

sl_status sl_watch_open(sl_board *board, sl_watch **out_watch)
{
    sl_watch *watch;
    SL_TRY(make_watch(board, &watch));
    const int error = *bell_of(watch) < 0
                          ? errno
                          : sl_thread_start(&watch->thread, "sl-ranks", keep_watch, watch);
    if (error != 0) {
        free_watch(watch);
        SL_FAIL(SL_ERROR_SYSTEM, "no thread to watch ranks: %s", strerror(error));
    }
    *out_watch = watch;
    return SL_OK;
}

void sl_watch_close(sl_watch *watch)
{
    if (!watch)
        return;
    (void)eventfd_write(*bell_of(watch), 1);
    pthread_join(watch->thread, NULL);
    free_watch(watch);
}

/* ---- what it is told ---- */

void sl_watch_set_work(sl_watch *watch, bool is_at_work)
{
    if (is_at_work)
        sl_board_advance(watch->board);
    atomic_store(&watch->is_at_work, is_at_work);
}

void sl_watch_listen(sl_watch *watch, void (*lost)(void *user), void *user)
{
    pthread_mutex_lock(&watch->lock);
    watch->lost = lost;
    watch->user = user;
    if (watch->is_lost && lost)
        lost(user);
    pthread_mutex_unlock(&watch->lock);
}
