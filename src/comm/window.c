/* Slots and halves; window.h has the rule that keeps them apart in time. */
#include "window.h"

#include <string.h>

#include "base/bits.h"
#include "comm_internal.h"

enum {
    LINE_BYTES = 128,
    HALF_BYTES = 2 << 20, /* of all pieces of a rank together, in a pass: stays in the cache */
    PIECE_BYTES_MIN = 4096
};

typedef struct sl_window_slot {
    _Alignas(LINE_BYTES) sl_board_bell arrived; /* its word: passes begun */
    _Alignas(LINE_BYTES) sl_board_bell message; /* rings when one has come */
    sl_window_sign signs[2];                    /* of the last two passes, as the halves */
} slot;

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
    return sl_window_taken_bytes(member_count, member_count) + pairs * pair_bytes();
}

uint64_t sl_window_find_pair(uint64_t offset, uint32_t member_count, uint32_t member,
                             uint32_t other)
{
    const uint64_t low = member < other ? member : other, high = member < other ? other : member;
    return offset + sl_window_taken_bytes(member_count, member_count) +
           (high * (high - 1) / 2 + low) * pair_bytes();
}

sl_status sl_window_open(sl_comm *comm, uint64_t offset)
{
    sl_window *it = &comm->window;
    const uint64_t slots_bytes = slots_bytes_of(comm->size);
    it->half_bytes = comm->of ? SL_WINDOW_PAIR_BYTES : half_bytes_of(comm->size);
    const uint64_t own_halves = offset + slots_bytes + 2ull * comm->rank * it->half_bytes;
    it->offset = offset;
    it->slots = sl_board_memory(comm->board, offset);
    it->halves = sl_board_memory(comm->board, offset + slots_bytes);
    SL_TRY(sl_board_take(comm->board, offset, slots_bytes));
    return sl_board_take(comm->board, own_halves, 2 * it->half_bytes);
}

/* ---- passes ---- */

static unsigned char *half_of(const sl_window *window, uint32_t member, uint32_t pass)
{
    return window->halves + (2ull * member + (pass & 1)) * window->half_bytes;
}

void *sl_window_place(const sl_comm *comm, uint32_t member)
{
    return half_of(&comm->window, comm->rank, comm->window.pass_count) + member * comm->piece_bytes;
}

void sl_window_arrive(sl_comm *comm, const sl_window_sign *sign)
{
    slot *own = &comm->window.slots[comm->rank];
    own->signs[comm->window.pass_count & 1] = *sign;
    sl_board_ring(&own->arrived);
}

/* Pass p is begun by a rank when its count is above p; counts wrap round. */
static bool has_come(uint32_t arrived, uint32_t pass)
{
    return (int32_t)(arrived - pass) > 0;
}

static sl_status wait_for_member(sl_comm *comm, uint32_t member, const char *op)
{
    sl_board_bell *bell = &comm->window.slots[member].arrived;
    sl_board_patience patience = {0};
    for (;;) {
        uint32_t arrived = atomic_load_explicit(&bell->word, memory_order_acquire);
        if (has_come(arrived, comm->window.pass_count))
            return SL_OK;
        sl_board_wait wait = {comm->name, op, comm->peers[member].local, bell, arrived};
        SL_TRY(sl_board_sleep(comm->board, &patience, &wait));
    }
}

sl_status sl_window_refuse(sl_comm *comm, const sl_window_sign *mine, const sl_window_sign *theirs,
                           const char *who)
{
    sl_board_end(comm->board, SL_ERROR_INTERNAL,
                 "ranks call different things in %s: %.15s of %llu elements, type %llx, as call "
                 "%llu here, but %.15s of %llu elements, type %llx, as call %llu in %s",
                 comm->name, mine->op, (unsigned long long)mine->count,
                 (unsigned long long)mine->types, (unsigned long long)mine->call, theirs->op,
                 (unsigned long long)theirs->count, (unsigned long long)theirs->types,
                 (unsigned long long)theirs->call, who);
    return sl_board_poll(comm->board);
}

sl_status sl_window_wait(sl_comm *comm)
{
    const uint32_t parity = comm->window.pass_count & 1;
    const slot *slots = comm->window.slots;
    const sl_window_sign *mine = &slots[comm->rank].signs[parity];
    SL_TRY(sl_board_poll(comm->board));
    for (uint32_t i = 0; i < comm->size; i++) {
        const sl_window_sign *theirs = &slots[i].signs[parity];
        const uint32_t local = comm->peers[i].local;
        if (i == comm->rank || local == UINT32_MAX)
            continue;
        SL_TRY(wait_for_member(comm, i, mine->op));
        if (memcmp(mine, theirs, sizeof *mine) != 0)
            return sl_window_refuse(comm, mine, theirs, sl_board_describe(comm->board, local).text);
    }
    comm->window.pass_count++;
    return SL_OK;
}

const void *sl_window_half(const sl_comm *comm, uint32_t member)
{
    return half_of(&comm->window, member, comm->window.pass_count - 1);
}

sl_board_bell *sl_window_bell(const sl_comm *comm)
{
    return &comm->window.slots[comm->rank].message;
}
