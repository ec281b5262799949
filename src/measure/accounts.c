/* Each function fills in one part; verdict.c says what it means. */
#include "accounts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"
#include "ranks.h"

static const double ms_of_ns = 1e-6;

typedef struct filling {
    const sl_accounts_source *source;
    const sl_blueprint *blueprint;
    const sl_program *program; /* of the step */
    const sl_plan *plan;
    sl_engine *engine;
    sl_account_request request;
    const sl_account *account;
    double steps;
    sl_measured *out;
} filling;

static double ms_a_step(const filling *self, uint64_t ns)
{
    return ms_of_ns * (double)ns / self->steps;
}

/* ---- memory ---- */

static sl_status measure_arena(const filling *self, sl_tier tier, sl_measured_tier *out)
{
    sl_engine_paint paint;
    out->measured_bytes = self->source->statistics->measured_peak_bytes[tier];
    if (tier == SL_TIER_DISK)
        return SL_OK;
    SL_TRY(sl_engine_measure_arena(self->engine, tier, &paint));
    out->measured_bytes = paint.peak_bytes;
    out->written_bytes = paint.changed_bytes;
    out->mapped_bytes = paint.painted_bytes;
    return SL_OK;
}

static sl_status ask_driver(const filling *self)
{
    sl_device_info info;
    if (self->blueprint->task.target.device == SL_DEVICE_CPU)
        return SL_OK;
    SL_TRY(sl_engine_describe_device(self->engine, &info));
    if (info.total_bytes > info.free_bytes)
        self->out->tiers[SL_TIER_DEVICE].device_used_bytes = info.total_bytes - info.free_bytes;
    return SL_OK;
}

static void list_objects(const sl_account_tier *from, sl_measured_tier *out)
{
    uint64_t left = from->live_peak_bytes;
    out->live_bytes = from->live_peak_bytes;
    out->live_tick = from->peak_tick;
    out->object_count = from->class_count;
    for (uint32_t i = 0; i < from->class_count; i++) {
        out->objects[i] = from->classes[i];
        left -= from->classes[i].bytes;
    }
    if (left == 0)
        return;
    sl_account_class *others = &out->objects[out->object_count++];
    *others = (sl_account_class){.kind = SL_MEMORY_ACTIVATION,
                                 .count = from->all_classes - from->class_count,
                                 .bytes = left};
    snprintf(others->name, sizeof others->name, "others");
}

static sl_status fill_tier(const filling *self, sl_tier tier)
{
    sl_measured_tier *out = &self->out->tiers[tier];
    uint64_t kinds = 0;
    out->budget_bytes = self->blueprint->budget_bytes[tier];
    out->planned_bytes = sl_blueprint_peak_bytes(self->blueprint, tier);
    for (int kind = 0; kind < SL_MEMORY_KIND_COUNT; kind++)
        kinds += out->kind_bytes[kind] = self->plan->kind_bytes[tier][kind];
    out->hole_bytes = out->planned_bytes - kinds;
    SL_TRY(measure_arena(self, tier, out));
    if (out->measured_bytes > out->planned_bytes)
        out->beyond_bytes = out->measured_bytes - out->planned_bytes;
    list_objects(&self->account->tier[tier], out);
    return SL_OK;
}

static sl_status fill_resident(const filling *self)
{
    sl_resident_range arenas[2];
    uint32_t count = 0;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        bool is_here = tier == SL_TIER_HOST || self->blueprint->task.target.device == SL_DEVICE_CPU;
        const void *start = is_here ? sl_engine_arena(self->engine, (sl_tier)tier) : NULL;
        if (start)
            arenas[count++] = (sl_resident_range){start, self->out->tiers[tier].mapped_bytes};
    }
    return sl_resident_read(NULL, arenas, count, self->source->heap_bytes, &self->out->resident);
}

static sl_status fill_memory(const filling *self)
{
    SL_TRY(ask_driver(self));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        SL_TRY(fill_tier(self, (sl_tier)tier));
    return fill_resident(self);
}

