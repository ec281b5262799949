/* What could be wrong in exchanges between GPUs: a sum in another order than the hosts' makes it,
 * or pieces that are cut or placed wrongly; something that is queued before NCCL takes another
 * call, or reads what was not there yet; a call that differs between ranks and hangs; an
 * asynchronous error, a kernel that never ends or an abort that hangs, of which nobody hears; a
 * communicator that is left open. Ranks are threads with a device and streams each; NCCL and CUDA
 * are stand-ins that are late by chance. */
#include <dlfcn.h>

#include "base/status.h"
#include "comm/comm_world.h"
#include "nccl_standin.h"
#include "skip.h"
#include "standin_case.h"
#include "stream_order.h"

enum { COUNT_MOST = 70001, SCRATCH_BYTES = 4096, TYPES = 3, LAST_KERNEL = 22 };

/* One rank's device. */
typedef struct rank_device {
    sl_device *device;
    sl_device_stream *stream;
    sl_cuda_probe *probes[SL_NCCL_MARKS];
    void *memory, *scratch, *host;
    uint64_t bytes;
} rank_device;

static bool open_rank(uint32_t rank, rank_device *out)
{
    *out = (rank_device){.bytes = COUNT_MOST * sizeof(float)};
    nccl_standin_use_device((int)rank);
    return ops->open(0, NULL, &out->device) == SL_OK &&
           ops->stream_open(out->device, SL_STREAM_DEVICE, "comm", NULL, &out->stream) == SL_OK &&
           sl_cuda_probe_open(&out->probes[0]) == SL_OK &&
           sl_cuda_probe_open(&out->probes[1]) == SL_OK &&
           ops->map(out->device, out->bytes, SL_MAP_PLAIN, &out->memory) == SL_OK &&
           ops->map(out->device, SCRATCH_BYTES, SL_MAP_PLAIN, &out->scratch) == SL_OK &&
           ops->map_host(out->device, out->bytes, SL_MAP_PLAIN, &out->host) == SL_OK;
}

static void close_rank(rank_device *it)
{
    (void)ops->stream_finish(it->stream);
    ops->unmap_host(it->device, it->host, it->bytes, SL_MAP_PLAIN);
    ops->unmap(it->device, it->scratch, SCRATCH_BYTES, SL_MAP_PLAIN);
    ops->unmap(it->device, it->memory, it->bytes, SL_MAP_PLAIN);
    sl_cuda_probe_close(it->probes[0]);
    sl_cuda_probe_close(it->probes[1]);
    ops->stream_close(it->stream);
    ops->close(it->device);
}

/* ---- what the device does ---- */

typedef struct queued_sum {
    sl_wire_sum_args args;
    const void *terms[RANKS_MAX];
} queued_sum;

static void run_sum(void *argument)
{
    queued_sum *it = argument;
    it->args.terms = it->terms;
    sl_wire_sum(&it->args);
}

static sl_status queue_work(void *stream, void (*function)(void *argument), void *argument)
{
    return standin_queue_owned(stream, "work", function, argument) == 0
               ? SL_OK
               : sl_status_fail(SL_ERROR_SYSTEM, "the work was refused");
}

static sl_status queue_sum(void *stream, const sl_nccl_sum *what)
{
    queued_sum *it = malloc(sizeof *it);
    if (!it)
        return SL_ERROR_SYSTEM;
    it->args = (sl_wire_sum_args){.types = what->types,
                                  .count = what->count,
                                  .term_count = what->term_count,
                                  .own_index = what->own_index,
                                  .own = what->own,
                                  .out_wire = what->out_wire,
                                  .out_stored = what->out_stored};
    for (uint32_t i = 0; i < what->term_count; i++)
        it->terms[i] =
            (const char *)what->terms + i * what->apart * sl_wire_bytes(what->types.wire);
    return queue_work(stream, run_sum, it);
}

