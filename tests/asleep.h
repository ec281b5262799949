/* Threads that are known to wait. A test that wants to see a wait lets the awaited thing happen
 * when the system says that the waiting thread sleeps, not after some time: on a busy machine a
 * thread may come late to its wait. */
#ifndef SL_TESTS_ASLEEP_H
#define SL_TESTS_ASLEEP_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

enum { ASLEEP_POLLS = 300000, ASLEEP_POLL_NS = 200000 }; /* a minute */

/* Whether a thread of this process, by its gettid(), sleeps now. */
static inline bool is_asleep(pid_t thread)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *behind = strrchr(text, ')'); /* the name of the thread */
    return behind && strncmp(behind, ") S", 3) == 0;
}

/* Waits until that thread sleeps; false: it has not within a minute. */
static inline bool await_sleep(pid_t thread)
{
    const struct timespec pause = {.tv_nsec = ASLEEP_POLL_NS};
    for (int polls = 0; polls < ASLEEP_POLLS; polls++) {
        if (is_asleep(thread))
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

#endif
