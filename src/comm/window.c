/* Slots, halves and channels; window.h has the rule that keeps them apart in time. */
#define _GNU_SOURCE
#include "window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

enum {
    LINE_BYTES = 128,
    HALF_BYTES = 2 << 20, /* of all pieces of a rank together, in a pass: stays in the cache */
    PIECE_BYTES_MIN = 4096,
    CHANNEL_PARTS = 2,
    CHANNEL_PART_BYTES = 128 << 10
};

typedef struct slot {
    _Alignas(LINE_BYTES) _Atomic uint32_t arrived; /* passes begun */
    _Atomic uint32_t arrived_sleepers;
    _Alignas(LINE_BYTES) _Atomic uint32_t bell; /* changes when a channel of this rank does */
    _Atomic uint32_t bell_sleepers;
    sl_window_sign signs[2]; /* of the last two passes, as the halves */
} slot;

typedef struct channel {
    _Alignas(LINE_BYTES) _Atomic uint32_t filled;
    _Alignas(LINE_BYTES) _Atomic uint32_t drained;
    uint64_t message_bytes[CHANNEL_PARTS];
    uint64_t part_bytes[CHANNEL_PARTS];
    _Alignas(LINE_BYTES) unsigned char parts[CHANNEL_PARTS][CHANNEL_PART_BYTES];
} channel;

struct sl_window {
    sl_board *board;
    const char *name;
    uint32_t member_count, member;
    const uint32_t *local;
    uint64_t offset, channels_offset;
    slot *slots;
    unsigned char *halves;
    channel *channels; /* [from][to] */
    uint64_t half_bytes;
    uint32_t pass_count;
    bool *is_taken; /* [member_count]: the channel to it is */
};

/* ---- layout ---- */

uint64_t sl_window_piece_bytes(uint32_t member_count)
{
    uint64_t share = (uint64_t)HALF_BYTES / member_count / 64 * 64;
    return share > PIECE_BYTES_MIN ? share : PIECE_BYTES_MIN;
}

static uint64_t half_bytes_of(uint32_t member_count)
{
    return sl_bits_round_up(member_count * sl_window_piece_bytes(member_count), 4096);
}

static uint64_t slots_bytes_of(uint32_t member_count)
{
    return sl_bits_round_up(member_count * sizeof(slot), 4096);
}

static uint64_t passes_bytes_of(uint32_t member_count)
{
    return slots_bytes_of(member_count) + 2ull * member_count * half_bytes_of(member_count);
}

uint64_t sl_window_taken_bytes(uint32_t member_count, uint32_t local_count)
{
    return slots_bytes_of(member_count) + 2ull * local_count * half_bytes_of(member_count);
}

uint64_t sl_window_bytes(uint32_t member_count)
{
    uint64_t pairs = (uint64_t)member_count * member_count;
    return passes_bytes_of(member_count) + sl_bits_round_up(pairs * sizeof(channel), 4096);
}

static void lay_out(sl_window *window)
{
    uint64_t slots_bytes = slots_bytes_of(window->member_count);
    window->half_bytes = half_bytes_of(window->member_count);
    window->channels_offset = window->offset + passes_bytes_of(window->member_count);
    window->slots = sl_board_memory(window->board, window->offset);
    window->halves = sl_board_memory(window->board, window->offset + slots_bytes);
    window->channels = sl_board_memory(window->board, window->channels_offset);
}

/* The slots, and this rank's halves. */
static sl_status take_memory(const sl_window *window)
{
    uint64_t slots_bytes = slots_bytes_of(window->member_count);
    uint64_t mine = window->offset + slots_bytes + 2ull * window->member * window->half_bytes;
    SL_TRY(sl_board_take(window->board, window->offset, slots_bytes));
    return sl_board_take(window->board, mine, 2 * window->half_bytes);
}

sl_status sl_window_open(const sl_window_args *args, sl_window **out_window)
{
    sl_window *window = calloc(1, sizeof *window);
    if (window)
        window->is_taken = calloc(args->member_count, sizeof *window->is_taken);
    if (!window || !window->is_taken) {
        free(window);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a communicator");
    }
    window->board = args->board;
    window->name = args->name;
    window->offset = args->offset;
    window->member_count = args->member_count;
    window->member = args->member;
    window->local = args->local;
    lay_out(window);
    sl_status status = take_memory(window);
    if (status != SL_OK)
        sl_window_close(window);
    else
        *out_window = window;
    return status;
}

void sl_window_close(sl_window *window)
{
    if (!window)
        return;
    free(window->is_taken);
    free(window);
}

/* ---- passes ---- */

static unsigned char *half_of(const sl_window *window, uint32_t member, uint32_t pass)
{
    return window->halves + (2ull * member + (pass & 1)) * window->half_bytes;
}

