/* What could be wrong when a rank dies or is stopped: the others notice it only where they wait for
 * it, and not in a kernel, on a slow disk, in a save, while it waits for another run to take
 * memory, while text is encoded or at the start; then the launcher has to kill them. Or long work
 * is taken for a death: one call of a save or of encoding that takes longer than the deadline. Or
 * something stays: a process (and with it the memory that ranks share, which has no name), a file
 * of the disk tier.
 *
 * Rank 0 is brought to each place by a disk made slow or a long step; then rank 1 is lost. With
 * SL_TEST_FULL every place is visited 23 times with each signal. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "command_run.h"
#include "rank_processes.h"
#include "skip.h"

enum {
    END_S = 60,       /* of a busy machine: the launcher kills after 10 s, and says so */
    SLOW_MS = 1000,   /* a call of the slow disk */
    DEADLINE_S = 3,   /* in which the ranks of a busy machine meet */
    LONGER_MS = 4000, /* a call that takes longer */
    BEATS_MS = 7000,  /* one that takes three deadlines of 2 s */
    SILENT_MS = 1200, /* one after which a person is told what goes on */
    ROUNDS_FULL = 23
};

#define SMALL                                                                                      \
    "--layers 1 --width 16 --heads 2 --context 16 --micro-batch 1 --data text --device cpu "       \
    "--threads 1 --device-memory 64M --host-memory 64M --dp 2 "
#define MODEL SMALL "--quiet "

typedef struct place {
    const char *name, *options;
    const char *slow_path; /* of the files that are slow; NULL: none */
    const char *sign;      /* files that are there when rank 0 is at the place; NULL: none are */
} place;

static const place places[] = {
    {"start", "--tokenizer byte --steps 1000000", NULL, NULL},
    {"encoding", "--tokenizer words --cache-dir cache --steps 1", "/cache/", "cache/*.tmp-*"},
    {"compute", "--tokenizer byte --accumulate 100000 --steps 2 --log-json there", NULL, "there"},
    {"disk", "--tokenizer byte --steps 1000000 --policy nvme --disk-dir tier --disk-space 64M",
     "/tier/", NULL},
    {"save", "--tokenizer byte --steps 3 --save saved --save-every 1", "/saved/", "saved/*/*"},
    {"memory", "--tokenizer byte --steps 1000000", NULL, NULL},
};

enum { PLACE_COUNT = sizeof places / sizeof places[0] };

/* A sanitizer's runtime has to be loaded before all other libraries. */
static bool can_slow_down(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return false;
#else
    return true;
#endif
}

static int begin(void **state)
{
    const char *seed = getenv("SL_TEST_SEED");
    draw = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    printf("seed %llu (SL_TEST_SEED)\n", (unsigned long long)draw);
    if (set_up(state) != 0 ||
        system("for i in $(seq 500); do echo the lock of a gate; done > text; mkdir tier") != 0)
        return -1;
    return sluice("tokenize --learn 300 --data text --tokenizer words --output words.bin");
}

/* ---- a run ---- */

static void set_slow(const char *kind, int rank, const char *path, int ms)
{
    char number[24], rank_text[24];
    snprintf(number, sizeof number, "%d", ms);
    snprintf(rank_text, sizeof rank_text, "%d", rank);
    setenv("REFUSE_KIND", kind, 1);
    setenv("REFUSE_RANK", rank_text, 1);
    setenv("SLOW_PATH", path, 1);
    setenv("SLOW_MS", number, 1);
    setenv("LD_PRELOAD", REFUSING_CALLS, 1);
}

/* What io_uring reads is not seen by a library that is loaded before. */
static void forbid_io_uring(void)
{
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof lines / sizeof lines[0], .filter = lines};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
        (void)prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static started start(const place *at, const char *more)
{
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command, "exec '%s' launch -n %d -- train " MODEL "%s %s >out 2>err",
             binary, RANKS, at->options, more);
    assert_int_equal(system("rm -rf cache saved there"), 0);
    started run = {.starter = fork()};
    assert_true(run.starter >= 0);
    if (run.starter > 0)
        return run;
    if (at->slow_path) {
        set_slow("slow", 0, at->slow_path, SLOW_MS);
        forbid_io_uring();
    }
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

/* ---- the moment ---- */

/* Its thread that watches the others is there. */
static bool has_come(pid_t rank)
{
    char command[128];
    snprintf(command, sizeof command, "cat /proc/%d/task/*/comm 2>/dev/null | grep -q sl-ranks",
             (int)rank);
    return system(command) == 0;
}

static bool is_there(const place *at, pid_t rank)
{
    char command[128];
    snprintf(command, sizeof command, "ls -d %s >/dev/null 2>&1", at->sign ? at->sign : ".");
    return has_come(rank) && system(command) == 0;
}

static void await_place(const place *at, started *run)
{
    const double start_s = now_s();
    await_ranks("SLUICE_RANK", run);
    if (strcmp(at->name, "start") != 0)
        while (!is_there(at, run->ranks[0]) || !has_come(run->ranks[1])) {
            if (now_s() - start_s > END_S) {
                kill(run->starter, SIGKILL);
                fail_msg("the run has not come to %s", at->name);
            }
            sleep_ms(10);
        }
    sleep_ms(draw_number(300));
}

/* Keeps all runs of this user from taking memory; a descriptor to be closed. */
static int hold_memory(void)
{
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/sluice-memory-%u", (unsigned)geteuid());
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    assert_true(file >= 0 && flock(file, LOCK_EX) == 0);
    return file;
}

/* ---- the end ---- */

