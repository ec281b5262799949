/* Who saves in a directory. What could be wrong: two runs save there at once and mix their steps; a
 * run that was stopped for long replaces what another one finished meanwhile; the lock stays when
 * its holder dies, or is taken on a file that is no lock; a place where nothing can be saved is
 * found after hours; one run deletes what another one writes. Two savers are stopped before every
 * call and go on in turn, with the lock and with one that a server lost. The oracle: a saver is
 * well, and what it saved is found, or it says why it gave way, and nothing of it is seen. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "checkpoint/steps.h"
#include "checkpoint_sweep.h"

/* ---- one who has the lock ---- */

/* A process may save as often as it likes, and replace what was there when it began. */
static void lock_when_held_then_the_holder_alone_saves(void **state)
{
    const scratch_path *directory = *state;
    sl_save_lock lock = {0};
    uint64_t contents[] = {CONTENT_THERE};
    set_up(&sweeps[1], directory->text);
    assert_int_equal(sl_save_lock_hold(directory->text, &lock), SL_OK);
    assert_int_equal(case_save(directory->text, 8, 0, CONTENT_OTHER), SL_ERROR_USAGE);
    char holder[64];
    snprintf(holder, sizeof holder, "(process %ld on ", (long)getpid());
    assert_non_null(strstr(sl_status_message(), holder));
    assert_int_equal(case_newest(directory->text, contents, 1), 7);
    case_lock = &lock;
    for (int i = 0; i < 3; i++)
        assert_int_equal(case_save(directory->text, 7, 0, CONTENT_NEW), SL_OK);
    contents[0] = CONTENT_NEW;
    assert_int_equal(case_newest(directory->text, contents, 1), 7);
    case_lock = NULL;
    sl_save_lock_release(&lock);
    assert_int_equal(case_save(directory->text, 8, 0, CONTENT_OTHER), SL_OK);
}

/* As between machines, whose server forgot a lock: a run that was stopped for long goes on. */
static void lock_when_lost_then_what_came_meanwhile_stays(void **state)
{
    const scratch_path *directory = *state;
    for (int plain_renames = 0; plain_renames < 2; plain_renames++) {
        scratch_path place = scratch_join(directory->text, plain_renames ? "plain" : "exchanged");
        sl_save_lock lock = {0};
        uint64_t contents[] = {CONTENT_OTHER};
        set_up(&sweeps[1], place.text);
        faults = (fault_plan){.plain_renames = plain_renames, .lost_lock = 1};
        assert_int_equal(sl_save_lock_hold(place.text, &lock), SL_OK);
        assert_int_equal(case_save(place.text, 7, 0, CONTENT_OTHER), SL_OK);
        assert_int_equal(case_save(place.text, 9, 0, CONTENT_OTHER), SL_OK);
        case_lock = &lock;
        for (uint64_t step = 7; step <= 9; step += 2) {
            assert_int_equal(case_save(place.text, step, 0, CONTENT_NEW), SL_ERROR_IO);
            assert_non_null(strstr(sl_status_message(), "another process put it there"));
        }
        assert_int_equal(case_newest(place.text, contents, 1), 9);
        assert_int_equal(case_save(place.text, 8, 0, CONTENT_NEW), SL_OK);
        assert_int_equal(case_count(place.text, ".tmp-"), 0);
        case_lock = NULL;
        sl_save_lock_release(&lock);
        faults = (fault_plan){0};
    }
}

/* The run goes on in a directory of that name, and replaces nothing in one that was put there. */
static void directory_when_moved_away_then_made_and_locked_again(void **state)
{
    const scratch_path *parent = *state;
    scratch_path place = scratch_join(parent->text, "place"),
                 old = scratch_join(parent->text, "old");
    sl_save_lock lock = {0};
    const uint64_t contents[] = {CONTENT_NEW};
    set_up(&sweeps[1], place.text);
    assert_int_equal(sl_save_lock_hold(place.text, &lock), SL_OK);
    case_lock = &lock;
    scratch_need(rename(place.text, old.text) == 0, "rename");
    assert_int_equal(case_save(place.text, 8, 0, CONTENT_NEW), SL_OK);
    assert_int_equal(case_newest(place.text, contents, 1), 8);
    scratch_close(&place);
    scratch_need(rename(old.text, place.text) == 0, "rename");
    assert_int_equal(case_save(place.text, 7, 0, CONTENT_NEW), SL_ERROR_IO);
    assert_non_null(strstr(sl_status_message(), "another process put it there"));
    case_lock = NULL;
    sl_save_lock_release(&lock);
}

