/* The calls, made of passes: how data is cut into pieces, and who adds what.
 *
 * An all-reduce of much data cuts it into segments and a segment into a piece for each rank. In one
 * pass each rank hands everybody their piece; it adds up its own piece of all ranks; in the next
 * pass it hands the sum round. Of little data every rank hands all of it round and adds up all of
 * it itself: one pass in the place of two. Who adds an element does not matter: the terms are added
 * in the order of ranks in any case.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "comm_internal.h"
#include "remote.h"
#include "wire.h"

enum {
    SMALL_BYTES = 8192, /* up to this, of all terms together in a pass, one pass is cheaper */
    ALIGN_ELEMENTS = 32 /* pieces begin on a line of the cache */
};

static const sl_comm_types bytes_alone = {SL_COMM_FP32, SL_COMM_FP32};

/* ---- a call ----
 *
 * Each begins with a look at what ended the world: after a failure others may still read what this
 * rank laid for them, so nothing is written any more. */

typedef struct call {
    sl_comm *comm;
    sl_comm_pass pass;
} call;

static sl_status begin(sl_comm *comm, const char *op, sl_comm_types types, uint64_t count,
                       uint64_t detail, call *out)
{
    SL_TRY(sl_comm_poll(comm));
    *out = (call){.comm = comm};
    out->pass.sign = (sl_window_sign){.call = comm->call_count++,
                                      .count = count,
                                      .detail = detail,
                                      .types = (uint64_t)types.stored << 4 | (uint64_t)types.wire};
    snprintf(out->pass.sign.op, sizeof out->pass.sign.op, "%s", op);
    return SL_OK;
}

/* Hands this rank's pieces out, without waiting for others. After a failure others may still read
 * what this rank signed. */
static sl_status begin_pass(sl_comm *comm, const sl_comm_pass *pass)
{
    SL_TRY(sl_comm_poll(comm));
    sl_window_arrive(comm, &pass->sign);
    if (comm->remote)
        sl_remote_begin(comm, pass);
    return SL_OK;
}

/* Waits for those of the others, and finds them. */
static sl_status finish_pass(sl_comm *comm, const sl_comm_pass *pass)
{
    const uint64_t offset = pass->is_for_all ? 0 : comm->rank * comm->piece_bytes;
    SL_TRY(sl_window_wait(comm));
    for (uint32_t i = 0; i < comm->size; i++)
        if (comm->peers[i].local != UINT32_MAX)
            comm->received[i] = (const char *)sl_window_half(comm, i) + offset;
    return comm->remote ? sl_remote_finish(comm, pass) : SL_OK;
}

static sl_status run_pass(call *it, bool is_for_all)
{
    uint64_t sent_bytes = 0;
    it->pass.is_for_all = is_for_all;
    SL_TRY(begin_pass(it->comm, &it->pass));
    SL_TRY(finish_pass(it->comm, &it->pass));
    it->pass.sign.pass++;
    for (uint32_t i = 0; i < it->comm->size; i++)
        sent_bytes += i == it->comm->rank ? 0 : it->comm->peers[i].send_bytes;
    sl_comm_count_sent(it->comm, sent_bytes);
    return SL_OK;
}

/* What each of the others sends and gets: the same everywhere. */
static void set_bytes_of_all(sl_comm *comm, uint64_t send_bytes, uint64_t receive_bytes)
{
    for (uint32_t i = 0; i < comm->size; i++) {
        comm->peers[i].send_bytes = send_bytes;
        comm->peers[i].receive_bytes = receive_bytes;
    }
}

static char *at(const void *data, uint64_t index, uint64_t element_bytes)
{
    return (char *)data + index * element_bytes;
}

static sl_status check_types(sl_comm_types types)
{
    if (types.stored < 0 || types.stored >= SL_COMM_TYPE_COUNT || types.wire < 0 ||
        types.wire >= SL_COMM_TYPE_COUNT ||
        (types.stored != types.wire && types.stored != SL_COMM_FP32))
        SL_FAIL(SL_ERROR_INTERNAL, "elements of type %d cannot be summed in type %d", types.stored,
                types.wire);
    return SL_OK;
}

