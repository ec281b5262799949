/* Where prompts come from: an option, a file, standard input, the lines of a person. */
#ifndef SL_CLI_PROMPT_H
#define SL_CLI_PROMPT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "session/ranks.h"

enum { SL_PROMPT_BYTES_MAX = 64 << 20 };

typedef struct sl_prompt {
    char *text; /* owned; may hold any bytes */
    uint64_t bytes;
} sl_prompt;

/* The text of --prompt, --prompt-file or standard input; of a file or standard input without a line
 * end at its end. Empty where nothing says one, or where prompts are lines. Blocks until the end of
 * standard input. Several ranks call this together: they read standard input only for "--prompt -",
 * the first one reads, and all get the text. SL_ERROR_USAGE: ranks without standard input are to
 * read it. SL_ERROR_MISSING, SL_ERROR_DATA (no regular file, above the limit), SL_ERROR_IO. */
sl_status sl_prompt_read(const sl_config *config, const sl_ranks *ranks, sl_prompt *out_prompt);

typedef enum sl_prompt_line_kind {
    SL_PROMPT_LINE,
    SL_PROMPT_INPUT_ENDED,
    SL_PROMPT_STOPPED /* *stop is set, on this or another rank */
} sl_prompt_line_kind;

/* The next line of standard input, without its end; blocks until there is one. Several ranks call
 * this together, after sl_ranks_begin: the first one reads, and all get the same line and kind. The
 * caller closes the prompt. `stop` is not NULL. SL_ERROR_DATA: the line is above the limit.
 * SL_ERROR_IO. SL_ERROR_RANK: another rank is lost. */
sl_status sl_prompt_read_line(sl_ranks *ranks, const volatile sig_atomic_t *stop,
                              sl_prompt *out_prompt, sl_prompt_line_kind *out_kind);

/* Whether standard input is a terminal; on a rank, the launcher's counts too. */
bool sl_prompt_is_typed(void);

/* Of a zeroed one too. */
void sl_prompt_close(sl_prompt *prompt);

#endif
