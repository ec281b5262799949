/* The training loop, from the last function upwards.
 *
 *   sl_loop_run    all steps, then the end is told, also on failure
 *   run_steps      while there are steps to do and no signal has come: a step; a checkpoint and an
 *                  evaluation where they are due, in this order, for an evaluation may take long.
 *                  At the end both once more, if they are missing
 *   run_step       begins: the scalars of the step. The engine runs plan 0, which asks for its rows
 *                  itself. Ends: counts, sinks, timeline; then the loss scale, or a failure
 *
 * Nothing here allocates between steps but the saving of checkpoints.
 */
#include "loop.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "schedule.h"
#include "session/replicas.h"
#include "train/evaluate/evaluate.h"

enum { SKIPS_IN_A_ROW_MAX = 50 };
enum { PLAN_STEP = 0, PLAN_EVALUATION = 1 };
enum { STEPS_BETWEEN_COMPARISONS = 100 }; /* of replicated parameters */
enum { ASKS_TO_STOP = 1 };                /* a flag of sl_step_scalars and sl_step_control */

/* Data to evaluate on. */
typedef struct evaluation {
    const char *set; /* its name in the log */
    const sl_data_loader *loader;
    sl_evaluate_range range;
    bool is_test;
} evaluation;

typedef struct loop {
    sl_trainer *trainer;
    const volatile sig_atomic_t *stop; /* of this process */
    bool has_others;           /* ranks, which stop together: by what each step's norm carried */
    bool must_stop;            /* with other ranks: one of them asked */
    uint64_t evaluated_step;   /* UINT64_MAX: none yet */
    sl_engine_statistics late; /* of updates that finished after their step had been logged */
    double checkpoint_ms;      /* of saves after the step that was logged last */
    uint64_t sent_bytes[SL_COMM_GROUP_COUNT]; /* logged */
    bool has_timeline_failed;
    sl_end_report end;
} loop;

static sl_status draw_timeline(loop *run)
{
    sl_trainer *trainer = run->trainer;
    return sl_sinks_outlive(&trainer->sinks,
                            sl_timeline_write(trainer->drawing.timeline, trainer->state.step),
                            &run->has_timeline_failed);
}

/* ---- a step ---- */

static double count_flops(const sl_trainer *trainer, uint64_t tokens)
{
    return sl_blueprint_token_flops(trainer->session->blueprint) * (double)tokens;
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

static void find_planned_peaks(const loop *run, uint64_t out_bytes[SL_TIER_COUNT])
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        out_bytes[tier] = sl_blueprint_peak_bytes(run->trainer->session->blueprint, (sl_tier)tier);
}

/* Makes a rank's report that of all of them; they call it together. */
static sl_status join_reports(loop *run, sl_step_report *report)
{
    const sl_ranks *ranks = &run->trainer->ranks;
    rank_report joint;
    if (!run->has_others)
        return SL_OK;
    for (int group = 0; group < SL_COMM_GROUP_COUNT; group++) {
        uint64_t sent = sl_comm_sent_bytes(ranks->world, (sl_comm_group)group);
        joint.comm_bytes[group] = sent - run->sent_bytes[group];
        run->sent_bytes[group] = sent;
    }
    find_planned_peaks(run, joint.planned_bytes);
    memcpy(joint.peak_bytes, report->peak_bytes, sizeof joint.peak_bytes);
    memcpy(joint.moved_bytes, report->moved_bytes, sizeof joint.moved_bytes);
    SL_TRY(sl_comm_merge(ranks->world, sizeof joint, &joint, merge_reports));
    memcpy(run->end.planned_peak_bytes, joint.planned_bytes, sizeof joint.planned_bytes);
    memcpy(report->peak_bytes, joint.peak_bytes, sizeof joint.peak_bytes);
    memcpy(report->moved_bytes, joint.moved_bytes, sizeof joint.moved_bytes);
    memcpy(report->comm_bytes, joint.comm_bytes, sizeof joint.comm_bytes);
    report->rank_count = sl_comm_size(ranks->world);
    return SL_OK;
}

static void count_totals(loop *run, const sl_step_report *report)
{
    sl_end_report *end = &run->end;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        end->measured_peak_bytes[tier] =
            sl_bits_max(end->measured_peak_bytes[tier], report->peak_bytes[tier]);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        end->moved_bytes[lane] += report->moved_bytes[lane];
}

