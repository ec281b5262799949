/* sluice doctor: what this machine has, what is missing, and what each missing thing costs. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/workers.h"
#include "command.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "offload/store.h"
#include "session/config/units.h"
#include "session/machine/disk.h"
#include "session/machine/profile.h"

enum { TEXT_BYTES = 640, FINDING_MAX = 48, GPU_MAX = 16, NAME_BYTES = 24 };
enum { PROBE_BYTES = 64 << 20 }; /* written and read to see how fast the disks are */

typedef struct finding {
    char name[NAME_BYTES];
    char value[TEXT_BYTES];
    char cost[TEXT_BYTES]; /* "" where nothing is missing */
} finding;

typedef struct findings {
    finding items[FINDING_MAX];
    uint32_t count;
} findings;

/* What was found under a new name. */
__attribute__((format(printf, 3, 4))) static finding *add_finding(findings *all, const char *name,
                                                                  const char *format, ...)
{
    finding *fresh = &all->items[all->count++];
    va_list arguments;
    va_start(arguments, format);
    snprintf(fresh->name, sizeof fresh->name, "%s", name);
    vsnprintf(fresh->value, sizeof fresh->value, format, arguments);
    va_end(arguments);
    return fresh;
}

/* What it costs that something is missing there. */
__attribute__((format(printf, 2, 3))) static void add_cost(finding *one, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(one->cost, sizeof one->cost, format, arguments);
    va_end(arguments);
}

static void find_cpu(findings *all)
{
    char features[TEXT_BYTES];
    sl_command_describe_cpu(features, sizeof features);
    finding *cpu = add_finding(all, "cpu features", "%s", features);
    if (!strstr(features, "avx512f"))
        add_cost(cpu, "matrix products at half the rate or less");
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t allowed = sl_workers_allowed_cpu_count(), usable = sl_workers_usable_cpu_count();
    finding *cores = add_finding(all, "cores", "%u usable of %ld online", usable, online);
    if ((long)allowed < online)
        add_cost(cores,
                 "this process is bound to %u of %ld cores (affinity mask): the others stay idle",
                 allowed, online);
    double quota = sl_limits_cpu_quota("");
    if (quota == 0) {
        add_finding(all, "cpu quota", "none");
        return;
    }
    finding *limit = add_finding(all, "cpu quota", "%.2f cores' worth of time (cgroup)", quota);
    if (usable < allowed)
        add_cost(limit, "%u compute workers instead of %u: more would stop each other in turn",
                 usable, allowed);
}

static void find_memory(findings *all)
{
    uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES), page = (uint64_t)sysconf(_SC_PAGESIZE);
    sl_limits_memory memory;
    add_finding(all, "memory", "%s in the machine", sl_command_format_size(pages * page).text);
    if (sl_limits_read_memory("", &memory) != SL_OK) {
        add_cost(add_finding(all, "free to use", "unknown"), "nothing can be trained: %s",
                 sl_status_message());
        return;
    }
    if (memory.cgroup_limit_bytes == UINT64_MAX)
        add_finding(all, "memory limit", "none by a cgroup");
    else
        add_finding(all, "memory limit", "%s (cgroup), of which %s are left",
                    sl_command_format_size(memory.cgroup_limit_bytes).text,
                    sl_command_format_size(memory.cgroup_free_bytes).text);
    add_finding(all, "free to use",
                "%s now; budgets default to 80%% of it, and a plan that takes more is refused",
                sl_command_format_size(memory.free_bytes).text);
}

static void find_locked_memory(findings *all)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        add_finding(all, "locked memory", "no limit");
        return;
    }
    finding *locked = add_finding(all, "locked memory", "%s (ulimit -l)",
                                  sl_command_format_size(limit.rlim_cur).text);
    add_cost(locked, "a host tier beyond it cannot be registered for the disk tier's transfers, "
                     "and can be paged out; the cpu device itself does not need it locked");
}

static void find_huge_pages(findings *all)
{
    char mode[TEXT_BYTES] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (file && fgets(mode, sizeof mode, file))
        mode[strcspn(mode, "\n")] = '\0';
    if (file)
        fclose(file);
    finding *pages =
        add_finding(all, "huge pages", "%.200s", *mode ? mode : "not offered by this kernel");
    if (!*mode || strstr(mode, "[never]"))
        add_cost(pages, "more time on address translation: some percent of Adam");
}

static void find_libraries(findings *all)
{
    add_finding(all, "matrix product", "%.200s", sl_kernels_cpu()->description());
    add_cost(add_finding(all, "nccl, mpi", "not used by this version"),
             "one rank: one process does all the work");
}

static void add_gpu(findings *all, const char *name, const sl_device_info *info)
{
    char node[32] = "not known";
    if (info->numa_node >= 0)
        snprintf(node, sizeof node, "%d", info->numa_node);
    add_finding(all, name, "%s (%s); %s, %s free; NUMA node %s", info->name, info->detail,
                sl_command_format_size(info->total_bytes).text,
                sl_command_format_size(info->free_bytes).text, node);
}

