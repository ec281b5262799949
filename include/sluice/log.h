/* Notes and warnings of the library. It never prints: it passes them to one callback. */
#ifndef SLUICE_LOG_H
#define SLUICE_LOG_H

#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A note tells what the library chose; a warning, what the user may want to change. */
typedef enum sl_log_level { SL_LOG_NOTE, SL_LOG_WARNING } sl_log_level;

/* Called with one line without its line end, at most 1023 bytes, from any thread, by one thread at
 * a time. `line` is valid during the call. Must return soon, and must call nothing of the library.
 */
typedef void (*sl_log_callback)(void *user, sl_log_level level, const char *line);

/* Sets the callback of the process, for sessions that have none of their own (sl_options_set_log),
 * and its `user`, which is borrowed until the next call; NULL (the default) drops all lines. Not to
 * be called while a session is open. */
SL_API void sl_log_set_callback(sl_log_callback callback, void *user);

#ifdef __cplusplus
}
#endif
#endif
