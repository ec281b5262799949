/* sluice profile: a few steps with everything measured, as tables and as JSON. Needs no data, saves
 * nothing, and writes no file but those that its options name, and with --time-algorithms the list
 * of algorithms. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "command.h"
#include "files/json_file.h"
#include "files/output_file.h"
#include "first_use.h"
#include "held_warnings.h"
#include "measure/measure.h"
#include "measure/ranks.h"
#include "profile_table.h"
#include "rank.h"
#include "report/page.h"
#include "session/algorithms.h"
#include "signals.h"
#include "terminal.h"
#include "train/preparation.h"

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

/* One process leaves at once. Ranks leave together (sl_ranks_begin). */
static const volatile sig_atomic_t *watch_early_signals(bool is_rank)
{
    static const sl_signal_texts alone = {.stops = "leaving: no step was measured yet",
                                          .stops_in_save = "",
                                          .leaves_now = "",
                                          .leaves = true};
    static const sl_signal_texts of_ranks = {
        .stops = "stopping before the first step, or after it if it has begun; another signal "
                 "leaves at once",
        .stops_in_save = "",
        .leaves_now = "leaving at once"};
    return sl_signals_watch(is_rank ? &of_ranks : &alone);
}

static void watch_signals(void)
{
    sl_signals_watch(
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
    sl_terminal_print(stdout, 9, "device   %s", text);
    sl_command_describe_size(blueprint, text, sizeof text);
    sl_terminal_print(stdout, 9, "model    %s; a step is %u x %u row%s of %u tokens, in %s%s", text,
                      choice->accumulate, choice->micro_batch, sl_plural(choice->micro_batch),
                      blueprint->task.seq, sl_type_name(blueprint->task.type),
                      trainer->loader.row ? "" : "; random tokens");
    sl_command_describe_choice(choice, text, sizeof text);
    sl_terminal_print(stdout, 9, "plan     %s, %u chunk%s", text, blueprint->layout->chunk_count,
                      sl_plural(blueprint->layout->chunk_count));
    fflush(stdout);
}

static const sl_output_file_kind json_kind = {
    .option = "--json", .noun = "profile", .start = "{\n  \"steps\": ", .takes_streams = true};

/* "-" is standard output, and nothing else stands there then. */
static bool prints_json(const sl_config *config)
{
    return config->profile_json && strcmp(config->profile_json, "-") == 0;
}

static const char *name_json(const sl_config *config)
{
    return prints_json(config) ? "/dev/stdout" : config->profile_json;
}

/* A mistaken path must not cost minutes of measuring. */
static sl_status check_outputs(const sl_config *config)
{
    if (config->report)
        SL_TRY(sl_report_check(config->report, SL_PAGE_PLAN));
    return config->profile_json ? sl_output_file_check(&json_kind, name_json(config)) : SL_OK;
}

static sl_status write_json(const sl_config *config, const sl_measured *measured)
{
    json_t *object = NULL;
    if (!config->profile_json)
        return SL_OK;
    SL_TRY(sl_measured_format(measured, &object));
    char *text = NULL, *line = NULL;
    sl_status status = sl_json_file_format(object, 17, &text);
    json_decref(object);
    SL_TRY(status);
    const int length = asprintf(&line, "%s\n", text);
    free(text);
    if (length < 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to write %s", config->profile_json);
    status = sl_output_file_write_text(&json_kind, name_json(config), line);
    free(line);
    return status;
}

static void fill_times(const sl_measured *from, sl_report_measured *to)
{
    to->step_count = (uint32_t)from->step_count;
    to->step_seconds = 1e-3 * from->step_ms;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        to->busy_seconds[lane] = 1e-3 * from->lanes[lane].busy_ms;
        for (int cause = 0; cause < SL_LANE_COUNT; cause++)
            to->wait_seconds[lane][cause] = 1e-3 * from->lanes[lane].wait_ms[cause];
    }
    for (uint32_t i = 0; i < from->op_count; i++)
        to->op_seconds[from->ops[i].kind] += 1e-3 * from->ops[i].ms;
}

static sl_report_rank describe_rank(const sl_measured_ranks *all, uint32_t rank)
{
    const sl_measured *of = &all->items[rank];
    sl_report_rank to = {.place = sl_comm_place_of(&all->layout, rank),
                         .step_seconds = 1e-3 * of->step_ms};
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        to.busy_seconds[lane] = 1e-3 * of->lanes[lane].busy_ms;
        to.wait_seconds[lane] = 1e-3 * of->lanes[SL_LANE_COMPUTE].wait_ms[lane];
    }
    for (int group = 0; group < SL_COMM_GROUP_COUNT; group++)
        to.sent_bytes[group] = of->sent_bytes[group];
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        to.planned_bytes[tier] = of->tiers[tier].planned_bytes;
        to.measured_bytes[tier] = of->tiers[tier].measured_bytes;
    }
    return to;
}

static sl_status list_ranks(const sl_measured_ranks *all, sl_report_measured *to)
{
    if (!all)
        return SL_OK;
    sl_report_rank *ranks = calloc(all->count, sizeof *ranks);
    if (!ranks)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report of %u ranks", all->count);
    for (uint32_t rank = 0; rank < all->count; rank++)
        ranks[rank] = describe_rank(all, rank);
    to->ranks = ranks;
    to->rank_count = all->count;
    to->slowest_rank = all->slowest;
    return SL_OK;
}

