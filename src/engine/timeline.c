/* Lanes put events into rings; the control thread writes them to the file.
 *
 * A ring has one writer, its lane, and one reader: `recorded` grows in the lane, `written` in the
 * control thread, and recorded - written <= capacity. A ring holds two iterations, because a lane
 * gets no further ahead of the control thread. Events that do not fit are counted, not kept.
 *
 * Of a repeated section the first two and the last two repetitions are kept, so rings and file do
 * not grow with the number of micro-batches. A lane may record the end of a step while the next
 * step is already running, but it records each step in order: so steps are counted where a lane
 * starts again at the beginning of the plan.
 */
#include "timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"

enum { NAME_BYTES = 128, ITERATIONS_KEPT = 2, EVENTS_MIN = 64 };
enum { KEPT_AT_END = 2 }; /* repetitions of a section kept at its start, and at its end */
enum { STEP_PLAN = 0 };   /* the only plan of the engine that is drawn; evaluations are left out */

static const uint64_t file_bytes_max = UINT64_C(512) << 20; /* larger files do not open in
                                                               viewers */

static const char *const phase_names[] = {
    [SL_PHASE_FORWARD] = "forward",
    [SL_PHASE_RECOMPUTE] = "recompute",
    [SL_PHASE_BACKWARD] = "backward",
    [SL_PHASE_UPDATE] = "update",
};

typedef struct ring {
    sl_engine_event *events;
    uint64_t capacity;
    _Atomic uint64_t recorded; /* the lane's */
    _Atomic uint64_t dropped;  /* the lane's */
    _Atomic uint64_t written;
    /* The control thread's: the event written last, and its step. */
    sl_engine_event last;
    uint64_t step;
    bool has_begun, is_cut; /* is_cut: events are missing, perhaps whole steps */
} ring;

struct sl_timeline {
    FILE *file; /* borrowed */
    const char *path;
    sl_engine_plan step;
    const sl_section **section_of; /* command; [body_count] */
    sl_engine_observer observer;
    ring rings[SL_LANE_COUNT];
    uint64_t *live_bytes[SL_TIER_COUNT]; /* [op_count][SL_MEMORY_KIND_COUNT]; NULL: an empty tier */
    uint32_t shown_tick[SL_TIER_COUNT];  /* the tick whose bytes were written last; SL_NONE: none
                                            yet */
    sl_engine_event counted;             /* the compute lane's op that was counted last */
    bool has_counted;
    uint64_t bytes;      /* of the file */
    uint64_t first_step; /* 0: nothing was recorded yet */
    bool is_full;
};

/* ---- in the lanes' threads ---- */

static bool is_drawn(const sl_timeline *timeline, const sl_engine_event *event)
{
    uint64_t repeat = timeline->section_of[event->command]->repeat;
    return event->repetition < KEPT_AT_END || event->repetition + (uint64_t)KEPT_AT_END >= repeat;
}

static void record_event(void *user, const sl_engine_event *event)
{
    sl_timeline *timeline = user;
    ring *r = &timeline->rings[event->lane];
    if (event->plan_index != STEP_PLAN || !is_drawn(timeline, event))
        return;
    uint64_t recorded = atomic_load_explicit(&r->recorded, memory_order_relaxed);
    if (recorded - atomic_load_explicit(&r->written, memory_order_acquire) == r->capacity) {
        atomic_fetch_add_explicit(&r->dropped, 1, memory_order_relaxed);
        return;
    }
    r->events[recorded % r->capacity] = *event;
    atomic_store_explicit(&r->recorded, recorded + 1, memory_order_release);
}

/* ---- opening and closing ---- */

static sl_status find_sections(sl_timeline *timeline)
{
    const sl_plan *plan = timeline->step.plan;
    uint32_t next = 0;
    timeline->section_of = calloc((size_t)plan->body_count + 1, sizeof *timeline->section_of);
    if (!timeline->section_of)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a timeline");
    for (uint32_t s = 0; s < plan->section_count; s++) {
        const sl_section *section = &plan->sections[s];
        if (section->first != next || section->count > plan->body_count - next)
            SL_FAIL(SL_ERROR_INTERNAL, "section %u of the plan does not follow on the last", s);
        for (uint32_t i = 0; i < section->count; i++)
            timeline->section_of[next++] = section;
    }
    if (next != plan->body_count)
        SL_FAIL(SL_ERROR_INTERNAL, "the sections hold %u of %u commands", next, plan->body_count);
    return SL_OK;
}

/* Events of a lane that are kept of one iteration. */
static uint64_t count_events(const sl_timeline *timeline, sl_lane lane)
{
    const sl_plan *plan = timeline->step.plan;
    uint64_t count = 0;
    for (uint32_t i = 0; i < plan->body_count; i++) {
        uint32_t repeat = timeline->section_of[i]->repeat;
        if (plan->body[i].lane == lane)
            count += repeat < 2 * KEPT_AT_END ? repeat : 2 * KEPT_AT_END;
    }
    return count;
}

