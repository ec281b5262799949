/* sluice plan: the plan that train would run, as a table or as JSON. Nothing large is allocated. */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/plural.h"
#include "busy_line.h"
#include "command.h"
#include "compare.h"
#include "device/device.h"
#include "plan_cluster.h"
#include "plan_ranks.h"
#include "report/explain.h"
#include "report/page.h"
#include "report/schedule_text.h"
#include "run_config.h"
#include "search/plan_json.h"
#include "terminal.h"
#include "train/plan_account.h"
#include "train/preparation.h"

enum { RULE_COLUMN = 29, CHOICE_COLUMN = 16 };

static void print_row(const char *name, const char *note, const uint64_t bytes[SL_TIER_COUNT])
{
    printf("  %-12s %14s %14s %14s%s\n", name, sl_command_format_size(bytes[SL_TIER_DEVICE]).text,
           sl_command_format_size(bytes[SL_TIER_HOST]).text,
           sl_command_format_size(bytes[SL_TIER_DISK]).text, note);
}

static void print_tiers(const sl_blueprint *blueprint)
{
    uint64_t peak[SL_TIER_COUNT], live[SL_TIER_COUNT];
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        peak[tier] = sl_blueprint_peak_bytes(blueprint, (sl_tier)tier);
        live[tier] = sl_blueprint_live_peak_bytes(blueprint, (sl_tier)tier);
    }
    printf("%s  %-12s %14s %14s %14s%s\n", sl_terminal_begin(stdout, SL_TERMINAL_HEADING), "bytes",
           "device", "host", "disk", sl_terminal_begin(stdout, SL_TERMINAL_PLAIN));
    for (int kind = 0; kind < SL_MEMORY_KIND_COUNT; kind++) {
        uint64_t bytes[SL_TIER_COUNT], any = 0;
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            any |= bytes[tier] = blueprint->plans[0]->kind_bytes[tier][kind];
        if (any)
            print_row(sl_plan_json_kind_names[kind], "", bytes);
    }
    print_row("live peak", "  (a lower bound)", live);
    print_row("peak", "", peak);
    print_row("budget", "", blueprint->budget_bytes);
}

static void print_lanes(const sl_blueprint *blueprint, const sl_simulation *simulation)
{
    printf("\n%s  %-12s %14s %14s %14s%s\n", sl_terminal_begin(stdout, SL_TERMINAL_HEADING), "lane",
           "moved a step", "busy", "compute waits", sl_terminal_begin(stdout, SL_TERMINAL_PLAIN));
    for (int lane = 0; lane < SL_LANE_COUNT; lane++) {
        if (simulation->busy_seconds[lane] <= 0)
            continue;
        printf("  %-12s %14s %11.2f ms %11.2f ms\n", sl_lane_name((sl_lane)lane),
               sl_command_format_size(blueprint->plans[0]->moved_bytes[lane]).text,
               1e3 * simulation->busy_seconds[lane], 1e3 * simulation->stall_seconds[lane]);
    }
}

static void print_wear(const sl_blueprint *blueprint, const sl_simulation *simulation)
{
    char text[160];
    uint64_t written = blueprint->plans[0]->moved_bytes[SL_LANE_WRITE];
    if (written == 0)
        return;
    sl_wear wear =
        sl_wear_project((double)written, simulation->step_seconds, blueprint->task.disk_endurance);
    sl_command_describe_wear(&wear, text, sizeof text);
    sl_terminal_print(stdout, 2, "disk: %s", text);
}

/* What muon's matrices take of the step's FLOPs, if there are any. Every rank turns all of them. */
static void print_orthogonalisation(const sl_blueprint *blueprint)
{
    const sl_program *program = blueprint->programs[0];
    double all = 0, own = 0;
    char ranks[64] = "";
    for (uint32_t s = 0; s < sl_program_section_count(program); s++) {
        const sl_section section = sl_program_section(program, s);
        for (uint32_t o = section.first; o < section.first + section.count; o++) {
            const sl_op *op = &program->ops[o];
            const double flops = section.repeat * (double)sl_op_flops(op->kind, &op->attrs);
            all += flops;
            own += op->kind == SL_OP_ORTHOGONALISE ? flops : 0;
        }
    }
    if (own == 0)
        return;
    if (program->dp_size > 1)
        snprintf(ranks, sizeof ranks, ", on each of %u data-parallel ranks", program->dp_size);
    printf("\n");
    sl_terminal_print(stdout, 2,
                      "muon: orthogonalising takes %.3g of the step's %.3g TFLOP (%.1f%%)%s, "
                      "however many rows a step has",
                      1e-12 * own, 1e-12 * all, 100 * own / all, ranks);
}

