/* How ranks that were started by somebody else (mpirun, srun) come to the memory that they share:
 * rank 0 makes it and hands it out through a socket that has no file and is named after the process
 * that started them all. */
#ifndef SL_COMM_RENDEZVOUS_H
#define SL_COMM_RENDEZVOUS_H

#include "environment.h"

/* Blocks until all ranks have come, `timeout_s` at most; the file is the caller's. Peers of another
 * user are turned away. SL_ERROR_RANK names a rank that did not come. */
sl_status sl_rendezvous_share(const sl_environment *environment, double timeout_s, int *out_file);

#endif
