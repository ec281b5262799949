/* The board: memory that the ranks of one machine share, and in it what each of them is doing. It
 * ends waits: when a rank left, gave up, or did not come in time, it says which one and what it did
 * last; the watch (watch.h) finds those that died. Windows of communicators are carved from the
 * same memory.
 *
 * A view is one rank's handle. Views of processes map the board's file apart; views of threads
 * share one mapping. Ranks are named by their place on this machine, `local_index`; their rank in
 * the world stands in the board.
 */
#ifndef SL_COMM_BOARD_H
#define SL_COMM_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* A view. */
typedef struct sl_board {
    uint32_t local_index, rank_count; /* of this rank's machine */
    _Atomic double timeout_s;   /* how long a wait lasts without progress; any thread sets it */
    _Atomic double heartbeat_s; /* how long a process may go without a beat; likewise */
    /* of board.c: */
    struct board_mapping *mapping;
    struct board_head *head;
    _Atomic uint32_t sleep_count; /* threads in sl_board_sleep */
    uint32_t spins;
    bool has_entered, is_of_processes;
} sl_board;

/* Makes the file of a board for `rank_count` ranks of this machine, of `world_size` in all: a
 * memfd, closed on exec. Its memory is taken as it is used. */
sl_status sl_board_create(uint32_t rank_count, uint32_t world_size, int *out_file);

/* Maps the board in `file`, which stays the caller's, as local rank `local_index`. A
 * rank that is a process (`is_of_processes`) gets the next board of the file each time, and makes
 * that board if no other rank has: so such ranks may open several worlds, all in the same order.
 * SL_ERROR_RANK: one of the ranks has ended (sl_board_lose). SL_ERROR_USAGE: `file` holds no boards
 * of this build. SL_ERROR_SYSTEM: no memory. */
sl_status sl_board_open(int file, uint32_t local_index, bool is_of_processes, sl_board **out_board);

/* Another view of the same mapping, for another thread. */
sl_status sl_board_share(sl_board *first, uint32_t local_index, sl_board **out_board);

/* Says that the rank has left: others that wait for it fail. */
void sl_board_leave(sl_board *board);

/* Leaves. NULL is fine. */
void sl_board_close(sl_board *board);

/* Writes this rank's entry. */
void sl_board_enter(sl_board *board, uint32_t world_rank);

/* Enters, and waits until all ranks have. */
sl_status sl_board_join(sl_board *board, uint32_t world_rank);

/* ---- memory ---- */

/* Where the window of the world lies. */
uint64_t sl_board_world_window(const sl_board *board);

/* Carves out `bytes`, zero and page aligned; any view may do so. Each page is taken from the system
 * when it is first touched, or by sl_board_take. */
sl_status sl_board_reserve(sl_board *board, uint64_t bytes, uint64_t *out_offset);

/* Takes memory from the system now, so that touching it cannot fail. SL_ERROR_SYSTEM. */
sl_status sl_board_take(sl_board *board, uint64_t offset, uint64_t bytes);

void *sl_board_memory(const sl_board *board, uint64_t offset);

/* ---- what a rank does ---- */

/* Counts as progress. */
void sl_board_post(sl_board *board, uint64_t step, const char *op);

enum { SL_BOARD_OP_BYTES = 64 };

/* What this rank posted last. */
void sl_board_last_post(const sl_board *board, uint64_t *out_step, char out_op[SL_BOARD_OP_BYTES]);

/* ---- progress ----
 *
 * Each rank has a progress number. A rank that works for long without a call, say while it saves,
 * advances: it takes a new number, larger than all others of the machine (Lamport's clock). A rank
 * that waits follows: it takes over the number of the rank that it waits for. Whenever the number
 * of the awaited rank has grown, the deadline of the wait is counted anew; so ranks that wait for a
 * waiting rank wait longer too. Only work makes new numbers: ranks that wait for each other in a
 * circle do not keep each other waiting.
 */

/* Says that this rank has done a part of its work. Any thread. */
void sl_board_advance(sl_board *board);

/* The number of this rank, to be sent to other machines. */
uint64_t sl_board_progress(const sl_board *board);