void *sl_window_place(const sl_window *window, uint32_t member)
{
    return half_of(window, window->member, window->pass_count) +
           member * sl_window_piece_bytes(window->member_count);
}

void sl_window_arrive(sl_window *window, const sl_window_sign *sign)
{
    slot *own = &window->slots[window->member];
    own->signs[window->pass_count & 1] = *sign;
    sl_board_wake(&own->arrived, &own->arrived_sleepers);
}

/* Pass p is begun by a rank when its count is above p; counts wrap round. */
static bool has_come(uint32_t arrived, uint32_t pass)
{
    return (int32_t)(arrived - pass) > 0;
}

static sl_status wait_for_member(sl_window *window, uint32_t member, const char *op)
{
    slot *it = &window->slots[member];
    sl_board_patience patience = {0};
    for (;;) {
        uint32_t arrived = atomic_load_explicit(&it->arrived, memory_order_acquire);
        if (has_come(arrived, window->pass_count))
            return SL_OK;
        sl_board_wait wait = {.comm = window->name,
                              .op = op,
                              .local_index = window->local[member],
                              .word = &it->arrived,
                              .sleepers = &it->arrived_sleepers,
                              .seen = arrived};
        SL_TRY(sl_board_sleep(window->board, &patience, &wait));
    }
}

static sl_status refuse_sign(sl_window *window, const char *op, uint32_t member)
{
    const sl_window_sign *mine = &window->slots[window->member].signs[window->pass_count & 1];
    const sl_window_sign *theirs = &window->slots[member].signs[window->pass_count & 1];
    char who[256], text[SL_STATUS_MESSAGE_BYTES];
    sl_board_describe(window->board, window->local[member], who, sizeof who);
    snprintf(
        text, sizeof text,
        "ranks call different things in %s: %s of %llu elements, type %x, as call %llu here, but "
        "operation %u of %llu elements, type %x, as call %llu in %s",
        window->name, op, (unsigned long long)mine->count, mine->types,
        (unsigned long long)mine->call, theirs->op, (unsigned long long)theirs->count,
        theirs->types, (unsigned long long)theirs->call, who);
    sl_board_end(window->board, SL_ERROR_INTERNAL, text);
    return sl_board_poll(window->board);
}

sl_status sl_window_wait(sl_window *window, const char *op)
{
    uint32_t parity = window->pass_count & 1;
    const sl_window_sign *mine = &window->slots[window->member].signs[parity];
    SL_TRY(sl_board_poll(window->board));
    for (uint32_t i = 0; i < window->member_count; i++) {
        if (i == window->member || window->local[i] == UINT32_MAX)
            continue;
        SL_TRY(wait_for_member(window, i, op));
        if (memcmp(mine, &window->slots[i].signs[parity], sizeof *mine) != 0)
            return refuse_sign(window, op, i);
    }
    window->pass_count++;
    return SL_OK;
}

const void *sl_window_half(const sl_window *window, uint32_t member)
{
    return half_of(window, member, window->pass_count - 1);
}

/* ---- channels ---- */

/* One direction of an exchange. */
typedef struct flow {
    channel *channel;
    uint32_t peer;
    uint64_t done_bytes, total_bytes;
    bool is_over;
} flow;

static channel *channel_of(const sl_window *window, uint32_t from, uint32_t to)
{
    return &window->channels[(uint64_t)from * window->member_count + to];
}

/* The memory of a channel is taken by the rank that first sends through it. */
static sl_status take_channel(sl_window *window, uint32_t to)
{
    if (window->is_taken[to])
        return SL_OK;
    uint64_t index = (uint64_t)window->member * window->member_count + to;
    uint64_t offset = window->channels_offset + index * sizeof(channel);
    SL_TRY(sl_board_take(window->board, offset, sizeof(channel)));
    window->is_taken[to] = true;
    return SL_OK;
}

static void ring(sl_window *window, uint32_t member)
{
    slot *it = &window->slots[member];
    sl_board_wake(&it->bell, &it->bell_sleepers);
}

/* Sends a part if there is room; true if so. An empty message is one empty part. */
static bool fill(sl_window *window, flow *out, const void *data)
{
    channel *it = out->channel;
    uint32_t filled = atomic_load_explicit(&it->filled, memory_order_relaxed);
    if (filled - atomic_load_explicit(&it->drained, memory_order_acquire) == CHANNEL_PARTS)
        return false;
    uint64_t left = out->total_bytes - out->done_bytes;
    uint64_t bytes = left < CHANNEL_PART_BYTES ? left : CHANNEL_PART_BYTES;
    uint32_t part = filled % CHANNEL_PARTS;
    it->message_bytes[part] = out->total_bytes;
    it->part_bytes[part] = bytes;
    if (bytes > 0)
        memcpy(it->parts[part], (const char *)data + out->done_bytes, bytes);
    atomic_store_explicit(&it->filled, filled + 1, memory_order_release);
    out->done_bytes += bytes;
    out->is_over = out->done_bytes == out->total_bytes;
    ring(window, out->peer);
    return true;
}

