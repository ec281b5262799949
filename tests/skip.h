/* How a test ends that cannot run here. scripts/test.sh lists its reason, and CTest shows a program
 * as skipped if all of its tests end so (skips.c). */
#ifndef SL_TESTS_SKIP_H
#define SL_TESTS_SKIP_H

/* Ends the running test as skipped; the reason, as of printf, says what is missing here. */
#define skip_because(...)                                                                          \
    do {                                                                                           \
        print_message("skipped: " __VA_ARGS__);                                                    \
        print_message("\n");                                                                       \
        skip();                                                                                    \
    } while (0)

#endif
