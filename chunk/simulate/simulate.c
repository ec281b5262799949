/* Simulates a plan on a machine of given rates. Touches no memory of the plan's tiers.
 *
 * Each lane runs its commands in order, at the same time as the other lanes. A command starts when
 * its lane is free and its waits are over. The control thread works like sl_engine_step: it issues
 * an iteration when the outputs of the iteration before are in host memory and the inputs of that
 * one have been read; it issues a repetition when the compute lane is not too many repetitions
 * behind. If the compute and the host lane share the machine's cores, they share one pool of
 * workers: each runs at half speed while both are busy. The pool's threads, and the copies that
 * keep a core busy, share core_count cores as under a fair scheduler. The read and the write lane
 * share the disk. Copies and the updates of the host lane share the rate of host memory.
 *
 * Time is virtual and moves from one end of a command to the next, so the result depends on the
 * arguments alone. Iteration MEASURED is measured, from the end of the iteration before it. By then
 * the pipeline is full. One more iteration follows, so that the measured one also overlaps with its
 * successor. The busy time of the compute lane and all its stalls in the measured iteration add up
 * to the time between its last command of the iteration before and its last command of this one. A
 * stall is charged to the lane whose work was waited for in the end (stall.h).
 *
 * The repetitions of a section soon become periodic. When the compute lane has begun three
 * repetitions, all one or all two repetitions apart, with every lane at the same point, the rest of
 * the loop would be the same and is skipped. Two are not enough: a wait that ends in the first
 * period may have begun before the period, and then its length differs from later periods.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "stall.h"

enum { MEASURED = 5, ITERATIONS = MEASURED + 2 };
enum { PERIOD_MOST = 2, SNAPSHOTS = 2 * PERIOD_MOST };
enum { REPETITIONS_LEFT = 4, REPETITIONS_TRIED = 512 };

typedef struct lane_state {
    const uint32_t *commands; /* of this lane, in order */
    uint32_t command_count;
    uint32_t next;       /* index into commands: running, or the next to run */
    uint32_t repetition; /* of that command's section */
    uint32_t iteration;  /* of that command */
    uint32_t wait_index; /* the first of its waits that may not be over yet */
    sl_lane released_by; /* lane of the command it waited for last; SL_LANE_COUNT: of the gate */
    bool is_running;
    double remaining_seconds; /* of the running command, at full speed */
    double free_since;        /* end of the lane's last command */
    double started;           /* of the running command */
    uint32_t waited_for;      /* command that it waited for last; SL_NONE: none */
    sl_lane cause;            /* the lane that most of its last wait is charged to */
    double waited_seconds;    /* before the running command */
    sl_stall_history waits;
} lane_state;

/* The state of the simulation when the compute lane begins a repetition. */
typedef struct snapshot {
    uint32_t section, iteration, repetition; /* of the compute lane */
    double now;
    sl_simulation result;
    struct {
        uint32_t next, repetition, iteration, wait_index;
        bool is_running;
        double remaining_seconds;
        uint64_t wait_count; /* of the lane's history */
    } lane[SL_LANE_COUNT];
} snapshot;

typedef struct player {
    const sl_plan *plan;
    const sl_machine *machine;
    uint32_t ahead;               /* most repetitions that the compute lane is behind */
    uint32_t *section_of;         /* [body_count] */
    uint32_t *repetitions_before; /* [section_count + 1] repetitions of the earlier sections */
    double *seconds;              /* [body_count] of each command alone */
    double
        *host_rate; /* [body_count] bytes a second of host memory that each command moves alone */
    uint64_t *done_count;    /* [body_count] issues of each command that have ended */
    uint32_t *lane_commands; /* [body_count] lane by lane, in order */
    bool *gates;             /* [body_count] the next iteration is issued after this command */
    uint64_t gate_count;
    uint64_t gates_left[ITERATIONS]; /* by iteration: gates before the next one is issued */
    uint64_t commands_left[ITERATIONS];
    double end_seconds[ITERATIONS]; /* of each iteration */
    snapshot snapshots[SNAPSHOTS];  /* of the last repetitions: that of r at r % SNAPSHOTS */
    sl_lane gated_by;               /* lane of the gate that ended last */
    double now;
    lane_state lane[SL_LANE_COUNT];
    sl_simulation result;
    const sl_simulation_observer *observer; /* or NULL */
} player;

