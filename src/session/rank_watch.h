/* Looks for ranks that have died, while this one waits for none of them: in a step that keeps its
 * disk or its kernels busy for minutes, the next exchange would come too late. */
#ifndef SL_SESSION_RANK_WATCH_H
#define SL_SESSION_RANK_WATCH_H

#include "comm/comm.h"
#include "engine/engine.h"

typedef struct sl_rank_watch sl_rank_watch;

/* Starts a thread that looks once a second, and stops the engine when a rank is lost. */
sl_status sl_rank_watch_open(sl_comm *world, sl_engine *engine, sl_rank_watch **out_watch);

/* Before the engine and the world. NULL is fine. */
void sl_rank_watch_close(sl_rank_watch *watch);

#endif
