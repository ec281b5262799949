/* sluice doctor: what this machine has, what is missing, and what each missing thing costs. */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/workers.h"
#include "command.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "offload/store.h"
#include "options.h"
#include "session/config/units.h"
#include "session/machine/disk.h"
#include "session/machine/profile.h"

enum { TEXT_BYTES = 640, FINDING_MAX = 48, GPU_MAX = 16, NAME_BYTES = 24 };
enum { PROBE_BYTES = 64 << 20 }; /* moved to see how fast the disks are */

static const char doc[] = "Prints what this machine has, what is missing, and what that costs.";

typedef struct finding {
    char name[NAME_BYTES];
    char value[TEXT_BYTES];
    char cost[TEXT_BYTES]; /* "" where nothing is missing */
} finding;

typedef struct findings {
    finding items[FINDING_MAX];
    uint32_t count;
} findings;

static finding *add(findings *all, const char *name)
{
    finding *fresh = &all->items[all->count++];
    snprintf(fresh->name, sizeof fresh->name, "%s", name);
    return fresh;
}

static void find_cpu(findings *all)
{
    finding *features = add(all, "cpu features");
    sl_command_describe_cpu(features->value, sizeof features->value);
    if (!strstr(features->value, "avx512f"))
        snprintf(features->cost, TEXT_BYTES, "matrix products at half the rate or less");
    finding *cores = add(all, "cores");
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t usable = sl_workers_usable_cpu_count();
    snprintf(cores->value, TEXT_BYTES, "%u usable of %ld online", usable, online);
    if ((long)usable < online)
        snprintf(cores->cost, TEXT_BYTES,
                 "this process is bound to %u of %ld cores (affinity mask): the others stay idle",
                 usable, online);
}

static void find_memory(findings *all)
{
    char size[SL_UNITS_TEXT_BYTES];
    finding *memory = add(all, "memory");
    uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES), page = (uint64_t)sysconf(_SC_PAGESIZE);
    sl_units_format_size(pages * page, size);
    snprintf(memory->value, TEXT_BYTES, "%s in the machine", size);
    finding *available = add(all, "free to use");
    uint64_t free_bytes;
    if (sl_device_host_free_bytes(&free_bytes) != SL_OK) {
        snprintf(available->value, TEXT_BYTES, "unknown");
        snprintf(available->cost, TEXT_BYTES, "budgets must be given by hand: %s",
                 sl_status_message());
        return;
    }
    sl_units_format_size(free_bytes, size);
    snprintf(available->value, TEXT_BYTES, "%s after cgroup limits; budgets default to 80%% of it",
             size);
}

static void find_locked_memory(findings *all)
{
    finding *locked = add(all, "locked memory");
    struct rlimit limit;
    char size[SL_UNITS_TEXT_BYTES];
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        snprintf(locked->value, TEXT_BYTES, "no limit");
        return;
    }
    sl_units_format_size(limit.rlim_cur, size);
    snprintf(locked->value, TEXT_BYTES, "%s (ulimit -l)", size);
    snprintf(locked->cost, TEXT_BYTES,
             "a host tier beyond it cannot be registered for the disk tier's transfers, and can be "
             "paged out; the cpu device itself does not need it locked");
}

static void find_huge_pages(findings *all)
{
    finding *pages = add(all, "huge pages");
    char mode[TEXT_BYTES] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (file && fgets(mode, sizeof mode, file))
        mode[strcspn(mode, "\n")] = '\0';
    if (file)
        fclose(file);
    snprintf(pages->value, TEXT_BYTES, "%.200s", *mode ? mode : "not offered by this kernel");
    if (!*mode || strstr(mode, "[never]"))
        snprintf(pages->cost, TEXT_BYTES, "more time on address translation: some percent of Adam");
}

static void find_libraries(findings *all)
{
    finding *gemm = add(all, "matrix product");
    snprintf(gemm->value, TEXT_BYTES, "%.200s", sl_kernels_cpu()->description());
    finding *ranks = add(all, "nccl, mpi");
    snprintf(ranks->value, TEXT_BYTES, "not used by this version");
    snprintf(ranks->cost, TEXT_BYTES, "one rank: one process does all the work");
}

static void describe_gpu(const sl_device_info *info, finding *gpu)
{
    char total[SL_UNITS_TEXT_BYTES], left[SL_UNITS_TEXT_BYTES], node[32] = "not known";
    sl_units_format_size(info->total_bytes, total);
    sl_units_format_size(info->free_bytes, left);
    if (info->numa_node >= 0)
        snprintf(node, sizeof node, "%d", info->numa_node);
    snprintf(gpu->value, TEXT_BYTES, "%s (%s); %s, %s free; NUMA node %s", info->name, info->detail,
             total, left, node);
}

