/* Two programs over one cache: T = length of the prompt, then T = 1. */
#include "generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "sampler.h"
#include "session/session.h"
#include "session/weights/elements.h"
#include "text/bpe.h"
#include "tokenizer.h"

enum { PLAN_PROMPT = 0, PLAN_TOKEN = 1, UNKNOWN_TEXT_BYTES = 16, PROMPT_CACHE_SLOTS = 1 };

static const uint64_t sampling_stream = 0x73616d706c65; /* apart from the streams of other draws */

typedef struct generation {
    const sl_generate_args *args;
    sl_gpt2_shape shape;
    int32_t *prompt; /* [prompt_count] */
    uint32_t prompt_count;
    uint32_t token_count; /* to generate at most */
    sl_vocabulary *vocabulary;
    sl_session *session;
    sl_sampler sampler;
    float *logits; /* [vocab] */
} generation;

static sl_status add_end_of_text(const generation *self, sl_ids *ids)
{
    int32_t end = sl_vocabulary_end_of_text(self->vocabulary);
    if (end == SL_VOCABULARY_NONE)
        SL_FAIL(SL_ERROR_USAGE, "the tokenizer has no end of text to start from: give --prompt");
    SL_TRY(sl_ids_reserve(ids, 1));
    ids->items[ids->count++] = (uint32_t)end;
    return SL_OK;
}

/* The prompt's tokens; an empty prompt is the end of a text before. */
static sl_status encode_prompt(generation *self)
{
    const char *text = self->args->config->prompt ? self->args->config->prompt : "";
    sl_bpe *bpe = NULL;
    sl_ids ids = {0};
    SL_TRY(sl_bpe_open(self->vocabulary, PROMPT_CACHE_SLOTS, &bpe));
    sl_status status = sl_bpe_encode(bpe, text, strlen(text), &ids);
    sl_bpe_close(bpe);
    if (status == SL_OK && ids.count == 0)
        status = add_end_of_text(self, &ids);
    self->prompt = (int32_t *)ids.items;
    SL_TRY(status);
    if (ids.count > UINT32_MAX - 1)
        SL_FAIL(SL_ERROR_USAGE, "--prompt is too long");
    self->prompt_count = (uint32_t)ids.count;
    for (uint32_t i = 0; i < self->prompt_count; i++)
        if ((uint32_t)self->prompt[i] >= self->shape.vocab)
            SL_FAIL(SL_ERROR_USAGE, "--prompt: token %d is beyond the model's vocabulary of %u",
                    self->prompt[i], self->shape.vocab);
    return SL_OK;
}

static sl_status check_length(generation *self)
{
    const sl_config *config = self->args->config;
    uint32_t context = self->shape.context;
    bool is_given = config->given[SL_CONFIG_ROW_tokens];
    uint64_t wanted = self->prompt_count + config->tokens;
    if (self->prompt_count >= context || (is_given && wanted > context))
        SL_FAIL(SL_ERROR_USAGE,
                "%u tokens of prompt and %llu to generate are beyond the model's context of %u",
                self->prompt_count, (unsigned long long)config->tokens, context);
    self->token_count = wanted > context ? context - self->prompt_count : (uint32_t)config->tokens;
    return SL_OK;
}

static sl_status open_session(generation *self, const sl_source *source, sl_refusal *out_refusal)
{
    sl_search search;
    sl_blueprint *blueprint = NULL;
    SL_TRY(sl_search_init(self->args->config, SL_WORK_GENERATE, &self->shape, &search));
    search.task.seq = self->prompt_count;
    SL_TRY(sl_search_find(&search, &blueprint, out_refusal));
    SL_TRY(sl_session_open(blueprint, NULL, &self->session));
    return sl_source_load(source, self->session);
}

static sl_status open_sampler(generation *self)
{
    const sl_config *config = self->args->config;
    sl_sampler options = {.vocab = self->shape.vocab,
                          .temperature = config->temperature,
                          .top_k = (uint32_t)config->top_k,
                          .top_p = config->top_p};
    self->logits = calloc(self->shape.vocab, sizeof *self->logits);
    if (!self->logits)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for logits");
    return sl_sampler_open(&options, &self->sampler);
}

