/* The library never prints: it hands its rare remarks (warnings, notes) to one callback. */
#ifndef SLUICE_LOG_H
#define SLUICE_LOG_H

#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sl_log_level { SL_LOG_NOTE, SL_LOG_WARNING } sl_log_level;

/* Called with one whole line, without line end. May be called from any thread, one at a time. */
typedef void (*sl_log_callback)(sl_log_level level, const char *line, void *user);

/* Sets where remarks go; NULL (the default) drops them. Not to be called while an engine runs. */
SL_API void sl_log_set_callback(sl_log_callback callback, void *user);

#ifdef __cplusplus
}
#endif
#endif
