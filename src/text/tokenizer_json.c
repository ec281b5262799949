/* Hugging Face's tokenizer.json; see vocabulary.h. What it says is held to what is known here: a
 * step that is passed over would give ids that are almost right, which no loss shows. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "files/json_file.h"
#include "nfc.h"
#include "vocabulary_reader.h"

#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

/* Of ids that another program made. */
#define WAY_OUT "make the ids with another program, and give files of tokens"

typedef struct tokenizer {
    sl_vocabulary_reader reader;
    const json_t *root;
    sl_pretokenizer *pretokenizer;
    char *end_of_text; /* what tokenizer_config.json names, or NULL */
} tokenizer;

static bool is_absent(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* The type of a step, for messages. */
static const char *name_type(const json_t *step)
{
    const char *type = json_string_value(json_object_get(step, "type"));
    return type ? type : "nothing that says its type";
}

/* ---- the model ---- */

static sl_status check_model(const sl_vocabulary_reader *self, const json_t *model)
{
    static const char *const others[] = {"dropout", "continuing_subword_prefix",
                                         "end_of_word_suffix"};
    if (!is_text(json_object_get(model, "type"), "BPE"))
        SL_VOCABULARY_REFUSE(self, "model.type is %s, and not BPE: " WAY_OUT,
                             sl_files_show(name_type(model)).text);
    if (!is_absent(json_object_get(model, "byte_fallback")))
        SL_VOCABULARY_REFUSE(self, "%s is set, as SentencePiece's models have it: " WAY_OUT,
                             "model.byte_fallback");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (!is_absent(json_object_get(model, others[i])))
            SL_VOCABULARY_REFUSE(self, "model.%s is set, which is not supported", others[i]);
    if (!json_is_object(json_object_get(model, "vocab")))
        SL_VOCABULARY_REFUSE(self, "%s is not an object", "model.vocab");
    if (!json_is_array(json_object_get(model, "merges")))
        SL_VOCABULARY_REFUSE(self, "%s is not an array", "model.merges");
    return SL_OK;
}

static sl_status take_merge(sl_vocabulary_reader *self, const json_t *merge, char *scratch)
{
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_is_string(merge))
        return sl_vocabulary_reader_take_line(self, json_string_value(merge),
                                              json_string_length(merge), scratch);
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right) ||
        json_string_length(left) > SL_VOCABULARY_TOKEN_BYTES_MAX ||
        json_string_length(right) > SL_VOCABULARY_TOKEN_BYTES_MAX)
        SL_VOCABULARY_REFUSE(self, "merge %u is neither two tokens nor a text of two",
                             self->merge_count + 1);
    return sl_vocabulary_reader_take_merge(
        self, (sl_token_bytes){json_string_value(left), (uint32_t)json_string_length(left)},
        (sl_token_bytes){json_string_value(right), (uint32_t)json_string_length(right)}, scratch);
}

static sl_status take_merges(sl_vocabulary_reader *self, const json_t *merges, uint64_t text_bytes)
{
    const uint64_t most = 2 * (uint64_t)SL_VOCABULARY_TOKEN_BYTES_MAX;
    sl_status status = SL_OK;
    char *scratch = malloc(most < text_bytes ? most : text_bytes + 1);
    self->merges = malloc((json_array_size(merges) + 1) * sizeof *self->merges);
    if (!scratch || !self->merges)
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for the merges of %s",
                                sl_files_show(self->path).text);
    for (size_t i = 0; status == SL_OK && i < json_array_size(merges); i++)
        status = take_merge(self, json_array_get(merges, i), scratch);
    free(scratch);
    return status;
}

/* ---- steps before it ---- */

static sl_status add_pattern(tokenizer *self, const char *text)
{
    sl_pretokenizer *to = self->pretokenizer;
    if (to->pattern_count == SL_PRETOKENIZER_PATTERNS_MAX)
        SL_VOCABULARY_REFUSE(&self->reader, "pre_tokenizer has more than %d patterns",
                             SL_PRETOKENIZER_PATTERNS_MAX);
    sl_status status = sl_pattern_open(text, &to->patterns[to->pattern_count]);
    if (status != SL_OK)
        return sl_status_prefix(status, "%s: pre_tokenizer", sl_files_show(self->reader.path).text);
    to->pattern_count++;
    return SL_OK;
}

