/* Checks all that needs no replay, down to the single command, so that every index and range is
 * safe for the checks after this one: the request (verify_request.c); how the program uses its
 * values; the callers' buffers; the plan's sections, which are the program's; the indices, lanes,
 * sizes, alignment and waits of each command; the body, which runs every op once, in order. Knows
 * nothing of the content of memory.
 */
#include "verify.h"

/* ---- how the sections use values ---- */

static sl_status check_family(const sl_verify *verify, uint32_t index)
{
    const sl_value *value = &verify->program->values[index];
    if (sl_verify_instances(value) > 1 && value->kind != SL_VALUE_ACTIVATION)
        return sl_verify_reject(verify,
                                "value %u (%.47s) is a family of something else than "
                                "activations",
                                index, value->name);
    return SL_OK;
}

static sl_status record_operand(sl_verify *verify, uint32_t section_index, uint32_t tick,
                                uint32_t i)
{
    const sl_op *op = &verify->program->ops[tick];
    const sl_section section = sl_program_section(verify->program, section_index);
    const sl_value *value = &verify->program->values[op->operand[i]];
    sl_verify_value *it = &verify->values[sl_program_whole(verify->program, op->operand[i])];
    bool is_new = !it->is_used, is_input = sl_op_info_of(op->kind)->is_input;
    if (sl_verify_instances(value) > 1 && value->instances != section.repeat)
        return sl_verify_reject(verify,
                                "op %u of its program uses value %u (%.47s) of %u instances in a "
                                "section of %u repetitions",
                                tick, op->operand[i], value->name, value->instances,
                                section.repeat);
    if (is_input && value->kind != SL_VALUE_INPUT)
        return sl_verify_reject(verify, "op %u of its program fills value %u, which is no input",
                                tick, op->operand[i]);
    it->section = is_new || it->section == section_index ? section_index : SL_NONE;
    it->is_used = true;
    it->is_filled = it->is_filled || is_input;
    it->is_written = it->is_written || sl_op_writes(op, i);
    return SL_OK;
}

/* Decides whether a value is local to a repeated section. Outputs, and inputs that the caller
 * fills, are not local, because the caller uses them, too. */
static void find_local(sl_verify *verify, uint32_t index)
{
    const sl_value *value = &verify->program->values[index];
    sl_verify_value *it = &verify->values[index];
    bool may_be =
        value->kind == SL_VALUE_ACTIVATION || (value->kind == SL_VALUE_INPUT && it->is_filled);
    it->is_local = may_be && it->is_used && it->section != SL_NONE &&
                   sl_verify_instances(value) == 1 &&
                   sl_program_section(verify->program, it->section).repeat > 1;
}

/* The chunk of what an op gathers from: what this rank stores, or a value that was recorded before,
 * a shard that DEQUANTIZE wrote. False: there is none. */
static bool find_stored(const sl_verify *verify, uint32_t value, uint32_t *out_chunk,
                        sl_group *out_group)
{
    const sl_value *it = &verify->program->values[value];
    const bool is_chunk = it->kind == SL_VALUE_CHUNK;
    *out_chunk = is_chunk ? it->index : verify->values[value].chunk_index;
    *out_group = is_chunk ? it->group : verify->values[value].group;
    return *out_chunk != SL_NONE;
}

/* If the op moves data between a whole chunk and what this rank stores of it, records the chunk of
 * the value that is the whole chunk. */
static sl_status record_whole(sl_verify *verify, uint32_t tick)
{
    const sl_program *program = verify->program;
    const sl_op *op = &program->ops[tick];
    const bool gathers = op->kind == SL_OP_ALL_GATHER_SHARD || op->kind == SL_OP_DEQUANTIZE;
    if (!gathers && op->kind != SL_OP_REDUCE_SCATTER_SHARD && op->kind != SL_OP_TAKE_SHARD)
        return SL_OK;
    const uint32_t whole = op->operand[gathers ? 1 : 0], shard = op->operand[gathers ? 0 : 1];
    uint32_t index;
    sl_group group;
    if (whole == SL_NONE || shard == SL_NONE || !find_stored(verify, shard, &index, &group) ||
        (group != SL_GROUP_GRAD && !(gathers && group == SL_GROUP_PARAM)))
        return sl_verify_reject(verify, "op %u of its program has no shard of a chunk", tick);
    uint32_t *chunk_index = &verify->values[whole].chunk_index;
    if (*chunk_index != SL_NONE && *chunk_index != index)
        return sl_verify_reject(verify, "op %u of its program takes value %u for chunk %u", tick,
                                whole, index);
    *chunk_index = index;
    verify->values[whole].group = group;
    return SL_OK;
}

