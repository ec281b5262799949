/* sluice COMMAND [OPTIONS]: finds the command, checks its options and runs it. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "comm/board.h"
#include "comm/environment.h"
#include "files/json_file.h"
#include "launch.h"
#include "options.h"
#include "pages.h"
#include "session/config/words.h"
#include "signals.h"
#include "terminal.h"

enum { EXIT_USAGE = 64 };

static const sl_command_entry *const commands[] = {
    &sl_command_train,  &sl_command_plan,     &sl_command_profile, &sl_command_generate,
    &sl_command_eval,   &sl_command_tokenize, &sl_command_convert, &sl_command_report,
    &sl_command_doctor, &sl_command_bench};

static const struct page {
    const char *name, *summary;
    sl_status (*print)(const char *word, FILE *stream);
} pages[] = {
    {"manual", "the manual page of sluice, or of a command", sl_manual_print},
    {"completion", "what bash or zsh completes", sl_completion_print},
};

enum {
    PAGE_COUNT = sizeof pages / sizeof pages[0],
    COMMAND_COUNT = sizeof commands / sizeof commands[0]
};

const sl_command_entry *sl_command_at(uint32_t index)
{
    return index < COMMAND_COUNT ? commands[index] : NULL;
}

/* ---- what the commands have in common ---- */

/* True of ranks that `launch` started: it prints a message once for all ranks that have it. */
static bool is_of_launch(sl_environment *out_environment)
{
    return getenv(SL_ENVIRONMENT_FILE) && sl_environment_read(out_environment) == SL_OK &&
           out_environment->kind == SL_COMM_LOCAL;
}

static bool leave_to_launch(const char *message)
{
    sl_environment environment;
    return is_of_launch(&environment) &&
           sl_board_leave_words(environment.file, environment.rank, message) == SL_OK;
}

/* A warning may be given amid a failure, whose message stays. */
static bool leave_warning(const char *line)
{
    sl_environment environment;
    char message[SL_STATUS_MESSAGE_BYTES];
    bool is_left = false;
    snprintf(message, sizeof message, "%s", sl_status_message());
    const sl_status status =
        is_of_launch(&environment)
            ? sl_board_leave_remark(environment.file, environment.rank, line, &is_left)
            : SL_OK;
    (void)sl_status_fail(SL_ERROR_SYSTEM, "%s", message);
    return status == SL_OK && is_left;
}

int sl_command_end(sl_status status)
{
    char message[SL_STATUS_MESSAGE_BYTES];
    if (status == SL_OK)
        return 0;
    snprintf(message, sizeof message, "%s", sl_status_message());
    if (!leave_to_launch(message))
        sl_terminal_say(SL_TERMINAL_ERROR, "%s", message);
    return sl_status_exit_code(status);
}

sl_status sl_command_print_json(const json_t *object, int digits)
{
    char *text = sl_json_file_dump(object, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to print a report");
    puts(text);
    free(text);
    return SL_OK;
}

/* ---- the first word ---- */

static void print_remark(sl_log_level level, const char *line, void *user)
{
    (void)user;
    if (level == SL_LOG_WARNING && leave_warning(line))
        return;
    sl_terminal_say(level == SL_LOG_WARNING ? SL_TERMINAL_WARNING : SL_TERMINAL_PLAIN, "%s", line);
}

static void print_warning(sl_log_level level, const char *line, void *user)
{
    if (level == SL_LOG_WARNING)
        print_remark(level, line, user);
}

void sl_command_keep_notes(void)
{
    sl_log_set_callback(print_warning, NULL);
}

static void print_help(void)
{
    printf("Usage: sluice COMMAND [OPTION...]\n"
           "Trains GPT-2-class transformers whose state does not fit on the device.\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    for (int i = 0; i < PAGE_COUNT; i++)
        printf("  %-10s %s\n", pages[i].name, pages[i].summary);
    printf("  %-10s %s\n", "launch", SL_LAUNCH_SUMMARY);
    printf("\n  sluice COMMAND --help   options of a command\n"
           "  sluice help words       " SL_WORDS_SUMMARY "\n"
           "  sluice --version        version, libraries and processor features\n");
}

sl_status sl_command_find(const char *name, const sl_command_entry **out_command)
{
    char hint[SL_WORDS_TEXT_BYTES];
    sl_nearest nearest = sl_nearest_start(name);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        sl_nearest_offer(&nearest, commands[i]->name);
        if (strcmp(commands[i]->name, name) != 0)
            continue;
        *out_command = commands[i];
        return SL_OK;
    }
    for (int i = 0; i < PAGE_COUNT; i++)
        sl_nearest_offer(&nearest, pages[i].name);
    sl_nearest_offer(&nearest, "launch");
    sl_words_suggest(SL_WORD_COMMAND, &nearest, "", hint);
    SL_FAIL(SL_ERROR_USAGE, "unknown command \"%s\"%s (see sluice --help)", name, hint);
}

/* What a run prints only tells of it; what any other command prints is its result. */
static int end_output(const sl_command_entry *command, int code)
{
    bool is_written = fflush(stdout) == 0 && !ferror(stdout);
    if (is_written || code != 0 || command == &sl_command_train)
        return code;
    return sl_command_end(sl_status_fail(SL_ERROR_IO,
                                         "standard output takes no more: %s; what was "
                                         "printed is not whole",
                                         strerror(errno)));
}

/* A rank of mpirun or srun dies with the process that started it, which may have ended already.
 * `launch` does the same for its ranks. */
static void end_with_starter(void)
{
    enum { EXIT_RANK = 75 };
    const pid_t starter = getppid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != starter)
        _exit(EXIT_RANK);
}