/* ---- how long a command takes alone ---- */

static sl_status measure_copy(const sl_command *command, const sl_machine *machine,
                              double *out_seconds)
{
    sl_lane lane = command->lane;
    if (!sl_lane_copies(lane))
        SL_FAIL(SL_ERROR_INTERNAL, "a copy on lane %s, of which the machine has no rate",
                sl_lane_name(lane));
    *out_seconds =
        (double)command->from.bytes / machine->copy_rate[lane] + machine->copy_seconds[lane];
    return SL_OK;
}

static sl_status measure_command(const sl_program *program, const sl_command *command,
                                 const sl_machine *machine, double *out_seconds)
{
    if (command->lane >= SL_LANE_COUNT)
        SL_FAIL(SL_ERROR_INTERNAL, "a command on unknown lane %d", (int)command->lane);
    if (command->kind == SL_COMMAND_COPY)
        return measure_copy(command, machine, out_seconds);
    if (command->tick >= program->op_count)
        SL_FAIL(SL_ERROR_INTERNAL, "a command runs op %u of %u", command->tick, program->op_count);
    const sl_op *op = &program->ops[command->tick];
    *out_seconds =
        sl_machine_op_seconds(machine, op->kind, &op->attrs, command->lane == SL_LANE_HOST);
    return SL_OK;
}

/* Bytes that a command reads and writes in host memory: a copy each of its bytes once, because the
 * other end of each lane is a device or a disk; an update the traffic of its op. */
static double count_host_bytes(const sl_program *program, const sl_command *command)
{
    if (command->kind == SL_COMMAND_COPY)
        return (double)command->from.bytes;
    if (command->lane != SL_LANE_HOST)
        return 0;
    const sl_op *op = &program->ops[command->tick];
    return (double)sl_op_traffic_bytes(op->kind, &op->attrs);
}

static sl_status check_machine(const sl_machine *machine)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        if (sl_lane_copies((sl_lane)lane) &&
            !(machine->copy_rate[lane] > 0.0 && machine->copy_seconds[lane] >= 0.0))
            SL_FAIL(SL_ERROR_USAGE, "machine %s has a rate that is not positive", machine->name);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        if (!(machine->copy_cores[lane] >= 0.0 && machine->copy_cores[lane] <= 1.0))
            SL_FAIL(SL_ERROR_USAGE, "machine %s: a copy takes %g cores; it has one thread",
                    machine->name, machine->copy_cores[lane]);
    if (!(machine->core_count >= 0.0 && machine->worker_count >= 0.0 &&
          machine->mixed_disk_rate >= 0.0 && machine->host_memory_rate >= 0.0))
        SL_FAIL(SL_ERROR_USAGE, "machine %s has a negative count of cores, or a negative rate",
                machine->name);
    if (!(machine->op_seconds >= 0.0))
        SL_FAIL(SL_ERROR_USAGE, "machine %s has a negative fixed cost", machine->name);
    return SL_OK;
}

/* ---- opening ---- */

static void close_player(player *p)
{
    free(p->section_of);
    free(p->repetitions_before);
    free(p->gates);
    free(p->lane_commands);
    free(p->done_count);
    free(p->seconds);
    free(p->host_rate);
}

/* A gate is a copy of an input or output: the caller waits for these between iterations. */
static bool is_gate(const sl_program *program, const sl_command *command)
{
    if (command->kind != SL_COMMAND_COPY || command->value >= program->value_count)
        return false;
    sl_value_kind kind = program->values[command->value].kind;
    return kind == SL_VALUE_INPUT || kind == SL_VALUE_OUTPUT;
}

