/* A socket of the machine, in the abstract name space: nothing is left behind, whoever dies. The
 * name is made of the user, the common parent, and a secret of that parent which only its user can
 * read: so another user cannot take the name first. Both sides also ask the kernel for the user of
 * the peer. */
#define _GNU_SOURCE
#include "rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "board.h"
#include "comm.h"

enum { RETRY_NS = 20000000, CALLERS_MAX = 64 };

static const uint64_t greeting_magic = 0x316b6e61726c73; /* "slrank1", least byte first */

/* What a rank says when it comes. */
typedef struct greeting {
    uint64_t magic;
    uint32_t rank, size;
} greeting;

typedef union descriptor_message {
    struct cmsghdr header;
    unsigned char bytes[CMSG_SPACE(sizeof(int))];
} descriptor_message;

/* A hash of the random addresses at which the kernel has laid out the common parent: only the
 * parent's user can read them. 0: the parent is another user's. */
static uint64_t find_secret(void)
{
    char path[64];
    unsigned char text[2048];
    snprintf(path, sizeof path, "/proc/%d/auxv", (int)getppid());
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file >= 0 ? read(file, text, sizeof text) : -1;
    if (file >= 0)
        close(file);
    return bytes > 0 ? sl_hash_64(text, (uint64_t)bytes) : 0;
}

static socklen_t make_address(const sl_meeting *meeting, struct sockaddr_un *address)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1,
                          "sluice-ranks-%u-%d-%llx-%llx", (unsigned)geteuid(), (int)getppid(),
                          (unsigned long long)meeting->key, (unsigned long long)find_secret());
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static sl_status open_socket(int *out_socket)
{
    *out_socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*out_socket < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no socket for ranks to meet: %s", strerror(errno));
    return SL_OK;
}

/* Waits for something to be read from any of them, until the deadline. */
static bool wait_for_any(struct pollfd *sockets, uint32_t count, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now = sl_clock_now_ns();
        if (now >= deadline_ns)
            return false;
        uint64_t left_ms = (deadline_ns - now) / 1000000 + 1;
        if (poll(sockets, count, left_ms < 1000 ? (int)left_ms : 1000) > 0)
            return true;
    }
}

static bool wait_readable(int socket, uint64_t deadline_ns)
{
    struct pollfd it = {.fd = socket, .events = POLLIN};
    return wait_for_any(&it, 1, deadline_ns);
}

static bool is_same_user(int socket)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

/* ---- rank 0 ---- */

static bool send_file(int socket, int file)
{
    greeting answer = {.magic = greeting_magic};
    struct iovec part = {&answer, sizeof answer};
    descriptor_message with = {0};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &with, .msg_controllen = sizeof with};
    with.header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof file)};
    memcpy(CMSG_DATA(&with.header), &file, sizeof file);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)sizeof answer;
}

/* Callers have connected and not yet said which rank they are. All are listened to at once, so a
 * silent caller keeps nobody waiting. sockets[0] is the listener; behind it come `caller_count`
 * callers, oldest first. */
typedef struct reception {
    const sl_meeting *meeting;
    int file; /* of the board, handed to each rank */
    uint32_t caller_count;
    struct pollfd sockets[1 + CALLERS_MAX];
    bool has_come[SL_COMM_RANKS_MAX];
} reception;

static void dismiss(reception *it, uint32_t caller)
{
    close(it->sockets[caller].fd);
    it->caller_count--;
    memmove(&it->sockets[caller], &it->sockets[caller + 1],
            (it->caller_count - caller + 1) * sizeof it->sockets[0]);
}

/* Accepts a caller, but none of another user. If there are too many, the oldest one goes. */
static void admit(reception *it)
{
    int peer = accept4(it->sockets[0].fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer < 0)
        return;
    if (!is_same_user(peer)) {
        close(peer);
        return;
    }
    if (it->caller_count == CALLERS_MAX)
        dismiss(it, 1);
    it->sockets[++it->caller_count] = (struct pollfd){.fd = peer, .events = POLLIN};
}

/* Hands the file to a caller that says which rank it is; any other one is turned away. */
static sl_status serve(reception *it, uint32_t caller)
{
    const sl_meeting *meeting = it->meeting;
    greeting said = {0};
    const int peer = it->sockets[caller].fd;
    const bool is_heard =
        recv(peer, &said, sizeof said, 0) == (ssize_t)sizeof said && said.magic == greeting_magic;
    sl_status status = SL_OK;
    if (is_heard && (said.size != meeting->size || said.rank >= said.size || said.rank == 0 ||
                     it->has_come[said.rank]))
        status = sl_status_fail(SL_ERROR_USAGE, "rank %u of %u came to a run of %u ranks",
                                said.rank, said.size, meeting->size);
    else if (is_heard)
        it->has_come[said.rank] = send_file(peer, it->file);
    dismiss(it, caller);
    return status;
}

