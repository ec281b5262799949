/* What computes: matrix products on the cores, CUDA and its GPUs, ranks; and what was measured. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "findings.h"
#include "installed.h"
#include "kernels/kernels.h"
#include "machine/profile.h"
#include "machine/proof_record.h"

enum { GPU_MAX = 16 };

static const char nvcc_folder[] = "/usr/local/cuda/bin"; /* where it is when it is not on PATH */

static void add_toolkit(sl_findings *all)
{
    char path[SL_INSTALLED_PATH_BYTES];
    if (sl_installed_find_program("nvcc", nvcc_folder, path)) {
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
    char nccl[SL_INSTALLED_TEXT_BYTES], mpi[SL_INSTALLED_TEXT_BYTES], path[SL_INSTALLED_PATH_BYTES];
    sl_installed_describe(SL_INSTALLED_NCCL, nccl);
    sl_installed_describe(SL_INSTALLED_MPI, mpi);
    bool has_launcher = sl_installed_find_program("mpirun", "/usr/bin", path) ||
                        sl_installed_find_program("srun", "/usr/bin", path);
    sl_findings_add(all, "nccl, mpi", "%s%s%s%s; %s", nccl, *nccl && *mpi ? ", " : "", mpi,
                    *nccl || *mpi ? "" : "none", has_launcher ? path : "neither mpirun nor srun");
}

/* ---- CUDA ---- */

static void add_gpu(sl_findings *all, const char *name, const sl_device_info *info)
{
    char node[32] = "not known";
    if (info->numa_node >= 0)
        snprintf(node, sizeof node, "%d", info->numa_node);
    sl_finding *gpu =
        sl_findings_add(all, name, "%.100s (%.200s); %s, %s free; NUMA node %s", info->name,
                        info->detail, sl_command_format_size(info->total_bytes).text,
                        sl_command_format_size(info->free_bytes).text, node);
    char doubt[SL_PROOF_DOUBT_BYTES];
    sl_proof_record_doubt(info, NULL, doubt);
    if (*doubt) {
        sl_finding_cost(gpu, SL_FINDING_DEGRADED, "%s", doubt);
        sl_finding_mend(gpu, "sluice doctor --self-test");
    }
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
        char nvcc[SL_INSTALLED_PATH_BYTES];
        sl_finding *none = sl_findings_add(all, "cuda", "this build has none");
        sl_finding_cost(none, SL_FINDING_MISSING,
                        "work runs on the processor's cores, and no run on a GPU can be planned");
        if (sl_installed_find_program("nvcc", nvcc_folder, nvcc))
            sl_finding_mend(none, "build again with %.500s, and without -DSL_CUDA=OFF", nvcc);
        else
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
