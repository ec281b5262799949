/* What carries messages between machines: a table that a plug-in over an MPI library fills
 * (src/comm/mpi), or a test. One thread makes all calls, and none but open, close and abort blocks.
 *
 * A message is named by who it is between and its tag, and those of one name arrive in order. What
 * is under way lies in slots, which the caller numbers: a slot is free again when its event came.
 * Calls return false after they wrote a text, which names what failed, into `error`.
 */
#ifndef SL_COMM_TRANSPORT_H
#define SL_COMM_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SL_MAIL_VERSION = 1, /* of this table: plug-ins of another one are refused */
    SL_MAIL_ERROR_BYTES = 512
};

#define SL_MAIL_ANYBODY UINT32_MAX

/* What is sent, or where what comes is to lie. */
typedef struct sl_mail_letter {
    uint32_t peer, tag; /* to or from whom; SL_MAIL_ANYBODY, too, where it comes from */
    void *data;         /* not written by send */
    uint64_t bytes;     /* that are sent; that may come, at most */
} sl_mail_letter;

/* A message that has left or come. */
typedef struct sl_mail_event {
    uint32_t slot;
    bool has_failed;
    uint64_t bytes; /* that came */
} sl_mail_event;

typedef struct sl_mail_ops {
    uint32_t version;
    /* Which rank of how many this is. */
    bool (*open)(void *self, uint32_t slot_count, uint32_t *out_rank, uint32_t *out_size,
                 char *error);
    /* The data stay the caller's, and as they are, until the event. */
    bool (*send)(void *self, uint32_t slot, const sl_mail_letter *letter, char *error);
    bool (*receive)(void *self, uint32_t slot, const sl_mail_letter *letter, char *error);
    /* What has left or come since: out_events [capacity]. `error` is about the last one that
     * failed. */
    bool (*poll)(void *self, sl_mail_event *out_events, uint32_t capacity, uint32_t *out_count,
                 char *error);
    /* Blocks until all ranks are here. What has not come is given up. */
    void (*close)(void *self);
    /* Ends all processes of the job, this one included. */
    void (*abort)(void *self, int code);
} sl_mail_ops;

/* What a plug-in exports under the name SL_MAIL_PLUGIN: it has no `self`. */
typedef const sl_mail_ops *(*sl_mail_plugin)(void);

#define SL_MAIL_PLUGIN "sl_mail_of_mpi"

#endif
