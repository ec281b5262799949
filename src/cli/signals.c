/* SIGINT and SIGTERM: the first sets a flag, the second ends the process. */
#include <unistd.h>

#include "command.h"

enum { EXIT_SECOND_SIGNAL = 130 };

static volatile sig_atomic_t signal_count;

static void count_signal(int number)
{
    (void)number;
    if (signal_count)
        _exit(EXIT_SECOND_SIGNAL);
    signal_count = 1;
}

const volatile sig_atomic_t *sl_command_watch_signals(void)
{
    /* Calls in progress go on: the loop looks at the flag between steps. */
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &signal_count;
}
