/* What could be wrong in the command on a GPU, as a user sees it: a run that silently goes to the
 * processor, a budget that is not the device's, a wrong exit code, a checkpoint that only one
 * device can read. The command is linked to the stand-in of the CUDA runtime; everything is looked
 * at from outside. */
#define _GNU_SOURCE
#define COMMAND_LEVELS 1
#define COMMAND_NAME "/sluice-standin"
#include "command/command_run.h"

#define OFF                                                                                        \
    "--self-test off " /* it takes seconds here; test_cuda_first_use.c has what it finds           \
                        */
#define CUDA TINY "--data text --threads 2 --device cuda " OFF

static json_int_t integer_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void command_when_it_has_cuda_then_says_what_with(void **state)
{
    (void)state;
    setenv("XDG_CONFIG_HOME", work_directory, 1);
    assert_code(sluice("--version"), 0);
    assert_has(output, "cuda kernels: ");
    assert_code(sluice("doctor"), 0);
    assert_has(output, "cuda:0");
    assert_has(output, "NUMA node");
    assert_has(output, "profile, cuda:0");
    assert_has(output, "NVIDIA driver R580 or newer");
}

static void library_when_missing_then_refused_unless_own_products_are_asked_for(void **state)
{
    (void)state;
    setenv("STANDIN_NO_BLAS", "1", 1);
    assert_code(sluice("train " CUDA "--steps 1"), 71);
    assert_one_complaint("--cuda-products own");
    assert_code(sluice("train " CUDA "--steps 1 --cuda-products own"), 0);
    assert_code(sluice("doctor"), 0);
    assert_has(output, "--cuda-products own");
    unsetenv("STANDIN_NO_BLAS");
}

static void train_when_no_device_is_named_then_takes_the_gpu_and_says_so(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY OFF "--data text --threads 2 --steps 2 --log-json auto.log"),
                0);
    assert_has(output, "device  cuda:0 (");
    assert_has(output, "in bf16");
    json_t *events = read_log("auto.log");
    const json_t *config = json_object_get(json_array_get(events, 0), "config");
    assert_string_equal(json_string_value(json_object_get(config, "device")), "cuda:0");
    assert_string_equal(json_string_value(json_object_get(config, "precision")), "bf16");
    json_decref(events);
}

/* A plan by described rates says so; a type that the described GPUs lack has no rate, and what
 * ranks exchange is not in a description of one of them. */
static void machine_when_described_then_one_rank_is_planned_by_it(void **state)
{
    (void)state;
    static const char a100[] = SL_TEST_SOURCE_DIRECTORY "/../examples/machines/a100-80gb.json";
    static const char v100[] = SL_TEST_SOURCE_DIRECTORY "/../examples/clusters/v100-16gb.json";
    assert_code(sluice("plan " CUDA "--machine '%s' --explain", a100), 0);
    assert_has(output, "A100 PCIe, 80 GB, in a server, described");
    assert_has(output, "predicted by described rates");
    assert_code(sluice("plan " CUDA "--machine '%s' --precision fp16", v100), 0);
    assert_code(sluice("plan " CUDA "--machine '%s' --precision bf16", v100), 64);
    assert_one_complaint("have no bf16");
    assert_code(sluice("plan " CUDA "--machine '%s' --ranks 2 --tp 2", a100), 64);
    assert_one_complaint("plan --cluster");
}

/* Where memory is slow, copies and updates together take longest, though each alone does not. */
static void host_memory_when_slow_then_binds_by_name(void **state)
{
    (void)state;
    assert_int_equal(system("sed 's/204.8e9/1e8/' '" SL_TEST_SOURCE_DIRECTORY
                            "/../examples/machines/a100-80gb.json' >slow.json"),
                     0);
    const char *plan = "plan " CUDA "--machine slow.json --policy host --adam host";
    assert_code(sluice("%s --explain", plan), 0);
    assert_has(output, "Bound by host memory: copies and updates move ");
    assert_code(sluice("%s --compare host", plan), 0);
    assert_has(output, "  host memory\n");
}

