/* The files of the disk store. What could be wrong: a file others can read, a name that stays
 * behind after the end, an error or a kill; space that is only found missing in the middle of a
 * run; a page cache beside the planned memory; a directory that someone else controls; a file
 * system without O_TMPFILE, O_DIRECT or fallocate that makes the store give up or mix direct with
 * buffered transfers; a descriptor that leaks when a call fails. Found by making the calls fail, by
 * disks of many sizes, and by looking at the open file itself through /proc. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "offload/transport.h"
#include "skip.h"
#include "store_calls.h"
#include "store_case.h"

enum { MIB = 1 << 20, BYTES = 5 * MIB, HANG_SECONDS = 120 };

static int open_scratch(void **state)
{
    static scratch_path directory;
    directory = scratch_open();
    *state = &directory;
    store_calls = (store_calls_plan){0};
    return 0;
}

static int close_scratch(void **state)
{
    store_calls = (store_calls_plan){0};
    scratch_close(*state);
    return 0;
}

static sl_status open_at(const char *directory, uint64_t bytes, sl_store **out_store)
{
    const char *const names[] = {directory};
    return sl_store_open(&(sl_store_options){.directories = names,
                                             .directory_count = 1,
                                             .bytes = bytes,
                                             .transport = &sl_transport_threads},
                         out_store);
}

static sl_store *need_open(const char *directory, uint64_t bytes)
{
    sl_store *store = NULL;
    if (open_at(directory, bytes, &store) != SL_OK)
        fail_msg("%s", sl_status_message());
    return store;
}

static void check_message(const char *word)
{
    if (!strstr(sl_status_message(), word))
        fail_msg("\"%s\" is not in \"%s\"", word, sl_status_message());
}

/* Calls `look` for each entry but . and .., until it returns other than 0; that is returned. */
static int for_each_entry(const char *directory, int (*look)(int fd, const char *name, void *user),
                          void *user)
{
    DIR *stream = opendir(directory);
    scratch_need(stream != NULL, directory);
    int result = 0;
    for (struct dirent *entry; result == 0 && (entry = readdir(stream)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            result = look(dirfd(stream), entry->d_name, user);
    closedir(stream);
    return result;
}

static int count_one(int fd, const char *name, void *user)
{
    (void)fd, (void)name;
    ++*(uint32_t *)user;
    return 0;
}

static uint32_t count_entries(const char *directory)
{
    uint32_t count = 0;
    for_each_entry(directory, count_one, &count);
    return count;
}

/* The descriptor of an open file in `directory`, as the one test here has it. */
static int match_directory(int fd, const char *name, void *user)
{
    char target[SCRATCH_PATH_BYTES];
    ssize_t length = readlinkat(fd, name, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    int found = (int)strtol(name, NULL, 10);
    int is_there = strncmp(target, user, strlen(user)) == 0;
    return is_there && strcmp(target, user) != 0 ? found : 0;
}

static int find_file(const char *directory)
{
    return for_each_entry("/proc/self/fd", match_directory, (void *)(uintptr_t)directory);
}

/* Asserts nothing: children call it too. */
static bool contents_are_right(sl_store *store)
{
    store_case test;
    bool are_right = true;
    store_case_init(&test, BYTES, 2 * MIB, 4);
    for (uint32_t step = 0; are_right && step < 2 * test.item_count; step++) {
        uint32_t index = step % test.item_count;
        are_right = store_case_write(&test, store, index) == SL_OK &&
                    store_case_read(&test, store, index) == SL_OK && store_case_holds(&test, index);
    }
    store_case_close(&test);
    return are_right;
}

/* ---- the file ---- */

/* Nobody can reach it, whatever the umask is and however the file system makes it. */
static void file_when_open_is_private_nameless_and_reserved(void **state)
{
    const char *directory = ((scratch_path *)*state)->text;
    static const mode_t masks[] = {0, 022, 0777};
    static const int nameless[] = {0, EOPNOTSUPP, EISDIR};
    for (int i = 0; i < 9; i++) {
        store_calls = (store_calls_plan){.no_nameless = nameless[i / 3]};
        mode_t before = umask(masks[i % 3]);
        sl_store *store = need_open(directory, BYTES);
        umask(before);
        struct stat info;
        int fd = find_file(directory);
        assert_true(fd > 0 && fstat(fd, &info) == 0);
        assert_int_equal(info.st_mode, S_IFREG | 0600);
        assert_int_equal(info.st_nlink, 0);
        assert_int_equal(info.st_size, BYTES);
        assert_true(info.st_blocks * 512 >= BYTES);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        assert_int_equal(count_entries(directory), 0);
        assert_true(contents_are_right(store));
        sl_store_close(store);
        assert_int_equal(find_file(directory), 0);
        assert_int_equal(count_entries(directory), 0);
    }
}

/* Pieces 0 and 3, 1 and 4 without its last block, and 2. */
static void files_when_striped_have_what_their_pieces_need(void **state)
{
    static const off_t sizes[] = {2 * MIB, 2 * MIB - SL_STORE_ALIGNMENT, MIB};
    scratch_path paths[3];
    const char *names[3];
    for (int i = 0; i < 3; i++) {
        paths[i] = scratch_join(((scratch_path *)*state)->text, (const char *[]){"a", "b", "c"}[i]);
        names[i] = paths[i].text;
        scratch_need(mkdir(names[i], 0700) == 0, names[i]);
    }
    sl_store *store = NULL;
    assert_int_equal(sl_store_open(&(sl_store_options){.directories = names,
                                                       .directory_count = 3,
                                                       .bytes = BYTES - SL_STORE_ALIGNMENT},
                                   &store),
                     SL_OK);
    for (int i = 0; i < 3; i++) {
        struct stat info;
        assert_int_equal(fstat(find_file(names[i]), &info), 0);
        assert_int_equal(info.st_size, sizes[i]);
    }
    sl_store_close(store);
}

static void file_when_system_lacks_something_works_and_says_so(void **state)
{
    const char *directory = ((scratch_path *)*state)->text;
    static const struct {
        store_calls_plan plan;
        const char *words;
    } systems[] = {
        {{.no_direct_open = EINVAL}, "no direct I/O"},
        {{.no_direct_moves = EINVAL}, "no direct I/O"},
        {{.direct_unit = UINT32_MAX}, "no direct I/O"},
        {{.direct_unit = 65536}, "no direct I/O"},
        {{.no_direct_open = EINVAL, .no_nameless = EOPNOTSUPP}, "no direct I/O"},
        {{.reservation = EOPNOTSUPP}, "space not reserved"},
        {{.no_direct_open = EINVAL, .reservation = EOPNOTSUPP},
         "no direct I/O, space not reserved"},
    };
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
        store_calls = systems[i].plan;
        sl_store *store = need_open(directory, BYTES);
        const char *said = sl_store_description(store);
        if (!strstr(said, systems[i].words) || !strstr(said, directory))
            fail_msg("system %zu: \"%s\"", i, said);
        bool is_past_cache = is_direct(find_file(directory));
        assert_true(is_past_cache == !strstr(said, "no direct I/O"));
        assert_true(contents_are_right(store));
        sl_store_close(store);
        assert_int_equal(count_entries(directory), 0);
    }
    store_calls = (store_calls_plan){.reservation_once = EINTR, .direct_unit = 512};
    sl_store *store = need_open(directory, BYTES);
    const char *usual = "threads, 32 x 1 MiB, 8 a lane";
    assert_memory_equal(sl_store_description(store), usual, strlen(usual));
    assert_true(contents_are_right(store));
    sl_store_close(store);
}

/* Pages of the file that the kernel keeps in memory. */
static uint64_t count_cached_pages(int fd)
{
    static unsigned char pages[BYTES / SL_STORE_ALIGNMENT];
    uint64_t count = 0;
    void *memory = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    scratch_need(memory != MAP_FAILED && sysconf(_SC_PAGESIZE) == SL_STORE_ALIGNMENT, "mmap");
    scratch_need(mincore(memory, BYTES, pages) == 0, "mincore");
    for (size_t i = 0; i < sizeof pages; i++)
        count += pages[i] & 1;
    munmap(memory, BYTES);
    return count;
}

static bool is_memory(const char *directory)
{
    struct statfs info;
    scratch_need(statfs(directory, &info) == 0, directory);
    return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

/* Writes and reads the whole store without direct I/O; what stays in the page cache. */
static void move_through_cache(const char *directory, const sl_transport_ops *ops)
{
    static _Alignas(SL_STORE_ALIGNMENT) char data[BYTES];
    sl_store *store = NULL;
    store_calls = (store_calls_plan){.no_direct_open = EINVAL};
    sl_store_options options = {
        .directories = &directory, .directory_count = 1, .bytes = BYTES, .transport = ops};
    if (sl_store_open(&options, &store) != SL_OK) {
        print_message("%s: %s: skipped\n", ops->name, sl_status_message());
        return;
    }
    for (uint64_t i = 0; i < BYTES; i++)
        data[i] = (char)store_word(1, 1, i);
    int fd = find_file(directory);
    assert_int_equal(sl_store_write(store, 0, data, BYTES), SL_OK);
    assert_true(count_cached_pages(fd) < BYTES / SL_STORE_ALIGNMENT / 16);
    assert_int_equal(sl_store_read(store, 0, data, BYTES), SL_OK);
    assert_true(count_cached_pages(fd) < BYTES / SL_STORE_ALIGNMENT / 16);
    sl_store_close(store);
}

/* Every byte passes through the page cache there, and none may stay in it. */
static void cache_when_there_is_no_direct_io_keeps_nothing(void **state)
{
    (void)state;
    char here[SCRATCH_PATH_BYTES]; /* mostly a disk */
    scratch_need(getcwd(here, sizeof here) != NULL, "getcwd");
    scratch_path path = scratch_join(here, "sluice-test-XXXXXX");
    scratch_need(mkdtemp(path.text) != NULL, path.text);
    bool has_cache = !is_memory(path.text);
    if (has_cache) {
        move_through_cache(path.text, &sl_transport_uring);
        move_through_cache(path.text, &sl_transport_threads);
    }
    rmdir(path.text);
    if (!has_cache)
        skip_because("the working directory is memory: its files are their own cache");
}

static void file_when_a_call_fails_is_an_error_and_leaves_nothing(void **state)
{
    const char *directory = ((scratch_path *)*state)->text;
    uint32_t before = count_entries("/proc/self/fd");
    for (int nameless = 0; nameless < 2; nameless++)
        for (uint64_t call = 1;; call++) {
            store_calls =
                (store_calls_plan){.no_nameless = nameless ? EOPNOTSUPP : 0, .fails_at = call};
            sl_store *store = NULL;
            sl_status status = open_at(directory, BYTES, &store);
            if (store_calls.calls < call) {
                assert_int_equal(status, SL_OK);
                assert_true(call > 4);
                sl_store_close(store);
                break;
            }
            assert_int_equal(status, SL_ERROR_IO);
            check_message(directory);
            check_message("Input/output error");
            assert_int_equal(count_entries("/proc/self/fd"), before);
            assert_int_equal(count_entries(directory), 0);
        }
}

/* ---- directories ---- */

static void check_refused(const char *directory, sl_status expected, const char *word)
{
    sl_store *store = NULL;
    assert_int_equal(open_at(directory, MIB, &store), expected);
    check_message(directory);
    check_message(word);
    assert_null(store);
}

static void directory_when_unsafe_is_refused_by_name(void **state)
{
    const char *parent = ((scratch_path *)*state)->text;
    scratch_path plain = scratch_join(parent, "plain"), link = scratch_join(parent, "link"),
                 link_slash = scratch_join(parent, "link/"), file = scratch_join(parent, "file"),
                 slash = scratch_join(parent, "plain//");
    scratch_need(mkdir(plain.text, 0700) == 0 && symlink("plain", link.text) == 0, "set-up");
    scratch_write(file.text, "x", 1);
    check_refused(link.text, SL_ERROR_IO, "symbolic link");
    check_refused(link_slash.text, SL_ERROR_IO, "symbolic link");
    check_refused(file.text, SL_ERROR_IO, "Not a directory");
    check_refused(scratch_join(parent, "absent").text, SL_ERROR_MISSING, "No such file");
    sl_store_close(need_open(plain.text, MIB));
    sl_store_close(need_open(slash.text, MIB));
    static const struct {
        mode_t mode;
        bool is_safe;
    } modes[] = {{0755, true}, {0770, false}, {0702, false}, {01777, true}, {01770, true}};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        scratch_need(chmod(plain.text, modes[i].mode) == 0, "chmod");
        if (modes[i].is_safe)
            sl_store_close(need_open(plain.text, MIB));
        else
            check_refused(plain.text, SL_ERROR_IO, "others may write");
    }
    if (geteuid() == 0) {
        scratch_need(chmod(plain.text, 0700) == 0 && chown(plain.text, 65534, 0) == 0, "chown");
        check_refused(plain.text, SL_ERROR_IO, "belongs to user 65534");
    }
}

/* ---- space ---- */

static void space_when_refused_is_an_error_with_need_and_free(void **state)
{
    const char *directory = ((scratch_path *)*state)->text;
    static const int errors[] = {ENOSPC, EDQUOT, EFBIG, EIO};
    for (int i = 0; i < 4; i++) {
        store_calls = (store_calls_plan){.reservation = errors[i]};
        check_refused(directory, SL_ERROR_IO, strerror(errors[i]));
        check_message("needs 1048576 bytes");
        check_message("are free");
    }
    /* Nothing can be reserved, and more is asked for than is free. */
    store_calls = (store_calls_plan){.reservation = EOPNOTSUPP};
    sl_store *store = NULL;
    assert_int_equal(open_at(directory, UINT64_C(1) << 60, &store), SL_ERROR_IO);
    check_message("1152921504606846976");
    assert_int_equal(count_entries(directory), 0);
}

/* Runs `body` in a child; its exit status. */
static int run_child(int (*body)(const char *directory), const char *directory)
{
    int result;
    pid_t child = fork();
    scratch_need(child >= 0, "fork");
    if (child == 0)
        _exit(body(directory));
    scratch_need(waitpid(child, &result, 0) == child, "waitpid");
    return WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result);
}

static int open_under_file_limit(const char *directory)
{
    sl_store *store;
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){BYTES - 1, BYTES - 1});
    if (open_at(directory, BYTES, &store) != SL_ERROR_IO || !strstr(sl_status_message(), "ulimit"))
        return 1;
    return open_at(directory, BYTES - SL_STORE_ALIGNMENT, &store) == SL_OK ? 0 : 2;
}

