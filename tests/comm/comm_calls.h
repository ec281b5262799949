/* Random calls of a communicator, each of them checked against a plain loop over all ranks'
 * numbers, which any rank can draw: for every carrier there is. */
#ifndef SL_TESTS_COMM_CALLS_H
#define SL_TESTS_COMM_CALLS_H

#include "base/half.h"
#include "base/rng.h"
#include "comm/groups.h"
#include "comm/wire.h"
#include "comm_world.h"

static const sl_comm_types type_pairs[] = {{SL_COMM_FP32, SL_COMM_FP32},
                                           {SL_COMM_BF16, SL_COMM_BF16},
                                           {SL_COMM_FP16, SL_COMM_FP16},
                                           {SL_COMM_FP32, SL_COMM_BF16},
                                           {SL_COMM_FP32, SL_COMM_FP16}};

enum { PAIR_COUNT = sizeof type_pairs / sizeof type_pairs[0] };

static uint64_t base_seed = 20261123;

/* ---- numbers that every rank can draw ---- */

/* Of any size that a half holds, with zeros of both signs, and sometimes an infinity. */
static float draw_float(uint64_t seed, uint32_t rank, uint64_t index)
{
    sl_rng_word4 draw = sl_rng_draw(seed, rank, index);
    if (draw.word[2] % 4096 == 0)
        return draw.word[1] % 3 == 0 ? INFINITY : draw.word[1] % 3 == 1 ? -0.0f : 0.0f;
    float size = (float)(int32_t)draw.word[0] * 0x1p-31f;
    return ldexpf(size, (int)(draw.word[1] % 28) - 18);
}

static void store(sl_comm_type type, float value, void *data, uint64_t index)
{
    if (type == SL_COMM_FP32)
        ((float *)data)[index] = value;
    else
        ((uint16_t *)data)[index] =
            type == SL_COMM_BF16 ? sl_half_to_bf16(value) : sl_half_to_fp16(value);
}

static float load(sl_comm_type type, const void *data, uint64_t index)
{
    if (type == SL_COMM_FP32)
        return ((const float *)data)[index];
    uint16_t half = ((const uint16_t *)data)[index];
    return type == SL_COMM_BF16 ? sl_half_from_bf16(half) : sl_half_from_fp16(half);
}

static float round_to(sl_comm_type type, float value)
{
    uint32_t place;
    store(type, value, &place, 0);
    return load(type, &place, 0);
}

/* What rank `rank` has at an index, as it is stored. */
static float stored_number(sl_comm_types types, uint64_t seed, uint32_t rank, uint64_t index)
{
    return round_to(types.stored, draw_float(seed, rank, index));
}

static float reference_sum(sl_comm_types types, uint64_t seed, const uint32_t *ranks, uint32_t size,
                           uint64_t index)
{
    float sum = round_to(types.wire, stored_number(types, seed, ranks[0], index));
    for (uint32_t i = 1; i < size; i++)
        sum += round_to(types.wire, stored_number(types, seed, ranks[i], index));
    return round_to(types.wire, sum);
}

static bool is_same(float a, float b)
{
    return (isnan(a) && isnan(b)) || sl_bits_of_float(a) == sl_bits_of_float(b);
}

/* ---- calls with their checks ---- */

/* One random call: all ranks make the same one of it. */
typedef struct comm_case {
    sl_comm *comm;
    const uint32_t *ranks; /* [size] in the world */
    uint64_t seed;
    uint64_t count;
    sl_comm_types types;
    uint64_t starts[RANKS_MAX + 1]; /* of uneven pieces */
    uint32_t size, rank;
} comm_case;

static void *make(uint64_t count, uint64_t bytes, answer *out)
{
    void *data = malloc(count * bytes + 64);
    if (!data)
        complain(out, "no memory for the test");
    else
        memset(data, 0xA5, count * bytes + 64);
    return data;
}

static void fill_numbers(const comm_case *it, void *data)
{
    for (uint64_t i = 0; i < it->count; i++)
        store(it->types.stored, draw_float(it->seed, it->ranks[it->rank], i), data, i);
}

static void expect_sums(const comm_case *it, const void *data, uint64_t first, uint64_t count,
                        answer *out)
{
    uint64_t stride =
        count > 20000 && !getenv("SL_TEST_FULL") ? 13 : 1; /* meets every vector lane */
    for (uint64_t i = 0; i < count && !out->is_wrong; i += stride) {
        float is = load(it->types.stored, data, i);
        float must = reference_sum(it->types, it->seed, it->ranks, it->size, first + i);
        if (!is_same(is, must))
            complain(out, "element %llu of %llu, types %d %d, is %a and not %a",
                     (unsigned long long)(first + i), (unsigned long long)it->count,
                     it->types.stored, it->types.wire, (double)is, (double)must);
    }
}

static void check_all_reduce(const comm_case *it, answer *out)
{
    void *data = make(it->count, 4, out);
    fill_numbers(it, data);
    if (sl_comm_all_reduce_stored(it->comm, it->types, it->count, data) != SL_OK)
        complain(out, "all_reduce: %s", sl_status_message());
    else
        expect_sums(it, data, 0, it->count, out);
    free(data);
}

