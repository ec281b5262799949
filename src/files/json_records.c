/* A walk over the start of a JSON text; see json_records.h. Each pass_ function returns the place
 * behind what it passed over, or NULL if something else stands there. */
#include "json_records.h"

#include <string.h>

#include "files.h"

typedef struct text {
    const char *start, *end;
} text;

static const char *pass_space(const text *in, const char *at)
{
    while (at < in->end && *at != '\0' && strchr(" \t\r\n", *at))
        at++;
    return at < in->end ? at : NULL;
}

/* The character `what`, with space in front of it. */
static const char *pass(const text *in, const char *at, char what)
{
    at = at ? pass_space(in, at) : NULL;
    return at && *at == what ? at + 1 : NULL;
}

/* A string; `at` is behind its first quote. */
static const char *pass_string(const text *in, const char *at)
{
    for (; at && at < in->end; at++) {
        if (*at == '"')
            return at + 1;
        if (*at == '\\' && ++at == in->end)
            return NULL;
    }
    return NULL;
}

/* A name and the colon behind it. */
static const char *pass_name(const text *in, const char *at)
{
    return pass(in, pass_string(in, pass(in, at, '"')), ':');
}

/* The value of a member and the comma behind it. */
static const char *pass_value(const text *in, const char *at)
{
    uint64_t depth = 0;
    for (; at && at < in->end; at++) {
        if (*at == '"') {
            at = pass_string(in, at + 1);
            if (!at)
                return NULL;
            at--;
        } else if (*at == '[' || *at == '{') {
            depth++;
        } else if (*at == ']' || *at == '}') {
            if (depth-- == 0)
                return NULL;
        } else if (*at == ',' && depth == 0) {
            return at + 1;
        }
    }
    return NULL;
}

/* An array whose first element is an object with a member. */
static const char *pass_records(const text *in, const char *at)
{
    return pass_name(in, pass(in, pass(in, at, '['), '{'));
}

static bool has_records(const text *in, const char *at)
{
    while (at) {
        const char *value = pass_name(in, at), *records = pass_records(in, value);
        if (records)
            return memchr(in->start, '\n', (size_t)(records - in->start)) != NULL;
        at = pass_value(in, value);
    }
    return false;
}

static text pass_mark(const char *start, uint64_t bytes)
{
    static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8 */
    const uint64_t mark_bytes = sizeof mark - 1;
    const bool has_mark = bytes >= mark_bytes && memcmp(start, mark, mark_bytes) == 0;
    return (text){start + (has_mark ? mark_bytes : 0), start + bytes};
}

bool sl_json_records_is_array(const char *start, uint64_t bytes)
{
    const text in = pass_mark(start, bytes);
    return pass_records(&in, in.start) != NULL;
}

bool sl_json_records_start(const char *start, uint64_t bytes)
{
    const text in = pass_mark(start, bytes);
    start = in.start;
    return pass_records(&in, start) || has_records(&in, pass(&in, start, '{'));
}

sl_status sl_json_records_refuse(const char *path)
{
    SL_FAIL(SL_ERROR_DATA,
            "%s: is a JSON document of records, neither text nor JSON lines: write a line for each "
            "record, as jq -c '.[]' FILE >FILE.jsonl does (of a member: '.NAME[]'), and say by "
            "--json-key which key holds the text; to fine-tune on the records of an array, name "
            "what they hold by --prompt-key and --response-key, or by --messages-key",
            sl_files_show(path).text);
}
