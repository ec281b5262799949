/* Looks for libraries of the CUDA toolkit. */
#include "toolkit_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 1024 };

/* Below a toolkit's own directory. */
static const char *const folders[] = {"lib64", "lib", "targets/x86_64-linux/lib",
                                      "targets/sbsa-linux/lib"};

enum { FOLDERS = sizeof folders / sizeof *folders };

static void *open_below(const char *toolkit, const char *name)
{
    char path[PATH_BYTES];
    void *library = NULL;
    for (int i = 0; toolkit != NULL && i < FOLDERS && library == NULL; i++) {
        const int length = snprintf(path, sizeof path, "%s/%s/%s", toolkit, folders[i], name);
        if (length > 0 && length < PATH_BYTES)
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

/* ---- Python packages ---- */

/* Below the prefix of a Python: packages of CUDA 12 have a folder for each library, those of 13 one
 * for all. Python's folder carries its version. */
static const char PACKAGES[] =
    "%s%s/{lib,lib64}/python3*/{site,dist}-packages/nvidia/{cu13,cublas,cu12}/lib/%s";

static void *open_packaged(const char *prefix, const char *folder, const char *name)
{
    char pattern[PATH_BYTES];
    glob_t found;
    void *library = NULL;
    const int length = snprintf(pattern, sizeof pattern, PACKAGES, prefix, folder, name);
    if (length < 0 || length >= PATH_BYTES || strpbrk(prefix, "*?[{\\") != NULL)
        return NULL;
    if (glob(pattern, GLOB_BRACE | GLOB_NOSORT, NULL, &found) != 0)
        return NULL;
    for (size_t i = 0; i < found.gl_pathc && library == NULL; i++)
        library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
    return library;
}

/* The folders of PATH that are a Python's `bin`: its prefix is the folder above. */
static void *open_beside_path(const char *name)
{
    static const char bin[] = "/bin";
    const char *path = getenv("PATH");
    char prefix[PATH_BYTES];
    void *library = NULL;
    while (path != NULL && library == NULL) {
        const size_t length = strcspn(path, ":"), end = sizeof bin - 1;
        const bool is_bin = *path == '/' && length > end && length < sizeof prefix &&
                            memcmp(path + length - end, bin, end) == 0;
        if (is_bin) {
            snprintf(prefix, sizeof prefix, "%.*s", (int)(length - end), path);
            library = open_packaged(prefix, "", name);
        }
        path = path[length] == ':' ? path + length + 1 : NULL;
    }
    return library;
}

static void *open_from_packages(const char *name)
{
    const struct {
        const char *prefix, *folder;
    } places[] = {{getenv("VIRTUAL_ENV"), ""},
                  {getenv("CONDA_PREFIX"), ""},
                  {getenv("HOME"), "/.local"},
                  {"/usr/local", ""},
                  {"/usr", ""}};
    void *library = NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places && library == NULL; i++)
        if (places[i].prefix != NULL && *places[i].prefix == '/')
            library = open_packaged(places[i].prefix, places[i].folder, name);
    return library != NULL ? library : open_beside_path(name);
}

void *sl_toolkit_open(const char *const *names, uint32_t name_count)
{
    const char *const toolkits[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda",
                                    getenv("CONDA_PREFIX")};
    enum { TOOLKITS = sizeof toolkits / sizeof *toolkits };
    void *library = NULL;
    for (uint32_t i = 0; i < name_count && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    for (uint32_t i = 0; i < TOOLKITS * name_count && library == NULL; i++)
        library = open_below(toolkits[i / name_count], names[i % name_count]);
    for (uint32_t i = 0; i < name_count && library == NULL; i++)
        library = open_from_packages(names[i]);
    return library;
}

void sl_toolkit_close(void *library)
{
    (void)dlclose(library);
}

/* dlsym gives an object pointer for a function; POSIX says that its bytes are the function's. */
bool sl_toolkit_find(void *library, const char *function, void *out_function)
{
    void *symbol = dlsym(library, function);
    if (symbol != NULL)
        memcpy(out_function, &symbol, sizeof symbol);
    return symbol != NULL;
}
