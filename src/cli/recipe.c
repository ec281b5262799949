/* Works on lines: a recipe has one option a line, as `  "name": value,`. Tests hold the files to
 * that. */
#define _GNU_SOURCE /* open_memstream */
#include "recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/json_file.h"
#include "foreign/words.h"
#include "recipe_texts.h"

#define RECIPE(its_name, array)                                                                    \
    {                                                                                              \
        .name = its_name, .text = (const char *)(array), .bytes = sizeof(array)                    \
    }

static const sl_recipe recipes[] = {
    RECIPE("tiny", sl_recipe_tiny_json),
    RECIPE("gpt2-124m", sl_recipe_gpt2_124m_json),
    RECIPE("gpt2-345m-megatron", sl_recipe_gpt2_345m_megatron_json),
    RECIPE("gpt2-1.5b", sl_recipe_gpt2_1_5b_json),
    RECIPE("llama-1b-finetune", sl_recipe_llama_1b_finetune_json),
    RECIPE("qwen-lora", sl_recipe_qwen_lora_json),
};

enum { RECIPE_COUNT = sizeof recipes / sizeof recipes[0], KEY_BYTES = 64, NAMES_BYTES = 256 };

static const char option_start[] = "  \"", comment_start[] = "  // ";

const sl_recipe *sl_recipe_at(uint32_t index)
{
    return index < RECIPE_COUNT ? &recipes[index] : NULL;
}

sl_status sl_recipe_find(const char *name, const sl_recipe **out_recipe)
{
    char names[NAMES_BYTES] = "", hint[SL_WORDS_TEXT_BYTES];
    size_t length = 0;
    sl_nearest nearest = sl_nearest_start(name);
    for (uint32_t i = 0; i < RECIPE_COUNT; i++) {
        if (strcmp(recipes[i].name, name) == 0) {
            *out_recipe = &recipes[i];
            return SL_OK;
        }
        sl_nearest_offer(&nearest, recipes[i].name);
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "",
                                   recipes[i].name);
    }
    sl_words_suggest(SL_WORD_OPTION, &nearest, "", hint);
    SL_FAIL(SL_ERROR_USAGE, "--recipe: there is none called \"%s\"%s; there are %s", name, hint,
            names);
}

/* ---- lines */

typedef struct line {
    const char *text;
    size_t bytes; /* without the line end */
} line;

/* The line at *at, which then stands behind its line end. False: there are no more. */
static bool take_line(const sl_recipe *recipe, uint64_t *at, line *out_line)
{
    if (*at >= recipe->bytes)
        return false;
    const char *text = recipe->text + *at, *end = memchr(text, '\n', recipe->bytes - *at);
    out_line->text = text;
    out_line->bytes = end ? (size_t)(end - text) : recipe->bytes - *at;
    *at += out_line->bytes + 1;
    return true;
}

static bool starts_with(line it, const char *start)
{
    return it.bytes >= strlen(start) && memcmp(it.text, start, strlen(start)) == 0;
}

void sl_recipe_summarise(const sl_recipe *recipe, char *out_text, size_t capacity)
{
    uint64_t at = 0;
    line it = {0};
    while (take_line(recipe, &at, &it) && !starts_with(it, comment_start))
        ;
    const size_t start = strlen(comment_start) + strlen(recipe->name) + strlen(": ");
    snprintf(out_text, capacity, "%.*s", it.bytes > start ? (int)(it.bytes - start) : 0,
             it.text + start);
}

/* The name of the option on a line; false: it has none. */
static bool read_key(line it, char out_key[KEY_BYTES])
{
    const size_t start = strlen(option_start);
    if (!starts_with(it, option_start))
        return false;
    const char *end = memchr(it.text + start, '"', it.bytes - start);
    const size_t length = end ? (size_t)(end - it.text) - start : 0;
    if (length == 0 || length >= KEY_BYTES)
        return false;
    memcpy(out_key, it.text + start, length);
    out_key[length] = '\0';
    return true;
}

/* ---- the text */

static bool write_option(FILE *stream, const char *key, const json_t *value)
{
    char *text = sl_json_file_dump(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    if (text)
        fprintf(stream, "%s%s\": %s", option_start, key, text);
    free(text);
    return text != NULL;
}

static void write_notes(FILE *stream, const char *notes)
{
    while (*notes) {
        const size_t length = strcspn(notes, "\n");
        fprintf(stream, "%s%.*s\n", comment_start, (int)length, notes);
        notes += length + (notes[length] == '\n');
    }
}

/* Options that no line of the recipe had; the last of those was written without its line end. */
static bool write_rest(FILE *stream, const json_t *rest)
{
    const char *key;
    json_t *value;
    bool is_written = true;
    if (json_object_size(rest) > 0)
        fprintf(stream, ",\n\n%sGiven to sluice init.", comment_start);
    const char *comma = "";
    json_object_foreach((json_t *)rest, key, value)
    {
        fprintf(stream, "%s\n", comma);
        is_written = is_written && write_option(stream, key, value);
        comma = ",";
    }
    fputs("\n}\n", stream);
    return is_written;
}

/* Line by line; of `rest`, a copy of the values, what was not yet written stays. */
static bool write_lines(FILE *stream, const sl_recipe *recipe, const json_t *values,
                        const char *notes, json_t *rest)
{
    char key[KEY_BYTES];
    uint64_t at = 0;
    line it;
    bool is_written = true, is_head = true;
    while (take_line(recipe, &at, &it)) {
        const bool is_last = it.bytes == 1 && *it.text == '}';
        if (is_last)
            break;
        const json_t *value = read_key(it, key) ? json_object_get(values, key) : NULL;
        const bool has_comma = it.bytes > 0 && it.text[it.bytes - 1] == ',';
        const bool is_option = starts_with(it, option_start);
        if (value)
            is_written = is_written && write_option(stream, key, value);
        else
            fprintf(stream, "%.*s", (int)it.bytes - (is_option && has_comma), it.text);
        if (value)
            json_object_del(rest, key);
        if (is_option && has_comma)
            fputc(',', stream);
        if (!is_option || has_comma)
            fputc('\n', stream);
        if (is_head && starts_with(it, comment_start))
            write_notes(stream, notes);
        is_head = is_head && !starts_with(it, comment_start);
    }
    return is_written;
}

sl_status sl_recipe_fill(const sl_recipe *recipe, const json_t *values, const char *notes,
                         char **out_text)
{
    char *text = NULL;
    size_t bytes = 0;
    json_t *rest = json_copy((json_t *)values);
    FILE *stream = open_memstream(&text, &bytes);
    bool is_written = stream && rest && write_lines(stream, recipe, values, notes, rest) &&
                      write_rest(stream, rest);
    json_decref(rest);
    if (stream)
        is_written = fclose(stream) == 0 && is_written;
    if (!is_written) {
        free(text);
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a configuration");
    }
    *out_text = text;
    return SL_OK;
}