static sl_status check_starts(const uint64_t *starts, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        if (starts[0] != 0 || starts[i + 1] < starts[i])
            SL_FAIL(SL_ERROR_INTERNAL, "the pieces of ranks do not ascend from 0");
    return SL_OK;
}

/* ---- slices ----
 *
 * Each rank has a piece: elements starts[rank] to starts[rank + 1]. A pass moves a slice of every
 * piece: elements [done, done + each) of it. */

/* Adds up what came from all ranks, and this rank's own; out_wire may be NULL. */
static void sum_terms(const sl_comm *comm, sl_comm_types types, uint64_t count, const void *own,
                      void *out_stored, void *out_wire)
{
    const sl_wire_sum_args args = {.types = types,
                                   .count = count,
                                   .term_count = comm->size,
                                   .own_index = comm->rank,
                                   .terms = comm->received,
                                   .own = own,
                                   .out_wire = out_wire,
                                   .out_stored = out_stored};
    sl_wire_sum(&args);
}

typedef struct scatter {
    sl_comm_types types;
    const uint64_t *starts;
    const char *from;
    char *to;        /* this rank's piece of the sum */
    bool goes_round; /* the sum is laid into the window, too */
} scatter;

/* Hands each rank its slice, and adds up this rank's. */
static sl_status scatter_slice(call *it, const scatter *args, uint64_t done, uint64_t each)
{
    sl_comm *comm = it->comm;
    const uint64_t wire_bytes = sl_wire_bytes(args->types.wire);
    const uint64_t stored_bytes = sl_wire_bytes(args->types.stored);
    const uint64_t *starts = args->starts;
    const uint64_t mine = sl_comm_count_slice(starts, comm->rank, done, each);
    for (uint32_t i = 0; i < comm->size; i++) {
        const uint64_t count = sl_comm_count_slice(starts, i, done, each);
        comm->peers[i].send_bytes = count * wire_bytes;
        comm->peers[i].receive_bytes = mine * wire_bytes;
        if (i != comm->rank && count > 0)
            sl_wire_convert(args->types.stored, args->types.wire, count,
                            at(args->from, starts[i] + done, stored_bytes),
                            sl_window_place(comm, i));
    }
    if (comm->size > 1)
        SL_TRY(run_pass(it, false));
    if (mine > 0)
        sum_terms(comm, args->types, mine, at(args->from, starts[comm->rank] + done, stored_bytes),
                  at(args->to, done, stored_bytes),
                  args->goes_round ? sl_window_place(comm, SL_WINDOW_ALL) : NULL);
    return SL_OK;
}

/* Hands this rank's slice, which lies in the window, to all others, and gets theirs. */
static sl_status hand_round(call *it, const uint64_t *starts, uint64_t done, uint64_t each,
                            uint64_t element_bytes)
{
    sl_comm *comm = it->comm;
    for (uint32_t i = 0; i < comm->size; i++) {
        comm->peers[i].send_bytes =
            sl_comm_count_slice(starts, comm->rank, done, each) * element_bytes;
        comm->peers[i].receive_bytes = sl_comm_count_slice(starts, i, done, each) * element_bytes;
    }
    return run_pass(it, true);
}

/* ---- all-reduce ---- */

/* All of it to all, at most a half's worth. */
static sl_status reduce_small(call *it, sl_comm_types types, uint64_t count, void *data)
{
    sl_comm *comm = it->comm;
    uint64_t bytes = count * sl_wire_bytes(types.wire);
    if (comm->size > 1) {
        sl_wire_convert(types.stored, types.wire, count, data,
                        sl_window_place(comm, SL_WINDOW_ALL));
        set_bytes_of_all(comm, bytes, bytes);
        SL_TRY(run_pass(it, true));
    }
    sum_terms(comm, types, count, data, data, NULL);
    return SL_OK;
}

