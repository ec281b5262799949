/* Passes of which a part goes by messages; see remote.h.
 *
 * In a pass each rank sends every rank of another machine a frame, which says what it calls and
 * carries the piece if it is small, and else the piece as a second message, out of the window where
 * it lies. What is received has buffers of its own, which the next pass writes again.
 *
 * Invariants, with passes counted from 0:
 *   at the end of pass p, what was sent in pass p - 1 has left: the others have sent theirs of p
 *     after they had received it. So the half that pass p + 1 writes is free
 *   nothing that a caller owns is ever under way: after a failure memory may go at once
 */
#include "remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/hash.h"
#include "messages.h"
#include "rendezvous.h"

enum {
    INLINE_BYTES = 4096,      /* of a piece in its frame */
    RECEIVED_BYTES = 8 << 20, /* of all pieces that come in a pass, about */
    COMMS = 12,               /* that can have all their messages under way at once */
    TAG_START = 1,            /* the identities of ranks */
    TAG_FIRST = 2             /* of communicators, TAGS each */
};

/* Of a pass of all, and of one of a pair. */
enum { TAG_FRAME, TAG_PIECE, TAG_PAIR, TAGS = 4 };

typedef struct frame_head {
    sl_window_sign sign;
    uint64_t bytes; /* of the piece */
    uint64_t step;
    char op[SL_BOARD_OP_BYTES];
} frame_head;

typedef struct frame {
    frame_head head;
    unsigned char piece[INLINE_BYTES];
} frame;

/* What an end has beside its window. */
struct sl_remote_end {
    sl_messages *messages;
    uint32_t tag;
    uint32_t pass_count;
    sl_board_bell *bell;   /* of this rank in the window */
    frame *in_frames;      /* [size] */
    frame *out_frames;     /* [2][size], by pass */
    unsigned char *pieces; /* [size][all_bytes] */
    sl_message *receives;  /* [size][2]: frame and piece */
    sl_message *sends;     /* [2][size][2], by pass */
};

typedef struct sl_remote_end remote_end;

static bool is_elsewhere(const sl_comm *comm, uint32_t rank)
{
    return comm->peers[rank].local == UINT32_MAX;
}

/* ---- an end ---- */

static bool make_arrays(remote_end *it, const sl_comm *comm)
{
    sl_messages *messages = it->messages;
    it->in_frames = sl_messages_take(messages, comm->size, sizeof(frame));
    it->out_frames = sl_messages_take(messages, 2ull * comm->size, sizeof(frame));
    it->pieces = sl_messages_take(messages, comm->size, comm->all_bytes);
    it->receives = sl_messages_take(messages, 2ull * comm->size, sizeof(sl_message));
    it->sends = sl_messages_take(messages, 4ull * comm->size, sizeof(sl_message));
    return it->in_frames && it->out_frames && it->pieces && it->receives && it->sends;
}

static sl_status open_end(sl_comm *comm, sl_messages *messages, uint32_t tag)
{
    uint64_t share = sl_bits_round_up(RECEIVED_BYTES / comm->size, 64);
    if (share < comm->all_bytes)
        comm->all_bytes = share > comm->piece_bytes ? share : comm->piece_bytes;
    remote_end *it = sl_messages_take(messages, 1, sizeof *it);
    if (it)
        *it = (remote_end){.messages = messages, .tag = tag};
    if (!it || !make_arrays(it, comm))
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for communicator %s", comm->name);
    if (comm->size > 1)
        it->bell = sl_window_bell(comm);
    comm->remote = it;
    comm->remote_bytes = comm->size * (3 * sizeof(frame) + comm->all_bytes);
    return SL_OK;
}

sl_status sl_remote_open_end(sl_comm *comm)
{
    const remote_end *world = comm->world->remote;
    const remote_end *of = comm->of ? comm->of->remote : NULL;
    const uint32_t tag = TAG_FIRST + comm->world->split_count * TAGS;
    return open_end(comm, world->messages, of ? of->tag + TAG_PAIR : tag);
}

/* ---- passes ---- */

static void start(const sl_comm *comm, uint32_t rank, uint32_t kind, sl_message message,
                  sl_message *place)
{
    remote_end *it = comm->remote;
    message.peer = comm->peers[rank].member;
    message.tag = it->tag + kind;
    message.bell = it->bell;
    *place = message;
    sl_messages_start(it->messages, place);
}

static void start_receives(const sl_comm *comm, uint32_t rank)
{
    const remote_end *it = comm->remote;
    start(comm, rank, TAG_FRAME, (sl_message){.data = &it->in_frames[rank], .bytes = sizeof(frame)},
          &it->receives[2 * (size_t)rank]);
    if (comm->peers[rank].receive_bytes > INLINE_BYTES)
        start(comm, rank, TAG_PIECE,
              (sl_message){.data = it->pieces + rank * comm->all_bytes, .bytes = comm->all_bytes},
              &it->receives[2 * rank + 1]);
}

