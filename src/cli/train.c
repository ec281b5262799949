/* sluice train: from options to a loop, and what a person sees on the way. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "base/workers.h"
#include "busy_line.h"
#include "command.h"
#include "first_use.h"
#include "held_warnings.h"
#include "live_report.h"
#include "measure/cores.h"
#include "progress.h"
#include "rank.h"
#include "signals.h"
#include "terminal.h"
#include "train/loop.h"
#include "train/opening.h"

enum { EXIT_SECOND_SIGNAL = 130, INDENT = 9 };

static void print_tier(const sl_blueprint *blueprint, sl_tier tier)
{
    printf("  %-6s %s of %s\n", sl_tier_name(tier),
           sl_command_format_size(sl_blueprint_peak_bytes(blueprint, tier)).text,
           sl_command_format_size(blueprint->budget_bytes[tier]).text);
}

/* The rates of the machine by which auto chose and the step is predicted. */
static void print_basis(const sl_trainer *trainer, const sl_machine *machine)
{
    sl_terminal_print(
        stdout, INDENT - 1, "rates   %s%s%s", machine->name,
        trainer->search.auto_policy ? ": auto chose by them" : "",
        !sl_machine_is_guess(machine) ? "" : "; sluice bench measures this machine in a minute");
}

static void print_time(const sl_trainer *trainer, const sl_machine *machine)
{
    const uint64_t done = trainer->state.step, all = trainer->config->steps;
    const uint64_t left = all > done ? all - done : 0;
    const double seconds = (double)left * trainer->step_seconds;
    sl_terminal_print(
        stdout, INDENT - 1, "time    by %s %s a step, %s for the %" PRIu64 " step%s to come",
        sl_machine_basis(machine), sl_command_format_duration(trainer->step_seconds).text,
        sl_command_format_duration(seconds).text, left, sl_plural(left));
}

static void print_save(const sl_config *config)
{
    if (!config->save)
        sl_terminal_print(
            stdout, INDENT - 1,
            "save    nothing is kept: without --save DIR the model is gone when the run ends");
    else if (config->save_every > 0 && config->save_minutes > 0)
        sl_terminal_print(
            stdout, INDENT - 1,
            "save    in %s, after every %" PRIu64 " step%s, every %g minutes and the last step",
            config->save, config->save_every, sl_plural(config->save_every), config->save_minutes);
    else if (config->save_minutes > 0)
        sl_terminal_print(stdout, INDENT - 1,
                          "save    in %s, every %g minutes and after the last step", config->save,
                          config->save_minutes);
    else if (config->save_every > 0)
        sl_terminal_print(stdout, INDENT - 1,
                          "save    in %s, after every %" PRIu64 " step%s and the last",
                          config->save, config->save_every, sl_plural(config->save_every));
    else
        sl_terminal_print(stdout, INDENT - 1,
                          "save    in %s, after the last step (--save-every N: after every N too)",
                          config->save);
}

static void print_plan(const sl_trainer *trainer, const sl_blueprint *blueprint)
{
    const sl_choice *choice = &blueprint->choice;
    char text[512];
    sl_command_describe_device(&blueprint->task, text, sizeof text);
    sl_terminal_print(stdout, INDENT - 1, "device  %s", text);
    sl_command_describe_size(blueprint, text, sizeof text);
    sl_terminal_print(stdout, INDENT - 1,
                      "model   %s: %u layer%s, %u wide, %u head%s, context %u, vocab %u", text,
                      trainer->shape.layers, sl_plural(trainer->shape.layers), trainer->shape.width,
                      trainer->shape.heads, sl_plural(trainer->shape.heads), trainer->shape.context,
                      trainer->shape.vocab);
    printf("step    %u x %u row%s of %" PRIu64 " tokens, in %s\n", choice->accumulate,
           choice->micro_batch, sl_plural(choice->micro_batch), trainer->config->seq,
           sl_type_name(blueprint->task.type));
    sl_command_describe_choice(choice, text, sizeof text);
    sl_terminal_print(stdout, INDENT - 1, "plan    %s, %u chunk%s", text,
                      blueprint->layout->chunk_count, sl_plural(blueprint->layout->chunk_count));
    print_basis(trainer, &blueprint->machine);
    print_time(trainer, &blueprint->machine);
    print_tier(blueprint, SL_TIER_DEVICE);
    print_tier(blueprint, SL_TIER_HOST);
    if (sl_blueprint_peak_bytes(blueprint, SL_TIER_DISK) > 0) {
        print_tier(blueprint, SL_TIER_DISK);
        sl_terminal_print(stdout, INDENT, "  %-6s %s", "",
                          sl_engine_disk_description(trainer->runtime->engine));
    }
    print_save(trainer->config);
    fflush(stdout);
}

