/* Small programs over streams, events, words, queues, ops and the disk: each kind of order that can
 * be missing, with and without what makes it. Over BYTES of the device and of locked memory, on
 * streams a, b and c; what a program touches it says itself, unless copies or ops do. */
#ifndef SL_TESTS_CUDA_ORDER_KINDS_H
#define SL_TESTS_CUDA_ORDER_KINDS_H

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "kernels/kernels.h"
#include "offload/store.h"
#include "scratch_dir.h"
#include "standin_case.h"
#include "stream_order.h"

enum { BYTES = 1 << 16, HALF = BYTES / 2 };

/* ---- what the programs are made of ---- */

static cudaStream_t a, b, c;
static cudaEvent_t first, second;
static unsigned char *memory, *host; /* of the device; locked */
static _Atomic uint32_t *word;

static void need(int error)
{
    assert_int_equal(error, cudaSuccess);
}

static void open_parts(void)
{
    void *words;
    need(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    need(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    need(cudaStreamCreateWithFlags(&c, cudaStreamNonBlocking));
    need(cudaEventCreateWithFlags(&first, cudaEventDisableTiming));
    need(cudaEventCreateWithFlags(&second, cudaEventDisableTiming));
    need(cudaMalloc((void **)&memory, BYTES));
    need(cudaHostAlloc((void **)&host, BYTES, 0));
    need(cudaHostAlloc(&words, 4096, 0));
    word = words;
    atomic_store(word, 0);
    standin_name_stream(a, "a");
    standin_name_stream(b, "b");
    standin_name_stream(c, "c");
}

static void finish(void)
{
    need(cudaStreamSynchronize(a));
    need(cudaStreamSynchronize(b));
    need(cudaStreamSynchronize(c));
}

static void close_parts(void)
{
    finish();
    need(cudaFree(memory));
    need(cudaFreeHost(host));
    need(cudaFreeHost((void *)(uintptr_t)word));
    need(cudaEventDestroy(first));
    need(cudaEventDestroy(second));
    need(cudaStreamDestroy(a));
    need(cudaStreamDestroy(b));
    need(cudaStreamDestroy(c));
}

static void do_nothing(void *argument)
{
    (void)argument;
}

static void launch(cudaStream_t stream, const void *at, uint64_t bytes, bool is_written)
{
    const standin_range range = {at, bytes, is_written, is_written ? "y" : "x"};
    standin_declare("made_up", &range, 1);
    need(standin_queue(stream, "kernel", do_nothing, NULL));
    standin_declare(NULL, NULL, 0);
}

static void write_on(cudaStream_t stream)
{
    launch(stream, memory, HALF, true);
}

static void read_on(cudaStream_t stream)
{
    launch(stream, memory, HALF, false);
}

static void touch_host(bool is_written)
{
    const standin_range range = {host, HALF, is_written, ""};
    standin_touch_on_host("made up", &range, 1);
}

static void wait_for(cudaStream_t stream, cudaEvent_t event)
{
    need(cudaStreamWaitEvent(stream, event, 0));
}

static void copy_on(cudaStream_t stream, void *to, const void *from)
{
    need(cudaMemcpyAsync(to, from, HALF, cudaMemcpyDefault, stream));
}

static void wait_for_word(cudaStream_t stream, uint32_t value)
{
    need((int)cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)word, value,
                                  CU_STREAM_WAIT_VALUE_GEQ));
}

static void write_word(uint32_t value)
{
    standin_write_word((const void *)word, value);
    atomic_store(word, value);
}

/* ---- planted: streams and events ---- */

static void wait_that_is_missing(bool is_planted)
{
    write_on(a);
    need(cudaEventRecord(first, a));
    if (!is_planted)
        wait_for(b, first);
    read_on(b);
}

static void record_that_is_missing(bool is_planted)
{
    write_on(a);
    if (!is_planted)
        need(cudaEventRecord(first, a));
    wait_for(b, first);
    read_on(b);
}

static void wait_for_the_wrong_event(bool is_planted)
{
    write_on(a);
    need(cudaEventRecord(first, a));
    need(cudaEventRecord(second, c));
    wait_for(b, is_planted ? second : first);
    read_on(b);
}

static void wait_before_its_record(bool is_planted)
{
    need(cudaEventRecord(first, a));
    write_on(a);
    if (is_planted)
        wait_for(b, first);
    need(cudaEventRecord(first, a));
    if (!is_planted)
        wait_for(b, first);
    read_on(b);
}

static void record_before_its_work(bool is_planted)
{
    if (is_planted)
        need(cudaEventRecord(first, a));
    write_on(a);
    if (!is_planted)
        need(cudaEventRecord(first, a));
    wait_for(b, first);
    read_on(b);
}

