/* The self-test of exchanges over NCCL (session/exchange_proof.h). What could be wrong: one changed
 * bit, a lost tail, parts in another order, data of an earlier exchange or a write beside the
 * target pass unseen, or are blamed on another exchange, size, rank, GPU or host, or on a rank that
 * does not exist; one rank alone ends; it runs each time, or not again where GPUs, NCCL, driver or
 * layout are others; too little memory ends a run. Ranks are threads with a device each, over the
 * stand-ins of CUDA and NCCL. */
#define _GNU_SOURCE
#include "gpu_ranks_case.h"

#include "base/log.h"
#include "session/exchange_proof.h"

enum { SMALL = 67, LARGE = 1500, LINES_BYTES = 1 << 14 };

static scratch_path home;
static char lines[LINES_BYTES];
static sl_exchange_proof_args args;
static sl_status statuses[RANKS_MAX];
static char messages[RANKS_MAX][SL_STATUS_MESSAGE_BYTES];

static void keep_line(void *user, sl_log_level level, const char *line)
{
    const size_t length = strlen(lines);
    (void)user;
    snprintf(lines + length, sizeof lines - length, "%c %s\n", level == SL_LOG_WARNING ? 'W' : 'N',
             line);
}

/* The failure of a rank is kept, and others may have one, too. */
static void *prove_rank(void *argument)
{
    run_rank *it = argument;
    (void)divide_rank(it);
    if (it->status != SL_OK)
        return NULL;
    statuses[it->rank] = sl_exchange_proof_run(&it->others, &args);
    snprintf(messages[it->rank], sizeof messages[it->rank], "%s",
             statuses[it->rank] == SL_OK ? "" : sl_status_message());
    return NULL;
}

/* All ranks have one status, and one message. */
static sl_status prove(uint32_t tp, uint32_t dp, uint32_t pp)
{
    ranks_run *run = calloc(1, sizeof *run);
    sl_comm *ends[RANKS_MAX];
    *run = (ranks_run){.size = tp * dp * pp, .tp = tp, .dp = dp, .pp = pp, .factor = 1};
    *lines = '\0';
    assert_int_equal(sl_comm_threads_open(run->size, ends), SL_OK);
    for (uint32_t rank = 0; rank < run->size; rank++) {
        run->rank[rank] = (run_rank){.run = run, .rank = rank};
        sl_ranks_adopt(ends[rank], &run->rank[rank].others);
    }
    run_all(run, prove_rank);
    for (uint32_t rank = 0; rank < run->size; rank++) {
        assert_int_equal(statuses[rank], statuses[0]);
        assert_string_equal(messages[rank], messages[0]);
    }
    for (uint32_t rank = 0; rank < run->size; rank++)
        sl_ranks_close(&run->rank[rank].others);
    free(run);
    return statuses[0];
}

static void start(const nccl_standin *how)
{
    start_machine(RANKS_MAX, 0, how);
}

static int open_case(void **state)
{
    begin(state);
    args = (sl_exchange_proof_args){
        .mode = SL_CONFIG_SELF_TEST_AUTO, .small_elements = SMALL, .large_elements = LARGE};
    home = scratch_open();
    setenv("XDG_CONFIG_HOME", home.text, 1);
    sl_log_set_callback(keep_line, NULL);
    return 0;
}

static int close_case(void **state)
{
    sl_log_set_callback(NULL, NULL);
    scratch_close(&home);
    return end(state);
}

/* ---- right answers, and the record ---- */

static void exchanges_when_right_then_pass_in_every_layout(void **state)
{
    (void)state;
    static const uint32_t layouts[][3] = {{2, 1, 1}, {1, 3, 1}, {1, 1, 3}, {2, 2, 1}};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        if (prove(layouts[i][0], layouts[i][1], layouts[i][2]) != SL_OK)
            fail_msg("%s", messages[0]);
        assert_non_null(strstr(lines, "self-test of NCCL 2.21.5: no wrong answer"));
    }
}

static bool is_tested(uint32_t tp, uint32_t dp)
{
    assert_int_equal(prove(tp, dp, 1), SL_OK);
    return strstr(lines, "no wrong answer") != NULL;
}

