/* Activation homes: which activations live on the host or on disk while no op needs them.
 *
 * Eligible is what the forward pass leaves for later: an activation of at least
 * SL_ACTIVATION_LEAST_BYTES and a multiple of SL_DIRECT_ALIGNMENT, whose first use writes it whole
 * in the forward pass, which recomputation or the backward pass reads, and which no op that may run
 * on the host uses. Knows nothing of budgets and ticks; depends on the program and the shares
 * alone.
 */
#ifndef SL_CHUNK_POLICY_ACTIVATION_HOMES_H
#define SL_CHUNK_POLICY_ACTIVATION_HOMES_H

#include "sluice/chunk.h"

enum { SL_ACTIVATION_LEAST_BYTES = 16 << 10 };

/* Writes an sl_tier for each value of `program`: the device, but for the first eligible ones of
 * each micro-batch in order of first use: the disk up to `disk_share` of that micro-batch's
 * eligible bytes, the host up to `host_share` more; the one that straddles a bound is inside it.
 * SL_ERROR_USAGE unless the shares are between 0 and 1, together too. out_tier: [value_count]. */
sl_status sl_activation_homes_choose(const sl_program *program, double disk_share,
                                     double host_share, uint8_t *out_tier);

#endif