/* An op of two launches. */
static void record_amid_its_work(bool is_planted)
{
    write_on(a);
    if (is_planted)
        need(cudaEventRecord(first, a));
    write_on(a);
    if (!is_planted)
        need(cudaEventRecord(first, a));
    wait_for(b, first);
    read_on(b);
}

static void wait_after_its_work(bool is_planted)
{
    write_on(a);
    need(cudaEventRecord(first, a));
    if (is_planted)
        read_on(b);
    wait_for(b, first);
    if (!is_planted)
        read_on(b);
}

static void overwrite_of_what_is_still_read(bool is_planted)
{
    read_on(a);
    need(cudaEventRecord(first, a));
    if (!is_planted)
        wait_for(b, first);
    write_on(b);
}

static void writes_of_two_streams(bool is_planted)
{
    need(cudaMemsetAsync(memory, 1, BYTES, a));
    need(cudaEventRecord(first, a));
    if (!is_planted)
        wait_for(b, first);
    need(cudaMemsetAsync(memory + HALF, 2, HALF, b));
}

static void overlap_of_one_byte(bool is_planted)
{
    launch(a, memory, HALF + is_planted, true);
    launch(b, memory + HALF, HALF, true);
}

static void record_that_is_not_the_latest(bool is_planted)
{
    write_on(a);
    need(cudaEventRecord(first, a));
    wait_for(b, first);
    launch(a, memory + HALF, HALF, true);
    need(cudaEventRecord(first, a));
    if (!is_planted)
        wait_for(b, first);
    launch(b, memory, BYTES, false);
}

static void chain_that_is_broken(bool is_planted)
{
    write_on(a);
    need(cudaEventRecord(first, a));
    if (is_planted)
        need(cudaEventRecord(second, b));
    wait_for(b, first);
    if (!is_planted)
        need(cudaEventRecord(second, b));
    wait_for(c, second);
    read_on(c);
}

/* ---- planted: streams and threads ---- */

static void read_of_a_copy_that_may_not_be_there(bool is_planted)
{
    copy_on(a, host, memory);
    if (!is_planted)
        need(cudaStreamSynchronize(a));
    touch_host(false);
}

static void write_to_what_is_still_copied(bool is_planted)
{
    copy_on(a, memory, host);
    need(cudaEventRecord(first, a));
    if (!is_planted)
        need(cudaEventSynchronize(first));
    touch_host(true);
}

static void wait_of_the_thread_for_another_stream(bool is_planted)
{
    copy_on(a, host, memory);
    need(cudaStreamSynchronize(is_planted ? b : a));
    touch_host(true);
}

/* It hears no until it waits. */
static void answer_that_is_not_heeded(bool is_planted)
{
    copy_on(a, host, memory);
    need(cudaEventRecord(first, a));
    while (cudaStreamQuery(a) != cudaErrorNotReady) {
    }
    assert_int_equal(cudaEventQuery(first), cudaErrorNotReady);
    (void)cudaGetLastError();
    if (!is_planted)
        need(cudaEventSynchronize(first));
    touch_host(false);
}

static void memory_that_is_freed_in_use(bool is_planted)
{
    void *other;
    need(cudaMalloc(&other, BYTES));
    launch(a, other, BYTES, false);
    if (!is_planted)
        need(cudaStreamSynchronize(a));
    need(cudaFree(other));
}

static void host_memory_that_is_unlocked_in_use(bool is_planted)
{
    void *pages;
    need(cudaHostAlloc(&pages, BYTES, 0));
    copy_on(a, memory, pages);
    need(cudaEventRecord(first, a));
    need(cudaEventSynchronize(first)); /* or the copy would read what is unmapped */
    copy_on(b, memory, pages);
    if (is_planted)
        standin_ignore_edge(STANDIN_EDGE_STREAM_THREAD, 1);
    need(cudaStreamSynchronize(b));
    need(cudaFreeHost(pages));
}

/* ---- planted: words ---- */

/* What the word stands for is written after the stream was given its work. */
static void word_that_is_written_too_early(bool is_planted)
{
    wait_for_word(a, 1);
    copy_on(a, memory, host);
    if (is_planted)
        write_word(1);
    touch_host(true);
    if (!is_planted)
        write_word(1);
}

static void wait_for_too_low_a_value(bool is_planted)
{
    wait_for_word(a, is_planted ? 1 : 2);
    copy_on(a, memory, host);
    write_word(1);
    touch_host(true);
    write_word(2);
}

/* Both values are there when the stream looks; the first lets it go on. */
static void word_that_was_late_by_chance(bool is_planted)
{
    wait_for_word(a, UINT32_MAX);
    copy_on(a, memory, host);
    standin_write_word((const void *)word, UINT32_MAX);
    touch_host(is_planted);
    write_word(3);
}

