/* See installed.h. */
#include "installed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct library {
    sl_installed_kind kind;
    const char *file, *name;
} libraries[] = {{SL_INSTALLED_NCCL, "libnccl.so.2", "NCCL"},
                 {SL_INSTALLED_MPI, "libmpi.so.40", "Open MPI"},
                 {SL_INSTALLED_MPI, "libmpich.so.12", "MPICH"}};

/* A file in one of the folders that a variable lists with ":" between; false: there is none. */
static bool find_in_list(const char *variable, const char *name, int mode, char *out_path)
{
    const char *list = getenv(variable);
    for (const char *start = list ? list : ""; *start;) {
        int length = (int)strcspn(start, ":");
        snprintf(out_path, SL_INSTALLED_PATH_BYTES, "%.*s/%s", length, start, name);
        if (length > 0 && access(out_path, mode) == 0)
            return true;
        start += length + (start[length] == ':');
    }
    return false;
}

bool sl_installed_find_program(const char *name, const char *folder,
                               char out_path[SL_INSTALLED_PATH_BYTES])
{
    if (find_in_list("PATH", name, X_OK, out_path))
        return true;
    snprintf(out_path, SL_INSTALLED_PATH_BYTES, "%s/%s", folder, name);
    return access(out_path, X_OK) == 0;
}

/* Whether a library is in a folder that the loader searches. The library is not loaded: loading
 * could run code of its own. */
static bool has_library(const char *name)
{
    static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu",
                                          "/usr/lib/aarch64-linux-gnu",
                                          "/usr/lib64",
                                          "/usr/lib",
                                          "/usr/local/lib",
                                          "/usr/local/cuda/lib64"};
    char path[SL_INSTALLED_PATH_BYTES];
    if (find_in_list("LD_LIBRARY_PATH", name, R_OK, path))
        return true;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folders[i], name);
        if (access(path, R_OK) == 0)
            return true;
    }
    return false;
}

void sl_installed_describe(sl_installed_kind kind, char out_text[SL_INSTALLED_TEXT_BYTES])
{
    out_text[0] = '\0';
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        const size_t used = strlen(out_text);
        if (libraries[i].kind == kind && has_library(libraries[i].file))
            snprintf(out_text + used, SL_INSTALLED_TEXT_BYTES - used, "%s%s", used ? ", " : "",
                     libraries[i].name);
    }
}