typedef struct queued_convert {
    sl_comm_type from_type, to_type;
    uint64_t count;
    const void *from;
    void *to;
} queued_convert;

static void run_convert(void *argument)
{
    const queued_convert *it = argument;
    sl_wire_convert(it->from_type, it->to_type, it->count, it->from, it->to);
}

static sl_status queue_convert(void *stream, sl_comm_type from_type, sl_comm_type to_type,
                               uint64_t count, const void *from, void *to)
{
    queued_convert *it = malloc(sizeof *it);
    if (!it)
        return SL_ERROR_SYSTEM;
    *it = (queued_convert){from_type, to_type, count, from, to};
    return queue_work(stream, run_convert, it);
}

static sl_status set_mark(void *user, uint32_t which, void *stream)
{
    const rank_device *device = user;
    return sl_cuda_probe_set(device->probes[which], stream);
}

static sl_status look_at_mark(void *user, uint32_t which, bool *out_is_passed)
{
    const rank_device *device = user;
    return sl_cuda_probe_is_passed(device->probes[which], out_is_passed);
}

static sl_status open_nccl(sl_comm *host, rank_device *device, double timeout_s, sl_nccl **out)
{
    const sl_nccl_options options = {
        .host = host,
        .queue = {ops->stream_native(device->stream), device->scratch, SCRATCH_BYTES},
        .timeout_s = timeout_s,
        .device = {queue_sum, queue_convert, set_mark, look_at_mark, device}};
    return sl_nccl_open(&options, out);
}

/* ---- the same bits ---- */

typedef struct buffers {
    sl_nccl *nccl;
    rank_device device;
    unsigned char expected[COUNT_MOST * sizeof(float)];
} buffers;

static void fill(uint32_t rank, sl_comm_type type, uint64_t count, void *data)
{
    uint64_t state = 77 * rank + 5;
    for (uint64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float value = (float)((double)(state >> 40) / (1 << 23) - 1.0) * (i % 7 == 0 ? 1e4f : 1.0f);
        if (type == SL_COMM_FP32)
            ((float *)data)[i] = value;
        else
            sl_wire_convert(SL_COMM_FP32, type, 1, &value, (uint16_t *)data + i);
    }
}

static bool copy(rank_device *it, void *to, const void *from, uint64_t bytes)
{
    return bytes == 0 || (ops->copy(it->stream, 0, to, from, bytes) == SL_OK &&
                          ops->stream_finish(it->stream) == SL_OK);
}

/* Elements of rank r: some have none. */
static void cut(uint32_t size, uint64_t count, uint64_t *starts)
{
    starts[0] = 0;
    for (uint32_t i = 0; i < size; i++)
        starts[i + 1] = i + 1 == size ? count : count * (i * i) / (size * size);
}

/* What a call leaves on the device is what the hosts' leaves in `expected`. */
static bool is_equal(buffers *it, const void *memory, const void *expected, uint64_t bytes)
{
    return copy(&it->device, it->device.host, memory, bytes) && sl_nccl_poll(it->nccl) == SL_OK &&
           memcmp(it->device.host, expected, bytes) == 0;
}

static bool begin(sl_comm *world, buffers *it, sl_comm_type type, uint64_t count)
{
    fill(sl_comm_rank(world), type, count, it->expected);
    memcpy(it->device.host, it->expected, count * sl_wire_bytes(type));
    return copy(&it->device, it->device.memory, it->device.host, count * sl_wire_bytes(type));
}

static bool is_summed_as_by_hosts(sl_comm *world, buffers *it, sl_comm_types types, uint64_t count)
{
    return begin(world, it, types.stored, count) &&
           sl_nccl_all_reduce(it->nccl, types, count, it->device.memory) == SL_OK &&
           sl_comm_all_reduce_stored(world, types, count, it->expected) == SL_OK &&
           is_equal(it, it->device.memory, it->expected, count * sl_wire_bytes(types.stored));
}

