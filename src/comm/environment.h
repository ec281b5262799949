/* Which rank this process is, as whoever started it left it in the environment. */
#ifndef SL_COMM_ENVIRONMENT_H
#define SL_COMM_ENVIRONMENT_H

#include <stdint.h>

#include "comm.h"

/* What `sluice launch` sets: rank, ranks, and the descriptor of the memory that they share. */
#define SL_ENVIRONMENT_RANK "SLUICE_RANK"
#define SL_ENVIRONMENT_SIZE "SLUICE_RANKS"
#define SL_ENVIRONMENT_FILE "SLUICE_RANKS_FILE"

/* For ranks that are a command of sluice: what the launcher's standard input is, for which the
 * first rank can ask (src/cli/launch_input.h): SL_ENVIRONMENT_TERMINAL, or another word. */
#define SL_ENVIRONMENT_INPUT "SLUICE_RANKS_INPUT"
#define SL_ENVIRONMENT_TERMINAL "terminal"

/* By it a rank counts as one of another machine than it is on: for containers that share a kernel
 * and a network and not the machine, and for tests. */
#define SL_ENVIRONMENT_MACHINE "SLUICE_MACHINE"

typedef enum sl_comm_kind {
    SL_COMM_SELF,  /* a world of one */
    SL_COMM_LOCAL, /* processes of one machine, started by `sluice launch` */
    SL_COMM_MPI    /* processes that mpirun or srun started; on several machines by messages */
} sl_comm_kind;

typedef struct sl_environment {
    sl_comm_kind kind;
    uint32_t rank, size;
    uint32_t local_size; /* of the ranks, those on this machine; 0: to be found out */
    uint32_t local_rank; /* which of them this process is; UINT32_MAX: to be found out */
    const char *library; /* MPI: "openmpi" or "mpich", whose starter it is */
    const char *machine; /* borrowed; NULL: what it is */
    int file;            /* LOCAL */
    const char *input;   /* LOCAL: SL_ENVIRONMENT_INPUT; borrowed; NULL: there is none to ask for */
} sl_environment;

/* SL_ERROR_USAGE if what is there contradicts itself. */
sl_status sl_environment_read(sl_environment *out_environment);

#endif
