/* Times in rounds, then checks the results of the fastest algorithm before it is taken. */
#include "blas_time.h"

#include <cuda_runtime_api.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/half.h"
#include "base/log.h"
#include "base/rng.h"

enum {
    ROUNDS = 4,
    LAUNCHES_MOST = 16, /* of one algorithm in a round */
    NUMBER_BYTES = 1 << 20,
    SHIFT_BYTES = 65544, /* in `numbers`, from the first number of A to the first of B */
    EDGE_BYTES = 1 << 20 /* most bytes of C that are compared at its start, and at its end */
};

static const double round_seconds = 1e-3;
static const double time_share =
    0.98; /* of the first one's, which stays unless another takes less */

typedef struct timing {
    const sl_blas_trial *trial;
    const cublasLtMatmulHeuristicResult_t *results;
    uint32_t count;
    double seconds[SL_BLAS_CANDIDATES]; /* DBL_MAX: not timed yet; INFINITY: passed over */
    cudaEvent_t start, end;
    unsigned char *numbers; /* owned: [NUMBER_BYTES + SHIFT_BYTES], with the next three behind */
    unsigned char *first, *once, *again; /* [2 * EDGE_BYTES] each: the ends of C by the first
                                            algorithm; by another one; by that one again */
} timing;

/* ---- operands ---- */

static sl_status check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return SL_OK;
    (void)cudaGetLastError();
    SL_FAIL(SL_ERROR_SYSTEM, "timing products: %s: %s", what, cudaGetErrorString(error));
}

/* Words of 16 bits. Read as bf16, as fp16 and, in pairs, as fp32, each is a number of either sign
 * whose size is between 1/2 and 2. */
static void draw_numbers(unsigned char *numbers)
{
    for (uint64_t at = 0; at < NUMBER_BYTES + SHIFT_BYTES; at += 8) {
        const sl_rng_word4 drawn = sl_rng_draw(1, 0, at);
        for (size_t i = 0; i < 4; i++) {
            const uint16_t half = (uint16_t)((drawn.word[i] & 0x80ffu) | 0x3f00u);
            memcpy(numbers + at + 2 * i, &half, sizeof half);
        }
    }
}

static sl_status fill(const timing *t, const void *to, uint64_t bytes, uint64_t shift)
{
    for (uint64_t at = 0; at < bytes; at += NUMBER_BYTES)
        SL_TRY(check(cudaMemcpyAsync((unsigned char *)to + at, t->numbers + shift,
                                     sl_bits_min(bytes - at, NUMBER_BYTES), cudaMemcpyHostToDevice,
                                     t->trial->call->stream),
                     "cudaMemcpyAsync"));
    return SL_OK;
}

static uint64_t count_c_bytes(const sl_product *product)
{
    return product->m * product->n * sl_type_bytes(product->c_type);
}

static sl_status fill_factors(const timing *t)
{
    const sl_product *p = t->trial->product;
    SL_TRY(fill(t, p->a, p->m * p->k * sl_type_bytes(p->type), 0));
    return fill(t, p->b, p->k * p->n * sl_type_bytes(p->type), SHIFT_BYTES);
}

/* ---- rounds ---- */

static sl_status run(const timing *t, uint32_t index, uint32_t launch_count)
{
    const sl_blas_trial *trial = t->trial;
    trial->choice->algorithm = t->results[index].algo;
    for (uint32_t i = 0; i < launch_count; i++)
        SL_TRY(sl_blas_run(trial->blas, trial->choice, trial->call, trial->product));
    return SL_OK;
}

static sl_status synchronise(const timing *t)
{
    return check(cudaStreamSynchronize(t->trial->call->stream), "an algorithm of cuBLASLt");
}

static void pass_over(timing *t, uint32_t index, const char *reason)
{
    sl_log_write(SL_LOG_NOTE,
                 "number %u of cuBLASLt's algorithms is passed over: %s; before the trial: %s",
                 index, reason, t->trial->choice->text);
    t->seconds[index] = INFINITY;
}

static sl_status time_once(timing *t, uint32_t index, uint32_t launch_count)
{
    const cudaStream_t stream = t->trial->call->stream;
    float ms = 0;
    if (isinf(t->seconds[index]))
        return SL_OK;
    SL_TRY(check(cudaEventRecord(t->start, stream), "cudaEventRecord"));
    if (run(t, index, launch_count) != SL_OK) {
        pass_over(t, index, sl_status_message());
        return synchronise(t);
    }
    SL_TRY(check(cudaEventRecord(t->end, stream), "cudaEventRecord"));
    SL_TRY(synchronise(t));
    SL_TRY(check(cudaEventElapsedTime(&ms, t->start, t->end), "cudaEventElapsedTime"));
    t->seconds[index] = fmin(t->seconds[index], 1e-3 * (double)ms / launch_count);
    return SL_OK;
}

/* The first round loads code, and its times do not count. */
static sl_status run_rounds(timing *t)
{
    uint32_t launch_count = 1;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < t->count; i++) {
            SL_TRY(time_once(t, i, launch_count));
            if (round == 0 && !isinf(t->seconds[i]))
                t->seconds[i] = DBL_MAX;
        }
        if (round == 1 && t->seconds[0] < round_seconds)
            launch_count = (uint32_t)fmin(LAUNCHES_MOST, round_seconds / fmax(t->seconds[0], 1e-9));
    }
    return SL_OK;
}

/* ---- results ---- */

