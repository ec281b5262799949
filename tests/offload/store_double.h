/* A transport of the disk store whose files are memory and whose disk can be made to misbehave: the
 * n-th request fails, is cut short, has a bit flipped, is dropped, goes to the place of another or
 * returns what was there before; requests come back late and in any order. Set `store_double`
 * before the store is opened, give &store_double_ops as its transport. One store at a time, both
 * lanes of it share the memory; reset the faults between steps as you like (no lane at work).
 *
 * It also holds the store to the contract of transport.h: at most `depth` requests out, none
 * twice, aligned, inside the file; memory of a read is poisoned from the submission on. A breach
 * ends the test program.
 */
#ifndef SL_TESTS_STORE_DOUBLE_H
#define SL_TESTS_STORE_DOUBLE_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "offload/store.h"
#include "offload/transport.h"

typedef enum double_fault {
    DOUBLE_NONE,
    DOUBLE_ERRNO, /* comes back with -error */
    DOUBLE_SHORT, /* moves `keep_bytes` at most */
    DOUBLE_HALF,  /* moves half */
    DOUBLE_FLIP,  /* one bit is wrong: for ever if written, this once if read */
    DOUBLE_DROP,  /* a write is reported and not done */
    DOUBLE_STALE, /* a read returns what was there before the last write */
    DOUBLE_SWAP,  /* a write changes places with the write before; a read returns the last read's */
    DOUBLE_REFUSE, /* the n-th submission fails */
    DOUBLE_LOST,   /* the n-th wait fails */
    DOUBLE_STUCK,  /* the n-th request is done and never comes back */
    DOUBLE_FAULT_COUNT
} double_fault;

enum { DOUBLE_BOTH, DOUBLE_READS, DOUBLE_WRITES }; /* which lanes' requests count */

typedef struct store_double_plan {
    uint64_t seed;     /* of orders, delays and bits */
    int reorders;      /* requests come back in any order, a few at a time */
    uint32_t delay_us; /* at most, before each */
    double_fault kind;
    int lanes;
    uint64_t first; /* the request that is hit, from 1; 0: none */
    int all_after;  /* and every later one */
    int error;
    uint32_t keep_bytes;
} store_double_plan;

static store_double_plan store_double;

/* Requests that count since the last store_double_arm, and how many were hit. */
static uint64_t store_double_requests, store_double_hits;

typedef struct double_place {
    uint32_t file;
    uint64_t offset;
    uint32_t bytes;
} double_place;

/* The disks. */
static struct {
    pthread_mutex_t lock;
    uint32_t user_count; /* lanes that have it open */
    uint32_t out_count;  /* requests that were not handed back, of both lanes */
    uint32_t file_count;
    uint64_t file_bytes;
    char *now, *before;   /* [file_count][file_bytes] */
    double_place last[2]; /* of each lane; bytes 0: none yet */
    uint64_t random;
} double_disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .random = 1};

struct sl_transport {
    uint32_t depth, out_count;
    sl_transport_request **out;
    uint32_t stuck_count, wait_ms;
};

/* Sets the plan and starts counting; no lane may be at work. */
static inline void store_double_arm(store_double_plan plan)
{
    store_double = plan;
    store_double_requests = store_double_hits = 0;
    double_disk.random = plan.seed * 2654435761u + 1;
}

static inline void double_need(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "the store breaks the contract of its transport: %s\n", what);
        abort();
    }
}

static inline uint64_t double_draw(uint64_t bound)
{
    double_disk.random ^= double_disk.random >> 12;
    double_disk.random ^= double_disk.random << 25;
    double_disk.random ^= double_disk.random >> 27;
    return (double_disk.random * 2685821657736338717ull >> 11) % bound;
}

static inline char *double_at(char *disk, uint32_t file, uint64_t offset)
{
    return disk + file * double_disk.file_bytes + offset;
}

/* Counts one request, submission or wait of a kind; true if it is to be hit. */
static inline int double_counts(int is_write, int is_kind)
{
    int other = is_write ? DOUBLE_READS : DOUBLE_WRITES;
    if (!is_kind || store_double.first == 0 || store_double.lanes == other)
        return 0;
    store_double_requests++;
    int hits = store_double_requests == store_double.first ||
               (store_double.all_after && store_double_requests > store_double.first);
    store_double_hits += (uint64_t)hits;
    return hits;
}

