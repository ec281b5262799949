/* Opening, splitting and ending communicators of ranks that share a machine, as threads of a
 * process or as processes that `sluice launch` started; those of several machines begin in
 * remote.c. */
#include "comm.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "comm_internal.h"
#include "environment.h"
#include "remote.h"
#include "rendezvous.h"

enum { TIMEOUT_S = 600 };

/* ---- an end ---- */

static void free_end(sl_comm *comm)
{
    for (uint32_t i = 0; i < comm->size; i++)
        free(comm->peers[i].pair);
    free(comm);
}

sl_status sl_comm_make(const char *name, uint32_t rank, uint32_t size, sl_comm **out_comm)
{
    sl_comm *comm =
        calloc(1, sizeof(sl_comm) + size * (sizeof(sl_comm_peer) + sizeof(const void *)));
    if (!comm)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a communicator of %u ranks", size);
    comm->received = (const void **)&comm->peers[size];
    comm->rank = rank;
    comm->size = size;
    comm->piece_bytes = sl_window_piece_bytes(size);
    comm->all_bytes = comm->piece_bytes * size;
    comm->world = comm;
    snprintf(comm->name, sizeof comm->name, "%s", name);
    *out_comm = comm;
    return SL_OK;
}

void sl_comm_close(sl_comm *comm)
{
    if (!comm)
        return;
    if (comm->remote && comm->world == comm)
        sl_remote_close(comm);
    sl_board *board = comm->world == comm ? comm->board : NULL;
    sl_watch_close(comm->watch);
    free_end(comm);
    sl_board_close(board);
}

/* The end of a world all of whose ranks are on this machine; takes the board. */
static sl_status make_local_world(sl_board *board, sl_comm **out_world)
{
    sl_comm *world = NULL;
    sl_status status = sl_comm_make("world", board->local_index, board->rank_count, &world);
    if (status != SL_OK) {
        sl_board_close(board);
        return status;
    }
    world->board = board;
    for (uint32_t i = 0; i < world->size; i++)
        world->peers[i].member = world->peers[i].local = i;
    if (world->size > 1)
        status = sl_window_open(world, sl_board_world_window(board));
    if (status != SL_OK)
        sl_comm_close(world);
    else
        *out_world = world;
    return status;
}

/* ---- worlds ---- */

sl_status sl_comm_threads_open(uint32_t size, sl_comm **out_ends)
{
    int file;
    uint32_t made = 0;
    SL_TRY(sl_board_create(size, size, &file));
    sl_status status = SL_OK;
    while (made < size && status == SL_OK) {
        sl_board *board;
        status = made == 0 ? sl_board_open(file, 0, false, &board)
                           : sl_board_share(out_ends[0]->board, made, &board);
        if (status == SL_OK)
            status = make_local_world(board, &out_ends[made]);
        made += status == SL_OK;
    }
    close(file);
    for (uint32_t i = 0; i < made; i++)
        if (status == SL_OK)
            sl_board_enter(out_ends[i]->board, i);
        else
            sl_comm_close(out_ends[i]);
    return status;
}

/* Processes that share `file`. */
static sl_status open_processes(const sl_environment *environment, int file, sl_comm **out_world)
{
    sl_board *board;
    SL_TRY(sl_board_open(file, environment->rank, true, &board));
    if (board->rank_count != environment->size) {
        sl_board_close(board);
        SL_FAIL(SL_ERROR_USAGE,
                "%s says %u ranks, and the memory that they share is not for as many",
                SL_ENVIRONMENT_SIZE, environment->size);
    }
    SL_TRY(make_local_world(board, out_world));
    const sl_status status = sl_watch_open(board, &(*out_world)->watch);
    if (status != SL_OK)
        sl_comm_close(*out_world);
    return status;
}

/* What mpirun or srun started. Ranks of one machine need nothing of MPI. */
static sl_status open_met(const sl_environment *environment, double timeout_s, sl_comm **out_world)
{
    int file;
    const sl_mail_ops *ops;
    const sl_meeting meeting = {
        .rank = environment->rank, .size = environment->size, .world_size = environment->size};
    if (environment->local_size != environment->size) {
        SL_TRY(sl_mpi_load(environment->library, &ops));
        return sl_remote_open(ops, NULL, environment->size, environment->machine, timeout_s,
                              out_world);
    }
    SL_TRY(sl_rendezvous_share(&meeting, timeout_s, &file));
    const sl_status status = open_processes(environment, file, out_world);
    close(file);
    return status;
}

