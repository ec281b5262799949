/* Counts what a program takes from the heap and from the system while counting is on: malloc and
 * its family and mmap, in every thread and every library of the process. Include it in one file of
 * a program. Sanitizers bring their own heap; with them nothing is counted and
 * SL_ALLOCATIONS_ARE_COUNTED is 0. */
#ifndef SL_TESTS_ALLOCATION_COUNTER_H
#define SL_TESTS_ALLOCATION_COUNTER_H

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SL_ALLOCATIONS_ARE_COUNTED 0
#else
#define SL_ALLOCATIONS_ARE_COUNTED 1
#endif

static _Atomic bool allocation_counter_is_on;
static _Atomic uint64_t allocation_counter_calls, allocation_counter_bytes;
static _Atomic uint64_t allocation_counter_largest; /* bytes of one request */

static inline void allocation_counter_start(void)
{
    atomic_store(&allocation_counter_calls, 0);
    atomic_store(&allocation_counter_bytes, 0);
    atomic_store(&allocation_counter_largest, 0);
    atomic_store(&allocation_counter_is_on, true);
}

static inline void allocation_counter_stop(void)
{
    atomic_store(&allocation_counter_is_on, false);
}

#if SL_ALLOCATIONS_ARE_COUNTED

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static void count_allocation(size_t bytes)
{
    if (!atomic_load_explicit(&allocation_counter_is_on, memory_order_relaxed))
        return;
    atomic_fetch_add(&allocation_counter_calls, 1);
    atomic_fetch_add(&allocation_counter_bytes, bytes);
    uint64_t largest = atomic_load(&allocation_counter_largest);
    while (bytes > largest &&
           !atomic_compare_exchange_weak(&allocation_counter_largest, &largest, bytes))
        continue;
}

void *malloc(size_t bytes)
{
    count_allocation(bytes);
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    count_allocation(count * bytes);
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    count_allocation(bytes);
    return __libc_realloc(memory, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    count_allocation(bytes);
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **out_memory, size_t alignment, size_t bytes)
{
    *out_memory = memalign(alignment, bytes);
    return *out_memory ? 0 : ENOMEM;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset)
{
    count_allocation(bytes);
    long mapped = syscall(SYS_mmap, address, bytes, protection, flags, file, offset);
    return (void *)mapped;
}

#endif
#endif
