/* Loops that do nothing else. The arithmetic is written in assembly where the processor is known,
 * for a compiler would see that nothing comes of it. */
#include "roofs.h"

#include <string.h>

#include "base/clock.h"
#include "kernels/kernels.h"

enum { CHAINS = 12, TILES_A_WORKER = 4, LOOPS = 400000, LOOP_TILE = 131072 };

/* ---- arithmetic ---- */

#if defined(__x86_64__)
/* Twelve chains hide a latency of six cycles on two ports; registers above 15 are left alone, so
 * that no target option is needed. All numbers are 1.0001 or so: chains grow slowly. */
#define CHAIN(operation, width, n)                                                                 \
    operation " %%" width "mm12, %%" width "mm13, %%" width "mm" #n "\n\t"
#define LOOP(operation, width)                                                                     \
    __asm__ volatile(                                                                              \
        "vbroadcastss (%1), %%" width "mm12\n\t"                                                   \
        "vbroadcastss (%1), %%" width "mm13\n\t"                                                   \
        "1:\n\t" CHAIN(operation, width, 0) CHAIN(operation, width, 1) CHAIN(operation, width, 2)  \
            CHAIN(operation, width, 3) CHAIN(operation, width, 4) CHAIN(operation, width, 5)       \
                CHAIN(operation, width, 6) CHAIN(operation, width, 7) CHAIN(operation, width, 8)   \
                    CHAIN(operation, width, 9) CHAIN(operation, width, 10)                         \
                        CHAIN(operation, width, 11) "dec %0\n\t"                                   \
                                                    "jnz 1b\n\t"                                   \
                                                    "vzeroupper\n\t"                               \
        : "+r"(left)                                                                               \
        : "r"(&number)                                                                             \
        : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
          "xmm11", "xmm12", "xmm13", "memory", "cc")

static void run_wide(void *job, uint64_t tile, uint32_t worker)
{
    (void)job, (void)tile, (void)worker;
    const float number = 1.0001f;
    uint64_t left = LOOPS;
    LOOP("vfmadd231ps", "z");
}

static void run_narrow(void *job, uint64_t tile, uint32_t worker)
{
    (void)job, (void)tile, (void)worker;
    const float number = 1.0001f;
    uint64_t left = LOOPS;
    LOOP("vfmadd231ps", "y");
}

static void run_pairs(void *job, uint64_t tile, uint32_t worker)
{
    (void)job, (void)tile, (void)worker;
    const float number = 0.0078f; /* 0x3bff....: two ordinary bf16 */
    uint64_t left = LOOPS;
    LOOP("vdpbf16ps", "z");
}

/* Six tiles of sums hide a latency of 52 cycles at one instruction every 16. */
#define TILE(n) "tdpbf16ps %%tmm7, %%tmm6, %%tmm" #n "\n\t"
#define TILES TILE(0) TILE(1) TILE(2) TILE(3) TILE(4) TILE(5)

static void run_tiles(void *job, uint64_t tile, uint32_t worker)
{
    (void)job, (void)tile, (void)worker;
    uint8_t shapes[64] = {1}; /* the palette; bytes of a row from 16 on, rows from 48 on */
    uint16_t numbers[16 * 32];
    uint64_t left = LOOPS, row = 64;
    for (int i = 0; i < 8; i++) {
        shapes[16 + 2 * i] = 64;
        shapes[48 + i] = 16;
    }
    for (int i = 0; i < 16 * 32; i++)
        numbers[i] = 0x3bff;
    __asm__ volatile("ldtilecfg (%1)\n\t"
                     "tileloadd (%2,%3,1), %%tmm6\n\t"
                     "tileloadd (%2,%3,1), %%tmm7\n\t"
                     "1:\n\t" TILES TILES "dec %0\n\t"
                     "jnz 1b\n\t"
                     "tilerelease\n\t"
                     : "+r"(left)
                     : "r"(shapes), "r"(numbers), "r"(row)
                     : "memory", "cc");
}
#endif

static void run_plain(void *job, uint64_t tile, uint32_t worker)
{
    (void)job, (void)tile, (void)worker;
    volatile float sink;
    float chain[CHAINS] = {1};
    for (uint64_t i = 0; i < LOOPS; i++)
        for (int c = 0; c < CHAINS; c++)
            chain[c] = chain[c] * 0.999f + 0.5f;
    for (int c = 0; c < CHAINS; c++)
        sink = chain[c];
    (void)sink;
}

