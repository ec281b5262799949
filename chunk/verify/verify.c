/* Accepts or rejects plans: allocates the shared state, runs the checks one after the other, and
 * writes the message of a rejection.
 *
 * The verifier is written from the contract in chunk/plan.h alone, so that it does not repeat a
 * mistake of the planner. It assumes nothing about how plans are made.
 */
#include "verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

sl_section sl_verify_section(const sl_verify *verify, uint32_t index)
{
    const sl_plan *plan = verify->plan;
    const sl_section whole = {0, plan->body_count, 0, 1};
    return plan->section_count > 0 ? plan->sections[index] : whole;
}

/* ---- messages ---- */

const char *sl_verify_name_object(const sl_verify *verify, uint32_t object,
                                  char out_name[SL_VERIFY_NAME_BYTES])
{
    const sl_program *program = verify->program;
    if (object == SL_NONE) {
        snprintf(out_name, SL_VERIFY_NAME_BYTES, "workspace");
    } else if (object < program->value_count) {
        snprintf(out_name, SL_VERIFY_NAME_BYTES, "value %u (%.47s)", object,
                 program->values[object].name);
    } else if (object >= verify->first_family_object) {
        uint32_t value = verify->family_value[object - verify->first_family_object];
        snprintf(out_name, SL_VERIFY_NAME_BYTES, "value %u (%.47s), instance %u", value,
                 program->values[value].name, object - verify->values[value].second_object + 1);
    } else if (object >= sl_verify_persistent_object(verify, 0)) {
        snprintf(out_name, SL_VERIFY_NAME_BYTES, "persistent slot %u",
                 object - sl_verify_persistent_object(verify, 0));
    } else {
        uint32_t rest = object - program->value_count;
        snprintf(out_name, SL_VERIFY_NAME_BYTES, "%s chunk %u",
                 sl_group_name((sl_group)(rest / verify->layout->chunk_count)),
                 rest % verify->layout->chunk_count);
    }
    return out_name;
}

/* Also safe for commands whose shape has not been checked yet. */
const char *sl_verify_name_command(const sl_verify *verify, const sl_command *command,
                                   char out_name[SL_VERIFY_NAME_BYTES])
{
    const sl_program *program = verify->program;
    bool is_run = command->kind == SL_COMMAND_RUN;
    if (is_run && command->tick < program->op_count)
        snprintf(out_name, SL_VERIFY_NAME_BYTES, "%s, tick %u",
                 sl_op_info_of(program->ops[command->tick].kind)->name, command->tick);
    else if (is_run)
        snprintf(out_name, SL_VERIFY_NAME_BYTES, "no op, tick %u", command->tick);
    else if (command->chunk_index != SL_NONE && (unsigned)command->group < SL_GROUP_COUNT)
        snprintf(out_name, SL_VERIFY_NAME_BYTES, "copy of %s chunk %u",
                 sl_group_name(command->group), command->chunk_index);
    else
        snprintf(out_name, SL_VERIFY_NAME_BYTES, "copy of value %u", command->value);
    return out_name;
}

/* " in repetition 2 of section 1", or nothing. */
static const char *name_repetition(const sl_verify *verify, char out_name[SL_VERIFY_NAME_BYTES])
{
    bool is_repeated =
        !verify->is_prologue && sl_verify_section(verify, verify->section_index).repeat > 1;
    out_name[0] = '\0';
    if (is_repeated && verify->repetition != SL_NONE)
        snprintf(out_name, SL_VERIFY_NAME_BYTES, " in repetition %u of section %u",
                 verify->repetition, verify->section_index);
    else if (is_repeated)
        snprintf(out_name, SL_VERIFY_NAME_BYTES, " of section %u", verify->section_index);
    return out_name;
}