/* ---- time ---- */

static void fill_lane(const filling *self, sl_lane lane, double step_ms,
                      const sl_simulation *simulation)
{
    const sl_record_lane *sums = &sl_record_lanes(self->source->record)[lane];
    sl_measured_lane *out = &self->out->lanes[lane];
    double left_ms = step_ms;
    out->command_count = sums->run_count;
    out->busy_ms = ms_a_step(self, sums->busy_ns);
    left_ms -= out->busy_ms;
    for (int cause = 0; cause < SL_LANE_COUNT; cause++) {
        out->wait_ms[cause] = ms_a_step(self, sums->wait_ns[cause]);
        left_ms -= out->wait_ms[cause];
    }
    if (lane == SL_LANE_COMPUTE)
        out->gap_ms = fmax(left_ms, 0);
    else
        out->idle_ms = fmax(left_ms, 0);
    out->planned_busy_ms = 1e3 * simulation->busy_seconds[lane];
    out->planned_wait_ms = 1e3 * simulation->stall_seconds[lane];
    out->moved_bytes = self->source->statistics->moved_bytes[lane] / self->source->step_count;
}

static void fill_lanes(const filling *self)
{
    const sl_simulation *simulation = &self->account->simulation;
    uint64_t formula[SL_LANE_COUNT];
    sl_measured *out = self->out;
    const sl_record_lane *compute = &sl_record_lanes(self->source->record)[SL_LANE_COMPUTE];
    sl_bytes_by_formula(self->blueprint, formula);
    out->predicted_ms = 1e3 * self->source->trainer->step_seconds; /* of all stages together */
    out->step_ms = ms_a_step(self, compute->end_ns - compute->start_ns);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        fill_lane(self, (sl_lane)lane, out->step_ms, simulation);
        out->lanes[lane].formula_bytes = formula[lane];
        out->stall_ms += out->lanes[SL_LANE_COMPUTE].wait_ms[lane];
    }
    for (int group = 0; group < SL_COMM_GROUP_COUNT; group++)
        out->sent_bytes[group] = self->source->sent_bytes[group] / self->source->step_count;
    out->compute_ms = out->lanes[SL_LANE_COMPUTE].busy_ms;
    out->gap_ms = out->step_ms - out->compute_ms - out->stall_ms;
    out->explained_share = (out->compute_ms + out->stall_ms) / out->step_ms;
}

/* ---- stalls ---- */

static const char *const phase_names[SL_PHASE_COUNT] = {"forward", "recompute", "backward",
                                                        "update"};

/* "backward linear h.3.fc", "h2d param 12". */
static void name_command(const filling *self, uint32_t index, char out[SL_MEASURED_NAME_BYTES])
{
    const sl_command *command = &self->plan->body[index];
    char name[SL_COMMAND_NAME_BYTES];
    bool is_op = command->kind == SL_COMMAND_RUN;
    sl_command_describe(self->program, command, name);
    snprintf(out, SL_MEASURED_NAME_BYTES, "%s %s",
             is_op ? phase_names[self->program->ops[command->tick].phase]
                   : sl_lane_name(command->lane),
             name);
}

static sl_lane find_cause(const sl_record_command *of)
{
    int most = 0;
    for (int lane = 1; lane < SL_LANE_COUNT; lane++)
        most = of->cause_ns[lane] > of->cause_ns[most] ? lane : most;
    return (sl_lane)most;
}

static void describe_stall(const filling *self, uint32_t index, sl_measured_stall *out)
{
    const sl_record_command *of = &sl_record_commands(self->source->record)[index];
    *out = (sl_measured_stall){.cause = find_cause(of),
                               .ms = ms_a_step(self, of->wait_ns),
                               .longest_ms = ms_of_ns * (double)of->longest_wait_ns,
                               .count = (double)of->wait_count / self->steps,
                               .command = index,
                               .awaited_command = of->longest_wait_command};
    name_command(self, index, out->waiter);
    name_command(self, of->longest_wait_command, out->awaited);
}

