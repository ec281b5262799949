/* What a restart needs to know of a run, which the words of train say: they are read as train reads
 * them, so that files of options count, too. */
#include "restarts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "checkpoint/checkpoint.h"
#include "command.h"
#include "config/batch.h"
#include "files/files.h"
#include "options.h"
#include "terminal.h"

static uint32_t count_words(char **words)
{
    uint32_t count = 0;
    while (words[count])
        count++;
    return count;
}

/* "sluice", the command, --resume where `adds_resume`, the rest; of a restart with the self-test
 * off, which the first start had. */
static sl_status copy_words(char **words, bool adds_resume, bool is_restart, char ***out_words)
{
    uint32_t count = count_words(words);
    char **copy = calloc((size_t)count + 5, sizeof *copy);
    if (!copy)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the command line");
    static char name[] = "sluice", resume[] = "--resume", test[] = "--self-test", off[] = "off";
    char **next = copy;
    *next++ = name;
    *next++ = words[0];
    if (adds_resume)
        *next++ = resume;
    memcpy(next, words + 1, (count - 1) * sizeof *words);
    next += count - 1;
    if (is_restart) {
        *next++ = test;
        *next++ = off;
    }
    *out_words = copy;
    return SL_OK;
}

/* The parser orders the words that it is given: it gets some of its own. */
static sl_status read_config(sl_restarts *restarts, char **words)
{
    bool is_answered = false;
    char **copy;
    SL_TRY(copy_words(words, false, false, &copy));
    sl_status status = sl_options_parse(&sl_command_train, (int)count_words(copy) - 1, copy + 1,
                                        &restarts->config, &is_answered);
    free(copy);
    if (status == SL_OK && is_answered)
        exit(0); /* as it does for the launcher's own --help */
    return status;
}

/* A step of the run has as many rows whatever happens. What would follow from the number of ranks
 * that died has to be left to those that go on. */
static sl_status check_batch(const sl_config *config)
{
    if (config->global_batch == SL_CONFIG_UNSET)
        SL_FAIL(SL_ERROR_USAGE, "--fewer-ranks needs --global-batch N among the words of train: "
                                "the rows of a step, which stay as many");
    if (config->given[SL_CONFIG_ROW_accumulate] || config->given[SL_CONFIG_ROW_dp])
        SL_FAIL(SL_ERROR_USAGE,
                "--fewer-ranks changes --%s, which train is given: leave it out; it follows from "
                "--global-batch and the number of ranks",
                config->given[SL_CONFIG_ROW_dp] ? "dp" : "accumulate");
    if (config->solves_micro_batch && !config->given[SL_CONFIG_ROW_micro_batch])
        SL_FAIL(SL_ERROR_USAGE, "--fewer-ranks needs --micro-batch N among the words of train");
    return SL_OK;
}

static sl_status check_config(const sl_restarts *restarts)
{
    const sl_config *config = &restarts->config;
    if (!config->save)
        SL_FAIL(SL_ERROR_USAGE, "--restarts needs --save DIR among the words of train: without "
                                "checkpoints nothing could go on");
    if (config->overwrite)
        SL_FAIL(SL_ERROR_USAGE,
                "--restarts goes on from what is in %s, and --overwrite is there to remove it: "
                "give one of them, or save elsewhere",
                sl_files_show(config->save).text);
    return restarts->sheds_ranks ? check_batch(config) : SL_OK;
}

sl_status sl_restarts_open(sl_restarts *restarts, char **words)
{
    if (restarts->sheds_ranks && restarts->limit == 0)
        SL_FAIL(SL_ERROR_USAGE, "--fewer-ranks is about restarts: give --restarts R, too");
    if (restarts->limit == 0)
        return SL_OK;
    if (strcmp(words[0], sl_command_train.name) != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "--restarts is for the command train, which goes on from checkpoints: leave it out "
                "for %s",
                words[0]);
    SL_TRY(read_config(restarts, words));
    SL_TRY(check_config(restarts));
    return copy_words(words, !restarts->config.resume, true, &restarts->words);
}

void sl_restarts_close(sl_restarts *restarts)
{
    sl_config_clear(&restarts->config);
    free(restarts->words);
    restarts->words = NULL;
}

/* Of numbers that the ranks choose, the least. */
static uint64_t count_least(uint64_t count)
{
    return count == SL_CONFIG_UNSET ? 1 : count;
}

uint32_t sl_restarts_choose_ranks(const sl_restarts *restarts, uint32_t rank_count)
{
    const sl_config *config = &restarts->config;
    const uint64_t model = count_least(config->tp) * count_least(config->pp); /* 1e5 each at most */
    const uint64_t micro_batch = sl_batch_is_chosen(config) ? 1 : config->micro_batch;
    if (!restarts->sheds_ranks)
        return rank_count;
    for (uint32_t count = rank_count - 1; count >= model; count--) {
        const uint64_t rows = micro_batch * (count / model);
        if (count % model == 0 && config->global_batch % rows == 0 &&
            config->global_batch / rows <= SL_CONFIG_ACCUMULATE_MAX)
            return count;
    }
    return rank_count;
}

sl_status sl_restarts_announce(sl_restarts *restarts, const char *died, uint32_t rank_count)
{
    bool is_found = false;
    uint64_t step = 0;
    SL_TRY(sl_checkpoint_newest_step(restarts->config.save, &is_found, &step));
    restarts->done++;
    char found[64] = "";
    if (is_found)
        snprintf(found, sizeof found, "going on from the checkpoint of step %" PRIu64 " in ", step);
    sl_terminal_say(SL_TERMINAL_PLAIN, "%s: %s%s%s, with %u rank%s, in 1 s: restart %u of %u", died,
                    is_found ? found : "beginning anew, as ",
                    sl_files_show(restarts->config.save).text,
                    is_found ? "" : " holds no checkpoint yet", rank_count, sl_plural(rank_count),
                    restarts->done, restarts->limit);
    return SL_OK;
}
