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

static void record_run(void *user, const sl_engine_event *event)
{
    sl_record *record = user;
    lane_state *lane = &record->lanes[event->lane];
    sl_record_lane *sums = &record->sums[event->lane];
    if (record->next)
        record->next->ran(record->next->user, event);
    if (event->plan_index != STEP_PLAN)
        return;
    if (!lane->has_begun || !goes_on(record, lane, event))
        sums->step_count++;
    lane->has_begun = true;
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
    sl_status status = record->section_of && record->commands
                           ? number_sections(record)
                           : sl_status_fail(SL_ERROR_SYSTEM, "no memory to record a step");
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