static void start_sends(const sl_comm *comm, const sl_comm_pass *pass, uint32_t rank)
{
    const remote_end *it = comm->remote;
    uint64_t place = (uint64_t)(it->pass_count & 1) * comm->size + rank;
    uint64_t bytes = comm->peers[rank].send_bytes;
    bool is_small = bytes <= INLINE_BYTES;
    void *piece = sl_window_place(comm, pass->is_for_all ? SL_WINDOW_ALL : rank);
    frame *out = &it->out_frames[place];
    out->head = (frame_head){.sign = pass->sign, .bytes = bytes};
    sl_board_last_post(comm->board, &out->head.step, out->head.op);
    if (is_small && bytes > 0)
        memcpy(out->piece, piece, bytes);
    start(comm, rank, TAG_FRAME,
          (sl_message){
              .is_send = true, .data = out, .bytes = sizeof out->head + (is_small ? bytes : 0)},
          &it->sends[2 * place]);
    if (!is_small)
        start(comm, rank, TAG_PIECE, (sl_message){.is_send = true, .data = piece, .bytes = bytes},
              &it->sends[2 * place + 1]);
}

static sl_status refuse_frame(sl_comm *comm, const sl_comm_pass *pass, uint32_t rank,
                              const frame_head *theirs)
{
    char who[160];
    snprintf(who, sizeof who, "rank %u, last in step %llu at %.63s", comm->peers[rank].member,
             (unsigned long long)theirs->step, theirs->op);
    return sl_window_refuse(comm, &pass->sign, &theirs->sign, who);
}

/* Waits for what comes from one rank. */
static sl_status receive_pass(sl_comm *comm, const sl_comm_pass *pass, uint32_t rank)
{
    const remote_end *it = comm->remote;
    frame *in = &it->in_frames[rank];
    const sl_message *receives = &it->receives[2 * (size_t)rank];
    const uint64_t bytes = comm->peers[rank].receive_bytes;
    bool is_small = bytes <= INLINE_BYTES;
    SL_TRY(sl_messages_wait(it->messages, &receives[0], comm->name, pass->sign.op));
    uint64_t expected = sizeof in->head + (is_small ? bytes : 0);
    if (memcmp(&in->head.sign, &pass->sign, sizeof pass->sign) != 0 || in->head.bytes != bytes ||
        receives[0].bytes != expected)
        return refuse_frame(comm, pass, rank, &in->head);
    sl_messages_note_op(it->messages, comm->peers[rank].member, in->head.step, in->head.op);
    comm->received[rank] = is_small ? in->piece : it->pieces + rank * comm->all_bytes;
    if (is_small)
        return SL_OK;
    SL_TRY(sl_messages_wait(it->messages, &receives[1], comm->name, pass->sign.op));
    return receives[1].bytes == bytes ? SL_OK : refuse_frame(comm, pass, rank, &in->head);
}

/* What was sent in the pass before this one has left. */
static sl_status await_sends(sl_comm *comm, const char *op)
{
    const remote_end *it = comm->remote;
    const sl_message *sends = &it->sends[2ull * (~it->pass_count & 1) * comm->size];
    for (uint32_t i = 0; i < 2 * comm->size; i++)
        if (!sl_message_is_idle(&sends[i]))
            SL_TRY(sl_messages_wait(it->messages, &sends[i], comm->name, op));
    return SL_OK;
}

void sl_remote_begin(const sl_comm *comm, const sl_comm_pass *pass)
{
    for (uint32_t i = 0; i < comm->size; i++)
        if (is_elsewhere(comm, i)) {
            start_receives(comm, i);
            start_sends(comm, pass, i);
        }
}

sl_status sl_remote_finish(sl_comm *comm, const sl_comm_pass *pass)
{
    for (uint32_t i = 0; i < comm->size; i++)
        if (is_elsewhere(comm, i))
            SL_TRY(receive_pass(comm, pass, i));
    SL_TRY(await_sends(comm, pass->sign.op));
    comm->remote->pass_count++;
    return SL_OK;
}

/* ---- ending ---- */

void sl_remote_close(sl_comm *world)
{
    bool is_whole = sl_board_poll(world->board) == SL_OK;
    sl_board_leave(world->board);
    sl_messages_close(world->remote->messages, is_whole, world->board->timeout_s);
}

/* ---- opening: who is where ---- */

typedef struct identity {
    char host[SL_PEER_HOST_BYTES];
    uint64_t machine; /* the same for ranks that can share memory */
} identity;