/* The plan's report, with what was measured beside it. */
static sl_status write_report(const sl_config *config, const sl_blueprint *blueprint,
                              const sl_measured *measured)
{
    sl_report_measured of_report = {.resident_bytes = measured->resident.total_bytes,
                                    .spans = measured->spans,
                                    .span_count = measured->span_count};
    const sl_report_args args = {.blueprint = blueprint};
    sl_account_stall stalls[SL_MEASURED_STALLS];
    if (!config->report)
        return SL_OK;
    SL_TRY(list_ranks(measured->ranks, &of_report));
    fill_times(measured, &of_report);
    for (uint32_t i = 0; i < measured->stall_count; i++)
        stalls[i] = (sl_account_stall){.command = measured->stalls[i].command,
                                       .waited_for = measured->stalls[i].awaited_command,
                                       .cause = measured->stalls[i].cause,
                                       .seconds = 1e-3 * measured->stalls[i].ms};
    of_report.stalls = stalls;
    of_report.stall_count = measured->stall_count;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        of_report.peak_bytes[tier] = measured->tiers[tier].measured_bytes;
    const sl_status status = sl_report_write(config->report, &args, &of_report);
    free(of_report.ranks);
    return status;
}

static sl_status tell(const sl_trainer *trainer, const sl_measured *measured)
{
    const sl_config *config = trainer->config;
    FILE *notes = prints_json(config) ? stderr : stdout;
    if (measured->step_count == 0) {
        fprintf(notes, "stopped by a signal before a step was measured\n");
        return SL_OK;
    }
    if (measured->was_stopped)
        fprintf(notes, "stopped by a signal: %" PRIu64 " of %" PRIu64 " steps were measured\n",
                measured->step_count, config->profile_steps);
    if (!config->quiet)
        sl_profile_table_print(measured, trainer->runtime->blueprint);
    SL_TRY(write_report(config, trainer->runtime->blueprint, measured));
    return write_json(config, measured);
}

typedef struct listener {
    const sl_trainer *trainer;
    bool is_quiet;
} listener;

static void tell_plan(void *user, const sl_blueprint *blueprint)
{
    const listener *self = user;
    watch_signals();
    if (!self->is_quiet)
        print_head(self->trainer, blueprint);
}

static void tell_step(void *user, uint32_t step, double seconds)
{
    const listener *self = user;
    if (self->is_quiet)
        return;
    if (step <= SL_MEASURE_WARM_UP)
        sl_terminal_say(SL_TERMINAL_PLAIN, "warm-up %.2f s", seconds);
    else
        sl_terminal_say(SL_TERMINAL_PLAIN, "step %u of %" PRIu64 ": %.2f s",
                        step - SL_MEASURE_WARM_UP, self->trainer->config->profile_steps, seconds);
}

static sl_status profile(sl_config *config, const volatile sig_atomic_t *stop, sl_trainer *trainer)
{
    SL_TRY(sl_trainer_meet_ranks(trainer, config, stop));
    const bool is_first = sl_ranks_is_first(&trainer->ranks);
    SL_TRY(sl_preparation_run(config, SL_CONFIG_PROFILE, trainer));
    if (is_first)
        SL_TRY(check_outputs(config));
    listener self = {trainer, config->quiet};
    const sl_measure_args args = {.trainer = trainer,
                                  .step_count = (uint32_t)config->profile_steps,
                                  .stop = stop,
                                  .heap_bytes = count_heap_bytes,
                                  .planned = tell_plan,
                                  .passed = tell_step,
                                  .user = &self};
    sl_measured *measured = calloc(1, sizeof *measured);
    if (!measured)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for what is measured");
    sl_status status = sl_measure_run(&args, measured);
    if (status == SL_OK)
        status = sl_held_warnings_compare(trainer->ranks.world);
    if (status == SL_OK && is_first)
        status = tell(trainer, measured);
    if (status == SL_OK && config->time_algorithms)
        status = sl_algorithms_keep(&trainer->ranks, trainer->runtime);
    sl_measured_clear(measured);
    free(measured);
    return status;
}

static int run_profile(sl_config *config)
{
    sl_trainer trainer = {0};
    sl_environment environment;
    sl_signals_ignore_failed_output();
    sl_status status = sl_command_begin_rank(config, &environment);
    const volatile sig_atomic_t *stop = watch_early_signals(environment.size > 1);
    config->quiet = config->quiet || prints_json(config);
    if (environment.rank == 0)
        sl_command_explain(config);
    if (status == SL_OK)
        status = sl_command_prove_device(config, &environment);
    if (status == SL_OK)
        status = profile(config, stop, &trainer);
    int code = sl_command_end_rank(status);
    sl_trainer_leave_ranks(&trainer, status);
    (void)sl_trainer_close(&trainer);
    return code;
}

const sl_command_entry sl_command_profile = {
    .options = SL_CONFIG_PROFILE,
    .task = SL_COMMAND_TRAIN,
    .name = "profile",
    .summary = "a few steps with everything measured: memory, time, what binds",
    .doc =
        "Runs a few training steps of the options that train takes and tells where memory and "
        "time went: planned and measured peak of each tier and what it is made of, what each "
        "lane did and waited for, time by op, what binds, and what more or less memory would "
        "do. Of ranks that sluice launch starts: all of them, and for which one the others wait. "
        "Needs no data (tokens are random then), saves nothing, and leaves logs and the "
        "directory of --save as they are.",
    .page = "docs/profile.md",
    .checks_options = true,
    .takes_ranks = true,
    .run = run_profile};
