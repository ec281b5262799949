/* Looks for libraries of the CUDA toolkit. */
#include "toolkit_library.h"

#include <dlfcn.h>
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

void *sl_toolkit_open(const char *const *names, uint32_t name_count)
{
    const char *const toolkits[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
    void *library = NULL;
    for (uint32_t i = 0; i < name_count && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    for (uint32_t i = 0; i < 3 * name_count && library == NULL; i++)
        library = open_below(toolkits[i / name_count], names[i % name_count]);
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
