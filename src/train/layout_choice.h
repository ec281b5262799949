/* How the ranks of a run share the model where --tp, --pp or --zero is auto.
 *
 * The first rank chooses for all: as `plan --cluster` chooses for a described cluster, but of this
 * machine's rates and budgets. A run that goes on with as many ranks keeps the layout of its
 * checkpoint, because sums of another layout round in another order.
 */
#ifndef SL_TRAIN_LAYOUT_CHOICE_H
#define SL_TRAIN_LAYOUT_CHOICE_H

#include <jansson.h>

#include "cluster/choose.h"
#include "session/machines.h"

struct sl_trainer;

typedef struct sl_layout_choice {
    bool is_made;        /* false: the options give the layout */
    bool is_recorded;    /* it is the checkpoint's */
    bool is_chosen[4];   /* --tp, --pp, --zero, --micro-batch */
    uint64_t numbers[4]; /* of these */
    uint32_t rank_count;
    sl_machines machines; /* that the ranks are on */
    /* What was compared, on the first rank. */
    sl_cluster_estimate best[SL_CLUSTER_BEST];
    uint32_t count; /* of `best`; 0: nothing fits by estimate */
    uint64_t considered, fitting;
    char basis[48]; /* where the rates come from */
} sl_layout_choice;

/* Fills in --tp, --pp, --zero and, with one of the first two, --micro-batch, where they are open;
 * of a trainer whose shape is known. All ranks call it. The first choice of a trainer and its
 * copies is logged. SL_ERROR_USAGE: nothing can be chosen so; names the option. */
sl_status sl_layout_choose(struct sl_trainer *trainer);

/* Opens again, in a changed copy of the trainer's configuration, what was chosen and is not
 * changed: the copy's layout is chosen for the change. */
void sl_layout_reopen(const struct sl_trainer *trainer, sl_config *config);

/* Adds what was chosen and what it was compared with to a plan as JSON, under "layout"; nothing
 * where the options give the layout. */
sl_status sl_layout_choice_add(const sl_layout_choice *choice, json_t *plan);

#endif
