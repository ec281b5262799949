/* How program and plan are divided: that the sections of the plan are those of the program, and
 * what the sections make of values. Knows no places. */
#include "verify.h"

sl_section sl_verify_section(const sl_verify *verify, uint32_t index)
{
    const sl_plan *plan = verify->plan;
    const sl_section whole = {0, plan->body_count, 0, 1};
    return plan->section_count > 0 ? plan->sections[index] : whole;
}

uint32_t sl_verify_section_of_tick(const sl_verify *verify, uint32_t tick)
{
    uint32_t low = 0, high = sl_program_section_count(verify->program);
    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;
        if (verify->program->sections[middle].first <= tick)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* ---- what the sections make of values ---- */

static sl_status check_family(const sl_verify *verify, uint32_t index)
{
    const sl_value *value = &verify->program->values[index];
    if (sl_verify_instances(value) > 1 && value->kind != SL_VALUE_ACTIVATION)
        return sl_verify_reject(verify,
                                "value %u (%.39s) is a family of something else than "
                                "activations",
                                index, value->name);
    return SL_OK;
}

static sl_status note_operand(sl_verify *verify, uint32_t section_index, uint32_t tick, uint32_t i)
{
    const sl_op *op = &verify->program->ops[tick];
    const sl_section section = sl_program_section(verify->program, section_index);
    const sl_value *value = &verify->program->values[op->operand[i]];
    sl_verify_value *it = &verify->values[op->operand[i]];
    bool is_new = !it->is_used, is_input = sl_op_info_of(op->kind)->is_input;
    if (sl_verify_instances(value) > 1 && value->instances != section.repeat)
        return sl_verify_reject(verify,
                                "op %u of its program uses value %u (%.39s) of %u instances in a "
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

/* Inputs of the caller's and outputs are used by the caller, too. */
static void note_local(sl_verify *verify, uint32_t index)
{
    const sl_value *value = &verify->program->values[index];
    sl_verify_value *it = &verify->values[index];
    bool may_be =
        value->kind == SL_VALUE_ACTIVATION || (value->kind == SL_VALUE_INPUT && it->is_filled);
    it->is_local = may_be && it->is_used && it->section != SL_NONE &&
                   sl_verify_instances(value) == 1 &&
                   sl_program_section(verify->program, it->section).repeat > 1;
}

sl_status sl_verify_values(sl_verify *verify)
{
    const sl_program *program = verify->program;
    for (uint32_t i = 0; i < program->value_count; i++) {
        SL_TRY(check_family(verify, i));
        verify->values[i].section = SL_NONE;
    }
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        sl_section section = sl_program_section(program, s);
        for (uint32_t tick = section.first; tick < section.first + section.count; tick++)
            for (uint32_t i = 0; i < sl_op_info_of(program->ops[tick].kind)->operand_count; i++)
                if (program->ops[tick].operand[i] != SL_NONE)
                    SL_TRY(note_operand(verify, s, tick, i));
    }
    for (uint32_t i = 0; i < program->value_count; i++)
        note_local(verify, i);
    return SL_OK;
}

/* ---- the plan's sections ---- */

static sl_status check_section(const sl_verify *verify, uint32_t index, uint32_t first)
{
    const sl_section of_ops = sl_program_section(verify->program, index);
    const sl_section it = sl_verify_section(verify, index);
    if (it.repeat != of_ops.repeat || it.first_micro_batch != of_ops.first_micro_batch)
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

/* How many commands are issued in an iteration that is replayed. */
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

sl_status sl_verify_sections(sl_verify *verify)
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