/* Processes share memory if one kernel runs them, and meet if they are in one network's name space.
 */
static identity find_identity(const char *machine)
{
    identity it = {.machine = 0};
    struct utsname names = {0};
    struct stat space = {0};
    char text[256] = "", boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file && !fgets(boot, sizeof boot, file))
        boot[0] = '\0';
    if (file)
        fclose(file);
    uname(&names);
    stat("/proc/self/ns/net", &space);
    snprintf(text, sizeof text, "%.60s %.60s %llu %.60s", boot, boot[0] ? "" : names.nodename,
             (unsigned long long)space.st_ino, machine ? machine : "");
    it.machine = sl_hash_64(text, strlen(text));
    snprintf(it.host, sizeof it.host, "%.60s", machine ? machine : names.nodename);
    return it;
}

/* Each rank tells every other who it is: table [size]. `all` [2][size] are zero. */
static sl_status share_identities(sl_messages *messages, identity *table, sl_message *all,
                                  double timeout_s)
{
    const uint32_t rank = sl_messages_rank(messages), size = sl_messages_size(messages);
    for (uint32_t i = 0; i < 2 * size; i++) {
        const bool is_send = i < size;
        const uint32_t peer = is_send ? i : i - size;
        all[i] = (sl_message){.is_send = is_send,
                              .peer = peer,
                              .tag = TAG_START,
                              .data = &table[is_send ? rank : peer],
                              .bytes = sizeof *table};
        if (peer != rank)
            sl_messages_start(messages, &all[i]);
    }
    for (uint32_t i = 0; i < 2 * size; i++)
        if (!sl_message_is_idle(&all[i]))
            SL_TRY(sl_messages_await(&all[i], timeout_s));
    return SL_OK;
}

/* Finds the places of the ranks, and meets those of this machine, whose board this opens. */
static sl_status meet(sl_comm *world, const identity *table, double timeout_s)
{
    int file;
    sl_meeting meeting = {.world_size = world->size, .key = table[world->rank].machine};
    for (uint32_t i = 0; i < world->size; i++) {
        const bool is_here = table[i].machine == meeting.key;
        world->peers[i].member = i;
        world->peers[i].local = is_here ? meeting.size++ : UINT32_MAX;
    }
    meeting.rank = world->peers[world->rank].local;
    SL_TRY(sl_rendezvous_share(&meeting, timeout_s, &file));
    sl_status status = sl_board_open(file, meeting.rank, true, &world->board);
    close(file);
    SL_TRY(status);
    world->board->timeout_s = timeout_s;
    return sl_watch_open(world->board, &world->watch);
}

static sl_status make_world(sl_messages *messages, const char *machine, double timeout_s,
                            sl_comm *world)
{
    const uint32_t size = world->size;
    identity *table = sl_messages_take(messages, size, sizeof *table);
    sl_message *all = sl_messages_take(messages, 2ull * size, sizeof *all);
    if (!table || !all)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u ranks", size);
    table[world->rank] = find_identity(machine);
    SL_TRY(share_identities(messages, table, all, timeout_s));
    SL_TRY(meet(world, table, timeout_s));
    for (uint32_t i = 0; i < size; i++)
        sl_messages_name_host(messages, i, table[i].host, is_elsewhere(world, i));
    if (size > 1)
        SL_TRY(sl_window_open(world, sl_board_world_window(world->board)));
    SL_TRY(open_end(world, messages, TAG_FIRST));
    sl_messages_watch(messages, world->board);
    return sl_board_join(world->board, world->rank);
}

/* Slots for all messages that several communicators of all ranks can have under way, and for notes
 * to each of them. */
static uint32_t count_slots(uint32_t size)
{
    return COMMS * (6 * size + 2 * 6) + 2 * size + 64; /* an exchange: two pairs */
}

sl_status sl_remote_open(const sl_mail_ops *ops, void *self, uint32_t size, const char *machine,
                         double timeout_s, sl_comm **out_world)
{
    sl_messages *messages;
    sl_comm *world = NULL;
    SL_TRY(sl_messages_open(ops, self, count_slots(size), timeout_s, &messages));
    sl_status status =
        sl_comm_make("world", sl_messages_rank(messages), sl_messages_size(messages), &world);
    if (status == SL_OK)
        status = make_world(messages, machine, timeout_s, world);
    if (status == SL_OK) {
        *out_world = world;
        return SL_OK;
    }
    char text[SL_STATUS_MESSAGE_BYTES];
    snprintf(text, sizeof text, "%s", sl_status_message());
    sl_messages_close(messages, false, timeout_s);
    if (world) {
        world->remote = NULL;
        sl_comm_close(world);
    }
    return sl_status_fail(status, "%s", text);
}
