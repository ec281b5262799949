/* Which sluice this is. */
#ifndef SLUICE_VERSION_H
#define SLUICE_VERSION_H

#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version, "0.1.0"; the library's own, for ever. */
SL_API const char *sl_version_text(void);

/* The commit it was built from, with "-dirty" if files were changed; "unknown" outside of git. */
SL_API const char *sl_version_commit(void);

#ifdef __cplusplus
}
#endif
#endif
