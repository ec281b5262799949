/* Matrix products with their epilogues, again and again on two streams at once: a library has one
 * handle for both, and takes the operands of an epilogue apart from the product. Private to the
 * room. */
#ifndef SL_SELFTEST_PRODUCTS_H
#define SL_SELFTEST_PRODUCTS_H

#include "lockstep.h"

typedef struct sl_products_args {
    sl_timed_device *device; /* borrowed */
    uint32_t rounds;         /* of each type */
    uint64_t end_ns;         /* no round begins later; 0: no end */
} sl_products_args;

/* Each product must have the bits that it has alone. */
sl_status sl_products_prove(const sl_products_args *args, sl_fault *out_fault,
                            uint64_t *out_products);

#endif