static sl_status take_split(tokenizer *self, const json_t *step)
{
    const json_t *pattern = json_object_get(json_object_get(step, "pattern"), "Regex");
    if (!json_is_string(pattern))
        SL_VOCABULARY_REFUSE(&self->reader, "%s", "pre_tokenizer: a Split has no pattern.Regex");
    if (!is_text(json_object_get(step, "behavior"), "Isolated") ||
        !is_absent(json_object_get(step, "invert")))
        SL_VOCABULARY_REFUSE(&self->reader, "%s",
                             "pre_tokenizer: a Split with another behavior than Isolated, or with "
                             "invert, is not supported");
    return add_pattern(self, json_string_value(pattern));
}

static sl_status take_bytes(tokenizer *self, const json_t *step)
{
    const json_t *regex = json_object_get(step, "use_regex");
    if (!is_absent(json_object_get(step, "add_prefix_space")))
        SL_VOCABULARY_REFUSE(&self->reader, "pre_tokenizer: %s is not supported",
                             "ByteLevel with add_prefix_space");
    return !regex || json_is_true(regex) ? add_pattern(self, GPT2_PATTERN) : SL_OK;
}

/* Splits, and ByteLevel behind them. */
static sl_status take_steps(tokenizer *self)
{
    const json_t *whole = json_object_get(self->root, "pre_tokenizer");
    const bool is_sequence = is_text(json_object_get(whole, "type"), "Sequence");
    const json_t *steps = json_object_get(whole, "pretokenizers");
    const size_t count = is_sequence ? json_array_size(steps) : 1;
    bool has_bytes = false;
    for (size_t i = 0; i < count; i++) {
        const json_t *step = is_sequence ? json_array_get(steps, i) : whole;
        const json_t *type = json_object_get(step, "type");
        const bool is_split = is_text(type, "Split");
        if (has_bytes || (!is_split && !is_text(type, "ByteLevel")))
            SL_VOCABULARY_REFUSE(
                &self->reader, "pre_tokenizer: %s %s", sl_files_show(name_type(step)).text,
                has_bytes ? "behind ByteLevel is not supported" : "is neither Split nor ByteLevel");
        SL_TRY(is_split ? take_split(self, step) : take_bytes(self, step));
        has_bytes = !is_split;
    }
    if (!has_bytes || self->pretokenizer->pattern_count == 0)
        SL_VOCABULARY_REFUSE(&self->reader, "pre_tokenizer has no %s",
                             has_bytes ? "pattern" : "ByteLevel: " WAY_OUT);
    return SL_OK;
}

static sl_status take_normalizer(tokenizer *self)
{
    const json_t *whole = json_object_get(self->root, "normalizer");
    const bool is_sequence = is_text(json_object_get(whole, "type"), "Sequence");
    const json_t *steps = json_object_get(whole, "normalizers");
    const size_t count = is_sequence ? json_array_size(steps) : !is_absent(whole);
    for (size_t i = 0; i < count; i++) {
        const json_t *step = is_sequence ? json_array_get(steps, i) : whole;
        if (!is_text(json_object_get(step, "type"), "NFC"))
            SL_VOCABULARY_REFUSE(&self->reader, "normalizer: %s is not supported",
                                 sl_files_show(name_type(step)).text);
        self->pretokenizer->is_nfc = true;
    }
    return SL_OK;
}

/* ---- added tokens ---- */

static sl_status check_added(const tokenizer *self, const json_t *token)
{
    static const char *const flags[] = {"lstrip", "rstrip", "single_word"};
    const char *content = json_string_value(json_object_get(token, "content"));
    if (!content || !*content || !json_is_integer(json_object_get(token, "id")))
        SL_VOCABULARY_REFUSE(&self->reader, "an entry of %s has no content or no id",
                             "added_tokens");
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (!is_absent(json_object_get(token, flags[i])))
            SL_VOCABULARY_REFUSE(&self->reader, "added token \"%s\": %s is not supported",
                                 sl_files_show(content).text, flags[i]);
    return SL_OK;
}

/* What is compared with normalized text is normalized too. */
static sl_status normalize(char **text)
{
    sl_nfc nfc = {0};
    const char *form;
    uint64_t bytes;
    sl_status status = sl_nfc_apply(&nfc, *text, strlen(*text), &form, &bytes);
    char *copy = status == SL_OK ? strndup(form, bytes) : NULL;
    if (status == SL_OK && !copy)
        status = sl_status_fail(SL_ERROR_SYSTEM, "no memory for added tokens");
    if (copy) {
        free(*text);
        *text = copy;
    }
    sl_nfc_free(&nfc);
    return status;
}

