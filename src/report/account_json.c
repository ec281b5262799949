/* Walks an account. Times of spans are whole nanoseconds; runs of commands that are too short to be
 * seen in a picture of BLOCKS blocks a lane become one, named after the longest of them. */
#include "account_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "search/plan_json.h"

enum { BLOCKS = 1200 };

/* Remembers that something could not be made. */
typedef struct maker {
    const sl_account *account;
    bool has_failed;
} maker;

static void put(maker *m, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        m->has_failed = true;
}

static void append(maker *m, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        m->has_failed = true;
}

static json_t *make_count(uint64_t count)
{
    return json_integer(count <= INT64_MAX ? (json_int_t)count : INT64_MAX);
}

static json_t *make_real(double real)
{
    return isfinite(real) ? json_real(real) : json_null();
}

static json_t *make_ns(double seconds)
{
    return json_integer((json_int_t)llround(1e9 * seconds));
}

static void put_count(maker *m, json_t *object, const char *key, uint64_t count)
{
    put(m, object, key, make_count(count));
}

static void put_real(maker *m, json_t *object, const char *key, double real)
{
    put(m, object, key, make_real(real));
}

/* ---- memory ---- */

static json_t *make_kinds(maker *m, const uint64_t kind_bytes[SL_MEMORY_KIND_COUNT])
{
    json_t *object = json_object();
    for (int kind = 0; kind < SL_MEMORY_KIND_COUNT; kind++)
        put_count(m, object, sl_plan_json_kind_names[kind], kind_bytes[kind]);
    return object;
}

static void put_columns(maker *m, const sl_account_tier *tier, json_t *object)
{
    json_t *columns = json_array(), *ops = json_array();
    const sl_program *program = m->account->request.program;
    for (uint32_t c = 0; c < m->account->column_count; c++) {
        json_t *column = json_array();
        append(m, column, make_count(tier->columns[c].tick));
        for (int kind = 0; kind < SL_MEMORY_KIND_COUNT; kind++)
            append(m, column, make_count(tier->columns[c].kind_bytes[kind]));
        append(m, columns, column);
        append(m, ops, json_string(sl_op_info_of(program->ops[tier->columns[c].tick].kind)->name));
    }
    put(m, object, "columns", columns);
    put(m, object, "ops", ops);
}

static json_t *make_object(maker *m, const sl_account_object *from)
{
    json_t *object = json_object();
    put(m, object, "name", json_string(from->name));
    put(m, object, "kind", json_string(sl_plan_json_kind_names[from->kind]));
    put_count(m, object, "bytes", from->bytes);
    put_count(m, object, "offset", from->offset);
    put_count(m, object, "first_tick", from->first_tick);
    put_count(m, object, "last_tick", from->last_tick);
    put(m, object, "permanent", json_boolean(from->is_permanent));
    return object;
}

static json_t *make_class(maker *m, const sl_account_class *from)
{
    json_t *array = json_array();
    append(m, array, json_string(from->name));
    append(m, array, json_string(sl_plan_json_kind_names[from->kind]));
    append(m, array, make_count(from->count));
    append(m, array, make_count(from->bytes));
    return array;
}

static json_t *make_region(maker *m, const sl_account_region *from)
{
    json_t *array = json_array();
    const sl_account_object *object = &from->object;
    append(m, array, json_integer((json_int_t)object->kind));
    append(m, array, make_count(object->offset));
    append(m, array, make_count(object->bytes));
    append(m, array, make_count(object->first_tick));
    append(m, array, make_count(object->last_tick));
    append(m, array, json_integer(object->is_permanent));
    append(m, array, make_count(from->count));
    append(m, array, json_string(object->name));
    return array;
}

