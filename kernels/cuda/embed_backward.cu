/* The gradient of token embeddings. Rows are sorted by token first; then a warp has one id and a
 * few columns and sums the id's rows in their order, so no two threads write one number. The sum is
 * added to the panel once.
 *
 * If an id has many rows, each SEGMENT of them is first summed on its own into the workspace; the
 * warp of the id then adds these sums and the remaining rows. The address of a segment's sum
 * follows from the segment's start, because no two segments start within SEGMENT places of each
 * other. So even a very frequent token costs little more than reading its rows.
 *
 * Reads each used row of dx once, and the panel's rows once if it adds to them; 4 bytes a column
 * for every segment are written and read in addition.
 *
 * As compiled by nvcc 13.0.88 (scripts/check_sass): registers, instructions and bytes of a pass.
 *
 *                                                       sm_80                sm_90
 *   embed_tokens_backward_ids<bf16, false>          40     86     48     40     84     48
 *   embed_tokens_backward_ids<bf16, true>           64    126    256     64    124    256
 *   embed_tokens_backward_segments<bf16, false>     32     84     48     32     85     48
 *   embed_tokens_backward_segments<bf16, true>      54    196    160     52    197    160
 *   token_order_bounds                              17     20      8     20     19      8
 *   token_order_count                               12     41     12     12     51     12
 *   token_order_few                                 25     22     16     27     23     16
 *   token_order_move                                30    182     20     32    198     20
 *   token_order_scan                                17     39      8     22    122     32
 */
#include "typed.cuh"

/* ---- the order
 *
 * The rows of a batch, ordered by token: those of each id of a panel stand together, in row order.
 * Made by a counting sort of row indices (least digit first, Knuth 1973, 5.2.5), every step of
 * which is stable, so it depends on the tokens alone.
 *
 * A tile is as many rows as a block has threads, and there are as many digits. Each pass counts the
 * digits of every tile, turns the counts of a digit into where its tiles begin, and moves rows: a
 * row's place among those of its tile and digit is how many stand before it. Moves, for each pass,
 * 8 bytes a row and 12 for the tokens read in between; the gradients themselves are hundreds of
 * times as long. */

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS, SORT_THREADS = DIGITS };

typedef struct token_order {
    /* [batch * seq]: rows of the panel's tokens, id after id */
    const uint32_t *rows;
    /* [id_count + 1]: the rows of id i stand at bounds[i] up to bounds[i + 1] */
    const uint32_t *bounds;
} token_order;

typedef struct sort_pass {
    const int32_t *tokens;
    const uint32_t *rows_in; /* NULL in the first pass: row i is row i */
    uint32_t *rows_out;
    uint32_t *starts;       /* [DIGITS, tile_count]: counts, then where a tile's rows begin */
    uint32_t *digit_counts; /* [DIGITS] */
    uint64_t tile_count;
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
    __shared__ uint32_t warp_sums[SORT_THREADS / SL_WARP];
    const uint32_t warp = threadIdx.x / SL_WARP;
    uint32_t sum = scan_warp(value) - value;
    if (threadIdx.x % SL_WARP == SL_WARP - 1)
        warp_sums[warp] = sum + value;
    __syncthreads();
    for (uint32_t i = 0; i < warp; i++)
        sum += warp_sums[i];
    return sum;
}

static __global__ void __launch_bounds__(SORT_THREADS) token_order_count(sort_pass pass)
{
    __shared__ uint32_t counts[DIGITS];
    const uint64_t place = (uint64_t)blockIdx.x * SORT_THREADS + threadIdx.x;
    counts[threadIdx.x] = 0;
    __syncthreads();
    if (place < pass.row_count)
        atomicAdd(&counts[find_digit(pass, take_row(pass, place))], 1u);
    __syncthreads();
    pass.starts[threadIdx.x * pass.tile_count + blockIdx.x] = counts[threadIdx.x];
}