static int count_doubts(const char *text)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, "has not been proven on this GPU")); at++)
        count++;
    return count;
}

static void run_when_on_a_gpu_then_says_once_that_the_backend_is_not_proven(void **state)
{
    (void)state;
    assert_code(sluice("train " TINY OFF "--data text --threads 2 --steps 2 --save doubted"), 0);
    assert_int_equal(count_doubts(complaint), 1);
    assert_has(complaint, "sluice doctor --self-test");
    assert_has(complaint, "--device cpu");
    assert_code(sluice("eval doubted --data text --threads 2 --device cuda --quiet"), 0);
    assert_int_equal(count_doubts(complaint), 1);
    assert_code(sluice("eval doubted --data text --threads 2 --device cpu"), 0);
    assert_int_equal(count_doubts(complaint), 0);
    assert_code(sluice("doctor"), 0);
    assert_int_equal(count_doubts(output), 1);
    assert_has(output, "sluice doctor --self-test");
}

/* Code for another GPU is found at once, so nothing else of the self-test runs. */
static void self_test_when_it_finds_a_wrong_answer_then_the_command_ends(void **state)
{
    (void)state;
    static const char *const runs[] = {"train " TINY "--data text --threads 2 --steps 1",
                                       "train " TINY "--data text --threads 2 "
                                       "--device cuda --steps 1 --self-test force",
                                       "profile " TINY "--threads 2 --device cuda",
                                       "bench --quick --threads 2 --device cuda --output rates",
                                       "launch -n 2 -- train " TINY
                                       "--data text --threads 1 --device cuda --steps 1"};
    setenv("STANDIN_IMAGE", "75", 1);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        assert_code(sluice("%s", runs[i]), 71);
        assert_has(complaint, "self-test of cuda:0");
        assert_has(complaint, "failed: image: the driver loaded code for sm_75 on a GPU of sm_90");
        assert_has(complaint, "--device cpu");
    }
    assert_code(sluice("eval doubted --data text --threads 2 --device cuda --quiet"), 0);
    assert_has(complaint, "the self-test of this GPU (Stand-in 0) failed: image");
    assert_code(sluice("train " CUDA "--steps 1"), 0);
    assert_has(complaint, "the self-test of this GPU (Stand-in 0) failed: image");
    assert_code(sluice("plan " TINY "--device cuda --threads 2"), 0);
    assert_string_equal(complaint, "");
    assert_code(sluice("train " TINY "--data text --threads 2 --device cpu --steps 1 --quiet"), 0);
    assert_string_equal(complaint, "");
    unsetenv("STANDIN_IMAGE");
    assert_int_equal(system("rm -r sluice"), 0);
}

static void log_when_states_are_on_the_host_then_counts_what_moves(void **state)
{
    (void)state;
    assert_code(sluice("train " CUDA "--policy host --steps 3 --log-json host.log"), 0);
    json_t *events = read_log("host.log");
    const json_t *plan = json_object_get(json_array_get(events, 0), "plan");
    const json_t *step = json_array_get(events, 3);
    const json_t *moves = json_object_get(plan, "moved_bytes_per_step");
    const json_t *device = json_object_get(json_object_get(plan, "tiers"), "device");
    assert_string_equal(kind_of(step), "step");
    assert_int_equal(integer_of(step, "device_bytes"), integer_of(device, "peak_bytes"));
    assert_int_equal(integer_of(step, "h2d_bytes"), integer_of(moves, "h2d"));
    assert_int_equal(integer_of(step, "d2h_bytes"), integer_of(moves, "d2h"));
    assert_true(integer_of(step, "h2d_bytes") > 0);
    json_decref(events);
}

