/* The algorithms of a run's matrix products on a GPU (machine/product_choices.h): with which list a
 * run begins, and what `profile --time-products` keeps. Nothing without cuBLASLt. */
#ifndef SL_SESSION_PRODUCTS_H
#define SL_SESSION_PRODUCTS_H

#include "ranks.h"
#include "runtime.h"

/* Writes the list into the blueprint's target, whose kernels are not open yet: `saved`, that of the
 * checkpoint from which the run goes on (NULL: there is none), else the machine's; of many ranks
 * the first one's. The caller frees *out_list once the runtime is closed; NULL: there is no
 * cuBLASLt. All ranks call it. SL_ERROR_USAGE: products are to be timed without it. */
sl_status sl_products_choose(const sl_ranks *ranks, const char *saved, sl_blueprint *blueprint,
                             char **out_list);

/* Keeps what the open engine has timed, of all stages, and says where. All ranks call it. */
sl_status sl_products_keep(const sl_ranks *ranks, const sl_runtime *runtime);

#endif
