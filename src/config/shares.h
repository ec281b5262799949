/* Which shares of parameters, gradients, optimizer states and activations live on the host and on
 * disk (--offload-..., --nvme-...), and the policies that take them. */
#ifndef SL_CONFIG_SHARES_H
#define SL_CONFIG_SHARES_H

#include "config.h"

/* Sets the shares that the policy does not take to 0. Returns those that were above 0, a bit for
 * each. */
uint32_t sl_shares_drop(sl_config *config);

/* Warns of each share of such bits: no row of plan --compare takes it. */
void sl_shares_warn(uint32_t dropped);

/* Refuses a share that the policy does not take, one on disk without --disk-dir, and shares of one
 * kind above 1: SL_ERROR_USAGE. Part of sl_config_check; for plan --compare, of each row. */
sl_status sl_shares_check(const sl_config *config);

#endif
