/* What could be wrong here: ranks that are processes compute something else than ranks that are
 * threads, with which nearly all tests of ranks are made: an environment, a file descriptor, a
 * mapping or a start of its own changes who has which rows, layers or parts, or how sums are made.
 *
 * Each case trains twice with the same options: the built command under a starter, and the trainer
 * of that command once for every rank, as threads of this process over one communicator. Every
 * number of a step that does not depend on time has the same bits, and so do all files of the
 * checkpoint that have tensors. SL_TEST_SEED draws other weights, rows and masks.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/stat.h>

#include "command_run.h"
#include "config/config_json.h"
#include "scratch_dir.h"
#include "search/plan_json.h"
#include "skip.h"
#include "train/loop.h"
#include "train/preparation.h"

enum { RANKS_MAX = 8, SETTINGS_MAX = 20, STEPS = 4 };

static char seed_setting[32] = "seed=1";

/* Heads, features and ids that neither two nor three ranks divide, layers that two stages do not.
 */
static const char *const common[] = {"layers=3",          "width=40",           "heads=5",
                                     "context=32",        "data=text",          "micro-batch=2",
                                     "device=cpu",        "threads=1",          "save=kept",
                                     "device-memory=64M", "host-memory=64M",    "steps=4",
                                     "log-json=told",     "lr-schedule=linear", "warmup=2",
                                     seed_setting,        "quiet=true",         NULL};

typedef struct layout {
    uint32_t size;
    const char *settings[SETTINGS_MAX];
} layout;

static const layout layouts[] = {
    {2, {"tp=2", "precision=fp32", "dropout=0.1", "eval-data=text", "eval-iters=3"}},
    {3, {"tp=3", "precision=bf16", "accumulate=2", "policy=host"}},
    {3, {"dp=3", "precision=fp32", "zero=0", "accumulate=2", "dropout=0.1"}},
    {2, {"dp=2", "precision=fp32", "zero=2", "policy=host", "accumulation=layer", "accumulate=3"}},
    {2, {"dp=2", "precision=bf16", "zero=3", "policy=host", "recompute=full"}},
    {4, {"tp=2", "dp=2", "precision=fp16", "zero=1", "eval-data=text", "eval-iters=3"}},
    {2, {"tp=2", "sequence-parallel=true", "precision=bf16", "dropout=0.1", "policy=host"}},
    {2, {"tp=2", "partition-activations=true", "precision=fp32", "recompute=full"}},
    {3, {"tp=3", "split-layout=colossal", "precision=fp32", "accumulate=2", "seq=30"}},
    {4,
     {"tp=2", "dp=2", "zero=3", "precision=bf16", "policy=nvme", "disk-dir=disk", "nvme-params=1",
      "nvme-grads=1", "accumulate=2"}},
    {2, {"pp=2", "precision=fp32", "accumulate=4", "policy=host", "eval-data=text"}},
    {4,
     {"pp=2", "dp=2", "zero=2", "precision=bf16", "accumulate=3", "policy=nvme", "disk-dir=disk"}}};

/* Eight ranks: two of each kind. */
static const layout cubes[] = {
    {8, {"tp=2", "pp=2", "zero=1", "precision=fp32", "accumulate=4", "dropout=0.1"}},
    {8,
     {"tp=2", "pp=2", "zero=3", "precision=bf16", "accumulate=3", "policy=nvme", "disk-dir=disk"}},
    {8, {"tp=2", "pp=2", "schedule=gpipe", "precision=fp32", "accumulate=2", "eval-data=text"}},
    {8, {"tp=2", "pp=2", "zero=2", "precision=fp32", "accumulate=5", "policy=host"}},
    {8, {"tp=2", "pp=2", "zero=3", "precision=fp32", "accumulate=1", "recompute=full"}},
    {8, {"tp=2", "pp=2", "zero=0", "precision=bf16", "accumulate=4", "sequence-parallel=true"}},
    {8, {"tp=2", "pp=2", "zero=1", "precision=fp16", "accumulate=3", "policy=host"}},
    {8,
     {"tp=2", "pp=2", "zero=2", "precision=bf16", "partition-activations=true", "accumulate=2",
      "recompute=selective"}},
    {8, {"tp=2", "pp=2", "zero=1", "precision=fp32", "split-layout=colossal", "accumulate=3"}},
    {8,
     {"tp=2", "pp=2", "zero=3", "precision=bf16", "accumulate=2", "policy=static", "disk-dir=disk",
      "nvme-params=0.5", "clip=0"}}};

enum {
    LAYOUT_COUNT = sizeof layouts / sizeof layouts[0],
    CUBE_COUNT = sizeof cubes / sizeof cubes[0]
};

