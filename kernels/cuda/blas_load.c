/* Opens libcublasLt: by its name, as the loader finds it, then where toolkits stand. */
#include "blas_load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 1024, TEXT_BYTES = 256, VERSION_LEAST = 120000 };

/* What the engine is compiled with first; the one before has the same functions and values. */
static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

/* Below a toolkit's own directory. */
static const char *const folders[] = {"lib64", "lib", "targets/x86_64-linux/lib",
                                      "targets/sbsa-linux/lib"};

enum { NAMES = sizeof names / sizeof *names, FOLDERS = sizeof folders / sizeof *folders };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sl_blas_functions functions;
static bool is_loaded;
static char text[TEXT_BYTES];

static void *open_below(const char *toolkit)
{
    char path[PATH_BYTES];
    for (int i = 0; toolkit != NULL && i < NAMES * FOLDERS; i++) {
        const int length = snprintf(path, sizeof path, "%s/%s/%s", toolkit, folders[i % FOLDERS],
                                    names[i / FOLDERS]);
        void *library = NULL;
        if (length > 0 && length < PATH_BYTES)
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library != NULL)
            return library;
    }
    return NULL;
}

static void *open_library(void)
{
    for (int i = 0; i < NAMES; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library != NULL)
            return library;
    }
    const char *const toolkits[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
    for (int i = 0; i < 3; i++) {
        void *library = open_below(toolkits[i]);
        if (library != NULL)
            return library;
    }
    return NULL;
}

/* dlsym gives an object pointer for a function; POSIX says that its bytes are the function's. */
static bool find(void *library, const char *name, void *out_function)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        snprintf(text, sizeof text, "libcublasLt lacks %s: products run slower, by own kernels",
                 name);
        return false;
    }
    memcpy(out_function, &symbol, sizeof symbol);
    return true;
}

static bool find_all(void *library)
{
#define X(name)                                                                                    \
    if (!find(library, "cublasLt" #name, &functions.name))                                         \
        return false;
    SL_BLAS_FUNCTIONS(X)
#undef X
    return true;
}

static void load(void)
{
    void *library = open_library();
    if (library == NULL) {
        snprintf(text, sizeof text, "no %s or %s to be found: products run slower, by own kernels",
                 names[0], names[1]);
        return;
    }
    if (!find_all(library)) {
        dlclose(library);
        return;
    }
    const size_t version = functions.GetVersion();
    is_loaded = version >= VERSION_LEAST;
    snprintf(text, sizeof text, "cuBLASLt %zu.%zu.%zu%s", version / 10000, version / 100 % 100,
             version % 100,
             is_loaded ? "" : " is older than 12: products run slower, by own kernels");
    if (!is_loaded)
        dlclose(library);
}

const sl_blas_functions *sl_blas_load(void)
{
    pthread_once(&once, load);
    return is_loaded ? &functions : NULL;
}

const char *sl_blas_load_text(void)
{
    pthread_once(&once, load);
    return text;
}
