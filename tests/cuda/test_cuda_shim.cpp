/* What could be wrong in the shim that runs kernels on the processor: a mistake of a kernel that it
 * hides (a barrier left out, one that not all threads reach, a lane not in its mask, an index past
 * the end of shared memory), a warp function that is not CUDA's, or a launch that hangs or that a
 * GPU would refuse. Each mistake is made here on purpose and must be seen; what is right must give
 * the right numbers in every order of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern "C" {
#include <cmocka.h>
}

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/typed.cuh"
#include "skip.h"
#include "standin.h"

typedef struct thread_order {
    sl_shim_order order;
    uint64_t seed;
} thread_order;

static const thread_order ORDERS[] = {
    {SL_SHIM_IN_ORDER, 0}, {SL_SHIM_REVERSED, 0}, {SL_SHIM_SHUFFLED, 1}, {SL_SHIM_SHUFFLED, 2}};
enum { ORDER_COUNT = 4, THREADS = 128 };

static const sl_kernel_call CALL = {};

/* ---- what is right ---- */

static __global__ void reverse_block(const int *x, int *y)
{
    __shared__ int held[THREADS];
    held[threadIdx.x] = x[blockIdx.x * THREADS + threadIdx.x];
    __syncthreads();
    y[blockIdx.x * THREADS + threadIdx.x] = held[THREADS - 1 - threadIdx.x];
}

static void barrier_when_there_orders_shared_memory(void **)
{
    enum { BLOCKS = 5 };
    int x[BLOCKS * THREADS], y[BLOCKS * THREADS];
    for (int i = 0; i < BLOCKS * THREADS; i++)
        x[i] = i * 7;
    for (const thread_order &o : ORDERS) {
        sl_shim_choose_order(o.order, o.seed);
        memset(y, 0, sizeof y);
        assert_int_equal(SL_LAUNCH(&CALL, BLOCKS, THREADS, 0, reverse_block, x, y), SL_OK);
        for (int i = 0; i < BLOCKS * THREADS; i++)
            assert_int_equal(y[i], x[i / THREADS * THREADS + THREADS - 1 - i % THREADS]);
    }
}

static __global__ void use_warp(int *out)
{
    const int lane = (int)(threadIdx.x % 32);
    int *mine = out + threadIdx.x * 10;
    mine[0] = __shfl_sync(SL_EVERY_LANE, lane, 5);
    mine[1] = __shfl_sync(SL_EVERY_LANE, lane, 3, 8);
    mine[2] = __shfl_xor_sync(SL_EVERY_LANE, lane, 9);
    mine[3] = __shfl_up_sync(SL_EVERY_LANE, lane, 3);
    mine[4] = __shfl_down_sync(SL_EVERY_LANE, lane, 3, 16);
    mine[5] = (int)__ballot_sync(SL_EVERY_LANE, lane % 3 == 0);
    mine[6] = __any_sync(SL_EVERY_LANE, lane == 31);
    mine[7] = __all_sync(SL_EVERY_LANE, lane < 31);
    mine[8] = -1;
    if (lane < 16)
        mine[8] = __shfl_xor_sync(0x0000ffffu, lane, 1);
    mine[9] = __syncthreads_count(threadIdx.x % 2 == 0);
}

static void warp_functions_when_called_are_those_of_cuda(void **)
{
    static int out[THREADS * 10];
    int thirds = 0;
    for (int lane = 0; lane < 32; lane += 3)
        thirds |= 1 << lane;
    for (const thread_order &o : ORDERS) {
        sl_shim_choose_order(o.order, o.seed);
        assert_int_equal(SL_LAUNCH(&CALL, 1, THREADS, 0, use_warp, out), SL_OK);
        for (int i = 0; i < THREADS; i++) {
            const int lane = i % 32, *mine = out + i * 10;
            assert_int_equal(mine[0], 5);
            assert_int_equal(mine[1], lane / 8 * 8 + 3);
            assert_int_equal(mine[2], lane ^ 9);
            assert_int_equal(mine[3], lane < 3 ? lane : lane - 3);
            assert_int_equal(mine[4], lane % 16 + 3 < 16 ? lane + 3 : lane);
            assert_int_equal(mine[5], thirds);
            assert_true(mine[6] == 1 && mine[7] == 0);
            assert_int_equal(mine[8], lane < 16 ? lane ^ 1 : -1);
            assert_int_equal(mine[9], THREADS / 2);
        }
    }
}

