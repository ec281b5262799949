/* Signs of life of long work: reading, writing, hashing and encoding give one after each part.
 *
 * A thread has one listener at most. Through the listener, other ranks that wait for this thread's
 * work see that it gets on, and wait longer. The listener can also end work that is no longer
 * wanted: it returns a status other than SL_OK, which the work then returns.
 */
#ifndef SL_BASE_HEARTBEAT_H
#define SL_BASE_HEARTBEAT_H

#include "status.h"

/* Returns SL_OK, or the status with which the work is to end. */
typedef sl_status (*sl_heartbeat_listener)(void *user);

/* From now on sl_heartbeat_give of the calling thread calls `listener`; NULL: none. */
void sl_heartbeat_listen(sl_heartbeat_listener listener, void *user);

/* Says that a part of long work is done. Returns what the listener returns; SL_OK without one. */
sl_status sl_heartbeat_give(void);

#endif
