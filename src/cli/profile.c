/* sluice profile: a few steps with everything measured, as tables and as JSON. Needs no data, saves
 * nothing, and writes no file but those that are named for it. */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "files/json_file.h"
#include "measure/measure.h"
#include "profile_table.h"
#include "report/page.h"
#include "signals.h"

#ifdef SL_HAS_JEMALLOC
#include <jemalloc/jemalloc.h>

/* Active pages, those kept for reuse, and what the allocator needs for itself. */
static uint64_t count_heap_bytes(void)
{
    uint64_t epoch = 1;
    size_t bytes = 0, length = sizeof bytes;
    if (mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) != 0 ||
        mallctl("stats.resident", &bytes, &length, NULL, 0) != 0)
        return 0;
    return bytes;
}
#else
#include <malloc.h>

static uint64_t count_heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.arena + info.hblkhd;
}
#endif

static void leave_early(void)
{
    sl_signals_watch(&(sl_signal_texts){.stops = "leaving: no step was measured yet",
                                        .stops_in_save = "",
                                        .leaves_now = "",
                                        .leaves = true});
}

static const volatile sig_atomic_t *watch_signals(void)
{
    return sl_signals_watch(
        &(sl_signal_texts){.stops = "stopping after this step: what was measured till then is "
                                    "told; another signal leaves at once",
                           .stops_in_save = "",
                           .leaves_now = "leaving at once: nothing is told of what was measured"});
}

static void print_head(const sl_trainer *trainer, const sl_blueprint *blueprint)
{
    char text[512];
    const sl_choice *choice = &blueprint->choice;
    sl_command_describe_device(&blueprint->task, text, sizeof text);
    printf("device   %s\n", text);
    printf("model    %" PRIu64 " parameters; a step is %u x %u rows of %u tokens, in %s%s\n",
           sl_gpt2_parameter_count(&trainer->shape), choice->accumulate, choice->micro_batch,
           blueprint->task.seq, sl_type_name(blueprint->task.type),
           trainer->loader.row ? "" : "; random tokens");
    sl_command_describe_choice(choice, text, sizeof text);
    printf("plan     %s, %u chunks\n", text, blueprint->layout->chunk_count);
    fflush(stdout);
}

static void tell_step(void *user, uint32_t step, double seconds)
{
    const sl_config *config = user;
    if (step <= SL_MEASURE_WARM_UP)
        fprintf(stderr, "sluice: warm-up %.2f s\n", seconds);
    else
        fprintf(stderr, "sluice: step %u of %" PRIu64 ": %.2f s\n", step - SL_MEASURE_WARM_UP,
                config->profile_steps, seconds);
}

/* True if a file holds something that this command did not write. */
static bool is_foreign(const char *path)
{
    static const char head[] = "{\n  \"";
    char start[sizeof head - 1];
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0)
        return false;
    FILE *file = fopen(path, "re");
    size_t count = file ? fread(start, 1, sizeof start, file) : 0;
    if (file)
        fclose(file);
    return count != sizeof start || memcmp(start, head, sizeof start) != 0;
}

/* A mistaken path must not cost minutes of measuring, nor a failure the file that is there: it is
 * opened before, and emptied when there is something to write. */
static sl_status open_json(const char *path, FILE **out_file)
{
    if (path && is_foreign(path))
        SL_FAIL(SL_ERROR_USAGE, "%s is there and is no profile: --json does not replace it", path);
    *out_file = path ? fopen(path, "ae") : NULL;
    if (path && !*out_file)
        SL_FAIL(SL_ERROR_IO, "%s: %s", path, strerror(errno));
    return SL_OK;
}

