/* What a device must keep of the order in which it was asked, and copies to the byte. Private to
 * the room. */
#ifndef SL_SELFTEST_TRANSFERS_H
#define SL_SELFTEST_TRANSFERS_H

#include "lockstep.h"

/* Sums that only come out if each kernel runs behind the copy that it waits for, and each copy back
 * behind its kernel: `rounds` times over a few rooms in turn, on three streams. */
sl_status sl_transfers_prove_order(sl_timed_device *device, uint32_t rounds, sl_fault *out_fault);

/* Copies both ways at odd offsets and of odd lengths, across each border of `border_bytes` in
 * `host_bytes` of locked host memory: host memory is registered with a device in pieces, and a copy
 * across two is where drivers differ. */
sl_status sl_transfers_prove_borders(sl_timed_device *device, uint64_t host_bytes,
                                     uint64_t border_bytes, sl_fault *out_fault);

#endif