static void sort_into_lanes(player *p)
{
    uint32_t filled = 0;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        p->lane[lane].commands = p->lane_commands + filled;
        for (uint32_t command = 0; command < p->plan->body_count; command++)
            if ((int)p->plan->body[command].lane == lane)
                p->lane_commands[filled++] = command;
        p->lane[lane].command_count =
            (uint32_t)(p->lane_commands + filled - p->lane[lane].commands);
    }
}

static sl_status check_waits(const sl_plan *plan, const sl_command *command)
{
    if (command->first_wait > plan->wait_count ||
        command->wait_count > plan->wait_count - command->first_wait)
        SL_FAIL(SL_ERROR_INTERNAL, "a command's waits are outside of the plan's");
    for (uint32_t wait = 0; wait < command->wait_count; wait++)
        if (plan->waits[command->first_wait + wait].command >= plan->body_count)
            SL_FAIL(SL_ERROR_INTERNAL, "a command waits for one that is not in the body");
    return SL_OK;
}

static sl_status number_sections(player *p)
{
    uint32_t next = 0;
    for (uint32_t s = 0; s < p->plan->section_count; s++) {
        const sl_section *section = &p->plan->sections[s];
        if (section->first != next || section->count > p->plan->body_count - next)
            SL_FAIL(SL_ERROR_INTERNAL, "section %u of the plan does not follow on the last", s);
        if (section->repeat == 0)
            SL_FAIL(SL_ERROR_INTERNAL, "section %u of the plan is never run", s);
        for (uint32_t c = 0; c < section->count; c++)
            p->section_of[next++] = s;
        p->repetitions_before[s + 1] = p->repetitions_before[s] + section->repeat;
    }
    if (next != p->plan->body_count)
        SL_FAIL(SL_ERROR_INTERNAL, "the sections hold %u of %u commands", next,
                p->plan->body_count);
    return SL_OK;
}

static sl_status open_player(const sl_program *program, const sl_plan *plan,
                             const sl_machine *machine, player *p)
{
    uint32_t count = plan->body_count;
    uint64_t issue_count = 0;
    p->plan = plan;
    p->machine = machine;
    p->ahead = sl_plan_repetitions_ahead(plan);
    p->section_of = calloc(count + 1u, sizeof *p->section_of);
    p->repetitions_before = calloc(plan->section_count + 1u, sizeof *p->repetitions_before);
    p->seconds = calloc(count + 1u, sizeof *p->seconds);
    p->host_rate = calloc(count + 1u, sizeof *p->host_rate);
    p->done_count = calloc(count + 1u, sizeof *p->done_count);
    p->lane_commands = calloc(count + 1u, sizeof *p->lane_commands);
    p->gates = calloc(count + 1u, sizeof *p->gates);
    if (!p->section_of || !p->repetitions_before || !p->seconds || !p->host_rate ||
        !p->done_count || !p->lane_commands || !p->gates)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to simulate %u commands", count);
    SL_TRY(number_sections(p));
    for (uint32_t command = 0; command < count; command++) {
        SL_TRY(measure_command(program, &plan->body[command], machine, &p->seconds[command]));
        const double host_bytes = count_host_bytes(program, &plan->body[command]);
        if (p->seconds[command] > 0)
            p->host_rate[command] = host_bytes / p->seconds[command];
        SL_TRY(check_waits(plan, &plan->body[command]));
        uint64_t issues = plan->sections[p->section_of[command]].repeat;
        p->result.host_bytes += (double)issues * host_bytes;
        p->gates[command] = is_gate(program, &plan->body[command]);
        p->gate_count += p->gates[command] ? issues : 0;
        issue_count += issues;
    }
    for (int iteration = 0; iteration < ITERATIONS; iteration++) {
        p->gates_left[iteration] = p->gate_count;
        p->commands_left[iteration] = issue_count;
    }
    sort_into_lanes(p);
    return SL_OK;
}

/* ---- simulating ---- */

/* Has the issue that `wait` names ended? At age 0 it is the latest issue before that of the waiter,
 * at age 1 the one before. */
