/* The map is jansson's object. */
#include "word_map.h"

#include <jansson.h>
#include <string.h>

#include "json_file.h"

static json_t *object_of(const sl_word_map *map)
{
    return (json_t *)map;
}

sl_status sl_word_map_open(sl_word_map **out_map)
{
    *out_map = (sl_word_map *)json_object();
    if (!*out_map)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a map of words");
    return SL_OK;
}

sl_status sl_word_map_parse(const char *path, const char *text, sl_word_map **out_map)
{
    json_t *object = NULL;
    SL_TRY(sl_json_file_parse(path, text, strlen(text), &object));
    *out_map = (sl_word_map *)object;
    return SL_OK;
}

void sl_word_map_close(sl_word_map *map)
{
    json_decref(object_of(map));
}

sl_status sl_word_map_set(sl_word_map *map, const char *key, const char *word)
{
    if (json_object_set_new(object_of(map), key, json_string(word)) != 0)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a map of words");
    return SL_OK;
}

const char *sl_word_map_find(const sl_word_map *map, const char *key)
{
    return json_string_value(json_object_get(object_of(map), key));
}

uint64_t sl_word_map_count(const sl_word_map *map)
{
    return json_object_size(object_of(map));
}

sl_status sl_word_map_format(const sl_word_map *map, char **out_text)
{
    *out_text = sl_json_file_dump(object_of(map), JSON_COMPACT);
    if (!*out_text)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a map of words");
    return SL_OK;
}
