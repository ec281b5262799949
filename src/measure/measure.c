/* Opens, runs, and reads what is still to be read when the lanes are idle. */
#include "measure.h"

#include "accounts.h"
#include "base/clock.h"
#include "base/rng.h"
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

/* ---- inputs ---- */

/* A row is one document where positions are asked for. */
static void fill_random(const sl_trainer *trainer, const sl_engine_fill *what, int32_t *out)
{
    uint64_t count = what->bytes / sizeof *out, seq = trainer->config->seq;
    uint64_t stream = ((uint64_t)what->slot << 32) + what->micro_batch;
    for (uint64_t i = 0; i < count; i++)
        out[i] =
            what->slot == SL_INPUT_POSITIONS
                ? (int32_t)(i % seq)
                : (int32_t)sl_rng_below(trainer->config->seed, stream, i, trainer->shape.vocab);
}

/* Called by the input lane while a step runs. */
static sl_status fill_input(void *user, const sl_engine_fill *what, void *memory)
{
    const sl_trainer *trainer = user;
    uint32_t batch = trainer->runtime->blueprint->choice.micro_batch;
    const sl_row_range rows = {trainer->state.next_row + (uint64_t)what->micro_batch * batch,
                               batch};
    if (trainer->loader.row)
        return sl_data_loader_read(&trainer->loader, rows, what->slot, memory);
    fill_random(trainer, what, memory);
    return SL_OK;
}

/* ---- steps ---- */

static sl_status open_session(measuring *self, sl_blueprint *blueprint)
{
    const sl_engine_source source = {fill_input, self->trainer};
    const sl_runtime_hooks hooks = {
        .observer =
            sl_record_observer(self->record, sl_timeline_observer(self->trainer->drawing.timeline)),
        .source = &source,
        .paints = true,
        .timeout_s = self->trainer->config->rank_timeout};
    SL_TRY(sl_runtime_open(blueprint, &hooks, &self->trainer->runtime));
    return sl_runtime_initialise(self->trainer->runtime, self->trainer->config->seed);
}

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
    while (self->run_count < count && !*args->stop) {
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
    SL_TRY(open_session(self, blueprint));
    SL_TRY(run_steps(self));
    if (self->run_count <= SL_MEASURE_WARM_UP) {
        *out_measured = (sl_measured){.was_stopped = true};
        return SL_OK;
    }
    return read_results(self, out_measured);
}

sl_status sl_measure_run(const sl_measure_args *args, sl_measured *out_measured)
{
    const sl_engine_plan step = {args->blueprint->programs[STEP_PLAN],
                                 args->blueprint->plans[STEP_PLAN]};
    measuring self = {.args = args, .trainer = args->trainer};
    sl_status status = sl_record_open(&step, SL_MEASURE_WARM_UP, &self.record);
    if (status == SL_OK)
        status = sl_drawing_open(self.trainer->config->timeline, &step, &self.trainer->drawing);
    if (status == SL_OK)
        status = measure(&self, args->blueprint, out_measured);
    else
        sl_blueprint_close(args->blueprint);
    if (self.trainer->runtime) /* its lanes call the observers */
        (void)sl_engine_drain(self.trainer->runtime->engine);
    if (status == SL_OK)
        status = sl_drawing_end(&self.trainer->drawing);
    sl_record_close(self.record);
    return status;
}
