/* Draws the next token of each sample and says what it means; decoder.h reads. */
#include "generate.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "decoder.h"
#include "held_text.h"
#include "sampler.h"
#include "text/example.h"
#include "text/text_ends.h"
#include "token_text.h"
#include "train/data/example_form.h"
#include "train/loading/loading.h"

static const double nanosecond = 1e-9;

typedef struct sample {
    sl_held_text held;
    uint8_t *seen; /* [vocab]: ids of its text; NULL where nobody asks */
    bool is_over, was_end_of_text;
} sample;

struct sl_generator {
    sl_generate_args args;
    sl_model_directory source;
    sl_vocabulary *vocabulary;
    sl_text_ends ends; /* the vocabulary's, and those of a Hugging Face model */
    sl_decoder *decoder;
    sl_sampler sampler;
    char *template_text; /* of --template; NULL: the model's, if it has one */
    sl_example asked;    /* the prompt in its template */
    sl_ids prompt;       /* its ids */
    sample *samples;     /* [sample_count] */
    int32_t *drawn;      /* [sample_count] */
    uint32_t sample_count;
    uint64_t draw_count; /* of each sample, of all texts */
    sl_generate_times times;
};

/* ---- the prompt ---- */

/* NULL: a prompt stays as it is. */
static const char *find_template(const sl_generator *self, uint64_t prompt_bytes)
{
    const sl_config *config = self->args.config;
    const bool is_asked = prompt_bytes > 0;
    if (self->template_text)
        return is_asked || !config->interactive ? self->template_text : NULL;
    return is_asked && !config->template_file ? self->source.texts.examples : NULL;
}

static sl_status put_into_template(sl_generator *self, const char *text, uint64_t bytes)
{
    const sl_config *config = self->args.config;
    if (config->system && bytes == 0 && !config->interactive)
        SL_FAIL(SL_ERROR_USAGE, "--system stands in front of a prompt: give --prompt");
    const sl_example_prompt prompt = {.template_text = find_template(self, bytes),
                                      .system = config->system,
                                      .text = text,
                                      .bytes = bytes};
    sl_example_free(&self->asked);
    if (prompt.template_text) {
        const sl_status status = sl_example_make_prompt(&prompt, &self->asked);
        return status == SL_OK ? SL_OK : sl_status_prefix(status, "--template");
    }
    if (config->system && bytes > 0)
        SL_FAIL(SL_ERROR_USAGE, "--system needs a template of messages, and none is known of this "
                                "model: give one by --template");
    self->asked.text = malloc(bytes + 1);
    if (!self->asked.text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a prompt");
    memcpy(self->asked.text, text, bytes);
    self->asked.bytes = bytes;
    return SL_OK;
}

static sl_status set_prompt(sl_generator *self, const char *text, uint64_t bytes)
{
    SL_TRY(put_into_template(self, text, bytes));
    return sl_prompt_encode(self->vocabulary, self->source.shape.vocab, "--prompt",
                            self->asked.text ? self->asked.text : "", self->asked.bytes,
                            &self->prompt);
}

const char *sl_generator_prompt(const sl_generator *generator, uint64_t *out_bytes)
{
    *out_bytes = generator->asked.bytes;
    return generator->asked.text;
}

static void warn_of_length(const sl_generator *self)
{
    const uint64_t count = self->prompt.count;
    const sl_model_shape *shape = sl_decoder_shape(self->decoder);
    const uint64_t fitting = sl_decoder_fitting(shape, count, self->args.config->tokens);
    if (fitting < count)
        sl_log_write(SL_LOG_WARNING,
                     "the prompt has %llu tokens, but the %s context is %u: its last %llu are "
                     "read",
                     (unsigned long long)count,
                     shape->context < self->source.shape.context ? "decoder's" : "model's",
                     shape->context, (unsigned long long)fitting);
}

static void mark_seen(sample *of, uint32_t id)
{
    if (of->seen)
        of->seen[id] = 1;
}

static void start_samples(sl_generator *self)
{
    const uint32_t vocab = self->source.shape.vocab;
    for (uint32_t i = 0; i < self->sample_count; i++) {
        sample *it = &self->samples[i];
        if (it->seen)
            memset(it->seen, 0, vocab);
        for (uint64_t t = 0; t < self->prompt.count; t++)
            mark_seen(it, self->prompt.items[t]);
    }
    sl_decoder_start(self->decoder, (const int32_t *)self->prompt.items, self->prompt.count,
                     self->args.config->tokens);
}

sl_status sl_generator_start(sl_generator *generator, const char *prompt, uint64_t prompt_bytes)
{
    SL_TRY(set_prompt(generator, prompt, prompt_bytes));
    warn_of_length(generator);
    start_samples(generator);
    return SL_OK;
}

/* ---- opening ---- */

static sl_status open_samples(sl_generator *self)
{
    const sl_config *config = self->args.config;
    const uint32_t vocab = self->source.shape.vocab;
    const bool is_penalised = config->repetition_penalty != 1;
    self->sample_count = (uint32_t)config->samples;
    self->samples = calloc(self->sample_count, sizeof *self->samples);
    self->drawn = calloc(self->sample_count, sizeof *self->drawn);
    bool is_there = self->samples && self->drawn;
    for (uint32_t i = 0; is_there && i < self->sample_count; i++) {
        sample *it = &self->samples[i];
        it->held = (sl_held_text){.stops = (const char *const *)config->stop.items,
                                  .stop_count = config->stop.count};
        it->seen = is_penalised ? calloc(vocab, 1) : NULL;
        is_there = it->seen || !is_penalised;
    }
    if (!is_there)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for %u samples: give fewer --samples",
                self->sample_count);
    sl_sampler options = {.vocab = vocab,
                          .temperature = config->temperature,
                          .top_k = (uint32_t)config->top_k,
                          .top_p = config->top_p};
    return sl_sampler_open(&options, &self->sampler);
}

