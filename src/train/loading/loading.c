/* See loading.h. */
#include "loading.h"

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

sl_status sl_loading_begin(const sl_config *config, sl_work work, const sl_model_shape *shape,
                           sl_loading *out_loading)
{
    SL_TRY(sl_free_memory_begin(config, &out_loading->holds_free_memory));
    const sl_status status = sl_search_init(config, work, shape, &out_loading->search);
    if (status != SL_OK && out_loading->holds_free_memory)
        sl_free_memory_end();
    return status;
}

sl_status sl_loading_open(sl_loading *loading, const sl_model_directory *source,
                          sl_runtime **out_runtime)
{
    sl_blueprint *blueprint = NULL;
    sl_refusal refusal;
    sl_status status = sl_search_find(&loading->search, &blueprint, &refusal);
    if (status == SL_OK)
        status = sl_runtime_open(blueprint, NULL, out_runtime);
    if (loading->holds_free_memory)
        sl_free_memory_end();
    SL_TRY(status);
    sl_runtime *runtime = *out_runtime;
    return sl_model_directory_load(source, runtime->tensors, runtime->tensor_count, &runtime->io);
}

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