static sl_status write_json(const sl_config *config, const sl_measured *measured, FILE *file)
{
    json_t *object = NULL;
    SL_TRY(sl_measured_format(measured, &object));
    char *text = sl_json_file_dump(object, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(object);
    if (!text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to write %s", config->profile_json);
    (void)!ftruncate(fileno(file), 0); /* what is no plain file has no length */
    bool is_written = fputs(text, file) != EOF && fputc('\n', file) != EOF && fflush(file) == 0;
    free(text);
    if (!is_written)
        SL_FAIL(SL_ERROR_IO, "%s: %s; what was measured is not whole there", config->profile_json,
                strerror(errno));
    return SL_OK;
}

/* The plan's report, with what was measured beside it. */
static sl_status write_report(const sl_config *config, const sl_blueprint *blueprint,
                              const sl_measured *measured)
{
    sl_report_args args = {.blueprint = blueprint};
    sl_report_measured of_report = {0};
    if (!config->report)
        return SL_OK;
    if (!measured)
        return sl_report_write(config->report, &args);
    of_report.step_count = (uint32_t)measured->step_count;
    of_report.step_seconds = 1e-3 * measured->step_ms;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        of_report.busy_seconds[lane] = 1e-3 * measured->lanes[lane].busy_ms;
        for (int cause = 0; cause < SL_LANE_COUNT; cause++)
            of_report.wait_seconds[lane][cause] = 1e-3 * measured->lanes[lane].wait_ms[cause];
    }
    for (uint32_t i = 0; i < measured->op_count; i++)
        of_report.op_seconds[measured->ops[i].kind] += 1e-3 * measured->ops[i].ms;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        of_report.peak_bytes[tier] = measured->tiers[tier].measured_bytes;
    of_report.resident_bytes = measured->resident.total_bytes;
    args.measured = &of_report;
    return sl_report_write(config->report, &args);
}

static sl_status tell(const sl_trainer *trainer, const sl_measured *measured, FILE *file)
{
    const sl_config *config = trainer->config;
    if (measured->step_count == 0) {
        printf("stopped by a signal before a step was measured\n");
        return SL_OK;
    }
    if (measured->was_stopped)
        printf("stopped by a signal: %" PRIu64 " of %" PRIu64 " steps were measured\n",
               measured->step_count, config->profile_steps);
    if (!config->quiet)
        sl_profile_table_print(measured, trainer->session->blueprint);
    SL_TRY(write_report(config, trainer->session->blueprint, measured));
    return file ? write_json(config, measured, file) : SL_OK;
}

static sl_status measure(sl_trainer *trainer, FILE *file)
{
    sl_config *config = trainer->config;
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal;
    sl_measured *measured = calloc(1, sizeof *measured);
    if (!measured)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for what is measured");
    sl_status status = sl_search_find(&trainer->search, &blueprint, &refusal);
    if (status == SL_OK) { /* a path that cannot be written is known before minutes of measuring */
        status = write_report(config, blueprint, NULL);
        if (status != SL_OK)
            sl_blueprint_close(blueprint);
    }
    if (status == SL_OK) {
        if (!config->quiet)
            print_head(trainer, blueprint);
        const sl_measure_args args = {.trainer = trainer,
                                      .blueprint = blueprint,
                                      .step_count = (uint32_t)config->profile_steps,
                                      .stop = watch_signals(),
                                      .heap_bytes = count_heap_bytes,
                                      .passed = config->quiet ? NULL : tell_step,
                                      .user = config};
        status = sl_measure_run(&args, measured);
    }
    if (status == SL_OK)
        status = tell(trainer, measured, file);
    free(measured);
    return status;
}

static sl_status profile(sl_config *config, sl_trainer *trainer)
{
    FILE *file = NULL;
    SL_TRY(sl_trainer_prepare(config, SL_CONFIG_PROFILE, trainer));
    SL_TRY(open_json(config->profile_json, &file));
    sl_status status = measure(trainer, file);
    if (file && fclose(file) != 0 && status == SL_OK)
        SL_FAIL(SL_ERROR_IO, "%s: %s", config->profile_json, strerror(errno));
    return status;
}

static int run_profile(sl_config *config)
{
    sl_trainer trainer = {0};
    sl_signals_ignore_failed_output();
    leave_early();
    sl_command_explain(config);
    int code = sl_command_end(profile(config, &trainer));
    sl_trainer_close(&trainer);
    return code;
}

const sl_command_entry sl_command_profile = {
    .options = SL_CONFIG_PROFILE,
    .name = "profile",
    .summary = "a few steps with everything measured: memory, time, what binds",
    .doc = "Runs a few training steps of the options that train takes and tells where memory and "
           "time went: planned and measured peak of each tier and what it is made of, what each "
           "lane did and waited for, time by op, what binds, and what more or less memory would "
           "do. Needs no data (tokens are random then), saves nothing, and leaves logs and the "
           "directory of --save as they are.",
    .checks_options = true,
    .run = run_profile};
