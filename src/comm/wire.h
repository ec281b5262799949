/* Elements on their way between ranks: rounding them to the type in which they travel, and the sum
 * in the order of ranks. Every sum of every communicator is made here. */
#ifndef SL_COMM_WIRE_H
#define SL_COMM_WIRE_H

#include "comm.h"

static inline uint64_t sl_wire_bytes(sl_comm_type type)
{
    return type == SL_COMM_FP32 ? 4 : 2;
}

/* to [count] of `to_type` = from [count] of `from_type`, rounded to nearest even; one of them is
 * SL_COMM_FP32, or both are equal. */
void sl_wire_convert(sl_comm_type from_type, sl_comm_type to_type, uint64_t count, const void *from,
                     void *to);

typedef struct sl_wire_sum_args {
    sl_comm_types types;
    uint64_t count;
    uint32_t term_count, own_index; /* ranks, and which of them is this one */
    const void *const
        *terms;       /* [term_count][count] of the wire type; that of own_index is not read */
    const void *own;  /* [count] as stored: this rank's */
    void *out_wire;   /* [count] of the wire type, or NULL */
    void *out_stored; /* [count] as stored; may be `own` */
} sl_wire_sum_args;

/* The sum of all terms in order, in fp32, rounded once to the wire type. */
void sl_wire_sum(const sl_wire_sum_args *args);

#endif
