/* Checks that waits order every pair of conflicting accesses to the same bytes.
 *
 * Lanes are in order, and a wait joins the clock of the command it names. A command's clock says,
 * for each lane, how many of its commands have finished when it starts. An earlier access conflicts
 * with a later one unless both read; then the later command's clock must count the earlier command.
 *
 * Of each cell only the last writer and the readers since then matter: who is ordered after them is
 * ordered after all before. A path between two iterations runs through those two only, and delta-1
 * waits mean nothing in the first; so two iterations show what any two in a row would.
 */
#include <stdlib.h>
#include <string.h>

#include "verify.h"

sl_status sl_verify_order_open(sl_verify *verify)
{
    uint32_t count = verify->plan->body_count;
    verify->position = calloc((size_t)count + 1, sizeof *verify->position);
    verify->finish = calloc(2 * ((size_t)count + 1) * SL_LANE_COUNT, sizeof *verify->finish);
    if (!verify->position || !verify->finish)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to verify a plan of %u commands", count);
    for (uint32_t i = 0; i < count; i++)
        verify->position[i] = ++verify->lane_total[verify->plan->body[i].lane];
    return SL_OK;
}

void sl_verify_order_close(sl_verify *verify)
{
    free(verify->position);
    free(verify->finish);
}

/* The clock after the command `index` of an iteration. */
static uint32_t *finish_clock(sl_verify *verify, uint32_t iteration, uint32_t index)
{
    uint64_t row = (uint64_t)(iteration % 2) * verify->plan->body_count + index;
    return verify->finish + row * SL_LANE_COUNT;
}

static void join_clock(sl_verify *verify, uint32_t iteration, uint32_t index)
{
    const uint32_t *other = finish_clock(verify, iteration, index);
    for (int lane = 0; lane < SL_LANE_COUNT; lane++)
        if (verify->clock[lane] < other[lane])
            verify->clock[lane] = other[lane];
}

/* Iteration and index of a run, from what cells keep: 1 + iteration * body_count + index. */
static uint32_t iteration_of(const sl_verify *verify, uint32_t run)
{
    return (run - 1) / verify->plan->body_count;
}

static uint32_t index_of(const sl_verify *verify, uint32_t run)
{
    return (run - 1) % verify->plan->body_count;
}

static void start_clock(sl_verify *verify, const sl_command *command)
{
    memset(verify->clock, 0, sizeof verify->clock);
    uint32_t before = verify->last[command->lane];
    if (before > 0)
        join_clock(verify, iteration_of(verify, before), index_of(verify, before));
    for (uint32_t i = 0; i < command->wait_count; i++) {
        const sl_wait *wait = &verify->plan->waits[command->first_wait + i];
        uint32_t back = wait->age + (wait->command >= verify->command_index);
        if (back <= verify->iteration)
            join_clock(verify, verify->iteration - back, wait->command);
    }
}

static bool is_finished(const sl_verify *verify, uint32_t run)
{
    uint32_t index = index_of(verify, run);
    sl_lane lane = verify->plan->body[index].lane;
    uint64_t count =
        (uint64_t)iteration_of(verify, run) * verify->lane_total[lane] + verify->position[index];
    return verify->clock[lane] >= count;
}

/* Fails unless `run`, which did `deed` to the cell, has finished or is the present command. */
static sl_status check_after(const sl_verify *verify, const sl_verify_access *access,
                             const sl_verify_cell *cell, uint32_t run, const char *deed)
{
    uint32_t present = 1 + verify->iteration * verify->plan->body_count + verify->command_index;
    if (run == 0 || run == present || is_finished(verify, run))
        return SL_OK;
    char object[SL_VERIFY_NAME_BYTES], other[SL_VERIFY_NAME_BYTES];
    uint32_t index = index_of(verify, run);
    sl_verify_name_command(verify, &verify->plan->body[index], other);
    return sl_verify_reject(
        verify,
        "%s %s at %s bytes [%llu, %llu) without waiting for command %u (%s)%s, which %s them",
        access->writes ? "writes" : "reads", sl_verify_name_object(verify, access->object, object),
        sl_tier_name(access->place.tier), (unsigned long long)cell->first_byte,
        (unsigned long long)cell[1].first_byte, index, other,
        iteration_of(verify, run) < verify->iteration ? " of the previous iteration" : "", deed);
}

static sl_status check_access(sl_verify *verify, const sl_verify_access *access)
{
    sl_verify_cell *cell, *end;
    sl_verify_cells_find(verify, &access->place, &cell, &end);
    for (; cell < end; cell++) {
        SL_TRY(check_after(verify, access, cell, cell->writer, "writes"));
        for (int lane = 0; access->writes && lane < SL_LANE_COUNT; lane++)
            SL_TRY(check_after(verify, access, cell, cell->reader[lane], "reads"));
    }
    return SL_OK;
}

static void note_access(sl_verify *verify, const sl_verify_access *access, sl_lane lane,
                        uint32_t run)
{
    sl_verify_cell *cell, *end;
    sl_verify_cells_find(verify, &access->place, &cell, &end);
    for (; cell < end; cell++) {
        if (access->writes) {
            cell->writer = run;
            memset(cell->reader, 0, sizeof cell->reader);
        } else {
            cell->reader[lane] = run;
        }
    }
}

sl_status sl_verify_order_step(sl_verify *verify, const sl_command *command)
{
    sl_verify_access accesses[SL_VERIFY_ACCESS_MAX];
    uint32_t count = sl_verify_list_accesses(verify, command, accesses);
    uint32_t index = verify->command_index;
    uint32_t run = 1 + verify->iteration * verify->plan->body_count + index;
    start_clock(verify, command);
    for (uint32_t i = 0; i < count; i++)
        SL_TRY(check_access(verify, &accesses[i]));
    for (uint32_t i = 0; i < count; i++)
        note_access(verify, &accesses[i], command->lane, run);
    uint32_t *finish = finish_clock(verify, verify->iteration, index);
    memcpy(finish, verify->clock, sizeof verify->clock);
    finish[command->lane] =
        verify->iteration * verify->lane_total[command->lane] + verify->position[index];
    verify->last[command->lane] = run;
    return SL_OK;
}
