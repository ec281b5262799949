/* Processors and memory, and what the system lets this process have of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/workers.h"
#include "findings.h"
#include "kernels/kernels.h"

enum { DESCRIPTOR_COUNT = 4096 }; /* a folder of text is one for each file, for a while */

/* The first line of a file without its end; "" where there is none. */
static void read_line(const char *path, char *out_text, size_t capacity)
{
    out_text[0] = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (!fgets(out_text, (int)capacity, file))
        out_text[0] = '\0';
    out_text[strcspn(out_text, "\n")] = '\0';
    fclose(file);
}

static void add_system(sl_findings *all)
{
    struct utsname system;
    if (uname(&system) == 0)
        sl_findings_add(all, "system", "%.60s %.100s, %.60s", system.sysname, system.release,
                        system.machine);
}

static void add_cpu(sl_findings *all)
{
    char features[SL_FINDING_TEXT_BYTES];
    sl_command_describe_cpu(features, sizeof features);
    sl_finding *cpu = sl_findings_add(all, "cpu features", "%.600s", features);
    if (!strstr(features, "avx512f"))
        sl_finding_cost(cpu, SL_FINDING_DEGRADED, "matrix products at half the rate or less");
    else if (strstr(features, "amx_bf16") && strcmp(sl_kernels_cpu()->description(), "amx") != 0) {
        sl_finding_cost(
            cpu, SL_FINDING_DEGRADED,
            "products of bf16 at a fraction of their rate, for the system refuses AMX's tiles");
        sl_finding_mend(cpu, "Linux 5.16 or newer, in a container that allows arch_prctl");
    }
}

static void add_cores(sl_findings *all)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t allowed = sl_workers_allowed_cpu_count(), usable = sl_workers_usable_cpu_count();
    sl_finding *cores = sl_findings_add(all, "cores", "%u usable of %ld online", usable, online);
    if ((long)allowed < online) {
        sl_finding_cost(
            cores, SL_FINDING_DEGRADED,
            "this process is bound to %u of %ld cores (affinity mask): the others stay idle",
            allowed, online);
        sl_finding_mend(cores, "taskset -c 0-%ld sluice ..., or the cpus of its container",
                        online - 1);
    }
    double quota = sl_limits_cpu_quota("");
    if (quota == 0) {
        sl_findings_add(all, "cpu quota", "none");
        return;
    }
    sl_finding *limit =
        sl_findings_add(all, "cpu quota", "%.2f cores' worth of time (cgroup)", quota);
    if (usable < allowed) {
        sl_finding_cost(limit, SL_FINDING_DEGRADED,
                        "%u compute workers instead of %u: more would stop each other in turn",
                        usable, allowed);
        sl_finding_mend(limit, "a larger quota for its cgroup (docker run --cpus, CPUQuota=)");
    }
}

/* Nodes are listed as "0" or "0-3": one beside the last comma or dash is a second one. */
static void add_numa(sl_findings *all)
{
    char nodes[64];
    read_line("/sys/devices/system/node/online", nodes, sizeof nodes);
    bool has_several = strpbrk(nodes, ",-") != NULL;
    sl_finding *numa = sl_findings_add(all, "numa nodes", "%s", *nodes ? nodes : "not told");
    if (!has_several)
        return;
    sl_finding_cost(numa, SL_FINDING_DEGRADED,
                    "memory of another node is read at about half the rate, and a run does not "
                    "choose its node itself");
    sl_finding_mend(numa, "numactl --cpunodebind=0 --membind=0 sluice ..., with the node of the "
                          "device or the drive");
}

static void add_memory(sl_findings *all)
{
    uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES), page = (uint64_t)sysconf(_SC_PAGESIZE);
    sl_limits_memory memory;
    sl_findings_add(all, "memory", "%s in the machine", sl_command_format_size(pages * page).text);
    if (sl_limits_read_memory("", &memory) != SL_OK) {
        sl_finding_cost(sl_findings_add(all, "free to use", "unknown"), SL_FINDING_MISSING,
                        "nothing can be trained: %.500s", sl_status_message());
        return;
    }
    if (memory.cgroup_limit_bytes == UINT64_MAX)
        sl_findings_add(all, "memory limit", "none by a cgroup");
    else
        sl_findings_add(all, "memory limit", "%s (cgroup), of which %s are left",
                        sl_command_format_size(memory.cgroup_limit_bytes).text,
                        sl_command_format_size(memory.cgroup_free_bytes).text);
    sl_findings_add(all, "free to use",
                    "%s now; budgets default to 80%% of it, and a plan that takes more is refused",
                    sl_command_format_size(memory.free_bytes).text);
}

static void add_locked_memory(sl_findings *all)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        sl_findings_add(all, "locked memory", "no limit");
        return;
    }
    sl_finding *locked = sl_findings_add(all, "locked memory", "%s (ulimit -l)",
                                         sl_command_format_size(limit.rlim_cur).text);
    sl_finding_cost(locked, SL_FINDING_DEGRADED,
                    "a host tier beyond it cannot be registered for the disk tier's transfers, "
                    "and can be paged out; the cpu device itself does not need it locked");
    sl_finding_mend(locked, "ulimit -l unlimited; for good: \"* - memlock unlimited\" in "
                            "/etc/security/limits.conf, docker run --ulimit memlock=-1");
}

static void add_huge_pages(sl_findings *all)
{
    const char *path = "/sys/kernel/mm/transparent_hugepage/enabled";
    char mode[128];
    read_line(path, mode, sizeof mode);
    sl_finding *pages =
        sl_findings_add(all, "huge pages", "%s", *mode ? mode : "not offered by this kernel");
    if (*mode && !strstr(mode, "[never]"))
        return;
    sl_finding_cost(pages, SL_FINDING_DEGRADED,
                    "more time on address translation: some percent of Adam");
    if (*mode)
        sl_finding_mend(pages, "echo madvise > %s (as root)", path);
}

/* The command raises its limit to the hard one by itself. */
static void add_descriptors(sl_findings *all)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    sl_finding *files = sl_findings_add(all, "open files", "%llu at once (ulimit -Hn)",
                                        (unsigned long long)limit.rlim_max);
    if (limit.rlim_max >= DESCRIPTOR_COUNT)
        return;
    sl_finding_cost(files, SL_FINDING_DEGRADED, "folders of more text files than that are refused");
    sl_finding_mend(files, "ulimit -Hn %d (as root), docker run --ulimit nofile=%d",
                    DESCRIPTOR_COUNT, DESCRIPTOR_COUNT);
}

void sl_findings_add_machine(sl_findings *all)
{
    add_system(all);
    add_cpu(all);
    add_cores(all);
    add_numa(all);
    add_memory(all);
    add_locked_memory(all);
    add_huge_pages(all);
    add_descriptors(all);
}
