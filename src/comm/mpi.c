/* Finding and loading the plug-in of an MPI library (src/comm/mpi). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "remote.h"

enum { PATH_BYTES = 4096 };

#ifndef SL_PLUGIN_FOLDER /* below the prefix of an installation */
#define SL_PLUGIN_FOLDER "lib/sluice"
#endif

/* Beside the program, where a build or an installation puts it. */
static const char *const folders[] = {"", "../", "../" SL_PLUGIN_FOLDER "/",
                                      "../../" SL_PLUGIN_FOLDER "/"};

/* SLUICE_MPI_PLUGIN names one that was built for another MPI. */
static bool find_plugin(const char *library, char *path)
{
    const char *chosen = getenv("SLUICE_MPI_PLUGIN");
    char program[PATH_BYTES / 2] = "";
    if (chosen) {
        snprintf(path, PATH_BYTES, "%s", chosen);
        return true;
    }
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash = length > 0 ? strrchr(program, '/') : NULL;
    for (size_t i = 0; slash && i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, PATH_BYTES, "%.*s/%ssluice-%s.so", (int)(slash - program), program,
                 folders[i], library);
        if (access(path, R_OK) == 0)
            return true;
    }
    return false;
}

sl_status sl_mpi_load(const char *library, const sl_mail_ops **out_ops)
{
    char path[PATH_BYTES];
    if (!find_plugin(library, path))
        SL_FAIL(SL_ERROR_SYSTEM,
                "ranks on several machines need the plug-in sluice-%s.so, which is not beside "
                "this program: it is built where the MPI's headers are (lib%s-dev), or name one "
                "by SLUICE_MPI_PLUGIN",
                library, library);
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* MPI loads parts that look for it */
    if (!handle)
        SL_FAIL(SL_ERROR_SYSTEM, "cannot load the plug-in for MPI: %s", dlerror());
    sl_mail_plugin plugin;
    *(void **)&plugin = dlsym(handle, SL_MAIL_PLUGIN);
    const sl_mail_ops *ops = plugin ? plugin() : NULL;
    if (!ops || ops->version != SL_MAIL_VERSION)
        SL_FAIL(SL_ERROR_SYSTEM, "%s is no plug-in of this sluice: build both together", path);
    *out_ops = ops;
    return SL_OK;
}
