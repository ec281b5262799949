/* The stand-in's memory. Device memory is cut from one range of addresses that nothing else uses,
 * so that any pointer into it is known; each allocation ends at a page that faults, and addresses
 * are never given out twice. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"

#define REGION_BYTES (UINT64_C(1) << 38)
#define PAGE_BYTES UINT64_C(4096)
#define ALIGNMENT UINT64_C(512)
#define FILLED_BYTES (UINT64_C(16) << 20)

enum { GARBAGE = 0xCD };

typedef struct range {
    struct range *next;
    unsigned char *start;
    uint64_t bytes;
    int device;
    bool is_ours; /* locked host memory that cudaHostAlloc took */
} range;

static unsigned char *region; /* NULL until the first allocation */
static uint64_t region_used;
static range *allocations, *registrations;
static standin_memory_watch watch;

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* ---- ranges ---- */

static range *find_around(range *list, const void *pointer, uint64_t bytes)
{
    const unsigned char *at = pointer;
    for (range *each = list; each; each = each->next) {
        if (at >= each->start && bytes <= each->bytes &&
            (uint64_t)(at - each->start) <= each->bytes - bytes)
            return each;
    }
    return NULL;
}

static bool overlaps(const range *list, const unsigned char *start, uint64_t bytes)
{
    for (; list; list = list->next) {
        if (start < list->start + list->bytes && list->start < start + bytes)
            return true;
    }
    return false;
}

/* Takes the range that starts at `start` out of the list. */
static range *take_range(range **list, const void *start)
{
    for (range **link = list; *link; link = &(*link)->next) {
        if ((*link)->start == start) {
            range *found = *link;
            *link = found->next;
            return found;
        }
    }
    return NULL;
}

static range *add_range(range **list, void *start, uint64_t bytes)
{
    range *added = calloc(1, sizeof *added);
    if (!added)
        abort();
    added->start = start;
    added->bytes = bytes;
    added->next = *list;
    *list = added;
    return added;
}

static bool is_in_region(const void *pointer)
{
    const unsigned char *at = pointer;
    return region && at >= region && at < region + REGION_BYTES;
}

standin_place standin_place_of(const void *pointer, uint64_t bytes)
{
    if (!is_in_region(pointer))
        return STANDIN_HOST;
    return find_around(allocations, pointer, bytes) ? STANDIN_DEVICE : STANDIN_WRONG;
}

int standin_is_device(const void *pointer, uint64_t bytes)
{
    pthread_mutex_lock(&standin.lock);
    int is_device = standin_place_of(pointer, bytes) == STANDIN_DEVICE;
    pthread_mutex_unlock(&standin.lock);
    return is_device;
}

/* How many of the bytes lie in registrations, of which there may be several side by side. */
static uint64_t count_locked(const void *pointer, uint64_t bytes)
{
    const uintptr_t first = (uintptr_t)pointer, end = first + bytes;
    uint64_t locked = 0;
    for (const range *each = registrations; each; each = each->next) {
        const uintptr_t start = (uintptr_t)each->start, stop = start + each->bytes;
        const uintptr_t from = start > first ? start : first, to = stop < end ? stop : end;
        locked += to > from ? to - from : 0;
    }
    return locked;
}

int standin_is_locked(const void *pointer, uint64_t bytes)
{
    pthread_mutex_lock(&standin.lock);
    int is_locked = count_locked(pointer, bytes) == bytes;
    pthread_mutex_unlock(&standin.lock);
    return is_locked;
}

static const range *find_any(const void *pointer, const char **out_kind)
{
    const range *found = find_around(allocations, pointer, 1);
    *out_kind = found ? "an allocation" : "locked host memory";
    return found ? found : find_around(registrations, pointer, 1);
}

