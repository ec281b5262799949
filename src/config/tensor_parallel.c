/* See tensor_parallel.h. */
#include "tensor_parallel.h"

#include <inttypes.h>

/* What tensor-parallel ranks share besides tensors: rows of the hidden states. */
static sl_status check_shared_rows(const sl_config *config, const char *option)
{
    const uint64_t row_count = config->micro_batch * config->seq;
    if (config->tp == 1)
        SL_FAIL(SL_ERROR_USAGE, "%s is for tensor-parallel ranks: give --tp", option);
    if (row_count % config->tp != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "%s: %" PRIu64 " rows of %" PRIu64 " tokens are no multiple of --tp %" PRIu64
                ": change --micro-batch or --seq",
                option, config->micro_batch, config->seq, config->tp);
    return SL_OK;
}

/* A foreign file may ask for it although ranks do not share tensors: then it is taken back. */
static sl_status check_partition(sl_config *config)
{
    const bool is_idle = config->tp == 1 || config->sequence_parallel;
    if (is_idle && !config->given[SL_CONFIG_ROW_partition_activations])
        config->partition_activations = false;
    if (!config->partition_activations)
        return SL_OK;
    if (config->sequence_parallel)
        SL_FAIL(SL_ERROR_USAGE,
                "--partition-activations beside --sequence-parallel: there a rank has "
                "no more than its part of them anyway; leave it out");
    return check_shared_rows(config, "--partition-activations");
}

static sl_status check_layout(const sl_config *config)
{
    if (config->split_layout == SL_SPLIT_MEGATRON)
        return SL_OK;
    if (config->sequence_parallel)
        SL_FAIL(SL_ERROR_USAGE, "--split-layout colossal beside --sequence-parallel: ranks that "
                                "gather columns have all rows; leave one out");
    return check_shared_rows(config, "--split-layout colossal");
}

sl_status sl_tensor_parallel_check(sl_config *config)
{
    SL_TRY(check_partition(config));
    SL_TRY(check_layout(config));
    if (!config->sequence_parallel)
        return SL_OK;
    SL_TRY(check_shared_rows(config, "--sequence-parallel"));
    if (config->dropout > 0 && config->micro_batch % config->tp != 0)
        SL_FAIL(SL_ERROR_USAGE,
                "--sequence-parallel with --dropout: --micro-batch %" PRIu64
                " is no multiple of --tp %" PRIu64,
                config->micro_batch, config->tp);
    return SL_OK;
}
