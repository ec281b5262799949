/* Calls of the system that a signal interrupted (EINTR) are tried again, but not without end: a
 * file system may return EINTR for ever, and the run would hang in one call. Header only. */
#ifndef SL_BASE_INTERRUPTIONS_H
#define SL_BASE_INTERRUPTIONS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

enum { SL_INTERRUPTIONS_MAX = 1000 };

/* True if the call that has just failed was interrupted and is to be tried again. *count, which
 * begins with 0, counts the interruptions; whoever makes progress in between may set it back. */
static inline bool sl_interruptions_allow(uint32_t *count)
{
    return errno == EINTR && ++*count < SL_INTERRUPTIONS_MAX;
}

#endif
