/* Joins the stand-in's memory with the shadow of launches. */
#include "standin_watch.h"

#include <stdlib.h>

#include "standin.h"
#include "stream_order.h"

static ptx_shadow *shadow; /* of the process, to its end */

/* Of this thread's launch. */
static _Thread_local struct touched {
    standin_range *ranges;
    uint32_t count, capacity;
} touched;

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

static void note_touched(void *context, uint64_t start, uint64_t bytes, bool is_write)
{
    (void)context;
    if (touched.count == touched.capacity) {
        touched.capacity = touched.capacity ? 2 * touched.capacity : 64;
        touched.ranges = realloc(touched.ranges, touched.capacity * sizeof *touched.ranges);
        if (touched.ranges == NULL)
            abort();
    }
    touched.ranges[touched.count++] =
        (standin_range){(const void *)(uintptr_t)start, bytes, is_write, "global memory"};
}

void standin_watch_tell_touched(void)
{
    standin_touched(touched.ranges, touched.count);
    free(touched.ranges);
    touched = (struct touched){0};
}

void standin_watch_open(void)
{
    if (getenv("SL_PTX_UNWATCHED") != NULL)
        return;
    shadow = ptx_shadow_open(&(ptx_shadow_options){
        .counts_traffic = getenv("SL_PTX_TRAFFIC") != NULL, .touch = note_touched});
    if (shadow == NULL)
        abort();
    standin_watch_memory(&(standin_memory_watch){.watcher = shadow,
                                                 .opened = open_range,
                                                 .closed = close_range,
                                                 .written = note_written,
                                                 .copied = note_copied});
}

ptx_traffic standin_watch_traffic(const ptx_kernel *kernel, uint32_t instruction)
{
    return shadow != NULL ? ptx_shadow_traffic(shadow, kernel, instruction) : (ptx_traffic){0};
}

const ptx_watch *standin_watch(void)
{
    return shadow != NULL ? ptx_shadow_watch(shadow) : NULL;
}