void standin_describe_place(const void *pointer, char *out_text, uint64_t text_bytes)
{
    const char *kind;
    const range *found = find_any(pointer, &kind);
    if (found)
        snprintf(out_text, text_bytes, "from byte %llu of %s of %llu on",
                 (unsigned long long)((const unsigned char *)pointer - found->start), kind,
                 (unsigned long long)found->bytes);
    else if ((uintptr_t)pointer & STANDIN_DISK)
        snprintf(out_text, text_bytes, "from byte %llu of a disk on",
                 (unsigned long long)((uintptr_t)pointer % STANDIN_DISK_BYTES));
    else
        snprintf(out_text, text_bytes, "from %p on", pointer);
}

/* ---- who watches ---- */

void standin_watch_memory(const standin_memory_watch *who)
{
    watch = *who;
}

void standin_note_written(const void *start, uint64_t bytes)
{
    if (watch.written && is_in_region(start))
        watch.written(watch.watcher, start, bytes);
}

static void note_copied(const void *to, const void *from, uint64_t bytes)
{
    if (!is_in_region(from))
        standin_note_written(to, bytes);
    else if (watch.copied && is_in_region(to))
        watch.copied(watch.watcher, to, from, bytes);
}

/* ---- device memory ---- */

/* Pages from the region with one that faults behind them. Small allocations get no more alignment
 * than cudaMalloc promises: they end where the page does. */
