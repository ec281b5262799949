#include "shadow.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "races.h"
#include "ranges.h"
#include "traffic.h"

/* Traffic of one kernel: entry i is instruction i's; as long as the last one that was counted. */
typedef struct kernel_traffic {
    struct kernel_traffic *next;
    const ptx_kernel *kernel;
    ptx_traffic *traffic;
    uint32_t count;
} kernel_traffic;

struct ptx_shadow {
    ptx_shadow_options options;
    ptx_watch watch;
    pthread_rwlock_t ranges_lock; /* a launch reads from begin to end */
    ptx_ranges ranges;
    ptx_page_pool pool;
    pthread_mutex_t traffic_lock;
    kernel_traffic *traffic;
};

enum { RECENT = 64 };

/* One launch. */
typedef struct run {
    ptx_shadow *shadow;
    ptx_launch_shape shape;
    ptx_races *races;                /* NULL: not watched */
    const ptx_range *recent[RECENT]; /* the range that an instruction touched last */
    uint8_t *shared, *local;         /* does a byte have a value: [slot][bytes of a block] */
    uint64_t local_block_bytes;
    kernel_traffic traffic;
} run;

/* ---- values ---- */

/* Flags of global memory; NULL: it is not in one range. */
static uint8_t *find_global(run *r, uint32_t instruction, uint64_t address, uint64_t bytes)
{
    const ptx_range **recent = &r->recent[instruction % RECENT], *range = *recent;
    if (!range || address < range->start || address >= range->end) {
        range = ptx_ranges_before(&r->shadow->ranges, address);
        if (!range || address >= range->end)
            return NULL;
        *recent = range;
    }
    return bytes <= range->end - address ? &range->has_value[address - range->start] : NULL;
}

/* Says that the access reaches out of its range, and where the nearest one before it lies. */
static bool refuse_place(run *r, const ptx_access *access, uint64_t address, ptx_fault *out_fault)
{
    const ptx_range *range = ptx_ranges_before(&r->shadow->ranges, address);
    const char *does = access->kind == PTX_WRITE    ? "writes"
                       : access->kind == PTX_ATOMIC ? "changes"
                                                    : "reads";
    if (!range)
        return ptx_fail(out_fault,
                        "out of bounds: %s %" PRIu32 " bytes of global memory at 0x%" PRIx64
                        ", before every range",
                        does, access->bytes, address);
    return ptx_fail(out_fault,
                    "out of bounds: %s %" PRIu32 " bytes of global memory at 0x%" PRIx64
                    ", %" PRIu64 " bytes after the start of a range of %" PRIu64,
                    does, access->bytes, address, address - range->start,
                    range->end - range->start);
}

/* Flags of one lane's, or of one stretch's, memory; NULL: it is nobody's. */
static uint8_t *find_flags(run *r, const ptx_access *access, const ptx_stretch *at)
{
    const uint64_t thread = (uint64_t)PTX_LANES * access->place.warp + at->lane;
    if (access->space == PTX_GLOBAL)
        return find_global(r, access->instruction, at->address, at->bytes);
    return access->space == PTX_LOCAL && at->address + at->bytes <= r->shape.local_bytes
               ? &r->local[access->place.slot * r->local_block_bytes +
                           thread * r->shape.local_bytes + at->address]
               : NULL;
}

/* All flags are 1: eight at once, as most accesses have so many. */
static bool is_full(const uint8_t *flags, uint64_t bytes)
{
    uint64_t eight, all = UINT64_C(0x0101010101010101);
    for (; bytes >= sizeof eight; flags += sizeof eight, bytes -= sizeof eight) {
        memcpy(&eight, flags, sizeof eight);
        all &= eight;
    }
    for (; bytes > 0; flags++, bytes--)
        all &= UINT64_C(0x0101010101010100) | *flags;
    return all == UINT64_C(0x0101010101010101);
}

static bool refuse_value(const ptx_access *access, const uint8_t *flags, uint64_t address,
                         uint64_t bytes, ptx_fault *out_fault)
{
    const uint8_t *empty = memchr(flags, 0, bytes);
    const char *space = access->space == PTX_GLOBAL   ? "global memory at"
                        : access->space == PTX_SHARED ? "shared memory at offset"
                                                      : "local memory at offset";
    return ptx_fail(out_fault, "no value: reads %s 0x%" PRIx64 ", which nobody wrote", space,
                    address + (uint64_t)(empty - flags));
}