/* The tensor of a PART must be one of the chunk that the PART's whole value holds. */
static sl_status check_chunk_of_part(const sl_verify *verify, uint32_t index)
{
    const sl_value *value = &verify->program->values[index];
    if (value->kind != SL_VALUE_PART ||
        verify->values[value->whole].chunk_index == verify->layout->chunk_of_tensor[value->index])
        return SL_OK;
    return sl_verify_reject(verify, "value %u (%.47s) is no part of the chunk in value %u", index,
                            value->name, value->whole);
}

static sl_status find_values(sl_verify *verify)
{
    const sl_program *program = verify->program;
    for (uint32_t i = 0; i < program->value_count; i++) {
        SL_TRY(check_family(verify, i));
        verify->values[i].section = SL_NONE;
        verify->values[i].chunk_index = SL_NONE;
    }
    for (uint32_t tick = 0; tick < program->op_count; tick++)
        SL_TRY(record_whole(verify, tick));
    for (uint32_t i = 0; i < program->value_count; i++)
        SL_TRY(check_chunk_of_part(verify, i));
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        sl_section section = sl_program_section(program, s);
        for (uint32_t tick = section.first; tick < section.first + section.count; tick++)
            for (uint32_t i = 0; i < sl_op_info_of(program->ops[tick].kind)->operand_count; i++)
                if (program->ops[tick].operand[i] != SL_NONE)
                    SL_TRY(record_operand(verify, s, tick, i));
    }
    for (uint32_t i = 0; i < program->value_count; i++)
        find_local(verify, i);
    return SL_OK;
}

/* ---- the callers' buffers ---- */

/* Is the allocation on the host, for an output or an input that the caller fills, at every tick? */
static bool is_buffer(const sl_verify *verify, const sl_allocation *it)
{
    if (it->place.tier != SL_TIER_HOST || it->chunk_index != SL_NONE ||
        it->value >= verify->program->value_count)
        return false;
    sl_value_kind kind = verify->program->values[it->value].kind;
    bool has_buffer =
        kind == SL_VALUE_OUTPUT || (kind == SL_VALUE_INPUT && !verify->values[it->value].is_filled);
    return has_buffer && it->first_tick == 0 && it->last_tick + 1 >= verify->program->op_count;
}

/* Finds the places that callers fill with inputs and read outputs from. */
static sl_status find_buffers(sl_verify *verify)
{
    const sl_plan *plan = verify->plan;
    for (uint32_t i = 0; i < plan->allocation_count; i++) {
        const sl_allocation *it = &plan->allocations[i];
        if (!is_buffer(verify, it))
            continue;
        sl_place *buffer = &verify->values[it->value].buffer;
        uint64_t bytes = verify->program->values[it->value].bytes;
        if (buffer->bytes > 0)
            return sl_verify_reject(verify, "value %u has two buffers on the host", it->value);
        if (it->place.bytes < bytes || bytes == 0)
            return sl_verify_reject(verify, "value %u of %llu bytes has a buffer of %llu",
                                    it->value, (unsigned long long)bytes,
                                    (unsigned long long)it->place.bytes);
        *buffer = (sl_place){.tier = it->place.tier, .offset = it->place.offset, .bytes = bytes};
    }
    return SL_OK;
}

/* ---- the plan's sections ---- */

static sl_status check_section(const sl_verify *verify, uint32_t index, uint32_t first)
{
    const sl_section of_ops = sl_program_section(verify->program, index);
    const sl_section it = sl_verify_section(verify, index);
    if (it.repeat != of_ops.repeat || it.first_micro_batch != of_ops.first_micro_batch ||
        it.micro_batches != of_ops.micro_batches)
        return sl_verify_reject(verify,
                                "its section %u is run %u times from micro-batch %u on, the "
                                "program's %u times from %u on",
                                index, it.repeat, it.first_micro_batch, of_ops.repeat,
                                of_ops.first_micro_batch);
    if (it.first != first || it.count > verify->plan->body_count - first)
        return sl_verify_reject(verify,
                                "its section %u has commands [%u, +%u) of %u, after %u in others",
                                index, it.first, it.count, verify->plan->body_count, first);
    return SL_OK;
}

