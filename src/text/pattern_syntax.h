/* From a pattern as tokenizers reads it to one that PCRE2 reads in the same way. */
#ifndef SL_TEXT_PATTERN_SYNTAX_H
#define SL_TEXT_PATTERN_SYNTAX_H

#include "base/status.h"

/* Release *out_text with free(). SL_ERROR_DATA: names what the two would read differently, or what
 * is not known here. */
sl_status sl_pattern_syntax_translate(const char *text, char **out_text);

#endif
