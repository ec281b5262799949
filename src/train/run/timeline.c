/* Lanes put events into rings, the control thread writes them out.
 *
 * A ring has one writer, its lane, and one reader: told grows in the lane, written in the control
 * thread, and told - written <= capacity. A ring holds two iterations, which is as far as a lane
 * can get before the control thread comes by; what does not fit all the same is counted, not kept.
 */
#include "timeline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/setup/plan_json.h"

enum { FILE_BUFFER_BYTES = 1 << 16, NAME_BYTES = 128, ROOM_ITERATIONS = 2, ROOM_MIN = 64 };
enum { STEP_PLAN = 0 }; /* the only plan that is drawn: evaluations are left out */

static const uint64_t file_bytes_max = UINT64_C(512) << 20; /* more than viewers open */

static const char *const phase_names[] = {
    [SL_PHASE_FORWARD] = "forward",
    [SL_PHASE_RECOMPUTE] = "recompute",
    [SL_PHASE_BACKWARD] = "backward",
    [SL_PHASE_UPDATE] = "update",
};

typedef struct ring {
    sl_engine_event *events;
    uint64_t capacity;
    _Atomic uint64_t told; /* the lane's */
    _Atomic uint64_t lost; /* the lane's */
    _Atomic uint64_t written;
} ring;

struct sl_timeline {
    FILE *file;
    char *path;
    const sl_blueprint *blueprint;
    sl_engine_observer observer;
    ring rings[SL_LANE_COUNT];
    uint64_t bytes; /* of the file */
    bool is_full;
    char buffer[FILE_BUFFER_BYTES];
};

/* ---- in the lanes' threads ---- */

static void tell(void *user, const sl_engine_event *event)
{
    ring *r = &((sl_timeline *)user)->rings[event->lane];
    if (event->plan_index != STEP_PLAN)
        return;
    uint64_t told = atomic_load_explicit(&r->told, memory_order_relaxed);
    if (told - atomic_load_explicit(&r->written, memory_order_acquire) == r->capacity) {
        atomic_fetch_add_explicit(&r->lost, 1, memory_order_relaxed);
        return;
    }
    r->events[told % r->capacity] = *event;
    atomic_store_explicit(&r->told, told + 1, memory_order_release);
}

/* ---- opening and closing ---- */

static uint64_t count_commands(const sl_blueprint *blueprint, sl_lane lane)
{
    const sl_plan *plan = blueprint->plans[STEP_PLAN];
    uint64_t count = 0;
    for (uint32_t i = 0; i < plan->body_count; i++)
        count += plan->body[i].lane == lane;
    return count;
}

static sl_status open_rings(sl_timeline *timeline)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        ring *r = &timeline->rings[lane];
        r->capacity =
            ROOM_MIN + ROOM_ITERATIONS * count_commands(timeline->blueprint, (sl_lane)lane);
        r->events = calloc(r->capacity, sizeof *r->events);
        if (!r->events)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for a timeline");
    }
    return SL_OK;
}

static sl_status fail(const sl_timeline *timeline)
{
    SL_FAIL(SL_ERROR_IO, "%s: %s", timeline->path, strerror(errno));
}

static sl_status add_text(sl_timeline *timeline, const char *text)
{
    if (fputs(text, timeline->file) == EOF)
        return fail(timeline);
    timeline->bytes += strlen(text);
    return SL_OK;
}

/* Names the rows, in the order of the lanes. */
static sl_status write_head(sl_timeline *timeline)
{
    char line[2 * NAME_BYTES];
    SL_TRY(add_text(timeline, "[{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,"
                              "\"args\":{\"name\":\"sluice\"}}"));
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        snprintf(line, sizeof line,
                 ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,"
                 "\"args\":{\"name\":\"%s\"}}"
                 ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":0,\"tid\":%d,"
                 "\"args\":{\"sort_index\":%d}}",
                 lane, sl_plan_json_lane_names[lane], lane, lane);
        SL_TRY(add_text(timeline, line));
    }
    return SL_OK;
}

static sl_status open_file(sl_timeline *timeline, const char *path)
{
    timeline->path = strdup(path);
    if (!timeline->path)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a timeline");
    timeline->file = fopen(path, "we");
    if (!timeline->file)
        return fail(timeline);
    setvbuf(timeline->file, timeline->buffer, _IOFBF, sizeof timeline->buffer);
    return write_head(timeline);
}

