/* Starts the ranks of a run on this machine and stays with them. Ranks are processes in a group of
 * their own, so a terminal's signals reach this one alone, which turns them into SIGUSR1: the ranks
 * then stop in good order. They share a board (src/comm), whose descriptor they inherit.
 *
 * Nothing is left behind: a rank dies with this process (PR_SET_PDEATHSIG); when one fails, the
 * others, which see it themselves, get some seconds, and then the group is killed. With --restarts
 * all of them are started again after a death, over a board of their own. With --hosts mpirun
 * does all that (hosts.c).
 */
#define _GNU_SOURCE
#include "launch.h"

#include <argp.h>
#include <assert.h>
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
#include "base/plural.h"
#include "base/workers.h"
#include "comm/board.h"
#include "comm/environment.h"
#include "command.h"
#include "command_help.h"
#include "hosts.h"
#include "last_words.h"
#include "launch_input.h"
#include "options.h"
#include "restarts.h"
#include "signals.h"
#include "terminal.h"

enum {
    EXIT_USAGE = 64,
    EXIT_RANK = 75,
    RANKS_MAX = SL_LAST_WORDS_RANKS_MAX,
    GRACE_S = 10,
    WORDS_S = 1, /* after the first failure, until messages are printed: others fail by it too */
    LIST_BYTES = 128,
    RESTARTS_MAX = 10000,
    PAUSE_S = 1, /* before a restart */
};

typedef struct launch_options {
    uint32_t rank_count;
    char **words; /* of the command, NULL behind the last */
    const char *program;
    const char *hosts; /* a file of machines; NULL: this one alone */
    sl_restarts restarts;
    int next_word; /* index in argv behind the last word that was taken */
    int asked_key; /* the first given one of --help and --usage; 0: none */
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
    sl_launch_input input; /* of the first rank, if it is a command of sluice */
    int code;              /* of the first rank that failed for a reason of its own; 0: none */
    bool has_failed;       /* a rank has failed */
    bool was_signalled;    /* and it was ended by a signal */
    bool is_told;          /* to end, by a signal */
    char died[96];         /* the first rank that did, and how; "": none */
    bool is_killed;        /* the rest was killed: what it ends with says nothing */
    uint64_t kill_at_ns;   /* when the rest is killed */
    sl_last_words words;   /* of the ranks */
    uint64_t words_at_ns;  /* when those of the ended ranks are printed, though others still run */
    sigset_t signals, before; /* what this process waits for; the mask it was started with */
} launch;

/* ---- the command line ---- */

/* Whether the text is a number from `least` to `most`. */
static bool read_number(const char *text, unsigned long least, unsigned long most, uint32_t *out)
{
    char *end = NULL;
    unsigned long number = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    *out = (uint32_t)number;
    return end && !*end && number >= least && number <= most;
}

static error_t take_restart_word(int key, const char *text, launch_options *options)
{
    if (key == 'F') {
        options->restarts.sheds_ranks = true;
        return 0;
    }
    if (read_number(text, 0, RESTARTS_MAX, &options->restarts.limit))
        return 0;
    options->status = sl_status_fail(SL_ERROR_USAGE, "--restarts \"%s\": a number from 0 to %d",
                                     text, RESTARTS_MAX);
    return EINVAL;
}

static error_t take_option(int key, char *text, launch_options *options)
{
    if (sl_options_key_asks(key)) {
        options->asked_key = options->asked_key ? options->asked_key : key;
        return 0;
    }
    if (key == 'n') {
        if (read_number(text, 1, RANKS_MAX, &options->rank_count))
            return 0;
        options->status = sl_status_fail(
            SL_ERROR_USAGE, "-n \"%s\": a number of ranks from 1 to %d", text, RANKS_MAX);
        return EINVAL;
    }
    if (key == 'R' || key == 'F')
        return take_restart_word(key, text, options);
    if (key != 'H')
        return ARGP_ERR_UNKNOWN;
    options->hosts = text;
    return 0;
}

