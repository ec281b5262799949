/* The wrappers of call_faults_list.h; see call_faults.h. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include "call_faults.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <unwind.h>

#include <jansson.h>
#ifdef SL_HAS_LIBURING
#include <liburing.h>
#endif

#include "call_faults_list.h"
#ifdef SL_TEST_STANDIN
#include "standin.h"
#endif

extern const char __executable_start, etext; /* the linker's */

/* ---- which calls ---- */

#ifndef SL_TEST_STANDIN
#undef CALL_FAULTS_CUDA_LIST
#define CALL_FAULTS_CUDA_LIST(CUDA_CALL)
#endif

#define NUMBER(name, ...) CALL_##name,
typedef enum call_number {
    CALL_NONE,
    CALL_FAULTS_LIST(NUMBER, NUMBER) CALL_FAULTS_CUDA_LIST(NUMBER) CALL_LAUNCH,
    CALL_COMPLETION, /* a result of io_uring */
    CALL_COUNT
} call_number;

#define ROW(name, class, ...) [CALL_##name] = {#name, CALL_CLASS_##class},
#define CUDA_ROW(name, ...) [CALL_##name] = {#name, CALL_CLASS_CUDA},
static const struct {
    const char *name;
    call_class class;
} calls[CALL_COUNT] = {CALL_FAULTS_LIST(ROW, ROW) CALL_FAULTS_CUDA_LIST(CUDA_ROW) /* */
                           [CALL_LAUNCH] = {"a launch", CALL_CLASS_CUDA},
                       [CALL_COMPLETION] = {"a completion of io_uring", CALL_CLASS_RING}};

enum { NUMBER_SHIFT = 48 };

const char *call_faults_name(uint64_t key)
{
    return calls[key >> NUMBER_SHIFT].name;
}

call_class call_faults_class(uint64_t key)
{
    return calls[key >> NUMBER_SHIFT].class;
}

uint64_t call_faults_offset(uint64_t key)
{
    uint64_t address = key & ((UINT64_C(1) << NUMBER_SHIFT) - 1);
    return address - 1 - (uint64_t)(uintptr_t)&__executable_start;
}

/* ---- counting ---- */

static call_faults *current;

static call_place *find_place(uint64_t key)
{
    uint64_t at = key * UINT64_C(0x9E3779B97F4A7C15) >> 40;
    for (uint32_t i = 0; i < CALL_PLACES_MAX; i++, at++) {
        call_place *place = &current->places[at % CALL_PLACES_MAX];
        uint64_t found = 0;
        if (atomic_load(&place->key) == key ||
            atomic_compare_exchange_strong(&place->key, &found, key) || found == key)
            return place;
    }
    return NULL;
}

/* Counts a call; true if it is to fail. */
static bool fails(call_number number, const void *address)
{
    if (!current)
        return false;
    uint64_t key = (uint64_t)number << NUMBER_SHIFT | (uint64_t)(uintptr_t)address;
    call_place *place = find_place(key);
    if (!place) {
        atomic_fetch_add(&current->lost, 1);
        return false;
    }
    uint32_t call = atomic_fetch_add(&place->calls, 1) + 1;
    bool is_first = key == current->failing_key && call == current->failing_call;
    if (is_first && current->after != CALL_AFTER_WORKS)
        atomic_store(&current->is_after, true);
    bool is_later = atomic_load(&current->is_after) &&
                    calls[number].class == call_faults_class(current->failing_key) &&
                    calls[number].class != CALL_CLASS_CUDA; /* the stand-in sees to these itself */
    if (is_first || is_later)
        atomic_fetch_add(&current->hits, 1);
    return is_first || is_later;
}

/* ---- jansson ---- */

static bool is_own(const void *address)
{
    return (const char *)address >= &__executable_start && (const char *)address < &etext;
}

typedef struct caller_search {
    bool has_left; /* frames of jansson were passed */
    const void *found;
} caller_search;

