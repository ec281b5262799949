/* How fast the disk store is, one lane a thread: reads, writes, or both at once, over a store that
 * was filled before, on random data. Prints one line of JSON: bytes a second of each lane,
 * processor seconds of the whole process a GB, the rate of the checksum alone on one thread, and
 * how the store describes itself. benchmarks/fio_pair.py runs it beside fio.
 *
 * store_bench DIRECTORY read|write|mixed DEPTH STORE_MIB CALL_MIB SECONDS
 *             [uring|threads [huge|small]]: the memory's pages, huge if not said */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/hash.h"
#include "bench/disk.h"
#include "offload/transport.h"

enum { MIB = 1 << 20, HASH_ROUNDS = 4 };

static void need(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "store_bench: %s: %s\n", what, sl_status_message());
    exit(1);
}

/* Of the calling thread alone, so that other work on the machine does not count. */
static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Bytes a second of the checksum, piece by piece over memory that no cache holds. */
static double hash_rate(const uint8_t *data, uint64_t bytes)
{
    double best = 0;
    uint64_t sum = 0;
    for (int round = 0; round < HASH_ROUNDS; round++) {
        double start = thread_seconds();
        for (uint64_t at = 0; at + MIB <= bytes; at += MIB)
            sum ^= sl_hash_64(data + at, MIB);
        double rate = (double)(bytes / MIB * MIB) / (thread_seconds() - start);
        best = rate > best ? rate : best;
    }
    return sum == 1 ? 0 : best;
}

static double find_rate(const sl_disk_pass *pass)
{
    return pass->total_seconds > 0 ? (double)pass->moved_bytes / pass->total_seconds : 0;
}

/* Half of the store for each lane, so that calls of a mixed run never overlap. */
static void run_lanes(sl_disk_pass lanes[SL_STORE_LANE_COUNT], const char *mode)
{
    if (strcmp(mode, "mixed") == 0)
        need(sl_disk_run(lanes, SL_STORE_LANE_COUNT) == SL_OK, "lanes");
    else
        need(sl_disk_run(&lanes[strcmp(mode, "write") == 0 ? SL_STORE_WRITE : SL_STORE_READ], 1) ==
                 SL_OK,
             "lane");
}

int main(int argument_count, char **arguments)
{
    need(argument_count >= 7,
         "DIRECTORY MODE DEPTH STORE_MIB CALL_MIB SECONDS [TRANSPORT [PAGES]]");
    const char *directories[] = {arguments[1]}, *mode = arguments[2];
    uint64_t call = strtoull(arguments[5], NULL, 10) * MIB;
    need(call > 0, "CALL_MIB");
    uint64_t half = strtoull(arguments[4], NULL, 10) * MIB / (2 * call) * call;
    uint8_t *data =
        mmap(NULL, 2 * call, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(data != MAP_FAILED, "memory");
    bool is_small = argument_count > 8 && strcmp(arguments[8], "small") == 0;
    madvise(data, 2 * call, is_small ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    sl_disk_fill(data, 2 * call, 1);
    sl_store_options options = {.directories = directories,
                                .directory_count = 1,
                                .bytes = 2 * half,
                                .buffer = data,
                                .buffer_bytes = 2 * call,
                                .depth = (uint32_t)strtoul(arguments[3], NULL, 10)};
    if (argument_count > 7)
        options.transport =
            strcmp(arguments[7], "uring") == 0 ? &sl_transport_uring : &sl_transport_threads;
    sl_store *store;
    need(sl_store_open(&options, &store) == SL_OK, "open");
    for (uint64_t at = 0; at < 2 * half; at += call)
        need(sl_store_write(store, at, data, call) == SL_OK, "fill");
    sl_disk_pass lanes[SL_STORE_LANE_COUNT];
    for (int lane = 0; lane < SL_STORE_LANE_COUNT; lane++)
        lanes[lane] = (sl_disk_pass){.store = store,
                                     .lane = (sl_store_lane)lane,
                                     .buffer = data + (uint64_t)lane * call,
                                     .first_byte = lane == SL_STORE_WRITE ? 0 : half,
                                     .range_bytes = half,
                                     .call_bytes = call,
                                     .least_seconds = strtod(arguments[6], NULL)};
    run_lanes(lanes, mode);
    const sl_disk_pass *read = &lanes[SL_STORE_READ], *write = &lanes[SL_STORE_WRITE];
    double spent = read->cpu_seconds > write->cpu_seconds ? read->cpu_seconds : write->cpu_seconds;
    double moved = (double)(read->moved_bytes + write->moved_bytes);
    printf("{\"mode\": \"%s\", \"depth\": %u, \"read_bytes_per_s\": %.0f, "
           "\"write_bytes_per_s\": %.0f, \"processor_s_per_gb\": %.4f, "
           "\"checksum_bytes_per_s\": %.0f, \"description\": \"%s\"}\n",
           mode, options.depth, find_rate(read), find_rate(write), spent / (moved * 1e-9),
           hash_rate(data, 2 * call), sl_store_description(store));
    sl_store_close(store);
    return 0;
}
