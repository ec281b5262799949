/* The instructions of kernels/cuda/mma.cuh on the processor, from their description (PTX ISA:
 * "Matrix Fragments for mma.m16n8k16 with floating point type", "ldmatrix", "cp.async").
 *
 * Every lane brings its registers; the last one to come puts the matrices together by the
 * description's rows and columns, works out the result and gives every lane its part.
 *
 * A copy happens when it is begun or as late as it may, by turns that look like chance: a kernel
 * that reads too early, or overwrites what others still read, gives another result. */
#ifndef SL_CUDA_MMA_EMULATED_H
#define SL_CUDA_MMA_EMULATED_H

#include <math.h>
#include <string.h>

enum {
    SL_EMULATED_THREADS = 256, /* of a block that uses copies, at most */
    SL_EMULATED_COPIES = 64    /* that one thread has begun and not waited for, at most */
};

#define SL_EMULATED_SITE(name)                                                                     \
    {                                                                                              \
        name, __FILE__, __LINE__                                                                   \
    }

/* What the last lane does is plain loops over arrays of its own, a hundred times as often as
 * anything else here: a sanitizer has nothing to find in it and would take most of its time there.
 */
#define SL_EMULATED_PLAIN __attribute__((no_sanitize("address", "undefined")))

/* ---- products ---- */

/* One lane's elements, in the order of the halves of its registers. */
typedef struct sl_emulated_fragments {
    float a[8], b[4], c[4];
} sl_emulated_fragments;

SL_EMULATED_PLAIN static inline void sl_emulated_multiply(void *const *lanes, unsigned)
{
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const sl_emulated_fragments *part = (const sl_emulated_fragments *)lanes[lane];
        const int group = lane >> 2, thread_in_group = lane % 4;
        for (int i = 0; i < 8; i++) {
            const int row = i < 2 || (4 <= i && i < 6) ? group : group + 8;
            a[row][thread_in_group * 2 + (i & 1) + (i < 4 ? 0 : 8)] = part->a[i];
        }
        for (int i = 0; i < 4; i++)
            b[thread_in_group * 2 + (i & 1) + (i < 2 ? 0 : 8)][group] = part->b[i];
    }
    for (int lane = 0; lane < 32; lane++) {
        sl_emulated_fragments *part = (sl_emulated_fragments *)lanes[lane];
        const int group = lane >> 2, thread_in_group = lane % 4;
        for (int i = 0; i < 4; i++) {
            const int row = i < 2 ? group : group + 8, column = thread_in_group * 2 + (i & 1);
            for (int k = 0; k < 16; k++)
                part->c[i] += a[row][k] * b[k][column];
        }
    }
}

template <sl_type TYPE>
static inline void sl_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    static const sl_shim_site site = SL_EMULATED_SITE("mma");
    const uint32_t b[2] = {b0, b1};
    sl_emulated_fragments mine;
    for (int i = 0; i < 8; i++)
        mine.a[i] = sl_widen<TYPE>((uint16_t)(a[i / 2] >> i % 2 * 16));
    for (int i = 0; i < 4; i++)
        mine.b[i] = sl_widen<TYPE>((uint16_t)(b[i / 2] >> i % 2 * 16));
    memcpy(mine.c, c, sizeof mine.c);
    sl_shim_warp_meet(&site, SL_EVERY_LANE, &mine, sl_emulated_multiply);
    memcpy(c, mine.c, sizeof mine.c);
}

/* ---- loads of matrices ---- */

typedef struct sl_emulated_load {
    uint16_t row[8];
    bool transposes;
    uint32_t part[4];
} sl_emulated_load;

SL_EMULATED_PLAIN static inline void sl_emulated_load_all(void *const *lanes, unsigned)
{
    for (int lane = 0; lane < 32; lane++) {
        sl_emulated_load *mine = (sl_emulated_load *)lanes[lane];
        for (int i = 0; i < 4; i++) {
            uint32_t element[2];
            for (int j = 0; j < 2; j++) {
                const int row = mine->transposes ? lane % 4 * 2 + j : lane / 4;
                const int column = mine->transposes ? lane / 4 : lane % 4 * 2 + j;
                element[j] = ((const sl_emulated_load *)lanes[8 * i + row])->row[column];
            }
            mine->part[i] = element[0] | element[1] << 16;
        }
    }
}