static void plan_when_for_the_gpu_then_names_it_and_its_budget(void **state)
{
    (void)state;
    setenv("STANDIN_DEVICE_BYTES", "268435456", 1);
    assert_code(sluice("plan " CUDA "--json"), 0);
    json_t *plan = json_loads(output, 0, NULL);
    assert_non_null(plan);
    assert_true(strlen(json_string_value(json_object_get(plan, "device_name"))) > 0);
    assert_true(integer_of(plan, "device_overhead_bytes") >= 0);
    json_int_t budget =
        integer_of(json_object_get(json_object_get(plan, "tiers"), "device"), "budget_bytes");
    assert_true(budget > 128 << 20 && budget < 256 << 20); /* what is free, less a reserve */
    json_decref(plan);
    unsetenv("STANDIN_DEVICE_BYTES");
}

/* The plan refuses what the device does not hold; what a user insists on, the device refuses. */
static void device_when_too_small_then_refused_by_plan_or_by_the_device(void **state)
{
    (void)state;
    setenv("STANDIN_DEVICE_BYTES", "134217728", 1);
    assert_code(sluice("train " CUDA "--layers 8 --width 512 --policy device --steps 1"), 69);
    assert_one_complaint("the device tier");
    assert_has(complaint, "this fits: --policy host");
    assert_code(sluice("train " CUDA "--layers 8 --width 512 --policy device --steps 1 "
                       "--device-memory 2G"),
                69);
    assert_one_complaint("the device arena");
    unsetenv("STANDIN_DEVICE_BYTES");
    assert_code(sluice("train " CUDA "--device cuda:7 --steps 1"), 71);
    assert_one_complaint("--device cuda:7: ");
}

static double eval_loss(const char *options)
{
    assert_code(sluice("eval saved --data few --threads 2 --json --precision fp32 %s", options), 0);
    json_t *report = json_loads(output, 0, NULL);
    assert_non_null(report);
    double loss = json_number_value(json_object_get(report, "loss"));
    json_decref(report);
    return loss;
}

/* In fp32 both devices differ by the order of sums alone. */
static void checkpoint_when_of_the_gpu_then_read_and_continued_on_either_device(void **state)
{
    (void)state;
    assert_int_equal(system("head -c 500 text >few"), 0);
    assert_code(sluice("train " CUDA "--precision fp32 --steps 6 --save saved --save-every 3 "
                       "--cuda-epilogue off"),
                0);
    assert_int_equal(system("grep -q '\"cuda_epilogue\": *\"off\"' saved/step-*/manifest.json"), 0);
    assert_int_equal(system("grep -q 'cuda, .*; .*fp32' saved/step-*/manifest.json"), 0);
    double cuda = eval_loss("--device cuda"), cpu = eval_loss("--device cpu");
    assert_true(fabs(cuda - cpu) < 1e-5 * cpu);
    assert_true(eval_loss("--device cuda --policy host") == cuda);
    const char *generate = "generate saved --prompt 'the lock' --tokens 12 --temperature 0 "
                           "--threads 2 --precision fp32";
    assert_code(sluice("%s --device cuda", generate), 0);
    char on_cuda[256];
    snprintf(on_cuda, sizeof on_cuda, "%.255s", output);
    assert_code(sluice("%s --device cuda --policy host", generate), 0);
    assert_string_equal(output, on_cuda);
    assert_has(on_cuda, "the lock");
    assert_code(sluice("train --data text --threads 2 --micro-batch 2 --device cpu --save saved "
                       "--resume --steps 8"),
                0);
    assert_code(sluice("train --data text --threads 2 --micro-batch 2 --device cuda " OFF
                       "--save saved "
                       "--resume --steps 10"),
                0);
    assert_has(output, "saved step 10");
    assert_int_equal(system("grep -q '\"cuda_epilogue\": *\"off\"' \"$(ls -d saved/step-* | tail "
                            "-n 1)/manifest.json\""),
                     0); /* once given, taken over */
}

/* ---- algorithms of products ---- */