static __global__ void add_everything(const float *x, unsigned long long *count, float *sums)
{
    __shared__ float scratch[THREADS / SL_WARP];
    const float sum = sl_block_sum<THREADS>(x[blockIdx.x * blockDim.x + threadIdx.x], scratch);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
    atomicAdd(count, (unsigned long long)threadIdx.x);
}

static void sums_when_reduced_are_the_same_in_every_order(void **)
{
    enum { BLOCKS = 7 };
    float x[BLOCKS * THREADS], sums[ORDER_COUNT][BLOCKS];
    for (int i = 0; i < BLOCKS * THREADS; i++)
        x[i] = 1.0f / (float)(i + 3);
    for (int i = 0; i < ORDER_COUNT; i++) {
        unsigned long long count = 0;
        sl_shim_choose_order(ORDERS[i].order, ORDERS[i].seed);
        assert_int_equal(SL_LAUNCH(&CALL, BLOCKS, THREADS, 0, add_everything, x, &count, sums[i]),
                         SL_OK);
        assert_int_equal(count, BLOCKS * THREADS * (THREADS - 1) / 2);
        assert_memory_equal(sums[i], sums[0], sizeof sums[0]);
    }
}

static __global__ void write_index(uint32_t *out)
{
    const uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    atomicAdd(&out[block * (blockDim.x * blockDim.y * blockDim.z) + thread], 1u);
}

static void grid_when_run_has_every_thread_once(void **)
{
    const dim3 grids[] = {dim3(1), dim3(2, 3, 5), dim3(64), dim3(1, 9)};
    const dim3 blocks[] = {dim3(32), dim3(4, 8, 2), dim3(1), dim3(1024)};
    for (int i = 0; i < 4; i++)
        for (const thread_order &o : ORDERS) {
            const uint32_t count =
                grids[i].x * grids[i].y * grids[i].z * blocks[i].x * blocks[i].y * blocks[i].z;
            uint32_t *out = (uint32_t *)calloc(count, sizeof *out);
            sl_shim_choose_order(o.order, o.seed);
            assert_int_equal(SL_LAUNCH(&CALL, grids[i], blocks[i], 0, write_index, out), SL_OK);
            for (uint32_t j = 0; j < count; j++)
                assert_int_equal(out[j], 1);
            free(out);
        }
}

static __global__ void read_rubbish(uint32_t *out)
{
    __shared__ uint32_t held[THREADS];
    SL_DYNAMIC_SHARED(uint32_t, dynamic);
    out[(blockIdx.x * THREADS + threadIdx.x) * 2] = held[threadIdx.x];
    out[(blockIdx.x * THREADS + threadIdx.x) * 2 + 1] = dynamic[threadIdx.x];
    held[threadIdx.x] = dynamic[threadIdx.x] = 1;
}

static void shared_memory_when_a_block_starts_is_rubbish(void **)
{
    static uint32_t out[3 * THREADS * 2];
    assert_int_equal(SL_LAUNCH(&CALL, 3, THREADS, THREADS * 4, read_rubbish, out), SL_OK);
    for (int i = 0; i < 3 * THREADS * 2; i++)
        assert_int_equal(out[i], 0xCDCDCDCD);
}

/* ---- mistakes ---- */

