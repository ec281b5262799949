/* MPI as a transport (mail.h). This file is compiled once for each MPI library that is there,
 * with that library's own header, into a plug-in which sluice loads when ranks are on several
 * machines: nothing else of sluice is linked with MPI.
 *
 * Of MPI it takes point-to-point messages between all ranks, and nothing of its sums: those are
 * made in the order of ranks (wire.h). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/mail.h"

const sl_mail_ops *sl_mail_of_mpi(void);

static struct {
    MPI_Comm comm; /* a copy of the world, whose errors come back */
    uint32_t slot_count;
    MPI_Request *requests; /* [slot_count], MPI_REQUEST_NULL where nothing is under way */
    MPI_Status *statuses;
    int *done;
    uint32_t used; /* slots below this have been in use */
} it;

static bool is_fine(int code, const char *call, char *error)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return true;
    MPI_Error_string(code, text, &length);
    snprintf(error, SL_MAIL_ERROR_BYTES, "%s: %.400s", call, text);
    return false;
}

static bool make_slots(uint32_t slot_count, char *error)
{
    it.slot_count = slot_count;
    it.requests = calloc(slot_count, sizeof *it.requests);
    it.statuses = calloc(slot_count, sizeof *it.statuses);
    it.done = calloc(slot_count, sizeof *it.done);
    if (!it.requests || !it.statuses || !it.done) {
        snprintf(error, SL_MAIL_ERROR_BYTES, "no memory for %u messages", slot_count);
        return false;
    }
    for (uint32_t i = 0; i < slot_count; i++)
        it.requests[i] = MPI_REQUEST_NULL;
    return true;
}

static bool open_mpi(void *self, uint32_t slot_count, uint32_t *out_rank, uint32_t *out_size,
                     char *error)
{
    int provided, rank, size, is_over = 0;
    (void)self;
    MPI_Finalized(&is_over);
    if (is_over) {
        snprintf(error, SL_MAIL_ERROR_BYTES,
                 "MPI begins once in a process: ranks of several machines open the world once");
        return false;
    }
    if (!make_slots(slot_count, error) ||
        !is_fine(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread",
                 error))
        return false;
    if (provided < MPI_THREAD_FUNNELED) {
        snprintf(error, SL_MAIL_ERROR_BYTES, "this MPI allows no thread beside its own");
        return false;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!is_fine(MPI_Comm_dup(MPI_COMM_WORLD, &it.comm), "MPI_Comm_dup", error))
        return false;
    MPI_Comm_set_errhandler(it.comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(it.comm, &rank);
    MPI_Comm_size(it.comm, &size);
    *out_rank = (uint32_t)rank;
    *out_size = (uint32_t)size;
    return true;
}

static void note_used(uint32_t slot)
{
    it.used = slot >= it.used ? slot + 1 : it.used;
}

static bool send_message(void *self, uint32_t slot, const sl_mail_letter *letter, char *error)
{
    (void)self;
    note_used(slot);
    return is_fine(MPI_Isend(letter->data, (int)letter->bytes, MPI_BYTE, (int)letter->peer,
                             (int)letter->tag, it.comm, &it.requests[slot]),
                   "MPI_Isend", error);
}

static bool receive_message(void *self, uint32_t slot, const sl_mail_letter *letter, char *error)
{
    int source = letter->peer == SL_MAIL_ANYBODY ? MPI_ANY_SOURCE : (int)letter->peer;
    (void)self;
    note_used(slot);
    return is_fine(MPI_Irecv(letter->data, (int)letter->bytes, MPI_BYTE, source, (int)letter->tag,
                             it.comm, &it.requests[slot]),
                   "MPI_Irecv", error);
}

/* An error of one message stands in its status, and the call says no more than that there is one.
 */
static sl_mail_event read_status(int slot, MPI_Status *status, bool has_errors, char *error)
{
    int bytes = 0;
    sl_mail_event event = {.slot = (uint32_t)slot};
    event.has_failed = has_errors && !is_fine(status->MPI_ERROR, "a message", error);
    if (!event.has_failed && MPI_Get_count(status, MPI_BYTE, &bytes) == MPI_SUCCESS && bytes > 0)
        event.bytes = (uint64_t)bytes;
    return event;
}

static bool poll_messages(void *self, sl_mail_event *out_events, uint32_t capacity,
                          uint32_t *out_count, char *error)
{
    int done = 0;
    (void)self;
    *out_count = 0;
    if (capacity < it.slot_count) { /* else all that has come fits */
        snprintf(error, SL_MAIL_ERROR_BYTES, "room for %u events of %u", capacity, it.slot_count);
        return false;
    }
    int code = MPI_Testsome((int)it.used, it.requests, &done, it.done, it.statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
        return is_fine(code, "MPI_Testsome", error);
    for (int i = 0; done != MPI_UNDEFINED && i < done; i++)
        out_events[(*out_count)++] =
            read_status(it.done[i], &it.statuses[i], code == MPI_ERR_IN_STATUS, error);
    return true;
}

static void close_mpi(void *self)
{
    (void)self;
    for (uint32_t i = 0; i < it.used; i++) {
        if (it.requests[i] == MPI_REQUEST_NULL)
            continue;
        MPI_Cancel(&it.requests[i]);
        MPI_Request_free(&it.requests[i]);
    }
    MPI_Comm_free(&it.comm);
    MPI_Finalize();
    free(it.requests);
    free(it.statuses);
    free(it.done);
}

static void abort_job(void *self, int code)
{
    (void)self;
    MPI_Abort(it.comm, code);
}

__attribute__((visibility("default"))) const sl_mail_ops *sl_mail_of_mpi(void)
{
    static const sl_mail_ops ops = {SL_MAIL_VERSION, open_mpi,  send_message, receive_message,
                                    poll_messages,   close_mpi, abort_job};
    return &ops;
}
