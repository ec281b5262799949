/* Decides where logs are written, and opens them; see logs.h. */
#include "logs.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "config/restore.h"
#include "files/files.h"
#include "files/page_file.h"
#include "train/watch/log_csv.h"
#include "train/watch/log_events.h"
#include "train/watch/log_json.h"

typedef struct log_kind {
    uint32_t row; /* of its option */
    const char *noun;
    bool (*is_own)(const char *path, const char *run); /* the log at `path` is of `run` */
} log_kind;

enum { JSON, CSV, EVENTS, PAGE };

static const log_kind kinds[SL_LOGS_KINDS] = {
    [JSON] = {SL_CONFIG_ROW_log_json, "log", sl_log_json_is_own},
    [CSV] = {SL_CONFIG_ROW_log_csv, "log", sl_log_csv_is_own},
    [EVENTS] = {SL_CONFIG_ROW_tensorboard, "log", sl_log_events_is_own},
    [PAGE] = {SL_CONFIG_ROW_report, "page", sl_page_file_is_own}, /* who writes it opens it */
};

/* ---- a log that only the checkpoint names ---- */

enum { NAME_BYTES = 128 };

/* The last name of a path, with '_' for all but letters, digits, '.', '-' and '_'. "log-" stands in
 * front if the file would else be hidden, or have a name of a checkpoint. */
static void make_name(const char *path, char out_name[NAME_BYTES])
{
    size_t end = strlen(path), used = 0;
    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    const char *name = path + start;
    if (start == end || !isalnum((unsigned char)name[0]) || strncmp(name, "step-", 5) == 0 ||
        strncmp(name, "LATEST", 6) == 0)
        used = (size_t)snprintf(out_name, NAME_BYTES, "log-");
    for (; start < end && used < NAME_BYTES - 1; start++)
        out_name[used++] =
            isalnum((unsigned char)path[start]) || strchr(".-_", path[start]) ? path[start] : '_';
    out_name[used] = '\0';
}

static bool is_there(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 || errno != ENOENT;
}

/* A log that is not continued at the path that the checkpoint names: tries a path under --save. */
static sl_status settle_beside(const log_kind *kind, const char *recorded, const sl_resume *resume,
                               sl_config *config, sl_logs *logs)
{
    char name[NAME_BYTES], why[64], *path;
    const char *option = sl_config_rows()[kind->row].name;
    make_name(recorded, name);
    snprintf(why, sizeof why, "but no %s of this run is there", kind->noun);
    SL_TRY(sl_files_join_path(config->save, name, &path));
    const bool is_own = kind->is_own(path, logs->run);
    sl_status status = SL_OK;
    if (is_own || !is_there(path)) {
        logs->modes[kind - kinds] = is_own ? SL_LOG_FILE_OWN : SL_LOG_FILE_NEW;
        sl_log_write(SL_LOG_WARNING,
                     "--%s goes on in %s: the checkpoint names %s, %s; give --%s to choose a place",
                     option, sl_files_show(path).text, sl_files_show(recorded).text,
                     resume->is_in_place ? why : "but was saved in another directory than this",
                     option);
        status = sl_config_set(config, kind->row, path);
    } else {
        sl_log_write(SL_LOG_WARNING,
                     "there is no --%s: neither %s, which the checkpoint names, nor %s is a %s "
                     "of this run that can be continued; give --%s to choose a place",
                     option, sl_files_show(recorded).text, sl_files_show(path).text, kind->noun,
                     option);
    }
    free(path);
    return status;
}

static sl_status settle_recorded(const log_kind *kind, const sl_resume *resume, sl_config *config,
                                 sl_logs *logs)
{
    char *recorded = NULL;
    SL_TRY(sl_resume_recorded_path(resume, kind->row, &recorded));
    if (!recorded)
        return SL_OK;
    sl_status status = SL_OK;
    if (resume->is_in_place && kind->is_own(recorded, logs->run)) {
        logs->modes[kind - kinds] = SL_LOG_FILE_OWN;
        status = sl_config_set(config, kind->row, recorded);
    } else {
        status = settle_beside(kind, recorded, resume, config, logs);
    }
    free(recorded);
    return status;
}

sl_status sl_logs_settle(sl_config *config, const sl_resume *resume, sl_run_id run,
                         sl_logs *out_logs)
{
    sl_run_id_format(run, out_logs->run);
    for (int i = 0; i < SL_LOGS_KINDS; i++) {
        out_logs->modes[i] = config->resume ? SL_LOG_FILE_APPEND : SL_LOG_FILE_EMPTY;
        if (resume->checkpoint && !config->given[kinds[i].row])
            SL_TRY(settle_recorded(&kinds[i], resume, config, out_logs));
    }
    return SL_OK;
}

/* ---- opening ---- */

sl_status sl_logs_open(const sl_logs *logs, const sl_config *config, uint64_t first_step,
                       sl_sinks *sinks)
{
    const sl_log_target json = {config->log_json, logs->modes[JSON], logs->run};
    const sl_log_target csv = {config->log_csv, logs->modes[CSV], logs->run};
    const sl_log_target events = {config->tensorboard, logs->modes[EVENTS], logs->run};
    if (json.path)
        SL_TRY(sl_log_json_open(&json, sinks));
    if (csv.path)
        SL_TRY(sl_log_csv_open(&csv, sinks));
    return events.path ? sl_log_events_open(&events, first_step, sinks) : SL_OK;
}