/* Limits the number of commands that are issued in a replayed iteration. */
static sl_status count_issues(const sl_verify *verify)
{
    enum { ISSUES_MAX = 1 << 29 };
    uint64_t issues = 0;
    for (uint32_t s = 0; s < sl_program_section_count(verify->program); s++) {
        sl_section section = sl_verify_section(verify, s);
        issues += (uint64_t)section.count * sl_verify_replays(section.repeat);
        if (issues > ISSUES_MAX)
            return sl_verify_reject(verify, "it has more than %u commands", (unsigned)ISSUES_MAX);
    }
    return SL_OK;
}

static sl_status check_sections(const sl_verify *verify)
{
    const sl_plan *plan = verify->plan;
    uint32_t count = sl_program_section_count(verify->program), first = 0;
    if (plan->section_count != count && (plan->section_count > 0 || count > 1))
        return sl_verify_reject(verify, "it has %u sections, its program %u", plan->section_count,
                                count);
    for (uint32_t s = 0; s < count; s++) {
        SL_TRY(check_section(verify, s, first));
        first += sl_verify_section(verify, s).count;
    }
    if (first != plan->body_count)
        return sl_verify_reject(verify, "its sections have %u of its %u commands", first,
                                plan->body_count);
    return count_issues(verify);
}

/* ---- places ---- */

/* A place with several slots is a ring of two or has a slot for each repetition of its section. The
 * slots are aligned and do not overlap. */
static sl_status check_slots(const sl_verify *verify, const sl_place *place, const char *name)
{
    if (place->slots <= 1 && place->stride == 0)
        return SL_OK;
    uint32_t repeat = sl_verify_section(verify, verify->section_index).repeat;
    if (verify->is_prologue || (place->slots != 2 && place->slots != repeat) || place->slots < 2)
        return sl_verify_reject(verify, "has %u slots for %s in a section of %u repetitions",
                                place->slots, name, repeat);
    if (place->stride < place->bytes || place->stride % SL_VERIFY_ALIGNMENT != 0)
        return sl_verify_reject(
            verify, "has slots of %llu bytes for %s, which are %llu bytes apart",
            (unsigned long long)place->bytes, name, (unsigned long long)place->stride);
    return SL_OK;
}

/* Bytes from the first slot's start to the last one's end; UINT64_MAX if they are more. */
static uint64_t extent_of(const sl_place *place)
{
    uint64_t extent;
    if (place->slots <= 1)
        return place->bytes;
    if (__builtin_mul_overflow(place->slots - 1, place->stride, &extent) ||
        __builtin_add_overflow(extent, place->bytes, &extent))
        return UINT64_MAX;
    return extent;
}

static sl_status check_place(const sl_verify *verify, const sl_place *place, uint64_t bytes,
                             const char *name)
{
    if ((unsigned)place->tier >= SL_TIER_COUNT)
        return sl_verify_reject(verify, "has %s in a tier that does not exist", name);
    if (place->bytes != bytes)
        return sl_verify_reject(verify, "has %llu bytes for %s, which has %llu",
                                (unsigned long long)place->bytes, name, (unsigned long long)bytes);
    if (place->offset % SL_VERIFY_ALIGNMENT != 0)
        return sl_verify_reject(verify, "has %s at %s byte %llu, which is not aligned", name,
                                sl_tier_name(place->tier), (unsigned long long)place->offset);
    SL_TRY(check_slots(verify, place, name));
    uint64_t peak = verify->plan->peak_bytes[place->tier], extent = extent_of(place);
    if (extent > peak || place->offset > peak - extent)
        return sl_verify_reject(verify,
                                "has %s at %s bytes [%llu, +%llu), outside the peak of %llu", name,
                                sl_tier_name(place->tier), (unsigned long long)place->offset,
                                (unsigned long long)extent, (unsigned long long)peak);
    return SL_OK;
}

/* Only families have more than one slot. */
static sl_status check_strides(const sl_verify *verify, const sl_value *value,
                               const sl_place *place, const char *name)
{
    if (place->slots > 1 && (!value || sl_verify_instances(value) == 1))
        return sl_verify_reject(verify, "has %u slots for %s, which is no family", place->slots,
                                name);
    return SL_OK;
}

/* In the tier of its home a chunk is at its home and nowhere else. */
static sl_status check_at_home(const sl_verify *verify, const sl_place *whole, sl_group group,
                               uint32_t chunk_index)
{
    char name[SL_VERIFY_NAME_BYTES];
    sl_place home = sl_verify_home(verify, group, chunk_index);
    if (whole->tier != home.tier || whole->offset == home.offset)
        return SL_OK;
    sl_verify_name_object(verify, sl_verify_chunk_object(verify, group, chunk_index), name);
    return sl_verify_reject(verify, "has %s at %s byte %llu, but its home is at byte %llu", name,
                            sl_tier_name(home.tier), (unsigned long long)whole->offset,
                            (unsigned long long)home.offset);
}

