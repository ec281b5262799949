/* How much of a random test is run under sanitizers, which make it several times slower: they look
 * for what the code touches, and other builds hold every case to its numbers. */
#ifndef SL_TESTS_SANITIZER_SHARE_H
#define SL_TESTS_SANITIZER_SHARE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* One round of so many. The thread sanitizer makes a round slower still, and all rounds have the
 * same threads. */
#if defined(__SANITIZE_THREAD__)
enum { SANITIZER_SHARE = 8 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SANITIZER_SHARE = 4 };
#else
enum { SANITIZER_SHARE = 1 };
#endif

/* Whether races are looked for. */
#ifdef __SANITIZE_THREAD__
enum { SANITIZES_THREADS = true };
#else
enum { SANITIZES_THREADS = false };
#endif

/* Of `count` rounds, those that are run: one at least. */
static inline uint64_t sanitizer_share(uint64_t count)
{
    return (count + SANITIZER_SHARE - 1) / SANITIZER_SHARE;
}

/* Of cases that come one after the other, whether the next is one of those that are run. */
static inline bool is_in_share(uint32_t *cases)
{
    return (*cases)++ % SANITIZER_SHARE == 0 || getenv("SL_TEST_FULL");
}

#endif
