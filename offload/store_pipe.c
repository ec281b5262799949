/* The states of a transfer: idle -> ready -> out -> (ready again | idle). A transfer carries one
 * part of a range; all `depth` transfers are always in one of these states. A part becomes ready
 * again when its request was short (it is continued after the last whole unit), when the kernel is
 * busy, once after a failed read, and once when the bytes read have the wrong checksum. The number
 * of repetitions is bounded, so every call ends.
 *
 * Parts are made ready a few at a time and completions are taken a few at a time, so that checksums
 * are computed while the disks work. The first failure is kept and no new request is submitted; the
 * call returns when all requests have completed, or when one is overdue.
 *
 * Time is measured by a clock of the lane that does not advance while the process is stopped or the
 * machine suspended: a gap between two readings counts as one wait at most. And no request is
 * judged overdue before all completions have been taken.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */

#include "store_pipe.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backoff.h"
#include "base/clock.h"

enum {
    BATCH = 4,      /* parts submitted, and completions taken, at once */
    STALLS_MAX = 8, /* requests in a row that move less than a unit */
    REASON_BYTES = 256
};

/* A part in flight, and its progress. */
typedef struct transfer {
    sl_transport_request request; /* first, so that a request can be cast to its transfer */
    uint64_t offset;              /* of the part, in its file */
    uint64_t store_offset;        /* of the part, in the store */
    char *data;
    uint32_t bytes, done;
    char *tail; /* where the first bytes of `data` are copied at the end; NULL: `data` is the
                   caller's */
    uint32_t tail_bytes;
    uint32_t pauses, stalls; /* in a row, so far */
    uint64_t out_ns;         /* when it was submitted, by the lane's clock; 0: it is not out */
    bool was_repeated, was_reread;
} transfer;

struct sl_store_pipe {
    sl_store_pipe_options options;
    sl_store_counts counts;
    transfer *transfers;
    transfer **idle, **ready; /* stacks of [depth] */
    char *record;             /* SL_STORE_RECORD_BYTES, for a record of which less is wanted */
    uint32_t idle_count, ready_count, out_count;
    uint64_t clock_ns;        /* the lane's clock, above 0 */
    uint64_t looked_ns;       /* the system's clock, when the lane's clock last advanced */
    sl_first_failure failure; /* if set, nothing new is submitted */
};

/* What is left of a range. */
typedef struct range {
    uint64_t offset, bytes; /* in the store */
    char *data;
} range;

static bool is_write(const sl_store_pipe *pipe)
{
    return pipe->options.lane == SL_STORE_WRITE;
}

static bool has_failed(const sl_store_pipe *pipe)
{
    return pipe->failure.status != SL_OK;
}

static void advance_clock(sl_store_pipe *pipe)
{
    uint64_t now = sl_clock_now_ns(), most = pipe->options.wait_ms * UINT64_C(1000000);
    uint64_t passed = now - pipe->looked_ns;
    pipe->clock_ns += passed < most ? passed : most;
    pipe->looked_ns = now;
}