static void print_thumbs(const sl_blueprint *blueprint, const sl_account *account)
{
    sl_thumb thumbs[SL_EXPLAIN_THUMBS];
    const int count = sl_explain_thumbs(blueprint, account, thumbs);
    printf("\nby rule of thumb, and planned:\n");
    for (int i = 0; i < count; i++) {
        const sl_thumb *thumb = &thumbs[i];
        if (thumb->is_bytes)
            sl_terminal_print(stdout, RULE_COLUMN, "  %12s %12s  %s",
                              sl_command_format_size((uint64_t)thumb->says).text,
                              sl_command_format_size((uint64_t)thumb->planned).text, thumb->rule);
        else
            sl_terminal_print(stdout, RULE_COLUMN, "  %12.0f %12.0f  %s", thumb->says,
                              thumb->planned, thumb->rule);
    }
}

static void print_schedule(const sl_blueprint *blueprint)
{
    sl_schedule_text schedule;
    sl_schedule_describe(blueprint->programs[0], &schedule);
    printf("\nthe step, in order (segment 0 is the embedding, the last ones are the head):\n");
    for (uint32_t i = 0; i < schedule.count; i++)
        sl_terminal_print(stdout, 4, "  %s", schedule.lines[i]);
    if (schedule.count == SL_SCHEDULE_LINES)
        puts("  …");
}

/* Why the plan is as it is, after the table. */
static sl_status print_explanation(const sl_blueprint *blueprint)
{
    sl_account *account = NULL;
    sl_explanation explanation;
    const sl_account_request request = sl_report_request(blueprint);
    SL_TRY(sl_account_open(&request, &account));
    sl_explain_plan(blueprint, account, &explanation);
    putchar('\n');
    for (uint32_t i = 0; i < explanation.count; i++)
        sl_terminal_print(stdout, 2, "%s", explanation.lines[i]);
    print_schedule(blueprint);
    print_thumbs(blueprint, account);
    sl_account_close(account);
    return SL_OK;
}

/* The best choices, a line each, and whether the machine was measured; nothing where the policy was
 * given. */
static void print_candidates(const sl_search *search, const sl_plan_stages *stages)
{
    const sl_search_candidates *candidates = &stages->candidates;
    const sl_machine *machine = &stages->blueprint->machine;
    char text[512];
    if (!search->auto_policy || candidates->count == 0)
        return;
    sl_terminal_print(
        stdout, 2,
        "auto compared %u plan%s, and takes a later one if the step is 2 %% shorter; the fastest, "
        "by %s%s:",
        candidates->planned_count, sl_plural(candidates->planned_count), sl_machine_basis(machine),
        !sl_machine_is_guess(machine) ? "" : " (this machine was not measured: sluice bench)");
    for (uint32_t i = 0; i < candidates->count; i++) {
        const sl_search_candidate *it = &candidates->best[i];
        sl_command_describe_choice(&it->choice, text, sizeof text);
        sl_terminal_print(
            stdout, CHOICE_COLUMN, "  %10.2f ms, bound by %s%s%s; device %s, host %s, disk %s: %s",
            1e3 * it->seconds, sl_terminal_begin(stdout, SL_TERMINAL_BOUND),
            sl_plan_account_find_bound(it, machine), sl_terminal_begin(stdout, SL_TERMINAL_PLAIN),
            sl_command_format_size(it->peak_bytes[SL_TIER_DEVICE]).text,
            sl_command_format_size(it->peak_bytes[SL_TIER_HOST]).text,
            sl_command_format_size(it->peak_bytes[SL_TIER_DISK]).text, text);
    }
}