static void space_when_process_may_not_have_it_is_an_error_and_no_signal(void **state)
{
    assert_int_equal(run_child(open_under_file_limit, ((scratch_path *)*state)->text), 0);
}

/* Twenty disks from nothing to more than enough: all of it works or nothing is started. */
static int fill_small_disks(const char *directory)
{
    enum { DISKS = 20 };
    uint32_t good = 0, full = 0;
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return 77;
    for (uint64_t i = 0; i < DISKS; i++) {
        char size[64];
        uint64_t room = BYTES * (i + 1) / (DISKS - 4) / 4096 * 4096;
        snprintf(size, sizeof size, "size=%llu,mode=0700", (unsigned long long)room);
        if (mount("none", directory, "tmpfs", 0, size) != 0)
            return 77;
        sl_store *store = NULL;
        sl_status status = open_at(directory, BYTES, &store);
        if (status == SL_OK && !contents_are_right(store))
            return 1;
        if (status != SL_OK &&
            (status != SL_ERROR_IO || !strstr(sl_status_message(), "No space left on device") ||
             !strstr(sl_status_message(), directory)))
            return 2;
        sl_store_close(store);
        if ((status == SL_OK) != (room >= BYTES) || count_entries(directory) != 0)
            return 3;
        good += status == SL_OK;
        full += status != SL_OK;
        umount(directory);
    }
    return good >= 3 && full >= 10 ? 0 : 4;
}

