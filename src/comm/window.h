/* The window of a communicator: memory of a board through which its ranks hand each other pieces.
 *
 * All ranks go through the same passes. In a pass each rank lays pieces into its own half, says
 * that it has come, waits until all have, and reads what the others laid for it. A rank has two
 * halves and uses them in turn: when it writes one again, two passes later, all have come to the
 * pass between, which they do after reading. So a pass is one wait, whatever the calls are made of.
 *
 * Pairs of ranks have channels beside that, for exchanges in which the others take no part: two
 * parts each way, filled by the one and drained by the other.
 */
#ifndef SL_COMM_WINDOW_H
#define SL_COMM_WINDOW_H

#include "board.h"
#include "comm.h"

typedef struct sl_window sl_window;

/* The bytes of a window for so many ranks, channels included. */
uint64_t sl_window_bytes(uint32_t member_count);

/* Of these, what `local_count` of them take of their machine when they open it. */
uint64_t sl_window_taken_bytes(uint32_t member_count, uint32_t local_count);

/* The largest piece that one rank can lay for another in a pass: a multiple of 64 bytes. */
uint64_t sl_window_piece_bytes(uint32_t member_count);

typedef struct sl_window_args {
    sl_board *board;
    const char *name;      /* borrowed */
    uint64_t offset;       /* of the window in the board's memory */
    uint32_t member_count; /* of the communicator */
    uint32_t member;       /* this rank's place among them */
    const uint32_t *local; /* [member_count] their local indices; borrowed; UINT32_MAX: on another
                              machine, and not part of this window */
} sl_window_args;

sl_status sl_window_open(const sl_window_args *args, sl_window **out_window);
void sl_window_close(sl_window *window);

/* What a rank calls, so that others see whether they call the same. No padding: its bytes compare.
 */
typedef struct sl_window_sign {
    uint64_t call, pass; /* counted from 0 */
    uint64_t count, detail;
    uint32_t op;
    uint32_t types;
} sl_window_sign;

/* Where this rank lays the piece for `member` in the coming pass, or, with SL_WINDOW_ALL, one for
 * all of them: as large as all pieces together. */
void *sl_window_place(const sl_window *window, uint32_t member);

#define SL_WINDOW_ALL 0u

/* Says that this rank's pieces lie there. */
void sl_window_arrive(sl_window *window, const sl_window_sign *sign);

/* Waits until all ranks of this machine have come, and leads to the next half. `op` is for
 * messages. SL_ERROR_INTERNAL if a rank calls something else. */
sl_status sl_window_wait(sl_window *window, const char *op);

/* The half of `member` in the pass that was waited for last. */
const void *sl_window_half(const sl_window *window, uint32_t member);

/* What else an exchange moves: messages with members of other machines. */
typedef struct sl_window_beside {
    /* Moves what it can, without blocking; fails if waiting on has no sense. */
    sl_status (*step)(void *user, sl_board_patience *patience, bool *out_has_moved,
                      bool *out_is_over);
    void *user;
} sl_window_beside;

/* Both ways at once with members of this machine; SL_COMM_NOBODY: not that way. `beside` may be
 * NULL, and rings the bell of this rank when it can move. */
sl_status sl_window_exchange(sl_window *window, const sl_comm_exchange_args *args,
                             const sl_window_beside *beside);

/* This rank's bell, for sl_board_wake. */
void sl_window_bell(const sl_window *window, _Atomic uint32_t **out_word,
                    _Atomic uint32_t **out_sleepers);

#endif