static sl_status open_rings(sl_timeline *timeline)
{
    SL_TRY(find_sections(timeline));
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        ring *r = &timeline->rings[lane];
        r->capacity = EVENTS_MIN + ITERATIONS_KEPT * count_events(timeline, (sl_lane)lane);
        r->events = calloc(r->capacity, sizeof *r->events);
        if (!r->events)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a timeline");
    }
    return SL_OK;
}

/* Computes the bytes that the counters show, for tiers that hold anything. */
static sl_status add_up_memory(sl_timeline *timeline)
{
    const sl_engine_plan *step = &timeline->step;
    uint64_t count = (uint64_t)step->program->op_count * SL_MEMORY_KIND_COUNT;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        timeline->shown_tick[tier] = SL_NONE;
        if (step->plan->peak_bytes[tier] == 0)
            continue;
        timeline->live_bytes[tier] = calloc(count + 1, sizeof(uint64_t));
        if (!timeline->live_bytes[tier])
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a timeline");
        sl_plan_live_bytes(step->plan, (sl_tier)tier, step->program->op_count,
                           timeline->live_bytes[tier]);
    }
    return SL_OK;
}

static sl_status fail_io(const sl_timeline *timeline)
{
    SL_FAIL(SL_ERROR_IO, "%s: %s", timeline->path, strerror(errno));
}

static sl_status add_text(sl_timeline *timeline, const char *text)
{
    if (fputs(text, timeline->file) == EOF)
        return fail_io(timeline);
    timeline->bytes += strlen(text);
    return SL_OK;
}

/* Names the rows, in the order of the lanes. */
static sl_status write_head(sl_timeline *timeline)
{
    char line[2 * NAME_BYTES];
    SL_TRY(add_text(timeline, SL_TIMELINE_START ",\"ph\":\"M\",\"pid\":0,"
                                                "\"args\":{\"name\":\"sluice\"}}"));
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        snprintf(line, sizeof line,
                 ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,"
                 "\"args\":{\"name\":\"%s\"}}"
                 ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,"
                 "\"args\":{\"sort_index\":%d}}",
                 lane, sl_lane_name((sl_lane)lane), lane, lane);
        SL_TRY(add_text(timeline, line));
    }
    return SL_OK;
}

sl_status sl_timeline_open(FILE *file, const char *path, const sl_engine_plan *step,
                           sl_timeline **out_timeline)
{
    *out_timeline = NULL;
    sl_timeline *timeline = calloc(1, sizeof *timeline);
    if (!timeline)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a timeline");
    timeline->file = file;
    timeline->path = path;
    timeline->step = *step;
    timeline->observer = (sl_engine_observer){record_event, timeline};
    sl_status status = open_rings(timeline);
    if (status == SL_OK)
        status = add_up_memory(timeline);
    if (status == SL_OK)
        status = write_head(timeline);
    if (status != SL_OK) {
        sl_timeline_close(timeline);
        return status;
    }
    *out_timeline = timeline;
    return SL_OK;
}

const sl_engine_observer *sl_timeline_observer(const sl_timeline *timeline)
{
    return timeline ? &timeline->observer : NULL;
}

void sl_timeline_close(sl_timeline *timeline)
{
    if (!timeline)
        return;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        free(timeline->rings[lane].events);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        free(timeline->live_bytes[tier]);
    free(timeline->section_of);
    free(timeline);
}

/* ---- writing ---- */

/* Writes the details of an op or copy, which viewers show beside its name. */
static void describe_event(const sl_timeline *timeline, const sl_engine_event *event,
                           char more[2 * NAME_BYTES])
{
    const sl_program *program = timeline->step.program;
    const sl_command *command = &timeline->step.plan->body[event->command];
    const sl_section *section = timeline->section_of[event->command];
    const sl_op *op = command->kind == SL_COMMAND_RUN ? &program->ops[command->tick] : NULL;
    uint32_t first = op ? op->micro_batch : section->first_micro_batch;
    size_t length = 0;
    if (op)
        length = (size_t)snprintf(more, NAME_BYTES, "\"phase\":\"%s\"", phase_names[op->phase]);
    else
        length = (size_t)snprintf(more, NAME_BYTES, "\"bytes\":%" PRIu64, command->to.bytes);
    if (section->repeat > 1)
        length += (size_t)snprintf(more + length, NAME_BYTES / 2, ",\"repetition\":%u",
                                   event->repetition);
    if (op || section->repeat > 1)
        snprintf(more + length, NAME_BYTES / 2, ",\"micro_batch\":%u",
                 first + sl_section_micro_batches(section, event->repetition));
}