static sl_status check_tensor_place(const sl_verify *verify, const sl_value *value,
                                    const sl_place *place, const char *name)
{
    uint64_t first = sl_verify_tensor_offset(verify, value);
    if (place->offset < first)
        return sl_verify_reject(verify, "has %s at byte %llu, %llu bytes into its chunk", name,
                                (unsigned long long)place->offset, (unsigned long long)first);
    const uint32_t chunk_index = verify->layout->chunk_of_tensor[value->index];
    sl_place whole = {.tier = place->tier,
                      .offset = place->offset - first,
                      .bytes = sl_layout_chunk_bytes(verify->layout, value->group, chunk_index)};
    if (first + value->bytes > whole.bytes)
        return sl_verify_reject(verify, "has %s of %llu bytes, which overruns its chunk", name,
                                (unsigned long long)value->bytes);
    SL_TRY(check_place(verify, &whole, whole.bytes, name));
    return check_at_home(verify, &whole, value->group, chunk_index);
}

static sl_status check_part_place(const sl_verify *verify, const sl_value *value,
                                  const sl_place *place, const char *name)
{
    uint64_t first = sl_verify_tensor_offset(verify, value);
    if (place->offset < first)
        return sl_verify_reject(verify, "has %s at byte %llu, %llu bytes into a chunk", name,
                                (unsigned long long)place->offset, (unsigned long long)first);
    const sl_place whole = {.tier = place->tier,
                            .offset = place->offset - first,
                            .bytes = verify->program->values[value->whole].bytes};
    return check_place(verify, &whole, whole.bytes, name);
}

static sl_status check_value_place(const sl_verify *verify, const sl_value *value,
                                   const sl_place *place, const char *name)
{
    if (value->kind == SL_VALUE_TENSOR)
        return check_tensor_place(verify, value, place, name);
    if (value->kind == SL_VALUE_CHUNK) {
        if (value->bytes != sl_layout_chunk_bytes(verify->layout, value->group, value->index))
            return sl_verify_reject(verify, "has %s of %llu bytes, which is no chunk's size", name,
                                    (unsigned long long)value->bytes);
        return check_at_home(verify, place, value->group, value->index);
    }
    if (value->kind == SL_VALUE_PART)
        return check_part_place(verify, value, place, name);
    if (value->kind == SL_VALUE_PERSISTENT &&
        place->offset != verify->homes->persistent_offset[value->index])
        return sl_verify_reject(verify, "has %s at byte %llu, not where it persists", name,
                                (unsigned long long)place->offset);
    return SL_OK;
}

/* ---- what outlives the plan ---- */

/* Is the access to a chunk at its home, or to a persistent slot? */
static bool is_at_home(const sl_verify *verify, const sl_verify_access *access)
{
    uint32_t first_chunk = verify->program->value_count;
    uint32_t first_slot = sl_verify_persistent_object(verify, 0);
    if (access->object == SL_NONE || access->object < first_chunk)
        return false;
    if (access->object >= first_slot)
        return access->whole.tier == SL_TIER_DEVICE &&
               access->whole.offset ==
                   verify->homes->persistent_offset[access->object - first_slot];
    uint32_t number = access->object - first_chunk, chunk_count = verify->layout->chunk_count;
    sl_place home = sl_verify_home(verify, (sl_group)(number / chunk_count), number % chunk_count);
    return access->whole.tier == home.tier && access->whole.offset == home.offset;
}

/* Below fixed_bytes of a tier, a command may write only a chunk at its home or a persistent slot.
 * Other programs of the run use these bytes too, so the replay of one program would not show that
 * content is lost there. */
static sl_status check_fixed(const sl_verify *verify, const sl_command *command)
{
    char name[SL_VERIFY_NAME_BYTES];
    sl_verify_access accesses[SL_VERIFY_ACCESS_MAX];
    uint32_t count = sl_verify_list_accesses(verify, command, accesses);
    for (uint32_t i = 0; i < count; i++) {
        const sl_place *place = &accesses[i].place;
        if (accesses[i].writes && place->offset < verify->homes->fixed_bytes[place->tier] &&
            !is_at_home(verify, &accesses[i]))
            return sl_verify_reject(verify,
                                    "writes %s at %s byte %llu, among what outlives the plan",
                                    sl_verify_name_object(verify, accesses[i].object, name),
                                    sl_tier_name(place->tier), (unsigned long long)place->offset);
    }
    return SL_OK;
}