static void free_list(sl_added_token *list, uint32_t count)
{
    for (uint32_t i = 0; list && i < count; i++)
        free((char *)list[i].text);
    free(list);
}

/* Fills `list` with those that are found in normalized text, or with the others. */
static sl_status list_added(const tokenizer *self, bool of_form, sl_added_token *list,
                            uint32_t *out_count)
{
    size_t index;
    json_t *token;
    json_array_foreach(json_object_get(self->root, "added_tokens"), index, token)
    {
        if (!is_absent(json_object_get(token, "normalized")) != of_form)
            continue;
        char *text = strdup(json_string_value(json_object_get(token, "content")));
        if (!text)
            SL_FAIL(SL_ERROR_SYSTEM, "no memory for added tokens");
        list[(*out_count)++] =
            (sl_added_token){text, (uint32_t)json_integer_value(json_object_get(token, "id"))};
        if (of_form && self->pretokenizer->is_nfc)
            SL_TRY(normalize((char **)&list[*out_count - 1].text));
    }
    return SL_OK;
}

static sl_status open_added(const tokenizer *self, bool of_form, sl_added_tokens **out_set)
{
    const size_t most = json_array_size(json_object_get(self->root, "added_tokens"));
    sl_added_token *list = calloc(most + 1, sizeof *list);
    uint32_t count = 0;
    sl_status status = SL_OK;
    if (!list)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for added tokens");
    status = list_added(self, of_form, list, &count);
    if (status == SL_OK && count > 0)
        status = sl_added_tokens_open(list, count, out_set);
    free_list(list, count);
    return status == SL_OK || status == SL_ERROR_SYSTEM
               ? status
               : sl_status_prefix(status, "%s", sl_files_show(self->reader.path).text);
}

/* A cut is in front of a blank that stands behind something else: it may be in a token. */
static bool may_be_cut(const char *token)
{
    static const char blanks[] = " \t\n\v\f\r";
    const uint64_t bytes = strlen(token);
    return strcspn(token + 1, blanks) < bytes - 1 && strspn(token, blanks) < bytes;
}

static sl_status check_all_added(tokenizer *self)
{
    size_t index;
    json_t *token;
    const json_t *added = json_object_get(self->root, "added_tokens");
    if (!is_absent(added) && !json_is_array(added))
        SL_VOCABULARY_REFUSE(&self->reader, "%s is not an array", "added_tokens");
    self->pretokenizer->allows_cuts = sl_pattern_allows_cuts(self->pretokenizer->patterns[0]);
    json_array_foreach((json_t *)added, index, token)
    {
        SL_TRY(check_added(self, token));
        if (may_be_cut(json_string_value(json_object_get(token, "content"))))
            self->pretokenizer->allows_cuts = false;
    }
    return SL_OK;
}

/* ---- the end of text ---- */

/* Not as strict as tokenizer.json: transformers writes a model_max_length of 10^30 into it. */
static sl_status parse_config(const sl_vocabulary_text *config, json_t **out_root)
{
    json_error_t error;
    sl_status status =
        sl_json_file_load(config->text, config->bytes, JSON_DECODE_INT_AS_REAL, &error, out_root);
    if (status != SL_OK)
        return sl_status_prefix(status, "%s", sl_files_show(config->path).text);
    if (!*out_root)
        SL_FAIL(SL_ERROR_DATA, "%s: is not JSON: %s at byte %d", sl_files_show(config->path).text,
                sl_files_show(error.text).text, error.position);
    return SL_OK;
}

/* The eos_token of a tokenizer_config.json: a text, or an object that holds one. */
static sl_status read_end_of_text(tokenizer *self, const sl_vocabulary_text *config)
{
    json_t *root = NULL;
    SL_TRY(parse_config(config, &root));
    const json_t *end = json_object_get(root, "eos_token");
    const char *text =
        json_string_value(json_is_object(end) ? json_object_get(end, "content") : end);
    if (text)
        self->end_of_text = strdup(text);
    const bool is_whole = !text || self->end_of_text;
    json_decref(root);
    if (!is_whole)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for an end of text");
    return SL_OK;
}

