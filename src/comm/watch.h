/* The watch over the ranks of one machine: a thread of each rank's process, beside its work.
 *
 * It beats: several times a second it raises a number in the board, whatever the rank does. Only a
 * process that does not run does not beat. And it looks at the others: a rank whose process has
 * ended, or has not beaten for the heartbeat's deadline, ends the run with a message that names it.
 * So a rank notices a death wherever it is: in a wait, a kernel, a transfer or a save.
 */
#ifndef SL_COMM_WATCH_H
#define SL_COMM_WATCH_H

#include "board.h"

typedef struct sl_watch sl_watch;

/* Starts the thread. It is closed before `board`, the view of a process. */
sl_status sl_watch_open(sl_board *board, sl_watch **out_watch);

/* NULL is fine. */
void sl_watch_close(sl_watch *watch);

/* While `is_at_work`, the beats of this rank count as its progress (board.h), unless it waits for
 * others: it does one thing that may take long, such as a save. So others wait for it, but no
 * longer than ten deadlines for one piece of that work. Any thread. */
void sl_watch_set_work(sl_watch *watch, bool is_at_work);

/* `lost` is called once as soon as the run has ended for whatever reason, by the thread or by this
 * call. NULL: nobody listens any more; the call under way has returned. */
void sl_watch_listen(sl_watch *watch, void (*lost)(void *user), void *user);

#endif
