/* See exchange_proof.h.
 *
 * Numbers of a sum are drawn so that no bit of a term can change unseen. With u the last place of 1
 * in the type that travels, the sum of the first k + 1 terms is s_k: of even k in [1, 1.5), of odd
 * k in (-0.5, 0], a multiple of u. So each term s_k - s_(k-1) is a multiple of u of magnitude [1,
 * 2), and no sum rounds. A term with one other bit differs by u at least; rounding is monotonic,
 * and s_k + u and s_k - u are numbers of the type, so no later sum becomes the right one again.
 *
 * Other numbers have sums that round, and show the order of the terms and where they are rounded.
 * Every exchange draws its own, so data of an earlier one are wrong numbers; what an exchange
 * writes holds others before. Memory in front of it and behind it must not change.
 */
#include "exchange_proof.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/half.h"
#include "base/log.h"
#include "comm/nccl.h"
#include "machine/proof_record.h"

enum {
    SMALL = 10007,
    LARGE = 1 << 22,
    ALIGNMENT = 256,
    GUARD = ALIGNMENT,  /* bytes in front of what is exchanged, and behind it */
    SCRATCH_SHARE = 16, /* a piece of scratch is this part of the largest exchange */
    WAYS = 3,           /* of an exchange: up, down, both at once */
    UUID_BYTES = 40,
    HOST_BYTES = 64,
    NAME_BYTES = 160,
    TEXT_BYTES = 640
};

typedef enum exchange_kind { ALL_REDUCE, REDUCE_SCATTER, GATHER, EXCHANGE, KINDS } exchange_kind;

static const char *const kind_names[] = {"all_reduce", "reduce_scatter", "gather", "exchange"};

/* As stored, and as it travels. The first two are those of what is only moved: 4 and 2 bytes. */
static const struct exchange_types {
    sl_type stored, wire;
} all_types[] = {{SL_TYPE_FP32, SL_TYPE_FP32},
                 {SL_TYPE_BF16, SL_TYPE_BF16},
                 {SL_TYPE_FP16, SL_TYPE_FP16},
                 {SL_TYPE_FP32, SL_TYPE_BF16},
                 {SL_TYPE_FP32, SL_TYPE_FP16}};

enum { SUM_TYPES = sizeof all_types / sizeof all_types[0], MOVE_TYPES = 2 };

typedef struct exchange_case {
    exchange_kind kind;
    struct exchange_types types;
    uint64_t elements; /* of all ranks together */
    bool rounds;
    uint64_t number; /* of its draws */
} exchange_case;

/* A rank as messages name it. */
typedef struct member {
    char uuid[UUID_BYTES], host[HOST_BYTES];
} member;

typedef struct finding {
    char text[TEXT_BYTES]; /* "": nothing is wrong */
} finding;

typedef struct exchange_proof {
    sl_ranks *ranks;
    const sl_exchange_proof_args *args;
    member *members; /* [world] */
    sl_gpu_ranks_place gpu;
    uint64_t bytes, scratch_bytes; /* of each of the three; of `there` behind its bytes */
    unsigned char *expected, *found, *there;
    uint64_t case_count;
    finding first;
    /* of the set of ranks that is tested */
    const sl_comm *comm;
    const sl_engine_ranks *device;
    sl_engine_ranks hosts;
} exchange_proof;

/* ---- where things lie: a guard, what goes, what comes, a guard ---- */

static bool is_sum(exchange_kind kind)
{
    return kind == ALL_REDUCE || kind == REDUCE_SCATTER;
}

static uint64_t element_bytes(const exchange_case *it)
{
    return sl_type_bytes(it->types.stored);
}

/* Of a rank's part: odd where there are few. */
static uint64_t part_elements(const exchange_proof *self, const exchange_case *it)
{
    const uint64_t each = it->elements / self->device->size;
    return it->elements == self->args->small_elements ? each | 1 : each;
}

/* Elements that go: of all parts, or of one, or of two neighbours in three ways. */
static uint64_t count_sent(const exchange_proof *self, const exchange_case *it)
{
    const uint64_t part = part_elements(self, it);
    return it->kind == ALL_REDUCE       ? it->elements
           : it->kind == REDUCE_SCATTER ? part * self->device->size
           : it->kind == GATHER         ? part
                                        : part / WAYS * 2 * WAYS;
}

