/* See loading.h. */
#include "loading.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/log.h"
#include "config/config_copy.h"
#include "search/free_memory.h"
#include "train/data/tokenizer.h"

sl_status sl_loading_run(sl_config *config, sl_status (*work)(sl_config *config, void *user),
                         void *user)
{
    sl_config first;
    SL_TRY(sl_config_copy(config, &first));
    sl_status status = work(config, user);
    if (status != SL_ERROR_DAMAGED) {
        sl_config_clear(&first);
        return status;
    }
    sl_log_write(SL_LOG_WARNING,
                 "%s; starting over: checkpoints are read in full before one is taken",
                 sl_status_message());
    sl_config_clear(config);
    *config = first;
    config->checks_checkpoints = true;
    return work(config, user);
}

/* ---- ranks ---- */

/* What a file of options has for a training on ranks is no mistake of a process that is alone. */
static void tell_alone(const sl_config *config)
{
    const bool has_data = config->dp != SL_CONFIG_UNSET && config->dp > 1;
    if (config->tp > 1 || config->pp > 1 || has_data)
        sl_log_write(SL_LOG_NOTE,
                     "--%s is for ranks, which sluice launch starts: this process is alone, and "
                     "holds the whole model",
                     config->tp > 1   ? "tp"
                     : config->pp > 1 ? "pp"
                                      : "dp");
}

/* Only a training chooses its layout. */
static sl_status settle_auto(sl_config *config, bool is_alone)
{
    const struct {
        const char *name;
        uint64_t *number;
    } numbers[] = {{"tp", &config->tp}, {"pp", &config->pp}, {"zero", &config->zero}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (*numbers[i].number != SL_CONFIG_UNSET)
            continue;
        if (!is_alone)
            SL_FAIL(SL_ERROR_USAGE, "--%s auto is for train, plan and profile: give a number here",
                    numbers[i].name);
        *numbers[i].number = 1;
    }
    return SL_OK;
}

sl_status sl_loading_meet_ranks(sl_config *config, sl_config_command command,
                                const volatile sig_atomic_t *stop, sl_ranks *out_ranks)
{
    SL_TRY(sl_ranks_open(config->rank_timeout, out_ranks));
    sl_ranks_set_heartbeat(out_ranks, config->heartbeat_timeout);
    SL_TRY(settle_auto(config, !out_ranks->world));
    if (!out_ranks->world) {
        SL_TRY(sl_config_check(config, command));
        tell_alone(config);
        return SL_OK;
    }
    sl_ranks_listen(out_ranks, stop);
    SL_TRY(sl_ranks_share_cores(out_ranks, config));
    SL_TRY(sl_config_check(config, command));
    SL_TRY(sl_ranks_agree_on_groups(out_ranks, config));
    return sl_ranks_divide(out_ranks, config);
}

sl_status sl_loading_leave_ranks(sl_ranks *ranks, sl_status status)
{
    sl_first_failure failure = {0};
    sl_first_failure_keep(&failure, status);
    sl_ranks_leave(ranks, status);
    sl_ranks_close(ranks);
    return sl_first_failure_return(&failure);
}

sl_status sl_loading_compare(const sl_ranks *ranks, const sl_common_inputs_args *inputs)
{
    sl_common_inputs listed = {0};
    if (!ranks->world)
        return SL_OK;
    sl_status status = sl_common_inputs_list(inputs, &listed);
    if (status == SL_OK)
        status = sl_ranks_agree_on(ranks, listed.facts, listed.count);
    sl_common_inputs_free(&listed);
    return status;
}