/* Asks one after the other until there is none; why the first does not open is worth a line. */
static void find_gpus(findings *all)
{
    for (int index = 0; index < GPU_MAX; index++) {
        sl_device_info info;
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "cuda:%d", index);
        bool is_there = sl_device_query(SL_DEVICE_CUDA, index, &info) == SL_OK;
        if (is_there)
            add_gpu(all, name, &info);
        else if (index == 0)
            add_cost(add_finding(all, name, "%.600s", sl_status_message()),
                     "work runs on the processor's cores");
        if (!is_there)
            return;
    }
}

static void find_cuda(findings *all)
{
    const sl_kernel_table *kernels = sl_kernels_cuda();
    if (!kernels) {
        add_cost(add_finding(all, "cuda", "this build has none: nvcc was not found"),
                 "work runs on the processor's cores, and no run on a GPU can be planned");
        return;
    }
    finding *cuda = add_finding(all, "cuda", "%.600s", kernels->description());
    if (kernels->lack())
        add_cost(cuda, "%s", kernels->lack());
    add_finding(all, "cuda needs", "%s", sl_device_ops_of(SL_DEVICE_CUDA)->needs);
    find_gpus(all);
}

/* The disk tier works either way; threads take more of the cores. */
static void find_disk(findings *all)
{
    finding *disk = add_finding(all, "disk tier", "%.240s", sl_store_probe());
    if (strncmp(disk->value, "io_uring", 8) != 0)
        add_cost(disk, "processor time: each piece that moves wakes a thread");
}

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
        snprintf(out_text, TEXT_BYTES, "%.150s; %d MiB once: %.1f GB/s written, %.1f read",
                 sl_store_description(store), PROBE_BYTES >> 20, write_rate, read_rate);
    sl_store_close(store);
    free(data);
    return status;
}

/* The first directory that is memory. */
static void find_memory_directory(findings *all, const sl_config_list *directories)
{
    for (uint32_t i = 0; i < directories->count; i++) {
        if (!sl_limits_is_in_memory(directories->items[i]))
            continue;
        add_cost(add_finding(all, "disk in memory", "%.200s is tmpfs", directories->items[i]),
                 "what lies there counts as host memory and saves none");
        return;
    }
}

static void find_disk_directories(findings *all, const sl_config_list *directories)
{
    char text[TEXT_BYTES];
    uint64_t free_bytes;
    if (directories->count == 0)
        return;
    const char *name = "disk space";
    sl_status status = sl_disk_free_bytes((const char *const *)directories->items,
                                          directories->count, &free_bytes);
    if (status == SL_OK) {
        add_finding(all, name, "%s free in %u of --disk-dir; --disk-space is 90%% of it",
                    sl_command_format_size(free_bytes).text, directories->count);
        name = "disk";
        status = try_disks(directories, text);
    }
    if (status == SL_OK)
        add_finding(all, name, "%s", text);
    else
        add_cost(add_finding(all, name, "%.240s", sl_status_message()), "no disk tier there");
}

static void find_profile(findings *all, const char *name, const sl_profile_subject *subject)
{
    finding *profile;
    char *path = NULL, note[SL_PROFILE_NOTE_BYTES];
    sl_machine machine = {0};
    if (sl_profile_find_path(subject->device, &path) != SL_OK ||
        sl_profile_find_machine(NULL, subject, &machine, note) != SL_OK)
        profile = add_finding(all, name, "%.240s", sl_status_message());
    else if (machine.is_measured)
        profile = add_finding(all, name, "%.120s: %s", path, machine.name);
    else
        profile = add_finding(all, name, "%.240s", note);
    if (!path || !machine.is_measured)
        add_cost(profile, "predicted times and --policy auto go by a plain guess of this "
                          "machine's rates");
    free(path);
}

static void find_profiles(findings *all, uint32_t thread_count)
{
    sl_device_info info;
    const sl_profile_subject cpu = {.worker_count = thread_count};
    const sl_profile_subject gpu = {SL_DEVICE_CUDA, thread_count, &info};
    find_profile(all, "machine profile", &cpu);
    if (sl_device_query(SL_DEVICE_CUDA, 0, &info) == SL_OK)
        find_profile(all, "profile, cuda:0", &gpu);
}

static void print_text(const findings *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        printf("%-15s %s\n", all->items[i].name, all->items[i].value);
        if (*all->items[i].cost)
            printf("%-15s   costs: %s\n", "", all->items[i].cost);
    }
}

static sl_status print_json(const findings *all)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < all->count; i++)
        json_object_set_new(
            object, all->items[i].name,
            json_pack("{s:s, s:s}", "value", all->items[i].value, "cost", all->items[i].cost));
    sl_status status = sl_command_print_json(object, 17);
    json_decref(object);
    return status;
}

static int doctor(sl_config *config)
{
    findings all = {0};
    sl_status status = SL_OK;
    find_cpu(&all);
    find_memory(&all);
    find_locked_memory(&all);
    find_huge_pages(&all);
    find_libraries(&all);
    find_cuda(&all);
    find_disk(&all);
    find_memory_directory(&all, &config->disk_dir);
    find_disk_directories(&all, &config->disk_dir);
    find_profiles(&all, (uint32_t)config->threads);
    if (config->json)
        status = print_json(&all);
    else
        print_text(&all);
    return sl_command_end(status);
}

const sl_command_entry sl_command_doctor = {
    .options = SL_CONFIG_DOCTOR,
    .name = "doctor",
    .summary = "what this machine has and what is missing",
    .doc = "Prints what this machine has, what is missing, and what that costs.",
    .run = doctor};
