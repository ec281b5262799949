/* The ranks of other machines: ranks of one machine hand each other pieces through their window,
 * all others get them as messages (messages.h). */
#ifndef SL_COMM_REMOTE_H
#define SL_COMM_REMOTE_H

#include "comm_internal.h"
#include "mail.h"

/* Opens this rank's end of the world of `size` ranks that the transport spans: which of them share
 * a machine is found out; `machine` is a name by which this one counts as another one than it is,
 * or NULL. */
sl_status sl_remote_open(const sl_mail_ops *ops, void *self, uint32_t size, const char *machine,
                         double timeout_s, sl_comm **out_world);

/* Prepares an end that was split off, or that of a pair; its board and window are there. */
sl_status sl_remote_open_end(sl_comm *comm);

/* Hands the pieces of a pass to ranks of other machines, without waiting for them. */
void sl_remote_begin(const sl_comm *comm, const sl_comm_pass *pass);

/* Waits for theirs. */
sl_status sl_remote_finish(sl_comm *comm, const sl_comm_pass *pass);

/* Leaves the world, whose end this is. */
void sl_remote_close(sl_comm *world);

/* The transport of the plug-in for an MPI library, "openmpi" or "mpich". SL_ERROR_SYSTEM says which
 * plug-in is missing. */
sl_status sl_mpi_load(const char *library, const sl_mail_ops **out_ops);

#endif
