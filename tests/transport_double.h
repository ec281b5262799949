/* A transport in memory, for tests of whatever stands above the disk store: it takes its time,
 * hands requests back out of order, and breaks one of them on demand.
 *
 * All lanes of a store share one memory a file. A request is carried out when it is submitted or
 * when it is waited for, by chance: a buffer that is used too early or too late shows either way.
 */
#ifndef TESTS_TRANSPORT_DOUBLE_H
#define TESTS_TRANSPORT_DOUBLE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/rng.h"
#include "offload/transport.h"

typedef enum double_fault {
    DOUBLE_IO_ERROR,  /* -EIO */
    DOUBLE_NO_SPACE,  /* -ENOSPC */
    DOUBLE_INTERRUPT, /* -EINTR */
    DOUBLE_BUSY,      /* -EAGAIN */
    DOUBLE_NOTHING,   /* 0 bytes moved */
    DOUBLE_SECTOR,    /* 512 bytes moved */
    DOUBLE_HALF,      /* half of the bytes moved, in whole units of 4096 */
    DOUBLE_FLIP,      /* one bit of the data is wrong */
    DOUBLE_DROP,      /* said to be done, but nothing was moved */
    DOUBLE_STALE,     /* done in its first 4096 bytes only */
    DOUBLE_MISPLACED, /* done 4096 bytes further on */
    DOUBLE_REFUSED,   /* submit fails */
    DOUBLE_FAULT_COUNT
} double_fault;

enum { DOUBLE_FILES = 3, DOUBLE_DEPTH_MAX = 256 };

/* What the transports of one test share. */
typedef struct double_disk {
    unsigned char *file[DOUBLE_FILES];
    uint64_t file_bytes;
    uint64_t seed;
    uint32_t pause_us;              /* a wait takes up to this long */
    _Atomic uint64_t request_count; /* submitted so far */
    _Atomic uint32_t open_count;    /* transports that are open */
    _Atomic uint32_t wrong;         /* requests outside a file, or more than the depth */
    uint64_t fault_at;              /* the request that is broken; UINT64_MAX: none */
    double_fault fault;
    bool fault_lasts; /* and all later ones */
} double_disk;

static double_disk the_disk;

struct sl_transport {
    sl_transport_request *out[DOUBLE_DEPTH_MAX];
    bool is_done[DOUBLE_DEPTH_MAX];
    uint64_t number[DOUBLE_DEPTH_MAX];
    uint32_t count, depth;
    uint64_t draws;
};

/* Forgets everything; no transport may be open. */
static inline void double_reset(uint64_t seed)
{
    for (int i = 0; i < DOUBLE_FILES; i++)
        free(the_disk.file[i]);
    memset(&the_disk, 0, sizeof the_disk);
    the_disk.seed = seed;
    the_disk.fault_at = UINT64_MAX;
}

static inline uint64_t double_draw(sl_transport *transport, uint64_t below)
{
    return sl_rng_below(the_disk.seed, (uintptr_t)transport->depth, transport->draws++, below);
}

static inline void double_take_files(const sl_transport_options *options)
{
    if (the_disk.file[0])
        return;
    the_disk.file_bytes = options->file_bytes;
    for (uint32_t i = 0; i < options->file_count && i < DOUBLE_FILES; i++)
        the_disk.file[i] = calloc(1, options->file_bytes + 4096);
}

static sl_status double_open(const sl_transport_options *options, sl_transport **out_transport)
{
    sl_transport *transport = calloc(1, sizeof *transport);
    if (!transport)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a double");
    double_take_files(options);
    transport->depth = options->depth;
    if (options->depth > DOUBLE_DEPTH_MAX || options->file_count > DOUBLE_FILES)
        the_disk.wrong++;
    the_disk.open_count++;
    *out_transport = transport;
    return SL_OK;
}

static inline void double_move(const sl_transport_request *request, uint64_t offset, uint64_t bytes)
{
    unsigned char *at = the_disk.file[request->file] + offset;
    if (request->is_write)
        memcpy(at, request->data, bytes);
    else
        memcpy(request->data, at, bytes);
}

