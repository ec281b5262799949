/* Reading whole texts and lines, of any bytes, up to a limit. Ranks get those of the first one. */
#include "prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/heartbeat.h"
#include "base/stop.h"
#include "comm/environment.h"
#include "files/files.h"

enum { FIRST_CAPACITY = 1 << 12 };

static const char input_name[] = "standard input";

static sl_status add_byte(sl_prompt *prompt, uint64_t *capacity, char byte)
{
    if (prompt->bytes == SL_PROMPT_BYTES_MAX)
        SL_FAIL(SL_ERROR_DATA, "%s: a prompt of more than %d bytes: give its end alone", input_name,
                SL_PROMPT_BYTES_MAX);
    if (prompt->bytes == *capacity) {
        uint64_t grown = *capacity ? 2 * *capacity : FIRST_CAPACITY;
        char *text = realloc(prompt->text, grown);
        if (!text)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a prompt");
        prompt->text = text;
        *capacity = grown;
    }
    prompt->text[prompt->bytes++] = byte;
    return SL_OK;
}

static void drop_line_end(sl_prompt *prompt)
{
    if (prompt->bytes > 0 && prompt->text[prompt->bytes - 1] == '\n')
        prompt->bytes--;
    if (prompt->bytes > 0 && prompt->text[prompt->bytes - 1] == '\r')
        prompt->bytes--;
}

/* ---- standard input ---- */

enum { INPUT_BYTES = 1 << 12, TICK_MS = 200 };

/* What was read; `taken` of `count` bytes are part of a prompt already. */
static struct {
    char bytes[INPUT_BYTES];
    size_t taken, count;
    bool is_asked_for, is_over;
} input;

/* A launcher reads its standard input only for a rank that asks. */
static sl_status ask_for_input(void)
{
    sl_environment environment;
    SL_TRY(sl_environment_read(&environment));
    if (!input.is_asked_for && environment.input && write(STDIN_FILENO, "?", 1) != 1)
        SL_FAIL(SL_ERROR_IO, "%s: the launcher does not answer: %s", input_name, strerror(errno));
    input.is_asked_for = true;
    return SL_OK;
}

/* Waits as long as a person thinks: a sign of life at each tick keeps the other ranks waiting. */
static sl_status wait_for_input(const volatile sig_atomic_t *stop)
{
    struct pollfd it = {.fd = STDIN_FILENO, .events = POLLIN};
    int ready = 0;
    while (ready == 0 && !(stop && sl_stop_is_set(stop))) {
        SL_TRY(sl_heartbeat_give());
        ready = poll(&it, 1, TICK_MS);
        ready = ready < 0 && errno == EINTR ? 0 : ready;
    }
    return SL_OK;
}

static sl_status fill_input(const volatile sig_atomic_t *stop)
{
    SL_TRY(ask_for_input());
    SL_TRY(wait_for_input(stop));
    if (stop && sl_stop_is_set(stop))
        return SL_OK;
    const ssize_t count = read(STDIN_FILENO, input.bytes, sizeof input.bytes);
    if (count < 0 && errno != EBADF) /* closed: there is no text */
        SL_FAIL(SL_ERROR_IO, "%s: %s", input_name, strerror(errno));
    input.is_over = count <= 0;
    input.taken = 0;
    input.count = count > 0 ? (size_t)count : 0;
    return SL_OK;
}

/* Reads until the end of the input; with `is_line`, until the end of a line, which is read too; or
 * until *stop is set (NULL: never). */
static sl_status read_input(bool is_line, const volatile sig_atomic_t *stop, sl_prompt *out_prompt)
{
    uint64_t capacity = 0;
    for (;;) {
        if (input.taken == input.count && !input.is_over)
            SL_TRY(fill_input(stop));
        if (input.taken == input.count)
            return SL_OK;
        const char byte = input.bytes[input.taken++];
        SL_TRY(add_byte(out_prompt, &capacity, byte));
        if (is_line && byte == '\n')
            return SL_OK;
    }
}

bool sl_prompt_is_typed(void)
{
    sl_environment environment;
    const bool is_known = sl_environment_read(&environment) == SL_OK && environment.input;
    return isatty(STDIN_FILENO) == 1 ||
           (is_known && strcmp(environment.input, SL_ENVIRONMENT_TERMINAL) == 0);
}

/* ---- a prompt ---- */

static sl_status read_file(const char *path, sl_prompt *out_prompt)
{
    sl_file file;
    SL_TRY(sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file));
    out_prompt->bytes = file.bytes;
    sl_status status = sl_files_read_text(&file, SL_PROMPT_BYTES_MAX, &out_prompt->text);
    sl_files_close(&file);
    return status;
}

