/* The window of a communicator: memory of a board through which its ranks hand each other pieces.
 *
 * All ranks go through the same passes. In a pass each rank lays pieces into its own half, says
 * that it has come, waits until all have, and reads what the others laid for it. A rank has two
 * halves and uses them in turn: when it writes one again, two passes later, all have come to the
 * pass between, which they do after reading. So a pass is one wait, whatever the calls are made of.
 *
 * Each pair of ranks has a small window of its own beside that, for exchanges in which the others
 * take no part.
 */
#ifndef SL_COMM_WINDOW_H
#define SL_COMM_WINDOW_H

#include "board.h"
#include "comm.h"

/* The window of a communicator, as this rank sees it. */
typedef struct sl_window {
    uint64_t offset;              /* in the board's memory */
    struct sl_window_slot *slots; /* [size] */
    unsigned char *halves;
    uint64_t half_bytes;
    uint32_t pass_count;
} sl_window;

/* The bytes of a window for so many ranks, those of its pairs included. */
uint64_t sl_window_bytes(uint32_t member_count);

/* Of these, what `local_count` of them take of their machine when they open it. */
uint64_t sl_window_taken_bytes(uint32_t member_count, uint32_t local_count);

/* The largest piece that one rank can lay for another in a pass: a multiple of 64 bytes. */
uint64_t sl_window_piece_bytes(uint32_t member_count);

/* The window of two of the members, in that of all which begins at `offset`. */
uint64_t sl_window_find_pair(uint64_t offset, uint32_t member_count, uint32_t member,
                             uint32_t other);

enum { SL_WINDOW_PAIR_BYTES = 256 << 10 }; /* of what one of a pair can lay in a pass */

/* Opens the window of a communicator of several ranks, whose other fields are set: at `offset` of
 * the board. Ranks elsewhere have no part in it. */
sl_status sl_window_open(sl_comm *comm, uint64_t offset);

/* What a rank calls, so that others see whether they call the same. No padding: its bytes compare.
 */
typedef struct sl_window_sign {
    uint64_t call, pass; /* counted from 0 */
    uint64_t count, detail, types;
    char op[16];
} sl_window_sign;

/* Ends the run because of two ranks that call different things: this one, and `who`. */
sl_status sl_window_refuse(sl_comm *comm, const sl_window_sign *mine, const sl_window_sign *theirs,
                           const char *who);

/* Where this rank lays the piece for `member` in the coming pass, or, with SL_WINDOW_ALL, one for
 * all of them: as large as all pieces together. */
void *sl_window_place(const sl_comm *comm, uint32_t member);

#define SL_WINDOW_ALL 0u

/* Says that this rank's pieces lie there. */
void sl_window_arrive(sl_comm *comm, const sl_window_sign *sign);

/* Waits until all ranks of this machine have come, and leads to the next half. SL_ERROR_INTERNAL if
 * a rank calls something else. */
sl_status sl_window_wait(sl_comm *comm);

/* The half of `member` in the pass that was waited for last. */
const void *sl_window_half(const sl_comm *comm, uint32_t member);

/* This rank's bell, which wakes it when a message has come. */
sl_board_bell *sl_window_bell(const sl_comm *comm);

#endif
