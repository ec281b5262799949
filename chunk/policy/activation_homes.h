/* Activation homes: which activations live on the host or on disk while no op needs them.
 *
 * Eligible are activations that the forward pass saves: those of at least SL_ACTIVATION_LEAST_BYTES
 * and of a multiple of SL_DIRECT_ALIGNMENT, whose first use writes them whole in the forward pass,
 * which recomputation or the backward pass reads, and which no op that may run on the host uses.
 * Knows nothing of budgets and ticks; depends on the program and the shares alone.
 */
#ifndef SL_CHUNK_POLICY_ACTIVATION_HOMES_H
#define SL_CHUNK_POLICY_ACTIVATION_HOMES_H

#include "sluice/chunk.h"

enum { SL_ACTIVATION_LEAST_BYTES = 16 << 10 };

/* Writes an sl_tier for each value of `program`. Of each micro-batch the first eligible values in
 * order of first use get the disk, up to `disk_share` of the micro-batch's eligible bytes, the next
 * ones the host, up to `host_share` more; a value that straddles a bound is inside it. All other
 * values get the device. SL_ERROR_USAGE unless the shares and their sum are between 0 and 1.
 * out_tier: [value_count]. */
sl_status sl_activation_homes_choose(const sl_program *program, double disk_share,
                                     double host_share, uint8_t *out_tier);

#endif
