/* Replays two iterations of the body twice: for the data, after the prologue, and for the order. */
#include "verify.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- data ----
 *
 * Checks for every read, in issue order, that the bytes hold the newest version of their object.
 *
 * A copy must have the newest content too. So the content of a byte depends only on the last
 * command that wrote it, which is of this iteration or of the one before. Therefore two iterations
 * show every wrong read.
 *
 * Why four repetitions of a section stand for any greater even number, and five for any greater odd
 * one:
 *
 * - The state of a byte: the object whose copy it holds, the base of that copy, and whether the
 *   copy is the newest version. The state of an object: how many of its rows were written. A
 *   repetition gives the bytes that it writes a state that depends only on its commands. To other
 *   bytes it does one thing: copies of objects that it writes become stale. Rings of two have
 *   period two, so take two repetitions in a row as one step U. U is the same each time, and U
 *   after U is the same as U. So the states before repetitions 2 and 3 are also those before 4 and
 *   5, and so on. Repetitions 0 to 3 are replayed, so their reads are checked; if the number is
 *   odd, the last one is replayed too, and finds the state that repetition 2 found. The state
 *   after the last repetition of the plan is the one after the last of the replay, because their
 *   numbers have the same parity.
 * - That leaves the instances of families, because each repetition uses another instance, and only
 *   that one. At a family's home, instance r is touched only by repetition r of each section. The
 *   state above decides the effect of this repetition, so instances 0 to 3 show all effects. In a
 *   ring, or in a place for all instances, a read finds its instance in two cases. Either the same
 *   repetition has put it there; this does not depend on the number of the repetition. Or an
 *   earlier section has left it there; but a ring then holds only the last two instances of that
 *   section. A plan that relies on the second case already fails in repetition 0 or 1, whose
 *   instances are not the last two. This is so in the plan and in the replay, because with three
 *   repetitions or fewer all are replayed.
 */

/* Puts the newest version of `object` at `place`. */
static void put_version(sl_verify *verify, uint32_t object, const sl_place *place)
{
    sl_verify_walk walk = sl_verify_walk_start(verify, place);
    uint64_t base = sl_place_offset(place, walk.instance);
    while (sl_verify_walk_next(&walk)) {
        for (sl_verify_cell *cell = walk.taken; walk.is_foreign && cell < walk.taken_end; cell++)
            cell->object = SL_NONE;
        for (sl_verify_cell *cell = walk.cell; cell < walk.end; cell++) {
            cell->object = object;
            cell->base = base;
            cell->version = object == SL_NONE ? 0 : verify->version[object];
        }
        sl_verify_walk_own(&walk);
    }
}

static void define_object(sl_verify *verify, uint32_t object, const sl_place *place)
{
    verify->version[object]++;
    verify->is_defined[object] = true;
    verify->written_rows[object] = UINT64_MAX;
    put_version(verify, object, place);
}

/* Says what the walk's cell holds instead of the newest version of `object`. */
static const char *describe_cell(const sl_verify *verify, uint32_t object,
                                 const sl_verify_walk *walk, uint64_t base,
                                 char out_name[SL_VERIFY_NAME_BYTES])
{
    const sl_verify_cell *cell = walk->cell;
    if (cell->object == SL_NONE || walk->is_foreign)
        return "nothing";
    if (cell->object != object)
        return sl_verify_name_object(verify, cell->object, out_name);
    return cell->base != base ? "another part of it" : "a stale version of it";
}

static sl_status reject_cell(const sl_verify *verify, uint32_t object, const sl_verify_walk *walk,
                             uint64_t base)
{
    uint64_t first, end;
    char wanted[SL_VERIFY_NAME_BYTES], found[SL_VERIFY_NAME_BYTES];
    const char *who = verify->command_index == SL_NONE ? "the end of an iteration " : "";
    sl_verify_name_object(verify, object, wanted);
    if (!verify->is_defined[object])
        return sl_verify_reject(verify, "%sneeds %s, which nothing has written", who, wanted);
    sl_verify_cell_bytes(walk->tier, walk->cell, &first, &end);
    return sl_verify_reject(verify, "%sneeds %s at %s bytes [%llu, %llu), which hold %s", who,
                            wanted, sl_tier_name(walk->place->tier), (unsigned long long)first,
                            (unsigned long long)end,
                            describe_cell(verify, object, walk, base, found));
}

