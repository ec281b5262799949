/* The disk store where the system allows less than usual. What could be wrong: a container that
 * forbids io_uring, or a limit on locked memory, makes the store fail instead of taking another
 * way, or takes it without saying so; more is locked than is said; a kernel that is busy is given
 * up too soon, or requests that have come back are left out beside those that it refuses; a process
 * that was stopped is taken for a disk that does not answer. Each case runs in a child of its own:
 * a system call filter and a limit cannot be taken back. Registered buffers are looked at here too:
 * transfers from inside, from outside and across the end of one. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "offload/backoff.h"
#include "offload/transport.h"
#include "scratch_case.h"
#include "skip.h"
#include "store_case.h"

enum { MIB = 1 << 20, BYTES = 12 * MIB, HANG_SECONDS = 120, SKIPPED = 77, NOBODY = 65534 };
enum { LIMIT_MS = 200, STOP_MS = 2 * LIMIT_MS, STOPS = 4 };
enum { ONCE = 5 * MIB, ONCE_LIMIT = 7 * MIB }; /* below the usual 8 MiB: it may not be raised */

/* Runs `body` in a child; skips the test where it says so. */
static void run_child(int (*body)(const char *directory), void **state, const char *why_skipped)
{
    int result;
    fflush(stdout);
    pid_t child = fork();
    scratch_need(child >= 0, "fork");
    if (child == 0) {
        int code = body(((scratch_path *)*state)->text);
        fflush(stdout);
        _exit(code);
    }
    scratch_need(waitpid(child, &result, 0) == child, "waitpid");
    if (WIFEXITED(result) && WEXITSTATUS(result) == SKIPPED) {
        skip_because("%s", why_skipped);
    }
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

/* io_uring_setup gives `error`; 0 if that could be arranged. */
static int forbid_io_uring(int error)
{
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof lines / sizeof lines[0], .filter = lines};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
               ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
               : -1;
}

/* Bytes that this process has locked by registering them. */
static double read_locked_mib(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    scratch_need(file != NULL, "/proc/self/status");
    while (fgets(line, sizeof line, file) && sscanf(line, "VmPin: %llu", &kib) != 1)
        ;
    fclose(file);
    return (double)kib / 1024;
}

/* The kernel lets go of what a closed ring had locked some time after the ring is closed. */
static double wait_until_unlocked(void)
{
    double locked = read_locked_mib();
    for (int round = 0; round < 1000 && locked > 0; round++) {
        usleep(10000);
        locked = read_locked_mib();
    }
    return locked;
}

/* What a description says of that. */
static double find_locked_mib(const char *description)
{
    const char *end = strstr(description, " MiB locked"), *start = end;
    while (start != NULL && start > description && start[-1] != ' ')
        start--;
    return start != NULL ? strtod(start, NULL) : 0;
}

/* Writes and reads items of a store with the whole case registered; 0 if all is right, its
 * description starts with `words` and says what is locked. */
static int work(const char *directory, const char *words, uint64_t registered_bytes)
{
    store_case test;
    store_case_init(&test, BYTES, 3 * MIB, 8);
    const char *const names[] = {directory};
    sl_store *store = NULL;
    double before = wait_until_unlocked();
    sl_status status = sl_store_open(&(sl_store_options){.directories = names,
                                                         .directory_count = 1,
                                                         .bytes = BYTES,
                                                         .buffer = test.memory,
                                                         .buffer_bytes = registered_bytes},
                                     &store);
    if (status != SL_OK) {
        printf("%s\n", sl_status_message());
        return 1;
    }
    if (strncmp(sl_store_description(store), words, strlen(words)) != 0) {
        printf("\"%s\", not \"%s\"\n", sl_store_description(store), words);
        return 2;
    }
    double locked = read_locked_mib() - before;
    double said = find_locked_mib(sl_store_description(store));
    if (locked > said * 1.01 + 0.01 || locked < said * 0.99 - 0.01) {
        printf("%.3f MiB locked; \"%s\"\n", locked, sl_store_description(store));
        return 5;
    }
    int wrong = 0;
    for (uint32_t step = 0; step < 3 * test.item_count; step++) {
        uint32_t index = step % test.item_count;
        wrong |= store_case_write(&test, store, index) != SL_OK;
        wrong |= store_case_read(&test, store, index) != SL_OK;
        wrong |= !store_case_holds(&test, index);
    }
    sl_store_close(store);
    store_case_close(&test);
    return wrong ? 3 : 0;
}