static uint32_t find_missing(const reception *it)
{
    uint32_t rank = 1;
    while (rank < it->meeting->size && it->has_come[rank])
        rank++;
    return rank;
}

static sl_status serve_all(reception *it, uint64_t deadline_ns)
{
    uint32_t missing;
    sl_status status = SL_OK;
    while (status == SL_OK && (missing = find_missing(it)) < it->meeting->size) {
        if (!wait_for_any(it->sockets, 1 + it->caller_count, deadline_ns))
            SL_FAIL(SL_ERROR_RANK, "rank %u has not started on this machine in time", missing);
        for (uint32_t caller = it->caller_count; caller > 0 && status == SL_OK; caller--)
            if (it->sockets[caller].revents != 0)
                status = serve(it, caller);
        if (status == SL_OK && it->sockets[0].revents != 0)
            admit(it);
    }
    return status;
}

static sl_status receive_ranks(const sl_meeting *meeting, int listener, int file,
                               uint64_t deadline_ns)
{
    reception *it = calloc(1, sizeof *it);
    if (!it)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for ranks to meet");
    it->meeting = meeting;
    it->file = file;
    it->sockets[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    const sl_status status = serve_all(it, deadline_ns);
    while (it->caller_count > 0)
        dismiss(it, it->caller_count);
    free(it);
    return status;
}

static sl_status hand_out(const sl_meeting *meeting, uint64_t deadline_ns, int *out_file)
{
    int listener, file = -1;
    struct sockaddr_un address;
    socklen_t bytes = make_address(meeting, &address);
    SL_TRY(open_socket(&listener));
    sl_status status = SL_OK;
    if (bind(listener, (struct sockaddr *)&address, bytes) != 0 || listen(listener, 512) != 0)
        status = sl_status_fail(SL_ERROR_SYSTEM, "ranks cannot meet at socket @%s: %s",
                                address.sun_path + 1, strerror(errno));
    if (status == SL_OK)
        status = sl_board_create(meeting->size, meeting->world_size, &file);
    if (status == SL_OK)
        status = receive_ranks(meeting, listener, file, deadline_ns);
    close(listener);
    if (status != SL_OK && file >= 0)
        close(file);
    else if (status == SL_OK)
        *out_file = file;
    return status;
}

/* ---- the others ---- */

static sl_status receive_file(int socket, int *out_file)
{
    greeting answer = {0};
    struct iovec part = {&answer, sizeof answer};
    descriptor_message with = {0};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &with, .msg_controllen = sizeof with};
    ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (got != (ssize_t)sizeof answer || answer.magic != greeting_magic || !header ||
        header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof *out_file))
        SL_FAIL(SL_ERROR_RANK, "rank 0 did not hand out the memory that ranks share");
    memcpy(out_file, CMSG_DATA(header), sizeof *out_file);
    return SL_OK;
}

/* Rank 0 may not listen yet. */
static sl_status connect_to_first(const sl_meeting *meeting, int socket, uint64_t deadline_ns)
{
    const struct timespec pause = {0, RETRY_NS};
    struct sockaddr_un address;
    socklen_t bytes = make_address(meeting, &address);
    while (connect(socket, (struct sockaddr *)&address, bytes) != 0) {
        if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR)
            SL_FAIL(SL_ERROR_SYSTEM, "ranks cannot meet at socket @%s: %s", address.sun_path + 1,
                    strerror(errno));
        if (sl_clock_now_ns() >= deadline_ns)
            SL_FAIL(SL_ERROR_RANK, "rank 0 has not started on this machine in time");
        nanosleep(&pause, NULL);
    }
    if (!is_same_user(socket))
        SL_FAIL(SL_ERROR_RANK, "socket @%s belongs to another user", address.sun_path + 1);
    return SL_OK;
}

static sl_status take(const sl_meeting *meeting, uint64_t deadline_ns, int *out_file)
{
    const greeting mine = {greeting_magic, meeting->rank, meeting->size};
    int socket;
    SL_TRY(open_socket(&socket));
    sl_status status = connect_to_first(meeting, socket, deadline_ns);
    if (status == SL_OK && send(socket, &mine, sizeof mine, MSG_NOSIGNAL) != (ssize_t)sizeof mine)
        status = sl_status_fail(SL_ERROR_RANK, "rank 0 does not answer: %s", strerror(errno));
    if (status == SL_OK && !wait_readable(socket, deadline_ns))
        status = sl_status_fail(SL_ERROR_RANK, "rank 0 did not answer in time");
    if (status == SL_OK)
        status = receive_file(socket, out_file);
    close(socket);
    return status;
}

sl_status sl_rendezvous_share(const sl_meeting *meeting, double timeout_s, int *out_file)
{
    uint64_t deadline_ns = sl_clock_now_ns() + (uint64_t)(timeout_s * 1e9);
    return meeting->rank == 0 ? hand_out(meeting, deadline_ns, out_file)
                              : take(meeting, deadline_ns, out_file);
}
