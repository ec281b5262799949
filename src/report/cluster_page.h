/* The page of a cluster that was planned: its numbers, where the time of a step goes, and the
 * picture of its pipeline, stages over time. Of a long step the begin and the end are drawn. */
#ifndef SL_REPORT_CLUSTER_PAGE_H
#define SL_REPORT_CLUSTER_PAGE_H

#include <jansson.h>

#include "cluster/choose.h"

/* Writes the page. `plan` is what `plan --cluster --json` prints (borrowed). Statuses of
 * sl_report_write. */
sl_status sl_report_write_cluster(const char *path, const sl_cluster_question *question,
                                  const sl_cluster_answer *answer, const json_t *plan);

#endif
