/* The computations of collectives, see kernels/ranks.h. All are bound by memory: a thread writes
 * sixteen bytes where sizes and addresses allow that, else one element. SUM loads several terms at
 * a time.
 */
#include "launch.cuh"
#include "typed.cuh"

#include "kernels/rank_stats.h"

enum { THREADS = 256, TERMS_AHEAD = 4, WORDS = 6 };

/* A grid of one thread a unit. */
static sl_status find_grid(uint64_t units, uint32_t *out_grid)
{
    const uint64_t blocks = (units - 1) / THREADS + 1;
    SL_TRY(sl_launch_covers(blocks, "ranks"));
    *out_grid = (uint32_t)blocks;
    return SL_OK;
}

static __device__ __forceinline__ uint64_t find_unit(void)
{
    return (uint64_t)blockIdx.x * THREADS + threadIdx.x;
}

/* Whether every access of sixteen bytes is of a whole, aligned pack. */
static bool is_wide(const void *a, const void *b, const void *c, uint64_t bytes)
{
    const uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)bytes;
    return all % 16 == 0;
}

/* ---- SUM ---- */

typedef struct sum_args {
    const void *terms, *own;
    void *wire, *stored;
    uint64_t count, apart;
    uint32_t term_count, own_index;
} sum_args;

/* This rank's elements as they would have come from it. */
template <sl_type TYPE, sl_type STORED, bool WIDE>
static __device__ __forceinline__ sl_piece<TYPE, WIDE> load_own(const void *own, uint64_t at)
{
    if constexpr (STORED == TYPE) {
        return sl_load_piece<TYPE, WIDE>(own, at);
    } else {
        enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
        sl_piece<TYPE, WIDE> piece;
        sl_load_floats<COUNT>((const float *)own, at, piece.value);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            piece.value[i] = sl_widen<TYPE>(sl_round<TYPE>(piece.value[i]));
        return piece;
    }
}

/* Rounded once: what others get, and what is kept. */
template <sl_type TYPE, sl_type STORED, bool WIDE>
static __device__ __forceinline__ void store_sum(const sum_args &a, uint64_t at,
                                                 sl_piece<TYPE, WIDE> sum)
{
    enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
    if (a.wire)
        sl_store_piece<TYPE, WIDE>(a.wire, at, sum);
    if constexpr (STORED == TYPE) {
        sl_store_piece<TYPE, WIDE>(a.stored, at, sum);
    } else {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            sum.value[i] = sl_widen<TYPE>(sl_round<TYPE>(sum.value[i]));
        sl_store_floats<COUNT>((float *)a.stored, at, sum.value);
    }
}

template <sl_type TYPE, sl_type STORED, bool WIDE>
static __global__ void __launch_bounds__(THREADS) ranks_sum(const sum_args a)
{
    enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
    const uint64_t at = find_unit() * COUNT;
    if (at >= a.count)
        return;
    sl_piece<TYPE, WIDE> sum = {};
    for (uint32_t first = 0; first < a.term_count; first += TERMS_AHEAD) {
        sl_piece<TYPE, WIDE> term[TERMS_AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < TERMS_AHEAD; i++) {
            const uint32_t rank = first + i;
            if (rank == a.own_index)
                term[i] = load_own<TYPE, STORED, WIDE>(a.own, at);
            else if (rank < a.term_count)
                term[i] = sl_load_piece<TYPE, WIDE>(a.terms, rank * a.apart + at);
        }
#pragma unroll
        for (uint32_t i = 0; i < TERMS_AHEAD; i++)
#pragma unroll
            for (int j = 0; j < COUNT; j++)
                if (first + i == 0)
                    sum.value[j] = term[i].value[j];
                else if (first + i < a.term_count)
                    sum.value[j] += term[i].value[j];
    }
    store_sum<TYPE, STORED, WIDE>(a, at, sum);
}

template <sl_type TYPE, sl_type STORED>
static sl_status launch_stored_sum(const sl_kernel_call *call, const sum_args &a)
{
    const uint64_t bytes = sl_type_bytes(TYPE), apart = a.apart * bytes;
    uint32_t grid;
    if (is_wide(a.terms, a.own, a.stored, (uintptr_t)a.wire | apart | a.count * bytes)) {
        SL_TRY(find_grid(a.count / sl_pack<TYPE>::COUNT, &grid));
        return SL_LAUNCH(call, grid, THREADS, 0, (ranks_sum<TYPE, STORED, true>), a);
    }
    SL_TRY(find_grid(a.count, &grid));
    return SL_LAUNCH(call, grid, THREADS, 0, (ranks_sum<TYPE, STORED, false>), a);
}

