/* The host's memory, which all tiers share: how much is free, and a lock so that one process at a
 * time takes memory. Knows nothing of mappings.
 *
 * The lock is on a file that belongs to the user and that no other user can open, so no other user
 * can keep it locked. The lock is advisory: if the file system has no locks, or a run holds the
 * lock for too long, memory is taken without it. Then, and between processes of different users,
 * only the steps of sl_cpu_memory_populate keep the machine from running out of memory.
 */
#define _GNU_SOURCE /* flock, O_CLOEXEC */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/heartbeat.h"
#include "base/limits.h"
#include "base/log.h"
#include "device.h"

static const uint64_t RESERVE_BYTES_MAX = UINT64_C(64) << 20;
enum { WAIT_MS = 2, MEMORY_WAIT_S = 30, NOTE_AFTER_WAITS = 1000 / WAIT_MS };

sl_status sl_device_host_free_bytes(uint64_t *out_bytes)
{
    sl_limits_memory memory;
    SL_TRY(sl_limits_read_memory("", &memory));
    *out_bytes = memory.free_bytes;
    return SL_OK;
}

uint64_t sl_device_host_reserve_bytes(uint64_t free_bytes)
{
    uint64_t eighth = free_bytes / 8;
    return eighth < RESERVE_BYTES_MAX ? eighth : RESERVE_BYTES_MAX;
}

/* Returns a descriptor; -1: the file cannot be created, or belongs to another user. */
static int open_lock(const char *name)
{
    char path[96];
    struct stat info;
    snprintf(path, sizeof path, "/dev/shm/sluice-%.48s-%u", name, (unsigned)geteuid());
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0)
        return -1;
    if (fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
        (info.st_mode & (S_IRWXG | S_IRWXO)) == 0)
        return file;
    close(file);
    return -1;
}

sl_host_lock sl_host_lock_open(const char *name, uint32_t wait_s, const char *note)
{
    const struct timespec pause = {.tv_nsec = WAIT_MS * 1000000L};
    const uint32_t waits_most = wait_s * 1000 / WAIT_MS;
    int file = open_lock(name);
    for (uint32_t waits = 0; file >= 0 && waits < waits_most; waits++) {
        if (flock(file, LOCK_EX | LOCK_NB) == 0)
            return (sl_host_lock){file};
        if (errno != EWOULDBLOCK && errno != EINTR)
            break;
        if (waits == NOTE_AFTER_WAITS)
            sl_log_write(SL_LOG_NOTE, "%s", note);
        if (sl_heartbeat_give() != SL_OK)
            break; /* nobody wants it any more: the next sign of life says why */
        nanosleep(&pause, NULL);
    }
    if (file >= 0)
        close(file);
    return (sl_host_lock){-1};
}

void sl_host_lock_close(sl_host_lock *lock)
{
    if (lock->file >= 0)
        close(lock->file);
    lock->file = -1;
}

static sl_status check_need(const sl_host_need *need)
{
    uint64_t bytes;
    sl_limits_memory memory;
    SL_TRY(sl_bits_add(need->device_bytes, need->host_bytes, "memory", &bytes));
    SL_TRY(sl_bits_add(bytes, need->disk_bytes, "memory", &bytes));
    SL_TRY(sl_limits_read_memory("", &memory));
    uint64_t reserve = sl_device_host_reserve_bytes(memory.free_bytes);
    if (bytes <= memory.free_bytes - reserve)
        return SL_OK;
    bool is_cgroup = memory.cgroup_free_bytes == memory.free_bytes;
    SL_FAIL(SL_ERROR_FIT,
            "it does not fit: %" PRIu64 " bytes of memory are planned (device %" PRIu64
            ", host %" PRIu64 ", disk directories in memory %" PRIu64 "), and %s leaves %" PRIu64
            ", of which %" PRIu64 " are kept for the rest of the process; give less with "
            "--device-memory and --host-memory, or wait until other work has ended",
            bytes, need->device_bytes, need->host_bytes, need->disk_bytes,
            is_cgroup ? "the cgroup" : "the machine", memory.free_bytes, reserve);
}

sl_status sl_host_claim_open(const sl_host_need *need, sl_host_claim *out_claim)
{
    sl_host_claim claim = {sl_host_lock_open(
        "memory", MEMORY_WAIT_S,
        "another run, or rank of this one, is taking its memory: waiting for it, 30 s at most")};
    sl_status status = sl_heartbeat_give();
    if (status == SL_OK)
        status = check_need(need);
    if (status != SL_OK) {
        sl_host_lock_close(&claim.lock);
        return status;
    }
    *out_claim = claim;
    return SL_OK;
}

void sl_host_claim_close(sl_host_claim *claim)
{
    sl_host_lock_close(&claim->lock);
}