/* The longest are kept in order while all are looked at. */
static void fill_stalls(const filling *self)
{
    const sl_record_command *commands = sl_record_commands(self->source->record);
    uint32_t longest[SL_MEASURED_STALLS], count = 0;
    for (uint32_t i = 0; i < self->plan->body_count; i++) {
        if (self->plan->body[i].lane != SL_LANE_COMPUTE || commands[i].wait_ns == 0)
            continue;
        uint32_t at = count < SL_MEASURED_STALLS ? count++ : count;
        for (; at > 0 && commands[longest[at - 1]].wait_ns < commands[i].wait_ns; at--)
            if (at < SL_MEASURED_STALLS)
                longest[at] = longest[at - 1];
        if (at < SL_MEASURED_STALLS)
            longest[at] = i;
    }
    for (uint32_t i = 0; i < count; i++)
        describe_stall(self, longest[i], &self->out->stalls[i]);
    self->out->stall_count = count;
}

/* ---- the last step ---- */

static double seconds_from(uint64_t start_ns, uint64_t ns)
{
    return 1e-9 * ((double)ns - (double)start_ns);
}

static sl_status fill_spans(const filling *self)
{
    const sl_record *record = self->source->record;
    const uint64_t start_ns = sl_record_last_start_ns(record);
    sl_measured *out = self->out;
    uint32_t count, all = 0;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        (void)sl_record_spans(record, (sl_lane)lane, &count);
        all += count;
    }
    out->spans = calloc((size_t)all + 1, sizeof *out->spans);
    if (!out->spans)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for what was measured");
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        const sl_record_span *spans = sl_record_spans(record, (sl_lane)lane, &count);
        for (uint32_t i = 0; i < count; i++)
            out->spans[out->span_count++] = (sl_account_span){
                spans[i].command, spans[i].repetition, seconds_from(start_ns, spans[i].start_ns),
                seconds_from(start_ns, spans[i].end_ns), spans[i].cause};
    }
    return SL_OK;
}

void sl_measured_clear(sl_measured *measured)
{
    if (!measured)
        return;
    free(measured->spans);
    sl_measured_ranks_close(measured->ranks);
    measured->spans = NULL;
    measured->span_count = 0;
    measured->ranks = NULL;
}

/* ---- ops ---- */

/* Sums over all ops of a kind. */
typedef struct op_sums {
    uint64_t count, ns;
    double flops, bytes;
    double alone_seconds, roof_seconds; /* by the machine's rates of the kind; by its best */
} op_sums;

/* Of memory the rate of AdamW, which reads and writes more streams than any other: the best rate of
 * all kinds may be that of one whose data stay in a cache. */
static double find_byte_roof(const sl_machine *machine, sl_type type)
{
    return fmax(machine->op[SL_OP_ADAMW][type].byte_rate, machine->host_update[type].byte_rate);
}

/* A rate of 0 is not known and takes no time. */
static double seconds_at(double work, double rate)
{
    return rate > 0 ? work / rate : 0;
}

static void add_op(const filling *self, uint32_t index, const sl_machine *machine, op_sums *sums)
{
    const sl_record_command *ran = &sl_record_commands(self->source->record)[index];
    const sl_command *command = &self->plan->body[index];
    const sl_op *op = &self->program->ops[command->tick];
    double runs = (double)ran->run_count;
    bool on_host = command->lane == SL_LANE_HOST;
    sums->count += ran->run_count;
    double flops = (double)sl_op_flops(op->kind, &op->attrs);
    double bytes = (double)sl_op_traffic_bytes(op->kind, &op->attrs);
    sums->ns += ran->run_ns;
    sums->flops += runs * flops;
    sums->bytes += runs * bytes;
    const double byte_roof = find_byte_roof(machine, self->blueprint->task.type);
    sums->roof_seconds +=
        runs * fmax(seconds_at(flops, self->account->flop_roof), seconds_at(bytes, byte_roof));
    sums->alone_seconds += runs * sl_machine_op_seconds(machine, op->kind, &op->attrs, on_host);
    self->out->phase_ms[op->phase] += ms_a_step(self, ran->run_ns);
}