static bool has_ended(const player *p, uint32_t waiter, const sl_wait *wait, const lane_state *lane)
{
    uint32_t section = p->section_of[waiter], of_target = p->section_of[wait->command];
    uint32_t repetitions = p->repetitions_before[of_target + 1] - p->repetitions_before[of_target];
    uint64_t issued = (uint64_t)lane->iteration * repetitions;
    if (of_target == section)
        issued += lane->repetition + (wait->command < waiter);
    else if (of_target < section)
        issued += repetitions;
    return p->done_count[wait->command] + wait->age >= issued;
}

/* Repetitions before that of the lane's next command, over all iterations; UINT64_MAX: the lane has
 * no more commands. */
static uint64_t count_repetitions(const player *p, const lane_state *lane)
{
    if (lane->command_count == 0 || lane->iteration == ITERATIONS)
        return UINT64_MAX;
    uint32_t section = p->section_of[lane->commands[lane->next]];
    return (uint64_t)lane->iteration * p->repetitions_before[p->plan->section_count] +
           p->repetitions_before[section] + lane->repetition;
}

/* Has the lane's next command been issued? The control thread issues up to p->ahead repetitions
 * before the compute lane has finished them. */
static bool is_issued(player *p, const lane_state *lane)
{
    uint64_t repetitions = count_repetitions(p, lane);
    return repetitions < p->ahead ||
           count_repetitions(p, &p->lane[SL_LANE_COMPUTE]) > repetitions - p->ahead;
}

/* True if the next command of `lane` may start now. If not, records what the lane waits for. */
static bool may_start(player *p, lane_state *lane)
{
    if (lane->iteration > 0 && p->gates_left[lane->iteration - 1] > 0) {
        lane->released_by = SL_LANE_COUNT; /* by the gate that will end last */
        return false;
    }
    if (!is_issued(p, lane)) {
        lane->released_by = SL_LANE_COMPUTE;
        return false;
    }
    uint32_t index = lane->commands[lane->next];
    const sl_command *command = &p->plan->body[index];
    for (; lane->wait_index < command->wait_count; lane->wait_index++) {
        const sl_wait *wait = &p->plan->waits[command->first_wait + lane->wait_index];
        if (has_ended(p, index, wait, lane))
            continue;
        lane->released_by = p->plan->body[wait->command].lane;
        lane->waited_for = wait->command;
        return false;
    }
    return true;
}

static bool is_measured(uint32_t iteration)
{
    return iteration == MEASURED;
}

/* Charges the time since the lane's last command to the lanes that it waited for in the end. */
static void charge_wait(player *p, sl_lane lane_index)
{
    lane_state *lane = &p->lane[lane_index];
    double most = 0;
    sl_lane released_by = lane->released_by == SL_LANE_COUNT ? p->gated_by : lane->released_by;
    sl_stall_span wait = {lane->free_since, p->now, released_by}, parts[SL_STALL_PART_MAX];
    uint32_t count = sl_stall_divide(&p->lane[released_by].waits, lane_index, &wait, parts);
    for (uint32_t i = 0; i < count; i++) {
        double seconds = parts[i].end - parts[i].start;
        sl_stall_remember(&lane->waits, &parts[i]);
        if (is_measured(lane->iteration))
            p->result.wait_seconds[lane_index][parts[i].cause] += seconds;
        if (seconds > most)
            lane->cause = parts[i].cause;
        most = seconds > most ? seconds : most;
    }
}

static void start_command(player *p, sl_lane lane_index)
{
    lane_state *lane = &p->lane[lane_index];
    lane->waited_seconds = p->now - lane->free_since;
    if (p->now > lane->free_since)
        charge_wait(p, lane_index);
    lane->started = p->now;
    lane->is_running = true;
    lane->remaining_seconds = p->seconds[lane->commands[lane->next]];
}

/* Moves the lane to its next command: in the same repetition, in the next one, or behind the
 * section. */
