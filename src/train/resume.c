/* What a run finds under --save; see resume.h. */
#define _GNU_SOURCE
#include "resume.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/nearest.h"
#include "checkpoint/steps.h"
#include "config/restore.h"
#include "files/files.h"

static sl_status refuse_used(const sl_config *config, uint64_t step)
{
    SL_FAIL(SL_ERROR_USAGE,
            "--save %s holds checkpoints already, the newest of step %" PRIu64
            ": go on from it with --resume, replace them with --overwrite, or save elsewhere",
            sl_files_show(config->save).text, step);
}

static sl_config_record find_record(const sl_checkpoint_info *info)
{
    return (sl_config_record){.resolved_json = info->config_json, .given_json = info->given_json};
}

static sl_status restore_options(sl_config *config, sl_resume *resume)
{
    const sl_checkpoint_info *info = sl_checkpoint_describe(resume->checkpoint);
    const sl_config_record record = find_record(info);
    sl_status status = sl_config_restore(config, &record, &resume->changes);
    return status == SL_ERROR_DATA ? sl_status_prefix(status, "%s", sl_files_show(info->path).text)
                                   : status;
}

/* The rows of a step stay as many, however many ranks share them, unless they were given anew.
 * Earlier versions had one data-parallel rank. */
static void keep_batch(sl_config *config, const sl_resume *resume)
{
    if (resume->is_total_given)
        return;
    if (resume->is_batch_given)
        config->global_batch = SL_CONFIG_UNSET;
    else if (config->global_batch == SL_CONFIG_UNSET)
        config->global_batch = config->micro_batch * config->accumulate;
}

sl_status sl_resume_recorded_path(const sl_resume *resume, uint32_t row, char **out_path)
{
    const sl_checkpoint_info *info = sl_checkpoint_describe(resume->checkpoint);
    const sl_config_record record = find_record(info);
    sl_status status = sl_config_recorded_path(&record, row, out_path);
    return status == SL_ERROR_DATA ? sl_status_prefix(status, "%s", sl_files_show(info->path).text)
                                   : status;
}

sl_status sl_resume_recorded_number(const sl_resume *resume, uint32_t row, uint64_t *out_number)
{
    const sl_checkpoint_info *info = sl_checkpoint_describe(resume->checkpoint);
    const sl_config_record record = find_record(info);
    sl_status status = sl_config_recorded_number(&record, row, out_number);
    return status == SL_ERROR_DATA ? sl_status_prefix(status, "%s", sl_files_show(info->path).text)
                                   : status;
}

bool sl_resume_frees_accumulate(const sl_resume *resume, const sl_config *config)
{
    if (!resume->checkpoint)
        return !config->given[SL_CONFIG_ROW_accumulate];
    return !resume->is_batch_given || (resume->is_total_given && !resume->is_accumulate_given);
}

/* The recorded --save may lead to another directory now, or to none: the checkpoint was copied or
 * moved, perhaps to another machine. */
static sl_status compare_directories(const char *save, sl_resume *resume)
{
    struct stat then, now;
    char *recorded = NULL;
    SL_TRY(sl_resume_recorded_path(resume, SL_CONFIG_ROW_save, &recorded));
    resume->is_in_place = recorded && stat(recorded, &then) == 0 && stat(save, &now) == 0 &&
                          then.st_dev == now.st_dev && then.st_ino == now.st_ino;
    free(recorded);
    return SL_OK;
}

/* The path of the nearest name; NULL: no name is near enough. The caller frees the path. */
static char *make_neighbour(const char *path, const sl_nearest *nearest)
{
    enum { FEW_EDITS = 3 };
    char *near = NULL;
    const char *slash = strrchr(path, '/');
    const int length = slash ? (int)(slash + 1 - path) : 0;
    if (!nearest->best || nearest->best_distance > FEW_EDITS)
        return NULL;
    return asprintf(&near, "%.*s%s", length, path, nearest->best) < 0 ? NULL : near;
}

/* A path in the same directory whose name is nearly that of `path`, or NULL. */
static char *find_neighbour(const char *path)
{
    struct dirent **names = NULL;
    const char *slash = strrchr(path, '/');
    sl_nearest nearest = sl_nearest_start(slash ? slash + 1 : path);
    char *parent = slash ? strndup(path, (size_t)(slash + 1 - path)) : strdup(".");
    const int count = parent ? scandir(parent, &names, NULL, alphasort) : 0;
    for (int i = 0; i < count; i++)
        if (strcmp(names[i]->d_name, nearest.name) != 0 && names[i]->d_name[0] != '.')
            sl_nearest_offer(&nearest, names[i]->d_name);
    char *near = make_neighbour(path, &nearest);
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    free(parent);
    return near;
}

/* --resume without a checkpoint begins at step 0, so that a job has one command for its first start
 * and all later ones. But a mistyped --save would begin anew too: such a name is warned of. */
