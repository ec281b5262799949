/* The arenas are cut at every address that any command names, so each access covers a run of whole
 * cells. A cell remembers its last writer and, by lane, its last reader. The body is walked twice:
 * the first walk leaves the marks of a previous iteration, the second one finds the waits.
 *
 * In the second walk a lane knows of the previous iteration only what its own waits of this
 * iteration say, so the waits of one iteration never lean on those of another.
 */
#include "hazards.h"

#include <stdlib.h>

#include "base/status.h"

typedef int64_t moment; /* iteration * body_count + command; -1: never */

typedef struct access {
    uint32_t first_cell, last_cell; /* half open */
    bool writes;
} access;

typedef struct cell {
    moment writer;
    sl_lane writer_lane;
    moment reader[SL_LANE_COUNT];
} cell;

typedef struct resolver {
    const sl_program *program;
    sl_plan *plan;
    uint64_t *edges[SL_TIER_COUNT]; /* sorted addresses */
    uint32_t edge_count[SL_TIER_COUNT];
    uint32_t first_cell[SL_TIER_COUNT];
    cell *cells;
    moment (*known)[SL_LANE_COUNT]; /* [body_count]: what is over when a command ends */
    moment lane_knows[SL_LANE_COUNT][SL_LANE_COUNT];
    uint32_t wait_capacity;
} resolver;

/* ---- accesses of a command ---- */

typedef struct span {
    sl_place place;
    bool writes;
} span;

enum { SPAN_MAX = SL_OPERAND_MAX + 2 };

static uint32_t list_spans(const resolver *r, const sl_command *command, span *spans)
{
    if (command->kind == SL_COMMAND_COPY) {
        spans[0] = (span){command->from, false};
        spans[1] = (span){command->to, true};
        return 2;
    }
    const sl_op *op = &r->program->ops[command->tick];
    uint32_t span_count = 0;
    for (uint32_t p = 0; p < command->place_count; p++) {
        sl_place place = r->plan->places[command->first_place + p];
        bool is_workspace = p + 1 == command->place_count;
        if (place.bytes)
            spans[span_count++] = (span){place, is_workspace || sl_op_writes(op, p)};
    }
    return span_count;
}

/* ---- cells ---- */

static int compare_edges(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void unique_edges(resolver *r, sl_tier tier)
{
    uint64_t *edges = r->edges[tier];
    qsort(edges, r->edge_count[tier], sizeof *edges, compare_edges);
    uint32_t kept = 0;
    for (uint32_t e = 0; e < r->edge_count[tier]; e++)
        if (kept == 0 || edges[kept - 1] != edges[e])
            edges[kept++] = edges[e];
    r->edge_count[tier] = kept;
}

static sl_status cut_cells(resolver *r)
{
    const sl_plan *plan = r->plan;
    uint64_t edge_capacity = 2 * (uint64_t)SPAN_MAX * plan->body_count + 1;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        r->edges[tier] = calloc(edge_capacity, sizeof *r->edges[tier]);
        if (!r->edges[tier])
            SL_FAIL(SL_ERROR_SYSTEM, "no memory to order %u commands", plan->body_count);
    }
    for (uint32_t c = 0; c < plan->body_count; c++) {
        span spans[SPAN_MAX];
        uint32_t span_count = list_spans(r, &plan->body[c], spans);
        for (uint32_t s = 0; s < span_count; s++) {
            sl_place place = spans[s].place;
            r->edges[place.tier][r->edge_count[place.tier]++] = place.offset;
            r->edges[place.tier][r->edge_count[place.tier]++] = place.offset + place.bytes;
        }
    }
    uint64_t cell_count = 0;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        unique_edges(r, (sl_tier)tier);
        r->first_cell[tier] = (uint32_t)cell_count;
        cell_count += r->edge_count[tier];
    }
    r->cells = calloc(cell_count + 1, sizeof *r->cells);
    if (!r->cells)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to order %u commands", plan->body_count);
    for (uint64_t c = 0; c < cell_count; c++) {
        r->cells[c].writer = -1;
        for (int lane = 0; lane < SL_LANE_COUNT; lane++)
            r->cells[c].reader[lane] = -1;
    }
    return SL_OK;
}

static uint32_t find_cell(const resolver *r, sl_tier tier, uint64_t address)
{
    uint32_t low = 0, high = r->edge_count[tier];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (r->edges[tier][middle] < address)
            low = middle + 1;
        else
            high = middle;
    }
    return r->first_cell[tier] + low;
}

static access access_of(const resolver *r, const span *spanned)
{
    sl_place place = spanned->place;
    return (access){.first_cell = find_cell(r, place.tier, place.offset),
                    .last_cell = find_cell(r, place.tier, place.offset + place.bytes),
                    .writes = spanned->writes};
}

/* ---- one walk ---- */

static void raise_moment(moment *value, moment candidate)
{
    if (candidate > *value)
        *value = candidate;
}

static void find_conflicts(const resolver *r, const access *made, moment needs[SL_LANE_COUNT])
{
    for (uint32_t c = made->first_cell; c < made->last_cell; c++) {
        const cell *here = &r->cells[c];
        if (here->writer >= 0)
            raise_moment(&needs[here->writer_lane], here->writer);
        for (int lane = 0; made->writes && lane < SL_LANE_COUNT; lane++)
            raise_moment(&needs[lane], here->reader[lane]);
    }
}

