/* Ranks of several machines: sluice launch --hosts FILE. mpirun starts them, Open MPI's or MPICH's,
 * whichever is found first; this process hands it the machines, turns signals into the one that
 * ranks stop by in good order, and leaves with its code. */
#ifndef SL_CLI_HOSTS_H
#define SL_CLI_HOSTS_H

#include <signal.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sl_hosts {
    const char *path; /* a machine a line: NAME, NAME slots=N or NAME:N; # begins a remark */
    uint32_t rank_count;
    char **words;              /* of the command, NULL behind the last */
    const char *program;       /* that they begin with; NULL: a command of this one */
    const sigset_t *signals;   /* blocked, and told to the ranks as SIGUSR1; SIGCHLD is one */
    const sigset_t *in_mpirun; /* the mask that mpirun begins with */
} sl_hosts;

/* Says what it runs, and blocks until that has ended. *out_code: the exit code, 75 where a signal
 * ended mpirun. SL_ERROR_MISSING: no file, or no mpirun. SL_ERROR_DATA: what is wrong in which
 * line. SL_ERROR_USAGE: there are fewer slots than ranks, or mpirun is of another MPI. */
sl_status sl_hosts_launch(const sl_hosts *hosts, int *out_code);

#endif