static _Unwind_Reason_Code look_at_frame(struct _Unwind_Context *context, void *user)
{
    caller_search *search = user;
    const void *address = (const void *)_Unwind_GetIP(context);
    if (!is_own(address)) {
        search->has_left = true;
        return _URC_NO_REASON;
    }
    if (!search->has_left)
        return _URC_NO_REASON;
    search->found = address;
    return _URC_NORMAL_STOP; /* the frames behind are most of the time that all would take */
}

/* Who called jansson: the first caller linked into this program behind those that are not. */
static const void *find_own_caller(void)
{
    caller_search search = {0};
    (void)_Unwind_Backtrace(look_at_frame, &search);
    return search.found;
}

void *__real_malloc(size_t bytes);

static void *allocate_for_jansson(size_t bytes)
{
    return current && fails(CALL_malloc, find_own_caller()) ? NULL : __real_malloc(bytes);
}

void call_faults_prepare(void)
{
    (void)find_own_caller(); /* what it loads, it loads now */
    json_set_alloc_funcs(allocate_for_jansson, free);
}

void call_faults_start(call_faults *faults)
{
    current = faults;
}

/* ---- the wrappers ---- */

#define HERE __builtin_return_address(0)

#define WRAPPER(name, class, error, type, failure, parameters, arguments)                          \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        if (fails(CALL_##name, HERE)) {                                                            \
            errno = error;                                                                         \
            return failure;                                                                        \
        }                                                                                          \
        return __real_##name arguments;                                                            \
    }
#define NO_WRAPPER(...)
CALL_FAULTS_LIST(WRAPPER, NO_WRAPPER)

#ifdef SL_TEST_STANDIN
enum { CUDA_OUT_OF_MEMORY = 2, CUDA_BAD_ADDRESS = 700, CUDA_NOT_PERMITTED = 800 };

static void fail_cuda_call(const char *name)
{
    if (current->after == CALL_AFTER_IS_BROKEN)
        standin_break_call(name, 1, CUDA_BAD_ADDRESS);
    else if (current->after == CALL_AFTER_FAILS)
        standin_refuse_calls(name, 1, CUDA_NOT_PERMITTED);
    else
        standin_fail_call(name, 1, CUDA_OUT_OF_MEMORY);
}