static double time_arithmetic(sl_workers *workers, sl_tile_function tile, double flops_a_chain)
{
    uint64_t tiles = (uint64_t)sl_workers_count(workers) * TILES_A_WORKER;
    uint64_t start = sl_clock_now_ns();
    sl_workers_run(workers, tiles, tile, NULL);
    double seconds = 1e-9 * (double)(sl_clock_now_ns() - start);
    return flops_a_chain * CHAINS * LOOPS * (double)tiles / seconds;
}

double sl_roofs_flops(sl_workers *workers, sl_type type)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    double rate = 0;
    if (__builtin_cpu_supports("avx512f"))
        rate = time_arithmetic(workers, run_wide, 32);
    else if (__builtin_cpu_supports("fma"))
        rate = time_arithmetic(workers, run_narrow, 16);
    if (type == SL_TYPE_BF16 && __builtin_cpu_supports("avx512bf16")) {
        double pairs = time_arithmetic(workers, run_pairs, 64);
        rate = pairs > rate ? pairs : rate;
    }
    if (type == SL_TYPE_BF16 && strcmp(sl_kernels_cpu()->description(), "amx") == 0)
        rate = time_arithmetic(workers, run_tiles, 16384);
    if (rate > 0)
        return rate;
#endif
    (void)type;
    return time_arithmetic(workers, run_plain, 2);
}

/* ---- memory ---- */

typedef struct loop_job {
    float *array[4];
    uint64_t count;
    sl_memory_loop loop;
    float sums[1024]; /* by tile, so that reading has an effect */
} loop_job;

static void read_tile(const loop_job *job, uint64_t first, uint64_t end, float *sum)
{
    float lanes[16] = {0};
    for (uint64_t i = first; i + 16 <= end; i += 16)
        for (int k = 0; k < 4; k++)
            for (int lane = 0; lane < 16; lane++)
                lanes[lane] += job->array[k][i + (uint64_t)lane];
    for (int lane = 0; lane < 16; lane++)
        *sum += lanes[lane];
}

/* STREAM's loops (McCalpin): the first array is written. */
static void run_stream_tile(const loop_job *job, uint64_t first, uint64_t end)
{
    float *restrict a = job->array[1];
    const float *restrict b = job->array[0], *restrict c = job->array[2];
    const float factor = 0.25f;
    if (job->loop == SL_LOOP_SCALE)
        for (uint64_t i = first; i < end; i++)
            a[i] = factor * b[i];
    else
        for (uint64_t i = first; i < end; i++)
            a[i] = b[i] + factor * c[i];
}

static void run_loop_tile(void *argument, uint64_t tile_index, uint32_t worker_index)
{
    (void)worker_index;
    loop_job *job = argument;
    uint64_t first = tile_index * LOOP_TILE, end = first + LOOP_TILE;
    end = end < job->count ? end : job->count;
    if (job->loop == SL_LOOP_READ) {
        read_tile(job, first, end, &job->sums[tile_index % 1024]);
        return;
    }
    if (job->loop != SL_LOOP_UPDATE) {
        run_stream_tile(job, first, end);
        return;
    }
    const float *restrict a = job->array[0];
    float *restrict b = job->array[1], *restrict c = job->array[2], *restrict d = job->array[3];
    for (uint64_t i = first; i < end; i++) {
        float x = a[i] + b[i] + c[i] + d[i];
        b[i] = x * 0.25f;
        c[i] = x * 0.125f;
        d[i] = x * 0.0625f;
    }
}

sl_status sl_roofs_memory(sl_workers *workers, sl_memory *memory, sl_memory_loop loop,
                          uint64_t bytes, double *out_rate)
{
    static const double arrays[SL_LOOP_COUNT] = {4, 7, 2, 3}; /* that are read or written */
    loop_job job = {.count = bytes / sizeof(float), .loop = loop};
    for (int i = 0; i < 4; i++) {
        sl_memory_request request = {bytes, true, i > 0, SL_TYPE_FP32};
        void *address;
        SL_TRY(sl_memory_take(memory, request, &address));
        job.array[i] = address;
    }
    uint64_t start = sl_clock_now_ns();
    sl_workers_run(workers, (job.count + LOOP_TILE - 1) / LOOP_TILE, run_loop_tile, &job);
    double seconds = 1e-9 * (double)(sl_clock_now_ns() - start);
    *out_rate = arrays[loop] * (double)bytes / seconds;
    return SL_OK;
}
