/* The edges are the start and end addresses of all places that commands name. A cell is the range
 * between two neighbouring edges, so each access covers a run of whole cells. A cell remembers its
 * last writer and, for each lane, its last reader. The body is issued twice here, and nothing runs:
 * the first iteration leaves its marks in the cells, the second one finds the waits.
 *
 * Of a repeated section at most four repetitions are issued. A repetition can conflict with
 * commands before the loop, with the repetition before it, or (through a ring of two) with the one
 * before that. So from the third on each repetition is like the one two before it: three stand for
 * any larger odd number, four for any larger even number. A command waits for all issues that any
 * of its repetitions needs. This costs little: in all repetitions but the first, an issue that only
 * another repetition needs has finished long before.
 *
 * Places with slots (families and rings) have records of their own beside the cells, one for each
 * slot, because a repetition touches only its own slot. A place without slots that overlaps such a
 * place counts as overlapping all of its slots.
 *
 * Within an iteration a lane remembers what its own waits imply, also those of earlier repetitions:
 * commands that follow a wait in the body follow it in every iteration.
 */
#include "hazards.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/status.h"

typedef int64_t moment; /* index of an issue, counted over both iterations */

enum { NEVER = -1, REPLAYS_MOST = 4 };

typedef struct issue {
    uint32_t command;
    uint32_t number; /* index among the issues of that command */
} issue;

typedef struct cell {
    moment writer;
    sl_lane writer_lane;
    moment reader[SL_LANE_COUNT];
} cell;

/* A wait that at least one repetition of the waiter needs. */
typedef struct need {
    uint32_t waiter;
    sl_wait wait;
} need;

/* A place with slots that some command names, with one record for each slot that is touched. */
typedef struct slotted {
    sl_place place;
    uint64_t farthest_end; /* the highest end of this place and of the places before it */
    cell slot[REPLAYS_MOST];
} slotted;

typedef struct resolver {
    const sl_program *program;
    sl_plan *plan;
    uint64_t *edges[SL_TIER_COUNT]; /* sorted addresses */
    uint32_t edge_count[SL_TIER_COUNT];
    uint32_t first_cell[SL_TIER_COUNT];
    cell *cells;
    slotted *slotted[SL_TIER_COUNT]; /* sorted, without duplicates */
    uint32_t slotted_count[SL_TIER_COUNT];
    issue *issues; /* [moments of both iterations] */
    moment now;
    moment second_iteration; /* first moment of the second iteration */
    uint32_t *issue_count;   /* [body_count] */
    moment *last_issue;      /* [body_count] */
    /* [moments]: of each lane the latest issue known to have finished when this issue ends */
    moment (*known)[SL_LANE_COUNT];
    /* [lane][other lane]: the latest issue of the other lane that the waits so far imply */
    moment lane_knows[SL_LANE_COUNT][SL_LANE_COUNT];
    const sl_section *section; /* the section that is issued now */
    moment section_start;      /* its first issue in this iteration */
    /* [section_count]: each lane's first command behind the section, searched past the end of the
     * body from its start again; SL_NONE: the lane has no command outside the section */
    uint32_t (*outside)[SL_LANE_COUNT];
    need *needs;
    uint64_t need_count;
    uint32_t need_capacity;
} resolver;

/* How many repetitions of a section are issued: these stand for all. */
static uint32_t count_replays(const sl_section *section)
{
    return section->repeat <= REPLAYS_MOST ? section->repeat : REPLAYS_MOST - section->repeat % 2;
}

/* ---- accesses of a command ---- */

typedef struct operand {
    sl_place place;
    bool writes;
} operand;

enum { OPERAND_MAX = SL_OPERAND_MAX + 2 };

static uint32_t list_operands(const resolver *r, const sl_command *command, operand *operands)
{
    if (command->kind == SL_COMMAND_COPY) {
        operands[0] = (operand){command->from, false};
        operands[1] = (operand){command->to, true};
        return 2;
    }
    const sl_op *op = &r->program->ops[command->tick];
    uint32_t operand_count = 0;
    for (uint32_t p = 0; p < command->place_count; p++) {
        sl_place place = r->plan->places[command->first_place + p];
        bool is_workspace = p + 1 == command->place_count;
        if (place.bytes)
            operands[operand_count++] = (operand){place, is_workspace || sl_op_writes(op, p)};
    }
    return operand_count;
}