static uint64_t count_received(const exchange_proof *self, const exchange_case *it)
{
    const uint64_t part = part_elements(self, it);
    return it->kind == ALL_REDUCE       ? 0
           : it->kind == REDUCE_SCATTER ? part
           : it->kind == GATHER         ? part * self->device->size
                                        : part / WAYS * 2 * WAYS;
}

/* Behind the first guard, as every place below. */
static uint64_t received_at(const exchange_proof *self, const exchange_case *it)
{
    return sl_bits_round_up(count_sent(self, it) * element_bytes(it), ALIGNMENT);
}

static uint64_t used_bytes(const exchange_proof *self, const exchange_case *it)
{
    return GUARD + received_at(self, it) + count_received(self, it) * element_bytes(it) + GUARD;
}

/* ---- numbers ---- */

static uint64_t draw(const exchange_case *it, uint64_t rank, uint64_t index)
{
    const uint64_t words[] = {it->number, rank, index};
    return sl_hash_64(words, sizeof words);
}

/* s_k of the head, in units of u, of which 1 has `one`. */
static int64_t draw_sum(const exchange_case *it, uint64_t rank, uint64_t index, int64_t one)
{
    const int64_t drawn = (int64_t)(draw(it, rank, index) % (uint64_t)(one / 2));
    return rank % 2 == 0 ? one + drawn : -drawn;
}

static float draw_exact(const exchange_case *it, uint64_t rank, uint64_t index)
{
    const int64_t one = it->types.wire == SL_TYPE_FP32   ? 1 << 23
                        : it->types.wire == SL_TYPE_FP16 ? 1 << 10
                                                         : 1 << 7;
    const int64_t before = rank > 0 ? draw_sum(it, rank - 1, index, one) : 0;
    return (float)(draw_sum(it, rank, index, one) - before) / (float)one;
}

/* Of eight magnitudes. */
static float draw_rounded(const exchange_case *it, uint64_t rank, uint64_t index)
{
    const uint64_t drawn = draw(it, rank, index);
    return (float)(int32_t)(uint32_t)drawn * 0x1p-31f * (float)(1 << (drawn >> 32 & 7));
}

static void store(sl_type type, unsigned char *to, float value)
{
    const uint16_t half = type == SL_TYPE_BF16 ? sl_half_to_bf16(value) : sl_half_to_fp16(value);
    if (type == SL_TYPE_FP32)
        memcpy(to, &value, sizeof value);
    else
        memcpy(to, &half, sizeof half);
}

/* Any bits, of 4 bytes each and of what is left. */
static void fill_bytes(const exchange_case *it, uint64_t rank, uint64_t first, uint64_t end,
                       unsigned char *memory)
{
    for (uint64_t at = first; at < end; at += sizeof(uint32_t)) {
        const uint32_t drawn = (uint32_t)draw(it, rank, at);
        memcpy(memory + at, &drawn, sl_bits_min(end - at, sizeof drawn));
    }
}

static void fill(const exchange_proof *self, const exchange_case *it)
{
    const uint64_t rank = self->device->rank, each = element_bytes(it);
    const uint64_t count = is_sum(it->kind) ? count_sent(self, it) : 0;
    fill_bytes(it, rank, 0, GUARD, self->expected);
    for (uint64_t i = 0; i < count; i++)
        store(it->types.stored, self->expected + GUARD + i * each,
              it->rounds ? draw_rounded(it, rank, i) : draw_exact(it, rank, i));
    fill_bytes(it, rank, GUARD + count * each, used_bytes(self, it), self->expected);
}

/* ---- exchanges: the same on either table, of memory that is laid out alike ---- */

/* With one neighbour: up, down, and both at once. */
static sl_status exchange_with(const exchange_proof *self, const sl_engine_ranks *table,
                               const exchange_case *it, uint32_t peer, unsigned char *data)
{
    const bool is_above = peer > table->rank;
    const uint64_t bytes = part_elements(self, it) / WAYS * element_bytes(it);
    unsigned char *sent = data + (is_above ? WAYS * bytes : 0);
    unsigned char *received = sent + received_at(self, it);
    for (uint64_t way = 0; way < WAYS; way++) {
        const bool sends = way == 2 || (way == 0) == is_above, receives = way == 2 || !sends;
        SL_TRY(table->exchange(table->user, peer, bytes, sends ? sent + way * bytes : NULL,
                               receives ? received + way * bytes : NULL));
    }
    return SL_OK;
}