/* A warp turns the counts of its digit into sums over the tiles before. */
static __global__ void __launch_bounds__(SORT_THREADS) token_order_scan(sort_pass pass)
{
    const uint32_t digit = (blockIdx.x * SORT_THREADS + threadIdx.x) / SL_WARP;
    const uint32_t lane = threadIdx.x % SL_WARP;
    uint32_t *starts = pass.starts + digit * pass.tile_count, before = 0;
    for (uint64_t first = 0; first < pass.tile_count; first += SL_WARP) {
        const bool has_tile = first + lane < pass.tile_count;
        const uint32_t count = has_tile ? starts[first + lane] : 0, sum = scan_warp(count);
        if (has_tile)
            starts[first + lane] = before + sum - count;
        before += __shfl_sync(SL_EVERY_LANE, sum, SL_WARP - 1);
    }
    if (lane == 0)
        pass.digit_counts[digit] = before;
}

static __global__ void __launch_bounds__(SORT_THREADS) token_order_move(sort_pass pass)
{
    __shared__ uint32_t digits[SORT_THREADS], digit_starts[DIGITS];
    const uint64_t place = (uint64_t)blockIdx.x * SORT_THREADS + threadIdx.x;
    const bool has_row = place < pass.row_count;
    const uint32_t row = has_row ? take_row(pass, place) : 0;
    const uint32_t digit = has_row ? find_digit(pass, row) : 0;
    uint32_t rows_before = 0;
    digits[threadIdx.x] = digit;
    digit_starts[threadIdx.x] = scan_block(pass.digit_counts[threadIdx.x]);
    __syncthreads();
    for (uint32_t i = 0; i < SORT_THREADS; i++)
        rows_before += i < threadIdx.x && digits[i] == digit;
    if (has_row)
        pass.rows_out[digit_starts[digit] + pass.starts[digit * pass.tile_count + blockIdx.x] +
                      rows_before] = row;
}

/* The first place whose key is `id` or larger, for every id and the one past the last. */
static __global__ void __launch_bounds__(SORT_THREADS)
    token_order_bounds(sort_pass pass, uint32_t *bounds)
{
    const uint64_t id = (uint64_t)blockIdx.x * SORT_THREADS + threadIdx.x;
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

/* The same order and bounds by one block, of few rows and ids of more than one digit: the panel's
 * rows are put into one word each, id before row, and sorted (Batcher 1968, bitonic); rows of other
 * tokens are left out. */
enum { FEW_ROWS = 8192, FEW_ROW_BITS = 13, FEW_IDS = 1 << (32 - FEW_ROW_BITS), FEW_THREADS = 1024 };

static __device__ __forceinline__ void sort_words(uint32_t *words, uint32_t count)
{
    for (uint32_t size = 2; size <= count; size *= 2)
        for (uint32_t distance = size / 2; distance > 0; distance /= 2) {
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < count / 2; i += FEW_THREADS) {
                const uint32_t low = 2 * i - i % distance, high = low + distance;
                const uint32_t a = words[low], b = words[high];
                const bool ascends = (low & size) == 0;
                if ((a > b) == ascends && a != b) {
                    words[low] = b;
                    words[high] = a;
                }
            }
        }
    __syncthreads();
}

static __global__ void __launch_bounds__(FEW_THREADS)
    token_order_few(sort_pass pass, uint32_t *bounds)
{
    __shared__ uint32_t words[FEW_ROWS], found;
    if (threadIdx.x == 0)
        found = 0;
    __syncthreads();
    for (uint32_t row = threadIdx.x; row < pass.row_count; row += FEW_THREADS) {
        const uint32_t key = find_key(pass, row);
        if (key < pass.id_count)
            words[atomicAdd(&found, 1u)] = key << FEW_ROW_BITS | row;
    }
    __syncthreads();
    const uint32_t row_count = found;
    uint32_t count = 1;
    while (count < row_count)
        count *= 2;
    for (uint32_t i = row_count + threadIdx.x; i < count; i += FEW_THREADS)
        words[i] = UINT32_MAX;
    sort_words(words, count);
    for (uint32_t i = threadIdx.x; i < row_count; i += FEW_THREADS)
        pass.rows_out[i] = words[i] & (FEW_ROWS - 1);
    for (uint32_t id = threadIdx.x; id <= pass.id_count; id += FEW_THREADS) {
        uint32_t first = 0, left = row_count;
        while (left > 0) {
            const uint32_t half = left / 2;
            const bool is_before = words[first + half] >> FEW_ROW_BITS < id;
            first = is_before ? first + half + 1 : first;
            left = is_before ? left - half - 1 : half;
        }
        bounds[id] = first;
    }
}

