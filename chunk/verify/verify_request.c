/* Checks that program, layout, homes and peaks belong together: values, ops and sections exist,
 * homes on disk are aligned, all that outlives the plan is below fixed_bytes, and peaks are within
 * the budgets. Of the plan's commands it knows only their number.
 */
#include "verify.h"

enum { COMMANDS_MAX = 1 << 29 };

/* The program's sections contain all its ops, in order, each op once. */
static sl_status check_program_sections(const sl_verify *verify)
{
    const sl_program *program = verify->program;
    uint32_t first = 0;
    for (uint32_t i = 0; i < program->section_count; i++) {
        const sl_section *it = &program->sections[i];
        if (it->first != first || it->count == 0 || it->count > program->op_count - first ||
            it->repeat == 0)
            return sl_verify_reject(verify,
                                    "section %u of its program has ops [%u, +%u), %u times, after "
                                    "%u of %u in others",
                                    i, it->first, it->count, it->repeat, first, program->op_count);
        first += it->count;
    }
    if (program->section_count > 0 && first != program->op_count)
        return sl_verify_reject(verify, "the sections of its program have %u of %u ops", first,
                                program->op_count);
    return SL_OK;
}

static sl_status check_value(const sl_verify *verify, uint32_t index)
{
    const sl_value *value = &verify->program->values[index];
    const sl_layout *layout = verify->layout;
    bool has_chunk = value->kind == SL_VALUE_TENSOR || value->kind == SL_VALUE_CHUNK;
    if (value->kind == SL_VALUE_TENSOR && value->index >= layout->tensor_count)
        return sl_verify_reject(verify, "value %u is tensor %u of a layout of %u", index,
                                value->index, layout->tensor_count);
    if (value->kind == SL_VALUE_CHUNK && value->index >= layout->chunk_count)
        return sl_verify_reject(verify, "value %u is chunk %u of a layout of %u", index,
                                value->index, layout->chunk_count);
    if (has_chunk &&
        ((unsigned)value->group >= SL_GROUP_COUNT || !verify->homes->tier[value->group]))
        return sl_verify_reject(verify, "value %u is of a group without homes", index);
    if (has_chunk && value->type != layout->group_type[value->group])
        return sl_verify_reject(verify, "value %u is of another type than its group", index);
    if (value->kind == SL_VALUE_PERSISTENT &&
        (value->index >= verify->homes->persistent_count ||
         value->bytes > verify->homes->persistent_bytes[value->index]))
        return sl_verify_reject(verify,
                                "value %u is persistent slot %u, which is not there or too "
                                "small",
                                index, value->index);
    return SL_OK;
}

/* A PART must be a tensor within its chunk, which is an activation: a gathered chunk. */
static sl_status check_part(const sl_verify *verify, uint32_t index)
{
    const sl_program *program = verify->program;
    const sl_layout *layout = verify->layout;
    const sl_value *value = &program->values[index];
    if (value->kind != SL_VALUE_PART)
        return SL_OK;
    if (value->index >= layout->tensor_count || (unsigned)value->group >= SL_GROUP_COUNT ||
        value->whole >= program->value_count)
        return sl_verify_reject(verify, "value %u is a part of nothing", index);
    const sl_value *whole = &program->values[value->whole];
    const uint64_t first = sl_verify_tensor_offset(verify, value);
    if (whole->kind != SL_VALUE_ACTIVATION || sl_verify_instances(whole) > 1 ||
        sl_verify_instances(value) > 1 || value->type != layout->group_type[value->group] ||
        first > whole->bytes || value->bytes > whole->bytes - first)
        return sl_verify_reject(verify, "value %u is no part of value %u", index, value->whole);
    return SL_OK;
}

/* A parameter of a small type: no op but DEQUANTIZE can read it where it is stored. */
static bool is_small(const sl_verify *verify, const sl_value *value)
{
    const sl_layout *layout = verify->layout;
    if (value->group != SL_GROUP_PARAM ||
        (value->kind != SL_VALUE_TENSOR && value->kind != SL_VALUE_CHUNK))
        return false;
    const uint32_t chunk_index =
        value->kind == SL_VALUE_CHUNK ? value->index : layout->chunk_of_tensor[value->index];
    return layout->chunks[chunk_index].rule == SL_RULE_SMALL;
}

static sl_status check_operand(const sl_verify *verify, uint32_t tick, uint32_t operand_index)
{
    const sl_program *program = verify->program;
    const sl_op *op = &program->ops[tick];
    const uint32_t value = op->operand[operand_index];
    if (value == SL_NONE)
        return SL_OK;
    if (value >= program->value_count)
        return sl_verify_reject(verify, "op %u of its program has value %u of %u", tick, value,
                                program->value_count);
    const bool is_stored = op->kind == SL_OP_DEQUANTIZE && operand_index == 0;
    if (is_small(verify, &program->values[value]) != is_stored)
        return sl_verify_reject(verify, "op %u of its program takes %.47s, which is %s", tick,
                                program->values[value].name,
                                is_stored ? "of no small type" : "of a small type, as it is");
    return SL_OK;
}

static sl_status check_ops(const sl_verify *verify)
{
    const sl_program *program = verify->program;
    for (uint32_t tick = 0; tick < program->op_count; tick++)
        for (uint32_t i = 0; i < sl_op_info_of(program->ops[tick].kind)->operand_count; i++)
            SL_TRY(check_operand(verify, tick, i));
    return SL_OK;
}

/* The layout has the program's type for the group. Homes are in tiers that exist, those on disk at
 * multiples of SL_DISK_ALIGNMENT. */
