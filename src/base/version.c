/* The version and commit that the build recorded (cmake/commit.cmake). */
#include "sluice/version.h"

#include "sluice_commit.h"

const char *sl_version_text(void)
{
    return SL_VERSION_TEXT;
}

const char *sl_version_commit(void)
{
    return SL_VERSION_COMMIT;
}