#define CUDA_WRAPPER(name, parameters, arguments)                                                  \
    int __real_##name parameters;                                                                  \
    int __wrap_##name parameters;                                                                  \
    int __wrap_##name parameters                                                                   \
    {                                                                                              \
        if (fails(CALL_##name, HERE))                                                              \
            fail_cuda_call(#name);                                                                 \
        return __real_##name arguments;                                                            \
    }
CALL_FAULTS_CUDA_LIST(CUDA_WRAPPER)

int __real_standin_queue_owned(void *stream, const char *name, void (*run)(void *), void *argument);
int __wrap_standin_queue_owned(void *stream, const char *name, void (*run)(void *), void *argument);
int __wrap_standin_queue_owned(void *stream, const char *name, void (*run)(void *), void *argument)
{
    if (fails(CALL_LAUNCH, HERE))
        fail_cuda_call(name);
    return __real_standin_queue_owned(stream, name, run, argument);
}
#endif

#define ASPRINTF(name, FLAG)                                                                       \
    int __wrap_##name(char **out FLAG, const char *format, ...);                                   \
    int __wrap_##name(char **out FLAG, const char *format, ...)                                    \
    {                                                                                              \
        va_list list;                                                                              \
        if (fails(CALL_##name, HERE)) {                                                            \
            errno = ENOMEM;                                                                        \
            return -1;                                                                             \
        }                                                                                          \
        va_start(list, format);                                                                    \
        int length = vasprintf(out, format, list);                                                 \
        va_end(list);                                                                              \
        return length;                                                                             \
    }
#define COMMA ,
ASPRINTF(asprintf, )
ASPRINTF(__asprintf_chk, COMMA __attribute__((unused)) int flag)

int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode)
{
    errno = EIO;
    return fails(CALL_open, HERE) ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int at, const char *path, int flags, mode_t mode);
int __wrap_openat(int at, const char *path, int flags, mode_t mode);
int __wrap_openat(int at, const char *path, int flags, mode_t mode)
{
    errno = EIO;
    return fails(CALL_openat, HERE) ? -1 : __real_openat(at, path, flags, mode);
}

int __real_fcntl(int fd, int command, long argument);
int __wrap_fcntl(int fd, int command, long argument);
int __wrap_fcntl(int fd, int command, long argument)
{
    errno = EIO;
    return fails(CALL_fcntl, HERE) ? -1 : __real_fcntl(fd, command, argument);
}

/* What closes does so even where it fails. */
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    bool does_fail = fails(CALL_close, HERE);
    int result = __real_close(fd);
    errno = does_fail ? EIO : errno;
    return does_fail ? -1 : result;
}

int __real_fclose(FILE *stream);
int __wrap_fclose(FILE *stream);
int __wrap_fclose(FILE *stream)
{
    bool does_fail = fails(CALL_fclose, HERE);
    int result = __real_fclose(stream);
    errno = does_fail ? EIO : errno;
    return does_fail ? EOF : result;
}

/* Standard output and error are what a run is judged by; a stream in memory has no file. */
static bool fails_on(call_number number, const void *address, FILE *stream)
{
    bool counts = stream && stream != stdout && stream != stderr && fileno(stream) >= 0;
    bool does_fail = counts && fails(number, address);
    if (does_fail)
        errno = ENOSPC;
    return does_fail;
}

int __real_fflush(FILE *stream);
int __wrap_fflush(FILE *stream);
int __wrap_fflush(FILE *stream)
{
    return fails_on(CALL_fflush, HERE, stream) ? EOF : __real_fflush(stream);
}

int __real_fputs(const char *text, FILE *stream);
int __wrap_fputs(const char *text, FILE *stream);
int __wrap_fputs(const char *text, FILE *stream)
{
    return fails_on(CALL_fputs, HERE, stream) ? EOF : __real_fputs(text, stream);
}

int __real_fputc(int character, FILE *stream);
int __wrap_fputc(int character, FILE *stream);
int __wrap_fputc(int character, FILE *stream)
{
    return fails_on(CALL_fputc, HERE, stream) ? EOF : __real_fputc(character, stream);
}

#define FPRINTF(name, FLAG)                                                                        \
    int __wrap_##name(FILE *stream FLAG, const char *format, ...);                                 \
    int __wrap_##name(FILE *stream FLAG, const char *format, ...)                                  \
    {                                                                                              \
        va_list list;                                                                              \
        if (fails_on(CALL_##name, HERE, stream))                                                   \
            return -1;                                                                             \
        va_start(list, format);                                                                    \
        int length = vfprintf(stream, format, list);                                               \
        va_end(list);                                                                              \
        return length;                                                                             \
    }
FPRINTF(fprintf, )
FPRINTF(__fprintf_chk, COMMA __attribute__((unused)) int flag)

/* Fails itself, or lets a request that has come back have failed. */
#ifdef SL_HAS_LIBURING
int __real_io_uring_wait_cqe_timeout(struct io_uring *ring, struct io_uring_cqe **out,
                                     struct __kernel_timespec *limit);
int __wrap_io_uring_wait_cqe_timeout(struct io_uring *ring, struct io_uring_cqe **out,
                                     struct __kernel_timespec *limit);
int __wrap_io_uring_wait_cqe_timeout(struct io_uring *ring, struct io_uring_cqe **out,
                                     struct __kernel_timespec *limit)
{
    const void *here = HERE;
    if (fails(CALL_io_uring_wait_cqe_timeout, here))
        return -ENOMEM;
    int result = __real_io_uring_wait_cqe_timeout(ring, out, limit);
    if (result == 0 && fails(CALL_COMPLETION, here))
        (*out)->res = -EIO;
    return result;
}
#endif
