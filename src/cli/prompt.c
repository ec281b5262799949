/* Reading whole texts and lines, of any bytes, up to a limit. */
#include "prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/files.h"
#include "text/example.h"

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

/* Up to the end of a line, which is part of it, or of the input. */
static sl_status read_input(bool is_line, sl_prompt *out_prompt)
{
    uint64_t capacity = 0;
    int byte;
    while ((byte = getc(stdin)) != EOF) {
        sl_status status = add_byte(out_prompt, &capacity, (char)byte);
        if (status != SL_OK)
            return status;
        if (is_line && byte == '\n')
            return SL_OK;
    }
    if (ferror(stdin) && errno != EBADF) /* closed: there is no text */
        SL_FAIL(SL_ERROR_IO, "%s: %s", input_name, strerror(errno));
    return SL_OK;
}

static sl_status read_file(const char *path, sl_prompt *out_prompt)
{
    sl_file file;
    SL_TRY(sl_files_open(AT_FDCWD, NULL, path, SL_LINKS_FOLLOW, &file));
    out_prompt->bytes = file.bytes;
    sl_status status = sl_files_read_text(&file, SL_PROMPT_BYTES_MAX, &out_prompt->text);
    sl_files_close(&file);
    return status;
}

static bool reads_input(const sl_config *config)
{
    if (config->prompt)
        return strcmp(config->prompt, "-") == 0;
    return !config->interactive && isatty(STDIN_FILENO) != 1;
}

static sl_status check_rank(const sl_config *config)
{
    if (config->interactive)
        SL_FAIL(SL_ERROR_USAGE,
                "--interactive reads standard input, which ranks do not have: leave "
                "out sluice launch");
    if (config->prompt && strcmp(config->prompt, "-") == 0)
        SL_FAIL(SL_ERROR_USAGE, "--prompt - is standard input, which ranks do not have: give the "
                                "text, or --prompt-file FILE");
    return SL_OK;
}

sl_status sl_prompt_read(const sl_config *config, bool is_rank, sl_prompt *out_prompt)
{
    sl_status status = SL_OK;
    *out_prompt = (sl_prompt){0};
    if (is_rank)
        SL_TRY(check_rank(config));
    if (config->prompt_file)
        status = read_file(config->prompt_file, out_prompt);
    else if (!is_rank && reads_input(config))
        status = read_input(false, out_prompt);
    else if (config->prompt) {
        out_prompt->text = strdup(config->prompt);
        out_prompt->bytes = strlen(config->prompt);
        if (!out_prompt->text)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a prompt");
        return SL_OK;
    }
    if (status != SL_OK) {
        sl_prompt_close(out_prompt);
        return status;
    }
    drop_line_end(out_prompt);
    return SL_OK;
}

sl_status sl_prompt_read_line(sl_prompt *out_prompt, bool *out_is_there)
{
    *out_prompt = (sl_prompt){0};
    sl_status status = read_input(true, out_prompt);
    *out_is_there = out_prompt->bytes > 0;
    drop_line_end(out_prompt);
    if (status != SL_OK)
        sl_prompt_close(out_prompt);
    return status;
}

sl_status sl_prompt_put_into(const char *template_text, sl_prompt *prompt)
{
    sl_example example;
    if (!template_text)
        return SL_OK;
    const sl_status status = sl_example_make_prompt(template_text, prompt->text ? prompt->text : "",
                                                    prompt->bytes, &example);
    if (status == SL_OK) {
        sl_prompt_close(prompt);
        *prompt = (sl_prompt){example.text, example.bytes};
        example.text = NULL;
    }
    sl_example_free(&example);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "--template");
}

void sl_prompt_close(sl_prompt *prompt)
{
    free(prompt->text);
    *prompt = (sl_prompt){0};
}
