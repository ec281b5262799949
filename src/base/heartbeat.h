/* Signs of life of long work: reading, writing, hashing and encoding give one after each piece.
 *
 * A thread has at most one listener. The listener tells the other ranks that this thread makes
 * progress, so that they wait longer for it. The listener can also end work that is no longer
 * wanted: it returns a status other than SL_OK, and the work returns that status.
 */
#ifndef SL_BASE_HEARTBEAT_H
#define SL_BASE_HEARTBEAT_H

#include "status.h"

/* Returns SL_OK, or the status with which the work is to end. */
typedef sl_status (*sl_heartbeat_listener)(void *user);

typedef struct sl_heartbeat {
    sl_heartbeat_listener listener; /* NULL: none */
    void *user;
} sl_heartbeat;

/* From now on sl_heartbeat_give of the calling thread calls the listener of `heard`. Returns the
 * one before, for whoever listens for a time. */
sl_heartbeat sl_heartbeat_listen(sl_heartbeat heard);

/* Reports that a piece of long work is done. Returns the listener's status; SL_OK without a
 * listener. */
sl_status sl_heartbeat_give(void);

#endif
