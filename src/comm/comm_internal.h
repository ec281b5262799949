/* What an end of a communicator is made of. */
#ifndef SL_COMM_COMM_INTERNAL_H
#define SL_COMM_COMM_INTERNAL_H

#include <stdatomic.h>

#include "base/bits.h"
#include "base/hash.h"
#include "comm.h"
#include "watch.h"
#include "window.h"

/* One pass of a call: this rank's pieces lie at sl_window_place; send_bytes and receive_bytes of
 * the end say how much goes to each rank and comes from it. */
typedef struct sl_comm_pass {
    sl_window_sign sign;
    bool is_for_all; /* one piece for all others, not one for each */
} sl_comm_pass;

/* A rank of a communicator. */
typedef struct sl_comm_peer {
    uint32_t member; /* its rank in the world */
    uint32_t local;  /* its place on this machine, UINT32_MAX elsewhere */
    sl_comm *pair;   /* with which this rank has exchanged data with it; NULL: it has not */
    uint64_t send_bytes, receive_bytes; /* of a pass; this rank's own do not count */
} sl_comm_peer;

struct sl_comm {
    char name[16];
    sl_board *board; /* the world's */
    sl_watch *watch; /* of the world, if its ranks are processes; else NULL */
    sl_comm *world;  /* itself, if it is the world */
    sl_comm *of;     /* whose pair it is; NULL: of none */
    bool is_behind;  /* of a pair: `last` is not finished yet, and is before the next begins */
    sl_comm_pass last;
    sl_comm_group group;
    uint32_t rank, size;
    sl_window window;      /* unused in a communicator of one */
    const void **received; /* [size] what rank i laid for this one, until the next pass begins */
    uint64_t piece_bytes;  /* the largest piece for one rank */
    uint64_t all_bytes;    /* the largest piece for all of them */
    uint64_t call_count;
    _Atomic uint64_t sent_bytes[SL_COMM_GROUP_COUNT]; /* of the world: by all ends of the process */
    uint32_t split_count;                             /* of the world: the same on all ranks */
    struct sl_remote_end *remote; /* NULL: all ranks of the world are on this machine */
    uint64_t remote_bytes;        /* memory of that, on this rank */
    sl_comm_peer peers[];         /* [size] */
};

/* An end without a window. */
sl_status sl_comm_make(const char *name, uint32_t rank, uint32_t size, sl_comm **out_comm);

/* The communicator of this rank and rank `other`, made when it is first used, for exchanges. */
sl_status sl_comm_find_pair(sl_comm *comm, uint32_t other, sl_comm **out_pair);

/* Of pieces of ranks: starts [size + 1] ascends from 0. */
static inline uint64_t sl_comm_longest_piece(const uint64_t *starts, uint32_t size)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < size; i++)
        most = starts[i + 1] - starts[i] > most ? starts[i + 1] - starts[i] : most;
    return most;
}

static inline uint64_t sl_comm_hash_starts(const uint64_t *starts, uint32_t size)
{
    return sl_hash_64(starts, ((uint64_t)size + 1) * sizeof *starts);
}

/* What is left of `total` from `done` on, `most` at most. */
static inline uint64_t sl_comm_slice(uint64_t total, uint64_t done, uint64_t most)
{
    return done < total ? sl_bits_min(total - done, most) : 0;
}

/* Of rank's piece what is left from element `done` on, `most` at most. */
static inline uint64_t sl_comm_count_slice(const uint64_t *starts, uint32_t rank, uint64_t done,
                                           uint64_t most)
{
    return sl_comm_slice(starts[rank + 1] - starts[rank], done, most);
}

/* Waits until all ranks are here and are about to do the same. The data then go another way than
 * through the window. SL_ERROR_INTERNAL: one is about to do something else. */
sl_status sl_comm_meet(sl_comm *comm, const char *op, sl_comm_types types, uint64_t count,
                       uint64_t detail);

/* The same of an exchange with rank `other`: so many bytes go there and come from there. */
sl_status sl_comm_meet_one(sl_comm *comm, uint32_t other, uint64_t send_bytes,
                           uint64_t receive_bytes);

/* Counts what this rank hands to others. */
void sl_comm_count_sent(sl_comm *comm, uint64_t bytes);

#endif
