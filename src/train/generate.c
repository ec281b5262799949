/* Two programs over one cache: T = length of the prompt, then T = 1. */
#include "generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "files/tokens.h"
#include "sampler.h"
#include "session/session.h"
#include "session/weights/elements.h"
#include "tokenizer.h"

enum { PLAN_PROMPT = 0, PLAN_TOKEN = 1, TOKEN_TEXT_BYTES = 16 };

static const uint64_t sampling_stream = 0x73616d706c65; /* apart from the streams of other draws */

typedef struct generation {
    const sl_generate_args *args;
    sl_gpt2_shape shape;
    int32_t *prompt; /* [prompt_count] */
    uint32_t prompt_count;
    uint32_t token_count; /* to generate at most */
    sl_session *session;
    sl_sampler sampler;
    float *logits; /* [vocab] */
} generation;

/* The prompt's bytes; an empty prompt is the end of a text before. */
static sl_status encode_prompt(generation *self)
{
    const char *text = self->args->config->prompt ? self->args->config->prompt : "";
    size_t length = strlen(text);
    if (length > UINT32_MAX - 1)
        SL_FAIL(SL_ERROR_USAGE, "--prompt is too long");
    self->prompt_count = length ? (uint32_t)length : 1;
    self->prompt = malloc(self->prompt_count * sizeof *self->prompt);
    if (!self->prompt)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the prompt");
    self->prompt[0] = SL_TOKENS_END_OF_TEXT;
    for (size_t i = 0; i < length; i++)
        self->prompt[i] = (unsigned char)text[i];
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
    char text[TOKEN_TEXT_BYTES] = {(char)token};
    uint32_t length = 1;
    if (token >= SL_TOKENS_END_OF_TEXT)
        length = (uint32_t)snprintf(text, sizeof text, "<%d>", token);
    self->args->sink(self->args->user, text, length);
}

static sl_status sample_tokens(generation *self)
{
    int32_t token = 0;
    SL_TRY(sl_engine_clear_persistent(self->session->engine));
    for (uint32_t i = 0; i < self->token_count && !*self->args->stop; i++) {
        uint32_t position = i ? self->prompt_count + i - 1 : 0;
        SL_TRY(predict_token(self, i ? PLAN_TOKEN : PLAN_PROMPT, position, i, &token));
        if (token == SL_TOKENS_END_OF_TEXT)
            break;
        emit_token(self, token);
    }
    return sl_engine_drain(self->session->engine);
}

/* The prompt is text, and so is what follows. */
static sl_status check_tokenizer(const generation *self, const sl_source *source)
{
    sl_config *config = self->args->config;
    const sl_tokenizer_question question = {.model = config->checkpoint,
                                            .recorded = source->tokenizer,
                                            .shape = &source->shape,
                                            .has_text = true};
    return sl_tokenizer_resolve(config, &question);
}

static sl_status generate_from(generation *self, const sl_source *source, sl_refusal *out_refusal)
{
    self->shape = source->shape;
    SL_TRY(check_tokenizer(self, source));
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
    sl_session_close(self.session);
    sl_source_close(&source);
    return status;
}
