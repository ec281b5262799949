/* sluice COMMAND [OPTIONS]: finds the command and lets it have the rest of the line. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/nearest.h"
#include "command.h"

typedef struct command_row {
    const char *name;
    int (*run)(int argc, char **argv); /* NULL: of a later version */
    const char *doc;
    const char *instead; /* where run is NULL */
} command_row;

static const command_row commands[] = {
    {"train", sl_command_train, "pretrain or continue", NULL},
    {"plan", sl_command_plan, "what train would take and move; nothing is allocated", NULL},
    {"generate", sl_command_generate, "sample from a checkpoint", NULL},
    {"eval", sl_command_eval, "loss and perplexity on token files", NULL},
    {"doctor", sl_command_doctor, "what this machine has and what is missing", NULL},
    {"bench", sl_command_bench, "measure the machine; plan and train use its rates", NULL},
    {"profile", NULL, "a few steps with everything measured",
     "use train with --log-json, which measures every step"},
    {"convert", NULL, "checkpoint to and from other formats",
     "a checkpoint is already a Hugging Face directory, and --init reads one"},
    {"tokenize", NULL, "text to token files", "train reads text itself, byte by byte"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0], EXIT_USAGE = 64 };

int sl_command_fail(sl_status status)
{
    fprintf(stderr, "sluice: %s\n", sl_status_message());
    return sl_status_exit_code(status);
}

static void print_remark(sl_log_level level, const char *line, void *user)
{
    (void)user;
    fprintf(stderr, "sluice: %s%s\n", level == SL_LOG_WARNING ? "warning: " : "", line);
}

static void print_help(FILE *stream)
{
    fprintf(stream, "Usage: sluice COMMAND [OPTION...]\n"
                    "Trains GPT-2-class transformers whose state does not fit on the device.\n\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(stream, "  %-10s %s%s\n", commands[i].name, commands[i].doc,
                commands[i].run ? "" : " (later version)");
    fprintf(stream, "\n  sluice COMMAND --help   options of a command\n"
                    "  sluice --version        version, libraries and processor features\n");
}

static int refuse_later(const command_row *command)
{
    fprintf(stderr, "sluice: %s comes with a later version: %s\n", command->name, command->instead);
    return EXIT_USAGE;
}

static int refuse_unknown(const char *name)
{
    sl_nearest nearest = sl_nearest_start(name);
    for (int i = 0; i < COMMAND_COUNT; i++)
        sl_nearest_offer(&nearest, commands[i].name);
    char hint[96];
    sl_nearest_format(&nearest, "", hint, sizeof hint);
    fprintf(stderr, "sluice: unknown command \"%s\"%s (see sluice --help)\n", name, hint);
    return EXIT_USAGE;
}

static void print_version_hook(FILE *stream, struct argp_state *state)
{
    (void)state;
    sl_command_print_version(stream);
}

static bool is_any_of(const char *word, const char *a, const char *b)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

int main(int argc, char **argv)
{
    argp_program_version_hook = print_version_hook;
    argp_err_exit_status = EXIT_USAGE;
    sl_log_set_callback(print_remark, NULL);
    if (argc < 2) {
        fprintf(stderr, "sluice: no command given (see sluice --help)\n");
        return EXIT_USAGE;
    }
    if (is_any_of(argv[1], "-h", "--help") || is_any_of(argv[1], "-?", "help")) {
        print_help(stdout);
        return 0;
    }
    if (is_any_of(argv[1], "--version", "-V")) {
        sl_command_print_version(stdout);
        return 0;
    }
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, argv[1]) == 0)
            return commands[i].run ? commands[i].run(argc - 1, argv + 1)
                                   : refuse_later(&commands[i]);
    return refuse_unknown(argv[1]);
}