static void put_lists(maker *m, const sl_account_tier *tier, json_t *object)
{
    json_t *objects = json_array(), *classes = json_array();
    json_t *holes = json_array(), *regions = json_array();
    for (uint32_t i = 0; i < tier->object_count; i++)
        append(m, objects, make_object(m, &tier->objects[i]));
    for (uint32_t i = 0; i < tier->class_count; i++)
        append(m, classes, make_class(m, &tier->classes[i]));
    for (uint32_t i = 0; i < tier->hole_count; i++) {
        json_t *hole = json_array();
        append(m, hole, make_count(tier->holes[i].offset));
        append(m, hole, make_count(tier->holes[i].bytes));
        append(m, holes, hole);
    }
    for (uint32_t i = 0; i < tier->region_count; i++)
        append(m, regions, make_region(m, &tier->regions[i]));
    put(m, object, "objects", objects);
    put(m, object, "classes", classes);
    put(m, object, "holes", holes);
    put(m, object, "regions", regions);
    put_count(m, object, "all_objects", tier->all_objects);
    put_count(m, object, "all_classes", tier->all_classes);
    put_count(m, object, "all_holes", tier->all_holes);
    put_count(m, object, "all_regions", tier->all_regions);
}

static json_t *make_tier(maker *m, const sl_account_tier *tier)
{
    json_t *object = json_object();
    const sl_op *op = &m->account->request.program->ops[tier->peak_tick];
    put(m, object, "budget_bytes",
        tier->budget_bytes == UINT64_MAX ? json_null() : make_count(tier->budget_bytes));
    put_count(m, object, "arena_bytes", tier->arena_bytes);
    put_count(m, object, "live_peak_bytes", tier->live_peak_bytes);
    put_count(m, object, "hole_bytes", tier->hole_bytes);
    put_count(m, object, "overflow_bytes", tier->overflow_bytes);
    put_count(m, object, "peak_tick", tier->peak_tick);
    put(m, object, "peak_op", json_string(sl_op_info_of(op->kind)->name));
    put(m, object, "kind_bytes", make_kinds(m, tier->kind_bytes));
    put_columns(m, tier, object);
    put_lists(m, tier, object);
    return object;
}

/* Runs of equal cells: [mask, length, mask, length, ...]. */
static json_t *make_runs(maker *m, const uint8_t *cells, uint32_t count)
{
    json_t *runs = json_array();
    for (uint32_t first = 0; first < count;) {
        uint32_t end = first;
        while (end < count && cells[end] == cells[first])
            end++;
        append(m, runs, json_integer(cells[first]));
        append(m, runs, make_count(end - first));
        first = end;
    }
    return runs;
}

static json_t *make_residency(maker *m)
{
    json_t *groups = json_array();
    for (int group = 0; group < SL_GROUP_COUNT; group++) {
        const sl_account_residency *from = &m->account->residency[group];
        if (from->row_count == 0)
            continue;
        json_t *object = json_object(), *rows = json_array();
        uint32_t columns = m->account->column_count;
        for (uint32_t row = 0; row < from->row_count; row++)
            append(m, rows, make_runs(m, from->cells + (uint64_t)row * columns, columns));
        put(m, object, "group", json_string(sl_group_name(from->group)));
        put_count(m, object, "chunks_a_row", from->chunks_a_row);
        put(m, object, "rows", rows);
        append(m, groups, object);
    }
    return groups;
}

/* ---- time ---- */

/* Spans of one lane that are drawn as one. */
typedef struct block {
    double start, end, longest;
    uint32_t count, command;
    sl_lane cause;
} block;

static void name_command(const maker *m, uint32_t index, char name[SL_COMMAND_NAME_BYTES])
{
    const sl_account_request *request = &m->account->request;
    sl_command_describe(request->program, &request->plan->body[index], name);
}

static void append_block(maker *m, json_t *lane, const block *from)
{
    char name[SL_COMMAND_NAME_BYTES];
    json_t *array = json_array();
    name_command(m, from->command, name);
    append(m, array, make_ns(from->start));
    append(m, array, make_ns(from->end));
    append(m, array, make_count(from->count));
    append(m, array, json_string(name));
    append(m, array,
           from->cause < SL_LANE_COUNT ? json_string(sl_lane_name(from->cause)) : json_null());
    append(m, lane, array);
}

/* What a gantt is made of, and how much it shows. */
typedef struct gantt {
    const sl_account_span *spans;
    uint32_t span_count;
    double end, resolution;
} gantt;