static sl_status copy_back(const timing *t, unsigned char *to, const unsigned char *from,
                           uint64_t bytes)
{
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, t->trial->call->stream),
                 "cudaMemcpyAsync");
}

static uint64_t count_edge_bytes(const timing *t)
{
    return sl_bits_min(count_c_bytes(t->trial->product), EDGE_BYTES);
}

/* Computes C by algorithm `index`, and writes the first and the last bytes of C. */
static sl_status compute(const timing *t, uint32_t index, unsigned char *out_edges)
{
    const sl_product *product = t->trial->product;
    const uint64_t bytes = count_c_bytes(product), edge = count_edge_bytes(t);
    const unsigned char *c = product->c;
    SL_TRY(fill(t, c, bytes, 0));
    SL_TRY(run(t, index, 1));
    SL_TRY(copy_back(t, out_edges, c, edge));
    SL_TRY(copy_back(t, out_edges + edge, c + bytes - edge, edge));
    return synchronise(t);
}

static float read_element(sl_type type, const unsigned char *from)
{
    uint16_t half;
    float value;
    if (type == SL_TYPE_FP32) {
        memcpy(&value, from, sizeof value);
        return value;
    }
    memcpy(&half, from, sizeof half);
    return type == SL_TYPE_BF16 ? sl_half_from_bf16(half) : sl_half_from_fp16(half);
}

/* The bounds are those of a GPU's self-test, which compares its ops with the cpu's. */
static bool is_near(const timing *t)
{
    static const float shares[] = {
        [SL_TYPE_FP32] = 0x1p-15f, [SL_TYPE_BF16] = 0x1p-6f, [SL_TYPE_FP16] = 0x1p-9f};
    const sl_product *product = t->trial->product;
    const uint64_t bytes = 2 * count_edge_bytes(t), unit = sl_type_bytes(product->c_type);
    float largest = 0, distance = 0;
    for (uint64_t at = 0; at + unit <= bytes; at += unit) {
        const float a = read_element(product->c_type, t->first + at);
        const float b = read_element(product->c_type, t->once + at);
        if (!isfinite(a) || !isfinite(b))
            return false;
        largest = fmaxf(largest, fabsf(a));
        distance = fmaxf(distance, fabsf(a - b));
    }
    return distance <= shares[product->type] * largest;
}

/* Passes the algorithm over unless it repeats its bits and comes near the first one's numbers. */
static sl_status prove(timing *t, uint32_t index)
{
    SL_TRY(compute(t, index, t->once));
    SL_TRY(compute(t, index, t->again));
    if (memcmp(t->once, t->again, 2 * count_edge_bytes(t)) != 0) {
        pass_over(t, index, "it gives other bits when it is repeated");
        return SL_OK;
    }
    if (isinf(t->seconds[0]))
        return SL_OK;
    SL_TRY(compute(t, 0, t->first));
    if (!is_near(t))
        pass_over(t, index, "its numbers are not near those of the first one");
    return SL_OK;
}

static uint32_t find_fastest(const timing *t)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < t->count; i++)
        if (t->seconds[i] < t->seconds[best])
            best = i;
    return t->seconds[best] < time_share * t->seconds[0] ? best : 0;
}

static sl_status pick(timing *t)
{
    sl_blas_choice *choice = t->trial->choice;
    uint32_t best = find_fastest(t);
    while (best != 0) {
        SL_TRY(prove(t, best));
        if (!isinf(t->seconds[best]))
            break;
        best = find_fastest(t);
    }
    sl_blas_choice_take(t->trial->functions, choice, &t->results[best]);
    const size_t length = strlen(choice->text);
    if (best != 0 && !isinf(t->seconds[0]))
        snprintf(choice->text + length, sizeof choice->text - length,
                 ", %.2f of the first one's time", t->seconds[best] / t->seconds[0]);
    return SL_OK;
}

/* ---- the trial ---- */

static sl_status open_timing(timing *t)
{
    t->numbers = malloc(NUMBER_BYTES + SHIFT_BYTES + (size_t)6 * EDGE_BYTES);
    if (t->numbers == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to time products");
    t->first = t->numbers + NUMBER_BYTES + SHIFT_BYTES;
    t->once = t->first + (size_t)2 * EDGE_BYTES;
    t->again = t->once + (size_t)2 * EDGE_BYTES;
    draw_numbers(t->numbers);
    for (uint32_t i = 0; i < t->count; i++)
        t->seconds[i] = DBL_MAX;
    SL_TRY(check(cudaEventCreateWithFlags(&t->start, cudaEventDefault), "cudaEventCreate"));
    return check(cudaEventCreateWithFlags(&t->end, cudaEventDefault), "cudaEventCreate");
}

/* Waits first: after a failure, copies from `numbers` may still be under way. */
static void close_timing(timing *t)
{
    (void)cudaStreamSynchronize(t->trial->call->stream);
    if (t->end != NULL)
        (void)cudaEventDestroy(t->end);
    if (t->start != NULL)
        (void)cudaEventDestroy(t->start);
    free(t->numbers);
}

sl_status sl_blas_time(const sl_blas_trial *trial, const cublasLtMatmulHeuristicResult_t *results,
                       uint32_t count)
{
    timing t = {.trial = trial, .results = results, .count = count};
    sl_status status = open_timing(&t);
    if (status == SL_OK)
        status = fill_factors(&t);
    if (status == SL_OK)
        status = run_rounds(&t);
    if (status == SL_OK)
        status = pick(&t);
    close_timing(&t);
    return status;
}
