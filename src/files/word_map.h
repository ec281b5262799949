/* A JSON object whose values are words: {"h.0.ln_1.weight": "lion"}. */
#ifndef SL_FILES_WORD_MAP_H
#define SL_FILES_WORD_MAP_H

#include <stdint.h>

#include "base/status.h"

typedef struct sl_word_map sl_word_map;

/* An empty map, or that of a text; `path` is for messages. SL_ERROR_DATA: no JSON object. */
sl_status sl_word_map_open(sl_word_map **out_map);
sl_status sl_word_map_parse(const char *path, const char *text, sl_word_map **out_map);

/* NULL is fine. */
void sl_word_map_close(sl_word_map *map);

sl_status sl_word_map_set(sl_word_map *map, const char *key, const char *word);

/* The word of a key, which lives as long as the map; NULL: there is none. */
const char *sl_word_map_find(const sl_word_map *map, const char *key);

uint64_t sl_word_map_count(const sl_word_map *map);

/* Writes the text of the object; release it with free(). */
sl_status sl_word_map_format(const sl_word_map *map, char **out_text);

#endif
