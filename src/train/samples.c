/* See samples.h. */
#include "samples.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/stop.h"
#include "text/example.h"
#include "text/utf8.h"
#include "train/generate/logits.h"
#include "train/generate/sampler.h"
#include "train/generate/token_text.h"

/* Bytes that grow; a NUL stands behind them. */
typedef struct text {
    char *bytes;
    uint64_t count, capacity;
} text;

struct sl_samples {
    const sl_config *config;
    const sl_vocabulary *vocabulary;
    sl_vocabulary *own_vocabulary; /* of bytes, or NULL */
    sl_text_ends ends;
    sl_sampler sampler;
    sl_ids ids; /* the prompt, then what was drawn */
    uint64_t prompt_count;
    float *logits; /* [vocab] */
    text prompt, raw, clean;
};

/* ---- text ---- */

static sl_status add_text(text *to, const char *bytes, uint64_t count)
{
    SL_TRY(
        SL_ARRAY_RESERVE(to->bytes, to->count + count + 1, to->capacity, "the text of a sample"));
    memcpy(to->bytes + to->count, bytes, count);
    to->count += count;
    to->bytes[to->count] = '\0';
    return SL_OK;
}

/* Bytes of the character at `at`; 0: there is none, or it is NUL. */
static uint32_t count_valid(const char *at, uint64_t left)
{
    const unsigned char first = (unsigned char)*at;
    uint32_t code;
    if (first < 0x80)
        return first != 0;
    return sl_utf8_read((const unsigned char *)at, left, &code);
}

/* A model can write any bytes: those that are no character, and NUL, become U+FFFD. */
static sl_status clean_text(const char *bytes, uint64_t count, text *out_clean)
{
    static const char replacement[] = "\xef\xbf\xbd";
    out_clean->count = 0;
    SL_TRY(add_text(out_clean, "", 0));
    for (uint64_t at = 0; at < count;) {
        const uint32_t length = count_valid(bytes + at, count - at);
        SL_TRY(add_text(out_clean, length > 0 ? bytes + at : replacement,
                        length > 0 ? length : sizeof replacement - 1));
        at += length > 0 ? length : 1;
    }
    return SL_OK;
}

/* ---- opening ---- */

static sl_status find_vocabulary(sl_samples *self, const sl_vocabulary *vocabulary)
{
    const sl_config *config = self->config;
    const bool is_byte =
        sl_config_names_tokenizer(config) && strcmp(config->tokenizer, "byte") == 0;
    if (!vocabulary && !is_byte)
        SL_FAIL(SL_ERROR_USAGE, "--sample-every: how this model's ids become text is not known: "
                                "add --tokenizer DIR");
    if (!vocabulary)
        SL_TRY(sl_vocabulary_of_bytes(&self->own_vocabulary));
    self->vocabulary = vocabulary ? vocabulary : self->own_vocabulary;
    return SL_OK;
}

/* An empty prompt is the end of a text before, as of generate. */
static sl_status set_prompt(sl_samples *self, const char *template_text, uint32_t vocab)
{
    const char *said = self->config->sample_prompt ? self->config->sample_prompt : "";
    const sl_example_prompt prompt = {
        .template_text = template_text, .text = said, .bytes = strlen(said)};
    sl_example asked = {0};
    const bool is_put = template_text && prompt.bytes > 0;
    sl_status status = is_put ? sl_example_make_prompt(&prompt, &asked) : SL_OK;
    const char *read = asked.text ? asked.text : said;
    const uint64_t bytes = asked.text ? asked.bytes : prompt.bytes;
    if (status == SL_OK)
        status = clean_text(read, bytes, &self->prompt);
    if (status == SL_OK)
        status =
            sl_prompt_encode(self->vocabulary, vocab, "--sample-prompt", read, bytes, &self->ids);
    sl_example_free(&asked);
    self->prompt_count = self->ids.count;
    return status;
}

/* As `sluice generate` of a checkpoint. */
static sl_status find_ends(sl_samples *self, const sl_model_texts *texts, uint32_t vocab)
{
    const int32_t end = sl_vocabulary_end_of_text(self->vocabulary);
    if (end != SL_VOCABULARY_NONE)
        self->ends = (sl_text_ends){1, {(uint32_t)end}};
    const uint64_t own = self->config->end_of_text;
    if (own < vocab && !sl_text_ends_has(&self->ends, (uint32_t)own))
        self->ends.ids[self->ends.count++] = (uint32_t)own;
    return sl_model_texts_find_ends(texts, "the model", vocab, &self->ends);
}

static sl_status open_samples(sl_samples *self, const sl_model_texts *texts,
                              const sl_vocabulary *vocabulary, uint32_t vocab)
{
    const sl_sampler plain = {.vocab = vocab, .temperature = 1, .top_p = 1};
    SL_TRY(find_vocabulary(self, vocabulary));
    SL_TRY(find_ends(self, texts, vocab));
    SL_TRY(sl_sampler_open(&plain, &self->sampler));
    self->logits = calloc(vocab, sizeof *self->logits);
    if (!self->logits)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the logits of %u ids", vocab);
    SL_TRY(set_prompt(self, texts->examples, vocab));
    return sl_ids_reserve(&self->ids, self->config->sample_tokens);
}

