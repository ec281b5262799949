/* What an end of a communicator is made of, and what a carrier has to do. */
#ifndef SL_COMM_COMM_INTERNAL_H
#define SL_COMM_COMM_INTERNAL_H

#include <stdatomic.h>

#include "comm.h"
#include "watch.h"
#include "window.h"

/* One pass of a call: this rank's pieces lie at sl_window_place. */
typedef struct sl_comm_pass {
    sl_window_sign sign;
    bool is_for_all; /* one piece for all others, not one for each */
    /* [size] bytes that go to each rank and come from it; this rank's own are not looked at */
    const uint64_t *send_bytes, *receive_bytes;
} sl_comm_pass;

/* A carrier. Every call is made in the same order by all ranks concerned, and blocks. */
typedef struct sl_comm_ops {
    const char *name;
    /* Prepares an end that was split off, or that of a pair, for this carrier; its board and window
     * are there. */
    sl_status (*open)(sl_comm *comm);
    /* Hands the pieces out, without waiting for others. */
    sl_status (*begin)(sl_comm *comm, const sl_comm_pass *pass);
    /* Waits for theirs; then received[i] of the end is what rank i laid for this one, until the
     * next pass begins. */
    sl_status (*finish)(sl_comm *comm, const sl_comm_pass *pass);
    void (*close)(sl_comm *comm);
} sl_comm_ops;

struct sl_comm {
    const sl_comm_ops *ops;
    char name[16];
    sl_board *board; /* the world's */
    sl_watch *watch; /* of the world, if its ranks are processes; else NULL */
    sl_comm *world;  /* itself, if it is the world */
    sl_comm *of;     /* whose pair it is; NULL: of none */
    sl_comm **pairs; /* [size] with which this rank has exchanged data; NULL: it has not */
    bool is_behind;  /* of a pair: `last` is not finished yet, and is before the next begins */
    sl_comm_pass last;
    sl_comm_group group;
    uint32_t rank, size;
    uint32_t *members;     /* [size] ranks in the world */
    uint32_t *local;       /* [size] their places on this machine, UINT32_MAX elsewhere */
    sl_window *window;     /* NULL: a communicator of one */
    uint64_t offset;       /* of its window, on the board */
    const void **received; /* [size] */
    uint64_t *send_bytes, *receive_bytes; /* [size] of the coming pass */
    uint64_t piece_bytes;                 /* the largest piece for one rank */
    uint64_t all_bytes;                   /* the largest piece for all of them */
    uint64_t call_count;
    _Atomic uint64_t sent_bytes[SL_COMM_GROUP_COUNT]; /* of the world: by all ends of the process */
    uint32_t split_count;                             /* of the world: the same on all ranks */
    void *carrier;                                    /* the carrier's own */
    uint64_t carrier_bytes;                           /* memory of that, on this rank */
    _Alignas(64) char merged[SL_COMM_RECORD_BYTES];   /* scratch of sl_comm_merge */
};

/* An end with its arrays, without a window: what all carriers begin with. */
sl_status sl_comm_make(const sl_comm_ops *ops, const char *name, uint32_t rank, uint32_t size,
                       sl_comm **out_comm);

/* The communicator of this rank and rank `other`, made when it is first used, for exchanges. */
sl_status sl_comm_find_pair(sl_comm *comm, uint32_t other, sl_comm **out_pair);

/* Opens its window at an offset of the board; does nothing for a communicator of one. */
sl_status sl_comm_open_window(sl_comm *comm, uint64_t offset);

/* Counts what this rank hands to others. */
void sl_comm_count_sent(sl_comm *comm, uint64_t bytes);

#endif
