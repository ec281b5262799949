/* Checkpoints when things go wrong: each system call of a save made to fail, once and from then on;
 * cut short; the process ended in it; killed at random moments; the disk full; the newest
 * unreadable. What could be wrong: a failure not noticed, a half-written
 * checkpoint visible, the only good one deleted too early, one deleted that another run writes, an
 * older one taken silently, remains that stay for ever. The oracle after each: the newest valid
 * checkpoint holds, bit for bit, one of the contents that were saved, and the next save works and
 * leaves no remains. Power failures: test_checkpoint_power.c;
 * two runs at once: test_checkpoint_savers.c. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "checkpoint/steps.h"
#include "checkpoint_sweep.h"
#include "files/files.h"
#include "sanitizer_share.h"
#include "skip.h"

/* After a failed or ended save: something that was saved is found; then a good save of step 7
 * leaves itself and LATEST alone. */
static void check_recovery(const sweep_case *sweep, const char *directory, uint64_t call,
                           int must_be_new)
{
    static const uint64_t contents[] = {CONTENT_OLD, CONTENT_THERE, CONTENT_NEW};
    faults = (fault_plan){.plain_renames = sweep->plain_renames};
    uint64_t newest = case_newest(directory, contents, 3);
    int in_two = sweep->is_again && sweep->plain_renames; /* step 7 may be gone for a moment */
    if (newest == 0 || (must_be_new && newest != 7) || (sweep->is_again && newest != 7 && !in_two))
        fail_msg("%s, call %llu: the newest is %llu", sweep->name, (unsigned long long)call,
                 (unsigned long long)newest);
    if (must_be_new)
        assert_int_equal(case_newest(directory, contents + 2, 1), 7);
    assert_int_equal(case_save(directory, 7, 1, CONTENT_NEW), SL_OK);
    assert_int_equal(case_newest(directory, contents + 2, 1), 7);
    if (case_count(directory, "") != 2)
        fail_msg("%s, call %llu: %d entries are left", sweep->name, (unsigned long long)call,
                 case_count(directory, ""));
}

/* Whether the new content can be seen, whatever the save said. */
static int shows_new(const char *directory)
{
    sl_checkpoint *checkpoint = NULL;
    if (sl_checkpoint_find_newest(directory, &checkpoint) != SL_OK)
        return 0;
    int is_new = case_holds(checkpoint, 7, CONTENT_NEW);
    sl_checkpoint_close(checkpoint);
    return is_new;
}

/* One case in a fresh directory. False when the save has fewer calls than that. */
static int run_case(const sweep_case *sweep, const char *parent, uint64_t call, int kind,
                    int all_after)
{
    scratch_path directory = scratch_join(parent, "case");
    set_up(sweep, directory.text);
    faults.armed = 1;
    faults.first = call;
    faults.kind = kind;
    faults.all_after = all_after;
    sl_status status = case_save(directory.text, 7, 1, CONTENT_NEW);
    faults.armed = 0;
    int reached = faults.calls >= call;
    if (status != SL_OK && (status != SL_ERROR_IO || !strstr(sl_status_message(), strerror(kind))))
        fail_msg("%s, call %llu, errno %d: status %d, \"%s\"", sweep->name,
                 (unsigned long long)call, kind, status, sl_status_message());
    if (status != SL_OK && (kind == FAULT_SHORT || kind == EINTR || !reached))
        fail_msg("%s, call %llu: %s", sweep->name, (unsigned long long)call, sl_status_message());
    int is_told = status == SL_OK || strstr(sl_status_message(), "is there and whole") != NULL;
    if (shows_new(directory.text) != is_told)
        fail_msg("%s, call %llu, errno %d: status %d, but the new one is %s", sweep->name,
                 (unsigned long long)call, kind, status, is_told ? "not visible" : "visible");
    check_recovery(sweep, directory.text, call, status == SL_OK);
    scratch_close(&directory);
    return reached;
}

/* Half of it, and then no more. */
static void cut_transfers(int is_cut)
{
    faults = (fault_plan){.armed = is_cut, .first = 1, .all_after = 1, .kind = FAULT_CUT};
}

