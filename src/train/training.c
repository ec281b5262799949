/* Steps, evaluations and saves of an opened trainer, each in the order of its own.
 *
 *   sl_training_step      begins: the scalars of the step. The engine runs plan 0, which asks for
 * its rows itself. Ends: counts, sinks, timeline; then the loss scale, or a failure
 *
 * Nothing here allocates between steps but the saving of checkpoints.
 */
#include "training.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/stop.h"
#include "best.h"
#include "config/update_rules.h"
#include "files/files.h"
#include "schedule.h"
#include "session/replicas.h"

enum { SKIPS_IN_A_ROW_MAX = 50 };
enum { PLAN_STEP = 0, PLAN_EVALUATION = 1 };
enum { STEPS_BETWEEN_COMPARISONS = 100 };    /* of replicated parameters */
enum { ASKS_TO_STOP = 1, ASKS_TO_SAVE = 2 }; /* flags of sl_step_scalars and sl_step_control */

/* Data to evaluate on. */
typedef struct evaluation {
    const char *set; /* its name in the log */
    const sl_data_loader *loader;
    sl_evaluate_range range;
    bool is_test;
} evaluation;

sl_status sl_training_draw(sl_training *training)
{
    sl_trainer *trainer = training->trainer;
    return sl_sinks_outlive(&trainer->sinks,
                            sl_timeline_write(trainer->drawing.timeline, trainer->state.step),
                            &training->has_timeline_failed);
}

/* ---- a step ---- */

static double count_flops(const sl_trainer *trainer, uint64_t tokens)
{
    return trainer->runtime->blueprint->token_flops * (double)tokens;
}

static void add_statistics(const sl_engine_statistics *from, sl_engine_statistics *to)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        to->moved_bytes[lane] += from->moved_bytes[lane];
        to->stall_ns[lane] += from->stall_ns[lane];
    }
    for (int phase = 0; phase < SL_PHASE_COUNT; phase++)
        to->phase_ns[phase] += from->phase_ns[phase];
}

/* What ranks tell of together; what each planned differs between the stages of a pipeline. */
typedef struct rank_report {
    uint64_t planned_bytes[SL_TIER_COUNT], peak_bytes[SL_TIER_COUNT];
    uint64_t moved_bytes[SL_LANE_COUNT];
    uint64_t comm_bytes[SL_COMM_GROUP_COUNT];
} rank_report;

_Static_assert(sizeof(rank_report) <= SL_COMM_RECORD_BYTES, "a report is one record");
_Static_assert((int)SL_REPORT_COMMS == (int)SL_COMM_GROUP_COUNT, "every communicator is told of");

static void merge_reports(void *sum, const void *other)
{
    rank_report *to = sum;
    const rank_report *from = other;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        to->peak_bytes[tier] = sl_bits_max(to->peak_bytes[tier], from->peak_bytes[tier]);
        to->planned_bytes[tier] = sl_bits_max(to->planned_bytes[tier], from->planned_bytes[tier]);
    }
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        to->moved_bytes[lane] += from->moved_bytes[lane];
    for (int group = 0; group < SL_COMM_GROUP_COUNT; group++)
        to->comm_bytes[group] += from->comm_bytes[group];
}

static void find_planned_peaks(const sl_training *training, uint64_t out_bytes[SL_TIER_COUNT])
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        out_bytes[tier] =
            sl_blueprint_peak_bytes(training->trainer->runtime->blueprint, (sl_tier)tier);
}

/* Makes a rank's report that of all of them; they call it together. */
static sl_status join_reports(sl_training *training, sl_step_report *report)
{
    const sl_ranks *ranks = &training->trainer->ranks;
    rank_report joint;
    if (!training->has_others)
        return SL_OK;
    for (int group = 0; group < SL_COMM_GROUP_COUNT; group++) {
        uint64_t sent = sl_comm_sent_bytes(ranks->world, (sl_comm_group)group);
        joint.comm_bytes[group] = sent - training->sent_bytes[group];
        training->sent_bytes[group] = sent;
    }
    find_planned_peaks(training, joint.planned_bytes);
    memcpy(joint.peak_bytes, report->peak_bytes, sizeof joint.peak_bytes);
    memcpy(joint.moved_bytes, report->moved_bytes, sizeof joint.moved_bytes);
    SL_TRY(sl_comm_merge(ranks->world, sizeof joint, &joint, merge_reports));
    memcpy(training->end.planned_peak_bytes, joint.planned_bytes, sizeof joint.planned_bytes);
    memcpy(report->peak_bytes, joint.peak_bytes, sizeof joint.peak_bytes);
    memcpy(report->moved_bytes, joint.moved_bytes, sizeof joint.moved_bytes);
    memcpy(report->comm_bytes, joint.comm_bytes, sizeof joint.comm_bytes);
    report->rank_count = sl_comm_size(ranks->world);
    return SL_OK;
}