static int32_t find_token(const tokenizer *self, const char *text)
{
    size_t index;
    json_t *token;
    json_array_foreach(json_object_get(self->root, "added_tokens"), index, token)
    {
        if (is_text(json_object_get(token, "content"), text))
            return (int32_t)json_integer_value(json_object_get(token, "id"));
    }
    return sl_vocabulary_find(self->reader.dictionary, text, (uint32_t)strlen(text));
}

static sl_status choose_end_of_text(const tokenizer *self, int32_t *out_id)
{
    *out_id = find_token(self, self->end_of_text ? self->end_of_text : SL_VOCABULARY_END_OF_TEXT);
    if (self->end_of_text && *out_id == SL_VOCABULARY_NONE)
        SL_VOCABULARY_REFUSE(&self->reader, "has no token \"%s\", the eos_token of %s",
                             sl_files_show(self->end_of_text).text, SL_VOCABULARY_CONFIG_FILE);
    return SL_OK;
}

/* ---- all of it ---- */

/* True if vocab.json and merges.txt would say the same. */
static bool is_gpt2(const tokenizer *self)
{
    size_t index;
    json_t *token;
    const sl_pretokenizer *of = self->pretokenizer;
    if (of->pattern_count != 1 || strcmp(sl_pattern_text(of->patterns[0]), GPT2_PATTERN) != 0 ||
        of->is_nfc || of->ignores_merges)
        return false;
    json_array_foreach(json_object_get(self->root, "added_tokens"), index, token)
    {
        if (!is_text(json_object_get(token, "content"), SL_VOCABULARY_END_OF_TEXT))
            return false;
    }
    return !self->end_of_text || strcmp(self->end_of_text, SL_VOCABULARY_END_OF_TEXT) == 0;
}

static sl_status take_root(tokenizer *self, uint64_t text_bytes)
{
    const json_t *model = json_object_get(self->root, "model");
    SL_TRY(check_model(&self->reader, model));
    self->pretokenizer->ignores_merges = !is_absent(json_object_get(model, "ignore_merges"));
    SL_TRY(take_steps(self));
    SL_TRY(take_normalizer(self));
    SL_TRY(check_all_added(self));
    SL_TRY(sl_vocabulary_reader_take_tokens(&self->reader, json_object_get(model, "vocab"),
                                            json_object_get(self->root, "added_tokens")));
    SL_TRY(take_merges(&self->reader, json_object_get(model, "merges"), text_bytes));
    SL_TRY(open_added(self, false, &self->pretokenizer->added));
    return open_added(self, true, &self->pretokenizer->added_to_form);
}

static sl_status keep_text(const sl_vocabulary_text *text, char **out_copy)
{
    *out_copy = strndup(text->text, text->bytes);
    if (!*out_copy)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the text of a vocabulary");
    return SL_OK;
}

static sl_status build(tokenizer *self, const sl_vocabulary_text *json,
                       const sl_vocabulary_text *config, sl_vocabulary **out_vocabulary)
{
    int32_t end_of_text;
    self->pretokenizer = calloc(1, sizeof *self->pretokenizer);
    if (!self->pretokenizer)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a tokenizer");
    if (config)
        SL_TRY(read_end_of_text(self, config));
    SL_TRY(take_root(self, json->bytes));
    SL_TRY(choose_end_of_text(self, &end_of_text));
    const bool is_plain = is_gpt2(self);
    if (!is_plain)
        SL_TRY(keep_text(json, &self->pretokenizer->json));
    if (!is_plain && config)
        SL_TRY(keep_text(config, &self->pretokenizer->config));
    SL_TRY(sl_vocabulary_reader_finish(&self->reader, end_of_text, out_vocabulary));
    if (is_plain)
        return SL_OK;
    sl_vocabulary_adopt(*out_vocabulary, self->pretokenizer);
    self->pretokenizer = NULL;
    return SL_OK;
}

sl_status sl_vocabulary_parse_json(const sl_vocabulary_text *json, const sl_vocabulary_text *config,
                                   sl_vocabulary **out_vocabulary)
{
    json_t *root = NULL;
    tokenizer self = {.reader = {.path = json->path, .map = sl_byte_map_make()}};
    SL_TRY(sl_json_file_parse(json->path, json->text, json->bytes, &root));
    self.root = root;
    sl_status status = build(&self, json, config, out_vocabulary);
    json_decref(root);
    sl_vocabulary_reader_close(&self.reader);
    sl_pretokenizer_close(self.pretokenizer);
    free(self.end_of_text);
    return status;
}