template <sl_type TYPE> static sl_status launch_sum(const sl_kernel_call *call, const sum_args &a)
{
    if (call->attrs->grad_type == SL_TYPE_FP32)
        return launch_stored_sum<TYPE, SL_TYPE_FP32>(call, a);
    return launch_stored_sum<TYPE, TYPE>(call, a);
}

extern "C" sl_status sl_cuda_ranks_sum(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    sum_args a = {};
    a.terms = call->operand[0];
    a.own = call->operand[1];
    a.wire = call->operand[2];
    a.stored = call->operand[3];
    a.count = attrs->element_count;
    a.apart = attrs->out;
    a.term_count = (uint32_t)attrs->batch;
    a.own_index = attrs->rank_index;
    if (attrs->grad_type != SL_TYPE_FP32 && attrs->grad_type != attrs->type)
        SL_FAIL(SL_ERROR_INTERNAL, "a sum stored as type %u, exchanged as type %u",
                attrs->grad_type, attrs->type);
    return a.count > 0 ? SL_BY_TYPE(attrs->type, launch_sum, call, a) : SL_OK;
}

/* ---- CONVERT ---- */

/* The type of whose elements sixteen bytes are done at a time. */
template <sl_type FROM, sl_type TO> struct narrow_type {
    static const sl_type value = FROM == SL_TYPE_FP32 ? TO : FROM;
};

template <sl_type FROM, sl_type TO, bool ADDS, bool WIDE>
static __global__ void __launch_bounds__(THREADS)
    ranks_convert(const void *__restrict__ x, void *__restrict__ y, uint64_t count)
{
    constexpr sl_type NARROW = narrow_type<FROM, TO>::value;
    enum { COUNT = sl_piece<NARROW, WIDE>::COUNT };
    const uint64_t at = find_unit() * COUNT;
    if (at >= count)
        return;
    sl_piece<NARROW, WIDE> piece;
    if constexpr (FROM == SL_TYPE_FP32)
        sl_load_floats<COUNT>((const float *)x, at, piece.value);
    else
        piece = sl_load_piece<NARROW, WIDE>(x, at);
    if constexpr (ADDS) {
        float sum[COUNT];
        sl_load_floats<COUNT>((const float *)y, at, sum);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            piece.value[i] = sum[i] + piece.value[i];
    }
    if constexpr (TO == SL_TYPE_FP32)
        sl_store_floats<COUNT>((float *)y, at, piece.value);
    else
        sl_store_piece<NARROW, WIDE>(y, at, piece);
}

template <typename UNIT>
static __global__ void __launch_bounds__(THREADS)
    ranks_copy(const UNIT *__restrict__ x, UNIT *__restrict__ y, uint64_t count)
{
    const uint64_t i = find_unit();
    if (i < count)
        y[i] = x[i];
}

static sl_status launch_copy(const sl_kernel_call *call, uint64_t bytes)
{
    const void *x = call->operand[0];
    void *y = call->operand[1];
    uint32_t grid;
    if (is_wide(x, y, NULL, bytes)) {
        SL_TRY(find_grid(bytes / sizeof(uint4), &grid));
        return SL_LAUNCH(call, grid, THREADS, 0, ranks_copy<uint4>, (const uint4 *)x, (uint4 *)y,
                         bytes / sizeof(uint4));
    }
    SL_TRY(find_grid(bytes / sizeof(uint16_t), &grid));
    return SL_LAUNCH(call, grid, THREADS, 0, ranks_copy<uint16_t>, (const uint16_t *)x,
                     (uint16_t *)y, bytes / sizeof(uint16_t));
}

template <sl_type FROM, sl_type TO, bool ADDS>
static sl_status launch_convert(const sl_kernel_call *call)
{
    const uint64_t count = call->attrs->element_count;
    const void *x = call->operand[0];
    void *y = call->operand[1];
    enum { PACK = sl_pack<narrow_type<FROM, TO>::value>::COUNT };
    uint32_t grid;
    if (is_wide(x, y, NULL, count / PACK * 16 + count % PACK)) {
        SL_TRY(find_grid(count / PACK, &grid));
        return SL_LAUNCH(call, grid, THREADS, 0, (ranks_convert<FROM, TO, ADDS, true>), x, y,
                         count);
    }
    SL_TRY(find_grid(count, &grid));
    return SL_LAUNCH(call, grid, THREADS, 0, (ranks_convert<FROM, TO, ADDS, false>), x, y, count);
}

