/* What could be wrong where cuBLASLt is looked for: a place that is not tried, an old library or
 * one that lacks a function and is used all the same, a function under another's name, a text that
 * does not say what is the matter. The loader's calls are replaced; the code under test is
 * included, so that each case looks anew. */
#include "loader_case.h"

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

static void library_when_missing_says_so(void **state)
{
    (void)state;
    assert_null(look_anew(NULL, NULL, 0));
    assert_string_equal(sl_blas_load_text(), "no libcublasLt.so.13 or libcublasLt.so.12 to be "
                                             "found: products run slower, by own kernels");
}

static void library_when_it_lacks_a_function_is_left(void **state)
{
    (void)state;
#define X(name)                                                                                    \
    assert_null(look_anew("libcublasLt.so.13", "cublasLt" #name, 130000));                         \
    assert_non_null(strstr(sl_blas_load_text(), "lacks cublasLt" #name ":"));                      \
    assert_int_equal(machine.open, 0);
    SL_BLAS_FUNCTIONS(X)
#undef X
}

static void library_when_too_old_is_left(void **state)
{
    (void)state;
    assert_null(look_anew("libcublasLt.so.12", NULL, 110805));
    assert_string_equal(sl_blas_load_text(), "cuBLASLt 11.8.5 is older than 12: products run "
                                             "slower, by own kernels");
    assert_int_equal(machine.open, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(library_when_the_loader_knows_it_is_used),
        cmocka_unit_test(functions_when_found_are_under_their_names),
        cmocka_unit_test(library_when_beside_a_toolkit_is_found),
        cmocka_unit_test(library_when_missing_says_so),
        cmocka_unit_test(library_when_it_lacks_a_function_is_left),
        cmocka_unit_test(library_when_too_old_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