/* ---- as processes ---- */

/* Adds " --name value", or " --name" of a switch. */
static void add_option(char *words, const char *setting)
{
    const char *value = strchr(setting, '=') + 1;
    const size_t length = strlen(words);
    const bool is_switch = strcmp(value, "true") == 0;
    snprintf(words + length, COMMAND_BYTES - length, " --%.*s %s", (int)(value - 1 - setting),
             setting, is_switch ? "" : value);
}

/* Returns where those begin that are the layout's alone. */
static const char *name_options(const layout *it, char words[COMMAND_BYTES])
{
    words[0] = '\0';
    for (int i = 0; common[i]; i++)
        add_option(words, common[i]);
    const char *own = words + strlen(words);
    for (int i = 0; i < SETTINGS_MAX && it->settings[i]; i++)
        add_option(words, it->settings[i]);
    return own;
}

/* ---- as threads ---- */

typedef struct thread_rank {
    const layout *layout;
    sl_config config;
    sl_trainer trainer;
    sl_status status;
    char message[SL_STATUS_MESSAGE_BYTES];
} thread_rank;

static sl_status configure(const layout *it, sl_config *out_config)
{
    SL_TRY(sl_config_init(out_config));
    for (int i = 0; common[i]; i++)
        SL_TRY(sl_config_assign(out_config, SL_CONFIG_TRAIN, common[i]));
    for (int i = 0; i < SETTINGS_MAX && it->settings[i]; i++)
        SL_TRY(sl_config_assign(out_config, SL_CONFIG_TRAIN, it->settings[i]));
    return SL_OK;
}

static sl_status begin_log(sl_trainer *trainer)
{
    sl_start_report report = {.first_step = 1, .last_step = STEPS};
    sl_status status = sl_config_format(trainer->config, SL_CONFIG_TRAIN, &report.config);
    if (status == SL_OK)
        status = sl_plan_json_format(trainer->runtime->blueprint, &report.plan);
    if (status == SL_OK)
        status = sl_sinks_start(&trainer->sinks, &report);
    json_decref(report.config);
    json_decref(report.plan);
    return status;
}

/* As the command does it, but for what is printed. */
static sl_status train(thread_rank *it)
{
    static const volatile sig_atomic_t never = 0;
    sl_trainer *trainer = &it->trainer;
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal;
    sl_end_report end;
    SL_TRY(configure(it->layout, &it->config));
    SL_TRY(sl_preparation_run(&it->config, SL_CONFIG_TRAIN, trainer));
    SL_TRY(sl_search_find(&trainer->search, &blueprint, &refusal));
    SL_TRY(sl_trainer_open(trainer, blueprint));
    SL_TRY(begin_log(trainer));
    return sl_loop_run(trainer, &never, &end);
}

static void *run_rank(void *argument)
{
    thread_rank *it = argument;
    it->status = train(it);
    if (it->status != SL_OK)
        snprintf(it->message, sizeof it->message, "%s", sl_status_message());
    sl_trainer_leave_ranks(&it->trainer, it->status);
    (void)sl_trainer_close(&it->trainer);
    sl_config_clear(&it->config);
    return NULL;
}