/* Several ranks of a command that knows nothing of ranks would do the same work over each other. */
static sl_status enter_ranks(const sl_command_entry *command)
{
    sl_environment environment;
    if (!command->takes_ranks)
        sl_signals_release();
    if (!command->takes_ranks && !getenv(SL_ENVIRONMENT_RANK))
        return SL_OK;
    SL_TRY(sl_environment_read(&environment));
    if (environment.kind == SL_COMM_LOCAL && environment.size > 1 && !command->takes_ranks)
        SL_FAIL(SL_ERROR_USAGE, "%s runs as one process in this version: leave out sluice launch",
                command->name);
    if (environment.kind == SL_COMM_MPI)
        end_with_starter();
    return SL_OK;
}

static int run_command(const sl_command_entry *command, int argc, char **argv)
{
    sl_config config = {0};
    bool is_answered = false;
    sl_status status = enter_ranks(command);
    if (status == SL_OK)
        status = sl_options_parse(command, argc, argv, &config, &is_answered);
    int code = status == SL_OK && !is_answered ? command->run(&config) : sl_command_end(status);
    sl_config_clear(&config);
    return end_output(command, code);
}

static bool is_any_of(const char *word, const char *a, const char *b)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

/* If a standard descriptor is closed at the start, the next file that is opened would get its
 * number, and what is printed would go into that file. */
static void fill_standard_descriptors(void)
{
    int file;
    do
        file = open("/dev/null", O_RDWR);
    while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0)
        close(file);
}

/* A folder of text is a descriptor for each file until its ids are made. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* where it is refused, a run may still fit */
}

/* sluice help COMMAND: as sluice COMMAND --help; sluice help words: the table of words. */
static int run_word(int argc, char **argv)
{
    bool is_help = strcmp(argv[0], "help") == 0;
    const sl_command_entry *command;
    if (is_help && strcmp(argv[1], "words") == 0) {
        sl_topics_print_words(stdout);
        return end_output(NULL, 0);
    }
    if (is_help && strcmp(argv[1], "launch") == 0)
        return sl_launch_main(2, (char *[]){"launch", "--help", NULL});
    sl_status status = sl_command_find(argv[is_help], &command);
    if (status != SL_OK)
        return sl_command_end(status);
    char *asked[] = {argv[is_help], "--help", NULL};
    return is_help ? run_command(command, 2, asked) : run_command(command, argc, argv);
}

static int print_page(sl_status (*print)(const char *word, FILE *stream), int argc, char **argv)
{
    sl_status status = SL_OK;
    if (argc > 2)
        status = sl_status_fail(SL_ERROR_USAGE, "sluice %s takes one word", argv[0]);
    if (status == SL_OK)
        status = print(argv[1], stdout);
    return end_output(NULL, sl_command_end(status));
}

int main(int argc, char **argv)
{
    fill_standard_descriptors();
    sl_signals_ignore_full_files();
    raise_descriptor_limit();
    sl_json_file_guard_memory();
    argp_err_exit_status = EXIT_USAGE;
    sl_log_set_callback(print_remark, NULL);
    if (argc < 2) {
        sl_terminal_say(SL_TERMINAL_ERROR, "no command given (see sluice --help)");
        return EXIT_USAGE;
    }
    const char *word = argv[1];
    bool is_help = strcmp(word, "help") == 0;
    if (is_any_of(word, "-h", "--help") || strcmp(word, "-?") == 0 || (is_help && argc == 2)) {
        print_help();
        return 0;
    }
    if (is_any_of(word, "--version", "-V")) {
        sl_command_print_version(stdout);
        return 0;
    }
    for (int i = 0; i < PAGE_COUNT; i++)
        if (strcmp(pages[i].name, word) == 0)
            return print_page(pages[i].print, argc - 1, argv + 1);
    if (strcmp(word, "launch") == 0)
        return sl_launch_main(argc - 1, argv + 1);
    return run_word(argc - 1, argv + 1);
}
