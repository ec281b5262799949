/* Opens libcudnn: by its name, as the loader finds it, then where toolkits stand. */
#include "cudnn_load.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* VERSION_LEAST: from which on a mask may be minus infinity. */
enum { PATH_BYTES = 1024, TEXT_BYTES = 256, VERSION_LEAST = 91000 };

static const char name[] = "libcudnn.so.9";

/* Below a toolkit's own directory. */
static const char *const folders[] = {"lib64", "lib", "targets/x86_64-linux/lib",
                                      "targets/sbsa-linux/lib"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sl_cudnn_functions functions;
static bool is_loaded;
static char text[TEXT_BYTES];

static void *open_library(void)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *const toolkits[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
    for (int i = 0; i < 3 * 4 && library == NULL; i++) {
        char path[PATH_BYTES];
        if (toolkits[i / 4] == NULL)
            continue;
        const int length =
            snprintf(path, sizeof path, "%s/%s/%s", toolkits[i / 4], folders[i % 4], name);
        if (length > 0 && length < PATH_BYTES)
            library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library;
}

/* dlsym gives an object pointer for a function; POSIX says that its bytes are the function's. */
static bool find(void *library, const char *function, void *out_function)
{
    void *symbol = dlsym(library, function);
    if (symbol == NULL) {
        snprintf(text, sizeof text, "libcudnn lacks %s: attention by own kernels", function);
        return false;
    }
    memcpy(out_function, &symbol, sizeof symbol);
    return true;
}

static bool find_all(void *library)
{
#define X(name)                                                                                    \
    if (!find(library, "cudnn" #name, &functions.name))                                            \
        return false;
    SL_CUDNN_FUNCTIONS(X)
#undef X
    return true;
}

static void load(void)
{
    void *library = open_library();
    if (library == NULL) {
        snprintf(text, sizeof text, "no %s to be found: attention by own kernels", name);
        return;
    }
    if (find_all(library)) {
        const size_t version = functions.GetVersion();
        is_loaded = version >= VERSION_LEAST;
        snprintf(text, sizeof text, "cuDNN %zu.%zu.%zu%s", version / 10000, version / 100 % 100,
                 version % 100, is_loaded ? "" : " is older than 9.10: attention by own kernels");
    }
    if (!is_loaded)
        dlclose(library);
}

const sl_cudnn_functions *sl_cudnn_load(void)
{
    pthread_once(&once, load);
    return is_loaded ? &functions : NULL;
}

const char *sl_cudnn_load_text(void)
{
    pthread_once(&once, load);
    return text;
}
