/* See launch_input.h. The thread sleeps in poll, until either end of the socket is shut. */
#define _GNU_SOURCE
#include "launch_input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/environment.h"

enum { PART_BYTES = 1 << 12 };

sl_status sl_launch_input_open(sl_launch_input *out_input)
{
    int ends[2];
    *out_input = (sl_launch_input){.own_end = -1, .rank_end = -1};
    if (fcntl(STDIN_FILENO, F_GETFD) < 0)
        return SL_OK;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no socket for standard input: %s", strerror(errno));
    out_input->own_end = ends[0];
    out_input->rank_end = ends[1];
    return SL_OK;
}

bool sl_launch_input_give(const sl_launch_input *input, bool is_first)
{
    if (input->rank_end < 0)
        return false;
    setenv(SL_ENVIRONMENT_INPUT, isatty(STDIN_FILENO) == 1 ? SL_ENVIRONMENT_TERMINAL : "file", 1);
    return is_first && dup2(input->rank_end, STDIN_FILENO) == STDIN_FILENO;
}

/* ---- the thread ---- */

static bool send_all(int socket, const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t sent = send(socket, bytes, count, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return false;
        bytes += sent > 0 ? sent : 0;
        count -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

/* False at the end of input, or if the rank takes no more. */
static bool pass_on(int socket)
{
    char bytes[PART_BYTES];
    const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
    if (count < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    return count > 0 && send_all(socket, bytes, (size_t)count);
}

static void *serve(void *argument)
{
    const sl_launch_input *input = argument;
    struct pollfd rank = {.fd = input->own_end, .events = POLLIN};
    struct pollfd sources[2] = {rank, {.fd = -1, .events = POLLIN}};
    char asked;
    while (poll(sources, 2, -1) >= 0 || errno == EINTR) {
        if (sources[0].revents != 0 && recv(input->own_end, &asked, 1, 0) <= 0)
            break;
        if (sources[0].revents != 0)
            sources[1].fd = STDIN_FILENO;
        else if (sources[1].revents != 0 && !pass_on(input->own_end)) {
            shutdown(input->own_end, SHUT_WR);
            sources[1].fd = -1;
        }
        sources[0].revents = sources[1].revents = 0;
    }
    return NULL;
}

/* ---- in the launcher ---- */

static void close_end(int *end)
{
    if (*end >= 0)
        close(*end);
    *end = -1;
}

sl_status sl_launch_input_start(sl_launch_input *input)
{
    close_end(&input->rank_end);
    if (input->own_end < 0)
        return SL_OK;
    const int error = pthread_create(&input->thread, NULL, serve, input);
    if (error != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no thread for standard input: %s", strerror(error));
    input->has_thread = true;
    return SL_OK;
}

void sl_launch_input_close(sl_launch_input *input)
{
    if (input->has_thread) {
        shutdown(input->own_end, SHUT_RDWR);
        pthread_join(input->thread, NULL);
    }
    input->has_thread = false;
    close_end(&input->own_end);
    close_end(&input->rank_end);
}