static const uint64_t *live_at(const sl_timeline *timeline, sl_tier tier, uint32_t tick)
{
    return timeline->live_bytes[tier] + (uint64_t)tick * SL_MEMORY_KIND_COUNT;
}

/* A tier's counter from a time on: the bytes planned to be alive at a tick, by kind. */
static sl_status write_memory(sl_timeline *timeline, sl_tier tier, uint32_t tick, uint64_t start_ns)
{
    char line[6 * NAME_BYTES];
    const uint64_t *live = live_at(timeline, tier, tick);
    const uint32_t shown = timeline->shown_tick[tier];
    if (shown != SL_NONE &&
        memcmp(live, live_at(timeline, tier, shown), SL_MEMORY_KIND_COUNT * sizeof *live) == 0)
        return SL_OK;
    size_t length =
        (size_t)snprintf(line, sizeof line,
                         ",\n{\"name\":\"%s bytes\",\"ph\":\"C\",\"pid\":0,\"ts\":%.3f,\"args\":{",
                         sl_tier_name(tier), 1e-3 * (double)start_ns);
    for (int kind = 0; kind < SL_MEMORY_KIND_COUNT; kind++)
        length += (size_t)snprintf(line + length, sizeof line - length, "%s\"%s\":%" PRIu64,
                                   kind ? "," : "", sl_memory_kind_name((sl_memory_kind)kind),
                                   live[kind]);
    snprintf(line + length, sizeof line - length, "}}");
    timeline->shown_tick[tier] = tick;
    return add_text(timeline, line);
}

static uint64_t sum_at(const sl_timeline *timeline, sl_tier tier, uint32_t tick)
{
    uint64_t sum = 0;
    for (int kind = 0; kind < SL_MEMORY_KIND_COUNT; kind++)
        sum += live_at(timeline, tier, tick)[kind];
    return sum;
}

static uint32_t find_fuller(const sl_timeline *timeline, sl_tier tier, uint32_t first, uint32_t end,
                            uint32_t than)
{
    uint32_t fullest = than;
    for (uint32_t tick = first; tick < end; tick++)
        if (sum_at(timeline, tier, tick) > sum_at(timeline, tier, fullest))
            fullest = tick;
    return fullest;
}

/* Between two ops of the compute lane there are ticks of other lanes, and a tier may be fullest at
 * one of them. The fullest is shown from the end of the earlier op on, if it has more bytes than
 * that op. `next` is NULL at the end of the file. */
static sl_status write_between(sl_timeline *timeline, sl_tier tier, const sl_engine_event *next)
{
    const sl_plan *plan = timeline->step.plan;
    const sl_engine_event *last = &timeline->counted;
    const uint32_t before = plan->body[last->command].tick;
    const sl_section *commands = timeline->section_of[last->command];
    sl_section ticks = {0, timeline->step.program->op_count, 0, 1, 0}; /* of the repeated section */
    if (next && timeline->section_of[next->command] == commands &&
        next->repetition > last->repetition)
        ticks = sl_program_section(timeline->step.program, (uint32_t)(commands - plan->sections));
    const uint32_t tick = next ? plan->body[next->command].tick : ticks.first;
    uint32_t fullest = before;
    if (tick > before) {
        fullest = find_fuller(timeline, tier, before + 1, tick, fullest);
    } else {
        fullest = find_fuller(timeline, tier, before + 1, ticks.first + ticks.count, fullest);
        fullest = find_fuller(timeline, tier, ticks.first, tick, fullest);
    }
    return fullest == before ? SL_OK : write_memory(timeline, tier, fullest, last->end_ns);
}

/* Writes the counters of all tiers at the start of an op of the compute lane. */
static sl_status count_memory(sl_timeline *timeline, const sl_engine_event *event)
{
    const sl_command *command = &timeline->step.plan->body[event->command];
    if (event->lane != SL_LANE_COMPUTE || command->kind != SL_COMMAND_RUN)
        return SL_OK;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        if (!timeline->live_bytes[tier])
            continue;
        if (timeline->has_counted)
            SL_TRY(write_between(timeline, (sl_tier)tier, event));
        SL_TRY(write_memory(timeline, (sl_tier)tier, command->tick, event->start_ns));
    }
    timeline->counted = *event;
    timeline->has_counted = true;
    return SL_OK;
}

