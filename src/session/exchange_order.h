/* Whether what the stages of a pipeline exchange in a step comes to its end: each stage's list is
 * walked in its order, and of two neighbours' next exchanges those that fit are over. Pure: knows
 * programs, and no communicator.
 *
 * An exchange ends only when both stages have reached it, as if nothing were buffered. Lists that
 * end under this rule end with buffers of any size too.
 */
#ifndef SL_SESSION_EXCHANGE_ORDER_H
#define SL_SESSION_EXCHANGE_ORDER_H

#include "program/program.h"

/* An exchange with another stage, or what all stages do together. Flat: ranks send it. */
typedef struct sl_exchange_order_op {
    uint32_t peer;            /* the other stage; SL_NONE: all */
    uint32_t section, repeat; /* those of one section follow each other, and are repeated */
    uint32_t reserved;
    uint64_t given_bytes, taken_bytes; /* 0: nothing goes that way */
} sl_exchange_order_op;

typedef struct sl_exchange_order_list {
    const sl_exchange_order_op *ops;
    uint32_t count;
} sl_exchange_order_list;

/* Writes what one stage's step exchanges, in its order; the caller frees it. SL_ERROR_SYSTEM: no
 * memory. */
sl_status sl_exchange_order_find(const sl_program *step, sl_exchange_order_op **out_ops,
                                 uint32_t *out_count);

/* SL_ERROR_INTERNAL, and names the stages and exchanges, unless all of them come to their end.
 * SL_ERROR_SYSTEM: no memory. */
sl_status sl_exchange_order_check(const sl_exchange_order_list *stages, uint32_t stage_count);

#endif