static void count_totals(sl_training *training, const sl_step_report *report)
{
    sl_end_report *end = &training->end;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        end->measured_peak_bytes[tier] =
            sl_bits_max(end->measured_peak_bytes[tier], report->peak_bytes[tier]);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        end->moved_bytes[lane] += report->moved_bytes[lane];
}

/* What the engine counted since the last call, into a report. */
static void take_statistics(sl_training *training, sl_step_report *report)
{
    sl_engine_statistics statistics;
    sl_engine_take_statistics(training->trainer->runtime->engine, &statistics);
    add_statistics(&training->late, &statistics);
    training->late = (sl_engine_statistics){0};
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        report->peak_bytes[tier] = statistics.measured_peak_bytes[tier];
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        report->moved_bytes[lane] = statistics.moved_bytes[lane];
        report->stall_ms[lane] = 1e-6 * (double)statistics.stall_ns[lane];
    }
    for (int phase = 0; phase < SL_PHASE_COUNT; phase++)
        report->phase_ms[phase] = 1e-6 * (double)statistics.phase_ns[phase];
    report->phase_ms[SL_PHASE_BACKWARD] += report->phase_ms[SL_PHASE_RECOMPUTE];
}

/* The tokens that the last step's loss is of: with masks those that count, else all. */
static double find_counted(const sl_engine *engine, uint64_t tokens)
{
    const double *counted = sl_engine_output(engine, PLAN_STEP, SL_OUTPUT_COUNTED);
    return counted ? *counted : (double)tokens;
}

/* Counts a step that ran, and writes its numbers. */
static sl_status report_step(sl_training *training, double seconds, const sl_step_scalars *scalars,
                             sl_step_report *report)
{
    sl_trainer *trainer = training->trainer;
    sl_checkpoint_state *state = &trainer->state;
    const sl_choice *choice = &trainer->runtime->blueprint->choice;
    const sl_engine *engine = trainer->runtime->engine;
    const sl_step_control *control = sl_engine_output(engine, PLAN_STEP, SL_OUTPUT_CONTROL);
    const double loss_sum = *(const double *)sl_engine_output(engine, PLAN_STEP, SL_OUTPUT_LOSS);
    const uint64_t rows = (uint64_t)choice->micro_batch * choice->accumulate * trainer->config->dp;
    const uint64_t tokens = rows * trainer->config->seq;
    const double counted = find_counted(engine, tokens);
    state->step++;
    state->next_row += rows;
    state->tokens_total += tokens;
    state->skipped_steps += control->skip != 0;
    *report = (sl_step_report){.step = state->step,
                               .loss = loss_sum / counted, /* of no token it is no number */
                               .grad_norm = control->grad_norm,
                               .learning_rate = scalars->learning_rate,
                               .tokens = tokens,
                               .tokens_total = state->tokens_total,
                               .step_ms = 1e3 * seconds,
                               .tokens_per_s = (double)tokens / seconds,
                               .flops = count_flops(trainer, tokens),
                               .rates = training->rates,
                               .rate_count = training->rate_count,
                               .checkpoint_ms = training->checkpoint_ms,
                               .loss_scale = scalars->loss_scale,
                               .skipped = control->skip != 0,
                               .counts_nothing = counted == 0,
                               .epoch = sl_data_loader_epoch(&trainer->loader, state->next_row)};
    take_statistics(training, report);
    SL_TRY(join_reports(training, report));
    count_totals(training, report);
    training->checkpoint_ms = 0;
    training->end.run_steps++;
    training->end.seconds += seconds;
    training->end.last_loss = report->loss;
    return SL_OK;
}

