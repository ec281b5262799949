/* The file of machines, the words for mpirun, and its end; see hosts.h. */
#define _GNU_SOURCE /* getline, open_memstream, program_invocation_name */
#include "hosts.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/plural.h"
#include "files/files.h"
#include "terminal.h"

enum { EXIT_RANK = 75, EXIT_MISSING = 66, MACHINES_MAX = 4096, NAME_BYTES = 254, WORDS_OWN = 12 };
enum { LINE_BYTES = 1024, LINES_MAX = 65536 };

/* ---- the machines ---- */

typedef struct machine {
    char name[NAME_BYTES];
    uint32_t slots; /* ranks there; 0 in the file: not said */
} machine;

typedef struct machines {
    machine items[MACHINES_MAX];
    uint32_t count;
} machines;

/* What follows is a word of mpirun's: it must not begin an option or a list. */
static bool is_name(const char *text)
{
    if (!isalnum((unsigned char)*text) || strlen(text) >= NAME_BYTES)
        return false;
    for (; *text; text++)
        if (!isalnum((unsigned char)*text) && !strchr("-._", *text))
            return false;
    return true;
}

static bool read_slots(const char *text, uint32_t *out_slots)
{
    char *end = NULL;
    unsigned long number = isdigit((unsigned char)*text) ? strtoul(text, &end, 10) : 0;
    *out_slots = (uint32_t)number;
    return number >= 1 && number <= UINT16_MAX && *end == '\0';
}

/* Of a line, which is changed. */
static bool read_machine(char *line, machine *out, bool *out_is_there)
{
    static const char blanks[] = " \t\r\n";
    char *rest = NULL;
    line[strcspn(line, "#")] = '\0';
    char *name = strtok_r(line, blanks, &rest);
    char *slots = strtok_r(NULL, blanks, &rest);
    *out_is_there = name != NULL;
    if (!name)
        return true;
    char *colon = strchr(name, ':');
    if (strtok_r(NULL, blanks, &rest) || (slots && (colon || strncmp(slots, "slots=", 6) != 0)))
        return false;
    if (colon)
        *colon = '\0';
    out->slots = 0;
    if (!is_name(name))
        return false;
    snprintf(out->name, sizeof out->name, "%s", name);
    if (colon || slots)
        return read_slots(colon ? colon + 1 : slots + 6, &out->slots);
    return true;
}

/* A line in `line`, as far as there is room: false if it is longer. */
static bool is_whole_line(const char *line, FILE *file)
{
    return strchr(line, '\n') != NULL || feof(file);
}

static sl_status read_lines(const char *path, FILE *file, machines *out)
{
    char line[LINE_BYTES];
    bool is_there, is_right = true;
    uint32_t number = 0;
    while (is_right && fgets(line, sizeof line, file)) {
        number++;
        is_right = number <= LINES_MAX && out->count < MACHINES_MAX && is_whole_line(line, file) &&
                   read_machine(line, &out->items[out->count], &is_there);
        out->count += is_right && is_there;
    }
    if (!is_right)
        SL_FAIL(SL_ERROR_DATA,
                "%s: line %u is none of NAME, NAME slots=N and NAME:N, or is longer than %d bytes, "
                "or the file has more than %d machines or %d lines",
                sl_files_show(path).text, number, LINE_BYTES, MACHINES_MAX, LINES_MAX);
    if (ferror(file))
        SL_FAIL(SL_ERROR_IO, "%s: cannot be read: %s", sl_files_show(path).text, strerror(errno));
    if (out->count == 0)
        SL_FAIL(SL_ERROR_DATA, "%s: no machine is named, one a line", sl_files_show(path).text);
    return SL_OK;
}

/* Slots are filled in the order of the file; where none are said, ranks are spread evenly. */
static sl_status share_out(const sl_hosts *hosts, machines *all)
{
    uint64_t slots = 0;
    uint32_t named = 0, left = hosts->rank_count;
    for (uint32_t i = 0; i < all->count; i++) {
        slots += all->items[i].slots;
        named += all->items[i].slots > 0;
    }
    if (named > 0 && named < all->count)
        SL_FAIL(SL_ERROR_DATA, "%s: give slots for all machines, or for none of them",
                sl_files_show(hosts->path).text);
    if (named > 0 && slots < left)
        SL_FAIL(SL_ERROR_USAGE,
                "%s has slots for %" PRIu64 " rank%s, and -n asks for %u: give more slots or fewer "
                "ranks",
                sl_files_show(hosts->path).text, slots, sl_plural(slots), left);
    for (uint32_t i = 0; i < all->count; i++) {
        uint32_t *mine = &all->items[i].slots;
        if (named == 0)
            *mine = hosts->rank_count / all->count + (i < hosts->rank_count % all->count);
        *mine = *mine < left ? *mine : left;
        left -= *mine;
    }
    return SL_OK;
}