static sl_status print_table(const sl_trainer *trainer, const sl_plan_stages *stages)
{
    const sl_blueprint *blueprint = stages->blueprint;
    sl_simulation simulation;
    SL_TRY(sl_plan_simulate(blueprint->programs[0], blueprint->plans[0], &blueprint->machine,
                            &simulation));
    const sl_choice *choice = &blueprint->choice;
    const sl_layout *layout = blueprint->layout;
    char text[512];
    sl_command_describe_size(blueprint, text, sizeof text);
    printf("%s; a step is %u x %u row%s of %u tokens, in %s\n", text, choice->accumulate,
           choice->micro_batch, sl_plural(choice->micro_batch), blueprint->task.seq,
           sl_type_name(blueprint->task.type));
    sl_command_describe_device(&blueprint->task, text, sizeof text);
    sl_terminal_print(stdout, 2, "on %s", text);
    sl_command_describe_choice(choice, text, sizeof text);
    sl_terminal_print(stdout, 2, "%s", text);
    printf("%u chunk%s of at most %" PRIu64 " elements (%s), %.2f%% padding\n\n",
           layout->chunk_count, sl_plural(layout->chunk_count), layout->largest_elements,
           sl_command_format_size(layout->largest_elements *
                                  sl_type_bytes(layout->group_type[SL_GROUP_PARAM]))
               .text,
           100 * layout->padding_fraction);
    print_tiers(blueprint);
    print_lanes(blueprint, &simulation);
    print_orthogonalisation(blueprint);
    putchar('\n');
    sl_terminal_print(stdout, 2, "%spredicted step%s: %.2f ms (%s)",
                      sl_terminal_begin(stdout, SL_TERMINAL_HEADING),
                      sl_terminal_begin(stdout, SL_TERMINAL_PLAIN), 1e3 * simulation.step_seconds,
                      blueprint->machine.name);
    print_wear(blueprint, &simulation);
    print_candidates(&trainer->search, stages);
    SL_TRY(sl_plan_ranks_print(&trainer->ranks.layout, stages));
    return trainer->config->explain ? print_explanation(blueprint) : SL_OK;
}

/* A plan may be for another machine, or for later. */
static void warn_if_beyond_machine(const sl_blueprint *blueprint)
{
    uint64_t free_bytes, bytes = sl_blueprint_peak_bytes(blueprint, SL_TIER_HOST);
    if (blueprint->task.target.device == SL_DEVICE_CPU)
        bytes += sl_blueprint_peak_bytes(blueprint, SL_TIER_DEVICE);
    if (sl_device_host_free_bytes(&free_bytes) == SL_OK && bytes > free_bytes)
        sl_log_write(SL_LOG_WARNING,
                     "%s of memory are planned, and %s are free here now: train refuses that",
                     sl_command_format_size(bytes).text, sl_command_format_size(free_bytes).text);
}

static sl_status print_fit(const sl_trainer *trainer, const sl_plan_stages *stages)
{
    json_t *object = NULL;
    if (!trainer->config->json)
        return print_table(trainer, stages);
    SL_TRY(sl_plan_account_format(trainer, stages, true, &object));
    const sl_status status = sl_command_print_json(object, 17);
    json_decref(object);
    return status;
}

/* The message of the refusal stays for the line on standard error. */
static void print_failure(const sl_search *search, const sl_refusal *refusal)
{
    json_t *object = NULL;
    if (sl_plan_account_format_refusal(search, refusal, &object) == SL_OK)
        (void)sl_command_print_json(object, 17);
    json_decref(object);
}

/* A plan that does not fit is drawn with the memory it would need; the refusal's message stays. A
 * report that cannot be made of it is only said. */
static void report_overflow(const sl_trainer *trainer, const sl_refusal *refusal)
{
    char message[1024];
    uint64_t budgets[SL_TIER_COUNT];
    sl_blueprint *blueprint = NULL;
    snprintf(message, sizeof message, "%s", sl_status_message());
    sl_status status = sl_search_overflow(&trainer->search, &refusal->failure, &blueprint, budgets);
    if (status == SL_OK)
        status = sl_report_write(trainer->config->report,
                                 &(sl_report_args){.blueprint = blueprint,
                                                   .asked_budget_bytes = budgets,
                                                   .refusal = message},
                                 NULL);
    if (status == SL_OK)
        sl_log_write(SL_LOG_NOTE, "%s shows what overflows", trainer->config->report);
    else
        sl_log_write(SL_LOG_WARNING, "no report: %s", sl_status_message());
    sl_blueprint_close(blueprint);
    (void)sl_status_fail(SL_ERROR_FIT, "%s", message);
}