static void proof_when_kept_then_runs_again_for_others_alone(void **state)
{
    (void)state;
    args.mode = SL_CONFIG_SELF_TEST_OFF;
    assert_false(is_tested(2, 1));
    args.mode = SL_CONFIG_SELF_TEST_AUTO;
    assert_true(is_tested(2, 1));
    assert_non_null(strstr(lines, "not tested yet with this driver and this build"));
    assert_false(is_tested(2, 1));
    assert_string_equal(strstr(lines, "self-test") ? lines : "", "");
    assert_true(is_tested(1, 2)); /* another layout */
    assert_true(is_tested(3, 1)); /* another GPU */
    args.mode = SL_CONFIG_SELF_TEST_FORCE;
    assert_true(is_tested(2, 1));
    assert_non_null(strstr(lines, "as asked for"));
    args.mode = SL_CONFIG_SELF_TEST_AUTO;
    nccl_standin_reset(&(nccl_standin){.version = 22203});
    assert_true(is_tested(2, 1));
    assert_non_null(strstr(lines, "NCCL 2.22.3"));
}

static void record_when_it_cannot_be_kept_then_says_so_and_goes_on(void **state)
{
    (void)state;
    unsetenv("XDG_CONFIG_HOME");
    char *kept = strdup(getenv("HOME") ? getenv("HOME") : "/");
    unsetenv("HOME");
    assert_true(is_tested(2, 1));
    assert_non_null(strstr(lines, "W the result of the self-test of NCCL is not kept"));
    setenv("HOME", kept, 1);
    free(kept);
}

static void memory_when_too_little_then_warns_and_goes_on(void **state)
{
    (void)state;
    args.large_elements = 1 << 26; /* 512 MiB and scratch, of 256 MiB */
    assert_false(is_tested(2, 1));
    assert_non_null(strstr(lines, "W self-test of NCCL 2.21.5: not tested: "));
}

/* ---- wrong answers ---- */

typedef struct planted {
    uint32_t tp, dp, pp;
    nccl_standin how;
    const char *says[4];
} planted;

/* Bytes of messages that only gathers, only exchanges have; half of PART_OF_3 has reduce_scatter,
 * too. */
enum {
    PART_OF_2 = LARGE / 2 * 4,
    PART_OF_3 = LARGE / 3 * 4,
    THIRD_OF_2 = LARGE / 2 / 3 * 4,
    THIRD_OF_3 = LARGE / 3 / 3 * 4,
    FIRST_PIECE = 64 * 4 /* of a sum of SMALL elements in fp32, of rank 0 */
};

#define UUID "7374616e-642d-696e-2047-50550000000" /* of a stand-in, but for its number */

static const planted all_planted[] = {
    /* A lost tail: of sums, of gathers, of stages; the last element of the part alone. */
    {1, 2, 1, {.fault = NCCL_CUTS, .fault_rank = 1}, {"all_reduce of 67 elements in fp32"}},
    {1,
     2,
     1,
     {.fault = NCCL_CUTS, .fault_rank = 1, .fault_bytes = PART_OF_2},
     {"gather of 1500 elements in fp32", "among ranks 0, 1: wrong on rank 0 (GPU " UUID "0 on ",
      ": 1 elements, numbers 1499 to 1499; ", "the first, from rank 1 (GPU " UUID "1 on "}},
    {1,
     1,
     3,
     {.fault = NCCL_CUTS, .fault_rank = 1, .fault_bytes = THIRD_OF_3},
     {"exchange of 1500 elements in fp32", "among ranks 0, 1, 2: wrong on rank 0 (GPU ",
      ": 2 elements, ", "the first, from rank 1 (GPU "}},
    /* Parts in another order. */
    {1,
     3,
     1,
     {.fault = NCCL_SWAPS, .fault_rank = 1, .fault_bytes = PART_OF_3},
     {"gather of 1500 elements in fp32", "wrong on rank 1 (GPU ",
      ": 1000 elements, numbers 0 to 1499; ", "the first, from rank 0 (GPU "}},
    /* What one rank sent before. */
    {1, 2, 1, {.fault = NCCL_STALE, .fault_rank = 1}, {"all_reduce of 67 elements in "}},
    {1,
     3,
     1,
     {.fault = NCCL_STALE, .fault_rank = 2, .fault_bytes = PART_OF_3 / 2},
     {"reduce_scatter of 1500 elements in fp16", "wrong on rank 0 (GPU "}},
    {1,
     1,
     2,
     {.fault = NCCL_STALE, .fault_rank = 0, .fault_bytes = THIRD_OF_2},
     {"exchange of 1500 elements in fp32", "among ranks 0, 1: wrong on rank 1 (GPU ",
      ": 250 elements, ", "the first, from rank 0 (GPU "}},
    /* A write in front of what is exchanged; behind it; where a neighbour's data would come, which
     * the last rank does not have. */
    {1,
     2,
     1,
     {.fault = NCCL_STRAYS, .fault_rank = 1, .fault_bytes = FIRST_PIECE, .fault_distance = -4},
     {"all_reduce of 67 elements in fp32", "wrong on rank 1 (GPU ",
      ": 1 elements beside what is exchanged, numbers -1 to -1; the first has the bits "}},
    {1,
     2,
     1,
     {.fault = NCCL_STRAYS, .fault_rank = 0, .fault_bytes = PART_OF_2, .fault_distance = PART_OF_2},
     {"gather of 1500 elements in fp32", "wrong on rank 0 (GPU ",
      ": 1 elements beside what is exchanged, numbers 1500 to 1500; the first has the bits "}},
    {1,
     1,
     2,
     {.fault = NCCL_STRAYS,
      .fault_rank = 1,
      .fault_bytes = THIRD_OF_2,
      .fault_distance = 4 * THIRD_OF_2},
     {"exchange of 1500 elements in fp32", "wrong on rank 1 (GPU ",
      ": 2 elements, numbers 1000 to 1500; the first has the bits "}},
};

