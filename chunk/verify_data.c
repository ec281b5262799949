/* Replays commands in issue order and asks of every read whether the newest version is there.
 *
 * Copies must be of newest content too. So what a byte holds depends on its last writer alone, and
 * that is a command of this iteration or of the one before: two iterations show every wrong read.
 */
#include "verify.h"

/* Puts the newest version of `object` at `place`. */
static void put(sl_verify *verify, uint32_t object, const sl_place *place)
{
    sl_verify_cell *cell, *end;
    if (place->bytes == 0)
        return;
    sl_verify_cells_find(verify, place, &cell, &end);
    for (; cell < end; cell++) {
        cell->object = object;
        cell->base = place->offset;
        cell->version = object == SL_NONE ? 0 : verify->version[object];
    }
}

static void define(sl_verify *verify, uint32_t object, const sl_place *place)
{
    verify->version[object]++;
    verify->is_defined[object] = true;
    put(verify, object, place);
}

/* What a cell holds instead of the newest version of `object`. */
static const char *describe_cell(const sl_verify *verify, uint32_t object, const sl_place *whole,
                                 const sl_verify_cell *cell, char out_name[SL_VERIFY_NAME_BYTES])
{
    if (cell->object == SL_NONE)
        return "nothing";
    if (cell->object != object)
        return sl_verify_name_object(verify, cell->object, out_name);
    return cell->base != whole->offset ? "another part of it" : "a stale version of it";
}

static sl_status reject_cell(const sl_verify *verify, uint32_t object, const sl_place *whole,
                             const sl_verify_cell *cell)
{
    char wanted[SL_VERIFY_NAME_BYTES], found[SL_VERIFY_NAME_BYTES];
    const char *who = verify->command_index == SL_NONE ? "the end of an iteration " : "";
    sl_verify_name_object(verify, object, wanted);
    if (!verify->is_defined[object])
        return sl_verify_reject(verify, "%sneeds %s, which nothing has written", who, wanted);
    return sl_verify_reject(verify, "%sneeds %s at %s bytes [%llu, %llu), which hold %s", who,
                            wanted, sl_tier_name(whole->tier), (unsigned long long)cell->first_byte,
                            (unsigned long long)cell[1].first_byte,
                            describe_cell(verify, object, whole, cell, found));
}

/* Does `part` of the copy at `whole` hold the newest version? */
static sl_status check_content(sl_verify *verify, uint32_t object, const sl_place *whole,
                               const sl_place *part)
{
    sl_verify_cell *cell, *end;
    sl_verify_cells_find(verify, part, &cell, &end);
    for (; cell < end; cell++) {
        bool is_newest = verify->is_defined[object] && cell->object == object &&
                         cell->base == whole->offset && cell->version == verify->version[object];
        if (!is_newest)
            return reject_cell(verify, object, whole, cell);
    }
    return SL_OK;
}

static sl_status apply_write(sl_verify *verify, const sl_verify_access *access)
{
    if (access->object == SL_NONE) {
        put(verify, SL_NONE, &access->place);
        return SL_OK;
    }
    if (!access->defines)
        SL_TRY(check_content(verify, access->object, &access->whole, &access->whole));
    define(verify, access->object, &access->whole);
    return SL_OK;
}

static void apply_copy(sl_verify *verify, const sl_command *command)
{
    put(verify, sl_verify_copy_object(verify, command), &command->to);
}

sl_status sl_verify_data_step(sl_verify *verify, const sl_command *command)
{
    sl_verify_access accesses[SL_VERIFY_ACCESS_MAX];
    uint32_t count = sl_verify_list_accesses(verify, command, accesses);
    for (uint32_t i = 0; i < count; i++)
        if (accesses[i].reads)
            SL_TRY(
                check_content(verify, accesses[i].object, &accesses[i].whole, &accesses[i].place));
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
        sl_place place = {SL_TIER_DEVICE, homes->persistent_offset[i], homes->persistent_bytes[i]};
        define(verify, sl_verify_slot_object(verify, i), &place);
    }
}

/* The caller has filled the inputs; activations and outputs mean nothing before they are written.
 */
void sl_verify_data_begin(sl_verify *verify)
{
    for (uint32_t i = 0; i < verify->program->value_count; i++) {
        sl_value_kind kind = verify->program->values[i].kind;
        if (kind == SL_VALUE_INPUT)
            define(verify, i, &verify->slot[i]);
        if (kind == SL_VALUE_ACTIVATION || kind == SL_VALUE_OUTPUT)
            verify->is_defined[i] = false;
    }
}

static bool is_written(const sl_program *program, uint32_t value)
{
    for (uint32_t tick = 0; tick < program->op_count; tick++) {
        const sl_op *op = &program->ops[tick];
        for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++)
            if (op->operand[i] == value && sl_op_writes(op, i))
                return true;
    }
    return false;
}

static sl_status check_outputs(sl_verify *verify)
{
    for (uint32_t i = 0; i < verify->program->value_count; i++) {
        if (verify->program->values[i].kind != SL_VALUE_OUTPUT || !is_written(verify->program, i))
            continue;
        if (verify->slot[i].bytes == 0)
            return sl_verify_reject(verify, "it has no slot on the host for output value %u", i);
        SL_TRY(check_content(verify, i, &verify->slot[i], &verify->slot[i]));
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