sl_status sl_samples_open(const sl_config *config, const sl_model_texts *texts,
                          const sl_vocabulary *vocabulary, uint32_t vocab, sl_samples **out_samples)
{
    sl_samples *self = calloc(1, sizeof *self);
    if (!self)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for samples");
    self->config = config;
    const sl_status status = open_samples(self, texts, vocabulary, vocab);
    if (status != SL_OK) {
        sl_samples_close(self);
        return status;
    }
    *out_samples = self;
    return SL_OK;
}

void sl_samples_close(sl_samples *samples)
{
    if (!samples)
        return;
    sl_vocabulary_close(samples->own_vocabulary);
    sl_sampler_close(&samples->sampler);
    sl_ids_free(&samples->ids);
    free(samples->logits);
    free(samples->prompt.bytes);
    free(samples->raw.bytes);
    free(samples->clean.bytes);
    free(samples);
}

/* ---- a token ---- */

/* The text stands at the end of the row. What is in front of it is a document of its own. */
static void fill_row(const sl_samples *self, int32_t *tokens, int32_t *positions, uint64_t seq)
{
    const uint64_t read = self->ids.count < seq ? self->ids.count : seq;
    const uint32_t *text_ids = self->ids.items + (self->ids.count - read);
    for (uint64_t t = 0; t < seq; t++) {
        const bool is_text = t >= seq - read;
        const uint64_t at = is_text ? t - (seq - read) : t;
        if (tokens)
            tokens[t] = is_text ? (int32_t)text_ids[at] : 0;
        if (positions)
            positions[t] = (int32_t)at;
    }
}

/* Whether this rank's logits count: those of one row, of the last stage. Where the head is split by
 * columns each rank has all of them. */
static bool has_part(const sl_samples *self, const sl_ranks *ranks)
{
    const bool is_last = ranks->place.stage + 1 == ranks->layout.stages;
    const bool is_split = self->config->split_layout == SL_SPLIT_MEGATRON;
    return is_last && ranks->place.data == 0 && (is_split || ranks->place.tensor == 0);
}

/* Every id has its logit from one rank, and 0 from the others: the sum is exact. */
static sl_status share_logits(sl_samples *self, const sl_ranks *ranks)
{
    const uint32_t vocab = self->sampler.vocab;
    if (!ranks->world)
        return SL_OK;
    if (!has_part(self, ranks))
        memset(self->logits, 0, vocab * sizeof *self->logits);
    return sl_comm_all_reduce(ranks->world, SL_COMM_FP32, vocab, self->logits);
}

static sl_status read_text(sl_samples *self, const sl_samples_args *args)
{
    const sl_step_scalars scalars = {.loss_scale = 1};
    const sl_task *task = &args->runtime->blueprint->task;
    const uint32_t plan = sl_blueprint_sample_program(task);
    sl_engine *engine = args->runtime->engine;
    int32_t *tokens = sl_engine_input(engine, plan, SL_INPUT_TOKENS);
    fill_row(self, tokens, sl_engine_input(engine, plan, SL_INPUT_POSITIONS), task->seq);
    SL_TRY(sl_engine_step(engine, plan, &scalars));
    memset(self->logits, 0, self->sampler.vocab * sizeof *self->logits);
    sl_logits_join(args->runtime, plan, 0, self->logits);
    return share_logits(self, args->ranks);
}

/* Ranks have the same logits, so they draw the same. */
static sl_status draw_token(sl_samples *self, const sl_samples_args *args, bool *out_is_over)
{
    const uint64_t drawn = self->ids.count - self->prompt_count;
    char room[SL_TOKEN_TEXT_BYTES];
    uint32_t id = 0;
    SL_TRY(read_text(self, args));
    SL_TRY(sl_sampler_draw(&self->sampler, self->logits,
                           sl_sampler_uniform(self->config->seed, 0, drawn), &id));
    *out_is_over = sl_text_ends_has(&self->ends, id);
    if (*out_is_over)
        return SL_OK;
    self->ids.items[self->ids.count++] = id;
    const sl_token_bytes known = sl_token_text(self->vocabulary, id, room);
    return add_text(&self->raw, known.text, known.bytes);
}

sl_status sl_samples_write(sl_samples *samples, const sl_samples_args *args,
                           sl_sample_report *out_report)
{
    bool is_over = false;
    samples->ids.count = samples->prompt_count;
    samples->raw.count = 0;
    for (uint64_t i = 0; i < samples->config->sample_tokens && !is_over; i++) {
        SL_TRY(draw_token(samples, args, &is_over));
        is_over = is_over || (args->stop && sl_stop_is_set(args->stop));
    }
    SL_TRY(clean_text(samples->raw.bytes, samples->raw.count, &samples->clean));
    out_report->prompt = samples->prompt.bytes;
    out_report->text = samples->clean.bytes;
    out_report->tokens = samples->ids.count - samples->prompt_count;
    return SL_OK;
}
