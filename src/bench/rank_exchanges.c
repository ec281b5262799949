/* Rounds alternate over all cases, as those of the other figures do; see rank_exchanges.h. */
#include "rank_exchanges.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum {
    BYTES_MOST = 64 << 20,
    BYTES_A_SAMPLE = 16 << 20,
    REPEATS_MOST = 64,
    QUICK_ROUNDS = 3,
    ROUNDS = 7,
    CASES_MAX = 24,
    SIZES = 4,
    QUICK_SIZES = 2
};

static const uint64_t case_bytes[SIZES] = {64 << 10, 2 << 20, 16 << 20, BYTES_MOST};

/* `bytes` are those that each rank holds in the end: of the sum, of all parts, of what it took. */
typedef struct exchange {
    sl_comm *world;
    uint64_t bytes;
    sl_comm_type type;
    void *data, *other; /* [BYTES_MOST] */
} exchange;

static uint64_t count_elements(const exchange *it)
{
    return it->bytes / (it->type == SL_COMM_FP32 ? sizeof(float) : sizeof(uint16_t));
}

static sl_status reduce(const exchange *it)
{
    return sl_comm_all_reduce(it->world, it->type, count_elements(it), it->data);
}

static sl_status scatter(const exchange *it)
{
    const uint64_t piece = count_elements(it) / sl_comm_size(it->world);
    return sl_comm_reduce_scatter(it->world, it->type, piece, it->data, it->other);
}

static sl_status gather(const exchange *it)
{
    return sl_comm_all_gather(it->world, it->bytes / sl_comm_size(it->world), it->data, it->other);
}

/* To the next rank, from the one before. */
static sl_status hand_over(const exchange *it)
{
    const uint32_t size = sl_comm_size(it->world), rank = sl_comm_rank(it->world);
    const sl_comm_exchange_args args = {.to = (rank + 1) % size,
                                        .from = (rank + size - 1) % size,
                                        .send = it->data,
                                        .send_bytes = it->bytes,
                                        .receive = it->other,
                                        .receive_bytes = it->bytes};
    return sl_comm_exchange(it->world, &args);
}

static sl_status copy(const exchange *it)
{
    memcpy(it->other, it->data, it->bytes);
    return SL_OK;
}

static const struct kind {
    const char *name;
    sl_status (*call)(const exchange *it);
    bool has_types; /* it adds elements up */
} kinds[] = {
    {"all_reduce", reduce, true},
    {"reduce_scatter", scatter, true},
    {"all_gather", gather, false},
    {"exchange", hand_over, false},
};

typedef struct exchange_case {
    const struct kind *kind;
    sl_comm_type type;
    uint64_t bytes;
    sl_samples seconds, copy_seconds;
} exchange_case;

typedef struct exchanges {
    exchange_case cases[CASES_MAX];
    uint32_t count;
    exchange call;
} exchanges;

/* Pieces have to be of whole elements. */
static uint64_t round_bytes(uint64_t bytes, uint32_t rank_count)
{
    const uint64_t unit = sizeof(float) * (uint64_t)rank_count;
    return bytes > unit ? bytes / unit * unit : unit;
}

static void add_cases(bool is_quick, exchanges *it)
{
    const uint32_t rank_count = sl_comm_size(it->call.world);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int size = 0; size < (is_quick ? QUICK_SIZES : SIZES); size++)
            for (int type = 0; type <= kinds[k].has_types; type++)
                it->cases[it->count++] =
                    (exchange_case){.kind = &kinds[k],
                                    .type = type == 0 ? SL_COMM_FP32 : SL_COMM_BF16,
                                    .bytes = round_bytes(case_bytes[size], rank_count)};
}

/* Times some calls, which all ranks begin together. */
static sl_status time_calls(const exchange *it, sl_status (*call)(const exchange *it),
                            sl_samples *samples)
{
    const uint64_t fitting = it->bytes < BYTES_A_SAMPLE ? BYTES_A_SAMPLE / it->bytes : 1,
                   count = fitting < REPEATS_MOST ? fitting : REPEATS_MOST;
    SL_TRY(sl_comm_barrier(it->world));
    const uint64_t start_ns = sl_clock_now_ns();
    for (uint64_t i = 0; i < count; i++)
        SL_TRY(call(it));
    double seconds = 1e-9 * (double)(sl_clock_now_ns() - start_ns) / (double)count;
    SL_TRY(sl_comm_find_longest(it->world, &seconds));
    sl_samples_add(samples, seconds);
    return SL_OK;
}

static sl_status sample(exchanges *it)
{
    for (uint32_t i = 0; i < it->count; i++) {
        exchange_case *one = &it->cases[i];
        it->call.bytes = one->bytes;
        it->call.type = one->type;
        SL_TRY(time_calls(&it->call, one->kind->call, &one->seconds));
        SL_TRY(time_calls(&it->call, copy, &one->copy_seconds));
    }
    return SL_OK;
}

static sl_status add_rows(const exchanges *it, sl_bench *bench)
{
    for (uint32_t i = 0; i < it->count; i++) {
        const exchange_case *one = &it->cases[i];
        const double bytes = (double)one->bytes;
        const char *type = one->type == SL_COMM_FP32 ? "fp32" : "bf16";
        sl_bench_row row = {.group = sl_bench_figure_name(SL_BENCH_COMM),
                            .type = one->kind->has_types ? type : "",
                            .rate = sl_samples_rate(&one->seconds, bytes),
                            .seconds = sl_samples_median(&one->seconds),
                            .roof = bytes / sl_samples_median(&one->copy_seconds)};
        snprintf(row.name, sizeof row.name, "%s of %u ranks, %.4g MiB", one->kind->name,
                 sl_comm_size(it->call.world), bytes / (1 << 20));
        SL_TRY(sl_bench_add(bench, &row));
    }
    return SL_OK;
}

static sl_status run_rounds(const sl_bench_options *options, exchanges *it)
{
    const uint32_t count = options->is_quick ? QUICK_ROUNDS : ROUNDS;
    char line[64];
    for (uint32_t round = 0; round < count; round++) {
        snprintf(line, sizeof line, "exchanges: round %u of %u", round + 1, count);
        if (options->progress)
            options->progress(options->user, line);
        SL_TRY(sample(it));
    }
    return SL_OK;
}

static sl_status fill_memory(exchange *it)
{
    it->data = malloc(BYTES_MOST);
    it->other = malloc(BYTES_MOST);
    if (!it->data || !it->other)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for measuring exchanges");
    memset(it->data, 1, BYTES_MOST); /* tiny numbers, in each type */
    memset(it->other, 1, BYTES_MOST);
    return SL_OK;
}

sl_status sl_rank_exchanges_measure(const sl_bench_options *options, sl_comm *world,
                                    sl_bench *bench)
{
    exchanges *it = calloc(1, sizeof *it);
    if (!it)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for measuring exchanges");
    it->call = (exchange){.world = world};
    add_cases(options->is_quick, it);
    sl_status status = fill_memory(&it->call);
    if (status == SL_OK)
        status = run_rounds(options, it);
    if (status == SL_OK)
        status = add_rows(it, bench);
    free(it->call.data);
    free(it->call.other);
    free(it);
    return status;
}