/* Says that a step changed nothing; the first of some such steps. */
static void tell_of_nothing(sl_training *training, const sl_step_report *report)
{
    const bool is_told = training->counted_nothing;
    training->counted_nothing = report->counts_nothing;
    if (report->counts_nothing && !is_told && sl_ranks_is_first(&training->trainer->ranks))
        sl_log_write(SL_LOG_NOTE,
                     "step %" PRIu64 ": no token of its rows counts in the loss, and the step is "
                     "skipped",
                     report->step);
}

/* A step that is not finite lowers the loss scale and counts, or ends the run: with --nonfinite
 * stop, and after too many in a row. A step without a token that counts does neither. */
static sl_status check_finite(sl_trainer *trainer, const sl_step_report *report)
{
    if (report->counts_nothing && report->grad_norm == 0)
        return SL_OK;
    bool is_finite = isfinite(report->loss) && !report->skipped;
    bool must_stop = !is_finite && trainer->config->nonfinite == SL_CONFIG_STOP;
    trainer->skips_in_a_row = is_finite ? 0 : trainer->skips_in_a_row + 1;
    if (!must_stop)
        SL_TRY(sl_schedule_update_loss_scale(trainer->config, is_finite, &trainer->state));
    if (is_finite)
        return SL_OK;
    if (must_stop)
        SL_FAIL(SL_ERROR_NONFINITE,
                "step %" PRIu64 ": loss %g, gradient norm %g: not finite, and nothing of this step "
                "was saved; try a lower --lr, or --nonfinite skip",
                report->step, report->loss, (double)report->grad_norm);
    if (trainer->skips_in_a_row >= SKIPS_IN_A_ROW_MAX)
        SL_FAIL(SL_ERROR_NONFINITE, "step %" PRIu64 ": %d steps in a row were not finite",
                report->step, SKIPS_IN_A_ROW_MAX);
    return SL_OK;
}

static bool are_minutes_over(const sl_training *training)
{
    static const double ns_a_minute = 60e9;
    const double minutes = training->trainer->config->save_minutes;
    return minutes > 0 && (double)(sl_clock_now_ns() - training->saved_ns) >= minutes * ns_a_minute;
}

/* What this rank asks all ranks for; of the clocks rank 0's counts. */
static uint32_t ask(const sl_training *training)
{
    const bool saves = sl_ranks_is_first(&training->trainer->ranks) && are_minutes_over(training);
    return (sl_stop_is_set(training->stop) ? ASKS_TO_STOP : 0u) | (saves ? ASKS_TO_SAVE : 0u);
}

/* What any rank asked for before this step, all of them do after it. A process that is alone has no
 * op that joins flags. */
static void note_flags(sl_training *training, uint32_t asked)
{
    const sl_step_control *control =
        sl_engine_output(training->trainer->runtime->engine, PLAN_STEP, SL_OUTPUT_CONTROL);
    const uint32_t flags = training->has_others ? control->flags : asked;
    training->must_stop = (flags & ASKS_TO_STOP) != 0;
    training->must_save = (flags & ASKS_TO_SAVE) != 0;
}

bool sl_training_must_stop(const sl_training *training)
{
    return training->has_others ? training->must_stop : sl_stop_is_set(training->stop);
}

bool sl_training_must_save(const sl_training *training)
{
    return training->must_save;
}

sl_status sl_training_run_step(sl_training *training)
{
    sl_trainer *trainer = training->trainer;
    sl_step_scalars scalars = sl_schedule_scalars(trainer->config, &trainer->state);
    scalars.dropout_seed = trainer->config->seed;
    const uint64_t batch = trainer->runtime->blueprint->choice.micro_batch;
    scalars.first_row = trainer->state.next_row + trainer->ranks.place.data * batch;
    scalars.row_gap = (uint32_t)((trainer->config->dp - 1) * batch);
    const uint32_t asked = ask(training);
    scalars.flags = training->has_others ? asked : 0;
    sl_ranks_begin_step(&trainer->ranks, trainer->state.step + 1);
    SL_TRY(sl_engine_step(trainer->runtime->engine, PLAN_STEP, &scalars));
    note_flags(training, asked);
    return SL_OK;
}