/* Bounds and values of one stretch, or of one lane of it. */
static bool check_bytes(run *r, const ptx_access *access, const ptx_stretch *stretch,
                        ptx_fault *out_fault)
{
    uint8_t *flags = find_flags(r, access, stretch);
    if (!flags)
        return access->space == PTX_GLOBAL
                   ? refuse_place(r, access, stretch->address, out_fault)
                   : ptx_fail(out_fault, "out of bounds: local memory at offset 0x%" PRIx64,
                              stretch->address);
    if (access->kind == PTX_WRITE)
        memset(flags, 1, stretch->bytes);
    else if (!r->shadow->options.skips_values && !is_full(flags, stretch->bytes))
        return refuse_value(access, flags, stretch->address, stretch->bytes, out_fault);
    return true;
}

/* Shared memory is one piece for all lanes. */
static bool check_shared(run *r, const ptx_access *access, const ptx_stretch *stretch,
                         uint32_t stretch_count, ptx_fault *out_fault)
{
    uint8_t *flags = &r->shared[(uint64_t)access->place.slot * r->shape.shared_bytes];
    const bool checks = !r->shadow->options.skips_values;
    for (uint32_t i = 0; i < stretch_count; i++) {
        uint8_t *at = flags + stretch[i].address;
        if (stretch[i].address + stretch[i].bytes > r->shape.shared_bytes)
            return ptx_fail(out_fault, "out of bounds: shared memory at offset 0x%" PRIx64,
                            stretch[i].address);
        if (access->kind == PTX_WRITE)
            memset(at, 1, stretch[i].bytes);
        else if (checks && !is_full(at, stretch[i].bytes))
            return refuse_value(access, at, stretch[i].address, stretch[i].bytes, out_fault);
    }
    return true;
}

/* A stretch may run from one range into the next, and lanes have each their own local memory. */
static bool check_stretch(run *r, const ptx_access *access, const ptx_stretch *stretch,
                          ptx_fault *out_fault)
{
    const bool is_one =
        access->space == PTX_GLOBAL &&
        find_global(r, access->instruction, stretch->address, stretch->bytes) != NULL;
    if (is_one)
        return check_bytes(r, access, stretch, out_fault);
    for (uint32_t done = 0; done < stretch->bytes; done += access->bytes) {
        const ptx_stretch one = {stretch->address + done, access->bytes,
                                 stretch->lane + done / access->bytes, false};
        if (!check_bytes(r, access, &one, out_fault))
            return false;
    }
    return true;
}

static bool check_stretches(run *r, const ptx_access *access, const ptx_stretch *stretch,
                            uint32_t stretch_count, ptx_fault *out_fault)
{
    if (access->space == PTX_SHARED)
        return check_shared(r, access, stretch, stretch_count, out_fault);
    for (uint32_t i = 0; i < stretch_count; i++)
        if (!check_stretch(r, access, &stretch[i], out_fault))
            return false;
    return true;
}

/* ---- traffic ---- */

/* Room for instruction `index`. */
static bool grow_traffic(kernel_traffic *k, uint32_t index)
{
    if (index < k->count)
        return true;
    const uint32_t count = index + index / 2 + 64;
    ptx_traffic *grown = realloc(k->traffic, count * sizeof *grown);
    if (!grown)
        return false;
    memset(&grown[k->count], 0, (count - k->count) * sizeof *grown);
    k->traffic = grown;
    k->count = count;
    return true;
}

static kernel_traffic *find_traffic(ptx_shadow *shadow, const ptx_kernel *kernel)
{
    kernel_traffic *k = shadow->traffic;
    while (k && k->kernel != kernel)
        k = k->next;
    return k;
}

/* A launch ended: its counts are added to the kernel's, or become them. */
static void keep_traffic(ptx_shadow *shadow, kernel_traffic *counted)
{
    pthread_mutex_lock(&shadow->traffic_lock);
    kernel_traffic *k = find_traffic(shadow, counted->kernel);
    if (!k && (k = calloc(1, sizeof *k)) != NULL) {
        *k = (kernel_traffic){.next = shadow->traffic, .kernel = counted->kernel};
        shadow->traffic = k;
    }
    if (k && counted->count > 0 && grow_traffic(k, counted->count - 1))
        for (uint32_t i = 0; i < counted->count; i++) {
            ptx_traffic *to = &k->traffic[i];
            const ptx_traffic *from = &counted->traffic[i];
            to->requests += from->requests;
            to->lanes += from->lanes;
            to->bytes += from->bytes;
            to->global_requests += from->global_requests;
            to->global_bytes += from->global_bytes;
            to->sectors += from->sectors;
            to->wavefronts += from->wavefronts;
            to->least += from->least;
        }
    pthread_mutex_unlock(&shadow->traffic_lock);
    free(counted->traffic);
    counted->traffic = NULL;
}