/* A segment, whose slices fit into the window: rank i adds up elements [i * each, (i + 1) * each).
 */
static sl_status reduce_segment(call *it, sl_comm_types types, uint64_t count, char *data)
{
    sl_comm *comm = it->comm;
    const uint64_t wire_bytes = sl_wire_bytes(types.wire);
    const uint64_t stored_bytes = sl_wire_bytes(types.stored);
    const uint64_t even = sl_bits_divide_up(count, comm->size);
    const uint64_t each =
        sl_bits_min(comm->piece_bytes / wire_bytes, sl_bits_round_up(even, ALIGN_ELEMENTS));
    uint64_t starts[SL_COMM_RANKS_MAX + 1] = {0};
    for (uint32_t i = 0; i <= comm->size; i++)
        starts[i] = sl_bits_min(i * each, count);
    const scatter args = {types, starts, data, at(data, starts[comm->rank], stored_bytes), true};
    SL_TRY(scatter_slice(it, &args, 0, each));
    SL_TRY(hand_round(it, starts, 0, each, wire_bytes));
    for (uint32_t i = 0; i < comm->size; i++)
        if (i != comm->rank && comm->peers[i].receive_bytes > 0)
            sl_wire_convert(types.wire, types.stored, starts[i + 1] - starts[i], comm->received[i],
                            at(data, starts[i], stored_bytes));
    return SL_OK;
}

sl_status sl_comm_all_reduce_stored(sl_comm *comm, sl_comm_types types, uint64_t count, void *data)
{
    call it;
    SL_TRY(check_types(types));
    SL_TRY(begin(comm, "all_reduce", types, count, 0, &it));
    const uint64_t wire_bytes = sl_wire_bytes(types.wire);
    const uint64_t stored_bytes = sl_wire_bytes(types.stored);
    if (count == 0 || comm->size == 1 || count * wire_bytes * comm->size <= SMALL_BYTES)
        return count > 0 ? reduce_small(&it, types, count, data) : SL_OK;
    const uint64_t most = comm->piece_bytes / wire_bytes * comm->size;
    for (uint64_t done = 0; done < count; done += most)
        SL_TRY(reduce_segment(&it, types, sl_comm_slice(count, done, most),
                              at(data, done, stored_bytes)));
    return SL_OK;
}

sl_status sl_comm_all_reduce(sl_comm *comm, sl_comm_type type, uint64_t count, void *data)
{
    return sl_comm_all_reduce_stored(comm, (sl_comm_types){type, type}, count, data);
}

/* ---- reduce-scatter ---- */

sl_status sl_comm_reduce_scatter_pieces(sl_comm *comm, sl_comm_types types, const uint64_t *starts,
                                        const void *from, void *to)
{
    call it;
    SL_TRY(check_types(types));
    SL_TRY(check_starts(starts, comm->size));
    uint64_t longest = sl_comm_longest_piece(starts, comm->size);
    uint64_t each = comm->piece_bytes / sl_wire_bytes(types.wire);
    const scatter args = {types, starts, from, to, false};
    SL_TRY(begin(comm, "reduce_scatter", types, starts[comm->size],
                 sl_comm_hash_starts(starts, comm->size), &it));
    for (uint64_t done = 0; done < longest; done += each)
        SL_TRY(scatter_slice(&it, &args, done, each));
    return SL_OK;
}

sl_status sl_comm_find_starts(uint32_t size, uint64_t each, uint64_t *out_starts)
{
    uint64_t whole;
    SL_TRY(sl_bits_multiply(each, size, "what ranks share", &whole));
    for (uint32_t i = 0; i <= size; i++)
        out_starts[i] = each * i;
    return SL_OK;
}

sl_status sl_comm_reduce_scatter(sl_comm *comm, sl_comm_type type, uint64_t count, const void *from,
                                 void *to)
{
    uint64_t starts[SL_COMM_RANKS_MAX + 1] = {0};
    SL_TRY(sl_comm_find_starts(comm->size, count, starts));
    return sl_comm_reduce_scatter_pieces(comm, (sl_comm_types){type, type}, starts, from, to);
}