/* Keeps a failure whose message begins with the part's place. */
static void fail_part(sl_store_pipe *pipe, const transfer *part, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fail_part(sl_store_pipe *pipe, const transfer *part, const char *format, ...)
{
    char reason[REASON_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    sl_status status = sl_status_fail(
        SL_ERROR_IO, "%s: %s %u bytes at offset %llu of the disk tier's file: %s",
        pipe->options.files[part->request.file].directory, is_write(pipe) ? "writing" : "reading",
        part->bytes, (unsigned long long)part->offset, reason);
    sl_first_failure_keep(&pipe->failure, status);
}

static void make_idle(sl_store_pipe *pipe, transfer *part)
{
    pipe->idle[pipe->idle_count++] = part;
}

/* Makes a request for the missing rest of a part. */
static void make_ready(sl_store_pipe *pipe, transfer *part)
{
    part->request.offset = part->offset + part->done;
    part->request.data = part->data + part->done;
    part->request.bytes = part->bytes - part->done;
    part->request.result = 0;
    pipe->ready[pipe->ready_count++] = part;
}

/* The checksums of a write are stored before it starts: if it fails half way, reading is refused.
 */
static void start_write(sl_store_pipe *pipe, transfer *part)
{
    sl_store_sums_note(pipe->options.sums, part->store_offset, part->data, part->bytes);
    make_ready(pipe, part);
}

/* Less is wanted of a record than was written: reads all that was written, which the checksum
 * needs. */
static void read_whole_record(sl_store_pipe *pipe, transfer *part, uint32_t written_bytes)
{
    part->tail = part->data;
    part->tail_bytes = part->bytes;
    part->data = pipe->record;
    part->bytes = written_bytes;
    make_ready(pipe, part);
}

static void start_read(sl_store_pipe *pipe, transfer *part)
{
    const sl_store_sums *sums = pipe->options.sums;
    uint32_t written_bytes = sl_store_sums_written_bytes(sums, part->store_offset);
    if (part->bytes < SL_STORE_RECORD_BYTES && written_bytes > part->bytes) {
        read_whole_record(pipe, part, written_bytes);
    } else if (sl_store_sums_is_blank(sums, part->store_offset, part->bytes)) {
        memset(part->data, 0, part->bytes);
        make_idle(pipe, part);
    } else {
        make_ready(pipe, part);
    }
}

/* Bytes of the next part of a range: up to the end of its piece. A last record of which less is
 * read than was written is a part of its own. */
static uint32_t find_part_bytes(const sl_store_pipe *pipe, const range *left)
{
    uint64_t room = SL_STORE_PIECE_BYTES - left->offset % SL_STORE_PIECE_BYTES;
    uint32_t bytes = (uint32_t)(left->bytes < room ? left->bytes : room);
    uint32_t tail = bytes % SL_STORE_RECORD_BYTES;
    if (is_write(pipe) || tail == 0 || tail == bytes)
        return bytes;
    uint64_t last = left->offset + bytes - tail;
    return sl_store_sums_written_bytes(pipe->options.sums, last) > tail ? bytes - tail : bytes;
}

/* Cuts the next part off the range. */
static void start_part(sl_store_pipe *pipe, range *left)
{
    uint64_t piece_index = left->offset / SL_STORE_PIECE_BYTES;
    uint64_t inside = left->offset % SL_STORE_PIECE_BYTES;
    uint32_t bytes = find_part_bytes(pipe, left);
    uint32_t file_count = pipe->options.file_count;
    transfer *part = pipe->idle[--pipe->idle_count];
    *part = (transfer){
        .request = {.file = (uint32_t)(piece_index % file_count), .is_write = is_write(pipe)},
        .offset = piece_index / file_count * SL_STORE_PIECE_BYTES + inside,
        .store_offset = left->offset,
        .data = left->data,
        .bytes = bytes};
    left->offset += bytes;
    left->data += bytes;
    left->bytes -= bytes;
    if (is_write(pipe))
        start_write(pipe, part);
    else
        start_read(pipe, part);
}

static void submit_ready(sl_store_pipe *pipe)
{
    sl_transport_request *requests[BATCH];
    while (pipe->ready_count > 0 && !has_failed(pipe)) {
        uint32_t count = pipe->ready_count < BATCH ? pipe->ready_count : BATCH;
        for (uint32_t i = 0; i < count; i++)
            requests[i] = &pipe->ready[pipe->ready_count - count + i]->request;
        sl_status status = pipe->options.ops->submit(pipe->options.transport, requests, count);
        if (status != SL_OK) {
            fail_part(pipe, pipe->ready[pipe->ready_count - 1], "%s", sl_status_message());
            return;
        }
        advance_clock(pipe);
        for (uint32_t i = 0; i < count; i++)
            pipe->ready[pipe->ready_count - count + i]->out_ns = pipe->clock_ns;
        pipe->ready_count -= count;
        pipe->out_count += count;
        pipe->counts.requests += count;
    }
}

static void drop_ready(sl_store_pipe *pipe)
{
    while (pipe->ready_count > 0)
        make_idle(pipe, pipe->ready[--pipe->ready_count]);
}

static void repeat_request(sl_store_pipe *pipe, transfer *part)
{
    pipe->counts.retries++;
    make_ready(pipe, part);
}

/* Words for a failure that the disk being full explains. */
static void fail_full(sl_store_pipe *pipe, const transfer *part, int error)
{
    const sl_store_file *file = &pipe->options.files[part->request.file];
    fail_part(pipe, part, "%s; %llu bytes are free", strerror(error),
              (unsigned long long)sl_store_file_free_bytes(file));
}

static void judge_error(sl_store_pipe *pipe, transfer *part, int error)
{
    bool is_busy = error == EINTR || error == EAGAIN;
    if (is_busy && part->pauses < SL_BACKOFF_MAX) {
        if (error == EAGAIN)
            sl_backoff_pause(part->pauses);
        part->pauses++;
        repeat_request(pipe, part);
        return;
    }
    if (error == EIO && !is_write(pipe) && !part->was_repeated) {
        part->was_repeated = true;
        repeat_request(pipe, part);
        return;
    }
    if (error == EINVAL)
        fail_part(pipe, part, "%s (memory at %p, %u bytes, offset %llu)", strerror(error),
                  part->request.data, part->request.bytes,
                  (unsigned long long)part->request.offset);
    else if (error == ENOSPC || error == EDQUOT)
        fail_full(pipe, part, error);
    else
        fail_part(pipe, part, "%s", strerror(error));
    make_idle(pipe, part);
}

static void fail_sum(sl_store_pipe *pipe, const transfer *part, const sl_store_mismatch *wrong)
{
    fail_part(pipe, part,
              "checksum %016llx expected, %016llx found twice, of the %u bytes at offset %llu",
              (unsigned long long)wrong->expected, (unsigned long long)wrong->found, wrong->bytes,
              (unsigned long long)(part->offset + wrong->first_byte));
}

static void judge_sums(sl_store_pipe *pipe, transfer *part)
{
    sl_store_mismatch wrong;
    bool is_right = sl_store_sums_check(pipe->options.sums, part->store_offset, part->data,
                                        part->bytes, &wrong);
    if (!is_right && !part->was_reread) {
        part->was_reread = true;
        part->done = 0;
        repeat_request(pipe, part);
        return;
    }
    if (!is_right)
        fail_sum(pipe, part, &wrong);
    else if (part->tail != NULL)
        memcpy(part->tail, part->data, part->tail_bytes);
    make_idle(pipe, part);
}

/* The request moved all bytes, or the first ones. */
static void judge_bytes(sl_store_pipe *pipe, transfer *part, uint32_t moved)
{
    const sl_store_file *file = &pipe->options.files[part->request.file];
    bool is_short = moved < part->request.bytes;
    uint32_t whole = is_short ? moved / file->unit * file->unit : moved;
    part->pauses = 0;
    part->stalls = whole > 0 ? 0 : part->stalls + 1;
    part->done += whole;
    *(is_write(pipe) ? &pipe->counts.written_bytes : &pipe->counts.read_bytes) += whole;
    if (is_short) {
        pipe->counts.short_transfers++;
        if (part->stalls <= STALLS_MAX) {
            make_ready(pipe, part);
            return;
        }
        fail_part(pipe, part, "stuck at %u of them", part->done);
        make_idle(pipe, part);
        return;
    }
    sl_store_file_settle(file, part->offset, part->bytes);
    if (is_write(pipe))
        make_idle(pipe, part);
    else
        judge_sums(pipe, part);
}

static void judge_result(sl_store_pipe *pipe, transfer *part)
{
    int32_t result = part->request.result;
    if (has_failed(pipe)) {
        make_idle(pipe, part);
    } else if (result < 0) {
        judge_error(pipe, part, -result);
    } else if (result == 0 || (uint32_t)result > part->request.bytes) {
        fail_part(pipe, part,
                  result == 0 && !is_write(pipe) ? "the file ends after %u of them"
                                                 : "impossible result after %u of them",
                  part->done);
        make_idle(pipe, part);
    } else {
        judge_bytes(pipe, part, (uint32_t)result);
    }
}

/* True if the part that has been out longest is overdue: the lane fails. */
static bool is_stuck(sl_store_pipe *pipe)
{
    const transfer *oldest = NULL;
    for (uint32_t i = 0; i < pipe->options.depth; i++) {
        const transfer *part = &pipe->transfers[i];
        if (part->out_ns != 0 && (oldest == NULL || part->out_ns < oldest->out_ns))
            oldest = part;
    }
    uint64_t age_ms = oldest == NULL ? 0 : (pipe->clock_ns - oldest->out_ns) / 1000000;
    if (age_ms < pipe->options.limit_ms)
        return false;
    fail_part(
        pipe, oldest,
        "the system has not finished it for %.1f s; its memory, which it may still use, stays "
        "taken until this process ends",
        (double)age_ms / 1e3);
    return true;
}

/* False when the transport cannot say what became of its requests, or one is overdue. */
static bool take_back(sl_store_pipe *pipe)
{
    sl_transport_request *requests[BATCH];
    uint32_t count = 0;
    sl_status status = pipe->options.ops->wait(pipe->options.transport, requests, BATCH, &count);
    if (status != SL_OK) {
        sl_first_failure_keep(&pipe->failure, status);
        return false;
    }
    advance_clock(pipe);
    pipe->out_count -= count;
    for (uint32_t i = 0; i < count; i++)
        ((transfer *)(void *)requests[i])->out_ns = 0;
    for (uint32_t i = 0; i < count; i++)
        judge_result(pipe, (transfer *)(void *)requests[i]);
    bool has_more = count == BATCH;
    return has_more || !is_stuck(pipe);
}

static void move_parts(sl_store_pipe *pipe, range *left)
{
    bool goes_on = true;
    while (goes_on && !has_failed(pipe) &&
           (left->bytes > 0 || pipe->idle_count < pipe->options.depth)) {
        while (left->bytes > 0 && pipe->idle_count > 0 && pipe->ready_count < BATCH &&
               !has_failed(pipe))
            start_part(pipe, left);
        submit_ready(pipe);
        bool can_start = left->bytes > 0 && pipe->idle_count > 0;
        if (!can_start && pipe->out_count > 0)
            goes_on = take_back(pipe);
    }
    drop_ready(pipe);
    while (goes_on && pipe->out_count > 0)
        goes_on = take_back(pipe);
}

sl_status sl_store_pipe_move(sl_store_pipe *pipe, uint64_t offset, char *data, uint64_t bytes)
{
    if (!has_failed(pipe))
        move_parts(pipe, &(range){.offset = offset, .bytes = bytes, .data = data});
    return sl_first_failure_return(&pipe->failure);
}

const char *sl_store_pipe_note(const sl_store_pipe *pipe)
{
    return pipe->options.ops->note(pipe->options.transport);
}

uint64_t sl_store_pipe_locked_bytes(const sl_store_pipe *pipe)
{
    return pipe->options.ops->locked_bytes(pipe->options.transport);
}

void sl_store_pipe_count(const sl_store_pipe *pipe, sl_store_counts *counts)
{
    counts->read_bytes += pipe->counts.read_bytes;
    counts->written_bytes += pipe->counts.written_bytes;
    counts->requests += pipe->counts.requests;
    counts->short_transfers += pipe->counts.short_transfers;
    counts->retries += pipe->counts.retries;
}

static void free_pipe(sl_store_pipe *pipe)
{
    free(pipe->idle);
    free(pipe->transfers);
    free(pipe);
}

/* A mapping, which can stay mapped if a request on it is abandoned. */
static sl_status map_record(sl_store_pipe *pipe)
{
    void *memory = mmap(NULL, SL_STORE_RECORD_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a record of the disk tier: %s", strerror(errno));
    pipe->record = memory;
    return SL_OK;
}

static sl_status allocate_pipe(uint32_t depth, sl_store_pipe **out_pipe)
{
    sl_store_pipe *pipe = calloc(1, sizeof *pipe);
    if (pipe == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a lane of the disk tier");
    pipe->transfers = calloc(depth, sizeof *pipe->transfers);
    pipe->idle = calloc(2 * (size_t)depth, sizeof(transfer *));
    sl_status status = pipe->transfers != NULL && pipe->idle != NULL
                           ? map_record(pipe)
                           : sl_status_fail(SL_ERROR_SYSTEM,
                                            "no memory for %u parts on their way to a disk", depth);
    if (status != SL_OK) {
        free_pipe(pipe);
        return status;
    }
    *out_pipe = pipe;
    return SL_OK;
}

sl_status sl_store_pipe_open(const sl_store_pipe_options *options, sl_store_pipe **out_pipe)
{
    sl_store_pipe *pipe = NULL;
    SL_TRY(allocate_pipe(options->depth, &pipe));
    pipe->options = *options;
    pipe->clock_ns = 1;
    pipe->looked_ns = sl_clock_now_ns();
    pipe->ready = pipe->idle + options->depth;
    for (uint32_t i = 0; i < options->depth; i++)
        make_idle(pipe, &pipe->transfers[i]);
    *out_pipe = pipe;
    return SL_OK;
}

uint32_t sl_store_pipe_close(sl_store_pipe *pipe)
{
    if (pipe == NULL)
        return 0;
    while (pipe->out_count > 0 && take_back(pipe))
        ;
    uint32_t abandoned_count = pipe->out_count;
    pipe->options.ops->close(pipe->options.transport);
    if (abandoned_count == 0)
        munmap(pipe->record, SL_STORE_RECORD_BYTES);
    free_pipe(pipe);
    return abandoned_count;
}
