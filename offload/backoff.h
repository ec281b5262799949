/* Exponential backoff for a kernel that is too busy for a request: pauses of 32 us, 64 us, ... up
 * to 65 ms, an eighth of a second in all. */
#ifndef SL_OFFLOAD_BACKOFF_H
#define SL_OFFLOAD_BACKOFF_H

#include <stdint.h>
#include <time.h>

enum { SL_BACKOFF_MAX = 12 }; /* pauses in a row */

/* Blocks for the pause after `pause_count` < SL_BACKOFF_MAX earlier ones. */
static inline void sl_backoff_pause(uint32_t pause_count)
{
    const struct timespec pause = {0, INT32_C(32000) << pause_count};
    nanosleep(&pause, NULL);
}

#endif