/* ---- gather ---- */

/* The passes of a gather: starts count bytes. `piece` may be this rank's of `whole`. */
static sl_status gather(call *it, const uint64_t *starts, const char *piece, char *whole)
{
    sl_comm *comm = it->comm;
    const uint64_t longest = sl_comm_longest_piece(starts, comm->size), each = comm->all_bytes;
    for (uint64_t done = 0; comm->size > 1 && done < longest; done += each) {
        const uint64_t mine = sl_comm_count_slice(starts, comm->rank, done, each);
        if (mine > 0)
            memcpy(sl_window_place(comm, SL_WINDOW_ALL), piece + done, mine);
        SL_TRY(hand_round(it, starts, done, each, 1));
        for (uint32_t i = 0; i < comm->size; i++)
            if (i != comm->rank && comm->peers[i].receive_bytes > 0)
                memcpy(whole + starts[i] + done, comm->received[i], comm->peers[i].receive_bytes);
    }
    return SL_OK;
}

sl_status sl_comm_gather_pieces(sl_comm *comm, const uint64_t *starts, const void *piece,
                                void *out_whole)
{
    call it;
    SL_TRY(check_starts(starts, comm->size));
    uint64_t mine = starts[comm->rank + 1] - starts[comm->rank];
    char *place = (char *)out_whole + starts[comm->rank];
    SL_TRY(begin(comm, "gather", bytes_alone, starts[comm->size],
                 sl_comm_hash_starts(starts, comm->size), &it));
    if (mine > 0 && place != piece)
        memmove(place, piece, mine);
    return gather(&it, starts, place, out_whole);
}

sl_status sl_comm_all_gather(sl_comm *comm, uint64_t bytes, const void *part, void *out_parts)
{
    uint64_t starts[SL_COMM_RANKS_MAX + 1] = {0};
    SL_TRY(sl_comm_find_starts(comm->size, bytes, starts));
    return sl_comm_gather_pieces(comm, starts, part, out_parts);
}

/* ---- the others ---- */

sl_status sl_comm_broadcast(sl_comm *comm, uint32_t root, uint64_t bytes, void *data)
{
    if (root >= comm->size)
        SL_FAIL(SL_ERROR_INTERNAL, "rank %u of %u cannot broadcast", root, comm->size);
    call it;
    uint64_t starts[SL_COMM_RANKS_MAX + 1] = {0};
    for (uint32_t i = 0; i <= comm->size; i++)
        starts[i] = i <= root ? 0 : bytes;
    SL_TRY(begin(comm, "broadcast", bytes_alone, bytes, root, &it));
    return gather(&it, starts, data, data);
}

sl_status sl_comm_merge(sl_comm *comm, uint32_t bytes, void *record, sl_comm_merge_function merge)
{
    if (bytes > SL_COMM_RECORD_BYTES || bytes > comm->all_bytes)
        SL_FAIL(SL_ERROR_INTERNAL, "a record of %u bytes is too large to be merged", bytes);
    call it;
    _Alignas(64) char merged[SL_COMM_RECORD_BYTES];
    SL_TRY(begin(comm, "merge", bytes_alone, bytes, 0, &it));
    if (comm->size == 1)
        return SL_OK;
    memcpy(sl_window_place(comm, SL_WINDOW_ALL), record, bytes);
    set_bytes_of_all(comm, bytes, bytes);
    SL_TRY(run_pass(&it, true));
    memcpy(merged, comm->rank == 0 ? record : comm->received[0], bytes);
    for (uint32_t i = 1; i < comm->size; i++)
        merge(merged, i == comm->rank ? record : comm->received[i]);
    memcpy(record, merged, bytes);
    return SL_OK;
}

static void keep_longest(void *sum, const void *other)
{
    double *longest = sum;
    const double seconds = *(const double *)other;
    *longest = seconds > *longest ? seconds : *longest;
}