/* Ranks 0 and 1, 2 and 3, ... at the same time, then those between. */
static sl_status exchange_with_both(const exchange_proof *self, const sl_engine_ranks *table,
                                    const exchange_case *it, unsigned char *data)
{
    for (uint32_t turn = 0; turn < 2; turn++) {
        const bool is_up = table->rank % 2 == turn;
        const uint32_t peer = is_up ? table->rank + 1 : table->rank - 1; /* none below 0 */
        if (peer < table->size)
            SL_TRY(exchange_with(self, table, it, peer, data));
    }
    return SL_OK;
}

static sl_status call(const exchange_proof *self, const sl_engine_ranks *table,
                      const exchange_case *it, unsigned char *memory)
{
    const uint64_t part = part_elements(self, it);
    unsigned char *data = memory + GUARD, *received = data + received_at(self, it);
    switch (it->kind) {
    case ALL_REDUCE:
        return table->all_reduce(table->user, it->types.stored, it->types.wire, it->elements, data);
    case REDUCE_SCATTER:
        return table->reduce_scatter(table->user, it->types.stored, it->types.wire, part, data,
                                     received);
    case GATHER:
        return table->all_gather(table->user, part * element_bytes(it), data, received);
    default:
        return exchange_with_both(self, table, it, data);
    }
}

static sl_status copy(const exchange_proof *self, void *to, const void *from, uint64_t bytes)
{
    SL_TRY(self->gpu.ops->copy(self->gpu.stream, 0, to, from, bytes));
    return self->gpu.ops->stream_finish(self->gpu.stream);
}

static sl_status run_on_device(const exchange_proof *self, const exchange_case *it)
{
    const uint64_t bytes = used_bytes(self, it);
    memcpy(self->found, self->expected, bytes);
    SL_TRY(copy(self, self->there, self->found, bytes));
    SL_TRY(call(self, self->device, it, self->there));
    SL_TRY(copy(self, self->found, self->there, bytes));
    return self->device->poll(self->device->user);
}

/* ---- what is wrong ---- */

/* Elements that differ: of all that went and came, and of the guards. */
typedef struct difference {
    uint64_t count;
    int64_t first, last;      /* behind the first guard */
    uint32_t found, expected; /* bits of the first */
} difference;

static uint32_t read_bits(const unsigned char *at, uint64_t bytes)
{
    uint32_t word = 0;
    uint16_t half;
    if (bytes == sizeof word) {
        memcpy(&word, at, sizeof word);
        return word;
    }
    memcpy(&half, at, sizeof half);
    return half;
}

static difference compare(const exchange_proof *self, const exchange_case *it)
{
    const uint64_t each = element_bytes(it), end = used_bytes(self, it) / each;
    difference out = {0};
    for (uint64_t i = 0; i < end; i++) {
        const uint32_t found = read_bits(self->found + i * each, each);
        const uint32_t expected = read_bits(self->expected + i * each, each);
        if (found == expected)
            continue;
        const int64_t at = (int64_t)i - (int64_t)(GUARD / each);
        if (out.count++ == 0)
            out = (difference){1, at, at, found, expected};
        out.last = at;
    }
    return out;
}

static void name_rank(const exchange_proof *self, uint32_t rank, char out_text[NAME_BYTES])
{
    const uint32_t number = sl_comm_member(self->comm, rank);
    const member *it = &self->members[number];
    snprintf(out_text, NAME_BYTES, "rank %" PRIu32 " (GPU %s on %s)", number,
             *it->uuid ? it->uuid : "of unknown UUID", it->host);
}

/* Ranks of the world, as many as there is room for. */
static void list_ranks(const exchange_proof *self, char out_text[NAME_BYTES])
{
    size_t length = 0;
    for (uint32_t i = 0; i < self->device->size && length < NAME_BYTES - 24; i++)
        length += (size_t)snprintf(out_text + length, NAME_BYTES - length, "%s%" PRIu32,
                                   i > 0 ? ", " : "", sl_comm_member(self->comm, i));
    if (length >= NAME_BYTES - 24)
        snprintf(out_text + length, NAME_BYTES - length, ", ...");
}

/* Which element of what came; below 0 what went, and what is beside both. */
static int64_t place_received(const exchange_proof *self, const exchange_case *it, int64_t element)
{
    const int64_t place = element - (int64_t)(received_at(self, it) / element_bytes(it));
    return place < (int64_t)count_received(self, it) ? place : -1;
}

