/* Each item changes a copy of the configuration, which owns nothing: so settings that are texts or
 * lists cannot be compared. What does not fit is a line of the table too. */
#include "compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "busy_line.h"
#include "command.h"
#include "config/shares.h"
#include "report/page.h"
#include "terminal.h"
#include "train/plan_account.h"
#include "train/preparation.h"

enum { SETTING_BYTES = 256, NAME_COLUMNS = 16 };

/* What one item came to. */
typedef struct compared {
    char *name; /* owned */
    bool fits, has_stages;
    uint64_t peak_bytes[SL_TIER_COUNT];
    uint64_t link_bytes, disk_bytes; /* moved a step, both ways */
    double seconds;
    const char *bound_by;
    json_t *plan; /* with --json */
    char failure[SETTING_BYTES];
    char suggestions[SL_SEARCH_SUGGESTIONS_BYTES];
} compared;

static sl_status set_named(sl_config *config, const char *name, const char *value)
{
    uint32_t row;
    SL_TRY(sl_config_find(SL_CONFIG_PLAN, name, &row));
    sl_config_kind kind = sl_config_rows()[row].kind;
    if (sl_config_rows()[row].group == SL_CONFIG_GROUP_MODEL)
        SL_FAIL(SL_ERROR_USAGE, "--compare %s=%s: plans of one model are compared", name, value);
    if (kind == SL_CONFIG_TEXT || kind == SL_CONFIG_LIST_OF)
        SL_FAIL(SL_ERROR_USAGE,
                "--compare %s=%s: only numbers, sizes, switches and choices can be "
                "compared",
                name, value);
    SL_TRY(sl_config_set(config, row, value));
    config->given[row] = true;
    return SL_OK;
}

/* "host", "2G" or "name=value". */
static sl_status set_one(sl_config *config, const char *setting)
{
    char name[SETTING_BYTES];
    const char *equals = strchr(setting, '=');
    uint64_t bytes;
    if (equals) {
        snprintf(name, sizeof name, "%.*s", (int)(equals - setting), setting);
        return set_named(config, name, equals + 1);
    }
    if (setting[0] >= '0' && setting[0] <= '9' && sl_units_parse_size(setting, &bytes) == SL_OK)
        return set_named(config, "device-memory", setting);
    return set_named(config, "policy", setting);
}

static sl_status set_item(sl_config *config, const char *item)
{
    char settings[SETTING_BYTES];
    char *rest = NULL;
    if (strlen(item) >= sizeof settings)
        SL_FAIL(SL_ERROR_USAGE, "--compare: an item of more than %d bytes", SETTING_BYTES - 1);
    snprintf(settings, sizeof settings, "%s", item);
    for (char *one = strtok_r(settings, "+", &rest); one; one = strtok_r(NULL, "+", &rest))
        SL_TRY(set_one(config, one));
    if (config->policy >= SL_CONFIG_POLICY_COUNT) /* other names stand behind these */
        config->policy -= SL_CONFIG_POLICY_COUNT;
    return SL_OK;
}

/* Shares that were given beside --compare are for the items whose policies take them: *out_dropped
 * are the others. Those of the item itself, set again once the policy is known, are refused if it
 * does not take them. */
static sl_status set_all(sl_config *config, const char *item, uint32_t *out_dropped)
{
    SL_TRY(set_item(config, item));
    *out_dropped = sl_shares_drop(config);
    SL_TRY(set_item(config, item));
    const sl_status status = sl_shares_check(config);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "--compare %s", item);
}

/* Of stages the bytes of that which takes most of a tier, the time of all, and else what `plan`
 * shows: the stage that takes most memory. */
