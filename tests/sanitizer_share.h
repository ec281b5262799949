/* How much of a random test is run under sanitizers, which make it several times slower. */
#ifndef SL_TESTS_SANITIZER_SHARE_H
#define SL_TESTS_SANITIZER_SHARE_H

/* One round of so many. */
#if defined(__SANITIZE_THREAD__)
enum { SANITIZER_SHARE = 4 };
#elif defined(__SANITIZE_ADDRESS__)
enum { SANITIZER_SHARE = 2 };
#else
enum { SANITIZER_SHARE = 1 };
#endif

#endif
