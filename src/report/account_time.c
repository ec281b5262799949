/* Where the time of a step goes: lanes, stalls and ops of the simulated step, and what each
 * resource would take alone.
 *
 * The simulation passes over most repetitions of a loop and says so: what is passed over counts as
 * its last repetitions did.
 */
#include "account_parts.h"

#include <math.h>
#include <stdlib.h>

#include "base/status.h"

/* What is known of one command of the body. */
typedef struct command_record {
    double run_seconds, wait_seconds;     /* of all issues */
    double latest_run[2], latest_wait[2]; /* of the latest issue and the one before */
    uint32_t waited_for, repeat;
    sl_lane cause;
    double longest_wait; /* which said what it waited for */
} command_record;

typedef struct recorder {
    sl_account *account;
    command_record *records; /* [body_count] */
} recorder;

static void keep_span(sl_account *account, const command_record *record,
                      const sl_simulated_run *run)
{
    uint64_t from_end = record->repeat - run->repetition;
    if (run->repetition >= SL_ACCOUNT_KEPT_REPETITIONS && from_end > SL_ACCOUNT_KEPT_REPETITIONS)
        return;
    account->spans[account->span_count++] =
        (sl_account_span){run->command, run->repetition, run->start, run->end, run->cause};
}

static void note_run(void *user, const sl_simulated_run *run)
{
    recorder *self = user;
    command_record *record = &self->records[run->command];
    record->latest_run[1] = record->latest_run[0];
    record->latest_wait[1] = record->latest_wait[0];
    record->latest_run[0] = run->end - run->start;
    record->latest_wait[0] = run->waited_seconds;
    record->run_seconds += record->latest_run[0];
    record->wait_seconds += record->latest_wait[0];
    if (run->waited_seconds > record->longest_wait) {
        record->longest_wait = run->waited_seconds;
        record->waited_for = run->waited_for;
        record->cause = run->cause;
    }
    keep_span(self->account, record, run);
}

static void note_passed(void *user, uint32_t command, uint32_t period, uint32_t times)
{
    command_record *record = &((recorder *)user)->records[command];
    for (uint32_t i = 0; i < period && i < 2; i++) {
        record->run_seconds += times * record->latest_run[i];
        record->wait_seconds += times * record->latest_wait[i];
    }
}

/* ---- opening ---- */

static sl_status open_recorder(sl_account *account, recorder *out_recorder)
{
    const sl_plan *plan = account->request.plan;
    uint64_t span_count = 0;
    *out_recorder = (recorder){.account = account};
    out_recorder->records = calloc((uint64_t)plan->body_count + 1, sizeof(command_record));
    if (!out_recorder->records)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an account of %u commands", plan->body_count);
    for (uint32_t s = 0; s < plan->section_count; s++) {
        const sl_section *section = &plan->sections[s];
        uint32_t kept = 2 * SL_ACCOUNT_KEPT_REPETITIONS;
        for (uint32_t c = section->first; c < section->first + section->count; c++) {
            out_recorder->records[c].repeat = section->repeat;
            out_recorder->records[c].waited_for = SL_NONE;
        }
        span_count += (uint64_t)section->count * (section->repeat < kept ? section->repeat : kept);
    }
    account->spans = calloc(span_count + 1, sizeof *account->spans);
    if (account->spans)
        return SL_OK;
    free(out_recorder->records);
    SL_FAIL(SL_ERROR_SYSTEM, "no memory for an account of %u commands", plan->body_count);
}

/* ---- lanes ---- */

static double seconds_alone(const sl_account_request *request, const sl_command *command)
{
    const sl_machine *machine = request->machine;
    if (command->kind == SL_COMMAND_COPY)
        return (double)command->from.bytes / machine->copy_rate[command->lane] +
               machine->copy_seconds[command->lane];
    const sl_op *op = &request->program->ops[command->tick];
    return sl_machine_op_seconds(machine, op->kind, &op->attrs, command->lane == SL_LANE_HOST);
}

static void add_up_lanes(sl_account *account, const command_record *records)
{
    const sl_plan *plan = account->request.plan;
    for (uint32_t c = 0; c < plan->body_count; c++) {
        sl_account_lane *lane = &account->lane[plan->body[c].lane];
        lane->command_count += records[c].repeat;
        lane->alone_seconds += records[c].repeat * seconds_alone(&account->request, &plan->body[c]);
    }
    for (int i = 0; i < SL_LANE_COUNT; i++) {
        account->lane[i].moved_bytes = plan->moved_bytes[i];
        account->lane[i].busy_seconds = account->simulation.busy_seconds[i];
        for (int cause = 0; cause < SL_LANE_COUNT; cause++)
            account->lane[i].wait_seconds[cause] = account->simulation.wait_seconds[i][cause];
    }
}

/* ---- stalls ---- */

/* Puts a stall into its place; the shortest falls out. */
static void insert_stall(sl_account *account, const sl_account_stall *stall)
{
    uint32_t i = account->stall_count;
    if (i == SL_ACCOUNT_STALLS && stall->seconds <= account->stalls[i - 1].seconds)
        return;
    if (i == SL_ACCOUNT_STALLS)
        i--;
    else
        account->stall_count++;
    for (; i > 0 && account->stalls[i - 1].seconds < stall->seconds; i--)
        account->stalls[i] = account->stalls[i - 1];
    account->stalls[i] = *stall;
}

static void list_stalls(sl_account *account, const command_record *records)
{
    const sl_plan *plan = account->request.plan;
    double all = 0;
    for (uint32_t c = 0; c < plan->body_count; c++) {
        if (plan->body[c].lane != SL_LANE_COMPUTE || records[c].wait_seconds <= 0)
            continue;
        all += records[c].wait_seconds;
        insert_stall(account, &(sl_account_stall){.command = c,
                                                  .waited_for = records[c].waited_for,
                                                  .cause = records[c].cause,
                                                  .seconds = records[c].wait_seconds});
    }
    for (uint32_t i = 0; i < account->stall_count; i++)
        all -= account->stalls[i].seconds;
    account->other_stall_seconds = all > 0 ? all : 0;
}

