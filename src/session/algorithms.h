/* The algorithms of a run's matrix products on a GPU (machine/algorithm_list.h): with which list a
 * run begins, and what `profile --time-algorithms` keeps. A run without cuBLASLt has no list. */
#ifndef SL_SESSION_ALGORITHMS_H
#define SL_SESSION_ALGORITHMS_H

#include "ranks.h"
#include "runtime.h"

/* Chooses the list, and lets the blueprint's target borrow it; the target's kernels are not open
 * yet. The list is `saved`, that of the checkpoint from which the run goes on (NULL: no
 * checkpoint), or the machine's if `saved` is of another GPU or library. All ranks call this
 * together and get the first one's list. The caller frees *out_list once the runtime is closed;
 * NULL: the run has no cuBLASLt. SL_ERROR_USAGE: products are to be timed without cuBLASLt.
 * SL_ERROR_SYSTEM: no memory. SL_ERROR_RANK: another rank is lost. */
sl_status sl_algorithms_choose(const sl_ranks *ranks, const char *saved, sl_blueprint *blueprint,
                               char **out_list);

/* Puts the algorithms that the open engines of all stages have timed into the machine's list, and
 * notes the path of that file. All ranks call this together; the first one writes. Errors: as
 * sl_algorithm_list_keep, and SL_ERROR_RANK. */
sl_status sl_algorithms_keep(const sl_ranks *ranks, const sl_runtime *runtime);

#endif
