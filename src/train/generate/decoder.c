/* What each pass reads: whole pieces while the text is long, single tokens at its end.
 *
 * A piece that is longer than what is left of the text reads zeros behind it: nothing attends to
 * later tokens, and their places in the cache are written again before a token that does. One that
 * would pass the end of the cache begins earlier and reads some tokens a second time.
 */
#include "decoder.h"

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/stop.h"
#include "logits.h"
#include "train/loading/loading.h"

enum {
    TOKEN_PLAN = 0,
    PIECE_ROWS = 64, /* of a piece, all rows of the batch together */
    PIECE_TOKENS_MIN = 8,
    SINGLE_SHARE = 8,   /* less than this part of a piece is read token by token */
    OPEN_CONTEXT = 8192 /* rotary positions, where it is not known how many are needed */
};

/* A program, and the tokens of each of its rows that it reads. */
typedef struct pass {
    uint32_t plan_index, row_count, first, count;
} pass;

struct sl_decoder {
    sl_runtime *runtime;
    sl_model_shape shape;
    sl_ranks *ranks;
    uint32_t row_count, cache_rows;
    uint32_t own_rows; /* that this rank computes, from first_row on; behind the last row there may
                          be some that nobody has: they are the last one once more */
    uint32_t first_row;
    uint32_t prompt, piece; /* tokens of these programs; 0: there is none */
    uint32_t count, read;   /* tokens of a row; those in the cache */
    bool is_fresh;          /* all rows are the text to start from */
    int32_t *tokens;        /* [row_count, cache_rows] */
    pass said;              /* whose logits are the outputs */
    float *logits;          /* [vocab]; of several ranks [row_count, vocab], and behind them the
                               number of ranks that are asked to stop */
};

/* ---- sizes ---- */

/* Tokens that are dropped at once where the context is full. */
static uint64_t find_room(uint64_t context, uint64_t new_count)
{
    return new_count < context / 2 ? new_count : context / 2;
}

uint64_t sl_decoder_fitting(const sl_model_shape *shape, uint64_t prompt_count, uint64_t new_count)
{
    if (prompt_count <= shape->context)
        return prompt_count;
    return shape->context - find_room(shape->context, new_count);
}

const sl_model_shape *sl_decoder_shape(const sl_decoder *decoder)
{
    return &decoder->shape;
}

static uint32_t choose_piece(uint32_t rows, uint32_t context)
{
    uint32_t piece = PIECE_ROWS / rows;
    if (piece < PIECE_TOKENS_MIN)
        piece = PIECE_TOKENS_MIN;
    return piece < context ? piece : context;
}

static void choose_sizes(sl_decoder *self, const sl_decoder_args *args)
{
    const uint64_t context = self->shape.context;
    const uint64_t prompt = sl_decoder_fitting(&self->shape, args->prompt_count, args->new_count);
    const bool is_open = args->prompt_count == 0 || args->new_count > context - prompt;
    const uint32_t sets = self->ranks->world ? self->ranks->layout.data : 1;
    self->row_count = (uint32_t)args->config->samples;
    self->own_rows = (uint32_t)sl_bits_divide_up(self->row_count, sets);
    self->first_row = self->own_rows * self->ranks->place.data;
    self->prompt = (uint32_t)prompt;
    self->cache_rows = (uint32_t)(is_open ? context : prompt + args->new_count);
    self->piece = is_open ? choose_piece(self->own_rows, self->shape.context) : 0;
}

/* ---- opening ---- */

static sl_status open_arrays(sl_decoder *self)
{
    uint64_t token_count, logit_count;
    SL_TRY(sl_bits_multiply(self->row_count, self->cache_rows, "the samples", &token_count));
    SL_TRY(sl_bits_multiply(self->ranks->world ? self->row_count : 1, self->shape.vocab,
                            "the logits of the samples", &logit_count));
    self->tokens = calloc(token_count, sizeof *self->tokens);
    self->logits = calloc(logit_count + 1, sizeof *self->logits);
    if (!self->tokens || !self->logits)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u samples: give fewer --samples", self->row_count);
    return SL_OK;
}

static sl_status open_runtime(sl_decoder *self, const sl_decoder_args *args)
{
    sl_loading loading;
    SL_TRY(sl_loading_begin(args->config, SL_WORK_GENERATE, &self->shape, self->ranks, &loading));
    loading.search.fixed.micro_batch = self->own_rows;
    loading.search.task.seq = self->prompt;
    loading.search.task.piece = self->piece;
    loading.search.task.cache_rows = self->cache_rows;
    SL_TRY(sl_loading_open(&loading, args->source, &self->runtime));
    return sl_engine_clear_persistent(self->runtime->engine);
}

