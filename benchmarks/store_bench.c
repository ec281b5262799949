/* How fast the disk store is, one lane a thread: reads, writes, or both at once, in stretches over
 * a store that was filled before, on random data. Prints one line of JSON: bytes a second of each
 * lane, processor seconds of the whole process a GB, the rate of the checksum alone on one thread,
 * and how the store describes itself. benchmarks/fio_pair.py runs it beside fio.
 *
 * store_bench DIRECTORY read|write|mixed DEPTH STORE_MIB STRETCH_MIB SECONDS [uring|threads] */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "base/hash.h"
#include "offload/store.h"
#include "offload/transport.h"

enum { MIB = 1 << 20, HASH_ROUNDS = 4 };

typedef struct lane {
    sl_store *store;
    sl_status (*move)(struct lane *lane, uint64_t offset);
    char *data; /* a stretch of its own */
    uint64_t store_bytes, stretch_bytes, moved_bytes;
    double seconds_wanted, seconds;
    sl_status status;
} lane;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of the calling thread alone, so that other work on the machine does not count. */
static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void need(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "store_bench: %s: %s\n", what, sl_status_message());
    exit(1);
}

static sl_status read_stretch(lane *self, uint64_t offset)
{
    return sl_store_read(self->store, offset, self->data, self->stretch_bytes);
}

static sl_status write_stretch(lane *self, uint64_t offset)
{
    return sl_store_write(self->store, offset, self->data, self->stretch_bytes);
}

/* Half of the store for each lane of a mixed run: stretches never overlap. */
static void *run_lane(void *argument)
{
    lane *self = argument;
    uint64_t first = self->move == write_stretch ? 0 : self->store_bytes / 2;
    uint64_t offset = first;
    double start = now();
    do {
        self->status = self->move(self, offset);
        self->moved_bytes += self->stretch_bytes;
        offset += self->stretch_bytes;
        if (offset >= first + self->store_bytes / 2)
            offset = first;
        self->seconds = now() - start;
    } while (self->status == SL_OK && self->seconds < self->seconds_wanted);
    return NULL;
}

static void fill(char *data, uint64_t bytes)
{
    uint64_t state = 0x9e3779b97f4a7c15u, *words = (uint64_t *)(void *)data;
    for (uint64_t i = 0; i < bytes / sizeof *words; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        words[i] = state ^ state >> 31;
    }
}

/* Bytes a second of the checksum, piece by piece over memory that no cache holds. */
static double hash_rate(const char *data, uint64_t bytes)
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

static double rate_of(const lane *self)
{
    return self->seconds > 0 ? (double)self->moved_bytes / self->seconds : 0;
}

/* Runs the lanes that `mode` names, in threads of their own. */
static void run_lanes(lane lanes[2], const char *mode)
{
    pthread_t threads[2];
    int runs[2] = {strcmp(mode, "write") != 0, strcmp(mode, "read") != 0};
    for (int i = 0; i < 2; i++)
        need(!runs[i] || pthread_create(&threads[i], NULL, run_lane, &lanes[i]) == 0, "thread");
    for (int i = 0; i < 2; i++)
        if (runs[i])
            pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        need(lanes[i].status == SL_OK, "lane");
}

int main(int argument_count, char **arguments)
{
    need(argument_count >= 7, "DIRECTORY MODE DEPTH STORE_MIB STRETCH_MIB SECONDS [TRANSPORT]");
    const char *directories[] = {arguments[1]}, *mode = arguments[2];
    uint64_t stretch = strtoull(arguments[5], NULL, 10) * MIB;
    need(stretch > 0, "STRETCH_MIB");
    uint64_t bytes = strtoull(arguments[4], NULL, 10) * MIB / (2 * stretch) * 2 * stretch;
    char *data =
        mmap(NULL, 2 * stretch, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(data != MAP_FAILED, "memory");
    madvise(data, 2 * stretch, MADV_HUGEPAGE);
    fill(data, 2 * stretch);
    sl_store_options options = {.directories = directories,
                                .directory_count = 1,
                                .bytes = bytes,
                                .buffer = data,
                                .buffer_bytes = 2 * stretch,
                                .depth = (uint32_t)strtoul(arguments[3], NULL, 10)};
    if (argument_count > 7)
        options.transport =
            strcmp(arguments[7], "uring") == 0 ? &sl_transport_uring : &sl_transport_threads;
    sl_store *store;
    need(sl_store_open(&options, &store) == SL_OK, "open");
    for (uint64_t at = 0; at < bytes; at += stretch)
        need(sl_store_write(store, at, data, stretch) == SL_OK, "fill");
    lane lanes[2];
    for (int i = 0; i < 2; i++)
        lanes[i] = (lane){.store = store,
                          .move = i == 0 ? read_stretch : write_stretch,
                          .data = data + (uint64_t)i * stretch,
                          .store_bytes = bytes,
                          .stretch_bytes = stretch,
                          .seconds_wanted = strtod(arguments[6], NULL)};
    double before = processor_seconds();
    run_lanes(lanes, mode);
    double spent = processor_seconds() - before;
    double moved = (double)(lanes[0].moved_bytes + lanes[1].moved_bytes);
    printf("{\"mode\": \"%s\", \"depth\": %u, \"read_bytes_per_s\": %.0f, "
           "\"write_bytes_per_s\": %.0f, \"processor_s_per_gb\": %.4f, "
           "\"checksum_bytes_per_s\": %.0f, \"description\": \"%s\"}\n",
           mode, options.depth, rate_of(&lanes[0]), rate_of(&lanes[1]), spent / (moved * 1e-9),
           hash_rate(data, 2 * stretch), sl_store_description(store));
    sl_store_close(store);
    return 0;
}
