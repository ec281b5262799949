/* Runs grids: blocks one after another, the threads of a block as fibers that take turns.
 *
 * A thread is ready, waits for its block or for lanes of its warp, or has ended. When nobody is
 * ready, either all wait for the block and go on, or who still waits does so in vain, and the
 * launch fails. One grid runs at a time in the process, whatever threads launch. */
#include <cuda_runtime.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "shim_fiber.h"
#include "shim_grid.h"
#include "shim_order.h"

enum { RUBBISH = 0xCD };

typedef enum thread_state { READY, WAITS_FOR_BLOCK, WAITS_FOR_WARP, ENDED } thread_state;

typedef struct thread_slot {
    thread_state state;
    sl_shim_site site; /* where it waits */
    unsigned mask;     /* for whom, in its warp */
    void *mine;        /* what it brought */
    uint3 index;
} thread_slot;

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

static pthread_mutex_t one_grid = PTHREAD_MUTEX_INITIALIZER;
static thread_slot threads[SHIM_THREADS_MOST];
static uint32_t thread_count, current;
static uint32_t waiting_for_block, came_with_predicate, block_result;
static unsigned lanes_waiting[SHIM_THREADS_MOST / warpSize]; /* for lanes of their warp */
static const sl_shim_grid *running_grid;
static const sl_shim_kernel *running_kernel;
static unsigned char *dynamic_shared;
static char failure[SHIM_MESSAGE_BYTES]; /* of the grid that runs; "" is none */

/* ---- failures ---- */

static void describe_thread(const thread_slot *t, char *text, size_t bytes)
{
    snprintf(text, bytes, "thread (%u,%u,%u)", t->index.x, t->index.y, t->index.z);
}

/* The first message stays. */
static void note_failure(const char *format, va_list arguments)
{
    if (failure[0] != '\0')
        return;
    char text[400], thread[64];
    describe_thread(&threads[current], thread, sizeof thread);
    vsnprintf(text, sizeof text, format, arguments);
    snprintf(failure, sizeof failure, "%s, block (%u,%u,%u), %s: %s", running_grid->name,
             blockIdx.x, blockIdx.y, blockIdx.z, thread, text);
}

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    note_failure(format, arguments);
    va_end(arguments);
}

void sl_shim_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    note_failure(format, arguments);
    va_end(arguments);
    for (;;)
        shim_fiber_pause(); /* the block is given up at the first of these */
}

/* ---- waiting ---- */

static bool is_same_site(const sl_shim_site *a, const sl_shim_site *b)
{
    return a->line == b->line && (a->what == b->what || strcmp(a->what, b->what) == 0) &&
           (a->file == b->file || strcmp(a->file, b->file) == 0);
}

static const char *short_file(const char *file)
{
    const char *slash = strrchr(file, '/');
    return slash ? slash + 1 : file;
}

static void give_turn(thread_state state, const sl_shim_site *site)
{
    thread_slot *self = &threads[current];
    self->state = state;
    self->site = *site;
    shim_fiber_pause();
}

int sl_shim_block_wait(const sl_shim_site *site, bool predicate)
{
    waiting_for_block++;
    came_with_predicate += predicate;
    give_turn(WAITS_FOR_BLOCK, site);
    return (int)block_result;
}

/* All threads came, so all go on; at one and the same place. */
static void release_block(void)
{
    for (uint32_t i = 1; i < thread_count; i++)
        if (!is_same_site(&threads[0].site, &threads[i].site)) {
            current = i;
            note("waits in %s (%s:%d) while thread (0,0,0) waits in %s (%s:%d)",
                 threads[i].site.what, short_file(threads[i].site.file), threads[i].site.line,
                 threads[0].site.what, short_file(threads[0].site.file), threads[0].site.line);
            return;
        }
    for (uint32_t i = 0; i < thread_count; i++)
        threads[i].state = READY;
    shim_order_release(thread_count);
    block_result = came_with_predicate;
    waiting_for_block = came_with_predicate = 0;
}

/* Lane `lane` of the warp of thread `index`; NULL where the block has no such thread. */
static thread_slot *lane_of(uint32_t index, uint32_t lane)
{
    const uint32_t other = index / warpSize * warpSize + lane;
    return other < thread_count ? &threads[other] : NULL;
}

