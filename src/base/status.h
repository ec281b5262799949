/* How the rooms make and pass on errors. See include/sluice/status.h for what they mean. */
#ifndef SL_BASE_STATUS_H
#define SL_BASE_STATUS_H

#include <stddef.h>

#include "sluice/status.h"

/* Leaves the message of a failure for this thread and returns `status`. */
sl_status sl_status_fail(sl_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts `context` and ": " in front of the message that stands; returns `status`. */
sl_status sl_status_prefix(sl_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

enum { SL_STATUS_MESSAGE_BYTES = 1024 };

/* Copies text with each byte that a terminal obeys as \xNN, as much as fits; UTF-8 stays. */
void sl_status_escape(const char *text, char *out_text, size_t capacity);

/* The first failure of something that goes on after it, as a queue does. Zeros: there was none. Who
 * shares one between threads has it under a lock. */
typedef struct sl_first_failure {
    sl_status status;
    char message[SL_STATUS_MESSAGE_BYTES];
} sl_first_failure;

/* Keeps a failure with the message that stands in this thread, unless one is kept already. */
void sl_first_failure_keep(sl_first_failure *first, sl_status status);

/* Returns what is kept, with its message as this thread's; SL_OK where nothing is. */
sl_status sl_first_failure_return(const sl_first_failure *first);

/* SL_FAIL(SL_ERROR_IO, "%s: %s", path, strerror(errno)) makes the message where it is decided. */
#define SL_FAIL(status, ...)                                                                       \
    do {                                                                                           \
        (void)sl_status_fail((status), __VA_ARGS__);                                               \
        return (status); /* so that the compiler sees which value leaves */                        \
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
