/* Bytes that a placement moves in a step, by formula: from homes alone, as one would work them out
 * on paper. A plan may move fewer, where chunks stay from one use to the next, or more, where
 * memory is so tight that one is fetched twice.
 *
 *   parameters that are not resident  fetched for the forward and for the backward pass, of every
 *                                     micro-batch, or once where a layer serves all in turn
 *   gradients that are not resident   written back as often as they are added to, fetched to be
 *                                     added to again; read once more by an update elsewhere
 *   states                            read and written once where the update runs in another tier
 *   frozen parameters                 never written back; fetched for the forward pass alone before
 *                                     the first trained tensor
 *   what is on disk                   passes through the host: read, and written if it changes
 */
#ifndef SL_MEASURE_BYTES_H
#define SL_MEASURE_BYTES_H

#include "search/blueprint.h"

/* Of one step, by lane; 0 for lanes that do not copy. Activations, inputs and outputs are left out.
 */
void sl_bytes_by_formula(const sl_blueprint *blueprint, uint64_t out_bytes[SL_LANE_COUNT]);

#endif