/* Between fp32 and a type of half precision, or a sum. */
template <sl_type TYPE> static sl_status convert_by_type(const sl_kernel_call *call)
{
    if (call->attrs->adds_gradient)
        return launch_convert<TYPE, SL_TYPE_FP32, true>(call);
    if (call->attrs->grad_type == SL_TYPE_FP32)
        return launch_convert<TYPE, SL_TYPE_FP32, false>(call);
    return launch_convert<SL_TYPE_FP32, TYPE, false>(call);
}

extern "C" sl_status sl_cuda_ranks_convert(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const sl_type from = (sl_type)attrs->type, to = (sl_type)attrs->grad_type;
    const bool is_copy = from == to && !attrs->adds_gradient;
    if ((attrs->adds_gradient && to != SL_TYPE_FP32) ||
        (from != to && from != SL_TYPE_FP32 && to != SL_TYPE_FP32))
        SL_FAIL(SL_ERROR_INTERNAL, "type %u converted to type %u", attrs->type, attrs->grad_type);
    if (attrs->element_count == 0)
        return SL_OK;
    if (is_copy)
        return launch_copy(call, attrs->element_count * sl_type_bytes(to));
    const sl_type half = from == SL_TYPE_FP32 ? to : from; /* fp32 where both are */
    return half == SL_TYPE_FP32   ? launch_convert<SL_TYPE_FP32, SL_TYPE_FP32, true>(call)
           : half == SL_TYPE_BF16 ? convert_by_type<SL_TYPE_BF16>(call)
                                  : convert_by_type<SL_TYPE_FP16>(call);
}

/* ---- STATS ---- */

static __global__ void __launch_bounds__(THREADS)
    ranks_stats(const float *__restrict__ parts, float *__restrict__ stats, uint64_t row_count,
                uint64_t rank_count)
{
    const uint64_t row = find_unit();
    if (row < row_count)
        sl_rank_combine_stats(parts + row * SL_RANK_STATS_A_ROW, row_count * SL_RANK_STATS_A_ROW,
                              rank_count, stats + row * SL_RANK_STATS_A_ROW);
}

extern "C" sl_status sl_cuda_ranks_stats(const sl_kernel_call *call)
{
    const uint64_t row_count = call->attrs->row_count;
    uint32_t grid;
    if (row_count == 0)
        return SL_OK;
    SL_TRY(find_grid(row_count, &grid));
    return SL_LAUNCH(call, grid, THREADS, 0, ranks_stats, (const float *)call->operand[0],
                     (float *)call->operand[1], row_count, (uint64_t)call->attrs->batch);
}

/* ---- norms: one thread, for a record a rank ---- */

static __global__ void ranks_norm_prepare(sl_norm_sum *norm, const uint32_t *loss,
                                          const double *counted, uint32_t flags, bool keeps_flags)
{
    if (threadIdx.x != 0)
        return;
    if (!keeps_flags)
        norm->flags = flags;
    for (int word = 0; loss && word < 2; word++)
        norm->reserved[word] = loss[word];
    if (counted)
        norm->counted = (uint32_t)*counted;
}

extern "C" sl_status sl_cuda_ranks_norm_prepare(const sl_kernel_call *call)
{
    return SL_LAUNCH(call, 1, SL_WARP, 0, ranks_norm_prepare, (sl_norm_sum *)call->operand[0],
                     (const uint32_t *)call->operand[1], (const double *)call->operand[2],
                     call->scalars.flags, call->attrs->adds_output != 0);
}

/* sum += part, as sl_norm_sum_merge. */
static __device__ __forceinline__ void merge_norm(sl_norm_sum *sum, const sl_norm_sum *part)
{
    bool carry = false;
#pragma unroll
    for (int word = 0; word < WORDS; word++) {
        const uint64_t before = sum->word[word], both = before + part->word[word];
        sum->word[word] = both + carry;
        carry = both < before || sum->word[word] < both;
    }
    sum->nonfinite |= part->nonfinite | carry;
    sum->flags |= part->flags;
}

