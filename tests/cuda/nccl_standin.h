/* NCCL for tests, over the stand-in of the CUDA runtime: ranks are threads of one process. It knows
 * nothing of sluice but the table of calls that it fills.
 *
 * It is stricter than NCCL. A group becomes one kernel in its stream, which waits for the kernels
 * that belong to it on the ranks that it exchanges with, and for theirs; of one rank one
 * communication kernel runs at a time, so two communicators that ranks use in different orders
 * never end. What ranks send and receive has to agree in peer, count, type and order; else nothing
 * is copied, and all of them hear of it as an asynchronous error. Communicators do not block: calls
 * answer "in progress" by chance, and a call before that is over is a fault of the caller
 * (standin_faults). Kernels are late by chance.
 *
 * Programs with the stand-in of CUDA find it in the place of the library (sl_nccl_load).
 */
#ifndef SL_TESTS_NCCL_STANDIN_H
#define SL_TESTS_NCCL_STANDIN_H

#include "comm/nccl.h"

/* What goes wrong with data, while no call fails. */
typedef enum nccl_fault {
    NCCL_NO_FAULT,
    NCCL_FLIPS, /* one bit of what kernel `fault_kernel` sends */
    NCCL_SWAPS, /* rank `fault_rank` gets the data of two others in each other's place */
    NCCL_CUTS,  /* of what it sends the last four bytes do not come */
    NCCL_STALE, /* it sends to each what it sent before */
    NCCL_STRAYS /* four bytes change that lie `fault_distance` behind the begin of what it gets */
} nccl_fault;

typedef struct nccl_standin {
    uint64_t seed;
    uint32_t delay_us;    /* the longest of a kernel; 0: none */
    uint32_t fail_kernel; /* from 1: this one, counted over all ranks, ends with an error */
    uint32_t hang_kernel; /* likewise: never ends, until its communicator is aborted */
    uint32_t refuse_init; /* rank + 1 whose meeting fails */
    bool hangs_in_abort;  /* aborts take ten seconds */
    nccl_fault fault;
    uint32_t fault_kernel, fault_rank; /* the kernel from 1, counted over all ranks */
    uint64_t fault_bytes;              /* only in messages of so many; 0: in all */
    int64_t fault_distance;            /* in bytes, within memory of the device */
    int version;                       /* 0: 2.21.5 */
    bool is_absent; /* sl_nccl_load looks for the library, as it would without a stand-in */
} nccl_standin;

const sl_nccl_calls *nccl_standin_calls(void);

/* Starts over; nothing may be open. */
void nccl_standin_reset(const nccl_standin *how);

/* Whose communicators the calling thread opens from now on: 0 to 7. Without it those of its CUDA
 * device. */
void nccl_standin_use_device(int device);

/* Communicators that are neither destroyed nor aborted; kernels that ran to their end. */
uint32_t nccl_standin_open_count(void);
uint32_t nccl_standin_kernel_count(void);

/* How many messages were spoiled. */
uint32_t nccl_standin_fault_count(void);

#endif
