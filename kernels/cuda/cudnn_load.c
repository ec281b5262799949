/* Opens libcudnn. */
#include "cudnn_load.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "toolkit_library.h"

/* VERSION_LEAST: from which on a mask may be minus infinity. */
enum { NAMES = 1, TEXT_BYTES = 256, VERSION_LEAST = 91000 };

static const char *const names[NAMES] = {"libcudnn.so.9"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sl_cudnn_functions functions;
static bool is_loaded;
static char text[TEXT_BYTES];

static bool report_missing(const char *function)
{
    snprintf(text, sizeof text, "libcudnn lacks %s: attention by own kernels", function);
    return false;
}

static bool find_functions(void *library)
{
#define X(name)                                                                                    \
    if (!sl_toolkit_find(library, "cudnn" #name, &functions.name))                                 \
        return report_missing("cudnn" #name);
    SL_CUDNN_FUNCTIONS(X)
#undef X
    return true;
}

static void load_functions(void)
{
    void *library = sl_toolkit_open(names, NAMES);
    if (library == NULL) {
        snprintf(text, sizeof text, "no %s to be found: attention by own kernels", names[0]);
        return;
    }
    if (find_functions(library)) {
        const size_t version = functions.GetVersion();
        is_loaded = version >= VERSION_LEAST;
        snprintf(text, sizeof text, "cuDNN %zu.%zu.%zu%s", version / 10000, version / 100 % 100,
                 version % 100, is_loaded ? "" : " is older than 9.10: attention by own kernels");
    }
    if (!is_loaded)
        sl_toolkit_close(library);
}

const sl_cudnn_functions *sl_cudnn_load(void)
{
    pthread_once(&once, load_functions);
    return is_loaded ? &functions : NULL;
}

const char *sl_cudnn_load_text(void)
{
    pthread_once(&once, load_functions);
    return text;
}
