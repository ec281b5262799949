/* Pages of runs: written from logs by `sluice report`, and read again by a run that goes on. */
#ifndef SL_REPORT_HISTORY_PAGE_H
#define SL_REPORT_HISTORY_PAGE_H

#include "history.h"

enum { SL_HISTORY_PAGE_RUNS_MAX = 32 }; /* so many lines can be told apart: 8 colours, 4 dashes */

/* How many cells each series of a page of so many runs has: the page has a bounded size. */
uint32_t sl_history_page_cells(uint32_t run_count);

/* Writes a page of the runs, [run_count], of these names. SL_ERROR_USAGE: what is there is no
 * report; SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_history_page_write(const char *path, const sl_history *runs, char *const *names,
                                uint32_t run_count);

/* Adds the steps below `step_end` that the page of a run at `path` holds, to an open run. Does
 * nothing if there is no such page, or another run's. SL_ERROR_DATA: the page is damaged;
 * SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_history_page_read(const char *path, const char *id, uint64_t step_end,
                               sl_history *run);

#endif