sl_status sl_comm_find_longest(sl_comm *comm, double *seconds)
{
    return sl_comm_merge(comm, sizeof *seconds, seconds, keep_longest);
}

sl_status sl_comm_meet(sl_comm *comm, const char *op, sl_comm_types types, uint64_t count,
                       uint64_t detail)
{
    call it;
    SL_TRY(begin(comm, op, types, count, detail, &it));
    set_bytes_of_all(comm, 0, 0);
    return comm->size > 1 ? run_pass(&it, true) : SL_OK;
}

sl_status sl_comm_barrier(sl_comm *comm)
{
    return sl_comm_meet(comm, "barrier", bytes_alone, 0, 0);
}

/* ---- exchanges: passes of pairs ---- */

/* Begins a call of the pair of this rank and `other`. Both ranks name the bytes alike: first those
 * from the lower rank to the higher one, then those back. */
static sl_status begin_with(sl_comm *comm, uint32_t other, uint64_t send_bytes,
                            uint64_t receive_bytes, call *out)
{
    sl_comm *pair;
    if (other >= comm->size || other == comm->rank)
        SL_FAIL(SL_ERROR_INTERNAL, "rank %u of %u cannot exchange with %u", comm->rank, comm->size,
                other);
    SL_TRY(sl_comm_find_pair(comm, other, &pair));
    return pair->rank == 0 ? begin(pair, "exchange", bytes_alone, send_bytes, receive_bytes, out)
                           : begin(pair, "exchange", bytes_alone, receive_bytes, send_bytes, out);
}

/* A rank that only sends does not wait for the other one, until its next pass. */
static sl_status catch_up(sl_comm *pair)
{
    if (!pair->is_behind)
        return SL_OK;
    SL_TRY(finish_pass(pair, &pair->last));
    pair->is_behind = false;
    return SL_OK;
}

sl_status sl_comm_meet_one(sl_comm *comm, uint32_t other, uint64_t send_bytes,
                           uint64_t receive_bytes)
{
    call it;
    SL_TRY(begin_with(comm, other, send_bytes, receive_bytes, &it));
    SL_TRY(catch_up(it.comm));
    set_bytes_of_all(it.comm, 0, 0);
    return run_pass(&it, true);
}

/* What goes between this rank and one other. */
typedef struct talk {
    call call;
    const char *send;
    char *receive;
    uint64_t send_bytes, receive_bytes, pass_count;
} talk;

static sl_status open_talk(sl_comm *comm, uint32_t other, const sl_comm_exchange_args *args,
                           talk *out_talk)
{
    talk it = {.send = args->send, .receive = args->receive};
    it.send_bytes = other == args->to ? args->send_bytes : 0;
    it.receive_bytes = other == args->from ? args->receive_bytes : 0;
    SL_TRY(begin_with(comm, other, it.send_bytes, it.receive_bytes, &it.call));
    const uint64_t most = sl_bits_max(it.send_bytes, it.receive_bytes);
    it.pass_count = most > 0 ? sl_bits_divide_up(most, it.call.comm->all_bytes) : 1;
    it.call.pass.is_for_all = true;
    *out_talk = it;
    return SL_OK;
}

static sl_status begin_talk(talk *it, uint64_t pass)
{
    sl_comm *pair = it->call.comm;
    SL_TRY(catch_up(pair));
    const uint64_t done = pass * pair->all_bytes;
    const uint64_t bytes = sl_comm_slice(it->send_bytes, done, pair->all_bytes);
    set_bytes_of_all(pair, bytes, sl_comm_slice(it->receive_bytes, done, pair->all_bytes));
    if (bytes > 0)
        memcpy(sl_window_place(pair, SL_WINDOW_ALL), it->send + done, bytes);
    return begin_pass(pair, &it->call.pass);
}

