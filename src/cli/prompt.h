/* Where prompts come from: an option, a file, standard input, the lines of a person. */
#ifndef SL_CLI_PROMPT_H
#define SL_CLI_PROMPT_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

enum { SL_PROMPT_BYTES_MAX = 64 << 20 };

typedef struct sl_prompt {
    char *text; /* owned; may hold any bytes */
    uint64_t bytes;
} sl_prompt;

/* The text of --prompt, --prompt-file or standard input; of a file or standard input without a line
 * end at its end. Empty where nothing says one, or where prompts are lines. Blocks until the end of
 * standard input. `is_rank`: this process is one of several ranks, which have no standard input.
 * SL_ERROR_USAGE: it is asked for all the same. SL_ERROR_MISSING, SL_ERROR_DATA (no regular file,
 * above the limit), SL_ERROR_IO.
 */
sl_status sl_prompt_read(const sl_config *config, bool is_rank, sl_prompt *out_prompt);

/* The next line of standard input without its end; false at the end of input. */
sl_status sl_prompt_read_line(sl_prompt *out_prompt, bool *out_is_there);

/* Puts the prompt into a template (sl_example_make_prompt); NULL: it stays as it is. */
sl_status sl_prompt_put_into(const char *template_text, sl_prompt *prompt);

/* Of a zeroed one too. */
void sl_prompt_close(sl_prompt *prompt);

#endif