sl_status sl_training_step(sl_training *training, sl_step_report *report)
{
    sl_trainer *trainer = training->trainer;
    const uint64_t started_ns = sl_clock_now_ns();
    const sl_step_scalars scalars = sl_schedule_scalars(trainer->config, &trainer->state);
    SL_TRY(sl_training_run_step(training));
    SL_TRY(
        report_step(training, 1e-9 * (double)(sl_clock_now_ns() - started_ns), &scalars, report));
    SL_TRY(sl_sinks_step(&trainer->sinks, report));
    tell_of_nothing(training, report);
    SL_TRY(sl_training_draw(training));
    return check_finite(trainer, report);
}

/* ---- between steps ---- */

/* Saves by `save`, in `name` below --save (NULL: there itself). */
static sl_status run_save(sl_training *training, sl_status (*save)(sl_trainer *trainer),
                          const char *name)
{
    sl_trainer *trainer = training->trainer;
    char *directory = NULL;
    sl_trainer_look_at_data(trainer);
    SL_TRY(sl_sinks_saving(&trainer->sinks));
    SL_TRY(sl_engine_drain(trainer->runtime->engine)); /* the updates, which are the step's */
    const uint64_t started_ns = sl_clock_now_ns();
    SL_TRY(save(trainer));
    double ms = 1e-6 * (double)(sl_clock_now_ns() - started_ns);
    training->checkpoint_ms += ms;
    training->end.checkpoint_ms += ms;
    if (name)
        SL_TRY(sl_files_join_path(trainer->config->save, name, &directory));
    const sl_status status = sl_sinks_saved(&trainer->sinks, trainer->state.step,
                                            name ? directory : trainer->config->save);
    free(directory);
    return status;
}

static sl_status save_best(sl_training *training)
{
    return run_save(training, sl_trainer_save_best, SL_BEST_NAME);
}

/* The lanes end the step before, and what the engine counts from here on is none of a step. */
static sl_status begin_between(sl_training *training)
{
    sl_engine_statistics late;
    sl_trainer_look_at_data(training->trainer);
    SL_TRY(sl_engine_drain(training->trainer->runtime->engine));
    SL_TRY(sl_training_draw(training));
    sl_engine_take_statistics(training->trainer->runtime->engine, &late);
    add_statistics(&late, &training->late);
    return SL_OK;
}

static void end_between(sl_training *training)
{
    sl_engine_statistics between;
    sl_engine_take_statistics(training->trainer->runtime->engine, &between);
}

/* Who hears of an evaluation while it goes. */
typedef struct evaluation_listener {
    sl_sinks *sinks;
    const char *set;
} evaluation_listener;

static void tell_progress(void *user, const sl_eval_progress *progress)
{
    const evaluation_listener *self = user;
    sl_sinks_evaluating(self->sinks, self->set, progress);
}

/* Does nothing without such data. With other ranks it is not left early: they would be alone. */
static sl_status run_evaluation(sl_training *training, const evaluation *what,
                                sl_eval_report *out_report)
{
    sl_trainer *trainer = training->trainer;
    const sl_blueprint *blueprint = trainer->runtime->blueprint;
    sl_eval_report report = {.step = trainer->state.step, .set = what->set};
    evaluation_listener listener = {&trainer->sinks, what->set};
    const sl_evaluate_args args = {.runtime = trainer->runtime,
                                   .plan_index = PLAN_EVALUATION,
                                   .tail_plan_index =
                                       sl_blueprint_tail_program(&blueprint->task, what->is_test),
                                   .loader = what->loader,
                                   .ranks = &trainer->ranks,
                                   .range = what->range,
                                   .watch = {.stop = training->has_others ? NULL : training->stop,
                                             .passed = tell_progress,
                                             .user = &listener}};
    if (!what->loader->row)
        return SL_OK;
    SL_TRY(begin_between(training));
    SL_TRY(sl_evaluate_pass(&args, &report));
    end_between(training);
    *out_report = report;
    if (report.is_partial) /* a signal: the loss of some rows would look like that of all */
        return SL_OK;
    if (!what->is_test)
        training->evaluated_step = report.step;
    return sl_sinks_eval(&trainer->sinks, &report);
}