static sl_status open_source(sl_generator *self)
{
    const sl_generate_args *args = &self->args;
    if (!args->source) {
        SL_TRY(sl_model_directory_open(args->config->checkpoint, args->config->checks_checkpoints,
                                       0, &self->source));
        SL_TRY(sl_model_directory_add_adapter(&self->source, args->config->adapter));
        SL_TRY(sl_model_shape_check(&self->source.shape, 1));
        return sl_loading_open_vocabulary(args->config, &self->source, &self->vocabulary);
    }
    self->source = *args->source;
    self->vocabulary = args->vocabulary;
    return self->vocabulary ? SL_OK : sl_vocabulary_of_bytes(&self->vocabulary);
}

static void add_end(uint32_t id, sl_text_ends *ends)
{
    if (!sl_text_ends_has(ends, id))
        ends->ids[ends->count++] = id;
}

/* The vocabulary's, those of --end-of-text here and in training, and those of the model. */
static sl_status find_ends(sl_generator *self)
{
    const sl_config *config = self->args.config;
    const sl_model_directory *source = &self->source;
    const uint32_t vocab = source->shape.vocab;
    const int32_t end = sl_vocabulary_end_of_text(self->vocabulary);
    if (end != SL_VOCABULARY_NONE)
        add_end((uint32_t)end, &self->ends);
    if (config->end_of_text != SL_CONFIG_UNSET && config->end_of_text >= vocab)
        SL_FAIL(SL_ERROR_USAGE, "--end-of-text %llu is not below the %u ids of the model",
                (unsigned long long)config->end_of_text, vocab);
    if (config->end_of_text != SL_CONFIG_UNSET)
        add_end((uint32_t)config->end_of_text, &self->ends);
    if (source->names_end)
        add_end(source->end_of_text, &self->ends);
    if (source->directory)
        return sl_text_ends_read(source->directory, vocab, &self->ends);
    return sl_model_texts_find_ends(&source->texts, source->path ? source->path : "the model",
                                    vocab, &self->ends);
}