static uint64_t align(uint64_t bytes)
{
    return sl_bits_round_up(bytes, 256);
}

static uint64_t count_row_tiles(const sl_op_attrs *attrs)
{
    return sl_bits_divide_up(attrs->batch * attrs->seq, SORT_THREADS);
}

/* What order_by_token needs, a multiple of 256: rows twice, starts, digit_counts, bounds. */
static uint64_t token_order_bytes(const sl_op_attrs *attrs)
{
    const uint64_t word = sizeof(uint32_t);
    return 2 * align(attrs->batch * attrs->seq * word) +
           align(count_row_tiles(attrs) * DIGITS * word) + align(DIGITS * word) +
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
    const uint32_t tile_count = (uint32_t)pass.tile_count;
    SL_TRY(SL_LAUNCH(call, tile_count, SORT_THREADS, 0, token_order_count, pass));
    SL_TRY(SL_LAUNCH(call, DIGITS / (SORT_THREADS / SL_WARP), SORT_THREADS, 0, token_order_scan,
                     pass));
    return SL_LAUNCH(call, tile_count, SORT_THREADS, 0, token_order_move, pass);
}

/* Queues the making of *out_order, which lies in `workspace`; tokens is int32 [batch * seq] on the
 * device. */
static sl_status order_by_token(const sl_kernel_call *call, const int32_t *tokens, void *workspace,
                                token_order *out_order)
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
    pass.tile_count = count_row_tiles(attrs);
    pass.starts = take_words(&left, pass.tile_count * DIGITS);
    pass.digit_counts = take_words(&left, DIGITS);
    pass.row_count = (uint32_t)row_count;
    pass.first_id = (int64_t)attrs->first_id;
    pass.id_count = (uint32_t)attrs->id_count;
    uint32_t *bounds = take_words(&left, attrs->id_count + 1);
    if (row_count <= FEW_ROWS && attrs->id_count >= DIGITS && attrs->id_count < FEW_IDS) {
        pass.rows_out = rows[0];
        *out_order = (token_order){pass.rows_out, bounds};
        return SL_LAUNCH(call, 1, FEW_THREADS, 0, token_order_few, pass, bounds);
    }
    uint32_t turn = 0; /* keys are up to id_count */
    for (; turn == 0 || attrs->id_count >> pass.shift > 0; pass.shift += DIGIT_BITS, turn++) {
        pass.rows_out = rows[turn % 2];
        SL_TRY(sort_digit(call, &pass));
        pass.rows_in = pass.rows_out;
    }
    const uint32_t grid = (uint32_t)sl_bits_divide_up(attrs->id_count + 1, SORT_THREADS);
    SL_TRY(SL_LAUNCH(call, grid, SORT_THREADS, 0, token_order_bounds, pass, bounds));
    *out_order = (token_order){pass.rows_in, bounds};
    return SL_OK;
}

/* ---- the sums */

enum { THREADS = 256, SEGMENT_THREADS = 128, SEGMENT = 64, FREQUENT = 2 * SEGMENT, BATCH_ROWS = 8 };

typedef struct token_gradient {
    const int32_t *tokens;
    const void *dx;      /* [row_count, width] */
    float *dpanel;       /* [id_count, width] */
    float *segment_sums; /* [segment_count, width] */
    token_order order;
    uint64_t width, id_count;
    int64_t first_id;
    bool accumulate;
} token_gradient;

