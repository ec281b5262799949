/* A chunk is as many rows as a block has threads, and there are as many digits. Each pass counts
 * the digits of every chunk, turns the counts of a digit into where its chunks begin, and moves
 * rows: a row's place among those of its chunk and digit is how many stand before it. Moves, for
 * each pass, 8 bytes a row and 12 for the tokens read in between; the gradients themselves are
 * hundreds of times as long.
 */
#include "launch.cuh"

extern "C" {
#include "token_order.h"
}

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS, THREADS = DIGITS };

typedef struct sort_pass {
    const int32_t *tokens;
    const uint32_t *rows_in; /* NULL in the first pass: row i is row i */
    uint32_t *rows_out;
    uint32_t *starts;       /* [DIGITS, chunk_count]: counts, then where a chunk's rows begin */
    uint32_t *digit_counts; /* [DIGITS] */
    uint64_t chunk_count;
    uint32_t row_count;
    int64_t first_id;
    uint32_t id_count;
    uint32_t shift;
} sort_pass;

/* The id's row of the panel; id_count for any other token. */
static __device__ __forceinline__ uint32_t find_key(const sort_pass &pass, uint32_t row)
{
    const int64_t id = (int64_t)pass.tokens[row] - pass.first_id;
    return id >= 0 && id < (int64_t)pass.id_count ? (uint32_t)id : pass.id_count;
}

static __device__ __forceinline__ uint32_t take_row(const sort_pass &pass, uint64_t place)
{
    return pass.rows_in ? pass.rows_in[place] : (uint32_t)place;
}

static __device__ __forceinline__ uint32_t find_digit(const sort_pass &pass, uint32_t row)
{
    return find_key(pass, row) >> pass.shift & (DIGITS - 1);
}

/* The sum of the values of the lanes up to this one. */
static __device__ __forceinline__ uint32_t scan_warp(uint32_t value)
{
    const uint32_t lane = threadIdx.x % SL_WARP;
#pragma unroll
    for (uint32_t distance = 1; distance < SL_WARP; distance *= 2) {
        const uint32_t other = __shfl_up_sync(SL_EVERY_LANE, value, distance);
        value += lane >= distance ? other : 0;
    }
    return value;
}

/* The sum of the values of the threads before this one; once a kernel. */
static __device__ uint32_t scan_block(uint32_t value)
{
    __shared__ uint32_t warp_sums[THREADS / SL_WARP];
    const uint32_t warp = threadIdx.x / SL_WARP;
    uint32_t sum = scan_warp(value) - value;
    if (threadIdx.x % SL_WARP == SL_WARP - 1)
        warp_sums[warp] = sum + value;
    __syncthreads();
    for (uint32_t i = 0; i < warp; i++)
        sum += warp_sums[i];
    return sum;
}

static __global__ void __launch_bounds__(THREADS) token_order_count(sort_pass pass)
{
    __shared__ uint32_t counts[DIGITS];
    const uint64_t place = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    counts[threadIdx.x] = 0;
    __syncthreads();
    if (place < pass.row_count)
        atomicAdd(&counts[find_digit(pass, take_row(pass, place))], 1u);
    __syncthreads();
    pass.starts[threadIdx.x * pass.chunk_count + blockIdx.x] = counts[threadIdx.x];
}

/* A warp turns the counts of its digit into sums over the chunks before. */
static __global__ void __launch_bounds__(THREADS) token_order_scan(sort_pass pass)
{
    const uint32_t digit = (blockIdx.x * THREADS + threadIdx.x) / SL_WARP;
    const uint32_t lane = threadIdx.x % SL_WARP;
    uint32_t *starts = pass.starts + digit * pass.chunk_count, before = 0;
    for (uint64_t first = 0; first < pass.chunk_count; first += SL_WARP) {
        const bool has_chunk = first + lane < pass.chunk_count;
        const uint32_t count = has_chunk ? starts[first + lane] : 0, sum = scan_warp(count);
        if (has_chunk)
            starts[first + lane] = before + sum - count;
        before += __shfl_sync(SL_EVERY_LANE, sum, SL_WARP - 1);
    }
    if (lane == 0)
        pass.digit_counts[digit] = before;
}

