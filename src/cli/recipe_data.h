/* Whether the data of a recipe are enough for a validation. */
#ifndef SL_CLI_RECIPE_DATA_H
#define SL_CLI_RECIPE_DATA_H

#include "config/config.h"

/* Writes whether each share of --split gets a row of tokens at least, as far as the sizes of files
 * say: --split divides documents, and a file of text is one document. JSON lines, tokens and paths
 * with weights are not looked into, and count as enough. Statuses of sl_text_files_add. */
sl_status sl_recipe_data_has_shares(const sl_config *config, bool *out_has_shares);

#endif