static void advance_lane(player *p, lane_state *lane)
{
    uint32_t section = p->section_of[lane->commands[lane->next]];
    bool is_last = lane->next + 1 == lane->command_count ||
                   p->section_of[lane->commands[lane->next + 1]] != section;
    lane->next++;
    if (!is_last)
        return;
    if (lane->repetition + 1 < p->plan->sections[section].repeat) {
        lane->repetition++;
        lane->next--;
        while (lane->next > 0 && p->section_of[lane->commands[lane->next - 1]] == section)
            lane->next--;
        return;
    }
    lane->repetition = 0;
    if (lane->next == lane->command_count) {
        lane->next = 0;
        lane->iteration++;
    }
}

static void tell_run(const player *p, const lane_state *lane)
{
    if (!p->observer || !is_measured(lane->iteration))
        return;
    const sl_simulated_run run = {.command = lane->commands[lane->next],
                                  .repetition = lane->repetition,
                                  .waited_for = lane->waited_for,
                                  .waited_seconds = lane->waited_seconds,
                                  .start = lane->started,
                                  .end = p->now,
                                  .cause = lane->cause};
    p->observer->ran(p->observer->user, &run);
}

static void end_command(player *p, sl_lane lane_index)
{
    lane_state *lane = &p->lane[lane_index];
    uint32_t command = lane->commands[lane->next];
    tell_run(p, lane);
    if (lane_index == SL_LANE_COMPUTE && lane->iteration == MEASURED - 1)
        p->result.start_seconds = p->now;
    p->done_count[command]++;
    assert(p->commands_left[lane->iteration] > 0);
    assert(!p->gates[command] || p->gates_left[lane->iteration] > 0);
    if (p->gates[command] && --p->gates_left[lane->iteration] == 0)
        p->gated_by = lane_index;
    if (--p->commands_left[lane->iteration] == 0)
        p->end_seconds[lane->iteration] = p->now;
    lane->is_running = false;
    lane->free_since = p->now;
    lane->wait_index = 0;
    lane->released_by = lane_index;
    lane->waited_for = SL_NONE;
    advance_lane(p, lane);
}

/* Starts every command that may start. Returns false if no lane runs a command afterwards. */
static bool start_ready(player *p)
{
    bool runs = false;
    for (int index = 0; index < SL_LANE_COUNT; index++) {
        lane_state *lane = &p->lane[index];
        bool is_over = lane->command_count == 0 || lane->iteration == ITERATIONS;
        if (!lane->is_running && !is_over && may_start(p, lane))
            start_command(p, (sl_lane)index);
        runs = runs || lane->is_running;
    }
    return runs;
}

/* Cores that each thread of a lane keeps busy, and how many threads that lane has. */
typedef struct demand {
    double thread_count, cores;
} demand;

static bool is_busy(const player *p, sl_lane lane)
{
    return p->lane[lane].is_running;
}

/* If the compute and the host lane share the cores, they take turns in one pool of workers, which
 * counts once. */
static demand find_demand(const player *p, sl_lane lane)
{
    double workers = p->machine->worker_count;
    const demand pool = {workers > 0 ? workers : p->machine->core_count, 1.0};
    if (!is_busy(p, lane))
        return (demand){0, 0};
    if (lane == SL_LANE_HOST)
        return p->machine->shares_cores && is_busy(p, SL_LANE_COMPUTE) ? (demand){0, 0} : pool;
    if (lane == SL_LANE_COMPUTE)
        return p->machine->shares_cores ? pool : (demand){0, 0};
    return (demand){1.0, sl_lane_copies(lane) ? p->machine->copy_cores[lane] : 0};
}

/* The largest fraction of a core that a thread gets if the cores are shared fairly: threads that
 * need less get all they need, the other threads divide the rest equally. The share grows from
 * round to round, as more threads get all they need. */