static sl_status open_world(double timeout_s, sl_comm **out_world)
{
    sl_environment environment;
    SL_TRY(sl_environment_read(&environment));
    if (environment.kind == SL_COMM_SELF)
        return sl_comm_threads_open(1, out_world);
    if (environment.kind == SL_COMM_MPI)
        return open_met(&environment, timeout_s, out_world);
    SL_TRY(open_processes(&environment, environment.file, out_world));
    (void)fcntl(environment.file, F_SETFD, FD_CLOEXEC); /* stays open for sl_board_leave_text */
    return SL_OK;
}

sl_status sl_comm_open(double timeout_s, sl_comm **out_world)
{
    sl_comm *world;
    timeout_s = timeout_s > 0 ? timeout_s : TIMEOUT_S;
    SL_TRY(open_world(timeout_s, &world));
    sl_comm_set_timeout(world, timeout_s);
    sl_status status = sl_board_join(world->board, world->rank);
    if (status != SL_OK)
        sl_comm_close(world);
    else
        *out_world = world;
    return status;
}

/* ---- splitting ---- */

/* What each rank tells of its set: all of a set tell the same, its first rank where its window is.
 */
typedef struct split_record {
    uint64_t offset;
    uint64_t members_hash;
    int32_t status;
    uint32_t reserved;
} split_record;

static sl_status check_members(const sl_comm *world, const uint32_t *members, uint32_t count,
                               uint32_t *out_rank)
{
    uint32_t rank = UINT32_MAX;
    bool is_ascending = count > 0;
    for (uint32_t i = 0; i < count; i++) {
        is_ascending =
            is_ascending && members[i] < world->size && (i == 0 || members[i] > members[i - 1]);
        if (members[i] == world->rank)
            rank = i;
    }
    if (world->world != world)
        SL_FAIL(SL_ERROR_INTERNAL, "communicators are split off the world, not off %s",
                world->name);
    if (!is_ascending || rank == UINT32_MAX)
        SL_FAIL(SL_ERROR_INTERNAL, "rank %u's set is not one of ascending ranks that holds it",
                world->rank);
    *out_rank = rank;
    return SL_OK;
}

/* Fills in the ranks of an end, and opens its window, which the first of them on this machine
 * carves out. */
static sl_status complete_split(sl_comm *world, sl_comm *comm, const uint32_t *members)
{
    split_record mine = {.members_hash = sl_hash_64(members, comm->size * sizeof *members)};
    split_record all[SL_COMM_RANKS_MAX];
    for (uint32_t i = 0; i < comm->size; i++)
        comm->peers[i] =
            (sl_comm_peer){.member = members[i], .local = world->peers[members[i]].local};
    const uint32_t first = sl_comm_first_local(comm);
    if (comm->size > 1 && first == world->rank)
        mine.status =
            (int32_t)sl_board_reserve(comm->board, sl_window_bytes(comm->size), &mine.offset);
    SL_TRY(sl_comm_all_gather(world, sizeof mine, &mine, all));
    for (uint32_t i = 0; i < world->size; i++)
        if (all[i].status != SL_OK)
            SL_FAIL((sl_status)all[i].status, "rank %u has no memory for communicator %s", i,
                    comm->name);
    for (uint32_t i = 0; i < comm->size; i++)
        if (all[members[i]].members_hash != mine.members_hash)
            SL_FAIL(SL_ERROR_INTERNAL, "ranks %u and %u see different sets of communicator %s",
                    world->rank, members[i], comm->name);
    if (comm->size > 1)
        SL_TRY(sl_window_open(comm, all[first].offset));
    return comm->world->remote ? sl_remote_open_end(comm) : SL_OK;
}

/* By its name; a name that is none counts as the world. */
static sl_comm_group find_group(const char *name)
{
    int group = SL_COMM_GROUP_COUNT - 1;
    while (group > SL_COMM_WORLD && strcmp(sl_comm_group_name((sl_comm_group)group), name) != 0)
        group--;
    return (sl_comm_group)group;
}

sl_status sl_comm_split(sl_comm *world, const char *name, const uint32_t *members,
                        uint32_t member_count, sl_comm **out_comm)
{
    uint32_t rank;
    sl_comm *comm;
    SL_TRY(check_members(world, members, member_count, &rank));
    SL_TRY(sl_comm_make(name, rank, member_count, &comm));
    comm->board = world->board;
    comm->world = world;
    comm->group = find_group(name);
    world->split_count++;
    sl_status status = complete_split(world, comm, members);
    if (status != SL_OK)
        free_end(comm);
    else
        *out_comm = comm;
    return status;
}

