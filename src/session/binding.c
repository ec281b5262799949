/* Masks of cores, gathered from all ranks and divided; see binding.h. */
#define _GNU_SOURCE
#include "binding.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/hash.h"
#include "base/limits.h"

_Static_assert(SL_BINDING_CORES <= CPU_SETSIZE, "a mask of the system has as many cores");

/* The same for all processes since the machine started, in containers, too. */
static uint64_t identify_machine(void)
{
    char text[256] = "";
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, text, sizeof text - 1) : -1;
    if (file >= 0)
        close(file);
    if (length <= 0 && gethostname(text, sizeof text - 1) != 0)
        return 0;
    return sl_hash_64(text, strlen(text));
}

static sl_binding look(void)
{
    cpu_set_t cores, starter;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    sl_binding mine = {.machine = identify_machine(),
                       .quota = sl_limits_cpu_count("", online > 0 ? (uint32_t)online : 1)};
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof cores, &cores) == 0)
        for (int core = 0; core < SL_BINDING_CORES; core++)
            if (CPU_ISSET(core, &cores))
                mine.cores[core / 64] |= 1ull << (core % 64);
    if (sched_getaffinity(getppid(), sizeof starter, &starter) == 0)
        mine.starter_cores = (uint32_t)CPU_COUNT(&starter);
    return mine;
}

static bool has_core(const sl_binding *it, int core)
{
    return (it->cores[core / 64] >> (core % 64) & 1) != 0;
}

/* How many ranks of the machine may use a core. */
static uint32_t count_sharers(const sl_binding *all, uint32_t rank_count, const sl_binding *mine,
                              int core)
{
    uint32_t sharers = 0;
    for (uint32_t i = 0; i < rank_count; i++)
        sharers += all[i].machine == mine->machine && has_core(&all[i], core);
    return sharers;
}

sl_binding_share sl_binding_divide(const sl_binding *all, uint32_t rank_count, uint32_t rank)
{
    const sl_binding *mine = &all[rank];
    sl_binding_share share = {.worker_count = 0};
    double cores = 0;
    for (uint32_t i = 0; i < rank_count; i++)
        share.rank_count += all[i].machine == mine->machine;
    for (int core = 0; core < SL_BINDING_CORES; core++) {
        uint32_t sharers = count_sharers(all, rank_count, mine, core);
        share.used_cores += sharers > 0;
        if (has_core(mine, core))
            cores += 1.0 / sharers;
    }
    uint32_t by_quota = mine->quota / share.rank_count;
    share.worker_count = sl_bits_min((uint32_t)(cores + 1e-6), by_quota);
    share.worker_count += share.worker_count == 0;
    share.usable_cores = sl_bits_min(mine->quota, mine->starter_cores);
    return share;
}

bool sl_binding_wastes(const sl_binding_share *share)
{
    return 2 * share->used_cores <= share->usable_cores;
}

sl_status sl_binding_find(sl_comm *world, sl_binding_share *out_share)
{
    const uint32_t size = sl_comm_size(world);
    const sl_binding mine = look();
    sl_binding *all = calloc(size, sizeof *all);
    if (!all)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the bindings of %u ranks", size);
    sl_status status = sl_comm_all_gather(world, sizeof mine, &mine, all);
    if (status == SL_OK)
        *out_share = sl_binding_divide(all, size, sl_comm_rank(world));
    free(all);
    return status;
}

sl_status sl_binding_plan(uint32_t rank_count, sl_binding_share *out_share)
{
    sl_binding *all = calloc(rank_count, sizeof *all);
    if (!all)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the bindings of %u ranks", rank_count);
    all[0] = look();
    for (uint32_t rank = 1; rank < rank_count; rank++)
        all[rank] = all[0];
    *out_share = sl_binding_divide(all, rank_count, 0);
    free(all);
    return SL_OK;
}