/* What the engine counted since the last call, into a report. */
static void take_statistics(loop *run, sl_step_report *report)
{
    sl_engine_statistics statistics;
    sl_engine_take_statistics(run->trainer->session->engine, &statistics);
    add_statistics(&run->late, &statistics);
    run->late = (sl_engine_statistics){0};
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

/* Counts a step that ran, and writes its numbers. */
static sl_status report_step(loop *run, double seconds, const sl_step_scalars *scalars,
                             sl_step_report *report)
{
    sl_trainer *trainer = run->trainer;
    sl_checkpoint_state *state = &trainer->state;
    const sl_choice *choice = &trainer->session->blueprint->choice;
    const sl_engine *engine = trainer->session->engine;
    const sl_step_control *control = sl_engine_output(engine, PLAN_STEP, SL_OUTPUT_CONTROL);
    const double loss_sum = *(const double *)sl_engine_output(engine, PLAN_STEP, SL_OUTPUT_LOSS);
    const uint64_t rows = (uint64_t)choice->micro_batch * choice->accumulate * trainer->config->dp;
    const uint64_t tokens = rows * trainer->config->seq;
    state->step++;
    state->next_row += rows;
    state->tokens_total += tokens;
    state->skipped_steps += control->skip != 0;
    *report = (sl_step_report){.step = state->step,
                               .loss = loss_sum / (double)tokens,
                               .grad_norm = control->grad_norm,
                               .learning_rate = scalars->learning_rate,
                               .tokens = tokens,
                               .tokens_total = state->tokens_total,
                               .step_ms = 1e3 * seconds,
                               .tokens_per_s = (double)tokens / seconds,
                               .flops = count_flops(trainer, tokens),
                               .checkpoint_ms = run->checkpoint_ms,
                               .loss_scale = scalars->loss_scale,
                               .skipped = control->skip != 0,
                               .epoch = sl_data_loader_epoch(&trainer->loader, state->next_row)};
    take_statistics(run, report);
    SL_TRY(join_reports(run, report));
    count_totals(run, report);
    run->checkpoint_ms = 0;
    run->end.run_steps++;
    run->end.seconds += seconds;
    run->end.last_loss = report->loss;
    return SL_OK;
}

/* A step that is not finite lowers the loss scale and counts, or ends the run: with --nonfinite
 * stop, and after too many in a row. */
static sl_status check_finite(sl_trainer *trainer, const sl_step_report *report)
{
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

/* What any rank asked for before this step, all of them do after it. */
static void note_flags(loop *run)
{
    const sl_step_control *control =
        sl_engine_output(run->trainer->session->engine, PLAN_STEP, SL_OUTPUT_CONTROL);
    run->must_stop = (control->flags & ASKS_TO_STOP) != 0;
}

static bool must_stop(const loop *run)
{
    return run->has_others ? run->must_stop : *run->stop != 0;
}

static sl_status run_step(loop *run)
{
    sl_trainer *trainer = run->trainer;
    const uint64_t started_ns = sl_clock_now_ns();
    sl_step_scalars scalars = sl_schedule_scalars(trainer->config, &trainer->state);
    scalars.dropout_seed = trainer->config->seed;
    const uint64_t batch = trainer->session->blueprint->choice.micro_batch;
    scalars.first_row = trainer->state.next_row + trainer->ranks.place.data * batch;
    scalars.row_gap = (uint32_t)((trainer->config->dp - 1) * batch);
    scalars.flags = run->has_others && *run->stop ? ASKS_TO_STOP : 0;
    sl_ranks_begin_step(&trainer->ranks, trainer->state.step + 1);
    SL_TRY(sl_engine_step(trainer->session->engine, PLAN_STEP, &scalars));
    sl_step_report report;
    note_flags(run);
    SL_TRY(report_step(run, 1e-9 * (double)(sl_clock_now_ns() - started_ns), &scalars, &report));
    SL_TRY(sl_sinks_step(&trainer->sinks, &report));
    SL_TRY(draw_timeline(run));
    return check_finite(trainer, &report);
}

/* ---- between steps ---- */

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
static sl_status run_evaluation(loop *run, const evaluation *what)
{
    sl_trainer *trainer = run->trainer;
    const sl_blueprint *blueprint = trainer->session->blueprint;
    sl_eval_report report = {.step = trainer->state.step, .set = what->set};
    evaluation_listener listener = {&trainer->sinks, what->set};
    const sl_evaluate_args args = {.session = trainer->session,
                                   .plan_index = PLAN_EVALUATION,
                                   .tail_plan_index =
                                       sl_blueprint_tail_program(&blueprint->task, what->is_test),
                                   .loader = what->loader,
                                   .ranks = &trainer->ranks.table,
                                   .sets = (uint32_t)trainer->config->dp,
                                   .set_index = trainer->ranks.place.data,
                                   .stages = (uint32_t)trainer->config->pp,
                                   .range = what->range,
                                   .watch = {.stop = run->has_others ? NULL : run->stop,
                                             .passed = tell_progress,
                                             .user = &listener}};
    sl_engine_statistics late, of_evaluation;
    if (!what->loader->row)
        return SL_OK;
    sl_trainer_look_at_data(trainer);
    SL_TRY(sl_engine_drain(trainer->session->engine));
    SL_TRY(draw_timeline(run));
    sl_engine_take_statistics(trainer->session->engine, &late);
    add_statistics(&late, &run->late);
    SL_TRY(sl_evaluate_pass(&args, &report));
    sl_engine_take_statistics(trainer->session->engine, &of_evaluation); /* not of the next step */
    if (report.is_partial) /* a signal: the loss of some rows would look like that of all */
        return SL_OK;
    if (!what->is_test)
        run->evaluated_step = report.step;
    return sl_sinks_eval(&trainer->sinks, &report);
}

static sl_status validate(loop *run)
{
    const sl_trainer *trainer = run->trainer;
    const evaluation what = {.set = trainer->eval_tokens ? "eval" : "validation",
                             .loader = &trainer->eval_loader,
                             .range = trainer->eval_range};
    return run_evaluation(run, &what);
}

static sl_status run_test(loop *run)
{
    const evaluation what = {.set = "test",
                             .loader = &run->trainer->test_loader,
                             .range = run->trainer->test_range,
                             .is_test = true};
    return run_evaluation(run, &what);
}

static sl_status save_checkpoint(loop *run)
{
    sl_trainer *trainer = run->trainer;
    sl_trainer_look_at_data(trainer);
    SL_TRY(sl_sinks_saving(&trainer->sinks));
    SL_TRY(sl_engine_drain(trainer->session->engine)); /* the updates, which are the step's */
    const uint64_t started_ns = sl_clock_now_ns();
    SL_TRY(sl_trainer_save(trainer));
    double ms = 1e-6 * (double)(sl_clock_now_ns() - started_ns);
    run->checkpoint_ms += ms;
    run->end.checkpoint_ms += ms;
    return sl_sinks_saved(&trainer->sinks, trainer->saved_step);
}

static bool is_due(uint64_t step, uint64_t every)
{
    return every && step % every == 0;
}

/* Of a parameter in shards, what is another rank's reads as zeros. */
static sl_status read_parameter(void *user, uint32_t tensor_index, uint64_t first_byte,
                                uint64_t bytes, void *data)
{
    const sl_session *session = user;
    const sl_layout *layout = session->blueprint->layout;
    const uint64_t size = sl_type_bytes(layout->group_type[SL_GROUP_PARAM]);
    const uint32_t chunk_index = layout->chunk_of_tensor[tensor_index];
    const sl_stored stored = sl_layout_stored(layout, SL_GROUP_PARAM, chunk_index);
    const uint64_t kept_first = stored.first * size;
    const uint64_t kept_end = kept_first + stored.count * size;
    const uint64_t start = layout->first_element[tensor_index] * size + first_byte;
    const uint64_t first = start > kept_first ? start : kept_first;
    const uint64_t end = start + bytes < kept_end ? start + bytes : kept_end;
    if (first > start || end < start + bytes)
        memset(data, 0, bytes);
    if (first >= end)
        return SL_OK;
    return sl_engine_read_chunk(session->engine, SL_GROUP_PARAM, chunk_index, first - kept_first,
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
static sl_status compare_replicas(loop *run)
{
    sl_trainer *trainer = run->trainer;
    sl_session *session = trainer->session;
    if (!run->has_others || !is_due(trainer->state.step, STEPS_BETWEEN_COMPARISONS))
        return SL_OK;
    const bool is_sharded =
        sl_program_shards_group(session->blueprint->programs[0], SL_GROUP_PARAM);
    if (is_sharded && trainer->ranks.tensor.size == 0)
        return SL_OK; /* nobody else has what a rank keeps */
    SL_TRY(sl_engine_drain(session->engine));
    const sl_program *program = session->blueprint->programs[0];
    sl_replicas replicas = {.comm = trainer->ranks.world,
                            .tensors = program->tensors,
                            .tensor_count = program->tensor_count,
                            .element_bytes = (uint32_t)sl_type_bytes(
                                session->blueprint->layout->group_type[SL_GROUP_PARAM]),
                            .read = read_parameter,
                            .user = session};
    if (is_sharded || trainer->config->pp > 1) /* its lane is idle; other stages hold others */
        replicas.comm = trainer->ranks.end[SL_COMM_TENSOR].comm;
    if (trainer->config->pp > 1)
        return compare_stage(trainer, &replicas, is_sharded);
    return sl_replicas_compare_all(
        &replicas, is_sharded ? NULL : trainer->ranks.end[SL_COMM_DATA].comm, trainer->state.step);
}

static sl_status run_steps(loop *run)
{
    sl_trainer *trainer = run->trainer;
    const sl_config *config = trainer->config;
    while (trainer->state.step < config->steps && !must_stop(run)) {
        SL_TRY(run_step(run));
        SL_TRY(compare_replicas(run)); /* before it is saved */
        if (config->save && is_due(trainer->state.step, config->save_every))
            SL_TRY(save_checkpoint(run));
        if (is_due(trainer->state.step, config->eval_every))
            SL_TRY(validate(run));
    }
    bool was_stopped = trainer->state.step < config->steps;
    bool has_news = run->end.run_steps > 0 || !was_stopped; /* else, first values alone */
    run->end.reason = was_stopped ? "signal" : "done";
    if (config->save && has_news && trainer->saved_step != trainer->state.step)
        SL_TRY(save_checkpoint(run));
    if (!was_stopped && run->evaluated_step != trainer->state.step)
        SL_TRY(validate(run));
    if (!was_stopped)
        SL_TRY(run_test(run));
    sl_trainer_look_at_data(trainer);
    SL_TRY(sl_engine_drain(trainer->session->engine));
    return draw_timeline(run);
}

/* ---- the run ---- */

/* After a failure others may not come: this rank tells of itself. */
static sl_status report_end(loop *run, bool has_failed)
{
    const sl_trainer *trainer = run->trainer;
    sl_step_report after_last_step;
    find_planned_peaks(run, run->end.planned_peak_bytes);
    take_statistics(run, &after_last_step);
    sl_status status = has_failed ? SL_OK : join_reports(run, &after_last_step);
    count_totals(run, &after_last_step);
    run->end.step = trainer->state.step;
    run->end.tokens_total = trainer->state.tokens_total;
    run->end.skipped_steps = trainer->state.skipped_steps;
    return status;
}

sl_status sl_loop_run(sl_trainer *trainer, const volatile sig_atomic_t *stop,
                      sl_end_report *out_end)
{
    loop run = {.trainer = trainer,
                .stop = stop,
                .has_others = trainer->ranks.world != NULL,
                .evaluated_step = UINT64_MAX};
    sl_sinks *sinks = &trainer->sinks;
    run.end.last_loss = NAN;
    sl_status status = run_steps(&run);
    sl_status end_status = report_end(&run, status != SL_OK);
    status = status == SL_OK ? end_status : status;
    if (status != SL_OK)
        run.end.reason = "error";
    *out_end = run.end;
    if (status == SL_OK)
        status = sl_sinks_end(sinks, &run.end);
    if (status == SL_OK && sinks->failure.status != SL_OK)
        SL_FAIL(sinks->failure.status, "%s; the run itself is complete", sinks->failure.message);
    if (status == SL_OK)
        return SL_OK;
    /* The failure stands; whether a sink takes one more record is second to it. */
    char message[SL_STATUS_MESSAGE_BYTES];
    snprintf(message, sizeof message, "%s", sl_status_message());
    (void)sl_sinks_end(sinks, &run.end);
    SL_FAIL(status, "%s", message);
}
