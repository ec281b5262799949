/* A walk over the template that appends spans; see example.h. */
#include "example.h"

#include <stdlib.h>
#include <string.h>

#include "files/files.h"

/* ---- building ---- */

static sl_status no_memory(void)
{
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for an example");
}

/* Text that is put into an example. */
typedef struct piece {
    const char *text;
    uint64_t bytes;
    bool counts, ends;
} piece;

static piece make_piece(const char *text)
{
    return (piece){.text = text, .bytes = strlen(text)};
}

static sl_status append_text(sl_example *to, const piece *of)
{
    char *text = realloc(to->text, to->bytes + of->bytes + 1);
    if (!text)
        return no_memory();
    memcpy(text + to->bytes, of->text, of->bytes);
    to->text = text;
    to->bytes += of->bytes;
    return SL_OK;
}

/* Joins what stands side by side and counts alike: words of the vocabulary may cross its border. */
static sl_status append(sl_example *to, piece of)
{
    sl_example_span *last = to->span_count > 0 ? &to->spans[to->span_count - 1] : NULL;
    if (of.bytes == 0 && !of.ends)
        return SL_OK;
    SL_TRY(append_text(to, &of));
    if (last && last->counts == of.counts && !last->ends) {
        last->bytes += of.bytes;
        last->ends = of.ends;
        return SL_OK;
    }
    sl_example_span *spans = realloc(to->spans, (to->span_count + 1) * sizeof *spans);
    if (!spans)
        return no_memory();
    spans[to->span_count++] = (sl_example_span){of.bytes, of.counts, of.ends};
    to->spans = spans;
    return SL_OK;
}

void sl_example_free(sl_example *example)
{
    free(example->text);
    free(example->spans);
    *example = (sl_example){0};
}

/* ---- the template ---- */

/* A mark of what stands before, and of what may count; then one that may be missing. */
enum { CONTEXT, ANSWER, NEEDED_COUNT, INPUT = NEEDED_COUNT, MARK_COUNT };

static const char input_key[] = "input";
static const char *const example_marks[MARK_COUNT] = {"{prompt}", "{response}", "{input}"};
static const char *const message_marks[MARK_COUNT] = {"{role}", "{content}", NULL};

static const char *const *find_marks(const sl_example_form *form)
{
    return form->messages_key ? message_marks : example_marks;
}

const char *sl_example_template(const sl_example_form *form)
{
    if (form->template_text)
        return form->template_text;
    return form->messages_key ? SL_EXAMPLE_MESSAGE_TEMPLATE : SL_EXAMPLE_TEMPLATE;
}

/* The mark that stands at `at`, or MARK_COUNT. */
static int find_mark(const char *const *marks, const char *at)
{
    for (int mark = 0; mark < MARK_COUNT; mark++)
        if (marks[mark] && strncmp(at, marks[mark], strlen(marks[mark])) == 0)
            return mark;
    return MARK_COUNT;
}

static uint32_t count_marks(const char *text, const char *mark)
{
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, mark)) != NULL; at += strlen(mark))
        count++;
    return count;
}

/* A prompt has no key. */
static const char *name_kind(const sl_example_form *form)
{
    if (form->messages_key)
        return *form->messages_key ? "--messages-key" : "a template of messages";
    return form->prompt_key ? "--prompt-key" : "a template of prompts";
}

sl_status sl_example_check_form(const sl_example_form *form)
{
    const char *const *marks = find_marks(form);
    const char *const *others = form->messages_key ? example_marks : message_marks;
    const char *text = sl_example_template(form);
    for (int mark = 0; mark < NEEDED_COUNT; mark++) {
        const uint32_t count = count_marks(text, marks[mark]);
        if (count == 0)
            SL_FAIL(SL_ERROR_USAGE, "the template has no mark %s (%s needs %s and %s)", marks[mark],
                    name_kind(form), marks[CONTEXT], marks[ANSWER]);
        if (count > 1 && mark == ANSWER)
            SL_FAIL(SL_ERROR_USAGE, "the template has the mark %s twice", marks[mark]);
        if (count_marks(text, others[mark]) > 0)
            SL_FAIL(SL_ERROR_USAGE, "the template has the mark %s, which is for %s", others[mark],
                    form->messages_key ? "--prompt-key and --response-key" : "--messages-key");
    }
    return SL_OK;
}