static sl_status describe(const sl_trainer *trainer, const sl_plan_stages *stages, compared *out)
{
    const sl_blueprint *blueprint = stages->blueprint;
    sl_account *account = NULL;
    if (!blueprint)
        SL_FAIL(SL_ERROR_INTERNAL, "a comparison of no stage");
    const sl_account_request request = sl_report_request(blueprint);
    const uint64_t *moved = blueprint->plans[0]->moved_bytes;
    SL_TRY(sl_account_open(&request, &account));
    out->fits = true;
    out->seconds = stages->step_seconds;
    out->bound_by = sl_account_resource_name(account->bound_by);
    out->link_bytes = moved[SL_LANE_H2D] + moved[SL_LANE_D2H];
    out->disk_bytes = moved[SL_LANE_READ] + moved[SL_LANE_WRITE];
    for (uint32_t s = 0; s < stages->count; s++)
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            if (stages->items[s].peak_bytes[tier] > out->peak_bytes[tier])
                out->peak_bytes[tier] = stages->items[s].peak_bytes[tier];
    sl_account_close(account);
    return trainer->config->json ? sl_plan_account_format(trainer, stages, false, &out->plan)
                                 : SL_OK;
}

static sl_status describe_refusal(const sl_trainer *trainer, const sl_refusal *refusal,
                                  compared *out)
{
    const sl_shortage *shortage = &refusal->failure.shortage;
    const sl_task *task = &trainer->search.task;
    char stage[32] = "";
    if (task->stage_count > 1)
        snprintf(stage, sizeof stage, " of stage %u", task->stage_index);
    snprintf(out->failure, sizeof out->failure, "the %s%s misses %s", sl_tier_name(shortage->tier),
             stage, sl_command_format_size(shortage->missing_bytes).text);
    sl_search_format_suggestions(refusal, out->suggestions);
    return trainer->config->json
               ? sl_plan_account_format_refusal(&trainer->search, refusal, &out->plan)
               : SL_OK;
}

static sl_status plan_item(const sl_trainer *trainer, compared *out)
{
    sl_config config = *trainer->config; /* a copy that owns nothing */
    sl_trainer changed;
    sl_plan_stages stages = {0};
    sl_refusal refusal = {0};
    uint32_t dropped;
    SL_TRY(set_all(&config, out->name, &dropped));
    sl_status status = sl_preparation_vary(trainer, &config, &changed);
    out->has_stages = config.pp > 1;
    if (status == SL_OK)
        status = sl_plan_stages_draw(&changed, &stages, &refusal);
    if (status == SL_ERROR_USAGE)
        status = sl_status_prefix(status, "--compare %s", out->name);
    if (status == SL_OK)
        status = describe(&changed, &stages, out);
    else if (status == SL_ERROR_FIT)
        status = describe_refusal(&changed, &refusal, out);
    sl_plan_stages_close(&stages);
    return status;
}

static void print_item(const compared *item, bool is_fastest)
{
    if (!item->fits) {
        sl_terminal_print(stdout, NAME_COLUMNS + 3, "  %-*s does not fit: %s%s", NAME_COLUMNS,
                          item->name, item->failure, item->suggestions);
        return;
    }
    const bool is_long = strlen(item->name) > NAME_COLUMNS;
    if (is_long)
        printf("  %s\n", item->name);
    printf("%s %-*s %10s %10s %10s %10.2f ms  %s%s%s\n", is_fastest ? "*" : " ", NAME_COLUMNS,
           is_long ? "" : item->name, sl_command_format_size(item->peak_bytes[SL_TIER_DEVICE]).text,
           sl_command_format_size(item->peak_bytes[SL_TIER_HOST]).text,
           sl_command_format_size(item->peak_bytes[SL_TIER_DISK]).text, 1e3 * item->seconds,
           sl_terminal_begin(stdout, SL_TERMINAL_BOUND), item->bound_by,
           sl_terminal_begin(stdout, SL_TERMINAL_PLAIN));
    if (item->link_bytes > 0 || item->disk_bytes > 0)
        printf("    moves a step: link %s, disk %s\n",
               sl_command_format_size(item->link_bytes).text,
               sl_command_format_size(item->disk_bytes).text);
}

