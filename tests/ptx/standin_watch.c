/* Joins the stand-in's memory with the shadow of launches. */
#include "standin_watch.h"

#include <stdlib.h>

#include "shadow.h"
#include "standin.h"

static ptx_shadow *shadow; /* of the process, to its end */

static void open_range(void *watcher, const void *start, uint64_t bytes)
{
    if (!ptx_shadow_open_range(watcher, start, bytes, false))
        standin_fault("no memory to watch %llu bytes", (unsigned long long)bytes);
}

static void close_range(void *watcher, const void *start)
{
    (void)ptx_shadow_close_range(watcher, start);
}

static void note_written(void *watcher, const void *start, uint64_t bytes)
{
    ptx_shadow_written(watcher, start, bytes);
}

static void note_copied(void *watcher, const void *to, const void *from, uint64_t bytes)
{
    ptx_shadow_copied(watcher, to, from, bytes);
}

void standin_watch_open(void)
{
    if (getenv("SL_PTX_UNWATCHED") != NULL)
        return;
    shadow = ptx_shadow_open(&(ptx_shadow_options){0});
    if (shadow == NULL)
        abort();
    standin_watch_memory(&(standin_memory_watch){.watcher = shadow,
                                                 .opened = open_range,
                                                 .closed = close_range,
                                                 .written = note_written,
                                                 .copied = note_copied});
}

const ptx_watch *standin_watch(void)
{
    return shadow != NULL ? ptx_shadow_watch(shadow) : NULL;
}
