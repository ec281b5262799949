/* The rules that hold for every reader; see fuzz.h. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <jansson.h>
#include <signal.h>
#include <time.h>

#include "base/log.h"

bool fuzz_is_running, fuzz_refuses_memory;

static scratch_path directory;
static int64_t live_bytes, limit_bytes;

_Noreturn void fuzz_fail(const char *what, const char *file, int line)
{
    fuzz_is_running = false;
    fprintf(stderr, "fuzz: %s:%d: broken: %s\n", file, line, what);
    abort();
}

/* ---- memory: the sanitizers' hooks; without a sanitizer there are none, and nothing is counted */

int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void *, size_t),
                                              void (*free_hook)(const volatile void *))
    __attribute__((weak));
size_t __sanitizer_get_allocated_size(const volatile void *memory) __attribute__((weak));

static void count_allocation(const volatile void *memory, size_t bytes)
{
    (void)memory;
    if (!fuzz_is_running)
        return;
    live_bytes += (int64_t)bytes;
    if (live_bytes > limit_bytes)
        fuzz_fail("memory in proportion to the input", __FILE__, __LINE__);
}

static void count_release(const volatile void *memory)
{
    if (fuzz_is_running && memory)
        live_bytes -= (int64_t)__sanitizer_get_allocated_size(memory);
}

void fuzz_allow(uint64_t bytes)
{
    limit_bytes += (int64_t)bytes * FUZZ_FACTOR;
}

/* ---- messages ---- */

/* No byte that a terminal obeys; letters of UTF-8 are fine. */
static bool is_printable(const char *text)
{
    for (unsigned char before = 0; *text; before = (unsigned char)*text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < ' ' || byte == 0x7f || (before == 0xc2 && byte >= 0x80 && byte < 0xa0))
            return false;
    }
    return true;
}

static void check_remark(void *user, sl_log_level level, const char *line)
{
    (void)level, (void)user;
    FUZZ_NEED(is_printable(line));
}

bool fuzz_accepts(sl_status status)
{
    if (status == SL_OK)
        return true;
    FUZZ_NEED(status != SL_ERROR_INTERNAL);
    FUZZ_NEED(sl_status_message()[0] != '\0');
    FUZZ_NEED(is_printable(sl_status_message()));
    return false;
}

bool fuzz_succeeds(sl_status status)
{
    if (status != SL_OK && !fuzz_refuses_memory)
        fuzz_fail(sl_status_message(), __FILE__, __LINE__);
    return fuzz_accepts(status);
}

/* ---- files ---- */

const char *fuzz_directory(void)
{
    return directory.text;
}

static void close_directory(void)
{
    scratch_close(&directory);
}

static void write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(fd, data, bytes);
        scratch_need(written > 0, "write");
        data += written;
        bytes -= (size_t)written;
    }
}

scratch_path fuzz_write(const char *name, const void *data, size_t bytes)
{
    scratch_path path = scratch_join(directory.text, name);
    int fd = open(path.text, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    scratch_need(fd >= 0, path.text);
    write_all(fd, data, bytes);
    close(fd);
    return path;
}

/* ---- one input ---- */

/* libFuzzer's own limit is of the clock on the wall, which beside other work is little work. It
 * ends in order when it gets SIGUSR1. */
static void limit_processor_time(void)
{
    const char *seconds = getenv("SL_FUZZ_PROCESSOR_SECONDS");
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec limit = {.it_value = {.tv_sec = seconds ? strtol(seconds, NULL, 10) : 0}};
    timer_t timer;
    if (!seconds)
        return;
    scratch_need(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) == 0, "timer_create");
    scratch_need(timer_settime(timer, 0, &limit, NULL) == 0, "timer_settime");
}

static void start(void)
{
    directory = scratch_open();
    atexit(close_directory);
    limit_processor_time();
    json_object_seed(1); /* the same way for the same input */
    sl_log_set_callback(check_remark, NULL);
    if (__sanitizer_install_malloc_and_free_hooks)
        __sanitizer_install_malloc_and_free_hooks(count_allocation, count_release);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (directory.text[0] == '\0')
        start();
    live_bytes = 0;
    limit_bytes = FUZZ_FIXED_BYTES + (int64_t)bytes * FUZZ_FACTOR;
    fuzz_is_running = true;
    fuzz_input(data, bytes);
    fuzz_is_running = false;
    return 0;
}