/* ---- planted: queues ---- */

static sl_status touch_in_queue(void *arguments)
{
    const standin_range *range = arguments;
    standin_touch_on_host("made up", range, 1);
    return SL_OK;
}

static void call_touch(sl_queue *queue, bool is_written)
{
    const standin_range range = {host, HALF, is_written, ""};
    sl_queue_call(queue, 0, touch_in_queue, &range, sizeof range);
}

static sl_queue *open_queue(const char *name)
{
    sl_queue *queue;
    assert_int_equal(sl_queue_open(name, 16, NULL, &queue), SL_OK);
    return queue;
}

static sl_mark *open_mark(void)
{
    sl_mark *mark;
    assert_int_equal(sl_mark_open(&mark), SL_OK);
    sl_mark_publish(mark, (uint32_t *)(uintptr_t)word);
    return mark;
}

static void wait_of_a_queue_that_is_missing(bool is_planted)
{
    sl_queue *one = open_queue("one"), *two = open_queue("two");
    sl_mark *mark = open_mark();
    call_touch(one, true);
    sl_queue_record(one, mark);
    if (!is_planted)
        sl_queue_wait(two, 0, mark);
    call_touch(two, false);
    sl_queue_close(one);
    sl_queue_close(two);
    sl_mark_close(mark);
}

/* The queue's record writes the word. */
static void record_of_a_queue_before_its_call(bool is_planted)
{
    sl_queue *one = open_queue("one");
    sl_mark *mark = open_mark();
    if (is_planted)
        sl_queue_record(one, mark);
    call_touch(one, true);
    if (!is_planted)
        sl_queue_record(one, mark);
    wait_for_word(b, 1);
    copy_on(b, memory, host);
    finish();
    sl_queue_close(one);
    sl_mark_close(mark);
}

static void thread_that_does_not_wait_for_its_queue(bool is_planted)
{
    sl_queue *one = open_queue("one");
    sl_mark *mark = open_mark();
    sl_queue_record(one, mark);
    call_touch(one, true);
    if (is_planted)
        sl_mark_finish(mark);
    else
        assert_int_equal(sl_queue_finish(one), SL_OK);
    touch_host(false);
    sl_queue_close(one);
    sl_mark_close(mark);
}

/* CUDA may read memory that is not locked before it is the stream's turn. */
static void copy_of_memory_that_is_not_locked(bool is_planted)
{
    static unsigned char plain[HALF];
    const standin_range range = {plain, HALF, true, ""};
    sl_queue *one = open_queue("one");
    sl_mark *mark = open_mark();
    sl_queue_call(one, 0, touch_in_queue, &range, sizeof range);
    sl_queue_record(one, mark);
    if (!is_planted)
        sl_mark_finish(mark);
    wait_for_word(a, 1);
    copy_on(a, memory, plain);
    sl_queue_close(one);
    sl_mark_close(mark);
}

/* ---- planted: the disk ---- */

typedef struct disk_call {
    sl_store *store;
    void *data;
} disk_call;

static sl_status write_disk(void *arguments)
{
    const disk_call *call = arguments;
    return sl_store_write(call->store, 0, call->data, HALF);
}

static sl_status read_disk(void *arguments)
{
    const disk_call *call = arguments;
    return sl_store_read(call->store, 0, call->data, HALF);
}

static void read_of_what_is_still_written_to_disk(bool is_planted)
{
    static const char *const here[] = {"."};
    const sl_store_options options = {.directories = here, .directory_count = 1, .bytes = 1 << 20};
    sl_store *store;
    sl_queue *one = open_queue("write"), *two = open_queue("read");
    sl_mark *mark = open_mark();
    assert_int_equal(sl_store_open(&options, &store), SL_OK);
    const disk_call out = {store, host}, in = {store, host + HALF};
    sl_queue_call(one, 0, write_disk, &out, sizeof out);
    sl_queue_record(one, mark);
    if (is_planted)
        standin_ignore_edge(STANDIN_EDGE_MARK, 1); /* the store refuses to read it too early */
    sl_queue_wait(two, 0, mark);
    sl_queue_call(two, 0, read_disk, &in, sizeof in);
    assert_int_equal(sl_queue_finish(two), SL_OK);
    sl_queue_close(one);
    sl_queue_close(two);
    sl_mark_close(mark);
    assert_int_equal(sl_store_close(store), 0);
}

/* ---- planted: ops ---- */