static double find_share(const player *p)
{
    double share = 0.0;
    if (p->machine->core_count <= 0)
        return 1.0;
    for (int round = 0; round < SL_LANE_COUNT; round++) {
        double left = p->machine->core_count, thread_count = 0;
        for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
            demand wanted = find_demand(p, (sl_lane)lane);
            if (wanted.cores > share)
                thread_count += wanted.thread_count;
            else
                left -= wanted.thread_count * wanted.cores;
        }
        if (thread_count <= 0)
            return 1.0;
        share = left / thread_count;
    }
    return share;
}

/* The speed of the read and the write lane, where 1 is a lane's speed alone. While both run, their
 * rates together may exceed mixed_disk_rate; then both slow down in the same proportion. */
static double find_disk_speed(const player *p)
{
    const sl_machine *machine = p->machine;
    double together = machine->copy_rate[SL_LANE_READ] + machine->copy_rate[SL_LANE_WRITE];
    bool is_mixed = is_busy(p, SL_LANE_READ) && is_busy(p, SL_LANE_WRITE);
    bool is_limited = machine->mixed_disk_rate > 0 && machine->mixed_disk_rate < together;
    return is_mixed && is_limited ? machine->mixed_disk_rate / together : 1.0;
}

static double find_host_rate(const player *p, sl_lane lane)
{
    const lane_state *state = &p->lane[lane];
    return is_busy(p, lane) ? p->host_rate[state->commands[state->next]] : 0;
}

/* Lanes that at `speed` together move more than the rate of host memory slow down in the same
 * proportion. */
static void share_host_memory(const player *p, double speed[SL_LANE_COUNT])
{
    const double most = p->machine->host_memory_rate;
    double together = 0;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        together += speed[lane] * find_host_rate(p, (sl_lane)lane);
    if (most <= 0 || together <= most)
        return;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        if (find_host_rate(p, (sl_lane)lane) > 0)
            speed[lane] *= most / together;
}

static void find_speeds(const player *p, double speed[SL_LANE_COUNT])
{
    bool takes_turns =
        p->machine->shares_cores && is_busy(p, SL_LANE_COMPUTE) && is_busy(p, SL_LANE_HOST);
    double share = find_share(p), disk = find_disk_speed(p);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        double cores = find_demand(p, (sl_lane)lane).cores;
        speed[lane] = cores > share ? share / cores : 1.0;
    }
    if (takes_turns)
        speed[SL_LANE_COMPUTE] = speed[SL_LANE_HOST] = speed[SL_LANE_COMPUTE] / 2;
    speed[SL_LANE_READ] *= disk;
    speed[SL_LANE_WRITE] *= disk;
    share_host_memory(p, speed);
}

/* Moves time to the next end of a command and ends every command that ends then. */
static void advance_time(player *p)
{
    double speed[SL_LANE_COUNT], step_seconds = -1.0;
    find_speeds(p, speed);
    for (int index = 0; index < SL_LANE_COUNT; index++) {
        double seconds = p->lane[index].remaining_seconds / speed[index];
        if (p->lane[index].is_running && (step_seconds < 0.0 || seconds < step_seconds))
            step_seconds = seconds;
    }
    assert(step_seconds >= 0.0); /* start_ready: some lane runs a command */
    p->now += step_seconds;
    for (int index = 0; index < SL_LANE_COUNT; index++) {
        lane_state *lane = &p->lane[index];
        if (!lane->is_running)
            continue;
        if (is_measured(lane->iteration))
            p->result.busy_seconds[index] += step_seconds;
        bool ends = lane->remaining_seconds / speed[index] <= step_seconds;
        lane->remaining_seconds -= step_seconds * speed[index];
        if (ends)
            end_command(p, (sl_lane)index);
    }
}

/* ---- skipping the periods of a loop ---- */