static void check_reduce_scatter(const comm_case *it, answer *out)
{
    uint64_t first = it->starts[it->rank], count = it->starts[it->rank + 1] - first;
    uint64_t bytes = sl_wire_bytes(it->types.stored);
    char *from = make(it->count, 4, out), *apart = make(count, 4, out);
    bool is_in_place = it->seed % 2;
    char *to = is_in_place ? from + first * bytes : apart;
    fill_numbers(it, from);
    if (sl_comm_reduce_scatter_pieces(it->comm, it->types, it->starts, from, to) != SL_OK)
        complain(out, "reduce_scatter: %s", sl_status_message());
    else
        expect_sums(it, to, first, count, out);
    free(from);
    free(apart);
}

static unsigned char byte_of(uint64_t seed, uint32_t rank, uint64_t index)
{
    return (unsigned char)((index * 0x9E3779B97F4A7C15u + seed + rank * 977u) >> 37);
}

static void expect_bytes(const unsigned char *data, uint64_t count, uint64_t seed, uint32_t rank,
                         answer *out)
{
    for (uint64_t i = 0; i < count && !out->is_wrong; i++)
        if (data[i] != byte_of(seed, rank, i))
            complain(out, "byte %llu of %llu from rank %u is wrong", (unsigned long long)i,
                     (unsigned long long)count, rank);
}

static void fill_bytes(unsigned char *data, uint64_t count, uint64_t seed, uint32_t rank)
{
    for (uint64_t i = 0; i < count; i++)
        data[i] = byte_of(seed, rank, i);
}

static void check_gather(const comm_case *it, answer *out)
{
    uint64_t mine = it->starts[it->rank + 1] - it->starts[it->rank];
    unsigned char *whole = make(it->count, 1, out), *apart = make(mine, 1, out);
    unsigned char *piece = it->seed % 2 ? whole + it->starts[it->rank] : apart;
    fill_bytes(piece, mine, it->seed, it->rank);
    if (sl_comm_gather_pieces(it->comm, it->starts, piece, whole) != SL_OK)
        complain(out, "gather: %s", sl_status_message());
    for (uint32_t i = 0; i < it->size && !out->is_wrong; i++)
        expect_bytes(whole + it->starts[i], it->starts[i + 1] - it->starts[i], it->seed, i, out);
    if (!out->is_wrong && whole[it->count] != 0xA5)
        complain(out, "gather writes beyond its end");
    free(whole);
    free(apart);
}

static void check_all_gather(const comm_case *it, answer *out)
{
    uint64_t bytes = it->count / 8;
    unsigned char *whole = make(bytes * it->size, 1, out), *part = make(bytes, 1, out);
    fill_bytes(part, bytes, it->seed, it->rank);
    if (sl_comm_all_gather(it->comm, bytes, part, whole) != SL_OK)
        complain(out, "all_gather: %s", sl_status_message());
    for (uint32_t i = 0; i < it->size && !out->is_wrong; i++)
        expect_bytes(whole + i * bytes, bytes, it->seed, i, out);
    free(whole);
    free(part);
}

static void check_broadcast(const comm_case *it, answer *out)
{
    uint32_t root = (uint32_t)(it->seed % it->size);
    unsigned char *data = make(it->count, 1, out);
    if (it->rank == root)
        fill_bytes(data, it->count, it->seed, root);
    if (sl_comm_broadcast(it->comm, root, it->count, data) != SL_OK)
        complain(out, "broadcast: %s", sl_status_message());
    else
        expect_bytes(data, it->count, it->seed, root, out);
    free(data);
}

/* A merge that tells the order. */
typedef struct order_record {
    uint32_t count;
    uint32_t ranks[RANKS_MAX];
} order_record;

static void append_order(void *sum, const void *other)
{
    order_record *to = sum;
    const order_record *from = other;
    for (uint32_t i = 0; i < from->count && to->count < RANKS_MAX; i++)
        to->ranks[to->count++] = from->ranks[i];
}

static void check_merge(const comm_case *it, answer *out)
{
    order_record record = {1, {it->rank}};
    if (sl_comm_merge(it->comm, sizeof record, &record, append_order) != SL_OK)
        complain(out, "merge: %s", sl_status_message());
    for (uint32_t i = 0; i < it->size && !out->is_wrong; i++)
        if (record.count != it->size || record.ranks[i] != i)
            complain(out, "merged in another order");
}

/* To the right and from the left, or with one neighbour, or one way only. */
static void check_exchange(const comm_case *it, answer *out)
{
    uint32_t right = (it->rank + 1) % it->size, left = (it->rank + it->size - 1) % it->size;
    bool is_pairs = it->seed % 3 == 0;
    uint32_t twin = it->rank ^ 1;
    sl_comm_exchange_args args = {.to = right, .from = left};
    if (is_pairs)
        args.to = args.from = twin < it->size ? twin : SL_COMM_NOBODY;
    else if (it->seed % 3 == 1) { /* a chain */
        args.to = it->rank + 1 < it->size ? right : SL_COMM_NOBODY;
        args.from = it->rank > 0 ? left : SL_COMM_NOBODY;
    }
    if (it->size == 1)
        args.to = args.from = SL_COMM_NOBODY;
    unsigned char *send = make(it->count, 1, out), *receive = make(it->count, 1, out);
    args.send_bytes = args.receive_bytes = it->count;
    args.send = send;
    args.receive = receive;
    fill_bytes(send, it->count, it->seed, it->rank);
    if (sl_comm_exchange(it->comm, &args) != SL_OK)
        complain(out, "exchange: %s", sl_status_message());
    else if (args.from != SL_COMM_NOBODY)
        expect_bytes(receive, it->count, it->seed, args.from, out);
    free(send);
    free(receive);
}

