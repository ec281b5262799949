/* What each rank of a profile measured, on every rank, and what they have together: sums of what
 * they moved and sent, and the rank for which the others wait.
 */
#ifndef SL_MEASURE_RANKS_H
#define SL_MEASURE_RANKS_H

#include "measured.h"
#include "session/ranks.h"

/* Brings together what the ranks measured, and notes it in *measured. All ranks call it; a process
 * that is alone notes nothing. SL_ERROR_SYSTEM, and the failures of an exchange. */
sl_status sl_measured_gather(const sl_ranks *ranks, sl_measured *measured);

/* Milliseconds of a step in which a rank did not wait for another one. */
double sl_measured_own_ms(const sl_measured *measured);

/* Frees what sl_measured_gather noted; NULL is fine. */
void sl_measured_ranks_close(sl_measured_ranks *ranks);

#endif
