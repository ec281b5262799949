/* sluice doctor: what this machine has, what is missing, what each missing thing costs, and what
 * mends it. */
#include <stdarg.h>
#include <stdio.h>

#include "cli/terminal.h"
#include "files/json_file.h"
#include "findings.h"

static const char *const state_names[SL_FINDING_STATE_COUNT] = {"ok", "degraded", "missing"};

static const sl_terminal_style state_styles[SL_FINDING_STATE_COUNT] = {
    SL_TERMINAL_PLAIN, SL_TERMINAL_WARNING, SL_TERMINAL_ERROR};

enum { VALUE_COLUMN = 26, COST_COLUMN = VALUE_COLUMN + 9 };

sl_finding *sl_findings_add(sl_findings *all, const char *name, const char *format, ...)
{
    uint32_t last = SL_FINDING_MAX - 1;
    sl_finding *fresh = &all->items[all->count < last ? all->count++ : last];
    va_list arguments;
    *fresh = (sl_finding){.state = SL_FINDING_OK};
    va_start(arguments, format);
    snprintf(fresh->name, sizeof fresh->name, "%s", name);
    vsnprintf(fresh->value, sizeof fresh->value, format, arguments);
    va_end(arguments);
    return fresh;
}

void sl_finding_cost(sl_finding *one, sl_finding_state state, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(one->cost, sizeof one->cost, format, arguments);
    va_end(arguments);
    one->state = state;
}

void sl_finding_mend(sl_finding *one, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(one->mend, sizeof one->mend, format, arguments);
    va_end(arguments);
}

static void print_text(const sl_findings *all)
{
    uint32_t counts[SL_FINDING_STATE_COUNT] = {0};
    for (uint32_t i = 0; i < all->count; i++) {
        const sl_finding *one = &all->items[i];
        counts[one->state]++;
        sl_terminal_print(stdout, VALUE_COLUMN, "%s%-9s%s %-15s %s",
                          sl_terminal_begin(stdout, state_styles[one->state]),
                          state_names[one->state], sl_terminal_begin(stdout, SL_TERMINAL_PLAIN),
                          one->name, one->value);
        if (*one->cost)
            sl_terminal_print(stdout, COST_COLUMN, "%*scosts: %s", VALUE_COLUMN + 2, "", one->cost);
        if (*one->mend)
            sl_terminal_print(stdout, COST_COLUMN, "%*smend:  %s", VALUE_COLUMN + 2, "", one->mend);
    }
    printf("\n%u ok, %u degraded, %u missing\n", counts[SL_FINDING_OK], counts[SL_FINDING_DEGRADED],
           counts[SL_FINDING_MISSING]);
}

/* Names of mounts and directories are the system's, and may be any bytes. */
static sl_status add_json(json_t *object, const sl_finding *one)
{
    json_t *finding = json_pack("{s:s, s:o, s:o, s:o}", "state", state_names[one->state], "value",
                                sl_json_file_text(one->value), "cost", sl_json_file_text(one->cost),
                                "mend", sl_json_file_text(one->mend));
    if (json_object_set_new(object, one->name, finding) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for what was found");
    return SL_OK;
}

static sl_status print_json(const sl_findings *all)
{
    json_t *object = json_object();
    sl_status status = SL_OK;
    for (uint32_t i = 0; i < all->count && status == SL_OK; i++)
        status = add_json(object, &all->items[i]);
    if (status == SL_OK)
        status = sl_command_print_json(object, 17);
    json_decref(object);
    return status;
}

static int doctor(sl_config *config)
{
    sl_findings all = {0};
    sl_status status = SL_OK, proven = SL_OK;
    sl_findings_add_machine(&all);
    sl_findings_add_devices(&all, (uint32_t)config->threads);
    sl_findings_add_storage(&all, &config->disk_dir);
    if (config->self_test)
        proven = sl_findings_add_proofs(&all, &config->disk_dir);
    if (config->json)
        status = print_json(&all);
    else
        print_text(&all);
    return sl_command_end(status == SL_OK ? proven : status);
}

const sl_command_entry sl_command_doctor = {
    .options = SL_CONFIG_DOCTOR,
    .task = SL_COMMAND_MACHINE,
    .name = "doctor",
    .summary = "what this machine has and what is missing",
    .doc = "Prints what this machine has, what is missing or not as it could be, what that costs "
           "and the command that mends it. With --disk-dir the disk tier is tried there. With "
           "--self-test each GPU proves itself; a wrong answer ends with exit code 71.",
    .page = "docs/machine.md",
    .run = doctor};