/* True if the prompt is what another program writes into standard input, and no option says one. */
static bool is_piped(const sl_config *config)
{
    return !config->prompt && !config->interactive && !sl_prompt_is_typed();
}

/* A rank has standard input if `sluice launch` itself has started it as a command of sluice. A
 * program or a shell between the two does not pass the input on. */
static sl_status check_input(void)
{
    sl_environment environment;
    SL_TRY(sl_environment_read(&environment));
    if (environment.kind == SL_COMM_LOCAL && !environment.input)
        SL_FAIL(SL_ERROR_USAGE, "--interactive and --prompt - read standard input, which a rank "
                                "that another program started does not have: let sluice launch "
                                "start sluice itself, or give the text by --prompt-file FILE");
    return SL_OK;
}

/* Replaces the text of each rank by that of the first one. */
static sl_status share_text(const sl_ranks *ranks, sl_prompt *prompt)
{
    sl_prompt shared;
    if (!ranks->world)
        return SL_OK;
    SL_TRY(sl_ranks_give_text(ranks, prompt->text, prompt->bytes, 0, &shared.text, &shared.bytes));
    sl_prompt_close(prompt);
    *prompt = shared;
    return SL_OK;
}

static sl_status copy_text(const char *text, sl_prompt *out_prompt)
{
    out_prompt->text = strdup(text);
    out_prompt->bytes = strlen(text);
    if (!out_prompt->text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a prompt");
    return SL_OK;
}

/* Ranks read standard input only when an option says so: the launcher's may never end. */
static sl_status read_prompt(const sl_config *config, const sl_ranks *ranks, sl_prompt *prompt)
{
    const bool is_of_input = config->prompt_file
                                 ? strcmp(config->prompt_file, "/dev/stdin") == 0
                                 : config->prompt && strcmp(config->prompt, "-") == 0;
    if (ranks->world && (config->interactive || is_of_input))
        SL_TRY(check_input());
    if (config->prompt_file && !is_of_input)
        SL_TRY(read_file(config->prompt_file, prompt));
    else if (is_of_input || (!ranks->world && is_piped(config))) {
        if (sl_ranks_is_first(ranks))
            SL_TRY(read_input(false, NULL, prompt));
        SL_TRY(share_text(ranks, prompt));
    } else
        return config->prompt ? copy_text(config->prompt, prompt) : SL_OK;
    drop_line_end(prompt);
    return SL_OK;
}

sl_status sl_prompt_read(const sl_config *config, const sl_ranks *ranks, sl_prompt *out_prompt)
{
    *out_prompt = (sl_prompt){0};
    const sl_status status = read_prompt(config, ranks, out_prompt);
    if (status != SL_OK)
        sl_prompt_close(out_prompt);
    return status;
}

/* ---- lines ---- */

/* Appends the kind of the line to the line, as one byte: ranks share both at once. */
static sl_status read_own_line(const volatile sig_atomic_t *stop, sl_prompt *line)
{
    uint64_t capacity;
    SL_TRY(read_input(true, stop, line));
    sl_prompt_line_kind kind = line->bytes > 0 ? SL_PROMPT_LINE : SL_PROMPT_INPUT_ENDED;
    if (sl_stop_is_set(stop))
        kind = SL_PROMPT_STOPPED;
    drop_line_end(line);
    capacity = line->bytes; /* the least that it can be: then add_byte makes room */
    return add_byte(line, &capacity, (char)kind);
}

static sl_status read_line(const sl_ranks *ranks, const volatile sig_atomic_t *stop,
                           sl_prompt *line, sl_prompt_line_kind *out_kind)
{
    bool is_asked;
    *out_kind = SL_PROMPT_STOPPED;
    SL_TRY(sl_ranks_vote(ranks, sl_stop_is_set(stop), &is_asked));
    if (is_asked)
        return SL_OK;
    if (sl_ranks_is_first(ranks))
        SL_TRY(read_own_line(stop, line));
    SL_TRY(share_text(ranks, line));
    *out_kind = (sl_prompt_line_kind)line->text[--line->bytes];
    return SL_OK;
}

sl_status sl_prompt_read_line(sl_ranks *ranks, const volatile sig_atomic_t *stop,
                              sl_prompt *out_prompt, sl_prompt_line_kind *out_kind)
{
    *out_prompt = (sl_prompt){0};
    sl_ranks_set_work(ranks, true);
    const sl_status status = read_line(ranks, stop, out_prompt, out_kind);
    sl_ranks_set_work(ranks, false);
    if (status != SL_OK)
        sl_prompt_close(out_prompt);
    return status;
}

void sl_prompt_close(sl_prompt *prompt)
{
    free(prompt->text);
    *prompt = (sl_prompt){0};
}
