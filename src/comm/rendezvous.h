/* How ranks that were started by somebody else (mpirun, srun) come to the memory that those of one
 * machine share: the first of them makes it and hands it out through a socket that has no file and
 * is named after the process that started them all. */
#ifndef SL_COMM_RENDEZVOUS_H
#define SL_COMM_RENDEZVOUS_H

#include <stdint.h>

#include "base/status.h"

typedef struct sl_meeting {
    uint32_t rank, size; /* among those of this machine */
    uint32_t world_size;
    uint64_t key; /* part of the socket's name: 0, or what this machine is known by */
} sl_meeting;

/* Blocks until all ranks of the machine have come, `timeout_s` at most; the file is the caller's.
 * Peers of another user are turned away. SL_ERROR_RANK names a rank that did not come. */
sl_status sl_rendezvous_share(const sl_meeting *meeting, double timeout_s, int *out_file);

#endif