/* ---- RUN ---- */

/* The chunk that an op updates; SL_NONE if no operand of it is a chunk. */
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

/* May the op at `tick` run on `lane`? An update runs where the homes say, a collective on comm, an
 * INPUT op on input; every other op on compute. */
static bool allows_lane(const sl_verify *verify, uint32_t tick, sl_lane lane)
{
    const sl_op *op = &verify->program->ops[tick];
    const sl_op_info *info = sl_op_info_of(op->kind);
    if (info->is_collective)
        return lane == SL_LANE_COMM;
    if (info->is_input)
        return lane == SL_LANE_INPUT;
    if (!info->updates_chunk)
        return lane == SL_LANE_COMPUTE;
    uint32_t chunk_index = updated_chunk(verify, op);
    bool is_on_host =
        chunk_index != SL_NONE && verify->homes->update_tier[chunk_index] == SL_TIER_HOST;
    return lane == (is_on_host ? SL_LANE_HOST : SL_LANE_COMPUTE);
}

/* The tier that the ops of a lane work on. Does not use the planner's table of lanes
 * (policy/tiers.c), so that a mistake in that table is found. */
static sl_tier lane_tier(sl_lane lane)
{
    return lane == SL_LANE_HOST || lane == SL_LANE_INPUT ? SL_TIER_HOST : SL_TIER_DEVICE;
}

/* Workspace bytes that the op of a RUN needs. */
static uint64_t workspace_bytes(const sl_verify *verify, const sl_command *command)
{
    const sl_plan_request *request = verify->request;
    const sl_op *op = &verify->program->ops[command->tick];
    return request->workspace(request->workspace_context, op->kind, &op->attrs,
                              lane_tier(command->lane));
}

static sl_status check_operand(const sl_verify *verify, const sl_command *command, uint32_t i)
{
    const sl_op *op = &verify->program->ops[command->tick];
    const sl_op_info *info = sl_op_info_of(op->kind);
    const sl_place *place = &verify->plan->places[command->first_place + i];
    const char *name = info->operand[i].name ? info->operand[i].name : "an operand";
    if (op->operand[i] == SL_NONE) {
        if (place->bytes != 0)
            return sl_verify_reject(verify, "has a place for %s, which is absent", name);
        return SL_OK;
    }
    const sl_value *value = &verify->program->values[op->operand[i]];
    SL_TRY(check_place(verify, place, value->bytes, name));
    SL_TRY(check_strides(verify, value, place, name));
    if (place->tier != lane_tier(command->lane))
        return sl_verify_reject(verify, "has %s in tier %s, out of its lane's reach", name,
                                sl_tier_name(place->tier));
    return check_value_place(verify, value, place, name);
}

static sl_status check_workspace(const sl_verify *verify, const sl_command *command)
{
    uint64_t needed = workspace_bytes(verify, command);
    const sl_place *place = &verify->plan->places[command->first_place + command->place_count - 1];
    if (place->bytes < needed)
        return sl_verify_reject(verify, "needs %llu bytes of workspace and has %llu",
                                (unsigned long long)needed, (unsigned long long)place->bytes);
    if (place->bytes == 0)
        return SL_OK;
    SL_TRY(check_place(verify, place, place->bytes, "workspace"));
    SL_TRY(check_strides(verify, NULL, place, "workspace"));
    if (place->tier != lane_tier(command->lane))
        return sl_verify_reject(verify, "has workspace in tier %s, out of its lane's reach",
                                sl_tier_name(place->tier));
    return SL_OK;
}

/* No two operands of a command may share bytes if one of them is written, unless they are one
 * object at one place. */
static sl_status check_disjoint(const sl_verify *verify, const sl_command *command)
{
    char first[SL_VERIFY_NAME_BYTES], second[SL_VERIFY_NAME_BYTES];
    sl_verify_access accesses[SL_VERIFY_ACCESS_MAX];
    uint32_t count = sl_verify_list_accesses(verify, command, accesses);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < i; j++) {
            bool is_same = accesses[i].object == accesses[j].object &&
                           sl_verify_places_equal(&accesses[i].place, &accesses[j].place);
            if (is_same || !(accesses[i].writes || accesses[j].writes) ||
                !sl_verify_places_overlap(&accesses[i].place, &accesses[j].place))
                continue;
            return sl_verify_reject(verify, "has %s and %s in the same %s bytes at %llu",
                                    sl_verify_name_object(verify, accesses[j].object, first),
                                    sl_verify_name_object(verify, accesses[i].object, second),
                                    sl_tier_name(accesses[i].place.tier),
                                    (unsigned long long)accesses[i].place.offset);
        }
    return SL_OK;
}

