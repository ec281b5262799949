/* Which layers each stage of a pipeline has (--stages). Knows options and costs, and no model. */
#ifndef SL_CONFIG_STAGES_H
#define SL_CONFIG_STAGES_H

#include "config.h"

enum { SL_STAGES_MAX = 1024 }; /* that may have layers of chosen numbers */

typedef enum sl_stages_kind {
    SL_STAGES_UNIFORM, /* as many on each as on any other, or one more */
    SL_STAGES_COST,    /* so that the slowest stage is as fast as it can be */
    SL_STAGES_LIST     /* as many as were given */
} sl_stages_kind;

sl_stages_kind sl_stages_kind_of(const sl_config *config);

/* What can be said of --pp and --stages without a model: SL_ERROR_USAGE. */
sl_status sl_stages_check(const sl_config *config);

/* Of a LIST: in out_ends [pp] the first layer behind each stage. SL_ERROR_USAGE: the numbers are
 * not those of `layers` layers. */
sl_status sl_stages_read(const sl_config *config, uint32_t layers, uint32_t *out_ends);

/* Seconds of what stages have. */
typedef struct sl_stages_costs {
    double embedding, layer, head; /* of the first stage, of each layer, of the last stage */
} sl_stages_costs;

/* In out_ends [stage_count] the first layer behind each stage; each has one at least, of
 * layers >= stage_count. No other way makes the slowest stage faster. */
void sl_stages_balance(const sl_stages_costs *costs, uint32_t layers, uint32_t stage_count,
                       uint32_t *out_ends);

#endif
