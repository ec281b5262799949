/* The totals of a blueprint as the JSON object that `plan --json` prints and the log starts with.
 */
#ifndef SL_SEARCH_PLAN_JSON_H
#define SL_SEARCH_PLAN_JSON_H

#include <jansson.h>

#include "search.h"

extern const char *const sl_plan_json_kind_names[SL_MEMORY_KIND_COUNT];

/* A new object for a blueprint that fits; the step time is simulated. */
sl_status sl_plan_json_format(const sl_blueprint *blueprint, json_t **out_object);

/* A new object for a request that does not fit. `suggestion` is the first of `suggestions`, "" if
 * there are none. */
sl_status sl_plan_json_format_refusal(const sl_refusal *refusal, json_t **out_object);

#endif