sl_status sl_training_validate(sl_training *training, sl_eval_report *out_report)
{
    const sl_trainer *trainer = training->trainer;
    const evaluation what = {
        .set = trainer->eval_tokens || trainer->inputs.eval_rows.call ? "eval" : "validation",
        .loader = &trainer->eval_loader,
        .range = trainer->eval_range};
    SL_TRY(run_evaluation(training, &what, out_report));
    if (!what.loader->row || out_report->is_partial)
        return SL_OK;
    return sl_best_count(out_report->loss, &training->trainer->state) && trainer->config->keep_best
               ? save_best(training)
               : SL_OK;
}

sl_status sl_training_test(sl_training *training)
{
    const evaluation what = {.set = "test",
                             .loader = &training->trainer->test_loader,
                             .range = training->trainer->test_range,
                             .is_test = true};
    sl_eval_report report;
    return run_evaluation(training, &what, &report);
}

/* With other ranks it is not left early, as an evaluation. */
sl_status sl_training_sample(sl_training *training)
{
    sl_trainer *trainer = training->trainer;
    const sl_samples_args args = {.runtime = trainer->runtime,
                                  .ranks = &trainer->ranks,
                                  .stop = training->has_others ? NULL : training->stop};
    sl_sample_report report = {.step = trainer->state.step};
    if (!trainer->samples)
        return SL_OK;
    SL_TRY(begin_between(training));
    SL_TRY(sl_samples_write(trainer->samples, &args, &report));
    end_between(training);
    return sl_sinks_sample(&trainer->sinks, &report);
}

sl_status sl_training_save(sl_training *training)
{
    training->must_save = false;
    SL_TRY(run_save(training, sl_trainer_save, NULL));
    training->saved_ns = sl_clock_now_ns();
    return SL_OK;
}

/* Bytes of the blocks of a parameter: padding behind its end is zeros on every rank. */
static uint64_t count_parameter(void *user, uint32_t tensor_index)
{
    const sl_layout *layout = ((const sl_runtime *)user)->blueprint->layout;
    return layout->tensor_blocks[tensor_index] *
           sl_layout_block_bytes(layout, SL_GROUP_PARAM, layout->chunk_of_tensor[tensor_index]);
}

/* Of a parameter in shards, what is another rank's reads as zeros. */
static sl_status read_parameter(void *user, uint32_t tensor_index, uint64_t first_byte,
                                uint64_t bytes, void *data)
{
    const sl_runtime *runtime = user;
    const sl_layout *layout = runtime->blueprint->layout;
    const uint32_t chunk_index = layout->chunk_of_tensor[tensor_index];
    const uint64_t block_bytes = sl_layout_block_bytes(layout, SL_GROUP_PARAM, chunk_index);
    const sl_stored stored = sl_layout_stored(layout, SL_GROUP_PARAM, chunk_index);
    const uint64_t kept_first = stored.first / SL_BLOCK_ELEMENTS * block_bytes;
    const uint64_t kept_end = kept_first + stored.count / SL_BLOCK_ELEMENTS * block_bytes;
    const uint64_t start =
        layout->first_element[tensor_index] / SL_BLOCK_ELEMENTS * block_bytes + first_byte;
    const uint64_t first = start > kept_first ? start : kept_first;
    const uint64_t end = start + bytes < kept_end ? start + bytes : kept_end;
    if (first > start || end < start + bytes)
        memset(data, 0, bytes);
    if (first >= end)
        return SL_OK;
    return sl_engine_read_chunk(runtime->engine, SL_GROUP_PARAM, chunk_index, first - kept_first,
                                end - first, (unsigned char *)data + (first - start));
}

/* What the ranks of one stage hold alike. */
static sl_status compare_stage(const sl_trainer *trainer, const sl_replicas *replicas,
                               bool is_sharded)
{
    sl_replicas of_data = *replicas;
    of_data.comm = is_sharded ? NULL : trainer->ranks.end[SL_COMM_DATA].comm;
    of_data.has_split = true;
    if (replicas->comm)
        SL_TRY(sl_replicas_compare(replicas, trainer->state.step));
    return of_data.comm ? sl_replicas_compare(&of_data, trainer->state.step) : SL_OK;
}