sl_status sl_timeline_open(const char *path, const sl_blueprint *blueprint,
                           sl_timeline **out_timeline)
{
    *out_timeline = NULL;
    if (!path)
        return SL_OK;
    sl_timeline *timeline = calloc(1, sizeof *timeline);
    if (!timeline)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a timeline");
    timeline->blueprint = blueprint;
    timeline->observer = (sl_engine_observer){tell, timeline};
    sl_status status = open_rings(timeline);
    if (status == SL_OK)
        status = open_file(timeline, path);
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
    if (timeline->file) {
        bool failed = fputs("\n]\n", timeline->file) == EOF;
        if (fclose(timeline->file) != 0 || failed)
            sl_log_write(SL_LOG_WARNING, "%s is not whole: %s", timeline->path, strerror(errno));
    }
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        free(timeline->rings[lane].events);
    free(timeline->path);
    free(timeline);
}

/* ---- writing ---- */

/* "linear h.3.fc": the op and the first value that it writes. */
static void name_op(const sl_program *program, const sl_op *op, char name[NAME_BYTES])
{
    const sl_op_info *info = sl_op_info_of(op->kind);
    const char *value = "";
    for (uint32_t i = 0; i < info->operand_count && !*value; i++)
        if (op->operand[i] != SL_NONE && sl_op_writes(op, i))
            value = program->values[op->operand[i]].name;
    snprintf(name, NAME_BYTES, "%s%s%.80s", info->name, *value ? " " : "", value);
}

static void name_copy(const sl_program *program, const sl_command *command, char name[NAME_BYTES])
{
    if (command->chunk_index != SL_NONE)
        snprintf(name, NAME_BYTES, "%s %u", sl_group_name(command->group), command->chunk_index);
    else
        snprintf(name, NAME_BYTES, "%.80s", program->values[command->value].name);
}

static sl_status write_event(sl_timeline *timeline, const sl_engine_event *event, uint64_t step)
{
    const sl_blueprint *blueprint = timeline->blueprint;
    const sl_program *program = blueprint->programs[STEP_PLAN];
    const sl_command *command = &blueprint->plans[STEP_PLAN]->body[event->command];
    bool is_copy = command->kind == SL_COMMAND_COPY;
    char name[NAME_BYTES], more[NAME_BYTES], line[4 * NAME_BYTES];
    if (is_copy) {
        name_copy(program, command, name);
        snprintf(more, sizeof more, "\"bytes\":%" PRIu64, command->to.bytes);
    } else {
        const sl_op *op = &program->ops[command->tick];
        name_op(program, op, name);
        snprintf(more, sizeof more, "\"phase\":\"%s\",\"micro_batch\":%u", phase_names[op->phase],
                 op->micro_batch);
    }
    snprintf(line, sizeof line,
             ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":0,\"tid\":%d,"
             "\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%" PRIu64 ",\"tick\":%u,%s}}",
             name, is_copy ? "copy" : "op", (int)event->lane, 1e-3 * (double)event->start_ns,
             1e-3 * (double)(event->end_ns - event->start_ns), step, command->tick, more);
    return add_text(timeline, line);
}

static sl_status write_ring(sl_timeline *timeline, ring *r, uint64_t step)
{
    uint64_t told = atomic_load_explicit(&r->told, memory_order_acquire);
    uint64_t written = atomic_load_explicit(&r->written, memory_order_relaxed);
    for (; written < told; written++) {
        if (!timeline->is_full)
            SL_TRY(write_event(timeline, &r->events[written % r->capacity], step));
        atomic_store_explicit(&r->written, written + 1, memory_order_release);
    }
    return SL_OK;
}

static void warn_if_lost(sl_timeline *timeline, uint64_t step)
{
    uint64_t lost = 0;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        lost += atomic_exchange_explicit(&timeline->rings[lane].lost, 0, memory_order_relaxed);
    if (lost)
        sl_log_write(SL_LOG_WARNING, "%s: %" PRIu64 " events before step %" PRIu64 " are missing",
                     timeline->path, lost, step);
}

sl_status sl_timeline_write(sl_timeline *timeline, uint64_t step)
{
    if (!timeline)
        return SL_OK;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        SL_TRY(write_ring(timeline, &timeline->rings[lane], step));
    warn_if_lost(timeline, step);
    if (!timeline->is_full && timeline->bytes > file_bytes_max) {
        timeline->is_full = true;
        sl_log_write(SL_LOG_WARNING, "%s is full: it ends with step %" PRIu64, timeline->path,
                     step);
    }
    return SL_OK;
}