static __global__ void __launch_bounds__(THREADS) token_order_move(sort_pass pass)
{
    __shared__ uint32_t digits[THREADS], digit_starts[DIGITS];
    const uint64_t place = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    const bool has_row = place < pass.row_count;
    const uint32_t row = has_row ? take_row(pass, place) : 0;
    const uint32_t digit = has_row ? find_digit(pass, row) : 0;
    uint32_t rank = 0;
    digits[threadIdx.x] = digit;
    digit_starts[threadIdx.x] = scan_block(pass.digit_counts[threadIdx.x]);
    __syncthreads();
    for (uint32_t i = 0; i < THREADS; i++)
        rank += i < threadIdx.x && digits[i] == digit;
    if (has_row)
        pass.rows_out[digit_starts[digit] + pass.starts[digit * pass.chunk_count + blockIdx.x] +
                      rank] = row;
}

/* The first place whose key is `id` or larger, for every id and the one past the last. */
static __global__ void __launch_bounds__(THREADS)
    token_order_bounds(sort_pass pass, uint32_t *bounds)
{
    const uint64_t id = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    uint32_t first = 0, count = pass.row_count;
    if (id > pass.id_count)
        return;
    while (count > 0) {
        const uint32_t half = count / 2;
        const bool is_before = find_key(pass, pass.rows_in[first + half]) < id;
        first = is_before ? first + half + 1 : first;
        count = is_before ? count - half - 1 : half;
    }
    bounds[id] = first;
}

static uint64_t align(uint64_t bytes)
{
    return sl_bits_round_up(bytes, 256);
}

static uint64_t count_chunks(const sl_op_attrs *attrs)
{
    return sl_bits_divide_up(attrs->batch * attrs->seq, THREADS);
}

/* rows twice, starts, digit_counts, bounds */
uint64_t sl_token_order_bytes(const sl_op_attrs *attrs)
{
    const uint64_t word = sizeof(uint32_t);
    return 2 * align(attrs->batch * attrs->seq * word) +
           align(count_chunks(attrs) * DIGITS * word) + align(DIGITS * word) +
           align((attrs->id_count + 1) * word);
}

/* Takes the next `words` from a workspace. */
static uint32_t *take_words(char **workspace, uint64_t words)
{
    uint32_t *taken = (uint32_t *)*workspace;
    *workspace += align(words * sizeof(uint32_t));
    return taken;
}

static sl_status sort_digit(const sl_kernel_call *call, const sort_pass *all)
{
    const sort_pass pass = *all;
    const uint32_t chunk_count = (uint32_t)pass.chunk_count;
    SL_TRY(SL_LAUNCH(call, chunk_count, THREADS, 0, token_order_count, pass));
    SL_TRY(SL_LAUNCH(call, DIGITS / (THREADS / SL_WARP), THREADS, 0, token_order_scan, pass));
    return SL_LAUNCH(call, chunk_count, THREADS, 0, token_order_move, pass);
}

sl_status sl_token_order_make(const sl_kernel_call *call, const int32_t *tokens, void *workspace,
                              sl_token_order *out_order)
{
    const sl_op_attrs *attrs = call->attrs;
    const uint64_t row_count = attrs->batch * attrs->seq;
    if (row_count == 0 || row_count > SL_GRID_MOST || attrs->id_count >= SL_GRID_MOST)
        SL_FAIL(SL_ERROR_INTERNAL, "tokens are not ordered for %llu rows and %llu ids",
                (unsigned long long)row_count, (unsigned long long)attrs->id_count);
    char *left = (char *)workspace;
    uint32_t *rows[2] = {take_words(&left, row_count), take_words(&left, row_count)};
    sort_pass pass = {};
    pass.tokens = tokens;
    pass.chunk_count = count_chunks(attrs);
    pass.starts = take_words(&left, pass.chunk_count * DIGITS);
    pass.digit_counts = take_words(&left, DIGITS);
    pass.row_count = (uint32_t)row_count;
    pass.first_id = (int64_t)attrs->first_id;
    pass.id_count = (uint32_t)attrs->id_count;
    uint32_t *bounds = take_words(&left, attrs->id_count + 1);
    uint32_t turn = 0; /* keys are up to id_count */
    for (; turn == 0 || attrs->id_count >> pass.shift > 0; pass.shift += DIGIT_BITS, turn++) {
        pass.rows_out = rows[turn % 2];
        SL_TRY(sort_digit(call, &pass));
        pass.rows_in = pass.rows_out;
    }
    const uint32_t grid = (uint32_t)sl_bits_divide_up(attrs->id_count + 1, THREADS);
    SL_TRY(SL_LAUNCH(call, grid, THREADS, 0, token_order_bounds, pass, bounds));
    *out_order = (sl_token_order){pass.rows_in, bounds};
    return SL_OK;
}
