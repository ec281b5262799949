/* Signs of life of long work: reading, writing, hashing and encoding give one after each part.
 *
 * A thread has one listener at most. Who waits for this thread's work (other ranks) hears of its
 * signs through the listener and goes on waiting; and the listener ends work that is no longer
 * wanted, by a status that the work then returns.
 */
#ifndef SL_BASE_HEARTBEAT_H
#define SL_BASE_HEARTBEAT_H

#include "status.h"

/* SL_OK, or why the work is to end. */
typedef sl_status (*sl_heartbeat_listener)(void *user);

/* From now on `listener` hears what the calling thread gives; NULL: nobody does. */
void sl_heartbeat_listen(sl_heartbeat_listener listener, void *user);

/* A part of long work is done: what the listener says. */
sl_status sl_heartbeat_give(void);

#endif
