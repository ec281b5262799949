/* PCRE2, bounded; see pattern.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pattern.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "files/files.h"
#include "pattern_syntax.h"

enum {
    JIT_STACK_START = 32 << 10,
    JIT_STACK_MAX = 1 << 20,
    HEAP_KIB_MAX = 64 << 10,
    /* Steps of one match: a pattern that looks through a run of blanks takes a few for each. */
    STEPS_MIN = 10000,
    STEPS_PER_BYTE = 32
};

/* Of these it was shown by hand that a blank behind a letter or a number, and a space behind any
 * character that is none, begin a word: where such a character ends, each alternative that may hold
 * it has ended, or goes on with line ends alone, and that only behind what is no letter and no
 * number. */
static const struct known_pattern {
    const char *text, *gguf_name;
} known_patterns[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "gpt-2"},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"
     "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "llama-bpe"},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"
     "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "qwen2"},
    {"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
     "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "gpt-4o"},
};

struct sl_pattern {
    char *text;
    pcre2_code *code;
    const struct known_pattern *known; /* or NULL */
};

struct sl_matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* ---- patterns ---- */

/* The message of one of PCRE2's errors, in a buffer of the caller. */
static const char *describe(int error, PCRE2_UCHAR *text, size_t room)
{
    return pcre2_get_error_message(error, text, room) >= 0 ? (const char *)text : "unknown";
}

static sl_status fail_compiling(int error, PCRE2_SIZE at)
{
    PCRE2_UCHAR text[120];
    if (error == PCRE2_ERROR_HEAP_FAILED || error == PCRE2_ERROR_NOMEMORY)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a pattern");
    SL_FAIL(SL_ERROR_DATA, "a pattern cannot be compiled: %s (behind %zu bytes)",
            describe(error, text, sizeof text), (size_t)at);
}

/* Without memory that may be executed there is no machine code; the interpreter matches alike. */
static sl_status compile(sl_pattern *self, const char *translated)
{
    static const uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C;
    int error = 0;
    PCRE2_SIZE at = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a pattern");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    self->code =
        pcre2_compile((PCRE2_SPTR)translated, PCRE2_ZERO_TERMINATED, options, &error, &at, context);
    pcre2_compile_context_free(context);
    if (!self->code)
        return fail_compiling(error, at);
    (void)pcre2_jit_compile(self->code, PCRE2_JIT_COMPLETE);
    return SL_OK;
}

static const struct known_pattern *find_known(const char *text)
{
    for (size_t i = 0; i < sizeof known_patterns / sizeof known_patterns[0]; i++)
        if (strcmp(known_patterns[i].text, text) == 0)
            return &known_patterns[i];
    return NULL;
}

sl_status sl_pattern_open(const char *text, sl_pattern **out_pattern)
{
    char *translated = NULL;
    if (strlen(text) > SL_PATTERN_BYTES_MAX)
        SL_FAIL(SL_ERROR_DATA, "a pattern of %zu bytes is above the limit of %d", strlen(text),
                SL_PATTERN_BYTES_MAX);
    SL_TRY(sl_pattern_syntax_translate(text, &translated));
    sl_pattern *self = calloc(1, sizeof *self);
    char *copy = strdup(text);
    if (!self || !copy) {
        free(translated);
        free(copy);
        free(self);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a pattern");
    }
    self->text = copy;
    const sl_status status = compile(self, translated);
    free(translated);
    if (status != SL_OK) {
        sl_pattern_close(self);
        return status;
    }
    self->known = find_known(text);
    *out_pattern = self;
    return SL_OK;
}

void sl_pattern_close(sl_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    free(pattern->text);
    free(pattern);
}

const char *sl_pattern_text(const sl_pattern *pattern)
{
    return pattern->text;
}

bool sl_pattern_allows_cuts(const sl_pattern *pattern)
{
    return pattern->known != NULL;
}

const char *sl_pattern_gguf_name(const sl_pattern *pattern)
{
    return pattern->known ? pattern->known->gguf_name : NULL;
}

/* ---- matching ---- */