static void print_rows(const compared *items, uint32_t count, const sl_search *search)
{
    uint32_t fastest = count;
    bool has_stages = false;
    for (uint32_t i = 0; i < count; i++)
        has_stages |= items[i].has_stages;
    for (uint32_t i = 0; i < count; i++)
        if (items[i].fits && (fastest == count || items[i].seconds < items[fastest].seconds))
            fastest = i;
    printf("%s  %-*s %10s %10s %10s %13s  %s%s\n", sl_terminal_begin(stdout, SL_TERMINAL_HEADING),
           NAME_COLUMNS, "", "device", "host", "disk", "predicted", "bound by",
           sl_terminal_begin(stdout, SL_TERMINAL_PLAIN));
    for (uint32_t i = 0; i < count; i++)
        print_item(&items[i], i == fastest);
    if (fastest == count)
        sl_terminal_print(stdout, 2,
                          "none of these plans fits; each row says what was found that does");
    if (has_stages)
        sl_terminal_print(stdout, 2,
                          "of stages: the bytes of the fullest one, the moves of the one that "
                          "takes most memory, and the time of all with their waits");
    sl_terminal_print(stdout, 2, "times are predicted by %s%s",
                      sl_machine_basis(&search->task.machine),
                      !sl_machine_is_guess(&search->task.machine)
                          ? ""
                          : ": this machine was not measured (sluice bench)");
}

static sl_status print_json(compared *items, uint32_t count)
{
    json_t *array = json_array();
    bool has_failed = !array;
    for (uint32_t i = 0; i < count; i++) {
        has_failed |= json_object_set_new(items[i].plan, "name", json_string(items[i].name)) != 0;
        has_failed |= items[i].fits && json_object_set_new(items[i].plan, "bound_by",
                                                           json_string(items[i].bound_by)) != 0;
        has_failed |= json_array_append(array, items[i].plan) != 0;
    }
    json_t *object = json_object();
    has_failed |= json_object_set_new(object, "compare", array) != 0;
    sl_status status = has_failed ? SL_ERROR_SYSTEM : sl_command_print_json(object, 17);
    json_decref(object);
    if (has_failed)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a comparison");
    return status;
}

/* Items stand behind each other, or with commas between. */
static uint32_t count_items(const sl_config_list *list)
{
    uint32_t count = list->count;
    for (uint32_t i = 0; i < list->count; i++)
        for (const char *c = list->items[i]; *c; c++)
            count += *c == ',';
    return count;
}

static sl_status name_items(const sl_config_list *list, compared *items)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const char *start = list->items[i];
        for (bool is_last = false; !is_last; next++) {
            size_t length = strcspn(start, ",");
            is_last = start[length] == '\0';
            items[next].name = strndup(start, length);
            if (!items[next].name)
                SL_FAIL(SL_ERROR_SYSTEM, "no memory to compare plans");
            start += length + 1;
        }
    }
    return SL_OK;
}

/* Before the first plan, which may take long: refuses an item that means nothing, and warns of a
 * share that no item takes. */
static sl_status check_items(const sl_config *config, const compared *items, uint32_t count)
{
    uint32_t by_all = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        sl_config changed = *config; /* a copy that owns nothing */
        uint32_t dropped;
        SL_TRY(set_all(&changed, items[i].name, &dropped));
        by_all &= dropped;
    }
    sl_shares_warn(by_all);
    return SL_OK;
}

/* A plan that does not fit takes long, because the search then looks for what would fit. */
static sl_status plan_items(const sl_trainer *trainer, compared *items, uint32_t count)
{
    char text[SETTING_BYTES + 64] = "";
    sl_busy_line line;
    sl_status status = SL_OK;
    sl_busy_line_begin(&line, trainer->config, text, stderr);
    for (uint32_t i = 0; i < count && status == SL_OK; i++) {
        snprintf(text, sizeof text, "planning %s (%u of %u)", items[i].name, i + 1, count);
        status = plan_item(trainer, &items[i]);
    }
    sl_busy_line_end(&line);
    return status;
}

sl_status sl_compare_print(const sl_trainer *trainer)
{
    uint32_t count = count_items(&trainer->config->compare);
    compared *items = calloc((size_t)count + 1, sizeof *items);
    if (!items)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to compare %u plans", count);
    sl_status status = name_items(&trainer->config->compare, items);
    if (status == SL_OK)
        status = check_items(trainer->config, items, count);
    if (status == SL_OK)
        status = plan_items(trainer, items, count);
    if (status == SL_OK && trainer->config->json)
        status = print_json(items, count);
    else if (status == SL_OK)
        print_rows(items, count, &trainer->search);
    for (uint32_t i = 0; i < count; i++) {
        json_decref(items[i].plan);
        free(items[i].name);
    }
    free(items);
    return status;
}
