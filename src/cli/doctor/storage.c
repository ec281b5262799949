/* How the disk tier reaches disks, the drives that are mounted, and the directories given for it.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "findings.h"
#include "machine/disk.h"
#include "offload/store.h"

enum { PROBE_BYTES = 64 << 20 }; /* written and read to see how fast the disks are */
enum { DRIVE_MAX = 16 };

typedef struct drive {
    char directory[160], kind[96];
    dev_t device;
    uint64_t free_bytes;
} drive;

typedef struct drives {
    drive items[DRIVE_MAX];
    uint32_t count;
} drives;

/* ---- the way to disks ---- */

/* A number from a file, or `otherwise`. */
static long read_number(const char *path, long otherwise)
{
    char text[32] = "", *end = text;
    FILE *file = fopen(path, "re");
    if (!file)
        return otherwise;
    long value = fgets(text, sizeof text, file) ? strtol(text, &end, 10) : 0;
    fclose(file);
    return end != text ? value : otherwise;
}

/* The disk tier works either way; threads take more of the cores. */
static void add_transport(sl_findings *all)
{
    sl_finding *tier = sl_findings_add(all, "disk tier", "%.240s", sl_store_probe());
    if (strncmp(tier->value, "io_uring", 8) == 0)
        return;
    sl_finding_cost(tier, SL_FINDING_DEGRADED,
                    "processor time: each piece that moves wakes a thread");
    if (read_number("/proc/sys/kernel/io_uring_disabled", 0) > 0)
        sl_finding_mend(tier, "sysctl kernel.io_uring_disabled=0 (as root)");
    else if (strstr(tier->value, "this build") == NULL)
        sl_finding_mend(tier, "in a container: docker run --security-opt seccomp=unconfined, or a "
                              "profile that allows io_uring_setup, _enter and _register");
}

/* ---- drives ---- */

/* What the kernel knows of a block device, looked for at its own entry and at the disk it is a part
 * of; false: nothing. */
static bool find_attribute(dev_t device, const char *name, char *out_path)
{
    static const char *const places[] = {"", "../"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(out_path, PATH_MAX, "/sys/dev/block/%u:%u/%s%s", major(device), minor(device),
                 places[i], name);
        if (access(out_path, R_OK) == 0)
            return true;
    }
    return false;
}

static void describe_kind(const struct mntent *mount, dev_t device, char *out_text, size_t capacity)
{
    char path[PATH_MAX];
    const char *kind = "drive";
    if (find_attribute(device, "queue/rotational", path))
        kind = read_number(path, 0) ? "turning disk" : "solid state";
    if (strstr(mount->mnt_fsname, "nvme"))
        kind = "NVMe";
    else if (strstr(mount->mnt_fsname, "/vd") || strstr(mount->mnt_fsname, "/xvd"))
        kind = "virtual disk"; /* what it says of itself is not of the drive below */
    snprintf(out_text, capacity, "%s, %.20s on %.40s", kind, mount->mnt_type, mount->mnt_fsname);
}

static bool is_known(const drives *all, dev_t device)
{
    for (uint32_t i = 0; i < all->count; i++)
        if (all->items[i].device == device)
            return true;
    return false;
}

/* A drive counts once, where it is mounted first for writing. */
static void take_mount(drives *all, const struct mntent *mount)
{
    struct stat info;
    struct statvfs space;
    if (strncmp(mount->mnt_fsname, "/dev/", 5) != 0 || hasmntopt(mount, MNTOPT_RO) ||
        all->count == DRIVE_MAX || stat(mount->mnt_dir, &info) != 0 || !S_ISDIR(info.st_mode) ||
        is_known(all, info.st_dev) || statvfs(mount->mnt_dir, &space) != 0)
        return;
    drive *fresh = &all->items[all->count++];
    fresh->device = info.st_dev;
    fresh->free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    snprintf(fresh->directory, sizeof fresh->directory, "%.150s", mount->mnt_dir);
    describe_kind(mount, info.st_dev, fresh->kind, sizeof fresh->kind);
}

static void list_drives(drives *all)
{
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    if (!mounts)
        return;
    for (const struct mntent *mount; (mount = getmntent(mounts));)
        take_mount(all, mount);
    endmntent(mounts);
}

/* A directory of the drive with most space, to be named as --disk-dir; NULL: there is no drive. */
static const char *suggest_directory(const drives *all)
{
    struct stat info;
    const drive *largest = NULL;
    for (uint32_t i = 0; i < all->count; i++)
        if (!largest || all->items[i].free_bytes > largest->free_bytes)
            largest = &all->items[i];
    if (largest && stat("/var/tmp", &info) == 0 && info.st_dev == largest->device)
        return "/var/tmp"; /* where everybody may write */
    return largest ? largest->directory : NULL;
}

