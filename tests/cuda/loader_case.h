/* A loader of libraries that knows one, for tests of who opens it: the code under test is included
 * after this, with its calls replaced, so that each case looks anew. */
#ifndef SL_TESTS_CUDA_LOADER_CASE_H
#define SL_TESTS_CUDA_LOADER_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dlfcn.h>

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

#endif