/* The rank whose data an element should be. This rank if the element is a sum of several ranks, or
 * if nothing should have changed it. */
static uint32_t find_source(const exchange_proof *self, const exchange_case *it, int64_t element)
{
    const int64_t place = place_received(self, it, element);
    const uint64_t part = part_elements(self, it), at = (uint64_t)place;
    const uint32_t rank = self->device->rank;
    if (is_sum(it->kind) || place < 0)
        return rank;
    if (it->kind == GATHER)
        return (uint32_t)(at / sl_bits_max(part, 1));
    const uint64_t each = sl_bits_max(part / WAYS, 1);
    const bool is_below = at < each * WAYS;
    if (is_below ? rank == 0 : rank + 1 == self->device->size)
        return rank; /* no neighbour there */
    const uint64_t way = (is_below ? at : at - each * WAYS) / each;
    if (way == (is_below ? 1 : 0))
        return rank; /* the way in which this rank only sends */
    return is_below ? rank - 1 : rank + 1;
}

static void describe(const exchange_proof *self, const exchange_case *it, const difference *what,
                     char out_text[TEXT_BYTES])
{
    char ranks[NAME_BYTES], own[NAME_BYTES], source[NAME_BYTES], from[NAME_BYTES + 8] = "";
    const int64_t part = (int64_t)(received_at(self, it) / element_bytes(it));
    const bool is_sent = what->first >= 0 && what->first < (int64_t)count_sent(self, it);
    const bool is_beside = !is_sent && place_received(self, it, what->first) < 0;
    const int64_t first = it->kind != ALL_REDUCE && what->first >= part ? part : 0;
    const uint32_t who = find_source(self, it, what->first);
    list_ranks(self, ranks);
    name_rank(self, self->device->rank, own);
    name_rank(self, who, source);
    if (who != self->device->rank)
        snprintf(from, sizeof from, ", from %s,", source);
    snprintf(out_text, TEXT_BYTES,
             "%s of %" PRIu64 " elements in %s%s%s among ranks %s: wrong on %s: %" PRIu64
             " elements%s, numbers %" PRId64 " to %" PRId64 "; the first%s has the bits 0x%" PRIx32
             " and not 0x%" PRIx32,
             kind_names[it->kind], it->elements, sl_type_name(it->types.wire),
             it->types.stored == it->types.wire ? "" : " of ",
             it->types.stored == it->types.wire ? "" : sl_type_name(it->types.stored), ranks, own,
             what->count,
             is_beside                           ? " beside what is exchanged"
             : is_sent && it->kind != ALL_REDUCE ? " of what is only sent"
                                                 : "",
             what->first - first, what->last - first, from, what->found, what->expected);
}

static sl_status prove_case(exchange_proof *self, exchange_case it)
{
    it.number = self->case_count++ * SL_COMM_RANKS_MAX + sl_comm_member(self->comm, 0);
    fill(self, &it);
    SL_TRY(run_on_device(self, &it));
    SL_TRY(call(self, &self->hosts, &it, self->expected));
    const difference what = compare(self, &it);
    if (what.count > 0 && !*self->first.text)
        describe(self, &it, &what, self->first.text);
    return SL_OK;
}

/* ---- one set of ranks ---- */

/* The test goes on after a wrong answer, because the other ranks do not know of it. */
static sl_status prove_all(exchange_proof *self, uint64_t elements, bool rounds)
{
    for (int kind = 0; kind < KINDS; kind++) {
        const int types = is_sum((exchange_kind)kind) ? SUM_TYPES : rounds ? 0 : MOVE_TYPES;
        for (int i = 0; i < types; i++)
            SL_TRY(prove_case(self, (exchange_case){.kind = (exchange_kind)kind,
                                                    .types = all_types[i],
                                                    .elements = elements,
                                                    .rounds = rounds}));
    }
    return SL_OK;
}

