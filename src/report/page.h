/* A report: one HTML file that needs nothing else, with the pictures of a plan's memory and time.
 *
 * What was planned is the account (account.c and account_*.c, of the plan's allocations and a
 * simulation). What was measured comes from the engine (src/engine/statistics.c), and of `train`
 * from each step (report_step in src/train/training.c): `train` hands it over in
 * src/cli/live_report.c, `profile` in src/cli/profile.c. The numbers stand in the page
 * once, as JSON: {"plan": what `plan --json` prints, "account": …, "measured": …, "runs": [what
 * sl_history_format makes]}; its scripts draw them. The account in JSON is bounded like the account
 * itself: runs of commands that are too short to be seen are drawn as one.
 */
#ifndef SL_REPORT_PAGE_H
#define SL_REPORT_PAGE_H

#include <jansson.h>

#include "account.h"
#include "history.h"
#include "search/search.h"

typedef struct sl_report_args {
    const sl_blueprint *blueprint;
    /* Budgets that were asked for and do not hold the plan; NULL: the blueprint's. */
    const uint64_t *asked_budget_bytes;
    const char *refusal; /* why not, as the command says it; NULL: it fits */
} sl_report_args;

/* Which scripts draw a page. */
typedef enum sl_page_kind {
    SL_PAGE_PLAN,
    SL_PAGE_RUNS,
    SL_PAGE_BENCH,
    SL_PAGE_CLUSTER
} sl_page_kind;

/* Whether a report may be put there: what is there and is no report is not replaced. Before hours
 * go into what it is to tell. SL_ERROR_USAGE, SL_ERROR_IO. */
sl_status sl_report_check(const char *path, sl_page_kind kind);

/* Writes the report in one step: there is a whole file or the old one. `measured` is NULL for the
 * plan alone. SL_ERROR_IO names the file; SL_ERROR_USAGE: what is there is no report;
 * SL_ERROR_SYSTEM: no memory. */
sl_status sl_report_write(const char *path, const sl_report_args *args,
                          const sl_report_measured *measured);

/* The report of a run that goes on, which is written again and again: what does not change is made
 * once. */
typedef struct sl_report_draft sl_report_draft;

/* Borrows the blueprint. SL_ERROR_SYSTEM. The caller closes the draft. */
sl_status sl_report_draft_open(const sl_report_args *args, sl_report_draft **out_draft);

/* NULL is fine. */
void sl_report_draft_close(sl_report_draft *draft);

/* As sl_report_write, with the curves of a run; NULL: none. */
sl_status sl_report_draft_write(sl_report_draft *draft, const char *path,
                                const sl_report_measured *measured, const sl_history *run);

/* Writes the page of a measured machine: bars of what `sluice bench --json` prints
 * (sl_bench_format, borrowed). SL_ERROR_USAGE: what is there is no report; others as above. */
sl_status sl_report_write_bench(const char *path, const json_t *bench);

/* Writes a page of the numbers that its script reads (borrowed). Statuses as above. */
sl_status sl_report_write_page(const char *path, const json_t *root, sl_page_kind kind);

/* What an account of program 0 of a blueprint is made from. */
sl_account_request sl_report_request(const sl_blueprint *blueprint);

#endif
