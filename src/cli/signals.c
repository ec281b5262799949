/* Handlers, and what they may touch: words of their own, texts that are written before they are
 * installed, and calls that are safe in one. Signals arrive at the control thread, one at a time:
 * lanes, workers and disk threads block them. */
#define _GNU_SOURCE
#include "signals.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "terminal.h"

enum { EXIT_SECOND_SIGNAL = 130, TEXT_BYTES = 768 };

/* Within so long the same number is the same signal: a terminal that closes, and timeout(1), say it
 * twice. */
static const double same_hangup_seconds = 3, same_seconds = 0.1;

static volatile sig_atomic_t signal_count, is_saving, must_leave;
static volatile sig_atomic_t last_number; /* of the last signal; 0: none yet */
static struct timespec last_time;         /* and when, on the monotonic clock */
static volatile sig_atomic_t leaves_at_first;
static char stops_text[TEXT_BYTES], stops_in_save_text[TEXT_BYTES], leaves_now_text[TEXT_BYTES];
static bool is_mute;
static bool replaces_line; /* what is said takes the place of a live line */
static char save_first_text[TEXT_BYTES], leaves_save_text[TEXT_BYTES];

/* The texts are whole lines. */
static void say(const char *text)
{
    if (is_mute)
        return;
    if (write(STDERR_FILENO, text, strlen(text)) > 0 && replaces_line)
        sl_terminal_forget_line();
}

static bool is_said_again(int number)
{
    struct timespec now, before = last_time;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return false;
    double since =
        (double)(now.tv_sec - before.tv_sec) + 1e-9 * (double)(now.tv_nsec - before.tv_nsec);
    bool is_same = number == last_number;
    last_number = number;
    last_time = now;
    return is_same && since <= (number == SIGHUP ? same_hangup_seconds : same_seconds);
}

static void take_signal(int number)
{
    int error = errno;
    if (is_said_again(number)) {
        errno = error;
        return;
    }
    signal_count = signal_count + 1;
    if (signal_count == 1) {
        say(is_saving ? stops_in_save_text : stops_text);
        if (leaves_at_first)
            _exit(0);
    } else if (is_saving && !must_leave) {
        must_leave = 1;
        say(save_first_text);
    } else {
        say(is_saving ? leaves_save_text : leaves_now_text);
        _exit(EXIT_SECOND_SIGNAL);
    }
    errno = error;
}

void sl_signals_mute(void)
{
    is_mute = true;
}

static void keep_texts(const sl_signal_texts *texts)
{
    sl_terminal_keep(texts->stops, stops_text, TEXT_BYTES);
    sl_terminal_keep(texts->stops_in_save, stops_in_save_text, TEXT_BYTES);
    sl_terminal_keep(texts->leaves_now, leaves_now_text, TEXT_BYTES);
    sl_terminal_keep("a checkpoint is being written: leaving when it is whole; another signal "
                     "leaves now, and this checkpoint is lost (older ones are not)",
                     save_first_text, TEXT_BYTES);
    sl_terminal_keep("leaving amid a save: that checkpoint is lost, older ones are not",
                     leaves_save_text, TEXT_BYTES);
    leaves_at_first = texts->leaves;
    replaces_line = sl_terminal_is_live(stderr);
}

const volatile sig_atomic_t *sl_signals_watch(const sl_signal_texts *texts)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    enum { COUNT = sizeof numbers / sizeof numbers[0] };
    /* Calls in progress go on: the run looks at the count between steps. */
    struct sigaction action = {.sa_handler = take_signal, .sa_flags = SA_RESTART}, before;
    sigset_t blocked_before;
    /* One at a time: a handler is not interrupted by another, nor by a change of what it says. */
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < COUNT; i++)
        sigaddset(&action.sa_mask, numbers[i]);
    pthread_sigmask(SIG_BLOCK, &action.sa_mask, &blocked_before);
    keep_texts(texts);
    for (int i = 0; i < COUNT; i++)
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    sigdelset(&blocked_before, SL_SIGNALS_OF_RANKS); /* launch has blocked it */
    pthread_sigmask(SIG_SETMASK, &blocked_before, NULL);
    return &signal_count;
}

void sl_signals_release(void)
{
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SL_SIGNALS_OF_RANKS);
    pthread_sigmask(SIG_UNBLOCK, &held, NULL);
}

void sl_signals_ignore_failed_output(void)
{
    signal(SIGPIPE, SIG_IGN);
}

void sl_signals_ignore_full_files(void)
{
    signal(SIGXFSZ, SIG_IGN);
}

void sl_signals_begin_save(void)
{
    is_saving = 1;
}

void sl_signals_end_save(void)
{
    is_saving = 0;
}

bool sl_signals_must_leave(void)
{
    return must_leave;
}
