/* Programs that give the softmax's statistics of each token; the rest is arithmetic in double, as
 * the op head_loss does it. */
#include "score.h"

#include <math.h>
#include <stdlib.h>

#include "base/bits.h"

enum { STATS_A_ROW = 4 }; /* largest logit, sum of exponentials, the target's logit, 0 */

typedef struct scorer {
    const sl_score_rows *rows;
    sl_runtime *runtime;
    sl_token_score *scores; /* [rows of a micro-batch, T] */
} scorer;

static sl_token_score score_token(const float *stats)
{
    const double likeliest = stats[0], sum = stats[1], target = stats[2];
    return (sl_token_score){log(sum) + (likeliest - target), target >= likeliest};
}

/* The outputs of a plan are the ranges of its rows, in order. */
static void read_scores(const scorer *self, uint32_t plan_index)
{
    const sl_program *program = self->runtime->blueprint->programs[plan_index];
    sl_token_score *to = self->scores;
    for (uint32_t i = 0; i < program->value_count; i++) {
        const sl_value *value = &program->values[i];
        if (value->kind != SL_VALUE_OUTPUT)
            continue;
        const float *stats = sl_engine_output(self->runtime->engine, plan_index, value->index);
        const uint64_t row_count = value->bytes / (STATS_A_ROW * sizeof *stats);
        for (uint64_t row = 0; row < row_count; row++)
            *to++ = score_token(stats + row * STATS_A_ROW);
    }
}

static sl_status score_rows(const scorer *self, uint32_t plan_index, uint64_t first, uint32_t count)
{
    const sl_step_scalars scalars = {.loss_scale = 1};
    const uint32_t seq = self->rows->seq;
    sl_engine *engine = self->runtime->engine;
    int32_t *tokens = sl_engine_input(engine, plan_index, SL_INPUT_TOKENS);
    int32_t *targets = sl_engine_input(engine, plan_index, SL_INPUT_TARGETS);
    for (uint32_t i = 0; i < count; i++)
        SL_TRY(self->rows->fill(self->rows->user, first + i, tokens + (size_t)i * seq,
                                targets + (size_t)i * seq));
    SL_TRY(sl_engine_step(engine, plan_index, &scalars));
    read_scores(self, plan_index);
    for (uint32_t i = 0; i < count; i++)
        self->rows->take(self->rows->user, first + i, self->scores + (size_t)i * seq);
    return SL_OK;
}

static sl_status score_all(scorer *self)
{
    const sl_score_rows *rows = self->rows;
    const uint32_t batch = self->runtime->blueprint->choice.micro_batch;
    const sl_evaluate_range range = sl_evaluate_cover(rows->count, batch, SL_CONFIG_UNSET);
    self->scores = calloc((size_t)batch * self->rows->seq, sizeof *self->scores);
    if (!self->scores)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the losses of tokens");
    rows->passed(rows->user, 0);
    for (uint64_t done = 0; done < rows->count && !sl_eval_watch_stops(rows->watch);) {
        const bool is_tail = done == range.micro_batch_count * batch;
        const uint32_t count = is_tail ? range.tail_rows : batch;
        SL_TRY(score_rows(self, is_tail, done, count));
        done += count;
        rows->passed(rows->user, done);
    }
    return sl_engine_drain(self->runtime->engine);
}

uint64_t sl_score_count_rows(const sl_config *config, uint64_t count)
{
    uint64_t limit;
    if (config->eval_iters == SL_CONFIG_UNSET ||
        sl_bits_multiply(config->eval_iters, config->micro_batch, "rows", &limit) != SL_OK)
        return count;
    return limit < count ? limit : count;
}

sl_status sl_score_run(const sl_config *config, const sl_model_directory *source,
                       const sl_score_rows *rows)
{
    scorer self = {.rows = rows};
    const sl_evaluate_rows all = {
        .count = rows->count, .limit = SL_CONFIG_UNSET, .seq = rows->seq, .by_token = true};
    sl_status status = sl_evaluate_open(config, source, &all, &self.runtime);
    if (status == SL_OK)
        status = score_all(&self);
    free(self.scores);
    sl_runtime_close(self.runtime);
    return status;
}
