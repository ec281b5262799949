/* Sockets of the machine, in the abstract name space: nothing is left behind, whoever dies. Their
 * name is made of the user, the common parent, and a secret of that parent which only its user can
 * read: so another user cannot take the name first. Both sides also ask the kernel for the user of
 * the peer.
 *
 * A rank connects from a socket whose name says which rank it is. So it has nothing to send, and
 * one that is slow keeps nobody waiting. Everybody can read the names of sockets that are there: so
 * the name of a rank that waits has a hash of the secret, which does not betray where rank 0 will
 * listen. */
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

enum { RETRY_NS = 20000000 };

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

/* Where rank 0 listens, and with an `ending` from where another rank connects. */
static socklen_t make_address(const sl_meeting *meeting, const char *ending,
                              struct sockaddr_un *address)
{
    const uint64_t secret = find_secret();
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int length = snprintf(
        address->sun_path + 1, sizeof address->sun_path - 1, "sluice-ranks-%u-%d-%llx-%llx%s",
        (unsigned)geteuid(), (int)getppid(), (unsigned long long)meeting->key,
        (unsigned long long)(*ending ? sl_hash_64(&secret, sizeof secret) : secret), ending);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static sl_status fail_at(const struct sockaddr_un *address)
{
    SL_FAIL(SL_ERROR_SYSTEM, "ranks cannot meet at socket @%s: %s", address->sun_path + 1,
            strerror(errno));
}

static sl_status fail_to_bind(const sl_meeting *meeting, const struct sockaddr_un *address)
{
    if (errno == EADDRINUSE)
        SL_FAIL(SL_ERROR_USAGE, "two processes say that they are rank %u of %u (socket @%s)",
                meeting->rank, meeting->size, address->sun_path + 1);
    return fail_at(address);
}

/* A socket of that name. */
static sl_status open_socket(const sl_meeting *meeting, const struct sockaddr_un *address,
                             socklen_t bytes, int *out_socket)
{
    int it = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (it < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no socket for ranks to meet: %s", strerror(errno));
    if (bind(it, (const struct sockaddr *)address, bytes) != 0) {
        const sl_status status = fail_to_bind(meeting, address);
        close(it);
        return status;
    }
    *out_socket = it;
    return SL_OK;
}

static bool wait_readable(int socket, uint64_t deadline_ns)
{
    struct pollfd it = {.fd = socket, .events = POLLIN};
    for (uint64_t now = sl_clock_now_ns(); now < deadline_ns; now = sl_clock_now_ns()) {
        const uint64_t left_ms = (deadline_ns - now) / 1000000 + 1;
        if (poll(&it, 1, left_ms < 1000 ? (int)left_ms : 1000) > 0)
            return true;
    }
    return false;
}

static bool is_same_user(int socket)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

/* ---- rank 0 ---- */

/* The descriptor of a file, with one byte of data. */
static bool send_file(int socket, int file)
{
    char data = 0;
    struct iovec part = {&data, 1};
    descriptor_message with = {0};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &with, .msg_controllen = sizeof with};
    with.header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof file)};
    memcpy(CMSG_DATA(&with.header), &file, sizeof file);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

/* Which rank of how many connects, by the name of its socket: `start`, rank, '-' and size. */
static bool read_name(const struct sockaddr_un *start, const struct sockaddr_un *theirs,
                      uint32_t *out_rank, uint32_t *out_size)
{
    const char *base = start->sun_path + 1, *name = theirs->sun_path + 1;
    char *end;
    if (strncmp(name, base, strlen(base)) != 0)
        return false;
    *out_rank = (uint32_t)strtoul(name + strlen(base), &end, 10);
    if (*end != '-')
        return false;
    *out_size = (uint32_t)strtoul(end + 1, &end, 10);
    return *end == '\0';
}

typedef struct reception {
    const sl_meeting *meeting;
    struct sockaddr_un address, start; /* of the listener; how the names of the others begin */
    int listener, file;                /* the file of the board, handed to each rank */
    bool has_come[SL_COMM_RANKS_MAX];
} reception;

/* Hands the file to whoever connects, if it is a rank of this user; any other one is turned away.
 */
static sl_status admit(reception *it)
{
    struct sockaddr_un theirs = {0};
    socklen_t bytes = sizeof theirs - 1; /* so that the name ends */
    uint32_t rank, size;
    sl_status status = SL_OK;
    const int peer =
        accept4(it->listener, (struct sockaddr *)&theirs, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer < 0)
        return SL_OK;
    if (is_same_user(peer) && read_name(&it->start, &theirs, &rank, &size)) {
        if (size != it->meeting->size || rank >= size || rank == 0 || it->has_come[rank])
            status = sl_status_fail(SL_ERROR_USAGE, "rank %u of %u came to a run of %u ranks", rank,
                                    size, it->meeting->size);
        else
            it->has_come[rank] = send_file(peer, it->file);
    }
    close(peer);
    return status;
}

static uint32_t find_missing(const reception *it)
{
    uint32_t rank = 1;
    while (rank < it->meeting->size && it->has_come[rank])
        rank++;
    return rank;
}

static sl_status admit_all(reception *it, uint64_t deadline_ns)
{
    uint32_t missing;
    if (listen(it->listener, 512) != 0)
        return fail_at(&it->address);
    SL_TRY(sl_board_create(it->meeting->size, it->meeting->world_size, &it->file));
    while ((missing = find_missing(it)) < it->meeting->size) {
        if (!wait_readable(it->listener, deadline_ns))
            SL_FAIL(SL_ERROR_RANK, "rank %u has not started on this machine in time", missing);
        SL_TRY(admit(it));
    }
    return SL_OK;
}

static sl_status hand_out(const sl_meeting *meeting, uint64_t deadline_ns, int *out_file)
{
    reception it = {.meeting = meeting, .file = -1};
    const socklen_t bytes = make_address(meeting, "", &it.address);
    (void)make_address(meeting, "-", &it.start);
    SL_TRY(open_socket(meeting, &it.address, bytes, &it.listener));
    const sl_status status = admit_all(&it, deadline_ns);
    close(it.listener);
    if (status == SL_OK)
        *out_file = it.file;
    else if (it.file >= 0)
        close(it.file);
    return status;
}

/* ---- the others ---- */

static sl_status receive_file(int socket, int *out_file)
{
    char data;
    struct iovec part = {&data, 1};
    descriptor_message with = {0};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &with, .msg_controllen = sizeof with};
    ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (got != 1 || !header || header->cmsg_type != SCM_RIGHTS ||
        header->cmsg_len != CMSG_LEN(sizeof *out_file))
        SL_FAIL(SL_ERROR_RANK, "rank 0 did not hand out the memory that ranks share");
    memcpy(out_file, CMSG_DATA(header), sizeof *out_file);
    return SL_OK;
}

/* Rank 0 may not listen yet. */
static sl_status connect_to_first(const sl_meeting *meeting, int socket, uint64_t deadline_ns)
{
    const struct timespec pause = {0, RETRY_NS};
    struct sockaddr_un address;
    const socklen_t bytes = make_address(meeting, "", &address);
    while (connect(socket, (struct sockaddr *)&address, bytes) != 0) {
        if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR)
            return fail_at(&address);
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
    int socket;
    char ending[32];
    struct sockaddr_un address;
    snprintf(ending, sizeof ending, "-%u-%u", meeting->rank, meeting->size);
    const socklen_t bytes = make_address(meeting, ending, &address);
    SL_TRY(open_socket(meeting, &address, bytes, &socket));
    sl_status status = connect_to_first(meeting, socket, deadline_ns);
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