/* "a:2,b:2", as both MPIs take it. */
static sl_status format_list(const machines *all, char **out_list)
{
    size_t bytes;
    FILE *stream = open_memstream(out_list, &bytes);
    if (!stream)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of machines");
    for (uint32_t i = 0, written = 0; i < all->count; i++)
        if (all->items[i].slots > 0)
            fprintf(stream, "%s%s:%u", written++ > 0 ? "," : "", all->items[i].name,
                    all->items[i].slots);
    if (fclose(stream) == 0)
        return SL_OK;
    free(*out_list);
    *out_list = NULL;
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for a list of machines");
}

static sl_status read_hosts(const sl_hosts *hosts, char **out_list)
{
    FILE *file = fopen(hosts->path, "re");
    if (!file)
        SL_FAIL(SL_ERROR_MISSING, "%s: cannot be opened: %s", sl_files_show(hosts->path).text,
                strerror(errno));
    machines *all = calloc(1, sizeof *all);
    if (!all) {
        fclose(file);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for machines");
    }
    sl_status status = read_lines(hosts->path, file, all);
    fclose(file);
    if (status == SL_OK)
        status = share_out(hosts, all);
    if (status == SL_OK)
        status = format_list(all, out_list);
    free(all);
    return status;
}

/* ---- the words for mpirun ---- */

/* Which MPI the first mpirun of the path is of. */
static sl_status find_mpi(bool *out_is_mpich)
{
    char text[4096];
    /* NOLINTNEXTLINE(cert-env33-c): nothing of a user's is in these words */
    FILE *said = popen("mpirun --version 2>/dev/null </dev/null", "re");
    size_t length = said ? fread(text, 1, sizeof text - 1, said) : 0;
    text[length] = '\0';
    if (!said || pclose(said) != 0 || length == 0)
        SL_FAIL(SL_ERROR_MISSING, "--hosts needs mpirun, which is not found or does not run: "
                                  "install Open MPI or MPICH, or start the ranks by srun");
    *out_is_mpich = strstr(text, "HYDRA") != NULL;
    if (!*out_is_mpich && !strstr(text, "Open MPI") && !strstr(text, "OpenRTE"))
        SL_FAIL(SL_ERROR_USAGE, "mpirun is neither Open MPI's nor MPICH's: start the ranks by it, "
                                "without sluice launch");
    return SL_OK;
}

/* Open MPI gives other machines nothing of the environment but what is named. */
static bool is_passed_on(const char *variable)
{
    return strncmp(variable, "SLUICE_", 7) == 0;
}

static size_t count_words(char **words)
{
    size_t count = 0;
    while (words[count])
        count++;
    return count;
}

typedef struct run {
    char *list, *exe; /* owned; exe NULL: the program is another one */
    char number[16];
    char **words; /* of mpirun; the array is owned, and so are those from `passed` on */
    size_t count, passed, passed_end;
} run;

static void close_run(run *it)
{
    for (size_t i = it->passed; i < it->passed_end; i++)
        free(it->words[i]);
    free(it->words);
    free(it->exe);
    free(it->list);
}

static void add(run *it, const char *word)
{
    it->words[it->count++] = (char *)word;
}

/* "-x", NAME for each; both are owned. */
static sl_status add_passed(run *it)
{
    it->passed = it->passed_end = it->count;
    for (char **variable = environ; *variable; variable++) {
        if (!is_passed_on(*variable))
            continue;
        char *pair[2] = {strdup("-x"), strndup(*variable, strcspn(*variable, "="))};
        add(it, pair[0]);
        add(it, pair[1]);
        it->passed_end = it->count;
        if (!pair[0] || !pair[1])
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for the words of mpirun");
    }
    return SL_OK;
}

