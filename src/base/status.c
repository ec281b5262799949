/* Keeps one message per thread, keeps first failures, and maps statuses to exit codes. Knows
 * nothing of what failed. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char message[SL_STATUS_MESSAGE_BYTES];

const char *sl_status_message(void)
{
    return message;
}

sl_status sl_status_fail(sl_status status, const char *format, ...)
{
    char fresh[SL_STATUS_MESSAGE_BYTES]; /* the arguments may point into the old message */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fresh, sizeof fresh, format, arguments);
    va_end(arguments);
    memcpy(message, fresh, sizeof message);
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
        return 0;
    case SL_ERROR_USAGE:
        return 64;
    case SL_ERROR_DATA:
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
