/* The page of --report while a run trains: renewed at each evaluation and at the end.
 *
 * The page shows the whole run. A run that goes on takes its earlier steps from its log of
 * --log-json, and those that are not in that log from its page; see
 * docs/decisions/0083-pages-of-runs.md.
 */
#ifndef SL_CLI_LIVE_REPORT_H
#define SL_CLI_LIVE_REPORT_H

#include "train/trainer.h"

/* Adds the page to the sinks of an open trainer, which is borrowed and outlives them, if its
 * configuration has one and this is the first rank. SL_ERROR_USAGE: what is there is no report;
 * SL_ERROR_IO, SL_ERROR_SYSTEM. */
sl_status sl_live_report_open(const sl_trainer *trainer, sl_sinks *sinks);

#endif