static void space_when_disk_is_small_is_all_there_or_refused(void **state)
{
    int result = run_child(fill_small_disks, ((scratch_path *)*state)->text);
    if (result == 77) {
        skip_because("a tmpfs cannot be mounted here");
    }
    assert_int_equal(result, 0);
}

/* ---- kills ---- */

/* Opens, works and closes for ever. */
static int work_on(const char *directory)
{
    static _Alignas(SL_STORE_ALIGNMENT) char data[MIB];
    for (;;) {
        sl_store *store;
        if (open_at(directory, BYTES, &store) != SL_OK ||
            sl_store_write(store, 0, data, sizeof data) != SL_OK)
            return 1;
        sl_store_close(store);
    }
}

static void directory_when_process_is_killed_is_empty(void **state)
{
    const char *directory = ((scratch_path *)*state)->text;
    uint64_t random = scratch_seed(__func__, 1) * 2 + 1;
    for (uint64_t kills = scratch_count(20, 1000); kills > 0; kills--) {
        pid_t child = fork();
        scratch_need(child >= 0, "fork");
        if (child == 0)
            _exit(work_on(directory));
        usleep((useconds_t)scratch_below(&random, 20000));
        kill(child, SIGKILL);
        int result;
        scratch_need(waitpid(child, &result, 0) == child, "waitpid");
        assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL);
        assert_int_equal(count_entries(directory), 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)
    const struct CMUnitTest tests[] = {
        TEST(file_when_open_is_private_nameless_and_reserved),
        TEST(files_when_striped_have_what_their_pieces_need),
        TEST(file_when_system_lacks_something_works_and_says_so),
        TEST(cache_when_there_is_no_direct_io_keeps_nothing),
        TEST(file_when_a_call_fails_is_an_error_and_leaves_nothing),
        TEST(directory_when_unsafe_is_refused_by_name),
        TEST(space_when_refused_is_an_error_with_need_and_free),
        TEST(space_when_process_may_not_have_it_is_an_error_and_no_signal),
        TEST(space_when_disk_is_small_is_all_there_or_refused),
        TEST(directory_when_process_is_killed_is_empty),
    };
    alarm(HANG_SECONDS * (unsigned)scratch_count(1, 10));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
