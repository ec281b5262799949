/* Requests by io_uring, one ring per lane; the one file that knows liburing.
 *
 * The ring holds `depth` submissions and twice as many completions, and at most `depth` requests
 * are in flight, so the completion queue cannot overflow. If the kernel is too busy for a request
 * (it has no memory for it at the moment), the request stays in the ring, and every wait submits it
 * again, until the time limit of the lane. Files and the buffer are registered where the kernel
 * allows it; a request whose memory is not inside one registered part is sent unregistered. Each
 * registration counts against the limit of locked memory, even if another registration has locked
 * the same pages. So a second ring shares the registration of its sibling where the kernel can do
 * that (from 6.12 on).
 *
 * IORING_SETUP_SINGLE_ISSUER and DEFER_TASKRUN are not used: they bind a ring to one thread for its
 * life, but the lane's contract is one thread at a time (the store may be filled by another thread
 * than the one that runs the lane). Direct transfers of 1 MiB complete a few thousand times a
 * second; COOP_TASKRUN saves one interrupt for each.
 */
#include <stdio.h>
#include <stdlib.h>

#include "transport.h"

#ifdef SL_HAS_LIBURING

#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backoff.h"
#include "base/clock.h"

enum {
    REGISTERED_BYTES_MAX = 1 << 30, /* of one registered part: the kernel's limit */
    PARTS_MAX = 1024,               /* limit of the oldest kernels */
    CLONE_BUFFERS = 30              /* IORING_REGISTER_CLONE_BUFFERS of newer headers */
};

/* struct io_uring_clone_buffers of newer headers; zeros after the first field clone all buffers. */
typedef struct clone_request {
    uint32_t source, flags, source_first, first, count, pad[3];
} clone_request;

struct sl_transport {
    struct io_uring ring;
    const int *files;
    uint32_t depth;
    bool has_files, has_buffer; /* registered */
    bool is_cached;
    char *buffer;
    uint64_t buffer_bytes;
    uint32_t out_count; /* in flight: in the ring or in the kernel */
    uint32_t wait_ms;
    struct __kernel_timespec wait; /* the same */
    uint64_t locked_bytes;         /* by this ring's registration, not by its sibling's */
    char note[160];
};

/* The index of the registered part that holds all of `bytes` bytes at `data`; -1 if none does. */
static int registered_part(const sl_transport *transport, const char *data, uint32_t bytes)
{
    if (!transport->has_buffer || data < transport->buffer)
        return -1;
    uint64_t offset = (uint64_t)(data - transport->buffer);
    if (offset > transport->buffer_bytes || bytes > transport->buffer_bytes - offset)
        return -1;
    uint64_t first = offset / REGISTERED_BYTES_MAX;
    uint64_t last = (offset + bytes - 1) / REGISTERED_BYTES_MAX;
    return first == last ? (int)first : -1;
}

static void prepare_entry(const sl_transport *transport, struct io_uring_sqe *entry,
                          sl_transport_request *request)
{
    int file = transport->has_files ? (int)request->file : transport->files[request->file];
    int part = registered_part(transport, request->data, request->bytes);
    if (request->is_write && part >= 0)
        io_uring_prep_write_fixed(entry, file, request->data, request->bytes, request->offset,
                                  part);
    else if (request->is_write)
        io_uring_prep_write(entry, file, request->data, request->bytes, request->offset);
    else if (part >= 0)
        io_uring_prep_read_fixed(entry, file, request->data, request->bytes, request->offset, part);
    else
        io_uring_prep_read(entry, file, request->data, request->bytes, request->offset);
    if (request->is_write && transport->is_cached)
        entry->rw_flags = RWF_DSYNC;
    if (transport->has_files)
        entry->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(entry, request);
}

static bool is_busy(int error)
{
    return error == EINTR || error == EAGAIN || error == EBUSY;
}

/* Submits the entries of the ring. Returns 0, or the errno for which the kernel left some in the
 * ring. */
static int offer_entries(sl_transport *transport)
{
    while (io_uring_sq_ready(&transport->ring) > 0) {
        int result = io_uring_submit(&transport->ring);
        if (result <= 0)
            return result == 0 ? EBUSY : -result;
    }
    return 0;
}

/* Entries that the kernel does not take now stay in the ring; wait submits them again, and fails if
 * the kernel refuses them for good. */