static void check_barrier(const comm_case *it, answer *out)
{
    if (sl_comm_barrier(it->comm) != SL_OK)
        complain(out, "barrier: %s", sl_status_message());
}

static void (*const checks[])(const comm_case *it, answer *out) = {
    check_all_reduce, check_reduce_scatter, check_gather,   check_all_gather,
    check_broadcast,  check_merge,          check_exchange, check_barrier};

enum { CHECK_COUNT = sizeof checks / sizeof checks[0] };

/* ---- random sequences ---- */

typedef struct sequence {
    uint64_t seed;
    uint32_t calls;
    uint64_t count_most;
} sequence;

/* Sizes around nothing, a line, what is small, a piece, and many. */
static uint64_t draw_count(uint64_t seed, uint64_t index, uint64_t most)
{
    static const uint64_t likely[] = {0, 1, 31, 64, 1024, 4096, 65536};
    uint64_t kind = sl_rng_below(seed, 1, index, 10);
    uint64_t count = kind < 7 ? likely[kind] + sl_rng_below(seed, 2, index, 3)
                              : sl_rng_below(seed, 3, index, most);
    return count < most ? count : most;
}

/* Uneven ones, some of them empty. */
static void draw_starts(comm_case *it)
{
    uint64_t place = 0;
    it->starts[0] = 0;
    for (uint32_t i = 0; i < it->size; i++) {
        uint64_t left = it->count - place, share = it->seed >> (2 * i) & 3;
        place += i + 1 == it->size ? left : share == 0 ? 0 : left / (share + 1);
        it->starts[i + 1] = place;
    }
}

static void run_case(sl_comm *comm, const uint32_t *ranks, const sequence *plan, uint64_t index,
                     answer *out)
{
    uint64_t kind = sl_rng_below(plan->seed, 4, index, CHECK_COUNT);
    comm_case it = {.comm = comm,
                    .ranks = ranks,
                    .seed = sl_rng_below(plan->seed, 5, index, UINT32_MAX),
                    .count = draw_count(plan->seed, index, plan->count_most),
                    .types = type_pairs[sl_rng_below(plan->seed, 6, index, PAIR_COUNT)],
                    .size = sl_comm_size(comm),
                    .rank = sl_comm_rank(comm)};
    draw_starts(&it);
    checks[kind](&it, out);
    if (out->is_wrong) {
        char text[ANSWER_BYTES];
        snprintf(text, sizeof text, "%s", out->text);
        complain(out, "seed %llu, call %llu: %.1200s", (unsigned long long)plan->seed,
                 (unsigned long long)index, text);
    }
}

/* Some ranks are late now and then, each by draws of its own. */
static void run_sequence(sl_comm *world, const void *argument, answer *out)
{
    const sequence *plan = argument;
    uint32_t ranks[RANKS_MAX];
    for (uint32_t i = 0; i < RANKS_MAX; i++)
        ranks[i] = i;
    for (uint64_t i = 0; i < plan->calls && !out->is_wrong; i++) {
        if (sl_rng_below(plan->seed, 100 + sl_comm_rank(world), i, 16) == 0)
            sleep_ms(1);
        run_case(world, ranks, plan, i, out);
    }
}

/* ---- groups ---- */

typedef struct group_plan {
    sl_comm_layout layout;
    sequence calls;
} group_plan;

static void run_groups(sl_comm *world, const void *argument, answer *out)
{
    const group_plan *plan = argument;
    sl_comm *comms[SL_COMM_GROUP_COUNT] = {world};
    uint32_t members[SL_COMM_GROUP_COUNT][RANKS_MAX];
    for (int g = 0; g < SL_COMM_GROUP_COUNT && !out->is_wrong; g++) {
        sl_comm_group_members(&plan->layout, g, sl_comm_rank(world), members[g]);
        if (g > 0 && sl_comm_split(world, sl_comm_group_name(g), members[g],
                                   sl_comm_group_size(&plan->layout, g), &comms[g]) != SL_OK)
            complain(out, "cannot split: %s", sl_status_message());
    }
    for (uint64_t i = 0; i < plan->calls.calls && !out->is_wrong; i++) {
        uint64_t g = sl_rng_below(plan->calls.seed, 9, i, SL_COMM_GROUP_COUNT);
        run_case(comms[g], members[g], &plan->calls, i, out);
    }
    for (int g = 1; g < SL_COMM_GROUP_COUNT; g++)
        sl_comm_close(comms[g]);
}

#endif
