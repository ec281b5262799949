/* Rotary positions (Su et al. 2021): of each head the pairs x[i], x[i + half] are turned by the
 * angles of the token's position. A thread turns the same piece of both halves of HEADS heads of a
 * token, and reads its cosines and sines once for all of them; neighbours have neighbouring pieces.
 *
 * Rounds as the cpu's kernel does, two products and their sum: the same bits.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                                     sm_80                sm_90
 *   rotary_heads<bf16, false>     32    192     44     32    208     44
 *   rotary_heads<bf16, true>     108    464    324    108    480    324
 */
#include "launch.cuh"
#include "typed.cuh"

enum { THREADS = 256, HEADS = 4 };

typedef struct rotary_args {
    const void *x;
    const float *table;       /* [positions, 2, half]: cosines, sines */
    const int32_t *positions; /* of each token; NULL: from first_position on in each row */
    void *y;
    uint32_t token_count, seq, first_position;
    uint32_t last_position; /* of the table, read for positions that the table does not have */
    uint32_t heads, half;   /* half: features of half a head */
    float sign;             /* of the sines */
} rotary_args;

/* The token's row of the table. */
static __device__ __forceinline__ const float *find_angles(const rotary_args &args, uint32_t token)
{
    const uint32_t given = args.positions != NULL ? (uint32_t)args.positions[token]
                                                  : args.first_position + token % args.seq;
    const uint64_t position = given < args.last_position ? given : args.last_position;
    return args.table + position * 2 * args.half;
}

template <sl_type TYPE, bool WIDE> struct turned_piece {
    sl_piece<TYPE, WIDE> low, high;
};

template <sl_type TYPE, bool WIDE>
static __device__ __forceinline__ void turn_piece(
    turned_piece<TYPE, WIDE> &piece, const float (&cosine)[sl_piece<TYPE, WIDE>::COUNT],
    const float (&sine)[sl_piece<TYPE, WIDE>::COUNT])
{
#pragma unroll
    for (int i = 0; i < sl_piece<TYPE, WIDE>::COUNT; i++) {
        const float low = piece.low.value[i], high = piece.high.value[i];
        piece.low.value[i] = low * cosine[i] - high * sine[i];
        piece.high.value[i] = high * cosine[i] + low * sine[i];
    }
}

/* Blocks (., head / HEADS). WIDE: pieces are packs. */
template <sl_type TYPE, bool WIDE>
static __global__ void __launch_bounds__(THREADS) rotary_heads(rotary_args args)
{
    enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
    const uint32_t pieces = args.half / COUNT, thread = blockIdx.x * THREADS + threadIdx.x;
    const uint32_t token = thread / pieces, column = thread % pieces * COUNT;
    const uint32_t first_head = blockIdx.y * HEADS;
    if (token >= args.token_count)
        return;
    const float *angles = find_angles(args, token) + column;
    const uint64_t first = ((uint64_t)token * args.heads + first_head) * 2 * args.half + column;
    float cosine[COUNT], sine[COUNT];
    turned_piece<TYPE, WIDE> piece[HEADS];
#pragma unroll
    for (uint32_t i = 0; i < HEADS; i++)
        if (first_head + i < args.heads) {
            const uint64_t at = first + i * 2 * args.half;
            piece[i].low = sl_load_piece<TYPE, WIDE>(args.x, at);
            piece[i].high = sl_load_piece<TYPE, WIDE>(args.x, at + args.half);
        }
    sl_load_floats(angles, 0, cosine);
    sl_load_floats(angles, args.half, sine);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sine[i] *= args.sign;
#pragma unroll
    for (uint32_t i = 0; i < HEADS; i++)
        if (first_head + i < args.heads) {
            const uint64_t at = first + i * 2 * args.half;
            turn_piece<TYPE, WIDE>(piece[i], cosine, sine);
            sl_store_piece<TYPE, WIDE>(args.y, at, piece[i].low);
            sl_store_piece<TYPE, WIDE>(args.y, at + args.half, piece[i].high);
        }
}

template <sl_type TYPE> static sl_status launch(const sl_kernel_call *call, const rotary_args *args)
{
    const rotary_args copy = *args;
    const bool is_wide = args->half % sl_pack<TYPE>::COUNT == 0;
    const uint64_t pieces = args->half / (is_wide ? sl_pack<TYPE>::COUNT : 1);
    const uint64_t threads = args->token_count * pieces;
    const uint64_t head_sets = sl_bits_divide_up(args->heads, HEADS);
    if (threads > INT32_MAX || head_sets > SL_GRID_SIDE_MOST) /* which are counted in 32 bits */
        SL_FAIL(SL_ERROR_INTERNAL, "rotary of %u tokens and %u heads of %u", args->token_count,
                args->heads, 2 * args->half);
    const dim3 grid((uint32_t)sl_bits_divide_up(threads, THREADS), (uint32_t)head_sets);
    return is_wide ? SL_LAUNCH(call, grid, THREADS, 0, (rotary_heads<TYPE, true>), copy)
                   : SL_LAUNCH(call, grid, THREADS, 0, (rotary_heads<TYPE, false>), copy);
}

static sl_status check(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t position = call->scalars.position;
    if (attrs->out == 0 || attrs->out % 2 != 0 || attrs->in != attrs->heads * attrs->out ||
        attrs->in > INT32_MAX || attrs->batch * attrs->seq > INT32_MAX)
        SL_FAIL(SL_ERROR_INTERNAL, "rotary of %llu features over %llu heads of %llu",
                (unsigned long long)attrs->in, (unsigned long long)attrs->heads,
                (unsigned long long)attrs->out);
    if (attrs->cache_rows == 0 || attrs->cache_rows > INT32_MAX || position > attrs->cache_rows ||
        attrs->seq > attrs->cache_rows - position)
        SL_FAIL(SL_ERROR_INTERNAL, "%llu tokens from position %llu on: a table of %llu",
                (unsigned long long)attrs->seq, (unsigned long long)position,
                (unsigned long long)attrs->cache_rows);
    return SL_OK;
}

extern "C" sl_status sl_cuda_rotary(const sl_kernel_call *call)
{
    enum { X, TABLE, Y, POSITIONS };
    const sl_op_attrs *attrs = call->attrs;
    SL_TRY(check(call));
    const rotary_args args = {call->operand[X],
                              (const float *)call->operand[TABLE],
                              (const int32_t *)call->operand[POSITIONS],
                              call->operand[Y],
                              (uint32_t)(attrs->batch * attrs->seq),
                              (uint32_t)attrs->seq,
                              call->scalars.position,
                              (uint32_t)(attrs->cache_rows - 1),
                              (uint32_t)attrs->heads,
                              (uint32_t)(attrs->out / 2),
                              attrs->negates ? -1.0f : 1.0f};
    return SL_BY_TYPE(attrs->type, launch, call, &args);
}