/* An update reads one flag for each block of its chunk, and so does the norm with several ranks. */
static sl_status check_flags(const sl_verify *verify, const sl_command *command)
{
    const sl_op *op = &verify->program->ops[command->tick];
    uint64_t blocks = op->attrs.element_count / SL_BLOCK_ELEMENTS;
    bool is_norm = op->kind == SL_OP_BLOCK_NORM && sl_program_counts_blocks(verify->program);
    uint64_t bytes = is_norm ? verify->homes->counted_bytes
                             : verify->homes->flags_bytes[lane_tier(command->lane)];
    bool reads_flags = is_norm || sl_op_info_of(op->kind)->updates_chunk;
    if (reads_flags && (blocks > bytes || op->attrs.first_block > bytes - blocks))
        return sl_verify_reject(verify, "needs %llu block flags from %llu on; there are %llu",
                                (unsigned long long)blocks,
                                (unsigned long long)op->attrs.first_block,
                                (unsigned long long)bytes);
    return SL_OK;
}

static sl_status check_run(const sl_verify *verify, const sl_command *command)
{
    if (command->tick >= verify->program->op_count)
        return sl_verify_reject(verify, "runs an op that the program does not have");
    const sl_op_info *info = sl_op_info_of(verify->program->ops[command->tick].kind);
    if (!allows_lane(verify, command->tick, command->lane))
        return sl_verify_reject(verify, "is on lane %d, where its op does not belong",
                                (int)command->lane);
    if (command->place_count != info->operand_count + 1)
        return sl_verify_reject(verify, "has %u places for %u operands and a workspace",
                                command->place_count, info->operand_count);
    if (command->first_place > verify->plan->place_count ||
        command->place_count > verify->plan->place_count - command->first_place)
        return sl_verify_reject(verify, "has places from %u on, behind the last",
                                command->first_place);
    for (uint32_t i = 0; i < info->operand_count; i++)
        SL_TRY(check_operand(verify, command, i));
    SL_TRY(check_workspace(verify, command));
    SL_TRY(check_flags(verify, command));
    SL_TRY(check_fixed(verify, command));
    return check_disjoint(verify, command);
}

/* ---- COPY ---- */

/* The lane that copies from one tier to another; SL_LANE_COUNT if there is none: every copy has the
 * host at one end. Does not use the planner's table of lanes, so that a mistake in it is found. */
static sl_lane copy_lane(sl_tier from, sl_tier to)
{
    if (from == SL_TIER_HOST && to != SL_TIER_HOST)
        return to == SL_TIER_DEVICE ? SL_LANE_H2D : SL_LANE_WRITE;
    if (to == SL_TIER_HOST && from != SL_TIER_HOST)
        return from == SL_TIER_DEVICE ? SL_LANE_D2H : SL_LANE_READ;
    return SL_LANE_COUNT;
}

static bool is_disk_copy(const sl_command *command)
{
    return command->from.tier == SL_TIER_DISK || command->to.tier == SL_TIER_DISK;
}

/* Disks are read and written by direct I/O, in whole pages at both ends. The disk tier keeps one
 * checksum for each SL_DISK_ALIGNMENT bytes, so two homes must not share one. */
static sl_status check_direct(const sl_verify *verify, const sl_command *command)
{
    const sl_place *places[] = {&command->from, &command->to};
    for (int i = 0; i < 2 && is_disk_copy(command); i++) {
        uint64_t stride = places[i]->slots > 1 ? places[i]->stride : 0;
        uint64_t alignment =
            places[i]->tier == SL_TIER_DISK ? SL_DISK_ALIGNMENT : SL_DIRECT_ALIGNMENT;
        if ((places[i]->offset | stride) % alignment || places[i]->bytes % SL_DIRECT_ALIGNMENT)
            return sl_verify_reject(verify, "has %s bytes [%llu, +%llu), which are not aligned",
                                    sl_tier_name(places[i]->tier),
                                    (unsigned long long)places[i]->offset,
                                    (unsigned long long)places[i]->bytes);
    }
    return SL_OK;
}

