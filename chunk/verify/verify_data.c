/* Replays commands in issue order and asks of every read whether the newest version is there.
 *
 * Copies must be of newest content too. So what a byte holds depends on its last writer alone, and
 * that is a command of this iteration or of the one before: two iterations show every wrong read.
 *
 * Why four repetitions of a section stand for any greater even number, and five for any odd one:
 *
 * - Say that a byte's state is whose copy it holds, from which base, and whether that is of the
 *   newest version. One repetition sets the state of the bytes that it writes by its own text, and
 *   of the others it only makes copies stale of objects that it writes. Two in a row (for rings of
 *   two have period two) are one such step U, the same each time, and U after U is U: so the states
 *   before repetitions 2 and 3 are those before 4 and 5, and so on. What is read is asked for in
 *   repetitions 0 to 3, or the odd last one, which finds what repetition 2 found. After the last
 *   one the state is that after the replay's last one, for the parities agree.
 * - That leaves the instances of families, whose names change. A repetition touches its own alone.
 *   At home instance r meets repetition r of each section; what that one does is told by the state
 *   above, so instances 0 to 3 meet whatever any of them does. In a ring, or a place for all, a
 *   read finds its own instance only if its own repetition has put it there, whatever its number;
 *   or if an earlier section has left it there, whose last two instances are still in its rings.
 *   Such a read would first meet instances that are gone, in repetition 0 or 1, in the plan as in
 *   the replay, in which the last two are two others as well (of three repetitions or less, all
 *   are replayed).
 */
#include "verify.h"

/* Puts the newest version of `object` at `place`. */
static void put(sl_verify *verify, uint32_t object, const sl_place *place)
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

static void define(sl_verify *verify, uint32_t object, const sl_place *place)
{
    verify->version[object]++;
    verify->is_defined[object] = true;
    put(verify, object, place);
}

/* What a cell holds instead of the newest version of `object`. */
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

static sl_status apply_write(sl_verify *verify, const sl_verify_access *access)
{
    if (access->object == SL_NONE) {
        put(verify, SL_NONE, &access->place);
        return SL_OK;
    }
    uint32_t object = sl_verify_instance(verify, access->object);
    if (!access->defines)
        SL_TRY(check_content(verify, object, &access->whole, &access->whole));
    define(verify, object, &access->whole);
    return SL_OK;
}

static void apply_copy(sl_verify *verify, const sl_command *command)
{
    put(verify, sl_verify_instance(verify, sl_verify_copy_object(verify, command)), &command->to);
}

sl_status sl_verify_data_step(sl_verify *verify, const sl_command *command)
{
    sl_verify_access accesses[SL_VERIFY_ACCESS_MAX];
    uint32_t count = sl_verify_list_accesses(verify, command, accesses);
    for (uint32_t i = 0; i < count; i++)
        if (accesses[i].reads)
            SL_TRY(check_content(verify, sl_verify_instance(verify, accesses[i].object),
                                 &accesses[i].whole, &accesses[i].place));
    if (command->kind == SL_COMMAND_COPY) {
        apply_copy(verify, command);
        return SL_OK;
    }
    for (uint32_t i = 0; i < count; i++)
        if (accesses[i].writes)
            SL_TRY(apply_write(verify, &accesses[i]));
    return SL_OK;
}

/* The gradient of a chunk is used up once its AdamW has read it, and so never goes home. */
static void mark_used_gradients(sl_verify *verify)
{
    const sl_program *program = verify->program;
    for (uint32_t tick = 0; tick < program->op_count; tick++) {
        const sl_op *op = &program->ops[tick];
        if (op->kind != SL_OP_ADAMW)
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

void sl_verify_data_start(sl_verify *verify)
{
    const sl_homes *homes = verify->homes;
    mark_used_gradients(verify);
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t chunk = 0; homes->tier[group] && chunk < homes->chunk_count; chunk++) {
            sl_place home = sl_verify_home(verify, (sl_group)group, chunk);
            uint32_t object = sl_verify_chunk_object(verify, (sl_group)group, chunk);
            if (!verify->is_used_up[object])
                define(verify, object, &home);
        }
    for (uint32_t i = 0; i < homes->persistent_count; i++) {
        sl_place place = {.tier = SL_TIER_DEVICE,
                          .offset = homes->persistent_offset[i],
                          .bytes = homes->persistent_bytes[i]};
        define(verify, sl_verify_slot_object(verify, i), &place);
    }
}

/* The caller has filled the inputs; activations and outputs mean nothing before they are written.
 * A value that one section alone uses means nothing at the start of each of its repetitions: what
 * reads it too early there does so in the first one. */
void sl_verify_data_begin(sl_verify *verify)
{
    for (uint32_t i = 0; i < verify->program->value_count; i++) {
        sl_value_kind kind = verify->program->values[i].kind;
        const sl_verify_value *it = &verify->values[i];
        if (kind == SL_VALUE_INPUT && !it->is_filled)
            define(verify, i, &it->slot);
        else if (kind == SL_VALUE_ACTIVATION || kind == SL_VALUE_OUTPUT || kind == SL_VALUE_INPUT)
            verify->is_defined[i] = false;
    }
    for (uint32_t i = verify->first_family_object; i < verify->object_count; i++)
        verify->is_defined[i] = false;
}

static sl_status check_outputs(sl_verify *verify)
{
    for (uint32_t i = 0; i < verify->program->value_count; i++) {
        const sl_verify_value *it = &verify->values[i];
        if (verify->program->values[i].kind != SL_VALUE_OUTPUT || !it->is_written)
            continue;
        if (it->slot.bytes == 0)
            return sl_verify_reject(verify, "it has no slot on the host for output value %u", i);
        SL_TRY(check_content(verify, i, &it->slot, &it->slot));
    }
    return SL_OK;
}

/* Every chunk is current at its home, and every output on the host. */
sl_status sl_verify_data_end(sl_verify *verify)
{
    const sl_homes *homes = verify->homes;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t chunk = 0; homes->tier[group] && chunk < homes->chunk_count; chunk++) {
            sl_place home = sl_verify_home(verify, (sl_group)group, chunk);
            uint32_t object = sl_verify_chunk_object(verify, (sl_group)group, chunk);
            if (verify->is_used_up[object])
                continue;
            SL_TRY(check_content(verify, object, &home, &home));
        }
    return check_outputs(verify);
}
