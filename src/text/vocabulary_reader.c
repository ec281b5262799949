/* See vocabulary_reader.h. */
#include "vocabulary_reader.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES_AND_END = 257 /* tokens that need no merge */ };

void sl_vocabulary_reader_close(sl_vocabulary_reader *self)
{
    sl_vocabulary_close(self->dictionary);
    free(self->tokens);
    free(self->text);
    free(self->merges);
}

/* A token of which a character stands for no byte is a special one, as all of added_tokens are. */
static sl_status take_token(sl_vocabulary_reader *self, const char *key, bool is_added,
                            const json_t *value)
{
    uint64_t key_bytes = strlen(key);
    json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    char *text = self->text + self->text_used;
    uint32_t bytes = (uint32_t)key_bytes;
    if (id < 0 || id >= (json_int_t)self->token_count)
        SL_VOCABULARY_REFUSE(self, "the id of token \"%s\" is not an integer from 0 to %u",
                             sl_files_show(key).text, self->token_count - 1);
    if (key_bytes == 0 || key_bytes > SL_VOCABULARY_TOKEN_BYTES_MAX)
        SL_VOCABULARY_REFUSE(self, "token %lld has %llu bytes", (long long)id,
                             (unsigned long long)key_bytes);
    if (self->tokens[id].text)
        SL_VOCABULARY_REFUSE(self, "two tokens have the id %lld", (long long)id);
    if (is_added || !sl_byte_map_read(&self->map, key, bytes, text, &bytes))
        memcpy(text, key, bytes = (uint32_t)key_bytes);
    self->tokens[id] = (sl_token_bytes){text, bytes, is_added, SL_TOKEN_WORD};
    self->text_used += bytes;
    return SL_OK;
}

static bool needs_slot(const json_t *vocab, const json_t *added)
{
    const char *content = json_string_value(json_object_get(added, "content"));
    return !content || !json_object_get(vocab, content);
}

/* What is beside the vocabulary. A token that it has too must have the same id, and stand for its
 * own text: what is found in texts is what ids are decoded to. */
static sl_status take_added(sl_vocabulary_reader *self, const json_t *vocab, const json_t *added)
{
    const json_t *content = json_object_get(added, "content"), *id = json_object_get(added, "id");
    if (!json_is_string(content) || !json_is_integer(id))
        SL_VOCABULARY_REFUSE(self, "an entry of %s has no content or no id", "added_tokens");
    const char *text = json_string_value(content);
    const json_t *known = json_object_get(vocab, text);
    if (known && !json_equal(known, id))
        SL_VOCABULARY_REFUSE(self, "token \"%s\" has two ids", sl_files_show(text).text);
    if (!known)
        SL_TRY(take_token(self, text, true, id));
    sl_token_bytes *token = &self->tokens[json_integer_value(id)];
    if (!token->text || token->bytes != strlen(text) ||
        memcmp(token->text, text, token->bytes) != 0)
        SL_VOCABULARY_REFUSE(self, "added token \"%s\" stands for other bytes in the vocabulary",
                             sl_files_show(text).text);
    token->kind =
        json_is_true(json_object_get(added, "special")) ? SL_TOKEN_SPECIAL : SL_TOKEN_ADDED;
    return SL_OK;
}

static sl_status take_room(sl_vocabulary_reader *self, const json_t *vocab, const json_t *added)
{
    size_t index;
    const char *key;
    json_t *value;
    uint64_t count = json_object_size(vocab), bytes = 0;
    json_object_foreach((json_t *)vocab, key, value) bytes += strlen(key);
    json_array_foreach((json_t *)added, index, value)
    {
        count += needs_slot(vocab, value);
        bytes += json_string_length(json_object_get(value, "content"));
    }
    if (count == 0 || count > SL_VOCABULARY_COUNT_MAX)
        SL_VOCABULARY_REFUSE(self, "has %llu tokens: from 1 to %d may be",
                             (unsigned long long)count, SL_VOCABULARY_COUNT_MAX);
    self->token_count = (uint32_t)count;
    self->tokens = calloc(count, sizeof *self->tokens);
    self->text = malloc(bytes + 1);
    if (!self->tokens || !self->text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for the %llu tokens of %s", (unsigned long long)count,
                sl_files_show(self->path).text);
    return SL_OK;
}