static __global__ void ranks_norm_merge(const sl_norm_sum *__restrict__ parts,
                                        sl_norm_sum *__restrict__ norm, double *loss,
                                        double *counted, uint64_t rank_count)
{
    sl_norm_sum sum = {};
    double loss_sum = 0.0, row_sum = 0.0;
    if (threadIdx.x != 0)
        return;
    for (uint64_t rank = 0; rank < rank_count; rank++) {
        merge_norm(&sum, &parts[rank]);
        const uint64_t loss_bits =
            (uint64_t)parts[rank].reserved[1] << 32 | parts[rank].reserved[0];
        loss_sum += __longlong_as_double((long long)loss_bits);
        row_sum += (double)parts[rank].counted;
    }
    *norm = sum;
    if (loss)
        *loss = loss_sum;
    if (counted)
        *counted = row_sum;
}

extern "C" sl_status sl_cuda_ranks_norm_merge(const sl_kernel_call *call)
{
    return SL_LAUNCH(call, 1, SL_WARP, 0, ranks_norm_merge, (const sl_norm_sum *)call->operand[0],
                     (sl_norm_sum *)call->operand[1], (double *)call->operand[2],
                     (double *)call->operand[3], (uint64_t)call->attrs->batch);
}

/* ---- columns ---- */

/* Of both ops, in units: x has [row_count, in], parts [rank_count][row_count, out]. */
typedef struct column_args {
    const void *from;
    void *to;
    uint64_t count; /* units that are written */
    uint64_t in, out, row_count;
    uint64_t first_rank;
} column_args;

template <typename UNIT>
static __global__ void __launch_bounds__(THREADS) ranks_pack_columns(const column_args a)
{
    const uint64_t unit = find_unit();
    if (unit >= a.count)
        return;
    const uint64_t part_row = unit / a.out, rank = a.first_rank + part_row / a.row_count;
    const uint64_t column = rank * a.out + unit % a.out, row = part_row % a.row_count;
    UNIT value = {};
    if (column < a.in)
        value = ((const UNIT *)a.from)[row * a.in + column];
    ((UNIT *)a.to)[unit] = value;
}

template <typename UNIT>
static __global__ void __launch_bounds__(THREADS) ranks_join_columns(const column_args a)
{
    const uint64_t unit = find_unit();
    if (unit >= a.count)
        return;
    const uint64_t row = unit / a.in, column = unit % a.in, rank = column / a.out;
    ((UNIT *)a.to)[unit] =
        ((const UNIT *)a.from)[(rank * a.row_count + row) * a.out + column % a.out];
}

template <typename UNIT> static sl_status launch_columns(const sl_kernel_call *call, bool packs)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t element = sl_type_bytes((sl_type)attrs->type);
    column_args a = {};
    a.from = call->operand[0];
    a.to = call->operand[1];
    a.in = attrs->in * element / sizeof(UNIT);
    a.out = attrs->out * element / sizeof(UNIT);
    a.row_count = attrs->row_count;
    a.first_rank = attrs->rank_index;
    a.count = packs ? attrs->batch * a.row_count * a.out : a.row_count * a.in;
    uint32_t grid;
    if (a.count == 0)
        return SL_OK;
    SL_TRY(find_grid(a.count, &grid));
    return packs ? SL_LAUNCH(call, grid, THREADS, 0, ranks_pack_columns<UNIT>, a)
                 : SL_LAUNCH(call, grid, THREADS, 0, ranks_join_columns<UNIT>, a);
}

/* The widest unit of which rows, of all columns and of one rank's, are whole numbers. */
static sl_status move_columns(const sl_kernel_call *call, bool packs)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t element = sl_type_bytes((sl_type)attrs->type);
    if (is_wide(call->operand[0], call->operand[1], NULL, (attrs->in | attrs->out) * element))
        return launch_columns<uint4>(call, packs);
    return element == sizeof(float) ? launch_columns<uint32_t>(call, packs)
                                    : launch_columns<uint16_t>(call, packs);
}

extern "C" sl_status sl_cuda_ranks_pack_columns(const sl_kernel_call *call)
{
    return move_columns(call, true);
}

extern "C" sl_status sl_cuda_ranks_join_columns(const sl_kernel_call *call)
{
    return move_columns(call, false);
}