sl_status sl_decoder_open(const sl_decoder_args *args, sl_decoder **out_decoder)
{
    sl_decoder *self = calloc(1, sizeof *self);
    if (!self)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to decode");
    self->shape = args->source->shape;
    self->ranks = args->ranks;
    if (args->prompt_count == 0 && sl_model_shape_is_llama(&self->shape))
        self->shape.context = (uint32_t)sl_bits_min(self->shape.context, OPEN_CONTEXT);
    choose_sizes(self, args);
    sl_status status = open_arrays(self);
    if (status == SL_OK)
        status = open_runtime(self, args);
    if (status != SL_OK) {
        sl_decoder_close(self);
        return status;
    }
    *out_decoder = self;
    return SL_OK;
}

void sl_decoder_close(sl_decoder *decoder)
{
    if (!decoder)
        return;
    sl_runtime_close(decoder->runtime);
    free(decoder->tokens);
    free(decoder->logits);
    free(decoder);
}

/* ---- text ---- */

static int32_t *find_row(const sl_decoder *self, uint32_t row)
{
    return self->tokens + (size_t)row * self->cache_rows;
}

void sl_decoder_start(sl_decoder *decoder, const int32_t *tokens, uint64_t count,
                      uint64_t new_count)
{
    uint64_t kept = sl_decoder_fitting(&decoder->shape, count, new_count);
    for (uint32_t row = 0; row < decoder->row_count; row++)
        memcpy(find_row(decoder, row), tokens + (count - kept), kept * sizeof *tokens);
    decoder->count = (uint32_t)kept;
    decoder->read = 0;
    decoder->is_fresh = true;
}

/* Only a cache of the whole context becomes full. */
static void slide(sl_decoder *self, uint64_t new_count)
{
    uint64_t room = find_room(self->cache_rows, new_count);
    uint32_t dropped = room > 0 ? (uint32_t)room : 1;
    self->count -= dropped;
    for (uint32_t row = 0; row < self->row_count; row++)
        memmove(find_row(self, row), find_row(self, row) + dropped,
                self->count * sizeof *self->tokens);
    self->read = 0;
    self->is_fresh = false;
}

void sl_decoder_append(sl_decoder *decoder, const int32_t *tokens, uint64_t new_count)
{
    if (decoder->count == decoder->cache_rows)
        slide(decoder, new_count);
    for (uint32_t row = 0; row < decoder->row_count; row++)
        find_row(decoder, row)[decoder->count] = tokens[row];
    decoder->count++;
}

uint32_t sl_decoder_read_count(const sl_decoder *decoder)
{
    return decoder->read;
}

/* ---- passes ---- */

/* A row that this rank computes. */
static const int32_t *find_own_row(const sl_decoder *self, uint32_t row)
{
    const uint32_t last = self->row_count - 1, of_all = self->first_row + row;
    return find_row(self, of_all < last ? of_all : last);
}

static sl_status run_pass(sl_decoder *self, const pass *what)
{
    const sl_step_scalars scalars = {.loss_scale = 1, .position = what->first};
    sl_engine *engine = self->runtime->engine;
    int32_t *input = sl_engine_input(engine, what->plan_index, SL_INPUT_TOKENS);
    const uint32_t left = self->count - what->first;
    const uint32_t there = left < what->count ? left : what->count;
    if (input) /* of stages the first one reads tokens */
        memset(input, 0, (size_t)what->row_count * what->count * sizeof *input);
    for (uint32_t row = 0; input && row < what->row_count; row++)
        memcpy(input + (size_t)row * what->count, find_own_row(self, row) + what->first,
               there * sizeof *input);
    return sl_engine_step(engine, what->plan_index, &scalars);
}

/* The sum over all ranks: each has zeros where another rank has the logits. The prompt is read by
 * all sets of ranks, and speaks for all rows. */
static sl_status share_logits(sl_decoder *self, bool is_asked)
{
    const bool is_prompt = self->said.row_count < self->own_rows;
    const uint64_t vocab = self->shape.vocab, count = self->row_count * vocab;
    const uint32_t end = is_prompt ? self->ranks->place.data == 0 : self->own_rows;
    memset(self->logits, 0, (count + 1) * sizeof *self->logits);
    for (uint32_t i = 0; i < end && self->first_row + i < self->row_count; i++)
        sl_logits_join(self->runtime, self->said.plan_index, i,
                       self->logits + (self->first_row + i) * vocab);
    self->logits[count] = is_asked ? 1 : 0;
    SL_TRY(sl_comm_all_reduce(self->ranks->world, SL_COMM_FP32, count + 1, self->logits));
    for (uint32_t row = 1; is_prompt && row < self->row_count; row++)
        memcpy(self->logits + row * vocab, self->logits, vocab * sizeof *self->logits);
    return SL_OK;
}

