/* Rows of a window each; what stands behind the last token is 0 and counts for nothing. */
#include "windows.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "score.h"

typedef struct windows {
    const sl_tokens *tokens;
    uint64_t first_token, token_count, counted; /* of the part; places below are within it */
    uint32_t seq, overlap;
    int32_t *window; /* [T] */
    double loss_sum;
    uint64_t total; /* tokens that are to be counted */
    const sl_eval_watch *watch;
    sl_eval_report *report;
} windows;

uint64_t sl_windows_count(uint64_t token_count, uint32_t seq, uint32_t overlap)
{
    const uint64_t stride = seq - overlap;
    return token_count <= seq ? 1 : 1 + (token_count - seq + stride - 1) / stride;
}

static uint64_t count_tokens(const windows *self, uint64_t first)
{
    const uint64_t left = self->token_count - first;
    return left < self->seq ? left : self->seq;
}

static sl_status fill_window(void *user, uint64_t row, int32_t *tokens, int32_t *targets)
{
    windows *self = user;
    const uint64_t first = row * (self->seq - self->overlap);
    const uint64_t count = count_tokens(self, first);
    SL_TRY(sl_tokens_read(self->tokens, self->first_token + first, count, self->window));
    memset(self->window + count, 0, (self->seq - count) * sizeof *tokens);
    memcpy(tokens, self->window, self->seq * sizeof *tokens);
    memcpy(targets, self->window + 1, (self->seq - 1) * sizeof *targets);
    targets[self->seq - 1] = 0;
    return SL_OK;
}

/* The score at place t is that of token t + 1 of the window. */
static void take_window(void *user, uint64_t row, const sl_token_score *scores)
{
    windows *self = user;
    const uint64_t first = row * (self->seq - self->overlap);
    const uint64_t count = count_tokens(self, first);
    for (uint64_t token = row == 0 ? 1 : self->overlap; token < count; token++) {
        self->loss_sum += scores[token - 1].loss;
        self->counted++;
    }
}

/* Tokens that so many windows count: all up to the end of the last one, but the first. */
static uint64_t count_counted(const windows *self, uint64_t window_count)
{
    const uint64_t last = (window_count - 1) * (self->seq - self->overlap);
    return last + count_tokens(self, last) - 1;
}

static void note_windows(void *user, uint64_t row_count)
{
    windows *self = user;
    sl_eval_report *report = self->report;
    (void)row_count;
    report->tokens = self->counted;
    report->loss = self->loss_sum / (double)self->counted;
    report->perplexity = exp(report->loss);
    report->is_partial = self->counted < self->total;
    sl_eval_watch_pass(self->watch,
                       &(sl_eval_progress){.done = self->counted,
                                           .total = self->total,
                                           .unit = "tokens",
                                           .figure = "loss",
                                           .value = self->counted > 0 ? report->loss : 0});
}

static sl_status check_windows(const windows *self)
{
    if (self->overlap >= self->seq)
        SL_FAIL(SL_ERROR_USAGE, "--overlap %u: a window has %u tokens (--seq), so at most %u",
                self->overlap, self->seq, self->seq - 1);
    if (self->token_count < 2)
        SL_FAIL(SL_ERROR_DATA, "the data have %" PRIu64 " tokens: two are needed for a loss",
                self->token_count);
    return SL_OK;
}

sl_status sl_windows_run(const sl_eval_model *model, const sl_eval_data *data,
                         sl_eval_report *report)
{
    const sl_config *config = model->config;
    windows self = {.tokens = data->tokens,
                    .first_token = data->part.first_token,
                    .token_count = data->part.token_count,
                    .seq = (uint32_t)config->seq,
                    .overlap = (uint32_t)config->overlap,
                    .watch = &model->watch,
                    .report = report};
    SL_TRY(check_windows(&self));
    const uint64_t count =
        sl_score_count_rows(config, sl_windows_count(self.token_count, self.seq, self.overlap));
    const sl_score_rows rows = {.count = count,
                                .seq = self.seq,
                                .fill = fill_window,
                                .take = take_window,
                                .passed = note_windows,
                                .user = &self};
    self.total = count_counted(&self, count);
    report->data_tokens = self.token_count - 1;
    self.window = malloc(self.seq * sizeof *self.window);
    if (!self.window)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a window of tokens");
    sl_status status = sl_score_run(model, &rows);
    free(self.window);
    return status;
}
