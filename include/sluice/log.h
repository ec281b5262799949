/* The library never prints. It passes its notes and warnings to one callback. */
#ifndef SLUICE_LOG_H
#define SLUICE_LOG_H

#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sl_log_level { SL_LOG_NOTE, SL_LOG_WARNING } sl_log_level;

/* Called with one line without its line end, from any thread, by one thread at a time. `line` is
 * valid during the call. */
typedef void (*sl_log_callback)(sl_log_level level, const char *line, void *user);

/* Sets the callback; NULL (the default) drops all lines. Not to be called while an engine runs. */
SL_API void sl_log_set_callback(sl_log_callback callback, void *user);

#ifdef __cplusplus
}
#endif
#endif