static void print_wear(const sl_trainer *trainer, const sl_end_report *end)
{
    char text[160];
    double written = (double)end->moved_bytes[SL_LANE_WRITE];
    if (written <= 0)
        return;
    sl_wear wear =
        sl_wear_project(written / (double)end->run_steps, end->seconds / (double)end->run_steps,
                        trainer->config->disk_endurance);
    sl_command_describe_wear(&wear, text, sizeof text);
    sl_terminal_print(stdout, INDENT, "  %-6s %s", "wear", text);
}

/* Bytes that differ may read the same in MiB: those that are equal are called so. */
static void print_peak(const sl_end_report *end, sl_tier tier)
{
    const uint64_t planned = end->planned_peak_bytes[tier];
    const uint64_t measured = end->measured_peak_bytes[tier];
    printf("  %-6s planned peak %s, measured %s%s\n", sl_tier_name(tier),
           sl_command_format_size(planned).text, sl_command_format_size(measured).text,
           planned == measured ? ": equal to the byte" : "");
}

/* Where this run's threads were often ready and had no processor, predictions do not hold. More
 * threads than processors wait for each other. */
static void print_waits(const sl_trainer *trainer, double waited)
{
    static const double waited_min = 0.2;
    if (waited >= waited_min && trainer->config->threads <= sl_workers_usable_cpu_count())
        sl_terminal_print(
            stdout, INDENT,
            "  busy   the threads of this run waited %.0f%% of their time for a "
            "processor, which other work or the run's own copies had: steps took longer",
            100 * waited);
}

static void print_step_time(const sl_trainer *trainer, const sl_end_report *end)
{
    const sl_machine *machine = &trainer->runtime->blueprint->machine;
    const double measured_ms = 1e3 * end->seconds / (double)end->run_steps;
    if (machine->is_measured)
        sl_terminal_print(
            stdout, INDENT,
            "  step   predicted %.1f ms by %s, measured %.1f ms (mean of %" PRIu64 ")",
            1e3 * trainer->step_seconds, sl_machine_basis(machine), measured_ms, end->run_steps);
    else
        sl_terminal_print(stdout, INDENT,
                          "  step   measured %.1f ms (mean of %" PRIu64 "); the predicted %.1f ms "
                          "were a guess, because sluice bench has not measured this machine",
                          measured_ms, end->run_steps, 1e3 * trainer->step_seconds);
}

static void print_best(const sl_trainer *trainer, const sl_end_report *end)
{
    const sl_checkpoint_state *state = &trainer->state;
    if (strcmp(end->reason, "patience") == 0)
        sl_terminal_print(stdout, 2,
                          "ended after step %" PRIu64 " by --patience: the last %" PRIu64
                          " evaluation%s %s no better than the best one",
                          end->step, state->evals_since_best, sl_plural(state->evals_since_best),
                          state->evals_since_best == 1 ? "was" : "were");
    if (state->evals_since_best < state->eval_count && !trainer->config->quiet)
        sl_terminal_print(stdout, INDENT, "  best   evaluation: loss %.4f, after step %" PRIu64,
                          state->best_loss, state->best_step);
}

/* Paths that --resume does not take from the checkpoint, so the command names them: no file is
 * made at a path that only a checkpoint names. */
static void print_paths(const sl_config *config)
{
    char path[PATH_MAX];
    for (uint32_t i = 0; i < config->disk_dir.count; i++) {
        sl_command_quote(config->disk_dir.items[i], path, sizeof path);
        printf("%s %s", i == 0 ? " --disk-dir" : "", path);
    }
    if (!config->given[SL_CONFIG_ROW_cache_dir])
        return;
    sl_command_quote(config->cache_dir, path, sizeof path);
    printf(" --cache-dir %s", path);
}

/* What may follow, as commands to copy: they are not broken, so that each is copied as one line. */
static void print_next(const sl_trainer *trainer, const sl_end_report *end)
{
    const sl_config *config = trainer->config;
    char save[PATH_MAX], start[32] = "", more[40] = "";
    if (!config->save || trainer->saved_step != end->step)
        return;
    sl_command_quote(config->save, save, sizeof save);
    if (trainer->ranks.world)
        snprintf(start, sizeof start, "launch -n %u -- ", sl_comm_size(trainer->ranks.world));
    if (strcmp(end->reason, "patience") == 0)
        snprintf(more, sizeof more, " --patience %" PRIu64, 2 * config->patience);
    else if (end->step >= config->steps)
        snprintf(more, sizeof more, " --steps %" PRIu64, 2 * end->step);
    printf("go on   sluice %strain --resume --save %s", start, save);
    print_paths(config);
    printf("%s\n", more);
    printf("sample  sluice generate %s --prompt TEXT\n", save);
}