static sl_status write_event(sl_timeline *timeline, const sl_engine_event *event, uint64_t step)
{
    const sl_program *program = timeline->step.program;
    const sl_command *command = &timeline->step.plan->body[event->command];
    bool is_copy = command->kind == SL_COMMAND_COPY;
    char name[SL_COMMAND_NAME_BYTES], more[2 * NAME_BYTES], line[6 * NAME_BYTES];
    sl_command_describe(program, command, name);
    describe_event(timeline, event, more);
    snprintf(line, sizeof line,
             ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":0,\"tid\":%d,"
             "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%" PRIu64 ",\"tick\":%u,%s}}",
             name, is_copy ? "copy" : "op", (int)event->lane, 1e-3 * (double)event->start_ns,
             1e-3 * (double)(event->end_ns - event->start_ns), step, command->tick, more);
    return add_text(timeline, line);
}

/* True if a lane may record `b` after `a` in one iteration. */
static bool follows(const sl_timeline *timeline, const sl_engine_event *a, const sl_engine_event *b)
{
    if (timeline->section_of[a->command] != timeline->section_of[b->command])
        return b->command > a->command;
    return b->repetition != a->repetition ? b->repetition > a->repetition : b->command > a->command;
}

/* Writes a note: how many repetitions are not drawn between the last event and this one. */
static sl_status write_gap(sl_timeline *timeline, const ring *r, const sl_engine_event *event)
{
    char line[2 * NAME_BYTES];
    bool is_gap = timeline->section_of[r->last.command] == timeline->section_of[event->command] &&
                  event->repetition > r->last.repetition + 1;
    if (!is_gap)
        return SL_OK;
    snprintf(line, sizeof line,
             ",\n{\"name\":\"%u repetitions left out\",\"ph\":\"i\",\"s\":\"t\",\"pid\":0,"
             "\"tid\":%d,\"ts\":%.3f,\"args\":{\"step\":%" PRIu64 "}}",
             event->repetition - r->last.repetition - 1, (int)event->lane,
             1e-3 * (double)event->start_ns, r->step);
    return add_text(timeline, line);
}

/* Finds the step of an event; `step` is the latest. */
static sl_status assign_step(sl_timeline *timeline, ring *r, const sl_engine_event *event,
                             uint64_t step)
{
    bool is_same = r->has_begun && follows(timeline, &r->last, event);
    if (is_same)
        SL_TRY(write_gap(timeline, r, event));
    else if (!r->has_begun)
        r->step = timeline->first_step;
    else
        r->step = r->is_cut ? step : r->step + 1;
    r->is_cut = r->is_cut && is_same;
    r->has_begun = true;
    r->last = *event;
    return SL_OK;
}

static sl_status write_ring(sl_timeline *timeline, ring *r, uint64_t step)
{
    uint64_t recorded = atomic_load_explicit(&r->recorded, memory_order_acquire);
    uint64_t written = atomic_load_explicit(&r->written, memory_order_relaxed);
    if (recorded > 0 && timeline->first_step == 0)
        timeline->first_step = step;
    for (; written < recorded; written++) {
        const sl_engine_event *event = &r->events[written % r->capacity];
        if (!timeline->is_full) {
            SL_TRY(assign_step(timeline, r, event, step));
            SL_TRY(count_memory(timeline, event));
            SL_TRY(write_event(timeline, event, r->step));
        }
        atomic_store_explicit(&r->written, written + 1, memory_order_release);
    }
    return SL_OK;
}

static void warn_if_dropped(sl_timeline *timeline, uint64_t step)
{
    uint64_t dropped = 0;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        ring *r = &timeline->rings[lane];
        uint64_t of_lane = atomic_exchange_explicit(&r->dropped, 0, memory_order_relaxed);
        r->is_cut = r->is_cut || of_lane > 0;
        dropped += of_lane;
    }
    if (dropped)
        sl_log_write(SL_LOG_WARNING, "%s: %" PRIu64 " events before step %" PRIu64 " are missing",
                     timeline->path, dropped, step);
}

sl_status sl_timeline_write(sl_timeline *timeline, uint64_t step)
{
    if (!timeline)
        return SL_OK;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        sl_status status = write_ring(timeline, &timeline->rings[lane], step);
        if (status != SL_OK) {
            timeline->is_full = true; /* the file ends in the middle of an event */
            return status;
        }
    }
    warn_if_dropped(timeline, step);
    if (!timeline->is_full && timeline->bytes > file_bytes_max) {
        timeline->is_full = true;
        sl_log_write(SL_LOG_WARNING, "%s is full: it ends with step %" PRIu64, timeline->path,
                     step);
    }
    return SL_OK;
}

sl_status sl_timeline_finish(sl_timeline *timeline)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        if (timeline->live_bytes[tier] && timeline->has_counted && !timeline->is_full)
            SL_TRY(write_between(timeline, (sl_tier)tier, NULL));
    timeline->is_full = true;
    return add_text(timeline, "\n]\n");
}

bool sl_timeline_is_empty(const sl_timeline *timeline)
{
    return timeline->first_step == 0;
}