/* In place, in pieces of all sizes. */
static bool is_scattered_as_by_hosts(sl_comm *world, buffers *it, sl_comm_types types,
                                     uint64_t count)
{
    const uint32_t rank = sl_comm_rank(world);
    uint64_t starts[RANKS_MAX + 1];
    cut(sl_comm_size(world), count, starts);
    const uint64_t each = sl_wire_bytes(types.stored), own = starts[rank] * each;
    char *memory = (char *)it->device.memory + own, *expected = (char *)it->expected + own;
    return begin(world, it, types.stored, count) &&
           sl_nccl_reduce_scatter(it->nccl, types, starts, it->device.memory, memory) == SL_OK &&
           sl_comm_reduce_scatter_pieces(world, types, starts, it->expected, expected) == SL_OK &&
           is_equal(it, memory, expected, (starts[rank + 1] - starts[rank]) * each);
}

/* A part that stands elsewhere, and then where it belongs. */
static bool is_gathered_as_by_hosts(sl_comm *world, buffers *it, uint64_t count)
{
    const uint32_t size = sl_comm_size(world);
    const uint64_t bytes = 2 * (count / (2 * (size + 1)));
    char *parts = (char *)it->device.memory + 2 * bytes;
    if (!begin(world, it, SL_COMM_FP32, count) ||
        sl_nccl_all_gather(it->nccl, bytes, it->device.memory, parts) != SL_OK ||
        sl_nccl_all_gather(it->nccl, bytes, parts + bytes * sl_comm_rank(world), parts) != SL_OK)
        return false;
    unsigned char *expected = malloc(size * bytes + 1);
    bool is_right = expected && sl_comm_all_gather(world, bytes, it->expected, expected) == SL_OK &&
                    is_equal(it, parts, expected, size * bytes);
    free(expected);
    return is_right;
}

static void compare_all(sl_comm *world, buffers *it, answer *out)
{
    static const uint64_t counts[] = {0, 1, 3, 127, 1000, 4096, COUNT_MOST};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int type = 0; type < 2 * TYPES && !out->is_wrong; type++) {
            const sl_comm_type wire = (sl_comm_type)(type / 2);
            const sl_comm_types types = {type % 2 ? SL_COMM_FP32 : wire, wire};
            if (!is_summed_as_by_hosts(world, it, types, counts[i]) ||
                !is_scattered_as_by_hosts(world, it, types, counts[i]) ||
                !is_gathered_as_by_hosts(world, it, counts[i]))
                complain(out, "%llu elements of type %d: %s", (unsigned long long)counts[i], type,
                         sl_status_message());
        }
}

static void run_sums(sl_comm *world, const void *argument, answer *out)
{
    buffers *it = malloc(sizeof *it);
    (void)argument;
    if (!it || !open_rank(sl_comm_rank(world), &it->device) ||
        open_nccl(world, &it->device, 20, &it->nccl) != SL_OK) {
        complain(out, "cannot open: %s", sl_status_message());
        sl_comm_abort(world, "cannot open");
        return;
    }
    compare_all(world, it, out);
    if (out->is_wrong)
        sl_comm_abort(world, "bits differ");
    sl_nccl_close(it->nccl);
    close_rank(&it->device);
    free(it);
}

static void start_over(const nccl_standin *with)
{
    standin_machine machine = plain_machine();
    machine.device_bytes = 64 << 20;
    machine.delay_us = with->delay_us;
    machine.seed = with->seed;
    standin_reset(&machine);
    nccl_standin_reset(with);
}

static void sums_when_made_by_devices_have_the_bits_of_hosts(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= 4; size++) {
        start_over(&(nccl_standin){.seed = size, .delay_us = size % 2 ? 100 : 0});
        run_right(&carriers[0], size, run_sums, NULL);
        assert_int_equal(nccl_standin_open_count(), 0);
        assert_true(size == 1 || nccl_standin_kernel_count() > 100);
        check_nothing_left();
    }
}