static sl_status check_copy_lane(const sl_verify *verify, const sl_command *command)
{
    sl_lane lane = copy_lane(command->from.tier, command->to.tier);
    if (lane == SL_LANE_COUNT)
        return sl_verify_reject(verify, "copies from %s to %s, which no lane does",
                                sl_tier_name(command->from.tier), sl_tier_name(command->to.tier));
    if (lane != command->lane)
        return sl_verify_reject(verify, "copies from %s to %s on lane %d",
                                sl_tier_name(command->from.tier), sl_tier_name(command->to.tier),
                                (int)command->lane);
    return SL_OK;
}

static sl_status check_chunk_copy(const sl_verify *verify, const sl_command *command)
{
    if ((unsigned)command->group >= SL_GROUP_COUNT || !verify->homes->tier[command->group] ||
        command->chunk_index >= verify->layout->chunk_count)
        return sl_verify_reject(verify, "copies a chunk that does not exist");
    uint64_t bytes = sl_layout_chunk_bytes(verify->layout, command->group, command->chunk_index);
    SL_TRY(check_place(verify, &command->from, bytes, "its source"));
    SL_TRY(check_place(verify, &command->to, bytes, "its target"));
    SL_TRY(check_strides(verify, NULL, &command->from, "its source"));
    SL_TRY(check_strides(verify, NULL, &command->to, "its target"));
    sl_tier home_tier = sl_verify_home(verify, command->group, command->chunk_index).tier;
    if (is_disk_copy(command) && home_tier != SL_TIER_DISK)
        return sl_verify_reject(verify, "has an end on disk, but the chunk's home is on the %s",
                                sl_tier_name(home_tier));
    SL_TRY(check_at_home(verify, &command->from, command->group, command->chunk_index));
    return check_at_home(verify, &command->to, command->group, command->chunk_index);
}

/* A copy of a family must be in a section of as many repetitions as the family has instances; a
 * copy of a value that is local to a section must be in this section. */
static sl_status check_value_section(const sl_verify *verify, const sl_command *command)
{
    const sl_value *value = &verify->program->values[command->value];
    const sl_verify_value *it = &verify->values[command->value];
    uint32_t repeat =
        verify->is_prologue ? 1 : sl_verify_section(verify, verify->section_index).repeat;
    if (sl_verify_instances(value) > 1 && value->instances != repeat)
        return sl_verify_reject(verify, "copies a family of %u in a section of %u repetitions",
                                value->instances, repeat);
    if (it->is_local && (verify->is_prologue || it->section != verify->section_index))
        return sl_verify_reject(verify, "copies a value that section %u uses alone", it->section);
    return SL_OK;
}

/* The host end of a copy of an output, or of an input that the caller fills, is its buffer. */
static sl_status check_value_copy(const sl_verify *verify, const sl_command *command)
{
    if (command->value >= verify->program->value_count)
        return sl_verify_reject(verify, "copies a value that does not exist");
    const sl_value *value = &verify->program->values[command->value];
    bool has_buffer = value->kind == SL_VALUE_INPUT || value->kind == SL_VALUE_OUTPUT;
    if (!has_buffer && value->kind != SL_VALUE_ACTIVATION)
        return sl_verify_reject(verify, "copies a value that does not move by itself");
    if (has_buffer && is_disk_copy(command))
        return sl_verify_reject(verify, "has an end on disk, where no input or output is");
    SL_TRY(check_place(verify, &command->from, value->bytes, "its source"));
    SL_TRY(check_place(verify, &command->to, value->bytes, "its target"));
    SL_TRY(check_strides(verify, value, &command->from, "its source"));
    SL_TRY(check_strides(verify, value, &command->to, "its target"));
    SL_TRY(check_value_section(verify, command));
    bool is_fetch = value->kind == SL_VALUE_INPUT || command->from.tier == SL_TIER_HOST;
    const sl_place *host = is_fetch ? &command->from : &command->to;
    const sl_verify_value *it = &verify->values[command->value];
    if (has_buffer && !it->is_filled && !sl_verify_places_equal(host, &it->buffer))
        return sl_verify_reject(verify, "has its end at %s byte %llu, not at the value's buffer",
                                sl_tier_name(host->tier), (unsigned long long)host->offset);
    return SL_OK;
}

static sl_status check_copy(const sl_verify *verify, const sl_command *command)
{
    if (command->tick > verify->program->op_count)
        return sl_verify_reject(verify, "is issued at tick %u, after the last", command->tick);
    if (command->chunk_index != SL_NONE)
        SL_TRY(check_chunk_copy(verify, command));
    else
        SL_TRY(check_value_copy(verify, command));
    SL_TRY(check_copy_lane(verify, command));
    SL_TRY(check_direct(verify, command));
    return check_fixed(verify, command);
}