#define RESUME "train --save kept --resume --data text --threads 2 " OFF
#define FP32 CUDA "--precision fp32 --micro-batch 2 --accumulate 1 "

static bool has_line(const char *file, const char *text)
{
    char command[256];
    snprintf(command, sizeof command, "grep -q -e '%s' %s", text, file);
    return system(command) == 0;
}

/* The losses of a log as they are written, one a line. */
static char *losses_of(const char *log)
{
    size_t bytes = 0;
    char *text = NULL;
    FILE *stream = open_memstream(&text, &bytes);
    json_t *events = read_log(log), *event;
    size_t i;
    json_array_foreach(events, i, event) if (json_object_get(event, "loss"))
        fprintf(stream, "%lld %.17g\n", (long long)integer_of(event, "step"),
                json_number_value(json_object_get(event, "loss")));
    json_decref(events);
    assert_int_equal(fclose(stream), 0);
    return text;
}

/* Algorithm 1 of the stand-in has bits of its own, so losses tell which one computed. */
static void algorithms_when_timed_then_kept_for_runs_and_by_their_checkpoints(void **state)
{
    (void)state;
    static const char kept[] = "sluice/algorithms-cuda.txt";
    setenv("STANDIN_BLAS_OFFERS", "3", 1);
    assert_code(sluice("train " FP32 "--steps 4 --log-json first.log"), 0);
    char *first = losses_of("first.log");
    setenv("STANDIN_BLAS_FASTEST", "1", 1);
    assert_code(sluice("profile " FP32 "--time-algorithms --profile-steps 1"), 0);
    unsetenv("STANDIN_BLAS_FASTEST");
    assert_has(complaint, kept);
    assert_true(has_line(kept, "^Stand-in 0, .* multiprocessors; cuda, cuBLASLt for tests$"));
    assert_true(has_line(kept, " fp32 to fp32 .*: algorithm 110,"));
    assert_code(sluice("train " FP32 "--steps 4 --save kept --save-every 2 --log-json kept.log"),
                0);
    char *with = losses_of("kept.log");
    assert_string_not_equal(with, first);
    assert_true(has_line("kept/step-00000002/manifest.json", "\"algorithms\": .*algorithm 110,"));
    assert_true(has_line("kept/step-00000002/manifest.json", "\"gemm\": .*algorithm 110,"));
    assert_int_equal(system("rm -r sluice kept/step-00000004"), 0);
    assert_code(sluice(RESUME "--log-json again.log"), 0);
    assert_null(strstr(complaint, "algorithms"));
    char *again = losses_of("again.log");
    assert_non_null(strstr(with, again)); /* the end of it */
    assert_true(strlen(again) > 0);
    free(first);
    free(with);
    free(again);
}

/* In the checkpoint of the test before. */
static void algorithms_when_of_another_library_then_said(void **state)
{
    (void)state;
    setenv("STANDIN_BLAS_OFFERS", "1", 1);
    assert_code(sluice(RESUME "--steps 6"), 0);
    assert_has(complaint, "does not offer an algorithm of the list");
    setenv("STANDIN_BLAS_OFFERS", "3", 1);
    setenv("STANDIN_BLAS_VERSION", "cuBLASLt 14.0.0", 1);
    assert_code(sluice(RESUME "--steps 8"), 0);
    assert_has(complaint, "of another GPU or library");
    assert_has(complaint, "cuBLASLt 14.0.0");
    assert_null(strstr(complaint, "does not offer"));
    assert_true(has_line("kept/step-00000008/manifest.json", "\"algorithms\": .*cuBLASLt 14"));
    unsetenv("STANDIN_BLAS_VERSION");
    assert_code(sluice("profile " FP32 "--time-algorithms --cuda-products own --profile-steps 1"),
                64);
    assert_one_complaint("--time-algorithms");
    unsetenv("STANDIN_BLAS_OFFERS");
}

/* Other shapes stand beside those that are there; what is no list of this GPU counts for nothing.
 */