static json_t *make_lane_blocks(maker *m, const gantt *from, sl_lane lane)
{
    const sl_plan *plan = m->account->request.plan;
    json_t *array = json_array();
    block open = {.count = 0};
    for (uint32_t i = 0; i < from->span_count; i++) {
        const sl_account_span *span = &from->spans[i];
        if (plan->body[span->command].lane != lane)
            continue;
        double seconds = span->end - span->start;
        bool joins = open.count > 0 && span->start - open.end < from->resolution &&
                     span->end - open.start < 4 * from->resolution;
        if (!joins && open.count > 0)
            append_block(m, array, &open);
        if (!joins)
            open = (block){span->start, span->end, seconds, 0, span->command, span->cause};
        if (seconds > open.longest)
            open.command = span->command;
        open.longest = seconds > open.longest ? seconds : open.longest;
        open.end = span->end;
        open.count++;
    }
    if (open.count > 0)
        append_block(m, array, &open);
    return array;
}

static const sl_section *find_section(const sl_plan *plan, uint32_t command)
{
    for (uint32_t s = 0; s < plan->section_count; s++)
        if (command < plan->sections[s].first + plan->sections[s].count)
            return &plan->sections[s];
    return NULL;
}

/* Where the compute lane goes from one repetition to one much later, [from, to, how many]; returns
 * the time that is left out. */
static double put_cuts(maker *m, const gantt *from, json_t *object)
{
    const sl_plan *plan = m->account->request.plan;
    json_t *cuts = json_array();
    const sl_account_span *last = NULL;
    double left_out = 0;
    for (uint32_t i = 0; i < from->span_count; i++) {
        const sl_account_span *span = &from->spans[i];
        if (plan->body[span->command].lane != SL_LANE_COMPUTE)
            continue;
        bool is_gap = last && span->repetition > last->repetition + 1 &&
                      find_section(plan, last->command) == find_section(plan, span->command);
        if (is_gap && span->start > last->end) {
            json_t *cut = json_array();
            append(m, cut, make_ns(last->end));
            append(m, cut, make_ns(span->start));
            append(m, cut, make_count(span->repetition - last->repetition - 1));
            append(m, cuts, cut);
            left_out += span->start - last->end;
        }
        last = span;
    }
    put(m, object, "cuts", cuts);
    return left_out;
}

static json_t *make_gantt(maker *m, const sl_account_span *spans, uint32_t span_count, double end)
{
    json_t *object = json_object(), *lanes = json_object();
    gantt from = {spans, span_count, end, 0};
    double begin = 0;
    for (uint32_t i = 0; i < span_count; i++) {
        from.end = spans[i].end > from.end ? spans[i].end : from.end;
        begin = spans[i].start < begin ? spans[i].start : begin;
    }
    if (begin < -0.05 * from.end) /* what runs further ahead is cut */
        begin = -0.05 * from.end;
    from.resolution = (from.end - begin - put_cuts(m, &from, object)) / BLOCKS;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        put(m, lanes, sl_lane_name((sl_lane)lane), make_lane_blocks(m, &from, (sl_lane)lane));
    put(m, object, "begin", make_ns(begin));
    put(m, object, "end", make_ns(from.end));
    put(m, object, "lanes", lanes);
    return object;
}

static json_t *make_waits(maker *m, const double wait_seconds[SL_LANE_COUNT])
{
    json_t *object = json_object();
    for (int cause = 0; cause < SL_LANE_COUNT; cause++)
        if (wait_seconds[cause] > 0)
            put_real(m, object, sl_lane_name((sl_lane)cause), wait_seconds[cause]);
    return object;
}

static json_t *make_lanes(maker *m)
{
    json_t *lanes = json_object();
    for (int i = 0; i < SL_LANE_COUNT; i++) {
        const sl_account_lane *from = &m->account->lane[i];
        json_t *lane = json_object();
        put_count(m, lane, "commands", from->command_count);
        put_count(m, lane, "moved_bytes", from->moved_bytes);
        put_real(m, lane, "alone_seconds", from->alone_seconds);
        put_real(m, lane, "busy_seconds", from->busy_seconds);
        put(m, lane, "wait_seconds", make_waits(m, from->wait_seconds));
        put(m, lanes, sl_lane_name((sl_lane)i), lane);
    }
    return lanes;
}