static sl_status submit_requests(sl_transport *transport, sl_transport_request *const *requests,
                                 uint32_t count)
{
    if (io_uring_sq_space_left(&transport->ring) < count)
        SL_FAIL(SL_ERROR_INTERNAL, "%u more requests than the ring has room for", count);
    for (uint32_t i = 0; i < count; i++)
        prepare_entry(transport, io_uring_get_sqe(&transport->ring), requests[i]);
    transport->out_count += count;
    (void)offer_entries(transport);
    return SL_OK;
}

/* Waits once for a completion, at most wait_ms. Returns 0 (also on time-out) or an errno. */
static int await_kernel(sl_transport *transport)
{
    struct io_uring_cqe *entry;
    int error = offer_entries(transport);
    bool has_work = transport->out_count > io_uring_sq_ready(&transport->ring);
    if (has_work && (error == 0 || is_busy(error)))
        error = -io_uring_wait_cqe_timeout(&transport->ring, &entry, &transport->wait);
    return error == ETIME ? 0 : error;
}

/* Blocks until a request has completed, or for wait_ms; within that time submits again to a busy
 * kernel. */
static sl_status wait_for_completion(sl_transport *transport)
{
    uint64_t end_ns = sl_clock_now_ns() + transport->wait_ms * UINT64_C(1000000);
    uint32_t pauses = 0;
    int error = await_kernel(transport);
    while (is_busy(error) && sl_clock_now_ns() < end_ns) {
        sl_backoff_pause(pauses);
        pauses += pauses < SL_BACKOFF_MAX - 1;
        error = await_kernel(transport);
    }
    if (error != 0 && !is_busy(error))
        SL_FAIL(SL_ERROR_IO, "waiting for io_uring: %s", strerror(error));
    return SL_OK;
}

static sl_status wait_for_requests(sl_transport *transport, sl_transport_request **out_requests,
                                   uint32_t most, uint32_t *out_count)
{
    SL_TRY(wait_for_completion(transport));
    struct io_uring_cqe *entry;
    uint32_t count = 0;
    while (count < most && io_uring_peek_cqe(&transport->ring, &entry) == 0) {
        sl_transport_request *request = io_uring_cqe_get_data(entry);
        request->result = entry->res;
        io_uring_cqe_seen(&transport->ring, entry);
        out_requests[count++] = request;
    }
    transport->out_count -= count;
    *out_count = count;
    return SL_OK;
}

/* After the ring is gone the kernel may go on with requests in flight; transport.h says what holds
 * for their memory. */
static void close_ring(sl_transport *transport)
{
    io_uring_queue_exit(&transport->ring);
    free(transport);
}

/* Returns 0 or an errno. Tries the flags of newer kernels first. Kernels before 5.11 are refused:
 * they have no wait with a time limit (EXT_ARG), and liburing would submit a time-out request
 * together with the entries of the ring. */
static int open_ring(sl_transport *transport)
{
    const unsigned flags[] = {IORING_SETUP_COOP_TASKRUN, 0};
    int result = -EINVAL;
    for (int i = 0; i < 2 && result == -EINVAL; i++)
        result = io_uring_queue_init(transport->depth, &transport->ring, flags[i]);
    if (result != 0)
        return -result;
    struct io_uring_probe *probe = io_uring_get_probe_ring(&transport->ring);
    bool is_known = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                    io_uring_opcode_supported(probe, IORING_OP_WRITE) &&
                    (transport->ring.features & IORING_FEAT_EXT_ARG) != 0;
    io_uring_free_probe(probe);
    if (is_known)
        return 0;
    io_uring_queue_exit(&transport->ring);
    return EOPNOTSUPP;
}

/* Takes over the sibling's registration. Returns 0 or an errno. */
static int share_buffer(sl_transport *transport, const sl_transport *sibling)
{
    clone_request request = {.source = (uint32_t)sibling->ring.ring_fd};
    if (!sibling->has_buffer)
        return EINVAL;
    long result =
        syscall(SYS_io_uring_register, transport->ring.ring_fd, CLONE_BUFFERS, &request, 1);
    return result == 0 ? 0 : errno;
}

