/* Keeps one message per thread, keeps first failures, and maps statuses to exit codes. Knows
 * nothing of what failed. Messages contain text of users and files and are shown on terminals, so
 * control bytes are escaped. */
#include "status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[SL_STATUS_MESSAGE_BYTES];

const char *sl_status_message(void)
{
    return message;
}

/* Control bytes of ASCII, and those of ISO 8859 (0x80 to 0x9f): alone, or in UTF-8 after 0xc2.
 * After any other byte above 0x7f they belong to a letter. */
static bool is_control(unsigned char before, unsigned char byte)
{
    if (byte >= 0x80 && byte < 0xa0)
        return before < 0x80 || before == 0xc2;
    return byte < 0x20 || byte == 0x7f;
}

void sl_status_escape(const char *text, char *out_text, size_t capacity)
{
    size_t used = 0;
    unsigned char before = 0;
    for (; *text && used + sizeof "\\x00" <= capacity; text++) {
        unsigned char byte = (unsigned char)*text;
        if (is_control(before, byte))
            used += (size_t)snprintf(out_text + used, capacity - used, "\\x%02x", byte);
        else
            out_text[used++] = *text;
        before = byte;
    }
    out_text[used] = '\0';
}

sl_status sl_status_fail(sl_status status, const char *format, ...)
{
    char fresh[SL_STATUS_MESSAGE_BYTES]; /* the arguments may point into the old message */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fresh, sizeof fresh, format, arguments);
    va_end(arguments);
    sl_status_escape(fresh, message, sizeof message);
    return status;
}

sl_status sl_status_prefix(sl_status status, const char *format, ...)
{
    char context[SL_STATUS_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context, sizeof context, format, arguments);
    va_end(arguments);
    return sl_status_fail(status, "%s: %s", context, message);
}

void sl_first_failure_keep(sl_first_failure *first, sl_status status)
{
    if (first->status != SL_OK)
        return;
    snprintf(first->message, sizeof first->message, "%s", message);
    first->status = status;
}

sl_status sl_first_failure_return(const sl_first_failure *first)
{
    return first->status == SL_OK ? SL_OK : sl_status_fail(first->status, "%s", first->message);
}

int sl_status_exit_code(sl_status status)
{
    switch (status) {
    case SL_OK:
    case SL_ERROR_STOPPED:
        return 0;
    case SL_ERROR_USAGE:
        return 64;
    case SL_ERROR_DATA:
    case SL_ERROR_DAMAGED:
        return 65;
    case SL_ERROR_MISSING:
        return 66;
    case SL_ERROR_FIT:
        return 69;
    case SL_ERROR_INTERNAL:
        return 70;
    case SL_ERROR_SYSTEM:
        return 71;
    case SL_ERROR_IO:
        return 74;
    case SL_ERROR_RANK:
        return 75;
    case SL_ERROR_NONFINITE:
        return 76;
    }
    return 70;
}

sl_status sl_status_set(sl_status status, const char *text)
{
    return sl_status_fail(status, "%s", text);
}

void sl_status_guard_begin(sl_status_guard *guard)
{
    memcpy(guard->message, message, sizeof message);
    message[0] = '\0';
}

sl_status sl_status_guard_end(const sl_status_guard *guard, sl_status status, const char *what)
{
    if (status == SL_OK)
        memcpy(message, guard->message, sizeof message);
    else if (message[0] == '\0')
        SL_FAIL(status, "%s failed, and did not say why", what);
    return status;
}
