/* The built command on a pseudo-terminal of a width of choice. For test programs that include
 * command_run.h before it. */
#ifndef SL_TESTS_SCREEN_H
#define SL_TESTS_SCREEN_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

enum { SCREEN_BYTES = 1 << 16 };

typedef struct screen {
    int master;
    pid_t child;
    char text[SCREEN_BYTES];
    size_t used;
} screen;

static inline void set_width(int terminal, unsigned short columns)
{
    const struct winsize size = {.ws_row = 24, .ws_col = columns};
    assert_int_equal(ioctl(terminal, TIOCSWINSZ, &size), 0);
}

/* Starts a run on a terminal of its own. */
static inline void start_on_terminal(screen *self, unsigned short columns, const char *kind,
                                     const char *arguments)
{
    char command[2 * COMMAND_BYTES], name[64];
    memset(self, 0, sizeof *self);
    self->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(self->master >= 0);
    assert_int_equal(grantpt(self->master), 0);
    assert_int_equal(unlockpt(self->master), 0);
    assert_int_equal(ptsname_r(self->master, name, sizeof name), 0);
    int slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(slave >= 0);
    set_width(slave, columns);
    snprintf(command, sizeof command, "exec '%s' %s 2>err </dev/null", binary, arguments);
    self->child = fork();
    assert_true(self->child >= 0);
    if (self->child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no endless run */
        setenv("TERM", kind, 1);
        dup2(slave, STDOUT_FILENO);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(slave);
}

/* Reads what comes next; false: the run has ended. */
static inline bool read_screen(screen *self)
{
    if (self->used == sizeof self->text - 1)
        self->used = 0;
    ssize_t count;
    do {
        count = read(self->master, self->text + self->used, sizeof self->text - 1 - self->used);
    } while (count < 0 && errno == EINTR);
    if (count <= 0)
        return false;
    self->used += (size_t)count;
    self->text[self->used] = '\0';
    return true;
}

static inline int end_screen(screen *self)
{
    int status;
    while (read_screen(self))
        ;
    assert_int_equal(waitpid(self->child, &status, 0), self->child);
    close(self->master);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#endif