/* ---- signs of life ----
 *
 * A process beats: it raises a number of its entry, as long as it runs (watch.h).
 */

void sl_board_beat(sl_board *board);

/* Whether a thread of this rank waits for other ranks. */
bool sl_board_is_waiting(const sl_board *board);

/* What the watch looks at; zero unless the rank is here. */
typedef struct sl_board_rank {
    bool is_here;
    int32_t process;
    uint64_t process_space; /* in which `process` is a number */
    uint64_t beats;
} sl_board_rank;

sl_board_rank sl_board_read_rank(const sl_board *board, uint32_t local_index);

/* Of this process. */
uint64_t sl_board_process_space(void);

/* ---- waiting ---- */

/* How long a wait has lasted since the awaited rank made progress, in time during which this
 * process ran: a suspended job is not a dead one. All zeros at the start of a wait. */
typedef struct sl_board_patience {
    uint64_t waited_ns, last_ns;
    uint64_t progress; /* the awaited rank's number */
    uint32_t spins;
} sl_board_patience;

/* A word that changes when something has come, and how many sleep on it; in shared memory. */
typedef struct sl_board_bell {
    _Atomic uint32_t word, sleepers;
} sl_board_bell;

/* What is waited for: that the bell's word is no longer `seen`. */
typedef struct sl_board_wait {
    const char *comm, *op; /* "tp", "all_reduce" */
    uint32_t local_index;  /* of the first rank that is missing; beyond all: none of this machine */
    sl_board_bell *bell;
    uint32_t seen;
} sl_board_wait;

/* Sleeps until the word changes, a tick at most; fails if waiting on has no sense. */
sl_status sl_board_sleep(sl_board *board, sl_board_patience *patience, const sl_board_wait *wait);

/* Adds 1 to the word and wakes who sleeps on it. */
void sl_board_ring(sl_board_bell *bell);

/* Notes the number of the awaited rank, on this machine or another: if it has grown, this rank
 * takes it over, and the deadline is counted anew. */
void sl_board_heed(sl_board *board, sl_board_patience *patience, uint64_t progress);

/* Ends the run because of a wait for `who`, which has left or did not come in time. Returns what
 * ended it, which may be somebody else's verdict. */
sl_status sl_board_end_wait(sl_board *board, const sl_board_wait *wait, const char *who,
                            bool has_left);

/* ---- ending ---- */

/* Ends all waits of this machine's ranks with `status` and a text; the first call stands. The
 * message of the calling thread (sl_status_message) stays. */
void sl_board_end(sl_board *board, sl_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same because of `who`, which has not beaten for the heartbeat's deadline. */
void sl_board_end_quiet(sl_board *board, const char *who);

/* Called by the process that started the ranks of the boards in `file`, when one of them has ended;
 * `how` says how, such as "ended with code 1". Ends all waits on the boards to which that rank has
 * not come. Does not change the others: there the ranks notice the end themselves. */
sl_status sl_board_lose(int file, uint32_t local_index, const char *how);

/* What a rank leaves on the board in `file` for the process that started the ranks, which prints a
 * text of several ranks once: warnings, numbered from 0, and its last words, the message of its
 * failure, which it leaves before it ends. */
enum { SL_BOARD_REMARKS = 4, SL_BOARD_LAST_WORDS = SL_BOARD_REMARKS, SL_BOARD_TEXTS };

/* One thread at a time. *out_is_left: false if there is no room; then the rank prints by itself.
 * SL_ERROR_USAGE: `file` is no board of this build. SL_ERROR_SYSTEM. */
sl_status sl_board_leave_text(int file, uint32_t local_index, bool is_last, const char *text,
                              bool *out_is_left);

/* "" if that text is not left yet. Statuses as above. */
sl_status sl_board_read_text(int file, uint32_t local_index, uint32_t text_index,
                             char out_text[SL_STATUS_MESSAGE_BYTES]);

/* SL_OK, or what ended them. */
sl_status sl_board_poll(const sl_board *board);

typedef struct sl_board_name {
    char text[256];
} sl_board_name;

/* "rank 2 (process 4711, stopped), in step 12 at h.3.attn" of a rank. */
sl_board_name sl_board_describe(const sl_board *board, uint32_t local_index);

#endif