/* ---- calls that differ, errors, hangs ---- */

typedef struct trouble {
    nccl_standin how;
    sl_status (*call)(sl_nccl *nccl, uint32_t rank, char *memory);
    const char *says; /* on one rank at least */
    sl_status status; /* of that one */
} trouble;

static const uint64_t halves[] = {0, 500, 1000};
static const sl_comm_types fp32 = {SL_COMM_FP32, SL_COMM_FP32}, bf16 = {SL_COMM_BF16, SL_COMM_BF16},
                           fp16 = {SL_COMM_FP16, SL_COMM_FP16};

static sl_status call_same(sl_nccl *nccl, uint32_t rank, char *memory)
{
    (void)rank;
    for (int i = 0; i < 5; i++)
        SL_TRY(sl_nccl_all_reduce(nccl, fp32, 1000, memory));
    return SL_OK;
}

static sl_status differ_in_count(sl_nccl *nccl, uint32_t rank, char *memory)
{
    return sl_nccl_all_reduce(nccl, fp32, 1000 + rank, memory);
}

static sl_status differ_in_type(sl_nccl *nccl, uint32_t rank, char *memory)
{
    return sl_nccl_all_reduce(nccl, rank ? bf16 : fp16, 1000, memory);
}

static sl_status differ_in_operation(sl_nccl *nccl, uint32_t rank, char *memory)
{
    return rank ? sl_nccl_all_reduce(nccl, fp32, 1000, memory)
                : sl_nccl_reduce_scatter(nccl, fp32, halves, memory, memory);
}

static sl_status differ_in_order(sl_nccl *nccl, uint32_t rank, char *memory)
{
    for (uint32_t i = 0; i < 2; i++)
        SL_TRY(sl_nccl_all_reduce(nccl, fp32, i == rank ? 1000 : 999, memory));
    return SL_OK;
}

static sl_status exchange_other_bytes(sl_nccl *nccl, uint32_t rank, char *memory)
{
    SL_TRY(sl_nccl_exchange(nccl, !rank, 512, memory, memory + 512));
    return sl_nccl_exchange(nccl, !rank, 512 + rank, memory, memory + 1024);
}

static sl_status give_on_both_sides(sl_nccl *nccl, uint32_t rank, char *memory)
{
    return sl_nccl_exchange(nccl, !rank, 512, memory, NULL);
}

static sl_status exchange_with_nobody(sl_nccl *nccl, uint32_t rank, char *memory)
{
    return sl_nccl_exchange(nccl, 2 + rank, 512, memory, NULL);
}

/* LAST_KERNEL: of two ranks, one to meet and two for each sum of call_same. */
static const trouble troubles[] = {
    {{0}, differ_in_count, "all_reduce of 1000 elements, type 0, as call 1", SL_ERROR_INTERNAL},
    {{0}, differ_in_type, "ranks call different things in", SL_ERROR_INTERNAL},
    {{0}, differ_in_operation, "ranks call different things in", SL_ERROR_INTERNAL},
    {{0}, differ_in_order, "ranks call different things in", SL_ERROR_INTERNAL},
    {{0}, exchange_other_bytes, "exchange of 51", SL_ERROR_INTERNAL},
    {{0}, give_on_both_sides, "exchange of 512 elements", SL_ERROR_INTERNAL},
    {{0}, exchange_with_nobody, "of 2 cannot exchange with ", SL_ERROR_INTERNAL}, /* who is first */
    {{.fail_kernel = 1}, NULL, "remote process exited", SL_ERROR_SYSTEM},
    {{.fail_kernel = 7}, call_same, "remote process exited", SL_ERROR_SYSTEM},
    {{.hang_kernel = 8},
     call_same,
     "what the GPU exchanges by NCCL did not end within",
     SL_ERROR_RANK},
    {{.hang_kernel = LAST_KERNEL, .delay_us = 2000}, /* nothing is queued behind it */
     call_same,
     "what the GPU exchanges by NCCL did not end within",
     SL_ERROR_RANK},
    {{.refuse_init = 2}, NULL, "unhandled system error", SL_ERROR_SYSTEM},
};