static inline void sl_emulated_load_matrices(const sl_shim_site *site, uint32_t (&part)[4],
                                             const void *row, bool transposes)
{
    if ((uintptr_t)row % 16 != 0)
        sl_shim_fail("%s: a row is not aligned", site->what);
    sl_emulated_load mine = {{}, transposes, {}};
    memcpy(mine.row, row, sizeof mine.row); /* here a sanitizer sees it */
    sl_shim_warp_meet(site, SL_EVERY_LANE, &mine, sl_emulated_load_all);
    memcpy(part, mine.part, sizeof mine.part);
}

static inline void sl_load_matrices(uint32_t (&part)[4], const void *row)
{
    static const sl_shim_site site = SL_EMULATED_SITE("ldmatrix");
    sl_emulated_load_matrices(&site, part, row, false);
}

static inline void sl_load_transposed(uint32_t (&part)[4], const void *row)
{
    static const sl_shim_site site = SL_EMULATED_SITE("ldmatrix.trans");
    sl_emulated_load_matrices(&site, part, row, true);
}

/* ---- copies ---- */

typedef struct sl_emulated_copy {
    void *to;
    const void *from; /* NULL: zeros */
    uint32_t bytes;
} sl_emulated_copy;

/* Of the threads of the block that runs here. */
static thread_local sl_emulated_copy sl_emulated_copies[SL_EMULATED_THREADS][SL_EMULATED_COPIES];
static thread_local uint32_t sl_emulated_copy_count[SL_EMULATED_THREADS];
static thread_local uint32_t sl_emulated_chance = 1;

static inline void sl_emulated_perform(const sl_emulated_copy *copy)
{
    if (copy->from)
        memcpy(copy->to, copy->from, copy->bytes);
    else
        memset(copy->to, 0, copy->bytes);
}

static inline void sl_emulated_begin(void *to, const void *from, uint32_t bytes, bool copies)
{
    if ((uintptr_t)to % bytes != 0 || (uintptr_t)from % bytes != 0)
        sl_shim_fail("cp.async: %u bytes that are not aligned", bytes);
    const sl_emulated_copy copy = {to, copies ? from : NULL, bytes};
    sl_emulated_chance = sl_emulated_chance * 1664525u + 1013904223u;
    if (sl_emulated_chance >> 31) {
        sl_emulated_perform(&copy);
        return;
    }
    if (threadIdx.x >= SL_EMULATED_THREADS ||
        sl_emulated_copy_count[threadIdx.x] == SL_EMULATED_COPIES)
        sl_shim_fail("cp.async: more than %d copies, or thread %u of a block of %d",
                     (int)SL_EMULATED_COPIES, threadIdx.x, (int)SL_EMULATED_THREADS);
    sl_emulated_copies[threadIdx.x][sl_emulated_copy_count[threadIdx.x]++] = copy;
}

static inline void sl_copy_begin(void *shared, const void *from, bool copies)
{
    sl_emulated_begin(shared, from, 16, copies);
}

static inline void sl_copy_begin_float(float *shared, const float *from, bool copies)
{
    sl_emulated_begin(shared, from, sizeof *from, copies);
}

static inline void sl_copy_wait()
{
    uint32_t *count = &sl_emulated_copy_count[threadIdx.x];
    for (uint32_t i = 0; i < *count; i++)
        sl_emulated_perform(&sl_emulated_copies[threadIdx.x][i]);
    *count = 0;
}

/* ---- one thread's ---- */

static inline void sl_store_whole(void *global, uint4 value)
{
    *(uint4 *)global = value;
}

/* Rounded twice: fmaf is a call where the compiler may not count on the instruction. */
static inline float sl_multiply_add(float a, float b, float c)
{
    return a * b + c;
}

static inline float sl_exp2(float x)
{
    const float power = exp2f(x);
    return power < 0x1p-126f ? 0.0f : power;
}

#endif
