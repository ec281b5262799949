/* What could be wrong where cuBLASLt is looked for: a place that is not tried, an old library or
 * one that lacks a function and is used all the same, a function under another's name, a text that
 * does not say what is the matter. The loader here knows one library; the code under test is
 * included after it, with the loader's calls replaced, so that each case looks anew. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dlfcn.h>

#include "scratch_dir.h"

static struct {
    const char *path; /* of the only library there is */
    const char *lacks;
    size_t version;
    int open, tried;
} machine;

static void *fake_open(const char *path, int flags)
{
    assert_int_equal(flags & RTLD_LOCAL, RTLD_LOCAL);
    machine.tried++;
    if (machine.path == NULL || strcmp(path, machine.path) != 0)
        return NULL;
    machine.open++;
    return &machine;
}

static int fake_close(void *library)
{
    assert_ptr_equal(library, &machine);
    machine.open--;
    return 0;
}

static size_t fake_version(void)
{
    return machine.version;
}

/* The program's own: what every function of its library is called; NULL ends it. The function that
 * tells the version is the first. */
static const char *const *function_names;

/* Every other function is the address of its own name in the list. */
static void *fake_find(void *library, const char *name)
{
    assert_ptr_equal(library, &machine);
    if (machine.lacks != NULL && strcmp(name, machine.lacks) == 0)
        return NULL;
    if (strcmp(name, function_names[0]) == 0) {
        size_t (*function)(void) = fake_version;
        void *symbol;
        memcpy(&symbol, &function, sizeof symbol);
        return symbol;
    }
    for (size_t i = 1; function_names[i] != NULL; i++)
        if (strcmp(name, function_names[i]) == 0)
            return (void *)&function_names[i];
    fail_msg("%s is asked for", name);
    return NULL;
}

#define dlopen fake_open
#define dlsym fake_find
#define dlclose fake_close
#include "kernels/cuda/toolkit_library.c"
#undef dlopen
#undef dlsym
#undef dlclose

/* What the machine has from now on. */
static void set_machine(const char *path, const char *lacks, size_t version)
{
    memset(&machine, 0, sizeof machine);
    machine.path = path;
    machine.lacks = lacks;
    machine.version = version;
}

#include "kernels/cuda/blas_load.c"

static const char *const names_of_all[] = {
    "cublasLtGetVersion",
#define X(name) "cublasLt" #name,
    SL_BLAS_FUNCTIONS(X)
#undef X
        NULL,
};

static const sl_blas_functions *look_anew(const char *path, const char *lacks, size_t version)
{
    static const pthread_once_t fresh = PTHREAD_ONCE_INIT;
    memcpy(&once, &fresh, sizeof once);
    memset(&functions, 0, sizeof functions);
    memset(text, 0, sizeof text);
    is_loaded = false;
    function_names = names_of_all;
    set_machine(path, lacks, version);
    return sl_blas_load();
}

/* An empty file, with the folders above it. */
static void make_file(const char *path)
{
    char folder[4096];
    for (const char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        snprintf(folder, sizeof folder, "%.*s", (int)(at - path), path);
        (void)mkdir(folder, 0700);
    }
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fclose(file);
}

static void library_when_the_loader_knows_it_is_used(void **state)
{
    (void)state;
    const sl_blas_functions *found = look_anew("libcublasLt.so.13", NULL, 130204);
    assert_non_null(found);
    assert_string_equal(sl_blas_load_text(), "cuBLASLt 13.2.4");
    assert_int_equal(found->GetVersion(), 130204);
    assert_int_equal(machine.tried, 1);
    assert_ptr_equal(sl_blas_load(), found);
    assert_int_equal(machine.tried, 1);
    assert_non_null(look_anew("libcublasLt.so.12", NULL, 120605));
    assert_string_equal(sl_blas_load_text(), "cuBLASLt 12.6.5");
}