static inline int double_is_of_requests(void)
{
    return store_double.kind != DOUBLE_REFUSE && store_double.kind != DOUBLE_LOST;
}

/* Writes the way an honest disk does. */
static inline void double_store(double_place at, const char *data)
{
    char *now = double_at(double_disk.now, at.file, at.offset);
    memcpy(double_at(double_disk.before, at.file, at.offset), now, at.bytes);
    memcpy(now, data, at.bytes);
}

static inline void double_write(const sl_transport_request *request, uint32_t bytes,
                                double_fault kind)
{
    double_place at = {request->file, request->offset, bytes};
    double_place last = double_disk.last[1];
    double_disk.last[1] = at;
    if (kind == DOUBLE_DROP)
        return;
    if (kind == DOUBLE_SWAP && last.bytes > 0) {
        uint32_t common = last.bytes < bytes ? last.bytes : bytes;
        at.bytes = last.bytes = common;
        char *other = double_at(double_disk.now, last.file, last.offset);
        double_store(at, other);
        double_store(last, request->data);
        return;
    }
    double_store(at, request->data);
    if (kind == DOUBLE_FLIP)
        double_at(double_disk.now, at.file, at.offset)[double_draw(bytes)] ^=
            (char)(1 << double_draw(8));
}

static inline void double_read(const sl_transport_request *request, uint32_t bytes,
                               double_fault kind)
{
    double_place at = {request->file, request->offset, bytes};
    double_place last = double_disk.last[0];
    char *data = request->data;
    memcpy(
        data,
        double_at(kind == DOUBLE_STALE ? double_disk.before : double_disk.now, at.file, at.offset),
        bytes);
    if (kind == DOUBLE_SWAP && last.bytes > 0)
        memcpy(data, double_at(double_disk.now, last.file, last.offset),
               last.bytes < bytes ? last.bytes : bytes);
    if (kind == DOUBLE_FLIP)
        data[double_draw(bytes)] ^= (char)(1 << double_draw(8));
    double_disk.last[0] = at;
}

/* False if it never comes back. */
static inline int double_perform(sl_transport_request *request)
{
    int hits = double_counts(request->is_write, double_is_of_requests());
    double_fault kind = hits ? store_double.kind : DOUBLE_NONE;
    uint32_t bytes = request->bytes;
    if (kind == DOUBLE_ERRNO) {
        request->result = -store_double.error;
        return 1;
    }
    if (kind == DOUBLE_SHORT && store_double.keep_bytes < bytes)
        bytes = store_double.keep_bytes;
    if (kind == DOUBLE_HALF)
        bytes /= 2;
    if (bytes > 0 && request->is_write)
        double_write(request, bytes, kind);
    else if (bytes > 0)
        double_read(request, bytes, kind);
    request->result = (int32_t)bytes;
    return kind != DOUBLE_STUCK;
}

static inline void double_check(const sl_transport *transport, const sl_transport_request *request)
{
    double_need(request->file < double_disk.file_count, "no such file");
    double_need(request->bytes > 0 && request->bytes <= SL_STORE_PIECE_BYTES &&
                    request->offset <= double_disk.file_bytes - request->bytes,
                "outside of the file");
    double_need((request->offset | request->bytes | (uintptr_t)request->data) % 512 == 0,
                "not aligned");
    for (uint32_t i = 0; i < transport->out_count; i++)
        double_need(transport->out[i] != request, "submitted twice");
}

static inline sl_status double_submit(sl_transport *transport,
                                      sl_transport_request *const *requests, uint32_t count)
{
    double_need(count > 0 &&
                    transport->out_count + transport->stuck_count + count <= transport->depth,
                "too many out");
    pthread_mutex_lock(&double_disk.lock);
    int refuses = double_counts(requests[0]->is_write, store_double.kind == DOUBLE_REFUSE);
    pthread_mutex_unlock(&double_disk.lock);
    if (refuses)
        SL_FAIL(SL_ERROR_IO, "submission refused");
    for (uint32_t i = 0; i < count; i++) {
        double_check(transport, requests[i]);
        if (!requests[i]->is_write)
            memset(requests[i]->data, 0xA5, requests[i]->bytes);
        transport->out[transport->out_count++] = requests[i];
    }
    pthread_mutex_lock(&double_disk.lock);
    double_disk.out_count += count;
    pthread_mutex_unlock(&double_disk.lock);
    return SL_OK;
}