/* Does `part` of the copy at `whole` hold the newest version of the object? */
static sl_status check_content(sl_verify *verify, uint32_t object, const sl_place *whole,
                               const sl_place *part)
{
    sl_verify_walk walk = sl_verify_walk_start(verify, part);
    uint64_t base = sl_place_offset(whole, walk.instance);
    bool has_meaning = verify->is_defined[object];
    while (sl_verify_walk_next(&walk))
        for (; walk.cell < walk.end; walk.cell++) {
            bool is_newest = has_meaning && !walk.is_foreign && walk.cell->object == object &&
                             walk.cell->base == base &&
                             walk.cell->version == verify->version[object];
            if (!is_newest)
                return reject_cell(verify, object, &walk, base);
        }
    return SL_OK;
}

/* Does the newest version of the object have the rows before `needed`? */
static sl_status check_rows(const sl_verify *verify, uint32_t object, uint64_t needed)
{
    char name[SL_VERIFY_NAME_BYTES], rows[48] = "all rows";
    const uint64_t written = verify->written_rows[object];
    const char *who = verify->command_index == SL_NONE ? "the end of an iteration " : "";
    if (needed <= written)
        return SL_OK;
    if (needed != UINT64_MAX)
        snprintf(rows, sizeof rows, "the first %llu rows", (unsigned long long)needed);
    return sl_verify_reject(verify, "%sneeds %s of %s, of which only the first %llu were written",
                            who, rows, sl_verify_name_object(verify, object, name),
                            (unsigned long long)written);
}

/* Does `place` hold the newest version of the object, with all its rows? */
static sl_status check_complete(sl_verify *verify, uint32_t object, const sl_place *place)
{
    SL_TRY(check_content(verify, object, place, place));
    return check_rows(verify, object, UINT64_MAX);
}

static sl_status check_read(sl_verify *verify, const sl_verify_access *access)
{
    const uint32_t object = sl_verify_instance(verify, access->object);
    SL_TRY(check_content(verify, object, &access->whole, &access->place));
    return check_rows(verify, object, access->needed_rows);
}

static sl_status apply_write(sl_verify *verify, const sl_verify_access *access)
{
    if (access->object == SL_NONE) {
        put_version(verify, SL_NONE, &access->place);
        return SL_OK;
    }
    uint32_t object = sl_verify_instance(verify, access->object);
    const uint64_t written = access->defines ? 0 : verify->written_rows[object];
    if (!access->defines)
        SL_TRY(check_content(verify, object, &access->whole, &access->whole));
    define_object(verify, object, &access->whole);
    verify->written_rows[object] = access->end_row > written ? access->end_row : written;
    return SL_OK;
}

static void write_copy(sl_verify *verify, const sl_command *command)
{
    put_version(verify, sl_verify_instance(verify, sl_verify_copy_object(verify, command)),
                &command->to);
}

static sl_status step_data(sl_verify *verify, const sl_command *command)
{
    sl_verify_access accesses[SL_VERIFY_ACCESS_MAX];
    uint32_t count = sl_verify_list_accesses(verify, command, accesses);
    for (uint32_t i = 0; i < count; i++)
        if (accesses[i].reads)
            SL_TRY(check_read(verify, &accesses[i]));
    if (command->kind == SL_COMMAND_COPY) {
        write_copy(verify, command);
        return SL_OK;
    }
    SL_TRY(sl_verify_gradients(verify, &verify->program->ops[command->tick]));
    for (uint32_t i = 0; i < count; i++)
        if (accesses[i].writes)
            SL_TRY(apply_write(verify, &accesses[i]));
    return SL_OK;
}

/* After an update has read the gradient of a chunk, no op reads it again. So its home does not have
 * to hold it at the end of an iteration. */
static void mark_used_gradients(sl_verify *verify)
{
    const sl_program *program = verify->program;
    for (uint32_t tick = 0; tick < program->op_count; tick++) {
        const sl_op *op = &program->ops[tick];
        if (!sl_op_info_of(op->kind)->updates_chunk)
            continue;
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++) {
            if (op->operand[i] == SL_NONE)
                continue;
            const sl_value *value = &program->values[op->operand[i]];
            if (value->kind == SL_VALUE_CHUNK && value->group == SL_GROUP_GRAD)
                verify->is_used_up[sl_verify_value_object(verify, op->operand[i])] = true;
        }
    }
}