sl_status sl_loading_compare_bytes(const sl_ranks *ranks, const char *name, const void *bytes,
                                   uint64_t count)
{
    char value[40];
    const sl_hash_value hash = sl_hash_128(bytes, count);
    snprintf(value, sizeof value, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
    return sl_ranks_agree_on(ranks, &(sl_comm_fact){name, value}, 1);
}

/* ---- opening ---- */

/* Ranks wait for each other while they plan, so a rank must not wait for another thread. */
static sl_status hold_free_memory(sl_loading *loading)
{
    return loading->ranks->world
               ? SL_OK
               : sl_free_memory_begin(loading->config, &loading->holds_free_memory);
}

static void let_go_of_free_memory(sl_loading *loading)
{
    if (loading->holds_free_memory)
        sl_free_memory_end();
    loading->holds_free_memory = false;
}

sl_status sl_loading_begin(const sl_config *config, sl_work work, const sl_model_shape *shape,
                           sl_ranks *ranks, sl_loading *out_loading)
{
    *out_loading = (sl_loading){.config = config, .ranks = ranks};
    SL_TRY(hold_free_memory(out_loading));
    sl_status status = sl_search_init(config, work, shape, &out_loading->search);
    if (status == SL_OK && ranks->world)
        status = sl_ranks_share(ranks, &out_loading->search);
    if (status != SL_OK)
        let_go_of_free_memory(out_loading);
    return status;
}

/* Fills in how long a rank waits for others, which is as long as ten passes of the model at least.
 */
static sl_status agree(const sl_loading *loading, const sl_blueprint *blueprint,
                       double *out_patience)
{
    const bool evaluates = blueprint->task.work == SL_WORK_EVALUATE;
    const sl_ranks_work work = {blueprint, loading->config,
                                evaluates ? SL_CONFIG_EVAL : SL_CONFIG_GENERATE, "the model"};
    sl_simulation simulation;
    SL_TRY(sl_ranks_agree(loading->ranks, &work));
    SL_TRY(sl_plan_simulate(blueprint->programs[0], blueprint->plans[0], &blueprint->machine,
                            &simulation));
    *out_patience = sl_ranks_find_patience(loading->config->rank_timeout,
                                           simulation.step_seconds * loading->ranks->layout.stages);
    sl_ranks_set_patience(loading->ranks, *out_patience);
    return SL_OK;
}

/* Takes the blueprint over. */
static sl_status open_runtime(const sl_loading *loading, sl_blueprint *blueprint,
                              sl_runtime **out_runtime)
{
    const sl_ranks *ranks = loading->ranks;
    sl_runtime_hooks hooks = {.ranks = sl_ranks_others(&ranks->tensor),
                              .data_ranks = sl_ranks_others(&ranks->data),
                              .stage_ranks = sl_ranks_others(&ranks->stages)};
    const sl_status status = ranks->world ? agree(loading, blueprint, &hooks.timeout_s) : SL_OK;
    if (status != SL_OK) {
        sl_blueprint_close(blueprint);
        return status;
    }
    return sl_runtime_open(blueprint, &hooks, out_runtime);
}

static sl_status load(const sl_loading *loading, const sl_model_directory *source,
                      const sl_runtime *runtime)
{
    const sl_status status =
        sl_model_directory_load(source, runtime->tensors, runtime->tensor_count, &runtime->io);
    SL_TRY(sl_ranks_agree_on_damage(loading->ranks, status));
    return loading->ranks->world ? sl_ranks_begin(loading->ranks) : SL_OK;
}

sl_status sl_loading_open(sl_loading *loading, const sl_model_directory *source,
                          sl_runtime **out_runtime)
{
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal;
    sl_status status = sl_search_find(&loading->search, &blueprint, &refusal);
    const bool is_found = status == SL_OK;
    status = sl_ranks_agree_on_fit(loading->ranks, status);
    if (status == SL_OK)
        status =
            sl_ranks_agree_on_fit(loading->ranks, open_runtime(loading, blueprint, out_runtime));
    else if (is_found)
        sl_blueprint_close(blueprint);
    let_go_of_free_memory(loading);
    SL_TRY(status);
    return load(loading, source, *out_runtime);
}

/* ---- text ---- */

sl_status sl_loading_open_vocabulary(sl_config *config, const sl_model_directory *source,
                                     sl_vocabulary **out_vocabulary)
{
    const sl_tokenizer_question question = {.model = config->checkpoint,
                                            .recorded = source->tokenizer,
                                            .directory = source->path,
                                            .shape = &source->shape,
                                            .has_text = true};
    SL_TRY(sl_tokenizer_open(config, &question, out_vocabulary));
    SL_TRY(sl_tokenizer_resolve(config, &question, out_vocabulary));
    return *out_vocabulary ? SL_OK : sl_vocabulary_of_bytes(out_vocabulary);
}

void sl_loading_keep_end(sl_config *config, const sl_model_directory *source)
{
    if (config->end_of_text == SL_CONFIG_UNSET && source->names_end)
        config->end_of_text = source->end_of_text;
}
