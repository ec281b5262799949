/* What a device must keep of the order in which it was asked, and copies to the byte. Private to
 * the room. */
#ifndef SL_SELFTEST_TRANSFERS_H
#define SL_SELFTEST_TRANSFERS_H

#include "lockstep.h"

typedef struct sl_order_args {
    sl_timed_device *device; /* borrowed */
    uint32_t rounds;
    uint64_t end_ns; /* no round begins later; 0: no end */
} sl_order_args;

/* Sums that only come out if each kernel runs behind the copy that it waits for, each copy behind
 * its kernel or the host thread that fills what it copies, and the thread behind the copy back:
 * over a few rooms in turn, while copies of other bytes run. */
sl_status sl_transfers_prove_order(const sl_order_args *args, sl_fault *out_fault,
                                   uint32_t *out_rounds);

/* Copies both ways at odd offsets and of odd lengths, across each border of `border_bytes` in
 * `host_bytes` of locked host memory: host memory is registered with a device in pieces, and a copy
 * across two is where drivers differ. */
sl_status sl_transfers_prove_borders(sl_timed_device *device, uint64_t host_bytes,
                                     uint64_t border_bytes, sl_fault *out_fault);

#endif