static sl_status refuse_message(sl_window *window, const flow *in, uint64_t bytes)
{
    char who[256], text[SL_STATUS_MESSAGE_BYTES];
    sl_board_describe(window->board, window->local[in->peer], who, sizeof who);
    snprintf(
        text, sizeof text,
        "ranks exchange different things in %s: %llu bytes are awaited from %s, which sends %llu",
        window->name, (unsigned long long)in->total_bytes, who, (unsigned long long)bytes);
    sl_board_end(window->board, SL_ERROR_INTERNAL, text);
    return sl_board_poll(window->board);
}

/* Takes a part if there is one. */
static sl_status drain(sl_window *window, flow *in, void *data, bool *out_has_moved)
{
    channel *it = in->channel;
    uint32_t drained = atomic_load_explicit(&it->drained, memory_order_relaxed);
    *out_has_moved = atomic_load_explicit(&it->filled, memory_order_acquire) != drained;
    if (!*out_has_moved)
        return SL_OK;
    uint32_t part = drained % CHANNEL_PARTS;
    uint64_t bytes = it->part_bytes[part];
    if (it->message_bytes[part] != in->total_bytes || bytes > in->total_bytes - in->done_bytes)
        return refuse_message(window, in, it->message_bytes[part]);
    if (bytes > 0)
        memcpy((char *)data + in->done_bytes, it->parts[part], bytes);
    atomic_store_explicit(&it->drained, drained + 1, memory_order_release);
    in->done_bytes += bytes;
    in->is_over = in->done_bytes == in->total_bytes;
    ring(window, in->peer);
    return SL_OK;
}

static flow open_flow(const sl_window *window, uint32_t peer, uint64_t bytes, bool is_out)
{
    if (peer == SL_COMM_NOBODY)
        return (flow){.is_over = true};
    uint32_t self = window->member;
    channel *it = is_out ? channel_of(window, self, peer) : channel_of(window, peer, self);
    return (flow){.channel = it, .peer = peer, .total_bytes = bytes};
}

void sl_window_bell(const sl_window *window, _Atomic uint32_t **out_word,
                    _Atomic uint32_t **out_sleepers)
{
    slot *own = &window->slots[window->member];
    *out_word = &own->bell;
    *out_sleepers = &own->bell_sleepers;
}

/* An exchange: two ways within the machine, and what goes beside. */
typedef struct exchange {
    const sl_comm_exchange_args *args;
    const sl_window_beside *beside;
    flow out, in;
    bool is_beside_over;
} exchange;

static sl_status move_some(sl_window *window, exchange *it, sl_board_patience *patience,
                           bool *out_has_moved)
{
    bool has_sent = !it->out.is_over && fill(window, &it->out, it->args->send);
    bool has_received = false, has_moved = false;
    if (!it->in.is_over)
        SL_TRY(drain(window, &it->in, it->args->receive, &has_received));
    if (!it->is_beside_over)
        SL_TRY(it->beside->step(it->beside->user, patience, &has_moved, &it->is_beside_over));
    *out_has_moved = has_sent || has_received || has_moved;
    return SL_OK;
}

/* Whom it waits for on this machine, or nobody. */
static uint32_t awaited(const sl_window *window, const exchange *it)
{
    if (!it->in.is_over)
        return window->local[it->in.peer];
    return it->out.is_over ? UINT32_MAX : window->local[it->out.peer];
}

sl_status sl_window_exchange(sl_window *window, const sl_comm_exchange_args *args,
                             const sl_window_beside *beside)
{
    exchange it = {.args = args, .beside = beside, .is_beside_over = !beside};
    slot *own = &window->slots[window->member];
    sl_board_patience patience = {0};
    it.out = open_flow(window, args->to, args->send_bytes, true);
    it.in = open_flow(window, args->from, args->receive_bytes, false);
    SL_TRY(sl_board_poll(window->board));
    if (!it.out.is_over)
        SL_TRY(take_channel(window, args->to));
    while (!it.out.is_over || !it.in.is_over || !it.is_beside_over) {
        bool has_moved;
        uint32_t bell = atomic_load_explicit(&own->bell, memory_order_acquire);
        SL_TRY(move_some(window, &it, &patience, &has_moved));
        if (has_moved) {
            patience = (sl_board_patience){0};
            continue;
        }
        sl_board_wait wait = {.comm = window->name,
                              .op = "exchange",
                              .local_index = awaited(window, &it),
                              .word = &own->bell,
                              .sleepers = &own->bell_sleepers,
                              .seen = bell};
        SL_TRY(sl_board_sleep(window->board, &patience, &wait));
    }
    return SL_OK;
}
