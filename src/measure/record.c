/* Each lane has one thread that reports it, and writes its own sums and those of its own commands:
 * nothing is shared until the lanes are idle. A lane runs a body in order, so where it does not go
 * on in that order it has begun the next step. */
#include "record.h"

#include <stdlib.h>

#include "base/status.h"

enum { STEP_PLAN = 0 };

/* Waits since the lane's last command. */
typedef struct pending_waits {
    uint64_t count, ns, longest_ns;
    uint32_t longest_command;
    uint64_t cause_ns[SL_LANE_COUNT];
} pending_waits;

typedef struct lane_state {
    pending_waits pending;
    uint32_t command, repetition; /* its last one */
    bool has_begun;
    sl_record_span *spans; /* of the step that it began last */
    uint32_t span_count, span_capacity;
    uint64_t end_ns, step_start_ns; /* of its last command; of the one before that step */
} lane_state;

struct sl_record {
    sl_engine_plan step;
    uint32_t warm_up_steps;
    uint32_t *section_of; /* [body_count] */
    sl_record_command *commands;
    sl_record_lane sums[SL_LANE_COUNT];
    lane_state lanes[SL_LANE_COUNT];
    sl_engine_observer observer;
    const sl_engine_observer *next; /* or NULL */
};

/* ---- in the lanes' threads ---- */

static bool goes_on(const sl_record *record, const lane_state *lane, const sl_engine_event *event)
{
    bool is_same_section = record->section_of[lane->command] == record->section_of[event->command];
    if (is_same_section && event->repetition != lane->repetition)
        return event->repetition > lane->repetition;
    return event->command > lane->command;
}

static void add_waits(const pending_waits *pending, sl_record_command *command,
                      sl_record_lane *lane)
{
    if (pending->longest_ns > command->longest_wait_ns) {
        command->longest_wait_ns = pending->longest_ns;
        command->longest_wait_command = pending->longest_command;
    }
    command->wait_count += pending->count;
    command->wait_ns += pending->ns;
    for (int cause = 0; cause < SL_LANE_COUNT; cause++) {
        command->cause_ns[cause] += pending->cause_ns[cause];
        lane->wait_ns[cause] += pending->cause_ns[cause];
    }
}

static void add_run(sl_record *record, const sl_engine_event *event)
{
    const lane_state *lane = &record->lanes[event->lane];
    sl_record_lane *sums = &record->sums[event->lane];
    sl_record_command *command = &record->commands[event->command];
    uint64_t run_ns = event->end_ns - event->start_ns;
    command->run_count++;
    command->run_ns += run_ns;
    sums->run_count++;
    sums->busy_ns += run_ns;
    sums->end_ns = event->end_ns;
    add_waits(&lane->pending, command, sums);
}

static sl_lane find_cause(const pending_waits *pending)
{
    int most = 0;
    for (int lane = 1; lane < SL_LANE_COUNT; lane++)
        most = pending->cause_ns[lane] > pending->cause_ns[most] ? lane : most;
    return pending->cause_ns[most] > 0 ? (sl_lane)most : SL_LANE_COUNT;
}

static void keep_span(const sl_record *record, lane_state *lane, const sl_engine_event *event)
{
    const sl_section *section = &record->step.plan->sections[record->section_of[event->command]];
    uint32_t from_end = section->repeat - event->repetition;
    bool is_kept =
        event->repetition < SL_RECORD_KEPT_REPETITIONS || from_end <= SL_RECORD_KEPT_REPETITIONS;
    if (is_kept && lane->span_count < lane->span_capacity)
        lane->spans[lane->span_count++] =
            (sl_record_span){event->command, event->repetition, find_cause(&lane->pending),
                             event->start_ns, event->end_ns};
}

static void begin_step(lane_state *lane, const sl_engine_event *event)
{
    lane->step_start_ns = lane->has_begun ? lane->end_ns : event->start_ns;
    lane->span_count = 0;
}

static void record_run(void *user, const sl_engine_event *event)
{
    sl_record *record = user;
    lane_state *lane = &record->lanes[event->lane];
    sl_record_lane *sums = &record->sums[event->lane];
    if (record->next)
        record->next->ran(record->next->user, event);
    if (event->plan_index != STEP_PLAN)
        return;
    if (!lane->has_begun || !goes_on(record, lane, event)) {
        sums->step_count++;
        begin_step(lane, event);
    }
    keep_span(record, lane, event);
    lane->has_begun = true;
    lane->end_ns = event->end_ns;
    lane->command = event->command;
    lane->repetition = event->repetition;
    if (sums->step_count > record->warm_up_steps)
        add_run(record, event);
    else
        sums->start_ns = event->end_ns;
    lane->pending = (pending_waits){0};
}

