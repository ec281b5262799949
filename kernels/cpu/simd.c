/* The instruction sets that were compiled, those that this processor has, and the one in use. */
#define _GNU_SOURCE /* syscall */
#include "simd.h"

#include <stdatomic.h>
#include <stddef.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

extern const sl_simd sl_simd_table_amx, sl_simd_table_avx512_bf16, sl_simd_table_avx512,
    sl_simd_table_avx2;

/* The one feature that __builtin_cpu_supports does not know in every compiler. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

static bool has_pairs(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512bf16");
}

/* With the instructions for pairs, which attention rounds its weights by. Requests the 8 KiB of
 * tile state, once per process (Linux 5.16 and newer). The kernel refuses if a thread's signal
 * stack is too small for it, or if a container forbids the call. */
static bool has_amx(void)
{
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18, BF16 = 1 << 22, TILES = 1 << 24 };
    unsigned eax, ebx, ecx, edx;
    return has_pairs() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) &&
           (edx & (BF16 | TILES)) == (BF16 | TILES) &&
           syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
}

/* AMD's processors multiply pairs of bf16 at twice the rate of fp32, Intel's at half of it (Emerald
 * Rapids: 85 GFLOP/s a core against 175), where widening while packing is the faster way. */
static bool has_fast_pairs(void)
{
    return has_pairs() && __builtin_cpu_is("amd");
}

static bool has_slow_pairs(void)
{
    return has_pairs() && !has_fast_pairs();
}
#endif
extern const sl_simd sl_simd_table_plain;

static bool has_anything(void)
{
    return true;
}

static const struct compiled {
    const sl_simd *table;
    bool (*runs_here)(void);
} all[] = {
#if defined(__x86_64__)
    {&sl_simd_table_amx, has_amx},        {&sl_simd_table_avx512_bf16, has_fast_pairs},
    {&sl_simd_table_avx512, has_avx512},  {&sl_simd_table_avx512_bf16, has_slow_pairs},
    {&sl_simd_table_avx2, has_avx2},
#endif
    {&sl_simd_table_plain, has_anything},
};

static _Atomic(const sl_simd *) chosen;

const sl_simd *sl_simd_usable(uint32_t index)
{
    for (uint32_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].runs_here() && index-- == 0)
            return all[i].table;
    return NULL;
}

uint32_t sl_simd_usable_count(void)
{
    uint32_t count = 0;
    while (sl_simd_usable(count) != NULL)
        count++;
    return count;
}

/* Computed once, because every tile of every op calls this, and cpuid traps in a virtual machine,
 * which took 4 % of a step's time. Threads that compute it at the same time get the same result. */
static const sl_simd *find_best(void)
{
    static _Atomic(const sl_simd *) best;
    const sl_simd *table = atomic_load_explicit(&best, memory_order_acquire);
    if (table == NULL) {
        table = sl_simd_usable(0);
        atomic_store_explicit(&best, table, memory_order_release);
    }
    return table;
}

const sl_simd *sl_simd_current(void)
{
    const sl_simd *table = atomic_load_explicit(&chosen, memory_order_acquire);
    return table != NULL ? table : find_best();
}

void sl_simd_choose(const sl_simd *table)
{
    atomic_store_explicit(&chosen, table, memory_order_release);
}