static sl_status prove_group(exchange_proof *self, sl_comm_group group,
                             const sl_engine_ranks *device)
{
    const sl_exchange_proof_args *args = self->args;
    if (device->size == 0)
        return SL_OK;
    self->comm = self->ranks->end[group].comm;
    self->device = device;
    self->hosts = sl_ranks_make_table(&self->ranks->end[group]);
    device->use(device->user, &(sl_engine_queue){self->gpu.ops->stream_native(self->gpu.stream),
                                                 self->there + self->bytes, self->scratch_bytes});
    SL_TRY(prove_all(self, args->small_elements, false));
    SL_TRY(prove_all(self, args->large_elements, false));
    return args->is_exact ? SL_OK : prove_all(self, args->small_elements, true);
}

static sl_status prove_groups(exchange_proof *self)
{
    sl_ranks *ranks = self->ranks;
    SL_TRY(prove_group(self, SL_COMM_TENSOR, &ranks->tensor));
    SL_TRY(prove_group(self, SL_COMM_DATA, &ranks->data));
    return prove_group(self, SL_COMM_STAGES, &ranks->stages);
}

/* ---- memory ---- */

/* What goes and what comes are as large as all parts at most, with one element more each, between
 * guards. */
static sl_status take_memory(exchange_proof *self)
{
    const sl_device_ops *ops = self->gpu.ops;
    const uint64_t world = self->ranks->table.size;
    const uint64_t most = sl_bits_max(self->args->small_elements, self->args->large_elements);
    const uint64_t side = sl_bits_round_up((most + world) * sizeof(float), ALIGNMENT);
    self->bytes = 2 * (side + GUARD);
    self->scratch_bytes = 2 * world * sl_bits_round_up(side / SCRATCH_SHARE, ALIGNMENT);
    self->expected = malloc(self->bytes);
    if (!self->expected)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a self-test");
    SL_TRY(ops->map_host(self->gpu.device, self->bytes, SL_MAP_PLAIN, (void **)&self->found));
    return ops->map(self->gpu.device, self->bytes + self->scratch_bytes, SL_MAP_PLAIN,
                    (void **)&self->there);
}

static void give_memory(const exchange_proof *self)
{
    const sl_device_ops *ops = self->gpu.ops;
    if (self->there)
        ops->unmap(self->gpu.device, self->there, self->bytes + self->scratch_bytes, SL_MAP_PLAIN);
    if (self->found)
        ops->unmap_host(self->gpu.device, self->found, self->bytes, SL_MAP_PLAIN);
    free(self->expected);
}

/* ---- whose record it is ---- */

static sl_status find_members(exchange_proof *self, sl_device_info *out_info)
{
    member mine = {0};
    SL_TRY(self->gpu.ops->describe(self->gpu.device, out_info));
    snprintf(mine.uuid, sizeof mine.uuid, "%s", out_info->uuid);
    if (gethostname(mine.host, sizeof mine.host - 1) != 0)
        snprintf(mine.host, sizeof mine.host, "an unknown host");
    self->members = calloc(self->ranks->table.size, sizeof *self->members);
    if (!self->members)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the ranks of a self-test");
    return sl_comm_all_gather(self->ranks->world, sizeof mine, &mine, self->members);
}

/* The record names the layout, because another layout has other communicators. */
static sl_status identify(const exchange_proof *self, const sl_device_info *info,
                          sl_exchange_record *out_record)
{
    const sl_nccl_calls *nccl;
    const sl_comm_layout *layout = &self->ranks->layout;
    const uint32_t shape[] = {layout->tensor, layout->data, layout->stages};
    sl_hash_stream *stream;
    int version = 0;
    bool is_known = true;
    SL_TRY(sl_nccl_load(&nccl));
    SL_TRY(sl_hash_open(&stream));
    sl_hash_update(stream, shape, sizeof shape);
    for (uint32_t i = 0; i < self->ranks->table.size; i++) {
        is_known &= *self->members[i].uuid != '\0';
        sl_hash_update(stream, self->members[i].uuid, UUID_BYTES);
    }
    const sl_hash_value hash = sl_hash_digest(stream);
    sl_hash_close(stream);
    if (nccl->get_version(&version) != SL_NCCL_SUCCESS)
        version = 0;
    sl_exchange_record_init(info, is_known ? &hash : NULL, version, out_record);
    return SL_OK;
}

