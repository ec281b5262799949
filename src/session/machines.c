/* See machines.h. Of some rounds the fastest counts: other work can only make one slower. */
#include "machines.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { ROUNDS = 4, FEW_BYTES = 64, MANY_BYTES = 4 << 20 };

/* ---- who is where ---- */

typedef struct place {
    uint32_t first, count; /* ranks of a machine */
} place;

static sl_status find_places(const sl_ranks *ranks, sl_machines *out)
{
    place all[SL_COMM_RANKS_MAX], own = {.first = sl_comm_first_local(ranks->world)};
    uint32_t index;
    sl_comm_local(ranks->world, &index, &own.count);
    SL_TRY(sl_comm_all_gather(ranks->world, sizeof own, &own, all));
    *out = (sl_machines){.ranks_each = all[0].count};
    for (uint32_t rank = 0; rank < ranks->table.size; rank++) {
        out->count += all[rank].first == rank;
        if (all[rank].count != all[0].count || all[rank].first != rank - rank % all[0].count)
            out->ranks_each = 0;
    }
    return SL_OK;
}

/* ---- how fast ---- */

typedef struct exchange {
    const sl_ranks *ranks;
    uint32_t distance; /* of the ranks that exchange */
    char *send, *receive;
} exchange;

static sl_status run_once(const exchange *it, uint64_t bytes, double *out_seconds)
{
    sl_comm *world = it->ranks->world;
    const uint32_t size = it->ranks->table.size, rank = it->ranks->table.rank;
    const sl_comm_exchange_args args = {.to = (rank + it->distance) % size,
                                        .from = (rank + size - it->distance) % size,
                                        .send = it->send,
                                        .send_bytes = bytes,
                                        .receive = it->receive,
                                        .receive_bytes = bytes};
    SL_TRY(sl_comm_barrier(world));
    const uint64_t start_ns = sl_clock_now_ns();
    SL_TRY(sl_comm_exchange(world, &args));
    *out_seconds = 1e-9 * (double)(sl_clock_now_ns() - start_ns);
    return sl_comm_find_longest(world, out_seconds);
}

static sl_status time_exchange(const exchange *it, uint64_t bytes, double *out_seconds)
{
    double seconds = 0;
    for (int round = 0; round < ROUNDS; round++) {
        SL_TRY(run_once(it, bytes, &seconds));
        if (round == 0 || seconds < *out_seconds)
            *out_seconds = seconds;
    }
    return SL_OK;
}

static sl_status time_network(const exchange *it, sl_cluster_link *out_network)
{
    const double machine_bytes = (double)it->distance * MANY_BYTES, shortest = 1e-9;
    double few = 0, many = 0;
    SL_TRY(time_exchange(it, FEW_BYTES, &few));
    SL_TRY(time_exchange(it, MANY_BYTES, &many));
    const double seconds = many - few;
    *out_network =
        (sl_cluster_link){.byte_rate = machine_bytes / (seconds > shortest ? seconds : shortest),
                          .efficiency = 1,
                          .seconds = few};
    return SL_OK;
}

static sl_status measure_network(const sl_ranks *ranks, sl_machines *out)
{
    exchange it = {.ranks = ranks,
                   .distance = out->ranks_each,
                   .send = calloc(MANY_BYTES, 1),
                   .receive = calloc(MANY_BYTES, 1)};
    if (it.send && it.receive)
        memset(it.send, 1, MANY_BYTES); /* untouched pages would be read as one page of zeros */
    const sl_status status =
        it.send && it.receive
            ? time_network(&it, &out->network)
            : sl_status_fail(SL_ERROR_SYSTEM, "no memory to measure what joins the machines");
    free(it.send);
    free(it.receive);
    return status;
}

sl_status sl_machines_measure(const sl_ranks *ranks, sl_machines *out_machines)
{
    *out_machines = (sl_machines){.count = 1, .ranks_each = 1};
    if (!ranks->world)
        return SL_OK;
    SL_TRY(find_places(ranks, out_machines));
    const bool is_joined = out_machines->count > 1 && out_machines->ranks_each > 0;
    return is_joined ? measure_network(ranks, out_machines) : SL_OK;
}
