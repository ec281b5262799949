/* Programs that give the softmax's statistics of each token; the rest is arithmetic in double, as
 * the op head_loss does it. */
#include "score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

enum { STATS_A_ROW = 4 }; /* largest logit, sum of exponentials, the target's logit, 0 */

typedef struct scorer {
    const sl_eval_model *model;
    const sl_score_rows *rows;
    sl_runtime *runtime;
    int32_t *row;        /* [2, T]: tokens and targets of a row */
    sl_token_score *own; /* [rows of a micro-batch, T]: of the one that this rank computed last */
    sl_token_score *all; /* [ranks][as own] */
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
    sl_token_score *to = self->own;
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

/* Rows that are scored at once: as many micro-batches as there are sets of ranks with rows of their
 * own, all of `count` rows, or the rows that are left. */
typedef struct scored_rows {
    uint32_t plan_index, count, sets;
    uint64_t first;
} scored_rows;

static scored_rows next_rows(const scorer *self, uint64_t done)
{
    const uint32_t batch = self->runtime->blueprint->choice.micro_batch;
    const uint64_t left = self->rows->count - done;
    const uint32_t sets = self->model->ranks->world ? self->model->ranks->layout.data : 1;
    if (left < batch)
        return (scored_rows){1, (uint32_t)left, 1, done};
    return (scored_rows){0, batch, (uint32_t)sl_bits_min(sets, left / batch), done};
}

/* A rank whose set has no rows left computes those of the first set once more. */
static sl_status score_own(const scorer *self, const scored_rows *of)
{
    const sl_step_scalars scalars = {.loss_scale = 1};
    const uint32_t seq = self->rows->seq, set = self->model->ranks->place.data;
    const uint64_t first = of->first + (set < of->sets ? (uint64_t)set * of->count : 0);
    sl_engine *engine = self->runtime->engine;
    int32_t *tokens = sl_engine_input(engine, of->plan_index, SL_INPUT_TOKENS);
    int32_t *targets = sl_engine_input(engine, of->plan_index, SL_INPUT_TARGETS);
    for (uint32_t i = 0; i < of->count; i++) {
        SL_TRY(self->rows->fill(self->rows->user, first + i, self->row, self->row + seq));
        if (tokens) /* the first stage has tokens, the last one targets */
            memcpy(tokens + (size_t)i * seq, self->row, seq * sizeof *tokens);
        if (targets)
            memcpy(targets + (size_t)i * seq, self->row + seq, seq * sizeof *targets);
    }
    SL_TRY(sl_engine_step(engine, of->plan_index, &scalars));
    read_scores(self, of->plan_index);
    return SL_OK;
}

/* The scores of one set of ranks: the last stage of a pipeline has them. */
static const sl_token_score *find_scores(const scorer *self, uint32_t set, uint64_t token_count)
{
    const sl_comm_layout *layout = &self->model->ranks->layout;
    if (!self->model->ranks->world)
        return self->own;
    const sl_comm_place place = {.data = set, .stage = layout->stages - 1};
    return self->all + sl_comm_rank_of(layout, &place) * token_count;
}

static sl_status take_scores(const scorer *self, const scored_rows *of)
{
    const uint64_t token_count = (uint64_t)of->count * self->rows->seq;
    if (self->model->ranks->world)
        SL_TRY(sl_comm_all_gather(self->model->ranks->world, token_count * sizeof *self->own,
                                  self->own, self->all));
    for (uint32_t set = 0; set < of->sets; set++) {
        const sl_token_score *scores = find_scores(self, set, token_count);
        const uint64_t first = of->first + (uint64_t)set * of->count;
        for (uint32_t i = 0; i < of->count; i++)
            self->rows->take(self->rows->user, first + i, scores + (size_t)i * self->rows->seq);
    }
    return SL_OK;
}

static sl_status open_arrays(scorer *self)
{
    const uint64_t batch = self->runtime->blueprint->choice.micro_batch;
    const sl_comm *world = self->model->ranks->world;
    uint64_t token_count, all_count;
    SL_TRY(sl_bits_multiply(batch, self->rows->seq, "the scores of tokens", &token_count));
    SL_TRY(sl_bits_multiply(token_count, world ? sl_comm_size(world) : 0, "the scores of all ranks",
                            &all_count));
    self->row = calloc((size_t)2 * self->rows->seq, sizeof *self->row);
    self->own = calloc(token_count, sizeof *self->own);
    self->all = calloc(all_count + 1, sizeof *self->all);
    if (!self->row || !self->own || !self->all)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the losses of tokens");
    return SL_OK;
}

static sl_status score_all(scorer *self)
{
    const sl_score_rows *rows = self->rows;
    bool stops;
    SL_TRY(open_arrays(self));
    rows->passed(rows->user, 0);
    for (uint64_t done = 0; done < rows->count;) {
        const scored_rows next = next_rows(self, done);
        SL_TRY(sl_eval_watch_vote(&self->model->watch, self->model->ranks, &stops));
        if (stops)
            break;
        SL_TRY(score_own(self, &next));
        SL_TRY(take_scores(self, &next));
        done += (uint64_t)next.sets * next.count;
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

sl_status sl_score_run(const sl_eval_model *model, const sl_score_rows *rows)
{
    scorer self = {.model = model, .rows = rows};
    const sl_evaluate_rows all = {
        .count = rows->count, .limit = SL_CONFIG_UNSET, .seq = rows->seq, .by_token = true};
    sl_status status = sl_evaluate_open(model, &all, &self.runtime);
    if (status == SL_OK)
        status = score_all(&self);
    free(self.row);
    free(self.own);
    free(self.all);
    sl_runtime_close(self.runtime);
    return status;
}
