/* What could be wrong where the system refuses something to one rank of several, in the midst of
 * what all do together: it ends alone, and the others wait for it until their deadline, which is a
 * minute here; the code is none of the documented ones; nobody says what was refused; or the last
 * checkpoint is not whole. Each kind of call of one rank is refused once, from its start to its
 * last save: some of them, drawn, or all of them in full.
 * Where a step is not finite for all of them, one ends with another code than the rest. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <time.h>

#include "command_run.h"
#include "scratch_dir.h"
#include "skip.h"

enum { CALLS_DRAWN = 5, PATIENCE_S = 60 };

#define TRAIN                                                                                      \
    TINY                                                                                           \
        "--accumulate 2 --vocab 300 --data text --tokenizer byte --lr 0.01 --chunk-size 8192 "     \
        "--threads 1 --steps 2 --save saved --save-every 1 --overwrite --quiet --rank-timeout 60 " \
        "--device-memory 64M --host-memory 64M "

static const char *const layouts[] = {
    "-n 2 -- train " TRAIN "--pp 2",
    "-n 2 -- train " TRAIN "--tp 2 --optimizer muon",
    "-n 2 -- train " TRAIN "--zero 3 --optimizer lion --state-type int8",
    "-n 2 -- train " TRAIN "--zero 2 --policy nvme --disk-dir . --disk-space 64M --optimizer muon",
    "-n 4 -- train " TRAIN "--tp 2 --pp 2",
};
static const char *const kinds[] = {"memory", "read", "write"};

static void need_preloading(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("a sanitizer's runtime has to be loaded before all others");
#endif
}

static int begin(void **state)
{
    if (set_up(state) != 0)
        return -1;
    return system("for i in $(seq 500); do echo the lock of a gate; done > text");
}

static int launch(const char *layout, const char *kind, int rank, long at)
{
    char words[COMMAND_BYTES], number[24], rank_text[24];
    snprintf(number, sizeof number, "%ld", at);
    snprintf(rank_text, sizeof rank_text, "%d", rank);
    setenv("REFUSE_KIND", kind, 1);
    setenv("REFUSE_RANK", rank_text, 1);
    setenv("REFUSE_AT", number, 1);
    setenv("REFUSE_COUNT", "count", 1);
    setenv("LD_PRELOAD", REFUSING_CALLS, 1);
    snprintf(words, sizeof words, "launch %s", layout);
    const int code = sluice("%s", words);
    unsetenv("LD_PRELOAD");
    return code;
}

static long count_calls(const char *layout, const char *kind, int rank)
{
    char text[TEXT_BYTES];
    assert_code(launch(layout, kind, rank, 0), 0);
    read_text("count", text);
    return strtol(text, NULL, 10);
}

static bool is_documented(int code)
{
    return code == 0 || code == 69 || code == 71 || code == 74 || code == 75;
}

static void refuse(const char *layout, const char *kind, int rank, long at)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    const int code = launch(layout, kind, rank, at);
    clock_gettime(CLOCK_MONOTONIC, &end);
    const bool is_told = code == 0 || strstr(complaint, "sluice: ") != NULL;
    if (strstr(complaint, "after another rank failed: killed"))
        fail_msg("%s: %s call %ld of rank %d refused: others waited until they were killed: %s",
                 layout, kind, at, rank, complaint);
    if (!is_documented(code) || !is_told || end.tv_sec - start.tv_sec >= PATIENCE_S)
        fail_msg("%s: %s call %ld of rank %d refused: code %d after %ld s: %s", layout, kind, at,
                 rank, code, (long)(end.tv_sec - start.tv_sec), complaint);
    if (system("[ ! -e saved/LATEST ]") != 0)
        assert_code(sluice("eval saved --data text --seq 8 --threads 1 --quiet"), 0);
}

static void calls_of_one_rank_when_refused_then_all_end_at_once(void **state)
{
    (void)state;
    need_preloading();
    uint64_t draw = scratch_seed("calls", 1), refused = 0;
    const bool is_full = getenv("SL_TEST_FULL") != NULL;
    for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            const int rank = (int)((l + k) % 2);
            const long calls = count_calls(layouts[l], kinds[k], rank);
            const long drawn = is_full ? 40L * CALLS_DRAWN : CALLS_DRAWN;
            for (long i = 0; i < (calls < drawn ? calls : drawn); i++, refused++)
                refuse(layouts[l], kinds[k], rank,
                       calls < drawn ? i + 1 : 1 + (long)scratch_below(&draw, (uint64_t)calls));
        }
    print_message("%d calls refused\n", (int)refused);
    assert_true(refused > 0);
}

/* ---- what one rank of a machine does for the others ---- */

#define PLAIN                                                                                      \
    TINY "--vocab 300 --lr 0.01 --threads 1 --device-memory 64M --host-memory 64M --quiet "