/* ---- cells ---- */

static int compare_edges(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static void sort_edges(resolver *r, sl_tier tier)
{
    uint64_t *edges = r->edges[tier];
    qsort(edges, r->edge_count[tier], sizeof *edges, compare_edges);
    uint32_t kept = 0;
    for (uint32_t e = 0; e < r->edge_count[tier]; e++)
        if (kept == 0 || edges[kept - 1] != edges[e])
            edges[kept++] = edges[e];
    r->edge_count[tier] = kept;
}

/* Lists the edges of all accesses, and the places with slots. With `edges` and `places` NULL only
 * counts them. */
static void list_edges(const resolver *r, uint64_t *const *edges, slotted *const *places,
                       uint64_t edge_counts[SL_TIER_COUNT], uint32_t place_counts[SL_TIER_COUNT])
{
    for (uint32_t c = 0; c < r->plan->body_count; c++) {
        operand operands[OPERAND_MAX];
        uint32_t operand_count = list_operands(r, &r->plan->body[c], operands);
        for (uint32_t s = 0; s < operand_count; s++) {
            const sl_place *place = &operands[s].place;
            uint64_t *count = &edge_counts[place->tier];
            if (edges) {
                edges[place->tier][*count] = place->offset;
                edges[place->tier][*count + 1] = place->offset + sl_place_extent(place);
            }
            *count += 2;
            if (place->slots <= 1)
                continue;
            if (places)
                places[place->tier][place_counts[place->tier]].place = *place;
            place_counts[place->tier]++;
        }
    }
}

static int compare_slotted(const void *left, const void *right)
{
    const sl_place *a = &((const slotted *)left)->place, *b = &((const slotted *)right)->place;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    if (a->stride != b->stride)
        return a->stride < b->stride ? -1 : 1;
    return (a->slots > b->slots) - (a->slots < b->slots);
}

static void sort_slotted(resolver *r, sl_tier tier)
{
    slotted *all = r->slotted[tier];
    uint32_t kept = 0;
    qsort(all, r->slotted_count[tier], sizeof *all, compare_slotted);
    for (uint32_t i = 0; i < r->slotted_count[tier]; i++)
        if (kept == 0 || compare_slotted(&all[kept - 1], &all[i]) != 0)
            all[kept++] = all[i];
        else if (all[i].place.bytes > all[kept - 1].place.bytes)
            all[kept - 1].place.bytes = all[i].place.bytes;
    r->slotted_count[tier] = kept;
    for (uint32_t i = 0; i < kept; i++) {
        uint64_t end = all[i].place.offset + sl_place_extent(&all[i].place);
        uint64_t before = i > 0 ? all[i - 1].farthest_end : 0;
        all[i].farthest_end = end > before ? end : before;
        memset(all[i].slot, 0xFF, sizeof all[i].slot); /* NEVER */
    }
}

static sl_status collect_edges(resolver *r)
{
    const sl_plan *plan = r->plan;
    uint64_t edge_counts[SL_TIER_COUNT] = {0}, filled[SL_TIER_COUNT] = {0};
    uint32_t place_counts[SL_TIER_COUNT] = {0};
    list_edges(r, NULL, NULL, edge_counts, place_counts);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        r->edges[tier] = calloc(edge_counts[tier] + 1, sizeof *r->edges[tier]);
        r->slotted[tier] = calloc((uint64_t)place_counts[tier] + 1, sizeof *r->slotted[tier]);
        if (!r->edges[tier] || !r->slotted[tier] || edge_counts[tier] > UINT32_MAX)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory to order %u commands", plan->body_count);
    }
    list_edges(r, r->edges, r->slotted, filled, r->slotted_count);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        r->edge_count[tier] = (uint32_t)filled[tier];
    return SL_OK;
}

