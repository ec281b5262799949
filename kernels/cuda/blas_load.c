/* Opens libcublasLt. */
#include "blas_load.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "toolkit_library.h"

enum { NAMES = 2, TEXT_BYTES = 256, VERSION_LEAST = 120000 };

/* What the engine is compiled with first; the one before has the same functions and values. */
static const char *const names[NAMES] = {"libcublasLt.so.13", "libcublasLt.so.12"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static sl_blas_functions functions;
static bool is_loaded;
static char text[TEXT_BYTES];

static bool report_missing(const char *function)
{
    snprintf(text, sizeof text, "libcublasLt lacks %s", function);
    return false;
}

static bool find_functions(void *library)
{
#define X(name)                                                                                    \
    if (!sl_toolkit_find(library, "cublasLt" #name, &functions.name))                              \
        return report_missing("cublasLt" #name);
    SL_BLAS_FUNCTIONS(X)
#undef X
    return true;
}

static void load_functions(void)
{
    void *library = sl_toolkit_open(names, NAMES);
    if (library == NULL) {
        snprintf(text, sizeof text, "no %s or %s is found", names[0], names[1]);
        return;
    }
    if (!find_functions(library)) {
        sl_toolkit_close(library);
        return;
    }
    const size_t version = functions.GetVersion();
    is_loaded = version >= VERSION_LEAST;
    snprintf(text, sizeof text, "cuBLASLt %zu.%zu.%zu%s", version / 10000, version / 100 % 100,
             version % 100, is_loaded ? "" : " is older than 12");
    if (!is_loaded)
        sl_toolkit_close(library);
}

const sl_blas_functions *sl_blas_load(void)
{
    pthread_once(&once, load_functions);
    return is_loaded ? &functions : NULL;
}

const char *sl_blas_load_text(void)
{
    pthread_once(&once, load_functions);
    return text;
}
