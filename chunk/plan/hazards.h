/* Hazards: which commands must wait for which.
 *
 * The only rule is about memory: if two commands touch the same bytes and at least one of them
 * writes, they must run in issue order. This covers both data flow and the reuse of addresses. The
 * commands of one lane run in order anyway; a wait is kept only if neither lane order nor another
 * wait implies it.
 */
#ifndef SL_CHUNK_PLAN_HAZARDS_H
#define SL_CHUNK_PLAN_HAZARDS_H

#include "chunk/plan.h"

/* Fills plan->waits and each body command's first_wait and wait_count. All commands, sections and
 * places of the plan must be filled in. */
sl_status sl_hazards_resolve(const sl_program *program, sl_plan *plan);

#endif