static inline int32_t double_break(const sl_transport_request *request, double_fault fault)
{
    uint32_t bytes = request->bytes, half = bytes / 2 / 4096 * 4096;
    switch (fault) {
    case DOUBLE_IO_ERROR:
        return -EIO;
    case DOUBLE_NO_SPACE:
        return -ENOSPC;
    case DOUBLE_INTERRUPT:
        return -EINTR;
    case DOUBLE_BUSY:
        return -EAGAIN;
    case DOUBLE_NOTHING:
        return 0;
    case DOUBLE_SECTOR:
        double_move(request, request->offset, 512);
        return 512;
    case DOUBLE_HALF:
        double_move(request, request->offset, half);
        return (int32_t)half;
    case DOUBLE_FLIP:
        double_move(request, request->offset, bytes);
        if (request->is_write)
            the_disk.file[request->file][request->offset + bytes / 3] ^= 4;
        else
            ((unsigned char *)request->data)[bytes / 3] ^= 4;
        return (int32_t)bytes;
    case DOUBLE_STALE:
        double_move(request, request->offset, 4096);
        return (int32_t)bytes;
    case DOUBLE_MISPLACED:
        double_move(request, request->offset + 4096, bytes);
        return (int32_t)bytes;
    default: /* DROP */
        return (int32_t)bytes;
    }
}

static inline bool double_is_broken(uint64_t number)
{
    return number == the_disk.fault_at || (the_disk.fault_lasts && number > the_disk.fault_at);
}

static inline void double_carry_out(sl_transport *transport, uint32_t index)
{
    sl_transport_request *request = transport->out[index];
    if (transport->is_done[index])
        return;
    transport->is_done[index] = true;
    if (double_is_broken(transport->number[index])) {
        request->result = double_break(request, the_disk.fault);
        return;
    }
    double_move(request, request->offset, request->bytes);
    request->result = (int32_t)request->bytes;
}

static sl_status double_submit(sl_transport *transport, sl_transport_request *const *requests,
                               uint32_t count)
{
    uint64_t first = atomic_fetch_add(&the_disk.request_count, count);
    for (uint32_t i = 0; i < count; i++)
        if (double_is_broken(first + i) && the_disk.fault == DOUBLE_REFUSED)
            SL_FAIL(SL_ERROR_IO, "the double refuses request %llu", (unsigned long long)first + i);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = transport->count;
        if (at == transport->depth || requests[i]->file >= DOUBLE_FILES ||
            requests[i]->offset + requests[i]->bytes > the_disk.file_bytes) {
            the_disk.wrong++;
            SL_FAIL(SL_ERROR_INTERNAL, "a request that the double cannot take");
        }
        transport->out[at] = requests[i];
        transport->is_done[at] = false;
        transport->number[at] = first + i;
        transport->count++;
        if (double_draw(transport, 2) == 0)
            double_carry_out(transport, at);
    }
    return SL_OK;
}

static sl_status double_wait(sl_transport *transport, sl_transport_request **out_requests,
                             uint32_t most, uint32_t *out_count)
{
    if (transport->count == 0 || most == 0)
        SL_FAIL(SL_ERROR_INTERNAL, "a wait for nothing");
    if (the_disk.pause_us > 0) {
        struct timespec pause = {0, (long)double_draw(transport, the_disk.pause_us) * 1000};
        nanosleep(&pause, NULL);
    }
    uint64_t least = most < transport->count ? most : transport->count;
    uint32_t count = 1 + (uint32_t)double_draw(transport, least);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = (uint32_t)double_draw(transport, transport->count);
        double_carry_out(transport, at);
        out_requests[i] = transport->out[at];
        uint32_t last = --transport->count;
        transport->out[at] = transport->out[last];
        transport->is_done[at] = transport->is_done[last];
        transport->number[at] = transport->number[last];
    }
    *out_count = count;
    return SL_OK;
}

static void double_close(sl_transport *transport)
{
    for (uint32_t i = 0; i < transport->count; i++)
        double_carry_out(transport, i);
    the_disk.open_count--;
    free(transport);
}

static const char *double_note(const sl_transport *transport)
{
    (void)transport;
    return "in memory";
}

static const sl_transport_ops transport_double = {.name = "double",
                                                  .owns_files = true,
                                                  .open = double_open,
                                                  .submit = double_submit,
                                                  .wait = double_wait,
                                                  .close = double_close,
                                                  .note = double_note};

#endif
