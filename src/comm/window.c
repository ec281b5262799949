/* Slots and halves; window.h has the rule that keeps them apart in time. */
#define _GNU_SOURCE
#include "window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

enum {
    LINE_BYTES = 128,
    HALF_BYTES = 2 << 20, /* of all pieces of a rank together, in a pass: stays in the cache */
    PIECE_BYTES_MIN = 4096
};

typedef struct slot {
    _Alignas(LINE_BYTES) _Atomic uint32_t arrived; /* passes begun */
    _Atomic uint32_t arrived_sleepers;
    _Alignas(LINE_BYTES) _Atomic uint32_t bell; /* changes when a message has come */
    _Atomic uint32_t bell_sleepers;
    sl_window_sign signs[2]; /* of the last two passes, as the halves */
} slot;

struct sl_window {
    sl_board *board;
    const char *name;
    uint32_t member_count, member;
    const uint32_t *local;
    uint64_t offset, half_bytes, piece_bytes;
    slot *slots;
    unsigned char *halves;
    uint32_t pass_count;
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

static uint64_t pair_bytes(void)
{
    return slots_bytes_of(2) + 4ull * SL_WINDOW_PAIR_BYTES;
}

uint64_t sl_window_bytes(uint32_t member_count)
{
    const uint64_t pairs = (uint64_t)member_count * (member_count - 1) / 2;
    return passes_bytes_of(member_count) + pairs * pair_bytes();
}

uint64_t sl_window_find_pair(uint64_t offset, uint32_t member_count, uint32_t member,
                             uint32_t other)
{
    const uint64_t low = member < other ? member : other, high = member < other ? other : member;
    return offset + passes_bytes_of(member_count) + (high * (high - 1) / 2 + low) * pair_bytes();
}

static void lay_out(sl_window *window, bool is_of_pair)
{
    const uint32_t count = window->member_count;
    window->half_bytes = is_of_pair ? SL_WINDOW_PAIR_BYTES : half_bytes_of(count);
    window->piece_bytes = is_of_pair ? SL_WINDOW_PAIR_BYTES / 2 : sl_window_piece_bytes(count);
    window->slots = sl_board_memory(window->board, window->offset);
    window->halves = sl_board_memory(window->board, window->offset + slots_bytes_of(count));
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
    if (!window)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a communicator");
    window->board = args->board;
    window->name = args->name;
    window->offset = args->offset;
    window->member_count = args->member_count;
    window->member = args->member;
    window->local = args->local;
    lay_out(window, args->is_of_pair);
    sl_status status = take_memory(window);
    if (status != SL_OK)
        sl_window_close(window);
    else
        *out_window = window;
    return status;
}

void sl_window_close(sl_window *window)
{
    free(window);
}

/* ---- passes ---- */

static unsigned char *half_of(const sl_window *window, uint32_t member, uint32_t pass)
{
    return window->halves + (2ull * member + (pass & 1)) * window->half_bytes;
}

void *sl_window_place(const sl_window *window, uint32_t member)
{
    return half_of(window, window->member, window->pass_count) + member * window->piece_bytes;
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

sl_status sl_window_refuse(sl_board *board, const char *comm, const sl_window_sign *mine,
                           const sl_window_sign *theirs, const char *who)
{
    char text[SL_STATUS_MESSAGE_BYTES];
    snprintf(text, sizeof text,
             "ranks call different things in %s: %.15s of %llu elements, type %llx, as call %llu "
             "here, but %.15s of %llu elements, type %llx, as call %llu in %s",
             comm, mine->op, (unsigned long long)mine->count, (unsigned long long)mine->types,
             (unsigned long long)mine->call, theirs->op, (unsigned long long)theirs->count,
             (unsigned long long)theirs->types, (unsigned long long)theirs->call, who);
    sl_board_end(board, SL_ERROR_INTERNAL, text);
    return sl_board_poll(board);
}

sl_status sl_window_wait(sl_window *window)
{
    char who[256];
    uint32_t parity = window->pass_count & 1;
    const sl_window_sign *mine = &window->slots[window->member].signs[parity];
    SL_TRY(sl_board_poll(window->board));
    for (uint32_t i = 0; i < window->member_count; i++) {
        if (i == window->member || window->local[i] == UINT32_MAX)
            continue;
        SL_TRY(wait_for_member(window, i, mine->op));
        const sl_window_sign *theirs = &window->slots[i].signs[parity];
        if (memcmp(mine, theirs, sizeof *mine) == 0)
            continue;
        sl_board_describe(window->board, window->local[i], who, sizeof who);
        return sl_window_refuse(window->board, window->name, mine, theirs, who);
    }
    window->pass_count++;
    return SL_OK;
}

const void *sl_window_half(const sl_window *window, uint32_t member)
{
    return half_of(window, member, window->pass_count - 1);
}

void sl_window_bell(const sl_window *window, _Atomic uint32_t **out_word,
                    _Atomic uint32_t **out_sleepers)
{
    slot *own = &window->slots[window->member];
    *out_word = &own->bell;
    *out_sleepers = &own->bell_sleepers;
}