/* A file of that name may be anything, in a directory that came from elsewhere. */
static void lock_when_its_file_is_something_else_then_refused(void **state)
{
    const scratch_path *directory = *state;
    scratch_path file = scratch_join(directory->text, "file");
    scratch_path name = scratch_join(directory->text, SL_SAVE_LOCK_NAME);
    sl_save_lock lock = {0};
    size_t bytes;
    scratch_write(file.text, "mine", 4);
    for (int i = 0; i < 3; i++) {
        scratch_need((i == 0   ? symlink(file.text, name.text)
                      : i == 1 ? link(file.text, name.text)
                               : mkfifo(name.text, 0600)) == 0,
                     name.text);
        assert_int_equal(sl_save_lock_hold(directory->text, &lock), SL_ERROR_IO);
        unlink(name.text);
    }
    char *text = scratch_read(file.text, &bytes);
    assert_int_equal(bytes, 4);
    free(text);
    assert_int_equal(sl_save_lock_hold(directory->text, &lock), SL_OK);
    sl_save_lock_release(&lock);
}

/* Each call of the probe made to fail: it is told, and nothing stays. */
static void probe_when_a_save_would_fail_then_fails(void **state)
{
    const scratch_path *directory = *state;
    static const int kinds[] = {EIO, ENOSPC, EACCES, EROFS};
    int fd = open(directory->text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scratch_need(fd >= 0, directory->text);
    uint64_t failed = 0;
    for (int k = 0; k < 4; k++) {
        int reached = 1;
        for (uint64_t call = 1; reached; call++) {
            faults = (fault_plan){.armed = 1, .first = call, .kind = kinds[k]};
            sl_status status = sl_steps_probe(fd, directory->text);
            reached = faults.calls >= call;
            faults = (fault_plan){0};
            if (status != SL_OK &&
                (status != SL_ERROR_IO || !strstr(sl_status_message(), strerror(kinds[k]))))
                fail_msg("errno %d in call %llu: status %d, \"%s\"", kinds[k],
                         (unsigned long long)call, status, sl_status_message());
            failed += status != SL_OK;
            sl_steps_clean(fd, directory->text);
            assert_int_equal(case_count(directory->text, ""), 0);
        }
    }
    close(fd);
    assert_true(failed >= 4 * 6); /* mkdir, open, create, write, sync, rename */
}

/* ---- two runs ---- */

enum { START_CALLS = 12, CLEAN_CALLS = 24, SAVE_CALLS = 180 };

typedef struct two_savers {
    uint64_t other_step; /* what the second one saves; the first one saves step 7 */
    int plain_renames;
    int lost_lock; /* the lock keeps neither out */
} two_savers;

/* How a saver ends. */
enum { SAVER_WELL, SAVER_FAILED, SAVER_LOCKED_OUT, SAVER_GIVES_WAY };

static int judge_saver(sl_status status)
{
    if (status == SL_OK)
        return SAVER_WELL;
    if (status == SL_ERROR_USAGE && strstr(sl_status_message(), "another run saves there now ("))
        return SAVER_LOCKED_OUT;
    if (status == SL_ERROR_IO && strstr(sl_status_message(), "another process put it there"))
        return SAVER_GIVES_WAY;
    fprintf(stderr, "%s\n", sl_status_message());
    return SAVER_FAILED;
}

static void wait_for(sem_t *what)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    while (sem_timedwait(what, &until) < 0)
        scratch_need(errno == EINTR, "the other process says nothing");
}

/* When who of two runs: the first one comes to call `first`, the second to call `second`, the first
 * one makes `more` calls (0: all that are left), and then each goes to its end. */
typedef struct two_moments {
    uint64_t first, second, more;
} two_moments;

/* A process that saves, and stops before call `pause_at`, and again, until it may go on. */
static pid_t start_saver(const char *directory, uint64_t step, uint64_t content,
                         const fault_plan *pauses)
{
    sem_init(&pauses->turn->stopped, 1, 0);
    sem_init(&pauses->turn->go, 1, 0);
    pid_t child = fork();
    scratch_need(child >= 0, "fork");
    if (child > 0)
        return child;
    const fault_plan system = faults;
    faults = *pauses;
    faults.plain_renames = system.plain_renames;
    faults.lost_lock = system.lost_lock;
    faults.armed = 1;
    const int end = judge_saver(case_save(directory, step, 1, content));
    for (int i = 0; i < 2; i++)
        sem_post(&faults.turn->stopped); /* if it did not come so far */
    _exit(end);
}

static int end_saver(pid_t child, fault_turn *turn)
{
    int result;
    for (int i = 0; i < 2; i++)
        sem_post(&turn->go);
    scratch_need(waitpid(child, &result, 0) == child, "waitpid");
    return WIFEXITED(result) ? WEXITSTATUS(result) : SAVER_FAILED;
}

/* Of two that are well the later step is the newest, and of one step either. One that is not well
 * said why, and nothing of it is to be seen: the other has the directory, or has put that very step
 * there meanwhile. */
