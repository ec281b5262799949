/* Making and passing on errors. include/sluice/status.h says what the statuses mean. */
#ifndef SL_BASE_STATUS_H
#define SL_BASE_STATUS_H

#include <stddef.h>

#include "sluice/status.h"

/* Sets this thread's message and returns `status`. */
sl_status sl_status_fail(sl_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts the formatted text and ": " in front of this thread's message; returns `status`. */
sl_status sl_status_prefix(sl_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

enum { SL_STATUS_MESSAGE_BYTES = 1024 };

/* Copies text, as much as fits, with each control byte written as \xNN; UTF-8 stays. */
void sl_status_escape(const char *text, char *out_text, size_t capacity);

/* The first failure of something that goes on after a failure, as a queue does. Zeros: no failure.
 * Between threads the caller guards it by a lock. */
typedef struct sl_first_failure {
    sl_status status;
    char message[SL_STATUS_MESSAGE_BYTES];
} sl_first_failure;

/* Keeps a failure with this thread's message, unless one is kept already. */
void sl_first_failure_keep(sl_first_failure *first, sl_status status);

/* Returns the kept failure and sets this thread's message to its message; SL_OK without one. */
sl_status sl_first_failure_return(const sl_first_failure *first);

/* Around a call of a program's own function, which may return a failure and set no message. */
typedef struct sl_status_guard {
    char message[SL_STATUS_MESSAGE_BYTES];
} sl_status_guard;

/* Keeps this thread's message, and clears it. */
void sl_status_guard_begin(sl_status_guard *guard);

/* Returns `status`. Of a failure without a message, the message becomes "WHAT failed, and did not
 * say why"; of a success, the one from before. */
sl_status sl_status_guard_end(const sl_status_guard *guard, sl_status status, const char *what);

/* SL_FAIL(SL_ERROR_IO, "%s: %s", path, strerror(errno)) makes the message where it is decided. */
#define SL_FAIL(status, ...)                                                                       \
    do {                                                                                           \
        (void)sl_status_fail((status), __VA_ARGS__);                                               \
        return (status); /* the compiler then knows the value */                                   \
    } while (0)

/* Passes a failure on unchanged. */
#define SL_TRY(call)                                                                               \
    do {                                                                                           \
        sl_status sl_try_status_ = (call);                                                         \
        if (sl_try_status_ != SL_OK)                                                               \
            return sl_try_status_;                                                                 \
    } while (0)

/* As SL_TRY, but jumps to `label` with the failure in `status_variable`. */
#define SL_TRY_GOTO(status_variable, call, label)                                                  \
    do {                                                                                           \
        (status_variable) = (call);                                                                \
        if ((status_variable) != SL_OK)                                                            \
            goto label;                                                                            \
    } while (0)

#endif
