/* See batch.h. */
#include "batch.h"

#include "base/plural.h"

bool sl_batch_is_chosen(const sl_config *config)
{
    const bool is_open = config->tp == SL_CONFIG_UNSET || config->pp == SL_CONFIG_UNSET;
    return is_open && !config->given[SL_CONFIG_ROW_micro_batch];
}

sl_status sl_batch_plan_ranks(sl_config *config)
{
    enum { LISTED_MAX = 1024 };                     /* whose groups are listed one by one */
    const uint64_t model = config->tp * config->pp; /* ranks that hold one */
    const uint64_t ranks = config->ranks == SL_CONFIG_UNSET ? model : config->ranks;
    if (config->ranks != SL_CONFIG_UNSET && ranks > LISTED_MAX)
        SL_FAIL(SL_ERROR_USAGE, "--ranks %llu: more than %d are planned with --cluster FILE",
                (unsigned long long)ranks, LISTED_MAX);
    if (config->dp == SL_CONFIG_UNSET && config->pp > 1 && ranks % model != 0)
        SL_FAIL(SL_ERROR_USAGE, "--ranks %llu is no multiple of --tp %llu times --pp %llu",
                (unsigned long long)ranks, (unsigned long long)config->tp,
                (unsigned long long)config->pp);
    if (config->dp == SL_CONFIG_UNSET && ranks % config->tp != 0)
        SL_FAIL(SL_ERROR_USAGE, "--ranks %llu is no multiple of --tp %llu",
                (unsigned long long)ranks, (unsigned long long)config->tp);
    if (config->dp == SL_CONFIG_UNSET)
        config->dp = ranks / model;
    if (config->ranks != SL_CONFIG_UNSET && model * config->dp != ranks)
        SL_FAIL(SL_ERROR_USAGE, "--ranks %llu is not --tp %llu times --dp %llu",
                (unsigned long long)ranks, (unsigned long long)config->tp,
                (unsigned long long)config->dp);
    return SL_OK;
}

/* A file may give a total and leave the rows of a micro-batch open. */
static sl_status settle_micro_batch(sl_config *config)
{
    enum { MICRO_BATCH_MAX = 1000000 };
    const uint64_t total = config->global_batch, turns = config->accumulate * config->dp;
    const bool is_open = config->solves_micro_batch && !config->given[SL_CONFIG_ROW_micro_batch];
    if (!is_open || total == SL_CONFIG_UNSET)
        return SL_OK;
    if (total % turns != 0 || total / turns > MICRO_BATCH_MAX)
        SL_FAIL(SL_ERROR_USAGE,
                "train_batch_size %llu is no multiple of gradient_accumulation_steps %llu * %llu "
                "data-parallel rank%s: change one of them, or give --micro-batch",
                (unsigned long long)total, (unsigned long long)config->accumulate,
                (unsigned long long)config->dp, sl_plural(config->dp));
    config->micro_batch = total / turns;
    return SL_OK;
}

/* --accumulate is open, and no count of turns gives the total. */
static sl_status refuse_total(const sl_config *config)
{
    const uint64_t rows = config->micro_batch * config->dp, total = config->global_batch;
    SL_FAIL(SL_ERROR_USAGE,
            "--global-batch %llu is no multiple of --micro-batch %llu * %llu data-parallel "
            "rank%s: change one of them (%llu is a multiple)",
            (unsigned long long)total, (unsigned long long)config->micro_batch,
            (unsigned long long)config->dp, sl_plural(config->dp),
            (unsigned long long)(total < rows ? rows : total - total % rows));
}

sl_status sl_batch_settle(sl_config *config, bool is_free)
{
    SL_TRY(settle_micro_batch(config));
    const uint64_t rows = config->micro_batch * config->dp, total = config->global_batch;
    const bool divides = total % rows == 0 && total > 0 && total / rows <= SL_CONFIG_ACCUMULATE_MAX;
    if (total != SL_CONFIG_UNSET && is_free && divides)
        config->accumulate = total / rows;
    if (total != SL_CONFIG_UNSET && is_free && total % rows != 0)
        return refuse_total(config);
    if (total != SL_CONFIG_UNSET && total != rows * config->accumulate)
        SL_FAIL(SL_ERROR_USAGE,
                "--global-batch %llu is not --micro-batch %llu * --accumulate %llu * %llu "
                "data-parallel rank%s: change one of them",
                (unsigned long long)total, (unsigned long long)config->micro_batch,
                (unsigned long long)config->accumulate, (unsigned long long)config->dp,
                sl_plural(config->dp));
    config->global_batch = rows * config->accumulate;
    return SL_OK;
}