/* `waited`: the share of the time that the run's threads waited for a processor. */
static void print_end(const sl_trainer *trainer, const sl_end_report *end, double waited)
{
    bool was_stopped = strcmp(end->reason, "signal") == 0;
    if (was_stopped && end->run_steps == 0)
        sl_terminal_print(stdout, 2,
                          "stopped by a signal before the first step; there is nothing to save");
    else if (was_stopped && !trainer->config->save)
        sl_terminal_print(
            stdout, 2, "stopped by a signal after step %" PRIu64 "; nothing was saved (no --save)",
            end->step);
    else if (was_stopped)
        sl_terminal_print(stdout, 2, "stopped by a signal after step %" PRIu64 "; saved in %s",
                          end->step, trainer->config->save);
    print_best(trainer, end);
    if (trainer->config->quiet)
        return;
    if (end->run_steps > 0) {
        bool has_disk = end->planned_peak_bytes[SL_TIER_DISK] > 0;
        for (int tier = SL_TIER_DEVICE; tier <= (has_disk ? SL_TIER_DISK : SL_TIER_HOST); tier++)
            print_peak(end, (sl_tier)tier);
        print_wear(trainer, end);
        print_step_time(trainer, end);
        print_waits(trainer, waited);
    }
    print_next(trainer, end);
}

/* For signals before the first step: nothing of the preparation is worth keeping. One process
 * leaves at once. Ranks leave together (sl_ranks_begin); a signal that comes after that vote ends
 * the run behind its first step. */
static const volatile sig_atomic_t *watch_early_signals(bool is_rank)
{
    static const sl_signal_texts alone = {
        .stops = "leaving: the training had not begun, and nothing is lost",
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

static const volatile sig_atomic_t *watch_signals(const sl_trainer *trainer)
{
    char text[512];
    const char *directory = trainer->config->save;
    sl_signal_texts texts = {
        .stops = "stopping after this step, and nothing is saved (no --save); another signal "
                 "leaves at once",
        .stops_in_save = "stopping when this checkpoint is written",
        .leaves_now = "leaving at once: the step that ran is lost"};
    if (directory)
        texts.stops = text;
    if (trainer->ranks.world)
        texts.stops_in_save = "stopping after the next step, behind which all ranks agree on it; "
                              "that one is saved too";
    snprintf(text, sizeof text,
             "stopping: this step is finished and saved in %.300s; another signal leaves at once, "
             "and loses it",
             directory ? directory : "");
    return sl_signals_watch(&texts);
}

static sl_status run_loop(sl_trainer *trainer, sl_progress *progress)
{
    sl_end_report end;
    sl_progress_listen(progress, trainer->config, &trainer->sinks);
    SL_TRY(sl_live_report_open(trainer, &trainer->sinks));
    SL_TRY(sl_ranks_begin(&trainer->ranks));
    SL_TRY(sl_held_warnings_compare(trainer->ranks.world));
    SL_TRY(sl_opening_tell(trainer));
    const volatile sig_atomic_t *stop = watch_signals(trainer);
    const sl_cores before = sl_cores_read(NULL);
    sl_status status = sl_loop_run(trainer, stop, &end);
    const sl_cores after = sl_cores_read(NULL);
    sl_signals_end_save(); /* one that failed did not say so */
    if (strcmp(end.reason, "error") != 0)
        print_end(trainer, &end, sl_cores_find_waited(&before, &after));
    return status;
}

static sl_status train(sl_config *config, const volatile sig_atomic_t *stop, sl_trainer *trainer,
                       sl_progress *progress)
{
    const sl_engine_progress within = sl_progress_within_step(progress);
    SL_TRY(sl_trainer_meet_ranks(trainer, config, stop));
    sl_busy_line line;
    sl_busy_line_begin_opening(&line, config, stdout);
    const sl_status status = sl_opening_run(config, trainer, &within);
    sl_busy_line_end(&line);
    SL_TRY(status);
    if (!config->quiet)
        print_plan(trainer, trainer->runtime->blueprint);
    return run_loop(trainer, progress);
}

static int run_train(sl_config *config)
{
    sl_trainer trainer = {0};
    sl_progress progress = {0};
    sl_environment environment;
    sl_signals_ignore_failed_output();
    sl_status status = sl_command_begin_rank(config, &environment);
    const volatile sig_atomic_t *stop = watch_early_signals(environment.size > 1);
    if (environment.rank == 0)
        sl_command_explain(config);
    if (status == SL_OK)
        status = sl_command_prove_device(config, &environment);
    if (status == SL_OK)
        status = train(config, stop, &trainer, &progress);
    int code = sl_command_end_rank(status);
    sl_trainer_leave_ranks(&trainer, status);
    (void)sl_trainer_close(&trainer);
    return code == 0 && sl_signals_must_leave() ? EXIT_SECOND_SIGNAL : code;
}

const sl_command_entry sl_command_train = {
    .options = SL_CONFIG_TRAIN,
    .task = SL_COMMAND_TRAIN,
    .name = "train",
    .summary = "pretrain, fine-tune or continue",
    .doc = "Trains a model on --data: from random numbers, from a checkpoint or Hugging Face "
           "directory (--init; on examples: sluice help fine-tuning), or on from where a run ended "
           "(--resume). Plans the step first and refuses what does not fit. With --save a "
           "signal ends the run after its step, saved; a second one at once.",
    .page = "docs/checkpoints.md",
    .checks_options = true,
    .takes_ranks = true,
    .run = run_train};