/* What the marks stand for. */
typedef struct filling {
    piece of[MARK_COUNT];
    bool ends_at_answer; /* nothing of the template follows its text, */
    bool keeps_space;    /* except the white space at the end of the template */
} filling;

/* The white space at the end of `rest`. */
static piece find_end_space(const char *rest)
{
    const char *start = rest + strlen(rest);
    while (start > rest && strchr(" \t\r\n", start[-1]))
        start--;
    return make_piece(start);
}

static sl_status fill_template(const sl_example_form *form, const filling *with, sl_example *to)
{
    const char *const *marks = find_marks(form);
    const char *at = sl_example_template(form), *literal = at;
    while (*at) {
        const int mark = find_mark(marks, at);
        if (mark == MARK_COUNT) {
            at++;
            continue;
        }
        SL_TRY(append(to, (piece){literal, (uint64_t)(at - literal), false, false}));
        SL_TRY(append(to, with->of[mark]));
        at += strlen(marks[mark]);
        if (mark == ANSWER && with->ends_at_answer)
            return with->keeps_space ? append(to, find_end_space(at)) : SL_OK;
        literal = at;
    }
    return append(to, (piece){literal, (uint64_t)(at - literal), false, false});
}

/* ---- objects ---- */

/* `advice` says what to do where the key is missing; NULL: nothing. */
static sl_status read_text(const json_t *object, const char *key, const char *advice, piece *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value && advice)
        SL_FAIL(SL_ERROR_DATA, "has no key \"%s\" (%s)", sl_files_show(key).text, advice);
    if (!value)
        SL_FAIL(SL_ERROR_DATA, "has no key \"%s\"", sl_files_show(key).text);
    if (!json_is_string(value))
        SL_FAIL(SL_ERROR_DATA, "under the key \"%s\" stands no text", sl_files_show(key).text);
    out->text = json_string_value(value);
    out->bytes = json_string_length(value);
    return SL_OK;
}

/* Left out where the template has no mark for it, or an option has named its key. */
static sl_status read_input(const sl_example_form *form, const json_t *object, sl_example *to,
                            piece *out)
{
    const json_t *value = json_object_get(object, input_key);
    const bool is_named =
        strcmp(form->prompt_key, input_key) == 0 || strcmp(form->response_key, input_key) == 0;
    if (strstr(sl_example_template(form), example_marks[INPUT]))
        return value && !json_is_null(value) ? read_text(object, input_key, NULL, out) : SL_OK;
    to->leaves_input = !is_named && json_string_length(value) > 0;
    return SL_OK;
}

static sl_status make_pair(const sl_example_form *form, const json_t *object, sl_example *to)
{
    filling with = {.of = {[ANSWER] = {.counts = true}}};
    SL_TRY(read_text(object, form->prompt_key, "--prompt-key names another", &with.of[CONTEXT]));
    SL_TRY(read_text(object, form->response_key, "--response-key names another", &with.of[ANSWER]));
    SL_TRY(read_input(form, object, to, &with.of[INPUT]));
    to->end_counts = true;
    return fill_template(form, &with, to);
}

static bool is_role(const piece *role, const char *name)
{
    return role->bytes == strlen(name) && memcmp(role->text, name, role->bytes) == 0;
}

/* ShareGPT has other words for the keys, and for two roles. */
static sl_status read_message(const json_t *message, piece *role, piece *content)
{
    static const char *const roles[][2] = {{"human", "user"}, {"gpt", "assistant"}};
    static const char advice[] = "--messages-key names the list of messages";
    const bool is_other = !json_object_get(message, "role") && json_object_get(message, "from");
    SL_TRY(read_text(message, is_other ? "from" : "role", advice, role));
    for (int i = 0; is_other && i < 2; i++)
        if (is_role(role, roles[i][0]))
            *role = make_piece(roles[i][1]);
    return read_text(message, is_other ? "value" : "content", advice, content);
}

