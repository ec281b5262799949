/* See man.h. Whoever reads a page leaves it by a key, and may leave before all of it was taken: a
 * page that is not taken to its end is no failure. As system(3) does, signals of the keyboard are
 * left to `man`. */
#include "man.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IGNORED_COUNT = 3 };

static const int ignored[IGNORED_COUNT] = {SIGINT, SIGQUIT, SIGPIPE};

static void become_man(const int pipe_ends[2], const struct sigaction before[IGNORED_COUNT])
{
    for (int i = 0; i < IGNORED_COUNT; i++)
        sigaction(ignored[i], &before[i], NULL);
    dup2(pipe_ends[0], STDIN_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    execlp("man", "man", "-l", "-", (char *)NULL);
    _exit(127);
}

static void write_whole(int file, const char *page, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t count = write(file, page, bytes);
        if (count < 0 && errno != EINTR)
            return;
        page += count > 0 ? count : 0;
        bytes -= count > 0 ? (size_t)count : 0;
    }
}

/* Whether the process ended well, or was ended by a signal: then there is nobody to show more. */
static bool wait_for(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    return WIFSIGNALED(status) || WEXITSTATUS(status) == 0;
}

static bool give_to_man(const char *page, size_t bytes,
                        const struct sigaction before[IGNORED_COUNT])
{
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    const pid_t child = fork();
    if (child == 0)
        become_man(ends, before);
    close(ends[0]);
    if (child > 0)
        write_whole(ends[1], page, bytes);
    close(ends[1]);
    return child > 0 && wait_for(child);
}

bool sl_man_show(const char *page, size_t bytes)
{
    struct sigaction before[IGNORED_COUNT], ignore = {.sa_handler = SIG_IGN};
    for (int i = 0; i < IGNORED_COUNT; i++)
        sigaction(ignored[i], &ignore, &before[i]);
    const bool is_shown = give_to_man(page, bytes, before);
    for (int i = 0; i < IGNORED_COUNT; i++)
        sigaction(ignored[i], &before[i], NULL);
    return is_shown;
}