static void leave_marks(resolver *r, const access *made, moment now, sl_lane lane)
{
    for (uint32_t c = made->first_cell; c < made->last_cell; c++) {
        cell *here = &r->cells[c];
        if (!made->writes) {
            here->reader[lane] = now;
            continue;
        }
        here->writer = now;
        here->writer_lane = lane;
        for (int l = 0; l < SL_LANE_COUNT; l++)
            here->reader[l] = -1;
    }
}

static sl_status append_wait(resolver *r, sl_wait wait)
{
    sl_plan *plan = r->plan;
    if (plan->wait_count == r->wait_capacity) {
        uint32_t capacity = r->wait_capacity ? 2 * r->wait_capacity : 1024;
        sl_wait *waits = realloc(plan->waits, (uint64_t)capacity * sizeof *waits);
        if (!waits)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u waits", capacity);
        plan->waits = waits;
        r->wait_capacity = capacity;
    }
    plan->waits[plan->wait_count++] = wait;
    return SL_OK;
}

/* What is known to be over once the command at `when` has been waited for. */
static moment implied_by(const resolver *r, moment when, sl_lane when_lane, sl_lane lane)
{
    moment body_count = r->plan->body_count;
    if (when < body_count)
        return lane == when_lane ? when : -1;
    return r->known[when - body_count][lane];
}

/* Whether waiting for another needed command already implies the one of `lane`. */
static bool is_implied(const resolver *r, const moment needs[SL_LANE_COUNT], sl_lane own,
                       sl_lane lane)
{
    for (int other = 0; other < SL_LANE_COUNT; other++) {
        if (other == (int)lane || other == (int)own || needs[other] < 0)
            continue;
        if (implied_by(r, needs[other], (sl_lane)other, lane) >= needs[lane])
            return true;
    }
    return false;
}

static sl_status emit_waits(resolver *r, uint32_t c, moment needs[SL_LANE_COUNT])
{
    sl_command *command = &r->plan->body[c];
    sl_lane own = command->lane;
    moment body_count = r->plan->body_count;
    moment *knows = r->lane_knows[own];
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        if (lane == (int)own || needs[lane] <= knows[lane])
            needs[lane] = -1;
    command->first_wait = r->plan->wait_count;
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        if (needs[lane] < 0 || is_implied(r, needs, own, (sl_lane)lane))
            continue;
        SL_TRY(append_wait(r, (sl_wait){.command = (uint32_t)(needs[lane] % body_count)}));
        command->wait_count++;
    }
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        for (int other = 0; needs[lane] >= 0 && other < SL_LANE_COUNT; other++)
            raise_moment(&knows[other], implied_by(r, needs[lane], (sl_lane)lane, (sl_lane)other));
    for (int other = 0; other < SL_LANE_COUNT; other++)
        r->known[c][other] = knows[other];
    r->known[c][own] = body_count + c;
    return SL_OK;
}

static sl_status walk_iteration(resolver *r, uint32_t iteration)
{
    for (uint32_t c = 0; c < r->plan->body_count; c++) {
        sl_command *command = &r->plan->body[c];
        moment now = (moment)iteration * r->plan->body_count + c;
        span spans[SPAN_MAX];
        access accesses[SPAN_MAX];
        moment needs[SL_LANE_COUNT];
        for (int lane = 0; lane < SL_LANE_COUNT; lane++)
            needs[lane] = -1;
        uint32_t span_count = list_spans(r, command, spans);
        for (uint32_t s = 0; s < span_count; s++) {
            accesses[s] = access_of(r, &spans[s]);
            find_conflicts(r, &accesses[s], needs);
        }
        if (iteration == 1)
            SL_TRY(emit_waits(r, c, needs));
        for (uint32_t s = 0; s < span_count; s++) /* reads first: a write forgets them */
            if (!accesses[s].writes)
                leave_marks(r, &accesses[s], now, command->lane);
        for (uint32_t s = 0; s < span_count; s++)
            if (accesses[s].writes)
                leave_marks(r, &accesses[s], now, command->lane);
    }
    return SL_OK;
}

sl_status sl_hazards_resolve(const sl_program *program, sl_plan *plan)
{
    sl_status status;
    resolver r = {.program = program, .plan = plan};
    for (int own = 0; own < SL_LANE_COUNT; own++)
        for (int lane = 0; lane < SL_LANE_COUNT; lane++)
            r.lane_knows[own][lane] = -1;
    r.known = calloc((uint64_t)plan->body_count + 1, sizeof *r.known);
    if (!r.known) {
        status =
            sl_status_fail(SL_ERROR_SYSTEM, "no memory to order %u commands", plan->body_count);
        goto free_resolver;
    }
    SL_TRY_GOTO(status, cut_cells(&r), free_resolver);
    SL_TRY_GOTO(status, walk_iteration(&r, 0), free_resolver);
    SL_TRY_GOTO(status, walk_iteration(&r, 1), free_resolver);
free_resolver:
    free(r.known);
    free(r.cells);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        free(r.edges[tier]);
    return status;
}
