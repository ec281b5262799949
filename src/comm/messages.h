/* The messages of one rank: a thread that makes all calls of a transport, because MPI wants one and
 * wants to be polled; others hand it what is to be sent and received, and wait for that as they do
 * for shared memory, with the same deadlines.
 *
 * It also carries what ends a run from one machine to another: as soon as the board of this machine
 * has a verdict it tells all ranks elsewhere, and gives theirs to this board. And several times
 * within a deadline it sends them a beat with the progress number of this rank: a rank elsewhere
 * that has not beaten for the heartbeat's deadline ends the run.
 */
#ifndef SL_COMM_MESSAGES_H
#define SL_COMM_MESSAGES_H

#include "board.h"
#include "mail.h"

typedef struct sl_messages sl_messages;

/* One message, and where it is; the owner keeps it and its data until it is done. Zero at first. */
typedef struct sl_message {
    bool is_send;
    uint32_t peer, tag; /* a rank of the world; tags count from 1 */
    void *data;
    uint64_t bytes;      /* to be sent, or the room for what is received; then, what came */
    sl_board_bell *bell; /* of whom it wakes; NULL: nobody */
    _Atomic uint32_t state;
    struct sl_message *next;
} sl_message;

/* Starts the thread, and opens the transport in it; `self` is the transport's. */
sl_status sl_messages_open(const sl_mail_ops *ops, void *self, uint32_t slot_count,
                           double timeout_s, sl_messages **out_messages);

/* With `is_whole` it says farewell to the others and waits for them, as MPI wants it. Else, and if
 * that takes longer than the deadline, what is under way is given up; such a process ends its job
 * when it exits. NULL is fine. */
void sl_messages_close(sl_messages *messages, bool is_whole, double timeout_s);

uint32_t sl_messages_rank(const sl_messages *messages);
uint32_t sl_messages_size(const sl_messages *messages);

/* Memory, zero, that is freed when nothing is under way any more. NULL: there is none. */
void *sl_messages_take(sl_messages *messages, uint64_t count, uint64_t bytes);

/* Hands it over. */
void sl_messages_start(sl_messages *messages, sl_message *message);

bool sl_message_is_idle(const sl_message *message); /* it has left or come, or was never handed
                                                      over; any thread */

/* Waits without a board: before ranks of a machine have met. SL_ERROR_RANK names the peer. */
sl_status sl_messages_await(const sl_message *message, double timeout_s);

/* From now on the board's verdict goes to the ranks elsewhere and theirs comes to it. */
void sl_messages_watch(sl_messages *messages, sl_board *board);

/* ---- what is known of a rank elsewhere ---- */

enum { SL_PEER_HOST_BYTES = 64, SL_PEER_OP_BYTES = 64 };

/* Before sl_messages_watch. */
void sl_messages_name_host(sl_messages *messages, uint32_t peer, const char *host,
                           bool is_elsewhere);
void sl_messages_note_op(sl_messages *messages, uint32_t peer, uint64_t step, const char *op);

/* Sleeps until it has left or come. Fails, and ends the board, if waiting on has no sense: the rank
 * has left, or has made no progress for as long as the deadline. */
sl_status sl_messages_wait(sl_messages *messages, const sl_message *message, const char *comm,
                           const char *op);

#endif