static sl_status add_message(const sl_example_form *form, const json_t *message, bool is_last,
                             sl_example *to, bool *has_answer)
{
    filling with = {0};
    piece *content = &with.of[ANSWER];
    if (!json_is_object(message))
        SL_FAIL(SL_ERROR_DATA, "is no object");
    SL_TRY(read_message(message, &with.of[CONTEXT], content));
    with.ends_at_answer = is_role(&with.of[CONTEXT], "assistant");
    with.keeps_space = !is_last;
    content->counts = with.ends_at_answer;
    content->ends = with.ends_at_answer && !is_last; /* behind the last one is the example's end */
    to->end_counts = content->counts;
    *has_answer = *has_answer || with.ends_at_answer;
    return fill_template(form, &with, to);
}

static sl_status make_conversation(const sl_example_form *form, const json_t *object,
                                   sl_example *to)
{
    const json_t *messages = json_object_get(object, form->messages_key);
    const size_t count = json_array_size(messages);
    bool has_answer = false;
    if (!json_is_array(messages) || count == 0)
        SL_FAIL(SL_ERROR_DATA, "has no list of messages under the key \"%s\"",
                sl_files_show(form->messages_key).text);
    for (size_t i = 0; i < count; i++) {
        const sl_status status =
            add_message(form, json_array_get(messages, i), i + 1 == count, to, &has_answer);
        if (status != SL_OK)
            return sl_status_prefix(status, "message %zu of \"%s\"", i + 1,
                                    sl_files_show(form->messages_key).text);
    }
    if (!has_answer)
        SL_FAIL(SL_ERROR_DATA, "has no message of the role \"assistant\"");
    return SL_OK;
}

sl_status sl_example_make(const sl_example_form *form, const json_t *object,
                          sl_example *out_example)
{
    *out_example = (sl_example){0};
    if (!json_is_object(object))
        SL_FAIL(SL_ERROR_DATA, "is not a JSON object");
    SL_TRY(form->messages_key ? make_conversation(form, object, out_example)
                              : make_pair(form, object, out_example));
    for (uint32_t i = 0; i < out_example->span_count && form->counts_all; i++)
        out_example->spans[i].counts = true;
    out_example->end_counts = out_example->end_counts || form->counts_all;
    return SL_OK;
}

/* ---- a prompt ---- */

bool sl_example_is_of_messages(const char *template_text)
{
    return strstr(template_text, message_marks[ANSWER]) != NULL;
}

static sl_status say(const sl_example_form *form, const char *role, const piece *content,
                     sl_example *to)
{
    const filling with = {.of = {[CONTEXT] = make_piece(role), [ANSWER] = *content}};
    return fill_template(form, &with, to);
}

static sl_status fill_messages(const sl_example_form *form, const sl_example_prompt *prompt,
                               sl_example *to)
{
    const filling answer = {.of = {[CONTEXT] = make_piece("assistant")}, .ends_at_answer = true};
    const piece said = {.text = prompt->text, .bytes = prompt->bytes};
    if (prompt->system) {
        const piece system = make_piece(prompt->system);
        SL_TRY(say(form, "system", &system, to));
    }
    SL_TRY(say(form, "user", &said, to));
    return fill_template(form, &answer, to);
}

sl_status sl_example_make_prompt(const sl_example_prompt *prompt, sl_example *out_example)
{
    const bool is_of_messages = sl_example_is_of_messages(prompt->template_text);
    const sl_example_form form = {.messages_key = is_of_messages ? "" : NULL,
                                  .template_text = prompt->template_text};
    const filling with = {.of = {[CONTEXT] = {.text = prompt->text, .bytes = prompt->bytes}},
                          .ends_at_answer = true};
    *out_example = (sl_example){0};
    SL_TRY(sl_example_check_form(&form));
    if (is_of_messages)
        return fill_messages(&form, prompt, out_example);
    if (prompt->system)
        SL_FAIL(SL_ERROR_USAGE, "a system message needs a template of messages, with the marks "
                                "{role} and {content}");
    return fill_template(&form, &with, out_example);
}