static void start_data(sl_verify *verify)
{
    const sl_homes *homes = verify->homes;
    mark_used_gradients(verify);
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t chunk = 0; homes->tier[group] && chunk < homes->chunk_count; chunk++) {
            sl_place home = sl_verify_home(verify, (sl_group)group, chunk);
            uint32_t object = sl_verify_chunk_object(verify, (sl_group)group, chunk);
            if (!verify->is_used_up[object])
                define_object(verify, object, &home);
        }
    for (uint32_t i = 0; i < homes->persistent_count; i++) {
        sl_place place = {.tier = SL_TIER_DEVICE,
                          .offset = homes->persistent_offset[i],
                          .bytes = homes->persistent_bytes[i]};
        define_object(verify, sl_verify_persistent_object(verify, i), &place);
    }
}

/* At the start of an iteration the caller has filled its inputs. Activations, outputs and the
 * inputs that INPUT ops fill are undefined until an op writes them. A value that only one section
 * uses is undefined at the start of each repetition. It is not reset there, because a read that is
 * too early is also too early in the first repetition. */
static void begin_iteration(sl_verify *verify)
{
    for (uint32_t i = 0; i < verify->program->value_count; i++) {
        sl_value_kind kind = verify->program->values[i].kind;
        const sl_verify_value *it = &verify->values[i];
        if (kind == SL_VALUE_INPUT && !it->is_filled)
            define_object(verify, i, &it->buffer);
        else if (kind == SL_VALUE_ACTIVATION || kind == SL_VALUE_OUTPUT || kind == SL_VALUE_INPUT)
            verify->is_defined[i] = false;
    }
    for (uint32_t i = verify->first_family_object; i < verify->object_count; i++)
        verify->is_defined[i] = false;
}

/* Callers fill and read their buffers between iterations, while the last commands still run. So at
 * the end of an iteration every output must be complete in its buffer, and every input must still
 * be where the caller has put it: no command may have used these bytes for anything else. */
static sl_status check_buffers(sl_verify *verify)
{
    for (uint32_t i = 0; i < verify->program->value_count; i++) {
        const sl_verify_value *it = &verify->values[i];
        sl_value_kind kind = verify->program->values[i].kind;
        if (kind == SL_VALUE_INPUT && !it->is_filled)
            SL_TRY(check_content(verify, i, &it->buffer, &it->buffer));
        if (kind != SL_VALUE_OUTPUT || !it->is_written)
            continue;
        if (it->buffer.bytes == 0)
            return sl_verify_reject(verify, "it has no buffer on the host for output value %u", i);
        SL_TRY(check_complete(verify, i, &it->buffer));
    }
    return SL_OK;
}

/* Every chunk must be current at its home (except gradients that an update has read), and the
 * callers' buffers as the callers expect them. */
static sl_status end_iteration(sl_verify *verify)
{
    const sl_homes *homes = verify->homes;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t chunk = 0; homes->tier[group] && chunk < homes->chunk_count; chunk++) {
            sl_place home = sl_verify_home(verify, (sl_group)group, chunk);
            uint32_t object = sl_verify_chunk_object(verify, (sl_group)group, chunk);
            if (verify->is_used_up[object])
                continue;
            SL_TRY(check_complete(verify, object, &home));
        }
    return check_buffers(verify);
}

/* ---- order ----
 *
 * Checks that waits order every pair of conflicting accesses to the same bytes.
 *
 * The clock of a command says, for each lane, how many of the lane's commands are known to have
 * finished when the command starts. It joins the clock of the command before on the same lane, and
 * the clocks of the waits: each wait names the latest issue of a command or the issue before that,
 * and counts only if there was such an issue. Two accesses conflict unless both read; then the
 * clock of the later command must count the earlier one.
 *
 * Of each cell only the last writer and the readers since then matter: a command that is ordered
 * after them is ordered after all earlier accesses. A path between two consecutive iterations
 * passes through no other iteration. The first iteration has no earlier issues to wait for, so it
 * is ordered least. Therefore two iterations show what any two consecutive ones would.
 *
 * Why the repetitions that are replayed stand for all: a *path* leads from a command back to the
 * commands that it waits for and to the one before it on its lane, and so on. Let (c, r) be the
 * issue of command c in repetition r of the plan's R, and let R' repetitions be replayed.
 *
 * - Each step back in the replay from (c, q) has a counterpart in the plan from (c, r), for every
 *   r >= q. A step within a section goes back by the same number of repetitions, because the
 *   commands are the same. A step into another section arrives in both at the last repetition of
 *   that section or at the one before. Where the replay leaves the section because there is no
 *   earlier repetition, the plan may step to an earlier repetition instead, to a command that is
 *   later on the same lane. So a path of the replay from (c, q) into repetition R' - 1 - j of
 *   another section is a path of the plan from (c, r) into repetition R - 1 - j, for every r >= q.
 *   A path over d repetitions within a section is one in both.
 * - Two consecutive accesses to a byte within a section are at most two repetitions apart, because
 *   each access comes again after one or two repetitions. Repetitions 0 to 3 have all such pairs,
 *   at both parities. If two consecutive accesses are in different sections, they are in the first
 *   two repetitions of the later one and the last two of the earlier one. At a family's home both
 *   are in repetition r of their sections: a path can step back over r repetitions in the later
 *   section and over R - 1 - r in the earlier one. In the replay, instance min(r, R' - 1) has no
 *   more than that of either. And where the bytes of a whole family are reused, the wait is for
 *   its last instance.
 *
 * So each accepted plan is ordered. (An ordered plan may be rejected, if the only path between two
 * sections needs more repetitions than are replayed; a planner has no reason to rely on one.)
 */