static void run_threads(const layout *it)
{
    static thread_rank ranks[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    sl_comm *ends[RANKS_MAX];
    memset(ranks, 0, sizeof ranks);
    assert_int_equal(sl_comm_threads_open(it->size, ends), SL_OK);
    for (uint32_t i = 0; i < it->size; i++) {
        ranks[i].layout = it;
        sl_ranks_adopt(ends[i], &ranks[i].trainer.ranks);
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < it->size; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < it->size; i++)
        if (ranks[i].status != SL_OK)
            fail_msg("rank %u of %u threads: %s", i, it->size, ranks[i].message);
}

/* ---- the same ---- */

static bool has_name(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

/* Removes what takes time, or depends on it: as traffic does of updates that end behind their step.
 */
static void keep_numbers(json_t *event)
{
    static const char *const kept[] = {
        "event",   "step",       "loss", "grad_norm",   "lr",    "tokens",    "tokens_total",
        "skipped", "loss_scale", "set",  "data_tokens", "tiers", "run_steps", NULL};
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(event, next, key, value) if (!has_name(kept, key))
        json_object_del(event, key);
}

static json_t *read_numbers(const char *name)
{
    json_t *events = read_log(name), *event, *kept = json_array();
    size_t index;
    json_array_foreach(events, index, event)
    {
        if (strcmp(kind_of(event), "start") == 0)
            continue;
        keep_numbers(event);
        json_array_append(kept, event);
    }
    json_decref(events);
    return kept;
}

static void compare_logs(const char *words)
{
    json_t *processes = read_numbers("told-by-processes"), *threads = read_numbers("told");
    assert_true(json_array_size(processes) >= STEPS + 1); /* and the end */
    assert_int_equal(json_array_size(processes), json_array_size(threads));
    for (size_t i = 0; i < json_array_size(processes); i++) {
        char *a = json_dumps(json_array_get(processes, i), JSON_COMPACT | JSON_SORT_KEYS);
        char *b = json_dumps(json_array_get(threads, i), JSON_COMPACT | JSON_SORT_KEYS);
        if (strcmp(a, b) != 0)
            fail_msg("%s: processes tell %s, threads %s", words, a, b);
        free(a);
        free(b);
    }
    json_decref(processes);
    json_decref(threads);
}

static void compare_checkpoints(const char *words)
{
    static const char *const files[] = {"model", "moment1", "moment2"};
    for (int i = 0; i < 3; i++) {
        char a[128], b[128];
        struct stat info;
        snprintf(a, sizeof a, "kept-by-processes/step-%08d/%s.safetensors", STEPS, files[i]);
        snprintf(b, sizeof b, "kept/step-%08d/%s.safetensors", STEPS, files[i]);
        assert_int_equal(stat(a, &info), 0);
        assert_true(info.st_size > 200000);
        if (!scratch_is_same(a, b))
            fail_msg("%s: %s differs", words, files[i]);
    }
}

static void forget(void)
{
    assert_int_equal(system("rm -rf kept kept-by-processes told told-by-processes disk"), 0);
    assert_int_equal(mkdir("disk", 0700), 0);
}

/* `starter`: what comes before the command's own words. */
static void check_layout(const layout *it, const char *starter)
{
    char words[COMMAND_BYTES], line[2 * COMMAND_BYTES];
    print_message("%u ranks:%s\n", it->size, name_options(it, words));
    forget();
    snprintf(line, sizeof line, "exec timeout -k 1 %u %s train %s >out 2>err </dev/null", limit_s,
             starter, words);
    const int status = system(line);
    read_text("err", complaint);
    assert_true(WIFEXITED(status));
    assert_code(WEXITSTATUS(status), 0);
    assert_int_equal(rename("kept", "kept-by-processes"), 0);
    assert_int_equal(rename("told", "told-by-processes"), 0);
    run_threads(it);
    compare_logs(words);
    compare_checkpoints(words);
}

static void launch_layout(const layout *it)
{
    char starter[PATH_BYTES + 64];
    snprintf(starter, sizeof starter, "'%s' launch -n %u --", binary, it->size);
    check_layout(it, starter);
}

static void processes_when_launched_compute_what_threads_do(void **state)
{
    (void)state;
    for (int i = 0; i < LAYOUT_COUNT; i++)
        launch_layout(&layouts[i]);
}

static void processes_when_they_form_a_cube_compute_what_threads_do(void **state)
{
    (void)state;
    const int count = getenv("SL_TEST_FULL") ? CUBE_COUNT : 2;
    for (int i = 0; i < count; i++)
        launch_layout(&cubes[i]);
}

/* Of one program that starts ranks. */
static void check_starter(const char *program, const char *options)
{
    char starter[PATH_BYTES + 128];
    snprintf(starter, sizeof starter, "command -v %s >/dev/null", program);
    if (system(starter) != 0)
        skip_because("there is no %s", program);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    for (int i = 0; i < LAYOUT_COUNT; i += getenv("SL_TEST_FULL") ? 1 : LAYOUT_COUNT) {
        snprintf(starter, sizeof starter, "%s %s -n %u '%s'", program, options, layouts[i].size,
                 binary);
        check_layout(&layouts[i], starter);
    }
}

static void processes_when_openmpi_starts_them_compute_what_threads_do(void **state)
{
    (void)state;
    check_starter("mpirun.openmpi", "--oversubscribe --bind-to none");
}

static void processes_when_mpich_starts_them_compute_what_threads_do(void **state)
{
    (void)state;
    check_starter("mpirun.mpich", "");
}

int main(void)
{
    const char *seed = getenv("SL_TEST_SEED");
    if (seed)
        snprintf(seed_setting, sizeof seed_setting, "seed=%s", seed);
    printf("%s (SL_TEST_SEED)\n", seed_setting);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_when_launched_compute_what_threads_do),
        cmocka_unit_test(processes_when_they_form_a_cube_compute_what_threads_do),
        cmocka_unit_test(processes_when_openmpi_starts_them_compute_what_threads_do),
        cmocka_unit_test(processes_when_mpich_starts_them_compute_what_threads_do),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
