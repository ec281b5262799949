/* Recipes: configurations with comments, an option a line, that `sluice init` fits to a machine.
 * examples/recipes/ has their files, which are compiled in. */
#ifndef SL_CLI_RECIPE_H
#define SL_CLI_RECIPE_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sl_recipe {
    const char *name;
    const char *text; /* `bytes` bytes of the file */
    uint64_t bytes;
} sl_recipe;

/* The recipe of that index from 0; NULL: there are no more. */
const sl_recipe *sl_recipe_at(uint32_t index);

/* SL_ERROR_USAGE lists the names, the nearest one first. */
sl_status sl_recipe_find(const char *name, const sl_recipe **out_recipe);

/* What the first comment says of it, behind its name. */
void sl_recipe_summarise(const sl_recipe *recipe, char *out_text, size_t capacity);

/* The recipe's text with other values. An option of `values` (names with "-") that the recipe has
 * takes the place of the value there, its comment stays; the others stand at the end. `notes` are
 * lines without "//" for the head of the text. The caller frees it. SL_ERROR_SYSTEM: no memory. */
sl_status sl_recipe_fill(const sl_recipe *recipe, const json_t *values, const char *notes,
                         char **out_text);

#endif