static int work_without_io_uring(const char *directory)
{
    static const struct {
        int error;
        const char *words;
    } cases[] = {{EPERM, "threads (io_uring: Operation not permitted), 32 x 1 MiB"},
                 {ENOSYS, "threads (io_uring: Function not implemented), 32 x 1 MiB"},
                 {ENOMEM, "threads (io_uring: Cannot allocate memory), 32 x 1 MiB"}};
    for (int i = 0; i < 3; i++) {
        /* Of several filters the one that was installed last decides between errors. */
        if (forbid_io_uring(cases[i].error) != 0)
            return SKIPPED;
        int result = work(directory, cases[i].words, BYTES);
        if (result != 0)
            return result;
        if (strncmp(sl_store_probe(), cases[i].words, strlen(sl_store_probe())) != 0)
            return 4;
    }
    return 0;
}

static void store_when_io_uring_is_forbidden_uses_threads_and_says_why(void **state)
{
    if (strstr(sl_store_probe(), "built without"))
        skip_because("%s", sl_store_probe());
    run_child(work_without_io_uring, state, "no system call filters here");
}

/* Locked memory is not counted for root, so the child stops being it. */
static int work_with_little_locked_memory(const char *directory)
{
    setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){8 * MIB, 8 * MIB});
    if (geteuid() == 0 &&
        (chown(directory, NOBODY, NOBODY) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        return SKIPPED;
    return work(directory, "io_uring, 32 x 1 MiB, unregistered buffers (Cannot allocate memory",
                BYTES);
}

static void store_when_little_memory_may_be_locked_goes_unregistered(void **state)
{
    if (strcmp(sl_store_probe(), "io_uring") != 0) {
        skip_because("%s", sl_store_probe());
    }
    run_child(work_with_little_locked_memory, state, "cannot become another user");
}

/* There is room for one registration: two rings share it, or the second says that it has none. */
static int work_with_locked_memory_for_one(const char *directory)
{
    setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){ONCE_LIMIT, ONCE_LIMIT});
    if (geteuid() == 0 &&
        (chown(directory, NOBODY, NOBODY) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        return SKIPPED;
    int result = work(directory, "io_uring, 32 x 1 MiB, registered buffers, 5 MiB locked", ONCE);
    return result != 2 ? result
                       : work(directory,
                              "io_uring, 32 x 1 MiB, reading: registered buffers, writing: "
                              "unregistered buffers (Cannot allocate memory",
                              ONCE);
}

static void store_when_memory_may_be_locked_once_says_what_is(void **state)
{
    if (strcmp(sl_store_probe(), "io_uring") != 0) {
        skip_because("%s", sl_store_probe());
    }
    run_child(work_with_locked_memory_for_one, state, "cannot become another user");
}

/* All, none and most of the memory registered; the last ends inside an item. */
static void buffer_when_registered_in_part_serves_all_transfers(void **state)
{
    static const uint64_t registered[] = {BYTES, 0, BYTES / 2 + SL_STORE_ALIGNMENT};
    static const char *const words[] = {"io_uring, 32 x 1 MiB, registered buffers",
                                        "io_uring, 32 x 1 MiB, unregistered buffers",
                                        "io_uring, 32 x 1 MiB, registered buffers"};
    if (strcmp(sl_store_probe(), "io_uring") != 0) {
        skip_because("%s", sl_store_probe());
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(work(((scratch_path *)*state)->text, words[i], registered[i]), 0);
}

/* The kernel takes buffers of 1 GiB at most, so a larger one is registered in parts; a transfer
 * across their border is of neither. */
static void buffer_when_larger_than_a_part_serves_transfers_across_the_border(void **state)
{
    const uint64_t part_bytes = UINT64_C(1) << 30, bytes = part_bytes + 4 * MIB;
    if (scratch_count(0, 1) == 0 || strcmp(sl_store_probe(), "io_uring") != 0) {
        skip_because("takes 1 GiB; SL_TEST_FULL=1, and io_uring, are needed");
    }
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    scratch_need(memory != MAP_FAILED, "memory");
    const char *const names[] = {((scratch_path *)*state)->text};
    sl_store *store = NULL;
    assert_int_equal(sl_store_open(&(sl_store_options){.directories = names,
                                                       .directory_count = 1,
                                                       .bytes = BYTES,
                                                       .buffer = memory,
                                                       .buffer_bytes = bytes},
                                   &store),
                     SL_OK);
    assert_non_null(strstr(sl_store_description(store), ", registered buffers"));
    char *across = memory + part_bytes - 3 * MIB / 2;
    for (int64_t i = 0; i < 3 * MIB; i++)
        across[i] = (char)store_word(1, 1, (uint64_t)i);
    assert_int_equal(sl_store_write(store, MIB, across, 3 * MIB), SL_OK);
    memset(across, 0, 3 * MIB);
    assert_int_equal(sl_store_read(store, MIB, across, 3 * MIB), SL_OK);
    for (int64_t i = 0; i < 3 * MIB; i++)
        if (across[i] != (char)store_word(1, 1, (uint64_t)i))
            fail_msg("byte %lld is wrong", (long long)i);
    sl_store_close(store);
    munmap(memory, bytes);
}

/* ---- a kernel that is busy ---- */

static _Atomic int busy_waits, busy_submissions; /* so many calls are sent away */
static _Atomic unsigned awaited; /* what a wait for the ring waits for; 0: for any request */

/* True for each of the first *count calls. */
static bool is_sent_away(_Atomic int *count)
{
    bool is_busy = atomic_load(count) > 0;
    if (is_busy)
        atomic_fetch_sub(count, 1);
    return is_busy;
}

/* Stand before the library's functions of these names. */
struct io_uring;
struct io_uring_cqe;
struct __kernel_timespec;
static int await_several(struct io_uring *ring, struct io_uring_cqe **out)
{
    typedef int wait_function(struct io_uring *, struct io_uring_cqe **, unsigned,
                              struct __kernel_timespec *, sigset_t *);
    wait_function *real;
    void *symbol = dlsym(RTLD_NEXT, "io_uring_wait_cqes");
    memcpy(&real, &symbol, sizeof real);
    return real(ring, out, atomic_load(&awaited), NULL, NULL);
}

int io_uring_wait_cqe_timeout(struct io_uring *ring, struct io_uring_cqe **out,
                              struct __kernel_timespec *limit);
int io_uring_wait_cqe_timeout(struct io_uring *ring, struct io_uring_cqe **out,
                              struct __kernel_timespec *limit)
{
    typedef int wait_function(struct io_uring *, struct io_uring_cqe **,
                              struct __kernel_timespec *);
    wait_function *real;
    void *symbol = dlsym(RTLD_NEXT, "io_uring_wait_cqe_timeout");
    memcpy(&real, &symbol, sizeof real);
    if (atomic_load(&awaited) > 0)
        return await_several(ring, out);
    return is_sent_away(&busy_waits) ? -EAGAIN : real(ring, out, limit);
}

int io_uring_submit(struct io_uring *ring);
int io_uring_submit(struct io_uring *ring)
{
    typedef int submit_function(struct io_uring *);
    submit_function *real;
    void *symbol = dlsym(RTLD_NEXT, "io_uring_submit");
    memcpy(&real, &symbol, sizeof real);
    return is_sent_away(&busy_submissions) ? -EAGAIN : real(ring);
}

static bool can_be_busy(void)
{
    return strcmp(sl_store_probe(), "io_uring") == 0 && dlsym(RTLD_NEXT, "io_uring_submit");
}

static sl_store *open_with_limit(const char *directory, uint32_t limit_ms)
{
    const char *const names[] = {directory};
    sl_store *store = NULL;
    sl_store_options options = {
        .directories = names, .directory_count = 1, .bytes = BYTES, .limit_ms = limit_ms};
    scratch_need(sl_store_open(&options, &store) == SL_OK, sl_status_message());
    return store;
}

/* Nine pauses more than backoff.h has, each of the longest: half a second and more. */
static void kernel_when_busy_for_longer_than_the_pauses_is_waited_for(void **state)
{
    if (!can_be_busy()) {
        skip_because("io_uring is no library of this program: %s", sl_store_probe());
    }
    store_case test;
    store_case_init(&test, BYTES, MIB, 8);
    sl_store *store = open_with_limit(((scratch_path *)*state)->text, 0);
    _Atomic int *const counts[] = {&busy_submissions, &busy_waits};
    for (int i = 0; i < 2; i++) {
        atomic_store(counts[i], SL_BACKOFF_MAX + 9);
        assert_int_equal(store_case_write(&test, store, 0), SL_OK);
        for (uint32_t index = 1; index < test.item_count; index++)
            assert_int_equal(store_case_write(&test, store, index), SL_OK);
        for (uint32_t index = 0; index < test.item_count; index++)
            assert_true(store_case_read(&test, store, index) == SL_OK &&
                        store_case_holds(&test, index));
        atomic_store(counts[i], 0);
    }
    assert_int_equal(sl_store_close(store), 0);
    store_case_close(&test);
}

static void kernel_when_busy_for_ever_fails_the_lane_at_its_limit(void **state)
{
    if (!can_be_busy()) {
        skip_because("io_uring is no library of this program: %s", sl_store_probe());
    }
    store_case test;
    store_case_init(&test, BYTES, MIB, 8);
    sl_store *store = open_with_limit(((scratch_path *)*state)->text, LIMIT_MS);
    atomic_store(&busy_submissions, INT_MAX);
    assert_int_equal(store_case_write(&test, store, 0), SL_ERROR_IO);
    assert_non_null(strstr(sl_status_message(), "has not finished it for "));
    atomic_store(&busy_submissions, 0);
    assert_int_equal(store_case_write(&test, store, 0), SL_ERROR_IO);
    assert_int_equal(sl_store_close(store), 0);
    store_case_close(&test);
}

/* Some requests have come back while the kernel is too busy for others: one wait hands over all
 * that have, for fewer than were asked for mean that no more are there. */
static void wait_when_some_are_not_submitted_hands_over_all_that_came_back(void **state)
{
    enum { FIRST = 5, REST = 3, COUNT = FIRST + REST, PART = 512 };
    if (!can_be_busy()) {
        skip_because("io_uring is no library of this program: %s", sl_store_probe());
    }
    static char data[COUNT * PART];
    scratch_path path = scratch_join(((scratch_path *)*state)->text, "parts");
    scratch_write(path.text, data, sizeof data);
    const int file = open(path.text, O_RDONLY | O_CLOEXEC);
    const sl_transport_options options = {.files = &file,
                                          .file_count = 1,
                                          .file_bytes = sizeof data,
                                          .depth = COUNT,
                                          .wait_ms = 1000};
    const sl_transport_ops *ops = &sl_transport_uring;
    sl_transport_request requests[COUNT], *submitted[COUNT], *returned[COUNT];
    sl_transport *ring = NULL;
    uint32_t count = 0;
    assert_int_equal(ops->open(&options, &ring), SL_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        requests[i] =
            (sl_transport_request){.offset = i * PART, .data = data + i * PART, .bytes = PART};
        submitted[i] = &requests[i];
    }
    assert_int_equal(ops->submit(ring, submitted, FIRST), SL_OK);
    atomic_store(&busy_submissions, INT_MAX);
    assert_int_equal(ops->submit(ring, submitted + FIRST, REST), SL_OK);
    atomic_store(&awaited, FIRST);
    assert_int_equal(ops->wait(ring, returned, COUNT, &count), SL_OK);
    assert_int_equal(count, FIRST);
    atomic_store(&busy_submissions, 0);
    atomic_store(&awaited, REST);
    assert_int_equal(ops->wait(ring, returned + FIRST, COUNT - FIRST, &count), SL_OK);
    atomic_store(&awaited, 0);
    assert_int_equal(count, REST);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(returned[i]->result, PART);
    ops->close(ring);
    close(file);
}

/* ---- a process that is stopped ---- */

static const sl_transport_ops *slept_through; /* in front of which the process stops */
static uint32_t wait_count;

/* With as much on its way as there can be, and again with the last of it. */
static sl_status stop_and_wait(sl_transport *transport, sl_transport_request **out_requests,
                               uint32_t most, uint32_t *out_count)
{
    if (wait_count++ % 2 == 0 && wait_count < 2 * STOPS)
        raise(SIGSTOP);
    return slept_through->wait(transport, out_requests, most, out_count);
}

/* One range with many parts is written and read; 0 if it is the same. */
static int work_while_stopped(const char *directory)
{
    sl_transport_ops ops = *slept_through;
    ops.wait = stop_and_wait;
    char *data = aligned_alloc(SL_STORE_ALIGNMENT, BYTES);
    const char *const names[] = {directory};
    sl_store_options options = {.directories = names,
                                .directory_count = 1,
                                .bytes = BYTES,
                                .limit_ms = LIMIT_MS,
                                .transport = &ops};
    sl_store *store = NULL;
    sl_status status = sl_store_open(&options, &store);
    if (status != SL_OK)
        return status == SL_ERROR_SYSTEM ? SKIPPED : 1;
    for (int64_t i = 0; i < BYTES; i++)
        data[i] = (char)store_word(1, 1, (uint64_t)i);
    wait_count = 0;
    status = sl_store_write(store, 0, data, BYTES);
    memset(data, 0, BYTES);
    wait_count = 0;
    if (status == SL_OK)
        status = sl_store_read(store, 0, data, BYTES);
    if (status != SL_OK)
        printf("%s\n", sl_status_message());
    int wrong = status != SL_OK || sl_store_close(store) != 0;
    for (int64_t i = 0; i < BYTES && !wrong; i++)
        wrong = data[i] != (char)store_word(1, 1, (uint64_t)i);
    free(data);
    fflush(stdout);
    return wrong;
}

/* Lets a stopped child go on when much more than the limit has passed; returns how often. */
static int rouse_child(pid_t child, int *out_result)
{
    int stops = 0;
    while (waitpid(child, out_result, WUNTRACED) == child && WIFSTOPPED(*out_result)) {
        stops++;
        nanosleep(&(struct timespec){.tv_nsec = STOP_MS * 1000000L}, NULL);
        kill(child, SIGCONT);
    }
    return stops;
}

static void requests_when_the_process_was_stopped_are_not_overdue(void **state)
{
    static const sl_transport_ops *const ways[] = {&sl_transport_uring, &sl_transport_threads};
    for (int way = 0; way < 2; way++) {
        slept_through = ways[way];
        fflush(stdout);
        pid_t child = fork();
        scratch_need(child >= 0, "fork");
        if (child == 0)
            _exit(work_while_stopped(((scratch_path *)*state)->text));
        int result, stops = rouse_child(child, &result);
        assert_true(WIFEXITED(result));
        if (WEXITSTATUS(result) == SKIPPED) {
            printf("%s: skipped\n", ways[way]->name);
            continue;
        }
        assert_int_equal(WEXITSTATUS(result), 0);
        assert_true(stops >= 2);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)
    const struct CMUnitTest tests[] = {
        TEST(store_when_io_uring_is_forbidden_uses_threads_and_says_why),
        TEST(store_when_little_memory_may_be_locked_goes_unregistered),
        TEST(store_when_memory_may_be_locked_once_says_what_is),
        TEST(kernel_when_busy_for_longer_than_the_pauses_is_waited_for),
        TEST(kernel_when_busy_for_ever_fails_the_lane_at_its_limit),
        TEST(wait_when_some_are_not_submitted_hands_over_all_that_came_back),
        TEST(requests_when_the_process_was_stopped_are_not_overdue),
        TEST(buffer_when_registered_in_part_serves_all_transfers),
        TEST(buffer_when_larger_than_a_part_serves_transfers_across_the_border),
    };
    alarm(HANG_SECONDS);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