/* Reads of a rank that would have to read MIBS of text, a MiB at a time; from an empty cache. */
static long count_reads(int rank, bool is_cold)
{
    if (is_cold)
        assert_int_equal(system("rm -rf ids"), 0);
    return count_calls("-n 2 -- train " PLAIN "--data large --document-per line --tokenizer byte "
                       "--cache-dir ids --steps 1",
                       "read", rank);
}

static void text_when_ranks_share_a_machine_is_read_by_one(void **state)
{
    (void)state;
    enum { MIBS = 12 };
    need_preloading();
    char command[COMMAND_BYTES];
    snprintf(command, sizeof command, "yes the lock of a gate | head -c %dM > large", MIBS);
    assert_int_equal(system(command), 0);
    for (int is_cold = 1; is_cold >= 0; is_cold--) {
        const long maker = count_reads(0, is_cold), other = count_reads(1, is_cold);
        print_message("%s: %ld reads and %ld\n", is_cold ? "made" : "found", maker, other);
        assert_true(other + MIBS <= maker);
    }
    assert_int_equal(unlink("large"), 0);
}

/* ---- calls that are interrupted ---- */

static void calls_when_interrupted_for_ever_end_the_run(void **state)
{
    (void)state;
    const char *words = "-n 1 -- train " PLAIN "--data text --tokenizer byte --steps 2 "
                        "--save interrupted --overwrite";
    need_preloading();
    const long calls = count_calls(words, "read", 0) + count_calls(words, "write", 0);
    limit_s = 20;
    for (int i = 1; i <= 4; i++) {
        assert_code(launch(words, "interrupt", 0, calls * i / 6), 74);
        assert_has(complaint, "Interrupted system call");
    }
    limit_s = 250;
}

/* A temporary file has no name: its directory has the part of the name that is looked for. */
static void files_when_their_calls_are_interrupted_for_ever_end_the_run(void **state)
{
    (void)state;
    static const struct {
        const char *words, *complaint;
    } cases[] = {
        {"--log-json cut/log", "cut/log: Interrupted system call"},
        {"--report cut/page.html", "cut/page.html: Interrupted system call; it is not whole"},
        {"--timeline cut/line", "cut/line: Interrupted system call; it is not whole"},
        {"--save cut/saved", "cannot be locked: Interrupted system call"},
        {"--policy nvme --disk-dir cut --disk-space 64M", "Interrupted system call"},
    };
    need_preloading();
    assert_int_equal(system("mkdir -p cut"), 0);
    setenv("SLOW_PATH", "/cut/", 1);
    limit_s = 20;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[COMMAND_BYTES];
        snprintf(words, sizeof words,
                 "-n 1 -- train " PLAIN "--data text --tokenizer byte --steps 2 %s",
                 cases[i].words);
        assert_code(launch(words, "interrupt-file", 0, 0), 74);
        assert_has(complaint, cases[i].complaint);
    }
    limit_s = 250;
}

/* A page that cannot be read is not known to be the run's, so it is left alone. */
static void page_when_its_reads_are_interrupted_for_ever_stays(void **state)
{
    (void)state;
    need_preloading();
    assert_int_equal(system("mkdir -p read"), 0);
    assert_code(sluice("train " PLAIN "--data text --tokenizer byte --steps 1 --save again "
                       "--report read/page.html"),
                0);
    assert_int_equal(system("cp read/page.html page"), 0);
    setenv("SLOW_PATH", "/read/", 1);
    limit_s = 20;
    assert_code(launch("-n 1 -- train --resume --save again --steps 2", "interrupt-read", 0, 0), 0);
    limit_s = 250;
    assert_has(complaint, "page.html");
    assert_int_equal(system("cmp page read/page.html"), 0);
}

/* ---- numbers that are not finite ---- */

/* Updates of the step that failed are still on their way when the run is closed. */
static void ranks_when_a_step_is_not_finite_then_all_stop_with_76(void **state)
{
    (void)state;
    static const char *const ways[] = {"--pp 2", "--tp 2", "--zero 3", "--zero 1 --policy host"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        for (int again = 0; again < 3; again++) {
            assert_code(sluice("launch -n 2 -- train " TINY
                               "--vocab 300 --data text --tokenizer byte "
                               "--lr 1e30 --clip 0 --accumulate 2 --threads 1 --steps 30 --quiet "
                               "--nonfinite stop %s",
                               ways[i]),
                        76);
            assert_has(complaint, "not finite, and nothing of this step was saved");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_one_rank_when_refused_then_all_end_at_once),
        cmocka_unit_test(text_when_ranks_share_a_machine_is_read_by_one),
        cmocka_unit_test(calls_when_interrupted_for_ever_end_the_run),
        cmocka_unit_test(files_when_their_calls_are_interrupted_for_ever_end_the_run),
        cmocka_unit_test(page_when_its_reads_are_interrupted_for_ever_stays),
        cmocka_unit_test(ranks_when_a_step_is_not_finite_then_all_stop_with_76),
    };
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1); /* no profile that this machine may have */
    return cmocka_run_group_tests(tests, begin, tear_down);
}
