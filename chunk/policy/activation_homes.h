/* Activation homes: which activations live on the host or on disk while no op needs them.
 *
 * Eligible are the activations that the forward pass saves. The size of such
 * an activation is at least SL_ACTIVATION_LEAST_BYTES and a multiple of SL_DIRECT_ALIGNMENT. Its
 * first use writes it whole, in the forward pass (if another rank sends it: its second use is in
 * the forward pass). Recomputation or the backward pass reads it, and no op that may run on the
 * host uses it.
 *
 * Knows nothing of budgets and ticks: the homes depend on the program and the shares alone.
 */
#ifndef SL_CHUNK_POLICY_ACTIVATION_HOMES_H
#define SL_CHUNK_POLICY_ACTIVATION_HOMES_H

#include "chunk/chunk.h"

enum { SL_ACTIVATION_LEAST_BYTES = 16 << 10 };

/* Writes an sl_tier for each value of `program`. The eligible values of a micro-batch are taken in
 * order of first use: the first ones get the disk, up to `disk_share` of the micro-batch's eligible
 * bytes; the next ones get the host, up to `host_share` more. A value that crosses such a limit
 * still gets that tier. All other values get the device. SL_ERROR_USAGE unless the shares and their
 * sum are between 0 and 1. out_tier: [value_count]. */
sl_status sl_activation_homes_choose(const sl_program *program, double disk_share,
                                     double host_share, uint8_t *out_tier);

#endif