ptx_traffic ptx_shadow_traffic(ptx_shadow *shadow, const ptx_kernel *kernel, uint32_t instruction)
{
    pthread_mutex_lock(&shadow->traffic_lock);
    const kernel_traffic *k = find_traffic(shadow, kernel);
    const ptx_traffic traffic =
        k && instruction < k->count ? k->traffic[instruction] : (ptx_traffic){0};
    pthread_mutex_unlock(&shadow->traffic_lock);
    return traffic;
}

static bool count_traffic(run *r, const ptx_access *access, const ptx_stretch *stretch,
                          uint32_t stretch_count, ptx_fault *out_fault)
{
    if (!r->shadow->options.counts_traffic)
        return true;
    if (!grow_traffic(&r->traffic, access->instruction))
        return ptx_fail(out_fault, "no memory for counts of traffic");
    ptx_traffic_add(&r->traffic.traffic[access->instruction], access, stretch, stretch_count);
    return true;
}

/* ---- what a launch tells ---- */

static void close_run(run *r)
{
    ptx_races_close(r->races);
    free(r->shared);
    free(r->local);
    free(r->traffic.traffic);
    free(r);
}

static bool begin_launch(void *watcher, const ptx_launch_shape *shape, void **out_run,
                         ptx_fault *out_fault)
{
    ptx_shadow *shadow = watcher;
    const uint64_t slots = shape->slot_count ? shape->slot_count : 1;
    run *r = calloc(1, sizeof *r);
    if (!r)
        return ptx_fail(out_fault, "no memory to watch a launch");
    r->shadow = shadow;
    r->shape = *shape;
    r->traffic.kernel = shape->kernel;
    r->local_block_bytes =
        (uint64_t)shape->local_bytes * PTX_LANES * ((shape->threads_per_block + 31) / PTX_LANES);
    r->shared = calloc(slots * shape->shared_bytes + 1, 1);
    r->local = calloc(slots * r->local_block_bytes + 1, 1);
    if (!shadow->options.skips_order)
        r->races = ptx_races_open(shape, &shadow->pool, out_fault);
    if (!r->shared || !r->local || (!shadow->options.skips_order && !r->races)) {
        close_run(r);
        return ptx_fail(out_fault, "no memory to watch a launch");
    }
    pthread_rwlock_rdlock(&shadow->ranges_lock);
    *out_run = r;
    return true;
}

static bool begin_block(void *run_of, const ptx_place *place, ptx_fault *out_fault)
{
    run *r = run_of;
    memset(r->shared + (uint64_t)place->slot * r->shape.shared_bytes, 0, r->shape.shared_bytes);
    memset(r->local + place->slot * r->local_block_bytes, 0, r->local_block_bytes);
    return !r->races || ptx_races_begin_block(r->races, place, out_fault);
}

/* Order before values: a target that is in flight has no value either. */
static bool check_access(void *run_of, const ptx_access *access, ptx_fault *out_fault)
{
    run *r = run_of;
    ptx_stretch stretch[PTX_LANES];
    const uint32_t count = ptx_stretch_cut(access, stretch);
    if (r->races && access->space != PTX_LOCAL &&
        !ptx_races_access(r->races, access, stretch, count, out_fault))
        return false;
    if (!check_stretches(r, access, stretch, count, out_fault))
        return false;
    return count_traffic(r, access, stretch, count, out_fault);
}

static void join_warp(void *run_of, const ptx_place *place, uint32_t lanes)
{
    run *r = run_of;
    if (r->races)
        ptx_races_join_warp(r->races, place, lanes);
}

static void join_block(void *run_of, const ptx_place *place, const uint32_t *lanes)
{
    run *r = run_of;
    if (r->races)
        ptx_races_join_block(r->races, place, lanes);
}

/* One end of a copy, as an access but for its order. The target counts as written from now on: as
 * long as the copy is in flight, order refuses whoever touches it. */
static bool check_end(run *r, const ptx_access *access, ptx_fault *out_fault)
{
    ptx_stretch stretch[PTX_LANES];
    const uint32_t count = ptx_stretch_cut(access, stretch);
    if (!check_stretches(r, access, stretch, count, out_fault))
        return false;
    return count_traffic(r, access, stretch, count, out_fault);
}

