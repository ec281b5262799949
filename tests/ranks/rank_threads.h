/* Ranks as threads of one process, by barriers: the plainest way to add and gather, for tests of
 * what ranks compute. A test may damage what is exchanged. */
#ifndef SL_TESTS_RANK_THREADS_H
#define SL_TESTS_RANK_THREADS_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tensors/elements.h"

#ifndef RANK_THREADS_MAX
#define RANK_THREADS_MAX 4
#endif
enum { RANKS_MAX = RANK_THREADS_MAX };

typedef struct rank_group {
    uint32_t size;
    pthread_barrier_t barrier;
    const void *given[RANKS_MAX];
    uint64_t reduced_bytes[RANKS_MAX]; /* that each rank gave to all_reduce, so far */
    uint64_t scattered_bytes[RANKS_MAX], gathered_bytes[RANKS_MAX]; /* likewise */
    uint64_t reduce_count[RANKS_MAX];
    uint64_t dropped; /* the sum, from 1, that misses the last rank's part; 0: none */
} rank_group;

typedef struct rank_end {
    rank_group *group;
    uint32_t rank;
} rank_end;

static inline void rank_sum(const rank_end *end, bool drops_last, sl_type type, uint64_t first,
                            uint64_t count, void *out)
{
    enum { PART = 1024 };
    float sum[PART], part[PART];
    const uint32_t size = end->group->size - drops_last;
    for (uint64_t done = 0; done < count; done += PART) {
        const uint64_t n = count - done < PART ? count - done : PART;
        const uint64_t at = (first + done) * sl_type_bytes(type);
        memset(sum, 0, sizeof sum);
        for (uint32_t rank = 0; rank < size; rank++) {
            sl_elements_widen(type, (const char *)end->group->given[rank] + at, n, part);
            for (uint64_t i = 0; i < n; i++)
                sum[i] = rank == 0 ? part[i] : sum[i] + part[i];
        }
        sl_elements_round(type, sum, n, (char *)out + done * sl_type_bytes(type));
    }
}

/* What tensor-parallel ranks add up is stored in the type in which it travels. */
static inline sl_status rank_all_reduce(void *user, sl_type stored, sl_type type, uint64_t count,
                                        void *data)
{
    if (stored != type)
        return SL_ERROR_INTERNAL;
    const rank_end *end = user;
    rank_group *group = end->group;
    void *sum = malloc(count * sl_type_bytes(type));
    group->given[end->rank] = data;
    group->reduced_bytes[end->rank] += count * sl_type_bytes(type);
    const bool drops_last = ++group->reduce_count[end->rank] == group->dropped;
    pthread_barrier_wait(&group->barrier);
    rank_sum(end, drops_last, type, 0, count, sum);
    pthread_barrier_wait(&group->barrier);
    memcpy(data, sum, count * sl_type_bytes(type));
    free(sum);
    return SL_OK;
}

static inline sl_status rank_all_gather(void *user, uint64_t bytes, const void *part, void *parts)
{
    const rank_end *end = user;
    rank_group *group = end->group;
    group->given[end->rank] = part;
    group->gathered_bytes[end->rank] += bytes;
    pthread_barrier_wait(&group->barrier);
    for (uint32_t rank = 0; rank < group->size; rank++)
        memcpy((char *)parts + rank * bytes, group->given[rank], bytes);
    pthread_barrier_wait(&group->barrier);
    return SL_OK;
}

static inline sl_status rank_reduce_scatter(void *user, sl_type stored, sl_type type,
                                            uint64_t count, const void *from, void *to)
{
    if (stored != type)
        return SL_ERROR_INTERNAL;
    const rank_end *end = user;
    rank_group *group = end->group;
    group->given[end->rank] = from;
    group->scattered_bytes[end->rank] += group->size * count * sl_type_bytes(type);
    const bool drops_last = ++group->reduce_count[end->rank] == group->dropped;
    pthread_barrier_wait(&group->barrier);
    rank_sum(end, drops_last, type, end->rank * count, count, to);
    pthread_barrier_wait(&group->barrier);
    return SL_OK;
}

static inline void rank_group_open(rank_group *group, uint32_t size, rank_end *ends,
                                   sl_engine_ranks *ranks)
{
    *group = (rank_group){.size = size};
    pthread_barrier_init(&group->barrier, NULL, size);
    for (uint32_t rank = 0; rank < size; rank++) {
        ends[rank] = (rank_end){group, rank};
        ranks[rank] = (sl_engine_ranks){.size = size,
                                        .rank = rank,
                                        .user = &ends[rank],
                                        .all_reduce = rank_all_reduce,
                                        .reduce_scatter = rank_reduce_scatter,
                                        .all_gather = rank_all_gather};
    }
}

static inline void rank_group_close(rank_group *group)
{
    pthread_barrier_destroy(&group->barrier);
}

#endif