static void add_drives(sl_findings *all, const drives *found)
{
    for (uint32_t i = 0; i < found->count; i++) {
        char name[SL_FINDING_NAME_BYTES];
        snprintf(name, sizeof name, "drive %u", i + 1);
        sl_findings_add(all, name, "%s: %s free (%s)", found->items[i].directory,
                        sl_command_format_size(found->items[i].free_bytes).text,
                        found->items[i].kind);
    }
}

/* ---- the directories that are given ---- */

/* Writes and reads the store once, piece after piece. */
static sl_status time_store(sl_store *store, void *data, double *out_write_rate,
                            double *out_read_rate)
{
    uint64_t start_ns = sl_clock_now_ns();
    SL_TRY(sl_store_write(store, 0, data, PROBE_BYTES));
    uint64_t written_ns = sl_clock_now_ns();
    SL_TRY(sl_store_read(store, 0, data, PROBE_BYTES));
    *out_write_rate = (double)PROBE_BYTES / (double)(written_ns - start_ns);
    *out_read_rate = (double)PROBE_BYTES / (double)(sl_clock_now_ns() - written_ns);
    return SL_OK;
}

/* Opens a small store there; writes what it is like and how fast it was. */
static sl_status try_disks(const sl_config_list *directories, char *out_text)
{
    double write_rate, read_rate;
    sl_store *store = NULL;
    sl_store_options options = {.directories = (const char *const *)directories->items,
                                .directory_count = directories->count,
                                .bytes = PROBE_BYTES};
    void *data = aligned_alloc(SL_STORE_ALIGNMENT, PROBE_BYTES);
    if (!data)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to try the disks");
    memset(data, 0x5A, PROBE_BYTES);
    sl_status status = sl_store_open(&options, &store);
    if (status == SL_OK)
        status = time_store(store, data, &write_rate, &read_rate);
    if (status == SL_OK)
        snprintf(out_text, SL_FINDING_TEXT_BYTES,
                 "%.150s; %d MiB once: %.1f GB/s written, %.1f read", sl_store_description(store),
                 PROBE_BYTES >> 20, write_rate, read_rate);
    sl_store_close(store);
    free(data);
    return status;
}

/* The first directory that is memory. */
static void add_memory_directory(sl_findings *all, const sl_config_list *directories,
                                 const char *other)
{
    for (uint32_t i = 0; i < directories->count; i++) {
        if (!sl_limits_is_in_memory(directories->items[i]))
            continue;
        sl_finding *one =
            sl_findings_add(all, "disk in memory", "%.200s is tmpfs", directories->items[i]);
        sl_finding_cost(one, SL_FINDING_DEGRADED,
                        "what lies there counts as host memory and saves none");
        if (other)
            sl_finding_mend(one, "--disk-dir %s", other);
        return;
    }
}

static void add_no_directory(sl_findings *all, const char *other)
{
    sl_finding *none = sl_findings_add(all, "disk space", "no --disk-dir was given");
    sl_finding_cost(none, SL_FINDING_MISSING, "runs have no disk tier unless they name one");
    if (other)
        sl_finding_mend(none,
                        "--disk-dir %s, or a folder there that you may write; asked with it, "
                        "doctor also tries it",
                        other);
}

static void add_directories(sl_findings *all, const sl_config_list *directories)
{
    char text[SL_FINDING_TEXT_BYTES];
    uint64_t free_bytes;
    const char *name = "disk space";
    sl_status status = sl_disk_free_bytes((const char *const *)directories->items,
                                          directories->count, &free_bytes);
    if (status == SL_OK) {
        sl_findings_add(all, name, "%s free in %u of --disk-dir; --disk-space is 90%% of it",
                        sl_command_format_size(free_bytes).text, directories->count);
        name = "disk";
        status = try_disks(directories, text);
    }
    if (status != SL_OK) {
        sl_finding_cost(sl_findings_add(all, name, "%.240s", sl_status_message()),
                        SL_FINDING_MISSING, "no disk tier there");
        return;
    }
    sl_finding *disk = sl_findings_add(all, name, "%s", text);
    if (strstr(text, "no direct I/O"))
        sl_finding_cost(disk, SL_FINDING_DEGRADED,
                        "this file system takes no direct I/O: pages pass through the page cache, "
                        "at a copy each, and it grows");
}

void sl_findings_add_storage(sl_findings *all, const sl_config_list *directories)
{
    drives found = {0};
    list_drives(&found);
    add_transport(all);
    add_drives(all, &found);
    add_memory_directory(all, directories, suggest_directory(&found));
    if (directories->count == 0)
        add_no_directory(all, suggest_directory(&found));
    else
        add_directories(all, directories);
}