/* ---- commands in sequence ---- */

static sl_status check_waits(const sl_verify *verify, const sl_command *command)
{
    const sl_plan *plan = verify->plan;
    if (command->first_wait > plan->wait_count ||
        command->wait_count > plan->wait_count - command->first_wait)
        return sl_verify_reject(verify, "has waits from %u on, behind the last",
                                command->first_wait);
    if (verify->is_prologue && command->wait_count > 0)
        return sl_verify_reject(verify, "has waits");
    for (uint32_t i = 0; i < command->wait_count; i++) {
        const sl_wait *wait = &plan->waits[command->first_wait + i];
        if (wait->command >= plan->body_count)
            return sl_verify_reject(verify, "waits for command %u, which does not exist",
                                    wait->command);
        if (wait->age > 1)
            return sl_verify_reject(verify, "waits %u issues back", wait->age);
    }
    return SL_OK;
}

static sl_status check_command(const sl_verify *verify, const sl_command *command)
{
    if ((unsigned)command->lane >= SL_LANE_COUNT)
        return sl_verify_reject(verify, "is on lane %d, which does not exist", (int)command->lane);
    SL_TRY(check_waits(verify, command));
    if (command->kind == SL_COMMAND_COPY)
        return check_copy(verify, command);
    if (command->kind != SL_COMMAND_RUN || verify->is_prologue)
        return sl_verify_reject(verify, "is of a kind that has no place here");
    return check_run(verify, command);
}

/* A section of the body runs its ops in tick order, each once. The copies of a tick are before the
 * op of this tick; copies of the tick after the section's last op are at the end. */
static sl_status check_sequence(sl_verify *verify, uint32_t *next_tick)
{
    sl_section of_ops = sl_program_section(verify->program, verify->section_index);
    sl_section section = sl_verify_section(verify, verify->section_index);
    for (uint32_t i = section.first; i < section.first + section.count; i++) {
        const sl_command *command = &verify->plan->body[i];
        verify->command_index = i;
        if (command->kind == SL_COMMAND_COPY && command->tick != *next_tick)
            return sl_verify_reject(verify,
                                    "says that it is issued before op %u, but op %u is next",
                                    command->tick, *next_tick);
        if (command->kind == SL_COMMAND_COPY)
            continue;
        if (command->tick != *next_tick)
            return sl_verify_reject(verify, "runs op %u where op %u is next", command->tick,
                                    *next_tick);
        if (command->tick >= of_ops.first + of_ops.count)
            return sl_verify_reject(verify, "runs op %u, which is of another section",
                                    command->tick);
        ++*next_tick;
    }
    verify->command_index = SL_NONE;
    if (*next_tick != of_ops.first + of_ops.count)
        return sl_verify_reject(verify, "it runs the ops of section %u up to %u and not to %u",
                                verify->section_index, *next_tick, of_ops.first + of_ops.count);
    return SL_OK;
}

static sl_status check_commands(sl_verify *verify, const sl_command *commands, sl_section section)
{
    for (uint32_t i = section.first; i < section.first + section.count; i++) {
        verify->command_index = i;
        SL_TRY(check_command(verify, &commands[i]));
    }
    verify->command_index = SL_NONE;
    return SL_OK;
}

static sl_status check_all_commands(sl_verify *verify)
{
    const sl_plan *plan = verify->plan;
    const sl_section prologue = {0, plan->prologue_count, 0, 1};
    uint32_t section_count = sl_program_section_count(verify->program), next_tick = 0;
    verify->is_prologue = true;
    SL_TRY(check_commands(verify, plan->prologue, prologue));
    verify->is_prologue = false;
    for (uint32_t s = 0; s < section_count; s++) {
        verify->section_index = s;
        SL_TRY(check_commands(verify, plan->body, sl_verify_section(verify, s)));
    }
    for (uint32_t s = 0; s < section_count; s++) {
        verify->section_index = s;
        SL_TRY(check_sequence(verify, &next_tick));
    }
    return SL_OK;
}

sl_status sl_verify_shape(sl_verify *verify)
{
    SL_TRY(sl_verify_request(verify));
    SL_TRY(find_values(verify));
    SL_TRY(find_buffers(verify));
    SL_TRY(check_sections(verify));
    return check_all_commands(verify);
}