static uint32_t count_entries(const char *directory_name)
{
    uint32_t count = 0;
    DIR *stream = opendir(directory_name);
    while (stream && readdir(stream))
        count++;
    if (stream)
        closedir(stream);
    return count;
}

static void expect_end(const place *at, const started *run, const char *const words[2])
{
    const double start_s = now_s();
    const int code = await_end(run, END_S);
    const double passed_s = now_s() - start_s;
    if (code != 75)
        fail_msg("%s: exit code %d: %s", at->name, code, complaint);
    for (int i = 0; i < 2; i++)
        if (!strstr(complaint, words[i]))
            fail_msg("%s: \"%s\" is not said: %s", at->name, words[i], complaint);
    if (strstr(complaint, "after another rank failed: killed"))
        fail_msg("%s: the other rank had to be killed: %s", at->name, complaint);
    expect_nothing_left("SLUICE_RANK");
    if (count_entries("tier") > 2)
        fail_msg("%s: files of the disk tier are left", at->name);
    print_message("%s: over after %.1f s\n", at->name, passed_s);
}

static void lose_at(const place *at, int number)
{
    static const char *const words_of_death[] = {"rank 1 was ended by signal 9", "rank 1"};
    static const char *const words_of_stop[] = {
        "has given no sign of life for 2 s (--heartbeat-timeout)", "stopped by a signal"};
    if (at->slow_path && !can_slow_down())
        return;
    const int held = strcmp(at->name, "memory") == 0 ? hold_memory() : -1;
    started run = start(at, number == SIGSTOP ? "--heartbeat-timeout 2" : "");
    await_place(at, &run);
    kill(run.ranks[1], number);
    expect_end(at, &run, number == SIGSTOP ? words_of_stop : words_of_death);
    if (held >= 0)
        close(held);
}

static void rank_when_killed_is_missed_wherever_the_others_are(void **state)
{
    (void)state;
    const int rounds = getenv("SL_TEST_FULL") ? ROUNDS_FULL : 1;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < PLACE_COUNT; i++)
            lose_at(&places[i], SIGKILL);
}

/* One that is stopped before it has come is waited for until --rank-timeout, so not at the start.
 */
static void rank_when_stopped_is_missed_after_the_deadline_of_its_heartbeat(void **state)
{
    (void)state;
    const bool is_full = getenv("SL_TEST_FULL") != NULL;
    const int rounds = is_full ? ROUNDS_FULL : 1;
    for (int round = 0; round < rounds; round++)
        for (int i = 1; i < PLACE_COUNT; i++)
            if (is_full || i == 2 || i == 4)
                lose_at(&places[i], SIGSTOP);
}

/* ---- long work is no death ---- */

static void need_slow_disk(void)
{
    if (!can_slow_down())
        skip_because("a sanitizer's runtime has to be loaded before all others");
}

/* One sync takes longer than ranks wait for one that hangs, as that of a large file on a slow disk
 * does, where the deadline is 600 s. One write takes several deadlines of the heartbeat, which are
 * 60 s: the process beats meanwhile. */
static void work_when_one_call_takes_longer_than_the_deadline_is_waited_for(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        int rank, ms;
        const char *path, *options;
    } cases[] = {
        {"slow-sync", 0, LONGER_MS, "moment2", "--tokenizer byte --save slow --save-every 1"},
        {"slow-once", 0, LONGER_MS, "/slow-cache/", "--tokenizer words --cache-dir slow-cache"},
        {"slow-once", 0, BEATS_MS, "moment2",
         "--tokenizer byte --save held --save-every 1 --heartbeat-timeout 2"}};
    need_slow_disk();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const time_t start = time(NULL);
        set_slow(cases[i].kind, cases[i].rank, cases[i].path, cases[i].ms);
        const int code = sluice("launch -n 2 -- train " MODEL "--steps 1 --rank-timeout %d %s",
                                DEADLINE_S, cases[i].options);
        unsetenv("LD_PRELOAD");
        assert_code(code, 0);
        if (1000 * (time(NULL) - start + 1) < cases[i].ms)
            fail_msg("%s of %s: the call was not held", cases[i].kind, cases[i].path);
    }
    assert_int_equal(system("ls slow/step-00000001/manifest.json held/step-00000001/manifest.json "
                            ">/dev/null"),
                     0);
}

/* A file has no live line: loads and saves of more than a second print a line of their own. */
static void run_when_its_files_take_long_then_says_so_in_a_file(void **state)
{
    (void)state;
    need_slow_disk();
    set_slow("slow-once", 0, "moment2", SILENT_MS);
    const int saved = sluice("launch -n 2 -- train " SMALL "--tokenizer byte --steps 1 --save it");
    unsetenv("LD_PRELOAD");
    assert_code(saved, 0);
    assert_has(output, "\nsaving step 1 ...\nsaved step 1 in it (");
    set_slow("slow-once", 0, "model.safetensors", SILENT_MS);
    const int loaded = sluice("launch -n 2 -- train --resume --save it --steps 2");
    unsetenv("LD_PRELOAD");
    assert_code(loaded, 0);
    assert_has(output, "loading it ...\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_when_killed_is_missed_wherever_the_others_are),
        cmocka_unit_test(rank_when_stopped_is_missed_after_the_deadline_of_its_heartbeat),
        cmocka_unit_test(work_when_one_call_takes_longer_than_the_deadline_is_waited_for),
        cmocka_unit_test(run_when_its_files_take_long_then_says_so_in_a_file),
    };
    return cmocka_run_group_tests(tests, begin, tear_down);
}
