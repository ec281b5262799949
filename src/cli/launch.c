/* Starts the ranks of a run on this machine and stays with them. Ranks are processes in a group of
 * their own, so a terminal's signals reach this one alone, which turns them into SIGUSR1: the ranks
 * then stop in good order. They share a board (src/comm), whose descriptor they inherit.
 *
 * Nothing is left behind: a rank dies with this process (PR_SET_PDEATHSIG); when one fails, the
 * others, which see it themselves, get some seconds, and then the group is killed.
 */
#define _GNU_SOURCE
#include "launch.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/workers.h"
#include "comm/board.h"
#include "comm/environment.h"
#include "command.h"

enum { EXIT_USAGE = 64, EXIT_RANK = 75, RANKS_MAX = 256, GRACE_S = 10, LIST_BYTES = 128 };

typedef struct launch_options {
    uint32_t rank_count;
    char **words; /* of the command, NULL behind the last */
    const char *program;
    sl_status status;
} launch_options;

/* One rank. */
typedef struct rank_process {
    pid_t id; /* 0: it has ended */
} rank_process;

typedef struct launch {
    launch_options options;
    rank_process ranks[RANKS_MAX];
    pid_t group;
    uint32_t alive_count;
    int board_file;
    int code;                 /* of the first rank that failed for a reason of its own; 0: none */
    bool has_failed;          /* a rank has failed */
    bool is_killed;           /* the rest was killed: what it ends with says nothing */
    uint64_t kill_at_ns;      /* when the rest is killed */
    sigset_t signals, before; /* what this process waits for; the mask it was started with */
} launch;

/* ---- the command line ---- */

static error_t take_word(int key, char *text, struct argp_state *state)
{
    launch_options *options = state->input;
    char *end = NULL;
    if (key == 'n') {
        unsigned long count = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
        if (!end || *end || count < 1 || count > RANKS_MAX) {
            options->status = sl_status_fail(
                SL_ERROR_USAGE, "-n \"%s\": a number of ranks from 1 to %d", text, RANKS_MAX);
            return EINVAL;
        }
        options->rank_count = (uint32_t)count;
        return 0;
    }
    if (key == 'H') {
        options->status =
            sl_status_fail(SL_ERROR_USAGE, "--hosts comes with a later version: start ranks of one "
                                           "machine with -n alone, others by mpirun or srun");
        return EINVAL;
    }
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    options->words = &state->argv[state->next - 1];
    state->next = state->argc; /* the rest is the command's */
    return 0;
}

static const struct argp_option launch_words[] = {
    {"ranks", 'n', "N", 0,
     "How many ranks are started. Each gets its share of the cores; memory budgets are shared by "
     "the ranks themselves",
     0},
    {"hosts", 'H', "FILE", 0, "Machines to start ranks on, one a line (later version)", 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static const char launch_doc[] =
    "Starts N ranks of a command on this machine: sluice launch -n 2 -- train --tp 2 ...\v"
    "A word that is a command of sluice is run by this very program; any other is a program to "
    "run. INT, TERM and HUP stop the ranks in good order (they get USR1). The exit code is that of "
    "the first rank that failed, or 75 if a signal ended it.";

/* A command of sluice is run by the program that this is. */
static void choose_program(launch_options *options)
{
    const sl_command_entry *command;
    options->program = options->words[0];
    if (strchr(options->words[0], '/') == NULL &&
        sl_command_find(options->words[0], &command) == SL_OK)
        options->program = NULL;
}

static sl_status parse_words(int argc, char **argv, launch_options *out_options)
{
    static const struct argp parser = {
        launch_words, take_word, "-- COMMAND [OPTION...]", launch_doc, NULL, NULL, NULL};
    if (argc > 1 && strcmp(argv[1], "-h") == 0) {
        argp_help(&parser, stdout, ARGP_HELP_STD_HELP, "sluice launch");
        exit(0); /* as argp does for --help */
    }
    error_t error = argp_parse(&parser, argc, argv, ARGP_IN_ORDER, NULL, out_options);
    SL_TRY(out_options->status);
    if (error)
        SL_FAIL(SL_ERROR_USAGE, "the command line: %s", strerror(error));
    if (out_options->rank_count == 0)
        SL_FAIL(SL_ERROR_USAGE, "how many ranks? sluice launch -n N -- COMMAND");
    if (!out_options->words)
        SL_FAIL(SL_ERROR_USAGE, "what is to be run? sluice launch -n N -- train ...");
    choose_program(out_options);
    return SL_OK;
}

/* ---- cores ---- */

/* Rank i's share: of the cores that this process may use, spread over all of them, and not more
 * than the cgroup gives time for. With more ranks than cores they take turns. */
static void choose_cores(const launch *it, uint32_t rank, cpu_set_t *out_cores)
{
    cpu_set_t allowed;
    uint32_t ranks = it->options.rank_count, seen = 0;
    CPU_ZERO(out_cores);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    uint32_t count = (uint32_t)CPU_COUNT(&allowed), usable = sl_workers_usable_cpu_count();
    uint32_t first = rank * count / ranks, share = usable / ranks;
    if (share == 0) {
        first = rank % (usable < count ? usable : count);
        share = 1;
    }
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &allowed))
            continue;
        if (seen >= first && seen < first + share)
            CPU_SET(core, out_cores);
        seen++;
    }
}