/* A fault that nobody hears of would go on in every rank that adds to its sums. */
sl_status sl_training_compare(sl_training *training)
{
    sl_trainer *trainer = training->trainer;
    sl_runtime *runtime = trainer->runtime;
    if (!training->has_others || trainer->state.step % STEPS_BETWEEN_COMPARISONS != 0)
        return SL_OK;
    const bool is_sharded =
        sl_program_shards_group(runtime->blueprint->programs[0], SL_GROUP_PARAM);
    if (is_sharded && trainer->ranks.tensor.size == 0)
        return SL_OK; /* nobody else has what a rank keeps */
    SL_TRY(sl_engine_drain(runtime->engine));
    const sl_program *program = runtime->blueprint->programs[0];
    sl_replicas replicas = {.comm = trainer->ranks.world,
                            .tensors = program->tensors,
                            .tensor_count = program->tensor_count,
                            .count = count_parameter,
                            .read = read_parameter,
                            .user = runtime,
                            .buffer = runtime->half,
                            .buffer_bytes = SL_RUNTIME_BUFFER_BYTES};
    if (is_sharded || trainer->config->pp > 1) /* its lane is idle; other stages hold others */
        replicas.comm = trainer->ranks.end[SL_COMM_TENSOR].comm;
    if (trainer->config->pp > 1)
        return compare_stage(trainer, &replicas, is_sharded);
    return sl_replicas_compare_all(
        &replicas, is_sharded ? NULL : trainer->ranks.end[SL_COMM_DATA].comm, trainer->state.step);
}

/* ---- the end ---- */

/* After a failure others may not come: this rank tells of itself. */
static sl_status count_end(sl_training *training, bool has_failed)
{
    const sl_trainer *trainer = training->trainer;
    sl_step_report after_last_step;
    find_planned_peaks(training, training->end.planned_peak_bytes);
    take_statistics(training, &after_last_step);
    sl_status status = has_failed ? SL_OK : join_reports(training, &after_last_step);
    count_totals(training, &after_last_step);
    training->end.step = trainer->state.step;
    training->end.tokens_total = trainer->state.tokens_total;
    training->end.skipped_steps = trainer->state.skipped_steps;
    return status;
}

/* A failure of the run stands; whether a log takes one more record is second to it. */
sl_status sl_training_end(sl_training *training, bool has_failed)
{
    sl_trainer *trainer = training->trainer;
    const sl_first_failure *of_sinks = &trainer->sinks.failure;
    sl_first_failure failure = {0};
    sl_first_failure_keep(&failure, count_end(training, has_failed));
    has_failed |= failure.status != SL_OK;
    if (has_failed)
        training->end.reason = "error";
    else
        sl_first_failure_keep(&failure, sl_training_draw(training));
    sl_first_failure_keep(&failure, sl_sinks_end(&trainer->sinks, &training->end));
    if (!has_failed && of_sinks->status != SL_OK)
        sl_first_failure_keep(
            &failure,
            sl_status_fail(of_sinks->status, "%s; the run itself is complete", of_sinks->message));
    if (!has_failed && failure.status == SL_OK) /* else sl_trainer_close warns if it is not whole */
        sl_first_failure_keep(&failure, sl_drawing_end(&trainer->drawing));
    return sl_first_failure_return(&failure);
}

static void take_rate(void *user, const char *pattern, double factor)
{
    sl_training *training = user;
    if (training->rate_count == SL_REPORT_RATES)
        return;
    sl_report_rate *rate = &training->rates[training->rate_count++];
    snprintf(rate->pattern, sizeof rate->pattern, "%s", pattern);
    rate->factor = (float)factor;
}

void sl_training_begin(sl_trainer *trainer, const volatile sig_atomic_t *stop,
                       sl_training *out_training)
{
    *out_training = (sl_training){.trainer = trainer,
                                  .stop = stop,
                                  .has_others = trainer->ranks.world != NULL,
                                  .evaluated_step = UINT64_MAX,
                                  .saved_ns = sl_clock_now_ns()};
    out_training->end.last_loss = NAN;
    for (int group = 0; group < SL_COMM_GROUP_COUNT && trainer->ranks.world; group++)
        out_training->sent_bytes[group] =
            sl_comm_sent_bytes(trainer->ranks.world, (sl_comm_group)group);
    sl_update_rules_list_rates(trainer->config, take_rate, out_training);
}
