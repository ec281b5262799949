/* sluice report: a page of runs, drawn from their logs alone. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/plural.h"
#include "command.h"
#include "files/files.h"
#include "report/history_log.h"
#include "report/history_page.h"
#include "report/page.h"

static void warn_of_damage(const char *path, const sl_history *run)
{
    if (run->damaged_count > 0)
        sl_log_write(SL_LOG_WARNING,
                     "%s: left out what is no record: %" PRIu64 " %s, first line %" PRIu64,
                     sl_files_show(path).text, run->damaged_count,
                     run->damaged_count == 1 ? "line" : "lines", run->damaged_line);
}

static sl_status read_runs(const sl_config *config, sl_history *runs)
{
    const uint32_t cells = sl_history_page_cells(config->runs.count);
    for (uint32_t i = 0; i < config->runs.count; i++) {
        SL_TRY(sl_history_open(cells, &runs[i]));
        SL_TRY(sl_history_log_read(config->runs.items[i], UINT64_MAX, &runs[i]));
        warn_of_damage(config->runs.items[i], &runs[i]);
    }
    return SL_OK;
}

static void print_summary(const sl_config *config, const sl_history *runs)
{
    uint64_t steps = 0;
    for (uint32_t i = 0; i < config->runs.count; i++)
        steps += runs[i].step_count;
    printf("%s: %u run%s, %" PRIu64 " step%s\n", sl_files_show(config->output).text,
           config->runs.count, sl_plural(config->runs.count), steps, sl_plural(steps));
}

static sl_status write_report(const sl_config *config)
{
    const uint32_t count = config->runs.count;
    if (count > SL_HISTORY_PAGE_RUNS_MAX)
        SL_FAIL(SL_ERROR_USAGE, "%u logs: a page overlays at most %d runs", count,
                SL_HISTORY_PAGE_RUNS_MAX);
    SL_TRY(sl_report_check(config->output, SL_PAGE_RUNS));
    sl_history *runs = calloc(count, sizeof *runs);
    if (!runs)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the runs");
    sl_status status = read_runs(config, runs);
    if (status == SL_OK)
        status = sl_history_page_write(config->output, runs, config->runs.items, count);
    if (status == SL_OK)
        print_summary(config, runs);
    for (uint32_t i = 0; i < count; i++)
        sl_history_close(&runs[i]);
    free(runs);
    return status;
}

static int report(sl_config *config)
{
    return sl_command_end(write_report(config));
}

const sl_command_entry sl_command_report = {
    .options = SL_CONFIG_REPORT,
    .task = SL_COMMAND_MODEL,
    .name = "report",
    .summary = "a page of runs, finished or not, from their logs",
    .arguments = "RUN.jsonl...",
    .doc =
        "Draws the loss, evaluations, learning rate, speed and memory of the logs that train "
        "--log-json wrote, all runs in the same pictures, as --output: one HTML file that loads "
        "nothing. A log may be of a run that still goes on. Lines that are damaged are left out, "
        "with a warning; of steps that are logged twice, as after --resume, the later record "
        "counts.",
    .page = "docs/watching.md",
    .run = report};
