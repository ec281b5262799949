/* What nvcc's objects call when the program starts, and the files of PTX. */
#include "standin_objects.h"

#include <cuda_runtime_api.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

struct standin_object {
    standin_object *next;
    standin_function *functions;
    uint32_t function_count;
    char file[PATH_BYTES]; /* of its PTX; "" until it is decoded */
    ptx_module *module;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static standin_object *objects;

static void *take_memory(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        abort();
    return memory;
}

/* ---- registration: of one thread, before main, and at the end ---- */

void **__cudaRegisterFatBinary(void *fatCubin);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *hostFun, char *deviceFun,
                            const char *deviceName, int thread_limit, uint3 *tid, uint3 *bid,
                            dim3 *bDim, dim3 *gDim, int *wSize);

void **__cudaRegisterFatBinary(void *fatCubin)
{
    (void)fatCubin;
    standin_object *object = take_memory(sizeof *object);
    object->next = objects;
    objects = object;
    return (void **)object;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

/* Everything stays until the process has ended: streams may still run. */
void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *hostFun, char *deviceFun,
                            const char *deviceName, int thread_limit, uint3 *tid, uint3 *bid,
                            dim3 *bDim, dim3 *gDim, int *wSize)
{
    (void)deviceFun, (void)thread_limit, (void)tid, (void)bid, (void)bDim, (void)gDim, (void)wSize;
    standin_object *object = (standin_object *)handle;
    standin_function *function = take_memory(sizeof *function);
    *function = (standin_function){
        .next = object->functions, .object = object, .stub = hostFun, .name = deviceName};
    object->functions = function;
    object->function_count++;
}

standin_function *standin_function_of(const void *stub)
{
    for (standin_object *object = objects; object != NULL; object = object->next)
        for (standin_function *each = object->functions; each != NULL; each = each->next)
            if (each->stub == stub)
                return each;
    return NULL;
}

/* ---- files ---- */

static const char *find_directory(void)
{
    const char *chosen = getenv("SL_PTX_DIRECTORY");
    return chosen != NULL && *chosen != '\0' ? chosen : SL_PTX_DIRECTORY;
}

/* The whole file, ended by a zero; NULL: it cannot be read. */
static char *read_text(const char *path, uint64_t *out_bytes)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0 && ftell(file) >= 0) {
        *out_bytes = (uint64_t)ftell(file);
        rewind(file);
        text = take_memory(*out_bytes + 1);
        if (fread(text, 1, *out_bytes, file) != *out_bytes) {
            free(text);
            text = NULL;
        }
    }
    if (file != NULL)
        (void)fclose(file);
    return text;
}

static bool registers(const standin_object *object, const char *name, size_t length)
{
    for (const standin_function *each = object->functions; each != NULL; each = each->next)
        if (strlen(each->name) == length && memcmp(each->name, name, length) == 0)
            return true;
    return false;
}

/* Whether the entries of a text are the functions of the object. */
static bool is_text_of(const standin_object *object, const char *text)
{
    uint32_t entry_count = 0;
    for (const char *at = strstr(text, ".entry "); at != NULL; at = strstr(at, ".entry ")) {
        at += strlen(".entry ");
        if (!registers(object, at, strcspn(at, " (\r\n")))
            return false;
        entry_count++;
    }
    return entry_count == object->function_count;
}

static void write_coverage_at_exit(void)
{
    static bool is_registered;
    if (!is_registered)
        (void)atexit(standin_coverage_write);
    is_registered = true;
}

/* Decodes the text where it is the object's. */
static bool try_text(standin_object *object, const char *path, ptx_fault *out_fault)
{
    uint64_t bytes = 0;
    char *text = read_text(path, &bytes);
    bool is_sound = true;
    if (text != NULL && is_text_of(object, text)) {
        if (object->module != NULL)
            is_sound = ptx_fail(out_fault, "%s has the same kernels as %s", path, object->file);
        else
            is_sound = ptx_module_open(text, bytes, &object->module, out_fault);
        snprintf(object->file, sizeof object->file, "%s", path);
        write_coverage_at_exit();
    }
    free(text);
    return is_sound;
}

static int is_ptx(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot != NULL && strcmp(dot, ".ptx") == 0;
}

/* Looks at every file: a second one with the same kernels would be somebody's leftover. */
static bool find_module(standin_object *object, ptx_fault *out_fault)
{
    const char *directory = find_directory();
    struct dirent **entries = NULL;
    const int count = scandir(directory, &entries, is_ptx, alphasort);
    bool is_sound = true;
    for (int i = 0; i < count; i++) {
        char path[PATH_BYTES];
        const int length = snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        if (is_sound && length > 0 && length < PATH_BYTES)
            is_sound = try_text(object, path, out_fault);
        free(entries[i]);
    }
    free((void *)entries);
    if (is_sound && object->module == NULL)
        is_sound = ptx_fail(out_fault, "no file of %s has the kernels that stand beside %s",
                            directory, object->functions->name);
    return is_sound;
}

bool standin_function_find(standin_function *function, ptx_fault *out_fault)
{
    standin_object *object = function->object;
    pthread_mutex_lock(&lock);
    const bool is_sound = object->module != NULL || find_module(object, out_fault);
    if (is_sound && function->kernel == NULL) {
        function->kernel = ptx_module_kernel(object->module, function->name);
        function->facts = ptx_kernel_tell(function->kernel);
    }
    pthread_mutex_unlock(&lock);
    return is_sound;
}

void standin_objects_visit(void (*visit)(void *user, const char *file,
                                         const standin_function *function),
                           void *user)
{
    for (const standin_object *object = objects; object != NULL; object = object->next)
        for (const standin_function *each = object->functions; each != NULL; each = each->next)
            if (each->kernel != NULL)
                visit(user, object->file, each);
}