static void take_snapshot(const player *p, snapshot *out)
{
    const lane_state *compute = &p->lane[SL_LANE_COMPUTE];
    *out = (snapshot){.section = p->section_of[compute->commands[compute->next]],
                      .iteration = compute->iteration,
                      .repetition = compute->repetition,
                      .now = p->now,
                      .result = p->result};
    for (int index = 0; index < SL_LANE_COUNT; index++) {
        const lane_state *lane = &p->lane[index];
        out->lane[index].next = lane->next;
        out->lane[index].repetition = lane->repetition;
        out->lane[index].iteration = lane->iteration;
        out->lane[index].wait_index = lane->wait_index;
        out->lane[index].is_running = lane->is_running;
        out->lane[index].remaining_seconds = lane->is_running ? lane->remaining_seconds : 0;
        out->lane[index].wait_count = lane->waits.count;
    }
}

static bool is_in_loop(const player *p, const lane_state *lane, const snapshot *now)
{
    return lane->command_count > 0 && lane->iteration == now->iteration &&
           p->section_of[lane->commands[lane->next]] == now->section;
}

/* Is the state `now` that of `then`, `period` repetitions later? Lanes in the loop are `period`
 * repetitions further; all others are idle and have not moved. Times may differ by rounding. */
static bool stands_alike(const player *p, const snapshot *then, const snapshot *now,
                         uint32_t period)
{
    double tolerance = 1e-9 * (now->now - then->now);
    if (then->now >= now->now || then->section != now->section ||
        then->iteration != now->iteration || then->repetition + period != now->repetition)
        return false;
    for (int index = 0; index < SL_LANE_COUNT; index++) {
        uint32_t later = is_in_loop(p, &p->lane[index], now) ? period : 0;
        double drift = now->lane[index].remaining_seconds - then->lane[index].remaining_seconds;
        bool is_same = now->lane[index].next == then->lane[index].next &&
                       now->lane[index].iteration == then->lane[index].iteration &&
                       now->lane[index].repetition == then->lane[index].repetition + later &&
                       now->lane[index].wait_index == then->lane[index].wait_index &&
                       now->lane[index].is_running == then->lane[index].is_running &&
                       drift <= tolerance && -drift <= tolerance;
        if (!is_same || (later == 0 && now->lane[index].is_running))
            return false;
    }
    return true;
}

/* Repetitions that every lane in the loop still has, without the last few: while these are
 * computed, the commands behind the loop are issued. */
static uint32_t count_left(const player *p, const snapshot *now)
{
    uint32_t most = 0, repeat = p->plan->sections[now->section].repeat;
    uint32_t kept = REPETITIONS_LEFT + p->ahead;
    for (int index = 0; index < SL_LANE_COUNT; index++)
        if (is_in_loop(p, &p->lane[index], now) && p->lane[index].repetition > most)
            most = p->lane[index].repetition;
    return repeat > most + kept ? repeat - most - kept : 0;
}

/* Skips `times` periods of a lane, each like the last one. A lane that is idle and not in the loop
 * does not change: it waits all this time, and the whole wait is charged when the wait ends. */
static void skip_lane(player *p, int index, const snapshot *then, const snapshot *now,
                      uint32_t period, uint32_t times)
{
    lane_state *lane = &p->lane[index];
    const bool is_inside = is_in_loop(p, lane, now);
    const double seconds = now->now - then->now;
    const double *waited_then = then->result.wait_seconds[index];
    const double *waited_now = now->result.wait_seconds[index];
    if (!is_inside && !lane->is_running)
        return;
    lane->free_since += times * seconds;
    lane->started += times * seconds;
    sl_stall_repeat(&lane->waits, then->lane[index].wait_count, seconds, times);
    if (is_inside)
        lane->repetition += times * period;
    p->result.busy_seconds[index] +=
        times * (now->result.busy_seconds[index] - then->result.busy_seconds[index]);
    for (int cause = 0; cause < SL_LANE_COUNT; cause++)
        p->result.wait_seconds[index][cause] += times * (waited_now[cause] - waited_then[cause]);
}