static void transfer_when_it_fails_midway_then_says_what_is_missing(void **state)
{
    const scratch_path *directory = *state;
    const char data[100] = "from here on";
    char found[100];
    sl_file file;
    int fd = open(directory->text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(sl_files_create(fd, directory->text, "halves", &file), SL_OK);
    cut_transfers(1);
    assert_int_equal(sl_files_append(&file, sizeof data, data), SL_ERROR_IO);
    cut_transfers(0);
    assert_non_null(strstr(sl_status_message(), "halves: writing 50 bytes at offset 50 failed: "));
    assert_int_equal(sl_files_append(&file, 50, data + 50), SL_OK);
    cut_transfers(1);
    assert_int_equal(sl_files_read_at(&file, 0, sizeof found, found), SL_ERROR_IO);
    cut_transfers(0);
    assert_non_null(strstr(sl_status_message(), "halves: reading 50 bytes at offset 50 failed: "));
    assert_int_equal(sl_files_read_at(&file, 0, sizeof found, found), SL_OK);
    assert_memory_equal(found, data, sizeof data);
    sl_files_close(&file);
    close(fd);
}

static void every_call_when_failing_then_older_checkpoint_stands(void **state)
{
    const scratch_path *parent = *state;
    static const int kinds[] = {EIO, ENOSPC, EACCES, FAULT_SHORT, EINTR};
    uint64_t cases = 0, stride = scratch_count(5 * SHARE, 1);
    for (int s = 0; s < SWEEP_COUNT; s++)
        for (int k = 0; k < 5; k++)
            for (int all_after = 0; all_after < (k == 4 ? 1 : 2); all_after++)
                for (uint64_t call = 1 + cases % stride;
                     run_case(&sweeps[s], parent->text, call, kinds[k], all_after); call += stride)
                    cases++;
    printf("%llu failed calls\n", (unsigned long long)cases);
    assert_true(cases > 300 / SHARE);
}

static void every_call_when_process_ends_in_it_then_valid_checkpoint(void **state)
{
    const scratch_path *parent = *state;
    uint64_t cases = 0, stride = scratch_count(3 * SHARE, 1);
    for (int s = 0; s < SWEEP_COUNT; s++) {
        int result = 0;
        for (uint64_t call = 1; result == 0; call += stride, cases++) {
            scratch_path directory = scratch_join(parent->text, "case");
            set_up(&sweeps[s], directory.text);
            pid_t child = fork();
            scratch_need(child >= 0, "fork");
            if (child == 0) {
                faults.armed = 1;
                faults.first = call;
                faults.kind = FAULT_DIE;
                _exit(case_save(directory.text, 7, 1, CONTENT_NEW) == SL_OK ? 0 : 1);
            }
            scratch_need(waitpid(child, &result, 0) == child, "waitpid");
            result = WEXITSTATUS(result) == 137 ? 0 : 1 + WEXITSTATUS(result);
            check_recovery(&sweeps[s], directory.text, call, result == 1);
            scratch_close(&directory);
        }
        assert_int_equal(result, 1); /* the last case ran to its end, and well */
    }
    printf("%llu ends\n", (unsigned long long)cases);
}

/* Writes that report success and store nothing: the save finds out itself, as it reads back, and
 * publishes and deletes nothing. */
static void every_write_when_lost_then_found_out(void **state)
{
    const scratch_path *parent = *state;
    static const uint64_t contents[] = {CONTENT_OLD, CONTENT_NEW};
    uint64_t refused = 0, stride = scratch_count(2, 1);
    int reached = 1;
    for (uint64_t call = 1; reached; call += stride) {
        scratch_path directory = scratch_join(parent->text, "case");
        set_up(&sweeps[0], directory.text);
        faults.armed = 1;
        faults.first = call;
        faults.kind = FAULT_LOST;
        sl_status status = case_save(directory.text, 7, 1, CONTENT_NEW);
        faults.armed = 0;
        reached = faults.calls >= call;
        uint64_t newest = case_newest(directory.text, contents, 2);
        if (newest != (status == SL_OK ? 7 : 3) || (status != SL_OK && status != SL_ERROR_IO))
            fail_msg("call %llu: status %d, the newest is %llu", (unsigned long long)call, status,
                     (unsigned long long)newest);
        refused += status != SL_OK;
        scratch_close(&directory);
    }
    printf("lost writes: %llu refused\n", (unsigned long long)refused);
    assert_true(refused >= 25);
}

/* A call fails for want of room, which fails the save; then the clean-up's syncs fail as well, for
 * another reason. The message has the first one. */
static void every_call_when_the_clean_up_fails_too_then_the_first_is_told(void **state)
{
    const scratch_path *parent = *state;
    uint64_t told = 0;
    int reached = 1;
    for (uint64_t call = 1; reached; call++) {
        sl_status status = SL_OK;
        for (int syncs_fail = 0; syncs_fail < 2; syncs_fail++) {
            scratch_path directory = scratch_join(parent->text, "case");
            const int fails_alone = status != SL_OK;
            set_up(&sweeps[0], directory.text);
            faults =
                (fault_plan){.armed = 1, .first = call, .syncs_fail = syncs_fail, .kind = ENOSPC};
            status = case_save(directory.text, 7, 1, CONTENT_NEW);
            reached = faults.calls >= call;
            faults = (fault_plan){0};
            if (fails_alone && !strstr(sl_status_message(), strerror(ENOSPC)))
                fail_msg("call %llu: \"%s\"", (unsigned long long)call, sl_status_message());
            told += fails_alone;
            scratch_close(&directory);
        }
    }
    printf("%llu messages\n", (unsigned long long)told);
    assert_true(told > 50);
}

/* ---- kill -9 ---- */

static void save_for_ever(const char *directory, uint64_t step)
{
    for (;; step++)
        if (case_save(directory, step, 2, step) != SL_OK)
            _exit(1);
}

static void run_when_killed_at_random_then_newest_is_whole(void **state)
{
    const scratch_path *directory = *state;
    uint64_t random = scratch_seed("killed_at_random", 99);
    uint64_t rounds = scratch_count(30, 300), newest = 0, advances = 0;
    uint64_t longest_ns = 20000000; /* of a life; more where that is too short for a save */
    for (uint64_t round = 0; round < rounds; round++) {
        pid_t child = fork();
        scratch_need(child >= 0, "fork");
        if (child == 0)
            save_for_ever(directory->text, newest + 1);
        struct timespec wait = {0, (long)scratch_below(&random, longest_ns)};
        int result;
        nanosleep(&wait, NULL);
        kill(child, SIGKILL);
        scratch_need(waitpid(child, &result, 0) == child, "waitpid");
        assert_true(WIFSIGNALED(result)); /* it did not end by itself */
        sl_checkpoint *checkpoint = NULL;
        uint64_t before = newest;
        if (sl_checkpoint_find_newest(directory->text, &checkpoint) == SL_OK) {
            newest = sl_checkpoint_describe(checkpoint)->state.step;
            assert_true(case_holds(checkpoint, newest, newest));
            sl_checkpoint_close(checkpoint);
        }
        assert_true(newest >= before); /* once there is one, there is always one */
        advances += newest > before;
        if (newest == before && longest_ns < 500000000)
            longest_ns += longest_ns / 2;
        assert_true(case_count(directory->text, ".tmp-") <= 2); /* a dead one is removed */
    }
    printf("killed %llu times, the last checkpoint is of step %llu\n", (unsigned long long)rounds,
           (unsigned long long)newest);
    assert_true(advances > rounds / 4);
}

/* ---- the newest cannot be read ---- */

/* A directory that cannot be listed is not one without checkpoints. */
static void check_listing(const char *directory, int kind)
{
    int reached = 1;
    for (uint64_t call = 1; reached; call++) {
        bool is_any = false;
        uint64_t step = 0;
        faults = (fault_plan){.armed = 1, .first = call, .kind = kind};
        sl_status status = sl_checkpoint_newest_step(directory, &is_any, &step);
        reached = faults.calls >= call;
        faults = (fault_plan){0};
        if (status != (reached ? SL_ERROR_IO : SL_OK) || is_any == reached ||
            step != (reached ? 0 : 7))
            fail_msg("errno %d in call %llu: status %d", kind, (unsigned long long)call, status);
    }
}

static void newest_when_unreadable_then_error_and_no_older_one(void **state)
{
    const scratch_path *directory = *state;
    static const int kinds[] = {EIO, EACCES};
    static const uint64_t newest[] = {CONTENT_NEW};
    uint64_t refused = 0;
    set_up(&sweeps[0], directory->text);
    scratch_need(case_save(directory->text, 7, 0, CONTENT_NEW) == SL_OK, sl_status_message());
    for (int k = 0; k < 2; k++) {
        int reached = 1;
        check_listing(directory->text, kinds[k]);
        for (uint64_t call = 1; reached; call++) {
            sl_checkpoint *checkpoint = NULL;
            faults = (fault_plan){.armed = 1, .first = call, .kind = kinds[k]};
            sl_status status = sl_checkpoint_find_newest(directory->text, &checkpoint);
            reached = faults.calls >= call;
            faults = (fault_plan){0};
            if (status == SL_OK && sl_checkpoint_describe(checkpoint)->state.step != 7)
                fail_msg("errno %d in call %llu: an older one was taken", kinds[k],
                         (unsigned long long)call);
            if (status != SL_OK &&
                (status != SL_ERROR_IO || !strstr(sl_status_message(), strerror(kinds[k]))))
                fail_msg("errno %d in call %llu: status %d, \"%s\"", kinds[k],
                         (unsigned long long)call, status, sl_status_message());
            refused += status != SL_OK;
            sl_checkpoint_close(checkpoint);
        }
    }
    assert_true(refused > 20);
    assert_int_equal(case_newest(directory->text, newest, 1), 7);
    assert_int_equal(sl_status_exit_code(SL_ERROR_IO), 74);
}

/* ---- no room ---- */

static sl_status save_in_limit(const char *directory, uint64_t limit, int no_reservation)
{
    struct rlimit old, tight;
    getrlimit(RLIMIT_FSIZE, &old);
    tight = (struct rlimit){.rlim_cur = limit, .rlim_max = old.rlim_max};
    faults.no_reservation = no_reservation;
    scratch_need(setrlimit(RLIMIT_FSIZE, &tight) == 0, "setrlimit");
    sl_status status = case_save(directory, 7, 1, CONTENT_NEW);
    setrlimit(RLIMIT_FSIZE, &old);
    faults.no_reservation = 0;
    return status;
}

static void files_when_size_is_limited_then_error_names_file_and_bytes(void **state)
{
    const scratch_path *directory = *state;
    static const uint64_t old[] = {CONTENT_OLD};
    signal(SIGXFSZ, SIG_IGN);
    scratch_need(case_save(directory->text, 3, 0, CONTENT_OLD) == SL_OK, sl_status_message());
    for (uint64_t limit = 0; limit < 8000; limit += 250) {
        for (int no_reservation = 0; no_reservation < 2; no_reservation++) {
            assert_int_equal(save_in_limit(directory->text, limit, no_reservation), SL_ERROR_IO);
            const char *message = sl_status_message();
            assert_non_null(strstr(message, "step-00000007.tmp-"));
            assert_non_null(strstr(message, " bytes "));
            assert_non_null(strstr(message, strerror(EFBIG)));
            assert_int_equal(case_count(directory->text, ""), 2); /* step 3 and LATEST */
            assert_int_equal(case_newest(directory->text, old, 1), 3);
        }
    }
    assert_int_equal(save_in_limit(directory->text, 1 << 20, 0), SL_OK);
}

enum { DISK_SIZES = 40, DISK_SAVES = 5, DISK_KEEP = 3 };

typedef struct disk_tally {
    uint64_t refused, failed, filled; /* sizes that were refused; saves that failed, and did not */
} disk_tally;

/* Saves on a small disk after asking whether it is large enough; returns what is wrong, or NULL. */
static const char *fill_disk(const char *directory, disk_tally *tally)
{
    uint64_t saved = 0, content = 0;
    sl_status space = case_check_space(directory, DISK_KEEP, DISK_SAVES);
    if (space != SL_OK && (space != SL_ERROR_FIT || !strstr(sl_status_message(), "are free")))
        return "the space cannot be asked";
    tally->refused += space != SL_OK;
    for (uint64_t step = 1; step <= DISK_SAVES; step++) {
        faults.no_reservation = step % 2 != 0;
        sl_status status = case_save(directory, step, DISK_KEEP, step);
        if (status != SL_OK && status != SL_ERROR_IO)
            return "a full disk is another error";
        if (status != SL_OK && space == SL_OK)
            return "the disk was large enough, and is full";
        if (status == SL_OK)
            saved = content = step;
        if (case_newest(directory, &content, 1) != saved || case_count(directory, ".tmp-") != 0)
            return "the last checkpoint is not there, or remains of a failed one are";
        tally->failed += status != SL_OK;
        tally->filled += status == SL_OK;
    }
    return NULL;
}

/* From nothing to a tenth more than is asked for. */
static uint64_t draw_disk_size(const char *directory, int i)
{
    unsigned long long needed = 0;
    faults.disk = directory;
    faults.room = 0;
    assert_int_equal(case_check_space(directory, DISK_KEEP, DISK_SAVES), SL_ERROR_FIT);
    const char *text = strstr(sl_status_message(), "need ");
    assert_true(text && sscanf(text, "need %llu bytes", &needed) == 1);
    return (needed + needed / 10) * (uint64_t)i / (DISK_SIZES - 1) / 4096 * 4096;
}

static void check_tally(const disk_tally *tally)
{
    printf("%d sizes, %llu refused; %llu saves, %llu failed\n", DISK_SIZES,
           (unsigned long long)tally->refused, (unsigned long long)(tally->filled + tally->failed),
           (unsigned long long)tally->failed);
    assert_true(tally->refused >= 30 && tally->refused < DISK_SIZES);
    assert_true(tally->failed >= 20 && tally->filled >= 20);
}

static void disk_when_full_then_told_before_and_older_checkpoint_stands(void **state)
{
    const scratch_path *parent = *state;
    disk_tally tally = {0};
    for (int i = 0; i < DISK_SIZES; i++) {
        scratch_path directory = scratch_join(parent->text, "disk");
        scratch_need(mkdir(directory.text, 0700) == 0, directory.text);
        uint64_t size = draw_disk_size(directory.text, i);
        faults = (fault_plan){.disk = directory.text, .room = size};
        const char *wrong = fill_disk(directory.text, &tally);
        faults = (fault_plan){0};
        if (wrong)
            fail_msg("%llu bytes: %s: %s", (unsigned long long)size, wrong, sl_status_message());
        scratch_close(&directory);
    }
    check_tally(&tally);
}

/* Fills tmpfs of every size; runs in a mount namespace of its own. Returns an exit code. */
static int fill_small_disks(const char *directory)
{
    disk_tally tally = {0};
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return 77;
    for (int i = 0; i < DISK_SIZES; i++) {
        char options[64];
        unsigned long long size = draw_disk_size(directory, i);
        faults = (fault_plan){0};
        snprintf(options, sizeof options, "size=%llu,mode=700", size > 0 ? size : 4096);
        if (mount("sluice", directory, "tmpfs", 0, options) < 0)
            return 77;
        faults.real_space = 1;
        const char *wrong = fill_disk(directory, &tally);
        umount(directory);
        if (wrong)
            printf("%llu bytes: %s: %s\n", size, wrong, sl_status_message());
        if (wrong)
            return 1;
    }
    check_tally(&tally);
    return 0;
}

/* The same where the kernel allows a real one. */
static void disk_when_really_full_then_told_before_too(void **state)
{
    const scratch_path *directory = *state;
    int result;
    fflush(stdout);
    pid_t child = fork();
    scratch_need(child >= 0, "fork");
    if (child == 0) {
        int code = fill_small_disks(directory->text);
        fflush(stdout);
        _exit(code);
    }
    scratch_need(waitpid(child, &result, 0) == child, "waitpid");
    if (WIFEXITED(result) && WEXITSTATUS(result) == 77) {
        skip_because("a tmpfs cannot be mounted here");
    }
    assert_true(WIFEXITED(result));
    assert_int_equal(WEXITSTATUS(result), 0);
}

/* ---- the order on the disk ---- */

/* The index of the first line from `from` on that starts with `text`; -1 if there is none. */
static int find_line(char *const *lines, int count, int from, const char *text)
{
    for (int i = from; i < count; i++)
        if (strncmp(lines[i], text, strlen(text)) == 0)
            return i;
    return -1;
}

static int read_lines(FILE *file, char **lines, int most)
{
    int count = 0;
    size_t room = 0;
    rewind(file);
    while (count < most && (lines[count] = NULL, getline(&lines[count], &room, file)) > 0) {
        count++;
        room = 0;
    }
    free(lines[count]);
    return count;
}

static void save_when_traced_then_synced_before_renamed(void **state)
{
    const scratch_path *directory = *state;
    enum { LINES_MAX = 1000 };
    static char *lines[LINES_MAX + 1];
    char text[256];
    static const char *const names[] = {"config.json", "model.safetensors", "moment1.safetensors",
                                        "moment2.safetensors", "manifest.json"};
    set_up(&sweeps[0], directory->text);
    faults.trace = tmpfile();
    faults.armed = 1;
    assert_int_equal(case_save(directory->text, 7, 1, CONTENT_NEW), SL_OK);
    faults.armed = 0;
    int count = read_lines(faults.trace, lines, LINES_MAX);
    fclose(faults.trace);
    const char *base = strrchr(directory->text, '/') + 1;

    snprintf(text, sizeof text, "rename %s step-00000007.tmp-", base);
    int published = find_line(lines, count, 0, text);
    assert_true(published > 0);
    for (int i = 0; i < 5; i++) {
        int synced, written = -1;
        snprintf(text, sizeof text, "fsync %s ", names[i]);
        synced = find_line(lines, count, 0, text);
        snprintf(text, sizeof text, "pwrite %s ", names[i]);
        for (int j = 0; (j = find_line(lines, count, j, text)) >= 0; j++)
            written = j;
        assert_true(written >= 0 && written < synced && synced < published);
    }
    /* The temporary directory after all of its files were made, before it is renamed. */
    int inside = find_line(lines, count, 0, "fsync step-00000007.tmp-");
    snprintf(text, sizeof text, "create step-00000007.tmp-");
    for (int j = 0; (j = find_line(lines, count, j, text)) >= 0; j++)
        assert_true(j < inside);
    assert_true(inside >= 0 && inside < published);
    /* Then the parent, LATEST, the parent again, and only then the old one goes. */
    snprintf(text, sizeof text, "fsync %s ", base);
    int parent = find_line(lines, count, published, text);
    int latest_written = find_line(lines, count, 0, "fsync LATEST.tmp");
    snprintf(text, sizeof text, "rename %s LATEST.tmp LATEST", base);
    int latest = find_line(lines, count, 0, text);
    snprintf(text, sizeof text, "rename %s step-00000003 .trash-step-00000003-", base);
    int trash = find_line(lines, count, 0, text);
    int gone = find_line(lines, count, 0, "unlink .trash-step-00000003-");
    assert_true(published < parent && parent < latest && latest_written < latest);
    assert_true(latest < trash && trash < gone);
    for (int i = 0; i < count; i++)
        free(lines[i]);
}

/* A run that replaces another may begin with lower steps. */
static void others_when_removed_then_all_are_renamed_before_one_is_emptied(void **state)
{
    const scratch_path *directory = *state;
    enum { LINES_MAX = 200 };
    static char *lines[LINES_MAX + 1];
    static const uint64_t steps[] = {1, 8, 9};
    for (int i = 0; i < 3; i++)
        assert_int_equal(case_save(directory->text, steps[i], 0, CONTENT_NEW), SL_OK);
    int fd = open(directory->text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scratch_need(fd >= 0, directory->text);
    faults.trace = tmpfile();
    faults.armed = 1;
    sl_steps_remove_others(fd, directory->text, 1);
    faults.armed = 0;
    close(fd);
    int count = read_lines(faults.trace, lines, LINES_MAX), renames = 0;
    fclose(faults.trace);
    int emptied = find_line(lines, count, 0, "unlink .trash-step-");
    assert_true(emptied > 0);
    for (int i = 0; (i = find_line(lines, count, i, "rename ")) >= 0; i++, renames++)
        assert_true(i < emptied);
    assert_int_equal(renames, 2);
    for (int i = 0; i < count; i++)
        free(lines[i]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)
    const struct CMUnitTest tests[] = {
        TEST(transfer_when_it_fails_midway_then_says_what_is_missing),
        TEST(every_call_when_failing_then_older_checkpoint_stands),
        TEST(every_call_when_process_ends_in_it_then_valid_checkpoint),
        TEST(every_write_when_lost_then_found_out),
        TEST(every_call_when_the_clean_up_fails_too_then_the_first_is_told),
        TEST(run_when_killed_at_random_then_newest_is_whole),
        TEST(newest_when_unreadable_then_error_and_no_older_one),
        TEST(files_when_size_is_limited_then_error_names_file_and_bytes),
        TEST(disk_when_full_then_told_before_and_older_checkpoint_stands),
        TEST(disk_when_really_full_then_told_before_too),
        TEST(save_when_traced_then_synced_before_renamed),
        TEST(others_when_removed_then_all_are_renamed_before_one_is_emptied),
    };
    return cmocka_run_group_tests_name("checkpoint_crash", tests, NULL, NULL);
}
