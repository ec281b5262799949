/* sluice generate: the prompt and what follows it, as it comes; of several samples the first one as
 * it comes and the others behind it, in order. */
#include "train/generate/generate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/plural.h"
#include "busy_line.h"
#include "command.h"
#include "held_warnings.h"
#include "prompt.h"
#include "rank.h"
#include "signals.h"
#include "terminal.h"
#include "train/loading/loading.h"

/* What a sample said before its turn to be printed came. */
typedef struct waiting_text {
    char *bytes;
    uint64_t count;
    bool is_over;
} waiting_text;

typedef struct printer {
    const sl_config *config;
    const sl_prompt *given; /* of the command line */
    const char *prompt;     /* still to be printed before a sample; NULL: it is not */
    uint64_t prompt_bytes;
    waiting_text *waiting;      /* [samples] */
    uint32_t current;           /* the sample that is printed as it comes */
    bool is_terminal, is_begun; /* of the current sample: something was printed */
} printer;

/* ---- printing ---- */

static bool is_plain(unsigned char byte)
{
    return (byte >= 0x20 && byte != 0x7f) || byte == '\n' || byte == '\t';
}

/* U+0080 to U+009F, which are commands to a terminal as ESC and a letter are. */
static bool is_command(const char *bytes, uint64_t byte_count)
{
    return byte_count > 1 && (unsigned char)bytes[0] == 0xc2 &&
           ((unsigned char)bytes[1] & 0xe0) == 0x80;
}

/* A model can print anything; a terminal must not obey it. */
static void print_text(const printer *self, const char *bytes, uint64_t byte_count)
{
    for (uint64_t i = 0; i < byte_count; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        const bool is_obeyed = is_command(bytes + i, byte_count - i) ||
                               (i > 0 && is_command(bytes + i - 1, byte_count - i + 1));
        if (self->is_terminal && (is_obeyed || !is_plain(byte)))
            printf("\\x%02x", byte);
        else
            putchar(byte);
    }
}

/* The prompt waits for the first token, so that a failure before it prints nothing. */
static void begin_sample(printer *self)
{
    if (self->is_begun)
        return;
    self->is_begun = true;
    if (self->config->samples > 1)
        printf("=== sample %" PRIu32 " ===\n", self->current + 1);
    if (self->prompt)
        print_text(self, self->prompt, self->prompt_bytes);
}

static sl_status keep_text(waiting_text *waiting, const char *bytes, uint64_t byte_count)
{
    char *grown = realloc(waiting->bytes, waiting->count + byte_count + 1);
    if (!grown)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the text of a sample");
    memcpy(grown + waiting->count, bytes, byte_count);
    waiting->bytes = grown;
    waiting->count += byte_count;
    return SL_OK;
}

static sl_status take_text(void *user, uint32_t sample, const char *bytes, uint64_t byte_count)
{
    printer *self = user;
    if (sample != self->current)
        return keep_text(&self->waiting[sample], bytes, byte_count);
    begin_sample(self);
    print_text(self, bytes, byte_count);
    fflush(stdout);
    return SL_OK;
}

/* Ends the line of the current sample; prints those that waited for it, up to one that goes on. */
static void end_sample(void *user, uint32_t sample)
{
    printer *self = user;
    self->waiting[sample].is_over = true;
    while (self->current < self->config->samples && self->waiting[self->current].is_over) {
        begin_sample(self);
        putchar('\n');
        self->is_begun = false;
        if (++self->current == self->config->samples)
            break;
        waiting_text *next = &self->waiting[self->current];
        if (next->count == 0)
            continue;
        begin_sample(self);
        print_text(self, next->bytes, next->count);
    }
    fflush(stdout);
}

/* Of several ranks the first one prints. */
static sl_status drop_text(void *user, uint32_t sample, const char *bytes, uint64_t byte_count)
{
    (void)user;
    (void)sample;
    (void)bytes;
    (void)byte_count;
    return SL_OK;
}

static void drop_end(void *user, uint32_t sample)
{
    (void)user;
    (void)sample;
}

static sl_status open_printer(const sl_config *config, const sl_prompt *prompt, printer *self)
{
    self->given = prompt;
    self->is_terminal = isatty(STDOUT_FILENO) == 1;
    self->waiting = calloc(config->samples, sizeof *self->waiting);
    if (!self->waiting)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the text of samples");
    return SL_OK;
}

static void close_printer(printer *self)
{
    for (uint64_t i = 0; self->waiting && i < self->config->samples; i++)
        free(self->waiting[i].bytes);
    free(self->waiting);
}

/* ---- speed ---- */

enum { RATE_BYTES = 96 };

static void format_rate(const char *what, uint64_t all, uint64_t timed, double seconds,
                        char out_text[RATE_BYTES])
{
    char rate[32] = "";
    if (timed > 0 && seconds > 0)
        snprintf(rate, sizeof rate, " (%.1f tokens/s)", (double)timed / seconds);
    snprintf(out_text, RATE_BYTES, "%s %" PRIu64 " token%s%s", what, all, sl_plural(all), rate);
}

static void print_times(const sl_config *config, sl_generate_times times)
{
    char prompt[RATE_BYTES], generated[RATE_BYTES];
    if (config->quiet)
        return;
    format_rate("prompt", times.prompt_tokens, times.prompt_tokens, times.prompt_seconds, prompt);
    format_rate("generated", times.new_tokens, times.later_tokens, times.later_seconds, generated);
    sl_terminal_say(SL_TERMINAL_PLAIN, "%s, %s", prompt, generated);
}

/* ---- a conversation ---- */

