/* Forward passes only. Rows that do not fill a micro-batch have a program of their own. */
#include "evaluate.h"

#include <math.h>

#include "session/weights/source.h"

sl_status sl_evaluate_rows(sl_session *session, const sl_data_loader *loader,
                           const sl_evaluate_range *range, double *loss_sum)
{
    const sl_step_scalars scalars = {.loss_scale = 1};
    uint64_t row = range->first_row;
    for (uint64_t i = 0; i < range->micro_batch_count; i++) {
        if (range->stop && *range->stop)
            break;
        SL_TRY(sl_data_loader_fill(loader, session->engine, range->plan_index,
                                   (sl_row_range){row, range->rows_per_batch}));
        SL_TRY(sl_engine_step(session->engine, range->plan_index, &scalars));
        *loss_sum +=
            *(const double *)sl_engine_output(session->engine, range->plan_index, SL_OUTPUT_LOSS);
        row += range->rows_per_batch;
    }
    return SL_OK;
}

void sl_evaluate_report(double loss_sum, uint64_t tokens, sl_eval_report *report)
{
    report->loss = loss_sum / (double)tokens;
    report->perplexity = exp(report->loss);
    report->tokens = tokens;
}

/* All whole rows: full micro-batches, then the rest. */
static sl_status evaluate_file(sl_session *session, const sl_data_loader *loader,
                               sl_eval_report *report)
{
    const sl_blueprint *blueprint = session->blueprint;
    uint64_t row_count = sl_data_loader_row_count(loader);
    uint32_t batch = blueprint->choice.micro_batch;
    double loss_sum = 0;
    sl_evaluate_range full = {.rows_per_batch = batch, .micro_batch_count = row_count / batch};
    SL_TRY(sl_evaluate_rows(session, loader, &full, &loss_sum));
    if (blueprint->task.tail_rows) {
        sl_evaluate_range tail = {.plan_index = 1,
                                  .first_row = row_count / batch * batch,
                                  .rows_per_batch = blueprint->task.tail_rows,
                                  .micro_batch_count = 1};
        SL_TRY(sl_evaluate_rows(session, loader, &tail, &loss_sum));
    }
    sl_evaluate_report(loss_sum, row_count * loader->seq, report);
    return SL_OK;
}

/* A task whose micro-batches cover `row_count` rows exactly. */
static sl_status plan_rows(const sl_config *config, const sl_gpt2_shape *shape, uint64_t row_count,
                           sl_blueprint **out_blueprint, sl_refusal *out_refusal)
{
    sl_search search;
    SL_TRY(sl_search_init(config, SL_WORK_EVALUATE, shape, &search));
    if (search.fixed.micro_batch > row_count)
        search.fixed.micro_batch = (uint32_t)row_count;
    search.task.tail_rows = (uint32_t)(row_count % search.fixed.micro_batch);
    return sl_search_find(&search, out_blueprint, out_refusal);
}

static sl_status evaluate_source(sl_config *config, const sl_source *source, sl_tokens *tokens,
                                 sl_eval_report *out_report, sl_refusal *out_refusal)
{
    sl_data_loader loader = {0};
    sl_blueprint *blueprint = NULL;
    sl_session *session = NULL;
    SL_TRY(sl_config_fit_model(config, &source->shape));
    SL_TRY(sl_tokens_limit_vocab(tokens, source->shape.vocab));
    SL_TRY(sl_data_loader_open(tokens, SL_DATA_SEQUENTIAL, 0, (uint32_t)config->seq, &loader));
    sl_status status;
    SL_TRY_GOTO(status,
                plan_rows(config, &source->shape, sl_data_loader_row_count(&loader), &blueprint,
                          out_refusal),
                close_loader);
    SL_TRY_GOTO(status, sl_session_open(blueprint, NULL, &session), close_loader);
    SL_TRY_GOTO(status, sl_source_load(source, session), close_session);
    SL_TRY_GOTO(status, evaluate_file(session, &loader, out_report), close_session);
close_session:
    sl_session_close(session);
close_loader:
    sl_data_loader_close(&loader);
    return status;
}

sl_status sl_evaluate_run(sl_config *config, sl_eval_report *out_report, sl_refusal *out_refusal)
{
    sl_source source;
    SL_TRY(sl_source_open(config->checkpoint, &source));
    sl_tokens *tokens = NULL;
    *out_report = (sl_eval_report){0};
    if (source.checkpoint)
        out_report->step = sl_checkpoint_describe(source.checkpoint)->state.step;
    sl_status status =
        sl_tokens_open((const char *const *)config->data.items, config->data.count, 0, &tokens);
    if (status == SL_OK)
        status = evaluate_source(config, &source, tokens, out_report, out_refusal);
    sl_tokens_close(tokens);
    sl_source_close(&source);
    return status;
}
