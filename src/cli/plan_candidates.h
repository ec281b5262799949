/* What `auto` compared, for people and as JSON. */
#ifndef SL_CLI_PLAN_CANDIDATES_H
#define SL_CLI_PLAN_CANDIDATES_H

#include <jansson.h>

#include "search/search.h"

/* The best choices, a line each, and whether the machine was measured; nothing where the policy was
 * given. */
void sl_plan_candidates_print(const sl_search *search, const sl_blueprint *blueprint);

/* The same as the key "auto" of a plan's object. */
sl_status sl_plan_candidates_add_json(const sl_search *search, const sl_blueprint *blueprint,
                                      json_t *object);

#endif