static void sum_ops(const filling *self, const sl_machine *machine, op_sums sums[2][SL_OP_COUNT])
{
    memset(sums, 0, 2 * sizeof *sums);
    for (uint32_t i = 0; i < self->plan->body_count; i++) {
        const sl_command *command = &self->plan->body[i];
        bool is_counted = command->lane == SL_LANE_COMPUTE || command->lane == SL_LANE_HOST;
        if (command->kind == SL_COMMAND_RUN && is_counted)
            add_op(self, i, machine,
                   &sums[command->lane == SL_LANE_HOST][self->program->ops[command->tick].kind]);
    }
}

static sl_measured_op describe_op(const filling *self, const op_sums *of, sl_op_kind kind,
                                  bool on_host)
{
    double seconds = 1e-9 * (double)(of->ns > 0 ? of->ns : 1);
    double lane_ms = self->out->lanes[on_host ? SL_LANE_HOST : SL_LANE_COMPUTE].busy_ms;
    bool has_roof = self->out->is_machine_measured;
    return (sl_measured_op){.kind = kind,
                            .on_host = on_host,
                            .count = (double)of->count / self->steps,
                            .ms = ms_a_step(self, of->ns),
                            .share = lane_ms > 0 ? ms_a_step(self, of->ns) / lane_ms : 0,
                            .flop_rate = of->flops / seconds,
                            .byte_rate = of->bytes / seconds,
                            .roof_share =
                                has_roof && of->roof_seconds > 0 ? of->roof_seconds / seconds : NAN,
                            .bench_share = has_roof ? of->alone_seconds / seconds : NAN};
}

static int compare_ops(const void *a, const void *b)
{
    double left = ((const sl_measured_op *)a)->ms, right = ((const sl_measured_op *)b)->ms;
    return left < right ? 1 : left > right ? -1 : 0;
}

static void fill_ops(const filling *self, op_sums sums[2][SL_OP_COUNT])
{
    sl_measured *out = self->out;
    for (int on_host = 0; on_host < 2; on_host++)
        for (int kind = 0; kind < SL_OP_COUNT; kind++)
            if (sums[on_host][kind].count > 0)
                out->ops[out->op_count++] =
                    describe_op(self, &sums[on_host][kind], (sl_op_kind)kind, on_host);
    qsort(out->ops, out->op_count, sizeof out->ops[0], compare_ops);
}

/* ---- the model ---- */

static void fill_model(const filling *self)
{
    const sl_model_shape *shape = &self->source->trainer->shape;
    const sl_choice *choice = &self->blueprint->choice;
    const sl_task *task = &self->blueprint->task;
    sl_measured *out = self->out;
    const sl_ranks *ranks = &self->source->trainer->ranks;
    const double rank_count = ranks->world ? sl_comm_size(ranks->world) : 1;
    const double rows = (double)choice->micro_batch * choice->accumulate *
                        (double)self->source->trainer->config->dp;
    const double tokens = rows * task->seq;
    out->worker_count = task->target.worker_count;
    out->cores_used = ms_a_step(self, self->source->cores.used_ns) / out->step_ms;
    out->core_wait_ms = ms_a_step(self, self->source->cores.waited_ns);
    out->parameter_count = sl_model_shape_parameters(shape);
    out->micro_batch = choice->micro_batch;
    out->accumulate = choice->accumulate;
    out->seq = task->seq;
    out->model_flops = tokens * self->blueprint->token_flops;
    out->tokens_per_s = 1e3 * tokens / out->step_ms;
    out->flop_rate = 1e3 * out->model_flops / out->step_ms;
    out->roof_flop_rate = out->is_machine_measured
                              ? self->blueprint->machine.op[SL_OP_LINEAR][task->type].flop_rate
                              : NAN;
    out->model_flop_share = out->flop_rate / (out->roof_flop_rate * rank_count);
}

