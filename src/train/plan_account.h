/* A plan, or a refusal, as the JSON object that `sluice plan --json` prints. */
#ifndef SL_TRAIN_PLAN_ACCOUNT_H
#define SL_TRAIN_PLAN_ACCOUNT_H

#include <jansson.h>

#include "plan_stages.h"

/* What fits: the totals of the stage that takes most memory; of several ranks "ranks", with all
 * stages, groups and splits; with `with_auto` and a policy that was left open "auto", the best
 * choices that were compared. SL_ERROR_SYSTEM: no memory. */
sl_status sl_plan_account_format(const sl_trainer *trainer, const sl_plan_stages *stages,
                                 bool with_auto, json_t **out_object);

/* What does not fit; the search is at the stage that was refused. Statuses as above. */
sl_status sl_plan_account_format_refusal(const sl_search *search, const sl_refusal *refusal,
                                         json_t **out_object);

/* The lane or link that binds a choice, by name. */
const char *sl_plan_account_find_bound(const sl_search_candidate *candidate,
                                       const sl_machine *machine);

/* Rows of a tensor on this rank, its panels together. */
uint64_t sl_plan_account_count_rows(const sl_program *program, const char *name);

/* Parameters that a rank keeps: a share, where they are in shards. */
uint64_t sl_plan_account_count_parameters(const sl_blueprint *blueprint);

#endif