sl_status sl_matcher_open(sl_matcher **out_matcher)
{
    sl_matcher *self = calloc(1, sizeof *self);
    if (self) {
        self->data = pcre2_match_data_create(1, NULL);
        self->context = pcre2_match_context_create(NULL);
        self->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
    }
    if (!self || !self->data || !self->context) {
        sl_matcher_close(self);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to match patterns");
    }
    pcre2_set_heap_limit(self->context, HEAP_KIB_MAX);
    if (self->stack) /* else the processor's own, of 32 KiB, and the interpreter behind it */
        pcre2_jit_stack_assign(self->context, NULL, self->stack);
    *out_matcher = self;
    return SL_OK;
}

void sl_matcher_close(sl_matcher *matcher)
{
    if (!matcher)
        return;
    pcre2_match_data_free(matcher->data);
    pcre2_match_context_free(matcher->context);
    pcre2_jit_stack_free(matcher->stack);
    free(matcher);
}

static sl_status fail_matching(int error)
{
    PCRE2_UCHAR text[120];
    if (error == PCRE2_ERROR_NOMEMORY)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to match a pattern");
    SL_FAIL(SL_ERROR_DATA, "the tokenizer's pattern needs too much for this text: %s",
            describe(error, text, sizeof text));
}

/* Finds the first match from `search` on; *out_found is false where there is none. */
static sl_status find_match(const sl_pattern *pattern, sl_matcher *matcher, sl_pattern_walk *walk,
                            bool *out_found)
{
    const PCRE2_SPTR text = (PCRE2_SPTR)walk->text;
    uint32_t options = PCRE2_NO_UTF_CHECK;
    uint64_t steps = STEPS_MIN + STEPS_PER_BYTE * walk->bytes;
    pcre2_set_match_limit(matcher->context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    int count = pcre2_match(pattern->code, text, walk->bytes, walk->search, options, matcher->data,
                            matcher->context);
    if (count == PCRE2_ERROR_JIT_STACKLIMIT)
        count = pcre2_match(pattern->code, text, walk->bytes, walk->search, options | PCRE2_NO_JIT,
                            matcher->data, matcher->context);
    *out_found = count >= 0;
    if (count < 0)
        return count == PCRE2_ERROR_NOMATCH ? SL_OK : fail_matching(count);
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(matcher->data);
    walk->match_start = place[0];
    walk->match_end = place[1];
    return SL_OK;
}

static void skip_character(sl_pattern_walk *walk)
{
    walk->search++;
    while (walk->search < walk->bytes && ((unsigned char)walk->text[walk->search] & 0xc0) == 0x80)
        walk->search++;
}

/* As find_match. An empty match counts unless it touches the end of the match before it. */
static sl_status find_next(const sl_pattern *pattern, sl_matcher *matcher, sl_pattern_walk *walk,
                           bool *out_found)
{
    for (*out_found = false; walk->search <= walk->bytes; skip_character(walk)) {
        SL_TRY(find_match(pattern, matcher, walk, out_found));
        if (!*out_found)
            return SL_OK;
        walk->search = walk->match_end;
        bool is_empty = walk->match_start == walk->match_end;
        if (is_empty && walk->has_matched && walk->last_end == walk->match_end)
            continue;
        walk->has_matched = true;
        walk->last_end = walk->match_end;
        return SL_OK;
    }
    *out_found = false;
    return SL_OK;
}

static void give(sl_pattern_walk *walk, uint64_t end, uint64_t *out_end, bool *out_is_there)
{
    walk->at = *out_end = end;
    *out_is_there = true;
}

sl_status sl_pattern_next(const sl_pattern *pattern, sl_matcher *matcher, sl_pattern_walk *walk,
                          uint64_t *out_end, bool *out_is_there)
{
    *out_is_there = false;
    while (walk->at < walk->bytes) {
        bool found = walk->has_match;
        if (!found)
            SL_TRY(find_next(pattern, matcher, walk, &found));
        walk->has_match = found && walk->match_start > walk->at;
        if (!found || walk->has_match) {
            give(walk, found ? walk->match_start : walk->bytes, out_end, out_is_there);
            return SL_OK;
        }
        if (walk->match_end > walk->at) {
            give(walk, walk->match_end, out_end, out_is_there);
            return SL_OK;
        }
    }
    return SL_OK;
}