static sl_status open_clocks(sl_verify *verify)
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

void sl_verify_replay_close(sl_verify *verify)
{
    free(verify->issue_count);
    free(verify->finish);
}

/* The clock after issue `issue` of a command. The clocks of its last two issues are kept. */
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

/* Where a command was issued. */
typedef struct moment {
    uint32_t iteration, section, repetition, command;
} moment;

/* Finds when the command at `position` of its lane, from 1, was issued. Steps through the replay
 * from its start. */
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
                             const moment *other, const char *what)
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
        (unsigned long long)first, (unsigned long long)end, other->command, command, when, what);
}

/* Has the command at `position` of `lane` finished? On lane `own` it has, or is the current command
 * itself. */
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

/* A write must come after all accesses to the bytes, also to other objects that were there. */
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

static void mark_access(sl_verify *verify, sl_lane lane, const sl_verify_access *access)
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

static sl_status step_order(sl_verify *verify, const sl_command *command)
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
        mark_access(verify, lane, &accesses[i]);
    for (int other = 0; other < SL_LANE_COUNT; other++) /* none has finished before its issue */
        assert(verify->clock[other] <= verify->position[other]);
    uint32_t *finish = finish_clock(verify, index, verify->issue_count[index]++);
    memcpy(finish, verify->clock, sizeof verify->clock);
    finish[lane] = verify->position[lane];
    verify->last[lane] = finish;
    return SL_OK;
}

/* ---- replays ---- */

static sl_status replay_prologue(sl_verify *verify)
{
    verify->is_prologue = true;
    for (uint32_t i = 0; i < verify->plan->prologue_count; i++) {
        verify->command_index = i;
        SL_TRY(step_data(verify, &verify->plan->prologue[i]));
    }
    verify->is_prologue = false;
    verify->command_index = SL_NONE;
    return SL_OK;
}

typedef sl_status (*step)(sl_verify *verify, const sl_command *command);

static sl_status replay_section(sl_verify *verify, step take)
{
    sl_section section = sl_verify_section(verify, verify->section_index);
    uint32_t replays = sl_verify_replays(section.repeat);
    for (verify->repetition = 0; verify->repetition < replays; verify->repetition++) {
        for (uint32_t i = section.first; i < section.first + section.count; i++) {
            verify->command_index = i;
            SL_TRY(take(verify, &verify->plan->body[i]));
        }
    }
    verify->repetition = verify->command_index = SL_NONE;
    return SL_OK;
}

static sl_status replay_body(sl_verify *verify, step take)
{
    uint32_t count = sl_program_section_count(verify->program);
    for (verify->section_index = 0; verify->section_index < count; verify->section_index++)
        SL_TRY(replay_section(verify, take));
    verify->section_index = 0;
    return SL_OK;
}

/* The first iteration finds what the prologue leaves; the second one finds what the first leaves,
 * as all later ones do. The caller has filled the inputs before the prologue runs. */
static sl_status replay_data(sl_verify *verify)
{
    start_data(verify);
    for (verify->iteration = 0; verify->iteration < 2; verify->iteration++) {
        begin_iteration(verify);
        if (verify->iteration == 0)
            SL_TRY(replay_prologue(verify));
        SL_TRY(replay_body(verify, step_data));
        SL_TRY(end_iteration(verify));
    }
    return SL_OK;
}

/* Without the prologue: all its commands have finished before the body starts. */
static sl_status replay_order(sl_verify *verify)
{
    SL_TRY(open_clocks(verify));
    for (verify->iteration = 0; verify->iteration < 2; verify->iteration++)
        SL_TRY(replay_body(verify, step_order));
    return SL_OK;
}

sl_status sl_verify_replay(sl_verify *verify)
{
    SL_TRY(replay_data(verify));
    return replay_order(verify);
}