static json_t *make_stalls(maker *m, const sl_account_stall *stalls, uint32_t count)
{
    json_t *array = json_array();
    char name[SL_COMMAND_NAME_BYTES];
    for (uint32_t i = 0; i < count; i++) {
        json_t *stall = json_object();
        name_command(m, stalls[i].command, name);
        put(m, stall, "command", json_string(name));
        *name = '\0';
        if (stalls[i].waited_for != SL_NONE)
            name_command(m, stalls[i].waited_for, name);
        put(m, stall, "waited_for", *name ? json_string(name) : json_null());
        put(m, stall, "cause", json_string(sl_lane_name(stalls[i].cause)));
        put_real(m, stall, "seconds", stalls[i].seconds);
        append(m, array, stall);
    }
    return array;
}

static json_t *make_ops(maker *m)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < m->account->op_kind_count; i++) {
        const sl_account_op *from = &m->account->ops[i];
        json_t *op = json_object();
        put(m, op, "op", json_string(sl_op_info_of(from->kind)->name));
        put_count(m, op, "count", from->count);
        put_real(m, op, "seconds", from->seconds);
        put_real(m, op, "flops", from->flops);
        put_real(m, op, "traffic_bytes", from->traffic_bytes);
        put_real(m, op, "roof_seconds", from->roof_seconds);
        append(m, array, op);
    }
    return array;
}

static json_t *make_time(maker *m)
{
    const sl_account *account = m->account;
    json_t *time = json_object(), *resources = json_object();
    put_real(m, time, "step_seconds", account->simulation.step_seconds);
    put(m, time, "lanes", make_lanes(m));
    put(m, time, "stalls", make_stalls(m, account->stalls, account->stall_count));
    put_real(m, time, "other_stall_seconds", account->other_stall_seconds);
    put(m, time, "ops", make_ops(m));
    for (int i = 0; i < SL_RESOURCE_COUNT; i++)
        put_real(m, resources, sl_account_resource_name((sl_account_resource)i),
                 account->resource_seconds[i]);
    put(m, time, "resource_seconds", resources);
    put(m, time, "bound_by", json_string(sl_account_resource_name(account->bound_by)));
    put_real(m, time, "flop_roof", account->flop_roof);
    put_real(m, time, "byte_roof", account->byte_roof);
    put(m, time, "gantt",
        make_gantt(m, account->spans, account->span_count, account->simulation.step_seconds));
    return time;
}

/* ---- all of it ---- */

static json_t *make_sections(maker *m)
{
    json_t *array = json_array();
    const sl_program *program = m->account->request.program;
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        const sl_section section = sl_program_section(program, s);
        json_t *item = json_array();
        append(m, item, make_count(section.first));
        append(m, item, make_count(section.count));
        append(m, item, make_count(section.repeat));
        append(m, array, item);
    }
    return array;
}

static void put_names(maker *m, json_t *object)
{
    json_t *kinds = json_array(), *lanes = json_array(), *tiers = json_array();
    for (int kind = 0; kind < SL_MEMORY_KIND_COUNT; kind++)
        append(m, kinds, json_string(sl_plan_json_kind_names[kind]));
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        append(m, lanes, json_string(sl_lane_name((sl_lane)lane)));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        append(m, tiers, json_string(sl_tier_name((sl_tier)tier)));
    put(m, object, "kinds", kinds);
    put(m, object, "lanes", lanes);
    put(m, object, "tiers", tiers);
}

static sl_status finish(const maker *m, json_t *object, json_t **out_object)
{
    if (m->has_failed || !object) {
        json_decref(object);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a report");
    }
    *out_object = object;
    return SL_OK;
}

sl_status sl_account_json_format(const sl_account *account, json_t **out_object)
{
    maker m = {.account = account};
    json_t *object = json_object(), *memory = json_object(), *phases = json_array();
    put_names(&m, object);
    put_count(&m, object, "op_count", account->op_count);
    put_count(&m, object, "chunk_count", account->request.layout->chunk_count);
    put_count(&m, object, "tokens", account->request.tokens);
    put_real(&m, object, "model_flops", account->request.model_flops);
    put(&m, object, "sections", make_sections(&m));
    for (uint32_t c = 0; c < account->column_count; c++)
        append(&m, phases, json_integer(account->phases[c]));
    put(&m, object, "phases", phases);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        put(&m, memory, sl_tier_name((sl_tier)tier), make_tier(&m, &account->tier[tier]));
    put(&m, object, "memory", memory);
    put(&m, object, "residency", make_residency(&m));
    put(&m, object, "time", make_time(&m));
    return finish(&m, object, out_object);
}