static __global__ void forget_barrier(const int *x, int *y)
{
    __shared__ int held[THREADS];
    held[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = held[THREADS - 1 - threadIdx.x];
}

/* Half of the pairs come out wrong in order; in every order some do. */
static void barrier_when_left_out_changes_results(void **)
{
    int x[THREADS], y[THREADS];
    for (int i = 0; i < THREADS; i++)
        x[i] = i;
    for (const thread_order &o : ORDERS) {
        int wrong = 0;
        sl_shim_choose_order(o.order, o.seed);
        assert_int_equal(SL_LAUNCH(&CALL, 1, THREADS, 0, forget_barrier, x, y), SL_OK);
        for (int i = 0; i < THREADS; i++)
            wrong += y[i] != THREADS - 1 - i;
        assert_true(wrong >= THREADS / 4);
    }
}

static __global__ void forget_second_barrier(int *y)
{
    __shared__ int held[THREADS];
    held[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    int sum = held[(threadIdx.x + 1) % THREADS];
    held[threadIdx.x] = 1000; /* while the neighbour may not have read yet */
    __syncthreads();
    y[threadIdx.x] = sum;
}

/* In order every thread reads before its neighbour writes, but for the last. */
static void order_when_shuffled_shows_more_than_one_order(void **)
{
    int y[THREADS], wrong[ORDER_COUNT];
    for (int i = 0; i < ORDER_COUNT; i++) {
        sl_shim_choose_order(ORDERS[i].order, ORDERS[i].seed);
        assert_int_equal(SL_LAUNCH(&CALL, 1, THREADS, 0, forget_second_barrier, y), SL_OK);
        wrong[i] = 0;
        for (int j = 0; j < THREADS; j++)
            wrong[i] += y[j] == 1000;
    }
    assert_int_equal(wrong[0], 1);
    assert_int_equal(wrong[1], THREADS - 1);
    assert_true(wrong[2] > THREADS / 4 && wrong[2] < THREADS * 3 / 4);
    assert_true(wrong[3] > THREADS / 4 && wrong[3] < THREADS * 3 / 4);
}

static __global__ void hurry_ahead(int *y)
{
    __shared__ int held[THREADS / SL_WARP];
    const int warp = (int)threadIdx.x / SL_WARP;
    int sum = (int)threadIdx.x;
    for (int i = 0; i < (warp == 0 ? 20 : 1); i++)
        sum += __shfl_xor_sync(SL_EVERY_LANE, sum, 1);
    held[warp] = 1;
    y[threadIdx.x] = held[(warp + 1) % (THREADS / SL_WARP)]; /* no barrier between */
}

/* A warp with little to do may be far ahead of others, or far behind. */
static void warps_when_uneven_still_run_apart(void **)
{
    for (const thread_order &o : ORDERS) {
        int y[THREADS], wrong = 0;
        sl_shim_choose_order(o.order, o.seed);
        assert_int_equal(SL_LAUNCH(&CALL, 1, THREADS, 0, hurry_ahead, y), SL_OK);
        for (int i = 0; i < SL_WARP; i++)
            wrong += y[i] != 1;
        if (o.order == SL_SHIM_IN_ORDER)
            assert_int_equal(wrong, SL_WARP);
        if (o.order == SL_SHIM_REVERSED)
            assert_int_equal(wrong, 0);
    }
}

typedef enum mistake {
    LEAVE_BEFORE_BARRIER,
    WAIT_ELSEWHERE,
    SHUFFLE_WITH_THE_DEAD,
    SHUFFLE_DURING_BARRIER,
    NOT_IN_OWN_MASK,
    SOURCE_NOT_IN_MASK,
    OTHER_MASK,
    NARROWER_MASK
} mistake;

static __global__ void err(int kind)
{
    const int lane = (int)threadIdx.x;
    if (kind == LEAVE_BEFORE_BARRIER && lane == 7)
        return;
    if (kind == WAIT_ELSEWHERE && lane == 7)
        __syncthreads();
    if (kind == SHUFFLE_WITH_THE_DEAD && lane == 7)
        return;
    if (kind == SHUFFLE_WITH_THE_DEAD || (kind == SHUFFLE_DURING_BARRIER && lane != 7))
        __shfl_sync(SL_EVERY_LANE, lane, 0);
    if (kind == NOT_IN_OWN_MASK)
        __shfl_sync(0xffffff7fu, lane, 0);
    if (kind == SOURCE_NOT_IN_MASK && lane < 8)
        __shfl_sync(0x000000ffu, lane, 9);
    if (kind == OTHER_MASK)
        __syncwarp(lane == 7 ? 0x00000080u : lane == 8 ? 0x00000180u : 0xfffffe7fu);
    if (kind == NARROWER_MASK)
        __syncwarp(lane == 0 ? 0x00000003u : SL_EVERY_LANE);
    __syncthreads();
}

/* Each must fail at once, in every order, and say in which thread and for whom it waits. */
static void mistakes_when_made_are_reported(void **)
{
    static const struct {
        int kind;
        const char *says[3];
    } cases[] = {
        {LEAVE_BEFORE_BARRIER, {"waits in __syncthreads", "thread (7,0,0), which has ended"}},
        {WAIT_ELSEWHERE, {"while thread (0,0,0) waits in __syncthreads", "thread (7,0,0)"}},
        {SHUFFLE_WITH_THE_DEAD, {"__shfl_sync", "thread (7,0,0), which has ended"}},
        {SHUFFLE_DURING_BARRIER, {"__shfl_sync", "thread (7,0,0), which waits in __syncthreads"}},
        {NOT_IN_OWN_MASK, {"thread (7,0,0): is not in the mask ffffff7f", "__shfl_sync"}},
        {SOURCE_NOT_IN_MASK, {"shuffles from lane 9, which is not in the mask 000000ff"}},
        {OTHER_MASK, {"__syncwarp", "mask 00000180", "thread (7,0,0), which waits in"}},
        {NARROWER_MASK, {"__syncwarp", ", mask "}},
    };
    for (const auto &c : cases)
        for (const thread_order &o : ORDERS) {
            sl_shim_choose_order(o.order, o.seed);
            assert_int_equal(SL_LAUNCH(&CALL, 1, 32, 0, err, c.kind), SL_ERROR_SYSTEM);
            assert_non_null(strstr(sl_status_message(), "err, block (0,0,0), thread ("));
            for (int i = 0; i < 3 && c.says[i] != NULL; i++)
                if (strstr(sl_status_message(), c.says[i]) == NULL)
                    fail_msg("mistake %d says: %s", c.kind, sl_status_message());
            /* And the next launch is none the worse. */
            int x[THREADS] = {0}, y[THREADS];
            assert_int_equal(SL_LAUNCH(&CALL, 1, THREADS, 0, reverse_block, x, y), SL_OK);
        }
}

static __global__ void do_nothing(void)
{
}

static void launches_when_no_gpu_takes_them_are_refused(void **)
{
    const sl_kernel_call *call = &CALL;
    assert_int_equal(SL_LAUNCH(call, 1, 1025, 0, do_nothing), SL_ERROR_SYSTEM);
    assert_non_null(strstr(sl_status_message(), "do_nothing: a block of 1025 x 1 x 1"));
    assert_int_equal(SL_LAUNCH(call, 1, dim3(64, 17), 0, do_nothing), SL_ERROR_SYSTEM);
    assert_int_equal(SL_LAUNCH(call, 1, 0, 0, do_nothing), SL_ERROR_SYSTEM);
    assert_int_equal(SL_LAUNCH(call, 1, dim3(1, 1, 65), 0, do_nothing), SL_ERROR_SYSTEM);
    assert_int_equal(SL_LAUNCH(call, 0, 32, 0, do_nothing), SL_ERROR_SYSTEM);
    assert_int_equal(SL_LAUNCH(call, 0x80000000u, 32, 0, do_nothing), SL_ERROR_SYSTEM);
    assert_int_equal(SL_LAUNCH(call, dim3(1, 65536), 32, 0, do_nothing), SL_ERROR_SYSTEM);
    assert_int_equal(SL_LAUNCH(call, 1, 32, (48 << 10) + 1, do_nothing), SL_ERROR_SYSTEM);
    cudaFuncSetAttribute(do_nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20);
    assert_int_equal(SL_LAUNCH(call, 1, 32, 227 << 10, do_nothing), SL_OK);
    assert_int_equal(SL_LAUNCH(call, 1, 32, (227 << 10) + 1, do_nothing), SL_ERROR_SYSTEM);
    assert_int_equal(SL_LAUNCH(call, dim3(1, 2, 3), dim3(16, 16, 4), 48 << 10, do_nothing), SL_OK);
}

/* ---- streams ---- */

/* Arguments are those of the launch, whatever becomes of the variables they came from. */
static void launch_when_in_a_stream_keeps_its_arguments(void **)
{
    cudaStream_t stream;
    int x[THREADS], y[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        x[i] = i;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    {
        sl_kernel_call call = {};
        const int *from = x;
        call.stream = stream;
        assert_int_equal(SL_LAUNCH(&call, 1, THREADS, 0, reverse_block, from, y), SL_OK);
        from = NULL;
        call.stream = NULL;
    }
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(y[i], THREADS - 1 - i);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
}

static void mistake_when_in_a_stream_breaks_the_context(void **)
{
    cudaStream_t stream;
    sl_kernel_call call = {};
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    call.stream = stream;
    assert_int_equal(SL_LAUNCH(&call, 1, 32, 0, err, LEAVE_BEFORE_BARRIER), SL_OK);
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    assert_int_equal(SL_LAUNCH(&call, 1, 32, 0, do_nothing), SL_ERROR_SYSTEM);
    assert_non_null(strstr(sl_status_message(), "do_nothing"));
    cudaStreamDestroy(stream);
    const standin_machine machine = standin_default();
    standin_reset(&machine);
}

/* ---- past the end ---- */

static __global__ void read_at(const int *x, int *y, int shared_index, int dynamic_index)
{
    __shared__ int held[THREADS];
    SL_DYNAMIC_SHARED(int, dynamic);
    held[threadIdx.x] = dynamic[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] =
        held[threadIdx.x + (uint32_t)shared_index] + dynamic[threadIdx.x + (uint32_t)dynamic_index];
}

/* A process of its own, for a sanitizer ends it, and one that has no streams yet: their threads do
 * not survive a fork. */
static int be_child(char **numbers)
{
    const int count = (int)strtol(numbers[2], NULL, 10);
    int *x = (int *)calloc((size_t)count, sizeof *x), y[THREADS];
    if (freopen("/dev/null", "w", stderr) == NULL)
        return 2;
    const sl_status status =
        SL_LAUNCH(&CALL, 1, THREADS, THREADS * 4, read_at, x, y, (int)strtol(numbers[0], NULL, 10),
                  (int)strtol(numbers[1], NULL, 10));
    free(x);
    return status == SL_OK ? 0 : 3;
}

/* Exit status of a child that launches read_at with these offsets over `count` elements. */
static int run_child(const char *shared_index, const char *dynamic_index, const char *count)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "test_cuda_shim", shared_index, dynamic_index, count, (char *)NULL);
        _exit(2);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void access_when_past_the_end_is_seen_by_a_sanitizer(void **)
{
    assert_int_equal(run_child("0", "0", "128"), 0);
#ifdef __SANITIZE_ADDRESS__
    assert_int_not_equal(run_child("1", "0", "128"), 0);
    assert_int_not_equal(run_child("0", "1", "128"), 0);
    assert_int_not_equal(run_child("0", "0", "127"), 0);
#else
    skip_because("the address sanitizer looks for this");
#endif
}

/* ---- speed ---- */

static __global__ void switch_often(float *out)
{
    float value = (float)threadIdx.x;
    for (int i = 0; i < 22; i++)
        value += __shfl_xor_sync(SL_EVERY_LANE, value, 1);
    out[threadIdx.x] = value;
}

/* Says how long 65,536 threads with 22 shuffles each took; the bound is for a stuck machine. */
static void switches_when_many_are_fast(void **)
{
    float out[256];
    struct timespec start, end;
    sl_shim_choose_order(SL_SHIM_IN_ORDER, 0);
    const uint64_t before = sl_shim_turn_count();
    clock_gettime(CLOCK_MONOTONIC, &start);
    assert_int_equal(SL_LAUNCH(&CALL, 256, 256, 0, switch_often, out), SL_OK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double seconds =
        (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    print_message("65536 threads, %llu turns: %.0f ms\n",
                  (unsigned long long)(sl_shim_turn_count() - before), seconds * 1e3);
    assert_true(seconds < 30);
}

int main(int argc, char **argv)
{
    if (argc == 4)
        return be_child(argv + 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barrier_when_there_orders_shared_memory),
        cmocka_unit_test(warp_functions_when_called_are_those_of_cuda),
        cmocka_unit_test(sums_when_reduced_are_the_same_in_every_order),
        cmocka_unit_test(grid_when_run_has_every_thread_once),
        cmocka_unit_test(shared_memory_when_a_block_starts_is_rubbish),
        cmocka_unit_test(barrier_when_left_out_changes_results),
        cmocka_unit_test(order_when_shuffled_shows_more_than_one_order),
        cmocka_unit_test(warps_when_uneven_still_run_apart),
        cmocka_unit_test(mistakes_when_made_are_reported),
        cmocka_unit_test(launches_when_no_gpu_takes_them_are_refused),
        cmocka_unit_test(launch_when_in_a_stream_keeps_its_arguments),
        cmocka_unit_test(mistake_when_in_a_stream_breaks_the_context),
        cmocka_unit_test(access_when_past_the_end_is_seen_by_a_sanitizer),
        cmocka_unit_test(switches_when_many_are_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