/* Ranks may have files of their own: they have to be the same. */
static sl_status compare_inputs(const sl_generator *self)
{
    const sl_generate_args *args = &self->args;
    const sl_common_inputs_args inputs = {
        .vocabulary = self->vocabulary, .source = &self->source, .source_option = "--checkpoint"};
    SL_TRY(sl_loading_compare(args->ranks, &inputs));
    return sl_loading_compare_bytes(args->ranks, "the prompt", self->asked.text, self->asked.bytes);
}

static sl_status open_generator(sl_generator *self)
{
    const sl_generate_args *args = &self->args;
    SL_TRY(open_source(self));
    SL_TRY(find_ends(self));
    SL_TRY(open_samples(self));
    SL_TRY(sl_examples_read_template(args->config, &self->template_text));
    SL_TRY(set_prompt(self, args->prompt, args->prompt_bytes));
    SL_TRY(compare_inputs(self));
    const sl_decoder_args decoder = {.config = args->config,
                                     .source = &self->source,
                                     .ranks = args->ranks,
                                     .prompt_count =
                                         args->config->interactive ? 0 : self->prompt.count,
                                     .new_count = args->config->tokens};
    SL_TRY(sl_decoder_open(&decoder, &self->decoder));
    warn_of_length(self);
    start_samples(self);
    return SL_OK;
}

/* A checkpoint may prove to be damaged when it is loaded. */
typedef struct opening {
    const sl_generate_args *args;
    sl_generator **out_generator;
} opening;

static sl_status open_once(sl_config *config, void *user)
{
    const sl_generate_args *args = ((const opening *)user)->args;
    sl_generator **out_generator = ((const opening *)user)->out_generator;
    sl_generator *self = calloc(1, sizeof *self);
    (void)config; /* that of the arguments */
    if (!self)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory to generate");
    self->args = *args;
    sl_status status = open_generator(self);
    if (status != SL_OK) {
        sl_generator_close(self);
        return status;
    }
    *out_generator = self;
    return SL_OK;
}

sl_status sl_generator_open(const sl_generate_args *args, sl_generator **out_generator)
{
    opening self = {args, out_generator};
    return sl_loading_run(args->config, open_once, &self);
}

void sl_generator_close(sl_generator *generator)
{
    if (!generator)
        return;
    for (uint32_t i = 0; generator->samples && i < generator->sample_count; i++) {
        sl_held_text_close(&generator->samples[i].held);
        free(generator->samples[i].seen);
    }
    free(generator->samples);
    free(generator->drawn);
    sl_sampler_close(&generator->sampler);
    free(generator->template_text);
    sl_example_free(&generator->asked);
    sl_ids_free(&generator->prompt);
    sl_decoder_close(generator->decoder);
    if (generator->vocabulary != generator->args.vocabulary)
        sl_vocabulary_close(generator->vocabulary);
    if (!generator->args.source)
        sl_model_directory_close(&generator->source);
    free(generator);
}

/* ---- drawing ---- */

typedef struct sample_sink {
    const sl_generate_sink *to;
    uint32_t sample;
} sample_sink;

static sl_status pass_on(void *user, const char *bytes, uint64_t byte_count)
{
    const sample_sink *sink = user;
    return sink->to->text(sink->to->user, sink->sample, bytes, byte_count);
}

static sl_status end_sample(sl_generator *self, uint32_t index)
{
    sample *it = &self->samples[index];
    sample_sink sink = {&self->args.sink, index};
    const sl_held_sink held_sink = {pass_on, &sink};
    it->is_over = true;
    sl_status status = sl_held_text_end(&it->held, &held_sink);
    self->args.sink.ended(self->args.sink.user, index);
    return status;
}

/* Says what a token means, or ends the sample. */
static sl_status take_token(sl_generator *self, uint32_t index, uint32_t token)
{
    sample *it = &self->samples[index];
    char room[SL_TOKEN_TEXT_BYTES];
    sample_sink sink = {&self->args.sink, index};
    const sl_held_sink held_sink = {pass_on, &sink};
    it->was_end_of_text = sl_text_ends_has(&self->ends, token);
    if (it->was_end_of_text)
        return end_sample(self, index);
    self->times.new_tokens++;
    mark_seen(it, token);
    const sl_token_bytes known = sl_token_text(self->vocabulary, token, room);
    SL_TRY(sl_held_text_add(&it->held, known.text, known.bytes, &held_sink));
    return it->held.is_stopped ? end_sample(self, index) : SL_OK;
}