static void run_trouble(sl_comm *world, const void *argument, answer *out)
{
    const trouble *it = argument;
    rank_device device;
    sl_nccl *nccl = NULL;
    const uint32_t rank = sl_comm_rank(world);
    if (!open_rank(rank, &device)) {
        complain(out, "no device: %s", sl_status_message());
        return;
    }
    sl_status status = open_nccl(world, &device, it->how.hang_kernel ? 0.2 : 20, &nccl);
    if (status == SL_OK && it->call)
        status = it->call(nccl, rank, device.memory);
    if (nccl) /* which goes on where the communicator is aborted */
        (void)ops->stream_finish(device.stream);
    if (status == SL_OK && nccl)
        status = sl_nccl_poll(nccl);
    snprintf(out->text, sizeof out->text, "%d: %s", status,
             status == SL_OK ? "" : sl_status_message());
    if (status == SL_OK)
        complain(out, "nothing was noticed");
    if (nccl && sl_nccl_all_reduce(nccl, fp32, 10, device.memory) == SL_OK)
        complain(out, "goes on after a failure");
    sl_nccl_close(nccl);
    close_rank(&device);
}

static void expect_trouble(const trouble *it, const answer *answers)
{
    char status[16];
    bool is_said = false;
    snprintf(status, sizeof status, "%d: ", it->status);
    for (int rank = 0; rank < 2; rank++) {
        if (answers[rank].is_wrong)
            fail_msg("\"%s\": rank %d: %s", it->says, rank, answers[rank].text);
        is_said |= strstr(answers[rank].text, it->says) &&
                   strncmp(answers[rank].text, status, strlen(status)) == 0;
    }
    if (!is_said)
        fail_msg("\"%s\" is in neither \"%s\" nor \"%s\"", it->says, answers[0].text,
                 answers[1].text);
}

static void devices_when_something_goes_wrong_end_together_and_say_why(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof troubles / sizeof troubles[0]; i++) {
        start_over(&troubles[i].how);
        answer *answers = share_answers();
        run_threads(2, run_trouble, &troubles[i], answers);
        expect_trouble(&troubles[i], answers);
        munmap(answers, RANKS_MAX * sizeof *answers);
        assert_int_equal(nccl_standin_open_count(), 0);
        check_nothing_left();
    }
}

/* Another rank ended the run between two calls. */
static void close_after_end(sl_comm *world, const void *argument, answer *out)
{
    rank_device device;
    sl_nccl *nccl;
    (void)argument;
    if (!open_rank(sl_comm_rank(world), &device) || open_nccl(world, &device, 20, &nccl) != SL_OK) {
        complain(out, "%s", sl_status_message());
        return;
    }
    (void)sl_comm_barrier(world);
    sl_comm_abort(world, "the disk is full");
    sl_nccl_close(nccl);
    close_rank(&device);
}

static void close_when_the_run_has_ended_leaves_nothing_open(void **state)
{
    (void)state;
    start_over(&(nccl_standin){.seed = 9});
    run_right(&carriers[0], 2, close_after_end, NULL);
    assert_int_equal(nccl_standin_open_count(), 0);
}

static void abort_when_it_hangs_is_left_to_itself(void **state)
{
    (void)state;
    if (!getenv("SL_TEST_FULL"))
        skip_because("takes ten seconds: SL_TEST_FULL=1");
    const trouble it = {
        {.fail_kernel = 7, .hangs_in_abort = true}, call_same, "remote process", SL_ERROR_SYSTEM};
    start_over(&it.how);
    answer *answers = share_answers();
    double start = now_s();
    run_threads(2, run_trouble, &it, answers);
    expect_trouble(&it, answers);
    assert_true(now_s() - start < 9);
    sleep_ms(6000); /* both have let go by then */
    assert_int_equal(nccl_standin_open_count(), 0);
    munmap(answers, RANKS_MAX * sizeof *answers);
}