static const struct argp_option launch_words[] = {
    {"ranks", 'n', "N", 0,
     "How many ranks are started. Each gets its share of the cores; memory budgets are shared by "
     "the ranks themselves",
     0},
    {"hosts", 'H', "FILE", 0,
     "Machines to start ranks on, one a line: NAME or NAME slots=N. mpirun, of Open MPI or MPICH, "
     "starts them there, where this program has the same path",
     0},
    {"restarts", 'R', "R", 0,
     "How many times train is started again, with --resume, after a rank died of a signal or "
     "missed another (75) [0]",
     0},
    {"fewer-ranks", 'F', NULL, 0,
     "After a signal go on with fewer ranks: the next number that --tp, --pp and --global-batch "
     "divide among",
     0},
    SL_OPTIONS_HELP_ROWS,
    {NULL, 0, NULL, 0, NULL, 0},
};

static const char arguments_doc[] = "-- COMMAND [OPTION...]";

const sl_command_entry sl_command_launch = {
    .task = SL_COMMAND_TRAIN,
    .name = "launch",
    .summary = "start several ranks of a command, here or on several machines",
    .arguments = arguments_doc,
    .doc =
        "Starts N ranks of a command: sluice launch -n 2 -- train --tp 2 ..., on this machine or "
        "on those of --hosts.",
    .page = "docs/ranks.md",
    .words = launch_words,
    .remark =
        "A word that is a command of sluice is run by this very program; any other is a program to "
        "run. INT, TERM and HUP stop the ranks in good order (they get USR1). The exit code is "
        "that of the first rank that failed, or 75 if a signal ended it."};

/* A command of sluice is run by the program that this is. */
static void choose_program(launch_options *options)
{
    const sl_command_entry *command;
    options->program = options->words[0];
    if (strchr(options->words[0], '/') == NULL &&
        sl_command_find(options->words[0], false, &command) == SL_OK && command->run)
        options->program = NULL;
}

/* Called by argp for each word, and once more after one that it does not take. */
static error_t take_word(int key, char *text, struct argp_state *state)
{
    launch_options *options = state->input;
    if (key == ARGP_KEY_ERROR && options->status == SL_OK)
        options->status = sl_options_explain(launch_words, state->argv[options->next_word]);
    if (key != ARGP_KEY_ARG) {
        const error_t error = take_option(key, text, options);
        options->next_word = error == 0 ? state->next : options->next_word;
        return error;
    }
    options->words = &state->argv[state->next - 1];
    state->next = state->argc; /* the rest is the command's */
    return 0;
}

/* Checks the options together, and finds the program of the command. */
static sl_status check_words(launch_options *options)
{
    if (options->rank_count == 0)
        SL_FAIL(SL_ERROR_USAGE, "how many ranks? sluice launch -n N -- COMMAND");
    if (!options->words)
        SL_FAIL(SL_ERROR_USAGE, "what is to be run? sluice launch -n N -- train ...");
    choose_program(options);
    if (options->hosts && (options->restarts.limit > 0 || options->restarts.sheds_ranks))
        SL_FAIL(SL_ERROR_USAGE, "--restarts is for ranks of this machine: with --hosts start the "
                                "run again by hand, with --resume and the machines that are left");
    return sl_restarts_open(&options->restarts, options->words);
}

