/* Hazards: which commands must wait for which.
 *
 * Derived from memory alone: two commands that touch the same bytes, one of them writing, must run
 * in issue order. That covers data flow and the reuse of addresses alike. Lanes order their own
 * commands; a wait is only kept where neither lane order nor another wait implies it.
 */
#ifndef SL_CHUNK_PLAN_HAZARDS_H
#define SL_CHUNK_PLAN_HAZARDS_H

#include "sluice/plan.h"

/* Fills plan->waits and each body command's first_wait and wait_count; everything else of the plan
 * must stand. */
sl_status sl_hazards_resolve(const sl_program *program, sl_plan *plan);

#endif
