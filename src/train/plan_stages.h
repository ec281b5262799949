/* The plans of a pipeline's stages, each as a rank of that stage would draw it. */
#ifndef SL_TRAIN_PLAN_STAGES_H
#define SL_TRAIN_PLAN_STAGES_H

#include "trainer.h"

typedef struct sl_plan_stage {
    uint32_t first_layer, layer_count;
    uint64_t peak_bytes[SL_TIER_COUNT]; /* of each of its ranks */
    double step_seconds;                /* predicted, as if it waited for no other stage */
} sl_plan_stage;

typedef struct sl_plan_stages {
    sl_plan_stage *items;            /* [count], owned */
    uint32_t count;                  /* one where there is no pipeline */
    uint32_t shown;                  /* the stage whose ranks take most memory */
    sl_blueprint *blueprint;         /* of that stage, owned */
    sl_search_candidates candidates; /* that were compared for it */
    double step_seconds; /* of all: their predictions played jointly, a third of each forward */
} sl_plan_stages;

/* Draws the stages of a prepared trainer one after the other, at most two blueprints at a time;
 * of gpipe, middle stages with as many layers have one plan. SL_ERROR_FIT fills *out_refusal,
 * leaves the search at the stage that does not fit, and the message names it. The caller closes it
 * on failure too. */
sl_status sl_plan_stages_draw(sl_trainer *trainer, sl_plan_stages *out_stages,
                              sl_refusal *out_refusal);
void sl_plan_stages_close(sl_plan_stages *stages);

#endif
