/* The names of commands in reports, timelines and GPU profilers. */
#include <stdio.h>

#include "chunk/plan.h"

static void describe_op(const sl_program *program, const sl_op *op,
                        char name[SL_COMMAND_NAME_BYTES])
{
    const sl_op_info *info = sl_op_info_of(op->kind);
    const char *value = "";
    for (uint32_t i = 0; i < info->operand_count && !*value; i++)
        if (op->operand[i] != SL_NONE && sl_op_writes(op, i))
            value = program->values[op->operand[i]].name;
    snprintf(name, SL_COMMAND_NAME_BYTES, "%s%s%s", info->name, *value ? " " : "", value);
}

void sl_command_describe(const sl_program *program, const sl_command *command,
                         char out_name[SL_COMMAND_NAME_BYTES])
{
    if (command->kind == SL_COMMAND_RUN)
        describe_op(program, &program->ops[command->tick], out_name);
    else if (command->chunk_index != SL_NONE)
        snprintf(out_name, SL_COMMAND_NAME_BYTES, "%s %u", sl_group_name(command->group),
                 command->chunk_index);
    else
        snprintf(out_name, SL_COMMAND_NAME_BYTES, "%s", program->values[command->value].name);
}
