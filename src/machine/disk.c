/* Asks the file systems. What root alone may use does not count as free. */
#include "disk.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

static sl_status find_device(const char *directory, dev_t *out_device)
{
    struct stat info;
    if (stat(directory, &info) != 0)
        SL_FAIL(errno == ENOENT ? SL_ERROR_MISSING : SL_ERROR_IO, "--disk-dir %s: %s", directory,
                strerror(errno));
    if (!S_ISDIR(info.st_mode))
        SL_FAIL(SL_ERROR_MISSING, "--disk-dir %s: not a directory", directory);
    *out_device = info.st_dev;
    return SL_OK;
}

static sl_status count_neighbours(const char *const *directories, uint32_t directory_count,
                                  dev_t device, uint32_t *out_count)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < directory_count; i++) {
        dev_t other;
        SL_TRY(find_device(directories[i], &other));
        count += other == device;
    }
    *out_count = count > 0 ? count : 1; /* it may have been mounted over since */
    return SL_OK;
}

sl_status sl_disk_free_bytes(const char *const *directories, uint32_t directory_count,
                             uint64_t *out_bytes)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < directory_count; i++) {
        dev_t device;
        uint32_t neighbours;
        struct statvfs space;
        SL_TRY(find_device(directories[i], &device));
        SL_TRY(count_neighbours(directories, directory_count, device, &neighbours));
        if (statvfs(directories[i], &space) != 0)
            SL_FAIL(SL_ERROR_IO, "--disk-dir %s: %s", directories[i], strerror(errno));
        uint64_t free_bytes = (uint64_t)space.f_bavail * space.f_frsize / neighbours;
        least = free_bytes < least ? free_bytes : least;
    }
    uint64_t bytes = 0;
    if (directory_count > 0 && __builtin_mul_overflow(least, directory_count, &bytes))
        bytes = UINT64_MAX;
    *out_bytes = bytes;
    return SL_OK;
}

static const double day_seconds = 86400, year_days = 365.25;

sl_wear sl_wear_project(double step_bytes, double step_seconds, uint64_t endurance_bytes)
{
    sl_wear wear = {.step_bytes = step_bytes, .years = INFINITY};
    if (step_seconds > 0)
        wear.day_bytes = step_bytes / step_seconds * day_seconds;
    if (endurance_bytes > 0 && wear.day_bytes > 0)
        wear.years = (double)endurance_bytes / wear.day_bytes / year_days;
    return wear;
}