/* "0-3,8" */
static void describe_cores(const cpu_set_t *cores, char *text, size_t capacity)
{
    size_t length = 0;
    text[0] = '\0';
    for (int core = 0; core < CPU_SETSIZE && length < capacity; core++) {
        if (!CPU_ISSET(core, cores))
            continue;
        int last = core;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cores))
            last++;
        length +=
            (size_t)snprintf(text + length, capacity - length, last > core ? "%s%d-%d" : "%s%d",
                             length > 0 ? "," : "", core, last);
        core = last;
    }
}

static void say_start(const launch *it)
{
    fprintf(stderr, "sluice: starts %u ranks of %s on this machine; cores:", it->options.rank_count,
            it->options.words[0]);
    for (uint32_t i = 0; i < it->options.rank_count; i++) {
        char text[LIST_BYTES];
        cpu_set_t cores;
        choose_cores(it, i, &cores);
        describe_cores(&cores, text, sizeof text);
        fprintf(stderr, "%s %s", i > 0 ? " |" : "", text);
    }
    if (sl_workers_usable_cpu_count() < it->options.rank_count)
        fputs(" (fewer cores than ranks: they take turns)", stderr);
    fputc('\n', stderr);
}

/* ---- starting ---- */

static void set_number(const char *name, uint32_t number)
{
    char text[16];
    snprintf(text, sizeof text, "%u", number);
    setenv(name, text, 1);
}

/* In the child: becomes the rank, or leaves. */
static void become_rank(const launch *it, uint32_t rank, pid_t parent)
{
    cpu_set_t cores;
    setpgid(0, it->group);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_RANK);
    choose_cores(it, rank, &cores);
    if (CPU_COUNT(&cores) > 0)
        (void)sched_setaffinity(0, sizeof cores, &cores); /* refused: the ranks share all */
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO); /* ranks cannot share what is typed */
    fcntl(it->board_file, F_SETFD, 0);
    set_number(SL_ENVIRONMENT_RANK, rank);
    set_number(SL_ENVIRONMENT_SIZE, it->options.rank_count);
    set_number(SL_ENVIRONMENT_FILE, (uint32_t)it->board_file);
    sigprocmask(SIG_SETMASK, &it->before, NULL);
    if (it->options.program) {
        execvp(it->options.program, it->options.words);
    } else {
        char **words = it->options.words - 1; /* what stood before the command: "--", -n's value */
        words[0] = "sluice";
        execv("/proc/self/exe", words);
    }
    fprintf(stderr, "sluice: cannot start %s: %s\n", it->options.words[0], strerror(errno));
    _exit(errno == ENOENT ? 66 : 71);
}

static sl_status start_ranks(launch *it)
{
    pid_t parent = getpid();
    for (uint32_t i = 0; i < it->options.rank_count; i++) {
        pid_t id = fork();
        if (id < 0)
            SL_FAIL(SL_ERROR_SYSTEM, "cannot start rank %u: %s", i, strerror(errno));
        if (id == 0)
            become_rank(it, i, parent);
        if (it->group == 0)
            it->group = id;
        setpgid(id, it->group); /* here too: whoever is first */
        it->ranks[i].id = id;
        it->alive_count++;
    }
    return SL_OK;
}

/* ---- staying ---- */

static void signal_ranks(const launch *it, int number)
{
    for (uint32_t i = 0; i < it->options.rank_count; i++)
        if (it->ranks[i].id > 0)
            kill(it->ranks[i].id, number);
}

