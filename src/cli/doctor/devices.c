/* What computes: matrix products on the cores, CUDA and its GPUs, ranks; and what was measured. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "findings.h"
#include "kernels/kernels.h"
#include "session/machine/profile.h"

enum { GPU_MAX = 16, PATH_BYTES = 512 };

/* ---- what else is installed ---- */

/* A file in one of the folders that a variable lists with ":" between; false: there is none. */
static bool find_in_list(const char *variable, const char *name, int mode, char *out_path)
{
    const char *list = getenv(variable);
    for (const char *start = list ? list : ""; *start;) {
        int length = (int)strcspn(start, ":");
        snprintf(out_path, PATH_BYTES, "%.*s/%s", length, start, name);
        if (length > 0 && access(out_path, mode) == 0)
            return true;
        start += length + (start[length] == ':');
    }
    return false;
}

/* A program on PATH, or in `folder`. */
static bool find_program(const char *name, const char *folder, char *out_path)
{
    if (find_in_list("PATH", name, X_OK, out_path))
        return true;
    snprintf(out_path, PATH_BYTES, "%s/%s", folder, name);
    return access(out_path, X_OK) == 0;
}

/* Whether a library lies where the loader looks; it is not loaded, for what it does then is its own
 * affair. */
static bool has_library(const char *name)
{
    static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu",
                                          "/usr/lib/aarch64-linux-gnu",
                                          "/usr/lib64",
                                          "/usr/lib",
                                          "/usr/local/lib",
                                          "/usr/local/cuda/lib64"};
    char path[PATH_BYTES];
    if (find_in_list("LD_LIBRARY_PATH", name, R_OK, path))
        return true;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folders[i], name);
        if (access(path, R_OK) == 0)
            return true;
    }
    return false;
}

static void add_toolkit(sl_findings *all)
{
    char path[PATH_BYTES];
    if (find_program("nvcc", "/usr/local/cuda/bin", path)) {
        sl_findings_add(all, "cuda toolkit", "%.500s", path);
        return;
    }
    sl_finding *none = sl_findings_add(all, "cuda toolkit", "none (nvcc is not on PATH)");
    if (sl_kernels_cuda()) /* what is built needs none */
        return;
    sl_finding_cost(none, SL_FINDING_MISSING, "the CUDA backend cannot be built here");
    sl_finding_mend(none, "a toolkit of CUDA 12.0 or later, then build again with its bin on PATH");
}

static void add_ranks(sl_findings *all)
{
    static const char *const libraries[] = {"libnccl.so.2", "libmpi.so.40", "libmpich.so.12"};
    static const char *const names[] = {"NCCL", "Open MPI", "MPICH"};
    char text[64] = "", path[PATH_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (has_library(libraries[i]))
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? ", " : "",
                     names[i]);
    bool has_launcher =
        find_program("mpirun", "/usr/bin", path) || find_program("srun", "/usr/bin", path);
    sl_findings_add(all, "nccl, mpi", "%s; %s", *text ? text : "none",
                    has_launcher ? path : "neither mpirun nor srun");
}

/* ---- CUDA ---- */

static void add_gpu(sl_findings *all, const char *name, const sl_device_info *info)
{
    char node[32] = "not known";
    if (info->numa_node >= 0)
        snprintf(node, sizeof node, "%d", info->numa_node);
    sl_findings_add(all, name, "%.100s (%.200s); %s, %s free; NUMA node %s", info->name,
                    info->detail, sl_command_format_size(info->total_bytes).text,
                    sl_command_format_size(info->free_bytes).text, node);
}

/* Asks one after the other until there is none; why the first does not open is worth a line. */
static void add_gpus(sl_findings *all)
{
    for (int index = 0; index < GPU_MAX; index++) {
        sl_device_info info;
        char name[SL_FINDING_NAME_BYTES];
        snprintf(name, sizeof name, "cuda:%d", index);
        bool is_there = sl_device_query(SL_DEVICE_CUDA, index, &info) == SL_OK;
        if (is_there)
            add_gpu(all, name, &info);
        else if (index == 0)
            sl_finding_cost(sl_findings_add(all, name, "%.600s", sl_status_message()),
                            SL_FINDING_MISSING, "work runs on the processor's cores");
        if (!is_there)
            return;
    }
}

static void add_cuda(sl_findings *all)
{
    const sl_kernel_table *kernels = sl_kernels_cuda();
    if (!kernels) {
        sl_finding *none = sl_findings_add(all, "cuda", "this build has none: nvcc was not found");
        sl_finding_cost(none, SL_FINDING_MISSING,
                        "work runs on the processor's cores, and no run on a GPU can be planned");
        sl_finding_mend(none, "build where nvcc is on PATH (cuda toolkit, below)");
        return;
    }
    sl_finding *cuda = sl_findings_add(all, "cuda", "%.600s", kernels->description());
    if (kernels->lack()) {
        sl_finding_cost(cuda, SL_FINDING_DEGRADED, "%.600s", kernels->lack());
        sl_finding_mend(cuda, "the library, from the toolkit or a Python package; or "
                              "--cuda-products own, which is slower");
    }
    sl_findings_add(all, "cuda needs", "%s", sl_device_ops_of(SL_DEVICE_CUDA)->needs);
    add_gpus(all);
}

/* ---- machine profiles ---- */

static void add_profile(sl_findings *all, const char *name, const sl_profile_subject *subject)
{
    sl_finding *profile;
    char *path = NULL, note[SL_PROFILE_NOTE_BYTES];
    sl_machine machine = {0};
    if (sl_profile_find_path(subject->device, 0, &path) != SL_OK ||
        sl_profile_find_machine(NULL, subject, &machine, note) != SL_OK)
        profile = sl_findings_add(all, name, "%.240s", sl_status_message());
    else if (machine.is_measured)
        profile = sl_findings_add(all, name, "%s", machine.name);
    else
        profile = sl_findings_add(all, name, "%.240s",
                                  *note ? note : "none: this machine was not measured");
    if (!path || !machine.is_measured || machine.is_quick) {
        sl_finding_cost(profile, SL_FINDING_DEGRADED, "predicted times and --policy auto go by %s",
                        sl_machine_basis(&machine));
        sl_finding_mend(profile, "sluice bench --device %s --disk-dir DIR, a minute",
                        subject->device == SL_DEVICE_CUDA ? "cuda" : "cpu");
    }
    free(path);
}

static void add_profiles(sl_findings *all, uint32_t thread_count)
{
    sl_device_info info;
    const sl_profile_subject cpu = {.worker_count = thread_count};
    const sl_profile_subject gpu = {SL_DEVICE_CUDA, thread_count, &info};
    add_profile(all, "machine profile", &cpu);
    if (sl_device_query(SL_DEVICE_CUDA, 0, &info) == SL_OK)
        add_profile(all, "profile, cuda:0", &gpu);
}

void sl_findings_add_devices(sl_findings *all, uint32_t thread_count)
{
    sl_findings_add(all, "matrix product", "%.200s", sl_kernels_cpu()->description());
    add_cuda(all);
    add_toolkit(all);
    add_ranks(all);
    add_profiles(all, thread_count);
}