/* ---- more or less memory ---- */

/* A guess of the machine is replaced by what was seen: rates of ops by kind, and of copies. */
static sl_machine correct_machine(const filling *self, op_sums sums[2][SL_OP_COUNT])
{
    sl_machine machine = self->blueprint->machine;
    sl_type type = self->blueprint->task.type;
    if (self->out->is_machine_measured)
        return machine;
    for (int on_host = 0; on_host < 2; on_host++)
        for (int kind = 0; kind < SL_OP_COUNT; kind++) {
            const op_sums *of = &sums[on_host][kind];
            if (sl_machine_rate_kind((sl_op_kind)kind) != (sl_op_kind)kind)
                continue;
            sl_op_rate *rate = on_host ? &machine.host_update[type] : &machine.op[kind][type];
            double factor = of->ns > 0 ? of->alone_seconds / (1e-9 * (double)of->ns) : 1;
            rate->flop_rate *= factor;
            rate->byte_rate *= factor;
        }
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        const sl_measured_lane *seen = &self->out->lanes[lane];
        if (sl_lane_copies((sl_lane)lane) && seen->moved_bytes > 0 && seen->busy_ms > 0)
            machine.copy_rate[lane] = 1e3 * (double)seen->moved_bytes / seen->busy_ms;
    }
    return machine;
}

/* The plan that ran and the others, by the same rates. */
static sl_status fill_variants(const filling *self, op_sums sums[2][SL_OP_COUNT])
{
    const sl_machine machine = correct_machine(self, sums);
    sl_simulation simulation;
    SL_TRY(sl_plan_simulate(self->program, self->plan, &machine, &simulation));
    self->out->variants_now_ms = 1e3 * simulation.step_seconds;
    return sl_variants_find(&self->source->trainer->search, self->blueprint, &machine,
                            self->out->variants, &self->out->variant_count);
}

static sl_status fill_all(const filling *self)
{
    op_sums sums[2][SL_OP_COUNT];
    SL_TRY(fill_memory(self));
    fill_lanes(self);
    sum_ops(self, &self->blueprint->machine, sums);
    fill_ops(self, sums);
    fill_stalls(self);
    SL_TRY(fill_spans(self));
    fill_model(self);
    SL_TRY(fill_variants(self, sums));
    sl_verdict_write(self->blueprint, self->account, self->out);
    return SL_OK;
}

sl_status sl_accounts_fill(const sl_accounts_source *source, sl_measured *out_measured)
{
    const sl_runtime *runtime = source->trainer->runtime;
    const sl_blueprint *blueprint = runtime->blueprint;
    sl_account *account = NULL;
    *out_measured = (sl_measured){.step_count = source->step_count,
                                  .is_machine_measured = blueprint->machine.is_measured};
    filling self = {.source = source,
                    .blueprint = blueprint,
                    .program = blueprint->programs[0],
                    .plan = blueprint->plans[0],
                    .engine = runtime->engine,
                    .steps = source->step_count,
                    .request = {.program = blueprint->programs[0],
                                .layout = blueprint->layout,
                                .homes = blueprint->homes,
                                .plan = blueprint->plans[0],
                                .machine = &blueprint->machine},
                    .out = out_measured};
    snprintf(self.out->machine, sizeof self.out->machine, "%s", blueprint->machine.name);
    snprintf(self.out->disk, sizeof self.out->disk, "%s",
             sl_engine_disk_description(runtime->engine));
    SL_TRY(sl_account_open(&self.request, &account));
    self.account = account;
    sl_status status = fill_all(&self);
    sl_account_close(account);
    return status;
}