static uint64_t count_segments(const sl_op_attrs *attrs)
{
    return attrs->batch * attrs->seq / SEGMENT;
}

extern "C" uint64_t sl_cuda_embed_tokens_backward_workspace_bytes(sl_op_kind,
                                                                  const sl_op_attrs *attrs,
                                                                  uint32_t)
{
    return token_order_bytes(attrs) + count_segments(attrs) * attrs->in * sizeof(float);
}

/* Adds BATCH rows at once, so that as many loads are on their way. */
template <sl_type TYPE, bool WIDE, int BATCH>
static __device__ __forceinline__ void add_batch(const token_gradient &g, uint32_t first,
                                                 uint64_t column,
                                                 float (&sum)[sl_piece<TYPE, WIDE>::COUNT])
{
    sl_piece<TYPE, WIDE> piece[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++)
        piece[i] =
            sl_load_piece<TYPE, WIDE>(g.dx, (uint64_t)g.order.rows[first + i] * g.width + column);
#pragma unroll
    for (int i = 0; i < BATCH; i++)
#pragma unroll
        for (int j = 0; j < sl_piece<TYPE, WIDE>::COUNT; j++)
            sum[j] += piece[i].value[j];
}

/* Adds the rows at places [first, end) of the order, in that order. */
template <sl_type TYPE, bool WIDE>
static __device__ __forceinline__ void add_rows(const token_gradient &g, uint32_t first,
                                                uint32_t end, uint64_t column,
                                                float (&sum)[sl_piece<TYPE, WIDE>::COUNT])
{
    for (; first + BATCH_ROWS <= end; first += BATCH_ROWS)
        add_batch<TYPE, WIDE, BATCH_ROWS>(g, first, column, sum);
    for (; first < end; first++)
        add_batch<TYPE, WIDE, 1>(g, first, column, sum);
}

/* The segment that begins at places [slot * SEGMENT, (slot + 1) * SEGMENT), if one does: it would
 * cover the last of them. */
static __device__ __forceinline__ bool find_segment(const token_gradient &g, uint32_t slot,
                                                    uint32_t *out_first)
{
    const uint32_t slot_first = slot * SEGMENT, last = slot_first + SEGMENT - 1;
    if (last >= g.order.bounds[g.id_count])
        return false;
    const int64_t id = (int64_t)g.tokens[g.order.rows[last]] - g.first_id;
    const uint32_t begin = g.order.bounds[id], end = g.order.bounds[id + 1];
    const uint32_t skipped =
        begin < slot_first ? (slot_first - begin + SEGMENT - 1) / SEGMENT * SEGMENT : 0;
    *out_first = begin + skipped;
    return end - begin >= FREQUENT && *out_first <= last && *out_first + SEGMENT <= end;
}

template <sl_type TYPE, bool WIDE>
static __global__ void __launch_bounds__(SEGMENT_THREADS, 8)
    embed_tokens_backward_segments(token_gradient g)
{
    enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
    uint32_t first;
    if (!find_segment(g, blockIdx.x, &first))
        return;
    uint64_t column = ((uint64_t)blockIdx.y * SEGMENT_THREADS + threadIdx.x) * COUNT;
    for (; column < g.width; column += (uint64_t)gridDim.y * SEGMENT_THREADS * COUNT) {
        float sum[COUNT] = {};
#pragma unroll 1
        for (uint32_t row = 0; row < SEGMENT; row += BATCH_ROWS)
            add_batch<TYPE, WIDE, BATCH_ROWS>(g, first + row, column, sum);
        sl_store_floats(g.segment_sums, blockIdx.x * g.width + column, sum);
    }
}

