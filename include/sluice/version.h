/* The version of the library. */
#ifndef SLUICE_VERSION_H
#define SLUICE_VERSION_H

#include "sluice/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version, as "0.2.0". Valid until the process ends. */
SL_API const char *sl_version_text(void);

/* The commit of the build, with "-dirty" if files were changed; "unknown" outside of git. Valid
 * until the process ends. */
SL_API const char *sl_version_commit(void);

#ifdef __cplusplus
}
#endif
#endif
