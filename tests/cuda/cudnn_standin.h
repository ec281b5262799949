/* A cuDNN for tests, on the processor: the calls of include/cudnn_graph.h over plain loops. It
 * knows nothing of sluice but its promise that a run repeats its bits.
 *
 * It computes what a graph says, step by step, each tensor rounded to its type. It is stricter than
 * the library: an attribute that a descriptor does not take, of another type or number, or after it
 * is final; a part that is not final, or goes while another holds it; tensors that do not fit
 * together, are read before a step wrote them, or are never read; pointers that are missing, not as
 * aligned as was said, in the workspace or not on the device; a plan that goes while it runs. Each
 * is counted as a fault, with its reason. Of the engines that it names, the first tells that its
 * sums vary, the second wants too much workspace forward, too little for repeatable sums backward;
 * the third is right. Graphs run in their stream, later than the call, and leave rubbish in their
 * workspace. */
#ifndef SL_STANDIN_CUDNN_CONTROL_H
#define SL_STANDIN_CUDNN_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Forgets faults, counts and everything set below; what is live then counts as a fault. */
void standin_cudnn_reset(void);

/* Whether the library can be loaded from now on (cudnn_standin.c). */
void standin_cudnn_hide(bool is_hidden);
bool standin_cudnn_is_hidden(void);

/* How many engines are named from now on: 3, or fewer. */
void standin_cudnn_name(int engine_count);

/* Lets the call number `nth` from now (1: the next), of any function that can fail, return that
 * something is not supported, and do nothing. */
void standin_cudnn_fail_call(uint64_t nth);

uint64_t standin_cudnn_calls(void);    /* of functions that can fail */
uint64_t standin_cudnn_executed(void); /* graphs, since the last reset */
uint64_t standin_cudnn_live(void);     /* handles and descriptors */

/* Faults since the last reset; *out_first (may be NULL): the first one's text. */
uint64_t standin_cudnn_faults(const char **out_first);

#ifdef __cplusplus
}
#endif
#endif