/* One that has not come to the others will not: they need not wait for it. */
static void tell_others(const launch *it, uint32_t rank, int state)
{
    char how[64];
    snprintf(how, sizeof how, WIFSIGNALED(state) ? "was ended by signal %d" : "ended with code %d",
             WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state));
    (void)sl_board_lose(it->board_file, rank, how);
}

/* A failure: of its own, or for another's (75), or because it was killed here. */
static void note_failure(launch *it, uint32_t rank, int state)
{
    int code = WIFEXITED(state) ? WEXITSTATUS(state) : EXIT_RANK;
    if (it->is_killed)
        return;
    if (WIFSIGNALED(state))
        fprintf(stderr, "sluice: rank %u was ended by signal %d (%s)\n", rank, WTERMSIG(state),
                strsignal(WTERMSIG(state)));
    if (!it->has_failed)
        it->kill_at_ns = sl_clock_now_ns() + GRACE_S * 1000000000ull;
    it->has_failed = true;
    if (it->code == 0 && code != EXIT_RANK)
        it->code = code;
}

static void collect_ended(launch *it)
{
    for (uint32_t i = 0; i < it->options.rank_count; i++) {
        int state;
        if (it->ranks[i].id <= 0 || waitpid(it->ranks[i].id, &state, WNOHANG) <= 0)
            continue;
        it->ranks[i].id = 0;
        it->alive_count--;
        tell_others(it, i, state);
        if (!WIFEXITED(state) || WEXITSTATUS(state) != 0)
            note_failure(it, i, state);
    }
}

/* A rank that is stopped will not end by itself, and the others have seen that it did not come. */
static void kill_stopped(const launch *it)
{
    for (uint32_t i = 0; i < it->options.rank_count; i++) {
        siginfo_t info = {0};
        if (it->ranks[i].id <= 0 ||
            waitid(P_PID, (id_t)it->ranks[i].id, &info, WSTOPPED | WNOHANG | WNOWAIT) != 0 ||
            info.si_pid == 0)
            continue;
        fprintf(stderr, "sluice: rank %u is stopped by a signal: killed\n", i);
        kill(it->ranks[i].id, SIGKILL);
    }
}

static void kill_rest(launch *it)
{
    for (uint32_t i = 0; i < it->options.rank_count; i++)
        if (it->ranks[i].id > 0)
            fprintf(stderr,
                    "sluice: rank %u has not ended %d s after another rank failed: killed\n", i,
                    GRACE_S);
    it->is_killed = true;
    if (it->group > 0)
        kill(-it->group, SIGKILL);
    signal_ranks(it, SIGKILL);
}

/* Until no rank is left. */
static void stay(launch *it)
{
    while (it->alive_count > 0) {
        const struct timespec tick = {1, 0};
        int number = sigtimedwait(&it->signals, NULL, &tick);
        if (number > 0 && number != SIGCHLD)
            signal_ranks(it, SIGUSR1);
        collect_ended(it);
        if (it->has_failed && it->alive_count > 0)
            kill_stopped(it);
        if (it->has_failed && !it->is_killed && it->alive_count > 0 &&
            sl_clock_now_ns() > it->kill_at_ns)
            kill_rest(it);
    }
    if (it->group > 0)
        kill(-it->group, SIGKILL); /* what ranks may have started */
}

static void take_signals(launch *it)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD};
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigemptyset(&it->signals);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction now;
        if (numbers[i] == SIGHUP && sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
            continue; /* nohup */
        sigaddset(&it->signals, numbers[i]);
    }
    sigaction(SIGCHLD, &standard, NULL);
    sigprocmask(SIG_BLOCK, &it->signals, &it->before);
}

static int end_launch(const launch *it)
{
    return it->code != 0 ? it->code : it->has_failed ? EXIT_RANK : 0;
}

int sl_launch_main(int argc, char **argv)
{
    launch it = {.board_file = -1};
    sl_status status = parse_words(argc, argv, &it.options);
    if (status == SL_OK)
        status = sl_board_create(it.options.rank_count, it.options.rank_count, &it.board_file);
    if (status != SL_OK)
        return sl_command_end(status);
    say_start(&it);
    take_signals(&it);
    status = start_ranks(&it);
    if (status != SL_OK) {
        sl_command_end(status);
        it.code = sl_status_exit_code(status);
        it.has_failed = true;
        kill_rest(&it);
    }
    stay(&it);
    return end_launch(&it);
}
