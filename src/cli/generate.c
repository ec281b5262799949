/* sluice generate: the prompt and what follows it, as it comes. */
#include "train/generate.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "options.h"

static const char doc[] =
    "Continues --prompt with tokens sampled from a checkpoint. Equal options and seed give equal "
    "text. Control characters are shown as \\xNN on a terminal and written as they are elsewhere.";

static bool is_plain(unsigned char byte)
{
    return (byte >= 0x20 && byte != 0x7f) || byte == '\n' || byte == '\t';
}

/* A model can print anything; a terminal must not obey it. */
static void print_bytes(void *user, const char *bytes, uint32_t byte_count)
{
    bool is_terminal = *(const bool *)user;
    for (uint32_t i = 0; i < byte_count; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (is_terminal && !is_plain(byte))
            printf("\\x%02x", byte);
        else
            putchar(byte);
    }
    fflush(stdout);
}

static sl_status generate(sl_config *config)
{
    bool is_terminal = isatty(STDOUT_FILENO) == 1;
    sl_refusal refusal;
    sl_generate_args args = {config, print_bytes, &is_terminal, sl_command_watch_signals()};
    if (config->prompt && !config->quiet)
        print_bytes(&is_terminal, config->prompt, (uint32_t)strlen(config->prompt));
    SL_TRY(sl_generate_run(&args, &refusal));
    putchar('\n');
    return SL_OK;
}

int sl_command_generate(int argc, char **argv)
{
    static const sl_options_command command = {SL_CONFIG_GENERATE, "sluice generate", "[DIR]", doc};
    sl_config config;
    sl_status status = sl_options_parse(&command, argc, argv, &config);
    if (status == SL_OK)
        status = generate(&config);
    int code = status == SL_OK ? 0 : sl_command_fail(status);
    sl_config_clear(&config);
    return code;
}