static void record_wait(void *user, const sl_engine_wait *wait)
{
    sl_record *record = user;
    pending_waits *pending = &record->lanes[wait->lane].pending;
    uint64_t ns = wait->end_ns - wait->start_ns;
    if (record->next && record->next->waited)
        record->next->waited(record->next->user, wait);
    if (wait->plan_index != STEP_PLAN)
        return;
    if (ns > pending->longest_ns) {
        pending->longest_ns = ns;
        pending->longest_command = wait->command;
    }
    pending->count++;
    pending->ns += ns;
    for (int cause = 0; cause < SL_LANE_COUNT; cause++)
        pending->cause_ns[cause] += wait->cause_ns[cause];
}

/* ---- opening ---- */

static sl_status number_sections(sl_record *record)
{
    const sl_plan *plan = record->step.plan;
    uint32_t next = 0;
    for (uint32_t s = 0; s < plan->section_count; s++) {
        const sl_section *section = &plan->sections[s];
        if (section->first != next || section->count > plan->body_count - next)
            SL_FAIL(SL_ERROR_INTERNAL, "section %u of the plan does not follow on the last", s);
        for (uint32_t i = 0; i < section->count; i++)
            record->section_of[next++] = s;
    }
    if (next != plan->body_count)
        SL_FAIL(SL_ERROR_INTERNAL, "the sections hold %u of %u commands", next, plan->body_count);
    return SL_OK;
}

static sl_status take_spans(sl_record *record)
{
    const sl_plan *plan = record->step.plan;
    const uint32_t kept = 2 * SL_RECORD_KEPT_REPETITIONS;
    for (uint32_t i = 0; i < plan->body_count; i++) {
        uint32_t repeat = plan->sections[record->section_of[i]].repeat;
        record->lanes[plan->body[i].lane].span_capacity += repeat < kept ? repeat : kept;
    }
    for (int i = 0; i < SL_LANE_COUNT; i++) {
        lane_state *lane = &record->lanes[i];
        lane->spans = calloc((size_t)lane->span_capacity + 1, sizeof *lane->spans);
        if (!lane->spans)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory to record a step");
    }
    return SL_OK;
}

sl_status sl_record_open(const sl_engine_plan *step, uint32_t warm_up_steps, sl_record **out_record)
{
    size_t count = (size_t)step->plan->body_count + 1;
    sl_record *record = calloc(1, sizeof *record);
    if (!record)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to record a step");
    record->step = *step;
    record->warm_up_steps = warm_up_steps;
    record->section_of = calloc(count, sizeof *record->section_of);
    record->commands = calloc(count, sizeof *record->commands);
    sl_status status = sl_status_fail(SL_ERROR_SYSTEM, "no memory to record a step");
    if (record->section_of && record->commands)
        status = number_sections(record);
    if (status == SL_OK && record->section_of)
        status = take_spans(record);
    if (status != SL_OK) {
        sl_record_close(record);
        return status;
    }
    *out_record = record;
    return SL_OK;
}

void sl_record_close(sl_record *record)
{
    if (!record)
        return;
    free(record->section_of);
    free(record->commands);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        free(record->lanes[lane].spans);
    free(record);
}

const sl_engine_observer *sl_record_observer(sl_record *record, const sl_engine_observer *next)
{
    record->next = next;
    record->observer = (sl_engine_observer){record_run, record, record_wait};
    return &record->observer;
}

const sl_record_command *sl_record_commands(const sl_record *record)
{
    return record->commands;
}

const sl_record_lane *sl_record_lanes(const sl_record *record)
{
    return record->sums;
}

const sl_record_span *sl_record_spans(const sl_record *record, sl_lane lane, uint32_t *out_count)
{
    *out_count = record->lanes[lane].span_count;
    return record->lanes[lane].spans;
}

uint64_t sl_record_last_start_ns(const sl_record *record)
{
    return record->lanes[SL_LANE_COMPUTE].step_start_ns;
}