/* Registers the buffer in parts that the kernel accepts. Returns 0 or an errno. */
static int register_buffer(sl_transport *transport)
{
    struct iovec parts[PARTS_MAX];
    uint32_t count = 0;
    for (uint64_t offset = 0; offset < transport->buffer_bytes; count++) {
        uint64_t left = transport->buffer_bytes - offset;
        uint64_t bytes = left < REGISTERED_BYTES_MAX ? left : REGISTERED_BYTES_MAX;
        if (count == PARTS_MAX)
            return EFBIG;
        parts[count] = (struct iovec){.iov_base = transport->buffer + offset, .iov_len = bytes};
        offset += bytes;
    }
    int error = -io_uring_register_buffers(&transport->ring, parts, count);
    transport->locked_bytes = error == 0 ? transport->buffer_bytes : 0;
    return error;
}

static void write_note(sl_transport *transport, int error)
{
    const char *files_word = transport->has_files ? "" : ", unregistered files";
    if (error == ENOMEM || error == EPERM)
        snprintf(transport->note, sizeof transport->note,
                 "unregistered buffers (%s; ulimit -l must let %llu KiB more be locked)%s",
                 strerror(error), (unsigned long long)(transport->buffer_bytes >> 10), files_word);
    else if (error != 0)
        snprintf(transport->note, sizeof transport->note, "unregistered buffers (%s)%s",
                 strerror(error), files_word);
    else
        snprintf(transport->note, sizeof transport->note, "%s%s",
                 transport->has_buffer ? "registered buffers" : "unregistered buffers", files_word);
}

static void register_all(sl_transport *transport, const sl_transport_options *options)
{
    transport->has_files =
        io_uring_register_files(&transport->ring, options->files, options->file_count) == 0;
    int error = 0;
    if (transport->buffer_bytes > 0) {
        error = options->sibling != NULL ? share_buffer(transport, options->sibling) : EINVAL;
        error = error != 0 ? register_buffer(transport) : 0;
        transport->has_buffer = error == 0;
    }
    write_note(transport, error);
}

static sl_status open_uring(const sl_transport_options *options, sl_transport **out_transport)
{
    sl_transport *transport = calloc(1, sizeof *transport);
    if (transport == NULL)
        SL_FAIL(SL_ERROR_SYSTEM, "no memory for a ring");
    transport->files = options->files;
    transport->depth = options->depth;
    transport->buffer = options->buffer;
    transport->buffer_bytes = options->buffer != NULL ? options->buffer_bytes : 0;
    transport->is_cached = options->is_cached;
    transport->wait_ms = options->wait_ms;
    transport->wait = (struct __kernel_timespec){
        .tv_sec = options->wait_ms / 1000, .tv_nsec = (long long)options->wait_ms % 1000 * 1000000};
    int error = open_ring(transport);
    if (error != 0) {
        free(transport);
        SL_FAIL(SL_ERROR_SYSTEM, "%s", strerror(error));
    }
    register_all(transport, options);
    *out_transport = transport;
    return SL_OK;
}

static const char *describe_ring(const sl_transport *transport)
{
    return transport->note;
}

static uint64_t count_locked_bytes(const sl_transport *transport)
{
    return transport->locked_bytes;
}

#else

static sl_status open_uring(const sl_transport_options *options, sl_transport **out_transport)
{
    (void)options, (void)out_transport;
    SL_FAIL(SL_ERROR_SYSTEM, "built without liburing");
}

static sl_status submit_requests(sl_transport *transport, sl_transport_request *const *requests,
                                 uint32_t count)
{
    (void)transport, (void)requests, (void)count;
    SL_FAIL(SL_ERROR_INTERNAL, "built without liburing");
}

static sl_status wait_for_requests(sl_transport *transport, sl_transport_request **out_requests,
                                   uint32_t most, uint32_t *out_count)
{
    (void)transport, (void)out_requests, (void)most, (void)out_count;
    SL_FAIL(SL_ERROR_INTERNAL, "built without liburing");
}

static void close_ring(sl_transport *transport)
{
    (void)transport;
}

static const char *describe_ring(const sl_transport *transport)
{
    (void)transport;
    return "";
}

static uint64_t count_locked_bytes(const sl_transport *transport)
{
    (void)transport;
    return 0;
}

#endif

const sl_transport_ops sl_transport_uring = {.name = "io_uring",
                                             .open = open_uring,
                                             .submit = submit_requests,
                                             .wait = wait_for_requests,
                                             .close = close_ring,
                                             .note = describe_ring,
                                             .locked_bytes = count_locked_bytes};