static sl_status finish_talk(talk *it, uint64_t pass)
{
    sl_comm *pair = it->call.comm;
    const uint64_t done = pass * pair->all_bytes;
    const uint64_t bytes = sl_comm_slice(it->receive_bytes, done, pair->all_bytes);
    pair->last = it->call.pass;
    pair->is_behind = true;
    it->call.pass.sign.pass++;
    if (it->send_bytes == 0 || it->receive_bytes > 0)
        SL_TRY(catch_up(pair));
    if (bytes > 0)
        memcpy(it->receive + done, pair->received[1 - pair->rank], bytes);
    return SL_OK;
}

/* Both ranks are come to before one is waited for: a ring of ranks does not stand still. */
static sl_status run_talks(talk *talks, uint32_t count)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < count; i++)
        most = sl_bits_max(most, talks[i].pass_count);
    for (uint64_t pass = 0; pass < most; pass++) {
        for (uint32_t i = 0; i < count; i++)
            if (pass < talks[i].pass_count)
                SL_TRY(begin_talk(&talks[i], pass));
        for (uint32_t i = 0; i < count; i++)
            if (pass < talks[i].pass_count)
                SL_TRY(finish_talk(&talks[i], pass));
    }
    return SL_OK;
}

sl_status sl_comm_exchange(sl_comm *comm, const sl_comm_exchange_args *args)
{
    talk talks[2];
    uint32_t count = 0;
    SL_TRY(sl_comm_poll(comm)); /* of none, too */
    if (args->to != SL_COMM_NOBODY)
        SL_TRY(open_talk(comm, args->to, args, &talks[count++]));
    if (args->from != SL_COMM_NOBODY && args->from != args->to)
        SL_TRY(open_talk(comm, args->from, args, &talks[count++]));
    SL_TRY(run_talks(talks, count));
    sl_comm_count_sent(comm, args->to == SL_COMM_NOBODY ? 0 : args->send_bytes);
    return SL_OK;
}

/* ---- agreement ---- */

enum { FACT_NAME_BYTES = 64, FACT_VALUE_BYTES = 192 };

typedef struct fact_record {
    char name[FACT_NAME_BYTES], value[FACT_VALUE_BYTES];
} fact_record;

/* The first rank whose hash is not that of rank 0; the size: there is none. All get the same. */
static sl_status find_other(sl_comm *comm, uint64_t hash, uint32_t *out_rank)
{
    uint64_t hashes[SL_COMM_RANKS_MAX] = {0};
    SL_TRY(sl_comm_all_gather(comm, sizeof hash, &hash, hashes));
    *out_rank = 1;
    while (*out_rank < comm->size && hashes[*out_rank] == hashes[0])
        ++*out_rank;
    return SL_OK;
}

static sl_status compare_fact(sl_comm *comm, const fact_record *mine)
{
    fact_record first = *mine, other = *mine;
    uint32_t rank;
    SL_TRY(find_other(comm, sl_hash_64(mine, sizeof *mine), &rank));
    if (rank == comm->size)
        return SL_OK;
    SL_TRY(sl_comm_broadcast(comm, 0, sizeof first, &first));
    SL_TRY(sl_comm_broadcast(comm, rank, sizeof other, &other));
    SL_FAIL(SL_ERROR_USAGE, "the ranks differ in %s: \"%s\" on rank 0, \"%s\" on rank %u",
            *first.name ? first.name : other.name, first.value, other.value, rank);
}

/* One look at a hash of all facts, and one by one only if that differs. */
sl_status sl_comm_agree(sl_comm *comm, const sl_comm_fact *facts, uint32_t count)
{
    uint32_t rank;
    fact_record *all = calloc((size_t)count + 1, sizeof *all);
    if (!all)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to compare %u facts of ranks", count);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(all[i].name, FACT_NAME_BYTES, "%s", facts[i].name);
        snprintf(all[i].value, FACT_VALUE_BYTES, "%s", facts[i].value);
    }
    sl_status status = find_other(comm, sl_hash_64(all, count * sizeof *all), &rank);
    for (uint32_t i = 0; i < count && status == SL_OK && rank < comm->size; i++)
        status = compare_fact(comm, &all[i]);
    free(all);
    return status;
}