static sl_status check_group_homes(const sl_verify *verify, sl_group group, bool *out_is_on_disk)
{
    const sl_homes *homes = verify->homes;
    char name[SL_VERIFY_NAME_BYTES];
    if (homes->tier[group] &&
        verify->layout->group_type[group] != sl_program_group_type(verify->program, group))
        return sl_verify_reject(
            verify, "its layout holds group %d in another type than its program", (int)group);
    if (verify->layout->frozen != verify->program->frozen)
        return sl_verify_reject(verify, "its layout stores frozen matrices otherwise");
    for (uint32_t chunk = 0; homes->tier[group] && chunk < homes->chunk_count; chunk++) {
        sl_verify_name_object(verify, sl_verify_chunk_object(verify, group, chunk), name);
        if (homes->tier[group][chunk] >= SL_TIER_COUNT)
            return sl_verify_reject(verify, "%s has its home in a tier that does not exist", name);
        if (homes->tier[group][chunk] != SL_TIER_DISK)
            continue;
        *out_is_on_disk = true;
        if (homes->offset[group][chunk] % SL_DISK_ALIGNMENT != 0)
            return sl_verify_reject(
                verify, "the home of %s is at disk byte %llu, no multiple of %d", name,
                (unsigned long long)homes->offset[group][chunk], SL_DISK_ALIGNMENT);
    }
    return SL_OK;
}

/* If chunks live on disk, the host needs bounce pieces: in the boundary state, pieces of these
 * chunks are read and written through them. */
static sl_status check_homes(const sl_verify *verify)
{
    bool is_on_disk = false;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        SL_TRY(check_group_homes(verify, (sl_group)group, &is_on_disk));
    if (is_on_disk && (verify->homes->bounce_bytes < SL_BOUNCE_BYTES ||
                       verify->homes->bounce_offset % SL_DIRECT_ALIGNMENT != 0))
        return sl_verify_reject(verify, "its homes are on disk, without bounce pieces");
    return SL_OK;
}

static bool is_fixed(const sl_verify *verify, const sl_place *place)
{
    uint64_t fixed = verify->homes->fixed_bytes[place->tier];
    return place->bytes <= fixed && place->offset <= fixed - place->bytes;
}

/* Homes, persistent slots, flags and bounce pieces outlive the plan, so they must lie below
 * fixed_bytes of their tier. verify_shape.c checks that commands write only homes and slots
 * there. */
static sl_status check_fixed(const sl_verify *verify)
{
    const sl_homes *homes = verify->homes;
    char name[SL_VERIFY_NAME_BYTES];
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        for (uint32_t chunk = 0; homes->tier[group] && chunk < homes->chunk_count; chunk++) {
            sl_place home = sl_verify_home(verify, (sl_group)group, chunk);
            uint32_t object = sl_verify_chunk_object(verify, (sl_group)group, chunk);
            if (!is_fixed(verify, &home))
                return sl_verify_reject(verify, "the home of %s is not among what outlives it",
                                        sl_verify_name_object(verify, object, name));
        }
    for (uint32_t i = 0; i < homes->persistent_count; i++) {
        sl_place slot = {SL_TIER_DEVICE, homes->persistent_offset[i], homes->persistent_bytes[i]};
        if (!is_fixed(verify, &slot))
            return sl_verify_reject(verify, "persistent slot %u is not among what outlives it", i);
    }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        sl_place flags = {(sl_tier)tier, homes->flags_offset[tier], homes->flags_bytes[tier]};
        if (!is_fixed(verify, &flags))
            return sl_verify_reject(verify,
                                    "the block flags of tier %s are not among what "
                                    "outlives it",
                                    sl_tier_name((sl_tier)tier));
    }
    sl_place counted = {SL_TIER_DEVICE, homes->counted_offset, homes->counted_bytes};
    sl_place bounce = {SL_TIER_HOST, homes->bounce_offset, homes->bounce_bytes};
    if (!is_fixed(verify, &counted) || !is_fixed(verify, &bounce))
        return sl_verify_reject(verify, "the flags of the norm or the bounce pieces are not among "
                                        "what outlives it");
    return SL_OK;
}

sl_status sl_verify_request(const sl_verify *verify)
{
    const sl_plan *plan = verify->plan;
    const sl_homes *homes = verify->homes;
    if (homes->chunk_count != verify->layout->chunk_count)
        return sl_verify_reject(verify, "its homes are of %u chunks, its layout is of %u",
                                homes->chunk_count, verify->layout->chunk_count);
    if (plan->body_count > COMMANDS_MAX)
        return sl_verify_reject(verify, "it has %u commands", plan->body_count);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        if (plan->peak_bytes[tier] > verify->request->budget_bytes[tier])
            return sl_verify_reject(verify, "its %s peak of %llu bytes is over the budget of %llu",
                                    sl_tier_name((sl_tier)tier),
                                    (unsigned long long)plan->peak_bytes[tier],
                                    (unsigned long long)verify->request->budget_bytes[tier]);
        if (homes->fixed_bytes[tier] > plan->peak_bytes[tier])
            return sl_verify_reject(verify, "its %s peak of %llu bytes does not hold the homes",
                                    sl_tier_name((sl_tier)tier),
                                    (unsigned long long)plan->peak_bytes[tier]);
    }
    for (uint32_t i = 0; i < verify->program->value_count; i++) {
        SL_TRY(check_value(verify, i));
        SL_TRY(check_part(verify, i));
    }
    SL_TRY(check_homes(verify));
    SL_TRY(check_fixed(verify));
    SL_TRY(check_program_sections(verify));
    return check_ops(verify);
}