/* Asks one after the other until there is none; why the first does not open is worth a line. */
static void find_gpus(findings *all)
{
    for (int index = 0; index < GPU_MAX; index++) {
        sl_device_info info;
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "cuda:%d", index);
        bool is_there = sl_device_query(SL_DEVICE_CUDA, index, &info) == SL_OK;
        if (!is_there && index > 0)
            return;
        finding *gpu = add(all, name);
        if (is_there) {
            describe_gpu(&info, gpu);
            continue;
        }
        snprintf(gpu->value, TEXT_BYTES, "%.600s", sl_status_message());
        snprintf(gpu->cost, TEXT_BYTES, "work runs on the processor's cores");
        return;
    }
}

static void find_cuda(findings *all)
{
    finding *cuda = add(all, "cuda");
    const sl_kernel_table *kernels = sl_kernels_cuda();
    if (!kernels) {
        snprintf(cuda->value, TEXT_BYTES, "this build has none: nvcc was not found");
        snprintf(cuda->cost, TEXT_BYTES,
                 "work runs on the processor's cores, and no run on a GPU can be planned");
        return;
    }
    snprintf(cuda->value, TEXT_BYTES, "%.600s", kernels->description());
    find_gpus(all);
}

/* The disk tier works either way; threads take more of the cores. */
static void find_disk(findings *all)
{
    finding *disk = add(all, "disk tier");
    snprintf(disk->value, TEXT_BYTES, "%.240s", sl_store_probe());
    if (strncmp(disk->value, "io_uring", 8) != 0)
        snprintf(disk->cost, TEXT_BYTES, "processor time: each piece that moves wakes a thread");
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

static void find_disk_directories(findings *all, const sl_config_list *directories)
{
    if (directories->count == 0)
        return;
    char size[SL_UNITS_TEXT_BYTES];
    uint64_t free_bytes;
    finding *space = add(all, "disk space");
    sl_status status = sl_disk_free_bytes((const char *const *)directories->items,
                                          directories->count, &free_bytes);
    if (status == SL_OK) {
        sl_units_format_size(free_bytes, size);
        snprintf(space->value, TEXT_BYTES,
                 "%s free in %u of --disk-dir; --disk-space is 90%% of it", size,
                 directories->count);
        finding *store = add(all, "disk");
        space = store;
        status = try_disks(directories, store->value);
    }
    if (status == SL_OK)
        return;
    snprintf(space->value, TEXT_BYTES, "%.240s", sl_status_message());
    snprintf(space->cost, TEXT_BYTES, "no disk tier there");
}

static void find_profile(findings *all, const char *name, const sl_profile_subject *subject)
{
    finding *profile = add(all, name);
    char *path = NULL, note[SL_PROFILE_NOTE_BYTES];
    sl_machine machine = {0};
    if (sl_profile_find_path(subject->device, &path) != SL_OK ||
        sl_profile_find_machine(NULL, subject, &machine, note) != SL_OK)
        snprintf(profile->value, TEXT_BYTES, "%.240s", sl_status_message());
    else if (machine.is_measured)
        snprintf(profile->value, TEXT_BYTES, "%.120s: %s", path, machine.name);
    else
        snprintf(profile->value, TEXT_BYTES, "%.240s", note);
    if (!path || !machine.is_measured)
        snprintf(profile->cost, TEXT_BYTES,
                 "predicted times and --policy auto go by a plain guess of this machine's rates");
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

static void print_json(const findings *all)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < all->count; i++)
        json_object_set_new(
            object, all->items[i].name,
            json_pack("{s:s, s:s}", "value", all->items[i].value, "cost", all->items[i].cost));
    char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    if (text)
        puts(text);
    free(text);
    json_decref(object);
}

int sl_command_doctor(int argc, char **argv)
{
    static const sl_options_command command = {SL_CONFIG_DOCTOR, "sluice doctor", NULL, doc};
    sl_config config;
    findings all = {0};
    sl_status status = sl_options_parse(&command, argc, argv, &config);
    int code = status == SL_OK ? 0 : sl_command_fail(status);
    if (status == SL_OK) {
        find_cpu(&all);
        find_memory(&all);
        find_locked_memory(&all);
        find_huge_pages(&all);
        find_libraries(&all);
        find_cuda(&all);
        find_disk(&all);
        find_disk_directories(&all, &config.disk_dir);
        find_profiles(&all, (uint32_t)config.threads);
        if (config.json)
            print_json(&all);
        else
            print_text(&all);
    }
    sl_config_clear(&config);
    return code;
}