/* ---- ops ---- */

/* The best rates among the ops of the program: of those with matrix products, and of the others. */
static void find_roofs(sl_account *account)
{
    const sl_account_request *request = &account->request;
    for (uint32_t i = 0; i < request->program->op_count; i++) {
        const sl_op *op = &request->program->ops[i];
        const sl_op_rate *rate =
            &request->machine->op[sl_machine_rate_kind(op->kind)][op->attrs.type];
        if (sl_op_flops(op->kind, &op->attrs) > 0)
            account->flop_roof = fmax(account->flop_roof, rate->flop_rate);
        else
            account->byte_roof = fmax(account->byte_roof, rate->byte_rate);
    }
}

static double seconds_at(double work, double rate)
{
    return rate > 0 ? work / rate : 0;
}

static void add_op(const sl_account *account, const sl_command *command,
                   const command_record *record, sl_account_op *out_op)
{
    const sl_op *op = &account->request.program->ops[command->tick];
    double flops = (double)sl_op_flops(op->kind, &op->attrs);
    double bytes = (double)sl_op_traffic_bytes(op->kind, &op->attrs);
    double byte_roof = account->byte_roof;
    if (command->lane == SL_LANE_HOST)
        byte_roof = account->request.machine->host_update[op->attrs.type].byte_rate;
    out_op->kind = op->kind;
    out_op->count += record->repeat;
    out_op->seconds += record->run_seconds;
    out_op->flops += record->repeat * flops;
    out_op->traffic_bytes += record->repeat * bytes;
    out_op->roof_seconds +=
        record->repeat * fmax(seconds_at(flops, account->flop_roof), seconds_at(bytes, byte_roof));
}

static int by_seconds(const void *left, const void *right)
{
    const sl_account_op *a = left, *b = right;
    int order = (b->seconds > a->seconds) - (b->seconds < a->seconds);
    return order ? order : (int)a->kind - (int)b->kind;
}

static void add_up_ops(sl_account *account, const command_record *records)
{
    const sl_plan *plan = account->request.plan;
    find_roofs(account);
    for (uint32_t c = 0; c < plan->body_count; c++)
        if (plan->body[c].kind == SL_COMMAND_RUN)
            add_op(account, &plan->body[c], &records[c],
                   &account->ops[account->request.program->ops[plan->body[c].tick].kind]);
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        if (account->ops[kind].count > 0)
            account->ops[account->op_kind_count++] = account->ops[kind];
    qsort(account->ops, account->op_kind_count, sizeof *account->ops, by_seconds);
}

/* ---- resources ---- */

sl_account_resource sl_account_find_bound(const sl_machine *machine,
                                          const double lane_seconds[SL_LANE_COUNT],
                                          double disk_bytes, double host_bytes,
                                          double out_seconds[SL_RESOURCE_COUNT])
{
    sl_account_resource bound_by = SL_RESOURCE_COMPUTE;
    double update = lane_seconds[SL_LANE_HOST];
    double disk = fmax(lane_seconds[SL_LANE_READ], lane_seconds[SL_LANE_WRITE]);
    out_seconds[SL_RESOURCE_COMPUTE] =
        lane_seconds[SL_LANE_COMPUTE] + (machine->shares_cores ? update : 0);
    out_seconds[SL_RESOURCE_UPDATE] = machine->shares_cores ? 0 : update;
    out_seconds[SL_RESOURCE_H2D] = lane_seconds[SL_LANE_H2D];
    out_seconds[SL_RESOURCE_D2H] = lane_seconds[SL_LANE_D2H];
    out_seconds[SL_RESOURCE_DISK] = fmax(disk, seconds_at(disk_bytes, machine->mixed_disk_rate));
    out_seconds[SL_RESOURCE_HOST_MEMORY] = seconds_at(host_bytes, machine->host_memory_rate);
    for (int resource = 0; resource < SL_RESOURCE_COUNT; resource++)
        if (out_seconds[resource] > out_seconds[bound_by])
            bound_by = (sl_account_resource)resource;
    return bound_by;
}

static void compare_resources(sl_account *account)
{
    const sl_account_lane *lanes = account->lane;
    double seconds[SL_LANE_COUNT];
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        seconds[lane] = lanes[lane].alone_seconds;
    account->bound_by = sl_account_find_bound(
        account->request.machine, seconds,
        (double)lanes[SL_LANE_READ].moved_bytes + (double)lanes[SL_LANE_WRITE].moved_bytes,
        account->simulation.host_bytes, account->resource_seconds);
}

/* Times of spans become those since the step began. */
static void shift_spans(sl_account *account)
{
    for (uint32_t i = 0; i < account->span_count; i++) {
        account->spans[i].start -= account->simulation.start_seconds;
        account->spans[i].end -= account->simulation.start_seconds;
    }
}

sl_status sl_account_fill_time(sl_account *account)
{
    const sl_account_request *request = &account->request;
    recorder self;
    SL_TRY(open_recorder(account, &self));
    const sl_simulation_observer observer = {note_run, note_passed, &self};
    sl_status status = sl_plan_simulate_observed(request->program, request->plan, request->machine,
                                                 &observer, &account->simulation);
    if (status == SL_OK) {
        shift_spans(account);
        add_up_lanes(account, self.records);
        list_stalls(account, self.records);
        add_up_ops(account, self.records);
        compare_resources(account);
    }
    free(self.records);
    return status;
}