static int is_fair(const two_savers *two, const char *directory, int one, int other)
{
    uint64_t contents[2];
    int count = 0;
    if (one == SAVER_WELL && (two->other_step == 7 || other != SAVER_WELL))
        contents[count++] = CONTENT_NEW;
    if (other == SAVER_WELL)
        contents[count++] = CONTENT_OTHER;
    const uint64_t step = other == SAVER_WELL ? two->other_step : 7;
    if (count == 0 || one == SAVER_FAILED || other == SAVER_FAILED ||
        case_newest(directory, contents, count) != step)
        return 0;
    const int bad = two->lost_lock ? SAVER_LOCKED_OUT : SAVER_GIVES_WAY;
    if (one == bad || other == bad)
        return 0;
    return !two->lost_lock || two->other_step == 7 || (one == SAVER_WELL && other == SAVER_WELL);
}

static uint64_t saver_ends[4]; /* how many ended in each way */

static void run_two(const two_savers *two, const char *parent, two_moments when)
{
    static fault_turn *turns;
    if (!turns)
        turns = mmap(NULL, 2 * sizeof *turns, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0);
    const sweep_case start = {.is_again = 1, .plain_renames = two->plain_renames};
    const fault_plan first = {.pause_at = when.first, .pause_more = when.more, .turn = &turns[0]};
    const fault_plan second = {.pause_at = when.second, .turn = &turns[1]};
    scratch_path directory = scratch_join(parent, "two");
    set_up(&start, directory.text);
    faults.lost_lock = two->lost_lock;
    pid_t one = start_saver(directory.text, 7, CONTENT_NEW, &first);
    wait_for(&turns[0].stopped);
    pid_t other = start_saver(directory.text, two->other_step, CONTENT_OTHER, &second);
    wait_for(&turns[1].stopped);
    int one_end = SAVER_WELL;
    if (when.more > 0) {
        sem_post(&turns[0].go);
        wait_for(&turns[0].stopped);
    } else {
        one_end = end_saver(one, &turns[0]);
    }
    int other_end = end_saver(other, &turns[1]);
    if (when.more > 0)
        one_end = end_saver(one, &turns[0]);
    saver_ends[one_end]++;
    saver_ends[other_end]++;
    if (!is_fair(two, directory.text, one_end, other_end))
        fail_msg("calls %llu, %llu, %llu more: the ends are %d and %d",
                 (unsigned long long)when.first, (unsigned long long)when.second,
                 (unsigned long long)when.more, one_end, other_end);
    scratch_close(&directory);
}

static void saver_when_another_saves_in_between_then_one_gives_way(void **state)
{
    const scratch_path *parent = *state;
    static const two_savers cases[] = {{8, 0, 1}, {7, 0, 1}, {8, 1, 1},
                                       {7, 1, 1}, {8, 0, 0}, {7, 1, 0}};
    enum { CASES = sizeof cases / sizeof cases[0] };
    uint64_t random = scratch_seed("two savers", 4), count = 0;
    const uint64_t stride = scratch_count(2 * SHARE, 1);
    for (uint64_t first = 1; first <= START_CALLS; first++) /* both are about to begin */
        for (uint64_t second = 1 + first % stride; second <= CLEAN_CALLS; second += stride) {
            uint64_t more = scratch_below(&random, 3) ? 1 + scratch_below(&random, 40) : 0;
            run_two(&cases[0], parent->text, (two_moments){first, second, more});
            count++;
        }
    for (int i = 0; i < CASES; i++) {
        for (uint64_t n = scratch_count(50 / SHARE, 2000); n > 0; n--, count++) {
            uint64_t most = n % 2 ? CLEAN_CALLS : SAVE_CALLS; /* one cleans, or is anywhere */
            run_two(&cases[i], parent->text,
                    (two_moments){1 + scratch_below(&random, SAVE_CALLS),
                                  1 + scratch_below(&random, most),
                                  n % 4 < 2 ? scratch_below(&random, SAVE_CALLS) : 0});
        }
    }
    printf("%llu orders of two runs; %llu runs were locked out, %llu gave way\n",
           (unsigned long long)count, (unsigned long long)saver_ends[SAVER_LOCKED_OUT],
           (unsigned long long)saver_ends[SAVER_GIVES_WAY]);
    assert_true(saver_ends[SAVER_LOCKED_OUT] > 0 && saver_ends[SAVER_GIVES_WAY] > 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_scratch, close_scratch)
    const struct CMUnitTest tests[] = {
        TEST(lock_when_held_then_the_holder_alone_saves),
        TEST(lock_when_lost_then_what_came_meanwhile_stays),
        TEST(directory_when_moved_away_then_made_and_locked_again),
        TEST(lock_when_its_file_is_something_else_then_refused),
        TEST(probe_when_a_save_would_fail_then_fails),
        TEST(saver_when_another_saves_in_between_then_one_gives_way),
    };
    return cmocka_run_group_tests_name("checkpoint_savers", tests, NULL, NULL);
}