static void algorithms_when_of_two_shapes_then_both_are_kept(void **state)
{
    (void)state;
    static const char kept[] = "sluice/algorithms-cuda.txt";
    setenv("STANDIN_BLAS_OFFERS", "2", 1);
    assert_int_equal(system("mkdir -p sluice && printf 'Other, 1 multiprocessors; none\\n"
                            "9x9x9 fp32 to fp32 NN, aligned 16 16 16: algorithm 1, x\\n' >"
                            "sluice/algorithms-cuda.txt"),
                     0);
    assert_code(sluice("profile " FP32 "--time-algorithms --profile-steps 1 --seq 12"), 0);
    assert_false(has_line(kept, "9x9x9"));
    assert_true(has_line(kept, "^24x")); /* rows of a micro-batch */
    assert_code(sluice("profile " FP32 "--time-algorithms --profile-steps 1 --seq 8"), 0);
    assert_true(has_line(kept, "^24x"));
    assert_true(has_line(kept, "^16x"));
    assert_int_equal(system("rm -r sluice"), 0);
    unsetenv("STANDIN_BLAS_OFFERS");
}

/* Somebody's text in the place of the list, and one that is too large to be read. */
static void list_when_it_cannot_be_read_then_stays_and_nothing_is_timed(void **state)
{
    (void)state;
    static const char *const files[] = {"printf 'what I wrote\\n'", "head -c 1048577 /dev/zero"};
    setenv("STANDIN_BLAS_OFFERS", "2", 1);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char make[128];
        snprintf(make, sizeof make, "mkdir -p sluice && %s | tee mine >sluice/algorithms-cuda.txt",
                 files[i]);
        assert_int_equal(system(make), 0);
        assert_code(sluice("profile " FP32 "--time-algorithms --profile-steps 1"), 65);
        assert_has(complaint, "algorithms-cuda.txt");
        assert_has(complaint, "stays as it is");
        assert_null(strstr(complaint, "warm-up"));
        assert_code(sluice("bench --device cuda --only product " OFF), 65);
        assert_has(complaint, "stays as it is");
        assert_code(sluice("train " FP32 "--steps 1"), 0);
        assert_has(complaint, "first algorithms, because the list of algorithms cannot be read");
        assert_int_equal(system("cmp mine sluice/algorithms-cuda.txt"), 0);
    }
    assert_int_equal(system("rm -r sluice"), 0);
    unsetenv("STANDIN_BLAS_OFFERS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_when_it_has_cuda_then_says_what_with),
        cmocka_unit_test(library_when_missing_then_refused_unless_own_products_are_asked_for),
        cmocka_unit_test(train_when_no_device_is_named_then_takes_the_gpu_and_says_so),
        cmocka_unit_test(machine_when_described_then_one_rank_is_planned_by_it),
        cmocka_unit_test(host_memory_when_slow_then_binds_by_name),
        cmocka_unit_test(run_when_on_a_gpu_then_says_once_that_the_backend_is_not_proven),
        cmocka_unit_test(self_test_when_it_finds_a_wrong_answer_then_the_command_ends),
        cmocka_unit_test(log_when_states_are_on_the_host_then_counts_what_moves),
        cmocka_unit_test(plan_when_for_the_gpu_then_names_it_and_its_budget),
        cmocka_unit_test(device_when_too_small_then_refused_by_plan_or_by_the_device),
        cmocka_unit_test(checkpoint_when_of_the_gpu_then_read_and_continued_on_either_device),
        cmocka_unit_test(algorithms_when_timed_then_kept_for_runs_and_by_their_checkpoints),
        cmocka_unit_test(algorithms_when_of_another_library_then_said),
        cmocka_unit_test(algorithms_when_of_two_shapes_then_both_are_kept),
        cmocka_unit_test(list_when_it_cannot_be_read_then_stays_and_nothing_is_timed),
    };
    return cmocka_run_group_tests_name("cuda command", tests, set_up, tear_down);
}