static sl_status parse_words(int argc, char **argv, launch_options *out_options)
{
    static const struct argp parser = {
        .options = launch_words, .parser = take_word, .args_doc = arguments_doc};
    out_options->next_word = 1;
    error_t error = argp_parse(&parser, argc, argv, ARGP_IN_ORDER | ARGP_SILENT, NULL, out_options);
    SL_TRY(out_options->status);
    if (error)
        SL_FAIL(SL_ERROR_USAGE, "the command line: %s", strerror(error));
    if (out_options->asked_key == SL_OPTIONS_KEY_USAGE)
        argp_help(&parser, stdout, ARGP_HELP_USAGE, "sluice launch");
    else if (out_options->asked_key)
        sl_command_help_print(&sl_command_launch, true, stdout);
    return out_options->asked_key ? SL_OK : check_words(out_options);
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
    assert(ranks > 0 && count > 0 && usable > 0);
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
    static char all[RANKS_MAX * LIST_BYTES];
    size_t length = 0;
    for (uint32_t i = 0; i < it->options.rank_count; i++) {
        char text[LIST_BYTES];
        cpu_set_t cores;
        choose_cores(it, i, &cores);
        describe_cores(&cores, text, sizeof text - sizeof " | ");
        length +=
            (size_t)snprintf(all + length, sizeof all - length, "%s%s", i > 0 ? " | " : "", text);
    }
    sl_terminal_say(SL_TERMINAL_PLAIN, "starts %u rank%s of %s on this machine; cores: %s%s",
                    it->options.rank_count, sl_plural(it->options.rank_count), it->options.words[0],
                    all,
                    sl_workers_usable_cpu_count() < it->options.rank_count
                        ? " (fewer cores than ranks: they take turns)"
                        : "");
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
    const bool has_input = !it->options.program && sl_launch_input_give(&it->input, rank == 0);
    int nothing = has_input ? -1 : open("/dev/null", O_RDONLY);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO); /* ranks cannot share what is typed */
    fcntl(it->board_file, F_SETFD, 0);
    set_number(SL_ENVIRONMENT_RANK, rank);
    set_number(SL_ENVIRONMENT_SIZE, it->options.rank_count);
    set_number(SL_ENVIRONMENT_FILE, (uint32_t)it->board_file);
    sigset_t mask = it->before;
    if (!it->options.program)
        sigaddset(&mask, SL_SIGNALS_OF_RANKS); /* until it watches signals */
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (it->options.program) {
        signal(SIGXFSZ, SIG_DFL); /* which this program ignores */
        execvp(it->options.program, it->options.words);
    } else {
        char **words = it->options.words - 1; /* what stood before the command: "--", -n's value */
        words[0] = "sluice";
        execv("/proc/self/exe", it->options.restarts.done > 0 ? it->options.restarts.words : words);
    }
    const int error = errno;
    sl_terminal_say(SL_TERMINAL_ERROR, "cannot start %s: %s", it->options.words[0],
                    strerror(error));
    _exit(error == ENOENT ? 66 : 71);
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

static void describe_death(launch *it, uint32_t rank, int state)
{
    if (WIFSIGNALED(state))
        snprintf(it->died, sizeof it->died, "rank %u of %u died of signal %d", rank,
                 it->options.rank_count, WTERMSIG(state));
    else
        snprintf(it->died, sizeof it->died, "rank %u of %u ended with code %d", rank,
                 it->options.rank_count, WEXITSTATUS(state));
}

/* A failure: of its own, or for another's (75), or because it was killed here. */
static void note_failure(launch *it, uint32_t rank, int state)
{
    int code = WIFEXITED(state) ? WEXITSTATUS(state) : EXIT_RANK;
    if (it->is_killed)
        return;
    if (WIFSIGNALED(state))
        sl_terminal_say(SL_TERMINAL_ERROR, "rank %u was ended by signal %d (%s)", rank,
                        WTERMSIG(state), strsignal(WTERMSIG(state)));
    if (!it->has_failed || (WIFSIGNALED(state) && !it->was_signalled))
        describe_death(it, rank, state);
    it->was_signalled |= WIFSIGNALED(state);
    if (!it->has_failed) {
        it->words_at_ns = sl_clock_now_ns() + WORDS_S * 1000000000ull;
        it->kill_at_ns = sl_clock_now_ns() + GRACE_S * 1000000000ull;
    }
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
        it->words.has_ended[i] = true;
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
        sl_terminal_say(SL_TERMINAL_ERROR, "rank %u is stopped by a signal: killed", i);
        kill(it->ranks[i].id, SIGKILL);
    }
}