static sl_status add_options(run *it, bool is_mpich)
{
    static const char *const openmpi[] = {"--map-by", "slot", "--bind-to", "none"};
    add(it, "mpirun");
    add(it, is_mpich ? "-hosts" : "--host");
    add(it, it->list);
    if (is_mpich) { /* else it kills all ranks before they have named the one that died */
        add(it, "-disable-auto-cleanup");
        return SL_OK;
    }
    for (size_t i = 0; i < sizeof openmpi / sizeof openmpi[0]; i++)
        add(it, openmpi[i]);
    return add_passed(it);
}

static sl_status make_words(const sl_hosts *hosts, bool is_mpich, run *it)
{
    const size_t words = count_words(hosts->words), variables = count_words(environ);
    it->words = calloc(words + 2 * variables + WORDS_OWN, sizeof *it->words);
    if (!hosts->program)
        it->exe = realpath("/proc/self/exe", NULL);
    if (!it->words || (!hosts->program && !it->exe))
        SL_FAIL(SL_ERROR_SYSTEM, "the words of mpirun: %s", strerror(errno));
    snprintf(it->number, sizeof it->number, "%u", hosts->rank_count);
    SL_TRY(add_options(it, is_mpich));
    add(it, "-n");
    add(it, it->number);
    if (it->exe)
        add(it, it->exe);
    for (size_t i = 0; i < words; i++)
        add(it, hosts->words[i]);
    return SL_OK;
}

/* ---- running it ---- */

static sl_status say_start(const sl_hosts *hosts, const run *it)
{
    char *all = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&all, &bytes);
    for (size_t i = 0; stream && i < it->count; i++)
        fprintf(stream, "%s%s", i > 0 ? " " : "", it->words[i]);
    const bool is_whole = stream && fclose(stream) == 0;
    if (is_whole)
        sl_terminal_say(SL_TERMINAL_PLAIN, "starts %u rank%s of %s: %s", hosts->rank_count,
                        sl_plural(hosts->rank_count), hosts->words[0], all);
    free(all);
    if (!is_whole)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the words of mpirun");
    return SL_OK;
}

/* In the child. A group of its own: what is typed at a terminal comes by this process alone. */
static void become_mpirun(const sl_hosts *hosts, const run *it, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* which it ends its ranks by */
    if (getppid() != parent)
        _exit(EXIT_RANK);
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO);
    sigprocmask(SIG_SETMASK, hosts->in_mpirun, NULL);
    signal(SIGXFSZ, SIG_DFL); /* which this program ignores */
    execvp(it->words[0], it->words);
    sl_terminal_say(SL_TERMINAL_ERROR, "cannot start mpirun: %s", strerror(errno));
    _exit(EXIT_MISSING);
}

static sl_status stay(const sl_hosts *hosts, pid_t child, int *out_code)
{
    for (;;) {
        const struct timespec tick = {1, 0};
        int state, number = sigtimedwait(hosts->signals, NULL, &tick);
        if (number > 0 && number != SIGCHLD)
            kill(child, SIGUSR1); /* mpirun gives it to all ranks */
        pid_t ended = waitpid(child, &state, WNOHANG);
        if (ended < 0 && errno != EINTR)
            SL_FAIL(SL_ERROR_SYSTEM, "mpirun cannot be waited for: %s", strerror(errno));
        if (ended == child) {
            *out_code = WIFEXITED(state) ? WEXITSTATUS(state) : EXIT_RANK;
            return SL_OK;
        }
    }
}

sl_status sl_hosts_launch(const sl_hosts *hosts, int *out_code)
{
    run it = {0};
    bool is_mpich = false;
    sl_status status = read_hosts(hosts, &it.list);
    if (status == SL_OK)
        status = find_mpi(&is_mpich);
    if (status == SL_OK)
        status = make_words(hosts, is_mpich, &it);
    if (status == SL_OK)
        status = say_start(hosts, &it);
    if (status == SL_OK) {
        const pid_t parent = getpid();
        pid_t child = fork();
        if (child == 0)
            become_mpirun(hosts, &it, parent);
        status = child > 0 ? stay(hosts, child, out_code)
                           : sl_status_fail(SL_ERROR_SYSTEM, "cannot start a process: %s",
                                            strerror(errno));
    }
    close_run(&it);
    return status;
}