static inline void double_delay(void)
{
    if (store_double.delay_us == 0)
        return;
    pthread_mutex_lock(&double_disk.lock);
    long us = (long)double_draw(store_double.delay_us);
    pthread_mutex_unlock(&double_disk.lock);
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* The work is done as late as can be: when its result is asked for. */
static inline sl_status double_wait(sl_transport *transport, sl_transport_request **out_requests,
                                    uint32_t most, uint32_t *out_count)
{
    double_need(transport->out_count + transport->stuck_count > 0 && most > 0, "waits for nothing");
    if (transport->out_count == 0) {
        nanosleep(&(struct timespec){.tv_nsec = transport->wait_ms * 1000000L}, NULL);
        *out_count = 0;
        return SL_OK;
    }
    double_delay();
    pthread_mutex_lock(&double_disk.lock);
    uint32_t count = transport->out_count < most ? transport->out_count : most;
    int is_lost = double_counts(transport->out[0]->is_write, store_double.kind == DOUBLE_LOST);
    if (store_double.reorders)
        count = 1 + (uint32_t)double_draw(count);
    uint32_t back = 0;
    for (uint32_t i = 0; i < count && !is_lost; i++) {
        uint64_t which = store_double.reorders ? double_draw(transport->out_count) : 0;
        sl_transport_request *request = transport->out[which];
        transport->out_count--;
        double_disk.out_count--;
        memmove(&transport->out[which], &transport->out[which + 1],
                (transport->out_count - which) * sizeof *transport->out);
        if (double_perform(request))
            out_requests[back++] = request;
        else
            transport->stuck_count++;
    }
    pthread_mutex_unlock(&double_disk.lock);
    if (is_lost)
        SL_FAIL(SL_ERROR_IO, "requests lost");
    *out_count = back;
    return SL_OK;
}

static inline void double_close(sl_transport *transport)
{
    pthread_mutex_lock(&double_disk.lock);
    double_disk.out_count -= transport->out_count;
    if (--double_disk.user_count == 0) {
        free(double_disk.now);
        free(double_disk.before);
        double_disk.now = double_disk.before = NULL;
    }
    pthread_mutex_unlock(&double_disk.lock);
    free(transport->out);
    free(transport);
}

static inline sl_status double_open(const sl_transport_options *options,
                                    sl_transport **out_transport)
{
    sl_transport *transport = calloc(1, sizeof *transport);
    double_need(transport != NULL, "no memory");
    transport->depth = options->depth;
    transport->wait_ms = options->wait_ms;
    transport->out = calloc(options->depth, sizeof *transport->out);
    pthread_mutex_lock(&double_disk.lock);
    if (double_disk.user_count++ == 0) {
        double_disk.file_count = options->file_count;
        double_disk.file_bytes = options->file_bytes;
        double_disk.now = calloc(options->file_count, options->file_bytes);
        double_disk.before = calloc(options->file_count, options->file_bytes);
        memset(double_disk.last, 0, sizeof double_disk.last);
    }
    pthread_mutex_unlock(&double_disk.lock);
    double_need(transport->out && double_disk.now && double_disk.before, "no memory");
    double_need(double_disk.user_count <= 2, "two stores at once");
    *out_transport = transport;
    return SL_OK;
}

static inline const char *double_note(const sl_transport *transport)
{
    (void)transport;
    return "a test's memory";
}

static inline uint64_t double_locked_bytes(const sl_transport *transport)
{
    (void)transport;
    return 0;
}

static const sl_transport_ops store_double_ops = {.name = "double",
                                                  .owns_files = true,
                                                  .open = double_open,
                                                  .submit = double_submit,
                                                  .wait = double_wait,
                                                  .close = double_close,
                                                  .note = double_note,
                                                  .locked_bytes = double_locked_bytes};

#endif
