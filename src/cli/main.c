/* sluice COMMAND [OPTIONS]: finds the command, checks its options and runs it. */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "comm/board.h"
#include "comm/environment.h"
#include "command_help.h"
#include "files/json_file.h"
#include "foreign/words.h"
#include "held_warnings.h"
#include "launch.h"
#include "options.h"
#include "pages.h"
#include "signals.h"
#include "terminal.h"
#include "topics.h"

enum { EXIT_USAGE = 64 };

static const sl_command_entry *const commands[] = {
    &sl_command_init,     &sl_command_train,  &sl_command_plan,     &sl_command_profile,
    &sl_command_generate, &sl_command_eval,   &sl_command_tokenize, &sl_command_convert,
    &sl_command_report,   &sl_command_doctor, &sl_command_bench,    &sl_command_launch};

static sl_status print_help(int argc, char **argv);

static const struct page {
    sl_command_page shown;
    sl_status (*print)(int argc, char **argv);
} pages[] = {
    {{"help", "this list; help COMMAND, help TOPIC"}, print_help},
    {{"manual", "the manual page of sluice, or of a command"}, sl_manual_print},
    {{"completion", "what bash, zsh or fish completes"}, sl_completion_print},
};

enum {
    PAGE_COUNT = sizeof pages / sizeof pages[0],
    COMMAND_COUNT = sizeof commands / sizeof commands[0]
};

const sl_command_entry *sl_command_at(uint32_t index)
{
    return index < COMMAND_COUNT ? commands[index] : NULL;
}

const sl_command_page *sl_command_page_at(uint32_t index)
{
    return index < PAGE_COUNT ? &pages[index].shown : NULL;
}

/* ---- what the commands have in common ---- */

/* Leaves a text of a rank to `launch`, if it has started this process: it prints a text once for
 * all ranks that have it. */
static bool leave_to_launch(const char *text, bool is_last)
{
    sl_environment environment;
    bool is_left = false;
    return getenv(SL_ENVIRONMENT_FILE) && sl_environment_read(&environment) == SL_OK &&
           environment.kind == SL_COMM_LOCAL &&
           sl_board_leave_text(environment.file, environment.rank, is_last, text, &is_left) ==
               SL_OK &&
           is_left;
}

/* A warning may be given amid a failure, whose message stays. */
static bool leave_warning(const char *line)
{
    char message[SL_STATUS_MESSAGE_BYTES];
    snprintf(message, sizeof message, "%s", sl_status_message());
    const bool is_left = leave_to_launch(line, false);
    (void)sl_status_fail(SL_ERROR_SYSTEM, "%s", message);
    return is_left;
}

int sl_command_end(sl_status status)
{
    char message[SL_STATUS_MESSAGE_BYTES];
    if (status == SL_OK)
        return 0;
    snprintf(message, sizeof message, "%s", sl_status_message());
    if (!leave_to_launch(message, true))
        sl_terminal_say(SL_TERMINAL_ERROR, "%s", message);
    return sl_status_exit_code(status);
}

sl_status sl_command_print_json(const json_t *object, int digits)
{
    char *text = NULL;
    SL_TRY(sl_json_file_format(object, digits, &text));
    puts(text);
    free(text);
    return SL_OK;
}

/* ---- the first word ---- */

static void print_remark(void *user, sl_log_level level, const char *line)
{
    (void)user;
    if (level == SL_LOG_WARNING && (leave_warning(line) || sl_held_warnings_take(line)))
        return;
    sl_terminal_say(level == SL_LOG_WARNING ? SL_TERMINAL_WARNING : SL_TERMINAL_PLAIN, "%s", line);
}

static void print_warning(void *user, sl_log_level level, const char *line)
{
    if (level == SL_LOG_WARNING)
        print_remark(user, level, line);
}

void sl_command_keep_notes(void)
{
    sl_log_set_callback(print_warning, NULL);
}

sl_status sl_command_find(const char *name, bool is_topic, const sl_command_entry **out_command)
{
    char hint[SL_WORDS_TEXT_BYTES];
    const sl_topic *topic;
    sl_nearest nearest = sl_nearest_start(name);
    for (int i = 0; i < COMMAND_COUNT; i++) {
        sl_nearest_offer(&nearest, commands[i]->name);
        if (strcmp(commands[i]->name, name) != 0)
            continue;
        *out_command = commands[i];
        return SL_OK;
    }
    for (int i = 0; i < PAGE_COUNT; i++)
        sl_nearest_offer(&nearest, pages[i].shown.name);
    for (uint32_t i = 0; is_topic && (topic = sl_topics_at(i)); i++)
        sl_nearest_offer(&nearest, topic->name);
    sl_words_suggest(SL_WORD_COMMAND, &nearest, "", hint);
    SL_FAIL(SL_ERROR_USAGE, "unknown command %s\"%s\"%s (see sluice help)",
            is_topic ? "or topic " : "", name, hint);
}

/* sluice help [COMMAND|TOPIC] */
static sl_status print_help(int argc, char **argv)
{
    const sl_command_entry *command;
    if (argc > 2)
        SL_FAIL(SL_ERROR_USAGE,
                "sluice help takes one word; all options of a command: sluice %s "
                "--help-all",
                argv[1]);
    if (argc == 1) {
        sl_command_help_print_overview(stdout);
        return SL_OK;
    }
    const sl_topic *topic = sl_topics_find(argv[1]);
    if (topic) {
        sl_topics_print(topic, stdout);
        return SL_OK;
    }
    SL_TRY(sl_command_find(argv[1], true, &command));
    sl_command_help_print(command, false, stdout);
    return SL_OK;
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

/* A rank of mpirun or srun dies with the process that started it. `launch` does the same for its
 * ranks. If the starter had ended before this process began, its parent is another one; but then
 * nobody reads the pipe that the starter made for its messages. */
static void end_with_starter(void)
{
    enum { EXIT_RANK = 75 };
    const pid_t starter = getppid();
    struct pollfd messages = {.fd = STDERR_FILENO};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const bool is_unread = poll(&messages, 1, 0) == 1 && (messages.revents & POLLERR) != 0;
    if (getppid() != starter || is_unread)
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

static int run_word(int argc, char **argv)
{
    const sl_command_entry *command;
    for (int i = 0; i < PAGE_COUNT; i++)
        if (strcmp(pages[i].shown.name, argv[0]) == 0)
            return end_output(NULL, sl_command_end(pages[i].print(argc, argv)));
    sl_status status = sl_command_find(argv[0], false, &command);
    if (status != SL_OK)
        return sl_command_end(status);
    return command->run ? run_command(command, argc, argv) : sl_launch_main(argc, argv);
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
    if (is_any_of(word, "-h", "--help") || strcmp(word, "-?") == 0) {
        sl_command_help_print_overview(stdout);
        return end_output(NULL, 0);
    }
    if (is_any_of(word, "--version", "-V")) {
        sl_command_print_version(stdout);
        return 0;
    }
    return run_word(argc - 1, argv + 1);
}