static bool is_met(const thread_slot *self, const thread_slot *other)
{
    return other != NULL && other->state == WAITS_FOR_WARP && other->mask == self->mask &&
           is_same_site(&other->site, &self->site);
}

/* Whether every other lane of the mask waits for this thread; fills lanes[]. */
static bool gather_lanes(uint32_t index, void *lanes[warpSize])
{
    for (uint32_t lane = 0; lane < warpSize; lane++) {
        thread_slot *other = lane_of(index, lane);
        lanes[lane] = NULL;
        if (!(threads[index].mask >> lane & 1))
            continue;
        if (!is_met(&threads[index], other))
            return false;
        lanes[lane] = other->mine;
    }
    return true;
}

/* The one that runs goes on anyway. */
static void make_ready(uint32_t index)
{
    threads[index].state = READY;
    if (index != current)
        shim_order_ready(index);
}

void sl_shim_warp_meet(const sl_shim_site *site, unsigned mask, void *mine,
                       void (*meet)(void *const *lanes, unsigned mask))
{
    thread_slot *self = &threads[current];
    void *lanes[warpSize];
    if (!(mask >> current % warpSize & 1))
        sl_shim_fail("is not in the mask %08x of its own %s (%s:%d)", mask, site->what,
                     short_file(site->file), site->line);
    self->mask = mask;
    self->mine = mine;
    self->site = *site;
    self->state = WAITS_FOR_WARP;
    unsigned *waiting = &lanes_waiting[current / warpSize];
    *waiting |= 1u << current % warpSize;
    if ((*waiting & mask) != mask || !gather_lanes(current, lanes)) {
        shim_fiber_pause();
        return;
    }
    *waiting &= ~mask;
    for (uint32_t lane = 0; lane < warpSize; lane++)
        if (mask >> lane & 1)
            make_ready(current / warpSize * warpSize + lane);
    meet(lanes, mask);
}

void sl_shim_shuffle_meet(void *const *lanes, unsigned mask)
{
    for (uint32_t lane = 0; lane < warpSize; lane++) {
        if (!(mask >> lane & 1))
            continue;
        sl_shim_shuffle *mine = (sl_shim_shuffle *)lanes[lane];
        if (!(mask >> mine->source & 1))
            sl_shim_fail("lane %u shuffles from lane %d, which is not in the mask %08x", lane,
                         mine->source, mask);
        mine->result = ((const sl_shim_shuffle *)lanes[mine->source])->value;
    }
}

static void ballot_meet(void *const *lanes, unsigned mask)
{
    unsigned votes = 0;
    for (uint32_t lane = 0; lane < warpSize; lane++)
        if (mask >> lane & 1)
            votes |= (unsigned)(((sl_shim_shuffle *)lanes[lane])->value != 0) << lane;
    for (uint32_t lane = 0; lane < warpSize; lane++)
        if (mask >> lane & 1)
            ((sl_shim_shuffle *)lanes[lane])->result = votes;
}

unsigned sl_shim_ballot(const sl_shim_site *site, unsigned mask, bool predicate)
{
    sl_shim_shuffle mine = {predicate, 0, 0};
    sl_shim_warp_meet(site, mask, &mine, ballot_meet);
    return (unsigned)mine.result;
}

/* ---- who waits in vain ---- */

static void describe_absence(const thread_slot *t, char *text, size_t bytes)
{
    char thread[64];
    if (t == NULL) {
        snprintf(text, bytes, "a lane beyond the block");
        return;
    }
    describe_thread(t, thread, sizeof thread);
    if (t->state == ENDED)
        snprintf(text, bytes, "%s, which has ended", thread);
    else
        snprintf(text, bytes, "%s, which waits in %s (%s:%d)", thread, t->site.what,
                 short_file(t->site.file), t->site.line);
}

/* The first thread that `index` waits for and that is not there. */
static const thread_slot *find_absent(uint32_t index)
{
    if (threads[index].state == WAITS_FOR_WARP) {
        for (uint32_t lane = 0; lane < warpSize; lane++)
            if (threads[index].mask >> lane & 1 && !is_met(&threads[index], lane_of(index, lane)))
                return lane_of(index, lane);
        return NULL;
    }
    for (uint32_t i = 0; i < thread_count; i++)
        if (threads[i].state != WAITS_FOR_BLOCK)
            return &threads[i];
    return NULL;
}

