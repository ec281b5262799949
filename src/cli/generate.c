/* sluice generate: the prompt and what follows it, as it comes. */
#include "train/generate.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "signals.h"

static bool is_plain(unsigned char byte)
{
    return (byte >= 0x20 && byte != 0x7f) || byte == '\n' || byte == '\t';
}

typedef struct printer {
    bool is_terminal;
    const char *prompt; /* still to be printed, or NULL */
} printer;

/* A model can print anything; a terminal must not obey it. */
static void print_text(const printer *self, const char *bytes, size_t byte_count)
{
    for (size_t i = 0; i < byte_count; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (self->is_terminal && !is_plain(byte))
            printf("\\x%02x", byte);
        else
            putchar(byte);
    }
}

/* The prompt waits for the first token, so that a failure before it prints nothing. */
static void print_prompt(printer *self)
{
    if (self->prompt)
        print_text(self, self->prompt, strlen(self->prompt));
    self->prompt = NULL;
}

static void print_token(void *user, const char *bytes, uint32_t byte_count)
{
    printer *self = user;
    print_prompt(self);
    print_text(self, bytes, byte_count);
    fflush(stdout);
}

static int generate(sl_config *config)
{
    sl_refusal refusal;
    printer self = {isatty(STDOUT_FILENO) == 1, config->quiet ? NULL : config->prompt};
    const sl_signal_texts silent = {.stops = "", .stops_in_save = "", .leaves_now = ""};
    sl_generate_args args = {config, print_token, &self, sl_signals_watch(&silent)};
    sl_status status = sl_generate_run(&args, &refusal);
    if (status == SL_OK) {
        print_prompt(&self);
        putchar('\n');
    }
    return sl_command_end(status);
}

const sl_command_entry sl_command_generate = {
    .options = SL_CONFIG_GENERATE,
    .name = "generate",
    .summary = "sample from a checkpoint",
    .arguments = "[DIR]",
    .doc = "Continues --prompt with tokens sampled from a checkpoint. Equal options and seed give "
           "equal text. Control characters are shown as \\xNN on a terminal and written as they "
           "are elsewhere.",
    .run = generate};
