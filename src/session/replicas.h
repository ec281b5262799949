/* Parameters that every rank holds in full: equal on all of them, or the run has gone wrong. */
#ifndef SL_SESSION_REPLICAS_H
#define SL_SESSION_REPLICAS_H

#include "comm/comm.h"
#include "sluice/program.h"
#include "weights/tensor_io.h"

/* Compares, by a hash, the parameters that are not split over ranks. All ranks of `world` call it,
 * the engine drained; it allocates nothing. SL_ERROR_INTERNAL on all of them names the first tensor
 * that differs, a rank, and the step. */
sl_status sl_replicas_compare(sl_comm *world, const sl_tensor_io *io, const sl_tensor_spec *tensors,
                              uint32_t tensor_count, uint64_t step);

#endif
