/* The kernels of nvcc's host objects that are linked into this program, and the PTX of each.
 *
 * An object registers its kernels when the program starts: the address of a stub, which a launch
 * names, and the name that the PTX knows. nvcc compiles the same sources a second time, to text
 * (CMakeLists.txt), one file an object; an object's file is the one that has exactly its kernels,
 * for names alone may occur in several. Texts are looked for in the folder that SL_PTX_DIRECTORY
 * names where that is set, else where this build has written them, and decoded when a kernel of
 * theirs is first asked for.
 */
#ifndef SL_PTX_STANDIN_OBJECTS_H
#define SL_PTX_STANDIN_OBJECTS_H

#include "ptx.h"

typedef struct standin_object standin_object;

enum { STANDIN_SHAPES_MOST = 64 };

typedef struct standin_function {
    struct standin_function *next;
    standin_object *object;
    const void *stub;
    const char *name;
    bool is_loaded;         /* somebody asked for its code before a launch */
    uint32_t dynamic_most;  /* bytes of dynamic shared memory that were asked for */
    ptx_kernel *kernel;     /* NULL until it is first asked for */
    ptx_kernel_facts facts; /* of the kernel */
    /* Launches that differ in their grid or in an argument that is no address: their hashes. */
    uint64_t shapes[STANDIN_SHAPES_MOST];
    uint32_t shape_count;
    uint64_t launch_count;
} standin_function;

/* The function of a stub; NULL: no object registered it. */
standin_function *standin_function_of(const void *stub);

/* Finds the kernel, which may decode a file. False: there is none, or it cannot be run. */
bool standin_function_find(standin_function *function, ptx_fault *out_fault);

/* Calls visit(user, file name, function) for each function whose kernel was asked for. */
void standin_objects_visit(void (*visit)(void *user, const char *file,
                                         const standin_function *function),
                           void *user);

/* Writes what the launches ran, where SL_PTX_COVERAGE says (standin_coverage.c). */
void standin_coverage_write(void);

#endif
