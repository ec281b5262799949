/* Opens, runs, and reads what is still to be read when the lanes are idle. */
#include "measure.h"

#include "accounts.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/stop.h"
#include "ranks.h"
#include "train/training.h"

enum { STEP_PLAN = 0 };

typedef struct measuring {
    const sl_measure_args *args;
    sl_trainer *trainer;
    sl_training training; /* of its steps */
    sl_record *record;
    sl_engine_statistics statistics;          /* of the measured steps */
    uint64_t sent_bytes[SL_COMM_GROUP_COUNT]; /* before them */
    uint32_t run_count;                       /* steps that ran, warm-up included */
    sl_cores cores;                           /* when the warm-up ended */
} measuring;

/* ---- opening ---- */

/* Called by the input lane while a step runs. A row is one document where positions are asked
 * for. */
static sl_status fill_random(void *user, const sl_engine_fill *what, void *memory)
{
    const sl_trainer *trainer = user;
    int32_t *out = memory;
    uint64_t count = what->bytes / sizeof *out, seq = trainer->config->seq;
    const uint64_t turn = what->micro_batch * trainer->config->dp + trainer->ranks.place.data;
    const uint64_t stream = ((uint64_t)what->slot << 32) + turn;
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
    SL_TRY(sl_training_run_step(&self->training));
    trainer->state.step++;
    trainer->state.next_row +=
        (uint64_t)choice->micro_batch * choice->accumulate * trainer->config->dp;
    self->run_count++;
    SL_TRY(sl_timeline_write(self->trainer->drawing.timeline, self->run_count));
    if (self->args->passed)
        self->args->passed(self->args->user, self->run_count,
                           1e-9 * (double)(sl_clock_now_ns() - started_ns));
    return SL_OK;
}

static void read_sent_bytes(const measuring *self, uint64_t out_bytes[SL_COMM_GROUP_COUNT])
{
    const sl_comm *world = self->trainer->ranks.world;
    for (int group = 0; group < SL_COMM_GROUP_COUNT; group++)
        out_bytes[group] = world ? sl_comm_sent_bytes(world, (sl_comm_group)group) : 0;
}

/* Bytes are counted where a command is issued, so those of the warm-up are when its steps return.
 */
static void begin_measuring(measuring *self)
{
    sl_engine_take_statistics(self->trainer->runtime->engine, &self->statistics);
    read_sent_bytes(self, self->sent_bytes);
    self->cores = sl_cores_read(NULL);
}

/* From here on a signal ends the steps, and nothing of what is told of them. */
static sl_status begin(sl_ranks *ranks)
{
    if (ranks->world)
        return sl_ranks_begin(ranks);
    sl_ranks_unhear(ranks);
    return SL_OK;
}

static sl_status run_steps(measuring *self)
{
    const sl_measure_args *args = self->args;
    sl_engine *engine = self->trainer->runtime->engine;
    uint64_t count = (uint64_t)SL_MEASURE_WARM_UP + args->step_count;
    sl_training_begin(self->trainer, args->stop, &self->training);
    SL_TRY(begin(&self->trainer->ranks));
    while (self->run_count < count && !sl_training_must_stop(&self->training)) {
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
    sl_accounts_source source = {
        .trainer = self->trainer,
        .record = self->record,
        .statistics = &self->statistics,
        .step_count = self->run_count - SL_MEASURE_WARM_UP,
        .cores = {now.used_ns - self->cores.used_ns, now.waited_ns - self->cores.waited_ns},
        .heap_bytes = args->heap_bytes ? args->heap_bytes() : 0};
    read_sent_bytes(self, source.sent_bytes);
    for (int group = 0; group < SL_COMM_GROUP_COUNT; group++)
        source.sent_bytes[group] -= self->sent_bytes[group];
    SL_TRY(sl_accounts_fill(&source, measured));
    measured->warm_up_count = SL_MEASURE_WARM_UP;
    measured->was_stopped = self->run_count < SL_MEASURE_WARM_UP + args->step_count;
    return sl_measured_gather(&self->trainer->ranks, measured);
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