/* Joins the logits of all panels, as floats; output p is the p-th panel of the embedding. */
static void collect_logits(const generation *self, uint32_t plan_index)
{
    uint32_t panel = 0;
    for (uint32_t i = 0; i < self->session->tensor_count; i++) {
        const sl_tensor_spec *tensor = &self->session->tensors[i];
        if (strcmp(tensor->name, "wte.weight") != 0)
            continue;
        const void *output = sl_engine_output(self->session->engine, plan_index, panel++);
        sl_elements_widen(self->session->blueprint->task.type, output, tensor->valid_rows,
                          self->logits + tensor->first_row);
    }
}

/* Runs the program on tokens at `position` of the cache and draws the next token. */
static sl_status predict_token(generation *self, uint32_t plan_index, uint32_t position,
                               uint32_t drawn, int32_t *token)
{
    sl_step_scalars scalars = {.loss_scale = 1, .position = position};
    int32_t *input = sl_engine_input(self->session->engine, plan_index, 0);
    if (plan_index == PLAN_PROMPT)
        memcpy(input, self->prompt, self->prompt_count * sizeof *input);
    else
        input[0] = *token;
    SL_TRY(sl_engine_step(self->session->engine, plan_index, &scalars));
    collect_logits(self, plan_index);
    uint32_t id;
    double uniform = sl_rng_uniform(self->args->config->seed, sampling_stream, drawn);
    SL_TRY(sl_sampler_draw(&self->sampler, self->logits, uniform, &id));
    *token = (int32_t)id;
    return SL_OK;
}

static void emit_token(const generation *self, int32_t token)
{
    char text[UNKNOWN_TEXT_BYTES];
    sl_token_bytes known = {text, 0};
    if ((uint32_t)token < sl_vocabulary_count(self->vocabulary))
        known = sl_vocabulary_token(self->vocabulary, (uint32_t)token);
    else
        known.bytes = (uint32_t)snprintf(text, sizeof text, "<%d>", token);
    self->args->sink(self->args->user, known.text, known.bytes);
}

static sl_status sample_tokens(generation *self)
{
    int32_t token = 0;
    SL_TRY(sl_engine_clear_persistent(self->session->engine));
    for (uint32_t i = 0; i < self->token_count && !*self->args->stop; i++) {
        uint32_t position = i ? self->prompt_count + i - 1 : 0;
        SL_TRY(predict_token(self, i ? PLAN_TOKEN : PLAN_PROMPT, position, i, &token));
        if (token == sl_vocabulary_end_of_text(self->vocabulary))
            break;
        emit_token(self, token);
    }
    return sl_engine_drain(self->session->engine);
}

/* The prompt is text, and so is what follows. */
static sl_status open_tokenizer(generation *self, const sl_source *source)
{
    sl_config *config = self->args->config;
    const sl_tokenizer_question question = {.model = config->checkpoint,
                                            .recorded = source->tokenizer,
                                            .directory = source->path,
                                            .shape = &source->shape,
                                            .has_text = true};
    SL_TRY(sl_tokenizer_open(config, &question, &self->vocabulary));
    SL_TRY(sl_tokenizer_resolve(config, &question, &self->vocabulary));
    return self->vocabulary ? SL_OK : sl_vocabulary_of_bytes(&self->vocabulary);
}

static sl_status generate_from(generation *self, const sl_source *source, sl_refusal *out_refusal)
{
    self->shape = source->shape;
    SL_TRY(open_tokenizer(self, source));
    SL_TRY(encode_prompt(self));
    SL_TRY(check_length(self));
    SL_TRY(open_session(self, source, out_refusal));
    SL_TRY(open_sampler(self));
    return sample_tokens(self);
}

sl_status sl_generate_run(const sl_generate_args *args, sl_refusal *out_refusal)
{
    sl_source source;
    generation self = {.args = args};
    SL_TRY(sl_source_open(args->config->checkpoint, &source));
    sl_status status = generate_from(&self, &source, out_refusal);
    sl_sampler_close(&self.sampler);
    free(self.logits);
    free(self.prompt);
    sl_vocabulary_close(self.vocabulary);
    sl_session_close(self.session);
    sl_source_close(&source);
    return status;
}