static sl_status open_cells(resolver *r)
{
    SL_TRY(collect_edges(r));
    uint64_t cell_count = 0;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        sort_edges(r, (sl_tier)tier);
        sort_slotted(r, (sl_tier)tier);
        r->first_cell[tier] = (uint32_t)cell_count;
        cell_count += r->edge_count[tier];
    }
    r->cells = malloc((cell_count + 1) * sizeof *r->cells);
    if (!r->cells || cell_count > UINT32_MAX)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to order %u commands", r->plan->body_count);
    memset(r->cells, 0xFF, (cell_count + 1) * sizeof *r->cells); /* NEVER */
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

typedef struct access {
    sl_tier tier;
    uint64_t first, end;            /* addresses, half open: the extent of all slots */
    uint32_t first_cell, last_cell; /* the cells of the extent, half open */
    slotted *own;                   /* the record of the place; NULL: it has no slots */
    uint32_t slot;
    bool writes;
} access;

static access access_of(const resolver *r, const operand *named, uint32_t repetition)
{
    const sl_place *place = &named->place;
    const slotted key = {.place = *place};
    access made = {.tier = place->tier,
                   .first = place->offset,
                   .end = place->offset + sl_place_extent(place),
                   .writes = named->writes};
    made.first_cell = find_cell(r, place->tier, made.first);
    made.last_cell = find_cell(r, place->tier, made.end);
    if (place->slots > 1) {
        made.own = bsearch(&key, r->slotted[place->tier], r->slotted_count[place->tier], sizeof key,
                           compare_slotted);
        made.slot = repetition % place->slots;
    }
    return made;
}

/* ---- conflicts of one issue ---- */

static void keep_later(moment *value, moment candidate)
{
    if (candidate > *value)
        *value = candidate;
}

static void collect_from_cell(const cell *here, bool writes, moment needs[SL_LANE_COUNT])
{
    if (here->writer >= 0)
        keep_later(&needs[here->writer_lane], here->writer);
    for (int lane = 0; writes && lane < SL_LANE_COUNT; lane++)
        keep_later(&needs[lane], here->reader[lane]);
}