float *sl_decoder_logits(sl_decoder *decoder, uint32_t row)
{
    if (decoder->ranks->world)
        return decoder->logits + (size_t)row * decoder->shape.vocab;
    sl_logits_join(decoder->runtime, decoder->said.plan_index,
                   decoder->said.row_count > 1 ? row : 0, decoder->logits);
    return decoder->logits;
}

bool sl_decoder_must_stop(const sl_decoder *decoder, const volatile sig_atomic_t *stop)
{
    const uint64_t count = (uint64_t)decoder->row_count * decoder->shape.vocab;
    return decoder->ranks->world ? decoder->logits[count] > 0 : sl_stop_is_set(stop);
}

/* One token of every row, with its logits. */
static sl_status read_token(sl_decoder *self)
{
    const pass token = {TOKEN_PLAN, self->own_rows, self->read, 1};
    SL_TRY(run_pass(self, &token));
    self->said = token;
    self->read++;
    return SL_OK;
}

/* A piece of every row, of which none beyond `end` counts. */
static sl_status read_piece(sl_decoder *self, uint32_t end)
{
    if ((uint64_t)(end - self->read) * SINGLE_SHARE <= self->piece || self->piece == 0)
        return read_token(self);
    const uint32_t last_first = self->cache_rows - self->piece;
    const uint32_t first = self->read < last_first ? self->read : last_first;
    const pass piece = {self->prompt ? 2 : 1, self->own_rows, first, self->piece};
    SL_TRY(run_pass(self, &piece));
    self->read = first + self->piece < end ? first + self->piece : end;
    return SL_OK;
}

/* The program of one row has written its keys as row 0 and its values as row 1 of keys. */
static sl_status copy_cache(sl_decoder *self, uint32_t slot, uint64_t token_bytes)
{
    const uint64_t row_bytes = self->cache_rows * token_bytes, rows = self->own_rows;
    for (uint64_t row = 0; row < rows; row++) {
        const sl_engine_slot_copy values = {.slot = slot,
                                            .from = row_bytes,
                                            .to = (rows + row) * row_bytes,
                                            .bytes = self->count * token_bytes};
        SL_TRY(sl_engine_copy_persistent(self->runtime->engine, &values));
    }
    for (uint64_t row = 1; row < rows; row++) {
        const sl_engine_slot_copy keys = {
            .slot = slot, .to = row * row_bytes, .bytes = self->count * token_bytes};
        SL_TRY(sl_engine_copy_persistent(self->runtime->engine, &keys));
    }
    return SL_OK;
}

static sl_status copy_rows(sl_decoder *self)
{
    enum { CACHE = 1 };
    const sl_program *program = self->runtime->blueprint->programs[TOKEN_PLAN];
    for (uint32_t o = 0; o < program->op_count; o++) {
        const sl_op *op = &program->ops[o];
        if (op->kind == SL_OP_ATTENTION_CACHED)
            SL_TRY(copy_cache(self, program->values[op->operand[CACHE]].index,
                              op->attrs.out * sl_type_bytes(program->type)));
    }
    return SL_OK;
}

static sl_status read_prompt(sl_decoder *self)
{
    const pass prompt = {1, 1, 0, self->prompt};
    SL_TRY(run_pass(self, &prompt));
    self->said = prompt;
    self->read = self->count;
    return self->own_rows > 1 ? copy_rows(self) : SL_OK;
}

/* Pieces up to the last token, which is read alone for its logits. */
static sl_status read_rest(sl_decoder *self, const volatile sig_atomic_t *stop, bool *out_is_whole)
{
    const uint32_t last = self->count - 1;
    self->read = self->read < last ? self->read : last;
    while (self->read < last) {
        if (sl_stop_is_set(stop) && !self->ranks->world)
            return SL_OK;
        SL_TRY(read_piece(self, last));
    }
    *out_is_whole = true;
    return read_token(self);
}

sl_status sl_decoder_read(sl_decoder *decoder, const volatile sig_atomic_t *stop,
                          bool *out_is_whole)
{
    const bool is_prompt = decoder->is_fresh && decoder->count == decoder->prompt;
    *out_is_whole = is_prompt;
    SL_TRY(is_prompt ? read_prompt(decoder) : read_rest(decoder, stop, out_is_whole));
    return decoder->ranks->world ? share_logits(decoder, sl_stop_is_set(stop)) : SL_OK;
}

sl_status sl_decoder_drain(sl_decoder *decoder)
{
    return sl_engine_drain(decoder->runtime->engine);
}