sl_status sl_vocabulary_reader_take_tokens(sl_vocabulary_reader *self, const json_t *vocab,
                                           const json_t *added)
{
    size_t index;
    const char *key;
    json_t *value;
    SL_TRY(take_room(self, vocab, added));
    json_object_foreach((json_t *)vocab, key, value) SL_TRY(take_token(self, key, false, value));
    json_array_foreach((json_t *)added, index, value) SL_TRY(take_added(self, vocab, value));
    for (uint32_t id = 0; id < self->token_count; id++)
        if (!self->tokens[id].text)
            SL_VOCABULARY_REFUSE(self, "no token has the id %u: ids run from 0 on without holes",
                                 id);
    sl_status status = sl_vocabulary_build(self->tokens, self->token_count, NULL, 0,
                                           SL_VOCABULARY_NONE, &self->dictionary);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "%s", sl_files_show(self->path).text);
}

/* The id of a token as the file writes it; `scratch` has room for its bytes. */
static sl_status find_part(const sl_vocabulary_reader *self, const char *text, uint64_t bytes,
                           char *scratch, uint32_t *out_id)
{
    uint32_t used = 0;
    int32_t id = SL_VOCABULARY_NONE;
    if (bytes > 0 && bytes <= SL_VOCABULARY_TOKEN_BYTES_MAX &&
        sl_byte_map_read(&self->map, text, (uint32_t)bytes, scratch, &used))
        id = sl_vocabulary_find_word(self->dictionary, scratch, used);
    if (id < 0) {
        char shown[64];
        snprintf(shown, sizeof shown, "%.*s", (int)(bytes < 60 ? bytes : 60), text);
        SL_VOCABULARY_REFUSE(self, "merge %u: \"%s\" is not a token", self->merge_count + 1,
                             sl_files_show(shown).text);
    }
    *out_id = (uint32_t)id;
    return SL_OK;
}

sl_status sl_vocabulary_reader_take_merge(sl_vocabulary_reader *self, sl_token_bytes left,
                                          sl_token_bytes right, char *scratch)
{
    sl_merge merge;
    SL_TRY(find_part(self, left.text, left.bytes, scratch, &merge.left));
    SL_TRY(find_part(self, right.text, right.bytes, scratch, &merge.right));
    sl_token_bytes first = sl_vocabulary_token(self->dictionary, merge.left);
    sl_token_bytes second = sl_vocabulary_token(self->dictionary, merge.right);
    memcpy(scratch, first.text, first.bytes);
    memcpy(scratch + first.bytes, second.text, second.bytes);
    int32_t made = sl_vocabulary_find_word(self->dictionary, scratch, first.bytes + second.bytes);
    if (made < 0)
        SL_VOCABULARY_REFUSE(self, "merge %u makes a token that the vocabulary has not",
                             self->merge_count + 1);
    merge.made = (uint32_t)made;
    self->merges[self->merge_count++] = merge;
    return SL_OK;
}

sl_status sl_vocabulary_reader_take_line(sl_vocabulary_reader *self, const char *line,
                                         uint64_t bytes, char *scratch)
{
    const char *blank = memchr(line, ' ', bytes);
    uint64_t left = blank ? (uint64_t)(blank - line) : 0;
    if (left == 0 || left + 1 == bytes || bytes > SL_VOCABULARY_TOKEN_BYTES_MAX ||
        memchr(blank + 1, ' ', bytes - left - 1))
        SL_VOCABULARY_REFUSE(self, "merge %u is not two tokens with one space between",
                             self->merge_count + 1);
    return sl_vocabulary_reader_take_merge(
        self, (sl_token_bytes){line, (uint32_t)left},
        (sl_token_bytes){blank + 1, (uint32_t)(bytes - left - 1)}, scratch);
}

sl_status sl_vocabulary_reader_finish(sl_vocabulary_reader *self, int32_t end_of_text,
                                      sl_vocabulary **out_vocabulary)
{
    if (self->merge_count == 0 && self->token_count > BYTES_AND_END)
        SL_VOCABULARY_REFUSE(self, "has no merges, which a vocabulary of more than %d tokens needs",
                             BYTES_AND_END);
    sl_status status = sl_vocabulary_build(self->tokens, self->token_count, self->merges,
                                           self->merge_count, end_of_text, out_vocabulary);
    return status == SL_OK ? SL_OK : sl_status_prefix(status, "%s", sl_files_show(self->path).text);
}