static void report_first_start(const char *directory)
{
    bool is_used = false;
    uint64_t step;
    char *near = find_neighbour(directory);
    if (near && sl_checkpoint_newest_step(near, &is_used, &step) == SL_OK && is_used)
        sl_log_write(SL_LOG_WARNING,
                     "--resume: there is no checkpoint in %s, so this run begins at step 0; was "
                     "--save %s meant, which holds checkpoints?",
                     sl_files_show(directory).text, sl_files_show(near).text);
    else
        sl_log_write(SL_LOG_NOTE,
                     "--resume: there is no checkpoint in %s, so this run begins at step 0",
                     sl_files_show(directory).text);
    free(near);
}

sl_status sl_resume_lock(const sl_resume *resume, const char *directory, sl_save_lock *lock)
{
    bool is_used = false;
    uint64_t step = 0;
    SL_TRY(sl_save_lock_hold(directory, lock));
    SL_TRY(sl_steps_probe(lock->directory, directory));
    SL_TRY(sl_checkpoint_newest_step(directory, &is_used, &step));
    if (is_used != resume->is_used || (is_used && step != resume->newest_step))
        SL_FAIL(SL_ERROR_USAGE,
                "%s: another run saved step %" PRIu64 " there while this one started: start it "
                "again",
                sl_files_show(directory).text, step);
    return SL_OK;
}

sl_status sl_resume_open(sl_config *config, sl_config_command command, sl_resume *out_resume)
{
    *out_resume = (sl_resume){.is_data_given = config->given[SL_CONFIG_ROW_data],
                              .is_tokenizer_given = config->given[SL_CONFIG_ROW_tokenizer],
                              .is_batch_given = config->given[SL_CONFIG_ROW_micro_batch] ||
                                                config->given[SL_CONFIG_ROW_accumulate],
                              .is_accumulate_given = config->given[SL_CONFIG_ROW_accumulate],
                              .is_total_given = config->given[SL_CONFIG_ROW_global_batch]};
    if (!config->save)
        return SL_OK; /* what needs it is refused where options are checked */
    sl_status status =
        sl_checkpoint_newest_step(config->save, &out_resume->is_used, &out_resume->newest_step);
    if (status != SL_OK)
        return sl_status_prefix(status, "--save");
    if (out_resume->is_used && !config->resume && !config->overwrite && command == SL_CONFIG_TRAIN)
        return refuse_used(config, out_resume->newest_step);
    if (!config->resume || config->overwrite)
        return SL_OK;
    if (!out_resume->is_used) {
        report_first_start(config->save);
        return SL_OK;
    }
    SL_TRY(sl_checkpoint_find(config->save, config->checks_checkpoints, &out_resume->checkpoint));
    SL_TRY(restore_options(config, out_resume));
    SL_TRY(compare_directories(config->save, out_resume));
    keep_batch(config, out_resume);
    return SL_OK;
}

void sl_resume_let_go(sl_resume *resume)
{
    sl_checkpoint_close(resume->checkpoint);
    resume->checkpoint = NULL;
}

void sl_resume_close(sl_resume *resume)
{
    sl_resume_let_go(resume);
    free(resume->changes);
    *resume = (sl_resume){0};
}

sl_status sl_resume_note_followers(sl_resume *resume, const sl_config *config)
{
    if (!resume->checkpoint)
        return SL_OK;
    const sl_config_record record = find_record(sl_checkpoint_describe(resume->checkpoint));
    return sl_config_tell_followers(config, &record, &resume->changes);
}

void sl_resume_tell(const sl_resume *resume)
{
    for (const char *line = resume->changes; line && *line;) {
        size_t length = strcspn(line, "\n");
        sl_log_write(SL_LOG_NOTE, "%.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

static bool is_same(const char *saved, const char *now)
{
    return !saved || !*saved || strcmp(saved, now) == 0;
}

sl_status sl_resume_check_data(const sl_resume *resume, const sl_data_identity *data)
{
    if (!resume->checkpoint || !*data->fingerprint)
        return SL_OK;
    const sl_checkpoint_info *info = sl_checkpoint_describe(resume->checkpoint);
    bool has_files = is_same(info->data_fingerprint, data->fingerprint);
    if (has_files && is_same(info->data_sample, data->sample))
        return SL_OK;
    if (!resume->is_data_given)
        SL_FAIL(SL_ERROR_DATA,
                "the data changed since the checkpoint was saved (%s of the files of --data): give "
                "--data to train on them as they are",
                has_files ? "the content" : "names or sizes");
    sl_log_write(SL_LOG_WARNING, "the data are not those of the checkpoint: the run goes on, but "
                                 "not as it would have without a stop");
    return SL_OK;
}

void sl_resume_remove_old(const char *directory, uint64_t step)
{
    int fd;
    const sl_status status =
        sl_files_open_directory(AT_FDCWD, NULL, directory, SL_LINKS_FOLLOW, &fd);
    if (status == SL_ERROR_MISSING)
        return;
    if (status != SL_OK) {
        sl_log_write(SL_LOG_WARNING, "old checkpoints stay: %s", sl_status_message());
        return;
    }
    sl_steps_remove_others(fd, directory, step);
    close(fd);
}
