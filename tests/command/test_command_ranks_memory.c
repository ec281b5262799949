/* What could be wrong here: a rank takes more than its plan says: the whole model when it starts,
 * what others keep, a copy in each rank of what is exchanged or saved. Every case runs the built
 * command, saves, goes on from that, and looks at each rank's proportional set size (its share of
 * what several of them map) from its start to its end. The peaks that the engine measured are the
 * planned ones to the byte, over all ranks.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#include "command_run.h"
#include "skip.h"

enum { RANKS = 4, SPARE_BYTES = 32 << 20 /* code, libraries, heap: less than the model in fp32 */ };

/* 11.8 million parameters: 45 MiB in fp32, 180 MiB with states and gradients. */
#define MODEL                                                                                      \
    "--layers 2 --width 256 --heads 4 --context 32 --vocab 40000 --micro-batch 1 --data text "     \
    "--device cpu --threads 1 --device-memory 500M --host-memory 500M --save kept --keep 1 "       \
    "--resume --quiet --log-json log "

static bool has_sanitizer(void)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    return true;
#else
    return false;
#endif
}

/* 0: it has ended. */
static uint64_t read_share(long process)
{
    char path[64], line[256];
    unsigned long long kib = 0;
    snprintf(path, sizeof path, "/proc/%ld/smaps_rollup", process);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Pss: %llu kB", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib << 10;
}

/* Of the ranks of a launcher, the largest. */
static uint64_t sample_ranks(pid_t launcher)
{
    char path[64];
    long process;
    uint64_t most = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%ld", &process) == 1) {
        const uint64_t share = read_share(process);
        most = share > most ? share : most;
    }
    if (file)
        fclose(file);
    return most;
}

/* Runs RANKS ranks to their end; the largest set that any of them had. */
static uint64_t watch_ranks(const char *options)
{
    char command[COMMAND_BYTES + PATH_BYTES];
    const struct timespec pause = {0, 10000000};
    uint64_t most = 0, samples = 0;
    int state;
    snprintf(command, sizeof command,
             "exec timeout -k 1 %u '%s' launch -n %d -- train " MODEL "%s >out 2>err </dev/null",
             limit_s, binary, RANKS, options);
    const pid_t starter = fork();
    assert_true(starter >= 0);
    if (starter == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    while (waitpid(starter, &state, WNOHANG) == 0) {
        char path[64];
        long launcher = 0;
        snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)starter, (int)starter);
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%ld", &launcher) == 1) {
            const uint64_t share = sample_ranks((pid_t)launcher);
            most = share > most ? share : most;
            samples += share > 0;
        }
        if (file)
            fclose(file);
        nanosleep(&pause, NULL);
    }
    read_text("err", complaint);
    assert_code(WEXITSTATUS(state), 0);
    if (samples < 10)
        skip_because("/proc says nothing of children, or of what they map");
    return most;
}

/* What a rank plans of memory: arenas of device and host, and its windows. */
static uint64_t find_planned(void)
{
    json_t *events = read_log("log"), *event;
    json_int_t window = 0, planned[3] = {0}, measured[3] = {0};
    size_t index;
    json_array_foreach(events, index, event)
    {
        if (strcmp(kind_of(event), "start") == 0)
            window =
                json_integer_value(json_object_get(json_object_get(event, "plan"), "window_bytes"));
        static const char *const tiers[] = {"device", "host", "disk"};
        for (int i = 0; i < 3 && strcmp(kind_of(event), "end") == 0; i++)
            json_unpack(event, "{s:{s:{s:I, s:I}}}", "tiers", tiers[i], "planned_peak_bytes",
                        &planned[i], "measured_peak_bytes", &measured[i]);
    }
    json_decref(events);
    for (int i = 0; i < 3; i++)
        assert_int_equal(planned[i], measured[i]);
    assert_true(window > 0 && planned[0] > 0);
    return (uint64_t)(window + planned[0] + planned[1]);
}

static void check_memory(const char *options, int steps)
{
    char words[512];
    snprintf(words, sizeof words, "%s --steps %d", options, steps);
    const uint64_t most = watch_ranks(words), planned = find_planned();
    print_message("%s: %.1f MiB, planned %.1f MiB\n", words, (double)most / (1 << 20),
                  (double)planned / (1 << 20));
    assert_true(most > planned / 2); /* it is the ranks that were looked at */
    if (most > planned + SPARE_BYTES)
        fail_msg("%s: a rank has %llu bytes, and plans %llu", words, (unsigned long long)most,
                 (unsigned long long)planned);
}

static void ranks_when_they_share_a_model_take_what_they_plan(void **state)
{
    (void)state;
    static const char *const ways[] = {
        "--zero 3 --policy nvme --disk-dir disk --nvme-params 1 --nvme-grads 1 --recompute full",
        "--tp 2 --zero 2 --policy device --precision bf16", "--pp 2 --zero 3 --accumulate 2",
        "--zero 3 --policy host --precision bf16"};
    if (has_sanitizer())
        skip_because("a sanitizer takes memory of its own");
    mkdir("disk", 0700);
    const size_t count = getenv("SL_TEST_FULL") ? sizeof ways / sizeof ways[0] : 1;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(system("rm -rf kept log"), 0);
        check_memory(ways[i], 1);
        check_memory(ways[i], 2); /* from a checkpoint */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_when_they_share_a_model_take_what_they_plan),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