static bool begin_copy(void *run_of, uint64_t ticket, const ptx_access *from, const ptx_access *to,
                       ptx_fault *out_fault)
{
    run *r = run_of;
    return (!from || check_end(r, from, out_fault)) && check_end(r, to, out_fault) &&
           (!r->races || ptx_races_begin_copy(r->races, ticket, from, to, out_fault));
}

static void end_copy(void *run_of, const ptx_place *place, uint64_t ticket, uint32_t lanes)
{
    run *r = run_of;
    if (r->races)
        ptx_races_end_copy(r->races, place, ticket, lanes);
}

static bool end_block(void *run_of, const ptx_place *place, ptx_fault *out_fault)
{
    run *r = run_of;
    return !r->races || ptx_races_end_block(r->races, place, out_fault);
}

static bool end_launch(void *run_of, ptx_fault *out_fault)
{
    run *r = run_of;
    const ptx_shadow_options options = r->shadow->options;
    keep_traffic(r->shadow, &r->traffic);
    pthread_rwlock_unlock(&r->shadow->ranges_lock);
    const bool is_told = !options.touch || !r->races ||
                         ptx_races_tell_touched(r->races, options.touch, options.touch_context);
    close_run(r);
    return is_told || ptx_fail(out_fault, "no memory to tell what a launch touched");
}

/* ---- open, close, ranges ---- */

ptx_shadow *ptx_shadow_open(const ptx_shadow_options *options)
{
    ptx_shadow *shadow = calloc(1, sizeof *shadow);
    if (!shadow)
        return NULL;
    shadow->options = *options;
    shadow->watch = (ptx_watch){.watcher = shadow,
                                .launch_begin = begin_launch,
                                .block_begin = begin_block,
                                .access = check_access,
                                .warp_join = join_warp,
                                .block_join = join_block,
                                .copy_begin = begin_copy,
                                .copy_end = end_copy,
                                .block_end = end_block,
                                .launch_end = end_launch};
    pthread_rwlock_init(&shadow->ranges_lock, NULL);
    pthread_mutex_init(&shadow->traffic_lock, NULL);
    ptx_page_pool_open(&shadow->pool);
    return shadow;
}

void ptx_shadow_close(ptx_shadow *shadow)
{
    if (!shadow)
        return;
    while (shadow->traffic) {
        kernel_traffic *k = shadow->traffic;
        shadow->traffic = k->next;
        free(k->traffic);
        free(k);
    }
    ptx_ranges_close(&shadow->ranges);
    ptx_page_pool_close(&shadow->pool);
    pthread_rwlock_destroy(&shadow->ranges_lock);
    pthread_mutex_destroy(&shadow->traffic_lock);
    free(shadow);
}

const ptx_watch *ptx_shadow_watch(ptx_shadow *shadow)
{
    return &shadow->watch;
}

bool ptx_shadow_open_range(ptx_shadow *shadow, const void *start, uint64_t bytes, bool is_written)
{
    pthread_rwlock_wrlock(&shadow->ranges_lock);
    const bool is_open = ptx_ranges_add(&shadow->ranges, (uintptr_t)start, bytes, is_written);
    pthread_rwlock_unlock(&shadow->ranges_lock);
    return is_open;
}

bool ptx_shadow_close_range(ptx_shadow *shadow, const void *start)
{
    pthread_rwlock_wrlock(&shadow->ranges_lock);
    const bool is_closed = ptx_ranges_remove(&shadow->ranges, (uintptr_t)start);
    pthread_rwlock_unlock(&shadow->ranges_lock);
    return is_closed;
}

void ptx_shadow_written(ptx_shadow *shadow, const void *start, uint64_t bytes)
{
    pthread_rwlock_rdlock(&shadow->ranges_lock);
    ptx_ranges_set(&shadow->ranges, (uintptr_t)start, bytes);
    pthread_rwlock_unlock(&shadow->ranges_lock);
}

void ptx_shadow_copied(ptx_shadow *shadow, const void *to, const void *from, uint64_t bytes)
{
    pthread_rwlock_rdlock(&shadow->ranges_lock);
    ptx_ranges_copy(&shadow->ranges, (uintptr_t)to, (uintptr_t)from, bytes);
    pthread_rwlock_unlock(&shadow->ranges_lock);
}