static const sl_signal_texts leaving = {.stops = "", .leaves = true};
static const sl_signal_texts stopping = {.stops = "", .stops_in_save = "", .leaves_now = ""};

static void say(const sl_config *config, const char *text)
{
    if (!config->quiet)
        sl_terminal_say(SL_TERMINAL_PLAIN, "%s", text);
}

/* Another answer begins where the printer is new. */
static void restart_printer(printer *self)
{
    self->prompt = NULL;
    self->current = 0;
    self->is_begun = false;
    self->waiting[0].is_over = false;
}

static sl_status answer_line(sl_generator *generator, printer *self, const sl_prompt *line)
{
    restart_printer(self);
    if (line->bytes > 0)
        SL_TRY(sl_generator_start(generator, line->text, line->bytes));
    sl_signals_watch(&stopping);
    return sl_generator_run(generator);
}

/* While a process that is alone waits for a line, a signal ends it at once: there is nothing to
 * finish. Ranks end together, by the vote of sl_prompt_read_line. */
static sl_status converse(const sl_generate_args *args, sl_generator *generator, printer *self)
{
    const bool is_first = sl_ranks_is_first(args->ranks);
    const bool shows_mark = is_first && self->is_terminal && sl_prompt_is_typed();
    say(args->config, "each line is a prompt, an empty one goes on with the text so far; the line "
                      "\"stop\" or the end of input ends this");
    for (;;) {
        sl_prompt line;
        sl_prompt_line_kind kind;
        if (shows_mark)
            fputs("> ", stdout);
        fflush(stdout);
        sl_signals_watch(args->ranks->world ? &stopping : &leaving);
        SL_TRY(sl_prompt_read_line(args->ranks, args->stop, &line, &kind));
        const bool is_stop = line.bytes == 4 && memcmp(line.text, "stop", 4) == 0;
        sl_status status = SL_OK;
        if (kind == SL_PROMPT_LINE && !is_stop)
            status = answer_line(generator, self, &line);
        sl_prompt_close(&line);
        SL_TRY(status);
        if (is_stop || kind == SL_PROMPT_INPUT_ENDED)
            say(args->config, is_stop ? "stopped" : "end of input");
        if (is_stop || kind != SL_PROMPT_LINE)
            return SL_OK;
    }
}

/* ---- the command ---- */

static sl_status run_texts(const sl_generate_args *args, sl_generator *generator, printer *self)
{
    if (!args->config->interactive)
        return sl_generator_run(generator);
    if (args->prompt_bytes > 0)
        SL_TRY(sl_generator_run(generator));
    return converse(args, generator, self);
}

/* What is loaded is loaded before anything is printed. */
static sl_status generate_texts(sl_config *config, sl_ranks *ranks,
                                const volatile sig_atomic_t *stop, printer *self)
{
    const sl_prompt *prompt = self->given;
    sl_generator *generator = NULL;
    sl_generate_args args = {.config = config,
                             .prompt = prompt->text ? prompt->text : "",
                             .prompt_bytes = prompt->bytes,
                             .sink = {take_text, end_sample, self},
                             .stop = stop,
                             .ranks = ranks};
    if (!sl_ranks_is_first(ranks))
        args.sink = (sl_generate_sink){drop_text, drop_end, NULL};
    sl_busy_line line;
    sl_busy_line_begin_opening(&line, config, NULL);
    sl_status status = sl_generator_open(&args, &generator);
    sl_busy_line_end(&line);
    SL_TRY(status);
    if (!config->quiet)
        self->prompt = sl_generator_prompt(generator, &self->prompt_bytes);
    sl_signals_watch(&stopping);
    status = run_texts(&args, generator, self);
    if (status == SL_OK)
        print_times(config, sl_generator_times(generator));
    sl_generator_close(generator);
    return status;
}

static sl_status run(sl_config *config, const volatile sig_atomic_t *stop, sl_ranks *ranks)
{
    sl_prompt prompt = {0};
    printer self = {.config = config};
    SL_TRY(sl_loading_meet_ranks(config, SL_CONFIG_GENERATE, stop, ranks));
    sl_status status = sl_prompt_read(config, ranks, &prompt);
    if (status == SL_OK)
        status = open_printer(config, &prompt, &self);
    if (status == SL_OK)
        status = generate_texts(config, ranks, stop, &self);
    if (status == SL_OK)
        status = sl_held_warnings_compare(ranks->world);
    close_printer(&self);
    sl_prompt_close(&prompt);
    return status;
}

static int generate(sl_config *config)
{
    sl_ranks ranks = {0};
    sl_environment environment;
    sl_status status = sl_command_begin_rank(config, &environment);
    /* Ranks leave together (sl_ranks_begin). */
    const volatile sig_atomic_t *stop =
        sl_signals_watch(environment.size > 1 ? &stopping : &leaving);
    if (status == SL_OK)
        status = run(config, stop, &ranks);
    const int code = sl_command_end_rank(status);
    sl_ranks_leave(&ranks, status);
    sl_ranks_close(&ranks);
    return code;
}

const sl_command_entry sl_command_generate = {
    .options = SL_CONFIG_GENERATE,
    .task = SL_COMMAND_MODEL,
    .name = "generate",
    .summary = "sample from a checkpoint",
    .arguments = "[DIR]",
    .doc = "Continues a prompt with tokens sampled from a checkpoint. Equal options and seed give "
           "equal text. Tokens a second are told at the end. Control characters are shown as \\xNN "
           "on a terminal and written as they are elsewhere.",
    .page = "docs/text.md",
    .checks_options = true,
    .takes_ranks = true,
    .run = generate};
