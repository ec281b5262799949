/* Functions before the C library's allocator: what is alive is counted, in every thread, and the
 * program that includes this says by `is_refused`, asked once for each request, which get nothing.
 * Include it in one file of a program. Sanitizers have allocators of their own; with them
 * SL_ALLOCATIONS_ARE_REFUSED is 0 and nothing is put before them. */
#ifndef SL_TESTS_REFUSED_ALLOCATIONS_H
#define SL_TESTS_REFUSED_ALLOCATIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SL_ALLOCATIONS_ARE_REFUSED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SL_ALLOCATIONS_ARE_REFUSED 0
#endif
#endif
#ifndef SL_ALLOCATIONS_ARE_REFUSED
#define SL_ALLOCATIONS_ARE_REFUSED 1
#endif

#if SL_ALLOCATIONS_ARE_REFUSED

/* The C library's own allocator, by the names that it exports. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

static _Atomic int64_t live_count;

static bool is_refused(void);

static void *count_live(void *memory)
{
    if (memory)
        atomic_fetch_add(&live_count, 1);
    return memory;
}

void *malloc(size_t bytes)
{
    return is_refused() ? NULL : count_live(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    return is_refused() ? NULL : count_live(__libc_calloc(count, bytes));
}

void *realloc(void *memory, size_t bytes)
{
    if (is_refused())
        return NULL;
    return memory ? __libc_realloc(memory, bytes) : count_live(__libc_realloc(NULL, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return is_refused() ? NULL : count_live(__libc_memalign(alignment, bytes));
}

void free(void *memory)
{
    if (memory)
        atomic_fetch_sub(&live_count, 1);
    __libc_free(memory);
}

#endif
#endif