static void report_thread(uint32_t index)
{
    const thread_slot *t = &threads[index];
    char absence[200], mask[24] = "";
    describe_absence(find_absent(index), absence, sizeof absence);
    if (t->state == WAITS_FOR_WARP)
        snprintf(mask, sizeof mask, ", mask %08x", t->mask);
    current = index;
    note("waits in %s (%s:%d%s) in vain for %s", t->site.what, short_file(t->site.file),
         t->site.line, mask, absence);
}

/* Of several, one that waits in its warp: the block may wait for that one. */
static void report_stuck(void)
{
    static const thread_state states[] = {WAITS_FOR_WARP, WAITS_FOR_BLOCK};
    for (thread_state state : states)
        for (uint32_t i = 0; i < thread_count; i++)
            if (threads[i].state == state) {
                report_thread(i);
                return;
            }
}

/* ---- blocks ---- */

extern "C" unsigned char __start_sl_shared[] __attribute__((weak, visibility("hidden")));
extern "C" unsigned char __stop_sl_shared[] __attribute__((weak, visibility("hidden")));

/* By hand: the section has red zones that no call of the C library may touch. */
__attribute__((no_sanitize_address)) static void fill(unsigned char *from, unsigned char *to)
{
    for (volatile unsigned char *at = from; at < to; at++)
        *at = RUBBISH;
}

static void start_block(uint64_t block)
{
    const dim3 size = blockDim, grid = gridDim;
    blockIdx = make_uint3((unsigned)(block % grid.x), (unsigned)(block / grid.x % grid.y),
                          (unsigned)(block / grid.x / grid.y));
    for (uint32_t i = 0; i < thread_count; i++) {
        threads[i].state = READY;
        threads[i].index = make_uint3(i % size.x, i / size.x % size.y, i / size.x / size.y);
    }
    shim_order_release(thread_count);
    waiting_for_block = came_with_predicate = 0;
    memset(lanes_waiting, 0, sizeof lanes_waiting);
    fill(__start_sl_shared, __stop_sl_shared);
    if (running_grid->shared_bytes > 0)
        memset(dynamic_shared, RUBBISH, running_grid->shared_bytes);
}

static void run_thread(void)
{
    running_kernel->call(running_kernel->closure);
    threads[current].state = ENDED;
}

/* Until nobody is ready. */
static void run_threads(void)
{
    while (failure[0] == '\0' && shim_order_next(&current)) {
        threadIdx = threads[current].index;
        shim_fiber_resume(current);
    }
}

static void run_block(uint64_t block)
{
    start_block(block);
    run_threads();
    while (failure[0] == '\0' && waiting_for_block == thread_count) {
        release_block();
        run_threads();
    }
    if (failure[0] == '\0')
        report_stuck();
}

/* ---- grids ---- */

void *sl_shim_dynamic_shared(void)
{
    return dynamic_shared;
}

static void run_blocks(const sl_shim_grid *grid, const sl_shim_kernel *kernel)
{
    running_grid = grid;
    running_kernel = kernel;
    gridDim = grid->grid;
    blockDim = grid->block;
    thread_count = blockDim.x * blockDim.y * blockDim.z;
    shim_order_open();
    current = 0;
    const uint64_t count = (uint64_t)gridDim.x * gridDim.y * gridDim.z;
    void *shared = NULL;
    if (!shim_fiber_open(run_thread) || posix_memalign(&shared, 128, grid->shared_bytes) != 0)
        note("no memory");
    dynamic_shared = (unsigned char *)shared;
    for (uint64_t step = 0; step < count && failure[0] == '\0'; step++)
        run_block(shim_order_block(step, count));
    if (failure[0] != '\0')
        shim_fiber_reset();
    free(shared);
}

bool shim_grid_run(const sl_shim_grid *grid, const sl_shim_kernel *kernel, char *out_message)
{
    pthread_mutex_lock(&one_grid);
    failure[0] = '\0';
    run_blocks(grid, kernel);
    memcpy(out_message, failure, sizeof failure);
    pthread_mutex_unlock(&one_grid);
    return out_message[0] == '\0';
}