static void check_named(const char *part, const char *message)
{
    if (!strstr(message, part))
        fail_msg("\"%s\" is not in \"%s\"", part, message);
}

static void answer_when_wrong_then_all_ranks_end_and_all_is_named(void **state)
{
    (void)state;
    char host[128] = "";
    gethostname(host, sizeof host - 1);
    for (size_t i = 0; i < sizeof all_planted / sizeof all_planted[0]; i++) {
        const planted *it = &all_planted[i];
        start(&it->how);
        if (prove(it->tp, it->dp, it->pp) != SL_ERROR_SYSTEM)
            fail_msg("fault %d: %s; %u messages were spoiled", (int)i, messages[0],
                     nccl_standin_fault_count());
        for (int s = 0; s < 4 && it->says[s]; s++)
            check_named(it->says[s], messages[0]);
        check_named("the self-test of NCCL 2.21.5 failed: ", messages[0]);
        check_named(host, messages[0]);
        check_named("--device cpu works without it, and --self-test off", messages[0]);
    }
    start(&(nccl_standin){.seed = 1}); /* right again: what failed is tried anew */
    assert_true(is_tested(1, 3));
}

/* Both phases of each sum, in each type, gathers and exchanges: in whatever kernel one bit changes,
 * it is found. The first kernel of each rank is the meeting's, whose data nobody uses. */
static void bit_when_changed_in_any_kernel_then_is_found(void **state)
{
    (void)state;
    enum { RANKS = 3, STRIDE = 19 };
    args.mode = SL_CONFIG_SELF_TEST_FORCE;
    args.is_exact = true;
    start(&(nccl_standin){.seed = 1});
    assert_int_equal(prove(1, RANKS, 1), SL_OK);
    const uint32_t kernels = nccl_standin_kernel_count();
    uint32_t found = 0;
    for (uint32_t n = RANKS + 1; n <= kernels; n += is_full() ? 1 : STRIDE) {
        start(&(nccl_standin){.seed = n, .fault = NCCL_FLIPS, .fault_kernel = n});
        const bool is_found = prove(1, RANKS, 1) == SL_ERROR_SYSTEM;
        if (is_found != (nccl_standin_fault_count() > 0))
            fail_msg("kernel %u of %u: %u messages spoiled, \"%s\"", n, kernels,
                     nccl_standin_fault_count(), messages[0]);
        found += is_found;
    }
    assert_true(found > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(exchanges_when_right_then_pass_in_every_layout, open_case,
                                        close_case),
        cmocka_unit_test_setup_teardown(proof_when_kept_then_runs_again_for_others_alone, open_case,
                                        close_case),
        cmocka_unit_test_setup_teardown(record_when_it_cannot_be_kept_then_says_so_and_goes_on,
                                        open_case, close_case),
        cmocka_unit_test_setup_teardown(memory_when_too_little_then_warns_and_goes_on, open_case,
                                        close_case),
        cmocka_unit_test_setup_teardown(answer_when_wrong_then_all_ranks_end_and_all_is_named,
                                        open_case, close_case),
        cmocka_unit_test_setup_teardown(bit_when_changed_in_any_kernel_then_is_found, open_case,
                                        close_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
