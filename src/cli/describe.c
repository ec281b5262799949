/* Choices and wear in words: shares are named where they are part of the policy. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "command.h"
#include "search/search.h"
#include "terminal.h"

enum { EXPLANATION_INDENT = 4 };

void sl_command_explain(const sl_config *config)
{
    if (config->explanation && !config->quiet && !config->json)
        sl_terminal_print_lines(stdout, EXPLANATION_INDENT, config->explanation);
}

sl_command_duration sl_command_format_duration(double seconds)
{
    static const struct {
        double seconds, least;
        const char *name;
        int digits;
    } units[] = {{86400, 2 * 86400, "days", 1}, {3600, 7200, "hours", 1}, {60, 120, "minutes", 0}};
    sl_command_duration duration;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (seconds >= units[i].least) {
            snprintf(duration.text, sizeof duration.text, "%.*f %s", units[i].digits,
                     seconds / units[i].seconds, units[i].name);
            return duration;
        }
    snprintf(duration.text, sizeof duration.text, "%.3g s", seconds);
    return duration;
}

void sl_command_quote(const char *word, char *out_text, size_t capacity)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "./_-+=:,@%";
    static const char quote[] = "'\\''"; /* ends the quotes, and begins them again behind it */
    char quoted[2 * PATH_MAX] = "'";
    size_t used = 1;
    if (*word && word[strspn(word, plain)] == '\0') {
        snprintf(out_text, capacity, "%s", word);
        return;
    }
    for (; *word && used + sizeof quote + 1 < sizeof quoted; word++) {
        const bool is_quote = *word == '\'';
        memcpy(quoted + used, is_quote ? quote : word, is_quote ? sizeof quote - 1 : 1);
        used += is_quote ? sizeof quote - 1 : 1;
    }
    memcpy(quoted + used, "'", 2);
    sl_status_escape(quoted, out_text, capacity);
}

static void describe_shares(const char *tier, const double share[SL_GROUP_COUNT], char *out_text,
                            size_t capacity)
{
    snprintf(out_text, capacity, "%s: params %.0f%%, grads %.0f%%, optimizer %.0f%%", tier,
             100 * share[SL_GROUP_PARAM], 100 * share[SL_GROUP_GRAD], 100 * share[SL_GROUP_STATE1]);
}

void sl_command_describe_size(const sl_blueprint *blueprint, char *out_text, size_t capacity)
{
    const int length = snprintf(out_text, capacity, "%" PRIu64 " parameters",
                                sl_blueprint_count_parameters(blueprint));
    if (sl_update_rules_freeze(&blueprint->task.rules))
        snprintf(out_text + length, capacity - (size_t)length, ", %" PRIu64 " of them trained",
                 sl_blueprint_count_trained(blueprint));
}

static void describe_updates(const sl_policy_options *placement, char *out_text, size_t capacity)
{
    if (placement->update == SL_UPDATE_DEVICE)
        snprintf(out_text, capacity, ", updates on the device");
    if (placement->update == SL_UPDATE_SHARED)
        snprintf(out_text, capacity,
                 ", updates shared (of what is off the device %.0f%% on the host)",
                 100 * placement->host_updates);
}

void sl_command_describe_choice(const sl_choice *choice, char *out_text, size_t capacity)
{
    const sl_policy_options *placement = &choice->placement;
    char host[72] = "", disk[72] = "", updates[96] = "", activations[96] = "", pace[80] = "";
    bool has_host = placement->policy == SL_POLICY_STATIC;
    bool has_disk = placement->policy == SL_POLICY_NVME;
    for (int group = 0; group < SL_GROUP_COUNT; group++)
        has_disk = has_disk || placement->disk_fraction[group] > 0;
    if (has_host)
        describe_shares("host", placement->host_fraction, host, sizeof host);
    if (has_disk)
        describe_shares("disk", placement->disk_fraction, disk, sizeof disk);
    describe_updates(placement, updates, sizeof updates);
    if (choice->host_activations > 0 || choice->disk_activations > 0)
        snprintf(activations, sizeof activations,
                 ", of the activations up to %.0f%% on the host, %.0f%% on disk",
                 100 * choice->host_activations, 100 * choice->disk_activations);
    if (choice->chunk_elements)
        snprintf(pace, sizeof pace, ", chunks of %" PRIu64, choice->chunk_elements);
    if (choice->prefetch != SL_PREFETCH_AUTO)
        snprintf(pace + strlen(pace), sizeof pace - strlen(pace), ", prefetch %u",
                 choice->prefetch);
    snprintf(out_text, capacity, "policy %s%s%s%s%s%s%s%s, recompute %s, accumulation %s%s",
             sl_search_policy_name(placement->policy), has_host || has_disk ? " (" : "", host,
             has_host && has_disk ? "; " : "", disk, has_host || has_disk ? ")" : "", activations,
             updates, sl_search_recompute_name(choice->recompute),
             sl_search_accumulation_name(choice->accumulation), pace);
}

void sl_command_describe_device(const sl_task *task, char *out_text, size_t capacity)
{
    const sl_device_info *info = &task->device_info;
    char taken[96] = "";
    if (info->overhead_bytes > 0)
        snprintf(taken, sizeof taken, "; its context takes %s beside the budget",
                 sl_command_format_size(info->overhead_bytes).text);
    if (task->target.device == SL_DEVICE_CPU)
        snprintf(out_text, capacity, "cpu");
    else
        snprintf(out_text, capacity, "cuda:%d (%s%s%s)%s", task->target.device_index,
                 *info->name ? info->name : "not here", *info->detail ? ", " : "", info->detail,
                 taken);
}

void sl_command_describe_wear(const sl_wear *wear, char *out_text, size_t capacity)
{
    uint64_t day_bytes = wear->day_bytes < 1e19 ? (uint64_t)wear->day_bytes : UINT64_MAX;
    char years[64] = "";
    if (isfinite(wear->years))
        snprintf(years, sizeof years, "; --disk-endurance lasts %.2g years", wear->years);
    snprintf(out_text, capacity, "%s written a step, %s a day%s",
             sl_command_format_size((uint64_t)wear->step_bytes).text,
             sl_command_format_size(day_bytes).text, years);
}
