/* What could be wrong where cuDNN is looked for: a place that is not tried, an old library or one
 * that lacks a function and is used all the same, a function under another's name, a text that does
 * not say what is the matter. The loader's calls are replaced; the code under test is included, so
 * that each case looks anew. */
#include "loader_case.h"

#define sl_cudnn_load looked_for
#define sl_cudnn_load_text looked_for_text
#include "kernels/cuda/cudnn_load.c"

static const char *const names_of_all[] = {
    "cudnnGetVersion",
#define X(name) "cudnn" #name,
    SL_CUDNN_FUNCTIONS(X)
#undef X
        NULL,
};

static const sl_cudnn_functions *look_anew(const char *path, const char *lacks, size_t version)
{
    static const pthread_once_t fresh = PTHREAD_ONCE_INIT;
    memcpy(&once, &fresh, sizeof once);
    memset(&functions, 0, sizeof functions);
    is_loaded = false;
    function_names = names_of_all;
    set_machine(path, lacks, version);
    return looked_for();
}

static void library_when_found_is_used_under_its_names(void **state)
{
    (void)state;
    const sl_cudnn_functions *found = look_anew("libcudnn.so.9", NULL, 91900);
    assert_non_null(found);
    assert_string_equal(looked_for_text(), "cuDNN 9.19.0");
    void *symbol;
#define X(name)                                                                                    \
    memcpy(&symbol, &found->name, sizeof symbol);                                                  \
    assert_ptr_equal(symbol, fake_find(&machine, "cudnn" #name));
    SL_CUDNN_FUNCTIONS(X)
#undef X
}

static void library_when_beside_a_toolkit_is_found(void **state)
{
    (void)state;
    setenv("CUDA_HOME", "/some/toolkit", 1);
    assert_non_null(look_anew("/some/toolkit/lib64/libcudnn.so.9", NULL, 91900));
    assert_non_null(look_anew("/some/toolkit/targets/x86_64-linux/lib/libcudnn.so.9", NULL, 91900));
    unsetenv("CUDA_HOME");
    assert_null(look_anew("/some/toolkit/lib64/libcudnn.so.9", NULL, 91900));
    setenv("CUDA_PATH", "/another", 1);
    assert_non_null(look_anew("/another/lib/libcudnn.so.9", NULL, 91900));
    unsetenv("CUDA_PATH");
    assert_non_null(look_anew("/usr/local/cuda/lib64/libcudnn.so.9", NULL, 91900));
}

static void library_when_missing_or_not_whole_or_old_is_left(void **state)
{
    (void)state;
    assert_null(look_anew(NULL, NULL, 0));
    assert_string_equal(looked_for_text(),
                        "no libcudnn.so.9 to be found: attention by own kernels");
#define X(name)                                                                                    \
    assert_null(look_anew("libcudnn.so.9", "cudnn" #name, 91900));                                 \
    assert_non_null(strstr(looked_for_text(), "lacks cudnn" #name ":"));                           \
    assert_int_equal(machine.open, 0);
    SL_CUDNN_FUNCTIONS(X)
#undef X
    assert_null(look_anew("libcudnn.so.9", NULL, 90902));
    assert_string_equal(looked_for_text(),
                        "cuDNN 9.9.2 is older than 9.10: attention by own kernels");
    assert_int_equal(machine.open, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(library_when_found_is_used_under_its_names),
        cmocka_unit_test(library_when_beside_a_toolkit_is_found),
        cmocka_unit_test(library_when_missing_or_not_whole_or_old_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