/* Each sample draws from a stream of its own; samples that are over go on with token 0. */
static sl_status draw_tokens(sl_generator *self)
{
    const sl_config *config = self->args.config;
    const uint32_t vocab = self->source.shape.vocab;
    for (uint32_t i = 0; i < self->sample_count; i++) {
        sample *it = &self->samples[i];
        uint32_t token = 0;
        self->drawn[i] = 0;
        if (it->is_over)
            continue;
        float *logits = sl_decoder_logits(self->decoder, i);
        double uniform = sl_sampler_uniform(config->seed, i, self->draw_count);
        if (it->seen)
            sl_sampler_penalise(logits, it->seen, vocab, config->repetition_penalty);
        SL_TRY(sl_sampler_draw(&self->sampler, logits, uniform, &token));
        self->drawn[i] = (int32_t)token;
        SL_TRY(take_token(self, i, token));
    }
    self->draw_count++;
    return SL_OK;
}

static bool are_all_over(const sl_generator *self)
{
    for (uint32_t i = 0; i < self->sample_count; i++)
        if (!self->samples[i].is_over)
            return false;
    return true;
}

/* ---- a run ---- */

static void open_run(sl_generator *self)
{
    for (uint32_t i = 0; i < self->sample_count; i++) {
        self->samples[i].is_over = self->samples[i].was_end_of_text = false;
        sl_held_text_clear(&self->samples[i].held);
    }
}

static sl_status end_run(sl_generator *self)
{
    for (uint32_t i = 0; i < self->sample_count; i++)
        if (!self->samples[i].is_over)
            SL_TRY(end_sample(self, i));
    return sl_decoder_drain(self->decoder);
}

/* The first token of each sample; what was read before it counts as the prompt. */
static void count_first(sl_generator *self, uint64_t read_before, uint64_t start_ns)
{
    const uint64_t read = sl_decoder_read_count(self->decoder);
    self->times.prompt_tokens += read > read_before ? read - read_before : 1;
    self->times.prompt_seconds += (double)(sl_clock_now_ns() - start_ns) * nanosecond;
}

/* A text that may go on later keeps what was drawn last, but for an end of text. */
static void append_tokens(sl_generator *self, uint64_t left)
{
    const bool is_kept =
        self->args.config->interactive && !self->samples[0].was_end_of_text && left == 0;
    if (left > 0 || is_kept)
        sl_decoder_append(self->decoder, self->drawn, left > 0 ? left : 1);
}

static sl_status draw_all(sl_generator *self)
{
    const uint64_t wanted = self->args.config->tokens, start_ns = sl_clock_now_ns();
    const uint64_t read_before = sl_decoder_read_count(self->decoder);
    uint64_t first_ns = start_ns, new_before = 0;
    for (uint64_t i = 0; i < wanted && !are_all_over(self); i++) {
        bool is_whole;
        if (sl_decoder_must_stop(self->decoder, self->args.stop))
            break;
        SL_TRY(sl_decoder_read(self->decoder, self->args.stop, &is_whole));
        if (!is_whole)
            break;
        SL_TRY(draw_tokens(self));
        if (i == 0) {
            count_first(self, read_before, start_ns);
            first_ns = sl_clock_now_ns();
            new_before = self->times.new_tokens;
        }
        append_tokens(self, are_all_over(self) ? 0 : wanted - i - 1);
    }
    self->times.later_tokens += self->times.new_tokens - new_before;
    self->times.later_seconds += (double)(sl_clock_now_ns() - first_ns) * nanosecond;
    return SL_OK;
}

sl_status sl_generator_run(sl_generator *generator)
{
    open_run(generator);
    SL_TRY(draw_all(generator));
    return end_run(generator);
}

sl_generate_times sl_generator_times(const sl_generator *generator)
{
    return generator->times;
}