static sl_status draw_stages(sl_config *config, sl_trainer *trainer, sl_plan_stages *stages)
{
    sl_refusal refusal;
    sl_busy_line line;
    sl_busy_line_begin(&line, config, "planning", NULL);
    sl_status status = sl_plan_stages_draw(trainer, stages, &refusal);
    sl_busy_line_end(&line);
    if (status == SL_ERROR_FIT && config->report)
        report_overflow(trainer, &refusal);
    if (status == SL_ERROR_FIT && config->json)
        print_failure(&trainer->search, &refusal);
    return status;
}

/* Each stage has a choice of its own, which its ranks find again: of several only the layout is
 * written. NULL: no memory. */
static json_t *format_chosen(const sl_config *config, const sl_plan_stages *stages)
{
    const sl_blueprint *blueprint = stages->blueprint;
    const struct {
        const char *key;
        uint64_t number;
    } numbers[] = {{"tp", config->tp},
                   {"pp", config->pp},
                   {"zero", config->zero},
                   {"micro_batch", blueprint->choice.micro_batch},
                   {"global_batch", config->global_batch},
                   {"seq", config->seq}};
    json_t *object = stages->count > 1 ? json_object() : sl_run_config_format(&blueprint->choice);
    int failed = object ? json_object_set_new(object, "precision",
                                              json_string(sl_type_name(blueprint->task.type)))
                        : 1;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && !failed; i++)
        failed = json_object_set_new(object, numbers[i].key,
                                     json_integer((json_int_t)numbers[i].number));
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static sl_status write_config(const sl_trainer *trainer, const sl_plan_stages *stages)
{
    char note[160];
    const sl_config *config = trainer->config;
    json_t *chosen = format_chosen(config, stages);
    if (!chosen)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the configuration");
    snprintf(note, sizeof note, "a step is predicted to take %.3g s by %s", stages->step_seconds,
             sl_machine_basis(&stages->blueprint->machine));
    const sl_status status = sl_run_config_write(&(sl_run_config_args){
        config, chosen, note, sl_comm_layout_ranks(&trainer->ranks.layout), 0});
    json_decref(chosen);
    return status;
}

static sl_status plan(sl_config *config, sl_trainer *trainer)
{
    sl_plan_stages stages = {0};
    SL_TRY(sl_preparation_run(config, SL_CONFIG_PLAN, trainer));
    if (config->write_config)
        SL_TRY(sl_run_config_check(config->write_config));
    if (config->compare.count > 0)
        return sl_compare_print(trainer);
    sl_status status = draw_stages(config, trainer, &stages);
    if (status == SL_OK) {
        warn_if_beyond_machine(stages.blueprint);
        status = print_fit(trainer, &stages);
    }
    if (status == SL_OK && config->report)
        status =
            sl_report_write(config->report, &(sl_report_args){.blueprint = stages.blueprint}, NULL);
    if (status == SL_OK && config->write_config)
        status = write_config(trainer, &stages);
    sl_plan_stages_close(&stages);
    return status;
}

static int run_plan(sl_config *config)
{
    sl_trainer trainer = {0};
    sl_command_explain(config);
    if (config->cluster && *config->cluster)
        return sl_command_end(sl_plan_cluster(config));
    int code = sl_command_end(plan(config, &trainer));
    (void)sl_trainer_close(&trainer);
    return code;
}

const sl_command_entry sl_command_plan = {
    .options = SL_CONFIG_PLAN,
    .task = SL_COMMAND_TRAIN,
    .name = "plan",
    .summary = "what train would take and move; nothing is allocated",
    .doc = "Prints the plan of the options that train takes: bytes of each tier by kind, moves of "
           "a step by lane, and the step time that a simulation predicts. Takes no memory for the "
           "model.",
    .page = "docs/choosing.md",
    .checks_options = true,
    .run = run_plan};