static unsigned char *cut_region(uint64_t bytes)
{
    if (!region) {
        void *base =
            mmap(NULL, REGION_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED)
            return NULL;
        region = base;
        region_used = PAGE_BYTES;
    }
    uint64_t page_bytes = round_up(bytes, PAGE_BYTES);
    if (page_bytes + PAGE_BYTES > REGION_BYTES - region_used)
        return NULL;
    unsigned char *pages = region + region_used;
    if (mprotect(pages, page_bytes, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    region_used += page_bytes + PAGE_BYTES;
    memset(pages, GARBAGE, page_bytes < FILLED_BYTES ? page_bytes : FILLED_BYTES);
    return bytes < UINT64_C(1) << 20 ? pages + page_bytes - round_up(bytes, ALIGNMENT) : pages;
}

bool standin_take_bytes(int device, uint64_t bytes)
{
    if (bytes > standin.machine.device_bytes - standin.used_bytes[device])
        return false;
    standin.used_bytes[device] += bytes;
    return true;
}

cudaError_t cudaMalloc(void **devPtr, size_t size)
{
    cudaError_t error = standin_enter("cudaMalloc");
    if (error != cudaSuccess)
        return standin_leave(error);
    int device = standin_device();
    uint64_t free_bytes = standin.machine.device_bytes - standin.used_bytes[device];
    unsigned char *start = size <= free_bytes && size > 0 ? cut_region(size) : NULL;
    if (!start)
        return standin_leave(size == 0 ? cudaErrorInvalidValue : cudaErrorMemoryAllocation);
    add_range(&allocations, start, size)->device = device;
    standin.used_bytes[device] += size;
    standin.live.allocations++;
    standin.live.device_bytes += size;
    if (watch.opened)
        watch.opened(watch.watcher, start, size);
    *devPtr = start;
    return standin_leave(cudaSuccess);
}

/* Giving memory back is a write to all of it: whoever touches it has to come before. */
static void note_end(const char *name, const range *memory)
{
    const standin_range all = {memory->start, memory->bytes, true, ""};
    if (standin.broken == cudaSuccess)
        order_touch(name, &all);
}

static void free_allocation(range *allocation)
{
    if (watch.closed)
        watch.closed(watch.watcher, allocation->start);
    unsigned char *end = allocation->start + allocation->bytes;
    unsigned char *stop = (unsigned char *)round_up((uintptr_t)end, PAGE_BYTES);
    uintptr_t pages = (uintptr_t)allocation->start & ~(uintptr_t)(PAGE_BYTES - 1);
    for (; end < stop && allocation->bytes < FILLED_BYTES; end++) {
        if (*end != GARBAGE) {
            standin_fault_locked("written behind an allocation of %llu bytes",
                                 (unsigned long long)allocation->bytes);
            break;
        }
    }
    note_end("cudaFree", allocation);
    (void)mmap((void *)pages, (uintptr_t)stop - pages, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    standin.used_bytes[allocation->device] -= allocation->bytes;
    standin.live.allocations--;
    standin.live.device_bytes -= allocation->bytes;
    free(allocation);
}

cudaError_t cudaFree(void *devPtr)
{
    cudaError_t error = standin_enter("cudaFree");
    if (!devPtr) {
        if (error == cudaSuccess)
            (void)standin_device();
        return standin_leave(error);
    }
    standin_settle();
    range *allocation = take_range(&allocations, devPtr);
    if (allocation) {
        free_allocation(allocation);
        return standin_leave(error);
    }
    standin_fault_locked("cudaFree(%p): no such allocation", devPtr);
    return standin_leave(error != cudaSuccess ? error : cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    cudaError_t error = standin_enter("cudaMemGetInfo");
    if (error == cudaSuccess) {
        *free = standin.machine.device_bytes - standin.used_bytes[standin_device()];
        *total = standin.machine.device_bytes;
    }
    return standin_leave(error);
}

/* ---- locked host memory ---- */

static void add_registration(void *start, uint64_t bytes, bool is_ours)
{
    add_range(&registrations, start, bytes)->is_ours = is_ours;
    order_forget(start, bytes);
    standin.live.registrations++;
    standin.live.locked_bytes += bytes;
}

static cudaError_t drop_registration(const char *name, void *start, bool is_ours)
{
    standin_settle();
    range *found = take_range(&registrations, start);
    if (!found || found->is_ours != is_ours)
        standin_fault_locked("%s(%p): no such memory", name, start);
    if (!found)
        return cudaErrorHostMemoryNotRegistered;
    note_end(name, found);
    order_words_end(found->start, found->bytes);
    standin.live.registrations--;
    standin.live.locked_bytes -= found->bytes;
    if (found->is_ours)
        munmap(found->start, round_up(found->bytes, PAGE_BYTES));
    free(found);
    return cudaSuccess;
}

static bool is_lockable(uint64_t bytes)
{
    return bytes <= standin.machine.lockable_bytes &&
           standin.live.locked_bytes <= standin.machine.lockable_bytes - bytes;
}

static bool is_mapped(const unsigned char *start, uint64_t bytes)
{
    enum { PAGES = 4096 };
    static unsigned char seen[PAGES]; /* the lock is held */
    uintptr_t at = (uintptr_t)start & ~(uintptr_t)(PAGE_BYTES - 1);
    uintptr_t end = (uintptr_t)start + bytes;
    for (; at < end; at += PAGES * PAGE_BYTES) {
        uint64_t length = end - at < PAGES * PAGE_BYTES ? end - at : PAGES * PAGE_BYTES;
        if (mincore((void *)at, length, seen) != 0 && errno == ENOMEM)
            return false;
    }
    return true;
}

void standin_check_registrations(void)
{
    for (const range *each = registrations; each; each = each->next) {
        if (!is_mapped(each->start, each->bytes))
            standin_fault_locked("%llu bytes of host memory were unmapped while registered",
                                 (unsigned long long)each->bytes);
    }
}

cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
    cudaError_t error = standin_enter("cudaHostRegister");
    if (error != cudaSuccess)
        return standin_leave(error);
    (void)standin_device();
    if (size == 0 || !ptr || flags > 0xf || is_in_region(ptr) || !is_mapped(ptr, size)) {
        standin_fault_locked("cudaHostRegister(%p, %zu, %u) of no host memory", ptr, size, flags);
        return standin_leave(cudaErrorInvalidValue);
    }
    if (overlaps(registrations, ptr, size)) {
        standin_fault_locked("cudaHostRegister(%p, %zu) of registered memory", ptr, size);
        return standin_leave(cudaErrorHostMemoryAlreadyRegistered);
    }
    if (!is_lockable(size))
        return standin_leave(cudaErrorMemoryAllocation);
    add_registration(ptr, size, false);
    return standin_leave(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *ptr)
{
    cudaError_t error = standin_enter("cudaHostUnregister");
    cudaError_t own = drop_registration("cudaHostUnregister", ptr, false);
    return standin_leave(error != cudaSuccess ? error : own);
}

cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
    (void)flags;
    cudaError_t error = standin_enter("cudaHostAlloc");
    if (error != cudaSuccess)
        return standin_leave(error);
    void *memory = MAP_FAILED;
    (void)standin_device();
    if (size > 0 && is_lockable(size))
        memory = mmap(NULL, round_up(size, PAGE_BYTES), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return standin_leave(cudaErrorMemoryAllocation);
    memset(memory, GARBAGE, size);
    add_registration(memory, size, true);
    *pHost = memory;
    return standin_leave(cudaSuccess);
}

cudaError_t cudaFreeHost(void *ptr)
{
    cudaError_t error = standin_enter("cudaFreeHost");
    cudaError_t own = ptr ? drop_registration("cudaFreeHost", ptr, true) : cudaSuccess;
    return standin_leave(error != cudaSuccess ? error : own);
}

cudaError_t cudaHostGetDevicePointer(void **pDevice, void *pHost, unsigned int flags)
{
    (void)flags;
    cudaError_t error = standin_enter("cudaHostGetDevicePointer");
    if (error == cudaSuccess && !find_around(registrations, pHost, 1))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        *pDevice = pHost;
    return standin_leave(error);
}

/* ---- copies ---- */

typedef struct transfer {
    unsigned char *to;
    const unsigned char *from; /* NULL: `value` is set */
    uint64_t bytes;
    int value;
} transfer;

/* Whether both ends are what they claim to be: now, and again when the copy runs. */
static bool is_sound(const transfer *item, const char *when)
{
    if (standin_place_of(item->to, item->bytes) != STANDIN_WRONG &&
        (!item->from || standin_place_of(item->from, item->bytes) != STANDIN_WRONG))
        return true;
    standin_fault_locked("%s: %llu bytes of %s are not inside one allocation", when,
                         (unsigned long long)item->bytes, item->from ? "a copy" : "a set");
    return false;
}

static bool is_spoiled(const transfer *item)
{
    static _Atomic int count;
    const int every = standin.machine.spoils;
    return every > 0 && item->bytes >= 64 && standin_is_device(item->to, item->bytes) != 0 &&
           ++count % every == 0;
}

static void run_transfer(void *argument)
{
    const transfer *item = argument;
    pthread_mutex_lock(&standin.lock);
    bool runs = is_sound(item, "when it ran");
    pthread_mutex_unlock(&standin.lock);
    if (!runs)
        return;
    if (item->from) {
        memcpy(item->to, item->from, item->bytes);
        if (is_spoiled(item))
            ((unsigned char *)item->to)[item->bytes / 2] ^= 1;
        note_copied(item->to, item->from, item->bytes);
    } else {
        memset(item->to, item->value, item->bytes);
        standin_note_written(item->to, item->bytes);
    }
}

/* The end that is on the host; NULL where none is, or both are. */
static const void *host_end(const transfer *item)
{
    const bool to_host = standin_place_of(item->to, item->bytes) == STANDIN_HOST;
    const bool from_host = standin_place_of(item->from, item->bytes) == STANDIN_HOST;
    return to_host == from_host ? NULL : to_host ? (const void *)item->to : item->from;
}

/* Memory that is not locked may be read by the call itself, whatever the stream is doing, and has
 * been written when it returns. */
static bool is_done_by_call(const transfer *item, const void *end)
{
    return item->from && end == host_end(item) && count_locked(end, item->bytes) == 0;
}

/* With the lock held. */
static cudaError_t append_transfer(cudaStream_t stream, const char *name, const transfer *item)
{
    const bool is_read_now = is_done_by_call(item, item->from);
    const standin_range ranges[] = {{item->to, item->bytes, true, "to"},
                                    {item->from, item->bytes, false, "from"}};
    (void)standin_device();
    if (!is_sound(item, name))
        return cudaErrorInvalidValue;
    transfer *own = malloc(sizeof *own);
    if (!own)
        abort();
    *own = *item;
    const standin_work work = {.name = name,
                               .function = run_transfer,
                               .argument = own,
                               .is_owned = true,
                               .ranges = ranges,
                               .range_count = item->from && !is_read_now ? 2 : 1};
    if (is_read_now)
        order_touch(name, &ranges[1]);
    return standin_append(stream, &work);
}

/* The kind that the two ends make: one for the target on a device, two for the source. */
static bool fits_kind(const transfer *item, enum cudaMemcpyKind kind)
{
    int to_device = standin_place_of(item->to, item->bytes) != STANDIN_HOST;
    int from_device = standin_place_of(item->from, item->bytes) != STANDIN_HOST;
    return kind == cudaMemcpyDefault || (int)kind == to_device + 2 * from_device;
}

/* The host memory of a copy lies in one registration, or in none: a driver may refuse a copy over
 * the border of two, though all of it is locked. */
static bool crosses_border(const transfer *item)
{
    const void *host = host_end(item);
    const uint64_t locked = host ? count_locked(host, item->bytes) : 0;
    if (locked == 0 || find_around(registrations, host, item->bytes))
        return false;
    standin_fault_locked("a copy over the border of a registration: %llu bytes of %llu are locked",
                         (unsigned long long)locked, (unsigned long long)item->bytes);
    return true;
}

/* Host memory that is not locked is copied through memory of the driver's, which may wait until it
 * is the copy's turn. */
static cudaError_t wait_for_turn(const transfer *item, cudaStream_t stream)
{
    const void *host = host_end(item);
    return host && count_locked(host, item->bytes) == 0
               ? standin_drain_alone(stream, "a copy of memory that is not locked")
               : cudaSuccess;
}

static cudaError_t copy(const char *name, const transfer *item, enum cudaMemcpyKind kind,
                        cudaStream_t stream, bool is_awaited)
{
    cudaError_t error = standin_enter(name);
    if (error == cudaSuccess && !fits_kind(item, kind)) {
        standin_fault_locked("%s: its kind %d is not what the pointers say", name, (int)kind);
        error = cudaErrorInvalidValue;
    }
    if (error == cudaSuccess && crosses_border(item))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = append_transfer(stream, name, item);
    if (error == cudaSuccess)
        error = wait_for_turn(item, stream);
    if (error == cudaSuccess && (is_awaited || is_done_by_call(item, item->to)))
        error = standin_drain(stream);
    return standin_leave(error);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    const transfer item = {dst, src, count, 0};
    return copy("cudaMemcpy", &item, kind, NULL, true);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const transfer item = {dst, src, count, 0};
    return copy("cudaMemcpyAsync", &item, kind, stream, false);
}

static cudaError_t set(const char *name, const transfer *item, cudaStream_t stream)
{
    cudaError_t error = standin_enter(name);
    if (error == cudaSuccess && standin_place_of(item->to, item->bytes) == STANDIN_HOST) {
        standin_fault_locked("%s of host memory", name);
        error = cudaErrorInvalidValue;
    }
    return standin_leave(error == cudaSuccess ? append_transfer(stream, name, item) : error);
}

cudaError_t cudaMemset(void *devPtr, int value, size_t count)
{
    const transfer item = {devPtr, NULL, count, value};
    return set("cudaMemset", &item, NULL);
}

cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
    const transfer item = {devPtr, NULL, count, value};
    return set("cudaMemsetAsync", &item, stream);
}