/* ---- the stand-in itself ---- */

/* Asks until it is neither in progress nor, if `fails`, well. */
static int await_answer(void *comm, bool fails)
{
    int error = SL_NCCL_IN_PROGRESS;
    for (int i = 0; i < 2000; i++) {
        nccl_standin_calls()->get_async_error(comm, &error);
        if (error != SL_NCCL_IN_PROGRESS && (!fails || error != SL_NCCL_SUCCESS))
            break;
        sleep_ms(1);
    }
    return error;
}

static void *open_raw(sl_comm *world, int rank)
{
    const sl_nccl_calls *calls = nccl_standin_calls();
    sl_nccl_config config = {sizeof config, 0xcafebeef, 21400, 0};
    sl_nccl_id id;
    void *comm = NULL;
    if (rank == 0)
        calls->get_unique_id(&id);
    (void)sl_comm_broadcast(world, 0, sizeof id, &id);
    calls->init(&comm, 2, id, rank, &config);
    (void)await_answer(comm, false);
    return comm;
}

/* Rank 0 sends what rank 1 does not await. */
static void send_other_bytes(sl_comm *world, const void *argument, answer *out)
{
    const sl_nccl_calls *calls = nccl_standin_calls();
    const int rank = (int)sl_comm_rank(world);
    rank_device device;
    (void)argument;
    if (!open_rank((uint32_t)rank, &device)) {
        complain(out, "%s", sl_status_message());
        return;
    }
    void *comm = open_raw(world, rank), *stream = ops->stream_native(device.stream);
    calls->group_start();
    if (rank == 0)
        calls->send(device.memory, 100, SL_NCCL_INT8, 1, comm, stream);
    else
        calls->receive(device.memory, 99, SL_NCCL_INT8, 0, comm, stream);
    calls->group_end();
    int error = await_answer(comm, true);
    if (error != 5)
        complain(out, "100 bytes sent for 99 give %d", error);
    (void)sl_comm_barrier(world);
    calls->abort(comm);
    close_rank(&device);
}

static void standin_when_ranks_send_other_than_they_receive_refuses(void **state)
{
    (void)state;
    start_over(&(nccl_standin){.seed = 3});
    run_right(&carriers[0], 2, send_other_bytes, NULL);
    assert_int_equal(nccl_standin_open_count(), 0);
}

static void library_when_it_is_missing_is_named(void **state)
{
    (void)state;
    nccl_standin_reset(&(nccl_standin){.is_absent = true});
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library) {
        dlclose(library);
        skip_because("NCCL is installed, and would run over the stand-in of CUDA");
    }
    sl_comm *ends[2];
    sl_nccl *nccl;
    assert_int_equal(sl_comm_threads_open(2, ends), SL_OK);
    const sl_nccl_options options = {.host = ends[0], .queue = {.scratch_bytes = SCRATCH_BYTES}};
    assert_int_equal(sl_nccl_open(&options, &nccl), SL_ERROR_SYSTEM);
    assert_non_null(strstr(sl_status_message(), "install libnccl2"));
    sl_comm_close(ends[1]);
    sl_comm_close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(standin_when_ranks_send_other_than_they_receive_refuses,
                                        reset, check_end),
        cmocka_unit_test_setup_teardown(sums_when_made_by_devices_have_the_bits_of_hosts, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(devices_when_something_goes_wrong_end_together_and_say_why,
                                        reset, check_end),
        cmocka_unit_test_setup_teardown(close_when_the_run_has_ended_leaves_nothing_open, reset,
                                        check_end),
        cmocka_unit_test_setup_teardown(abort_when_it_hangs_is_left_to_itself, reset, check_end),
        cmocka_unit_test_setup_teardown(library_when_it_is_missing_is_named, reset, check_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