sl_status sl_verify_reject(const sl_verify *verify, const char *format, ...)
{
    char what[512], name[SL_VERIFY_NAME_BYTES], when[SL_VERIFY_NAME_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (verify->command_index == SL_NONE)
        SL_FAIL(SL_ERROR_INTERNAL, "the plan is wrong: %s", what);
    const sl_command *commands = verify->is_prologue ? verify->plan->prologue : verify->plan->body;
    SL_FAIL(SL_ERROR_INTERNAL, "the plan is wrong: %scommand %u (%s)%s %s",
            verify->is_prologue ? "prologue " : "", verify->command_index,
            sl_verify_name_command(verify, &commands[verify->command_index], name),
            name_repetition(verify, when), what);
}

/* ---- all checks ---- */

/* The objects of families come last. sl_verify_shape checks later that only activations have
 * several instances. */
static sl_status count_objects(sl_verify *verify)
{
    const sl_program *program = verify->program;
    uint64_t objects = (uint64_t)program->value_count +
                       (uint64_t)SL_GROUP_COUNT * verify->layout->chunk_count +
                       verify->homes->persistent_count;
    uint64_t instances = 0;
    for (uint32_t i = 0; i < program->value_count; i++)
        instances += sl_verify_replays(sl_verify_instances(&program->values[i])) - 1;
    if (objects + instances >= SL_NONE)
        return sl_verify_reject(verify, "it has too many values and chunks");
    verify->first_family_object = (uint32_t)objects;
    verify->object_count = (uint32_t)(objects + instances);
    return SL_OK;
}

static void number_instances(sl_verify *verify)
{
    uint32_t next = verify->first_family_object;
    for (uint32_t i = 0; i < verify->program->value_count; i++) {
        const sl_value *value = &verify->program->values[i];
        verify->values[i].second_object = next;
        for (uint32_t r = 1; r < sl_verify_replays(sl_verify_instances(value)); r++)
            verify->family_value[next++ - verify->first_family_object] = i;
    }
}

static sl_status open_verify(sl_verify *verify)
{
    SL_TRY(count_objects(verify));
    size_t objects = (size_t)verify->object_count + 1;
    verify->values = calloc((size_t)verify->program->value_count + 1, sizeof *verify->values);
    verify->family_value =
        calloc(objects - verify->first_family_object, sizeof *verify->family_value);
    verify->version = calloc(objects, sizeof *verify->version);
    verify->written_rows = calloc(objects, sizeof *verify->written_rows);
    verify->is_defined = calloc(objects, sizeof *verify->is_defined);
    verify->is_used_up = calloc(objects, sizeof *verify->is_used_up);
    verify->is_unwritten =
        calloc((size_t)verify->layout->tensor_count + 1, sizeof *verify->is_unwritten);
    if (!verify->values || !verify->family_value || !verify->version || !verify->written_rows ||
        !verify->is_defined || !verify->is_used_up || !verify->is_unwritten)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to verify a plan of %u commands",
                verify->plan->body_count);
    number_instances(verify);
    return SL_OK;
}

static void close_verify(sl_verify *verify)
{
    sl_verify_replay_close(verify);
    sl_verify_cells_close(verify);
    free(verify->is_unwritten);
    free(verify->is_used_up);
    free(verify->is_defined);
    free(verify->written_rows);
    free(verify->version);
    free(verify->family_value);
    free(verify->values);
}

sl_status sl_plan_verify(const sl_plan_request *request, const sl_plan *plan)
{
    sl_verify verify = {.request = request,
                        .program = request->program,
                        .layout = request->layout,
                        .homes = request->homes,
                        .plan = plan,
                        .command_index = SL_NONE,
                        .repetition = SL_NONE};
    sl_status status;
    SL_TRY_GOTO(status, open_verify(&verify), close);
    SL_TRY_GOTO(status, sl_verify_shape(&verify), close);
    SL_TRY_GOTO(status, sl_verify_cells_open(&verify), close);
    SL_TRY_GOTO(status, sl_verify_replay(&verify), close);
    SL_TRY_GOTO(status, sl_verify_memory(&verify), close);
close:
    close_verify(&verify);
    return status;
}
