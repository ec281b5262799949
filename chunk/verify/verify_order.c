/* Checks that waits order every pair of conflicting accesses to the same bytes.
 *
 * Lanes are in order, and a wait joins the clock of the command that it names: of its latest issue
 * or of the one before, if there was one. A command's clock says, for each lane, how many of its
 * commands have finished when it starts. An earlier access conflicts with a later one unless both
 * read; then the later command's clock must count the earlier command.
 *
 * Of each cell only the last writer and the readers since then matter: who is ordered after them is
 * ordered after all before. A path between two iterations runs through those two only, and waits on
 * issues that were not there mean nothing in the first; so two iterations show what any two in a
 * row would.
 *
 * Why the repetitions that are replayed stand for all. A *path* leads from a command back to those
 * that it waits for, and to the one before on its lane. Say that (c, r) is the issue of c in
 * repetition r of R, and that R' are replayed.
 *
 * - Each step back in the replay from (c, q) can be taken in the plan from (c, r), r >= q: within
 *   the repetitions of one section it goes back by as many, for the text is the same; into another
 *   section it arrives at the last repetition or the one before in both. Where the replay steps out
 *   of the section for want of earlier repetitions, the plan steps to one of them, which is later
 *   on the same lane. So a path of the replay, from (c, q) into repetition R' - 1 - j of another
 *   section, is one of the plan from (c, r) into R - 1 - j, for any r >= q; and within a section a
 *   path over d repetitions stays one.
 * - Two neighbours in the accesses to a byte are at most two repetitions of a section apart,
 * because each comes again two repetitions later at the latest. Repetitions 0 to 3 have all such
 * pairs, at both parities. Across sections a byte's neighbours are in the first two repetitions of
 * the one and the last two of the other. At a family's home they are at repetition r of both: there
 *   are r repetitions to step back over in the one and R - 1 - r in the other, and one of the
 *   replay's instances, min(r, R' - 1), has no more of either. And where the bytes of a whole
 * family are given on, its last instance is waited for.
 *
 * So what is accepted is ordered. (What is ordered by a path over more repetitions than are
 * replayed, between two sections, may be rejected: such an order is luck.)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify.h"

sl_status sl_verify_order_open(sl_verify *verify)
{
    size_t count = (size_t)verify->plan->body_count + 1;
    verify->issue_count = calloc(count, sizeof *verify->issue_count);
    verify->finish = calloc(2 * count * SL_LANE_COUNT, sizeof *verify->finish);
    if (!verify->issue_count || !verify->finish)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to verify a plan of %u commands",
                verify->plan->body_count);
    sl_verify_cells_disown(verify);
    return SL_OK;
}

void sl_verify_order_close(sl_verify *verify)
{
    free(verify->issue_count);
    free(verify->finish);
}

/* The clock after issue `issue` of a command, of which the last two are kept. */
static uint32_t *finish_clock(const sl_verify *verify, uint32_t command, uint32_t issue)
{
    uint64_t row = (uint64_t)(issue % 2) * verify->plan->body_count + command;
    return verify->finish + row * SL_LANE_COUNT;
}

static void join_clock(sl_verify *verify, const uint32_t *other)
{
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        if (verify->clock[lane] < other[lane])
            verify->clock[lane] = other[lane];
}

static void start_clock(sl_verify *verify, const sl_command *command)
{
    memset(verify->clock, 0, sizeof verify->clock);
    if (verify->last[command->lane])
        join_clock(verify, verify->last[command->lane]);
    for (uint32_t i = 0; i < command->wait_count; i++) {
        const sl_wait *wait = &verify->plan->waits[command->first_wait + i];
        uint32_t issue_count = verify->issue_count[wait->command];
        if (issue_count > wait->age)
            join_clock(verify, finish_clock(verify, wait->command, issue_count - 1 - wait->age));
    }
}

/* ---- messages ---- */

/* Where a command was issued. */
typedef struct moment {
    uint32_t iteration, section, repetition, command;
} moment;

/* The moment of the command that was the `position`-th of its lane, from 1. Steps through the whole
 * replay. */
static moment find_moment(const sl_verify *verify, sl_lane lane, uint32_t position)
{
    moment it = {0};
    for (it.iteration = 0; it.iteration <= verify->iteration; it.iteration++)
        for (it.section = 0; it.section < sl_program_section_count(verify->program); it.section++) {
            sl_section section = sl_verify_section(verify, it.section);
            uint32_t replays = sl_verify_replays(section.repeat);
            for (it.repetition = 0; it.repetition < replays; it.repetition++)
                for (it.command = section.first; it.command < section.first + section.count;
                     it.command++)
                    if (verify->plan->body[it.command].lane == lane && --position == 0)
                        return it;
        }
    return it;
}