/* The first rank's answer, for all. */
static sl_status ask(const exchange_proof *self, sl_exchange_record *record, bool *out_is_wanted)
{
    uint64_t is_wanted = 0;
    const uint32_t mode = self->args->mode;
    if (mode == SL_CONFIG_SELF_TEST_AUTO)
        sl_exchange_record_find(record);
    is_wanted = mode == SL_CONFIG_SELF_TEST_FORCE ||
                (mode == SL_CONFIG_SELF_TEST_AUTO && record->part.outcome != SL_PROOF_PASSED);
    SL_TRY(sl_ranks_take_first(self->ranks, &is_wanted, 1));
    *out_is_wanted = is_wanted != 0;
    return SL_OK;
}

/* ---- all ---- */

/* The first finding becomes that of all ranks. */
static sl_status share_finding(exchange_proof *self)
{
    const uint32_t size = self->ranks->table.size;
    finding *all = calloc(size, sizeof *all);
    if (!all)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for what %" PRIu32 " ranks found", size);
    const sl_status status =
        sl_comm_all_gather(self->ranks->world, sizeof self->first, &self->first, all);
    for (uint32_t i = size; status == SL_OK && i-- > 0;)
        if (*all[i].text)
            self->first = all[i];
    free(all);
    return status;
}

static void keep(const exchange_proof *self, sl_exchange_record *record, double seconds)
{
    const bool is_wrong = *self->first.text != '\0';
    record->part = (sl_proof_part){.outcome = is_wrong ? SL_PROOF_FAILED : SL_PROOF_PASSED,
                                   .seconds = seconds};
    snprintf(record->part.text, sizeof record->part.text, "%.*s", (int)sizeof record->part.text - 1,
             is_wrong ? self->first.text : "every exchange has the hosts' bits");
    if (sl_exchange_record_save(record) != SL_OK)
        sl_log_write(SL_LOG_WARNING,
                     "the result of the self-test of NCCL is not kept, so each run tests again: %s",
                     sl_status_message());
    if (!is_wrong && !self->args->is_quiet)
        sl_log_write(SL_LOG_NOTE, "self-test of %s: no wrong answer, in %.1f s", record->nccl,
                     seconds);
}

static sl_status prove(exchange_proof *self, sl_exchange_record *record)
{
    const bool is_first = sl_ranks_is_first(self->ranks);
    const uint64_t start_ns = sl_clock_now_ns();
    bool lacks_memory = false;
    if (is_first && !self->args->is_quiet)
        sl_log_write(SL_LOG_NOTE,
                     "self-test of what %" PRIu32 " GPUs exchange over %s, %s: some seconds "
                     "(--self-test off leaves it out)",
                     self->ranks->table.size, record->nccl,
                     self->args->mode == SL_CONFIG_SELF_TEST_FORCE
                         ? "as asked for"
                         : "not tested yet with this driver and this build");
    SL_TRY(sl_ranks_vote(self->ranks, take_memory(self) != SL_OK, &lacks_memory));
    if (lacks_memory) {
        if (is_first)
            sl_log_write(SL_LOG_WARNING,
                         "self-test of %s: not tested: a rank has too little "
                         "memory for it; tried again next time",
                         record->nccl);
        return SL_OK;
    }
    SL_TRY(prove_groups(self));
    SL_TRY(share_finding(self));
    if (is_first)
        keep(self, record, 1e-9 * (double)(sl_clock_now_ns() - start_ns));
    if (!*self->first.text)
        return SL_OK;
    SL_FAIL(SL_ERROR_SYSTEM,
            "the self-test of %s failed: %s; --device cpu works without it, and --self-test off "
            "goes on all the same",
            record->nccl, self->first.text);
}

sl_exchange_proof_args sl_exchange_proof_choose(const sl_config *config)
{
    return (sl_exchange_proof_args){.mode = config->self_test_mode,
                                    .is_quiet = config->quiet,
                                    .small_elements = SMALL,
                                    .large_elements = LARGE};
}

sl_status sl_exchange_proof_run(sl_ranks *ranks, const sl_exchange_proof_args *args)
{
    exchange_proof self = {.ranks = ranks, .args = args};
    sl_exchange_record record;
    sl_device_info info;
    bool is_wanted = false;
    if (!ranks->gpus)
        return SL_OK;
    self.gpu = sl_gpu_ranks_place_of(ranks->gpus);
    sl_status status = find_members(&self, &info);
    if (status == SL_OK)
        status = identify(&self, &info, &record);
    if (status == SL_OK)
        status = ask(&self, &record, &is_wanted);
    if (status == SL_OK && is_wanted)
        status = prove(&self, &record);
    give_memory(&self);
    free(self.members);
    return status;
}
