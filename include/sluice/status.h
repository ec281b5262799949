/* Status codes and the message that explains the last one.
 *
 * Every call of the library that can fail returns an sl_status and writes its outputs only on
 * success. The message is made once, where the error was decided, and is kept per thread.
 */
#ifndef SLUICE_STATUS_H
#define SLUICE_STATUS_H

#if defined(_WIN32)
#error "sluice needs a POSIX system"
#endif

/* Marks what the shared library exports. */
#define SL_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* How a call ended. Failures are negative. */
typedef enum sl_status {
    SL_OK = 0,               /* done */
    SL_ERROR_USAGE = -1,     /* a wrong option or configuration */
    SL_ERROR_DATA = -2,      /* an input file breaks its format */
    SL_ERROR_MISSING = -3,   /* an input file is not there */
    SL_ERROR_FIT = -4,       /* the run does not fit its budgets */
    SL_ERROR_INTERNAL = -5,  /* a bug of ours, or calls of ranks that differ (sluice/comm.h) */
    SL_ERROR_SYSTEM = -6,    /* the system refused memory, a thread or a device */
    SL_ERROR_IO = -7,        /* reading or writing failed */
    SL_ERROR_RANK = -8,      /* a rank died or hung, this one or another */
    SL_ERROR_NONFINITE = -9, /* a loss, gradient or weight is not finite */
    SL_ERROR_STOPPED = -10,  /* asked to stop, and stopped; nothing is lost */
    SL_ERROR_DAMAGED = -11   /* bytes of a checkpoint differ from those that were saved; found
                                while the checkpoint was loaded */
} sl_status;

/* The message of the last failure in the calling thread: one line of at most 1023 bytes, control
 * bytes written as \xNN; "" before the first failure. Owned by the library, valid until the next
 * call of the library in this thread: also a call that succeeds may replace it. */
SL_API const char *sl_status_message(void);

/* Sets the message of the calling thread, cut to 1023 bytes, and returns `status`: for a callback
 * that fails. `message` is copied. */
SL_API sl_status sl_status_set(sl_status status, const char *message);

/* The exit code of a command that ends with `status`, in the numbers of sysexits.h: 0 for SL_OK and
 * SL_ERROR_STOPPED, 64 to 76 for failures. */
SL_API int sl_status_exit_code(sl_status status);

#ifdef __cplusplus
}
#endif
#endif