static void name_moment(const sl_verify *verify, const moment *it,
                        char out_name[SL_VERIFY_NAME_BYTES])
{
    bool is_earlier = it->iteration < verify->iteration;
    const char *when = is_earlier ? " of the previous iteration" : "";
    if (sl_verify_section(verify, it->section).repeat > 1)
        snprintf(out_name, SL_VERIFY_NAME_BYTES, " in repetition %u%s", it->repetition, when);
    else
        snprintf(out_name, SL_VERIFY_NAME_BYTES, "%s", when);
}

static sl_status reject_race(const sl_verify *verify, const sl_verify_access *access,
                             const sl_verify_walk *walk, const sl_verify_cell *cell,
                             const moment *other, const char *deed)
{
    char object[SL_VERIFY_NAME_BYTES], command[SL_VERIFY_NAME_BYTES], when[SL_VERIFY_NAME_BYTES];
    uint64_t first, end;
    sl_verify_cell_bytes(walk->tier, cell, &first, &end);
    sl_verify_name_object(verify, sl_verify_instance(verify, access->object), object);
    sl_verify_name_command(verify, &verify->plan->body[other->command], command);
    name_moment(verify, other, when);
    return sl_verify_reject(
        verify,
        "%s %s at %s bytes [%llu, %llu) without waiting for command %u (%s)%s, which %s "
        "them",
        access->writes ? "writes" : "reads", object, sl_tier_name(access->place.tier),
        (unsigned long long)first, (unsigned long long)end, other->command, command, when, deed);
}

/* ---- accesses ---- */

/* Has the command at `position` of `lane` finished? Those of the own lane have, or are this one. */
static bool is_finished(const sl_verify *verify, sl_lane own, sl_lane lane, uint32_t position)
{
    return lane == own || position <= verify->clock[lane];
}

static sl_status check_cell(const sl_verify *verify, sl_lane own, const sl_verify_access *access,
                            const sl_verify_walk *walk, const sl_verify_cell *cell)
{
    if (!is_finished(verify, own, cell->writer_lane, cell->writer)) {
        moment other = find_moment(verify, cell->writer_lane, cell->writer);
        return reject_race(verify, access, walk, cell, &other, "writes");
    }
    for (int lane = 0; access->writes && lane < SL_LANE_COUNT; lane++)
        if (!is_finished(verify, own, (sl_lane)lane, cell->reader[lane])) {
            moment other = find_moment(verify, (sl_lane)lane, cell->reader[lane]);
            return reject_race(verify, access, walk, cell, &other, "reads");
        }
    return SL_OK;
}

/* A write must come after whoever used the bytes, also as part of something else. */
static sl_status check_access(sl_verify *verify, sl_lane own, const sl_verify_access *access)
{
    sl_verify_walk walk = sl_verify_walk_start(verify, &access->place);
    while (sl_verify_walk_next(&walk)) {
        const sl_verify_cell *cell = access->writes ? walk.taken : walk.cell;
        const sl_verify_cell *end = access->writes ? walk.taken_end : walk.end;
        for (; cell < end; cell++)
            SL_TRY(check_cell(verify, own, access, &walk, cell));
    }
    return SL_OK;
}

static void note_access(sl_verify *verify, sl_lane lane, const sl_verify_access *access)
{
    uint32_t position = verify->position[lane];
    sl_verify_walk walk = sl_verify_walk_start(verify, &access->place);
    while (sl_verify_walk_next(&walk)) {
        for (sl_verify_cell *cell = walk.cell; cell < walk.end; cell++) {
            if (!access->writes) {
                cell->reader[lane] = position;
                continue;
            }
            cell->writer_lane = lane;
            cell->writer = position;
            memset(cell->reader, 0, sizeof cell->reader);
        }
        if (access->writes)
            sl_verify_walk_own(&walk);
    }
}

sl_status sl_verify_order_step(sl_verify *verify, const sl_command *command)
{
    sl_verify_access accesses[SL_VERIFY_ACCESS_MAX];
    uint32_t count = sl_verify_list_accesses(verify, command, accesses);
    uint32_t index = verify->command_index;
    sl_lane lane = command->lane;
    start_clock(verify, command);
    verify->position[lane]++;
    for (uint32_t i = 0; i < count; i++)
        SL_TRY(check_access(verify, lane, &accesses[i]));
    for (uint32_t i = 0; i < count; i++)
        note_access(verify, lane, &accesses[i]);
    uint32_t *finish = finish_clock(verify, index, verify->issue_count[index]++);
    memcpy(finish, verify->clock, sizeof verify->clock);
    finish[lane] = verify->position[lane];
    verify->last[lane] = finish;
    return SL_OK;
}