/* How many places with slots start before `end`. */
static uint32_t count_before(const resolver *r, sl_tier tier, uint64_t end)
{
    uint32_t low = 0, high = r->slotted_count[tier];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (r->slotted[tier][middle].place.offset < end)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void collect_from_slots(const resolver *r, const access *made, moment needs[SL_LANE_COUNT])
{
    for (uint32_t i = count_before(r, made->tier, made->end); i > 0; i--) {
        const slotted *other = &r->slotted[made->tier][i - 1];
        if (other->farthest_end <= made->first)
            break;
        if (other->place.offset + sl_place_extent(&other->place) <= made->first)
            continue;
        for (uint32_t slot = 0; slot < REPLAYS_MOST; slot++)
            if (other != made->own || slot == made->slot)
                collect_from_cell(&other->slot[slot], made->writes, needs);
    }
}

static void find_conflicts(const resolver *r, const access *made, moment needs[SL_LANE_COUNT])
{
    for (uint32_t c = made->first_cell; c < made->last_cell; c++)
        collect_from_cell(&r->cells[c], made->writes, needs);
    collect_from_slots(r, made, needs);
}

static void mark_cell(const resolver *r, cell *here, bool writes, sl_lane lane)
{
    if (!writes) {
        here->reader[lane] = r->now;
        return;
    }
    here->writer = r->now;
    here->writer_lane = lane;
    for (int l = 0; l < SL_LANE_COUNT; l++)
        here->reader[l] = NEVER;
}

static void mark_access(resolver *r, const access *made, sl_lane lane)
{
    if (made->own) {
        mark_cell(r, &made->own->slot[made->slot], made->writes, lane);
        return;
    }
    for (uint32_t c = made->first_cell; c < made->last_cell; c++)
        mark_cell(r, &r->cells[c], made->writes, lane);
}

/* ---- waits ---- */

static sl_status append_need(resolver *r, uint32_t waiter, sl_wait wait)
{
    SL_TRY(SL_ARRAY_GROW(r->needs, r->need_count, r->need_capacity, "waits"));
    r->needs[r->need_count++] = (need){waiter, wait};
    return SL_OK;
}

/* The latest issue of `lane` that has finished when the issue `when` of `when_lane` has. */
static moment implied_by(const resolver *r, moment when, sl_lane when_lane, sl_lane lane)
{
    if (when < r->second_iteration)
        return lane == when_lane ? when : NEVER;
    return r->known[when][lane];
}

/* Whether a wait for another lane's needed issue implies the wait for that of `lane`. */
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

static bool is_in_section(const sl_section *section, uint32_t command)
{
    return command >= section->first && command - section->first < section->count;
}

/* A wait can name only the latest two issues of a command. So an issue of this repeated section
 * from the iteration before cannot be named: the latest issues of its command belong to this
 * iteration. The lane's next command behind the section is named instead. */
static moment name_issue(const resolver *r, sl_lane lane, moment needed)
{
    if (needed < 0 || needed >= r->section_start || r->section->repeat == 1)
        return needed;
    const bool is_inside = is_in_section(r->section, r->issues[needed].command);
    const uint32_t outside = r->outside[r->section - r->plan->sections][lane];
    return is_inside && outside != SL_NONE && r->last_issue[outside] > needed
               ? r->last_issue[outside]
               : needed;
}

/* For an issue older than the latest two of its command, the wait names the second latest, which
 * finishes later. */
static sl_wait wait_for(const resolver *r, moment needed)
{
    const issue *target = &r->issues[needed];
    bool is_latest = target->number + 1 == r->issue_count[target->command];
    assert(needed < r->now);
    return (sl_wait){.command = target->command, .age = is_latest ? 0 : 1};
}

static sl_status add_waits(resolver *r, uint32_t c, moment needs[SL_LANE_COUNT])
{
    const sl_lane own = r->plan->body[c].lane;
    moment *knows = r->lane_knows[own];
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        if (lane == (int)own || needs[lane] <= knows[lane])
            needs[lane] = NEVER;
        needs[lane] = name_issue(r, (sl_lane)lane, needs[lane]);
        if (needs[lane] <= knows[lane])
            needs[lane] = NEVER;
    }
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        if (needs[lane] >= 0 && !is_implied(r, needs, own, (sl_lane)lane))
            SL_TRY(append_need(r, c, wait_for(r, needs[lane])));
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        for (int other = 0; needs[lane] >= 0 && other < SL_LANE_COUNT; other++)
            keep_later(&knows[other], implied_by(r, needs[lane], (sl_lane)lane, (sl_lane)other));
    memcpy(r->known[r->now], knows, sizeof r->known[r->now]);
    r->known[r->now][own] = r->now;
    return SL_OK;
}

/* ---- issuing ---- */

static sl_status issue_command(resolver *r, uint32_t c, uint32_t repetition)
{
    const sl_command *command = &r->plan->body[c];
    operand operands[OPERAND_MAX];
    access accesses[OPERAND_MAX];
    moment needs[SL_LANE_COUNT];
    memset(needs, 0xFF, sizeof needs); /* NEVER */
    uint32_t operand_count = list_operands(r, command, operands);
    for (uint32_t s = 0; s < operand_count; s++) {
        accesses[s] = access_of(r, &operands[s], repetition);
        find_conflicts(r, &accesses[s], needs);
    }
    if (r->now >= r->second_iteration)
        SL_TRY(add_waits(r, c, needs));
    for (uint32_t s = 0; s < operand_count; s++) /* reads first: marking a write clears them */
        if (!accesses[s].writes)
            mark_access(r, &accesses[s], command->lane);
    for (uint32_t s = 0; s < operand_count; s++)
        if (accesses[s].writes)
            mark_access(r, &accesses[s], command->lane);
    r->issues[r->now] = (issue){c, r->issue_count[c]++};
    r->last_issue[c] = r->now++;
    return SL_OK;
}

/* Walks backwards over two iterations of the body, with each lane's next command at hand. So at the
 * end of each section the next command of each lane is known, even past the end of the body. */
static void find_outside(resolver *r)
{
    const sl_plan *plan = r->plan;
    uint32_t next[SL_LANE_COUNT], s = plan->section_count;
    memset(next, 0xFF, sizeof next); /* SL_NONE */
    for (uint64_t n = 2ull * plan->body_count; n-- > 0;) {
        const uint32_t c = (uint32_t)(n % plan->body_count);
        next[plan->body[c].lane] = c;
        for (; s > 0 && plan->sections[s - 1].first + plan->sections[s - 1].count == n; s--)
            for (int lane = 0; lane < SL_LANE_COUNT; lane++)
                r->outside[s - 1][lane] =
                    next[lane] != SL_NONE && is_in_section(&plan->sections[s - 1], next[lane])
                        ? SL_NONE
                        : next[lane];
    }
}

