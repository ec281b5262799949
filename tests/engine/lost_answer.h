/* pread and pwrite for a program whose disk loses one answer: that call of the disk tier's threads
 * stays where it is, as in a drive that hangs. Needs _GNU_SOURCE; include once in a program.
 */
#ifndef TESTS_LOST_ANSWER_H
#define TESTS_LOST_ANSWER_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    _Atomic uint64_t first;  /* the request that is lost, from 1; 0: none */
    _Atomic uint64_t counts; /* requests so far */
    _Atomic uint64_t held, returned;
    sem_t answer; /* posted: a lost one comes back after all */
} lost;

static void lost_answer_arm(uint64_t first)
{
    lost.first = first;
    lost.counts = lost.held = lost.returned = 0;
}

/* Other threads' files are none of the disk tier's. */
static bool is_of_disk_tier(void)
{
    char name[16] = "";
    return pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
           strncmp(name, "sl-disk", 7) == 0;
}

/* True if this one was lost. */
static bool hold_lost(void)
{
    if (!is_of_disk_tier() || atomic_fetch_add(&lost.counts, 1) + 1 != lost.first)
        return false;
    atomic_fetch_add(&lost.held, 1);
    while (sem_wait(&lost.answer) != 0) {
    }
    return true;
}

static ssize_t count_return(ssize_t result, bool was_lost)
{
    atomic_fetch_add(&lost.returned, was_lost);
    return result;
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    bool was_lost = hold_lost();
    return count_return(syscall(SYS_pread64, fd, data, bytes, offset), was_lost);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    bool was_lost = hold_lost();
    return count_return(syscall(SYS_pwrite64, fd, data, bytes, offset), was_lost);
}

#endif
