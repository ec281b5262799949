/* Two threads that add up together; see rank_sums.h. */
#include "rank_sums.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { BYTES_MOST = 64 << 20, BYTES_A_SAMPLE = 16 << 20, SUMS_MOST = 64 };

static const uint64_t case_bytes[] = {64 << 10, 2 << 20, BYTES_MOST};
static const sl_type case_types[] = {SL_TYPE_FP32, SL_TYPE_BF16};

static void add_cases(bool is_quick, sl_rank_sums *it)
{
    for (size_t size = 0; size < sizeof case_bytes / sizeof case_bytes[0] - is_quick; size++)
        for (size_t type = 0; type < sizeof case_types / sizeof case_types[0]; type++)
            it->cases[it->count++] = (sl_rank_sums_case){
                .type = case_types[type],
                .element_count = case_bytes[size] / sl_type_bytes(case_types[type])};
}

sl_status sl_rank_sums_open(bool is_quick, sl_rank_sums *out_sums)
{
    sl_rank_sums it = {.count = 0};
    add_cases(is_quick, &it);
    SL_TRY(sl_comm_threads_open(SL_RANK_SUMS_RANKS, it.ends));
    bool has_memory = (it.copy = malloc(BYTES_MOST)) != NULL;
    for (int rank = 0; rank < SL_RANK_SUMS_RANKS; rank++)
        has_memory = (it.data[rank] = malloc(BYTES_MOST)) != NULL && has_memory;
    if (!has_memory) {
        sl_rank_sums_close(&it);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for measuring sums over ranks");
    }
    for (int rank = 0; rank < SL_RANK_SUMS_RANKS; rank++)
        memset(it.data[rank], 1, BYTES_MOST); /* tiny numbers, in each type */
    memset(it.copy, 1, BYTES_MOST);
    *out_sums = it;
    return SL_OK;
}

void sl_rank_sums_close(sl_rank_sums *it)
{
    for (int rank = 0; rank < SL_RANK_SUMS_RANKS; rank++) {
        sl_comm_close(it->ends[rank]);
        free(it->data[rank]);
    }
    free(it->copy);
    *it = (sl_rank_sums){.count = 0};
}

/* ---- a sample ---- */

typedef struct runner {
    sl_rank_sums *sums;
    uint32_t rank;
    sl_status status;
    char message[SL_STATUS_MESSAGE_BYTES];
} runner;

static sl_status time_sums(const runner *it, sl_rank_sums_case *one)
{
    sl_comm *end = it->sums->ends[it->rank];
    void *data = it->sums->data[it->rank];
    const uint64_t bytes = one->element_count * sl_type_bytes(one->type);
    const uint64_t fitting = bytes < BYTES_A_SAMPLE ? BYTES_A_SAMPLE / bytes : 1,
                   count = fitting < SUMS_MOST ? fitting : SUMS_MOST;
    SL_TRY(sl_comm_barrier(end));
    uint64_t start_ns = sl_clock_now_ns();
    for (uint64_t i = 0; i < count; i++)
        SL_TRY(sl_comm_all_reduce(end, (sl_comm_type)one->type, one->element_count, data));
    if (it->rank == 0)
        sl_samples_add(&one->seconds,
                       1e-9 * (double)(sl_clock_now_ns() - start_ns) / (double)count);
    SL_TRY(sl_comm_barrier(end));
    if (it->rank != 0)
        return SL_OK;
    start_ns = sl_clock_now_ns();
    for (uint64_t i = 0; i < count; i++)
        memcpy(it->sums->copy, data, bytes);
    sl_samples_add(&one->copy_seconds,
                   1e-9 * (double)(sl_clock_now_ns() - start_ns) / (double)count);
    return SL_OK;
}

static void *run(void *argument)
{
    runner *it = argument;
    for (uint32_t i = 0; i < it->sums->count && it->status == SL_OK; i++)
        it->status = time_sums(it, &it->sums->cases[i]);
    if (it->status != SL_OK) {
        memcpy(it->message, sl_status_message(), sizeof it->message - 1);
        sl_comm_abort(it->sums->ends[it->rank], it->message);
    }
    return NULL;
}

sl_status sl_rank_sums_sample(sl_rank_sums *sums)
{
    runner runners[SL_RANK_SUMS_RANKS];
    pthread_t other;
    for (uint32_t rank = 0; rank < SL_RANK_SUMS_RANKS; rank++)
        runners[rank] = (runner){.sums = sums, .rank = rank};
    if (pthread_create(&other, NULL, run, &runners[1]) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no thread for a rank");
    run(&runners[0]);
    pthread_join(other, NULL);
    for (int rank = 0; rank < SL_RANK_SUMS_RANKS; rank++)
        if (runners[rank].status != SL_OK)
            return sl_status_fail(runners[rank].status, "%s", runners[rank].message);
    return SL_OK;
}

/* ---- rates ---- */

static sl_op_rate fit_type(const sl_rank_sums *it, sl_type type, double op_seconds)
{
    sl_op_sample samples[SL_RANK_SUMS_CASES];
    uint32_t count = 0;
    for (uint32_t i = 0; i < it->count; i++) {
        const sl_rank_sums_case *one = &it->cases[i];
        const sl_op_attrs attrs = {.type = type, .element_count = one->element_count};
        double seconds = sl_samples_median(&one->seconds) - op_seconds;
        if (one->type == type)
            samples[count++] = (sl_op_sample){
                .traffic_bytes = (double)sl_op_traffic_bytes(SL_OP_ALL_REDUCE, &attrs),
                .seconds = seconds > 1e-8 ? seconds : 1e-8};
    }
    return sl_samples_fit(samples, count, true);
}

void sl_rank_sums_fit(const sl_rank_sums *it, sl_machine *machine)
{
    for (int type = 0; type < SL_TYPE_COUNT; type++) {
        const sl_type timed = type == SL_TYPE_FP32 ? SL_TYPE_FP32 : SL_TYPE_BF16;
        const sl_op_rate rate = fit_type(it, timed, machine->op_seconds);
        sl_machine_set_exchanges(machine, (sl_type)type, rate);
    }
}