/* Skips `times` periods of `period` repetitions, each like the last one. */
static void skip_periods(player *p, const snapshot *then, const snapshot *now, uint32_t period,
                         uint32_t times)
{
    const sl_section *loop = &p->plan->sections[now->section];
    bool is_inside[SL_LANE_COUNT];
    p->now += times * (now->now - then->now);
    for (int index = 0; index < SL_LANE_COUNT; index++) {
        is_inside[index] = is_in_loop(p, &p->lane[index], now);
        skip_lane(p, index, then, now, period, times);
    }
    for (uint32_t c = loop->first; c < loop->first + loop->count; c++) {
        uint64_t passed = (uint64_t)times * period;
        if (!is_inside[p->plan->body[c].lane])
            continue; /* its lane has left the loop, or has not reached it */
        assert(passed <= p->commands_left[now->iteration]);
        p->done_count[c] += passed;
        p->commands_left[now->iteration] -= passed;
        if (p->gates[c])
            p->gates_left[now->iteration] -= passed;
        if (p->observer && is_measured(now->iteration))
            p->observer->passed(p->observer->user, c, period, times);
    }
}

/* A loop that is not periodic after REPETITIONS_TRIED repetitions is assumed to go on like its last
 * two. This is an estimate, which bounds the work. */
static bool may_guess(const snapshot *then, const snapshot *now, uint32_t period)
{
    return period == PERIOD_MOST && now->repetition >= REPETITIONS_TRIED &&
           then->section == now->section && then->iteration == now->iteration &&
           then->repetition + period == now->repetition;
}

/* Were the last two periods alike? Then every wait that ended in the last period began in one of
 * the two, so the waits of the next period are like those of the last one, too. */
static bool is_periodic(const player *p, const snapshot *then, const snapshot *now, uint32_t period)
{
    const snapshot *before = &p->snapshots[(now->repetition - 2 * period) % SNAPSHOTS];
    return now->repetition >= 2 * period && stands_alike(p, then, now, period) &&
           stands_alike(p, before, then, period);
}

/* Called when the compute lane begins a repetition: skips the periods that are left, if the last
 * repetitions were periodic. */
static void find_period(player *p)
{
    snapshot now;
    take_snapshot(p, &now);
    for (uint32_t period = 1; period <= PERIOD_MOST && now.repetition >= period; period++) {
        const snapshot then = p->snapshots[(now.repetition - period) % SNAPSHOTS];
        uint32_t times = count_left(p, &now) / period;
        if (times == 0 || (!is_periodic(p, &then, &now, period) && !may_guess(&then, &now, period)))
            continue;
        skip_periods(p, &then, &now, period, times);
        take_snapshot(p, &now);
        break;
    }
    p->snapshots[now.repetition % SNAPSHOTS] = now;
}

static sl_status play_all(player *p)
{
    while (p->commands_left[MEASURED] > 0) {
        uint32_t repetition = p->lane[SL_LANE_COMPUTE].repetition;
        if (!start_ready(p))
            SL_FAIL(SL_ERROR_INTERNAL, "the plan's commands wait for each other for ever");
        advance_time(p);
        if (p->lane[SL_LANE_COMPUTE].repetition > repetition)
            find_period(p);
    }
    p->result.step_seconds = p->end_seconds[MEASURED] - p->end_seconds[MEASURED - 1];
    memcpy(p->result.stall_seconds, p->result.wait_seconds[SL_LANE_COMPUTE],
           sizeof p->result.stall_seconds);
    return SL_OK;
}

sl_status sl_plan_simulate(const sl_program *program, const sl_plan *plan,
                           const sl_machine *machine, sl_simulation *out_simulation)
{
    return sl_plan_simulate_observed(program, plan, machine, NULL, out_simulation);
}

sl_status sl_plan_simulate_observed(const sl_program *program, const sl_plan *plan,
                                    const sl_machine *machine,
                                    const sl_simulation_observer *observer,
                                    sl_simulation *out_simulation)
{
    player p;
    memset(&p, 0, sizeof p);
    p.observer = observer;
    SL_TRY(check_machine(machine));
    sl_status status = open_player(program, plan, machine, &p);
    if (status == SL_OK)
        status = play_all(&p);
    if (status == SL_OK)
        *out_simulation = p.result;
    close_player(&p);
    return status;
}