/* ---- pairs ---- */

static sl_status open_pair(sl_comm *comm, uint32_t other, sl_comm *pair)
{
    pair->board = comm->board;
    pair->world = comm->world;
    pair->of = comm;
    pair->all_bytes = SL_WINDOW_PAIR_BYTES;
    pair->piece_bytes = SL_WINDOW_PAIR_BYTES / 2;
    pair->peers[pair->rank] = comm->peers[comm->rank];
    pair->peers[!pair->rank] = comm->peers[other];
    SL_TRY(sl_window_open(pair,
                          sl_window_find_pair(comm->window.offset, comm->size, comm->rank, other)));
    return comm->remote ? sl_remote_open_end(pair) : SL_OK;
}

sl_status sl_comm_find_pair(sl_comm *comm, uint32_t other, sl_comm **out_pair)
{
    *out_pair = comm->peers[other].pair;
    if (*out_pair)
        return SL_OK;
    SL_TRY(sl_comm_make(comm->name, comm->rank > other, 2, out_pair));
    const sl_status status = open_pair(comm, other, *out_pair);
    if (status != SL_OK)
        free_end(*out_pair);
    else
        comm->peers[other].pair = *out_pair;
    return status;
}

/* ---- facts ---- */

uint32_t sl_comm_rank(const sl_comm *comm)
{
    return comm->rank;
}

uint32_t sl_comm_size(const sl_comm *comm)
{
    return comm->size;
}

uint32_t sl_comm_member(const sl_comm *comm, uint32_t rank)
{
    return comm->peers[rank].member;
}

void sl_comm_local(const sl_comm *comm, uint32_t *out_index, uint32_t *out_count)
{
    *out_index = comm->board->local_index;
    *out_count = comm->board->rank_count;
}

uint32_t sl_comm_first_local(const sl_comm *comm)
{
    uint32_t rank = 0;
    while (comm->peers[rank].local == UINT32_MAX)
        rank++;
    return comm->peers[rank].member;
}

uint64_t sl_comm_plan_share_bytes(uint32_t size)
{
    return size > 1 ? sl_window_taken_bytes(size, size) / size : 0;
}

uint64_t sl_comm_share_bytes(const sl_comm *comm)
{
    uint32_t local_count = 0;
    for (uint32_t i = 0; i < comm->size; i++)
        local_count += comm->peers[i].local != UINT32_MAX;
    return comm->size > 1 && local_count > 0 /* this rank is one */
               ? sl_window_taken_bytes(comm->size, local_count) / local_count + comm->remote_bytes
               : 0;
}

void sl_comm_count_sent(sl_comm *comm, uint64_t bytes)
{
    atomic_fetch_add_explicit(&comm->world->sent_bytes[comm->group], bytes, memory_order_relaxed);
}

uint64_t sl_comm_sent_bytes(const sl_comm *world, sl_comm_group group)
{
    return atomic_load_explicit(&world->sent_bytes[group], memory_order_relaxed);
}

/* ---- ending ---- */

void sl_comm_post(sl_comm *comm, uint64_t step, const char *op)
{
    sl_board_post(comm->board, step, op);
}

void sl_comm_advance(sl_comm *comm)
{
    sl_board_advance(comm->board);
}

void sl_comm_set_timeout(sl_comm *world, double seconds)
{
    world->board->timeout_s = seconds;
}

void sl_comm_set_heartbeat(sl_comm *world, double seconds)
{
    world->board->heartbeat_s = seconds;
}

void sl_comm_set_work(sl_comm *world, bool is_at_work)
{
    if (world->watch)
        sl_watch_set_work(world->watch, is_at_work);
}

void sl_comm_listen(sl_comm *world, void (*lost)(void *user), void *user)
{
    if (world->watch)
        sl_watch_listen(world->watch, lost, user);
}

void sl_comm_abort(sl_comm *comm, const char *reason)
{
    const sl_board_name own = sl_board_describe(comm->board, comm->board->local_index);
    sl_board_end(comm->board, SL_ERROR_RANK, "%s gave up%s%s", own.text, reason ? ": " : "",
                 reason ? reason : "");
}

void sl_comm_stop(sl_comm *comm, const char *reason)
{
    sl_board_end(comm->board, SL_ERROR_STOPPED, "%s", reason);
}

sl_status sl_comm_poll(sl_comm *comm)
{
    return sl_board_poll(comm->board);
}