static json_t *make_measured_lanes(maker *m, const sl_report_measured *measured)
{
    json_t *lanes = json_object();
    for (int i = 0; i < SL_LANE_COUNT; i++) {
        json_t *lane = json_object();
        put_real(m, lane, "busy_seconds", measured->busy_seconds[i]);
        put(m, lane, "wait_seconds", make_waits(m, measured->wait_seconds[i]));
        put(m, lanes, sl_lane_name((sl_lane)i), lane);
    }
    return lanes;
}

static json_t *make_lane_map(maker *m, const double seconds[SL_LANE_COUNT])
{
    json_t *map = json_object();
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        put_real(m, map, sl_lane_name((sl_lane)lane), seconds[lane]);
    return map;
}

static json_t *make_rank(maker *m, const sl_report_rank *of)
{
    json_t *rank = json_object(), *sent = json_object(), *peaks = json_object();
    put_count(m, rank, "stage", of->place.stage);
    put_count(m, rank, "data_rank", of->place.data);
    put_count(m, rank, "tensor_rank", of->place.tensor);
    put_real(m, rank, "step_seconds", of->step_seconds);
    put(m, rank, "busy_seconds", make_lane_map(m, of->busy_seconds));
    put(m, rank, "wait_seconds", make_lane_map(m, of->wait_seconds));
    for (int group = 0; group < SL_COMM_GROUP_COUNT; group++)
        put_count(m, sent, sl_comm_group_name((sl_comm_group)group), of->sent_bytes[group]);
    put(m, rank, "sent_bytes", sent);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        json_t *peak = json_array();
        append(m, peak, make_count(of->planned_bytes[tier]));
        append(m, peak, make_count(of->measured_bytes[tier]));
        put(m, peaks, sl_tier_name((sl_tier)tier), peak);
    }
    put(m, rank, "peak_bytes", peaks); /* planned, measured */
    return rank;
}

static json_t *make_ranks(maker *m, const sl_report_measured *measured)
{
    json_t *ranks = json_object(), *each = json_array();
    put_count(m, ranks, "slowest", measured->slowest_rank);
    for (uint32_t rank = 0; rank < measured->rank_count; rank++)
        append(m, each, make_rank(m, &measured->ranks[rank]));
    put(m, ranks, "each", each);
    return ranks;
}

sl_status sl_account_json_format_measured(const sl_account *account,
                                          const sl_report_measured *measured, json_t **out_object)
{
    maker m = {.account = account};
    json_t *object = json_object(), *ops = json_object(), *peaks = json_object();
    put_count(&m, object, "steps", measured->step_count);
    put_real(&m, object, "step_seconds", measured->step_seconds);
    put(&m, object, "lanes", make_measured_lanes(&m, measured));
    for (int kind = 0; kind < SL_OP_COUNT; kind++)
        if (measured->op_seconds[kind] > 0)
            put_real(&m, ops, sl_op_info_of((sl_op_kind)kind)->name, measured->op_seconds[kind]);
    put(&m, object, "op_seconds", ops);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        put_count(&m, peaks, sl_tier_name((sl_tier)tier), measured->peak_bytes[tier]);
    put(&m, object, "peak_bytes", peaks);
    put_count(&m, object, "resident_bytes", measured->resident_bytes);
    if (measured->spans)
        put(&m, object, "gantt",
            make_gantt(&m, measured->spans, measured->span_count, measured->step_seconds));
    if (measured->stalls)
        put(&m, object, "stalls", make_stalls(&m, measured->stalls, measured->stall_count));
    if (measured->ranks)
        put(&m, object, "ranks", make_ranks(&m, measured));
    return finish(&m, object, out_object);
}