template <sl_type TYPE, bool WIDE>
static __device__ __forceinline__ void add_id(const token_gradient &g, uint64_t id, uint32_t first,
                                              uint32_t end, uint64_t column)
{
    enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
    const uint64_t at = id * g.width + column;
    float sum[COUNT] = {}, old[COUNT] = {};
    const uint32_t segments = end - first >= FREQUENT ? (end - first) / SEGMENT : 0;
#pragma unroll 8
    for (uint32_t s = 0; s < segments; s++) {
        float more[COUNT];
        sl_load_floats(g.segment_sums, (first / SEGMENT + s) * g.width + column, more);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            sum[i] += more[i];
    }
    add_rows<TYPE, WIDE>(g, first + segments * SEGMENT, end, column, sum);
    if (g.accumulate)
        sl_load_floats(g.dpanel, at, old);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sum[i] = old[i] + sum[i];
    sl_store_floats(g.dpanel, at, sum);
}

/* An id that no row has keeps what it had, or becomes zero. */
template <sl_type TYPE, bool WIDE>
static __global__ void __launch_bounds__(THREADS, 4) embed_tokens_backward_ids(token_gradient g)
{
    enum { COUNT = sl_piece<TYPE, WIDE>::COUNT };
    const uint64_t id = (uint64_t)blockIdx.x * (THREADS / SL_WARP) + threadIdx.x / SL_WARP;
    if (id >= g.id_count)
        return;
    const uint32_t first = g.order.bounds[id], end = g.order.bounds[id + 1];
    if (first == end && g.accumulate)
        return;
    uint64_t column = ((uint64_t)blockIdx.y * SL_WARP + threadIdx.x % SL_WARP) * COUNT;
    for (; column < g.width; column += (uint64_t)gridDim.y * SL_WARP * COUNT)
        add_id<TYPE, WIDE>(g, id, first, end, column);
}

/* Blocks of the second dimension for tiles of `columns`; a block walks on where they are too few.
 */
static uint32_t count_tiles(uint64_t width, uint64_t columns)
{
    const uint64_t tiles = sl_bits_divide_up(width, columns);
    return tiles < SL_GRID_SIDE_MOST ? (uint32_t)tiles : SL_GRID_SIDE_MOST;
}

template <sl_type TYPE, bool WIDE>
static sl_status launch_gradient(const sl_kernel_call *call, const token_gradient *all)
{
    const token_gradient g = *all;
    const uint32_t count = sl_piece<TYPE, WIDE>::COUNT;
    const uint64_t id_blocks = sl_bits_divide_up(g.id_count, THREADS / SL_WARP);
    const dim3 segments((uint32_t)count_segments(call->attrs),
                        count_tiles(g.width, SEGMENT_THREADS * count));
    const dim3 ids((uint32_t)id_blocks, count_tiles(g.width, SL_WARP * count));
    if (segments.x > 1) /* a frequent id has two or more */
        SL_TRY(SL_LAUNCH(call, segments, SEGMENT_THREADS, 0,
                         (embed_tokens_backward_segments<TYPE, WIDE>), g));
    return SL_LAUNCH(call, ids, THREADS, 0, (embed_tokens_backward_ids<TYPE, WIDE>), g);
}

template <sl_type TYPE>
static sl_status differentiate(const sl_kernel_call *call, const token_gradient *all)
{
    return all->width % sl_pack<TYPE>::COUNT == 0 ? launch_gradient<TYPE, true>(call, all)
                                                  : launch_gradient<TYPE, false>(call, all);
}

extern "C" sl_status sl_cuda_embed_tokens_backward(const sl_kernel_call *call)
{
    const sl_op_attrs *attrs = call->attrs;
    token_gradient g = {};
    g.tokens = (const int32_t *)call->operand[0];
    g.dx = call->operand[1];
    g.dpanel = (float *)call->operand[2];
    g.segment_sums = (float *)((char *)call->workspace + token_order_bytes(attrs));
    g.width = attrs->in;
    g.id_count = attrs->id_count;
    g.first_id = (int64_t)attrs->first_id;
    g.accumulate = attrs->adds_output != 0;
    SL_TRY(order_by_token(call, g.tokens, call->workspace, &g.order));
    return SL_BY_TYPE(attrs->type, differentiate, call, &g);
}