static void functions_when_found_are_under_their_names(void **state)
{
    (void)state;
    const sl_blas_functions *found = look_anew("libcublasLt.so.13", NULL, 130000);
    assert_non_null(found);
    void *symbol;
#define X(name)                                                                                    \
    memcpy(&symbol, &found->name, sizeof symbol);                                                  \
    assert_ptr_equal(symbol, fake_find(&machine, "cublasLt" #name));
    SL_BLAS_FUNCTIONS(X)
#undef X
}

static void library_when_beside_a_toolkit_is_found(void **state)
{
    (void)state;
    setenv("CUDA_HOME", "/some/toolkit", 1);
    assert_non_null(look_anew("/some/toolkit/lib64/libcublasLt.so.13", NULL, 130000));
    assert_non_null(
        look_anew("/some/toolkit/targets/x86_64-linux/lib/libcublasLt.so.12", NULL, 120000));
    unsetenv("CUDA_HOME");
    assert_null(look_anew("/some/toolkit/lib64/libcublasLt.so.13", NULL, 130000));
    setenv("CUDA_PATH", "/another", 1);
    assert_non_null(look_anew("/another/lib/libcublasLt.so.13", NULL, 130000));
    unsetenv("CUDA_PATH");
    assert_non_null(look_anew("/usr/local/cuda/lib64/libcublasLt.so.12", NULL, 120000));
    char *long_path = malloc(5000);
    assert_non_null(long_path);
    memset(long_path, 'x', 4999);
    long_path[4999] = '\0';
    setenv("CUDA_HOME", long_path, 1);
    assert_null(look_anew(NULL, NULL, 0));
    unsetenv("CUDA_HOME");
    free(long_path);
}

/* Where pip, conda and Debian put them, in the order of looking; folders are there, files empty. */
static void library_when_in_a_python_package_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *prefix, *library;
    } cases[] = {
        {"VIRTUAL_ENV", "/venv", "lib/python3.11/site-packages/nvidia/cu13/lib/libcublasLt.so.13"},
        {"VIRTUAL_ENV", "/v", "lib/python3.9/site-packages/nvidia/cublas/lib/libcublasLt.so.12"},
        {"VIRTUAL_ENV", "/w", "lib64/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12"},
        {"CONDA_PREFIX", "/conda", "lib/libcublasLt.so.13"},
        {"CONDA_PREFIX", "/conda2",
         "lib/python3.10/site-packages/nvidia/cu13/lib/libcublasLt.so.13"},
        {"HOME", "/home", ".local/lib/python3.11/site-packages/nvidia/cu13/lib/libcublasLt.so.13"},
        {"PATH", "/py", "lib/python3/dist-packages/nvidia/cublas/lib/libcublasLt.so.12"},
    };
    scratch_path scratch = scratch_open();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char prefix[2048], path[4096], before[4096] = "", searched[8192];
        snprintf(prefix, sizeof prefix, "%s%s", scratch.text, cases[i].prefix);
        snprintf(path, sizeof path, "%s/%s", prefix, cases[i].library);
        make_file(path);
        assert_null(look_anew(path, NULL, 130000));
        const bool is_path = strcmp(cases[i].variable, "PATH") == 0;
        if (getenv(cases[i].variable) != NULL)
            snprintf(before, sizeof before, "%s", getenv(cases[i].variable));
        snprintf(searched, sizeof searched, "/nowhere:%s%s:/bin", prefix, is_path ? "/bin" : "");
        setenv(cases[i].variable, is_path ? searched : prefix, 1);
        if (look_anew(path, NULL, 130000) == NULL)
            fail_msg("%s is not found", path);
        if (*before != '\0')
            setenv(cases[i].variable, before, 1);
        else
            unsetenv(cases[i].variable);
    }
    scratch_close(&scratch);
}

static void library_when_missing_says_so(void **state)
{
    (void)state;
    assert_null(look_anew(NULL, NULL, 0));
    assert_string_equal(sl_blas_load_text(), "no libcublasLt.so.13 or libcublasLt.so.12 is found");
}

static void library_when_it_lacks_a_function_is_left(void **state)
{
    (void)state;
#define X(name)                                                                                    \
    assert_null(look_anew("libcublasLt.so.13", "cublasLt" #name, 130000));                         \
    assert_non_null(strstr(sl_blas_load_text(), "lacks cublasLt" #name));                          \
    assert_int_equal(machine.open, 0);
    SL_BLAS_FUNCTIONS(X)
#undef X
}

static void library_when_too_old_is_left(void **state)
{
    (void)state;
    assert_null(look_anew("libcublasLt.so.12", NULL, 110805));
    assert_string_equal(sl_blas_load_text(), "cuBLASLt 11.8.5 is older than 12");
    assert_int_equal(machine.open, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(library_when_the_loader_knows_it_is_used),
        cmocka_unit_test(functions_when_found_are_under_their_names),
        cmocka_unit_test(library_when_beside_a_toolkit_is_found),
        cmocka_unit_test(library_when_in_a_python_package_is_found),
        cmocka_unit_test(library_when_missing_says_so),
        cmocka_unit_test(library_when_it_lacks_a_function_is_left),
        cmocka_unit_test(library_when_too_old_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
