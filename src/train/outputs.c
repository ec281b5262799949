#include "outputs.h"

#include "base/log.h"
#include "train/watch/log_csv.h"
#include "train/watch/log_json.h"

static const sl_output_file_kind timeline_kind = {
    .option = "--timeline", .noun = "timeline", .start = SL_TIMELINE_START, .takes_streams = true};

/* ---- names ---- */

typedef struct named {
    const char *option, *path; /* NULL: not asked for */
} named;

static sl_status check_apart(const named *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t other = 0; other < i; other++)
            if (sl_output_file_is_same(all[i].path, all[other].path))
                SL_FAIL(SL_ERROR_USAGE,
                        "%s %s: another output has that name, %s %s: give each its own file",
                        all[i].option, sl_files_show(all[i].path).text, all[other].option,
                        sl_files_show(all[other].path).text);
    return SL_OK;
}

sl_status sl_outputs_check(const sl_config *config, sl_config_command command)
{
    const bool is_train = command == SL_CONFIG_TRAIN, is_profile = command == SL_CONFIG_PROFILE;
    const named all[] = {
        {"--log-json", is_train ? config->log_json : NULL},
        {"--log-csv", is_train ? config->log_csv : NULL},
        {"--json", is_profile ? config->profile_json : NULL},
        {"--timeline", is_train || is_profile ? config->timeline : NULL},
        {"--report", config->report},
        {"--write-config", config->write_config},
    };
    SL_TRY(check_apart(all, sizeof all / sizeof all[0]));
    if (is_train && config->log_json)
        SL_TRY(sl_log_json_check(config->log_json));
    if (is_train && config->log_csv)
        SL_TRY(sl_log_csv_check(config->log_csv, config->resume));
    if ((is_train || is_profile) && config->timeline)
        SL_TRY(sl_output_file_check(&timeline_kind, config->timeline));
    return SL_OK;
}

/* ---- the timeline ---- */

sl_status sl_drawing_open(const char *path, const sl_engine_plan *step, sl_drawing *out_drawing)
{
    if (!path)
        return SL_OK;
    SL_TRY(sl_output_file_open(&timeline_kind, path, &out_drawing->output));
    return sl_timeline_open(out_drawing->output.stream, path, step, &out_drawing->timeline);
}

sl_status sl_drawing_end(sl_drawing *drawing)
{
    if (!drawing->output.stream)
        return SL_OK;
    bool has_none = !drawing->timeline || sl_timeline_is_empty(drawing->timeline);
    sl_status status = has_none ? SL_OK : sl_timeline_finish(drawing->timeline);
    if (has_none || status != SL_OK)
        sl_output_file_discard(&drawing->output);
    else
        status = sl_output_file_publish(&drawing->output);
    return status;
}

void sl_drawing_close(sl_drawing *drawing)
{
    sl_output_file_discard(&drawing->output);
    sl_timeline_close(drawing->timeline);
    drawing->timeline = NULL;
}