static void add(cudaStream_t stream, void *x, void *y)
{
    static const sl_op_attrs attrs = {.element_count = HALF / 4, .type = SL_TYPE_FP32};
    const sl_kernel_call call = {.attrs = &attrs, .operand = {x, y}, .stream = stream};
    sl_kernel kernel;
    assert_int_equal(sl_kernels_find(sl_kernels_cuda(), SL_OP_ADD, &kernel), SL_OK);
    assert_int_equal(kernel(&call), SL_OK);
}

static void ops_of_two_streams(bool is_planted)
{
    add(a, memory, memory + HALF);
    need(cudaEventRecord(first, a));
    if (!is_planted)
        wait_for(b, first);
    add(b, memory + HALF, memory);
}

static void op_of_the_host_beside_a_copy(bool is_planted)
{
    static const sl_op_attrs attrs = {.element_count = HALF / 4, .type = SL_TYPE_FP32};
    const sl_kernel_call call = {.attrs = &attrs, .operand = {host + HALF, host}};
    const sl_kernel_table *cpu = sl_kernels_cpu();
    sl_workers *workers;
    sl_kernel kernel;
    sl_kernel_call own = call;
    assert_int_equal(sl_workers_open(1, &workers), SL_OK);
    own.workers = workers;
    memset(host, 0, BYTES);
    copy_on(a, memory, host);
    if (!is_planted)
        need(cudaStreamSynchronize(a));
    assert_int_equal(sl_kernels_find(cpu, SL_OP_ADD, &kernel), SL_OK);
    assert_int_equal(kernel(&own), SL_OK);
    sl_workers_close(workers);
}

/* ---- the table ---- */

static const struct {
    const char *name;
    void (*run)(bool is_planted);
    const char *names[2]; /* that the message holds */
} kinds[] = {
#define KIND(name, ...)                                                                            \
    {                                                                                              \
#name, name,                                                                               \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
    KIND(wait_that_is_missing, "b (made_up.x, kernel) reads", "a (made_up.y, kernel) writes"),
    KIND(record_that_is_missing, "b (made_up.x", "a (made_up.y"),
    KIND(wait_for_the_wrong_event, "b (made_up.x", "a (made_up.y"),
    KIND(wait_before_its_record, "b (made_up.x", "a (made_up.y"),
    KIND(record_before_its_work, "b (made_up.x", "a (made_up.y"),
    KIND(record_amid_its_work, "b (made_up.x", "a (made_up.y"),
    KIND(wait_after_its_work, "b (made_up.x", "a (made_up.y"),
    KIND(overwrite_of_what_is_still_read, "b (made_up.y", "a (made_up.x"),
    KIND(writes_of_two_streams, "(cudaMemsetAsync, to) writes 32768 bytes, from byte 32768", ""),
    KIND(overlap_of_one_byte, " 1 bytes, from byte 32768 of", ""),
    KIND(record_that_is_not_the_latest, " 32768 bytes, from byte 32768 of", "b (made_up.x"),
    KIND(chain_that_is_broken, "c (made_up.x", "a (made_up.y"),
    KIND(read_of_a_copy_that_may_not_be_there, "a (cudaMemcpyAsync, to) writes", "(made up) reads"),
    KIND(write_to_what_is_still_copied, "a (cudaMemcpyAsync, from) reads", "(made up) writes"),
    KIND(wait_of_the_thread_for_another_stream, "a (cudaMemcpyAsync, to)", "(made up) writes"),
    KIND(answer_that_is_not_heeded, "a (cudaMemcpyAsync, to)", "(made up) reads"),
    KIND(memory_that_is_freed_in_use, "a (made_up.x", "(cudaFree) writes"),
    KIND(host_memory_that_is_unlocked_in_use, "b (cudaMemcpyAsync, from)", "(cudaFreeHost)"),
    KIND(word_that_is_written_too_early, "a (cudaMemcpyAsync, from)", "(made up) writes"),
    KIND(wait_for_too_low_a_value, "a (cudaMemcpyAsync, from)", "(made up) writes"),
    KIND(word_that_was_late_by_chance, "a (cudaMemcpyAsync, from)", "(made up) writes"),
    KIND(wait_of_a_queue_that_is_missing, "one (made up) writes", "two (made up) reads"),
    KIND(record_of_a_queue_before_its_call, "one (made up) writes", "b (cudaMemcpyAsync, from)"),
    KIND(thread_that_does_not_wait_for_its_queue, "one (made up) writes", "(made up) reads"),
    KIND(copy_of_memory_that_is_not_locked, "one (made up) writes", "(cudaMemcpyAsync, from)"),
    KIND(read_of_what_is_still_written_to_disk, "byte 0 of a disk", "write (writing to disk"),
    KIND(ops_of_two_streams, "(add.y, ", "(add.x, "),
    KIND(op_of_the_host_beside_a_copy, "(add, y) writes", "a (cudaMemcpyAsync, from)"),
#undef KIND
};

#endif