static void kill_rest(launch *it)
{
    for (uint32_t i = 0; i < it->options.rank_count; i++)
        if (it->ranks[i].id > 0)
            sl_terminal_say(SL_TERMINAL_ERROR,
                            "rank %u has not ended %d s after another rank failed: killed", i,
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
        if (number > 0 && number != SIGCHLD) {
            it->is_told = true;
            signal_ranks(it, SIGUSR1);
        }
        collect_ended(it);
        sl_last_words_say_remarks(&it->words, it->board_file, it->options.rank_count,
                                  it->alive_count == 0);
        if (it->alive_count == 0 || (it->has_failed && sl_clock_now_ns() > it->words_at_ns))
            sl_last_words_say(&it->words, it->board_file, it->options.rank_count);
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

/* ---- once, and again ---- */

/* Until no rank is left; what they ended with is in `it`. Fails where no board could be made. */
static sl_status run_once(launch *it)
{
    SL_TRY(sl_board_create(it->options.rank_count, it->options.rank_count, &it->board_file));
    say_start(it);
    sl_status status = sl_launch_input_open(&it->input);
    if (status == SL_OK)
        status = start_ranks(it);
    if (status == SL_OK)
        status = sl_launch_input_start(&it->input);
    if (status != SL_OK) {
        it->code = sl_command_end(status);
        it->has_failed = true;
        kill_rest(it);
    }
    stay(it);
    sl_launch_input_close(&it->input);
    close(it->board_file);
    return SL_OK;
}

/* What a machine suffers from may pass, and a signal to this process comes in time. */
static void pause_before_restart(launch *it)
{
    const uint64_t end_ns = sl_clock_now_ns() + PAUSE_S * 1000000000ull;
    for (uint64_t now_ns; !it->is_told && (now_ns = sl_clock_now_ns()) < end_ns;) {
        const struct timespec rest = {(time_t)((end_ns - now_ns) / 1000000000),
                                      (long)((end_ns - now_ns) % 1000000000)};
        int number = sigtimedwait(&it->signals, NULL, &rest);
        it->is_told = number > 0 && number != SIGCHLD;
    }
}

/* Whether the ranks are to be started again, of which some were lost: nobody failed for a reason of
 * its own, which would only come again. */
static bool prepare_restart(launch *it)
{
    sl_restarts *restarts = &it->options.restarts;
    const uint32_t rank_count = it->options.rank_count;
    if (restarts->limit == 0 || end_launch(it) != EXIT_RANK || it->is_told)
        return false;
    if (restarts->done == restarts->limit) {
        sl_terminal_say(SL_TERMINAL_ERROR, "%s: no restart is left of %u", it->died,
                        restarts->limit);
        return false;
    }
    const uint32_t next_count =
        it->was_signalled ? sl_restarts_choose_ranks(restarts, rank_count) : rank_count;
    const sl_status status = sl_restarts_announce(restarts, it->died, next_count);
    if (status != SL_OK) {
        sl_command_end(status);
        return false;
    }
    pause_before_restart(it);
    if (it->is_told) {
        sl_terminal_say(SL_TERMINAL_PLAIN, "told to end: there is no restart");
        return false;
    }
    *it = (launch){
        .options = it->options, .board_file = -1, .signals = it->signals, .before = it->before};
    it->options.rank_count = next_count;
    return true;
}

static int launch_on_hosts(const launch *it)
{
    int code = 0;
    const sl_hosts hosts = {.path = it->options.hosts,
                            .rank_count = it->options.rank_count,
                            .words = it->options.words,
                            .program = it->options.program,
                            .signals = &it->signals,
                            .in_mpirun = &it->before};
    const sl_status status = sl_hosts_launch(&hosts, &code);
    return status == SL_OK ? code : sl_command_end(status);
}

int sl_launch_main(int argc, char **argv)
{
    launch it = {.board_file = -1};
    sl_status status = parse_words(argc, argv, &it.options);
    if (status == SL_OK && it.options.asked_key)
        return 0;
    if (status == SL_OK)
        take_signals(&it);
    sl_terminal_expect_lines();
    if (status == SL_OK && it.options.hosts)
        return launch_on_hosts(&it);
    while (status == SL_OK) {
        status = run_once(&it);
        if (status != SL_OK || !prepare_restart(&it))
            break;
    }
    sl_restarts_close(&it.options.restarts);
    return status == SL_OK ? end_launch(&it) : sl_command_end(status);
}