static sl_status issue_section(resolver *r, const sl_section *section)
{
    r->section = section;
    r->section_start = r->now;
    for (uint32_t repetition = 0; repetition < count_replays(section); repetition++)
        for (uint32_t c = section->first; c < section->first + section->count; c++)
            SL_TRY(issue_command(r, c, repetition));
    return SL_OK;
}

static sl_status issue_iterations(resolver *r)
{
    find_outside(r);
    for (int iteration = 0; iteration < 2; iteration++) {
        memset(r->lane_knows, 0xFF, sizeof r->lane_knows); /* NEVER */
        for (uint32_t s = 0; s < r->plan->section_count; s++)
            SL_TRY(issue_section(r, &r->plan->sections[s]));
    }
    return SL_OK;
}

/* ---- the list of waits ---- */

static int compare_needs(const void *left, const void *right)
{
    const need *a = left, *b = right;
    if (a->waiter != b->waiter)
        return a->waiter < b->waiter ? -1 : 1;
    if (a->wait.command != b->wait.command)
        return a->wait.command < b->wait.command ? -1 : 1;
    return (a->wait.age > b->wait.age) - (a->wait.age < b->wait.age);
}

/* If a command has two waits for the same command, only the wait for the later issue is kept. */
static sl_status write_waits(resolver *r)
{
    sl_plan *plan = r->plan;
    plan->waits = calloc(r->need_count + 1, sizeof *plan->waits);
    if (!plan->waits)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %llu waits", (unsigned long long)r->need_count);
    if (r->need_count)
        qsort(r->needs, r->need_count, sizeof *r->needs, compare_needs);
    uint64_t n = 0;
    for (uint32_t c = 0; c < plan->body_count; c++) {
        plan->body[c].first_wait = plan->wait_count;
        for (; n < r->need_count && r->needs[n].waiter == c; n++) {
            bool is_other = plan->body[c].wait_count == 0 ||
                            plan->waits[plan->wait_count - 1].command != r->needs[n].wait.command;
            if (!is_other)
                continue;
            plan->waits[plan->wait_count++] = r->needs[n].wait;
            plan->body[c].wait_count++;
        }
    }
    return SL_OK;
}

/* ---- all waits ---- */

static sl_status open_resolver(resolver *r)
{
    const sl_plan *plan = r->plan;
    uint64_t moments = 0;
    for (uint32_t s = 0; s < plan->section_count; s++)
        moments += (uint64_t)plan->sections[s].count * count_replays(&plan->sections[s]);
    r->second_iteration = (moment)moments;
    r->issues = calloc(2 * moments + 1, sizeof *r->issues);
    r->known = calloc(2 * moments + 1, sizeof *r->known);
    r->issue_count = calloc((uint64_t)plan->body_count + 1, sizeof *r->issue_count);
    r->last_issue = calloc((uint64_t)plan->body_count + 1, sizeof *r->last_issue);
    r->outside = calloc((uint64_t)plan->section_count + 1, sizeof *r->outside);
    if (!r->issues || !r->known || !r->issue_count || !r->last_issue || !r->outside)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to order %u commands", plan->body_count);
    return open_cells(r);
}

static void close_resolver(resolver *r)
{
    free(r->needs);
    free(r->known);
    free(r->issues);
    free(r->issue_count);
    free(r->last_issue);
    free(r->outside);
    free(r->cells);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        free(r->slotted[tier]);
        free(r->edges[tier]);
    }
}

sl_status sl_hazards_resolve(const sl_program *program, sl_plan *plan)
{
    resolver r = {.program = program, .plan = plan};
    sl_status status = open_resolver(&r);
    if (status == SL_OK)
        status = issue_iterations(&r);
    if (status == SL_OK)
        status = write_waits(&r);
    close_resolver(&r);
    return status;
}
