/* Opens, runs, and reads what is still to be read when the lanes are idle. */
#include "measure.h"

#include <inttypes.h>

#include "accounts.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/stop.h"
#include "train/preparation.h"
#include "train/schedule.h"

enum { STEP_PLAN = 0 };

typedef struct measuring {
    const sl_measure_args *args;
    sl_trainer *trainer;
    sl_record *record;
    sl_engine_statistics statistics; /* of the measured steps */
    uint32_t run_count;              /* steps that ran, warm-up included */
    sl_cores cores;                  /* when the warm-up ended */
} measuring;

/* ---- opening ---- */

/* A step of this process has no other ranks to wait for. */
static sl_status check_alone(const sl_config *config)
{
    if (config->tp > 1)
        SL_FAIL(SL_ERROR_USAGE,
                "--tp %" PRIu64 ": profile measures one process; plan --tp %" PRIu64
                " shows what each rank would hold, and train --timeline FILE under sluice launch "
                "draws what the first one does",
                config->tp, config->tp);
    if (config->dp != SL_CONFIG_UNSET && config->dp > 1)
        SL_FAIL(SL_ERROR_USAGE,
                "--dp %" PRIu64 ": profile measures one process; plan --dp %" PRIu64
                " shows what each rank would hold",
                config->dp, config->dp);
    return SL_OK;
}

sl_status sl_measure_prepare(sl_config *config, sl_trainer *trainer)
{
    SL_TRY(check_alone(config));
    return sl_preparation_run(config, SL_CONFIG_PROFILE, trainer);
}

/* Called by the input lane while a step runs. A row is one document where positions are asked
 * for. */
static sl_status fill_random(void *user, const sl_engine_fill *what, void *memory)
{
    const sl_trainer *trainer = user;
    int32_t *out = memory;
    uint64_t count = what->bytes / sizeof *out, seq = trainer->config->seq;
    uint64_t stream = ((uint64_t)what->slot << 32) + what->micro_batch;
    for (uint64_t i = 0; i < count; i++)
        out[i] =
            what->slot == SL_INPUT_POSITIONS
                ? (int32_t)(i % seq)
                : (int32_t)sl_rng_below(trainer->config->seed, stream, i, trainer->shape.vocab);
    return SL_OK;
}

static const sl_engine_observer *observe(void *user, const sl_engine_observer *next)
{
    return sl_record_observer(user, next);
}

static sl_status open_engine(measuring *self, sl_blueprint *blueprint)
{
    sl_trainer *trainer = self->trainer;
    const sl_engine_source random = {fill_random, trainer};
    trainer->hooks = (sl_trainer_hooks){
        .rows = &random, .observe = observe, .user = self->record, .paints = true};
    const sl_status status = sl_trainer_open(trainer, blueprint);
    trainer->hooks = (sl_trainer_hooks){0};
    return status;
}

/* ---- steps ---- */

static sl_status run_step(measuring *self)
{
    sl_trainer *trainer = self->trainer;
    const sl_choice *choice = &trainer->runtime->blueprint->choice;
    const uint64_t started_ns = sl_clock_now_ns();
    sl_step_scalars scalars = sl_schedule_scalars(trainer->config, &trainer->state);
    scalars.dropout_seed = trainer->config->seed;
    scalars.first_row = trainer->state.next_row;
    SL_TRY(sl_engine_step(trainer->runtime->engine, STEP_PLAN, &scalars));
    trainer->state.step++;
    trainer->state.next_row += (uint64_t)choice->micro_batch * choice->accumulate;
    self->run_count++;
    SL_TRY(sl_timeline_write(self->trainer->drawing.timeline, self->run_count));
    if (self->args->passed)
        self->args->passed(self->args->user, self->run_count,
                           1e-9 * (double)(sl_clock_now_ns() - started_ns));
    return SL_OK;
}

/* Bytes are counted where a command is issued, so those of the warm-up are when its steps return.
 */
static void begin_measuring(measuring *self)
{
    sl_engine_take_statistics(self->trainer->runtime->engine, &self->statistics);
    self->cores = sl_cores_read(NULL);
}

static sl_status run_steps(measuring *self)
{
    const sl_measure_args *args = self->args;
    sl_engine *engine = self->trainer->runtime->engine;
    uint64_t count = (uint64_t)SL_MEASURE_WARM_UP + args->step_count;
    while (self->run_count < count && !sl_stop_is_set(args->stop)) {
        SL_TRY(run_step(self));
        if (self->run_count == SL_MEASURE_WARM_UP)
            begin_measuring(self);
    }
    SL_TRY(sl_engine_drain(engine));
    sl_engine_take_statistics(engine, &self->statistics);
    return sl_timeline_write(self->trainer->drawing.timeline, self->run_count);
}

/* ---- what was measured ---- */

static sl_status read_results(const measuring *self, sl_measured *measured)
{
    const sl_measure_args *args = self->args;
    const sl_cores now = sl_cores_read(NULL);
    const sl_accounts_source source = {
        .trainer = self->trainer,
        .record = self->record,
        .statistics = &self->statistics,
        .step_count = self->run_count - SL_MEASURE_WARM_UP,
        .cores = {now.used_ns - self->cores.used_ns, now.waited_ns - self->cores.waited_ns},
        .heap_bytes = args->heap_bytes ? args->heap_bytes() : 0};
    SL_TRY(sl_accounts_fill(&source, measured));
    measured->warm_up_count = SL_MEASURE_WARM_UP;
    measured->was_stopped = self->run_count < SL_MEASURE_WARM_UP + args->step_count;
    return SL_OK;
}

static sl_status measure(measuring *self, sl_blueprint *blueprint, sl_measured *out_measured)
{
    SL_TRY(open_engine(self, blueprint));
    SL_TRY(run_steps(self));
    if (self->run_count <= SL_MEASURE_WARM_UP) {
        *out_measured = (sl_measured){.was_stopped = true};
        return SL_OK;
    }
    return read_results(self, out_measured);
}

sl_status sl_measure_run(const sl_measure_args *args, sl_measured *out_measured)
{
    measuring self = {.args = args, .trainer = args->trainer};
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal;
    SL_TRY(sl_search_find(&self.trainer->search, &blueprint, &refusal));
    if (args->planned)
        args->planned(args->user, blueprint);
    const sl_engine_plan step = {blueprint->programs[STEP_PLAN], blueprint->plans[STEP_PLAN]};
    sl_status status = sl_record_open(&step, SL_MEASURE_WARM_UP, &self.record);
    if (status == SL_OK)
        status = measure(&self, blueprint, out_measured);
    else
        sl_blueprint_close(blueprint);
    if (self.trainer->runtime) /* its lanes call the observers */
        (void)sl_engine_drain(self.trainer->runtime->engine);
    if (status == SL_OK)
        status = sl_drawing_end(&self.trainer->drawing);
    sl_record_close(self.record);
    return status;
}
