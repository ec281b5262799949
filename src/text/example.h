/* Examples to fine-tune on: a JSON object with a prompt and a response, or with a list of messages,
 * becomes a text of spans, of which some count in the loss.
 *
 *   prompt, response   the template with both in the places of its marks {prompt} and {response};
 *                      the response counts. A mark {input} stands for the text under the key
 *                      "input" (Alpaca's), "" where there is none
 *   messages           the template for each message, with {role} and {content}; what the role
 *                      "assistant" says counts, and in place of what the template has behind it
 *                      stands an end of text, which counts too; the white space at the end of the
 *                      template stays between messages and does not count. Messages of ShareGPT
 *                      (from: human or gpt, value) are taken as well
 *
 * Knows nothing of ids: an end of text is a property of a span. */
#ifndef SL_TEXT_EXAMPLE_H
#define SL_TEXT_EXAMPLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Where no template is given. */
#define SL_EXAMPLE_TEMPLATE "{prompt}\n{response}"
#define SL_EXAMPLE_MESSAGE_TEMPLATE "{role}: {content}\n"

/* Which keys hold what; all texts are borrowed. */
typedef struct sl_example_form {
    const char *prompt_key, *response_key; /* NULL: there are messages */
    const char *messages_key;              /* or NULL */
    const char *template_text;             /* NULL: the one above */
    bool counts_all;                       /* all spans count */
} sl_example_form;

/* Text that is encoded by itself. */
typedef struct sl_example_span {
    uint64_t bytes; /* of the example's text, behind those of the spans before */
    bool counts;    /* in the loss */
    bool ends;      /* an end of text stands behind it, and counts as the span does */
} sl_example_span;

typedef struct sl_example {
    char *text;
    uint64_t bytes;
    sl_example_span *spans;
    uint32_t span_count;
    bool end_counts;   /* the end of text behind the example */
    bool leaves_input; /* under "input" stands a text that the template does not take */
} sl_example;

/* The text of the form's template, given or not. */
const char *sl_example_template(const sl_example_form *form);

/* True if the template is of messages, and not of prompts. */
bool sl_example_is_of_messages(const char *template_text);

/* SL_ERROR_USAGE: the template lacks a mark, has {response} or {content} twice, or has marks of the
 * other form. */
sl_status sl_example_check_form(const sl_example_form *form);

/* Makes the example of an object; release with sl_example_free, on failure too. SL_ERROR_DATA: a
 * key is missing or holds something else; the message does not name the file. SL_ERROR_SYSTEM. */
sl_status sl_example_make(const sl_example_form *form, const json_t *object,
                          sl_example *out_example);
void sl_example_free(sl_example *example);

/* What a model is asked. */
typedef struct sl_example_prompt {
    const char *template_text;
    const char *system; /* a message of the role "system" that stands first; NULL: none */
    const char *text;   /* [bytes], any */
    uint64_t bytes;
} sl_example_prompt;

/* What a model reads before it answers: the template with the prompt, up to {response}; or, of a
 * template of messages, a message of the role "user" and the next one, of "assistant", up to
 * {content}. Release as above. SL_ERROR_USAGE: as sl_example_check_form; or a system message, and
 * the template is not of messages. SL_ERROR_SYSTEM. */
sl_status sl_example_make_prompt(const sl_example_prompt *prompt, sl_example *out_example);

#endif
