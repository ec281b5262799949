/* Parameters that every rank holds in full: equal on all of them, or the run has gone wrong. */
#ifndef SL_SESSION_REPLICAS_H
#define SL_SESSION_REPLICAS_H

#include "comm/comm.h"
#include "program/program.h"

typedef struct sl_replicas {
    sl_comm *comm;                 /* of the ranks that are compared */
    const sl_tensor_spec *tensors; /* [tensor_count] of the program */
    uint32_t tensor_count;
    bool has_split; /* tensors that are split over ranks are equal on these, too: they see other
                       data */
    /* Bytes of a parameter as it is stored. */
    uint64_t (*count)(void *user, uint32_t tensor_index);
    /* Copies some of them. */
    sl_status (*read)(void *user, uint32_t tensor_index, uint64_t first_byte, uint64_t bytes,
                      void *data);
    void *user;
    void *buffer;          /* borrowed for the calls: a part of a tensor, and the hash before it */
    uint64_t buffer_bytes; /* 32 or more; a part has half of it, a multiple of an element */
} sl_replicas;

/* Compares, by a hash, the parameters that these ranks hold alike. All of them call it, the engine
 * drained; it allocates nothing. SL_ERROR_INTERNAL on all of them names the first tensor that
 * differs, a rank of the world, and the step. */
sl_status sl_replicas_compare(const sl_replicas *replicas, uint64_t step);

/* The same of a whole run: over its world, `replicas->comm`, what all ranks hold, and over `data`,
 * the ranks with other rows (NULL: there are none), what is split, too; each tensor once where both
 * are the same ranks. */
sl_status sl_replicas_compare_all(const sl_replicas *replicas, sl_comm *data, uint64_t step);

#endif
