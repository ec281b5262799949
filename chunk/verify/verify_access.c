/* Says what memory a command touches, from the program, the layout and the homes. */
#include "verify.h"

uint32_t sl_verify_chunk_object(const sl_verify *verify, sl_group group, uint32_t chunk_index)
{
    return verify->program->value_count + (uint32_t)group * verify->layout->chunk_count +
           chunk_index;
}

uint32_t sl_verify_slot_object(const sl_verify *verify, uint32_t slot)
{
    return sl_verify_chunk_object(verify, SL_GROUP_COUNT, slot);
}

uint32_t sl_verify_value_object(const sl_verify *verify, uint32_t value)
{
    const sl_value *it = &verify->program->values[value];
    if (it->kind == SL_VALUE_CHUNK)
        return sl_verify_chunk_object(verify, it->group, it->index);
    if (it->kind == SL_VALUE_TENSOR)
        return sl_verify_chunk_object(verify, it->group,
                                      verify->layout->chunk_of_tensor[it->index]);
    if (it->kind == SL_VALUE_PERSISTENT)
        return sl_verify_slot_object(verify, it->index);
    return value;
}

uint32_t sl_verify_copy_object(const sl_verify *verify, const sl_command *command)
{
    if (command->chunk_index == SL_NONE)
        return command->value;
    return sl_verify_chunk_object(verify, command->group, command->chunk_index);
}

uint32_t sl_verify_instance(const sl_verify *verify, uint32_t object)
{
    bool is_first = verify->repetition == SL_NONE || verify->repetition == 0;
    if (is_first || object >= verify->program->value_count ||
        sl_verify_instances(&verify->program->values[object]) == 1)
        return object;
    return verify->values[object].second_object + verify->repetition - 1;
}

uint64_t sl_verify_tensor_offset(const sl_verify *verify, const sl_value *value)
{
    return verify->layout->first_element[value->index] *
           sl_type_bytes(verify->layout->group_type[value->group]);
}

sl_place sl_verify_home(const sl_verify *verify, sl_group group, uint32_t chunk_index)
{
    const sl_homes *homes = verify->homes;
    sl_place home = {.tier = SL_TIER_DEVICE};
    if (!homes->tier[group])
        return home;
    home.tier = (sl_tier)homes->tier[group][chunk_index];
    home.offset = homes->offset[group][chunk_index];
    home.bytes = sl_layout_chunk_bytes(verify->layout, group);
    return home;
}

/* The chunk that an AdamW updates; SL_NONE where it names none. */
static uint32_t updated_chunk(const sl_verify *verify, const sl_op *op)
{
    for (uint32_t i = 0; i < sl_op_info_of(op->kind)->operand_count; i++) {
        if (op->operand[i] == SL_NONE)
            continue;
        const sl_value *value = &verify->program->values[op->operand[i]];
        if (value->kind == SL_VALUE_CHUNK)
            return value->index;
    }
    return SL_NONE;
}

bool sl_verify_allows_lane(const sl_verify *verify, uint32_t tick, sl_lane lane)
{
    const sl_op *op = &verify->program->ops[tick];
    const sl_op_info *info = sl_op_info_of(op->kind);
    if (info->is_collective)
        return lane == SL_LANE_COMM;
    if (info->is_input)
        return lane == SL_LANE_INPUT;
    if (op->kind != SL_OP_ADAMW)
        return lane == SL_LANE_COMPUTE || (lane == SL_LANE_HOST && info->runs_on_host);
    uint32_t chunk_index = updated_chunk(verify, op);
    bool is_on_host =
        chunk_index != SL_NONE && verify->homes->adam_tier[chunk_index] == SL_TIER_HOST;
    return lane == (is_on_host ? SL_LANE_HOST : SL_LANE_COMPUTE);
}

sl_tier sl_verify_lane_tier(sl_lane lane)
{
    return lane == SL_LANE_HOST || lane == SL_LANE_INPUT ? SL_TIER_HOST : SL_TIER_DEVICE;
}

uint64_t sl_verify_workspace_bytes(const sl_verify *verify, const sl_command *command)
{
    const sl_plan_request *request = verify->request;
    const sl_op *op = &verify->program->ops[command->tick];
    return request->workspace(request->workspace_context, op->kind, &op->attrs,
                              sl_verify_lane_tier(command->lane));
}

static sl_verify_access make_operand_access(const sl_verify *verify, const sl_op *op,
                                            uint32_t operand_index, const sl_place *place)
{
    const sl_value *value = &verify->program->values[op->operand[operand_index]];
    sl_verify_access access = {.place = *place, .whole = *place};
    access.object = sl_verify_value_object(verify, op->operand[operand_index]);
    access.reads = sl_op_reads(op, operand_index);
    access.writes = sl_op_writes(op, operand_index);
    if (value->kind == SL_VALUE_TENSOR) {
        access.whole.offset -= sl_verify_tensor_offset(verify, value);
        access.whole.bytes = sl_layout_chunk_bytes(verify->layout, value->group);
    }
    if (value->kind == SL_VALUE_PERSISTENT)
        access.whole.bytes = verify->homes->persistent_bytes[value->index];
    access.defines = access.writes && !access.reads && access.place.bytes == access.whole.bytes;
    return access;
}

static uint32_t list_run(const sl_verify *verify, const sl_command *command,
                         sl_verify_access *out_accesses)
{
    const sl_op *op = &verify->program->ops[command->tick];
    const sl_place *places = verify->plan->places + command->first_place;
    uint32_t operand_count = command->place_count - 1;
    uint32_t count = 0;
    for (uint32_t i = 0; i < operand_count; i++)
        if (op->operand[i] != SL_NONE)
            out_accesses[count++] = make_operand_access(verify, op, i, &places[i]);
    const sl_place *workspace = &places[operand_count];
    if (workspace->bytes > 0)
        out_accesses[count++] = (sl_verify_access){
            .place = *workspace, .whole = *workspace, .object = SL_NONE, .writes = true};
    return count;
}

uint32_t sl_verify_list_accesses(const sl_verify *verify, const sl_command *command,
                                 sl_verify_access out_accesses[SL_VERIFY_ACCESS_MAX])
{
    if (command->kind == SL_COMMAND_RUN)
        return list_run(verify, command, out_accesses);
    uint32_t object = sl_verify_copy_object(verify, command);
    out_accesses[0] = (sl_verify_access){
        .place = command->from, .whole = command->from, .object = object, .reads = true};
    out_accesses[1] = (sl_verify_access){.place = command->to,
                                         .whole = command->to,
                                         .object = object,
                                         .writes = true,
                                         .defines = true};
    return 2;
}
