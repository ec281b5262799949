/* Draws and prints the id; see run_id.h. */
#define _GNU_SOURCE
#include "run_id.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

bool sl_run_id_is_known(sl_run_id id)
{
    return id.high != 0 || id.low != 0;
}

/* Need not be secret: it only keeps two runs from having the same id. */
sl_run_id sl_run_id_draw(void)
{
    sl_run_id id = {0};
    struct timespec now;
    if (getrandom(&id, sizeof id, GRND_NONBLOCK) == (ssize_t)sizeof id && sl_run_id_is_known(id))
        return id;
    clock_gettime(CLOCK_REALTIME, &now);
    return (sl_run_id){(uint64_t)now.tv_sec, (uint64_t)now.tv_nsec << 32 ^ (uint64_t)getpid()};
}

void sl_run_id_format(sl_run_id id, char out_text[SL_RUN_ID_BYTES])
{
    snprintf(out_text, SL_RUN_ID_BYTES, "%016" PRIx64 "%016" PRIx64, id.high, id.low);
}
